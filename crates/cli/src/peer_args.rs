//! Which peers a command uses, and how.

use crate::{node_settings, peers, prelude::*};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::Remedy;
use peregrine::output::print_note;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use sync::{Host, NetworkKind, PeerAddress, PeerOptions, Target, default_port};

/// Connections behind a proxy: with Tor, each is a circuit.
pub const PEERS_BEHIND_PROXY: usize = 16;
/// Port of a proxy, as for bitcoind -proxy.
const PROXY_PORT: u16 = 9_050;
/// Connections without a proxy; Core's peers stay well served below this.
pub const PEERS: usize = 64;

/// Options of all commands that download from peers.
#[derive(Args, Clone, Debug)]
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

    /// Connect through this SOCKS5 proxy, which resolves all names [default port: 9050]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = proxy_address)]
    pub proxy: Option<SocketAddr>,

    /// Connect to I2P addresses through the I2P router whose SAM 3.1 listens here, mostly 127.0.0.1:7656
    #[arg(long, value_name = "ADDRESS:PORT", hide_short_help = true)]
    pub i2psam: Option<SocketAddr>,

    /// Use only addresses of this network; can be given repeatedly [default: ipv4 and ipv6; behind a proxy
    /// onion too, with --i2psam i2p too]
    #[arg(long, value_name = "NETWORK", value_parser = network())]
    pub onlynet: Vec<NetworkKind>,

    /// Whether DNS seeds are asked for peers
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    #[arg(hide_short_help = true)]
    pub dnsseed: u8,

    /// Whether addresses in the program are used if no others are found
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    #[arg(hide_short_help = true)]
    pub fixedseeds: u8,

    /// Whether the encrypted transport (BIP 324) is tried first
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    #[arg(hide_short_help = true)]
    pub v2transport: u8,

    /// Wait for ever for a peer that has what is missing; otherwise end after a minute without progress, or
    /// after five minutes while peers are looked for
    #[arg(long)]
    pub wait: bool,
}

/// Parses the name of a network of addresses, as for bitcoind -onlynet.
fn network() -> impl TypedValueParser<Value = NetworkKind> {
    let names = PossibleValuesParser::new(NetworkKind::ALL.map(NetworkKind::name));
    names.try_map(|name| NetworkKind::named(&name).ok_or("there is no such network"))
}

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

/// Parses the address of a SOCKS5 proxy.
pub fn proxy_address(text: &str) -> Result<SocketAddr, String> {
    let with_port = |ip| SocketAddr::new(ip, PROXY_PORT);
    let why = "give the IP address and port of a SOCKS5 proxy, such as 127.0.0.1:9050; names, URLs, socket \
               files (unix:) and a proxy for one network (=onion) are not supported";
    text.parse().or_else(|_| text.parse().map(with_port)).map_err(|_| why.to_owned())
}

/// Whether a name server can be asked for a name: parts of 1 to 63 letters, digits, `-` and `_`.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_part = |part: &str| (1..=63).contains(&part.len()) && part.bytes().all(is_allowed);
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_part)
}

/// Whether this machine has an address in the CJDNS network. Nothing is sent to find that out.
fn has_cjdns() -> bool {
    let any = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1);
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    let source = socket.and_then(|socket| socket.connect((any, 1)).and_then(|()| socket.local_addr()));
    source.is_ok_and(|source| matches!(source.ip(), IpAddr::V6(ip) if ip.octets()[0] == 0xfc))
}

/// Parses an address or a name, with or without a port.
fn target(text: &str, port: u16) -> Result<Target, Error> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Target::Address(PeerAddress::from_socket(address)));
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(host) = bare.parse::<Host>() {
        // SAM 3.1 has no ports.
        let port = if host.network() == NetworkKind::I2p { 0 } else { port };
        return Ok(Target::Address(PeerAddress { host, port }));
    }
    let usage = |why: &str| Error::usage(format!("{text}: {why}"));
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => {
            let port =
                node_settings::port(port).ok_or_else(|| usage("the port is not a number up to 65535"))?;
            (name, port)
        }
        None => (text, port),
    };
    if let Ok(host) = name.parse::<Host>() {
        return Ok(Target::Address(PeerAddress { host, port }));
    }
    if [".i2p", ".onion"].iter().any(|suffix| name.to_ascii_lowercase().ends_with(suffix)) {
        // A name server must not see such a name.
        return Err(usage("this is not an address of the form ...b32.i2p or ...onion (version 3)"));
    }
    if !is_name(name) {
        return Err(usage("this is neither an address nor a name"));
    }
    Ok(Target::Name(name.to_owned(), port))
}

