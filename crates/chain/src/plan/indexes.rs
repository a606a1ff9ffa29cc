//! Whether a command would make an index of the node wrong, or keep bitcoind from starting with it; and how
//! such an index is set aside.
//!
//! An index outlives the block files: bitcoind looks only at its best block when it starts. What a command
//! can do to one, by Core's source (`index/base.cpp`, `index/txindex.cpp`, `index/txospenderindex.cpp`):
//!
//! - Rows of a `txindex` of releases up to 31, and those of a `txospenderindex`, have the places of blocks in
//!   block files. When such a block is stored at another place, they lead to other bytes.
//! - The best block must be in the block index, or bitcoind stops when it starts (`BaseIndex::Init`).
//! - A `blockfilterindex` and a `coinstatsindex` are continued from undo data. If that of a block is missing,
//!   bitcoind stops when it starts (`CheckBlockDataAvailability`).
//! - An index whose best block is not on the chain is rewound. A `txospenderindex` needs the blocks for that,
//!   a `coinstatsindex` their undo data too. If they are gone, bitcoind stops (`BaseIndex::Rewind`).

use crate::{
    blocks::{damage::KnownDamage, files::Files},
    plan::{best_block::fork_of, planner::Plan},
};
use api::{
    error::Error,
    event::{Event, EventSink},
    note::Warning,
    options::SetAsideIndexes,
    remedy::Remedy,
};
use disk::{
    block_files::RecordBuffer,
    datadir::FileKind,
    index::{IndexEntry, IndexRows},
    node_indexes::{INDEXES_DIR, IndexContents, IndexKind, NodeIndex},
    replace::refuse_mount_point,
    undo::{CHECKSUM_LEN, checksum},
};
use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
};
use vfs::During as _;
use wire::{BlockHash, Height};

/// Number of blocks that stay below an index's best block, with that block (Core `PRUNE_LOCK_BUFFER`).
const PRUNE_BUFFER: u32 = 11;

/// Why an index cannot stay as it is: the words that follow its name in an error.
type Harm = Cow<'static, str>;

const UNREADABLE: &str = "it does not open, so that nothing can be told of its rows";

/// No remedy, since it cannot be made with pruning.
const NEEDS_ALL_BLOCKS: &str = "it needs all blocks, so that bitcoind does not use it with -prune";

/// The last blocks are left to bitcoind, and its best block can be one of them, or above them.
const LEFT_OVER: &str = "its blocks are gone, and bitcoind would stop if it ended above the new chainstate \
                         and had to be taken back";

/// Blocks from this height on get other places.
fn moves_from(height: Height) -> Harm {
    let harm = format!(
        "its rows have the places of blocks in the block files, and blocks from height {height} on get other \
         places in the block index, so that it would deny transactions that exist"
    );
    harm.into()
}

/// The indexes that a command must set aside before its changes count, because the caller said so.
#[derive(Default)]
#[must_use]
pub struct SetAside {
    indexes: Vec<NodeIndex>,
    /// Whether they will be made anew, so that they need not be kept.
    are_replaced: bool,
}

impl SetAside {
    /// Renames them, and says so unless they will be made anew.
    pub fn apply(&self, files: &Files<'_>, sink: &dyn EventSink) -> Result<(), Error> {
        for index in &self.indexes {
            if files.disk.list(&index.path).during("list", &index.path)?.is_empty() {
                // The index was set aside for another reason meanwhile.
                continue;
            }
            let (name, kept) = (index.name.clone(), index.set_aside(files.disk, self.are_replaced)?);
            if !self.are_replaced {
                sink.event(Event::Warning(Warning::IndexSetAside { name, kept }));
            }
        }
        Ok(())
    }
}

/// Checks the indexes before the blocks of the chain at the heights `moved`, in ascending order, are stored
/// at new places. `hash_at` knows the chain.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if an index would become wrong, unless it may be set aside; any I/O
/// error.
pub fn before_moves(
    files: &Files<'_>,
    hash_at: impl Fn(Height) -> Option<BlockHash>,
    moved: &[Height],
    may_set_aside: &SetAsideIndexes,
) -> Result<SetAside, Error> {
    let Some(&lowest) = moved.first() else { return Ok(SetAside::default()) };
    check_each(files, may_set_aside, |kind, contents| {
        if !contents.has_positions {
            return Ok(None);
        }
        let current = files.datadir.index_dir().join("CURRENT");
        if !files.disk.exists(&current).during("look for", &current)? {
            return Ok(Some(moves_from(lowest)));
        }
        let index = IndexRows::open(files.disk, &files.datadir.index_dir())?;
        // Without a best block, the rows can be those of any block.
        let fork = contents.positions_to.map(|end| fork_of(&index, end, &hash_at, |_| true)).transpose()?;
        let mut is_covered = fork.flatten().is_none_or(|fork| fork >= lowest);
        // bitcoind writes the rows of a block when it connects it, but the best block later. After a crash in
        // between it writes them again: a `txindex` has them under the same keys, but a `txospenderindex` has
        // places in its keys, and keeps both.
        if kind == IndexKind::TxoSpender {
            for hash in moved.iter().filter_map(|&height| hash_at(height)) {
                is_covered = is_covered || index.entry(&hash)?.is_some_and(|it| it.status.was_connected());
            }
        }
        Ok(is_covered.then(|| moves_from(lowest)))
    })
}

