//! Downloads from scripted peers, and what they must leave.

use super::undo;
use crate::prelude::*;
use engine::{EventSink, hints::HintOptions, verify};
use sync::{PeerEvent, PeerOptions, SyncSink, sync};
use testkit::corrupt;

/// Time that no step of a test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The tests' chain as peers have it.
pub fn served() -> Arc<ServedChain> {
    static SERVED: OnceLock<Arc<ServedChain>> = OnceLock::new();
    Arc::clone(SERVED.get_or_init(|| serving(chain().main())))
}

/// A chain of these blocks.
pub fn serving<'a>(blocks: impl IntoIterator<Item = &'a GeneratedBlock>) -> Arc<ServedChain> {
    Arc::new(ServedChain::of(blocks))
}

/// An honest peer with the tests' chain.
pub fn honest() -> ScriptedPeer {
    ScriptedPeer::start(&served(), Fault::None)
}

/// [`TIP`] as an index of blocks.
pub fn tip() -> usize {
    TIP as usize
}

/// The blocks of the tests' chain up to a height.
pub fn main_to(height: usize) -> Vec<GeneratedBlock> {
    chain().main().take(height + 1).cloned().collect()
}

/// The same, for siblings of all blocks above `fork`.
pub fn branch(fork: usize, height: usize) -> Vec<GeneratedBlock> {
    branch_of(main_to(height), fork, |block| sibling(block, 7, |_| {}))
}

/// The same, whose block at height `invalid` pays its coinbase too much.
pub fn greedy_branch(fork: usize, invalid: usize, height: usize, number: u64) -> Vec<GeneratedBlock> {
    branch_of(main_to(height), fork, |block| match block.height as usize == invalid {
        true => greedy_sibling(block, number),
        false => sibling(block, number, |_| {}),
    })
}

/// A chain with others in the place of all blocks above `fork`.
pub fn branch_of(
    mut blocks: Vec<GeneratedBlock>,
    fork: usize,
    other: impl Fn(&GeneratedBlock) -> GeneratedBlock,
) -> Vec<GeneratedBlock> {
    let onto = blocks[fork].hash;
    blocks[fork + 1..].iter_mut().for_each(|block| *block = other(block));
    rebase(blocks[fork + 1..].iter_mut(), onto);
    blocks
}

/// A small chain with some spends, without stale blocks.
pub fn tiny() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    let spec = ChainSpec { blocks: Some(112), stale: false, ..ChainSpec::new(21, 40_000) };
    CHAIN.get_or_init(|| Chain::generate(&spec))
}

/// Number of its blocks above the genesis block.
pub fn tiny_blocks() -> usize {
    tiny().main().count() - 1
}

/// An honest peer with it.
pub fn tiny_peer() -> ScriptedPeer {
    peer_with(tiny().main())
}

/// Options for a download from these peers.
pub fn from(root: &Path, peers: &[&ScriptedPeer]) -> SyncOptions {
    let connect = peers.iter().map(|peer| peer.target()).collect();
    let peers = PeerOptions { connect, use_dns_seeds: false, ..PeerOptions::default() };
    SyncOptions { peers, ..SyncOptions::new(root, Network::Regtest, ScriptChecks::LeftOut) }
}

/// The same up to a height.
pub fn from_to(root: &Path, peers: &[&ScriptedPeer], height: u32) -> SyncOptions {
    changed(from(root, peers), |it| it.chain.stop_at_height = Some(Height(height)))
}

/// Options for a repair from these peers.
pub fn repairing(root: &Path, peers: &[&ScriptedPeer]) -> RepairOptions {
    let peers = from(root, peers).peers;
    RepairOptions { peers, ..RepairOptions::new(root, Network::Regtest, ScriptChecks::LeftOut) }
}

/// Repairs on a disk.
pub fn repair_on(disk: &dyn Disk, options: &RepairOptions) -> Result<RepairReport, Error> {
    ::sync::repair(disk, options, &|_| {}, &AtomicBool::new(false))
}

/// The same on a disk whose syncs cost nothing.
pub fn try_repair(options: &RepairOptions) -> Result<RepairReport, Error> {
    repair_on(&FaultDisk::healthy(), options)
}

/// The same options, where twenty seconds of the peers pass in each second.
pub fn impatient(mut options: SyncOptions) -> SyncOptions {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    options.chain.hooks.now = || *START + START.elapsed() * 20;
    options
}

