//! Finds in `debug.log` which program wrote a datadir, and where it keeps block files.

use std::path::{Path, PathBuf};
use vfs::Disk;

/// How many bytes from the end of the log are searched.
const SEARCHED_BYTES: u64 = 64 << 20;
/// Length of the parts in which the log is read.
const PART_LEN: u64 = 1 << 20;
/// How much of a line is in the next part too, so that none is divided.
const OVERLAP: u64 = 256;
/// What the line has in it that Core writes when it starts (`init/common.cpp` `LogPackageVersion`).
const MARK: &str = " version v";
/// What the line has in it that names the directory for block files (`common/args.cpp` `LogArgs`).
const BLOCKSDIR_MARK: &str = "Command-line arg: blocksdir=";
/// Number of bytes after the line with the version in which Core names its arguments.
const START_LEN: u64 = 64 << 10;
/// Maximum number of characters of a version that are returned.
const VERSION_LEN: usize = 80;

/// Returns the last line of a log that names a program's version, without its time: `Bitcoin Core version
/// v30.0.0 (release build)`. `None` if there is none, or no log.
pub fn last_version(disk: &dyn Disk, path: &Path) -> Option<String> {
    find_last(disk, path, OVERLAP, |text| text.lines().rev().find_map(version_of))
}

/// Returns the directory for block files that the command line of the last start named: `None` if the log has
/// no start, `Some(None)` if it named none.
pub fn last_blocksdir(disk: &dyn Disk, path: &Path) -> Option<Option<PathBuf>> {
    let named = |line: &str| {
        let quoted = line.split_once(BLOCKSDIR_MARK)?.1;
        let dir = quoted.strip_prefix('"')?.strip_suffix('"')?;
        (!dir.contains('\\')).then(|| PathBuf::from(dir))
    };
    find_last(disk, path, START_LEN, |text| {
        let mut after = Vec::new();
        for line in text.lines().rev() {
            if version_of(line).is_some() {
                return Some(after.into_iter().rev().find_map(named));
            }
            after.push(line);
        }
        None
    })
}

/// Searches a log from its end, part by part, each with so many bytes of the next one.
fn find_last<T>(disk: &dyn Disk, path: &Path, overlap: u64, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    let log = disk.open(path).ok()?;
    let len = log.len().ok()?;
    let mut end = len;
    while end > 0 && len - end < SEARCHED_BYTES {
        let begin = end.saturating_sub(PART_LEN);
        let mut bytes = vec![0; usize::try_from(len.min(end + overlap) - begin).ok()?];
        log.read_exact_at(&mut bytes, begin).ok()?;
        let found = find(&String::from_utf8_lossy(&bytes));
        if found.is_some() {
            return found;
        }
        end = begin;
    }
    None
}

/// Returns the part of a line from the program's name on.
fn version_of(line: &str) -> Option<String> {
    let (before, _) = line.split_once(MARK)?;
    let name = before.rfind("Bitcoin")?;
    let version = line.get(name..)?.chars().filter(|c| !c.is_control());
    Some(version.take(VERSION_LEN).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    #[test]
    fn the_last_version_line_is_found_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("debug.log");
        let last = |text: &str| {
            std::fs::write(&path, text).unwrap();
            last_version(&RealDisk, &path)
        };
        assert_eq!(last_version(&RealDisk, &path), None);
        assert_eq!(last(""), None);
        let line = |version: &str| format!("2026-11-22T01:02:03Z Bitcoin Core version {version}\n");
        assert_eq!(last(&line("v28.0.0")).as_deref(), Some("Bitcoin Core version v28.0.0"));
        for filler in [0, 100, PART_LEN as usize - 30, PART_LEN as usize, 3 * PART_LEN as usize + 7] {
            let text = line("v28.0.0")
                + &line("v30.0.0 (release build)")
                + &"UpdateTip: new best\n".repeat(filler / 20);
            assert_eq!(last(&text).as_deref(), Some("Bitcoin Core version v30.0.0 (release build)"));
        }
        assert_eq!(last("Bitcoin Knots version v29.3\x1b[0m"), Some("Bitcoin Knots version v29.3[0m".into()));
    }

    #[test]
    fn the_last_start_names_the_directory_for_block_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("debug.log");
        let last = |text: &str| {
            std::fs::write(&path, text).unwrap();
            last_blocksdir(&RealDisk, &path)
        };
        assert_eq!((last(""), last("Command-line arg: blocksdir=\"/a\"")), (None, None));
        let start = "2026 Bitcoin Core version v30.0.0\n2026 Command-line arg: chain=\"regtest\"\n";
        assert_eq!(last(start), Some(None));
        let with = format!("{start}2026 Command-line arg: blocksdir=\"/a b\"\n");
        for filler in [0, 100, PART_LEN as usize - 30, PART_LEN as usize, 3 * PART_LEN as usize + 7] {
            let filler = "UpdateTip: new best\n".repeat(filler / 20);
            assert_eq!(last(&format!("{start}{with}{filler}")), Some(Some("/a b".into())));
            assert_eq!(last(&format!("{with}{filler}{start}{filler}")), Some(None));
        }
    }
}
