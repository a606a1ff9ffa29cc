//! What is printed of an examination where a field is not a value by itself.

use super::diagnosis::DatadirState;
use api::{error::Error, json::WithText};
use schemars::JsonSchema;
use serde::Serialize;
use wire::{BlockHash, Height, Network};

#[derive(Serialize, JsonSchema)]
pub struct Found {
    pub is_sound: bool,
    /// Why there is nothing to examine.
    pub absence: Option<WithText<Absence>>,
    pub datadir: Option<Box<DatadirState>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum Absence {
    NoDirectory,
    NoBlocks,
    OnlyChainstate,
    OtherNetworks { chains: Vec<Network> },
}

#[derive(Serialize, JsonSchema)]
pub struct Indexes {
    /// The names of their folders.
    pub indexes: Vec<String>,
    /// How each stands to the chainstate, in the same order.
    pub index_states: Vec<Index>,
}

#[derive(Serialize, JsonSchema)]
pub struct Index {
    pub name: String,
    pub state: IndexCode,
    /// Number of blocks by which it is behind.
    pub blocks_behind: Option<u32>,
    /// Height of its best block, if that is not on the chainstate's chain.
    pub height: Option<Height>,
    pub error: Option<Error>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IndexCode {
    Synced,
    Behind,
    /// Its best block is not on the chainstate's chain, or above its best block.
    OffChain,
    Empty,
    /// It is of a release up to 29.
    Superseded,
    UnknownBestBlock,
    /// Rows have places where no block is.
    Misplaced,
    Damaged,
    /// It cannot be read: no permission, or an I/O error.
    Unreadable,
    /// It ends below blocks that were deleted: bitcoind does not start with it.
    BelowPruned,
    NotExamined,
}

#[derive(Serialize, JsonSchema)]
pub struct Lock {
    pub state: LockCode,
    pub pid: Option<u32>,
    pub program: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LockCode {
    Free,
    Held,
    /// Only `blocks` is held, by another node that shares it.
    BlocksHeld,
    /// The file system has no locks.
    Unsupported,
    /// The lock files cannot be opened.
    Unknown,
}

#[derive(Serialize, JsonSchema)]
pub struct Database {
    pub state: DatabaseCode,
    pub error: Option<Error>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DatabaseCode {
    Sound,
    Absent,
    Broken,
    /// It cannot be read: no permission, an I/O error, or another process is writing to it.
    Unreadable,
}

#[derive(Serialize, JsonSchema)]
pub struct FirstLost {
    pub first_height: Option<Height>,
    pub first_block_hash: Option<BlockHash>,
}

/// Where the chainstate's best block is relative to the stored blocks.
#[derive(Serialize, JsonSchema)]
pub struct Position {
    pub position: Option<PositionCode>,
    pub blocks_behind: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PositionCode {
    AtTip,
    Behind,
    /// It is not on the chain with the most work.
    OnBranch,
    NotInIndex,
    /// The last block files do not have it either.
    NotStored,
}

#[derive(Serialize, JsonSchema)]
pub struct CheckpointBlocks {
    pub checkpoint_blocks_done: Option<u32>,
    pub checkpoint_blocks_total: Option<u32>,
}

#[derive(Serialize, JsonSchema, Default)]
pub struct RebuildSeconds {
    /// The middle of the range that follows.
    pub rebuild_seconds_estimate: Option<f64>,
    pub rebuild_seconds_least: Option<f64>,
    pub rebuild_seconds_most: Option<f64>,
    /// The part of `rebuild_seconds_most` that running scripts takes.
    pub rebuild_scripts_seconds_most: Option<f64>,
    /// Height above which they are run; none if they are run for all blocks.
    pub rebuild_scripts_above: Option<Height>,
    /// Whether more programs want to run than the machine has cores.
    pub is_busy: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
pub struct UndoTotals {
    pub undo_missing: u32,
    pub undo_damaged: u32,
}

#[derive(Serialize, JsonSchema)]
pub struct Coins {
    pub coins: Option<u64>,
    pub hash_serialized_3: Option<String>,
    pub coins_error: Option<Error>,
}
