//! The join: matches every spend with its creation, exactly, in whatever order they arrive.
//!
//! # Why any order is exact
//! An input spends with a claim, the coin that undo data says it spends, or is routed: it has no claim, and
//! the coin is delivered to it ([`crate::Delivery`]).
//! Assumptions: each block satisfies the rules for its own bytes, no two *different* transactions have the
//! same txid (SHA-256d), the coinbase txids of the chain are unique ([`crate::CoinbaseTxids`]; of a legal
//! overwritten pair, only the later coinbase's outputs are pushed), and no claim has code 0, by which a
//! match recognises a routed spend. The last is a premise about files: no coin has height 0,
//! [`Coin::read_undo`] refuses undo data in which one does, and [`Effects::push_spend`] asserts it.
//! Proposition: the join ends without a mismatch if and only if every input spends a coin that exists when
//! it is spent, and its claim, if it has one, equals that coin. To each routed input, the coin that it
//! spends was then delivered.
//!
//! *Without a mismatch, the chain is valid.* A coin leaves the join only by matching a spend with the same
//! outpoint that is routed, or has the same code and bytes as its claim: the code of a claim is not 0, so no
//! claim passes for a routed spend. At the end no spend is open, no spend has met an open spend of the same
//! outpoint, and no creation has met an open creation. So for each outpoint the number of spends equals the
//! number of creations or is one less. Suppose a txid occurs twice. It is not the txid of a coinbase, so the
//! transaction has inputs, the same ones both times; each is spent twice, so its outpoint is created twice,
//! so the transaction that creates it occurs twice too. Follow first inputs: transactions refer to each other
//! by hash, hence never in a cycle, and the chain is finite, so the path ends at a coinbase that occurs
//! twice, which is excluded. Hence all txids are unique, and each outpoint is created at most once and spent
//! at most once, by an input whose claim equals the coin, or to which it was delivered. Was it created below
//! the spender? If it met its spend in [`crate::Delta`], that has seen the creation first. Otherwise its
//! height, of which a claim has a copy, is below the spender's: [`Effects::push_spend`] compares the heights
//! of a claim, the match those of a routed spend. So the coin existed when it was spent.
//!
//! *If the chain is valid, there is no mismatch.* Each outpoint has one creation and at most one spend, whose
//! claim, if it has one, is true; they cancel, whichever arrives first.
//!
//! The verdict and the survivors are therefore functions of the chain, not of threads, batches, or the key. A
//! chain with mismatches, or with repeated coinbase txids, goes to sequential validation
//! ([`crate::MemoryCoins`]): every invalid chain has a mismatch, but only sequential validation names the
//! first invalid block and its violation.
//!
//! # Memory
//! A coin takes a cell of 88 bytes and 10 to 15 bytes in the index (8 per slot, 53 to 80 % full): 98 to 103
//! bytes, plus the unused part of an 11 KB chunk and of an 8 KiB page per shard. A compressed output above 47
//! bytes (mostly bare multisig) is stored outside its cell and costs its length and 16 bytes, and three
//! quarters more, which the allocator wastes. `tests/memory.rs` measures it. Emptied chunks are kept for the
//! next shard that grows: the join never takes more than the highest value of [`Join::memory_bytes`], except
//! for the size of one shard while entries are taken out of it (`tests/turnover.rs`). Each [`Effects`] stages
//! up to 16,384 operations of 88 bytes and 1 MiB of long outputs: 2 MB for usual chains.
//!
//! What exceeds the memory is taken out ([`Join::take_oldest`]), stored elsewhere in sorted runs, and matched
//! by a [`crate::merge`]. The oldest coins are taken first, since most spends are of young coins.

use crate::{
    SHARDS,
    cell::{Cell, LongOutputs},
    delivery::Spender,
    mismatch::{Mismatch, Mismatches},
    shard::{Shard, Spare},
    survivors::{SurvivorShard, Survivors},
};
use digest::siphash::{SipHash13Uj, SipKey};
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use wire::{Coin, Entry, Height, OutPoint};

/// Number of operations that a worker stages before they are applied: few enough to stay in its core's cache,
/// many enough for a window ([`crate::shard`]) of each shard.
const STAGED_OPS: usize = 16 << 10;
/// Maximum size of the long outputs that a worker stages, in bytes: a hostile chain can fill blocks with
/// them.
const STAGED_LONG_BYTES: usize = 1 << 20;

