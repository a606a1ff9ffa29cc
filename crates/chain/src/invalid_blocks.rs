//! Marks blocks in the block index that were found invalid, as bitcoind does.

use crate::blocks::files::Files;
use api::error::Error;
use disk::index::{BlockStatus, IndexRows, stream_block_index};
use std::collections::HashSet;
use wire::{BlockHash, Height};

/// A block that was found invalid.
#[derive(Clone, Copy, Debug)]
pub struct InvalidBlock {
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
}

/// Marks an invalid block, and all blocks above it that the block index contains. Returns their hashes, that
/// of the block first.
///
/// # Errors
/// Any I/O error; a damaged block index.
pub fn mark_invalid(files: &Files<'_>, block: InvalidBlock) -> Result<Vec<BlockHash>, Error> {
    let dir = files.datadir.index_dir();
    let mut above = Vec::new();
    stream_block_index(files.disk, &dir, |entry| {
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
    let mut rows = IndexRows::open(files.disk, &dir)?;
    let mut entries = Vec::new();
    for hash in &hashes {
        if let Some(mut entry) = rows.entry(hash)?.filter(|entry| !entry.status.is_failed()) {
            entry.status.0 |= BlockStatus::FAILED_VALID;
            entries.push(entry);
        }
    }
    rows.update(&entries, &[])?;
    Ok(hashes)
}
