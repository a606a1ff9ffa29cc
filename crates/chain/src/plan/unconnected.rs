//! Stored blocks that a scan found and that no rebuild proves: those outside the chain, and above its end.
//!
//! When bitcoind connects a block that its index has, it does not check the rules again that it checks when a
//! block arrives. So whoever writes an index must have checked them, as `bitcoind -reindex` does.

use crate::{
    blocks::{block_check::ExpectedBlock, files::Files},
    threads::{each_number, lock},
};
use api::error::{Error, ErrorKind};
use disk::index::{BlockIndex, BlockStatus, IndexEntry};
use rules::{MEDIAN_TIME_SPAN, median_time_past};
use std::{
    iter,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
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
    interrupt: &AtomicBool,
) -> Result<(), Error> {
    let entries = &index.entries;
    let parent = |entry: &IndexEntry| {
        let at = entries.binary_search_by_key(&entry.header.prev, |entry| entry.hash).ok()?;
        entries.get(at)
    };
    let is_unconnected = |entry: &IndexEntry| {
        let IndexEntry { height, status, .. } = *entry;
        height > Height(0) && status.has_data() && !status.was_connected() && !status.is_failed()
    };
    let unconnected: Vec<_> = (0..).zip(entries).filter(|(_, entry)| is_unconnected(entry)).collect();
    let changed = Mutex::new(Vec::new());
    each_number(
        threads,
        unconnected.len() as u32,
        || (),
        |(), number| {
            Error::check_interrupt(interrupt)?;
            let (at, entry): (usize, &IndexEntry) = unconnected[number as usize];
            let IndexEntry { hash, header, height, status, file, data_pos, .. } = *entry;
            let Some((file, data_pos)) = file.zip(data_pos) else { return Ok(()) };
            let below = iter::successors(parent(entry), |entry| parent(entry)).take(MEDIAN_TIME_SPAN);
            let times: Vec<BlockTime> = below.map(|entry| entry.header.time).collect();
            let (params, median_time_past_prev) = (files.params, median_time_past(&times));
            let expected = ExpectedBlock { params, height, hash, median_time_past_prev };
            let entry = match files.violation_in(expected, file, data_pos) {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {
                    IndexEntry { status: BlockStatus(status.0 | BlockStatus::FAILED_VALID), ..*entry }
                }
                Err(error) if error.kind == ErrorKind::Damaged || error.is_of_medium() => {
                    IndexEntry::of_header(hash, header, height)
                }
                Err(error) => return Err(error),
            };
            lock(&changed).push((at, entry));
            Ok(())
        },
    )?;
    for (at, entry) in changed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        index.entries[at] = entry;
    }
    Ok(())
}
