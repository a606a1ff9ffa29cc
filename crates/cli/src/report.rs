//! Reports as text.

use crate::prelude::*;
use engine::{
    Counts, Disk as _, FileKind, FileNo, HumanMemory, Warning, hex,
    reindex::{CheckedScripts, HintsReport, ReindexReport, ScriptTrust, ScriptsReport, StageTime},
    verify::{Comparison, VerifyReport},
};
use peregrine::shell::user_name;

/// What was made of which file, or written to it.
#[derive(Serialize, JsonSchema)]
pub struct WithFile<T> {
    pub file: String,
    #[serde(flatten)]
    pub report: T,
}

impl<T> WithFile<T> {
    pub fn new(file: &Path, report: T) -> Self {
        Self { file: file.display().to_string(), report }
    }
}

/// Returns for how many blocks undo data was made, and in which files.
pub fn undo_files_text(undo: &engine::reindex::UndoReport) -> String {
    let count = |files: &[FileNo], what: &str| match files {
        [] => None,
        [file] => Some(format!("{} {what}", FileKind::Rev.file_name(*file))),
        many => Some(format!("{} rev files {what}", many.len())),
    };
    let files = [count(&undo.made, "made"), count(&undo.mended, "mended")];
    let files: Vec<String> = files.into_iter().flatten().collect();
    format!("made for {} blocks: {}", undo.blocks, files.join(", "))
}

/// Returns a report of a rebuild. `prune`: to how many MiB bitcoind is to prune the node, if it is pruned;
/// `is_elsewhere`: whether the databases are in another datadir than the blocks.
pub fn reindex_rows(report: &ReindexReport, prune: Option<u64>, is_elsewhere: bool) -> Rows {
    let next = match is_elsewhere && !report.chainstate.with_file_name("blocks/blk00000.dat").exists() {
        true => next_of_output(&report.chainstate),
        false => next_text(&report.chainstate, report.unconnected, prune),
    };
    let ReindexReport { counts, hints, spilled, scripts, .. } = report;
    let seconds = report.elapsed.as_secs_f64();
    let peak = report.peak_memory_bytes.map_or("unknown".to_owned(), |bytes| HumanMemory(bytes).to_string());
    let resumed = (report.resumed > 0)
        .then(|| format!("{} of the blocks were already done by an interrupted run", count(report.resumed)));
    let (written, most) = (HumanSize(spilled.bytes_written), HumanSize(spilled.peak_bytes));
    let temporary = (spilled.runs > 0).then(|| format!("{written} written, at most {most} at a time"));
    let undo = report.undo.as_ref().filter(|undo| undo.blocks > 0).map(undo_files_text);
    let rules = match hints {
        Some(hints) if !hints.with_undo => {
            "headers, proof of work, all rules of blocks, no rules of spends".to_owned()
        }
        _ => checked_text(*scripts),
    };
    let matched = format!("; each spend matched with its coin ({})", report.matching.name());
    let matched = if hints.is_none() { &matched } else { "" };
    let time = format!(
        "{seconds:.2} s, {}/s of blocks on {} threads, bound by {}\n\
         {} (read, check and match run concurrently: summed over threads)",
        HumanSize((counts.block_bytes as f64 / seconds.max(1e-9)) as u64),
        report.threads,
        report.bound_by.name(),
        stages_text(&report.stages)
    );
    // Core `CWallet::AttachChain`.
    let unloaded = prune.map_or("", |_| "; bitcoind does not load one that ends below the stored blocks");
    chainstate_rows(report.network, report.height, report.hash, &report.chainstate)
        .row("coins", format!("{} ({} BTC)", count(report.txouts), btc(report.total_amount.0)))
        .row("hash_serialized_3", set_hash_text(&report.hash_serialized_3, report.is_pinned.then_some(true)))
        .row("checked", format!("{rules}\n{}{matched}", counts_text(counts)))
        .and(hints.as_ref().map(hints_rows).unwrap_or_default())
        .each("resumed", resumed)
        .row("scripts", scripts_text(*scripts))
        .row("time", time)
        .row("peak memory", format!("{peak} of {} allowed", HumanMemory(report.memory_bytes)))
        .each("temporary files", temporary)
        .each("undo data", undo)
        .each("kept", report.kept.iter().map(|path| path.display()))
        .each("note", report.notes.iter().map(warning_text))
        .row("wallets", format!("not touched{unloaded}"))
        .row("next", next)
}

