//! Shared by the tests of this crate: small chains as datadirs with an old chainstate, and runs that are
//! checked for changed files.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::new_without_default, reason = "helpers of tests are tests")]

pub mod damage;
pub mod faults;
pub mod hinted;
pub mod indexes;
pub mod lies;
pub mod matrix;
pub mod prelude;
pub mod ranges;
pub mod shell;
pub mod sync;
pub mod undo;
pub mod update;
pub mod ways;

use crate::prelude::*;
use disk::snapshot::{SnapshotReader, SnapshotWriter};
use testkit::{
    corrupt::{Files, snapshot, write_files},
    datadir::write_chainstate,
};

/// Numbers of threads for which results must be the same.
pub const THREADS: [usize; 3] = [1, 2, 8];

/// The datadirs that Core has written, with their networks.
pub const CORE_DATADIRS: [(&str, Network); 5] = [
    ("main", Network::Main),
    ("testnet3", Network::Test),
    ("signet", Network::Signet),
    ("regtest", Network::Regtest),
    ("regtest-siblings", Network::Regtest),
];

/// A new directory: in memory where possible, since these tests create many small files.
pub fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// Writes a file, and makes the folders that lead to it.
pub fn write_file(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Moves a folder elsewhere, and leaves a link to it.
pub fn link_away(folder: &Path, target: &Path) {
    copy_dir(folder, target).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    std::os::unix::fs::symlink(target, folder).unwrap();
}

/// Options for a generated chain.
pub fn options(root: &Path) -> ReindexOptions {
    ReindexOptions::new(root, Network::Regtest, ScriptChecks::LeftOut)
}

/// The same options, or the same datadir, after this change.
pub fn changed<T>(mut it: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut it);
    it
}

pub fn with_threads(options: &ReindexOptions, threads: usize) -> ReindexOptions {
    changed(options.clone(), |it| it.chain.threads = NonZeroUsize::new(threads).unwrap())
}

/// The same options, but undo data that is missing or damaged is an error.
pub fn trusting(options: &ReindexOptions) -> ReindexOptions {
    changed(options.clone(), |it| it.chain.undo = UndoPolicy::Trust)
}

/// The same options up to a height.
pub fn up_to(options: ReindexOptions, height: u32) -> ReindexOptions {
    changed(options, |it| it.chain.stop_at_height = Some(Height(height)))
}

/// The same, and the height may be below that of the chainstate.
pub fn lowered(options: ReindexOptions, height: u32) -> ReindexOptions {
    changed(up_to(options, height), |it| it.accept_lower_tip = true)
}

/// The same options, but the result goes to this directory.
pub fn elsewhere(options: ReindexOptions, output: &Path) -> ReindexOptions {
    ReindexOptions { output: Some(output.to_owned()), ..options }
}

/// Rebuilds on a disk whose syncs cost nothing.
pub fn run(options: &ReindexOptions) -> Result<ReindexReport, Error> {
    run_on(&FaultDisk::healthy(), options)
}

/// Rebuilds on this disk, which may interrupt it.
pub fn run_on(disk: &FaultDisk, options: &ReindexOptions) -> Result<ReindexReport, Error> {
    engine::reindex(disk, options, quiet(disk.interrupt()))
}

