//! The chainstate is rebuilt while blocks are downloaded, with hints too, and the result is the same as after
//! the download.

use acceptance::prelude::*;
use acceptance::{
    hinted,
    sync::{
        assert_index_is_true, assert_sound, from, honest, run, run_on, run_while, serving, wait_until,
        with_holes,
    },
};
use engine::{AggregateKind, BoundBy, HintOptions, RemoteBody, RemoteFile};
use hinted::{AGGREGATES, Truth, bury, file_in};
use hints::HintFormat;
use std::sync::atomic::AtomicUsize;
use sync::SyncOptions;
use testkit::{
    corrupt::snapshot,
    peer::{Fault, ScriptedPeer},
    sibling::{rebase, sibling},
};

static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(chain()));

fn tip() -> u32 {
    chain().tip().height
}

/// Time for which a peer sends nothing. Checking all blocks takes much less.
const PAUSE: Duration = Duration::from_secs(3);

#[test]
fn blocks_are_checked_while_others_are_downloaded_if_the_memory_allows() {
    for threads in THREADS {
        for (memory_bytes, bound_by) in [(64 << 20, None), (256 << 20, Some(BoundBy::Download))] {
            let what = format!("{threads} threads, {memory_bytes} bytes");
            let (dir, peer) = (scratch(), honest());
            peer.hold_at(100);
            let mut options = from(dir.path(), &[&peer]);
            options.chain.threads = NonZeroUsize::new(threads).unwrap();
            options.chain.memory_bytes = memory_bytes;
            let (report, _) = run_while(&options, |_| {
                wait_until("100 blocks", || peer.asked().len() >= 100);
                thread::sleep(PAUSE);
                peer.hold_at(usize::MAX);
            });
            let rebuild = report.rebuild.unwrap();
            assert_eq!(Some(rebuild.bound_by).filter(|&by| by == BoundBy::Download), bound_by, "{what}");
            assert_eq!(rebuild.counts.blocks, u64::from(tip()) + 1, "{what}");
            assert_sound(dir.path(), chain(), &what);
        }
    }
}

/// Options with a checkpoint after each few blocks.
fn with_checkpoints(root: &Path, peers: &[&ScriptedPeer]) -> SyncOptions {
    let mut options = from(root, peers);
    options.resume.checkpoint_interval = Duration::ZERO;
    options
}

/// Downloads until `blocks` blocks were asked for, waits until they are matched, and interrupts.
fn interrupted_at(root: &Path, peer: &ScriptedPeer, blocks: usize) {
    peer.hold_at(blocks);
    let (options, interrupt) = (with_checkpoints(root, &[peer]), AtomicBool::new(false));
    thread::scope(|scope| {
        let running = scope.spawn(|| run_on(&FaultDisk::healthy(), &options, &interrupt).0);
        wait_until("blocks", || peer.asked().len() >= blocks);
        thread::sleep(PAUSE);
        interrupt.store(true, Ordering::Relaxed);
        assert_eq!(running.join().unwrap().unwrap_err().kind, ErrorKind::Interrupted);
    });
    peer.hold_at(usize::MAX);
}

#[test]
fn what_was_matched_before_an_interrupt_is_not_matched_again() {
    let (dir, peer) = (scratch(), honest());
    interrupted_at(dir.path(), &peer, 100);
    let (done, _) =
        run_on(&FaultDisk::healthy(), &with_checkpoints(dir.path(), &[&peer]), &AtomicBool::new(false));
    let rebuild = done.unwrap().rebuild.unwrap();
    assert!((16..=101).contains(&rebuild.resumed), "{}", rebuild.resumed);
    assert_eq!(rebuild.counts.blocks, u64::from(tip()) + 1);
    assert_sound(dir.path(), chain(), "after an interrupt");
}

/// They are not read again for the checkpoint, but by the node.
#[test]
fn a_power_cut_takes_no_block_of_a_checkpoint() {
    let (dir, peer, disk) = (scratch(), honest(), FaultDisk::healthy());
    peer.hold_at(100);
    let (options, interrupt) = (with_checkpoints(dir.path(), &[&peer]), AtomicBool::new(false));
    let checkpoint = dir.path().join("regtest/peregrine-work/manifest");
    let left = thread::scope(|scope| {
        scope.spawn(|| run_on(&disk, &options, &interrupt));
        wait_until("a checkpoint", || checkpoint.exists() && peer.asked().len() >= 100);
        thread::sleep(PAUSE);
        disk.lose_unsynced().unwrap();
        let left = snapshot(dir.path()).unwrap();
        interrupt.store(true, Ordering::Relaxed);
        left
    });
    fs::remove_dir_all(dir.path().join("regtest")).unwrap();
    for (path, bytes) in left {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    peer.hold_at(usize::MAX);
    let report = run(&options).0;
    let resumed = report.rebuild.unwrap().resumed;
    assert!((16..=101).contains(&resumed), "{resumed}");
    assert!(report.download.blocks + resumed <= tip() + 1, "{resumed} resumed: {:?}", report.download);
    assert_sound(dir.path(), chain(), "after a power cut");
}

#[test]
fn a_checkpoint_of_another_chain_is_discarded() {
    let dir = scratch();
    let mut others: Vec<_> = chain().main().cloned().collect();
    let onto = others[50].hash;
    others[51..].iter_mut().for_each(|block| *block = sibling(block, 7, |_| {}));
    rebase(others[51..].iter_mut(), onto);
    let other = ScriptedPeer::start(&serving(&others[..120]), Fault::None);
    interrupted_at(dir.path(), &other, 100);
    let peer = honest();
    let options = with_checkpoints(dir.path(), &[&peer]);
    let (done, _) = run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false));
    assert_eq!(done.unwrap().rebuild.unwrap().resumed, 0);
    acceptance::sync::assert_synced(dir.path(), chain(), "another chain");
}

