//! What a caller of Peregrine sees: options, events, notes, reports, errors, and facts about the machine.
//!
//! The crates above it re-export what belongs to their operations.
#![forbid(unsafe_code)]

#[macro_use]
mod reported;

mod adapted_remedies;
pub mod block_observer;
pub mod counts;
pub mod disk_need;
pub mod error;
pub mod event;
pub mod follow;
pub mod json;
pub mod lower_tip;
pub mod machine;
pub mod note;
pub mod options;
pub mod remedy;
pub mod report;
pub mod size;
pub mod source_report;
pub mod spend_ages;
pub mod stage;
pub mod subject;
pub mod utxo_stats;
pub mod wrong_hint;

use wire::BlockHash;

/// Formats a digest as tools print the one of a file: the first byte comes first.
pub fn hex(digest: &[u8; 32]) -> String {
    let mut reversed = *digest;
    reversed.reverse();
    hex_reversed(&reversed)
}

/// Formats a hash as Bitcoin Core prints it: bytes reversed.
pub fn hex_reversed(hash: &[u8; 32]) -> String {
    BlockHash(*hash).to_string()
}
