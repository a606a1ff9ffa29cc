//! What the user can do about an error.

use disk::{Obstacle, node_indexes::IndexKind};
use std::{fmt, path::Path};
use vfs::{Disk, Limit};
use wire::{Height, Network};

/// Something that the user can do about an error. `Display` words it for users of this library; a program
/// with flags or buttons names those instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Remedy {
    /// Do not read the block index, but scan the block files and write a new index
    /// ([`crate::options::ReindexOptions::scan`]).
    RebuildIndex,
    /// Discard the checkpoint of an interrupted run ([`crate::options::ResumeOptions::restart`]).
    StartOver,
    /// Run the interrupted job again with the options that it had.
    RepeatOptions,
    /// Run the interrupted job again, to complete it.
    Resume {
        /// Number of blocks that are done.
        done: u32,
        /// Number of blocks of the job.
        total: u32,
        /// Whether the interrupted run discarded a checkpoint, which the next one must not do.
        without_restart: bool,
    },
    /// Allow more memory ([`crate::options::ChainOptions::memory_bytes`]).
    MoreMemory,
    /// Use fewer threads ([`crate::options::ChainOptions::threads`]).
    FewerThreads,
    FreeDiskSpace,
    /// Write the result to another place ([`crate::options::ReindexOptions::output`]).
    OtherOutput,
    /// Write the result to a directory that is empty or new ([`crate::options::ReindexOptions::output`]).
    EmptyOutput,
    /// Write temporary files to another place ([`crate::options::ChainOptions::work_dir`]).
    OtherWorkDir,
    /// Choose another name for a file.
    OtherName,
    /// Create the directory that a file is to be in.
    CreateDirectory,
    /// Move away what is at a path.
    MoveAway,
    /// Move away the chainstate of a snapshot, so that bitcoind starts without it.
    MoveSnapshotAway,
    /// Mount a file system one level higher.
    MountHigher,
    /// Do not keep the old databases ([`crate::options::ReindexOptions::keep_old`]).
    DropOldDatabases,
    /// Make these indexes anew in the same run.
    BringIndexes([Option<IndexKind>; 4]),
    /// Set indexes aside that would become wrong ([`crate::options::ReindexOptions::set_aside_indexes`]).
    SetIndexesAside,
    /// Choose this height as the last one ([`crate::options::ReindexOptions::stop_at_height`]).
    StopAtHeight(Height),
    /// Check blocks that are marked invalid ([`crate::options::ChainOptions::reconsider`]).
    Reconsider,
    /// Accept a result that is lower than what it replaces
    /// ([`crate::options::ReindexOptions::accept_lower_tip`]).
    AcceptLowerTip,
    /// Rebuild the chainstate, and accept that it becomes lower.
    ReindexToLowerTip,
    /// Rebuild the block index and the chainstate.
    ReindexByScan,
    /// Finish or undo a replacement of databases that was interrupted (`recover`).
    Recover,
    /// Choose this network ([`crate::options::ChainOptions::params`]).
    ChooseNetwork(Network),
    /// Name the challenge of the signet ([`crate::options::ChainOptions::params`]).
    NameChallenge,
    /// Download blocks that are damaged or missing (`repair`).
    Repair,
    /// Pass blocks that are damaged or missing ([`crate::options::ReindexOptions::blocks`]).
    GiveBlock,
    /// Rebuild the chainstate up to the block below the damage
    /// ([`crate::options::ReindexOptions::until_damage`]).
    EndBelowDamage,
    /// Take blocks from block files, those of the datadir itself or others (`RepairOptions::sources`).
    TakeFromFiles,
    /// Name a peer to download from (`PeerOptions::connect`).
    NamePeer,
    /// Restore the file that the error names.
    RestoreFile,
    /// Restore files that are missing.
    RestoreFiles,
    /// Run `bitcoind -reindex`, to write a new block index.
    BitcoindReindex,
    /// Run `bitcoind -reindex`, to download blocks again.
    BitcoindDownload,
    RebuildChainstate,
    /// Name the index that is to be made (`make_indexes`).
    NameIndex,
    /// Make the index anew (`make_indexes`).
    MakeIndex,
    /// Check the range again, on another machine if need be (`check_range`).
    CheckRangeAgain,
    /// Pass each of the deltas once (`merge_deltas`).
    GiveAllDeltas,
    /// Verify the blocks, to find the first conflict.
    Verify,
    /// Let bitcoind validate the blocks below the snapshot that it started from.
    LetBitcoindFinish,
    /// End the program that uses the files.
    EndOtherProgram,
    /// Wait until another process of Peregrine ends.
    Wait,
    /// Allow this process to access the file.
    GrantPermission,
    /// Mount the file system for writing.
    MountWritable,
    /// Mount the file system with locks.
    MountWithLocks,
    /// Run the command as the user with this id.
    RunAs(u32),
    /// Raise a limit of the system.
    RaiseLimit(Limit),
    /// Raise the limit on processes and threads.
    RaiseProcessLimit,
    /// Correct the clock of the machine.
    CorrectClock,
    /// Choose a later assumed-valid block ([`crate::options::ChainOptions::assume_valid`]).
    LaterAssumedBlock,
    /// Use undo data ([`crate::options::HintOptions::without_undo`]).
    UseUndoData,
    /// Make the undo data that is missing or damaged (`make_undo`).
    MakeUndo,
    /// Run without hints ([`crate::options::ReindexOptions::hints`]).
    WithoutHints,
    /// Run without hints if they are wrong, and find the first wrong one
    /// ([`crate::options::HintOptions::on_failure_join`]).
    FallBackToJoin,
    /// Name the format of a hint file.
    NameHintFormat,
    /// Pass a datadir whose blocks complete what a hint file contains.
    GiveDatadir,
    /// Delete block files (`SyncOptions::prune_bytes`).
    Prune,
    /// Download the blocks again that were deleted (`SyncOptions::unprune`).
    Unprune,
    /// Delete no block files (`SyncOptions::prune_bytes`).
    WithoutPruning,
    /// Name the Merkle root of the snapshot (`FetchOptions::root`).
    NameRoot,
    /// Take the root that the sources state (`FetchOptions::trust_sources`).
    TrustSources,
    /// Name another source of the snapshot too (`FetchOptions::sources`).
    AddSource,
    /// Wait for peers that have what is missing (`PeerOptions::wait`).
    WaitForPeers,
}

