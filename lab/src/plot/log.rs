//! Reads logs: Peregrine's run logs and Bitcoin Core's `debug.log`. Logs are hostile: long lines are
//! counted and skipped, and the number of points that are kept does not depend on the length of the log.

use super::core_log::{Activity, Settings, message, tip_point, unix_time};
use crate::text::{cut, memory};
use cli::run_log::{Line, Run};
use engine::{Stage, open_regular};
use std::{
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

/// Bytes of the longest line that is parsed; Core's `UpdateTip` lines have 300.
const MOST_LINE: u64 = 64 << 10;
/// At most twice this number of points of a log is kept: more than a screen has columns.
const KEEP: usize = 2048;
/// Greater heights are refused: this is 2,000 years of blocks.
const MOST_HEIGHT: u32 = 100_000_000;
/// The height of the last block of a run that only prepares: it is there to get headers and find peers.
const PREPARED: u32 = 1;
/// Stages of a run that are kept; a run has twelve kinds.
const MOST_STAGES: usize = 100;
/// Characters of a description that are kept.
const MOST_TEXT: usize = 2000;

/// A ratio of shorter times is noise.
const LEAST_SECONDS: f64 = 0.001;

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

/// What a log says of its run, as far as it does. Unknown texts are empty.
#[derive(Default, Debug)]
pub struct Series {
    pub name: String,
    pub is_core: bool,
    /// Times and heights ascend.
    pub points: Vec<Point>,
    /// When the run ended, if the log contains it; work may continue after the last block.
    pub end: Option<f64>,
    /// When each stage began; only in Peregrine's logs.
    pub stages: Vec<(f64, String)>,
    /// Only in Core's logs.
    pub activity: Activity,
    /// Name and version of the program.
    pub program: String,
    pub machine: String,
    /// Threads, memory, which scripts were run.
    pub settings: String,
    /// Hash of the last block.
    pub tip: Option<String>,
    /// `hash_serialized_3` of the result.
    pub utxo_hash: Option<String>,
    pub exit_code: Option<u8>,
    /// Number of lines that could not be parsed.
    pub bad_lines: u64,
}

impl Series {
    /// Returns the height of the last block.
    pub fn height(&self) -> u32 {
        self.points.last().map_or(0, |point| point.height)
    }

    /// Returns the time of the whole run.
    pub fn seconds(&self) -> f64 {
        self.end.unwrap_or_else(|| self.points.last().map_or(0.0, |point| point.seconds))
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
}

/// Reads a log.
pub fn read(path: &Path, name: String) -> io::Result<Series> {
    read_lines(BufReader::with_capacity(1 << 20, open_regular(path)?), name)
}

fn read_lines(mut reader: impl BufRead, name: String) -> io::Result<Series> {
    let mut log = Reading::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MOST_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == MOST_LINE && !line.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
            log.found.bad_lines += 1;
            continue;
        }
        log.line(String::from_utf8_lossy(&line).trim());
    }
    log.describe_core();
    let Reading { points, last, mut found, .. } = log;
    found.points = points.kept;
    found.points.extend(last.filter(|last| found.points.last() != Some(last)));
    found.end = found.end.filter(|end| *end >= 0.0);
    Ok(Series { name, ..found })
}

/// An even sample of points.
#[derive(Default, Debug)]
pub struct Thinned<T> {
    pub kept: Vec<T>,
    seen: usize,
    /// One point is kept, then this number is dropped.
    skip: usize,
}

impl<T> Thinned<T> {
    /// Adds a point, or drops it.
    pub fn push(&mut self, point: T) {
        if self.seen.is_multiple_of(self.skip + 1) {
            self.kept.push(point);
            if self.kept.len() == 2 * KEEP {
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.skip = 2 * self.skip + 1;
            }
        }
        self.seen += 1;
    }
}

/// The program that wrote a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    Peregrine,
    Core,
}

