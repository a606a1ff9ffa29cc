//! The command `peregrine sync`: its options and its report.

use crate::{
    args::{DatadirArgs, OnHintFailure, ResumeArgs, RunArgs},
    limits, paths, peers,
    progress::{Progress, transport_name},
    report::{self, ReindexJson},
};
use clap::{Args as ClapArgs, ValueEnum};
use engine::{
    AggregateKind, DownloadReport, Error, ErrorKind, Event, EventSink as _, Height, HintOptions, Host,
    NetworkKind, PeerAddress, PeerEvent, PeerOptions, PeerStatus, RealDisk, SyncOptions, SyncReport, Target,
    default_port,
};
use peregrine::{
    exit::Exit,
    output::{Done, json},
    remedy::warning_text,
    stop::interrupt,
};
use serde::Serialize;
use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
};

/// Connections behind a proxy: with Tor, each is a circuit.
const PEERS_BEHIND_PROXY: usize = 16;
/// Connections without a proxy; Core's peers stay well served below this.
const PEERS: usize = 64;

#[derive(ClapArgs, Debug)]
pub struct SyncArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

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

    /// Use only addresses of this network; can be given repeatedly [default: ipv4 and ipv6; behind a proxy
    /// onion too]
    #[arg(long, value_enum, value_name = "NETWORK")]
    pub onlynet: Vec<Net>,

    /// Whether DNS seeds are asked for peers
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub dnsseed: u8,

    /// Whether the encrypted transport (BIP 324) is tried first
    #[arg(long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub v2transport: u8,

    /// Download only the blocks; bitcoind, or another run, does the rest
    #[arg(long)]
    pub blocks_only: bool,

    /// Stop at this height
    #[arg(long, value_name = "N")]
    pub stop_at_height: Option<u32>,

    /// Use SwiftSync hints: less work and less memory; spend rules up to their last block rest on
    /// --assumevalid
    #[arg(long, value_name = "FILE")]
    pub hints: Option<PathBuf>,

    /// With --hints: what to do if the hints turn out to be wrong
    #[arg(long, value_enum, default_value_t = OnHintFailure::Stop, requires = "hints")]
    pub on_hint_failure: OnHintFailure,

    #[command(flatten)]
    pub resume: ResumeArgs,

    #[command(flatten)]
    pub run: RunArgs,
}

/// A network of addresses, as for bitcoind -onlynet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Net {
    Ipv4,
    Ipv6,
    Onion,
    Cjdns,
}

impl Net {
    const fn kind(self) -> NetworkKind {
        match self {
            Self::Ipv4 => NetworkKind::Ipv4,
            Self::Ipv6 => NetworkKind::Ipv6,
            Self::Onion => NetworkKind::Onion,
            Self::Cjdns => NetworkKind::Cjdns,
        }
    }
}

/// Parses a number of connections.
fn number_of_peers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=128) => Ok(number),
        _ => Err("give a number from 1 to 128".to_owned()),
    }
}

/// Parses a number of bytes in a second.
fn rate(text: &str) -> Result<u64, String> {
    match parse_size::parse_size(text) {
        Ok(rate @ 1..) => Ok(rate),
        _ => Err("give a number of bytes, such as 500k or 2M".to_owned()),
    }
}

/// Parses an address or a name, with or without a port. Without a proxy, a name is resolved at once.
fn targets(text: &str, port: u16, has_proxy: bool) -> Result<Vec<Target>, Error> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![Target::Address(PeerAddress::from_socket(address))]);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(host) = bare.parse::<Host>() {
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
    if has_proxy {
        return Ok(vec![Target::Name(name.to_owned(), port)]);
    }
    let found = (name, port).to_socket_addrs();
    let found = found.map_err(|error| usage(format!("the name cannot be resolved: {error}")))?;
    Ok(found.take(1).map(|address| Target::Address(PeerAddress::from_socket(address))).collect())
}