/// Runs something that is watched. Returns all events too.
pub fn seen<T>(run: impl FnOnce(Watch<'_>) -> T) -> (T, Vec<Event>) {
    let seen = Mutex::new(Vec::new());
    let sink = |event| seen.lock().unwrap().push(event);
    let done = run(Watch { sink: &sink, ..unwatched() });
    (done, seen.into_inner().unwrap())
}

/// Runs something that is interrupted as soon as it shows its progress in this stage, and asserts that this
/// ends it.
pub fn assert_shown_and_interrupted<T>(stage: Stage, run: impl FnOnce(Watch<'_>) -> Result<T, Error>) {
    let [is_there, interrupt] = [false; 2].map(AtomicBool::new);
    let sink = |event: Event| match event {
        Event::Started(begun) => is_there.store(begun == stage, Ordering::Relaxed),
        Event::Progress(_) | Event::Coins(_) => {
            interrupt.fetch_or(is_there.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        _ => {}
    };
    assert_fails(run(Watch { sink: &sink, interrupt: &interrupt }), ErrorKind::Interrupted, &[]);
}

/// Rebuilds on a disk whose syncs cost nothing. Returns all events too.
pub fn run_seen(options: &ReindexOptions) -> (Result<ReindexReport, Error>, Vec<Event>) {
    seen(|watch| engine::reindex(&FaultDisk::healthy(), options, watch))
}

/// The texts of notes and warnings.
pub fn notes(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| match event {
        Event::Note(note) => Some(note.to_string()),
        Event::Warning(warning) => Some(warning.to_string()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// The names of the stages that began.
pub fn stages(events: &[Event]) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::Started(stage) => Some(stage.name()),
        _ => None,
    };
    events.iter().filter_map(name).collect()
}

/// The same options, but the join is spilled after each block, and checkpoints are frequent.
pub fn bounded(options: &ReindexOptions) -> ReindexOptions {
    changed(options.clone(), |it| {
        it.chain.hooks.join_bytes = Some(1);
        it.chain.resume.checkpoint_interval = Duration::ZERO;
    })
}

/// Rebuilds, and is interrupted at the operation with this number, counting those that change something.
/// Returns the number of operations too.
pub fn run_until(options: &ReindexOptions, at: u64) -> (Result<ReindexReport, Error>, u64) {
    let disk = FaultDisk::interrupting_at(at);
    (run_on(&disk, options), disk.count())
}

/// Gives all that is below `dir` to `visit`, which says whether to go into a folder.
fn walk(dir: &Path, visit: &mut impl FnMut(&Path) -> bool) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if visit(&path) && path.is_dir() {
            walk(&path, visit);
        }
    }
}

/// Files of Peregrine below `dir` other than results.
pub fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(dir, &mut |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let is_left = ["peregrine", "exchange", "manifest"].iter().any(|word| name.contains(word));
        found.extend(is_left.then(|| path.to_owned()));
        !is_left
    });
    found
}

/// The text of an error as the user sees it, without the paths of this run.
pub fn error_text(error: &Error, root: &Path) -> String {
    format!("{:?} {}", error.kind, error.to_string().replace(&*root.to_string_lossy(), ""))
}

/// Statistics of the chainstate below `root`, after what a run has left is recovered.
pub fn stats(root: &Path, network: Network) -> Result<UtxoStatsReport, Error> {
    engine::recover(&FaultDisk::healthy(), &Location::new(root, network))?;
    let threads = NonZeroUsize::new(2).unwrap();
    let chainstate = ChainOptions { threads, ..ChainOptions::reading(root, network) };
    engine::utxo::stats(&FaultDisk::healthy(), &chainstate, true, unwatched())
}

/// Examines a datadir of regtest.
pub fn diagnosed(root: &Path, deep: bool) -> Diagnosis {
    examined(&DoctorOptions { deep, ..DoctorOptions::new(root, Network::Regtest) })
}

pub fn examined(options: &DoctorOptions) -> Diagnosis {
    engine::doctor::diagnose(&FaultDisk::healthy(), options, unwatched()).unwrap()
}

/// What does not look at a run, and never stops it.
pub fn unwatched() -> Watch<'static> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    quiet(&NEVER)
}

/// What does not look at a run, but may stop it.
pub fn quiet(interrupt: &AtomicBool) -> Watch<'_> {
    Watch { sink: &|_| {}, interrupt }
}

/// Directories, and files with their bytes.
pub type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The part of a tree in `dir`, with the paths from there.
pub fn below(tree: &Tree, dir: &Path) -> Tree {
    let inner = tree.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(dir).ok()?, bytes)));
    inner.map(|(path, bytes)| (path.to_owned(), bytes.clone())).collect()
}

/// What [`tree`] finds, with the paths from `dir`.
pub fn files(dir: &Path) -> Tree {
    let name = |path: PathBuf| path.strip_prefix(dir).unwrap().to_owned();
    tree(dir).into_iter().map(|(path, bytes)| (name(path), bytes)).collect()
}

