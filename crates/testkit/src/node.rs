//! Runs a real `bitcoind` on a datadir, without connections to others: whether it starts, at which height,
//! and what it answers.

mod datadirs;

pub use datadirs::{SnapshotDatadirs, Tail, Writer, copy_all};

use crate::{data::skip, prelude::*};
use hex_conservative::DisplayHex as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Instant,
};

/// What a node has done, or why it has not.
pub type Res<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// User and password of the RPC server, and the same in Base64.
const CREDENTIALS: [&str; 2] = ["u:p", "dTpw"];
/// How long a test waits for a node.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How to start a node.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// `bitcoind`.
    pub program: &'a Path,
    pub datadir: &'a Path,
    pub network: Network,
    pub flags: &'a [String],
    /// The user that it runs as.
    pub user: Option<u32>,
    /// The port of the loopback address at which it serves blocks; `None`: it has no connections.
    pub serves: Option<u16>,
    /// A node that logs nothing for half of this time has failed to start. A node that does not end within
    /// this time after it was stopped has failed to stop.
    pub patience: Duration,
}

impl<'a> Start<'a> {
    const fn on_regtest(program: &'a Path, datadir: &'a Path, flags: &'a [String]) -> Self {
        let network = Network::Regtest;
        Self { program, datadir, network, flags, user: None, serves: None, patience: PATIENCE }
    }
}

/// Words as arguments of a command.
pub fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns a bitcoind: the one that PEREGRINE_BITCOIND names, else that of `make bitcoind`. Without one, the
/// test is skipped.
pub fn program() -> Option<PathBuf> {
    let test = env::current_exe().unwrap_or_default();
    let mut built = test.ancestors().map(|folder| folder.join("bitcoind/bin/bitcoind"));
    let named = env::var_os("PEREGRINE_BITCOIND").map(PathBuf::from);
    let found = named.or_else(|| built.find(|path| path.exists())).filter(|path| path.exists());
    if found.is_none() {
        skip("there is no bitcoind: make bitcoind, or set PEREGRINE_BITCOIND");
    }
    found
}

/// Returns the options of all indexes that a bitcoind knows.
pub fn index_options(program: &Path) -> Res<Vec<&'static str>> {
    let help = Command::new(program).arg("-help").output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let all = ["-txindex", "-blockfilterindex", "-coinstatsindex", "-txospenderindex"];
    Ok(all.into_iter().filter(|option| help.contains(&format!("  {option}"))).collect())
}

/// A port of the loopback address that nobody uses.
pub fn free_port() -> Res<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A running node, which is killed when it is dropped.
pub struct Node {
    child: Child,
    lines: Receiver<String>,
    log: Vec<String>,
    port: u16,
    serves: Option<u16>,
    patience: Duration,
}

/// What is said of a node that hangs.
const HANGS: [&str; 2] = ["it logs nothing", "it does not finish in time"];

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

    pub const fn is_yes(&self) -> bool {
        matches!(self, Self::Yes { .. })
    }
}

