//! SHA-256 by the x86 SHA extensions, which do two rounds in one instruction: the fastest for a single
//! stream. Two messages side by side are faster still, because each round waits for the one before.

use std::arch::x86_64::*;

use super::keyed::{WordSums, add_digest};
use super::lanes::{Lane, Machine, States, by_length, sha256d_ordered};
use super::portable::{self, K};
use super::{Block, Message, State, digest_block, to_bytes};

/// Two messages at once: a third would find no free registers.
const LANES: usize = 2;

/// The proof that the processor has SHA, SSE4.1 and SSSE3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShaNi(());

impl ShaNi {
    pub(crate) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("sha")
            && is_x86_feature_detected!("sse4.1")
            && is_x86_feature_detected!("ssse3");
        found.then_some(Self(()))
    }

    /// Adds whole blocks to the state, in order.
    pub(super) fn compress(self, state: &mut State, blocks: &[Block]) {
        // SAFETY: `self` proves the features.
        unsafe { compress(state, blocks) }
    }

    /// Writes the SHA-256d of each message to the digest of the same index.
    pub(super) fn sha256d_many(self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        sha256d_ordered(&self, messages, &by_length(messages), digests);
    }

    /// Writes the SHA-256d of each pair of nodes to the digest of the same index.
    pub(super) fn sha256d_pairs(self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        let (twos, last) = pairs.as_chunks::<2>();
        let (two_digests, last_digest) = digests.as_chunks_mut::<2>();
        for ([one, two], digests) in twos.iter().zip(two_digests) {
            // SAFETY: `self` proves the features.
            *digests = unsafe { sha256d_pairs([one, two]) };
        }
        for (pair, digest) in last.iter().zip(last_digest) {
            // SAFETY: `self` proves the features.
            [*digest] = unsafe { sha256d_pairs([pair]) };
        }
    }

    /// Adds up the digests of keyed messages, all of `per_message` blocks.
    pub(super) fn keyed_sums(
        self,
        midstate: &State,
        blocks: &[Block],
        per_message: usize,
        sums: &mut WordSums,
    ) {
        for group in blocks.chunks(LANES * per_message) {
            let (one, two) = group.split_at(per_message);
            // SAFETY: `self` proves the features.
            unsafe {
                if two.is_empty() {
                    keyed_sums(midstate, [one], sums);
                } else {
                    keyed_sums(midstate, [one, two], sums);
                }
            }
        }
    }
}

/// The state as the instructions want it, words from high to low: a b e f and c d g h.
#[derive(Clone, Copy)]
struct Vectors {
    abef: __m128i,
    cdgh: __m128i,
}

