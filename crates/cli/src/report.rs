//! Reports as text and as JSON. Names and order of the JSON fields are stable; amounts are in satoshis.

use engine::{
    Comparison, FileNo, Height, HintsReport, ReindexReport, ScriptsReport, SpillVolume, UtxoStatsReport,
    VerifyReport, Warning, hex_reversed,
};
use peregrine::{output::json, remedy::warning_text};
use serde::Serialize;

/// The report of a rebuild as JSON.
#[derive(Serialize)]
pub struct ReindexJson {
    chain: &'static str,
    height: u32,
    hash: String,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    outputs_created: u64,
    txouts: u64,
    total_amount_sat: i64,
    hash_serialized_3: String,
    scripts: String,
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
    bound_by: &'static str,
    sha256: &'static str,
    sha256_limit: Sha256LimitJson,
    chainstate: String,
    kept: Vec<String>,
    undo: Option<UndoJson>,
    lost_blocks: u32,
    unconnected_blocks: u32,
    notes: Vec<String>,
    stages: Vec<StageJson>,
}

/// Which undo data was made.
#[derive(Serialize)]
struct UndoJson {
    blocks_made: u32,
    files_made: Vec<String>,
    files_mended: Vec<String>,
}

#[derive(Serialize)]
struct HintsJson {
    height: u32,
    aggregate: &'static str,
    with_undo: bool,
    checked: String,
    trusted: Option<String>,
}

#[derive(Serialize)]
struct Sha256LimitJson {
    bytes: u64,
    bytes_per_second_and_core: f64,
    seconds: f64,
    share: f64,
}

#[derive(Serialize)]
struct StageJson {
    stage: &'static str,
    seconds: f64,
}

#[derive(Serialize)]
struct StatsJson {
    height: Option<u32>,
    bestblock: String,
    txouts: u64,
    transactions: u64,
    bogosize: u64,
    total_amount_sat: i64,
    hash_serialized_3: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    muhash: Option<String>,
}

impl ReindexJson {
    pub fn new(report: &ReindexReport) -> Self {
        let limit = report.sha256_limit;
        let seconds = limit.time(report.threads).as_secs_f64();
        Self {
            chain: report.network.name(),
            height: report.height.0,
            hash: report.hash.to_string(),
            blocks: report.counts.blocks,
            transactions: report.counts.transactions,
            inputs: report.counts.inputs,
            outputs_created: report.counts.outputs,
            txouts: report.txouts,
            total_amount_sat: report.total_amount.0,
            hash_serialized_3: hex_reversed(&report.hash_serialized_3),
            scripts: scripts_text(report.scripts, report.height),
            script_inputs: report.counts.scripts,
            matching: matching_name(report),
            hints: report.hints.as_ref().map(|hints| HintsJson {
                height: hints.height.0,
                aggregate: hints.aggregate.name(),
                with_undo: hints.with_undo,
                checked: hints_summary(hints).0.join(" "),
                trusted: hints_summary(hints).1.map(|lines| lines.join(" ")),
            }),
            resumed_blocks: report.resumed,
            threads: report.threads,
            seconds: report.elapsed.as_secs_f64(),
            block_bytes: report.counts.block_bytes,
            peak_memory_bytes: report.peak_memory_bytes,
            memory_budget_bytes: report.memory_bytes,
            temporary_bytes_written: report.spilled.bytes_written,
            temporary_bytes_peak: report.spilled.peak_bytes,
            bound_by: report.bound_by.name(),
            sha256: report.sha256_kernel.name(),
            sha256_limit: Sha256LimitJson {
                bytes: limit.bytes,
                bytes_per_second_and_core: limit.bytes_per_second.round(),
                seconds,
                share: seconds / report.elapsed.as_secs_f64().max(1e-9),
            },
            chainstate: report.chainstate.display().to_string(),
            kept: report.kept.iter().map(|path| path.display().to_string()).collect(),
            undo: report.undo.as_ref().map(|undo| UndoJson {
                blocks_made: undo.blocks,
                files_made: rev_names(&undo.made).collect(),
                files_mended: rev_names(&undo.mended).collect(),
            }),
            lost_blocks: report.lost_blocks,
            unconnected_blocks: report.unconnected,
            notes: report.notes.iter().map(warning_text).collect(),
            stages: report
                .stages
                .iter()
                .map(|&(stage, time)| StageJson { stage: stage.name(), seconds: time.as_secs_f64() })
                .collect(),
        }
    }
}

