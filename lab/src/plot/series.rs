//! What is known of a run, from its log, or of all runs of a command, from a file of results.

use super::core_log::Activity;
use crate::{
    hyperfine::Timing,
    text::{data, duration, memory, number},
};
use engine::Stage;

/// A ratio of shorter times is noise.
const LEAST_SECONDS: f64 = 0.001;
/// Longer settings are hashes, which are no use but among all facts.
const LONG_SETTING: usize = 40;

/// The progress of a run at one time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Point {
    /// Time since the start of the run.
    pub seconds: f64,
    pub height: u32,
    /// Bytes of blocks done; only in Peregrine's logs.
    pub bytes: Option<u64>,
    /// Transactions in the chain so far; only in Core's logs.
    pub transactions: Option<u64>,
    /// Size of the coins cache; only in Core's logs.
    pub cache_bytes: Option<u64>,
    pub cache_coins: Option<u64>,
    /// Resident memory; only in Peregrine's logs.
    pub memory_bytes: Option<u64>,
}

/// The program that wrote a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writer {
    Peregrine,
    Core,
}

/// What a log says of its run, as far as it does.
#[derive(Default, PartialEq, Debug)]
pub struct About {
    /// Name and version of the program.
    pub program: Option<String>,
    /// The command as one would type it, without paths.
    pub command: Option<String>,
    pub machine: Option<String>,
    /// Threads, memory, which scripts were run.
    pub settings: Vec<String>,
    /// Hash of the last block.
    pub tip: Option<String>,
    /// `hash_serialized_3` of the result.
    pub utxo_hash: Option<String>,
    pub exit_code: Option<i64>,
}

/// A log as a line to draw, or a result, which has no points.
#[derive(Default, Debug)]
pub struct Series {
    pub name: String,
    pub writer: Option<Writer>,
    /// Times and heights ascend.
    pub points: Vec<Point>,
    /// When the run ended, if the log contains it; work may continue after the last block.
    pub end: Option<f64>,
    /// When each stage began; only in Peregrine's logs.
    pub stages: Vec<(f64, String)>,
    /// Only in Core's logs.
    pub activity: Activity,
    pub about: About,
    /// Number of lines that could not be parsed.
    pub bad_lines: u64,
    /// Only of results.
    pub timing: Option<Timing>,
}

impl Series {
    /// Returns the height of the last block.
    pub fn height(&self) -> u32 {
        self.points.last().map_or(0, |point| point.height)
    }

    /// Returns the time of the whole run, or that which stands for all runs, in seconds.
    pub fn seconds(&self) -> f64 {
        let last = self.points.last().map_or(0.0, |point| point.seconds);
        self.timing.as_ref().map_or(self.end.unwrap_or(last), Timing::seconds)
    }

    /// Returns the seconds of each run, as far as they are known.
    pub fn runs(&self) -> Vec<f64> {
        self.timing.as_ref().map_or_else(|| vec![self.seconds()], |timing| timing.times.clone())
    }

    /// Returns whether Bitcoin Core ran.
    pub fn is_of_core(&self) -> bool {
        let name = self.name.to_lowercase();
        let is_named = ["bitcoind", "core"].iter().any(|core| name.contains(core));
        match self.timing {
            Some(_) => is_named && !name.contains("peregrine"),
            None => self.writer == Some(Writer::Core),
        }
    }

    /// Returns the value at a height, interpolated linearly; `None` outside the points.
    pub fn at_height(&self, height: u32, of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
        let after = self.points.partition_point(|point| point.height < height);
        let above = self.points.get(after)?;
        if above.height == height {
            return of(above);
        }
        let below = self.points.get(after.checked_sub(1)?)?;
        let share = f64::from(height - below.height) / f64::from(above.height - below.height);
        let (low, high) = of(below).zip(of(above))?;
        Some(low + (high - low) * share)
    }

    /// Returns how many times as fast as `base` this run reached a height.
    pub fn faster_than(&self, base: &Self, height: u32) -> Option<f64> {
        let [base, own] = [base, self].map(|run| run.at_height(height, |point| Some(point.seconds)));
        let (base, own) = base.zip(own)?;
        (own >= LEAST_SECONDS && base >= LEAST_SECONDS).then(|| base / own)
    }

