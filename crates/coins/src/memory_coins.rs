//! A view of coins in memory: the coin set of sequential validation, which connects blocks in height order on
//! one thread, without undo data.
//!
//! The engine uses it if the join has found a mismatch, and if coinbase txids repeat (BIP-0030). It is also
//! the model for tests, so it is written to be obviously correct rather than fast.

use crate::{
    SHARDS,
    survivors::{SurvivorShard, Survivors},
    view::{CoinsView, OwnedCoin},
};
use std::{collections::HashMap, convert::Infallible};
use wire::{BlockHash, Coin, OutPoint};

/// The UTXO set at one height.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryCoins {
    coins: HashMap<OutPoint, OwnedCoin>,
    best_block: BlockHash,
}

impl MemoryCoins {
    /// Creates an empty set, to which no block has been connected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of coins.
    pub fn len(&self) -> usize {
        self.coins.len()
    }

    /// Returns whether there are no coins.
    pub fn is_empty(&self) -> bool {
        self.coins.is_empty()
    }

    /// Returns the coins in the form of a join's survivors.
    pub fn into_survivors(self) -> Survivors {
        let mut shards: Vec<_> = (0..SHARDS).map(|_| SurvivorShard::empty()).collect();
        for (outpoint, coin) in self.coins {
            shards[outpoint.txid.0[0] as usize].push(&outpoint, coin.as_coin());
        }
        Survivors::new(shards.into_iter())
    }
}

impl CoinsView for MemoryCoins {
    type Error = Infallible;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Infallible> {
        Ok(self.coins.get(outpoint).cloned())
    }

    fn have_coin(&self, outpoint: &OutPoint) -> Result<bool, Infallible> {
        Ok(self.coins.contains_key(outpoint))
    }

    fn add_coin(
        &mut self,
        outpoint: OutPoint,
        coin: Coin<'_>,
        possible_overwrite: bool,
    ) -> Result<(), Infallible> {
        let replaced = self.coins.insert(outpoint, coin.into());
        assert!(possible_overwrite || replaced.is_none(), "{outpoint} must not have an unspent coin");
        Ok(())
    }

    fn spend_coin(&mut self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Infallible> {
        Ok(self.coins.remove(outpoint))
    }

    fn best_block(&self) -> Result<BlockHash, Infallible> {
        Ok(self.best_block)
    }

    fn set_best_block(&mut self, hash: BlockHash) -> Result<(), Infallible> {
        self.best_block = hash;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Height, Txid};

    const OUTPOINT: OutPoint = OutPoint { txid: Txid([7; 32]), vout: 1 };

    fn coin(height: u32) -> Coin<'static> {
        Coin { code: Coin::code_of(Height(height), true), out: &[50, 6] }
    }

    #[test]
    #[should_panic(expected = "must not have an unspent coin")]
    fn any_other_overwrite_is_a_mistake_of_the_caller() {
        let mut coins = MemoryCoins::new();
        coins.add_coin(OUTPOINT, coin(1), false).unwrap();
        coins.add_coin(OUTPOINT, coin(2), false).unwrap();
    }
}
