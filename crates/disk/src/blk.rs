//! `blkNNNNN.dat`: blocks in the order in which a node received them, neither in height order nor only of the
//! active chain.
//!
//! Written by Core `BlockManager::WriteBlock`, and by [`crate::block_files`]; a file is closed at 128 MiB.
//!
//! ```text
//! record   magic 4 | size 4 | block
//! ```
//! `size` is little-endian and the length of the block, 80 to 4,000,000 bytes; if it is longer than the
//! block, the rest is ignored. All bytes are obfuscated (`xor`). An index entry points at the block,
//! [`RECORD_HEADER_LEN`] bytes into the record. Files grow by 16 MiB of zeros at a time. A crash can leave a
//! torn record at the end or, after older content, a record truncated by the next one; a block can occur
//! twice.
//!
//! [`BlockScanner`] finds records without an index, as Core's `LoadExternalBlockFile` does with -reindex: a
//! record starts with the magic and a possible size, has a header and a transaction count, and ends within
//! the file. After a record the search continues at its end, otherwise at the next byte. There is one
//! difference: if a record is longer than its block, and the parent of the block is known already, Core also
//! searches the rest of the record. Finding the end of a block requires reading all of it, and a scan only
//! reads headers, a fiftieth of mainnet's bytes.

use crate::error::DiskError;
use digest::obfuscation::Obfuscation;
use std::path::{Path, PathBuf};
use vfs::{During as _, ReadAt};
use wire::{ByteOffset, Header, MAX_BLOCK_LEN, Reader, WireError, read::MAX_SIZE};

/// Length of the magic and the size before a record's data, in `rev` files too, in bytes.
pub const RECORD_HEADER_LEN: usize = 8;

/// Maximum length of a record's data in a `blk` file, in bytes; a record may be longer than its block.
pub const MAX_RECORD_LEN: usize = MAX_SIZE as usize;

/// Bytes that a search reads at once: few, because the blocks between two headers are skipped.
const WINDOW_LEN: usize = 16 << 10;

/// Maximum length of header and transaction count, in bytes.
const HEAD_LEN: usize = Header::LEN + 9;

const _: () = assert!(WINDOW_LEN >= RECORD_HEADER_LEN + HEAD_LEN, "a window contains the head of a record");

/// Returns the size of a record's data from its first bytes without obfuscation; `None` if the magic is
/// wrong.
#[must_use]
pub fn parse_record_header(bytes: [u8; RECORD_HEADER_LEN], magic: [u8; 4]) -> Option<u32> {
    let [m0, m1, m2, m3, size @ ..] = bytes;
    ([m0, m1, m2, m3] == magic).then_some(u32::from_le_bytes(size))
}

/// Appends a record without obfuscation.
///
/// # Panics
/// If `data` has 4 GiB or more.
pub fn write_record(record: &mut Vec<u8>, magic: [u8; 4], data: &[u8]) {
    let size = u32::try_from(data.len());
    assert!(size.is_ok(), "a record has less than 4 GiB");
    record.extend_from_slice(&magic);
    record.extend_from_slice(&size.unwrap_or_default().to_le_bytes());
    record.extend_from_slice(data);
}

/// A possible record in a file, found by [`RecordSearch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Offset of the first byte after the record header.
    pub data_pos: u64,
    /// Size in the record header, not validated.
    pub size: u32,
}

/// Finds the network's magic in an obfuscated file through a small window.
pub(crate) struct RecordSearch<'a> {
    file: &'a dyn ReadAt,
    path: PathBuf,
    magic: [u8; 4],
    obfuscation: Obfuscation,
    file_len: u64,
    /// Offset from which the search continues.
    pub at: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> RecordSearch<'a> {
    pub(crate) fn new(
        file: &'a dyn ReadAt,
        path: &Path,
        magic: [u8; 4],
        obfuscation: Obfuscation,
    ) -> Result<Self, DiskError> {
        let file_len = file.len().during("measure", path)?;
        let (path, window) = (path.to_owned(), Vec::new());
        Ok(Self { file, path, magic, obfuscation, file_len, at: 0, window, window_start: 0 })
    }

    pub(crate) const fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Fills `buf` with the bytes from `start`, without obfuscation.
    pub(crate) fn read(&self, buf: &mut [u8], start: u64) -> Result<(), DiskError> {
        self.file.read_exact_at(buf, start).during("read", &self.path)?;
        self.obfuscation.apply(buf, start);
        Ok(())
    }

    /// Returns at least `len` bytes from `start`, without obfuscation; fewer at the end of the file.
    pub(crate) fn bytes(&mut self, start: u64, len: usize) -> Result<&[u8], DiskError> {
        let want = (len as u64).min(self.file_len.saturating_sub(start));
        let window_end = self.window_start + self.window.len() as u64;
        if start < self.window_start || start + want > window_end {
            let len = (WINDOW_LEN.max(len) as u64).min(self.file_len.saturating_sub(start));
            let mut window = std::mem::take(&mut self.window);
            window.resize(len as usize, 0);
            self.read(&mut window, start)?;
            self.window = window;
            self.window_start = start;
        }
        Ok(self.window.get((start - self.window_start) as usize..).unwrap_or_default())
    }

    /// Finds the next magic, and continues the next search after its first byte, unless the caller accepts
    /// the record and sets `at`.
    pub(crate) fn next(&mut self) -> Result<Option<Candidate>, DiskError> {
        let magic = self.magic;
        loop {
            let at = self.at;
            let bytes = self.bytes(at, RECORD_HEADER_LEN)?;
            if bytes.len() < RECORD_HEADER_LEN {
                return Ok(None);
            }
            if let Some(size) = bytes.first_chunk().and_then(|&header| parse_record_header(header, magic)) {
                self.at = at + 1;
                return Ok(Some(Candidate { data_pos: at + RECORD_HEADER_LEN as u64, size }));
            }
            let rest = bytes.get(1..).unwrap_or_default();
            let skip = rest.iter().position(|byte| Some(byte) == magic.first()).unwrap_or(rest.len());
            self.at = at + 1 + skip as u64;
        }
    }
}

