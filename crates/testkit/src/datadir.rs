//! Writes generated blocks as a Bitcoin Core datadir: `blk` and `rev` files, `xor.dat` and the block index.
//!
//! The files are as a node leaves them after its initial download. Blocks are in the order in which peers
//! delivered them (shuffled within a window). Undo records are in the order of connection, in the `rev` file
//! with the number of their block's `blk` file; stale blocks that were connected for a time have one too. The
//! last files are padded with zeros to the next preallocated chunk. There is no chainstate: the tests rebuild
//! it.

use crate::prelude::*;
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    block_files::{BlockAppender, BlockFiles, MAX_BLOCK_FILE_LEN, RecordBuffer, chunk_len},
    chainstate::ChainstateReader,
    datadir::FileKind,
    index::write_block_index,
    xor::read_block_obfuscation,
};
use vfs::During as _;
use wire::ByteOffset;

/// Writes a chainstate of these coins, in the order of keys, into `dir`, obfuscated with `key`.
///
/// # Errors
/// Any I/O error; coins that are not in order.
pub fn write_chainstate<'c>(
    disk: &dyn Disk,
    dir: &Path,
    key: [u8; 8],
    best_block: BlockHash,
    coins: impl IntoIterator<Item = (OutPoint, Coin<'c>)>,
) -> Result<(), DiskError> {
    let mut chainstate = ChainstateReader::create(disk, dir, Obfuscation::from_key(key))?;
    let update = chainstate.update(best_block)?;
    let mut range = update.numbered_range(0, 1);
    coins.into_iter().try_for_each(|(outpoint, coin)| range.set(&outpoint, Some(&coin)))?;
    let range = range.finish()?;
    update.commit([range])
}

/// Reads a stored block.
///
/// # Panics
/// If there is none.
pub fn read_block(datadir: &Datadir, file: FileNo, pos: ByteOffset) -> Vec<u8> {
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).expect("there is a key");
    let files = BlockFiles::new(&RealDisk, datadir, obfuscation);
    let (opened, mut buffer) = (files.open(FileKind::Blk, file), RecordBuffer::default());
    opened.expect("the file is there").read(pos, &mut buffer).expect("the block is there");
    buffer.into_bytes()
}

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
    pub fn new(seed: u64) -> Self {
        let xor_key = Some(Rng::new(seed, "xor.dat").next_u64().to_le_bytes());
        Self {
            file_size: MAX_BLOCK_FILE_LEN.into(),
            xor_key,
            index: true,
            shuffle: 16,
            preallocate: true,
            seed,
        }
    }
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
    /// Never flushed: generated files need not survive a power cut.
    files: BlockAppender<'static>,
    rng: Rng,
    waiting: Vec<GeneratedBlock>,
    entries: Vec<IndexEntry>,
    /// Undo data that waits for that of lower blocks, by height and number of the block's entry.
    undo: BTreeMap<(u32, usize), WaitingUndo>,
    next_undo: u32,
}

impl DatadirWriter {
    /// Creates the folders below `root`.
    pub fn create(root: &Path, layout: Layout) -> Result<Self, DiskError> {
        let paths = Datadir::at(root, Network::Regtest);
        let blocks = paths.blocks_dir();
        std::fs::create_dir_all(&blocks).during("create", &blocks)?;
        if let Some(key) = layout.xor_key {
            let path = blocks.join("xor.dat");
            std::fs::write(&path, key).during("write", &path)?;
        }
        let obfuscation = Obfuscation::from_key(layout.xor_key.unwrap_or_default());
        let max_file_len = u32::try_from(layout.file_size).unwrap_or(u32::MAX);
        let files = BlockFiles::new(&RealDisk, &paths, obfuscation);
        let mut files = files.append_after(Vec::new(), max_file_len);
        files.preallocate = false;
        Ok(Self {
            files,
            paths,
            rng: Rng::new(layout.seed, "file order"),
            layout,
            waiting: Vec::new(),
            entries: Vec::new(),
            undo: BTreeMap::new(),
            next_undo: 1,
        })
    }

