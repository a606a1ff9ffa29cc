//! Rebuilds a chainstate behind a download: blocks are checked and matched when they are stored.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        options::ReindexOptions,
        remedy::Remedy,
        report::ReindexReport,
        size::HumanSize,
        stage::Stage,
        sync::SyncOptions,
    },
    blocks::{
        awaited::{AwaitedBlocks, CheckedBlock},
        files::Files,
    },
    commands::reindex::{Awaiting, Planned, plan, reindex_behind},
    download::{
        fetch::{self, Fetched, Follower, fetch},
        header_chain::HeaderChain,
        pruning::settle_bytes,
    },
    plan::existing_state::ExistingState,
    stages::threads::{lock, spawn},
};
use crossbeam::channel::{Sender, bounded};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use wire::{ByteOffset, FileNo, Height, Network};

/// Interval at which an interrupt is looked for.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(10);

/// Memory in bytes that both take for each block of the chain: header, hash, positions.
const BLOCK_BYTES: u64 = 300;

/// Maximum number of blocks above a chainstate that are left to bitcoind, which connects some in a second.
const MAX_LEFT: u32 = 1_000;

/// The same with pruning: more blocks than any branch of a public network has had that was left.
const MAX_LEFT_BY_PRUNING: u32 = 24;

/// The part of the memory beyond what both need for blocks that wait in it for the rebuild: one in this many.
const KEPT_SHARE: u64 = 4;

/// Minimum memory in bytes for the rest of the rebuild.
const MIN_REBUILD_BYTES: u64 = 64 << 20;

