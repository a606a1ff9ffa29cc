//! One connection as the download sees it: open requests, measured speed, progress, and why it was closed.

mod close;
mod requests;
mod speed;

pub use close::{CloseReason, SpentCoinsFault};
pub use requests::Request;
pub use speed::Speed;

use crate::address::NetGroup;
use requests::OpenRequests;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use wire::BlockHash;

/// Time between two looks at a connection after which this program counts as having been paused.
const PAUSE: Duration = Duration::from_secs(5);

/// Number of blocks that a peer has which has deleted old ones: the last 288, less some that it may have
/// found meanwhile (Core `NODE_NETWORK_LIMITED_MIN_BLOCKS`).
pub const KEPT_BLOCKS: u32 = 286;

/// Number of a connection. No number is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u64);

impl std::fmt::Display for PeerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "peer {}", self.0)
    }
}

/// The state of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The group of its address.
    pub group: NetGroup,
    /// Height of its best block.
    pub height: u32,
    /// The last block that its chain shares with the one that is downloaded, if it is known to have another
    /// one above.
    pub shares_to: Option<u32>,
    /// Whether it has deleted old blocks, and has only the last ones.
    pub is_limited: bool,
    /// Whether the user gave it.
    pub is_named: bool,
    /// Measured speed while requests are open.
    pub speed: Speed,
    /// Shortest round trip that was measured.
    pub round_trip: Duration,
    pub(crate) requests: OpenRequests,
    /// When the first of the open requests was made after none was open.
    busy_since: Option<Instant>,
    last_byte: Option<Instant>,
    last_block: Option<Instant>,
    /// Heights in the window that the peer said it does not have.
    lacks: BTreeSet<u32>,
    /// Number of blocks that the peer said it does not have since its last block.
    pub denials_in_a_row: u32,
    /// Number of blocks that came without having been asked for.
    pub unrequested: u32,
    /// Number of blocks received, and their bytes.
    pub delivered: (u64, u64),
}

impl Peer {
    /// Creates the state of a connection without requests.
    pub fn new(group: NetGroup, height: u32, round_trip: Duration) -> Self {
        Self {
            group,
            height,
            shares_to: None,
            is_limited: false,
            is_named: false,
            speed: Speed::default(),
            round_trip,
            requests: OpenRequests::default(),
            busy_since: None,
            last_byte: None,
            last_block: None,
            lacks: BTreeSet::new(),
            denials_in_a_row: 0,
            unrequested: 0,
            delivered: (0, 0),
        }
    }

    /// Returns the estimated bytes of all open requests.
    pub const fn in_flight_bytes(&self) -> u64 {
        self.requests.bytes()
    }

    /// Returns the open requests in the order in which they were made.
    pub fn requests(&self) -> impl DoubleEndedIterator<Item = &Request> + ExactSizeIterator {
        self.requests.iter()
    }

    /// Returns whether the peer can be asked for the block at that height.
    pub fn may_have(&self, height: u32) -> bool {
        let has_deleted = self.is_limited && self.height.saturating_sub(height) >= KEPT_BLOCKS;
        height <= self.shares_to.unwrap_or(self.height) && !has_deleted && !self.lacks.contains(&height)
    }

