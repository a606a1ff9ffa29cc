//! Which blocks of the header chain are in the block files: read from the block index, completed by what an
//! interrupted run appended, and written to the block index.
//!
//! The index is true whenever it is written: bitcoind starts on it and continues. Blocks that were appended
//! after that are found again at the end of the files, since they are beyond the bytes that the index records
//! as used. If a bitcoind has run in between, it has overwritten some; the others are still found. So are
//! those of files that were copied back, which the index counts as deleted, and those of an index that is
//! older than the files: their headers come from peers, and then they are looked for once more.

use crate::{
    block_writer::check_arrived,
    blocks::{
        block_hashes::BlockHashes,
        files::{Files, info_mut},
    },
    commit::replace_index,
    header_chain::HeaderChain,
    plan::{best_block::fork_of, existing_state::ExistingState, planner::tree_of_index},
};
use api::{error::Error, event::EventSink, options::Reconsider, remedy::Remedy};
use disk::{
    blk::BlockRecord,
    datadir::FileKind,
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, IndexRows, PrunedFlag, rewrite_block_index},
};
use rules::ChainParams;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use vfs::During as _;
use wire::{BlockArena, BlockHash, ByteOffset, FileNo, Header, Height};

/// Where a block is stored; `pos` is 0 if it is not. If it was deleted by pruning, its number of transactions
/// is known nevertheless.
#[derive(Clone, Copy, Default)]
struct Position {
    file: u32,
    pos: u32,
    tx_count: u32,
}

/// What a download does about blocks whose files were deleted by pruning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrunedBlocks {
    /// A pruned datadir is refused: bitcoind would not start on it with other blocks missing.
    Refuse,
    /// They stay deleted.
    Leave,
    /// They are downloaded again.
    Fetch,
}

/// The positions of the chain's blocks, by height.
#[derive(Default)]
pub struct StoredBlocks {
    positions: Vec<Position>,
    /// Lengths of the files that have fewer bytes than are in use, in bytes.
    short_files: HashMap<FileNo, u64>,
    /// Height of the chainstate's best block.
    connected_to: Height,
    /// Height above which no block of any branch was ever placed.
    highest: Height,
    /// The files in which the block index places blocks, of whatever branch.
    placed: BTreeSet<FileNo>,
    /// Whether entries of blocks of the chain that are lost stay as they are until the blocks are stored
    /// again.
    keeps_lost: bool,
    /// Hashes of the damaged blocks, sorted.
    damaged: Vec<BlockHash>,
    /// Files that this run deletes. If the block index that says so cannot be written, the next one must.
    deleted: BTreeSet<FileNo>,
}

pub struct DatadirContents {
    /// The header chain with the most work.
    pub chain: HeaderChain,
    pub stored: StoredBlocks,
    /// What the block index must record about each pair of files.
    pub infos: Vec<FileInfo>,
    /// Number of blocks that are stored and that the block index does not place.
    pub found: u32,
    /// Whether bitcoind needs another block index: this one places blocks that are not in their files, or has
    /// some of another chain ([`disk::departed`]).
    pub is_index_wrong: bool,
    /// Where blocks lie whose headers were not known yet.
    pub unknown: UnknownBlocks,
    /// The blocks whose marks of invalid blocks are not believed, sorted by hash.
    pub reconsidered: Vec<BlockHash>,
}

/// Blocks in the block files whose headers are not known: the byte from which they lie in each file.
pub type UnknownBlocks = BTreeMap<FileNo, u64>;

impl StoredBlocks {
    /// Returns whether a block is stored, or was deleted by pruning.
    pub fn has(&self, height: Height) -> bool {
        self.positions.get(height.0 as usize).is_some_and(|position| position.tx_count > 0)
    }

    pub fn is_stored(&self, height: Height) -> bool {
        self.get(height).is_some()
    }

    /// Records that the blocks in these files are deleted. Returns how many there are in the chain.
    pub fn prune(&mut self, files: &[FileNo]) -> u32 {
        self.deleted.extend(files);
        let mut blocks = 0;
        for position in self.positions.iter_mut().filter(|position| position.pos > 0) {
            if self.deleted.contains(&FileNo(position.file)) {
                (position.file, position.pos) = (0, 0);
                blocks += 1;
            }
        }
        blocks
    }

