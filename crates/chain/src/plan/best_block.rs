//! What is known of the best block of an existing chainstate.

use api::lower_tip::Gap;
use rules::U256;
use wire::{BlockHash, Height};

/// The last block of the chain in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownBlock {
    pub hash: BlockHash,
    pub height: Height,
    /// Sum of work up to it.
    pub work: U256,
}

/// The best block of the old chainstate, in the tree from which a plan was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestBlock {
    pub known: KnownBlock,
    /// Height of its highest ancestor, itself included, that is in the chosen chain.
    pub fork: Height,
    /// Whether the blocks above the fork can be disconnected: they and their undo data are placed on disk.
    pub can_be_left: bool,
    /// Why the chosen chain does not contain the blocks above the fork; `None` if it ends there as requested.
    pub gap: Option<Gap>,
}
