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

use api::error::{Error, ErrorKind};
use chain::blocks::{
    block_hashes::BlockHashes,
    chain::{Chain, ChainBlock},
    files::{Files, LocatedBlock},
};
use chain::threads::lock;
use disk::{
    block_files::{RecordBuffer, RecordFile},
    datadir::FileKind,
    undo::{CHECKSUM_LEN, UndoArena, checksum},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use wire::{BlockArena, BlockHash, FileNo, Height};

/// Number of files that are kept open: as many as a node writes at the same time, and some for late workers.
const MAX_OPEN_FILES: usize = 64;

/// The buffers in which a thread reads one block after another.
#[derive(Default)]
pub struct BlockBuffers {
    /// The block that was read last, and what follows it in its record.
    pub block: RecordBuffer,
    /// Its undo data, and the checksum; empty if it was not read.
    pub undo: RecordBuffer,
    pub arena: BlockArena,
    pub undo_arena: UndoArena,
    pub hashes: BlockHashes,
}

/// Returns the undo data of a record, and the checksum that follows it.
pub fn split_checksum(record: &[u8]) -> (&[u8], &[u8]) {
    record.split_at(record.len().saturating_sub(CHECKSUM_LEN))
}

/// Reads blocks of a chain, in any order, on any thread.
pub struct BlockReader<'a> {
    pub chain: &'a Chain,
    pub files: &'a Files<'a>,
    /// Open files; the last opened comes last.
    open: Mutex<VecDeque<Arc<RecordFile>>>,
}

impl<'a> BlockReader<'a> {
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

    pub const fn located(&self, height: Height) -> LocatedBlock<'a> {
        LocatedBlock { chain: self.chain, files: self.files, height }
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

    /// Reads the block at `height` and, if asked for, its undo data, as far as the chain has its position.
    /// Returns where it is.
    ///
    /// # Errors
    /// Damage to the records; any I/O error.
    pub fn read(
        &self,
        height: Height,
        with_undo: bool,
        into: &mut BlockBuffers,
    ) -> Result<LocatedBlock<'a>, Error> {
        into.undo.clear();
        let block = self.read_block(height, &mut into.block);
        let read =
            block.and_then(|()| if with_undo { self.read_undo(height, &mut into.undo) } else { Ok(()) });
        read.map_err(|error| error.at_block(height, self.chain.block(height).hash))?;
        Ok(self.located(height))
    }

    /// Whether the undo file has this undo data for the block at `height`, whose parent has the hash `prev`.
    /// `buffer` is reused.
    ///
    /// # Errors
    /// Any I/O error that is not about this undo data.
    pub fn has_undo(
        &self,
        height: Height,
        prev: &BlockHash,
        undo: &[u8],
        buffer: &mut RecordBuffer,
    ) -> Result<bool, Error> {
        match self.read_undo(height, buffer) {
            Err(error) if error.kind != ErrorKind::Damaged && !error.is_of_medium() => Err(error),
            read => {
                let (data, sum) = split_checksum(buffer.bytes());
                Ok(read.is_ok() && data == undo && *sum == checksum(prev, undo))
            }
        }
    }

    fn file(&self, kind: FileKind, number: FileNo) -> Result<Arc<RecordFile>, Error> {
        let mut open = lock(&self.open);
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