impl Vectors {
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn new(state: &State) -> Self {
        let halves = state.as_chunks::<4>().0;
        let cdab = _mm_shuffle_epi32::<0xb1>(load(&halves[0]));
        let efgh = _mm_shuffle_epi32::<0x1b>(load(&halves[1]));
        Self { abef: _mm_alignr_epi8::<8>(cdab, efgh), cdgh: _mm_blend_epi16::<0xf0>(efgh, cdab) }
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn words(self) -> State {
        let feba = _mm_shuffle_epi32::<0x1b>(self.abef);
        let dchg = _mm_shuffle_epi32::<0xb1>(self.cdgh);
        let mut state = [0; 8];
        let halves = state.as_chunks_mut::<4>().0;
        store(&mut halves[0], _mm_blend_epi16::<0xf0>(feba, dchg));
        store(&mut halves[1], _mm_alignr_epi8::<8>(dchg, feba));
        state
    }
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn compress(state: &mut State, blocks: &[Block]) {
    let mut vectors = [Vectors::new(state)];
    for block in blocks {
        add_blocks(&mut vectors, [block]);
    }
    *state = vectors[0].words();
}

impl Machine<LANES> for ShaNi {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        // SAFETY: `self` proves the features.
        unsafe {
            match lanes.each_ref().map(|lane| lane.left() > 0) {
                [true, true] => add_steps(states, lanes.each_ref(), [0, 1], steps),
                [true, false] => add_steps(states, [&lanes[0]], [0], steps),
                _ => add_steps(states, [&lanes[1]], [1], steps),
            }
        }
    }

    fn hash_digests(&self, states: &States<LANES>, live: usize) -> [[u8; 32]; LANES] {
        // SAFETY: `self` proves the features.
        unsafe {
            if live == LANES {
                return second_hash([0, 1].map(|lane| Vectors::new(&states.lane(lane))));
            }
            let [digest] = second_hash([Vectors::new(&states.lane(0))]);
            [digest, [0; 32]]
        }
    }
}

/// Adds the next blocks of some lanes, whose numbers are `numbers`.
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn add_steps<const N: usize>(
    states: &mut States<LANES>,
    lanes: [&Lane<'_>; N],
    numbers: [usize; N],
    steps: usize,
) {
    let mut vectors = numbers.map(|number| Vectors::new(&states.lane(number)));
    let mut scratch = [[0; 64]; N];
    for step in 0..steps {
        let mut blocks = [const { &[0; 64] }; N];
        for ((block, lane), scratch) in blocks.iter_mut().zip(lanes).zip(&mut scratch) {
            *block = lane.block(lane.number + step, scratch);
        }
        add_blocks(&mut vectors, blocks);
    }
    for (number, vectors) in numbers.into_iter().zip(vectors) {
        states.set(number, &vectors.words());
    }
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn sha256d_pairs<const N: usize>(pairs: [&Block; N]) -> [[u8; 32]; N] {
    /// What follows 64 bytes: the one bit, zeros, and 512.
    const PADDING: Block = {
        let mut block = [0; 64];
        block[0] = 0x80;
        block[62] = 2;
        block
    };
    let mut states = [Vectors::new(&portable::INITIAL); N];
    add_blocks(&mut states, pairs);
    add_blocks(&mut states, [&PADDING; N]);
    second_hash(states)
}

/// Adds up the digests of keyed messages, side by side.
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn keyed_sums<const N: usize>(midstate: &State, messages: [&[Block]; N], sums: &mut WordSums) {
    let mut states = [Vectors::new(midstate); N];
    for number in 0..messages[0].len() {
        add_blocks(&mut states, messages.map(|message| &message[number]));
    }
    states.iter().for_each(|state| add_digest(sums, &to_bytes(&state.words())));
}

/// Hashes the digests that are the states.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn second_hash<const N: usize>(states: [Vectors; N]) -> [[u8; 32]; N] {
    let blocks = states.map(|state| digest_block(&to_bytes(&state.words())));
    let mut states = [Vectors::new(&portable::INITIAL); N];
    add_blocks(&mut states, blocks.each_ref());
    states.map(|state| to_bytes(&state.words()))
}

/// Adds one block to each state. The instructions of `N` states fill each other's waiting times.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn add_blocks<const N: usize>(states: &mut [Vectors; N], blocks: [&Block; N]) {
    let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let mut v = *states;
    let mut w = [[_mm_setzero_si128(); N]; 4];
    for (w, n) in w.iter_mut().zip(0..) {
        for (w, block) in w.iter_mut().zip(blocks) {
            // SAFETY: a quarter of a block is 16 readable bytes; the load needs no alignment.
            let words = unsafe { _mm_loadu_si128(block.as_chunks::<16>().0[n].as_ptr().cast()) };
            *w = _mm_shuffle_epi8(words, big_endian);
        }
    }
    let [mut w0, mut w1, mut w2, mut w3] = w;
    let k = K.as_chunks::<4>().0;
    // Four rounds with the words of `$w`.
    macro_rules! rounds {
        ($w:ident, $k:expr) => {
            for n in 0..N {
                let wk = _mm_add_epi32($w[n], load(&k[$k]));
                v[n].cdgh = _mm_sha256rnds2_epu32(v[n].cdgh, v[n].abef, wk);
                v[n].abef = _mm_sha256rnds2_epu32(v[n].abef, v[n].cdgh, _mm_shuffle_epi32::<0x0e>(wk));
            }
        };
    }
    // The next four words of the schedule, in place of those 16 words back.
    macro_rules! schedule {
        ($w0:ident, $w1:ident, $w2:ident, $w3:ident) => {
            for n in 0..N {
                let between = _mm_alignr_epi8::<4>($w3[n], $w2[n]);
                let sum = _mm_add_epi32(_mm_sha256msg1_epu32($w0[n], $w1[n]), between);
                $w0[n] = _mm_sha256msg2_epu32(sum, $w3[n]);
            }
        };
    }
    macro_rules! sixteen {
        ($k:expr) => {
            schedule!(w0, w1, w2, w3);
            rounds!(w0, $k);
            schedule!(w1, w2, w3, w0);
            rounds!(w1, $k + 1);
            schedule!(w2, w3, w0, w1);
            rounds!(w2, $k + 2);
            schedule!(w3, w0, w1, w2);
            rounds!(w3, $k + 3);
        };
    }
    rounds!(w0, 0);
    rounds!(w1, 1);
    rounds!(w2, 2);
    rounds!(w3, 3);
    sixteen!(4);
    sixteen!(8);
    sixteen!(12);
    for (state, v) in states.iter_mut().zip(v) {
        state.abef = _mm_add_epi32(state.abef, v.abef);
        state.cdgh = _mm_add_epi32(state.cdgh, v.cdgh);
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn load(words: &[u32; 4]) -> __m128i {
    // SAFETY: `words` is 16 readable bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn store(words: &mut [u32; 4], vector: __m128i) {
    // SAFETY: `words` is 16 writable bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), vector) }
}
