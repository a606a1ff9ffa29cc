//! Datadirs whose chainstate is behind the stored blocks, and updates of them.

use crate::prelude::*;
use disk::block_files::BlockFiles;
use engine::update::UpdateReport;
use testkit::datadir::DatadirWriter;

/// How an update is run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub threads: usize,
    /// Memory for changed coins, in bytes; `None` for the default.
    pub bytes: Option<usize>,
}

/// A commit after each block, on one thread.
pub const EACH_BLOCK: How = How { threads: 1, bytes: Some(1) };
/// One commit.
pub const AT_ONCE: How = How { threads: 4, bytes: None };

/// Options of an update up to a height.
pub fn update_options(root: &Path, how: How, stop_at: Option<u32>) -> ChainOptions {
    let mut options = ChainOptions::new(root, Network::Regtest, ScriptChecks::LeftOut);
    options.threads = NonZeroUsize::new(how.threads).unwrap();
    options.hooks.join_bytes = how.bytes;
    ChainOptions { stop_at_height: stop_at.map(Height), ..options }
}

/// Updates, on a disk whose syncs cost nothing.
pub fn update(options: &ChainOptions) -> Result<UpdateReport, Error> {
    engine::update(&FaultDisk::healthy(), options, unwatched())
}

/// A datadir of these blocks in this order, with a chainstate at `height`; blocks above it were never
/// connected.
pub fn behind<'b>(blocks: impl Iterator<Item = &'b GeneratedBlock>, height: u32, layout: &Layout) -> TempDir {
    let dir = scratch();
    let mut writer = DatadirWriter::create(dir.path(), layout.clone()).unwrap();
    for block in blocks {
        let undo = block.undo.clone().filter(|_| block.height <= height);
        writer.push(GeneratedBlock { undo, ..block.clone() }).unwrap();
    }
    writer.finish().unwrap();
    run(&up_to(options(dir.path()), height)).unwrap();
    dir
}

pub fn write_in_order(root: &Path, blocks: &[GeneratedBlock]) {
    let layout = Layout { shuffle: 0, file_size: 4 << 20, ..super::layout() };
    let mut writer = DatadirWriter::create(root, layout).unwrap();
    blocks.iter().for_each(|block| writer.push(block.clone()).unwrap());
    writer.finish().unwrap();
}

/// Puts another block in the place of one; those above it follow.
pub fn replace(blocks: &mut [GeneratedBlock], at: usize, block: GeneratedBlock) {
    blocks[at] = block;
    let onto = blocks[at].hash;
    rebase(blocks[at + 1..].iter_mut(), onto);
}

/// Asserts that a chainstate has this best block and the coins of the model.
pub fn assert_coins(root: &Path, hash: BlockHash, expected: &ModelStats, what: &str) {
    let found = stats(root, Network::Regtest).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((found.best_block, found.txouts), (hash, expected.txouts), "{what}");
    assert_eq!(found.hash_serialized_3, expected.hash_serialized_3, "{what}");
}

/// Appends blocks to the files of a datadir, as a node stores them when it receives them.
pub fn store<'b>(root: &Path, blocks: impl Iterator<Item = &'b GeneratedBlock>) {
    let datadir = Datadir::at(root, Network::Regtest);
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    let disk = FaultDisk::healthy();
    let add = |index: &mut BlockIndex| {
        let known = std::mem::take(&mut index.files);
        let mut files = BlockFiles::new(&disk, &datadir, obfuscation).append_after(known, 32 << 10);
        files.preallocate = false;
        for block in blocks {
            let height = Height(block.height);
            let (file, pos) = files.append_block(height, block.header.time, &block.bytes).unwrap();
            let of_header = IndexEntry::of_header(block.hash, block.header, height);
            let (status, file, data_pos) = (BlockStatus::stored(true), Some(file), Some(pos));
            index.entries.push(IndexEntry { status, tx_count: block.txs, file, data_pos, ..of_header });
        }
        files.flush().unwrap();
        (index.files, index.last_file) = (files.infos().to_vec(), FileNo(files.infos().len() as u32 - 1));
    };
    edit_index(&datadir.index_dir(), add).unwrap();
}
