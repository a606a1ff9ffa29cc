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
//! record starts with the magic and a possible size, and has a header and a transaction count. But frames
//! lie: a length may be damaged, and a frame without its block, or with the beginning of one, may stand
//! before the true record. So a frame is believed if its header has proof of work and another record begins
//! where it ends, which costs nothing. Otherwise the block is read: if the header commits to it, it ends
//! where it ends, whatever its frame says, and if not, the search goes on at the next byte. Core goes on
//! after the frame, and gives up a file at a frame that ends beyond it.

use crate::{departed, error::DiskError};
use digest::{
    merkle::{MerkleRoot, merkle_root},
    obfuscation::Obfuscation,
    sha256::sha256d_many,
};
use std::path::{Path, PathBuf};
use vfs::{During as _, ReadAt};
use wire::{BlockArena, BlockHash, ByteOffset, Header, MAX_BLOCK_LEN, Reader, WireError, read::MAX_SIZE};

/// Length of the magic and the size before a record's data, in `rev` files too, in bytes.
pub const RECORD_HEADER_LEN: usize = 8;

/// Maximum length of a record's data in a `blk` file, in bytes; a record may be longer than its block.
pub const MAX_RECORD_LEN: usize = MAX_SIZE as usize;

/// Bytes that a search reads at once: few, because the blocks between two headers are skipped.
const WINDOW_LEN: usize = 16 << 10;

/// Bytes that a scan may always read in vain.
const MIN_BUDGET: u64 = 16 * MAX_BLOCK_LEN as u64;

/// Maximum length of header and transaction count, in bytes.
const HEAD_LEN: usize = Header::LEN + 9;

/// Bytes that a scan may read in vain, per byte of a file, to find out where blocks end: crafted files must
/// not waste time. After that, frames are believed.
const MAX_WASTED_READS_PER_BYTE: u64 = 32;

const _: () = assert!(WINDOW_LEN >= RECORD_HEADER_LEN + HEAD_LEN, "a window contains the head of a record");

/// Returns the size of a record's data from its first bytes without obfuscation; `None` if the magic is
/// wrong.
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

/// Finds the network's magic in an obfuscated file through a small window.
pub(crate) struct RecordSearch<'a> {
    file: &'a dyn ReadAt,
    path: PathBuf,
    pub magic: [u8; 4],
    obfuscation: Obfuscation,
    pub file_len: u64,
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

    /// Returns how many bytes of the file may be read in vain.
    pub(crate) fn budget(&self) -> u64 {
        self.file_len.saturating_mul(MAX_WASTED_READS_PER_BYTE).max(MIN_BUDGET)
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

    fn has_magic(&mut self, start: u64) -> Result<bool, DiskError> {
        let magic = self.magic;
        Ok(self.bytes(start, magic.len())?.starts_with(&magic))
    }

    /// Finds the next magic, and continues the next search after its first byte, unless the caller accepts
    /// the record and sets `at`. Returns the offset of the first byte after the record header, and the size
    /// in that, not validated.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, u32)>, DiskError> {
        let magic = self.magic;
        loop {
            let at = self.at;
            let bytes = self.bytes(at, RECORD_HEADER_LEN)?;
            if bytes.len() < RECORD_HEADER_LEN {
                return Ok(None);
            }
            if let Some(size) = bytes.first_chunk().and_then(|&header| parse_record_header(header, magic)) {
                self.at = at + 1;
                return Ok(Some((at + RECORD_HEADER_LEN as u64, size)));
            }
            let rest = bytes.get(1..).unwrap_or_default();
            let skip = rest.iter().position(|byte| Some(byte) == magic.first()).unwrap_or(rest.len());
            self.at = at + 1 + skip as u64;
        }
    }
}

