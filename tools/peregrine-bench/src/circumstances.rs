//! Under which circumstances something was measured: machine, load, commit.

use cli::{run_log::Machine, version::commit_or_version};
use serde::Serialize;

/// The circumstances of a measurement.
#[derive(Serialize)]
pub struct Circumstances {
    machine: Machine,
    /// Commit of the sources of this program, or its version if that is not known.
    commit: &'static str,
    /// The system's load average of one minute, before and after.
    load: [Option<f64>; 2],
}

impl Circumstances {
    /// Describes the system before the first run.
    pub fn begin() -> Self {
        Self { machine: Machine::this(), commit: commit_or_version(), load: [load(), None] }
    }

    /// Adds what is known after the last run.
    pub fn end(self) -> Self {
        Self { load: [self.load[0], load()], ..self }
    }

    /// Returns the description as names and facts.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let [before, after] =
            self.load.map(|load| load.map_or("unknown".to_owned(), |load| format!("{load:.1}")));
        vec![
            ("machine", self.machine.to_string()),
            ("load", format!("{before} before, {after} after")),
            ("commit", self.commit.to_owned()),
        ]
    }

    /// Returns the description as lines.
    pub fn text(&self) -> String {
        self.facts().into_iter().map(|(name, fact)| format!("{name:<8} {fact}\n")).collect()
    }
}

/// Returns the system's load average of one minute, if it is known.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circumstances_name_the_machine_and_the_commit() {
        let text = Circumstances::begin().end().text();
        assert!(text.contains(" cores, ") && text.contains(" GiB") && text.contains("commit "), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
}
