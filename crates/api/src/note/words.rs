//! Texts of notes and warnings that depend on their values.

use crate::{error::Error, follow::ConnectedAtTip, size::HumanSize, wrong_hint::WrongHint};
use disk::replace::Recovery;
use wire::{FileNo, Height};

pub(super) fn checked_scripts(to: Option<Height>) -> String {
    match to {
        Some(to) => format!(
            "scripts up to height {to} are not run: bitcoind has checked them before, by the datadir's block \
             index, which is trusted"
        ),
        None => "the blocks that the block index marks as checked, without a gap from the first one, do not \
                 reach above those that are assumed to be valid by default: scripts are run as by default"
            .to_owned(),
    }
}

pub(super) fn first_wrong(hint: Option<&WrongHint>) -> String {
    hint.map_or("all hints are right, so the undo files are wrong".to_owned(), |wrong| {
        format!("the first wrong hint: {wrong}")
    })
}

pub(super) fn received(bytes: u64, total: Option<u64>) -> String {
    let of = total.map_or(String::new(), |total| format!(" of {}", HumanSize(total)));
    format!("{}{of}", HumanSize(bytes))
}

pub(super) fn no_peers(last_attempt: Option<&str>) -> String {
    last_attempt.map_or(
        "no peer is connected, and no address of one is known; check the network connection and the name \
         servers, or name a peer"
            .to_owned(),
        |last| format!("no peer is connected; the last attempt: {last}; trying again"),
    )
}

pub(super) fn connected(step: &ConnectedAtTip) -> String {
    let ConnectedAtTip { height, hash, blocks, disconnected, transactions, elapsed, since_arrival } = step;
    let before = match disconnected {
        0 => String::new(),
        blocks => format!("reorganisation: disconnected {blocks}, "),
    };
    format!(
        "{before}connected {blocks} up to height {height}, {hash}, with {transactions} transactions, {} ms \
         after the announcement, {} ms after the block had come",
        elapsed.as_millis(),
        since_arrival.as_millis()
    )
}

pub(super) fn stored_given(blocks: u32) -> String {
    match blocks {
        0 => "what was passed is stored already, and not damaged".to_owned(),
        1 => "the block that was passed is stored".to_owned(),
        blocks => format!("the {blocks} blocks that were passed are stored"),
    }
}

/// Words how many blocks are damaged, in files that do not exist, how many such files there are, how many
/// blocks are in no file, and how many have damaged undo data.
pub(super) fn found_damage([damaged, lost, lost_files, missing, undo]: [u32; 5]) -> String {
    let parts = [
        (damaged - lost, "damaged".to_owned()),
        (lost, format!("in {lost_files} missing file{}", if lost_files == 1 { "" } else { "s" })),
        (missing, "in no file".to_owned()),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let parts: Vec<String> = parts.collect();
    match (parts.is_empty(), undo) {
        (true, 0) => "no block is damaged or missing".to_owned(),
        (false, 0) => format!("blocks: {}", parts.join(", ")),
        (true, undo) => format!("blocks: none is damaged or missing; undo data: damaged for {undo} blocks"),
        (false, undo) => format!("blocks: {}; undo data: damaged for {undo} blocks", parts.join(", ")),
    }
}

pub(super) fn damage(blocks: u32, undo: u32, first: &[Error]) -> String {
    let undo = (undo > 0).then(|| format!("the undo data of {undo} blocks is damaged"));
    let headers = match blocks {
        0 => return undo.unwrap_or_default(),
        1 => "block is damaged or missing; the new block index has only its header",
        _ => "blocks are damaged or missing; the new block index has only their headers",
    };
    let what = format!("{blocks} {headers}, so that bitcoind downloads what is missing");
    let facts: Vec<String> = std::iter::once(what).chain(undo).collect();
    let first: Vec<String> = first.iter().map(Error::fact_text).collect();
    let separator = if first.is_empty() { "" } else { ": " };
    format!("{}{separator}{}", facts.join("; "), first.join("; "))
}

pub(super) fn missing_files(files: &[FileNo]) -> String {
    let first = files.first().copied().unwrap_or_default().0;
    let others = match files.len() {
        0 | 1 => String::new(),
        count => format!(" and {} other files", count - 1),
    };
    format!(
        "the block index places blocks outside the chain in blk{first:05}.dat{others}, which do not exist, \
         so that bitcoind does not start; the new block index has only their headers"
    )
}

pub(super) const fn why_unconnected(may_be_lost: bool) -> &'static str {
    match may_be_lost {
        false => "are not connected",
        true => "have no undo data: they were never connected, or their undo data is lost",
    }
}

pub(super) fn outcome(recovery: Recovery) -> &'static str {
    match recovery {
        Recovery::Finished => "; the replacement is finished now",
        Recovery::Undone => ", and the datadir was used after that; the old databases were put back in place",
        Recovery::Abandoned => {
            ", and the datadir was used after that; the databases in use were kept, and the others of that \
             run were removed"
        }
    }
}
