//! Lines of Bitcoin Core's `debug.log`: its tip, its settings, and what its databases do
//! (`-debug=coindb,leveldb,bench`). The texts are those of Bitcoin Core 0.17 to 31.

use super::log::{Point, Thinned};
use crate::text::{self, data, duration, number};
use std::time::UNIX_EPOCH;

/// What a node said of itself when it started.
#[derive(Default, Clone, PartialEq, Debug)]
pub struct Settings {
    /// `Bitcoin Core v31.0.0`, or the name and version of a program made from it.
    pub program: String,
    /// `-dbcache`, if it was given, in MiB.
    pub dbcache: Option<String>,
    /// Which scripts were taken for valid, in words.
    pub assumevalid: Option<String>,
}

impl Settings {
    /// Returns the settings of a node that has just said its version; `None` if the message is another.
    pub fn of_version(message: &str) -> Option<Self> {
        let (name, version) = message.split_once(" version v")?;
        let is_name = name.starts_with("Bitcoin") && name.len() < 40;
        let version = version.split(' ').next().filter(|version| is_name && !version.is_empty())?;
        Some(Self { program: cut(&format!("{name} v{version}")), ..Self::default() })
    }

    /// Takes what a line says of the settings.
    pub fn line(&mut self, message: &str) {
        let dbcache = ["Config file arg: ", "Command-line arg: "].iter().find_map(|start| {
            let argument = message.strip_prefix(start)?;
            // A section of the file: `[main] dbcache="450"`.
            let argument = argument.split_once("] ").map_or(argument, |(_, argument)| argument);
            argument.strip_prefix("dbcache=")
        });
        if let Some(dbcache) = dbcache {
            // The command line comes last, and takes precedence.
            self.dbcache = Some(cut(dbcache.trim_matches('"')));
        } else if let Some(hash) = message.strip_prefix("Assuming ancestors of block ") {
            let hash = hash.split(' ').next().unwrap_or_default();
            self.assumevalid = Some(format!("scripts up to block {} assumed valid", cut(hash)));
        } else if message.starts_with("Validating signatures for all blocks") {
            self.assumevalid = Some("all scripts checked".to_owned());
        }
    }
}

fn cut(text: &str) -> String {
    text::cut(text, 100)
}

/// A quantity that adds up, as sums over time.
#[derive(Default, Debug)]
pub struct Sum {
    pub points: Thinned<(f64, f64)>,
    pub count: u64,
    pub total: f64,
    pub greatest: f64,
}

impl Sum {
    fn add(&mut self, seconds: f64, amount: f64) {
        if amount.is_finite() && amount >= 0.0 {
            self.count += 1;
            self.total += amount;
            self.greatest = self.greatest.max(amount);
            self.points.push((seconds, self.total));
        }
    }
}

/// What a node's databases did after its first block.
#[derive(Default, Debug)]
pub struct Activity {
    /// Seconds of writing the coins cache to disk (`-debug=bench`).
    pub flushes: Sum,
    /// Bytes of batches for the coins database (`-debug=coindb`).
    pub batches: Sum,
    /// Coins that were written or erased (`-debug=coindb`).
    pub coins: Sum,
    /// Bytes that compactions wrote (`-debug=leveldb`).
    pub compactions: Sum,
}

impl Activity {
    /// Returns whether the log has any of it.
    pub fn has_any(&self) -> bool {
        [&self.flushes, &self.batches, &self.coins, &self.compactions].iter().any(|sum| sum.count > 0)
    }

