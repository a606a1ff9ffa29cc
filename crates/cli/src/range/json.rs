//! The reports of the commands about ranges.

use crate::{
    json::{self, Report},
    notes::NoteJson,
    report::{json::ScriptsJson, notes_text, pinned_text, scripts_text},
    units::{btc, count, counted},
};
use engine::{
    DeltaReport, Error, FileKind, HumanSize, RangeCheck, RangePlan, RangesReport, hex, hex_reversed,
};
use peregrine::exit::Exit;
use serde::Serialize;
use std::path::Path;

/// The report of `range files`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FilesJson {
    range: u32,
    from: u32,
    to: u32,
    files: Vec<FileJson>,
}

/// The bytes of a file that a range needs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
        let file = |file: engine::RangeFile| {
            let kind = if file.kind == FileKind::Blk { "blk" } else { "rev" };
            let name = format!("{kind}{:05}.dat", file.file.0);
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
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeltaJson {
    /// The directory.
    output: String,
    /// Number of ranges.
    ranges: u32,
    /// Number of shards.
    shards: u32,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    outputs_created: u64,
    block_bytes: u64,
    /// Number of inputs whose scripts were run.
    script_inputs: u64,
    /// Coins that the ranges create and do not spend.
    coins: u64,
    /// Spends of coins that the ranges do not create.
    spends: u64,
    /// Bytes of the files.
    bytes: u64,
    /// Identifies what the ranges amount to: it is the same on each machine.
    content_sha256: String,
    /// Whether the directory was there already.
    was_there: bool,
}

impl DeltaJson {
    pub fn new(output: &Path, delta: &DeltaReport) -> Self {
        Self {
            output: output.display().to_string(),
            ranges: delta.ranges,
            shards: delta.shards,
            blocks: delta.counts.blocks,
            transactions: delta.counts.transactions,
            inputs: delta.counts.inputs,
            outputs_created: delta.counts.outputs,
            block_bytes: delta.counts.block_bytes,
            script_inputs: delta.counts.scripts,
            coins: delta.coins,
            spends: delta.spends,
            bytes: delta.bytes,
            content_sha256: hex(&delta.content),
            was_there: delta.was_there,
        }
    }

    /// What is printed, and the exit code.
    pub fn reply(self, as_json: bool, of: fn(Self) -> Report) -> (String, Exit) {
        if as_json { json::report(of(self), Exit::Done) } else { (self.text(), Exit::Done) }
    }

    fn text(&self) -> String {
        format!(
            "delta              {} ({}{})\n\
             made of            {} in {}\n\
             checked            {}, {} with {}; {} run\n\
             left               {}, and {}\n\
             content            {}",
            self.output,
            HumanSize(self.bytes),
            if self.was_there { ", was there already" } else { "" },
            counted(self.ranges, "range"),
            counted(self.shards, "shard"),
            counted(self.blocks, "block"),
            counted(self.transactions, "transaction"),
            counted(self.inputs, "input"),
            counted(self.script_inputs, "script"),
            counted(self.coins, "coin"),
            counted(self.spends, "spend"),
            self.content_sha256,
        )
    }
}

/// The report of `range finish`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RangesJson {
    chain: &'static str,
    height: u32,
    block_hash: String,
    coins: u64,
    total_amount_sat: i64,
    hash_serialized_3: String,
    muhash: String,
    matches_core_assumeutxo_hash: Option<bool>,
    scripts: ScriptsJson,
    /// Number of inputs whose scripts were run.
    script_inputs: u64,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    outputs_created: u64,
    /// Who has checked what.
    ranges: Vec<RangeJson>,
    chainstate: String,
    seconds: f64,
    notes: Vec<NoteJson>,
}

/// A range, and who has checked it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RangeJson {
    number: u32,
    from: u32,
    to: u32,
    checker: String,
    program: String,
    seconds: u32,
    /// Whether it was checked again here, with the same result.
    rechecked: bool,
}

impl RangesJson {
    pub fn new(report: &RangesReport) -> Self {
        let range = |range: &RangeCheck| RangeJson {
            number: range.number,
            from: range.heights.0,
            to: range.heights.1,
            checker: range.checker.clone(),
            program: range.program.clone(),
            seconds: range.seconds,
            rechecked: range.is_rechecked,
        };
        Self {
            chain: report.network.name(),
            height: report.height.0,
            block_hash: report.hash.to_string(),
            coins: report.txouts,
            total_amount_sat: report.total_amount.0,
            hash_serialized_3: hex_reversed(&report.hash_serialized_3),
            muhash: hex_reversed(&report.muhash),
            matches_core_assumeutxo_hash: report.is_pinned.then_some(true),
            scripts: ScriptsJson::new(report.scripts, report.height),
            script_inputs: report.counts.scripts,
            blocks: report.counts.blocks,
            transactions: report.counts.transactions,
            inputs: report.counts.inputs,
            outputs_created: report.counts.outputs,
            ranges: report.ranges.iter().map(range).collect(),
            chainstate: report.chainstate.display().to_string(),
            seconds: report.elapsed.as_secs_f64(),
            notes: NoteJson::list(&report.notes),
        }
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
        scripts_text(report.scripts, report.height),
        notes_text(&report.notes)
    );
    for (checker, ranges) in by_checker(&report.ranges) {
        let blocks: u32 = ranges.iter().map(|range| range.heights.1 - range.heights.0 + 1).sum();
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
