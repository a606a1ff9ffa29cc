//! Reports as JSON. Amounts are in satoshis.

use super::{first_differences, matching_name, rev_names};
use crate::notes::NoteJson;
use engine::{
    BoundBy, Height, Network, ReindexReport, ScriptsReport, Stage, VerifyReport, hex, hex_reversed,
};
use serde::Serialize;
use std::time::Duration;

/// The report of a rebuild.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReindexJson {
    #[serde(flatten)]
    facts: RebuildFacts,
    chainstate: String,
    kept: Vec<String>,
    notes: Vec<NoteJson>,
}

/// The part of it that names no path.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RebuildFacts {
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
    /// `null` if Core's source has no hash for this block.
    matches_core_assumeutxo_hash: Option<bool>,
    scripts: ScriptsJson,
    script_inputs: u64,
    matching: &'static str,
    hints: Option<HintsJson>,
    resumed_blocks: u32,
    threads: usize,
    seconds: f64,
    block_bytes: u64,
    peak_memory_bytes: Option<u64>,
    memory_budget_bytes: u64,
    temporary_bytes_written: u64,
    temporary_bytes_peak: u64,
    /// Inputs of the blocks that this run has checked, by the age of the coin that they spend: the first
    /// number is of coins of the same block, number n of ages from 2^(n-1) to 2^n - 1 blocks.
    spend_ages: Vec<u64>,
    bound_by: BoundByJson,
    sha256: &'static str,
    sha256_limit: Sha256LimitJson,
    undo: Option<UndoJson>,
    lost_blocks: u32,
    damaged_blocks: u32,
    unconnected_blocks: u32,
    stages: Vec<StageJson>,
}

/// Which undo data was made.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UndoJson {
    blocks_made: u32,
    files_made: Vec<String>,
    files_mended: Vec<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HintsJson {
    height: u32,
    aggregate: &'static str,
    with_undo: bool,
    /// SHA-256 of the hint file, unpacked.
    sha256: String,
    pinned: &'static str,
    /// What was not checked, because the assumed-valid block vouches for it.
    trusted: Vec<TrustedJson>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Sha256LimitJson {
    bytes: u64,
    bytes_per_second_and_core: f64,
    seconds: f64,
    share: f64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StageJson {
    stage: &'static str,
    seconds: f64,
}

impl StageJson {
    pub fn all(stages: &[(Stage, Duration)]) -> Vec<Self> {
        let one =
            |&(stage, time): &(Stage, Duration)| Self { stage: stage.name(), seconds: time.as_secs_f64() };
        stages.iter().map(one).collect()
    }
}

/// Which scripts were run.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScriptsJson {
    checked: CheckedJson,
    /// Scripts up to this height were assumed to be valid; `null` if none were.
    assumed_valid_to: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum CheckedJson {
    All,
    /// Those above `assumed_valid_to`.
    Some,
    None,
}

impl ScriptsJson {
    pub fn new(scripts: Option<ScriptsReport>, tip: Height) -> Self {
        let assumed_valid_to = scripts.and_then(|scripts| scripts.assumed_valid_to);
        let checked = match assumed_valid_to {
            _ if scripts.is_none() => CheckedJson::None,
            None => CheckedJson::All,
            Some(height) if height >= tip => CheckedJson::None,
            Some(_) => CheckedJson::Some,
        };
        Self { checked, assumed_valid_to: assumed_valid_to.map(|height| height.0) }
    }
}

/// What limited the speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum BoundByJson {
    Download,
    Read,
    Check,
    Scripts,
    Sequential,
    Finish,
    Other,
}

impl BoundByJson {
    const fn new(bound_by: BoundBy) -> Self {
        match bound_by {
            BoundBy::Download => Self::Download,
            BoundBy::Read => Self::Read,
            BoundBy::Check => Self::Check,
            BoundBy::Scripts => Self::Scripts,
            BoundBy::Sequential => Self::Sequential,
            BoundBy::Finish => Self::Finish,
            _ => Self::Other,
        }
    }
}

/// What an assumed-valid block vouches for where hints are used without undo data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum TrustedJson {
    Scripts,
    /// That coins are created before they are spent.
    Order,
    CoinbaseMaturity,
    RelativeLockTimes,
    Fees,
    /// Signature operations of spent scripts.
    SignatureOperations,
}

