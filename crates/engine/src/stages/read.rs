//! Stage read: workers read blocks and their undo data, in height order.
//!
//! A worker takes a batch of the chain, and reads one block after another into its own buffers. The bytes are
//! then in the cache of the core that processes them; memory is bounded by one block per worker; and most
//! spends of young coins reach the worker that has the coins.
//!
//! Core writes blocks as they arrive, out of order by up to 1,024 blocks ([ADR 7]). To make the disk read
//! large consecutive parts nevertheless, and keep it busy while all workers compute, the operating system is
//! asked to read ahead.
//!
//! Neither the block index nor a scan has record lengths that could be trusted, so each record's length is
//! taken from its own frame (`magic 4 | length 4`, before the position in the index) and checked against the
//! file's end and the longest record. A record may be longer than its block: what follows the block is
//! ignored, as in Core (`ReadRawBlock`, `ReadBlock`).
//!
//! [ADR 7]: ../../../../docs/adr/0007-workers-read.md

use crate::{
    chain::{Chain, FileKind, Files, LocatedBlock},
    checkpoint::CompletedBlocks,
    error::{Error, ErrorKind},
    stages::block_fault::{BlockFault, BlockFaults},
};
use disk::{
    fs::ReadAt,
    undo::{CHECKSUM_LEN, MAX_UNDO_LEN},
};
use std::{
    collections::VecDeque,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};
use wire::{BlockArena, BlockView, FileNo, Height};

/// Maximum length of a serialised block (BIP-0141, Core `MAX_BLOCK_SERIALIZED_SIZE`).
pub const MAX_BLOCK_BYTES: usize = 4_000_000;

/// Maximum length of a record of a block file, in bytes (Core `MAX_SIZE`).
const MAX_RECORD_BYTES: usize = 0x0200_0000;

/// Number of blocks that a worker takes at once: enough that most spends of young coins are among them.
const BATCH_BLOCKS: u32 = 32;

/// Number of files that are kept open: as many as a node writes at the same time, and some for late workers.
const MAX_OPEN_FILES: usize = 64;

/// How far the operating system is asked to read ahead in a file, in bytes.
const READ_AHEAD_BYTES: u64 = 16 << 20;

/// A buffer that a huge record has made larger than this, in bytes, is freed.
const MAX_BUFFER_BYTES: usize = 8 << 20;

/// Length of a record's frame before its data: magic and length.
const FRAME_LEN: u64 = 8;

/// The bytes of a record, in memory that is reused.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// Returns the bytes that were read last.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn resize(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() > MAX_BUFFER_BYTES {
            self.bytes = Vec::new();
        }
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.len = len;
        self.bytes.get_mut(..len).unwrap_or_default()
    }
}

/// An open file of records.
struct RecordFile {
    kind: FileKind,
    number: FileNo,
    path: PathBuf,
    file: Box<dyn ReadAt>,
    len: u64,
    /// Position up to which the operating system was asked to read ahead.
    read_ahead_end: AtomicU64,
}

impl RecordFile {
    fn open(files: &Files<'_>, kind: FileKind, number: FileNo) -> Result<Self, Error> {
        let (path, (file, len)) = (files.path(kind, number), files.open(kind, number)?);
        Ok(Self { kind, number, path, file, len, read_ahead_end: AtomicU64::new(0) })
    }

