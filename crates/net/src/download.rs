//! Which block is requested from which peer: a state machine without sockets and clock.
//!
//! The caller gives the hashes of the chain in height order ([`Download::extend`]), reports what peers do,
//! and does what [`Download::poll`] returns. Blocks are delivered once each, in any order within the window;
//! the caller stores them and says so ([`Download::accept`]), or says that a block's bytes are not those that
//! its hash stands for ([`Download::reject`]).
//!
//! - Requests are counted in bytes: the bytes in flight of a peer are its speed times its round trip and a
//!   bit more, refilled with each block (`assign.rs`).
//! - The lowest heights go to the peer that will deliver first, far heights to slow peers.
//! - A late block that others wait for is requested from a second peer too; the first answer counts
//!   (`watch.rs`).
//! - A pong that comes before a block that was asked for earlier is a definite "no" of the peer.
//! - No group of addresses holds more than a quarter of the window.

mod assign;
mod size;
mod watch;
mod window;

pub use size::SizeEstimate;

use crate::{
    address::NetGroup,
    peer::{CloseReason, Peer, PeerId, Request},
};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};
use window::Window;
use wire::BlockHash;

/// Maximum number of blocks in a `getdata`: btcd counts larger ones against us.
pub const MAX_REQUESTED_AT_ONCE: usize = 500;
/// Unrequested blocks after which a peer is closed.
const MAX_UNREQUESTED: u32 = 3;
/// Time without a block after which peers are asked for blocks that they said not to have, or that are above
/// their heights: one that is itself downloading may have them by then.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Interval at which the sizes of requested blocks are estimated again.
const ESTIMATE_AGAIN: Duration = Duration::from_millis(250);
/// Time for which only denials come before a block that no peer has counts as withheld.
const WITHHELD: Duration = Duration::from_secs(30);

/// Limits of a download.
#[derive(Clone, Copy, Debug)]
pub struct DownloadOptions {
    /// Maximum number of blocks between the lowest that is not stored and the highest that is asked for.
    pub window_blocks: usize,
    /// Maximum bytes of these blocks, estimated for those that have not come.
    pub window_bytes: u64,
    /// Memory for incomplete and unstored blocks, in bytes. It limits how many peers are asked at once.
    pub memory_bytes: u64,
    /// Maximum bytes that are read in a second. It also limits how many peers are asked at once.
    pub bytes_per_second: Option<u64>,
}

impl Default for DownloadOptions {
    /// The window is on disk; 64 MiB of memory.
    fn default() -> Self {
        Self {
            window_blocks: 16_384,
            window_bytes: 8_000_000_000,
            memory_bytes: 64 << 20,
            bytes_per_second: None,
        }
    }
}

/// An action for the caller.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Send a `getdata` for these blocks, at most [`MAX_REQUESTED_AT_ONCE`], with witnesses, and then a
    /// `ping` with this number.
    Request { peer: PeerId, hashes: Vec<BlockHash>, marker: u64 },
    /// Close the connection. The peer is forgotten already. `speed` is in bytes of blocks per second, if it
    /// delivered any.
    Close { peer: PeerId, reason: CloseReason, speed: Option<f64> },
}

/// Totals since the start, in bytes and blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DownloadTotals {
    /// Blocks delivered.
    pub blocks: u64,
    pub bytes: u64,
    /// Bytes of blocks that came twice.
    pub duplicate_bytes: u64,
}

/// The download of one chain.
#[derive(Clone, Debug, Default)]
pub struct Download {
    options: DownloadOptions,
    sizes: SizeEstimate,
    /// When the requests of all peers were last estimated.
    estimated: Option<Instant>,
    window: Window,
    peers: BTreeMap<PeerId, Peer>,
    /// Number of blocks asked of each group of addresses.
    held_by_group: HashMap<NetGroup, usize>,
    next_marker: u64,
    totals: DownloadTotals,
    /// Estimated bytes asked of a second peer.
    hedged_bytes: u64,
    /// Whether the last hash given is the last that there is.
    is_whole: bool,
    link: watch::Link,
    /// Bytes that have come from peers that were asked for blocks.
    received: u64,
    /// When a block last came, or peers were last forgiven.
    last_progress: Option<Instant>,
    /// When a peer first and last said that it does not have a block, since the last block came.
    denied: Option<(Instant, Instant)>,
    actions: Vec<Action>,
}

