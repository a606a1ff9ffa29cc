//! Coins over those of a database: what blocks change is kept in memory until it is written (Core
//! `CCoinsViewCache`).
//!
//! States of an outpoint, and what is written for it:
//!
//! | kept | coin | dirty | fresh | written |
//! | --- | --- | --- | --- | --- |
//! | no | | | | nothing: what the database has is right |
//! | yes | unspent | no | no | nothing: it was looked up, or written before |
//! | yes | unspent | yes | no | the coin; the database may have an older one |
//! | yes | unspent | yes | yes | the coin; the database has none |
//! | yes | spent | yes | no | a deletion |
//!
//! A fresh coin that is spent is forgotten: neither its creation nor its spend reaches the database. If a
//! coin were called fresh although the database has one, its spend would be lost, and it could be spent
//! twice.
//!
//! Coins are in the cells of the join, with the same index: one probe finds a coin, or the place for it. When
//! changes are written, the youngest coins stay as those that were looked up: they are likely to be spent
//! soon.

mod moves;
#[cfg(test)]
mod tests;

use digest::siphash::SipKey;
use moves::MoveKind;
pub use moves::{FoundCoins, HashedOutPoint, Moves, OutPointHasher};

use crate::{
    SHARDS,
    cell::{Cell, LongOutputs},
    coin_list::CoinList,
    coin_source::{CoinSource, NoCoins, OwnedCoin},
    index::Index,
    slab::Slab,
    survivors::{SurvivorShard, Survivors},
};
use std::{iter, ops::Range};
use wire::{BlockHash, Coin, OutPoint, coin::chainstate_key_order};

/// Number of cells in a chunk of 47 KB.
const CHUNK: usize = 512;
/// Number of cells that are prefetched together, as in the join.
const PREFETCHED: usize = 64;

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

/// The rows of the table above, but the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Clean,
    Dirty,
    Fresh,
    Spent,
}

/// The state of an outpoint. The cell of a spent coin has no output.
#[derive(Clone, Debug)]
struct Kept {
    cell: Cell,
    state: State,
}

const _: () = assert!(size_of::<Kept>() == 92, "a coin takes 92 bytes and its slot in the index");

/// A change of a coin: its value after the change, `None` if it is spent.
pub type CoinChange<'a> = (OutPoint, Option<Coin<'a>>);

/// The coins at one block, in memory.
pub type MemoryCoins = CoinsCache<NoCoins>;

/// Coins of a database, with changes that are not written yet.
#[derive(Clone, Debug)]
pub struct CoinsCache<S> {
    source: S,
    hasher: OutPointHasher,
    index: Index,
    kept: Slab<Kept, CHUNK>,
    long_outputs: LongOutputs,
    best_block: BlockHash,
    flush_count: u64,
}

impl<S> CoinsCache<S> {
    /// The coins of `source`, which are those after `best_block`. The key, which must be random, is that of
    /// the hash table.
    pub fn new(source: S, best_block: BlockHash, key: SipKey) -> Self {
        Self {
            source,
            hasher: OutPointHasher::new(key),
            // Pages of a table that has grown are freed.
            index: Index::new(None),
            kept: Slab::new(None),
            long_outputs: LongOutputs::new(),
            best_block,
            flush_count: 0,
        }
    }

    /// Number of flushes so far. After a flush, coins that the cache kept can be in the database alone: what
    /// was not looked up because it was kept is to be looked up again.
    pub const fn flush_count(&self) -> u64 {
        self.flush_count
    }

    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The database. Its coins must stay the same.
    pub const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The hash of the block that was connected last; zeros if there is none, like the parent of the genesis
    /// block.
    pub const fn best_block(&self) -> BlockHash {
        self.best_block
    }

    pub const fn set_best_block(&mut self, hash: BlockHash) {
        self.best_block = hash;
    }

    /// The hash function of the cache's table.
    pub const fn hasher(&self) -> OutPointHasher {
        self.hasher
    }

    /// Memory of what is kept, in bytes. Memory that the cache has for further coins is not counted.
    pub fn bytes(&self) -> usize {
        self.kept.used_bytes() + self.index.memory_bytes() + self.long_outputs.memory_bytes()
    }

