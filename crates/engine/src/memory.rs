//! How a memory budget is divided. `docs/adr/0005-bounded-memory.md` has the arithmetic.

use crate::{machine, stages::read::MAX_BLOCK_BYTES};

/// The least budget, in bytes: what `--memory` may be at least.
pub const LEAST_MEMORY: u64 = 128 << 20;

/// What a worker takes besides: the views, hashes, coins and effects of the block in its hands.
const WORKER_BYTES: u64 = 6 << 20;
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

/// The parts, in bytes where not said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Read at once from a block file by each worker.
    pub window: usize,
    /// Open coins and spends. Above it they go to runs.
    pub join: usize,
}

impl Budget {
    /// Divides `memory`, of which `resident` is taken already.
    #[must_use]
    pub fn divide(memory: u64, resident: u64, threads: usize, scripts: bool) -> Self {
        let threads = threads as u64;
        // At most that share goes to what grows with the machine and not with the chain.
        let share = |of: u64, least: u64, most: u64| (of / 6).clamp(least, most.max(least));
        // What the allocator cannot give back, and stacks.
        let free = memory.saturating_sub(resident) / 5 * 4;
        let window: u64 = std::env::var("WINDOW").ok().and_then(|w| w.parse().ok()).unwrap_or(1 << 20);
        let in_flight = threads * (window / 2 * 3 + MAX_BLOCK_BYTES as u64);
        let merging = (RUN_BUFFER_BYTES * (FAN_IN + 4)) as u64;
        let scripts = if scripts { SCRIPTS_BYTES } else { 0 };
        let rest = free.saturating_sub(in_flight + merging + scripts + threads * WORKER_BYTES);
        Self {
            window: window as usize,
            join: rest.max(8 << 20) as usize,
        }
    }

    /// Divides `memory`, of which the process has taken a part already.
    #[must_use]
    pub fn of_now(memory: u64, threads: usize, scripts: bool) -> Self {
        Self::divide(memory, machine::resident_bytes().unwrap_or(memory / 4), threads, scripts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_the_whole_and_small_budgets_are_mostly_for_coins() {
        for (memory, threads) in [(128, 1), (128, 2), (256, 4), (512, 2), (4096, 8), (1 << 20, 64)] {
            let whole = memory << 20;
            let budget = Budget::divide(whole, 14 << 20, threads, false);
            let staging = budget.batch_ops as u64 * BATCH_OP_BYTES * threads as u64;
            let parts = budget.in_flight as u64 + budget.join as u64 + staging;
            assert!(parts < whole - (14 << 20), "{memory} MiB: {budget:?}");
            assert!(budget.join as u64 > whole / 3, "{memory} MiB: {budget:?}");
            assert!(budget.window * 2 <= budget.in_flight && budget.batch_ops >= 16, "{budget:?}");
        }
    }

    #[test]
    fn whatever_is_taken_something_is_left() {
        let budget = Budget::divide(LEAST_MEMORY, LEAST_MEMORY, 64, true);
        assert_eq!((budget.join, budget.window, budget.batch_ops), (8 << 20, 1 << 20, 16));
    }
}
