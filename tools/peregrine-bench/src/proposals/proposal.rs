//! What a proposal is: what its document said, and the variants that are measured.

use super::steps::Lab;
use engine::Error;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A proposal.
pub struct Proposal {
    /// For `--only` and for programs.
    pub name: &'static str,
    pub title: &'static str,
    pub clock: Clock,
    pub unit: Unit,
    pub statements: &'static [Statement],
    /// Why the numbers of the document and those measured here differ: one sentence.
    pub differs: &'static str,
    /// The first is without the proposal; others are compared with it.
    pub variants: &'static [Variant],
}

/// Which time is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// That of the processor, which other programs disturb less.
    Processor,
    /// That of the clock, where threads or waiting matter.
    Wall,
}

/// What was processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Bytes,
    Each(&'static str),
}

/// A measurement in a document.
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
}

/// A way of doing the same work.
pub struct Variant {
    pub name: &'static str,
    pub work: Work,
}

/// How it is measured.
#[derive(Clone, Copy)]
pub enum Work {
    /// In this process.
    Step(fn(&Lab<'_>, &mut Stopwatch) -> Result<Outcome, Error>),
    /// As a rebuild of the whole chain.
    Run(Run),
}

/// A rebuild.
#[derive(Clone, Copy)]
pub struct Run {
    pub args: &'static [&'static str],
    pub has_hints: bool,
    /// Whether the block files are without obfuscation.
    pub is_plain: bool,
}

/// The result of a step.
pub struct Outcome {
    /// The same for all variants of a proposal.
    pub answer: String,
    /// Number of units that were processed.
    pub count: usize,
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
        for _ in 0..2 {
            assert_eq!(watch.time(|| thread::sleep(Duration::from_millis(20))), ());
        }
        assert!(watch.wall >= Duration::from_millis(40), "{:?}", watch.wall);
        assert!(watch.processor < watch.wall, "sleeping takes no processor");
    }

    #[test]
    fn times_become_shorter_and_speeds_greater() {
        let statement = |before, after, unit| {
            Statement { what: "", before, after, unit, machine: "", source: "" }.ratio()
        };
        assert_eq!((statement(30.0, 10.0, "ns"), statement(10.0, 30.0, "MiB/s")), (3.0, 3.0));
    }
}
