//! One or two messages at once, for processors whose instructions do rounds of SHA-256: each waits for the
//! one before, and a second message fills the waiting.

use super::keyed::{WordSums, add_digest};
use super::lanes::{Lane, Machine, States, by_length, sha256d_ordered};
use super::portable::INITIAL;
use super::{Block, Hasher, Message, State, digest_block, to_bytes};

/// Two messages at once: a third would find no free registers.
const LANES: usize = 2;

/// What follows 64 bytes: the one bit, zeros, and 512.
const PADDING: Block = {
    let mut block = [0; 64];
    block[0] = 0x80;
    block[62] = 2;
    block
};

/// All rounds, the four words of each state's block in `$w`, by two macros of who calls: `rounds!(w, k)` does
/// four rounds with the words `w` and the constants `k`, `schedule!(w0, w1, w2, w3)` puts the next four words
/// in place of those 16 words back.
macro_rules! all_rounds {
    ($w:ident) => {
        let [mut w0, mut w1, mut w2, mut w3] = $w;
        let k = K.as_chunks::<4>().0;
        rounds!(w0, &k[0]);
        rounds!(w1, &k[1]);
        rounds!(w2, &k[2]);
        rounds!(w3, &k[3]);
        for k in k[4..].as_chunks::<4>().0 {
            schedule!(w0, w1, w2, w3);
            rounds!(w0, &k[0]);
            schedule!(w1, w2, w3, w0);
            rounds!(w1, &k[1]);
            schedule!(w2, w3, w0, w1);
            rounds!(w2, &k[2]);
            schedule!(w3, w0, w1, w2);
            rounds!(w3, &k[3]);
        }
    };
}
pub(super) use all_rounds;

/// Instructions that do rounds of SHA-256.
pub(crate) trait Paired: Copy {
    /// A state as the instructions want it.
    type Vectors: Copy;

    /// Does `work`, compiled for these instructions: what is inlined there need not be called for each block.
    fn compiled<R>(self, work: impl FnOnce() -> R) -> R;

    /// Turns a state into vectors.
    fn vectors(self, state: &State) -> Self::Vectors;

    /// Turns vectors into a state.
    fn words(self, vectors: Self::Vectors) -> State;

    /// Adds one block to each state, all of them interleaved.
    fn add_blocks<const N: usize>(self, vectors: &mut [Self::Vectors; N], blocks: [&Block; N]);
}

/// Implements [`Paired`] by a type `Vectors` and a function `add_blocks` of who calls, which need the
/// features `$features` and no proof of them.
macro_rules! paired {
    ($isa:ty, $features:literal) => {
        impl Paired for $isa {
            type Vectors = Vectors;

            compiled_for!($features);

            #[inline(always)]
            fn vectors(self, state: &State) -> Vectors {
                // SAFETY: `self` proves the features.
                unsafe { Vectors::new(state) }
            }

            #[inline(always)]
            fn words(self, vectors: Vectors) -> State {
                // SAFETY: `self` proves the features.
                unsafe { vectors.words() }
            }

            #[inline(always)]
            fn add_blocks<const N: usize>(self, vectors: &mut [Vectors; N], blocks: [&Block; N]) {
                // SAFETY: `self` proves the features.
                unsafe { add_blocks(vectors, blocks) }
            }
        }
    };
}
pub(super) use paired;

impl<P: Paired> Hasher for P {
    fn compress(&self, state: &mut State, blocks: &[Block]) {
        self.compiled(|| {
            let mut vectors = [self.vectors(state)];
            for block in blocks {
                self.add_blocks(&mut vectors, [block]);
            }
            *state = self.words(vectors[0]);
        });
    }

    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        sha256d_ordered(self, messages, &by_length(messages), digests);
    }

    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        let (twos, last) = pairs.as_chunks::<LANES>();
        let (two_digests, last_digest) = digests.as_chunks_mut::<LANES>();
        for (two, digests) in twos.iter().zip(two_digests) {
            *digests = self.compiled(|| sha256d_pairs(*self, two.each_ref()));
        }
        for (pair, digest) in last.iter().zip(last_digest) {
            [*digest] = self.compiled(|| sha256d_pairs(*self, [pair]));
        }
    }

    fn keyed_sums(&self, midstate: &State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        for group in blocks.chunks(LANES * per_message) {
            let (one, two) = group.split_at(per_message);
            self.compiled(|| match two {
                [] => keyed_sums(*self, midstate, [one], sums),
                _ => keyed_sums(*self, midstate, [one, two], sums),
            });
        }
    }
}

impl<P: Paired> Machine<LANES> for P {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        self.compiled(|| match lanes.each_ref().map(|lane| lane.left() > 0) {
            [true, true] => add_steps(*self, states, lanes.each_ref(), [0, 1], steps),
            [true, false] => add_steps(*self, states, [&lanes[0]], [0], steps),
            _ => add_steps(*self, states, [&lanes[1]], [1], steps),
        });
    }

    fn hash_digests(&self, states: &States<LANES>, live: usize) -> [[u8; 32]; LANES] {
        if live == LANES {
            return self.compiled(|| second_hash(*self, [0, 1].map(|lane| self.vectors(&states.lane(lane)))));
        }
        let [digest] = self.compiled(|| second_hash(*self, [self.vectors(&states.lane(0))]));
        [digest, [0; 32]]
    }
}

/// Adds the next blocks of some lanes, whose numbers are `numbers`.
#[inline(always)]
fn add_steps<const N: usize>(
    isa: impl Paired,
    states: &mut States<LANES>,
    lanes: [&Lane<'_>; N],
    numbers: [usize; N],
    steps: usize,
) {
    let mut vectors = numbers.map(|number| isa.vectors(&states.lane(number)));
    let mut scratch = [[0; 64]; N];
    for step in 0..steps {
        let mut blocks = [const { &[0; 64] }; N];
        for ((block, lane), scratch) in blocks.iter_mut().zip(lanes).zip(&mut scratch) {
            *block = lane.block(lane.number + step, scratch);
        }
        isa.add_blocks(&mut vectors, blocks);
    }
    for (number, vectors) in numbers.into_iter().zip(vectors) {
        states.set(number, &isa.words(vectors));
    }
}

#[inline(always)]
fn sha256d_pairs<const N: usize>(isa: impl Paired, pairs: [&Block; N]) -> [[u8; 32]; N] {
    let mut states = [isa.vectors(&INITIAL); N];
    isa.add_blocks(&mut states, pairs);
    isa.add_blocks(&mut states, [&PADDING; N]);
    second_hash(isa, states)
}

/// Adds up the digests of keyed messages, side by side.
#[inline(always)]
fn keyed_sums<const N: usize>(
    isa: impl Paired,
    midstate: &State,
    messages: [&[Block]; N],
    sums: &mut WordSums,
) {
    let mut states = [isa.vectors(midstate); N];
    for number in 0..messages[0].len() {
        isa.add_blocks(&mut states, messages.map(|message| &message[number]));
    }
    states.iter().for_each(|state| add_digest(sums, &to_bytes(&isa.words(*state))));
}

/// Hashes the digests that are the states.
#[inline(always)]
fn second_hash<P: Paired, const N: usize>(isa: P, states: [P::Vectors; N]) -> [[u8; 32]; N] {
    let blocks = states.map(|state| digest_block(&to_bytes(&isa.words(state))));
    let mut states = [isa.vectors(&INITIAL); N];
    isa.add_blocks(&mut states, blocks.each_ref());
    states.map(|state| to_bytes(&isa.words(state)))
}
