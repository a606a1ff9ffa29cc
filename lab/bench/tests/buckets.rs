//! The hash of the join's tables distributes outpoints like a random function, whatever they are.

use bench::buckets::{BUCKETS, MEAN, Outpoints, Place, deviation, loads, naive, uj};

/// Maximum deviation, in standard deviations. Seeds are fixed, so the result does not depend on chance: only
/// another hash function can change it.
const BOUND: f64 = 4.0;

#[test]
fn outpoints_are_distributed_evenly_over_all_buckets() {
    for key in 0..8u64 {
        let (k0, k1) = (key, key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for outpoints in Outpoints::ALL {
            for place in Place::ALL {
                let loads = loads(outpoints, place, uj(k0, k1));
                assert_eq!(loads.iter().sum::<u32>() as usize, BUCKETS * MEAN);
                let deviation = deviation(&loads);
                assert!(
                    deviation.abs() < BOUND,
                    "key {key}, {}, {place:?}: {deviation:.1} standard deviations",
                    outpoints.name()
                );
            }
        }
    }
}

#[test]
fn detects_a_hash_that_relies_on_random_txids() {
    assert!(deviation(&loads(Outpoints::First, Place::Upper, naive)).abs() < BOUND, "txids are random");
    for outpoints in [Outpoints::OfOne, Outpoints::Searched] {
        assert!(deviation(&loads(outpoints, Place::Upper, naive)) > 100.0, "{}", outpoints.name());
    }
    // A distribution that is too even is not random either.
    assert!(deviation(&vec![MEAN as u32; BUCKETS]) < -40.0);
}
