//! What an examination of a datadir reports.

use crate::{
    api::{error::Error, note::DiskNeed, remedy::Remedy},
    commands::undo::UndoFileCheck,
};
use disk::datadir::Absence;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};
use vfs::LockHolder;
use wire::{BlockHash, FileNo, Height, Network};

/// Result of [`crate::diagnose()`].
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The network.
    pub network: Network,
    /// The datadir, or why there is none.
    pub found: Result<Box<DatadirState>, Absence>,
    /// What to do next.
    pub advice: Advice,
    /// Time from the call to the end.
    pub elapsed: Duration,
}

/// What is in a datadir.
#[derive(Clone, Debug)]
pub struct DatadirState {
    /// The directory of the network.
    pub dir: PathBuf,
    /// The directory of the block files.
    pub blocks_dir: PathBuf,
    /// Whose it is.
    pub owner: Owner,
    /// Which other process uses it.
    pub lock: LockState,
    /// The program that has written it: the last version line of `debug.log`.
    pub version: Option<String>,
    /// Why block and undo files cannot be read: their key is missing or wrong.
    pub key: Option<Error>,
    /// The block index.
    pub index: IndexState,
    /// The block files.
    pub blocks: FilesState,
    /// The undo files, up to the last block that was connected.
    pub undo: FilesState,
    /// The chainstate.
    pub chainstate: ChainstateState,
    /// Whether there is a second chainstate, from a snapshot.
    pub has_snapshot: bool,
    /// Names of the indexes that bitcoind keeps besides the block index.
    pub indexes: Vec<String>,
    /// What interrupted runs have left.
    pub leftovers: Leftovers,
    /// Why the rebuild that is needed would be refused; `None` if it would not be, or if none is needed.
    pub refusal: Option<Error>,
    /// What a rebuild needs.
    pub rebuild: RebuildNeed,
    /// What reading everything has shown, if it was asked for.
    pub deep: Option<DeepState>,
}

/// The owner of a datadir.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// User id of the owner of the block files' directory.
    pub uid: u32,
    /// Effective user id of this process.
    pub user: u32,
    /// Databases that belong to other users, so that bitcoind cannot open them.
    pub foreign: Vec<PathBuf>,
}

/// Whether another process uses the datadir.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockState {
    /// None does.
    Free,
    /// This process does.
    Held(LockHolder),
    /// The lock files cannot be opened.
    Unknown,
}

/// The state of a database.
#[derive(Clone, Debug)]
pub enum DatabaseState {
    /// It opens. Of the block index, all rows were read.
    Sound,
    /// There is none.
    Absent,
    /// It is damaged.
    Broken(Error),
    /// It cannot be read: no permission, an I/O error, or another process is writing to it.
    Unreadable(Error),
}

impl DatabaseState {
    /// Whether it is sound.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        matches!(self, Self::Sound)
    }
}

/// The state of the block index.
#[derive(Clone, Debug)]
pub struct IndexState {
    /// The database.
    pub state: DatabaseState,
    /// Number of blocks that it places in block files.
    pub blocks: u32,
    /// Number of headers, those of the blocks included.
    pub headers: u32,
    /// Height of the most-work header.
    pub header_height: Height,
    /// Height up to which the blocks of that chain are stored. Where blocks below the chainstate's best block
    /// are missing, those do not count.
    pub stored_height: Height,
    /// Whether old block files were deleted to save space.
    pub is_pruned: bool,
}

impl IndexState {
    /// An index whose rows could not be read.
    pub(super) const fn unknown(state: DatabaseState) -> Self {
        let none = Height(0);
        Self { state, blocks: 0, headers: 0, header_height: none, stored_height: none, is_pruned: false }
    }
}

/// The state of the block files or the undo files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilesState {
    /// Number of files.
    pub files: u32,
    /// Their length in bytes.
    pub bytes: u64,
    /// Files that are missing though the block index places records in them.
    pub missing: Vec<FileNo>,
    /// Files that end before records that the block index places in them.
    pub short: Vec<FileNo>,
    /// Number of blocks whose record was in these files.
    pub lost: u32,
    /// Number of those blocks that are not of the most-work chain, so that nobody needs them. But bitcoind
    /// does not start as long as its block index places one in a file that is missing.
    pub lost_stale: u32,
    /// Number of blocks for which the block index has no place, but should; also if it places undo data
    /// beyond the bytes that it records as used.
    pub unrecorded: u32,
    /// Number of blocks that the block index places beyond the bytes that it records as used: bitcoind would
    /// overwrite them.
    pub beyond_use: u32,
    /// The lowest of the blocks in `lost` and `unrecorded`.
    pub first: Option<(Height, BlockHash)>,
}

impl FilesState {
    /// Files of these lengths, of whose records nothing is known.
    pub(super) fn of_lengths(lengths: &BTreeMap<u32, u64>) -> Self {
        Self { files: lengths.len() as u32, bytes: lengths.values().sum(), ..Self::default() }
    }

    /// Number of blocks whose record is missing.
    #[must_use]
    pub const fn lacking(&self) -> u32 {
        self.lost.saturating_add(self.unrecorded)
    }
}

/// The state of the chainstate.
#[derive(Clone, Debug)]
pub struct ChainstateState {
    /// The database. Only tables' ends were read.
    pub state: DatabaseState,
    /// Its best block.
    pub best_block: Option<BlockHash>,
    /// Height of the best block.
    pub height: Option<Height>,
    /// The best block relative to the stored blocks; `None` if one of them is unknown.
    pub position: Option<ChainstatePosition>,
    /// Whether bitcoind was stopped while it wrote; it completes that when it next starts.
    pub flush_interrupted: bool,
}

