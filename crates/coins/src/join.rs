//! The join: every spend is matched with its creation, exactly, in whatever order they arrive.
//!
//! # Why any order is exact
//! Given: the rules of each block's own bytes hold, no two *different* transactions have one txid
//! (SHA-256d), and the coinbase txids of the chain are unique ([`crate::CoinbaseTxids`]; of a legal
//! overwritten pair only the later coinbase's outputs are pushed). Claim: the join ends without a mismatch if
//! and only if every input spends a coin that exists when it is spent, and claims of it what is true.
//!
//! *No mismatch, so valid.* A coin leaves the join only by meeting a spend with the same outpoint, code and
//! bytes; at the end no spend is open, none met a second one, and no creation met an open one. So for each
//! outpoint there are as many spends as creations, or one less. Suppose a txid occurred twice. It is no
//! coinbase's, so the transaction has inputs, the same ones both times; each was spent twice, so its outpoint
//! was created twice, so its transaction occurs twice too. Follow first inputs: transactions refer to each
//! other by hash, hence never in a circle, and the chain is finite, so one ends at a coinbase that occurs
//! twice, which is excluded. Hence all txids are unique, each outpoint is created at most once, and spent at
//! most once, by an input whose claim equals the coin. Its height, which is part of the claim, is below the
//! spender's, or [`crate::Delta`] has seen the creation first. So the coin existed when it was spent.
//!
//! *Valid, so no mismatch.* Each outpoint has one creation and at most one spend, which claims the truth;
//! they cancel whichever comes first.
//!
//! So the verdict and the survivors are functions of the chain, not of threads, batches, or the key. A chain
//! with mismatches, or with coinbase txids that repeat, is judged by [`crate::ordered`]: the mismatches are
//! complete, but the first invalid block and its reason are the judge's to name.
//!
//! # Memory
//! A coin takes a cell of 88 bytes and 10 to 15 in the index (8 per slot, 53 to 80 % full): 98 to 103 bytes,
//! and the unfilled rest of a 45 KB chunk and an 8 KiB page per shard. A compressed output above 47 bytes
//! (bare multisig, mostly) lies outside its cell and costs its length and 16 bytes, and three quarters more,
//! which the allocator wastes. `tests/memory.rs` measures it. Chunks that are emptied wait for the next shard
//! that grows: the join takes no more than the most that [`Join::memory_bytes`] ever said, but for a shard's
//! worth while one is taken out of (`tests/turnover.rs`). Each [`Effects`] stages up to 16,384 operations of
//! 88 bytes and a MiB of long outputs: 2 MB for usual chains.
//!
//! What does not fit is taken out ([`Join::take_oldest`]), kept elsewhere in sorted runs, and met again by a
//! [`crate::merge`]. The oldest coins go first, as most spends are of young ones.

use crate::{
    SHARDS,
    cell::{Cell, LongOutputs},
    delta::{EffectSink, OutputStatus},
    mismatch::{Mismatch, Mismatches},
    shard::{Shard, Spare},
    survivors::{SurvivorShard, Survivors, sorted_entries},
};
use digest::siphash::SipHash13Uj;
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use wire::{Coin, Entry, Height, OutPoint};

/// Operations that a worker stages before they are applied: few enough to stay in its core's cache, many
/// enough for a window ([`crate::shard`]) of each shard.
const STAGED_OPS: usize = 16 << 10;
/// Bytes of long outputs that a worker stages: a hostile chain can fill blocks with them.
const STAGED_LONG_BYTES: usize = 1 << 20;

/// All open creations and spends, in [`SHARDS`] shards by the first byte of the txid.
///
/// Whoever grinds txids into one shard makes the work on it take turns; nothing else depends on it.
#[derive(Debug)]
pub struct Join {
    hasher: SipHash13Uj,
    /// Whether a spend must claim what its creation says.
    exact: bool,
    shards: Vec<Mutex<Shard>>,
    /// What shards have no use for at the time.
    spare: Spare,
    /// Bytes that the shards take.
    memory: AtomicUsize,
    /// Of the workers.
    mismatches: Mutex<Mismatches>,
    /// Whether a worker panicked with operations in hand.
    incomplete: AtomicBool,
}

impl Join {
    /// An empty one. `key` should come from the system's random source: with it, no one can aim at the
    /// tables.
    #[must_use]
    pub fn new(key: (u64, u64)) -> Self {
        Self::of_kind(key, true)
    }

