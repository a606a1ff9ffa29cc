//! The index of a shard: from an outpoint's keyed hash to the number of its cell, in 8 bytes a slot.
//!
//! Open addressing with linear probing. A slot holds the upper half of the hash as a tag, so that a probe
//! reads a cell only when it is almost surely the right one, and growing never reads a cell at all. The home
//! slot grows with the tag (`tag * capacity >> 32`), hence the capacity can be any number, and growing by
//! half copies the old slots in order: two sequential walks instead of random writes. Removal shifts the
//! followers back, so there are no tombstones and a table that lives through a billion coins does not decay.

/// A slot: tag in the upper 32 bits, cell number + 1 in the lower. Zero is empty.
type Slot = u64;

/// The table never holds more than 4 entries in 5 slots: above that, linear probing of absent keys gets
/// slow.
const MAX_LOAD: (usize, usize) = (4, 5);
/// Half a kilobyte a shard to begin with.
const FIRST_CAPACITY: usize = 64;

/// Hash table of cell numbers.
#[derive(Debug)]
pub(crate) struct Index {
    slots: Vec<Slot>,
    used: usize,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { slots: vec![0; FIRST_CAPACITY], used: 0 }
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    fn home(&self, slot_or_hash: u64) -> usize {
        // The product of two numbers below 2^32, shifted: always below the capacity.
        (((slot_or_hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// Has the home slot of `hash` brought into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        digest::cache::prefetch(&self.slots[self.home(hash)]);
    }

    /// Returns where an entry with the tag of `hash` lies that `is_it` (given the cell number) accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
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
        if (self.used + 1) * MAX_LOAD.1 > self.slots.len() * MAX_LOAD.0 {
            self.grow();
        }
        self.used += 1;
        // Cell numbers stay below u32::MAX (`Slab` asserts it), so that the slot is never zero.
        self.place(hash >> 32 << 32 | u64::from(cell + 1));
    }

    #[inline]
    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = slot;
    }

    #[cold]
    fn grow(&mut self) {
        let capacity = self.slots.len() + self.slots.len() / 2;
        let old = std::mem::replace(&mut self.slots, vec![0; capacity]);
        for slot in old.into_iter().filter(|&slot| slot != 0) {
            self.place(slot);
        }
    }

    /// Removes the entry at `at`, as [`Index::find`] gave it.
    #[inline]
    pub(crate) fn remove(&mut self, at: usize) {
        let (mut hole, mut next) = (at, self.after(at));
        loop {
            let slot = self.slots[next];
            if slot == 0 {
                break;
            }
            // A follower may fill the hole only if its probing starts at or before the hole.
            if self.distance(self.home(slot), next) >= self.distance(hole, next) {
                self.slots[hole] = slot;
                hole = next;
            }
            next = self.after(next);
        }
        self.slots[hole] = 0;
        self.used -= 1;
    }

    /// Steps from one slot forward to another.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
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
            let mut index = Index::new();
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
}
