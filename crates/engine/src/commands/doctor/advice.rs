//! What an examination of a datadir advises.

#[cfg(feature = "serde")]
use api::json::{OptionalPathText, PathText, PathTexts, written};
use derive_more::Display;
#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::Serialize;
use std::path::PathBuf;
use wire::{BlockHash, Network};

/// The one thing to do next. `Display` words it without the command.
#[derive(Clone, PartialEq, Eq, Debug, Display)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "code", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Advice {
    /// Start bitcoind. Nothing is wrong, or bitcoind repairs it when it starts.
    #[display("start your node as always, or with bitcoind; what is left to do, it does when it starts")]
    StartBitcoind,
    /// Start bitcoind without its check of the last undo data, of which some is missing. It is a pruned node,
    /// which can neither make nor download that. Until it has connected new blocks, it cannot disconnect the
    /// last ones.
    #[display(
        "start bitcoind without its check of undo data: some is missing, and a pruned node cannot get it \
         back; until new blocks are connected, it cannot disconnect these"
    )]
    StartWithoutUndo,
    /// Nothing: bitcoind is running.
    #[display("nothing: bitcoind is running, and nothing is wrong")]
    LetItRun,
    /// Stop the bitcoind that uses the datadir, and diagnose again.
    #[display("stop bitcoind, wait until it has ended, and examine again")]
    StopBitcoind,
    /// Wait for the other program that uses the datadir.
    #[display("wait until the other program that uses the datadir has ended")]
    Wait,
    /// Choose the directory that bitcoind uses: there is no directory with this name.
    #[display("pass the directory that bitcoind uses as its datadir")]
    NameDatadir,
    /// Choose the directory that bitcoind uses for block files, of which there are none here; `None` if the
    /// log does not name it.
    #[display("pass the directory in which bitcoind keeps block files: there are none here")]
    NameBlocksdir {
        /// What the log names.
        #[cfg_attr(feature = "serde", serde(with = "OptionalPathText"))]
        directory: Option<PathBuf>,
    },
    /// Choose this network.
    #[display("examine the blocks of {network}, which are here")]
    ChooseNetwork {
        /// The network.
        #[cfg_attr(feature = "serde", serde(rename = "chain"))]
        network: Network,
    },
    /// Name the challenge of this signet.
    #[display("pass the challenge of this signet")]
    NameChallenge,
    /// Diagnose as the user with this id.
    #[display("examine it as user {user}")]
    RunAs {
        /// The user id.
        user: u32,
    },
    /// Give these directories, and all in them, to the owner of the datadir, and allow that user to read and
    /// write them.
    #[display("give these directories to the owner of the datadir")]
    ChangeOwner {
        /// The directories.
        #[cfg_attr(feature = "serde", serde(with = "PathTexts"))]
        directories: Vec<PathBuf>,
    },
    /// Look for errors of the disk: a file cannot be read, or none can be written.
    #[display("look for errors of the disk: a file cannot be read, or none can be written")]
    CheckDisk,
    /// Read everything: the log reports an error of a database that a short examination does not find.
    #[display("read everything: debug.log reports an error of a database")]
    LookDeeper,
    /// Correct the clock: bitcoind does not start with a block from the future.
    #[display("correct the clock: bitcoind does not start with a block from the future")]
    CorrectClock,
    /// Mount the file system of this directory with locks, without which bitcoind does not start.
    #[display(
        "mount the file system with locks (NFS: without nolock), or move the datadir: bitcoind does not \
         start"
    )]
    ProvideLocks {
        /// The directory.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        directory: PathBuf,
    },
    /// Remove or change a setting of bitcoind.
    #[display(
        "{} a setting of bitcoind, and examine again",
        if *is_removable { "remove" } else { "change" }
    )]
    CorrectSetting {
        /// The file.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        file: PathBuf,
        /// Number of its line; `None` in `settings.json`.
        line: Option<u32>,
        /// Whether it can be removed; otherwise, the line is to be changed.
        #[cfg_attr(feature = "serde", serde(rename = "removable"))]
        is_removable: bool,
    },
    /// Move this away: it is a file where a directory must be, or a directory where a file must be, or in the
    /// place where undo data is made.
    #[display("move away what is not as bitcoind needs it there, and examine again")]
    MoveAway {
        /// The file or directory.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        path: PathBuf,
    },
    /// Restore what this link leads to, which does not exist: another disk may not be mounted.
    #[display("restore what a link leads to, which is not there, and examine again")]
    RestoreLink {
        /// The link.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        path: PathBuf,
    },
    /// Create `xor.dat` with this key, which the block files reveal.
    #[display("restore xor.dat, whose contents follow from the block files")]
    RestoreKey {
        /// The contents of the file.
        #[cfg_attr(feature = "serde", serde(with = "KeyText"))]
        key: [u8; 8],
    },
    /// Take blocks from files in this folder that bitcoind cannot read: they have other keys, or other names.
    #[display("take the blocks of files that bitcoind cannot read: they have other keys, or other names")]
    TakeFromFiles {
        /// The folder.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        directory: PathBuf,
    },
    /// Finish or undo the replacement of databases that was interrupted ([`crate::recover()`]).
    #[display("finish or undo the replacement of databases that was interrupted")]
    FinishReplacement,
    /// Download all blocks.
    #[display("download the blocks that are missing")]
    Sync,
    /// Download all blocks of a pruned node again, which stays one: its chainstate is gone or broken.
    #[display("download all blocks again, and make the chainstate meanwhile; the node stays pruned")]
    SyncPruned,
    /// Download the blocks that are damaged or missing.
    #[display("download the blocks that are damaged or missing, and rebuild what needs it")]
    Repair,
    /// Rebuild the chainstate.
    #[display("rebuild the chainstate")]
    Reindex,
    /// Rebuild block index and chainstate by scanning the block files.
    #[display("rebuild the block index and the chainstate from the block files")]
    ReindexByScan,
    /// Return to the chain of Bitcoin Core.
    #[display("return to the chain of Bitcoin Core: its blocks are checked, whatever marks say of them")]
    Reconsider {
        /// The block to check again that is marked as invalid; `None`: its chain is not stored.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        block: Option<BlockHash>,
        /// Whether the chainstate is rebuilt; otherwise, blocks are connected to it.
        #[cfg_attr(feature = "serde", serde(rename = "rebuild"))]
        rebuilds: bool,
    },
    /// Make the undo data that is missing.
    #[display("make the undo data that is missing or damaged")]
    MakeUndo,
    /// Make these indexes anew: bitcoind does not start with them, or does not find transactions.
    #[display("make the indexes anew with which bitcoind cannot go on")]
    MakeIndexes {
        /// The options of bitcoind that keep them.
        names: Vec<&'static str>,
    },
    /// Move the chainstate of a snapshot away, with which bitcoind does not start or nothing can be rebuilt.
    #[display("set the snapshot's chainstate aside, and examine again")]
    MoveSnapshotAway,
    /// Run `bitcoind -reindex`, which downloads all blocks that are missing or damaged.
    #[display("let bitcoind download blocks again: not all are stored and sound")]
    BitcoindReindex,
}

#[cfg(feature = "serde")]
written! {
    KeyText: [u8; 8] => String, |key| key.iter().map(|byte| format!("{byte:02x}")).collect();
}
