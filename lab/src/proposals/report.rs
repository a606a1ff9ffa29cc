//! The measurements as CSV (one line per run), as JSON and as text.

use super::{
    ProposalsArgs,
    chain::{Chain, Extent},
    core_bench::{self, CoreBench},
    list::{self, CONTROLS},
    proposal::{Measure, Outcome, Proposal, Statement, Unit, Variant, Work},
};
use crate::{
    circumstances::Circumstances,
    measure::Measured,
    rows,
    statistics::{Ratio, Spread},
    table::{few_runs, or_empty},
    text::number,
};
use cli::version::commit_or_version;
use serde::Serialize;
use std::fmt::Write as _;

/// The proposal whose first variant is the rebuild of which steps are a share: in order, as Core does it.
const WHOLE: &str = "engines";
/// What the name of a variant begins with that adds a step to the one before.
const ADDED: &str = "and ";
/// If the middle half of the runs differs by more, they say little.
const SPREAD_LIMIT: f64 = 1.25;

/// One run of one variant. The fields of CSV and JSON, and their order, are stable.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    #[serde(skip)]
    name: String,
    pub proposal: String,
    pub variant: String,
    /// Commit of Peregrine's sources, or its version if that is not known.
    pub commit: String,
    pub run: u32,
    pub wall_s: f64,
    pub cpu_s: f64,
    /// Peak resident memory; only of runs of the program.
    pub peak_rss_kib: Option<u64>,
    /// Number of units that were processed: bytes, or what the proposal is about.
    pub count: usize,
    /// Bytes of the result, if they matter.
    pub size: Option<u64>,
    /// Hash of the result.
    pub answer: String,
}

impl Row {
    pub fn new(
        proposal: &Proposal,
        variant: &Variant,
        run: u32,
        measured: &Measured,
        Outcome { answer, count, size }: Outcome,
    ) -> Self {
        Self {
            name: format!("{}, {}", proposal.name, variant.name),
            proposal: proposal.name.to_owned(),
            variant: variant.name.to_owned(),
            commit: commit_or_version().to_owned(),
            run,
            wall_s: measured.wall.as_secs_f64(),
            cpu_s: (measured.user + measured.system).as_secs_f64(),
            peak_rss_kib: matches!(variant.work, Work::Run(_)).then_some(measured.peak_rss_bytes >> 10),
            count,
            size,
            answer,
        }
    }

    /// Reads a line of CSV, as [`rows::Row::csv`] writes it.
    pub fn parse(line: &str) -> Option<Self> {
        let [proposal, variant, middle, answer, ""] = line.split('"').collect::<Vec<_>>()[..] else {
            return None;
        };
        let [commit, run, wall_s, cpu_s, rss, count, size] =
            middle.strip_prefix(',')?.strip_suffix(',')?.splitn(7, ',').collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let optional = |field: &str| (!field.is_empty()).then(|| field.parse()).transpose().ok();
        Some(Self {
            name: String::new(),
            proposal: proposal.trim_end_matches(',').to_owned(),
            variant: variant.to_owned(),
            commit: commit.to_owned(),
            run: run.parse().ok()?,
            wall_s: wall_s.parse().ok()?,
            cpu_s: cpu_s.parse().ok()?,
            peak_rss_kib: optional(rss)?,
            count: count.parse().ok()?,
            size: optional(size)?,
            answer: answer.to_owned(),
        })
    }

    fn value(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Processor => self.cpu_s,
            Measure::Wall => self.wall_s,
            Measure::Size => self.size.unwrap_or_default() as f64,
        }
    }
}

impl rows::Row for Row {
    const CSV_HEADER: &'static str =
        "proposal,variant,commit,run,wall_s,cpu_s,peak_rss_kib,count,size,answer\n";

    fn program(&self) -> &str {
        &self.name
    }

    fn proposal(&self) -> Option<&str> {
        Some(&self.proposal)
    }

    fn run(&self) -> u32 {
        self.run
    }

    fn utxo_hash(&self) -> Option<&str> {
        Some(&self.answer)
    }

    fn csv(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'"));
        let fields = [
            self.proposal.clone(),
            quoted(&self.variant),
            self.commit.clone(),
            self.run.to_string(),
            format!("{:.9}", self.wall_s),
            format!("{:.9}", self.cpu_s),
            or_empty(self.peak_rss_kib),
            self.count.to_string(),
            or_empty(self.size),
            quoted(&self.answer),
        ];
        fields.join(",") + "\n"
    }

    fn text(&self) -> String {
        format!("{}: {:.3} s, {:.3} s of CPU", self.name, self.wall_s, self.cpu_s)
    }
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
    /// Proposals that could not be measured, and why.
    pub skipped: Vec<String>,
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
            runs: args.runs.get(),
            args: args.program.args.clone(),
            skipped: Vec::new(),
        }
    }

    /// Returns the description as pairs of a name and a fact.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let Self { blocks, chain, height, block_bytes, runs, .. } = self;
        let mut facts = self.circumstances.facts();
        facts.extend([
            ("blocks", format!("{blocks} ({chain}) to height {height}, {block_bytes} bytes")),
            ("runs", format!("{runs} of each variant, in turns, every second round in reverse order")),
        ]);
        facts.extend(self.skipped.iter().map(|skipped| ("skipped", skipped.clone())));
        facts
    }
}

