//! What follows a download while it runs, or has it stay at the tip.

use api::error::Error;
use chain::{
    blocks::awaited::AwaitedBlocks, header_chain::HeaderChain, invalid_blocks::InvalidBlock,
    stored_blocks::StoredBlocks,
};
use disk::index::FileInfo;
use std::{sync::Arc, time::Instant};
use wire::{BlockHash, FileNo, Height};

/// Carries blocks from a download to the rebuild behind it and, with pruning, what may be deleted back to the
/// download.
pub struct Feed {
    /// Where the blocks are, as they come.
    pub blocks: Arc<AwaitedBlocks>,
    /// The last block that the rebuild needs.
    pub end: Height,
    /// With pruning, the last block that may be deleted, if an index needs those above.
    pub indexed: Option<Height>,
}

/// What follows a download while it runs. All functions are called by the thread that downloads; they do
/// nothing unless the follower defines them.
pub trait Follower {
    /// Whether the follower makes the chainstate anew of all blocks up to `target`.
    fn rebuilds(&self, _chain: &HeaderChain, _target: Height) -> Result<bool, Error> {
        Ok(false)
    }

    /// The headers are known, and in the block index. Next, the blocks up to `target` are downloaded;
    /// `missing` is the number of those that are not stored, and about how many bytes they have; `lost` are
    /// those of them that the block index may place. If a rebuild begins now, returns what feeds it.
    ///
    /// # Errors
    /// What makes the download useless.
    fn headers_known(
        &mut self,
        _chain: &HeaderChain,
        _target: Height,
        _missing: (u32, u64),
        _lost: Vec<BlockHash>,
    ) -> Result<Option<Feed>, Error> {
        Ok(None)
    }

    /// The chain has other blocks above `fork` now, and the last one to download is at `target`: whether the
    /// rebuild of the blocks up to `end` is of no use any more, and was told to stop.
    fn stops_rebuild(&mut self, _end: Height, _fork: Height, _target: Height) -> bool {
        false
    }

    /// Blocks that this run has found invalid, which are marked in the block index. Peers that offer them are
    /// closed.
    fn known_invalid(&self) -> &[BlockHash] {
        &[]
    }

    /// A block that is invalid unless a lower one is, if the follower has found one: the download ends when
    /// all blocks below it are stored.
    fn ends_below(&self) -> Option<Height> {
        None
    }

    /// Whether the download stays at the tip. Otherwise it ends when all blocks are stored, and of the
    /// functions below only [`Follower::has_lock`], [`Follower::take_lock`] and [`Follower::is_over`] are
    /// called.
    fn stays(&self) -> bool {
        false
    }

    /// Whether the datadir is locked, so that it can be changed. At the tip, it is locked only while it is
    /// changed.
    fn has_lock(&self) -> bool {
        true
    }

    /// Locks the datadir, unless it is locked, or others read it: the caller tries again. Returns false if it
    /// cannot be changed any more: the download ends.
    fn take_lock(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// All blocks of the chain are stored and in the block index: connects them, if they have more work than
    /// the chainstate, and releases the lock. `changed` are the entries for files that have changed, and
    /// `announced` is when the first of the blocks was announced. If it finds an invalid block, the
    /// chainstate stays as it is, and the datadir locked.
    ///
    /// # Errors
    /// Damage; any I/O error; an interrupt.
    fn connect(
        &mut self,
        _chain: &HeaderChain,
        _stored: &StoredBlocks,
        _changed: &[(FileNo, FileInfo)],
        _announced: Instant,
    ) -> Result<Option<InvalidBlock>, Error> {
        Ok(None)
    }

    /// Unlocks the datadir, unless it is unlocked. What is stored is in the block index.
    fn release(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether another process uses the datadir, while it is not locked: the download ends.
    fn is_over(&mut self) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Nothing follows the download.
impl Follower for () {}
