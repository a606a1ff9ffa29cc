//! The rebuild, stage by stage: control flow only.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink, Warnings},
        machine::{self, Sha256Limit},
        note::{DiskNeed, Note, Warning},
        options::{HintOptions, Matching, ReindexOptions, UndoPolicy},
        report::{HintsReport, ReindexReport, UndoReport},
        stage::Stage,
    },
    blocks::files::Files,
    commands::hints,
    job::{
        self, ChainPreferences, Job, MatchStats, MatchedCoins, checkpoint,
        clock::Clock,
        disk_need,
        memory::MemoryBudget,
        session::Session,
        undo_files::{NewUndo, UndoFiles},
    },
    plan::{dependents, existing_state::ExistingState, planner::Plan},
    stages::{
        commit::Destination,
        finish::{self, Finish},
        method::Method,
        work_dir::WorkDir,
    },
};
use ::hints::HintReader;
use digest::sha256::batched_bytes;
use disk::{
    index::{FileInfo, IndexEntry, rewrite_block_index, write_block_index},
    made_undo::clear_made_undo,
    utxo_stats::{UtxoCounts, UtxoStats},
};
use rules::ChainParams;
use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::Disk;
use wire::{BlockHash, Sats};

/// Rebuilds the chainstate. On failure the datadir is unchanged; if the very last step fails, it contains
/// either the old chainstate or the new one, whole.
///
/// `interrupt` may be set from another thread at any time.
///
/// # Errors
/// [`Error`], whose kind names the cause: the request, the chain, the files, the machine, or a bug.
pub fn reindex(
    disk: &dyn Disk,
    options: &ReindexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<ReindexReport, Error> {
    let mut clock = Clock::start();
    sink.event(Event::Started(Stage::Plan));
    let sink = &Warnings::new(sink);
    let (session, result_datadir) = Session::open_for_change(disk, options, sink)?;
    let target = Destination::prepare(disk, result_datadir, options)?;
    let work = WorkDir::new(disk, target.work_dir(&options.chain));
    let rebuild = Rebuild { session: &session, options, target: &target, work: &work, sink, interrupt };
    let attempt = |invalid: &[BlockHash]| {
        if !invalid.is_empty() {
            // What the previous attempt left belongs to another chain.
            target.start_over()?;
            work.remove()?;
        }
        rebuild.build(invalid, &mut clock)
    };
    let result = job::retry_without_invalid(sink, attempt)
        .map_err(|error| checkpoint::with_resume_hint(work.explain(error), &work, options.resume.restart));
    if let Err(error) = &result {
        target.discard();
        // Any other error can be repaired, or was an interrupt: the next run resumes from the checkpoint.
        let can_resume = !matches!(error.kind, ErrorKind::Consensus | ErrorKind::Hints);
        if !(can_resume && work.may_have_checkpoint()) {
            // If one of these fails too, the first error is the one to report. Without a checkpoint, no run
            // can continue with sorted runs or undo data.
            let _ = work.remove();
            let _ = clear_made_undo(disk, target.datadir());
        }
    }
    result
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
    let options = job.hints.filter(|options| options.on_failure_join);
    let Some(options) = options.filter(|_| error.kind == ErrorKind::Hints) else { return Err(error) };
    job.sink.event(Event::Note(Note::HintsFailed(error)));
    job.work.remove()?;
    let job = Job { resume: None, hints: None, ..*job };
    let first_wrong = hints::first_wrong(&job, options)?;
    job.sink.event(Event::Note(Note::RebuildingWithoutHints { first_wrong }));
    let replanned = options.without_undo.then(|| hints::plan_with_undo(&job)).transpose()?;
    let plan = replanned.as_ref().unwrap_or(job.plan);
    let budget = MemoryBudget::after_plan(job.options, plan.chain.block_count());
    Ok((Job { method: &Method::Join, plan, budget, ..job }.match_spends(clock)?, None))
}

/// What all attempts of a rebuild share.
struct Rebuild<'a> {
    session: &'a Session<'a>,
    options: &'a ReindexOptions,
    target: &'a Destination<'a>,
    work: &'a WorkDir<'a>,
    sink: &'a Warnings<'a>,
    interrupt: &'a AtomicBool,
}

/// What an attempt has planned.
struct Planned {
    plan: Plan,
    hint_reader: Option<HintReader>,
    lost_blocks: u32,
}

/// What a successful attempt reports.
struct Rebuilt<'a> {
    hashed_before: u64,
    stats: MatchStats,
    hints: Option<&'a HintOptions>,
    total_amount: Sats,
    utxo_stats: UtxoStats,
    undo: Option<UndoReport>,
    kept: Vec<PathBuf>,
    lost_blocks: u32,
}

