//! Rebuilds a chainstate behind a download: blocks are checked and matched when they are stored.

use crate::{
    fetch::{self, Feed, Fetched, Follower, fetch},
    options::{SyncOptions, SyncSink},
    pruning::settle_bytes,
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink, Watch},
    options::{ReindexOptions, UndoPolicy},
    remedy::Remedy,
    report::ReindexReport,
    size::HumanSize,
    stage::Stage,
};
use chain::{
    blocks::{claims::PeerClaims, files::Files},
    header_chain::HeaderChain,
    plan::{
        best_block::fork_of,
        existing_state::ExistingState,
        indexes::{DeletedBlocks, SetAside, before_pruning, require_continuable},
        planner::AfterSuspect,
    },
    threads::{lock, spawn},
};
use crossbeam::channel::{Sender, bounded};
use disk::index::{IndexEntry, IndexRows};
use engine::reindex::{Awaiting, Planned, plan, reindex_planned};
use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use wire::{BlockHash, Height, Network};

const INTERRUPT_INTERVAL: Duration = Duration::from_millis(10);

/// Memory in bytes that both take for each block of the chain: header, hash, positions.
const BLOCK_BYTES: u64 = 300;

/// Maximum number of blocks above a chainstate that are left to bitcoind, which connects some in a second.
const MAX_LEFT: u32 = 1_000;

/// The same with pruning: the most that mainnet has abandoned at once since 2010; testnets more.
const MAX_LEFT_BY_PRUNING: u32 = 24;

/// The part of the memory beyond what both need for blocks that wait in it for the rebuild: one in this many.
const KEPT_SHARE: u64 = 4;

/// Minimum memory in bytes for the rest of the rebuild.
const MIN_REBUILD_BYTES: u64 = 64 << 20;

pub struct FetchedAndRebuilt {
    pub fetched: Fetched,
    /// The rebuild, or the first invalid block; `None` if the caller must rebuild the chainstate after the
    /// download, also if the best chain has changed meanwhile.
    pub rebuilt: Option<Result<ReindexReport, Error>>,
    /// What follows if the rebuild has met a block that is invalid unless a lower one is.
    pub suspect: Option<AfterSuspect>,
}

