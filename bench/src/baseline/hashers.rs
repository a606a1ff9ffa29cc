//! Keyed hashes of outpoints, for tables in memory.

use digest::siphash::{SipHash13Uj, siphash24};
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    hint::black_box,
};
use wire::OutPoint;

/// A hash of outpoints under a key of 128 bits.
pub trait OutpointHasher {
    /// Creates the hasher with its key.
    fn new(k0: u64, k1: u64) -> Self;

    /// Returns the hash of an outpoint.
    fn hash(&self, outpoint: &OutPoint) -> u64;
}

/// SipHash-2-4: Bitcoin Core's until 2026.
#[derive(Clone, Copy, Debug)]
pub struct SipHash24(u64, u64);

/// SipHash-1-3 of the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct SipHash13(u64, u64);

/// What a `HashMap` does by default: the standard library's SipHash-1-3 through the trait `Hash`. Its key is
/// random.
#[derive(Clone, Debug)]
pub struct Std(RandomState);

/// SipHash-1-3 with jumbo blocks, unpadded: Bitcoin Core's since 2026, and Peregrine's.
#[derive(Clone, Copy, Debug)]
pub struct Jumbo(SipHash13Uj);

/// The same, whose first state is made from the key for each hash.
#[derive(Clone, Copy, Debug)]
pub struct UnsaltedJumbo(u64, u64);

/// Returns what is hashed of an outpoint.
fn message(outpoint: &OutPoint) -> [u8; 36] {
    let mut message = [0; 36];
    message[..32].copy_from_slice(&outpoint.txid.0);
    message[32..].copy_from_slice(&outpoint.vout.to_le_bytes());
    message
}

impl OutpointHasher for SipHash24 {
    fn new(k0: u64, k1: u64) -> Self {
        Self(k0, k1)
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        siphash24(self.0, self.1, &message(outpoint))
    }
}

impl OutpointHasher for SipHash13 {
    fn new(k0: u64, k1: u64) -> Self {
        Self(k0, k1)
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(&message(outpoint));
        hasher.finish()
    }
}

impl OutpointHasher for Std {
    fn new(_: u64, _: u64) -> Self {
        Self(RandomState::new())
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        self.0.hash_one(outpoint)
    }
}

impl OutpointHasher for Jumbo {
    fn new(k0: u64, k1: u64) -> Self {
        Self(SipHash13Uj::new(k0, k1))
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        self.0.hash_outpoint(&outpoint.txid.0, outpoint.vout)
    }
}

impl OutpointHasher for UnsaltedJumbo {
    fn new(k0: u64, k1: u64) -> Self {
        Self(k0, k1)
    }

    #[inline]
    fn hash(&self, outpoint: &OutPoint) -> u64 {
        // Opaque, or the compiler would make the state once.
        let Self(k0, k1) = black_box(self);
        SipHash13Uj::new(*k0, *k1).hash_outpoint(&outpoint.txid.0, outpoint.vout)
    }
}

/// A set of outpoints.
#[derive(Debug)]
pub struct OutpointSet<H> {
    hasher: H,
    outpoints: HashTable<OutPoint>,
}

impl<H: OutpointHasher> OutpointSet<H> {
    /// Creates a set of these outpoints, which grows as they come.
    #[must_use]
    pub fn of(outpoints: &[OutPoint]) -> Self {
        let (hasher, mut table) = (H::new(1, 2), HashTable::new());
        for outpoint in outpoints {
            let is_it = |other: &OutPoint| other == outpoint;
            table.entry(hasher.hash(outpoint), is_it, |other| hasher.hash(other)).or_insert(*outpoint);
        }
        Self { hasher, outpoints: table }
    }

    /// Returns how many of these outpoints are in the set.
    #[must_use]
    pub fn count(&self, outpoints: &[OutPoint]) -> usize {
        let is_in = |outpoint: &&OutPoint| {
            self.outpoints.find(self.hasher.hash(outpoint), |other| other == *outpoint).is_some()
        };
        outpoints.iter().filter(is_in).count()
    }
}

/// Returns the sum of the outpoints' hashes.
#[must_use]
pub fn sum<H: OutpointHasher>(outpoints: &[OutPoint]) -> u64 {
    let hasher = H::new(1, 2);
    outpoints.iter().fold(0, |sum, outpoint| sum.wrapping_add(hasher.hash(black_box(outpoint))))
}
