//! The coin set of sequential validation: blocks in height order on one thread, with real coins, without undo
//! data.
//!
//! It behaves like Core's coins view, so it rejects the same spends and creations, at the same block. The
//! engine uses it if the join has found a mismatch, and if coinbase txids repeat (BIP-0030). It is also the
//! model for tests, so it is written to be obviously correct rather than fast.

use crate::{
    SHARDS,
    survivors::{SurvivorShard, Survivors},
};
use std::collections::{HashMap, hash_map::Entry};
use wire::{Coin, OutPoint};

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
    #[must_use]
    pub fn as_coin(&self) -> Coin<'_> {
        Coin { code: self.code, out: &self.out }
    }
}

impl From<Coin<'_>> for OwnedCoin {
    fn from(coin: Coin<'_>) -> Self {
        Self { code: coin.code, out: coin.out.into() }
    }
}

/// The error that the outpoint already has an unspent coin (Core `bad-txns-BIP30`, where it is enforced).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is created again while unspent (BIP-0030)")]
pub struct UnspentCoinExists(pub OutPoint);

/// The UTXO set at one height.
#[derive(Clone, Debug, Default)]
pub struct OrderedCoins {
    coins: HashMap<OutPoint, OwnedCoin>,
}

impl OrderedCoins {
    /// Creates an empty set, which is also the set after the genesis block.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of coins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.coins.len()
    }

    /// Returns whether there are no coins.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.coins.is_empty()
    }

    /// Returns whether the outpoint has an unspent coin.
    #[must_use]
    pub fn contains(&self, outpoint: &OutPoint) -> bool {
        self.coins.contains_key(outpoint)
    }

    /// Returns the unspent coin of the outpoint, or `None` if it is missing or spent.
    #[must_use]
    pub fn lookup(&self, outpoint: &OutPoint) -> Option<Coin<'_>> {
        self.coins.get(outpoint).map(OwnedCoin::as_coin)
    }

    /// Removes the coin and returns it, or `None` if it is missing or spent.
    pub fn spend(&mut self, outpoint: &OutPoint) -> Option<OwnedCoin> {
        self.coins.remove(outpoint)
    }

    /// Adds a coin. Unspendable outputs are not coins; the caller must omit them.
    ///
    /// # Errors
    /// [`UnspentCoinExists`] if the outpoint has an unspent coin, which is then unchanged.
    pub fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) -> Result<(), UnspentCoinExists> {
        match self.coins.entry(outpoint) {
            Entry::Occupied(_) => Err(UnspentCoinExists(outpoint)),
            Entry::Vacant(place) => {
                place.insert(coin.into());
                Ok(())
            }
        }
    }

    /// Adds a coin and replaces any existing one, as Core does where BIP-0030 is not enforced. Returns the
    /// replaced coin.
    pub fn overwrite(&mut self, outpoint: OutPoint, coin: Coin<'_>) -> Option<OwnedCoin> {
        self.coins.insert(outpoint, coin.into())
    }

    /// Returns the coins in the form of a join's survivors.
    #[must_use]
    pub fn into_survivors(self) -> Survivors {
        let mut shards: Vec<_> = (0..SHARDS).map(|_| SurvivorShard::empty()).collect();
        for (outpoint, coin) in self.coins {
            shards[outpoint.txid.0[0] as usize].push(&outpoint, coin.as_coin());
        }
        Survivors::new(shards.into_iter())
    }
}