pub struct DeletedBlocks<'a> {
    pub hash_at: &'a dyn Fn(Height) -> Option<BlockHash>,
    /// Blocks from this one on stay.
    pub kept_from: Height,
    /// Indexes that are made anew from the blocks before these are deleted.
    pub made: &'a [IndexKind],
}

/// Checks the indexes before block files are deleted; `deleted`: `None` if that is not known yet. Returns
/// also the last block that bitcoind would delete with the indexes that stay (Core `PruneLockInfo`).
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if there is one that needs blocks that are deleted, unless it may be set
/// aside; any I/O error.
pub fn before_pruning(
    files: &Files<'_>,
    deleted: Option<&DeletedBlocks<'_>>,
    may_set_aside: &SetAsideIndexes,
) -> Result<(SetAside, Option<Height>), Error> {
    let last = Cell::new(None::<Height>);
    let set_aside = check_each(files, may_set_aside, |kind, contents| {
        if !kind.needs_undo() {
            let is_there = kind == IndexKind::Unknown || *contents != IndexContents::default();
            return Ok(is_there.then_some(NEEDS_ALL_BLOCKS.into()));
        }
        if deleted.is_some_and(|deleted| deleted.made.contains(&kind)) {
            return Ok(None);
        }
        if contents.has_positions {
            return Ok(Some(UNREADABLE.into()));
        }
        let Some(DeletedBlocks { hash_at, kept_from, .. }) = deleted else {
            let mut is_left_over = kind == IndexKind::CoinStats && contents.best_block.is_some();
            for dir in [files.datadir.index_dir(), files.datadir.chainstate_dir()] {
                is_left_over &= !files.disk.exists(&dir).during("look for", &dir)?;
            }
            return Ok(is_left_over.then(|| LEFT_OVER.into()));
        };
        let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
        if let Some(best) = &contents.best_block {
            let height = fork_of(&rows, *best, hash_at, |_| true)?.unwrap_or_default();
            let last_deleted = Height(height.0.saturating_sub(PRUNE_BUFFER));
            if last_deleted.0 + 1 < kept_from.0 {
                let harm = format!(
                    "it ends at block {height}, and blocks above that would be deleted from which bitcoind \
                     continues it"
                );
                return Ok(Some(harm.into()));
            }
            last.set(Some(last.get().map_or(last_deleted, |other| other.min(last_deleted))));
        }
        Ok(None)
    })?;
    Ok((set_aside, last.get()))
}

/// Checks that these indexes exist and can be continued, before the blocks that could make them anew are
/// deleted.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if one cannot be continued; any I/O error.
pub fn require_continuable(
    files: &Files<'_>,
    kinds: &[IndexKind],
    hash_at: impl Fn(Height) -> Option<BlockHash>,
) -> Result<(), Error> {
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let found = NodeIndex::find(files.disk, files.datadir.net_dir())?;
    for kind in kinds {
        let index = found.iter().find(|index| index.name == kind.dir_name());
        let contents = index.and_then(|index| index.read(files.disk).ok()).unwrap_or_default();
        let best = contents.best_block;
        if best.map(|best| fork_of(&rows, best, &hash_at, |_| true)).transpose()?.flatten().is_some() {
            continue;
        }
        let (detail, remedy) = match rows.is_pruned()? {
            true => ("blocks that it would be made of are deleted", Remedy::Unprune),
            false => ("it would be made of blocks that are to be deleted", Remedy::MakeIndex(Some(*kind))),
        };
        let detail = format!("there is no sound {}, and {detail}; nothing was changed", kind.option());
        let dir = files.datadir.net_dir().join(kind.replaced_dir());
        return Err(Error::usage(detail).in_file(dir, None).with_remedies([remedy]));
    }
    Ok(())
}

/// Says which indexes a rebuild in place leaves unchanged, when the others are set aside.
pub fn tell_unchanged(files: &Files<'_>, sink: &dyn EventSink) -> Result<(), Error> {
    let mut names = Vec::new();
    for index in NodeIndex::find(files.disk, files.datadir.net_dir())? {
        // An index that was set aside has left an empty directory.
        if !files.disk.list(&index.path).during("list", &index.path)?.is_empty() {
            names.push(index.name);
        }
    }
    if !names.is_empty() {
        let dir = files.datadir.net_dir().join(INDEXES_DIR);
        sink.event(Event::Warning(Warning::IndexesUnchanged { dir, names }));
    }
    Ok(())
}

