//! The rebuild, stage after stage: control flow only.

use crate::{
    error::Error,
    event::{Event, Sink},
    machine,
    options::ReindexOptions,
    report::ReindexReport,
    run::{self, Clock},
    stages::{
        Stage,
        commit::Target,
        finish::{self, Finish},
    },
};
use disk::{
    datadir::Datadir,
    fs::Disk,
    lock::{DatadirLock, LockMode},
};
use rules::ChainParams;
use std::sync::atomic::{AtomicBool, Ordering};

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
    target.clear_leftovers(disk)?;
    let result = build(disk, options, &datadir, &target, sink, interrupt, &mut clock);
    if result.is_err() {
        target.discard(disk);
    }
    result
}

fn build(
    disk: &dyn Disk,
    options: &ReindexOptions,
    datadir: &Datadir,
    target: &Target,
    sink: &dyn Sink,
    interrupt: &AtomicBool,
    clock: &mut Clock,
) -> Result<ReindexReport, Error> {
    let (plan, settled) = run::settle(disk, options, datadir, sink, interrupt, clock)?;
    let (chain, threads) = (&plan.chain, options.threads.get());

    sink.event(Event::Started(Stage::Finish));
    let key = options.obfuscation_key.map_or_else(run::random, Ok)?;
    let dir = target.building();
    let finish = Finish { disk, dir, chain, key, range_bytes: options.range_bytes, threads, interrupt };
    let stats = finish.write(settled.survivors)?;
    let total_amount = finish::check_supply(ChainParams::of(options.network), chain, &stats)?;
    clock.lap(Stage::Finish);

    sink.event(Event::Started(Stage::Prove));
    finish.prove(&stats)?;
    clock.lap(Stage::Prove);

    sink.event(Event::Started(Stage::Commit));
    if interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    let chainstate = target.commit(disk, plan.new_index.as_ref(), sink)?;
    clock.lap(Stage::Commit);

    Ok(ReindexReport {
        network: options.network,
        height: chain.tip_height(),
        hash: chain.tip().hash,
        counts: settled.counts,
        txouts: stats.txouts,
        total_amount,
        hash_serialized_3: stats.hash_serialized_3.0,
        scripts: run::scripts_report(options, &plan, &settled.counts),
        engine: settled.engine.name(),
        threads,
        elapsed: clock.started.elapsed(),
        bound_by: clock.bound_by(threads),
        stages: std::mem::take(&mut clock.stages),
        sha256_kernel: machine::sha256_kernel()?,
        peak_memory_bytes: machine::peak_memory_bytes(),
        chainstate,
    })
}
