//! The format of BIP-0456 (draft), the `hintsfile` crates and Core's branch hintsfile-v1: one Elias-Fano
//! record per block.
//!
//! ```text
//! file     "UTXO" | version 0 | height u32 little-endian | records
//! record   CompactSize N, the number of hints; the record ends here if it is 0
//!          | CompactSize M, the last index | low ceil(N*l / 8) bytes | high ceil((N + (M>>l)) / 8) bytes
//!          with l = floor(log2((M+1) / N)), the quotient rounded down
//! low      the low l bits of each index, least significant first
//! high     for the j-th index i, j from 0, a one at position (i>>l) + j
//! ```
//! Spendable outputs are counted. The header does not contain whether bytes are filled from their most or
//! least significant bit, nor whether the first record is the genesis block's (always 00) or block 1's. The
//! bit order follows from the redundancy of records (the last index must be `M`, the last bit must be one,
//! padding must be zero), the first record's block from the number of records. There is no checksum.

use super::input::{Input, InputError};
use super::{MAX_OUTPUTS, bits};
use wire::read::write_compact_size;

/// The first bytes of this format, `bitmap` and `btcd`.
pub(super) const MAGIC: [u8; 4] = *b"UTXO";
/// The version after the magic, the same as that of `bitmap`.
pub(super) const VERSION: u8 = 0;
/// Length of magic, version and height in bytes.
pub(super) const HEADER_LEN: u64 = 9;

/// Whether bytes are filled from the most or the least significant bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BitOrder {
    MostFirst,
    LeastFirst,
}

/// Reads the header of this format, `bitmap` and `btcd`; returns the height.
pub(super) fn read_header(input: &mut Input, version: u8) -> Result<u32, InputError> {
    let magic = input.array()?;
    if magic != MAGIC {
        let text = format!("the file starts with {magic:02x?}, not with \"UTXO\"");
        return Err(InputError::Malformed(0, text));
    }
    let [found] = input.array()?;
    if found != version {
        return Err(InputError::Malformed(4, format!("version {found} is not supported, only {version}")));
    }
    Ok(u32::from_le_bytes(input.array()?))
}

pub(super) fn write_header(bytes: &mut Vec<u8>, version: u8, height: u32) {
    bytes.extend(MAGIC);
    bytes.push(version);
    bytes.extend(height.to_le_bytes());
}

/// Returns the number of low bits of an index.
fn low_bit_count(count: u32, last: u32) -> u32 {
    ((last + 1) / count).max(1).ilog2()
}

/// Appends the hints of the next block. `low` is a scratch buffer.
pub(super) fn read(
    input: &mut Input,
    order: BitOrder,
    low: &mut Vec<u8>,
    unspent: &mut Vec<u32>,
) -> Result<(), InputError> {
    let count = input.compact_size(MAX_OUTPUTS, "number of hints")?;
    if count == 0 {
        return Ok(());
    }
    let last = input.compact_size(MAX_OUTPUTS - 1, "last index")?;
    if count > last + 1 {
        return Err(input.malformed(format!("{count} hints are more than {} outputs", last + 1)));
    }
    let width = low_bit_count(count, last);
    let low_len = (count * width).div_ceil(8) as usize;
    let high_bits = count + (last >> width);
    low.clear();
    low.extend_from_slice(input.take(low_len + high_bits.div_ceil(8) as usize)?);
    if order == BitOrder::MostFirst {
        low.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
    }
    let start = unspent.len();
    bits::push_ones(low.get(low_len..).unwrap_or_default(), unspent);
    let added = unspent.get_mut(start..).unwrap_or_default();
    if added.len() != count as usize || added.last() != Some(&(high_bits - 1)) {
        let ones = added.len();
        return Err(input.malformed(format!(
            "the high part has {ones} ones instead of {count} up to bit {}",
            high_bits - 1
        )));
    }
    low.truncate(low_len);
    if !assemble_indices(added, low, width) || added.last() != Some(&last) {
        return Err(input.malformed("the indices do not ascend to the last index"));
    }
    Ok(())
}

