//! What the user can do about an error.

use disk::{Obstacle, node_indexes::IndexKind};
use std::{fmt, path::Path};
use strum::{EnumIter, EnumMessage, EnumProperty, IntoEnumIterator, IntoStaticStr};
use vfs::{Disk, Limit};
use wire::{Height, Network};

/// Something that the user can do about an error. `Display` words it for users of this library; the command
/// line names its own option, if the command that has failed has it, or another command
/// ([`Self::command_text`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, EnumIter, EnumMessage, EnumProperty, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum Remedy {
    /// Do not read the block index, but scan the block files and write a new index
    /// ([`crate::options::ChainOptions::scan`]).
    #[strum(
        message = "rebuild the block index by scanning the block files",
        props(
            option = "scan",
            with_option = "run again with --scan to rebuild without the block index",
            command = "rebuild both databases with: peregrine reindex --scan"
        )
    )]
    RebuildIndex,
    /// Discard the checkpoint of an interrupted run ([`crate::options::ResumeOptions::restart`]).
    #[strum(
        message = "start over without the checkpoint",
        props(option = "restart", with_option = "pass --restart to discard the checkpoint and start over")
    )]
    StartOver,
    /// Run the interrupted job again with the options that it had.
    #[strum(
        message = "repeat the interrupted job with its options",
        props(command = "repeat the command of that run to resume it")
    )]
    RepeatOptions,
    /// Run the interrupted job again, to complete it.
    #[strum(
        message = "run the same job again to resume: {done} of {total} blocks are saved",
        props(
            option = "restart",
            with_option = "run the same command again, without --restart, to resume: {done} of {total} \
                blocks are saved",
            command = "run the same command again to resume: {done} of {total} blocks are saved"
        )
    )]
    Resume {
        /// Number of blocks that are done.
        done: u32,
        /// Number of blocks of the job.
        total: u32,
        /// Whether the interrupted run discarded a checkpoint, which the next one must not do.
        without_restart: bool,
    },
    /// Allow more memory ([`crate::options::ChainOptions::memory_bytes`]).
    #[strum(message = "allow more memory", props(option = "memory", with_option = "raise --memory"))]
    MoreMemory,
    /// Use fewer threads ([`crate::options::ChainOptions::threads`]).
    #[strum(message = "use fewer threads", props(option = "threads", with_option = "use fewer --threads"))]
    FewerThreads,
    #[strum(message = "free some space and run again")]
    FreeDiskSpace,
    /// Write the result to another place ([`crate::options::ReindexOptions::output`]).
    #[strum(
        message = "write the result to another place",
        props(option = "output", with_option = "write elsewhere with --output")
    )]
    OtherOutput,
    /// Write the result to a directory that is empty or new ([`crate::options::ReindexOptions::output`]).
    #[strum(message = "pass an empty or new directory")]
    EmptyOutput,
    /// Write temporary files to another place ([`crate::options::ChainOptions::work_dir`]).
    #[strum(
        message = "use another work directory",
        props(option = "work-dir", with_option = "pass another --work-dir")
    )]
    OtherWorkDir,
    /// Choose another name for a file.
    #[strum(message = "choose another name")]
    OtherName,
    /// Create the directory that a file is to be in.
    #[strum(message = "create its directory")]
    CreateDirectory,
    /// Move away what is at a path.
    #[strum(message = "move it away")]
    MoveAway,
    /// Move away the chainstate of a snapshot, so that bitcoind starts without it.
    #[strum(message = "move the directory away (bitcoind -reindex-chainstate would remove it)")]
    MoveSnapshotAway,
    /// Mount a file system one level higher.
    #[strum(message = "mount it one level higher and put a symbolic link here")]
    MountHigher,
    /// Do not keep the old databases ([`crate::options::ChainOptions::keep_old`]).
    #[strum(
        message = "do not keep the old databases",
        props(option = "keep-old", with_option = "leave out --keep-old")
    )]
    DropOldDatabases,
    /// Make these indexes anew in the same run.
    #[strum(
        message = "make the indexes that are named anew in the same run",
        props(option = "index", with_option = "pass {options} to make what is named anew in this run")
    )]
    BringIndexes([Option<IndexKind>; 4]),
    /// Set indexes aside that would become wrong ([`crate::options::ReindexOptions::set_aside_indexes`]).
    #[strum(
        message = "set the indexes that are named aside, so that bitcoind builds them again",
        props(
            option = "set-aside-indexes",
            with_option = "pass --set-aside-indexes to set just these aside: bitcoind builds them again \
                when it starts",
            command = "set them aside and rebuild with: peregrine reindex --set-aside-indexes"
        )
    )]
    SetIndexesAside,
    /// Choose this height as the last one ([`crate::options::ChainOptions::stop_at_height`]).
    #[strum(message = "stop at height {height}", props(option = "to", with_option = "pass --to {height}"))]
    StopAtHeight(Height),
    /// Check blocks that are marked invalid ([`crate::options::ChainOptions::reconsider`]).
    #[strum(
        message = "have blocks that are marked invalid checked again",
        props(
            option = "reconsider",
            with_option = "pass --reconsider if a mark is wrong: marked blocks are checked then",
            command = "if a mark is wrong, have the blocks checked with: peregrine reindex --reconsider"
        )
    )]
    Reconsider,
    /// Accept a result that is lower than what it replaces
    /// ([`crate::options::ReindexOptions::accept_lower_tip`]).
    #[strum(
        message = "accept the lower state if it is wanted",
        props(
            option = "accept-lower-tip",
            with_option = "pass --accept-lower-tip if the lower state is wanted",
            command = "if the lower state is wanted, rebuild with: peregrine reindex --accept-lower-tip"
        )
    )]
    AcceptLowerTip,
    /// Rebuild the chainstate, and accept that it becomes lower.
    #[strum(
        message = "rebuild the chainstate, and accept the lower state",
        props(command = "if the lower state is wanted, rebuild with: peregrine reindex --accept-lower-tip")
    )]
    ReindexToLowerTip,
    /// Rebuild the block index and the chainstate.
    #[strum(
        message = "rebuild the block index and the chainstate from the block files",
        props(command = "rebuild both databases with: peregrine reindex --scan")
    )]
    ReindexByScan,
    /// Finish or undo a replacement of databases that was interrupted (`recover`).
    #[strum(
        message = "finish or undo that with recover",
        props(command = "finish or undo that with: peregrine recover")
    )]
    Recover,
    /// Choose this network ([`crate::options::ChainOptions::params`]).
    #[strum(message = "choose chain {chain}", props(option = "chain", with_option = "pass --chain {chain}"))]
    ChooseNetwork(Network),
    /// Name the challenge of the signet ([`crate::options::ChainOptions::params`]).
    #[strum(
        message = "name the challenge of this signet",
        props(option = "signetchallenge", with_option = "pass this signet's --signetchallenge")
    )]
    NameChallenge,
    /// Download blocks that are damaged or missing (`repair`).
    #[strum(
        message = "download the block from a peer",
        props(command = "download what is damaged with: peregrine repair")
    )]
    Repair,
    /// Pass blocks that are damaged or missing ([`crate::options::ReindexOptions::blocks`]).
    #[strum(
        message = "pass the block in a file",
        props(command = "pass the block with: peregrine reindex --block FILE")
    )]
    GiveBlock,
    /// Rebuild the chainstate up to the block below the damage
    /// ([`crate::options::ReindexOptions::until_damage`]).
    #[strum(
        message = "rebuild the chainstate up to the block below",
        props(command = "rebuild up to the damage with: peregrine reindex --until-damage")
    )]
    EndBelowDamage,
    /// Take blocks from block files, those of the datadir itself or others (`RepairOptions::sources`).
    #[strum(
        message = "take blocks from the files in a folder, each with its own key",
        props(command = "take blocks from the files of a folder, each with its own key, with: peregrine \
                repair --from DIR")
    )]
    TakeFromFiles,
    /// Name a peer to download from (`PeerOptions::connect`).
    #[strum(message = "name a peer", props(option = "connect", with_option = "name a peer with --connect"))]
    NamePeer,
    /// Restore the file that the error names.
    #[strum(message = "restore the file")]
    RestoreFile,
    /// Restore files that are missing.
    #[strum(message = "restore the files")]
    RestoreFiles,
    /// Run `bitcoind -reindex`, to write a new block index.
    #[strum(message = "run bitcoind -reindex")]
    BitcoindReindex,
    /// Run `bitcoind -reindex`, to download blocks again.
    #[strum(serialize = "bitcoind-reindex", message = "let bitcoind -reindex download the blocks again")]
    BitcoindDownload,
    #[strum(message = "rebuild the chainstate", props(command = "rebuild it with: peregrine reindex"))]
    RebuildChainstate,
    /// Name the index that is to be made (`make_indexes`).
    #[strum(
        message = "name the index that is to be made",
        props(command = "name one, as in: peregrine index make txindex")
    )]
    NameIndex,
    /// Make the index anew (`make_indexes`).
    #[strum(message = "make the index anew", props(command = "make it with: peregrine index make"))]
    MakeIndex,
    /// Check the range again, on another machine if need be (`check_range`).
    #[strum(
        message = "check that range again, and merge its delta instead",
        props(command = "check the range again, into another directory, with: peregrine range check")
    )]
    CheckRangeAgain,
    /// Pass each of the deltas once (`merge_deltas`).
    #[strum(message = "pass each delta once")]
    GiveAllDeltas,
    /// Verify the blocks, to find the first conflict.
    #[strum(message = "run verify")]
    Verify,
    /// Let bitcoind validate the blocks below the snapshot that it started from.
    #[strum(message = "start bitcoind and let it finish that first")]
    LetBitcoindFinish,
    /// End the program that uses the files.
    #[strum(message = "stop bitcoind (or the other program), wait until it has ended, and run again")]
    EndOtherProgram,
    /// Wait until another process of Peregrine ends.
    #[strum(message = "wait until it has ended")]
    Wait,
    /// Allow this process to access the file.
    #[strum(message = "run it as the owner, or grant the permission")]
    GrantPermission,
    /// Mount the file system for writing.
    #[strum(message = "mount the file system for writing")]
    MountWritable,
    /// Mount the file system with locks.
    #[strum(message = "this file system has no locks: mount it with them (on NFS, without nolock and with \
            lockd), or use another one; bitcoind needs them too")]
    MountWithLocks,
    /// Run the command as the user with this id.
    #[strum(message = "run as user id {user}")]
    RunAs(u32),
    /// Raise a limit of the system.
    #[strum(message = "{limit}")]
    RaiseLimit(Limit),
    /// Raise the limit on processes and threads.
    #[strum(message = "raise the limit on processes (ulimit -u, or pids.max of the control group)")]
    RaiseProcessLimit,
    /// Correct the clock of the machine.
    #[strum(message = "if the clock of this machine is wrong, correct it")]
    CorrectClock,
    /// Choose a later assumed-valid block ([`crate::options::ChainOptions::assume_valid`]).
    #[strum(
        message = "choose a later assumed-valid block",
        props(option = "assumevalid", with_option = "pass a later block with --assumevalid")
    )]
    LaterAssumedBlock,
    /// Use undo data ([`crate::options::HintOptions::without_undo`]).
    #[strum(message = "use undo data")]
    UseUndoData,
    /// Make the undo data that is missing or damaged (`make_undo`).
    #[strum(
        message = "make the undo data that is missing or damaged",
        props(command = "make it with: peregrine undo make")
    )]
    MakeUndo,
    /// Run without hints ([`crate::options::ReindexOptions::hints`]).
    #[strum(message = "run without hints")]
    WithoutHints,
    /// Run without hints if they are wrong, and find the first wrong one
    /// ([`crate::options::HintOptions::on_failure_join`]).
    #[strum(
        message = "fall back to a rebuild without hints to find the first wrong hint",
        props(
            option = "on-hint-failure",
            with_option = "pass --on-hint-failure join to find the first wrong hint"
        )
    )]
    FallBackToJoin,
    /// Name the format of a hint file.
    #[strum(
        message = "name the format",
        props(command = "name the format with: peregrine hints convert --from")
    )]
    NameHintFormat,
    /// Pass a datadir whose blocks complete what a hint file contains.
    #[strum(message = "pass a datadir", props(option = "datadir", with_option = "pass --datadir"))]
    GiveDatadir,
    /// Delete block files (`SyncOptions::prune_bytes`).
    #[strum(message = "prune again", props(option = "prune", with_option = "pass --prune"))]
    Prune,
    /// Download the blocks again that were deleted (`SyncOptions::unprune`).
    #[strum(
        message = "download the blocks again that were deleted",
        props(
            option = "unprune",
            with_option = "pass --unprune to download them again",
            command = "download the deleted blocks again with: peregrine sync --unprune"
        )
    )]
    Unprune,
    /// Delete no block files (`SyncOptions::prune_bytes`).
    #[strum(
        message = "download into another datadir without pruning",
        props(option = "prune", with_option = "download into another --datadir without --prune")
    )]
    WithoutPruning,
    /// Name the Merkle root of the snapshot (`FetchOptions::root`).
    #[strum(
        message = "name the Merkle root, from someone whom you trust with all coins",
        props(
            option = "root",
            with_option = "pass --root with a Merkle root of someone whom you trust with all coins"
        )
    )]
    NameRoot,
    /// Take the root that the sources state (`FetchOptions::trust_sources`).
    #[strum(
        message = "trust the sources with all coins",
        props(
            option = "trust-sources",
            with_option = "pass --trust-sources if you trust those who made the sources: the coins could \
                be forged"
        )
    )]
    TrustSources,
    /// Name another source of the snapshot too (`FetchOptions::sources`).
    #[strum(message = "name another source too")]
    AddSource,
    /// Wait for peers that have what is missing (`PeerOptions::wait`).
    #[strum(
        message = "wait for a peer that has what is missing",
        props(option = "wait", with_option = "pass --wait to try until a peer has it")
    )]
    WaitForPeers,
}

