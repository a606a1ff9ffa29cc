//! Initial block download: headers and blocks from peers, then the chainstate and undo data from the blocks.
//! Blocks that the rebuild did not have yet are connected at the end.

use crate::{
    behind_download::{Chainstate, FetchedAndRebuilt, end_of_rebuild, fetch_and_rebuild},
    fetch::{Fetched, check_indexes},
    follow::{follow, invalid_block},
    new_datadir,
    options::{SyncOptions, SyncReport, SyncSink, SyncWarnings},
    prune_stored::prune_stored,
    status::add_senders,
    stored_coins::{must_be_replaced, refuse_lower_end},
};
use api::{
    error::Error,
    event::{Event, EventSink, Warnings, Watch},
    note::Warning,
    options::{ChainOptions, ReindexOptions, UndoPolicy},
    remedy::Remedy,
    report::{ReindexReport, UpdateReport},
    stage::Stage,
};
use chain::{
    blocks::files::Files,
    header_chain::HeaderChain,
    invalid_blocks::{InvalidBlock, mark_invalid},
    plan::{
        best_block::lacks_undo,
        existing_state::ExistingState,
        indexes::{DeletedBlocks, SetAside, before_pruning},
        planner::{AfterSuspect, is_pruned},
        second_chainstate::CHECKED_AT_START,
    },
    session::{Session, work_dir_of},
};
use disk::{index::IndexRows, made_undo::has_made_undo};
use engine::{
    reindex::{plan, reindex_planned},
    undo::{self, MadeUndoReport},
    update::{check_one_chainstate, update_without},
};
use pipeline::{
    job::{
        hint_copy::{self, with_plain_hints},
        index_by_scan::ensure_index,
    },
    stages::work_dir::WorkDir,
};
use std::{
    cell::Cell,
    ops::Range,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};
use vfs::Disk;
use wire::{BlockHash, Height};

/// Downloads the headers and blocks that a datadir lacks, and brings its chainstate to the last block, by a
/// rebuild or, if few blocks are missing, by connecting them. A datadir that does not exist is created, and a
/// block index that cannot be read is replaced by what a scan of the block files finds.
///
/// Whenever it ends, also on an error or an interrupt, the datadir is one on which bitcoind starts and
/// continues; a second call continues too, and downloads no block of the best chain that is stored.
///
/// # Errors
/// Those of [`engine::reindex()`], and any error of the network that is not one of a single peer.
pub fn sync(
    disk: &dyn Disk,
    options: &SyncOptions,
    sink: &dyn SyncSink,
    interrupt: &AtomicBool,
) -> Result<SyncReport, Error> {
    Warnings::in_place(sink, |sink| {
        check_options(options)?;
        let check = |files: &Files<'_>| check_indexes(files, options, |_| None, &[Height(1)]);
        new_datadir::create(disk, &options.chain, false, check, sink)?;
        let rebuild = options.rebuild();
        let (session, datadir) = Session::open_for_change(disk, &rebuild, sink)?;
        // First of all, so that hints that cannot be had are reported at once.
        let copies = &hint_copy::directory(disk, &options.chain, &datadir);
        let hints = rebuild.hints.as_ref().filter(|_| !options.blocks_only);
        with_plain_hints(copies, hints, rebuild.chain.resume.restart, Watch { sink, interrupt }, |hints| {
            let rebuild = ReindexOptions { hints, ..rebuild.clone() };
            sync_session(disk, session, options, rebuild, sink, interrupt)
        })
    })
}

/// Refuses what would keep the chainstate away from the tip, or leave a pruned node.
fn check_options(options: &SyncOptions) -> Result<(), Error> {
    let SyncOptions { chain, follow, unprune, prune_bytes, blocks_only, .. } = options;
    let needs_all = match (follow, unprune) {
        (true, _) => "a run that stays at the tip needs all blocks and a chainstate",
        (_, true) => "a full node needs all blocks and a chainstate made of them",
        _ => return Ok(()),
    };
    if prune_bytes.is_none() && !blocks_only && chain.stop_at_height.is_none() {
        return Ok(());
    }
    Err(Error::usage(format!("{needs_all}: no pruning, no last block, and not blocks alone")))
}