/// Returns the names of `blk` files.
pub fn blk_names(numbers: &[FileNo]) -> impl Iterator<Item = String> {
    numbers.iter().map(|number| format!("blk{:05}.dat", number.0))
}

/// Returns the names of `rev` files.
pub fn rev_names(numbers: &[FileNo]) -> impl Iterator<Item = String> {
    numbers.iter().map(|number| format!("rev{:05}.dat", number.0))
}

/// Returns the line about undo data that was made; empty if none was.
fn undo_text(report: &ReindexReport) -> String {
    let Some(undo) = report.undo.as_ref().filter(|undo| undo.blocks > 0) else { return String::new() };
    format!("\nundo data          {}", undo_files_text(undo))
}

/// Returns for how many blocks undo data was made, and in which files.
pub fn undo_files_text(undo: &engine::UndoReport) -> String {
    let count = |files: &[FileNo], what: &str| match files {
        [] => None,
        [_] => rev_names(files).next().map(|name| format!("{name} {what}")),
        many => Some(format!("{} rev files {what}", many.len())),
    };
    let files = [count(&undo.made, "made"), count(&undo.mended, "mended")];
    let files: Vec<String> = files.into_iter().flatten().collect();
    format!("made for {} blocks: {}", undo.blocks, files.join(", "))
}

pub fn reindex_text(report: &ReindexReport) -> String {
    let counts = &report.counts;
    let seconds = report.elapsed.as_secs_f64();
    let stages: Vec<String> =
        report.stages.iter().map(|(stage, time)| format!("{stage} {:.2} s", time.as_secs_f64())).collect();
    let peak = report.peak_memory_bytes.map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let resumed = match report.resumed {
        0 => String::new(),
        blocks => {
            format!("resumed            {blocks} of the blocks were already done by an interrupted run\n")
        }
    };
    let temporary = match report.spilled {
        SpillVolume { runs: 0, .. } => String::new(),
        SpillVolume { bytes_written, peak_bytes, .. } => format!(
            "\ntemporary files    {} MiB written, at most {} MiB at a time",
            bytes_written.div_ceil(1 << 20),
            peak_bytes.div_ceil(1 << 20)
        ),
    };
    let kept: String =
        report.kept.iter().map(|path| format!("\nkept               {}", path.display())).collect();
    let (undo, notes) = (undo_text(report), notes_text(&report.notes));
    let (rules, proof) = match &report.hints {
        None => (ALL_RULES, format!("; each spend matched with its coin ({})", matching_name(report))),
        Some(hints) if hints.with_undo => (ALL_RULES, hints_text(hints)),
        Some(hints) => ("headers, proof of work, all block rules except those of spends:", hints_text(hints)),
    };
    format!(
        "chainstate of {} at height {} is in {}\n\
         block              {}\n\
         coins              {} ({} BTC)\n\
         hash_serialized_3  {}\n\
         checked            {}\n\
         \x20                  {} blocks, {} transactions, {} inputs{}\n\
         {resumed}scripts            {}\n\
         time               {seconds:.2} s, {:.0} MB/s of blocks on {} threads, bound by {}\n\
         \x20                  {} (read, check and match run concurrently: summed over threads)\n\
         peak memory        {peak} of {} MiB allowed{temporary}{undo}{kept}{notes}",
        report.network.name(),
        report.height,
        report.chainstate.display(),
        report.hash,
        report.txouts,
        btc(report.total_amount.0),
        hex_reversed(&report.hash_serialized_3),
        rules,
        counts.blocks,
        counts.transactions,
        counts.inputs,
        proof,
        scripts_text(report.scripts, report.height),
        counts.block_bytes as f64 / 1e6 / seconds.max(1e-9),
        report.threads,
        report.bound_by.name(),
        stages.join(", "),
        report.memory_bytes >> 20,
    )
}

