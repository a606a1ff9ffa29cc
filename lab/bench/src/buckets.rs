//! Measures how evenly a hash distributes outpoints over buckets: a chi-square statistic.
//!
//! The join's index and the table of a block's own txids rely on SipHash-1-3-UJ, a weak relative of SipHash,
//! with a random key. If it put outpoints that occur, or that an attacker can create, into few buckets,
//! probing would become slow. `tests/buckets.rs` asserts that it does not.

use digest::{sha256::sha256, siphash::SipHash13Uj};
use wire::{OutPoint, Txid};

/// Number of buckets.
pub const BUCKETS: usize = 4096;
/// Average number of outpoints per bucket.
pub const MEAN: usize = 16;
/// Number of bits of the hash that select the bucket.
const BITS: u32 = BUCKETS.trailing_zeros();

/// Sets of [`BUCKETS`] * [`MEAN`] outpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outpoints {
    /// The first output of each of many transactions.
    First,
    /// The outputs of one transaction.
    OfOne,
    /// Eight outputs each of transactions whose txids begin with the same 8 bytes, as if an attacker had
    /// searched for such txids.
    Searched,
}

impl Outpoints {
    /// All sets.
    pub const ALL: [Self; 3] = [Self::First, Self::OfOne, Self::Searched];

    /// Returns the description of the set.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first outputs of many transactions",
            Self::OfOne => "all outputs of one transaction",
            Self::Searched => "8 outputs each of txids that begin alike",
        }
    }

    /// Returns the outpoints of the set.
    pub fn iter(self) -> impl Iterator<Item = OutPoint> {
        let of = |number: u32| sha256(&number.to_le_bytes());
        (0..(BUCKETS * MEAN) as u32).map(move |number| match self {
            Self::First => OutPoint { txid: Txid(of(number)), vout: 0 },
            Self::OfOne => OutPoint { txid: Txid(of(0)), vout: number },
            Self::Searched => {
                let mut txid = of(number / 8);
                txid[..8].copy_from_slice(&[7; 8]);
                OutPoint { txid: Txid(txid), vout: number % 8 }
            }
        })
    }
}

/// The bits of a hash that select the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The upper bits, as in the join's index.
    Upper,
    /// The lower bits, as in the table of a block's own txids.
    Lower,
}

impl Place {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Upper, Self::Lower];

    const fn bucket(self, hash: u64) -> usize {
        match self {
            Self::Upper => (hash >> (64 - BITS)) as usize,
            Self::Lower => hash as usize % BUCKETS,
        }
    }
}

/// Returns the number of outpoints in each bucket.
#[must_use]
pub fn loads(outpoints: Outpoints, place: Place, hash: impl Fn(&OutPoint) -> u64) -> Vec<u32> {
    let mut loads = vec![0; BUCKETS];
    outpoints.iter().for_each(|outpoint| loads[place.bucket(hash(&outpoint))] += 1);
    loads
}

/// Returns the hash function of the join's tables.
pub fn uj(k0: u64, k1: u64) -> impl Fn(&OutPoint) -> u64 {
    let keyed = SipHash13Uj::new(k0, k1);
    move |outpoint| keyed.hash_outpoint(&outpoint.txid.0, outpoint.vout)
}

/// A hash that relies on txids being random, to show that the statistic detects it: the first word of the
/// txid, rotated by `vout`.
#[must_use]
pub fn naive(outpoint: &OutPoint) -> u64 {
    let word = outpoint.txid.0.first_chunk().copied().map_or(0, u64::from_le_bytes);
    word.rotate_left(outpoint.vout)
}

/// Returns the deviation of the loads' chi-square statistic from that of a random distribution, in standard
/// deviations: more than 5 in either direction is not random.
#[must_use]
pub fn deviation(loads: &[u32]) -> f64 {
    let mean = f64::from(loads.iter().sum::<u32>()) / loads.len() as f64;
    let chi_square: f64 = loads.iter().map(|&load| (f64::from(load) - mean).powi(2) / mean).sum();
    let freedom = loads.len() as f64 - 1.0;
    (chi_square - freedom) / (2.0 * freedom).sqrt()
}