    /// Adds the next block.
    pub fn push(&mut self, block: GeneratedBlock) -> Result<(), DiskError> {
        if block.height == 0 {
            return self.write_block(block);
        }
        self.waiting.push(block);
        if self.waiting.len() > self.layout.shuffle { self.write_any() } else { Ok(()) }
    }

    /// Writes the blocks that are still in the window, and the block index.
    pub fn finish(mut self) -> Result<(), DiskError> {
        while !self.waiting.is_empty() {
            self.write_any()?;
        }
        if self.layout.preallocate {
            self.pad_last()?;
        }
        if self.layout.index {
            self.entries.sort_unstable_by_key(|entry| entry.hash);
            let index = BlockIndex {
                entries: self.entries,
                last_file: FileNo(self.files.infos().len().saturating_sub(1) as u32),
                files: self.files.infos().to_vec(),
                ..BlockIndex::default()
            };
            write_block_index(&RealDisk, &self.paths.index_dir(), &index)?;
        }
        Ok(())
    }

    /// Pads the last files to whole chunks, with holes that take no space.
    fn pad_last(&self) -> Result<(), DiskError> {
        let (Some(info), number) = (self.files.infos().last(), self.files.infos().len()) else {
            return Ok(());
        };
        for (kind, used) in [(FileKind::Blk, info.size), (FileKind::Rev, info.undo_size)] {
            let path = self.paths.block_file_path(kind, FileNo(number as u32 - 1));
            truncate(&path, u64::from(used).next_multiple_of(chunk_len(kind))).during("extend", &path)?;
        }
        Ok(())
    }

    fn write_any(&mut self) -> Result<(), DiskError> {
        let at = self.rng.below(self.waiting.len() as u64) as usize;
        // Not `swap_remove`, so that the oldest block stays first and does not wait forever.
        let at = if self.layout.shuffle < 2 || self.rng.chance(1, 4) { 0 } else { at };
        let block = self.waiting.remove(at);
        self.write_block(block)
    }

    fn write_block(&mut self, block: GeneratedBlock) -> Result<(), DiskError> {
        let (file, data_pos) =
            self.files.append_block(Height(block.height), block.header.time, &block.bytes)?;
        let validity =
            if block.undo.is_some() { BlockStatus::VALID_SCRIPTS } else { BlockStatus::VALID_TRANSACTIONS };
        self.entries.push(IndexEntry {
            hash: block.hash,
            header: block.header,
            height: Height(block.height),
            status: BlockStatus(validity | BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS),
            tx_count: block.txs,
            file: Some(file),
            data_pos: Some(data_pos),
            undo_pos: None,
        });
        if let Some(undo) = block.undo {
            let waiting = WaitingUndo { prev: block.header.prev, undo, stale: block.stale };
            self.undo.insert((block.height, self.entries.len() - 1), waiting);
        }
        self.write_undo()
    }

    fn write_undo(&mut self) -> Result<(), DiskError> {
        while let Some(lowest) = self.undo.first_entry().filter(|lowest| lowest.key().0 <= self.next_undo) {
            let ((height, entry), WaitingUndo { prev, undo, stale }) = lowest.remove_entry();
            if !stale {
                self.next_undo = height + 1;
            }
            let entry = &mut self.entries[entry];
            let file = entry.file.unwrap_or_default();
            entry.undo_pos = Some(self.files.append_undo(file, Height(height), &prev, &undo)?);
            entry.status = BlockStatus(entry.status.0 | BlockStatus::HAVE_UNDO);
        }
        Ok(())
    }
}

impl Chain {
    /// Writes the chain as a datadir `root`, in `root/regtest`.
    pub fn write_datadir(&self, root: &Path, layout: &Layout) -> Result<(), DiskError> {
        let mut writer = DatadirWriter::create(root, layout.clone())?;
        for block in &self.blocks {
            writer.push(block.clone())?;
        }
        writer.finish()
    }
}
