//! `NNNNNN.ldb` (`.sst` before 2013): rows sorted by internal key. Written by LevelDB `TableBuilder` and by
//! `TableWriter`, and never changed after that: a crash leaves a complete table or one that no MANIFEST
//! lists.
//!
//! ```text
//! file                                     footer, 48 bytes
//!    data blocks                              meta index handle, index handle: offset and size varints each
//!    filter block (see filter)                zeros up to byte 40
//!    meta index block                         magic 8: db4775248b80fb57 (little-endian)
//!    index block
//!    footer
//!
//! block                                    entry of a block
//!    entries                                  shared varint: length of the prefix shared with the key before
//!    offsets of restarts, 4 bytes each        unshared varint, value length varint
//!    number of restarts, 4 bytes              the unshared bytes of the key, the value
//! after each block
//!    1 byte: compression (0 none)
//!    4 bytes: masked CRC-32C of block and compression byte
//! ```
//! At a restart, `shared` is 0: every 16 entries of a data block, and every entry of an index block. A data
//! block has internal keys. For each data block, the index has a key that is at least its last one and below
//! the next block's first one, and the block's handle. The meta index has the filter's name and handle. The
//! filter block has no entries and no restarts. Data blocks have about 4 KiB, files in a chainstate 32 MiB.

use std::cmp::Ordering;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::coding::{Input, masked_crc, put_varint, split_internal};
use super::manifest::TableMeta;
use super::{LevelDbError, filter};
use vfs::{During as _, FileError, ReadAt};

/// Length of the trailer after each block, in bytes.
pub(super) const TRAILER_LEN: usize = 5;
/// Length of a footer in bytes.
pub(super) const FOOTER_LEN: usize = 48;
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;

/// The compression byte of uncompressed blocks.
pub(super) const UNCOMPRESSED: u8 = 0;

/// Maximum length of a block in bytes. Data blocks have 4 KiB or one larger row (a node's rows stay below 4
/// MiB), an index 1 % of its table.
const MAX_BLOCK_LEN: u64 = 256 << 20;

/// Bytes that a cursor reads at once: enough for the full speed of a disk, little compared with the memory of
/// a rebuild.
const READ_AHEAD: u64 = 256 << 10;

/// Position of a block: file offset, and size without trailer, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Handle {
    fn take(input: &mut Input<'_>) -> Option<Self> {
        Some(Self { offset: input.varint()?, size: input.varint()? })
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.size);
    }

    /// Length of block and trailer in bytes.
    fn stored_size(self) -> u64 {
        self.size + TRAILER_LEN as u64
    }

    /// File offset of the end of its trailer.
    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)?.checked_add(TRAILER_LEN as u64)
    }
}

/// Encodes the footer, a table's last 48 bytes.
pub(super) fn encode_footer(meta_index: Handle, index: Handle) -> Vec<u8> {
    let mut footer = Vec::with_capacity(FOOTER_LEN);
    meta_index.put(&mut footer);
    index.put(&mut footer);
    footer.resize(FOOTER_LEN - 8, 0);
    footer.extend_from_slice(&MAGIC.to_le_bytes());
    footer
}

/// A decoded entry. Its key consists of the first `shared` bytes of the key before it, and `unshared`.
struct Entry<'a> {
    shared: usize,
    unshared: &'a [u8],
    value: &'a [u8],
    /// Offset of the value in the entry.
    value_start: usize,
}

/// Decodes the entry at the start of `entries`.
#[inline]
fn decode_entry(entries: &[u8]) -> Option<Entry<'_>> {
    let (lengths, rest) = match entries.split_first_chunk::<3>() {
        Some((&bytes, rest)) if bytes.iter().all(|&byte| byte < 0x80) => (bytes.map(usize::from), rest),
        _ => {
            let mut rest = Input(entries);
            let mut length = || usize::try_from(rest.varint32()?).ok();
            ([length()?, length()?, length()?], rest.0)
        }
    };
    let [shared, unshared, value] = lengths;
    let (unshared, rest) = rest.split_at_checked(unshared)?;
    Some(Entry { shared, unshared, value: rest.get(..value)?, value_start: entries.len() - rest.len() })
}

