//! The report of a run, and the page docs/documents.md: every number of the documents beside those of
//! recorded runs.

use super::{
    ProposalsArgs,
    chain::{Chain, Extent},
    list::{Line, Measure, Proposal, Statement, all, unmeasured},
    rows::{COLUMNS, ProposalSummary, summary},
};
use crate::{
    circumstances::Circumstances,
    place::{environment, failed},
    runs::{Run, few_runs},
};
use clap::Args as ClapArgs;
use cli::{exit::Exit, output::Done};
use engine::Error;
use serde::Serialize;
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The name of the results of `bench_bitcoin` in the folder of a recorded run.
pub const BENCH_BITCOIN: &str = "bench_bitcoin.json";
/// Bytes of the block that `bench_bitcoin` reads and writes, that of height 413,567.
const BENCH_BLOCK: f64 = 999_887.0;

const OPENING: &str = "# The documents' numbers beside ours

| proposal | document | here | |
| --- | --- | --- | --- |
";

const INTRODUCTION: &str = "
A factor is how many times as fast, or as small: the median of the ratios within each round, with its 95 %
interval. *Reproduced* means the same direction; *not resolved*, that equal variants differ as much
(*noise*; the controls) or that the interval contains 1; *contradicts*, the other direction, or a size whose
factor differs by more than a quarter; *other mechanism*, that Peregrine gains in another way.