    /// Forgets the blocks from `first` on that were deleted, so that they are downloaded again.
    pub fn forget_pruned(&mut self, first: Height) {
        for position in self.positions.iter_mut().skip(first.0 as usize) {
            if position.pos == 0 {
                *position = Position::default();
            }
        }
    }

    /// Forgets blocks of the chain that are damaged, so that they are stored again, at other places.
    ///
    /// Until then, the block index keeps its entries of these blocks, and of all that are lost: a chainstate
    /// may be above them, with which bitcoind starts only if its blocks are connected. Damaged blocks outside
    /// the chain lose their data.
    pub fn forget_damaged(&mut self, chain: &HeaderChain, damaged: &[BlockHash]) {
        (self.keeps_lost, self.damaged) = (true, damaged.to_vec());
        for (height, position) in (0..).map(Height).zip(&mut self.positions) {
            if chain.hash(height).is_some_and(|hash| damaged.binary_search(&hash).is_ok()) {
                *position = Position::default();
            }
        }
    }

    pub fn place(&self, height: Height) -> Option<(FileNo, ByteOffset)> {
        self.get(height).map(|position| (FileNo(position.file), ByteOffset(position.pos.into())))
    }

    /// Returns the blocks that are not stored, below one that is or one that the block index places: the
    /// lowest first.
    pub fn missing(&self) -> impl Iterator<Item = Height> {
        let missing = (0..).map(Height).zip(&self.positions).filter(|(_, position)| position.pos == 0);
        missing.map(|(height, _)| height)
    }

    /// Whether there may be blocks above a height, also of branches that the chain has left.
    pub fn may_have_above(&self, height: Height) -> bool {
        height < self.highest
    }

    fn has_pruned(&self) -> bool {
        let is_pruned = |position: &Position| position.pos == 0 && position.tx_count > 0;
        !self.deleted.is_empty() || self.positions.iter().any(is_pruned)
    }

    pub fn set(&mut self, height: Height, file: FileNo, data_pos: ByteOffset, tx_count: u32) {
        let at = height.0 as usize;
        self.highest = self.highest.max(height);
        if self.positions.len() <= at {
            self.positions.resize(at + 1, Position::default());
        }
        if let Some(position) = self.positions.get_mut(at) {
            *position = Position { file: file.0, pos: data_pos.0 as u32, tx_count };
        }
    }

    /// Forgets the blocks above a height: the chain has others there.
    pub fn truncate(&mut self, height: Height) {
        self.positions.truncate(height.0 as usize + 1);
    }

    fn get(&self, height: Height) -> Option<Position> {
        self.positions.get(height.0 as usize).copied().filter(|position| position.pos > 0)
    }

    /// Forgets blocks that are not whole in their files. Returns whether there are any, and whether the last
    /// file has fewer bytes than are in use.
    fn drop_missing(&mut self, files: &Files<'_>, infos: &[FileInfo]) -> Result<(bool, bool), Error> {
        let (listed, mut has_lost) = (infos.len() as u32, false);
        for number in (0..listed).map(FileNo).chain(self.placed.range(FileNo(listed)..).copied()) {
            // A file that the index does not list, but places blocks in, has at least one byte.
            let used = infos.get(number.0 as usize).map_or(1, |info| u64::from(info.size));
            let len = files.len(FileKind::Blk, number)?;
            if len < used {
                self.short_files.insert(number, len);
            }
        }
        for position in self.positions.iter_mut().filter(|position| position.pos > 0) {
            let number = FileNo(position.file);
            let len = match self.short_files.get(&number) {
                Some(&len) => len,
                None if number.0 < listed => continue,
                None => 0,
            };
            if files.has_record(FileKind::Blk, number, u64::from(position.pos), len)? {
                continue;
            }
            *position = Position::default();
            has_lost = true;
        }
        let is_last_short = listed.checked_sub(1).map(FileNo);
        let is_last_short = is_last_short.is_some_and(|last| self.short_files.contains_key(&last));
        Ok((has_lost || !self.short_files.is_empty(), is_last_short))
    }

