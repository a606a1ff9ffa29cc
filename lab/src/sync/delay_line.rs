//! One direction of a link: a packet waits for its turn at the link's rate, and then for the link's delay.
//! Time is an argument, so that all of it can be tested without a clock.

use crate::statistics::SplitMix;
use std::{collections::VecDeque, time::Duration};

/// Packets on their way, in the order in which they leave. Times are counted from any one moment.
pub struct DelayLine<P> {
    /// `None`: packets need not wait for their turn.
    bytes_per_second: Option<u64>,
    delay: Duration,
    /// A packet that would wait longer than this for its turn is lost.
    queue: Duration,
    /// A packet is lost if a random number is below this.
    loss: u64,
    random: SplitMix,
    /// When the last packet will have passed.
    free_at: Duration,
    /// Packets, and when they arrive.
    waiting: VecDeque<(Duration, P)>,
}

impl<P> DelayLine<P> {
    /// Creates an empty line. `loss` is from 0 to 1; the same seed loses the same packets.
    pub fn new(
        bytes_per_second: Option<u64>,
        delay: Duration,
        queue: Duration,
        loss: f64,
        seed: u64,
    ) -> Self {
        Self {
            bytes_per_second,
            delay,
            queue,
            // The product of 1 is rounded to the greatest number.
            loss: (loss * u64::MAX as f64) as u64,
            random: SplitMix(seed),
            free_at: Duration::ZERO,
            waiting: VecDeque::new(),
        }
    }

    /// Takes a packet of `bytes` bytes at the time `now`; returns whether it will arrive.
    pub fn push(&mut self, now: Duration, bytes: usize, packet: P) -> bool {
        let start = self.free_at.max(now);
        if start - now > self.queue || self.loss > 0 && self.random.next() < self.loss {
            return false;
        }
        let turn = self.bytes_per_second.map_or(0, |rate| bytes as u64 * 1_000_000_000 / rate.max(1));
        self.free_at = start + Duration::from_nanos(turn);
        self.waiting.push_back((self.free_at + self.delay, packet));
        true
    }

    /// Returns when the next packet arrives.
    pub fn next_arrival(&self) -> Option<Duration> {
        self.waiting.front().map(|(arrival, _)| *arrival)
    }

    /// Returns the next packet if it has arrived, and when that was.
    pub fn pop(&mut self, now: Duration) -> Option<(Duration, P)> {
        if self.next_arrival()? <= now { self.waiting.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(bytes_per_second: Option<u64>, delay: Duration, queue: Duration) -> DelayLine<u32> {
        DelayLine::new(bytes_per_second, delay, queue, 0.0, 1)
    }

    #[test]
    fn packets_arrive_after_their_turn_and_the_delay() {
        // A packet of 1,000 bytes takes a millisecond.
        let mut line = line(Some(1_000_000), 15 * MS, 100 * MS);
        assert!(line.push(Duration::ZERO, 1000, 1) && line.push(Duration::ZERO, 500, 2));
        assert!(line.push(20 * MS, 1000, 3));
        assert_eq!(line.next_arrival(), Some(16 * MS));
        assert_eq!(line.pop(16 * MS - Duration::from_nanos(1)), None);
        assert_eq!(line.pop(16 * MS), Some((16 * MS, 1)));
        assert_eq!(line.pop(30 * MS), Some((16 * MS + MS / 2, 2)));
        assert_eq!((line.pop(30 * MS), line.next_arrival()), (None, Some(36 * MS)));
        assert_eq!(line.pop(36 * MS), Some((36 * MS, 3)));
        assert_eq!(line.next_arrival(), None);
    }

    #[test]
    fn a_full_line_delivers_its_rate_and_no_more() {
        // 1 MB/s for ten seconds, offered twice as much.
        let mut line = line(Some(1_000_000), 40 * MS, 50 * MS);
        let (mut delivered, mut lost) = (0, 0);
        for tick in 0..10_000_u32 {
            let now = tick * MS;
            (0..2).for_each(|_| lost += u32::from(!line.push(now, 1000, tick)));
            while let Some((arrival, sent)) = line.pop(now) {
                delivered += 1;
                let on_the_way = arrival - sent * MS;
                assert!(on_the_way > 40 * MS && on_the_way <= 92 * MS, "{on_the_way:?}");
            }
        }
        // Those of the last 40 ms are on their way.
        assert!((9_958..=9_960).contains(&delivered), "{delivered}");
        assert!((9_900..=9_960).contains(&lost), "{lost}");
    }

    #[test]
    fn a_queue_takes_packets_for_its_time() {
        let mut line = line(Some(1_000_000), Duration::ZERO, 10 * MS);
        let taken = (0..100).filter(|_| line.push(Duration::ZERO, 1000, 0)).count();
        assert_eq!(taken, 11, "one passes at once, ten wait, of which the last for 10 ms");
        assert!(!line.push(MS - Duration::from_nanos(1), 1000, 0) && line.push(MS, 1000, 0));
    }

    #[test]
    fn without_a_rate_only_the_delay_counts() {
        let mut line = line(None, 5 * MS, Duration::ZERO);
        assert!((0..1000).all(|packet| line.push(MS, 1500, packet)));
        assert_eq!((line.pop(6 * MS), line.next_arrival()), (Some((6 * MS, 0)), Some(6 * MS)));
    }

    #[test]
    fn about_the_given_part_is_lost_and_always_the_same_packets() {
        let lost = |loss, seed| {
            let mut line = DelayLine::new(None, MS, MS, loss, seed);
            (0..10_000).filter(|_| !line.push(Duration::ZERO, 1, ())).collect::<Vec<_>>()
        };
        assert_eq!((lost(0.0, 1).len(), lost(1.0, 1).len()), (0, 10_000));
        assert!((80..=120).contains(&lost(0.01, 1).len()), "{}", lost(0.01, 1).len());
        assert_eq!(lost(0.01, 7), lost(0.01, 7));
        assert_ne!(lost(0.01, 7), lost(0.01, 8));
    }
}
