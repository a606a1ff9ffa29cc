//! Stopping: what Ctrl-C, SIGTERM and SIGHUP do.
//!
//! The first signal sets a flag that the engine looks at wherever work lasts, so that it can save its state
//! and say how it ended. A second one ends the process at once: the datadir is safe at any moment. Where the
//! first could not be heard, the process ends by itself after a second: while a write to a terminal that was
//! stopped, or to a pipe that nobody empties, does not come back; and while the plan is made, which has
//! nothing to save, and whose reads do not come back from a file system that has died.

use crate::{exit::Exit, output};
use engine::{Error, ErrorKind, Stage};
use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long a signal may go unheard.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Writes to stdout and stderr that were begun, and those that have come back.
static WRITES_BEGUN: AtomicU64 = AtomicU64::new(0);
static WRITES_DONE: AtomicU64 = AtomicU64::new(0);
/// Whether the engine makes its plan.
static PLANNING: AtomicBool = AtomicBool::new(false);

/// The flag that signals set; with `json`, failures are told as JSON too.
///
/// # Errors
/// [`ErrorKind::Environment`] if signals cannot be watched.
pub fn interrupt(json: bool) -> Result<Arc<AtomicBool>, Error> {
    // Files may be read before the engine speaks of a stage.
    at_stage(Stage::Plan);
    let interrupt = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupt);
    let handler = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            end();
        }
        // Without this thread a second signal is needed where the first is not heard.
        let _ = thread::Builder::new().name("watch".to_owned()).spawn(move || watch(json));
    });
    handler
        .map_err(|error| Error::new(ErrorKind::Environment, format!("cannot watch for Ctrl-C: {error}")))?;
    Ok(interrupt)
}

/// Says which stage the engine is at.
pub fn at_stage(stage: Stage) {
    PLANNING.store(stage == Stage::Plan, Ordering::Relaxed);
}

/// Does something that writes to stdout or stderr, and may have to wait for whoever reads there.
pub fn writing<T>(write: impl FnOnce() -> T) -> T {
    WRITES_BEGUN.fetch_add(1, Ordering::Relaxed);
    let written = write();
    WRITES_DONE.fetch_add(1, Ordering::Relaxed);
    written
}

/// Ends the process if the signal that has come is not heard.
fn watch(json: bool) {
    let mut writes = WRITES_DONE.load(Ordering::Relaxed);
    let (mut wrote, mut planned) = (Instant::now(), Instant::now());
    loop {
        thread::sleep(LOOK_EVERY);
        let done = WRITES_DONE.load(Ordering::Relaxed);
        if done != writes || WRITES_BEGUN.load(Ordering::Relaxed) == done {
            (writes, wrote) = (done, Instant::now());
        }
        if !PLANNING.load(Ordering::Relaxed) {
            planned = Instant::now();
        }
        if wrote.elapsed() >= PATIENCE {
            end();
        }
        if planned.elapsed() >= PATIENCE {
            let told = thread::Builder::new().spawn(move || tell_interrupted(json));
            let until = Instant::now() + LAST_WORDS;
            while told.as_ref().is_ok_and(|told| !told.is_finished()) && Instant::now() < until {
                thread::sleep(LAST_WORDS / 20);
            }
            end();
        }
    }
}

fn tell_interrupted(json: bool) {
    let error = Error::interrupted();
    if json {
        let _ = writeln!(io::stdout(), "{}", output::failure_json(&error));
    }
    let _ = writeln!(io::stderr(), "error: {error}");
}

fn end() -> ! {
    std::process::exit(i32::from(Exit::Interrupted as u8))
}
