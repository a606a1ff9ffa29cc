//! What the user can do about an error.

use disk::{Obstacle, node_indexes::IndexKind};
use std::{fmt, path::Path};
use strum::{EnumIter, EnumMessage, EnumProperty, IntoEnumIterator, IntoStaticStr};
use vfs::{Disk, Limit};
use wire::{Height, Network};

/// Defines the remedies. Each has a text for users of this library; some have one for a command that has the
/// option that helps (`with`), and one that names another command.
macro_rules! remedies {
    ($($(#[$meta:meta])* $name:ident $(($value:ty))? $({$($fields:tt)*})?: $message:literal
        $(, with $option:literal: $with:literal)? $(, command: $command:literal)?;)*) => {
        /// Something that the user can do about an error. `Display` words it for users of this library; the
        /// command line names its own option, if the command that has failed has it, or another command
        /// ([`Self::command_text`]).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, EnumIter, EnumMessage, EnumProperty, IntoStaticStr)]
        #[strum(serialize_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Remedy {$(
            $(#[$meta])*
            #[strum(
                message = $message,
                props($(option = $option, with_option = $with,)? $(command = $command)?)
            )]
            $name $(($value))? $({$($fields)*})?,
        )*}
    };
}

remedies! {
    /// Do not read the block index, but scan the block files and write a new index
    /// ([`crate::options::ChainOptions::scan`]).
    RebuildIndex: "rebuild the block index by scanning the block files",
        with "scan": "run again with --scan to rebuild without the block index",
        command: "rebuild both databases with: peregrine reindex --scan";
    /// Discard the checkpoint of an interrupted run ([`crate::options::ResumeOptions::restart`]).
    StartOver: "start over without the checkpoint",
        with "restart": "pass --restart to discard the checkpoint and start over";
    RepeatOptions: "repeat the interrupted job with its options",
        command: "repeat the command of that run to resume it";
    FinishWithItsVersion: "finish that run with the version that began it";
    /// Run the interrupted job again, to complete it.
    Resume {
        /// Number of blocks that are done.
        done: u32,
        /// Number of blocks of the job.
        total: u32,
        /// Whether the interrupted run discarded a checkpoint, which the next one must not do.
        without_restart: bool,
    }: "run the same job again to resume: {done} of {total} blocks are saved",
        with "restart": "run the same command again, without --restart, to resume: {done} of {total} blocks \
            are saved",
        command: "run the same command again to resume: {done} of {total} blocks are saved";
    /// Allow more memory ([`crate::options::ChainOptions::memory_bytes`]).
    MoreMemory: "allow more memory", with "memory": "raise --memory";
    /// Use fewer threads ([`crate::options::ChainOptions::threads`]).
    FewerThreads: "use fewer threads", with "threads": "use fewer --threads";
    FreeDiskSpace: "free some space and run again";
    /// Write the result to another place ([`crate::options::ReindexOptions::output`]).
    OtherOutput: "write the result to another place", with "output": "write elsewhere with --output";
    /// Write the result to a directory that is empty or new ([`crate::options::ReindexOptions::output`]).
    EmptyOutput: "pass an empty or new directory";
    /// Write temporary files to another place ([`crate::options::ChainOptions::work_dir`]).
    OtherWorkDir: "use another work directory", with "work-dir": "pass another --work-dir",
        command: "set TMPDIR to another directory";
    /// Choose another name for a file.
    OtherName: "choose another name";
    /// Keep what is there, which an earlier run has made.
    KeepResult: "keep it if an earlier run has made it: a result gets its name only when it is complete, and \
        temporary files beside it can be removed then";
    /// Create the directory that a file is to be in.
    CreateDirectory: "create its directory";
    /// Move away what is at a path.
    MoveAway: "move it away";
    /// Move away the chainstate of a snapshot, so that bitcoind starts without it.
    MoveSnapshotAway: "move the directory away (bitcoind -reindex-chainstate would remove it)";
    MountHigher: "mount it one level higher and put a symbolic link here";
    /// Do not keep the old databases ([`crate::options::ChainOptions::keep_old`]).
    DropOldDatabases: "do not keep the old databases", with "keep-old": "leave out --keep-old";
    BringIndexes([Option<IndexKind>; 4]): "make the named indexes anew in the same run",
        with "index": "pass {options} to make the named indexes anew in this run";
    /// Set indexes aside that would become wrong ([`crate::options::ReindexOptions::set_aside_indexes`]).
    SetIndexesAside: "set the named indexes aside, so that bitcoind builds them again",
        with "set-aside-indexes": "pass --set-aside-indexes to set just these aside: bitcoind builds them \
            again when it starts",
        command: "set them aside and rebuild with: peregrine reindex --set-aside-indexes";
    /// Choose this height as the last one ([`crate::options::ChainOptions::stop_at_height`]).
    StopAtHeight(Height): "stop at height {height}", with "to": "pass --to {height}";
    /// Check blocks that are marked invalid ([`crate::options::ChainOptions::reconsider`]).
    Reconsider: "have blocks that are marked invalid checked again",
        with "reconsider": "pass --reconsider if a mark is wrong: marked blocks are then checked",
        command: "if a mark is wrong, have the blocks checked with: peregrine reindex --reconsider";
    /// Accept a result that is lower than what it replaces
    /// ([`crate::options::ReindexOptions::accept_lower_tip`]).
    AcceptLowerTip: "accept the lower state if it is wanted",
        with "accept-lower-tip": "pass --accept-lower-tip if the lower state is wanted",
        command: "if the lower state is wanted, rebuild with: peregrine reindex --accept-lower-tip";
    /// The same, of a run that was asked to end at this height.
    #[strum(serialize = "accept-lower-tip")]
    AcceptLowerTipAt(Height): "rebuild up to height {height}, and accept the lower state, if it is wanted",
        with "accept-lower-tip": "pass --accept-lower-tip if the lower state is wanted",
        command: "if the lower state is wanted, rebuild with: peregrine reindex --to {height} \
            --accept-lower-tip";
    ReindexByScan: "rebuild the block index and the chainstate from the block files",
        command: "rebuild both databases with: peregrine reindex --scan";
    /// Finish or undo a replacement of databases that was interrupted (`recover`).
    Recover: "finish or undo that with recover", command: "finish or undo that with: peregrine recover";
    /// Choose this network ([`crate::options::ChainOptions::params`]).
    ChooseNetwork(Network): "choose chain {chain}", with "chain": "pass --chain {chain}";
    /// Name the challenge of the signet ([`crate::options::ChainOptions::params`]).
    NameChallenge: "name the challenge of this signet",
        with "signetchallenge": "pass this signet's --signetchallenge";
    /// Download blocks that are damaged or missing (`repair`).
    Repair: "download the block from a peer", command: "download what is damaged with: peregrine repair";
    /// Switch to the chain of the peers (`sync`).
    Sync: "switch to the chain of the peers, if it has more work",
        command: "switch to their chain, if it has more work, with: peregrine sync";
    /// Pass blocks that are damaged or missing ([`crate::options::ReindexOptions::blocks`]).
    GiveBlock: "pass the block in a file", command: "pass the block with: peregrine reindex --block FILE";
    /// Rebuild the chainstate up to the block below the damage
    /// ([`crate::options::ReindexOptions::until_damage`]).
    EndBelowDamage: "rebuild the chainstate up to the block below",
        command: "rebuild up to the damage with: peregrine reindex --until-damage";
    /// The same without the block index.
    #[strum(serialize = "end-below-damage")]
    EndBelowDamageByScan: "rebuild the block index, and the chainstate up to the block below",
        command: "rebuild up to the damage with: peregrine reindex --scan --until-damage";
    /// Take blocks from block files, those of the datadir itself or others (`RepairOptions::sources`).
    TakeFromFiles: "take blocks from the files in a folder, each with its own key",
        command: "take blocks from the files of a folder, each with its own key, with: peregrine repair \
            --from DIR";
    /// Name a peer to download from (`PeerOptions::connect`).
    NamePeer: "name a peer", with "connect": "name a peer with --connect";
    /// Say how to connect to peers (`PeerOptions`).
    SayHowToConnect: "say how to connect to peers",
        with "connect": "say how to connect, with --proxy, --connect or --onlynet";
    /// Restore the file that the error names.
    RestoreFile: "restore the file";
    /// Restore the files of the datadir for which a range plan was made.
    RestorePlannedFiles: "restore the files that the plan was made for: those of another node have the \
            blocks at other places",
        command: "copy from the plan's node the files that this command lists: peregrine range files";
    /// Restore files that are missing.
    RestoreFiles: "restore the files";
    /// Run `bitcoind -reindex`, to write a new block index.
    BitcoindReindex: "run bitcoind -reindex";
    /// Run `bitcoind -reindex`, to download blocks again.
    #[strum(serialize = "bitcoind-reindex")]
    BitcoindDownload: "let bitcoind -reindex download the blocks again";
    RebuildChainstate: "rebuild the chainstate", command: "rebuild it with: peregrine reindex";
    /// Name the index that is to be made (`make_indexes`).
    NameIndex: "name the index that is to be made", command: "make one, as in: peregrine index make txindex";
    /// Choose the form of the rows of a new `txindex` (`IndexOptions::tx_form`).
    ChooseTxForm: "choose the form of the rows",
        command: "make this index by itself, after a rebuild if one is due, and name the form (`by-block` \
            for releases from 32 on), as in: peregrine index make txindex --txindex-rows by-txid";
    /// Make the index anew (`make_indexes`).
    MakeIndex(Option<IndexKind>): "make the index anew", command: "make it with: peregrine index make {name}";
    /// Check the range again, on another machine if need be (`check_range`).
    CheckRangeAgain: "check that range again, and merge its delta instead",
        command: "check the range again, into another directory, with: peregrine range check";
    /// Pass each of the deltas once (`merge_deltas`).
    GiveAllDeltas: "pass the delta of each range, and none twice";
    /// Verify the blocks, to find the first conflict.
    Verify: "run verify";
    /// Let bitcoind complete what it has begun, such as the validation of blocks below its snapshot.
    LetBitcoindFinish: "start bitcoind and let it finish that first";
    /// End the program that uses the files.
    EndOtherProgram: "stop bitcoind (or the other program), wait until it has ended, and run again";
    /// End what this process itself does with the files.
    EndOwnJob: "that is this process itself: take or drop all rows that it is reading, or wait until its \
        other job has ended";
    /// Wait until another process of Peregrine ends.
    Wait: "wait until it has ended";
    /// Allow this process to access the file.
    GrantPermission: "run it as the owner, or grant the permission";
    CheckDisk: "look for errors of the disk",
        command: "look for errors of the disk with: sudo dmesg --level=err,warn";
    MountWritable: "mount the file system for writing";
    MountWithLocks: "this file system has no locks: mount it with them (on NFS, without nolock and with \
            lockd), or use another one; in its datadir, bitcoind needs them too";
    RunAs(u32): "run as user id {user}";
    /// Raise a limit of the system.
    RaiseLimit(Limit): "{limit}";
    RaiseProcessLimit: "raise the limit on processes (ulimit -u, or pids.max of the control group)";
    CorrectClock: "if the clock of this machine is wrong, correct it";
    /// Choose a later assumed-valid block ([`crate::options::ChainOptions::assume_valid`]).
    LaterAssumedBlock: "choose a later assumed-valid block",
        with "assumevalid": "pass a later block with --assumevalid";
    /// Use undo data ([`crate::options::HintOptions::without_undo`]).
    UseUndoData: "use undo data";
    /// Make the undo data that is missing or damaged (`make_undo`).
    MakeUndo: "make the undo data that is missing or damaged", command: "make it with: peregrine undo make";
    /// Run without hints ([`crate::options::ReindexOptions::hints`]).
    WithoutHints: "run without hints";
    /// Run without hints if they are wrong, and find the first wrong one
    /// ([`crate::options::HintOptions::on_failure_join`]).
    FallBackToJoin: "fall back to a rebuild without hints to find the first wrong hint",
        with "on-hint-failure": "pass --on-hint-failure join to find the first wrong hint";
    /// Name the format of a hint file.
    NameHintFormat: "name the format, or convert the file", with "from": "pass --from to name the format",
        command: "convert it with: peregrine hints convert FILE --from FORMAT --format peregrine \
            --output NEW";
    /// Pass a datadir whose blocks complete what a hint file contains.
    GiveDatadir: "pass a datadir", with "datadir": "pass --datadir";
    /// Delete block files (`SyncOptions::prune_bytes`).
    Prune: "prune again", with "prune": "pass --prune";
    /// Download the blocks again that were deleted (`SyncOptions::unprune`).
    Unprune: "download the blocks again that were deleted",
        with "unprune": "pass --unprune to download them again",
        command: "download the deleted blocks again with: peregrine sync --unprune";
    /// Delete no block files (`SyncOptions::prune_bytes`).
    WithoutPruning: "download into another datadir without pruning",
        with "prune": "download into another --datadir without --prune";
    /// Name the Merkle root of the snapshot (`FetchOptions::root`).
    NameRoot: "name the Merkle root, from someone whom you trust with all coins",
        with "root": "pass --root with a Merkle root of someone whom you trust with all coins";
    /// Take the root that the sources state (`FetchOptions::trust_sources`).
    TrustSources: "trust the sources with all coins",
        with "trust-sources": "pass --trust-sources if you trust those who made the sources: the coins could \
            be forged";
    /// Name another source of the snapshot too (`FetchOptions::sources`).
    AddSource: "name another source too";
    /// Wait for peers that have what is missing (`PeerOptions::wait`).
    WaitForPeers: "wait for a peer that has what is missing",
        with "wait": "pass --wait to try until a peer has it";
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
            Obstacle::DanglingLink => Vec::new(),
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
        // Only a run that has discarded a checkpoint had `--restart`, which the next run must not have.
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
            Self::MakeIndex(kind) => text.replace("{name}", kind.map_or("", IndexKind::option)),
            Self::StopAtHeight(height) | Self::AcceptLowerTipAt(height) => {
                text.replace("{height}", &height.to_string())
            }
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
