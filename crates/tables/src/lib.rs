//! Makes rows of tables from the blocks and coins that the engine gives, and datasets of them.
//!
//! Crate `export` has the columns; this crate says what is in them, what scripts are called ([`ScriptType`])
//! and which addresses stand for them. A dataset also states what its files have. Programs with and without a
//! command line use it.
#![forbid(unsafe_code)]

pub mod ages;
#[cfg(feature = "export")]
mod dataset;
#[cfg(feature = "export")]
mod rows;
pub mod script_type;
#[cfg(feature = "export")]
mod sighash;

#[cfg(feature = "export")]
pub use dataset::{
    BlockDataset, DatasetOptions, HistoryDataset, PROGRAM, WrittenFiles, columns_of, read_options,
};
#[cfg(feature = "export")]
pub use rows::{BlockRows, with_coin_row};
pub use script_type::ScriptType;

use std::num::NonZeroUsize;

/// Returns how many of these threads so much memory suffices for, if each takes `worker_bytes`; one at least.
pub fn affordable_threads(memory_bytes: u64, worker_bytes: u64, threads: NonZeroUsize) -> NonZeroUsize {
    let affordable =
        usize::try_from(memory_bytes / worker_bytes.max(1)).unwrap_or(usize::MAX).saturating_sub(1);
    threads.min(NonZeroUsize::new(affordable).unwrap_or(NonZeroUsize::MIN))
}
