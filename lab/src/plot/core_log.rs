//! Bitcoin Core's `debug.log`: its tips and its settings. The texts are those of Bitcoin Core 0.20 to 31.

use super::log::{Point, Series};
use std::{io, time::UNIX_EPOCH};

/// The height of the last block of a run that only prepares: it is there to get headers and find peers.
const PREPARED: u32 = 1;

/// Reads a log. A node appends to it whenever it is started: the start counts that went furthest, of those
/// that began at the beginning of the chain; others are parts of a run, whose time means nothing.
pub fn read(lines: impl Iterator<Item = io::Result<String>>) -> io::Result<Series> {
    let mut starts = vec![Start::default()];
    let mut bad_lines = 0;
    for line in lines {
        let line = line?;
        let message = message(&line);
        if let Some(program) = program(message) {
            starts.push(Start { series: Series { program, ..Series::default() }, zero: None });
        }
        let start = starts.last_mut().expect("there is always one");
        bad_lines += u64::from(start.line(&line, message).is_none());
    }
    let whole = |start: &Start| start.series.points.first().is_some_and(|first| first.height <= PREPARED + 1);
    let whole = starts.into_iter().filter(whole).max_by_key(|start| start.series.height());
    let series = whole.unwrap_or_default().series;
    Ok(Series { is_core: true, bad_lines: series.bad_lines + bad_lines, ..series })
}

/// What a node did after it was started.
#[derive(Default)]
struct Start {
    series: Series,
    /// The time of its first line, in seconds since 1970.
    zero: Option<f64>,
}

impl Start {
    /// Takes a line; `None` if it should have a tip, and has none.
    fn line(&mut self, line: &str, message: &str) -> Option<()> {
        let time = line.split_once(' ').and_then(|(stamp, _)| unix_time(stamp));
        self.zero = self.zero.or(time);
        let seconds = time.zip(self.zero).map(|(time, zero)| time - zero);
        if let Some(tip) = message.strip_prefix("UpdateTip: new best=") {
            self.series.add(point(seconds?, tip)?);
            self.series.tip = tip.split(' ').next().map(str::to_owned);
        } else if let Some((_, rest)) = message.split_once(" arg: ") {
            // Those of the command line come last, and take precedence.
            let dbcache = rest.split_once("dbcache=\"").and_then(|(_, value)| value.split('"').next());
            dbcache.into_iter().for_each(|mebibytes| self.set("dbcache", mebibytes));
        } else if let Some(rest) = message.strip_prefix("Assuming ancestors of block ") {
            self.set("assumevalid", rest.split(' ').next().unwrap_or_default());
        } else if message.starts_with("Validating signatures for all blocks") {
            self.set("assumevalid", "0");
        } else if ["Shutdown done", "Shutdown: done"].contains(&message) {
            // Bitcoin Core up to version 29 wrote a colon.
            self.series.end = seconds;
        }
        // What -debug=coindb, -debug=leveldb and -debug=bench add.
        let of_databases =
            ["Writing partial batch", "Committed ", "Compacted ", "WriteCoins: ", "write coins cache"];
        // Before the first block, they belong to the start.
        self.series.logs_databases |= !self.series.points.is_empty()
            && of_databases.iter().any(|beginning| message.starts_with(beginning));
        Some(())
    }

    fn set(&mut self, name: &str, value: &str) {
        self.series.settings.retain(|setting| !setting.starts_with(name));
        self.series.settings.push(format!("{name} {value}"));
    }
}

/// Returns name and version of a node that has just said them: `Bitcoin Core v31.0.0`, or those of a program
/// made from it.
fn program(message: &str) -> Option<String> {
    let (name, version) = message.split_once(" version v")?;
    let version = version.split(' ').next().filter(|_| name.starts_with("Bitcoin"))?;
    Some(format!("{name} v{version}"))
}

/// Returns the message of a line after its time stamp, and its parts in brackets: thread, source, category.
fn message(line: &str) -> &str {
    let mut rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    while let Some((_, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        rest = behind;
    }
    rest
}

/// Parses the text after `UpdateTip: new best=`: a hash, then names and values. The cache is
/// `12.3MiB(4567txo)`.
fn point(seconds: f64, text: &str) -> Option<Point> {
    let mut fields = text.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    let height = fields.find_map(|(name, value)| (name == "height").then_some(value))?.parse().ok()?;
    let cache = fields.find_map(|(name, value)| (name == "cache").then_some(value));
    let mebibytes = cache.and_then(|cache| cache.split_once("MiB(")?.0.parse::<f64>().ok());
    Some(Point { seconds, height, memory: mebibytes.map(|mebibytes| (mebibytes * 1_048_576.0) as u64) })
}

/// Parses `2026-01-02T03:04:05Z`, with or without a fraction, to seconds since 1970.
fn unix_time(stamp: &str) -> Option<f64> {
    let time = humantime::parse_rfc3339(stamp).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn settings_are_read() {
        assert_eq!(program("Bitcoin Core version v31.0.0 (release build)").unwrap(), "Bitcoin Core v31.0.0");
        let knots = program("Bitcoin Knots version v29.1.knots2025 (release build)").unwrap();
        assert_eq!(knots, "Bitcoin Knots v29.1.knots2025");
        assert_eq!(program("receive version message: version v1"), None);
        let mut start = Start::default();
        for line in [
            "Config file arg: dbcache=\"200\"",
            "Config file arg: [regtest] dbcache=\"300\"",
            "Command-line arg: datadir=\"dbcache=9\"",
            "[init] Assuming ancestors of block 00ff have valid signatures.",
        ] {
            let line = format!("2026-01-01T00:00:00Z {line}");
            start.line(&line, message(&line)).unwrap();
        }
        assert_eq!(start.series.settings, ["dbcache 300", "assumevalid 00ff"]);
    }

    #[test]
    fn what_databases_log_is_noticed_after_the_first_block() {
        for line in [
            "[coindb] Writing partial batch of 16.00 MiB",
            "[main] [coindb] Committed 1234 changed transaction outputs (out of 2000) to coin database...",
            "[bench] WriteCoins: write coins cache to disk (12 out of 20 cached coins) started",
            "[leveldb:debug] Compacted 4@0 + 1@1 files => 2097152 bytes",
        ] {
            let (mut start, line) = (Start::default(), format!("2026-01-01T00:00:00Z {line}"));
            for is_noticed in [false, true] {
                start.line(&line, message(&line)).unwrap();
                assert_eq!(start.series.logs_databases, is_noticed, "{line}");
                start.line("2026-01-01T00:00:00Z UpdateTip", "UpdateTip: new best=00 height=1").unwrap();
            }
        }
    }
}
