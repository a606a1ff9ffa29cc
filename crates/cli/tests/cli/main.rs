//! The program as users meet it: each test starts `peregrine`, or what surrounds it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod advice;
mod ages;
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
mod made_indexes;
mod node_indexes;
mod operator_defaults;
mod packaging;
mod process;
mod range;
mod releases;
mod schema;
mod shared_report;
mod shared_snapshot;
mod snapshot_nodes;
mod sync_nodes;
mod terminal;
mod unprune_nodes;
mod utxo;
