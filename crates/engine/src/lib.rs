//! Runs a rebuild: from a Bitcoin Core datadir's block files to a chainstate that Bitcoin Core opens.
//!
//! [`reindex`] is the whole of it; [`utxo_stats`] looks at a chainstate. The engine never prints: it sends
//! [`Event`]s to the caller's [`EventSink`] and ends with a report or one [`Error`].
//!
//! # How the result can be trusted
//!
//! Blocks are checked on all cores in any order. What a block spends is first taken from its undo data, a
//! claim nobody vouches for; [`coins::join`] then proves that each claim equals, byte for byte, the coin that
//! an earlier transaction made, and that no coin is spent twice. Whatever this fast path cannot prove is not
//! an error yet: `stages::judge` goes through the blocks in order with real coins, as Bitcoin Core does,
//! and its verdict is the one that counts.
#![forbid(unsafe_code)]

mod chain;
mod checkpoint;
mod clock;
mod dependents;
mod disk_need;
mod error;
mod event;
mod hash_list;
mod hints;
mod job;
mod machine;
mod memory;
mod options;
mod output_positions;
mod read_only_job;
mod reindex;
mod report;
mod size;
mod snapshot;
mod stages;
mod stats;
mod threads;
mod tree;
mod unspent;
mod verify;
mod work_dir;
mod worker_pool;

pub use coins::aggregate::AggregateKind;
pub use disk::fs::{RealDisk, open_regular};
pub use disk::hints::{HintFormat, HintInfo, Numbering};
pub use disk::snapshot::SnapshotMetadata;
pub use error::{Error, ErrorKind};
pub use event::{Event, EventSink, Progress};
pub use hints::{HintCheck, WrongHint, check_hints, convert_hints, hints_info, make_hints};
pub use machine::{Sha256Limit, memory_limit};
pub use memory::MIN_MEMORY;
pub use options::{AssumeValid, HintOptions, Matching, ReindexOptions};
pub use reindex::reindex;
pub use report::{Counts, HintsReport, ReindexReport, ScriptsReport};
pub use size::HumanSize;
pub use snapshot::{SnapshotReport, SnapshotVerdict, make_snapshot, snapshot_info, verify_snapshot};
pub use stages::{Stage, spill::SpillVolume};
pub use stats::{StatsOptions, UtxoStatsReport, utxo_stats};
pub use verify::{Comparison, Difference, VerifyReport, verify};
pub use wire::{BlockHash, Height, Network, Sats, ScriptVerifier, Txid};

/// A hash as Bitcoin Core prints it: bytes reversed.
#[must_use]
pub fn hex_reversed(hash: &[u8; 32]) -> String {
    BlockHash(*hash).to_string()
}
