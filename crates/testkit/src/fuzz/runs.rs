//! Fuzz targets for Peregrine's own files: sorted runs, the checkpoint that names them, plans of ranges and
//! deltas.

use super::{disk::both, memory::MemoryDisk, reseal, wire::check_coin};
use ::wire::{Network, OutPoint, coin::chainstate_key_order};
use disk::{
    checkpoint::{Checkpoint, SavedMatching},
    delta::Delta,
    range_plan::RangePlan,
    sorted_run::{SortedRunCursor, SortedRunReader},
};
use std::path::Path;

/// The network of the seeds.
pub const NETWORK: Network = Network::Regtest;

/// The entries of a sorted run ascend, their number is as announced, and they are the same read in one part
/// or in two.
pub fn run(bytes: &[u8]) -> bool {
    both(bytes, reseal::run, |bytes| {
        let disk = MemoryDisk::default().with("a.run", bytes);
        let Ok(run) = SortedRunReader::open(&disk, Path::new("a.run"), NETWORK) else { return false };
        let (mut whole, mut again) = (Vec::new(), Vec::new());
        let fine = walk(run.cursor(0..256, 0), &mut whole);
        let halves = [0..100, 100..256].map(|half| walk(run.cursor(half, 100_000), &mut again));
        if fine {
            assert_eq!(whole.len() as u64, run.meta().entries);
            assert_eq!((halves, again), ([true; 2], whole));
        }
        fine
    })
}

/// Appends all entries to `entries`. Returns whether the cursor reached its end without an error.
fn walk(mut cursor: SortedRunCursor<'_>, entries: &mut Vec<(OutPoint, bool, u32, Vec<u8>)>) -> bool {
    let mut last = OutPoint::default();
    loop {
        match cursor.advance() {
            Ok(Some(entry)) => {
                assert!(chainstate_key_order(&last, &entry.outpoint).is_le(), "entries are out of order");
                check_coin(&entry.coin);
                last = entry.outpoint;
                entries.push((last, entry.is_spend, entry.coin.code, entry.coin.out.to_vec()));
                assert_eq!(cursor.current().map(|entry| entry.outpoint), Some(last));
            }
            end => return end.is_ok(),
        }
    }
}

/// The parts of a checkpoint add up to the length of its file.
pub fn checkpoint(bytes: &[u8]) -> bool {
    both(bytes, reseal::checkpoint, |bytes| {
        let len = bytes.len();
        let disk = MemoryDisk::default().with("work/manifest", bytes);
        let Ok(found) = Checkpoint::read(&disk, Path::new("work")) else { return false };
        let found = found.expect("the file is there");
        let state = &found.state;
        let numbers = state.completed.len() + state.coinbases.len() + state.counts.len();
        let matching = match &state.matching {
            SavedMatching::Join => 0,
            SavedMatching::Hints { sum, .. } => 44 + sum.len(),
        };
        let state_len = numbers * 8 + matching + state.made.len() * 4;
        let others_len = found.version.len() + found.files.len() * 36 + found.runs.len() * 29;
        assert_eq!(len, 142 + others_len + state_len);
        assert_eq!(state.completed.len(), state.blocks.div_ceil(64) as usize);
        assert!(found.runs.iter().all(|run| run.number < found.next_run));
        true
    })
}

/// A plan that is read has these bytes, and its ranges and shards divide what there is.
pub fn range_plan(bytes: &[u8]) -> bool {
    both(bytes, reseal::sealed, |bytes| {
        let disk = MemoryDisk::default().with("p.blocks", &*bytes);
        let Ok((plan, _)) = RangePlan::read(&disk, Path::new("p.blocks")) else { return false };
        assert_eq!(plan.to_bytes(), bytes);
        let ranges = plan.ends.len() as u32;
        let heights = (0..ranges).filter_map(|range| plan.heights(range)).flatten();
        assert!(heights.eq(0..plan.blocks.len() as u32));
        assert!((0..plan.shards).flat_map(|shard| plan.first_bytes(shard)).eq(0..256));
        true
    })
}

/// A list of a delta that is read has these bytes.
pub fn delta(bytes: &[u8]) -> bool {
    both(bytes, reseal::sealed, |bytes| {
        let disk = MemoryDisk::default().with("r/delta", &*bytes);
        let Ok(delta) = Delta::read(&disk, Path::new("r")) else { return false };
        assert_eq!(delta.to_bytes(), bytes);
        true
    })
}
