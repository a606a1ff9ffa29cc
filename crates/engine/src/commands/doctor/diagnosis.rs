//! What an examination of a datadir reports.

use super::{
    advice::Advice,
    fields::{AbsenceCode, Lock},
    indexes::{FoundIndex, FoundIndexes},
    log::LastStart,
};
use api::{
    disk_need::DiskNeed,
    error::Error,
    json::{PathText, PathTexts, Seconds, WithText, fields, written},
    subject::Subject,
};
use derive_more::Display;
use disk::{datadir::Absence, node_indexes::IndexKind};
use pipeline::stages::undo_survey::UndoFileCheck;
use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, time::Duration};
use vfs::LockHolder;
use wire::{BlockHash, BlockTime, Height, Network};

api::reported! {
/// Result of [`crate::doctor::diagnose()`].
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The network.
    pub network as "chain": Network,
    /// The datadir, or why there is none.
    pub found with "Found" [flatten]: Result<Box<DatadirState>, Absence>,
    /// What to do next.
    pub advice with "AdviceText": Advice,
    /// Time from the call to the end.
    pub elapsed as "seconds" with "Seconds": Duration,
}

/// What is in a datadir.
#[derive(Clone, Debug)]
pub struct DatadirState {
    /// The directory of the network.
    pub dir as "directory" with "PathText": PathBuf,
    /// The directory of the block files.
    pub blocks_dir [skip]: PathBuf,
    /// Whose it is.
    pub owner [flatten]: Owner,
    /// Which other process uses it.
    pub lock with "LockText": LockState,
    /// Why block and undo files cannot be read: their key is missing or wrong.
    pub key as "xor_error": Option<Error>,
    /// The block index.
    pub index as "block_index" with "IndexText": IndexState,
    /// The block files.
    pub blocks as "block_files" with "FilesText": FilesState,
    /// The undo files, up to the last block that was connected.
    pub undo as "undo_files" with "FilesText": FilesState,
    /// The chainstate.
    pub chainstate with "ChainstateText": ChainstateState,
    /// The second chainstate.
    pub snapshot [flatten]: SnapshotState,
    /// The indexes that bitcoind keeps besides the block index.
    pub indexes with "FoundIndexes" [flatten]: Vec<FoundIndex>,
    /// What interrupted runs have left.
    pub leftovers: Leftovers,
    /// What a rebuild needs.
    pub rebuild [flatten]: RebuildNeed,
    /// What reading everything has shown, if it was asked for.
    pub deep: Option<DeepState>,
    /// The last start of bitcoind, and what keeps it from starting again.
    pub start [flatten]: StartState,
}

/// What is known of the last start of bitcoind on a datadir, and of the next.
#[derive(Clone, Debug)]
pub struct StartState {
    /// What keeps bitcoind from starting, or lets it discard databases, though these are sound: the clock,
    /// the file system, settings, and damage to the blocks that it reads first. The first one counts.
    pub faults as "start_errors" with "StartErrors": Vec<StartFault>,
    /// What `debug.log` has of the last start: among others, the program that has written the datadir.
    pub last as "version" with "VersionText": LastStart,
}
}

/// Something that keeps bitcoind from starting as it should, though its databases are sound.
#[derive(Clone, Debug)]
pub struct StartFault {
    /// What it is.
    pub error: Error,
    /// What to do about it.
    pub advice: Advice,
}

/// A setting that lets bitcoind keep an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexSetting {
    /// The index.
    pub kind: IndexKind,
    /// The file with the setting.
    pub file: PathBuf,
    /// Number of its line; `None` in `settings.json`.
    pub line: Option<u32>,
}

/// What bitcoind's settings mean for its start.
#[derive(Clone, Debug, Default)]
pub struct NodeSettings {
    /// What is wrong with them by themselves.
    pub faults: Vec<StartFault>,
    /// The indexes that they turn on.
    pub indexes: Vec<IndexSetting>,
}

