//! What is known of a run while it goes on: one recorder gets the engine's events, and shows them to people
//! and programs in several forms. On stderr, that is a bar on a terminal, otherwise a line every few seconds,
//! or JSON objects; in files, the log of the run, the report to be shared, the note of the command that
//! resumes, and the addresses of peers.
//!
//! Work is counted in bytes, not in heights: a block of 2024 has a thousand times the bytes of one of 2009.
//! Events only change the [`State`]; a clock decides when it is shown, so that the elapsed time goes on in a
//! stage that sends no events.

mod frame;
mod lines;
mod state;

use crate::{peers, run_note::NoteKeeper, units::count};
use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use engine::{
    ChainOptions, Datadir, Error, Event, EventSink, Note, RealDisk, Stage, Warning, reindex::ReindexReport,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peregrine::{
    output::{self, Code, Level},
    remedy,
    run_log::{Run, RunLog},
    stop,
};
use rustix::termios::tcgetwinsize;
pub use state::{PointJson, StageStartJson, State};
use std::{
    fmt,
    io::{self, IsTerminal},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use sync::{PeerEvent, SyncSink};

/// Time between two frames of the bar.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two JSON objects about the same stage.
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// The stages of each command, if they do not depend on too much.
#[cfg_attr(not(feature = "export"), expect(dead_code, reason = "some are those of exports"))]
pub mod stages {
    use engine::Stage::{self, *};

    pub const REINDEX: &[Stage] = &[Plan, Check, Finish, Prove, Commit];
    pub const CONNECT: &[Stage] = &[Plan, Connect];
    pub const SYNC: &[Stage] = &[Headers, Download, Check, Finish, Prove, Commit, Connect];
    /// All coins are read first.
    pub const PRUNE: &[Stage] = &[Prove, Headers, Download, Check, Finish, Prove, Commit, Connect];
    pub const FOLLOW: &[Stage] = &[Headers, Download, Check, Finish, Prove, Commit, Connect, Follow];
    pub const BLOCKS_ONLY: &[Stage] = &[Headers, Download];
    /// With a second pass, which makes undo data or the chainstate.
    pub const REPAIR: &[Stage] = &[Plan, Check, Headers, Download, Prove, Plan, Check, Finish, Prove, Commit];
    pub const REPAIR_FROM: &[Stage] =
        &[Plan, Check, Read, Headers, Download, Prove, Plan, Check, Finish, Prove, Commit];
    pub const VERIFY: &[Stage] = &[Plan, Check, Match];
    pub const MAKE: &[Stage] = &[Plan, Check, Finish];
    pub const MAKE_OF_CHAINSTATE: &[Stage] = &[Prove, Finish];
    pub const MAKE_OF_COINS: &[Stage] = &[Plan, Read, Finish];
    pub const LOAD: &[Stage] = &[Plan, Finish, Prove, Commit];
    pub const MAKE_UNDO: &[Stage] = &[Plan, Check, Commit];
    pub const MAKE_INDEXES: &[Stage] = &[Plan, Read, Finish, Prove, Commit];
    pub const UPDATE_INDEXES: &[Stage] = &[Plan, Read, Finish];
    pub const CHECK_INDEXES: &[Stage] = &[Plan, Read, Check];
    pub const CHECK: &[Stage] = &[Plan, Check];
    pub const DOCTOR: &[Stage] = &[Plan, Check, Prove];
    pub const EXPORT: &[Stage] = &[Export];
    pub const EXPORT_HEIGHT: &[Stage] = &[Plan, Check, Finish, Export];
    pub const EXPORT_HEIGHTS: &[Stage] = &[Plan, Connect, Export];
    pub const EXPORT_BLOCKS: &[Stage] = &[Plan, Export];
    pub const EXPORT_HISTORY: &[Stage] = &[Plan, Read, Export, Prove];
    pub const EXPORT_SPENT: &[Stage] = &[Plan, Read, Export];
    pub const SHARE_HEIGHT: &[Stage] = &[Plan, Check, Finish, Prove, Export];
    pub const SHARE_HEIGHTS: &[Stage] = &[Plan, Connect, Prove, Export];
    pub const FETCH: &[Stage] = &[Download, Prove];
    pub const PLAN: &[Stage] = &[Plan];
    pub const COINS: &[Stage] = &[Read];
    pub const MERGE: &[Stage] = &[Plan, Match];
    pub const UNKNOWN: &[Stage] = &[];
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Style {
    /// A bar on a terminal, otherwise lines
    Auto,
    /// A bar
    Bar,
    /// A line with time and level every few seconds
    #[value(alias = "log")]
    Lines,
    /// JSON objects, one on each line
    Json,
    /// Nothing but which datadir is used, and that no peer can be reached
    None,
}

/// Records the events of a run.
pub struct Recorder {
    state: Arc<Mutex<State>>,
    shown: Shown,
    log: OnceLock<RunLog>,
    note_keeper: Option<NoteKeeper>,
    /// Where the addresses of peers are kept.
    datadir: Option<Datadir>,
}

enum Shown {
    Bar(ProgressBar),
    /// The clock is a thread that writes a line from time to time. When the sender is dropped, it ends.
    Lines {
        as_json: bool,
        clock: Mutex<Option<(JoinHandle<()>, Sender<()>)>>,
    },
    None,
}

impl Recorder {
    /// Begins to record a command that has these stages, and to show its progress. `chain`: the options of a
    /// command that works on a datadir.
    pub fn new(style: Style, stages: &'static [Stage], chain: Option<&ChainOptions>) -> Self {
        let state = Arc::new(Mutex::new(State::new(stages, Instant::now())));
        let shown = match style {
            Style::Auto if io::stderr().is_terminal() => Self::bar(&state),
            Style::Bar => Self::bar(&state),
            Style::Auto | Style::Lines => Self::lines(&state, false),
            Style::Json => Self::lines(&state, true),
            Style::None => Shown::None,
        };
        let datadir = chain.and_then(|chain| Datadir::of(&RealDisk, &chain.location()).ok());
        let (log, note_keeper) = (OnceLock::new(), chain.and_then(NoteKeeper::new));
        Self { state, shown, log, note_keeper, datadir }
    }

    fn bar(state: &Arc<Mutex<State>>) -> Shown {
        let colour = AutoStream::choice(&io::stderr()) != ColorChoice::Never;
        let state = Arc::clone(state);
        let frame = move |_: &indicatif::ProgressState, text: &mut dyn fmt::Write| {
            let width = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
            let width = if width == 0 { 80 } else { usize::from(width) };
            let _ = text.write_str(&frame::lines(&lock(&state), width, colour, Instant::now()));
        };
        let style = ProgressStyle::with_template("{frame}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("frame", frame);
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(style);
        bar.enable_steady_tick(FRAME_INTERVAL);
        Shown::Bar(bar)
    }

    fn lines(state: &Arc<Mutex<State>>, as_json: bool) -> Shown {
        let (until, ended) = channel();
        let state = Arc::clone(state);
        let interval = if as_json { JSON_INTERVAL } else { LINE_INTERVAL };
        let write = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let line = lines::progress(&lock(&state), as_json, Instant::now());
                line.iter().for_each(|line| output::print_message(line));
            }
        };
        // Without this thread, only the stages are shown.
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(write);
        let clock = thread.ok().map(|thread| (thread, until));
        Shown::Lines { as_json, clock: Mutex::new(clock) }
    }

    /// Writes the events of the run to a new file too.
    pub fn begin_log(&self, file: &Path, run: Run) -> Result<(), Error> {
        let log = RunLog::create(file, run)?;
        self.log.get_or_init(|| log);
        Ok(())
    }

    /// Writes the end of the log, if there is one.
    pub fn end_log(&self, report: Result<&ReindexReport, &Error>) {
        self.log.get().into_iter().for_each(|log| log.close(report));
    }

    /// What is known by now.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Removes the bar from the screen, and the note in the datadir if there is nothing to resume.
    pub fn close(&self) {
        if let Some(text) = self.note_keeper.as_ref().and_then(NoteKeeper::end) {
            self.print(Level::Warning, &text, None);
        }
        match &self.shown {
            Shown::Bar(bar) => stop::writing(|| bar.finish_and_clear()),
            Shown::Lines { clock, .. } => {
                let clock = lock(clock).take();
                if let Some((thread, until)) = clock {
                    drop(until);
                    // The thread may be blocked in a write that nobody reads.
                    let _ = stop::writing(|| thread.join());
                }
            }
            Shown::None => {}
        }
    }

    /// Prints a message. `note` is what it is about, for programs.
    fn print(&self, level: Level, text: &str, note: Option<Code<'_>>) {
        match &self.shown {
            Shown::Bar(bar) => {
                let text = match level {
                    Level::Info => text.to_owned(),
                    Level::Note | Level::Warning => output::message(level.name(), text),
                };
                stop::writing(|| bar.suspend(|| output::print_message(&text)));
            }
            Shown::Lines { as_json, .. } => {
                output::print_message(&lines::message(level, text, note, *as_json));
            }
            Shown::None => {}
        }
    }
}

impl EventSink for Recorder {
    fn event(&self, event: Event) {
        let now = Instant::now();
        self.log.get().into_iter().for_each(|log| log.event(&event));
        let estimate = {
            let mut state = lock(&self.state);
            state.event(&event, now);
            state.estimate(now)
        };
        if let Some(text) = estimate {
            self.print(Level::Note, &text, None);
        }
        match event {
            Event::Started(stage) => {
                stop::at_stage(stage);
                if let Shown::Lines { as_json, .. } = &self.shown {
                    let line = lines::stage(&lock(&self.state), stage, *as_json);
                    output::print_message(&line);
                }
            }
            Event::Planned { height, hash, .. } => {
                let text = format!("best chain: height {}, block {hash}", count(height.0));
                self.print(Level::Info, &text, None);
            }
            Event::Memory(_) => self.note_keeper.iter().for_each(NoteKeeper::begin),
            Event::Note(note) => {
                let text = remedy::note_text(&note);
                if let (Note::NoPeers { .. }, Shown::None) = (&note, &self.shown) {
                    // Without this, nothing says why the run does not end.
                    output::print_message(&output::message("note", &text));
                }
                self.print(Level::Note, &text, Some(Code::Note(&note)));
            }
            Event::Warning(warning) => {
                // The report has these too. What stays as it was need not alarm anybody.
                let level = match warning {
                    Warning::IndexesUnchanged { .. } | Warning::SnapshotUnchanged { .. } => Level::Note,
                    _ => Level::Warning,
                };
                self.print(level, &remedy::warning_text(&warning), Some(Code::Warning(&warning)));
            }
            _ => {}
        }
    }
}

impl SyncSink for Recorder {
    fn peer(&self, event: PeerEvent) {
        let text = match event {
            PeerEvent::Connected { peer, user_agent, transport, height } => {
                format!("peer {peer}: connected, {transport}, {user_agent}, height {height}")
            }
            PeerEvent::Closed { peer, reason } => format!("peer {peer}: {reason}"),
            PeerEvent::Status { peers, limit } => {
                lock(&self.state).peers = Some((peers, limit));
                return;
            }
            PeerEvent::Known(known) => {
                self.datadir.iter().for_each(|datadir| peers::save(datadir, &known));
                return;
            }
            _ => return,
        };
        self.print(Level::Info, &text, None);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