/// A record of a block file. Of the block, only header and transaction count must have been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRecord {
    /// Offset of the block in the file.
    pub data_pos: ByteOffset,
    /// Length of the block in bytes, at most [`MAX_BLOCK_LEN`]. The length in its frame differs if that was
    /// found to be wrong.
    pub size: u32,
    pub header: Header,
    pub hash: BlockHash,
    /// Number of transactions that the block states.
    pub tx_count: u32,
    /// Whether the frame leads a reader to all these bytes.
    pub is_readable: bool,
}

/// Iterates over the records of one block file, in file order, in 16 KiB of memory and that of the blocks
/// whose ends are looked for.
pub struct BlockScanner<'a> {
    search: RecordSearch<'a>,
    /// Whether all blocks are read, and no frame is believed, since one may end at a later record.
    pub reads_all: bool,
    /// Bytes that may still be read in vain.
    budget: u64,
    /// Number of records so far that are blocks of another chain ([`departed`]), which are skipped.
    pub departed: u32,
}

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
        let search = RecordSearch::new(file, path, magic, obfuscation)?;
        let budget = search.budget();
        Ok(Self { search, reads_all: false, budget, departed: 0 })
    }

    /// Continues at byte `at` of the file.
    pub const fn skip_to(&mut self, at: ByteOffset) {
        self.search.at = at.0;
    }

    /// Returns the next record; `None` at the end of the file. Bytes outside records are skipped. Of a block
    /// to which its header does not commit, the search continues inside the record.
    pub fn next_record(&mut self) -> Result<Option<BlockRecord>, DiskError> {
        while let Some((data_pos, size)) = self.search.next()? {
            let end = data_pos + u64::from(size);
            let is_possible = (Header::LEN + 1..=MAX_BLOCK_LEN).contains(&(size as usize));
            let fits = is_possible && end <= self.search.file_len;
            if fits && self.is_departed(data_pos, size)? {
                self.departed += 1;
                self.search.at = end;
                continue;
            }
            let Ok((header, tx_count)) = read_head(self.search.bytes(data_pos, HEAD_LEN)?) else { continue };
            let hash = header.hash();
            let has_work = header.meets_own_target(&hash);
            if !has_work && !fits {
                continue;
            }
            let is_within = size as usize <= MAX_RECORD_LEN && end <= self.search.file_len;
            let record = |len| BlockRecord {
                data_pos: ByteOffset(data_pos),
                size: len,
                header,
                hash,
                tx_count,
                is_readable: is_within && len <= size,
            };
            let is_followed = fits && self.search.has_magic(end)?;
            if has_work && is_followed && !self.reads_all {
                self.search.at = end;
                return Ok(Some(record(size)));
            }
            match self.block_end(data_pos, &header, (fits.then_some(size), has_work))? {
                BlockEnd::At(len) => {
                    self.search.at = data_pos + u64::from(len);
                    return Ok(Some(record(len)));
                }
                // The block is damaged, or the bytes are another's.
                BlockEnd::None { parses } if fits && (has_work || is_followed || parses) => {
                    return Ok(Some(record(size)));
                }
                BlockEnd::None { .. } => {}
            }
        }
        Ok(None)
    }

    /// Whether the record of this size at `data_pos` is a block of another chain.
    fn is_departed(&mut self, data_pos: u64, size: u32) -> Result<bool, DiskError> {
        if self.budget == 0 || !departed::has_mark(self.search.bytes(data_pos, Header::LEN)?) {
            return Ok(false);
        }
        let mut bytes = vec![0; size as usize];
        let is_departed = self.search.read(&mut bytes, data_pos).is_ok() && departed::is_block(&bytes);
        self.budget = self.budget.saturating_sub(if is_departed { 0 } else { size.into() });
        Ok(is_departed)
    }

    /// Finds the end of the block at `data_pos`, which claims to have so many bytes, if that is possible;
    /// if its header has proof of work, it may have more. When the budget is used up, the claim is
    /// believed.
    fn block_end(
        &mut self,
        data_pos: u64,
        header: &Header,
        (claimed, has_work): (Option<u32>, bool),
    ) -> Result<BlockEnd, DiskError> {
        let mut parses = false;
        for len in claimed.into_iter().chain(has_work.then_some(MAX_BLOCK_LEN as u32)) {
            if self.budget == 0 {
                return Ok(claimed.map_or(BlockEnd::None { parses }, BlockEnd::At));
            }
            let rest = self.search.file_len.saturating_sub(data_pos);
            let mut bytes = vec![0; rest.min(len.into()) as usize];
            if self.search.read(&mut bytes, data_pos).is_err() {
                // The command that needs the block reports that it cannot be read.
                break;
            }
            let found = block_len(&bytes, header);
            let used = found.filter(|(_, is_sound)| *is_sound).map_or(0, |(len, _)| u64::from(len));
            self.budget = self.budget.saturating_sub(bytes.len() as u64 - used);
            match found {
                Some((len, true)) => return Ok(BlockEnd::At(len)),
                found => parses |= found.is_some_and(|(len, _)| Some(len) == claimed),
            }
        }
        Ok(BlockEnd::None { parses })
    }
}

