//! The proposals, with what their documents said: `proposals.json`.

use crate::{statistics::Ratio, text::number};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The controls: one variant twice. Where a run has not recorded one, these two variants of another row do
/// the same work as well.
pub const CONTROLS: [(&str, [&str; 3]); 3] = [
    ("control", ["control", "first", "second"]),
    ("control-run", ["control-run", "first", "second"]),
    ("control-in-order", ["cumulative", "and obfuscation by words, #31144", "and batches of 64 MiB, #31645"]),
];
/// The row whose first variant is the rebuild of which steps are a part: in order, as Core does it.
pub const ENGINES: &str = "engines";
/// Sizes have no noise: those whose factors differ by more are not the same.
const SAME_SIZE: f64 = 1.25;

/// All that `proposals.json` has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    proposals: Vec<Proposal>,
    unmeasured: Vec<Unmeasured>,
}

static LIST: LazyLock<List> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../proposals.json")).expect("proposals.json has this form")
});

/// Returns all proposals, in the order in which they are reported.
pub fn all() -> &'static [Proposal] {
    &LIST.proposals
}

/// Returns the numbers of the documents that no row has, and why.
pub fn unmeasured() -> &'static [Unmeasured] {
    &LIST.unmeasured
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// For `--only` and for programs.
    pub name: String,
    pub title: String,
    pub measure: Measure,
    /// What a speed or a size is given in, such as `ns/coin` or `MB/s`.
    pub unit: String,
    /// The control whose interval is the noise of this row; without it, that of steps or of runs.
    pub control: Option<String>,
    /// Whether a rebuild in order does the same work, so that what is saved is a part of it.
    #[serde(default)]
    pub is_part: bool,
    /// Whether Peregrine gains in another way than the document, so that the numbers have little in common.
    #[serde(default)]
    pub is_other_mechanism: bool,
    /// Whether the answer of the variants is a statement, not only a hash.
    #[serde(default)]
    pub shows_answer: bool,
    /// The line of the first table of `docs/documents.md`.
    pub line: Option<Line>,
    /// Benchmarks of Bitcoin Core that do the same: what they do, the names before and after the proposal,
    /// and the unit.
    #[serde(default)]
    pub core_bench: Vec<[String; 4]>,
    /// Why the numbers of the document and those measured here differ: one sentence.
    pub differs: String,
    #[serde(default)]
    pub statements: Vec<Statement>,
    /// The first is without the proposal; others are compared with it.
    pub variants: Vec<Variant>,
}

/// Which number of the documents stands beside which variant.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Line {
    pub proposal: String,
    pub statement: usize,
    pub variant: usize,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The time of the processor, which other programs disturb less.
    Processor,
    /// The time of the clock, where threads or waiting matter.
    Wall,
    /// The size of the result in bytes. It is the same in all rounds, so that one is enough.
    Size,
}

/// A measurement in a document. If there is only one number, it is both.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub what: String,
    pub before: f64,
    pub after: f64,
    pub unit: String,
    pub machine: String,
    pub source: String,
}

/// A way of doing the same work: a step of a rebuild in this process, or a run of the program.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    /// What [`Lab::step`](bench::steps::Lab::step) knows.
    pub step: Option<String>,
    /// Arguments of the program, in which `{output}` and `{hints}` are files.
    pub run: Option<String>,
    /// The field of a run's report that all variants have in common.
    #[serde(default)]
    pub answer: String,
    /// Whether its size is that of the result after `xz -9`.
    #[serde(default)]
    pub is_packed: bool,
}

/// A number of a document that has no counterpart here, and why.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Unmeasured {
    pub said: String,
    pub source: String,
    pub why: String,
}

impl Statement {
    /// Returns how many times as fast it became. What is counted in a second is a speed.
    pub fn ratio(&self) -> f64 {
        if self.unit.ends_with("/s") { self.after / self.before } else { self.before / self.after }
    }

    pub fn numbers(&self) -> String {
        let Self { before, after, unit, .. } = self;
        match before == after {
            true => format!("{} {unit}", number(*before)),
            false => format!("{} to {} {unit}", number(*before), number(*after)),
        }
    }

    /// Returns how much it gained as text; nothing if there is only one number.
    pub fn gain(&self) -> String {
        let ratio = self.ratio();
        if ratio == 1.0 { String::new() } else { format!("{ratio:.2}") }
    }
}

impl Variant {
    /// Returns the words of its command, if it is a run.
    pub fn words(&self) -> Option<Vec<&str>> {
        Some(self.run.as_ref()?.split(' ').collect())
    }
}

impl Proposal {
    /// Returns the name of the control whose interval is the noise of this row; `None` for sizes and for
    /// controls.
    pub fn noise(&self) -> Option<&str> {
        let of_steps = self.variants.iter().any(|variant| variant.step.is_some());
        let usual = if of_steps { "control" } else { "control-run" };
        Some(self.control.as_deref().unwrap_or(usual))
            .filter(|_| self.measure != Measure::Size && !self.is_control())
    }

    /// Returns the heading of its section, which neighbours share, and what distinguishes it there.
    pub fn section(&self) -> (&str, Option<&str>) {
        self.title.split_once(": ").map_or((&self.title, None), |(section, own)| (section, Some(own)))
    }

