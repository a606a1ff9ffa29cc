//! MuHash3072 agrees with Bitcoin Core's published value, with an independent crate, and with itself in any
//! order.

use peregrine_digest::muhash::MuHash3072;

/// Returns an element of Core's tests: 32 bytes, of which the first is `number`.
fn element(number: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = number;
    bytes
}

fn hex_reversed(bytes: [u8; 32]) -> String {
    bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of {0} + {1} - {2} in Core's `crypto_tests.cpp`, in display order.
const CORE_VALUE: &str = "10d312b100cbd32ada024a6646e40d3482fcff103668d2625f10002a607d5863";

#[test]
fn equals_cores_value_in_every_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut set = MuHash3072::new();
        for number in order {
            match number {
                2 => set.remove(&element(2)),
                _ => set.insert(&element(number)),
            }
        }
        assert_eq!(hex_reversed(set.finalize()), CORE_VALUE, "order {order:?}");
    }
}

/// The value is `gettxoutsetinfo muhash` without any coins (Core's functional test feature_utxo_set_hash).
#[test]
fn removing_all_elements_leaves_the_empty_set() {
    let empty = MuHash3072::new().finalize();
    assert_eq!(hex_reversed(empty), "dd5ad2a105c2d29495f577245c357409002329b9f4d6182c0af3dc2f462555c8");
    let mut set = MuHash3072::new();
    for number in 0..20 {
        set.remove(&element(number));
    }
    for number in (0..20).rev() {
        set.insert(&element(number));
    }
    assert_eq!(set.finalize(), empty);
}

#[test]
fn equals_an_independent_implementation() {
    let mut reference = blvm_muhash::MuHash3072::new();
    let mut set = MuHash3072::new();
    for round in 0..120_usize {
        let data: Vec<u8> = (0..round * 3).map(|i| (i * 31 + round) as u8).collect();
        if round % 5 == 3 {
            reference.remove_mut(&data);
            set.remove(&data);
        } else {
            reference.insert_mut(&data);
            set.insert(&data);
        }
        if round % 13 == 0 {
            assert_eq!(set.clone().finalize(), reference.clone().finalize(), "after {} changes", round + 1);
        }
    }
    assert_eq!(set.finalize(), reference.finalize());
}

#[test]
fn parts_combine_to_the_same_hash_in_any_order() {
    let part = |numbers: std::ops::Range<u8>| {
        let mut set = MuHash3072::new();
        for number in numbers {
            match number % 4 {
                0 => set.remove(&element(number)),
                _ => set.insert(&element(number)),
            }
        }
        set
    };
    let whole = part(0..90).finalize();
    let parts = [part(0..10), part(10..11), part(11..60), part(60..90)];
    for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]] {
        let mut sum = MuHash3072::default();
        for i in order {
            sum.combine(&parts[i]);
        }
        assert_eq!(sum.finalize(), whole, "order {order:?}");
    }
    let mut right = parts[2].clone();
    right.combine(&parts[3]);
    let mut left = parts[0].clone();
    left.combine(&parts[1]);
    left.combine(&right);
    assert_eq!(left.finalize(), whole, "in pairs");
}

#[test]
fn removing_all_elements_makes_a_restored_set_empty() {
    let mut set = MuHash3072::new();
    assert!(set.is_empty());
    set.remove(b"b");
    set.insert(b"a");
    assert!(!set.is_empty());
    let mut resumed = MuHash3072::from_bytes(&set.to_bytes()).unwrap();
    assert_eq!(resumed.clone().finalize(), set.clone().finalize());
    resumed.insert(b"b");
    resumed.remove(b"a");
    assert!(resumed.is_empty());
    resumed.insert(b"a");
    resumed.insert(b"a");
    resumed.remove(b"a");
    assert!(!resumed.is_empty(), "a is in it once");
}
