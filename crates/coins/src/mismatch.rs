//! What the join can find wrong with a chain.

use wire::{Height, OutPoint};

/// Why creations and spends do not match.
///
/// That there is a mismatch is exact. Which one may depend on the order of arrival and on what else is wrong:
/// [`crate::ordered`] names the first invalid block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// No block of the chain makes the coin, or another input has spent it.
    #[error("{0} is spent, and missing or spent before; judge the chain in order to name the block")]
    MissingCoin(OutPoint),
    /// Two inputs spend one coin.
    #[error("{0} is spent twice; judge the chain in order to name the block")]
    DoubleSpend(OutPoint),
    /// The coin exists, but undo data say otherwise of its height, coinbase flag, amount or script.
    #[error(
        "undo data claim of {0} what its creation does not say; restore the rev file or judge the chain in \
         order"
    )]
    ClaimDiffers(OutPoint),
    /// The coin is made after it is spent, or claimed to be.
    #[error("{0} is spent before it is made; judge the chain in order to name the block")]
    SpentBeforeCreated(OutPoint),
    /// A coin is made while one with its outpoint is unspent (BIP-0030).
    #[error("{0} is made again while unspent (BIP-0030); judge the chain in order")]
    DuplicateCreation(OutPoint),
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

/// A list of mismatches that hostile chains cannot blow up: one mismatch decides, some more help.
#[derive(Debug, Default)]
pub(crate) struct Mismatches(Vec<Mismatch>);

impl Mismatches {
    /// Kept at each place that finds.
    const MAX: usize = 256;

    pub(crate) fn push(&mut self, mismatch: Mismatch) {
        if self.0.len() < Self::MAX {
            self.0.push(mismatch);
        }
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        other.0.drain(..).for_each(|mismatch| self.push(mismatch));
    }

    /// Sorted, so that the same ones are the same list.
    pub(crate) fn into_sorted(mut self) -> Vec<Mismatch> {
        self.0.sort_unstable();
        self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
