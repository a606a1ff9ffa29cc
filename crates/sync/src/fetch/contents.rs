//! What a datadir has before a download.

use super::Follower;
use crate::options::{SyncOptions, SyncSink};
use api::{error::Error, event::Event, note::Note};
use chain::{
    blocks::{damage::KnownDamage, files::Files},
    commit::Destination,
    plan::{
        existing_state::ExistingState,
        indexes::{self, SetAside},
    },
    stored_blocks::{DatadirContents, PrunedBlocks, write_index},
};
use std::mem;
use wire::{BlockHash, Height};

/// Reads what the datadir contains, and writes the block index if it lacks blocks that are stored. Returns
/// also the indexes that are to be set aside before the first block is stored.
pub(super) fn read_contents(
    files: &Files<'_>,
    options: &SyncOptions,
    damage: Option<&KnownDamage>,
    follower: &dyn Follower,
    sink: &dyn SyncSink,
) -> Result<(DatadirContents, SetAside), Error> {
    if damage.is_some() {
        // The block index is written at the end. Whatever will be in its way is found now.
        Destination::of_index(files.disk, files.datadir.clone(), false)?.discard();
    }
    let pruned = match options {
        SyncOptions { unprune: true, .. } => PrunedBlocks::Fetch,
        SyncOptions { prune_bytes: Some(_), .. } => PrunedBlocks::Leave,
        _ => PrunedBlocks::Refuse,
    };
    let mut contents = DatadirContents::read(files, pruned, options.chain.reconsider)?;
    let DatadirContents { chain, stored, infos, found, is_index_wrong, unknown, .. } = &mut contents;
    if let Some(best) = ExistingState::read(files, false)?.best_block {
        stored.keep_below(chain.height_of(&best).unwrap_or(Height(u32::MAX)));
    }
    follower.known_invalid().iter().for_each(|hash| chain.note_invalid(*hash));
    if let Some(damage) = damage {
        stored.forget_damaged(chain, &damage.blocks);
        *is_index_wrong = false;
        if options.chain.stop_at_height.is_none() {
            // The block index was made by a scan, which found blocks that it could not place.
            *unknown = files.beyond_use(&[])?;
        }
    }
    // Blocks above the known headers will be stored too.
    let moved: Vec<Height> = stored.missing().chain([Height(chain.tip_height().0 + 1)]).collect();
    let mut aside = check_indexes(files, options, |height| chain.hash(height), &moved)?;
    if *found > 0 {
        sink.event(Event::Note(Note::FoundBlocks { blocks: *found }));
        mem::take(&mut aside).apply(files, sink)?;
        write_index(files, chain, stored, infos, sink)?;
    }
    Ok((contents, aside))
}

/// Checks the indexes before the blocks of the chain at these heights are downloaded. Returns those that are
/// to be set aside.
///
/// # Errors
/// [`ErrorKind::Usage`](api::error::ErrorKind::Usage) if one would become wrong; any I/O error.
pub fn check_indexes(
    files: &Files<'_>,
    options: &SyncOptions,
    hash_at: impl Fn(Height) -> Option<BlockHash>,
    moved: &[Height],
) -> Result<SetAside, Error> {
    let may = &options.set_aside_indexes;
    match options.prune_bytes {
        Some(_) => Ok(indexes::before_pruning(files, None, may)?.0),
        None => indexes::before_moves(files, hash_at, moved, may),
    }
}
