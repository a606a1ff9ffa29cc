//! How a memory budget is divided. `docs/adr/0005-bounded-memory.md` has the arithmetic.

use crate::machine;

/// The least budget, in bytes: what `--memory` may be at least.
pub const LEAST_MEMORY: u64 = 128 << 20;

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
    machine::total_memory_bytes().map_or(LEAST_MEMORY, |total| (total / 4).max(LEAST_MEMORY))
}

/// What open coins and spends may take of `memory`, of which `resident` is taken already, in bytes. Above it
/// they go to runs.
#[must_use]
pub fn join_bytes(memory: u64, resident: u64, threads: usize, scripts: bool) -> usize {
    // What the allocator cannot give back, and stacks.
    let free = memory.saturating_sub(resident) / 5 * 4;
    let merging = (RUN_BUFFER_BYTES * (FAN_IN + 4)) as u64;
    let scripts = if scripts { SCRIPTS_BYTES } else { 0 };
    let rest = free.saturating_sub(merging + scripts + threads as u64 * WORKER_BYTES);
    rest.max(8 << 20) as usize
}

/// [`join_bytes`] with what the process has taken already.
#[must_use]
pub fn join_bytes_now(memory: u64, threads: usize, scripts: bool) -> usize {
    join_bytes(memory, machine::resident_bytes().unwrap_or(memory / 4), threads, scripts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_the_whole_and_small_budgets_are_mostly_for_coins() {
        for (memory, threads) in [(128, 1), (128, 2), (256, 4), (512, 2), (4096, 8), (1 << 20, 64)] {
            let whole = memory << 20;
            let join = join_bytes(whole, 14 << 20, threads, false) as u64;
            assert!(whole - (14 << 20) > join + WORKER_BYTES * threads as u64, "{memory} MiB: {join}");
            assert!(join > whole / 3, "{memory} MiB: {join}");
        }
    }

    #[test]
    fn whatever_is_taken_something_is_left() {
        assert_eq!(join_bytes(LEAST_MEMORY, LEAST_MEMORY, 64, true), 8 << 20);
    }
}