impl Download {
    /// Creates a download whose first block has this height.
    pub fn new(first_height: u32, sizes: SizeEstimate, options: DownloadOptions) -> Self {
        Self { options, sizes, window: Window::new(first_height), ..Self::default() }
    }

    /// Returns a number for a ping that was not used before.
    pub const fn take_marker(&mut self) -> u64 {
        let marker = self.next_marker;
        self.next_marker += 1;
        marker
    }

    /// Returns how many more hashes the window can take.
    pub fn wanted_hashes(&self) -> usize {
        let size = self.sizes.bytes(self.window.end()).max(1);
        let to_come = (self.window.missing_len() + self.window.requested_len()) as u64 * size;
        let free = self.options.window_bytes.saturating_sub(self.window.bytes() + to_come);
        let by_bytes = usize::try_from(free / size).unwrap_or(usize::MAX);
        let by_count = self.options.window_blocks.saturating_sub(self.window.len());
        // One block at least, however small the limit in bytes is.
        by_count.min(by_bytes.max(usize::from(self.window.len() == 0)))
    }

    /// Adds the next hashes of the chain. `is_whole` says that no more will follow for now.
    pub fn extend(&mut self, hashes: impl IntoIterator<Item = BlockHash>, is_whole: bool) {
        for hash in hashes {
            self.window.push(hash);
        }
        self.is_whole = is_whole;
    }

    /// Forgets the blocks from `height` on, because the chain has others there, which are to be given next.
    /// Forgotten blocks that peers still send count as sent twice.
    pub fn truncate(&mut self, height: u32) {
        self.denied = None;
        self.window.truncate(height);
        self.peers.values_mut().for_each(|peer| peer.forget_from(height));
        self.is_whole = false;
    }

    /// Adds the next block of the chain, which is stored already and will not be asked for. `is_whole` is
    /// that of [`Download::extend`].
    pub fn extend_stored(&mut self, hash: BlockHash, is_whole: bool) {
        self.window.push_stored(hash);
        self.is_whole = is_whole;
    }

    /// Returns whether all blocks that were given are accepted.
    pub fn is_done(&self) -> bool {
        self.window.len() == 0
    }

    /// Returns the lowest height that is not accepted yet.
    pub fn lowest_height(&self) -> u32 {
        self.window.start()
    }

    /// Returns the totals since the start.
    pub const fn totals(&self) -> DownloadTotals {
        self.totals
    }