/// Every directory and file below `dir`, with its bytes; lock files, which readers leave too, are left out.
pub fn tree(dir: &Path) -> Tree {
    let mut found = BTreeMap::new();
    walk(dir, &mut |path: &Path| {
        // The work directory of an interrupted run is beside the datadir's own files.
        if path.ends_with("peregrine-work") {
            return false;
        }
        if path.is_dir() {
            found.insert(path.to_owned(), None);
        } else if !path.ends_with(".lock") && !path.ends_with("LOCK") {
            // A dangling link has no bytes.
            let bytes = if path.is_symlink() { Vec::new() } else { std::fs::read(path).unwrap() };
            found.insert(path.to_owned(), Some(bytes));
        }
        true
    });
    found
}

/// Asserts that no file has changed. The panic message contains the names that differ, not all bytes.
pub fn assert_same_tree(before: &Tree, dir: &Path, what: &str) {
    let after = tree(dir);
    let names = before.keys().chain(after.keys());
    let differ: Vec<_> = names.filter(|name| before.get(*name) != after.get(*name)).collect();
    assert!(differ.is_empty(), "{what}: touched {differ:?}");
}

/// Asserts that a rebuild fails in this way, and changes nothing.
pub fn refused(options: &ReindexOptions, kind: ErrorKind, words: &[&str]) -> Error {
    refused_by(&options.chain.datadir, kind, words, || run(options))
}

/// Asserts that a command fails in this way, and changes nothing in the datadir.
pub fn refused_by<T>(
    root: &Path,
    kind: ErrorKind,
    words: &[&str],
    command: impl FnOnce() -> Result<T, Error>,
) -> Error {
    let before = tree(root);
    let error = assert_fails(command(), kind, words);
    assert_same_tree(&before, root, &error.to_string());
    error
}

/// Asserts that an error text contains all these words.
pub fn assert_mentions(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// Asserts that a run has failed with an error whose text contains all these words. Returns it.
pub fn assert_says<T>(done: Result<T, Error>, words: &[&str]) -> Error {
    let error = done.map(drop).unwrap_err();
    assert_mentions(&error, words);
    error
}

/// Asserts that a run has failed with this kind of error, whose text contains all these words. Returns it.
pub fn assert_fails<T>(done: Result<T, Error>, kind: ErrorKind, words: &[&str]) -> Error {
    let error = done.map(drop).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert_mentions(&error, words);
    error
}

pub fn assert_offers(error: &Error, remedies: &[Remedy]) {
    for remedy in remedies {
        assert!(error.remedies.contains(remedy), "no {remedy:?} in {:?}: {error}", error.remedies);
    }
}

/// The layout of the tests' datadirs: several files, out of order, obfuscated, not preallocated.
pub fn layout() -> Layout {
    Layout { file_size: 32 << 10, preallocate: false, ..Layout::new(7) }
}

/// A chain of several hundred kilobytes.
pub fn chain() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(TIP), ..ChainSpec::new(3, 300_000) }))
}

/// Height of its last block.
pub const TIP: u32 = 140;

/// Its block at a height.
pub fn block_at(height: u32) -> &'static GeneratedBlock {
    chain().main().nth(height as usize).unwrap()
}

/// Its last stale block below a height that follows a block of the main chain. It was never connected.
pub fn stale_below(height: u32) -> &'static GeneratedBlock {
    let is_sibling = |block: &&GeneratedBlock| {
        block.stale && block.height < height && block.header.prev == block_at(block.height - 1).hash
    };
    chain().blocks.iter().rfind(is_sibling).unwrap()
}

/// The model's statistics at each height, starting with the genesis block.
pub fn stats_by_height(chain: &Chain) -> Vec<ModelStats> {
    let mut model = Model::default();
    let apply = |block: &GeneratedBlock| {
        model.apply(&block.bytes, block.height);
        model.stats()
    };
    chain.main().map(apply).collect()
}

/// Regtest, in which Core's source has the hashes of UTXO sets after these blocks of its.
pub fn pinning(sets: Vec<PinnedUtxoSet>) -> &'static ChainParams {
    let params = ChainParams::of(Network::Regtest).clone();
    Box::leak(Box::new(ChainParams { assume_utxo: sets.leak(), ..params }))
}

/// A UTXO set after the block at a height of [`chain`].
pub fn pinned_set(height: u32, hash_serialized_3: [u8; 32]) -> PinnedUtxoSet {
    PinnedUtxoSet { height: Height(height), block_hash: block_at(height).hash, hash_serialized_3 }
}

