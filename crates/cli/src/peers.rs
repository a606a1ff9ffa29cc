//! The addresses of peers, which `sync` keeps in the datadir, and the command `peregrine peers`, which shows
//! them.

use crate::{core_args::CoreJsonArgs, rows::Rows};
use engine::{AtomicFile, Datadir, Disk as _, Error, RealDisk};
use peregrine::{
    exit::Exit,
    output::{self, Done, reply},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use sync::{Host, KnownPeer, PeerAddress, Services};

/// Name of the file, in the folder of the network.
const FILE: &str = "peregrine-peers.json";
/// Version of its format.
const VERSION: u32 = 1;
/// Longest file that is read, in bytes; 20,000 addresses take a fifth of it.
const MAX_LEN: u64 = 16 << 20;
/// Number of addresses that are shown as text.
const SHOWN: usize = 40;

#[derive(Serialize, Deserialize)]
struct PeersFile {
    version: u32,
    peers: Vec<Peer>,
}

/// The addresses as JSON.
#[derive(Serialize, JsonSchema)]
pub struct PeersJson {
    chain: &'static str,
    peers: Vec<Peer>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Peer {
    host: String,
    port: u16,
    services: u64,
    /// Whether version 2 of the transport can be tried.
    v2: bool,
    bytes_per_second: Option<f64>,
    failures: u32,
}

fn path(datadir: &Datadir) -> PathBuf {
    datadir.net_dir().join(FILE)
}

/// Reads the addresses that an earlier run has saved; none if there is no such file, or if it is damaged:
/// then peers are found again.
pub fn load(datadir: &Datadir) -> Vec<KnownPeer> {
    let Some(PeersFile { peers, .. }) = read(&path(datadir)) else { return Vec::new() };
    let known = peers.into_iter().filter_map(|peer| {
        let host: Host = peer.host.parse().ok()?;
        Some(KnownPeer {
            address: PeerAddress { host, port: peer.port },
            services: Services(peer.services),
            bytes_per_second: peer.bytes_per_second,
            // Otherwise, one connection that was cut off would end encryption with this peer for good.
            needs_v1: false,
            failures: peer.failures,
        })
    });
    known.collect()
}

fn read(path: &Path) -> Option<PeersFile> {
    let bytes = RealDisk.read(path, MAX_LEN).ok()?;
    let mut file: PeersFile =
        serde_json::from_slice(&bytes).ok().filter(|file: &PeersFile| file.version == VERSION)?;
    // The file may have come with somebody else's datadir.
    file.peers.retain(|peer| peer.host.parse::<Host>().is_ok());
    Some(file)
}

/// Saves what is known of addresses. Nothing depends on this file, so a failure is not one of the run.
pub fn save(datadir: &Datadir, known: &[KnownPeer]) {
    let peers = known.iter().map(|peer| Peer {
        host: peer.address.host.to_string(),
        port: peer.address.port,
        services: peer.services.0,
        v2: !peer.needs_v1,
        bytes_per_second: peer.bytes_per_second,
        failures: peer.failures,
    });
    let file = PeersFile { version: VERSION, peers: peers.collect() };
    let path = path(datadir);
    if !file.peers.is_empty() {
        let temporary = path.with_extension("json.peregrine");
        let _ = AtomicFile::write(&RealDisk, temporary, &path, output::json(&file).as_bytes());
    }
}

pub fn run(args: &CoreJsonArgs) -> Done {
    let located = args.core.locate()?;
    let path = path(&located.datadir());
    let Some(mut file) = read(&path) else {
        let detail = "no addresses of peers are known here: `peregrine sync` saves those that it has found";
        return Err(Error::usage(detail).in_file(path, None));
    };
    let speed = |peer: &Peer| peer.bytes_per_second.unwrap_or_default();
    file.peers.sort_by(|a, b| speed(b).total_cmp(&speed(a)).then(a.failures.cmp(&b.failures)));
    let report = PeersJson { chain: located.network().name(), peers: file.peers };
    Ok(reply(&report, Exit::Done, rows))
}

fn rows(PeersJson { peers, .. }: &PeersJson) -> Rows {
    let mut rows = Rows::default()
        .line(format!("{} addresses", peers.len()))
        .line(format!("{:<50} network  transport      MB/s  failures", "address"));
    for peer in peers.iter().take(SHOWN) {
        let network = peer.host.parse::<Host>().map_or("", |host| host.network().name());
        let transport = if peer.v2 { "v2 or v1" } else { "v1" };
        let speed =
            peer.bytes_per_second.map_or_else(|| "-".to_owned(), |speed| format!("{:.2}", speed / 1e6));
        let address = format!("{}:{}", peer.host, peer.port);
        let failures = peer.failures;
        rows = rows.line(format!("{address:<50} {network:<7}  {transport:<9} {speed:>9}  {failures:>8}"));
    }
    match peers.len().saturating_sub(SHOWN) {
        0 => rows,
        more => rows.line(format!("... and {more} more; --json has all")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_args::CoreArgs;
    use engine::Network;

    #[test]
    fn saved_addresses_are_loaded() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("signet")).unwrap();
        let core = CoreArgs {
            datadir: Some(dir.path().to_owned()),
            chain: Some(Network::Signet),
            ..CoreArgs::default()
        };
        let located = core.locate().unwrap();
        assert!(load(&located.datadir()).is_empty());
        let peer = |host: &str, speed, needs_v1| KnownPeer {
            address: PeerAddress { host: host.parse().unwrap(), port: 38333 },
            services: Services(9),
            bytes_per_second: speed,
            needs_v1,
            failures: 1,
        };
        let known = [peer("1.2.3.4", Some(2.5e6), false), peer("2a01::7", None, true)];
        save(&located.datadir(), &known);
        assert_eq!(load(&located.datadir()), known.map(|peer| KnownPeer { needs_v1: false, ..peer }));
    }
}