    pub fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(&id)
    }

    pub fn peers(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.peers.iter().map(|(id, peer)| (*id, peer))
    }

    /// Returns the lowest missing block that no connected peer has, so that a new peer is needed.
    pub fn unavailable(&self) -> Option<u32> {
        let mut missing = self.window.missing();
        missing.find(|height| !self.peers.values().any(|peer| peer.may_have(*height)))
    }

    /// Returns the lowest missing block if all peers have said again and again that they do not have it: its
    /// header has proof of work, but perhaps nobody will ever show the block.
    pub fn withheld(&self, now: Instant) -> Option<u32> {
        let (first, last) = self.denied?;
        // Without connections, nobody says anything.
        let is_recent = now.saturating_duration_since(last) <= ASK_AGAIN * 2;
        let is_long = now.saturating_duration_since(first) >= WITHHELD;
        self.unavailable().filter(|_| is_recent && is_long)
    }

    /// Adds a peer that can be asked for blocks. `height` is the height of its best block.
    pub fn add_peer(&mut self, id: PeerId, group: NetGroup, height: u32, round_trip: Duration) {
        self.peers.insert(id, Peer::new(group, height, round_trip));
    }

    /// Returns the state of a peer, for facts about its connection.
    pub fn peer_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id)
    }

    /// Returns whether blocks are missing, or requested from peers.
    pub fn waits_for_peers(&self) -> bool {
        self.window.missing_len() + self.window.requested_len() > 0
    }

    /// Notes that a peer has blocks up to a greater height than before.
    pub fn raise_height(&mut self, id: PeerId, height: u32) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.height = peer.height.max(height);
        }
    }

    /// Notes up to which block a peer's chain is the one that is downloaded; `None`: as far as it goes.
    pub fn set_shared(&mut self, id: PeerId, shares_to: Option<u32>) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.shares_to = shares_to;
        }
    }

    /// Notes that the chain has other blocks above `fork`. `knows_old` tells which peers had sent all headers
    /// that they have before that.
    pub fn leave_branch(&mut self, fork: u32, knows_old: impl Fn(PeerId) -> bool) {
        for (id, peer) in &mut self.peers {
            if peer.shares_to.is_none_or(|shared| shared >= fork) {
                peer.shares_to = knows_old(*id).then_some(fork);
            }
        }
    }

    /// Forgets a peer whose connection was closed. What was requested from it alone is missing again.
    pub fn remove_peer(&mut self, id: PeerId) {
        let Some(peer) = self.peers.remove(&id) else { return };
        for request in peer.requests() {
            self.release(id, peer.group, request);
        }
    }

    /// Returns the bytes per second with which a peer delivers blocks, if it has delivered any.
    pub fn speed_of(&self, id: PeerId) -> Option<f64> {
        let state = self.peers.get(&id).filter(|state| state.delivered.0 > 0);
        state.map(|state| state.speed.bytes_per_second())
    }

    /// Notes that bytes have come from a peer.
    pub fn received_bytes(&mut self, id: PeerId, bytes: u64, now: Instant) {
        self.link.add(bytes);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.received_bytes(bytes, now);
            self.received += if peer.requests().len() > 0 { bytes } else { 0 };
        }
    }

    /// Returns how many bytes have come from peers that were asked for blocks.
    pub const fn received_bytes_total(&self) -> u64 {
        self.received
    }

    /// Handles a whole block whose header has this hash. Returns its height if it is to be delivered; `None`
    /// if nobody asked this peer for it, or if it has come from another one.
    pub fn received_block(&mut self, id: PeerId, hash: BlockHash, bytes: u64, now: Instant) -> Option<u32> {
        let peer = self.peers.get_mut(&id)?;
        let group = peer.group;
        let Some(request) = peer.received_block(hash, bytes, now) else {
            if peer.unrequested >= MAX_UNREQUESTED {
                self.close(id, CloseReason::Unrequested);
            }
            return None;
        };
        self.count_released(group);
        if !self.window.deliver(request.height, hash, id, bytes) {
            self.totals.duplicate_bytes += bytes;
            return None;
        }
        (self.denied, self.last_progress) = (None, Some(now));
        self.sizes.learn(request.height, bytes);
        self.totals.blocks += 1;
        self.totals.bytes += bytes;
        Some(request.height)
    }

    /// Handles a pong: the peer does not have what it was asked for before the ping and did not send.
    pub fn received_pong(&mut self, id: PeerId, number: u64, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let denied = peer.received_pong(number, now);
        self.deny(id, &denied, now);
    }

    /// Handles a `notfound` for one block.
    pub fn received_not_found(&mut self, id: PeerId, hash: BlockHash, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(request) = peer.received_not_found(hash, now) {
            self.deny(id, &[request], now);
        }
    }

    fn deny(&mut self, id: PeerId, requests: &[Request], now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        // That it does not have a block that the chain has lost says nothing of the others.
        for request in requests.iter().filter(|request| self.window.contains(request.height, request.hash)) {
            peer.note_lack(request.height);
            self.denied = Some((self.denied.map_or(now, |(first, _)| first), now));
        }
        let (group, denials) = (peer.group, peer.denials_in_a_row);
        for request in requests {
            self.release(id, group, request);
        }
        if denials >= watch::MAX_DENIALS_IN_A_ROW {
            self.close(id, CloseReason::HasNoBlocks);
        }
    }

    /// Notes that a delivered block is stored.
    pub fn accept(&mut self, height: u32, hash: BlockHash) {
        self.window.accept(height, hash);
        let start = self.window.start();
        self.peers.values_mut().for_each(|peer| peer.forget_below(start));
    }

    /// Notes that the bytes of a delivered block do not match its hash. The connection to the peer that sent
    /// them is closed, and the block is requested from another.
    pub fn reject(&mut self, height: u32, hash: BlockHash) {
        if let Some((sender, bytes)) = self.window.reject(height, hash) {
            self.totals.blocks -= 1;
            self.totals.bytes -= bytes;
            if self.peers.contains_key(&sender) {
                self.close(sender, CloseReason::Mutated);
            }
        }
    }

    /// Estimates the sizes of requested blocks again, from time to time.
    fn estimate_again(&mut self, now: Instant) {
        let last = *self.estimated.get_or_insert(now);
        if now.saturating_duration_since(last) >= ESTIMATE_AGAIN {
            for peer in self.peers.values_mut() {
                peer.requests.estimate_again(|height| self.sizes.bytes(height));
            }
            self.estimated = Some(now);
        }
    }

    /// Decides what to do now: requests, and connections to close. It is to be called after each batch of
    /// events, and at [`Download::next_poll`]. `candidate_waits` says that another address could be dialled
    /// if there was a place.
    pub fn poll(&mut self, now: Instant, candidate_waits: bool) -> Vec<Action> {
        self.link.update(now);
        self.peers
            .values_mut()
            .filter(|peer| peer.requests().len() > 0)
            .for_each(|peer| peer.speed.update(now));
        self.estimate_again(now);
        self.close_useless_peers(now, candidate_waits);
        self.forgive_if_stuck(now);
        self.deny_what_no_chain_has(now);
        let mut asked = assign::Asked::new();
        self.assign(now, &mut asked);
        self.hedge(now, &mut asked);
        for (peer, hashes) in asked {
            let marker = self.take_marker();
            if let Some(state) = self.peers.get_mut(&peer) {
                state.requests.mark(marker, now);
                self.actions.push(Action::Request { peer, hashes, marker });
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// Forgets what peers said not to have, and their heights, if no block has come for a while. A peer that
    /// has found new blocks does not say so if they are known already from another.
    fn forgive_if_stuck(&mut self, now: Instant) {
        let is_waiting = self.waits_for_peers();
        let since = *self.last_progress.get_or_insert(now);
        if !is_waiting {
            self.last_progress = Some(now);
        } else if now.saturating_duration_since(since) >= ASK_AGAIN {
            let end = self.window.end();
            for peer in self.peers.values_mut() {
                peer.forget_from(0);
                // A height that is too great would hide the lowest blocks that such a peer has.
                peer.height = if peer.is_limited { peer.height } else { peer.height.max(end) };
            }
            self.last_progress = Some(now);
        }
    }

    /// Counts the lowest missing block as denied if each peer's headers show that its chain does not have it.
    fn deny_what_no_chain_has(&mut self, now: Instant) {
        let Some(lowest) = self.window.missing().next() else { return };
        let lacks = |peer: &Peer| peer.shares_to.is_some_and(|shared| shared < lowest);
        if !self.peers.is_empty() && self.peers.values().all(lacks) {
            self.denied = Some((self.denied.map_or(now, |(first, _)| first), now));
        }
    }

    /// Returns how long the caller may wait for events before it polls again.
    pub fn next_poll(&self) -> Duration {
        let is_busy = self.peers.values().any(|peer| peer.requests().len() > 0);
        if is_busy { Duration::from_millis(100) } else { Duration::from_secs(1) }
    }

    fn request(&mut self, id: PeerId, height: u32, now: Instant, asked: &mut assign::Asked) {
        let bytes = self.sizes.bytes(height);
        let (Some(peer), Some(hash)) = (self.peers.get_mut(&id), self.window.request(height, id)) else {
            return;
        };
        let expected = now + peer.forecast(bytes);
        peer.request(Request { height, hash, bytes, bytes_when_asked: bytes, asked: now, expected });
        *self.held_by_group.entry(peer.group).or_default() += 1;
        asked.entry(id).or_default().push(hash);
    }

    /// Notes that a peer will not send a block that was requested from it.
    fn release(&mut self, id: PeerId, group: NetGroup, request: &Request) {
        self.window.release(request.height, request.hash, id);
        self.count_released(group);
    }

    fn count_released(&mut self, group: NetGroup) {
        if let Some(held) = self.held_by_group.get_mut(&group) {
            *held = held.saturating_sub(1);
        }
    }

    fn close(&mut self, peer: PeerId, reason: CloseReason) {
        let speed = self.speed_of(peer);
        self.remove_peer(peer);
        self.actions.push(Action::Close { peer, reason, speed });
    }
}

#[cfg(test)]
mod tests;