- **Documents:** [#35215](https://github.com/bitcoin/bitcoin/pull/35215), SipHash-1-3 with jumbo blocks;
  [#32043](https://github.com/bitcoin/bitcoin/pull/32043), which tracks proposals for initial block download
  (2025); [#31144](https://github.com/bitcoin/bitcoin/pull/31144), obfuscation; the thread on
  [SwiftSync](https://delvingbitcoin.org/t/swiftsync-speeding-up-ibd-with-pre-generated-hints-poc/1562) (April
  2025). Their i9 is an i9-9900K with 64 GB and NVMe RAID, dbcache 5000 unless stated.
- **Here:** lines without a source. Scripts are not run, so that all steps are a larger part; a mainnet run
  and a single step are not set side by side.
- **Bitcoin Core** beside them (master of 2026-08-18) has #31551, #31144, #31645, #30442, #32279, jumbo blocks
  and prefetching, but not #31682 or, it seems, #31868. On regtest, `bitcoind` looks up each created output
  (BIP 30), which mainnet skips from block 227,931 on; without that, it was [1.14 times as
  fast](../lab/runs/2026-11-27-2core-mixed/README.md).

`peregrine-bench` [prints this page](benchmarks.md#what-each-proposal-gains); on another machine, [one command
measures all of it](mainnet.md#measuring-without-a-node).
";

#[derive(ClapArgs, Debug)]
pub struct DocumentsArgs {
    /// Folders of recorded runs; the verdicts are those of the first [default: none, all rows are to be
    /// recorded]
    pub runs: Vec<PathBuf>,
}

/// What was measured, where and when.
#[derive(Serialize)]
pub struct About {
    #[serde(flatten)]
    pub circumstances: Circumstances,
    /// What the blocks are: a datadir, or how they were generated.
    pub blocks: String,
    pub chain: &'static str,
    pub height: u32,
    pub block_hash: String,
    pub block_bytes: usize,
    pub runs: u32,
    pub args: String,
}

impl About {
    pub fn new(args: &ProposalsArgs, chain: &Chain, extent: &Extent, circumstances: Circumstances) -> Self {
        let generated = || format!("generated, {} bytes, seed {}", args.size, args.seed);
        Self {
            circumstances: circumstances.end(),
            blocks: args.datadir.as_ref().map_or_else(generated, |_| "a datadir".to_owned()),
            chain: chain.network.name(),
            height: extent.height,
            block_hash: extent.hash.to_string(),
            block_bytes: extent.bytes,
            runs: args.bench.runs.get(),
            args: args.bench.args.clone(),
        }
    }

    /// Returns the description as lines of a name and a fact.
    fn text(&self) -> String {
        let Self { blocks, chain, height, block_bytes, runs, .. } = self;
        let mut text = self.circumstances.text();
        let _ = writeln!(text, "blocks   {blocks} ({chain}) to height {height}, {block_bytes} bytes");
        let _ =
            writeln!(text, "runs     {runs} of each variant, in turns, every second round in reverse order");
        text
    }
}

/// The result of the benchmark.
#[derive(Serialize)]
pub struct Report {
    about: About,
    proposals: Vec<ProposalSummary>,
    #[serde(flatten)]
    recorded: Recorded,
}

impl Report {
    pub fn new(about: About, proposals: &[&'static Proposal], core: Vec<CoreBench>, rows: Vec<Run>) -> Self {
        let proposals = proposals.iter().filter_map(|proposal| summary(proposal, &rows)).collect();
        Self { about, proposals, recorded: Recorded { core, rows, ..Recorded::default() } }
    }

    /// Returns the report as text: first the lines that [`Recorded::read`] takes.
    pub fn text(&self) -> String {
        let mut text = self.about.text();
        let has = |proposal: &&Proposal| self.proposals.iter().any(|it| it.name == proposal.name);
        add_sections(&mut text, has, std::slice::from_ref(&self.recorded));
        text += few_runs(self.about.runs);
        text.trim_end().to_owned()
    }
}

/// One of the benchmarks of `bench_bitcoin`.
#[derive(Serialize, Debug)]
pub struct CoreBench {
    name: String,
    /// Median of the time for one unit.
    seconds: f64,
    unit: String,
}

impl CoreBench {
    /// Reads what `bench_bitcoin -output-json` has written.
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        let text = fs::read_to_string(path).map_err(|error| environment("read", path, error))?;
        Self::parse(&text).ok_or_else(|| {
            failed("this is not what bench_bitcoin -output-json=FILE writes").in_file(path, None)
        })
    }

    fn parse(text: &str) -> Option<Vec<Self>> {
        let report: Value = serde_json::from_str(text).ok()?;
        let bench = |result: &Value| {
            let seconds = result["median(elapsed)"].as_f64()? / result["batch"].as_f64()?;
            let text = |name: &str| result[name].as_str().map(str::to_owned);
            Some(Self { name: text("name")?, seconds, unit: text("unit")? })
        };
        report["results"].as_array()?.iter().map(bench).collect()
    }

    /// Returns its result in a unit. What is not for each byte is for each block.
    fn value(&self, unit: &str) -> f64 {
        let bytes = if self.unit == "byte" { 1.0 } else { BENCH_BLOCK };
        let value = match unit {
            "ns" => self.seconds * 1e9,
            "ms" => self.seconds * 1e3,
            _ => bytes / 1_048_576.0 / self.seconds,
        };
        (value * 100.0).round() / 100.0
    }
}

/// What is recorded of a run.
#[derive(Serialize, Default)]
struct Recorded {
    /// The name of its folder.
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    facts: Vec<String>,
    core: Vec<CoreBench>,
    rows: Vec<Run>,
}

impl Recorded {
    fn read(dir: &Path) -> Result<Self, Error> {
        let read = |name| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|error| environment("read", &path, error))
        };
        let parse = |(number, line)| {
            let flaw = format!("line {number} is not one that peregrine-bench proposals writes");
            Run::parse(line, COLUMNS).ok_or_else(|| failed(flaw).in_file(dir.join("raw.csv"), None))
        };
        let rows = (2..).zip(read("raw.csv")?.lines().skip(1)).map(parse).collect::<Result<_, _>>()?;
        let facts = read("summary")?.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let core = Some(dir.join(BENCH_BITCOIN)).filter(|path| path.exists());
        let core = core.as_deref().map_or(Ok(Vec::new()), CoreBench::read)?;
        Ok(Self { name, facts, rows, core })
    }

    /// Returns what Bitcoin Core's own benchmarks of a proposal measured, if they are recorded.
    fn core_bench(&self, [what, before, after, unit]: &[String; 4]) -> Option<Statement> {
        let value = |name: &str| Some(self.core.iter().find(|bench| bench.name == name)?.value(unit));
        let after = value(after)?;
        let before = if before.is_empty() { after } else { value(before)? };
        let [unit, what] = [unit, what].map(String::clone);
        Some(Statement { what, before, after, unit, machine: String::new(), source: String::new() })
    }
}

/// Returns the page.
pub fn run(args: &DocumentsArgs) -> Done {
    let recorded = args.runs.iter().map(|dir| Recorded::read(dir)).collect::<Result<Vec<_>, _>>()?;
    let mut page = OPENING.to_owned();
    all().iter().for_each(|proposal| add_line(&mut page, proposal, recorded.first()));
    page += INTRODUCTION;
    for run in &recorded {
        let _ = writeln!(
            page,
            "\n[This run](../lab/runs/{}/summary) also has the rows without a document's number:\n",
            run.name
        );
        for fact in &run.facts {
            let (name, fact) = fact.split_once(' ').unwrap_or((fact, ""));
            let _ = writeln!(page, "- {name}: {}", fact.trim());
        }
    }
    if recorded.is_empty() {
        page += "\n**No run is recorded yet**: all rows below are to be recorded.\n";
    }
    // Those that no document has a number for are in the summary of the run.
    let has_number = |proposal: &&Proposal| !proposal.statements.is_empty() || proposal.is_control();
    add_sections(&mut page, has_number, &recorded);
    page += "\n## Numbers without a row\n\n";
    for number in unmeasured() {
        let _ = writeln!(page, "- *{}* ({}): {}", number.said, number.source, number.why);
    }
    Ok((page.trim_end().to_owned(), Exit::Done))
}

/// Appends the line of a proposal in the first table, if it has one.
fn add_line(page: &mut String, proposal: &'static Proposal, run: Option<&Recorded>) {
    let Some(Line { proposal: what, statement, variant }) = &proposal.line else { return };
    let document = &proposal.statements[*statement];
    let summary = run.and_then(|run| summary(proposal, &run.rows));
    let name = &proposal.variants[*variant].name;
    let measured = summary.iter().flat_map(|summary| &summary.variants).find(|it| it.name == *name);
    let measured = measured.and_then(|it| {
        let ratio = it.ratio?;
        Some((ratio, it.noise.is_some_and(|(low, high)| (low..=high).contains(&ratio.ratio))))
    });
    let (here, verdict) = measured.map_or(("to be recorded".to_owned(), ""), |(ratio, is_noise)| {
        (factor(proposal.measure, ratio), proposal.verdict(document.ratio(), ratio, is_noise))
    });
    let anchor = proposal.section().0.to_lowercase();
    let anchor: String = anchor.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect();
    let anchor = anchor.replace(' ', "-");
    let _ = writeln!(page, "| [{what}](#{anchor}) | {} | {here} | *{verdict}* |", document.gain());
}

fn factor(measure: Measure, ratio: crate::statistics::Ratio) -> String {
    match measure {
        Measure::Size => format!("{:.2}", ratio.ratio),
        _ => ratio.to_string(),
    }
}

/// Appends the sections of these proposals: a heading, in what the numbers differ, and one table.
fn add_sections(page: &mut String, is_wanted: impl Fn(&&Proposal) -> bool, recorded: &[Recorded]) {
    let proposals: Vec<&'static Proposal> = all().iter().filter(is_wanted).collect();
    for section in proposals.chunk_by(|before, after| before.section().0 == after.section().0) {
        let _ = writeln!(page, "\n## {}", section[0].section().0);
        let mut differs: Vec<&str> = section.iter().map(|proposal| proposal.differs.as_str()).collect();
        differs.dedup();
        let _ = writeln!(page, "\n{}\n", differs.join(" "));
        let mut last = None;
        for (at, proposal) in section.iter().enumerate() {
            let measure = match proposal.measure {
                Measure::Processor => "processor time".to_owned(),
                Measure::Wall => "clock time".to_owned(),
                Measure::Size => format!("size in {}", proposal.unit),
            };
            let subject = proposal.section().1.map_or(String::new(), |subject| format!(": {subject}"));
            // The first of the section says it, and each that differs.
            let label = match last.replace(measure.clone()) {
                Some(last) if last == measure => format!("`{}`{subject}", proposal.name),
                _ => format!("`{}`, {measure}{subject}", proposal.name),
            };
            let _ = match at {
                0 => writeln!(page, "| {label} | | factor |\n| --- | --- | --- |"),
                _ => writeln!(page, "| **{label}** | | |"),
            };
            add_rows(page, proposal, recorded);
        }
        add_notes(page, section, recorded);
    }
}

/// Appends what documents said of a proposal, and what was measured.
fn add_rows(page: &mut String, proposal: &'static Proposal, recorded: &[Recorded]) {
    for statement in &proposal.statements {
        let Statement { what, machine, source, .. } = statement;
        let is_known = !["none", "not named"].contains(&machine.as_str());
        let machine = if is_known { format!("; {machine}") } else { String::new() };
        let (numbers, gain) = (statement.numbers(), statement.gain());
        let _ = writeln!(page, "| {source}: {what}{machine} | {numbers} | {gain} |");
    }
    for run in recorded {
        let here = if recorded.len() > 1 { format!("{}: ", run.name) } else { String::new() };
        for bench in proposal.core_bench.iter().filter_map(|bench| run.core_bench(bench)) {
            let (what, numbers, gain) = (&bench.what, bench.numbers(), bench.gain());
            let _ = writeln!(page, "| {here}bench_bitcoin: {what} | {numbers} | {gain} |");
        }
        let summary = summary(proposal, &run.rows);
        for variant in summary.iter().flat_map(|summary| &summary.variants) {
            let ratio = variant.ratio.map_or(String::new(), |ratio| factor(proposal.measure, ratio));
            let factor: Vec<_> = [ratio, variant.remarks()].into_iter().filter(|it| !it.is_empty()).collect();
            let (name, speed) = (&variant.name, &variant.speed);
            let _ = writeln!(page, "| {here}{name} | {speed} | {} |", factor.join("; "));
        }
    }
}

/// Appends the answers that are statements, and which variants no run has recorded.
fn add_notes(page: &mut String, section: &[&'static Proposal], recorded: &[Recorded]) {
    for proposal in section {
        let shown = recorded.iter().filter(|_| proposal.shows_answer);
        for summary in shown.filter_map(|run| summary(proposal, &run.rows)) {
            let _ = writeln!(page, "\nThe chain has {}.", summary.answer);
        }
        let is_missing = |variant: &&str| {
            let rows = recorded.iter().flat_map(|run| &run.rows);
            !rows
                .filter(|row| row.text("proposal") == Some(&proposal.name))
                .any(|row| row.text("variant") == Some(variant))
        };
        let names = proposal.variants.iter().map(|variant| variant.name.as_str());
        let missing: Vec<_> = names.filter(is_missing).collect();
        if !missing.is_empty() {
            let _ = writeln!(page, "\nTo be recorded of `{}`: {}.", proposal.name, missing.join("; "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_one_unit() {
        let text = r#"{"results": [{"title": "", "name": "ObfuscationBench", "unit": "byte", "batch": 100,
            "median(elapsed)": 0.00000005}]}"#;
        let benches = CoreBench::parse(text).unwrap();
        assert_eq!((benches[0].value("ns"), benches[0].value("MiB/s")), (0.5, 1907.35));
        assert!(CoreBench::parse("{}").is_none() && CoreBench::parse("# Benchmark, evals").is_none());
    }
}