    /// One in which a spend meets the creation of its outpoint, whatever the two say of the coin: for those
    /// who ask only which outputs are left ([`crate::output_indices`]).
    #[must_use]
    pub fn of_outpoints_only(key: (u64, u64)) -> Self {
        Self::of_kind(key, false)
    }

    fn of_kind(key: (u64, u64), exact: bool) -> Self {
        let spare = Spare::new();
        let shards: Vec<_> = (0..SHARDS).map(|_| Mutex::new(Shard::new(&spare))).collect();
        Self {
            hasher: SipHash13Uj::new(key.0, key.1),
            exact,
            memory: AtomicUsize::new(shards.iter().map(|shard| lock(shard).memory_bytes()).sum()),
            shards,
            spare,
            mismatches: Mutex::default(),
            incomplete: AtomicBool::new(false),
        }
    }

    /// A worker's entrance. Each worker has its own.
    #[must_use]
    pub fn effects(&self) -> Effects<'_> {
        let (ops, hashes, order) = Default::default();
        Effects {
            join: self,
            ops,
            hashes,
            order,
            long_outputs: LongOutputs::new(),
            mismatches: Mismatches::default(),
        }
    }

    /// Bytes of memory that the shards take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Works on a shard and keeps count of its memory.
    fn with_shard<T>(&self, shard: usize, work: impl FnOnce(&mut Shard) -> T) -> T {
        let mut shard = lock(&self.shards[shard]);
        let before = shard.memory_bytes();
        let done = work(&mut shard);
        let after = shard.memory_bytes();
        // Wraps around zero where memory was given back, and around again in the sum.
        self.memory.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        done
    }

    /// Takes out of a shard what belongs to its oldest coins, `share` (0 to 1) of the entries: coins, and
    /// spends that wait for coins of that age. The caller keeps them for a [`crate::merge`] and ends the join
    /// with [`Join::finish_spilled`].
    ///
    /// # Panics
    /// If there is no such shard.
    #[must_use]
    pub fn take_oldest(&self, shard: usize, share: f64) -> SurvivorShard {
        self.with_shard(shard, |shard| shard.take_oldest(&self.hasher, share))
    }

    /// Calls `each` with the coins and spends that are open in a shard, in the order of the chainstate keys.
    /// What workers have staged is not among them.
    ///
    /// # Errors
    /// The first one of `each`.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn each_open<E>(&self, shard: usize, each: impl FnMut(Entry<'_>) -> Result<(), E>) -> Result<(), E> {
        sorted_entries(&lock(&self.shards[shard])).try_for_each(each)
    }

    /// Coins created and not spent so far, and spends without a creation so far.
    #[must_use]
    pub fn open(&self) -> (u64, u64) {
        self.shards
            .iter()
            .map(|shard| lock(shard))
            .fold((0, 0), |(coins, spends), shard| (coins + shard.open_coins(), spends + shard.open_spends))
    }

    /// Whether something was found wrong already, so that going on is of no use.
    #[must_use]
    pub fn has_mismatches(&self) -> bool {
        !lock(&self.mismatches).is_empty()
            || self.shards.iter().any(|shard| !lock(shard).mismatches.is_empty())
    }

    /// Ends the join once all blocks are in, if nothing was taken out of it.
    ///
    /// # Errors
    /// Some mismatches, lowest height first, if the blocks are not a valid chain or the undo data not its.
    ///
    /// # Panics
    /// If a worker panicked: its operations are lost, so there is no verdict.
    pub fn finish(self) -> Result<Survivors, Vec<Mismatch>> {
        self.end(Shard::record_missing)
    }

    /// Ends the join once all blocks are in: what is left may hold spends of coins that were taken out.
    ///
    /// # Errors
    /// As [`Join::finish`].
    ///
    /// # Panics
    /// As [`Join::finish`].
    pub fn finish_spilled(self) -> Result<Survivors, Vec<Mismatch>> {
        self.end(|_| ())
    }

    fn end(self, look: impl Fn(&mut Shard)) -> Result<Survivors, Vec<Mismatch>> {
        assert!(!self.incomplete.into_inner(), "a worker panicked before its effects were applied");
        // Whoever goes through the coins needs the memory for other things.
        self.spare.close();
        let mut mismatches = self.mismatches.into_inner().expect(POISONED);
        let mut shards = Vec::with_capacity(SHARDS);
        for shard in self.shards {
            let mut shard = shard.into_inner().expect(POISONED);
            look(&mut shard);
            mismatches.append(&mut shard.mismatches);
            shards.push(shard);
        }
        if mismatches.is_empty() {
            Ok(Survivors::new(shards.into_iter().map(SurvivorShard::from_shard)))
        } else {
            Err(mismatches.into_sorted())
        }
    }
}