/// Downloads and rebuilds; the hints, if there are any, are a plain file. If a block turns out to be invalid,
/// it is marked in the block index, and the best chain without it is downloaded, until all is valid.
fn sync_session<'d>(
    disk: &'d dyn Disk,
    mut session: Session<'d>,
    options: &SyncOptions,
    rebuild: ReindexOptions,
    sink: &SyncWarnings<'_>,
    interrupt: &AtomicBool,
) -> Result<SyncReport, Error> {
    let started = Instant::now();
    let work = work_dir_of(disk, session.datadir(), options.chain.work_dir.as_deref());
    let work = WorkDir::shared(disk, work);
    let files = &session.files()?;
    check_one_chainstate(files)?;
    ensure_index(files, &options.chain, false, Watch { sink, interrupt })?;
    let is_resumed = work.may_have_checkpoint();
    require_checkpoint(files, options, &work)?;
    let (cannot_stay, mut unfinished) =
        must_be_replaced(files, options, is_resumed, Watch { sink, interrupt })?;
    if cannot_stay && unfinished.is_none() {
        refuse_lower_end(files, options)?;
    }
    let (stop_at_height, mut before) = (options.chain.stop_at_height, None);
    let mut round = Round {
        disk,
        options: options.clone(),
        rebuild,
        must_be_replaced: cannot_stay,
        is_rebuilt: false,
        invalid: Vec::new(),
        suspect: None,
        sink,
        interrupt,
    };
    let mut report = loop {
        let (report, below, invalid) = round.run(session, unfinished.take().as_ref())?;
        let report = merged(before.take(), report);
        // If a block was expected to be invalid, but is valid, those above it are left.
        if below.is_none() && invalid.is_none() && round.suspect.is_none() {
            break report;
        }
        // Checkpoints of earlier rounds belong to this run.
        round.rebuild.chain.resume.restart = false;
        session = Session::open_for_change(disk, &round.rebuild, sink)?.0;
        if let Some(block) = invalid {
            round.invalid.extend(mark_invalid(&session.files()?, block)?);
        }
        round.is_rebuilt = report.rebuild.is_some();
        round.must_be_replaced = cannot_stay && !round.is_rebuilt;
        round.suspect = below;
        round.options.chain.stop_at_height =
            below.map_or(stop_at_height, |height| height.0.checked_sub(1).map(Height));
        before = Some(report);
    };
    let options = &round.options;
    if report.rebuild.is_none() && options.hints.is_none() && !work.may_have_checkpoint() {
        // A power cut has stopped the removal of what a complete rebuild had there. Nothing depends on it.
        let _ = work.remove();
    }
    report.elapsed = started.elapsed();
    if options.follow && (report.shortfall.is_none() || options.peers.wait) {
        follow(disk, options, round.invalid, &mut report, sink, interrupt)?;
    }
    report.notes = sink.take();
    Ok(report)
}

/// Checks that the checkpoint of an interrupted run is there, if that run may have deleted blocks: otherwise
/// all would be downloaded again.
fn require_checkpoint(files: &Files<'_>, options: &SyncOptions, work: &WorkDir<'_>) -> Result<(), Error> {
    let SyncOptions { prune_bytes, blocks_only, chain, .. } = options;
    let starts_over = prune_bytes.is_none() || *blocks_only || chain.resume.restart;
    if starts_over || work.may_have_checkpoint() || !is_pruned(files)? {
        return Ok(());
    }
    // With hints, no undo data may have been made: then only a first run has connected no block.
    let is_first = || -> Result<bool, Error> {
        let mut is_connected = false;
        let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
        rows.stream(|it| is_connected |= it.height > Height(0) && it.status.was_connected())?;
        Ok(!is_connected)
    };
    if !has_made_undo(files.disk, files.datadir)? && (options.hints.is_none() || !is_first()?) {
        return Ok(());
    }
    let detail = "an interrupted run may have deleted blocks, and its checkpoint is not here";
    let error = Error::usage(detail).in_file(work.path(), None);
    Err(error.with_remedies([Remedy::RepeatOptions, Remedy::StartOver]))
}

/// Adds to the report of a round what the rounds before it have done.
fn merged(before: Option<SyncReport>, mut report: SyncReport) -> SyncReport {
    let Some(before) = before else { return report };
    report.download += before.download;
    add_senders(&mut report.peers, before.peers);
    report.unpruned |= before.unpruned;
    report.rebuild = report.rebuild.or(before.rebuild);
    report.undo = report.undo.or(before.undo);
    report.update = report.update.or(before.update);
    report
}

/// A download of the best chain without the blocks that are known to be invalid, and the rebuild.
struct Round<'a> {
    disk: &'a dyn Disk,
    /// Also what the rounds before have learned of addresses.
    options: SyncOptions,
    rebuild: ReindexOptions,
    /// Whether the chainstate cannot stay.
    must_be_replaced: bool,
    /// Whether an earlier round has rebuilt the chainstate.
    is_rebuilt: bool,
    /// Blocks that earlier rounds have found invalid.
    invalid: Vec<BlockHash>,
    /// A block above the last one, which is connected at the end, because it is probably invalid.
    suspect: Option<Height>,
    sink: &'a SyncWarnings<'a>,
    interrupt: &'a AtomicBool,
}

