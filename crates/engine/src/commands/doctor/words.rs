//! What an examination shows, in words.

use super::advice::Advice;
use super::diagnosis::{
    ChainstatePosition, ChainstateState, DatabaseState, FilesState, IndexState, LockState,
};
use super::indexes::{FoundIndex, IndexStanding};
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

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("no"),
            Self::Unknown => f.write_str("unknown (the lock files cannot be opened)"),
            Self::Unsupported(error) => {
                write!(f, "unknown: the file system has no locks ({})", error.fact_text())
            }
            Self::Held(holder) => write!(f, "yes: {holder} is running on it"),
            Self::BlocksHeld(holder) => {
                write!(f, "its block files are: {holder} is running on a datadir that shares them")
            }
        }
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
        self.left_at.map_or(Ok(()), |height| {
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
        for (names, what) in [(&self.missing, "missing"), (&self.short, "too short")] {
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
        let interrupted = "bitcoind was stopped while it wrote, and completes that when it starts";
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

impl fmt::Display for FoundIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match &self.standing {
            IndexStanding::Synced => f.write_str(" at the chainstate's best block"),
            IndexStanding::Behind(blocks) => write!(f, " {blocks} blocks behind, bitcoind continues it"),
            IndexStanding::OffChain(height) => {
                write!(f, " ends at height {height} on another branch or ahead, which bitcoind takes back")
            }
            IndexStanding::BelowPruned { height, first } => write!(
                f,
                " ends at height {height}, but the blocks below {first} were deleted, so it cannot be \
                 continued: bitcoind does not start with it"
            ),
            IndexStanding::Empty => f.write_str(" empty, bitcoind makes it"),
            IndexStanding::Unreadable(error) => write!(f, " cannot be read: {}", error.fact_text()),
            IndexStanding::Superseded => {
                f.write_str(" of a release up to 29, no longer used: it can be deleted")
            }
            IndexStanding::UnknownBestBlock => f.write_str(
                " ends with a block that the block index does not contain; bitcoind does not start",
            ),
            IndexStanding::Misplaced => {
                f.write_str(" has places of blocks where none is: transactions would not be found")
            }
            IndexStanding::Damaged(error) => write!(f, " damaged: {}", error.fact_text()),
            IndexStanding::NotExamined => f.write_str(" (not examined)"),
        }
    }
}

/// Words what to do next, without the command.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartBitcoind => {
            "start your node as always, or with bitcoind; what is left to do, it does when it starts"
        }
            Self::StartWithoutUndo => {
            "start bitcoind without its check of undo data: some is missing, and a pruned node cannot get it \
             back; until new blocks are connected, it cannot disconnect these"
        }
            Self::LetItRun => "nothing: bitcoind is running, and nothing is wrong",
            Self::StopBitcoind => "stop bitcoind, wait until it has ended, and examine again",
            Self::Wait => "wait until the other program that uses the datadir has ended",
            Self::NameDatadir => "pass the directory that bitcoind uses as its datadir",
            Self::ChooseNetwork { network } => {
                return write!(f, "examine the blocks of {network}, which are here");
            }
            Self::NameBlocksdir { .. } => {
            "pass the directory in which bitcoind keeps block files: there are none here"
        }
            Self::NameChallenge => "pass the challenge of this signet",
            Self::RunAs { user } => return write!(f, "examine it as user {user}"),
            Self::ChangeOwner { .. } => "give these directories to the owner of the datadir",
            Self::CheckDisk => "look for errors of the disk: a file cannot be read, or none can be written",
            Self::LookDeeper => "read everything: debug.log reports an error of a database",
            Self::CorrectClock => "correct the clock: bitcoind does not start with a block from the future",
            Self::ProvideLocks { .. } => {
                "mount the file system with locks (NFS: without nolock), or move the datadir: bitcoind does \
                 not start"
            }
            Self::CorrectSetting { is_removable: true, .. } => {
                "remove a setting of bitcoind, and examine again"
            }
            Self::CorrectSetting { .. } => "change a setting of bitcoind, and examine again",
            Self::MoveAway { .. } => {
            "move away what is not as bitcoind needs it there, and examine again"
        }
            Self::RestoreLink { .. } => "restore what a link leads to, which is not there, and examine again",
            Self::RestoreKey { .. } => "restore xor.dat, whose contents follow from the block files",
            Self::TakeFromFiles { .. } => {
            "take the blocks of files that bitcoind cannot read: they have other keys, or other names"
        }
            Self::FinishReplacement => "finish or undo the replacement of databases that was interrupted",
            Self::Sync => "download the blocks that are missing",
            Self::SyncPruned => {
                "download all blocks again, and make the chainstate meanwhile; the node stays pruned"
            }
            Self::Repair => "download the blocks that are damaged or missing, and rebuild what needs it",
            Self::Reindex => "rebuild the chainstate",
            Self::ReindexByScan => "rebuild the block index and the chainstate from the block files",
            Self::Reconsider { .. } => {
                "return to the chain of Bitcoin Core: its blocks are checked, whatever marks say of them"
            }
            Self::MakeUndo => "make the undo data that is missing or damaged",
            Self::MakeIndexes { .. } => "make the indexes anew with which bitcoind cannot go on",
            Self::MoveSnapshotAway => "set the snapshot's chainstate aside, and examine again",
            Self::BitcoindReindex => "let bitcoind download blocks again: not all are stored and sound",
        })
    }
}
