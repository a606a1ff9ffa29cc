//! The simulated network, and a caller that does what the engine does: it keeps the best chain of the headers
//! that it gets, and checks and stores blocks some time later.

mod peers;

use peers::{Branches, Fault, SimulatedPeer};
use peregrine_net::{
    address::Host,
    download::{Action, Arrival, Download, DownloadOptions, MAX_REQUESTED_AT_ONCE, SizeEstimate},
    headers::{HeaderBatch, HeaderSync, locator_heights},
    message::{MAX_HEADERS, MAX_LOCATOR},
    peer::PeerId,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};
use testkit::rng::Rng;
use wire::{BlockHash, Header, Network};

const MS: Duration = Duration::from_millis(1);
/// Simulated time in which a download must end.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);
/// Time after which a peer whose connection ended is connected again.
const RECONNECT: Duration = Duration::from_secs(10);
/// Time after which headers are asked for again if all known blocks are stored.
const ASK_HEADERS: Duration = Duration::from_secs(20);
/// Time after which withheld blocks are forgotten, as in another run.
const NEXT_RUN: Duration = Duration::from_secs(20 * 60);

/// What happens at a time. Connections are those of peers at the time when it was caused.
enum Event {
    Connect(usize),
    Bytes(u64, u64),
    Headers(u64, Vec<Header>),
    Block(u64, BlockHash, bool),
    Pong(u64, u64),
    End(u64),
    /// The caller has handled a block.
    Handled(u32, BlockHash, bool),
    /// A peer's chain is the best one from now on.
    Grow(usize),
}

pub struct Simulation {
    seed: u64,
    rng: Rng,
    start: Instant,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    event_count: u64,
    branches: Branches,
    peers: Vec<SimulatedPeer>,
    /// Peers by the numbers of their connections.
    connections: HashMap<u64, usize>,
    connection_count: u64,
    size: u64,
    download: Download,
    headers: HeaderSync,
    caller: Caller,
    last_asked: Instant,
    last_run: Instant,
}

/// The caller's side.
struct Caller {
    /// Height and parent of the headers that are known.
    known: HashMap<BlockHash, (u32, BlockHash)>,
    /// The best chain, by height.
    chain: Vec<BlockHash>,
    invalid: HashSet<BlockHash>,
    /// Invalid or withheld.
    useless: HashSet<BlockHash>,
    stored: HashSet<BlockHash>,
    in_hand: HashSet<BlockHash>,
    /// The next height that the download gets.
    next: u32,
}

impl Caller {
    fn locator(&self) -> Vec<BlockHash> {
        let heights = locator_heights(self.chain.len() as u32 - 1);
        heights.into_iter().map(|height| self.chain[height as usize]).collect()
    }

    fn tip(&self) -> u32 {
        self.chain.len() as u32 - 1
    }

    /// Makes the chain end with this block. Returns the first height that changes.
    fn switch_to(&mut self, tip: BlockHash) -> u32 {
        let (mut above, mut at) = (Vec::new(), tip);
        while self.chain.get(self.known[&at].0 as usize) != Some(&at) {
            above.push(at);
            at = self.known[&at].1;
        }
        let first = self.known[&at].0 + 1;
        self.chain.truncate(first as usize);
        self.chain.extend(above.into_iter().rev());
        first
    }
}

