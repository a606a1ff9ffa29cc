//! Shows progress: a bar on a terminal, otherwise a line every few seconds. Work is counted in bytes, not in
//! heights: a block of 2024 has a thousand times the bytes of one of 2009.

use clap::ValueEnum;
use engine::{Event, EventSink, PeerEvent, Stage, TransportVersion};
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use peregrine::{remedy, stop};
use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Minimum time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Style {
    /// A bar on a terminal, otherwise lines
    Auto,
    /// A bar
    Bar,
    /// A line every few seconds
    Log,
    /// No progress
    None,
}

/// Shows the engine's events on stderr.
pub enum Progress {
    Bar(ProgressBar),
    Log(Mutex<Lines>),
    None,
}

/// Decides when to write a line of progress, and what is in it.
#[derive(Default)]
pub struct Lines {
    /// When the last line was written.
    last: Option<Instant>,
    /// When progress was first reported, and how many bytes were done then: an earlier run may have done
    /// some.
    started: Option<(Instant, u64)>,
}

impl Lines {
    /// Returns the line to write now; `None` if it is not yet time.
    fn next(&mut self, progress: &engine::Progress, now: Instant) -> Option<String> {
        let started = self.started.filter(|(_, bytes)| *bytes <= progress.bytes);
        let (at, bytes) = *self.started.insert(started.unwrap_or((now, progress.bytes)));
        if self.last.is_some_and(|last| now - last < LINE_INTERVAL) {
            return None;
        }
        self.last = Some(now);
        let engine::Progress { blocks, blocks_total, bytes_total, .. } = progress;
        let mut line = format!(
            "{blocks} of {blocks_total} blocks, {} of {}",
            HumanBytes(progress.bytes),
            HumanBytes(*bytes_total)
        );
        let rate = (progress.bytes - bytes) as f64 / (now - at).as_secs_f64().max(1e-3);
        if rate > 0.0 {
            let left =
                Duration::from_secs_f64(bytes_total.saturating_sub(progress.bytes) as f64 / rate.max(1.0));
            line += &format!(", {:.0} MB/s, {} left", rate / 1e6, HumanDuration(left));
        }
        Some(line)
    }
}

impl Progress {
    pub fn new(style: Style) -> Self {
        match style {
            Style::Auto if io::stderr().is_terminal() => Self::bar(),
            Style::Bar => Self::bar(),
            Style::Auto | Style::Log => Self::Log(Mutex::default()),
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

    /// Removes the bar from the screen.
    pub fn close(&self) {
        if let Self::Bar(bar) = self {
            stop::writing(|| bar.finish_and_clear());
        }
    }

    fn print(&self, text: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| line(text)),
            Self::Log(_) => line(text),
            Self::None => {}
        }
    }
}

impl EventSink for Progress {
    fn event(&self, event: Event) {
        if let Event::Started(stage) = event {
            stop::at_stage(stage);
        }
        stop::writing(|| self.show(event));
    }
}

impl Progress {
    fn show(&self, event: Event) {
        match event {
            Event::Started(stage) => match self {
                Self::Bar(bar) => bar.set_prefix(stage.name()),
                Self::Log(_) if !matches!(stage, Stage::Read | Stage::Match) => line(&format!("{stage}")),
                Self::Log(_) | Self::None => {}
            },
            Event::Planned { height, hash, .. } => {
                self.print(&format!("chain tip at height {height}, block {hash}"));
            }
            Event::Progress(progress) => match self {
                Self::Bar(bar) => {
                    let begins = bar.position() == 0;
                    bar.set_length(progress.bytes_total);
                    bar.set_position(progress.bytes);
                    if begins {
                        // What an earlier run did must not count as this run's speed.
                        bar.reset_eta();
                    }
                    bar.set_message(format!("{}/{} blocks", progress.blocks, progress.blocks_total));
                }
                Self::Log(lines) => {
                    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(text) = lines.next(&progress, Instant::now()) {
                        line(&text);
                    }
                }
                Self::None => {}
            },
            Event::Peer(peer) => {
                if let Some(text) = peer_text(&peer) {
                    self.print(&text);
                }
            }
            Event::Note(note) => self.print(&format!("note: {}", remedy::note_text(&note))),
            Event::Warning(warning) => {
                self.print(&format!("warning: {}", remedy::warning_text(&warning)));
            }
            _ => {}
        }
    }
}

fn peer_text(event: &PeerEvent) -> Option<String> {
    match event {
        PeerEvent::Connected { peer, user_agent, transport, height } => {
            let transport = match transport {
                TransportVersion::V1 => "v1",
                TransportVersion::V2 => "v2",
            };
            Some(format!("peer {peer}: connected, {transport}, {user_agent}, height {height}"))
        }
        PeerEvent::Closed { peer, reason } => Some(format!("peer {peer}: {reason}")),
        _ => None,
    }
}

fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that an earlier run did does not count as fast work.
    #[test]
    fn lines_show_the_rate_of_this_run_only() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        let mut at = |seconds: u64, megabytes: u64| {
            let bytes = megabytes * 1_000_000;
            let progress = engine::Progress { blocks: 1, blocks_total: 9, bytes, bytes_total: 1_000_000_000 };
            lines.next(&progress, start + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, 500).unwrap(), "1 of 9 blocks, 476.84 MiB of 953.67 MiB");
        assert_eq!(at(4, 540), None);
        assert!(at(10, 600).unwrap().ends_with("953.67 MiB, 10 MB/s, 40 seconds left"));
        assert_eq!(at(20, 0).unwrap(), "1 of 9 blocks, 0 B of 953.67 MiB", "another pass begins");
        assert!(at(30, 250).unwrap().ends_with("25 MB/s, 30 seconds left"));
    }
}
