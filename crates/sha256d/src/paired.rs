//! One or two messages at once, for processors with SHA-256 instructions: each instruction waits for the
//! result of the previous one, and a second message uses the waiting time.

use super::keyed::{WordSums, add_digest};
use super::lanes::{Lane, LaneHasher, States, by_length, sha256d_ordered};
use super::portable::INITIAL;
use super::{Block, Hasher, Message, State, digest_block, to_bytes};

/// Two messages at once: there are not enough registers for a third.
const LANES: usize = 2;

/// The padding block after a message of 64 bytes: the one bit, zeros, and 512.
const PADDING: Block = {
    let mut block = [0; 64];
    block[0] = 0x80;
    block[62] = 2;
    block
};

/// All rounds, with the blocks' words in `$w` and two macros of the calling module: `rounds!(w, k)` does four
/// rounds with the words `w` and the constants `k`; `schedule!(w0, w1, w2, w3)` replaces the four words from
/// 16 words back with the next four.
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
    /// A state in the layout of the instructions.
    type Vectors: Copy;

    /// Runs `work` compiled for these instructions, so that their functions are inlined instead of called for
    /// each block.
    fn with_features<R>(self, work: impl FnOnce() -> R) -> R;

    /// Converts a state to vectors.
    fn vectors(self, state: &State) -> Self::Vectors;

    /// Converts vectors to a state.
    fn words(self, vectors: Self::Vectors) -> State;

    /// Compresses one block into each state, interleaved.
    fn add_blocks<const N: usize>(self, vectors: &mut [Self::Vectors; N], blocks: [&Block; N]);
}

/// Implements [`Paired`] by forwarding to the calling module's type `Vectors` and function `add_blocks`,
/// compiled with `$features`.
macro_rules! paired {
    ($isa:ty, $features:literal) => {
        impl Paired for $isa {
            type Vectors = Vectors;

            with_features!($features);

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
        self.with_features(|| {
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
            *digests = self.with_features(|| sha256d_pairs(*self, two.each_ref()));
        }
        for (pair, digest) in last.iter().zip(last_digest) {
            [*digest] = self.with_features(|| sha256d_pairs(*self, [pair]));
        }
    }

    fn keyed_sums(&self, midstate: &State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        for group in blocks.chunks(LANES * per_message) {
            let (one, two) = group.split_at(per_message);
            self.with_features(|| match two {
                [] => keyed_sums(*self, midstate, [one], sums),
                _ => keyed_sums(*self, midstate, [one, two], sums),
            });
        }
    }
}

impl<P: Paired> LaneHasher<LANES> for P {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        self.with_features(|| match lanes.each_ref().map(|lane| lane.blocks_left() > 0) {
            [true, true] => add_steps(*self, states, lanes.each_ref(), [0, 1], steps),
            [true, false] => add_steps(*self, states, [&lanes[0]], [0], steps),
            _ => add_steps(*self, states, [&lanes[1]], [1], steps),
        });
    }

    fn hash_digests(&self, states: &States<LANES>, live: usize) -> [[u8; 32]; LANES] {
        if live == LANES {
            return self
                .with_features(|| second_hash(*self, [0, 1].map(|lane| self.vectors(&states.lane(lane)))));
        }
        let [digest] = self.with_features(|| second_hash(*self, [self.vectors(&states.lane(0))]));
        [digest, [0; 32]]
    }
}

/// Compresses the next `steps` blocks of `lanes`, whose indices are `numbers`.
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

/// Adds the digests of `N` keyed messages to `sums`.
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

/// Hashes the digest of each state.
#[inline(always)]
fn second_hash<P: Paired, const N: usize>(isa: P, states: [P::Vectors; N]) -> [[u8; 32]; N] {
    let blocks = states.map(|state| digest_block(&to_bytes(&isa.words(state))));
    let mut states = [isa.vectors(&INITIAL); N];
    isa.add_blocks(&mut states, blocks.each_ref());
    states.map(|state| to_bytes(&isa.words(state)))
}
