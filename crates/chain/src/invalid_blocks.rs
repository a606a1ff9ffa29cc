//! Marks of invalid blocks in the block index: set for what was found invalid, as bitcoind does, and taken
//! away from what is to be checked again.

use crate::blocks::files::Files;
use api::error::Error;
use disk::index::{BlockStatus, IndexEntry, IndexRows};
use std::collections::HashSet;
use wire::{BlockHash, Height};

#[derive(Clone, Copy, Debug)]
pub struct InvalidBlock {
    pub height: Height,
    pub hash: BlockHash,
}

/// Marks an invalid block, and all blocks above it that the block index contains. Returns their hashes, that
/// of the block first.
///
/// # Errors
/// A damaged index; any I/O error.
pub fn mark_invalid(files: &Files<'_>, block: InvalidBlock) -> Result<Vec<BlockHash>, Error> {
    let mut above = Vec::new();
    IndexRows::open(files.disk, &files.datadir.index_dir())?.stream(|entry| {
        if entry.height > block.height {
            above.push((entry.height, entry.hash, entry.header.prev));
        }
    })?;
    above.sort_unstable();
    let (mut invalid, mut hashes) = (HashSet::from([block.hash]), vec![block.hash]);
    for (_, hash, prev) in above {
        if invalid.contains(&prev) && invalid.insert(hash) {
            hashes.push(hash);
        }
    }
    change_marks(files, &hashes, |status| match status.is_failed() {
        true => status,
        false => BlockStatus(status.0 | BlockStatus::FAILED_VALID),
    })?;
    Ok(hashes)
}

/// Takes marks away, as `bitcoin-cli reconsiderblock` does: bitcoind, or the caller, checks these blocks when
/// their turn comes.
///
/// # Errors
/// A damaged index; any I/O error.
pub fn unmark(files: &Files<'_>, hashes: &[BlockHash]) -> Result<(), Error> {
    change_marks(files, hashes, BlockStatus::unmarked)
}

fn change_marks(
    files: &Files<'_>,
    hashes: &[BlockHash],
    change: impl Fn(BlockStatus) -> BlockStatus,
) -> Result<(), Error> {
    let mut rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let mut entries = Vec::new();
    for hash in hashes {
        let entry = rows.entry(hash)?;
        entries.extend(entry.map(|entry| IndexEntry { status: change(entry.status), ..entry }));
    }
    Ok(rows.update(&entries, &[])?)
}
