//! The simulator: the state machines of headers and blocks, peers behind links with a delay and a rate, and a
//! caller that checks and stores blocks some time after they have come. It has its own clock, and all that
//! happens follows from a seed.

mod caller;
mod chains;
mod peers;

use crate::common::*;
use caller::Caller;
pub use chains::Branches;
use peers::SimulatedPeer;
pub use peers::{Link, explains};
use peregrine_net::{
    address::NetGroup,
    download::{Action, Download, DownloadOptions, MAX_REQUESTED_AT_ONCE, SizeEstimate},
    headers::{HeaderBatch, HeaderFault, HeaderSync},
    message::MAX_LOCATOR,
};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};
use testkit::peer::{Asked, BlockAnswer};

const MS: Duration = Duration::from_millis(1);
/// Time after which a peer whose connection ended is connected again. It doubles a few times, as for the
/// targets of a user: peers that drip could keep a client busy that has memory for one.
const RECONNECT: Duration = Duration::from_secs(10);
const RECONNECT_DOUBLED: usize = 3;
/// Time after which headers are asked for again if all known blocks are stored.
const ASK_HEADERS: Duration = Duration::from_secs(20);
/// Time after which withheld blocks are forgotten, as in another run.
const NEXT_RUN: Duration = Duration::from_secs(20 * 60);
/// Bytes that come at once.
const PIECE: u64 = 16_000;

/// What happens at a time.
type Event = Box<dyn FnOnce(&mut Simulation)>;

pub struct Simulation {
    pub branches: Branches,
    pub download: Download,
    /// Whether an address could be dialled if there was a place.
    pub candidate_waits: bool,
    /// When all links lose half of their rate.
    pub slow_down_after: Option<Duration>,
    /// Whether peers whose connection ended are connected again.
    pub reconnects: bool,
    /// Size of a block in bytes.
    pub size: u64,
    /// Blocks at other heights have 250 bytes.
    pub full: Range<u32>,
    /// Why the connections to peers ended, in that order.
    pub closed: Vec<(usize, CloseReason)>,
    /// Blocks that the caller has left because no peer sends them.
    pub withheld: Vec<u32>,
    /// The most blocks that one group of addresses was asked for, the most peers that were asked at once, and
    /// the most blocks of a window.
    pub most_held: usize,
    pub most_active: usize,
    pub widest: u32,
    pub seed: u64,
    rng: Rng,
    start: Instant,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    event_count: u64,
    peers: Vec<SimulatedPeer>,
    /// Peers by their connections.
    connections: HashMap<PeerId, usize>,
    connection_count: u64,
    headers: HeaderSync,
    caller: Caller,
    last_asked: Instant,
    last_run: Instant,
}

impl Simulation {
    /// A network without peers. The caller knows the genesis block only.
    pub fn new(branches: Branches, options: DownloadOptions, seed: u64) -> Self {
        let start = Instant::now();
        let caller = Caller::new(vec![branches.best().hashes[0]]);
        Self {
            branches,
            download: Download::new(1, SizeEstimate::new(Network::Regtest), options),
            candidate_waits: false,
            slow_down_after: None,
            reconnects: false,
            size: 50_000,
            full: 0..u32::MAX,
            closed: Vec::new(),
            withheld: Vec::new(),
            most_held: 0,
            most_active: 0,
            widest: 0,
            seed,
            rng: Rng::new(seed, "simulation"),
            start,
            now: start,
            events: BTreeMap::new(),
            event_count: 0,
            peers: Vec::new(),
            connections: HashMap::new(),
            connection_count: 0,
            headers: HeaderSync::new(caller.locator()),
            caller,
            last_asked: start,
            last_run: start,
        }
    }

    /// The same, where the caller knows the headers of the best chain.
    pub fn knowing_headers(mut self) -> Self {
        self.caller = Caller::new(self.branches.best().hashes.clone());
        self.headers = HeaderSync::new(self.caller.locator());
        self
    }

    /// Adds a peer that is connected at once.
    pub fn add(&mut self, link: Link) {
        self.add_after(link, Duration::ZERO);
    }

