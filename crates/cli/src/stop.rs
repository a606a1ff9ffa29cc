//! Handles Ctrl-C, SIGTERM, and SIGHUP unless `nohup` keeps it away.
//!
//! The first signal sets a flag that the engine polls in all long work, so that it can save its state and
//! report how it ended. A second one ends the process at once: the datadir is safe at any moment. SIGHUP does
//! not count: it comes with another signal when the machine stops, and twice from a terminal that is closed.
//! Where the flag cannot be polled, the process ends by itself after a second: while a write blocks on a
//! stopped terminal or on a pipe that nobody reads; and in stage plan, which has no state to save and whose
//! reads may block forever on a dead file system.

use crate::exit::Exit;
use engine::{Error, Stage};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How long the process may be blocked after a signal before it is ended.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(1);
/// How often that is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long writing the final message may take.
const FINAL_MESSAGE_TIMEOUT: Duration = Duration::from_millis(200);

/// Number of writes to stdout and stderr that were begun, and that have returned.
static WRITES_BEGUN: AtomicU64 = AtomicU64::new(0);
static WRITES_DONE: AtomicU64 = AtomicU64::new(0);
/// Whether the engine is in stage plan.
static PLANNING: AtomicBool = AtomicBool::new(false);
/// What the first signal sets. A command can call the engine more than once, but there is one handler.
static INTERRUPT: AtomicBool = AtomicBool::new(false);
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

/// Installs the signal handler, unless an earlier call has, and returns the flag that it sets. `report`
/// writes that the process was interrupted, if it has to be ended.
///
/// # Errors
/// [`engine::ErrorKind::Environment`] if the handler cannot be installed.
pub fn interrupt(report: impl Fn() + Send + Sync + Copy + 'static) -> Result<&'static AtomicBool, Error> {
    // Files may be read before the engine reports its first stage.
    at_stage(Stage::Plan);
    if IS_HANDLED.swap(true, Ordering::Relaxed) {
        return Ok(&INTERRUPT);
    }
    let wait = |mut signals: Signals| {
        let handle = move || {
            let mut requests = 0;
            for signal in &mut signals {
                requests += u32::from(signal != SIGHUP);
                if requests > 1 {
                    end();
                }
                if !INTERRUPT.swap(true, Ordering::Relaxed) {
                    // Without this thread, a blocked process needs a second signal.
                    let watch = move || end_if_blocked(report);
                    let _ = thread::Builder::new().name("watch".to_owned()).spawn(watch);
                }
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(handle)
    };
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let waiting = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup)).and_then(wait);
    waiting.map_err(|error| Error::environment(format!("cannot handle Ctrl-C: {error}")))?;
    Ok(&INTERRUPT)
}

/// Whether this process was started so that it ignores a signal, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Records which stage the engine is in.
pub fn at_stage(stage: Stage) {
    PLANNING.store(stage == Stage::Plan, Ordering::Relaxed);
}

/// Calls `write`, which writes to stdout or stderr and may block until the output is read.
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    WRITES_BEGUN.fetch_add(1, Ordering::Relaxed);
    let written = write();
    WRITES_DONE.fetch_add(1, Ordering::Relaxed);
    written
}

/// Ends the process if it is blocked after a signal.
fn end_if_blocked(report: impl Fn() + Send + 'static) {
    let mut writes = WRITES_DONE.load(Ordering::Relaxed);
    let (mut last_unblocked, mut last_not_planning) = (Instant::now(), Instant::now());
    loop {
        thread::sleep(POLL_INTERVAL);
        let done = WRITES_DONE.load(Ordering::Relaxed);
        if done != writes || WRITES_BEGUN.load(Ordering::Relaxed) == done {
            (writes, last_unblocked) = (done, Instant::now());
        }
        if !PLANNING.load(Ordering::Relaxed) {
            last_not_planning = Instant::now();
        }
        if last_unblocked.elapsed() >= BLOCKED_TIMEOUT {
            end();
        }
        if last_not_planning.elapsed() >= BLOCKED_TIMEOUT {
            let writer = thread::Builder::new().spawn(report);
            let deadline = Instant::now() + FINAL_MESSAGE_TIMEOUT;
            while writer.as_ref().is_ok_and(|writer| !writer.is_finished()) && Instant::now() < deadline {
                thread::sleep(FINAL_MESSAGE_TIMEOUT / 20);
            }
            end();
        }
    }
}

fn end() -> ! {
    std::process::exit(i32::from(Exit::Interrupted as u8))
}
