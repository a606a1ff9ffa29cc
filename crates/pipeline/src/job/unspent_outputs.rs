//! Finds the indices of the unspent outputs of each block, in chain order and within the memory budget.
//!
//! Matching leaves coins, in key order: [`CoinsByBlock`] divides them by block and looks them up among the
//! outputs of their blocks, which are read once more.

use crate::{
    job::{Job, memory::MemoryBudget},
    stages::{
        coin_hash::CoinHasher,
        coin_sink::Coins,
        parts::{PART_BLOCK_BYTES, Parts},
        read::{BlockBuffers, BlockReader},
        turns::Turns,
        unspent::ForEachError,
    },
};
use api::{error::Error, event::BlockMeter, machine};
use chain::threads::{each_number, lock};
use hints::Numbering;
use std::sync::{Mutex, atomic::AtomicBool};
use wire::{Coin, Height, OutPoint, coin::compress_output, script::is_unspendable};

/// Callback for each block from height 1 on: height, number of outputs, and indices of the unspent ones.
pub type ForEachBlock<'a> = dyn FnMut(Height, u32, &[u32]) -> Result<(), Error> + Send + 'a;

/// Minimum of the memory for what is divided by block, in bytes.
const MIN_MEMORY_BYTES: usize = 64 << 10;

/// Bytes of a coin's height and hash.
const COIN_LEN: usize = 4 + 16;

/// Parts of a job's chain for the data about its coins, with half of the free memory.
fn parts<'a>(job: &Job<'a>) -> Parts<'a> {
    let chain = &job.plan.chain;
    let budget = MemoryBudget::after_matching(job.options, chain.block_count());
    let memory = budget.by_block().max(MIN_MEMORY_BYTES);
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
        Ok(Self { parts: parts(job), hasher, end, interrupt: job.watch.interrupt })
    }

    /// Adds a coin.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] for a coin that no block up to the last one can have created; any
    /// I/O error; [`api::error::ErrorKind::Interrupted`].
    pub fn add(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), Error> {
        Error::check_interrupt(self.interrupt)?;
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

    /// Adds all coins. After a mismatch, there are none.
    ///
    /// # Errors
    /// [`ForEachError`]; those of [`CoinsByBlock::add`].
    pub fn add_all(&mut self, coins: Coins<'_>) -> Result<(), ForEachError> {
        let added = coins.in_sequence(|outpoint, coin| self.add(outpoint, coin));
        added.map_err(|error| error.discarding(|| self.parts.clear()))
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
        let count = self.parts.part_of(self.end) as u32 + 1;
        let finder = OutputFinder {
            job,
            coins: &self,
            reader: &BlockReader::new(&job.plan.chain, job.files),
            meter: job.plan.meter(self.end.0 as usize, job.watch.sink),
            counts_unspendable: numbering == Numbering::AllOutputs,
            checks_blocks,
        };
        let (turns, each) = (Turns::new(0), Mutex::new(each));
        let begin = || (BlockBuffers::default(), self.hasher.clone());
        // Each thread is at most one part ahead.
        each_number(job.threads().min(count as usize), count, begin, |(buffers, hasher), part| {
            let turn = turns.of(part..=part);
            let found = finder.find(part as usize, buffers, hasher)?;
            turn.wait()?;
            let mut each = lock(&each);
            for BlockOutputs { height, outputs, unspent } in found {
                each(height, outputs, &unspent)?;
            }
            turn.end();
            Ok(())
        })?;
        self.parts.remove_file()
    }
}

struct BlockOutputs {
    height: Height,
    /// Number of outputs that are counted.
    outputs: u32,
    /// Indices of the unspent ones.
    unspent: Vec<u32>,
}

/// Finds coins among the outputs of their blocks.
struct OutputFinder<'a> {
    job: &'a Job<'a>,
    coins: &'a CoinsByBlock<'a>,
    reader: &'a BlockReader<'a>,
    meter: BlockMeter<'a>,
    counts_unspendable: bool,
    checks_blocks: bool,
}

impl OutputFinder<'_> {
    /// Finds the coins of the blocks of a part.
    fn find(
        &self,
        part: usize,
        buffers: &mut BlockBuffers,
        hasher: &mut CoinHasher,
    ) -> Result<Vec<BlockOutputs>, Error> {
        let parts = &self.coins.parts;
        let mut coins: Vec<(u32, u128)> = parts
            .take(part)?
            .as_chunks::<COIN_LEN>()
            .0
            .iter()
            .map(|&[a, b, c, d, ref hash @ ..]| {
                (u32::from_le_bytes([a, b, c, d]), u128::from_le_bytes(*hash))
            })
            .collect();
        coins.sort_unstable();
        let heights = parts.heights(part);
        let mut found = Vec::new();
        for height in heights.start.max(1)..heights.end.min(self.coins.end.0 + 1) {
            Error::check_interrupt(self.job.watch.interrupt)?;
            let first = coins.partition_point(|coin| coin.0 < height);
            let len = coins[first..].partition_point(|coin| coin.0 == height);
            let coins = &coins[first..first + len];
            found.push(self.find_in_block(Height(height), coins, buffers, hasher)?);
            self.meter.add(1, buffers.block.bytes().len() as u64);
        }
        Ok(found)
    }

    fn find_in_block(
        &self,
        height: Height,
        coins: &[(u32, u128)],
        buffers: &mut BlockBuffers,
        hasher: &mut CoinHasher,
    ) -> Result<BlockOutputs, Error> {
        let located = self.reader.read(height, false, buffers)?;
        let BlockBuffers { block, arena, hashes, .. } = buffers;
        let block = &if self.checks_blocks {
            located.check(block.bytes(), arena, hashes)?.0
        } else {
            let block = located.parse(block.bytes(), arena)?;
            hashes.without_wtxids(&block, &[]);
            located.check_hash(hashes.block)?;
            block
        };
        let mut out = Vec::new();
        let (mut outputs, mut unspent) = (0, Vec::new());
        for (number, tx) in block.txs().enumerate() {
            for (output, vout) in tx.outputs().zip(0..) {
                let is_spendable = !is_unspendable(output.script_pubkey());
                if is_spendable && !coins.is_empty() {
                    out.clear();
                    compress_output(&mut out, output.value(), output.script_pubkey());
                    let outpoint = OutPoint { txid: hashes.txids[number], vout };
                    let coin = Coin { code: Coin::code_of(height, number == 0), out: &out };
                    if coins.binary_search(&(height.0, hasher.hash(&outpoint, &coin))).is_ok() {
                        unspent.push(outputs);
                    }
                }
                outputs += u32::from(is_spendable || self.counts_unspendable);
            }
        }
        if unspent.len() == coins.len() {
            return Ok(BlockOutputs { height, outputs, unspent });
        }
        let missing = coins.len() - unspent.len();
        let detail = format!("{missing} coins of this height are not outputs of this block, or occur twice");
        Err(Error::damaged(detail).at_block(height, self.job.plan.chain.block(height).hash))
    }
}