/// Whether connections to such addresses need no proxy and no router.
pub fn is_direct(network: &NetworkKind) -> bool {
    matches!(network, NetworkKind::Ipv4 | NetworkKind::Ipv6)
}

impl PeerArgs {
    /// What is missing to reach addresses of a network.
    fn needs(&self, network: NetworkKind) -> Option<&'static str> {
        match network {
            NetworkKind::Onion if self.proxy.is_none() => {
                Some("--proxy with the address of Tor's SOCKS5 proxy")
            }
            // Other proxies than Tor's reach it too.
            NetworkKind::I2p if self.i2psam.is_none() => Some("--i2psam with the address of an I2P router"),
            NetworkKind::Cjdns if self.proxy.is_none() && !has_cjdns() => {
                Some("an interface of this machine in CJDNS, with an address in fc00::/8, or --proxy")
            }
            _ => None,
        }
    }

    /// Refuses a peer that cannot be reached with these options.
    fn check_route(&self, target: Target, text: &str) -> Result<Target, Error> {
        let network = match target {
            Target::Address(PeerAddress { host, .. }) => host.network(),
            Target::Name(..) => return Ok(target),
        };
        let needs = self.needs(network).filter(|_| network != NetworkKind::I2p || self.proxy.is_none());
        needs.map_or(Ok(target), |what| Err(Error::usage(format!("{text} needs {what}"))))
    }

    /// Returns these options. If they do not say how to connect, and the node does not connect directly to
    /// arbitrary peers, they are completed with the node's settings.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if it cannot.
    pub fn like_node(&self, located: &Located) -> Result<Self, Error> {
        let says_how = self.proxy.is_some() || !(self.onlynet.is_empty() && self.connect.is_empty());
        let mut args = self.clone();
        if says_how {
            return Ok(args);
        }
        let Some(node) = located.connections()? else { return Ok(args) };
        let failed = |why: &str| {
            let what = "with it bitcoind connects to no peer directly, and this command cannot do the same";
            let detail = format!("{}: {what} ({why})", node.because);
            Error::usage(detail).with_remedies([Remedy::SayHowToConnect])
        };
        let proxy = node.proxy.as_deref().map(proxy_address).transpose();
        args.proxy = proxy.map_err(|why| failed(&why))?;
        let i2psam = node.i2psam.as_deref().map(str::parse).transpose();
        args.i2psam = self.i2psam.or(i2psam.map_err(|_| failed("i2psam is not an IP address and a port"))?);
        let named = |name: &String| NetworkKind::named(&name.to_lowercase());
        let onlynet = node.onlynet.iter().map(named).collect::<Option<_>>();
        args.onlynet = onlynet.ok_or_else(|| failed("onlynet is no network"))?;
        args.connect.clone_from(&node.connect);
        if node.are_off {
            return Err(failed("it connects to no peer by itself"));
        }
        print_note(&format!("{}: this command connects to peers as bitcoind does", node.because));
        Ok(args)
    }

    pub fn options(&self, located: &Located) -> Result<PeerOptions, Error> {
        let port = default_port(located.network());
        let named = |list: &[String]| -> Result<Vec<Target>, Error> {
            list.iter()
                .map(|text| target(text, port).and_then(|target| self.check_route(target, text)))
                .collect()
        };
        let mut networks = self.onlynet.clone();
        if networks.is_empty() {
            networks.extend([NetworkKind::Ipv4, NetworkKind::Ipv6]);
            networks.extend(self.proxy.map(|_| NetworkKind::Onion));
            networks.extend(self.i2psam.map(|_| NetworkKind::I2p));
        }
        let lacks = self.onlynet.iter().find_map(|network| Some((network, self.needs(*network)?)));
        if let Some((network, what)) = lacks {
            return Err(Error::usage(format!("--onlynet {network} needs {what}")));
        }
        let peers_max = if self.proxy.is_some() { PEERS_BEHIND_PROXY } else { PEERS };
        Ok(PeerOptions {
            connect: named(&self.connect)?,
            add: named(&self.addnode)?,
            known: peers::load(&located.datadir()),
            peers_max: self.peers.unwrap_or(peers_max),
            bytes_per_second: self.max_download_rate,
            proxy: self.proxy,
            i2p_sam: self.i2psam,
            // Seeds know no other addresses, and are not in other networks (Core does the same).
            use_dns_seeds: self.dnsseed == 1 && networks.iter().any(is_direct),
            use_fixed_seeds: self.fixedseeds == 1,
            networks,
            use_v2: self.v2transport == 1,
            wait: self.wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_args::CoreArgs;
    use clap::Parser;
    use std::fs;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        peers: PeerArgs,
    }

    /// It was dialled.
    #[test]
    fn a_port_with_a_plus_is_refused() {
        for (text, is_taken) in [("localhost:8333", true), ("localhost:+8333", false), ("1.2.3.4:+1", false)]
        {
            assert_eq!(target(text, 1).is_ok(), is_taken, "{text}");
        }
    }

    /// A service names the file with `-conf`: it was not found, and peers were dialled without its proxy;
    /// again with `-logtimestamps=0`, and if only the command line had a proxy.
    #[test]
    fn the_file_that_the_last_start_has_read_says_how_to_connect() {
        let dir = tempfile::tempdir().unwrap();
        let [datadir, conf] = ["d", "service.conf"].map(|name| dir.path().join(name));
        fs::create_dir(&datadir).unwrap();
        let log = |dir: &Path, conf: &Path| {
            let text = format!(
                "Bitcoin Core version v31.0.0\nUsing data directory {}\nConfig file: {}\n",
                dir.display(),
                conf.display()
            );
            fs::write(datadir.join("debug.log"), text).unwrap();
        };
        log(&datadir, &conf);
        let named = CoreArgs { datadir: Some(datadir.clone()), ..CoreArgs::default() };
        let proxy = |core: &CoreArgs| {
            let line = Line::parse_from(["peregrine"]);
            line.peers.like_node(&core.locate().unwrap()).map(|args| args.proxy)
        };
        let error = proxy(&named).unwrap_err();
        assert!(error.file == Some(conf.clone()) && error.to_string().contains("--noconf"), "{error}");
        assert_eq!(error.remedies, [Remedy::SayHowToConnect], "these options are believed too");
        assert_eq!(proxy(&CoreArgs { noconf: true, ..named.clone() }).unwrap(), None);
        fs::write(&conf, "proxy=127.0.0.1\n").unwrap();
        assert_eq!(proxy(&named).unwrap(), Some(proxy_address("127.0.0.1:9050").unwrap()));
        let flags = named.locate().unwrap().flags();
        assert_eq!(flags[2..], ["--conf".to_owned(), conf.display().to_string()]);
        // In a copy of a datadir, the log is that of the other node.
        log(dir.path(), &conf);
        assert!(proxy(&named).unwrap_err().to_string().contains("another node's"));
        // The datadir's own file was removed.
        log(&datadir, &datadir.join("bitcoin.conf"));
        assert_eq!(proxy(&named).unwrap(), None);
        fs::write(datadir.join("bitcoin.conf"), "proxy=127.0.0.1:1\n").unwrap();
        for (option, port) in [("", Some(1)), ("proxy=\"127.0.0.1:2\"", Some(2)), ("proxy=false", None)] {
            let text = format!("Bitcoin Core version v31.0.0\n2026 Command-line arg: {option}\n");
            fs::write(datadir.join("debug.log"), text).unwrap();
            assert_eq!(proxy(&named).unwrap().map(|address| address.port()), port, "{option}");
        }
        // It has been here, and nothing tells how it connected.
        fs::remove_file(datadir.join("bitcoin.conf")).unwrap();
        for name in ["debug.log", "peers.dat"] {
            fs::write(datadir.join(name), "").unwrap();
        }
        assert_eq!(proxy(&named).unwrap_err().file, Some(datadir.join("debug.log")));
    }
}
