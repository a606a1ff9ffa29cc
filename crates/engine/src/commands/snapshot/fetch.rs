//! Joins a snapshot from the chunks of several sources, none of which is trusted: each chunk is proven by its
//! leaf, the leaves by the Merkle root.
//!
//! What vouches for the root is one of these: the caller, who has it from elsewhere; Core's source, which has
//! the hash of the joined coins; or nothing, if the caller trusts the sources. The chunks are joined in a
//! file with a suffix. It stays when the run ends early, and its chunks that match their leaves are not
//! fetched again.

use super::source::Source;
use api::{
    disk_need::check_space,
    error::{Error, ErrorKind},
    event::{Event, Watch},
    hex_reversed,
    note::Note,
    options::FileSource,
    remedy::Remedy,
    size::HumanSize,
    stage::Stage,
};
use chain::threads::{each_number, lock};
use disk::{
    snapshot::{SNAPSHOT_MAGIC, SnapshotMetadata, SnapshotReader, SnapshotWriter},
    utxo_tree::UtxoTree,
};
use pipeline::{
    job::read_only_job::require_absent,
    stages::{coin_hash::CoinHash, coin_reader::each_coin},
};
use rules::{ChainParams, params::PinnedUtxoSet};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use vfs::{AtomicFile, Disk, During as _, ReadAt, WriteAt, dir_of, rename_new, sync_dir_of, unfinished};
use wire::{BlockHash, Height, Network};

/// Suffix of the file in which chunks are joined. No other program uses it.
const SUFFIX: &str = ".peregrine-fetch";
/// Maximum length of a snapshot that only its coins can prove, which come last: twice that of mainnet's.
const MAX_UNPROVEN_LEN: u64 = 25_000_000_000;
/// Maximum number of faults of a source that are reported.
const MAX_FAULTS: u64 = 20;
/// So many seconds for a chunk weigh as much as a failure when the next source is chosen.
const DELAY_SECONDS: u64 = 5;
/// Maximum number of chunks that are fetched at once.
const MAX_FETCHERS: usize = 4;
/// Interval between two notes about the chunks.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Options of [`crate::snapshot::fetch()`].
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Where the chunks are: folders of them, also on other machines, or snapshot files with a `utxotree`
    /// beside them. Each chunk is taken from the first source that has failed and delayed least.
    pub sources: Vec<FileSource>,
    /// The file to write.
    pub output: PathBuf,
    /// The Merkle root, in internal byte order. All coins rest on it.
    pub root: Option<[u8; 32]>,
    /// Accept any root for a block whose UTXO set has no hash in Core's source.
    pub trust_sources: bool,
    /// Maximum number of threads; at most four are used.
    pub threads: NonZeroUsize,
    /// Length of a chunk in bytes: [`disk::utxo_tree::CHUNK_LEN`], but in tests.
    pub chunk_len: u64,
}

api::reported! {
/// Result of [`crate::snapshot::fetch()`].
#[derive(Clone, Debug)]
pub struct FetchedSnapshotReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the block; `None` if only its hash is known.
    pub height: Option<Height>,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of coins.
    pub coins: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of these that had been fetched before: by an earlier run, or from sources with another tree.
    pub chunks_kept: u64,
    /// Merkle root of the chunks, in internal byte order.
    pub merkle_root with "api::json::HashText": [u8; 32],
    /// Whether the caller gave that root.
    pub is_root_given: bool,
    /// `hash_serialized_3` of the set, in internal byte order.
    pub hash_serialized_3 with "api::json::HashText": [u8; 32],
    /// Whether Core's source pins this hash for this block. False if it pins none; if it pins another one,
    /// there is no file.
    pub is_pinned as "matches_core_assumeutxo_hash" with "api::json::TrueOrNull": bool,
    /// Whether the chunks had the height of the block before its hash, as the draft of BIP 452 has it. The
    /// file does not: Core reads none.
    pub height_removed: bool,
    /// What was wrong with sources, in the order of chunks.
    pub faults: Vec<SourceFault>,
}

/// Something wrong with a source.
#[derive(Clone, Debug)]
pub struct SourceFault {
    /// The folder, file or URL.
    pub source: String,
    /// Index of the chunk; `None` for the tree.
    pub chunk: Option<u64>,
    /// What is wrong.
    pub error: Error,
}
}

