//! Compares aggregates with a naive model built from independent crates, with any key and on every kernel:
//! the model's hashes are of the whole key, outpoint and coin, so that no part of them can be changed
//! unseen, and its sums have carries, so that no power of two of equal elements sums to zero.

use digest::{kernel::Kernel, muhash::MuHash3072};
use peregrine_coins::aggregate::{Aggregate, AggregateKey, AggregateKind, Sum};
use proptest::{collection::vec, prelude::*};
use siphasher::sip128::Hasher128;
use std::{collections::BTreeMap, hash::Hasher};
use wire::{Coin, OutPoint, Txid};

const KEY: [u8; 32] = [0xa5; 32];

/// An outpoint, and the code and output of its coin.
type Element = (OutPoint, Option<(u32, Vec<u8>)>);

fn outpoint(txid: u8, vout: u32) -> OutPoint {
    OutPoint { txid: Txid([txid; 32]), vout }
}

fn coin(element: &Element) -> Option<Coin<'_>> {
    element.1.as_ref().map(|(code, out)| Coin { code: *code, out })
}

fn of(kind: AggregateKind) -> Aggregate {
    Aggregate::new(kind, AggregateKey::new(KEY))
}

/// Returns the bytes of an element, as specified in the documentation of [`Sum`].
fn bytes(element: &Element) -> Vec<u8> {
    let mut bytes = element.0.txid.0.to_vec();
    bytes.extend(element.0.vout.to_le_bytes());
    if let Some((code, out)) = &element.1 {
        bytes.extend(code.to_le_bytes());
        bytes.extend(out);
    }
    bytes
}

/// Adds or subtracts little-endian numbers digit by digit.
fn accumulate(total: &mut [u8], number: &[u8], minus: bool) {
    let mut carry = 0;
    for (total, digit) in total.iter_mut().zip(number) {
        let digit = i32::from(*digit);
        let sum = i32::from(*total) + if minus { -digit } else { digit } + carry;
        (*total, carry) = (sum as u8, sum >> 8);
    }
}

/// Returns the expected length of [`Sum::to_bytes`].
fn sum_len(kind: AggregateKind) -> usize {
    match kind {
        AggregateKind::Sha256 => 32,
        AggregateKind::SipHash128 => 16,
        AggregateKind::MuHash3072 => 768,
    }
}

/// Returns the expected value of [`Sum::to_bytes`].
fn model(kind: AggregateKind, key: [u8; 32], changes: &[(bool, Element)]) -> Vec<u8> {
    let mut total = vec![0; sum_len(kind)];
    let mut set = MuHash3072::new();
    for (minus, element) in changes {
        let element = bytes(element);
        let number = match kind {
            AggregateKind::Sha256 => {
                let message = [&key[..], b"Peregrine UTXO aggregate SHA-256", &element].concat();
                bitcoin_hashes::sha256::Hash::hash(&message).to_byte_array().to_vec()
            }
            AggregateKind::SipHash128 => {
                let mut hasher =
                    siphasher::sip128::SipHasher24::new_with_key(key.first_chunk().expect("16 of 32 bytes"));
                hasher.write(&element);
                hasher.finish128().as_bytes().to_vec()
            }
            AggregateKind::MuHash3072 => {
                if *minus {
                    set.remove(&element)
                } else {
                    set.insert(&element)
                }
                continue;
            }
        };
        accumulate(&mut total, &number, *minus);
    }
    if kind == AggregateKind::MuHash3072 { set.to_bytes().to_vec() } else { total }
}

fn apply(sum: &mut Sum, minus: bool, element: &Element) {
    if minus {
        sum.subtract(&element.0, coin(element));
    } else {
        sum.add(&element.0, coin(element));
    }
}

/// Generates changes with outpoints from a small universe, so that some repeat, and outputs from the
/// length of one block to more than is staged.
fn elements(max: usize) -> impl Strategy<Value = Vec<(bool, Element)>> {
    let out = prop_oneof![vec(any::<u8>(), 2..40), vec(any::<u8>(), 2..400)];
    let coin = prop::option::of((0u32..4, out));
    vec((any::<bool>(), ((0u8..6, 0u32..4).prop_map(|(txid, vout)| outpoint(txid, vout)), coin)), 0..max)
}

