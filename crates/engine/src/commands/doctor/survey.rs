//! Compares the block index with the lengths of the block and undo files, and with the chainstate.

use super::{
    advise::ScanPrecondition,
    diagnosis::{ChainstatePosition, ChainstateState, DatabaseState, FilesState, IndexState, ScriptWork},
};
use api::error::Error;
use chain::{
    blocks::files::Files,
    plan::{best_block::BestBlock, tree::Tree},
};
use disk::{
    blk::BlockRecord,
    block_files::{RecordBuffer, used_bytes},
    chainstate::read_heads,
    datadir::{Datadir, FileKind},
    index::{FileInfo, read_block_index},
};
use std::collections::{BTreeMap, BTreeSet};
use vfs::{Disk, During as _};
use wire::{BlockHash, ByteOffset, FileNo, Height};

/// Lengths of the existing files of one kind, in bytes, by number.
type Lengths = BTreeMap<u32, u64>;

/// The existing block and undo files.
pub struct FileLengths {
    /// Lengths of the `blk` files.
    pub blk: Lengths,
    /// Lengths of the `rev` files.
    pub rev: Lengths,
}

impl FileLengths {
    /// Measures all files.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn measure(disk: &dyn Disk, datadir: &Datadir) -> Result<Self, Error> {
        let of_kind = |kind: FileKind| -> Result<Lengths, Error> {
            let mut lengths = Lengths::new();
            for file in datadir.block_files(disk, kind)? {
                let path = datadir.block_file_path(kind, file);
                let found = disk.metadata(&path).during("look at", &path)?;
                lengths.extend(found.filter(|found| !found.is_dir).map(|found| (file.0, found.len)));
            }
            Ok(lengths)
        };
        Ok(Self { blk: of_kind(FileKind::Blk)?, rev: of_kind(FileKind::Rev)? })
    }

    /// Returns both kinds, `blk` first.
    pub const fn each(&self) -> [&Lengths; 2] {
        [&self.blk, &self.rev]
    }

    /// Reports what a scan of the block files can find. `lacks_genesis`: whether the first one, if it is
    /// there, does not have the genesis block.
    pub fn scan_precondition(&self, lacks_genesis: bool) -> ScanPrecondition {
        match self.blk.last_key_value() {
            None => ScanPrecondition::NoFiles,
            Some(_) if !self.blk.contains_key(&0) => ScanPrecondition::LacksGenesis,
            Some((&last, _)) if last as usize + 1 > self.blk.len() => ScanPrecondition::HasGaps,
            Some(_) if lacks_genesis => ScanPrecondition::LacksGenesis,
            Some(_) => ScanPrecondition::Complete,
        }
    }
}

/// Number of block files in which the chainstate's best block is looked for: they have the blocks that
/// bitcoind stores ahead of it ([`DOWNLOAD_WINDOW`](chain::plan::existing_state::DOWNLOAD_WINDOW)).
const LAST_FILES: usize = 24;

/// Whether a block is in one of the last block files, as far as they can be read.
pub fn is_in_last_files(files: &Files<'_>, hash: &BlockHash) -> bool {
    in_last_files(files, |number| is_in_file(files, number, |it| it.hash == *hash).unwrap_or(true))
}

/// Whether the block that an error is about lies in one of the last block files at another place than that
/// of the error, as if the block index were that of other files.
pub fn is_elsewhere(files: &Files<'_>, error: &Error) -> bool {
    in_last_files(files, |number| {
        let is_named = error.file.as_ref() == Some(&files.path(FileKind::Blk, number));
        let is_there = |it: &BlockRecord| is_named && error.offset == Some(it.data_pos.0);
        let is_it = |it: &BlockRecord| Some(it.hash) == error.block_hash && !is_there(it);
        is_in_file(files, number, is_it).unwrap_or(false)
    })
}

