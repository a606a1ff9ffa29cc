//! Random numbers from a seed, the same on every machine. Integers only, so that no libm can change a chain.

use digest::sha256::sha256;

/// xoshiro256** (Blackman and Vigna, public domain), seeded through SHA-256.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A stream of numbers that depends on the seed and on the purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let digest = sha256(&[&seed.to_le_bytes()[..], purpose.as_bytes()].concat());
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(digest.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Self(state)
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
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

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_per_seed_and_purpose() {
        let numbers = |seed, purpose| {
            let mut rng = Rng::new(seed, purpose);
            (0..4).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, "a"), numbers(1, "a"));
        assert_ne!(numbers(1, "a"), numbers(2, "a"));
        assert_ne!(numbers(1, "a"), numbers(1, "b"));
    }

    #[test]
    fn heavy_is_mostly_small_and_sometimes_large() {
        let mut rng = Rng::new(7, "heavy");
        let numbers: Vec<u64> = (0..10_000).map(|_| rng.heavy(40, 500)).collect();
        assert!(numbers.iter().filter(|n| **n == 1).count() > 5_000);
        assert!(numbers.iter().any(|n| *n > 100));
        assert!(numbers.iter().all(|n| (1..=500).contains(n)));
    }
}
