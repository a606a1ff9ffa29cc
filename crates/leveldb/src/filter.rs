//! The filter block of a table: Bloom filters that avoid reading the data block for most absent keys. Written
//! by LevelDB `FilterBlockBuilder` with `BloomFilterPolicy(10)`, Core's setting, and by `TableWriter`.
//!
//! ```text
//! filters, one after the other              one filter
//! offset of each filter, 4 bytes each          bits, 8 to a byte, lowest first
//! offset of the first offset, 4 bytes          1 byte: probes per key
//! 1 byte: log2 of the span (11)
//! ```
//! Numbers are little-endian. The n-th filter covers the user keys of the data blocks that begin in span n of
//! the file (2 KiB each); it is empty if no block begins there. A damaged filter could cost time or hide a
//! key, so the checksum of its block is verified like that of any other block.

use super::coding::Input;

/// Name of the filter in the meta index block.
pub(super) const META_KEY: &[u8] = b"filter.leveldb.BuiltinBloomFilter2";

/// Bytes of the file per filter, as a power of two.
const SPAN_LOG2: u8 = 11;
const BITS_PER_KEY: usize = 10;
/// 10 bits * ln 2, rounded down.
const PROBES: u8 = 6;
/// Maximum number of probes; greater ones are reserved in the format, and such a filter matches all keys.
const MAX_PROBES: u8 = 30;

/// LevelDB's hash of a user key for Bloom filters (like Murmur, 32 bits).
pub(super) fn bloom_hash(key: &[u8]) -> u32 {
    const SEED: u32 = 0xbc9f_1d34;
    const M: u32 = 0xc6a4_a793;
    let mut hash = SEED ^ (key.len() as u32).wrapping_mul(M);
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(M);
        hash ^= hash >> 16;
    }
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        hash = hash.wrapping_add(word).wrapping_mul(M);
        hash ^= hash >> 24;
    }
    hash
}

/// Returns the indices, below `bits`, of the bits that a key sets.
#[inline]
fn probes(hash: u32, bits: u32, count: u8) -> impl Iterator<Item = u32> {
    let step = hash.rotate_right(17);
    // Computes remainders by two multiplications: exact for all 32-bit numbers (Lemire, Kaser, Kurz 2019).
    let inverse = (u64::MAX / u64::from(bits)).wrapping_add(1);
    let remainder = move |number: u32| {
        let fraction = inverse.wrapping_mul(number.into());
        ((u128::from(fraction) * u128::from(bits)) >> 64) as u32
    };
    (0..u32::from(count)).map(move |i| remainder(hash.wrapping_add(step.wrapping_mul(i))))
}

/// Builds the filter block of one table.
#[derive(Default)]
pub(super) struct FilterWriter {
    /// Hashes of the keys for the next filter.
    hashes: Vec<u32>,
    block: Vec<u8>,
    offsets: Vec<u32>,
}

impl FilterWriter {
    /// Adds a key of the data block being written.
    pub(super) fn add(&mut self, key: &[u8]) {
        self.hashes.push(bloom_hash(key));
    }

    /// Starts the next data block, which begins at `offset`. To be called when a data block is complete.
    pub(super) fn start_block(&mut self, offset: u64) {
        while offset >> SPAN_LOG2 > self.offsets.len() as u64 {
            self.make_filter();
        }
    }

    fn make_filter(&mut self) {
        // Fits: there are 10 bits for each key of a file far below 4 GiB.
        self.offsets.push(self.block.len() as u32);
        if self.hashes.is_empty() {
            return;
        }
        let bytes = (self.hashes.len() * BITS_PER_KEY).max(64).div_ceil(8);
        let start = self.block.len();
        self.block.resize(start + bytes, 0);
        let filter = self.block.get_mut(start..).unwrap_or_default();
        for hash in self.hashes.drain(..) {
            for bit in probes(hash, bytes as u32 * 8, PROBES) {
                if let Some(byte) = filter.get_mut(bit as usize / 8) {
                    *byte |= 1 << (bit % 8);
                }
            }
        }
        self.block.push(PROBES);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if !self.hashes.is_empty() {
            self.make_filter();
        }
        let offsets_start = self.block.len() as u32;
        for offset in self.offsets.into_iter().chain([offsets_start]) {
            self.block.extend_from_slice(&offset.to_le_bytes());
        }
        self.block.push(SPAN_LOG2);
        self.block
    }
}