fn in_last_files(files: &Files<'_>, is_in: impl Fn(FileNo) -> bool) -> bool {
    let Ok(numbers) = files.datadir.blk_files(files.disk) else { return true };
    numbers.into_iter().rev().take(LAST_FILES).any(is_in)
}

/// Whether the genesis block is in the first block file, which bitcoind begins with it, as far as that file
/// can be read.
pub fn has_genesis(files: &Files<'_>) -> bool {
    is_in_file(files, FileNo(0), |it| it.hash == files.params.genesis_hash).unwrap_or(true)
}

/// Whether neither database has a block, and the only file none but the genesis block, as when a first start
/// was killed: bitcoind begins again (Core `LoadGenesisBlock`), and overwrites no other block.
pub fn has_only_genesis(files: &Files<'_>, lengths: &FileLengths) -> bool {
    if lengths.blk.len() > 1 || !lengths.blk.contains_key(&0) {
        return false;
    }
    let Files { disk, datadir, params, .. } = *files;
    let dir = datadir.index_dir();
    let is_empty = match read_block_index(disk, &dir) {
        Ok(index) => index.entries.is_empty(),
        Err(_) => !disk.exists(&dir.join("CURRENT")).unwrap_or(true),
    };
    let is_other = |it: &BlockRecord| it.hash != params.genesis_hash;
    is_empty
        && read_heads(disk, &datadir.chainstate_dir()).is_ok_and(|heads| heads.is_empty())
        && !is_in_file(files, FileNo(0), is_other).unwrap_or(true)
}

fn is_in_file(
    files: &Files<'_>,
    number: FileNo,
    is_it: impl Fn(&BlockRecord) -> bool,
) -> Result<bool, Error> {
    let mut is_found = false;
    files.each_block(number, 0, |record| is_found |= is_it(record))?;
    Ok(is_found)
}

/// Counts the blocks beyond the bytes that the block index records as used, and names the files that could
/// not be read completely. When it starts, a pruned node deletes the files below the last one that have
/// nothing in use (Core `ScanAndUnlinkAlreadyPrunedFiles`); sooner or later, every node overwrites what is
/// beyond the bytes in use.
pub fn count_unknown(
    files: &Files<'_>,
    infos: &[FileInfo],
    lengths: &Lengths,
    is_pruned: bool,
    state: &mut FilesState,
) {
    for (&number, &len) in lengths {
        let used = u64::from(used_bytes(infos, FileKind::Blk, FileNo(number)));
        if len <= used {
            continue;
        }
        let before = state.unknown_blocks;
        let departed = files.each_block(FileNo(number), used, |record| {
            state.unknown_blocks += 1;
            state.unknown_bytes += u64::from(record.size);
        });
        match departed {
            Ok(departed) => state.departed += departed,
            Err(_) => state.unread.push(FileKind::Blk.file_name(FileNo(number))),
        }
        let has_some = state.unknown_blocks > before;
        let is_deleted = is_pruned && used == 0 && (number as usize) < infos.len().saturating_sub(1);
        state.unknown_files += u32::from(has_some);
        state.deleted_files += u32::from(has_some && is_deleted);
    }
}

/// What the block index amounts to, compared with files and chainstate.
pub struct Survey {
    /// The index, as far as its entries are concerned.
    pub index: IndexState,
    /// The block files and the undo files.
    pub files: [FilesState; 2],
    /// The blocks whose scripts a rebuild runs.
    pub scripts: Option<ScriptWork>,
    /// Those above the blocks that the block index marks as checked; `None` if it marks none.
    pub unchecked: Option<ScriptWork>,
}

/// The records of one kind of file, as the block index places them.
struct Records<'a> {
    kind: FileKind,
    infos: &'a [FileInfo],
    lengths: &'a Lengths,
    /// For each file that is missing or shorter than the index records: no record beyond this position is
    /// whole.
    last_whole: BTreeMap<u32, u64>,
    state: FilesState,
    flawed: BTreeSet<FileNo>,
}