api::reported! {
/// The second chainstate of a datadir.
#[derive(Clone, Debug)]
pub struct SnapshotState {
    /// Whether bitcoind loads one, from a snapshot.
    pub exists as "has_snapshot": bool,
    /// Why bitcoind does not start with it.
    pub error as "snapshot_error": Option<Error>,
}

/// The owner of a datadir.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// User id of the owner of the datadir, or of its blocks if the datadir is root's.
    pub uid as "owner": u32,
    /// Effective user id of this process.
    pub user: u32,
    /// Databases, and blocks, that belong to other users, and directories that their owner may not write:
    /// bitcoind cannot open them.
    pub foreign as "foreign_databases" with "PathTexts": Vec<PathBuf>,
}
}

api::reported! {
/// Whether another process uses the datadir.
#[derive(Clone, Debug, Display)]
pub enum LockState as LockCode {
    /// No other process uses it.
    #[display("no")]
    Free,
    /// The process that is named uses it.
    #[display("yes: {_0} is running on it")]
    Held(LockHolder),
    /// Another node uses the block files, but not this datadir.
    #[display("its block files are: {_0} is running on a datadir that shares them")]
    BlocksHeld(LockHolder),
    /// The file system has no locks, so that bitcoind does not start.
    #[display("unknown: the file system has no locks ({})", _0.fact_text())]
    Unsupported(Error),
    /// The lock files cannot be opened.
    #[display("unknown (the lock files cannot be opened)")]
    Unknown,
}
}

impl LockState {
    /// Whether another process may change files of the datadir.
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Held(_) | Self::BlocksHeld(_))
    }
}

api::reported! {
/// The state of a database.
#[derive(Clone, Debug, Default)]
pub enum DatabaseState as DatabaseCode {
    /// It opens. Of the block index, all rows were read.
    Sound,
    /// There is none.
    #[default]
    Absent,
    /// It is damaged.
    Broken(Error),
    /// It cannot be read: no permission, an I/O error, or another process is writing to it.
    Unreadable(Error),
}
}

impl DatabaseState {
    /// Whether it is sound.
    pub const fn is_sound(&self) -> bool {
        matches!(self, Self::Sound)
    }
}

api::reported! {
/// The state of the block index.
#[derive(Clone, Debug, Default)]
pub struct IndexState {
    /// The database.
    pub state with "Database" [flatten]: DatabaseState,
    /// Number of blocks that it places in block files.
    pub blocks: u32,
    /// Number of headers, those of the blocks included.
    pub headers: u32,
    /// Height of the most-work header.
    pub header_height: Height,
    /// Height up to which the blocks of that chain are stored. Missing blocks below the chainstate's best
    /// block do not lower it.
    pub stored_height: Height,
    /// Whether old block files were deleted to save space.
    pub is_pruned as "pruned": bool,
    /// Height from which on all blocks of the chainstate's chain are stored.
    pub first_stored as "first_stored_height": Height,
    /// A block that is marked as invalid, of the chainstate's chain or below stored blocks with more work,
    /// and the height of the last of them.
    pub marked_invalid [skip]: Option<(Height, BlockHash, Height)>,
    /// Where the chainstate has left the chain of Bitcoin Core, if it is on a dead branch
    /// ([`rules::ChainParams::dead_branch`]), and the block of that chain that is marked as invalid.
    pub left_at [skip]: Option<(Height, Option<BlockHash>)>,
    /// Number of blocks of another chain ([`disk::departed`]).
    pub departed as "departed_blocks": u32,
    /// Whether bitcoind begins there as in an empty datadir, without an index, and no block is lost.
    pub has_only_genesis [skip]: bool,
}
}

