//! Numbers and commands as people read them.

use engine::{HumanMemory, HumanSize};
use indicatif::{HumanCount, HumanFloatCount};
use std::path::Path;

/// Options whose values are files, even if no slash shows it. Those whose names end with `dir` are folders.
const FILES: [&str; 7] = ["block", "conf", "hints", "log", "o", "output", "report"];

/// Formats seconds: `9 h 54 min`, `32 min 11 s`, `4.2 s`, `350 ms`.
pub fn duration(seconds: f64) -> String {
    let pair = |whole: f64, part: f64, names: [&str; 2]| match part as u64 {
        0 => format!("{} {}", number(whole), names[0]),
        part => format!("{} {} {part} {}", number(whole), names[0], names[1]),
    };
    let (minutes, whole) = ((seconds / 60.0).round(), seconds.round());
    if whole >= 3600.0 {
        pair((minutes / 60.0).floor(), minutes % 60.0, ["h", "min"])
    } else if whole >= 60.0 {
        pair((whole / 60.0).floor(), whole % 60.0, ["min", "s"])
    } else if seconds >= 0.9995 {
        format!("{} s", number((seconds * 10.0).round() / 10.0))
    } else if seconds >= 0.001 {
        format!("{:.0} ms", seconds * 1000.0)
    } else {
        format!("{:.0} µs", seconds.max(0.0) * 1e6)
    }
}

/// Formats bytes of data: `632 GB`, `1.5 MB`.
pub fn data(bytes: f64) -> String {
    HumanSize(bytes as u64).to_string()
}

/// Formats bytes of memory: `512 MiB`, `1.5 GiB`.
pub fn memory(bytes: f64) -> String {
    HumanMemory(bytes as u64).to_string()
}

/// Formats how many times as fast something is: three significant digits.
pub fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 99.95 => HumanCount(ratio.round() as u64).to_string(),
        ratio if ratio >= 9.995 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

/// Formats a number: groups of three digits, no needless decimals.
pub fn number(number: f64) -> String {
    HumanFloatCount(number).to_string()
}

/// Returns at most `most` characters of a text without control characters; a longer one ends with an
/// ellipsis.
pub fn cut(text: &str, most: usize) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    if text.chars().nth(most).is_none() {
        return text;
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the words of a command without the paths and addresses among them, since pages are made to be
/// shown. The first word is the program, of which the name stays.
pub fn without_paths(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let takes_path = |option: &str| {
        let name = option.trim_start_matches('-');
        option.starts_with('-') && (name.ends_with("dir") || FILES.contains(&name))
    };
    let mut shown: Vec<String> = Vec::new();
    let mut is_path = false;
    for word in words {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if word.starts_with('-') => (format!("{option}="), value),
            _ => (String::new(), word.as_str()),
        };
        let is_place =
            is_path || takes_path(option.trim_end_matches('=')) || value.contains(['/', '\\', ':']);
        is_path = takes_path(&word);
        shown.push(match shown.is_empty() {
            true => Path::new(&word).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            false if is_place => option + "PATH",
            false => word,
        });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most_and_carry() {
        let known = [
            (35_623.0, "9 h 54 min"),
            (3599.6, "1 h"),
            (3599.4, "59 min 59 s"),
            (1931.0, "32 min 11 s"),
            (59.96, "1 min"),
            (59.4, "59.4 s"),
            (4.0, "4 s"),
            (0.35, "350 ms"),
            (0.000_25, "250 µs"),
            (0.0, "0 µs"),
            (7_200_000.0, "2,000 h"),
        ];
        for (seconds, text) in known {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn numbers_have_units_and_few_digits() {
        assert_eq!((times(18.44), times(1.0), times(1234.4)), ("18.4".into(), "1.00".into(), "1,234".into()));
        assert_eq!(
            (number(0.5), number(1000.0), number(0.0), number(1_234_567.25)),
            ("0.5".into(), "1,000".into(), "0".into(), "1,234,567.25".into())
        );
        assert_eq!((cut("bitcoind", 8), cut("bitcoind", 5)), ("bitcoind".into(), "bitc…".into()));
        assert_eq!(cut("a\u{0}b", 9), "a\u{fffd}b");
    }

    #[test]
    fn a_command_is_shown_without_paths_and_addresses() {
        let shown = |command: &str| without_paths(command.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            shown("b/peregrine reindex --datadir node --threads 4 --hints=a.hints --log a/b --undo make c/d"),
            "peregrine reindex --datadir PATH --threads 4 --hints=PATH --log PATH --undo make PATH"
        );
        assert_eq!(
            shown("bitcoind -datadir=node -regtest -dbcache=450 -debug=leveldb -connect=10.0.0.1:8333"),
            "bitcoind -datadir=PATH -regtest -dbcache=450 -debug=leveldb -connect=PATH"
        );
    }
}
