//! btcd's format: gaps between indices, compressed with gzip.
//!
//! ```text
//! gzip of    "UTXO" | version 1 | height u32 little-endian | record of height 1 .. height
//! record     CompactSize length in bytes | CompactSize first index | CompactSize gap - 1, for each next
//! ```
//! Spendable outputs are counted. gzip's CRC-32 is the only checksum in the file; btcd's source pins its
//! SHA-256.

use super::MAX_OUTPUTS;
use super::input::{Input, InputError};
use wire::read::write_compact_size;

/// The version byte after [`super::bip456::MAGIC`].
pub(super) const VERSION: u8 = 1;

/// Appends the hints of the next block.
pub(super) fn read(input: &mut Input, unspent: &mut Vec<u32>) -> Result<(), InputError> {
    // A CompactSize of an index has at most five bytes.
    let len = input.compact_size(MAX_OUTPUTS * 5, "length of the record")?;
    let end = input.position() + u64::from(len);
    let mut min_index = 0;
    while input.position() < end {
        let index = input.compact_size(MAX_OUTPUTS - 1 - min_index.min(MAX_OUTPUTS - 1), "gap")? + min_index;
        if index >= MAX_OUTPUTS {
            return Err(input.malformed(format!("index {index} is above the maximum of a block")));
        }
        min_index = index + 1;
        unspent.push(index);
    }
    if input.position() > end {
        return Err(input.malformed("a number extends beyond its record"));
    }
    Ok(())
}

/// Appends an uncompressed record.
pub(super) fn write(bytes: &mut Vec<u8>, unspent: &[u32]) {
    let mut record = Vec::with_capacity(unspent.len());
    let mut min_index = 0;
    for &index in unspent {
        write_compact_size(&mut record, (index - min_index).into());
        min_index = index + 1;
    }
    write_compact_size(bytes, record.len() as u64);
    bytes.extend(record);
}