api::reported! {
/// The state of the block files or the undo files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilesState {
    /// Number of files.
    pub files: u32,
    /// Their length in bytes.
    pub bytes: u64,
    /// Names of the files that are missing though the block index places records in them.
    pub missing: Vec<String>,
    /// Names of the files that end before records that the block index places in them.
    pub short: Vec<String>,
    /// Number of blocks whose record was in these files.
    pub lost as "blocks_lost": u32,
    /// Number of those blocks that are not of the most-work chain, so that nobody needs them. But bitcoind
    /// does not start as long as its block index places one in a file that is missing.
    pub lost_stale as "stale_blocks_lost": u32,
    /// Number of blocks for which the block index has no place, but should; also if it places undo data
    /// beyond the bytes that it records as used.
    pub unrecorded as "blocks_unrecorded": u32,
    /// Number of blocks that the block index places beyond the bytes that it records as used: bitcoind would
    /// overwrite them.
    pub beyond_use as "blocks_beyond_use": u32,
    /// Names of files with blocks beside the block files that bitcoind does not read.
    pub other_names: Vec<String>,
    /// Names of the files that could not be read completely, so that blocks may be missing in the numbers
    /// that follow.
    pub unread: Vec<String>,
    /// Number of blocks in these files that the block index does not place there: a crashed bitcoind has left
    /// them, or the files were copied back. Not counted while another process uses the datadir.
    pub unknown_blocks: u32,
    /// Their bytes.
    pub unknown_bytes: u64,
    /// Number of further records beyond the bytes in use, which are blocks of another chain
    /// ([`disk::departed`]).
    pub departed as "departed_blocks": u32,
    /// Number of files with such blocks.
    pub unknown_files as "files_with_unknown_blocks": u32,
    /// Number of these files that bitcoind deletes when it starts, as a pruned node does.
    pub deleted_files as "unknown_files_deleted_at_start": u32,
    /// The lowest of the blocks in `lost` and `unrecorded`.
    pub first with "FirstLost" [flatten]: Option<(Height, BlockHash)>,
}
}

impl FilesState {
    /// Files of these lengths, of whose records nothing is known.
    pub(super) fn of_lengths(lengths: &BTreeMap<u32, u64>) -> Self {
        Self { files: lengths.len() as u32, bytes: lengths.values().sum(), ..Self::default() }
    }

    /// Number of blocks whose record is missing.
    pub const fn lacking(&self) -> u32 {
        self.lost.saturating_add(self.unrecorded)
    }
}

api::reported! {
/// The state of the chainstate.
#[derive(Clone, Debug, Default)]
pub struct ChainstateState {
    /// The database. Only tables' ends were read.
    pub state with "Database" [flatten]: DatabaseState,
    /// Its best block.
    pub best_block as "block_hash": Option<BlockHash>,
    /// Height of the best block.
    pub height: Option<Height>,
    /// Time of the best block.
    pub time [skip]: Option<BlockTime>,
    /// The best block relative to the stored blocks; `None` if one of them is unknown.
    pub position with "Position" [flatten]: Option<ChainstatePosition>,
    /// The block of its own chain that the block index marks as invalid: bitcoind neither leaves that chain
    /// nor goes on with it.
    pub marked_invalid [skip]: Option<BlockHash>,
    /// Whether bitcoind was stopped while it wrote; it completes that when it next starts.
    pub flush_interrupted: bool,
}
}

api::reported! {
/// The chainstate's best block relative to the stored blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainstatePosition as PositionCode {
    /// It is the last one.
    AtTip,
    /// So many blocks are stored above it.
    Behind(u32),
    /// It is not on the chain with the most work.
    OnBranch {
        /// Height of its highest ancestor that is.
        fork: Height,
        /// Height up to which the blocks of that chain are stored.
        stored: Height,
    },
    /// The block index does not contain it: the index is older, or belongs to another chain.
    NotInIndex,
    /// Neither a usable block index nor the last block files contain it: it is lost, and blocks below it may
    /// be, too.
    NotStored,
}
}

api::reported! {
/// What interrupted runs of Peregrine have left in a datadir.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leftovers {
    /// A replacement of databases was interrupted: [`crate::recover()`] finishes or undoes it.
    pub has_journal as "journal": bool,
    /// Databases that were being built, which the next command that writes removes.
    pub has_unfinished_databases as "unfinished_databases": bool,
    /// Numbers of blocks that are done, and of all blocks, of a checkpoint.
    pub checkpoint with "CheckpointBlocks" [flatten]: Option<(u32, u32)>,
    /// The version of Peregrine that made it, if that is another one: only that one resumes.
    pub checkpoint_version: Option<String>,
    /// Undo data that was made and is not in place.
    pub has_made_undo as "made_undo": bool,
    /// Temporary files of killed runs, which the next command that writes removes.
    pub has_work_dirs as "work_directories": bool,
}

