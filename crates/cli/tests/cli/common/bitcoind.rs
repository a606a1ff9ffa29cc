//! A real bitcoind, for comparison, where there is one.

use serde_json::Value;
use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time in which a node starts, or connects its blocks.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a bitcoind that has bitcoin-cli beside it: the one that PEREGRINE_BITCOIND names, else that of
/// `make bitcoind`. Without one, the test is skipped.
pub fn program() -> Option<PathBuf> {
    let built = || Path::new(env!("CARGO_BIN_EXE_peregrine")).with_file_name("../bitcoind/bin/bitcoind");
    let program = std::env::var_os("PEREGRINE_BITCOIND").map_or_else(built, PathBuf::from);
    if !program.exists() {
        testkit::data::skip(format!("there is no bitcoind at {}: make bitcoind", program.display()));
    }
    program.exists().then_some(program)
}

/// A port that nobody uses.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A node of regtest that ends with the test.
pub struct Node {
    process: Child,
    client: PathBuf,
    datadir: String,
    port: String,
}

impl Node {
    /// Starts bitcoind without connections, and waits until it answers.
    pub fn start(datadir: &Path, args: &[&str]) -> Option<Self> {
        Some(Self::start_program(&program()?, datadir, args))
    }

    /// Starts this bitcoind, which has bitcoin-cli beside it, without connections, and waits until it
    /// answers.
    pub fn start_program(bitcoind: &Path, datadir: &Path, args: &[&str]) -> Self {
        let datadir = format!("-datadir={}", datadir.display());
        let offline = ["-regtest", &datadir, "-listen=0", "-connect=0"];
        let words: Vec<String> = offline.iter().chain(args).map(|&word| word.to_owned()).collect();
        Self::run(bitcoind, &words).unwrap_or_else(|| panic!("bitcoind does not start"))
    }

    /// Starts bitcoind with these words, of which one names the datadir, and waits until it answers. Returns
    /// `None` if it ends instead.
    pub fn run(bitcoind: &Path, words: &[String]) -> Option<Self> {
        let datadir = words.iter().find(|word| word.starts_with("-datadir=")).unwrap().clone();
        let port = format!("-rpcport={}", free_port());
        let process = Command::new(bitcoind).args(words).arg(&port).stdout(Stdio::null()).spawn().unwrap();
        let mut node = Self { process, client: bitcoind.with_file_name("bitcoin-cli"), datadir, port };
        while node.call(&["getblockcount"]).is_none() {
            if node.process.try_wait().unwrap().is_some() {
                return None;
            }
            thread::sleep(Duration::from_millis(100));
        }
        Some(node)
    }

    /// Where the node answers calls.
    pub fn rpc_address(&self) -> String {
        self.port.replace("-rpcport=", "127.0.0.1:")
    }

    /// Waits until the node has this height.
    pub fn has_height(&self, height: u64) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.call(&["getblockcount"]).and_then(|count| count.as_u64()) == Some(height) {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
        false
    }

    /// Stops the node as a user does, so that it writes what it has in memory.
    pub fn stop(mut self) {
        self.call(&["stop"]);
        self.process.wait().unwrap();
    }

    /// Calls a method; returns `None` if it fails.
    pub fn call(&self, words: &[&str]) -> Option<Value> {
        let place = ["-regtest", &self.datadir, &self.port];
        let output = Command::new(&self.client).args(place).args(words).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}

/// A node of regtest that serves its blocks to others, and ends with the test.
pub struct Server {
    /// bitcoind.
    pub program: PathBuf,
    /// Its address.
    pub address: String,
    process: Child,
}

impl Server {
    /// Starts bitcoind on a datadir, and waits until it accepts connections.
    pub fn start(datadir: &Path) -> Option<Self> {
        Some(Self::start_program(program()?, datadir, &[]))
    }

    /// Starts this bitcoind with more words, and waits until it accepts connections.
    pub fn start_program(program: PathBuf, datadir: &Path, more: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let process = Command::new(&program)
            .args(["-regtest", "-server=0", "-connect=0", "-listen=1", "-whitelist=noban,download@127.0.0.1"])
            .args([format!("-datadir={}", datadir.display()), format!("-bind={address}")])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { program, address, process };
        let start = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            assert!(start.elapsed() < PATIENCE, "the node that serves blocks does not listen");
            thread::sleep(Duration::from_millis(100));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}
