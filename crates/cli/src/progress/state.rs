//! What is known of the work of a run: its stage, how much of it is done, and how fast it goes.

use crate::units::duration;
use engine::{CoinProgress, Event, HumanSize, Stage};
use schemars::JsonSchema;
use serde::Serialize;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};
use sync::{DownloadLimit, PeerStatus};

/// Time over which the rate is measured: it follows the work, but does not jump.
const RATE_WINDOW: Duration = Duration::from_secs(20);
/// Least time over which it is measured.
const RATE_WINDOW_MIN: Duration = Duration::from_secs(1);
/// Time from the start of a stage to the estimate of its duration.
const ESTIMATE_AFTER: Duration = Duration::from_secs(5);
/// Least remaining time for which an estimate is of use.
const ESTIMATE_MIN: Duration = Duration::from_secs(30);

/// Number of points that are kept, about.
const POINTS: u32 = 100;

// How much was done by then. Here and below, a doc comment would be in the schema.
#[derive(Clone, Serialize, JsonSchema)]
pub struct PointJson {
    seconds: f64,
    blocks: u32,
    bytes: u64,
    memory_bytes: Option<u64>,
}

// When a stage began.
#[derive(Clone, Serialize, JsonSchema)]
pub struct StageStartJson {
    stage: &'static str,
    seconds: f64,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Bytes of blocks, and the blocks; or bytes of a database, and no blocks.
    Blocks { blocks: u32, blocks_total: u32 },
    /// Coins; there is nothing else to count.
    Coins,
}

/// How much of a stage is done.
#[derive(Clone, Debug)]
pub struct Amount {
    pub work: Work,
    /// Bytes or coins.
    pub done: u64,
    pub total: u64,
    /// When how much was done, for the rate. The first one counts as the start: what an earlier run did is
    /// not this run's speed.
    samples: VecDeque<(Instant, u64)>,
}

impl Amount {
    /// Per second; `None` if that is not known yet.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let &(at, done) = self.samples.front()?;
        let time = now.saturating_duration_since(at);
        let more = self.done.saturating_sub(done);
        (time >= RATE_WINDOW_MIN && more > 0).then(|| more as f64 / time.as_secs_f64())
    }

    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let left = self.total.saturating_sub(self.done) as f64;
        Duration::try_from_secs_f64(left / self.rate(now)?).ok()
    }

    /// From 0 to 1; `None` if there is no total.
    pub fn share(&self) -> Option<f64> {
        (self.total > 0).then(|| (self.done as f64 / self.total as f64).min(1.0))
    }

    fn sample(&mut self, now: Instant) {
        let is_due = |last: &(Instant, u64)| now.saturating_duration_since(last.0) >= RATE_WINDOW_MIN;
        if self.samples.back().is_none_or(is_due) {
            self.samples.push_back((now, self.done));
        }
        // The first one that is kept is at least as old as the window, if there is one.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= RATE_WINDOW) {
            self.samples.pop_front();
        }
    }
}

/// What is known of a run.
pub struct State {
    /// The stages that the command has, in order; empty if that depends on too much.
    stages: &'static [Stage],
    pub stage: Option<Stage>,
    /// The stage's number among them, from 1.
    pub number: Option<usize>,
    pub started: Instant,
    pub amount: Option<Amount>,
    /// When the stage began.
    stage_started: Instant,
    has_estimate: bool,
    /// While blocks are downloaded.
    pub peers: Option<(Vec<PeerStatus>, DownloadLimit)>,
    /// How much of the blocks was done at which time.
    pub points: Vec<PointJson>,
    pub stage_starts: Vec<StageStartJson>,
}

impl State {
    pub fn new(stages: &'static [Stage], now: Instant) -> Self {
        Self {
            stages,
            stage: None,
            number: None,
            started: now,
            amount: None,
            stage_started: now,
            has_estimate: false,
            peers: None,
            points: Vec::new(),
            stage_starts: Vec::new(),
        }
    }

    /// Number of stages of the command; 0 if unknown.
    pub const fn stages_total(&self) -> usize {
        self.stages.len()
    }

    /// Takes what an event reports.
    pub fn event(&mut self, event: &Event, now: Instant) {
        let seconds = now.saturating_duration_since(self.started).as_secs_f64();
        match event {
            Event::Started(stage) => {
                self.stage_starts.push(StageStartJson { stage: stage.name(), seconds });
                // A stage that is not in the list is part of the one before, such as making undo data.
                let is_same = self.stage == Some(*stage) && self.number.is_some();
                // Stages of a second pass are in the list again.
                let begun = self.number.unwrap_or_default();
                let position = |from: usize| {
                    let index = self.stages.iter().skip(from).position(|other| other == stage)?;
                    Some(from + index + 1)
                };
                if !is_same {
                    self.number = position(begun).or_else(|| position(0)).or(self.number);
                }
                (self.stage, self.stage_started) = (Some(*stage), now);
                (self.amount, self.peers) = (None, None);
            }
            Event::Progress(engine::Progress { blocks, blocks_total, bytes, bytes_total }) => {
                let last = self.points.last().map_or(0, |point| point.blocks);
                if *blocks >= last + (blocks_total / POINTS).max(1) {
                    let memory_bytes = engine::machine::resident_bytes();
                    self.points.push(PointJson { seconds, blocks: *blocks, bytes: *bytes, memory_bytes });
                }
                let work = Work::Blocks { blocks: *blocks, blocks_total: *blocks_total };
                self.count(work, *bytes, *bytes_total, now);
            }
            Event::Coins(CoinProgress { coins, coins_total }) => {
                self.count(Work::Coins, *coins, *coins_total, now);
            }
            _ => {}
        }
    }

