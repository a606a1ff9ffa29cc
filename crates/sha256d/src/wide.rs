//! SHA-256 of one message per vector lane: lane `i` of every vector belongs to message `i`. It serves
//! processors without SHA-256 instructions; where those exist they are faster.

use super::keyed::{WordSums, add_digest};
use super::lanes::{BatchSplit, Costs, Lane, LaneHasher, PADDING_SUMS, States, sha256d_ordered};
use super::portable::{INITIAL, Portable};
use super::{Block, Hasher, Message, State, sha256d_one};
use crate::kernel::Kernel;

/// Operations on vectors of `LANES` words, and SHA-256 in all lanes with them.
pub(crate) trait Simd<const LANES: usize>: Copy {
    /// One word per lane.
    type Vector: Copy;

    /// The costs of a compression in all lanes and of a portable one.
    const COSTS: Costs;

    /// Runs `work` compiled for these instructions, so that their functions are inlined instead of called for
    /// each block.
    fn with_features<R>(self, work: impl FnOnce() -> R) -> R;

    /// Returns a vector with `word` in every lane.
    fn splat(self, word: u32) -> Self::Vector;

    /// Returns a vector with `words[i]` in lane `i`.
    fn load(self, words: &[u32; LANES]) -> Self::Vector;

    /// Returns the words of all lanes.
    fn store(self, vector: Self::Vector) -> [u32; LANES];

    /// Transposes one block per lane into 16 vectors: vector `t` holds word `t` of every lane.
    fn transpose(self, blocks: &[&Block; LANES]) -> [Self::Vector; 16];

    /// Returns the digest of each lane's state.
    fn digests(self, state: &[Self::Vector; 8]) -> [[u8; 32]; LANES];

    /// Compresses one block per lane into the states.
    fn compress(self, state: &mut [Self::Vector; 8], words: &[Self::Vector; 16]);

    /// Compresses one block that is the same in all lanes; `sums` are the 64 words of its schedule plus the
    /// round constants.
    fn compress_known(self, state: &mut [Self::Vector; 8], sums: &[u32; 64]);
}

/// Implements [`Simd`] by forwarding to free functions of the same names in the calling module, compiled with
/// `$features`.
macro_rules! simd {
    ($isa:ty, $lanes:expr, $vector:ty, $features:literal, $costs:expr) => {
        impl Simd<$lanes> for $isa {
            type Vector = $vector;

            const COSTS: Costs = $costs;

            with_features!($features);

            #[inline(always)]
            fn splat(self, word: u32) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { splat(word) }
            }

            #[inline(always)]
            fn load(self, words: &[u32; $lanes]) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { load(words) }
            }

            #[inline(always)]
            fn store(self, vector: $vector) -> [u32; $lanes] {
                // SAFETY: `self` proves the features.
                unsafe { store(vector) }
            }

            #[inline(always)]
            fn transpose(self, blocks: &[&Block; $lanes]) -> [$vector; 16] {
                // SAFETY: `self` proves the features.
                unsafe { transpose(blocks) }
            }

            #[inline(always)]
            fn digests(self, state: &[$vector; 8]) -> [[u8; 32]; $lanes] {
                // SAFETY: `self` proves the features.
                unsafe { digests(state) }
            }

            #[inline(always)]
            fn compress(self, state: &mut [$vector; 8], words: &[$vector; 16]) {
                // SAFETY: `self` proves the features.
                unsafe { compress(state, words) }
            }

            #[inline(always)]
            fn compress_known(self, state: &mut [$vector; 8], sums: &[u32; 64]) {
                // SAFETY: `self` proves the features.
                unsafe { compress_known(state, sums) }
            }
        }
    };
}
pub(super) use simd;

/// Hashes one message per lane with the vector operations of `V`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wide<V, const LANES: usize>(pub(super) V);

impl<V: Simd<LANES>, const LANES: usize> Hasher for Wide<V, LANES> {
    fn compress(&self, state: &mut State, blocks: &[Block]) {
        // A single stream cannot use lanes.
        Portable.compress(state, blocks);
    }

    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        let split = BatchSplit::new::<LANES>(messages, V::COSTS);
        sha256d_ordered(self, messages, split.lanes(), digests);
        for &index in split.streams() {
            let index = index as usize;
            digests[index] = sha256d_one(Kernel::PORTABLE, &messages[index]);
        }
    }

    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        for (pairs, digests) in pairs.chunks(LANES).zip(digests.chunks_mut(LANES)) {
            let hashes = self.0.with_features(|| {
                let mut state = self.initial();
                self.0.compress(&mut state, &self.0.transpose(&one_block_per_lane(pairs.iter())));
                self.0.compress_known(&mut state, &PADDING_SUMS);
                self.second_hash(&state)
            });
            digests.copy_from_slice(&hashes[..digests.len()]);
        }
    }

    fn keyed_sums(&self, midstate: &State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        for group in blocks.chunks(LANES * per_message) {
            let digests = self.0.with_features(|| {
                let mut state = midstate.map(|word| self.0.splat(word));
                for number in 0..per_message {
                    let blocks = one_block_per_lane(group[number..].iter().step_by(per_message));
                    self.0.compress(&mut state, &self.0.transpose(&blocks));
                }
                self.0.digests(&state)
            });
            digests[..group.len() / per_message].iter().for_each(|digest| add_digest(sums, digest));
        }
    }
}

impl<V: Simd<LANES>, const LANES: usize> LaneHasher<LANES> for Wide<V, LANES> {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        self.0.with_features(|| {
            let mut state = states.0.each_ref().map(|words| self.0.load(words));
            let mut scratch = [[0; 64]; LANES];
            for step in 0..steps {
                let mut blocks = [const { &[0; 64] }; LANES];
                for ((block, lane), scratch) in blocks.iter_mut().zip(lanes).zip(&mut scratch) {
                    *block = lane.block(lane.number + step, scratch);
                }
                self.0.compress(&mut state, &self.0.transpose(&blocks));
            }
            states.0 = state.map(|vector| self.0.store(vector));
        });
    }

    fn hash_digests(&self, states: &States<LANES>, _: usize) -> [[u8; 32]; LANES] {
        self.0.with_features(|| self.second_hash(&states.0.each_ref().map(|words| self.0.load(words))))
    }
}

impl<V: Simd<LANES>, const LANES: usize> Wide<V, LANES> {
    #[inline(always)]
    fn initial(&self) -> [V::Vector; 8] {
        INITIAL.map(|word| self.0.splat(word))
    }

    /// Hashes the digest of each lane's state and returns the results in lane order.
    #[inline(always)]
    fn second_hash(&self, state: &[V::Vector; 8]) -> [[u8; 32]; LANES] {
        let mut words = [self.0.splat(0); 16];
        words[..8].copy_from_slice(state);
        words[8] = self.0.splat(1 << 31); // the one bit
        words[15] = self.0.splat(256);
        let mut state = self.initial();
        self.0.compress(&mut state, &words);
        self.0.digests(&state)
    }
}

/// Returns one block per lane; lanes beyond the last block get zeros.
#[inline(always)]
fn one_block_per_lane<'a, const LANES: usize>(blocks: impl Iterator<Item = &'a Block>) -> [&'a Block; LANES] {
    let mut lanes = [const { &[0; 64] }; LANES];
    lanes.iter_mut().zip(blocks).for_each(|(lane, block)| *lane = block);
    lanes
}
