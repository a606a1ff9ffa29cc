//! A simulated network: each peer is a link with a delay and a rate, served in order as a node does.

use super::*;
use crate::address::Host;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
    ops::Range,
};

/// A fault of a peer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Fault {
    None,
    /// Sends nothing more after this number of blocks.
    Stall {
        after: u32,
    },
    /// Closes the connection after this number of blocks.
    Dies {
        after: u32,
    },
    /// Never sends anything.
    Silent,
    /// Sends a byte a second.
    Drip,
    /// Has only each `part`th block, or none if it is 1.
    Lacks {
        part: u32,
    },
    /// Lacks one block.
    LacksHeight(u32),
    /// Lacks all blocks for this number of seconds.
    LacksFor(u32),
    /// Sends each block with changed contents.
    Mutates,
    /// Sends other blocks than those asked for.
    Unrequested,
    /// Answers the ping before it sends the blocks.
    LyingPong,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) round_trip: Duration,
    /// Bytes per second.
    pub(super) rate: u64,
    pub(super) fault: Fault,
}

struct SimulatedPeer {
    spec: Spec,
    /// When the link has sent all that was asked for.
    busy_until: Instant,
    blocks_sent: u32,
    is_connected: bool,
    reason: Option<CloseReason>,
    delivered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Bytes(u64),
    Block { height: Option<u32>, is_mutated: bool },
    Pong(u64),
    Close,
    Stored(u32),
}

pub(super) struct Simulation {
    pub(super) download: Download,
    pub(super) candidate_waits: bool,
    /// When all links lose half of their rate.
    pub(super) slow_down_after: Option<Duration>,
    pub(super) largest_request: usize,
    pub(super) most_held_by_group: usize,
    pub(super) most_active: usize,
    pub(super) widest: usize,
    start: Instant,
    now: Instant,
    blocks: usize,
    size: u64,
    /// Blocks at other heights have 250 bytes.
    pub(super) full: Range<u32>,
    given: usize,
    peers: Vec<SimulatedPeer>,
    events: BinaryHeap<Reverse<(Instant, u64, usize, Event)>>,
    event_count: u64,
    stored: HashSet<u32>,
    random: u64,
}

pub(super) fn hash_at(height: u32) -> BlockHash {
    let mut hash = [1; 32];
    hash[..4].copy_from_slice(&height.to_le_bytes());
    BlockHash(hash)
}

fn height_of(hash: BlockHash) -> u32 {
    u32::from_le_bytes(*hash.0.first_chunk().unwrap())
}

impl Simulation {
    pub(super) fn new(blocks: usize, size: u64, options: DownloadOptions, seed: u64) -> Self {
        let start = Instant::now();
        Self {
            download: Download::new(0, SizeEstimate::new(wire::Network::Regtest), options),
            candidate_waits: false,
            slow_down_after: None,
            largest_request: 0,
            most_held_by_group: 0,
            most_active: 0,
            widest: 0,
            start,
            now: start,
            blocks,
            size,
            full: 0..u32::MAX,
            given: 0,
            peers: Vec::new(),
            events: BinaryHeap::new(),
            event_count: 0,
            stored: HashSet::new(),
            random: seed,
        }
    }

    pub(super) fn add(&mut self, spec: Spec) {
        self.add_in_group(spec, self.peers.len() as u8 + 50);
    }

    pub(super) fn add_in_group(&mut self, spec: Spec, group: u8) {
        let id = PeerId(self.peers.len() as u64);
        let group = Host::V4([group, group, 0, 1].into()).group();
        self.download.add_peer(id, group, self.blocks as u32, spec.round_trip);
        self.peers.push(SimulatedPeer {
            spec,
            busy_until: self.now,
            blocks_sent: 0,
            is_connected: true,
            reason: None,
            delivered: 0,
        });
        if spec.fault == Fault::Drip {
            (1..200).for_each(|second| {
                self.schedule(self.now + MS * 1_000 * second, id.0 as usize, Event::Bytes(1))
            });
        }
    }

    pub(super) fn closed(&self, peer: usize) -> Option<&CloseReason> {
        self.peers[peer].reason.as_ref()
    }

    pub(super) fn closed_reasons(&self) -> impl Iterator<Item = &CloseReason> {
        self.peers.iter().filter_map(|peer| peer.reason.as_ref())
    }

    pub(super) fn delivered(&self, peer: usize) -> u64 {
        self.peers[peer].delivered
    }

