//! A real bitcoind, for comparison, where there is one.

use serde_json::Value;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

/// A node of regtest that ends with the test.
pub struct Node {
    process: Child,
    client: PathBuf,
    datadir: String,
}

impl Node {
    /// Starts the bitcoind that PEREGRINE_BITCOIND names, which has bitcoin-cli beside it, and waits until it
    /// answers. Without that variable, prints what is not compared.
    pub fn start(datadir: &Path, args: &[&str], what: &str) -> Option<Self> {
        let Some(bitcoind): Option<OsString> = std::env::var_os("PEREGRINE_BITCOIND") else {
            println!("not compared with {what}: PEREGRINE_BITCOIND does not name a bitcoind");
            return None;
        };
        let client = Path::new(&bitcoind).with_file_name("bitcoin-cli");
        let datadir = format!("-datadir={}", datadir.display());
        let offline = ["-regtest", &datadir, "-listen=0", "-connect=0"];
        let process = Command::new(&bitcoind).args(offline).args(args).spawn().unwrap();
        let mut node = Self { process, client, datadir };
        while node.call(&["getblockcount"]).is_none() {
            assert!(node.process.try_wait().unwrap().is_none(), "bitcoind does not start");
            thread::sleep(Duration::from_millis(200));
        }
        Some(node)
    }

    /// Stops the node as a user does, so that it writes what it has in memory.
    pub fn stop(mut self) {
        self.call(&["stop"]);
        self.process.wait().unwrap();
    }

    /// Calls a method; returns `None` if it fails.
    pub fn call(&self, words: &[&str]) -> Option<Value> {
        let output =
            Command::new(&self.client).args(["-regtest", &self.datadir]).args(words).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}
