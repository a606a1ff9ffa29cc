//! Stage plan: all checks that are possible before a block is read.
//!
//! Opens the datadir, reads the block index (or scans the block files), links the headers to a tree,
//! validates them, chooses the chain, and checks that the files it needs exist and are as long as the index
//! requires. Which files are needed depends on the method: `rev` files are not if undo data can be made.
//! Otherwise, a rebuild with hints and without undo data opens none for blocks up to the hints' last one.

use crate::{
    blocks::{
        chain::Chain,
        files::{Files, info_mut},
    },
    plan::{
        best_block::BestBlock,
        chain_request::ChainRequest,
        second_chainstate::{CHECKED_AT_START, Obstacle, SecondChainstate},
        siblings::{Scanned, Siblings},
        tree::{Choice, ChosenChain, Node, Tree},
    },
};
use api::{
    error::{Error, ErrorKind},
    event::{BlockMeter, Event, EventSink},
    note::Warning,
    options::Reconsider,
    remedy::Remedy,
    subject::Subject,
};
use coins::SipKey;
use disk::{
    blk::RECORD_HEADER_LEN,
    block_files::used_bytes,
    datadir::FileKind,
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry, IndexRows},
    made_undo::UsedBefore,
    node_indexes::check_tables,
    scan::{Scan, ScannedBlock, scan_files},
    undo::CHECKSUM_LEN,
};
use rules::{ChainParams, pow::has_proof_of_work};
use std::{
    collections::HashMap,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::Disk;
use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Height};

/// Number of blocks whose parents are looked for in all blocks of their files.
const MAX_ORPHANS: usize = 8;

pub struct Plan {
    pub chain: Chain,
    pub choice: Choice,
    /// Whether the caller chose the last block.
    pub stops_as_asked: bool,
    /// The best block of the old chainstate, if the tree contains it.
    pub best_block: Option<BestBlock>,
    /// Without a scan: the block index's entry for each pair of files.
    pub index_files: Vec<FileInfo>,
    /// Approximate bytes of block files to be read.
    pub block_bytes: u64,
    /// With a scan: the block index to write once the chain is proven, with its entries in the order of
    /// their hashes.
    pub new_index: Option<BlockIndex>,
    /// The assumed-valid block that was asked for, if the tree does not contain it.
    pub unknown_assumed: Option<BlockHash>,
    /// With a scan: no connected block descends from the last block, and the undo data of the last block also
    /// matches a sibling, so it may never have been connected.
    pub tip_is_contested: bool,
    /// If undo data is made: the lowest block from which on nothing shows that the blocks of the chain were
    /// ever connected, or they are marked as invalid. None of them is below the best block of the old
    /// chainstate, or, without a mark, counts as connected and has undo data of its own.
    pub never_connected_from: Option<Height>,
    /// Whether any of the undo data that bitcoind reads when it starts at the last block is not on disk.
    pub lacks_last_undo: bool,
    /// `blk` files that do not exist, and in which the block index places blocks outside the chain. bitcoind
    /// would not start.
    pub missing_files: Vec<FileNo>,
    /// Why bitcoind would not start with the result beside the second chainstate.
    pub obstacle: Option<Obstacle>,
    /// Without a scan: whether the block index says that block files have been deleted.
    pub is_pruned: bool,
    /// What this job has in common with those for other ranges, if the chain is cut to one.
    pub shared: Option<SharedPlan>,
}

/// What a rebuild can do after it has found a block that is invalid unless a lower one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterSuspect {
    /// It ends below that block: the result is no worse than the existing chainstate.
    EndBelow(Height),
    /// The existing chainstate has blocks of another branch. The blocks of this one are connected to it in
    /// order, up to that block.
    Connect(Height),
}

/// What all jobs that check ranges of one chain share.
#[derive(Clone, Copy)]
pub struct SharedPlan {
    /// Digest of the plan of ranges.
    pub digest: [u8; 32],
    /// Key of the hashes of coinbase txids.
    pub coinbase_key: SipKey,
}

impl Plan {
    /// Bytes of this many blocks of the chain, which are about as large as the others.
    pub fn bytes_of(&self, blocks: u64) -> u64 {
        self.block_bytes / self.chain.block_count() as u64 * blocks
    }

