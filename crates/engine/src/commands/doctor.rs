//! Examines a datadir in whatever state it is: what is sound, what is damaged or missing, and what to do
//! next.
//!
//! Nothing is written and no lock is taken, so a bitcoind that uses the datadir is not hindered. If one does,
//! a database may change while it is read, so that what fails then is not called damaged.

mod advise;
mod deep;
mod diagnosis;
mod log;
mod survey;

pub use diagnosis::{
    Advice, ChainstatePosition, ChainstateState, DatabaseState, DatadirState, DeepState, Diagnosis,
    FilesState, IndexState, Leftovers, LockState, Owner, RebuildNeed,
};
pub use disk::datadir::Absence;

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink},
        machine,
        note::DiskNeed,
        options::ChainOptions,
        remedy::Remedy,
    },
    blocks::files::{self, Files},
    job::{self, ChainPreferences, disk_need::directory_bytes, memory::MemoryBudget},
    plan::{dependents, existing_state::ExistingState, planner::tree_of_index},
    stages::{
        commit::{has_unfinished, open_datadir, with_owner},
        work_dir::WORK_DIR,
    },
};
use advise::advise;
use deep::BlockPlaces;
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    chainstate::{ChainstateReader, read_best_block},
    checkpoint::Checkpoint,
    datadir::Datadir,
    lock::DatadirLock,
    made_undo::has_made_undo,
    node_indexes::NodeIndex,
    replace,
    xor::revealed_key,
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};
use survey::{FileLengths, survey};
use vfs::{Disk, dir_of};
use wire::{FileNo, Network};

/// Bytes of blocks that a thread checks in a second, about: the recorded runs in `docs/performance.md`.
const CHECKED_BYTES_PER_SECOND: u64 = 200_000_000;
/// Time in which a sample of the block files is read.
const SAMPLE_TIME: Duration = Duration::from_millis(800);
/// Maximum number of places of that sample.
const SAMPLE_PLACES: usize = 48;
/// Length of each place of that sample, in bytes.
const SAMPLE_LEN: usize = 2 << 20;

/// Options of [`diagnose`].
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// The datadir, and what a rebuild may use.
    pub chain: ChainOptions,
    /// Read all blocks, undo data and coins.
    pub deep: bool,
}

impl DoctorOptions {
    /// The default options, with one thread.
    #[must_use]
    pub fn new(datadir: &Path, network: Network) -> Self {
        Self { chain: ChainOptions::new(datadir, network), deep: false }
    }
}

/// Examines a datadir.
///
/// # Errors
/// [`ErrorKind::Environment`] if not even its directories can be read; [`ErrorKind::Interrupted`].
pub fn diagnose(
    disk: &dyn Disk,
    options: &DoctorOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<Diagnosis, Error> {
    machine::sha256_kernel()?;
    let (started, network) = (Instant::now(), options.chain.params.network);
    let root = &options.chain.datadir;
    let (found, advice) = match Datadir::find(disk, &options.chain.location()) {
        Ok(Ok(datadir)) => {
            let (state, advice) = Examination { disk, datadir: &datadir, options, sink, interrupt }
                .run()
                .map_err(|error| with_owner(disk, root, error))?;
            (Ok(Box::new(state)), advice)
        }
        Ok(Err(absence)) => {
            let advice = match &absence {
                Absence::NoDirectory => Advice::NameDatadir,
                // A datadir is not made among the files of others.
                Absence::NoBlocks if is_new(disk, root) => Advice::Sync,
                Absence::NoBlocks => Advice::NameDatadir,
                Absence::OtherNetworks(others) => {
                    others.first().map_or(Advice::NameDatadir, |other| Advice::ChooseNetwork(*other))
                }
            };
            (Err(absence), advice)
        }
        // Also names the user who may read it.
        Err(error) => return Err(open_datadir(disk, &options.chain).err().unwrap_or(error.into())),
    };
    Ok(Diagnosis { network, found, advice, elapsed: started.elapsed() })
}

/// Whether a directory is empty, or has nothing that shows its purpose but bitcoind's settings.
fn is_new(disk: &dyn Disk, root: &Path) -> bool {
    disk.list(root).is_ok_and(|names| names.is_empty() || names.iter().any(|name| name == "bitcoin.conf"))
}

struct Examination<'a> {
    disk: &'a dyn Disk,
    datadir: &'a Datadir,
    options: &'a DoctorOptions,
    sink: &'a dyn EventSink,
    interrupt: &'a AtomicBool,
}

