//! A run: what is done with the blocks of a plan, by the join or by hints; and the judge, where they do not
//! suffice.

use crate::{
    chain::Files,
    checkpoint::{self, CompletedBlocks, Identity},
    clock::Clock,
    error::{Error, ErrorKind},
    event::{Event, EventSink, Progress},
    memory::{self, MemoryConsumers},
    options::{AssumeValid, Matching, ReindexOptions},
    report::{Counts, ScriptsReport},
    stages::{
        Stage,
        apply::Method,
        block_fault::BlockFault,
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
use coins::{Join, aggregate::Sum};
use rules::ChainParams;
use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use wire::{BlockHash, BlockTime, Height};

/// How often progress is told.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The coins after the last block, and how they were come by.
pub struct MatchedCoins {
    /// The coins.
    pub unspent: Unspent,
    /// What was checked.
    pub counts: Counts,
    /// Who matched spends with coins.
    pub matching: Matching,
    /// Blocks that an interrupted run had completed before.
    pub resumed: u32,
    /// What unspendable outputs destroyed, in satoshi, in blocks whose undo data was not used.
    pub burned: u64,
    /// What did not fit into the memory.
    pub spilled: SpillVolume,
}

/// What the choice of a chain depends on besides the options.
#[derive(Clone, Copy, Default)]
pub struct ChainPreferences<'a> {
    /// The last block of the hints that the run goes by.
    pub hints: Option<HintsEnd>,
    /// Of branches of equal work, the one with this block is chosen, if no hints speak for one.
    pub preferred: Option<BlockHash>,
    /// Blocks that earlier attempts found invalid.
    pub invalid: &'a [BlockHash],
}

/// The chain that is to be rebuilt.
///
/// # Errors
/// As [`plan::plan`].
pub fn plan(
    files: &Files<'_>,
    options: &ReindexOptions,
    choosing: &ChainPreferences<'_>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<Plan, Error> {
    let without_undo = options.hints.as_ref().is_some_and(|hints| hints.without_undo);
    let wanted = ChainRequest {
        stop_at: options.stop_at_height,
        assume_valid: options.assume_valid.hash(ChainParams::of(options.network)),
        preferred: choosing.hints.and_then(|end| end.hash).or(choosing.preferred),
        without_undo: choosing.hints.filter(|_| without_undo),
        invalid: choosing.invalid,
    };
    let plan = plan::plan(files, options.scan, &wanted, choosing.preferred, now(), interrupt)?;
    if let Some(hash) = plan.unknown_assumed.filter(|_| options.scripts.is_some()) {
        let text = |whose: &str| {
            format!(
                "the block {hash} {whose} is not among the headers here: the scripts of all blocks are \
                 checked"
            )
        };
        sink.event(match options.assume_valid {
            AssumeValid::Block(_) => Event::Warning(text("that --assumevalid names")),
            _ => Event::Note(text("that Bitcoin Core assumes to be valid by default")),
        });
    }
    sink.event(Event::Planned {
        height: plan.chain.tip_height(),
        hash: plan.chain.tip().hash,
        block_bytes: plan.block_bytes,
        unconnected: plan.unconnected,
    });
    if wanted.without_undo.is_some() && plan.lacks_last_undo {
        let note = format!(
            "bitcoind looks at the undo data of the last {} blocks when it starts, and that is not all on \
             disk: start it with -checklevel=1 until it has connected as many new blocks; it cannot undo \
             these",
            plan::CHECKED_AT_START
        );
        sink.event(Event::Warning(note));
    }
    Ok(plan)
}

/// Makes an attempt, and another one for as long as the last block of the chain turns out to be an invalid
/// one that was stored and never connected. `attempt` is told the blocks that must not be in the chain.
///
/// Bitcoin Core does the same when it connects blocks: one that breaks a rule is marked, and the next best
/// chain is tried. A block index tells which ones it has marked; block files do not (ADR 8).
///
/// # Errors
/// Those of the last attempt.
pub fn retry_without_invalid<T>(
    sink: &dyn EventSink,
    mut attempt: impl FnMut(&[BlockHash]) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut invalid = Vec::new();
    loop {
        match attempt(&invalid) {
            Err(Error { contested: true, block_hash: Some(hash), detail, height, .. })
                if !invalid.contains(&hash) =>
            {
                let height = height.map_or(String::new(), |height| format!(" at height {height}"));
                sink.event(Event::Warning(format!(
                    "block {hash}{height} is stored, but was never connected: it breaks a rule ({detail}), \
                     and a sibling has the same undo data; going on without it"
                )));
                invalid.push(hash);
            }
            done => return done,
        }
    }
}

/// Which scripts a run has run.
#[must_use]
pub fn scripts_report(options: &ReindexOptions, plan: &Plan, counts: &Counts) -> Option<ScriptsReport> {
    let report = ScriptsReport { assumed_valid_to: plan.assumed_valid_to, inputs: counts.scripts };
    options.scripts.map(|_| report)
}

/// All blocks checked and booked, or one found at fault.
struct PassResult<'a> {
    state: State,
    join: Join,
    spill: Spill<'a>,
    fault: Option<(Height, BlockFault)>,
}