/// What a rebuild would need, estimated.
#[derive(Clone, Default, Debug)]
pub struct RebuildNeed {
    /// Why the command that seems to help would be refused; `None` if it would not be.
    pub refusal as "rebuild_refused": Option<Error>,
    /// Disk space.
    pub need as "rebuild_needs_bytes" with "NeededBytes": DiskNeed,
    /// Free disk space where the chainstate is, in bytes.
    pub free as "free_bytes": Option<u64>,
    /// Whether one of the disks that a rebuild writes to has too little free space.
    pub lacks_space: bool,
    /// Speed of the disk in bytes per second, the median of small samples of the block files; `None` if
    /// there are none, or the node is pruned, so that there can be no rebuild.
    pub bytes_per_second as "sample_bytes_per_second": Option<u64>,
    /// The time that it takes.
    pub duration with "RebuildSeconds" [flatten]: Option<RebuildTime>,
    /// The time if the scripts that the block index marks as checked are believed to be valid; `None` if that
    /// makes no difference.
    pub checked_duration as "rebuild_with_checked" with "RebuildSeconds": Option<RebuildTime>,
}
}

/// What time a rebuild takes: a range, because samples differ, and so do machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RebuildTime {
    /// To read the blocks, and to check all but scripts.
    pub blocks: RangeInclusive<Duration>,
    /// To run the scripts that are not assumed to be valid.
    pub scripts: RangeInclusive<Duration>,
    /// What scripts these are; `None` if that is not known, or none are run.
    pub script_work: Option<ScriptWork>,
    /// Whether other programs use the processor, so that it may take longer.
    pub is_busy: bool,
}

impl RebuildTime {
    /// The whole time.
    pub fn total(&self) -> RangeInclusive<Duration> {
        let [least, most] = [RangeInclusive::start, RangeInclusive::end]
            .map(|end| end(&self.blocks).saturating_add(*end(&self.scripts)));
        least..=most
    }
}

/// The blocks whose scripts a rebuild runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptWork {
    /// Height above which these blocks are, and up to which scripts are believed to be valid; `None` if they
    /// are all blocks.
    pub above: Option<Height>,
    /// Their number; 0 if it is not known.
    pub blocks: u32,
    /// Their bytes, about.
    pub bytes: u64,
}

impl ScriptWork {
    /// All blocks, which have so many bytes.
    pub(super) const fn of_all(bytes: u64) -> Self {
        Self { above: None, blocks: 0, bytes }
    }
}

api::reported! {
/// What reading all blocks, undo data and coins has shown.
#[derive(Clone, Debug, Default)]
pub struct DeepState {
    /// Number of blocks that were read; none if the node is pruned.
    pub blocks: u32,
    /// Number of these that are damaged.
    pub damaged as "blocks_damaged": u32,
    /// Number of these that lie sound at other places in the block files.
    pub elsewhere as "blocks_damaged_but_elsewhere": u32,
    /// What is wrong with the lowest ones.
    pub first as "first_damaged": Vec<Error>,
    /// Undo data by file, up to the chainstate's best block.
    pub undo with "UndoTotals" [flatten]: Vec<UndoFileCheck>,
    /// Why the blocks could not be read.
    pub refusal as "blocks_error": Option<Error>,
    /// The chainstate's number of coins and its `hash_serialized_3`, in internal byte order, if it is whole.
    pub coins with "Coins" [flatten]: Option<Result<(u64, [u8; 32]), Error>>,
}
}

impl Diagnosis {
    /// Whether nothing is damaged or missing.
    pub fn is_sound(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| found.is_sound())
    }
}

