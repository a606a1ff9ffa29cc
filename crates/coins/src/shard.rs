//! A shard: the open creations and open spends of one range of txids.
//!
//! Nearly all the time of the join is waiting for memory, so work comes in batches and goes through in
//! windows: first all index slots of a window are prefetched, then all cells they point at and all places
//! that creations will take, then each operation runs on warm lines. So the processor has many misses in
//! flight at once.

use crate::{
    cell::{Cell, LongOutputs},
    index::{Index, Pages},
    mismatch::{Mismatch, Mismatches},
    slab::{Chunks, Slab},
    survivors::SurvivorShard,
};
use digest::siphash::SipHash13Uj;
use std::sync::Arc;
use wire::NetSize;

/// Operations whose memory is fetched at once; a few times what a core keeps in flight, and well within L1.
const WINDOW: usize = 64;
/// 45 KB: small against a shard, large against the call for it. Smaller ones leave more holes between them.
const CHUNK: usize = 512;

pub(crate) type Cells = Slab<Cell, CHUNK>;

/// Memory that shards have no use for at the time, for the next one that grows.
#[derive(Debug)]
pub(crate) struct Spare {
    chunks: Arc<Chunks<Cell>>,
    pages: Arc<Pages>,
}

impl Spare {
    pub(crate) fn new() -> Self {
        Self { chunks: Chunks::shared(), pages: Chunks::shared() }
    }

    /// Frees it, and from now on what shards give back.
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
    /// Of the open creations, less the open spends.
    pub(crate) size: NetSize,
    pub(crate) open_spends: u64,
    pub(crate) mismatches: Mismatches,
}

impl Shard {
    /// An empty one.
    pub(crate) fn new(spare: &Spare) -> Self {
        Self {
            index: Index::new(Arc::clone(&spare.pages)),
            cells: Slab::sharing(Arc::clone(&spare.chunks)),
            long_outputs: LongOutputs::new(),
            size: NetSize::default(),
            open_spends: 0,
            mismatches: Mismatches::default(),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.cells.memory_bytes() + self.long_outputs.memory_bytes()
    }

    /// Takes in a batch of creations and spends, with their hashes, whose long parts lie in `long_outputs`, which it
    /// empties of them.
    pub(crate) fn apply<'o>(
        &mut self,
        exact: bool,
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
                self.apply_one(hash, exact, op, long_outputs);
                done += 1;
            }
            if done < WINDOW {
                return;
            }
            rest.nth(WINDOW - 1);
        }
    }

    #[inline]
    fn apply_one(&mut self, hash: u64, exact: bool, op: &Cell, long_outputs: &mut LongOutputs) {
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
            _ => {
                if exact && (op.code != open.code || op.out(long_outputs) != open.out(&self.long_outputs)) {
                    self.mismatches.push(Mismatch::ClaimDiffers(outpoint));
                }
                self.index.remove(slot);
                let matched = self.cells.remove(at, Cell::BLANK);
                self.count(&matched, false);
                matched.release(&mut self.long_outputs);
            }
        }
        op.release(long_outputs);
    }

    /// Counts an open cell in, or out.
    #[inline]
    fn count(&mut self, cell: &Cell, comes: bool) {
        let row = cell.row_size(&self.long_outputs);
        if cell.is_spend() {
            self.open_spends = if comes { self.open_spends + 1 } else { self.open_spends - 1 };
        }
        self.size = if comes != cell.is_spend() { self.size + row } else { self.size - row };
    }

    /// Open coins.
    pub(crate) const fn open_coins(&self) -> u64 {
        (self.size.coins + self.open_spends as i64) as u64
    }

    /// Takes out what belongs to the oldest coins: `share` of the entries, or somewhat more.
    ///
    /// A spend is as old as the coin it claims: the coin it waits for is of that age too, so the two stay
    /// together or meet when runs are merged.
    pub(crate) fn take_oldest(&mut self, hasher: &SipHash13Uj, share: f64) -> SurvivorShard {
        let live = || self.cells.iter().map(|(_, cell)| cell).filter(|cell| !cell.is_free());
        let mut codes: Vec<u32> = live().map(|cell| cell.code).collect();
        let count = ((codes.len() as f64 * share).ceil() as usize).min(codes.len());
        let youngest_to_go = count.checked_sub(1).map(|last| *codes.select_nth_unstable(last).1);
        let goes = |cell: &Cell| youngest_to_go.is_some_and(|code| cell.code <= code);
        let staying = codes.iter().filter(|&&code| youngest_to_go.is_none_or(|last| code > last)).count();
        drop(codes);
        let fresh = self.cells.another();
        let all = std::mem::replace(&mut self.cells, fresh);
        let mut from = std::mem::replace(&mut self.long_outputs, LongOutputs::new());
        (self.size, self.open_spends) = (NetSize::default(), 0);
        self.index.reset(staying);
        let (mut taken, mut long_outputs, mut size) =
            (self.cells.another(), LongOutputs::new(), NetSize::default());
        // What stays moves too, so that no chunk keeps places that are free.
        all.drain(|cell| {
            if cell.is_free() {
            } else if goes(cell) {
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

    /// Adds a cell, but for the index.
    fn add(&mut self, cell: &Cell, from: &mut LongOutputs) -> u32 {
        let cell = cell.moved(from, &mut self.long_outputs);
        self.count(&cell, true);
        self.cells.insert(cell)
    }

    /// Turns spends that are still open into mismatches.
    pub(crate) fn record_missing(&mut self) {
        if self.open_spends == 0 {
            return;
        }
        for (_, cell) in self.cells.iter().filter(|(_, cell)| !cell.is_free() && cell.is_spend()) {
            self.mismatches.push(Mismatch::MissingCoin(cell.outpoint()));
        }
    }
}