/// Fetches, proves and joins the chunks of a snapshot. On failure, there is no file at the output's path; the
/// chunks that were proven stay beside it for the next run, unless they make up no snapshot.
///
/// # Errors
/// [`ErrorKind::Usage`] if nothing vouches for the root, or the sources state different ones;
/// [`ErrorKind::Damaged`] if no source has a chunk, or the joined coins are not well-formed, or not those
/// whose hash Core's source has; [`ErrorKind::Environment`]; [`ErrorKind::Interrupted`].
pub fn fetch(
    disk: &dyn Disk,
    options: &FetchOptions,
    watch: Watch<'_>,
) -> Result<FetchedSnapshotReport, Error> {
    require_absent(disk, &options.output)?;
    let output = unfinished::target(disk, &options.output)?;
    let options = &FetchOptions { output, ..options.clone() };
    let all =
        options.sources.iter().map(|source| Source::new(disk, source)).collect::<Result<Vec<_>, _>>()?;
    let mut faults = Vec::new();
    let mut failed = None;
    let mut trees = find_trees(options, all, &mut faults, watch.interrupt)?;
    // If all fail, the error is that of the tree that most sources have: another one may be a lie.
    trees.sort_by_key(|(_, sources)| Reverse(sources.len()));
    let is_only = trees.len() == 1;
    for with_tree in trees {
        match fetch_from(disk, options, with_tree, is_only, &mut faults, watch) {
            Err(error) if error.kind != ErrorKind::Interrupted => failed = failed.or(Some(error)),
            done => return done,
        }
    }
    Err(failed.unwrap_or_else(|| Error::usage("there is no source").with_remedies([Remedy::AddSource])))
}

/// After a sync that failed, only memory has what an earlier run has written, which is not to be believed.
/// Not to be called under the lock, which ends when the file is closed.
fn forget_unsynced(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    match disk.sync_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        synced => synced.during("sync", path)?,
    }
    disk.forget_cached(path);
    Ok(())
}

/// Fetches from the sources that have the same tree. On failure, that is a fault of each. `is_only`: there is
/// no other tree with the same root, and so with the same chunks.
fn fetch_from(
    disk: &dyn Disk,
    options: &FetchOptions,
    (tree, sources): WithTree<'_>,
    is_only: bool,
    faults: &mut Vec<SourceFault>,
    watch: Watch<'_>,
) -> Result<FetchedSnapshotReport, Error> {
    let temporary = unfinished::temporary(&options.output, SUFFIX);
    if let Some(what) = foreign_at(disk, &temporary)? {
        let error = Error::environment(format!("{what} has the name of a temporary file"));
        return Err(error.in_file(temporary, None).with_remedies([Remedy::MoveAway, Remedy::OtherOutput]));
    }
    forget_unsynced(disk, &temporary)?;
    // Before the lock, another run can give this file its name.
    let _lock = unfinished::lock(disk, &temporary, unfinished::IN_USE)?;
    let file = disk.open_for_writing(&temporary).during_creation(&temporary)?;
    let old = disk.open(&temporary).during("open for reading", &temporary)?;
    require_absent(disk, &options.output).inspect_err(|_| {
        if old.is_empty().unwrap_or_default() {
            let _ = disk.remove_file(&temporary);
        }
    })?;
    let fetch = Fetch {
        old_len: old.len().during("find the length", &temporary)?,
        options,
        tree,
        sources,
        temporary,
        old,
        file: Mutex::new(file),
        kept: AtomicU64::new(0),
        done: AtomicU64::new(0),
        noted: Mutex::new(Instant::now()),
        stop: AtomicBool::new(false),
        missing: Mutex::default(),
        faults: Mutex::new(std::mem::take(faults)),
        watch,
    };
    let begun = fetch.begin(disk).inspect_err(|_| {
        // What an earlier run has fetched stays, in a file that the next run takes for its own. To open it
        // once more would end the lock.
        let mut start = [0; SNAPSHOT_MAGIC.len()];
        if fetch.old.read_exact_at(&mut start, 0).is_ok() && start != SNAPSHOT_MAGIC {
            let _ = lock(&fetch.file).write_all_at(&[0; SNAPSHOT_MAGIC.len()], 0);
        }
    });
    let has_begun = begun.is_ok();
    let joined = begun.and_then(|()| fetch.join()).inspect_err(|_| {
        if fetch.old_len == 0 && (!has_begun || fetch.done.load(Ordering::Relaxed) == 0) {
            let _ = disk.remove_file(&fetch.temporary);
        }
    });
    let prove = || {
        fetch.prove(disk).inspect_err(|error| {
            // Chunks that make up no snapshot are removed: otherwise the next run would fail in the same way.
            // They may make up that of another tree. An output that exists meanwhile is no fault of theirs.
            let is_elsewhere =
                matches!(error.kind, ErrorKind::Interrupted | ErrorKind::Environment | ErrorKind::Usage);
            if is_only && !is_elsewhere {
                let _ = disk.remove_file(&fetch.temporary);
            }
        })
    };
    joined.and_then(|()| prove()).inspect_err(|error| {
        let names = fetch.sources.iter().map(Source::name);
        *faults = std::mem::take(&mut *lock(&fetch.faults));
        faults.extend(names.map(|source| SourceFault { source, chunk: None, error: error.clone() }));
    })
}

