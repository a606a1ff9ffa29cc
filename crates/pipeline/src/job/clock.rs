//! Measures how long each stage takes.

use crate::stages::check::Outcome;
use api::{
    report::{BoundBy, StageTime},
    stage::Stage,
};
use std::time::{Duration, Instant};

/// Time per stage.
pub struct Clock {
    pub started: Instant,
    lap: Instant,
    pub stages: Vec<StageTime>,
    /// Time in which the parallel stages (read, check, scripts, match) ran.
    parallel: Duration,
}

impl Clock {
    pub fn start() -> Self {
        let now = Instant::now();
        Self { started: now, lap: now, stages: Vec::new(), parallel: Duration::ZERO }
    }

    /// Ends a stage that ran by itself.
    pub fn lap(&mut self, stage: Stage) {
        self.stages.push(StageTime { stage, time: self.lap.elapsed() });
        self.lap = Instant::now();
    }

    /// Ends the parallel stages; their times are sums over all threads, except for that of undo data.
    pub fn lap_parallel(&mut self, workers: &Outcome) {
        let mut push = |stage, time| self.stages.push(StageTime { stage, time });
        push(Stage::Read, workers.reading);
        push(Stage::Check, workers.checking.saturating_sub(workers.matching));
        push(Stage::Scripts, workers.scripting);
        push(Stage::Match, workers.matching);
        if !workers.making_undo.is_zero() {
            push(Stage::Undo, workers.making_undo);
        }
        self.parallel = self.lap.elapsed();
        self.lap = Instant::now();
    }

    /// Names what limited the speed: reading, for example, if workers spent half of their time reading.
    pub fn bound_by(&self, threads: usize) -> BoundBy {
        let time = |stage_wanted| {
            self.stages.iter().filter(|one| one.stage == stage_wanted).map(|one| one.time).sum()
        };
        let [read, finish, prove, sequential, connect, scripts]: [Duration; 6] =
            [Stage::Read, Stage::Finish, Stage::Prove, Stage::Sequential, Stage::Connect, Stage::Scripts]
                .map(time);
        if sequential + connect > self.parallel {
            BoundBy::Sequential
        } else if finish + prove > self.parallel {
            BoundBy::Finish
        } else if scripts * 2 > self.parallel * threads as u32 {
            BoundBy::Scripts
        } else if read * 2 > self.parallel * threads as u32 {
            BoundBy::Read
        } else {
            BoundBy::Check
        }
    }
}