/// Hints in a file, with which no undo data is made.
pub fn hints_of(file: PathBuf, aggregate: AggregateKind) -> HintOptions {
    let file = FileSource::Path(file);
    let (format, wanted_indexes) = Default::default();
    HintOptions { file, format, aggregate, without_undo: true, on_failure_join: false, wanted_indexes }
}

/// What a download reported while it ran.
#[derive(Default)]
pub struct Seen {
    closed: Mutex<Vec<(String, String)>>,
    notes: Mutex<Vec<Note>>,
    invalid: Mutex<Vec<BlockHash>>,
    /// How the run ended.
    end: OnceLock<String>,
}

impl EventSink for Seen {
    fn event(&self, event: Event) {
        match event {
            Event::Note(note) => self.notes.lock().unwrap().push(note),
            Event::Warning(Warning::InvalidBlock { hash, .. }) => self.invalid.lock().unwrap().push(hash),
            _ => {}
        }
    }
}

impl SyncSink for Seen {
    fn peer(&self, event: PeerEvent) {
        if let PeerEvent::Closed { peer, reason } = event {
            self.closed.lock().unwrap().push((peer, reason));
        }
    }
}

impl Seen {
    pub fn notes_about(&self, peer: &ScriptedPeer) -> Vec<String> {
        let (notes, name) = (self.notes.lock().unwrap(), peer.address().to_string());
        notes.iter().map(ToString::to_string).filter(|note| note.contains(&name)).collect()
    }

    /// Why connections to a peer were closed.
    pub fn reasons(&self, peer: &ScriptedPeer) -> Vec<String> {
        let (closed, name) = (self.closed.lock().unwrap(), peer.address().to_string());
        closed.iter().filter(|(closed, _)| *closed == name).map(|(_, reason)| reason.clone()).collect()
    }

    /// How many blocks were read again because their files had changed.
    pub fn read_again(&self) -> usize {
        let notes = self.notes.lock().unwrap();
        notes.iter().map(|note| if let Note::FilesChanged { blocks, .. } = note { *blocks } else { 0 }).sum()
    }

    /// Whether a block was found to be invalid.
    pub fn has_invalid(&self, block: &GeneratedBlock) -> bool {
        self.invalid.lock().unwrap().contains(&block.hash)
    }

    /// Whether a block was left out because nobody has it.
    pub fn has_withheld(&self) -> bool {
        self.notes.lock().unwrap().iter().any(|note| matches!(note, Note::Withheld { .. }))
    }

    /// Whether a run that stays at the tip is there.
    pub fn is_at_tip(&self) -> bool {
        self.notes.lock().unwrap().iter().any(|note| matches!(note, Note::AtTip { .. }))
    }

    /// Whether such a run has said that blocks wait because others read the datadir.
    pub fn waits_for_readers(&self) -> bool {
        self.notes.lock().unwrap().iter().any(|note| matches!(note, Note::WaitingForReaders))
    }

    /// Waits until a run that stays at the tip is there.
    pub fn wait_for_tip(&self) {
        wait_until("at the tip", || {
            let end = self.end.get();
            assert!(end.is_none() || self.is_at_tip(), "not at the tip: {end:?}");
            self.is_at_tip()
        });
    }

    /// Whether such a run has last connected the last of these blocks.
    pub fn has_tip(&self, blocks: &[GeneratedBlock]) -> bool {
        let connected =
            |note: &Note| if let Note::ConnectedAtTip(step) = note { Some(step.hash) } else { None };
        let last = self.notes.lock().unwrap().iter().rev().find_map(connected);
        last.is_some_and(|hash| hash == blocks.last().unwrap().hash)
    }
}

/// Ends a run, also if what happens meanwhile panics.
struct EndsRun<'a>(&'a AtomicBool);

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Downloads in another thread, while `meanwhile` determines what happens. A run that stays at the tip is
/// interrupted then.
pub fn run_beside(
    disk: &dyn Disk,
    options: &SyncOptions,
    interrupt: &AtomicBool,
    meanwhile: impl FnOnce(&Seen),
) -> (Result<SyncReport, Error>, Seen) {
    let seen = Seen::default();
    let done = thread::scope(|scope| {
        let sink = &seen;
        let running = scope.spawn(move || {
            let done = sync(disk, options, sink, interrupt);
            sink.end.get_or_init(|| format!("{done:?}"));
            done
        });
        let ended = EndsRun(interrupt);
        meanwhile(&seen);
        if options.follow {
            drop(ended)
        } else {
            std::mem::forget(ended)
        }
        running.join().unwrap()
    });
    (done, seen)
}

