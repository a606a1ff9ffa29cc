//! Writes generated blocks as a Bitcoin Core datadir: `blk` and `rev` files, `xor.dat` and the block index.
//!
//! The files are as a node leaves them after its initial download. Blocks are in the order in which peers
//! delivered them (shuffled within a window). Undo records are in the order of connection, in the `rev` file
//! with the number of their block's `blk` file; stale blocks that were connected for a time have one too. The
//! last files are padded with zeros to the next preallocated chunk. There is no chainstate: the tests rebuild
//! it.

use crate::{block::GeneratedBlock, chain::Chain, rng::Rng};
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    datadir::Datadir,
    fs::RealDisk,
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, write_block_index},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};
use wire::{BlockHash, ByteOffset, FileNo, Height, Network};

/// Core preallocates `blk` files in chunks of this many bytes (`BLOCKFILE_CHUNK_SIZE`).
const BLK_CHUNK: u64 = 16 << 20;
/// Core preallocates `rev` files in chunks of this many bytes (`UNDOFILE_CHUNK_SIZE`).
const REV_CHUNK: u64 = 1 << 20;
/// Size in bytes of the header before a record's data.
const RECORD_HEADER: u64 = 8;

/// The layout of the files.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Upper limit of the size of a `blk` file, in bytes (Core: 128 MiB).
    pub file_size: u64,
    /// The key in `xor.dat`; `None` for no such file.
    pub xor_key: Option<[u8; 8]>,
    /// Whether to write the block index.
    pub index: bool,
    /// Number of blocks in the window within which the order is random; 0 or 1 for blocks in order.
    pub shuffle: usize,
    /// Whether the last files end in preallocated zeros, as a running node leaves them.
    pub preallocate: bool,
    /// Seed of the order of blocks.
    pub seed: u64,
}

impl Layout {
    /// Core's default layout, with a key that follows from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let xor_key = Some(Rng::new(seed, "xor.dat").next_u64().to_le_bytes());
        Self { file_size: 128 << 20, xor_key, index: true, shuffle: 16, preallocate: true, seed }
    }
}

/// Why a datadir could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A file could not be written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The block index could not be written.
    #[error(transparent)]
    Index(#[from] DiskError),
}

/// A `blk` file and the `rev` file of the same number.
struct Pair {
    blk: File,
    rev: File,
    info: FileInfo,
}

/// Undo data that is not yet written.
struct WaitingUndo {
    prev: BlockHash,
    undo: Vec<u8>,
    stale: bool,
}

/// Writes a datadir block by block.
pub struct DatadirWriter {
    paths: Datadir,
    layout: Layout,
    obfuscation: Obfuscation,
    rng: Rng,
    waiting: Vec<GeneratedBlock>,
    pairs: Vec<Pair>,
    entries: Vec<IndexEntry>,
    /// Undo data that waits for that of lower blocks, by height and number of the block's entry.
    undo: BTreeMap<(u32, usize), WaitingUndo>,
    next_undo: u32,
    /// Buffer for the record being written, reused.
    record: Vec<u8>,
}

impl DatadirWriter {
    /// Creates the folders below `root`.
    ///
    /// # Errors
    /// [`WriteError::File`].
    pub fn create(root: &Path, layout: Layout) -> Result<Self, WriteError> {
        let paths = Datadir::at(root, Network::Regtest);
        let blocks = paths.blocks_dir();
        std::fs::create_dir_all(&blocks)
            .map_err(|source| WriteError::File { path: blocks.clone(), source })?;
        if let Some(key) = layout.xor_key {
            let path = blocks.join("xor.dat");
            std::fs::write(&path, key).map_err(|source| WriteError::File { path, source })?;
        }
        Ok(Self {
            paths,
            obfuscation: Obfuscation::from_key(layout.xor_key.unwrap_or_default()),
            rng: Rng::new(layout.seed, "file order"),
            layout,
            waiting: Vec::new(),
            pairs: Vec::new(),
            entries: Vec::new(),
            undo: BTreeMap::new(),
            next_undo: 1,
            record: Vec::new(),
        })
    }

    /// Adds the next block.
    ///
    /// # Errors
    /// [`WriteError::File`].
    pub fn push(&mut self, block: GeneratedBlock) -> Result<(), WriteError> {
        if block.height == 0 {
            return self.write_block(block);
        }
        self.waiting.push(block);
        if self.waiting.len() > self.layout.shuffle { self.write_any() } else { Ok(()) }
    }