/// The report; the height below which the next round ends, if the block there, or a lower one, is invalid;
/// and the block without which it runs, if one was found invalid.
type RoundDone = (SyncReport, Option<Height>, Option<InvalidBlock>);

impl Round<'_> {
    /// `unfinished`: the error if blocks would be connected to a chainstate that bitcoind can complete.
    fn run(&mut self, session: Session<'_>, unfinished: Option<&Error>) -> Result<RoundDone, Error> {
        let Self { ref options, ref invalid, is_rebuilt, sink, interrupt, .. } = *self;
        let files = &session.files()?;
        let can_connect = !options.blocks_only;
        let unprunes = options.unprune && is_pruned(files)?;
        let must_rebuild = self.must_be_replaced || unprunes;
        let chainstate = Chainstate { can_connect, must_rebuild, unfinished, is_rebuilt, invalid };
        let FetchedAndRebuilt { fetched: it, rebuilt, mut suspect } =
            fetch_and_rebuild(files, options, &self.rebuild, chainstate, sink, interrupt)?;
        // What is marked from now on was found invalid.
        self.options.chain.reconsider = None;
        let options = &self.options;
        let Fetched { report: mut download, height, hash, peers, chain, known, left_out, shortfall, .. } = it;
        let near = chainstate.is_sooner_connected(files, &chain, height)?;
        let (network, header_height) = (options.chain.params.network, chain.tip_height());
        let is_pruned_now = options.prune_bytes.is_some() && near.is_some() && rebuilt.is_none();
        let indexes = is_pruned_now.then(|| self.before_pruning(files, &chain)).transpose()?;
        // The rebuild needs the memory.
        drop(chain);
        let (is_behind, rebuilds) = (rebuilt.is_some(), can_connect && near.is_none());
        let rebuilt = rebuilt.or_else(|| rebuilds.then(|| self.rebuild_stored(files, &mut suspect)));
        let lacking = if rebuilt.is_none() { self.lacking_undo(files, near, height)? } else { None };
        // What follows locks the datadir itself.
        drop(session);
        let undo = lacking.map(|blocks| self.make_undo(blocks)).transpose()?;
        if let Some(((aside, indexed), (_, best))) = indexes.zip(near) {
            download.pruned += self.prune(aside, best, indexed)?;
        }
        let connects = matches!(suspect, Some(AfterSuspect::Connect(_)));
        let below = match suspect {
            Some(AfterSuspect::EndBelow(height)) if options.prune_bytes.is_some() => Some(height),
            _ => None,
        };
        let (rebuild, mut invalid) = match rebuilt.filter(|_| !connects && below.is_none()).transpose() {
            Ok(rebuild) => (rebuild, None),
            Err(error) => (None, Some(invalid_block(error, &self.invalid, self.sink)?)),
        };
        let best = rebuild.as_ref().map(|rebuilt| rebuilt.height).or(near.map(|(height, _)| height));
        // A rebuild after the download had all blocks. With pruning, the last blocks are left to bitcoind.
        let may_lag = can_connect
            && (suspect.is_some()
                || self.suspect.is_some()
                || !self.invalid.is_empty()
                || options.prune_bytes.is_none() && (is_behind || rebuild.is_none()));
        let mut update = None;
        if may_lag && invalid.is_none() && below.is_none() && (best.is_some() || connects) {
            (update, invalid) = self.connect_rest(height, best, suspect)?;
        }
        let report = SyncReport {
            network,
            height,
            hash,
            header_height,
            chainstate_height: update.as_ref().map(|updated| updated.height).or(best),
            download,
            peers,
            prune_bytes: options.prune_bytes,
            unpruned: unprunes && rebuild.is_some(),
            rebuild,
            undo,
            update,
            left_out,
            shortfall,
            elapsed: Duration::ZERO,
            follow: None,
            notes: Vec::new(),
        };
        self.options.peers.known = known;
        Ok((report, below, invalid))
    }

    /// The indexes that need all blocks, if they may be set aside, and the last block that may be deleted
    /// because of the others.
    fn before_pruning(
        &self,
        files: &Files<'_>,
        chain: &HeaderChain,
    ) -> Result<(SetAside, Option<Height>), Error> {
        let hash_at = &|height| chain.hash(height);
        let deleted = DeletedBlocks { hash_at, kept_from: Height(0), made: &[] };
        before_pruning(files, Some(&deleted), &self.options.set_aside_indexes)
    }

    /// Deletes the oldest block files below the chainstate's last block that is in the chain.
    fn prune(&self, aside: SetAside, best: Height, indexed: Option<Height>) -> Result<u32, Error> {
        let Self { disk, ref options, sink, .. } = *self;
        let Some(bytes) = options.prune_bytes else { return Ok(0) };
        let session = Session::open_for_change(disk, &self.rebuild, sink)?.0;
        let files = &session.files()?;
        aside.apply(files, sink)?;
        prune_stored(files, &options.chain, bytes, best, indexed, sink)
    }

    /// Connects the stored blocks above the chainstate's best block, up to `height`; the one that is probably
    /// invalid is connected by itself. Returns what was connected, and the first invalid block.
    fn connect_rest(
        &self,
        height: Height,
        best: Option<Height>,
        suspect: Option<AfterSuspect>,
    ) -> Result<(Option<UpdateReport>, Option<InvalidBlock>), Error> {
        let suspected = self.suspect.map(AfterSuspect::EndBelow).or(suspect);
        let alone = |height: Height| height.0..height.0 + 1;
        let ends = match suspected {
            // It is the last block that is connected, unless undo data was false.
            Some(AfterSuspect::EndBelow(suspected)) => {
                let above = (height > suspected).then_some((height, 0..0));
                [Some((suspected, alone(suspected))), above]
            }
            Some(AfterSuspect::Connect(suspected)) => [Some((height, alone(suspected))), None],
            None => {
                let end = end_of_rebuild(&self.options, height).max(best.unwrap_or_default());
                [Some((end, 0..0)), None]
            }
        };
        let mut update = None;
        for (end, exactly) in ends.into_iter().flatten() {
            match self.connect_stored(end, exactly) {
                Ok(done) => update = Some(done).filter(|done| done.commits > 0).or(update),
                Err(error) => return Ok((update, Some(invalid_block(error, &self.invalid, self.sink)?))),
            }
        }
        Ok((update, None))
    }

    /// Rebuilds the chainstate from what is stored. Sets `suspect` if it meets a block that is invalid unless
    /// a lower one is.
    fn rebuild_stored(
        &self,
        files: &Files<'_>,
        suspect: &mut Option<AfterSuspect>,
    ) -> Result<ReindexReport, Error> {
        let Self { ref rebuild, ref invalid, sink, interrupt, .. } = *self;
        sink.event(Event::Started(Stage::Plan));
        let planned = plan(files, rebuild, invalid, None, None, Watch { sink, interrupt })?;
        let found = Cell::new(None);
        let suspected = |next| found.set(Some(next));
        let done = reindex_planned(files, rebuild, planned, Some(&suspected), Watch { sink, interrupt });
        *suspect = found.get();
        done.map_err(|error| error.but_blocks_are("downloaded"))
    }

    /// Returns of how many last blocks of the chainstate undo data is to be made, if one of those that
    /// bitcoind will read when it starts lacks it; before blocks are deleted, one of those that every node
    /// keeps. A pruned node does not have the blocks for that.
    fn lacking_undo(
        &self,
        files: &Files<'_>,
        near: Option<(Height, Height)>,
        height: Height,
    ) -> Result<Option<u32>, Error> {
        let SyncOptions { chain, prune_bytes, blocks_only, .. } = &self.options;
        let Some((best, fork)) = near.filter(|(best, _)| !blocks_only && *best <= height) else {
            return Ok(None);
        };
        let is_pruned = is_pruned(files)?;
        let count = match prune_bytes {
            Some(_) if !is_pruned => chain.hooks.undo_blocks as usize,
            None if fork == best => CHECKED_AT_START.saturating_sub((height.0 - best.0) as usize),
            _ => CHECKED_AT_START,
        };
        let best = ExistingState::read(files, false)?.best_block;
        let lacks_undo = best.map_or(Ok(false), |best| lacks_undo(files, best, count))?;
        if chain.undo == UndoPolicy::Trust || !lacks_undo {
            return Ok(None);
        }
        if is_pruned {
            self.sink.event(Event::Warning(Warning::LacksLastUndo { blocks: count }));
            return Ok(None);
        }
        Ok(Some(prune_bytes.map_or(u32::MAX, |_| count as u32)))
    }

    /// Makes the undo data that so many last blocks of the chainstate lack.
    fn make_undo(&self, blocks: u32) -> Result<MadeUndoReport, Error> {
        let Self { disk, ref options, sink, interrupt, .. } = *self;
        let made = undo::make_of_last(disk, &options.chain, blocks, Watch { sink, interrupt });
        made.map_err(|error| error.but_blocks_are("downloaded"))
    }

    /// Connects the stored blocks up to a height, those at the heights of `exactly` one by one.
    fn connect_stored(&self, end: Height, exactly: Range<u32>) -> Result<UpdateReport, Error> {
        let Self { disk, ref options, ref invalid, sink, interrupt, .. } = *self;
        let options = ChainOptions { stop_at_height: Some(end), ..options.chain.clone() };
        update_without(disk, &options, invalid, exactly, Watch { sink, interrupt })
    }
}
