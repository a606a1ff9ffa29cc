//! Runs `peregrine`, undisturbed or interrupted.

use crate::prelude::*;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

/// System calls that change names or make data durable, where a kill is most dangerous.
const CHANGES: &str = "rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,fsync,fdatasync,fchmod,fchown,\
                       linkat,symlink,ftruncate";
/// System calls that write data.
const WRITES: &str = "write,pwrite64,copy_file_range";
/// System calls that are made to fail, and the errors.
const FAILURES: [(&str, &str); 6] = [
    ("fsync,fdatasync", "EIO"),
    ("rename,renameat,renameat2", "EIO"),
    ("rename,renameat,renameat2", "EXDEV"),
    ("unlink,unlinkat,rmdir", "EACCES"),
    ("write,pwrite64,ftruncate", "ENOSPC"),
    ("read,pread64,getdents64", "EIO"),
];

/// How a run is disturbed.
#[derive(Clone, Debug)]
pub enum Disturbance {
    None,
    /// Sends a signal after a time.
    After(Signal, Duration),
    /// Sends a signal some time after a stage has begun.
    Stage(Signal, &'static str, Duration),
    /// Kills the process at the n-th system call of [`CHANGES`] or [`WRITES`].
    Call(&'static str, u64),
    /// Makes the n-th system call of a kind fail.
    Failure(&'static str, &'static str, u64),
}

impl Disturbance {
    /// Returns a random disturbance. `traced`: whether `strace` is available.
    pub fn random(rng: &mut Rng, traced: bool) -> Self {
        let signal = [Signal::INT, Signal::TERM, Signal::KILL, Signal::KILL][rng.below(4) as usize];
        match rng.below(if traced { 12 } else { 6 }) {
            0..3 => Self::After(signal, Duration::from_micros(1 << (10 + rng.below(9)))),
            3..6 => {
                // The commit is the most dangerous one.
                let stage = ["plan", "check", "finish", "prove", "commit", "commit"][rng.below(6) as usize];
                Self::Stage(signal, stage, Duration::from_micros(rng.below(3_000)))
            }
            6..11 => {
                let calls = if rng.chance(1, 4) { WRITES } else { CHANGES };
                let most = 1 << (2 + rng.below(6));
                Self::Call(calls, 1 + rng.below(most))
            }
            _ => {
                let (calls, error) = FAILURES[rng.below(6) as usize];
                let most = 1 << (1 + rng.below(6));
                Self::Failure(calls, error, 1 + rng.below(most))
            }
        }
    }

    /// Returns whether the run may be killed, or end with a commit half done.
    pub const fn may_kill(&self) -> bool {
        matches!(
            self,
            Self::Call(..) | Self::After(Signal::KILL, _) | Self::Stage(Signal::KILL, ..) | Self::Failure(..)
        )
    }

    /// Returns whether messages of the run itself may fail to be written.
    pub fn may_silence(&self) -> bool {
        matches!(self, Self::Failure(calls, ..) if calls.split(',').any(|call| call == "write"))
    }
}

#[derive(Debug)]
pub struct Ran {
    /// The command line, and the disturbance.
    pub line: String,
    /// Exit code; `None` if it was ended by a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
    /// Whether it was killed because it took too long.
    pub hung: bool,
    /// Whether the disturbance sent a signal while it ran.
    pub signalled: bool,
}

impl Ran {
    /// Describes the run for the log: command, end and output.
    pub fn description(&self) -> String {
        let end = match (self.hung, self.code, self.signal) {
            (true, ..) => "hung".to_owned(),
            (_, Some(code), _) => format!("exit {code}"),
            (.., signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let indent = |text: &str| text.lines().map(|line| format!("      {line}\n")).collect::<String>();
        let (out, err) = (indent(&self.stdout), indent(&self.stderr));
        format!("    $ {}\n    -> {end} after {:?}\n{out}{err}", self.line, self.took)
    }
}

pub struct Program<'a> {
    pub path: &'a Path,
    /// The user that it runs as.
    pub user: Option<u32>,
    /// Time after which a run counts as hung.
    pub patience: Duration,
}

impl Program<'_> {
    pub fn run(&self, args: &[String], disturbance: &Disturbance) -> Res<Ran> {
        let mut command = self.command(disturbance);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let begun = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", self.path.display()))?;
        let (stdout, _) = reader(child.stdout.take());
        let (stderr, stages) = reader(child.stderr.take());
        let signalled = disturb(&mut child, disturbance, &stages, self.patience)?;
        let mut hung = false;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begun.elapsed() > self.patience {
                hung = true;
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            }
            thread::sleep(Duration::from_millis(1));
        };
        let took = begun.elapsed();
        let text = |thread: thread::JoinHandle<String>| thread.join().unwrap_or_default();
        let as_user = self.user.map(|user| format!("[user {user}] ")).unwrap_or_default();
        Ok(Ran {
            line: format!("{as_user}peregrine {}    # {disturbance:?}", args.join(" ")),
            code: status.code(),
            signal: status.signal(),
            stdout: text(stdout),
            stderr: text(stderr),
            took,
            hung,
            signalled,
        })
    }

    fn command(&self, disturbance: &Disturbance) -> Command {
        let inject = match disturbance {
            Disturbance::Call(calls, number) => format!("inject={calls}:signal=KILL:when={number}"),
            Disturbance::Failure(calls, error, number) => {
                format!("inject={calls}:error={error}:when={number}")
            }
            _ => return Command::new(self.path),
        };
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]).arg(self.path);
        command
    }
}

/// Sends the signal of a disturbance. Returns whether the process was still running.
fn disturb(
    child: &mut Child,
    disturbance: &Disturbance,
    stages: &Receiver<String>,
    patience: Duration,
) -> Res<bool> {
    let begun = Instant::now();
    let (signal, delay) = match disturbance {
        Disturbance::After(signal, delay) => (*signal, *delay),
        Disturbance::Stage(signal, stage, delay) => {
            // Waits until the stage begins, or the process closes its standard error.
            while begun.elapsed() < patience {
                match stages.recv_timeout(patience) {
                    Ok(line) if line.trim_end().ends_with(&format!(": {stage}")) => break,
                    Ok(_) => {}
                    Err(_) => return Ok(false),
                }
            }
            (*signal, *delay)
        }
        _ => return Ok(false),
    };
    thread::sleep(delay);
    if child.try_wait()?.is_some() {
        return Ok(false);
    }
    Ok(kill_process(Pid::from_child(child), signal).is_ok())
}

/// Reads a stream to its end in another thread, and sends each line through the channel at once.
fn reader(stream: Option<impl Read + Send + 'static>) -> (thread::JoinHandle<String>, Receiver<String>) {
    let (sender, lines) = channel();
    let thread = thread::spawn(move || {
        let mut all = String::new();
        for line in stream.into_iter().flat_map(|stream| BufReader::new(stream).split(b'\n')) {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            all += &line;
            all.push('\n');
            let _ = sender.send(line);
        }
        all
    });
    (thread, lines)
}
