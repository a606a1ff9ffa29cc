//! What the join can find wrong with a chain.

use wire::{Height, OutPoint, TxIndex};

/// Where in the chain an input stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Height of its block.
    pub height: Height,
    /// Its transaction's position in the block.
    pub tx_index: TxIndex,
    /// Its index in the transaction.
    pub input: u32,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "input {} of transaction {} at height {}", self.input, self.tx_index, self.height)
    }
}

/// Why creations and spends do not match.
///
/// That there is a finding is exact. Which one, and whom it names, may depend on the order of arrival and on
/// what else is wrong: [`crate::ordered`] names the first invalid block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// No block of the chain makes the coin, or another input has spent it.
    #[error(
        "{spender} spends {outpoint}, which is missing or spent; judge the chain in order to name the block"
    )]
    MissingCoin {
        /// The coin.
        outpoint: OutPoint,
        /// Who spends it.
        spender: Position,
    },
    /// Two inputs spend one coin.
    #[error("{spender} spends {outpoint} a second time; judge the chain in order to name the block")]
    DoubleSpend {
        /// The coin.
        outpoint: OutPoint,
        /// One of those who spend it.
        spender: Position,
    },
    /// The coin exists, but undo data say otherwise of its height, coinbase flag, amount or script.
    #[error(
        "{spender} spends {outpoint}, of which undo data claim what its creation does not say; \
             restore the rev file or judge the chain in order"
    )]
    ClaimDiffers {
        /// The coin.
        outpoint: OutPoint,
        /// Who spends it.
        spender: Position,
    },
    /// The coin is made after the input, or claimed to be.
    #[error("{spender} spends {outpoint} before it is made; judge the chain in order to name the block")]
    SpentBeforeCreated {
        /// The coin.
        outpoint: OutPoint,
        /// Who spends it.
        spender: Position,
    },
    /// A coin is made while one with its outpoint is unspent (BIP-0030).
    #[error("{outpoint} is made again at height {height} while unspent (BIP-0030); judge the chain in order")]
    DuplicateCreation {
        /// The coin.
        outpoint: OutPoint,
        /// Height of one of the two blocks.
        height: Height,
    },
    /// Undo data of a block hold more or fewer coins than its inputs spend.
    #[error("undo data at height {height} hold {claims} coins for {inputs} inputs; restore the rev file")]
    ClaimCount {
        /// Height of the block.
        height: Height,
        /// Inputs that spend.
        inputs: u32,
        /// Coins in the undo data.
        claims: u32,
    },
}

impl Finding {
    /// Height of the block it was found in.
    #[must_use]
    pub const fn height(&self) -> Height {
        match self {
            Self::MissingCoin { spender, .. }
            | Self::DoubleSpend { spender, .. }
            | Self::ClaimDiffers { spender, .. }
            | Self::SpentBeforeCreated { spender, .. } => spender.height,
            Self::DuplicateCreation { height, .. } | Self::ClaimCount { height, .. } => *height,
        }
    }
}

/// A list of findings that hostile chains cannot blow up: one finding decides, some more help.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    /// Kept at each place that finds.
    const MAX: usize = 256;

    pub(crate) fn push(&mut self, finding: Finding) {
        if self.0.len() < Self::MAX {
            self.0.push(finding);
        }
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        other.0.drain(..).for_each(|finding| self.push(finding));
    }

    /// Lowest height first.
    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort_unstable_by_key(|finding| (finding.height(), *finding));
        self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
