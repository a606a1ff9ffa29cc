//! Divides the memory budget of a job. `docs/adr/0005-bounded-memory.md` explains the arithmetic.

use crate::stages::{
    parts::PART_BLOCK_BYTES,
    spill::{FAN_IN, RUN_BUFFER_BYTES},
};
use api::{
    event::MemoryTable,
    machine,
    options::{ChainOptions, UndoPolicy},
};
use chain::plan::planner::Plan;
use wire::Height;

/// Memory of each worker, in bytes: its current block with undo data, views, hashes and coins, and the
/// effects that are not in the join yet.
const WORKER_BYTES: u64 = 12 << 20;
/// Most memory of the queue of scripts, in bytes, and the part of all memory that it may take: one in this
/// many.
const SCRIPTS_BYTES: u64 = 12 << 20;
const SCRIPTS_SHARE: u64 = 32;

/// Memory per block, in bytes: the hash of its coinbase is kept until the end, and is once more in the bytes
/// of a checkpoint that is being written. If undo data is made, its length is kept too, and sorted for a
/// checkpoint.
const BLOCK_BYTES: u64 = 2 * 8;
const MADE_BYTES: u64 = 8 + 2 * 4;
/// The part of the memory that the blocks of a part of the chain may take: one in this many. What was
/// delivered for them takes up to one and a half times as much, if they consist of little else than inputs.
const PART_SHARE: u64 = 16;
/// Minimum size of the join, in bytes.
const MIN_JOIN_BYTES: u64 = 8 << 20;
/// The parts of the join's memory that deliveries and wanted coins get: one in this many each.
const DELIVERIES_SHARE: usize = 8;

/// How the memory that `--memory` allows is divided.
///
/// A job has one budget, made when its plan is complete ([`MemoryBudget::after_plan`]) and handed on, so that
/// the disk space that is announced, the number of threads and the size of the join belong together. At that
/// moment the program, the plan, the hint file, and what blocks above the hints spend
/// (`HintMatching::spent_above`) are in memory. All that comes later is a part of the
/// budget: workers, scripts, buffers of sorted runs, the join, and what is kept for each block, which
/// includes what a checkpoint restores. (Changed block files are read again before the workers start, by as
/// many threads.)
///
/// Other moments have other budgets, each measured anew:
/// - another plan, because a block was invalid or hints failed: [`MemoryBudget::after_plan`] again, since
///   what the first attempt allocated may not have returned to the system;
/// - dividing coins by block when the survivors are in memory and the workers are not:
///   [`MemoryBudget::after_matching`].
///
/// Sequential validation has no budget: it holds all coins (ADR 5).
#[derive(Clone, Copy, Debug)]
pub struct MemoryBudget {
    /// Number of worker threads: as many as the caller asked for, if the memory is enough for them.
    pub threads: usize,
    /// Size of the join, in bytes, at which it is spilled; after matching, what is free for other data.
    pub join_bytes: usize,
    /// Bytes of blocks in a part of the chain for which coins are delivered.
    pub part_block_bytes: u64,
    /// What all the memory is for.
    pub table: MemoryTable,
}

/// How the memory for coins is divided if blocks are connected in order: five eighths for those that are
/// kept, an eighth for a sorted list of their changes, one for two windows of blocks, and one for open
/// tables.
#[derive(Clone, Copy)]
pub struct CacheMemory {
    /// Bytes of coins after which their changes are written.
    pub coins: usize,
    /// Bytes of coins that stay when changes are written.
    pub staying: usize,
    /// Bytes of open tables.
    pub tables: u64,
    /// Bytes of the blocks of a window.
    pub window: usize,
}

impl MemoryBudget {
    /// The budget of a job with `options` whose plan is complete.
    pub fn after_plan(options: &ChainOptions, plan: &Plan) -> Self {
        let makes_undo = options.undo == UndoPolicy::Make || plan.blocks_without_undo(Height(0)) > 0;
        Self::of_blocks(options, plan.chain.block_count(), makes_undo)
    }

    /// The budget of a job over so many blocks, which makes undo data or not.
    pub fn of_blocks(options: &ChainOptions, blocks: usize, makes_undo: bool) -> Self {
        let (threads, scripts) = (affordable_threads(options), options.scripts.are_run());
        Self::measured(options, Consumers { threads, scripts, blocks, makes_undo })
    }

    /// The budget of one thread that works on the survivors of such a job.
    pub fn after_matching(options: &ChainOptions, blocks: usize) -> Self {
        Self::measured(options, Consumers { threads: 1, scripts: false, blocks, makes_undo: false })
    }