/// Whether the data block at `block_offset` can contain the key with this [`bloom_hash`]. A malformed filter
/// matches all keys, as in LevelDB.
pub(super) fn may_contain(block: &[u8], block_offset: u64, hash: u32) -> bool {
    find_filter(block, block_offset).is_none_or(|filter| match filter.split_last() {
        Some((&probe_count, bits)) if !bits.is_empty() => {
            let set = |bit: u32| bits.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
            let bit_count = u32::try_from(bits.len() * 8).unwrap_or(u32::MAX);
            probe_count > MAX_PROBES || probes(hash, bit_count, probe_count).all(set)
        }
        _ => false,
    })
}

fn find_filter(block: &[u8], block_offset: u64) -> Option<&[u8]> {
    let (&span, rest) = block.split_last()?;
    let (_, last_word) = rest.split_last_chunk()?;
    let offsets = rest.get(u32::from_le_bytes(*last_word) as usize..)?;
    let index = usize::try_from(block_offset.checked_shr(span.into())?).ok()?;
    let mut ends = Input(offsets.get(index.checked_mul(4)?..)?);
    let (start, end) = (ends.u32()? as usize, ends.u32()? as usize);
    rest.get(..rest.len() - offsets.len())?.get(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bloom_hashes_equal_leveldbs() {
        // LevelDB util/hash_test.cc has these inputs with this seed.
        for (key, want) in [
            (&[][..], 0xbc9f_1d34),
            (&[0x62], 0xef13_45c4),
            (&[0xc3, 0x97], 0x5b66_3814),
            (&[0xe2, 0x99, 0xa5], 0x323c_078f),
            (&[0xe1, 0x80, 0xb9, 0x32], 0xed21_633a),
        ] {
            assert_eq!(bloom_hash(key), want, "{key:02x?}");
        }
    }

    #[test]
    fn probes_equal_the_remainders_of_division() {
        let mut hash = 1u32;
        for bits in (1..3000).chain([1 << 20, u32::MAX - 1, u32::MAX]) {
            hash = hash.wrapping_mul(0x915f_77f5).wrapping_add(1);
            for hash in [0, hash, u32::MAX, bits - 1, bits, bits.wrapping_mul(7).wrapping_sub(1)] {
                let step = hash.rotate_right(17);
                let expected = (0..6u32).map(|i| hash.wrapping_add(step.wrapping_mul(i)) % bits);
                assert!(probes(hash, bits, 6).eq(expected), "{hash} among {bits}");
            }
        }
    }

    #[test]
    fn all_added_keys_match_and_few_others() {
        let mut writer = FilterWriter::default();
        let key = |n: u32| n.to_be_bytes();
        (0..500).for_each(|n| writer.add(&key(n)));
        writer.start_block(40_000); // the next block begins 19 spans later: 18 of them have no filter
        (500..1000).for_each(|n| writer.add(&key(n)));
        let block = writer.finish();
        assert!((0..500).all(|n| may_contain(&block, 0, bloom_hash(&key(n)))));
        assert!((500..1000).all(|n| may_contain(&block, 40_000, bloom_hash(&key(n)))));
        let wrong = (1000..11_000).filter(|&n| may_contain(&block, 0, bloom_hash(&key(n)))).count();
        assert!(wrong < 200, "{wrong} of 10000 absent keys match; 10 bits should give about 1 %");
        assert!(!may_contain(&block, 4096, bloom_hash(&key(1))), "a span without blocks has no key");
    }

    #[test]
    fn malformed_filters_match_all_keys() {
        for block in [&[][..], &[11], &[0, 0, 0, 0, 255], &[0xff, 0xff, 0xff, 0xff, 11]] {
            assert!(may_contain(block, 0, 7) && may_contain(block, u64::MAX, 7), "{block:?}");
        }
    }
}
