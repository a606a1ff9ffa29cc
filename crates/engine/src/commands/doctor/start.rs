//! What keeps bitcoind from starting as it should: causes outside the databases, an error of a database in
//! its log, and damage to the blocks that it reads when it starts.

use super::advice::Advice;
use super::diagnosis::{DatabaseState, DatadirState, IndexSetting, LockState, NodeSettings, StartFault};
use super::indexes::{FoundIndex, IndexStanding};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    size::HumanSize,
};
use chain::{
    blocks::{
        chain::{BlockPosition, Chain},
        files::Files,
    },
    plan::{second_chainstate::CHECKED_AT_START, tree::Tree},
};
use disk::{
    datadir::{Datadir, FileKind},
    node_indexes::{IndexKind, check_table},
};
use pipeline::{
    job::{damage_survey::BlockSurvey, now},
    stages::{read::BlockReader, undo_survey::UndoState, walk::BlockWalk},
};
use rules::header::MAX_FUTURE_BLOCK_TIME;
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};
use vfs::Disk;
use wire::{BlockTime, ByteOffset, Height};

/// The largest number of components of the path of a table in the directory of a network:
/// `indexes/blockfilter/basic/db/000005.ldb`.
const TABLE_DEPTH: usize = 5;

/// Free disk space with which bitcoind starts and goes on, in bytes: with half of it, it only starts (Core
/// `CheckDiskSpace`, `AppInitMain`).
const MIN_FREE_BYTES: u64 = 100 << 20;

/// Finds what keeps bitcoind from starting: first what keeps Peregrine from working too.
pub fn faults(
    disk: &dyn Disk,
    settings: &NodeSettings,
    state: &DatadirState,
    last_blocks: Option<StartFault>,
) -> Vec<StartFault> {
    let locks = match &state.lock {
        LockState::Unsupported(error) => {
            let directory = state.dir.clone();
            Some(StartFault { error: error.clone(), advice: Advice::ProvideLocks { directory } })
        }
        _ => None,
    };
    let read_only = disk.is_read_only(&state.dir).unwrap_or_default().then(|| {
        let detail = "the file system is mounted read-only, as after an error of the disk";
        let error = Error::new(ErrorKind::Environment, detail).in_file(&state.dir, None);
        StartFault { error, advice: Advice::CheckDisk }
    });
    let full = [&state.dir, &state.blocks_dir].into_iter().find_map(|directory| {
        let free = disk.free_space(directory).ok().filter(|free| *free < MIN_FREE_BYTES)?;
        let detail = format!("the disk is almost full: {} are free", HumanSize(free));
        let error = Error::new(ErrorKind::Environment, detail).in_file(directory, None);
        Some(StartFault { error, advice: Advice::FreeSpace { directory: directory.clone() } })
    });
    let (time, clock) = (state.chainstate.time.unwrap_or_default().0, now().0);
    let is_ahead = u64::from(time) > u64::from(clock) + MAX_FUTURE_BLOCK_TIME;
    let clock = is_ahead.then(|| {
        let hours = (time - clock).div_ceil(60 * 60);
        let detail = format!("the chainstate's best block is {hours} hours ahead of this machine's clock");
        StartFault { error: Error::new(ErrorKind::Environment, detail), advice: Advice::CorrectClock }
    });
    let indexes = settings.indexes.iter().filter_map(|setting| of_index(setting, state));
    let log = unexplained_error(state).map(|text| StartFault {
        error: Error::new(ErrorKind::Damaged, format!("debug.log: {text}")),
        advice: Advice::LookDeeper,
    });
    let of_settings = settings.faults.iter().cloned().chain(indexes);
    let of_disk = locks.into_iter().chain(read_only).chain(full);
    of_disk.chain(clock).chain(of_settings).chain(last_blocks).chain(log).collect()
}