/// All open creations and spends, in [`SHARDS`] shards by the first byte of the txid.
///
/// An attacker who grinds txids into one shard only serialises work on that shard; correctness does not
/// depend on the distribution.
#[derive(Debug)]
pub struct Join {
    hasher: SipHash13Uj,
    shards: Vec<Mutex<Shard>>,
    spare: Spare,
    /// Memory of the shards, in bytes.
    memory: AtomicUsize,
    /// Mismatches that workers have reported.
    mismatches: Mutex<Mismatches>,
    /// Whether a worker panicked before its staged operations were applied.
    incomplete: AtomicBool,
}

impl Join {
    /// Creates an empty join. `key` should come from the system's random source, so that an attacker cannot
    /// construct collisions in the tables.
    pub fn new(key: SipKey) -> Self {
        let spare = Spare::new();
        let shards: Vec<_> = (0..SHARDS).map(|_| Mutex::new(Shard::new(&spare))).collect();
        Self {
            hasher: SipHash13Uj::new(key.0, key.1),
            memory: AtomicUsize::new(shards.iter().map(|shard| lock(shard).memory_bytes()).sum()),
            shards,
            spare,
            mismatches: Mutex::default(),
            incomplete: AtomicBool::new(false),
        }
    }

    /// Returns the handle through which one worker pushes creations and spends. Each worker needs its own.
    pub fn effects(&self) -> Effects<'_> {
        let (deliveries, carried, ops, hashes, order) = Default::default();
        Effects {
            join: self,
            deliveries,
            carried,
            ops,
            hashes,
            order,
            long_outputs: LongOutputs::new(),
            mismatches: Mismatches::default(),
        }
    }

    /// Returns the memory of the shards in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Runs `work` on a shard and updates the memory count.
    fn with_shard<T>(&self, shard: usize, work: impl FnOnce(&mut Shard) -> T) -> T {
        let mut shard = lock(&self.shards[shard]);
        let before = shard.memory_bytes();
        let done = work(&mut shard);
        let after = shard.memory_bytes();
        // If memory was released, the difference wraps below zero, and the sum wraps back.
        self.memory.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        done
    }

    /// Removes the oldest entries from a shard, `share` (0 to 1) of them: coins, and spends whose claims are
    /// that old. The caller stores them for a [`crate::merge`] and ends the join with
    /// [`Join::finish_spilled`].
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn take_oldest(&self, shard: usize, share: f64) -> SurvivorShard {
        self.with_shard(shard, |shard| shard.take_oldest(&self.hasher, share))
    }

    /// Calls `each` with the open coins and spends of a shard, in the order of the chainstate keys.
    /// Operations that workers have staged are not included.
    ///
    /// # Errors
    /// The first error of `each`.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn each_open<E>(&self, shard: usize, each: impl FnMut(Entry<'_>) -> Result<(), E>) -> Result<(), E> {
        lock(&self.shards[shard]).sorted_entries().try_for_each(each)
    }

    /// Returns the number of coins without a spend so far, and of spends without a creation so far.
    pub fn open(&self) -> (u64, u64) {
        self.shards
            .iter()
            .map(|shard| lock(shard))
            .fold((0, 0), |(coins, spends), shard| (coins + shard.open_coins(), spends + shard.open_spends))
    }

    /// Returns whether a mismatch has been found, so that the caller can stop early.
    pub fn has_mismatches(&self) -> bool {
        !lock(&self.mismatches).is_empty()
            || self.shards.iter().any(|shard| !lock(shard).mismatches.is_empty())
    }

    /// Returns some of the mismatches that have been found.
    pub fn mismatches(&self) -> Vec<Mismatch> {
        let own = lock(&self.mismatches).as_slice().to_vec();
        let of_shards = self.shards.iter().flat_map(|shard| lock(shard).mismatches.as_slice().to_vec());
        own.into_iter().chain(of_shards).collect()
    }

    /// Ends the join after all blocks have been pushed, if no entries were taken out of it.
    ///
    /// # Errors
    /// Some of the mismatches, sorted, if the blocks are not a valid chain or the undo data does not belong
    /// to it.
    ///
    /// # Panics
    /// If a worker panicked: its operations are lost, so there is no verdict.
    pub fn finish(self) -> Result<Survivors, Vec<Mismatch>> {
        self.end(Shard::record_missing)
    }

    /// Ends the join after all blocks have been pushed. The survivors may include spends of coins that were
    /// taken out.
    ///
    /// # Panics
    /// Panics like [`Join::finish`].
    pub fn finish_spilled(self) -> Result<Survivors, Vec<Mismatch>> {
        self.end(|_| ())
    }

    fn end(self, check_shard: impl Fn(&mut Shard)) -> Result<Survivors, Vec<Mismatch>> {
        assert!(!self.incomplete.into_inner(), "a worker panicked before its effects were applied");
        // The stages that read the survivors need the memory.
        self.spare.close();
        let mut mismatches = self.mismatches.into_inner().expect(POISONED);
        let mut shards = Vec::with_capacity(SHARDS);
        for shard in self.shards {
            let mut shard = shard.into_inner().expect(POISONED);
            check_shard(&mut shard);
            mismatches.append(&mut shard.mismatches);
            shards.push(shard);
        }
        if mismatches.is_empty() {
            Ok(Survivors::new(shards.into_iter().map(Shard::into_survivors)))
        } else {
            Err(mismatches.into_sorted())
        }
    }
}

