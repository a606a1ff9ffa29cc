//! Captures Core's log. Its API gives only the class of a failure; the log contains the reject string.
//!
//! Core has one log for the whole process and calls back on the thread that logs. A block is validated on the
//! thread that submits it, so a buffer per thread keeps the logs of concurrent tests apart.

use bitcoinkernel::{Log, LogCategory, LogLevel, Logger};
use std::{cell::RefCell, sync::Once};

thread_local! {
    static CAPTURED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct Capture;

impl Log for Capture {
    fn log(&self, message: &str) {
        // A thread that is ending no longer has a buffer, and no caller waits for its lines.
        let _ = CAPTURED.try_with(|captured| {
            if let Some(lines) = captured.borrow_mut().as_mut() {
                lines.push(message.trim_end().to_owned());
            }
        });
    }
}

/// Runs `work`. Returns its result, and the lines that Core logged meanwhile on this thread.
///
/// # Panics
/// If Core refuses the log connection, which happens only when it is out of memory.
pub fn listen<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    static CONNECT: Once = Once::new();
    CONNECT.call_once(|| {
        let logger = Logger::new(Capture).expect("Core takes a log connection");
        logger.set_level_category(LogCategory::Validation, LogLevel::Debug);
        logger.enable_category(LogCategory::Validation);
        // The connection serves all threads until the process ends.
        std::mem::forget(logger);
    });
    let outer = CAPTURED.replace(Some(Vec::new()));
    let result = work();
    let lines = CAPTURED.replace(outer).unwrap_or_default();
    (result, lines)
}

/// The reason of a failed validation, from a log line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The reject string, such as `bad-cb-amount`.
    pub reject: String,
    /// Core's details, such as `coinbase pays too much (actual=..`; may be empty.
    pub detail: String,
}

/// Finds the reason in the lines that Core logged for one header or block.
///
/// Core's `AcceptBlockHeader`, `ProcessNewBlock` and `ConnectTip` print `BlockValidationState::ToString`: the
/// reject string, followed by a comma and the details, if there are any.
pub fn reason_in(lines: &[String]) -> Option<Reason> {
    lines.iter().find_map(|line| {
        let state = if let Some((_, rest)) = line.split_once("AcceptBlock FAILED (") {
            rest.strip_suffix(')')?
        } else if let Some((_, rest)) = line.split_once("CheckBlockHeader: ") {
            rest.split_once(", ")?.1
        } else if let Some((_, rest)) = line.split_once("ConnectBlock ") {
            rest.split_once(" failed, ")?.1
        } else {
            HEADER_LINES.iter().find(|(part, _)| line.contains(part))?.1
        };
        let (reject, detail) = state.split_once(", ").unwrap_or((state, ""));
        Some(Reason { reject: reject.to_owned(), detail: detail.to_owned() })
    })
}

/// Parts of log lines about headers that do not contain the reject string, each with its reject string.
const HEADER_LINES: [(&str, &str); 3] = [
    ("has prev block not found", "prev-blk-not-found"),
    ("has prev block invalid", "bad-prevblk"),
    ("is marked invalid", "duplicate-invalid"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(line: &str) -> Option<(String, String)> {
        reason_in(&["UpdateTip: new best".to_owned(), line.to_owned()])
            .map(|found| (found.reject, found.detail))
    }

    #[test]
    fn reject_strings_are_found_in_core_log_lines() {
        let pair = |reject: &str, detail: &str| Some((reject.to_owned(), detail.to_owned()));
        let found = reason("[error] ProcessNewBlock: AcceptBlock FAILED (high-hash, proof of work failed)");
        assert_eq!(found, pair("high-hash", "proof of work failed"));
        let found = reason("ProcessNewBlock: AcceptBlock FAILED (bad-cb-multiple)");
        assert_eq!(found, pair("bad-cb-multiple", ""));
        let found =
            reason("ConnectTip: ConnectBlock 00ff failed, bad-cb-amount, pays too much (actual=2, limit=1)");
        assert_eq!(found, pair("bad-cb-amount", "pays too much (actual=2, limit=1)"));
        let found =
            reason("AcceptBlockHeader: Consensus::ContextualCheckBlockHeader: 00ff, time-too-old, too early");
        assert_eq!(found, pair("time-too-old", "too early"));
        assert_eq!(reason("header 00ff has prev block invalid: 11ee"), pair("bad-prevblk", ""));
        assert_eq!(reason("ConnectBlock something else"), None);
    }
}
