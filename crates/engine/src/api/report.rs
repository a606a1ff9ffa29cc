//! Reports of finished jobs.

use crate::api::{
    counts::Counts, machine::Sha256Limit, note::Warning, options::Matching, spend_ages::SpendAges,
    stage::Stage,
};
use coins::aggregate::AggregateKind;
use digest::kernel::Kernel;
use hints::pinned::Pinned;
use std::{path::PathBuf, time::Duration};
use wire::{BlockHash, FileNo, Height, Network, Sats};

/// Result of [`crate::reindex()`].
#[derive(Clone, Debug)]
pub struct ReindexReport {
    /// The network.
    pub network: Network,
    /// Height of the chainstate's best block.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// Number of blocks, transactions, inputs and outputs that were read and checked.
    pub counts: Counts,
    /// Number of coins in the chainstate.
    pub txouts: u64,
    /// Sum of their amounts.
    pub total_amount: Sats,
    /// Hash of the UTXO set, in internal byte order (Core prints it reversed).
    pub hash_serialized_3: [u8; 32],
    /// Whether Core's source pins this hash for this block. If it pins none, this is false; with another one,
    /// the rebuild fails.
    pub is_pinned: bool,
    /// Which scripts were run; `None` if scripts were not checked.
    pub scripts: Option<ScriptsReport>,
    /// How spends were matched with coins. With hints, [`Matching::Parallel`].
    pub matching: Matching,
    /// Which hints were used; `None` without hints.
    pub hints: Option<HintsReport>,
    /// Number of blocks that an interrupted run had completed before.
    pub resumed: u32,
    /// The memory budget, in bytes.
    pub memory_bytes: u64,
    /// What was spilled because it exceeded the memory budget.
    pub spilled: SpillVolume,
    /// Ages of the spent coins, as far as this run has seen them: not in blocks that an interrupted run had
    /// completed, those that hints cover without undo data, or a chain that was connected in order.
    pub ages: SpendAges,
    /// Number of worker threads.
    pub threads: usize,
    /// Time from the call to the commit.
    pub elapsed: Duration,
    /// Time in each stage; the times of the parallel stages (read, check, scripts, match) are sums over all
    /// threads. A check without undo data adds its own.
    pub stages: Vec<(Stage, Duration)>,
    /// What limited the speed.
    pub bound_by: BoundBy,
    /// The SHA-256 kernel that was used.
    pub sha256_kernel: Kernel,
    /// How many bytes were hashed, and how fast this machine hashes.
    pub sha256_limit: Sha256Limit,
    /// Peak resident memory, in bytes; `None` if the system does not report it.
    pub peak_memory_bytes: Option<u64>,
    /// Path of the chainstate.
    pub chainstate: PathBuf,
    /// Paths of the replaced databases that were kept, on request or because they contain something that
    /// cannot be moved to the new one.
    pub kept: Vec<PathBuf>,
    /// Which undo data was made; `None` if no undo data could be made.
    pub undo: Option<UndoReport>,
    /// Number of blocks that the replaced databases had and the new ones lack: 0, unless the caller accepted
    /// it.
    pub lost_blocks: u32,
    /// With [`crate::ReindexOptions::until_damage`], number of blocks that are damaged, or not in their
    /// files.
    pub damaged_blocks: u32,
    /// Number of stored blocks above the last one that have no undo data; bitcoind connects them when it
    /// starts.
    pub unconnected: u32,
    /// Warnings for the operator.
    pub notes: Vec<Warning>,
}

/// Which undo data was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UndoReport {
    /// Number of blocks whose undo data was missing or damaged, and was made.
    pub blocks: u32,
    /// Numbers of the `rev` files that were made, because there were none.
    pub made: Vec<FileNo>,
    /// Numbers of the `rev` files to which undo data was appended.
    pub mended: Vec<FileNo>,
}

/// What limited the speed of a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BoundBy {
    /// Waiting for blocks to be downloaded.
    Download,
    /// Reading the block files.
    Read,
    /// Hashing and checking blocks.
    Check,
    /// Running scripts.
    Scripts,
    /// Sequential validation.
    Sequential,
    /// Writing the chainstate and reading it back.
    Finish,
}

impl BoundBy {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Download => "downloading",
            Self::Read => "reading the block files",
            Self::Check => "hashing and checking blocks",
            Self::Scripts => "running scripts",
            Self::Sequential => "validating the blocks in order",
            Self::Finish => "writing and reading back the chainstate",
        }
    }
}

/// Which hints were used, and what remains to be trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintsReport {
    /// Height of the last block that the hints cover.
    pub height: Height,
    /// Kind of the aggregate.
    pub aggregate: AggregateKind,
    /// Whether undo data was used up to that height. If not, the assumed-valid block vouches there that each
    /// coin was created before it was spent, and for maturity, relative locks, fees and scripts.
    pub with_undo: bool,
    /// The SHA-256 of the hint file when it is not packed.
    pub sha256: [u8; 32],
    /// Whether that is the digest of a published file.
    pub pinned: Pinned,
}

/// Which scripts were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptsReport {
    /// Scripts of blocks up to this height were assumed to be valid; `None` if all scripts were run.
    pub assumed_valid_to: Option<Height>,
    /// Number of inputs whose scripts were run.
    pub inputs: u64,
}

/// How much was spilled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpillVolume {
    /// Number of sorted runs written, by spills and merges.
    pub runs: u64,
    /// Total bytes written.
    pub bytes_written: u64,
    /// Bytes on disk now.
    pub bytes: u64,
    /// Peak bytes on disk.
    pub peak_bytes: u64,
}

/// Result of [`crate::update()`].
#[derive(Clone, Debug)]
pub struct UpdateReport {
    /// The network.
    pub network: Network,
    /// Height of the chainstate's best block before.
    pub height_before: Height,
    /// Its hash.
    pub hash_before: BlockHash,
    /// Height of the chainstate's best block now.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// Number of blocks that were disconnected.
    pub disconnected: u32,
    /// What was connected.
    pub counts: Counts,
    /// Number of blocks whose undo data was written.
    pub undo_written: u32,
    /// Number of commits.
    pub commits: u32,
    /// Which scripts were run; `None` if scripts were not checked.
    pub scripts: Option<ScriptsReport>,
    /// Number of threads.
    pub threads: usize,
    /// Time from the call to the last commit.
    pub elapsed: Duration,
    /// Time in each stage.
    pub stages: Vec<(Stage, Duration)>,
    /// Path of the chainstate.
    pub chainstate: PathBuf,
    /// Warnings for the operator.
    pub notes: Vec<Warning>,
}
