//! Stage read: blocks and their undo data, in the order of heights, by those who check them.
//!
//! A worker takes a stretch of the chain, and reads one block after the other into buffers of its own. The
//! bytes are then in the cache of the core that works on them; what is in memory is bounded by a block for
//! each worker; and most spends of young coins come to the worker who has the coins.
//!
//! Core writes blocks as they arrive, in up to 1,024 blocks' disorder ([ADR 7]). So that a disk reads large
//! pieces one after the other nevertheless, and has work while all workers compute, the system is told what
//! to read ahead.
//!
//! Neither the block index nor a scan holds record lengths that could be trusted, so each record's length is
//! taken from its own frame (`magic 4 | length 4`, before the position the index gives) and checked against
//! the file's end and the longest record. A record may be longer than its block: what follows the block is
//! not looked at, as in Core (`ReadRawBlock`, `ReadBlock`).
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

/// No block's serialisation is longer (BIP-0141, Core `MAX_BLOCK_SERIALIZED_SIZE`).
pub const MAX_BLOCK_BYTES: usize = 4_000_000;

/// No record of a block file is longer, in bytes (Core `MAX_SIZE`).
const MAX_RECORD_BYTES: usize = 0x0200_0000;

/// Blocks that a worker takes at once: enough that most spends of young coins are among them.
const STRETCH: u32 = 32;

/// Files that are kept open: as many as a node downloads at a time, and some for those who are late.
const OPEN_FILES: usize = 64;

/// How far the system is told to read ahead in a file, in bytes.
const AHEAD: u64 = 16 << 20;

/// A buffer that a huge record has made larger than this, in bytes, is not kept.
const BUFFER_MAX: usize = 8 << 20;

/// Length of a record's frame, before its data: magic and length.
const FRAME_LEN: u64 = 8;

/// The bytes of a record, in room that is used again.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// What was read last.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() > BUFFER_MAX {
            self.bytes = Vec::new();
        }
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.len = len;
        self.bytes.get_mut(..len).unwrap_or_default()
    }
}

/// A file of records.
struct RecordFile {
    kind: FileKind,
    number: FileNo,
    path: PathBuf,
    file: Box<dyn ReadAt>,
    len: u64,
    /// How far the system was told to read.
    ahead: AtomicU64,
}

impl RecordFile {
    fn open(files: &Files<'_>, kind: FileKind, number: FileNo) -> Result<Self, Error> {
        let (path, (file, len)) = (files.path(kind, number), files.open(kind, number)?);
        Ok(Self { kind, number, path, file, len, ahead: AtomicU64::new(0) })
    }

    /// Reads the data of the record at `pos`, with its checksum if it has one, and takes the XOR off.
    fn read(&self, files: &Files<'_>, pos: u64, buffer: &mut Buffer) -> Result<(), Error> {
        let start = pos - FRAME_LEN;
        let damaged = |detail: String| {
            Error::damaged(format!("{detail}; restore the file, {}", self.kind.remedy()))
                .in_file(&self.path, Some(start))
        };
        let beyond = |what: String| {
            damaged(format!(
                "{what} beyond the end of the file ({} bytes): the file is truncated, or the block index is \
                 of other files (rerun with --scan to do without the index)",
                self.len
            ))
        };
        if pos > self.len {
            return Err(beyond("the record lies".to_owned()));
        }
        let mut frame = [0; FRAME_LEN as usize];
        self.read_exact_at(&mut frame, start)?;
        files.obfuscation.apply(&mut frame, start);
        let [m0, m1, m2, m3, len @ ..] = frame;
        let (magic, expected) = ([m0, m1, m2, m3], files.network.magic());
        if magic != expected {
            return Err(damaged(format!(
                "no record starts here: found {magic:02x?}, expected the magic {expected:02x?}; the file, \
                 xor.dat or the block index is damaged (rerun with --scan to do without the index)"
            )));
        }
        let len = u32::from_le_bytes(len) as usize;
        let (longest, checksum_len) = match self.kind {
            FileKind::Blk => (MAX_RECORD_BYTES, 0),
            // Undo data are followed by a checksum that is not counted in.
            FileKind::Rev => (MAX_UNDO_LEN, CHECKSUM_LEN),
        };
        if len > longest {
            return Err(damaged(format!(
                "the record claims {len} bytes, none has more than {longest}; the file is damaged, or \
                 xor.dat is not its own"
            )));
        }
        let whole = len + checksum_len;
        if pos + whole as u64 > self.len {
            return Err(beyond(format!("the record of {len} bytes runs")));
        }
        // Whatever the rest of a longer record is, it is not of a block.
        let wanted = if self.kind == FileKind::Blk { len.min(MAX_BLOCK_BYTES) } else { whole };
        let bytes = buffer.room(wanted);
        self.read_exact_at(bytes, pos)?;
        files.obfuscation.apply(bytes, pos);
        self.read_ahead(pos + whole as u64);
        Ok(())
    }

    fn read_exact_at(&self, bytes: &mut [u8], pos: u64) -> Result<(), Error> {
        self.file.read_exact_at(bytes, pos).map_err(|source| Files::io(self.path.clone(), pos, &source))
    }

