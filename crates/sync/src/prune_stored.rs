//! Deletes the oldest block files of a datadir whose chainstate is complete, as a bitcoind does that is
//! started with `-prune` (Core `BlockManager::FindFilesToPrune`).

use crate::pruning::{delete_files, emptied};
use api::{error::Error, event::EventSink, options::ChainOptions};
use chain::{
    blocks::files::{Files, info_mut},
    plan::planner::is_pruned,
    stored_blocks::{DatadirContents, PrunedBlocks, write_index},
};
use disk::index::FileInfo;
use wire::{FileNo, Height};

/// Bytes by which the files stay below the limit, so that the next chunks of both kinds fit (Core
/// `BLOCKFILE_CHUNK_SIZE` and `UNDOFILE_CHUNK_SIZE`).
const CHUNKS_BYTES: u64 = 17 << 20;

/// Deletes files until the rest takes at most `prune_bytes`, as far as their blocks are not among the last
/// ones. `best` is the chainstate's last block that is in the chain: others are still to be disconnected.
/// `indexed` is the last block that the node's indexes allow to be deleted. Returns the number of blocks of
/// the chain that were deleted.
pub fn prune_stored(
    files: &Files<'_>,
    options: &ChainOptions,
    prune_bytes: u64,
    best: Height,
    indexed: Option<Height>,
    sink: &dyn EventSink,
) -> Result<u32, Error> {
    let DatadirContents { chain, mut stored, mut infos, .. } =
        DatadirContents::read(files, PrunedBlocks::Leave, None)?;
    let kept = best.0.saturating_sub(options.hooks.undo_blocks);
    let indexed = indexed.map_or(u32::MAX, |indexed| indexed.0);
    let deleted = deletable(&infos, prune_bytes, Height(kept.min(indexed)));
    let blocks = stored.prune(&deleted);
    if !deleted.is_empty() {
        deleted.iter().for_each(|file| *info_mut(&mut infos, *file) = FileInfo::default());
        write_index(files, &chain, &stored, &infos, sink)?;
    } else if !is_pruned(files)? {
        return Ok(0);
    }
    // What a crash leaves of them is not listed: the next run removes it, or bitcoind when it starts.
    delete_files(files, emptied(&infos))?;
    Ok(blocks)
}

/// The files to delete so that all take at most `prune_bytes`: never the last one, and none with a block
/// above `last`.
fn deletable(infos: &[FileInfo], prune_bytes: u64, last: Height) -> Vec<FileNo> {
    let bytes = |info: &FileInfo| u64::from(info.size) + u64::from(info.undo_size);
    let mut used: u64 = infos.iter().map(bytes).sum();
    let full = infos.split_last().map_or(&[][..], |(_, full)| full);
    let mut found = Vec::new();
    for (number, info) in (0..).map(FileNo).zip(full) {
        if used + CHUNKS_BYTES < prune_bytes {
            break;
        }
        if info.size > 0 && info.height_last <= last.0 {
            used -= bytes(info);
            found.push(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_go_until_the_rest_fits() {
        let info = |size, height_last| FileInfo {
            blocks: 1,
            size,
            undo_size: 1,
            height_last,
            ..FileInfo::default()
        };
        let mebibytes = 1 << 20;
        let infos = [
            info(9 * mebibytes, 100),
            FileInfo::default(),
            info(9 * mebibytes, 300),
            info(9 * mebibytes, 200),
        ];
        let deletable = |limit: u64, last| deletable(&infos, limit << 20, Height(last));
        assert_eq!(deletable(45, 999), []);
        assert_eq!(deletable(44, 999), [FileNo(0)], "exactly the limit is too much, as in Core");
        assert_eq!(deletable(18, 999), [FileNo(0), FileNo(2)], "the last file stays");
        assert_eq!(deletable(18, 299), [FileNo(0)]);
        assert_eq!(deletable(18, 99), []);
    }
}
