//! Before an interrupted job resumes: reads completed blocks again if their files have changed since.
//!
//! Their effects are in sorted runs, and matching will prove those. But a damaged file must not go unnoticed:
//! the datadir would have a correct chainstate and damaged blocks. If bitcoind was used in between, it has
//! appended to the last files, so a new length or time alone does not mean that a file is damaged; the blocks
//! are checked, by header hash, merkle root, witness commitment and undo checksum.

use crate::{
    job::Job,
    stages::{
        check::claims_of,
        completed_blocks::CompletedBlocks,
        method::UndoUse,
        partial_state::PartialState,
        read::{BlockBuffers, BlockReader, split_checksum},
    },
};
use api::{
    error::{Error, ErrorKind},
    event::Event,
    note::Note,
    remedy::Remedy,
};
use chain::blocks::damage::Damage;
use std::collections::HashSet;
use wire::{FileNo, Height};

/// Reads the completed blocks of these files, and checks that each is unchanged, with its undo data unless
/// that was made.
///
/// # Errors
/// Damage, with the first changed block; any I/O error; [`ErrorKind::Interrupted`].
pub fn recheck(job: &Job<'_>, partial: &PartialState, changed: &[FileNo]) -> Result<(), Error> {
    let chain = &job.plan.chain;
    let made: HashSet<Height> = partial.made.iter().map(|&(height, _)| height).collect();
    let mut blocks = CompletedBlocks::none(chain.block_count());
    for (_, heights) in chain.by_file().filter(|(file, _)| changed.contains(file)) {
        heights
            .iter()
            .filter(|height| partial.completed.has(**height))
            .for_each(|&height| blocks.add(height));
    }
    if blocks.count() == 0 {
        return Ok(());
    }
    job.watch
        .sink
        .event(Event::Note(Note::FilesChanged { files: changed.len(), blocks: blocks.count() as usize }));
    let walk = job.walk();
    walk.each(chain.heights(), |buffers, (), height| {
        if !blocks.has(height) {
            return Ok(());
        }
        check_unchanged(job, &walk.reader, buffers, height, made.contains(&height)).map_err(|mut error| {
            if error.kind == ErrorKind::Damaged {
                error.detail =
                    format!("the file has changed since an interrupted run read it: {}", error.detail);
            }
            error
        })
    })
}

/// Checks that a block is the one that was completed, and its undo data sound, unless that `is_made`.
fn check_unchanged(
    job: &Job<'_>,
    reader: &BlockReader<'_>,
    buffers: &mut BlockBuffers,
    height: Height,
    is_made: bool,
) -> Result<(), Error> {
    let undo_use = job.method.undo_use(height);
    let is_used = height > Height(0)
        && match undo_use {
            UndoUse::Required => true,
            UndoUse::IfSound => !is_made,
            UndoUse::NotNeeded | UndoUse::Made => false,
        };
    let located = reader.read(height, false, buffers)?;
    if is_used && let Err(error) = reader.read_undo(height, &mut buffers.undo) {
        if error.kind != ErrorKind::Damaged || undo_use == UndoUse::Required {
            return Err(error.at_block(height, job.plan.chain.block(height).hash));
        }
        buffers.undo.clear();
    }
    let BlockBuffers { block, undo, arena, undo_arena, hashes } = buffers;
    let block = &located.parse(block.bytes(), arena)?;
    let (undo_data, checksum) = split_checksum(undo.bytes());
    // Violations do not matter here: the block was completed.
    let _ = located.check_view(block, undo_data, hashes)?;
    if is_used && let Err(defect) = claims_of(block, undo_data, checksum, undo_arena, &hashes.undo_checksum) {
        // Such undo data is made by a job that starts over.
        let remedy = (undo_use == UndoUse::IfSound).then_some(Remedy::StartOver);
        return Err(located.damaged(&Damage::Undo(defect)).with_remedies(remedy));
    }
    Ok(())
}