    /// The budget without `bytes` that a download takes at the same time.
    #[must_use]
    pub fn without(mut self, bytes: u64) -> Self {
        self.join_bytes = self.join_bytes.saturating_sub(bytes as usize).max(MIN_JOIN_BYTES as usize);
        [self.table[COINS].1, self.table[DOWNLOAD].1] = [self.join_bytes as u64, bytes];
        self
    }

    /// The memory for scripts that wait to be run.
    pub const fn queued_scripts(&self) -> u64 {
        self.table[SCRIPTS].1
    }

    /// The memory for coins that are delivered to the blocks that spend them, and as much for those that are
    /// wanted.
    pub const fn deliveries(&self) -> usize {
        self.join_bytes / DELIVERIES_SHARE
    }

    /// The memory for coins that are divided by block, while the survivors are read.
    pub const fn by_block(&self) -> usize {
        self.join_bytes / 2
    }

    /// The memory for rows of indexes that are made of all blocks.
    pub const fn index_rows(&self) -> usize {
        self.join_bytes / 4
    }

    /// The parts of the memory for coins if blocks are connected in order.
    pub const fn cache(&self) -> CacheMemory {
        let part = self.join_bytes / 8;
        CacheMemory { coins: 5 * part, staying: 2 * part, tables: part as u64, window: part / 2 }
    }

    fn measured(options: &ChainOptions, consumers: Consumers) -> Self {
        let resident = machine::resident_bytes().unwrap_or(options.memory_bytes / 4);
        let indexes = options.observer.as_ref().map_or(0, |it| it.memory_bytes(consumers.blocks));
        let (memory, taken) = (options.memory_bytes, resident + indexes);
        let threads = fitting_threads(memory, taken, consumers);
        let table = divide(memory, taken, Consumers { threads, ..consumers });
        let join_bytes = options.hooks.join_bytes.unwrap_or(table[COINS].1 as usize);
        let part_block_bytes = PART_BLOCK_BYTES.min(memory / PART_SHARE);
        Self { threads, join_bytes, part_block_bytes, table }
    }
}

/// What shares the memory budget with the join.
#[derive(Clone, Copy)]
struct Consumers {
    threads: usize,
    scripts: bool,
    /// Number of blocks of the chain.
    blocks: usize,
    makes_undo: bool,
}

/// The places of some parts in the table.
const SCRIPTS: usize = 2;
const DOWNLOAD: usize = 5;
const COINS: usize = 6;
const SPARE: usize = 7;

/// Divides a budget of `memory` bytes, `taken` of which are already in use, or are for indexes.
fn divide(memory: u64, taken: u64, consumers: Consumers) -> MemoryTable {
    let block_bytes = if consumers.makes_undo { BLOCK_BYTES + MADE_BYTES } else { BLOCK_BYTES };
    let mut table = [
        ("program_and_plan", taken),
        ("workers", consumers.threads as u64 * WORKER_BYTES),
        ("scripts", if consumers.scripts { SCRIPTS_BYTES.min(memory / SCRIPTS_SHARE) } else { 0 }),
        ("run_buffers", (RUN_BUFFER_BYTES * (FAN_IN + 4)) as u64),
        ("blocks", consumers.blocks as u64 * block_bytes),
        ("download", 0),
        ("coins", 0),
        ("spare", 0),
    ];
    let rest = memory.saturating_sub(table.iter().map(|(_, bytes)| bytes).sum());
    // While one worker empties the join, the others fill it on, up to a 16th more
    // (`Spill::spill_if_over_budget`). A 27th of the rest is for lists of free slots, and for memory that the
    // allocator cannot return.
    table[COINS].1 = (rest / 10 * 9).max(MIN_JOIN_BYTES);
    table[SPARE].1 = rest.saturating_sub(table[COINS].1);
    table
}

/// Returns the largest number of threads, up to that of `consumers`, with which all parts fit into the
/// budget; 1 if none does. With mainnet's blocks and undo data that is made, 128 MiB are enough for one.
fn fitting_threads(memory: u64, taken: u64, consumers: Consumers) -> usize {
    let table = |threads| divide(memory, taken, Consumers { threads, ..consumers });
    let fits = |threads: &usize| table(*threads).iter().map(|(_, bytes)| bytes).sum::<u64>() <= memory;
    (1..=consumers.threads).rev().find(fits).unwrap_or(1)
}

