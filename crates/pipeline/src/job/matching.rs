//! Matches the spends of a job: in parallel, or by sequential validation.

use crate::{
    job::{
        Job, MatchStats, MatchedCoins,
        checkpoint::{self, Identity},
        clock::Clock,
        recheck,
        worker_pool::{State, WorkerPool},
    },
    stages::{
        block_fault::BlockFault,
        check::{Outcome, Routing},
        coin_sink::Coins,
        deliveries::Deliveries,
        make_undo::UndoSink,
        method::Method,
        partial_state::{MatchState, PartialState},
        parts::Parts,
        scripts::{ScriptQueue, Scripts},
        spill::{Spill, SpillFile},
        unspent::{ForEachError, Unspent},
    },
};
use api::{
    block_observer::ObservedChain,
    error::{Error, ErrorKind},
    event::{Event, Progress},
    machine::random_key,
    note::Note,
    options::Matching,
    remedy::Remedy,
    subject::Subject,
};
use chain::threads::spawn;
use coins::SipKey;
use coins::{Join, Mismatch, aggregate::Sum};
use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};
use wire::{Height, OutPoint};

/// Result of the parallel pass: all blocks checked and applied, or the lowest block fault.
struct PassResult<'a> {
    state: State,
    join: Join,
    spill: Spill<'a>,
    fault: Option<(Height, BlockFault)>,
}

/// Why parallel matching did not prove that the chain is valid.
pub enum Unproven {
    /// This block, its undo data, or an earlier block breaks a rule. No lower block with a fault was found.
    Suspect(Height),
    /// Creations and spends of these outpoints, and perhaps of others, do not match. `in_merge` says whether
    /// a merge of sorted runs found that, and `is_resumed` whether an interrupted run has completed blocks,
    /// perhaps with claims of peers.
    Mismatch { outpoints: HashSet<OutPoint>, in_merge: bool, is_resumed: bool },
    /// Two coinbases have the same txid.
    RepeatedCoinbase,
}