/// A record of a block file. Of the block, only header and transaction count have been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRecord {
    /// Offset of the block in the file.
    pub data_pos: ByteOffset,
    /// Length of the block in bytes, at most [`MAX_BLOCK_LEN`].
    pub size: u32,
    /// Its header.
    pub header: Header,
    /// Number of transactions that the block states.
    pub tx_count: u32,
}

/// Iterates over the records of one block file, in file order, in 16 KiB of memory.
pub struct BlockScanner<'a>(RecordSearch<'a>);

impl<'a> BlockScanner<'a> {
    /// Starts at the first byte of `file`; `path` is used in error messages.
    ///
    /// # Errors
    /// [`DiskError::File`] if its length cannot be determined.
    pub fn new(
        file: &'a dyn ReadAt,
        path: &Path,
        magic: [u8; 4],
        obfuscation: Obfuscation,
    ) -> Result<Self, DiskError> {
        RecordSearch::new(file, path, magic, obfuscation).map(Self)
    }

    /// Continues at byte `at` of the file.
    pub const fn skip_to(&mut self, at: ByteOffset) {
        self.0.at = at.0;
    }

    /// Returns the next record; `None` at the end of the file. Bytes outside records are skipped.
    ///
    /// # Errors
    /// [`DiskError::File`] for I/O errors.
    pub fn next_record(&mut self) -> Result<Option<BlockRecord>, DiskError> {
        let search = &mut self.0;
        while let Some(Candidate { data_pos, size }) = search.next()? {
            if !(Header::LEN..=MAX_BLOCK_LEN).contains(&(size as usize)) {
                continue;
            }
            let end = data_pos + u64::from(size);
            if end > search.file_len() {
                // Core skips to the stated end, which is after the end of the file, and stops searching.
                search.at = search.file_len();
                continue;
            }
            search.at = end;
            let bytes = search.bytes(data_pos, HEAD_LEN.min(size as usize))?;
            let block = bytes.get(..size as usize).unwrap_or(bytes);
            if let Ok((header, tx_count)) = read_head(block) {
                return Ok(Some(BlockRecord { data_pos: ByteOffset(data_pos), size, header, tx_count }));
            }
        }
        Ok(None)
    }
}

fn read_head(block: &[u8]) -> Result<(Header, u32), WireError> {
    let mut reader = Reader::new(block);
    Ok((Header::read(&mut reader)?, reader.compact_size()? as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    pub(crate) struct Bytes(pub(crate) Vec<u8>);

    impl ReadAt for Bytes {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            let from = self.0.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
            buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
    }

    const MAGIC: [u8; 4] = [0xf9, 0xbe, 0xb4, 0xd9];

    fn block(nonce: u32, len: usize) -> Vec<u8> {
        let mut block = Header { nonce, ..Header::default() }.to_bytes().to_vec();
        block.push(1);
        block.resize(len.max(block.len()), 0xf9);
        block
    }

    fn scan(plain: &[u8], key: [u8; 8]) -> Vec<(u64, u32, u32)> {
        let obfuscation = Obfuscation::from_key(key);
        let mut bytes = plain.to_vec();
        obfuscation.apply(&mut bytes, 0);
        let file = Bytes(bytes);
        let mut scanner = BlockScanner::new(&file, Path::new("blk00000.dat"), MAGIC, obfuscation).unwrap();
        let mut found = Vec::new();
        while let Some(record) = scanner.next_record().unwrap() {
            found.push((record.data_pos.0, record.size, record.header.nonce));
        }
        found
    }

    #[test]
    fn finds_records_between_zeros_garbage_and_a_torn_tail() {
        let mut file = vec![0; 5];
        let mut want = Vec::new();
        for (nonce, len, gap) in [(1, 300, 0), (2, 81, 3), (3, 100_000, 40_000), (3, 100_000, 0), (4, 200, 2)]
        {
            want.push((file.len() as u64 + 8, len as u32, nonce));
            write_record(&mut file, MAGIC, &block(nonce, len));
            file.extend(std::iter::repeat_n(if nonce == 2 { MAGIC[0] } else { 0 }, gap));
        }
        let good = file.len();
        write_record(&mut file, MAGIC, &block(5, 50_000));
        for cut in [good, good + 3, good + 8, good + 100, file.len() - 1] {
            for key in [[0; 8], [1, 2, 3, 4, 5, 6, 7, 0xf9]] {
                assert_eq!(scan(&file[..cut], key), want, "cut at {cut}");
            }
        }
        assert_eq!(scan(&file, [9; 8]).len(), want.len() + 1);
    }

    #[test]
    fn the_search_continues_at_the_next_byte_after_an_impossible_size() {
        for size in [79u32, 4_000_001, u32::MAX] {
            let mut file = [&MAGIC[..], &size.to_le_bytes()].concat();
            write_record(&mut file, MAGIC, &block(7, 90));
            assert_eq!(scan(&file, [0; 8]), [(16, 90, 7)]);
        }
        // 80 bytes are a header, but not a block.
        let mut file = Vec::new();
        write_record(&mut file, MAGIC, &[0; 80]);
        write_record(&mut file, MAGIC, &block(7, 90));
        assert_eq!(scan(&file, [0; 8]), [(96, 90, 7)]);
    }
}
