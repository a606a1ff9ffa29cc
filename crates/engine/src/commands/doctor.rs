//! Examines a datadir in whatever state it is: what is sound, what is damaged or missing, and what to do
//! next.
//!
//! Nothing is written and no lock is taken, so a bitcoind that uses the datadir is not hindered. If one does,
//! a database may change while it is read, so that what fails then is not called damaged.

mod advice;
mod advise;
mod deep;
mod diagnosis;
mod estimate;
mod fields;
mod indexes;
mod log;
mod obstacles;
mod start;
mod survey;
mod words;

pub use advice::Advice;
pub use diagnosis::{
    ChainstatePosition, ChainstateState, DatabaseState, DatadirState, DeepState, Diagnosis, FilesState,
    IndexSetting, IndexState, Leftovers, LockState, NodeSettings, Owner, RebuildNeed, RebuildTime,
    ScriptWork, SnapshotState, StartFault, StartState,
};
pub use disk::{datadir::Absence, node_indexes::IndexKind};
pub use indexes::{FoundIndex, IndexStanding};
pub use log::LastStart;

use super::{reindex, update};
use advise::{Circumstances, advise, instead_of};
use api::{
    error::{Error, ErrorKind},
    event::Watch,
    machine,
    options::{ChainOptions, Reconsider, ReindexOptions, ScriptChecks},
    subject::Subject,
};
use chain::{
    blocks::files::{self, Files},
    given_blocks::has_lost_genesis,
    plan::{planner::tree_of_index, second_chainstate::SecondChainstate, tree::Tree},
    session::{has_unfinished, open_datadir, with_owner, work_dir_of},
};
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    chainstate::{ChainstateReader, read_best_block},
    checkpoint::Checkpoint,
    datadir::{Datadir, FileKind, Location},
    index::refuse_flat,
    is_database_file,
    keyed_search::other_block_files,
    lock::DatadirLock,
    made_undo::has_made_undo,
    node_indexes::check_tables,
    replace,
    xor::read_block_obfuscation,
};
use estimate::of_rebuild;
use obstacles::{find_obstacle, in_place_of_new_files, obstacle_above};
use pipeline::{
    job::{self, ChainRequest, two_chainstates::check_start},
    stages::work_dir::WorkDir,
};
use rules::ChainParams;
use start::ReadAtStart;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};
use survey::{FileLengths, Survey, survey};
use vfs::{Disk, Ownership};
use wire::{BlockHash, Height, Network};

/// Tables of a chainstate up to this length, in bytes, may have no coins: a flush without any leaves one.
const WITHOUT_COINS_LEN: u64 = 1 << 10;

/// Maximum number of commands in place of which others are advised, because they would be refused.
const MOST_REFUSALS: usize = 3;

/// Number of last blocks whose undo data a pruned node keeps (Core `MIN_BLOCKS_TO_KEEP`).
const KEPT_UNDO: usize = 288;

/// Options of [`diagnose`].
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// The datadir, and what a rebuild may use.
    pub chain: ChainOptions,
    /// Read all blocks, undo data and coins.
    pub deep: bool,
    /// What the settings of bitcoind mean for its start.
    pub settings: NodeSettings,
    /// The work directory of an interrupted run, if it is not beside the chainstate.
    pub work_dir: Option<PathBuf>,
}

impl DoctorOptions {
    /// The default options, with one thread.
    pub fn new(datadir: &Path, network: Network) -> Self {
        let chain = ChainOptions::new(datadir, network, ScriptChecks::LeftOut);
        Self { chain, deep: false, settings: NodeSettings::default(), work_dir: None }
    }

    /// Whether block files are to be in a directory outside the datadir.
    fn has_other_blocksdir(&self) -> bool {
        self.chain.blocksdir.as_ref().is_some_and(|dir| *dir != self.chain.datadir)
    }
}

