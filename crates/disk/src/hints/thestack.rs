//! theStack's prototypes (v0 to v3): one bit for each output, the genesis block's first.
//!
//! ```text
//! record   outputs u16 | ceil(outputs / 8) bytes, bit i = byte i/8 >> i%8 & 1, one = unspent
//! file     record of height 0, 1, 2, .. | 0 u16
//! ```
//! Numbers are little-endian. All outputs are counted; unspendable ones have 0, the genesis block's too. No
//! header, no checksum; a block has at most 65,535 outputs here.

use super::bits;
use super::input::{Flaw, Input};

/// Appends the hints of the next block and returns its outputs; `None` at the end mark.
pub(super) fn read(input: &mut Input, unspent: &mut Vec<u32>) -> Result<Option<u32>, Flaw> {
    let outputs = u16::from_le_bytes(input.array()?);
    if outputs == 0 {
        return Ok(None);
    }
    read_bitmap(input, outputs.into(), unspent).map(Some)
}

/// Reads `outputs` bits; those that fill the last byte must be zero.
pub(super) fn read_bitmap(input: &mut Input, outputs: u32, unspent: &mut Vec<u32>) -> Result<u32, Flaw> {
    bits::push_ones(input.take(outputs.div_ceil(8) as usize)?, unspent);
    match unspent.last() {
        Some(&last) if last >= outputs => {
            Err(input.wrong(format!("bit {last} is set and there are {outputs} outputs")))
        }
        _ => Ok(outputs),
    }
}

/// Appends a record.
pub(super) fn write(bytes: &mut Vec<u8>, outputs: u16, unspent: &[u32]) {
    bytes.extend(outputs.to_le_bytes());
    bits::write_ones(bytes, outputs.into(), unspent.iter().copied());
}
