//! A shard: the open creations and open spends of one range of txids.
//!
//! The join spends nearly all of its time waiting for memory, so operations come in batches and are applied
//! in windows: first all index slots of a window are prefetched, then all cells to which they refer and all
//! places that creations will use, then each operation finds its data in the cache. The processor thus has
//! many cache misses in flight at once.

use crate::{
    cell::{Cell, Cells, LongOutputs},
    delivery::match_spend,
    index::{Index, Pages},
    mismatch::{Mismatch, Mismatches},
    slab::{Chunks, Slab},
    survivors::{SurvivorShard, in_order, sorted},
};
use digest::siphash::SipHash13Uj;
use std::sync::Arc;
use wire::{Entry, NetSize};

/// Number of operations whose memory is prefetched together: a few times the number of misses that a core has
/// in flight, and well within L1.
const WINDOW: usize = 64;
/// Memory that shards have released, for the next one that grows.
#[derive(Debug)]
pub(crate) struct Spare {
    chunks: Arc<Chunks<Cell>>,
    pages: Arc<Pages>,
}

impl Spare {
    pub(crate) fn new() -> Self {
        Self { chunks: Chunks::shared(), pages: Chunks::shared() }
    }

    /// Frees it, and from now on all memory that shards release.
    pub(crate) fn close(&self) {
        self.chunks.close();
        self.pages.close();
    }
}

/// Open creations and open spends of one shard.
#[derive(Debug)]
pub(crate) struct Shard {
    index: Index,
    pub(crate) cells: Cells,
    pub(crate) long_outputs: LongOutputs,
    /// The size of the open creations minus the size of the open spends.
    pub(crate) size: NetSize,
    pub(crate) open_spends: u64,
    pub(crate) mismatches: Mismatches,
}

