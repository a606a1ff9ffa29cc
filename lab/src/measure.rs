//! Runs one process and measures its time, memory and disk traffic, as the kernel accounts for them.
//!
//! The account includes the children that the process waited for, so that a command may be run by a shell.

use clap::Args;
use engine::{Error, ErrorKind, Network};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use wait4::Wait4;

/// Maximum bytes of a process's report that are read.
const MOST_OUTPUT: u64 = 1 << 20;
/// Bytes of the end of its messages that are kept, to be shown if it fails.
const MESSAGES: u64 = 16 << 10;
/// How often the interrupt flag is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The resources that a process used.
pub struct Measured {
    pub wall: Duration,
    pub user: Duration,
    pub system: Duration,
    /// Peak resident memory of the process or of one of its children.
    pub peak_rss_bytes: u64,
    /// Bytes read from and written to disk (Linux `/proc/PID/io`), page cache excluded.
    pub io: Option<DiskBytes>,
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// The end of its standard error.
    pub messages: String,
}

/// Bytes from and to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskBytes {
    pub read: u64,
    pub written: u64,
}

/// The program that is measured.
#[derive(Args, Debug)]
pub struct ProgramArgs {
    /// The program to measure [default: peregrine in the folder of this program]
    #[arg(long, value_name = "FILE")]
    pub peregrine: Option<PathBuf>,

    /// More arguments for its command, separated by spaces
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true)]
    #[arg(allow_hyphen_values = true)]
    pub args: String,
}

impl ProgramArgs {
    /// Returns the path of the program.
    pub fn find(&self) -> Result<PathBuf, Error> {
        let beside = || Ok(std::env::current_exe()?.with_file_name("peregrine"));
        let program = self.peregrine.as_ref().map_or_else(beside, |path| path.canonicalize());
        let program = program.and_then(|path| path.metadata().map(|_| path));
        program.map_err(|error: io::Error| {
            let detail =
                format!("there is no program peregrine to measure ({error}); name it with --peregrine");
            Error::new(ErrorKind::Usage, detail)
        })
    }

    /// Returns the further arguments of its command.
    pub fn further(&self) -> impl Iterator<Item = &str> {
        self.args.split_whitespace()
    }
}

/// Adds the arguments that all commands of Peregrine take.
pub fn add_datadir(command: &mut Command, chain: Network, datadir: &Path) {
    command.args(["--json", "--chain", chain.name(), "--datadir"]).arg(datadir);
}

/// Returns the hash of the UTXO set in a datadir, if its chainstate can be read. It runs in another process,
/// as the memory of this one would count towards the peak of those it starts.
pub fn utxo_hash(program: &Path, chain: Network, datadir: &Path) -> io::Result<Option<String>> {
    let mut command = Command::new(program);
    add_datadir(command.args(["utxo", "stats"]), chain, datadir);
    let stats: Value = serde_json::from_slice(&command.output()?.stdout).unwrap_or(Value::Null);
    Ok(stats["hash_serialized_3"].as_str().map(str::to_owned))
}

/// Returns the height of the last stored block in a datadir, in another process for the same reason.
pub fn stored_height(program: &Path, chain: Network, datadir: &Path) -> Result<u64, Error> {
    let mut command = Command::new(program);
    add_datadir(command.arg("doctor"), chain, datadir);
    let output = command.output().map_err(|error| Error::new(ErrorKind::Environment, error.to_string()))?;
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    diagnosis["datadir"]["block_index"]["stored_height"].as_u64().filter(|height| *height > 0).ok_or_else(
        || {
            let detail =
                "the height of the last block is unknown; write it into the command instead of {height}";
            Error::new(ErrorKind::Environment, detail).in_file(datadir, None)
        },
    )
}

/// Runs a process to its end. Its output goes to files in `scratch`, so that no pipe must be read while the
/// clock runs. When `interrupt` is set, the process is asked to end.
pub fn measure(command: &mut Command, scratch: &Path, interrupt: &AtomicBool) -> io::Result<Measured> {
    let (stdout, stderr) = (scratch.join("stdout"), scratch.join("stderr"));
    command.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
    command.process_group(0);
    // The kernel counts this process's peak towards that of a child: make it what it has now, where the
    // system can.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let started = Instant::now();
    let mut child = command.spawn()?;
    let wall = watch(&child, interrupt, started);
    // The process has ended but is not reaped: the kernel still has its account.
    let io = fs::read_to_string(format!("/proc/{}/io", child.id())).ok();
    let used = child.wait4()?;
    Ok(Measured {
        wall: wall?,
        user: used.rusage.utime,
        system: used.rusage.stime,
        peak_rss_bytes: used.rusage.maxrss,
        io: io.and_then(|text| disk_bytes(&text)),
        status: used.status,
        output: tail(&stdout, MOST_OUTPUT)?,
        messages: tail(&stderr, MESSAGES)?,
    })
}

/// Waits until the process has ended, and does not reap it.
fn watch(child: &Child, interrupt: &AtomicBool, started: Instant) -> io::Result<Duration> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the system gave a process number that is none"))?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut told = false;
            while !ended.load(Ordering::Acquire) {
                if interrupt.load(Ordering::Relaxed) && !told {
                    // Not SIGINT: shells start background jobs with SIGINT ignored.
                    told = kill_process_group(pid, Signal::TERM).is_ok();
                }
                thread::park_timeout(LOOK_EVERY);
            }
        });
        let done = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let wall = started.elapsed();
        ended.store(true, Ordering::Release);
        done.map(|_| wall).map_err(io::Error::from)
    })
}

/// Returns the end of a file as text.
fn tail(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn disk_bytes(text: &str) -> Option<DiskBytes> {
    let field =
        |name| text.lines().find_map(|line: &str| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some(DiskBytes { read: field("read_bytes:")?, written: field("write_bytes:")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn shell(line: &str) -> Measured {
        let scratch = TempDir::new().unwrap();
        let mut command = Command::new("sh");
        measure(command.args(["-c", line]), scratch.path(), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn a_process_is_accounted_for() {
        let done = shell("sleep 0.2; echo said; echo wrong >&2; exit 3");
        assert_eq!((done.status.code(), &*done.output, &*done.messages), (Some(3), "said\n", "wrong\n"));
        assert!(done.wall >= Duration::from_millis(200), "{:?}", done.wall);
        assert!(done.user + done.system < done.wall, "sleeping takes no processor");
        assert!(done.peak_rss_bytes > 100 << 10, "{}", done.peak_rss_bytes);
    }

    #[test]
    fn memory_that_this_process_has_given_back_is_not_the_childs_peak() {
        drop(std::hint::black_box(vec![1_u8; 256 << 20]));
        let peak = shell("exit").peak_rss_bytes;
        assert!(peak < 256 << 20, "{peak}");
    }

    #[test]
    fn a_process_ends_when_the_user_wants_to_stop() {
        let (scratch, interrupt) = (TempDir::new().unwrap(), AtomicBool::new(true));
        let mut command = Command::new("sleep");
        let done = measure(command.arg("60"), scratch.path(), &interrupt).unwrap();
        assert!(!done.status.success() && done.wall < Duration::from_secs(30));
    }

    #[test]
    fn the_kernels_words_are_read() {
        let text = "rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 7\n";
        assert_eq!(disk_bytes(text), Some(DiskBytes { read: 4096, written: 8192 }));
        assert_eq!(disk_bytes("read_bytes: x\nwrite_bytes: 1"), None);
    }
}
