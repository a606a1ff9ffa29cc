//! Scripts: run for all workers from one queue, by whoever the caller gives for it (ADR 4).
//!
//! Signatures cost a hundred times what all else costs, and blocks differ in how many they have, so the work
//! is cut by scripts and not by blocks: the worker that checks a block makes each of its transactions ready,
//! once, and queues its inputs in small pieces; every worker takes pieces before it takes a new batch of
//! blocks. Nothing is cached: each script is run once.

use super::block_fault::{BlockFault, BlockFaults};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use rules::{
    ChainParams, SCRIPT, SIGNET_SOLUTION, SpentCoin, Violation, ViolationDetails, signet::SIGNET_FLAGS,
    signet_solution,
};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use wire::{
    BlockArena, BlockHash, BlockView, CoinError, Height, Sats, ScriptFlags, ScriptVerifier, TxIndex,
    TxVerifier, TxView, Txid,
};

/// Pieces that may wait, all workers together; a worker that finds the queue full runs its piece itself. A
/// piece keeps its transaction alive, so this bounds memory.
const QUEUE_PIECES: usize = 4096;

/// Inputs in a piece: a millisecond of work, small against a block and large against the queue's cost.
const PIECE_INPUTS: u32 = 32;

/// How long an idle worker waits for a piece before it looks whether all are done.
const WAIT: Duration = Duration::from_millis(1);

/// Which scripts are run, and by whom.
#[derive(Clone, Copy)]
pub struct Scripts<'a> {
    /// The network's rules.
    pub params: &'static ChainParams,
    /// Runs them.
    pub verifier: &'a dyn ScriptVerifier,
    /// Scripts of blocks up to here are not run; all are, if there is none.
    pub skipped_to: Option<Height>,
}

impl Scripts<'_> {
    /// Whether the scripts of a block are run.
    #[must_use]
    pub fn bind(&self, height: Height) -> bool {
        self.skipped_to.is_none_or(|skipped_to| height > skipped_to)
    }

    /// Runs the script of a signed network's block solution, assumed valid or not (Core
    /// `CheckSignetBlockSolution`); passes on other networks.
    ///
    /// # Errors
    /// [`SIGNET_SOLUTION`].
    pub fn check_solution(
        &self,
        block: &BlockView<'_>,
        height: Height,
        txids: &[Txid],
    ) -> Result<(), Violation> {
        let Some(challenge) = self.params.signet_challenge.filter(|_| height.0 > 0) else { return Ok(()) };
        let broken = |detail: String| ViolationDetails::new(detail).of(&SIGNET_SOLUTION);
        let solution = signet_solution(block, txids, challenge)
            .ok_or_else(|| broken("the block holds no well-formed solution".to_owned()))?;
        let mut arena = BlockArena::default();
        let to_sign = arena.parse_tx(&solution.to_sign).map_err(|error| broken(error.to_string()))?;
        self.verifier
            .transaction(&to_sign, &[(Sats(0), challenge.to_vec())])
            .and_then(|tx| tx.verify(0..1, SIGNET_FLAGS))
            .map_err(|fault| broken(fault.to_string()))
    }

    /// Runs all scripts of a transaction, here and now.
    ///
    /// # Errors
    /// [`SCRIPT`].
    pub fn check_tx(
        &self,
        tx: &TxView<'_>,
        index: TxIndex,
        coins: &[SpentCoin<'_>],
        flags: ScriptFlags,
    ) -> Result<(), Violation> {
        let run = || {
            let coins = with_scripts(coins).map_err(|error| fault(error.to_string()))?;
            self.verifier.transaction(tx, &coins)?.verify(0..coins.len() as u32, flags)
        };
        run().map_err(|fault| {
            let prevout = fault.input.and_then(|input| tx.inputs().nth(input as usize));
            let coin = prevout.map_or(String::new(), |input| format!("coin {}: ", input.prevout()));
            let mut finding = ViolationDetails::new(format!("{coin}{fault}")).at_tx(index);
            if let Some(reason) = fault.reason {
                finding = finding.with_core(format!("{} ({reason})", SCRIPT.core));
            }
            fault.input.map_or(finding.clone(), |input| finding.at_input(input)).of(&SCRIPT)
        })
    }
}

fn fault(detail: String) -> wire::ScriptFault {
    wire::ScriptFault { detail, ..wire::ScriptFault::default() }
}

