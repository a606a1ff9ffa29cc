//! What an examination shows, in words.

use super::diagnosis::{ChainstatePosition, ChainstateState, DatabaseState, FilesState, IndexState};
use api::size::HumanSize;
use disk::departed::WRITTEN_BY;
use std::fmt;
use wire::Height;

/// Words the state of a database, unless it is sound.
fn flaw_text(state: &DatabaseState) -> Option<String> {
    match state {
        DatabaseState::Sound => None,
        DatabaseState::Absent => Some("absent".to_owned()),
        DatabaseState::Broken(error) => Some(format!("broken: {}", error.fact_text())),
        DatabaseState::Unreadable(error) => Some(format!("cannot be read: {}", error.fact_text())),
    }
}

impl fmt::Display for IndexState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match flaw_text(&self.state) {
            Some(flaw) => f.write_str(&flaw)?,
            None => write!(
                f,
                "sound: {} blocks and {} headers; blocks are stored up to height {}, headers reach {}",
                self.blocks, self.headers, self.stored_height, self.header_height
            )?,
        }
        if self.departed > 0 {
            write!(f, "; {} more were {WRITTEN_BY}, and bitcoind does not start with them", self.departed)?;
        }
        if let Some((height, hash, tip)) = self.marked_invalid {
            write!(
                f,
                "; block {hash} ({height}) is marked as invalid, so the blocks up to height {tip} are left \
                 out; if it is valid, run bitcoin-cli reconsiderblock {hash} when bitcoind runs"
            )?;
        }
        self.left_at.map_or(Ok(()), |(height, _)| {
            write!(
                f,
                "; this node has left Bitcoin's chain at height {height}: Bitcoin Knots with BIP 110 refused \
                 the block there in August 2026, and followed a branch that ended eight blocks later, while \
                 all other nodes went on; nothing is damaged"
            )
        })
    }
}

impl fmt::Display for FilesState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.files, HumanSize(self.bytes))?;
        let named =
            [(&self.missing, "missing"), (&self.short, "too short"), (&self.unread, "cannot be read")];
        for (names, what) in named {
            if let Some(first) = names.first() {
                let others = names.len() - 1;
                let more = if others > 0 { format!(" and {others} more") } else { String::new() };
                write!(f, "; {first}{more} {what}")?;
            }
        }
        if self.lost > 0 {
            write!(f, "; {} blocks were in them", self.lost)?;
        }
        if self.lost_stale > 0 {
            write!(f, ", {} of them stale", self.lost_stale)?;
        }
        if self.unrecorded > 0 {
            write!(f, "; the block index places nothing for {} blocks", self.unrecorded)?;
        }
        if self.beyond_use > 0 {
            write!(f, "; the block index places {} blocks beyond the bytes in use", self.beyond_use)?;
        }
        if self.unknown_blocks > 0 {
            let (blocks, bytes, files) =
                (self.unknown_blocks, HumanSize(self.unknown_bytes), self.unknown_files);
            write!(f, "; {blocks} more blocks with {bytes} in {files} files are not in the block index: ")?;
            f.write_str(&match self.deleted_files {
                0 => "bitcoind overwrites them one day, sync takes what the chain needs".to_owned(),
                deleted => format!(
                    "bitcoind deletes {deleted} of these files when it starts; a download of all blocks \
                     takes them"
                ),
            })?;
        }
        if self.departed > 0 {
            write!(f, "; {} blocks beyond the bytes in use were {WRITTEN_BY}", self.departed)?;
        }
        self.first.map_or(Ok(()), |(height, hash)| write!(f, "; the first is {hash} ({height})"))
    }
}

impl fmt::Display for ChainstateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interrupted =
            "bitcoind was stopped while it wrote; if it has the blocks, it completes that when it starts";
        let flaw = flaw_text(&self.state).or(self.flush_interrupted.then(|| interrupted.to_owned()));
        let Some(best) = self.best_block else {
            return f.write_str(flaw.as_deref().unwrap_or("no best block"));
        };
        match flaw {
            Some(flaw) => write!(f, "{flaw}; ")?,
            None => f.write_str("opens: ")?,
        }
        let height = self.height.map_or("height unknown".to_owned(), |Height(height)| height.to_string());
        write!(f, "block {best} ({height})")?;
        match self.position {
            None => Ok(()),
            Some(ChainstatePosition::AtTip) => f.write_str(", at the last stored block"),
            Some(ChainstatePosition::Behind(blocks)) => {
                write!(f, ", {blocks} blocks below the last stored one")
            }
            Some(ChainstatePosition::OnBranch { fork, stored }) => write!(
                f,
                ", on a branch that leaves the chain with the most work above height {fork}; the blocks of \
                 that chain are stored up to height {stored}"
            ),
            Some(ChainstatePosition::NotInIndex) => f.write_str(", which the block index does not contain"),
            Some(ChainstatePosition::NotStored) => {
                f.write_str(", which none of the last block files contains")
            }
        }
    }
}
