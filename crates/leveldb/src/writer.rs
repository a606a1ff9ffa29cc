//! Writes tables from rows in key order, each row once. Bitcoin Core opens them like those that LevelDB wrote
//! (blocks of 4 KiB, restarts every 16 rows, filters of 10 bits, no compression: Core's settings).

use hex_conservative::DisplayHex as _;
use std::path::{Path, PathBuf};

use super::coding::{put_varint, user_key};
use super::filter::{self, FilterWriter};
use super::manifest::{TableMeta, numbered};
use super::table::{Handle, TRAILER_LEN, UNCOMPRESSED, encode_footer};
use super::{LevelDbError, coding};
use vfs::{Disk, During as _, WriteFile};

/// Bytes of a data block, including restarts, at which it is complete (LevelDB `Options::block_size`).
const BLOCK_SIZE: usize = 4096;
/// Number of rows from one restart to the next (LevelDB `Options::block_restart_interval`).
const RESTART_INTERVAL: usize = 16;
/// Bytes written to the file at once.
const WRITE_SIZE: usize = 1 << 20;

/// A complete table whose bytes may not be on the medium yet.
pub(super) struct UnsyncedTable {
    /// The open file; `None` once it is synced.
    file: Option<Box<dyn WriteFile>>,
    path: PathBuf,
    meta: TableMeta,
}

impl UnsyncedTable {
    /// Returns when the table is on the medium; closes its file.
    pub(super) fn close(&mut self) -> Result<(), LevelDbError> {
        Ok(self.file.take().map_or(Ok(()), |mut file| file.sync()).during("sync", &self.path)?)
    }

    /// Like [`UnsyncedTable::close`]; returns what the manifest records of the table.
    pub(super) fn sync(mut self) -> Result<TableMeta, LevelDbError> {
        self.close()?;
        Ok(self.meta)
    }
}

/// A block under construction at the end of a buffer.
#[derive(Default)]
struct BlockWriter {
    restarts: Vec<u32>,
    /// Number of rows since the last restart.
    rows: usize,
    start: usize,
}

impl BlockWriter {
    /// Begins a block at the end of `out`.
    fn begin(&mut self, out: &[u8]) {
        self.restarts.clear();
        self.rows = 0;
        self.start = out.len();
    }

    /// Length of the block if it ended here.
    fn len(&self, out: &[u8]) -> usize {
        out.len() - self.start + 4 * self.restarts.len() + 4
    }

    /// Appends a row whose `key` shares its first `common` bytes with the key before.
    #[inline]
    fn add(&mut self, out: &mut Vec<u8>, key: &[u8], common: usize, value: &[u8], interval: usize) {
        let mut shared = common;
        if self.restarts.is_empty() || self.rows == interval {
            self.restarts.push((out.len() - self.start) as u32); // fits: a block has a few KiB or one row
            self.rows = 0;
            shared = 0;
        }
        self.rows += 1;
        let unshared = key.get(shared..).unwrap_or_default();
        let lengths = [shared, unshared.len(), value.len()];
        if lengths.iter().all(|&length| length < 0x80) {
            out.extend_from_slice(&lengths.map(|length| length as u8));
        } else {
            lengths.iter().for_each(|&length| put_varint(out, length as u64));
        }
        out.extend_from_slice(unshared);
        out.extend_from_slice(value);
    }

    /// Completes the block with restarts and trailer.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if self.restarts.is_empty() {
            self.restarts.push(0); // as LevelDB ends a block without rows
        }
        let count = self.restarts.len() as u32;
        for word in self.restarts.iter().chain([&count]) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        seal(out, self.start);
    }
}