/// Reads the blocks and the undo data that bitcoind reads when it starts (Core `CVerifyDB::VerifyDB`): the
/// last ones of `branch`, which leads to the chainstate's best block. Returns what is wrong with the lowest.
///
/// # Errors
/// Any I/O error that is not about one block; an interrupt.
pub fn check_last_blocks(
    files: &Files<'_>,
    tree: &Tree<'_>,
    branch: &[u32],
    is_pruned: bool,
    interrupt: &AtomicBool,
) -> Result<Option<StartFault>, Error> {
    if branch.is_empty() {
        return Ok(None);
    }
    let first = branch.len().saturating_sub(CHECKED_AT_START);
    let position = |(height, &number): (usize, &u32)| {
        let (file, data_pos) = tree.data_pos(number).filter(|_| height >= first).unwrap_or_default();
        let undo_pos = tree.undo_pos(number).filter(|_| data_pos.0 > 0);
        BlockPosition::new(file, data_pos, undo_pos)
    };
    let positions = branch.iter().enumerate().map(position).collect();
    let hashes = branch.iter().map(|&number| tree.hash(number)).collect();
    let chain = &Chain::from_parts(hashes, positions, vec![BlockTime(0); branch.len()]);
    let (reader, watch) = (BlockReader::new(chain, files), Watch { sink: &|_: Event| {}, interrupt });
    let walk = BlockWalk { reader, threads: 1, bytes_total: 0, watch };
    let BlockSurvey { flawed, undo } = BlockSurvey::read(&walk)?;
    // A rebuild reports a block that breaks a rule; median times are not known here.
    let damaged = flawed.into_iter().find(|(_, error)| error.kind != ErrorKind::Consensus);
    let of_block = damaged.map(|(_, error)| {
        let advice = match error.kind {
            ErrorKind::Environment => Advice::CheckDisk,
            // `sync` relies on what the block index says of a sound chainstate's blocks.
            _ if is_pruned => Advice::BitcoindReindex,
            _ => Advice::Repair,
        };
        StartFault { error, advice }
    });
    let of_undo = || {
        let is_flawed = |&height: &Height| match undo.state(height) {
            UndoState::Sound => false,
            UndoState::Damaged => true,
            // Otherwise, it was counted before. Core does not read the undo data of a deleted block.
            UndoState::Missing => is_pruned && chain.block(height).data_pos > ByteOffset(0),
        };
        let height = (first as u32..branch.len() as u32).map(Height).find(is_flawed)?;
        let block = chain.block(height);
        let error = Error::damaged("the undo data is missing, not that of this block, or cannot be read")
            .at_block(height, block.hash)
            .in_file(files.path(FileKind::Rev, block.file), block.undo_pos.map(|pos| pos.0));
        let advice = if is_pruned { Advice::StartWithoutUndo } else { Advice::MakeUndo };
        Some(StartFault { error, advice })
    };
    Ok(of_block.or_else(of_undo))
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
    let end = match found.map(|index| &index.standing) {
        None => "is absent".to_owned(),
        Some(IndexStanding::BelowPruned { height, .. }) => format!("ends at height {height}"),
        Some(IndexStanding::Damaged(_)) => "is damaged".to_owned(),
        Some(_) => return None,
    };
    let (name, first) = (kind.option(), state.index.first_stored);
    let place = line.map_or(String::new(), |line| format!("line {line}, "));
    let detail = format!(
        "{place}`{name}`: the index {end}, and the blocks below height {first} were deleted, so bitcoind \
         does not start; to have the index, download the deleted blocks again"
    );
    let advice = Advice::CorrectSetting { file: file.clone(), line: *line, is_removable: line.is_some() };
    Some(StartFault { error: Error::new(ErrorKind::Usage, detail).in_file(file, None), advice })
}

/// Reads the table that the log's last error names, if it is one of a database here, and notes whether it is
/// damaged. An error that names none counts if the chainstate was not written since.
pub fn check_reported_table(disk: &dyn Disk, datadir: &Datadir, state: &mut DatadirState) {
    let Some((_, table)) = &state.start.last.database_error else { return };
    let path = match table {
        Some(named) => find_table(disk, datadir.net_dir(), named),
        None => {
            let modified = |path: PathBuf| disk.metadata(&path).ok().flatten().map(|found| found.modified);
            let [log, database] =
                [datadir.net_dir().join("debug.log"), datadir.chainstate_dir().join("CURRENT")].map(modified);
            if database > log {
                state.start.last.database_error = None;
            }
            return;
        }
    };
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
        index.standing = IndexStanding::Damaged(error);
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
