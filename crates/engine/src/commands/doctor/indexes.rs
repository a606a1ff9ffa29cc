//! Compares the indexes that bitcoind keeps with the chainstate, with a few look-ups in each.

use api::{
    error::{Error, ErrorKind},
    event::{Event, Progress, Throttle, Watch},
    stage::Stage,
};
use chain::{blocks::files::Files, plan::tree::Tree};
use derive_more::Display;
use disk::{
    DiskError,
    block_files::RecordBuffer,
    datadir::FileKind,
    index::{BlockIndex, FileInfo, is_free_space},
    node_indexes::{IndexContents, IndexKind, NodeIndex, OLD_COIN_STATS, check_tables},
};
use std::{collections::HashSet, sync::atomic::Ordering};
use wire::{BlockArena, BlockHash, FileNo, Height};

/// Number of last blocks of which one with inputs is looked for.
const LAST_BLOCKS: usize = 16;

/// Bytes of tables from which on it is shown how many were looked at: a hard disk needs seconds for so many.
const MANY_TABLES_BYTES: u64 = 1 << 30;

/// An index that bitcoind keeps.
#[derive(Clone, Debug, Display)]
#[display("{name} {standing}")]
pub struct FoundIndex {
    /// The name of its folder.
    pub name: String,
    /// Which index it is.
    pub kind: IndexKind,
    /// Its state, compared with the chainstate.
    pub standing: IndexStanding,
    /// Whether it has places of blocks, which become wrong if blocks are stored anew.
    pub has_positions: bool,
}

api::reported! {
/// The state of an index, compared with the chainstate.
#[derive(Clone, Debug, Display)]
pub enum IndexStanding as IndexCode {
    /// It ends with the chainstate's best block.
    #[display("at the chainstate's best block")]
    Synced,
    /// It ends so many blocks below, and bitcoind continues it.
    #[display("{_0} blocks behind, bitcoind continues it")]
    Behind(u32),
    /// It ends with a block at this height that is not on the chainstate's chain, or above its best block:
    /// bitcoind takes that back.
    #[display("ends at height {_0} on another branch or ahead, which bitcoind takes back")]
    OffChain(Height),
    /// It has no best block: bitcoind makes it anew.
    #[display("empty, bitcoind makes it")]
    Empty,
    /// It has the form of releases up to 29, which later ones leave alone.
    #[display("of a release up to 29, no longer used: it can be deleted")]
    Superseded,
    /// The block index does not contain its best block: bitcoind does not start.
    #[display("ends with a block that the block index does not contain; bitcoind does not start")]
    UnknownBestBlock,
    /// Blocks up to its best block are not stored, or their undo data: bitcoind stops when it takes the index
    /// back.
    #[display("covers blocks that are not stored: bitcoind cannot take it back, and stops")]
    LacksBlocks,
    /// Some of its rows have places where no block is: block files were moved, and transactions are not
    /// found.
    #[display("has places of blocks where none is: transactions would not be found")]
    Misplaced,
    /// Its database is damaged: bitcoind does not start.
    #[display("damaged: {}", _0.fact_text())]
    Damaged(Error),
    /// Its files cannot be read: no permission, or an I/O error.
    #[display("cannot be read: {}", _0.fact_text())]
    Unreadable(Error),
    /// It ends below blocks that were deleted, so that it cannot be continued: bitcoind does not start.
    #[display(
        "ends at height {height}, but the blocks below {first} were deleted, so it cannot be continued: \
         bitcoind does not start with it"
    )]
    BelowPruned {
        /// Where it ends.
        height: Height,
        /// Height of the lowest block that is still needed and stored.
        first: Height,
    },
    /// It is of no kind that is known, another process uses it, or there is nothing to compare it with.
    #[display("(not examined)")]
    NotExamined,
}
}

impl IndexStanding {
    /// That of an index that could not be read.
    pub(super) fn of_error(error: Error) -> Self {
        match error.kind {
            ErrorKind::Environment => Self::Unreadable(error),
            _ => Self::Damaged(error),
        }
    }
}

