//! The chain that is rebuilt, and the files its blocks lie in.

use crate::{error::Error, error::ErrorKind};
use digest::obfuscation::Obfuscation;
use disk::{
    datadir::Datadir,
    fs::{Disk, ReadAt},
};
use std::{io, path::PathBuf};
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

/// The blocks from genesis to the tip that is rebuilt, headers judged.
#[derive(Debug)]
pub struct Chain {
    blocks: Vec<ChainBlock>,
    median_times: Vec<BlockTime>,
}

impl Chain {
    /// Puts a chain together; both lists are by height, from genesis on.
    ///
    /// # Panics
    /// If the lists are empty or differ in length.
    #[must_use]
    pub fn new(blocks: Vec<ChainBlock>, median_times: Vec<BlockTime>) -> Self {
        assert!(!blocks.is_empty() && blocks.len() == median_times.len(), "one median time for each block");
        Self { blocks, median_times }
    }

    /// The block at `height`.
    ///
    /// # Panics
    /// Above the tip.
    #[must_use]
    pub fn block(&self, height: Height) -> &ChainBlock {
        &self.blocks[height.0 as usize]
    }

    /// Height of the last block.
    #[must_use]
    pub fn tip_height(&self) -> Height {
        Height(self.blocks.len() as u32 - 1)
    }

    /// The last block.
    #[must_use]
    pub fn tip(&self) -> &ChainBlock {
        self.block(self.tip_height())
    }

    /// How many blocks, genesis included.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len()
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

    /// Heights in the order of their blocks on disk, file by file.
    #[must_use]
    pub fn by_file(&self) -> Vec<(FileNo, Vec<Height>)> {
        let mut order: Vec<Height> = (0..self.blocks.len() as u32).map(Height).collect();
        order.sort_unstable_by_key(|&height| (self.block(height).file, self.block(height).data_pos));
        order
            .chunk_by(|&a, &b| self.block(a).file == self.block(b).file)
            .filter_map(|heights| Some((self.block(*heights.first()?).file, heights.to_vec())))
            .collect()
    }
}

/// A piece of a file.
#[derive(Debug, Default)]
pub struct Window {
    /// Where it starts in its file.
    pub start: u64,
    /// Its bytes, as they are on disk.
    pub bytes: Vec<u8>,
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

impl Files<'_> {
    /// Path of a `blk` file.
    #[must_use]
    pub fn blk_path(&self, file: FileNo) -> PathBuf {
        self.datadir.blk_path(file)
    }

    /// Path of a `rev` file.
    #[must_use]
    pub fn rev_path(&self, file: FileNo) -> PathBuf {
        self.datadir.rev_path(file)
    }

    /// Opens a `blk` file and tells its length.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is missing, [`ErrorKind::Environment`] if it cannot be read.
    pub fn open_blk(&self, file: FileNo) -> Result<(Box<dyn ReadAt>, u64), Error> {
        self.open(self.blk_path(file), "restore it, or fetch its blocks again with bitcoind -reindex")
    }

    /// Opens a `rev` file and tells its length.
    ///
    /// # Errors
    /// As [`Files::open_blk`].
    pub fn open_rev(&self, file: FileNo) -> Result<(Box<dyn ReadAt>, u64), Error> {
        self.open(self.rev_path(file), "restore it, or run bitcoind -reindex, which writes undo data anew")
    }

    fn open(&self, path: PathBuf, remedy: &str) -> Result<(Box<dyn ReadAt>, u64), Error> {
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                Error::damaged(format!("the file is missing; {remedy}")).in_file(path, None)
            }
            _ => Self::io(path, 0, &source),
        })
    }

    /// An I/O error while reading: a file that ends early is damaged, anything else is the machine's fault.
    #[must_use]
    pub fn io(path: PathBuf, offset: u64, source: &io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        Error::new(kind, format!("cannot read: {source}")).in_file(path, Some(offset))
    }

    /// The length in the frame of the record whose data starts at `pos`; nothing if the frame is not in the
    /// window.
    ///
    /// # Errors
    /// A text if the frame does not start with the network's magic.
    pub fn frame_len(&self, window: &Window, pos: u64) -> Result<Option<usize>, String> {
        let frame_pos = pos - 8;
        let from = usize::try_from(frame_pos - window.start).unwrap_or(usize::MAX);
        let Some(mut frame) = window.bytes.get(from..).and_then(|rest| rest.first_chunk::<8>()).copied()
        else {
            return Ok(None);
        };
        self.obfuscation.apply(&mut frame, frame_pos);
        let [m0, m1, m2, m3, len @ ..] = frame;
        let (magic, expected) = ([m0, m1, m2, m3], self.network.magic());
        if magic != expected {
            return Err(format!(
                "no record starts here: found {magic:02x?}, expected the magic {expected:02x?}; the file, \
                 xor.dat or the block index is damaged (rerun with --scan to do without the index; if that \
                 fails too, restore the file, or let bitcoind -reindex fetch the blocks again)"
            ));
        }
        Ok(Some(u32::from_le_bytes(len) as usize))
    }
}