    fn count(&mut self, work: Work, done: u64, total: u64, now: Instant) {
        let is_same = |amount: &Amount| {
            // With less done, another pass has begun.
            (amount.work == Work::Coins) == (work == Work::Coins) && amount.done <= done
        };
        let old = self.amount.take().filter(is_same);
        let samples = old.map(|amount| amount.samples).unwrap_or_default();
        let amount = self.amount.insert(Amount { work, done, total, samples });
        amount.sample(now);
    }

    /// Returns an estimate of the duration in words, once, when some seconds show how fast the work goes.
    pub fn estimate(&mut self, now: Instant) -> Option<String> {
        if self.has_estimate || now.saturating_duration_since(self.stage_started) < ESTIMATE_AFTER {
            return None;
        }
        let (amount, stage) = (self.amount.as_ref()?, self.stage?);
        let Work::Blocks { blocks_total: 1.., .. } = amount.work else { return None };
        let (remaining, rate) = (amount.remaining(now)?, amount.rate(now)?);
        self.has_estimate = true;
        let text = format!(
            "stage {stage} will take about {} more, at {}/s",
            duration(remaining),
            HumanSize(rate as u64)
        );
        (remaining >= ESTIMATE_MIN).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(megabytes: u64) -> Event {
        let (bytes, bytes_total) = (megabytes * 1_000_000, 1_000_000_000);
        Event::Progress(engine::Progress { blocks: 1, blocks_total: 9, bytes, bytes_total })
    }

    /// Work that an earlier run did does not count as fast work.
    #[test]
    fn the_rate_is_that_of_this_run_and_of_the_last_seconds() {
        let start = Instant::now();
        let mut state = State::new(&[], start);
        let mut at = |seconds: u64, megabytes: u64| {
            let now = start + Duration::from_secs(seconds);
            state.event(&progress(megabytes), now);
            let amount = state.amount.as_ref().unwrap();
            amount.rate(now).map(|rate| (rate / 1e6).round() as u64).zip(amount.remaining(now))
        };
        assert_eq!(at(0, 500), None);
        assert_eq!(at(4, 540), Some((10, Duration::from_secs(46))));
        assert_eq!(at(10, 600), Some((10, Duration::from_secs(40))));
        assert_eq!(at(20, 0), None, "another pass begins");
        assert_eq!(at(30, 250), Some((25, Duration::from_secs(30))));
        (31..50).for_each(|second| assert!(at(second, 250).is_some()));
        assert_eq!(at(50, 250), None, "the work stands still");
    }

    #[test]
    fn stages_are_counted_and_others_belong_to_the_one_before() {
        let now = Instant::now();
        let mut state = State::new(&[Stage::Plan, Stage::Check, Stage::Finish], now);
        let mut number = |stage| {
            state.event(&Event::Started(stage), now);
            state.number
        };
        assert_eq!(number(Stage::Plan), Some(1));
        assert_eq!((number(Stage::Check), number(Stage::Undo)), (Some(2), Some(2)));
        assert_eq!(number(Stage::Finish), Some(3));
    }

    #[test]
    fn the_stages_of_a_second_pass_are_counted_on() {
        let now = Instant::now();
        let mut state = State::new(super::super::stages::REPAIR, now);
        let passed = [Stage::Plan, Stage::Check, Stage::Headers, Stage::Download, Stage::Prove];
        let again = [Stage::Plan, Stage::Check, Stage::Finish, Stage::Prove, Stage::Commit];
        for (stage, number) in passed.into_iter().chain(again).zip(1..) {
            state.event(&Event::Started(stage), now);
            assert_eq!((state.number, state.stages_total()), (Some(number), 10));
        }
    }

    #[test]
    fn the_duration_is_estimated_once_after_five_seconds() {
        let start = Instant::now();
        let mut state = State::new(&[], start);
        state.event(&Event::Started(Stage::Check), start);
        let mut at = |seconds: u64, megabytes: u64| {
            let now = start + Duration::from_secs(seconds);
            state.event(&progress(megabytes), now);
            state.estimate(now)
        };
        assert_eq!((at(0, 0), at(4, 4)), (None, None));
        assert_eq!(at(5, 5).unwrap(), "stage check will take about 16 minutes more, at 1 MB/s");
        assert_eq!(at(6, 6), None);
    }
}