    /// Returns bytes of blocks and how many were checked in a second.
    pub fn blocks(&self) -> Option<String> {
        let last = self.points.last()?;
        let bytes = last.bytes? as f64;
        Some(format!("{} of blocks, checked at {}/s", data(bytes), data(bytes / last.seconds.max(1e-9))))
    }

    /// Returns the settings that are no hashes.
    pub fn short_settings(&self) -> String {
        let all = self.about.settings.iter().filter(|setting| setting.len() < LONG_SETTING);
        all.cloned().collect::<Vec<_>>().join(", ")
    }

    /// Returns the seconds that the run spent in each stage, with names for readers who do not know the
    /// program.
    pub fn spent(&self) -> Vec<(&str, f64)> {
        let mut spent: Vec<(&str, f64)> = Vec::new();
        let ends = self.stages.iter().skip(1).map(|(begin, _)| *begin).chain([self.seconds()]);
        for ((begin, stage), end) in self.stages.iter().zip(ends) {
            let name = match Stage::ALL.into_iter().find(|known| known.name() == stage) {
                Some(Stage::Plan) => "choose the chain",
                Some(Stage::Check) => "check blocks",
                Some(Stage::Undo) => "make undo data",
                Some(Stage::Sequential) => "validate in order",
                Some(Stage::Finish) => "write the chainstate",
                Some(Stage::Prove) => "read it back",
                Some(Stage::Commit) => "put it in place",
                _ => stage,
            };
            let seconds = (end - begin).max(0.0);
            match spent.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += seconds,
                None => spent.push((name, seconds)),
            }
        }
        spent
    }

    /// Returns all that is known.
    pub fn facts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let about = &self.about;
        let most = |of: fn(&Point) -> Option<u64>| {
            self.points.iter().filter_map(of).max().map(|bytes| format!("{} at most", memory(bytes as f64)))
        };
        let tip = about.tip.as_ref().map_or(String::new(), |tip| format!(", block {tip}"));
        let reached = |last: &Point| {
            let (time, end) = (duration(last.seconds), duration(self.seconds()));
            format!("height {} after {time}{tip}; ended after {end}", number(f64::from(last.height)))
        };
        let all = [
            ("command", about.command.clone()),
            ("machine", about.machine.clone()),
            ("version", about.program.clone()),
            ("settings", Some(about.settings.join(", ")).filter(|settings| !settings.is_empty())),
            ("reached", self.points.last().map(reached)),
            ("speed", self.blocks()),
            ("result", about.utxo_hash.as_ref().map(|hash| format!("hash_serialized_3 {hash}"))),
            ("exit code", about.exit_code.map(|code| code.to_string())),
            ("memory", most(|point| point.memory_bytes)),
            ("coins cache", most(|point| point.cache_bytes)),
            ("databases", self.activity.in_words(self.seconds())),
            ("times", self.timing.as_ref().map(|timing| times_in_words(timing, true))),
            ("bad lines", (self.bad_lines > 0).then(|| self.bad_lines.to_string())),
        ];
        all.into_iter().filter_map(|(name, fact)| Some((name, fact?)))
    }
}

/// Returns the median of runs and their range, or all that is known of them.
pub fn times_in_words(timing: &Timing, all: bool) -> String {
    let Timing { mean, stddev, min, max, user, system, times, .. } = timing;
    let mut parts = Vec::new();
    if times.len() > 1 {
        parts.push(format!("median of {} runs", times.len()));
        let range = min.zip(*max).map(|(min, max)| format!("{} to {}", duration(min), duration(max)));
        parts.extend(range);
    }
    if all {
        let cpu = user.zip(*system).map(|(user, system)| format!("processor {}", duration(user + system)));
        parts.push(format!("mean {}", duration(*mean)));
        parts.extend(stddev.map(|stddev| format!("standard deviation {}", duration(stddev))));
        parts.extend(cpu);
    }
    parts.join(", ")
}
