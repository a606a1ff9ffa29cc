//! The formats of a datadir: real files, damaged files, and disks that fail.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod datadirs;
mod faults;
mod index_memory;
mod made_undo;
mod made_undo_threads;
mod prelude;
mod snapshot;
mod utxo_tree;
mod written_bytes;
