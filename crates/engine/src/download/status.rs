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

/// The connected peers, and when their status was last reported.
#[derive(Default)]
pub struct ConnectedPeers {
    peers: HashMap<PeerId, ConnectedPeer>,
    last_report: Option<Instant>,
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
        let status = client.download().peers().filter_map(|(id, state)| {
            let ConnectedPeer { peer, user_agent, transport } = self.peers.get(&id)?;
            let (blocks, bytes) = state.delivered();
            Some(PeerStatus {
                peer: peer.clone(),
                user_agent: user_agent.clone(),
                transport: *transport,
                round_trip: state.round_trip(),
                blocks: blocks as u32,
                bytes,
                bytes_per_second: state.speed.is_measured().then(|| state.speed.bytes_per_second()),
                bytes_in_flight: state.in_flight_bytes(),
            })
        });
        let mut peers: Vec<PeerStatus> = status.collect();
        peers.sort_by_key(|peer| Reverse(peer.bytes));
        let limit = match peers.is_empty() {
            true => DownloadLimit::NoPeers,
            false if waiting >= WAITING_BLOCKS * writers => DownloadLimit::Storing,
            false => DownloadLimit::Network,
        };
        Some(PeerEvent::Status { peers, limit })
    }
}
