//! The operations that the engine offers, each from its options to its report.

pub mod behind_download;
pub mod doctor;
pub mod hints;
pub mod reindex;
pub mod snapshot;
pub mod stats;
pub mod sync;
pub mod undo;
pub mod unspent_outputs;
pub mod verify;
