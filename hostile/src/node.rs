//! Runs a real `bitcoind` on a datadir, without network connections: whether it starts, and at which height.

use crate::Res;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};
use wire::Network;

/// User and password of the RPC server: `u:p` in Base64.
const CREDENTIALS: &str = "dTpw";

/// How to start a node.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// `bitcoind`.
    pub program: &'a Path,
    /// The datadir.
    pub datadir: &'a Path,
    /// The network.
    pub network: Network,
    /// Further flags.
    pub flags: &'a [String],
    /// The user that it runs as.
    pub user: Option<u32>,
    /// The port of the loopback address at which it serves blocks; `None`: it has no connections.
    pub serves: Option<u16>,
    /// A node that logs nothing for half of this time has failed to start. A node that does not end within
    /// this time after it was stopped has failed to stop.
    pub patience: Duration,
}

/// A port of the loopback address that nobody uses.
pub fn free_port() -> Res<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A running node.
pub struct Node {
    child: Child,
    lines: Receiver<String>,
    log: Vec<String>,
    port: u16,
    patience: Duration,
}

/// What is said of a node that hangs.
const HANGS: [&str; 2] = ["it logs nothing", "it does not finish in time"];

/// The result of starting a node.
#[derive(Clone, Debug)]
pub enum Started {
    /// The node runs.
    Yes {
        /// Height of the chainstate's best block before any block is connected.
        loaded: u32,
        /// Height after all blocks on disk are connected.
        tip: u32,
    },
    /// The node does not run; contains its error messages.
    No(String),
}

impl Started {
    /// Returns whether the node has neither started nor ended.
    pub fn hangs(&self) -> bool {
        matches!(self, Self::No(words) if HANGS.contains(&words.as_str()))
    }

    /// Returns whether the node runs.
    pub const fn is_yes(&self) -> bool {
        matches!(self, Self::Yes { .. })
    }
}

impl Node {
    /// Starts the process.
    pub fn spawn(start: Start<'_>) -> Res<Self> {
        let port = free_port()?;
        let listen = start.serves.map_or("-listen=0".to_owned(), |port| format!("-bind=127.0.0.1:{port}"));
        let mut command = Command::new(start.program);
        command
            .arg(format!("-datadir={}", start.datadir.display()))
            .arg(format!("-chain={}", start.network))
            .args("-connect=0 -dnsseed=0 -fixedseeds=0 -discover=0 -natpmp=0".split(' '))
            .arg(listen)
            .args("-server -rpcuser=u -rpcpassword=p -rpcthreads=2 -par=1 -dbcache=8".split(' '))
            .args("-persistmempool=0 -printtoconsole=1 -nodebuglogfile -logtimestamps=0".split(' '))
            .arg(format!("-rpcport={port}"))
            .args(start.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(user) = start.user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", start.program.display()))?;
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
            child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                }
            });
        }
        Ok(Self { child, lines, log: Vec::new(), port, patience: start.patience })
    }

    /// Waits until the node has connected all its blocks. Returns its heights, or why it did not start.
    pub fn wait(&mut self) -> Started {
        let begun = Instant::now();
        let (mut loaded, mut imported) = (false, false);
        while !(loaded && imported) {
            match self.lines.recv_timeout(self.patience / 2) {
                Ok(line) => {
                    loaded |= line.contains("Done loading");
                    imported |= line.contains("initload thread exit");
                    self.log.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => return Started::No(self.error_lines()),
                Err(RecvTimeoutError::Timeout) => {
                    return Started::No(HANGS[0].to_owned());
                }
            }
            // The node may have a whole chain to connect.
            if begun.elapsed() > 10 * self.patience {
                return Started::No(HANGS[1].to_owned());
            }
        }
        let tip = self.call("getblockcount", json!([]));
        self.log.extend(self.lines.try_iter());
        let failed = self.log.iter().any(|line| {
            line.contains("fatal internal error")
                || line.contains("Shutdown in progress")
                || line.contains("AbortNode")
        });
        match tip.ok().and_then(|tip| tip.as_u64()) {
            Some(tip) if !failed => Started::Yes { loaded: self.loaded(), tip: tip as u32 },
            _ => Started::No(self.error_lines()),
        }
    }

    /// Returns the height of the highest best block that was loaded, from the log. With a snapshot, there are
    /// two chainstates.
    fn loaded(&self) -> u32 {
        let lines = self.log.iter().filter(|line| line.contains("Loaded best chain:"));
        let height = |line: &String| line.split("height=").nth(1)?.split(' ').next()?.parse().ok();
        lines.filter_map(height).max().unwrap_or(0)
    }

    /// Returns the last line of the log that contains `words`.
    pub fn log_line(&mut self, words: &str) -> Option<String> {
        // The line may be on its way.
        thread::sleep(Duration::from_millis(20));
        self.log.extend(self.lines.try_iter());
        self.log.iter().rev().find(|line| line.contains(words)).cloned()
    }

    /// Returns the log lines that contain an error, or else the last lines.
    fn error_lines(&mut self) -> String {
        self.log.extend(self.lines.try_iter());
        let is_error =
            |line: &&String| ["rror", "orrupt", "ailed", "annot"].iter().any(|word| line.contains(word));
        let mut lines: Vec<&str> = self.log.iter().filter(is_error).map(String::as_str).take(6).collect();
        if lines.is_empty() {
            lines = self.log.iter().rev().take(3).map(String::as_str).collect();
        }
        lines.join(" | ")
    }

    /// Calls a method of the node's RPC server.
    pub fn call(&self, method: &str, params: Value) -> Res<Value> {
        let body = json!({"jsonrpc": "1.0", "id": 1, "method": method, "params": params}).to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(self.patience))?;
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {CREDENTIALS}\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        // Written at once, because small writes would wait for each other.
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let mut answer: Value = serde_json::from_str(body)?;
        if !answer["error"].is_null() {
            return Err(format!("{method}: {}", answer["error"]).into());
        }
        Ok(answer["result"].take())
    }

    /// Stops the node with SIGTERM, as a user does.
    pub fn stop(mut self) -> Res<()> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > self.patience {
                return Err("bitcoind does not stop".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until the node ends by itself.
    pub fn wait_end(mut self) -> Res<()> {
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > self.patience {
                return Err("bitcoind does not end".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// Kills a node that was not stopped.
impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