/// What was measured of a variant.
#[derive(Serialize)]
pub struct VariantSummary {
    pub name: &'static str,
    /// What is compared: seconds, or bytes.
    pub value: Spread,
    /// The value as text, and the speed with its unit.
    pub text: String,
    pub speed: String,
    /// Median of the peak memory in MiB; only of runs of the program.
    pub peak_rss_mib: Option<f64>,
    /// Bytes of the result, if they matter.
    pub size: Option<u64>,
    /// How many times as fast (or as small) as the first variant, by the runs of the same round; `None` for
    /// the first.
    pub ratio: Option<Ratio>,
    /// How many times as fast as the variant before, for one that adds a step to it.
    pub step: Option<Ratio>,
    /// Whether the control's two equal variants differ as much; `None` without a control.
    pub is_noise: Option<bool>,
    /// What it saves compared with the first variant, in percent of the processor time of a whole rebuild;
    /// `None` if that was not measured, or if the variant is a run itself.
    pub share_percent: Option<f64>,
}

impl VariantSummary {
    /// Returns what follows from the ratio, in a few words.
    pub fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        if let Some(percent) = self.share_percent {
            let verb = if percent < 0.0 { "adds" } else { "saves" };
            remarks.push(format!("{verb} {:.2} % of a rebuild in order", percent.abs()));
        }
        if let Some(Ratio { ratio, low, high }) = self.step {
            let [less, low, high] = [ratio, low, high].map(|ratio| 100.0 * (1.0 - 1.0 / ratio));
            remarks.push(format!("this step takes {less:.1} % off ({low:.1} to {high:.1})"));
        }
        if self.is_noise == Some(true) {
            remarks.push("within the noise of the control".to_owned());
        }
        if self.value.upper_quartile > SPREAD_LIMIT * self.value.lower_quartile {
            remarks.push("the runs differ much: measure again".to_owned());
        }
        if let Some(mib) = self.peak_rss_mib {
            remarks.push(format!("peak memory {mib:.0} MiB"));
        }
        remarks.extend(self.size.map(|size| format!("{} bytes", number(size as f64))));
        remarks.join(", ")
    }
}

/// A proposal, what its document said, and what was measured.
#[derive(Serialize)]
pub struct ProposalSummary {
    pub name: &'static str,
    pub title: &'static str,
    pub measure: Measure,
    pub statements: &'static [Statement],
    pub differs: &'static str,
    pub variants: Vec<VariantSummary>,
    /// The answer that all variants have.
    pub answer: String,
}

impl ProposalSummary {
    /// Returns the answer if it is a statement and not only a hash or a number.
    pub fn statement(&self) -> Option<&str> {
        Some(&*self.answer).filter(|answer| answer.contains(',') && !answer.contains('{'))
    }
}

/// The result of the benchmark.
#[derive(Serialize)]
pub struct Report {
    pub about: About,
    pub proposals: Vec<ProposalSummary>,
    pub core: Vec<CoreBench>,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(about: About, proposals: &[&'static Proposal], core: Vec<CoreBench>, rows: Vec<Row>) -> Self {
        let proposals = proposals.iter().filter_map(|proposal| summary(proposal, &rows)).collect();
        Self { about, proposals, core, rows }
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, fact) in self.about.facts() {
            let _ = writeln!(text, "{name:<8} {fact}");
        }
        for proposal in &self.proposals {
            let _ = writeln!(text, "\n{} ({}; {})", proposal.title, proposal.name, proposal.measure.name());
            for variant in &proposal.variants {
                let ratio = variant.ratio.map_or(String::new(), |all| ratio(proposal.measure, all));
                let (name, remarks) = (variant.name, variant.remarks());
                let line = format!("  {name:<42}{:>16}{:>22}  {ratio}", variant.text, variant.speed);
                let line = [line.trim_end(), &*remarks].join(if remarks.is_empty() { "" } else { "; " });
                let _ = writeln!(text, "{line}");
            }
            for statement in proposal.statements {
                let _ = writeln!(text, "  document: {}", said(statement));
            }
            let _ = writeln!(text, "  {}", proposal.differs);
            if let Some(answer) = proposal.statement() {
                let _ = writeln!(text, "  here: {answer}");
            }
        }
        text += &core_bench::text(&self.core, &self.proposals);
        text += few_runs(self.about.runs);
        text.trim_end().to_owned()
    }
}

/// Returns how a variant compares with the first.
pub fn ratio(measure: Measure, Ratio { ratio, low, high }: Ratio) -> String {
    match measure {
        Measure::Size => format!("{ratio:.2} times as small"),
        _ => format!("{ratio:.2} times as fast ({low:.2} to {high:.2})"),
    }
}

/// Returns what a document said, in one line.
fn said(statement: &Statement) -> String {
    let Statement { what, machine, source, .. } = statement;
    let gain = statement.gain();
    let gain = if gain.is_empty() { gain } else { format!(", a factor of {gain}") };
    format!("{what}: {}{gain}; {machine} ({source})", statement.numbers())
}