impl Remedy {
    /// To run as the owner of a file or directory, unless this process does, or is root.
    pub fn run_as_owner(disk: &dyn Disk, path: &Path) -> Option<Self> {
        let owner = disk.ownership(path).ok()?.uid;
        (![0, owner].contains(&disk.user())).then_some(Self::RunAs(owner))
    }

    /// What can be done about an obstacle to the replacement of a database.
    pub fn of_obstacle(obstacle: Obstacle) -> Vec<Self> {
        match obstacle {
            Obstacle::MountPoint => vec![Self::MountHigher, Self::OtherOutput],
            Obstacle::KeptNameTaken => vec![Self::MoveAway, Self::DropOldDatabases],
            _ => vec![Self::MoveAway],
        }
    }

    /// Its name for programs. Names are stable.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns one remedy of each kind, for tests of programs that word them.
    pub fn examples() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Words it for a command of the command line; `has_option` says whether the command has an option.
    pub fn command_text(&self, has_option: impl Fn(&str) -> bool) -> String {
        // Only a run that has discarded a checkpoint had the option that the next one must not have.
        let has_option =
            |name: &str| has_option(name) && !matches!(self, Self::Resume { without_restart: false, .. });
        let is_option = self.get_str("option").is_some_and(has_option);
        let text = is_option.then(|| self.get_str("with_option")).flatten();
        self.filled(text.or_else(|| self.get_str("command")).or_else(|| self.get_message()))
    }

    /// Puts the values of this remedy into a text.
    fn filled(&self, text: Option<&str>) -> String {
        let text = text.unwrap_or_default();
        match self {
            Self::Resume { done, total, .. } => {
                text.replace("{done}", &done.to_string()).replace("{total}", &total.to_string())
            }
            Self::BringIndexes(kinds) => {
                let options = kinds.iter().flatten().map(|kind| format!("--index {}", kind.option()));
                text.replace("{options}", &options.collect::<Vec<_>>().join(" "))
            }
            Self::StopAtHeight(height) => text.replace("{height}", &height.to_string()),
            Self::ChooseNetwork(network) => text.replace("{chain}", &network.to_string()),
            Self::RunAs(user) => text.replace("{user}", &user.to_string()),
            Self::RaiseLimit(limit) => text.replace("{limit}", &limit.to_string()),
            _ => text.to_owned(),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.filled(self.get_message()))
    }
}
