//! Where the first addresses of peers come from.

use super::{Event, EventSink, Note, SyncOptions};
use crate::options::PeerOptions;
use api::options::ChainOptions;
use crossbeam::channel::{Receiver, TryRecvError, unbounded};
use net::{address::NetworkKind, addresses::Source, client::Client, message::AddressRecord, seeds};
use rules::ChainParams;
use std::{
    thread,
    time::{Duration, Instant},
};
use wire::Network;

/// Time that DNS seeds and the user's peers have before fixed seeds are used, as in Core
/// `ThreadOpenConnections`.
const SEED_PATIENCE: Duration = Duration::from_secs(60);

/// DNS seeds, and the fixed seeds that replace them if no address of a network is known.
pub struct Seeds {
    found: Receiver<(Source, Vec<AddressRecord>)>,
    /// The network whose fixed seeds may be used, until they are.
    fixed: Option<Network>,
    start: Instant,
    /// Whether other sources may still give addresses.
    waits: bool,
}

impl Seeds {
    /// Asks DNS seeds for addresses, each in a thread of its own, which may outlive the download: the
    /// system's resolver cannot be interrupted. Behind a proxy, the seeds themselves are dialled.
    pub fn ask(options: &SyncOptions, client: &mut Client) -> Self {
        let (found_in, found) = unbounded();
        let PeerOptions { connect, add, proxy, use_dns_seeds, use_fixed_seeds, .. } = &options.peers;
        let network = public_network(&options.chain).filter(|_| connect.is_empty());
        let asked = network.filter(|_| *use_dns_seeds);
        for (seed, number) in asked.map(seeds::dns_seeds).unwrap_or_default().iter().zip(0..) {
            let (network, found_in) = (options.chain.params.network, found_in.clone());
            if proxy.is_some() {
                client.dialer.add_target(seeds::proxy_target(seed, network), true);
                continue;
            }
            // Other seeds are asked if this thread cannot be started. If the download has ended when the seed
            // answers, nobody needs the addresses.
            let _ = thread::Builder::new().name("seed".to_owned()).spawn(move || {
                if let Ok(records) = seeds::resolve(seed, network) {
                    let _ = found_in.send((Source::Seed(number), records));
                }
            });
        }
        let fixed = network.filter(|_| *use_fixed_seeds);
        Self { found, fixed, start: Instant::now(), waits: asked.is_some() || !add.is_empty() }
    }

    /// Whether other addresses may be found.
    pub fn may_help(&self) -> bool {
        self.fixed.is_some() || self.waits && self.start.elapsed() < SEED_PATIENCE
    }

    /// Gives the client the addresses that have been found.
    pub fn add(&mut self, options: &SyncOptions, client: &mut Client, sink: &dyn EventSink) {
        let why_none = loop {
            match self.found.try_recv() {
                Ok((source, records)) => client.add_addresses(&records, source),
                Err(why) => break why,
            }
        };
        if why_none == TryRecvError::Disconnected {
            let PeerOptions { add, proxy, .. } = &options.peers;
            // All name servers have answered, or failed.
            self.waits &= proxy.is_some() || !add.is_empty();
        }
        let Some(network) = self.fixed else { return };
        let is_late = self.start.elapsed() >= SEED_PATIENCE;
        if !is_late && (self.waits || !client.dialer.table.is_empty()) {
            return;
        }
        self.fixed = None;
        let knows =
            |kind: NetworkKind| client.dialer.table.known().any(|known| known.address.host.network() == kind);
        let unknown: Vec<_> = options.peers.networks.iter().copied().filter(|kind| !knows(*kind)).collect();
        let before = client.dialer.table.len();
        for kind in unknown {
            client.add_addresses(&seeds::fixed_seeds(network, kind), Source::Fixed(kind));
        }
        let addresses = client.dialer.table.len() - before;
        if addresses > 0 {
            sink.event(Event::Note(Note::FixedSeeds { addresses }));
        }
    }
}

/// Whether there are peers that can be asked.
pub fn has_peers(chain: &ChainOptions, peers: &PeerOptions) -> bool {
    let PeerOptions { connect, add, known, networks, use_dns_seeds, use_fixed_seeds, .. } = peers;
    let has_seeds = public_network(chain).is_some_and(|network| {
        *use_dns_seeds && !seeds::dns_seeds(network).is_empty()
            || *use_fixed_seeds && networks.iter().any(|&kind| !seeds::fixed_seeds(network, kind).is_empty())
    });
    !(connect.is_empty() && add.is_empty() && known.is_empty()) || has_seeds
}

/// The network of a chain, unless it is a custom signet, for which no seed knows any nodes.
fn public_network(options: &ChainOptions) -> Option<Network> {
    let ChainParams { network, magic, .. } = *options.params;
    (magic == network.magic()).then_some(network)
}