/// Makes a snapshot of the block at a height of [`chain`].
pub fn snapshot_at(height: u32) -> (TempDir, PathBuf) {
    let (dir, case) = (scratch(), Case::new());
    let (file, options) = (dir.path().join("utxo.dat"), up_to(case.options(), height).chain);
    engine::snapshot::make(&FaultDisk::healthy(), &options, &file, unwatched()).unwrap();
    (dir, file)
}

/// A datadir of this chain, without a chainstate.
pub fn datadir_of(chain: &Chain) -> TempDir {
    let dir = scratch();
    chain.write_datadir(dir.path(), &layout()).unwrap();
    dir
}

/// The files of a datadir: made once, copied for each test.
pub struct Template(Files);

impl Template {
    /// A datadir of a chain, with a chainstate that is three blocks behind.
    pub fn of(chain: &Chain) -> Self {
        Self::laid_out(chain, &layout())
    }

    /// The same with another layout.
    pub fn laid_out(chain: &Chain, layout: &Layout) -> Self {
        let dir = scratch();
        chain.write_datadir(dir.path(), layout).unwrap();
        run(&up_to(options(dir.path()), chain.tip().height - 3)).unwrap();
        Self::copy_of(dir.path())
    }

    pub fn copy_of(root: &Path) -> Self {
        Self(snapshot(root).unwrap())
    }

    /// Copies the files to a new directory.
    pub fn case(&self) -> Case {
        let dir = scratch();
        write_files(&self.0, dir.path()).unwrap();
        Case { dir }
    }
}

/// A datadir with a chainstate that is three blocks behind.
pub struct Case {
    dir: TempDir,
}

impl Case {
    pub fn of(dir: TempDir) -> Self {
        Self { dir }
    }

    /// A datadir of [`chain`].
    pub fn new() -> Self {
        static TEMPLATE: OnceLock<Template> = OnceLock::new();
        TEMPLATE.get_or_init(|| Template::of(chain())).case()
    }

    /// The same with a chainstate at the last block.
    pub fn at_tip() -> Self {
        static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
            let case = Case::new();
            run(&case.options()).unwrap();
            Template::copy_of(case.root())
        });
        TEMPLATE.case()
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// A file below `regtest`.
    pub fn net(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join("regtest").join(name)
    }

    /// A file below `regtest/blocks`.
    pub fn blocks(&self, name: &str) -> PathBuf {
        self.net("blocks").join(name)
    }

    /// Default options for it.
    pub fn options(&self) -> ReindexOptions {
        options(self.root())
    }

    /// The same options with a scan.
    pub fn scan(&self) -> ReindexOptions {
        changed(self.options(), |it| it.chain.scan = true)
    }

    pub fn index(&self) -> disk::index::BlockIndex {
        disk::index::read_block_index(&vfs::RealDisk, &self.blocks("index")).unwrap()
    }

    /// Inverts a bit of the block at this height of the main chain, so many bytes behind its beginning.
    pub fn flip_block(&self, height: u32, at: u64) {
        let hit = entry(self, height);
        flip_bit(&blk(self, &hit), hit.data_pos.unwrap().0 + at, 3).unwrap();
    }

    /// Inverts a bit in the undo data of the block at this height of the main chain.
    pub fn flip_undo(&self, height: u32) {
        let hit = entry(self, height);
        flip_bit(&rev(self, &hit), hit.undo_pos.unwrap().0 + 1, 3).unwrap();
    }

    /// Lets rows of the block index have no position of undo data.
    pub fn forget_undo(&self, of: impl Fn(&IndexEntry) -> bool) {
        self.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| of(entry)) {
                (entry.undo_pos, entry.status.0) = (None, entry.status.0 & !BlockStatus::HAVE_UNDO);
            }
        });
    }

    /// Overwrites the first bytes of undo data, or what precedes them.
    pub fn spoil_undo(&self, of: impl Fn(&IndexEntry) -> bool) {
        for entry in self.index().entries.iter().filter(|entry| of(entry)) {
            let Some(pos) = entry.undo_pos else { continue };
            overwrite(&rev(self, entry), pos.0 - 8, &[0x55; 18]).unwrap();
        }
    }

    /// Leaves only the headers of blocks.
    pub fn forget_blocks(&self, of: impl Fn(&IndexEntry) -> bool) {
        self.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| of(entry)) {
                *entry = IndexEntry::of_header(entry.hash, entry.header, entry.height);
            }
        });
    }

    /// Changes the entry of the block at this height of the main chain.
    pub fn edit_entry(&self, height: u32, edit: impl FnOnce(&mut IndexEntry)) {
        let hash = block_at(height).hash;
        self.edit_index(|index| edit(index.entries.iter_mut().find(|entry| entry.hash == hash).unwrap()));
    }

    pub fn edit_index(&self, edit: impl FnOnce(&mut disk::index::BlockIndex)) {
        edit_index(&self.blocks("index"), edit).unwrap();
    }
}

