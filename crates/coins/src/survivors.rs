//! The survivors of a join, shard by shard in the order of the chainstate's keys: the UTXO set or, if entries
//! were spilled to sorted runs, the entries to be merged with them.
//!
//! Shard `i` contains the coins whose txid begins with byte `i`, so the sorted shards in sequence are the
//! whole set in key order. Each shard is a separate value: threads can process shards in any order, and
//! dropping one frees its memory.

use crate::{
    SHARDS,
    cell::{Cell, Cells, LongOutputs},
};
use digest::cache::prefetch;
use wire::{Coin, Entry, NetSize, OutPoint, coin::chainstate_key_order};

/// The entries that remain open: coins and, if coins were spilled, spends of those.
#[derive(Debug)]
pub struct Survivors {
    shards: Vec<SurvivorShard>,
}

impl Survivors {
    pub(crate) fn new(shards: impl Iterator<Item = SurvivorShard>) -> Self {
        let shards: Vec<_> = shards.collect();
        assert_eq!(shards.len(), SHARDS);
        Self { shards }
    }

    pub fn size(&self) -> NetSize {
        self.shards.iter().map(SurvivorShard::size).sum()
    }

    /// Returns the [`SHARDS`] shards in key order, by value.
    pub fn into_shards(self) -> Vec<SurvivorShard> {
        self.shards
    }
}

/// The open entries of one shard, unsorted.
#[derive(Debug)]
pub struct SurvivorShard {
    cells: Cells,
    long_outputs: LongOutputs,
    size: NetSize,
}

impl SurvivorShard {
    pub(crate) const fn new(cells: Cells, long_outputs: LongOutputs, size: NetSize) -> Self {
        Self { cells, long_outputs, size }
    }

    pub const fn empty() -> Self {
        let size = NetSize { coins: 0, key_bytes: 0, value_bytes: 0 };
        Self::new(Cells::new(None), LongOutputs::new(), size)
    }

    /// Adds a coin, which must not exist yet.
    pub(crate) fn push(&mut self, outpoint: &OutPoint, coin: Coin<'_>) {
        self.cells.insert(Cell::new(false, outpoint, coin, &mut self.long_outputs));
        self.size = self.size + NetSize::of_coin(outpoint.vout, coin);
    }

    /// Returns the size of its coins minus the size of its spends.
    pub const fn size(&self) -> NetSize {
        self.size
    }

    /// Sorts by [`chainstate_key_order`]. It needs 12 additional bytes per entry while it runs, and 4
    /// afterwards.
    pub fn sort(self) -> SortedShard {
        SortedShard { order: sorted(&self.cells), cells: self.cells, long_outputs: self.long_outputs }
    }
}

/// Returns the numbers of the cells in use, sorted by key.
pub(crate) fn sorted(cells: &Cells) -> Vec<u32> {
    // All cells share the first byte of the txid. The next four nearly always differ, except between outputs
    // of one transaction; only for those are the cells themselves read. These bytes and the cell's number
    // form one word, which sorts fastest.
    let prefix = |cell: &Cell| cell.txid()[1..].first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes));
    let mut order: Vec<u64> = cells
        .iter()
        .filter(|(_, cell)| !cell.is_free())
        .map(|(at, cell)| u64::from(prefix(cell)) << 32 | u64::from(at))
        .collect();
    order.sort_unstable();
    for equal in order.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
        if equal.len() > 1 {
            equal.sort_unstable_by(|&a, &b| {
                chainstate_key_order(&cells[a as u32].outpoint(), &cells[b as u32].outpoint())
            });
        }
    }
    order.into_iter().map(|word| word as u32).collect()
}

/// Returns the entries of cells in the given order.
pub(crate) fn in_order<'a>(
    order: impl AsRef<[u32]> + 'a,
    cells: &'a Cells,
    long_outputs: &'a LongOutputs,
) -> impl Iterator<Item = Entry<'a>> {
    // Sorted order is random order in memory: cells are prefetched by windows, so that cache misses overlap.
    const WINDOW: usize = 32;
    (0..order.as_ref().len()).map(move |index| {
        let order = order.as_ref();
        if index % WINDOW == 0 {
            let window = &order[index..order.len().min(index + WINDOW)];
            window.iter().for_each(|&at| prefetch(&cells[at]));
        }
        cells[order[index]].entry(long_outputs)
    })
}

/// The open entries of one shard, in the order of the chainstate keys.
#[derive(Debug)]
pub struct SortedShard {
    order: Vec<u32>,
    cells: Cells,
    long_outputs: LongOutputs,
}

impl SortedShard {
    /// Returns the number of coins and spends.
    pub const fn len(&self) -> usize {
        self.order.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the entry at `index` in key order.
    ///
    /// # Panics
    /// If `index` is not below [`SortedShard::len`].
    #[inline]
    pub fn entry(&self, index: usize) -> Entry<'_> {
        self.cells[self.order[index]].entry(&self.long_outputs)
    }

    /// Returns all entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        in_order(&self.order, &self.cells, &self.long_outputs)
    }
}
