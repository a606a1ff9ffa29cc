//! What the commands for indexes do, and what they report.

use api::note::Warning;
use api::options::ChainOptions;
#[cfg(feature = "serde")]
use api::{
    json::{JsonSchema, PathTexts, Seconds, Serialize},
    note::Notes,
};
use digest::siphash::SipKey;
use disk::node_indexes::IndexKind;
use std::{path::PathBuf, time::Duration};
use wire::{BlockHash, Height, Network};

/// The form of the rows of a `txindex`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema), serde(rename_all = "kebab-case"))]
pub enum TxForm {
    /// By txid, which all releases read.
    ByTxid,
    /// By block, which releases from 32 on read, at 40 % of the size.
    ByBlock,
}

/// What the commands for indexes work on.
#[derive(Clone, Debug)]
pub struct IndexOptions {
    /// The blocks. Scripts are not run.
    pub chain: ChainOptions,
    /// The indexes; none: those in the datadir.
    pub kinds: Vec<IndexKind>,
    /// Indexes that are meant as well if none are named: those that the node keeps.
    pub also: Vec<IndexKind>,
    /// The form of the rows of a `txindex` that is made. `None`: that of the one in the datadir; without one,
    /// that which all releases read.
    pub tx_form: Option<TxForm>,
    /// The key of the hashes of a new index, for tests; `None`: a random one.
    pub key: Option<SipKey>,
}

impl IndexOptions {
    /// The default options.
    pub const fn new(chain: ChainOptions) -> Self {
        Self { chain, kinds: Vec::new(), also: Vec::new(), tx_form: None, key: None }
    }
}

/// Result of [`make_indexes`](crate::make_indexes) and [`update_indexes`](crate::update_indexes).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct MadeIndexesReport {
    /// The network.
    #[cfg_attr(feature = "serde", serde(rename = "chain"))]
    pub network: Network,
    /// Height of the best block of all these indexes, which is that of the chainstate.
    pub height: Height,
    /// Its hash.
    #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
    pub hash: BlockHash,
    /// What was written.
    pub indexes: Vec<MadeIndex>,
    /// Number of blocks that were read for them. Blocks that a rebuild has just shown to an observer are not
    /// read again.
    pub blocks_read: u32,
    /// Paths of what was replaced, if it was kept.
    #[cfg_attr(feature = "serde", serde(with = "PathTexts"))]
    pub kept: Vec<PathBuf>,
    /// Number of threads.
    pub threads: usize,
    /// Time from the call to the end.
    #[cfg_attr(feature = "serde", serde(rename = "seconds", with = "Seconds"))]
    pub elapsed: Duration,
    /// Warnings for the operator.
    #[cfg_attr(feature = "serde", serde(with = "Notes"))]
    pub notes: Vec<Warning>,
}

/// An index that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct MadeIndex {
    /// The option of bitcoind that keeps it.
    #[cfg_attr(feature = "serde", serde(with = "KindName"))]
    pub name: IndexKind,
    /// Height of the first block whose rows were written.
    pub from_height: u32,
    /// Number of rows that were written.
    pub rows: u64,
    /// The form of the rows of a `txindex`.
    pub form: Option<TxForm>,
}

/// Result of [`check_indexes`](crate::check_indexes).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct CheckedIndexesReport {
    /// The network.
    #[cfg_attr(feature = "serde", serde(rename = "chain"))]
    pub network: Network,
    /// Height of the chainstate's best block.
    pub height: Height,
    /// Its hash.
    #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
    pub hash: BlockHash,
    /// What was found.
    pub indexes: Vec<CheckedIndex>,
    /// Number of threads.
    pub threads: usize,
    /// Time from the call to the end.
    #[cfg_attr(feature = "serde", serde(rename = "seconds", with = "Seconds"))]
    pub elapsed: Duration,
    /// Warnings for the operator.
    #[cfg_attr(feature = "serde", serde(with = "Notes"))]
    pub notes: Vec<Warning>,
}

impl CheckedIndexesReport {
    /// Whether all indexes are as bitcoind makes them, as far as they go.
    pub fn is_sound(&self) -> bool {
        self.indexes.iter().all(|index| index.flaws == 0)
    }
}

/// What was found of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct CheckedIndex {
    /// The option of bitcoind that keeps it.
    #[cfg_attr(feature = "serde", serde(with = "KindName"))]
    pub name: IndexKind,
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
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct IndexFlaw {
    /// Height of the block; `None` if it is not known.
    pub height: Option<Height>,
    /// What is wrong.
    pub detail: String,
}

#[cfg(feature = "serde")]
api::written! {
    KindName: IndexKind => &'static str, |kind| kind.option();
}
