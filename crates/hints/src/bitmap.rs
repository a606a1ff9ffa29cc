//! The first version of Core's pull request 34004: bitmaps after a table of their offsets.
//!
//! ```text
//! file     "UTXO" | version 0 | height u32 | height x (height u32 | offset u64)
//!          | record of height 1 .. height
//! record   outputs u32 | ceil(outputs / 8) bytes, least significant bit first, one = unspent
//! ```
//! Numbers are little-endian, offsets count from the start of the file. All outputs are counted. BIP-0456 has
//! the same version; the table distinguishes them. There is no checksum.

use super::input::{Input, InputError};
use super::{MAX_OUTPUTS, bits, thestack};

/// Length of a row of the table in bytes.
pub(super) const ROW_LEN: u64 = 12;

/// Appends the hints of the next block and returns its number of outputs.
pub(super) fn read(input: &mut Input, unspent: &mut Vec<u32>) -> Result<u32, InputError> {
    let outputs = u32::from_le_bytes(input.array()?);
    if outputs > MAX_OUTPUTS {
        return Err(input.malformed(format!("{outputs} outputs, but a block has at most {MAX_OUTPUTS}")));
    }
    thestack::read_bitmap(input, outputs, unspent)
}

/// Reads a row of the table and checks that it contains `height` and `offset`.
pub(super) fn check_row(table: &mut Input, height: u32, offset: u64) -> Result<(), InputError> {
    let stated = (u32::from_le_bytes(table.array()?), u64::from_le_bytes(table.array()?));
    if stated != (height, offset) {
        let (stated_height, stated_offset) = stated;
        return Err(table.malformed(format!(
            "the table has height {stated_height} at byte {stated_offset}, not {height} at byte {offset}"
        )));
    }
    Ok(())
}

pub(super) fn write_row(bytes: &mut Vec<u8>, height: u32, offset: u64) {
    bytes.extend(height.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
}

/// Returns the length of a block's record in bytes.
pub(super) fn record_len(outputs: u32) -> u64 {
    4 + u64::from(outputs.div_ceil(8))
}

pub(super) fn write(bytes: &mut Vec<u8>, outputs: u32, unspent: &[u32]) {
    bytes.extend(outputs.to_le_bytes());
    bits::write_ones(bytes, outputs, unspent.iter().copied());
}
