//! Datadirs that Bitcoin Core wrote, from the shared test data.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail them")]

use peregrine_disk::datadir::{Datadir, Location};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use vfs::RealDisk;
use wire::Network;

/// Name and network of each datadir.
pub const NETWORKS: [(&str, Network); 4] = [
    ("main", Network::Main),
    ("testnet3", Network::Test),
    ("signet", Network::Signet),
    ("regtest", Network::Regtest),
];

/// An unpacked datadir, removed when dropped: 18 to 33 MB.
pub struct Sample {
    /// The datadir.
    pub datadir: Datadir,
    /// The first line of the results of Core's `gettxoutsetinfo` for it.
    pub known: serde_json::Value,
    _root: TempDir,
}

impl Sample {
    /// Unpacks a datadir. If the data is absent, prints that and returns `None`.
    pub fn unpack(name: &str, network: Network) -> Option<Self> {
        let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into();
        let data = std::env::var_os("PEREGRINE_DATA").map_or_else(default, PathBuf::from);
        let dir = data.join("core-datadirs");
        if !dir.is_dir() {
            println!("skipped: no real datadirs at {} (set PEREGRINE_DATA)", dir.display());
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        let packed = fs::File::open(dir.join(format!("{name}.tar.xz"))).unwrap();
        tar::Archive::new(liblzma::read::XzDecoder::new(packed)).unpack(root.path()).unwrap();
        let known = fs::read_to_string(dir.join(format!("{name}.known.jsonl"))).unwrap();
        let known = serde_json::from_str(known.lines().next().unwrap()).unwrap();
        Some(Self {
            datadir: Datadir::open(&RealDisk, &Location::new(root.path(), network)).unwrap(),
            known,
            _root: root,
        })
    }
}
