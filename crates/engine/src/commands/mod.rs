//! The operations that the engine offers, each from its options to its report. Of a rebuild and an update,
//! the steps are public too: downloads are made of them.

pub(crate) mod doctor;
pub(crate) mod export_undo;
pub(crate) mod fetch_snapshot;
pub(crate) mod get_coins;
pub(crate) mod hints;
pub(crate) mod load_snapshot;
pub(crate) mod read_blocks;
pub(crate) mod read_coins;
pub(crate) mod read_history;
pub(crate) mod recover;
pub mod reindex;
pub(crate) mod scan_coins;
pub(crate) mod share_snapshot;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod stats_at;
pub(crate) mod undo;
pub mod update;
pub(crate) mod verify;