    /// Whether the entry of a lost block of the chain stays as it is. bitcoind starts on a chainstate above
    /// the block only if the block counts as connected. Then it checks only that the file exists, and one
    /// that is missing can be put back.
    fn keeps(&self, entry: &IndexEntry) -> bool {
        let is_short = entry.file.is_some_and(|file| self.short_files.contains_key(&file));
        self.keeps_lost || is_short && entry.height <= self.connected_to
    }

    /// The lowest block of the chain above the chainstate that is not stored, if files have lost blocks.
    /// Core's check of its block index fails if blocks above it count as connected.
    fn lowest_lost(&self) -> Option<Height> {
        let lost = self.missing().find(|&height| height > self.connected_to && !self.has(height));
        lost.filter(|_| !(self.keeps_lost || self.short_files.is_empty()))
    }

    /// Keeps the entries of lost blocks that a chainstate is above, until they are stored again.
    pub const fn keep_below(&mut self, best: Height) {
        self.connected_to = best;
    }

    /// Whether a block of another branch is damaged, or its file ends before the block.
    fn is_lost(&self, entry: &IndexEntry) -> bool {
        if self.damaged.binary_search(&entry.hash).is_ok() {
            return true;
        }
        entry.place().is_some_and(|(file, pos)| self.short_files.get(&file).is_some_and(|&len| pos.0 >= len))
    }

    /// Makes an entry of the block index agree with what is stored.
    fn change_entry(&self, entry: &mut IndexEntry, params: &ChainParams) {
        let Some(position) = self.get(entry.height) else {
            let pruned = self.positions.get(entry.height.0 as usize).map_or(0, |pruned| pruned.tx_count);
            if pruned > 0 {
                // A connected block stays connected.
                let stored = BlockStatus::stored(entry.height >= params.segwit_height);
                let status = if entry.tx_count > 0 { entry.status } else { stored }.without_data();
                let (file, data_pos, undo_pos) = (None, None, None);
                *entry = IndexEntry { status, tx_count: pruned, file, data_pos, undo_pos, ..*entry };
            } else if entry.status.has_data() && !self.keeps(entry) {
                entry.forget_block();
            }
            return;
        };
        let (file, data_pos) = (Some(FileNo(position.file)), Some(ByteOffset(position.pos.into())));
        if entry.status.has_data() && (entry.file, entry.data_pos) == (file, data_pos) {
            return;
        }
        // If the block was connected, its undo data is in the file of its old place, or deleted with it.
        let status = match entry.status.has_data() {
            true => BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO),
            false => entry.status.stored_again(entry.height >= params.segwit_height),
        };
        let tx_count = position.tx_count;
        *entry = IndexEntry { status, tx_count, file, data_pos, undo_pos: None, ..*entry };
    }

    /// Finds blocks of the chain in these parts of the block files, and records them and what the block index
    /// must record about their files. Returns their number, and the parts with blocks of other chains.
    pub fn find_beyond(
        &mut self,
        files: &Files<'_>,
        chain: &HeaderChain,
        infos: &mut Vec<FileInfo>,
        parts: &UnknownBlocks,
    ) -> Result<(u32, UnknownBlocks), Error> {
        let (mut found, mut unknown) = (0, UnknownBlocks::default());
        let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
        for (&number, &from) in parts {
            // Sync first: the block index may place only what is on the medium, not what is in memory.
            let (path, mut records) = (files.path(FileKind::Blk, number), Vec::new());
            files.disk.sync_file(&path).during("sync", &path)?;
            files.disk.forget_cached(&path);
            files.each_block(number, from, |record| match chain.height_of(&record.hash) {
                None => drop(unknown.insert(number, from)),
                // Neither this program nor bitcoind could read it there.
                Some(_) if !record.is_readable => {}
                Some(height) => records.push((height, *record)),
            })?;
            for (height, BlockRecord { data_pos, size, header, hash, tx_count, .. }) in records {
                // A block index has 32-bit positions.
                let end = u32::try_from(data_pos.0 + u64::from(size)).ok().filter(|_| !self.has(height));
                let Some(end) = end else { continue };
                let mut bytes = vec![0; size as usize];
                files.read(FileKind::Blk, number, data_pos.0, &mut bytes)?;
                let expected = &chain.expected(height, hash);
                if check_arrived(expected, files.verifier, &bytes, &mut arena, &mut hashes).is_err() {
                    continue;
                }
                let info = info_mut(infos, number);
                if from == 0 {
                    // All bytes of a copied `rev` file count as used, and those that another index knows.
                    let len = files.len(FileKind::Rev, number)?;
                    info.undo_size = info.undo_size.max(u32::try_from(len).unwrap_or(u32::MAX));
                }
                info.size = info.size.max(end);
                info.add_block(height, header.time.0.into());
                self.set(height, number, data_pos, tx_count);
                found += 1;
            }
        }
        if found > 0 {
            // A run that was killed may have created the files.
            let dir = files.datadir.blocks_dir();
            files.disk.sync_dir(&dir).during("sync", &dir)?;
        }
        Ok((found, unknown))
    }
}