/// Decodes the entry at the start of `entries`. `key`, that of the entry before, becomes its own.
#[inline]
fn next_entry<'a>(entries: &'a [u8], key: &mut Vec<u8>) -> Option<Entry<'a>> {
    let entry = decode_entry(entries)?;
    if entry.shared > key.len() {
        return None;
    }
    key.truncate(entry.shared);
    key.extend_from_slice(entry.unshared);
    Some(entry)
}

/// Returns the length of the entries of `block`, without the restarts.
fn entries_len(block: &[u8]) -> Option<usize> {
    let (_, count) = block.split_last_chunk()?;
    let restarts = usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_add(1)?.checked_mul(4)?;
    block.len().checked_sub(restarts)
}

/// Calls `each` with every key and value of a block.
fn each_entry(block: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Option<()>) -> Option<()> {
    let mut rest = block.get(..entries_len(block)?)?;
    let mut key = Vec::new();
    while !rest.is_empty() {
        let entry = next_entry(rest, &mut key)?;
        each(&key, entry.value)?;
        rest = rest.get(entry.value_start + entry.value.len()..)?;
    }
    Some(())
}

/// The index entry of a data block.
struct IndexEntry {
    /// End of its separator, which is a user key, in [`Table::separators`].
    separator_end: usize,
    handle: Handle,
}

/// An open table, with the index in memory and the data in the file.
pub(super) struct Table {
    path: PathBuf,
    file: Box<dyn ReadAt>,
    index: Vec<IndexEntry>,
    separators: Vec<u8>,
    filter: Vec<u8>,
}

impl Table {
    /// Reads and verifies footer and index of the table `file`; `live` is its entry in the MANIFEST. The
    /// filter, which only saves time, is kept in memory if it is sound, and `keep_filter` is set.
    pub(super) fn open(
        file: Box<dyn ReadAt>,
        path: PathBuf,
        live: &TableMeta,
        keep_filter: bool,
    ) -> Result<Self, LevelDbError> {
        let mut table = Self { path, file, index: Vec::new(), separators: Vec::new(), filter: Vec::new() };
        let len = table.file.len().during("measure", &table.path)?;
        if len != live.size || len < FOOTER_LEN as u64 {
            let flaw = format!("the file ends here, but at byte {} in the MANIFEST", live.size);
            return Err(table.damaged(len, flaw));
        }
        let footer_offset = len - FOOTER_LEN as u64;
        let mut footer = [0; FOOTER_LEN];
        table.read(&mut footer, footer_offset)?;
        let (handles, magic) = footer.split_last_chunk().unwrap_or((&[], &[0; 8]));
        if *magic != MAGIC.to_le_bytes() {
            return Err(table.damaged(len - 8, "the magic number of a table is missing"));
        }
        let mut rest = Input(handles);
        let (Some(meta_index), Some(index)) = (Handle::take(&mut rest), Handle::take(&mut rest)) else {
            return Err(table.damaged(footer_offset, "the footer is malformed"));
        };
        table.read_index(index, footer_offset)?;
        let filter = match table.read_filter(meta_index, footer_offset) {
            // As for LevelDB, which reads more blocks then.
            Err(LevelDbError::Damaged { .. }) => Vec::new(),
            done => done?,
        };
        if keep_filter {
            table.filter = filter;
        }
        Ok(table)
    }

