//! Hint files: which outputs of each block are still unspent at some height (SwiftSync).
//!
//! A hint file is a claim. Whoever believes a wrong one ends with an aggregate that is not zero, never with a
//! wrong UTXO set; so all that is checked here is that a file is of its format, whole, and safe to read.
//! Formats differ in two ways: how a block's indices are packed (one file of code each) and which outputs the
//! indices count ([`Numbering`]). All are read and written one block at a time, in height order, by
//! [`HintReader`] and [`HintWriter`]; [`renumber`] takes a block from one numbering to the other.

mod bip456;
mod bitmap;
mod bits;
mod btcd;
mod gaps;
mod input;
mod peregrine;
mod range_coder;
mod reader;
mod stream;
mod swiftsync2140;
mod thestack;
mod writer;

pub use reader::HintReader;
pub use writer::HintWriter;

use std::{fmt, str::FromStr};
use wire::{BlockHash, Height, Network};

/// No block has more outputs: each weighs at least 36 (8 bytes of amount, 1 of script length, times 4) of a
/// block's 4,000,000 (BIP-0141). It bounds what a record can make a reader allocate.
pub const MAX_OUTPUTS: u32 = 4_000_000 / 36;

/// Which outputs of a block the indices of its hints count, in block order from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// All.
    AllOutputs,
    /// Those that can be spent: [`wire::script::is_unspendable`] is false. The coinbases that are never in
    /// the UTXO set (genesis, mainnet 91722 and 91812) are counted.
    SpendableOutputs,
}

/// The formats of hint files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintFormat {
    /// Our own: indexed, with checksums, and the smallest.
    Peregrine,
    /// BIP-0456 (draft): Elias-Fano records, bytes filled from the most significant bit.
    Bip456,
    /// The same with bytes filled from the least significant bit, as a later crate writes it.
    Bip456Lsb,
    /// The bitmaps of theStack's prototypes.
    TheStack,
    /// The index lists of 2140-dev/swiftsync.
    SwiftSync2140,
    /// btcd's gaps, in gzip.
    Btcd,
    /// The first form of Core's pull request 34004: bitmaps behind a table of offsets.
    Bitmap,
}

impl HintFormat {
    /// All formats, our own first.
    pub const ALL: [Self; 7] = [
        Self::Peregrine,
        Self::Bip456,
        Self::Bip456Lsb,
        Self::TheStack,
        Self::SwiftSync2140,
        Self::Btcd,
        Self::Bitmap,
    ];

    /// The name by which users choose the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peregrine => "peregrine",
            Self::Bip456 => "bip456",
            Self::Bip456Lsb => "bip456-lsb",
            Self::TheStack => "thestack",
            Self::SwiftSync2140 => "swiftsync2140",
            Self::Btcd => "btcd",
            Self::Bitmap => "bitmap",
        }
    }

    /// What the format's indices count.
    #[must_use]
    pub const fn numbering(self) -> Numbering {
        match self {
            Self::TheStack | Self::SwiftSync2140 | Self::Bitmap => Numbering::AllOutputs,
            Self::Peregrine | Self::Bip456 | Self::Bip456Lsb | Self::Btcd => Numbering::SpendableOutputs,
        }
    }
}

impl fmt::Display for HintFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no format has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown hint format `{0}`; use peregrine, bip456, bip456-lsb, thestack, swiftsync2140, btcd or bitmap"
)]
pub struct UnknownHintFormat(pub String);

impl FromStr for HintFormat {
    type Err = UnknownHintFormat;

    fn from_str(name: &str) -> Result<Self, UnknownHintFormat> {
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| UnknownHintFormat(name.to_owned()))
    }
}

/// What is known of a hint file as a whole. What its format does not tell is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintInfo {
    /// How it is written.
    pub format: HintFormat,
    /// What its indices count.
    pub numbering: Numbering,
    /// The chain's network.
    pub network: Option<Network>,
    /// The last block; hints say what is unspent after it.
    pub height: Height,
    /// The hash of that block.
    pub block_hash: Option<BlockHash>,
    /// How many outputs are unspent.
    pub hints: u64,
    /// How many outputs were counted.
    pub outputs: Option<u64>,
    /// Length of the file.
    pub bytes: u64,
    /// The SHA-256 that the file carries of itself. [`HintReader::verify`] checks it.
    pub checksum: Option<[u8; 32]>,
    /// Whether the first record is that of the genesis block, for the format in which it may be either.
    pub first_record_is_genesis: Option<bool>,
    /// Whether [`HintReader::seek`] is quick. If not, going back means to read from the start.
    pub seekable: bool,
}

/// Why indices do not fit the outputs of their block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NumberingError {
    /// There is no output of that index.
    #[error("hint {index} is beyond the {outputs} outputs of the block")]
    Beyond {
        /// The hint.
        index: u32,
        /// How many outputs its numbering has.
        outputs: u32,
    },
    /// Hints of unspendable outputs exist in no other numbering.
    #[error("hint {index} is of an output that can never be spent")]
    Unspendable {
        /// The hint, among all outputs.
        index: u32,
    },
}

/// Takes the ascending hints of one block from one numbering to another. `spendable` tells of each output of
/// the block, in block order, whether it can be spent.
///
/// # Errors
/// [`NumberingError`] if a hint is not of this block, which is also found if `from` and `to` are the same;
/// the hints are then of no use.
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
