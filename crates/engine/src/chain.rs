//! The chain that is rebuilt, and the files that hold its blocks.

use crate::{error::Error, error::ErrorKind};
use digest::obfuscation::Obfuscation;
use disk::{
    datadir::Datadir,
    fs::{Disk, NotRegular, ReadAt, limit_remedy},
    xor::{check_block_obfuscation, read_block_obfuscation},
};
use rules::{ChainParams, Violation};
use std::{io, num::NonZeroU32, path::PathBuf};
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Height, Network};

/// A block of the chain, and where it is on disk.
#[derive(Clone, Copy, Debug)]
pub struct ChainBlock {
    /// Its hash.
    pub hash: BlockHash,
    /// Number of its `blk` and `rev` file.
    pub file: FileNo,
    /// Position of its first byte in the `blk` file, after the record's frame.
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
}

/// The contents of a [`ChainBlock`] without the hash; 32-bit positions, as in Core.
#[derive(Clone, Copy, Debug)]
pub struct BlockPosition {
    /// Number of the `blk` and `rev` file.
    pub file: FileNo,
    /// Position in the `blk` file.
    pub data_pos: u32,
    /// Position in the `rev` file.
    pub undo_pos: Option<NonZeroU32>,
}

impl Chain {
    /// Assembles a chain from lists ordered by height, starting with the genesis block.
    ///
    /// # Panics
    /// If the lists are empty or differ in length.
    #[must_use]
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
        let mut by_file: Vec<Height> = (0..count as u32).map(Height).collect();
        by_file.sort_unstable_by_key(|height| {
            let position = &positions[height.0 as usize];
            (position.file, position.data_pos)
        });
        Self { hashes, positions, median_times, by_file }
    }

    /// Assembles a chain from [`ChainBlock`]s, for tests.
    ///
    /// # Panics
    /// If the lists are empty or differ in length.
    #[cfg(test)]
    pub fn new(blocks: Vec<ChainBlock>, median_times: Vec<BlockTime>) -> Self {
        let position = |block: &ChainBlock| BlockPosition {
            file: block.file,
            data_pos: block.data_pos.0 as u32,
            undo_pos: block.undo_pos.and_then(|pos| NonZeroU32::new(pos.0 as u32)),
        };
        let hashes = blocks.iter().map(|block| block.hash).collect();
        Self::from_parts(hashes, blocks.iter().map(position).collect(), median_times)
    }

    /// Returns the block at `height`.
    ///
    /// # Panics
    /// If `height` is above the tip.
    #[must_use]
    pub fn block(&self, height: Height) -> ChainBlock {
        let (hash, position) = (self.hashes[height.0 as usize], self.positions[height.0 as usize]);
        ChainBlock {
            hash,
            file: position.file,
            data_pos: ByteOffset(position.data_pos.into()),
            undo_pos: position.undo_pos.map(|pos| ByteOffset(pos.get().into())),
        }
    }

    /// Height of the last block.
    #[must_use]
    pub fn tip_height(&self) -> Height {
        Height(self.hashes.len() as u32 - 1)
    }

    /// The last block.
    #[must_use]
    pub fn tip(&self) -> ChainBlock {
        self.block(self.tip_height())
    }

    /// Number of blocks, genesis included.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.hashes.len()
    }

    /// Median time past of each block, by height.
    #[must_use]
    pub fn median_times(&self) -> &[BlockTime] {
        &self.median_times
    }

    /// Median time past of the block before `height`; 0 for the genesis block.
    #[must_use]
    pub fn median_time_before(&self, height: Height) -> BlockTime {
        let before = (height.0 as usize).checked_sub(1);
        before.and_then(|before| self.median_times.get(before)).copied().unwrap_or_default()
    }

    /// Heights in the order of their blocks on disk, grouped by file; files without blocks of the chain are
    /// left out.
    pub fn by_file(&self) -> impl Iterator<Item = (FileNo, &[Height])> {
        let file = |height: Height| self.positions[height.0 as usize].file;
        let files = self.by_file.chunk_by(move |&a, &b| file(a) == file(b));
        files.filter_map(move |heights| Some((file(*heights.first()?), heights)))
    }
}

