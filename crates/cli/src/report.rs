//! Reports as text.

pub mod json;

use crate::units::{btc, count};
use engine::{
    Comparison, Disk as _, FileNo, Height, HintsReport, HumanMemory, HumanSize, Pinned, RealDisk,
    ReindexReport, ScriptsReport, SpillVolume, Stage, VerifyReport, Warning, hex, hex_reversed,
};
use peregrine::{output::user_name, remedy::warning_text};
use std::{path::Path, time::Duration};

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
    let stages = stages_text(&report.stages);
    let peak = report.peak_memory_bytes.map_or("unknown".to_owned(), |bytes| HumanMemory(bytes).to_string());
    let resumed = match report.resumed {
        0 => String::new(),
        blocks => {
            let blocks = count(blocks);
            format!("resumed            {blocks} of the blocks were already done by an interrupted run\n")
        }
    };
    let temporary = match report.spilled {
        SpillVolume { runs: 0, .. } => String::new(),
        SpillVolume { bytes_written, peak_bytes, .. } => format!(
            "\ntemporary files    {} written, at most {} at a time",
            HumanSize(bytes_written),
            HumanSize(peak_bytes)
        ),
    };
    let kept: String =
        report.kept.iter().map(|path| format!("\nkept               {}", path.display())).collect();
    let (undo, notes) = (undo_text(report), notes_text(&report.notes));
    let all_rules = || checked_text(report.scripts, report.height);
    let (rules, proof) = match &report.hints {
        None => (all_rules(), format!("; each spend matched with its coin ({})", matching_name(report))),
        Some(hints) if hints.with_undo => (all_rules(), hints_text(hints)),
        Some(hints) => {
            ("headers, proof of work, all rules of blocks, no rules of spends".to_owned(), hints_text(hints))
        }
    };
    format!(
        "chainstate of {} at height {} is in {}\n\
         block              {}\n\
         coins              {} ({} BTC)\n\
         hash_serialized_3  {}{}\n\
         checked            {}\n\
         \x20                  {} blocks, {} transactions, {} inputs{}\n\
         {resumed}scripts            {}\n\
         time               {seconds:.2} s, {}/s of blocks on {} threads, bound by {}\n\
         \x20                  {} (read, check and match run concurrently: summed over threads)\n\
         peak memory        {peak} of {} allowed{temporary}{undo}{kept}{notes}{}",
        report.network.name(),
        report.height,
        report.chainstate.display(),
        report.hash,
        count(report.txouts),
        btc(report.total_amount.0),
        hex_reversed(&report.hash_serialized_3),
        pinned_text(report.is_pinned.then_some(true)),
        rules,
        count(counts.blocks),
        count(counts.transactions),
        count(counts.inputs),
        proof,
        scripts_text(report.scripts, report.height),
        HumanSize((counts.block_bytes as f64 / seconds.max(1e-9)) as u64),
        report.threads,
        report.bound_by.name(),
        stages,
        HumanMemory(report.memory_bytes),
        next_text(&report.chainstate, report.unconnected),
    )
}

/// Returns whether a UTXO set has the hash in Core's source, to follow its hash.
pub const fn pinned_text(pinned: Option<bool>) -> &'static str {
    match pinned {
        Some(true) => " (matches the hash in Bitcoin Core's source)",
        Some(false) => " (DIFFERS from the hash in Bitcoin Core's source for this block)",
        None => "",
    }
}

/// Returns the name of the method that matched spends with coins.
fn matching_name(report: &ReindexReport) -> &'static str {
    if report.hints.is_some() { "swiftsync" } else { report.matching.name() }
}

/// Describes what was checked of a chain up to `tip`, without hints or with undo data.
pub fn checked_text(scripts: Option<ScriptsReport>, tip: Height) -> String {
    const RULES: &str = "headers, proof of work, all consensus rules";
    match scripts {
        Some(ScriptsReport { assumed_valid_to: None, .. }) => format!("everything: {RULES}, all scripts"),
        Some(ScriptsReport { assumed_valid_to: Some(height), .. }) if height < tip => {
            format!("{RULES}, scripts above height {}", count(height.0))
        }
        _ => format!("{RULES} except scripts"),
    }
}

/// Returns what a run with hints has proven, and what it took on trust from the assumed-valid block (`None`
/// with undo data), each as lines of text.
fn hints_summary(hints: &HintsReport) -> (Vec<String>, Option<Vec<String>>) {
    let HintsReport { height, aggregate, with_undo, .. } = hints;
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
    let pinned = match hints.pinned {
        Pinned::Yes => "pinned",
        Pinned::No => "not pinned",
        Pinned::NoneForNetwork => "none is pinned",
    };
    text += &format!("{indent}the hints need no trust: with a wrong one, the sum would not be zero");
    text += &format!("{indent}sha256 {} ({pinned})", hex(&hints.sha256));
    if let Some(trusted) = trusted {
        text += &format!("\ntrusted            {}", trusted.join(indent));
    }
    text
}

