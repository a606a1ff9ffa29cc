//! Read, check and settle, side by side; and the judge, where they do not suffice.

use crate::{
    chain::Files,
    error::{Error, ErrorKind},
    event::{Event, Progress, Sink},
    options::{Engine, ReindexOptions},
    report::{Counts, ScriptsReport},
    stages::{
        Stage,
        check::{self, Outcome, Shared},
        faults::{Fault, Faults},
        judge::{self, JudgeScripts},
        plan::{self, Plan},
        read::{Batch, FileReader, Pool},
        scripts::{ScriptQueue, Scripts},
    },
};
use coins::{Join, Survivors};
use crossbeam::channel::{RecvTimeoutError, Sender, bounded};
use disk::{datadir::Datadir, fs::Disk, xor::read_block_obfuscation};
use rules::ChainParams;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use wire::{BlockTime, Height};

/// Batches that may wait between reader and workers, per worker: one is being read while one is being
/// checked.
const BATCHES_PER_WORKER: usize = 2;

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The coins after the last block, and how they were come by.
pub struct Settled {
    /// The coins.
    pub survivors: Survivors,
    /// What was checked.
    pub counts: Counts,
    /// Who matched spends with coins.
    pub engine: Engine,
}

/// Plans and settles: what a rebuild and a verification have in common.
///
/// # Errors
/// As [`crate::reindex()`].
pub fn settle(
    disk: &dyn Disk,
    options: &ReindexOptions,
    datadir: &Datadir,
    sink: &dyn Sink,
    interrupt: &AtomicBool,
    clock: &mut Clock,
) -> Result<(Plan, Settled), Error> {
    let obfuscation = read_block_obfuscation(disk, &datadir.blocks_dir())?;
    let files = Files { disk, datadir, obfuscation, network: options.network };
    let params = ChainParams::of(options.network);
    let assume_valid = options.assume_valid.hash(params);
    let plan = plan::plan(&files, options.scan, options.stop_at_height, assume_valid, now(), interrupt)?;
    sink.event(Event::Planned {
        height: plan.chain.tip_height(),
        hash: plan.chain.tip().hash,
        block_bytes: plan.block_bytes,
        unconnected: plan.unconnected,
    });
    clock.lap(Stage::Plan);
    let skipped_to = plan.assumed_valid_to;
    let scripts = options.scripts.map(|verifier| Scripts { params, verifier, skipped_to });
    let threads = options.threads.get();
    let run = Run { files: &files, plan: &plan, scripts, threads, sink, interrupt };
    let settled = match options.engine {
        Engine::Join => run.settle(clock)?,
        Engine::Ordered => run.judge(clock, Height(0), 0)?,
    };
    Ok((plan, settled))
}

/// Which scripts a run has run.
pub fn scripts_report(options: &ReindexOptions, plan: &Plan, counts: &Counts) -> Option<ScriptsReport> {
    let report = ScriptsReport { assumed_valid_to: plan.assumed_valid_to, inputs: counts.scripts };
    options.scripts.map(|_| report)
}

/// The time spent reading, what the workers bring, and the lowest fault.
type Checked = (Duration, Outcome, Option<(Height, Fault)>);

/// What the stages that run side by side share.
struct Run<'a> {
    files: &'a Files<'a>,
    plan: &'a Plan,
    scripts: Option<Scripts<'a>>,
    threads: usize,
    sink: &'a dyn Sink,
    interrupt: &'a AtomicBool,
}

