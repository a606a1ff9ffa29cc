//! One direction of a link: a packet waits for its turn at the link's rate, and then for the link's delay.
//! Time is an argument, so that all of it can be tested without a clock.

use super::link::Shape;
use std::{collections::VecDeque, time::Duration};

/// How long a packet may wait for its turn; one that would wait longer is lost.
const QUEUE: Duration = Duration::from_millis(100);

/// Packets on their way, in the order in which they leave. Times are counted from any one moment.
pub struct DelayLine<P> {
    shape: Shape,
    /// When the last packet will have passed.
    free_at: Duration,
    /// Packets, and when they arrive.
    waiting: VecDeque<(Duration, P)>,
}

impl<P> DelayLine<P> {
    /// Creates an empty line.
    pub const fn new(shape: Shape) -> Self {
        Self { shape, free_at: Duration::ZERO, waiting: VecDeque::new() }
    }

    /// Takes a packet of `bytes` bytes at the time `now`; returns whether it will arrive.
    pub fn push(&mut self, now: Duration, bytes: usize, packet: P) -> bool {
        let start = self.free_at.max(now);
        if start - now > QUEUE {
            return false;
        }
        let turn = bytes as u64 * 1_000_000_000 / self.shape.bytes_per_second.max(1);
        self.free_at = start + Duration::from_nanos(turn);
        self.waiting.push_back((self.free_at + self.shape.round_trip / 2, packet));
        true
    }

    /// Returns when the next packet arrives.
    pub fn next_arrival(&self) -> Option<Duration> {
        self.waiting.front().map(|(arrival, _)| *arrival)
    }

    /// Returns the next packet if it has arrived.
    pub fn pop(&mut self, now: Duration) -> Option<P> {
        if self.next_arrival()? <= now { self.waiting.pop_front().map(|(_, packet)| packet) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(round_trip: Duration) -> DelayLine<u32> {
        // A packet of 1,000 bytes takes a millisecond.
        DelayLine::new(Shape { bytes_per_second: 1_000_000, round_trip })
    }

    #[test]
    fn packets_arrive_after_their_turn_and_the_delay() {
        let mut line = line(30 * MS);
        assert!(line.push(Duration::ZERO, 1000, 1) && line.push(Duration::ZERO, 500, 2));
        assert!(line.push(20 * MS, 1000, 3));
        assert_eq!(line.next_arrival(), Some(16 * MS));
        assert_eq!(line.pop(16 * MS - Duration::from_nanos(1)), None);
        assert_eq!((line.pop(16 * MS), line.next_arrival()), (Some(1), Some(16 * MS + MS / 2)));
        assert_eq!(line.pop(30 * MS), Some(2));
        assert_eq!((line.pop(30 * MS), line.next_arrival()), (None, Some(36 * MS)));
        assert_eq!(line.pop(36 * MS), Some(3));
        assert_eq!(line.next_arrival(), None);
    }

    #[test]
    fn a_full_line_delivers_its_rate_and_no_more() {
        // 1 MB/s for ten seconds, offered twice as much.
        let mut line = line(80 * MS);
        let (mut delivered, mut lost) = (0, 0);
        for tick in 0..10_000_u32 {
            let now = tick * MS;
            (0..2).for_each(|_| lost += u32::from(!line.push(now, 1000, tick)));
            while let Some(sent) = line.pop(now) {
                delivered += 1;
                let on_the_way = now - sent * MS;
                assert!(on_the_way > 40 * MS && on_the_way <= 142 * MS, "{on_the_way:?}");
            }
        }
        // Those of the last 40 ms are on their way.
        assert!((9_958..=9_960).contains(&delivered), "{delivered}");
        assert!((9_850..=9_960).contains(&lost), "{lost}");
    }

    #[test]
    fn a_queue_takes_packets_for_its_time() {
        let mut line = line(Duration::ZERO);
        let taken = (0..1000).filter(|_| line.push(Duration::ZERO, 1000, 0)).count();
        assert_eq!(taken, 101, "one passes at once, 100 wait, of which the last for 100 ms");
        assert!(!line.push(MS - Duration::from_nanos(1), 1000, 0) && line.push(MS, 1000, 0));
    }
}
