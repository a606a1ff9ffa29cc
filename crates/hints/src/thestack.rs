//! The format of theStack's prototypes (v0 to v3): one bit for each output, beginning with the genesis block.
//!
//! ```text
//! record   outputs u16 | ceil(outputs / 8) bytes, bit i = byte i/8 >> i%8 & 1, one = unspent
//! file     record of height 0, 1, 2, .. | 0 u16
//! ```
//! Numbers are little-endian. All outputs are counted; the bits of unspendable ones, including the genesis
//! block's, are 0. There is no header and no checksum. A block can have at most 65,535 outputs.

use super::bits;
use super::input::{Input, InputError};

/// Appends the hints of the next block and returns its number of outputs; `None` at the end mark.
pub(super) fn read(input: &mut Input, unspent: &mut Vec<u32>) -> Result<Option<u32>, InputError> {
    let outputs = u16::from_le_bytes(input.array()?);
    if outputs == 0 {
        return Ok(None);
    }
    read_bitmap(input, outputs.into(), unspent).map(Some)
}

/// Reads `outputs` bits. The padding bits of the last byte must be zero.
pub(super) fn read_bitmap(
    input: &mut Input,
    outputs: u32,
    unspent: &mut Vec<u32>,
) -> Result<u32, InputError> {
    bits::push_ones(input.take(outputs.div_ceil(8) as usize)?, unspent);
    match unspent.last() {
        Some(&last) if last >= outputs => {
            Err(input.malformed(format!("bit {last} is set, but the block has {outputs} outputs")))
        }
        _ => Ok(outputs),
    }
}

pub(super) fn write(bytes: &mut Vec<u8>, outputs: u16, unspent: &[u32]) {
    bytes.extend(outputs.to_le_bytes());
    bits::write_ones(bytes, outputs.into(), unspent.iter().copied());
}