/// The same on a disk whose syncs cost nothing.
pub fn run_while(options: &SyncOptions, meanwhile: impl FnOnce(&Seen)) -> (SyncReport, Seen) {
    let (done, seen) = run_beside(&FaultDisk::healthy(), options, &AtomicBool::new(false), meanwhile);
    (done.unwrap_or_else(|error| panic!("{error}: {:?}", seen.closed.lock().unwrap())), seen)
}

/// Downloads on a disk whose syncs cost nothing.
pub fn run(options: &SyncOptions) -> (SyncReport, Seen) {
    run_while(options, |_| {})
}

/// Downloads on this disk, which may interrupt it.
pub fn run_on(disk: &FaultDisk, options: &SyncOptions) -> Result<SyncReport, Error> {
    sync(disk, options, &|_| {}, disk.interrupt())
}

/// Downloads on a disk whose syncs cost nothing, and may fail.
pub fn try_run(options: &SyncOptions) -> Result<SyncReport, Error> {
    run_beside(&FaultDisk::healthy(), options, &AtomicBool::new(false), |_| {}).0
}

/// Downloads until something is so, and is interrupted then.
pub fn interrupt_when(options: &SyncOptions, is_so: impl FnMut() -> bool) {
    let interrupt = AtomicBool::new(false);
    let (done, _) = run_beside(&FaultDisk::healthy(), options, &interrupt, |_| {
        wait_until("time for an interrupt", is_so);
        interrupt.store(true, Ordering::Relaxed);
    });
    assert_eq!(done.unwrap_err().kind, ErrorKind::Interrupted);
}

