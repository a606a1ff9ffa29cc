//! The operations that the engine offers, each from its options to its report. The steps of a rebuild and of
//! an update are public too, because downloads use them.

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
