//! A `bitcoind` on the chain, to which commands are measured.

use super::chain::{Chain, failed};
use engine::Error;
use std::{
    ffi::OsString,
    io,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A node without a network. It is ended when this is dropped.
pub struct Node {
    process: Child,
    client: PathBuf,
    options: Vec<OsString>,
}

impl Node {
    /// Starts a node and waits until it answers.
    pub fn start(bitcoind: &Path, chain: &Chain) -> Result<Self, Error> {
        // Another node on this machine may have the usual port.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| cannot("find a free port", &error))?.port();
        let mut datadir = OsString::from("-datadir=");
        datadir.push(&chain.folder);
        let chain = format!("-chain={}", chain.network.name());
        let options = vec![datadir, chain.into(), format!("-rpcport={port}").into()];
        let mut command = Command::new(bitcoind);
        command.args(&options).args(["-server=1", "-listen=0", "-connect=0", "-dnsseed=0"]);
        command.args(["-printtoconsole=0", "-persistmempool=0", "-checkblocks=1", "-checklevel=0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| cannot("start bitcoind", &error))?;
        let node = Self { process, client: bitcoind.with_file_name("bitcoin-cli"), options };
        node.ask("getblockcount").map(|()| node)
    }

    /// Returns a command of its client, to which the words of the question are added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.client);
        command.args(&self.options).args(["-rpcwait", "-rpcwaittimeout=60", "-rpcclienttimeout=0"]);
        command
    }

    fn ask(&self, question: &str) -> Result<(), Error> {
        let output = self.command().arg(question).output();
        let output = output.map_err(|error| cannot("run bitcoin-cli", &error))?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| failed(format!("bitcoin-cli: {}", said.trim())))
    }

    /// Ends the node, so that others can use the chain.
    pub fn stop(mut self) -> Result<(), Error> {
        self.ask("stop")?;
        self.process.wait().map(drop).map_err(|error| cannot("wait for bitcoind", &error))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn cannot(what: &str, error: &io::Error) -> Error {
    failed(format!("cannot {what}: {error}"))
}