impl<'a> Records<'a> {
    fn new(
        files: &Files<'_>,
        (kind, lengths): (FileKind, &'a Lengths),
        infos: &'a [FileInfo],
        records: impl Iterator<Item = (FileNo, ByteOffset)> + Clone,
    ) -> Self {
        let used = |file| u64::from(used_bytes(infos, kind, file));
        let len = |file: FileNo| lengths.get(&file.0).copied().unwrap_or_default();
        let is_short = |&(file, pos): &(FileNo, ByteOffset)| len(file) < used(file) || len(file) <= pos.0;
        let mut last_whole: BTreeMap<u32, u64> =
            records.clone().filter(is_short).map(|(file, _)| (file.0, 0)).collect();
        for (file, pos) in records.filter(|&(file, pos)| pos.0 < len(file)) {
            if let Some(last) = last_whole.get_mut(&file.0) {
                *last = pos.0.max(*last);
            }
        }
        // The last record that begins in such a file may end beyond it.
        for (&file, last) in last_whole.iter_mut().filter(|(_, last)| **last > 0) {
            let mut buffer = RecordBuffer::default();
            let is_whole = files
                .open_records(kind, FileNo(file))
                .is_ok_and(|open| open.read(ByteOffset(*last), &mut buffer).is_ok());
            *last -= u64::from(!is_whole);
        }
        let state = FilesState::of_lengths(lengths);
        Self { kind, infos, lengths, last_whole, state, flawed: BTreeSet::new() }
    }

    fn has(&self, file: FileNo, pos: ByteOffset) -> bool {
        self.last_whole.get(&file.0).is_none_or(|&last| pos.0 <= last)
    }

    /// Counts a block whose record is recorded, or should be.
    fn count(
        &mut self,
        record: Option<(FileNo, ByteOffset)>,
        height: Height,
        (hash, is_stale): (BlockHash, bool),
    ) {
        match record {
            Some((file, pos)) if self.has(file, pos) => {
                match (pos.0 < u64::from(used_bytes(self.infos, self.kind, file)), self.kind) {
                    (true, _) => return,
                    (false, FileKind::Blk) => {
                        self.state.beyond_use += 1;
                        return;
                    }
                    (false, FileKind::Rev) => self.state.unrecorded += 1,
                }
            }
            Some((file, _)) => {
                self.state.lost += 1;
                self.state.lost_stale += u32::from(is_stale);
                self.flawed.insert(file);
            }
            None => self.state.unrecorded += 1,
        }
        if self.state.first.is_none_or(|(first, _)| height < first) {
            self.state.first = Some((height, hash));
        }
    }

    fn finish(mut self) -> FilesState {
        let is_missing = |file: &FileNo| !self.lengths.contains_key(&file.0);
        let (missing, short): (Vec<FileNo>, Vec<FileNo>) = self.flawed.into_iter().partition(is_missing);
        let names = |files: Vec<FileNo>| files.iter().map(|file| self.kind.file_name(*file)).collect();
        (self.state.missing, self.state.short) = (names(missing), names(short));
        self.state
    }
}

/// The blocks of a branch above a height; all of them if there is none.
fn script_work(tree: &Tree<'_>, branch: &[u32], above: Option<Height>, blk: &Lengths) -> ScriptWork {
    // For each file: the number of blocks, and of those above.
    let mut files: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for (height, &number) in (0..).map(Height).zip(branch) {
        let Some((file, _)) = tree.data_pos(number) else { continue };
        let (all, run) = files.entry(file.0).or_default();
        *all += 1;
        *run += u32::from(above.is_none_or(|above| height > above));
    }
    let len = |file: &u32| blk.get(file).copied().unwrap_or_default();
    let bytes = files.iter().map(|(file, &(all, run))| len(file) / u64::from(all) * u64::from(run));
    let (bytes, blocks) = (bytes.sum(), files.values().map(|(_, run)| run).sum());
    ScriptWork { above, blocks, bytes }
}

/// The position of the chainstate's best block, which is `best` if it is known, relative to blocks that are
/// stored up to this height.
fn position(best: Option<BestBlock>, stored: Height) -> ChainstatePosition {
    let Some(BestBlock { known, fork, .. }) = best else { return ChainstatePosition::NotInIndex };
    if fork.0 < known.height.0 {
        ChainstatePosition::OnBranch { fork, stored }
    } else if stored.0 <= known.height.0 {
        ChainstatePosition::AtTip
    } else {
        ChainstatePosition::Behind(stored.0 - known.height.0)
    }
}

/// Compares the tree of a block index with the files and the chainstate's best block, whose height and
/// position are set. In a pruned datadir, and below a snapshot, blocks that the index does not place are not
/// missing.
pub fn survey(
    files: &Files<'_>,
    tree: &mut Tree<'_>,
    infos: &[FileInfo],
    lengths: &FileLengths,
    chainstate: &mut ChainstateState,
    assumed: Option<BlockHash>,
    may_lack_blocks: bool,
) -> Survey {
    let branch = tree.best_headers();
    let tree = &*tree;
    let best: Option<BestBlock> =
        chainstate.best_block.and_then(|hash| tree.locate(&hash, &branch, Height(0)));
    let undo_of = |number: u32| Some((tree.data_pos(number)?.0, tree.undo_pos(number)?));
    let with_undo = branch.iter().rposition(|&number| undo_of(number).is_some());
    let connected = match best {
        Some(best) => best.fork,
        None if may_lack_blocks => Height(0),
        None => Height(with_undo.unwrap_or(0) as u32),
    };
    // bitcoind starts there, also if another branch has more work.
    let own = match best {
        Some(best) => tree.branch_to(&best.known.hash),
        None => branch.iter().take(connected.0 as usize + 1).copied().collect(),
    };
    let linked: Vec<(u32, Height)> = tree.linked().collect();
    let stored = linked.iter().filter_map(|&(number, _)| tree.data_pos(number));
    let mut block_files = Records::new(files, (FileKind::Blk, &lengths.blk), infos, stored.clone());
    let undo = linked.iter().filter_map(|&(number, _)| undo_of(number));
    let mut undo_files = Records::new(files, (FileKind::Rev, &lengths.rev), infos, undo);
    for &(number, height) in &linked {
        let record = tree.data_pos(number);
        let is_of = |branch: &[u32]| branch.get(height.0 as usize) == Some(&number);
        let should_be = is_of(&own);
        let is_stale = !should_be && !is_of(&branch);
        let block = (tree.hash(number), is_stale);
        if record.is_some() || should_be && !may_lack_blocks {
            block_files.count(record, height, block);
        }
        // The genesis block has no undo data.
        if should_be && height.0 > 0 && record.is_some() {
            undo_files.count(undo_of(number), height, block);
        }
    }
    let is_stored =
        |number: &u32| tree.data_pos(*number).is_some_and(|(file, pos)| block_files.has(file, pos));
    let above = branch.iter().skip(connected.0 as usize + 1).take_while(|number| is_stored(number)).count();
    let stored_height = Height(connected.0 + above as u32);
    chainstate.height = best.map(|best| best.known.height);
    chainstate.position = chainstate.best_block.map(|_| position(best, stored_height));
    let above = branch.iter().rposition(|&number| Some(tree.hash(number)) == assumed);
    let above = above.map(|height| Height(height as u32));
    let checked_to = tree.checked_to(&branch).filter(|&height| Some(height) > above);
    let index = IndexState {
        blocks: stored.count() as u32,
        headers: linked.len() as u32,
        header_height: Height(branch.len().saturating_sub(1) as u32),
        stored_height,
        state: DatabaseState::Sound,
        ..IndexState::default()
    };
    Survey {
        index,
        files: [block_files.finish(), undo_files.finish()],
        scripts: Some(script_work(tree, &branch, above, &lengths.blk)),
        unchecked: checked_to.map(|height| script_work(tree, &branch, Some(height), &lengths.blk)),
    }
}
