//! The rebuild, stage after stage: control flow only.

use crate::{
    chain::Files,
    checkpoint,
    clock::Clock,
    disk_need::{self, DiskNeed},
    error::{Error, ErrorKind},
    event::{Event, Sink},
    hints,
    machine::{self, Sha256Limit},
    memory::{Sharers, join_bytes_now},
    options::{Engine, ReindexOptions},
    report::{HintsReport, ReindexReport},
    run::{self, Run, Settlement},
    stages::{
        Stage,
        commit::Target,
        finish::{self, Finish},
        ledger::Method,
    },
    work_dir::WorkDir,
};
use digest::sha256::batched_bytes;
use disk::{
    datadir::Datadir,
    fs::Disk,
    lock::{DatadirLock, LockMode},
    utxo_stats::UtxoCounts,
    xor::read_block_obfuscation,
};
use rules::ChainParams;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::Height;

/// Rebuilds the chainstate. If it fails, the datadir is as it was; or, if what fails is the very last step,
/// has either the old chainstate or the new one, whole.
///
/// `interrupt` may be set from another thread at any time.
///
/// # Errors
/// [`Error`] with its kind: what the user asked for, the chain, the files, the machine, or ourselves.
pub fn reindex(
    disk: &dyn Disk,
    options: &ReindexOptions,
    sink: &dyn Sink,
    interrupt: &AtomicBool,
) -> Result<ReindexReport, Error> {
    let mut clock = Clock::start();
    sink.event(Event::Started(Stage::Plan));
    machine::sha256_kernel()?;
    let datadir = Datadir::open(disk, &options.datadir, options.network)?;
    let mode = if options.output.is_some() { LockMode::Read } else { LockMode::Change };
    let _locks = DatadirLock::take(disk, &datadir, mode)?;
    let target = Target::prepare(disk, &datadir, options)?;
    // Two runs that read one datadir must not write to one place.
    let _output_lock = match &options.output {
        Some(output) => {
            Some(DatadirLock::take(disk, &Datadir::at(output, options.network), LockMode::Change)?)
        }
        None => None,
    };
    target.clear_leftovers(disk)?;
    let work = WorkDir::new(disk, target.work_dir(options));
    let result = build(&work, options, &datadir, &target, sink, interrupt, &mut clock)
        .map_err(|error| checkpoint::told(error, &work, options.restart));
    if let Err(error) = &result {
        target.discard(disk);
        // Anything else can be mended, or was only interrupted: the next run goes on from the checkpoint.
        if matches!(error.kind, ErrorKind::Consensus | ErrorKind::Hints) {
            // That it cannot be removed is not what the user must hear of.
            let _ = work.remove();
        }
    }
    result
}

/// Settles; and if that fails for wrong hints, and the caller wants it, once more without them. Tells whether
/// hints have led to it.
fn settle(run: &Run<'_>, clock: &mut Clock) -> Result<(Settlement, bool), Error> {
    let error = match run.settle(clock) {
        Ok(settled) => {
            let by_hints = matches!(run.method, Method::Hints(_)) && settled.engine == Engine::Join;
            return Ok((settled, by_hints));
        }
        Err(error) => error,
    };
    let options = run.options.hints.as_ref().filter(|options| options.on_failure_join);
    let Some(options) = options.filter(|_| error.kind == ErrorKind::Hints) else { return Err(error) };
    run.sink.event(Event::Note(format!("{error}")));
    run.work.remove()?;
    let run = Run { resumable: false, ..*run };
    let found = match hints::first_wrong(&run, options)? {
        Some(wrong) => format!("the first wrong hint: {wrong}"),
        None => "all hints are right: the undo files are wrong".to_owned(),
    };
    run.sink.event(Event::Note(format!("{found}; rebuilding without hints")));
    Ok((Run { method: &Method::Join, ..run }.settle(clock)?, false))
}

fn build(
    work: &WorkDir<'_>,
    options: &ReindexOptions,
    datadir: &Datadir,
    target: &Target,
    sink: &dyn Sink,
    interrupt: &AtomicBool,
    clock: &mut Clock,
) -> Result<ReindexReport, Error> {
    let hashed_before = batched_bytes();
    let disk = work.disk();
    let obfuscation = read_block_obfuscation(disk, &datadir.blocks_dir())?;
    let files = &Files { disk, datadir, obfuscation, network: options.network };
    let plan = &run::plan(files, options, sink, interrupt)?;
    clock.lap(Stage::Plan);
    let (chain, sharers) = (&plan.chain, Sharers::of(options, plan.chain.block_count()));
    let (threads, join_bytes) = (sharers.threads, join_bytes_now(options.memory, sharers));
    let old = disk_need::folder_bytes(disk, target.chainstate_dir());
    let need = DiskNeed::estimate(plan.block_bytes, old, join_bytes);
    need.check(disk, target.chainstate_dir(), work.path())?;
    sink.event(Event::Note(need.to_string()));
    if options.restart {
        // Before hints look for a key in it.
        work.remove()?;
    }
    let method = match &options.hints {
        Some(hints) => hints::method(work, options, hints, plan)?,
        None => Method::Join,
    };
    let run = Run { files, plan, options, method: &method, work, resumable: true, sink, interrupt };
    let (mut settled, mut by_hints) = settle(&run, clock)?;

    sink.event(Event::Started(Stage::Finish));
    let key = options.obfuscation_key.map_or_else(run::random, Ok)?;
    let dir = target.building();
    let finish = Finish { disk, dir, chain, key, range_bytes: options.range_bytes, threads, interrupt };
    let written = match finish.write(settled.unspent)? {
        Some(written) => written,
        // Only the last merge has shown that a spend has no coin.
        None => {
            target.clear_leftovers(disk)?;
            (settled, by_hints) = (run.judge(clock, Height(0), 0)?, false);
            finish.write(settled.unspent)?.unwrap_or(UtxoCounts::NOTHING)
        }
    };
    let params = ChainParams::of(options.network);
    let total_amount = match finish::check_supply(params, chain, &written, settled.burned) {
        Some(amount) => amount,
        // Where undo data was not used, this is the first to show that a block pays itself too much.
        None => {
            run.judge(clock, Height(0), 0)?;
            let detail = "the coins amount to more than all subsidies; please report this";
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
    let chainstate = target.commit(disk, plan.new_index.as_ref(), sink)?;
    if let Err(error) = work.remove() {
        sink.event(Event::Note(format!("temporary files stay: {error}")));
    }
    clock.lap(Stage::Commit);

    let elapsed = clock.started.elapsed();
    let sha256_limit = Sha256Limit::since(hashed_before);
    Ok(ReindexReport {
        hints: options.hints.as_ref().filter(|_| by_hints).map(|hints| HintsReport::new(hints, &method)),
        network: options.network,
        height: chain.tip_height(),
        hash: chain.tip().hash,
        counts: settled.counts,
        txouts: stats.txouts,
        total_amount,
        hash_serialized_3: stats.hash_serialized_3.0,
        scripts: run::scripts_report(options, plan, &settled.counts),
        engine: if by_hints { "swiftsync" } else { settled.engine.name() },
        resumed: settled.resumed,
        memory: options.memory,
        spilled: settled.spilled,
        threads,
        elapsed,
        bound_by: clock.bound_by(threads),
        stages: std::mem::take(&mut clock.stages),
        sha256_kernel: machine::sha256_kernel()?,
        sha256_limit,
        peak_memory_bytes: machine::peak_memory_bytes(),
        chainstate,
    })
}
