//! Whether a transaction spends a coin twice: by sets, and by sorting outpoints. `rules` sorts keys of
//! outpoints ([`rules::inputs_are_distinct_and_not_null`]).

use std::collections::{BTreeSet, HashSet};
use wire::{OutPoint, TxView};

/// Inserts each outpoint into an ordered set, as Bitcoin Core does.
pub fn by_ordered_set(tx: &TxView<'_>) -> bool {
    let mut seen = BTreeSet::new();
    tx.inputs().all(|input| seen.insert(input.prevout()))
}

/// Inserts each outpoint into a hash set.
pub fn by_hash_set(tx: &TxView<'_>) -> bool {
    let mut seen = HashSet::new();
    tx.inputs().all(|input| seen.insert(input.prevout()))
}

/// Sorts the outpoints and compares neighbours, as is proposed for Bitcoin Core. With `SHORTCUTS`, one input
/// needs neither, and two are compared directly.
pub fn by_sorting<const SHORTCUTS: bool>(tx: &TxView<'_>) -> bool {
    let mut prevouts = tx.inputs().map(|input| input.prevout());
    match prevouts.len() {
        0 | 1 if SHORTCUTS => true,
        2 if SHORTCUTS => prevouts.next() != prevouts.next(),
        _ => sorted(tx).is_sorted_by(|a, b| a != b),
    }
}

/// Sorts the outpoints, compares neighbours, and asks of each whether it is null.
pub fn by_sorting_and_each_null(tx: &TxView<'_>) -> bool {
    sorted(tx).is_sorted_by(|a, b| a != b) && !tx.inputs().any(|input| input.prevout().is_null())
}

/// Sorts the outpoints, compares neighbours, and looks for a null outpoint only where the order puts it:
/// among the first, those of the txid zero.
pub fn by_sorting_and_ends(tx: &TxView<'_>) -> bool {
    let prevouts = sorted(tx);
    let zeros = prevouts.iter().take_while(|prevout| prevout.txid.0 == [0; 32]);
    prevouts.is_sorted_by(|a, b| a != b) && !zeros.last().is_some_and(OutPoint::is_null)
}

fn sorted(tx: &TxView<'_>) -> Vec<OutPoint> {
    let mut prevouts: Vec<_> = tx.inputs().map(|input| input.prevout()).collect();
    prevouts.sort_unstable();
    prevouts
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::sha256::sha256;
    use wire::BlockArena;

    /// A transaction that spends these coins, given by numbers.
    fn tx(numbers: &[u8]) -> Vec<u8> {
        let mut bytes = [&2_u32.to_le_bytes()[..], &[numbers.len() as u8]].concat();
        for number in numbers {
            bytes.extend_from_slice(&sha256(&[number / 4]));
            bytes.extend_from_slice(&u32::from(number % 4).to_le_bytes());
            bytes.extend_from_slice(&[0, 0xff, 0xff, 0xff, 0xff]);
        }
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn all_ways_agree_with_a_hash_set_on_random_inputs() {
        let (mut arena, mut keys, mut seen) = (BlockArena::default(), Vec::new(), [0; 2]);
        for seed in 0..2_000_u32 {
            let random = sha256(&seed.to_le_bytes());
            let bytes = tx(&random[1..][..1 + usize::from(random[0]) % 24]);
            let tx = arena.parse_tx(&bytes).unwrap();
            let expected = by_hash_set(&tx);
            seen[usize::from(expected)] += 1;
            let ways = [
                by_ordered_set(&tx),
                by_sorting::<true>(&tx),
                by_sorting::<false>(&tx),
                by_sorting_and_each_null(&tx),
                by_sorting_and_ends(&tx),
                rules::inputs_are_distinct_and_not_null(&tx, &mut keys),
            ];
            assert_eq!(ways, [expected; 6], "seed {seed}");
        }
        assert!(seen.iter().all(|count| *count > 200), "{seen:?}");
    }
}
