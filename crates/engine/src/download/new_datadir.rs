//! Creates a datadir that contains only the genesis block, as bitcoind does when it first starts.

use crate::{
    api::{error::Error, event::EventSink, machine::random, options::ChainOptions},
    stages::commit::{self, Destination},
};
use disk::{
    blk::{RECORD_HEADER_LEN, write_record},
    datadir::{Datadir, FileKind},
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, read_block_index, write_block_index},
    lock::{DatadirLock, LockMode},
    xor::read_or_create_block_obfuscation,
};
use rules::ChainParams;
use std::path::Path;
use vfs::{AtomicFile, Disk, During as _, dir_of};
use wire::{ByteOffset, FileNo, Height};

/// Creates the datadir, unless it has block files. Each step is complete after a power
/// cut or did not happen, and the block file, which is what makes it a datadir, comes last.
///
/// # Errors
/// Any I/O error; [`crate::ErrorKind::Environment`] if another process uses the datadir;
/// [`crate::ErrorKind::Damaged`] if it has undo files or a block index, but no block files.
pub fn create(disk: &dyn Disk, options: &ChainOptions, sink: &dyn EventSink) -> Result<(), Error> {
    let no_blocks = match Datadir::open(disk, &options.location()) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let (datadir, params) = (Datadir::of(&options.location()), options.params);
    let (blocks, index_dir) = (datadir.blocks_dir(), datadir.index_dir());
    create_dirs(disk, &options.datadir, dir_of(&index_dir))?;
    if let Some(home) = &options.blocksdir {
        create_dirs(disk, home, &blocks)?;
    }
    let _lock = DatadirLock::take(disk, &datadir, LockMode::Change)?;
    commit::recover(disk, &datadir, sink)?;
    let [blk, rev] = [FileKind::Blk, FileKind::Rev].map(|kind| datadir.block_files(disk, kind));
    if !(blk?.is_empty() && rev?.is_empty()) {
        return Err(no_blocks.into());
    }
    let index = genesis_index(params);
    if disk.exists(&index_dir).during("look at", &index_dir)? {
        if read_block_index(disk, &index_dir)? != index {
            return Err(no_blocks.into());
        }
    } else {
        let target = Destination::of_index(disk, datadir.clone(), false)?;
        let commit = || {
            write_block_index(disk, target.building(), &index)?;
            target.commit(sink)
        };
        commit().inspect_err(|_| target.discard())?;
    }
    let obfuscation = read_or_create_block_obfuscation(disk, &blocks, random()?)?;
    let (path, mut record) = (datadir.blk_path(FileNo(0)), Vec::new());
    write_record(&mut record, params.magic, &params.genesis_block());
    obfuscation.apply(&mut record, 0);
    Ok(AtomicFile::write(disk, path.with_extension("dat.peregrine"), &path, &record)?)
}

/// Creates the directories down to that of the block files, whose names a power cut does not take back.
fn create_dirs(disk: &dyn Disk, root: &Path, blocks: &Path) -> Result<(), Error> {
    let above_root = match disk.exists(root).during("look at", root)? {
        true => None,
        false => root.parent().filter(|above| !above.as_os_str().is_empty()),
    };
    disk.create_dir_all(blocks).during_creation(blocks)?;
    let above_blocks = blocks.ancestors().skip(1).take_while(|dir| dir.starts_with(root));
    for dir in above_blocks.chain(above_root) {
        disk.sync_dir(dir).during("sync", dir)?;
    }
    Ok(())
}

/// The block index of a datadir that contains only the genesis block.
fn genesis_index(params: &ChainParams) -> BlockIndex {
    let mut info =
        FileInfo { size: (RECORD_HEADER_LEN + params.genesis_block().len()) as u32, ..FileInfo::default() };
    info.add_block(Height(0), params.genesis.time.0.into());
    let genesis = IndexEntry {
        hash: params.genesis_hash,
        header: params.genesis,
        height: Height(0),
        status: BlockStatus::stored(params.segwit_height == Height(0)),
        tx_count: 1,
        file: Some(FileNo(0)),
        data_pos: Some(ByteOffset(RECORD_HEADER_LEN as u64)),
        undo_pos: None,
    };
    BlockIndex { entries: vec![genesis], files: vec![info], ..BlockIndex::default() }
}
