//! The blocks that were asked of a peer and have not come, and what its pongs say of them.

use std::{collections::VecDeque, time::Instant};
use wire::BlockHash;

/// A block that was asked of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub height: u32,
    pub hash: BlockHash,
    /// Estimated size in bytes.
    pub bytes: u64,
    /// What it was when the block was asked for.
    pub bytes_when_asked: u64,
    /// When it was asked for.
    pub asked: Instant,
    /// When it was expected to be complete.
    pub expected: Instant,
}

/// A ping that follows a `getdata`. Its pong comes after the last block of the `getdata`, so the peer does
/// not have a block that has not come by then (Core answers nothing to a request for such a block).
#[derive(Clone, Copy, Debug)]
struct Marker {
    number: u64,
    /// Number of requests made before the ping, in the whole life of the connection.
    requests: u64,
    sent: Instant,
}

/// A message that is being received is taken for one other than a block if it has at most this many bytes.
const MAX_OTHER: u64 = 4_096;
/// Pings that are remembered. A peer that answers none must not make them grow without end.
const MAX_MARKERS: usize = 1_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests {
    /// The requests with their numbers, in the order in which they were made.
    open: VecDeque<(u64, Request)>,
    /// Number of requests that were ever made.
    made: u64,
    markers: VecDeque<Marker>,
    /// Estimated bytes of all of them, now and when they were made.
    bytes: u64,
    bytes_when_asked: u64,
    /// How many bytes of a message that is coming have come, and how many it has.
    pub(super) incoming: (u64, u64),
}

impl OpenRequests {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Request> + ExactSizeIterator {
        self.open.iter().map(|(_, request)| request)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many bytes of the first block have come, and its size, as far as that is known.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        let estimate = self.open.front()?.1.bytes;
        // Other messages are short.
        Some(if self.incoming.1 > MAX_OTHER { self.incoming } else { (0, estimate) })
    }

    /// Returns the estimated bytes that have not come.
    pub(super) fn bytes_left(&self) -> u64 {
        self.left_of(self.bytes)
    }

    fn left_of(&self, bytes: u64) -> u64 {
        let Some(((come, size), (_, first))) = self.first().zip(self.open.front()) else { return bytes };
        bytes.saturating_sub(first.bytes) + size.saturating_sub(come)
    }

    /// Returns the estimated bytes that have not come up to the end of the block at that height; `None` if it
    /// is not asked for.
    pub(super) fn bytes_up_to(&self, height: u32) -> Option<u64> {
        let at = self.iter().position(|request| request.height == height)?;
        Some(self.left_of(self.iter().take(at + 1).map(|request| request.bytes).sum()))
    }

    /// Whether they were made when the blocks were expected to be much smaller.
    pub(crate) const fn were_underestimated(&self) -> bool {
        self.bytes > self.bytes_when_asked.saturating_mul(2)
    }

    pub(super) fn add(&mut self, request: Request) {
        self.bytes += request.bytes;
        self.bytes_when_asked += request.bytes_when_asked;
        self.open.push_back((self.made, request));
        self.made += 1;
    }

    /// Notes that a ping with this number follows the requests made so far.
    pub(crate) fn mark(&mut self, number: u64, now: Instant) {
        self.markers.push_back(Marker { number, requests: self.made, sent: now });
        if self.markers.len() > MAX_MARKERS {
            self.markers.pop_front();
        }
    }

    /// Corrects the estimated sizes.
    pub(crate) fn estimate_again(&mut self, bytes_at: impl Fn(u32) -> u64) {
        self.open.iter_mut().for_each(|(_, request)| request.bytes = bytes_at(request.height));
        self.bytes = self.iter().map(|request| request.bytes).sum();
    }

    pub(super) fn take(&mut self, hash: BlockHash) -> Option<Request> {
        let at = self.iter().position(|request| request.hash == hash)?;
        self.remove(at)
    }

    /// Removes the requests that were made before the ping with this number, and returns when it was sent.
    /// Returns `None` if no such ping is remembered.
    pub(super) fn take_marked(&mut self, number: u64) -> Option<(Instant, Vec<Request>)> {
        let at = self.markers.iter().position(|marker| marker.number == number)?;
        let marker = self.markers.drain(..=at).next_back()?;
        let mut taken = Vec::new();
        while self.open.front().is_some_and(|(made, _)| *made < marker.requests) {
            taken.extend(self.remove(0));
        }
        Some((marker.sent, taken))
    }

    fn remove(&mut self, at: usize) -> Option<Request> {
        let (_, request) = self.open.remove(at)?;
        self.bytes = self.bytes.saturating_sub(request.bytes);
        self.bytes_when_asked = self.bytes_when_asked.saturating_sub(request.bytes_when_asked);
        Some(request)
    }
}
