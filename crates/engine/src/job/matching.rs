//! Matches the spends of a job, in parallel if that proves the chain, and sequentially if not.

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, PROGRESS_INTERVAL, Progress},
        machine::random,
        note::Note,
        options::Matching,
        remedy::Remedy,
        report::SpillVolume,
        stage::Stage,
    },
    job::{
        Job, MatchStats, MatchedCoins,
        checkpoint::{self, Identity},
        clock::Clock,
        recheck,
        settle::Routing,
        worker_pool::{State, WorkerPool},
    },
    stages::{
        apply::JobPayload,
        block_fault::LocatedFault,
        check::Outcome,
        coin_sink::{CoinSink, Coins},
        deliveries::{Deliveries, PART_BLOCK_BYTES},
        make_undo::UndoSink,
        method::Method,
        partial_state::{MatchState, PartialState, by_height},
        scripts::{ScriptQueue, Scripts},
        sequential::{self, SequentialScripts, SequentialUndo},
        spill::{Spill, SpillFile},
        threads::spawn,
        unspent::{ForEachError, Unspent},
    },
};
use coins::{FullCoin, Join, OutputIndex, RoutedCoin, aggregate::Sum};
use rules::ChainParams;
use std::{
    thread,
    time::{Duration, Instant},
};
use wire::Height;

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

/// The part of the join's memory that deliveries get: one in this many.
const DELIVERIES_SHARE: usize = 8;

/// A payload of a job's join: what is done when the workers have stopped.
trait RunPayload: JobPayload {
    /// See [`Job::settle`].
    fn settle(
        _job: &Job<'_>,
        _join: &Join<Self>,
        _spill: &Spill<'_, Self>,
        _deliveries: Option<&Deliveries<'_>>,
        _scripts: Option<&ScriptQueue<'_>>,
        _state: &mut State,
    ) -> Result<Option<(Height, LocatedFault)>, Error> {
        Ok(None)
    }
}

impl RunPayload for FullCoin {}

impl RunPayload for OutputIndex {}

impl RunPayload for RoutedCoin {
    fn settle(
        job: &Job<'_>,
        join: &Join<Self>,
        spill: &Spill<'_, Self>,
        deliveries: Option<&Deliveries<'_>>,
        scripts: Option<&ScriptQueue<'_>>,
        state: &mut State,
    ) -> Result<Option<(Height, LocatedFault)>, Error> {
        let Some(deliveries) = deliveries else { return Ok(None) };
        job.settle(&Routing { join, spill, deliveries, scripts }, state)
    }
}

fn random_pair() -> Result<(u64, u64), Error> {
    Ok((u64::from_le_bytes(random()?), u64::from_le_bytes(random()?)))
}

