//! Fetching headers: a state machine without sockets, clock and rules.
//!
//! One peer, the leader, is asked for batch after batch. When it has no more, all others are asked from the
//! best header that is known then: one round trip each finds forks. If one has many more, it leads from then
//! on. This module checks what needs no rules: that an answer was asked for, begins at a hash of the locator
//! that was sent, and is continuous. The caller checks work and rules, and says so ([`HeaderSync::accept`]),
//! or closes the peer.
//!
//! A client that stays at the tip hears announcements too ([`HeaderSync::hear_announcements`]): headers that
//! a peer sends unasked after it had no more are a batch as any other, and a peer that names a block which is
//! not in the locator is asked for headers, at most once in a second.

use crate::{
    message::{MAX_HEADERS, MAX_LOCATOR},
    peer::PeerId,
};
use digest::sha256::{Message as Hashed, sha256d_many};
use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    time::{Duration, Instant},
};
pub use wire::header::locator_heights;
use wire::{BlockHash, Header};

/// Time after which another peer is asked instead of one that does not answer.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Limits of the time after which another peer leads instead of one that has not answered: four round trips.
const LEADER_PATIENCE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(5);
/// Time after which a peer that did not answer may be asked again.
const SILENT_RETRY: Duration = Duration::from_secs(120);
/// Time between two requests to a peer because it has named a block.
const ANNOUNCED_INTERVAL: Duration = Duration::from_secs(1);
/// Full batches that lead no further after which a peer counts as having no more.
const MAX_STALE_BATCHES: u32 = 3;

/// A flaw in a peer's headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderFault {
    /// The first header does not follow a block of the locator.
    #[error("the first header does not connect to what was asked for")]
    NotConnected,
    #[error("header {at} of the batch does not follow the one before it")]
    NotContinuous { at: usize },
    /// The caller found that the headers break a rule.
    #[error("the headers break a consensus rule")]
    Rejected,
}

/// Headers of one answer, each following the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderBatch {
    /// The peer that sent them.
    pub peer: PeerId,
    /// The parent of the first header; it is in the locator unless the batch is an announcement.
    pub parent: BlockHash,
    /// The headers, at least one.
    pub headers: Vec<Header>,
    pub hashes: Vec<BlockHash>,
}

/// A `getheaders` that is to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderRequest {
    pub peer: PeerId,
    pub locator: Vec<BlockHash>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum PeerState {
    /// It can be asked.
    #[default]
    Idle,
    /// It was asked with this locator.
    Asked { since: Instant, locator: Vec<BlockHash> },
    /// The caller checks its batch. `is_full` says that more may follow, from `last` on.
    Checking { is_full: bool, last: BlockHash },
    /// It has no more.
    Finished,
    /// It did not answer in time. It may be a node that writes to a slow disk, and answer later.
    Silent { since: Instant, locator: Vec<BlockHash> },
}

#[derive(Clone, Debug, Default)]
struct HeaderPeer {
    /// Time that an answer takes, or more if it was slow as the leader: then others lead first.
    round_trip: Duration,
    state: PeerState,
    /// The last header that it sent and that was accepted.
    last: Option<BlockHash>,
    /// The greatest height of a header that it sent and that was accepted, since it was asked anew.
    highest: u32,
    stale_batches: u32,
    /// Whether it has announced a block since it was asked, about which it is still to be asked.
    has_named: bool,
    /// Whether its last batch was an announcement.
    has_announced: bool,
    /// When it was last asked because of that.
    last_named: Option<Instant>,
}

impl HeaderPeer {
    /// How long it may take to answer as the leader.
    fn patience(&self) -> Duration {
        (self.round_trip * 4).clamp(*LEADER_PATIENCE.start(), *LEADER_PATIENCE.end())
    }

    /// Whether it is time to ask it because it has named a block.
    fn may_be_asked(&self, now: Instant) -> bool {
        self.last_named.is_none_or(|last| now.saturating_duration_since(last) >= ANNOUNCED_INTERVAL)
    }