impl Remedy {
    /// To run as the owner of a file or directory, unless this process does, or is root.
    pub fn run_as_owner(disk: &dyn Disk, path: &Path) -> Option<Self> {
        let owner = disk.ownership(path).ok()?.uid;
        (![0, owner].contains(&disk.user())).then_some(Self::RunAs(owner))
    }

    /// Its name for programs. Names are stable.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RebuildIndex => "rebuild-index",
            Self::BringIndexes(_) => "bring-indexes",
            Self::SetIndexesAside => "set-indexes-aside",
            Self::StartOver => "start-over",
            Self::RepeatOptions => "repeat-options",
            Self::Resume { .. } => "resume",
            Self::MoreMemory => "more-memory",
            Self::FewerThreads => "fewer-threads",
            Self::FreeDiskSpace => "free-disk-space",
            Self::OtherOutput => "other-output",
            Self::EmptyOutput => "empty-output",
            Self::OtherWorkDir => "other-work-dir",
            Self::OtherName => "other-name",
            Self::CreateDirectory => "create-directory",
            Self::MoveAway => "move-away",
            Self::MoveSnapshotAway => "move-snapshot-away",
            Self::MountHigher => "mount-higher",
            Self::DropOldDatabases => "drop-old-databases",
            Self::StopAtHeight(_) => "stop-at-height",
            Self::Reconsider => "reconsider",
            Self::AcceptLowerTip => "accept-lower-tip",
            Self::ReindexToLowerTip => "reindex-to-lower-tip",
            Self::ReindexByScan => "reindex-by-scan",
            Self::Recover => "recover",
            Self::ChooseNetwork(_) => "choose-network",
            Self::NameChallenge => "name-challenge",
            Self::Repair => "repair",
            Self::GiveBlock => "give-block",
            Self::EndBelowDamage => "end-below-damage",
            Self::TakeFromFiles => "take-from-files",
            Self::NamePeer => "name-peer",
            Self::RestoreFile => "restore-file",
            Self::RestoreFiles => "restore-files",
            Self::BitcoindReindex | Self::BitcoindDownload => "bitcoind-reindex",
            Self::RebuildChainstate => "rebuild-chainstate",
            Self::NameIndex => "name-index",
            Self::MakeIndex => "make-index",
            Self::CheckRangeAgain => "check-range-again",
            Self::GiveAllDeltas => "give-all-deltas",
            Self::Verify => "verify",
            Self::LetBitcoindFinish => "let-bitcoind-finish",
            Self::EndOtherProgram => "end-other-program",
            Self::Wait => "wait",
            Self::GrantPermission => "grant-permission",
            Self::MountWritable => "mount-writable",
            Self::MountWithLocks => "mount-with-locks",
            Self::RunAs(_) => "run-as",
            Self::RaiseLimit(_) => "raise-limit",
            Self::RaiseProcessLimit => "raise-process-limit",
            Self::CorrectClock => "correct-clock",
            Self::LaterAssumedBlock => "later-assumed-block",
            Self::UseUndoData => "use-undo-data",
            Self::MakeUndo => "make-undo",
            Self::WithoutHints => "without-hints",
            Self::FallBackToJoin => "fall-back-to-join",
            Self::NameHintFormat => "name-hint-format",
            Self::GiveDatadir => "give-datadir",
            Self::Prune => "prune",
            Self::Unprune => "unprune",
            Self::WithoutPruning => "without-pruning",
            Self::NameRoot => "name-root",
            Self::TrustSources => "trust-sources",
            Self::AddSource => "add-source",
            Self::WaitForPeers => "wait-for-peers",
        }
    }

    /// Returns one remedy of each kind, for tests of programs that word them.
    pub fn examples() -> Vec<Self> {
        vec![
            Self::RebuildIndex,
            Self::BringIndexes([Some(IndexKind::Tx), None, None, None]),
            Self::SetIndexesAside,
            Self::StartOver,
            Self::RepeatOptions,
            Self::Resume { done: 1, total: 2, without_restart: true },
            Self::MoreMemory,
            Self::FewerThreads,
            Self::FreeDiskSpace,
            Self::OtherOutput,
            Self::EmptyOutput,
            Self::OtherWorkDir,
            Self::OtherName,
            Self::CreateDirectory,
            Self::MoveAway,
            Self::MoveSnapshotAway,
            Self::MountHigher,
            Self::DropOldDatabases,
            Self::StopAtHeight(Height(1)),
            Self::Reconsider,
            Self::AcceptLowerTip,
            Self::ReindexToLowerTip,
            Self::ReindexByScan,
            Self::Recover,
            Self::ChooseNetwork(Network::Regtest),
            Self::NameChallenge,
            Self::Repair,
            Self::GiveBlock,
            Self::EndBelowDamage,
            Self::TakeFromFiles,
            Self::NamePeer,
            Self::RestoreFile,
            Self::RestoreFiles,
            Self::BitcoindReindex,
            Self::BitcoindDownload,
            Self::RebuildChainstate,
            Self::NameIndex,
            Self::MakeIndex,
            Self::CheckRangeAgain,
            Self::GiveAllDeltas,
            Self::Verify,
            Self::LetBitcoindFinish,
            Self::EndOtherProgram,
            Self::Wait,
            Self::GrantPermission,
            Self::MountWritable,
            Self::RunAs(1),
            Self::RaiseLimit(Limit::OpenFiles),
            Self::RaiseProcessLimit,
            Self::CorrectClock,
            Self::MountWithLocks,
            Self::LaterAssumedBlock,
            Self::UseUndoData,
            Self::MakeUndo,
            Self::WithoutHints,
            Self::FallBackToJoin,
            Self::NameHintFormat,
            Self::GiveDatadir,
            Self::Prune,
            Self::Unprune,
            Self::WithoutPruning,
            Self::NameRoot,
            Self::TrustSources,
            Self::AddSource,
            Self::WaitForPeers,
        ]
    }

    /// Words one of those that are listed last.
    const fn text_of_the_last(&self) -> &'static str {
        match self {
            Self::TakeFromFiles => "take blocks from the files in a folder, each with its own key",
            Self::NamePeer => "name a peer",
            Self::Unprune => "download the blocks again that were deleted",
            Self::WithoutPruning => "download into another datadir without pruning",
            Self::NameRoot => "name the Merkle root, from someone whom you trust with all coins",
            Self::TrustSources => "trust the sources with all coins",
            Self::WaitForPeers => "wait for a peer that has what is missing",
            Self::UseUndoData => "use undo data",
            Self::MakeUndo => "make the undo data that is missing or damaged",
            Self::WithoutHints => "run without hints",
            Self::FallBackToJoin => "fall back to a rebuild without hints to find the first wrong hint",
            Self::NameHintFormat => "name the format",
            Self::GiveDatadir => "pass a datadir",
            Self::Prune => "prune again",
            _ => "name another source too",
        }
    }

    /// What can be done about an obstacle to the replacement of a database.
    pub fn of_obstacle(obstacle: Obstacle) -> Vec<Self> {
        match obstacle {
            Obstacle::MountPoint => vec![Self::MountHigher, Self::OtherOutput],
            Obstacle::KeptNameTaken => vec![Self::MoveAway, Self::DropOldDatabases],
            _ => vec![Self::MoveAway],
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RebuildIndex => "rebuild the block index by scanning the block files",
            Self::BringIndexes(_) => "make the indexes that are named anew in the same run",
            Self::SetIndexesAside => {
                "set the indexes that are named aside, so that bitcoind builds them again"
            }
            Self::StartOver => "start over without the checkpoint",
            Self::RepeatOptions => "repeat the interrupted job with its options",
            Self::Resume { done, total, .. } => {
                return write!(f, "run the same job again to resume: {done} of {total} blocks are saved");
            }
            Self::MoreMemory => "allow more memory",
            Self::FewerThreads => "use fewer threads",
            Self::FreeDiskSpace => "free some space and run again",
            Self::OtherOutput => "write the result to another place",
            Self::EmptyOutput => "pass an empty or new directory",
            Self::OtherWorkDir => "use another work directory",
            Self::OtherName => "choose another name",
            Self::CreateDirectory => "create its directory",
            Self::MoveAway => "move it away",
            Self::MoveSnapshotAway => {
                "move the directory away (bitcoind -reindex-chainstate would remove it)"
            }
            Self::MountHigher => "mount it one level higher and put a symbolic link here",
            Self::DropOldDatabases => "do not keep the old databases",
            Self::StopAtHeight(height) => return write!(f, "stop at height {height}"),
            Self::Reconsider => "have blocks that are marked invalid checked again",
            Self::AcceptLowerTip => "accept the lower state if it is wanted",
            Self::ReindexToLowerTip => "rebuild the chainstate, and accept the lower state",
            Self::ReindexByScan => "rebuild the block index and the chainstate from the block files",
            Self::Recover => "finish or undo that with recover",
            Self::ChooseNetwork(network) => return write!(f, "choose chain {network}"),
            Self::NameChallenge => "name the challenge of this signet",
            Self::Repair => "download the block from a peer",
            Self::GiveBlock => "pass the block in a file",
            Self::EndBelowDamage => "rebuild the chainstate up to the block below",
            Self::RestoreFile => "restore the file",
            Self::RestoreFiles => "restore the files",
            Self::BitcoindReindex => "run bitcoind -reindex",
            Self::BitcoindDownload => "let bitcoind -reindex download the blocks again",
            Self::RebuildChainstate => "rebuild the chainstate",
            Self::NameIndex => "name the index that is to be made",
            Self::MakeIndex => "make the index anew",
            Self::CheckRangeAgain => "check that range again, and merge its delta instead",
            Self::GiveAllDeltas => "pass each delta once",
            Self::Verify => "run verify",
            Self::LetBitcoindFinish => "start bitcoind and let it finish that first",
            Self::EndOtherProgram => {
                "stop bitcoind (or the other program), wait until it has ended, and run again"
            }
            Self::Wait => "wait until it has ended",
            Self::GrantPermission => "run it as the owner, or grant the permission",
            Self::MountWritable => "mount the file system for writing",
            Self::MountWithLocks => {
                "this file system has no locks: mount it with them (on NFS, without nolock and with lockd), \
                 or use another one; bitcoind needs them too"
            }
            Self::RunAs(user) => return write!(f, "run as user id {user}"),
            Self::RaiseLimit(limit) => return write!(f, "{limit}"),
            Self::RaiseProcessLimit => {
                "raise the limit on processes (ulimit -u, or pids.max of the control group)"
            }
            Self::CorrectClock => "if the clock of this machine is wrong, correct it",
            Self::LaterAssumedBlock => "choose a later assumed-valid block",
            _ => self.text_of_the_last(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_is_an_example_of_each_kind() {
        let examples: BTreeSet<&str> = Remedy::examples().iter().map(Remedy::name).collect();
        let source = include_str!("remedy.rs").split("pub const fn name").nth(1).unwrap();
        let arms = source.split("    }\n\n").next().unwrap();
        let named: BTreeSet<&str> = arms.split('"').skip(1).step_by(2).collect();
        assert!(named.len() > 45, "{named:?}");
        assert_eq!(examples, named);
    }
}
