//! A view of coins over those of a database: what blocks change is kept in memory until it is written (Core
//! `CCoinsViewCache`).
//!
//! States of an outpoint, and what is written for it:
//!
//! | kept | coin | dirty | fresh | written |
//! | --- | --- | --- | --- | --- |
//! | no | | | | nothing: what the database has is right |
//! | yes | unspent | no | no | nothing: it was only looked up |
//! | yes | unspent | yes | no | the coin; the database may have an older one |
//! | yes | unspent | yes | yes | the coin; the database has none |
//! | yes | spent | yes | no | a deletion |
//!
//! A fresh coin that is spent is forgotten: neither its creation nor its spend reaches the database. If a
//! coin were called fresh although the database has one, its spend would be lost, and it could be spent
//! twice.

use crate::view::{CoinSource, CoinsView, OwnedCoin};
use std::{
    collections::{HashMap, hash_map::Entry as MapEntry},
    mem,
};
use wire::{BlockHash, Coin, OutPoint, coin::chainstate_key_order};

/// Bytes that the allocator adds to those of a coin's script, on average.
const ALLOCATION_BYTES: usize = 16;

/// Why a coin could not be looked up or added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CacheError<E> {
    /// The database could not be read.
    #[error("{0}")]
    Source(E),
    /// A block creates a coin that exists, which no valid block does: the database has the coins of another
    /// chain.
    #[error("a block creates the coin {0}, which exists")]
    Exists(OutPoint),
}

/// What is known of an outpoint.
#[derive(Debug)]
struct Kept {
    /// The coin; `None` if it is spent.
    coin: Option<OwnedCoin>,
    is_dirty: bool,
    is_fresh: bool,
}

/// A change of a coin: its value after the change, `None` if it is spent.
pub type CoinChange<'a> = (&'a OutPoint, Option<Coin<'a>>);

/// Coins of a database, with changes that are not written yet.
#[derive(Debug)]
pub struct CoinsCache<S> {
    source: S,
    kept: HashMap<OutPoint, Kept>,
    best_block: BlockHash,
    /// Bytes of the coins that are kept, without the table.
    coin_bytes: usize,
}

impl<S: CoinSource> CoinsCache<S> {
    /// The coins of `source`, which are those after `best_block`.
    #[must_use]
    pub fn new(source: S, best_block: BlockHash) -> Self {
        Self { source, kept: HashMap::new(), best_block, coin_bytes: 0 }
    }

