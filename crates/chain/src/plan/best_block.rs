//! What is known of the best block of an existing chainstate, and of its branch.

use api::{error::Error, lower_tip::Gap};
use disk::index::{IndexEntry, IndexRows};
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

/// Returns what the block index has of a block and its ancestors, from the block down to the first one that
/// is in the chain, which `hash_at` knows, and the height of that one; `None` if the index does not tell.
pub fn branch_outside(
    index: &IndexRows<'_>,
    mut hash: BlockHash,
    hash_at: impl Fn(Height) -> Option<BlockHash>,
) -> Result<(Vec<IndexEntry>, Option<Height>), Error> {
    let mut outside = Vec::new();
    while let Some(entry) = index.entry(&hash)? {
        if hash_at(entry.height) == Some(hash) {
            return Ok((outside, Some(entry.height)));
        }
        outside.push(entry);
        hash = entry.header.prev;
    }
    Ok((outside, None))
}
