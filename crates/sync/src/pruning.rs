//! Which block files are deleted behind a rebuild that follows the download, and how far the download may run
//! ahead of it.
//!
//! A pair of files is deleted when all its blocks are below the block from which the rebuild may read again,
//! and below the last 288 blocks of the chain, which every node keeps (Core `FindFilesToPrune`).

use api::error::Error;
use chain::blocks::files::Files;
use disk::{datadir::FileKind, index::FileInfo};
use net::download::SizeEstimate;
use vfs::remove_if_there;
use wire::{FileNo, Height, MAX_BLOCK_LEN, Network};

/// The part of the space that is for undo data: one in this many.
const UNDO_SHARE: u64 = 8;
/// The part of the space for blocks after which the rebuild settles: one in this many.
const SETTLE_SHARE: u64 = 3;
/// Number of blocks that are given out at least.
const MIN_TO_COME: u64 = 16;
/// Maximum number of heights of a file whose sizes are estimated by those in the file.
const MAX_HEIGHTS: usize = 10_000;

/// Bytes of blocks after which a rebuild that is pruned to `prune_bytes` settles; never 0, because it would
/// then settle before each block and never advance.
pub fn settle_bytes(prune_bytes: u64) -> u64 {
    (space_for_blocks(prune_bytes) / SETTLE_SHARE).max(1)
}

const fn space_for_blocks(prune_bytes: u64) -> u64 {
    prune_bytes - prune_bytes / UNDO_SHARE
}

pub struct Pruning {
    sizes: SizeEstimate,
    /// Bytes that block files may have.
    space: u64,
    /// Bytes by which the download may always be ahead of what is settled: with fewer, there could be no file
    /// that can be deleted.
    min_ahead: u64,
    /// Bytes in use in block files.
    used: u64,
    /// Number of blocks that were given out and have not come.
    to_come: u32,
    /// The lowest block that is not settled; `None` before the rebuild has said where it begins.
    settled: Option<Height>,
    /// The last block that the rebuild needs.
    end: Height,
    /// The last block that may be deleted, if an index needs those above.
    indexed: Option<Height>,
}

impl Pruning {
    /// Keeps the files, which have at most `file_len` bytes each, within `prune_bytes`. `end` is the last
    /// block that the rebuild needs, `indexed` the last that may be deleted, if an index needs those above.
    pub fn new(
        network: Network,
        prune_bytes: u64,
        file_len: u32,
        end: Height,
        indexed: Option<Height>,
        infos: &[FileInfo],
    ) -> Self {
        let mut sizes = SizeEstimate::new(network);
        for info in infos.iter().filter(|info| info.blocks > 0) {
            let mean = u64::from(info.size / info.blocks);
            // The heights come from a file.
            let heights = (info.height_first..=info.height_last).take(MAX_HEIGHTS);
            heights.for_each(|height| sizes.learn(height, mean));
        }
        Self {
            sizes,
            space: space_for_blocks(prune_bytes),
            min_ahead: 2 * u64::from(file_len),
            used: infos.iter().map(|info| u64::from(info.size)).sum(),
            to_come: 0,
            settled: None,
            end,
            indexed,
        }
    }

    /// Records that the blocks below `first` are settled. Returns whether this is where the rebuild begins.
    pub fn settle(&mut self, first: Height) -> bool {
        self.settled.replace(first).is_none()
    }

    pub const fn given(&mut self) {
        self.to_come += 1;
    }

    /// Records how many blocks that were given out have not come.
    pub const fn set_to_come(&mut self, blocks: u32) {
        self.to_come = blocks;
    }

    pub fn stored(&mut self, height: Height, len: usize) {
        self.sizes.learn(height.0, len as u64);
        self.used += len as u64;
        self.to_come = self.to_come.saturating_sub(1);
    }

    pub fn has_space_for(&self, height: Height) -> bool {
        let Some(settled) = self.settled else { return false };
        let bytes = self.sizes.bytes(height.0);
        let ahead = u64::from(height.0.saturating_sub(settled.0)) * bytes;
        // When the rebuild has all its blocks, nothing will be settled for those above.
        let fits = self.used + u64::from(self.to_come + 1) * bytes <= self.space
            || ahead < self.min_ahead
            || settled > self.end;
        // Sizes of blocks that have not come are only estimated, so as many are given out as fit if all are
        // as large as a block can be.
        fits && u64::from(self.to_come) < (self.space / MAX_BLOCK_LEN as u64).max(MIN_TO_COME)
    }