impl FoundIndex {
    /// Whether it must be made anew.
    pub const fn is_broken(&self) -> bool {
        use IndexStanding::{Damaged, LacksBlocks, Misplaced, UnknownBestBlock};
        matches!(self.standing, Damaged(_) | LacksBlocks | Misplaced | UnknownBestBlock)
    }
}

api::json::fields! {
    FoundIndexes(indexes: Vec<FoundIndex>) {
        /// The names of their folders.
        indexes: Vec<String> = indexes.iter().map(|index| index.name.clone()).collect(),
        /// The state of each, in the same order.
        index_states: Vec<super::fields::Index> = indexes.iter().map(|FoundIndex { name, standing, .. }| {
            let (mut blocks_behind, mut height, mut error) = (None, None, None);
            match standing {
                IndexStanding::Behind(blocks) => blocks_behind = Some(*blocks),
                IndexStanding::OffChain(at) | IndexStanding::BelowPruned { height: at, .. } => {
                    height = Some(*at);
                }
                IndexStanding::Damaged(flaw) | IndexStanding::Unreadable(flaw) => error = Some(flaw.clone()),
                _ => {}
            }
            super::fields::Index { name: name.clone(), state: standing.code(), blocks_behind, height, error }
        }).collect(),
    }
}

/// Finds the indexes. `tree` has the blocks of the block index, if that can be read, and comes with the rest
/// of it; `best` is the chainstate's best block.
///
/// # Errors
/// Any I/O error; an interrupt.
pub fn find(
    files: &Files<'_>,
    tree: Option<(&Tree<'_>, &BlockIndex)>,
    best: Option<BlockHash>,
    is_held: bool,
    watch: Watch<'_>,
) -> Result<Vec<FoundIndex>, Error> {
    let branch = tree.zip(best).map(|((tree, _), best)| tree.branch_to(&best)).unwrap_or_default();
    let standing_of = |index: &NodeIndex, has_positions: &mut bool| -> Result<IndexStanding, Error> {
        if index.kind == IndexKind::Unknown {
            return Ok(IndexStanding::NotExamined);
        }
        if index.is_superseded(files.disk)? {
            return Ok(IndexStanding::Superseded);
        }
        let contents = index.read(files.disk)?;
        *has_positions = contents.has_positions;
        if index.name == OLD_COIN_STATS {
            return Ok(IndexStanding::Superseded);
        }
        if !is_held {
            let dir = files.datadir.net_dir().join(index.kind.database_dir());
            check_tables(files.disk, &dir, 0, look_at_tables(watch))?;
        }
        let Some((tree, block_index)) = tree else { return Ok(IndexStanding::NotExamined) };
        if branch.is_empty() {
            let end = contents.best_block.filter(|_| best.is_none());
            return Ok(end.map_or(IndexStanding::NotExamined, |end| standing_alone(tree, index.kind, &end)));
        }
        let on_disk = &files.datadir.blk_files(files.disk)?;
        let own = contents.best_block.map(|best| tree.branch_to(&best)).unwrap_or_default();
        // A `txindex` gets the rows of lost blocks anew, when bitcoind connects these above the chainstate.
        let is_lost = |number: &u32| index.kind == IndexKind::Tx && tree.data_pos(*number).is_none();
        let is_placed = !contents.has_positions
            || own.iter().skip(branch.len()).any(is_lost)
            || are_blocks(tree, &block_index.files, on_disk, &index.sample_places(files.disk)?);
        let standing = standing(tree, index.kind, (&own, &branch), &contents, is_placed);
        let first = if block_index.pruned { first_usable(tree, &branch, index.kind) } else { Height(0) };
        // Rows are looked up by the places of blocks.
        if is_placed && let Some(flaw) = flaw_at_end(files, tree, index, (&own, &branch), first == Height(0))?
        {
            return Err(Error::damaged(flaw).in_file(&index.path, None));
        }
        let end = match standing {
            IndexStanding::Behind(blocks) => branch.len() as u32 - 1 - blocks,
            IndexStanding::OffChain(_) => (common_len(&own, &branch) as u32).saturating_sub(1),
            IndexStanding::Empty => 0,
            _ => u32::MAX,
        };
        if end < first.0 {
            Ok(IndexStanding::BelowPruned { height: Height(end), first })
        } else {
            Ok(standing)
        }
    };
    let found = NodeIndex::find(files.disk, files.datadir.net_dir())?.into_iter().map(|index| {
        let mut has_positions = false;
        let standing = standing_of(&index, &mut has_positions).unwrap_or_else(|error| match is_held {
            // Another process may be changing it.
            true => IndexStanding::NotExamined,
            false => IndexStanding::of_error(error),
        });
        FoundIndex { name: index.name, kind: index.kind, standing, has_positions }
    });
    let found = found.collect();
    Error::check_interrupt(watch.interrupt)?;
    Ok(found)
}

/// Shows how many bytes of the tables of a database were looked at, if it has many. Returns whether to stop.
pub fn look_at_tables(watch: Watch<'_>) -> impl Fn(u64, u64) -> bool {
    let show = show_tables(watch, MANY_TABLES_BYTES);
    move |bytes, bytes_total| {
        if bytes == 0 && bytes_total >= MANY_TABLES_BYTES {
            // The stage that an interrupt ends even if the disk does not answer.
            watch.sink.event(Event::Started(Stage::Plan));
        }
        show(bytes, bytes_total)
    }
}

/// Shows how many bytes of the tables of a database are done, if it has at least `from`, a few times a second
/// and at the end. Returns whether to stop.
pub fn show_tables(watch: Watch<'_>, from: u64) -> impl Fn(u64, u64) -> bool {
    let throttle = Throttle::begin();
    move |bytes, bytes_total| {
        if bytes_total >= from && (throttle.is_due() || bytes == bytes_total) {
            watch.sink.event(Event::Progress(Progress { blocks: 0, blocks_total: 0, bytes, bytes_total }));
        }
        watch.interrupt.load(Ordering::Relaxed)
    }
}

/// What is wrong with the rows from which bitcoind continues an index: `own` is the branch of its best block,
/// `branch` that of the chainstate. If it can be made anew, lost filters count too, without which bitcoind
/// goes on.
fn flaw_at_end(
    files: &Files<'_>,
    tree: &Tree<'_>,
    index: &NodeIndex,
    (own, branch): (&[u32], &[u32]),
    can_be_made: bool,
) -> Result<Option<String>, DiskError> {
    let Some((&end, height)) = own.last().zip(own.len().checked_sub(1)) else { return Ok(None) };
    let (end, height) = (tree.hash(end), Height(height as u32));
    match index.kind {
        IndexKind::CoinStats if !index.has_muhash_of(files.disk, &end, height)? => {
            Ok(Some("the MuHash of the index is not that of its best block".to_owned()))
        }
        IndexKind::BlockFilter => index.flaw_of_filters(files.disk, &end, height, can_be_made),
        IndexKind::TxoSpender => {
            let common = common_len(own, branch);
            let detail =
                "rows of its last blocks are missing, as when bitcoind is killed after it has erased them";
            let has_rows = has_last_rows(files, tree, index, own.get(..common).unwrap_or_default())?;
            Ok((!has_rows).then(|| detail.to_owned()))
        }
        _ => Ok(None),
    }
}

/// Whether a `txospenderindex` has the rows of the last of these blocks that has inputs. bitcoind erases rows
/// when it disconnects blocks, but records the best block later. What cannot be read is reported elsewhere.
fn has_last_rows(
    files: &Files<'_>,
    tree: &Tree<'_>,
    index: &NodeIndex,
    blocks: &[u32],
) -> Result<bool, DiskError> {
    let (mut record, mut arena) = (RecordBuffer::default(), BlockArena::default());
    let last = blocks.iter().rev().take(LAST_BLOCKS);
    for (file, pos) in last.map_while(|&number| tree.data_pos(number)) {
        if !files.open_records(FileKind::Blk, file).is_ok_and(|open| open.read(pos, &mut record).is_ok()) {
            break;
        }
        if let Ok(block) = arena.parse_first(record.bytes())
            && block.tx_count() > 1
        {
            return index.has_spenders(files.disk, &block, file, pos);
        }
    }
    Ok(true)
}

/// The state of an index with this best block if there is no chainstate: bitcoind looks for the block all the
/// same, and takes the index back.
fn standing_alone(tree: &Tree<'_>, kind: IndexKind, best: &BlockHash) -> IndexStanding {
    let own = tree.branch_to(best);
    let lacks_data = || own.iter().any(|number| tree.data_pos(*number).is_none());
    match own.is_empty() {
        true => IndexStanding::UnknownBestBlock,
        false if kind.needs_blocks_to_take_back() && lacks_data() => IndexStanding::LacksBlocks,
        false => IndexStanding::NotExamined,
    }
}

/// Number of blocks that two branches have in common.
pub fn common_len(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The height from which on a pruned node has the blocks from which bitcoind continues an index, and their
/// undo data if the index is made from that. A deleted block that was downloaded again has none.
fn first_usable(tree: &Tree<'_>, branch: &[u32], kind: IndexKind) -> Height {
    let is_lacking = |number: &u32| {
        let needs_undo = kind.needs_undo() && branch.first() != Some(number);
        tree.data_pos(*number).is_none() || needs_undo && tree.undo_pos(*number).is_none()
    };
    Height(branch.iter().rposition(is_lacking).map_or(0, |height| height as u32 + 1))
}

/// The state of an index: `own` is the branch of its best block, `branch` that of the chainstate.
fn standing(
    tree: &Tree<'_>,
    kind: IndexKind,
    (own, branch): (&[u32], &[u32]),
    contents: &IndexContents,
    is_placed: bool,
) -> IndexStanding {
    // The rows by block of a `txindex`, if there are any, continue those by txid.
    if contents.best_block.is_none() {
        return IndexStanding::Empty;
    }
    let Some(height) = own.len().checked_sub(1) else { return IndexStanding::UnknownBestBlock };
    let (tip, height) = (branch.len() as u32 - 1, height as u32);
    let to_take_back = own.get(common_len(own, branch)..).unwrap_or_default();
    let is_lacking = |number: &u32| {
        tree.data_pos(*number).is_none() || kind == IndexKind::CoinStats && tree.undo_pos(*number).is_none()
    };
    match to_take_back.is_empty() {
        _ if !is_placed => IndexStanding::Misplaced,
        true if height == tip => IndexStanding::Synced,
        true => IndexStanding::Behind(tip - height),
        false if kind.needs_blocks_to_take_back() && to_take_back.iter().any(is_lacking) => {
            IndexStanding::LacksBlocks
        }
        false => IndexStanding::OffChain(Height(height)),
    }
}

/// Whether these places are those of stored blocks, or of blocks that a crash has lost.
fn are_blocks(tree: &Tree<'_>, infos: &[FileInfo], on_disk: &[FileNo], places: &[(u64, u64)]) -> bool {
    let numbers = tree.linked().filter_map(|(number, _)| tree.data_pos(number));
    let stored: HashSet<(u64, u64)> = numbers.map(|(file, pos)| (file.0.into(), pos.0)).collect();
    places.iter().all(|place| stored.contains(place) || is_free_space(infos, on_disk, place.0, place.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    /// Nothing was seen for minutes, and an interrupt was not looked at.
    #[test]
    fn many_tables_are_shown_and_few_are_not() {
        let (events, interrupt) = (AtomicU32::new(0), AtomicBool::new(false));
        let sink = |_: Event| _ = events.fetch_add(1, Ordering::Relaxed);
        let look = look_at_tables(Watch { sink: &sink, interrupt: &interrupt });
        for (bytes, total, shown) in [(0, 1 << 20, 0), (0, 11 << 30, 2), (11 << 30, 11 << 30, 1)] {
            assert!(!look(bytes, total));
            assert_eq!(events.swap(0, Ordering::Relaxed), shown, "{bytes} of {total}");
        }
        // Thousands of tables were once thousands of events.
        assert!((1..1 << 10).all(|bytes| !look(bytes, 11 << 30)));
        assert!(events.load(Ordering::Relaxed) < 1 << 9);
        interrupt.store(true, Ordering::Relaxed);
        assert!(look(0, 1 << 20));
    }
}
