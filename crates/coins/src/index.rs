//! The index of a shard: from an outpoint's keyed hash to the number of its cell, in 8 bytes a slot.
//!
//! Open addressing with linear probing. A slot holds the upper half of the hash as a tag, so that a probe
//! reads a cell only when it is almost surely the right one, and growing never reads a cell at all. The home
//! slot grows with the tag (`tag * capacity >> 32`), hence the capacity can be any number, and growing by
//! half copies the old slots in order: two sequential walks instead of random writes. Removal shifts the
//! followers back, so there are no tombstones and a table that lives through a billion coins does not decay.

use crate::slab::Chunks;
use std::sync::Arc;

/// A slot: tag in the upper 32 bits, cell number + 1 in the lower. Zero is empty.
type Slot = u64;

/// The table never holds more than 4 entries in 5 slots: above that, linear probing of absent keys gets
/// slow.
const MAX_LOAD: (usize, usize) = (4, 5);
/// Slots of a page: 8 KiB. All pages have the same size, so that those of a table that has grown do for the
/// next one that grows, and leave no holes in the allocator's memory.
const PAGE: usize = 1024;
/// Half a kilobyte a shard to begin with.
const FIRST_CAPACITY: usize = 64;
/// Slots for each entry above which a table that is filled anew is made smaller. Where half of the entries
/// have gone, there are 2.5 to 3.8.
const MAX_SLOTS_PER_ENTRY: usize = 4;

/// Pages that tables share.
pub(crate) type Pages = Chunks<Slot>;

/// Hash table of cell numbers.
#[derive(Debug)]
pub(crate) struct Index {
    pages: Vec<Vec<Slot>>,
    /// Slots; the last page may have more. A table that is smaller than a page has one of that size.
    capacity: usize,
    used: usize,
    shared: Arc<Pages>,
}

impl Index {
    /// An empty one that shares its pages with others.
    pub(crate) fn new(shared: Arc<Pages>) -> Self {
        let mut index = Self { pages: Vec::new(), capacity: 0, used: 0, shared };
        index.replace(FIRST_CAPACITY);
        index
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pages.len() * self.capacity.min(PAGE) * size_of::<Slot>()
            + self.pages.capacity() * size_of::<Vec<Slot>>()
    }

    /// Puts an empty table of `capacity` slots in the place of this one, whose pages it returns.
    fn replace(&mut self, capacity: usize) -> Vec<Vec<Slot>> {
        let page = |_| {
            let mut page = if capacity < PAGE { Vec::new() } else { self.shared.take(PAGE) };
            page.resize(capacity.min(PAGE), 0);
            page
        };
        let pages = (0..capacity.div_ceil(PAGE)).map(page).collect();
        self.capacity = capacity;
        std::mem::replace(&mut self.pages, pages)
    }

    /// Forgets all entries, and makes room for `count`. A table that is not much too large is kept, since the
    /// next entries fill it again.
    pub(crate) fn reset(&mut self, count: usize) {
        self.used = 0;
        if self.capacity <= FIRST_CAPACITY.max(count * MAX_SLOTS_PER_ENTRY) {
            self.pages.iter_mut().for_each(|page| page.fill(0));
        } else {
            self.give_back();
            self.replace(FIRST_CAPACITY.max(count * 2));
        }
    }

    fn give_back(&mut self) {
        std::mem::take(&mut self.pages).into_iter().for_each(|page| give(&self.shared, page));
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
        // The product of two numbers below 2^32, shifted: always below the capacity.
        (((slot_or_hash >> 32) * self.capacity as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.capacity { 0 } else { at + 1 }
    }

    /// Has the home slot of `hash` brought into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let at = self.home(hash);
        digest::cache::prefetch(&self.pages[at / PAGE][at % PAGE]);
    }

    /// Returns where an entry with the tag of `hash` lies that `is_it` (given the cell number) accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let mut at = self.home(hash);
        loop {
            let slot = self.slot(at);
            if slot == 0 {
                return None;
            }
            let cell = (slot as u32).wrapping_sub(1);
            if slot >> 32 == hash >> 32 && is_it(cell) {
                return Some((at, cell));
            }
            at = self.after(at);
        }
    }

    /// Adds an entry that is not there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, cell: u32) {
        if (self.used + 1) * MAX_LOAD.1 > self.capacity * MAX_LOAD.0 {
            self.grow();
        }
        self.used += 1;
        // Cell numbers stay below u32::MAX (`Slab` asserts it), so that the slot is never zero.
        self.place(hash >> 32 << 32 | u64::from(cell + 1));
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
            give(&self.shared, page);
        }
    }

    /// Removes the entry at `at`, as [`Index::find`] gave it.
    #[inline]
    pub(crate) fn remove(&mut self, at: usize) {
        let (mut hole, mut next) = (at, self.after(at));
        loop {
            let slot = self.slot(next);
            if slot == 0 {
                break;
            }
            // A follower may fill the hole only if its probing starts at or before the hole.
            if self.distance(self.home(slot), next) >= self.distance(hole, next) {
                self.set(hole, slot);
                hole = next;
            }
            next = self.after(next);
        }
        self.set(hole, 0);
        self.used -= 1;
    }

    /// Steps from one slot forward to another.
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

/// Keeps a page for another table, if it can be of use there.
fn give(shared: &Pages, page: Vec<Slot>) {
    if page.capacity() >= PAGE {
        shared.give(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Tags at both ends and in a narrow band, so that clusters form, wrap around and survive growing.
        #[test]
        fn behaves_as_a_map(ops in prop::collection::vec((any::<bool>(), 0u64..40, 0u64..3), 1..600)) {
            let mut index = Index::new(Chunks::shared());
            let mut model: HashMap<u64, u32> = HashMap::new();
            let mut next = 0;
            for (insert, low, band) in ops {
                let hash = ([0, 0x8000_0000, 0xffff_ffe0][band as usize] + (low >> 1)) << 32 | low;
                let known = model.get(&hash).copied();
                let found = index.find(hash, |cell| Some(cell) == known);
                prop_assert_eq!(found.map(|(_, cell)| cell), known);
                match found {
                    None if insert => {
                        index.insert(hash, next);
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
    fn grows_over_pages_and_is_filled_anew() {
        let shared = Chunks::shared();
        let mut index = Index::new(Arc::clone(&shared));
        let hash = |number: u32| u64::from(number.wrapping_mul(0x9e37_79b1)) << 32;
        let mut most = 0;
        for count in [20_000, 12_000, 100, 9_000u32] {
            (0..count).for_each(|number| index.insert(hash(number), number));
            for number in 0..count {
                assert_eq!(
                    index.find(hash(number), |cell| cell == number).map(|(_, cell)| cell),
                    Some(number)
                );
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
            most = most.max(index.memory_bytes());
            index.reset(count as usize / 2);
            assert_eq!(index.find(hash(1), |cell| cell == 1), None);
            assert!(index.memory_bytes() <= most);
        }
        index.reset(10);
        assert!(index.memory_bytes() < 2 * FIRST_CAPACITY * size_of::<Slot>(), "far too large, so made anew");
    }
}
