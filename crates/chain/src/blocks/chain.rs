//! The chain that is rebuilt, and the files that hold its blocks.

use std::{num::NonZeroU32, ops::Range};
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Height};

/// A block of the chain, and where it was on disk when the chain was chosen.
#[derive(Clone, Copy, Debug)]
pub struct ChainBlock {
    pub hash: BlockHash,
    pub file: FileNo,
    /// Position of its first byte in the `blk` file, after the record's frame; 0 if it was not stored.
    pub data_pos: ByteOffset,
    /// Position of the first byte of its undo data in the `rev` file, after the record's frame; `None` for
    /// the genesis block.
    pub undo_pos: Option<ByteOffset>,
}

/// The blocks from genesis to the tip that is rebuilt, with valid headers: 52 bytes per block.
#[derive(Debug)]
pub struct Chain {
    hashes: Vec<BlockHash>,
    positions: Vec<BlockPosition>,
    median_times: Vec<BlockTime>,
    /// Heights in the order of their blocks on disk.
    by_file: Vec<Height>,
    /// Heights of the blocks that a job reads, if these are not all.
    cut: Option<Range<u32>>,
}

/// The contents of a [`ChainBlock`] without the hash; 32-bit positions, as in Core.
#[derive(Clone, Copy, Debug)]
pub struct BlockPosition {
    pub file: FileNo,
    /// Position in the `blk` file; 0 if the block is not stored.
    pub data_pos: u32,
    /// Position in the `rev` file.
    pub undo_pos: Option<NonZeroU32>,
}

impl BlockPosition {
    /// These positions, which are below 4 GiB.
    pub fn new(file: FileNo, data_pos: ByteOffset, undo_pos: Option<ByteOffset>) -> Self {
        let undo_pos = undo_pos.and_then(|pos| NonZeroU32::new(pos.0 as u32));
        Self { file, data_pos: data_pos.0 as u32, undo_pos }
    }
}

impl Chain {
    /// Assembles a chain from lists ordered by height, starting with the genesis block.
    ///
    /// # Panics
    /// If the lists are empty or differ in length.
    pub fn from_parts(
        hashes: Vec<BlockHash>,
        positions: Vec<BlockPosition>,
        median_times: Vec<BlockTime>,
    ) -> Self {
        let count = hashes.len();
        assert!(
            count > 0 && positions.len() == count && median_times.len() == count,
            "a position and a median time for each block"
        );
        let mut by_file = Vec::with_capacity(count);
        let is_stored = |height: &Height| positions[height.0 as usize].data_pos > 0;
        by_file.extend((0..count as u32).map(Height).filter(is_stored));
        by_file.sort_unstable_by_key(|height| {
            let position = &positions[height.0 as usize];
            (position.file, position.data_pos)
        });
        Self { hashes, positions, median_times, by_file, cut: None }
    }

    /// Returns the block at `height`. For the place of a block that was stored later, see
    /// [`Files::block`](crate::blocks::files::Files::block).
    ///
    /// # Panics
    /// If `height` is above the tip.
    pub fn block(&self, height: Height) -> ChainBlock {
        let position = self.positions[height.0 as usize];
        ChainBlock {
            hash: self.hashes[height.0 as usize],
            file: position.file,
            data_pos: ByteOffset(position.data_pos.into()),
            undo_pos: position.undo_pos.map(|pos| ByteOffset(pos.get().into())),
        }
    }

    /// Whether the block with this height and hash is in the chain.
    pub fn has(&self, height: Height, hash: &BlockHash) -> bool {
        self.hashes.get(height.0 as usize) == Some(hash)
    }

    /// Cuts the chain to a range: a job reads only the blocks at these heights. Hashes and median times of
    /// the others stay.
    pub fn cut_to(&mut self, heights: Range<u32>) {
        self.by_file.retain(|height| heights.contains(&height.0));
        self.cut = Some(heights);
    }

    /// Heights of the blocks that a job reads: all, unless the chain is cut to a range.
    pub fn heights(&self) -> Range<u32> {
        self.cut.clone().unwrap_or(0..self.hashes.len() as u32)
    }

    /// Whether a block was stored when the chain was chosen.
    ///
    /// # Panics
    /// If `height` is above the tip.
    pub fn was_stored(&self, height: Height) -> bool {
        self.positions[height.0 as usize].data_pos > 0
    }

    /// Returns the blocks up to a height, which must not be above the tip.
    pub fn up_to(&self, height: Height) -> Self {
        let count = height.0 as usize + 1;
        let (hashes, positions) = (self.hashes[..count].to_vec(), self.positions[..count].to_vec());
        Self::from_parts(hashes, positions, self.median_times[..count].to_vec())
    }

