//! The operations that the engine offers, each from its options to its report. Of a rebuild and an update,
//! the steps are public too: downloads are made of them.

pub mod blocks;
pub mod doctor;
pub mod hints;
pub mod history;
pub mod recover;
pub mod reindex;
pub mod snapshot;
pub mod undo;
pub mod update;
pub mod utxo;
pub mod verify;
