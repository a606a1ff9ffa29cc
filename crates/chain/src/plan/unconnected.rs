//! Stored blocks that a scan found and that no rebuild proves: those outside the chain, and above its end.
//!
//! When bitcoind connects a block that its index has, it does not check again the rules that depend on the
//! height and on the blocks below, and stops at bytes that are not those of the block. So both are checked
//! before an index has such a block, as `bitcoind -reindex` does.

use crate::{
    blocks::{
        block_check::ExpectedBlock,
        files::{CheckBuffers, Files},
    },
    threads::{each_number, lock},
};
use api::{
    error::{Error, ErrorKind},
    event::{BlockMeter, Watch},
};
use disk::index::{BlockIndex, BlockStatus, IndexEntry};
use rules::{MEDIAN_TIME_SPAN, median_time_past};
use std::{
    iter,
    sync::{Mutex, PoisonError},
};
use wire::{BlockTime, Height};

/// Checks all stored blocks of an index that are not marked as connected or invalid, as far as that is
/// possible without coins. A damaged one becomes one of which only the header is known; one that breaks a
/// rule is marked as invalid. The entries are in the order of their hashes.
///
/// # Errors
/// Any I/O error that is not about one block; [`ErrorKind::Interrupted`].
pub fn check_unconnected(
    files: &Files<'_>,
    index: &mut BlockIndex,
    threads: usize,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let is_unconnected = |entry: &IndexEntry| {
        let IndexEntry { height, status, .. } = *entry;
        height > Height(0) && status.has_data() && !status.was_connected() && !status.is_failed()
    };
    let numbered = (0..).zip(&index.entries);
    let mut unconnected: Vec<(usize, &IndexEntry)> =
        numbered.filter(|(_, entry)| is_unconnected(entry)).collect();
    unconnected.sort_unstable_by_key(|(_, entry)| (entry.file, entry.data_pos));
    let changed = Mutex::new(Vec::<(usize, IndexEntry)>::new());
    let blocks_total = unconnected.len() as u32;
    // An index has no lengths of blocks.
    let file_bytes: u64 = index.files.iter().map(|info| u64::from(info.size)).sum();
    let bytes_total = file_bytes / index.entries.len().max(1) as u64 * u64::from(blocks_total);
    let meter = BlockMeter::new(watch.sink, blocks_total, bytes_total);
    each_number(threads, blocks_total, CheckBuffers::default, |buffers, number| {
        Error::check_interrupt(watch.interrupt)?;
        let (at, entry) = unconnected[number as usize];
        let checked = check(files, &index.entries, entry, buffers)?;
        lock(&changed).extend(checked.map(|entry| (at, entry)));
        meter.add(1, 0);
        Ok(())
    })?;
    for (at, entry) in changed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        index.entries[at] = entry;
    }
    Ok(())
}

/// Checks a block. Returns what its entry must become; `None` if it stays as it is.
fn check(
    files: &Files<'_>,
    entries: &[IndexEntry],
    entry: &IndexEntry,
    buffers: &mut CheckBuffers,
) -> Result<Option<IndexEntry>, Error> {
    let IndexEntry { hash, header, height, status, file, data_pos, .. } = *entry;
    let Some((file, data_pos)) = file.zip(data_pos) else { return Ok(None) };
    let parent = |entry: &IndexEntry| {
        Some(&entries[entries.binary_search_by_key(&entry.header.prev, |entry| entry.hash).ok()?])
    };
    let below = iter::successors(parent(entry), |entry| parent(entry)).take(MEDIAN_TIME_SPAN);
    let times: Vec<BlockTime> = below.map(|entry| entry.header.time).collect();
    let (params, median_time_past_prev) = (files.params, median_time_past(&times));
    let expected = ExpectedBlock { params, height, hash, median_time_past_prev };
    match files.violation_in(&expected, file, data_pos, buffers) {
        Ok(None) => Ok(None),
        Ok(Some(_)) => {
            let status = BlockStatus(status.0 | BlockStatus::FAILED_VALID);
            Ok(Some(IndexEntry { status, ..*entry }))
        }
        Err(error) if error.kind == ErrorKind::Damaged || error.is_of_medium() => {
            Ok(Some(IndexEntry::of_header(hash, header, height)))
        }
        Err(error) => Err(error),
    }
}
