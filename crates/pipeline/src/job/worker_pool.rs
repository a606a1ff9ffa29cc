//! Runs workers in parallel until all blocks are done, with pauses in which checkpoints are written.

use crate::{
    job::{Job, checkpoint::Identity},
    stages::{
        block_fault::{BlockFault, BlockFaults},
        block_source::{Stop, UndoReading},
        check::{self, Outcome, Routing, Shared},
        deliveries::Deliveries,
        make_undo::UndoSink,
        scripts::ScriptQueue,
    },
};
use api::{counts::Counts, disk_need::MIN_EPOCH_BYTES, error::Error, event::Event, stage::Stage};
use chain::{
    blocks::{awaited::AwaitedBlocks, claims::PeerClaims},
    threads::on_all,
};
use coins::Mismatch;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};
use wire::{FileNo, Height};

/// Minimum number of blocks between checkpoints.
const MIN_BLOCKS_BETWEEN_CHECKPOINTS: u32 = 16;

/// Factor between the time that the last checkpoint took and the minimum time until the next one: checkpoints
/// take at most 1/20 of the time.
const CHECKPOINT_INTERVAL_FACTOR: u32 = 20;

/// Maximum expected time for writing a checkpoint when the job is interrupted; if it would take longer, none
/// is written.
const MAX_FINAL_CHECKPOINT_TIME: Duration = Duration::from_millis(1500);

/// Assumed bytes of the join that one thread writes to a checkpoint in a second.
const SAVE_RATE: u64 = 150 << 20;

/// The merged outcome of all workers, and the lowest block fault.
type Checked = (Outcome, Option<(Height, BlockFault)>);

/// The progress of a job.
pub struct State {
    /// The outcome of the completed blocks.
    pub outcome: Outcome,
    /// Number of blocks that an interrupted run had completed before.
    pub resumed: u32,
    /// Time of the last checkpoint, or of the start of the job.
    pub saved: Instant,
    /// How long writing the last checkpoint took.
    pub save_took: Duration,
}

/// Runs the workers of a job.
pub struct WorkerPool<'a> {
    pub job: &'a Job<'a>,
    /// What identifies the checkpoint as this job's.
    pub identity: &'a Identity<'a>,
    pub routing: Routing<'a>,
}

/// An interval longer than any job. A much longer one would overflow the clock.
const NO_CHECKPOINT: Duration = Duration::from_secs(u32::MAX as u64);

