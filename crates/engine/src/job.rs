//! A job: matches the spends of the blocks of a plan, in parallel with the join or with hints, and falls back
//! to sequential validation.

use crate::{
    chain::Files,
    checkpoint::{self, Identity},
    clock::Clock,
    dependents,
    error::{Error, ErrorKind},
    event::{Event, EventSink, Progress},
    memory::MemoryBudget,
    note::{Note, Warning},
    options::{AssumeValid, Matching, ReindexOptions},
    partial_state::{MatchState, PartialState, outputs_by_height},
    remedy::Remedy,
    report::{Counts, ScriptsReport},
    stages::{
        Stage,
        apply::{JobPayload, Method},
        block_fault::LocatedFault,
        check::Outcome,
        plan::{self, Plan},
        recheck,
        scripts::{ScriptQueue, Scripts},
        sequential::{self, SequentialScripts},
        spill::{Spill, SpillFile, SpillVolume},
    },
    threads::spawn,
    tree::{ChainRequest, HintsEnd},
    unspent::Unspent,
    work_dir::WorkDir,
    worker_pool::{State, WorkerPool},
};
use coins::{FullCoin, Join, OutputIndex, Payload, aggregate::Sum};
use rules::ChainParams;
use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use wire::{BlockHash, BlockTime, Height};

/// Interval between two progress events.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The final UTXO set, and how it was obtained.
pub struct MatchedCoins<P = FullCoin> {
    /// The coins.
    pub unspent: Unspent<P>,
    /// How they were obtained.
    pub stats: MatchStats,
}

/// How the final UTXO set was obtained.
pub struct MatchStats {
    /// Number of blocks, transactions, inputs and outputs checked.
    pub counts: Counts,
    /// How spends were matched with coins.
    pub matching: Matching,
    /// Number of blocks that an interrupted run had completed before.
    pub resumed: u32,
    /// Amount of unspendable outputs, in satoshi, in blocks whose undo data was not used.
    pub burned: u64,
    /// Number of outputs of each block, by height, if output positions were matched; else empty.
    pub outputs: Vec<u32>,
    /// What was spilled because it exceeded the memory budget.
    pub spilled: SpillVolume,
}

/// What the choice of the chain depends on besides the options.
#[derive(Clone, Copy, Default)]
pub struct ChainPreferences<'a> {
    /// The last block of the hints that the rebuild uses.
    pub hints: Option<HintsEnd>,
    /// A block that decides between branches of equal work, if no hints decide.
    pub preferred: Option<BlockHash>,
    /// Blocks that earlier attempts found invalid.
    pub invalid: &'a [BlockHash],
}

/// Chooses the chain to rebuild.
///
/// # Errors
/// The same errors as [`plan::plan`].
pub fn plan(
    files: &Files<'_>,
    options: &ReindexOptions,
    preferences: &ChainPreferences<'_>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<Plan, Error> {
    let without_undo = options.hints.as_ref().is_some_and(|hints| hints.without_undo);
    let request = ChainRequest {
        stop_at: options.stop_at_height,
        assume_valid: options.assume_valid.hash(ChainParams::of(options.network)),
        preferred: preferences.hints.and_then(|end| end.hash).or(preferences.preferred),
        without_undo: preferences.hints.filter(|_| without_undo),
        invalid: preferences.invalid,
    };
    let plan = plan::plan(files, options.scan, &request, preferences.preferred, now(), interrupt)
        .map_err(|error| dependents::explain(files, error))?;
    if let Some(hash) = plan.unknown_assumed.filter(|_| options.scripts.is_some()) {
        sink.event(match options.assume_valid {
            AssumeValid::Block(_) => Event::Warning(Warning::UnknownAssumedBlock { hash }),
            _ => Event::Note(Note::UnknownAssumedBlock { hash }),
        });
    }
    sink.event(Event::Planned {
        height: plan.chain.tip_height(),
        hash: plan.chain.tip().hash,
        block_bytes: plan.block_bytes,
        unconnected: plan.unconnected,
    });
    if request.without_undo.is_some() && plan.lacks_last_undo {
        sink.event(Event::Warning(Warning::LacksLastUndo { blocks: plan::CHECKED_AT_START }));
    }
    Ok(plan)
}

