//! The framing of `NNNNNN.log` and `MANIFEST-NNNNNN`: records are divided into fragments that never cross a
//! 32 KiB block. Written by LevelDB `log::Writer` and by updates; read as by LevelDB `log::Reader`
//! with Core's `paranoid_checks`.
//!
//! ```text
//! fragment, at offset
//!    0  4  masked CRC-32C of type and data
//!    4  2  length of data
//!    6  1  type: 1 complete record, 2 first, 3 middle, 4 last fragment;
//!          0 with length 0: the rest of the block is unused
//!    7  n  data
//! ```
//! Numbers are little-endian. Fewer than 7 bytes at the end of a block are zero and skipped.
//!
//! A crash leaves a torn tail. As in LevelDB, two cases are tolerated: a last block that is short (the file's
//! length is not a multiple of 32 KiB) and ends inside a fragment's header or data, and a record whose last
//! fragment is missing at the end of the file. Such a record was never acknowledged as written, and is
//! ignored. Everything else (a wrong checksum anywhere, including the tail; a length beyond a full block;
//! fragments out of order) is an error here and in Core.

use std::path::Path;
use vfs::{During as _, ReadAt};

use super::LevelDbError;
use super::coding::{Input, masked_crc};

/// Length of a block in bytes.
const BLOCK_LEN: usize = 32 << 10;
/// Length of the header before the data of a fragment, in bytes.
const HEADER_LEN: usize = 7;

const UNUSED: u8 = 0;
const COMPLETE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Calls `each` with offset and bytes of every record of the log `file`, in order; `path` is used in errors.
///
/// # Errors
/// [`LevelDbError::Damaged`] in the cases described in the module; [`LevelDbError::File`] if the disk fails;
/// the error of `each`.
pub(super) fn read_records(
    file: &dyn ReadAt,
    path: &Path,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), LevelDbError>,
) -> Result<(), LevelDbError> {
    let mut record = Vec::new();
    // Offset of the record whose fragments are being collected.
    let mut record_offset = None;
    let (len, mut block) = (file.len().during("measure", path)?, Vec::new());
    for start in (0..len).step_by(BLOCK_LEN) {
        block.resize((len - start).min(BLOCK_LEN as u64) as usize, 0);
        file.read_exact_at(&mut block, start).during("read", path)?;
        let mut rest = Input(&block);
        while rest.0.len() >= HEADER_LEN {
            let offset = start + (block.len() - rest.0.len()) as u64;
            let damaged = |flaw: &str| LevelDbError::damaged(path, offset, flaw);
            let Some((kind, data)) =
                fragment(&mut rest, block.len() < BLOCK_LEN).map_err(|flaw| damaged(&flaw))?
            else {
                break;
            };
            match (kind, record_offset) {
                (UNUSED, None) if data.is_empty() => break,
                (COMPLETE | FIRST, Some(_)) if !record.is_empty() => {
                    return Err(damaged("a record begins inside another one"));
                }
                // Old writers left an empty first fragment at the end of a block before a complete record.
                (COMPLETE, _) => {
                    record_offset = None;
                    each(offset, data)?;
                }
                (FIRST, _) => {
                    record_offset = Some(offset);
                    record.extend_from_slice(data);
                }
                (MIDDLE, Some(_)) => record.extend_from_slice(data),
                (LAST, Some(start)) => {
                    record.extend_from_slice(data);
                    each(start, &record)?;
                    record.clear();
                    record_offset = None;
                }
                (MIDDLE | LAST, None) => return Err(damaged("a record lacks its first fragment")),
                (UNUSED, Some(_)) => return Err(damaged("unused space inside a record")),
                _ => return Err(damaged(&format!("unknown record type {kind}"))),
            }
        }
    }
    Ok(())
}

/// Takes one fragment and returns type and data; `None` at a torn tail. The error describes what is wrong.
fn fragment<'a>(rest: &mut Input<'a>, last_block: bool) -> Result<Option<(u8, &'a [u8])>, String> {
    let header = *rest;
    let (Some(sum), Some(low), Some(high), Some(kind)) = (rest.u32(), rest.u8(), rest.u8(), rest.u8()) else {
        return Ok(None);
    };
    let len = usize::from(u16::from_le_bytes([low, high]));
    let Some(data) = rest.bytes(len) else {
        let left = rest.0.len();
        return if last_block {
            Ok(None)
        } else {
            Err(format!("length {len}, but the block has {left} bytes left"))
        };
    };
    if (kind, len) == (UNUSED, 0) {
        return Ok(Some((kind, data)));
    }
    let found = masked_crc(header.0.get(HEADER_LEN - 1..HEADER_LEN + len).unwrap_or_default());
    if found != sum {
        return Err(format!("checksum is {sum:08x}, but the bytes have {found:08x}"));
    }
    Ok(Some((kind, data)))
}