    /// Reads the data of the record at `pos`, with its checksum if it has one, and removes the obfuscation.
    fn read(&self, files: &Files<'_>, pos: u64, buffer: &mut Buffer) -> Result<(), Error> {
        let start = pos - FRAME_LEN;
        let damaged = |detail: String| {
            Error::damaged(format!("{detail}; restore the file, {}", self.kind.remedy()))
                .in_file(&self.path, Some(start))
        };
        let beyond = |what: String| {
            damaged(format!(
                "{what} beyond the end of the file ({} bytes): the file is truncated, or the block index \
                 belongs to other files (run again with --scan to rebuild without the index)",
                self.len
            ))
        };
        if pos > self.len {
            return Err(beyond("the record starts".to_owned()));
        }
        let mut frame = [0; FRAME_LEN as usize];
        self.read_exact_at(&mut frame, start)?;
        files.obfuscation.apply(&mut frame, start);
        let [m0, m1, m2, m3, len @ ..] = frame;
        let (magic, expected) = ([m0, m1, m2, m3], files.network.magic());
        if magic != expected {
            return Err(damaged(format!(
                "no record starts here: found {magic:02x?}, expected the magic {expected:02x?}; the file, \
                 xor.dat or the block index is damaged (run again with --scan to rebuild without the index)"
            )));
        }
        let len = u32::from_le_bytes(len) as usize;
        let (longest, checksum_len) = match self.kind {
            FileKind::Blk => (MAX_RECORD_BYTES, 0),
            // A checksum, not counted in the length, follows undo data.
            FileKind::Rev => (MAX_UNDO_LEN, CHECKSUM_LEN),
        };
        if len > longest {
            return Err(damaged(format!(
                "the record claims to have {len} bytes, but none has more than {longest}; the file is \
                 damaged, or xor.dat belongs to other files"
            )));
        }
        let record_len = len + checksum_len;
        if pos + record_len as u64 > self.len {
            return Err(beyond(format!("the record of {len} bytes runs")));
        }
        // A block is never longer; the rest of a longer record does not belong to it.
        let needed = if self.kind == FileKind::Blk { len.min(MAX_BLOCK_BYTES) } else { record_len };
        let bytes = buffer.resize(needed);
        self.read_exact_at(bytes, pos)?;
        files.obfuscation.apply(bytes, pos);
        self.read_ahead(pos + record_len as u64);
        Ok(())
    }

    fn read_exact_at(&self, bytes: &mut [u8], pos: u64) -> Result<(), Error> {
        self.file.read_exact_at(bytes, pos).map_err(|source| Files::io(self.path.clone(), pos, &source))
    }

    /// Asks the operating system to read ahead after `pos`, in large steps. Concurrent callers may ask twice
    /// for the same part.
    fn read_ahead(&self, pos: u64) {
        let requested_end = self.read_ahead_end.load(Ordering::Relaxed).max(pos);
        let end = self.len.min(pos + READ_AHEAD_BYTES);
        if end >= requested_end + READ_AHEAD_BYTES / 4 || end == self.len && end > requested_end {
            self.read_ahead_end.store(end, Ordering::Relaxed);
            self.file.read_ahead(requested_end, end - requested_end);
        }
    }
}

/// Assigns the blocks of the chain to workers, lowest first, and reads them.
pub struct Reader<'a> {
    chain: &'a Chain,
    files: &'a Files<'a>,
    faults: &'a BlockFaults,
    completed: &'a CompletedBlocks,
    undo_from: Height,
    threads: u32,
    /// The lowest block that no worker has taken.
    next: AtomicU32,
    /// Number of blocks read.
    read: AtomicU32,
    /// Open files; the last opened comes last.
    open: Mutex<VecDeque<Arc<RecordFile>>>,
}

/// A block and its undo data, in buffers that are reused.
#[derive(Default)]
pub struct Block {
    /// Blocks that the worker has taken and not read yet.
    batch: Range<u32>,
    /// Height in the chain.
    pub height: Height,
    /// The serialised block.
    pub block: Buffer,
    /// The undo data with its checksum; empty if there is none, or it is not needed.
    pub undo: Buffer,
}

impl<'a> Reader<'a> {
    /// Reads all blocks except the `completed` ones, and the undo data of those from `undo_from` on. Records
    /// damage in `faults`.
    #[must_use]
    pub fn new(
        chain: &'a Chain,
        files: &'a Files<'a>,
        faults: &'a BlockFaults,
        completed: &'a CompletedBlocks,
        undo_from: Height,
        threads: usize,
    ) -> Self {
        let (next, read, open) = Default::default();
        Self { chain, files, faults, completed, undo_from, threads: threads as u32, next, read, open }
    }

