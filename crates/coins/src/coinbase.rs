//! Whether the coinbase txids of a chain are unique, on which the join's exactness stands.
//!
//! BIP-0034 makes them so in practice; before it, mainnet has two pairs, and any other chain may have what
//! it likes.

use digest::siphash::SipHash13Uj;
use wire::{Height, Txid};

/// The coinbase txids of the blocks seen so far, each as a keyed hash of 8 bytes.
///
/// Equal txids always show. Different ones look equal with a chance below 1 in 10 million for a chain of a
/// million blocks, and that costs time only: the chain is then judged in order.
#[derive(Clone, Debug)]
pub struct CoinbaseTxids {
    hasher: SipHash13Uj,
    seen: Vec<(u64, Height)>,
}

impl CoinbaseTxids {
    /// None seen. Collections that are to be merged need the same `key`, from the system's random source.
    #[must_use]
    pub fn new(key: (u64, u64)) -> Self {
        Self { hasher: SipHash13Uj::new(key.0, key.1), seen: Vec::new() }
    }

    /// Adds a block, in any order; once each.
    pub fn push(&mut self, height: Height, coinbase: &Txid) {
        self.seen.push((self.hasher.with_jumbo(&coinbase.0).finish(), height));
    }

    /// Adds all that another worker has seen, under the same key.
    pub fn merge(&mut self, other: Self) {
        self.seen.extend(other.seen);
    }

    /// Number of blocks added.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether no block was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Returns the heights of blocks that repeat a coinbase txid, each with the height of the last one
    /// before it, lowest repetition first. Pairs in `allowed`, written the same way, are left out.
    #[must_use]
    pub fn duplicates(mut self, allowed: &[(Height, Height)]) -> Vec<(Height, Height)> {
        self.seen.sort_unstable();
        let mut pairs: Vec<(Height, Height)> = self
            .seen
            .windows(2)
            .filter(|pair| pair[0].0 == pair[1].0)
            .map(|pair| (pair[0].1, pair[1].1))
            .filter(|pair| !allowed.contains(pair))
            .collect();
        pairs.sort_unstable_by_key(|&(first, again)| (again, first));
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_pairs_across_workers_but_the_allowed_ones() {
        let key = (1, 2);
        let (mut a, mut b) = (CoinbaseTxids::new(key), CoinbaseTxids::new(key));
        let txid = |n: u8| Txid([n; 32]);
        for (height, n) in [(5, 1), (3, 2), (9, 3)] {
            a.push(Height(height), &txid(n));
        }
        for (height, n) in [(2, 3), (7, 2), (8, 2), (1, 4)] {
            b.push(Height(height), &txid(n));
        }
        a.merge(b);
        assert_eq!(a.len(), 7);
        let pair = |first, again| (Height(first), Height(again));
        assert_eq!(a.clone().duplicates(&[]), [pair(3, 7), pair(7, 8), pair(2, 9)]);
        assert_eq!(a.clone().duplicates(&[pair(2, 9), pair(3, 8)]), [pair(3, 7), pair(7, 8)]);
        assert_eq!(a.duplicates(&[pair(2, 9), pair(3, 7), pair(7, 8)]), []);
    }
}
