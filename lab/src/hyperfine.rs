//! Results in the JSON format of hyperfine's `--export-json`, which benchcoin and others use too. One type is
//! both written and read.

use crate::{measure::Measured, statistics::Spread};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// The parameter that names the proposal which a result measures.
pub const PROPOSAL: &str = "proposal";

/// The contents of a file.
#[derive(Serialize, Deserialize, Default, Debug)]
pub struct Results {
    pub results: Vec<Timing>,
}

/// All runs of one command. Times are in seconds. Readers of the format must expect that fields are missing.
#[derive(Serialize, Deserialize, Default, PartialEq, Debug)]
pub struct Timing {
    /// The name of the command, if it has one, otherwise the command.
    pub command: String,
    pub mean: f64,
    /// Standard deviation; `None` for a single run.
    #[serde(default)]
    pub stddev: Option<f64>,
    #[serde(default)]
    pub median: Option<f64>,
    /// Mean of the processor time.
    #[serde(default)]
    pub user: Option<f64>,
    #[serde(default)]
    pub system: Option<f64>,
    #[serde(default)]
    pub min: Option<f64>,
    #[serde(default)]
    pub max: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<f64>,
    /// Peak resident memory of each run, in bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_usage_byte: Vec<u64>,
    /// `None` if a signal ended the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<Option<i32>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl Timing {
    /// Returns the time that stands for the command: the median, if it is known.
    pub fn seconds(&self) -> f64 {
        let median = Spread::of(&self.times).map(|spread| spread.median);
        self.median.or(median).unwrap_or(self.mean)
    }
}

impl Results {
    /// Adds a run of a program. `proposal` is what it measures, if the benchmark measures proposals.
    pub fn add(&mut self, program: &str, proposal: Option<&str>, measured: &Measured) {
        let at = self.results.iter().position(|timing| timing.command == program).unwrap_or_else(|| {
            let parameters =
                proposal.map(|name| (PROPOSAL.to_owned(), name.to_owned())).into_iter().collect();
            self.results.push(Timing { command: program.to_owned(), parameters, ..Timing::default() });
            self.results.len() - 1
        });
        let timing = &mut self.results[at];
        let runs = timing.times.len() as f64;
        let mean = |before: Option<f64>, time: Duration| {
            Some((before.unwrap_or(0.0) * runs + time.as_secs_f64()) / (runs + 1.0))
        };
        (timing.user, timing.system) =
            (mean(timing.user, measured.user), mean(timing.system, measured.system));
        timing.times.push(measured.wall.as_secs_f64());
        timing.memory_usage_byte.push(measured.peak_rss_bytes);
        timing.exit_codes.push(measured.status.code());
        timing.summarize();
    }
}

impl Timing {
    /// Works out what follows from the times.
    fn summarize(&mut self) {
        let count = self.times.len() as f64;
        self.mean = self.times.iter().sum::<f64>() / count;
        let squares: f64 = self.times.iter().map(|time| (time - self.mean).powi(2)).sum();
        self.stddev = (count > 1.0).then(|| (squares / (count - 1.0)).sqrt());
        if let Some(Spread { lowest, median, highest, .. }) = Spread::of(&self.times) {
            (self.min, self.median, self.max) = (Some(lowest), Some(median), Some(highest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_the_times_is_hyperfines() {
        let mut timing = Timing { times: vec![1.0, 2.0, 6.0], ..Timing::default() };
        timing.summarize();
        let Timing { mean, stddev, median, min, max, .. } = timing;
        assert_eq!((mean, median, min, max), (3.0, Some(2.0), Some(1.0), Some(6.0)));
        assert!((stddev.unwrap() - 7.0_f64.sqrt()).abs() < 1e-12);
        let mut timing = Timing { times: vec![4.0], ..Timing::default() };
        timing.summarize();
        assert_eq!((timing.stddev, timing.seconds()), (None, 4.0));
    }

    #[test]
    fn files_of_hyperfine_and_of_benchcoin_are_read() {
        let text = r#"{"results":[{"command":"base (0dca)","mean":17.5,"stddev":null,"median":17.4,"user":2.7,
            "system":0.8,"min":17.4,"max":17.6,"times":[17.4,17.6],"memory_usage_byte":[1,2],
            "exit_codes":[0,null],"parameters":{"COMMIT":"0dca"},"network":"signet"},
            {"profile":"450","config":{},"command":"head","mean":20.0,"stddev":null,"user":1,"system":2}],
            "speedups":{}}"#;
        let Results { results } = serde_json::from_str(text).unwrap();
        assert_eq!(results.iter().map(Timing::seconds).collect::<Vec<_>>(), [17.4, 20.0]);
        assert_eq!((results[0].exit_codes[1], &*results[0].parameters["COMMIT"]), (None, "0dca"));
    }
}