/// What the stages that run side by side share.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The block files.
    pub files: &'a Files<'a>,
    /// The plan.
    pub plan: &'a Plan,
    /// What the caller asked for.
    pub options: &'a ReindexOptions,
    /// How effects are booked.
    pub method: &'a Method,
    /// Where temporary files go.
    pub work: &'a WorkDir<'a>,
    /// Whether an interrupted run shall be able to go on.
    pub resumable: bool,
    /// Where events go.
    pub sink: &'a dyn EventSink,
    /// The caller's wish to stop.
    pub interrupt: &'a AtomicBool,
}

impl Job<'_> {
    /// The coins after the last block: by the join, or where that cannot tell, by the judge.
    ///
    /// # Errors
    /// As [`crate::reindex()`].
    pub fn match_spends(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        if self.options.matching == Matching::Sequential {
            return self.validate_sequentially(clock, Height(0), 0);
        }
        let PassResult { mut state, join, spill, fault } = self.drive(clock)?;
        // Scripts of blocks below the first suspicious one have been run.
        let mut scripts_from = Height(u32::MAX);
        match fault {
            Some((_, BlockFault::Damaged(error))) => return Err(error),
            Some((height, BlockFault::Hints(flaw))) => {
                let error = self.wrong_hints(&flaw.to_string());
                return Err(error.at_block(height, self.plan.chain.block(height).hash));
            }
            Some((height, BlockFault::Suspect)) => scripts_from = height,
            None if spill.has_mismatch() => scripts_from = Height(0),
            None if state.outcome.coinbases.has_duplicate() => {}
            None => {
                if !state.outcome.sum.as_mut().is_none_or(Sum::is_zero) {
                    return Err(self.wrong_hints("the sum of what was made and what was spent is not zero"));
                }
                if let Some(unspent) = self.unspent(join, &spill)? {
                    let Outcome { counts, burned, .. } = state.outcome;
                    let resumed = state.resumed;
                    return Ok(MatchedCoins {
                        unspent,
                        counts,
                        matching: Matching::Parallel,
                        resumed,
                        burned,
                        spilled: spill.volume(),
                    });
                }
            }
        }
        let judged = self.validate_sequentially(clock, scripts_from, state.outcome.counts.scripts)?;
        if spill.has_mismatch() && matches!(self.method, Method::Hints(_)) {
            return Err(self.wrong_hints("above their last block a coin is spent that they call spent"));
        }
        Ok(judged)
    }

    /// Checks and books all blocks, or up to one at fault.
    fn drive(&self, clock: &mut Clock) -> Result<PassResult<'_>, Error> {
        let identity = self.identity()?;
        if self.threads() < self.options.threads.get() {
            let (threads, memory) = (self.threads(), self.options.memory >> 20);
            let note = format!("{threads} threads instead of {}: {memory} MiB", self.options.threads);
            self.sink
                .event(Event::Note(format!("{note} have no room for more; give more --memory for them")));
        }
        let (mut state, runs, next_run) = self.begin(&identity)?;
        let scripts = self.scripts();
        let join_bytes = memory::join_bytes_now(self.options.memory, self.memory_consumers());
        let join = self.method.join(random_pair()?);
        let join_bytes = self.options.join_bytes.unwrap_or(join_bytes);
        let spill =
            Spill::new(self.work, self.files.network, self.method.is_exact(), join_bytes, runs, next_run);
        let queue = scripts.map(ScriptQueue::new);
        let fault = thread::scope(|scope| {
            let _merger = spawn(scope, "merger", || spill.run_merge_thread(self.interrupt))?;
            let drive = WorkerPool {
                job: self,
                identity: &identity,
                join: &join,
                spill: &spill,
                queue: queue.as_ref(),
            };
            let fault = drive.check_all(&mut state);
            spill.close();
            fault
        })?;
        state.outcome.counts.scripts += queue.map_or(0, |queue| queue.inputs());
        clock.side_by_side(&state.outcome);
        Ok(PassResult { state, join, spill, fault })
    }

    /// The sum of all coins made less all coins spent.
    ///
    /// # Errors
    /// As [`Job::match_spends`].
    pub fn sum(&self, clock: &mut Clock) -> Result<Sum, Error> {
        let PassResult { mut state, fault, .. } = self.drive(clock)?;
        match (fault, state.outcome.sum) {
            (Some((_, BlockFault::Damaged(error))), _) => Err(error),
            (None, Some(sum)) if !state.outcome.coinbases.has_duplicate() => Ok(sum),
            // The judge tells what is wrong.
            _ => {
                self.validate_sequentially(clock, Height(0), 0).and_then(|_| Err(Error::inconsistent_data()))
            }
        }
    }

    /// [`Job::match_spends`] where the judge is of no help, because he knows coins, not places.
    ///
    /// # Errors
    /// As [`Job::match_spends`], and damage if it would need him.
    pub fn match_without_fallback(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        let completed = self.match_spends(clock)?;
        if completed.matching == Matching::Parallel { Ok(completed) } else { Err(Error::inconsistent_data()) }
    }

    /// Hints and files contradict each other. Which of the two is wrong is not known, and that a block is
    /// invalid is not said.
    fn wrong_hints(&self, why: &str) -> Error {
        let detail = format!(
            "{why}: the hints, or the block or undo files, are wrong; run without hints, or with \
             --on-hint-failure join to be told the first wrong one"
        );
        let error = Error::new(ErrorKind::Hints, detail);
        match &self.options.hints {
            Some(hints) => error.in_file(&hints.file, None),
            None => error,
        }
    }

    /// Worker threads.
    pub fn threads(&self) -> usize {
        self.memory_consumers().threads
    }

    /// Who shares the memory.
    pub fn memory_consumers(&self) -> MemoryConsumers {
        MemoryConsumers::of(self.options, self.plan.chain.block_count())
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

    /// What there is to begin with: nothing, or what an interrupted run has left.
    fn begin(&self, identity: &Identity<'_>) -> Result<(State, Vec<SpillFile>, u64), Error> {
        let mut state = State {
            completed: CompletedBlocks::none(self.plan.chain.block_count()),
            outcome: Outcome::new(random_pair()?),
            resumed: 0,
            saved: Instant::now(),
            save_took: Duration::ZERO,
        };
        if !self.resumable || self.options.restart {
            self.work.remove()?;
            return Ok((state, Vec::new(), 0));
        }
        let Some(resumed) = identity.resume(self.work)? else { return Ok((state, Vec::new(), 0)) };
        state.resumed = resumed.completed.count();
        state.completed = resumed.completed;
        state.outcome.counts = resumed.counts;
        state.outcome.coinbases = resumed.coinbases;
        if !self.method.restore(&resumed.matching, &mut state.outcome) {
            let detail =
                "the checkpoint of an interrupted run there was made by another version; give --restart";
            return Err(Error::new(ErrorKind::Usage, detail).in_file(self.work.path(), None));
        }
        let note = format!(
            "going on where an interrupted run stopped: {} of {} blocks are done",
            state.resumed,
            self.plan.chain.block_count()
        );
        self.sink.event(Event::Note(note));
        recheck::recheck(self, &state.completed, &resumed.changed)?;
        Ok((state, resumed.runs, resumed.next_run))
    }

    /// What is left in the join and in runs; nothing if something in it does not fit.
    fn unspent(&self, join: Join, spill: &Spill<'_>) -> Result<Option<Unspent>, Error> {
        if spill.is_empty() {
            return Ok(join.finish().ok().map(|survivors| Unspent::new(survivors, Vec::new(), true)));
        }
        let Ok(survivors) = join.finish_spilled() else { return Ok(None) };
        Ok(spill.finish(self.interrupt)?.map(|runs| Unspent::new(survivors, runs, self.method.is_exact())))
    }

    /// Goes through the chain in order. Comes back only if nothing is wrong with it.
    ///
    /// Scripts are run from the block at `scripts_from` on; `scripts_run` is how many have been.
    ///
    /// # Errors
    /// The verdict, damage, or [`ErrorKind::Interrupted`].
    pub fn validate_sequentially(
        &self,
        clock: &mut Clock,
        scripts_from: Height,
        scripts_run: u64,
    ) -> Result<MatchedCoins, Error> {
        if self.options.matching == Matching::Parallel {
            let why =
                "something does not fit, or a transaction occurs twice: going through the blocks in order";
            self.sink.event(Event::Note(why.to_owned()));
        }
        let chain = &self.plan.chain;
        self.sink.event(Event::Started(Stage::Sequential));
        let mut told = Instant::now();
        let scripts = self.scripts().map(|scripts| SequentialScripts { scripts, from: scripts_from });
        let (coins, mut counts) =
            sequential::validate(chain, self.files, scripts, self.interrupt, |counts| {
                if told.elapsed() >= PROGRESS_INTERVAL {
                    told = Instant::now();
                    self.progress(counts.blocks as u32, counts.block_bytes);
                }
            })
            .map_err(|error| self.of_contested(error))?;
        counts.scripts += scripts_run;
        clock.lap(Stage::Sequential);
        let unspent = Unspent::new(coins.into_survivors(), Vec::new(), true);
        Ok(MatchedCoins {
            unspent,
            counts,
            matching: Matching::Sequential,
            resumed: 0,
            burned: 0,
            spilled: SpillVolume::default(),
        })
    }

    /// Marks a verdict on a last block that may never have been connected.
    fn of_contested(&self, error: Error) -> Error {
        let of_tip = error.block_hash == Some(self.plan.chain.tip().hash);
        let contested = self.plan.tip_is_contested && of_tip && error.kind == ErrorKind::Consensus;
        Error { contested, ..error }
    }

    /// Tells how far the work is.
    pub fn progress(&self, blocks: u32, bytes: u64) {
        self.sink.event(Event::Progress(Progress {
            blocks,
            blocks_total: self.plan.chain.block_count() as u32,
            bytes,
            bytes_total: self.plan.block_bytes.max(bytes),
        }));
    }
}

/// Random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Environment, format!("no random numbers from the system: {error}"))
    })?;
    Ok(bytes)
}

fn random_pair() -> Result<(u64, u64), Error> {
    Ok((u64::from_le_bytes(random()?), u64::from_le_bytes(random()?)))
}

/// The time now, as headers tell it.
fn now() -> BlockTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    BlockTime(u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}