impl TrustedJson {
    const ALL: [Self; 6] = [
        Self::Scripts,
        Self::Order,
        Self::CoinbaseMaturity,
        Self::RelativeLockTimes,
        Self::Fees,
        Self::SignatureOperations,
    ];
}

impl ReindexJson {
    pub fn new(report: &ReindexReport) -> Self {
        Self {
            facts: RebuildFacts::new(report),
            chainstate: report.chainstate.display().to_string(),
            kept: report.kept.iter().map(|path| path.display().to_string()).collect(),
            notes: NoteJson::list(&report.notes),
        }
    }
}

impl RebuildFacts {
    pub fn new(report: &ReindexReport) -> Self {
        let limit = report.sha256_limit;
        let seconds = limit.time(report.threads).as_secs_f64();
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
            scripts: ScriptsJson::new(report.scripts, report.height),
            script_inputs: report.counts.scripts,
            matching: matching_name(report),
            hints: report.hints.as_ref().map(|hints| HintsJson {
                height: hints.height.0,
                aggregate: hints.aggregate.name(),
                with_undo: hints.with_undo,
                sha256: hex(&hints.sha256),
                pinned: hints.pinned.name(),
                trusted: if hints.with_undo { Vec::new() } else { TrustedJson::ALL.to_vec() },
            }),
            resumed_blocks: report.resumed,
            threads: report.threads,
            seconds: report.elapsed.as_secs_f64(),
            block_bytes: report.counts.block_bytes,
            peak_memory_bytes: report.peak_memory_bytes,
            memory_budget_bytes: report.memory_bytes,
            temporary_bytes_written: report.spilled.bytes_written,
            temporary_bytes_peak: report.spilled.peak_bytes,
            spend_ages: report.ages.counts().to_vec(),
            bound_by: BoundByJson::new(report.bound_by),
            sha256: report.sha256_kernel.name(),
            sha256_limit: Sha256LimitJson {
                bytes: limit.bytes,
                bytes_per_second_and_core: limit.bytes_per_second.round(),
                seconds,
                share: seconds / report.elapsed.as_secs_f64().max(1e-9),
            },
            undo: report.undo.as_ref().map(|undo| UndoJson {
                blocks_made: undo.blocks,
                files_made: rev_names(&undo.made).collect(),
                files_mended: rev_names(&undo.mended).collect(),
            }),
            lost_blocks: report.lost_blocks,
            damaged_blocks: report.damaged_blocks,
            unconnected_blocks: report.unconnected,
            stages: StageJson::all(&report.stages),
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyJson {
    #[serde(flatten)]
    facts: VerifyFacts,
    first_differences: Vec<String>,
    notes: Vec<NoteJson>,
}

/// The part of it that is of interest elsewhere.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyFacts {
    chain: &'static str,
    height: u32,
    block_hash: String,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    coins: u64,
    scripts: ScriptsJson,
    script_inputs: u64,
    threads: usize,
    seconds: f64,
    block_bytes: u64,
    /// `null` if the chainstate was not compared.
    chainstate_differences: Option<u64>,
}

pub fn verify_json(report: &VerifyReport, network: Network) -> VerifyJson {
    VerifyJson {
        facts: VerifyFacts::new(report, network),
        first_differences: first_differences(report),
        notes: NoteJson::list(&report.notes),
    }
}

impl VerifyFacts {
    pub fn new(report: &VerifyReport, network: Network) -> Self {
        Self {
            chain: network.name(),
            height: report.height.0,
            block_hash: report.hash.to_string(),
            blocks: report.counts.blocks,
            transactions: report.counts.transactions,
            inputs: report.counts.inputs,
            coins: report.txouts,
            scripts: ScriptsJson::new(report.scripts, report.height),
            script_inputs: report.counts.scripts,
            threads: report.threads,
            seconds: report.elapsed.as_secs_f64(),
            block_bytes: report.counts.block_bytes,
            chainstate_differences: report.against_chainstate.as_ref().map(|found| found.differences),
        }
    }
}