    /// Whether the cache knows the outpoint without asking the database.
    pub fn keeps(&self, outpoint: &HashedOutPoint) -> bool {
        self.find(outpoint).is_some()
    }

    /// Returns the outpoints that are spent and that the cache does not keep: what is to be looked up in the
    /// database before [`CoinsCache::apply`].
    pub fn not_kept<'m>(&self, moves: &'m Moves) -> Vec<&'m HashedOutPoint> {
        let mut spent = moves.spent();
        let (mut window, mut found) = (Vec::with_capacity(PREFETCHED), Vec::new());
        loop {
            window.extend(spent.by_ref().take(PREFETCHED));
            if window.is_empty() {
                return found;
            }
            self.prefetch(window.iter().copied());
            found.extend(window.drain(..).filter(|outpoint| self.find(outpoint).is_none()));
        }
    }

    /// Keeps coins that were looked up in the database, unless their outpoints are kept already.
    pub fn keep(&mut self, found: &FoundCoins) {
        let mut coins = found.coins.iter();
        for window in found.outpoints.chunks(PREFETCHED) {
            self.prefetch(window.iter());
            for (outpoint, coin) in window.iter().zip(&mut coins) {
                let is_it = |at| self.kept[at].cell.is_at(&outpoint.outpoint);
                if let Err(vacant) = self.index.find_or_reserve(outpoint.hash, is_it) {
                    self.insert(vacant, outpoint, coin, State::Clean);
                }
            }
        }
    }

    /// Prefetches the memory in which a few outpoints are looked for, and the next free places.
    fn prefetch<'m>(&self, outpoints: impl Iterator<Item = &'m HashedOutPoint> + Clone) {
        outpoints.clone().for_each(|outpoint| self.index.prefetch(outpoint.hash));
        for outpoint in outpoints {
            if let Some((_, at)) = self.index.find(outpoint.hash, |_| true) {
                digest::cache::prefetch(&self.kept[at]);
            }
        }
        self.kept.next_places(PREFETCHED).for_each(digest::cache::prefetch);
    }

    /// Writes all changes: calls `write` with the database, the best block and the changes. Then they are no
    /// longer changes, and the youngest unspent coins stay, in up to `stay_bytes` bytes.
    ///
    /// # Errors
    /// The error of `write`; nothing has then changed.
    pub fn flush<E>(
        &mut self,
        stay_bytes: usize,
        write: impl FnOnce(&mut S, BlockHash, &Changes<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let changes = Changes::new(&self.kept, &self.long_outputs);
        write(&mut self.source, self.best_block, &changes)?;
        self.set_written(stay_bytes);
        self.flush_count += 1;
        Ok(())
    }

    fn set_written(&mut self, stay_bytes: usize) {
        let coins = self.kept.iter().filter(|(_, kept)| kept.is_coin());
        let mut codes: Vec<u32> = coins.map(|(_, kept)| kept.cell.code).collect();
        let stay_count = codes.len().min(stay_bytes / (size_of::<Kept>() + 2 * size_of::<u64>()));
        let leaving_count = codes.len() - stay_count;
        let oldest_staying = match leaving_count {
            0 => Some(0),
            count => codes.select_nth_unstable(count - 1).1.checked_add(1),
        };
        drop(codes);
        self.index.clear();
        let Some(oldest_staying) = oldest_staying.filter(|_| stay_count > 0) else {
            (self.kept, self.long_outputs) = (Slab::new(None), LongOutputs::new());
            return;
        };
        for at in 0..self.kept.len() {
            let kept = &mut self.kept[at];
            if kept.cell.is_free() {
                continue;
            }
            if kept.is_coin() && kept.cell.code >= oldest_staying {
                kept.state = State::Clean;
                self.index.insert(self.hasher.hash(kept.cell.outpoint()).hash, at);
            } else {
                kept.cell.release(&mut self.long_outputs);
                self.kept.remove(at, Kept::FREE);
            }
        }
    }

    fn find(&self, outpoint: &HashedOutPoint) -> Option<(usize, u32)> {
        self.index.find(outpoint.hash, |at| self.kept[at].cell.is_at(&outpoint.outpoint))
    }

    #[inline]
    fn insert(&mut self, vacant: usize, outpoint: &HashedOutPoint, coin: Coin<'_>, state: State) {
        let cell = Cell::new(false, &outpoint.outpoint, coin, &mut self.long_outputs);
        let at = self.kept.insert(Kept { cell, state });
        self.index.fill(vacant, outpoint.hash, at);
    }
}

