//! How a job keeps pace with a download that deletes block files behind it.
//!
//! The job reads the blocks that the download gives out. When it has read as many bytes as fit into the space
//! for block files, or all workers have come to where the download holds back, it does what is left to do for
//! these blocks and saves a checkpoint; it then never reads them again, and tells the download so. The
//! download reports which files it has deleted.

use chain::blocks::awaited::AwaitedBlocks;
use wire::{FileNo, Height};

/// What a job and a download agree on that deletes block files.
#[derive(Clone, Copy, Debug)]
pub struct Pacing<'a> {
    /// The blocks that the download stores.
    pub awaited: &'a AwaitedBlocks,
    /// Bytes of blocks after which the job settles.
    pub settle_bytes: u64,
}

impl Pacing<'_> {
    /// Allows workers to take all blocks that were given out, after all workers have stopped.
    pub fn begin_round(&self) {
        self.awaited.begin_round();
    }

    /// Records that the blocks below `first` need not be read again, also after an interrupt.
    pub fn settle(&self, first: Height) {
        self.awaited.settle(first);
    }

    /// Returns the lowest block that the job may read again.
    pub fn settled_to(&self) -> Height {
        self.awaited.settled_to()
    }

    /// Returns the files that were deleted since the last call.
    pub fn take_deleted(&self) -> Vec<FileNo> {
        self.awaited.take_deleted()
    }
}
