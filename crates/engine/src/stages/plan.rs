//! Stage plan: everything that can be refused before a block is read.
//!
//! Opens the datadir, reads the block index (or scans the block files), links the headers to a tree, judges
//! them, chooses the chain, and sees that the files it needs are there and reach as far as the index says.
//! Which files those are follows from the method: a run that goes by hints without undo data opens no `rev`
//! file for a block up to the hints' last one.

use crate::{
    chain::{Chain, FileKind, Files},
    error::{Error, ErrorKind},
    stages::{
        existing_state::{BestBlock, Gap},
        siblings::Siblings,
    },
    tree::{ChainRequest, ChosenChain, Node, Tree},
};
use disk::{
    fs::During as _,
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, stream_block_index, stream_links},
    scan::{Scan, scan_files},
};
use rules::{ChainParams, U256};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{BlockHash, BlockTime, Height};

/// Blocks whose undo data bitcoind reads when it starts (Core `DEFAULT_CHECKBLOCKS`).
pub const CHECKED_AT_START: usize = 6;

/// What the plan says.
pub struct Plan {
    /// What will be rebuilt.
    pub chain: Chain,
    /// The sum of work of the chain.
    pub work: U256,
    /// Stored blocks on top that have no undo data.
    pub unconnected: u32,
    /// Why they cannot be rebuilt.
    pub gap: Option<Gap>,
    /// Where the best block of the old chainstate is, if it is known here.
    pub best_block: Option<BestBlock>,
    /// Without a scan: what the block index knows of each pair of files.
    pub index_files: Vec<FileInfo>,
    /// Bytes of block files to be read, about.
    pub block_bytes: u64,
    /// With a scan: the block index to be written once the chain is proven.
    pub new_index: Option<BlockIndex>,
    /// Scripts of blocks up to here need not be run.
    pub assumed_valid_to: Option<Height>,
    /// The block that should vouch for scripts, if there is no such block.
    pub unknown_assumed: Option<BlockHash>,
    /// With a scan: the last block has no blocks above it that were connected, and its undo data is that of a
    /// sibling as well. So it may be that it was never connected.
    pub tip_is_contested: bool,
    /// The undo data that bitcoind reads when it starts on the last block is not all on disk.
    pub lacks_last_undo: bool,
}

/// Makes the plan; with `scan` without the block index. `now` is for the one header rule that knows a clock;
/// Core asks it of blocks it finds by a scan, not of those in its index.
///
/// # Errors
/// As the module says: damaged or missing index, files or blocks; a chain whose headers break a rule.
pub fn plan(
    files: &Files<'_>,
    scan: bool,
    wanted: &ChainRequest<'_>,
    best_block: Option<BlockHash>,
    now: BlockTime,
    interrupt: &AtomicBool,
) -> Result<Plan, Error> {
    let params = ChainParams::of(files.network);
    let mut contested = Vec::new();
    let (mut tree, scanned, index_files) = if scan {
        let scan = scan_all(files, interrupt)?;
        let order = by_hash(&scan);
        let mut tree = tree_of_scan(files, &scan, &order, params, now)?;
        contested = Siblings::new(files, &scan, &order).settle(&mut tree, interrupt)?;
        (tree, Some((scan, order)), Vec::new())
    } else {
        let (tree, index_files) = tree_of_index(files, params)?;
        (tree, None, index_files)
    };
    let ChosenChain { branch, work, unconnected, gap, assumed_valid_to, top } = tree.choose(wanted)?;
    let unknown_assumed = wanted.assume_valid.filter(|hash| !tree.has(hash));
    let best_block = best_block.and_then(|best| tree.standing(&best, &branch, wanted.undo_from()));
    let is_contested = |number: &u32| contested.binary_search(number).is_ok();
    let tip_is_contested = branch.last() == Some(&top) && is_contested(&top);
    let new_index = scanned.map(|(scan, order)| index_of_scan(&scan, &order, &tree, &branch, is_contested));
    let lacks_last_undo = lacks_last_undo(files, &tree, &branch)?;
    let chain = tree.into_chain(branch, wanted.undo_from());
    let block_bytes = check_files(files, &chain)?;
    Ok(Plan {
        chain,
        work,
        unconnected,
        gap,
        best_block,
        index_files,
        block_bytes,
        new_index,
        assumed_valid_to,
        unknown_assumed,
        tip_is_contested,
        lacks_last_undo,
    })
}