/// Downloads blocks, and rebuilds the chainstate at the same time, unless it is complete, or the memory is
/// too small for both. Returns no report if the caller must rebuild it after the download: also if the best
/// chain has changed meanwhile, or a block is invalid.
///
/// # Errors
/// Those of both.
pub fn fetch_and_rebuild(
    files: &Files<'_>,
    options: &SyncOptions,
    rebuild: &ReindexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<(Fetched, Option<ReindexReport>), Error> {
    let (stop_fetch, stop_rebuild) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (planned_in, planned) = bounded(1);
    let held_back = &HeldBack { sink, state: Mutex::default() };
    let (fetched, rebuilt) = thread::scope(|scope| {
        let download = move || {
            let (planned_in, awaited) = (Some(planned_in), None);
            let mut follower =
                Rebuilder { files, options, rebuild, sink, stop_fetch, stop_rebuild, planned_in, awaited };
            let fetched = fetch(files, (options, None), &mut follower, sink, stop_fetch)?;
            held_back.release();
            if let Some((awaited, _)) = follower.awaited {
                awaited.complete();
            }
            Ok(fetched)
        };
        let follow = move || {
            let rebuilt = reindex_behind(files, rebuild, planned.recv().ok()?, held_back, stop_rebuild);
            if rebuilt.as_ref().is_err_and(|error| is_final(error) || options.prune_bytes.is_some()) {
                stop_fetch.store(true, Ordering::Relaxed);
            }
            Some(rebuilt)
        };
        let fetching = spawn(scope, "download", download)?;
        let stop = |_: &Error| stop_fetch.store(true, Ordering::Relaxed);
        let rebuilding = spawn(scope, "rebuild", follow).inspect_err(stop)?;
        while !(fetching.is_finished() && rebuilding.is_finished()) {
            let has_failed = fetching.is_finished() && !held_back.is_released();
            let is_interrupted = interrupt.load(Ordering::Relaxed);
            stop_rebuild.fetch_or(has_failed || is_interrupted, Ordering::Relaxed);
            stop_fetch.fetch_or(is_interrupted, Ordering::Relaxed);
            thread::sleep(INTERRUPT_INTERVAL);
        }
        let fetched: Result<Fetched, Error> = fetching.join().map_err(|_| Error::panicked())?;
        Ok::<_, Error>((fetched, rebuilding.join().map_err(|_| Error::panicked())?))
    })?;
    match (fetched, rebuilt) {
        (_, Some(Err(error))) if is_final(&error) => Err(error),
        // The rebuild was stopped because of it.
        (Err(error), _) if error.kind != ErrorKind::Interrupted => Err(error),
        (_, Some(Err(error))) if options.prune_bytes.is_some() && !interrupt.load(Ordering::Relaxed) => {
            Err(explain_pruned(error))
        }
        (Err(error), _) => Err(error),
        (Ok(_), Some(Err(error))) if interrupt.load(Ordering::Relaxed) => Err(explain_interrupt(error)),
        (Ok(fetched), rebuilt) => Ok((fetched, rebuilt.and_then(Result::ok))),
    }
}

/// An interrupted rebuild leaves more than there was before the download.
pub fn explain_interrupt(mut error: Error) -> Error {
    if error.kind == ErrorKind::Interrupted {
        error.detail = "interrupted; all blocks are downloaded, the chainstate is unchanged".to_owned();
    }
    error
}

/// With pruning, no other rebuild decides what becomes of a chain whose blocks are deleted.
fn explain_pruned(mut error: Error) -> Error {
    if error.kind == ErrorKind::Interrupted {
        error.kind = ErrorKind::Environment;
        error.detail =
            "the best chain has changed below the block at which the rebuild ends, and block files \
                        were deleted"
                .to_owned();
        return error.with_remedies([Remedy::StartOver]);
    }
    error.with_remedies([Remedy::WithoutPruning])
}

/// The last block of a rebuild behind a download of the blocks up to `target`. With pruning, the last blocks
/// are left to bitcoind, unless the user has chosen the last one: if the best chain changes there, no block
/// is needed that is deleted.
fn end_of_rebuild(options: &SyncOptions, target: Height) -> Height {
    let is_fixed = options.prune_bytes.is_none() || options.stop_at_height.is_some();
    let left = if is_fixed { 0 } else { MAX_LEFT_BY_PRUNING.min(target.0 / 200) };
    Height(target.0 - left)
}

/// Whether the blocks above a chainstate at height `best` are connected sooner than it would be rebuilt.
pub fn is_sooner_connected(best: Height, tip: Height) -> bool {
    tip.0.saturating_sub(best.0) <= MAX_LEFT.min(best.0 / 100)
}

/// Whether an error of the rebuild ends the download too. An invalid block does not: when all blocks are
/// stored, a rebuild without it decides.
fn is_final(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Consensus | ErrorKind::Interrupted)
}

/// Starts the rebuild when the headers are known, and tells it which blocks are stored.
struct Rebuilder<'a> {
    files: &'a Files<'a>,
    options: &'a SyncOptions,
    rebuild: &'a ReindexOptions,
    sink: &'a dyn EventSink,
    stop_fetch: &'a AtomicBool,
    stop_rebuild: &'a AtomicBool,
    /// Where the plan goes, until it is made.
    planned_in: Option<Sender<Planned>>,
    /// The blocks that the rebuild waits for, and the last one.
    awaited: Option<(Arc<AwaitedBlocks>, Height)>,
}

