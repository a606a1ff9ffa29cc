//! Helpers of the tests that start the program.

pub mod datadirs;
pub mod schemas;

use crate::prelude::*;
use rustix::fs::{FlockOperation, fcntl_lock};
use std::process::ChildStderr;

pub fn command(args: &[&str], datadir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(args).arg("--datadir").arg(datadir).env_remove("PEREGRINE_SHA256");
    command
}

/// Runs `peregrine` with these arguments on a datadir of regtest.
pub fn run_on_regtest(datadir: &Path, args: &[&str]) -> Output {
    command(&[args, &["--chain", "regtest"]].concat(), datadir).output().unwrap()
}

/// Does so, which must succeed. Returns the report.
#[track_caller]
pub fn report(datadir: &Path, args: &[&str]) -> Value {
    let output = run_on_regtest(datadir, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    json(&output)
}

/// A new folder with the datadir of this name.
pub fn given(name: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    datadirs::write(name, dir.path());
    dir
}

/// A datadir of a generated chain, with its chainstate.
pub fn rebuilt() -> (TempDir, Chain) {
    (given("one-file"), datadirs::small().clone())
}

/// Takes a lock as bitcoind does, which excludes other processes, such as those that tests start.
pub fn lock(path: &Path) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}

pub fn peregrine(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peregrine")).args(args).output().unwrap()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns what a command printed that has succeeded.
pub fn done(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks the exit code of a command, and that its messages contain these words.
pub fn refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "no {word:?} in {stderr}"));
}

/// A shell that runs a line and finds the program.
pub fn shell(line: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_peregrine"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("PATH", path);
    command
}

/// Parses what the process printed to stdout.
pub fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} {output:?}"))
}

pub struct Running {
    pub child: Child,
    stderr: BufReader<ChildStderr>,
    stderr_text: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr, stderr_text: String::new() }
    }

    /// Starts a process, and waits until it prints a line that ends with `line`.
    #[track_caller]
    pub fn until_line(command: Command, line: &str) -> Self {
        let mut running = Self::start(command);
        assert!(running.wait_for_line(line), "no line {line}: {}", running.stderr_text);
        running
    }

    /// Waits until the process prints a line that ends with `line`, such as the name of a stage. Returns
    /// false if it ends before.
    pub fn wait_for_line(&mut self, line: &str) -> bool {
        loop {
            let before = self.stderr_text.len();
            if self.stderr.read_line(&mut self.stderr_text).unwrap() == 0 {
                return false;
            }
            if self.stderr_text[before..].trim_end().ends_with(&format!(" {line}")) {
                return true;
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends signals to the process, which must end as an interrupted one. Returns what [`Self::wait`] does.
    #[track_caller]
    pub fn interrupt(self, signals: &[Signal]) -> (Output, String) {
        signals.iter().for_each(|signal| self.signal(*signal));
        let (output, stderr) = self.wait();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        (output, stderr)
    }

    /// Waits for the end of the process. Returns its output, and all of stderr.
    pub fn wait(mut self) -> (Output, String) {
        self.stderr.read_to_string(&mut self.stderr_text).unwrap();
        (self.child.wait_with_output().unwrap(), self.stderr_text)
    }
}