impl DatadirState {
    /// Whether nothing is damaged or missing, and the node has not left Bitcoin's chain. A database that
    /// cannot be read because another process writes to it does not count as damaged.
    pub fn is_sound(&self) -> bool {
        let databases = [&self.index.state, &self.chainstate.state];
        let is_held = self.lock.is_held();
        // bitcoind has not connected a block yet.
        let IndexState { has_only_genesis, is_pruned, stored_height, .. } = self.index;
        let is_new = self.index.state.is_sound() && stored_height == Height(0) && !is_pruned;
        let may_be = |state: &&DatabaseState| match state {
            DatabaseState::Sound => true,
            DatabaseState::Absent => is_new || has_only_genesis,
            DatabaseState::Broken(_) => has_only_genesis,
            DatabaseState::Unreadable(_) => is_held,
        };
        databases.iter().all(may_be)
            && self.blocks.lacking() + self.undo.lacking() == 0
            && !self.chainstate.is_unknown()
            && self.chainstate.marked_invalid.is_none()
            && self.index.left_at.is_none()
            && self.index.departed == 0
            && self.key.is_none()
            && self.blocks.beyond_use == 0
            && !self.rebuild.refusal.as_ref().is_some_and(|error| error.is_about(Subject::BlockIndex))
            && self.snapshot.error.is_none()
            && !self.leftovers.has_journal
            && self.owner.foreign.is_empty()
            && !self.indexes.iter().any(FoundIndex::is_broken)
            && self.start.faults.is_empty()
            && self.deep.as_ref().is_none_or(DeepState::is_sound)
    }

    /// Whether blocks were deleted that are needed to make an index.
    pub(super) fn lacks_blocks_of_indexes(&self) -> bool {
        self.index.is_pruned && self.index.first_stored > Height(0)
    }

    /// Whether something keeps bitcoind from starting about which this is advised.
    pub fn has_start_fault(&self, advice: &Advice) -> bool {
        self.start.faults.iter().any(|fault| fault.advice == *advice)
    }
}

impl ChainstateState {
    /// Whether the block index does not contain the best block.
    pub(super) const fn is_unknown(&self) -> bool {
        matches!(self.position, Some(ChainstatePosition::NotInIndex | ChainstatePosition::NotStored))
    }
}

impl DeepState {
    /// The result if nothing can be read.
    pub(super) fn refused(error: Error) -> Self {
        Self { refusal: Some(error), ..Self::default() }
    }

    /// Whether nothing is damaged or missing.
    pub fn is_sound(&self) -> bool {
        self.damaged == 0 && self.refusal.is_none() && self.coins_error().is_none() && !self.lacks_undo()
    }

    /// Why the coins could not be read.
    pub(super) fn coins_error(&self) -> Option<&Error> {
        self.coins.as_ref()?.as_ref().err()
    }

    /// Whether the blocks could not be read because some are missing.
    pub(super) fn lacks_blocks(&self) -> bool {
        self.refusal
            .as_ref()
            .is_some_and(|error| error.is_about(Subject::BlockFile) || error.is_about(Subject::MissingBlocks))
    }

    /// Whether undo data is missing or damaged.
    pub fn lacks_undo(&self) -> bool {
        self.undo.iter().any(|file| file.missing + file.damaged > 0)
    }
}

written! {
    AdviceText: Advice => WithText<Advice>, |advice| WithText::new(advice.clone());
    IndexText: IndexState => WithText<IndexState>, |index| WithText::new(index.clone());
    FilesText: FilesState => WithText<FilesState>, |files| WithText::new(files.clone());
    ChainstateText: ChainstateState => WithText<ChainstateState>, |state| WithText::new(state.clone());
    LockText: LockState => WithText<Lock>, |lock| {
        let holder = match lock {
            LockState::Held(holder) | LockState::BlocksHeld(holder) => Some(holder),
            LockState::Free | LockState::Unsupported(_) | LockState::Unknown => None,
        };
        let program = holder.and_then(|holder| holder.program.clone());
        let code = Lock { state: lock.code(), pid: holder.and_then(|holder| holder.pid), program };
        WithText { code, text: lock.to_string() }
    };
    VersionText: LastStart => Option<String>, |start| start.version.clone();
    StartErrors: Vec<StartFault> => Vec<Error>, |faults| {
        faults.iter().map(|fault| fault.error.clone()).collect()
    };
    NeededBytes: DiskNeed => u64, DiskNeed::total;
}

