//! The format of 2140-dev/swiftsync of August 2025: lists of indices.
//!
//! ```text
//! file     hash of the last block 32 (internal order; an older version has none) | record of height 1, 2, ..
//! record   CompactSize count | count x CompactSize index, ascending
//! ```
//! All outputs are counted. There is no magic, no length and no checksum.

use super::MAX_OUTPUTS;
use super::input::{Input, InputError};
use wire::read::write_compact_size;

/// Appends the hints of the next block.
pub(super) fn read(input: &mut Input, unspent: &mut Vec<u32>) -> Result<(), InputError> {
    let count = input.compact_size(MAX_OUTPUTS, "number of hints")?;
    let mut min_index = 0;
    for _ in 0..count {
        let index = input.compact_size(MAX_OUTPUTS - 1, "index of an output")?;
        if index < min_index {
            return Err(input.malformed(format!("index {index} is not in ascending order")));
        }
        min_index = index + 1;
        unspent.push(index);
    }
    Ok(())
}

pub(super) fn write(bytes: &mut Vec<u8>, unspent: &[u32]) {
    write_compact_size(bytes, unspent.len() as u64);
    unspent.iter().for_each(|&index| write_compact_size(bytes, index.into()));
}