    /// Adds a peer that is connected after some time.
    pub fn add_after(&mut self, link: Link, wait: Duration) {
        let number = self.peers.len();
        if let Some(after) = link.grows_after {
            self.at(self.now + after, move |it| it.peers[number].chain = Arc::clone(it.branches.best()));
        }
        self.peers.push(SimulatedPeer {
            chain: Arc::clone(link.chain.as_ref().unwrap_or(self.branches.best())),
            link,
            connection: None,
            was_connected: false,
            asked: 0,
            delivered: 0,
            busy_until: self.now,
        });
        match wait.is_zero() {
            true => self.connect(number),
            false => self.at(self.now + wait, move |it| it.connect(number)),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    pub fn reason(&self, peer: usize) -> Option<&CloseReason> {
        self.closed.iter().find(|(closed, _)| *closed == peer).map(|(_, reason)| reason)
    }

    /// Number of blocks that a peer has delivered.
    pub fn delivered(&self, peer: usize) -> u32 {
        self.peers[peer].delivered
    }

    /// Fault of a peer, and whether it always had all blocks for which it could be asked.
    pub fn facts(&self, peer: usize) -> (Fault, bool) {
        let SimulatedPeer { link, chain, .. } = &self.peers[peer];
        // Nobody honest has the blocks of a longer branch with an invalid block.
        let has_all = chain.height() == self.branches.best().height()
            && link.grows_after.is_none()
            && self.branches.invalid.is_none();
        (link.fault, has_all)
    }

    /// Runs until the best chain is stored, or for this time.
    pub fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        while !self.is_done() && self.now < end {
            self.decide();
            self.measure();
            let timer = self.now + self.download.next_poll();
            match self.events.first_entry() {
                Some(entry) if entry.key().0 <= timer => {
                    let ((at, _), event) = entry.remove_entry();
                    self.now = at.max(self.now);
                    event(self);
                }
                _ => self.now = timer,
            }
        }
    }

    pub fn describe(&self) -> String {
        let peers: Vec<_> =
            self.peers.iter().map(|peer| (peer.link.fault, peer.link.rate, peer.connection)).collect();
        let (seed, totals, lowest) = (self.seed, self.download.totals(), self.download.lowest_height());
        format!("seed {seed}, at height {lowest} of {}: {totals:?}, {peers:?}", self.branches.best().height())
    }

    pub fn is_done(&self) -> bool {
        if self.caller.next <= self.caller.tip() || !self.download.is_done() {
            return false;
        }
        self.caller.chain.last() == self.branches.best().hashes.last()
            && self.caller.chain.iter().skip(1).all(|hash| self.caller.stored.contains(hash))
    }

    fn at(&mut self, time: Instant, event: impl FnOnce(&mut Self) + 'static) {
        self.event_count += 1;
        self.events.insert((time, self.event_count), Box::new(event));
    }

    /// Schedules what comes from a peer, unless its connection has ended before.
    fn from(&mut self, id: PeerId, time: Instant, event: impl FnOnce(&mut Self) + 'static) {
        self.at(time, move |it| {
            if it.connections.contains_key(&id) {
                event(it);
            }
        });
    }

    fn decide(&mut self) {
        for request in self.headers.poll(self.now) {
            assert!(request.locator.len() <= MAX_LOCATOR, "seed {}", self.seed);
            self.serve_headers(request.peer, &request.locator);
        }
        self.give();
        for action in self.download.poll(self.now, self.candidate_waits) {
            match action {
                Action::Request { peer, hashes, marker } => {
                    assert!(hashes.len() <= MAX_REQUESTED_AT_ONCE, "seed {}", self.seed);
                    let is_stored = |hash: &BlockHash| self.caller.stored.contains(hash);
                    assert!(!hashes.iter().any(is_stored), "seed {}: a stored block is asked for", self.seed);
                    self.serve_blocks(peer, &hashes, marker);
                }
                Action::Close { peer, reason, .. } => self.end(peer, reason),
            }
        }
        if let Some(height) = self.download.withheld(self.now) {
            self.withheld.push(height);
            self.cut_chain(height, self.caller.chain[height as usize]);
        }
        let has_all = self.caller.next > self.caller.tip() && self.download.is_done();
        if has_all && self.now - self.last_asked >= ASK_HEADERS {
            self.last_asked = self.now;
            self.headers.restart(self.caller.locator());
        }
        if self.now - self.last_run >= NEXT_RUN {
            self.last_run = self.now;
            self.caller.useless = self.caller.invalid.clone();
        }
    }

    fn give(&mut self) {
        while self.caller.next <= self.caller.tip() && self.download.wanted_hashes() > 0 {
            let (hash, is_whole) =
                (self.caller.chain[self.caller.next as usize], self.caller.next == self.caller.tip());
            if self.caller.stored.contains(&hash) {
                self.download.extend_stored(hash, is_whole);
            } else {
                self.download.extend([hash], is_whole);
            }
            self.caller.next += 1;
        }
    }

    fn measure(&mut self) {
        let (mut held, mut active) = (HashMap::<NetGroup, usize>::new(), 0);
        for (_, peer) in self.download.peers().filter(|(_, peer)| peer.requests().len() > 0) {
            *held.entry(peer.group).or_default() += peer.requests().len();
            active += 1;
        }
        self.most_held = self.most_held.max(held.into_values().max().unwrap_or_default());
        self.most_active = self.most_active.max(active);
        self.widest = self.widest.max(self.caller.next.saturating_sub(self.download.lowest_height()));
    }

    /// Ends a connection, for whatever reason. Who broke the protocol is not connected again.
    fn end(&mut self, id: PeerId, reason: CloseReason) {
        let Some(peer) = self.connections.remove(&id) else { return };
        self.peers[peer].connection = None;
        self.download.remove_peer(id);
        self.headers.remove_peer(id);
        if reason == CloseReason::AskedForTooMuch {
            self.connect(peer);
        } else if self.reconnects && !reason.is_misbehaviour() {
            let times = self.closed.iter().filter(|(closed, _)| *closed == peer).count();
            let wait = RECONNECT * (1 << times.min(RECONNECT_DOUBLED));
            self.at(self.now + wait, move |it| it.connect(peer));
        }
        self.closed.push((peer, reason));
    }

    fn serve_headers(&mut self, id: PeerId, locator: &[BlockHash]) {
        let peer = &mut self.peers[self.connections[&id]];
        let is_mute = matches!(peer.link.fault, Fault::Stall(after) if peer.asked > after);
        let (at, answer) = (peer.turn(self.now), peer.link.fault.headers(&peer.chain, locator));
        if let Some(headers) = answer.filter(|_| !is_mute) {
            self.from(id, at, move |it| match it.headers.receive(id, headers) {
                Ok(batch) => batch.iter().for_each(|batch| it.received_headers(batch)),
                Err(fault) => it.end(id, CloseReason::Headers(fault)),
            });
        }
    }

    /// Schedules what a peer sends for a `getdata` and the ping behind it.
    fn serve_blocks(&mut self, id: PeerId, hashes: &[BlockHash], marker: u64) {
        let (now, number) = (self.now, self.connections[&id]);
        let Link { fault, mut rate, .. } = self.peers[number].link;
        if self.slow_down_after.is_some_and(|after| self.elapsed() >= after) {
            rate /= 2;
        }
        if fault == Fault::LyingPong {
            self.send_pong(id, marker);
        }
        for &hash in hashes {
            let peer = &mut self.peers[number];
            let Some(height) = peer.chain.find(&hash) else { continue };
            let answer = fault.block(Asked { height, tip: peer.chain.height(), before: peer.asked });
            peer.asked += 1;
            let size = if self.full.contains(&(height as u32)) { self.size } else { 250 };
            let sent = match answer {
                BlockAnswer::Nothing => continue,
                BlockAnswer::NotFound | BlockAnswer::Closes => 0,
                BlockAnswer::Half => size / 2,
                BlockAnswer::Silence => return,
                BlockAnswer::Drip => {
                    for second in 1..60 {
                        let at = now + Duration::from_secs(second);
                        self.from(id, at, move |it| it.download.received_bytes(id, 1, it.now));
                    }
                    return;
                }
                _ => size,
            };
            for piece in 0..sent.div_ceil(PIECE) {
                let bytes = (sent - piece * PIECE).min(PIECE);
                let at = self.peers[number].send(bytes, rate, now);
                self.from(id, at, move |it| it.download.received_bytes(id, bytes, it.now));
            }
            let at = self.peers[number].turn(now);
            match answer {
                BlockAnswer::NotFound => {
                    self.from(id, at, move |it| it.download.received_not_found(id, hash, it.now));
                }
                BlockAnswer::Closes | BlockAnswer::Half => {
                    self.peers[number].asked = 0;
                    self.from(id, at, move |it| it.end(id, CloseReason::ClosedByPeer));
                    return;
                }
                _ => {
                    let hash = if answer == BlockAnswer::Another { BlockHash([8; 32]) } else { hash };
                    let is_changed = matches!(answer, BlockAnswer::Changed | BlockAnswer::Stripped);
                    self.from(id, at, move |it| it.received_block(id, hash, size, is_changed));
                }
            }
        }
        if fault != Fault::LyingPong {
            self.send_pong(id, marker);
        }
    }

    fn send_pong(&mut self, id: PeerId, marker: u64) {
        let at = self.peers[self.connections[&id]].turn(self.now);
        self.from(id, at, move |it| it.download.received_pong(id, marker, it.now));
    }

    fn connect(&mut self, number: usize) {
        if !std::mem::replace(&mut self.peers[number].was_connected, true) {
            // The new peer may have what the others lack.
            self.caller.useless = self.caller.invalid.clone();
        }
        let id = PeerId(self.connection_count);
        self.connection_count += 1;
        let peer = &mut self.peers[number];
        (peer.connection, peer.busy_until) = (Some(id), self.now);
        let group = peer.link.group.unwrap_or(number as u8 + 20);
        let says = if peer.link.fault == Fault::SaysHeightZero { 0 } else { peer.chain.height() as u32 };
        let group = Host::V4([group, group, 1, 1].into()).group();
        self.download.add_peer(id, group, says, peer.link.round_trip);
        self.download.peer_mut(id).unwrap().is_limited = peer.link.fault == Fault::Limited;
        self.headers.add_peer(id, peer.link.round_trip);
        self.connections.insert(id, number);
    }

    fn received_headers(&mut self, batch: &HeaderBatch) {
        let caller = &mut self.caller;
        if batch.hashes.iter().chain([&batch.parent]).any(|hash| caller.invalid.contains(hash)) {
            let has_invalid = self.branches.have_invalid_in(&self.peers[self.connections[&batch.peer]].chain);
            assert!(has_invalid, "seed {}", self.seed);
            self.end(batch.peer, CloseReason::Headers(HeaderFault::Rejected));
            return;
        }
        if batch.hashes.iter().chain([&batch.parent]).any(|hash| caller.useless.contains(hash)) {
            self.headers.accept(batch.peer, 0, 0, caller.locator());
            return;
        }
        let Some(&(parent, _)) = caller.known.get(&batch.parent) else {
            let locator = caller.locator();
            self.headers.ask_again(batch.peer, locator);
            return;
        };
        let (mut prev, mut new) = (batch.parent, 0);
        for (hash, height) in batch.hashes.iter().zip(parent + 1..) {
            new += usize::from(caller.known.insert(*hash, (height, prev)).is_none());
            prev = *hash;
        }
        let height = parent + batch.hashes.len() as u32;
        if height > caller.tip() {
            let first = caller.switch_to(prev);
            self.leave(first);
        }
        self.download.raise_height(batch.peer, height);
        self.headers.accept(batch.peer, height, new, self.caller.locator());
    }

    /// Goes on with other blocks from a height on.
    fn leave(&mut self, first: u32) {
        if self.caller.next > first {
            self.caller.next = first;
            self.download.truncate(first);
        }
    }

    fn received_block(&mut self, id: PeerId, hash: BlockHash, bytes: u64, is_changed: bool) {
        let arrival = self.download.received_block(id, hash, bytes, self.now);
        let Some(height) = arrival else { return };
        assert_eq!(self.caller.chain[height as usize], hash, "seed {}", self.seed);
        assert!(!self.caller.stored.contains(&hash), "seed {}: height {height} came twice", self.seed);
        self.peers[self.connections[&id]].delivered += 1;
        let wait = MS * self.rng.below(100) as u32;
        self.at(self.now + wait, move |it| it.handled(height, hash, is_changed));
    }

    fn handled(&mut self, height: u32, hash: BlockHash, is_changed: bool) {
        if is_changed {
            self.download.reject(height, hash);
            return;
        }
        self.download.accept(height, hash);
        if !self.branches.is_invalid(&hash) {
            self.caller.stored.insert(hash);
        } else if self.caller.chain.get(height as usize) == Some(&hash) {
            self.caller.invalid.insert(hash);
            self.cut_chain(height, hash);
        }
    }

    /// Leaves a branch with a block that is of no use, until its headers come again.
    fn cut_chain(&mut self, height: u32, hash: BlockHash) {
        self.caller.useless.insert(hash);
        self.caller.cut(height);
        self.leave(height);
        self.headers.restart(self.caller.locator());
    }
}
