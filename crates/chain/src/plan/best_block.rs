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

/// Returns the height at which the ancestors of a block leave the chain, which `hash_at` knows; `None` if the
/// block index does not tell, or if `each` returns false. `each` is called with the entries outside the
/// chain, from that of the block down.
pub fn fork_of(
    index: &IndexRows<'_>,
    mut hash: BlockHash,
    hash_at: impl Fn(Height) -> Option<BlockHash>,
    mut each: impl FnMut(&IndexEntry) -> bool,
) -> Result<Option<Height>, Error> {
    while let Some(entry) = index.entry(&hash)? {
        if hash_at(entry.height) == Some(hash) {
            return Ok(Some(entry.height));
        }
        if !each(&entry) {
            break;
        }
        hash = entry.header.prev;
    }
    Ok(None)
}
