//! What the tests of the process share.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

/// `peregrine` with these words, for a datadir.
pub fn command(words: &[&str], datadir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(words).arg("--datadir").arg(datadir).env_remove("PEREGRINE_SHA256");
    command
}

/// What it has printed.
pub fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} {output:?}"))
}

/// A process at work.
pub struct Running {
    pub child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, said: String::new() }
    }

    /// Returns when it says `line`; not, if it ends before.
    #[must_use]
    pub fn says(&mut self, line: &str) -> bool {
        loop {
            let before = self.said.len();
            if self.stderr.read_line(&mut self.said).unwrap() == 0 {
                return false;
            }
            if self.said[before..].trim_end() == line {
                return true;
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ended, and all it has said.
    pub fn wait(mut self) -> (Output, String) {
        self.stderr.read_to_string(&mut self.said).unwrap();
        (self.child.wait_with_output().unwrap(), self.said)
    }
}
