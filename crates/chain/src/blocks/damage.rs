//! Damage to the bytes of a block, or of its undo data.

use api::error::Error;
use disk::{
    index::{BlockStatus, IndexEntry},
    undo::UndoError,
};
use rules::Violation;
use wire::{BlockHash, CoinError, Height, WireError};

/// All that is damaged or missing of the blocks that a block index, or a scan, places in files.
#[derive(Clone, Debug, Default)]
pub struct KnownDamage {
    /// Hashes of the damaged blocks, sorted.
    pub blocks: Vec<BlockHash>,
    /// Number of these that are outside the chain with the most work.
    pub stale: u32,
    /// Hashes of the blocks whose undo data is damaged, sorted.
    pub undo: Vec<BlockHash>,
    /// Height of the lowest block that is damaged or, unless there is a second chainstate, missing below a
    /// stored one.
    pub lowest: Option<Height>,
    /// Number of the damaged blocks that are in files that do not exist.
    pub lost: u32,
    pub lost_files: u32,
    /// What is wrong with the lowest damaged blocks; a file that does not exist is named once.
    pub first: Vec<Error>,
    /// Number of such errors that `first` leaves out.
    pub others: u32,
    /// Number of blocks of the chain that are not placed in any file, below one that is.
    pub missing: u32,
    /// Height of the last block of the chain that is placed in a file, damaged or not.
    pub last_stored: Height,
    /// Number of the damaged blocks that lie sound at other places in the same files; 0 after a scan, which
    /// takes the sound copies.
    pub elsewhere: u32,
    /// Height of the lowest block of the chain that is placed in a file, but not its undo data.
    pub without_undo: Option<Height>,
}

impl KnownDamage {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.undo.is_empty()
    }

    /// Whether the block index has to change: it does not agree with this, or may have connected blocks above
    /// missing ones, which are left of a UTXO snapshot whose chainstate has been moved away.
    pub fn changes_index(&self) -> bool {
        self.lowest.is_some() || !self.undo.is_empty()
    }

    /// Whether the undo data of a block up to `height` is damaged or missing, or will be when the damaged and
    /// missing blocks have been stored again.
    pub fn lacks_undo_up_to(&self, height: Height) -> bool {
        let lowest = self.lowest.into_iter().chain(self.without_undo).min();
        lowest.is_some_and(|lowest| lowest <= height) || !self.undo.is_empty() || self.missing > 0
    }

    /// What is left of the damage to blocks after these were stored again; their hashes are sorted.
    /// `missing`: number of blocks of the chain that are still damaged, or not placed in any file.
    pub fn after(&self, stored: &[BlockHash], missing: u32) -> Self {
        let mut left = self.clone();
        left.blocks.retain(|hash| stored.binary_search(hash).is_err());
        left.missing = (missing + self.stale).saturating_sub(left.blocks.len() as u32);
        left
    }

    pub fn has_block(&self, hash: &BlockHash) -> bool {
        self.blocks.binary_search(hash).is_ok()
    }

    pub fn has_undo(&self, hash: &BlockHash) -> bool {
        self.undo.binary_search(hash).is_ok()
    }

    /// Makes an entry of the block index agree with what is sound. A damaged block keeps only its header, as
    /// if it had never come.
    pub fn change_entry(&self, entry: &mut IndexEntry) {
        if self.has_block(&entry.hash) {
            entry.forget_block();
        } else if self.has_undo(&entry.hash) {
            entry.undo_pos = None;
            entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
        }
    }
}

/// What is wrong with the bytes of a block, or of its undo data, whatever the rules say.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// The block is malformed.
    #[error("{0}")]
    Block(WireError),
    /// These are the bytes of another block.
    #[error("the file contains another block here, {0}: the index may belong to other files")]
    OtherBlock(BlockHash),
    /// The header does not commit to the rest of the block.
    #[error("it does not match its header ({})", .0.detail)]
    Mutated(Violation),
    /// These are other bytes than before in the same run.
    #[error("it is not what this run has read before; check disk and memory")]
    Changed,
    /// The undo data is not that of the block.
    #[error("{0}")]
    Undo(UndoDefect),
}

/// Why undo data is not that of its block.
#[derive(Debug, thiserror::Error)]
pub enum UndoDefect {
    #[error("its checksum differs")]
    Checksum,
    /// It cannot be decoded.
    #[error("{0}")]
    Malformed(UndoError),
    /// It does not have a coin for each input.
    #[error("its numbers of transactions or inputs differ from those of the block")]
    Shape,
    /// One of its coins is malformed.
    #[error("{0}")]
    Coin(CoinError),
    /// It has another number of transactions than the block has without the coinbase.
    #[error("it has {found} transactions, the block has {expected}")]
    TxCount { found: usize, expected: usize },
    /// It does not have the coins that this transaction of the block spent.
    #[error("the coins claimed as spent by transaction {0} of the block differ from those created")]
    Claims(usize),
}
