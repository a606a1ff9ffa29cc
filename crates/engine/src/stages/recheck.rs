//! Before an interrupted run is gone on with: completed blocks whose files have changed since are read again.
//!
//! Their effects are in the runs, and the join will prove those. But a file that is not what it was must not
//! go unnoticed: the datadir would have a good chainstate over bad blocks. bitcoind, used in between, changes
//! files too, as it appends to the last ones. So neither a new length nor a new time says that anything is
//! wrong; the blocks themselves do, by header hash, merkle root, witness commitment and undo checksum.

use crate::{
    chain::{FileKind, LocatedBlock},
    checkpoint::CompletedBlocks,
    error::Error,
    event::Event,
    job::{Job, PROGRESS_INTERVAL},
    stages::{
        block_fault::{BlockFault, BlockFaults},
        block_hashes::BlockHashes,
        check::claims_of,
        read::{Block, Reader},
    },
    threads::spawn,
};
use crossbeam::channel::{RecvTimeoutError, bounded};
use disk::undo::{CHECKSUM_LEN, UndoArena};
use rules::{BlockContext, ChainParams, Class, check_block};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use wire::{BlockArena, FileNo, Height};

/// Reads the completed blocks of these files, and sees that each is the one it was.
///
/// # Errors
/// Damage: which block is not; I/O errors; [`crate::ErrorKind::Interrupted`].
pub fn recheck(job: &Job<'_>, completed: &CompletedBlocks, changed: &[FileNo]) -> Result<(), Error> {
    let chain = &job.plan.chain;
    let mut others = CompletedBlocks::none(chain.block_count());
    let mut count = 0;
    for (file, heights) in chain.by_file() {
        let is_changed = changed.contains(&file);
        for &height in heights {
            if is_changed && completed.has(height) {
                count += 1;
            } else {
                others.add(height);
            }
        }
    }
    if count == 0 {
        return Ok(());
    }
    let files = changed.len();
    job.sink.event(Event::Note(format!(
        "{files} block files have changed since then: their {count} blocks that are done are read once more"
    )));
    let faults = BlockFaults::default();
    let reader = Reader::new(chain, job.files, &faults, &others, job.method.undo_from(), job.threads());
    let recheck = Recheck { job, faults: &faults, reader: &reader, bytes: AtomicU64::new(0) };
    recheck.all()?;
    drop(reader);
    if job.interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    match faults.into_lowest() {
        Some((_, BlockFault::Damaged(error))) => {
            let detail =
                format!("the file has changed since an interrupted run has read it: {}", error.detail);
            Err(Error { detail, ..error })
        }
        _ => Ok(()),
    }
}

/// What all threads share.
struct Recheck<'a> {
    job: &'a Job<'a>,
    faults: &'a BlockFaults,
    reader: &'a Reader<'a>,
    /// Bytes of blocks read.
    bytes: AtomicU64,
}

impl Recheck<'_> {
    fn all(&self) -> Result<(), Error> {
        let (done, all_done) = bounded::<()>(0);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.job.threads())
                .map(|_| {
                    let done = done.clone();
                    spawn(scope, "recheck", move || {
                        let _done = done;
                        self.work()
                    })
                })
                .collect();
            drop(done);
            while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(PROGRESS_INTERVAL) {
                self.job.progress(0, self.bytes.load(Ordering::Relaxed));
            }
            workers.into_iter().try_for_each(|worker| worker?.join().map_err(|_| Error::panicked())?)
        })
    }

    fn work(&self) -> Result<(), Error> {
        let (mut block, mut room) = (Block::default(), Room::default());
        while self.reader.read(&mut block, |_| self.job.interrupt.load(Ordering::Relaxed))? {
            if let Err(error) = self.look_at(&block, &mut room) {
                self.faults.record(block.height, BlockFault::Damaged(error));
            }
            self.bytes.fetch_add(block.block.bytes().len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn look_at(&self, read: &Block, room: &mut Room) -> Result<(), Error> {
        let (job, height) = (self.job, read.height);
        let chain = &job.plan.chain;
        let located = LocatedBlock { chain, files: job.files, height };
        let Room { arena, undo_arena, hashes } = room;
        let block = arena
            .parse_first(read.block.bytes())
            .map_err(|error| located.damaged(FileKind::Blk, &error.to_string()))?;
        let undo = read.undo.bytes();
        let (undo_data, checksum) = undo.split_at(undo.len().saturating_sub(CHECKSUM_LEN));
        hashes.of_block(&block, undo_data);
        if hashes.block != chain.block(height).hash {
            return Err(located.damaged(FileKind::Blk, &format!("it is another one, {}", hashes.block)));
        }
        let checked = check_block(&BlockContext {
            params: ChainParams::of(job.files.network),
            height,
            block: &block,
            txids: &hashes.txids,
            wtxids: &hashes.wtxids,
            median_time_past_prev: chain.median_time_before(height),
        });
        // A rule that it breaks as it stands is none of this: it was completed.
        if let Err(violation) = checked
            && violation.rule.class == Class::Mutated
        {
            return Err(located.mutated(&violation));
        }
        if height > Height(0) && height >= job.method.undo_from() {
            claims_of(&block, (undo_data, checksum, undo_arena), &hashes.undo_checksum)
                .map_err(|flaw| located.damaged(FileKind::Rev, &flaw))?;
        }
        Ok(())
    }
}

/// Room that is used again.
#[derive(Default)]
struct Room {
    arena: BlockArena,
    undo_arena: UndoArena,
    hashes: BlockHashes,
}
