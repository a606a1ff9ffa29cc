//! A slab: values at numbered places, allocated in chunks. It grows without moving values, and reuses the
//! place freed last, which is most likely still in the processor's cache.
//!
//! Slabs of one owner can share their chunks ([`Chunks`]): the chunks that one releases are used by the next.
//! The allocator alone does not achieve that. It has an arena for each thread, and memory returns to the
//! arena that it came from: if threads take turns at filling and emptying slabs, each arena grows to the most
//! that its thread ever held, and all together to nearly twice the memory in use.

use std::sync::{Arc, Mutex, PoisonError};

/// A pool of empty chunks.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    /// `None` if the pool is closed, so that returned chunks are freed.
    pooled: Mutex<Option<Vec<Vec<T>>>>,
}

impl<T> Chunks<T> {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::new(Self { pooled: Mutex::new(Some(Vec::new())) })
    }

    /// Returns a chunk from the pool, or a new one.
    pub(crate) fn take(&self, len: usize) -> Vec<T> {
        let mut pooled = self.pooled.lock().unwrap_or_else(PoisonError::into_inner);
        pooled.as_mut().and_then(Vec::pop).unwrap_or_else(|| Vec::with_capacity(len))
    }

    pub(crate) fn give(&self, mut chunk: Vec<T>) {
        chunk.clear();
        if let Some(pooled) = &mut *self.pooled.lock().unwrap_or_else(PoisonError::into_inner) {
            pooled.push(chunk);
        }
    }

    /// Frees all chunks in the pool, and from now on those that are returned.
    pub(crate) fn close(&self) {
        *self.pooled.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Values of one type at numbered places.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T, const CHUNK: usize> {
    chunks: Vec<Vec<T>>,
    /// Number of places ever used.
    len: u32,
    free: Vec<u32>,
    /// The pool of chunks; `None` to use the allocator.
    shared: Option<Arc<Chunks<T>>>,
}

impl<T, const CHUNK: usize> Slab<T, CHUNK> {
    /// Creates an empty slab, which may share chunks with others.
    pub(crate) const fn new(shared: Option<Arc<Chunks<T>>>) -> Self {
        Self { chunks: Vec::new(), len: 0, free: Vec::new(), shared }
    }

    /// Creates an empty slab that uses the same pool as this one.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.shared.clone())
    }

    /// Returns the memory in bytes, without memory that the values own.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>()
            + self.chunks.capacity() * size_of::<Vec<T>>()
            + self.free.capacity() * size_of::<u32>()
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Returns the memory of the values in use, in bytes, without memory that they own. Places that are free
    /// are for the next values, except for the list of them.
    pub(crate) fn used_bytes(&self) -> usize {
        (self.len as usize - self.free.len()) * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }

    /// Stores a value and returns the number of its place.
    ///
    /// # Panics
    /// At 2^32 - 1 values.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self[at] = value;
            return at;
        }
        let at = self.len;
        assert!(at < u32::MAX - 1, "a slab numbers its places with 32 bits");
        if (at as usize).is_multiple_of(CHUNK) {
            let chunk = self.shared.as_ref().map(|shared| shared.take(CHUNK));
            self.chunks.push(chunk.unwrap_or_else(|| Vec::with_capacity(CHUNK)));
        }
        self.chunks[at as usize / CHUNK].push(value);
        self.len += 1;
        at
    }

    /// Returns the places of the next `count` values, except those that have never been used.
    pub(crate) fn next_places(&self, count: usize) -> impl Iterator<Item = &T> {
        self.free.iter().rev().take(count).map(|&at| &self[at])
    }

    /// Replaces the value at `at` by `blank`, returns it, and frees the place for later values.
    #[inline]
    pub(crate) fn remove(&mut self, at: u32, blank: T) -> T {
        self.free.push(at);
        std::mem::replace(&mut self[at], blank)
    }

    /// Calls `each` for all places ever used, including blank ones, and returns each chunk to the pool as
    /// soon as it has been read.
    pub(crate) fn drain(mut self, mut each: impl FnMut(&T)) {
        for chunk in std::mem::take(&mut self.chunks) {
            chunk.iter().for_each(&mut each);
            self.give(chunk);
        }
    }

    fn give(&self, chunk: Vec<T>) {
        if let Some(shared) = &self.shared {
            shared.give(chunk);
        }
    }

    /// Returns all places ever used in the order of their numbers, including blank ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.chunks.iter().flatten())
    }
}

impl<T, const CHUNK: usize> Drop for Slab<T, CHUNK> {
    fn drop(&mut self) {
        for chunk in std::mem::take(&mut self.chunks) {
            self.give(chunk);
        }
    }
}

impl<T, const CHUNK: usize> std::ops::Index<u32> for Slab<T, CHUNK> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

impl<T, const CHUNK: usize> std::ops::IndexMut<u32> for Slab<T, CHUNK> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_stable_and_reused_last_first() {
        let mut slab: Slab<u32, 4> = Slab::new(None);
        let places: Vec<u32> = (0..10).map(|value| slab.insert(value * 7)).collect();
        assert_eq!(places, (0..10).collect::<Vec<_>>());
        assert_eq!(slab.remove(3, 1000), 21);
        assert_eq!(slab.remove(8, 1001), 56);
        assert_eq!((slab[3], slab[8], slab[9]), (1000, 1001, 63));
        assert_eq!((slab.insert(1), slab.insert(2), slab.insert(3)), (8, 3, 10));
        assert_eq!(slab.iter().map(|(_, &v)| v).collect::<Vec<_>>(), [0, 7, 14, 2, 28, 35, 42, 49, 1, 63, 3]);
        assert!(slab.memory_bytes() >= 12 * 4);
    }

    #[test]
    fn chunks_are_reused_until_the_pool_is_closed() {
        let chunks = Chunks::shared();
        let pooled = || chunks.pooled.lock().unwrap().as_ref().map(Vec::len);
        let mut slab: Slab<u32, 4> = Slab::new(Some(Arc::clone(&chunks)));
        (0..10).for_each(|value| assert_eq!(slab.insert(value), value));
        let mut other = slab.another();
        let (mut seen, mut pooled_counts) = (Vec::new(), Vec::new());
        slab.drain(|&value| {
            seen.push(value);
            other.insert(value);
            pooled_counts.push(pooled().unwrap());
        });
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(other.iter().map(|(_, &v)| v).collect::<Vec<_>>(), seen);
        assert_eq!(pooled_counts, [0; 10], "the first chunk is reused as the second slab's");
        assert_eq!(pooled(), Some(1));
        drop(other);
        assert_eq!(pooled(), Some(4));
        chunks.close();
        let mut last: Slab<u32, 4> = Slab::new(Some(Arc::clone(&chunks)));
        last.insert(1);
        drop(last);
        assert_eq!(pooled(), None);
    }
}
