//! Finds in `debug.log` which program wrote a datadir, and where it keeps block files.

use std::path::{Path, PathBuf};
use vfs::Disk;
use wire::Network;

/// How many bytes from the end of the log are searched.
const SEARCHED_BYTES: u64 = 64 << 20;
/// Length of the parts in which the log is read.
const PART_LEN: u64 = 1 << 20;
/// A part of the line that Core writes when it starts (`init/common.cpp` `LogPackageVersion`).
const MARK: &str = " version v";
/// Parts of lines about a database that cannot be read.
const ERRORS: [&str; 3] =
    ["Fatal LevelDB error: ", "Error reading from database", "Corruption: block checksum mismatch"];
/// Number of bytes after the line with the version in which Core names its arguments.
const START_LEN: u64 = 64 << 10;
/// Maximum number of characters of a version that are returned.
const VERSION_LEN: usize = 80;
/// Maximum length of an error that is shown.
const ERROR_LEN: usize = 400;

/// What a log tells of the last start of bitcoind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LastStart {
    /// The line that names the program's version, without its time: `Bitcoin Core version v30.0.0 (release
    /// build)`. `None` if there is none, or no log.
    pub version: Option<String>,
    /// The folder of the network in which it wrote this log. A copy of a datadir has that of another node.
    pub net_dir: Option<PathBuf>,
    /// The configuration file that it read.
    pub conf: Option<PathBuf>,
    /// The directory of the block files, if the log names that.
    blocks_dir: Option<PathBuf>,
    /// Settings, in the order in which they count: the part of the network for which they are, which is empty
    /// for all, the name, and the value.
    settings: Vec<[String; 3]>,
    /// How many of them are of the command line, which are the first.
    told: usize,
    /// The last error of a database, and the table that it names.
    pub database_error: Option<(String, Option<PathBuf>)>,
    /// The error with which it ended.
    pub end_error: Option<String>,
}