/// Checks the indexes before a rebuild in place puts the chainstate at the end of the plan. `damage`: the
/// blocks and undo data that the new block index will not have.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if bitcoind could not continue an index, unless it may be set aside; any
/// I/O error.
pub fn before_rebuild(
    files: &Files<'_>,
    plan: &Plan,
    damage: Option<&KnownDamage>,
    without_undo: Option<WithoutUndo<'_>>,
    may_set_aside: &SetAsideIndexes,
) -> Result<SetAside, Error> {
    let chain = &plan.chain;
    let entries = Entries { files, plan, old: OnceCell::new() };
    let is_lost = |entry: &IndexEntry, needs_undo: bool| {
        let is_damaged = damage.is_some_and(|damage| {
            damage.has_block(&entry.hash) || needs_undo && damage.has_undo(&entry.hash)
        });
        // A scan accepts blocks outside the chain by their headers alone.
        let is_stored = |(file, pos)| files.check_stored(&entry.hash, entry.height, file, pos).is_ok();
        let is_whole = entry.place().is_some_and(is_stored);
        is_damaged || !is_whole || needs_undo && sound_undo(files, entry).is_none()
    };
    let lacks_undo = |kind, end| match &without_undo {
        Some(without) => without.harm(&entries, kind, end),
        None => Ok(None),
    };
    let is_there = |kind: IndexKind| kind.is_in(files.disk, files.datadir.net_dir());
    for &kind in without_undo.iter().flat_map(|it| it.wanted) {
        if !is_there(kind)? {
            lacks_undo(kind, Height(0))?;
        }
    }
    let set_aside = check_each(files, may_set_aside, |kind, contents| {
        let needs_undo = kind == IndexKind::CoinStats;
        if contents.has_positions
            && let Some(height) = entries.first_moved()?
        {
            return Ok(Some(moves_from(height)));
        }
        if let Some(best) = &contents.best_block {
            let Some(mut entry) = entries.find(best)? else {
                let harm = "its best block is not in the block index, with which bitcoind does not start";
                return Ok(Some(harm.into()));
            };
            while !matches!(kind, IndexKind::Tx | IndexKind::Unknown) && !chain.has(entry.height, &entry.hash)
            {
                if kind != IndexKind::BlockFilter && is_lost(&entry, needs_undo) {
                    let harm = format!(
                        "its best block is above the new chain, and bitcoind would stop when it rewinds the \
                         index, because block {} or its undo data is lost",
                        entry.height
                    );
                    return Ok(Some(harm.into()));
                }
                let Some(below) = entries.find(&entry.header.prev)? else { break };
                entry = below;
            }
            return lacks_undo(kind, entry.height);
        }
        if is_there(kind)? { lacks_undo(kind, Height(0)) } else { Ok(None) }
    });
    set_aside.map_err(|mut error| {
        // Those that need undo data cannot be made in the same run.
        error.remedies.retain(|remedy| match remedy {
            Remedy::BringIndexes(kinds) if without_undo.is_some() => {
                !kinds.iter().flatten().any(|kind| kind.needs_undo())
            }
            _ => true,
        });
        error
    })
}

/// Reads the undo data of a block; `None` if it is not in its file, with its checksum.
fn sound_undo(files: &Files<'_>, entry: &IndexEntry) -> Option<()> {
    let (mut record, open) = (RecordBuffer::default(), files.open_records(FileKind::Rev, entry.file?).ok()?);
    open.read(entry.undo_pos?, &mut record).ok()?;
    let (undo, sum) = record.bytes().split_last_chunk::<CHECKSUM_LEN>()?;
    (entry.status.has_undo() && *sum == checksum(&entry.header.prev, undo)).then_some(())
}

/// The blocks whose undo data a rebuild leaves missing, as far as it is.
pub struct WithoutUndo<'a> {
    /// Height of the last of them.
    pub to: Height,
    /// The indexes that bitcoind's settings turn on.
    pub wanted: &'a [IndexKind],
}