impl WorkerPool<'_> {
    /// Checks and applies all blocks, and writes a checkpoint from time to time and when interrupted. Settles
    /// ([`Job::settle`]) before each checkpoint, and at the end. Returns the progress and the lowest block
    /// fault.
    pub fn check_all(&self, mut state: State) -> Result<(State, Option<(Height, BlockFault)>), Error> {
        let Routing { join, spill, .. } = self.routing;
        self.job.watch.sink.event(Event::Started(Stage::Check));
        let total = self.job.plan.chain.heights().len() as u32;
        let mut table_bytes = spill.volume().bytes;
        loop {
            let pause = match self.job.resume.map(|resume| resume.checkpoint_interval) {
                // A checkpoint after every few blocks, whatever it costs.
                Some(Duration::ZERO) => state.saved,
                Some(interval) => state.saved + time_between_checkpoints(interval, state.save_took),
                None => state.saved + NO_CHECKPOINT,
            };
            let (outcome, fault) = self.check_until(pause, table_bytes, state.outcome)?;
            state.outcome = outcome;
            let interrupted = self.job.watch.interrupt.load(Ordering::Relaxed);
            if fault.is_some() || spill.has_mismatch() {
                return if interrupted { Err(Error::interrupted()) } else { Ok((state, fault)) };
            }
            // The join has removed creation and spend: a checkpoint would forget that they differ.
            let has_mismatch = join.has_mismatches();
            if interrupted {
                return Err(if has_mismatch { Error::interrupted() } else { self.save_last(&mut state) });
            }
            let (stopped, is_time) = (Instant::now(), Instant::now() >= pause);
            let fault = self.job.settle(&self.routing, &mut state.outcome)?;
            if fault.is_some() || spill.has_mismatch() {
                return Ok((state, fault));
            }
            let is_complete = state.outcome.partial.completed.count() == total;
            let download = self.job.pruned_download();
            if let Some(download) = download {
                self.forget_deleted(&mut state, &download.take_deleted())?;
            }
            if has_mismatch && !is_complete {
                spill.add_mismatches(join.mismatches().iter().filter_map(Mismatch::outpoint));
                spill.set_mismatch();
                return Ok((state, None));
            }
            if !has_mismatch && (is_time || download.is_some() && !is_complete) {
                self.save(&mut state, stopped)?;
            }
            // The checkpoint has removed what only the one before it named.
            table_bytes = spill.volume().bytes;
            if let Some(download) = download {
                // At the end, the download must not wait. If the rest fails, only what was settled since the
                // last checkpoint is downloaded again.
                download.settle(state.outcome.partial.completed.first_missing());
            }
            if is_complete {
                return Ok((state, None));
            }
        }
    }

    /// Forgets the undo data of blocks in files that were deleted.
    fn forget_deleted(&self, state: &mut State, files: &[FileNo]) -> Result<(), Error> {
        let chain = &self.job.plan.chain;
        state
            .outcome
            .partial
            .made
            .retain(|&(height, _)| !files.contains(&self.job.files.block(chain, height).file));
        self.job.undo_sink.map_or(Ok(()), |sink| sink.forget(chain, files))
    }

    /// Writes a checkpoint for an interrupted job if that does not take long. Returns the error of the job.
    fn save_last(&self, state: &mut State) -> Error {
        let is_fast = is_saved_fast(self.routing.join.memory_bytes(), self.job.threads(), state.save_took);
        let has_progress = state.outcome.partial.completed.count() > state.resumed;
        if self.job.resume.is_some()
            && has_progress
            && is_fast
            // What was delivered since the last checkpoint is not saved.
            && state.outcome.partial.routed.is_empty()
            && let Err(error) = self.save(state, Instant::now())
        {
            return error;
        }
        Error::interrupted()
    }

    /// Writes a checkpoint; the workers have stopped for it at `stopped`.
    fn save(&self, state: &mut State, stopped: Instant) -> Result<(), Error> {
        let Routing { join, spill, .. } = self.routing;
        let copies = spill.copy(join, self.job.threads())?;
        let (mut runs, next) = spill.list();
        runs.extend(copies);
        spill.sync(&runs)?;
        let partial = &mut state.outcome.partial;
        let (counted, completed) = (partial.counts.blocks, partial.completed.count());
        debug_assert_eq!(counted, u64::from(completed), "a completed block is counted once");
        self.job.undo_sink.map_or(Ok(()), UndoSink::sync)?;
        self.job.options.observer.as_ref().map_or(Ok(()), |observer| observer.sync())?;
        // After a power cut, the blocks in the checkpoint must be where they were.
        self.job.files.sync_awaited()?;
        self.identity.write(self.job.work, partial, &runs, next)?;
        spill.checkpointed(runs.iter().map(|run| run.number).collect())?;
        (state.saved, state.save_took) = (Instant::now(), stopped.elapsed());
        // The workers may never be busy for as long as the interval of progress events.
        let Counts { blocks, block_bytes, .. } = state.outcome.partial.counts;
        self.job.progress(blocks as u32, block_bytes);
        Ok(())
    }

    /// Reads, checks and applies blocks in parallel, until all are done, a fault is found, or it is time for
    /// a pause, or to make undo data. `before` is the outcome so far, `table_bytes` the size of the runs when
    /// undo data was made last.
    fn check_until(&self, pause: Instant, table_bytes: u64, before: Outcome) -> Result<Checked, Error> {
        let Routing { spill, deliveries, scripts, .. } = self.routing;
        let key = before.partial.coinbases.key();
        let (chain, faults) = (&self.job.plan.chain, BlockFaults::default());
        let completed = &before.partial.completed;
        let undo = UndoReading::of(self.job.method);
        let source = self.job.source(&faults, completed, undo);
        let shared = Shared {
            observer: self.job.options.observer.as_deref(),
            chain,
            files: self.job.files,
            source: &source,
            method: self.job.method,
            routing: self.routing,
            faults: &faults,
            failed: &AtomicBool::new(false),
            blocks_done: AtomicU32::new(before.partial.completed.count()),
            bytes_done: AtomicU64::new(before.partial.counts.block_bytes),
        };
        let memory = self.job.options.memory_bytes;
        let settle_bytes = self.job.pruned_download().and_then(|awaited| awaited.settle_bytes);
        if let Some(download) = self.job.pruned_download() {
            download.begin_round();
        }
        let bytes_before = before.partial.counts.block_bytes;
        let is_epoch_complete = || {
            let new_bytes = shared.bytes_done.load(Ordering::Relaxed) - bytes_before;
            if settle_bytes.is_some_and(|settle_bytes| new_bytes >= settle_bytes) {
                return true;
            }
            let claims = self.job.files.awaited.and_then(AwaitedBlocks::claims);
            let claimed = claims.map_or(0, PeerClaims::read_bytes);
            let temporary = |all: &Deliveries<'_>| {
                claimed + all.parts.bytes() + spill.volume().bytes.saturating_sub(table_bytes)
            };
            deliveries.is_some_and(|all| is_epoch_complete(temporary(all), table_bytes, memory))
        };
        let stop = |read| {
            if spill.has_mismatch() || self.job.watch.interrupt.load(Ordering::Relaxed) {
                Stop::Now
            } else if read >= MIN_BLOCKS_BETWEEN_CHECKPOINTS && Instant::now() >= pause || is_epoch_complete()
            {
                if deliveries.is_some() { Stop::AfterBatch } else { Stop::Now }
            } else {
                Stop::Not
            }
        };
        let tick = || {
            let (blocks, bytes) = (&shared.blocks_done, &shared.bytes_done);
            self.job.progress(blocks.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        };
        let work = || check::work(&shared, &stop, key);
        let outcomes = on_all(self.job.threads(), "worker", shared.failed, work, tick);
        drop(source);
        let blocks_before = before.partial.counts.blocks;
        let mut all = before;
        for outcome in outcomes {
            all = all.merge(outcome?)?;
        }
        let checked = all.partial.counts.blocks - blocks_before;
        self.job.options.hooks.blocks_checked.fetch_add(checked, Ordering::Relaxed);
        all.partial.counts.scripts += scripts.map_or(0, ScriptQueue::take_inputs);
        Ok((all, faults.into_lowest()))
    }
}