    /// The database.
    #[must_use]
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// Approximate memory of what is kept, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kept.capacity() * (mem::size_of::<(OutPoint, Kept)>() + 1) + self.coin_bytes
    }

    /// Whether the cache knows the outpoint without asking the database.
    #[must_use]
    pub fn keeps(&self, outpoint: &OutPoint) -> bool {
        self.kept.contains_key(outpoint)
    }

    /// Keeps a coin that was looked up in the database, unless the outpoint is kept already.
    pub fn keep(&mut self, outpoint: OutPoint, coin: OwnedCoin) {
        if let MapEntry::Vacant(place) = self.kept.entry(outpoint) {
            self.coin_bytes += bytes_of(&coin);
            place.insert(Kept { coin: Some(coin), is_dirty: false, is_fresh: false });
        }
    }

    /// Like [`CoinsView::add_coin`], without a copy.
    ///
    /// # Errors
    /// [`CacheError::Exists`] if the coin exists and must not.
    pub fn add_owned(
        &mut self,
        outpoint: OutPoint,
        coin: OwnedCoin,
        possible_overwrite: bool,
    ) -> Result<(), CacheError<S::Error>> {
        self.coin_bytes += bytes_of(&coin);
        match self.kept.entry(outpoint) {
            MapEntry::Vacant(place) => {
                place.insert(Kept { coin: Some(coin), is_dirty: true, is_fresh: !possible_overwrite });
            }
            MapEntry::Occupied(mut place) => {
                let kept = place.get_mut();
                if kept.coin.is_some() && !possible_overwrite {
                    return Err(CacheError::Exists(outpoint));
                }
                // What is kept and not fresh may be in the database, until a deletion is written.
                kept.is_dirty = true;
                self.coin_bytes -= kept.coin.replace(coin).as_ref().map_or(0, bytes_of);
            }
        }
        Ok(())
    }

    /// Writes all changes: calls `write` with the database, the best block and the changes, in the order of
    /// the chainstate's keys, and then keeps nothing.
    ///
    /// # Errors
    /// The error of `write`; all is then kept.
    pub fn flush<E>(
        &mut self,
        write: impl FnOnce(&mut S, BlockHash, &[CoinChange<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let dirty = self.kept.iter().filter(|(_, kept)| kept.is_dirty);
        let mut changes: Vec<CoinChange<'_>> =
            dirty.map(|(outpoint, kept)| (outpoint, kept.coin.as_ref().map(OwnedCoin::as_coin))).collect();
        changes.sort_unstable_by(|(a, _), (b, _)| chainstate_key_order(a, b));
        write(&mut self.source, self.best_block, &changes)?;
        (self.kept, self.coin_bytes) = (HashMap::new(), 0);
        Ok(())
    }
}

const fn bytes_of(coin: &OwnedCoin) -> usize {
    coin.out.len() + ALLOCATION_BYTES
}

impl<S: CoinSource> CoinsView for CoinsCache<S> {
    type Error = CacheError<S::Error>;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error> {
        match self.kept.get(outpoint) {
            Some(kept) => Ok(kept.coin.clone()),
            None => self.source.coin(outpoint).map_err(CacheError::Source),
        }
    }

    fn have_coin(&self, outpoint: &OutPoint) -> Result<bool, Self::Error> {
        match self.kept.get(outpoint) {
            Some(kept) => Ok(kept.coin.is_some()),
            None => Ok(self.source.coin(outpoint).map_err(CacheError::Source)?.is_some()),
        }
    }

    fn add_coin(
        &mut self,
        outpoint: OutPoint,
        coin: Coin<'_>,
        possible_overwrite: bool,
    ) -> Result<(), Self::Error> {
        self.add_owned(outpoint, coin.into(), possible_overwrite)
    }

    fn spend_coin(&mut self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error> {
        match self.kept.entry(*outpoint) {
            MapEntry::Vacant(place) => {
                let found = self.source.coin(outpoint).map_err(CacheError::Source)?;
                if found.is_some() {
                    place.insert(Kept { coin: None, is_dirty: true, is_fresh: false });
                }
                Ok(found)
            }
            MapEntry::Occupied(mut place) => {
                let kept = place.get_mut();
                let found = kept.coin.take();
                self.coin_bytes -= found.as_ref().map_or(0, bytes_of);
                if kept.is_fresh {
                    place.remove();
                } else if found.is_some() {
                    kept.is_dirty = true;
                }
                Ok(found)
            }
        }
    }

    fn best_block(&self) -> Result<BlockHash, Self::Error> {
        Ok(self.best_block)
    }

    fn set_best_block(&mut self, hash: BlockHash) -> Result<(), Self::Error> {
        self.best_block = hash;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryCoins;
    use proptest::prelude::*;
    use wire::{Height, Txid};

    /// Few outpoints, so that each meets all states.
    fn outpoint(number: u8) -> OutPoint {
        OutPoint { txid: Txid([number % 7; 32]), vout: u32::from(number % 3) }
    }

    fn coin(number: u8) -> (u32, Vec<u8>) {
        (Coin::code_of(Height(u32::from(number)), false), vec![number, 6])
    }

    impl CoinSource for MemoryCoins {
        type Error = std::convert::Infallible;

        fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error> {
            CoinsView::coin(self, outpoint)
        }
    }

    /// Writes changes, none of which may be for a coin that was fresh.
    fn write(
        database: &mut MemoryCoins,
        best: BlockHash,
        changes: &[CoinChange<'_>],
    ) -> Result<(), std::convert::Infallible> {
        assert!(changes.is_sorted_by(|(a, _), (b, _)| chainstate_key_order(a, b).is_lt()));
        for (outpoint, coin) in changes {
            match coin {
                Some(coin) => database.add_coin(**outpoint, *coin, true)?,
                None => drop(database.spend_coin(outpoint)?),
            }
        }
        database.set_best_block(best)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8),
        Overwrite(u8),
        Spend(u8),
        Keep(u8),
        Flush,
    }

    fn arb_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u8>().prop_map(Step::Add),
            1 => any::<u8>().prop_map(Step::Overwrite),
            4 => any::<u8>().prop_map(Step::Spend),
            1 => any::<u8>().prop_map(Step::Keep),
            1 => Just(Step::Flush),
        ]
    }

    proptest! {
        #[test]
        fn a_cache_behaves_like_the_coins_in_memory(steps in prop::collection::vec(arb_step(), 0..200)) {
            let mut model = MemoryCoins::new();
            let mut cache = CoinsCache::new(MemoryCoins::new(), BlockHash::default());
            for step in steps {
                match step {
                    Step::Add(number) => {
                        let (outpoint, (code, out)) = (outpoint(number), coin(number));
                        let coin = Coin { code, out: &out };
                        if model.have_coin(&outpoint).unwrap() {
                            continue;
                        }
                        model.add_coin(outpoint, coin, false).unwrap();
                        cache.add_coin(outpoint, coin, false).unwrap();
                    }
                    Step::Overwrite(number) => {
                        let (outpoint, (code, out)) = (outpoint(number), coin(number));
                        let coin = Coin { code, out: &out };
                        model.add_coin(outpoint, coin, true).unwrap();
                        cache.add_coin(outpoint, coin, true).unwrap();
                    }
                    Step::Spend(number) => {
                        let outpoint = outpoint(number);
                        let spent = model.spend_coin(&outpoint).unwrap();
                        prop_assert_eq!(cache.spend_coin(&outpoint).unwrap(), spent);
                    }
                    Step::Keep(number) => {
                        let outpoint = outpoint(number);
                        if let Some(coin) = CoinSource::coin(cache.source(), &outpoint).unwrap() {
                            cache.keep(outpoint, coin);
                        }
                    }
                    Step::Flush => {
                        cache.flush(write).unwrap();
                        prop_assert_eq!(cache.source(), &model);
                        prop_assert_eq!(cache.bytes(), 0);
                    }
                }
                for number in 0..21 {
                    let outpoint = outpoint(number);
                    let expected = CoinsView::coin(&model, &outpoint).map_err(CacheError::Source);
                    prop_assert_eq!(CoinsView::coin(&cache, &outpoint), expected);
                    prop_assert_eq!(cache.have_coin(&outpoint).unwrap(), model.have_coin(&outpoint).unwrap());
                }
            }
            cache.flush(write).unwrap();
            prop_assert_eq!(cache.source(), &model);
        }
    }

    fn changes(cache: &mut CoinsCache<MemoryCoins>) -> Vec<bool> {
        let mut found = Vec::new();
        cache
            .flush(|database, best, changes| {
                found.extend(changes.iter().map(|(_, coin)| coin.is_some()));
                write(database, best, changes)
            })
            .unwrap();
        found
    }

    #[test]
    fn a_coin_that_is_created_and_spent_never_reaches_the_database() {
        let mut cache = CoinsCache::new(MemoryCoins::new(), BlockHash::default());
        let (at, (code, out)) = (outpoint(1), coin(1));
        cache.add_coin(at, Coin { code, out: &out }, false).unwrap();
        assert!(cache.spend_coin(&at).unwrap().is_some());
        assert!(!cache.keeps(&at) && changes(&mut cache).is_empty());

        cache.add_coin(at, Coin { code, out: &out }, false).unwrap();
        assert_eq!(changes(&mut cache), [true]);
        assert!(cache.spend_coin(&at).unwrap().is_some());
        cache.add_coin(at, Coin { code, out: &out }, false).unwrap();
        assert!(cache.spend_coin(&at).unwrap().is_some(), "it is not fresh: the database has an older one");
        assert_eq!(changes(&mut cache), [false]);
    }

    #[test]
    fn creating_a_coin_that_exists_is_an_error() {
        let mut cache = CoinsCache::new(MemoryCoins::new(), BlockHash::default());
        let (at, (code, out)) = (outpoint(1), coin(1));
        cache.add_coin(at, Coin { code, out: &out }, false).unwrap();
        let again = cache.add_coin(at, Coin { code, out: &out }, false).unwrap_err();
        assert!(matches!(again, CacheError::Exists(found) if found == at));
        assert!(again.to_string().ends_with("which exists"));
    }
}