impl LastStart {
    /// Reads the end of the log in the directory of a network. What the log does not have is unknown.
    pub fn read(disk: &dyn Disk, net_dir: &Path) -> Self {
        let path = &net_dir.join("debug.log");
        let of_part = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            let start = lines.iter().rposition(|line| version_of(line).is_some())?;
            Some(Self::of_lines(lines.into_iter().skip(start)))
        };
        let mut last = find_last(disk, path, START_LEN, of_part).unwrap_or_default();
        // bitcoind ends with such an error.
        let ends = find_last(disk, path, 0, |text| Some(text.to_owned()));
        last.end_error = ends.as_deref().and_then(end_error);
        last.database_error = ends.and_then(|text| Self::of_lines(text.lines()).database_error);
        last
    }

    fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut last = Self::default();
        let mut ranked = Vec::new();
        for line in lines {
            if let Some(version) = version_of(line) {
                (last.version, last.database_error) = (Some(version), None);
            } else if let Some((_, dir)) = line.split_once("Using data directory ") {
                last.net_dir = Some(PathBuf::from(dir));
            } else if let Some((_, file)) = line.split_once("Config file: ") {
                let is_read = !file.ends_with(')') && file != "<disabled>";
                last.conf = is_read.then(|| PathBuf::from(file));
            } else if let Some((_, rest)) =
                line.split_once("Using obfuscation key for blocksdir *.dat files (")
            {
                last.blocks_dir = rest.rsplit_once("): ").map(|(dir, _)| PathBuf::from(dir));
            } else if let Some((kind, setting)) = line.split_once(" arg: ") {
                let (section, setting) =
                    setting.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap_or(("", setting));
                let kinds = ["Command-line", "Setting file", "Config file"];
                let rank = kinds.iter().position(|name| kind.ends_with(name)).unwrap_or(kinds.len());
                ranked.extend(setting_of(section, setting).map(|it| (rank, section.is_empty(), it)));
            } else if ERRORS.iter().any(|mark| line.contains(mark)) {
                let is_table =
                    |path: &&Path| path.extension().is_some_and(|end| end == "ldb" || end == "sst");
                // The text can be in parentheses.
                let parts = line.split(": ").map(|part| part.trim_end().trim_end_matches(')'));
                let table = parts.map(Path::new).find(is_table);
                // With `-logtimestamps=0`, it begins with no time.
                let timed = line.split_once(' ').filter(|(time, _)| time.starts_with(char::is_numeric));
                let text = printable(timed.map_or(line, |(_, text)| text), ERROR_LEN);
                last.database_error = Some((text, table.map(Path::to_owned)));
            }
        }
        // The common part of the configuration file comes first in the log, and counts last.
        ranked.sort_by_key(|&(rank, is_common, _)| (rank, is_common));
        last.told = ranked.partition_point(|(rank, ..)| *rank == 0);
        last.settings = ranked.into_iter().map(|(.., setting)| setting).collect();
        last
    }

    fn value(&self, network: Network, name: &str) -> Option<&str> {
        let is_it =
            |[section, is, _]: &&[String; 3]| is == name && (section.is_empty() || section == network.name());
        self.settings.iter().find(is_it).map(|[.., value]| &**value)
    }

    /// The options of its command line: an empty part, the name, and the value, `false` for `-noNAME`.
    pub fn command_line(&self) -> &[[String; 3]] {
        self.settings.get(..self.told).unwrap_or_default()
    }

    /// All values of an option on its command line that were not taken back there.
    pub fn told(&self, option: &str) -> Vec<String> {
        let told = self.command_line().iter().filter(|[_, name, _]| name == option);
        let told: Vec<String> = told.map(|[.., value]| value.clone()).collect();
        told.rsplit(|value| value == "false").next().unwrap_or_default().to_vec()
    }

    /// Whether its command line took an option back at its end, and with it what files say.
    pub fn takes_back(&self, option: &str) -> bool {
        let mut told = self.command_line().iter();
        told.rfind(|[_, name, _]| name == option).is_some_and(|[.., value]| value == "false")
    }

    /// To how many MiB bitcoind pruned.
    pub fn prune(&self, network: Network) -> Option<u64> {
        self.value(network, "prune")?.parse().ok().filter(|&mebibytes| mebibytes > 0)
    }

    /// The directory that bitcoind was told for block files, or in which it had them.
    pub fn blocksdir(&self, network: Network) -> Option<PathBuf> {
        let set = self.value(network, "blocksdir").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        // The log names the directory `blocks`, which is in the network's folder.
        let depth = if network.subdirectory().is_some() { 2 } else { 1 };
        let found = self.blocks_dir.as_ref().and_then(|dir| dir.ancestors().nth(depth));
        set.or(found.map(Path::to_owned))
    }
}

/// The error after which bitcoind shut down at once, if its last start ended so.
fn end_error(text: &str) -> Option<String> {
    let of_start = text.lines().rev().take_while(|line| version_of(line).is_none());
    let is_shutdown = |line: &&str| line.contains("hutdown") && line.contains("n progress");
    let mut before = of_start.skip_while(|line| !is_shutdown(line));
    let last = before.find(|line| !is_shutdown(line) && !line.ends_with(" thread exit"))?;
    let (_, error) = last.split_once("[error] ").or_else(|| last.split_once("Error: "))?;
    Some(printable(error, ERROR_LEN))
}

/// Parses a setting as the log has it: `name="value"`, `name = "value"`, `name=1`.
fn setting_of(section: &str, text: &str) -> Option<[String; 3]> {
    let (name, value) = text.split_once('=')?;
    let value = value.trim();
    let plain = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    (!plain.contains('\\')).then(|| [section.to_owned(), name.trim().to_owned(), plain.to_owned()])
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
    Some(printable(line.get(name..)?, VERSION_LEN))
}

