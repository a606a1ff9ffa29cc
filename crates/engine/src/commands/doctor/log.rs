//! Finds in `debug.log` which program wrote a datadir.

use std::path::Path;
use vfs::{Disk, ReadAt};

/// How many bytes from the end of the log are searched.
const SEARCHED_BYTES: u64 = 64 << 20;
/// Length of the parts in which the log is read.
const PART_LEN: u64 = 1 << 20;
/// How much of a line is in the next part too, so that none is divided.
const OVERLAP: u64 = 256;
/// What the line has in it that Core writes when it starts (`init/common.cpp` `LogPackageVersion`).
const MARK: &str = " version v";
/// Maximum number of characters that are returned.
const VERSION_LEN: usize = 80;

/// Returns the last line of a log that names a program's version, without its time: `Bitcoin Core version
/// v30.0.0 (release build)`. `None` if there is none, or no log.
pub fn last_version(disk: &dyn Disk, path: &Path) -> Option<String> {
    let log = disk.open(path).ok()?;
    let len = log.len().ok()?;
    let mut end = len;
    while end > 0 && len - end < SEARCHED_BYTES {
        let begin = end.saturating_sub(PART_LEN);
        let found = last_version_in(log.as_ref(), begin, len.min(end + OVERLAP));
        if found.is_some() {
            return found;
        }
        end = begin;
    }
    None
}

fn last_version_in(log: &dyn ReadAt, begin: u64, end: u64) -> Option<String> {
    let mut bytes = vec![0; usize::try_from(end - begin).ok()?];
    log.read_exact_at(&mut bytes, begin).ok()?;
    String::from_utf8_lossy(&bytes).lines().rev().find_map(version_of)
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
}
