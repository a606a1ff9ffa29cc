//! Before an interrupted job resumes: reads completed blocks again if their files have changed since.
//!
//! Their effects are in sorted runs, and matching will prove those. But a damaged file must not go unnoticed:
//! the datadir would have a correct chainstate and damaged blocks. If bitcoind was used in between, it has
//! appended to the last files, so a new length or time alone does not mean that a file is damaged; the blocks
//! are checked, by header hash, merkle root, witness commitment and undo checksum.

use crate::{
    job::Job,
    stages::{
        block_fault::{BlockFaults, LocatedFault},
        block_source::{Block, BlockSource, Stop},
        check::claims_of,
        completed_blocks::CompletedBlocks,
        method::UndoUse,
        partial_state::PartialState,
        read::{FileSource, UndoReading},
    },
};
use api::{error::Error, event::Event, note::Note, remedy::Remedy};
use chain::{
    blocks::{
        block_check::{BlockFlaw, ExpectedBlock},
        block_hashes::BlockHashes,
        damage::Damage,
    },
    threads::on_all,
};
use disk::undo::{CHECKSUM_LEN, UndoArena};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use wire::{BlockArena, FileNo, Height};

/// Reads the completed blocks of these files, and checks that each is unchanged, with its undo data unless
/// that was made.
///
/// # Errors
/// Damage, with the first changed block; any I/O error; [`api::error::ErrorKind::Interrupted`].
pub fn recheck(job: &Job<'_>, partial: &PartialState, changed: &[FileNo]) -> Result<(), Error> {
    let (chain, completed) = (&job.plan.chain, &partial.completed);
    let made = partial.made.iter().map(|&(height, _)| height).collect();
    let mut skipped = CompletedBlocks::none(chain.block_count());
    (0..=chain.tip_height().0).map(Height).filter(|&height| !chain.was_stored(height)).for_each(|height| {
        skipped.add(height);
    });
    let mut count = 0;
    for (file, heights) in chain.by_file() {
        let is_changed = changed.contains(&file);
        for &height in heights {
            if is_changed && completed.has(height) {
                count += 1;
            } else {
                skipped.add(height);
            }
        }
    }
    if count == 0 {
        return Ok(());
    }
    let files = changed.len();
    job.sink.event(Event::Note(Note::FilesChanged { files, blocks: count }));
    let faults = BlockFaults::default();
    let source =
        FileSource::new(chain, job.files, &faults, &skipped, UndoReading::of(job.method), job.threads());
    let (bytes, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let recheck = Recheck { job, made, faults: &faults, source: &source, bytes, failed };
    let tick = || job.progress(0, recheck.bytes.load(Ordering::Relaxed));
    let done = on_all(job.threads(), "recheck", &recheck.failed, || recheck.work(), tick);
    done.into_iter().collect::<Result<(), _>>()?;
    drop(source);
    if job.interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    match faults.into_lowest() {
        Some((_, LocatedFault::Error(mut error))) => {
            error.detail = format!("the file has changed since an interrupted run read it: {}", error.detail);
            Err(error)
        }
        _ => Ok(()),
    }
}

/// What all threads share.
struct Recheck<'a> {
    job: &'a Job<'a>,
    /// Blocks whose undo data was made.
    made: HashSet<Height>,
    faults: &'a BlockFaults,
    source: &'a dyn BlockSource,
    /// Bytes of blocks read.
    bytes: AtomicU64,
    /// Whether a thread could not be started.
    failed: AtomicBool,
}

impl Recheck<'_> {
    fn work(&self) -> Result<(), Error> {
        let (mut block, mut buffers) = (Block::default(), Buffers::default());
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        let stop = |_| if is_set(self.job.interrupt) || is_set(&self.failed) { Stop::Now } else { Stop::Not };
        while self.source.read(&mut block, &stop)? {
            if let Err(damage) = self.check_unchanged(&block, &mut buffers) {
                let error = self.source.damaged(block.height, &damage);
                // Such undo data is made by a job that starts over.
                let is_made = matches!(damage, Damage::Undo(_))
                    && self.job.method.undo_use(block.height) == UndoUse::IfSound;
                let error = error.with_remedies(is_made.then_some(Remedy::StartOver));
                self.faults.record(block.height, LocatedFault::Error(error));
            }
            self.bytes.fetch_add(block.block.bytes().len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_unchanged(&self, read: &Block, buffers: &mut Buffers) -> Result<(), Damage> {
        let (job, height) = (self.job, read.height);
        let expected = ExpectedBlock::at(&job.plan.chain, job.files.params, height);
        let Buffers { arena, undo_arena, hashes } = buffers;
        let block = arena.parse_first(read.block.bytes()).map_err(Damage::Block)?;
        let undo = read.undo.bytes();
        let (undo_data, checksum) = undo.split_at(undo.len().saturating_sub(CHECKSUM_LEN));
        // Violations do not matter here: the block was completed.
        if let Err(BlockFlaw::Damaged(damage)) = expected.check(&block, undo_data, hashes) {
            return Err(damage);
        }
        let is_used = match job.method.undo_use(height) {
            UndoUse::Required => true,
            UndoUse::IfSound => !self.made.contains(&height),
            UndoUse::NotNeeded | UndoUse::Made => false,
        };
        if height > Height(0) && is_used {
            claims_of(&block, undo_data, checksum, undo_arena, &hashes.undo_checksum)
                .map_err(Damage::Undo)?;
        }
        Ok(())
    }
}

/// Buffers that are reused.
#[derive(Default)]
struct Buffers {
    arena: BlockArena,
    undo_arena: UndoArena,
    hashes: BlockHashes,
}