    fn read_index(&mut self, handle: Handle, limit: u64) -> Result<(), LevelDbError> {
        let block = self.block(handle, limit)?;
        let mut data_end = 0;
        each_entry(&block, |key, value| {
            let handle = Handle::take(&mut Input(value))?;
            let end = handle.end()?;
            if handle.offset < data_end || end > limit || handle.size > MAX_BLOCK_LEN {
                return None;
            }
            data_end = end;
            self.separators.extend_from_slice(split_internal(key)?.0);
            self.index.push(IndexEntry { separator_end: self.separators.len(), handle });
            // LevelDB stores these keys in full.
            (self.separators.len() as u64 <= limit).then_some(())
        })
        .ok_or_else(|| self.damaged(handle.offset, "the index is malformed"))
    }

    /// Reads the filter block. Returns an empty one if the table has none of the known kind.
    fn read_filter(&self, meta_index: Handle, limit: u64) -> Result<Vec<u8>, LevelDbError> {
        let mut filter = None;
        each_entry(&self.block(meta_index, limit)?, |key, value| {
            if key == filter::META_KEY {
                filter = Some(Handle::take(&mut Input(value))?);
            }
            Some(())
        })
        .ok_or_else(|| self.damaged(meta_index.offset, "the meta index is malformed"))?;
        filter.map_or(Ok(Vec::new()), |handle| self.block(handle, limit))
    }

    /// Reads and verifies all data blocks.
    pub(super) fn check_blocks(&self) -> Result<(), LevelDbError> {
        let len = self.file.len().during("measure", &self.path)?;
        self.index.iter().try_for_each(|entry| self.block(entry.handle, len).map(drop))
    }

    /// Reads and verifies one block, which must end before `limit`.
    fn block(&self, handle: Handle, limit: u64) -> Result<Vec<u8>, LevelDbError> {
        let size = usize::try_from(handle.size).ok().filter(|_| handle.size <= MAX_BLOCK_LEN);
        let (Some(size), true) = (size, handle.end().is_some_and(|end| end <= limit)) else {
            let flaw = format!("a block of {} bytes extends beyond byte {limit}", handle.size);
            return Err(self.damaged(handle.offset, flaw));
        };
        let mut stored = vec![0; size + TRAILER_LEN];
        self.read(&mut stored, handle.offset)?;
        self.verify(&stored, handle.offset)?;
        stored.truncate(size);
        Ok(stored)
    }