/// Returns what is at `path`, unless it is a snapshot with missing chunks.
fn foreign_at(disk: &dyn Disk, path: &Path) -> Result<Option<&'static str>, Error> {
    if disk.is_link(path).during("look at", path)? {
        return Ok(Some("a symbolic link"));
    }
    let Some(found) = disk.metadata(path).during("look for", path)? else { return Ok(None) };
    if found.is_dir {
        return Ok(Some("a directory"));
    }
    let mut start = vec![0; found.len.min(SNAPSHOT_MAGIC.len() as u64) as usize];
    disk.open(path).and_then(|file| file.read_exact_at(&mut start, 0)).during("read", path)?;
    // The first chunk may be missing.
    let is_own = SNAPSHOT_MAGIC.starts_with(&start) || start.iter().all(|&byte| byte == 0);
    Ok((!is_own).then_some("a file of another program"))
}

/// A tree, and the sources that have it.
type WithTree<'a> = (UtxoTree, Vec<Source<'a>>);

/// Returns the trees that may be taken, in the order of their first sources. They are several only if the
/// root is given: it commits neither to the block nor to the length.
fn find_trees<'a>(
    options: &FetchOptions,
    all: Vec<Source<'a>>,
    faults: &mut Vec<SourceFault>,
    interrupt: &AtomicBool,
) -> Result<Vec<WithTree<'a>>, Error> {
    let mut trees: Vec<WithTree<'_>> = Vec::new();
    for source in all {
        let mut fault = |error| faults.push(SourceFault { source: source.name(), chunk: None, error });
        let tree = match source.tree(options.chunk_len, interrupt) {
            Ok(tree) => tree,
            Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                fault(error);
                continue;
            }
        };
        let root = tree.root();
        if let Some(wanted) = options.root.filter(|wanted| *wanted != root) {
            let (root, wanted) = (hex_reversed(&root), hex_reversed(&wanted));
            let detail = format!("its tree has the root {root}, not {wanted}");
            fault(Error::damaged(detail).in_file(source.name(), None));
            continue;
        }
        if options.root.is_none() && !options.trust_sources && tree.len > MAX_UNPROVEN_LEN {
            let [len, max] = [tree.len, MAX_UNPROVEN_LEN].map(HumanSize);
            let detail = format!("its tree is of {len}, and without a root at most {max} are fetched");
            fault(Error::damaged(detail).in_file(source.name(), None).with_remedies([Remedy::NameRoot]));
            continue;
        }
        match trees.iter_mut().find(|(other, _)| *other == tree) {
            Some((_, sources)) => sources.push(source),
            None => trees.push((tree, vec![source])),
        }
    }
    if let (None, Some(fault)) = (trees.first(), faults.first()) {
        return Err(fault.error.clone().with_remedies([Remedy::AddSource]));
    }
    if options.root.is_some() {
        return Ok(trees);
    }
    let source_of = |sources: &[Source<'_>]| sources.first().map(Source::name).unwrap_or_default();
    if let [(first, of_first), (tree, sources), ..] = &trees[..] {
        let detail = format!(
            "it has the tree of block {} with the root {}, while {} has that of block {} with the root {}",
            tree.block,
            hex_reversed(&tree.root()),
            source_of(of_first),
            first.block,
            hex_reversed(&first.root())
        );
        let error = Error::usage(detail).in_file(source_of(sources), None);
        return Err(error.with_remedies([Remedy::NameRoot]));
    }
    if let [(tree, sources)] = &trees[..]
        && !options.trust_sources
        && pinned(&tree.block).is_none()
    {
        let detail = format!(
            "nothing vouches for these coins: Bitcoin Core's source has no hash for the coins of block {}",
            tree.block
        );
        let error = Error::usage(detail).in_file(source_of(sources), None);
        return Err(error.with_remedies([Remedy::NameRoot, Remedy::TrustSources]));
    }
    Ok(trees)
}

