//! The speed of a connection, as a moving average of samples.

use std::time::{Duration, Instant};

/// Bytes per second that are assumed before the first sample.
const UNKNOWN: f64 = 250_000.0;
/// Lowest speed with which times are forecast, in bytes per second, so that these are finite.
const LOWEST: f64 = 100.0;
const SAMPLE: Duration = Duration::from_millis(250);
/// Time in which an old average loses 63 % of its weight.
const MEMORY: Duration = Duration::from_millis(1_500);

/// A moving average of bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    average: Option<f64>,
    /// Follows higher samples at once, and falls gradually to the average.
    peak: f64,
    sample_start: Option<Instant>,
    sample_bytes: u64,
}

impl Speed {
    /// Adds bytes that have come. A sample that begins with them starts at `start` if that is not later:
    /// before it, the bytes were on their way.
    pub fn add(&mut self, bytes: u64, start: Instant, now: Instant) {
        self.sample_start.get_or_insert(start.min(now));
        self.sample_bytes += bytes;
        self.update(now);
    }

    /// Ends a sample that is long enough.
    pub fn update(&mut self, now: Instant) {
        if let Some(start) = self.sample_start.filter(|start| now.saturating_duration_since(*start) >= SAMPLE)
        {
            self.end_sample(start, now);
            self.sample_start = Some(now);
        }
    }

    /// Ends the sample because nothing is asked for any more.
    pub fn end(&mut self, now: Instant) {
        if let Some(start) = self.sample_start.take() {
            self.end_sample(start, now);
        }
    }

    fn end_sample(&mut self, start: Instant, now: Instant) {
        // The shortest time keeps a burst out of the buffers of this machine from counting as endless speed.
        let seconds = now.saturating_duration_since(start).max(Duration::from_millis(5)).as_secs_f64();
        let sample = std::mem::take(&mut self.sample_bytes) as f64 / seconds;
        let weight = 1.0 - (-seconds / MEMORY.as_secs_f64()).exp();
        let average = self.average.map_or(sample, |average| average + weight * (sample - average));
        self.peak = (self.peak + weight * (average - self.peak)).max(sample);
        self.average = Some(average);
    }

    /// Returns the speed that the connection may have, in bytes per second: the best of the last samples.
    /// What is in flight is measured by it, so that it doubles with each round trip until the connection is
    /// full.
    pub fn peak(&self) -> f64 {
        if self.average.is_some() { self.peak } else { UNKNOWN }
    }

    /// Returns the average in bytes per second, or a guess before the first sample.
    pub fn bytes_per_second(&self) -> f64 {
        self.average.unwrap_or(UNKNOWN)
    }

    /// Returns whether there was a sample.
    pub const fn is_measured(&self) -> bool {
        self.average.is_some()
    }

    /// Returns the time that `bytes` need at this speed.
    pub fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second().max(LOWEST))
    }
}