/// A datadir that lacks every third block and whose headers bury the others, and a folder with hints.
fn buried() -> (Case, TempDir) {
    let case = with_holes(|height| height % 3 == 1);
    bury(&case.blocks("index"));
    (case, TempDir::new().unwrap())
}

fn hinted(root: &Path, file: PathBuf, aggregate: AggregateKind, options: SyncOptions) -> SyncOptions {
    let hints = HintOptions {
        file,
        remote: None,
        format: None,
        aggregate,
        without_undo: true,
        on_failure_join: false,
    };
    let mut options = SyncOptions { hints: Some(hints), stop_at_height: Some(Height(tip())), ..options };
    options.chain.assume_valid = AssumeValid::Block(TRUTH.hash(tip()));
    options.chain.hooks.undo_blocks = 0;
    options.chain.datadir = root.to_owned();
    options
}

#[test]
fn hints_are_used_while_blocks_are_downloaded() {
    for aggregate in AGGREGATES {
        let ((case, files), peer) = (buried(), honest());
        let path = file_in(&files, "hints");
        TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(tip()));
        let options = hinted(case.root(), path, aggregate, from(case.root(), &[&peer]));
        let (done, _) = run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false));
        let rebuild = done.unwrap().rebuild.unwrap();
        assert_eq!(rebuild.hints.unwrap().height, Height(tip()), "{aggregate:?}");
        let found = stats(case.root(), Network::Regtest).unwrap();
        assert_eq!(found.hash_serialized_3, chain().model.stats().hash_serialized_3, "{aggregate:?}");
        assert_eq!(assert_index_is_true(case.root(), "with hints").len(), tip() as usize + 1);
        assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
    }
}

/// Hints on another machine, and how often they were asked for.
#[derive(Debug)]
struct Remote(Vec<u8>, AtomicUsize);

impl RemoteFile for Remote {
    fn name(&self) -> &'static str {
        "https://hints.example/file"
    }

    fn open(&self) -> io::Result<RemoteBody> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(RemoteBody { len: None, bytes: Box::new(io::Cursor::new(self.0.clone())) })
    }
}

#[test]
fn hints_are_downloaded_once_for_a_download_that_is_interrupted() {
    let ((case, files), peer) = (buried(), honest());
    let path = file_in(&files, "hints");
    TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(tip()));
    let remote = Arc::new(Remote(std::fs::read(&path).unwrap(), AtomicUsize::new(0)));
    let mut options = hinted(case.root(), PathBuf::new(), AGGREGATES[0], from(case.root(), &[&peer]));
    let server: Arc<dyn RemoteFile> = remote.clone();
    options.hints.as_mut().unwrap().remote = Some(server);
    let copies = case.root().join("regtest/peregrine-hints");
    peer.hold_at(10);
    let interrupt = AtomicBool::new(false);
    let (done, _) = thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("ten blocks", || peer.asked().len() >= 10);
            interrupt.store(true, Ordering::Relaxed);
        });
        run_on(&FaultDisk::healthy(), &options, &interrupt)
    });
    assert_eq!((done.unwrap_err().kind, copies.exists()), (ErrorKind::Interrupted, true));
    peer.hold_at(usize::MAX);
    let (done, _) = run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false));
    let used = done.unwrap().rebuild.unwrap().hints.unwrap();
    assert_eq!((used.height, used.sha256), (Height(tip()), digest::sha256::sha256(&remote.0)));
    assert_eq!((remote.1.load(Ordering::Relaxed), leftovers(case.root())), (1, Vec::new()));
    // Without a rebuild, hints are not needed.
    options.blocks_only = true;
    run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false)).0.unwrap();
    assert_eq!(remote.1.load(Ordering::Relaxed), 1);
}

#[test]
fn hints_that_cannot_be_used_are_refused_before_a_block_is_downloaded() {
    let ((case, files), peer) = (buried(), honest());
    let path = file_in(&files, "hints");
    TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(tip()));
    let mut options = hinted(case.root(), path, AGGREGATES[0], from(case.root(), &[&peer]));
    options.chain.assume_valid = AssumeValid::Off;
    let (done, _) = run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false));
    assert_eq!(done.unwrap_err().kind, ErrorKind::Usage);
    assert_eq!(peer.asked(), []);
}

#[test]
fn wrong_hints_end_the_download_and_leave_what_was_stored() {
    let ((case, files), peer) = (buried(), honest());
    let (path, mut hints) = (file_in(&files, "hints"), TRUTH.hints(tip()));
    let spent = hints.iter_mut().skip(1).find(|hints| !hints.contains(&0)).unwrap();
    spent.insert(0, 0);
    TRUTH.write(&path, HintFormat::Peregrine, &hints);
    let options = hinted(case.root(), path, AGGREGATES[0], from(case.root(), &[&peer]));
    let (done, _) = run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false));
    assert_eq!(done.unwrap_err().kind, ErrorKind::Hints);
    assert!(!case.root().join("regtest/chainstate").exists());
    assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
    // The sum is known when all blocks have come.
    assert_eq!(assert_index_is_true(case.root(), "with wrong hints").len(), tip() as usize + 1);
    let options = SyncOptions { hints: None, ..options };
    let (done, _) = run_on(&FaultDisk::healthy(), &options, &AtomicBool::new(false));
    assert_eq!(done.unwrap().height, Height(tip()));
    assert_sound(case.root(), chain(), "without the hints");
}