/// Calls `attempt` with no invalid blocks; while it fails because the last block of the chain is a stored
/// block that was never connected and is invalid, calls it again with that block added to the invalid ones.
///
/// Bitcoin Core does the same when it connects blocks: it marks a block that breaks a rule, and tries the
/// next best chain. A block index records which blocks Core has marked; block files do not (ADR 8).
///
/// # Errors
/// The error of the last attempt.
pub fn retry_without_invalid<T>(
    sink: &dyn EventSink,
    mut attempt: impl FnMut(&[BlockHash]) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut invalid = Vec::new();
    loop {
        match attempt(&invalid) {
            Err(error) if error.contested => match error.block_hash {
                Some(hash) if !invalid.contains(&hash) => {
                    sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
                    invalid.push(hash);
                }
                _ => return Err(error),
            },
            done => return done,
        }
    }
}

/// Reports which scripts were run; `None` if none were asked for.
#[must_use]
pub fn scripts_report(options: &ReindexOptions, plan: &Plan, counts: &Counts) -> Option<ScriptsReport> {
    let report = ScriptsReport { assumed_valid_to: plan.assumed_valid_to, inputs: counts.scripts };
    options.scripts.map(|_| report)
}

/// Result of the parallel pass: all blocks checked and applied, or the lowest block fault.
struct PassResult<'a, P> {
    state: State,
    join: Join<P>,
    spill: Spill<'a, P>,
    fault: Option<(Height, LocatedFault)>,
}

/// Parallel matching proved too little: sequential validation must find the cause.
struct Unproven {
    /// The block from which on scripts must be run.
    scripts_from: Height,
    /// Number of inputs whose scripts have been run.
    scripts_run: u64,
    /// Whether a merge of sorted runs found a mismatch.
    has_merge_mismatch: bool,
}

/// What the parallel stages share.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The block files.
    pub files: &'a Files<'a>,
    /// The plan.
    pub plan: &'a Plan,
    /// The memory budget, made when the plan was complete.
    pub budget: MemoryBudget,
    /// What the caller asked for.
    pub options: &'a ReindexOptions,
    /// How effects are matched.
    pub method: &'a Method,
    /// The work directory, for temporary files.
    pub work: &'a WorkDir<'a>,
    /// Whether the job saves checkpoints, so that an interrupted run can be resumed.
    pub resumable: bool,
    /// Receives events.
    pub sink: &'a dyn EventSink,
    /// Set by the caller to stop the job.
    pub interrupt: &'a AtomicBool,
}

