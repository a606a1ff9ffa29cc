//! What a terminal shows: one line about the work, and a table of peers below it while blocks are
//! downloaded. Each line fits into the terminal's width.

use super::state::{Amount, State, Work};
use crate::units::{clock, count, counted};
use engine::{HumanShare, HumanSize, Stage};
use std::time::Instant;
use sync::{DownloadLimit, PeerStatus};

/// Number of peers that are shown.
const SHOWN_PEERS: usize = 8;
/// Least width of the bar, in columns.
const BAR_MIN: usize = 8;
/// Greatest width of the bar, in columns.
const BAR_MAX: usize = 60;

/// Returns the lines for a terminal of `width` columns. The last column stays free, where some terminals
/// would begin a new line.
pub fn lines(state: &State, width: usize, colour: bool, now: Instant) -> String {
    let width = width.saturating_sub(1);
    let mut text = work_line(state, width, colour, now);
    if let Some((peers, limit)) = &state.peers {
        for line in peers_table(peers, *limit, width) {
            text.push('\n');
            text.extend(line.chars().take(width));
        }
    }
    text
}

/// The line about the work. As the width shrinks, it loses elapsed time, rate, amount and the bar; what
/// remains is cut off.
fn work_line(state: &State, width: usize, colour: bool, now: Instant) -> String {
    let Some(stage) = state.stage else { return String::new() };
    let label = match state.number {
        Some(number) => format!("[{number}/{} {stage}]", state.stages_total()),
        None => format!("[{stage}]"),
    };
    let elapsed = clock(now.saturating_duration_since(state.started));
    let Some((amount, share)) = state.amount.as_ref().and_then(|amount| Some((amount, amount.share()?)))
    else {
        return format!("{label} {elapsed}").chars().take(width).collect();
    };
    let percent = format!(" {:>3} %", (share * 100.0) as u32);
    let left = amount.remaining(now).map_or(String::new(), |time| format!("  {} left", clock(time)));
    let rate = rate_text(amount, now).map_or(String::new(), |rate| format!("  {rate}"));
    // In the order in which they are shown, each with its rank among those that are kept.
    let parts = [
        (0, percent),
        (2, format!("  {}", amount_text(amount, stage))),
        (3, rate),
        (4, format!("  {elapsed}")),
        (1, left),
    ];
    let fixed = label.chars().count() + 1;
    let fits = |kept: u32| {
        let parts = parts.iter().filter(|(rank, _)| *rank < kept);
        let used = fixed + parts.map(|(_, text)| text.chars().count()).sum::<usize>();
        width.checked_sub(used)
    };
    let kept = (2..=5).rev().find(|&kept| fits(kept).is_some_and(|free| free >= BAR_MIN)).unwrap_or(2);
    let free = fits(kept).unwrap_or_default();
    let bar = if free >= BAR_MIN { bar(share, free.min(BAR_MAX), colour) } else { String::new() };
    let rest: String = parts.iter().filter(|(rank, _)| *rank < kept).map(|(_, text)| text.as_str()).collect();
    match bar.is_empty() {
        // Too narrow for all: without escape sequences, it can be cut off anywhere.
        true => format!("{label}{rest}").chars().take(width).collect(),
        false => format!("{label} {bar}{rest}"),
    }
}

/// Draws `share`, from 0 to 1, with half columns.
fn bar(share: f64, width: usize, colour: bool) -> String {
    let halves = (share * (2 * width) as f64) as usize;
    let done = "━".repeat(halves / 2) + if halves % 2 == 1 { "╸" } else { "" };
    let rest = width - done.chars().count();
    match colour {
        true => format!("\x1b[36m{done}\x1b[90m{}\x1b[0m", "━".repeat(rest)),
        false => done + &"─".repeat(rest),
    }
}

fn amount_text(amount: &Amount, stage: Stage) -> String {
    match amount.work {
        // The sizes of blocks that have not come are estimates.
        Work::Blocks { blocks, blocks_total } if stage == Stage::Download => {
            format!("{}/{} blocks, {}", count(blocks), count(blocks_total), HumanSize(amount.done))
        }
        Work::Blocks { .. } => format!("{:#}", HumanShare { done: amount.done, total: amount.total }),
        Work::Coins => format!("{}/{} coins", count(amount.done), count(amount.total)),
    }
}

/// How fast the work goes; `None` if that is not known.
pub fn rate_text(amount: &Amount, now: Instant) -> Option<String> {
    let rate = amount.rate(now)? as u64;
    Some(match amount.work {
        Work::Blocks { .. } => format!("{}/s", HumanSize(rate)),
        Work::Coins => format!("{} coins/s", count(rate)),
    })
}