    /// Counts this many blocks of the chain for progress events.
    pub fn meter<'a>(&self, blocks: usize, sink: &'a dyn EventSink) -> BlockMeter<'a> {
        BlockMeter::new(sink, blocks as u32, self.bytes_of(blocks as u64))
    }

    pub fn up_to(&self, height: Height) -> Self {
        Self {
            chain: self.chain.up_to(height),
            choice: self.choice.clone(),
            block_bytes: self.bytes_of(u64::from(height.0) + 1),
            new_index: None,
            index_files: Vec::new(),
            missing_files: Vec::new(),
            best_block: None,
            obstacle: None,
            ..*self
        }
    }

    /// The plan of a range of a chain that was chosen elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if files of the range do not exist, or are too short; any I/O error.
    pub fn of_range(
        files: &Files<'_>,
        chain: Chain,
        shared: SharedPlan,
        choice: Choice,
    ) -> Result<Self, Error> {
        Ok(Self {
            block_bytes: check_files(files, &chain, "the plan")?,
            chain,
            choice,
            stops_as_asked: true,
            best_block: None,
            index_files: Vec::new(),
            new_index: None,
            unknown_assumed: None,
            tip_is_contested: false,
            never_connected_from: None,
            lacks_last_undo: false,
            missing_files: Vec::new(),
            obstacle: None,
            is_pruned: false,
            shared: Some(shared),
        })
    }

    /// What a rebuild can do after it has found a block of the chain that is invalid unless a lower one is.
    /// `None` if only the rebuild can decide: the existing chainstate has that block too, or cannot leave its
    /// branch, because a pruned node has deleted the undo data.
    pub fn after_suspect(&self, height: Height) -> Option<AfterSuspect> {
        let best = self.best_block.as_ref();
        let has_other_blocks = |best: &BestBlock| best.fork < best.known.height;
        match best.is_some_and(has_other_blocks) {
            _ if height == Height(0) || best.is_some_and(|best| best.fork >= height) => None,
            true => best.is_some_and(|best| best.can_be_left).then_some(AfterSuspect::Connect(height)),
            false => Some(AfterSuspect::EndBelow(height)),
        }
    }

    /// Reports that a mark is gone, if there was one that was not believed.
    pub fn note_unmarked(&self, sink: &dyn EventSink) {
        if let Some(height) = self.choice.reconsidered {
            let hash = self.chain.block(height).hash;
            sink.event(Event::Warning(Warning::MarkDropped { height, hash }));
        }
    }

    /// Returns the number of blocks of the chain from `from` on whose undo data is known to be missing.
    pub fn blocks_without_undo(&self, from: Height) -> u64 {
        let heights = (from.0.max(1)..=self.chain.tip_height().0).map(Height);
        heights.filter(|&height| self.chain.block(height).undo_pos.is_none()).count() as u64
    }
}

