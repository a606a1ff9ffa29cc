//! What an examination of a datadir advises.

#[cfg(feature = "serde")]
use api::json::{OptionalPathText, PathText, PathTexts, written};
#[cfg(feature = "serde")]
use schemars::JsonSchema;
#[cfg(feature = "serde")]
use serde::Serialize;
use std::path::PathBuf;
use wire::{BlockHash, Network};

/// The one thing to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "code", rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Advice {
    /// Start bitcoind. Nothing is wrong, or bitcoind repairs it when it starts.
    StartBitcoind,
    /// Start bitcoind without its check of the last undo data, of which some is missing. It is a pruned node,
    /// which can neither make nor download that. Until it has connected new blocks, it cannot disconnect the
    /// last ones.
    StartWithoutUndo,
    /// Nothing: bitcoind is running.
    LetItRun,
    /// Stop the bitcoind that uses the datadir, and diagnose again.
    StopBitcoind,
    /// Wait for the other program that uses the datadir.
    Wait,
    /// Choose the directory that bitcoind uses: there is no directory with this name.
    NameDatadir,
    /// Choose the directory that bitcoind uses for block files, of which there are none here; `None` if the
    /// log does not name it.
    NameBlocksdir {
        /// What the log names.
        #[cfg_attr(feature = "serde", serde(with = "OptionalPathText"))]
        directory: Option<PathBuf>,
    },
    /// Choose this network.
    ChooseNetwork {
        /// The network.
        #[cfg_attr(feature = "serde", serde(rename = "chain"))]
        network: Network,
    },
    /// Name the challenge of this signet.
    NameChallenge,
    /// Diagnose as the user with this id.
    RunAs {
        /// The user id.
        user: u32,
    },
    /// Give these directories, and all in them, to the owner of the datadir, and allow that user to read and
    /// write them.
    ChangeOwner {
        /// The directories.
        #[cfg_attr(feature = "serde", serde(with = "PathTexts"))]
        directories: Vec<PathBuf>,
    },
    /// Look for errors of the disk: a file cannot be read, or none can be written.
    CheckDisk,
    /// Read everything: the log reports an error of a database that a short examination does not find.
    LookDeeper,
    /// Correct the clock: bitcoind does not start with a block from the future.
    CorrectClock,
    /// Mount the file system of this directory with locks, without which bitcoind does not start.
    ProvideLocks {
        /// The directory.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        directory: PathBuf,
    },
    /// Remove or change a setting of bitcoind.
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
    MoveAway {
        /// The file or directory.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        path: PathBuf,
    },
    /// Restore what this link leads to, which does not exist: another disk may not be mounted.
    RestoreLink {
        /// The link.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        path: PathBuf,
    },
    /// Create `xor.dat` with this key, which the block files reveal.
    RestoreKey {
        /// The contents of the file.
        #[cfg_attr(feature = "serde", serde(with = "KeyText"))]
        key: [u8; 8],
    },
    /// Take blocks from files in this folder that bitcoind cannot read: they have other keys, or other names.
    TakeFromFiles {
        /// The folder.
        #[cfg_attr(feature = "serde", serde(with = "PathText"))]
        directory: PathBuf,
    },
    /// Finish or undo the replacement of databases that was interrupted ([`crate::recover()`]).
    FinishReplacement,
    /// Download all blocks.
    Sync,
    /// Download all blocks of a pruned node again, which stays one: its chainstate is gone or broken.
    SyncPruned,
    /// Download the blocks that are damaged or missing.
    Repair,
    /// Rebuild the chainstate.
    Reindex,
    /// Rebuild block index and chainstate by scanning the block files.
    ReindexByScan,
    /// Return to the chain of Bitcoin Core.
    Reconsider {
        /// The block to check again that is marked as invalid; `None`: its chain is not stored.
        #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
        block: Option<BlockHash>,
        /// Whether the chainstate is rebuilt; otherwise, blocks are connected to it.
        #[cfg_attr(feature = "serde", serde(rename = "rebuild"))]
        rebuilds: bool,
    },
    /// Make the undo data that is missing.
    MakeUndo,
    /// Make these indexes anew: bitcoind does not start with them, or does not find transactions.
    MakeIndexes {
        /// The options of bitcoind that keep them.
        names: Vec<&'static str>,
    },
    /// Move the chainstate of a snapshot away, with which bitcoind does not start or nothing can be rebuilt.
    MoveSnapshotAway,
    /// Run `bitcoind -reindex`, which downloads all blocks that are missing or damaged.
    BitcoindReindex,
}

#[cfg(feature = "serde")]
written! {
    KeyText: [u8; 8] => String, |key| key.iter().map(|byte| format!("{byte:02x}")).collect();
}
