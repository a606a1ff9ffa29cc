//! Divides the memory budget. `docs/adr/0005-bounded-memory.md` explains the arithmetic.

use crate::stages::{
    parts::PART_BLOCK_BYTES,
    spill::{FAN_IN, RUN_BUFFER_BYTES},
};
use api::{machine, options::ChainOptions};
use std::num::NonZeroUsize;

/// Memory of each worker, in bytes: its current block with undo data, views, hashes and coins, and the
/// effects that are not in the join yet.
const WORKER_BYTES: u64 = 12 << 20;
/// Memory of the queue of scripts, in bytes.
const SCRIPTS_BYTES: u64 = 12 << 20;

/// Memory per block, in bytes: the hash of its coinbase is kept until the end, and copied three times while a
/// checkpoint is written, the last time into the bytes of the file.
const BLOCK_BYTES: u64 = 4 * 8;
/// The part of the memory that the blocks of a part of the chain may take: one in this many. What was
/// delivered for them takes up to one and a half times as much, if they consist of little else than inputs.
const PART_SHARE: u64 = 16;
/// Minimum size of the join, in bytes.
const MIN_JOIN_BYTES: u64 = 8 << 20;

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
}

impl MemoryBudget {
    /// The budget of a job with `options` over a chain of `blocks` blocks, whose plan is complete.
    pub fn after_plan(options: &ChainOptions, blocks: usize) -> Self {
        let threads = threads_within(options.memory_bytes, options.threads);
        Self::measured(options, Consumers { threads, scripts: options.scripts.are_run(), blocks })
    }

    /// The budget of one thread that works on the survivors of such a job.
    pub fn after_matching(options: &ChainOptions, blocks: usize) -> Self {
        Self::measured(options, Consumers { threads: 1, scripts: false, blocks })
    }

    /// The budget without `bytes` that something else takes at the same time.
    #[must_use]
    pub fn without(self, bytes: u64) -> Self {
        let join_bytes = self.join_bytes.saturating_sub(bytes as usize).max(MIN_JOIN_BYTES as usize);
        Self { join_bytes, ..self }
    }

    fn measured(options: &ChainOptions, consumers: Consumers) -> Self {
        let resident = machine::resident_bytes().unwrap_or(options.memory_bytes / 4);
        let observer = options.observer.as_ref().map_or(0, |it| it.memory_bytes(consumers.blocks));
        let join_bytes = options.hooks.join_bytes.unwrap_or(join_bytes(
            options.memory_bytes.saturating_sub(observer),
            resident,
            consumers,
        ));
        let part_block_bytes = PART_BLOCK_BYTES.min(options.memory_bytes / PART_SHARE);
        Self { threads: consumers.threads, join_bytes, part_block_bytes }
    }
}

/// What shares the memory budget with the join.
#[derive(Clone, Copy)]
struct Consumers {
    /// Number of worker threads.
    threads: usize,
    /// Whether scripts are run.
    scripts: bool,
    /// Number of blocks of the chain.
    blocks: usize,
}

/// Size of the join, in bytes, at which it is spilled, for a budget of `memory` bytes, `resident` of which
/// are already in use.
fn join_bytes(memory: u64, resident: u64, consumers: Consumers) -> usize {
    let merging = (RUN_BUFFER_BYTES * (FAN_IN + 4)) as u64;
    let scripts = if consumers.scripts { SCRIPTS_BYTES } else { 0 };
    let working = consumers.threads as u64 * WORKER_BYTES + consumers.blocks as u64 * BLOCK_BYTES;
    let rest = memory.saturating_sub(resident + merging + scripts + working);
    // While one worker empties the join, the others fill it on, up to a 16th more
    // (`Spill::spill_if_over_budget`). A 27th of the rest is for lists of free slots, and for memory that the
    // allocator cannot return.
    (rest / 10 * 9).max(MIN_JOIN_BYTES) as usize
}

/// Limits `threads` so that all workers together use at most a third of `memory`, and the rest is for coins.
fn threads_within(memory: u64, threads: NonZeroUsize) -> usize {
    let most = usize::try_from(memory / 3 / WORKER_BYTES).unwrap_or(usize::MAX);
    threads.get().min(most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{machine::MIN_MEMORY, options::ScriptChecks};
    use std::path::Path;
    use wire::Network;

    fn consumers(threads: usize, scripts: bool) -> Consumers {
        Consumers { threads, scripts, blocks: 1000 }
    }

    #[test]
    fn the_parts_fit_into_the_budget_and_small_budgets_are_mostly_for_coins() {
        for (memory, threads) in [(128, 1), (128, 2), (256, 4), (512, 2), (4096, 8), (1 << 20, 64)] {
            let whole = memory << 20;
            let join = join_bytes(whole, 14 << 20, consumers(threads, false)) as u64;
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
        let counted = (1_000_000 - 1_000) * BLOCK_BYTES as usize;
        assert!(less.abs_diff(counted / 10 * 9) < 10, "{less}: equal except for rounding");
    }

    #[test]
    fn small_budgets_have_small_parts() {
        let part = |mebibytes: u64| {
            let options = ChainOptions::new(Path::new("d"), Network::Main, ScriptChecks::LeftOut);
            let options = ChainOptions { memory_bytes: mebibytes << 20, ..options };
            MemoryBudget::after_plan(&options, 1).part_block_bytes
        };
        assert_eq!([part(128), part(256), part(4096)], [8 << 20, PART_BLOCK_BYTES, PART_BLOCK_BYTES]);
    }

    #[test]
    fn small_budgets_allow_few_threads() {
        let allowed =
            |memory: u64, threads| threads_within(memory << 20, NonZeroUsize::new(threads).unwrap());
        assert_eq!(
            [allowed(128, 1), allowed(128, 2), allowed(128, 64), allowed(1024, 64), allowed(4096, 64)],
            [1, 2, 3, 28, 64]
        );
        assert_eq!((allowed(0, 8), allowed(u64::MAX >> 20, 8)), (1, 8));
    }

    #[test]
    fn the_join_has_its_minimum_if_everything_else_takes_the_budget() {
        assert_eq!(join_bytes(MIN_MEMORY, MIN_MEMORY, consumers(64, true)) as u64, MIN_JOIN_BYTES);
    }
}
