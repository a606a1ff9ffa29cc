//! The judge: blocks in height order on one thread, with real coins, nothing taken from undo data.
//!
//! It does what Core's coins view does, so what it refuses is what Core refuses, and at the same block. The
//! engine asks it when the join has found something, and when coinbase txids repeat (BIP-0030). It is the
//! tests' model too, so it is written to be obviously right rather than fast.

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
    /// The coin, borrowed.
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

/// The outpoint has an unspent coin already (Core `bad-txns-BIP30`, where that is enforced).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is made again while unspent (BIP-0030)")]
pub struct UnspentCoinExists(pub OutPoint);

/// The UTXO set at one height.
#[derive(Clone, Debug, Default)]
pub struct OrderedCoins {
    coins: HashMap<OutPoint, OwnedCoin>,
}

impl OrderedCoins {
    /// The empty set, as before and after the genesis block.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of coins.
    #[must_use]
    pub fn len(&self) -> usize {
        self.coins.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.coins.is_empty()
    }

    /// Whether the outpoint has an unspent coin.
    #[must_use]
    pub fn contains(&self, outpoint: &OutPoint) -> bool {
        self.coins.contains_key(outpoint)
    }

    /// The unspent coin of the outpoint.
    #[must_use]
    pub fn lookup(&self, outpoint: &OutPoint) -> Option<Coin<'_>> {
        self.coins.get(outpoint).map(OwnedCoin::as_coin)
    }

    /// Takes the coin out; nothing if it is missing or spent.
    pub fn spend(&mut self, outpoint: &OutPoint) -> Option<OwnedCoin> {
        self.coins.remove(outpoint)
    }

    /// Adds a coin. Unspendable outputs are not coins; the caller leaves them out.
    ///
    /// # Errors
    /// [`UnspentCoinExists`], and nothing is changed, if the outpoint has an unspent coin.
    pub fn create(&mut self, outpoint: OutPoint, coin: Coin<'_>) -> Result<(), UnspentCoinExists> {
        match self.coins.entry(outpoint) {
            Entry::Occupied(_) => Err(UnspentCoinExists(outpoint)),
            Entry::Vacant(place) => {
                place.insert(coin.into());
                Ok(())
            }
        }
    }

    /// Adds a coin in place of whatever is there, as Core does where BIP-0030 is not enforced. Returns what
    /// was there.
    pub fn overwrite(&mut self, outpoint: OutPoint, coin: Coin<'_>) -> Option<OwnedCoin> {
        self.coins.insert(outpoint, coin.into())
    }

    /// The coins as the join would leave them.
    #[must_use]
    pub fn into_survivors(self) -> Survivors {
        let mut shards: Vec<_> = (0..SHARDS).map(|_| SurvivorShard::empty()).collect();
        for (outpoint, coin) in self.coins {
            shards[outpoint.txid.0[0] as usize].push(&outpoint, coin.as_coin());
        }
        Survivors::new(shards.into_iter())
    }
}
