//! A client that downloads a chain: the pool's connections, the header and block state machines, and the
//! addresses to dial, as one object that the caller polls.
//!
//! The caller validates: it answers each batch of headers with [`Client::accept_headers`] or
//! [`Client::reject_headers`], gives the hashes of the chain that it chose with [`Client::extend`], and
//! answers each block with [`Client::accept_block`] or [`Client::reject_block`].

mod dialer;
mod spent;

pub use dialer::Dialer;
pub use spent::{SentCoins, SpentCoins};

use crate::{
    addresses::Source,
    download::{Action, Download, DownloadOptions, SizeEstimate},
    handshake::PeerInfo,
    headers::{HeaderBatch, HeaderFault, HeaderSync},
    message::{AddressRecord, Inventory, Message, Services},
    peer::{CloseReason, PeerId, SpentCoinsFault},
    pool::{Pool, PoolEvent, PoolOptions, Target},
    transport::TransportVersion,
};
use spent::{Answer, Handed, HeldBlock};
use std::{
    io,
    time::{Duration, Instant},
};
use wire::{BlockHash, Header, SpentCoinsError, SpentCoinsForm};

/// Addresses from which on peers are not asked for more.
const ENOUGH_ADDRESSES: usize = 1_000;
/// The part of the memory for blocks that wait for the coins that they spend: one in this many.
const SPENT_SHARE: usize = 4;
/// Connections that are kept when all blocks are there.
const KEPT_PEERS: usize = 8;

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Options of the connections.
    pub pool: PoolOptions,
    /// Whether only targets that the user gave are dialled, and no addresses are asked for.
    pub only_user_targets: bool,
    /// Whether peers are to announce new blocks ([`HeaderSync::hear_announcements`]).
    pub hears_announcements: bool,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// The handshake with a peer is done.
    Ready { peer: PeerId, target: Target, info: PeerInfo, transport: TransportVersion },
    /// A connection ended or could not be opened. `peer` is `None` if the target could not even be tried.
    Closed { peer: Option<PeerId>, target: Target, reason: CloseReason },
    /// Headers that the caller has to validate.
    Headers(HeaderBatch),
    /// A block that the caller has to check and store.
    Block {
        /// The peer that sent it.
        peer: PeerId,
        height: u32,
        /// Its hash: that of its first 80 bytes. Nothing else of it was checked.
        hash: BlockHash,
        /// The serialised block.
        bytes: Vec<u8>,
        /// The coins that it spends, as a peer has sent them, if they were asked for.
        coins: Option<SentCoins>,
    },
    /// A peer is no longer asked for spent coins.
    CoinsRefused { target: Target, fault: SpentCoinsFault },
}

/// See the module.
pub struct Client {
    /// The connections.
    pub pool: Pool,
    /// Where the client has a function for it, such as [`Client::accept_headers`], [`Client::end_headers`] or
    /// [`Client::extend`], the caller must use that one: it keeps this, `headers` and `pool` in step.
    pub download: Download,
    pub headers: HeaderSync,
    pub dialer: Dialer,
    /// The coins that blocks spend.
    pub spent: SpentCoins,
    /// What is dialled with version 1 of the transport because a connection with version 2 was closed.
    retried: Vec<Target>,
    found: Vec<ClientEvent>,
    is_settling: bool,
    /// When it was last looked at what has come.
    last_reading: Instant,
}

