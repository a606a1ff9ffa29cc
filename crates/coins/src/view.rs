//! The interface through which blocks are connected to coins and disconnected from them.

use wire::{BlockHash, Coin, OutPoint};

/// A coin that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedCoin {
    /// height * 2 + coinbase.
    pub code: u32,
    /// Compressed amount and script.
    pub out: Box<[u8]>,
}

impl OwnedCoin {
    /// Returns the coin, borrowed.
    pub fn as_coin(&self) -> Coin<'_> {
        Coin { code: self.code, out: &self.out }
    }
}

impl From<Coin<'_>> for OwnedCoin {
    fn from(coin: Coin<'_>) -> Self {
        Self { code: coin.code, out: coin.out.into() }
    }
}

/// Coins that can be looked up, and that something else changes.
pub trait CoinSource {
    /// Why a coin could not be looked up. A missing coin is not an error.
    type Error: std::error::Error;

    /// Returns the unspent coin of the outpoint, or `None` if it is missing or spent.
    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error>;
}

/// The coins at one block, wherever they are stored (Core `CCoinsView` and `CCoinsViewCache`).
pub trait CoinsView {
    /// Why the storage behind the view could not be read or written, or contains something else than coins. A
    /// missing coin is not an error.
    type Error: std::error::Error;

    /// Returns the unspent coin of the outpoint, or `None` if it is missing or spent.
    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error>;

    /// Returns whether the outpoint has an unspent coin.
    fn have_coin(&self, outpoint: &OutPoint) -> Result<bool, Self::Error>;

    /// Adds a coin. Unspendable outputs are not coins; the caller must omit them.
    ///
    /// If `possible_overwrite` is true, the outpoint may have an unspent coin, which is replaced. Otherwise
    /// the caller guarantees that it has none, so that a cache need not ask its database.
    ///
    /// # Panics
    /// If the view finds that the guarantee is broken.
    fn add_coin(
        &mut self,
        outpoint: OutPoint,
        coin: Coin<'_>,
        possible_overwrite: bool,
    ) -> Result<(), Self::Error>;

    /// Removes the coin and returns it, or `None` if it is missing or spent.
    fn spend_coin(&mut self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error>;

    /// Returns the hash of the block that was connected last; zeros if there is none, like the parent of the
    /// genesis block.
    fn best_block(&self) -> Result<BlockHash, Self::Error>;

    /// Sets the hash of the block that was connected last.
    fn set_best_block(&mut self, hash: BlockHash) -> Result<(), Self::Error>;
}