/// Returns the values of a variant, by the round.
fn values(rows: &[Row], proposal: &str, variant: &str, measure: Measure) -> Vec<f64> {
    let own = rows.iter().filter(|row| row.proposal == proposal && row.variant == variant);
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|row| row.run);
    own.into_iter().map(|row| row.value(measure)).collect()
}

/// Returns the interval of the control: equal variants differ as much, in either direction.
fn noise(rows: &[Row], is_step: bool) -> Option<(f64, f64)> {
    let name = CONTROLS[usize::from(!is_step)];
    let control = list::all().find(|proposal| proposal.name == name)?;
    let [first, second] = control.variants else { return None };
    let times = |variant: &Variant| values(rows, name, variant.name, control.measure);
    let Ratio { low, high, .. } = Ratio::of_pairs(&times(first), &times(second))?;
    Some((low.min(1.0 / high), high.max(1.0 / low)))
}

/// Summarises the rows of a proposal; `None` if it has none.
pub fn summary(proposal: &'static Proposal, rows: &[Row]) -> Option<ProposalSummary> {
    let &Proposal { name, title, measure, statements, differs, variants, unit } = proposal;
    let own = |variant: &Variant| rows.iter().find(|row| row.proposal == name && row.variant == variant.name);
    let first = values(rows, name, variants.first()?.name, measure);
    let whole = rows.iter().find(|row| row.proposal == WHOLE).map(|row| row.variant.as_str());
    let whole = whole.and_then(|variant| Spread::of(&values(rows, WHOLE, variant, Measure::Processor)));
    let summaries = variants.iter().enumerate().filter_map(|(at, variant)| {
        let (row, is_step) = (own(variant)?, variant.work.is_step());
        let times = values(rows, name, variant.name, measure);
        let value = Spread::of(&times)?;
        let ratio = Ratio::of_pairs(&first, &times).filter(|_| at > 0);
        let before = at.checked_sub(1).and_then(|at| variants.get(at));
        let before = before.filter(|_| variant.name.starts_with(ADDED));
        let saved = |ratio: Ratio| {
            let (first, whole) = (Spread::of(&first)?.median, whole?.median);
            Some(first * (1.0 - 1.0 / ratio.ratio) / whole * 100.0)
        };
        let rss = rows.iter().filter(|row| row.proposal == name && row.variant == variant.name);
        let rss: Vec<_> = rss.filter_map(|row| Some(row.peak_rss_kib? as f64 / 1024.0)).collect();
        let noise = noise(rows, is_step).filter(|_| measure != Measure::Size && !CONTROLS.contains(&name));
        Some(VariantSummary {
            name: variant.name,
            text: match measure {
                Measure::Size => format!("{} bytes", number(value.median)),
                _ => format!("{:.3} s", value.median),
            },
            speed: speed(measure, unit, row.count as f64, value.median),
            peak_rss_mib: Spread::of(&rss).map(|spread| spread.median).filter(|_| measure != Measure::Size),
            size: row.size.filter(|_| measure != Measure::Size),
            ratio,
            step: before
                .and_then(|before| Ratio::of_pairs(&values(rows, name, before.name, measure), &times)),
            is_noise: ratio.zip(noise).map(|(ratio, (low, high))| (low..=high).contains(&ratio.ratio)),
            share_percent: ratio
                .filter(|_| is_step && measure == Measure::Processor && unit != Unit::Whole)
                .filter(|_| !CONTROLS.contains(&name))
                .and_then(saved),
            value,
        })
    });
    let variants: Vec<_> = summaries.collect();
    let answer = rows.iter().find(|row| row.proposal == name)?.answer.clone();
    Some(ProposalSummary { name, title, measure, statements, differs, variants, answer })
}

/// Formats the speed at which `count` units were processed, or how large the result is.
fn speed(measure: Measure, unit: Unit, count: f64, value: f64) -> String {
    match (measure, unit) {
        (Measure::Size, Unit::Each(each) | Unit::Many(each)) => {
            format!("{:.3} bits/{each}", value * 8.0 / count.max(1.0))
        }
        (Measure::Size, _) => format!("{:.3} % of the blocks", value * 100.0 / count.max(1.0)),
        (_, Unit::Bytes | Unit::Whole) => format!("{:.0} MB/s", count / 1e6 / value.max(1e-9)),
        (_, Unit::Each(each)) => format!("{:.1} ns/{each}", value * 1e9 / count.max(1.0)),
        (_, Unit::Many(many)) => format!("{:.2} million {many}/s", count / 1e6 / value.max(1e-9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        for line in [
            "hash,\"2-4, padded\",abc,3,1.500000000,1.250000000,,7,,\"7 hashes\"\n",
            "verify,\"verify\",abc,1,0.500000000,0.750000000,2048,9,12,\"00ff\"\n",
        ] {
            let row = Row::parse(line.trim_end()).unwrap();
            assert_eq!(rows::Row::csv(&row), line);
        }
        assert!(Row::parse("hash,\"x\",abc,3,1.5,x,,7,,\"y\"").is_none());
    }
}
