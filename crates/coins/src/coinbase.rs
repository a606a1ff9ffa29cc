//! Checks that the coinbase txids of a chain are unique, which the join's exactness assumes.
//!
//! BIP-0034 makes them unique in practice; before it, mainnet has two pairs of equal ones, and any other
//! chain may have any number.

use digest::siphash::{SipHash13Uj, SipKey};
use wire::Txid;

/// The coinbase txids of the blocks seen so far, each as a keyed hash of 8 bytes.
///
/// Equal txids are always detected. Different ones look equal with a probability below 1 in 10 million for a
/// chain of a million blocks, which costs only time: the chain is then validated sequentially.
#[derive(Clone, Debug)]
pub struct CoinbaseTxids {
    key: SipKey,
    seen: Vec<u64>,
}

impl CoinbaseTxids {
    /// Creates an empty collection. Collections that are to be merged need the same `key`, from the system's
    /// random source.
    pub const fn new(key: SipKey) -> Self {
        Self::from_parts(key, Vec::new())
    }

    /// Restores a collection from its [`CoinbaseTxids::key`] and [`CoinbaseTxids::take_hashes`].
    pub const fn from_parts(key: SipKey, hashes: Vec<u64>) -> Self {
        Self { key, seen: hashes }
    }

    /// Adds the coinbase txid of a block. Blocks may come in any order, each once.
    pub fn push(&mut self, coinbase: &Txid) {
        self.seen.push(SipHash13Uj::new(self.key.0, self.key.1).with_jumbo(&coinbase.0).finish());
    }

    /// Adds the collection of another worker, which must have the same key.
    pub fn merge(&mut self, other: Self) {
        debug_assert_eq!(self.key, other.key);
        if self.seen.is_empty() {
            self.seen = other.seen;
        } else {
            self.seen.extend(other.seen);
        }
    }

    pub const fn key(&self) -> SipKey {
        self.key
    }

    /// Returns the hashes in no particular order, and leaves none: a copy takes much memory.
    pub fn take_hashes(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.seen)
    }

    /// Returns whether a txid occurs twice.
    pub fn has_duplicate(&mut self) -> bool {
        self.seen.sort_unstable();
        self.seen.windows(2).any(|pair| pair[0] == pair[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_duplicates_across_workers() {
        let of = |numbers: &[u8]| {
            let mut txids = CoinbaseTxids::new(SipKey(1, 2));
            numbers.iter().for_each(|&number| txids.push(&Txid([number; 32])));
            txids
        };
        let (mut a, mut b) = (of(&[1, 2, 3]), of(&[4, 5, 2]));
        assert!(!a.has_duplicate() && !b.has_duplicate());
        a.merge(b);
        assert!(a.has_duplicate());
        let mut again = CoinbaseTxids::from_parts(a.key(), a.take_hashes());
        assert_eq!(again.seen.len(), 6);
        assert!(again.has_duplicate() && !a.has_duplicate());
        again.merge(of(&[7]));
        assert!(again.has_duplicate());
    }
}