    /// Reads the next block. Returns false if none is left, or if `stop`, called with the number of blocks
    /// read so far, returns true. A damaged block is recorded as a fault, and the next one is read.
    ///
    /// # Errors
    /// Any I/O error, and missing files.
    pub fn read(&self, into: &mut Block, stop: impl Fn(u32) -> bool) -> Result<bool, Error> {
        loop {
            if stop(self.read.load(Ordering::Relaxed)) {
                return Ok(false);
            }
            let Some(height) = self.take(&mut into.batch) else { return Ok(false) };
            if self.completed.has(height) || !self.faults.matters(height) {
                continue;
            }
            self.read.fetch_add(1, Ordering::Relaxed);
            match self.read_block(height, into) {
                Ok(()) => return Ok(true),
                // A lower block may have a fault too, which then counts.
                Err(error) if error.kind == ErrorKind::Damaged => {
                    let error = error.at_block(height, self.chain.block(height).hash);
                    self.faults.record(height, BlockFault::Damaged(error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the next block of a batch, or of a new one; batches are short when few blocks are left for all
    /// workers.
    fn take(&self, batch: &mut Range<u32>) -> Option<Height> {
        if batch.start == batch.end {
            let end = self.chain.block_count() as u32;
            let len = |next: u32| (end.saturating_sub(next) / (4 * self.threads)).clamp(1, BATCH_BLOCKS);
            let take = |next: u32| (next < end).then(|| next + len(next).min(end - next));
            let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
            *batch = start..take(start)?;
        }
        batch.next().map(Height)
    }

    fn read_block(&self, height: Height, into: &mut Block) -> Result<(), Error> {
        let block = self.chain.block(height);
        into.height = height;
        self.file(FileKind::Blk, block.file)?.read(self.files, block.data_pos.0, &mut into.block)?;
        match block.undo_pos {
            Some(pos) if height >= self.undo_from => {
                self.file(FileKind::Rev, block.file)?.read(self.files, pos.0, &mut into.undo)
            }
            _ => {
                into.undo.len = 0;
                Ok(())
            }
        }
    }

    fn file(&self, kind: FileKind, number: FileNo) -> Result<Arc<RecordFile>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.iter().rev().find(|file| (file.kind, file.number) == (kind, number)) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(RecordFile::open(self.files, kind, number)?);
        if open.len() == MAX_OPEN_FILES {
            open.pop_front();
        }
        open.push_back(Arc::clone(&file));
        Ok(file)
    }
}

/// A block read by itself, without obfuscation: for sequential validation.
pub struct RawBlock<'a> {
    /// Height and files of the block.
    pub located: LocatedBlock<'a>,
    /// The serialised block.
    pub block: Vec<u8>,
    /// Undo data and checksum; empty for the genesis block.
    pub undo: Vec<u8>,
}

impl RawBlock<'_> {
    /// Parses the block; ignores what follows it in its record.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is malformed.
    pub fn parse<'b>(&'b self, arena: &'b mut BlockArena) -> Result<BlockView<'b>, Error> {
        arena
            .parse_first(&self.block)
            .map_err(|error| self.located.damaged(FileKind::Blk, &error.to_string()))
    }
}

/// Reads the block at `height` and its undo data.
///
/// # Errors
/// Any I/O error, and records that are damaged or do not fit into their files.
pub fn read_block<'a>(chain: &'a Chain, files: &'a Files<'a>, height: Height) -> Result<RawBlock<'a>, Error> {
    let position = chain.block(height);
    let read = |kind: FileKind, pos: u64| -> Result<Vec<u8>, Error> {
        let mut buffer = Buffer::default();
        RecordFile::open(files, kind, position.file)?.read(files, pos, &mut buffer)?;
        Ok(buffer.bytes)
    };
    let both = || {
        let block = read(FileKind::Blk, position.data_pos.0)?;
        let undo = position.undo_pos.map(|pos| read(FileKind::Rev, pos.0)).transpose()?;
        Ok((block, undo.unwrap_or_default()))
    };
    let (block, undo) = both().map_err(|error: Error| error.at_block(height, position.hash))?;
    Ok(RawBlock { located: LocatedBlock { chain, files, height }, block, undo })
}
