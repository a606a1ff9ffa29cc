//! The index of a shard: a hash table from an outpoint's keyed hash to the number of its cell, 8 bytes per
//! slot.
//!
//! It uses open addressing with linear probing. A slot holds the upper half of the hash as a tag, so that a
//! probe reads a cell only if it is almost certainly the right one, and growing never reads a cell at all.
//! The home slot is monotonic in the tag (`tag * capacity >> 32`), so the capacity can be any number, and
//! growing by half copies the old slots in order: two sequential passes instead of random writes. Removal
//! shifts the following slots back, so there are no tombstones, and a table through which a billion coins
//! have passed is as fast as a new one.

use crate::slab::Chunks;
use std::sync::Arc;

/// A slot: tag in the upper 32 bits, cell number + 1 in the lower. Zero is empty.
type Slot = u64;

/// The maximum load is 4 entries per 5 slots: above that, linear probing for absent keys becomes slow.
const MAX_LOAD: (usize, usize) = (4, 5);
/// Number of slots in a page of 8 KiB. All pages have the same size, so that the pages of a table that has
/// grown can be reused by the next one that grows, and leave no holes in the allocator's memory.
const PAGE: usize = 1024;
/// Initial number of slots: half a kilobyte per shard.
const FIRST_CAPACITY: usize = 64;
/// Number of slots per entry above which a table is replaced by a smaller one when it is reset. After half of
/// the entries have been removed, there are 2.5 to 3.8.
const MAX_SLOTS_PER_ENTRY: usize = 4;

/// A pool of pages that tables share.
pub(crate) type Pages = Chunks<Slot>;

/// Hash table of cell numbers.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pages: Vec<Vec<Slot>>,
    /// Number of slots; the last page may have more. A table smaller than a page has one page of its size.
    capacity: usize,
    used: usize,
    /// The pool of pages; `None` to use the allocator.
    shared: Option<Arc<Pages>>,
}

impl Index {
    /// Creates an empty index, which may share its pages with others.
    pub(crate) fn new(shared: Option<Arc<Pages>>) -> Self {
        let mut index = Self { pages: Vec::new(), capacity: 0, used: 0, shared };
        index.replace(FIRST_CAPACITY);
        index
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.pages.len() * self.capacity.min(PAGE) * size_of::<Slot>()
            + self.pages.capacity() * size_of::<Vec<Slot>>()
    }

    /// Replaces the table by an empty one of `capacity` slots and returns the old pages.
    fn replace(&mut self, capacity: usize) -> Vec<Vec<Slot>> {
        let page = |_| {
            let shared = self.shared.as_ref().filter(|_| capacity >= PAGE);
            let mut page = shared.map_or_else(Vec::new, |shared| shared.take(PAGE));
            page.resize(capacity.min(PAGE), 0);
            page
        };
        let pages = (0..capacity.div_ceil(PAGE)).map(page).collect();
        self.capacity = capacity;
        std::mem::replace(&mut self.pages, pages)
    }

    /// Removes all entries and prepares for `count` new ones. A table that is not much too large is kept,
    /// since further entries will fill it again.
    pub(crate) fn reset(&mut self, count: usize) {
        if self.capacity <= FIRST_CAPACITY.max(count * MAX_SLOTS_PER_ENTRY) {
            self.clear();
        } else {
            self.used = 0;
            self.give_back();
            self.replace(FIRST_CAPACITY.max(count * 2));
        }
    }