    /// It can be asked, as if it had not been asked before.
    fn begin_anew(&mut self) {
        self.state = PeerState::Idle;
        (self.last, self.highest, self.stale_batches) = (None, 0, 0);
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct HeaderSync {
    /// Hashes of the best chain that the caller knows.
    locator: Vec<BlockHash>,
    peers: BTreeMap<PeerId, HeaderPeer>,
    leader: Option<PeerId>,
    /// Whether a leader has had no more.
    all_are_asked: bool,
    hears_announcements: bool,
}

impl HeaderSync {
    /// Creates a state without peers. The locator holds hashes of the best known chain, highest first, down
    /// to the genesis block ([`locator_heights`]).
    pub fn new(locator: Vec<BlockHash>) -> Self {
        Self { locator, ..Self::default() }
    }

    /// Takes announcements from now on.
    pub fn hear_announcements(&mut self) {
        self.hears_announcements = true;
    }

    pub const fn hears_announcements(&self) -> bool {
        self.hears_announcements
    }

    /// Notes that a peer has named a block in an `inv`. It is asked for headers, unless the block is one of
    /// the last of the chain.
    pub fn named(&mut self, id: PeerId, hash: &BlockHash) {
        if let Some(peer) = self.peers.get_mut(&id).filter(|_| self.hears_announcements) {
            peer.has_named |= !self.locator.contains(hash);
        }
    }

    /// Adds a peer that can be asked.
    pub fn add_peer(&mut self, id: PeerId, round_trip: Duration) {
        self.peers.insert(id, HeaderPeer { round_trip, ..HeaderPeer::default() });
    }

    pub fn remove_peer(&mut self, id: PeerId) {
        self.peers.remove(&id);
        if self.leader == Some(id) {
            self.leader = None;
        }
    }

    /// Returns the requests that are to be sent now.
    pub fn poll(&mut self, now: Instant) -> Vec<HeaderRequest> {
        for (id, peer) in &mut self.peers {
            match peer.state {
                PeerState::Asked { since, ref mut locator }
                    if now.saturating_duration_since(since) >= REPLY_TIMEOUT =>
                {
                    let locator = std::mem::take(locator);
                    peer.state = PeerState::Silent { since: now, locator };
                    if self.leader == Some(*id) {
                        self.leader = None;
                    }
                }
                PeerState::Silent { since, .. } if now.saturating_duration_since(since) >= SILENT_RETRY => {
                    peer.state = PeerState::Idle;
                }
                PeerState::Finished if peer.has_named && peer.may_be_asked(now) => {
                    peer.last_named = Some(now);
                    peer.begin_anew();
                }
                _ => {}
            }
        }
        if let Some(id) = self.leader
            && let Some(leader) = self.peers.get_mut(&id)
            && let PeerState::Asked { since, .. } = leader.state
            && now.saturating_duration_since(since) >= leader.patience()
        {
            leader.round_trip = leader.patience();
            self.leader = None;
        }
        let idle = self.peers.iter().filter(|(_, peer)| peer.state == PeerState::Idle);
        // At the tip, a peer that has headers of a branch with little work for hours must not lead alone.
        let asked: Vec<PeerId> = if self.all_are_asked || self.hears_announcements {
            idle.map(|(id, _)| *id).collect()
        } else if let Some(leader) = self.leader {
            idle.map(|(id, _)| *id).filter(|id| *id == leader).collect()
        } else {
            self.leader = idle.min_by_key(|(id, peer)| (peer.round_trip, **id)).map(|(id, _)| *id);
            self.leader.into_iter().collect()
        };
        asked.into_iter().filter_map(|id| self.ask(id, now)).collect()
    }

    fn ask(&mut self, id: PeerId, now: Instant) -> Option<HeaderRequest> {
        let peer = self.peers.get_mut(&id)?;
        let mut locator: Vec<BlockHash> = peer.last.into_iter().chain(self.locator.iter().copied()).collect();
        if locator.len() > MAX_LOCATOR {
            // The last hash is the genesis block's, at which every chain connects.
            locator.drain(MAX_LOCATOR - 1..locator.len() - 1);
        }
        peer.state = PeerState::Asked { since: now, locator: locator.clone() };
        peer.has_named = false;
        Some(HeaderRequest { peer: id, locator })
    }

    /// Handles a `headers` message. Returns a batch for the caller to check, or `None` if it is empty, or was
    /// not asked for and is no announcement that can be checked.
    ///
    /// # Errors
    /// [`HeaderFault`] if the headers do not follow each other and the locator; the peer must be closed.
    pub fn receive(&mut self, id: PeerId, headers: Vec<Header>) -> Result<Option<HeaderBatch>, HeaderFault> {
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(None) };
        let locator = match &peer.state {
            PeerState::Asked { locator, .. } | PeerState::Silent { locator, .. } => Some(locator),
            // The caller knows more blocks than the locator has.
            PeerState::Finished if self.hears_announcements => None,
            _ => {
                // An announcement that follows another one at once.
                peer.has_named |= self.hears_announcements && !headers.is_empty();
                return Ok(None);
            }
        };
        peer.has_announced = locator.is_none();
        let Some(first) = headers.first() else {
            self.finish(id);
            return Ok(None);
        };
        let parent = first.prev;
        if locator.is_some_and(|locator| !locator.contains(&parent)) {
            if self.hears_announcements {
                // An announcement that has crossed the question: the answer is still to come.
                peer.has_named = true;
                return Ok(None);
            }
            return Err(HeaderFault::NotConnected);
        }
        let hashes = hash_all(&headers);
        let followers = headers.iter().skip(1).zip(&hashes);
        if let Some(at) = followers.into_iter().position(|(header, before)| header.prev != *before) {
            return Err(HeaderFault::NotContinuous { at: at + 1 });
        }
        let last = hashes.last().copied().unwrap_or_default();
        peer.state = PeerState::Checking { is_full: headers.len() >= MAX_HEADERS, last };
        Ok(Some(HeaderBatch { peer: id, parent, headers, hashes }))
    }

    /// Notes that a batch breaks no rule. `height` is that of its last header, and `new` is how many of its
    /// headers were not known before; `locator` is that of the best chain now.
    pub fn accept(&mut self, id: PeerId, height: u32, new: usize, locator: Vec<BlockHash>) {
        self.locator = locator;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let PeerState::Checking { is_full, last } = peer.state else { return };
        // A peer that sends two branches in turns has new headers for ever, but none that leads further.
        let leads_further = height > peer.highest;
        let is_news = new > 0 && leads_further;
        peer.highest = peer.highest.max(height);
        peer.stale_batches = match peer.stale_batches {
            _ if is_news => 0,
            // On a branch of which another peer has sent a part, it may lead beyond that part.
            stale if leads_further && stale > 1 => stale,
            stale => stale + 1,
        };
        if is_full && peer.stale_batches < MAX_STALE_BATCHES {
            // What another peer sent before is skipped, unless this one is on a branch that is known too.
            peer.last = (peer.stale_batches != 1).then_some(last);
            peer.state = PeerState::Idle;
            // Beside one that sends what is known, all others are asked.
            self.all_are_asked |= peer.stale_batches > 1;
            if is_news {
                // It has more than the last leader: the others wait, so that not all send the same.
                self.leader = Some(id);
                self.all_are_asked = false;
            }
        } else {
            self.finish(id);
        }
    }

    /// Notes that a batch does not follow a block of the chain any more: it was asked for before the chain
    /// changed. The peer is asked again, unless that has happened too often.
    pub fn ask_again(&mut self, id: PeerId, locator: Vec<BlockHash>) {
        self.locator = locator;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.has_announced {
            peer.has_named = true;
            self.finish(id);
            return;
        }
        peer.stale_batches += 1;
        // What it sends again leads on from here.
        (peer.last, peer.highest) = (None, 0);
        if peer.stale_batches < MAX_STALE_BATCHES {
            peer.state = PeerState::Idle;
        } else {
            self.finish(id);
        }
    }

    /// Notes that nothing of what follows in a peer's chain is of use. `locator` is that of the best chain
    /// now.
    pub fn end(&mut self, id: PeerId, locator: Vec<BlockHash>) {
        self.locator = locator;
        self.finish(id);
    }

    /// Asks all peers again from a new locator, for example because a block was announced.
    pub fn restart(&mut self, locator: Vec<BlockHash>) {
        self.locator = locator;
        for peer in self.peers.values_mut().filter(|peer| peer.state == PeerState::Finished) {
            peer.begin_anew();
        }
    }

    fn finish(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.state = PeerState::Finished;
            self.all_are_asked = true;
        }
    }