    /// Returns the files that can be deleted, if the blocks from `kept` on stay. The last file always does.
    /// One with only blocks that the block index has lost goes too.
    pub fn deletable(&self, infos: &[FileInfo], kept: Height) -> Vec<FileNo> {
        let end = self.settled.unwrap_or_default().min(kept).0;
        let end = self.indexed.map_or(end, |indexed| end.min(indexed.0 + 1));
        let is_deletable = |info: &FileInfo| info.size > 0 && info.height_last < end;
        let full = infos.split_last().map_or(&[][..], |(_, full)| full);
        (0..).map(FileNo).zip(full).filter(|(_, info)| is_deletable(info)).map(|(number, _)| number).collect()
    }

    /// Records that files were deleted; `infos` are the block index's entries for files before that.
    pub fn deleted(&mut self, files: &[FileNo], infos: &[FileInfo]) {
        let size = |file: &FileNo| infos.get(file.0 as usize).map_or(0, |info| u64::from(info.size));
        self.used = self.used.saturating_sub(files.iter().map(size).sum());
    }
}

/// The files whose blocks are deleted, and of which a crash may have left something: never the last one,
/// which may have been begun (Core `ScanAndUnlinkAlreadyPrunedFiles`).
pub fn emptied(infos: &[FileInfo]) -> impl Iterator<Item = FileNo> {
    let full = infos.split_last().map_or(&[][..], |(_, full)| full);
    (0..).map(FileNo).zip(full).filter(|(_, info)| info.size == 0).map(|(number, _)| number)
}

/// Deletes the files of blocks and undo data with these numbers, as far as they exist.
pub fn delete_files(files: &Files<'_>, numbers: impl Iterator<Item = FileNo>) -> Result<(), Error> {
    for number in numbers {
        for kind in [FileKind::Blk, FileKind::Rev] {
            remove_if_there(files.disk, &files.path(kind, number))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(size: u32, height_last: u32) -> FileInfo {
        FileInfo { blocks: 1, size, height_last, ..FileInfo::default() }
    }

    #[test]
    fn files_below_what_is_settled_and_below_what_is_kept_are_deletable_but_not_the_last() {
        let lost = FileInfo { blocks: 0, ..info(10, 0) };
        let infos = [info(10, 100), FileInfo::default(), info(10, 150), info(10, 120), lost, info(10, 9)];
        let mut pruning = Pruning::new(Network::Regtest, 800, 10, Height(999), Some(Height(149)), &infos);
        assert_eq!(pruning.deletable(&infos, Height(1_000)), []);
        assert!(pruning.settle(Height(121)) && !pruning.settle(Height(121)));
        assert_eq!(pruning.deletable(&infos, Height(1_000)), [FileNo(0), FileNo(3), FileNo(4)]);
        assert_eq!(pruning.deletable(&infos, Height(120)), [FileNo(0), FileNo(4)]);
        assert_eq!(pruning.used, 50);
        pruning.settle(Height(999));
        let deletable = pruning.deletable(&infos, Height(1_000));
        assert_eq!(deletable, [FileNo(0), FileNo(3), FileNo(4)], "an index needs block 150");
        pruning.deleted(&deletable, &infos);
        assert_eq!(pruning.used, 20);
    }

    #[test]
    fn the_download_runs_ahead_as_far_as_there_is_space() {
        let mut pruning = Pruning::new(Network::Regtest, 8_000, 100, Height(99), None, &[]);
        assert!(!pruning.has_space_for(Height(0)), "the rebuild has not begun");
        pruning.settle(Height(0));
        (0..20).for_each(|height| pruning.stored(Height(height), 200));
        assert!(pruning.has_space_for(Height(20)), "4,000 of 7,000 bytes");
        (0..15).for_each(|_| pruning.given());
        assert!(!pruning.has_space_for(Height(35)));
        pruning.settle(Height(35));
        assert!(pruning.has_space_for(Height(35)), "something must become deletable");
        assert!(!pruning.has_space_for(Height(36)));
        pruning.set_to_come(0);
        assert!(pruning.has_space_for(Height(36)));
        (36..90).for_each(|height| pruning.stored(Height(height), 200));
        pruning.settle(Height(90));
        assert!(!pruning.has_space_for(Height(100)));
        pruning.settle(Height(100));
        assert!(pruning.has_space_for(Height(130)), "the rebuild needs no other block");
    }
}