impl Simulation {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "simulation");
        let branches = Branches::new(&mut rng);
        let start = Instant::now();
        let genesis = branches.genesis();
        let download = DownloadOptions {
            window_blocks: [16_384, 1_000, 100][rng.below(3) as usize],
            memory_bytes: [64 << 20, 1 << 20][rng.below(2) as usize],
            ..DownloadOptions::default()
        };
        let peers = SimulatedPeer::some(&mut rng, &branches);
        let mut simulation = Self {
            seed,
            start,
            now: start,
            events: BTreeMap::new(),
            event_count: 0,
            connections: HashMap::new(),
            connection_count: 0,
            size: if branches.best().len() > 1_000 {
                1_000
            } else {
                [200, 5_000, 200_000][rng.below(3) as usize]
            },
            download: Download::new(1, SizeEstimate::new(Network::Regtest), download),
            headers: HeaderSync::new(vec![genesis]),
            caller: Caller {
                known: HashMap::from([(genesis, (0, BlockHash::default()))]),
                chain: vec![genesis],
                invalid: HashSet::new(),
                useless: HashSet::new(),
                stored: HashSet::new(),
                in_hand: HashSet::new(),
                next: 1,
            },
            last_asked: start,
            last_run: start,
            peers,
            branches,
            rng,
        };
        for peer in 0..simulation.peers.len() {
            let wait = MS * simulation.rng.below(8_000) as u32;
            simulation.schedule(start + wait, Event::Connect(peer));
            if let Some(at) = simulation.peers[peer].grows_after {
                simulation.schedule(start + at, Event::Grow(peer));
            }
        }
        simulation
    }

    /// Runs to the end, and returns the simulated time.
    pub fn run(mut self) -> Duration {
        while !self.is_done() {
            assert!(self.now - self.start < LIMIT, "seed {}: {}", self.seed, self.describe());
            self.decide();
            let timer = self.now + self.download.next_poll();
            match self.events.first_entry() {
                Some(entry) if entry.key().0 <= timer => {
                    let ((at, _), event) = entry.remove_entry();
                    self.now = at.max(self.now);
                    self.handle(event);
                }
                _ => self.now = timer,
            }
        }
        let totals = self.download.totals();
        let most = (totals.bytes / 64).max(self.size * 40) + self.branches.len() as u64 * self.size;
        assert!(totals.duplicate_bytes <= most, "seed {}: {totals:?}", self.seed);
        self.now - self.start
    }

    fn describe(&self) -> String {
        let (tip, best) = (self.caller.tip(), self.branches.best().len() - 1);
        let is_stored = |hash: &BlockHash| self.caller.stored.contains(hash);
        let missing = (1..=tip).find(|&height| !is_stored(&self.caller.chain[height as usize]));
        let peers: Vec<_> = self
            .peers
            .iter()
            .map(|peer| (peer.fault, peer.connection, peer.height(), peer.rate, peer.round_trip))
            .collect();
        let (next, lowest) = (self.caller.next, self.download.lowest_height());
        let totals = self.download.totals();
        format!(
            "tip {tip} of {best}, missing {missing:?}, next {next}, lowest {lowest}, {peers:?}, {totals:?}"
        )
    }

    fn is_done(&self) -> bool {
        if self.caller.next <= self.caller.tip() || !self.download.is_done() {
            return false;
        }
        let tip = self.branches.best().last().map(Header::hash);
        self.caller.chain.last().copied() == tip
            && self.caller.chain.iter().skip(1).all(|hash| self.caller.stored.contains(hash))
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.event_count += 1;
        self.events.insert((at, self.event_count), event);
    }

    fn decide(&mut self) {
        for request in self.headers.poll(self.now) {
            assert!(request.locator.len() <= MAX_LOCATOR, "seed {}", self.seed);
            self.serve_headers(request.peer, &request.locator);
        }
        self.give();
        for action in self.download.poll(self.now, false) {
            match action {
                Action::Request { peer, hashes, marker } => {
                    assert!(hashes.len() <= MAX_REQUESTED_AT_ONCE, "seed {}", self.seed);
                    let is_stored = |hash: &BlockHash| self.caller.stored.contains(hash);
                    assert!(!hashes.iter().any(is_stored), "seed {}: a stored block is asked for", self.seed);
                    self.serve_blocks(peer, &hashes, marker);
                }
                Action::Close { peer, reason } => {
                    let SimulatedPeer { fault, chain, grows_after, .. } =
                        &self.peers[self.connections[&peer.0]];
                    // Nobody honest has the blocks of a longer branch with an invalid block.
                    let has_all = chain.headers.len() == self.branches.best().len()
                        && grows_after.is_none()
                        && !self.branches.have_invalid();
                    let is_right = fault.explains(&reason, has_all);
                    let (at, what) = (self.now - self.start, self.describe());
                    assert!(is_right, "seed {}, {at:?}: {fault:?} was closed: {reason}; {what}", self.seed);
                    self.end(peer, reason.is_misbehaviour());
                }
            }
        }
        if let Some(height) = self.download.withheld(self.now) {
            let hash = self.caller.chain[height as usize];
            self.cut_chain(height, hash);
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

    /// Closes a connection, for whatever reason.
    fn end(&mut self, id: PeerId, is_for_good: bool) {
        let Some(peer) = self.connections.remove(&id.0) else { return };
        self.peers[peer].connection = None;
        self.download.remove_peer(id);
        self.headers.remove_peer(id);
        if !is_for_good {
            self.schedule(self.now + RECONNECT, Event::Connect(peer));
        }
    }

    fn serve_headers(&mut self, id: PeerId, locator: &[BlockHash]) {
        let now = self.now;
        let peer = &mut self.peers[self.connections[&id.0]];
        let at = peer.turn(now);
        let start = locator.iter().find_map(|hash| peer.find(hash)).unwrap_or(0) + 1;
        let mut headers: Vec<Header> = peer.headers().iter().skip(start).take(MAX_HEADERS).copied().collect();
        match peer.fault {
            Fault::NoHeaders => return,
            Fault::EmptyHeaders => headers.clear(),
            Fault::HeaderGap if headers.len() > 3 => drop(headers.remove(1)),
            Fault::Stall(after) if peer.sent >= after => return,
            _ => {}
        }
        self.schedule(at, Event::Headers(id.0, headers));
    }

    fn serve_blocks(&mut self, id: PeerId, hashes: &[BlockHash], marker: u64) {
        let (now, size, number) = (self.now, self.size, self.connections[&id.0]);
        let fault = self.peers[number].fault;
        if fault == Fault::LyingPong {
            let at = self.peers[number].turn(now);
            self.schedule(at, Event::Pong(id.0, marker));
        }
        for hash in hashes {
            let peer = &mut self.peers[number];
            let Some(height) = peer.find(hash) else { continue };
            match fault {
                Fault::Stall(after) if peer.sent >= after => return,
                Fault::Dies(after) if peer.sent >= after => {
                    peer.sent = 0;
                    let at = peer.turn(now);
                    self.schedule(at, Event::End(id.0));
                    return;
                }
                Fault::Lacks(part) if part == 1 || height % part != 0 => continue,
                _ => {}
            }
            peer.sent += 1;
            for piece in 0..size.div_ceil(16_000) {
                let bytes = (size - piece * 16_000).min(16_000);
                let at = self.peers[number].send(bytes, now);
                self.schedule(at, Event::Bytes(id.0, bytes));
            }
            let other = if fault == Fault::Unrequested { BlockHash([8; 32]) } else { *hash };
            let at = self.peers[number].turn(now);
            self.schedule(at, Event::Block(id.0, other, fault == Fault::Mutates));
        }
        let at = self.peers[number].turn(now);
        self.schedule(at, Event::Pong(id.0, marker));
    }

    fn handle(&mut self, event: Event) {
        let is_open = |connection: &u64| self.connections.contains_key(connection);
        match event {
            Event::Connect(peer) => self.connect(peer),
            Event::Grow(peer) => {
                self.peers[peer].chain = self.branches.best_chain();
            }
            Event::Handled(height, hash, is_mutated) => self.handled(height, hash, is_mutated),
            Event::Bytes(id, bytes) if is_open(&id) => {
                self.download.received_bytes(PeerId(id), bytes, self.now);
            }
            Event::Headers(id, headers) if is_open(&id) => match self.headers.receive(PeerId(id), headers) {
                Ok(None) => {}
                Ok(Some(batch)) => self.received_headers(&batch),
                Err(_) => {
                    let fault = self.peers[self.connections[&id]].fault;
                    assert_eq!(fault, Fault::HeaderGap, "seed {}", self.seed);
                    self.end(PeerId(id), true);
                }
            },
            Event::Block(id, hash, is_mutated) if is_open(&id) => self.received_block(id, hash, is_mutated),
            Event::Pong(id, number) if is_open(&id) => {
                self.download.received_pong(PeerId(id), number, self.now);
            }
            Event::End(id) => self.end(PeerId(id), false),
            _ => {}
        }
    }

    fn connect(&mut self, number: usize) {
        if !std::mem::replace(&mut self.peers[number].was_connected, true) {
            // The new peer may have what the others lack.
            self.caller.useless = self.caller.invalid.clone();
        }
        let id = PeerId(self.connection_count);
        self.connection_count += 1;
        let peer = &mut self.peers[number];
        peer.connection = Some(id.0);
        peer.busy_until = self.now;
        let group = Host::V4([number as u8 + 20, 1, 1, 1].into()).group();
        self.download.add_peer(id, group, peer.height() as u32, peer.round_trip);
        self.headers.add_peer(id, peer.round_trip);
        self.connections.insert(id.0, number);
    }

    fn received_headers(&mut self, batch: &HeaderBatch) {
        let caller = &mut self.caller;
        if batch.hashes.iter().chain([&batch.parent]).any(|hash| caller.invalid.contains(hash)) {
            self.end(batch.peer, true);
            return;
        }
        if batch.hashes.iter().chain([&batch.parent]).any(|hash| caller.useless.contains(hash)) {
            self.headers.accept(batch.peer, 0, caller.locator());
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
        self.headers.accept(batch.peer, new, self.caller.locator());
    }

    /// Goes on with other blocks from a height on.
    fn leave(&mut self, first: u32) {
        if self.caller.next > first {
            self.caller.next = first;
            self.download.truncate(first);
        }
    }

    fn received_block(&mut self, id: u64, hash: BlockHash, is_mutated: bool) {
        let arrival = self.download.received_block(PeerId(id), hash, self.size, self.now);
        let Arrival::New(height) = arrival else { return };
        assert_eq!(self.caller.chain[height as usize], hash, "seed {}", self.seed);
        assert!(!self.caller.stored.contains(&hash), "seed {}: height {height} came twice", self.seed);
        self.caller.in_hand.insert(hash);
        let wait = MS * self.rng.below(100) as u32;
        self.schedule(self.now + wait, Event::Handled(height, hash, is_mutated));
    }

    fn handled(&mut self, height: u32, hash: BlockHash, is_mutated: bool) {
        self.caller.in_hand.remove(&hash);
        if is_mutated {
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
        self.caller.chain.truncate(height as usize);
        let chain: HashSet<BlockHash> = self.caller.chain.iter().copied().collect();
        self.caller.known.retain(|hash, _| chain.contains(hash));
        self.leave(height);
        self.headers.restart(self.caller.locator());
    }
}
