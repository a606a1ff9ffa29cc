//! Runs one process and measures its time, memory and disk traffic, as the kernel accounts for them.
//!
//! The account includes the children that the process waited for, so that a command may be run by a shell.

use crate::{
    circumstances::Circumstances,
    place::{environment, failed, scratch},
    runs::{BenchArgs, Rows},
};
use cli::{output::interrupt, stop};
use engine::{Error, ErrorKind, Network, Stage};
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
use tempfile::TempDir;
use wait4::Wait4;

/// Maximum bytes of a process's report that are read.
const MOST_OUTPUT: u64 = 1 << 20;
/// Bytes of the end of its messages that are kept, to be shown if it fails.
const MESSAGES: u64 = 16 << 10;
/// How often the interrupt flag is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The resources that a process used.
#[derive(Default)]
pub struct Measured {
    pub wall: Duration,
    pub user: Duration,
    pub system: Duration,
    /// Peak resident memory of the process or of one of its children.
    pub peak_rss_bytes: u64,
    /// Bytes read from and written to disk (Linux `/proc/PID/io`), page cache excluded.
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// The end of its standard error.
    pub messages: String,
}

/// A benchmark that has begun.
pub struct Bench {
    /// The program to measure.
    pub peregrine: PathBuf,
    pub circumstances: Circumstances,
    pub rows: Rows,
    pub interrupt: &'static AtomicBool,
    pub scratch: TempDir,
}

impl Bench {
    /// Checks what needs no data, and creates the file for the runs.
    pub fn begin(args: &BenchArgs, csv: Option<&Path>, columns: &'static str) -> Result<Self, Error> {
        let interrupt = interrupt(args.json)?;
        // An interrupt must end the measured program first.
        stop::at_stage(Stage::Read);
        let circumstances = Circumstances::begin(args)?;
        let beside = || Ok(std::env::current_exe()?.with_file_name("peregrine"));
        let program = args.peregrine.as_ref().map_or_else(beside, |path| path.canonicalize());
        let program = program.and_then(|path| path.metadata().map(|_| path));
        let peregrine = program.map_err(|error: io::Error| {
            let detail =
                format!("there is no program peregrine to measure ({error}); name it with --peregrine");
            Error::new(ErrorKind::Usage, detail)
        })?;
        let rows = Rows::new(csv, columns)?;
        Ok(Self { peregrine, circumstances, rows, interrupt, scratch: scratch(&args.work_dir)? })
    }

    /// Runs a process to its end, unless the user wants to stop.
    pub fn measure(&self, command: &mut Command) -> Result<Measured, Error> {
        let measured = measure(command, self.scratch.path(), self.interrupt);
        let measured = measured.map_err(|error| failed(format!("cannot run a program: {error}")))?;
        Error::check_interrupt(self.interrupt)?;
        Ok(measured)
    }
}

/// Runs a command that is not measured, and returns what it printed. Fails if it does, with what it said.
pub fn output(command: &mut Command, what: &str) -> Result<String, Error> {
    let cannot = |why: &dyn std::fmt::Display| failed(format!("cannot {what}: {why}"));
    let output = command.stdin(Stdio::null()).output().map_err(|error| cannot(&error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(cannot(&format_args!("{}; it said:\n{}", output.status, said.trim_end())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Adds the arguments that all commands of Peregrine take.
pub fn add_datadir(command: &mut Command, chain: Network, datadir: &Path) {
    command.args(["--json", "--chain", chain.name(), "--datadir"]).arg(datadir);
}

/// Returns what a command of Peregrine reports of a datadir; null if it cannot. It runs in another process:
/// the memory of this one would count towards the peak of those it starts.
fn ask(program: &Path, words: &[&str], chain: Network, datadir: &Path) -> Result<Value, Error> {
    let mut command = Command::new(program);
    add_datadir(command.args(words), chain, datadir);
    let output = command.output().map_err(|error| environment("look at", datadir, error))?;
    Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

/// Returns the hash of the UTXO set in a datadir, if its chainstate can be read.
pub fn utxo_hash(program: &Path, chain: Network, datadir: &Path) -> Result<Option<String>, Error> {
    let stats = ask(program, &["utxo", "stats"], chain, datadir)?;
    Ok(stats["hash_serialized_3"].as_str().map(str::to_owned))
}

/// Returns the height of the last stored block in a datadir.
pub fn stored_height(program: &Path, chain: Network, datadir: &Path) -> Result<u64, Error> {
    let diagnosis = ask(program, &["doctor"], chain, datadir)?;
    let height = diagnosis["datadir"]["block_index"]["stored_height"].as_u64().filter(|height| *height > 0);
    height.ok_or_else(|| {
        let detail = "the height of the last block is unknown; write it into the command instead of {height}";
        failed(detail).in_file(datadir, None)
    })
}

/// Runs a process to its end. Its output goes to files in `scratch`, so that no pipe must be read while the
/// clock runs. When `interrupt` is set, the process is asked to end.
fn measure(command: &mut Command, scratch: &Path, interrupt: &AtomicBool) -> io::Result<Measured> {
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
    let io = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let used = child.wait4()?;
    Ok(Measured {
        wall: wall?,
        user: used.rusage.utime,
        system: used.rusage.stime,
        peak_rss_bytes: used.rusage.maxrss,
        read_bytes: of_io(&io, "read_bytes:"),
        written_bytes: of_io(&io, "write_bytes:"),
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

/// Returns a number of what the kernel says in `/proc/PID/io`.
fn of_io(io: &str, name: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((of_io(text, "read_bytes:"), of_io(text, "write_bytes:")), (Some(4096), Some(8192)));
        assert_eq!(of_io("read_bytes: x\nwrite_bytes: 1", "read_bytes:"), None);
    }
}
