//! The hash of the join's tables distributes outpoints like a random function, whatever they are.
//!
//! SipHash-1-3-UJ is a weak relative of SipHash, with a random key. If it put outpoints that occur, or that
//! an attacker can create, into few buckets, probing would become slow.

use digest::{sha256::sha256, siphash::SipHash13Uj};
use wire::{OutPoint, Txid};

const BUCKETS: usize = 4096;
/// Average number of outpoints per bucket.
const MEAN: usize = 16;
/// Maximum deviation, in standard deviations. Seeds are fixed, so the result does not depend on chance: only
/// another hash function can change it.
const BOUND: f64 = 4.0;

/// A set of outpoints: what it has, and each by its number.
type Set = (&'static str, fn(u32) -> OutPoint);

const FIRST: Set = ("first outputs of many transactions", |number| OutPoint { txid: txid(number), vout: 0 });
const OF_ONE: Set = ("all outputs of one transaction", |number| OutPoint { txid: txid(0), vout: number });
/// As if an attacker had searched for such txids.
const SEARCHED: Set = ("8 outputs each of txids that begin with the same 8 bytes", |number| {
    let mut txid = txid(number / 8);
    txid.0[..8].copy_from_slice(&[7; 8]);
    OutPoint { txid, vout: number % 8 }
});

fn txid(number: u32) -> Txid {
    Txid(sha256(&number.to_le_bytes()))
}

/// The upper bits of a hash select a bucket, as in the join's index.
fn upper(hash: u64) -> usize {
    (hash >> (64 - BUCKETS.trailing_zeros())) as usize
}

/// The lower ones do, as in the table of a block's own txids.
fn lower(hash: u64) -> usize {
    hash as usize % BUCKETS
}

/// Returns the number of outpoints in each bucket.
fn loads((_, outpoint): Set, bucket: fn(u64) -> usize, hash: impl Fn(OutPoint) -> u64) -> Vec<u32> {
    let mut loads = vec![0; BUCKETS];
    (0..(BUCKETS * MEAN) as u32).for_each(|number| loads[bucket(hash(outpoint(number)))] += 1);
    loads
}

/// Returns the deviation of the loads' chi-square statistic from that of a random distribution, in standard
/// deviations: more than 5 in either direction is not random.
fn deviation(loads: &[u32]) -> f64 {
    let mean = MEAN as f64;
    let chi_square: f64 = loads.iter().map(|&load| (f64::from(load) - mean).powi(2) / mean).sum();
    let freedom = loads.len() as f64 - 1.0;
    (chi_square - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn outpoints_are_distributed_evenly_over_all_buckets() {
    for key in 0..8u64 {
        let keyed = SipHash13Uj::new(key, key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for set in [FIRST, OF_ONE, SEARCHED] {
            for (place, bucket) in [("upper", upper as fn(u64) -> usize), ("lower", lower)] {
                let hash = |outpoint: OutPoint| keyed.hash_outpoint(&outpoint.txid.0, outpoint.vout);
                let deviation = deviation(&loads(set, bucket, hash));
                assert!(deviation.abs() < BOUND, "key {key}, {}, {place} bits: {deviation:.1}", set.0);
            }
        }
    }
}

/// The first word of the txid, rotated by the number of the output.
#[test]
fn detects_a_hash_that_relies_on_random_txids() {
    let word = |outpoint: &OutPoint| outpoint.txid.0.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let naive = |outpoint: OutPoint| word(&outpoint).rotate_left(outpoint.vout);
    assert!(deviation(&loads(FIRST, upper, naive)).abs() < BOUND, "txids are random");
    for set in [OF_ONE, SEARCHED] {
        assert!(deviation(&loads(set, upper, naive)) > 100.0, "{}", set.0);
    }
    // A distribution that is too even is not random either.
    assert!(deviation(&vec![MEAN as u32; BUCKETS]) < -40.0);
}