impl Run<'_> {
    /// The coins after the last block: by the join, or where that cannot tell, by the judge.
    fn settle(&self, clock: &mut Clock) -> Result<Settled, Error> {
        let join = Join::new(random_pair()?);
        let queue = self.scripts.map(ScriptQueue::new);
        let (reading, mut outcome, fault) = self.check_all(&join, queue.as_ref())?;
        outcome.counts.scripts = queue.map_or(0, |queue| queue.inputs());
        clock.side_by_side(reading, &outcome);
        // Scripts of blocks below the first suspicious one have been run.
        let mut scripts_from = Height(u32::MAX);
        match fault {
            Some((_, Fault::Damaged(error))) => return Err(error),
            Some((height, Fault::Suspect)) => scripts_from = height,
            None if outcome.coinbases.clone().repeat() => {}
            None => {
                if let Ok(survivors) = join.finish() {
                    return Ok(Settled { survivors, counts: outcome.counts, engine: Engine::Join });
                }
            }
        }
        let why = "something does not fit, or a transaction occurs twice: going through the blocks in order";
        self.sink.event(Event::Note(why.to_owned()));
        self.judge(clock, scripts_from, outcome.counts.scripts)
    }

    /// Goes through the chain in order. Comes back only if nothing is wrong with it.
    ///
    /// Scripts are run from the block at `scripts_from` on; `scripts_run` is how many have been.
    fn judge(&self, clock: &mut Clock, scripts_from: Height, scripts_run: u64) -> Result<Settled, Error> {
        let chain = &self.plan.chain;
        self.sink.event(Event::Started(Stage::Judge));
        let (started, mut told) = (Instant::now(), Instant::now());
        let scripts = self.scripts.map(|scripts| JudgeScripts { scripts, from: scripts_from });
        let (coins, mut counts) = judge::judge(chain, self.files, scripts, self.interrupt, |counts| {
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                self.progress(counts.blocks as u32, counts.block_bytes, started);
            }
        })?;
        counts.scripts += scripts_run;
        clock.lap(Stage::Judge);
        Ok(Settled { survivors: coins.into_survivors(), counts, engine: Engine::Ordered })
    }

    fn progress(&self, blocks: u32, bytes: u64, started: Instant) {
        self.sink.event(Event::Progress(Progress {
            blocks,
            blocks_total: self.plan.chain.block_count() as u32,
            bytes,
            bytes_total: self.plan.block_bytes.max(bytes),
            elapsed: started.elapsed(),
        }));
    }

    /// Read, check and settle, side by side, until all blocks are done or one is found at fault.
    fn check_all(&self, join: &Join, scripts: Option<&ScriptQueue<'_>>) -> Result<Checked, Error> {
        let key = random_pair()?;
        self.sink.event(Event::Started(Stage::Check));
        let faults = Faults::default();
        let shared = Shared {
            scripts,
            chain: &self.plan.chain,
            files: self.files,
            params: ChainParams::of(self.files.network),
            join,
            faults: &faults,
            interrupt: self.interrupt,
            blocks_done: AtomicU32::new(0),
            bytes_done: AtomicU64::new(0),
        };
        let queue = BATCHES_PER_WORKER * self.threads;
        // As many buffers as can be in flight: queued, being read, being worked on; each batch has two,
        // sometimes more.
        let pool = Pool::new(2 * (queue + self.threads + 1));
        let (send, batches) = bounded(queue);
        let (done, all_done) = bounded::<()>(0);
        let started = Instant::now();
        let (reading, outcomes) = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let send = send;
                self.read_all(&send, &pool, &faults)
            });
            let workers: Vec<_> = (0..self.threads)
                .map(|_| {
                    let (batches, done) = (batches.clone(), done.clone());
                    let (shared, pool) = (&shared, &pool);
                    scope.spawn(move || {
                        let _done = done;
                        check::work(shared, &batches, pool, key)
                    })
                })
                .collect();
            // The workers hold the only ends: the channels close when all have ended, or one has panicked.
            drop((batches, done));
            while let Err(RecvTimeoutError::Timeout) = all_done.recv_timeout(PROGRESS_EVERY) {
                let (blocks, bytes) = (&shared.blocks_done, &shared.bytes_done);
                self.progress(blocks.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed), started);
            }
            let outcomes: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (reader.join(), outcomes)
        });
        let panicked = |_| Error::new(ErrorKind::Internal, "a worker thread panicked; please report this");
        let reading = reading.map_err(panicked)??;
        let mut all = Outcome::new(key);
        for outcome in outcomes {
            all.merge(outcome.map_err(panicked)?);
        }
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        Ok((reading, all, faults.into_lowest()))
    }

    /// The reader: all files, in order. Gives the time it spent reading.
    fn read_all(&self, batches: &Sender<Batch>, pool: &Pool, faults: &Faults) -> Result<Duration, Error> {
        let mut reading = Duration::ZERO;
        let chain = &self.plan.chain;
        for (file, heights) in chain.by_file() {
            if !heights.iter().any(|&height| faults.matters(height)) {
                continue;
            }
            let mut reader = FileReader::open(chain, self.files, pool, file, heights)?;
            loop {
                let started = Instant::now();
                let batch = match reader.next_batch() {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    // Damage at a place: what lies below it may be at fault as well, and is then told first.
                    Err(error) if let (ErrorKind::Damaged, Some(height)) = (error.kind, error.height) => {
                        faults.record(height, Fault::Damaged(error));
                        break;
                    }
                    Err(error) => return Err(error),
                };
                reading += started.elapsed();
                if self.interrupt.load(Ordering::Relaxed) || batches.send(batch).is_err() {
                    return Ok(reading);
                }
            }
        }
        Ok(reading)
    }
}

/// Where the time goes.
pub struct Clock {
    /// When the run began.
    pub started: Instant,
    lap: Instant,
    /// Time by stage.
    pub stages: Vec<(Stage, Duration)>,
    /// Time in which workers waited for the reader, and in which read, check and settle ran side by side.
    waited: Duration,
    parallel: Duration,
}

impl Clock {
    pub fn start() -> Self {
        let now = Instant::now();
        Self { started: now, lap: now, stages: Vec::new(), waited: Duration::ZERO, parallel: Duration::ZERO }
    }

    /// Ends a stage that ran by itself.
    pub fn lap(&mut self, stage: Stage) {
        self.stages.push((stage, self.lap.elapsed()));
        self.lap = Instant::now();
    }

    /// Ends the stages that ran side by side; their times are summed over threads.
    fn side_by_side(&mut self, reading: Duration, workers: &Outcome) {
        self.stages.push((Stage::Read, reading));
        self.stages.push((Stage::Check, workers.checking.saturating_sub(workers.settling)));
        self.stages.push((Stage::Scripts, workers.scripting));
        self.stages.push((Stage::Settle, workers.settling));
        self.waited = workers.waiting;
        self.parallel = self.lap.elapsed();
        self.lap = Instant::now();
    }

    /// What held the run up: the reader, if workers waited for it a quarter of their time or more.
    pub fn bound_by(&self, threads: usize) -> &'static str {
        let time =
            |wanted| self.stages.iter().filter(|(stage, _)| *stage == wanted).map(|(_, time)| *time).sum();
        let [finish, prove, judge, scripts]: [Duration; 4] =
            [Stage::Finish, Stage::Prove, Stage::Judge, Stage::Scripts].map(time);
        if judge > self.parallel {
            "going through the blocks in order"
        } else if finish + prove > self.parallel {
            "writing and reading back the chainstate"
        } else if scripts * 2 > self.parallel * threads as u32 {
            "running scripts"
        } else if self.waited * 4 > self.parallel * threads as u32 {
            "reading the block files"
        } else {
            "hashing and checking blocks"
        }
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