/// Returns what Core's source has of a block, of whatever network.
fn pinned(block: &BlockHash) -> Option<&'static PinnedUtxoSet> {
    Network::ALL.into_iter().find_map(|network| ChainParams::of(network).pinned_utxo_set(block))
}

struct Fetch<'a> {
    options: &'a FetchOptions,
    tree: UtxoTree,
    sources: Vec<Source<'a>>,
    /// The file in which chunks are joined, what it has, and had before.
    temporary: PathBuf,
    old: Box<dyn ReadAt>,
    old_len: u64,
    file: Mutex<Box<dyn WriteAt>>,
    /// Numbers of chunks that an earlier run has fetched, and that are in the file.
    kept: AtomicU64,
    done: AtomicU64,
    noted: Mutex<Instant>,
    stop: AtomicBool,
    /// Why no source has a chunk, by its index.
    missing: Mutex<BTreeMap<u32, Error>>,
    faults: Mutex<Vec<SourceFault>>,
    watch: Watch<'a>,
}

impl Fetch<'_> {
    fn chunks(&self) -> u64 {
        self.tree.leaves.len() as u64
    }

    /// Fetches the first chunk, and checks that its metadata fit the tree, and the snapshot the disk.
    fn begin(&self, disk: &dyn Disk) -> Result<(), Error> {
        self.watch.sink.event(Event::Started(Stage::Download));
        self.work(0).map_err(|error| self.with_what_is_kept(error))?;
        if !lock(&self.missing).is_empty() {
            // Only a root, or trust, proves the others without it.
            let proves = self.options.root.is_some() || self.options.trust_sources;
            self.stop.fetch_or(!proves, Ordering::Relaxed);
            return Ok(());
        }
        let metadata = SnapshotMetadata::read(&*self.old, &self.temporary, self.tree.len);
        let metadata = metadata.map_err(|error| self.no_snapshot(error.into()))?;
        self.check_block(&metadata)?;
        let written = self.old.len().during("find the length", &self.temporary)?;
        // The draft's form is written anew.
        let copy = if metadata.base_height.is_some() { self.tree.len } else { 0 };
        let need = self.tree.len.saturating_sub(written) + copy;
        let needs = format!("the snapshot needs {}", HumanSize(need));
        check_space(disk, &[(dir_of(&self.options.output), need, &[Remedy::OtherOutput])], &needs)
    }

    /// Fetches the other chunks that are not in the file yet.
    fn join(&self) -> Result<(), Error> {
        if self.old_len > self.tree.len {
            lock(&self.file).truncate(self.tree.len).during("cut", &self.temporary)?;
        }
        let threads = self.options.threads.get().min(MAX_FETCHERS);
        // The longest tree has 125,000 leaves.
        let others = self.chunks().saturating_sub(1) as u32;
        each_number(threads, others, || (), |(), index| self.work(index + 1))
            .map_err(|error| self.with_what_is_kept(error))?;
        let mut missing = lock(&self.missing);
        let number = missing.len();
        if let Some((_, mut error)) = missing.pop_first() {
            if number > 1 {
                error.detail = format!("{} ({number} chunks are missing)", error.detail);
            }
            let error = self.with_what_is_kept(error.without_remedies());
            return Err(error.with_remedies([Remedy::AddSource, Remedy::RepeatOptions]));
        }
        Ok(lock(&self.file).sync().during("sync", &self.temporary)?)
    }

    /// Adds what the next run need not fetch to an error; replaces the words of an interrupt.
    fn with_what_is_kept(&self, mut error: Error) -> Error {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.chunks());
        if done == 0 && self.old_len == 0 {
            return error;
        }
        let kept = format!("{done} of {total} chunks are proven and kept in {}", self.temporary.display());
        if error.kind == ErrorKind::Interrupted {
            error.detail = format!("interrupted; {kept}");
            return error.with_remedies([Remedy::RepeatOptions]);
        }
        error.detail = format!("{}; {kept}", error.detail);
        error
    }

    /// Takes a chunk, or notes why no source has it.
    fn work(&self, index: u32) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.take(u64::from(index))? {
            None => self.count(),
            Some(error) => {
                // If no source can be reached, the other chunks would only take long to fail.
                if error.kind == ErrorKind::Environment {
                    self.stop.store(true, Ordering::Relaxed);
                }
                lock(&self.missing).insert(index, error);
            }
        }
        Ok(())
    }

    fn count(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(mut noted) = self.noted.try_lock() else { return };
        if noted.elapsed() >= NOTE_INTERVAL {
            *noted = Instant::now();
            let note = Note::FetchingChunks { chunks: done, chunks_total: self.chunks() };
            self.watch.sink.event(Event::Note(note));
        }
    }

    /// Puts a chunk into the file, unless it is there. Returns why no source has it.
    fn take(&self, index: u64) -> Result<Option<Error>, Error> {
        Error::check_interrupt(self.watch.interrupt)?;
        let range = self.tree.range(index);
        if range.end <= self.old_len {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
            // What cannot be read is fetched.
            let read = self.old.read_exact_at(&mut bytes, range.start);
            if read.is_ok() && self.tree.check(index, &bytes).is_ok() {
                self.kept.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
        }
        let mut order: Vec<&Source<'_>> = self.sources.iter().collect();
        order.sort_by_cached_key(|source| {
            source.failures.load(Ordering::Relaxed) + source.delays.load(Ordering::Relaxed)
        });
        let mut last = None;
        for source in order {
            let asked = Instant::now();
            let found = self.proven_chunk(source, index);
            source.delays.fetch_add(asked.elapsed().as_secs() / DELAY_SECONDS, Ordering::Relaxed);
            let error = match found {
                Ok(bytes) => {
                    lock(&self.file).write_all_at(&bytes, range.start).during("write", &self.temporary)?;
                    return Ok(None);
                }
                Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                Err(error) => error,
            };
            if source.failures.fetch_add(1, Ordering::Relaxed) < MAX_FAULTS {
                let fault = SourceFault { source: source.name(), chunk: Some(index), error: error.clone() };
                lock(&self.faults).push(fault);
            }
            // That a source cannot be reached says less than that a chunk is wrong.
            last = last.filter(|before: &Error| before.kind == ErrorKind::Damaged).or(Some(error));
        }
        Ok(last)
    }

    /// Returns a chunk of a source that has the hash of its leaf.
    fn proven_chunk(&self, source: &Source<'_>, index: u64) -> Result<Vec<u8>, Error> {
        let range = self.tree.range(index);
        let place = format!("chunk {index} (from byte {} of the snapshot): ", range.start);
        let in_place = |mut error: Error| {
            error.detail = format!("{place}{}", error.detail);
            if error.file.is_none() { error.in_file(source.name(), None) } else { error }
        };
        let bytes = source.chunk(&self.tree, index, self.watch.interrupt).map_err(in_place)?;
        self.tree.check(index, &bytes).map(|()| bytes).map_err(|other| {
            let flaw = match other {
                Some(other) => format!("it is chunk {other}"),
                None => "it does not have the hash that the tree has for it".to_owned(),
            };
            in_place(Error::damaged(flaw))
        })
    }

    /// Reads the joined coins, compares their hash with what is known of it, and puts the file in place.
    fn prove(&self, disk: &dyn Disk) -> Result<FetchedSnapshotReport, Error> {
        let Self { options, tree, temporary, watch, .. } = self;
        watch.sink.event(Event::Started(Stage::Prove));
        let mut reader =
            SnapshotReader::open(disk, temporary).map_err(|error| self.no_snapshot(error.into()))?;
        let metadata = *reader.metadata();
        let pinned = self.check_block(&metadata)?;
        // Core's form has another length, and all that follows is at other offsets.
        let (block, count) = (metadata.base_block, metadata.coins);
        let create = |_| SnapshotWriter::create(disk, &options.output, metadata.magic, block, count);
        let mut writer = metadata.base_height.map(create).transpose()?;
        let mut hash = CoinHash::new();
        let read = each_coin(&mut reader, count, *watch, |outpoint, coin| {
            hash.add(outpoint, coin)?;
            Ok(writer.as_mut().map_or(Ok(()), |writer| writer.add(outpoint, coin))?)
        });
        let coins = read.map_err(|error| match error.kind {
            ErrorKind::Interrupted => self.with_what_is_kept(error),
            _ => self.no_snapshot(error),
        })?;
        let hash_serialized_3 = hash.finish();
        if let Some(pinned) = pinned.filter(|pinned| pinned.hash_serialized_3 != hash_serialized_3) {
            let found = hex_reversed(&hash_serialized_3);
            let expected = hex_reversed(&pinned.hash_serialized_3);
            return Err(self.wrong(format!(
                "the coins have the hash {found}, but Bitcoin Core's source has {expected} for their block; \
                 they are forged, get them from elsewhere"
            )));
        }
        let bytes = self.put_in_place(disk, writer)?;
        let mut faults = std::mem::take(&mut *lock(&self.faults));
        faults.sort_by_key(|fault| fault.chunk);
        Ok(FetchedSnapshotReport {
            network: metadata.network(),
            height: pinned.map(|pinned| pinned.height).or(metadata.base_height),
            hash: block,
            coins,
            bytes,
            chunks: self.chunks(),
            chunks_kept: self.kept.load(Ordering::Relaxed),
            merkle_root: tree.root(),
            is_root_given: options.root.is_some(),
            hash_serialized_3,
            is_pinned: pinned.is_some(),
            height_removed: metadata.base_height.is_some(),
            faults,
        })
    }

    /// Returns what Core's source has of the block of the joined coins, which must be that of the tree.
    fn check_block(&self, metadata: &SnapshotMetadata) -> Result<Option<&'static PinnedUtxoSet>, Error> {
        let (block, params) = (metadata.base_block, ChainParams::of(metadata.network()));
        if block != self.tree.block {
            let of_tree = self.tree.block;
            return Err(self.wrong(format!("the coins are those of block {block}, the tree is of {of_tree}")));
        }
        // A custom signet has another magic, and other coins.
        let pinned = params.pinned_utxo_set(&block).filter(|_| params.magic == metadata.magic);
        if pinned.is_none() && self.options.root.is_none() && !self.options.trust_sources {
            let magic = u32::from_be_bytes(metadata.magic);
            let detail = format!("the magic {magic:08x} is not that of the network of block {block}");
            return Err(self.wrong(detail));
        }
        pinned
            .map_or(Ok(()), |pinned| metadata.check_height(Path::new(&self.tree_source()), pinned.height))?;
        Ok(pinned)
    }

    /// Completes the file that is written anew, or gives the joined chunks their name. Returns the length.
    fn put_in_place(
        &self,
        disk: &dyn Disk,
        writer: Option<SnapshotWriter<AtomicFile<'_>>>,
    ) -> Result<u64, Error> {
        let (temporary, output) = (&self.temporary, &self.options.output);
        if let Some(writer) = writer {
            let bytes = writer.finish()?;
            // The output is complete: nothing depends on it.
            let _ = disk.remove_file(temporary);
            return Ok(bytes);
        }
        rename_new(disk, temporary, output)?;
        sync_dir_of(disk, output)?;
        Ok(self.tree.len)
    }

    /// The name of the first source whose tree was taken.
    fn tree_source(&self) -> String {
        self.sources.first().map(Source::name).unwrap_or_default()
    }

    /// The error for joined chunks that are wrong although each has the hash of its leaf.
    fn wrong(&self, detail: String) -> Error {
        Error::damaged(detail).in_file(self.tree_source(), None)
    }

    /// Turns damage to the joined chunks into an error about the sources.
    fn no_snapshot(&self, mut error: Error) -> Error {
        if error.kind == ErrorKind::Damaged {
            error.detail = format!("the chunks are those of their tree, but no snapshot: {}", error.detail);
            error.file = Some(self.tree_source().into());
        }
        error
    }
}
