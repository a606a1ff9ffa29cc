//! Which blocks of the header chain are in the block files: read from the block index, completed by what an
//! interrupted run appended, and written to the block index.
//!
//! The index is true whenever it is written: bitcoind starts on it and continues. Blocks that were appended
//! after that are found again at the end of the files, since they are beyond the bytes that the index records
//! as used. If a bitcoind has run in between, it has overwritten some; the others are still found.

use super::{
    block_writer::{ArrivedBlock, check_arrived},
    header_chain::HeaderChain,
};
use crate::{
    api::{
        error::{Error, ErrorKind},
        event::EventSink,
        remedy::Remedy,
    },
    blocks::{block_hashes::BlockHashes, files::Files},
    plan::planner::tree_of_index,
    stages::commit::Destination,
};
use disk::{
    blk::{BlockRecord, BlockScanner, RECORD_HEADER_LEN},
    datadir::FileKind,
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, extend_block_index, stream_block_index},
    made_undo::keep_made_undo,
};
use rules::ChainParams;
use std::collections::HashMap;
use vfs::During as _;
use wire::{BlockArena, ByteOffset, FileNo, Header, Height};

/// Where a block is stored; `pos` is 0 if it is not.
#[derive(Clone, Copy, Default)]
struct Position {
    file: u32,
    pos: u32,
    tx_count: u32,
}

/// The positions of the chain's blocks, by height.
#[derive(Default)]
pub struct StoredBlocks {
    positions: Vec<Position>,
    /// Lengths of the files that have fewer bytes than are in use, in bytes.
    short_files: HashMap<FileNo, u64>,
}

/// What a datadir contains before a download.
pub struct DatadirContents {
    /// The header chain with the most work.
    pub chain: HeaderChain,
    /// Which of its blocks are stored.
    pub stored: StoredBlocks,
    /// What the block index must record about each pair of files.
    pub infos: Vec<FileInfo>,
    /// Number of blocks that are stored and that the block index does not place.
    pub found: u32,
    /// Whether the block index places blocks that are not in their files.
    pub has_lost: bool,
}

impl StoredBlocks {
    /// Returns whether a block is stored.
    #[must_use]
    pub fn has(&self, height: Height) -> bool {
        self.positions.get(height.0 as usize).is_some_and(|position| position.pos > 0)
    }

    /// Records where a block is.
    pub fn set(&mut self, height: Height, file: FileNo, data_pos: ByteOffset, tx_count: u32) {
        let at = height.0 as usize;
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
        let (mut is_last_short, mut has_lost) = (false, false);
        for (number, info) in (0..).map(FileNo).zip(infos) {
            let len = files.len(FileKind::Blk, number)?;
            is_last_short = len < u64::from(info.size);
            if is_last_short {
                self.short_files.insert(number, len);
            }
        }
        for position in self.positions.iter_mut().filter(|position| position.pos > 0) {
            let number = FileNo(position.file);
            let len = match self.short_files.get(&number) {
                Some(&len) => len,
                None if (number.0 as usize) < infos.len() => continue,
                None => 0,
            };
            // The length of the block is before it.
            if u64::from(position.pos) < len {
                let path = files.path(FileKind::Blk, number);
                let open = files.open(FileKind::Blk, number)?.0;
                let at = u64::from(position.pos).saturating_sub(4);
                let mut size = [0; 4];
                open.read_exact_at(&mut size, at).during("read", &path)?;
                files.obfuscation.apply(&mut size, at);
                if u64::from(position.pos) + u64::from(u32::from_le_bytes(size)) <= len {
                    continue;
                }
            }
            *position = Position::default();
            has_lost = true;
        }
        Ok((has_lost || !self.short_files.is_empty(), is_last_short))
    }

