//! Reports of finished jobs.

use crate::{
    counts::Counts,
    json::{
        AggregateName, DigestText, HashText, JsonSchema, KernelName, PathText, PathTexts, RevNames, Seconds,
        Serialize, TrueOrNull, written,
    },
    machine::Sha256Limit,
    note::{Notes, Warning},
    options::Matching,
    spend_ages::SpendAges,
    stage::Stage,
};
use coins::aggregate::AggregateKind;
use digest::kernel::Kernel;
use std::{path::PathBuf, time::Duration};
use strum::VariantArray;
use wire::{BlockHash, FileNo, Height, Network, Sats};

reported! {
/// Result of `reindex`.
#[derive(Clone, Debug)]
pub struct ReindexReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the chainstate's best block.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of blocks, transactions, inputs and outputs that were read and checked.
    pub counts [flatten]: Counts,
    /// Number of coins in the chainstate.
    pub txouts as "coins": u64,
    /// Sum of their amounts.
    pub total_amount as "total_amount_sat": Sats,
    /// Hash of the UTXO set, in internal byte order (Core prints it reversed).
    pub hash_serialized_3 with "HashText": [u8; 32],
    /// Whether Core's source pins this hash for this block. False if it pins none; if it pins another one,
    /// the rebuild fails.
    pub is_pinned as "matches_core_assumeutxo_hash" with "TrueOrNull": bool,
    /// Which scripts were run; `None` if scripts were not checked.
    pub scripts with "ScriptsFields": Option<ScriptsReport>,
    /// How spends were matched with coins.
    pub matching: Matching,
    /// Which hints were used; `None` without hints.
    pub hints: Option<HintsReport>,
    /// Number of blocks that an interrupted run had completed before.
    pub resumed as "resumed_blocks": u32,
    /// The memory budget, in bytes.
    pub memory_bytes as "memory_budget_bytes": u64,
    /// What was spilled because it exceeded the memory budget.
    pub spilled [flatten]: SpillVolume,
    /// Ages of the spent coins, as far as this run has seen them: not in blocks that an interrupted run had
    /// completed, those that hints cover without undo data, or a chain that was connected in order.
    pub ages as "spend_ages": SpendAges,
    /// Number of worker threads.
    pub threads: usize,
    /// Time from the call to the commit.
    pub elapsed as "seconds" with "Seconds": Duration,
    /// Time in each stage; the times of the parallel stages (read, check, scripts, match) are sums over all
    /// threads. A check without undo data adds its own.
    pub stages: Vec<StageTime>,
    /// What limited the speed.
    pub bound_by: BoundBy,
    /// The SHA-256 kernel that was used.
    pub sha256_kernel as "sha256" with "KernelName": Kernel,
    /// How many bytes were hashed, and how fast this machine hashes.
    pub sha256_limit: Sha256Limit,
    /// Peak resident memory, in bytes; `None` if the system does not report it.
    pub peak_memory_bytes: Option<u64>,
    /// Path of the chainstate.
    pub chainstate with "PathText": PathBuf,
    /// Paths of the replaced databases that were kept, on request or because they contain something that
    /// cannot be moved to the new one.
    pub kept with "PathTexts": Vec<PathBuf>,
    /// Which undo data was made; `None` if no undo data could be made.
    pub undo: Option<UndoReport>,
    /// Number of blocks that the replaced databases had and the new ones lack: 0, unless the caller accepted
    /// it.
    pub lost_blocks: u32,
    /// With [`crate::options::ReindexOptions::until_damage`], number of blocks that are damaged, or not in
    /// their files.
    pub damaged_blocks: u32,
    /// Number of stored blocks above the last one that have no undo data; bitcoind connects them when it
    /// starts.
    pub unconnected as "unconnected_blocks": u32,
    /// Warnings for the operator.
    pub notes with "Notes": Vec<Warning>,
}

/// The time that a stage took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Its time.
    pub time as "seconds" with "Seconds": Duration,
}

/// Which undo data was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UndoReport {
    /// Number of blocks whose undo data was missing or damaged, and was made.
    pub blocks as "blocks_made": u32,
    /// Numbers of the `rev` files that were made, because there were none.
    pub made as "files_made" with "RevNames": Vec<FileNo>,
    /// Numbers of the `rev` files to which undo data was appended.
    pub mended as "files_mended" with "RevNames": Vec<FileNo>,
}
}

wire::named! {
/// What limited the speed of a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundBy {
    /// Waiting for blocks to be downloaded.
    Download = "downloading",
    /// Reading the block files.
    Read = "reading the block files",
    /// Hashing and checking blocks.
    Check = "hashing and checking blocks",
    /// Running scripts.
    Scripts = "running scripts",
    /// Sequential validation.
    Sequential = "validating the blocks in order",
    /// Writing the chainstate and reading it back.
    Finish = "writing and reading back the chainstate",
}
}

