//! Finds the indices of the unspent outputs of each block, in chain order and within the memory budget.
//!
//! Matching leaves coins, in key order: [`CoinsByBlock`] divides them by block and looks them up among the
//! outputs of their blocks, which are read once more.

use crate::{
    job::{Job, memory::MemoryBudget},
    stages::{
        coin_hash::CoinHasher,
        coin_sink::{CoinSink, Coins},
        parts::{PART_BLOCK_BYTES, Parts},
        read::BlockReader,
        unspent::ForEachError,
    },
};
use api::{error::Error, machine};
use chain::{
    blocks::{
        block_hashes::BlockHashes,
        files::{Files, LocatedBlock},
    },
    threads::spawn,
};
use crossbeam::channel::{Receiver, bounded};
use disk::block_files::RecordBuffer;
use hints::Numbering;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use wire::{BlockArena, BlockView, Coin, Height, OutPoint, coin::compress_output, script::is_unspendable};

/// Callback for each block from height 1 on: height, number of outputs, and indices of the unspent ones.
pub type ForEachBlock<'a> = dyn FnMut(Height, u32, &[u32]) -> Result<(), Error> + 'a;

/// Minimum of the memory for what is divided by block, in bytes.
const MIN_MEMORY_BYTES: usize = 64 << 10;

/// Bytes of a coin's height and hash.
const COIN_LEN: usize = 4 + 16;

/// Parts of the chain of a job for what its coins amount to, with half of the memory that is free.
fn parts<'a>(job: &Job<'a>) -> Parts<'a> {
    let chain = &job.plan.chain;
    let budget = MemoryBudget::after_matching(job.options, chain.block_count());
    let memory = (budget.join_bytes / 2).max(MIN_MEMORY_BYTES);
    Parts::new(job.work, chain, PART_BLOCK_BYTES.min(memory as u64), memory)
}

/// Coins, divided by the blocks that have created them.
///
/// Of a coin, its height and a hash of 128 bits with a secret key are kept: two outputs of a block have equal
/// hashes only if they are equal.
pub struct CoinsByBlock<'a> {
    parts: Parts<'a>,
    hasher: CoinHasher,
    /// Height of the last block that can have created a coin.
    end: Height,
    interrupt: &'a AtomicBool,
}

impl<'a> CoinsByBlock<'a> {
    /// No coins yet, of blocks of the job's chain up to `end`.
    ///
    /// # Errors
    /// An error if the system provides no random numbers.
    pub fn new(job: &Job<'a>, end: Height) -> Result<Self, Error> {
        let hasher = CoinHasher::new(machine::random_key()?);
        Ok(Self { parts: parts(job), hasher, end, interrupt: job.interrupt })
    }

    /// Adds a coin.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] for a coin that no block up to the last one can have created; any
    /// I/O error; [`api::error::ErrorKind::Interrupted`].
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), Error> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let (height, end) = (coin.height(), self.end);
        if height.0 == 0 || height > end {
            let detail = format!("coin {outpoint} has height {height}, but the last block has {end}");
            return Err(Error::damaged(detail));
        }
        let mut bytes = [0; COIN_LEN];
        bytes[..4].copy_from_slice(&height.0.to_le_bytes());
        bytes[4..].copy_from_slice(&self.hasher.hash(outpoint, coin).to_le_bytes());
        self.parts.add(self.parts.part_of(height), &bytes)
    }

    /// Looks up the coins in their blocks, and calls `each` for each block from height 1 to the last one.
    /// `checks_blocks` is whether blocks are compared with their headers, because nothing else has done it.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if a coin is not an output of its block, or occurs twice, or a
    /// block is damaged; any I/O error; errors of `each`; [`api::error::ErrorKind::Interrupted`].
    pub fn for_each_block(
        self,
        job: &Job<'_>,
        numbering: Numbering,
        checks_blocks: bool,
        each: &mut ForEachBlock<'_>,
    ) -> Result<(), Error> {
        let count = self.parts.part_of(self.end) + 1;
        let threads = job.threads().min(count);
        let reader = &BlockReader::new(&job.plan.chain, job.files);
        let finder = || OutputFinder {
            job,
            coins: &self,
            reader,
            hasher: self.hasher.clone(),
            counts_unspendable: numbering == Numbering::AllOutputs,
            checks_blocks,
            arena: BlockArena::default(),
            block: RecordBuffer::default(),
            hashes: BlockHashes::default(),
            out: Vec::new(),
        };
        thread::scope(|scope| {
            // Worker n takes the parts n, n + threads, ..., and is at most one part ahead.
            let (mut workers, mut found): (Vec<_>, Vec<Receiver<_>>) = Default::default();
            let mut consume = || -> Result<(), Error> {
                for first in 0..threads {
                    let (send, receive) = bounded(1);
                    let mut finder = finder();
                    workers.push(spawn(scope, "worker", move || {
                        for part in (first..count).step_by(threads) {
                            let found = finder.find(part);
                            let failed = found.is_err();
                            if send.send(found).is_err() || failed {
                                return;
                            }
                        }
                    })?);
                    found.push(receive);
                }
                for part in 0..count {
                    for block in found[part % threads].recv().map_err(|_| Error::panicked())?? {
                        let BlockOutputs { height, outputs, unspent } = block;
                        each(height, outputs, &unspent)?;
                    }
                }
                Ok(())
            };
            let consumed = consume();
            // Workers that still run fail to send, and end.
            found.clear();
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count() > 0;
            if panicked { Err(Error::panicked()) } else { consumed }
        })?;
        self.parts.remove_file()
    }
}