const POISONED: &str = "no worker panics while it holds a shard";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISONED)
}

/// Where one worker puts creations and spends, of any blocks in any order.
///
/// They are staged one after the other, then applied shard by shard. What is staged is applied at the latest
/// when this is dropped, so [`Join::finish`], which the borrow keeps from running before, sees all of it.
#[derive(Debug)]
pub struct Effects<'j> {
    join: &'j Join,
    ops: Vec<Cell>,
    /// Of the outpoints.
    hashes: Vec<u64>,
    /// Numbers of the operations, by shard.
    order: Vec<u32>,
    long_outputs: LongOutputs,
    mismatches: Mismatches,
}

impl EffectSink for Effects<'_> {
    #[inline]
    fn hasher(&self) -> &SipHash13Uj {
        &self.join.hasher
    }

    #[inline]
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus) {
        if status == OutputStatus::Unspent {
            self.push_creation(outpoint, coin);
        }
    }

    #[inline]
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        Self::push_spend(self, outpoint, claim, height);
    }

    fn push_mismatch(&mut self, mismatch: Mismatch) {
        Self::push_mismatch(self, mismatch);
    }
}

impl Effects<'_> {
    /// A coin is made. Spends of its own block must be cancelled first: [`crate::Delta`] does.
    #[inline]
    pub fn push_creation(&mut self, outpoint: &OutPoint, coin: Coin<'_>) {
        let cell = Cell::creation(outpoint, coin, &mut self.long_outputs);
        self.push(cell);
    }

    /// A coin of an earlier block is spent at `height`, of which undo data claim `claim`.
    #[inline]
    pub fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        if claim.height() >= height {
            // Also when it is true: then the spend is in the wrong place.
            self.push_mismatch(Mismatch::SpentBeforeCreated(*outpoint));
        }
        let cell = Cell::spend(outpoint, claim, &mut self.long_outputs);
        self.push(cell);
    }

    /// Something is wrong that shows without the join.
    pub fn push_mismatch(&mut self, mismatch: Mismatch) {
        self.mismatches.push(mismatch);
    }

    #[inline]
    fn push(&mut self, cell: Cell) {
        self.hashes.push(self.join.hasher.hash_outpoint(cell.txid(), cell.vout()));
        self.ops.push(cell);
        if self.ops.len() >= STAGED_OPS || self.long_outputs.long_bytes() >= STAGED_LONG_BYTES {
            self.flush();
        }
    }

    /// Applies all that is staged. Needed only to see it in [`Join::open`], [`Join::has_mismatches`] and
    /// [`Join::memory_bytes`].
    pub fn flush(&mut self) {
        let Self { join, ops, hashes, order, long_outputs, mismatches } = self;
        // Where in the order each shard's operations end: a counting sort.
        let mut ends = [0; SHARDS];
        ops.iter().for_each(|op| ends[op.shard()] += 1);
        let mut sum = 0;
        ends.iter_mut().for_each(|end| sum += std::mem::replace(end, sum));
        order.clear();
        order.resize(ops.len(), 0);
        for (number, op) in (0..).zip(&*ops) {
            let end = &mut ends[op.shard()];
            order[*end] = number;
            *end += 1;
        }
        let mut start = 0;
        for (shard, end) in ends.into_iter().enumerate() {
            let batch =
                order[start..end].iter().map(|&number| (hashes[number as usize], &ops[number as usize]));
            if start < end {
                join.with_shard(shard, |shard| shard.apply(join.exact, batch, long_outputs));
            }
            start = end;
        }
        ops.clear();
        hashes.clear();
        lock(&join.mismatches).append(mismatches);
    }
}

impl Drop for Effects<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.join.incomplete.store(true, Ordering::Relaxed);
        } else {
            self.flush();
        }
    }
}