    /// Whether the file of a block of another branch ends before the block.
    fn is_lost(&self, entry: &IndexEntry) -> bool {
        let place = entry.file.zip(entry.data_pos).filter(|_| entry.status.has_data());
        place.is_some_and(|(file, pos)| self.short_files.get(&file).is_some_and(|&len| pos.0 >= len))
    }

    /// Makes an entry of the block index agree with what is stored.
    fn change_entry(&self, entry: &mut IndexEntry, params: &ChainParams) {
        let Some(position) = self.get(entry.height) else {
            if entry.status.has_data() {
                *entry = IndexEntry::of_header(entry.hash, entry.header, entry.height);
            }
            return;
        };
        let (file, data_pos) = (Some(FileNo(position.file)), Some(ByteOffset(position.pos.into())));
        if entry.status.has_data() && (entry.file, entry.data_pos) == (file, data_pos) {
            return;
        }
        // It was never connected, or its undo data is in the file of the place where it was.
        let status = BlockStatus::stored(entry.height >= params.segwit_height);
        let tx_count = position.tx_count;
        *entry = IndexEntry { status, tx_count, file, data_pos, undo_pos: None, ..*entry };
    }
}

impl DatadirContents {
    /// Reads the block index, and finds the blocks that an interrupted download has appended.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] for a damaged index; [`ErrorKind::Usage`] for that of a pruned node; any I/O
    /// error.
    pub fn read(files: &Files<'_>) -> Result<Self, Error> {
        let mut contents = Self::of_index(files)?;
        let (has_lost, is_last_short) = contents.stored.drop_missing(files, &contents.infos)?;
        contents.has_lost = has_lost;
        if is_last_short {
            // What remains of it stays as it is.
            contents.infos.push(FileInfo::default());
        }
        contents.find_appended(files)?;
        Ok(contents)
    }

    fn of_index(files: &Files<'_>) -> Result<Self, Error> {
        let params = ChainParams::of(files.network);
        let (mut tree, BlockIndex { files: infos, .. }) = tree_of_index(files, params)?;
        let branch = tree.best_headers();
        // Only what follows is kept, so that little memory is needed.
        drop(tree);
        let numbers = branch.iter().max().map_or(0, |&last| last as usize + 1);
        let mut heights = vec![u32::MAX; numbers];
        for (&number, height) in branch.iter().zip(0..) {
            heights[number as usize] = height;
        }
        let mut headers = vec![Header::default(); branch.len()];
        let (mut stored, mut number, mut tip) = (StoredBlocks::default(), 0, params.genesis_hash);
        let (dir, mut invalid) = (files.datadir.index_dir(), Vec::new());
        let index = stream_block_index(files.disk, &dir, |entry| {
            if entry.status.is_failed() {
                invalid.push(entry.hash);
            }
            let height = heights.get(number).copied().unwrap_or(u32::MAX);
            number += 1;
            let Some(header) = headers.get_mut(height as usize) else { return };
            *header = entry.header;
            if height as usize + 1 == branch.len() {
                tip = entry.hash;
            }
            if let (Some(file), Some(pos)) = (entry.file, entry.data_pos.filter(|_| entry.status.has_data()))
            {
                stored.set(Height(height), file, pos, entry.tx_count);
            }
        })?;
        if index.pruned {
            let detail = "this node was pruned, so bitcoind would not accept the blocks that are missing";
            return Err(Error::new(ErrorKind::Usage, detail)
                .in_file(dir, None)
                .with_remedies([Remedy::EmptyOutput]));
        }
        let mut chain = HeaderChain::of_validated(params, headers, tip);
        invalid.into_iter().for_each(|hash| chain.note_invalid(hash));
        Ok(Self { chain, stored, infos, found: 0, has_lost: false })
    }

