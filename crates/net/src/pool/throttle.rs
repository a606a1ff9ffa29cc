//! Keeps the bytes that are read below a rate.

use std::time::{Duration, Instant};

/// Unused reading time that may be made up at once.
const BURST: Duration = Duration::from_millis(250);

/// The least time for which bytes are read in one round, and the least bytes of a socket in it: shorter reads
/// cost more time than they save.
const MIN_TURN: Duration = Duration::from_millis(15);
const MIN_TURN_BYTES: usize = 512;

#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    bytes_per_second: f64,
    /// Bytes that may be read; negative if more were read, since a read is not cut short.
    allowance: f64,
    last: Instant,
}

impl Throttle {
    /// A throttle for this rate, in bytes per second.
    pub(super) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1) as f64, allowance: 0.0, last: now }
    }

    /// Returns how long to wait before bytes may be read; zero if they may be read now.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.last).as_secs_f64();
        let most = self.bytes_per_second * BURST.as_secs_f64();
        self.allowance = (self.allowance + elapsed * self.bytes_per_second).min(most);
        self.last = now;
        // A byte short is not worth a wait that the system rounds up.
        Duration::from_secs_f64(((1.0 - self.allowance) / self.bytes_per_second).clamp(0.0, 60.0))
    }

    /// Returns how many bytes may be read from one of so many sockets before the others have their turn:
    /// few, so that no peer waits for long.
    pub(super) fn turn(&self, sockets: usize) -> usize {
        let bytes = self.allowance.max(self.bytes_per_second * MIN_TURN.as_secs_f64());
        (bytes as usize / sockets.max(1)).max(MIN_TURN_BYTES)
    }

    pub(super) fn read(&mut self, bytes: u64) {
        self.allowance -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_unused_time_gives_little() {
        let start = Instant::now();
        let mut throttle = Throttle::new(1_000, start);
        let mut now = start;
        let mut total = 0;
        while now < start + Duration::from_secs(20) {
            match throttle.wait(now) {
                Duration::ZERO => {
                    throttle.read(333);
                    total += 333;
                }
                wait => now += wait,
            }
        }
        assert!((19_000..=20_400).contains(&total), "{total}");
        let later = now + Duration::from_secs(1_000);
        assert_eq!(throttle.wait(later), Duration::ZERO);
        throttle.read(500);
        assert_eq!(Throttle::new(1_000_000, start).turn(10), 1_500);
        assert!(throttle.wait(later) > Duration::from_millis(200));
    }
}
