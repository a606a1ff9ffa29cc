//! As many messages at once as a vector has words: lane `i` of every vector belongs to message `i`. For
//! processors without instructions for SHA-256; where they exist they are faster.

use super::keyed::{WordSums, add_digest};
use super::lanes::{Costs, Lane, Machine, PADDING_SUMS, Shares, States, sha256d_ordered};
use super::portable::{INITIAL, Portable};
use super::{Block, Hasher, Message, State, sha256d_one};
use crate::kernel::Kernel;

/// Instructions on vectors of `LANES` words, and SHA-256 in all lanes by them.
pub(crate) trait Simd<const LANES: usize>: Copy {
    /// A word of all lanes.
    type Vector: Copy;

    /// Of compressions in all lanes, and of those of the portable form.
    const COSTS: Costs;

    /// Does `work`, compiled for these instructions: what is inlined there need not be called for each block.
    fn compiled<R>(self, work: impl FnOnce() -> R) -> R;

    /// Puts one word into all lanes.
    fn same(self, word: u32) -> Self::Vector;

    /// Puts each word into its lane.
    fn load(self, words: &[u32; LANES]) -> Self::Vector;

    /// Takes the words out of the lanes.
    fn store(self, vector: Self::Vector) -> [u32; LANES];

    /// Turns a block for each lane into their 16 words: word `t` of all lanes side by side.
    fn transpose(self, blocks: &[&Block; LANES]) -> [Self::Vector; 16];

    /// Turns states into the bytes of their digests, lane by lane.
    fn digests(self, state: &[Self::Vector; 8]) -> [[u8; 32]; LANES];

    /// Adds one block to the states of all lanes.
    fn compress(self, state: &mut [Self::Vector; 8], words: &[Self::Vector; 16]);

    /// Adds one block that is the same in all lanes; `sums` are the 64 words of its schedule plus the round
    /// constants.
    fn compress_known(self, state: &mut [Self::Vector; 8], sums: &[u32; 64]);
}

/// Implements [`Simd`] by functions of who calls, named as its own, that need the features `$features` and no
/// proof of them.
macro_rules! simd {
    ($isa:ty, $lanes:expr, $vector:ty, $features:literal, $costs:expr) => {
        impl Simd<$lanes> for $isa {
            type Vector = $vector;

            const COSTS: Costs = $costs;

            compiled_for!($features);

            #[inline(always)]
            fn same(self, word: u32) -> $vector {
                // SAFETY: `self` proves the features.
                unsafe { same(word) }
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

/// What hashes by vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wide<V, const LANES: usize>(pub(super) V);

impl<V: Simd<LANES>, const LANES: usize> Hasher for Wide<V, LANES> {
    fn compress(&self, state: &mut State, blocks: &[Block]) {
        // One stream has no use for lanes.
        Portable.compress(state, blocks);
    }

    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        let shares = Shares::new::<LANES>(messages, V::COSTS);
        sha256d_ordered(self, messages, shares.lanes(), digests);
        for &index in shares.streams() {
            let index = index as usize;
            digests[index] = sha256d_one(Kernel::PORTABLE, &messages[index]);
        }
    }

    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        for (pairs, digests) in pairs.chunks(LANES).zip(digests.chunks_mut(LANES)) {
            let hashes = self.0.compiled(|| {
                let mut state = self.initial();
                self.0.compress(&mut state, &self.0.transpose(&one_each(pairs.iter())));
                self.0.compress_known(&mut state, &PADDING_SUMS);
                self.second_hash(&state)
            });
            digests.copy_from_slice(&hashes[..digests.len()]);
        }
    }

    fn keyed_sums(&self, midstate: &State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        for group in blocks.chunks(LANES * per_message) {
            let digests = self.0.compiled(|| {
                let mut state = midstate.map(|word| self.0.same(word));
                for number in 0..per_message {
                    let blocks = one_each(group[number..].iter().step_by(per_message));
                    self.0.compress(&mut state, &self.0.transpose(&blocks));
                }
                self.0.digests(&state)
            });
            digests[..group.len() / per_message].iter().for_each(|digest| add_digest(sums, digest));
        }
    }
}

impl<V: Simd<LANES>, const LANES: usize> Machine<LANES> for Wide<V, LANES> {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        self.0.compiled(|| {
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
        self.0.compiled(|| self.second_hash(&states.0.each_ref().map(|words| self.0.load(words))))
    }
}

impl<V: Simd<LANES>, const LANES: usize> Wide<V, LANES> {
    #[inline(always)]
    fn initial(&self) -> [V::Vector; 8] {
        INITIAL.map(|word| self.0.same(word))
    }

    /// Hashes the digests that are the states, and returns the results lane by lane.
    #[inline(always)]
    fn second_hash(&self, state: &[V::Vector; 8]) -> [[u8; 32]; LANES] {
        let mut words = [self.0.same(0); 16];
        words[..8].copy_from_slice(state);
        words[8] = self.0.same(1 << 31); // the one bit
        words[15] = self.0.same(256);
        let mut state = self.initial();
        self.0.compress(&mut state, &words);
        self.0.digests(&state)
    }
}

/// A block for each lane; lanes for which there is none get zeros.
#[inline(always)]
fn one_each<'a, const LANES: usize>(blocks: impl Iterator<Item = &'a Block>) -> [&'a Block; LANES] {
    let mut lanes = [const { &[0; 64] }; LANES];
    lanes.iter_mut().zip(blocks).for_each(|(lane, block)| *lane = block);
    lanes
}
