//! Chains that branch, and the peers that have them.

use peregrine_net::peer::CloseReason;
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use testkit::rng::Rng;
use wire::{BlockHash, Header};

/// Headers with their hashes, by height.
pub struct Chain {
    pub headers: Vec<Header>,
    heights: HashMap<BlockHash, usize>,
}

fn mine(mut headers: Vec<Header>, len: usize, salt: u32) -> Chain {
    let mut prev = headers.last().map(Header::hash).unwrap_or_default();
    while headers.len() < len {
        let header = Header { prev, nonce: salt, ..Header::default() };
        prev = header.hash();
        headers.push(header);
    }
    let heights = headers.iter().map(Header::hash).zip(0..).collect();
    Chain { headers, heights }
}

/// The longest chain of any simulation.
fn trunk() -> &'static [Header] {
    static TRUNK: OnceLock<Vec<Header>> = OnceLock::new();
    TRUNK.get_or_init(|| mine(Vec::new(), 4_600, 0).headers)
}

/// The chains that there are; the best one is first.
pub struct Branches {
    chains: Vec<Arc<Chain>>,
    /// A block of a branch that is longer than the best chain, and that breaks a rule.
    invalid: Option<BlockHash>,
}

impl Branches {
    pub fn new(rng: &mut Rng) -> Self {
        let len = match rng.below(100) {
            0 => 2_000 + rng.below(2_600),
            1..20 => 2 + rng.below(10),
            _ => 20 + rng.below(150),
        } as usize;
        let best = &trunk()[..len];
        let mut chains = vec![Arc::new(mine(best.to_vec(), len, 0))];
        for salt in 1..=rng.below(4) as u32 {
            let fork = 1 + rng.below(len as u64 - 1) as usize;
            let branch_len = fork + rng.below((len - fork) as u64) as usize;
            chains.push(Arc::new(mine(best[..fork].to_vec(), branch_len.max(1), salt)));
        }
        let mut invalid = None;
        if rng.chance(1, 5) {
            let fork = 1 + rng.below(len as u64 - 1) as usize;
            let longer = mine(best[..fork].to_vec(), len + 1 + rng.below(5) as usize, 99);
            // What remains of it is shorter than the best chain.
            let at = fork + rng.below((len - fork) as u64) as usize;
            invalid = Some(longer.headers[at].hash());
            chains.push(Arc::new(longer));
        }
        Self { chains, invalid }
    }

    pub fn genesis(&self) -> BlockHash {
        self.best()[0].hash()
    }

    pub fn best(&self) -> &[Header] {
        &self.chains[0].headers
    }

    pub fn best_chain(&self) -> Arc<Chain> {
        Arc::clone(&self.chains[0])
    }

    /// Number of blocks of all chains together.
    pub fn len(&self) -> usize {
        self.chains.iter().map(|chain| chain.headers.len()).sum()
    }

    /// Returns whether there is an invalid block.
    pub fn have_invalid(&self) -> bool {
        self.invalid.is_some()
    }

    pub fn is_invalid(&self, hash: &BlockHash) -> bool {
        self.invalid == Some(*hash)
    }
}

/// A fault of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Sends nothing more after this number of blocks.
    Stall(usize),
    /// Closes the connection after this number of blocks, each time.
    Dies(usize),
    /// Has only each block whose height is a multiple of this, or none if it is 1.
    Lacks(usize),
    Mutates,
    Unrequested,
    /// Answers the ping before it sends the blocks.
    LyingPong,
    NoHeaders,
    EmptyHeaders,
    HeaderGap,
}

impl Fault {
    fn any(rng: &mut Rng) -> Self {
        let count = rng.below(30) as usize;
        match rng.below(12) {
            0..=2 => Self::None,
            3 => Self::Stall(count),
            4 => Self::Dies(count + 1),
            5 => Self::Lacks(1 + count % 4),
            6 => Self::Mutates,
            7 => Self::Unrequested,
            8 => Self::LyingPong,
            9 => Self::NoHeaders,
            10 => Self::EmptyHeaders,
            _ => Self::HeaderGap,
        }
    }

    /// Returns whether a peer with this fault may be closed for that reason; `has_all` says whether it has
    /// all blocks for which it can be asked.
    pub fn explains(self, reason: &CloseReason, has_all: bool) -> bool {
        let is_expected = match self {
            Self::Stall(_) => matches!(reason, CloseReason::Stalled | CloseReason::TooSlow),
            Self::Dies(_) => *reason == CloseReason::TooSlow,
            Self::Mutates => *reason == CloseReason::Mutated,
            // Blocks that come after the pong are those that the peer has said not to have.
            Self::Unrequested | Self::LyingPong => *reason == CloseReason::Unrequested,
            _ => false,
        };
        let has_all_blocks = has_all && matches!(self, Self::None | Self::Dies(_));
        is_expected || *reason == CloseReason::HasNoBlocks && !has_all_blocks
    }
}

/// A peer: its chain, and a link with a delay and a rate.
pub struct SimulatedPeer {
    pub chain: Arc<Chain>,
    pub fault: Fault,
    pub round_trip: Duration,
    pub rate: u64,
    /// When it has the best chain at the latest.
    pub grows_after: Option<Duration>,
    pub connection: Option<u64>,
    pub was_connected: bool,
    pub sent: usize,
    /// When the link has sent all that was asked for.
    pub busy_until: Instant,
}

impl SimulatedPeer {
    /// Some peers, of which one is honest and has the best chain, at some time at least.
    pub fn some(rng: &mut Rng, branches: &Branches) -> Vec<Self> {
        let count = 1 + rng.below(6) as usize;
        let honest = rng.below(count as u64) as usize;
        let peer = |number: usize| {
            let is_honest = number == honest;
            let chain = &branches.chains[rng.below(branches.chains.len() as u64) as usize];
            let has_invalid = branches.invalid.is_some_and(|hash| chain.heights.contains_key(&hash));
            let grows = !has_invalid && rng.chance(1, 3);
            let is_best = is_honest && (!grows || has_invalid);
            Self {
                chain: Arc::clone(if is_best { &branches.chains[0] } else { chain }),
                fault: if is_honest { Fault::None } else { Fault::any(rng) },
                round_trip: Duration::from_millis(1 + rng.below(400)),
                rate: [30_000, 1_000_000, 20_000_000][rng.below(3) as usize],
                grows_after: grows.then(|| Duration::from_millis(rng.below(60_000))),
                connection: None,
                was_connected: false,
                sent: 0,
                busy_until: Instant::now(),
            }
        };
        (0..count).map(peer).collect()
    }

    pub fn headers(&self) -> &[Header] {
        &self.chain.headers
    }

    pub fn height(&self) -> usize {
        self.chain.headers.len() - 1
    }

    pub fn find(&self, hash: &BlockHash) -> Option<usize> {
        self.chain.heights.get(hash).copied()
    }

    /// Returns when an answer arrives to what is sent now, after all that was asked for before.
    pub fn turn(&mut self, now: Instant) -> Instant {
        self.busy_until = self.busy_until.max(now + self.round_trip / 2);
        self.busy_until + self.round_trip / 2
    }

    /// The same, for a number of bytes.
    pub fn send(&mut self, bytes: u64, now: Instant) -> Instant {
        self.turn(now);
        self.busy_until += Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        self.busy_until + self.round_trip / 2
    }
}
