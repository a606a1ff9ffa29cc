//! The options and the reports of the commands for indexes.

use api::{
    json::{JsonSchema, PathTexts, Seconds, Serialize},
    note::{Notes, Warning},
    options::ChainOptions,
};
use digest::siphash::SipKey;
use disk::node_indexes::IndexKind;
use std::{path::PathBuf, time::Duration};
use wire::{BlockHash, Height, Network};

wire::named! {
/// The form of the rows of a `txindex`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TxForm: "form" {
    /// By txid, which all releases read.
    ByTxid = "by-txid",
    /// By block, which releases from 32 on read, at 40 % of the size.
    ByBlock = "by-block",
}
}

/// What the commands for indexes work on.
#[derive(Clone, Debug)]
pub struct IndexOptions {
    /// The blocks. Scripts are not run.
    pub chain: ChainOptions,
    /// The indexes. If this is empty, those in the datadir are meant.
    pub kinds: Vec<IndexKind>,
    /// Indexes that are also meant if `kinds` is empty: those that the node keeps.
    pub also: Vec<IndexKind>,
    /// The form of the rows of a new `txindex`. `None` means the form of the one in the datadir, or, if there
    /// is none, the form that all releases read.
    pub tx_form: Option<TxForm>,
    /// The key of the hashes in a new index, for tests. `None` means a random key.
    pub key: Option<SipKey>,
}

impl IndexOptions {
    /// The default options.
    pub const fn new(chain: ChainOptions) -> Self {
        Self { chain, kinds: Vec::new(), also: Vec::new(), tx_form: None, key: None }
    }
}

/// Result of a command for indexes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Report")]
pub struct IndexesReport<T> {
    /// The network.
    #[serde(rename = "chain")]
    pub network: Network,
    /// Height of the chainstate's best block.
    pub height: Height,
    /// Hash of the chainstate's best block.
    #[serde(rename = "block_hash")]
    pub hash: BlockHash,
    /// What was done.
    #[serde(flatten)]
    pub result: T,
    /// Number of threads.
    pub threads: usize,
    /// Time from the call to the end.
    #[serde(rename = "seconds", with = "Seconds")]
    pub elapsed: Duration,
    /// Warnings for the operator.
    #[serde(with = "Notes")]
    pub notes: Vec<Warning>,
}

/// Result of [`make_indexes`](crate::make_indexes) and [`update_indexes`](crate::update_indexes): indexes
/// that have the chainstate's best block.
pub type MadeIndexesReport = IndexesReport<MadeIndexes>;

/// Result of [`check_indexes`](crate::check_indexes).
pub type CheckedIndexesReport = IndexesReport<CheckedIndexes>;

api::reported! {
/// The indexes that were made or continued.
#[derive(Clone, Debug)]
pub struct MadeIndexes {
    /// What was written.
    pub indexes: Vec<MadeIndex>,
    /// Number of blocks that were read for the indexes. Blocks that a rebuild has just shown to an observer
    /// are not read again.
    pub blocks_read: u32,
    /// Paths of what was replaced, if it was kept.
    pub kept with "PathTexts": Vec<PathBuf>,
}

/// The indexes that were checked.
#[derive(Clone, Debug)]
pub struct CheckedIndexes {
    /// What was found.
    pub indexes: Vec<CheckedIndex>,
}

/// An index that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadeIndex {
    /// The option of bitcoind that keeps it.
    pub name with "KindName": IndexKind,
    /// Height of the first block whose rows were written; if none were, of the next block.
    pub from_height: u32,
    /// Number of rows that were written.
    pub rows: u64,
    /// The form of the rows of a `txindex`.
    pub form: Option<TxForm>,
}
}

impl CheckedIndexesReport {
    /// Whether all indexes are as bitcoind makes them, up to their best blocks.
    pub fn is_sound(&self) -> bool {
        self.result.indexes.iter().all(|index| index.flaws == 0)
    }
}

api::reported! {
/// What was found of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedIndex {
    /// The option of bitcoind that keeps it.
    pub name with "KindName": IndexKind,
    /// Height of its best block, if it has one that is on the chain.
    pub height: Option<Height>,
    /// Number of rows that are as they have to be.
    pub sound_rows: u64,
    /// Number of rows and filters that are missing, wrong, or of no block.
    pub flaws: u64,
    /// The lowest flaw.
    pub first: Option<IndexFlaw>,
}

/// What is wrong with an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexFlaw {
    /// Height of the block; `None` if it is not known.
    pub height: Option<Height>,
    /// What is wrong.
    pub detail: String,
}
}

api::written! {
    KindName: IndexKind => &'static str, |kind| kind.option();
}