/// Returns the name of the method that matched spends with coins.
fn matching_name(report: &ReindexReport) -> &'static str {
    if report.hints.is_some() { "swiftsync" } else { report.matching.name() }
}

/// What is checked for blocks whose undo data is used.
const ALL_RULES: &str = "headers, proof of work, all rules of blocks and spends except scripts:";

/// Returns what a run with hints has proven, and what it took on trust from the assumed-valid block (`None`
/// with undo data), each as lines of text.
fn hints_summary(hints: &HintsReport) -> (Vec<String>, Option<Vec<String>>) {
    let HintsReport { height, aggregate, with_undo } = hints;
    let summed =
        if *with_undo { "over whole coins, undo data included" } else { "over outpoints, without undo data" };
    let mut checked = vec![
        format!("up to height {height} each output is unspent or spent once: the sum ({aggregate}) is zero,"),
        format!("{summed}; above, each spend is matched with its coin"),
    ];
    if *with_undo {
        return (checked, None);
    }
    checked.push("and all spend rules are checked; the coins do not exceed all subsidies".to_owned());
    let trusted = vec![
        format!(
            "up to height {height}, by --assumevalid: scripts, that coins are created before they are spent,"
        ),
        "coinbase maturity, relative lock times, fees, signature operations of spent scripts".to_owned(),
    ];
    (checked, Some(trusted))
}

/// Returns the report's lines about hints, each with a newline before it.
fn hints_text(hints: &HintsReport) -> String {
    let (checked, trusted) = hints_summary(hints);
    let (indent, mut text) = ("\n                   ", String::new());
    text += &format!("\nhints              {}", checked.join(indent));
    if let Some(trusted) = trusted {
        text += &format!("\ntrusted            {}", trusted.join(indent));
    }
    text
}

/// Describes which scripts of a chain up to `tip` were checked.
fn scripts_text(scripts: Option<ScriptsReport>, tip: Height) -> String {
    match scripts {
        None => "not checked: this build cannot run scripts".to_owned(),
        Some(ScriptsReport { assumed_valid_to: None, .. }) => "all checked".to_owned(),
        Some(ScriptsReport { assumed_valid_to: Some(height), .. }) if height >= tip => {
            "not checked: all blocks are assumed valid".to_owned()
        }
        Some(ScriptsReport { assumed_valid_to: Some(height), .. }) => {
            format!("checked above height {height}, assumed valid up to it")
        }
    }
}

#[derive(Serialize)]
struct VerifyJson {
    height: u32,
    hash: String,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    txouts: u64,
    scripts: String,
    script_inputs: u64,
    threads: usize,
    seconds: f64,
    block_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    chainstate_differences: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_differences: Vec<String>,
    notes: Vec<String>,
}

fn first_differences(report: &VerifyReport) -> Vec<String> {
    let first = report.against_chainstate.iter().flat_map(|comparison| &comparison.first);
    first.map(ToString::to_string).collect()
}

pub fn verify_json(report: &VerifyReport) -> String {
    json(&VerifyJson {
        height: report.height.0,
        hash: report.hash.to_string(),
        blocks: report.counts.blocks,
        transactions: report.counts.transactions,
        inputs: report.counts.inputs,
        txouts: report.txouts,
        scripts: scripts_text(report.scripts, report.height),
        script_inputs: report.counts.scripts,
        threads: report.threads,
        seconds: report.elapsed.as_secs_f64(),
        block_bytes: report.counts.block_bytes,
        chainstate_differences: report.against_chainstate.as_ref().map(|found| found.differences),
        first_differences: first_differences(report),
        notes: report.notes.iter().map(warning_text).collect(),
    })
}