/// Whether bitcoind would miss undo data when it starts with this branch.
fn lacks_last_undo(files: &Files<'_>, tree: &Tree<'_>, branch: &[u32]) -> Result<bool, Error> {
    // The genesis block has none.
    for &number in branch.iter().skip(1).rev().take(CHECKED_AT_START) {
        let Some((file, pos)) = tree.file(number).zip(tree.undo_pos(number)) else { return Ok(true) };
        let path = files.path(FileKind::Rev, file);
        let found = files.disk.metadata(&path).during("look at", &path)?;
        if found.is_none_or(|found| found.len <= pos.0) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn scan_all(files: &Files<'_>, interrupt: &AtomicBool) -> Result<Scan, Error> {
    let scan =
        scan_files(files.disk, files.datadir, files.obfuscation, |_| !interrupt.load(Ordering::Relaxed))?;
    if interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    Ok(scan)
}

/// Numbers of the scanned blocks, by hash; copies of a block in the order in which they lie, but those with
/// undo data first: Core writes that to the file of the copy which it knows of.
fn by_hash(scan: &Scan) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scan.blocks.len() as u32).collect();
    order.sort_unstable_by_key(|&number| {
        let block = &scan.blocks[number as usize];
        (block.hash, block.undo_pos.is_none(), number)
    });
    order
}

fn tree_of_scan<'a>(
    files: &Files<'_>,
    scan: &Scan,
    order: &[u32],
    params: &'a ChainParams,
    now: BlockTime,
) -> Result<Tree<'a>, Error> {
    let blocks = || order.iter().map(|&number| &scan.blocks[number as usize]);
    let nodes = blocks().map(|block| {
        let data = Some((block.file, block.data_pos));
        Node::new(&block.header, data, block.undo_pos, false).ok_or_else(|| {
            let detail = "a block or its undo data lies above 4 GiB, which no file of Bitcoin Core reaches";
            Error::damaged(detail).in_file(files.path(FileKind::Blk, block.file), Some(block.data_pos.0))
        })
    });
    let nodes = nodes.collect::<Result<_, Error>>()?;
    let hashes = blocks().map(|block| block.hash).collect();
    let links = |link: &mut dyn FnMut(BlockHash, BlockHash)| {
        blocks().for_each(|block| link(block.hash, block.header.prev));
        Ok(())
    };
    Tree::link(hashes, nodes, links, params, now)
}

/// Reads the index twice: blocks first, then each one's parent. A node of Core has a million of them, and
/// between the two only what is needed is kept.
pub fn tree_of_index<'a>(
    files: &Files<'_>,
    params: &'a ChainParams,
) -> Result<(Tree<'a>, Vec<FileInfo>), Error> {
    let dir = files.datadir.index_dir();
    let advise = |error| match Error::from(error) {
        error if error.kind == ErrorKind::Damaged && !error.detail.contains("--scan") => {
            let detail = format!("{}; rerun with --scan to do without the block index", error.detail);
            Error { detail, ..error }
        }
        error => error,
    };
    let (mut hashes, mut nodes, mut heights) = (Vec::new(), Vec::new(), Vec::new());
    let index = stream_block_index(files.disk, &dir, |entry| {
        let data = entry.file.zip(entry.data_pos).filter(|_| entry.status.has_data());
        let undo_pos = entry.undo_pos.filter(|_| entry.status.has_undo());
        hashes.push(entry.hash);
        heights.push(entry.height);
        // No entry has a place that is none: it would not have been decoded.
        nodes.extend(Node::new(&entry.header, data, undo_pos, entry.status.is_failed()));
    });
    let index = index.map_err(advise)?;
    if index.reindexing {
        let detail =
            "the block index is half-written: a bitcoind -reindex was interrupted; rerun with --scan";
        return Err(Error::damaged(detail).in_file(dir, None));
    }
    if hashes.is_empty() {
        return Err(Error::damaged("the block index is empty; rerun with --scan").in_file(dir, None));
    }
    let links =
        |link: &mut dyn FnMut(BlockHash, BlockHash)| stream_links(files.disk, &dir, link).map_err(advise);
    // Core does not ask what it has in its index whether it comes from the future.
    let tree = Tree::link(hashes, nodes, links, params, BlockTime(u32::MAX))?;
    if let Some((hash, height, said)) = tree.wrong_height(&heights) {
        let detail = format!(
            "the block index says that block {hash} is at height {said}, but it is at height {height}; \
             bitcoind would not start; rerun with --scan, which makes a new index"
        );
        return Err(Error::damaged(detail).in_file(dir, None));
    }
    Ok((tree, index.files))
}

