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
};
use rules::ChainParams;
use std::collections::HashMap;
use vfs::During as _;
use wire::{BlockArena, BlockHash, ByteOffset, FileNo, Header, Height};

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
}

/// What a datadir contains before a download.
pub struct Inventory {
    /// The header chain with the most work.
    pub chain: HeaderChain,
    /// Which of its blocks are stored.
    pub stored: StoredBlocks,
    /// What the block index must record about each pair of files.
    pub infos: Vec<FileInfo>,
    /// Number of blocks that are stored and that the block index does not place.
    pub found: u32,
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

    /// Forgets blocks that are not whole in their files. Returns whether the last file has fewer bytes than
    /// are in use.
    fn drop_missing(&mut self, files: &Files<'_>, infos: &[FileInfo]) -> Result<bool, Error> {
        let (mut is_short, mut is_last_short) = (HashMap::new(), false);
        for (number, info) in (0..).map(FileNo).zip(infos) {
            let len = blk_len(files, number)?;
            is_last_short = len < u64::from(info.size);
            if is_last_short {
                is_short.insert(number.0, len);
            }
        }
        for position in self.positions.iter_mut().filter(|position| position.pos > 0) {
            let number = FileNo(position.file);
            let len = match is_short.get(&position.file) {
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
        }
        Ok(is_last_short)
    }

    /// Makes an entry of the block index agree with what is stored.
    fn change_entry(&self, entry: &mut IndexEntry, params: &ChainParams) {
        let Some(position) = self.get(entry.height) else { return };
        let (file, data_pos) = (Some(FileNo(position.file)), Some(ByteOffset(position.pos.into())));
        if entry.status.has_data() && (entry.file, entry.data_pos) == (file, data_pos) {
            return;
        }
        // It was never connected, or its undo data is in the file of the place where it was. Core records
        // that it has the witnesses from the height of BIP-0141 on.
        let witness = if entry.height >= params.segwit_height { BlockStatus::OPT_WITNESS } else { 0 };
        let status = BlockStatus(BlockStatus::VALID_TRANSACTIONS | BlockStatus::HAVE_DATA | witness);
        let tx_count = position.tx_count;
        *entry = IndexEntry { status, tx_count, file, data_pos, undo_pos: None, ..*entry };
    }
}

impl Inventory {
    /// Reads the block index, and finds the blocks that an interrupted download has appended.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] for a damaged index; [`ErrorKind::Usage`] for that of a pruned node; any I/O
    /// error.
    pub fn read(files: &Files<'_>) -> Result<Self, Error> {
        let mut inventory = Self::of_index(files)?;
        if inventory.stored.drop_missing(files, &inventory.infos)? {
            // What remains of it stays as it is.
            inventory.infos.push(FileInfo::default());
        }
        inventory.find_appended(files)?;
        Ok(inventory)
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
        Ok(Self { chain, stored, infos, found: 0 })
    }

    /// Finds blocks beyond the bytes in use.
    fn find_appended(&mut self, files: &Files<'_>) -> Result<(), Error> {
        let mut heights = HashMap::new();
        for number in (self.infos.len().saturating_sub(1) as u32..).map(FileNo) {
            let len = blk_len(files, number)?;
            let used = self.infos.get(number.0 as usize).map_or(0, |info| u64::from(info.size));
            if len == 0 {
                return Ok(());
            }
            if len <= used {
                continue;
            }
            if heights.is_empty() {
                let all = (0..=self.chain.tip_height().0).map(Height);
                heights = all.filter_map(|height| Some((self.chain.hash(height)?, height))).collect();
            }
            self.find_in_file(files, number, used, &heights)?;
        }
        Ok(())
    }

    /// Finds blocks in one file from byte `used` on, up to the first that is damaged.
    fn find_in_file(
        &mut self,
        files: &Files<'_>,
        number: FileNo,
        used: u64,
        heights: &HashMap<BlockHash, Height>,
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
            let Some(&height) = heights.get(&hash) else { continue };
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

/// Length of a `blk` file in bytes; 0 if it is missing.
fn blk_len(files: &Files<'_>, number: FileNo) -> Result<u64, Error> {
    let path = files.path(FileKind::Blk, number);
    let found = files.disk.metadata(&path).during("look at", &path)?;
    Ok(found.filter(|found| !found.is_dir).map_or(0, |found| found.len))
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
    let heights = (0..=chain.tip_height().0).map(Height);
    let mut order: Vec<(BlockHash, Height)> =
        heights.filter_map(|height| Some((chain.hash(height)?, height))).collect();
    order.sort_unstable();
    let added = order.iter().filter_map(|&(hash, height)| {
        let mut entry = IndexEntry {
            hash,
            header: *chain.header(height)?,
            height,
            status: BlockStatus(BlockStatus::VALID_TREE),
            tx_count: 0,
            file: None,
            data_pos: None,
            undo_pos: None,
        };
        stored.change_entry(&mut entry, params);
        Some(entry)
    });
    let change = |entry: &mut IndexEntry| {
        if chain.is_invalid(&entry.hash) && !entry.status.is_failed() {
            entry.status.0 |= BlockStatus::FAILED_VALID;
        } else if chain.hash(entry.height) == Some(entry.hash) {
            stored.change_entry(entry, params);
        }
    };
    let commit = || {
        let old = files.datadir.index_dir();
        let change_files = |old: &mut Vec<FileInfo>| *old = infos.to_vec();
        extend_block_index(files.disk, &old, target.building(), added, change, change_files)?;
        target.commit(sink)
    };
    commit().map(drop).inspect_err(|_| target.discard())
}
