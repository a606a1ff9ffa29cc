//! Reads everything: each block of the chain with its undo data, and all coins.

use super::{DoctorOptions, diagnosis::DeepState};
use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        stage::Stage,
    },
    blocks::{
        block_hashes::BlockHashes,
        files::{Files, LocatedBlock},
    },
    commands::undo::{UndoFileCheck, by_file},
    job::{self, ChainPreferences, memory::MemoryBudget},
    stages::{
        read::BlockReader,
        undo_survey::{BlockWalk, UndoSurvey, WalkBuffers},
    },
};
use disk::{chainstate::ChainstateReader, utxo_stats::stats_unless_stopped};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use wire::{BlockHash, Height};

/// Maximum number of damaged blocks that are described; all are counted.
const MAX_NAMED_BLOCKS: usize = 5;

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
    state.coins = match count_coins(files, options, interrupt) {
        Ok(coins) => Ok(coins),
        Err(error) => Err(unless_interrupted(error)?),
    };
    Ok(state)
}

/// Reads all coins.
fn count_coins(
    files: &Files<'_>,
    options: &DoctorOptions,
    interrupt: &AtomicBool,
) -> Result<(u64, [u8; 32]), Error> {
    let reader = ChainstateReader::open(files.disk, &files.datadir.chainstate_dir())?;
    let stats = stats_unless_stopped(&reader, false, options.chain.threads.get(), interrupt)?;
    let stats = stats.ok_or_else(Error::interrupted)?;
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
    let reader = &BlockReader::new(chain, files);
    sink.event(Event::Started(Stage::Check));
    let survey = UndoSurvey::of_records(walk, reader)?;
    let flawed = Mutex::new(Vec::new());
    let begin = || (WalkBuffers::default(), BlockHashes::default());
    walk.each(0..chain.block_count() as u32, begin, |(buffers, hashes), height| {
        let block = LocatedBlock { chain, files, height };
        let checked = survey.check_block(walk, reader, buffers, height, |view| {
            let broken = |violation| Error::violation(&violation).at_block(height, chain.block(height).hash);
            block.check_view(view, hashes)?.map(drop).map_err(broken)
        });
        match checked {
            Err(error) if [ErrorKind::Damaged, ErrorKind::Consensus].contains(&error.kind) => {
                flawed.lock().unwrap_or_else(PoisonError::into_inner).push((height, error));
                Ok(())
            }
            checked => checked,
        }
    })?;
    if interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    let mut flawed = flawed.into_inner().unwrap_or_else(PoisonError::into_inner);
    flawed.sort_by_key(|(height, _)| *height);
    let last = best_height.unwrap_or(chain.tip_height());
    // A file in which nothing is missing needs no line.
    let has_flaw = |file: &UndoFileCheck| file.missing + file.damaged > 0;
    Ok(DeepState {
        blocks: chain.block_count() as u32,
        damaged: flawed.len() as u32,
        first: flawed.into_iter().take(MAX_NAMED_BLOCKS).map(|(_, error)| error).collect(),
        undo: by_file(chain, &survey, last).into_iter().filter(has_flaw).collect(),
        ..DeepState::empty()
    })
}
