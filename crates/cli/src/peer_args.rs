//! Which peers a command uses, and how.

use crate::{core_args::Located, peers};
use clap::{Args as ClapArgs, ValueEnum};
use engine::{Error, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs as _};
use sync::{Host, NetworkKind, PeerAddress, PeerOptions, Target, default_port};

/// Connections behind a proxy: with Tor, each is a circuit.
pub const PEERS_BEHIND_PROXY: usize = 16;
/// Connections without a proxy; Core's peers stay well served below this.
pub const PEERS: usize = 64;

/// Options of all commands that download from peers.
#[derive(ClapArgs, Debug)]
pub struct PeerArgs {
    /// Download from this peer only; can be given repeatedly
    #[arg(long, value_name = "HOST[:PORT]")]
    pub connect: Vec<String>,

    /// Download from this peer too; can be given repeatedly
    #[arg(long, value_name = "HOST[:PORT]")]
    pub addnode: Vec<String>,

    /// Maximum number of connections [default: 64, behind a proxy 16]
    #[arg(long, value_name = "N", value_parser = number_of_peers)]
    pub peers: Option<usize>,

    /// Receive at most this many bytes in a second: 500k, 2M, ...
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub max_download_rate: Option<u64>,

    /// Connect through this SOCKS5 proxy, which resolves all names
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub proxy: Option<SocketAddr>,

    /// Connect to I2P addresses through the I2P router whose SAM 3.1 listens here, mostly 127.0.0.1:7656
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub i2psam: Option<SocketAddr>,

    /// Use only addresses of this network; can be given repeatedly [default: ipv4 and ipv6; behind a proxy
    /// onion too, with --i2psam i2p too]
    #[arg(long, value_enum, value_name = "NETWORK")]
    pub onlynet: Vec<Net>,

    /// Whether DNS seeds are asked for peers
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub dnsseed: u8,

    /// Whether addresses in the program are used if no others are found
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub fixedseeds: u8,

    /// Whether the encrypted transport (BIP 324) is tried first
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub v2transport: u8,
}

/// A network of addresses, as for bitcoind -onlynet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Net {
    Ipv4,
    Ipv6,
    Onion,
    I2p,
    Cjdns,
}

impl Net {
    const fn kind(self) -> NetworkKind {
        match self {
            Self::Ipv4 => NetworkKind::Ipv4,
            Self::Ipv6 => NetworkKind::Ipv6,
            Self::Onion => NetworkKind::Onion,
            Self::I2p => NetworkKind::I2p,
            Self::Cjdns => NetworkKind::Cjdns,
        }
    }
}

/// Parses a number of connections.
fn number_of_peers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=128) => Ok(number),
        _ => Err("must be a number from 1 to 128".to_owned()),
    }
}

/// Parses a number of bytes in a second.
fn rate(text: &str) -> Result<u64, String> {
    match parse_size::parse_size(text) {
        Ok(rate @ 1..) => Ok(rate),
        _ => Err("not a number of bytes in a second; examples: 500k, 2M".to_owned()),
    }
}

/// Parses an address or a name, with or without a port. Without a proxy, a name is resolved at once.
fn targets(text: &str, port: u16, has_proxy: bool) -> Result<Vec<Target>, Error> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![Target::Address(PeerAddress::from_socket(address))]);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(host) = bare.parse::<Host>() {
        // SAM 3.1 has no ports.
        let port = if host.network() == NetworkKind::I2p { 0 } else { port };
        return Ok(vec![Target::Address(PeerAddress { host, port })]);
    }
    let usage = |why: String| Error::new(ErrorKind::Usage, format!("{text}: {why}"));
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => {
            let port = port.parse().map_err(|_| usage("the port is not a number up to 65535".to_owned()))?;
            (name, port)
        }
        None => (text, port),
    };
    if let Ok(host) = name.parse::<Host>() {
        return Ok(vec![Target::Address(PeerAddress { host, port })]);
    }
    if [".i2p", ".onion"].iter().any(|suffix| name.to_ascii_lowercase().ends_with(suffix)) {
        // A name server must not see such a name.
        return Err(usage(
            "this is not an address of the form ...b32.i2p or ...onion (version 3)".to_owned(),
        ));
    }
    if has_proxy {
        return Ok(vec![Target::Name(name.to_owned(), port)]);
    }
    let found = (name, port).to_socket_addrs();
    let found = found.map_err(|error| usage(format!("the name cannot be resolved: {error}")))?;
    Ok(found.take(1).map(|address| Target::Address(PeerAddress::from_socket(address))).collect())
}

/// Whether connections to such addresses need no proxy and no router.
pub fn is_direct(network: &NetworkKind) -> bool {
    matches!(network, NetworkKind::Ipv4 | NetworkKind::Ipv6)
}

impl PeerArgs {
    /// Returns the engine's options.
    pub fn options(&self, located: &Located) -> Result<PeerOptions, Error> {
        let port = default_port(located.network());
        let named = |list: &[String]| -> Result<Vec<Target>, Error> {
            let targets = list.iter().map(|text| targets(text, port, self.proxy.is_some()));
            Ok(targets.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let mut networks: Vec<_> = self.onlynet.iter().map(|net| net.kind()).collect();
        if networks.is_empty() {
            networks.extend([NetworkKind::Ipv4, NetworkKind::Ipv6]);
            networks.extend(self.proxy.map(|_| NetworkKind::Onion));
            networks.extend(self.i2psam.map(|_| NetworkKind::I2p));
        } else if networks.contains(&NetworkKind::I2p) && self.i2psam.is_none() {
            return Err(Error::new(ErrorKind::Usage, "--onlynet i2p needs --i2psam"));
        }
        let peers_max = if self.proxy.is_some() { PEERS_BEHIND_PROXY } else { PEERS };
        Ok(PeerOptions {
            connect: named(&self.connect)?,
            add: named(&self.addnode)?,
            known: peers::load(located),
            peers_max: self.peers.unwrap_or(peers_max),
            bytes_per_second: self.max_download_rate,
            proxy: self.proxy,
            i2p_sam: self.i2psam,
            // Seeds know no other addresses (Core does the same).
            use_dns_seeds: self.dnsseed == 1 && (self.proxy.is_some() || networks.iter().any(is_direct)),
            use_fixed_seeds: self.fixedseeds == 1,
            networks,
            use_v2: self.v2transport == 1,
        })
    }
}