/// Examines a datadir.
///
/// # Errors
/// [`ErrorKind::Environment`] if not even its directories can be read; [`ErrorKind::Interrupted`].
pub fn diagnose(disk: &dyn Disk, options: &DoctorOptions, watch: Watch<'_>) -> Result<Diagnosis, Error> {
    machine::sha256_kernel()?;
    let (started, network) = (Instant::now(), options.chain.params.network);
    let root = &options.chain.datadir;
    let location = options.chain.location();
    let (found, advice) = match Datadir::find(disk, &location) {
        Ok(Ok(datadir)) => {
            let (state, mut advice) = Examination { disk, datadir: &datadir, options, watch }
                .run()
                .map_err(|error| with_owner(disk, root, error))?;
            // Nothing else of that network is here: its block files were copied to those of another one.
            if let Advice::ChooseNetwork { network } = advice
                && matches!(Datadir::find(disk, &Location { network, ..location }), Ok(Err(_)))
            {
                advice = Advice::MoveAway { path: datadir.blocks_dir() };
            }
            (Ok(Box::new(state)), advice)
        }
        Ok(Err(absence)) => {
            let datadir = Datadir::of(disk, &options.chain.location())?;
            let advice = obstacle_above(disk, root, &datadir).unwrap_or_else(|| match &absence {
                Absence::NoDirectory => Advice::NameDatadir,
                Absence::OnlyChainstate | Absence::NoBlocks
                    if has_other_databases(disk, options, &datadir) =>
                {
                    Advice::NameBlocksdir { directory: None }
                }
                // Its blocks are gone, and with them their index. Unlike bitcoind -reindex, sync keeps the
                // chainstate.
                Absence::OnlyChainstate => Advice::Sync,
                // No datadir is created among other files.
                Absence::NoBlocks if is_new(disk, root) || is_of_node(disk, &datadir) => Advice::Sync,
                Absence::NoBlocks => Advice::NameDatadir,
                Absence::OtherNetworks(others) => others
                    .first()
                    .map_or(Advice::NameDatadir, |other| Advice::ChooseNetwork { network: *other }),
            });
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

/// Whether a node of this chain was here: its log says so, or the peers that it knows, a file that it makes
/// when it first starts and that begins with the magic of the chain (Core `DumpPeerAddresses`).
fn is_of_node(disk: &dyn Disk, datadir: &Datadir) -> bool {
    let mut magic = [0; 4];
    let peers = disk.open(&datadir.net_dir().join("peers.dat"));
    peers.and_then(|file| file.read_exact_at(&mut magic, 0)).is_ok() && magic == datadir.magic()
        || LastStart::read(disk, datadir.net_dir()).version.is_some()
}

/// Whether databases are here, and block files are to be elsewhere: the disk there may not be mounted.
fn has_other_databases(disk: &dyn Disk, options: &DoctorOptions, datadir: &Datadir) -> bool {
    let databases = [datadir.index_dir(), datadir.chainstate_dir()];
    let exists = |dir: &PathBuf| disk.exists(dir).unwrap_or(true);
    options.has_other_blocksdir() && databases.iter().any(exists)
}

struct Examination<'a> {
    disk: &'a dyn Disk,
    datadir: &'a Datadir,
    options: &'a DoctorOptions,
    watch: Watch<'a>,
}

/// Returns the height at which the chainstate's chain has left Bitcoin's, or at which a mark of an invalid
/// block makes it leave, and the marked block, whose mark must go before it can return.
fn left_at(
    params: &ChainParams,
    tree: &Tree<'_>,
    branch: &[u32],
    marked_invalid: Option<(Height, BlockHash, Height)>,
) -> Option<(Height, Option<BlockHash>)> {
    let (height, dead) = params.dead_branch?;
    let is_dead =
        |branch: &[u32]| branch.get(height.0 as usize).is_some_and(|number| tree.hash(*number) == dead);
    // A mark on the dead branch itself is no way back.
    let marked = marked_invalid.filter(|(_, hash, _)| !is_dead(&tree.branch_to(hash)));
    let is_marked = marked.is_some_and(|(marked, ..)| marked == height);
    (is_dead(branch) || is_marked && tree.has(&dead)).then_some((height, marked.map(|(_, hash, _)| hash)))
}

impl Examination<'_> {
    fn run(&self) -> Result<(DatadirState, Advice), Error> {
        let Self { disk, datadir, options, .. } = *self;
        let params = options.chain.params;
        let lock = self.lock();
        let is_held = lock.is_held();
        let lengths = &FileLengths::measure(disk, datadir)?;
        let (obfuscation, key) = match files::obfuscation(disk, datadir, params, usize::MAX) {
            Ok(obfuscation) => (obfuscation, None),
            // A file that cannot be read does not hide what is in the others.
            Err(error) if error.kind == ErrorKind::Environment => {
                let own = read_block_obfuscation(disk, &datadir.blocks_dir());
                (own.unwrap_or_default(), Some(error))
            }
            Err(error) => (Obfuscation::default(), Some(error)),
        };
        let files = &Files { disk, datadir, obfuscation, params, verifier: None, awaited: None };
        // The chainstate first: bitcoind writes the index before the chainstate that needs it.
        let mut chainstate = self.chainstate(is_held);
        Error::check_interrupt(self.watch.interrupt)?;
        let second = SecondChainstate::find(files)?;
        let (compared, indexes, at_start) =
            self.compare(files, &mut chainstate, lengths, (second.as_ref(), is_held))?;
        let rebuild = of_rebuild(files, &options.chain, lengths, &compared);
        let Survey { mut index, files: [blocks, undo], .. } = compared;
        let has_no_index = !index.state.is_sound() && key.is_none();
        index.has_only_genesis = has_no_index && survey::has_only_genesis(files, lengths);
        // With a wrong key, nothing can be read.
        let at_start = at_start.filter(|_| key.is_none());
        let at_start = at_start.map(|fault| start::scan_if_elsewhere(files, fault));
        let last_start = LastStart::read(disk, datadir.net_dir());
        let is_unknown = !index.state.is_sound() || chainstate.is_unknown();
        let may_be_lost = is_unknown && key.is_none() && index.departed == 0;
        if let Some(best) = chainstate.best_block.filter(|_| may_be_lost)
            && !survey::is_in_last_files(files, &best)
        {
            chainstate.position = Some(ChainstatePosition::NotStored);
        }
        let mut state = DatadirState {
            dir: datadir.net_dir().to_owned(),
            blocks_dir: datadir.blocks_dir(),
            owner: self.owner(),
            lock,
            key,
            rebuild,
            index,
            blocks: FilesState { other_names: other_block_files(disk, datadir)?, ..blocks },
            undo,
            chainstate,
            snapshot: SnapshotState {
                exists: second.is_some(),
                error: if second.is_some() && !is_held { self.snapshot_error(files)? } else { None },
            },
            indexes,
            leftovers: self.leftovers(),
            deep: None,
            start: StartState { faults: Vec::new(), last: last_start },
        };
        if self.options.deep && state.key.is_none() && !state.index.has_only_genesis {
            state.deep = Some(deep::read_all(files, &options.chain, &mut state, self.watch)?);
        }
        if !is_held {
            start::check_reported_table(disk, datadir, &mut state);
        }
        state.start.faults = start::faults(disk, datadir, &self.options.settings, &state, at_start);
        let advice = self.advice(files, lengths, &mut state)?;
        Ok((state, advice))
    }

    fn lock(&self) -> LockState {
        match DatadirLock::holder(self.disk, self.datadir).map_err(Error::from) {
            Ok(None) => LockState::Free,
            // A bitcoind on this datadir holds another file, too, which is looked at first.
            Ok(Some((holder, file))) if file.parent() == Some(&self.datadir.blocks_dir()) => {
                LockState::BlocksHeld(holder)
            }
            Ok(Some((holder, _))) => LockState::Held(holder),
            Err(error) if error.is_about(Subject::NoLocks) => LockState::Unsupported(error),
            Err(_) => LockState::Unknown,
        }
    }

    /// Finds what to do next, and notes in `state` why what seems to help would be refused, if it would.
    fn advice(
        &self,
        files: &Files<'_>,
        lengths: &FileLengths,
        state: &mut DatadirState,
    ) -> Result<Advice, Error> {
        let Self { disk, datadir, .. } = *self;
        let has_lost_genesis = state.key.is_none() && state.index.state.is_sound() && {
            has_lost_genesis(files, &datadir.blk_files(disk)?)
        };
        if has_lost_genesis {
            state.blocks.lost += 1;
            state.blocks.first = Some((Height(0), files.params.genesis_hash));
        }
        let has_no_index = !state.index.state.is_sound() && state.key.is_none();
        let lacks_genesis = has_no_index && !survey::has_genesis(files);
        let circumstances = Circumstances {
            files: lengths.scan_precondition(lacks_genesis),
            has_lost_genesis,
            obstacle: find_obstacle(disk, datadir)?,
            blocksdir: self.other_blocksdir(&state.start.last),
        };
        let mut advice = match advise(state, &circumstances) {
            // This datadir is a copy of that one, with its log: both nodes would write to the same files.
            Advice::NameBlocksdir { directory: Some(directory) } if self.is_other_node(&directory) => {
                Advice::TakeFromFiles { directory }
            }
            advice => advice,
        };
        for _ in 0..MOST_REFUSALS {
            let Err(error) = self.plan(files, &advice, state.chainstate.best_block) else { break };
            Error::check_interrupt(self.watch.interrupt)?;
            // No command rebuilds a block index, or changes a chainstate in place, beside that of a snapshot.
            let is_beside =
                [Subject::BlockIndex, Subject::SecondChainstate].iter().any(|it| error.is_about(*it));
            let next = match error.remedies.first() {
                _ if state.snapshot.exists && is_beside => Some(Advice::MoveSnapshotAway),
                remedy => remedy.and_then(|remedy| instead_of(&advice, *remedy, state)),
            };
            state.rebuild.refusal.get_or_insert(error);
            let Some(next) = next else { break };
            advice = next;
        }
        let writes =
            [Advice::Repair, Advice::Reindex, Advice::ReindexByScan, Advice::MakeUndo, Advice::Update];
        if writes.contains(&advice)
            && let Some(path) = in_place_of_new_files(disk, datadir)?
        {
            advice = Advice::MoveAway { path };
        }
        Ok(advice)
    }

    /// Whether bitcoind may have block files in a directory other than the one that is examined, or that one
    /// may be on a disk that is not mounted; the other directory, if it is known.
    fn other_blocksdir(&self, last_start: &LastStart) -> Option<Option<PathBuf>> {
        let chain = &self.options.chain;
        let has_blocks = |dir: &Path| {
            let location = Location { blocksdir: Some(dir.to_owned()), ..chain.location() };
            let there = Datadir::of(self.disk, &location);
            there.and_then(|there| there.blk_files(self.disk)).is_ok_and(|files| !files.is_empty())
        };
        let named = last_start.blocksdir(chain.params.network).filter(|dir| *dir != chain.datadir);
        let found = named.iter().chain([&chain.datadir]).find(|dir| has_blocks(dir)).cloned();
        let found = found.or(named.filter(|_| chain.blocksdir.is_none()));
        let is_unknown =
            self.options.has_other_blocksdir() || chain.blocksdir.is_none() && last_start.version.is_none();
        if found.is_some() || is_unknown { Some(found) } else { None }
    }

    /// Whether this directory is another datadir, which has a block index of its own.
    fn is_other_node(&self, root: &Path) -> bool {
        let chain = &self.options.chain;
        let location = Location { root: root.to_owned(), blocksdir: None, ..chain.location() };
        let index = Datadir::of(self.disk, &location).map(|other| other.index_dir());
        *root != chain.datadir && index.is_ok_and(|index| self.disk.exists(&index).unwrap_or(false))
    }

    fn owner(&self) -> Owner {
        let Self { disk, datadir, .. } = *self;
        let owner_of = |path: &Path| disk.ownership(path).ok();
        let blocks_dir = datadir.blocks_dir();
        let dirs = [datadir.net_dir(), &blocks_dir].into_iter();
        let owners: Vec<u32> = dirs.filter_map(|dir| Some(owner_of(dir)?.uid)).collect();
        // A datadir of root can be a mount point. Blocks of root can be copies.
        let owner = owners.iter().find(|uid| **uid != 0).or(owners.first());
        let uid = owner.copied().unwrap_or(disk.user());
        let is_own = |found: &Ownership| found.uid == uid;
        // Nothing is closed to root.
        let is_closed = |found: &Ownership| is_own(found) && uid != 0 && found.mode & 0o600 != 0o600;
        let is_foreign = |dir: &PathBuf| {
            let paths = [dir.clone(), dir.join("CURRENT")];
            let must_be_own = match *dir == blocks_dir {
                // Others may be allowed to write to shared blocks.
                true => owner_of(dir).is_some_and(|found| found.mode & 0o022 == 0),
                false => owner_of(&paths[1]).is_some(),
            };
            let mut found = paths.iter().filter_map(|path| owner_of(path));
            found.any(|found| is_closed(&found) || must_be_own && !is_own(&found))
        };
        let databases = [datadir.index_dir(), datadir.chainstate_dir()];
        let dirs = [datadir.net_dir().to_owned(), blocks_dir.clone()].into_iter().chain(databases.clone());
        let mut foreign: Vec<PathBuf> = dirs.filter(is_foreign).collect();
        // What bitcoind opens for writing when it starts, and what it reads. Others may be allowed to do so.
        let mut written = vec![datadir.net_dir().to_owned(), datadir.net_dir().join("indexes")];
        written.extend([".lock", "settings.json", "debug.log"].map(|name| datadir.net_dir().join(name)));
        written.push(blocks_dir.join(".lock"));
        written.extend(databases.each_ref().map(|dir| dir.join("LOCK")));
        let last = datadir.blk_files(disk).ok().and_then(|files| files.last().copied());
        written.extend(last.into_iter().flat_map(|last| [datadir.blk_path(last), datadir.rev_path(last)]));
        let mut read = vec![blocks_dir.join("xor.dat")];
        for kind in [FileKind::Blk, FileKind::Rev] {
            let files = datadir.block_files(disk, kind).unwrap_or_default();
            read.extend(files.into_iter().map(|file| datadir.block_file_path(kind, file)));
        }
        for dir in &databases {
            let names = disk.list(dir).unwrap_or_default().into_iter();
            read.extend(names.filter(|name| is_database_file(name)).map(|name| dir.join(name)));
        }
        let opened = written.into_iter().map(|path| (path, 0o022));
        for (path, rights) in opened.chain(read.into_iter().map(|path| (path, 0o044))) {
            let is_kept_out = |found: Ownership| uid != 0 && !is_own(&found) && found.mode & rights == 0;
            let is_named = foreign.iter().any(|dir| path.starts_with(dir));
            if !is_named && owner_of(&path).is_some_and(is_kept_out) {
                // Of blocks that were copied there, thousands may be kept out.
                let blocks = Some(&blocks_dir).filter(|_| rights == 0o044);
                let dir = databases.iter().chain(blocks).find(|dir| path.starts_with(dir));
                foreign.push(dir.cloned().unwrap_or(path));
            }
        }
        Owner { uid, user: disk.user(), foreign }
    }

    fn chainstate(&self, is_held: bool) -> ChainstateState {
        let dir = self.datadir.chainstate_dir();
        let opened = ChainstateReader::open(self.disk, &dir);
        let flush_interrupted = matches!(opened, Err(DiskError::InterruptedFlush { .. }));
        let look = indexes::look_at_tables(self.watch);
        let checked = opened.and_then(|_| check_tables(self.disk, &dir, WITHOUT_COINS_LEN, look));
        let read = checked.map_err(Error::from);
        let read = if flush_interrupted { Ok(()) } else { read };
        ChainstateState {
            state: self.database_state(&dir, read, is_held),
            best_block: read_best_block(self.disk, &dir).ok().flatten(),
            flush_interrupted,
            ..ChainstateState::default()
        }
    }

    /// Names the state of the database in `dir`, which was read with this result.
    fn database_state(&self, dir: &Path, read: Result<(), Error>, is_held: bool) -> DatabaseState {
        let Err(error) = read else { return DatabaseState::Sound };
        let names = match self.disk.metadata(dir) {
            Ok(None) => Ok(Vec::new()),
            _ => self.disk.list(dir),
        };
        // A database without its files was never begun, or was removed to be built anew.
        let is_table = |name: &str| [".ldb", ".sst"].iter().any(|suffix| name.ends_with(suffix));
        let is_empty = names.is_ok_and(|names| {
            !names.iter().any(|name| name == "CURRENT" || name.to_str().is_some_and(is_table))
        });
        match error.kind {
            _ if error.needs_bitcoind() => DatabaseState::Unreadable(error),
            _ if is_empty => DatabaseState::Absent,
            ErrorKind::Environment => DatabaseState::Unreadable(error),
            _ if is_held => DatabaseState::Unreadable(error),
            _ => DatabaseState::Broken(error),
        }
    }

    /// Reads the block index, and compares it with files and chainstate. Returns also the other indexes, and
    /// what is wrong with the blocks that bitcoind reads when it starts.
    fn compare(
        &self,
        files: &Files<'_>,
        chainstate: &mut ChainstateState,
        lengths: &FileLengths,
        (second, is_held): (Option<&SecondChainstate>, bool),
    ) -> Result<(Survey, Vec<FoundIndex>, Option<StartFault>), Error> {
        let assumed = self.options.chain.assume_valid.hash(files.params);
        let readable = refuse_flat(self.disk, &self.datadir.index_dir()).map_err(Error::from);
        let (mut tree, index) = match readable.and_then(|()| tree_of_index(files)) {
            Ok(read) => read,
            Err(error) => {
                let state = self.database_state(&self.datadir.index_dir(), Err(error), is_held);
                let found = Survey {
                    // Its rows could not be read.
                    index: IndexState { state, ..IndexState::default() },
                    files: lengths.each().map(FilesState::of_lengths),
                    scripts: assumed.is_none().then(|| ScriptWork::of_all(lengths.blk.values().sum())),
                    unchecked: None,
                };
                return Ok((found, indexes::find(files, None, None, is_held, self.watch)?, None));
            }
        };
        let may_lack_blocks = index.pruned || second.is_some();
        let mut found = survey(files, &mut tree, &index.files, lengths, chainstate, assumed, may_lack_blocks);
        let [blocks, undo] = &mut found.files;
        if !is_held {
            survey::count_unknown(files, &index.files, &lengths.blk, index.pruned, blocks);
        }
        let best = chainstate.best_block;
        let branch = best.map_or_else(Vec::new, |best| tree.branch_to(&best));
        // A new chainstate would end with the last stored block.
        let end = best.or_else(|| tree.best_stored_chain().last().map(|&last| tree.hash(last)));
        let marked_invalid = end.and_then(|end| tree.marked_invalid(&end));
        let own = marked_invalid.map(|(_, hash, _)| hash);
        chainstate.marked_invalid = own.filter(|own| branch.iter().any(|&number| tree.hash(number) == *own));
        chainstate.time = branch.last().map(|&number| tree.time(number));
        let absent = branch.iter().rposition(|&number| tree.data_pos(number).is_none());
        let first_stored = Height(absent.map_or(0, |height| height as u32 + 1));
        let lacks_undo = |&number: &u32| tree.data_pos(number).is_some() && tree.undo_pos(number).is_none();
        let last_without = branch.iter().rposition(lacks_undo).unwrap_or_default();
        if index.pruned && undo.lost == 0 && last_without + KEPT_UNDO < branch.len() {
            // Blocks that are downloaded again get undo data last, and a pruned node does not need it.
            (undo.unrecorded, undo.first) = (0, None);
        }
        let indexes = indexes::find(files, Some((&tree, &index)), best, is_held, self.watch)?;
        // What a pruned node lacks of undo data matters only if bitcoind reads it when it starts.
        let is_known = blocks.lacking() > 0 || !index.pruned && undo.lacking() > 0;
        let headers = tree.best_headers();
        let (options, watch) = (&self.options.chain, self.watch);
        let reads = ReadAtStart { files, tree: &tree, index: &index, second, options, watch };
        let at_start = if is_held || is_known { None } else { reads.fault(&headers)? };
        // `deep` finds that too, and which blocks lie elsewhere.
        let is_found = |advice: &Advice| [Advice::Repair, Advice::MakeUndo].contains(advice);
        let at_start = at_start.filter(|fault| !self.options.deep || !is_found(&fault.advice));
        found.index = IndexState {
            is_pruned: index.pruned,
            first_stored,
            marked_invalid,
            left_at: left_at(files.params, &tree, &branch, marked_invalid),
            departed: index.departed,
            ..found.index
        };
        Ok((found, indexes, at_start))
    }

    /// Why bitcoind does not start with the chainstate of the snapshot.
    fn snapshot_error(&self, files: &Files<'_>) -> Result<Option<Error>, Error> {
        match check_start(files) {
            Ok(()) => Ok(None),
            Err(error) if error.kind == ErrorKind::Usage => Ok(Some(error)),
            // Another line reports a damaged database.
            Err(error) if error.kind == ErrorKind::Damaged => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the plan of a command that uses the block index, where `best` is the chainstate's best block. If
    /// that fails, the command would be refused.
    fn plan(&self, files: &Files<'_>, advice: &Advice, best: Option<BlockHash>) -> Result<(), Error> {
        let (mut chain, watch) = (self.options.chain.clone(), self.watch.without_events());
        if let Advice::Reconsider { block, .. } = advice {
            chain.reconsider = block.map(Reconsider::Block);
        }
        match advice {
            Advice::Reindex | Advice::Reconsider { block: Some(_), rebuilds: true } => {
                reindex::plan(files, &ReindexOptions::of(chain), &[], None, None, watch).map(drop)
            }
            Advice::Update | Advice::Reconsider { block: Some(_), rebuilds: false } => {
                update::open_chainstate(files)?;
                let above = ChainRequest { preferred: best, connected: best, ..ChainRequest::default() };
                let plan = job::plan(files, &chain, &ChainRequest { makes_undo: true, ..above }, watch)?;
                update::check(&plan, files).map(drop)
            }
            Advice::MakeUndo => job::plan_to_best_block(files, &chain, best, watch).map(drop),
            _ => Ok(()),
        }
    }

    fn leftovers(&self) -> Leftovers {
        let Self { disk, datadir, .. } = *self;
        let home = datadir.net_dir();
        let work = work_dir_of(disk, datadir, self.options.work_dir.as_deref());
        // What cannot be read is of no use for a later run either.
        let checkpoint = Checkpoint::read(disk, &work).ok().flatten();
        let is_other = |version: &String| *version != job::checkpoint::version(&self.options.chain);
        let done = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum();
        Leftovers {
            has_journal: replace::is_interrupted(disk, home).unwrap_or_default(),
            has_unfinished_databases: has_unfinished(disk, datadir).unwrap_or_default(),
            checkpoint_version: checkpoint.as_ref().map(|saved| saved.version.clone()).filter(is_other),
            checkpoint: checkpoint.map(|saved| (done(&saved.state.completed), saved.state.blocks)),
            has_made_undo: has_made_undo(disk, datadir).unwrap_or_default(),
            has_work_dirs: !WorkDir::left(disk, home).is_empty(),
        }
    }
}
