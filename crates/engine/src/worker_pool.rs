//! Workers side by side, until all blocks are done: with pauses, in which the state is saved.

use crate::{
    checkpoint::{CompletedBlocks, Identity},
    error::Error,
    event::Event,
    job::{Job, PROGRESS_INTERVAL},
    stages::{
        Stage,
        block_fault::{BlockFault, BlockFaults},
        check::{self, Outcome, Shared},
        read::Reader,
        scripts::ScriptQueue,
        spill::Spill,
    },
    threads::spawn,
};
use coins::Join;
use crossbeam::channel::{RecvTimeoutError, bounded};
use rules::ChainParams;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};
use wire::Height;

/// So many blocks are read at least between checkpoints.
const MIN_BLOCKS_BETWEEN_CHECKPOINTS: u32 = 16;

/// A checkpoint may take this part of the time: the next one waits so many times as long as the last one
/// took.
const CHECKPOINT_INTERVAL_FACTOR: u32 = 20;

/// An interrupted run is saved if that takes no longer.
const MAX_FINAL_CHECKPOINT_TIME: Duration = Duration::from_millis(1500);

/// Bytes of the join that a thread can save in a second, until it is measured.
const SAVE_RATE: u64 = 150 << 20;

/// What the workers bring, and the lowest fault.
type Checked = (Outcome, Option<(Height, BlockFault)>);

/// What is done so far.
pub struct State {
    /// The blocks that are.
    pub completed: CompletedBlocks,
    /// What came of them.
    pub outcome: Outcome,
    /// Blocks that an interrupted run had completed before.
    pub resumed: u32,
    /// When it was saved last, or the run began.
    pub saved: Instant,
    /// How long saving took the last time.
    pub save_took: Duration,
}

/// What works on a run's blocks.
pub struct WorkerPool<'a> {
    /// The job.
    pub job: &'a Job<'a>,
    /// What a checkpoint is known by.
    pub identity: &'a Identity<'a>,
    /// Where effects meet.
    pub join: &'a Join,
    /// Where they go when the memory is full.
    pub spill: &'a Spill<'a>,
    /// Where scripts go, if they are run.
    pub queue: Option<&'a ScriptQueue<'a>>,
}

impl WorkerPool<'_> {
    /// Checks and settles all blocks, and saves the state from time to time and when interrupted. Gives the
    /// lowest fault.
    pub fn check_all(&self, state: &mut State) -> Result<Option<(Height, BlockFault)>, Error> {
        self.job.sink.event(Event::Started(Stage::Check));
        let total = self.job.plan.chain.block_count() as u32;
        loop {
            let pause = match self.job.resumable {
                // After each few blocks, whatever it costs.
                true if self.job.options.checkpoint_interval.is_zero() => state.saved,
                true => {
                    state.saved
                        + self
                            .job
                            .options
                            .checkpoint_interval
                            .max(state.save_took * CHECKPOINT_INTERVAL_FACTOR)
                }
                false => state.saved + Duration::from_secs(u32::MAX.into()),
            };
            let (mut outcome, fault) = self.check_until(pause, state)?;
            std::mem::take(&mut outcome.completed).into_iter().for_each(|height| state.completed.add(height));
            state.outcome.merge(outcome);
            let interrupted = self.job.interrupt.load(Ordering::Relaxed);
            if fault.is_some() || self.spill.has_mismatch() {
                return if interrupted { Err(Error::interrupted()) } else { Ok(fault) };
            }
            if interrupted {
                return Err(self.save_last(state));
            }
            if Instant::now() >= pause {
                self.save(state)?;
            }
            if state.completed.count() == total {
                return Ok(None);
            }
        }
    }

    /// Saves the state of an interrupted run, if that does not take long. Says how the run ends.
    fn save_last(&self, state: &mut State) -> Error {
        let guess = self.join.memory_bytes() as f64 / (SAVE_RATE * self.job.threads() as u64) as f64;
        let took_before = state.save_took > MAX_FINAL_CHECKPOINT_TIME;
        let more = state.completed.count() > state.resumed;
        if self.job.resumable
            && more
            && Duration::from_secs_f64(guess) <= MAX_FINAL_CHECKPOINT_TIME
            && !took_before
            && let Err(error) = self.save(state)
        {
            return error;
        }
        Error::interrupted()
    }

    /// Puts the state on the medium.
    fn save(&self, state: &mut State) -> Result<(), Error> {
        let started = Instant::now();
        let copies = self.spill.copy(self.join, self.job.threads())?;
        let (mut runs, next) = self.spill.list();
        runs.extend(copies);
        let mut counts = state.outcome.counts;
        counts.scripts += self.queue.map_or(0, ScriptQueue::inputs);
        let matching = self.job.method.save(&mut state.outcome);
        let outcome = &state.outcome;
        self.identity.write(
            self.job.work,
            &state.completed,
            (&counts, &matching),
            &outcome.coinbases,
            (&runs, next),
        )?;
        self.spill.checkpointed(runs.iter().map(|job| job.number).collect())?;
        (state.saved, state.save_took) = (Instant::now(), started.elapsed());
        Ok(())
    }

    /// Read, check and settle, side by side, until all blocks are done, one is found at fault, or it is time
    /// for a pause.
    fn check_until(&self, pause: Instant, state: &State) -> Result<Checked, Error> {
        let key = state.outcome.coinbases.key();
        let faults = BlockFaults::default();
        let shared = Shared {
            scripts: self.queue,
            chain: &self.job.plan.chain,
            files: self.job.files,
            params: ChainParams::of(self.job.files.network),
            method: self.job.method,
            join: self.join,
            spill: self.spill,
            faults: &faults,
            failed: &AtomicBool::new(false),
            blocks_done: AtomicU32::new(state.completed.count()),
            bytes_done: AtomicU64::new(state.outcome.counts.block_bytes),
        };
        let undo_from = self.job.method.undo_from();
        let reader = Reader::new(
            shared.chain,
            self.job.files,
            &faults,
            &state.completed,
            undo_from,
            self.job.threads(),
        );
        let stop = |read| {
            read >= MIN_BLOCKS_BETWEEN_CHECKPOINTS && Instant::now() >= pause
                || self.spill.has_mismatch()
                || self.job.interrupt.load(Ordering::Relaxed)
        };
        let (done, all_done) = bounded::<()>(0);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.job.threads())
                .map(|_| {
                    let (done, shared, reader, stop) = (done.clone(), &shared, &reader, &stop);
                    let work = move || {
                        let _done = done;
                        check::work(shared, reader, stop, key)
                    };
                    // Those that have begun must not do all the work before this is told.
                    spawn(scope, "worker", work).inspect_err(|_| shared.failed.store(true, Ordering::Relaxed))
                })
                .collect();
            // The workers hold the only ends: the channel closes when all have ended, or one has panicked.
            drop(done);
            while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(PROGRESS_INTERVAL) {
                let (blocks, bytes) = (&shared.blocks_done, &shared.bytes_done);
                self.job.progress(blocks.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            }
            let join = |worker: Result<ScopedJoinHandle<'_, _>, Error>| {
                worker.and_then(|worker| worker.join().map_err(|_| Error::panicked())?)
            };
            workers.into_iter().map(join).collect()
        });
        let mut all = Outcome::new(key);
        for outcome in outcomes {
            all.merge(outcome?);
        }
        drop(reader);
        Ok((all, faults.into_lowest()))
    }
}