#[derive(Default)]
struct Reading {
    found: Series,
    points: Thinned<Point>,
    last: Option<Point>,
    writer: Option<Writer>,
    /// Core: what the node said when it was started.
    settings: Settings,
    /// Core: the time that counts as 0, in seconds since 1970.
    zero: Option<f64>,
    /// Core: the time of the previous line.
    before: Option<f64>,
    /// Core: when the node was last started, and what it said then, if no block followed yet.
    started: Option<(f64, Settings)>,
}

impl Reading {
    fn line(&mut self, line: &str) {
        if line.starts_with('{') && self.writer != Some(Writer::Core) {
            self.ours(line);
        } else if self.writer != Some(Writer::Peregrine) {
            self.cores(line);
        } else if !line.is_empty() {
            self.found.bad_lines += 1;
        }
    }

    fn ours(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Start { version, run }) => {
                let bad_lines = self.found.bad_lines;
                *self = Self { writer: Some(Writer::Peregrine), ..Self::default() };
                self.found = Series { bad_lines, ..Series::default() };
                self.start(&version, run.as_deref());
            }
            Ok(Line::Progress { seconds, blocks, bytes, memory_bytes, .. }) => {
                self.writer = Some(Writer::Peregrine);
                // The last of `blocks` blocks has this height, since genesis counts.
                let height = blocks.saturating_sub(1);
                let (bytes, point) = (Some(bytes), Point { seconds, height, ..Point::default() });
                self.point(Point { bytes, memory_bytes, ..point });
            }
            Ok(Line::Stage { seconds, stage }) => {
                if seconds.is_finite() && seconds >= 0.0 && self.found.stages.len() < MOST_STAGES {
                    self.found.stages.push((seconds, cut(&stage, MOST_TEXT)));
                }
            }
            Ok(Line::Plan { hash, .. }) => self.found.tip = Some(cut(&hash, 64)),
            Ok(Line::End { seconds, exit_code, hash_serialized_3 })
                if seconds.is_finite() && seconds >= 0.0 =>
            {
                self.found.end = Some(seconds);
                self.found.exit_code = exit_code;
                self.found.utxo_hash = hash_serialized_3.map(|hash| cut(&hash, 64));
            }
            Ok(Line::End { .. }) => self.found.bad_lines += 1,
            Ok(_) => {}
            // Events of a later version.
            Err(_) if line.starts_with("{\"event\":") && line.ends_with('}') => {
                let known = ["start", "progress", "end"].map(|name| format!("{{\"event\":\"{name}\""));
                self.found.bad_lines += u64::from(known.iter().any(|start| line.starts_with(start)));
            }
            Err(_) => self.found.bad_lines += 1,
        }
    }

    /// Takes what the first line of Peregrine's log says. Logs of older versions have only `version`.
    fn start(&mut self, version: &str, run: Option<&Run>) {
        let commit = run.and_then(|run| run.commit.as_ref());
        let commit = commit.map(|commit| format!(" ({})", commit.chars().take(10).collect::<String>()));
        self.found.program = cut(&format!("Peregrine {version}{}", commit.unwrap_or_default()), MOST_TEXT);
        let Some(Run { machine, threads, memory_bytes, assumevalid, .. }) = run else { return };
        let limit = memory(*memory_bytes as f64);
        let settings = format!("{threads} threads, {limit} memory limit, assumevalid {assumevalid}");
        self.found.settings = cut(&settings, MOST_TEXT);
        self.found.machine = cut(&machine.to_string(), MOST_TEXT);
    }

    /// Parses a line of Core's log. If the node was restarted, the pause does not count; if it started over,
    /// or had only prepared, earlier lines do not count.
    fn cores(&mut self, line: &str) {
        let time = line.split_once(' ').and_then(|(stamp, _)| unix_time(stamp));
        let message = message(line);
        if let Some(settings) = Settings::of_version(message) {
            self.started = time.map(|time| (time, settings));
        }
        if let Some((_, tip)) = line.split_once("UpdateTip: new best=") {
            self.writer = Some(Writer::Core);
            match (time, tip_point(tip)) {
                (Some(time), Some(point)) => {
                    self.tip(time, point);
                    if self.last.is_some_and(|last| last.height == point.height) {
                        self.found.tip = tip.split(' ').next().map(|hash| cut(hash, 64));
                    }
                }
                _ => self.found.bad_lines += 1,
            }
        } else if let Some((_, settings)) = &mut self.started {
            settings.line(message);
        } else if let Some((time, zero)) = time.zip(self.zero) {
            // What databases do before the first block belongs to the start.
            self.found.activity.line(time - zero, message);
        }
        // A node that was only started and stopped again adds nothing to the run.
        // Bitcoin Core up to version 29 wrote a colon.
        let is_end = ["Shutdown done", "Shutdown: done"].contains(&message);
        if is_end && self.started.is_none() {
            self.found.end = time.zip(self.zero).map(|(time, zero)| time - zero);
        }
        self.before = time.or(self.before);
    }

    fn tip(&mut self, time: f64, point: Point) {
        if let Some((started, settings)) = self.started.take() {
            self.settings = settings;
            if self.last.is_some_and(|last| point.height > last.height && last.height > PREPARED) {
                let pause = started - self.before_start(started);
                self.zero = self.zero.map(|zero| zero + pause.max(0.0));
            } else {
                let (bad_lines, settings) = (self.found.bad_lines, std::mem::take(&mut self.settings));
                let (writer, zero) = (self.writer, Some(started));
                let found = Series { bad_lines, ..Series::default() };
                *self = Self { found, settings, writer, zero, ..Self::default() };
            }
        }
        let zero = *self.zero.get_or_insert(self.before.unwrap_or(time).min(time));
        self.point(Point { seconds: time - zero, ..point });
    }

    /// Turns what the node said of itself into a description.
    fn describe_core(&mut self) {
        if self.writer != Some(Writer::Core) {
            return;
        }
        let Settings { program, dbcache, assumevalid } = std::mem::take(&mut self.settings);
        let dbcache = dbcache.map(|mebibytes| format!("dbcache {mebibytes}"));
        self.found.is_core = true;
        self.found.program = program;
        self.found.settings = [dbcache, assumevalid].into_iter().flatten().collect::<Vec<_>>().join(", ");
    }

    /// The time of the last line before the node was restarted.
    fn before_start(&self, started: f64) -> f64 {
        self.zero.zip(self.last).map_or(started, |(zero, last)| zero + last.seconds)
    }

    fn point(&mut self, point: Point) {
        let Point { seconds, height, .. } = point;
        let before = self.last.map_or((0.0, 0), |last| (last.seconds, last.height));
        if !seconds.is_finite() || seconds < before.0 || height > MOST_HEIGHT {
            self.found.bad_lines += 1;
        } else if height > before.1 || self.last.is_none() {
            // A tip that is not higher is a reorganisation: the line continues above it.
            self.points.push(point);
            self.last = Some(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(text: &str) -> Series {
        read_lines(text.as_bytes(), "log".to_owned()).unwrap()
    }

    fn tip(stamp: &str, height: u32) -> String {
        format!(
            "{stamp} UpdateTip: new best=00 height={height} version=0x1 tx={height} cache=1.5MiB(10txo)\n"
        )
    }

    #[test]
    fn cores_lines_are_read() {
        let text = "2026-01-01T00:00:00Z Bitcoin Core version v30\n".to_owned()
            + &tip("2026-01-01T00:00:02Z", 0)
            + "2026-01-01T00:00:03Z something else\n"
            + "2026-01-01T00:00:03Z UpdateTip: new best=00 height=x\n"
            + &tip("2026-01-01T00:00:04.500000Z", 7)
            + "2026-01-01T00:00:06Z Shutdown done\n";
        let log = series(&text);
        assert_eq!((log.is_core, log.bad_lines, log.points.len()), (true, 1, 2));
        assert_eq!(log.end, Some(6.0));
        let Point { seconds, height, cache_bytes, cache_coins, transactions, .. } = log.points[1];
        assert_eq!((seconds, height, transactions), (4.5, 7, Some(7)));
        assert_eq!((cache_bytes, cache_coins), (Some(3 << 19), Some(10)));
    }

    #[test]
    fn the_end_of_a_run_is_found_in_logs_of_all_versions() {
        let start = tip("2026-01-01T00:00:00Z", 0) + &tip("2026-01-01T00:00:04Z", 7);
        for end in ["Shutdown done", "Shutdown: done", "[shutoff] Shutdown: done"] {
            let log = series(&format!("{start}2026-01-01T00:12:34Z {end}\n"));
            assert_eq!(log.end, Some(754.0), "{end}");
        }
        let log = series(&(start + "2026-01-01T00:12:34Z not Shutdown: done\n"));
        assert_eq!((log.end, log.seconds()), (None, 4.0));
    }

    #[test]
    fn a_pause_does_not_count_and_a_new_beginning_does() {
        let start = |stamp: &str| format!("{stamp} Bitcoin Core version v30\n");
        let first = start("2026-01-01T00:00:00Z") + &tip("2026-01-01T00:00:10Z", 5);
        let on = first.clone() + &start("2026-01-01T01:00:00Z") + &tip("2026-01-01T01:00:03Z", 6);
        let on = series(&on);
        assert_eq!(on.points.iter().map(|point| point.seconds).collect::<Vec<_>>(), [10.0, 13.0]);
        let anew = first + &start("2026-01-01T01:00:00Z") + &tip("2026-01-01T01:00:03Z", 0);
        let anew = series(&anew);
        assert_eq!((anew.points.len(), anew.points[0].seconds), (1, 3.0));
        let prepared = start("2026-01-01T00:00:00Z") + &tip("2026-01-01T00:00:10Z", 1);
        let behind = prepared + &start("2026-01-01T01:00:00Z") + &tip("2026-01-01T01:00:03Z", 2);
        let behind = series(&behind);
        assert_eq!((behind.points.len(), behind.points[0].seconds), (1, 3.0));
    }

    #[test]
    fn our_lines_are_read() {
        let line = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
        let progress = |seconds, blocks| {
            let (bytes, memory_bytes) = (u64::from(blocks) * 100, Some(1 << 20));
            let (blocks_total, bytes_total) = (9, 900);
            line(&Line::Progress { seconds, blocks, blocks_total, bytes, bytes_total, memory_bytes })
        };
        let text = "{\"event\":\"start\",\"version\":\"1\"}\n".to_owned()
            + &progress(1.0, 3)
            + "{\"event\":\"of_a_later_version\"}\n{\"event\":\"progress\",\"seconds\":\n"
            + &progress(0.5, 4)
            + &progress(2.0, 9)
            + "{\"event\":\"end\",\"seconds\":2.5}\n";
        let log = series(&text);
        assert_eq!((log.is_core, log.bad_lines, log.end), (false, 2, Some(2.5)));
        let heights: Vec<_> = log.points.iter().map(|point| (point.height, point.bytes)).collect();
        assert_eq!(heights, [(2, Some(300)), (8, Some(900))]);
    }

    #[test]
    fn any_log_ends_in_a_bounded_number_of_points() {
        let zero = unix_time("2026-01-01T00:00:00Z").unwrap();
        let mut reading = Reading::default();
        for height in 0..100_000 {
            reading.tip(zero + f64::from(height), Point { height, ..Point::default() });
        }
        assert!((KEEP..=2 * KEEP).contains(&reading.points.kept.len()));
        assert_eq!(reading.last.unwrap().height, 99_999);
        let long = "x".repeat(200_000) + "\n" + &tip("2026-01-01T00:00:00Z", 1);
        let log = series(&long);
        assert_eq!((log.bad_lines, log.points.len()), (1, 1));
        let log = series("\u{0}\u{fffd}nonsense\n\n{}\n{\"event\":\"progress\"}");
        assert_eq!(log.points.len(), 0);
    }
}
