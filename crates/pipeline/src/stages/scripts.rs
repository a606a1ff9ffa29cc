//! Runs scripts for all workers from one queue, with the verifier that the caller provides (ADR 4).
//!
//! Signature checks cost a hundred times as much as everything else, and blocks differ in how many they need,
//! so the work is divided by scripts and not by blocks: the worker that checks a block prepares each of its
//! transactions, once, and queues their inputs in small tasks; every worker runs queued tasks before it
//! takes new blocks. Nothing is cached: each script is run once.

use super::block_fault::{BlockFault, BlockFaults};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use rules::{ChainParams, SCRIPT, SpentCoin, Violation, ViolationDetails};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use wire::{
    BlockHash, BlockView, CoinError, Height, Sats, ScriptFault, ScriptFlags, ScriptVerifier, TxIndex,
    TxVerifier, TxView,
};

/// Memory of a task in the queue, in bytes: it keeps its transaction alive.
const TASK_BYTES: u64 = 3 << 10;

/// Number of inputs in a task: a millisecond of work, small compared to a block and large compared to the
/// cost of the queue.
const TASK_INPUTS: u32 = 32;

/// How long an idle worker waits for a task before it checks whether all workers are done.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Which scripts are run, and by which verifier.
#[derive(Clone, Copy)]
pub struct Scripts<'a> {
    pub params: &'static ChainParams,
    pub verifier: &'a dyn ScriptVerifier,
    /// Height up to which scripts are not run; `None` if all are run.
    pub skipped_to: Option<Height>,
    /// Memory for those that wait, in bytes. A worker that finds the queue full runs its task itself.
    pub queue_bytes: u64,
}

impl Scripts<'_> {
    pub fn are_run_at(&self, height: Height) -> bool {
        self.skipped_to.is_none_or(|skipped_to| height > skipped_to)
    }

    /// Runs all scripts of a transaction in the calling thread.
    ///
    /// # Errors
    /// [`SCRIPT`] if one fails.
    pub fn check_tx(
        &self,
        tx: &TxView<'_>,
        index: TxIndex,
        coins: &[SpentCoin<'_>],
        flags: ScriptFlags,
    ) -> Result<(), Violation> {
        let run = || {
            let coins = with_scripts(coins)
                .map_err(|error| ScriptFault { detail: error.to_string(), ..ScriptFault::default() })?;
            self.verifier.transaction(tx, &coins)?.verify(0..coins.len() as u32, flags)
        };
        run().map_err(|fault| {
            let prevout = fault.input.and_then(|input| tx.inputs().nth(input as usize));
            let coin = prevout.map_or(String::new(), |input| format!("coin {}: ", input.prevout()));
            let details = ViolationDetails::new(format!("{coin}{fault}")).at_tx(index);
            fault.input.map_or(details.clone(), |input| details.at_input(input)).of(&SCRIPT)
        })
    }
}

/// Returns amount and script of each coin.
fn with_scripts(coins: &[SpentCoin<'_>]) -> Result<Vec<(Sats, Vec<u8>)>, CoinError> {
    let decompress = |coin: &SpentCoin<'_>| {
        let mut script = Vec::with_capacity(coin.script.script_len());
        coin.script.decompress(&mut script)?;
        Ok((coin.amount, script))
    };
    coins.iter().map(decompress).collect()
}

/// Consecutive inputs of a transaction.
struct ScriptTask {
    height: Height,
    tx: Arc<dyn TxVerifier>,
    inputs: Range<u32>,
    flags: ScriptFlags,
}

/// A queue of tasks, shared by all workers.
pub struct ScriptQueue<'a> {
    scripts: Scripts<'a>,
    send: Sender<ScriptTask>,
    receive: Receiver<ScriptTask>,
    /// Number of workers that may still queue tasks.
    busy: AtomicUsize,
    inputs: AtomicU64,
}

impl<'a> ScriptQueue<'a> {
    pub fn new(scripts: Scripts<'a>) -> Self {
        let (send, receive) = bounded((scripts.queue_bytes / TASK_BYTES) as usize);
        let (busy, inputs) = Default::default();
        Self { scripts, send, receive, busy, inputs }
    }

    /// Queues all scripts of a block; `coins` are those of all transactions but the coinbase, in block order.
    ///
    /// # Errors
    /// [`BlockFault::Suspect`] for a transaction that cannot be prepared.
    pub fn push_block(
        &self,
        block: &BlockView<'_>,
        height: Height,
        hash: &BlockHash,
        mut coins: &[SpentCoin<'_>],
        faults: &BlockFaults,
    ) -> Result<(), BlockFault> {
        if !self.scripts.are_run_at(height) {
            return Ok(());
        }
        let flags = rules::script_flags(self.scripts.params, height, hash);
        for tx in block.txs().skip(1) {
            let (spent, rest) = coins.split_at_checked(tx.input_count()).ok_or(BlockFault::Suspect)?;
            coins = rest;
            let spent = with_scripts(spent).map_err(|_| BlockFault::Suspect)?;
            let prepared = self.scripts.verifier.transaction(&tx, &spent).map_err(|_| BlockFault::Suspect)?;
            let count = spent.len() as u32;
            for start in (0..count).step_by(TASK_INPUTS as usize) {
                let inputs = start..count.min(start + TASK_INPUTS);
                let task = ScriptTask { height, tx: Arc::clone(&prepared), inputs, flags };
                if let Err(TrySendError::Full(task) | TrySendError::Disconnected(task)) =
                    self.send.try_send(task)
                {
                    self.run(&task, faults);
                }
            }
        }
        Ok(())
    }

    /// Runs tasks until the queue is empty. Returns the time that this took.
    pub fn drain(&self, faults: &BlockFaults, stop: &AtomicBool) -> Duration {
        let started = Instant::now();
        while let Ok(task) = self.receive.try_recv() {
            if !stop.load(Ordering::Relaxed) {
                self.run(&task, faults);
            }
        }
        started.elapsed()
    }

    /// Runs tasks until no worker can queue more: for workers without blocks left. Returns the time that this
    /// took.
    pub fn drain_to_end(&self, faults: &BlockFaults, stop: &AtomicBool) -> Duration {
        let started = Instant::now();
        loop {
            match self.receive.recv_timeout(POLL_INTERVAL) {
                Ok(task) if !stop.load(Ordering::Relaxed) => self.run(&task, faults),
                Ok(_) => {}
                Err(_) if self.busy.load(Ordering::Acquire) == 0 => break,
                Err(_) => {}
            }
        }
        // Run a task that was queued between the last check and the end of the last worker.
        self.drain(faults, stop);
        started.elapsed()
    }

    /// Registers the caller as a worker that may queue tasks, until the returned guard is dropped.
    #[must_use]
    pub fn enter(&self) -> BusyGuard<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        BusyGuard(&self.busy)
    }

    fn run(&self, task: &ScriptTask, faults: &BlockFaults) {
        if !faults.matters(task.height) {
            return;
        }
        if task.tx.verify(task.inputs.clone(), task.flags).is_err() {
            faults.record(task.height, BlockFault::Suspect);
        }
        self.inputs.fetch_add(task.inputs.len() as u64, Ordering::Relaxed);
    }

    /// Returns the number of inputs whose scripts were run since the last call.
    pub fn take_inputs(&self) -> u64 {
        self.inputs.swap(0, Ordering::Relaxed)
    }
}

/// Guard of a worker that may queue tasks.
pub struct BusyGuard<'a>(&'a AtomicUsize);

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