/// Amount and script of each coin.
fn with_scripts(coins: &[SpentCoin<'_>]) -> Result<Vec<(Sats, Vec<u8>)>, CoinError> {
    let decompress = |coin: &SpentCoin<'_>| {
        let mut script = Vec::with_capacity(coin.script.script_len());
        coin.script.decompress(&mut script)?;
        Ok((coin.amount, script))
    };
    coins.iter().map(decompress).collect()
}

/// Some inputs of a transaction.
struct Piece {
    height: Height,
    tx: Arc<dyn TxVerifier>,
    inputs: Range<u32>,
    flags: ScriptFlags,
}

/// Pieces that wait, for all workers.
pub struct ScriptQueue<'a> {
    scripts: Scripts<'a>,
    send: Sender<Piece>,
    take: Receiver<Piece>,
    /// Workers that may still queue pieces.
    busy: AtomicUsize,
    inputs: AtomicU64,
}

impl<'a> ScriptQueue<'a> {
    /// An empty queue.
    #[must_use]
    pub fn new(scripts: Scripts<'a>) -> Self {
        let (send, take) = bounded(QUEUE_PIECES);
        let (busy, inputs) = Default::default();
        Self { scripts, send, take, busy, inputs }
    }

    /// Which scripts are run.
    #[must_use]
    pub const fn scripts(&self) -> &Scripts<'a> {
        &self.scripts
    }

    /// Queues all scripts of a block; `coins` are those of all transactions but the coinbase, in block order.
    ///
    /// # Errors
    /// [`BlockFault::Suspect`] for a transaction that cannot be made ready.
    pub fn push_block(
        &self,
        block: &BlockView<'_>,
        height: Height,
        hash: &BlockHash,
        mut coins: &[SpentCoin<'_>],
        faults: &BlockFaults,
    ) -> Result<(), BlockFault> {
        if !self.scripts.bind(height) {
            return Ok(());
        }
        let flags = rules::script_flags(self.scripts.params, height, hash);
        for tx in block.txs().skip(1) {
            let (own, rest) = coins.split_at_checked(tx.input_count()).ok_or(BlockFault::Suspect)?;
            coins = rest;
            let own = with_scripts(own).map_err(|_| BlockFault::Suspect)?;
            let ready = self.scripts.verifier.transaction(&tx, &own).map_err(|_| BlockFault::Suspect)?;
            let count = own.len() as u32;
            for start in (0..count).step_by(PIECE_INPUTS as usize) {
                let inputs = start..count.min(start + PIECE_INPUTS);
                let piece = Piece { height, tx: Arc::clone(&ready), inputs, flags };
                if let Err(TrySendError::Full(piece) | TrySendError::Disconnected(piece)) =
                    self.send.try_send(piece)
                {
                    self.run(&piece, faults);
                }
            }
        }
        Ok(())
    }

    /// Runs pieces as long as there are any.
    pub fn drain(&self, faults: &BlockFaults, stop: &AtomicBool) {
        while let Ok(piece) = self.take.try_recv() {
            if !stop.load(Ordering::Relaxed) {
                self.run(&piece, faults);
            }
        }
    }

    /// Runs pieces until no worker can queue any more: for workers that have no more blocks.
    pub fn drain_to_end(&self, faults: &BlockFaults, stop: &AtomicBool) {
        loop {
            match self.take.recv_timeout(WAIT) {
                Ok(piece) if !stop.load(Ordering::Relaxed) => self.run(&piece, faults),
                Ok(_) => {}
                Err(_) if self.busy.load(Ordering::Acquire) == 0 => break,
                Err(_) => {}
            }
        }
        // A piece that was queued between the last look and the last worker's end.
        self.drain(faults, stop);
    }

    /// The caller may queue pieces until what it gets is dropped.
    #[must_use]
    pub fn enter(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(&self.busy)
    }

    fn run(&self, piece: &Piece, faults: &BlockFaults) {
        if !faults.matters(piece.height) {
            return;
        }
        if piece.tx.verify(piece.inputs.clone(), piece.flags).is_err() {
            faults.record(piece.height, BlockFault::Suspect);
        }
        self.inputs.fetch_add(piece.inputs.len() as u64, Ordering::Relaxed);
    }

    /// Inputs whose scripts were run.
    #[must_use]
    pub fn inputs(&self) -> u64 {
        self.inputs.load(Ordering::Relaxed)
    }
}

/// A worker at work.
pub struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