/// Makes the plan. `second` is the chainstate beside which bitcoind is to start with the result. `now` is for
/// the one header rule that depends on the time; Core applies it to blocks found by a scan, not to those in
/// its index.
///
/// # Errors
/// Damaged or missing index, files or blocks; a chain whose headers break a rule.
pub fn plan(
    files: &Files<'_>,
    request: &ChainRequest<'_>,
    second: Option<&SecondChainstate>,
    now: BlockTime,
    interrupt: &AtomicBool,
) -> Result<Plan, Error> {
    let Found { mut tree, scanned, contested, index_files, is_pruned, departed } =
        find(files, request.scan, now, interrupt).map_err(|error| unless_pruned(files, error))?;
    let chosen = tree.choose(request).map_err(|error| unless_pruned(files, error));
    let ChosenChain { branch, mut choice, last_connected } = chosen?;
    choice.departed = departed;
    let unknown_assumed = request.assume_valid.filter(|hash| !tree.has(hash));
    let best_block = request.preferred.and_then(|best| tree.locate(&best, &branch, request.undo_from()));
    let is_contested = |number: &u32| contested.binary_search(number).is_ok();
    let tip_is_contested = branch.last() == Some(&last_connected) && is_contested(&last_connected);
    let never_connected_from = request.makes_undo.then(|| {
        let with_undo =
            branch.iter().rposition(|number| tree.undo_pos(*number).is_some() && !is_contested(number));
        let fork = best_block.map_or(0, |best| best.fork.0);
        let with_undo = with_undo.unwrap_or(0) as u32;
        let below_marked = choice.reconsidered.map_or(u32::MAX, |Height(height)| height.saturating_sub(1));
        Height(fork.max(with_undo.min(below_marked)) + 1)
    });
    let new_index =
        scanned.map(|scanned| index_of_scan(&scanned, &tree, &branch, is_contested, files.params));
    let lacks_last_undo = lacks_last_undo(files, &tree, &branch)?;
    let existing = files.datadir.blk_files(files.disk)?;
    let missing_files: Vec<_> = tree.files().into_iter().filter(|file| !existing.contains(file)).collect();
    let is_lost = |number: u32| {
        let hash = tree.hash(number);
        tree.data_pos(number).is_some_and(|(file, _)| missing_files.contains(&file))
            || request.damage.is_some_and(|damage| damage.has_block(&hash) || damage.has_undo(&hash))
    };
    let obstacle = second.map(|second| second.obstacle(files, &tree, &branch, is_lost));
    let obstacle = obstacle.transpose()?.flatten();
    let mut chain = tree.into_chain(branch, if request.makes_undo { Height(0) } else { request.undo_from() });
    if request.makes_undo {
        drop_unusable_undo(files, &mut chain, (!request.scan).then_some(index_files.as_slice()))?;
    }
    let block_bytes = match request.may_lack_files {
        true => chain.file_bytes(),
        false => check_files(files, &chain, "the block index")?,
    };
    Ok(Plan {
        stops_as_asked: request.stop_at_height.is_some(),
        chain,
        choice,
        best_block,
        index_files,
        block_bytes,
        new_index,
        unknown_assumed,
        tip_is_contested,
        never_connected_from,
        lacks_last_undo,
        missing_files,
        obstacle,
        is_pruned,
        shared: None,
    })
}

/// Adapts an error to a pruned node, whose missing blocks only a download brings back.
fn unless_pruned(files: &Files<'_>, error: Error) -> Error {
    let is_pruned = || {
        links_of_index(files.disk, &files.datadir.index_dir(), files.params)
            .is_ok_and(|(_, index, _)| index.pruned)
    };
    match error.kind {
        ErrorKind::Damaged if is_pruned() => {
            let mut error = error.without_remedies().with_remedies([Remedy::Unprune]);
            if error.file.is_none() && error.height.is_none() {
                let detail = "this node was pruned, and this needs all blocks from the genesis block on";
                error.detail = format!("{detail}, also for results of higher blocks only");
            }
            error
        }
        _ => error,
    }
}

/// The blocks of a datadir, before a chain is chosen.
struct Found {
    tree: Tree<'static>,
    /// With a scan: what it found.
    scanned: Option<Scanned>,
    /// With a scan: the blocks whose undo data could be that of a sibling.
    contested: Vec<u32>,
    /// Without a scan: the block index's entry for each pair of files.
    index_files: Vec<FileInfo>,
    /// Without a scan: whether the block index says that block files have been deleted.
    is_pruned: bool,
    /// Number of blocks of another chain ([`disk::departed`]), which are left out.
    departed: u32,
}

fn find(files: &Files<'_>, scan: bool, now: BlockTime, interrupt: &AtomicBool) -> Result<Found, Error> {
    if !scan {
        let (tree, index) = tree_of_index(files)?;
        let BlockIndex { files: index_files, pruned: is_pruned, departed, .. } = index;
        return Ok(Found { tree, scanned: None, contested: Vec::new(), index_files, is_pruned, departed });
    }
    let scan = scan_all(files, interrupt)?;
    let departed = scan.departed;
    let mut scanned = Scanned::new(scan);
    let mut tree = tree_of_scan(files, &scanned.blocks, now)?;
    tree.prefer_sound_copies(files, &mut scanned.blocks)?;
    let contested = Siblings::new(files, &scanned).assign(&mut tree, interrupt)?;
    let (scanned, index_files, is_pruned) = (Some(scanned), Vec::new(), false);
    Ok(Found { tree, scanned, contested, index_files, is_pruned, departed })
}

/// A stored block outside the chain with the most work.
pub struct StaleBlock {
    pub hash: BlockHash,
    pub height: Height,
    pub file: FileNo,
    /// Its position there.
    pub data_pos: ByteOffset,
}

