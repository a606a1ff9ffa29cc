//! Numbers as people read them: durations, bytes, counts.

/// Formats seconds: `9 h 54 min`, `32 min 11 s`, `4.2 s`, `350 ms`.
pub fn duration(seconds: f64) -> String {
    let pair = |whole: f64, part: f64, names: [&str; 2]| match part as u64 {
        0 => format!("{} {}", grouped(&format!("{whole:.0}")), names[0]),
        part => format!("{} {} {part} {}", grouped(&format!("{whole:.0}")), names[0], names[1]),
    };
    let (minutes, whole) = ((seconds / 60.0).round(), seconds.round());
    if whole >= 3600.0 {
        pair((minutes / 60.0).floor(), minutes % 60.0, ["h", "min"])
    } else if whole >= 60.0 {
        pair((whole / 60.0).floor(), whole % 60.0, ["min", "s"])
    } else if seconds >= 0.9995 {
        format!("{} s", trimmed(format!("{seconds:.1}")))
    } else if seconds >= 0.001 {
        format!("{:.0} ms", seconds * 1000.0)
    } else {
        format!("{:.0} µs", seconds.max(0.0) * 1e6)
    }
}

/// Formats bytes of data: `632 GB`, `1.5 MB`.
pub fn data(bytes: f64) -> String {
    scaled(bytes, 1000.0, ["B", "kB", "MB", "GB", "TB"])
}

/// Formats bytes of memory: `512 MiB`, `1.5 GiB`.
pub fn memory(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
}

fn scaled(bytes: f64, base: f64, names: [&str; 5]) -> String {
    let (mut number, mut at) = (bytes, 0);
    while number.round() >= base && at + 1 < names.len() {
        number /= base;
        at += 1;
    }
    let decimals = if at == 0 || number >= 99.5 { 0 } else { 1 };
    format!("{} {}", grouped(&trimmed(format!("{number:.decimals$}"))), names[at])
}

/// Formats how many times as fast something is: three significant digits.
pub fn times(ratio: f64) -> String {
    let decimals = match ratio {
        ratio if ratio >= 99.95 => 0,
        ratio if ratio >= 9.995 => 1,
        _ => 2,
    };
    grouped(&format!("{ratio:.decimals$}"))
}

/// Formats a height.
pub fn height(height: f64) -> String {
    grouped(&format!("{height:.0}"))
}

/// Formats a height beside an axis, where room is short: `300k`.
pub fn short_height(height: f64) -> String {
    if height >= 10_000.0 && height % 1000.0 == 0.0 {
        format!("{:.0}k", height / 1000.0)
    } else {
        short(height)
    }
}

/// Formats a number beside an axis: groups of three digits, no needless decimals.
pub fn short(number: f64) -> String {
    let text = trimmed(format!("{number:.3}"));
    grouped(if text == "-0" { "0" } else { &text })
}

/// Formats `1234567.5` as `1,234,567.5`.
pub fn grouped(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let mut text = String::new();
    for (index, digit) in number.chars().enumerate() {
        let left = whole.saturating_sub(index);
        if index > 0 && left > 0 && left.is_multiple_of(3) && text != "-" {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

/// Divides a text at its spaces into rows of at most `most` characters. What does not fit the last row is cut
/// off.
pub fn wrapped(text: &str, most: usize, rows_most: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = rows.len() == rows_most;
        match rows.last_mut() {
            Some(row) if is_last || row.chars().count() + 1 + word.chars().count() <= most => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    rows.iter().map(|row| cut(row, most)).collect()
}

/// Returns a number without needless decimals.
fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
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
        assert_eq!(
            (data(632e9), data(1.55e6), data(999.6)),
            ("632 GB".into(), "1.6 MB".into(), "1 kB".into())
        );
        assert_eq!(
            (memory(512.0 * 1_048_576.0), memory(1.5 * 1_073_741_824.0)),
            ("512 MiB".into(), "1.5 GiB".into())
        );
        assert_eq!((times(18.44), times(1.0), times(123.4)), ("18.4".into(), "1.00".into(), "123".into()));
        assert_eq!((short_height(300_000.0), short_height(2500.0)), ("300k".into(), "2,500".into()));
        assert_eq!((short(0.5), short(1000.0), short(-0.0)), ("0.5".into(), "1,000".into(), "0".into()));
        assert_eq!((grouped("1234567.25"), grouped("-123")), ("1,234,567.25".into(), "-123".into()));
        assert_eq!((cut("bitcoind", 8), cut("bitcoind", 5)), ("bitcoind".into(), "bitc…".into()));
        assert_eq!(cut("a\u{0}b", 9), "a\u{fffd}b");
        assert_eq!(wrapped("Peregrine, hints", 11, 2), ["Peregrine,", "hints"]);
        assert_eq!(wrapped("Peregrine with many hints", 11, 2), ["Peregrine", "with many …"]);
        assert_eq!(wrapped("bitcoind 31", 22, 1), ["bitcoind 31"]);
    }
}
