//! The program as users meet it: each test starts `peregrine`, or what surrounds it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod ages;
mod bip455;
mod checked_scripts;
mod common;
mod electrum;
mod export;
mod export_blocks;
mod export_history;
mod hint_sources;
mod kill;
mod limits;
mod node;
mod packaging;
mod prelude;
mod process;
mod shared_snapshot;
mod terminal;
#[cfg(all(feature = "scripts", feature = "export", feature = "hints-url"))]
mod transcripts;
mod utxo;