/// Whether the block index says that block files have been deleted by pruning.
pub fn is_pruned(files: &Files<'_>) -> Result<bool, Error> {
    Ok(IndexRows::open(files.disk, &files.datadir.index_dir())?.is_pruned()?)
}

/// Returns the chain with the most work, whether its blocks are on disk or not, and all stored blocks outside
/// it. Blocks of the chain that are not on disk have no position.
///
/// # Errors
/// Damaged or missing index; [`ErrorKind::Usage`] for that of a pruned node, also with a scan, or without the
/// block to reconsider; any I/O error.
pub fn all_stored(
    files: &Files<'_>,
    scan: bool,
    reconsider: Option<Reconsider>,
    now: BlockTime,
    interrupt: &AtomicBool,
) -> Result<(Chain, Vec<StaleBlock>), Error> {
    // A scan finds no damage in what is left. It needs no index, so this one may be damaged or missing.
    if is_pruned(files).unwrap_or_default() {
        let detail = "this node was pruned: blocks are missing that are not damaged";
        return Err(Error::usage(detail)
            .in_file(files.datadir.index_dir(), None)
            .with_remedies([Remedy::Unprune]));
    }
    let mut tree = find(files, scan, now, interrupt)?.tree;
    // A scan believes no mark.
    reconsider.filter(|_| !scan).map(|which| tree.reconsider(which)).transpose()?;
    let branch = tree.best_stored_chain();
    let outside = tree.linked().filter(|(number, height)| branch.get(height.0 as usize) != Some(number));
    let stale = outside.filter_map(|(number, height)| {
        let (file, data_pos) = tree.data_pos(number)?;
        Some(StaleBlock { hash: tree.hash(number), height, file, data_pos })
    });
    let stale = stale.collect();
    Ok((tree.into_chain(branch, Height(0)), stale))
}