/// Describes which scripts of a chain up to `tip` were checked.
pub fn scripts_text(scripts: Option<ScriptsReport>, tip: Height) -> String {
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

fn first_differences(report: &VerifyReport) -> Vec<String> {
    let first = report.against_chainstate.iter().flat_map(|comparison| &comparison.first);
    first.map(ToString::to_string).collect()
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
         checked            {}\n\
         \x20                  {} blocks, {} transactions, {} inputs\n\
         scripts            {}\n\
         chainstate         {chainstate}\n\
         time               {:.2} s on {} threads{}",
        report.height,
        report.hash,
        checked_text(report.scripts, report.height),
        count(counts.blocks),
        count(counts.transactions),
        count(counts.inputs),
        scripts_text(report.scripts, report.height),
        report.elapsed.as_secs_f64(),
        report.threads,
        notes_text(&report.notes),
    )
}

/// Returns the line about what to do after a rebuild, with a newline before it.
pub fn next_text(chainstate: &Path, unconnected: u32) -> String {
    let home = chainstate.parent().unwrap_or(chainstate);
    let owner = RealDisk.ownership(home).map(|owner| owner.uid);
    let other = owner.ok().filter(|owner| *owner != RealDisk.user());
    let user = other.map_or(String::new(), |owner| format!(" as user {}", user_name(owner)));
    let blocks = match unconnected {
        0 => "it continues from this block".to_owned(),
        1 => "it connects the block above first".to_owned(),
        many => format!("it connects the {} blocks above first", count(many)),
    };
    format!("\nnext               start bitcoind{user}: {blocks}")
}

/// Returns the time of each stage.
pub fn stages_text(stages: &[(Stage, Duration)]) -> String {
    let stages = stages.iter().map(|(stage, time)| format!("{stage} {:.2} s", time.as_secs_f64()));
    stages.collect::<Vec<_>>().join(", ")
}

/// Returns the report's lines with notes, each with a newline before it.
pub fn notes_text(notes: &[Warning]) -> String {
    notes.iter().map(|note| format!("\nnote               {}", warning_text(note))).collect()
}

#[cfg(test)]
mod tests {
    use super::{json::ReindexJson, *};
    use engine::{
        AggregateKind, BlockHash, BoundBy, Counts, Kernel, Matching, Network, Recovery, Sats, Sha256Limit,
        SpendAges, Stage, UndoReport,
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
            stages: vec![(Stage::Plan, Duration::from_millis(20))],
            bound_by: BoundBy::Read,
            sha256_kernel: Kernel::PORTABLE,
            sha256_limit: Sha256Limit { bytes: 3_000_000, bytes_per_second: 15e6 },
            peak_memory_bytes: Some(100 << 20),
            chainstate: "there".into(),
            kept: vec!["there.old".into()],
            undo: Some(UndoReport { blocks: 7, made: vec![FileNo(0)], mended: vec![FileNo(3), FileNo(4)] }),
            lost_blocks: 3,
            damaged_blocks: 1,
            unconnected: 2,
            notes: vec![Warning::Recovered(Recovery::Finished)],
        }
    }

    #[test]
    fn report_shows_resumed_blocks_and_resources_used() {
        let text = reindex_text(&reindexed(7));
        assert!(text.contains("\nresumed            7 of the blocks were already done"), "{text}");
        assert!(text.contains("\npeak memory        100 MiB of 128 MiB allowed\n"), "{text}");
        assert!(text.contains("\ntemporary files    9.4 MB written, at most 5.2 MB at a time\n"), "{text}");
        let odd = Warning::Recovered(Recovery::Finished).to_string();
        assert!(
            text.ends_with(&format!(
                "\nundo data          made for 7 blocks: rev00000.dat made, 2 rev files mended\
                 \nkept               there.old\nnote               {odd}\
                 \nnext               start bitcoind: it connects the 2 blocks above first"
            )),
            "{text}"
        );
        let text = reindex_text(&reindexed(0));
        assert!(!text.contains("resumed") && !text.contains("temporary files"), "{text}");
        let json: serde_json::Value = serde_json::to_value(ReindexJson::new(&reindexed(7))).unwrap();
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

    fn with_hints(with_undo: bool) -> ReindexReport {
        let (height, aggregate) = (Height(9), AggregateKind::SipHash128);
        let (sha256, pinned) = ([0xab; 32], Pinned::NoneForNetwork);
        let hints = HintsReport { height, aggregate, with_undo, sha256, pinned };
        ReindexReport { hints: Some(hints), ..reindexed(0) }
    }

    #[test]
    fn report_shows_what_was_trusted_because_of_assumevalid() {
        let text = reindex_text(&with_hints(true));
        assert!(text.contains("all consensus rules except scripts"), "{text}");
        assert!(text.contains("the sum (siphash128) is zero") && !text.contains("trusted"), "{text}");
        let text = reindex_text(&with_hints(false));
        assert!(text.contains("all rules of blocks, no rules of spends"), "{text}");
        assert!(text.contains("\ntrusted            up to height 9, by --assumevalid: scripts"), "{text}");
        let json = |report| -> serde_json::Value { serde_json::to_value(ReindexJson::new(&report)).unwrap() };
        assert!(json(reindexed(0))["hints"].is_null());
        assert_eq!(json(with_hints(true))["hints"]["trusted"], serde_json::json!([]));
        let hints = &json(with_hints(false))["hints"];
        assert_eq!((&hints["height"], &hints["with_undo"]), (&9.into(), &false.into()));
        assert_eq!(hints["trusted"][2], "coinbase_maturity");
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
