//! Makes the checksums of damaged LevelDB files right again, so that mutations reach what lies behind them.
//!
//! An attacker can do so, too: checksums are no secret.

/// Bytes of a log's block, and of a fragment's header.
const LOG_BLOCK: usize = 32 << 10;
const FRAGMENT_HEADER: usize = 7;
/// A table's footer, and the compression byte and checksum after each block.
const FOOTER: usize = 48;
const TRAILER: usize = 5;

fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Sets the checksum of each fragment of a log or MANIFEST.
pub fn log(file: &mut [u8]) {
    for block in file.chunks_mut(LOG_BLOCK) {
        let mut at = 0;
        while let Some(&[_, _, _, _, low, high, _]) = block.get(at..at + FRAGMENT_HEADER) {
            let end = at + FRAGMENT_HEADER + usize::from(u16::from_le_bytes([low, high]));
            let Some(summed) = block.get(at + 6..end) else { break };
            let sum = masked_crc(summed);
            block[at..at + 4].copy_from_slice(&sum);
            at = end;
        }
    }
}

/// Frames one record of less than a block.
pub fn log_record(record: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 4];
    file.extend((record.len() as u16).to_le_bytes());
    file.push(1);
    file.extend_from_slice(record);
    log(&mut file);
    file
}

/// Sets the checksum of each block of a table that footer, index and meta index lead to.
pub fn table(file: &mut [u8]) {
    let Some(footer) = file.len().checked_sub(FOOTER) else { return };
    let mut rest = &file[footer..];
    let handles = [handle(&mut rest), handle(&mut rest)];
    for (offset, size) in handles.into_iter().flatten() {
        let entries = file.get(offset..offset.saturating_add(size)).map(entry_handles).unwrap_or_default();
        for (offset, size) in entries.into_iter().chain([(offset, size)]) {
            seal(file, offset, size);
        }
    }
}

fn seal(file: &mut [u8], offset: usize, size: usize) {
    let end = offset.saturating_add(size).saturating_add(TRAILER);
    let Some(block) = file.get_mut(offset..end) else { return };
    let (summed, sum) = block.split_at_mut(size + 1);
    sum.copy_from_slice(&masked_crc(summed));
}

/// The handles that are the values of a block's entries, as far as they can be followed.
fn entry_handles(block: &[u8]) -> Vec<(usize, usize)> {
    let mut handles = Vec::new();
    let mut rest = block;
    while let (Some(_shared), Some(unshared), Some(len)) =
        (varint(&mut rest), varint(&mut rest), varint(&mut rest))
    {
        let Some(mut value) = rest.get(unshared..unshared.saturating_add(len)) else { break };
        rest = &rest[unshared + len..];
        handles.extend(handle(&mut value));
    }
    handles
}

fn handle(rest: &mut &[u8]) -> Option<(usize, usize)> {
    Some((varint(rest)?, varint(rest)?))
}

/// LevelDB's varint: seven bits a byte, least significant first.
fn varint(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
