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
//! [ADR 7]: ../../../../docs/adr/0007-workers-read.md

use crate::stages::{
    block_fault::{BlockFaults, LocatedFault},
    block_source::{Block, BlockSource, Stop},
    completed_blocks::CompletedBlocks,
    method::{Method, UndoUse},
};
use api::error::{Error, ErrorKind};
use chain::blocks::{
    block_check::CheckedBlock,
    chain::{Chain, ChainBlock},
    damage::Damage,
    files::{Files, LocatedBlock},
};
use disk::block_files::{RecordBuffer, RecordFile};
use disk::datadir::FileKind;
use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};
use wire::{BlockArena, BlockView, ByteOffset, FileNo, Height};

/// Number of blocks that a worker takes at once: enough that most spends of young coins are among them.
const BATCH_BLOCKS: u32 = 32;

/// Number of files that are kept open: as many as a node writes at the same time, and some for late workers.
const MAX_OPEN_FILES: usize = 64;

/// Which undo data is read.
#[derive(Clone, Copy)]
pub struct UndoReading {
    /// The first block whose undo data is read.
    pub from: Height,
    /// Whether undo data that cannot be read is taken for missing. Otherwise, it is a fault of its block.
    pub skips_damaged: bool,
}

impl UndoReading {
    /// What a method of matching needs.
    pub fn of(method: &Method) -> Self {
        let skips_damaged = method.undo_use(Height(u32::MAX)) != UndoUse::Required;
        Self { from: method.undo_from(), skips_damaged }
    }
}

/// The block and undo files of a datadir, as a source of blocks.
pub struct FileSource<'a> {
    reader: BlockReader<'a>,
    faults: &'a BlockFaults,
    completed: &'a CompletedBlocks,
    undo: UndoReading,
    threads: u32,
    /// The lowest block that no worker has taken.
    next: AtomicU32,
    /// Number of blocks read.
    read: AtomicU32,
}

/// Reads blocks of a chain, in any order, on any thread.
pub struct BlockReader<'a> {
    chain: &'a Chain,
    files: &'a Files<'a>,
    /// Open files; the last opened comes last.
    open: Mutex<VecDeque<Arc<RecordFile>>>,
}

impl<'a> BlockReader<'a> {
    /// A reader of the blocks of `chain`.
    pub fn new(chain: &'a Chain, files: &'a Files<'a>) -> Self {
        Self { chain, files, open: Mutex::default() }
    }

    /// Returns the block at `height`, and where it is now.
    ///
    /// # Panics
    /// If `height` is above the tip.
    pub fn block(&self, height: Height) -> ChainBlock {
        self.files.block(self.chain, height)
    }

    /// Reads the block at `height`.
    ///
    /// # Errors
    /// Damage to the record; any I/O error.
    pub fn read_block(&self, height: Height, into: &mut RecordBuffer) -> Result<(), Error> {
        let block = self.block(height);
        Ok(self.file(FileKind::Blk, block.file)?.read(block.data_pos, into)?)
    }

    /// Reads the undo data of the block at `height`, if the chain has its position.
    ///
    /// # Errors
    /// Damage to the record; any I/O error.
    pub fn read_undo(&self, height: Height, into: &mut RecordBuffer) -> Result<(), Error> {
        let block = self.chain.block(height);
        into.clear();
        match block.undo_pos {
            Some(pos) => Ok(self.file(FileKind::Rev, block.file)?.read(pos, into)?),
            None => Ok(()),
        }
    }

    fn file(&self, kind: FileKind, number: FileNo) -> Result<Arc<RecordFile>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.iter().rev().find(|file| file.is(kind, number)) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.files.open_records(kind, number)?);
        if open.len() == MAX_OPEN_FILES {
            open.pop_front();
        }
        open.push_back(Arc::clone(&file));
        Ok(file)
    }
}

impl<'a> BlockReader<'a> {
    /// Returns the block at `height` and its files, for messages about it.
    pub const fn located(&self, height: Height) -> LocatedBlock<'a> {
        LocatedBlock { chain: self.chain, files: self.files, height }
    }
}

impl<'a> FileSource<'a> {
    /// Reads all blocks except the `completed` ones, and undo data. Records damage in `faults`.
    pub fn new(
        chain: &'a Chain,
        files: &'a Files<'a>,
        faults: &'a BlockFaults,
        completed: &'a CompletedBlocks,
        undo: UndoReading,
        threads: usize,
    ) -> Self {
        let (reader, threads) = (BlockReader::new(chain, files), threads as u32);
        let (next, read) = (AtomicU32::new(chain.heights().start), AtomicU32::new(0));
        Self { reader, faults, completed, undo, threads, next, read }
    }

