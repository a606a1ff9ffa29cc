//! Reports, which Python gets as dictionaries. Their names are those of the command line's
//! JSON, where it has them.

use engine::{BlockRange, Height, Network, ReindexReport, UtxoStatsReport, hex_reversed};
use pyo3::prelude::*;
use std::path::PathBuf;

/// What rows were read.
#[derive(Clone, IntoPyObject)]
pub enum RowsReport {
    /// Coins.
    #[pyo3(transparent)]
    Coins(CoinsReport),
    /// What blocks contain.
    #[pyo3(transparent)]
    Blocks(BlocksReport),
}

/// Which coins were read.
#[derive(Clone, IntoPyObject)]
pub struct CoinsReport {
    chain: &'static str,
    height: Option<u32>,
    block_hash: String,
    coins: u64,
    transactions: u64,
    bogosize: u64,
    total_amount_sat: i64,
    hash_serialized_3: String,
    muhash: Option<String>,
    matches_core_assumeutxo_hash: Option<bool>,
}

/// Which blocks were read.
#[derive(Clone, IntoPyObject)]
pub struct BlocksReport {
    chain: &'static str,
    from_height: u32,
    to_height: u32,
    block_hash: String,
}

impl RowsReport {
    /// The report about coins.
    pub fn of_coins(network: Network, stats: &UtxoStatsReport) -> Self {
        Self::Coins(CoinsReport {
            chain: network.name(),
            height: stats.height.map(|height| height.0),
            block_hash: stats.best_block.to_string(),
            coins: stats.txouts,
            transactions: stats.transactions,
            bogosize: stats.bogosize,
            total_amount_sat: stats.total_amount.0,
            hash_serialized_3: hex_reversed(&stats.hash_serialized_3),
            muhash: stats.muhash.as_ref().map(hex_reversed),
            matches_core_assumeutxo_hash: stats.pinned,
        })
    }

    /// The report about blocks.
    pub fn of_blocks(range: &BlockRange) -> Self {
        let BlockRange { network, from: Height(from_height), to: Height(to_height), last } = *range;
        Self::Blocks(BlocksReport {
            chain: network.name(),
            from_height,
            to_height,
            block_hash: last.to_string(),
        })
    }
}

/// What a rebuild did.
#[derive(IntoPyObject)]
pub struct RebuildReport {
    chain: &'static str,
    height: u32,
    block_hash: String,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    outputs_created: u64,
    coins: u64,
    total_amount_sat: i64,
    hash_serialized_3: String,
    matches_core_assumeutxo_hash: Option<bool>,
    /// Number of inputs whose scripts were run; `None` if this build cannot run them.
    script_inputs: Option<u64>,
    matching: &'static str,
    resumed_blocks: u32,
    lost_blocks: u32,
    unconnected_blocks: u32,
    threads: usize,
    seconds: f64,
    chainstate: PathBuf,
    kept: Vec<PathBuf>,
    warnings: Vec<String>,
}

impl RebuildReport {
    /// The report about a rebuild.
    pub fn new(report: ReindexReport) -> Self {
        Self {
            chain: report.network.name(),
            height: report.height.0,
            block_hash: report.hash.to_string(),
            blocks: report.counts.blocks,
            transactions: report.counts.transactions,
            inputs: report.counts.inputs,
            outputs_created: report.counts.outputs,
            coins: report.txouts,
            total_amount_sat: report.total_amount.0,
            hash_serialized_3: hex_reversed(&report.hash_serialized_3),
            matches_core_assumeutxo_hash: report.is_pinned.then_some(true),
            script_inputs: report.scripts.map(|scripts| scripts.inputs),
            matching: report.matching.name(),
            resumed_blocks: report.resumed,
            lost_blocks: report.lost_blocks,
            unconnected_blocks: report.unconnected,
            threads: report.threads,
            seconds: report.elapsed.as_secs_f64(),
            chainstate: report.chainstate,
            kept: report.kept,
            warnings: report.notes.iter().map(ToString::to_string).collect(),
        }
    }
}