impl Job<'_> {
    /// Returns the coins after the last block: from parallel matching or, if that proves too little, from a
    /// check without undo data.
    ///
    /// # Errors
    /// The same errors as `reindex`.
    pub fn match_spends(&self, clock: &mut Clock) -> Result<MatchedCoins, Error> {
        if self.options.hooks.matching == Matching::Sequential {
            return self.validate_sequentially(clock);
        }
        let unproven = match self.match_in_parallel(clock)? {
            Ok(matched) => return Ok(matched),
            Err(unproven) => unproven,
        };
        if self.method.makes_undo() {
            // If the chain is valid, this makes all undo data, and needs no hints.
            return self.decide(unproven, clock);
        }
        let matched = self.check_without_undo(clock)?;
        if matches!((unproven, self.method), (Unproven::Mismatch { in_merge: true, .. }, Method::Hints(_))) {
            return Err(self
                .wrong_hints("a block above the hints' last block spends a coin that the hints call spent"));
        }
        Ok(matched)
    }

    /// Returns the coins after the last block from parallel matching, if that proves that they are right, or
    /// why it does not.
    ///
    /// # Errors
    /// Damage; wrong hints; any I/O error; [`ErrorKind::Interrupted`].
    pub fn match_in_parallel(&self, clock: &mut Clock) -> Result<Result<MatchedCoins, Unproven>, Error> {
        let deliveries = self.method.makes_undo().then(|| self.deliveries());
        let PassResult { mut state, join, spill, fault } = self.run_workers(clock, deliveries.as_ref())?;
        if fault.is_none() && self.method.makes_undo() && !state.outcome.partial.coinbases.has_duplicate() {
            // Here the sum shows by itself whether the hints are right, whatever else does not match.
            self.check_sum(&mut state.outcome.partial)?;
        }
        match fault {
            Some((_, BlockFault::Error(error))) => return Err(error),
            Some((height, BlockFault::Hints(flaw))) => {
                let error = self.wrong_hints(&flaw.to_string());
                return Err(error.at_block(height, self.plan.chain.block(height).hash));
            }
            Some((height, BlockFault::Suspect)) => return Ok(Err(Unproven::Suspect(height))),
            // The coins of a repeated coinbase do not match either, so a mismatch says nothing here.
            None if state.outcome.partial.coinbases.has_duplicate() => {
                return Ok(Err(Unproven::RepeatedCoinbase));
            }
            None if spill.has_mismatch() => {}
            None => {
                // A conflict of two blocks says more: a check without undo data names the invalid one.
                if !join.has_mismatches() {
                    self.check_sum(&mut state.outcome.partial)?;
                }
                let PartialState { counts, matching, .. } = &state.outcome.partial;
                if let Some(unspent) = self.unspent(join, &spill)? {
                    let (used_hints, burned) = match matching {
                        MatchState::Join => (false, 0),
                        MatchState::Hints { burned, .. } => (true, *burned),
                    };
                    let (matching, resumed) = (Matching::Parallel, state.resumed);
                    let spilled = spill.volume();
                    let (counts, ages) = (*counts, state.outcome.ages);
                    let stats = MatchStats { counts, matching, used_hints, resumed, burned, spilled, ages };
                    return Ok(Ok(MatchedCoins { unspent, stats }));
                }
            }
        }
        let (in_merge, is_resumed) = (spill.has_mismatch(), state.resumed > 0);
        let outpoints = spill.take_mismatches();
        Ok(Err(Unproven::Mismatch { outpoints, in_merge, is_resumed }))
    }

    /// Returns what the blocks of a range amount to, and the coins and spends that they leave. Claims that
    /// nothing in the range proves are taken as true.
    ///
    /// # Errors
    /// The first violation in the range if these claims are true; [`ErrorKind::Damaged`] if blocks and undo
    /// data contradict each other; damage; any I/O error; [`ErrorKind::Interrupted`].
    pub fn match_range(&self, clock: &mut Clock) -> Result<(PartialState, Unspent), Error> {
        let PassResult { mut state, join, spill, fault } = self.run_workers(clock, None)?;
        match fault {
            Some((_, BlockFault::Error(error))) => return Err(error),
            Some((height, _)) => return Err(self.violation_by_claims(height)),
            None => {}
        }
        let is_unproven = spill.has_mismatch() || state.outcome.partial.coinbases.has_duplicate();
        let unspent = if is_unproven { None } else { self.unspent(join, &spill)? };
        let Some(unspent) = unspent else {
            return Err(Error::unproven_range(spill.take_mismatches().into_iter().min()));
        };
        Ok((state.outcome.partial, unspent))
    }

    /// Checks that the sum is zero, if there is one and all its blocks are completed.
    fn check_sum(&self, partial: &mut PartialState) -> Result<(), Error> {
        let PartialState { completed, matching: state, .. } = partial;
        let (Method::Hints(matching), MatchState::Hints { sum, .. }) = (self.method, state) else {
            return Ok(());
        };
        if sum.is_zero() || !(0..=matching.height.0).all(|height| completed.has(Height(height))) {
            return Ok(());
        }
        Err(self.wrong_hints("the sum of all coins created less all coins spent is not zero"))
    }

    /// No deliveries to the blocks of the chain yet.
    pub fn deliveries(&self) -> Deliveries<'_> {
        let Self { work, plan, budget, .. } = *self;
        Deliveries { parts: Parts::new(work, &plan.chain, budget.part_block_bytes, budget.deliveries()) }
    }

    /// Checks and applies all blocks in parallel, or stops at a block fault.
    fn run_workers<'d>(
        &'d self,
        clock: &mut Clock,
        deliveries: Option<&'d Deliveries<'d>>,
    ) -> Result<PassResult<'d>, Error> {
        let identity = self.identity()?;
        if self.threads() < self.options.threads.get() {
            let (threads, memory) = (self.threads(), self.options.memory_bytes);
            let wanted = self.options.threads.get();
            self.watch.sink.event(Event::Note(Note::FewerThreads { threads, wanted, memory }));
        }
        let (state, runs, next_run) = self.initial_state(&identity)?;
        self.watch.sink.event(Event::Memory(self.budget.table));
        if let Some(observer) = &self.options.observer {
            self.work.take()?;
            observer.begin(&ObservedChain {
                work_dir: self.work.path(),
                blocks: self.plan.chain.block_count(),
                block_bytes: self.plan.block_bytes,
                hash_of: &|height| self.plan.chain.block(height).hash,
                is_completed: &|height| state.outcome.partial.completed.has(height),
                prunes: self.pruned_download().is_some(),
            })?;
        }
        if let Some(download) = self.pruned_download() {
            download.settle(state.outcome.partial.completed.first_missing());
        }
        let scripts = self.scripts();
        let join = Join::new(random_key()?);
        let (network, mut join_bytes) = (self.files.params.network, self.budget.join_bytes);
        if deliveries.is_some() {
            join_bytes -= self.budget.deliveries();
        }
        let spill = Spill::new(self.work, network, join_bytes, deliveries, runs, next_run);
        let queue = scripts.map(ScriptQueue::new);
        let routing = Routing { join: &join, spill: &spill, deliveries, scripts: queue.as_ref() };
        let (state, fault) = thread::scope(|scope| {
            let _merge_thread = spawn(scope, "merger", || spill.run_merge_thread(self.watch.interrupt))?;
            let _closes_at_end = spill.close_at_end();
            WorkerPool { job: self, identity: &identity, routing }.check_all(state)
        })?;
        clock.lap_parallel(&state.outcome);
        Ok(PassResult { state, join, spill, fault })
    }

    /// Returns the sum of all coins created less all coins spent; `None` if coinbases repeat: only a check in
    /// order tells whether that is valid.
    pub fn sum(&self, clock: &mut Clock) -> Result<Option<Sum>, Error> {
        let PassResult { state, join, spill, fault } = self.run_workers(clock, None)?;
        // What a block does wrong with its own coins is not in the sum.
        let is_matched = !join.has_mismatches() && !spill.has_mismatch();
        // The check without undo data needs the memory.
        drop((join, spill));
        let PartialState { mut coinbases, matching, .. } = state.outcome.partial;
        match (fault, matching) {
            (Some((_, BlockFault::Error(error))), _) => Err(error),
            (None, _) if coinbases.has_duplicate() => Ok(None),
            (None, MatchState::Hints { sum, .. }) if is_matched => Ok(Some(sum)),
            // The check without undo data reports what is wrong.
            _ => self.check_without_undo(clock).and_then(|_| Err(Error::inconsistent_data())),
        }
    }

    /// Reports that hints and files contradict each other. It is not known which of them is wrong, so the
    /// error does not claim that the block is invalid.
    fn wrong_hints(&self, why: &str) -> Error {
        let detail = format!("{why}: the hints, or the block or undo files, are wrong");
        let other = match self.pruned_download() {
            Some(_) => Remedy::WithoutPruning,
            None => Remedy::FallBackToJoin,
        };
        let error = Error::new(ErrorKind::Hints, detail).with_remedies([Remedy::WithoutHints, other]);
        match self.hints {
            Some(hints) => error.in_file(hints.file.name(), None),
            None => error,
        }
    }

    pub const fn threads(&self) -> usize {
        self.budget.threads
    }

    /// Which scripts are run; `None` if none are.
    pub fn scripts(&self) -> Option<Scripts<'_>> {
        let params = self.files.params;
        let skipped_to = self.plan.choice.scripts_skipped_to();
        let queue_bytes = self.budget.queued_scripts();
        self.options.scripts.verifier().map(|verifier| Scripts { params, verifier, skipped_to, queue_bytes })
    }

    fn identity(&self) -> Result<Identity<'_>, Error> {
        let (files, chain) = (self.files, &self.plan.chain);
        let settings = checkpoint::settings(self.options, self.plan, self.method);
        let (stamps, is_paced) = (checkpoint::stamps(files, chain)?, self.pruned_download().is_some());
        let skipped_to = self.plan.choice.scripts_skipped_to();
        let version = checkpoint::version(self.options);
        Ok(Identity { files, chain, is_paced, version, skipped_to, settings, stamps })
    }

    /// The initial state: empty, or restored from the checkpoint of an interrupted run.
    fn initial_state(&self, identity: &Identity<'_>) -> Result<(State, Vec<SpillFile>, u64), Error> {
        let blocks = self.plan.chain.block_count();
        let mut state = State {
            outcome: Outcome::new(PartialState::empty(blocks, self.coinbase_key()?, self.method)),
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
        let discards_other = self.resume.is_some_and(|resume| resume.discard_other);
        let resumed = match identity.resume(self.work, self.method) {
            Err(error) if discards_other && error.kind == ErrorKind::Usage => {
                let error = error.without_remedies();
                self.watch.sink.event(Event::Note(Note::CheckpointDiscarded { error }));
                self.work.remove()?;
                None
            }
            resumed => resumed?,
        };
        let Some(mut resumed) = resumed else {
            start_over()?;
            return Ok((state, Vec::new(), 0));
        };
        if self.pruned_download().is_some() {
            resumed.partial.made.retain(|&(height, _)| self.plan.chain.was_stored(height));
        }
        if let Some(sink) = self.undo_sink
            && !sink.resume(&self.plan.chain, &resumed.partial.made)?
        {
            if self.pruned_download().is_some() {
                let detail = "the checkpoint of an interrupted run cannot be resumed: its undo data is gone, \
                              or other undo data has come into use since then";
                let error = Error::usage(detail).in_file(self.work.path(), None);
                return Err(error.with_remedies([Remedy::StartOver]));
            }
            self.watch.sink.event(Event::Note(Note::MadeUndoGone));
            self.work.remove()?;
            start_over()?;
            return Ok((state, Vec::new(), 0));
        }
        state.resumed = resumed.partial.completed.count();
        state.outcome.partial = resumed.partial;
        self.watch.sink.event(Event::Note(Note::Resuming {
            done: state.resumed,
            total: self.plan.chain.heights().len(),
            bytes: state.outcome.partial.counts.block_bytes,
            bytes_total: self.plan.block_bytes,
        }));
        recheck::recheck(self, &state.outcome.partial, &resumed.changed)?;
        Ok((state, resumed.runs, resumed.next_run))
    }

    /// The key of the hashes of coinbase txids. All ranges of a chain have the same.
    fn coinbase_key(&self) -> Result<SipKey, Error> {
        self.plan.shared.map_or_else(random_key, |shared| Ok(shared.coinbase_key))
    }

    /// Returns what is left in the join and in sorted runs, which has spends if this is a range of a chain;
    /// `None` on a mismatch, which is recorded.
    fn unspent(&self, join: Join, spill: &Spill<'_>) -> Result<Option<Unspent>, Error> {
        let is_spilled = !spill.is_empty();
        let has_spends = is_spilled || self.plan.shared.is_some();
        let ended = if has_spends { join.finish_spilled() } else { join.finish() };
        let survivors = match ended {
            Ok(survivors) => survivors,
            Err(mismatches) => {
                spill.add_mismatches(mismatches.iter().filter_map(Mismatch::outpoint));
                return Ok(None);
            }
        };
        if !is_spilled {
            return Ok(Some(Unspent::new(survivors, Vec::new())));
        }
        Ok(spill.finish(self.watch.interrupt)?.map(|runs| Unspent::new(survivors, runs)))
    }

    /// Marks the error as contested if it is about a block that may never have been connected.
    pub fn mark_contested(&self, error: Error) -> Error {
        let plan = self.plan;
        let is_contested_tip = plan.tip_is_contested && error.block_hash == Some(plan.chain.tip().hash);
        let is_above = |from| error.height.is_some_and(|height| height >= from);
        let was_never_connected = plan.never_connected_from.is_some_and(is_above);
        if error.kind == ErrorKind::Consensus && (is_contested_tip || was_never_connected) {
            return error.about(Subject::ContestedBlock);
        }
        error
    }

    pub fn progress(&self, blocks: u32, bytes: u64) {
        self.watch.sink.event(Event::Progress(Progress {
            blocks,
            blocks_total: self.plan.chain.heights().len() as u32,
            bytes,
            bytes_total: self.plan.block_bytes.max(bytes),
        }));
    }

    /// Gives the coins to `consume`, and returns what it has made of them.
    ///
    /// If entries were spilled, parallel matching is done, but only the last merge, which is this walk, can
    /// find that a spend has no coin, which may show only after other coins were consumed. Then `consume` is
    /// called once more, with the coins of a check without undo data. It must have removed what it had made
    /// ([`ForEachError::discarding`]).
    ///
    /// # Errors
    /// The errors of `consume`, and those of [`Job::match_spends`].
    pub fn for_each_coin<T>(
        &self,
        matched: MatchedCoins,
        clock: &mut Clock,
        mut consume: impl FnMut(Coins<'_>) -> Result<T, ForEachError>,
    ) -> Result<(T, MatchStats), Error> {
        let coins = |unspent| Coins::new(unspent, self.watch);
        match consume(coins(matched.unspent)) {
            Ok(made) => return Ok((made, matched.stats)),
            Err(ForEachError::Error(error)) => return Err(error),
            Err(ForEachError::Mismatch) => {}
        }
        let matched = self.check_without_undo(clock)?;
        match consume(coins(matched.unspent)) {
            Ok(made) => Ok((made, matched.stats)),
            Err(ForEachError::Error(error)) => Err(error),
            Err(ForEachError::Mismatch) => {
                let detail = "a check without undo data left spends among the coins";
                Err(Error::new(ErrorKind::Internal, detail))
            }
        }
    }
}