    /// Returns the blocks up to `fork`, which must not be above the tip, and a branch that begins after it.
    /// Median times of the branch are not known: it was connected before.
    pub fn with_branch(&self, fork: Height, branch: &[(BlockHash, BlockPosition)]) -> Self {
        let mut chain = self.up_to(fork);
        let (hashes, positions): (Vec<_>, Vec<_>) = branch.iter().copied().unzip();
        chain.hashes.extend(hashes);
        chain.positions.extend(positions);
        chain.median_times.resize(chain.hashes.len(), BlockTime(u32::MAX));
        Self::from_parts(chain.hashes, chain.positions, chain.median_times)
    }

    /// Replaces the blocks above `fork`, which must not be above the tip, by these, each with its median time
    /// past.
    pub fn replace_above(&mut self, fork: Height, blocks: &[(BlockHash, BlockPosition, BlockTime)]) {
        let count = fork.0 as usize + 1;
        self.hashes.truncate(count);
        self.positions.truncate(count);
        self.median_times.truncate(count);
        self.by_file.retain(|height| *height <= fork);
        for &(hash, position, median_time) in blocks {
            self.by_file.push(Height(self.hashes.len() as u32));
            self.hashes.push(hash);
            self.positions.push(position);
            self.median_times.push(median_time);
        }
    }

    pub fn has_no_undo(&self) -> bool {
        self.positions.iter().all(|position| position.undo_pos.is_none())
    }

    /// Drops the positions of undo data for which `keep`, called with file and position, returns false.
    pub fn retain_undo(&mut self, keep: impl Fn(FileNo, u64) -> bool) {
        for position in &mut self.positions {
            position.undo_pos = position.undo_pos.filter(|pos| keep(position.file, pos.get().into()));
        }
    }

    pub fn tip_height(&self) -> Height {
        Height(self.hashes.len() as u32 - 1)
    }

    pub fn tip(&self) -> ChainBlock {
        self.block(self.tip_height())
    }

    /// Number of blocks, genesis included.
    pub fn block_count(&self) -> usize {
        self.hashes.len()
    }

    /// Median time past of each block, by height.
    pub fn median_times(&self) -> &[BlockTime] {
        &self.median_times
    }

    /// Median time past of the block before `height`; 0 for the genesis block.
    pub fn median_time_before(&self, height: Height) -> BlockTime {
        let before = (height.0 as usize).checked_sub(1);
        before.and_then(|before| self.median_times.get(before)).copied().unwrap_or_default()
    }

    /// Heights in the order of their blocks on disk, grouped by file; files without blocks of the chain are
    /// left out, and so are blocks that were not stored.
    pub fn by_file(&self) -> impl Iterator<Item = (FileNo, &[Height])> {
        let file = |height: Height| self.positions[height.0 as usize].file;
        let files = self.by_file.chunk_by(move |&a, &b| file(a) == file(b));
        files.filter_map(move |heights| Some((file(*heights.first()?), heights)))
    }

    /// Approximate bytes of the block files that have these blocks.
    pub fn file_bytes(&self) -> u64 {
        let pos = |height: Option<&Height>| height.map_or(0, |&height| self.block(height).data_pos.0);
        self.by_file().map(|(_, heights)| pos(heights.last()) - pos(heights.first())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_52_bytes_and_comes_back() {
        let block = |n: u32| ChainBlock {
            hash: BlockHash([n as u8; 32]),
            file: FileNo(9 - n / 100),
            data_pos: ByteOffset(u64::from(u32::MAX - n)),
            undo_pos: (n > 0).then(|| ByteOffset(u64::from(u32::MAX - n % 7))),
        };
        let blocks: Vec<_> = (0..1000).map(block).collect();
        let times = (0..1000).map(BlockTime).collect();
        let position = |it: &ChainBlock| BlockPosition::new(it.file, it.data_pos, it.undo_pos);
        let hashes = blocks.iter().map(|block| block.hash).collect();
        let chain = Chain::from_parts(hashes, blocks.iter().map(position).collect(), times);
        let bytes = size_of::<BlockHash>() * chain.hashes.capacity()
            + size_of::<BlockPosition>() * chain.positions.capacity()
            + size_of::<BlockTime>() * chain.median_times.capacity()
            + size_of::<Height>() * chain.by_file.capacity();
        assert_eq!(bytes, 52 * chain.block_count());
        for (height, block) in (0..).map(Height).zip(&blocks) {
            let back = chain.block(height);
            assert_eq!((back.hash, back.file), (block.hash, block.file));
            assert_eq!((back.data_pos, back.undo_pos), (block.data_pos, block.undo_pos));
        }
        let files: Vec<_> = chain.by_file().collect();
        assert_eq!(files.iter().map(|(file, _)| file.0).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(files[9].1.first().zip(files[9].1.last()), Some((&Height(99), &Height(0))));
    }
}