impl Client {
    /// Creates a client without connections, which dials the peers that the user gave and others. `locator`
    /// holds hashes of the best known chain, highest first, down to the genesis block.
    ///
    /// # Errors
    /// If the operating system refuses what the poll loop needs.
    pub fn new(options: ClientOptions, locator: Vec<BlockHash>) -> io::Result<Self> {
        let sizes = SizeEstimate::new(options.pool.network);
        let limits = DownloadOptions {
            memory_bytes: options.pool.memory_bytes as u64,
            bytes_per_second: options.pool.peers.bytes_per_second,
            ..DownloadOptions::default()
        };
        let mut headers = HeaderSync::new(locator);
        if options.hears_announcements {
            headers.hear_announcements();
        }
        Ok(Self {
            last_reading: (options.pool.now)(),
            spent: SpentCoins::new(options.pool.memory_bytes / SPENT_SHARE),
            // No peer is asked for the genesis block.
            download: Download::new(1, sizes, limits),
            headers,
            dialer: Dialer::new(&options.pool.peers, options.only_user_targets),
            pool: Pool::new(options.pool)?,
            retried: Vec::new(),
            found: Vec::new(),
            is_settling: false,
        })
    }

    /// Adds addresses to dial. Those that are not usable or above a limit are left out.
    pub fn add_addresses(&mut self, records: &[AddressRecord], source: Source) {
        for record in records {
            self.dialer.table.add(record, source);
        }
    }

    /// Notes that a batch of headers breaks no rule; `height` is that of the last one. See
    /// [`HeaderSync::accept`].
    pub fn accept_headers(&mut self, batch: &HeaderBatch, height: u32, new: usize, locator: Vec<BlockHash>) {
        self.download.raise_height(batch.peer, height);
        self.headers.accept(batch.peer, height, new, locator);
    }

    /// Notes that the chain has other blocks above `fork` than before. Peers that had no more headers than
    /// those of the old ones are asked for the new ones when it is known that they have gone over to them.
    pub fn leave_branch(&mut self, fork: u32) {
        let headers = &self.headers;
        self.download.leave_branch(fork, |peer| headers.has_finished(peer));
    }

    /// Notes that only headers up to `height` of a peer's chain are of use. See [`HeaderSync::end`].
    pub fn end_headers(&mut self, batch: &HeaderBatch, height: u32, locator: Vec<BlockHash>) {
        self.download.raise_height(batch.peer, height);
        self.headers.end(batch.peer, locator);
    }

    /// Closes the peer of a batch of headers that breaks a rule.
    pub fn reject_headers(&mut self, batch: &HeaderBatch) {
        self.close(batch.peer, CloseReason::Headers(HeaderFault::Rejected));
    }

    /// Adds the next hashes of the chain to download. See [`Download::extend`].
    pub fn extend(&mut self, hashes: impl IntoIterator<Item = BlockHash>, is_whole: bool) {
        self.download.extend(hashes, is_whole);
        self.is_settling = is_whole;
    }

    /// Forgets the blocks from `height` on. See [`Download::truncate`].
    pub fn truncate_download(&mut self, height: u32) {
        self.download.truncate(height);
        let blocks = self.spent.truncate(height);
        self.hand_over(blocks);
        self.is_settling = false;
    }

    /// Adds the next block of the chain, which is stored already. See [`Download::extend_stored`].
    pub fn extend_stored(&mut self, hash: BlockHash, is_whole: bool) {
        self.download.extend_stored(hash, is_whole);
        self.is_settling = is_whole;
    }

    /// Notes that coins that a peer has sent are not those that the block spends: the peer is closed, and not
    /// asked for any again.
    pub fn reject_coins(&mut self, peer: PeerId, target: &Target, flaw: SpentCoinsError) {
        // It may be another connection by now.
        let is_same = self.pool.target(peer) == Some(target);
        self.refuse_coins(peer, SpentCoinsFault::Malformed(flaw));
        if !is_same {
            let blocks = self.spent.refuse_target(target);
            self.hand_over(blocks);
        }
    }

    /// Notes that a block and the coins that came with it, of `len` bytes together, are stored and no longer
    /// in memory.
    pub fn accept_block(&mut self, height: u32, hash: BlockHash, len: usize) {
        self.download.accept(height, hash);
        self.pool.release(len);
    }