fields! {
    Found(found: Result<Box<DatadirState>, Absence>) {
        is_sound: bool = found.as_ref().is_ok_and(|state| state.is_sound()),
        /// Why there is nothing to examine.
        absence: Option<WithText<AbsenceCode>> = found.as_ref().err().map(|absence| WithText {
            code: match absence {
                Absence::NoDirectory => AbsenceCode::NoDirectory,
                Absence::NoBlocks => AbsenceCode::NoBlocks,
                Absence::OnlyChainstate => AbsenceCode::OnlyChainstate,
                Absence::OtherNetworks(others) => AbsenceCode::OtherNetworks { chains: others.clone() },
            },
            text: absence.to_string(),
        }),
        datadir: Option<Box<DatadirState>> = found.as_ref().ok().cloned(),
    }

    Database(state: DatabaseState) {
        state: DatabaseCode = state.code(),
        error: Option<Error> = match state {
            DatabaseState::Sound | DatabaseState::Absent => None,
            DatabaseState::Broken(error) | DatabaseState::Unreadable(error) => Some(error.clone()),
        },
    }

    FirstLost(first: Option<(Height, BlockHash)>) {
        first_height: Option<Height> = first.map(|(height, _)| height),
        first_block_hash: Option<BlockHash> = first.map(|(_, hash)| hash),
    }

    /// Where the chainstate's best block is relative to the stored blocks.
    Position(position: Option<ChainstatePosition>) {
        position: Option<PositionCode> = position.as_ref().map(ChainstatePosition::code),
        blocks_behind: Option<u32> = match position {
            Some(ChainstatePosition::AtTip) => Some(0),
            Some(ChainstatePosition::Behind(blocks)) => Some(*blocks),
            _ => None,
        },
    }

    CheckpointBlocks(checkpoint: Option<(u32, u32)>) {
        checkpoint_blocks_done: Option<u32> = checkpoint.map(|(done, _)| done),
        checkpoint_blocks_total: Option<u32> = checkpoint.map(|(_, total)| total),
    }

    RebuildSeconds(time: Option<RebuildTime>) {
        /// The middle of the range that follows.
        rebuild_seconds_estimate: Option<f64> = time.as_ref().map(|time| {
            time.total().start().as_secs_f64().midpoint(time.total().end().as_secs_f64())
        }),
        rebuild_seconds_least: Option<f64> = time.as_ref().map(|time| time.total().start().as_secs_f64()),
        rebuild_seconds_most: Option<f64> = time.as_ref().map(|time| time.total().end().as_secs_f64()),
        /// The part of `rebuild_seconds_most` that running scripts takes.
        rebuild_scripts_seconds_most: Option<f64> =
            time.as_ref().map(|time| time.scripts.end().as_secs_f64()),
        /// Height above which they are run; none if they are run for all blocks.
        rebuild_scripts_above: Option<Height> = time.as_ref().and_then(|time| time.script_work?.above),
        /// Whether more programs want to run than the machine has cores.
        is_busy: Option<bool> = time.as_ref().map(|time| time.is_busy),
    }

    UndoTotals(files: Vec<UndoFileCheck>) {
        undo_missing: u32 = files.iter().map(|file| file.missing).sum(),
        undo_damaged: u32 = files.iter().map(|file| file.damaged).sum(),
    }

    Coins(coins: Option<Result<(u64, [u8; 32]), Error>>) {
        coins: Option<u64> = coins.iter().flatten().next().map(|(count, _)| *count),
        hash_serialized_3: Option<String> =
            coins.iter().flatten().next().map(|(_, hash)| api::hex_reversed(hash)),
        coins_error: Option<Error> = coins.as_ref().and_then(|coins| coins.as_ref().err()).cloned(),
    }
}