/// Downloads blocks, and rebuilds the chainstate at the same time, unless it is complete, or the memory is
/// too small for both.
pub fn fetch_and_rebuild(
    files: &Files<'_>,
    options: &SyncOptions,
    rebuild: &ReindexOptions,
    chainstate: Chainstate<'_>,
    sink: &dyn SyncSink,
    interrupt: &AtomicBool,
) -> Result<FetchedAndRebuilt, Error> {
    let (stop_fetch, stop_rebuild) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (planned_in, planned) = bounded(1);
    let held_back = &HeldBack { sink, state: Mutex::default() };
    let suspect = &Mutex::new(None);
    PeerClaims::remove_left(files.disk, &claims_dir(files, options))?;
    let (fetched, rebuilt) = thread::scope(|scope| {
        let download = move || {
            let mut follower = Rebuilder {
                files,
                options,
                rebuild,
                chainstate,
                sink,
                stop_fetch,
                stop_rebuild,
                suspect,
                planned_in: Some(planned_in),
            };
            let mut fetched = fetch(files, options, None, &mut follower, sink, stop_fetch)?;
            held_back.release();
            if let Some(feed) = fetched.feed.take() {
                feed.blocks.complete();
            }
            Ok(fetched)
        };
        let follow = move || {
            let suspected = |next: AfterSuspect| *lock(suspect) = Some(next);
            let suspected = chainstate.can_connect.then_some(&suspected as &dyn Fn(AfterSuspect));
            let planned = planned.recv().ok()?;
            let watch = Watch { sink: held_back, interrupt: stop_rebuild };
            let rebuilt = reindex_planned(files, rebuild, planned, suspected, watch);
            let ends =
                |error: &Error| is_final(error) || options.prune_bytes.is_some() && lock(suspect).is_none();
            if rebuilt.as_ref().is_err_and(ends) {
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
    let suspect = *lock(suspect);
    let must_rebuild = options.prune_bytes.is_some() && suspect.is_none();
    let fetched = of_both(fetched, rebuilt.as_ref(), must_rebuild, interrupt.load(Ordering::Relaxed))?;
    let rebuilt = rebuilt.filter(|done| !done.as_ref().is_err_and(|it| it.kind == ErrorKind::Interrupted));
    Ok(FetchedAndRebuilt { fetched, rebuilt, suspect })
}

/// Where the claims of peers are until they are used.
fn claims_dir(files: &Files<'_>, options: &SyncOptions) -> PathBuf {
    options.chain.work_dir.clone().unwrap_or_else(|| files.datadir.blocks_dir())
}

/// Returns the download; if both have failed, returns the error that caused the other.
fn of_both(
    fetched: Result<Fetched, Error>,
    rebuilt: Option<&Result<ReindexReport, Error>>,
    must_rebuild: bool,
    is_interrupted: bool,
) -> Result<Fetched, Error> {
    match (fetched, rebuilt) {
        (_, Some(Err(error))) if is_final(error) => Err(error.clone()),
        // This error has stopped the rebuild.
        (Err(error), _) if error.kind != ErrorKind::Interrupted => Err(error),
        (_, Some(Err(error))) if must_rebuild && !is_interrupted => Err(explain_pruned(error.clone())),
        (Err(error), _) => Err(error),
        (Ok(_), Some(Err(error))) if is_interrupted => Err(error.clone().but_blocks_are("downloaded")),
        (Ok(fetched), _) => Ok(fetched),
    }
}

/// What is to become of the chainstate.
#[derive(Clone, Copy)]
pub struct Chainstate<'a> {
    /// Whether blocks can be connected to it after the download.
    pub can_connect: bool,
    /// Whether it is rebuilt in any case: undo data of blocks below it was deleted, its coins cannot be used,
    /// or its blocks are lost.
    pub must_rebuild: bool,
    /// The error if blocks would be connected to it otherwise: bitcoind can complete it.
    pub unfinished: Option<&'a Error>,
    /// Whether this run has rebuilt it, and has shown its blocks to the observer.
    pub is_rebuilt: bool,
    /// Blocks that this run has found invalid. If there are any, it may be that a rebuild ended below one.
    pub invalid: &'a [BlockHash],
}

impl Chainstate<'_> {
    /// Returns the height of the existing chainstate's best block, and that of its last block that is in the
    /// chain, if the blocks up to `target` are connected to it sooner than it would be rebuilt.
    pub fn is_sooner_connected(
        self,
        files: &Files<'_>,
        chain: &HeaderChain,
        target: Height,
    ) -> Result<Option<(Height, Height)>, Error> {
        if self.must_rebuild {
            return Ok(None);
        }
        let Some(best) = ExistingState::read(files, false)?.best_block else { return Ok(None) };
        if let Some(height) = chain.height_of(&best) {
            let above = target.0.saturating_sub(height.0);
            let is_near = !self.invalid.is_empty() && self.can_connect && above <= height.0 / 2;
            return Ok((is_near || is_sooner_connected(height, target)).then_some((height, height)));
        }
        if !self.can_connect {
            return Ok(None);
        }
        let is_near = |&(height, fork): &(Height, Height)| {
            let apart = height.0 - fork.0 + target.0.saturating_sub(fork.0);
            let is_stale = height <= target && apart <= most_left(fork);
            is_stale || !self.invalid.is_empty() && apart <= fork.0 / 2
        };
        Ok(branch_of(files, chain, best)?.filter(is_near))
    }
}

/// Returns the height of a block that is not in the chain, and that of its highest ancestor in the chain, if
/// that is near and the blocks between can be disconnected.
fn branch_of(
    files: &Files<'_>,
    chain: &HeaderChain,
    tip: BlockHash,
) -> Result<Option<(Height, Height)>, Error> {
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let (mut height, mut outside) = (None, 0);
    let is_near = |entry: &IndexEntry| {
        height = height.or(Some(entry.height));
        outside += 1;
        outside < MAX_LEFT && entry.status.has_data() && entry.status.has_undo()
    };
    let fork = fork_of(&rows, tip, |height| chain.hash(height), is_near)?;
    Ok(height.zip(fork))
}

/// Explains an error with pruning: no other rebuild can check a chain whose blocks are deleted.
fn explain_pruned(mut error: Error) -> Error {
    if error.kind == ErrorKind::Interrupted {
        error.kind = ErrorKind::Environment;
        let detail = "the best chain has changed below the block at which the rebuild ends, and block files \
                      were deleted";
        error.detail = detail.to_owned();
        return error.with_remedies([Remedy::StartOver]);
    }
    error.with_remedies([Remedy::WithoutPruning])
}

/// The last block of a rebuild behind a download of the blocks up to `target`. With pruning, the last blocks
/// are left to bitcoind, unless the user has chosen the last one: if the best chain changes there, no deleted
/// block is needed.
pub fn end_of_rebuild(options: &SyncOptions, target: Height) -> Height {
    let is_fixed = options.prune_bytes.is_none() || options.chain.stop_at_height.is_some();
    let left = if is_fixed { 0 } else { MAX_LEFT_BY_PRUNING.min(target.0 / 200) };
    Height(target.0 - left)
}

/// Whether the blocks above a chainstate at height `best` are connected sooner than it would be rebuilt.
fn is_sooner_connected(best: Height, tip: Height) -> bool {
    tip.0.saturating_sub(best.0) <= most_left(best)
}

/// Maximum number of blocks above a chainstate at this height, if they are to be connected to it.
fn most_left(best: Height) -> u32 {
    MAX_LEFT.min(best.0 / 100)
}

/// Whether an error of the rebuild ends the download too. An invalid block does not: there may be a chain
/// without it.
fn is_final(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Consensus | ErrorKind::Interrupted)
}

/// Starts the rebuild when the headers are known, and tells it which blocks are stored.
struct Rebuilder<'a> {
    files: &'a Files<'a>,
    options: &'a SyncOptions,
    rebuild: &'a ReindexOptions,
    chainstate: Chainstate<'a>,
    sink: &'a dyn EventSink,
    stop_fetch: &'a AtomicBool,
    stop_rebuild: &'a AtomicBool,
    /// What follows if the rebuild has met a block that is invalid unless a lower one is.
    suspect: &'a Mutex<Option<AfterSuspect>>,
    /// Where the plan goes, until it is made.
    planned_in: Option<Sender<Planned>>,
}

