//! The measurements as CSV (one line per run), as JSON and as text.

use super::{
    ProposalsArgs,
    chain::Chain,
    proposal::{Clock, Outcome, Proposal, Statement, Unit, Variant, Work},
};
use crate::{
    circumstances::Circumstances,
    measure::Measured,
    rows,
    statistics::{Ratio, Spread},
    table::few_runs,
};
use cli::version::commit_or_version;
use engine::{BlockHash, Height};
use serde::Serialize;
use std::fmt::Write as _;

/// The proposal whose first variant is the rebuild of which steps are a share: in order, as Core does it.
const WHOLE: &str = "engines";

/// One run of one variant. The fields of CSV and JSON, and their order, are stable.
#[derive(Serialize, Clone, Debug)]
pub struct Row {
    #[serde(skip)]
    name: String,
    pub proposal: &'static str,
    pub variant: &'static str,
    /// Commit of Peregrine's sources, or its version if that is not known.
    pub commit: &'static str,
    pub run: u32,
    pub wall_s: f64,
    pub cpu_s: f64,
    /// Peak resident memory; only of rebuilds.
    pub peak_rss_kib: Option<u64>,
    /// Number of units that were processed: bytes, or what the proposal is about.
    pub count: usize,
    /// Hash of the result.
    pub answer: String,
}

impl Row {
    pub fn new(
        proposal: &Proposal,
        variant: &Variant,
        run: u32,
        measured: &Measured,
        Outcome { answer, count }: Outcome,
    ) -> Self {
        let rss = matches!(variant.work, Work::Run(_)).then_some(measured.peak_rss_bytes >> 10);
        Self {
            name: format!("{}, {}", proposal.name, variant.name),
            proposal: proposal.name,
            variant: variant.name,
            commit: commit_or_version(),
            run,
            wall_s: measured.wall.as_secs_f64(),
            cpu_s: (measured.user + measured.system).as_secs_f64(),
            peak_rss_kib: rss,
            count,
            answer,
        }
    }

    fn seconds(&self, clock: Clock) -> f64 {
        match clock {
            Clock::Processor => self.cpu_s,
            Clock::Wall => self.wall_s,
        }
    }
}

impl rows::Row for Row {
    const CSV_HEADER: &'static str = "proposal,variant,commit,run,wall_s,cpu_s,peak_rss_kib,count,answer\n";

    fn program(&self) -> &str {
        &self.name
    }

    fn subject(&self) -> &str {
        self.proposal
    }

    fn run(&self) -> u32 {
        self.run
    }

    fn utxo_hash(&self) -> Option<&str> {
        Some(&self.answer)
    }

    fn csv(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let fields = [
            self.proposal.to_owned(),
            quoted(self.variant),
            self.commit.to_owned(),
            self.run.to_string(),
            format!("{:.6}", self.wall_s),
            format!("{:.6}", self.cpu_s),
            self.peak_rss_kib.map_or(String::new(), |kib| kib.to_string()),
            self.count.to_string(),
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
    pub height: Option<u32>,
    pub block_hash: Option<String>,
    pub block_bytes: usize,
    pub runs: u32,
    pub args: String,
}

impl About {
    pub fn new(
        args: &ProposalsArgs,
        chain: &Chain,
        tip: Option<(Height, BlockHash)>,
        block_bytes: usize,
        circumstances: Circumstances,
    ) -> Self {
        let generated = || format!("generated, {} bytes, seed {}", args.size, args.seed);
        Self {
            circumstances: circumstances.end(),
            blocks: args.datadir.as_ref().map_or_else(generated, |datadir| datadir.display().to_string()),
            chain: chain.network.name(),
            height: tip.map(|(height, _)| height.0),
            block_hash: tip.map(|(_, hash)| hash.to_string()),
            block_bytes,
            runs: args.runs.get(),
            args: args.program.args.clone(),
        }
    }

    /// Returns the description as pairs of a name and a fact.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let height = self.height.map_or(String::new(), |height| format!(" to height {height}"));
        let mut facts = self.circumstances.facts();
        facts.extend([
            ("blocks", format!("{} ({}){height}, {} bytes", self.blocks, self.chain, self.block_bytes)),
            ("runs", format!("{} of each variant, in turns", self.runs)),
        ]);
        facts
    }
}

/// What was measured of a variant.
#[derive(Serialize)]
pub struct VariantSummary {
    pub name: &'static str,
    /// Seconds by the proposal's clock.
    pub seconds: Spread,
    /// The speed, with its unit.
    pub speed: String,
    /// How many times as fast as the first variant, by the runs of the same round; `None` for the first.
    pub ratio: Option<Ratio>,
    /// What it saves compared with the first variant, in percent of the processor time of a whole rebuild;
    /// `None` if that was not measured, or if the variant is a rebuild itself.
    pub share_percent: Option<f64>,
}

/// A proposal, what its document said, and what was measured.
#[derive(Serialize)]
pub struct ProposalSummary {
    pub name: &'static str,
    pub title: &'static str,
    pub clock: Clock,
    pub statements: &'static [Statement],
    pub differs: &'static str,
    pub variants: Vec<VariantSummary>,
}

/// The result of the benchmark.
#[derive(Serialize)]
pub struct Report {
    pub about: About,
    pub proposals: Vec<ProposalSummary>,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(about: About, proposals: &[&Proposal], rows: Vec<Row>) -> Self {
        let proposals = proposals.iter().map(|proposal| summary(proposal, &rows)).collect();
        Self { about, proposals, rows }
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, fact) in self.about.facts() {
            let _ = writeln!(text, "{name:<8} {fact}");
        }
        for proposal in &self.proposals {
            let _ = writeln!(text, "\n{} ({}; {})", proposal.title, proposal.name, clock(proposal.clock));
            for variant in &proposal.variants {
                let seconds = format!("{:.3} s", variant.seconds.median);
                let ratio = variant.ratio.map_or(String::new(), ratio);
                let share = variant.share_percent.map_or(String::new(), share);
                let line =
                    format!("  {:<34}{seconds:>11}{:>18}  {ratio}{share}", variant.name, variant.speed);
                let _ = writeln!(text, "{}", line.trim_end());
            }
            for statement in proposal.statements {
                let _ = writeln!(text, "  document: {}", said(statement));
            }
            let _ = writeln!(text, "  {}", proposal.differs);
        }
        text += few_runs(self.about.runs);
        text.trim_end().to_owned()
    }
}

