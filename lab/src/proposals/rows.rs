//! What was measured of each variant: one line of CSV for each run, and what follows from all of them.

use super::list::{CONTROLS, ENGINES, Measure, Proposal, Statement, Variant, all};
use crate::{
    measure::Measured,
    runs::Run,
    statistics::{Ratio, Spread, median},
    text::number,
};
use bench::steps::Outcome;
use cli::version::commit_or_version;
use serde::Serialize;
use serde_json::json;

/// What the name of a variant begins with that adds a step to the one before.
const ADDED: &str = "and ";
/// If the middle half of the runs differs by more, they say little.
const SPREAD_LIMIT: f64 = 1.25;

pub const COLUMNS: &str = "proposal,variant,commit,run,wall_s,cpu_s,peak_rss_kib,count,size,answer";

/// Returns one run of one variant.
pub fn row(
    proposal: &Proposal,
    variant: &Variant,
    run: u32,
    measured: &Measured,
    Outcome { answer, count, size }: Outcome,
) -> Run {
    Run::of(json!({
        "proposal": proposal.name,
        "variant": variant.name,
        // Commit of Peregrine's sources, or its version if that is not known.
        "commit": commit_or_version(),
        "run": run,
        "wall_s": measured.wall.as_secs_f64(),
        "cpu_s": (measured.user + measured.system).as_secs_f64(),
        // Only of runs of the program.
        "peak_rss_kib": variant.run.as_ref().map(|_| measured.peak_rss_bytes >> 10),
        // Number of units that were processed: bytes, or what the proposal is about.
        "count": count,
        // Bytes of the result, if they matter.
        "size": size,
        "answer": answer,
    }))
}

/// What was measured of a variant.
#[derive(Serialize, Debug)]
pub struct VariantSummary {
    pub name: String,
    /// What is compared: seconds, or bytes.
    pub value: Spread,
    /// The speed, or the size, with its unit.
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
    /// Whether the control's two equal variants differ as much, by the step if there is one; `None` without a
    /// control.
    pub is_noise: Option<bool>,
    /// The interval of the control.
    #[serde(skip)]
    pub noise: Option<(f64, f64)>,
    /// What it saves compared with the first variant, in percent of the processor time of a whole rebuild;
    /// `None` if no rebuild does it.
    pub share_percent: Option<f64>,
}

impl VariantSummary {
    /// Returns whether its runs differ much.
    fn is_unclear(&self) -> bool {
        self.value.upper_quartile > SPREAD_LIMIT * self.value.lower_quartile
    }

    /// Returns what follows from the numbers, in a few words.
    pub fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        if let Some(percent) = self.share_percent {
            let verb = if percent < 0.0 { "adds" } else { "saves" };
            remarks.push(format!("{verb} {:.2} % of a rebuild", percent.abs()));
        }
        if let Some(Ratio { ratio, low, high }) = self.step {
            let [less, low, high] = [ratio, low, high].map(|ratio| 100.0 * (1.0 - 1.0 / ratio));
            remarks.push(format!("step: {less:.1} % off ({low:.1} to {high:.1})"));
        }
        if self.is_noise == Some(true) {
            remarks.push("noise".to_owned());
        }
        if self.is_unclear() {
            remarks.push("the runs differ much".to_owned());
        }
        if let Some(mib) = self.peak_rss_mib {
            remarks.push(format!("{mib:.0} MiB"));
        }
        remarks.extend(self.size.map(|size| format!("{} bytes", number(size as f64))));
        remarks.join(", ")
    }
}

/// A proposal, what its document said, and what was measured.
#[derive(Serialize, Debug)]
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
    /// Returns whether the runs of a variant differ so much that they should be measured again.
    pub fn is_unclear(&self) -> bool {
        self.measure != Measure::Size && self.variants.iter().any(VariantSummary::is_unclear)
    }
}

