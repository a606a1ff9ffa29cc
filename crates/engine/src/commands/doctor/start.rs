//! What keeps bitcoind from starting as it should: causes outside the databases, an error of a database in
//! its log, and damage to what it reads when it starts.

use super::advice::Advice;
use super::diagnosis::{DatabaseState, DatadirState, IndexSetting, LockState, NodeSettings, StartFault};
use super::indexes::{FoundIndex, IndexStanding, common_len};
use super::log::LastStart;
use super::survey::is_elsewhere;
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::ChainOptions,
    remedy::Remedy,
    size::HumanSize,
    stage::Stage,
};
use chain::{
    blocks::{
        chain::{BlockPosition, Chain},
        files::Files,
    },
    plan::{
        best_block::can_replay,
        existing_state::DOWNLOAD_WINDOW,
        second_chainstate::{CHECKED_AT_START, SecondChainstate},
        tree::Tree,
    },
};
use digest::sha256::sha256d;
use disk::{
    block_files::used_bytes,
    chainstate::{ChainstateReader, read_heads},
    datadir::{Datadir, FileKind},
    index::BlockIndex,
    node_indexes::{IndexKind, check_table},
};
use pipeline::{
    job::{damage_survey::BlockSurvey, memory::affordable_threads, now, tip::Tip},
    stages::{read::BlockReader, undo_survey::UndoState, walk::BlockWalk},
};
use rules::header::MAX_FUTURE_BLOCK_TIME;
use std::{
    ops::Range,
    path::{Path, PathBuf},
};
use vfs::Disk;
use wire::{BlockHash, BlockTime, Height};

/// The largest number of components of the path of a table in the directory of a network:
/// `indexes/blockfilter/basic/db/000005.ldb`.
const TABLE_DEPTH: usize = 5;

/// Free disk space with which bitcoind starts and goes on, in bytes: with half of it, it only starts (Core
/// `CheckDiskSpace`, `AppInitMain`).
const MIN_FREE_BYTES: u64 = 100 << 20;

/// Files that bitcoind opens when it starts, in the directory of the network.
const OPENED: [&str; 7] = [
    ".lock",
    "banlist.json",
    "blocks/index/LOCK",
    "chainstate/LOCK",
    "debug.log",
    "peers.dat",
    "settings.json.tmp",
];

/// Longest `peers.dat` that is read, in bytes: some ten times what bitcoind can know.
const MAX_PEERS_LEN: u64 = 64 << 20;

/// Finds what keeps bitcoind from starting: first what keeps Peregrine from working too.
pub fn faults(
    disk: &dyn Disk,
    datadir: &Datadir,
    settings: &NodeSettings,
    state: &DatadirState,
    at_start: Option<StartFault>,
) -> Vec<StartFault> {
    let mut found = Vec::new();
    if let LockState::Unsupported(error) = &state.lock {
        let advice = Advice::ProvideLocks { directory: state.dir.clone() };
        found.push(StartFault { error: error.clone(), advice });
    }
    let [index, chainstate] = [datadir.index_dir(), datadir.chainstate_dir()];
    let mut dirs = [&state.dir, &state.blocks_dir, &index, &chainstate].into_iter();
    if let Some(dir) = dirs.find(|dir| disk.is_read_only(dir).unwrap_or_default()) {
        let detail = "the file system is mounted read-only, as after an error of the disk";
        let error = Error::environment(detail).in_file(dir, None);
        found.push(StartFault { error, advice: Advice::CheckDisk });
    }
    found.extend([&state.dir, &state.blocks_dir].into_iter().find_map(|directory| {
        let free = disk.free_space(directory).ok().filter(|free| *free < MIN_FREE_BYTES)?;
        let detail = format!("the disk is almost full: {} are free", HumanSize(free));
        let error = Error::environment(detail).in_file(directory, None);
        Some(StartFault { error, advice: Advice::FreeSpace { directory: directory.clone() } })
    }));
    let (time, clock) = (state.chainstate.time.unwrap_or_default().0, now().0);
    if u64::from(time) > u64::from(clock) + MAX_FUTURE_BLOCK_TIME {
        let hours = (time - clock).div_ceil(60 * 60);
        let detail = format!("the chainstate's best block is {hours} hours ahead of this machine's clock");
        let error = Error::environment(detail);
        found.push(StartFault { error, advice: Advice::CorrectClock });
    }
    if let Some(error) = unusable_file(disk, datadir) {
        let path = error.file.clone().unwrap_or_default();
        found.push(StartFault { error, advice: Advice::MoveAway { path } });
    }
    found.extend(settings.faults.iter().cloned());
    found.extend(settings.indexes.iter().filter_map(|setting| of_index(setting, state)));
    found.extend(at_start);
    if let Some(text) = unexplained_error(state) {
        let error = Error::damaged(text).in_file(datadir.net_dir().join("debug.log"), None);
        found.push(StartFault { error, advice: Advice::LookDeeper });
    }
    if found.is_empty() && state.is_sound() {
        found.extend(of_end_error(disk, datadir, &state.start.last));
    }
    found
}