/// Returns the name of a clock.
pub fn clock(clock: Clock) -> &'static str {
    match clock {
        Clock::Processor => "processor time",
        Clock::Wall => "time on the clock",
    }
}

/// Returns how a variant compares with the first.
pub fn ratio(Ratio { ratio, low, high }: Ratio) -> String {
    format!("{ratio:.2} times as fast ({low:.2} to {high:.2})")
}

/// Returns what a variant saves in a whole rebuild.
pub fn share(percent: f64) -> String {
    match percent {
        percent if percent < 0.0 => format!(", adds {:.2} % to a rebuild in order", -percent),
        percent => format!(", saves {percent:.2} % of a rebuild in order"),
    }
}

/// Returns what a document said, in one line.
pub fn said(statement: &Statement) -> String {
    let Statement { what, before, after, unit, machine, source } = statement;
    format!(
        "{what}: {before} to {after} {unit}, {:.2} times as fast; {machine} ({source})",
        statement.ratio()
    )
}

fn summary(proposal: &Proposal, rows: &[Row]) -> ProposalSummary {
    let times = |proposal: &str, variant: &str, clock| {
        let own = rows.iter().filter(|row| row.proposal == proposal && row.variant == variant);
        own.map(|row| row.seconds(clock)).collect::<Vec<_>>()
    };
    let first = proposal.variants.first().map_or("", |variant| variant.name);
    let first = times(proposal.name, first, proposal.clock);
    let whole = rows.iter().find(|row| row.proposal == WHOLE).map(|row| row.variant);
    let whole = whole.and_then(|variant| Spread::of(&times(WHOLE, variant, Clock::Processor)));
    let is_step =
        |variant: &Variant| matches!(variant.work, Work::Step(_)) && proposal.clock == Clock::Processor;
    let variants = proposal.variants.iter().enumerate().filter_map(|(at, variant)| {
        let own = times(proposal.name, variant.name, proposal.clock);
        let seconds = Spread::of(&own)?;
        let count = rows.iter().find(|row| row.proposal == proposal.name)?.count as f64;
        let ratio = Ratio::of_pairs(&first, &own).filter(|_| at > 0);
        let saved = |ratio: Ratio| {
            let (first, whole) = (Spread::of(&first)?.median, whole?.median);
            Some(first * (1.0 - 1.0 / ratio.ratio) / whole * 100.0)
        };
        Some(VariantSummary {
            name: variant.name,
            speed: speed(proposal.unit, count, seconds.median),
            ratio,
            share_percent: ratio.filter(|_| is_step(variant)).and_then(saved),
            seconds,
        })
    });
    let &Proposal { name, title, clock, statements, differs, .. } = proposal;
    ProposalSummary { name, title, clock, statements, differs, variants: variants.collect() }
}

/// Formats the speed at which `count` units were processed.
fn speed(unit: Unit, count: f64, seconds: f64) -> String {
    match unit {
        Unit::Bytes => format!("{:.0} MB/s", count / 1e6 / seconds.max(1e-9)),
        Unit::Each(each) => format!("{:.1} ns/{each}", seconds * 1e9 / count.max(1.0)),
    }
}
