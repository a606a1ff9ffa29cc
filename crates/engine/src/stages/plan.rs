//! Stage plan: everything that can be refused before a block is read.
//!
//! Opens the datadir, reads the block index (or scans the block files), links the headers to a tree, chooses
//! the chain, judges its headers, and sees that the files it needs are there and reach as far as the index
//! says.

use crate::{
    chain::{Chain, Files},
    error::{Error, ErrorKind},
    tree::{Choice, Node, Tree},
};
use disk::{
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, read_block_index},
    scan::{Scan, scan_files},
};
use rules::ChainParams;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{BlockHash, BlockTime, Height};

/// What the plan says.
pub struct Plan {
    /// What will be rebuilt.
    pub chain: Chain,
    /// Stored blocks on top that were never connected.
    pub unconnected: u32,
    /// Bytes of block files to be read, about.
    pub block_bytes: u64,
    /// With a scan: the block index to be written once the chain is proven.
    pub new_index: Option<BlockIndex>,
    /// Scripts of blocks up to here need not be run.
    pub assumed_valid_to: Option<Height>,
}

/// Makes the plan; with `scan` without the block index. `now` is for the one header rule that knows a clock;
/// Core asks it of blocks it finds by a scan, not of those in its index.
///
/// # Errors
/// As the module says: damaged or missing index, files or blocks; a chain whose headers break a rule.
pub fn plan(
    files: &Files<'_>,
    scan: bool,
    stop_at: Option<Height>,
    assume_valid: Option<BlockHash>,
    now: BlockTime,
    interrupt: &AtomicBool,
) -> Result<Plan, Error> {
    let params = ChainParams::of(files.network);
    let scanned = if scan { Some(scan_all(files, interrupt)?) } else { None };
    let tree = match &scanned {
        Some(scan) => Tree::link(nodes_of_scan(scan), params, now)?,
        None => Tree::link(nodes_of_index(files)?, params, BlockTime(u32::MAX))?,
    };
    let choice = tree.choose(stop_at, params, assume_valid)?;
    let new_index = scanned.map(|scan| index_of_scan(&scan, &tree, &choice));
    drop(tree);
    let median_times = median_times(&choice);
    let chain = Chain::new(choice.blocks, median_times);
    let block_bytes = check_files(files, &chain)?;
    let assumed_valid_to = choice.assumed_valid_to;
    Ok(Plan { chain, unconnected: choice.unconnected, block_bytes, new_index, assumed_valid_to })
}

fn scan_all(files: &Files<'_>, interrupt: &AtomicBool) -> Result<Scan, Error> {
    let scan =
        scan_files(files.disk, files.datadir, files.obfuscation, |_| !interrupt.load(Ordering::Relaxed))?;
    if interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    Ok(scan)
}

fn nodes_of_scan(scan: &Scan) -> Vec<Node> {
    let nodes = scan.blocks.iter().map(|block| Node {
        header: block.header,
        hash: block.hash,
        data: Some((block.file, block.data_pos)),
        undo_pos: block.undo_pos,
        tx_count: block.tx_count,
        failed: false,
    });
    nodes.collect()
}

fn nodes_of_index(files: &Files<'_>) -> Result<Vec<Node>, Error> {
    let dir = files.datadir.index_dir();
    let index = read_block_index(files.disk, &dir).map_err(|error| match Error::from(error) {
        error if error.kind == ErrorKind::Damaged && !error.detail.contains("--scan") => {
            let detail = format!("{}; rerun with --scan to do without the block index", error.detail);
            Error { detail, ..error }
        }
        error => error,
    })?;
    if index.reindexing {
        let detail =
            "the block index is half-written: a bitcoind -reindex was interrupted; rerun with --scan";
        return Err(Error::damaged(detail).in_file(dir, None));
    }
    if index.entries.is_empty() {
        return Err(Error::damaged("the block index is empty; rerun with --scan").in_file(dir, None));
    }
    let nodes = index.entries.into_iter().map(|entry| Node {
        data: entry.file.zip(entry.data_pos).filter(|_| entry.status.has_data()),
        undo_pos: entry.undo_pos.filter(|_| entry.status.has_undo()),
        tx_count: entry.tx_count,
        failed: entry.status.is_failed(),
        header: entry.header,
        hash: entry.hash,
    });
    Ok(nodes.collect())
}