impl DatadirContents {
    /// Reads the block index, and finds the blocks that an interrupted download has appended. `reconsider`:
    /// the marks of invalid blocks that are not believed.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] for a damaged index; [`api::error::ErrorKind::Usage`] for that of a
    /// pruned node with [`PrunedBlocks::Refuse`], or without the block to reconsider; any I/O error.
    pub fn read(
        files: &Files<'_>,
        pruned: PrunedBlocks,
        reconsider: Option<Reconsider>,
    ) -> Result<Self, Error> {
        let mut contents = Self::of_index(files, pruned, reconsider)?;
        let (has_lost, is_last_short) = contents.stored.drop_missing(files, &contents.infos)?;
        contents.is_index_wrong |= has_lost;
        if is_last_short {
            // The rest of the last file stays as it is; new blocks go to another file.
            contents.infos.push(FileInfo::default());
        }
        let beyond = files.beyond_use(&contents.infos)?;
        let DatadirContents { chain, stored, infos, .. } = &mut contents;
        (contents.found, contents.unknown) = stored.find_beyond(files, chain, infos, &beyond)?;
        Ok(contents)
    }

    fn of_index(
        files: &Files<'_>,
        pruned: PrunedBlocks,
        reconsider: Option<Reconsider>,
    ) -> Result<Self, Error> {
        let params = files.params;
        let (mut tree, BlockIndex { files: infos, .. }) = tree_of_index(files)?;
        let reconsidered = reconsider.map(|which| tree.reconsider(which)).transpose()?.unwrap_or_default();
        let branch = tree.best_stored_chain();
        // Only what follows is kept, so that little memory is needed.
        drop(tree);
        let numbers = branch.iter().max().map_or(0, |&last| last as usize + 1);
        let mut heights = vec![u32::MAX; numbers];
        for (&number, height) in branch.iter().zip(0..) {
            heights[number as usize] = height;
        }
        let mut headers = vec![Header::default(); branch.len()];
        let (mut stored, mut number, mut tip) = (StoredBlocks::default(), 0, params.genesis_hash);
        let (dir, mut marked) = (files.datadir.index_dir(), Vec::new());
        let index = IndexRows::open(files.disk, &dir)?.stream(|entry| {
            if entry.status.is_failed() && reconsidered.binary_search(&entry.hash).is_err() {
                marked.push((entry.hash, entry.height));
            }
            if let Some(file) = entry.file.filter(|_| entry.status.has_data()) {
                stored.placed.insert(file);
                stored.highest = stored.highest.max(entry.height);
            }
            let height = heights.get(number).copied().unwrap_or(u32::MAX);
            number += 1;
            let Some(header) = headers.get_mut(height as usize) else { return };
            *header = entry.header;
            if height as usize + 1 == branch.len() {
                tip = entry.hash;
            }
            if let Some((file, pos)) = entry.place() {
                stored.set(Height(height), file, pos, entry.tx_count);
            } else if pruned == PrunedBlocks::Leave && entry.tx_count > 0 {
                stored.set(Height(height), FileNo(0), ByteOffset(0), entry.tx_count);
            }
        })?;
        if index.pruned && pruned == PrunedBlocks::Refuse {
            let detail = "this node was pruned, so bitcoind would not accept the blocks that are missing";
            return Err(Error::usage(detail).in_file(dir, None).with_remedies([
                Remedy::Unprune,
                Remedy::Prune,
                Remedy::EmptyOutput,
            ]));
        }
        let mut chain = HeaderChain::of_validated(params, headers, tip);
        marked.into_iter().for_each(|(hash, height)| chain.note_marked(hash, height));
        let (found, is_index_wrong, unknown) = (0, index.departed > 0, UnknownBlocks::default());
        Ok(Self { chain, stored, infos, found, is_index_wrong, unknown, reconsidered })
    }
}