reported! {
/// Which hints were used, and what remains to be trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintsReport {
    /// Height of the last block that the hints cover.
    pub height: Height,
    /// Kind of the aggregate.
    pub aggregate with "AggregateName": AggregateKind,
    /// Whether undo data was used up to that height. If not, the assumed-valid block vouches there that each
    /// coin was created before it was spent, and for maturity, relative locks, fees and scripts.
    pub with_undo: bool,
    /// The SHA-256 of the hint file when it is not packed.
    pub sha256 with "DigestText": [u8; 32],
    /// What was not checked, because the assumed-valid block vouches for it.
    pub trusted: &'static [Trusted],
}
}

/// What an assumed-valid block vouches for where hints are used without undo data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, VariantArray, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trusted {
    /// Scripts.
    Scripts,
    /// That coins are created before they are spent.
    Order,
    /// Coinbase maturity.
    CoinbaseMaturity,
    /// Relative lock times.
    RelativeLockTimes,
    /// Fees.
    Fees,
    /// Signature operations of spent scripts.
    SignatureOperations,
}

impl Trusted {
    /// All of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// Which scripts were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct ScriptsReport {
    /// Whether these are all scripts, some or none.
    pub checked: CheckedScripts,
    /// Scripts of blocks up to this height were assumed to be valid; `None` if all scripts were run.
    pub assumed_valid_to: Option<Height>,
    /// What is trusted there.
    pub trusted: Option<ScriptTrust>,
    /// Number of inputs whose scripts were run.
    #[serde(skip)]
    pub inputs: u64,
}

written! {
    /// Without scripts, none were checked.
    ScriptsFields: Option<ScriptsReport> => ScriptsReport, |all| all.unwrap_or(ScriptsReport::NOT_RUN);
}

/// Which of the scripts of a chain were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckedScripts {
    /// All of them.
    All,
    /// Those above the height up to which they are assumed to be valid.
    Some,
    /// None: all blocks are assumed to be valid, or scripts were not to be checked.
    None,
}

/// Why scripts were assumed to be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScriptTrust {
    /// The assumed-valid block vouches for them.
    AssumedValidBlock,
    /// The datadir's block index says that they were checked before.
    BlockIndex,
}

impl ScriptsReport {
    /// No scripts were to be run.
    pub const NOT_RUN: Self =
        Self { checked: CheckedScripts::None, assumed_valid_to: None, trusted: None, inputs: 0 };

    /// The report about a chain up to `tip`. Scripts were not run up to `by_index`, for which the block index
    /// vouches, or without it up to `by_block`, for which the assumed-valid block does.
    pub fn new(by_block: Option<Height>, by_index: Option<Height>, tip: Height, inputs: u64) -> Self {
        let (assumed_valid_to, trust) = match by_index {
            Some(height) => (Some(height.min(tip)), ScriptTrust::BlockIndex),
            None => (by_block, ScriptTrust::AssumedValidBlock),
        };
        let checked = match assumed_valid_to {
            None => CheckedScripts::All,
            Some(height) if height >= tip => CheckedScripts::None,
            Some(_) => CheckedScripts::Some,
        };
        let trusted = assumed_valid_to.map(|_| trust);
        Self { checked, assumed_valid_to, trusted, inputs }
    }
}

reported! {
/// How much was spilled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpillVolume {
    /// Number of sorted runs written, by spills and merges.
    pub runs as "temporary_runs": u64,
    /// Total bytes written.
    pub bytes_written as "temporary_bytes_written": u64,
    /// Bytes on disk now.
    pub bytes [skip]: u64,
    /// Peak bytes on disk.
    pub peak_bytes as "temporary_bytes_peak": u64,
}

/// Result of `update`.
#[derive(Clone, Debug, Default)]
pub struct UpdateReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the chainstate's best block before.
    pub height_before: Height,
    /// Its hash.
    pub hash_before as "block_hash_before": BlockHash,
    /// Height of the chainstate's best block now.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of blocks that were disconnected.
    pub disconnected as "blocks_disconnected": u32,
    /// What was connected.
    pub counts [flatten]: Counts,
    /// Number of blocks whose undo data was written.
    pub undo_written: u32,
    /// Number of commits.
    pub commits: u32,
    /// Which scripts were run; `None` if scripts were not checked.
    pub scripts with "ScriptsFields": Option<ScriptsReport>,
    /// Number of threads.
    pub threads: usize,
    /// Time from the call to the last commit.
    pub elapsed as "seconds" with "Seconds": Duration,
    /// Time in each stage.
    pub stages: Vec<StageTime>,
    /// Path of the chainstate.
    pub chainstate with "PathText": PathBuf,
    /// Whether old block files were deleted to save space.
    pub is_pruned as "pruned": bool,
    /// Warnings for the operator.
    pub notes with "Notes": Vec<Warning>,
}
}