impl Rebuild<'_> {
    /// Rebuilds the chainstate from the best chain without the blocks in `invalid`.
    fn build(&self, invalid: &[BlockHash], clock: &mut Clock) -> Result<ReindexReport, Error> {
        let Self { options, work, sink, interrupt, .. } = *self;
        let hashed_before = batched_bytes();
        let files = &self.session.files()?;
        let Planned { plan, hint_reader, lost_blocks } = self.plan(files, invalid)?;
        let plan = &plan;
        clock.lap(Stage::Plan);
        let budget = MemoryBudget::after_plan(&options.chain, plan.chain.block_count());
        self.check_disk_need(plan, budget)?;
        if options.resume.restart {
            // Before `hints::method` looks for a saved key in it.
            work.remove()?;
        }
        let method = &match options.hints.as_ref().zip(hint_reader) {
            Some((hints, reader)) => hints::method(work, &options.chain, hints, reader, plan)?,
            None => Method::of(options.chain.undo),
        };
        let infos = plan.new_index.as_ref().map_or(&plan.index_files, |index| &index.files);
        let in_place = options.output.is_none();
        let undo_files = UndoFiles::new(files, self.target.datadir(), infos, options.scan && in_place)?;
        let makes_undo = method.makes_undo();
        if makes_undo && plan.blocks_without_undo() > 0 {
            self.target.prepare_index()?;
            if in_place {
                undo_files.check_access(&plan.chain)?;
            }
        }
        let job = Job {
            files,
            plan,
            budget,
            options: &options.chain,
            scan: options.scan,
            hints: options.hints.as_ref(),
            method,
            work,
            undo_sink: makes_undo.then_some(&undo_files),
            resume: Some(&options.resume),
            sink,
            interrupt,
        };
        let (matched, hints) = match_spends(&job, clock)?;

        sink.event(Event::Started(Stage::Finish));
        let mut finish = Finish {
            disk: work.disk(),
            target: self.target,
            chain: &plan.chain,
            key: options.chain.hooks.obfuscation_key.map_or_else(machine::random, Ok)?,
            range_bytes: options.chain.hooks.range_bytes,
            threads: job.threads(),
            interrupt,
        };
        let (written, stats) = job.for_each_coin(matched, clock, &mut finish)?;
        let hints = hints.filter(|_| stats.matching == Matching::Parallel);
        let total_amount = check_supply(&job, &written, stats.burned, clock)?;
        clock.lap(Stage::Finish);

        sink.event(Event::Started(Stage::Prove));
        let utxo_stats = finish.prove(&written)?;
        clock.lap(Stage::Prove);

        let undo = undo_files.take();
        let kept = self.commit(files, plan, undo.as_ref(), clock)?;
        let undo = makes_undo.then(|| undo.as_ref().map_or_else(UndoReport::default, NewUndo::report));
        let rebuilt =
            Rebuilt { hashed_before, stats, hints, total_amount, utxo_stats, undo, kept, lost_blocks };
        self.report(&job, rebuilt, clock)
    }

    /// Chooses the chain, and checks that its chainstate can replace the existing one.
    fn plan(&self, files: &Files<'_>, invalid: &[BlockHash]) -> Result<Planned, Error> {
        let Self { options, sink, .. } = *self;
        let in_place = options.output.is_none();
        let before =
            if in_place { ExistingState::read(files, options.scan)? } else { ExistingState::default() };
        let hint_reader = options.hints.as_ref().map(|hints| hints::open(files.disk, hints)).transpose()?;
        let preferences = ChainPreferences {
            scan: options.scan,
            stop_at_height: options.stop_at_height,
            without_undo: options.hints.as_ref().is_some_and(|hints| hints.without_undo),
            hints: hint_reader.as_ref().map(hints::end),
            preferred: before.best_block,
            invalid,
            makes_undo: options.chain.undo != UndoPolicy::Trust && options.hints.is_none(),
        };
        let plan = job::plan(files, &options.chain, &preferences, sink, self.interrupt)?;
        if in_place {
            dependents::check(files.disk, files.datadir, &plan, options.scan, sink)?;
        }
        let lost_blocks =
            if in_place { before.check(&plan, files, options.accept_lower_tip, sink)? } else { 0 };
        Ok(Planned { plan, hint_reader, lost_blocks })
    }

    /// Checks that the new chainstate and the temporary files fit on the disk.
    fn check_disk_need(&self, plan: &Plan, budget: MemoryBudget) -> Result<(), Error> {
        let disk = self.work.disk();
        let old = disk_need::directory_bytes(disk, &self.target.chainstate_dir());
        let mut need = DiskNeed::estimate(plan.block_bytes, old, budget.join_bytes);
        let chain = &self.options.chain;
        if chain.undo != UndoPolicy::Trust && self.options.hints.is_none() {
            let lacking = plan.block_bytes / plan.chain.block_count() as u64 * plan.blocks_without_undo();
            need = need.with_undo(lacking, chain.memory_bytes);
        }
        let blocks_dir = self.target.datadir().blocks_dir();
        need.check(disk, self.target.building(), self.work.path(), &blocks_dir)?;
        self.sink.event(Event::Note(Note::DiskNeed(need)));
        Ok(())
    }

    /// Puts the undo data and the new databases in place, and removes the temporary files. Returns the paths
    /// of the old databases, if they are kept.
    ///
    /// The new block index is complete before undo data gets to the `rev` files, so that little can fail
    /// after that. Nothing refers to it there before the block index is exchanged.
    fn commit(
        &self,
        files: &Files<'_>,
        plan: &Plan,
        undo: Option<&NewUndo<'_>>,
        clock: &mut Clock,
    ) -> Result<Vec<PathBuf>, Error> {
        self.sink.event(Event::Started(Stage::Commit));
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        if undo.is_some() {
            self.target.prepare_index()?;
        }
        self.write_index(files, plan, undo)?;
        if let Some(undo) = undo {
            undo.put_in_place()?;
        }
        let kept = self.target.commit(self.sink)?;
        // Without new undo data, what an interrupted run may have made is of no use now. Not earlier: until
        // here that run could be resumed.
        let clear = || Ok(clear_made_undo(files.disk, self.target.datadir()).map(drop)?);
        if let Err(error) = undo.map_or_else(clear, NewUndo::clean_up) {
            self.sink.event(Event::Warning(Warning::WorkFilesRemain(error)));
        }
        if let Err(error) = self.work.remove() {
            self.sink.event(Event::Warning(Warning::WorkFilesRemain(error)));
        }
        clock.lap(Stage::Commit);
        Ok(kept)
    }

    /// Writes the new block index, if there is one.
    fn write_index(&self, files: &Files<'_>, plan: &Plan, undo: Option<&NewUndo<'_>>) -> Result<(), Error> {
        let Some(dir) = self.target.building_index() else { return Ok(()) };
        let change = |entry: &mut IndexEntry| {
            if let Some(undo) = undo {
                undo.change_entry(&plan.chain, entry);
            }
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
            return Ok(write_block_index(files.disk, dir, &index)?);
        }
        let old = files.datadir.index_dir();
        Ok(rewrite_block_index(files.disk, &old, dir, change, change_files)?)
    }

    fn report(&self, job: &Job<'_>, rebuilt: Rebuilt<'_>, clock: &mut Clock) -> Result<ReindexReport, Error> {
        let Self { options, .. } = *self;
        let Rebuilt { stats, hints, utxo_stats, .. } = rebuilt;
        let (plan, threads, elapsed) = (job.plan, job.threads(), clock.started.elapsed());
        let sha256_limit = Sha256Limit::since(rebuilt.hashed_before);
        Ok(ReindexReport {
            hints: hints.map(|hints| HintsReport::new(hints, job.method)),
            network: options.chain.network,
            height: plan.chain.tip_height(),
            hash: plan.chain.tip().hash,
            counts: stats.counts,
            txouts: utxo_stats.txouts,
            total_amount: rebuilt.total_amount,
            hash_serialized_3: utxo_stats.hash_serialized_3.0,
            scripts: job::scripts_report(&options.chain, plan, &stats.counts),
            matching: stats.matching,
            resumed: stats.resumed,
            memory_bytes: options.chain.memory_bytes,
            spilled: stats.spilled,
            threads,
            elapsed,
            bound_by: clock.bound_by(threads),
            stages: std::mem::take(&mut clock.stages),
            sha256_kernel: machine::sha256_kernel()?,
            sha256_limit,
            peak_memory_bytes: machine::peak_memory_bytes(),
            chainstate: self.target.chainstate_dir(),
            kept: rebuilt.kept,
            undo: rebuilt.undo,
            lost_blocks: rebuilt.lost_blocks,
            unconnected: plan.unconnected,
            notes: self.sink.take(),
        })
    }
}

/// Returns the sum of all amounts, after checking that it does not exceed all subsidies.
fn check_supply(job: &Job<'_>, written: &UtxoCounts, burned: u64, clock: &mut Clock) -> Result<Sats, Error> {
    let params = ChainParams::of(job.options.network);
    if let Some(amount) = finish::check_supply(params, &job.plan.chain, written, burned) {
        return Ok(amount);
    }
    // Without undo data, this is the first check that fails if a coinbase claims too much.
    job.check_without_undo(clock)?;
    let detail = "the coins amount to more than all subsidies; please report this bug";
    Err(Error::new(ErrorKind::Internal, detail))
}
