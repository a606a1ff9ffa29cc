//! Finds the first conflict about some outpoints: a spend of a coin that does not exist, or the creation of
//! one that does.
//!
//! Matching finds in any order that creations and spends conflict, but not which of two spends comes first.
//! One pass over the blocks collects all that happens to these outpoints, which is little, and walks through
//! it in order.

use crate::stages::block_source::{Block, BlockSource, Stop};
use api::error::Error;
use chain::{blocks::block_hashes::BlockHashes, threads::on_all};
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
};
use wire::{BlockArena, BlockView, Height, OutPoint, Txid, script::is_unspendable};

/// What happens to a coin. A transaction spends before it creates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Change {
    Spent,
    Created,
}

/// Where it happens: height, and index of the transaction in its block.
type Place = (Height, u32);

/// All changes of each outpoint.
type Changes = HashMap<OutPoint, Vec<(Place, Change)>>;

/// Returns the height of the first block that spends one of these coins while it does not exist, or creates
/// it while it does; `None` if no block does. The source delivers all blocks, or if `begins_late`, those
/// above a block up to which there is no conflict: then the block is invalid unless a lower one is.
pub fn first_conflict(
    source: &BlockSource<'_>,
    outpoints: &HashSet<OutPoint>,
    begins_late: bool,
    threads: usize,
    interrupt: &AtomicBool,
) -> Result<Option<Height>, Error> {
    let txids: HashSet<Txid> = outpoints.iter().map(|outpoint| outpoint.txid).collect();
    let failed = AtomicBool::new(false);
    let collect = || -> Result<Changes, Error> {
        let (mut block, mut arena, mut hashes) =
            (Block::default(), BlockArena::default(), BlockHashes::default());
        let mut changes = Changes::new();
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let stop = |_| if is_set(interrupt) || is_set(&failed) { Stop::Now } else { Stop::Not };
        while source.read(&mut block, &stop)? {
            // Malformed blocks have faults of their own.
            let Ok(view) = arena.parse_first(block.block.bytes()) else { continue };
            hashes.without_wtxids(&view, &[]);
            collect_changes(&view, block.height, &hashes.txids, (outpoints, &txids), &mut changes);
        }
        Ok(changes)
    };
    let mut all = Changes::new();
    for part in on_all(threads, "conflicts", &failed, collect, || ()) {
        for (outpoint, changes) in part? {
            all.entry(outpoint).or_default().extend(changes);
        }
    }
    Error::check_interrupt(interrupt)?;
    Ok(all.into_values().filter_map(|changes| conflict_of(changes, begins_late)).min())
}

fn collect_changes(
    block: &BlockView<'_>,
    height: Height,
    txids: &[Txid],
    (outpoints, wanted): (&HashSet<OutPoint>, &HashSet<Txid>),
    changes: &mut Changes,
) {
    if height == Height(0) {
        // The coin of the genesis block is not in the UTXO set.
        return;
    }
    for ((tx, txid), index) in block.txs().zip(txids).zip(0..) {
        let place = (height, index);
        if index > 0 {
            for prevout in tx.inputs().map(|input| input.prevout()).filter(|it| outpoints.contains(it)) {
                changes.entry(prevout).or_default().push((place, Change::Spent));
            }
        }
        if !wanted.contains(txid) {
            continue;
        }
        for (output, vout) in tx.outputs().zip(0..) {
            let outpoint = OutPoint { txid: *txid, vout };
            if outpoints.contains(&outpoint) && !is_unspendable(output.script_pubkey()) {
                changes.entry(outpoint).or_default().push((place, Change::Created));
            }
        }
    }
}

/// Returns the height of the first change that the ones before it rule out.
///
/// If `begins_late`, a coin whose first change is a spend may exist before. If no later change shows what is
/// wrong with it, it is taken not to exist before.
fn conflict_of(mut changes: Vec<(Place, Change)>, begins_late: bool) -> Option<Height> {
    changes.sort_unstable();
    let exists_before = begins_late && changes.first().is_some_and(|(_, change)| *change == Change::Spent);
    let from_late = || conflict_after(&changes, true);
    exists_before.then(from_late).flatten().or_else(|| conflict_after(&changes, false))
}

fn conflict_after(changes: &[(Place, Change)], mut exists: bool) -> Option<Height> {
    for &((height, _), change) in changes {
        if exists == (change == Change::Created) {
            return Some(height);
        }
        exists = !exists;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_conflict_is_found_in_chain_order() {
        let spent = |height, tx| ((Height(height), tx), Change::Spent);
        let created = |height, tx| ((Height(height), tx), Change::Created);
        for (changes, expected) in [
            (vec![created(1, 0), spent(5, 2)], None),
            (vec![spent(9, 1), created(1, 0), spent(5, 2)], Some(9)),
            (vec![spent(9, 1), created(1, 0), spent(9, 2)], Some(9)),
            (vec![spent(3, 1), created(3, 2)], Some(3)),
            (vec![spent(3, 1), created(3, 1)], Some(3)),
            (vec![created(3, 1), created(8, 1)], Some(8)),
            (vec![created(3, 0), spent(4, 1), created(8, 0)], None),
        ] {
            assert_eq!(conflict_of(changes.clone(), false), expected.map(Height), "{changes:?}");
        }
        for (changes, expected) in [
            (vec![spent(5, 1)], Some(5)),
            (vec![spent(5, 1), spent(7, 1)], Some(7)),
            (vec![spent(5, 1), created(6, 0), created(7, 0)], Some(7)),
            (vec![created(4, 0), spent(5, 1), spent(6, 1)], Some(6)),
        ] {
            assert_eq!(conflict_of(changes.clone(), true), expected.map(Height), "{changes:?}");
        }
    }
}
