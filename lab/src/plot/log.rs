//! What logs say of their runs: Peregrine's run logs, and Bitcoin Core's `debug.log`.

use super::core_log;
use cli::run_log::Line;
use engine::{HumanMemory, open_regular};
use std::{
    io::{self, BufRead, BufReader},
    path::Path,
};

/// The progress of a run at one time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Time since the start of the run.
    pub seconds: f64,
    pub height: u32,
    /// Bytes of resident memory; of Bitcoin Core those of its coins cache alone.
    pub memory: Option<u64>,
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
    /// Whether the node also logged what its databases did.
    pub logs_databases: bool,
    /// Name and version of the program.
    pub program: String,
    pub machine: String,
    /// Threads, memory, which scripts were not run.
    pub settings: Vec<String>,
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

    /// Returns when the run reached a height, interpolated linearly; `None` outside the points.
    pub fn time_at(&self, height: u32) -> Option<f64> {
        let after = self.points.partition_point(|point| point.height < height);
        let above = self.points.get(after)?;
        if above.height == height {
            return Some(above.seconds);
        }
        let below = self.points.get(after.checked_sub(1)?)?;
        let share = f64::from(height - below.height) / f64::from(above.height - below.height);
        Some(below.seconds + (above.seconds - below.seconds) * share)
    }

    /// Returns the seconds that the run spent in each stage.
    pub fn spent(&self) -> Vec<(&str, f64)> {
        let mut spent: Vec<(&str, f64)> = Vec::new();
        let ends = self.stages.iter().skip(1).map(|(begin, _)| *begin).chain([self.seconds()]);
        for ((begin, stage), end) in self.stages.iter().zip(ends) {
            match spent.iter_mut().find(|(known, _)| known == stage) {
                Some((_, sum)) => *sum += end - begin,
                None => spent.push((stage, end - begin)),
            }
        }
        spent
    }

    /// Adds a point. A block that is not higher is a reorganisation: the line continues above it.
    pub fn add(&mut self, point: Point) {
        let last = self.points.last();
        if last.is_some_and(|last| point.seconds < last.seconds) {
            self.bad_lines += 1;
        } else if last.is_none_or(|last| point.height > last.height) {
            self.points.push(point);
        }
    }

    /// Takes a line of Peregrine's log.
    fn line(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Start { version, run }) => {
                self.program = format!("Peregrine {version}");
                // Logs of older versions have only this.
                let Some(run) = run else { return };
                if let Some(commit) = &run.commit {
                    self.program += &format!(" ({})", commit.chars().take(10).collect::<String>());
                }
                self.machine = run.machine.to_string();
                self.settings = vec![
                    format!("{} threads", run.threads),
                    format!("{} memory limit", HumanMemory(run.memory_bytes)),
                    format!("assumevalid {}", run.assumevalid),
                ];
            }
            // The last of `blocks` blocks has this height, since genesis counts.
            Ok(Line::Progress { seconds, blocks, memory_bytes, .. }) => {
                self.add(Point { seconds, height: blocks.saturating_sub(1), memory: memory_bytes });
            }
            Ok(Line::Stage { seconds, stage }) => self.stages.push((seconds, stage)),
            Ok(Line::Plan { hash, .. }) => self.tip = Some(hash),
            Ok(Line::End { seconds, exit_code, hash_serialized_3 }) => {
                (self.end, self.exit_code, self.utxo_hash) = (Some(seconds), exit_code, hash_serialized_3);
            }
            Ok(_) => {}
            Err(_) => self.bad_lines += 1,
        }
    }
}

pub fn read(path: &Path, name: String) -> io::Result<Series> {
    read_lines(BufReader::with_capacity(1 << 20, open_regular(path)?), name)
}

fn read_lines(mut reader: impl BufRead, name: String) -> io::Result<Series> {
    let is_ours = reader.fill_buf()?.starts_with(b"{");
    let lines = reader.split(b'\n').map(|line| Ok(String::from_utf8_lossy(&line?).into_owned()));
    let series = if is_ours {
        let mut series = Series::default();
        lines.into_iter().try_for_each(|line: io::Result<_>| line.map(|line| series.line(&line)))?;
        series
    } else {
        core_log::read(lines)?
    };
    Ok(Series { name, ..series })
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
        assert_eq!((log.end, log.tip.as_deref()), (Some(6.0), Some("00")));
        assert_eq!(log.points[1], Point { seconds: 4.5, height: 7, memory: Some(3 << 19) });
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
    fn of_several_starts_the_one_counts_that_went_furthest_from_the_beginning() {
        let start = |stamp: &str| format!("{stamp} Bitcoin Core version v30\n");
        let first = start("2026-01-01T00:00:00Z") + &tip("2026-01-01T00:00:10Z", 1);
        let later = |heights: [u32; 2]| {
            start("2026-01-01T01:00:00Z")
                + &tip("2026-01-01T01:00:03Z", heights[0])
                + &tip("2026-01-01T01:00:04Z", heights[1])
        };
        let points = |text: String| {
            let points = series(&text).points.into_iter();
            points.map(|point| (point.seconds, point.height)).collect::<Vec<_>>()
        };
        assert_eq!(points(first.clone() + &later([0, 9])), [(3.0, 0), (4.0, 9)], "it began anew");
        assert_eq!(points(first.clone() + &later([2, 3])), [(3.0, 2), (4.0, 3)], "the first prepared");
        assert_eq!(points(first + &later([8, 9])), [(10.0, 1)], "a part of a run has no time to compare");
        assert_eq!(points(later([8, 9])), []);
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
            + "{\"event\":\"progress\",\"seconds\":\n"
            + &progress(0.5, 4)
            + &progress(2.0, 9)
            + "{\"event\":\"end\",\"seconds\":2.5}\n";
        let log = series(&text);
        assert_eq!((log.is_core, log.bad_lines, log.end), (false, 2, Some(2.5)));
        let heights: Vec<_> = log.points.iter().map(|point| (point.height, point.memory)).collect();
        assert_eq!(heights, [(2, Some(1 << 20)), (8, Some(1 << 20))]);
        assert_eq!((log.time_at(5), log.time_at(9)), (Some(1.5), None));
    }

    #[test]
    fn nonsense_has_no_points() {
        let long = "x".repeat(200_000) + "\n" + &tip("2026-01-01T00:00:00Z", 1);
        assert_eq!(series(&long).points.len(), 1);
        for text in
            ["\u{0}\u{fffd}nonsense\n\n{}\n{\"event\":\"progress\"}", "{}\n{\"event\":\"progress\"}", ""]
        {
            assert_eq!(series(text).points, [], "{text}");
        }
    }
}