/// Begins a report on a chainstate that was written.
pub fn chainstate_rows(network: Network, height: Height, hash: BlockHash, chainstate: &Path) -> Rows {
    let head = format!("chainstate of {network} at height {height} is in {}", chainstate.display());
    Rows::default().line(head).row("block", hash)
}

/// Returns the numbers of what was checked.
fn counts_text(counts: &Counts) -> String {
    let Counts { blocks, transactions, inputs, .. } = *counts;
    format!("{} blocks, {} transactions, {} inputs", count(blocks), count(transactions), count(inputs))
}

/// Returns the hash of a UTXO set, and whether it is the one in Core's source.
pub fn set_hash_text(hash: &[u8; 32], pinned: Option<bool>) -> String {
    hex_reversed(hash) + pinned_text(pinned)
}

/// Returns whether a UTXO set has the hash in Core's source, to follow its hash.
pub const fn pinned_text(pinned: Option<bool>) -> &'static str {
    match pinned {
        Some(true) => " (matches the hash in Bitcoin Core's source)",
        Some(false) => " (DIFFERS from the hash in Bitcoin Core's source for this block)",
        None => "",
    }
}

/// Describes what was checked of a chain, without hints or with undo data.
pub fn checked_text(scripts: Option<ScriptsReport>) -> String {
    const RULES: &str = "headers, proof of work, all consensus rules";
    match scripts.map(|scripts| (scripts.checked, scripts.assumed_valid_to)) {
        Some((CheckedScripts::All, _)) => format!("everything: {RULES}, all scripts"),
        Some((CheckedScripts::Some, Some(height))) => {
            format!("{RULES}, scripts above height {}", count(height.0))
        }
        _ => format!("{RULES} except scripts"),
    }
}

/// Returns what a run with hints has proven, and what it took on trust from the assumed-valid block.
fn hints_rows(hints: &HintsReport) -> Rows {
    let HintsReport { height, aggregate, with_undo, .. } = hints;
    let summed = match with_undo {
        true => "over whole coins, undo data included; above, each spend is matched with its coin".to_owned(),
        false => "over outpoints, without undo data; above, each spend is matched with its coin\n\
                  and all spend rules are checked; the coins do not exceed all subsidies"
            .to_owned(),
    };
    let checked = format!(
        "up to height {height} each output is unspent or spent once: the sum ({aggregate}) is zero,\n\
         {summed}\n\
         the hints need no trust: with a wrong one, the sum would not be zero\n\
         sha256 {}",
        hex(&hints.sha256)
    );
    let trusted = (!with_undo).then(|| {
        format!(
            "up to height {height}, by --assumevalid: scripts, that coins are created before they are \
             spent,\n\
             coinbase maturity, relative lock times, fees, signature operations of spent scripts"
        )
    });
    Rows::default().row("hints", checked).each("trusted", trusted)
}

/// Describes which scripts of a chain were checked.
pub fn scripts_text(scripts: Option<ScriptsReport>) -> String {
    const BEFORE: &str = "checked by bitcoind before, by the datadir's block index";
    let Some(ScriptsReport { checked, assumed_valid_to, trusted, .. }) = scripts else {
        return "not checked: this build cannot run scripts".to_owned();
    };
    match (checked, assumed_valid_to) {
        (CheckedScripts::All, _) => "all checked".to_owned(),
        (_, Some(height)) if trusted == Some(ScriptTrust::BlockIndex) => {
            let above = if checked == CheckedScripts::Some { "; above: checked" } else { "" };
            format!("up to height {height}: {BEFORE}{above}")
        }
        (CheckedScripts::Some, Some(height)) => {
            format!("checked above height {height}, assumed valid up to it")
        }
        _ => "not checked: all blocks are assumed valid".to_owned(),
    }
}