/// Downloads until so many blocks were asked of a peer, which sends no more, and for some time after that.
pub fn interrupt_at(options: &SyncOptions, peer: &ScriptedPeer, asked: usize, rest: Duration) {
    let reached = OnceLock::new();
    peer.hold_at(asked);
    interrupt_when(options, || {
        peer.asked().len() >= asked && reached.get_or_init(Instant::now).elapsed() >= rest
    });
    peer.hold_at(usize::MAX);
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Brings a peer online, and waits until it is asked for a block that it has: by then, it has sent its
/// headers. Meanwhile, another peer, which stays held, sends its blocks one by one, since one that sends
/// nothing for ten seconds would be closed.
pub fn appears_beside(other: &ScriptedPeer, appearing: &ScriptedPeer, blocks: Range<usize>) {
    appearing.set_offline(false);
    let mut sent = blocks.start;
    wait_until("the peer that appears", || {
        sent += usize::from(sent < blocks.end);
        other.hold_at(sent);
        thread::sleep(Duration::from_millis(120));
        !appearing.asked().is_empty()
    });
}

/// The index of a datadir of generated blocks.
pub fn index(root: &Path) -> BlockIndex {
    read_block_index(&RealDisk, &Datadir::at(root, Network::Regtest).index_dir()).unwrap()
}

/// The hashes of the blocks that the block index marks as invalid.
pub fn marked(root: &Path) -> BTreeSet<BlockHash> {
    let entries = index(root).entries.into_iter();
    entries.filter(|entry| entry.status.is_failed()).map(|entry| entry.hash).collect()
}

/// Asserts that each entry of the index with data points to its block, that the bytes in use contain it, and
/// that no entry says what bitcoind would not accept. Returns the hashes of these blocks.
pub fn assert_index_is_true(root: &Path, what: &str) -> BTreeSet<BlockHash> {
    let (datadir, index) = (Datadir::at(root, Network::Regtest), index(root));
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    let mut found = BTreeSet::new();
    let known: BTreeSet<BlockHash> = index.entries.iter().map(|entry| entry.hash).collect();
    for entry in &index.entries {
        assert!(entry.height.0 == 0 || known.contains(&entry.header.prev), "{what}: {entry:?} has no parent");
        let is_pruned = index.pruned && entry.tx_count > 0 && !entry.status.has_data();
        assert_eq!(entry.status.has_data() || is_pruned, entry.tx_count > 0, "{what}: {entry:?}");
        if !entry.status.has_data() {
            assert!(!entry.status.has_undo(), "{what}: {entry:?}");
            continue;
        }
        let (file, pos) = (entry.file.unwrap(), entry.data_pos.unwrap().0 as usize);
        let used = index.files[file.0 as usize].size as usize;
        let mut bytes = std::fs::read(datadir.blk_path(file)).unwrap();
        obfuscation.apply(&mut bytes, 0);
        let len = u32::from_le_bytes(bytes[pos - 4..pos].try_into().unwrap()) as usize;
        assert!(pos + len <= used.min(bytes.len()), "{what}: {entry:?} is beyond the bytes in use");
        let header = Header::read(&mut wire::Reader::new(&bytes[pos..])).unwrap();
        assert_eq!(header.hash(), entry.hash, "{what}: {entry:?} points to another block");
        let mut arena = wire::BlockArena::default();
        let view = arena.parse(&bytes[pos..pos + len]).unwrap();
        assert_eq!(view.tx_count() as u32, entry.tx_count, "{what}: {entry:?}");
        let has_witnesses = entry.status.0 & BlockStatus::OPT_WITNESS != 0;
        assert!(has_witnesses || entry.status.is_failed(), "{what}: {entry:?}");
        found.insert(entry.hash);
    }
    found
}

/// Number of blocks above genesis that the index places, which must be true; 0 if there is no datadir yet.
pub fn placed(root: &Path, what: &str) -> usize {
    let has_index = root.join("regtest/blocks/index/CURRENT").exists();
    if has_index && root.join("regtest/blocks/blk00000.dat").exists() {
        assert_index_is_true(root, what).len() - 1
    } else {
        0
    }
}

/// Asserts that a datadir has all blocks of a chain, their undo data as Core writes it, and the chainstate.
pub fn assert_synced(root: &Path, chain: &Chain, what: &str) {
    assert_synced_to(chain.tip().height, root, chain, what);
}

/// Asserts the same up to a height.
pub fn assert_synced_to(height: u32, root: &Path, chain: &Chain, what: &str) {
    let stored = assert_index_is_true(root, what);
    let mut blocks = chain.main().take(height as usize + 1);
    assert!(blocks.all(|block| stored.contains(&block.hash)), "{what}: blocks are missing");
    let mut expected = undo::Expected::of(chain);
    expected.blocks.truncate(height as usize);
    undo::assert_complete(root, Network::Regtest, &expected, what);
    let found = stats(root, Network::Regtest).unwrap();
    let at = |block: &&GeneratedBlock| block.height == height;
    assert_eq!(found.best_block, chain.main().find(at).unwrap().hash, "{what}");
    let coins = stats_by_height(chain)[height as usize].hash_serialized_3;
    assert_eq!(found.hash_serialized_3, coins, "{what}");
}

/// Asserts the same, and that the commands which check a datadir find nothing.
pub fn assert_sound(root: &Path, chain: &Chain, what: &str) {
    assert_synced(root, chain, what);
    assert_checked(root, chain.tip().hash, what);
}

/// Asserts that the commands which check a datadir find nothing up to this block, its last one, and that
/// nothing of ours is left.
pub fn assert_checked(root: &Path, tip: BlockHash, what: &str) {
    let disk = FaultDisk::healthy();
    let options = options(root).chain;
    let verified = verify(&disk, &options, true, unwatched()).unwrap();
    assert_eq!((verified.hash, verified.notes.len()), (tip, 0), "{what}: {:?}", verified.notes);
    let compared = verified.against_chainstate.unwrap();
    assert_eq!(compared.differences, 0, "{what}: {:?}", compared.first);
    let checked = engine::undo::check(&disk, &options, unwatched()).unwrap();
    assert!(checked.files.iter().all(|file| file.missing + file.damaged == 0), "{what}: {checked:?}");
    assert_eq!(leftovers(root), [] as [&Path; 0], "{what}");
}

/// The invalid blocks of which a report warns.
pub fn invalid_blocks(report: &SyncReport) -> Vec<(BlockHash, String)> {
    let invalid = report.notes.iter().filter_map(|note| match note {
        Warning::InvalidBlock { hash, error } => Some((*hash, error.to_string())),
        _ => None,
    });
    invalid.collect()
}

/// A datadir of the tests' chain without chainstate that lacks the blocks for which `is_missing` returns
/// true: the index has their headers only.
pub fn with_holes(is_missing: impl Fn(u32) -> bool) -> Case {
    let case = Case::new();
    let _ = std::fs::remove_dir_all(case.net("chainstate"));
    let is_main = |entry: &IndexEntry| chain().main().any(|block| block.hash == entry.hash);
    case.edit_index(|index| index.entries.retain(is_main));
    case.forget_blocks(|entry| is_missing(entry.height.0));
    case
}

/// Marks the next block in a datadir as `invalidateblock` does.
pub fn mark_next(root: &Path, block: &GeneratedBlock) {
    corrupt::mark_next(&root.join("regtest/blocks/index"), block).unwrap();
}
