//! Coins that own their bytes, and where a cache looks coins up.

use std::convert::Infallible;
use wire::{Coin, OutPoint};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedCoin {
    /// height * 2 + coinbase.
    pub code: u32,
    /// Compressed amount and script.
    pub out: Box<[u8]>,
}

impl OwnedCoin {
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

/// No coins: what lies below a cache that has all coins itself.
#[derive(Clone, Copy, Debug)]
pub struct NoCoins;

impl CoinSource for NoCoins {
    type Error = Infallible;

    fn coin(&self, _: &OutPoint) -> Result<Option<OwnedCoin>, Infallible> {
        Ok(None)
    }
}
