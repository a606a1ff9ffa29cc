//! Where the first addresses come from: DNS seeds and fixed seeds (Core `kernel/chainparams.cpp`), and the
//! ports of the networks.
//!
//! Behind a proxy nothing is resolved: a connection is made to the seed's name instead, and its peer is asked
//! for addresses (Core `ThreadDNSAddressSeed`).

use crate::{
    address::{NetworkKind, PeerAddress},
    message::{AddressRecord, Services},
    pool::Target,
    random,
};
use std::{
    io,
    net::ToSocketAddrs,
    time::{SystemTime, UNIX_EPOCH},
};
use wire::Network;

/// Maximum number of addresses that are taken of one seed (Core `nMaxIPs`).
pub const MAX_PER_SEED: usize = 32;
/// The age that a seed's addresses are given, in seconds: five days.
const ASSUMED_AGE: u64 = 5 * 24 * 60 * 60;

const MAIN: &[&str] = &[
    "dnsseed.bluematt.me.",
    "seed.bitcoin.jonasschnelli.ch.",
    "seed.btc.petertodd.net.",
    "seed.bitcoin.sprovoost.nl.",
    "dnsseed.emzy.de.",
    "seed.bitcoin.wiz.biz.",
    "seed.mainnet.achownodes.xyz.",
];
const TEST: &[&str] = &[
    "testnet-seed.bitcoin.jonasschnelli.ch.",
    "seed.tbtc.petertodd.net.",
    "seed.testnet.bitcoin.sprovoost.nl.",
    "testnet-seed.bluematt.me.",
    "seed.testnet.achownodes.xyz.",
];
const TESTNET4: &[&str] = &["seed.testnet4.bitcoin.sprovoost.nl.", "seed.testnet4.wiz.biz."];
const SIGNET: &[&str] = &["seed.signet.bitcoin.sprovoost.nl.", "seed.signet.achownodes.xyz."];

/// Returns the port of a network's nodes.
pub const fn default_port(network: Network) -> u16 {
    match network {
        Network::Main => 8333,
        Network::Test => 18333,
        Network::Testnet4 => 48333,
        Network::Signet => 38333,
        Network::Regtest => 18444,
    }
}

/// Returns the names of a network's DNS seeds.
pub const fn dns_seeds(network: Network) -> &'static [&'static str] {
    match network {
        Network::Main => MAIN,
        Network::Test => TEST,
        Network::Testnet4 => TESTNET4,
        Network::Signet => SIGNET,
        Network::Regtest => &[],
    }
}

/// Returns the name under which a seed lists nodes that have all blocks and witnesses.
pub fn query_name(seed: &str) -> String {
    format!("x{:x}.{seed}", Services::FULL.0)
}

/// Returns the target through which addresses are asked for behind a proxy.
pub fn proxy_target(seed: &str, network: Network) -> Target {
    Target::Name(seed.trim_end_matches('.').to_owned(), default_port(network))
}

/// Asks a DNS seed for addresses. This waits for the operating system's resolver, so that it belongs into a
/// thread of its own, and must not be called behind a proxy.
///
/// # Errors
/// If the name cannot be resolved.
pub fn resolve(seed: &str, network: Network) -> io::Result<Vec<AddressRecord>> {
    let found = (query_name(seed).as_str(), default_port(network)).to_socket_addrs()?;
    Ok(found.map(|address| record(PeerAddress::from_socket(address))).take(MAX_PER_SEED).collect())
}

/// Returns addresses of nodes in `kind` that were listening when the program was written (`seeds/*.txt`),
/// in random order. Anyone may have such an address by now.
pub fn fixed_seeds(network: Network, kind: NetworkKind) -> Vec<AddressRecord> {
    let text = match network {
        Network::Main => include_str!("../seeds/main.txt"),
        Network::Test => include_str!("../seeds/test.txt"),
        Network::Testnet4 => include_str!("../seeds/testnet4.txt"),
        Network::Signet => include_str!("../seeds/signet.txt"),
        Network::Regtest => "",
    };
    let addresses = text.lines().filter_map(|line| line.parse::<PeerAddress>().ok());
    let mut records: Vec<_> =
        addresses.filter(|address| address.host.network() == kind).map(record).collect();
    records.sort_by_cached_key(|_| random::bytes::<8>());
    records
}

/// A seed's address. Its node is assumed to have version 2 of the transport (Core
/// `SeedsAssumedServiceFlags`).
fn record(address: PeerAddress) -> AddressRecord {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = now.as_secs().saturating_sub(ASSUMED_AGE) as u32;
    AddressRecord { time, services: Services::FULL.with(Services::P2P_V2), address }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_are_asked_for_full_nodes_and_by_name_behind_a_proxy() {
        assert_eq!(query_name("dnsseed.emzy.de."), "x9.dnsseed.emzy.de.");
        let target = proxy_target("dnsseed.emzy.de.", Network::Signet);
        assert_eq!(target, Target::Name("dnsseed.emzy.de".to_owned(), 38333));
    }

    #[test]
    fn fixed_seeds_are_addresses_that_can_be_dialled() {
        let lists = ["main", "test", "testnet4", "signet", "regtest"];
        for (network, name) in Network::ALL.into_iter().zip(lists) {
            let list = std::fs::read_to_string(format!("seeds/{name}.txt")).unwrap_or_default();
            let seeds = NetworkKind::ALL.map(|kind| fixed_seeds(network, kind)).concat();
            assert!(seeds.iter().all(|seed| seed.address.host.is_routable()), "{network}");
            let texts: BTreeSet<_> = seeds.iter().map(|seed| seed.address.to_string()).collect();
            assert_eq!(texts, list.lines().map(str::to_owned).collect(), "{network}");
            assert_eq!(texts.is_empty(), network == Network::Regtest);
        }
        let orders = [(); 2].map(|()| fixed_seeds(Network::Main, NetworkKind::Ipv4));
        assert_ne!(orders[0], orders[1], "each run tries others first");
    }
}
