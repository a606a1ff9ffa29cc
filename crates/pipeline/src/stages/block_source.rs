//! Where workers get blocks from: block and undo files, and what a download has in memory.
//!
//! A source assigns blocks to workers, lowest first, so that all workers together read the chain in order of
//! heights. A block that is stored while the job runs is waited for, and taken from memory if it is kept
//! there.

use crate::stages::{
    block_fault::{BlockFault, BlockFaults},
    completed_blocks::CompletedBlocks,
    method::{Method, UndoUse},
    read::BlockReader,
};
use api::error::{Error, ErrorKind};
use chain::blocks::{
    awaited::AwaitedBlocks,
    block_check::{BlockFacts, CheckedBlock},
    chain::Chain,
    files::Files,
};
use disk::block_files::RecordBuffer;
use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};
use wire::Height;

/// Number of blocks that a worker takes at once: enough that most spends of young coins are among them.
const BATCH_BLOCKS: u32 = 32;

/// A block and its undo data, in buffers that are reused.
#[derive(Default)]
pub struct Block {
    /// Heights of blocks that were assigned to the owner of these buffers and not read yet.
    pub batch: Range<u32>,
    pub height: Height,
    /// The serialised block, and what follows it in its record.
    pub block: RecordBuffer,
    /// What is known of it, if all was checked that can be without other blocks.
    pub facts: Option<BlockFacts>,
    /// The undo data with its checksum; empty if there is none, or it is not needed.
    pub undo: RecordBuffer,
    /// The undo data that a peer claims, if a peer has sent any and it is used.
    pub claims: Option<Vec<u8>>,
}

/// Whether a worker takes another block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It does.
    Not,
    /// It takes the blocks that were assigned to it, and all below completed ones, so that after all workers
    /// no block is missing below another one.
    AfterBatch,
    /// It does not.
    Now,
}

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

/// Delivers the blocks of a chain to any number of workers.
pub struct BlockSource<'a> {
    reader: BlockReader<'a>,
    faults: &'a BlockFaults,
    completed: &'a CompletedBlocks,
    /// Height of the highest completed block.
    completed_to: u32,
    undo: UndoReading,
    threads: u32,
    /// The lowest block that no worker has taken.
    next: AtomicU32,
    /// Number of blocks read.
    read: AtomicU32,
}

