//! The rebuild, stage by stage: control flow only.

mod planned;

pub use api::{
    lower_tip::{Gap, LowerPart, LowerTip},
    options::{Engine, Matching, ReindexOptions, SetAsideIndexes},
    report::{
        BoundBy, CheckedScripts, HintsReport, ReindexReport, ScriptTrust, ScriptsReport, SpillVolume,
        StageTime, Trusted, UndoReport,
    },
    spend_ages::SpendAges,
};
pub use planned::{Awaiting, Planned, plan};

use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink as _, Warnings, Watch},
    machine::{self, Sha256Limit},
    note::{Note, Warning},
    options::HintOptions,
    remedy::Remedy,
    stage::Stage,
};
use chain::{
    blocks::{awaited::AwaitedBlocks, claims::PeerClaims, damage::KnownDamage, files::Files},
    commit::{Destination, directory_bytes},
    given_blocks,
    plan::{indexes::tell_unchanged, planner::AfterSuspect, unconnected::check_unconnected},
    session::Session,
    threads::lock,
};
use digest::sha256::batched_bytes;
use disk::{
    index::{FileInfo, IndexEntry, IndexRows, PrunedFlag, rewrite_block_index, write_block_index},
    made_undo::{clear_made_undo, made_undo_dir},
    utxo_stats::{UtxoCounts, UtxoStats},
};
use pipeline::{
    job::{
        self, Job, MatchStats, MatchedCoins, checkpoint,
        clock::Clock,
        damage_survey::find_damage,
        hint_copy::{self, with_plain_hints},
        hints,
        memory::{MemoryBudget, affordable_threads},
        two_chainstates,
        undo_files::{NewUndo, UndoFiles},
    },
    stages::{
        finish::{self, Finish},
        make_undo::UndoSink as _,
        method::Method,
        work_dir::WorkDir,
    },
};
use std::{
    cell::{Cell, OnceCell},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::Disk;
use wire::{Height, Sats};

/// Rebuilds the chainstate. On failure the datadir is unchanged; if the very last step fails, it contains
/// either the old chainstate or the new one, whole. Blocks that the caller passes are stored first, and stay.
///
/// `interrupt` may be set from another thread at any time.
///
/// # Errors
/// [`Error`], whose kind names the cause: the request, the chain, the files, the machine, or a bug.
pub fn reindex(disk: &dyn Disk, options: &ReindexOptions, watch: Watch<'_>) -> Result<ReindexReport, Error> {
    let mut clock = Clock::start();
    if options.engine == Engine::Cache && options.hints.is_some() {
        let detail = "the engine with the coins cache looks up each coin, and has no use for hints";
        return Err(Error::usage(detail).with_remedies([Remedy::WithoutHints]));
    }
    watch.sink.event(Event::Started(Stage::Plan));
    let sink = &Warnings::new(watch.sink);
    let watch = Watch { sink, ..watch };
    let (session, result_datadir) = Session::open_for_change(disk, options, sink)?;
    let files = &session.files()?;
    let mut has_stored = !options.blocks.is_empty() && store_given(files, options, sink)?;
    if options.chain.scan {
        files.sync_pairs()?;
        has_stored |= options.output.is_none() && given_blocks::restore_genesis(files)?;
    }
    let copies = &hint_copy::directory(disk, &options.chain, &result_datadir);
    let (hints, restart) = (options.hints.as_ref(), options.chain.resume.restart);
    with_plain_hints(copies, hints, restart, watch, |hints| {
        // A checkpoint of the chain with the damaged blocks is of no use.
        let mut options = ReindexOptions { hints, ..options.clone() };
        options.chain.resume.discard_other |= options.until_damage;
        let options = &options;
        let target = Destination::prepare(disk, result_datadir, options)?;
        let work = WorkDir::shared(disk, target.work_dir(&options.chain));
        let rebuild = Rebuild::new(files, options, (&target, &work), (sink, watch), None);
        rebuild.clean_up_after_error(job::retry_without_invalid(sink, |invalid| {
            if !invalid.is_empty() {
                // What the previous attempt left belongs to another chain.
                target.start_over()?;
                work.remove()?;
            }
            let damage = rebuild.find_damage()?;
            let mut planned = plan(files, options, invalid, damage, None, watch)?;
            clock.lap(Stage::Plan);
            rebuild.build(&mut planned, &mut clock)
        }))
    })
    .map_err(|error| if has_stored { error.but_blocks_are("stored") } else { error })
    .map_err(|error| if options.chain.scan { error.of_scan() } else { error })
}

/// Stores the blocks that the caller passes. Returns whether any was not stored before.
fn store_given(files: &Files<'_>, options: &ReindexOptions, sink: &Warnings<'_>) -> Result<bool, Error> {
    two_chainstates::refuse(files, ", one of which could need a block that gets another place")?;
    if options.chain.scan || options.output.is_some() {
        let detail = "blocks can be passed only to a rebuild in place that uses the block index";
        return Err(Error::usage(detail));
    }
    let blocks = given_blocks::store(files, options, sink)?;
    sink.event(Event::Note(Note::StoredGivenBlocks { blocks }));
    Ok(blocks > 0)
}

/// Like [`reindex`], for a chain that is already planned, some of whose blocks may be stored while it runs
/// ([`Planned::awaited`]).
///
/// `suspected` is called if a block is found that is invalid unless a lower one is. Then the chain below it
/// is rebuilt instead; or nothing is, if the caller has to connect the blocks, or to resume below that block
/// because block files were deleted. Without `suspected`, or if the existing chainstate has that block too,
/// the error names the first invalid block.
///
/// # Errors
/// The same errors.
pub fn reindex_planned(
    files: &Files<'_>,
    options: &ReindexOptions,
    mut planned: Planned,
    suspected: Option<&dyn Fn(AfterSuspect)>,
    watch: Watch<'_>,
) -> Result<ReindexReport, Error> {
    let (mut clock, sink) = (Clock::start(), &Warnings::new(watch.sink));
    let watch = Watch { sink, ..watch };
    let target = Destination::prepare(files.disk, files.datadir.clone(), options)?;
    let work = WorkDir::shared(files.disk, target.work_dir(&options.chain));
    let suspects = &Suspects::default();
    let suspect = (suspected.is_some() && options.hints.is_none()).then_some(suspects);
    let rebuild = Rebuild::new(files, options, (&target, &work), (sink, watch), suspect);
    rebuild.clean_up_after_error(loop {
        let done = rebuild.build(&mut planned, &mut clock);
        let (Some(suspected), Some(next)) = (suspected, suspects.take()) else { break done };
        suspected(next);
        let AfterSuspect::EndBelow(height) = next else { break done };
        sink.event(Event::Note(Note::RebuildingBelow { height }));
        if planned.prunes() {
            // Deleted blocks are only in the checkpoint.
            target.discard();
            return done;
        }
        planned.end_below(height);
        if let Err(error) = target.start_over().and_then(|()| work.remove()) {
            break Err(error);
        }
    })
}

/// Matches spends; if that fails because hints are wrong, and the caller asked for it, matches them again
/// without hints. Returns the hints too, unless they were given up.
fn match_spends<'a>(
    job: &Job<'a>,
    clock: &mut Clock,
) -> Result<(MatchedCoins, Option<&'a HintOptions>), Error> {
    let error = match job.match_spends(clock) {
        Ok(matched) => return Ok((matched, job.hints)),
        Err(error) => error,
    };
    let can_start_over = job.pruned_download().is_none();
    let options = job.hints.filter(|options| options.on_failure_join && can_start_over);
    let Some(options) = options.filter(|_| error.kind == ErrorKind::Hints) else { return Err(error) };
    job.watch.sink.event(Event::Note(Note::HintsFailed { error }));
    job.work.remove()?;
    let job = Job { resume: None, hints: None, ..*job };
    let makes_undo = job.method.makes_undo();
    let needs_other_plan = options.without_undo && !makes_undo;
    let replanned = needs_other_plan.then(|| hints::plan_with_undo(&job)).transpose()?;
    // The plan that failed is still in memory.
    let budget = replanned.as_ref().map_or(job.budget, |plan| MemoryBudget::after_plan(job.options, plan));
    let job = Job { plan: replanned.as_ref().unwrap_or(job.plan), budget, ..job };
    let first_wrong = hints::first_wrong(&job, options)?;
    job.watch.sink.event(Event::Note(Note::RebuildingWithoutHints { first_wrong }));
    let method = &if makes_undo { Method::of(job.options.undo) } else { Method::Join };
    Ok((Job { method, ..job }.match_spends(clock)?, None))
}