impl CoinSink for CoinsByBlock<'_> {
    type Output = ();

    fn consume(&mut self, coins: Coins<'_>) -> Result<(), ForEachError> {
        coins.in_sequence(|outpoint, coin| self.add(outpoint, coin))
    }

    fn start_over(&mut self) -> Result<(), Error> {
        self.parts.clear()
    }
}

struct BlockOutputs {
    height: Height,
    /// Number of outputs that are counted.
    outputs: u32,
    /// Indices of the unspent ones.
    unspent: Vec<u32>,
}

/// Finds coins among the outputs of their blocks, on one thread.
struct OutputFinder<'a> {
    job: &'a Job<'a>,
    coins: &'a CoinsByBlock<'a>,
    reader: &'a BlockReader<'a>,
    hasher: CoinHasher,
    counts_unspendable: bool,
    checks_blocks: bool,
    arena: BlockArena,
    block: RecordBuffer,
    hashes: BlockHashes,
    out: Vec<u8>,
}

impl OutputFinder<'_> {
    /// Finds the coins of the blocks of a part.
    fn find(&mut self, part: usize) -> Result<Vec<BlockOutputs>, Error> {
        let parts = &self.coins.parts;
        let mut coins: Vec<(u32, u128)> = parts
            .take(part)?
            .as_chunks::<COIN_LEN>()
            .0
            .iter()
            .map(|bytes| {
                let (height, hash) = bytes.split_at(4);
                let height = height.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
                (height, hash.iter().rev().fold(0, |number, &byte| number << 8 | u128::from(byte)))
            })
            .collect();
        coins.sort_unstable();
        let heights = parts.heights(part);
        let mut found = Vec::new();
        for height in heights.start.max(1)..heights.end.min(self.coins.end.0 + 1) {
            if self.job.interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
            let first = coins.partition_point(|coin| coin.0 < height);
            let len = coins[first..].partition_point(|coin| coin.0 == height);
            found.push(self.find_in_block(Height(height), &coins[first..first + len])?);
        }
        Ok(found)
    }

    fn find_in_block(&mut self, height: Height, coins: &[(u32, u128)]) -> Result<BlockOutputs, Error> {
        let Self { job, reader, hasher, arena, block, hashes, out, .. } = self;
        let (chain, files): (_, &Files<'_>) = (&job.plan.chain, job.files);
        let hash = chain.block(height).hash;
        reader.read_block(height, block).map_err(|error| error.at_block(height, hash))?;
        let located = LocatedBlock { chain, files, height };
        let block = &if self.checks_blocks {
            located.check(block.bytes(), arena, hashes)?.0
        } else {
            let block = located.parse(block.bytes(), arena)?;
            hashes.without_wtxids(&block, &[]);
            located.check_hash(hashes.block)?;
            block
        };
        let (mut outputs, mut unspent) = (0, Vec::new());
        for_each_output(block, |tx, vout, output| {
            let is_spendable = !is_unspendable(output.script_pubkey());
            if is_spendable && !coins.is_empty() {
                out.clear();
                compress_output(out, output.value(), output.script_pubkey());
                let outpoint = OutPoint { txid: hashes.txids[tx], vout };
                let coin = Coin { code: Coin::code_of(height, tx == 0), out };
                if coins.binary_search(&(height.0, hasher.hash(&outpoint, &coin))).is_ok() {
                    unspent.push(outputs);
                }
            }
            outputs += u32::from(is_spendable || self.counts_unspendable);
        });
        if unspent.len() == coins.len() {
            return Ok(BlockOutputs { height, outputs, unspent });
        }
        let missing = coins.len() - unspent.len();
        let detail = format!("{missing} coins of this height are not outputs of this block, or occur twice");
        Err(Error::damaged(detail).at_block(height, hash))
    }
}

/// Calls `each` with the outputs of a block: the index of the transaction, that of the output in it, and the
/// output.
fn for_each_output(block: &BlockView<'_>, mut each: impl FnMut(usize, u32, wire::OutputView<'_>)) {
    for (number, tx) in block.txs().enumerate() {
        for (output, vout) in tx.outputs().zip(0..) {
            each(number, vout, output);
        }
    }
}