    /// Returns whether it only measures the noise.
    pub fn is_control(&self) -> bool {
        CONTROLS.iter().any(|(name, _)| *name == self.name)
    }

    /// Formats the speed at which `count` units were processed, or how large they are. `bytes` is the size of
    /// all blocks.
    pub fn speed(&self, count: f64, bytes: f64, value: f64) -> String {
        let (count, value) = (count.max(1.0), value.max(1e-9));
        let unit = &self.unit;
        match unit.split_once('/') {
            Some(("ns", _)) => format!("{:.1} {unit}", value * 1e9 / count),
            Some(("µs", _)) => format!("{:.1} {unit}", value * 1e12 / bytes),
            Some(("MiB", _)) => format!("{:.0} {unit}", count / 1_048_576.0 / value),
            Some(("MB", _)) => format!("{:.0} {unit}", count / 1e6 / value),
            Some(_) => format!("{:.2} {unit}", count / 1e6 / value),
            None => format!("{:.3} %", value * 100.0 / count),
        }
    }

    /// Returns in one word or two what a measured factor says of one in a document.
    pub fn verdict(&self, document: f64, measured: Ratio, is_noise: bool) -> &'static str {
        let Ratio { ratio, low, high } = measured;
        let is_same = match self.measure {
            Measure::Size => (1.0 / SAME_SIZE..=SAME_SIZE).contains(&(document / ratio)),
            _ => (document > 1.0) == (ratio > 1.0),
        };
        match is_same {
            _ if self.is_other_mechanism => "other mechanism",
            _ if self.measure != Measure::Size && (is_noise || (low..=high).contains(&1.0)) => "not resolved",
            true => "reproduced",
            false => "contradicts",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_proposal_has_a_name_of_its_own_variants_and_one_sentence() {
        let names: BTreeSet<_> = all().iter().map(|proposal| &proposal.name).collect();
        assert_eq!(names.len(), all().len());
        for Proposal { name, differs, variants, statements, line, .. } in all() {
            let variant_names: BTreeSet<_> = variants.iter().map(|variant| &variant.name).collect();
            assert!(!variants.is_empty() && variant_names.len() == variants.len(), "{name}");
            assert!(variant_names.iter().all(|name| !name.contains('"')), "CSV quotes them: {name}");
            assert!(differs.ends_with('.') && differs.matches(". ").count() == 0, "{name}: {differs}");
            for Variant { step, run, answer, .. } in variants {
                let ways = [step, run].into_iter().flatten().count();
                assert!(ways == 1 && step.is_none() != answer.is_empty(), "{name}");
            }
            if let Some(Line { statement, variant, .. }) = line {
                assert!(*statement < statements.len() && (1..variants.len()).contains(variant), "{name}");
            }
        }
        assert_eq!(all().iter().filter(|proposal| proposal.line.is_some()).count(), 10);
        for (_, [proposal, variants @ ..]) in CONTROLS {
            let proposal = all().iter().find(|other| other.name == proposal).unwrap();
            let has = |name: &str| proposal.variants.iter().any(|variant| variant.name == name);
            assert!(variants.into_iter().all(has), "{proposal:?}");
        }
    }

    #[test]
    fn what_documents_said_has_an_origin_and_a_ratio() {
        for statement in all().iter().flat_map(|proposal| &proposal.statements) {
            assert!(!statement.source.is_empty() && !statement.machine.is_empty(), "{statement:?}");
            assert!((0.4..50.0).contains(&statement.ratio()), "{statement:?}");
        }
    }

    #[test]
    fn times_become_shorter_and_speeds_greater() {
        let statement = |before, after, unit: &str| {
            let [what, machine, source] = [(); 3].map(|()| String::new());
            Statement { what, before, after, unit: unit.to_owned(), machine, source }.ratio()
        };
        assert_eq!((statement(30.0, 10.0, "ns"), statement(10.0, 30.0, "MiB/s")), (3.0, 3.0));
    }

    #[test]
    fn the_verdict_follows_from_the_interval_and_the_control() {
        let of = |name: &str| all().iter().find(|proposal| proposal.name == name).unwrap();
        let ratio = |ratio, low, high| Ratio { ratio, low, high };
        assert_eq!(of("hash").verdict(2.04, ratio(2.7, 2.5, 3.0), false), "reproduced");
        assert_eq!(of("hash").verdict(2.04, ratio(0.7, 0.6, 0.8), false), "contradicts");
        assert_eq!(of("hash").verdict(2.04, ratio(2.7, 0.9, 3.0), false), "not resolved");
        assert_eq!(of("hash").verdict(2.04, ratio(1.05, 1.01, 1.1), true), "not resolved");
        assert_eq!(of("sizes").verdict(1.2, ratio(0.5, 0.4, 2.0), true), "other mechanism");
        assert_eq!(of("spent-coins").verdict(10.0, ratio(6.2, 6.2, 6.2), false), "contradicts");
        assert_eq!(of("spent-coins").verdict(10.0, ratio(9.0, 9.0, 9.0), false), "reproduced");
    }
}
