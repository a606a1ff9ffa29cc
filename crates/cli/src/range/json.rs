//! The reports of the commands about ranges.

use crate::{
    report::{notes_text, pinned_text, scripts_text},
    units::{btc, count, counted},
};
use engine::{Error, HumanSize, hex, hex_reversed};
use ranges::{DeltaReport, RangeCheck, RangePlan, RangesReport};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// The report of `range files`.
#[derive(Serialize, JsonSchema)]
pub struct FilesJson {
    range: u32,
    from: u32,
    to: u32,
    files: Vec<FileJson>,
}

/// The bytes of a file that a range needs.
#[derive(Serialize, JsonSchema)]
struct FileJson {
    /// Its name in the directory `blocks`.
    file: String,
    /// Position of the first byte.
    first_byte: u64,
    /// Position after the last byte; the end of the file if there is none.
    end_byte: Option<u64>,
}

impl FilesJson {
    pub fn new(plan: &RangePlan, range: u32) -> Result<Self, Error> {
        let heights = plan.heights(range)?;
        let file = |file: ranges::RangeFile| {
            let name = file.kind.file_name(file.file);
            FileJson { file: name, first_byte: file.from, end_byte: file.to }
        };
        let files = plan.files(range)?.into_iter().map(file).collect();
        Ok(Self { range, from: *heights.start(), to: *heights.end(), files })
    }

    pub fn text(&self) -> String {
        let line = |file: &FileJson| {
            let end = file.end_byte.map_or("its end".to_owned(), |end| format!("byte {end}"));
            format!("{}  from byte {} to {end}", file.file, file.first_byte)
        };
        let files: Vec<String> = self.files.iter().map(line).collect();
        let Self { range, from, to, .. } = self;
        format!("range {range}: blocks {from} to {to}, and xor.dat if there is one\n{}", files.join("\n"))
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

    pub fn text(&self) -> String {
        let Self { output, delta } = self;
        format!(
            "delta              {} ({}{})\n\
             made of            {} in {}\n\
             checked            {}, {} with {}; {} run\n\
             left               {}, and {}\n\
             content            {}",
            output,
            HumanSize(delta.bytes),
            if delta.was_there { ", was there already" } else { "" },
            counted(delta.ranges, "range"),
            counted(delta.shards, "shard"),
            counted(delta.counts.blocks, "block"),
            counted(delta.counts.transactions, "transaction"),
            counted(delta.counts.inputs, "input"),
            counted(delta.counts.scripts, "script"),
            counted(delta.coins, "coin"),
            counted(delta.spends, "spend"),
            hex(&delta.content),
        )
    }
}

/// Returns the report of `range finish` as text.
pub fn ranges_text(report: &RangesReport) -> String {
    let mut text = format!(
        "chainstate of {} at height {} is in {}\n\
         block              {}\n\
         coins              {} ({} BTC)\n\
         hash_serialized_3  {}{}\n\
         muhash             {}\n\
         scripts            {}{}",
        report.network.name(),
        report.height,
        report.chainstate.display(),
        report.hash,
        count(report.txouts),
        btc(report.total_amount.0),
        hex_reversed(&report.hash_serialized_3),
        pinned_text(report.is_pinned.then_some(true)),
        hex_reversed(&report.muhash),
        scripts_text(report.scripts),
        notes_text(&report.notes)
    );
    for (checker, ranges) in by_checker(&report.ranges) {
        let blocks: u32 = ranges.iter().map(|range| range.to - range.from + 1).sum();
        let seconds: u32 = ranges.iter().map(|range| range.seconds).sum();
        let rechecked = ranges.iter().filter(|range| range.is_rechecked).count();
        let again =
            if rechecked > 0 { format!(", {rechecked} of them checked again here") } else { String::new() };
        text += &format!(
            "\nchecked by         {checker}: {} with {}, in {seconds} s{again}",
            counted(ranges.len() as u32, "range"),
            counted(blocks, "block")
        );
    }
    text
}

/// The ranges of each checker, in the order of their names.
fn by_checker(ranges: &[RangeCheck]) -> Vec<(&str, Vec<&RangeCheck>)> {
    let mut checkers: Vec<&str> = ranges.iter().map(|range| range.checker.as_str()).collect();
    checkers.sort_unstable();
    checkers.dedup();
    let of = |checker| ranges.iter().filter(|range| range.checker == checker).collect();
    checkers.into_iter().map(|checker| (checker, of(checker))).collect()
}