impl Rebuilder<'_> {
    /// Before blocks are deleted: refuses indexes that could not be made afterwards. Returns those that could
    /// not be continued and may be set aside, and the last block that the others allow to be deleted.
    fn check_indexes(
        &self,
        chain: &HeaderChain,
        target: Height,
        is_done: bool,
    ) -> Result<(SetAside, Option<Height>), Error> {
        let Self { files, options, .. } = *self;
        let hash_at = &|height| chain.hash(height);
        let made = options.chain.observer.as_ref().map_or(&[][..], |observer| observer.indexes());
        if is_done {
            // They are continued after the deletion, or made from the blocks that the observer got.
            if !self.chainstate.is_rebuilt {
                require_continuable(files, made, hash_at)?;
            }
            return Ok((SetAside::default(), None));
        }
        let kept_from = Height(target.0.saturating_sub(options.chain.hooks.undo_blocks));
        let deleted = DeletedBlocks { hash_at, kept_from, made };
        before_pruning(files, Some(&deleted), &options.set_aside_indexes)
    }

    /// Whether blocks are connected sooner than the chainstate would be rebuilt. An error if bitcoind must
    /// complete it first.
    fn is_done(&self, chain: &HeaderChain, target: Height) -> Result<bool, Error> {
        let Self { files, chainstate, .. } = *self;
        let must_rebuild = chainstate.must_rebuild && chainstate.unfinished.is_none();
        let near = Chainstate { must_rebuild, ..chainstate }.is_sooner_connected(files, chain, target)?;
        near.and(chainstate.unfinished).map_or(Ok(near.is_some()), |error| Err(error.clone()))
    }
}