/// What all attempts of a rebuild share.
struct Rebuild<'a> {
    files: &'a Files<'a>,
    options: &'a ReindexOptions,
    target: &'a Destination<'a>,
    work: &'a WorkDir<'a>,
    sink: &'a Warnings<'a>,
    watch: Watch<'a>,
    /// What is damaged, if it was looked for.
    damage: OnceCell<KnownDamage>,
    /// Records blocks that are invalid unless lower ones are, if the caller can go on without them.
    suspect: Option<&'a Suspects>,
    /// Whether the rebuild has reached undo data: what it makes, or what an interrupted run has made.
    has_begun: Cell<bool>,
}

/// Blocks that are invalid unless lower ones are.
#[derive(Default)]
struct Suspects {
    /// What the caller does about the last one.
    found: Mutex<Option<AfterSuspect>>,
    /// Whether there was one before.
    is_again: AtomicBool,
}

impl Suspects {
    /// Records a block, and returns whether the caller continues. A finding that rests on undo data is
    /// believed only once: each one that rests on false undo data costs another pass.
    fn note(&self, planned: &Planned, height: Height, rests_on_undo: bool) -> bool {
        let is_believed = !(rests_on_undo && self.is_again.load(Ordering::Relaxed));
        let next = planned.plan.after_suspect(height).filter(|_| is_believed);
        let is_possible =
            |next: &AfterSuspect| matches!(next, AfterSuspect::EndBelow(_)) || !planned.prunes();
        let next = next.filter(is_possible);
        *lock(&self.found) = next;
        next.is_some()
    }