/// A line for each of the peers that have delivered most, below a summary. Narrow tables have fewer
/// columns.
fn peers_table(peers: &[PeerStatus], limit: DownloadLimit, width: usize) -> Vec<String> {
    let now = peers.iter().filter_map(|peer| peer.bytes_per_second).fold(0.0, |sum, speed| sum + speed);
    let summary = format!(
        "{}, {}/s now, limited by {}",
        counted(peers.len() as u64, "peer"),
        HumanSize(now as u64),
        limit.name()
    );
    let row = |cells: [String; 7]| {
        let [peer, transport, ping, speed, size, blocks, program] = cells;
        match width {
            ..58 => format!("{peer:<20.20} {speed:>10}"),
            58..79 => format!("{peer:<22.22} {speed:>10} {size:>8} {blocks:>7}"),
            79.. => format!(
                "{peer:<30.30} {transport:<2} {ping:>8} {speed:>10} {size:>8} {blocks:>7}  {program:.24}"
            ),
        }
    };
    let head = ["peer", "", "ping", "rate", "data", "blocks", "program"].map(str::to_owned);
    let mut table = vec![summary, row(head)];
    for peer in peers.iter().take(SHOWN_PEERS) {
        let speed = |speed: f64| format!("{}/s", HumanSize(speed as u64));
        table.push(row([
            peer.peer.clone(),
            peer.transport.to_string(),
            format!("{} ms", peer.round_trip.as_millis()),
            peer.bytes_per_second.map_or_else(|| "-".to_owned(), speed),
            HumanSize(peer.bytes).to_string(),
            count(peer.blocks),
            peer.user_agent.clone(),
        ]));
    }
    if peers.len() > SHOWN_PEERS {
        table.push(format!("... and {} more", peers.len() - SHOWN_PEERS));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{CoinProgress, Event};
    use std::time::Duration;
    use sync::TransportVersion;

    const STAGES: [Stage; 4] = [Stage::Plan, Stage::Check, Stage::Finish, Stage::Prove];

    fn checking() -> (State, Instant) {
        let start = Instant::now();
        let mut state = State::new(&STAGES, start);
        state.event(&Event::Started(Stage::Check), start);
        for (seconds, megabytes) in [(0, 0), (4, 217)] {
            let bytes = megabytes * 1_000_000;
            let progress = engine::Progress { blocks: 12, blocks_total: 90, bytes, bytes_total: 632_000_000 };
            state.event(&Event::Progress(progress), start + Duration::from_secs(seconds));
        }
        (state, start + Duration::from_secs(4))
    }

    /// Their sum would change all the time.
    #[test]
    fn a_download_counts_blocks_and_no_estimated_bytes() {
        let (mut state, now) = checking();
        state.event(&Event::Started(Stage::Download), now);
        let progress = engine::Progress {
            blocks: 1_200,
            blocks_total: 90_000,
            bytes: 7_000_000,
            bytes_total: 632_000_000,
        };
        state.event(&Event::Progress(progress), now);
        let text = lines(&state, 100, false, now);
        assert!(text.contains("1,200/90,000 blocks, 7 MB") && !text.contains("632"), "{text}");
    }

    #[test]
    fn parts_are_dropped_as_the_width_shrinks() {
        let (state, now) = checking();
        let line = |width| lines(&state, width, false, now);
        assert_eq!(line(12), "[2/4 check]");
        assert_eq!(line(30), "[2/4 check]  34 %  00:07 left");
        assert_eq!(line(40), "[2/4 check] ━━━──────  34 %  00:07 left");
        assert_eq!(line(60), "[2/4 check] ━━╸─────  34 %  217/632 MB  54 MB/s  00:07 left");
        let all = "  34 %  217/632 MB  54 MB/s  00:04  00:07 left";
        assert!(line(80).ends_with(all) && line(200).ends_with(all), "{}", line(80));
        for width in 1..=200 {
            let text = line(width);
            assert!(text.chars().count() < width, "{width}: {text}");
        }
        assert!(line(200).chars().filter(|c| "━╸─".contains(*c)).count() == BAR_MAX);
    }

    #[test]
    fn without_an_amount_the_time_goes_on() {
        let (mut state, now) = checking();
        state.event(&Event::Started(Stage::Finish), now);
        let line = |state: &State, seconds| lines(state, 80, false, now + Duration::from_secs(seconds));
        assert_eq!(line(&state, 3), "[3/4 finish] 00:07");
        state.event(&Event::Coins(CoinProgress { coins: 0, coins_total: 0 }), now);
        assert_eq!(line(&state, 4), "[3/4 finish] 00:08", "nothing of nothing is not a full bar");
        state.event(&Event::Coins(CoinProgress { coins: 0, coins_total: 1_200_000 }), now);
        assert!(line(&state, 4).contains("──   0 %  0/1,200,000 coins"), "{}", line(&state, 4));
    }

    #[test]
    fn colour_changes_no_width() {
        let (state, now) = checking();
        let coloured = lines(&state, 80, true, now);
        let plain = coloured.replace("\x1b[36m", "").replace("\x1b[90m", "").replace("\x1b[0m", "");
        assert!(coloured.contains("\x1b[36m"));
        assert_eq!(plain.chars().count(), lines(&state, 80, false, now).chars().count());
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
        let table = peers_table(&peers, DownloadLimit::Network, 100);
        assert_eq!(table[0], "10 peers, 13 MB/s now, limited by the network");
        let line = "10.0.0.1:8333                  v2    42 ms          -   9.1 MB       7  /Satoshi:31.0.0/";
        assert_eq!(table[2], line);
        assert!(table[3].contains(" 1.5 MB/s ") && table[3].starts_with("10.0.0.2:8333 "), "{table:?}");
        assert_eq!((table.len(), table[10].as_str()), (11, "... and 2 more"));
        let (mut state, now) = checking();
        state.peers = Some((peers, DownloadLimit::Network));
        for width in [40, 60, 80, 200] {
            let text = lines(&state, width, false, now);
            assert!(text.lines().all(|line| line.chars().count() < width), "{width}: {text}");
            let row = text.lines().nth(4).unwrap();
            assert!(row.starts_with("10.0.0.2:8333 ") && row.contains(" 1.5 MB/s"), "{width}: {row}");
        }
    }
}
