//! The caller's side: validates headers by comparing them, checks blocks, and stores them in memory.

use super::{chain::is_intact, *};
use peregrine_net::{
    client::{Client, ClientEvent, ClientOptions},
    headers::locator_heights,
    pool::{PeerOptions, PoolOptions},
};
use std::collections::BTreeSet;

/// Within this time, all that the tests wait for happens.
const LIMIT: Duration = Duration::from_secs(90);

pub struct Driver {
    pub client: Client,
    pub chain: Arc<ServedChain>,
    /// Hashes of the headers that were accepted.
    pub known: Vec<BlockHash>,
    given: usize,
    pub stored: BTreeSet<u32>,
    /// Transport and user agent of each peer that is ready.
    pub ready: Vec<(TransportVersion, String)>,
    pub closed: Vec<(Target, CloseReason)>,
    pub most_memory: usize,
    /// Blocks that are kept before they are accepted.
    pub hold: usize,
    /// The time that passes when nothing happens.
    pub idle_time: Duration,
    held: Vec<(u32, BlockHash, usize)>,
}

impl Driver {
    /// A caller with the usual options, which `edit` may change.
    pub fn new(chain: &Arc<ServedChain>, edit: impl FnOnce(&mut ClientOptions)) -> Self {
        let mut options = ClientOptions {
            pool: PoolOptions {
                network: Network::Regtest,
                magic: Network::Regtest.magic(),
                user_agent: "/peregrine:test/".to_owned(),
                height: 0,
                wants_spent_coins: false,
                peers: PeerOptions::default(),
                memory_bytes: 64 << 20,
                now: clock::now,
            },
            only_user_targets: true,
            hears_announcements: false,
        };
        edit(&mut options);
        Self {
            client: Client::new(options, vec![chain.hashes[0]]).unwrap(),
            chain: Arc::clone(chain),
            known: vec![chain.hashes[0]],
            given: 1,
            stored: BTreeSet::new(),
            ready: Vec::new(),
            closed: Vec::new(),
            most_memory: 0,
            hold: 0,
            idle_time: Duration::ZERO,
            held: Vec::new(),
        }
    }

    pub fn add(&mut self, peer: &ScriptedPeer) {
        self.client.dialer.add_target(peer.target(), false);
    }

    pub fn reason(&self, peer: &ScriptedPeer) -> Option<&CloseReason> {
        let target = peer.target();
        self.closed.iter().find(|(closed, _)| *closed == target).map(|(_, reason)| reason)
    }

    pub fn is_done(&self) -> bool {
        self.stored.len() == self.chain.height()
    }

    /// Polls until `is_done`, or panics after [`LIMIT`].
    pub fn run_until(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_done(self) {
            let seen = (self.stored.len(), &self.ready, &self.closed);
            assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}: {seen:?}");
            self.step();
        }
    }

    pub fn download_all(&mut self) {
        self.run_until("all blocks", Self::is_done);
    }

    pub fn step(&mut self) {
        let events = self.client.poll(Duration::from_millis(50)).unwrap();
        let is_idle = events.is_empty();
        clock::skip(if is_idle { self.idle_time } else { Duration::ZERO });
        for event in events {
            match event {
                ClientEvent::Ready { info, transport, .. } => self.ready.push((transport, info.user_agent)),
                ClientEvent::Closed { target, reason, .. } => self.closed.push((target, reason)),
                ClientEvent::Headers(batch) => self.headers(&batch),
                ClientEvent::Block { height, hash, bytes, .. } => self.block(height, hash, &bytes),
                ClientEvent::CoinsRefused { .. } => unreachable!("they are not wanted"),
            }
        }
        self.most_memory = self.most_memory.max(self.client.pool.memory_bytes());
        while self.held.len() > self.hold || is_idle && !self.held.is_empty() {
            let (height, hash, len) = self.held.remove(0);
            self.client.accept_block(height, hash, len);
        }
    }

    fn headers(&mut self, batch: &peregrine_net::headers::HeaderBatch) {
        let Some(at) = self.known.iter().position(|hash| *hash == batch.parent) else {
            self.client.reject_headers(batch);
            return;
        };
        let before = self.known.len();
        if at + 1 + batch.hashes.len() > before {
            self.known.truncate(at + 1);
            self.known.extend(&batch.hashes);
        }
        let locator = locator_heights(self.known.len() as u32 - 1);
        let locator = locator.into_iter().map(|height| self.known[height as usize]).collect();
        let (height, new) = (at + batch.hashes.len(), self.known.len().saturating_sub(before));
        self.client.accept_headers(batch, height as u32, new, locator);
        self.give();
    }

    fn give(&mut self) {
        let count = self.client.download.wanted_hashes().min(self.known.len() - self.given);
        let hashes: Vec<BlockHash> = self.known[self.given..self.given + count].to_vec();
        self.given += count;
        self.client.extend(hashes, self.given == self.known.len());
    }

    fn block(&mut self, height: u32, hash: BlockHash, bytes: &[u8]) {
        assert_eq!(hash, self.chain.hashes[height as usize]);
        if !is_intact(bytes) {
            self.client.reject_block(height, hash, bytes.len());
            return;
        }
        assert_eq!(bytes, self.chain.blocks[height as usize]);
        assert!(self.stored.insert(height), "block {height} was delivered twice");
        self.held.push((height, hash, bytes.len()));
        self.give();
    }
}
