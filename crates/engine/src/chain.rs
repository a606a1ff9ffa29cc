//! The chain that is rebuilt, and the files that hold its blocks.

use crate::{
    error::{Error, ErrorKind},
    remedy::Remedy,
    stages::block_fault::Damage,
};
use digest::obfuscation::Obfuscation;
use disk::{
    block_files::{BlockFiles, RecordError, RecordFile, RecordFlaw},
    datadir::Datadir,
    xor::{check_block_obfuscation, read_block_obfuscation},
};
use rules::ChainParams;
use std::{io, num::NonZeroU32, path::PathBuf};
use vfs::{Disk, Limit, NotRegular, ReadAt};
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Height, Network};

pub use disk::datadir::FileKind;

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

/// What to do if a file of this kind is missing or damaged.
#[must_use]
pub const fn remedies(kind: FileKind) -> [Remedy; 2] {
    [Remedy::RestoreFile, Remedy::BitcoindReindex(Some(kind))]
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
        self.datadir.block_file_path(kind, file)
    }

    /// Opens a file and returns its length.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is missing, [`ErrorKind::Environment`] if it cannot be read.
    pub fn open(&self, kind: FileKind, file: FileNo) -> Result<(Box<dyn ReadAt>, u64), Error> {
        let path = self.path(kind, file);
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        opened.map_err(|source| Self::not_opened(kind, path, source))
    }

    /// Opens a file for reading records.
    ///
    /// # Errors
    /// The same errors as [`Files::open`].
    pub fn open_records(&self, kind: FileKind, file: FileNo) -> Result<RecordFile, Error> {
        let files = BlockFiles::new(self.disk, self.datadir, self.obfuscation);
        files.open(kind, file).map_err(|error| Self::not_opened(kind, error.path, error.source))
    }

    fn not_opened(kind: FileKind, path: PathBuf, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound => {
                Error::damaged("the file is missing").in_file(path, None).with_remedies(remedies(kind))
            }
            _ => Self::io(path, 0, source),
        }
    }

    /// Converts an I/O error while reading: a file that ends early, or that is not a regular file, is
    /// damaged; anything else is an error of the environment.
    #[must_use]
    pub fn io(path: PathBuf, offset: u64, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
            _ if NotRegular::is_cause_of(&source) => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        Error::new(kind, format!("cannot read: {source}"))
            .in_file(path, Some(offset))
            .with_remedies(Limit::of(&source).map(Remedy::RaiseLimit))
            .caused_by(source)
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        let (cause, rebuild_index) = match error.flaw {
            RecordFlaw::Io(source) => return Files::io(error.path, error.offset, source),
            RecordFlaw::StartsBeyondEnd { .. } | RecordFlaw::EndsBeyondEnd { .. } => {
                (": the file is truncated, or the block index belongs to other files", true)
            }
            RecordFlaw::Magic { .. } => ("; the file, xor.dat or the block index is damaged", true),
            _ => ("; the file is damaged, or xor.dat belongs to other files", false),
        };
        Self::damaged(format!("{}{cause}", error.flaw))
            .in_file(error.path, Some(error.offset))
            .with_remedies(remedies(error.kind))
            .with_remedies(rebuild_index.then_some(Remedy::RebuildIndex))
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

    /// The error for damage to the block or its undo data.
    #[must_use]
    pub fn damaged(&self, damage: &Damage) -> Error {
        let (kind, flaw) = match damage {
            Damage::Block(error) => (FileKind::Blk, error.to_string()),
            Damage::OtherBlock(found) => {
                let flaw = format!(
                    "the file contains another block here, {found}: the index may belong to other files"
                );
                (FileKind::Blk, flaw)
            }
            Damage::Mutated(violation) => {
                let flaw = format!("it does not match its header ({}: {})", violation.core, violation.detail);
                (FileKind::Blk, flaw)
            }
            Damage::Undo(defect) => (FileKind::Rev, defect.to_string()),
        };
        let what = match kind {
            FileKind::Blk => "the block is damaged",
            FileKind::Rev => "the undo data is damaged",
        };
        let (path, offset) = self.position(kind);
        Error::damaged(format!("{what}: {flaw}"))
            .at_block(self.height, self.chain.block(self.height).hash)
            .in_file(path, offset)
            .with_remedies(remedies(kind))
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
