//! Writes sorted runs.

use super::entry::{Previous, is_out};
use super::{
    BLOCK_HEADER_LEN, BLOCK_LEN, HEADER_LEN, MAGIC, MAX_CONTENT_LEN, SHARDS, Shard, SortedRunMeta, VERSION,
};
use crate::error::DiskError;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use vfs::{Disk, During as _, WriteFile};
use wire::coin::chainstate_key_order;
use wire::{Entry, NetSize, Network};

/// Writes a run from its first entry to its last.
pub struct SortedRunWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    /// Bytes not written yet: closed blocks, then the open one, whose header is blank.
    buffer: Vec<u8>,
    /// Buffer size in bytes at which closed blocks are written.
    limit: usize,
    /// Bytes of content at which a block ends, at most [`BLOCK_LEN`].
    pub(super) block_len: usize,
    /// Bytes of the file before the buffer.
    written: u64,
    /// Offset of the open block's header in the buffer.
    block: usize,
    block_entries: u32,
    /// The chained checksum of all closed blocks.
    checksum: u32,
    previous: Previous,
    /// The shards begun so far.
    index: Vec<Shard>,
    net: Vec<NetSize>,
    spends: u64,
}

impl SortedRunWriter {
    /// Creates the file, which must not exist yet. The writer needs `buffer_bytes` and 100 KB of memory. It
    /// writes pieces of about `buffer_bytes`, and at least one block (64 KiB).
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        network: Network,
        buffer_bytes: usize,
    ) -> Result<Self, DiskError> {
        let file = disk.create(path).during_creation(path)?;
        let mut buffer = Vec::with_capacity(buffer_bytes + BLOCK_HEADER_LEN + MAX_CONTENT_LEN + HEADER_LEN);
        buffer.extend(MAGIC);
        buffer.extend(VERSION.to_le_bytes());
        buffer.extend(network.magic());
        let mut writer = Self {
            file,
            path: path.to_owned(),
            limit: buffer_bytes,
            block_len: BLOCK_LEN,
            written: 0,
            block: buffer.len(),
            block_entries: 0,
            checksum: crc32c::crc32c(&buffer),
            buffer,
            previous: Previous::default(),
            index: Vec::with_capacity(SHARDS + 1),
            net: Vec::with_capacity(SHARDS),
            spends: 0,
        };
        writer.begin_shard();
        Ok(writer)
    }

    /// Appends an entry. Its key may equal that of the entry before it, whether creation or spend.
    ///
    /// # Errors
    /// [`DiskError::CallerError`] if it is out of order, or its coin is not a compressed output; nothing is
    /// appended then. [`DiskError::File`] if the disk fails; the run is unusable then.
    #[inline]
    pub fn add(&mut self, entry: &Entry<'_>) -> Result<(), DiskError> {
        if chainstate_key_order(&self.previous.outpoint, &entry.outpoint) == Ordering::Greater {
            return Err(self.caller_error(format!("{} is not in order", entry.outpoint)));
        }
        if !is_out(entry.coin.out) {
            return Err(self.caller_error(format!("the coin {} is malformed", entry.outpoint)));
        }
        let shard = usize::from(entry.outpoint.txid.0[0]);
        while self.index.len() <= shard {
            self.close_block()?;
            self.begin_shard();
        }
        if self.block_entries == 0 {
            self.block = self.buffer.len();
            self.buffer.extend([0; BLOCK_HEADER_LEN]);
        }
        self.previous.encode(entry, &mut self.buffer);
        self.block_entries += 1;
        self.count(entry);
        if self.buffer.len() - self.block >= BLOCK_HEADER_LEN + self.block_len {
            self.close_block()?;
        }
        Ok(())
    }

    /// Writes the rest. When it returns, the content is on the medium; the file's name also needs
    /// [`Disk::sync_dir`].
    pub fn finish(mut self) -> Result<SortedRunMeta, DiskError> {
        let meta = self.write_rest()?;
        self.file.sync().during("sync", &self.path)?;
        Ok(meta)
    }

    /// Like [`SortedRunWriter::finish`], but leaves it to the caller to sync the file before it must last.
    pub fn finish_unsynced(mut self) -> Result<SortedRunMeta, DiskError> {
        self.write_rest()
    }

    fn write_rest(&mut self) -> Result<SortedRunMeta, DiskError> {
        while self.index.len() <= SHARDS {
            self.close_block()?;
            self.begin_shard();
        }
        self.flush()?;
        let (footer, meta) = SortedRunMeta::footer(&self.index, std::mem::take(&mut self.net), self.spends);
        self.file.write_all(&footer).during("write", &self.path)?;
        Ok(meta)
    }

    fn caller_error(&self, flaw: String) -> DiskError {
        DiskError::CallerError { dir: self.path.clone(), flaw }
    }

    /// Begins the next shard, or the footer after the last one. All blocks must be closed.
    fn begin_shard(&mut self) {
        let offset = self.written + self.buffer.len() as u64;
        let shard = self.index.len();
        self.index.push(Shard { offset, entries: 0, checksum: self.checksum });
        if shard < SHARDS {
            self.previous = Previous::before(shard as u8);
            self.net.push(NetSize::default());
        }
    }

    fn count(&mut self, entry: &Entry<'_>) {
        self.spends += u64::from(entry.is_spend);
        if let (Some(shard), Some(net)) = (self.index.last_mut(), self.net.last_mut()) {
            shard.entries += 1;
            let one = NetSize::of_coin(entry.outpoint.vout, entry.coin);
            *net = if entry.is_spend { *net - one } else { *net + one };
        }
    }

    /// Fills in the header of the open block, if there is one, and writes the buffer if it is large enough.
    fn close_block(&mut self) -> Result<(), DiskError> {
        if self.block_entries == 0 {
            return Ok(());
        }
        let open = self.buffer.get_mut(self.block..).unwrap_or_default();
        let content_len = (open.len() - BLOCK_HEADER_LEN) as u32;
        if let Some((checksum, summed)) = open.split_first_chunk_mut::<4>() {
            if let Some(([len, entries], _)) = summed.as_chunks_mut::<4>().0.split_first_chunk_mut() {
                (*len, *entries) = (content_len.to_le_bytes(), self.block_entries.to_le_bytes());
            }
            self.checksum = crc32c::crc32c_append(self.checksum, summed);
            *checksum = self.checksum.to_le_bytes();
        }
        self.block_entries = 0;
        if self.buffer.len() >= self.limit { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.file.write_all(&self.buffer).during("write", &self.path)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
