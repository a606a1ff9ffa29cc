//! Shows progress: a bar on a terminal, otherwise a line every few seconds. Work is counted in bytes, not in
//! heights: a block of 2024 has a thousand times the bytes of one of 2009.

use clap::ValueEnum;
use engine::{DownloadLimit, Event, EventSink, PeerEvent, PeerStatus, Stage, TransportVersion};
use indicatif::{HumanBytes, HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use peregrine::{remedy, stop};
use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Number of peers that are shown on a terminal.
const SHOWN_PEERS: usize = 8;

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
    Bar(Bars),
    Log(Mutex<Lines>),
    None,
}

/// A bar, and below it a table of peers while blocks are downloaded.
pub struct Bars {
    all: MultiProgress,
    bar: ProgressBar,
    peers: ProgressBar,
}

/// Decides when to write a line of progress, and what is in it.
#[derive(Default)]
pub struct Lines {
    /// When the last line was written.
    last: Option<Instant>,
    /// When progress was first reported, and how many bytes were done then: an earlier run may have done
    /// some.
    started: Option<(Instant, u64)>,
    /// While blocks are downloaded: the number of peers, and what limits the speed.
    peers: Option<(usize, DownloadLimit)>,
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
        if let Some((peers, limit)) = self.peers {
            line += &format!(", {peers} peers, limited by {}", limit.name());
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
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        let (bar, peers) = (all.add(ProgressBar::new(0)), all.add(ProgressBar::new(0)));
        let template =
            "{prefix:>8} [{wide_bar}] {msg} {bytes}/{total_bytes} {binary_bytes_per_sec} ETA {eta}";
        let style = |template| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        bar.set_style(style(template));
        peers.set_style(style("{msg}"));
        Self::Bar(Bars { all, bar, peers })
    }

    /// Removes the bar from the screen.
    pub fn close(&self) {
        if let Self::Bar(Bars { bar, peers, .. }) = self {
            stop::writing(|| {
                peers.finish_and_clear();
                bar.finish_and_clear();
            });
        }
    }

    fn print(&self, text: &str) {
        match self {
            Self::Bar(bars) => bars.all.suspend(|| line(text)),
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
                Self::Bar(bars) => {
                    bars.bar.set_prefix(stage.name());
                    bars.peers.set_message("");
                }
                Self::Log(lines) => {
                    lock(lines).peers = None;
                    if !matches!(stage, Stage::Read | Stage::Match) {
                        line(&format!("{stage}"));
                    }
                }
                Self::None => {}
            },
            Event::Planned { height, hash, .. } => {
                self.print(&format!("chain tip at height {height}, block {hash}"));
            }
            Event::Progress(progress) => match self {
                Self::Bar(Bars { bar, .. }) => {
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
                    if let Some(text) = lock(lines).next(&progress, Instant::now()) {
                        line(&text);
                    }
                }
                Self::None => {}
            },
            Event::Peer(PeerEvent::Status { peers, limit }) => match self {
                Self::Bar(bars) => bars.peers.set_message(peers_table(&peers, limit)),
                Self::Log(lines) => lock(lines).peers = Some((peers.len(), limit)),
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

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn peer_text(event: &PeerEvent) -> Option<String> {
    match event {
        PeerEvent::Connected { peer, user_agent, transport, height } => {
            let transport = transport_name(*transport);
            Some(format!("peer {peer}: connected, {transport}, {user_agent}, height {height}"))
        }
        PeerEvent::Closed { peer, reason } => Some(format!("peer {peer}: {reason}")),
        _ => None,
    }
}

pub const fn transport_name(transport: TransportVersion) -> &'static str {
    match transport {
        TransportVersion::V1 => "v1",
        TransportVersion::V2 => "v2",
    }
}

/// A line for each of the peers that have delivered most, below a summary.
fn peers_table(peers: &[PeerStatus], limit: DownloadLimit) -> String {
    let now = peers.iter().filter_map(|peer| peer.bytes_per_second).fold(0.0, |sum, speed| sum + speed);
    let mut table = format!(
        "{} peers, {:.1} MB/s now, limited by {}\n{:<30} {:<2} {:>8} {:>9} {:>9} {:>8}  program",
        peers.len(),
        now / 1e6,
        limit.name(),
        "peer",
        "",
        "ping",
        "MB/s",
        "MB",
        "blocks",
    );
    for peer in peers.iter().take(SHOWN_PEERS) {
        let speed =
            peer.bytes_per_second.map_or_else(|| "-".to_owned(), |speed| format!("{:.2}", speed / 1e6));
        table += &format!(
            "\n{:<30.30} {:<2} {:>5} ms {speed:>9} {:>9.1} {:>8}  {:.24}",
            peer.peer,
            transport_name(peer.transport),
            peer.round_trip.as_millis(),
            peer.bytes as f64 / 1e6,
            peer.blocks,
            peer.user_agent,
        );
    }
    if peers.len() > SHOWN_PEERS {
        table += &format!("\n... and {} more", peers.len() - SHOWN_PEERS);
    }
    table
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

    #[test]
    fn the_table_of_peers_shows_some_of_them_and_what_limits_the_speed() {
        let peer = |number: u32| PeerStatus {
            peer: format!("10.0.0.{number}:8333"),
            user_agent: "/Satoshi:31.0.0/".to_owned(),
            transport: TransportVersion::V2,
            round_trip: Duration::from_millis(42),
            blocks: 7,
            bytes: 9_100_000,
            bytes_per_second: (number > 1).then_some(1_500_000.0),
            bytes_in_flight: 0,
        };
        let peers: Vec<_> = (1..=10).map(peer).collect();
        let table = peers_table(&peers, DownloadLimit::Network);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], "10 peers, 13.5 MB/s now, limited by the network");
        let line =
            "10.0.0.1:8333                  v2    42 ms         -       9.1        7  /Satoshi:31.0.0/";
        assert_eq!(lines[2], line);
        assert!(lines[3].contains(" 1.50 ") && lines[3].starts_with("10.0.0.2:8333 "), "{table}");
        assert_eq!((lines.len(), lines[10]), (11, "... and 2 more"));
    }
}
