//! What the user writes about links: `4x100M/30ms`, `1x20M/80ms/loss=0.5%`, `1xstall`, `1xloopback`.

use std::{str::FromStr, time::Duration};

/// How long a packet may wait for its turn, if the user does not say so.
const QUEUE: Duration = Duration::from_millis(100);
/// What `stall` stands for: a peer that serves headers, and then nothing.
const STALLING: &str = "20M/80ms/stall=1M";

/// Some equal links, each to a peer of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkSpec {
    /// The text that the user wrote.
    pub text: String,
    /// Number of links.
    pub count: usize,
    /// What they are like; `None`: the loopback device, as fast as the machine.
    pub shape: Option<Shape>,
}

/// What a link does to packets, the same in both directions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Time from one end to the other and back.
    pub round_trip: Duration,
    /// How long a packet may wait for its turn; one that would wait longer is lost.
    pub queue: Duration,
    /// Part of the packets that are lost, from 0 to 1.
    pub loss: f64,
    /// Number of bytes after which a connection gets nothing from the peer any more.
    pub stall_after: Option<u64>,
}

impl FromStr for LinkSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, shape) = text.split_once('x').ok_or("write COUNTxRATE/RTT, for example 4x100M/30ms")?;
        let count = count.parse::<usize>().ok().filter(|&count| count > 0);
        let count = count.ok_or("the count before the x must be a number above 0")?;
        let shape = match shape {
            "loopback" => None,
            "stall" => Some(STALLING.parse()?),
            shape => Some(shape.parse()?),
        };
        Ok(Self { text: text.to_owned(), count, shape })
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let bytes_per_second = parts.next().ok_or("the rate is missing").map(rate)??;
        let round_trip =
            duration(parts.next().ok_or("the round trip is missing: RATE/RTT, as in 20M/80ms")?)?;
        let mut shape = Self { bytes_per_second, round_trip, queue: QUEUE, loss: 0.0, stall_after: None };
        for part in parts {
            match part.split_once('=') {
                Some(("loss", loss)) => shape.loss = percent(loss)?,
                Some(("queue", queue)) => shape.queue = duration(queue)?,
                Some(("stall", after)) => shape.stall_after = Some(number(after)? as u64),
                _ => return Err(format!("{part} is none of loss=PERCENT%, queue=TIME and stall=BYTES")),
            }
        }
        Ok(shape)
    }
}

/// Reads a number with a decimal suffix: `2.5M`.
pub fn number(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if text.ends_with('k') => (digits, 1e3),
        Some(digits) if text.ends_with('M') => (digits, 1e6),
        Some(digits) => (digits, 1e9),
        None => (text, 1.0),
    };
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    let number = number.ok_or_else(|| format!("{text} is not a number above 0 such as 800k, 2.5M or 1G"))?;
    Ok(number * factor)
}

/// Reads bits per second; returns bytes per second.
pub fn rate(text: &str) -> Result<u64, String> {
    let bytes = number(text)? / 8.0;
    // A packet of 1,500 bytes must pass in a time that can be awaited; beyond 100 Gbit/s, rates mean nothing.
    let permitted = (1e3..=12.5e9).contains(&bytes);
    if permitted { Ok(bytes as u64) } else { Err(format!("{text} is not from 8k to 100G bits per second")) }
}

fn duration(text: &str) -> Result<Duration, String> {
    let milliseconds = text.strip_suffix("ms").and_then(|digits| digits.parse::<f64>().ok());
    let milliseconds = milliseconds.filter(|milliseconds| (0.0..=60e3).contains(milliseconds));
    let milliseconds =
        milliseconds.ok_or_else(|| format!("{text} is not a time such as 30ms, at most 60000ms"))?;
    Ok(Duration::from_secs_f64(milliseconds / 1e3))
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("{text} is not a part such as 0.5%"))
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
        assert_eq!((shape.round_trip, shape.queue), (Duration::from_millis(30), QUEUE));
        assert_eq!((shape.loss, shape.stall_after), (0.0, None));
        let full = spec("12x2.5M/0.5ms/loss=0.5%/queue=20ms/stall=64k").shape.unwrap();
        assert_eq!((full.bytes_per_second, full.round_trip), (312_500, Duration::from_micros(500)));
        assert_eq!((full.loss, full.queue), (0.005, Duration::from_millis(20)));
        assert_eq!(full.stall_after, Some(64_000));
        assert_eq!(spec("3xloopback").shape, None);
        assert_eq!(spec("1xstall").shape.unwrap().stall_after, Some(1_000_000));
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
            ("4x1M/1ms/loss=101%", "101%"),
            ("4x1M/1ms/loss=1", "loss=PERCENT%|1 is not a part"),
            ("4x1M/1ms/late", "late is none of"),
        ] {
            let error = text.parse::<LinkSpec>().unwrap_err();
            assert!(said.split('|').any(|said| error.contains(said)), "{text}: {error}");
        }
    }
}