pub fn verify_text(report: &VerifyReport) -> String {
    let counts = &report.counts;
    let chainstate = match &report.against_chainstate {
        None => "not compared".to_owned(),
        Some(Comparison { differences: 0, .. }) => format!("has exactly these {} coins", report.txouts),
        Some(Comparison { differences, .. }) => {
            let first = first_differences(report).join("\n                   ");
            let head = format!("differs in {differences} coins: rebuild it with peregrine reindex");
            [head, first].join("\n                   ")
        }
    };
    format!(
        "the blocks are valid up to height {}, block {}\n\
         checked            {ALL_RULES}\n\
         \x20                  {} blocks, {} transactions, {} inputs\n\
         scripts            {}\n\
         chainstate         {chainstate}\n\
         time               {:.2} s on {} threads{}",
        report.height,
        report.hash,
        counts.blocks,
        counts.transactions,
        counts.inputs,
        scripts_text(report.scripts, report.height),
        report.elapsed.as_secs_f64(),
        report.threads,
        notes_text(&report.notes),
    )
}

/// Returns the report's lines with notes, each with a newline before it.
pub fn notes_text(notes: &[Warning]) -> String {
    notes.iter().map(|note| format!("\nnote               {}", warning_text(note))).collect()
}

pub fn stats_json(stats: &UtxoStatsReport) -> String {
    json(&StatsJson {
        height: stats.height.map(|height| height.0),
        bestblock: stats.best_block.to_string(),
        txouts: stats.txouts,
        transactions: stats.transactions,
        bogosize: stats.bogosize,
        total_amount_sat: stats.total_amount.0,
        hash_serialized_3: hex_reversed(&stats.hash_serialized_3),
        muhash: stats.muhash.as_ref().map(hex_reversed),
    })
}

pub fn stats_text(stats: &UtxoStatsReport) -> String {
    let mut text = format!(
        "height             {}\n\
         best block         {}\n\
         coins              {} of {} transactions\n\
         amount             {} BTC\n\
         bogosize           {}\n\
         hash_serialized_3  {}",
        stats.height.map_or("unknown (not in the block index)".to_owned(), |height| height.to_string()),
        stats.best_block,
        stats.txouts,
        stats.transactions,
        btc(stats.total_amount.0),
        stats.bogosize,
        hex_reversed(&stats.hash_serialized_3),
    );
    if let Some(muhash) = &stats.muhash {
        text.push_str(&format!("\nmuhash             {}", hex_reversed(muhash)));
    }
    text
}