    /// Removes all entries, and keeps the table.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.pages.iter_mut().for_each(|page| page.fill(0));
    }

    fn give_back(&mut self) {
        std::mem::take(&mut self.pages).into_iter().for_each(|page| self.give(page));
    }

    /// Returns a page to the pool, if it has the size that other tables use.
    fn give(&self, page: Vec<Slot>) {
        if page.capacity() >= PAGE
            && let Some(shared) = &self.shared
        {
            shared.give(page);
        }
    }

    #[inline]
    fn slot(&self, at: usize) -> Slot {
        self.pages[at / PAGE][at % PAGE]
    }

    #[inline]
    fn set(&mut self, at: usize, slot: Slot) {
        self.pages[at / PAGE][at % PAGE] = slot;
    }

    #[inline]
    fn home(&self, slot_or_hash: u64) -> usize {
        // The tag is below 2^32, so the result is always below the capacity.
        (((slot_or_hash >> 32) * self.capacity as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.capacity { 0 } else { at + 1 }
    }

    /// Prefetches the home slot of `hash`.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let at = self.home(hash);
        digest::cache::prefetch(&self.pages[at / PAGE][at % PAGE]);
    }

    /// Returns the slot and cell number of the entry with the tag of `hash` whose cell number `is_it`
    /// accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        self.probe(hash, is_it).ok()
    }

    /// Like [`Index::find`]; without such an entry, returns the slot for a new one ([`Index::fill`]).
    #[inline]
    pub(crate) fn find_or_reserve(
        &mut self,
        hash: u64,
        is_it: impl FnMut(u32) -> bool,
    ) -> Result<(usize, u32), usize> {
        self.make_room();
        self.probe(hash, is_it)
    }

    #[inline]
    fn probe(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Result<(usize, u32), usize> {
        let mut at = self.home(hash);
        loop {
            let slot = self.slot(at);
            if slot == 0 {
                return Err(at);
            }
            let cell = (slot as u32).wrapping_sub(1);
            if slot >> 32 == hash >> 32 && is_it(cell) {
                return Ok((at, cell));
            }
            at = self.after(at);
        }
    }

    /// Adds an entry, which must not exist yet.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, cell: u32) {
        self.make_room();
        self.used += 1;
        self.place(slot_of(hash, cell));
    }

    /// Adds an entry at the slot that [`Index::find_or_reserve`] has just returned for `hash`.
    #[inline]
    pub(crate) fn fill(&mut self, at: usize, hash: u64, cell: u32) {
        self.used += 1;
        self.set(at, slot_of(hash, cell));
    }

    #[inline]
    fn make_room(&mut self) {
        if (self.used + 1) * MAX_LOAD.1 > self.capacity * MAX_LOAD.0 {
            self.grow();
        }
    }

    #[inline]
    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot);
        while self.slot(at) != 0 {
            at = self.after(at);
        }
        self.set(at, slot);
    }

    #[cold]
    fn grow(&mut self) {
        for page in self.replace(self.capacity + self.capacity / 2) {
            page.iter().filter(|&&slot| slot != 0).for_each(|&slot| self.place(slot));
            self.give(page);
        }
    }

    /// Removes the entry in slot `at`, which [`Index::find`] has returned.
    #[inline]
    pub(crate) fn remove(&mut self, at: usize) {
        let (mut hole, mut next) = (at, self.after(at));
        loop {
            let slot = self.slot(next);
            if slot == 0 {
                break;
            }
            // A following entry may fill the hole only if its probe sequence starts at or before the hole.
            if self.distance(self.home(slot), next) >= self.distance(hole, next) {
                self.set(hole, slot);
                hole = next;
            }
            next = self.after(next);
        }
        self.set(hole, 0);
        self.used -= 1;
    }

    /// Returns the number of steps forward from one slot to another.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.capacity - from }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Cell numbers are below `u32::MAX` (`Slab` asserts it), so a slot in use is never zero.
#[inline]
fn slot_of(hash: u64, cell: u32) -> Slot {
    hash >> 32 << 32 | u64::from(cell + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Uses tags at both ends and in a narrow band, so that clusters form, wrap around and are kept when
        /// the table grows.
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..3), 1..600)) {
            let mut index = Index::new(Some(Chunks::shared()));
            let mut model: HashMap<u64, u32> = HashMap::new();
            let mut next = 0;
            for (insert, low, band) in ops {
                let hash = ([0, 0x8000_0000, 0xffff_ffe0][band as usize] + (low >> 1)) << 32 | low;
                let known = model.get(&hash).copied();
                let found = index.find(hash, |cell| Some(cell) == known);
                prop_assert_eq!(found.map(|(_, cell)| cell), known);
                match found {
                    None if insert => {
                        if low % 2 == 0 {
                            index.insert(hash, next);
                        } else {
                            let at = index.find_or_reserve(hash, |cell| Some(cell) == known).unwrap_err();
                            index.fill(at, hash, next);
                        }
                        model.insert(hash, next);
                        next += 1;
                    }
                    Some((at, _)) if !insert => {
                        index.remove(at);
                        model.remove(&hash);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.used, model.len());
            }
            for (&hash, &cell) in &model {
                prop_assert!(index.find(hash, |c| c == cell).is_some());
            }
        }
    }

    #[test]
    fn grows_over_pages_and_can_be_reset() {
        let mut index = Index::new(Some(Chunks::shared()));
        let hash = |number: u32| u64::from(number.wrapping_mul(0x9e37_79b1)) << 32;
        let mut max_bytes = 0;
        for count in [20_000, 12_000, 100, 9_000u32] {
            (0..count).for_each(|number| index.insert(hash(number), number));
            for number in 0..count {
                let found = index.find(hash(number), |cell| cell == number);
                assert_eq!(found.map(|(_, cell)| cell), Some(number));
            }
            assert_eq!(index.find(hash(count), |cell| cell == count), None);
            (0..count).step_by(2).for_each(|number| {
                let (at, _) = index.find(hash(number), |cell| cell == number).unwrap();
                index.remove(at);
            });
            assert_eq!(index.used, count as usize / 2);
            assert!((0..count).all(|number| {
                index.find(hash(number), |cell| cell == number).is_some() == (number % 2 == 1)
            }));
            max_bytes = max_bytes.max(index.memory_bytes());
            index.reset(count as usize / 2);
            assert_eq!(index.find(hash(1), |cell| cell == 1), None);
            assert!(index.memory_bytes() <= max_bytes);
        }
        index.reset(10);
        let most = 2 * FIRST_CAPACITY * size_of::<Slot>();
        assert!(index.memory_bytes() < most, "it was far too large, so it was replaced");
    }
}