/// The first `len` characters of a text, without those that a terminal takes for commands.
fn printable(text: &str, len: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    fn read(text: &str) -> LastStart {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("debug.log"), text).unwrap();
        LastStart::read(&RealDisk, dir.path())
    }

    #[test]
    fn the_last_version_line_is_found_wherever_it_is() {
        let last = |text: &str| read(text).version;
        assert_eq!(LastStart::read(&RealDisk, Path::new("missing")), LastStart::default());
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
        let last = |text: &str| read(text).blocksdir(Network::Regtest);
        assert_eq!((last(""), last("Command-line arg: blocksdir=\"/a\"")), (None, None));
        let start = "2026 Bitcoin Core version v30.0.0\n2026 Command-line arg: chain=\"regtest\"\n";
        assert_eq!((read(start).version.is_some(), last(start)), (true, None));
        // Each counts before those that follow it.
        let lines = [
            "Command-line arg: blocksdir=\"/a b\"",
            "Setting file arg: blocksdir = \"/a b\"",
            "Config file arg: [regtest] blocksdir=\"/a b\"",
            "Config file arg: blocksdir=\"/a b\"",
            "Using obfuscation key for blocksdir *.dat files (/a b/regtest/blocks): '00'",
        ];
        for (number, line) in lines.iter().enumerate() {
            let later: Vec<_> = lines[number + 1..].iter().map(|line| line.replace("/a b", "/c")).collect();
            let with = format!("{start}2026 {}\n2026 {line}\n", later.join("\n2026 "));
            for filler in [0, 100, PART_LEN as usize - 30, PART_LEN as usize, 3 * PART_LEN as usize + 7] {
                let filler = "UpdateTip: new best\n".repeat(filler / 20);
                assert_eq!(last(&format!("{start}{with}{filler}")), Some("/a b".into()), "{line}");
                assert_eq!(last(&format!("{with}{filler}{start}{filler}")), None);
            }
        }
        let more = "2026 Config file: /proc/b/bitcoin.conf\n2026 Config file arg: [main] prune=\"600\"\n";
        let found = read(&format!("{start}{more}2026 Config file arg: prune=\"1000\"\n"));
        assert_eq!((found.told("chain"), found.told("prune")), (vec!["regtest".to_owned()], Vec::new()));
        assert_eq!((found.conf, found.settings.len()), (Some("/proc/b/bitcoin.conf".into()), 3));
        let other = read(&format!("{start}2026 Config file: /proc/b/bitcoin.conf (not found, skipping)\n"));
        assert!(other.conf.is_none() && other.prune(Network::Regtest).is_none());
    }

    #[test]
    fn the_error_of_a_database_counts_until_the_next_start() {
        let error = |text: &str| read(text).database_error;
        let start = "2026 Bitcoin Core version v30.0.0\n";
        let fatal =
            "2026 Fatal LevelDB error: Corruption: block checksum mismatch: /proc/chainstate/000002.ldb";
        let (text, table) = error(&format!("{start}{}\n", fatal.replace("block", "\x1b[31mblock"))).unwrap();
        assert!(text.starts_with("Fatal LevelDB error") && !text.contains('\x1b'), "{text}");
        assert_eq!(table, Some("/proc/chainstate/000002.ldb".into()));
        let flush = fatal.replace("Fatal", "Failed to force flush state (System error: Fatal");
        assert_eq!(error(&format!("{start}{flush})\n")).unwrap().1, table);
        let (_, table) =
            error(&format!("{start}2026 Error reading from database: Corruption: bad\n")).unwrap();
        assert_eq!((table, error(&format!("{start}{fatal}\n{start}"))), (None, None));
    }

    #[test]
    fn an_error_ended_a_start_if_a_shutdown_followed_at_once() {
        let start = "2026 Bitcoin Core version v31.0.0\n";
        let end = "2026 http.1 thread exit\n2026 Shutdown in progress...\n2026 Flushed\n2026 Shutdown done\n";
        for error in ["[error] Invalid -proxy", "Error: Invalid -proxy"] {
            let error = format!("{start}2026 {error}\n");
            let ended = format!("{error}{end}");
            assert_eq!(read(&ended).end_error.as_deref(), Some("Invalid -proxy"));
            let others = [error.clone(), format!("{error}2026 UpdateTip: ..\n{end}"), ended + start];
            others.iter().for_each(|other| assert_eq!(read(other).end_error, None, "{other}"));
        }
    }
}