    pub(super) fn withheld(&self) -> Option<u32> {
        self.download.withheld(self.now)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Runs until all blocks are stored, or for this time.
    pub(super) fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            self.give_hashes();
            if self.given == self.blocks && self.download.is_done() || self.now >= end {
                return;
            }
            for action in self.download.poll(self.now, self.candidate_waits) {
                self.act(action);
            }
            self.measure();
            let timer = self.now + self.download.next_poll();
            match self.events.peek() {
                Some(Reverse((at, ..))) if *at <= timer => {
                    let Some(Reverse((at, _, peer, event))) = self.events.pop() else { unreachable!() };
                    self.now = at;
                    self.handle(peer, event);
                }
                _ => self.now = timer,
            }
        }
    }

    fn give_hashes(&mut self) {
        let count = self.download.wanted_hashes().min(self.blocks - self.given);
        let range = self.given..self.given + count;
        self.given += count;
        self.download.extend(range.map(|height| hash_at(height as u32)), self.given == self.blocks);
    }

    fn measure(&mut self) {
        let held = self.download.held_by_group.values().copied().max().unwrap_or_default();
        let active = self.download.peers().filter(|(_, peer)| peer.requests().len() > 0).count();
        self.most_held_by_group = self.most_held_by_group.max(held);
        self.most_active = self.most_active.max(active);
        self.widest = self.widest.max(self.download.window.len());
    }

    fn schedule(&mut self, at: Instant, peer: usize, event: Event) {
        self.event_count += 1;
        self.events.push(Reverse((at, self.event_count, peer, event)));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Close { peer, reason } => {
                let peer = &mut self.peers[peer.0 as usize];
                peer.is_connected = false;
                let (spec, is_dialled_again) = (peer.spec, reason == CloseReason::AskedForTooMuch);
                peer.reason = Some(reason);
                if is_dialled_again {
                    self.add(spec);
                }
            }
            Action::Request { peer, hashes, marker } => {
                self.largest_request = self.largest_request.max(hashes.len());
                self.serve(peer.0 as usize, &hashes, marker);
            }
        }
    }

    /// Schedules what a peer sends for a `getdata` and the ping behind it.
    fn serve(&mut self, peer: usize, hashes: &[BlockHash], marker: u64) {
        let Spec { round_trip, mut rate, fault } = self.peers[peer].spec;
        if self.slow_down_after.is_some_and(|after| self.elapsed() >= after) {
            rate /= 2;
        }
        if matches!(fault, Fault::Silent | Fault::Drip) {
            return;
        }
        let arrival = self.now + round_trip / 2;
        let mut sent = self.peers[peer].busy_until.max(arrival);
        if fault == Fault::LyingPong {
            self.schedule(sent + round_trip / 2, peer, Event::Pong(marker));
        }
        for hash in hashes {
            let height = height_of(*hash);
            match fault {
                Fault::Stall { after } if self.peers[peer].blocks_sent >= after => return,
                Fault::Dies { after } if self.peers[peer].blocks_sent >= after => {
                    self.schedule(sent + round_trip / 2, peer, Event::Close);
                    return;
                }
                Fault::Lacks { part } if part == 1 || !height.is_multiple_of(part) => continue,
                Fault::LacksHeight(lacking) if height == lacking => continue,
                Fault::LacksFor(seconds) if self.elapsed() < MS * 1_000 * seconds => continue,
                _ => {}
            }
            self.peers[peer].blocks_sent += 1;
            let mut left = self.size_of(height);
            while left > 0 {
                let piece = left.min(16_000);
                left -= piece;
                sent += Duration::from_secs_f64(piece as f64 / rate as f64);
                self.schedule(sent + round_trip / 2, peer, Event::Bytes(piece));
            }
            let height = if fault == Fault::Unrequested { None } else { Some(height) };
            let block = Event::Block { height, is_mutated: fault == Fault::Mutates };
            self.schedule(sent + round_trip / 2, peer, block);
        }
        self.peers[peer].busy_until = sent;
        self.schedule(sent + round_trip / 2, peer, Event::Pong(marker));
    }

    fn size_of(&self, height: u32) -> u64 {
        if self.full.contains(&height) { self.size } else { 250 }
    }

    fn handle(&mut self, peer: usize, event: Event) {
        let id = PeerId(peer as u64);
        if let Event::Stored(height) = event {
            self.download.accept(height, hash_at(height));
            return;
        }
        if !self.peers[peer].is_connected {
            return;
        }
        match event {
            Event::Bytes(bytes) => self.download.received_bytes(id, bytes, self.now),
            Event::Pong(number) => self.download.received_pong(id, number, self.now),
            Event::Close => {
                self.peers[peer].is_connected = false;
                self.download.remove_peer(id);
            }
            Event::Block { height, is_mutated } => self.block(peer, height, is_mutated),
            Event::Stored(_) => unreachable!(),
        }
    }

    fn block(&mut self, peer: usize, height: Option<u32>, is_mutated: bool) {
        let hash = hash_at(height.unwrap_or(u32::MAX));
        let size = self.size_of(height.unwrap_or(u32::MAX));
        let arrival = self.download.received_block(PeerId(peer as u64), hash, size, self.now);
        let Arrival::New(at) = arrival else { return };
        assert_eq!(Some(at), height);
        if is_mutated {
            self.download.reject(at, hash);
            return;
        }
        assert!(self.stored.insert(at), "block {at} was delivered twice");
        self.peers[peer].delivered += 1;
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = MS * ((self.random >> 33) % 100) as u32;
        self.schedule(self.now + delay, peer, Event::Stored(at));
    }
}
