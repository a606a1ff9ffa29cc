//! What the user writes about links: `4x100M/30ms`, `1xloopback`.

use humantime::parse_duration;
use parse_size::parse_size;
use std::{str::FromStr, time::Duration};

/// Some equal links, each to a peer of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkSpec {
    /// The text that the user wrote.
    pub text: String,
    pub count: usize,
    /// What they are like; `None`: the loopback device, as fast as the machine.
    pub shape: Option<Shape>,
}

/// What a link does to bytes, the same in both directions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    pub bytes_per_second: u64,
    /// Time from one end to the other and back.
    pub round_trip: Duration,
}

impl Shape {
    /// Returns how long the link is busy with so many bytes.
    pub fn time_for(&self, bytes: usize) -> Duration {
        Duration::from_nanos(bytes as u64 * 1_000_000_000 / self.bytes_per_second.max(1))
    }
}

impl FromStr for LinkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, shape) = text.split_once('x').ok_or("write COUNTxRATE/RTT, for example 4x100M/30ms")?;
        let count = count.parse::<usize>().ok().filter(|&count| count > 0);
        let count = count.ok_or("the count before the x must be a number above 0")?;
        let shape = match shape.split_once('/') {
            None if shape == "loopback" => None,
            None => return Err("the round trip is missing: RATE/RTT, as in 20M/80ms".to_owned()),
            Some((bits, time)) => Some(Shape { bytes_per_second: rate(bits)?, round_trip: duration(time)? }),
        };
        Ok(Self { text: text.to_owned(), count, shape })
    }
}

/// Reads bits per second with a decimal suffix, such as `2.5M`; returns bytes per second.
fn rate(text: &str) -> Result<u64, String> {
    // Each byte must pass in a time that can be awaited; beyond 100 Gbit/s, rates mean nothing.
    let bits = parse_size(text).ok().filter(|bits| (8_000..=100_000_000_000).contains(bits));
    bits.map(|bits| bits / 8).ok_or_else(|| format!("{text} is not from 8k to 100G bits per second"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok().filter(|time| *time <= Duration::from_secs(60));
    time.ok_or_else(|| format!("{text} is not a time such as 30ms, at most 60s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> LinkSpec {
        text.parse().unwrap()
    }

    #[test]
    fn links_are_read_as_they_are_written() {
        let plain = spec("4x100M/30ms");
        let shape = plain.shape.unwrap();
        assert_eq!((plain.count, shape.bytes_per_second), (4, 12_500_000));
        assert_eq!(shape.round_trip, Duration::from_millis(30));
        let full = spec("12x2.5M/0.5ms").shape.unwrap();
        assert_eq!((full.bytes_per_second, full.round_trip), (312_500, Duration::from_micros(500)));
        assert_eq!(spec("3xloopback").shape, None);
    }

    #[test]
    fn other_texts_are_refused_with_the_part_that_is_wrong() {
        for (text, said) in [
            ("100M/30ms", "COUNTxRATE/RTT"),
            ("0x100M/30ms", "above 0"),
            ("ax100M/30ms", "above 0"),
            ("4x100M", "round trip"),
            ("4x100Q/30ms", "100Q"),
            ("4x-1M/30ms", "-1M"),
            ("4x1/30ms", "8k to 100G"),
            ("4x1M/30", "30 is not a time"),
            ("4x1M/-1ms", "-1ms"),
            ("4x1M/NaNms", "NaNms"),
            ("4x1M/1ms/late", "1ms/late is not a time"),
        ] {
            let error = text.parse::<LinkSpec>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
