//! Numbers as people read them.

use indicatif::HumanFloatCount;

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

/// Formats a number: groups of three digits, no needless decimals.
pub fn number(number: f64) -> String {
    HumanFloatCount(number).to_string()
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
    fn numbers_have_few_digits() {
        assert_eq!(
            (number(0.5), number(1000.0), number(0.0), number(1_234_567.25)),
            ("0.5".into(), "1,000".into(), "0".into(), "1,234,567.25".into())
        );
    }
}
