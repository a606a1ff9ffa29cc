//! What a proposal is: what its document said, and the variants that are measured.

use super::steps::Lab;
use crate::text::number;
use engine::Error;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A proposal.
pub struct Proposal {
    /// For `--only` and for programs.
    pub name: &'static str,
    pub title: &'static str,
    pub measure: Measure,
    pub unit: Unit,
    pub statements: &'static [Statement],
    /// Why the numbers of the document and those measured here differ: one sentence.
    pub differs: &'static str,
    /// The first is without the proposal; others are compared with it.
    pub variants: &'static [Variant],
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The time of the processor, which other programs disturb less.
    Processor,
    /// The time of the clock, where threads or waiting matter.
    Wall,
    /// The size of the result in bytes. It is the same in all rounds, so that one is enough.
    Size,
}

impl Measure {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor time",
            Self::Wall => "time on the clock",
            Self::Size => "bytes",
        }
    }
}

/// What was processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Bytes of blocks, in a part of a rebuild or in a run of the program.
    Bytes,
    /// Bytes of blocks, in the whole work of a rebuild, of which no rebuild can be a part.
    Whole,
    Each(&'static str),
    /// Many of them: what counts is how many each second.
    Many(&'static str),
}

/// A measurement in a document. If there is only one number, it is both.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Statement {
    pub what: &'static str,
    pub before: f64,
    pub after: f64,
    pub unit: &'static str,
    pub machine: &'static str,
    pub source: &'static str,
}

impl Statement {
    /// Returns how many times as fast it became. What has no time in its unit is a speed.
    pub fn ratio(&self) -> f64 {
        if self.unit == "MiB/s" { self.after / self.before } else { self.before / self.after }
    }

    /// Returns the numbers as text.
    pub fn numbers(&self) -> String {
        let Self { before, after, unit, .. } = *self;
        match before == after {
            true => format!("{} {unit}", number(before)),
            false => format!("{} to {} {unit}", number(before), number(after)),
        }
    }

    /// Returns how much it gained as text; nothing if there is only one number.
    pub fn gain(&self) -> String {
        let ratio = self.ratio();
        if ratio == 1.0 { String::new() } else { format!("{ratio:.2}") }
    }
}

/// A way of doing the same work.
pub struct Variant {
    pub name: &'static str,
    pub work: Work,
}

/// A step of a rebuild.
pub type Step = fn(&Lab<'_>, &mut Stopwatch) -> Result<Outcome, Error>;

/// How it is measured.
#[derive(Clone, Copy)]
pub enum Work {
    /// In this process.
    Step(Step),
    /// As a run of the program.
    Run(Run),
    /// As a command to a `bitcoind` that runs.
    Core(CoreCommand),
}

impl Work {
    pub const fn is_step(&self) -> bool {
        matches!(self, Self::Step(_))
    }

    /// Returns the step, if it is one.
    pub const fn step(&self) -> Option<Step> {
        match self {
            Self::Step(step) => Some(*step),
            Self::Run(_) | Self::Core(_) => None,
        }
    }
}

/// A command of `bitcoin-cli`, in which `{output}` is a file, and the field of its answer that all variants
/// have in common.
#[derive(Clone, Copy)]
pub struct CoreCommand {
    pub words: &'static [&'static str],
    pub answer: &'static str,
}

/// A run of the program. In its words, `{output}`, `{hints}` and `{snapshot}` are files.
#[derive(Clone, Copy)]
pub struct Run {
    pub command: &'static [&'static str],
    pub args: &'static [&'static str],
    /// The field of its report that all variants have in common.
    pub answer: &'static str,
    /// Whether its size is that of the result after `xz -9`.
    pub is_packed: bool,
    /// Whether all scripts are run, on a chain with signatures.
    pub runs_scripts: bool,
}

impl Run {
    /// Returns all words of its command.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.command.iter().chain(self.args).copied()
    }

    /// Returns its number of threads, if it has one.
    pub fn threads(&self) -> Option<usize> {
        self.words().skip_while(|word| *word != "--threads").nth(1)?.parse().ok()
    }
}

/// The result of a step or a run.
pub struct Outcome {
    /// The same for all variants of a proposal.
    pub answer: String,
    /// Number of units that were processed.
    pub count: usize,
    /// Bytes of the result, if they matter.
    pub size: Option<u64>,
}

/// Sums the time of the parts of a step that are measured.
#[derive(Default)]
pub struct Stopwatch {
    pub wall: Duration,
    /// The processor time of all threads of this process.
    pub processor: Duration,
}

impl Stopwatch {
    /// Measures `work`.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (wall, processor) = (Instant::now(), processor_time());
        let done = work();
        self.processor += processor_time().saturating_sub(processor);
        self.wall += wall.elapsed();
        done
    }
}

fn processor_time() -> Duration {
    // It is never negative.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_stopwatch_sums_what_it_times() {
        let mut watch = Stopwatch::default();
        let pause = Duration::from_millis(20);
        let work = || {
            let begun = processor_time();
            while processor_time() - begun < pause {}
        };
        watch.time(|| thread::sleep(pause));
        watch.time(work);
        watch.time(work);
        assert!(watch.wall >= pause, "{:?}", watch.wall);
        // Other tests of this process may take more.
        assert!(watch.processor >= 2 * pause, "{:?}", watch.processor);
    }

    #[test]
    fn times_become_shorter_and_speeds_greater() {
        let statement = |before, after, unit| {
            Statement { what: "", before, after, unit, machine: "", source: "" }.ratio()
        };
        assert_eq!((statement(30.0, 10.0, "ns"), statement(10.0, 30.0, "MiB/s")), (3.0, 3.0));
    }
}