/// A coin as files have it: outpoint, code, compressed output.
pub type StoredCoin = (OutPoint, u32, Vec<u8>);

fn owned((outpoint, coin): (OutPoint, Coin<'_>)) -> StoredCoin {
    (outpoint, coin.code, coin.out.to_vec())
}

/// All coins of its chainstate in key order.
pub fn stored_coins(case: &Case) -> Vec<StoredCoin> {
    let reader = ChainstateReader::open(&vfs::RealDisk, &case.net("chainstate")).unwrap();
    let mut cursor = reader.coins().unwrap();
    std::iter::from_fn(|| cursor.advance().unwrap().map(owned)).collect()
}

/// Rewrites its chainstate with these coins.
pub fn rewrite_chainstate(case: &Case, mut coins: Vec<StoredCoin>) {
    let dir = case.net("chainstate");
    let best = ChainstateReader::open(&vfs::RealDisk, &dir).unwrap().best_block();
    std::fs::remove_dir_all(&dir).unwrap();
    coins.sort_by(|a, b| chainstate_key_order(&a.0, &b.0));
    let coins = coins.iter().map(|(outpoint, code, out)| (*outpoint, Coin { code: *code, out }));
    write_chainstate(&FaultDisk::healthy(), &dir, [7; 8], best, coins).unwrap();
}

pub fn snapshot_coins(path: &Path) -> Vec<StoredCoin> {
    let mut reader = SnapshotReader::open(&vfs::RealDisk, path).unwrap();
    std::iter::from_fn(|| reader.advance().unwrap().map(owned)).collect()
}

/// Writes a snapshot of the block `base` of regtest with these coins.
pub fn write_snapshot(path: &Path, base: BlockHash, coins: &[StoredCoin]) {
    let (disk, count) = (FaultDisk::healthy(), coins.len() as u64);
    let mut writer = SnapshotWriter::create(&disk, path, Network::Regtest.magic(), base, count).unwrap();
    for (outpoint, code, out) in coins {
        writer.add(outpoint, &Coin { code: *code, out }).unwrap();
    }
    writer.finish().unwrap();
}

/// The index entry of the block at `height` of the main chain.
pub fn entry(case: &Case, height: u32) -> IndexEntry {
    let hash = block_at(height).hash;
    *case.index().entries.iter().find(|entry| entry.hash == hash).unwrap()
}

pub fn blk(case: &Case, entry: &IndexEntry) -> PathBuf {
    case.blocks(&format!("blk{:05}.dat", entry.file.unwrap().0))
}

pub fn rev(case: &Case, entry: &IndexEntry) -> PathBuf {
    case.blocks(&format!("rev{:05}.dat", entry.file.unwrap().0))
}

/// Asserts that an error names a file, a byte and a block, and what helps.
pub fn assert_names(error: &Error, file: &Path, height: u32) {
    assert_eq!(error.file.as_deref(), Some(file), "{error}");
    assert_eq!(error.height, Some(Height(height)), "{error}");
    assert!(error.offset.is_some(), "{error}");
    let is_block = file.file_name().unwrap().to_string_lossy().starts_with("blk");
    let helps = if is_block {
        "rebuild the chainstate up to the block below"
    } else {
        "make the undo data that is missing or damaged"
    };
    assert_mentions(error, &[helps, &format!("height {height}")]);
}

/// Height of a block with witnesses and spends, in the middle of the chain, and neither first nor last in its
/// file.
pub const BUSY: u32 = 125;