/// The block index that Core would have: blocks of the chosen chain as validated, other ones as stored. Of
/// the contested ones, only those of the chain have undo data: bitcoind writes it anew for any other one that
/// it connects.
fn index_of_scan(
    scan: &Scan,
    order: &[u32],
    tree: &Tree<'_>,
    branch: &[u32],
    is_contested: impl Fn(&u32) -> bool,
) -> BlockIndex {
    let mut index = BlockIndex::default();
    for file in &scan.files {
        index.files.resize(file.file.0 as usize + 1, FileInfo::default());
        if let Some(info) = index.files.last_mut() {
            (info.size, info.undo_size) = (file.size as u32, file.undo_size as u32);
        }
        index.last_file = file.file;
    }
    for (number, height) in tree.valid() {
        let block = &scan.blocks[order[number as usize] as usize];
        let chosen = branch.get(height.0 as usize) == Some(&number);
        let undo_pos = tree.undo_pos(number).filter(|_| height.0 > 0 && (chosen || !is_contested(&number)));
        let mut status = BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS;
        status |= if chosen { BlockStatus::VALID_SCRIPTS } else { BlockStatus::VALID_TRANSACTIONS };
        status |= if undo_pos.is_some() { BlockStatus::HAVE_UNDO } else { 0 };
        if let Some(info) = index.files.get_mut(block.file.0 as usize) {
            info.add_block(height, block.header.time.0.into());
        }
        index.entries.push(IndexEntry {
            hash: block.hash,
            header: block.header,
            height,
            status: BlockStatus(status),
            tx_count: block.tx_count,
            file: Some(block.file),
            data_pos: Some(block.data_pos),
            undo_pos,
        });
    }
    index
}

/// Sees that each file is there and reaches to where its last block starts; gives the bytes to be read,
/// about.
fn check_files(files: &Files<'_>, chain: &Chain) -> Result<u64, Error> {
    let mut block_bytes = 0;
    for (file, heights) in chain.by_file() {
        let (_, blk_len) = files.open(FileKind::Blk, file)?;
        let (Some(&first), Some(&last)) = (heights.first(), heights.last()) else { continue };
        let beyond = |what: &str, height: Height, pos: u64, path, len: u64| {
            Error::damaged(format!(
                "the block index places {what} at byte {pos}, but the file has {len} bytes; the file is \
                 truncated or the index is of other files (rerun with --scan to do without the index)"
            ))
            .at_block(height, chain.block(height).hash)
            .in_file(path, Some(pos))
        };
        let last_pos = chain.block(last).data_pos.0;
        if last_pos >= blk_len {
            return Err(beyond("a block", last, last_pos, files.path(FileKind::Blk, file), blk_len));
        }
        if let Some(small) = heights.iter().find(|&&height| chain.block(height).data_pos.0 < 8) {
            return Err(position_inside_header(chain, *small, files.path(FileKind::Blk, file)));
        }
        block_bytes += last_pos - chain.block(first).data_pos.0;
        let undo = heights.iter().filter_map(|&height| Some((chain.block(height).undo_pos?.0, height)));
        if let Some((undo_pos, height)) = undo.clone().max() {
            let (_, rev_len) = files.open(FileKind::Rev, file)?;
            if undo_pos >= rev_len {
                return Err(beyond("undo data", height, undo_pos, files.path(FileKind::Rev, file), rev_len));
            }
        }
        if let Some((_, height)) = undo.min().filter(|&(pos, _)| pos < 8) {
            return Err(position_inside_header(chain, height, files.path(FileKind::Rev, file)));
        }
    }
    Ok(block_bytes)
}

/// A position that leaves no room for the frame before it.
fn position_inside_header(chain: &Chain, height: Height, path: std::path::PathBuf) -> Error {
    Error::new(ErrorKind::Damaged, "the block index places a record before byte 8; rerun with --scan")
        .at_block(height, chain.block(height).hash)
        .in_file(path, Some(0))
}
