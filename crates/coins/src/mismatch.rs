//! The mismatches that the join can find.

use wire::{Height, OutPoint};

/// The reason why creations and spends do not match.
///
/// Whether there is a mismatch is exact. Which one is reported may depend on the order of arrival and on
/// other mismatches: sequential validation ([`crate::MemoryCoins`]) names the first invalid block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// No block of the chain creates the coin, or another input has spent it.
    #[error("{0} is spent, but missing or already spent; sequential validation names the block")]
    MissingCoin(OutPoint),
    /// Two inputs spend the same coin.
    #[error("{0} is spent twice; sequential validation names the block")]
    DoubleSpend(OutPoint),
    /// The coin exists, but the undo data has another height, coinbase flag, amount or script for it.
    #[error(
        "the undo data for {0} differs from the coin that was created; restore the rev file, or validate \
         sequentially to name the block"
    )]
    ClaimDiffers(OutPoint),
    /// The coin is created after it is spent, or the claim says so.
    #[error("{0} is spent before it is created; sequential validation names the block")]
    SpentBeforeCreated(OutPoint),
    /// A coin is created while one with its outpoint is unspent (BIP-0030).
    #[error("{0} is created again while unspent (BIP-0030); sequential validation names the block")]
    DuplicateCreation(OutPoint),
    /// The undo data of a block has more or fewer coins than the block's inputs spend.
    #[error("undo data at height {height} has {claims} coins for {inputs} inputs; restore the rev file")]
    ClaimCount { height: Height, inputs: u32, claims: u32 },
}

impl Mismatch {
    /// Returns the outpoint of the coin, if the mismatch is about one.
    pub const fn outpoint(&self) -> Option<OutPoint> {
        match *self {
            Self::MissingCoin(outpoint)
            | Self::DoubleSpend(outpoint)
            | Self::ClaimDiffers(outpoint)
            | Self::SpentBeforeCreated(outpoint)
            | Self::DuplicateCreation(outpoint) => Some(outpoint),
            Self::ClaimCount { .. } => None,
        }
    }
}

/// A list of mismatches of bounded length, so that a hostile chain cannot fill the memory: one mismatch
/// suffices for the verdict, some more help to find the cause.
#[derive(Debug, Default)]
pub(crate) struct Mismatches(Vec<Mismatch>);

impl Mismatches {
    /// Maximum number of mismatches in one list.
    const MAX: usize = 256;

    pub(crate) fn push(&mut self, mismatch: Mismatch) {
        if self.0.len() < Self::MAX {
            self.0.push(mismatch);
        }
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        other.0.drain(..).for_each(|mismatch| self.push(mismatch));
    }

    /// Returns the mismatches in a defined order.
    pub(crate) fn into_sorted(mut self) -> Vec<Mismatch> {
        self.0.sort_unstable();
        self.0
    }

    pub(crate) fn as_slice(&self) -> &[Mismatch] {
        &self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
