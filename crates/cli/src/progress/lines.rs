//! Progress without a terminal: lines with time and level for people and journals, or JSON objects for
//! programs.

use super::{
    frame::rate_text,
    state::{Amount, State, Work},
};
use crate::units::{count, counted, duration};
use engine::{HumanShare, Stage};
use peregrine::output::{Code, Level, ProgressJson, json};
use std::time::Instant;

/// Returns the time now, in UTC.
fn time() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

/// The line about a message. `note` is what it is about, for programs.
pub fn message(level: Level, text: &str, note: Option<Code<'_>>, as_json: bool) -> String {
    match as_json {
        true => json(&ProgressJson::Message { time: time(), level, note, text: text.to_owned() }),
        false => format!("{} {:<7} {text}", time(), level.name()),
    }
}

/// The line about a stage that begins.
pub fn stage(state: &State, stage: Stage, as_json: bool) -> String {
    let stages = state.number.map(|_| state.stages_total());
    if as_json {
        return json(&ProgressJson::Stage { time: time(), stage, number: state.number, stages });
    }
    let text = match state.number.zip(stages) {
        Some((number, stages)) => format!("stage {number} of {stages}: {stage}"),
        None => format!("stage: {stage}"),
    };
    message(Level::Info, &text, None, false)
}

/// The line about how much is done; `None` before the first stage, and at the tip, where each block is a
/// message.
pub fn progress(state: &State, as_json: bool, now: Instant) -> Option<String> {
    let stage = state.stage.filter(|stage| *stage != Stage::Follow)?;
    let amount = state.amount.as_ref();
    if as_json {
        return Some(json(&progress_json(state, stage, now)));
    }
    let elapsed = duration(now.saturating_duration_since(state.started));
    let mut parts = vec![match amount.and_then(Amount::share) {
        Some(share) => format!("{stage} {} %", (share * 100.0) as u32),
        None => format!("{stage}, {elapsed} since the start"),
    }];
    if let Some(amount) = amount.filter(|amount| amount.total > 0) {
        match amount.work {
            Work::Blocks { blocks, blocks_total } => {
                parts.push(HumanShare { done: amount.done, total: amount.total }.to_string());
                let text = format!("{} of {} blocks", count(blocks), count(blocks_total));
                parts.extend((blocks_total > 0).then_some(text));
            }
            Work::Coins => parts.push(format!("{} of {} coins", count(amount.done), count(amount.total))),
        }
        parts.extend(rate_text(amount, now));
        parts.extend(amount.remaining(now).map(|time| format!("{} left", duration(time))));
    }
    if let Some((peers, limit)) = &state.peers {
        parts.extend([counted(peers.len() as u64, "peer"), format!("limited by {}", limit.name())]);
    }
    Some(message(Level::Info, &parts.join(", "), None, false))
}

fn progress_json(state: &State, stage: Stage, now: Instant) -> ProgressJson<'static> {
    let amount = state.amount.as_ref();
    let blocks = amount.and_then(|amount| match amount.work {
        Work::Blocks { blocks, blocks_total } if blocks_total > 0 => Some((blocks, blocks_total)),
        _ => None,
    });
    let of = |is_bytes: bool| amount.filter(|amount| (amount.work != Work::Coins) == is_bytes);
    ProgressJson::Progress {
        time: time(),
        stage,
        blocks: blocks.map(|(blocks, _)| blocks),
        blocks_total: blocks.map(|(_, total)| total),
        bytes: of(true).map(|amount| amount.done),
        bytes_total: of(true).map(|amount| amount.total),
        coins: of(false).map(|amount| amount.done),
        coins_total: of(false).map(|amount| amount.total),
        per_second: amount.and_then(|amount| amount.rate(now)),
        seconds_remaining: amount.and_then(|amount| amount.remaining(now)).map(|time| time.as_secs_f64()),
        seconds: now.saturating_duration_since(state.started).as_secs_f64(),
        peers: state.peers.as_ref().map(|(peers, _)| peers.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Event;
    use std::time::Duration;

    #[test]
    fn a_line_has_time_and_level_and_how_much_is_done() {
        let start = Instant::now();
        let mut state = State::new(&[Stage::Plan, Stage::Check], start);
        assert!(progress(&state, false, start).is_none());
        state.event(&Event::Started(Stage::Check), start);
        let line = |state: &State, seconds| {
            let line = progress(state, false, start + Duration::from_secs(seconds)).unwrap();
            let (time, rest) = line.split_once(" info    ").unwrap();
            assert!(humantime::parse_rfc3339(time).is_ok() && time.ends_with('Z'), "{line}");
            rest.to_owned()
        };
        assert_eq!(line(&state, 3), "check, 3 s since the start");
        assert!(stage(&state, Stage::Check, false).ends_with(" info    stage 2 of 2: check"));
        for (seconds, gigabytes) in [(0, 1), (10, 217)] {
            let (bytes, bytes_total) = (gigabytes * 1_000_000_000, 632_000_000_000);
            let (blocks, blocks_total) = (712_000, 964_000);
            let progress = engine::Progress { blocks, blocks_total, bytes, bytes_total };
            state.event(&Event::Progress(progress), start + Duration::from_secs(seconds));
        }
        let mut at_tip = State::new(&[], start);
        at_tip.event(&Event::Started(Stage::Follow), start);
        assert_eq!(progress(&at_tip, true, start + Duration::from_secs(99)), None);
        let text = "check 34 %, 217 of 632 GB, 712,000 of 964,000 blocks, 21 GB/s, 19 s left";
        assert_eq!(line(&state, 10), text);
        let object: serde_json::Value =
            serde_json::from_str(&progress(&state, true, start + Duration::from_secs(10)).unwrap()).unwrap();
        assert_eq!((&object["event"], &object["stage"]), (&"progress".into(), &"check".into()));
        assert_eq!((&object["blocks_total"], object["coins"].is_null()), (&964_000.into(), true));
        let tables =
            engine::Progress { blocks: 0, blocks_total: 0, bytes: 1_000_000, bytes_total: 4_000_000 };
        state.event(&Event::Progress(tables), start);
        assert_eq!(line(&state, 0), "check 25 %, 1 of 4 MB", "a database has no blocks");
        let object = serde_json::to_value(progress_json(&state, Stage::Check, start)).unwrap();
        assert_eq!((&object["bytes_total"], object["blocks"].is_null()), (&4_000_000.into(), true));
    }
}