impl Shard {
    pub(crate) fn new(spare: &Spare) -> Self {
        Self {
            index: Index::new(Some(Arc::clone(&spare.pages))),
            cells: Slab::new(Some(Arc::clone(&spare.chunks))),
            long_outputs: LongOutputs::new(),
            size: NetSize::default(),
            open_spends: 0,
            mismatches: Mismatches::default(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.cells.memory_bytes() + self.long_outputs.memory_bytes()
    }

    /// Applies a batch of creations and spends, given with their hashes. It moves their long outputs out of
    /// `long_outputs`.
    pub(crate) fn apply<'o>(
        &mut self,
        deliveries: &mut Vec<u8>,
        batch: impl Iterator<Item = (u64, &'o Cell)> + Clone,
        long_outputs: &mut LongOutputs,
    ) {
        let mut rest = batch;
        loop {
            let window = rest.clone().take(WINDOW);
            let hashes = window.clone().map(|(hash, _)| hash);
            hashes.clone().for_each(|hash| self.index.prefetch(hash));
            hashes.for_each(|hash| {
                if let Some((_, cell)) = self.index.find(hash, |_| true) {
                    digest::cache::prefetch(&self.cells[cell]);
                }
            });
            let creations = window.clone().filter(|(_, op)| !op.is_spend()).count();
            self.cells.next_places(creations).for_each(digest::cache::prefetch);
            let mut done = 0;
            for (hash, op) in window {
                self.apply_one(hash, deliveries, op, long_outputs);
                done += 1;
            }
            if done < WINDOW {
                return;
            }
            rest.nth(WINDOW - 1);
        }
    }

    #[inline]
    fn apply_one(&mut self, hash: u64, deliveries: &mut Vec<u8>, op: &Cell, long_outputs: &mut LongOutputs) {
        let Some((slot, at)) = self.index.find(hash, |cell| self.cells[cell].same_outpoint(op)) else {
            let at = self.add(op, long_outputs);
            self.index.insert(hash, at);
            return;
        };
        let open = &self.cells[at];
        let outpoint = op.outpoint();
        match (op.is_spend(), open.is_spend()) {
            (true, true) => self.mismatches.push(Mismatch::DoubleSpend(outpoint)),
            (false, false) => self.mismatches.push(Mismatch::DuplicateCreation(outpoint)),
            (is_spend, _) => {
                let (op, open) = (op.coin(long_outputs), open.coin(&self.long_outputs));
                let (creation, spend) = if is_spend { (open, op) } else { (op, open) };
                if let Err(mismatch) = match_spend(outpoint, creation, spend, deliveries) {
                    self.mismatches.push(mismatch);
                }
                self.index.remove(slot);
                let matched = self.cells.remove(at, Cell::BLANK);
                self.count(&matched, false);
                matched.release(&mut self.long_outputs);
            }
        }
        op.release(long_outputs);
    }

    /// Adds an open cell to the counts, or subtracts it.
    #[inline]
    fn count(&mut self, cell: &Cell, is_added: bool) {
        let row = cell.row_size(&self.long_outputs);
        if cell.is_spend() {
            self.open_spends = if is_added { self.open_spends + 1 } else { self.open_spends - 1 };
        }
        self.size = if is_added != cell.is_spend() { self.size + row } else { self.size - row };
    }

    pub(crate) const fn open_coins(&self) -> u64 {
        (self.size.coins + self.open_spends as i64) as u64
    }

    /// Removes the oldest entries: `share` of them, or somewhat more.
    ///
    /// The age of a spend is that of its claim: the coin that it waits for has the same age, so the two stay
    /// together, or match when sorted runs are merged.
    pub(crate) fn take_oldest(&mut self, hasher: &SipHash13Uj, share: f64) -> SurvivorShard {
        let live = || self.cells.iter().map(|(_, cell)| cell).filter(|cell| !cell.is_free());
        let mut codes: Vec<u32> = live().map(|cell| cell.code).collect();
        let count = ((codes.len() as f64 * share).ceil() as usize).min(codes.len());
        let youngest_taken = count.checked_sub(1).map(|last| *codes.select_nth_unstable(last).1);
        let is_taken = |cell: &Cell| youngest_taken.is_some_and(|code| cell.code <= code);
        let staying_count =
            codes.iter().filter(|&&code| youngest_taken.is_none_or(|last| code > last)).count();
        drop(codes);
        let fresh = self.cells.another();
        let all = std::mem::replace(&mut self.cells, fresh);
        let mut from = std::mem::replace(&mut self.long_outputs, LongOutputs::new());
        (self.size, self.open_spends) = (NetSize::default(), 0);
        self.index.reset(staying_count);
        let (mut taken, mut long_outputs, mut size) =
            (self.cells.another(), LongOutputs::new(), NetSize::default());
        // Entries that stay are moved too, so that no chunk has free places.
        all.drain(|cell| {
            if cell.is_free() {
            } else if is_taken(cell) {
                let cell = cell.moved(&mut from, &mut long_outputs);
                let row = cell.row_size(&long_outputs);
                size = if cell.is_spend() { size - row } else { size + row };
                taken.insert(cell);
            } else {
                let hash = hasher.hash_outpoint(cell.txid(), cell.vout());
                let at = self.add(cell, &mut from);
                self.index.insert(hash, at);
            }
        });
        SurvivorShard::new(taken, long_outputs, size)
    }

    /// Adds a cell without an entry in the index.
    fn add(&mut self, cell: &Cell, from: &mut LongOutputs) -> u32 {
        let cell = cell.moved(from, &mut self.long_outputs);
        self.count(&cell, true);
        self.cells.insert(cell)
    }

    /// Returns its entries, and frees its index.
    pub(crate) fn into_survivors(self) -> SurvivorShard {
        SurvivorShard::new(self.cells, self.long_outputs, self.size)
    }

    /// Returns the open entries in the order of the chainstate keys.
    pub(crate) fn sorted_entries(&self) -> impl Iterator<Item = Entry<'_>> {
        in_order(sorted(&self.cells), &self.cells, &self.long_outputs)
    }

    /// Records a mismatch for each spend that is still open.
    pub(crate) fn record_missing(&mut self) {
        if self.open_spends == 0 {
            return;
        }
        for (_, cell) in self.cells.iter().filter(|(_, cell)| !cell.is_free() && cell.is_spend()) {
            self.mismatches.push(Mismatch::MissingCoin(cell.outpoint()));
        }
    }
}
