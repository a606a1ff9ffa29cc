//! The operations that the engine offers, each from its options to its report.

pub mod behind_download;
pub mod doctor;
pub mod follow;
pub mod get_coins;
pub mod hints;
pub mod load_snapshot;
pub mod range;
pub mod read_blocks;
pub mod read_coins;
pub mod recover;
pub mod reindex;
pub mod repair;
pub mod scan_coins;
pub mod snapshot;
pub mod stats;
pub mod stats_at;
pub mod sync;
pub mod undo;
pub mod update;
pub mod verify;