impl Follower for Rebuilder<'_> {
    fn rebuilds(&self, chain: &HeaderChain, target: Height) -> Result<bool, Error> {
        Ok(!self.options.blocks_only && !self.is_done(chain, target)?)
    }

    fn headers_known(
        &mut self,
        chain: &HeaderChain,
        target: Height,
        (missing, missing_bytes): (u32, u64),
        lost: Vec<BlockHash>,
    ) -> Result<Option<Feed>, Error> {
        let Self { files, options, rebuild, sink, .. } = *self;
        let Some(planned_in) = self.planned_in.take() else { return Ok(None) };
        let prunes = options.prune_bytes.is_some();
        // Without pruning, the chainstate is rebuilt after the download.
        let cannot_follow = |error: Error| if prunes { Err(error) } else { Ok(None) };
        let is_done = self.is_done(chain, target)?;
        let (aside, indexed) =
            if prunes { self.check_indexes(chain, target, is_done)? } else { Default::default() };
        let memory_bytes = fetch::memory_bytes(&options.chain);
        let claim_bytes = if options.spent_coins { PeerClaims::BYTES_PER_BLOCK } else { 0 };
        let need = u64::from(target.0) * (BLOCK_BYTES + claim_bytes) + memory_bytes + MIN_REBUILD_BYTES;
        if options.blocks_only || is_done || missing == 0 && !prunes {
            return Ok(None);
        }
        if options.chain.memory_bytes < need {
            let detail = format!(
                "the memory is too small to delete blocks while others are downloaded; {} are needed",
                HumanSize(need)
            );
            return cannot_follow(Error::usage(detail).with_remedies([Remedy::MoreMemory]));
        }
        let end = end_of_rebuild(options, target);
        // Elsewhere, sizes are not known before blocks come.
        let bytes = if files.params.network == Network::Main { missing_bytes } else { 0 };
        let settle_bytes = options.prune_bytes.map(settle_bytes);
        let affordable = (options.chain.memory_bytes - need) / KEPT_SHARE;
        let kept_bytes_max = affordable.min(options.chain.hooks.kept_bytes_max);
        let memory_bytes = memory_bytes + kept_bytes_max;
        let left = target.0 - end.0;
        let awaiting = Awaiting { end, bytes, memory_bytes, kept_bytes_max, settle_bytes, left, lost };
        let invalid = self.chainstate.invalid;
        let planned =
            plan(files, rebuild, invalid, None, Some(awaiting), Watch { sink, interrupt: self.stop_fetch })?;
        let Some(blocks) = planned.awaited() else {
            let detail = "block files cannot be deleted with hints that reach into the last 288 blocks";
            return cannot_follow(Error::usage(detail).with_remedies([Remedy::WithoutHints]));
        };
        // Of two chains with the same work, the block index may prefer the other one.
        if chain.hash(end) != Some(planned.tip()) {
            let detail =
                "block files cannot be deleted: the block index prefers another chain with the same work";
            return cannot_follow(Error::environment(detail).with_remedies([Remedy::WithoutPruning]));
        }
        // Deleted blocks could not be checked again without claims.
        let uses_claims =
            options.hints.is_none() && !options.unprune && options.chain.undo == UndoPolicy::Auto && !prunes;
        if options.spent_coins && uses_claims {
            blocks.take_claims(PeerClaims::new(claims_dir(files, options), end.0 as usize + 1));
        }
        // Only after everything that can refuse this run.
        aside.apply(files, sink)?;
        // If the rebuild could not be started, the download is stopped.
        let _ = planned_in.send(planned);
        Ok(Some(Feed { blocks, end, indexed }))
    }

    fn stops_rebuild(&mut self, end: Height, fork: Height, target: Height) -> bool {
        // With pruning, the blocks above the end are left to bitcoind, however many have come meanwhile.
        let is_useless =
            fork < end || self.options.prune_bytes.is_none() && !is_sooner_connected(end, target);
        self.stop_rebuild.fetch_or(is_useless, Ordering::Relaxed);
        is_useless
    }

    fn known_invalid(&self) -> &[BlockHash] {
        self.chainstate.invalid
    }

    fn ends_below(&self) -> Option<Height> {
        match *lock(self.suspect) {
            // The next download has all of the space for block files.
            Some(AfterSuspect::EndBelow(_)) if self.options.prune_bytes.is_some() => Some(Height(0)),
            Some(AfterSuspect::EndBelow(height)) => Some(height),
            Some(AfterSuspect::Connect(_)) | None => None,
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
    /// How far it is: a stage that waits for blocks may have nothing new to report for long.
    progress: Option<Event>,
}

impl HeldBack<'_> {
    fn release(&self) {
        let mut state = lock(&self.state);
        state.is_released = true;
        if let Some(stage) = state.stage.take() {
            self.sink.event(Event::Started(stage));
        }
        if let Some(progress) = state.progress.take() {
            self.sink.event(progress);
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
            Event::Started(stage) if !state.is_released => {
                state.stage = Some(stage);
                state.progress = None;
            }
            Event::Progress(_) | Event::Coins(_) if !state.is_released => state.progress = Some(event),
            event => self.sink.event(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::event::Progress;

    /// After a download with pruning, a stage once had no bar until it had something new to report.
    #[test]
    fn what_was_held_back_is_shown_when_the_download_ends() {
        let shown = Mutex::new(Vec::new());
        let sink = |event: Event| match event {
            Event::Started(_) => lock(&shown).push(0),
            Event::Progress(now) => lock(&shown).push(now.blocks),
            _ => {}
        };
        let held = HeldBack { sink: &sink, state: Mutex::default() };
        let at = |blocks| Event::Progress(Progress { blocks, blocks_total: 9, bytes: 0, bytes_total: 0 });
        [Event::Started(Stage::Check), at(3), at(4)].into_iter().for_each(|event| held.event(event));
        assert!(lock(&shown).is_empty(), "the download is shown");
        held.release();
        held.event(at(5));
        assert_eq!(*lock(&shown), [0, 4, 5]);
    }
}