/// Returns the rows of a proposal, or of one of its variants, by the round.
fn rows_of<'a>(rows: &'a [Run], proposal: &str, variant: Option<&str>) -> Vec<&'a Run> {
    let is_own = |row: &&Run| {
        row.text("proposal") == Some(proposal) && (variant.is_none() || row.text("variant") == variant)
    };
    let mut own: Vec<_> = rows.iter().filter(is_own).collect();
    own.sort_by_key(|row| row.number("run").map(|run| run as u32));
    own
}

/// Returns what is compared of a variant, by the round.
fn values(rows: &[Run], proposal: &str, variant: &str, measure: Measure) -> Vec<f64> {
    let field = match measure {
        Measure::Processor => "cpu_s",
        Measure::Wall => "wall_s",
        Measure::Size => "size",
    };
    rows_of(rows, proposal, Some(variant)).iter().filter_map(|row| row.number(field)).collect()
}

/// Returns the interval of a control: equal variants differ as much, in either direction.
fn noise(rows: &[Run], name: &str) -> Option<(f64, f64)> {
    let other = CONTROLS.iter().find(|(control, _)| *control == name)?.1;
    [[name, "first", "second"], other].into_iter().find_map(|[proposal, first, second]| {
        let measure = all().iter().find(|other| other.name == proposal)?.measure;
        let times = |variant| values(rows, proposal, variant, measure);
        let Ratio { low, high, .. } = Ratio::of_pairs(&times(first), &times(second))?;
        Some((low.min(1.0 / high), high.max(1.0 / low)))
    })
}

/// Summarises the rows of a proposal; `None` if it has none.
pub fn summary(proposal: &'static Proposal, rows: &[Run]) -> Option<ProposalSummary> {
    let Proposal { name, title, measure, statements, differs, variants, .. } = proposal;
    let measure = *measure;
    let own = rows_of(rows, name, None);
    let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let first = values(rows, name, names.first()?, measure);
    let whole = rows_of(rows, ENGINES, None).first().copied();
    let bytes = whole.and_then(|row| row.number("count")).unwrap_or(1.0);
    let whole = whole.and_then(|row| row.text("variant"));
    let whole = whole.and_then(|variant| Spread::of(&values(rows, ENGINES, variant, Measure::Processor)));
    let noise = proposal.noise().and_then(|control| noise(rows, control));
    let summaries = names.iter().enumerate().filter_map(|(at, variant)| {
        let row = own.iter().find(|row| row.text("variant") == Some(variant))?;
        let times = values(rows, name, variant, measure);
        let value = Spread::of(&times)?;
        let ratio = Ratio::of_pairs(&first, &times).filter(|_| at > 0);
        let before = at.checked_sub(1).and_then(|at| names.get(at));
        let before = before.filter(|_| variant.starts_with(ADDED));
        let step =
            before.and_then(|name_before| Ratio::of_pairs(&values(rows, name, name_before, measure), &times));
        let saved = |ratio: Ratio| {
            let (first, whole) = (median(&first)?, whole?.median);
            Some(first * (1.0 - 1.0 / ratio.ratio) / whole * 100.0)
        };
        let rss = rows_of(rows, name, Some(variant)).into_iter();
        let rss: Vec<_> = rss.filter_map(|row| Some(row.number("peak_rss_kib")? / 1024.0)).collect();
        Some(VariantSummary {
            name: (*variant).to_owned(),
            speed: proposal.speed(row.number("count")?, bytes, value.median),
            peak_rss_mib: median(&rss).filter(|_| measure != Measure::Size),
            size: row.number("size").map(|size| size as u64).filter(|_| measure != Measure::Processor),
            ratio,
            step,
            is_noise: step.or(ratio).zip(noise).map(|(it, (low, high))| (low..=high).contains(&it.ratio)),
            noise,
            share_percent: ratio.filter(|_| proposal.is_part).and_then(saved),
            value,
        })
    });
    let variants: Vec<_> = summaries.collect();
    let answer = own.first()?.answer()?.to_owned();
    Some(ProposalSummary { name, title, measure, statements, differs, variants, answer })
}