enum BlockEnd {
    /// After so many bytes.
    At(u32),
    /// The header commits to no block here.
    None {
        /// Whether there is one nevertheless, of the length that it claims to have.
        parses: bool,
    },
}

/// Parses the block at the start of `bytes`. Returns its length, and whether `header`, which is that of the
/// block, commits to its transactions.
pub fn block_len(bytes: &[u8], header: &Header) -> Option<(u32, bool)> {
    let mut arena = BlockArena::default();
    let block = arena.parse_first(bytes).ok()?;
    let messages: Vec<_> = block.txs().map(|tx| tx.txid_message()).collect();
    let mut txids = Vec::new();
    sha256d_many(&messages, &mut txids);
    let expected = MerkleRoot { root: header.merkle_root, mutated: false };
    Some((block.bytes().len() as u32, merkle_root(txids) == expected))
}

fn read_head(block: &[u8]) -> Result<(Header, u32), WireError> {
    let mut reader = Reader::new(block);
    Ok((Header::read(&mut reader)?, reader.compact_size()? as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 4] = [0xf9, 0xbe, 0xb4, 0xd9];

    /// A header with proof of work.
    fn header(version: i32, merkle_root: [u8; 32]) -> Header {
        let headers =
            (0..).map(|nonce| Header { version, merkle_root, bits: 0x207f_ffff, nonce, ..Header::default() });
        headers.into_iter().find(|header| header.meets_own_target(&header.hash())).unwrap()
    }

    /// A header with bytes that are no transactions.
    fn block(version: i32, len: usize) -> Vec<u8> {
        let mut block = header(version, [0; 32]).to_bytes().to_vec();
        block.push(1);
        block.resize(len.max(block.len()), 0xf9);
        block
    }

    /// A block to whose one transaction its header commits.
    fn sound_block(version: i32, script_len: u8) -> Vec<u8> {
        let script = vec![version as u8; script_len.into()];
        let input = [&[1, 0, 0, 0, 1][..], &[9; 36], &[script_len], &script, &[0xff; 4]].concat();
        let tx = [&input[..], &[1], &[0; 8], &[0], &[0; 4]].concat();
        let header = header(version, digest::sha256::sha256d(&tx));
        [&header.to_bytes()[..], &[1], &tx].concat()
    }

    fn scan(plain: &[u8], key: [u8; 8]) -> Vec<(u64, u32, i32)> {
        let obfuscation = Obfuscation::from_key(key);
        let mut bytes = plain.to_vec();
        obfuscation.apply(&mut bytes, 0);
        found(BlockScanner::new(&bytes, Path::new("blk00000.dat"), MAGIC, obfuscation).unwrap())
    }

    fn found(mut scanner: BlockScanner<'_>) -> Vec<(u64, u32, i32)> {
        let mut found = Vec::new();
        while let Some(record) = scanner.next_record().unwrap() {
            found.push((record.data_pos.0, record.size, record.header.version));
        }
        found
    }

    #[test]
    fn finds_records_between_zeros_garbage_and_a_torn_tail() {
        let mut file = vec![0; 5];
        let mut want = Vec::new();
        for (version, len, gap) in
            [(1, 300, 0), (2, 81, 3), (3, 100_000, 40_000), (3, 100_000, 0), (4, 200, 2)]
        {
            want.push((file.len() as u64 + 8, len as u32, version));
            write_record(&mut file, MAGIC, &block(version, len));
            file.extend(std::iter::repeat_n(if version == 2 { MAGIC[0] } else { 0 }, gap));
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
    fn a_false_frame_hides_no_record() {
        let blocks: Vec<Vec<u8>> = (0..6).map(|version| sound_block(version, 20 * version as u8)).collect();
        let frame = |len: u32| [&MAGIC[..], &len.to_le_bytes()].concat();
        let whole = blocks[2].len() as u32;
        let next_two = (blocks[3].len() + blocks[4].len() + 2 * RECORD_HEADER_LEN) as u32;
        // What is inserted before the record of block 2, and the length in its own frame.
        for (inserted, len) in [
            (frame(5_000), whole),
            (frame(100), whole),
            (frame(79), whole),
            (frame(4_000_001), whole),
            (frame(u32::MAX), whole),
            // They are a header, but not a block.
            ([&frame(80)[..], &[0; 80]].concat(), whole),
            (MAGIC.to_vec(), whole),
            (vec![MAGIC[0]; 8], whole),
            ([&frame(whole)[..], &vec![0; whole as usize]].concat(), whole),
            ([&frame(whole)[..], &blocks[2][..100]].concat(), whole),
            (vec![], whole + 300),
            (vec![], whole + 9),
            (vec![], 90),
            (vec![], u32::MAX),
            (vec![], whole + next_two),
        ] {
            let mut file: Vec<u8> = Vec::new();
            for (at, block) in blocks.iter().enumerate() {
                let (before, len) =
                    if at == 2 { (&inserted[..], len) } else { (&[][..], block.len() as u32) };
                file.extend([before, &frame(len), block].concat());
            }
            file.extend([0; 99]);
            let is_whole = |&(pos, size, version): &(u64, u32, i32)| {
                let block = blocks.get(version as usize);
                block.is_some_and(|block| {
                    file[pos as usize..].starts_with(block) && block.len() == size as usize
                })
            };
            let scanner =
                || BlockScanner::new(&file, Path::new("blk"), MAGIC, Obfuscation::default()).unwrap();
            let versions = |scanner| found(scanner).into_iter().filter(is_whole).map(|it| it.2).collect();
            let [quick, all]: [Vec<i32>; 2] =
                [scanner(), BlockScanner { reads_all: true, ..scanner() }].map(versions);
            let label = format!("{:02x?} {len}", &inserted[..inserted.len().min(20)]);
            assert_eq!(all, [0, 1, 2, 3, 4, 5], "{label}");
            // A frame that ends at a record is believed.
            assert_eq!(quick, if len == whole + next_two { vec![0, 1, 5] } else { all }, "{label}");
        }
    }

    #[test]
    fn a_crafted_file_is_not_read_again_and_again() {
        // Each frame claims the rest of the file.
        let (header, len) = (header(1, [1; 32]).to_bytes(), 1 << 20);
        let mut file = Vec::new();
        while file.len() < len {
            let rest = (len + 100 - file.len() - RECORD_HEADER_LEN) as u32;
            file.extend([&MAGIC[..], &rest.to_le_bytes(), &header, &[0xfd, 0xff, 0xff]].concat());
        }
        file.resize(len + 100, 0);
        assert!((10..100).contains(&scan(&file, [0; 8]).len()));
    }
}