/// Replaces positions in the high part by indices, with the bits of the low part. Returns false if the
/// indices do not ascend, or the padding bits of the low part are not zero.
fn assemble_indices(positions: &mut [u32], low: &mut Vec<u8>, width: u32) -> bool {
    let used = positions.len() as u32 * width;
    if !used.is_multiple_of(8) && low.last().is_some_and(|byte| byte >> (used % 8) != 0) {
        return false;
    }
    low.extend([0; 4]);
    let mask = (1u32 << width) - 1;
    let (mut at, mut min_index) = (0usize, 0);
    for (j, position) in positions.iter_mut().enumerate() {
        let window = low.get(at / 8..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let index = (*position - j as u32) << width | u32::from_le_bytes(window) >> (at % 8) & mask;
        if index < min_index {
            return false;
        }
        min_index = index + 1;
        *position = index;
        at += width as usize;
    }
    true
}

pub(super) fn write(bytes: &mut Vec<u8>, order: BitOrder, unspent: &[u32]) {
    let count = unspent.len() as u32;
    write_compact_size(bytes, count.into());
    let Some(&last) = unspent.last() else { return };
    write_compact_size(bytes, last.into());
    let width = low_bit_count(count, last);
    let start = bytes.len();
    let low = unspent
        .iter()
        .zip((0..).step_by(width.max(1) as usize))
        .flat_map(|(index, at)| (0..width).filter(move |bit| index >> bit & 1 == 1).map(move |bit| at + bit));
    bits::write_ones(bytes, count * width, low);
    let high = unspent.iter().zip(0..).map(|(index, j)| (index >> width) + j);
    bits::write_ones(bytes, count + (last >> width), high);
    if order == BitOrder::MostFirst {
        let added = bytes.get_mut(start..).unwrap_or_default();
        added.iter_mut().for_each(|byte| *byte = byte.reverse_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_set, prelude::*};
    use std::sync::Arc;

    fn decode(record: &[u8], order: BitOrder) -> Result<Vec<u32>, InputError> {
        let len = record.len() as u64;
        let mut input = Input::plain(Arc::new(record.to_vec()), 0, len);
        let mut unspent = Vec::new();
        read(&mut input, order, &mut Vec::new(), &mut unspent)?;
        assert!(input.is_end()?, "the record determines its own length");
        Ok(unspent)
    }

    const ORDERS: [BitOrder; 2] = [BitOrder::MostFirst, BitOrder::LeastFirst];

    proptest! {
        #[test]
        fn records_round_trip_only_in_their_bit_order(
            hints in prop_oneof![btree_set(0..MAX_OUTPUTS, 0..400), btree_set(0..500u32, 0..400)]
        ) {
            let hints: Vec<u32> = hints.into_iter().collect();
            for (order, other) in [(ORDERS[0], ORDERS[1]), (ORDERS[1], ORDERS[0])] {
                let mut record = Vec::new();
                write(&mut record, order, &hints);
                prop_assert_eq!(&decode(&record, order).unwrap(), &hints);
                // With that many indices, the wrong order is always detected.
                if hints.len() > 20 {
                    prop_assert!(decode(&record, other).is_err());
                }
            }
        }
    }

    #[test]
    fn a_changed_bit_gives_other_hints_or_an_error() {
        let hints = [3, 7, 12, 13, 90, 91, 92, 400];
        for order in ORDERS {
            let mut record = Vec::new();
            write(&mut record, order, &hints);
            for bit in 0..record.len() * 8 {
                record[bit / 8] ^= 1 << (bit % 8);
                let len = record.len() as u64;
                let mut input = Input::plain(Arc::new(record.clone()), 0, len);
                let mut unspent = Vec::new();
                if read(&mut input, order, &mut Vec::new(), &mut unspent).is_ok() {
                    assert_ne!(unspent, hints, "bit {bit} has no effect");
                    assert!(unspent.is_sorted_by(|a, b| a < b));
                }
                record[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
