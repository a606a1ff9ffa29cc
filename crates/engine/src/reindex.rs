//! The rebuild, stage after stage: control flow only.

use crate::{
    error::Error,
    event::{Event, Sink},
    machine,
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
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use wire::{BlockHash, Height, Network, ScriptVerifier};

/// How spends are matched with coins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// In any order, on all cores; what cannot be proven so is left to the other.
    Join,
    /// In order, on one thread, with real coins.
    Ordered,
}

impl Engine {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Ordered => "ordered",
        }
    }
}

/// Below which block scripts are taken for valid (Core `-assumevalid`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssumeValid {
    /// The block that Core's release names for the network.
    Default,
    /// None: all scripts are run.
    Nothing,
    /// This one, under Core's conditions.
    Block(BlockHash),
}

impl AssumeValid {
    pub(crate) fn hash(self, params: &ChainParams) -> Option<BlockHash> {
        match self {
            Self::Default => params.assume_valid,
            Self::Nothing => None,
            Self::Block(hash) => Some(hash),
        }
    }
}

/// What to rebuild, from what, into what.
#[derive(Clone, Debug)]
pub struct ReindexOptions {
    /// Core's data directory.
    pub datadir: PathBuf,
    /// The network.
    pub network: Network,
    /// Worker threads, besides the one that reads.
    pub threads: NonZeroUsize,
    /// Last block; nothing for the last one on disk.
    pub stop_at_height: Option<Height>,
    /// Where the chainstate goes, if not into the datadir itself.
    pub output: Option<PathBuf>,
    /// Find blocks by scanning their files, and write a new block index.
    pub scan: bool,
    /// What to begin with: anything but [`Engine::Join`] is for tests and comparisons.
    pub engine: Engine,
    /// Who runs scripts: room `script` has Bitcoin Core's own code. Nobody: scripts are not checked.
    pub scripts: Option<&'static dyn ScriptVerifier>,
    /// Which scripts need not be run.
    pub assume_valid: AssumeValid,
    /// About how many bytes of rows go into one range of the new chainstate's tables.
    pub range_bytes: u64,
    /// The new chainstate's obfuscation key; nothing to draw one from the system.
    pub obfuscation_key: Option<[u8; 8]>,
}

impl ReindexOptions {
    /// The options of a plain run on one thread.
    #[must_use]
    pub fn new(datadir: &Path, network: Network) -> Self {
        Self {
            datadir: datadir.to_owned(),
            network,
            threads: NonZeroUsize::MIN,
            stop_at_height: None,
            output: None,
            scan: false,
            scripts: None,
            assume_valid: AssumeValid::Default,
            engine: Engine::Join,
            range_bytes: finish::RANGE_BYTES,
            obfuscation_key: None,
        }
    }
}

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