pub fn verify_rows(report: &VerifyReport) -> Rows {
    let chainstate = match &report.against_chainstate {
        None => "not compared".to_owned(),
        Some(Comparison { differences: 0, .. }) => format!("has exactly these {} coins", report.txouts),
        Some(Comparison { differences, first }) => {
            let head = format!("differs in {differences} coins: rebuild it with peregrine reindex");
            first.iter().fold(head, |text, difference| format!("{text}\n{difference}"))
        }
    };
    let time = format!("{:.2} s on {} threads", report.elapsed.as_secs_f64(), report.threads);
    Rows::default()
        .line(format!("the blocks are valid up to height {}, block {}", report.height, report.hash))
        .row("checked", format!("{}\n{}", checked_text(report.scripts), counts_text(&report.counts)))
        .row("scripts", scripts_text(report.scripts))
        .row("chainstate", chainstate)
        .row("time", time)
        .each("note", report.notes.iter().map(warning_text))
}

/// Whether bitcoind would not find undo data that it reads when it starts.
pub fn lacks_last_undo(notes: &[Warning]) -> bool {
    notes.iter().any(|note| matches!(note, Warning::LacksLastUndo { .. }))
}

/// Returns what to do after a rebuild. `prune`: to how many MiB bitcoind is to prune the node, if it is
/// pruned.
pub fn next_text(chainstate: &Path, unconnected: u32, prune: Option<u64>) -> String {
    let owner = RealDisk.ownership(chainstate.parent().unwrap_or(chainstate)).map(|owner| owner.uid);
    let other = owner.ok().filter(|owner| *owner != RealDisk.user());
    let user = other.map_or(String::new(), |owner| format!(" as user {}", user_name(owner)));
    let blocks = match unconnected {
        0 => "it continues from this block".to_owned(),
        1 => "it connects the block above first".to_owned(),
        many => format!("it connects the {} blocks above first", count(many)),
    };
    let option = prune.map_or(String::new(), |mebibytes| format!(" with -prune={mebibytes}"));
    format!("start bitcoind{option}{user}: {blocks}")
}

/// Returns what to do after a rebuild into another datadir than that of the blocks. A new block index there
/// may refer to new undo files, which are whole.
fn next_of_output(chainstate: &Path) -> String {
    let has_index = chainstate.with_file_name("blocks").is_dir();
    let index = if has_index { " and what is in blocks beside it" } else { "" };
    format!(
        "move this chainstate{index} to the node's datadir, in the place of its own: bitcoind does not start \
         on this directory, which has no block files"
    )
}