/// Reports whether bitcoind would lack undo data when it starts with this branch.
fn lacks_last_undo(files: &Files<'_>, tree: &Tree<'_>, branch: &[u32]) -> Result<bool, Error> {
    // The genesis block has no undo data.
    for &number in branch.iter().skip(1).rev().take(CHECKED_AT_START) {
        let data = tree.data_pos(number);
        let Some(((file, _), pos)) = data.zip(tree.undo_pos(number)) else { return Ok(true) };
        if files.len(FileKind::Rev, file)? <= pos.0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Scans the block files. If a block is found whose parent is not, the files in which that may be hidden,
/// by a false frame that ends at a record, are scanned again, and all their blocks are read.
fn scan_all(files: &Files<'_>, interrupt: &AtomicBool) -> Result<Scan, Error> {
    let mut read = Vec::new();
    loop {
        let goes_on = |_| !interrupt.load(Ordering::Relaxed);
        let scan = scan_files(files.disk, files.datadir, files.obfuscation, goes_on, &read)?;
        Error::check_interrupt(interrupt)?;
        if !read.is_empty() {
            return Ok(scan);
        }
        read = files_with_hidden_blocks(files.params, &scan);
        if read.is_empty() {
            return Ok(scan);
        }
    }
}

/// The files with the first blocks whose parents were not found, and each file before: the parents come
/// shortly before their children.
fn files_with_hidden_blocks(params: &ChainParams, scan: &Scan) -> Vec<FileNo> {
    let mut hashes: Vec<BlockHash> = scan.blocks.iter().map(|block| block.hash).collect();
    hashes.sort_unstable();
    let is_orphan = |block: &&ScannedBlock| {
        block.hash != params.genesis_hash
            && hashes.binary_search(&block.header.prev).is_err()
            && has_proof_of_work(params, &block.hash, block.header.bits)
    };
    let orphans = scan.blocks.iter().filter(is_orphan).take(MAX_ORPHANS);
    let with_hidden = orphans.flat_map(|block| [block.file, FileNo(block.file.0.saturating_sub(1))]);
    with_hidden.collect()
}

fn tree_of_scan(files: &Files<'_>, blocks: &[ScannedBlock], now: BlockTime) -> Result<Tree<'static>, Error> {
    let nodes = blocks.iter().map(|block| {
        let data = Some((block.file, block.data_pos));
        Node::new(&block.header, data, block.undo_pos, false).ok_or_else(|| {
            let detail = "a block or its undo data lies above 4 GiB, which no file of Bitcoin Core reaches";
            Error::damaged(detail).in_file(files.path(FileKind::Blk, block.file), Some(block.data_pos.0))
        })
    });
    let nodes = nodes.collect::<Result<_, Error>>()?;
    let hashes = blocks.iter().map(|block| block.hash).collect();
    let links = |link: &mut dyn FnMut(BlockHash, BlockHash)| {
        blocks.iter().for_each(|block| link(block.hash, block.header.prev));
        Ok(())
    };
    Tree::link(hashes, nodes, links, files.params, now)
}

/// Reads the index twice: first the blocks, then each block's parent. A node has a million of them, and
/// between the two passes only what is needed is kept. The returned index has no entries.
///
/// # Errors
/// A damaged table, also one without rows that are needed; any I/O error.
pub fn tree_of_index(files: &Files<'_>) -> Result<(Tree<'static>, BlockIndex), Error> {
    let dir = files.datadir.index_dir();
    let (tree, index, heights) = links_of_index(files.disk, &dir, files.params)?;
    if index.reindexing {
        let detail = "the block index is incomplete: a bitcoind -reindex was interrupted";
        return Err(damaged_index(&dir, detail));
    }
    if let Some((hash, height, recorded)) = tree.wrong_height(&heights) {
        let detail = format!(
            "the block index places block {hash} at height {recorded}, but it is at height {height}; \
             bitcoind would not start"
        );
        return Err(damaged_index(&dir, detail));
    }
    // bitcoind ends when it merges a damaged table, also if all rows there are superseded.
    check_tables(files.disk, &dir, u64::MAX, |_, _| false).map_err(of_index)?;
    Ok((tree, index))
}

fn of_index(error: impl Into<Error>) -> Error {
    match error.into() {
        error if error.kind == ErrorKind::Damaged => error.about(Subject::BlockIndex),
        error => error,
    }
}

fn damaged_index(dir: &Path, detail: impl Into<String>) -> Error {
    Error::damaged(detail).in_file(dir, None).about(Subject::BlockIndex)
}

/// The tree of a block index, all but the blocks of the index, and the heights that it records.
type IndexLinks<'a> = (Tree<'a>, BlockIndex, Vec<Height>);

/// Like [`tree_of_index`], also if heights are wrong, which do not matter for which block follows which, or
/// if a `-reindex` was interrupted.
pub fn links_of_index<'a>(
    disk: &dyn Disk,
    dir: &Path,
    params: &'a ChainParams,
) -> Result<IndexLinks<'a>, Error> {
    let (mut hashes, mut nodes, mut heights) = (Vec::new(), Vec::new(), Vec::new());
    let rows = IndexRows::open(disk, dir).map_err(of_index)?;
    let index = rows.stream(|entry| {
        let undo_pos = entry.undo_pos.filter(|_| entry.status.has_undo());
        hashes.push(entry.hash);
        heights.push(entry.height);
        // `IndexRows::stream` reports no invalid position, so no entry is dropped here.
        let node = Node::new(&entry.header, entry.place(), undo_pos, entry.status.is_failed());
        nodes.extend(node.map(|node| node.with_mark(&entry)));
    });
    let index = index.map_err(of_index)?;
    if hashes.is_empty() {
        return Err(damaged_index(dir, "the block index is empty"));
    }
    let links = |link: &mut dyn FnMut(BlockHash, BlockHash)| rows.stream_links(link).map_err(of_index);
    // Core does not check whether headers in its index are from the future.
    let tree = Tree::link(hashes, nodes, links, params, BlockTime(u32::MAX)).map_err(of_index)?;
    Ok((tree, index, heights))
}

