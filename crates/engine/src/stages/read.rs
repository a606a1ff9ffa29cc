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

use crate::{
    api::error::{Error, ErrorKind},
    blocks::{
        chain::Chain,
        damage::Damage,
        files::{Files, LocatedBlock},
    },
    stages::{
        block_fault::{BlockFaults, LocatedFault},
        block_source::{Block, BlockSource},
        completed_blocks::CompletedBlocks,
    },
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

/// The block and undo files of a datadir, as a source of blocks.
pub struct FileSource<'a> {
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

impl<'a> FileSource<'a> {
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
        self.file(FileKind::Blk, block.file)?.read(block.data_pos, &mut into.block)?;
        match block.undo_pos {
            Some(pos) if height >= self.undo_from => {
                self.file(FileKind::Rev, block.file)?.read(pos, &mut into.undo)?;
            }
            _ => into.undo.clear(),
        }
        Ok(())
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

impl BlockSource for FileSource<'_> {
    fn read(&self, into: &mut Block, stop: &dyn Fn(u32) -> bool) -> Result<bool, Error> {
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
                    self.faults.record(height, LocatedFault::Error(error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn damaged(&self, height: Height, damage: &Damage) -> Error {
        LocatedBlock { chain: self.chain, files: self.files, height }.damaged(damage)
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
        arena.parse_first(&self.block).map_err(|error| self.located.damaged(&Damage::Block(error)))
    }
}

/// Reads the block at `height` and its undo data.
///
/// # Errors
/// Any I/O error, and records that are damaged or do not fit into their files.
pub fn read_block<'a>(chain: &'a Chain, files: &'a Files<'a>, height: Height) -> Result<RawBlock<'a>, Error> {
    let position = chain.block(height);
    let read = |kind: FileKind, pos: ByteOffset| -> Result<Vec<u8>, Error> {
        let mut buffer = RecordBuffer::default();
        files.open_records(kind, position.file)?.read(pos, &mut buffer)?;
        Ok(buffer.into_bytes())
    };
    let both = || {
        let block = read(FileKind::Blk, position.data_pos)?;
        let undo = position.undo_pos.map(|pos| read(FileKind::Rev, pos)).transpose()?;
        Ok((block, undo.unwrap_or_default()))
    };
    let (block, undo) = both().map_err(|error: Error| error.at_block(height, position.hash))?;
    Ok(RawBlock { located: LocatedBlock { chain, files, height }, block, undo })
}
