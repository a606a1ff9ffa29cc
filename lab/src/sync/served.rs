//! The peers: real `bitcoind`s, each on a datadir of its own, and the datadir that all of them start from.

use super::{
    SyncArgs, failed, interrupted,
    namespace::{Namespace, Running},
};
use crate::place::{self, copy_blocks, environment};
use cli::output::print_message;
use engine::{Error, ErrorKind, Network};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::Duration,
};

/// Port on which peers listen.
pub const PORT: u16 = 18_444;
/// How often a peer is asked whether it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(200);
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
        let blocks = Path::new(args.chain.subdirectory().unwrap_or("")).join("blocks");
        copy_blocks(&args.datadir, &blocks, folder)?;
        print_message("bitcoind connects the blocks that will be served");
        let namespace = Namespace::new()?;
        let mut command = node(&namespace, bitcoind, args, folder);
        let log = folder.with_extension("log");
        command.args(["-server=1", "-listen=0", "-connect=0", "-dbcache=1000"]);
        let mut node = start(&mut command, &log)?;
        let client =
            Client { namespace: &namespace, program: bitcoind.with_file_name("bitcoin-cli"), args, folder };
        loop {
            check(&mut node, &log, stop)?;
            thread::sleep(LOOK_EVERY);
            let info = client.ask(&["-rpcwait", "getblockchaininfo"])?;
            if info["blocks"].is_u64() && info["blocks"] == info["headers"] {
                break;
            }
        }
        if args.chain == Network::Regtest {
            client.ask(&["generatetodescriptor", "1", "raw(51)"])?;
        }
        let height = client.ask(&["getblockcount"])?;
        let height =
            height.as_u64().ok_or_else(|| Error::new(ErrorKind::Environment, "no height by bitcoind"))?;
        client.ask(&["stop"])?;
        node.0.wait().map_err(|error| failed("wait for bitcoind", error))?;
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

/// `bitcoin-cli` for a node.
struct Client<'a> {
    namespace: &'a Namespace,
    program: PathBuf,
    args: &'a SyncArgs,
    folder: &'a Path,
}

impl Client<'_> {
    fn ask(&self, words: &[&str]) -> Result<Value, Error> {
        let mut command = self.namespace.command(&self.program);
        command.arg(format!("-chain={}", self.args.chain.name()));
        command.arg(option("-datadir=", self.folder)).args(words).stdin(Stdio::null());
        let output = command.output().map_err(|error| failed("run bitcoin-cli", error))?;
        if !output.status.success() {
            let detail = format!("bitcoin-cli: {}", String::from_utf8_lossy(&output.stderr).trim());
            return Err(Error::new(ErrorKind::Environment, detail));
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    }
}

/// An argument with a path in it.
pub fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(name);
    argument.push(path);
    argument
}

/// `bitcoind` with the arguments that all of its runs as a peer have.
fn node(namespace: &Namespace, bitcoind: &Path, args: &SyncArgs, folder: &Path) -> Command {
    let mut command = namespace.command(bitcoind);
    command.arg(format!("-chain={}", args.chain.name())).arg(option("-datadir=", folder));
    command.arg(format!("-maxtipage={MAX_TIP_AGE}"));
    command.args(["-printtoconsole=1", "-nodebuglogfile", "-dnsseed=0", "-fixedseeds=0", "-listenonion=0"]);
    command.args(["-persistmempool=0", "-checkblocks=1", "-checklevel=0"]);
    command.args(args.assumevalid.iter().map(|hash| format!("-assumevalid={hash}")));
    command
}

/// Starts a node, with its log in a file.
fn start(command: &mut Command, log: &Path) -> Result<Running, Error> {
    let file = || -> io::Result<(File, File)> {
        let file = File::create(log)?;
        Ok((file.try_clone()?, file))
    };
    let (stdout, stderr) = file().map_err(|error| environment("write", log, error))?;
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
    Ok(Running(child.map_err(|error| failed("start bitcoind", error))?))
}

/// Fails if the node has ended, or if the user wants to stop.
fn check(node: &mut Running, log: &Path, stop: &AtomicBool) -> Result<(), Error> {
    interrupted(stop)?;
    if let Some(status) = node.0.try_wait().map_err(|error| failed("wait for bitcoind", error))? {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(12)..].join("\n");
        let detail = format!("bitcoind has ended ({status}); it said:\n{end}");
        return Err(Error::new(ErrorKind::Environment, detail));
    }
    Ok(())
}

/// The nodes that serve; they are ended when this is dropped.
#[derive(Default)]
pub struct Peers(Vec<(Running, PathBuf)>);

impl Peers {
    /// Starts a node that listens on an address.
    pub fn add(
        &mut self,
        args: &SyncArgs,
        served: &Served,
        namespace: &Namespace,
        address: &str,
        folder: &Path,
    ) -> Result<(), Error> {
        served.copy_to(folder).map_err(|error| environment("make a peer's datadir in", folder, error))?;
        let mut command = node(namespace, &served.bitcoind, args, folder);
        command.args(["-server=0", "-listen=1", "-connect=0", "-discover=0", "-natpmp=0"]);
        command.args(["-dbcache=4", "-par=1", "-maxmempool=5", "-blocksonly=1", "-maxconnections=20"]);
        command.arg(format!("-bind={address}:{PORT}"));
        let log = folder.with_extension("log");
        self.0.push((start(&mut command, &log)?, log));
        Ok(())
    }

    /// Waits until all of them serve.
    pub fn wait(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        for (node, log) in &mut self.0 {
            while !fs::read_to_string(&*log).is_ok_and(|text| text.contains("Done loading")) {
                check(node, log, stop)?;
                thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }
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
        let (shared, own) = (
            ["blk00000.dat", "blk00001.dat", "rev00000.dat"],
            ["blk00002.dat", "rev00001.dat", "xor.dat", "index/000005.ldb", "blkindex.dat"],
        );
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