impl<'a> BlockSource<'a> {
    /// Delivers all blocks except the `completed` ones, and undo data. Records damage in `faults`.
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
        let completed_to = completed.heights().next_back().map_or(0, |height| height.0);
        Self { reader, faults, completed, completed_to, undo, threads, next, read }
    }

    /// Reads the next block. Returns false if none is left, or if `stop`, called with the number of blocks
    /// read so far, ends it. A block that cannot be delivered is recorded as a fault, and the next one
    /// is read.
    ///
    /// # Errors
    /// Errors that are not about one block, such as an I/O error.
    pub fn read(&self, into: &mut Block, stop: &dyn Fn(u32) -> Stop) -> Result<bool, Error> {
        let BlockReader { chain, files, .. } = self.reader;
        while let Some(height) = self.take_needed(&mut into.batch, stop) {
            let (was_stored, mut kept) = (chain.was_stored(height), None);
            if let Some(awaited) = files.awaited {
                let give_up = || stop(self.read.load(Ordering::Relaxed)) == Stop::Now;
                if !awaited.wait_for(height, was_stored, &give_up) {
                    return Ok(false);
                }
                kept = if was_stored { None } else { awaited.take(height, &chain.block(height).hash) };
            }
            self.read.fetch_add(1, Ordering::Relaxed);
            match self.read_block(height, kept, into) {
                Ok(()) => {
                    let claims = files.awaited.and_then(AwaitedBlocks::claims);
                    if let Some(claims) = claims.filter(|_| !was_stored && height >= self.undo.from) {
                        into.claims = claims.read(height)?;
                    }
                    return Ok(true);
                }
                // A lower block may have a fault too, which then counts.
                Err(error) if error.kind == ErrorKind::Damaged => {
                    let error = error.at_block(height, chain.block(height).hash);
                    self.faults.record(height, BlockFault::Error(error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Takes the next block that is to be read; `None` if none is left, or if `stop` ends it.
    fn take_needed(&self, batch: &mut Range<u32>, stop: &dyn Fn(u32) -> Stop) -> Option<Height> {
        loop {
            match stop(self.read.load(Ordering::Relaxed)) {
                Stop::Not => {}
                Stop::AfterBatch if batch.start < batch.end => {}
                // An interrupt stops workers at once, so a checkpoint may lack blocks below those it has.
                Stop::AfterBatch if self.next.load(Ordering::Relaxed) < self.completed_to => {}
                _ => return None,
            }
            let height = self.take(batch)?;
            if !self.completed.has(height) && self.faults.matters(height) {
                return Some(height);
            }
        }
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

    /// Reads a block, unless it is in memory, and its undo data.
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

#[cfg(test)]
mod tests {
    use super::*;
    use chain::blocks::chain::BlockPosition;
    use digest::obfuscation::Obfuscation;
    use disk::{
        block_files::{BlockFiles, MAX_BLOCK_FILE_LEN},
        datadir::Datadir,
    };
    use rules::ChainParams;
    use testkit::fault::FaultDisk;
    use wire::{ByteOffset, FileNo, Network, Txid};

    const NOT_STORED: BlockPosition = BlockPosition { file: FileNo(0), data_pos: 0, undo_pos: None };

    /// Two blocks, which happen to be equal, are stored after the chain was chosen, and memory suffices for
    /// one of them.
    #[test]
    fn a_block_comes_from_memory_or_from_where_it_was_stored() {
        let dir = tempfile::tempdir().unwrap();
        let (datadir, disk) = (&Datadir::at(dir.path(), Network::Regtest), &FaultDisk::healthy());
        std::fs::create_dir_all(datadir.blocks_dir()).unwrap();
        let (params, obfuscation) = (ChainParams::of(Network::Regtest), Obfuscation::default());
        let (hash, time, bytes) = (params.genesis_hash, params.genesis.time, params.genesis_block());
        let chain = &Chain::from_parts(vec![hash; 2], vec![NOT_STORED; 2], vec![time; 2]);
        let awaited = &AwaitedBlocks::new(2, bytes.len() as u64 + 100, None);
        let files = &Files { disk, datadir, obfuscation, params, verifier: None, awaited: Some(awaited) };
        let (faults, none) = (BlockFaults::default(), CompletedBlocks::none(2));
        let undo = UndoReading { from: Height(u32::MAX), skips_damaged: true };
        let source = BlockSource::new(chain, files, &faults, &none, undo, 1);
        let (mut read, not) = (Block::default(), |_| Stop::Not);

        let block_files = BlockFiles::new(disk, datadir, obfuscation);
        let mut appender = block_files.append_after(Vec::new(), MAX_BLOCK_FILE_LEN);
        let facts = BlockFacts { txids: vec![Txid([1; 32])], legacy_sigops: 7 };
        for height in [0, 1].map(Height) {
            let (file, data_pos) = appender.append_block(height, time, &bytes).unwrap();
            let (bytes, facts) = (bytes.clone(), facts.clone());
            awaited.place(height, file, data_pos, CheckedBlock { hash, bytes, facts });
        }
        appender.flush().unwrap();
        for (height, facts) in [(Height(0), Some(facts)), (Height(1), None)] {
            assert_eq!(chain.block(height).data_pos, ByteOffset(0), "the chain is a value");
            assert!(files.block(chain, height).data_pos > ByteOffset(0));
            assert!(source.read(&mut read, &not).unwrap());
            assert_eq!((read.height, read.block.bytes(), &read.facts), (height, &bytes[..], &facts));
        }
        assert!(!source.read(&mut read, &not).unwrap() && faults.into_lowest().is_none());
    }

    /// Blocks that a checkpoint lacked were still missing in the next pause. Spends of their coins counted as
    /// mismatches, which cost a second pass over all blocks.
    #[test]
    fn after_a_pause_no_block_is_missing_below_one_that_an_interrupted_run_has_completed() {
        let (hash, time) = (Default::default(), Default::default());
        let chain = &Chain::from_parts(vec![hash; 200], vec![NOT_STORED; 200], vec![time; 200]);
        let dir = tempfile::tempdir().unwrap();
        let (datadir, disk) = (&Datadir::at(dir.path(), Network::Regtest), &FaultDisk::healthy());
        let (params, obfuscation) = (ChainParams::of(Network::Regtest), Obfuscation::default());
        let files = &Files { disk, datadir, obfuscation, params, verifier: None, awaited: None };
        let (faults, mut completed) = (BlockFaults::default(), CompletedBlocks::none(200));
        (0..20).chain(32..50).chain(64..70).for_each(|height| completed.add(Height(height)));
        let undo = UndoReading { from: Height(u32::MAX), skips_damaged: true };
        let source = BlockSource::new(chain, files, &faults, &completed, undo, 1);
        let mut batch = 0..0;
        let taken = std::iter::from_fn(|| source.take_needed(&mut batch, &|_| Stop::AfterBatch));
        let expected = (20..32).chain(50..64).chain(70..96);
        assert!(taken.eq(expected.map(Height)));
    }

    #[test]
    fn a_worker_that_must_stop_does_not_wait() {
        let (hash, time) = (Default::default(), Default::default());
        let chain = &Chain::from_parts(vec![hash], vec![NOT_STORED], vec![time]);
        let dir = tempfile::tempdir().unwrap();
        let (datadir, disk) = (&Datadir::at(dir.path(), Network::Regtest), &FaultDisk::healthy());
        let (params, obfuscation) = (ChainParams::of(Network::Regtest), Obfuscation::default());
        let awaited = &AwaitedBlocks::new(1, 0, None);
        let files = &Files { disk, datadir, obfuscation, params, verifier: None, awaited: Some(awaited) };
        let (faults, none) = (BlockFaults::default(), CompletedBlocks::none(1));
        let undo = UndoReading { from: Height(u32::MAX), skips_damaged: true };
        let source = BlockSource::new(chain, files, &faults, &none, undo, 1);
        let asked = std::cell::Cell::new(false);
        let stop = |_| if asked.replace(true) { Stop::Now } else { Stop::Not };
        assert!(!source.read(&mut Block::default(), &stop).unwrap());
    }
}