    /// Returns all of it as one sentence; `None` if the log has nothing. `run` is the time of the whole run.
    pub fn in_words(&self, run: f64) -> Option<String> {
        let Sum { count, total, greatest, .. } = &self.flushes;
        let share = total / run.max(1e-9) * 100.0;
        let (total, greatest) = (duration(*total), duration(*greatest));
        let flushes = format!("{count} cache flushes in {total} ({share:.1} %), the longest {greatest}");
        let compactions = &self.compactions;
        let compactions = format!("{} compactions wrote {}", compactions.count, data(compactions.total));
        let parts = [
            (&self.flushes, flushes),
            (&self.coins, format!("{} coins written", number(self.coins.total))),
            (&self.batches, format!("{} in batches", data(self.batches.total))),
            (&self.compactions, compactions),
        ];
        let known = parts.into_iter().filter(|(sum, _)| sum.count > 0).map(|(_, text)| text);
        Some(known.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
    }

    /// Takes what a line says of the databases. `seconds` count from the start of the run.
    pub fn line(&mut self, seconds: f64, message: &str) {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let batch = ["Writing partial batch of ", "Writing final batch of "];
        if let Some(size) = batch.iter().find_map(|start| message.strip_prefix(start)) {
            let mib = size.strip_suffix(" MiB").and_then(number);
            self.batches.add(seconds, mib.map_or(f64::NAN, |mib| mib * 1_048_576.0));
        } else if let Some(count) = message.strip_prefix("Committed ") {
            let count = count.split_once(" changed transaction outputs").and_then(|(count, _)| number(count));
            self.coins.add(seconds, count.unwrap_or(f64::NAN));
        } else if let Some((_, bytes)) =
            message.split_once(" files => ").filter(|_| message.starts_with("Compacted "))
        {
            self.compactions.add(seconds, bytes.strip_suffix(" bytes").and_then(number).unwrap_or(f64::NAN));
        } else if message.contains("write coins cache to disk (") && message.ends_with("ms)") {
            let time =
                message.rsplit_once(" completed (").and_then(|(_, time)| number(time.strip_suffix("ms)")?));
            self.flushes.add(seconds, time.map_or(f64::NAN, |time| time / 1000.0));
        }
    }
}

/// Returns the message of a line after its time stamp, and its parts in brackets: thread, source, category.
pub fn message(line: &str) -> &str {
    let mut rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    while let Some((_, behind)) = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        rest = behind;
    }
    rest
}

/// Parses the text after `UpdateTip: new best=`: a hash, then names and values. The cache is
/// `12.3MiB(4567txo)`.
pub fn tip_point(text: &str) -> Option<Point> {
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
pub fn unix_time(stamp: &str) -> Option<f64> {
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
        let program = |text| Settings::of_version(text).map(|settings| settings.program);
        assert_eq!(program("Bitcoin Core version v31.0.0 (release build)").unwrap(), "Bitcoin Core v31.0.0");
        assert_eq!(
            program("Bitcoin Knots version v29.1.knots2025 (release build)").unwrap(),
            "Bitcoin Knots v29.1.knots2025"
        );
        assert_eq!(program("receive version message: version v1"), None);
        let mut settings = Settings::default();
        for line in [
            "Config file arg: dbcache=\"200\"",
            "Config file arg: [regtest] dbcache=\"300\"",
            "Command-line arg: datadir=\"dbcache=9\"",
            "Assuming ancestors of block 00ff have valid signatures.",
        ] {
            settings.line(line);
        }
        assert_eq!(settings.dbcache.as_deref(), Some("300"));
        assert_eq!(settings.assumevalid.as_deref(), Some("scripts up to block 00ff assumed valid"));
        settings.line(&format!("Command-line arg: dbcache=\"{}\"", "4".repeat(500)));
        assert_eq!(settings.dbcache.unwrap().chars().count(), 100);
    }

    #[test]
    fn what_databases_do_is_read() {
        let mut activity = Activity::default();
        let text = "[coindb] Writing partial batch of 16.00 MiB
            [main] [coindb] Writing final batch of 0.50 MiB
            [coindb] Committed 1234 changed transaction outputs (out of 2000) to coin database...
            [bench] WriteCoins: write coins cache to disk (12 out of 20 cached coins) started
            [bench] WriteCoins: write coins cache to disk (12 out of 20 cached coins) completed (250.50ms)
            [leveldb] Compacting 4@0 + 1@1 files
            [leveldb:debug] Compacted 4@0 + 1@1 files => 2097152 bytes
            [leveldb] Compacted 4@0 + 1@1 files => no bytes
            [coindb] Writing final batch of -1 MiB
            ";
        for line in text.lines().map(|line| format!("2026-01-01T00:00:00Z {}", line.trim())) {
            activity.line(3.0, message(&line));
        }
        let Activity { flushes, batches, coins, compactions } = activity;
        assert_eq!(
            (batches.count, batches.total, batches.greatest),
            (2, 16.5 * 1_048_576.0, 16.0 * 1_048_576.0)
        );
        assert_eq!((coins.count, coins.total), (1, 1234.0));
        assert_eq!((flushes.count, flushes.total), (1, 0.2505));
        assert_eq!((compactions.count, compactions.total), (1, 2_097_152.0));
    }
}
