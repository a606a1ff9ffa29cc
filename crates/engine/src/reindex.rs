//! The rebuild, stage by stage: control flow only.

use crate::{
    checkpoint,
    clock::Clock,
    dependents,
    disk_need::{self, DiskNeed},
    error::{Error, ErrorKind},
    event::{Event, EventSink, Warnings},
    hints,
    job::{self, ChainPreferences, Job, MatchedCoins},
    machine::{self, Sha256Limit},
    memory::{MemoryConsumers, join_bytes_now},
    options::{Matching, ReindexOptions},
    report::{HintsReport, ReindexReport},
    session::Session,
    stages::{
        Stage,
        apply::Method,
        commit::Destination,
        existing_state::ExistingState,
        finish::{self, Finish},
    },
    work_dir::WorkDir,
};
use digest::sha256::batched_bytes;
use disk::{fs::Disk, utxo_stats::UtxoCounts};
use rules::ChainParams;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{BlockHash, Height};

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
    let work = WorkDir::new(disk, target.work_dir(options));
    let attempt = |invalid: &[BlockHash]| {
        if !invalid.is_empty() {
            // What the previous attempt left belongs to another chain.
            target.start_over()?;
            work.remove()?;
        }
        build(&work, options, &session, &target, invalid, (sink, interrupt), &mut clock)
    };
    let result = job::retry_without_invalid(sink, attempt)
        .map_err(|error| checkpoint::with_resume_hint(error, &work, options.restart));
    if let Err(error) = &result {
        target.discard();
        // Any other error can be repaired, or was an interrupt: the next run resumes from the checkpoint.
        if matches!(error.kind, ErrorKind::Consensus | ErrorKind::Hints) {
            // If this fails too, the first error is the one to report.
            let _ = work.remove();
        }
    }
    result
}

/// Matches spends; if that fails because hints are wrong, and the caller asked for it, matches them again
/// without hints. Returns whether hints were used for the result.
fn match_spends(job: &Job<'_>, clock: &mut Clock) -> Result<(MatchedCoins, bool), Error> {
    let error = match job.match_spends(clock) {
        Ok(matched) => {
            let with_hints = matches!(job.method, Method::Hints(_)) && matched.matching == Matching::Parallel;
            return Ok((matched, with_hints));
        }
        Err(error) => error,
    };
    let options = job.options.hints.as_ref().filter(|options| options.on_failure_join);
    let Some(options) = options.filter(|_| error.kind == ErrorKind::Hints) else { return Err(error) };
    job.sink.event(Event::Note(format!("{error}")));
    job.work.remove()?;
    let job = Job { resumable: false, ..*job };
    let found = match hints::first_wrong(&job, options)? {
        Some(wrong) => format!("the first wrong hint: {wrong}"),
        None => "all hints are right, so the undo files are wrong".to_owned(),
    };
    job.sink.event(Event::Note(format!("{found}; rebuilding without hints")));
    let replanned = options.without_undo.then(|| hints::plan_with_undo(&job)).transpose()?;
    let plan = replanned.as_ref().unwrap_or(job.plan);
    Ok((Job { method: &Method::Join, plan, ..job }.match_spends(clock)?, false))
}

