//! The basic filters of blocks (BIP 158), and the rows and files of `blockfilterindex`.
//!
//! ```text
//! db      't' | height 4, big-endian -> block hash 32 | filter hash 32 | filter header 32 | file, position
//!         's' | block hash 32        -> filter hash 32 | filter header 32 | file, position  removed blocks
//!         'P'                        -> file, position      of the next filter
//! fltrNNNNN.dat                      block hash 32 | CompactSize | filter, one after the other
//! ```
//! File and position are VARINTs. A filter that would end above 16 MiB begins the next file. The filter
//! header is a hash of the filter hash and the header before it. Source: Core `index/blockfilterindex.cpp`,
//! `blockfilter.cpp`.

use crate::rows::Row;
use digest::{sha256::sha256d, siphash::siphash24};
use wire::{
    BlockHash, Reader,
    read::{compact_size_len, write_compact_size, write_var_int},
};

/// Maximum length of a file with filters (Core `MAX_FLTR_FILE_SIZE`).
pub const MAX_FILE_LEN: u32 = 16 << 20;
/// Key of the place of the next filter.
pub const NEXT_PLACE: &[u8] = b"P";

/// BIP 158: number of bits of a remainder.
const P: u32 = 19;
/// BIP 158: the inverse of the rate of false matches.
const M: u64 = 784_931;

/// First byte of the output scripts that are left out.
const OP_RETURN: u8 = 0x6a;

/// Collects the scripts of a block for its filter.
#[derive(Default)]
pub struct FilterBuilder<'a> {
    scripts: Vec<&'a [u8]>,
}

impl<'a> FilterBuilder<'a> {
    /// Adds the script of an output that the block creates.
    pub fn add_output(&mut self, script: &'a [u8]) {
        if script.first() != Some(&OP_RETURN) {
            self.add_spent(script);
        }
    }

    /// Adds the script of a coin that the block spends.
    pub fn add_spent(&mut self, script: &'a [u8]) {
        if !script.is_empty() {
            self.scripts.push(script);
        }
    }

    /// Returns the encoded filter. `block` is the hash of its block.
    pub fn encode(self, block: &BlockHash) -> Vec<u8> {
        let (words, _) = block.0.as_chunks::<8>();
        let [k0, k1] = [words[0], words[1]].map(u64::from_le_bytes);
        let hash = |script: &'a [u8]| (siphash24(k0, k1, script), script);
        let mut elements: Vec<(u64, &[u8])> = self.scripts.into_iter().map(hash).collect();
        elements.sort_unstable();
        elements.dedup();
        let range = elements.len() as u64 * M;
        let mut encoded = Vec::with_capacity(elements.len() * (P as usize + 2) / 8 + 16);
        write_compact_size(&mut encoded, elements.len() as u64);
        let mut bits = BitWriter { out: encoded, pending: 0, count: 0 };
        let mut last = 0;
        for (hash, _) in elements {
            // The hash is mapped to the range by a multiplication, which keeps the order.
            let value = ((u128::from(hash) * u128::from(range)) >> 64) as u64;
            let delta = value - last;
            last = value;
            (0..delta >> P).for_each(|_| bits.write(1, 1));
            bits.write(0, 1);
            bits.write(delta & ((1 << P) - 1), P);
        }
        bits.finish()
    }
}

/// Writes bits, the most significant of each byte first.
struct BitWriter {
    out: Vec<u8>,
    /// The bits of the byte that is not complete, in its low bits.
    pending: u64,
    count: u32,
}

impl BitWriter {
    /// Appends the `count` low bits of `bits`, at most 56.
    fn write(&mut self, bits: u64, count: u32) {
        self.pending = self.pending << count | bits;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            self.out.push((self.pending >> self.count) as u8);
        }
        self.pending &= (1 << self.count) - 1;
    }

    /// Fills the last byte with zeros.
    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.write(0, 8 - self.count);
        }
        self.out
    }
}

/// A place in the files with filters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FilterPlace {
    pub file: u32,
    /// Position in the file.
    pub pos: u32,
}

impl FilterPlace {
    /// Appends Core's `FlatFilePos`.
    pub fn write(self, out: &mut Vec<u8>) {
        write_var_int(out, self.file.into());
        write_var_int(out, self.pos.into());
    }