/// The block index that Core would have: blocks of the chosen chain as validated, other ones as stored.
fn index_of_scan(scan: &Scan, tree: &Tree, choice: &Choice) -> BlockIndex {
    let mut index = BlockIndex::default();
    for file in &scan.files {
        index.files.resize(file.file.0 as usize + 1, FileInfo::default());
        if let Some(info) = index.files.last_mut() {
            (info.size, info.undo_size) = (file.size as u32, file.undo_size as u32);
        }
        index.last_file = file.file;
    }
    for (node, height) in tree.valid() {
        let chosen = choice.blocks.get(height.0 as usize).is_some_and(|block| block.hash == node.hash);
        let undo_pos = node.undo_pos.filter(|_| height.0 > 0);
        let mut status = BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS;
        status |= if chosen { BlockStatus::VALID_SCRIPTS } else { BlockStatus::VALID_TRANSACTIONS };
        status |= if undo_pos.is_some() { BlockStatus::HAVE_UNDO } else { 0 };
        let Some((file, data_pos)) = node.data else { continue };
        if let Some(info) = index.files.get_mut(file.0 as usize) {
            info.add_block(height, node.header.time.0.into());
        }
        index.entries.push(IndexEntry {
            hash: node.hash,
            header: node.header,
            height,
            status: BlockStatus(status),
            tx_count: node.tx_count,
            file: Some(file),
            data_pos: Some(data_pos),
            undo_pos,
        });
    }
    index
}

/// Median time past of each chosen block.
fn median_times(choice: &Choice) -> Vec<BlockTime> {
    let times: Vec<BlockTime> = choice.headers.iter().map(|header| header.time).collect();
    let last_of = |index: usize| times.get(index.saturating_sub(rules::header::MEDIAN_TIME_SPAN - 1)..=index);
    (0..times.len()).map(|index| rules::median_time_past(last_of(index).unwrap_or_default())).collect()
}

/// Sees that each file is there and reaches to where its last block starts; gives the bytes to be read,
/// about.
fn check_files(files: &Files<'_>, chain: &Chain) -> Result<u64, Error> {
    let mut block_bytes = 0;
    for (file, heights) in chain.by_file() {
        let (_, blk_len) = files.open_blk(file)?;
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
            return Err(beyond("a block", last, last_pos, files.blk_path(file), blk_len));
        }
        if let Some(small) = heights.iter().find(|&&height| chain.block(height).data_pos.0 < 8) {
            return Err(frameless(chain, *small, files.blk_path(file)));
        }
        block_bytes += last_pos - chain.block(first).data_pos.0;
        let undo = heights.iter().filter_map(|&height| Some((chain.block(height).undo_pos?.0, height)));
        if let Some((undo_pos, height)) = undo.clone().max() {
            let (_, rev_len) = files.open_rev(file)?;
            if undo_pos >= rev_len {
                return Err(beyond("undo data", height, undo_pos, files.rev_path(file), rev_len));
            }
        }
        if let Some((_, height)) = undo.min().filter(|&(pos, _)| pos < 8) {
            return Err(frameless(chain, height, files.rev_path(file)));
        }
    }
    Ok(block_bytes)
}

/// A position that leaves no room for the frame before it.
fn frameless(chain: &Chain, height: Height, path: std::path::PathBuf) -> Error {
    Error::new(ErrorKind::Damaged, "the block index places a record before byte 8; rerun with --scan")
        .at_block(height, chain.block(height).hash)
        .in_file(path, Some(0))
}
