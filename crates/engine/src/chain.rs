//! The chain that is rebuilt, and the files its blocks lie in.

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

/// Where a block of the chain lies.
#[derive(Clone, Copy, Debug)]
pub struct ChainBlock {
    /// Its hash.
    pub hash: BlockHash,
    /// The file pair.
    pub file: FileNo,
    /// Its first byte in the `blk` file, after the record's frame.
    pub data_pos: ByteOffset,
    /// The first byte of its undo data in the `rev` file, after the record's frame; none for the genesis
    /// block.
    pub undo_pos: Option<ByteOffset>,
}

/// The blocks from genesis to the tip that is rebuilt, headers judged: 52 bytes a block.
#[derive(Debug)]
pub struct Chain {
    hashes: Vec<BlockHash>,
    places: Vec<BlockPosition>,
    median_times: Vec<BlockTime>,
    /// Heights in the order of their blocks on disk.
    by_file: Vec<Height>,
}

/// What is in a [`ChainBlock`] besides the hash, in the 32 bits that Core has for positions too.
#[derive(Clone, Copy, Debug)]
pub struct BlockPosition {
    /// The file pair.
    pub file: FileNo,
    /// Position in the `blk` file.
    pub data_pos: u32,
    /// Position in the `rev` file.
    pub undo_pos: Option<NonZeroU32>,
}

impl Chain {
    /// Puts a chain together; the lists are by height, from genesis on.
    ///
    /// # Panics
    /// If the lists are empty or differ in length.
    #[must_use]
    pub fn of_parts(
        hashes: Vec<BlockHash>,
        places: Vec<BlockPosition>,
        median_times: Vec<BlockTime>,
    ) -> Self {
        let count = hashes.len();
        assert!(
            count > 0 && places.len() == count && median_times.len() == count,
            "a place and a median time for each block"
        );
        let mut by_file: Vec<Height> = (0..count as u32).map(Height).collect();
        by_file.sort_unstable_by_key(|height| {
            let place = &places[height.0 as usize];
            (place.file, place.data_pos)
        });
        Self { hashes, places, median_times, by_file }
    }

    /// A chain for tests.
    ///
    /// # Panics
    /// If the lists are empty or differ in length.
    #[cfg(test)]
    pub fn new(blocks: Vec<ChainBlock>, median_times: Vec<BlockTime>) -> Self {
        let place = |block: &ChainBlock| BlockPosition {
            file: block.file,
            data_pos: block.data_pos.0 as u32,
            undo_pos: block.undo_pos.and_then(|pos| NonZeroU32::new(pos.0 as u32)),
        };
        let hashes = blocks.iter().map(|block| block.hash).collect();
        Self::of_parts(hashes, blocks.iter().map(place).collect(), median_times)
    }

    /// The block at `height`.
    ///
    /// # Panics
    /// Above the tip.
    #[must_use]
    pub fn block(&self, height: Height) -> ChainBlock {
        let (hash, place) = (self.hashes[height.0 as usize], self.places[height.0 as usize]);
        ChainBlock {
            hash,
            file: place.file,
            data_pos: ByteOffset(place.data_pos.into()),
            undo_pos: place.undo_pos.map(|pos| ByteOffset(pos.get().into())),
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

    /// How many blocks, genesis included.
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

    /// Heights in the order of their blocks on disk, file by file; no file is without one.
    pub fn by_file(&self) -> impl Iterator<Item = (FileNo, &[Height])> {
        let file = |height: Height| self.places[height.0 as usize].file;
        let files = self.by_file.chunk_by(move |&a, &b| file(a) == file(b));
        files.filter_map(move |heights| Some((file(*heights.first()?), heights)))
    }
}

/// Which file of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// `blk`: blocks.
    Blk,
    /// `rev`: undo data.
    Rev,
}

impl FileKind {
    /// What to do, besides restoring it, if such a file is missing or damaged.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Blk => "or let bitcoind -reindex fetch its blocks again",
            Self::Rev => "or run bitcoind -reindex, which writes undo data anew",
        }
    }
}

/// The block files of a datadir, opened for reading.
pub struct Files<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The datadir.
    pub datadir: &'a Datadir,
    /// What the files are XORed with.
    pub obfuscation: Obfuscation,
    /// The network, whose magic starts each record.
    pub network: Network,
}

/// The key that obfuscates the block files of a datadir.
///
/// # Errors
/// [`ErrorKind::Damaged`] if it is not theirs; I/O errors.
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

    /// Opens a file and tells its length.
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

    /// An I/O error while reading: a file that ends early, or is none, is damaged; anything else is the
    /// machine's fault.
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

/// A block of the chain in its files, for messages about it.
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
    /// Where the block, or its undo data, begins.
    #[must_use]
    pub fn place(&self, kind: FileKind) -> (PathBuf, Option<u64>) {
        let block = self.chain.block(self.height);
        let pos = match kind {
            FileKind::Blk => Some(block.data_pos),
            FileKind::Rev => block.undo_pos,
        };
        (self.files.path(kind, block.file), pos.map(|pos| pos.0))
    }

    /// Damage: what is wrong is `flaw`.
    #[must_use]
    pub fn damaged(&self, kind: FileKind, flaw: &str) -> Error {
        let (path, offset) = self.place(kind);
        let what = match kind {
            FileKind::Blk => "the block is damaged",
            FileKind::Rev => "the undo data is damaged",
        };
        Error::damaged(format!("{what}: {flaw}; restore the file, {}", kind.remedy()))
            .at_block(self.height, self.chain.block(self.height).hash)
            .in_file(path, offset)
    }

    /// A body that is not the one its header commits to.
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
            + size_of::<BlockPosition>() * chain.places.capacity()
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
