//! Creates a datadir that contains only the genesis block, as bitcoind does when it first starts.

use api::{error::Error, event::EventSink, machine::random, options::ChainOptions, remedy::Remedy};
use chain::{
    blocks::files::{Files, obfuscation},
    commit::replace_index,
    given_blocks::write_genesis,
    plan::indexes::SetAside,
    session::lock_for_change,
};
use disk::{
    blk::{RECORD_HEADER_LEN, write_record},
    chainstate::read_best_block,
    datadir::{Datadir, FileKind},
    index::{
        BlockIndex, BlockStatus, FileInfo, IndexEntry, find_height, read_block_index, write_block_index,
    },
    lock::{DatadirLock, LockMode},
    scan::for_each_block,
    xor::read_or_create_block_obfuscation,
};
use rules::{ChainParams, pow};
use vfs::{Disk, During as _, dir_of};
use wire::{ByteOffset, FileNo, Height};

/// Creates the datadir, unless it has block files. Each step is complete after a power cut or did not happen,
/// and the block index comes last: bitcoind makes it if there is none, and does not start if it places a
/// block in a file that is missing. `has_sources`: blocks will be taken from other files, so undo files and a
/// block index may exist without block files. Before anything is written, `check_indexes` says which indexes
/// are set aside: they outlive the blocks.
///
/// # Errors
/// Any I/O error, and errors of these [kinds](api::error::ErrorKind): `Environment` if another process uses
/// the datadir; `Damaged` if it has undo files or a block index, but no block files; `Usage` if its
/// chainstate is that of another chain, or if the indexes are refused.
pub fn create(
    disk: &dyn Disk,
    options: &ChainOptions,
    has_sources: bool,
    check_indexes: impl FnOnce(&Files<'_>) -> Result<SetAside, Error>,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    let (datadir, params) = (Datadir::of(disk, &options.location())?, options.params);
    refuse_other_chainstate(disk, &datadir, params)?;
    let no_blocks = match Datadir::open(disk, &options.location()) {
        Ok(found) => return complete(disk, &found, params, sink),
        Err(error) => error,
    };
    let (blocks, index_dir) = (datadir.blocks_dir(), datadir.index_dir());
    let obfuscation = Default::default();
    let files = &Files { disk, datadir: &datadir, obfuscation, params, verifier: None, awaited: None };
    let has_index = || disk.exists(&index_dir).during("look at", &index_dir);
    let aside = if has_index()? { SetAside::default() } else { check_indexes(files)? };
    for dir in [dir_of(&index_dir), &blocks] {
        disk.create_dir_all(dir).during_creation(dir)?;
    }
    let _lock = lock_for_change(disk, &datadir, sink)?;
    let [blk, rev] = [FileKind::Blk, FileKind::Rev].map(|kind| datadir.block_files(disk, kind));
    if !(blk?.is_empty() && (rev?.is_empty() || has_sources)) {
        return Err(no_blocks.into());
    }
    let (index, is_new) = (genesis_index(params), !has_index()?);
    if is_new {
        // If the run ended behind this, its block file would hide from the next one that they are left over.
        aside.apply(files, sink)?;
    } else if !has_sources && read_block_index(disk, &index_dir)? != index {
        // With sources, the blocks that it places in files will be restored.
        return Err(no_blocks.into());
    }
    let obfuscation = read_or_create_block_obfuscation(disk, &blocks, random()?)?;
    write_genesis(disk, params, obfuscation, &datadir.blk_path(FileNo(0)))?;
    if is_new { commit_index(disk, &datadir, &index, sink) } else { Ok(()) }
}

/// Refuses the chainstate of a chain with less proof of work, before anything is written beside it: a rebuild
/// would refuse to replace it, but not before all blocks are there.
fn refuse_other_chainstate(
    disk: &dyn Disk,
    datadir: &Datadir,
    params: &'static ChainParams,
) -> Result<(), Error> {
    let dir = datadir.chainstate_dir();
    // A chainstate that cannot be read is rebuilt.
    let best = read_best_block(disk, &dir).ok().flatten();
    let other = best.filter(|best| !pow::can_have_proof_of_work(params, best));
    let Some(best) = other else { return Ok(()) };
    let detail = format!(
        "this is the chainstate of another chain: its best block {best} has too little proof of work for a \
         block of {}; nothing was changed",
        params.network
    );
    Err(Error::usage(detail).in_file(dir, None).with_remedies([Remedy::MoveAway]))
}

/// Writes the block index of a datadir that bitcoind began and had not written to its databases when it was
/// killed: its block file has only the genesis block. bitcoind starts there too.
pub fn complete(
    disk: &dyn Disk,
    datadir: &Datadir,
    params: &'static ChainParams,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    let index_dir = datadir.index_dir();
    // A database that does not open is not empty.
    let is_empty = |index: Result<BlockIndex, _>| index.is_ok_and(|index| index.entries.is_empty());
    if find_height(disk, &index_dir, &params.genesis_hash).map_or(true, |found| found.is_some())
        || !is_empty(read_block_index(disk, &index_dir))
        || !matches!(read_best_block(disk, &datadir.chainstate_dir()), Ok(None))
        || datadir.blk_files(disk)? != [FileNo(0)]
        || !datadir.block_files(disk, FileKind::Rev)?.is_empty()
    {
        return Ok(());
    }
    let _lock = DatadirLock::take(disk, datadir, LockMode::Change)?;
    let key = obfuscation(disk, datadir, params, 1)?;
    let mut first = vec![0; RECORD_HEADER_LEN + params.genesis_block().len()];
    let path = datadir.blk_path(FileNo(0));
    let file = disk.open(&path).during("open for reading", &path)?;
    if file.read_exact_at(&mut first, 0).is_err() {
        return Ok(());
    }
    key.apply(&mut first, 0);
    let mut record = Vec::new();
    write_record(&mut record, params.magic, &params.genesis_block());
    let mut blocks = 0;
    for_each_block(disk, datadir, key, FileNo(0), ByteOffset(0), false, |_| blocks += 1)?;
    if first != record || blocks != 1 {
        return Ok(());
    }
    commit_index(disk, datadir, &genesis_index(params), sink)
}

fn commit_index(
    disk: &dyn Disk,
    datadir: &Datadir,
    index: &BlockIndex,
    sink: &dyn EventSink,
) -> Result<(), Error> {
    replace_index(disk, datadir, false, |target| {
        write_block_index(disk, target.building(), index)?;
        target.commit(sink, || ()).map(drop)
    })
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
