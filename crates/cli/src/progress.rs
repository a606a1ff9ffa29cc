//! Progress: a bar on a terminal, a line every few seconds off it. Work is counted in bytes, not heights: a
//! block of 2024 has a thousand times the bytes of one of 2009.

use clap::ValueEnum;
use engine::{Event, Sink, Stage};
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal, Write},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Off a terminal, a line this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Style {
    /// A bar on a terminal, lines off it
    Auto,
    /// A bar
    Bar,
    /// A line every few seconds
    Log,
    /// Nothing
    None,
}

/// Shows the engine's events on stderr.
pub enum Progress {
    Bar(ProgressBar),
    Log(Mutex<Option<Instant>>),
    None,
}

impl Progress {
    pub fn new(style: Style) -> Self {
        match style {
            Style::Auto if io::stderr().is_terminal() => Self::bar(),
            Style::Bar => Self::bar(),
            Style::Auto | Style::Log => Self::Log(Mutex::new(None)),
            Style::None => Self::None,
        }
    }

    fn bar() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5));
        let template =
            "{prefix:>8} [{wide_bar}] {msg} {bytes}/{total_bytes} {binary_bytes_per_sec} ETA {eta}";
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Self::Bar(bar)
    }

    /// Takes the bar off the screen.
    pub fn close(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| line(text)),
            Self::Log(_) => line(text),
            Self::None => {}
        }
    }

    /// Whether it is time for another line.
    fn due(last: &Mutex<Option<Instant>>) -> bool {
        let Ok(mut last) = last.lock() else { return false };
        let due = last.is_none_or(|at| at.elapsed() >= LINE_EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

impl Sink for Progress {
    fn event(&self, event: Event) {
        match event {
            Event::Started(stage) => match self {
                Self::Bar(bar) => bar.set_prefix(stage.name()),
                Self::Log(_) if !matches!(stage, Stage::Read | Stage::Settle) => line(&format!("{stage}")),
                Self::Log(_) | Self::None => {}
            },
            Event::Planned { height, hash, unconnected, .. } => {
                self.say(&format!("chain of {height} blocks on genesis, tip {hash}"));
                if unconnected > 0 {
                    self.say(&format!(
                        "{unconnected} blocks above it were never connected: bitcoind will do so"
                    ));
                }
            }
            Event::Progress(progress) => match self {
                Self::Bar(bar) => {
                    bar.set_length(progress.bytes_total);
                    bar.set_position(progress.bytes);
                    bar.set_message(format!("{}/{} blocks", progress.blocks, progress.blocks_total));
                }
                Self::Log(last) if Self::due(last) => line(&progress_line(&progress)),
                Self::Log(_) | Self::None => {}
            },
            Event::Note(text) => self.say(&format!("note: {text}")),
            _ => {}
        }
    }
}

fn progress_line(progress: &engine::Progress) -> String {
    let seconds = progress.elapsed.as_secs_f64().max(1e-3);
    let rate = progress.bytes as f64 / seconds;
    let rest = progress.bytes_total.saturating_sub(progress.bytes) as f64 / rate.max(1.0);
    format!(
        "{} of {} blocks, {} of {}, {:.0} MB/s, {} left",
        progress.blocks,
        progress.blocks_total,
        HumanBytes(progress.bytes),
        HumanBytes(progress.bytes_total),
        rate / 1e6,
        HumanDuration(Duration::from_secs_f64(rest)),
    )
}

fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
