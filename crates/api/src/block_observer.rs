//! What receives the blocks of a job while they are checked.

use crate::error::Error;
use disk::node_indexes::IndexKind;
use rules::ChainParams;
use std::{fmt::Debug, path::Path};
use wire::{BlockHash, BlockView, Coin, Height, Txid};

/// A chain whose blocks are checked.
pub struct ObservedChain<'a> {
    /// The job's directory for temporary files, which exists. Work files in it are removed when the job has
    /// ended, unless another run can continue from a checkpoint.
    pub work_dir: &'a Path,
    pub blocks: usize,
    /// Their bytes, estimated.
    pub block_bytes: u64,
    pub hash_of: &'a dyn Fn(Height) -> BlockHash,
    /// Whether an interrupted run has completed a block, which is not given again.
    pub is_completed: &'a dyn Fn(Height) -> bool,
    /// Whether blocks are deleted after they were checked.
    pub prunes: bool,
}

/// A block that has been checked as far as possible without other blocks.
#[derive(Clone, Copy, Debug)]
pub struct ObservedBlock<'a> {
    pub params: &'static ChainParams,
    pub height: Height,
    pub hash: BlockHash,
    pub block: &'a BlockView<'a>,
    pub txids: &'a [Txid],
    /// The coins that its inputs spend, in the order of the inputs, without the coinbase's. They are proven
    /// when the job has ended. Empty if they are not known and the observer does not need them.
    pub claims: &'a [Coin<'a>],
}

/// Receives the blocks of a job while they are checked, in any order and on several threads.
pub trait BlockObserver: Debug + Send + Sync {
    /// Whether it needs the coins that blocks spend. If it does, it is not given blocks whose coins the job
    /// does not know, as with hints.
    fn needs_coins(&self) -> bool;

    /// The indexes that it makes of the blocks.
    fn indexes(&self) -> &[IndexKind] {
        &[]
    }

    /// Memory in bytes that it takes for a chain of `blocks` blocks.
    fn memory_bytes(&self, blocks: usize) -> u64;

    /// Begins a check of a chain. Blocks that were given before do not count.
    fn begin(&self, chain: &ObservedChain<'_>) -> Result<(), Error>;

    /// Returns when all that was made of the blocks so far is on the medium. A checkpoint is saved after
    /// that, and a run that continues from it does not give these blocks again.
    fn sync(&self) -> Result<(), Error>;

    fn take(&self, block: &ObservedBlock<'_>) -> Result<(), Error>;
}