impl MemoryCoins {
    /// Returns all coins, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (OutPoint, Coin<'_>)> {
        let coins = self.kept.iter().filter(|(_, kept)| kept.is_coin());
        coins.map(|(_, Kept { cell, .. })| (cell.outpoint(), cell.coin(&self.long_outputs)))
    }

    /// Returns the coins in the form of a join's survivors.
    pub fn into_survivors(self) -> Survivors {
        let mut shards: Vec<_> = (0..SHARDS).map(|_| SurvivorShard::empty()).collect();
        self.iter().for_each(|(outpoint, coin)| shards[outpoint.txid.0[0] as usize].push(&outpoint, coin));
        Survivors::new(shards.into_iter())
    }
}

/// The coins at one block, to which blocks are connected (Core `CCoinsView` and `CCoinsViewCache`).
impl<S: CoinSource> CoinsCache<S> {
    /// Returns the unspent coin of the outpoint, or `None` if it is missing or spent.
    ///
    /// # Errors
    /// [`CacheError::Source`]
    pub fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, CacheError<S::Error>> {
        match self.find(&self.hasher.hash(*outpoint)) {
            Some((_, at)) => {
                let kept = &self.kept[at];
                Ok(kept.is_coin().then(|| kept.cell.coin(&self.long_outputs).into()))
            }
            None => self.source.coin(outpoint).map_err(CacheError::Source),
        }
    }

    /// Adds a coin. Unspendable outputs are not coins; the caller must omit them.
    ///
    /// If `possible_overwrite` is true, the outpoint may have an unspent coin, which is replaced. Otherwise
    /// the caller guarantees that it has none, so that the database need not be asked.
    ///
    /// # Errors
    /// [`CacheError::Exists`], if the cache knows that the guarantee is broken.
    pub fn add_coin(
        &mut self,
        outpoint: OutPoint,
        coin: Coin<'_>,
        possible_overwrite: bool,
    ) -> Result<(), CacheError<S::Error>> {
        self.add(&self.hasher.hash(outpoint), coin, possible_overwrite)
    }