    /// Takes the next block of a batch, or of a new one; batches are short when few blocks are left for all
    /// workers.
    fn take(&self, batch: &mut Range<u32>) -> Option<Height> {
        if batch.start == batch.end {
            let end = self.reader.chain.heights().end;
            let len = |next: u32| (end.saturating_sub(next) / (4 * self.threads)).clamp(1, BATCH_BLOCKS);
            let take = |next: u32| (next < end).then(|| next + len(next).min(end - next));
            let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
            *batch = start..take(start)?;
        }
        batch.next().map(Height)
    }

    /// Number of blocks read.
    pub fn read_count(&self) -> u32 {
        self.read.load(Ordering::Relaxed)
    }

    /// Whether undo data of the block at `height` is used.
    pub fn uses_undo(&self, height: Height) -> bool {
        height >= self.undo.from
    }

    /// Takes the next block that is to be read; `None` if none is left, or if `stop` ends it.
    pub fn next(&self, batch: &mut Range<u32>, stop: &dyn Fn(u32) -> Stop) -> Option<Height> {
        loop {
            match stop(self.read_count()) {
                Stop::Not => {}
                Stop::AfterBatch if batch.start < batch.end => {}
                _ => return None,
            }
            let height = self.take(batch)?;
            if !self.completed.has(height) && self.faults.matters(height) {
                return Some(height);
            }
        }
    }

    /// Reads a block, unless the caller has it in memory, and its undo data. Returns false if it is damaged,
    /// which is recorded as a fault.
    pub fn deliver(
        &self,
        height: Height,
        in_memory: Option<CheckedBlock>,
        into: &mut Block,
    ) -> Result<bool, Error> {
        self.read.fetch_add(1, Ordering::Relaxed);
        match self.read_block(height, in_memory, into) {
            Ok(()) => Ok(true),
            // A lower block may have a fault too, which then counts.
            Err(error) if error.kind == ErrorKind::Damaged => {
                let error = error.at_block(height, self.reader.chain.block(height).hash);
                self.faults.record(height, LocatedFault::Error(error));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn read_block(
        &self,
        height: Height,
        in_memory: Option<CheckedBlock>,
        into: &mut Block,
    ) -> Result<(), Error> {
        into.height = height;
        into.claims = None;
        into.facts = match in_memory {
            Some(CheckedBlock { bytes, facts, .. }) => {
                into.block.set(bytes);
                Some(facts)
            }
            None => {
                self.reader.read_block(height, &mut into.block)?;
                None
            }
        };
        if height < self.undo.from {
            into.undo.clear();
            return Ok(());
        }
        match self.reader.read_undo(height, &mut into.undo) {
            Err(error) if error.kind == ErrorKind::Damaged && self.undo.skips_damaged => {
                into.undo.clear();
                Ok(())
            }
            done => done,
        }
    }
}

impl BlockSource for FileSource<'_> {
    fn read(&self, into: &mut Block, stop: &dyn Fn(u32) -> Stop) -> Result<bool, Error> {
        while let Some(height) = self.next(&mut into.batch, stop) {
            if self.deliver(height, None, into)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn damaged(&self, height: Height, damage: &Damage) -> Error {
        let BlockReader { chain, files, .. } = self.reader;
        LocatedBlock { chain, files, height }.damaged(damage)
    }
}

/// A block read by itself, without obfuscation: for sequential validation.
pub struct RawBlock<'a> {
    /// Height and files of the block.
    pub located: LocatedBlock<'a>,
    /// The serialised block.
    pub block: Vec<u8>,
    /// Undo data and checksum; empty for the genesis block, or if they were not read.
    pub undo: Vec<u8>,
}

impl RawBlock<'_> {
    /// Parses the block; ignores what follows it in its record.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is malformed.
    pub fn parse<'b>(&'b self, arena: &'b mut BlockArena) -> Result<BlockView<'b>, Error> {
        self.located.parse(&self.block, arena)
    }
}

/// Reads the block at `height` and, if asked for, its undo data.
///
/// # Errors
/// Any I/O error, and records that are damaged or do not fit into their files.
pub fn read_block<'a>(
    chain: &'a Chain,
    files: &'a Files<'a>,
    height: Height,
    with_undo: bool,
) -> Result<RawBlock<'a>, Error> {
    let position = files.block(chain, height);
    let read = |kind: FileKind, pos: ByteOffset| -> Result<Vec<u8>, Error> {
        let mut buffer = RecordBuffer::default();
        files.open_records(kind, position.file)?.read(pos, &mut buffer)?;
        Ok(buffer.into_bytes())
    };
    let both = || {
        let block = read(FileKind::Blk, position.data_pos)?;
        let undo = position.undo_pos.filter(|_| with_undo).map(|pos| read(FileKind::Rev, pos)).transpose()?;
        Ok((block, undo.unwrap_or_default()))
    };
    let (block, undo) = both().map_err(|error: Error| error.at_block(height, position.hash))?;
    Ok(RawBlock { located: LocatedBlock { chain, files, height }, block, undo })
}
