//! What a run ends with.

use crate::{
    machine::Sha256Limit,
    options::HintOptions,
    stages::{Stage, apply::Method, spill::SpillVolume},
};
use std::{ops::AddAssign, path::PathBuf, time::Duration};
use wire::{BlockHash, BlockView, Height, Network, Sats};

/// Result of [`crate::reindex`].
#[derive(Clone, Debug)]
pub struct ReindexReport {
    /// The network.
    pub network: Network,
    /// Height of the chainstate's best block.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// What was read and checked.
    pub counts: Counts,
    /// Coins in the chainstate.
    pub txouts: u64,
    /// Sum of their amounts.
    pub total_amount: Sats,
    /// Hash of the UTXO set, in internal byte order (Core prints it reversed).
    pub hash_serialized_3: [u8; 32],
    /// Which scripts were run; nothing if there was no one to run them.
    pub scripts: Option<ScriptsReport>,
    /// How spends were matched with coins: `join`, or `ordered` where duplicate transactions called for it.
    pub matching: &'static str,
    /// What hints were used, if any.
    pub hints: Option<HintsReport>,
    /// Blocks that an interrupted run had done before.
    pub resumed: u32,
    /// The memory budget, in bytes.
    pub memory: u64,
    /// What did not fit into it.
    pub spilled: SpillVolume,
    /// Worker threads.
    pub threads: usize,
    /// From the call to the commit.
    pub elapsed: Duration,
    /// Time in each stage; read, check and settle run side by side and are summed over threads.
    pub stages: Vec<(Stage, Duration)>,
    /// What held the run up.
    pub bound_by: &'static str,
    /// The SHA-256 kernel that was used.
    pub sha256_kernel: &'static str,
    /// What it has hashed, and what this machine could.
    pub sha256_limit: Sha256Limit,
    /// The most memory that was resident, in bytes, where known.
    pub peak_memory_bytes: Option<u64>,
    /// Where the chainstate is.
    pub chainstate: PathBuf,
    /// Where the databases are that it replaced, if they are kept.
    pub kept: Vec<PathBuf>,
    /// Blocks that the replaced databases knew and the new ones do not: 0, unless the caller has accepted it.
    pub lost_blocks: u32,
    /// Stored blocks above the last one that have no undo data; bitcoind connects them when it starts.
    pub unconnected: u32,
    /// What the operator must know besides.
    pub notes: Vec<String>,
}

/// Which hints were used, and what they leave to trust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HintsReport {
    /// The last block they speak of.
    pub height: Height,
    /// What the sum was made of.
    pub aggregate: &'static str,
    /// Whether undo data was used below that height. If not, that each coin was made before it was spent, its
    /// maturity, relative locks, fees and scripts rest on the assumed-valid block there.
    pub with_undo: bool,
}

impl HintsReport {
    pub(crate) fn new(options: &HintOptions, method: &Method) -> Self {
        let height = match method {
            Method::Hints(run) => run.height,
            Method::Join | Method::Positions(_) => Height(0),
        };
        Self { height, aggregate: options.aggregate.name(), with_undo: !options.without_undo }
    }
}

/// Which scripts were run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptsReport {
    /// Those of blocks up to here were taken for valid; all were run, if there is none.
    pub assumed_valid_to: Option<Height>,
    /// Inputs whose scripts were run.
    pub inputs: u64,
}

/// What was read and checked. The genesis block counts as a block with one transaction; coinbase inputs do
/// not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Blocks.
    pub blocks: u64,
    /// Transactions.
    pub transactions: u64,
    /// Inputs that spend a coin.
    pub inputs: u64,
    /// Outputs, unspendable ones included.
    pub outputs: u64,
    /// Bytes of serialised blocks.
    pub block_bytes: u64,
    /// Inputs whose scripts were run.
    pub scripts: u64,
}

impl Counts {
    /// What one block counts.
    #[must_use]
    pub fn of(block: &BlockView<'_>) -> Self {
        Self {
            blocks: 1,
            transactions: block.tx_count() as u64,
            inputs: (block.input_count() as u64).saturating_sub(1),
            outputs: block.output_count() as u64,
            block_bytes: block.bytes().len() as u64,
            scripts: 0,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.transactions += other.transactions;
        self.inputs += other.inputs;
        self.outputs += other.outputs;
        self.block_bytes += other.block_bytes;
        self.scripts += other.scripts;
    }
}
