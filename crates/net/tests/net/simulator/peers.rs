//! Simulated peers: a chain, a fault, and a link with a delay and a rate.

use super::chains::Branches;
use crate::common::*;
use peregrine_net::headers::HeaderFault;

/// A peer, and how it is reached.
#[derive(Clone)]
pub struct Link {
    pub round_trip: Duration,
    /// Bytes per second.
    pub rate: u64,
    pub fault: Fault,
    /// Its chain, unless that is the best one.
    pub chain: Option<Arc<ServedChain>>,
    /// When it has the best chain at the latest.
    pub grows_after: Option<Duration>,
    /// The group of its address, unless it has its own.
    pub group: Option<u8>,
}

impl Link {
    pub const fn new(round_trip_ms: u64, rate: u64, fault: Fault) -> Self {
        let round_trip = Duration::from_millis(round_trip_ms);
        Self { round_trip, rate, fault, chain: None, grows_after: None, group: None }
    }

    pub const fn honest(round_trip_ms: u64, rate: u64) -> Self {
        Self::new(round_trip_ms, rate, Fault::None)
    }

    /// Some links, one of which leads to an honest peer that has the best chain, at some time at least.
    pub fn some(rng: &mut Rng, branches: &Branches) -> Vec<Self> {
        let count = 1 + rng.below(6);
        let honest = rng.below(count);
        let link = |number| {
            let is_honest = number == honest;
            let chain = branches.any(rng);
            let has_invalid = branches.have_invalid_in(chain);
            let grows = !has_invalid && rng.chance(1, 3);
            let is_best = is_honest && (!grows || has_invalid);
            Self {
                round_trip: Duration::from_millis(1 + rng.below(400)),
                rate: [30_000, 1_000_000, 20_000_000][rng.below(3) as usize],
                fault: if is_honest { Fault::None } else { any_fault(rng) },
                chain: (!is_best).then(|| Arc::clone(chain)),
                grows_after: grows.then(|| Duration::from_millis(rng.below(60_000))),
                group: None,
            }
        };
        (0..count).map(link).collect()
    }
}

fn any_fault(rng: &mut Rng) -> Fault {
    let (faults, count) = (Fault::IN_ANSWERS, rng.below(30) as usize);
    match faults.get(rng.below(faults.len() as u64 * 4 / 3) as usize) {
        Some(Fault::Stall(_)) => Fault::Stall(count),
        Some(Fault::Dies(_)) => Fault::Dies(count + 1),
        Some(Fault::Lacks(_)) => Fault::Lacks(1 + count % 4),
        fault => fault.copied().unwrap_or(Fault::None),
    }
}

/// Returns whether a peer with this fault may be closed for that reason; `has_all` says whether it has all
/// blocks for which it can be asked.
pub fn explains(fault: Fault, reason: &CloseReason, has_all: bool) -> bool {
    let is_expected = match fault.end() {
        End::Closed(words) | End::ClosedLate(words) => reason.to_string().contains(words),
        End::Kept => false,
    };
    match reason {
        CloseReason::HasNoBlocks => is_expected || !has_all || !matches!(fault, Fault::None | Fault::Dies(_)),
        CloseReason::TooSlow => is_expected || matches!(fault, Fault::Stall(_) | Fault::Dies(_)),
        CloseReason::ClosedByPeer => is_expected || fault == Fault::Limited,
        // That the peer has the invalid block is asserted when it sends the header.
        CloseReason::Headers(HeaderFault::Rejected) => true,
        _ => is_expected,
    }
}

/// A peer at some moment.
pub struct SimulatedPeer {
    pub link: Link,
    pub chain: Arc<ServedChain>,
    pub connection: Option<PeerId>,
    pub was_connected: bool,
    /// Blocks that were asked of it and that it has, since it last closed the connection.
    pub asked: usize,
    pub delivered: u32,
    /// When the link has sent all that was asked for.
    pub busy_until: Instant,
}

impl SimulatedPeer {
    /// Returns when an answer arrives to what is sent now, after all that was asked for before.
    pub fn turn(&mut self, now: Instant) -> Instant {
        self.busy_until = self.busy_until.max(now + self.link.round_trip / 2);
        self.busy_until + self.link.round_trip / 2
    }

    /// The same, for a number of bytes at a rate.
    pub fn send(&mut self, bytes: u64, rate: u64, now: Instant) -> Instant {
        self.turn(now);
        self.busy_until += Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.busy_until + self.link.round_trip / 2
    }
}