    /// Returns the row that says that the next filter goes to this place.
    pub fn to_row(self) -> Row {
        let mut value = Vec::new();
        self.write(&mut value);
        (NEXT_PLACE.to_vec(), value)
    }

    /// Reads the value of the row of a block. Returns `None` if it is malformed.
    pub fn of_row(value: &[u8]) -> Option<(BlockHash, FilterHashes, Self)> {
        let mut reader = Reader::new(value);
        let block = BlockHash(reader.array().ok()?);
        let hashes = FilterHashes { hash: reader.array().ok()?, header: reader.array().ok()? };
        let (place, rest) = Self::read(value.get(reader.position()..)?)?;
        rest.is_empty().then_some((block, hashes, place))
    }

    /// Reads a place, and returns it with the bytes that follow. Returns `None` if it is malformed.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader::new(bytes);
        let (file, pos) = (reader.var_int().ok()?, reader.var_int().ok()?);
        let rest = bytes.get(reader.position()..)?;
        // Core keeps the number of a file as a signed one.
        let file = i32::try_from(file).ok()?.cast_unsigned();
        Some((Self { file, pos: u32::try_from(pos).ok()? }, rest))
    }

    /// Returns the place after a filter that is here, with `len` bytes when it is encoded. The place may be
    /// that of a damaged row.
    pub fn after(self, len: usize) -> Self {
        let framed = u32::try_from(32 + compact_size_len(len) + len).unwrap_or(u32::MAX);
        Self { pos: self.pos.saturating_add(framed), ..self }
    }

    /// Returns where `len` bytes go if this is the place of the next filter: here, or to the next file.
    pub const fn of_next(self, len: u32) -> Self {
        match self.pos.saturating_add(len) > MAX_FILE_LEN {
            true => Self { file: self.file + 1, pos: 0 },
            false => self,
        }
    }
}

/// Returns a filter as it is in a file, with the block hash and the length.
pub fn framed(block: &BlockHash, filter: &[u8]) -> Vec<u8> {
    let mut framed = block.0.to_vec();
    write_compact_size(&mut framed, filter.len() as u64);
    framed.extend_from_slice(filter);
    framed
}

/// The hashes in the row of a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterHashes {
    pub hash: [u8; 32],
    /// The filter header, which commits to all filters up to this one.
    pub header: [u8; 32],
}

impl FilterHashes {
    /// Returns the hashes of a filter. The header of the filter below is `before`; below genesis, it is
    /// zeros.
    pub fn of(filter: &[u8], before: &[u8; 32]) -> Self {
        let hash = sha256d(filter);
        Self { hash, header: sha256d(&[hash, *before].concat()) }
    }
}

pub fn row_value(block: &BlockHash, hashes: &FilterHashes, place: FilterPlace) -> Vec<u8> {
    let mut value = [block.0, hashes.hash, hashes.header].concat();
    place.write(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place in a damaged row can be any that Core can read.
    #[test]
    fn nothing_overflows_after_a_damaged_place() {
        let place = |file: u64, pos: u64| {
            let mut row = Vec::new();
            write_var_int(&mut row, file);
            write_var_int(&mut row, pos);
            FilterPlace::read(&row).map(|(place, _)| place)
        };
        let [last_file, last_pos] = [i32::MAX as u32, u32::MAX];
        let damaged = place(last_file.into(), u64::from(last_pos) - 40).unwrap();
        assert_eq!(damaged.after(7), FilterPlace { pos: last_pos, ..damaged });
        assert_eq!(damaged.after(usize::MAX / 2), FilterPlace { pos: last_pos, ..damaged });
        assert_eq!(damaged.of_next(1), FilterPlace { file: last_file + 1, pos: 0 });
        assert_eq!([place(1 << 31, 0), place(0, 1 << 32)], [None, None]);
        let place = FilterPlace { file: 3, pos: 100 };
        assert_eq!(place.after(7), FilterPlace { file: 3, pos: 100 + 32 + 1 + 7 });
        assert_eq!(place.of_next(MAX_FILE_LEN), FilterPlace { file: 4, pos: 0 });
    }
}