    /// Verifies the trailer of a block `stored` at `offset`, and returns the block.
    fn verify<'a>(&self, stored: &'a [u8], offset: u64) -> Result<&'a [u8], LevelDbError> {
        let Some((summed, sum)) = stored.split_last_chunk() else {
            return Err(self.damaged(offset, "a block lacks its checksum"));
        };
        let (sum, found) = (u32::from_le_bytes(*sum), masked_crc(summed));
        if sum != found {
            let flaw = format!("block checksum is {sum:08x}, but the bytes have {found:08x}");
            return Err(self.damaged(offset, flaw));
        }
        match summed.split_last() {
            Some((&UNCOMPRESSED, block)) => Ok(block),
            found => {
                let flaw = format!(
                    "a block is marked as compressed (type {}; 1 is snappy), and Bitcoin Core neither writes \
                     nor reads such blocks: another program has changed this database, or it is damaged",
                    found.map_or(0, |(kind, _)| *kind)
                );
                Err(self.damaged(offset, flaw))
            }
        }
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), FileError> {
        self.file.read_exact_at(buf, offset).during("read", &self.path)
    }

    fn damaged(&self, offset: u64, flaw: impl Into<String>) -> LevelDbError {
        LevelDbError::damaged(&self.path, offset, flaw)
    }

    fn separator(&self, block: usize) -> Option<&[u8]> {
        // The separators are concatenated.
        let end = |block: usize| self.index.get(block).map(|entry| entry.separator_end);
        self.separators.get(block.checked_sub(1).map_or(Some(0), end)?..end(block)?)
    }

    /// Returns the number of the first data block that can have a user key not below `key`. It is found
    /// sooner if it is near the block `guess`, or if that is 0.
    pub(super) fn find_block(&self, key: &[u8], guess: usize) -> usize {
        let is_below = |block: usize| self.separator(block).is_some_and(|separator| separator < key);
        let is_after = guess.checked_sub(1).is_none_or(is_below);
        let mut start = if is_after { guess } else { 0 };
        let (mut end, mut step) = if is_after { (start, 1) } else { (guess - 1, 0) };
        while step > 0 && is_below(end) {
            (start, end, step) = (end + 1, (end + step).min(self.index.len()), step * 2);
        }
        while start < end {
            let middle = start.midpoint(end);
            if is_below(middle) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// Whether the data block with this number can have a user key whose hash for filters is `hash`. If there
    /// is no such block, it cannot.
    pub(super) fn may_have(&self, block: usize, hash: u32) -> bool {
        self.index.get(block).is_some_and(|entry| {
            self.filter.is_empty() || filter::may_contain(&self.filter, entry.handle.offset, hash)
        })
    }

    /// Looks for a row of `key` that `is_row` accepts by its trailer, in the data block with this number.
    pub(super) fn search(
        &self,
        block: usize,
        key: &[u8],
        is_row: impl Fn(u64) -> bool,
        buffer: &mut BlockBuffer,
    ) -> Result<Search, LevelDbError> {
        let Some(entry) = self.index.get(block) else { return Ok(Search::Beyond) };
        let offset = entry.handle.offset;
        if buffer.number != Some(block) {
            buffer.number = None;
            buffer.stored.resize(usize::try_from(entry.handle.stored_size()).unwrap_or(usize::MAX), 0);
            self.read(&mut buffer.stored, offset)?;
            self.verify(&buffer.stored, offset)?;
            buffer.number = Some(block);
        }
        buffer.search(key, is_row).ok_or_else(|| self.damaged(offset, "a data block is malformed"))
    }
}

/// The result of a search for a key in a data block.
pub(super) enum Search {
    /// A row: [`BlockBuffer::row`].
    Row,
    /// A greater key.
    Absent,
    /// No greater key: rows of the key can be in the next block.
    Beyond,
}

/// A data block that was read, and the row that was found in it.
#[derive(Default)]
pub(super) struct BlockBuffer {
    number: Option<usize>,
    /// The block and its trailer.
    stored: Vec<u8>,
    /// Internal key of the row.
    key: Vec<u8>,
    trailer: u64,
    value: Range<usize>,
}

impl BlockBuffer {
    /// Returns trailer and value of the row that was found last.
    pub(super) fn row(&self) -> (u64, &[u8]) {
        (self.trailer, self.stored.get(self.value.clone()).unwrap_or_default())
    }

    /// Returns `None` if the block is malformed.
    fn search(&mut self, key: &[u8], is_row: impl Fn(u64) -> bool) -> Option<Search> {
        let block = self.stored.get(..self.stored.len().checked_sub(TRAILER_LEN)?)?;
        let entries_len = entries_len(block)?;
        let (entries, restarts) = block.split_at_checked(entries_len)?;
        let (restarts, _) = restarts.as_chunks::<4>();
        let offset_of = |restart: &[u8; 4]| u32::from_le_bytes(*restart) as usize;
        let is_below = |restart: &[u8; 4]| {
            let entry = entries.get(offset_of(restart)..).and_then(decode_entry);
            entry.and_then(|entry| split_internal(entry.unshared)).is_some_and(|(user, _)| user < key)
        };
        // The last word is the number of restarts.
        let restarts = restarts.split_last()?.1;
        let below = restarts.partition_point(is_below);
        let mut at = below.checked_sub(1).and_then(|last| restarts.get(last)).map_or(0, offset_of);
        self.key.clear();
        while at < entries_len {
            let entry = next_entry(entries.get(at..)?, &mut self.key)?;
            let start = at + entry.value_start;
            at = start + entry.value.len();
            let (user, trailer) = split_internal(&self.key)?;
            match user.cmp(key) {
                Ordering::Equal if is_row(trailer) => {
                    (self.trailer, self.value) = (trailer, start..at);
                    return Some(Search::Row);
                }
                Ordering::Greater => return Some(Search::Absent),
                Ordering::Less | Ordering::Equal => {}
            }
        }
        Some(Search::Beyond)
    }
}

/// A cursor over the rows of a table, which reads ahead.
pub(super) struct TableCursor {
    table: Arc<Table>,
    next_block: usize,
    /// Bytes of the file from `window_offset`.
    window: Vec<u8>,
    window_offset: u64,
    /// Range of the current block's remaining entries in `window`.
    entries: Range<usize>,
    /// Internal key of the current row.
    key: Vec<u8>,
    value: Range<usize>,
}

impl TableCursor {
    /// Returns a cursor at the first row whose user key is not below `start`, and whether there is one.
    pub(super) fn from(table: Arc<Table>, start: &[u8]) -> Result<(Self, bool), LevelDbError> {
        let next_block = table.find_block(start, 0);
        let (window, key) = (Vec::new(), Vec::new());
        let mut cursor =
            Self { table, next_block, window, window_offset: 0, entries: 0..0, key, value: 0..0 };
        let found = cursor.skip_to(start)?;
        Ok((cursor, found))
    }

    /// Moves to the first row whose user key is not below `start`. Returns false if there is none.
    fn skip_to(&mut self, start: &[u8]) -> Result<bool, LevelDbError> {
        while self.step()? {
            if self.row().0 >= start {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to the next row. Returns false if there is none.
    #[inline]
    pub(super) fn step(&mut self) -> Result<bool, LevelDbError> {
        while self.entries.is_empty() {
            let Some(entry) = self.table.index.get(self.next_block) else { return Ok(false) };
            self.load(entry.handle)?;
            self.next_block += 1;
        }
        let entries = self.window.get(self.entries.clone()).unwrap_or_default();
        let Some(entry) = next_entry(entries, &mut self.key) else {
            return Err(self.malformed("an entry extends beyond its block"));
        };
        if self.key.len() < 8 {
            return Err(self.malformed("an internal key has fewer than 8 bytes"));
        }
        let start = self.entries.start + entry.value_start;
        self.value = start..start + entry.value.len();
        self.entries.start = self.value.end;
        Ok(true)
    }

    #[cold]
    fn malformed(&self, flaw: &str) -> LevelDbError {
        self.table.damaged(self.window_offset + self.entries.start as u64, flaw)
    }

    /// Makes the data block at `handle`, which was validated with the index, the current one.
    fn load(&mut self, handle: Handle) -> Result<(), LevelDbError> {
        let table = Arc::clone(&self.table);
        let in_window = handle.offset.checked_sub(self.window_offset);
        let window_len = self.window.len() as u64;
        let start = match in_window {
            Some(start) if start.saturating_add(handle.stored_size()) <= window_len => start,
            _ => {
                let data_end =
                    table.index.last().map_or(0, |last| last.handle.offset + last.handle.stored_size());
                let len = handle.stored_size().max(READ_AHEAD).min(data_end - handle.offset);
                self.window.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
                table.read(&mut self.window, handle.offset)?;
                self.window_offset = handle.offset;
                0
            }
        };
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(handle.stored_size()).unwrap_or(usize::MAX));
        let block = table.verify(self.window.get(start..end).unwrap_or_default(), handle.offset)?;
        let len = entries_len(block).ok_or_else(|| table.damaged(handle.offset, "no restarts in a block"))?;
        self.entries = start..start + len;
        self.key.clear();
        Ok(())
    }

    /// Returns user key, trailer and value of the current row.
    #[inline]
    pub(super) fn row(&self) -> (&[u8], u64, &[u8]) {
        let (user, trailer) = split_internal(&self.key).unwrap_or_default();
        (user, trailer, self.window.get(self.value.clone()).unwrap_or_default())
    }
}
