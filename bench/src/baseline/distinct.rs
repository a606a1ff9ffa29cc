//! Whether a transaction spends a coin twice: by sets, and by sorting outpoints. `rules` sorts keys of
//! outpoints ([`rules::inputs_are_distinct_and_not_null`]).

use std::collections::{BTreeSet, HashSet};
use wire::TxView;

/// Inserts each outpoint into an ordered set, as Bitcoin Core does.
#[must_use]
pub fn by_ordered_set(tx: &TxView<'_>) -> bool {
    let mut seen = BTreeSet::new();
    tx.inputs().all(|input| seen.insert(input.prevout()))
}

/// Inserts each outpoint into a hash set.
#[must_use]
pub fn by_hash_set(tx: &TxView<'_>) -> bool {
    let mut seen = HashSet::new();
    tx.inputs().all(|input| seen.insert(input.prevout()))
}

/// Sorts the outpoints and compares neighbours, as is proposed for Bitcoin Core; one input needs neither, two
/// are compared directly.
#[must_use]
pub fn by_sorting(tx: &TxView<'_>) -> bool {
    let mut prevouts = tx.inputs().map(|input| input.prevout());
    match prevouts.len() {
        0 | 1 => true,
        2 => prevouts.next() != prevouts.next(),
        _ => {
            let mut prevouts: Vec<_> = prevouts.collect();
            prevouts.sort_unstable();
            prevouts.is_sorted_by(|a, b| a != b)
        }
    }
}