impl Node {
    /// Starts the bitcoind of [`program`] on a datadir of regtest, and waits until it has connected its
    /// blocks. Returns `None` if there is none.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(datadir: &Path, flags: &[&str]) -> Option<Self> {
        Some(Self::start_program(&program()?, datadir, flags))
    }

    /// The same with this bitcoind.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_program(program: &Path, datadir: &Path, flags: &[&str]) -> Self {
        Self::started(Start::on_regtest(program, datadir, &owned(flags))).expect("bitcoind starts")
    }

    /// The same with a node that serves its blocks at [`Self::address`].
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_server(program: &Path, datadir: &Path, flags: &[&str]) -> Self {
        let serves = Some(free_port().expect("there is a free port"));
        let flags = owned(flags);
        let start = Start { serves, ..Start::on_regtest(program, datadir, &flags) };
        Self::started(start).expect("bitcoind starts")
    }

    fn started(start: Start<'_>) -> Res<Self> {
        let mut node = Self::spawn(start)?;
        match node.wait() {
            Started::Yes { .. } => Ok(node),
            Started::No(words) => Err(words.into()),
        }
    }

    pub fn spawn(start: Start<'_>) -> Res<Self> {
        let mut command = Command::new(start.program);
        command.arg(format!("-datadir={}", start.datadir.display()));
        command.arg(format!("-chain={}", start.network));
        command.args("-connect=0 -dnsseed=0 -fixedseeds=0 -discover=0 -natpmp=0".split(' '));
        command.args("-rpcthreads=2 -par=1 -dbcache=8 -persistmempool=0 -nodebuglogfile".split(' '));
        match start.serves {
            Some(port) => command
                .args(["-listen=1", "-whitelist=noban,download@127.0.0.1"])
                .arg(format!("-bind=127.0.0.1:{port}")),
            None => command.arg("-listen=0"),
        };
        command.args(start.flags);
        if let Some(user) = start.user {
            command.uid(user).gid(user);
        }
        let mut node = Self::run(command, start.patience)?;
        node.serves = start.serves;
        Ok(node)
    }

    /// Starts a command of bitcoind, to which only what is needed to read its log and to call it is added.
    pub fn run(mut command: Command, patience: Duration) -> Res<Self> {
        let port = free_port()?;
        let [credentials, _] = CREDENTIALS;
        let (user, password) = credentials.split_once(':').unwrap_or_default();
        command.args(["-server", "-printtoconsole=1", "-logtimestamps=0"]);
        command.args([format!("-rpcuser={user}"), format!("-rpcpassword={password}")]);
        command.arg(format!("-rpcport={port}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
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
        Ok(Self { child, lines, log: Vec::new(), port, serves: None, patience })
    }

    /// Where the node serves its blocks.
    ///
    /// # Panics
    /// If it was not started to serve them.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.serves.expect("the node serves its blocks"))
    }

    /// Where the node answers calls, and its user and password.
    pub fn rpc_server(&self) -> [String; 2] {
        [format!("127.0.0.1:{}", self.port), CREDENTIALS[0].to_owned()]
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
                Err(RecvTimeoutError::Timeout) => return Started::No(HANGS[0].to_owned()),
            }
            // The node may have a whole chain to connect.
            if begun.elapsed() > 10 * self.patience {
                return Started::No(HANGS[1].to_owned());
            }
        }
        let tip = self.call("getblockcount", json!([]));
        let failed = self.log().iter().any(|line| {
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
        self.log().iter().rev().find(|line| line.contains(words)).cloned()
    }

    /// Returns the log lines that contain an error, or else the last lines.
    fn error_lines(&mut self) -> String {
        self.log.extend(self.lines.try_iter());
        // What an error consists of may follow in another line.
        let mut goes_on = false;
        let is_error = |line: &&String| {
            let is = ["rror", "orrupt", "ailed", "annot"].iter().any(|word| line.contains(word));
            is | std::mem::replace(&mut goes_on, is && line.ends_with(':'))
        };
        let mut lines: Vec<&str> = self.log.iter().filter(is_error).map(String::as_str).take(6).collect();
        if lines.is_empty() {
            lines = self.log.iter().rev().take(3).map(String::as_str).collect();
        }
        lines.join(" | ")
    }

    /// Returns all lines of the log so far.
    pub fn log(&mut self) -> &[String] {
        self.log.extend(self.lines.try_iter());
        &self.log
    }

    /// Returns the height of the best block.
    ///
    /// # Panics
    /// If the node does not answer.
    pub fn height(&self) -> u32 {
        let height = self.call("getblockcount", json!([])).expect("bitcoind answers");
        height.as_u64().expect("a height is a number") as u32
    }

    /// Waits until the best block has this height.
    ///
    /// # Errors
    /// If that takes too long, or the node ends.
    pub fn wait_for_height(&self, height: u32) -> Res<()> {
        self.wait_until(&format!("it is at height {height}"), || {
            Ok(self.call("getblockcount", json!([]))? == height)
        })
    }

    /// Waits until all indexes of which the node answers have come to its best block.
    ///
    /// # Errors
    /// If that takes too long, or the node ends.
    pub fn wait_for_indexes(&self) -> Res<()> {
        self.wait_until("its indexes are at the tip", || {
            let [tip, found] =
                [self.call("getblockcount", json!([]))?, self.call("getindexinfo", json!([]))?];
            let reaches = |index: &Value| index["best_block_height"].as_u64() >= tip.as_u64();
            let is_synced = |index: &Value| index["synced"] == true && reaches(index);
            Ok(found.as_object().is_some_and(|all| all.values().all(is_synced)))
        })
    }

    fn wait_until(&self, what: &str, is_done: impl Fn() -> Res<bool>) -> Res<()> {
        let begun = Instant::now();
        while !is_done()? {
            if begun.elapsed() > self.patience {
                return Err(format!("bitcoind does not come to where {what}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns what the node says of this many of the last blocks, or of all (0), at a level of
    /// `verifychain`.
    #[must_use]
    pub fn finds_sound(&self, level: u32, blocks: u32) -> bool {
        self.call("verifychain", json!([level, blocks])).is_ok_and(|sound| sound == true)
    }

    /// Returns `hash_serialized_3` of its coins.
    ///
    /// # Errors
    /// If the node does not count them.
    pub fn coins(&self) -> Res<Value> {
        // Some releases refuse that as long as an index is behind.
        self.wait_for_indexes()?;
        Ok(self.call("gettxoutsetinfo", json!([]))?["hash_serialized_3"].take())
    }

    /// Submits blocks in this order. That the node finds one invalid is not an error.
    pub fn submit<'b>(&self, blocks: impl IntoIterator<Item = &'b GeneratedBlock>) -> Res<()> {
        let calls = blocks.into_iter().map(|block| json!([block.bytes.to_lower_hex_string()]));
        self.call_each("submitblock", &calls.collect::<Vec<_>>())
    }

    /// Submits the headers of blocks in this order.
    ///
    /// # Errors
    /// If the node refuses one.
    pub fn submit_headers<'b>(&self, blocks: impl IntoIterator<Item = &'b GeneratedBlock>) -> Res<()> {
        let calls = blocks.into_iter().map(|block| json!([block.bytes[..80].to_lower_hex_string()]));
        self.call_each("submitheader", &calls.collect::<Vec<_>>())
    }

    /// Calls a method of the node's RPC server.
    ///
    /// # Errors
    /// What the node answers.
    pub fn call(&self, method: &str, params: Value) -> Res<Value> {
        result(method, self.post(&call(method, &params))?)
    }

    /// Calls a method several times, and expects that the node refuses none.
    fn call_each(&self, method: &str, params: &[Value]) -> Res<()> {
        self.call_all(method, params)?.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Calls a method several times, and returns what the node answers to each call. The server needs some
    /// 50 milliseconds for each request, so that many calls are one.
    pub fn call_all(&self, method: &str, params: &[Value]) -> Res<Vec<Res<Value>>> {
        let mut all = Vec::with_capacity(params.len());
        for some in params.chunks(100) {
            let calls: Vec<Value> = some.iter().map(|params| call(method, params)).collect();
            let Value::Array(answers) = self.post(&Value::from(calls))? else {
                return Err(format!("{method}: there is not an answer to each call").into());
            };
            all.extend(answers.into_iter().map(|answer| result(method, answer)));
        }
        Ok(all)
    }

    /// Sends a request to the RPC server, and returns the answer.
    fn post(&self, request: &Value) -> Res<Value> {
        let body = request.to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(self.patience))?;
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {}\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            CREDENTIALS[1],
            body.len()
        );
        // Written at once, because small writes would wait for each other.
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        Ok(serde_json::from_str(body)?)
    }

    /// Stops the node with SIGTERM, as a user does.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn stop(self) -> Res<()> {
        let _ = kill_process(self.pid(), Signal::TERM);
        self.wait_end()
    }

    /// Waits until the node ends by itself.
    ///
    /// # Errors
    /// If it does not end in time.
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

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

fn call(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "1.0", "id": 1, "method": method, "params": params})
}

fn result(method: &str, mut answer: Value) -> Res<Value> {
    match answer["error"].take() {
        Value::Null => Ok(answer["result"].take()),
        error => Err(format!("{method}: {error}").into()),
    }
}

/// Kills a node that was not stopped.
impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