    /// Returns how long requests have been open.
    pub fn busy_for(&self, now: Instant) -> Duration {
        self.busy_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns how long no byte has come although requests are open.
    pub fn silent_for(&self, now: Instant) -> Duration {
        self.since_progress(self.last_byte, now)
    }

    /// Returns how long no block has come although requests are open.
    pub fn blockless_for(&self, now: Instant) -> Duration {
        self.since_progress(self.last_block, now)
    }

    fn since_progress(&self, last: Option<Instant>, now: Instant) -> Duration {
        let Some(busy_since) = self.busy_since else { return Duration::ZERO };
        now.saturating_duration_since(last.map_or(busy_since, |last| last.max(busy_since)))
    }

    /// Notes that a block is asked for.
    pub fn request(&mut self, request: Request) {
        self.busy_since.get_or_insert(request.asked);
        self.requests.add(request);
    }

    /// Notes that bytes have come.
    pub fn received_bytes(&mut self, bytes: u64, now: Instant) {
        self.last_byte = Some(now);
        if let Some(since) = self.busy_since {
            self.speed.add(bytes, since + self.round_trip, now);
        }
    }

    /// Handles a whole block. Returns its request, or `None` if it was not asked of this peer.
    pub fn received_block(&mut self, hash: BlockHash, bytes: u64, now: Instant) -> Option<Request> {
        let Some(request) = self.requests.take(hash) else {
            self.unrequested += 1;
            return None;
        };
        self.last_block = Some(now);
        self.denials_in_a_row = 0;
        self.delivered.0 += 1;
        self.delivered.1 += bytes;
        self.end_if_idle(now);
        Some(request)
    }

    /// Handles a pong. Returns the requests that were made before its ping and not answered: the peer does
    /// not have these blocks.
    pub fn received_pong(&mut self, number: u64, now: Instant) -> Vec<Request> {
        let Some((sent, denied)) = self.requests.take_marked(number) else { return vec![] };
        self.round_trip = self.round_trip.min(now.saturating_duration_since(sent));
        if !denied.is_empty() {
            self.answered(now);
        }
        denied
    }

    /// Handles a `notfound` for one block. Returns its request, if there is one.
    pub fn received_not_found(&mut self, hash: BlockHash, now: Instant) -> Option<Request> {
        let request = self.requests.take(hash)?;
        self.answered(now);
        Some(request)
    }

    /// Notes that the peer said that it does not have a block of the chain.
    pub fn note_lack(&mut self, height: u32) {
        self.denials_in_a_row += 1;
        self.lacks.insert(height);
    }

    /// Forgets which blocks below `height` the peer does not have.
    pub fn forget_below(&mut self, height: u32) {
        while self.lacks.first().is_some_and(|lowest| *lowest < height) {
            self.lacks.pop_first();
        }
    }

    /// Forgets which blocks from `height` on the peer does not have: the chain has others there.
    pub fn forget_from(&mut self, height: u32) {
        self.lacks.split_off(&height);
    }

    /// Notes what is known of the connection since the last look at it, `elapsed` ago: if bytes have come and
    /// were not read, the peer was not silent. `incoming`: how many bytes of a message that is coming have
    /// come, and how many it has.
    pub fn note_reading(&mut self, is_unread: bool, incoming: Option<(usize, usize)>, elapsed: Duration) {
        let (come, len) = incoming.unwrap_or_default();
        self.requests.incoming = (come as u64, len as u64);
        // What comes while this program is paused is not known before it is read.
        if is_unread || elapsed >= PAUSE {
            let clocks = [&mut self.busy_since, &mut self.last_byte, &mut self.last_block];
            clocks.into_iter().flatten().for_each(|clock| *clock += elapsed);
        }
    }

    /// Returns the time that the peer needs for `bytes` more, after all that was asked of it before.
    pub fn forecast(&self, bytes: u64) -> Duration {
        self.round_trip + self.speed.time_for(self.requests.bytes_left() + bytes)
    }

    /// Returns the time until a requested block is complete, or `None` if it was not asked of this peer.
    pub fn forecast_of(&self, height: u32) -> Option<Duration> {
        self.requests.bytes_up_to(height).map(|bytes| self.speed.time_for(bytes))
    }

    /// Notes that the peer has answered, though without a block: it is not slow. Before its first block, its
    /// speed would be that of answers of a few bytes, with which it is asked for nothing that others have.
    fn answered(&mut self, now: Instant) {
        self.busy_since = Some(now);
        if self.delivered.0 == 0 {
            self.speed = Speed::default();
        }
        self.end_if_idle(now);
    }

    fn end_if_idle(&mut self, now: Instant) {
        if self.requests.is_empty() {
            self.busy_since = None;
            self.speed.end(now);
        }
    }
}

#[cfg(test)]
mod tests;