/// The chainstate's best block relative to the stored blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainstatePosition {
    /// It is the last one.
    AtTip,
    /// So many blocks are stored above it.
    Behind(u32),
    /// The block index does not contain it: the index is older, or belongs to another chain.
    NotInIndex,
}

/// What interrupted runs of Peregrine have left in a datadir.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftovers {
    /// A replacement of databases was interrupted: the next command finishes or undoes it.
    pub has_journal: bool,
    /// Databases that were being built, which the next command removes.
    pub has_unfinished_databases: bool,
    /// Numbers of blocks that are done, and of all blocks, of a checkpoint.
    pub checkpoint: Option<(u32, u32)>,
    /// Undo data that was made and is not in place.
    pub has_made_undo: bool,
}

/// What a rebuild would need, estimated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RebuildNeed {
    /// Disk space.
    pub need: DiskNeed,
    /// Free disk space where the chainstate is, in bytes.
    pub free: Option<u64>,
    /// Speed of the disk in bytes per second, from a small sample of the block files; `None` if there are
    /// none, or too small ones.
    pub bytes_per_second: Option<u64>,
    /// Time that reading and checking takes at that speed, without scripts.
    pub duration: Option<Duration>,
}

/// What reading all blocks, undo data and coins has shown.
#[derive(Clone, Debug)]
pub struct DeepState {
    /// Number of blocks that were read; none if the node is pruned.
    pub blocks: u32,
    /// Number of these that are damaged.
    pub damaged: u32,
    /// What is wrong with the lowest ones.
    pub first: Vec<Error>,
    /// Undo data by file, up to the chainstate's best block.
    pub undo: Vec<UndoFileCheck>,
    /// Why the blocks could not be read.
    pub refusal: Option<Error>,
    /// The chainstate's number of coins and its `hash_serialized_3`, in internal byte order.
    pub coins: Result<(u64, [u8; 32]), Error>,
}

/// The one thing to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Advice {
    /// Start bitcoind. Nothing is wrong, or bitcoind repairs it when it starts.
    StartBitcoind,
    /// Nothing: bitcoind is running.
    LetItRun,
    /// Stop the bitcoind that uses the datadir, and diagnose again.
    StopBitcoind,
    /// Wait for the other program that uses the datadir.
    Wait,
    /// Choose the directory that bitcoind uses: there is no directory with this name.
    NameDatadir,
    /// Choose this network.
    ChooseNetwork(Network),
    /// Name the challenge of this signet.
    NameChallenge,
    /// Diagnose as the user with this id.
    RunAs(u32),
    /// Give these databases to the owner of the datadir.
    ChangeOwner(Vec<PathBuf>),
    /// Look for errors of the disk: a file cannot be read.
    CheckDisk,
    /// Create `xor.dat` with this key, which the block files reveal.
    RestoreKey([u8; 8]),
    /// Finish or undo the replacement of databases that was interrupted, by reading the chainstate.
    FinishReplacement,
    /// Download all blocks.
    Sync,
    /// Download the blocks that are damaged or missing.
    Repair,
    /// Rebuild the chainstate.
    Reindex,
    /// Rebuild block index and chainstate by scanning the block files.
    ReindexByScan,
    /// Make the undo data that is missing.
    MakeUndo,
    /// Run `bitcoind -reindex`, which downloads all blocks that are missing or damaged.
    BitcoindReindex,
}

impl Diagnosis {
    /// Whether nothing is damaged or missing.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| found.is_sound())
    }
}

impl DatadirState {
    /// Whether nothing is damaged or missing. That another process writes to a database, so that it cannot be
    /// read, is no damage.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let databases = [&self.index.state, &self.chainstate.state];
        let is_held = matches!(self.lock, LockState::Held(_));
        // bitcoind has not connected a block yet.
        let is_new = self.index.state.is_sound() && self.index.stored_height == Height(0);
        let may_be = |state: &&DatabaseState| match state {
            DatabaseState::Sound => true,
            DatabaseState::Absent => is_new,
            DatabaseState::Broken(_) => false,
            DatabaseState::Unreadable(_) => is_held,
        };
        databases.iter().all(may_be)
            && self.blocks.lacking() + self.undo.lacking() == 0
            && self.chainstate.position != Some(ChainstatePosition::NotInIndex)
            && self.key.is_none()
            && self.blocks.beyond_use == 0
            && !self.is_refused_for(Remedy::RebuildIndex)
            && !self.leftovers.has_journal
            && self.owner.foreign.is_empty()
            && self.deep.as_ref().is_none_or(DeepState::is_sound)
    }
}

impl DatadirState {
    /// Whether a rebuild would be refused, and this offered instead.
    pub(super) fn is_refused_for(&self, remedy: Remedy) -> bool {
        self.refusal.as_ref().is_some_and(|error| error.remedies.contains(&remedy))
    }
}

impl DeepState {
    /// The result before anything is read.
    pub(super) const fn empty() -> Self {
        let coins = Ok((0, [0; 32]));
        Self { blocks: 0, damaged: 0, first: Vec::new(), undo: Vec::new(), refusal: None, coins }
    }

    /// The result if nothing can be read.
    pub(super) fn refused(error: Error) -> Self {
        Self { coins: Err(error.clone()), refusal: Some(error), ..Self::empty() }
    }

    /// Whether nothing is damaged or missing.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.refusal.is_none() && self.coins.is_ok() && !self.lacks_undo()
    }

    /// Whether undo data is missing or damaged.
    #[must_use]
    pub fn lacks_undo(&self) -> bool {
        self.undo.iter().any(|file| file.missing + file.damaged > 0)
    }
}