    /// Removes the coin and returns it, or `None` if it is missing or spent.
    ///
    /// # Errors
    /// [`CacheError::Source`]
    pub fn spend_coin(&mut self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, CacheError<S::Error>> {
        self.spend(&self.hasher.hash(*outpoint), |coin| coin.into())
    }

    /// Applies a block's spends and creations in block order, and sets the best block. Appends the coins that
    /// are spent to `spent`. Returns false if one of them is missing; the cache is then in an intermediate
    /// state.
    ///
    /// # Errors
    /// [`CacheError`]; the cache is then in an intermediate state.
    pub fn apply(
        &mut self,
        moves: &Moves,
        best_block: BlockHash,
        spent: &mut CoinList,
    ) -> Result<bool, CacheError<S::Error>> {
        let mut created = moves.created.iter();
        for window in moves.moves.chunks(PREFETCHED) {
            self.prefetch(window.iter().map(|(outpoint, _)| outpoint));
            for (outpoint, kind) in window {
                match kind {
                    MoveKind::Spend => {
                        if self.spend(outpoint, |coin| spent.push(coin))?.is_none() {
                            return Ok(false);
                        }
                    }
                    &MoveKind::Create { possible_overwrite } => {
                        created.next().map_or(Ok(()), |coin| self.add(outpoint, coin, possible_overwrite))?;
                    }
                }
            }
        }
        self.best_block = best_block;
        Ok(true)
    }

    fn add(
        &mut self,
        outpoint: &HashedOutPoint,
        coin: Coin<'_>,
        possible_overwrite: bool,
    ) -> Result<(), CacheError<S::Error>> {
        let is_it = |at| self.kept[at].cell.is_at(&outpoint.outpoint);
        match self.index.find_or_reserve(outpoint.hash, is_it) {
            Err(vacant) => {
                let state = if possible_overwrite { State::Dirty } else { State::Fresh };
                self.insert(vacant, outpoint, coin, state);
            }
            Ok((_, at)) => {
                let kept = &mut self.kept[at];
                if kept.state != State::Spent && !possible_overwrite {
                    return Err(CacheError::Exists(outpoint.outpoint));
                }
                // What is kept and not fresh may be in the database, until a deletion is written.
                if kept.state != State::Fresh {
                    kept.state = State::Dirty;
                }
                kept.cell.release(&mut self.long_outputs);
                kept.cell = Cell::new(false, &outpoint.outpoint, coin, &mut self.long_outputs);
            }
        }
        Ok(())
    }

    /// Spends a coin and calls `take` with it. Returns the result, or `None` if there is no such coin.
    fn spend<R>(
        &mut self,
        outpoint: &HashedOutPoint,
        take: impl FnOnce(Coin<'_>) -> R,
    ) -> Result<Option<R>, CacheError<S::Error>> {
        let Some((slot, at)) = self.find(outpoint) else {
            let found = self.source.coin(&outpoint.outpoint).map_err(CacheError::Source)?;
            return Ok(found.map(|coin| {
                let at = self.kept.insert(Kept::spent(&outpoint.outpoint));
                self.index.insert(outpoint.hash, at);
                take(coin.as_coin())
            }));
        };
        let kept = &mut self.kept[at];
        if kept.state == State::Spent {
            return Ok(None);
        }
        let taken = take(kept.cell.coin(&self.long_outputs));
        kept.cell.release(&mut self.long_outputs);
        if kept.state == State::Fresh {
            self.index.remove(slot);
            self.kept.remove(at, Kept::FREE);
        } else {
            *kept = Kept::spent(&outpoint.outpoint);
        }
        Ok(Some(taken))
    }
}

impl Kept {
    const FREE: Self = Self { cell: Cell::BLANK, state: State::Clean };

    fn spent(outpoint: &OutPoint) -> Self {
        Self { cell: Cell::without_coin(outpoint), state: State::Spent }
    }

    fn is_coin(&self) -> bool {
        !self.cell.is_free() && self.state != State::Spent
    }
}

/// All changes of a cache, in the order of the chainstate's keys.
#[derive(Debug)]
pub struct Changes<'a> {
    kept: &'a Slab<Kept, CHUNK>,
    long_outputs: &'a LongOutputs,
    /// The first word of each txid, and the number of the cell.
    order: Vec<(u64, u32)>,
}

impl<'a> Changes<'a> {
    fn new(kept: &'a Slab<Kept, CHUNK>, long_outputs: &'a LongOutputs) -> Self {
        let first_word = |cell: &Cell| cell.txid().first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        let changed = kept.iter().filter(|(_, kept)| kept.state != State::Clean);
        let mut order: Vec<_> = changed.map(|(at, kept)| (first_word(&kept.cell), at)).collect();
        let outpoint = |at: u32| kept[at].cell.outpoint();
        order.sort_unstable_by(|(a, at_a), (b, at_b)| {
            a.cmp(b).then_with(|| chainstate_key_order(&outpoint(*at_a), &outpoint(*at_b)))
        });
        Self { kept, long_outputs, order }
    }

    pub const fn len(&self) -> usize {
        self.order.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn outpoint(&self, number: usize) -> Option<OutPoint> {
        self.order.get(number).map(|&(_, at)| self.kept[at].cell.outpoint())
    }

    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = CoinChange<'_>> {
        let order = self.order.get(range).unwrap_or_default();
        let following = order.iter().skip(PREFETCHED).map(Some).chain(iter::repeat(None));
        order.iter().zip(following).map(|(&(_, at), following)| {
            if let Some(&(_, following)) = following {
                digest::cache::prefetch(&self.kept[following]);
            }
            let Kept { cell, state } = &self.kept[at];
            (cell.outpoint(), (*state != State::Spent).then(|| cell.coin(self.long_outputs)))
        })
    }
}
