//! Where the time goes.

use crate::stages::{Stage, check::Outcome};
use std::time::{Duration, Instant};

/// Where the time goes.
pub struct Clock {
    /// When the run began.
    pub started: Instant,
    lap: Instant,
    /// Time by stage.
    pub stages: Vec<(Stage, Duration)>,
    /// Time in which read, check and settle ran side by side.
    parallel: Duration,
}

impl Clock {
    /// Starts.
    #[must_use]
    pub fn start() -> Self {
        let now = Instant::now();
        Self { started: now, lap: now, stages: Vec::new(), parallel: Duration::ZERO }
    }

    /// Ends a stage that ran by itself.
    pub fn lap(&mut self, stage: Stage) {
        self.stages.push((stage, self.lap.elapsed()));
        self.lap = Instant::now();
    }

    /// Ends the stages that ran side by side; their times are summed over threads.
    pub fn side_by_side(&mut self, workers: &Outcome) {
        self.stages.push((Stage::Read, workers.reading));
        self.stages.push((Stage::Check, workers.checking.saturating_sub(workers.matching)));
        self.stages.push((Stage::Scripts, workers.scripting));
        self.stages.push((Stage::Match, workers.matching));
        self.parallel = self.lap.elapsed();
        self.lap = Instant::now();
    }

    /// What held the run up: reading, if workers spent half of their time with it.
    pub fn bound_by(&self, threads: usize) -> &'static str {
        let time =
            |wanted| self.stages.iter().filter(|(stage, _)| *stage == wanted).map(|(_, time)| *time).sum();
        let [read, finish, prove, judge, scripts]: [Duration; 5] =
            [Stage::Read, Stage::Finish, Stage::Prove, Stage::Sequential, Stage::Scripts].map(time);
        if judge > self.parallel {
            "going through the blocks in order"
        } else if finish + prove > self.parallel {
            "writing and reading back the chainstate"
        } else if scripts * 2 > self.parallel * threads as u32 {
            "running scripts"
        } else if read * 2 > self.parallel * threads as u32 {
            "reading the block files"
        } else {
            "hashing and checking blocks"
        }
    }
}