    /// Returns whether a peer has no more headers.
    pub fn has_finished(&self, id: PeerId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.state == PeerState::Finished)
    }

    /// Returns whether a peer was asked for what follows the known chain, and not its own last header.
    pub fn is_asked_of_chain(&self, id: PeerId) -> bool {
        let is_asked =
            |state: &PeerState| matches!(state, PeerState::Asked { .. } | PeerState::Silent { .. });
        self.peers.get(&id).is_some_and(|peer| peer.last.is_none() && is_asked(&peer.state))
    }

    /// Returns the number of peers that have no more headers.
    pub fn finished_peers(&self) -> usize {
        self.peers.values().filter(|peer| peer.state == PeerState::Finished).count()
    }

    /// Returns whether all peers have no more headers or do not answer, and at least one has no more. A peer
    /// that was asked so long ago counts as one that does not answer.
    pub fn is_complete_after(&self, patience: Duration, now: Instant) -> bool {
        let is_settled = |peer: &HeaderPeer| match peer.state {
            PeerState::Finished | PeerState::Silent { .. } => true,
            PeerState::Asked { since, .. } => now.saturating_duration_since(since) >= patience,
            PeerState::Idle | PeerState::Checking { .. } => false,
        };
        self.finished_peers() > 0 && self.peers.values().all(is_settled)
    }
}

fn hash_all(headers: &[Header]) -> Vec<BlockHash> {
    let bytes: Vec<[u8; Header::LEN]> = headers.iter().map(Header::to_bytes).collect();
    let messages: Vec<Hashed<'_>> = bytes.iter().map(|bytes| Hashed([bytes, &[], &[]])).collect();
    let mut hashes = Vec::with_capacity(headers.len());
    sha256d_many(&messages, &mut hashes);
    hashes.into_iter().map(BlockHash).collect()
}

#[cfg(test)]
mod tests;