/// Finds a file with which bitcoind does not start: a directory in its place, or damaged addresses of peers.
fn unusable_file(disk: &dyn Disk, datadir: &Datadir) -> Option<Error> {
    let opened = OPENED.map(|name| datadir.net_dir().join(name)).into_iter();
    let mut opened = opened.chain([datadir.blocks_dir().join(".lock")]);
    let is_dir = |path: &PathBuf| disk.metadata(path).is_ok_and(|found| found.is_some_and(|it| it.is_dir));
    if let Some(path) = opened.find(is_dir) {
        let detail = "a directory is in the place of this file, without which bitcoind does not start";
        return Some(Error::damaged(detail).in_file(path, None));
    }
    let path = datadir.net_dir().join("peers.dat");
    let peers = disk.read(&path, MAX_PEERS_LEN).ok()?;
    // The magic, addresses, and the SHA-256d of both (Core `DeserializeDB`).
    let is_sound = peers
        .split_last_chunk::<32>()
        .is_some_and(|(contents, hash)| contents.starts_with(&datadir.magic()) && sha256d(contents) == *hash);
    let detail = "the addresses of peers are damaged, so bitcoind does not start; without this file, it asks \
                  for new ones";
    (!is_sound).then(|| Error::damaged(detail).in_file(path, None))
}

/// The error with which bitcoind's last start ended, which nothing explains, if nothing was changed since; or
/// one of a database, though all can be read.
fn of_end_error(disk: &dyn Disk, datadir: &Datadir, last: &LastStart) -> Option<StartFault> {
    let log = datadir.net_dir().join("debug.log");
    let logged = modified(disk, &log);
    let [blocks, settings] = [datadir.blocks_dir(), datadir.net_dir().join("settings.json")];
    let mut changed = [datadir.net_dir(), &blocks, &settings].into_iter().chain(last.conf.as_deref());
    let ended = last.end_error.as_ref().filter(|_| !changed.any(|path| modified(disk, path) > logged));
    let of_database = last.database_error.as_ref().filter(|(_, table)| table.is_none());
    let text = of_database.map(|(text, _)| text).or(ended)?;
    let detail = format!("the last start ended with an error, whose cause may still be there: {text}");
    let remedy = of_database.map(|_| Remedy::ReindexByScan);
    let error = Error::environment(detail).in_file(log, None).with_remedies(remedy);
    Some(StartFault { error, advice: Advice::StartBitcoind })
}

/// When a file or a directory was changed last; `None` if it is not there, or cannot be looked at.
fn modified(disk: &dyn Disk, path: &Path) -> Option<i64> {
    disk.metadata(path).ok().flatten().map(|found| found.modified)
}

/// What is advised if something is damaged that bitcoind reads when it starts.
struct StartAdvice {
    blocks: Advice,
    undo: Advice,
    /// For undo data of blocks that are not connected: where the block index places some, bitcoind writes
    /// none (Core `WriteBlockUndo`).
    undo_above: Advice,
    chainstate: Advice,
}

/// What bitcoind reads when it starts: it completes an interrupted flush, checks the last blocks of each
/// chainstate, and connects those that are stored above (Core `ReplayBlocks`, `CVerifyDB::VerifyDB`,
/// `ActivateBestChain`).
pub struct ReadAtStart<'a> {
    pub files: &'a Files<'a>,
    pub tree: &'a Tree<'a>,
    /// Without entries.
    pub index: &'a BlockIndex,
    pub second: Option<&'a SecondChainstate>,
    pub options: &'a ChainOptions,
    pub watch: Watch<'a>,
}