/// Puts a block index in place in which the `damaged` blocks outside the chain have no data.
///
/// # Errors
/// The same errors as [`DatadirContents::read`]; the old index is then in place.
pub fn forget_stale(files: &Files<'_>, damaged: &[BlockHash], sink: &dyn EventSink) -> Result<(), Error> {
    let DatadirContents { chain, mut stored, infos, .. } =
        DatadirContents::read(files, PrunedBlocks::Refuse, None)?;
    stored.forget_damaged(&chain, damaged);
    write_index(files, &chain, &stored, &infos, sink)
}

/// Adds the blocks of the chain from `first` on to the block index, and changes their rows: for a few blocks,
/// faster than [`write_index`]. `infos` are right except for undo data, about which the index knows more.
/// Returns the entries for the files of these blocks.
pub fn add_to_index(
    files: &Files<'_>,
    chain: &HeaderChain,
    stored: &StoredBlocks,
    infos: &[FileInfo],
    first: Height,
) -> Result<Vec<(FileNo, FileInfo)>, Error> {
    let mut rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let (mut entries, mut changed) = (Vec::new(), BTreeMap::new());
    for height in (first.0..=chain.tip_height().0).map(Height) {
        let (Some(hash), Some(header)) = (chain.hash(height), chain.header(height)) else { break };
        let known = rows.entry(&hash)?;
        let mut entry = known.unwrap_or_else(|| IndexEntry::of_header(hash, *header, height));
        stored.change_entry(&mut entry, files.params);
        entries.push(entry);
        let info = entry.file.and_then(|file| Some((file, *infos.get(file.0 as usize)?)));
        changed.extend(info);
    }
    for (file, info) in &mut changed {
        let undo_size = rows.file(*file)?.map_or(0, |known| known.undo_size);
        info.undo_size = info.undo_size.max(undo_size);
    }
    let changed: Vec<_> = changed.into_iter().collect();
    rows.update(&entries, &changed)?;
    Ok(changed)
}

/// Finds the blocks of the chain from `first` on that the block index places, so that they are not
/// downloaded again.
pub fn find_in_index(
    files: &Files<'_>,
    chain: &HeaderChain,
    stored: &mut StoredBlocks,
    first: Height,
) -> Result<(), Error> {
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    for height in (first.0..=chain.tip_height().0).map(Height) {
        let entry = chain.hash(height).map(|hash| rows.entry(&hash)).transpose()?.flatten();
        let Some(entry) = entry.filter(|_| !stored.has(height)) else { continue };
        let Some((file, data_pos)) = entry.place() else { continue };
        let is_whole = match stored.short_files.get(&file) {
            Some(&len) => files.has_record(FileKind::Blk, file, data_pos.0, len)?,
            None => true,
        };
        match is_whole && !stored.is_lost(&entry) {
            true => stored.set(height, file, data_pos, entry.tx_count),
            // The block index may place it until it is stored again.
            false => stored.set(height, FileNo(0), ByteOffset(0), 0),
        }
    }
    Ok(())
}

/// Returns the blocks outside the chain on which the chainstate is: some of them are marked invalid.
fn below_chainstate(files: &Files<'_>, chain: &HeaderChain) -> Result<HashSet<BlockHash>, Error> {
    let Some(best) = ExistingState::read(files, false)?.best_block else { return Ok(HashSet::new()) };
    let rows = IndexRows::open(files.disk, &files.datadir.index_dir())?;
    let mut found = HashSet::new();
    fork_of(&rows, best, |height| chain.hash(height), |entry| found.insert(entry.hash))?;
    Ok(found)
}