    /// Notes that the bytes of a block do not match its hash. The connection to its peer is closed, and the
    /// block is requested from another. `len` is that of [`Client::accept_block`].
    pub fn reject_block(&mut self, height: u32, hash: BlockHash, len: usize) {
        self.download.reject(height, hash);
        self.pool.release(len);
    }

    /// Waits for events, for at most `timeout`, and handles them.
    ///
    /// # Errors
    /// If the operating system's poll fails; errors of connections are events.
    pub fn poll(&mut self, timeout: Duration) -> io::Result<Vec<ClientEvent>> {
        // What the caller answered since the last call can make requests possible at once.
        self.decide(self.pool.now());
        let timeout = timeout.min(self.download.next_poll());
        let timeout = if self.found.is_empty() { timeout } else { Duration::ZERO };
        let events = self.pool.poll(timeout)?;
        let now = self.pool.now();
        for event in events {
            self.handle(event, now);
        }
        self.decide(now);
        Ok(std::mem::take(&mut self.found))
    }

    fn decide(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.last_reading);
        self.last_reading = now;
        for (peer, is_unread, incoming) in self.pool.readings() {
            let peer = self.download.peer_mut(peer).into_iter();
            peer.for_each(|peer| peer.note_reading(is_unread, incoming, elapsed));
        }
        // Headers are asked for first: a peer on a better branch shows it before it says that it does not
        // have the blocks of this one.
        for request in self.headers.poll(now) {
            let stop = BlockHash::default();
            self.pool.send(request.peer, &Message::GetHeaders { locator: request.locator, stop });
        }
        let candidate_waits = self.dialer.candidate_waits(now);
        for action in self.download.poll(now, candidate_waits) {
            match action {
                Action::Request { peer, hashes, marker } => {
                    // The coins of a block come right behind it, not behind all other blocks.
                    let at_once = if self.spent.is_asked(peer) { 1 } else { hashes.len().max(1) };
                    for hashes in hashes.chunks(at_once) {
                        let list = hashes.iter().copied().map(Inventory::witness_block).collect();
                        self.pool.send(peer, &Message::GetData(list));
                        self.ask_coins(peer, hashes, marker);
                    }
                    self.pool.send(peer, &Message::Ping(marker));
                }
                Action::Close { peer, reason, speed } => self.close_with(peer, reason, speed),
            }
        }
        if let Some(peer) = self.spent.late(now) {
            self.refuse_coins(peer, SpentCoinsFault::Late);
        }
        self.dialer.update(self.download.bytes_per_second(), now);
        if self.is_settling && self.download.is_done() {
            self.settle();
        }
        while let Some((target, version)) = self.dialer.next(now) {
            if !self.dial(&target, version, now) {
                break;
            }
        }
    }

    /// Closes the connections that are not needed when all blocks are there.
    fn settle(&mut self) {
        self.dialer.limit(KEPT_PEERS);
        // The user's peers would be dialled again.
        let others = self.download.peers().filter(|(_, peer)| !peer.is_named);
        let extra: Vec<PeerId> = others.map(|(id, _)| id).skip(KEPT_PEERS).collect();
        extra.into_iter().for_each(|id| self.close(id, CloseReason::NotNeeded));
    }

    /// Closes the connections to peers that were found and have no more headers, unless they are to be kept,
    /// so that others are dialled.
    pub fn replace_finished(&mut self, is_kept: impl Fn(PeerId) -> bool) {
        let found = self.download.peers().filter(|(_, peer)| !peer.is_named).map(|(id, _)| id);
        let finished: Vec<PeerId> =
            found.filter(|id| self.headers.has_finished(*id) && !is_kept(*id)).collect();
        finished.into_iter().for_each(|id| self.close(id, CloseReason::NotNeeded));
    }

    /// Returns whether the target could be tried.
    fn dial(&mut self, target: &Target, version: TransportVersion, now: Instant) -> bool {
        match self.pool.dial(target, version) {
            Ok(id) => {
                self.dialer.dialled(id, target, now);
                true
            }
            Err(reason) => {
                if let Target::Address(address) = target {
                    // Without a route, it would be chosen again at once, and for ever.
                    self.dialer.table.dialled(address, now);
                }
                self.dialer.closed(None, target, &reason, None, now);
                self.found.push(ClientEvent::Closed { peer: None, target: target.clone(), reason });
                false
            }
        }
    }

    fn handle(&mut self, event: PoolEvent, now: Instant) {
        match event {
            PoolEvent::Bytes { peer, bytes } => self.download.received_bytes(peer, bytes, now),
            PoolEvent::Ready { peer, info, transport } => self.ready(peer, info, transport),
            PoolEvent::Message { peer, message } => self.message(peer, message, now),
            PoolEvent::Closed { peer, target, reason, should_retry_with_v1 } => {
                self.closed(peer, target.clone(), reason, self.download.speed_of(peer), now);
                self.retried.retain(|retried| *retried != target);
                if should_retry_with_v1 && self.dial(&target, TransportVersion::V1, now) {
                    self.retried.push(target);
                }
            }
        }
    }

    fn ready(&mut self, peer: PeerId, info: PeerInfo, transport: TransportVersion) {
        let Some(target) = self.pool.target(peer).cloned() else { return };
        if let Some(at) = self.retried.iter().position(|retried| *retried == target) {
            self.retried.swap_remove(at);
            self.dialer.needs_v1(&target);
        }
        self.dialer.ready(peer, &target, info.services);
        let group = match &target {
            Target::Address(address) => address.host.group(),
            // The name says nothing of the address: names share the group of "no address".
            Target::Name(..) => crate::address::Host::V4([0; 4].into()).group(),
        };
        self.download.add_peer(peer, group, info.height.max(0) as u32, info.round_trip);
        if let Some(state) = self.download.peer_mut(peer) {
            state.is_limited = !info.services.has(Services::NETWORK);
            state.is_named = self.dialer.named(&target).is_some();
        }
        self.headers.add_peer(peer, info.round_trip);
        if let Some(form) = info.spent_coins {
            self.spent.add_peer(peer, &target, form);
        }
        if self.dialer.wants_addresses() && self.dialer.table.len() < ENOUGH_ADDRESSES {
            self.pool.send(peer, &Message::GetAddr);
        }
        if self.headers.hears_announcements() {
            self.pool.send(peer, &Message::SendHeaders);
        }
        self.found.push(ClientEvent::Ready { peer, target, info, transport });
    }

    fn message(&mut self, peer: PeerId, message: Message, now: Instant) {
        match message {
            Message::Block(bytes) => self.block(peer, bytes, now),
            Message::SpentCoins { form, bytes } => self.coins(peer, form, bytes),
            Message::Pong(number) => {
                self.download.received_pong(peer, number, now);
                let (blocks, is_faulty) = self.spent.pong(peer, number);
                self.hand_over(blocks);
                if is_faulty {
                    self.refuse_coins(peer, SpentCoinsFault::NotSent);
                }
            }
            Message::NotFound(list) => {
                for hash in list.iter().filter_map(Inventory::block_hash) {
                    self.download.received_not_found(peer, hash, now);
                }
            }
            Message::Headers(headers) => {
                if headers.is_empty() && self.headers.is_asked_of_chain(peer) {
                    // Its chain ends at a block of the locator.
                    self.download.set_shared(peer, None);
                }
                match self.headers.receive(peer, headers) {
                    Ok(batch) => self.found.extend(batch.map(ClientEvent::Headers)),
                    Err(fault) => self.close(peer, CloseReason::Headers(fault)),
                }
            }
            Message::Inv(list) => {
                for hash in list.iter().filter_map(Inventory::block_hash) {
                    self.headers.named(peer, &hash);
                }
            }
            Message::Addresses(records) if self.dialer.wants_addresses() => {
                let Some(target) = self.pool.target(peer).cloned() else { return };
                let source = match &target {
                    Target::Address(address) => Source::Peer(address.host.group()),
                    Target::Name(..) => Source::Name(peer),
                };
                self.add_addresses(&records, source);
                // Most tell their own one first.
                if records.len() > 1 && self.dialer.forget_seed(&target) {
                    self.close(peer, CloseReason::NotNeeded);
                }
            }
            _ => {}
        }
    }

    fn block(&mut self, peer: PeerId, bytes: Vec<u8>, now: Instant) {
        let head = bytes.get(..Header::LEN).unwrap_or_default();
        let hash = BlockHash(digest::sha256::sha256d(head));
        match self.download.received_block(peer, hash, bytes.len() as u64, now) {
            Some(height) => {
                if let Some(other) = self.spent.other_peer(&hash) {
                    let marker = self.download.take_marker();
                    self.ask_coins(other, &[hash], marker);
                    self.pool.send(other, &Message::Ping(marker));
                }
                let handed = self.spent.block(HeldBlock { peer, height, hash, bytes }, now);
                self.hand_over(handed);
            }
            None => self.pool.release(bytes.len()),
        }
    }

    /// Asks a peer for the coins that blocks spend, if it offers them. The ping `marker` must follow.
    fn ask_coins(&mut self, peer: PeerId, hashes: &[BlockHash], marker: u64) {
        if let Some((form, blocks)) = self.spent.ask(peer, hashes, marker) {
            for block in blocks {
                self.pool.send(peer, &Message::GetSpentCoins { form, block });
            }
        }
    }

    fn coins(&mut self, peer: PeerId, form: SpentCoinsForm, bytes: Vec<u8>) {
        match self.spent.coins(peer, form, bytes) {
            Answer::Complete(block, coins) => self.hand_over([(block, Some(coins))]),
            Answer::Unused(bytes) => self.pool.release(bytes),
            Answer::Unrequested(bytes) => {
                self.pool.release(bytes);
                self.refuse_coins(peer, SpentCoinsFault::Unrequested);
            }
        }
    }

    fn hand_over(&mut self, blocks: impl IntoIterator<Item = Handed>) {
        for (HeldBlock { peer, height, hash, bytes }, coins) in blocks {
            self.found.push(ClientEvent::Block { peer, height, hash, bytes, coins });
        }
    }

    /// Does not ask a peer for spent coins again.
    fn refuse_coins(&mut self, peer: PeerId, fault: SpentCoinsFault) {
        let Some(target) = self.spent.refuse(peer) else { return };
        if fault.closes() {
            return self.close(peer, CloseReason::SpentCoins(fault));
        }
        let blocks = self.spent.forget(peer);
        self.hand_over(blocks);
        self.found.push(ClientEvent::CoinsRefused { target, fault });
    }

    fn close(&mut self, peer: PeerId, reason: CloseReason) {
        self.close_with(peer, reason, self.download.speed_of(peer));
    }

    fn close_with(&mut self, peer: PeerId, reason: CloseReason, speed: Option<f64>) {
        if let Some(target) = self.pool.target(peer).cloned() {
            self.pool.close(peer);
            self.closed(peer, target, reason, speed, self.pool.now());
        }
    }

    /// Notes that a connection ended whose peer delivered blocks with `speed`.
    fn closed(
        &mut self,
        peer: PeerId,
        target: Target,
        reason: CloseReason,
        speed: Option<f64>,
        now: Instant,
    ) {
        self.dialer.closed(Some(peer), &target, &reason, speed, now);
        let blocks = self.spent.forget(peer);
        self.hand_over(blocks);
        self.download.remove_peer(peer);
        self.headers.remove_peer(peer);
        self.found.push(ClientEvent::Closed { peer: Some(peer), target, reason });
    }
}