proptest! {
    #[test]
    fn every_kernel_equals_the_model(changes in elements(400), key: [u8; 32]) {
        for kernel in Kernel::available() {
            for kind in AggregateKind::ALL {
                // MuHash does not use kernels and is slow.
                let most = if kind == AggregateKind::MuHash3072 { 8 } else { usize::MAX };
                let few = changes.len().min(most);
                let mut sum = Aggregate::with_kernel(kind, AggregateKey::new(key), kernel).sum();
                changes[..few].iter().for_each(|(minus, element)| apply(&mut sum, *minus, element));
                prop_assert_eq!(
                    sum.to_bytes(), model(kind, key, &changes[..few]), "{} on {}", kind, kernel.name()
                );
            }
        }
    }

    /// Whatever the order and the distribution over partial sums, restored from bytes or not, the sum is
    /// zero if and only if each element was added as often as it was subtracted.
    #[test]
    fn zero_if_and_only_if_every_element_was_subtracted_as_often_as_added(
        changes in elements(60),
        cancelled: bool,
        threads in 1usize..5,
        places in vec(any::<prop::sample::Index>(), 120),
    ) {
        let mut changes = changes;
        if cancelled {
            let opposite: Vec<_> = changes.iter().map(|(minus, element)| (!minus, element.clone())).collect();
            changes.extend(opposite);
            for (at, place) in (0..changes.len()).zip(&places) {
                let other = place.index(changes.len());
                changes.swap(at, other);
            }
        }
        let mut balance: BTreeMap<Vec<u8>, i32> = BTreeMap::new();
        for (minus, element) in &changes {
            *balance.entry(bytes(element)).or_default() += if *minus { -1 } else { 1 };
        }
        let is_zero = balance.values().all(|count| *count == 0);
        prop_assert!(is_zero || !cancelled);
        for kind in AggregateKind::ALL {
            let aggregate = of(kind);
            let mut sums: Vec<Sum> = (0..threads).map(|_| aggregate.sum()).collect();
            for (at, (minus, element)) in changes.iter().enumerate() {
                apply(&mut sums[places[at].index(threads)], *minus, element);
            }
            let kept = sums[0].to_bytes();
            sums[0] = aggregate.sum_from_bytes(&kept).unwrap();
            let mut total = aggregate.sum();
            sums.into_iter().for_each(|sum| total.merge(sum));
            prop_assert_eq!(total.is_zero(), is_zero, "{}", kind);
        }
    }
}

#[test]
fn rejects_stored_sums_of_the_wrong_kind() {
    for kind in AggregateKind::ALL {
        let aggregate = of(kind);
        let whole = aggregate.sum().to_bytes();
        assert_eq!(whole.len(), sum_len(kind));
        assert!(aggregate.sum_from_bytes(&whole).unwrap().is_zero());
        for len in [0, 8, 15, 16, 17, 31, 32, 33, 40, 767, 769].into_iter().filter(|len| *len != whole.len())
        {
            assert!(aggregate.sum_from_bytes(&vec![1; len]).is_none(), "{kind}: {len} bytes");
        }
    }
    let zeros = of(AggregateKind::MuHash3072).sum_from_bytes(&[0; 768]);
    assert!(zeros.is_none(), "0 / 0 would equal every sum");
}

#[test]
#[should_panic(expected = "sums of two aggregates")]
fn rejects_merging_sums_of_different_kinds() {
    of(AggregateKind::Sha256).sum().merge(of(AggregateKind::SipHash128).sum());
}

#[test]
#[should_panic(expected = "sums of two aggregates")]
fn rejects_merging_sums_of_different_keys() {
    let other = Aggregate::new(AggregateKind::Sha256, AggregateKey::new([1; 32]));
    of(AggregateKind::Sha256).sum().merge(other.sum());
}

#[test]
fn names_round_trip_and_debug_output_hides_secrets() {
    for kind in AggregateKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        let mut sum = of(kind).sum();
        sum.add(&outpoint(1, 1), None);
        let text = format!("{:?} {:?} {:?}", of(kind), of(kind).key(), sum);
        assert!(!text.contains("165") && !text.to_lowercase().contains("a5"), "{text}");
    }
    let text = "xor".parse::<AggregateKind>().unwrap_err().to_string();
    assert_eq!(text, "unknown aggregate `xor`; use sha256, siphash128 or muhash");
}