/// Puts a block index in place that has all headers of the chain and all stored blocks. What the old one has
/// besides stays, except what is in files that are going to be deleted.
///
/// # Errors
/// Any I/O error; the old index is then in place.
pub fn write_index(
    files: &Files<'_>,
    chain: &HeaderChain,
    stored: &StoredBlocks,
    infos: &[FileInfo],
    sink: &dyn EventSink,
) -> Result<(), Error> {
    let params = files.params;
    let (below_chainstate, lowest_lost) = (below_chainstate(files, chain)?, stored.lowest_lost());
    let added = chain.heights_by_hash().into_iter().filter_map(|height| {
        let mut entry = IndexEntry::of_header(chain.hash(height)?, *chain.header(height)?, height);
        stored.change_entry(&mut entry, params);
        Some(entry)
    });
    let change = |entry: &mut IndexEntry| {
        if chain.hash(entry.height) == Some(entry.hash) {
            stored.change_entry(entry, params);
            if lowest_lost.is_some_and(|lost| entry.height > lost) {
                entry.status = entry.status.not_connected();
            }
        } else if entry.file.is_some_and(|file| stored.deleted.contains(&file)) {
            let status = entry.status.without_data();
            *entry = IndexEntry { status, file: None, data_pos: None, undo_pos: None, ..*entry };
        } else if below_chainstate.contains(&entry.hash) {
            // The entry stays: without it, bitcoind would not start with the chainstate, which may stay too.
        } else if stored.is_lost(entry) {
            // Without its file, bitcoind would not start.
            entry.forget_block();
        } else if !(stored.damaged.is_empty() && stored.short_files.is_empty()) {
            // The block may be above one that has just lost its data.
            entry.status = entry.status.not_connected();
        }
        if chain.is_invalid(&entry.hash) && !entry.status.is_failed() {
            entry.status.0 |= BlockStatus::FAILED_VALID;
        }
    };
    replace_index(files.disk, files.datadir, false, |target| {
        let old = files.datadir.index_dir();
        let change_files = |old: &mut Vec<FileInfo>| *old = infos.to_vec();
        let pruned = if stored.has_pruned() { PrunedFlag::Set } else { PrunedFlag::Keep };
        rewrite_block_index(files.disk, &old, target.building(), added, pruned, change, change_files)?;
        target.commit(sink, || ()).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;
    use api::options::ChainOptions;
    use disk::index::read_block_index;
    use testkit::{Chain, ChainSpec, datadir::Layout, fault::FaultDisk};
    use vfs::RealDisk;
    use wire::Network;

    /// When the block index could not be written before files were deleted, and then could, it placed blocks
    /// outside the chain in those files, with which bitcoind does not start.
    #[test]
    fn each_block_index_that_is_written_after_a_deletion_places_no_block_in_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let chain = Chain::generate(&ChainSpec { blocks: Some(140), ..ChainSpec::new(3, 300_000) });
        let layout = Layout { file_size: 32 << 10, preallocate: false, ..Layout::new(7) };
        chain.write_datadir(dir.path(), &layout).unwrap();
        let options = ChainOptions::reading(dir.path(), Network::Regtest);
        let session = Session::open_for_reading(&RealDisk, &options).unwrap();
        let files = session.files().unwrap();
        let DatadirContents { chain, mut stored, mut infos, .. } =
            DatadirContents::read(&files, PrunedBlocks::Leave, None).unwrap();
        let read = || read_block_index(&RealDisk, &files.datadir.index_dir()).unwrap();
        let is_stale = |entry: &&IndexEntry| chain.hash(entry.height) != Some(entry.hash);
        let deleted = read().entries.iter().filter(is_stale).find_map(|entry| entry.file).unwrap();
        stored.prune(&[deleted]);
        *info_mut(&mut infos, deleted) = FileInfo::default();
        let disk = FaultDisk::full_after(0);
        let on_full = Files { disk: &disk, ..session.files().unwrap() };
        write_index(&on_full, &chain, &stored, &infos, &|_| {}).unwrap_err();
        write_index(&files, &chain, &stored, &infos, &|_| {}).unwrap();
        let index = read();
        assert!(index.pruned && index.entries.iter().all(|entry| entry.file != Some(deleted)));
    }
}
