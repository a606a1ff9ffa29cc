//! The reports of the commands about ranges.

use crate::{
    prelude::*,
    report::{chainstate_rows, scripts_text, set_hash_text},
};
use engine::hex;
use ranges::{DeltaReport, RangeCheck, RangeFile, RangePlan, RangesReport};
use std::collections::BTreeMap;

/// The report of `range files`.
#[derive(Serialize, JsonSchema)]
pub struct FilesJson {
    range: u32,
    from: u32,
    to: u32,
    files: Vec<RangeFile>,
}

impl FilesJson {
    pub fn new(plan: &RangePlan, range: u32) -> Result<Self, Error> {
        let heights = plan.heights(range)?;
        Ok(Self { range, from: *heights.start(), to: *heights.end(), files: plan.files(range)? })
    }

    pub fn rows(&self) -> Rows {
        let Self { range, from, to, files } = self;
        let head = format!("range {range}: blocks {from} to {to}, and xor.dat if there is one");
        files.iter().fold(Rows::default().line(head), |rows, RangeFile { file, first_byte, end_byte }| {
            let end = end_byte.map_or("its end".to_owned(), |end| format!("byte {end}"));
            rows.line(format!("{file}  from byte {first_byte} to {end}"))
        })
    }
}

/// The report of `range check` and `range merge`.
#[derive(Serialize, JsonSchema)]
pub struct DeltaJson {
    /// The directory.
    output: String,
    #[serde(flatten)]
    delta: DeltaReport,
}

impl DeltaJson {
    pub fn new(output: &Path, delta: DeltaReport) -> Self {
        Self { output: output.display().to_string(), delta }
    }

    pub fn rows(&self) -> Rows {
        let Self { output, delta } = self;
        let there = if delta.was_there { ", was there already" } else { "" };
        let checked = format!(
            "{}, {} with {}; {} run",
            counted(delta.counts.blocks, "block"),
            counted(delta.counts.transactions, "transaction"),
            counted(delta.counts.inputs, "input"),
            counted(delta.counts.scripts, "script")
        );
        let (ranges, shards) = (counted(delta.ranges, "range"), counted(delta.shards, "shard"));
        let (coins, spends) = (counted(delta.coins, "coin"), counted(delta.spends, "spend"));
        Rows::default()
            .row("delta", format!("{output} ({}{there})", HumanSize(delta.bytes)))
            .row("made of", format!("{ranges} in {shards}"))
            .row("checked", checked)
            .row("left", format!("{coins}, and {spends}"))
            .row("content", hex(&delta.content))
    }
}

/// Returns the report of `range finish`.
pub fn ranges_rows(report: &RangesReport) -> Rows {
    let mut by_checker: BTreeMap<&str, Vec<&RangeCheck>> = BTreeMap::new();
    report.ranges.iter().for_each(|range| by_checker.entry(&range.checker).or_default().push(range));
    let checked_by = by_checker.into_iter().map(|(checker, ranges)| {
        let blocks: u32 = ranges.iter().map(|range| range.to - range.from + 1).sum();
        let seconds: u32 = ranges.iter().map(|range| range.seconds).sum();
        let again = match ranges.iter().filter(|range| range.is_rechecked).count() {
            0 => String::new(),
            rechecked => format!(", {rechecked} of them checked again here"),
        };
        let (ranges, blocks) = (counted(ranges.len() as u32, "range"), counted(blocks, "block"));
        format!("{checker}: {ranges} with {blocks}, in {seconds} s{again}")
    });
    chainstate_rows(report.network, report.height, report.hash, &report.chainstate)
        .row("coins", format!("{} ({} BTC)", count(report.txouts), btc(report.total_amount.0)))
        .row("hash_serialized_3", set_hash_text(&report.hash_serialized_3, report.is_pinned.then_some(true)))
        .row("muhash", hex_reversed(&report.muhash))
        .row("scripts", scripts_text(report.scripts))
        .each("note", report.notes.iter().map(warning_text))
        .each("checked by", checked_by)
}
