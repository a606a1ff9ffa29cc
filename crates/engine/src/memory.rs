//! How a memory budget is divided. `docs/adr/0005-bounded-memory.md` has the arithmetic.

use crate::{machine, options::ReindexOptions};
use std::num::NonZeroUsize;

/// The least budget, in bytes: what `--memory` may be at least.
pub const MIN_MEMORY: u64 = 128 << 20;

/// What a worker takes besides: the block in its hands with its undo data, views, hashes and coins of it, and
/// the effects that have not come to the join yet.
const WORKER_BYTES: u64 = 12 << 20;
/// What scripts that wait take besides.
const SCRIPTS_BYTES: u64 = 12 << 20;

/// Buffer of each run that is read, and of each that is written.
pub const RUN_BUFFER_BYTES: usize = 128 << 10;
/// Runs that are merged at once. With their buffers, 4 MiB.
pub const FAN_IN: usize = 32;

/// A quarter of the machine's memory, or of what this process may have of it; 128 MiB at least.
#[must_use]
pub fn default_memory() -> u64 {
    machine::total_memory_bytes().map_or(MIN_MEMORY, |total| (total / 4).max(MIN_MEMORY))
}

/// What is kept of each block until the end, and twice more while a checkpoint is written: its coinbase's
/// hash.
const BLOCK_BYTES: u64 = 3 * 8;
/// The least that the join is given.
const MIN_JOIN_BYTES: u64 = 8 << 20;

/// Who shares the memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConsumers {
    /// Worker threads.
    pub threads: usize,
    /// Whether scripts are run.
    pub scripts: bool,
    /// Blocks of the chain.
    pub blocks: usize,
}

impl MemoryConsumers {
    /// Of a run with these options over a chain of so many blocks. Its threads are as many as are asked for,
    /// if the memory is enough for them.
    #[must_use]
    pub fn of(options: &ReindexOptions, blocks: usize) -> Self {
        let threads = threads_within(options.memory, options.threads);
        Self { threads, scripts: options.scripts.is_some(), blocks }
    }
}

/// What the join may have grown to, in bytes, when it is emptied: of `memory`, of which `resident` is taken
/// already.
#[must_use]
pub fn join_bytes(memory: u64, resident: u64, memory_consumers: MemoryConsumers) -> usize {
    let merging = (RUN_BUFFER_BYTES * (FAN_IN + 4)) as u64;
    let scripts = if memory_consumers.scripts { SCRIPTS_BYTES } else { 0 };
    let working =
        memory_consumers.threads as u64 * WORKER_BYTES + memory_consumers.blocks as u64 * BLOCK_BYTES;
    let rest = memory.saturating_sub(resident + merging + scripts + working);
    // While one worker empties the join, the others fill it on, up to a 16th more (`Spill::spill_if_over_budget`). A 27th
    // of the rest is for lists of free places, and for what the allocator cannot give back.
    (rest / 10 * 9).max(MIN_JOIN_BYTES) as usize
}

/// [`join_bytes`] with what the process has taken already.
#[must_use]
pub fn join_bytes_now(memory: u64, memory_consumers: MemoryConsumers) -> usize {
    join_bytes(memory, machine::resident_bytes().unwrap_or(memory / 4), memory_consumers)
}

/// How many of so many `threads` fit into `memory`: workers get no more than a third of it together, so that
/// there is room for coins.
#[must_use]
fn threads_within(memory: u64, threads: NonZeroUsize) -> usize {
    let most = usize::try_from(memory / 3 / WORKER_BYTES).unwrap_or(usize::MAX);
    threads.get().min(most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(threads: usize, scripts: bool) -> MemoryConsumers {
        MemoryConsumers { threads, scripts, blocks: 1000 }
    }

    #[test]
    fn parts_fit_the_whole_and_small_budgets_are_mostly_for_coins() {
        for (memory, threads) in [(128, 1), (128, 2), (256, 4), (512, 2), (4096, 8), (1 << 20, 64)] {
            let whole = memory << 20;
            let join = join_bytes(whole, 14 << 20, of(threads, false)) as u64;
            let most = join / 16 * 17;
            assert!(whole - (14 << 20) > most + WORKER_BYTES * threads as u64, "{memory} MiB: {join}");
            assert!(join > whole / 2, "{memory} MiB: {join}");
        }
    }

    #[test]
    fn scripts_and_blocks_take_from_the_join() {
        let plain = join_bytes(1 << 30, 14 << 20, of(2, false));
        assert!(join_bytes(1 << 30, 14 << 20, of(2, true)) < plain);
        let blocks = MemoryConsumers { blocks: 1_000_000, ..of(2, false) };
        let less = plain - join_bytes(1 << 30, 14 << 20, blocks);
        let counted = (1_000_000 - 1_000) * BLOCK_BYTES as usize;
        assert!(less.abs_diff(counted / 10 * 9) < 10, "{less}: but for what rounding takes");
    }

    #[test]
    fn small_budgets_have_few_threads() {
        let fit = |memory: u64, threads| threads_within(memory << 20, NonZeroUsize::new(threads).unwrap());
        assert_eq!([fit(128, 1), fit(128, 2), fit(128, 64), fit(1024, 64), fit(4096, 64)], [1, 2, 3, 28, 64]);
        assert_eq!((fit(0, 8), fit(u64::MAX >> 20, 8)), (1, 8));
    }

    #[test]
    fn whatever_is_taken_something_is_left() {
        assert_eq!(join_bytes(MIN_MEMORY, MIN_MEMORY, of(64, true)) as u64, MIN_JOIN_BYTES);
    }
}