    /// Tells the system that what follows `pos` will be read, in large steps. Who comes second may tell it
    /// again.
    fn read_ahead(&self, pos: u64) {
        let told = self.ahead.load(Ordering::Relaxed).max(pos);
        let end = self.len.min(pos + AHEAD);
        if end >= told + AHEAD / 4 || end == self.len && end > told {
            self.ahead.store(end, Ordering::Relaxed);
            self.file.read_ahead(told, end - told);
        }
    }
}

/// Hands out the blocks of the chain, lowest first, and reads them.
pub struct Reader<'a> {
    chain: &'a Chain,
    files: &'a Files<'a>,
    faults: &'a BlockFaults,
    completed: &'a CompletedBlocks,
    undo_from: Height,
    threads: u32,
    /// The lowest block that no one has taken.
    next: AtomicU32,
    /// How many blocks were read.
    read: AtomicU32,
    /// The one that was opened last comes last.
    open: Mutex<VecDeque<Arc<RecordFile>>>,
}

/// A block and its undo data, in buffers that are used again.
#[derive(Default)]
pub struct Block {
    /// What the worker has taken and not read yet.
    stretch: Range<u32>,
    /// Height in the chain.
    pub height: Height,
    /// The serialised block.
    pub block: Buffer,
    /// The undo data with its checksum; empty if there is none, or it is not wanted.
    pub undo: Buffer,
}

impl<'a> Reader<'a> {
    /// Of all blocks but the `completed` ones. Undo data is read of those from `undo_from` on. Damage goes to
    /// `faults`.
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

    /// Reads the next block. False if there is none left, or `stop`, which is told how many were read so far,
    /// says so. A block that is damaged becomes a fault, and the next one is read.
    ///
    /// # Errors
    /// I/O errors, and missing files.
    pub fn read(&self, into: &mut Block, stop: impl Fn(u32) -> bool) -> Result<bool, Error> {
        loop {
            if stop(self.read.load(Ordering::Relaxed)) {
                return Ok(false);
            }
            let Some(height) = self.take(&mut into.stretch) else { return Ok(false) };
            if self.completed.has(height) || !self.faults.matters(height) {
                continue;
            }
            self.read.fetch_add(1, Ordering::Relaxed);
            match self.read_block(height, into) {
                Ok(()) => return Ok(true),
                // What lies below it may be at fault as well, and then comes first.
                Err(error) if error.kind == ErrorKind::Damaged => {
                    let error = error.at_block(height, self.chain.block(height).hash);
                    self.faults.record(height, BlockFault::Damaged(error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next block of a stretch, or of a new one: a short one if there are few left for all workers.
    fn take(&self, stretch: &mut Range<u32>) -> Option<Height> {
        if stretch.start == stretch.end {
            let end = self.chain.block_count() as u32;
            let len = |next: u32| (end.saturating_sub(next) / (4 * self.threads)).clamp(1, STRETCH);
            let take = |next: u32| (next < end).then(|| next + len(next).min(end - next));
            let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
            *stretch = start..take(start)?;
        }
        stretch.next().map(Height)
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
        if open.len() == OPEN_FILES {
            open.pop_front();
        }
        open.push_back(Arc::clone(&file));
        Ok(file)
    }
}

/// One block by itself, without obfuscation: for the judge, who goes by height.
pub struct RawBlock<'a> {
    /// Which one it is.
    pub located: LocatedBlock<'a>,
    /// The serialised block.
    pub block: Vec<u8>,
    /// Undo data and checksum; empty for the genesis block.
    pub undo: Vec<u8>,
}

impl RawBlock<'_> {
    /// Parses the block, whatever follows it in its record.
    ///
    /// # Errors
    /// Damage if it is malformed.
    pub fn parse<'b>(&'b self, arena: &'b mut BlockArena) -> Result<BlockView<'b>, Error> {
        arena
            .parse_first(&self.block)
            .map_err(|error| self.located.damaged(FileKind::Blk, &error.to_string()))
    }
}

/// Reads the block at `height` and its undo data.
///
/// # Errors
/// I/O errors, and records that do not fit their files.
pub fn read_block<'a>(chain: &'a Chain, files: &'a Files<'a>, height: Height) -> Result<RawBlock<'a>, Error> {
    let place = chain.block(height);
    let read = |kind: FileKind, pos: u64| -> Result<Vec<u8>, Error> {
        let mut buffer = Buffer::default();
        RecordFile::open(files, kind, place.file)?.read(files, pos, &mut buffer)?;
        Ok(buffer.bytes)
    };
    let both = || {
        let block = read(FileKind::Blk, place.data_pos.0)?;
        let undo = place.undo_pos.map(|pos| read(FileKind::Rev, pos.0)).transpose()?;
        Ok((block, undo.unwrap_or_default()))
    };
    let (block, undo) = both().map_err(|error: Error| error.at_block(height, place.hash))?;
    Ok(RawBlock { located: LocatedBlock { chain, files, height }, block, undo })
}
