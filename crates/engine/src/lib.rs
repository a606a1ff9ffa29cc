//! Rebuilds a chainstate that Bitcoin Core opens, from the block files of a Bitcoin Core datadir.
//!
//! [`reindex`] runs the whole rebuild; [`utxo_stats`] reads a chainstate. The engine never prints: it sends
//! [`Event`]s to the caller's [`EventSink`] and returns a report or one [`Error`].
//!
//! # Why the result can be trusted
//!
//! Workers check blocks on all cores, in any order. The coins that a block spends are first taken from its
//! undo data: claims, which nothing vouches for. [`coins::join`] then proves that each claim equals, byte for
//! byte, the coin that an earlier transaction created, and that no coin is spent twice. If this parallel
//! matching proves less than that, the result is not yet an error: `stages::sequential` connects the blocks
//! in order with real coins, as Bitcoin Core does, and its verdict is final.
#![forbid(unsafe_code)]

mod chain;
mod checkpoint;
mod clock;
mod coin_sink;
mod connect;
mod dependents;
mod disk_need;
mod error;
mod event;
mod hash_list;
mod hints;
mod job;
mod machine;
mod memory;
mod note;
mod options;
mod output_positions;
mod partial_state;
mod read_only_job;
mod reindex;
mod remedy;
mod report;
mod session;
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

pub use crate::hints::{HintCheck, WrongHint, check_hints, convert_hints, hints_info, make_hints};
pub use ::hints::{HintFormat, HintInfo, Numbering};
pub use chain::FileKind;
pub use coins::aggregate::AggregateKind;
pub use digest::kernel::Kernel;
pub use disk::replace::Recovery;
pub use disk::snapshot::SnapshotMetadata;
pub use disk_need::DiskNeed;
pub use error::{Error, ErrorInfo, ErrorKind};
pub use event::{Event, EventSink, Progress};
pub use machine::{Sha256Limit, memory_limit, peak_memory_bytes, resident_bytes};
pub use memory::MIN_MEMORY;
pub use note::{Note, Warning};
pub use options::{AssumeValid, HintOptions, Matching, ReindexOptions};
pub use reindex::reindex;
pub use remedy::Remedy;
pub use report::{BoundBy, Counts, HintsReport, ReindexReport, ScriptsReport};
pub use size::HumanSize;
pub use snapshot::{SnapshotReport, SnapshotVerdict, make_snapshot, snapshot_info, verify_snapshot};
pub use stages::existing_state::{Gap, LowerPart, LowerTip};
pub use stages::{Stage, spill::SpillVolume};
pub use stats::{StatsOptions, UtxoStatsReport, utxo_stats};
pub use verify::{Comparison, Difference, VerifyReport, verify};
pub use vfs::{Disk, Limit, RealDisk, open_regular};
pub use wire::{BlockHash, Height, Network, Sats, ScriptVerifier, Txid};

/// Formats a hash as Bitcoin Core prints it: bytes reversed.
#[must_use]
pub fn hex_reversed(hash: &[u8; 32]) -> String {
    BlockHash(*hash).to_string()
}
