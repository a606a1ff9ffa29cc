//! The first form of Core's pull request 34004: bitmaps behind a table of where they are.
//!
//! ```text
//! file     "UTXO" | version 0 | height u32 | height x (height u32 | offset u64)
//!          | record of height 1 .. height
//! record   outputs u32 | ceil(outputs / 8) bytes, least significant bit first, one = unspent
//! ```
//! Numbers are little-endian, offsets count from the start of the file. All outputs are counted. The version
//! is BIP-0456's too; the table tells them apart. No checksum.

use super::input::{Flaw, Input};
use super::{MAX_OUTPUTS, bits, thestack};

/// Bytes of a row of the table.
pub(super) const ROW_LEN: u64 = 12;

/// Appends the hints of the next block and returns its outputs.
pub(super) fn read(input: &mut Input, unspent: &mut Vec<u32>) -> Result<u32, Flaw> {
    let outputs = u32::from_le_bytes(input.array()?);
    if outputs > MAX_OUTPUTS {
        return Err(input.wrong(format!("{outputs} outputs, a block can have {MAX_OUTPUTS}")));
    }
    thestack::read_bitmap(input, outputs, unspent)
}

/// Reads a row of the table, which must say that the record of `height` is at `offset`.
pub(super) fn check_row(table: &mut Input, height: u32, offset: u64) -> Result<(), Flaw> {
    let said = (u32::from_le_bytes(table.array()?), u64::from_le_bytes(table.array()?));
    if said != (height, offset) {
        let (said_height, said_offset) = said;
        return Err(table.wrong(format!(
            "the table has height {said_height} at byte {said_offset}, not {height} at byte {offset}"
        )));
    }
    Ok(())
}

/// Appends a row of the table.
pub(super) fn write_row(bytes: &mut Vec<u8>, height: u32, offset: u64) {
    bytes.extend(height.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
}

/// Bytes of the record of a block.
pub(super) fn record_len(outputs: u32) -> u64 {
    4 + u64::from(outputs.div_ceil(8))
}

/// Appends a record.
pub(super) fn write(bytes: &mut Vec<u8>, outputs: u32, unspent: &[u32]) {
    bytes.extend(outputs.to_le_bytes());
    bits::write_ones(bytes, outputs, unspent.iter().copied());
}
