//! Numbered places for values, in chunks: it grows without ever moving a value, and reuses the place freed
//! last, which is the one most likely still in the processor's cache.

/// Numbered places for values of one type.
#[derive(Debug)]
pub(crate) struct Slab<T, const CHUNK: usize> {
    chunks: Vec<Vec<T>>,
    /// Places ever used; those above are not yet there.
    len: u32,
    free: Vec<u32>,
}

impl<T, const CHUNK: usize> Slab<T, CHUNK> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0, free: Vec::new() }
    }

    /// Bytes of memory it takes, without what the values own.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>()
            + self.chunks.capacity() * size_of::<Vec<T>>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Keeps a value and returns the number of its place.
    ///
    /// # Panics
    /// At 2^32 - 1 values, which is more memory than there is.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self[at] = value;
            return at;
        }
        let at = self.len;
        assert!(at < u32::MAX - 1, "a slab numbers its places with 32 bits");
        if (at as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[at as usize / CHUNK].push(value);
        self.len += 1;
        at
    }

    /// The places that the next `count` values get, as far as they have been used before.
    pub(crate) fn next_places(&self, count: usize) -> impl Iterator<Item = &T> {
        self.free.iter().rev().take(count).map(|&at| &self[at])
    }

    /// Takes the value at `at` out, leaves `blank` there and gives the place to later values.
    #[inline]
    pub(crate) fn remove(&mut self, at: u32, blank: T) -> T {
        self.free.push(at);
        std::mem::replace(&mut self[at], blank)
    }

    /// All places ever used in order of their numbers, blank ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.chunks.iter().flatten())
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
        let mut slab: Slab<u32, 4> = Slab::new();
        let places: Vec<u32> = (0..10).map(|value| slab.insert(value * 7)).collect();
        assert_eq!(places, (0..10).collect::<Vec<_>>());
        assert_eq!(slab.remove(3, 1000), 21);
        assert_eq!(slab.remove(8, 1001), 56);
        assert_eq!((slab[3], slab[8], slab[9]), (1000, 1001, 63));
        assert_eq!((slab.insert(1), slab.insert(2), slab.insert(3)), (8, 3, 10));
        assert_eq!(slab.iter().map(|(_, &v)| v).collect::<Vec<_>>(), [0, 7, 14, 2, 28, 35, 42, 49, 1, 63, 3]);
        assert!(slab.memory_bytes() >= 12 * 4);
    }
}