/// Limits the threads so that all workers together use at most a third of the memory, and the rest is for
/// coins.
pub fn affordable_threads(options: &ChainOptions) -> usize {
    let most = usize::try_from(options.memory_bytes / 3 / WORKER_BYTES).unwrap_or(usize::MAX);
    options.threads.get().min(most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{machine::MIN_MEMORY, options::ScriptChecks};
    use std::{num::NonZeroUsize, path::Path};
    use wire::Network;

    fn consumers(threads: usize, scripts: bool) -> Consumers {
        Consumers { threads, scripts, blocks: 1000, makes_undo: false }
    }

    fn join_bytes(memory: u64, resident: u64, consumers: Consumers) -> u64 {
        divide(memory, resident, consumers)[COINS].1
    }

    /// With as many blocks as mainnet has, whose plan takes 67 MiB with the program.
    #[test]
    fn the_parts_of_a_budget_are_at_most_the_budget() {
        for memory in [MIN_MEMORY, 1 << 30, machine::default_memory()] {
            for (scripts, makes_undo) in [(false, false), (true, false), (true, true)] {
                let wanted = Consumers { threads: 2, scripts, blocks: 930_000, makes_undo };
                let threads = fitting_threads(memory, 67 << 20, wanted);
                let (expected, coins_min) = if makes_undo && memory == MIN_MEMORY { (1, 8) } else { (2, 12) };
                assert_eq!(threads, expected, "{memory}, {makes_undo}");
                let table = divide(memory, 67 << 20, Consumers { threads, ..wanted });
                assert!(table.iter().map(|(_, bytes)| bytes).sum::<u64>() <= memory, "{memory}: {table:?}");
                // More than the 3 MiB that the chunks of all shards take if they are nearly empty.
                assert!(table[COINS].1 >= coins_min << 20, "{memory}: {table:?}");
            }
        }
    }

    #[test]
    fn the_parts_fit_into_the_budget_and_small_budgets_are_mostly_for_coins() {
        for (memory, threads) in [(128, 1), (128, 2), (256, 4), (512, 2), (4096, 8), (1 << 20, 64)] {
            let whole = memory << 20;
            let join = join_bytes(whole, 14 << 20, consumers(threads, false));
            let most = join / 16 * 17;
            let workers = WORKER_BYTES * threads as u64;
            let merging = RUN_BUFFER_BYTES as u64 * (FAN_IN as u64 + 4);
            assert!(whole - (14 << 20) > most + workers + merging, "{memory} MiB: {join}");
            assert!(join > whole / 2, "{memory} MiB: {join}");
        }
    }

    #[test]
    fn scripts_and_blocks_take_from_the_join() {
        let plain = join_bytes(1 << 30, 14 << 20, consumers(2, false));
        assert!(join_bytes(1 << 30, 14 << 20, consumers(2, true)) < plain);
        let blocks = Consumers { blocks: 1_000_000, ..consumers(2, false) };
        let less = plain - join_bytes(1 << 30, 14 << 20, blocks);
        let counted = (1_000_000 - 1_000) * BLOCK_BYTES;
        assert!(less.abs_diff(counted / 10 * 9) < 10, "{less}: equal except for rounding");
    }

    #[test]
    fn small_budgets_have_small_parts() {
        let part = |mebibytes: u64| {
            let options = ChainOptions::new(Path::new("d"), Network::Main, ScriptChecks::LeftOut);
            let options = ChainOptions { memory_bytes: mebibytes << 20, ..options };
            MemoryBudget::of_blocks(&options, 1, false).part_block_bytes
        };
        assert_eq!([part(128), part(256), part(4096)], [8 << 20, PART_BLOCK_BYTES, PART_BLOCK_BYTES]);
    }

    #[test]
    fn small_budgets_allow_few_threads() {
        let allowed = |memory: u64, threads| {
            let options = ChainOptions::new(Path::new("d"), Network::Main, ScriptChecks::LeftOut);
            let threads = NonZeroUsize::new(threads).unwrap();
            affordable_threads(&ChainOptions { memory_bytes: memory << 20, threads, ..options })
        };
        assert_eq!(
            [allowed(128, 1), allowed(128, 2), allowed(128, 64), allowed(1024, 64), allowed(4096, 64)],
            [1, 2, 3, 28, 64]
        );
        assert_eq!((allowed(0, 8), allowed(u64::MAX >> 20, 8)), (1, 8));
    }

    /// A chainstate was once read back on as many threads as the caller asked for, whatever the budget.
    #[test]
    fn a_thread_that_reads_coins_back_takes_no_more_than_a_worker() {
        const { assert!(disk::utxo_stats::READER_BYTES as u64 <= WORKER_BYTES) }
    }

    #[test]
    fn the_join_has_its_minimum_if_everything_else_takes_the_budget() {
        assert_eq!(join_bytes(MIN_MEMORY, MIN_MEMORY, consumers(64, true)), MIN_JOIN_BYTES);
    }
}