fn build(
    work: &WorkDir<'_>,
    options: &ReindexOptions,
    session: &Session<'_>,
    target: &Destination<'_>,
    invalid: &[BlockHash],
    (sink, interrupt): (&Warnings<'_>, &AtomicBool),
    clock: &mut Clock,
) -> Result<ReindexReport, Error> {
    let hashed_before = batched_bytes();
    let disk = work.disk();
    let files = &session.files()?;
    let in_place = options.output.is_none();
    let before = if in_place { ExistingState::read(files, options.scan) } else { ExistingState::default() };
    let hints = options.hints.as_ref().map(|hints| hints::open(disk, hints)).transpose()?;
    let preferences =
        ChainPreferences { hints: hints.as_ref().map(hints::end), preferred: before.best_block, invalid };
    let plan = &job::plan(files, options, &preferences, sink, interrupt)?;
    if in_place {
        dependents::check(disk, session.datadir(), plan, options.scan, sink)?;
    }
    let lost_blocks = if in_place { before.check(plan, files, options.accept_lower_tip, sink)? } else { 0 };
    clock.lap(Stage::Plan);
    let (chain, memory_consumers) = (&plan.chain, MemoryConsumers::new(options, plan.chain.block_count()));
    let (threads, join_bytes) = (memory_consumers.threads, join_bytes_now(options.memory, memory_consumers));
    let old = disk_need::directory_bytes(disk, &target.chainstate_dir());
    let need = DiskNeed::estimate(plan.block_bytes, old, join_bytes);
    need.check(disk, target.building(), work.path())?;
    sink.event(Event::Note(need.to_string()));
    if options.restart {
        // Before `hints::method` looks for a saved key in it.
        work.remove()?;
    }
    let method = match options.hints.as_ref().zip(hints) {
        Some((hints, reader)) => hints::method(work, options, hints, reader, plan)?,
        None => Method::Join,
    };
    let job = Job { files, plan, options, method: &method, work, resumable: true, sink, interrupt };
    let (mut matched, mut with_hints) = match_spends(&job, clock)?;

    sink.event(Event::Started(Stage::Finish));
    let key = options.obfuscation_key.map_or_else(job::random, Ok)?;
    let dir = target.building();
    let finish = Finish { disk, dir, chain, key, range_bytes: options.range_bytes, threads, interrupt };
    let written = match finish.write(matched.unspent)? {
        Some(written) => written,
        // Only the last merge showed that a spend has no coin.
        None => {
            target.start_over()?;
            (matched, with_hints) = (job.validate_sequentially(clock, Height(0), 0)?, false);
            finish.write(matched.unspent)?.unwrap_or(UtxoCounts::ZERO)
        }
    };
    let params = ChainParams::of(options.network);
    let total_amount = match finish::check_supply(params, chain, &written, matched.burned) {
        Some(amount) => amount,
        // Without undo data, this is the first check that fails if a coinbase claims too much.
        None => {
            job.validate_sequentially(clock, Height(0), 0)?;
            let detail = "the coins amount to more than all subsidies; please report this bug";
            return Err(Error::new(ErrorKind::Internal, detail));
        }
    };
    clock.lap(Stage::Finish);

    sink.event(Event::Started(Stage::Prove));
    let stats = finish.prove(&written)?;
    clock.lap(Stage::Prove);

    sink.event(Event::Started(Stage::Commit));
    if interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    let kept = target.commit(plan.new_index.as_ref(), sink)?;
    if let Err(error) = work.remove() {
        sink.event(Event::Warning(format!("temporary files could not be removed: {error}")));
    }
    clock.lap(Stage::Commit);

    let elapsed = clock.started.elapsed();
    let sha256_limit = Sha256Limit::since(hashed_before);
    Ok(ReindexReport {
        hints: options.hints.as_ref().filter(|_| with_hints).map(|hints| HintsReport::new(hints, &method)),
        network: options.network,
        height: chain.tip_height(),
        hash: chain.tip().hash,
        counts: matched.counts,
        txouts: stats.txouts,
        total_amount,
        hash_serialized_3: stats.hash_serialized_3.0,
        scripts: job::scripts_report(options, plan, &matched.counts),
        matching: if with_hints { "swiftsync" } else { matched.matching.name() },
        resumed: matched.resumed,
        memory: options.memory,
        spilled: matched.spilled,
        threads,
        elapsed,
        bound_by: clock.bound_by(threads),
        stages: std::mem::take(&mut clock.stages),
        sha256_kernel: machine::sha256_kernel()?,
        sha256_limit,
        peak_memory_bytes: machine::peak_memory_bytes(),
        chainstate: target.chainstate_dir(),
        kept,
        lost_blocks,
        unconnected: plan.unconnected,
        notes: sink.take(),
    })
}