impl SyncArgs {
    /// Returns the engine's options.
    fn options(&self) -> Result<SyncOptions, Error> {
        let port = default_port(self.datadir.chain);
        let named = |list: &[String]| -> Result<Vec<Target>, Error> {
            let targets = list.iter().map(|text| targets(text, port, self.proxy.is_some()));
            Ok(targets.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let mut networks: Vec<_> = self.onlynet.iter().map(|net| net.kind()).collect();
        if networks.is_empty() {
            networks.extend([NetworkKind::Ipv4, NetworkKind::Ipv6]);
            networks.extend(self.proxy.map(|_| NetworkKind::Onion));
        }
        let peers_max = if self.proxy.is_some() { PEERS_BEHIND_PROXY } else { PEERS };
        Ok(SyncOptions {
            chain: self.datadir.chain_options(&self.run),
            resume: self.resume.options(),
            stop_at_height: self.stop_at_height.map(Height),
            hints: self.hints.clone().map(|file| HintOptions {
                file,
                format: None,
                aggregate: AggregateKind::Sha256,
                without_undo: true,
                on_failure_join: self.on_hint_failure == OnHintFailure::Join,
            }),
            blocks_only: self.blocks_only,
            peers: PeerOptions {
                connect: named(&self.connect)?,
                add: named(&self.addnode)?,
                known: peers::load(&self.datadir.datadir, self.datadir.chain),
                peers_max: self.peers.unwrap_or(peers_max),
                bytes_per_second: self.max_download_rate,
                proxy: self.proxy,
                networks,
                use_dns_seeds: self.dnsseed == 1,
                use_v2: self.v2transport == 1,
            },
        })
    }
}

/// Runs the command.
pub fn run(args: &SyncArgs) -> Done {
    let options = args.options()?;
    paths::check_work_dir(&args.datadir, args.run.work_dir.as_deref())?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.run.progress);
    let DatadirArgs { datadir, chain, .. } = &args.datadir;
    let sink = |event: Event| match event {
        Event::Peer(PeerEvent::Known(known)) => peers::save(datadir, *chain, &known),
        event => progress.event(event),
    };
    let report = engine::sync(&RealDisk, &options, &sink, &interrupt);
    progress.close();
    let report = report?;
    Ok((if args.datadir.json { sync_json(&report) } else { sync_text(&report) }, Exit::Done))
}

/// A peer that has sent blocks.
#[derive(Serialize)]
struct SenderJson {
    peer: String,
    user_agent: String,
    transport: &'static str,
    round_trip_ms: u64,
    blocks: u32,
    bytes: u64,
}

impl SenderJson {
    fn new(status: &PeerStatus) -> Self {
        Self {
            peer: status.peer.clone(),
            user_agent: status.user_agent.clone(),
            transport: transport_name(status.transport),
            round_trip_ms: status.round_trip.as_millis() as u64,
            blocks: status.blocks,
            bytes: status.bytes,
        }
    }
}

#[derive(Serialize)]
struct SyncJson {
    chain: &'static str,
    height: u32,
    hash: String,
    headers: u32,
    chainstate_height: Option<u32>,
    blocks_downloaded: u32,
    blocks_found: u32,
    bytes_downloaded: u64,
    bytes_downloaded_twice: u64,
    peers: u32,
    senders: Vec<SenderJson>,
    download_seconds: f64,
    rebuild: Option<ReindexJson>,
    notes: Vec<String>,
}

fn sync_json(report: &SyncReport) -> String {
    let DownloadReport { blocks, bytes, duplicate_bytes, found, peers, elapsed } = report.download;
    json(&SyncJson {
        chain: report.network.name(),
        height: report.height.0,
        hash: report.hash.to_string(),
        headers: report.header_height.0,
        chainstate_height: report.chainstate_height.map(|height| height.0),
        blocks_downloaded: blocks,
        blocks_found: found,
        bytes_downloaded: bytes,
        bytes_downloaded_twice: duplicate_bytes,
        peers,
        senders: report.peers.iter().map(SenderJson::new).collect(),
        download_seconds: elapsed.as_secs_f64(),
        rebuild: report.rebuild.as_ref().map(ReindexJson::new),
        notes: report.notes.iter().map(warning_text).collect(),
    })
}

fn sync_text(report: &SyncReport) -> String {
    let DownloadReport { blocks, bytes, duplicate_bytes, found, peers, elapsed } = report.download;
    let seconds = elapsed.as_secs_f64();
    let speed = bytes as f64 / 1e6 / seconds.max(1e-3);
    let mut text = format!(
        "downloaded         {blocks} blocks, {bytes} bytes from {peers} peers in {seconds:.1} s ({speed:.0} \
         MB/s)"
    );
    if duplicate_bytes > 0 {
        text += &format!("\n                   {duplicate_bytes} bytes came twice");
    }
    if found > 0 {
        text +=
            &format!("\n                   {found} blocks were stored already by an interrupted download");
    }
    text += &format!("\nblocks             up to {} ({})", report.hash, report.height);
    if report.header_height > report.height {
        text += &format!("; headers up to height {}", report.header_height);
    }
    if let Some(best) = report.chainstate_height.filter(|best| *best < report.height) {
        let left = report.height.0 - best.0;
        text +=
            &format!("\nchainstate         at height {best}; bitcoind connects the {left} blocks above it");
    }
    match &report.rebuild {
        Some(rebuild) => text += &format!("\n\n{}", report::reindex_text(rebuild)),
        None => text += &report::notes_text(&report.notes),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn options(more: &str) -> Result<SyncOptions, String> {
        let line = format!("peregrine sync --datadir d --chain regtest {more}");
        let args = Args::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        let Command::Sync(args) = args.command else { panic!("sync") };
        args.options().map_err(|error| error.to_string())
    }

    fn connect(more: &str) -> Vec<String> {
        options(more).unwrap().peers.connect.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn peers_are_named_with_and_without_ports() {
        assert_eq!(connect("--connect 1.2.3.4 --connect 1.2.3.4:5"), ["1.2.3.4:18444", "1.2.3.4:5"]);
        assert_eq!(connect("--connect ::1 --connect [::1]:7"), ["[::1]:18444", "[::1]:7"]);
        assert_eq!(connect("--connect node.example --proxy 127.0.0.1:9050"), ["node.example:18444"]);
        // No name server is asked for a name that none can have.
        let name = "x".repeat(64);
        let error = options(&format!("--connect {name}")).unwrap_err();
        assert!(error.starts_with(&format!("{name}: the name cannot be resolved")), "{error}");
        let error = options("--connect 1.2.3.4:99999").unwrap_err();
        assert!(error.contains("the port is not a number up to 65535"), "{error}");
    }

    #[test]
    fn a_proxy_means_fewer_peers_and_onion_addresses() {
        let plain = options("--hints h --dnsseed 0 --stop-at-height 9").unwrap();
        assert_eq!((plain.peers.peers_max, plain.peers.use_dns_seeds), (PEERS, false));
        assert_eq!(plain.peers.networks, [NetworkKind::Ipv4, NetworkKind::Ipv6]);
        assert!(plain.hints.is_some_and(|hints| hints.without_undo));
        assert_eq!(plain.stop_at_height, Some(Height(9)));
        let proxied = options("--proxy 127.0.0.1:9050").unwrap();
        assert_eq!(proxied.peers.peers_max, PEERS_BEHIND_PROXY);
        assert!(proxied.peers.networks.contains(&NetworkKind::Onion));
        assert_eq!(options("--onlynet onion").unwrap().peers.networks, [NetworkKind::Onion]);
        assert!(options("--peers 0").is_err() && options("--dnsseed 2").is_err());
        assert_eq!(options("--max-download-rate 500k").unwrap().peers.bytes_per_second, Some(500_000));
        assert!(options("--max-download-rate 0").is_err());
    }
}