/// Appends the trailer of the block that begins at `start` of `out`.
fn seal(out: &mut Vec<u8>, start: usize) {
    out.push(UNCOMPRESSED);
    let sum = coding::masked_crc(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Writes one table. Threads can write tables of one database in parallel, each with its own number.
pub(super) struct TableWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    number: u64,
    /// Bytes not yet written; they belong at offset `written` of the file.
    out: Vec<u8>,
    written: u64,
    data: BlockWriter,
    /// The last complete data block, which is added to the index when the next key is known.
    pending: Option<Handle>,
    index: Vec<u8>,
    index_block: BlockWriter,
    filter: FilterWriter,
    /// Internal key of the first row.
    smallest: Vec<u8>,
    /// Internal key of the last row.
    last: Vec<u8>,
    /// Buffer for the internal key of the next row.
    key: Vec<u8>,
}

impl TableWriter {
    /// Creates the file of table `number` (at least 1) in the directory `dir`, which must exist. It is an
    /// error if the file exists.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, number: u64) -> Result<Self, LevelDbError> {
        let path = numbered(dir, number, "ldb");
        let file = disk.create(&path).during_creation(&path)?;
        Ok(Self {
            file,
            path,
            number,
            out: Vec::with_capacity(WRITE_SIZE + 2 * BLOCK_SIZE),
            written: 0,
            data: BlockWriter::default(),
            pending: None,
            index: Vec::new(),
            index_block: BlockWriter::default(),
            filter: FilterWriter::default(),
            smallest: Vec::new(),
            last: Vec::new(),
            key: Vec::new(),
        })
    }

    /// Appends a row with this trailer, which can be that of a deletion. Keys must ascend; key and value must
    /// be shorter than 4 GiB.
    ///
    /// # Errors
    /// [`LevelDbError::Order`] if `key` is not above the one before; [`LevelDbError::File`] if the disk
    /// fails.
    pub(super) fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<(), LevelDbError> {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.key.extend_from_slice(&trailer.to_le_bytes());
        let common = self.key.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        if self.smallest.is_empty() {
            self.smallest = self.key.clone();
        } else {
            let before = user_key(&self.last);
            // The first byte that differs determines the order, unless one key is a prefix of the other.
            let ascends = match (before.get(common), key.get(common)) {
                (Some(before), Some(after)) => before < after,
                _ => before.len() < key.len(),
            };
            if !ascends {
                let [before, after] = [before, key].map(|key| key.to_lower_hex_string());
                return Err(LevelDbError::Order { path: self.path.clone(), before, after });
            }
        }
        if let Some(handle) = self.pending.take() {
            let separator = separator(&self.last, key);
            self.add_index(&separator, handle);
        }
        self.filter.add(key);
        self.data.add(&mut self.out, &self.key, common, value, RESTART_INTERVAL);
        std::mem::swap(&mut self.key, &mut self.last);
        if self.data.len(&self.out) >= BLOCK_SIZE {
            self.finish_data_block()?;
        }
        Ok(())
    }

    /// Length of the file so far in bytes, without filter and index (about 4 % more).
    pub(super) fn size(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    /// Completes the table without syncing it.
    ///
    /// # Panics
    /// If the table has no row: LevelDB has no empty tables.
    pub(super) fn complete(mut self) -> Result<UnsyncedTable, LevelDbError> {
        assert!(!self.smallest.is_empty(), "a table has a row");
        if self.pending.is_none() {
            self.finish_data_block()?;
        }
        if let Some(handle) = self.pending.take() {
            let successor = successor(&self.last);
            self.add_index(&successor, handle);
        }
        let mut filter = std::mem::take(&mut self.filter).finish();
        seal(&mut filter, 0);
        let filter = self.add_sealed(&filter);

        let mut meta_index = Vec::new();
        let mut block = BlockWriter::default();
        let mut handle = Vec::new();
        filter.put(&mut handle);
        block.add(&mut meta_index, filter::META_KEY, 0, &handle, RESTART_INTERVAL);
        block.finish(&mut meta_index);
        let meta_index = self.add_sealed(&meta_index);

        let mut index = std::mem::take(&mut self.index);
        self.index_block.finish(&mut index);
        let index = self.add_sealed(&index);

        self.out.extend_from_slice(&encode_footer(meta_index, index));
        self.write_out()?;
        let Self { number, written: size, smallest, last: largest, .. } = self;
        let meta = TableMeta { number, size, smallest, largest };
        Ok(UnsyncedTable { file: Some(self.file), path: self.path, meta })
    }

    fn finish_data_block(&mut self) -> Result<(), LevelDbError> {
        let offset = self.written + self.data.start as u64;
        self.data.finish(&mut self.out);
        let size = self.size() - offset - TRAILER_LEN as u64;
        self.pending = Some(Handle { offset, size });
        self.filter.start_block(self.size());
        if self.out.len() >= WRITE_SIZE {
            self.write_out()?;
        }
        self.data.begin(&self.out);
        Ok(())
    }

    fn add_index(&mut self, separator: &[u8], handle: Handle) {
        let mut value = Vec::with_capacity(20);
        handle.put(&mut value);
        self.index_block.add(&mut self.index, separator, 0, &value, 1);
    }

    /// Appends a block that ends with its trailer.
    fn add_sealed(&mut self, stored: &[u8]) -> Handle {
        let offset = self.size();
        self.out.extend_from_slice(stored);
        Handle { offset, size: (stored.len() - TRAILER_LEN) as u64 }
    }

    fn write_out(&mut self) -> Result<(), LevelDbError> {
        self.file.write_all(&self.out).during("write", &self.path)?;
        self.written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

/// Returns a short internal key that is at least `last` (internal) and below the user key `next`: LevelDB
/// `FindShortestSeparator`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let user = user_key(last);
    let common = user.iter().zip(next).take_while(|(a, b)| a == b).count();
    match (user.get(common), next.get(common)) {
        (Some(&byte), Some(&limit)) if common + 1 < user.len() && u16::from(byte) + 1 < u16::from(limit) => {
            incremented(user, common, byte)
        }
        _ => last.to_vec(),
    }
}

/// Returns a short internal key that is at least `last` (internal): LevelDB `FindShortSuccessor`.
fn successor(last: &[u8]) -> Vec<u8> {
    let user = user_key(last);
    match user.iter().position(|&byte| byte != 0xff) {
        Some(at) if at + 1 < user.len() => incremented(user, at, user.get(at).copied().unwrap_or_default()),
        _ => last.to_vec(),
    }
}

/// Returns the first internal key of the user key that consists of `user` up to `at`, and `byte` + 1.
fn incremented(user: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut key = user.get(..at).unwrap_or_default().to_vec();
    key.push(byte + 1);
    key.extend_from_slice(&coding::MAX_TRAILER.to_le_bytes());
    key
}
