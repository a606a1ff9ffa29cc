//! A sorted list of many block hashes that maps a hash to its number, with 32 bytes per hash instead of the
//! 50 or more of a map.

use wire::BlockHash;

/// Number of buckets: hashes are distributed by their first 16 bits, so that a look-up searches few of a
/// million. (The zeros that proof of work requires are at the other end.)
const BUCKETS: usize = 1 << 16;

/// Sorted hashes; a hash may occur more than once.
pub struct HashList {
    hashes: Vec<BlockHash>,
    /// Number of the first hash of each bucket, and the number of hashes.
    starts: Vec<u32>,
}

impl HashList {
    /// Takes hashes in byte order.
    ///
    /// # Panics
    /// If they are in another order, or more than 2^32 - 1.
    pub fn new(hashes: Vec<BlockHash>) -> Self {
        assert!(hashes.is_sorted() && u32::try_from(hashes.len()).is_ok(), "hashes in order, not too many");
        let mut starts = vec![0; BUCKETS + 1];
        for hash in &hashes {
            starts[bucket(hash) + 1] += 1;
        }
        for bucket in 0..BUCKETS {
            starts[bucket + 1] += starts[bucket];
        }
        Self { hashes, starts }
    }

    /// Returns the number of a hash; the number of the first one if it occurs more than once.
    pub fn find(&self, hash: &BlockHash) -> Option<u32> {
        let bucket = bucket(hash);
        let (start, end) = (self.starts[bucket], self.starts[bucket + 1]);
        let candidates = &self.hashes[start as usize..end as usize];
        let at = candidates.partition_point(|other| other < hash);
        (candidates.get(at) == Some(hash)).then(|| start + at as u32)
    }

    /// Returns the hash with this number.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn get(&self, number: u32) -> &BlockHash {
        &self.hashes[number as usize]
    }

    /// Reports whether the previous hash is equal.
    ///
    /// # Panics
    /// The same as [`HashList::get`].
    pub fn is_repeated(&self, number: u32) -> bool {
        number > 0 && self.get(number) == self.get(number - 1)
    }
}

fn bucket(hash: &BlockHash) -> usize {
    usize::from(u16::from_be_bytes([hash.0[0], hash.0[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_each_hash_and_no_other() {
        let hash = |first: u8, second: u8, last: u8| {
            let mut hash = BlockHash([7; 32]);
            (hash.0[0], hash.0[1], hash.0[31]) = (first, second, last);
            hash
        };
        let some = [hash(0, 0, 0), hash(0, 0, 9), hash(0, 0, 9), hash(1, 0, 3), hash(0xff, 0xff, 0xff)];
        let list = HashList::new(some.to_vec());
        let found = [Some(0), Some(1), Some(1), Some(3), Some(4)];
        assert_eq!(some.each_ref().map(|hash| list.find(hash)), found);
        let repeated = [0, 1, 2, 3, 4].map(|number| list.is_repeated(number));
        assert_eq!(repeated, [false, false, true, false, false]);
        assert_eq!(list.get(3), &some[3]);
        for absent in [hash(0, 0, 8), hash(0, 0, 10), hash(0, 1, 0), hash(0xff, 0xff, 0xfe)] {
            assert_eq!(list.find(&absent), None);
        }
        assert_eq!(HashList::new(Vec::new()).find(&some[0]), None);
    }
}