impl Follower for Rebuilder<'_> {
    fn headers_known(
        &mut self,
        chain: &HeaderChain,
        target: Height,
        (missing, missing_bytes): (u32, u64),
    ) -> Result<Option<Height>, Error> {
        let Self { files, options, rebuild, sink, .. } = *self;
        let Some(planned_in) = self.planned_in.take() else { return Ok(None) };
        let prunes = options.prune_bytes.is_some();
        let best = ExistingState::read(files, false)?.best_block;
        let best = best.and_then(|best| chain.height_of(&best));
        let is_done = best.is_some_and(|best| is_sooner_connected(best, target));
        let memory_bytes = fetch::memory_bytes(&options.chain);
        let need = u64::from(target.0) * BLOCK_BYTES + memory_bytes + MIN_REBUILD_BYTES;
        if options.blocks_only || is_done || missing == 0 && !prunes {
            return Ok(None);
        }
        if options.chain.memory_bytes < need {
            let detail = format!(
                "the memory is too small to delete blocks while others are downloaded; {} are \
                                  needed",
                HumanSize(need)
            );
            let error = || Error::new(ErrorKind::Usage, detail).with_remedies([Remedy::MoreMemory]);
            return if prunes { Err(error()) } else { Ok(None) };
        }
        let end = end_of_rebuild(options, target);
        // Elsewhere, sizes are not known before blocks come.
        let bytes = if files.params.network == Network::Main { missing_bytes } else { 0 };
        let settle_bytes = options.prune_bytes.map(settle_bytes);
        let affordable = (options.chain.memory_bytes - need) / KEPT_SHARE;
        let kept_bytes_max = affordable.min(options.chain.hooks.kept_bytes_max);
        let memory_bytes = memory_bytes + kept_bytes_max;
        let awaiting = Awaiting { end, bytes, memory_bytes, kept_bytes_max, settle_bytes };
        let planned = plan(files, rebuild, (&[], None), Some(awaiting), sink, self.stop_fetch)?;
        let Some(awaited) = planned.awaited() else {
            let detail = "block files cannot be deleted with hints that reach into the last 288 blocks";
            let error = || Error::new(ErrorKind::Usage, detail).with_remedies([Remedy::WithoutHints]);
            return if prunes { Err(error()) } else { Ok(None) };
        };
        // Of two chains with the same work, the block index may prefer the other one.
        if chain.hash(end) != Some(planned.tip()) {
            let detail =
                "block files cannot be deleted: the block index prefers another chain with the same work";
            let error = || Error::new(ErrorKind::Environment, detail).with_remedies([Remedy::WithoutPruning]);
            return if prunes { Err(error()) } else { Ok(None) };
        }
        self.awaited = Some((awaited, end));
        // If the rebuild could not be started, the download is stopped.
        let _ = planned_in.send(planned);
        Ok(prunes.then_some(end))
    }

    fn stored(&mut self, height: Height, (file, data_pos): (FileNo, ByteOffset), block: CheckedBlock) {
        if let Some((awaited, _)) = &self.awaited {
            awaited.place(height, file, data_pos, block);
        }
    }

    fn given(&mut self, next: Height, is_held: bool) {
        if let Some((awaited, _)) = &self.awaited {
            awaited.give(next, is_held);
        }
    }

    fn take_settled(&mut self) -> Option<Height> {
        self.awaited.as_ref().and_then(|(awaited, _)| awaited.take_settled())
    }

    fn deleted(&mut self, files: &[FileNo]) {
        if let Some((awaited, _)) = &self.awaited {
            awaited.add_deleted(files);
        }
    }

    fn chain_changed(&mut self, fork: Height, target: Height) {
        let is_other = |(_, last): &mut (_, Height)| fork < *last || !is_sooner_connected(*last, target);
        if self.awaited.take_if(is_other).is_some() {
            self.stop_rebuild.store(true, Ordering::Relaxed);
        }
    }
}

/// Holds back the progress of a rebuild as long as that of the download is shown.
struct HeldBack<'a> {
    sink: &'a dyn EventSink,
    state: Mutex<HeldBackState>,
}

#[derive(Default)]
struct HeldBackState {
    is_released: bool,
    /// The stage of the rebuild.
    stage: Option<Stage>,
}

impl HeldBack<'_> {
    fn release(&self) {
        let mut state = lock(&self.state);
        state.is_released = true;
        if let Some(stage) = state.stage.take() {
            self.sink.event(Event::Started(stage));
        }
    }

    fn is_released(&self) -> bool {
        lock(&self.state).is_released
    }
}

impl EventSink for HeldBack<'_> {
    fn event(&self, event: Event) {
        let mut state = lock(&self.state);
        match event {
            Event::Started(stage) if !state.is_released => state.stage = Some(stage),
            Event::Progress(_) | Event::Coins(_) if !state.is_released => {}
            event => self.sink.event(event),
        }
    }
}
