//! The unspent coins of the planner, arranged so that most spends take recent coins and some take very old
//! ones.
//!
//! New coins enter level 0. A full level moves random coins to the next one, which is four times as large, so
//! a coin's level is about the logarithm of its age. A spend chooses a level (low ones more often), then a
//! random coin in it. All of this takes constant time, and the ages of spent coins have the heavy tail that
//! they have on mainnet.

use crate::{rng::Rng, scripts::ScriptRef};

/// A planned coin: everything but its txid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedCoin {
    /// The slot into which the txid is written once its transaction is made.
    pub slot: u32,
    /// Index among the outputs of its transaction.
    pub vout: u32,
    /// Amount in satoshis.
    pub amount: u64,
    /// height * 2 + coinbase.
    pub code: u32,
    pub script: ScriptRef,
}

impl PlannedCoin {
    /// Returns the height of the block that creates it.
    pub const fn height(&self) -> u32 {
        self.code >> 1
    }
}

/// The coins that can be spent.
#[derive(Clone, Debug)]
pub struct CoinPool {
    /// Capacity of level 0; each further level has four times the capacity of the one before.
    first_level: usize,
    levels: Vec<Vec<PlannedCoin>>,
    len: usize,
}

impl CoinPool {
    /// Creates an empty pool with `recent` coins in level 0: a little over half of the spends take one of
    /// them.
    pub const fn new(recent: usize) -> Self {
        Self { first_level: recent, levels: Vec::new(), len: 0 }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all coins, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &PlannedCoin> {
        self.levels.iter().flatten()
    }

    /// Adds a coin of the newest block.
    pub fn add(&mut self, coin: PlannedCoin, rng: &mut Rng) {
        self.len += 1;
        let mut moved = coin;
        let mut capacity = self.first_level;
        for level in &mut self.levels {
            if level.len() < capacity {
                level.push(moved);
                return;
            }
            let at = rng.below(level.len() as u64) as usize;
            moved = std::mem::replace(&mut level[at], moved);
            capacity *= 4;
        }
        self.levels.push(vec![moved]);
    }

    /// Removes and returns a random coin.
    pub fn take(&mut self, rng: &mut Rng) -> Option<PlannedCoin> {
        if self.is_empty() {
            return None;
        }
        let mut level = 0;
        while level + 1 < self.levels.len() && (self.levels[level].is_empty() || rng.chance(45, 100)) {
            level += 1;
        }
        if self.levels[level].is_empty() {
            level = self.levels.iter().position(|level| !level.is_empty())?;
        }
        let coins = &mut self.levels[level];
        let at = rng.below(coins.len() as u64) as usize;
        self.len -= 1;
        Some(coins.swap_remove(at))
    }
}
