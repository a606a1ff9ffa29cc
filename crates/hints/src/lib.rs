//! Hint files: which outputs of each block are still unspent at some height (SwiftSync).
//!
//! Hints are not trusted: with wrong hints, a rebuild ends with an aggregate that is not zero, never with a
//! wrong UTXO set. So this module only checks that a file has its format, is complete, and is safe to read.
//! Formats differ in two ways: how a block's indices are packed (one module each), and which outputs the
//! indices count ([`Numbering`]). All are read and written one block at a time, in height order, by
//! [`HintReader`] and [`HintWriter`]; [`renumber`] converts a block from one numbering to the other.
//!
//! ```
//! use peregrine_hints::{HintFormat, HintReader, HintWriter};
//! use vfs::RealDisk;
//! use wire::{BlockHash, Height, Network};
//!
//! let path = std::env::temp_dir().join(format!("peregrine-hints-{}", std::process::id()));
//! let (network, hash) = (Some(Network::Regtest), Some(BlockHash([7; 32])));
//! let format = HintFormat::Peregrine;
//! let mut writer = HintWriter::create(&RealDisk, &path, format, network, Height(2), hash)?;
//! writer.push_block(Some(1), &[])?; // Block 1 has one output, which is spent.
//! writer.push_block(Some(3), &[0, 2])?; // Two of the three outputs of block 2 are unspent.
//! writer.finish()?;
//!
//! let (mut reader, mut unspent) = (HintReader::open(&RealDisk, &path, None)?, Vec::new());
//! reader.block(Height(2), &mut unspent)?;
//! assert_eq!(unspent, [0, 2]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod bip456;
mod bitmap;
mod bits;
mod btcd;
mod error;
mod gaps;
mod input;
pub mod packed;
mod peregrine;
mod range_coder;
mod reader;
mod stream;
mod swiftsync2140;
mod thestack;
mod writer;

pub use error::HintsError;
pub use reader::HintReader;
pub use writer::HintWriter;

use wire::{BlockHash, Height, Network, Weight};

/// Maximum number of outputs of a block: each weighs at least 36 (8 bytes of amount, 1 of script length,
/// times 4) of a block's 4,000,000 (BIP-0141). It bounds what a reader allocates for a record.
pub const MAX_OUTPUTS: u32 = Weight::MAX_BLOCK.0 as u32 / 36;

/// Which outputs of a block the indices of its hints count, in block order from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// All outputs.
    AllOutputs,
    /// Outputs that can be spent: [`wire::script::is_unspendable`] is false. The coinbases that are never in
    /// the UTXO set (genesis, mainnet 91722 and 91812) are counted.
    SpendableOutputs,
}

wire::named! {
/// The formats of hint files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintFormat: "hint format" {
    /// Peregrine's own format: indexed, with checksums, and the smallest.
    Peregrine = "peregrine",
    /// BIP-0456 (draft): Elias-Fano records, bytes filled from the most significant bit.
    Bip456 = "bip456",
    /// Like [`HintFormat::Bip456`], but with bytes filled from the least significant bit, as a later crate
    /// writes it.
    Bip456Lsb = "bip456-lsb",
    /// The bitmaps of theStack's prototypes.
    TheStack = "thestack",
    /// The index lists of 2140-dev/swiftsync.
    SwiftSync2140 = "swiftsync2140",
    /// btcd's gaps, in gzip.
    Btcd = "btcd",
    /// The first version of Core's pull request 34004: bitmaps after a table of offsets.
    Bitmap = "bitmap",
}
}

impl HintFormat {
    /// Which outputs the format's indices count.
    pub const fn numbering(self) -> Numbering {
        match self {
            Self::TheStack | Self::SwiftSync2140 | Self::Bitmap => Numbering::AllOutputs,
            Self::Peregrine | Self::Bip456 | Self::Bip456Lsb | Self::Btcd => Numbering::SpendableOutputs,
        }
    }
}

/// The facts about a hint file as a whole. A field is `None` if the format does not contain it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintInfo {
    /// The format of the file.
    pub format: HintFormat,
    /// The chain's network.
    pub network: Option<Network>,
    /// Height of the last block: hints state which outputs are unspent after it.
    pub height: Height,
    /// The hash of that block.
    pub block_hash: Option<BlockHash>,
    /// Number of unspent outputs.
    pub hints: u64,
    /// Number of outputs counted.
    pub outputs: Option<u64>,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// The SHA-256 of the file that it contains itself. [`HintReader::verify`] checks it.
    pub checksum: Option<[u8; 32]>,
    /// Whether the first record is that of the genesis block, for the format in which both occur.
    pub first_record_is_genesis: Option<bool>,
}

/// A mismatch between hints and the outputs of their block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NumberingError {
    /// The block has no output of that index.
    #[error("hint {index} is beyond the {outputs} outputs of the block")]
    Beyond {
        /// The hint.
        index: u32,
        /// Number of outputs in the hint's numbering.
        outputs: u32,
    },
    /// The output is unspendable, so it has no index in the other numbering.
    #[error("hint {index} refers to an output that can never be spent")]
    Unspendable {
        /// The hint, counted among all outputs.
        index: u32,
    },
}

/// Converts the ascending hints of one block from one numbering to another. `spendable` yields for each
/// output of the block, in block order, whether it can be spent.
///
/// # Errors
/// [`NumberingError`] if a hint does not match the block, even if `from` and `to` are the same; the hints are
/// unusable then.
pub fn renumber(
    hints: &mut [u32],
    from: Numbering,
    to: Numbering,
    spendable: impl IntoIterator<Item = bool>,
) -> Result<(), NumberingError> {
    let mut left = hints.iter_mut().peekable();
    let (mut all, mut countable) = (0, 0);
    for is_spendable in spendable {
        let hint = match from {
            Numbering::AllOutputs => left.next_if(|hint| **hint == all),
            Numbering::SpendableOutputs => left.next_if(|hint| is_spendable && **hint == countable),
        };
        if let Some(hint) = hint {
            if !is_spendable {
                return Err(NumberingError::Unspendable { index: all });
            }
            *hint = if to == Numbering::AllOutputs { all } else { countable };
        }
        all += 1;
        countable += u32::from(is_spendable);
    }
    let outputs = if from == Numbering::AllOutputs { all } else { countable };
    left.next().map_or(Ok(()), |hint| Err(NumberingError::Beyond { index: *hint, outputs }))
}
