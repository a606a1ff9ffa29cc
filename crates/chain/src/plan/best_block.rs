//! What is known of the best block of an existing chainstate, and of its branch.

use crate::blocks::files::Files;
use api::{error::Error, lower_tip::Gap};
use disk::{
    datadir::FileKind,
    index::{IndexEntry, IndexRows},
    undo::CHECKSUM_LEN,
};
use rules::U256;
use wire::{BlockHash, Height};

/// The last block of the chain in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownBlock {
    pub hash: BlockHash,
    pub height: Height,
    /// Sum of work up to it.
    pub work: U256,
}

/// The best block of the old chainstate, in the tree from which a plan was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestBlock {
    pub known: KnownBlock,
    /// Height of its highest ancestor, itself included, that is in the chosen chain.
    pub fork: Height,
    /// Whether the blocks above the fork can be disconnected: they and their undo data are placed on disk.
    pub can_be_left: bool,
    /// Why the chosen chain does not contain the blocks above the fork; `None` if it ends there as requested.
    pub gap: Option<Gap>,
}

/// Returns the height at which the ancestors of a block leave the chain, which `hash_at` knows; `None` if the
/// block index does not tell, or if `each` returns false. `each` is called with the entries outside the
/// chain, from that of the block down.
pub fn fork_of(
    index: &IndexRows<'_>,
    mut hash: BlockHash,
    hash_at: impl Fn(Height) -> Option<BlockHash>,
    mut each: impl FnMut(&IndexEntry) -> bool,
) -> Result<Option<Height>, Error> {
    while let Some(entry) = index.entry(&hash)? {
        if hash_at(entry.height) == Some(hash) {
            return Ok(Some(entry.height));
        }
        if !each(&entry) {
            break;
        }
        hash = entry.header.prev;
    }
    Ok(None)
}

/// Whether the undo data of one of the last `count` blocks up to `best` is missing, or will be when the block
/// has been stored again, as far as the block index and the lengths of files show. What a pruned node has
/// deleted is not missing.
///
/// # Errors
/// A damaged block index; any I/O error.
pub fn lacks_undo(files: &Files<'_>, best: BlockHash, count: usize) -> Result<bool, Error> {
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let mut hash = best;
    for _ in 0..count {
        let Some(entry) = rows.entry(&hash)? else { return Ok(true) };
        let status = entry.status;
        // The genesis block has no undo data.
        if entry.height == Height(0) || entry.tx_count > 0 && !status.has_data() {
            break;
        }
        // A download stores blocks again that are not whole in their files.
        if !has_block(files, &rows, &entry)? || !status.was_connected() || !has_undo(files, &entry)? {
            return Ok(true);
        }
        hash = entry.header.prev;
    }
    Ok(false)
}

/// Whether bitcoind can complete a flush that was interrupted ([`disk::chainstate::read_heads`]): it
/// opens all block files, disconnects the blocks of the old best block again, and connects those of the new
/// one (Core `LoadBlockIndexDB`, `ReplayBlocks`).
///
/// # Errors
/// A damaged block index; any I/O error.
pub fn can_replay(files: &Files<'_>, new: BlockHash, old: BlockHash) -> Result<bool, Error> {
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let (is_first, mut new, mut old) = (old == BlockHash::default(), rows.entry(&new)?, rows.entry(&old)?);
    let (on_disk, mut lacks_file) = (files.datadir.blk_files(files.disk)?, false);
    rows.stream(|it| lacks_file |= it.place().is_some_and(|at| on_disk.binary_search(&at.0).is_err()))?;
    if lacks_file || !is_first && old.is_none() {
        return Ok(false);
    }
    while let Some(entry) = new {
        match old {
            Some(before) if before.hash == entry.hash => return Ok(true),
            Some(before) if before.height > entry.height => {
                if !has_block(files, &rows, &before)? || !has_undo(files, &before)? {
                    return Ok(false);
                }
                (new, old) = (Some(entry), rows.entry(&before.header.prev)?);
            }
            _ if entry.height == Height(0) => return Ok(old.is_none()),
            _ if !has_block(files, &rows, &entry)? => return Ok(false),
            _ => new = rows.entry(&entry.header.prev)?,
        }
    }
    Ok(false)
}

/// Whether the block of an entry is on disk, as far as the block index and the lengths of files show.
fn has_block(files: &Files<'_>, rows: &IndexRows<'_>, entry: &IndexEntry) -> Result<bool, Error> {
    let Some((file, pos)) = entry.place() else { return Ok(false) };
    let used = rows.file(file)?.map_or(1, |info| u64::from(info.size));
    let len = files.len(FileKind::Blk, file)?;
    Ok(len >= used || files.has_record(FileKind::Blk, file, pos.0, len)?)
}

/// The same of its undo data.
fn has_undo(files: &Files<'_>, entry: &IndexEntry) -> Result<bool, Error> {
    let undo_pos = entry.undo_pos.filter(|_| entry.status.has_undo());
    let Some((file, pos)) = entry.file.zip(undo_pos) else { return Ok(false) };
    let len = files.len(FileKind::Rev, file)?.saturating_sub(CHECKSUM_LEN as u64);
    files.has_record(FileKind::Rev, file, pos.0, len)
}
