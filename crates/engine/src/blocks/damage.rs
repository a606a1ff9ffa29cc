//! Damage to the bytes of a block, or of its undo data.

use disk::undo::UndoError;
use rules::Violation;
use std::fmt;
use wire::{BlockHash, CoinError, WireError};

/// What is wrong with the bytes of a block, or of its undo data, whatever the rules say.
#[derive(Debug)]
pub enum Damage {
    /// The block is malformed.
    Block(WireError),
    /// These are the bytes of another block.
    OtherBlock(BlockHash),
    /// The header does not commit to the rest of the block.
    Mutated(Violation),
    /// These are other bytes than before in the same run.
    Changed,
    /// The undo data is not that of the block.
    Undo(UndoDefect),
}

/// Why undo data is not that of its block.
#[derive(Debug)]
pub enum UndoDefect {
    /// Its checksum differs.
    Checksum,
    /// It is malformed.
    Malformed(UndoError),
    /// It does not have a coin for each input.
    Shape,
    /// One of its coins is malformed.
    Coin(CoinError),
    /// It has another number of transactions than the block.
    TxCount {
        /// Number in the undo data.
        found: usize,
        /// Number in the block, without the coinbase.
        expected: usize,
    },
    /// It does not have the coins that this transaction of the block spent.
    Claims(usize),
}

impl fmt::Display for UndoDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum => f.write_str("its checksum differs"),
            Self::Malformed(error) => error.fmt(f),
            Self::Shape => {
                f.write_str("its numbers of transactions or inputs differ from those of the block")
            }
            Self::Coin(error) => error.fmt(f),
            Self::TxCount { found, expected } => {
                write!(f, "it has {found} transactions, the block has {expected}")
            }
            Self::Claims(tx) => write!(
                f,
                "the coins claimed as spent by transaction {tx} of the block differ from those created"
            ),
        }
    }
}
