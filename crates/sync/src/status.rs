//! What the peers of a download do, for those who watch it.

use crate::options::{DownloadLimit, PeerEvent, PeerStatus};
use net::{client::Client, peer::PeerId, transport::TransportVersion};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    time::{Duration, Instant},
};

const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Storing limits the speed if at least this many blocks wait for each thread that stores them.
const WAITING_BLOCKS: u32 = 4;

/// The peers of a download, also those whose connections were closed.
#[derive(Default)]
pub struct Peers {
    all: BTreeMap<PeerId, PeerStatus>,
    connected: HashSet<PeerId>,
    last_report: Option<Instant>,
}

/// Adds what peers have sent; one that was connected several times is one peer. The one that has sent the
/// most bytes comes first.
pub fn add_senders(to: &mut Vec<PeerStatus>, senders: impl IntoIterator<Item = PeerStatus>) {
    for sender in senders {
        match to.iter_mut().find(|peer| peer.peer == sender.peer) {
            Some(peer) => {
                peer.blocks += sender.blocks;
                peer.bytes += sender.bytes;
            }
            None => to.push(sender),
        }
    }
    to.sort_by_key(|peer| Reverse(peer.bytes));
}

impl Peers {
    /// Adds a peer that is connected, with what it calls its program.
    pub fn add(&mut self, id: PeerId, peer: String, user_agent: String, transport: TransportVersion) {
        self.connected.insert(id);
        let status = PeerStatus {
            peer,
            user_agent,
            transport,
            round_trip: Duration::ZERO,
            blocks: 0,
            bytes: 0,
            bytes_per_second: None,
            bytes_in_flight: 0,
        };
        self.all.insert(id, status);
    }

    /// Takes over what the client has measured of the connected peers.
    pub fn measure(&mut self, client: &Client) {
        for (id, state) in client.download.peers() {
            if let Some(peer) = self.all.get_mut(&id) {
                let speed = state.speed;
                peer.round_trip = state.round_trip;
                peer.bytes_per_second = speed.is_measured().then(|| speed.bytes_per_second());
                peer.bytes_in_flight = state.in_flight_bytes();
            }
        }
    }

    /// Records that a connection was closed. Returns whether there was one. A peer that has sent no block is
    /// forgotten: over months at the tip, there are many.
    pub fn close(&mut self, id: PeerId) -> bool {
        if self.all.get(&id).is_some_and(|peer| peer.blocks == 0) {
            self.all.remove(&id);
        }
        self.connected.remove(&id)
    }

    pub fn count_block(&mut self, id: PeerId, bytes: usize) {
        if let Some(peer) = self.all.get_mut(&id) {
            peer.blocks += 1;
            peer.bytes += bytes as u64;
        }
    }

    /// Returns what the connected peers do; `None` if that was reported a short time ago. `waiting` blocks
    /// wait for `writers` threads that store them.
    pub fn report(&mut self, client: &Client, waiting: u32, writers: u32) -> Option<PeerEvent> {
        if self.last_report.is_some_and(|last| last.elapsed() < STATUS_INTERVAL) {
            return None;
        }
        self.last_report = Some(Instant::now());
        self.measure(client);
        let mut peers: Vec<_> = self.connected.iter().filter_map(|id| self.all.get(id).cloned()).collect();
        peers.sort_by_key(|peer| Reverse(peer.bytes));
        let limit = match peers.is_empty() {
            true => DownloadLimit::NoPeers,
            false if waiting >= WAITING_BLOCKS * writers => DownloadLimit::Storing,
            false => DownloadLimit::Network,
        };
        Some(PeerEvent::Status { peers, limit })
    }

    /// Returns the peers that have sent blocks, the one that has sent the most bytes first.
    pub fn into_senders(self) -> Vec<PeerStatus> {
        let mut senders = Vec::new();
        // Of each, the last connection was measured last.
        add_senders(&mut senders, self.all.into_values().rev().filter(|peer| peer.blocks > 0));
        senders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of other rounds were once added last, whatever they had sent.
    #[test]
    fn the_peer_that_has_sent_the_most_bytes_comes_first() {
        let sent = |blocks: &[(&str, usize)]| {
            let mut peers = Peers::default();
            for ((name, bytes), id) in blocks.iter().zip(0..) {
                peers.add(PeerId(id), (*name).to_owned(), format!("/{bytes}/"), TransportVersion::V1);
                peers.count_block(PeerId(id), *bytes);
            }
            peers.into_senders()
        };
        let mut all = sent(&[("a", 1), ("b", 4), ("a", 2)]);
        add_senders(&mut all, sent(&[("c", 5), ("a", 3)]));
        let row = |peer: &PeerStatus| (peer.peer.clone() + &peer.user_agent, peer.blocks, peer.bytes);
        let all: Vec<_> = all.iter().map(row).collect();
        // The program is that of the last connection.
        assert_eq!(all, [("a/2/".to_owned(), 3, 6), ("c/5/".to_owned(), 1, 5), ("b/4/".to_owned(), 1, 4)]);
    }
}
