//! Who is given the blocks of a job while they are checked.

use crate::error::Error;
use rules::ChainParams;
use std::fmt::Debug;
use wire::{BlockHash, BlockView, Coin, Height, Txid};

/// A block that has been checked as far as that is possible by itself.
#[derive(Clone, Copy, Debug)]
pub struct ObservedBlock<'a> {
    /// The rules of its network.
    pub params: &'static ChainParams,
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The block.
    pub block: &'a BlockView<'a>,
    /// The id of each transaction.
    pub txids: &'a [Txid],
    /// The coins that its inputs spend, in the order of the inputs, without the coinbase's. They are proven
    /// when the job has ended. Empty if they were not asked for.
    pub claims: &'a [Coin<'a>],
}

/// Is given the blocks of a job while they are checked, in any order and on several threads.
pub trait BlockObserver: Debug + Send + Sync {
    /// Whether it needs the coins that blocks spend. Blocks of which the job does not know them, as with
    /// hints, are not given then.
    fn needs_coins(&self) -> bool;

    /// Memory in bytes that it takes for a chain of `blocks` blocks.
    fn memory_bytes(&self, blocks: usize) -> u64;

    /// A check of a chain of `blocks` blocks with about `block_bytes` bytes begins. What was given before is
    /// void. Blocks that an interrupted run has completed are not given again.
    ///
    /// # Errors
    /// What makes the job fail.
    fn begin(&self, blocks: usize, block_bytes: u64, tip: BlockHash) -> Result<(), Error>;

    /// Takes a block.
    ///
    /// # Errors
    /// What makes the job fail.
    fn take(&self, block: &ObservedBlock<'_>) -> Result<(), Error>;
}
