//! Reads logs: Peregrine's run logs and Bitcoin Core's `debug.log`. Logs are hostile: long lines are
//! counted and skipped, and the number of points that are kept does not depend on the length of the log.

use cli::run_log::Line;
use engine::open_regular;
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

/// A log as a line to draw.
#[derive(Debug)]
pub struct Series {
    pub name: String,
    pub writer: Option<Writer>,
    /// Times and heights ascend.
    pub points: Vec<Point>,
    /// When the run ended, if the log contains it; work may continue after the last block.
    pub end: Option<f64>,
    /// Number of lines that could not be parsed.
    pub bad_lines: u64,
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
            log.bad_lines += 1;
            continue;
        }
        log.line(String::from_utf8_lossy(&line).trim());
    }
    let Reading { points, last, writer, end, bad_lines, .. } = log;
    let mut points = points.kept;
    points.extend(last.filter(|last| points.last() != Some(last)));
    let end = end.filter(|end| *end >= 0.0).or_else(|| points.last().map(|point| point.seconds));
    Ok(Series { name, writer, points, end, bad_lines })
}

/// An even sample of the points.
#[derive(Default)]
struct Thinned {
    kept: Vec<Point>,
    seen: usize,
    /// One point is kept, then this number is dropped.
    skip: usize,
}

impl Thinned {
    fn push(&mut self, point: Point) {
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

#[derive(Default)]
struct Reading {
    points: Thinned,
    last: Option<Point>,
    writer: Option<Writer>,
    end: Option<f64>,
    bad_lines: u64,
    /// Core: the time that counts as 0, in seconds since 1970.
    zero: Option<f64>,
    /// Core: the time of the previous line, and when the node was last started if no block followed yet.
    before: Option<f64>,
    started: Option<f64>,
}

impl Reading {
    fn line(&mut self, line: &str) {
        if line.starts_with('{') && self.writer != Some(Writer::Core) {
            self.ours(line);
        } else if self.writer != Some(Writer::Peregrine) {
            self.cores(line);
        } else if !line.is_empty() {
            self.bad_lines += 1;
        }
    }

    fn ours(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Start { .. }) => {
                *self = Self { bad_lines: self.bad_lines, ..Self::default() };
                self.writer = Some(Writer::Peregrine);
            }
            Ok(Line::Progress { seconds, blocks, bytes, memory_bytes, .. }) => {
                self.writer = Some(Writer::Peregrine);
                // The last of `blocks` blocks has this height, since genesis counts.
                let height = blocks.saturating_sub(1);
                let (bytes, point) = (Some(bytes), Point { seconds, height, ..Point::default() });
                self.point(Point { bytes, memory_bytes, ..point });
            }
            Ok(Line::End { seconds }) if seconds.is_finite() && seconds >= 0.0 => self.end = Some(seconds),
            Ok(Line::End { .. }) => self.bad_lines += 1,
            Ok(_) => {}
            // Events of a later version.
            Err(_) if line.starts_with("{\"event\":") && line.ends_with('}') => {
                let known = ["start", "progress", "end"].map(|name| format!("{{\"event\":\"{name}\""));
                self.bad_lines += u64::from(known.iter().any(|start| line.starts_with(start)));
            }
            Err(_) => self.bad_lines += 1,
        }
    }

    /// Parses a line of Core's log. If the node was restarted, the pause does not count; if it
    /// started over, earlier lines do not count.
    fn cores(&mut self, line: &str) {
        let time = line.split_once(' ').and_then(|(stamp, _)| unix_time(stamp));
        if line.contains("Bitcoin Core version v") {
            self.started = time;
        }
        if let Some((_, tip)) = line.split_once("UpdateTip: new best=") {
            self.writer = Some(Writer::Core);
            match (time, tip_point(tip)) {
                (Some(time), Some(point)) => self.tip(time, point),
                _ => self.bad_lines += 1,
            }
        }
        if line.ends_with("Shutdown done") {
            self.end = time.zip(self.zero).map(|(time, zero)| time - zero);
        }
        self.before = time.or(self.before);
    }

