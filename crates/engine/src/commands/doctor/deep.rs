//! Reads everything: each block of the chain with its undo data, and all coins.

use super::{DoctorOptions, diagnosis::DeepState};
use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        stage::Stage,
    },
    blocks::files::Files,
    commands::undo::{UndoFileCheck, by_file},
    job::{
        self, ChainPreferences,
        damage_survey::{BlockSurvey, MAX_NAMED_BLOCKS},
        memory::MemoryBudget,
    },
    stages::{finish, undo_survey::BlockWalk},
};
use disk::chainstate::ChainstateReader;
use std::sync::atomic::AtomicBool;
use wire::{BlockHash, Height};

/// How the places of blocks are known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BlockPlaces {
    /// From the block index.
    Index,
    /// From a scan.
    Scan,
    /// The node is pruned, and its blocks do not begin with the first: they are not read.
    Unknown,
}

/// Reads blocks, undo data and coins.
///
/// # Errors
/// [`ErrorKind::Interrupted`]. What is damaged or cannot be read is in the result.
pub fn read_all(
    files: &Files<'_>,
    options: &DoctorOptions,
    best: (Option<BlockHash>, Option<Height>),
    places: BlockPlaces,
    (sink, interrupt): (&dyn EventSink, &AtomicBool),
) -> Result<DeepState, Error> {
    let unless_interrupted = |error: Error| match error.kind {
        ErrorKind::Interrupted => Err(error),
        _ => Ok(error),
    };
    let scan = places == BlockPlaces::Scan;
    let read = match places {
        BlockPlaces::Unknown => Ok(DeepState::empty()),
        _ => read_blocks(files, options, best, scan, (sink, interrupt)),
    };
    let mut state = match read {
        Ok(state) => state,
        Err(error) => DeepState::refused(unless_interrupted(error)?),
    };
    sink.event(Event::Started(Stage::Prove));
    state.coins = match count_coins(files, options, (sink, interrupt)) {
        Ok(coins) => Ok(coins),
        Err(error) => Err(unless_interrupted(error)?),
    };
    Ok(state)
}

/// Reads all coins.
fn count_coins(
    files: &Files<'_>,
    options: &DoctorOptions,
    (sink, interrupt): (&dyn EventSink, &AtomicBool),
) -> Result<(u64, [u8; 32]), Error> {
    let reader = ChainstateReader::open(files.disk, &files.datadir.chainstate_dir())?;
    let stats = finish::read_back(&reader, None, options.chain.threads.get(), sink, interrupt)?;
    Ok((stats.txouts, stats.hash_serialized_3.0))
}

/// Reads the blocks of the most-work chain on disk, and the undo data of those up to the best block.
fn read_blocks(
    files: &Files<'_>,
    options: &DoctorOptions,
    (best, best_height): (Option<BlockHash>, Option<Height>),
    scan: bool,
    (sink, interrupt): (&dyn EventSink, &AtomicBool),
) -> Result<DeepState, Error> {
    sink.event(Event::Started(Stage::Plan));
    let preferences =
        ChainPreferences { scan, preferred: best, makes_undo: true, ..ChainPreferences::default() };
    let plan = job::plan(files, &options.chain, &preferences, sink, interrupt)?;
    let chain = &plan.chain;
    let threads = MemoryBudget::after_plan(&options.chain, chain.block_count()).threads;
    let progress = |blocks: u32| job::progress(sink, &plan, blocks);
    let walk = &BlockWalk { chain, files, threads, progress: &progress, interrupt };
    sink.event(Event::Started(Stage::Check));
    let BlockSurvey { flawed, undo } = BlockSurvey::read(walk)?;
    let last = best_height.unwrap_or(chain.tip_height());
    // A file in which nothing is missing needs no line.
    let has_flaw = |file: &UndoFileCheck| file.missing + file.damaged > 0;
    Ok(DeepState {
        blocks: chain.block_count() as u32,
        damaged: flawed.len() as u32,
        first: flawed.into_iter().take(MAX_NAMED_BLOCKS).map(|(_, error)| error).collect(),
        undo: by_file(chain, &undo, last).into_iter().filter(has_flaw).collect(),
        ..DeepState::empty()
    })
}
