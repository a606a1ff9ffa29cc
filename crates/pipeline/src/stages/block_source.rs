//! Where workers get blocks from.
//!
//! A source assigns blocks to workers, lowest first, so that all workers together read the chain in order of
//! heights. It alone knows where a block comes from, and so what damage to the block means: in a file, an
//! error that names the place and the remedy.

use super::block_fault::{BlockFault, LocatedFault};
use api::error::Error;
use chain::blocks::{block_check::BlockFacts, damage::Damage};
use disk::block_files::RecordBuffer;
use std::ops::Range;
use wire::Height;

/// A block and its undo data, in buffers that are reused.
#[derive(Default)]
pub struct Block {
    /// Heights of blocks that were assigned to the owner of these buffers and not read yet.
    pub batch: Range<u32>,
    /// Height in the chain.
    pub height: Height,
    /// The serialised block, and what follows it in its record.
    pub block: RecordBuffer,
    /// What is known of it, if all was checked that can be without other blocks.
    pub facts: Option<BlockFacts>,
    /// The undo data with its checksum; empty if there is none, or it is not needed.
    pub undo: RecordBuffer,
    /// The undo data that a peer claims, if a peer has sent any and it is used.
    pub claims: Option<Vec<u8>>,
}

/// Whether a worker takes another block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It does.
    Not,
    /// It takes the blocks that were assigned to it, so that after all workers no block is missing below
    /// another one.
    AfterBatch,
    /// It does not.
    Now,
}

/// Delivers the blocks of a chain to any number of workers.
pub trait BlockSource: Sync {
    /// Reads the next block. Returns false if none is left, or if `stop`, called with the number of blocks
    /// read so far, ends it. A block that cannot be delivered is recorded as a fault, and the next one
    /// is read.
    ///
    /// # Errors
    /// Errors that are not about one block, such as an I/O error.
    fn read(&self, into: &mut Block, stop: &dyn Fn(u32) -> Stop) -> Result<bool, Error>;

    /// Returns the error for the block at `height`, which was delivered damaged.
    fn damaged(&self, height: Height, damage: &Damage) -> Error;

    /// Returns what a fault of the block at `height` means.
    fn located(&self, height: Height, fault: BlockFault) -> LocatedFault {
        match fault {
            BlockFault::Damaged(damage) => LocatedFault::Error(self.damaged(height, &damage)),
            BlockFault::Hints(flaw) => LocatedFault::Hints(flaw),
            BlockFault::Failed(error) => LocatedFault::Error(error),
            BlockFault::Suspect => LocatedFault::Suspect,
        }
    }
}