/// The least time from one checkpoint, which took `save_took`, to the next.
fn time_between_checkpoints(interval: Duration, save_took: Duration) -> Duration {
    interval.max(save_took * CHECKPOINT_INTERVAL_FACTOR).min(NO_CHECKPOINT)
}

/// Whether an interrupted job has the time for a checkpoint of a join of so many bytes, after one that took
/// `save_took`.
fn is_saved_fast(join_bytes: usize, threads: usize, save_took: Duration) -> bool {
    let expected_secs = join_bytes as f64 / (SAVE_RATE * threads as u64) as f64;
    Duration::from_secs_f64(expected_secs).max(save_took) <= MAX_FINAL_CHECKPOINT_TIME
}

/// Whether `temporary` bytes of claims, deliveries and new runs are so many that undo data should be made.
/// `table_bytes` are those of the runs when that was done last.
fn is_epoch_complete(temporary: u64, table_bytes: u64, memory: u64) -> bool {
    temporary >= MIN_EPOCH_BYTES.max(memory).max(table_bytes / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_take_a_twentieth_of_the_time_and_the_last_one_two_seconds() {
        let time = |interval, took| {
            let [interval, took] = [interval, took].map(Duration::from_secs);
            time_between_checkpoints(interval, took).as_secs()
        };
        assert_eq!((time(60, 0), time(60, 3), time(60, 4)), (60, 60, 80));
        assert_eq!(time(u64::MAX, 0), NO_CHECKPOINT.as_secs());
        let took = Duration::from_millis;
        assert!(is_saved_fast(400 << 20, 2, took(1_500)));
        assert!(!is_saved_fast(500 << 20, 2, took(0)), "it would take 1.7 seconds");
        assert!(is_saved_fast(500 << 20, 4, took(0)));
        assert!(!is_saved_fast(0, 2, took(1_600)), "the last one was slow");
    }
}
