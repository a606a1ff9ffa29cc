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
        let data_pos = entry.data_pos.filter(|_| status.has_data());
        let undo_pos = entry.undo_pos.filter(|_| status.has_undo() && status.was_connected());
        let Some((file, (data_pos, undo_pos))) = entry.file.zip(data_pos.zip(undo_pos)) else {
            return Ok(true);
        };
        // A download stores blocks again that are not whole in a file with too few bytes.
        let used = rows.file(file)?.map_or(1, |info| u64::from(info.size));
        let (len, undo_len) = (files.len(FileKind::Blk, file)?, files.len(FileKind::Rev, file)?);
        let undo_len = undo_len.saturating_sub(CHECKSUM_LEN as u64);
        if len < used && !files.has_record(FileKind::Blk, file, data_pos.0, len)?
            || !files.has_record(FileKind::Rev, file, undo_pos.0, undo_len)?
        {
            return Ok(true);
        }
        hash = entry.header.prev;
    }
    Ok(false)
}