fn btc(sats: i64) -> String {
    format!(
        "{}{}.{:08}",
        if sats < 0 { "-" } else { "" },
        sats.unsigned_abs() / 100_000_000,
        sats.unsigned_abs() % 100_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{
        AggregateKind, BlockHash, BoundBy, Counts, Kernel, Matching, Network, Recovery, Sats, Sha256Limit,
        Stage, UndoReport,
    };
    use std::time::Duration;

    fn reindexed(resumed: u32) -> ReindexReport {
        ReindexReport {
            network: Network::Regtest,
            height: Height(12),
            hash: BlockHash([7; 32]),
            counts: Counts { blocks: 13, block_bytes: 3_000_000, ..Counts::default() },
            txouts: 5,
            total_amount: Sats(5_000_000_000),
            hash_serialized_3: [9; 32],
            scripts: None,
            matching: Matching::Parallel,
            hints: None,
            resumed,
            memory_bytes: 128 << 20,
            spilled: SpillVolume {
                runs: resumed.into(),
                bytes_written: 9 << 20,
                peak_bytes: 5 << 20,
                ..SpillVolume::default()
            },
            threads: 2,
            elapsed: Duration::from_secs(1),
            stages: vec![(Stage::Plan, Duration::from_millis(20))],
            bound_by: BoundBy::Read,
            sha256_kernel: Kernel::PORTABLE,
            sha256_limit: Sha256Limit { bytes: 3_000_000, bytes_per_second: 15e6 },
            peak_memory_bytes: Some(100 << 20),
            chainstate: "there".into(),
            kept: vec!["there.old".into()],
            undo: Some(UndoReport { blocks: 7, made: vec![FileNo(0)], mended: vec![FileNo(3), FileNo(4)] }),
            lost_blocks: 3,
            unconnected: 2,
            notes: vec![Warning::Recovered(Recovery::Finished)],
        }
    }

    #[test]
    fn report_shows_resumed_blocks_and_resources_used() {
        let text = reindex_text(&reindexed(7));
        assert!(text.contains("\nresumed            7 of the blocks were already done"), "{text}");
        assert!(text.contains("\npeak memory        100 MiB of 128 MiB allowed\n"), "{text}");
        assert!(text.contains("\ntemporary files    9 MiB written, at most 5 MiB at a time\n"), "{text}");
        let odd = Warning::Recovered(Recovery::Finished).to_string();
        assert!(
            text.ends_with(&format!(
                "\nundo data          made for 7 blocks: rev00000.dat made, 2 rev files mended\
                 \nkept               there.old\nnote               {odd}"
            )),
            "{text}"
        );
        let text = reindex_text(&reindexed(0));
        assert!(!text.contains("resumed") && !text.contains("temporary files"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json(&ReindexJson::new(&reindexed(7)))).unwrap();
        assert_eq!((&json["resumed_blocks"], &json["memory_budget_bytes"]), (&7.into(), &(128 << 20).into()));
        assert_eq!(json["temporary_bytes_written"], 9 << 20);
        assert_eq!(json["temporary_bytes_peak"], 5 << 20);
        assert_eq!((&json["lost_blocks"], &json["unconnected_blocks"]), (&3.into(), &2.into()));
        assert_eq!((&json["notes"][0], &json["kept"][0]), (&odd.into(), &"there.old".into()));
        let limit = &json["sha256_limit"];
        assert_eq!((&limit["bytes"], &limit["seconds"]), (&3_000_000.into(), &0.1.into()));
        assert_eq!(limit["share"], 0.1);
        assert_eq!((&json["blocks"], &json["peak_memory_bytes"]), (&13.into(), &(100 << 20).into()));
    }

    fn with_hints(with_undo: bool) -> ReindexReport {
        let hints = HintsReport { height: Height(9), aggregate: AggregateKind::SipHash128, with_undo };
        ReindexReport { hints: Some(hints), ..reindexed(0) }
    }

    #[test]
    fn report_shows_what_was_trusted_because_of_assumevalid() {
        let text = reindex_text(&with_hints(true));
        assert!(text.contains("all rules of blocks and spends except scripts"), "{text}");
        assert!(text.contains("the sum (siphash128) is zero") && !text.contains("trusted"), "{text}");
        let text = reindex_text(&with_hints(false));
        assert!(text.contains("all block rules except those of spends"), "{text}");
        assert!(text.contains("\ntrusted            up to height 9, by --assumevalid: scripts"), "{text}");
        let json = |report| -> serde_json::Value {
            serde_json::from_str(&super::json(&ReindexJson::new(&report))).unwrap()
        };
        assert!(json(reindexed(0))["hints"].is_null());
        assert!(json(with_hints(true))["hints"]["trusted"].is_null());
        let hints = &json(with_hints(false))["hints"];
        assert_eq!((&hints["height"], &hints["with_undo"]), (&9.into(), &false.into()));
        assert!(hints["trusted"].as_str().unwrap().contains("coinbase maturity"), "{hints}");
    }

    #[test]
    fn values_are_aligned_in_one_column() {
        let text = [reindexed(7), with_hints(false)].map(|report| reindex_text(&report)).join("\n");
        let names = text.lines().skip(1).filter(|line| !line.starts_with("chainstate of"));
        for line in names {
            let (name, value) = line.split_at(19);
            assert!(name.ends_with(' ') && !value.starts_with(' '), "{line:?}");
        }
    }
}
