//! Reads sorted runs.

use super::entry::{MALFORMED, Previous};
use super::{
    BLOCK_HEADER_LEN, FOOTER_LEN, HEADER_LEN, MAGIC, MAX_CONTENT_LEN, SHARDS, Shard, SortedRunMeta, VERSION,
    damaged,
};
use crate::error::DiskError;
use std::ops::Range;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, ReadAt};
use wire::{Coin, Entry, Network, Reader};

/// A run, open for reading by any number of threads.
pub struct SortedRunReader {
    file: Box<dyn ReadAt>,
    path: PathBuf,
    meta: SortedRunMeta,
    /// The 256 shards, and the footer as if it were another one.
    index: Vec<Shard>,
}

impl SortedRunReader {
    /// Opens a run, and reads its header and footer.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if it is of another network or version, not a run, truncated, or
    /// altered in header or footer; [`DiskError::File`].
    pub fn open(disk: &dyn Disk, path: &Path, network: Network) -> Result<Self, DiskError> {
        Self::from_file(disk.open(path).during("open", path)?, path, network)
    }

    /// Like [`SortedRunReader::open`], for a file that is open already.
    pub(super) fn from_file(file: Box<dyn ReadAt>, path: &Path, network: Network) -> Result<Self, DiskError> {
        let len = file.len().during("read", path)?;
        let mut header = [0; HEADER_LEN];
        let Some(footer_at) = len.checked_sub((HEADER_LEN + FOOTER_LEN) as u64) else {
            return Err(damaged(path, len, "truncated: it is shorter than a header and a footer"));
        };
        let footer_at = footer_at + HEADER_LEN as u64;
        file.read_exact_at(&mut header, 0).during("read", path)?;
        check_header(path, &header, network)?;
        let mut footer = vec![0; FOOTER_LEN];
        file.read_exact_at(&mut footer, footer_at).during("read", path)?;
        let (meta, index) = SortedRunMeta::read_footer(&footer, &header, len)
            .map_err(|flaw| damaged(path, footer_at, flaw))?;
        Ok(Self { file, path: path.to_owned(), meta, index })
    }

    /// The totals in the footer.
    pub const fn meta(&self) -> &SortedRunMeta {
        &self.meta
    }

    /// Returns a cursor over the entries of a range of the 256 shards. It allocates `buffer_bytes` and reads
    /// pieces of that size, but at least one block (76 KB), and no more than all the entries.
    pub fn cursor(&self, shards: Range<usize>, buffer_bytes: usize) -> SortedRunCursor<'_> {
        let end = shards.end.min(SHARDS);
        let start = shards.start.min(end);
        let first = self.shard(start);
        let len = self.shard(end).offset - first.offset;
        let buffer_len_max = buffer_bytes.max(BLOCK_HEADER_LEN + MAX_CONTENT_LEN);
        SortedRunCursor {
            run: self,
            shard: start,
            end,
            left: if start < end { first.entries } else { 0 },
            checksum: first.checksum,
            buffer: vec![0; usize::try_from(len).map_or(buffer_len_max, |len| buffer_len_max.min(len))],
            filled: 0,
            base: first.offset,
            at: 0,
            block_end: 0,
            block_entries: 0,
            previous: Previous::before(start as u8),
            is_spend: false,
            out: 0..0,
        }
    }

    /// The shard with this number; for 256, the footer.
    pub(super) fn shard(&self, number: usize) -> Shard {
        self.index.get(number).copied().unwrap_or(Shard { offset: 0, entries: 0, checksum: 0 })
    }
}

fn check_header(path: &Path, header: &[u8; HEADER_LEN], network: Network) -> Result<(), DiskError> {
    let mut reader = Reader::new(header);
    if reader.array() != Ok(MAGIC) {
        return Err(damaged(path, 0, "not a peregrine run"));
    }
    let foreign = |offset, flaw| Err(DiskError::DamagedWorkFile { path: path.to_owned(), offset, flaw });
    let version = reader.u32().unwrap_or_default();
    if version != VERSION {
        let flaw =
            format!("written by another version of peregrine (format {version}, this one reads {VERSION})");
        return foreign(8, flaw);
    }
    if reader.array() != Ok(network.magic()) {
        return foreign(12, format!("written for another network than {network}"));
    }
    Ok(())
}

/// A cursor over the entries of a run, in order.
pub struct SortedRunCursor<'r> {
    run: &'r SortedRunReader,
    /// The shard being read, and the one to stop at.
    shard: usize,
    end: usize,
    /// Entries of the shard after the blocks read so far.
    left: u64,
    /// The chained checksum of the blocks read so far.
    checksum: u32,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were read from the file.
    filled: usize,
    /// Offset of the buffer in the file.
    base: u64,
    /// Offset of the next entry in the buffer, end of its block, and the number of entries up to there.
    at: usize,
    block_end: usize,
    block_entries: u32,
    /// The entry returned last.
    previous: Previous,
    is_spend: bool,
    /// Range of its coin's `out` in the buffer.
    out: Range<usize>,
}