    /// Writes the blocks that are still in the window, and the block index.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn finish(mut self) -> Result<(), WriteError> {
        while !self.waiting.is_empty() {
            self.write_any()?;
        }
        if let (true, Some(pair)) = (self.layout.preallocate, self.pairs.last()) {
            let number = FileNo(self.pairs.len() as u32 - 1);
            let pad = |file: &File, path: PathBuf, used: u32, chunk: u64| {
                let len = u64::from(used).next_multiple_of(chunk);
                file.set_len(len).map_err(|source| WriteError::File { path, source })
            };
            pad(&pair.blk, self.paths.blk_path(number), pair.info.size, BLK_CHUNK)?;
            pad(&pair.rev, self.paths.rev_path(number), pair.info.undo_size, REV_CHUNK)?;
        }
        if self.layout.index {
            self.entries.sort_unstable_by_key(|entry| entry.hash);
            let index = BlockIndex {
                entries: self.entries,
                last_file: FileNo(self.pairs.len().saturating_sub(1) as u32),
                files: self.pairs.iter().map(|pair| pair.info).collect(),
                ..BlockIndex::default()
            };
            write_block_index(&RealDisk, &self.paths.index_dir(), &index)?;
        }
        Ok(())
    }

    fn write_any(&mut self) -> Result<(), WriteError> {
        let at = self.rng.below(self.waiting.len() as u64) as usize;
        // Not `swap_remove`, so that the oldest block stays first and does not wait forever.
        let at = if self.layout.shuffle < 2 || self.rng.chance(1, 4) { 0 } else { at };
        let block = self.waiting.remove(at);
        self.write_block(block)
    }

    fn write_block(&mut self, block: GeneratedBlock) -> Result<(), WriteError> {
        let len = RECORD_HEADER + block.bytes.len() as u64;
        if self.pairs.last().is_none_or(|pair| u64::from(pair.info.size) + len >= self.layout.file_size) {
            self.add_pair()?;
        }
        let number = self.pairs.len() - 1;
        let pair = &mut self.pairs[number];
        self.record.clear();
        disk::blk::write_record(&mut self.record, Network::Regtest.magic(), &block.bytes);
        self.obfuscation.apply(&mut self.record, pair.info.size.into());
        let path = || self.paths.blk_path(FileNo(number as u32));
        pair.blk.write_all(&self.record).map_err(|source| WriteError::File { path: path(), source })?;
        let data_pos = u64::from(pair.info.size) + RECORD_HEADER;
        pair.info.size += len as u32;
        pair.info.add_block(Height(block.height), block.header.time.0.into());
        let validity =
            if block.undo.is_some() { BlockStatus::VALID_SCRIPTS } else { BlockStatus::VALID_TRANSACTIONS };
        self.entries.push(IndexEntry {
            hash: block.hash,
            header: block.header,
            height: Height(block.height),
            status: BlockStatus(validity | BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS),
            tx_count: block.txs,
            file: Some(FileNo(number as u32)),
            data_pos: Some(ByteOffset(data_pos)),
            undo_pos: None,
        });
        if let Some(undo) = block.undo {
            let waiting = WaitingUndo { prev: block.header.prev, undo, stale: block.stale };
            self.undo.insert((block.height, self.entries.len() - 1), waiting);
        }
        self.write_undo()
    }

    fn write_undo(&mut self) -> Result<(), WriteError> {
        while let Some(lowest) = self.undo.first_entry().filter(|lowest| lowest.key().0 <= self.next_undo) {
            let ((height, entry), WaitingUndo { prev, undo, stale }) = lowest.remove_entry();
            if !stale {
                self.next_undo = height + 1;
            }
            let entry = &mut self.entries[entry];
            let number = entry.file.map_or(0, |file| file.0) as usize;
            let pair = &mut self.pairs[number];
            self.record.clear();
            disk::undo::write_record(&mut self.record, Network::Regtest.magic(), &prev, &undo);
            self.obfuscation.apply(&mut self.record, pair.info.undo_size.into());
            let path = || self.paths.rev_path(FileNo(number as u32));
            pair.rev.write_all(&self.record).map_err(|source| WriteError::File { path: path(), source })?;
            entry.undo_pos = Some(ByteOffset(u64::from(pair.info.undo_size) + RECORD_HEADER));
            entry.status = BlockStatus(entry.status.0 | BlockStatus::HAVE_UNDO);
            pair.info.undo_size += self.record.len() as u32;
        }
        Ok(())
    }

    fn add_pair(&mut self) -> Result<(), WriteError> {
        let number = FileNo(self.pairs.len() as u32);
        let create = |path: PathBuf| File::create(&path).map_err(|source| WriteError::File { path, source });
        self.pairs.push(Pair {
            blk: create(self.paths.blk_path(number))?,
            rev: create(self.paths.rev_path(number))?,
            info: FileInfo::default(),
        });
        Ok(())
    }
}

impl Chain {
    /// Writes the chain as a datadir `root`, in `root/regtest`.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_datadir(&self, root: &Path, layout: &Layout) -> Result<(), WriteError> {
        let mut writer = DatadirWriter::create(root, layout.clone())?;
        for block in &self.blocks {
            writer.push(block.clone())?;
        }
        writer.finish()
    }
}
