//! Durations, counts and times in words. Sizes in bytes have [`engine::HumanSize`] for data, decimal, and
//! [`engine::HumanMemory`] for memory, binary.

use indicatif::HumanCount;
use std::{ops::RangeInclusive, time::Duration};

/// Returns a duration in words: `40 s`, `25 minutes`, `1.5 hours`.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{} s", seconds.max(1)),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        _ => format!("{:.1} hours", time.as_secs_f64() / 3600.0),
    }
}

/// Returns a range of durations in words: `4 to 15 s`, `50 s to 3 minutes`.
pub fn durations(range: &RangeInclusive<Duration>) -> String {
    let (least, most) = (duration(*range.start()), duration(*range.end()));
    let unit = |text: &str| text.split_once(' ').map(|(_, unit)| unit.to_owned());
    match least.split_once(' ') {
        _ if least == most => most,
        Some((number, _)) if unit(&least) == unit(&most) => format!("{number} to {most}"),
        _ => format!("{least} to {most}"),
    }
}

/// Returns a duration as on a clock: `00:07`, `1:02:03`.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes:02}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Returns a number with separators: `1,234,567`.
pub fn count(number: impl Into<u64>) -> String {
    HumanCount(number.into()).to_string()
}

/// Returns a number and what it counts: `1 peer`, `1,234 peers`.
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns an amount in bitcoins.
pub fn btc(sats: i64) -> String {
    let (sign, sats) = (if sats < 0 { "-" } else { "" }, sats.unsigned_abs());
    format!("{sign}{}.{:08}", sats / 100_000_000, sats % 100_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_fits() {
        let text = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!((text(0), text(119)), ("1 s".into(), "119 s".into()));
        assert_eq!((text(125), text(7199)), ("2 minutes".into(), "119 minutes".into()));
        assert_eq!((text(7200), text(90_000)), ("2.0 hours".into(), "25.0 hours".into()));
        let range = |least, most| durations(&(Duration::from_secs(least)..=Duration::from_secs(most)));
        assert_eq!(range(4, 15), "4 to 15 s");
        assert_eq!(range(0, 1), "1 s");
        assert_eq!(range(50, 200), "50 s to 3 minutes");
        assert_eq!(range(7200, 10_800), "2.0 to 3.0 hours");
        let text = |seconds| clock(Duration::from_secs(seconds));
        assert_eq!((text(7), text(3599), text(3723)), ("00:07".into(), "59:59".into(), "1:02:03".into()));
        assert_eq!(count(1_234_567_u32), "1,234,567");
        let peers = |number: u32| counted(number, "peer");
        assert_eq!(peers(0), "0 peers");
        assert_eq!(peers(1), "1 peer");
        assert_eq!(peers(1234), "1,234 peers");
    }
}
