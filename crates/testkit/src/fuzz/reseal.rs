//! Corrects the checksums of damaged files, so that mutations reach the code behind them.
//!
//! An attacker can do the same: checksums are not secret.

/// Sizes in bytes of a log's block, and of a fragment's header.
const LOG_BLOCK: usize = 32 << 10;
const FRAGMENT_HEADER: usize = 7;
/// Sizes in bytes of a table's footer, and of the compression byte and checksum after each block.
const FOOTER: usize = 48;
const TRAILER: usize = 5;

fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Corrects the checksum of each fragment of a log or MANIFEST.
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

/// Returns a log with one record that is shorter than a log block.
pub fn log_record(record: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 4];
    file.extend((record.len() as u16).to_le_bytes());
    file.push(1);
    file.extend_from_slice(record);
    log(&mut file);
    file
}

/// Corrects the checksum of each block of a table that footer, index and meta index lead to.
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

/// Returns the handles in the values of a block's entries, as far as they can be decoded.
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

/// Reads LevelDB's varint: seven bits per byte, least significant first.
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

/// Sizes in bytes of a sorted run's header, of the checksum at the start of each block, of the footer, and of
/// a shard in the footer.
const RUN_HEADER: usize = 16;
const RUN_CHECKSUM: usize = 4;
const RUN_FOOTER: usize = 256 * RUN_SHARD + 40;
const RUN_SHARD: usize = 44;

/// Corrects the checksums of a sorted run, its file length and its final magic, for as many blocks as can be
/// decoded.
pub fn run(file: &mut [u8]) {
    let len = file.len();
    let Some(blocks) = len.checked_sub(RUN_FOOTER + RUN_HEADER) else { return };
    let (header, rest) = file.split_at_mut(RUN_HEADER);
    let (mut blocks, footer) = rest.split_at_mut(blocks);
    let mut checksum = crc32c::crc32c(header);
    let mut passed = vec![(RUN_HEADER as u64, checksum)];
    while let Some(&[a, b, c, d]) = blocks.get(RUN_CHECKSUM..RUN_CHECKSUM + 4) {
        let end = (u32::from_le_bytes([a, b, c, d]) as usize).saturating_add(12);
        let Some((block, after)) = blocks.split_at_mut_checked(end) else { break };
        checksum = crc32c::crc32c_append(checksum, &block[RUN_CHECKSUM..]);
        block[..RUN_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        blocks = after;
        passed.push(((len - RUN_FOOTER - blocks.len()) as u64, checksum));
    }
    let (shards, totals) = footer.split_at_mut(256 * RUN_SHARD);
    for shard in shards.chunks_exact_mut(RUN_SHARD) {
        let at = passed.iter().find(|(at, _)| at.to_le_bytes() == shard[..8]);
        at.into_iter().for_each(|(_, checksum)| shard[16..20].copy_from_slice(&checksum.to_le_bytes()));
    }
    totals[16..24].copy_from_slice(&(len as u64).to_le_bytes());
    totals[24..28].copy_from_slice(&checksum.to_le_bytes());
    totals[32..].copy_from_slice(b"PGRN-RUN");
    let sealed = footer.len() - 12;
    let checksum = crc32c::crc32c(&footer[..sealed]);
    footer[sealed..sealed + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Corrects the length and checksum of a checkpoint.
pub fn checkpoint(file: &mut [u8]) {
    let len = file.len() as u64;
    file.get_mut(12..20).into_iter().for_each(|field| field.copy_from_slice(&len.to_le_bytes()));
    sealed(file);
}

/// Corrects the checksum at the end of a plan of ranges, or of the list of a delta.
pub fn sealed(file: &mut [u8]) {
    let Some((content, checksum)) = file.split_last_chunk_mut::<4>() else { return };
    *checksum = crc32c::crc32c(content).to_le_bytes();
}

/// Corrects the checksums of hints in Peregrine's format, as far as they can be located.
pub fn hints(file: &mut [u8]) {
    const HEADER: usize = 52;
    const FOOTER: usize = 64;
    const ENTRY: usize = 10;
    let crc = |bytes: &[u8]| crc32c::crc32c(bytes).to_le_bytes();
    let Some(footer) = file.len().checked_sub(FOOTER).filter(|at| *at >= HEADER + 4) else { return };
    let sum = crc(&file[..HEADER]);
    file[HEADER..HEADER + 4].copy_from_slice(&sum);
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"));
    let Ok(index) = usize::try_from(number(footer)) else { return };
    if index > footer {
        return;
    }
    let mut group = HEADER + 4;
    for entry in (index..footer).step_by(ENTRY).take_while(|entry| entry + ENTRY <= footer) {
        let len = u32::from_le_bytes(file[entry..entry + 4].try_into().expect("four bytes")) as usize;
        let Some(bytes) = file.get(group..group.saturating_add(len)) else { break };
        let sum = crc(bytes);
        file[entry + 4..entry + 8].copy_from_slice(&sum);
        group += len;
    }
    let end = footer + FOOTER - 36;
    let sum = crc(&file[index..end]);
    file[end..end + 4].copy_from_slice(&sum);
    let sum = ::digest::sha256::sha256(&file[..end + 4]);
    file[end + 4..].copy_from_slice(&sum);
}
