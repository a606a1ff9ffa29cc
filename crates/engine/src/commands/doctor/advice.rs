//! What an examination of a datadir advises.

use api::json::{OptionalPathText, PathText, PathTexts, written};
use derive_more::Display;
use std::path::PathBuf;
use wire::{BlockHash, Network};

api::reported! {
/// The one thing to do next. `Display` words it without the command.
#[derive(Clone, PartialEq, Eq, Debug, Display)]
pub enum Advice {
    /// Start bitcoind. Nothing is wrong, or bitcoind repairs it when it starts.
    StartBitcoind =>
        "start your node as usual, or with bitcoind; what is left to do, it does when it starts";
    /// Start bitcoind without its check of the last undo data, some of which is missing. It is a pruned node,
    /// which can neither make nor download it. Until it has connected new blocks, it cannot disconnect the
    /// last ones.
    StartWithoutUndo => "start bitcoind without its check of undo data: some is missing, and a pruned node \
        cannot get it back; it cannot disconnect the last blocks until it has connected new ones";
    /// Nothing: bitcoind is running.
    LetItRun => "nothing: bitcoind is running, and nothing is wrong";
    /// Stop the bitcoind that uses the datadir, and diagnose again.
    StopBitcoind => "stop bitcoind, wait until it has ended, and examine again";
    /// Wait for the other program that uses the datadir.
    Wait => "wait until the other program that uses the datadir has ended";
    /// Choose the directory that bitcoind uses: there is no directory with this name.
    NameDatadir => "pass the directory that bitcoind uses as its datadir";
    /// Choose the directory that bitcoind uses for block files, of which there are none here, or mount its
    /// disk; `None` if the log does not name another one.
    NameBlocksdir {
        /// What the log names.
        directory with "OptionalPathText": Option<PathBuf>,
    } => "pass the directory in which bitcoind keeps block files, or mount its disk: there are none here";
    /// Choose this network.
    ChooseNetwork {
        /// The network.
        network as "chain": Network,
    } => "examine the blocks of {network}, which are here";
    /// Name the challenge of this signet.
    NameChallenge => "pass the challenge of this signet";
    /// Diagnose as the user with this id.
    RunAs {
        /// The user id.
        user: u32,
    } => "examine it as user {user}";
    /// Give these directories, and all in them, to the owner of the datadir, and allow that user to read and
    /// write them.
    ChangeOwner {
        /// The directories.
        directories with "PathTexts": Vec<PathBuf>,
    } => "give these directories to the owner of the datadir";
    /// Look for errors of the disk: a file cannot be read, or none can be written.
    CheckDisk => "look for errors of the disk: a file cannot be read, or none can be written";
    /// Read everything: the log reports an error of a database that a short examination does not find.
    LookDeeper => "read everything: debug.log reports an error of a database";
    /// Correct the clock: bitcoind does not start with a block from the future.
    CorrectClock => "correct the clock: bitcoind does not start with a block from the future";
    /// Mount the file system of this directory with locks, without which bitcoind does not start.
    ProvideLocks {
        /// The directory.
        directory with "PathText": PathBuf,
    } => "mount the file system with locks (NFS: without nolock), or move the datadir: bitcoind does not \
        start";
    /// Free space on the disk of this directory: without 100 MiB, bitcoind does not start, or soon ends.
    FreeSpace {
        /// The directory.
        directory with "PathText": PathBuf,
    } => "free disk space: without 100 MiB, bitcoind does not start, or soon ends";
    /// Remove or change a setting of bitcoind.
    CorrectSetting {
        /// The file.
        file with "PathText": PathBuf,
        /// Number of its line; `None` in `settings.json`.
        line: Option<u32>,
        /// Whether it can be removed; otherwise, the line is to be changed.
        is_removable as "removable": bool,
    } => "{} a setting of bitcoind, and examine again",
        if *is_removable { "remove" } else { "change" };
    /// Move this away: it is a file where a directory must be, or a directory where a file must be, or in the
    /// place where undo data is made.
    MoveAway {
        /// The file or directory.
        path with "PathText": PathBuf,
    } => "move away what bitcoind cannot use there, and examine again";
    /// Restore what this link leads to, which does not exist: another disk may not be mounted.
    RestoreLink {
        /// The link.
        path with "PathText": PathBuf,
    } => "restore the missing target of a link, and examine again";
    /// Create `xor.dat` with this key, which the block files reveal.
    RestoreKey {
        /// The contents of the file.
        key with "KeyText": [u8; 8],
    } => "restore xor.dat, whose contents follow from the block files";
    /// Take blocks from files that bitcoind does not use: another node's, or with other keys or names.
    TakeFromFiles {
        /// The folder.
        directory with "PathText": PathBuf,
    } => "take the blocks of files that bitcoind does not use: another node's, or with other keys or names";
    /// Finish or undo the replacement of databases that was interrupted ([`crate::recover()`]).
    FinishReplacement => "finish or undo the replacement of databases that was interrupted";
    /// Download all blocks.
    Sync => "download the blocks that are missing";
    /// Download all blocks of a pruned node again, which stays one: its chainstate is gone or broken.
    SyncPruned => "download all blocks again, and make the chainstate meanwhile; the node stays pruned";
    /// Download the blocks that are damaged or missing.
    Repair => "download the blocks that are damaged or missing, and rebuild what needs it";
    /// Rebuild the chainstate.
    Reindex => "rebuild the chainstate";
    /// Rebuild block index and chainstate by scanning the block files.
    ReindexByScan => "rebuild the block index and the chainstate from the block files";
    /// Return to the chain of Bitcoin Core.
    Reconsider {
        /// The block to check again that is marked as invalid; `None`: its chain is not stored.
        block as "block_hash": Option<BlockHash>,
        /// Whether the chainstate is rebuilt; otherwise, blocks are connected to it.
        rebuilds as "rebuild": bool,
    } => "return to the chain of Bitcoin Core: its blocks are checked, whatever their marks";
    /// Make the undo data that is missing.
    MakeUndo => "make the undo data that is missing or damaged";
    /// Connect the stored blocks above the chainstate, some of whose undo data is damaged: bitcoind would not
    /// write it anew.
    Update => "connect the stored blocks above the chainstate: some of their undo data is damaged, and \
        bitcoind would not write it anew";
    /// Make these indexes anew: bitcoind does not start with them, or does not find transactions.
    MakeIndexes {
        /// The options of bitcoind that keep them.
        names: Vec<&'static str>,
    } => "make anew the indexes that bitcoind cannot continue";
    /// Move the chainstate of a snapshot away, with which bitcoind does not start or nothing can be rebuilt.
    MoveSnapshotAway => "set the snapshot's chainstate aside, and read everything";
    /// Run `bitcoind -reindex`, which downloads all blocks that are missing or damaged.
    BitcoindReindex => "let bitcoind download blocks again: not all are stored and sound";
}
}

written! {
    KeyText: [u8; 8] => String, |key| key.iter().map(|byte| format!("{byte:02x}")).collect();
}