impl Job<'_> {
    /// Returns the coins after the last block: from parallel matching or, if that proves too little, from
    /// sequential validation.
    ///
    /// # Errors
    /// The same errors as [`crate::reindex()`].
    pub fn match_spends(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        if self.options.hooks.matching == Matching::Sequential {
            return self.validate_sequentially(clock, Height(0), 0);
        }
        if let Method::Routed { uses_undo } = *self.method {
            return self.match_routed(clock, uses_undo);
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

    /// Like [`Job::match_spends`], where undo data is made. If that proves too little with the undo data that
    /// exists, all of it is made.
    fn match_routed(&self, clock: &mut Clock, uses_undo: bool) -> Result<MatchedCoins, Error> {
        let unproven = match self.match_in_parallel::<RoutedCoin>(clock)? {
            Ok(MatchedCoins { unspent, stats }) => {
                return Ok(MatchedCoins { unspent: unspent.into_full_coins(), stats });
            }
            Err(unproven) => unproven,
        };
        self.work.remove()?;
        self.undo_sink.map_or(Ok(()), UndoSink::start_over)?;
        if uses_undo {
            let job = Job { method: &Method::Routed { uses_undo: false }, resume: None, ..*self };
            return job.match_routed(clock, false);
        }
        self.validate_sequentially(clock, unproven.scripts_from, unproven.scripts_run)
    }

    /// Returns the coins after the last block with their output positions. Coins from sequential validation
    /// have no positions, so it only names what is wrong.
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
    fn match_in_parallel<P: RunPayload>(
        &self,
        clock: &mut Clock,
    ) -> Result<Result<MatchedCoins<P>, Unproven>, Error> {
        let deliveries = self.deliveries();
        let PassResult { mut state, join, spill, fault } = self.run_workers(clock, deliveries.as_ref())?;
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
                    let (mut burned, mut outputs) = Default::default();
                    match matching {
                        MatchState::Join | MatchState::Routed { .. } => {}
                        MatchState::Hints { burned: amount, .. } => burned = *amount,
                        MatchState::Positions { outputs: numbers } => {
                            outputs = by_height(numbers, self.plan.chain.block_count());
                        }
                    }
                    let (matching, resumed) = (Matching::Parallel, state.resumed);
                    let spilled = spill.volume();
                    let counts = *counts;
                    let stats = MatchStats { counts, matching, resumed, burned, outputs, spilled };
                    return Ok(Ok(MatchedCoins { unspent, stats }));
                }
            }
        }
        let scripts_run = state.outcome.partial.counts.scripts;
        Ok(Err(Unproven { scripts_from, scripts_run, has_merge_mismatch: spill.has_mismatch() }))
    }

    /// Where matches deliver coins, if undo data is made.
    fn deliveries(&self) -> Option<Deliveries<'_>> {
        let memory = self.budget.join_bytes / DELIVERIES_SHARE;
        let new = || Deliveries::new(self.work, &self.plan.chain, PART_BLOCK_BYTES, memory);
        matches!(self.method, Method::Routed { .. }).then(new)
    }

    /// Checks and applies all blocks in parallel, or stops at a block fault.
    fn run_workers<'d, P: RunPayload>(
        &'d self,
        clock: &mut Clock,
        deliveries: Option<&'d Deliveries<'d>>,
    ) -> Result<PassResult<'d, P>, Error> {
        let identity = self.identity()?;
        if self.threads() < self.options.threads.get() {
            let (threads, memory) = (self.threads(), self.options.memory_bytes);
            let wanted = self.options.threads.get();
            self.sink.event(Event::Note(Note::FewerThreads { threads, wanted, memory }));
        }
        let (state, runs, next_run) = self.initial_state(&identity)?;
        let scripts = self.scripts();
        let join = Join::with_key(random_pair()?);
        let (network, mut join_bytes) = (self.files.network, self.budget.join_bytes);
        if deliveries.is_some() {
            join_bytes -= join_bytes / DELIVERIES_SHARE;
        }
        let spill = Spill::new(self.work, network, join_bytes, deliveries, (runs, next_run));
        let queue = scripts.map(ScriptQueue::new);
        let settle = |state: &mut State| P::settle(self, &join, &spill, deliveries, queue.as_ref(), state);
        let (state, fault) = thread::scope(|scope| {
            let _merge_thread = spawn(scope, "merger", || spill.run_merge_thread(self.interrupt))?;
            let pool = WorkerPool {
                job: self,
                identity: &identity,
                join: &join,
                spill: &spill,
                deliveries,
                queue: queue.as_ref(),
            };
            let checked = pool.check_all(state, &settle);
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
        let PassResult::<FullCoin> { state, fault, .. } = self.run_workers(clock, None)?;
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
        match self.hints {
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
        self.options.scripts.as_deref().map(|verifier| Scripts { params, verifier, skipped_to })
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
        let start_over = || self.undo_sink.map_or(Ok(()), UndoSink::start_over);
        if self.resume.is_none_or(|resume| resume.restart) {
            self.work.remove()?;
            start_over()?;
            return Ok((state, Vec::new(), 0));
        }
        let Some(resumed) = identity.resume(self.work, self.method)? else {
            start_over()?;
            return Ok((state, Vec::new(), 0));
        };
        if let (Some(sink), MatchState::Routed { made, .. }) = (self.undo_sink, &resumed.partial.matching) {
            sink.resume(&self.plan.chain, made)?;
        }
        state.resumed = resumed.partial.completed.count();
        state.outcome.partial = resumed.partial;
        self.sink.event(Event::Note(Note::Resuming { done: state.resumed, total: blocks }));
        recheck::recheck(self, &state.outcome.partial, &resumed.changed)?;
        Ok((state, resumed.runs, resumed.next_run))
    }

    /// Returns what is left in the join and in sorted runs; `None` on a mismatch.
    fn unspent<P: JobPayload>(
        &self,
        join: Join<P>,
        spill: &Spill<'_, P>,
    ) -> Result<Option<Unspent<P>>, Error> {
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
        if self.options.hooks.matching == Matching::Parallel {
            self.sink.event(Event::Note(Note::ValidatingSequentially));
        }
        let chain = &self.plan.chain;
        self.sink.event(Event::Started(Stage::Sequential));
        let mut last_progress = Instant::now();
        let scripts = self.scripts().map(|scripts| SequentialScripts { scripts, from: scripts_from });
        let undo = match self.method {
            Method::Routed { .. } => SequentialUndo::Make(self.undo_sink),
            _ => SequentialUndo::Compare,
        };
        let (coins, mut counts) =
            sequential::validate(chain, self.files, scripts, undo, self.interrupt, |counts| {
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
        let (resumed, burned, outputs) = Default::default();
        let stats = MatchStats { counts, matching, resumed, burned, outputs, spilled };
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

impl Job<'_> {
    /// Gives the coins to `sink`, and returns what it has made of them.
    ///
    /// If entries were spilled, parallel matching is done, but only the last merge, which is this walk, can
    /// find that a spend has no coin. Then the sink starts over, and consumes the coins of sequential
    /// validation.
    ///
    /// # Errors
    /// The errors of the sink, and those of [`Job::match_spends`].
    pub fn for_each_coin<S: CoinSink>(
        &self,
        matched: MatchedCoins,
        clock: &mut Clock,
        sink: &mut S,
    ) -> Result<(S::Output, MatchStats), Error> {
        let consume = |matched: MatchedCoins, sink: &mut S| {
            sink.consume(Coins::new(matched.unspent, self.interrupt)).map(|output| (output, matched.stats))
        };
        match consume(matched, sink) {
            Ok(done) => return Ok(done),
            Err(ForEachError::Error(error)) => return Err(error),
            Err(ForEachError::Mismatch) => sink.start_over()?,
        }
        let matched = self.validate_sequentially(clock, Height(0), 0)?;
        consume(matched, sink).map_err(|error| match error {
            ForEachError::Error(error) => error,
            ForEachError::Mismatch => {
                Error::new(ErrorKind::Internal, "sequential validation left spends among the coins")
            }
        })
    }
}
