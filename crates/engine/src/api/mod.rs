//! What a caller of the engine sees: options, events, reports, errors, and facts about the machine.

pub mod counts;
pub mod error;
pub mod event;
pub mod follow;
#[cfg(feature = "serde")]
pub mod json;
pub mod lower_tip;
pub mod machine;
pub mod note;
pub mod options;
pub mod remedy;
pub mod report;
pub mod size;
pub mod spend_ages;
pub mod stage;
pub mod sync;
pub mod utxo_stats;