    fn take(&self) -> Option<AfterSuspect> {
        let found = lock(&self.found).take();
        self.is_again.fetch_or(found.is_some(), Ordering::Relaxed);
        found
    }
}

/// What has been written, and is proven.
struct Proven<'a> {
    stats: MatchStats,
    hints: Option<&'a HintOptions>,
    total_amount: Sats,
    utxo_stats: UtxoStats,
    is_pinned: bool,
}

impl<'a> Rebuild<'a> {
    fn new(
        files: &'a Files<'a>,
        options: &'a ReindexOptions,
        (target, work): (&'a Destination<'a>, &'a WorkDir<'a>),
        (sink, watch): (&'a Warnings<'a>, Watch<'a>),
        suspect: Option<&'a Suspects>,
    ) -> Self {
        let (damage, has_begun) = Default::default();
        Self { files, options, target, work, sink, watch, damage, suspect, has_begun }
    }

    /// Removes after an error what no other run can use.
    fn clean_up_after_error(&self, result: Result<ReindexReport, Error>) -> Result<ReindexReport, Error> {
        let Self { options, target, work, .. } = *self;
        result.map_err(|error| {
            let error = checkpoint::with_resume_hint(work.explain(error), work, options.chain.resume.restart);
            target.discard();
            // Any other error can be repaired, or was an interrupt: the next run resumes from the checkpoint.
            // One of the plan says nothing about what an interrupted run has done.
            let is_final = matches!(error.kind, ErrorKind::Consensus | ErrorKind::Hints);
            let can_resume = !(is_final && self.has_begun.get());
            if !(can_resume && work.may_have_checkpoint()) {
                // If one of these fails too, the first error is the one to report. Without a checkpoint, no
                // run can continue with sorted runs or undo data.
                let _ = work.remove();
                if self.has_begun.get() {
                    let _ = clear_made_undo(work.disk(), target.datadir());
                }
            }
            error
        })
    }

    /// Finds out what is damaged, unless that is known or the caller did not ask for it.
    fn find_damage(&self) -> Result<Option<&KnownDamage>, Error> {
        let Self { files, options, sink, watch, damage, .. } = self;
        if options.until_damage && damage.get().is_none() {
            let found = find_damage(files, &options.chain, *watch)?;
            if !found.is_empty() {
                let KnownDamage { blocks, undo, first, .. } = &found;
                let (blocks, undo) = (blocks.len() as u32, undo.len() as u32);
                sink.event(Event::Warning(Warning::Damage { blocks, undo, first: first.clone() }));
            }
            if found.elsewhere > 0 && !options.accept_lower_tip {
                let (elsewhere, blocks) = (found.elsewhere, found.blocks.len());
                let detail = format!(
                    "{elsewhere} of the {blocks} damaged blocks lie sound at other places in the block files"
                );
                return Err(Error::damaged(detail)
                    .in_file(files.datadir.blocks_dir(), None)
                    .with_remedies([Remedy::RebuildIndex]));
            }
            // The cell is empty, so this cannot fail.
            let _ = damage.set(found);
            sink.event(Event::Started(Stage::Plan));
        }
        Ok(damage.get())
    }

    fn build(&self, planned: &mut Planned, clock: &mut Clock) -> Result<ReindexReport, Error> {
        let Self { options, work, watch, .. } = *self;
        let hashed_before = batched_bytes();
        let hint_reader = planned.hint_reader.take();
        let planned = &*planned;
        let Planned { ref plan, lost_blocks, ref awaited, .. } = *planned;
        let files = &Files { awaited: awaited.as_ref().map(|(awaited, _)| &**awaited), ..*self.files };
        if options.chain.resume.restart {
            // Do this before `hints::method` looks for a saved key there.
            work.remove()?;
        }
        let method = &match options.hints.as_ref().zip(hint_reader) {
            Some((hints, reader)) => {
                hints::method(work, files, &options.chain, hints, reader, plan, watch.interrupt)?
            }
            None => Method::of(options.chain.undo),
        };
        let budget = MemoryBudget::after_plan(&options.chain, plan);
        let budget = awaited.as_ref().map_or(budget, |(_, blocks)| budget.without(blocks.memory_bytes));
        let lacking = plan.blocks_without_undo(method.needs_undo_from());
        let hints = options.hints.as_ref();
        let job = Job { budget, hints, ..Job::new(files, plan, &options.chain, method, work, watch) };
        self.check_disk_need(planned, &job)?;
        let infos = plan.new_index.as_ref().map_or(&plan.index_files, |index| &index.files);
        let scans_in_place = options.chain.scan && options.output.is_none();
        // Behind a download, the block index is still being written.
        let (target, is_index_complete) = (self.target, awaited.is_none());
        let prepare_index = &|| if is_index_complete { target.prepare_index() } else { Ok(()) };
        let undo_files = UndoFiles::new(files, target.datadir(), infos, scans_in_place, prepare_index)?;
        self.prepare_changes(planned, &undo_files, method, lacking)?;
        let suspects = self.suspect;
        let goes_on_below = |height, rests_on_undo| {
            suspects.is_some_and(|suspects| suspects.note(planned, height, rests_on_undo))
        };
        let job = Job {
            undo_sink: method.makes_undo().then_some(&undo_files),
            goes_on_below: suspects.map(|_| &goes_on_below as &(dyn Fn(Height, bool) -> bool + Sync)),
            resume: Some(&options.chain.resume),
            ..job
        };
        self.has_begun.set(true);
        let proven = self.write_and_prove(&job, clock)?;
        // Names the peer that has sent other coins than a block spends.
        let claims = files.awaited.and_then(AwaitedBlocks::claims);
        if let Some((height, peer)) = claims.and_then(PeerClaims::first_false) {
            let hash = plan.chain.block(height).hash;
            self.sink.event(Event::Warning(Warning::FalseSpentCoins { height, hash, peer }));
        }

        let is_interrupted = || watch.interrupt.load(Ordering::Relaxed);
        if awaited.as_ref().is_some_and(|(awaited, _)| !awaited.wait_for_all(&is_interrupted)) {
            return Err(Error::interrupted());
        }
        if let Some(download) = job.pruned_download() {
            undo_files.forget(&plan.chain, &download.take_deleted())?;
        }
        let undo = undo_files.take();
        let kept = self.commit(planned, undo.as_ref(), clock)?;
        let undo_report = || undo.as_ref().map_or_else(UndoReport::default, NewUndo::report);
        let hashed = batched_bytes() - hashed_before;
        let report = self.report(&job, proven, hashed, awaited.is_some(), clock)?;
        Ok(ReindexReport { undo: method.makes_undo().then(undo_report), kept, lost_blocks, ..report })
    }

    /// Prepares what changes besides the chainstate: the block index, and in place the `rev` files, if the
    /// undo data of `lacking` blocks is made.
    fn prepare_changes(
        &self,
        planned: &Planned,
        undo_files: &UndoFiles<'_>,
        method: &Method,
        lacking: u64,
    ) -> Result<(), Error> {
        let (plan, is_in_place) = (&planned.plan, self.options.output.is_none());
        let makes_undo = method.makes_undo() && lacking > 0;
        // Otherwise, the block index is still being written.
        let is_index_complete = planned.awaited.is_none();
        if is_index_complete && (makes_undo || self.changes_index(planned)) {
            self.target.prepare_index()?;
        }
        if is_in_place && !plan.missing_files.is_empty() {
            self.sink.event(Event::Warning(Warning::MissingBlockFiles { files: plan.missing_files.clone() }));
        }
        if makes_undo && is_in_place {
            undo_files.check_access(&plan.chain, method.needs_undo_from())?;
        }
        Ok(())
    }

    /// Whether the block index places blocks in files that do not exist, or has wrong marks or places.
    fn changes_index(&self, planned: &Planned) -> bool {
        let (plan, is_in_place) = (&planned.plan, self.options.output.is_none());
        is_in_place && !plan.missing_files.is_empty()
            || self.damage.get().is_some_and(KnownDamage::changes_index)
            || !plan.choice.unmarked.is_empty()
            || plan.choice.departed > 0
            || self.sets_marks(planned)
    }

    /// Whether the block index does not count all blocks as connected: bitcoind may never have connected
    /// those that hints prove, or an earlier run has found blocks below them lost.
    fn sets_marks(&self, Planned { plan, .. }: &Planned) -> bool {
        self.options.output.is_none() && plan.choice.lacks_marks
    }

    /// Writes the coins that are left of all blocks, and proves what was written.
    fn write_and_prove<'j>(&self, job: &Job<'j>, clock: &mut Clock) -> Result<Proven<'j>, Error> {
        let Self { options, sink, .. } = *self;
        let finish = &Finish {
            disk: job.work.disk(),
            target: self.target,
            chain: &job.plan.chain,
            key: options.chain.hooks.obfuscation_key.map_or_else(machine::random, Ok)?,
            range_bytes: options.chain.hooks.range_bytes,
            threads: job.threads(),
            watch: job.watch,
        };
        let (written, stats, hints) = match options.engine {
            Engine::Join => {
                let (matched, hints) = match_spends(job, clock)?;
                sink.event(Event::Started(Stage::Finish));
                let (written, stats) = job.for_each_coin(matched, clock, |coins| finish.write(coins))?;
                clock.lap(Stage::Finish);
                let hints = hints.filter(|_| stats.used_hints);
                (written, stats, hints)
            }
            Engine::Cache => {
                let (written, stats) = job.connect_all(finish.target.building(), finish.key, clock)?;
                (written, stats, None)
            }
        };
        let total_amount = check_supply(job, &written, stats.burned, clock)?;