pub fn stages_text(stages: &[StageTime]) -> String {
    let stages =
        stages.iter().map(|StageTime { stage, time }| format!("{stage} {:.2} s", time.as_secs_f64()));
    stages.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{
        BlockHash, Kernel, Sats, Stage,
        hints::AggregateKind,
        machine::Sha256Limit,
        recover::Recovery,
        reindex::{BoundBy, Matching, SpendAges, SpillVolume, Trusted, UndoReport},
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
            is_pinned: true,
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
            ages: SpendAges::default(),
            threads: 2,
            elapsed: Duration::from_secs(1),
            stages: vec![StageTime { stage: Stage::Plan, time: Duration::from_millis(20) }],
            bound_by: BoundBy::Read,
            sha256_kernel: Kernel::PORTABLE,
            sha256_limit: Sha256Limit {
                bytes: 3_000_000,
                bytes_per_second_and_core: 15e6,
                seconds: 0.1,
                share: 0.1,
            },
            peak_memory_bytes: Some(100 << 20),
            chainstate: "there".into(),
            kept: vec!["there.old".into()],
            undo: Some(UndoReport { blocks: 7, made: vec![FileNo(0)], mended: vec![FileNo(3), FileNo(4)] }),
            lost_blocks: 3,
            damaged_blocks: 1,
            unconnected: 2,
            notes: vec![Warning::Recovered { outcome: Recovery::Finished }],
        }
    }

    #[test]
    fn report_shows_resumed_blocks_and_resources_used() {
        let text = reindex_rows(&reindexed(7), None, false).to_string();
        assert!(text.contains("\nresumed            7 of the blocks were already done"), "{text}");
        assert!(text.contains("\npeak memory        100 MiB of 128 MiB allowed\n"), "{text}");
        assert!(text.contains("\ntemporary files    9.4 MB written, at most 5.2 MB at a time\n"), "{text}");
        let odd = Warning::Recovered { outcome: Recovery::Finished }.to_string();
        let end = format!(
            "\nundo data          made for 7 blocks: rev00000.dat made, 2 rev files mended\
             \nkept               there.old\nnote               {odd}\
             \nwallets            not touched\
             \nnext               start bitcoind: it connects the 2 blocks above first"
        );
        assert!(text.ends_with(&end), "{text}");
        let text = reindex_rows(&reindexed(0), None, false).to_string();
        assert!(!text.contains("resumed") && !text.contains("temporary files"), "{text}");
        let json: serde_json::Value = serde_json::to_value(reindexed(7)).unwrap();
        assert_eq!((&json["resumed_blocks"], &json["memory_budget_bytes"]), (&7.into(), &(128 << 20).into()));
        assert_eq!(json["temporary_bytes_written"], 9 << 20);
        assert_eq!(json["temporary_bytes_peak"], 5 << 20);
        assert_eq!((&json["lost_blocks"], &json["unconnected_blocks"]), (&3.into(), &2.into()));
        assert_eq!((&json["notes"][0]["text"], &json["kept"][0]), (&odd.into(), &"there.old".into()));
        let limit = &json["sha256_limit"];
        assert_eq!((&limit["bytes"], &limit["seconds"]), (&3_000_000.into(), &0.1.into()));
        assert_eq!(limit["share"], 0.1);
        assert_eq!((&json["blocks"], &json["peak_memory_bytes"]), (&13.into(), &(100 << 20).into()));
    }

    /// Without the option, bitcoind would want to download all blocks again.
    #[test]
    fn the_line_about_what_to_do_next_has_the_option_of_a_pruned_node() {
        let text = reindex_rows(&reindexed(0), Some(600), false).to_string();
        assert!(text.contains("\nnext               start bitcoind with -prune=600: it connects"), "{text}");
        assert!(
            text.contains("\nwallets            not touched; bitcoind does not load one that ends below"),
            "{text}"
        );
    }

    fn with_hints(with_undo: bool) -> ReindexReport {
        let (height, aggregate) = (Height(9), AggregateKind::SipHash128);
        let trusted = if with_undo { &[] } else { Trusted::ALL };
        let hints = HintsReport { height, aggregate, with_undo, sha256: [0xab; 32], trusted };
        ReindexReport { hints: Some(hints), matching: Matching::Swiftsync, ..reindexed(0) }
    }

    #[test]
    fn values_are_aligned_in_one_column() {
        let text = [reindexed(7), with_hints(false)]
            .map(|report| reindex_rows(&report, None, false).to_string())
            .join("\n");
        let names = text.lines().skip(1).filter(|line| !line.starts_with("chainstate of"));
        for line in names {
            let (name, value) = line.split_at(19);
            assert!(name.ends_with(' ') && !value.starts_with(' '), "{line:?}");
        }
    }
}