const POISONED: &str = "no worker panics while it holds a shard";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISONED)
}

/// Receives the creations and spends of one worker, of any blocks in any order.
///
/// Operations are first staged, then applied shard by shard, at the latest when this value is dropped. It
/// borrows the join, so [`Join::finish`] cannot run before that and sees all operations.
#[derive(Debug)]
pub struct Effects<'j> {
    join: &'j Join,
    deliveries: Vec<u8>,
    /// What the spend that is being pushed carries, reused.
    carried: Vec<u8>,
    ops: Vec<Cell>,
    /// The hash of each operation's outpoint.
    hashes: Vec<u64>,
    /// Indices of the operations, sorted by shard.
    order: Vec<u32>,
    long_outputs: LongOutputs,
    mismatches: Mismatches,
}

impl Effects<'_> {
    #[inline]
    pub(crate) const fn hasher(&self) -> &SipHash13Uj {
        &self.join.hasher
    }

    /// Pushes the creation of a coin. Coins spent in the same block must be cancelled first, as
    /// [`crate::Delta`] does.
    #[inline]
    pub fn push_creation(&mut self, outpoint: &OutPoint, coin: Coin<'_>) {
        self.push(false, outpoint, coin);
    }

    /// Pushes the spend of an earlier block's coin at `height`, with the claim of the undo data.
    ///
    /// # Panics
    /// If the claim has the height 0, at which no coin is created.
    #[inline]
    pub fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        assert!(claim.height() > Height(0), "a claim with code 0 would pass for a routed spend");
        if claim.height() >= height {
            // A mismatch even if the claim is true: the spend is then in the wrong block.
            self.push_mismatch(Mismatch::SpentBeforeCreated(*outpoint));
        }
        self.push(true, outpoint, claim);
    }

    /// Pushes the spend of an earlier block's coin without a claim: the coin is delivered to the input.
    #[inline]
    pub fn push_routed_spend(&mut self, outpoint: &OutPoint, spender: Spender) {
        let mut out = std::mem::take(&mut self.carried);
        self.push(true, outpoint, spender.carried(&mut out));
        self.carried = out;
    }

    /// Encoded deliveries of this worker since they were last cleared, in any order
    /// ([`crate::Delivery::split_first`]). They are complete after [`Effects::flush`].
    pub const fn deliveries(&mut self) -> &mut Vec<u8> {
        &mut self.deliveries
    }

    /// Reports a mismatch that was found without the join.
    pub fn push_mismatch(&mut self, mismatch: Mismatch) {
        self.mismatches.push(mismatch);
    }

    #[inline]
    fn push(&mut self, is_spend: bool, outpoint: &OutPoint, coin: Coin<'_>) {
        self.hashes.push(self.join.hasher.hash_outpoint(&outpoint.txid.0, outpoint.vout));
        self.ops.push(Cell::new(is_spend, outpoint, coin, &mut self.long_outputs));
        if self.ops.len() >= STAGED_OPS || self.long_outputs.long_bytes() >= STAGED_LONG_BYTES {
            self.flush();
        }
    }

    /// Applies all staged operations. It is needed only to include them in [`Join::open`],
    /// [`Join::has_mismatches`] and [`Join::memory_bytes`].
    pub fn flush(&mut self) {
        let Self { join, deliveries, ops, hashes, order, long_outputs, mismatches, .. } = self;
        // A counting sort by shard: `ends` becomes the end of each shard's operations in `order`.
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
                join.with_shard(shard, |shard| shard.apply(deliveries, batch, long_outputs));
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
