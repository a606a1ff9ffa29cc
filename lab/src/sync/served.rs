//! The peers: real `bitcoind`s, each on a datadir of its own, and the datadir that all of them start from.

use super::{SyncArgs, tied};
use crate::place::{self, copy_blocks, environment, failed};
use cli::output::print_message;
use engine::{Error, Network};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};
use testkit::node::{Node, Res, free_port};

/// How often a peer is asked whether it is ready, and for how long.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(3600);
/// Largest age of a tip in seconds: a node answers no request for headers while its tip is older.
const MAX_TIP_AGE: &str = "999999999";

/// A datadir whose blocks are all connected. Peers get copies of it.
pub struct Served {
    folder: PathBuf,
    /// The program that has connected them, and serves them.
    bitcoind: PathBuf,
    /// Height of its last block.
    pub height: u64,
}

impl Served {
    /// Copies the blocks and lets `bitcoind` connect them. On regtest it adds a block of now: a node asks
    /// more than one peer for headers only when those that it has are younger than a day.
    pub fn new(args: &SyncArgs, bitcoind: &Path, folder: &Path, stop: &AtomicBool) -> Result<Self, Error> {
        copy_blocks(&args.datadir, args.chain, folder)?;
        print_message("bitcoind connects the blocks that will be served");
        let mut command = node(Command::new(bitcoind), args, folder);
        command.args(["-listen=0", "-connect=0", "-dbcache=1000"]);
        let mut node = Node::run(command, PATIENCE).map_err(unserved)?;
        wait(&mut node, stop, |node| {
            let info = node.call("getblockchaininfo", json!([])).unwrap_or(Value::Null);
            info["blocks"].is_u64() && info["blocks"] == info["headers"]
        })?;
        let connected = || -> Res<u64> {
            if args.chain == Network::Regtest {
                node.call("generatetodescriptor", json!([1, "raw(51)"]))?;
            }
            node.call("getblockcount", json!([]))?.as_u64().ok_or_else(|| "no height".into())
        };
        let height = connected().map_err(unserved)?;
        node.stop().map_err(unserved)?;
        Ok(Self { folder: folder.to_owned(), bitcoind: bitcoind.to_owned(), height })
    }

    /// Makes another datadir of it. Files that a node only reads are hard links.
    fn copy_to(&self, to: &Path) -> io::Result<()> {
        let files = place::files(&self.folder)?;
        let mut last: BTreeMap<&str, &Path> = BTreeMap::new();
        for path in &files {
            // The order of the files is that of their names.
            last.extend(numbered(path).map(|kind| (kind, path.as_path())));
        }
        for path in &files {
            let to = to.join(path.strip_prefix(&self.folder).map_err(io::Error::other)?);
            fs::create_dir_all(to.parent().unwrap_or(Path::new("")))?;
            let is_last = numbered(path).is_some_and(|kind| last.get(kind) == Some(&path.as_path()));
            // Not LevelDB's tables: one that an interrupted compaction left behind is written again.
            if numbered(path).is_some() && !is_last {
                fs::hard_link(path, to)?;
            } else {
                fs::copy(path, to)?;
            }
        }
        Ok(())
    }
}

/// Returns `blk` or `rev` for a file of blocks or undo data.
fn numbered(path: &Path) -> Option<&str> {
    let (name, extension) = (path.file_stem()?.to_str()?, path.extension()?);
    let kind = name.get(..3).filter(|kind| extension == "dat" && ["blk", "rev"].contains(kind))?;
    name.get(3..)?.bytes().all(|byte| byte.is_ascii_digit()).then_some(kind)
}

/// `bitcoind` with the arguments that all of its runs as a peer have.
fn node(mut command: Command, args: &SyncArgs, folder: &Path) -> Command {
    command.arg(format!("-chain={}", args.chain.name())).arg(format!("-datadir={}", folder.display()));
    command.arg(format!("-maxtipage={MAX_TIP_AGE}"));
    command.args(["-nodebuglogfile", "-dnsseed=0", "-fixedseeds=0", "-listenonion=0"]);
    command.args(["-persistmempool=0", "-checkblocks=1", "-checklevel=0"]);
    command.args(args.assumevalid.iter().map(|hash| format!("-assumevalid={hash}")));
    command
}

/// Waits until something is so. Fails if the user wants to stop, or if the node has ended.
fn wait(node: &mut Node, stop: &AtomicBool, is_so: impl Fn(&mut Node) -> bool) -> Result<(), Error> {
    let begun = Instant::now();
    while !is_so(node) {
        Error::check_interrupt(stop)?;
        let log = node.log();
        let has_ended = log.iter().any(|line| line.contains("Error: ") || line.contains("Shutdown"));
        if has_ended || begun.elapsed() > PATIENCE {
            return Err(unserved(log[log.len().saturating_sub(12)..].join("\n")));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn unserved(said: impl std::fmt::Display) -> Error {
    failed(format!("bitcoind does not serve; it said:\n{said}"))
}

/// Starts a node that listens, and returns where. It is ended when it is dropped.
pub fn peer(args: &SyncArgs, served: &Served, folder: &Path) -> Result<(Node, SocketAddr), Error> {
    served.copy_to(folder).map_err(|error| environment("make a peer's datadir in", folder, error))?;
    let mut command = node(tied(&served.bitcoind), args, folder);
    command.args(["-listen=1", "-connect=0", "-discover=0", "-natpmp=0"]);
    command.args(["-dbcache=4", "-par=1", "-maxmempool=5", "-blocksonly=1", "-maxconnections=20"]);
    let port = free_port().map_err(unserved)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    command.arg(format!("-bind={address}"));
    Node::run(command, PATIENCE).map(|node| (node, address)).map_err(unserved)
}

/// Waits until all peers serve.
pub fn wait_for_all(peers: &mut [Node], stop: &AtomicBool) -> Result<(), Error> {
    peers.iter_mut().try_for_each(|peer| {
        wait(peer, stop, |peer| peer.log().iter().any(|line| line.contains("Done loading")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use tempfile::TempDir;

    #[test]
    fn peers_share_only_files_that_no_node_changes() {
        let dir = TempDir::new().unwrap();
        let folder = dir.path().join("base");
        let shared = ["blk00000.dat", "blk00001.dat", "rev00000.dat"];
        let own = ["blk00002.dat", "rev00001.dat", "xor.dat", "index/000005.ldb", "blkindex.dat"];
        fs::create_dir_all(folder.join("blocks/index")).unwrap();
        for name in shared.iter().chain(&own) {
            fs::write(folder.join("blocks").join(name), name).unwrap();
        }
        let served = Served { folder, bitcoind: PathBuf::new(), height: 1 };
        let to = dir.path().join("peer");
        served.copy_to(&to).unwrap();
        let links = |name: &str| fs::metadata(to.join("blocks").join(name)).unwrap().nlink();
        assert_eq!(shared.map(links), [2; 3]);
        assert_eq!(own.map(links), [1; 5]);
    }
}