impl ReadAtStart<'_> {
    /// Returns what is wrong with it; `headers` are the numbers of the blocks with the most work.
    ///
    /// # Errors
    /// Any I/O error that is not about one block or the coins; an interrupt.
    pub fn fault(&self, headers: &[u32]) -> Result<Option<StartFault>, Error> {
        let path = self.files.datadir.chainstate_dir();
        let dir = &path.clone();
        let undo = if self.index.pruned { Advice::StartWithoutUndo } else { Advice::MakeUndo };
        let (blocks, undo_above, chainstate) = match self.second {
            // Nothing is repaired beside it, but bitcoind makes the other one anew.
            Some(_) => (Advice::MoveSnapshotAway, Advice::MoveSnapshotAway, Advice::MoveAway { path }),
            // `sync` relies on a chainstate that opens, and on what the block index says of its blocks.
            None if self.index.pruned => (Advice::BitcoindReindex, Advice::Update, Advice::MoveAway { path }),
            None => (Advice::Repair, Advice::Update, Advice::Reindex),
        };
        let advice = &StartAdvice { blocks, undo, undo_above, chainstate };
        let heads = read_heads(self.files.disk, dir).unwrap_or_default();
        let lacking = heads.first().and_then(|best| self.of_witnesses(best, &advice.blocks));
        if lacking.is_some() {
            return Ok(lacking);
        }
        // Above the snapshot's block, the second one goes on: alone, if the other one has come to it.
        let base = self.second.and_then(SecondChainstate::base);
        let is_left = heads.iter().eq(base.as_ref());
        let to_base = base.map(|base| self.tree.branch_to(&base));
        let found = match self.of_chainstate(dir, to_base.as_deref().unwrap_or(headers), advice)? {
            None => self.of_coins(dir, &advice.chainstate)?,
            found => found.filter(|_| !is_left),
        };
        let Some(second) = self.second.filter(|_| found.is_none()) else { return Ok(found) };
        let [blocks, undo, undo_above, chainstate] = [(); 4].map(|()| Advice::MoveSnapshotAway);
        self.of_chainstate(&second.dir, headers, &StartAdvice { blocks, undo, undo_above, chainstate })
    }

    /// The same for the blocks of the chainstate in `dir`, and those of the branch `target` above it.
    fn of_chainstate(
        &self,
        dir: &Path,
        target: &[u32],
        advice: &StartAdvice,
    ) -> Result<Option<StartFault>, Error> {
        let Self { files, tree, .. } = *self;
        // One that does not open is reported elsewhere.
        let heads = read_heads(files.disk, dir).unwrap_or_default();
        let branch = |at: usize| heads.get(at).map_or_else(Vec::new, |hash| tree.branch_to(hash));
        let (own, old) = (branch(0), branch(1));
        if own.is_empty() {
            return Ok(None);
        }
        let mut replayed = own.len();
        if let [new, before] = heads[..] {
            replayed = common_len(&own, &old);
            if !can_replay(files, new, before)? {
                let detail =
                    "bitcoind was stopped while it wrote the chainstate, and lacks blocks to complete that";
                return Ok(Some(start_fault(Error::damaged(detail).in_file(dir, None), &advice.chainstate)));
            }
        }
        let (last, fork) = (own.len().saturating_sub(CHECKED_AT_START), common_len(&own, target));
        let is_stored = |number: &&u32| tree.data_pos(**number).is_some();
        let ahead = target.iter().skip(fork).take(DOWNLOAD_WINDOW as usize).take_while(is_stored).count();
        for (branch, heights, of_block, of_undo, is_connected) in [
            (&own[..], last.min(replayed)..own.len(), &advice.blocks, &advice.undo, true),
            (&old[..], replayed.min(old.len())..old.len(), &advice.chainstate, &advice.chainstate, false),
            (target, fork..fork + ahead, &advice.blocks, &advice.undo_above, false),
        ] {
            let found = self.of_blocks(branch, heights, (of_block, of_undo), is_connected)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Reads the blocks of a branch at these heights, and their undo data. Returns what is wrong with the
    /// lowest.
    fn of_blocks(
        &self,
        branch: &[u32],
        heights: Range<usize>,
        (of_block, of_undo): (&Advice, &Advice),
        is_connected: bool,
    ) -> Result<Option<StartFault>, Error> {
        if heights.is_empty() {
            return Ok(None);
        }
        let (files, chain) = (self.files, &self.chain(branch, &heights));
        // The flush of a large cache has thousands of blocks.
        let is_long = heights.len() > CHECKED_AT_START;
        let watch = if is_long { self.watch } else { self.watch.without_events() };
        watch.sink.event(Event::Started(Stage::Check));
        let reader = BlockReader::new(chain, files);
        let walk = BlockWalk { reader, threads: affordable_threads(self.options), bytes_total: 0, watch };
        // Median times are not known here.
        let BlockSurvey { damaged, undo } = BlockSurvey::read(&walk)?;
        if let Some((_, error)) = damaged.into_iter().next() {
            return Ok(Some(start_fault(error, of_block)));
        }
        let is_flawed = |&height: &Height| match undo.state(height) {
            UndoState::Sound => false,
            UndoState::Damaged => true,
            // Otherwise, it was counted before, or is made when the block is connected. Core does not read
            // the undo data of a deleted block.
            UndoState::Missing => is_connected && self.index.pruned && chain.was_stored(height),
        };
        let mut flawed = (heights.start as u32..heights.end as u32).map(Height).filter(is_flawed).peekable();
        let Some(&height) = flawed.peek() else { return Ok(None) };
        let block = chain.block(height);
        let detail = "the undo data is missing, not that of this block, or cannot be read";
        let error = Error::damaged(detail)
            .at_block(height, block.hash)
            .in_file(files.path(FileKind::Rev, block.file), block.undo_pos.map(|pos| pos.0));
        let is_short = |height| {
            let file = chain.block(height).file;
            let used = u64::from(used_bytes(&self.index.files, FileKind::Rev, file));
            files.len(FileKind::Rev, file).is_ok_and(|len| len < used)
        };
        // An update appends to no file that lacks bytes in use.
        let advice = if *of_undo != Advice::Update || !flawed.any(is_short) {
            of_undo
        } else if self.index.pruned {
            &Advice::StartWithoutUndo
        } else {
            &Advice::Reindex
        };
        Ok(Some(start_fault(error, advice)))
    }

    /// Disconnects the last blocks of the chainstate in `dir`, in memory. Returns what is wrong with its
    /// coins. Blocks and undo data are sound.
    fn of_coins(&self, dir: &Path, advice: &Advice) -> Result<Option<StartFault>, Error> {
        let Ok(mut coins) = ChainstateReader::open(self.files.disk, dir) else { return Ok(None) };
        coins.keep_open(self.options.memory_bytes / 2);
        let branch = self.tree.branch_to(&coins.best_block());
        let heights = branch.len().saturating_sub(CHECKED_AT_START).max(1)..branch.len();
        if heights.is_empty() {
            return Ok(None);
        }
        let chain = self.chain(&branch, &heights);
        let mut tip = Tip::open(self.files, coins, &self.index.files)?;
        for height in heights.rev().map(|height| Height(height as u32)) {
            Error::check_interrupt(self.watch.interrupt)?;
            if !chain.was_stored(height) {
                break;
            }
            if let Err(error) = tip.disconnect(&chain, height) {
                return Ok(Some(start_fault(error, advice)));
            }
        }
        Ok(None)
    }

    /// What keeps bitcoind from starting if the block index does not say of all blocks up to `best` that they
    /// came with their witnesses (Core `NeedsRedownload`). A scan looks at the blocks.
    fn of_witnesses(&self, best: &BlockHash, of_blocks: &Advice) -> Option<StartFault> {
        let own = self.tree.branch_to(best);
        let height = self.tree.first_without_witnesses(own.iter().copied().zip((0..).map(Height)))?;
        let detail = "the block index does not say that this block came with its witnesses, so bitcoind asks \
                      for a -reindex";
        let error = Error::damaged(detail)
            .at_block(height, self.tree.hash(*own.get(height.0 as usize)?))
            .in_file(self.files.datadir.index_dir(), None);
        let advice = if *of_blocks == Advice::Repair { &Advice::ReindexByScan } else { of_blocks };
        Some(start_fault(error, advice))
    }

    /// The blocks of a branch up to the last of these heights, and where those at the heights are.
    fn chain(&self, branch: &[u32], heights: &Range<usize>) -> Chain {
        let (tree, branch) = (self.tree, branch.iter().take(heights.end));
        let position = |(height, &number): (usize, &u32)| {
            let place = tree.data_pos(number).filter(|_| height >= heights.start);
            let (file, data_pos) = place.unwrap_or_default();
            let undo_pos = tree.undo_pos(number).filter(|_| data_pos.0 > 0);
            BlockPosition::new(file, data_pos, undo_pos)
        };
        let positions = branch.clone().enumerate().map(position).collect();
        let hashes = branch.map(|&number| tree.hash(number)).collect();
        Chain::from_parts(hashes, positions, vec![BlockTime(0); heights.end])
    }
}

fn start_fault(error: Error, advice: &Advice) -> StartFault {
    let is_about_disk = error.kind == ErrorKind::Environment;
    StartFault { error, advice: if is_about_disk { Advice::CheckDisk } else { advice.clone() } }
}

/// Advises a scan on a block that is elsewhere in the files: that finds all blocks, whatever the index says.
pub fn scan_if_elsewhere(files: &Files<'_>, fault: StartFault) -> StartFault {
    match fault.advice {
        Advice::Repair if is_elsewhere(files, &fault.error) => {
            StartFault { advice: Advice::ReindexByScan, ..fault }
        }
        _ => fault,
    }
}

/// What keeps bitcoind from making or continuing an index, as a setting wants, in a pruned datadir.
fn of_index(setting: &IndexSetting, state: &DatadirState) -> Option<StartFault> {
    let IndexSetting { kind, file, line } = setting;
    // For the other indexes, another fault reports that bitcoind does not start with them and pruning.
    if !kind.needs_undo() || !state.lacks_blocks_of_indexes() {
        return None;
    }
    let is_old = |index: &&FoundIndex| matches!(index.standing, IndexStanding::Superseded);
    let found = state.indexes.iter().filter(|index| !is_old(index)).find(|index| index.kind == *kind);
    let mut lowest = state.index.first_stored;
    let end = match found.map(|index| &index.standing) {
        None => "is absent".to_owned(),
        Some(IndexStanding::BelowPruned { height, first }) => {
            lowest = *first;
            format!("ends at height {height}")
        }
        Some(IndexStanding::Damaged(_)) => "is damaged".to_owned(),
        Some(IndexStanding::LacksBlocks) => "cannot be taken back".to_owned(),
        Some(IndexStanding::UnknownBestBlock) => "ends with an unknown block".to_owned(),
        Some(_) => return None,
    };
    let name = kind.option();
    let place = line.map_or(String::new(), |line| format!("line {line}, "));
    let detail = format!(
        "{place}`{name}`: the index {end}, and the blocks below height {lowest} were deleted, so bitcoind \
         does not start; to have the index, download the deleted blocks again"
    );
    let advice = Advice::CorrectSetting { file: file.clone(), line: *line, is_removable: line.is_some() };
    Some(StartFault { error: Error::usage(detail).in_file(file, None), advice })
}

/// Reads the table that the log's last error names, if it is one of a database here, and notes whether it is
/// damaged. An error that names none counts if no database was written since.
pub fn check_reported_table(disk: &dyn Disk, datadir: &Datadir, state: &mut DatadirState) {
    let Some((_, table)) = &state.start.last.database_error else { return };
    let Some(named) = table else {
        let indexes = IndexKind::ALL.map(|kind| datadir.net_dir().join(kind.database_dir()));
        let others = [datadir.chainstate_dir(), datadir.snapshot_dir(), datadir.index_dir()];
        let mut dirs = indexes.into_iter().chain(others);
        let logged = modified(disk, &datadir.net_dir().join("debug.log"));
        if dirs.any(|dir| modified(disk, &dir.join("CURRENT")) > logged) {
            state.start.last.database_error = None;
        }
        return;
    };
    let path = find_table(disk, datadir.net_dir(), named);
    // It is sound, or was replaced since.
    let Some((path, Err(error))) = path.map(|path| (path.clone(), check_table(disk, &path))) else {
        state.start.last.database_error = None;
        return;
    };
    let error = Error::from(error);
    let broken = match error.kind {
        ErrorKind::Environment => DatabaseState::Unreadable(error.clone()),
        _ => DatabaseState::Broken(error.clone()),
    };
    let dir = path.parent().unwrap_or(&path);
    let is_of = |kind: IndexKind| dir == datadir.net_dir().join(kind.database_dir());
    if dir == datadir.chainstate_dir() {
        state.chainstate.state = broken;
    } else if dir == datadir.index_dir() {
        state.index.state = broken;
    } else if let Some(index) = state.indexes.iter_mut().find(|index| is_of(index.kind)) {
        index.standing = IndexStanding::of_error(error);
    }
}

/// Finds a table whose path is in a log, in the directory of the network: in a container, the path differs.
fn find_table(disk: &dyn Disk, net_dir: &Path, named: &Path) -> Option<PathBuf> {
    let names: Vec<_> = named.iter().collect();
    let ends = (2..=TABLE_DEPTH.min(names.len())).filter_map(|count| names.get(names.len() - count..));
    let mut paths = ends.map(|end| net_dir.join(end.iter().collect::<PathBuf>()));
    paths.find(|path| disk.exists(path).unwrap_or_default())
}

/// The log's last error of a database, if neither what was read nor what was written since explains it.
fn unexplained_error(state: &DatadirState) -> Option<&str> {
    let (text, table) = state.start.last.database_error.as_ref()?;
    let is_explained = table.is_some()
        || state.deep.is_some()
        || ![&state.index.state, &state.chainstate.state].iter().all(|state| state.is_sound())
        || state.indexes.iter().any(FoundIndex::is_broken);
    (!is_explained).then_some(text)
}