/// Kind of a file of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// `blk`: blocks.
    Blk,
    /// `rev`: undo data.
    Rev,
}

impl FileKind {
    /// What to do, other than restoring it, if such a file is missing or damaged.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Blk => "or let bitcoind -reindex download its blocks again",
            Self::Rev => "or run bitcoind -reindex, which writes undo data again",
        }
    }
}

/// Access to the block files of a datadir.
pub struct Files<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The datadir.
    pub datadir: &'a Datadir,
    /// The key with which the files are obfuscated.
    pub obfuscation: Obfuscation,
    /// The network, whose magic starts each record.
    pub network: Network,
}

/// Reads the key that obfuscates the block files of a datadir.
///
/// # Errors
/// [`ErrorKind::Damaged`] if it is not the key of these files; any I/O error.
pub fn obfuscation(disk: &dyn Disk, datadir: &Datadir) -> Result<Obfuscation, Error> {
    let obfuscation = read_block_obfuscation(disk, &datadir.blocks_dir())?;
    let genesis = &ChainParams::of(datadir.network()).genesis_hash;
    check_block_obfuscation(disk, datadir, obfuscation, genesis)?;
    Ok(obfuscation)
}

impl Files<'_> {
    /// Path of a file.
    #[must_use]
    pub fn path(&self, kind: FileKind, file: FileNo) -> PathBuf {
        match kind {
            FileKind::Blk => self.datadir.blk_path(file),
            FileKind::Rev => self.datadir.rev_path(file),
        }
    }

    /// Opens a file and returns its length.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is missing, [`ErrorKind::Environment`] if it cannot be read.
    pub fn open(&self, kind: FileKind, file: FileNo) -> Result<(Box<dyn ReadAt>, u64), Error> {
        let path = self.path(kind, file);
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                Error::damaged(format!("the file is missing; restore it, {}", kind.remedy()))
                    .in_file(path, None)
            }
            _ => Self::io(path, 0, &source),
        })
    }

    /// Converts an I/O error while reading: a file that ends early, or that is not a regular file, is
    /// damaged; anything else is an error of the environment.
    #[must_use]
    pub fn io(path: PathBuf, offset: u64, source: &io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
            _ if NotRegular::is_cause_of(source) => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        let remedy = limit_remedy(source).unwrap_or_default();
        Error::new(kind, format!("cannot read: {source}{remedy}")).in_file(path, Some(offset))
    }
}

/// A block of the chain and its files, for messages about it.
#[derive(Clone, Copy)]
pub struct LocatedBlock<'a> {
    /// The chain.
    pub chain: &'a Chain,
    /// Its files.
    pub files: &'a Files<'a>,
    /// The block's height.
    pub height: Height,
}

impl LocatedBlock<'_> {
    /// Returns the file of the block or its undo data, and the position there.
    #[must_use]
    pub fn position(&self, kind: FileKind) -> (PathBuf, Option<u64>) {
        let block = self.chain.block(self.height);
        let pos = match kind {
            FileKind::Blk => Some(block.data_pos),
            FileKind::Rev => block.undo_pos,
        };
        (self.files.path(kind, block.file), pos.map(|pos| pos.0))
    }

    /// Reports that the block or its undo data is damaged: `flaw` is what is wrong.
    #[must_use]
    pub fn damaged(&self, kind: FileKind, flaw: &str) -> Error {
        let (path, offset) = self.position(kind);
        let what = match kind {
            FileKind::Blk => "the block is damaged",
            FileKind::Rev => "the undo data is damaged",
        };
        Error::damaged(format!("{what}: {flaw}; restore the file, {}", kind.remedy()))
            .at_block(self.height, self.chain.block(self.height).hash)
            .in_file(path, offset)
    }

    /// Reports a body that its header does not commit to.
    #[must_use]
    pub fn mutated(&self, violation: &Violation) -> Error {
        let flaw = format!("it does not match its header ({}: {})", violation.core, violation.detail);
        self.damaged(FileKind::Blk, &flaw)
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
        let chain = Chain::new(blocks.clone(), times);
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