/// Appends `record` to `out`, which must contain the whole log so far.
pub(super) fn append_record(out: &mut Vec<u8>, record: &[u8]) {
    let mut rest = Input(record);
    let mut first = true;
    loop {
        let mut space = BLOCK_LEN - out.len() % BLOCK_LEN;
        if space < HEADER_LEN {
            out.resize(out.len() + space, 0);
            space = BLOCK_LEN;
        }
        let len = rest.0.len().min(space - HEADER_LEN);
        let data = rest.bytes(len).unwrap_or_default();
        let last = rest.is_empty();
        let kind = match (first, last) {
            (true, true) => COMPLETE,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        let mut summed = Vec::with_capacity(1 + len);
        summed.push(kind);
        summed.extend_from_slice(data);
        out.extend_from_slice(&masked_crc(&summed).to_le_bytes());
        out.extend_from_slice(&(len as u16).to_le_bytes()); // < 32 KiB
        out.extend_from_slice(&summed);
        if last {
            return;
        }
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, String> {
        let mut records = Vec::new();
        let result = read_records(&file.to_vec(), Path::new("000003.log"), |offset, record| {
            records.push((offset, record.to_vec()));
            Ok(())
        });
        result.map(|()| records).map_err(|error| error.to_string())
    }

    /// Returns a log of records with these lengths, and the records.
    fn sample(lengths: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let records: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(i, &len)| vec![i as u8 + 1; len]).collect();
        let mut file = Vec::new();
        records.iter().for_each(|record| append_record(&mut file, record));
        (file, records)
    }

    #[test]
    fn records_of_all_sizes_round_trip() {
        let edge = BLOCK_LEN - HEADER_LEN;
        for lengths in [
            &[0, 1, 0][..],
            &[edge],
            &[edge + 1],
            &[edge - 7, 5, 3],
            &[edge - 6, 5],
            &[edge - 8, 5],
            &[100_000, 7, 70_000],
        ] {
            let (file, records) = sample(lengths);
            let found = read(&file).unwrap();
            assert_eq!(found[0].0, 0);
            let found: Vec<_> = found.into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(found, records);
        }
    }

    #[test]
    fn a_torn_tail_loses_only_the_torn_record() {
        let (file, records) = sample(&[40_000, 50, 60]);
        let starts: Vec<u64> = read(&file).unwrap().iter().map(|(offset, _)| *offset).collect();
        for len in 0..file.len() {
            let complete = starts.iter().skip(1).filter(|&&start| start <= len as u64).count();
            match read(&file[..len]) {
                Ok(found) => {
                    assert!(found.iter().map(|(_, bytes)| bytes).eq(&records[..complete]), "cut at {len}")
                }
                Err(error) => panic!("cut at {len}: {error}"),
            }
        }
    }

    #[test]
    fn reports_damage_with_its_offset() {
        let (file, _) = sample(&[10, 20]);
        let check = |at: usize, bytes: &[u8], want: &str| {
            let mut file = file.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            let text = read(&file).unwrap_err();
            assert!(text.starts_with(&format!("000003.log at byte {want}")), "{text}");
        };
        check(20, &[0], "17: checksum is");
        check(7, &[9], "0: checksum is");
        check(6, &[LAST], "0: checksum is");

        // A fragment of each invalid kind with a correct checksum.
        for (kind, before, want) in [
            (MIDDLE, None, "a record lacks its first fragment"),
            (LAST, None, "a record lacks its first fragment"),
            (COMPLETE, Some(FIRST), "a record begins inside another one"),
            (UNUSED, Some(FIRST), "unused space inside a record"),
            (9, None, "unknown record type 9"),
        ] {
            let mut file = Vec::new();
            for kind in before.into_iter().chain([kind]) {
                let data: &[u8] = if kind == UNUSED { &[] } else { b"data" };
                let summed = [&[kind][..], data].concat();
                file.extend_from_slice(&masked_crc(&summed).to_le_bytes());
                file.extend_from_slice(&[data.len() as u8, 0]);
                file.extend_from_slice(&summed);
            }
            assert!(read(&file).unwrap_err().contains(want), "{kind}");
        }
        let mut full = vec![0; BLOCK_LEN];
        full[..HEADER_LEN].copy_from_slice(&[0, 0, 0, 0, 0xff, 0xff, COMPLETE]);
        assert!(read(&full).unwrap_err().contains("length 65535, but the block has 32761 bytes left"));
        assert_eq!(read(&full[..BLOCK_LEN - 1]).unwrap(), [], "the same in a short block is a torn tail");
        assert_eq!(read(&vec![0; 3 * BLOCK_LEN]).unwrap(), [], "space left unused by a crash is skipped");
    }
}
