//! The program as users meet it: each test starts `peregrine`, or what surrounds it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod ages;
mod bip455;
mod checked_scripts;
mod common;
mod doctor;
mod electrum;
mod export;
mod export_blocks;
mod export_history;
mod golden;
mod hint_sources;
mod hints;
mod kill;
mod limits;
mod node;
mod operator_defaults;
mod packaging;
mod process;
mod range;
mod schema;
mod shared_report;
mod shared_snapshot;
mod terminal;
mod utxo;