/// Makes the block index that Core would have: blocks of the chosen chain as validated, those that this job
/// has found invalid as such, others as stored. Among contested blocks, only those of the chain have undo
/// data: bitcoind writes it again for any other one that it connects. The rest of it stays: the node's
/// indexes may be on another branch, which they cannot leave without it.
fn index_of_scan(
    scanned: &Scanned,
    tree: &Tree<'_>,
    branch: &[u32],
    is_contested: impl Fn(&u32) -> bool,
    params: &ChainParams,
) -> BlockIndex {
    let (mut index, failed) = (BlockIndex::default(), tree.failed());
    for file in &scanned.files {
        let info = info_mut(&mut index.files, file.file);
        (info.size, info.undo_size) = (file.size as u32, file.undo_size as u32);
    }
    for (number, height) in tree.valid() {
        let block = &scanned.blocks[number as usize];
        if tree.data_pos(number).is_none() {
            index.entries.push(IndexEntry::of_header(block.hash, block.header, height));
            continue;
        }
        let chosen = branch.get(height.0 as usize) == Some(&number);
        let undo_pos = tree.undo_pos(number).filter(|_| height.0 > 0 && (chosen || !is_contested(&number)));
        let mut status = BlockStatus::stored(height >= params.segwit_height);
        // Core connects the genesis block without marking it.
        if chosen && height.0 > 0 {
            status = status.validated();
        }
        status.0 |= if undo_pos.is_some() { BlockStatus::HAVE_UNDO } else { 0 };
        status.0 |= if failed.binary_search(&block.hash).is_ok() { BlockStatus::FAILED_VALID } else { 0 };
        info_mut(&mut index.files, block.file).add_block(height, block.header.time.0.into());
        // Not a later file without blocks, behind which bitcoind would leave a gap.
        index.last_file = index.last_file.max(block.file);
        index.entries.push(IndexEntry {
            hash: block.hash,
            header: block.header,
            height,
            status,
            tx_count: block.tx_count,
            file: Some(block.file),
            data_pos: Some(block.data_pos),
            undo_pos,
        });
    }
    index
}

/// Drops the positions of undo data that is not in its file, or, if the index's entries for files are given,
/// not within the bytes that the index records as used: bitcoind overwrites what follows them, and so does
/// undo data that is made.
fn drop_unusable_undo(files: &Files<'_>, chain: &mut Chain, infos: Option<&[FileInfo]>) -> Result<(), Error> {
    let mut ends = HashMap::new();
    let before = UsedBefore::read(files.disk, files.datadir)?;
    for (number, heights) in chain.by_file() {
        let len = files.len(FileKind::Rev, number)?;
        let used = infos.map(|infos| used_bytes(infos, FileKind::Rev, number));
        let mut end = used.map_or(len, |used| len.min(used.into())).min(before.limit(number));
        let positions = heights.iter().filter_map(|&height| Some(chain.block(height).undo_pos?.0));
        // Records do not overlap, so only the last one can end later.
        if end < len
            && let Some(last) = positions.filter(|&pos| pos < end).max()
        {
            let record_len = files.record_len(FileKind::Rev, number, last)?;
            if last + u64::from(record_len) + CHECKSUM_LEN as u64 > end {
                end = last;
            }
        }
        ends.insert(number, end);
    }
    chain.retain_undo(|file, pos| {
        pos >= RECORD_HEADER_LEN as u64 && ends.get(&file).is_some_and(|&end| pos < end)
    });
    Ok(())
}

/// Checks that each file exists and is long enough for its last block to start in it; returns the approximate
/// number of bytes to read. `source` says where the positions of blocks are from.
fn check_files(files: &Files<'_>, chain: &Chain, source: &str) -> Result<u64, Error> {
    for (file, heights) in chain.by_file() {
        for kind in [FileKind::Blk, FileKind::Rev] {
            let placed = heights.iter().filter_map(|&height| {
                let block = chain.block(height);
                let pos = if kind == FileKind::Blk { Some(block.data_pos) } else { block.undo_pos };
                Some((pos?.0, height))
            });
            let Some((last, of_last)) = placed.clone().max() else { continue };
            let (_, len) = files.open(kind, file)?;
            let (height, pos, detail) = match placed.min() {
                _ if last >= len => {
                    let what = if kind == FileKind::Blk { "a block" } else { "undo data" };
                    let detail = format!(
                        "{source} places {what} at byte {last}, but the file has {len} bytes; the file is \
                         truncated, or {source} belongs to other files"
                    );
                    (of_last, last, detail)
                }
                Some((first, height)) if first < RECORD_HEADER_LEN as u64 => {
                    (height, 0, "the block index places a record before byte 8".to_owned())
                }
                _ => continue,
            };
            return Err(Error::damaged(detail)
                .at_block(height, chain.block(height).hash)
                .in_file(files.path(kind, file), Some(pos))
                .about(Subject::BlockIndex));
        }
    }
    Ok(chain.file_bytes())
}