    /// Finds blocks beyond the bytes in use.
    fn find_appended(&mut self, files: &Files<'_>) -> Result<(), Error> {
        let mut by_hash = Vec::new();
        for number in (self.infos.len().saturating_sub(1) as u32..).map(FileNo) {
            let len = files.len(FileKind::Blk, number)?;
            let used = self.infos.get(number.0 as usize).map_or(0, |info| u64::from(info.size));
            if len == 0 {
                return Ok(());
            }
            if len <= used {
                continue;
            }
            if by_hash.is_empty() {
                by_hash = self.chain.heights_by_hash();
            }
            self.find_in_file(files, number, used, &by_hash)?;
        }
        Ok(())
    }

    /// Finds blocks in one file from byte `used` on, up to the first that is damaged.
    fn find_in_file(
        &mut self,
        files: &Files<'_>,
        number: FileNo,
        used: u64,
        by_hash: &[Height],
    ) -> Result<(), Error> {
        let params = ChainParams::of(files.network);
        let path = files.path(FileKind::Blk, number);
        let (open, _) = files.open(FileKind::Blk, number)?;
        let mut scanner = BlockScanner::new(open.as_ref(), &path, files.network.magic(), files.obfuscation)?;
        scanner.skip_to(ByteOffset(used));
        let (mut arena, mut hashes, mut end) = (BlockArena::default(), BlockHashes::default(), used);
        while let Some(BlockRecord { data_pos, size, header, tx_count }) = scanner.next_record()? {
            if data_pos.0 != end + RECORD_HEADER_LEN as u64 {
                break;
            }
            let hash = header.hash();
            let mut bytes = vec![0; size as usize];
            open.read_exact_at(&mut bytes, data_pos.0).during("read", &path)?;
            files.obfuscation.apply(&mut bytes, data_pos.0);
            end = data_pos.0 + u64::from(size);
            let found = by_hash.binary_search_by_key(&Some(hash), |&height| self.chain.hash(height));
            let Some(&height) = found.ok().and_then(|at| by_hash.get(at)) else { continue };
            let median_time_past_prev = self.chain.median_time_before(height);
            let block = ArrivedBlock { height, hash, median_time_past_prev, bytes };
            if check_arrived(params, &block, &mut arena, &mut hashes).is_err() {
                break;
            }
            if self.infos.len() <= number.0 as usize {
                self.infos.resize(number.0 as usize + 1, FileInfo::default());
            }
            if let Some(info) = self.infos.get_mut(number.0 as usize) {
                info.size = end as u32;
                info.add_block(height, header.time.0.into());
            }
            if !self.stored.has(height) {
                self.stored.set(height, number, data_pos, tx_count);
                self.found += 1;
            }
        }
        Ok(())
    }
}

/// Puts a block index in place that has all headers of the chain and all stored blocks. What the old one has
/// besides stays.
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
    let target = Destination::of_index(files.disk, files.datadir.clone(), false)?;
    let params = ChainParams::of(files.network);
    let added = chain.heights_by_hash().into_iter().filter_map(|height| {
        let mut entry = IndexEntry::of_header(chain.hash(height)?, *chain.header(height)?, height);
        stored.change_entry(&mut entry, params);
        Some(entry)
    });
    let change = |entry: &mut IndexEntry| {
        if chain.hash(entry.height) == Some(entry.hash) {
            stored.change_entry(entry, params);
        } else if stored.is_lost(entry) {
            // Without its file, bitcoind would not start.
            *entry = IndexEntry::of_header(entry.hash, entry.header, entry.height);
        }
        if chain.is_invalid(&entry.hash) && !entry.status.is_failed() {
            entry.status.0 |= BlockStatus::FAILED_VALID;
        }
    };
    let commit = || {
        let old = files.datadir.index_dir();
        let change_files = |old: &mut Vec<FileInfo>| *old = infos.to_vec();
        extend_block_index(files.disk, &old, target.building(), added, change, change_files)?;
        // Only `blk` files have grown, so undo data that waits for a rebuild to go on stays right.
        keep_made_undo(files.disk, files.datadir, || target.commit(sink))
    };
    commit().map(drop).inspect_err(|_| target.discard())
}