impl Examination<'_> {
    fn run(&self) -> Result<(DatadirState, Advice), Error> {
        let Self { disk, datadir, options, .. } = *self;
        let params = options.chain.params;
        let lock = match DatadirLock::holder(disk, datadir) {
            Ok(None) => LockState::Free,
            Ok(Some(holder)) => LockState::Held(holder),
            Err(_) => LockState::Unknown,
        };
        let is_held = matches!(lock, LockState::Held(_));
        let lengths = &FileLengths::measure(disk, datadir)?;
        let (obfuscation, key) = match files::obfuscation(disk, datadir, params) {
            Ok(obfuscation) => (obfuscation, None),
            Err(error) => (Obfuscation::default(), Some(error)),
        };
        let files = &Files { disk, datadir, obfuscation, params };
        // The chainstate first: bitcoind writes the index before the chainstate that needs it.
        let mut chainstate = self.chainstate(is_held);
        let has_snapshot = dependents::has_snapshot(disk, datadir)?;
        let (index, [blocks, undo]) = self.compare(files, &mut chainstate, lengths, (has_snapshot, is_held));
        let mut state = DatadirState {
            dir: datadir.net_dir().to_owned(),
            blocks_dir: datadir.blocks_dir(),
            owner: self.owner(),
            lock,
            version: log::last_version(disk, &datadir.net_dir().join("debug.log")),
            key,
            rebuild: self.rebuild_need(lengths, index.blocks, undo.lacking()),
            index,
            blocks,
            undo,
            chainstate,
            has_snapshot,
            indexes: NodeIndex::find(disk, datadir.net_dir())?.into_iter().map(|index| index.name).collect(),
            leftovers: self.leftovers(),
            refusal: None,
            deep: None,
        };
        if self.options.deep && state.key.is_none() {
            state.deep = Some(self.deep(files, &state)?);
        }
        let key = match state.key {
            Some(_) => revealed_key(disk, datadir, &params.genesis_hash)?,
            None => None,
        };
        let advice = advise(&state, lengths.scan_precondition(), key);
        if ![Advice::Reindex, Advice::MakeUndo].contains(&advice) {
            return Ok((state, advice));
        }
        state.refusal = self.refusal(files).err();
        let advice = advise(&state, lengths.scan_precondition(), key);
        Ok((state, advice))
    }

    fn deep(&self, files: &Files<'_>, state: &DatadirState) -> Result<DeepState, Error> {
        if let LockState::Held(_) = state.lock {
            let detail = "another process uses the datadir, and changes what would be read";
            let error = Error::new(ErrorKind::Environment, detail).with_remedies([Remedy::EndOtherProgram]);
            return Ok(DeepState::refused(error));
        }
        let best = (state.chainstate.best_block, state.chainstate.height);
        let source = match state.index.state.is_sound() {
            true if state.index.is_pruned => BlockPlaces::Unknown,
            true => BlockPlaces::Index,
            false => BlockPlaces::Scan,
        };
        deep::read_all(files, self.options, best, source, (self.sink, self.interrupt))
    }

    fn owner(&self) -> Owner {
        let Self { disk, datadir, .. } = *self;
        let owner_of = |path: &Path| disk.ownership(path).ok().map(|ownership| ownership.uid);
        let uid = owner_of(&datadir.blocks_dir()).unwrap_or(disk.user());
        let is_foreign = |dir: &PathBuf| {
            [dir.clone(), dir.join("CURRENT")].iter().any(|path| owner_of(path).is_some_and(|is| is != uid))
        };
        let foreign = [datadir.index_dir(), datadir.chainstate_dir()].into_iter().filter(is_foreign);
        Owner { uid, user: disk.user(), foreign: foreign.collect() }
    }

    fn chainstate(&self, is_held: bool) -> ChainstateState {
        let dir = self.datadir.chainstate_dir();
        let mut flush_interrupted = false;
        let opened = match ChainstateReader::open(self.disk, &dir) {
            Err(DiskError::InterruptedFlush { .. }) => {
                flush_interrupted = true;
                Ok(())
            }
            opened => opened.and_then(|reader| reader.check_tables()),
        };
        ChainstateState {
            state: self.database_state(&dir, opened.map_err(Error::from), is_held),
            best_block: read_best_block(self.disk, &dir).ok().flatten(),
            height: None,
            position: None,
            flush_interrupted,
        }
    }

    /// Names the state of the database in `dir`, which was read with this result.
    fn database_state(&self, dir: &Path, read: Result<(), Error>, is_held: bool) -> DatabaseState {
        let Err(error) = read else { return DatabaseState::Sound };
        let names = match self.disk.metadata(dir) {
            Ok(None) => Ok(Vec::new()),
            _ => self.disk.list(dir),
        };
        // Without its files, it was not begun, or removed to be built anew.
        let is_table = |name: &str| [".ldb", ".sst"].iter().any(|suffix| name.ends_with(suffix));
        let is_empty = names.is_ok_and(|names| {
            !names.iter().any(|name| name == "CURRENT" || name.to_str().is_some_and(is_table))
        });
        match error.kind {
            _ if is_empty => DatabaseState::Absent,
            ErrorKind::Environment => DatabaseState::Unreadable(error),
            _ if is_held => DatabaseState::Unreadable(error),
            _ => DatabaseState::Broken(error),
        }
    }

    /// Reads the block index, and compares it with files and chainstate.
    fn compare(
        &self,
        files: &Files<'_>,
        chainstate: &mut ChainstateState,
        lengths: &FileLengths,
        (has_snapshot, is_held): (bool, bool),
    ) -> (IndexState, [FilesState; 2]) {
        let (mut tree, index) = match tree_of_index(files, files.params) {
            Ok(read) => read,
            Err(error) => {
                let state = self.database_state(&self.datadir.index_dir(), Err(error), is_held);
                return (IndexState::unknown(state), lengths.each().map(FilesState::of_lengths));
            }
        };
        let may_lack_blocks = index.pruned || has_snapshot;
        let best = chainstate.best_block;
        let found = survey(files, (&mut tree, &index.files), lengths, best, may_lack_blocks);
        (chainstate.height, chainstate.position) = (found.best_height, found.position);
        let index = IndexState {
            state: DatabaseState::Sound,
            blocks: found.blocks,
            headers: found.headers,
            header_height: found.header_height,
            stored_height: found.stored_height,
            is_pruned: index.pruned,
        };
        (index, [found.block_files, found.undo_files])
    }

    /// What a rebuild by the block index would refuse.
    fn refusal(&self, files: &Files<'_>) -> Result<(), Error> {
        let silent = &|_: Event| {};
        let before = ExistingState::read(files, false)?;
        let preferences = ChainPreferences {
            preferred: before.best_block,
            makes_undo: true,
            ..ChainPreferences::default()
        };
        let plan = job::plan(files, &self.options.chain, &preferences, silent, self.interrupt)?;
        dependents::check(self.disk, self.datadir, &plan, false, silent)?;
        before.check_loss(&plan, files)?.map_or(Ok(()), |loss| Err(loss.error(files)))
    }

    fn leftovers(&self) -> Leftovers {
        let Self { disk, datadir, .. } = *self;
        let home = datadir.net_dir();
        let chainstate = disk.resolve(&datadir.chainstate_dir()).unwrap_or(datadir.chainstate_dir());
        // What cannot be read is of no use for a later run either.
        let checkpoint = Checkpoint::read(disk, &dir_of(&chainstate).join(WORK_DIR)).ok().flatten();
        let done = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum();
        Leftovers {
            has_journal: replace::is_interrupted(disk, home).unwrap_or_default(),
            has_unfinished_databases: has_unfinished(disk, datadir).unwrap_or_default(),
            checkpoint: checkpoint.map(|saved| (done(&saved.state.completed), saved.state.blocks)),
            has_made_undo: has_made_undo(disk, datadir).unwrap_or_default(),
        }
    }

    /// Estimates what a rebuild needs, in which `lacking` of so many blocks get undo data.
    fn rebuild_need(&self, lengths: &FileLengths, blocks: u32, lacking: u32) -> RebuildNeed {
        let Self { disk, datadir, options, .. } = *self;
        let chainstate = datadir.chainstate_dir();
        let [block_bytes, undo_bytes] = lengths.each().map(|lengths| lengths.values().sum::<u64>());
        let budget = MemoryBudget::after_plan(&options.chain, blocks as usize);
        let old = directory_bytes(disk, &chainstate);
        let mut need = DiskNeed::estimate(block_bytes, old, budget.join_bytes);
        if lacking > 0 {
            let bytes = block_bytes / u64::from(blocks.max(1)) * u64::from(lacking);
            need = need.with_undo(bytes, options.chain.memory_bytes);
        }
        let resolved = disk.resolve(&chainstate).unwrap_or(chainstate);
        let bytes_per_second = self.sampled_speed(lengths);
        let duration = bytes_per_second.map(|speed| {
            let checked = CHECKED_BYTES_PER_SECOND.saturating_mul(budget.threads as u64);
            let seconds = |bytes: u64, speed: u64| bytes as f64 / speed.max(1) as f64;
            let (read, check) = (seconds(block_bytes + undo_bytes, speed), seconds(block_bytes, checked));
            Duration::try_from_secs_f64(read.max(check)).unwrap_or(Duration::MAX)
        });
        RebuildNeed { need, free: disk.free_space(dir_of(&resolved)).ok(), bytes_per_second, duration }
    }

    /// Reads a small sample of the block files. Returns bytes per second; `None` without files to read.
    fn sampled_speed(&self, lengths: &FileLengths) -> Option<u64> {
        let files: Vec<(u32, u64)> = lengths.blk.iter().map(|(&file, &len)| (file, len)).collect();
        let (started, mut bytes) = (Instant::now(), 0);
        let mut buffer = vec![0; SAMPLE_LEN];
        // Each place in another part of the files; the last ones are more likely to be in the page cache.
        for place in 0..SAMPLE_PLACES.min(files.len()) {
            let &(file, len) = files.get(place * files.len() / SAMPLE_PLACES.min(files.len()))?;
            let piece = buffer.get_mut(..len.min(SAMPLE_LEN as u64) as usize)?;
            let open = self.disk.open(&self.datadir.blk_path(FileNo(file))).ok()?;
            open.read_exact_at(piece, (len - piece.len() as u64) / 2).ok()?;
            bytes += piece.len() as u64;
            if started.elapsed() > SAMPLE_TIME {
                break;
            }
        }
        (bytes > 0).then(|| (bytes as f64 / started.elapsed().as_secs_f64().max(1e-9)) as u64)
    }
}