    fn tip(&mut self, time: f64, point: Point) {
        if let Some(started) = self.started.take() {
            if self.last.is_some_and(|last| point.height > last.height) {
                let pause = started - self.before_start(started);
                self.zero = self.zero.map(|zero| zero + pause.max(0.0));
            } else {
                let bad_lines = self.bad_lines;
                *self = Self { bad_lines, writer: self.writer, zero: Some(started), ..Self::default() };
            }
        }
        let zero = *self.zero.get_or_insert(self.before.unwrap_or(time).min(time));
        self.point(Point { seconds: time - zero, ..point });
    }

    /// The time of the last line before the node was restarted.
    fn before_start(&self, started: f64) -> f64 {
        self.zero.zip(self.last).map_or(started, |(zero, last)| zero + last.seconds)
    }

    fn point(&mut self, point: Point) {
        let Point { seconds, height, .. } = point;
        let before = self.last.map_or((0.0, 0), |last| (last.seconds, last.height));
        if !seconds.is_finite() || seconds < before.0 || height > MOST_HEIGHT {
            self.bad_lines += 1;
        } else if height > before.1 || self.last.is_none() {
            // A tip that is not higher is a reorganisation: the line continues above it.
            self.points.push(point);
            self.last = Some(point);
        }
    }
}

/// Parses the text after `UpdateTip: new best=`: names and values. The cache is `12.3MiB(4567txo)`.
fn tip_point(text: &str) -> Option<Point> {
    let field = |name: &str| {
        let mut words = text.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let cache = field("cache").and_then(|cache| cache.split_once("MiB("));
    let mib = cache.and_then(|(mib, _)| mib.parse::<f64>().ok()).filter(|mib| *mib >= 0.0);
    Some(Point {
        height: field("height")?.parse().ok()?,
        transactions: field("tx").and_then(|tx| tx.parse().ok()),
        cache_bytes: mib.map(|mib| (mib * 1_048_576.0) as u64),
        cache_coins: cache.and_then(|(_, coins)| coins.strip_suffix("txo)")?.parse().ok()),
        ..Point::default()
    })
}

/// Parses `2026-01-02T03:04:05Z`, with or without a fraction, to seconds since 1970.
fn unix_time(stamp: &str) -> Option<f64> {
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hours, minutes): (u32, u32) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let seconds: f64 = time.next()?.parse().ok()?;
    let fits = (1970..3000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !fits || hours > 23 || minutes > 59 || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    // Days from 1970 in years that begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some(days as f64 * 86_400.0 + f64::from(hours * 3600 + minutes * 60) + seconds)
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
    fn time_stamps_are_read() {
        assert_eq!(unix_time("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(unix_time("2000-02-29T00:00:01.5Z"), Some(951_782_401.5));
        assert_eq!(unix_time("2026-11-21T10:15:17.500000Z"), Some(1_795_256_117.5));
        for text in ["", "2026-11-21", "2026-13-01T00:00:00Z", "2026-11-21T10:15:17", "2026-11-21T99:00:00Z"]
        {
            assert_eq!(unix_time(text), None, "{text}");
        }
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
        assert_eq!((log.writer, log.bad_lines, log.points.len()), (Some(Writer::Core), 1, 2));
        assert_eq!(log.end, Some(6.0));
        let Point { seconds, height, cache_bytes, cache_coins, transactions, .. } = log.points[1];
        assert_eq!((seconds, height, transactions), (4.5, 7, Some(7)));
        assert_eq!((cache_bytes, cache_coins), (Some(3 << 19), Some(10)));
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
    }

    #[test]
    fn our_lines_are_read() {
        let line = |line: &Line| serde_json::to_string(line).unwrap() + "\n";
        let progress = |seconds, blocks| {
            let (bytes, memory_bytes) = (u64::from(blocks) * 100, Some(1 << 20));
            let (blocks_total, bytes_total) = (9, 900);
            line(&Line::Progress { seconds, blocks, blocks_total, bytes, bytes_total, memory_bytes })
        };
        let text = line(&Line::Start { version: "1".to_owned() })
            + &progress(1.0, 3)
            + "{\"event\":\"of_a_later_version\"}\n{\"event\":\"progress\",\"seconds\":\n"
            + &progress(0.5, 4)
            + &progress(2.0, 9)
            + &line(&Line::End { seconds: 2.5 });
        let log = series(&text);
        assert_eq!((log.writer, log.bad_lines, log.end), (Some(Writer::Peregrine), 2, Some(2.5)));
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
        assert_eq!((log.points.len(), log.writer), (0, None));
    }
}