impl WithoutUndo<'_> {
    /// Returns why bitcoind cannot continue an index that ends at height `end`.
    fn harm(&self, entries: &Entries<'_>, kind: IndexKind, end: Height) -> Result<Option<Harm>, Error> {
        let lacks_undo = |height: Height| -> Result<Option<Height>, Error> {
            let entry = entries.find(&entries.plan.chain.block(height).hash)?;
            Ok((!entry.is_some_and(|entry| entry.status.has_undo())).then_some(height))
        };
        // bitcoind wants that of the index's best block too, unless it is the last (Core `GetFirstBlock`).
        let is_behind = kind.needs_undo() && end < entries.plan.chain.tip_height();
        let mut heights = (end.0.max(1)..=self.to.0).map(Height).filter(|_| is_behind);
        let lacking = heights.find_map(|height| lacks_undo(height).transpose());
        let Some(height) = lacking.transpose()? else { return Ok(None) };
        let harm = format!(
            "it is made from undo data, and with hints, that of block {height} stays missing: bitcoind does \
             not start with the index until that is made"
        );
        if !self.wanted.contains(&kind) {
            return Ok(Some(harm.into()));
        }
        let detail = format!("{} is turned on in bitcoind's settings, but {harm}", kind.option());
        Err(Error::usage(detail).with_remedies([Remedy::WithoutHints]))
    }
}

/// The entries of the block index that bitcoind will have, by hash.
struct Entries<'a> {
    files: &'a Files<'a>,
    plan: &'a Plan,
    /// The block index in place.
    old: OnceCell<IndexRows<'a>>,
}

impl Entries<'_> {
    /// The entries in place.
    fn old(&self) -> Result<Option<&IndexRows<'_>>, Error> {
        if self.old.get().is_none() {
            // The cell is empty, so this cannot fail.
            let _ = self.old.set(IndexRows::open(self.files.disk, &self.files.datadir.index_dir())?);
        }
        Ok(self.old.get())
    }

    /// Returns the lowest block of the chain that a scan has found at another place than the block index in
    /// place has, and that is not at both: somebody has moved block files. A block index that cannot be read
    /// tells nothing.
    fn first_moved(&self) -> Result<Option<Height>, Error> {
        let Some(old) = self.plan.new_index.as_ref().and_then(|_| self.old().ok().flatten()) else {
            return Ok(None);
        };
        let chain = &self.plan.chain;
        for height in (0..=chain.tip_height().0).map(Height) {
            let block = chain.block(height);
            let Ok(Some(entry)) = old.entry(&block.hash) else { continue };
            let Some((file, pos)) = entry.place() else { continue };
            let is_elsewhere = (file, pos) != (block.file, block.data_pos);
            // A block can be stored twice.
            if is_elsewhere && self.files.check_stored(&block.hash, height, file, pos).is_err() {
                return Ok(Some(height));
            }
        }
        Ok(None)
    }

    fn find(&self, hash: &BlockHash) -> Result<Option<IndexEntry>, Error> {
        let Some(index) = &self.plan.new_index else {
            return Ok(self.old()?.map(|rows| rows.entry(hash)).transpose()?.flatten());
        };
        let at = index.entries.binary_search_by_key(hash, |entry| entry.hash).ok();
        Ok(at.and_then(|at| index.entries.get(at)).copied())
    }
}

/// Finds out which indexes would become wrong. An index that does not open counts as wrong if one with any
/// rows would be.
fn check_each(
    files: &Files<'_>,
    may_set_aside: &SetAsideIndexes,
    harm_of: impl Fn(IndexKind, &IndexContents) -> Result<Option<Harm>, Error>,
) -> Result<SetAside, Error> {
    let (mut harmed, mut reasons, mut kinds) = (Vec::new(), Vec::new(), [None; 4]);
    let mut can_be_made = true;
    for index in NodeIndex::find(files.disk, files.datadir.net_dir())? {
        if index.is_superseded(files.disk)? {
            continue;
        }
        let harm = match index.read(files.disk) {
            Ok(contents) => harm_of(index.kind, &contents)?,
            Err(disk::DiskError::LevelDb(_)) => {
                let all = IndexContents { has_positions: true, ..IndexContents::default() };
                harm_of(index.kind, &all)?.map(|_| UNREADABLE.into())
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(harm) = harm {
            if may_set_aside.allow(index.kind) {
                // It is renamed at the end, when others are already.
                refuse_mount_point(files.disk, &index.path)?;
            } else {
                reasons.push(format!("{}: {harm}", index.name));
                can_be_made &= harm != NEEDS_ALL_BLOCKS && index.name == index.kind.dir_name();
                if let Some(slot) = kinds.iter_mut().find(|slot| slot.is_none()) {
                    *slot = Some(index.kind);
                }
            }
            harmed.push(index);
        }
    }
    if reasons.is_empty() {
        let are_replaced = matches!(may_set_aside, SetAsideIndexes::These(_));
        return Ok(SetAside { indexes: harmed, are_replaced });
    }
    let detail = format!(
        "bitcoind could not go on with what it keeps here ({}); nothing was changed",
        reasons.join("; ")
    );
    Err(Error::usage(detail)
        .in_file(files.datadir.net_dir().join(INDEXES_DIR), None)
        .with_remedies(can_be_made.then_some(Remedy::BringIndexes(kinds)))
        .with_remedies([Remedy::SetIndexesAside]))
}