        sink.event(Event::Started(Stage::Prove));
        let utxo_stats = finish.prove(&written, false)?;
        let tip = job.plan.chain.tip().hash;
        let (height, found) = (job.plan.chain.tip_height(), &utxo_stats.hash_serialized_3);
        let is_pinned = job::check_pinned_hash(options.chain.params, height, &tip, found)?;
        clock.lap(Stage::Prove);
        Ok(Proven { stats, hints, total_amount, utxo_stats, is_pinned })
    }

    /// Checks that the new chainstate, undo data and the temporary files fit on the disk.
    fn check_disk_need(&self, planned: &Planned, job: &Job<'_>) -> Result<(), Error> {
        let Self { options, target, work, .. } = *self;
        let (disk, mut need) = (work.disk(), job.disk_need());
        if options.engine == Engine::Cache {
            need = need.with_cache();
        }
        let written = directory_bytes(disk, work.path()).unwrap_or(0);
        let made = directory_bytes(disk, &made_undo_dir(disk, target.datadir())?).unwrap_or(0);
        let rest = need.without_written(written, made);
        // Without pruning, the blocks that come stay.
        let to_come = planned.awaited.as_ref().filter(|_| !planned.prunes());
        let to_come = to_come.map_or(0, |(_, blocks)| blocks.bytes);
        let blocks_dir = &target.datadir().blocks_dir();
        rest.check(disk, target.building(), work.path(), blocks_dir, to_come)?;
        // Behind a download, the size of blocks to come is only known on mainnet.
        if job.plan.block_bytes > 0 {
            self.sink.event(Event::Note(Note::DiskNeed(need)));
        }
        Ok(())
    }

    /// Puts the undo data and the new databases in place, and removes the temporary files. Returns the paths
    /// of the old databases, if they are kept.
    ///
    /// The new block index is complete before undo data gets to the `rev` files, so that little can fail
    /// after that. Nothing refers to it there before the block index is exchanged.
    fn commit(
        &self,
        planned: &Planned,
        undo: Option<&NewUndo<'_>>,
        clock: &mut Clock,
    ) -> Result<Vec<PathBuf>, Error> {
        self.sink.event(Event::Started(Stage::Commit));
        Error::check_interrupt(self.watch.interrupt)?;
        if undo.is_some() || planned.unprunes() || self.changes_index(planned) {
            self.target.prepare_index()?;
        }
        self.write_index(planned, undo)?;
        if let Some(undo) = undo {
            undo.put_in_place()?;
        }
        planned.set_aside.apply(self.files, self.sink)?;
        // Without the journal, a run after a crash could not know that the checkpoint is of no use any more.
        let kept = self.target.commit(self.sink, || self.sink.warn_if_left(self.work.remove()))?;
        if self.options.output.is_none() {
            // An error here does not matter: the rebuild is complete.
            let _ = tell_unchanged(self.files, self.sink);
        }
        planned.plan.note_unmarked(self.sink);
        // Without new undo data, what an interrupted run may have made is of no use now. Not earlier: until
        // here that run could be resumed.
        let clear = || Ok(clear_made_undo(self.files.disk, self.target.datadir()).map(drop)?);
        self.sink.warn_if_left(undo.map_or_else(clear, NewUndo::clean_up));
        clock.lap(Stage::Commit);
        Ok(kept)
    }

    fn write_index(&self, planned: &Planned, undo: Option<&NewUndo<'_>>) -> Result<(), Error> {
        let Some(dir) = self.target.building_index() else { return Ok(()) };
        let (files, plan) = (self.files, &planned.plan);
        let old = files.datadir.index_dir();
        let damaged = self.damage.get().and_then(|damage| damage.lowest);
        let mut lowest_lost = damaged.unwrap_or(Height(u32::MAX));
        let is_lost = |entry: &IndexEntry| entry.file.is_some_and(|file| plan.missing_files.contains(&file));
        if !plan.missing_files.is_empty() {
            IndexRows::open(files.disk, &old)?.stream(|entry| {
                if is_lost(&entry) {
                    lowest_lost = lowest_lost.min(entry.height);
                }
            })?;
        }
        let change = |entry: &mut IndexEntry| {
            if plan.choice.unmarked.binary_search(&entry.hash).is_ok() {
                entry.status = entry.status.unmarked();
            }
            if is_lost(entry) {
                entry.forget_block();
                return;
            }
            if entry.height > lowest_lost && !plan.chain.has(entry.height, &entry.hash) {
                // bitcoind does not accept that a connected block follows one that it does not have.
                entry.status = entry.status.not_connected();
            }
            if let Some(damage) = self.damage.get() {
                damage.change_entry(entry);
            }
            if let Some(undo) = undo {
                undo.change_entry(&plan.chain, entry);
            }
            if entry.height > Height(0) && plan.chain.has(entry.height, &entry.hash) {
                entry.status = entry.status.validated();
            }
            planned.change_pruned(entry);
        };
        let change_files = |infos: &mut Vec<FileInfo>| {
            if let Some(undo) = undo {
                undo.change_files(infos);
            }
        };
        if let Some(index) = &plan.new_index {
            let mut index = index.clone();
            index.entries.iter_mut().for_each(change);
            change_files(&mut index.files);
            check_unconnected(files, &mut index, affordable_threads(&self.options.chain), self.watch)?;
            return Ok(write_block_index(files.disk, dir, &index)?);
        }
        let pruned = if planned.unprunes() { PrunedFlag::Clear } else { PrunedFlag::Keep };
        Ok(rewrite_block_index(files.disk, &old, dir, [], pruned, change, change_files)?)
    }

    /// Reports what was proven; `hashed` bytes were hashed for that.
    fn report(
        &self,
        job: &Job<'_>,
        proven: Proven<'_>,
        hashed: u64,
        was_behind_download: bool,
        clock: &mut Clock,
    ) -> Result<ReindexReport, Error> {
        let Self { options, .. } = *self;
        let Proven { stats, hints, total_amount, utxo_stats, is_pinned } = proven;
        let (plan, threads, elapsed) = (job.plan, job.threads(), clock.started.elapsed());
        let sha256_limit = Sha256Limit::measured(hashed, threads, elapsed);
        Ok(ReindexReport {
            hints: hints.map(|hints| hints::hints_report(hints, job.method)),
            network: options.chain.params.network,
            height: plan.chain.tip_height(),
            hash: plan.chain.tip().hash,
            counts: stats.counts,
            txouts: utxo_stats.counts.txouts,
            total_amount,
            hash_serialized_3: utxo_stats.hash_serialized_3,
            is_pinned,
            scripts: job::scripts_report(&options.chain, plan, &stats.counts),
            matching: if hints.is_some() { Matching::Swiftsync } else { stats.matching },
            resumed: stats.resumed,
            memory_bytes: options.chain.memory_bytes,
            spilled: stats.spilled,
            ages: stats.ages,
            threads,
            elapsed,
            bound_by: match clock.bound_by(threads) {
                BoundBy::Read if was_behind_download => BoundBy::Download,
                other => other,
            },
            stages: std::mem::take(&mut clock.stages),
            sha256_kernel: machine::sha256_kernel()?,
            sha256_limit,
            peak_memory_bytes: machine::peak_memory_bytes(),
            chainstate: self.target.chainstate_dir(),
            kept: Vec::new(),
            undo: None,
            lost_blocks: 0,
            damaged_blocks: self.damage.get().map_or(0, |damage| damage.blocks.len() as u32),
            unconnected: plan.choice.unconnected,
            notes: self.sink.take(),
        })
    }
}

/// Returns the sum of all amounts, after checking that it does not exceed all subsidies.
fn check_supply(job: &Job<'_>, written: &UtxoCounts, burned: u64, clock: &mut Clock) -> Result<Sats, Error> {
    let params = job.options.params;
    if let Some(amount) = finish::check_supply(params, &job.plan.chain, written, burned) {
        return Ok(amount);
    }
    // Without undo data, this is the first check that fails if a coinbase claims too much.
    job.check_without_undo(clock)?;
    let detail = "the coins amount to more than all subsidies; please report this bug";
    Err(Error::new(ErrorKind::Internal, detail))
}
