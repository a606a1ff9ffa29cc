//! What the peers of a download do, for those who watch it.

use crate::api::sync::{DownloadLimit, PeerEvent, PeerStatus};
use net::{client::Client, peer::PeerId, transport::TransportVersion};
use std::{
    cmp::Reverse,
    collections::HashMap,
    time::{Duration, Instant},
};

/// Interval between two reports.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Number of blocks that wait for each thread that stores blocks from which on that limits the speed.
const WAITING_BLOCKS: u32 = 4;

/// A connected peer.
pub struct ConnectedPeer {
    /// Address or name, and port.
    pub peer: String,
    /// What it calls its program.
    pub user_agent: String,
    /// The transport that is used.
    pub transport: TransportVersion,
}

/// The connected peers, and what is known of all peers since the start.
#[derive(Default)]
pub struct ConnectedPeers {
    peers: HashMap<PeerId, ConnectedPeer>,
    /// What each peer did when that was last reported.
    seen: HashMap<PeerId, PeerStatus>,
    last_report: Option<Instant>,
}

fn sorted(mut peers: Vec<PeerStatus>) -> Vec<PeerStatus> {
    peers.sort_by_key(|peer| Reverse(peer.bytes));
    peers
}

impl ConnectedPeers {
    /// Adds a peer.
    pub fn add(&mut self, id: PeerId, peer: ConnectedPeer) {
        self.peers.insert(id, peer);
    }

    /// Removes a peer. Returns whether it was connected.
    pub fn remove(&mut self, id: PeerId) -> bool {
        self.peers.remove(&id).is_some()
    }

    /// Returns what the peers do; `None` if that was reported a short time ago. `waiting` blocks wait for
    /// `writers` threads that store them.
    pub fn report(&mut self, client: &Client, waiting: u32, writers: u32) -> Option<PeerEvent> {
        if self.last_report.is_some_and(|last| last.elapsed() < STATUS_INTERVAL) {
            return None;
        }
        self.last_report = Some(Instant::now());
        let now = self.now(client);
        self.seen.extend(now.iter().map(|(id, status)| (*id, status.clone())));
        let peers = sorted(now.into_iter().map(|(_, status)| status).collect());
        let limit = match peers.is_empty() {
            true => DownloadLimit::NoPeers,
            false if waiting >= WAITING_BLOCKS * writers => DownloadLimit::Storing,
            false => DownloadLimit::Network,
        };
        Some(PeerEvent::Status { peers, limit })
    }

    /// Returns what each peer did that has sent blocks, the one that has sent the most bytes first.
    pub fn all(mut self, client: &Client) -> Vec<PeerStatus> {
        self.seen.extend(self.now(client));
        sorted(self.seen.into_values().filter(|peer| peer.blocks > 0).collect())
    }

    fn now(&self, client: &Client) -> Vec<(PeerId, PeerStatus)> {
        let status = client.download().peers().filter_map(|(id, state)| {
            let ConnectedPeer { peer, user_agent, transport } = self.peers.get(&id)?;
            let (blocks, bytes) = state.delivered();
            let speed = state.speed.is_measured().then(|| state.speed.bytes_per_second());
            Some((
                id,
                PeerStatus {
                    peer: peer.clone(),
                    user_agent: user_agent.clone(),
                    transport: *transport,
                    round_trip: state.round_trip(),
                    blocks: blocks as u32,
                    bytes,
                    bytes_per_second: speed,
                    bytes_in_flight: state.in_flight_bytes(),
                },
            ))
        });
        status.collect()
    }
}