impl SortedRunCursor<'_> {
    /// Returns the next entry, which borrows the cursor's buffer; `None` after the last.
    ///
    /// # Errors
    /// [`DiskError::DamagedWorkFile`] if the run is not as it was written, at this and all later calls;
    /// [`DiskError::File`].
    #[inline]
    pub fn advance(&mut self) -> Result<Option<Entry<'_>>, DiskError> {
        if self.block_entries == 0 && !self.next_block()? {
            return Ok(None);
        }
        let bytes = self.buffer.get(self.at..self.block_end).unwrap_or_default();
        let decoded = self.previous.decode(bytes).map_err(|flaw| self.damaged(flaw))?;
        self.is_spend = decoded.is_spend;
        self.out = self.at + decoded.out.start..self.at + decoded.out.end;
        self.at = self.out.end;
        self.block_entries -= 1;
        Ok(self.current())
    }

    /// Returns the entry that was returned last, `None` if there is none. A merge compares its cursors by it.
    #[inline]
    pub fn current(&self) -> Option<Entry<'_>> {
        let out = self.buffer.get(self.out.clone()).filter(|out| !out.is_empty())?;
        let Previous { outpoint, code } = self.previous;
        Some(Entry { is_spend: self.is_spend, outpoint, coin: Coin { code, out } })
    }

    /// Moves to the next block that has entries. Returns false after the last.
    fn next_block(&mut self) -> Result<bool, DiskError> {
        self.out = 0..0;
        if self.at != self.block_end {
            return Err(self.damaged("bytes follow the last entry of a block"));
        }
        while self.left == 0 {
            if self.shard == self.end {
                return Ok(false);
            }
            let next = self.run.shard(self.shard + 1);
            if self.position() != next.offset || self.checksum != next.checksum {
                return Err(self.damaged("the end of a shard does not match the footer"));
            }
            self.shard += 1;
            if self.shard < self.end {
                self.left = next.entries;
                self.previous = Previous::before(self.shard as u8);
            }
        }
        let shard_bytes_left = self.run.shard(self.shard + 1).offset - self.position();
        if shard_bytes_left < BLOCK_HEADER_LEN as u64 {
            return Err(self.damaged("entries are missing"));
        }
        self.fill(BLOCK_HEADER_LEN)?;
        let mut header = Reader::new(self.buffer.get(self.at..).unwrap_or_default());
        let (Ok(checksum), Ok(len), Ok(entries)) = (header.u32(), header.u32(), header.u32()) else {
            return Err(self.damaged(MALFORMED));
        };
        let len = len as usize;
        let fits = len <= MAX_CONTENT_LEN && len as u64 <= shard_bytes_left - BLOCK_HEADER_LEN as u64;
        if !fits || entries == 0 || u64::from(entries) > self.left {
            return Err(self.damaged(format!("a block of {len} bytes with {entries} entries is impossible")));
        }
        self.fill(BLOCK_HEADER_LEN + len)?;
        let end = self.at + BLOCK_HEADER_LEN + len;
        let summed = self.buffer.get(self.at + 4..end).unwrap_or_default();
        if crc32c::crc32c_append(self.checksum, summed) != checksum {
            return Err(self.damaged("checksum mismatch in a block"));
        }
        self.checksum = checksum;
        self.left -= u64::from(entries);
        self.at += BLOCK_HEADER_LEN;
        self.block_end = end;
        self.block_entries = entries;
        Ok(true)
    }

    /// Ensures that the buffer has `needed` bytes from `at`; the range must have that many left.
    fn fill(&mut self, needed: usize) -> Result<(), DiskError> {
        if self.filled - self.at >= needed {
            return Ok(());
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        self.base += self.at as u64;
        self.filled -= self.at;
        (self.at, self.block_end) = (0, 0);
        let from = self.base + self.filled as u64;
        let rest = usize::try_from(self.run.shard(self.end).offset - from).unwrap_or(usize::MAX);
        let free = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let len = free.len().min(rest);
        let free = free.get_mut(..len).unwrap_or_default();
        self.run.file.read_exact_at(free, from).during("read", &self.run.path)?;
        self.filled += len;
        Ok(())
    }

    /// Offset of the next block or entry in the file.
    fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    #[cold]
    fn damaged(&self, flaw: impl AsRef<str>) -> DiskError {
        damaged(&self.run.path, self.position(), flaw)
    }
}