impl Job<'_> {
    /// Returns the coins after the last block: from parallel matching or, if that proves too little, from
    /// sequential validation.
    ///
    /// # Errors
    /// The same errors as [`crate::reindex()`].
    pub fn match_spends(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        if self.options.matching == Matching::Sequential {
            return self.validate_sequentially(clock, Height(0), 0);
        }
        let unproven = match self.match_in_parallel(clock)? {
            Ok(matched) => return Ok(matched),
            Err(unproven) => unproven,
        };
        let matched = self.validate_sequentially(clock, unproven.scripts_from, unproven.scripts_run)?;
        if unproven.has_merge_mismatch && matches!(self.method, Method::Hints(_)) {
            return Err(self
                .wrong_hints("a block above the hints' last block spends a coin that the hints call spent"));
        }
        Ok(matched)
    }

    /// Returns the coins after the last block with their output positions. Coins from sequential validation have
    /// no positions, so it only names what is wrong.
    ///
    /// # Errors
    /// The same errors as [`Job::match_spends`], and [`ErrorKind::Damaged`] if sequential validation found
    /// nothing wrong with the blocks.
    pub fn match_positions(&self, clock: &mut Clock) -> Result<MatchedCoins<OutputIndex>, Error> {
        match self.match_in_parallel(clock)? {
            Ok(matched) => Ok(matched),
            Err(Unproven { scripts_from, scripts_run, .. }) => {
                self.validate_sequentially(clock, scripts_from, scripts_run)?;
                Err(Error::inconsistent_data())
            }
        }
    }

    /// Returns the coins after the last block from parallel matching, if that proves that they are right.
    fn match_in_parallel<P: JobPayload>(
        &self,
        clock: &mut Clock,
    ) -> Result<Result<MatchedCoins<P>, Unproven>, Error> {
        let PassResult { mut state, join, spill, fault } = self.run_workers(clock)?;
        // Scripts of blocks below the first suspect block have been run.
        let mut scripts_from = Height(u32::MAX);
        match fault {
            Some((_, LocatedFault::Error(error))) => return Err(error),
            Some((height, LocatedFault::Hints(flaw))) => {
                let error = self.wrong_hints(&flaw.to_string());
                return Err(error.at_block(height, self.plan.chain.block(height).hash));
            }
            Some((height, LocatedFault::Suspect)) => scripts_from = height,
            None if spill.has_mismatch() => scripts_from = Height(0),
            None if state.outcome.partial.coinbases.has_duplicate() => {}
            None => {
                let PartialState { counts, matching, .. } = &mut state.outcome.partial;
                if let MatchState::Hints { sum, .. } = matching
                    && !sum.is_zero()
                {
                    return Err(
                        self.wrong_hints("the sum of all coins created less all coins spent is not zero")
                    );
                }
                if let Some(unspent) = self.unspent(join, &spill)? {
                    let (burned, outputs) = match matching {
                        MatchState::Join => (0, Vec::new()),
                        MatchState::Hints { burned, .. } => (*burned, Vec::new()),
                        MatchState::Positions { outputs } => {
                            (0, outputs_by_height(outputs, self.plan.chain.block_count()))
                        }
                    };
                    let (matching, resumed) = (Matching::Parallel, state.resumed);
                    let spilled = spill.volume();
                    let stats = MatchStats { counts: *counts, matching, resumed, burned, outputs, spilled };
                    return Ok(Ok(MatchedCoins { unspent, stats }));
                }
            }
        }
        let scripts_run = state.outcome.partial.counts.scripts;
        Ok(Err(Unproven { scripts_from, scripts_run, has_merge_mismatch: spill.has_mismatch() }))
    }

    /// Checks and applies all blocks in parallel, or stops at a block fault.
    fn run_workers<P: JobPayload>(&self, clock: &mut Clock) -> Result<PassResult<'_, P>, Error> {
        let identity = self.identity()?;
        if self.threads() < self.options.threads.get() {
            let (threads, memory) = (self.threads(), self.options.memory);
            let wanted = self.options.threads.get();
            self.sink.event(Event::Note(Note::FewerThreads { threads, wanted, memory }));
        }
        let (state, runs, next_run) = self.initial_state(&identity)?;
        let scripts = self.scripts();
        let join = Join::with_key(random_pair()?);
        let (network, join_bytes) = (self.files.network, self.budget.join_bytes);
        let spill = Spill::new(self.work, network, join_bytes, runs, next_run);
        let queue = scripts.map(ScriptQueue::new);
        let (state, fault) = thread::scope(|scope| {
            let _merge_thread = spawn(scope, "merger", || spill.run_merge_thread(self.interrupt))?;
            let pool = WorkerPool {
                job: self,
                identity: &identity,
                join: &join,
                spill: &spill,
                queue: queue.as_ref(),
            };
            let checked = pool.check_all(state);
            spill.close();
            checked
        })?;
        clock.lap_parallel(&state.outcome);
        Ok(PassResult { state, join, spill, fault })
    }

    /// Returns the sum of all coins created less all coins spent.
    ///
    /// # Errors
    /// The same errors as [`Job::match_spends`].
    pub fn sum(&self, clock: &mut Clock) -> Result<Sum, Error> {
        let PassResult::<FullCoin> { state, fault, .. } = self.run_workers(clock)?;
        let PartialState { mut coinbases, matching, .. } = state.outcome.partial;
        match (fault, matching) {
            (Some((_, LocatedFault::Error(error))), _) => Err(error),
            (None, MatchState::Hints { sum, .. }) if !coinbases.has_duplicate() => Ok(sum),
            // Sequential validation reports what is wrong.
            _ => {
                self.validate_sequentially(clock, Height(0), 0).and_then(|_| Err(Error::inconsistent_data()))
            }
        }
    }

    /// Reports that hints and files contradict each other. It is not known which of them is wrong, so the
    /// error does not claim that the block is invalid.
    fn wrong_hints(&self, why: &str) -> Error {
        let detail = format!("{why}: the hints, or the block or undo files, are wrong");
        let error = Error::new(ErrorKind::Hints, detail)
            .with_remedies([Remedy::WithoutHints, Remedy::FallBackToJoin]);
        match &self.options.hints {
            Some(hints) => error.in_file(&hints.file, None),
            None => error,
        }
    }

    /// Number of worker threads.
    pub const fn threads(&self) -> usize {
        self.budget.threads
    }

    fn scripts(&self) -> Option<Scripts<'_>> {
        let params = ChainParams::of(self.files.network);
        let skipped_to = self.plan.assumed_valid_to;
        self.options.scripts.map(|verifier| Scripts { params, verifier, skipped_to })
    }

    fn identity(&self) -> Result<Identity<'_>, Error> {
        let (files, chain) = (self.files, &self.plan.chain);
        let settings = checkpoint::settings(self.options, chain, self.method);
        Ok(Identity { files, chain, settings, stamps: checkpoint::stamps(files, chain)? })
    }

    /// The initial state: empty, or restored from the checkpoint of an interrupted run.
    fn initial_state(&self, identity: &Identity<'_>) -> Result<(State, Vec<SpillFile>, u64), Error> {
        let blocks = self.plan.chain.block_count();
        let mut state = State {
            outcome: Outcome::new(PartialState::empty(blocks, random_pair()?, self.method)),
            resumed: 0,
            saved: Instant::now(),
            save_took: Duration::ZERO,
        };
        if !self.resumable || self.options.restart {
            self.work.remove()?;
            return Ok((state, Vec::new(), 0));
        }
        let Some(resumed) = identity.resume(self.work, self.method)? else {
            return Ok((state, Vec::new(), 0));
        };
        state.resumed = resumed.partial.completed.count();
        state.outcome.partial = resumed.partial;
        self.sink.event(Event::Note(Note::Resuming { done: state.resumed, total: blocks }));
        recheck::recheck(self, &state.outcome.partial.completed, &resumed.changed)?;
        Ok((state, resumed.runs, resumed.next_run))
    }

    /// Returns what is left in the join and in sorted runs; `None` on a mismatch.
    fn unspent<P: Payload>(&self, join: Join<P>, spill: &Spill<'_, P>) -> Result<Option<Unspent<P>>, Error> {
        if spill.is_empty() {
            return Ok(join.finish().ok().map(|survivors| Unspent::new(survivors, Vec::new())));
        }
        let Ok(survivors) = join.finish_spilled() else { return Ok(None) };
        Ok(spill.finish(self.interrupt)?.map(|runs| Unspent::new(survivors, runs)))
    }

    /// Validates the chain sequentially. Returns coins only if the whole chain is valid.
    ///
    /// Scripts are run from the block at `scripts_from` on; `scripts_run` is the number of inputs whose
    /// scripts have been run before.
    ///
    /// # Errors
    /// The first violation, damage, or [`ErrorKind::Interrupted`]; [`ErrorKind::Damaged`] if positions are
    /// matched, because these coins have none.
    pub fn validate_sequentially(
        &self,
        clock: &mut Clock,
        scripts_from: Height,
        scripts_run: u64,
    ) -> Result<MatchedCoins, Error> {
        if self.options.matching == Matching::Parallel {
            self.sink.event(Event::Note(Note::ValidatingSequentially));
        }
        let chain = &self.plan.chain;
        self.sink.event(Event::Started(Stage::Sequential));
        let mut last_progress = Instant::now();
        let scripts = self.scripts().map(|scripts| SequentialScripts { scripts, from: scripts_from });
        let (coins, mut counts) =
            sequential::validate(chain, self.files, scripts, self.interrupt, |counts| {
                if last_progress.elapsed() >= PROGRESS_INTERVAL {
                    last_progress = Instant::now();
                    self.progress(counts.blocks as u32, counts.block_bytes);
                }
            })
            .map_err(|error| self.mark_contested(error))?;
        counts.scripts += scripts_run;
        clock.lap(Stage::Sequential);
        let unspent = Unspent::new(coins.into_survivors(), Vec::new());
        let (matching, spilled) = (Matching::Sequential, SpillVolume::default());
        let stats = MatchStats { counts, matching, resumed: 0, burned: 0, outputs: Vec::new(), spilled };
        Ok(MatchedCoins { unspent, stats })
    }

    /// Marks the error as contested if it is about a last block that may never have been connected.
    fn mark_contested(&self, mut error: Error) -> Error {
        let is_tip = error.block_hash == Some(self.plan.chain.tip().hash);
        error.contested = self.plan.tip_is_contested && is_tip && error.kind == ErrorKind::Consensus;
        error
    }

    /// Sends a progress event.
    pub fn progress(&self, blocks: u32, bytes: u64) {
        self.sink.event(Event::Progress(Progress {
            blocks,
            blocks_total: self.plan.chain.block_count() as u32,
            bytes,
            bytes_total: self.plan.block_bytes.max(bytes),
        }));
    }
}

/// Returns random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Environment, format!("the system provides no random numbers: {error}"))
            .caused_by(error)
    })?;
    Ok(bytes)
}

fn random_pair() -> Result<(u64, u64), Error> {
    Ok((u64::from_le_bytes(random()?), u64::from_le_bytes(random()?)))
}

/// Returns the current time as a block time.
fn now() -> BlockTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    BlockTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}
