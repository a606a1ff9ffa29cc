//! Random numbers from a seed, the same on every machine. Integers only, so that no libm can change a chain.

use digest::sha256::sha256;
use rand_xoshiro::{
    Xoshiro256StarStar,
    rand_core::{Rng as _, SeedableRng as _},
};

/// xoshiro256**, seeded through SHA-256.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256StarStar);

impl Rng {
    /// A stream of numbers that depends on the seed and on the purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let digest = sha256(&[&seed.to_le_bytes()[..], purpose.as_bytes()].concat());
        Self(Xoshiro256StarStar::from_seed(digest))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with probability `count / of`.
    pub fn chance(&mut self, count: u64, of: u64) -> bool {
        self.below(of) < count
    }

    /// Returns a number from 1 to `most` with a heavy tail: each doubling has a probability of `percent`
    /// percent.
    pub fn heavy(&mut self, percent: u64, most: u64) -> u64 {
        let mut base = 1;
        while base < most && self.chance(percent, 100) {
            base *= 2;
        }
        (base + self.below(base)).min(most)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}
