//! The chainstate is rebuilt while blocks are downloaded, with hints too, and the result is the same as after
//! the download.

use crate::hints::sources::{Answer, Server};
use acceptance::prelude::*;
use acceptance::sync::{run, run_beside, with_holes};
use engine::{hints::HintOptions, reindex::BoundBy};

/// Time for which a peer sends nothing. Checking all blocks takes much less.
const PAUSE: Duration = Duration::from_secs(1);

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
            assert_eq!(rebuild.counts.blocks, u64::from(TIP) + 1, "{what}");
            assert_sound(dir.path(), chain(), &what);
        }
    }
}

/// Options with a checkpoint after each few blocks.
fn with_checkpoints(root: &Path, peers: &[&ScriptedPeer]) -> SyncOptions {
    let mut options = from(root, peers);
    options.chain.resume.checkpoint_interval = Duration::ZERO;
    // Some blocks each.
    options.chain.hooks.block_file_len = 1_500;
    options
}

/// Downloads until `blocks` blocks were asked for and a checkpoint has some of them, and interrupts.
fn interrupted_at(root: &Path, peer: &ScriptedPeer, blocks: usize) {
    let checkpoint = root.join("regtest/peregrine-work/manifest");
    peer.hold_at(blocks);
    interrupt_when(&with_checkpoints(root, &[peer]), || peer.asked().len() >= blocks && checkpoint.exists());
    peer.hold_at(usize::MAX);
}

#[test]
fn what_was_matched_before_an_interrupt_is_neither_matched_nor_read_again() {
    let (dir, peer) = (scratch(), honest());
    interrupted_at(dir.path(), &peer, 100);
    let (report, seen) = run(&with_checkpoints(dir.path(), &[&peer]));
    let rebuild = report.rebuild.unwrap();
    assert!((16..=101).contains(&rebuild.resumed), "{}", rebuild.resumed);
    // Only the last file has grown since the checkpoint.
    let read_again = seen.read_again();
    assert!(read_again < rebuild.resumed as usize / 2, "{read_again} of {}", rebuild.resumed);
    assert_eq!(rebuild.counts.blocks, u64::from(TIP) + 1);
    assert_sound(dir.path(), chain(), "after an interrupt");
}

/// They are not read again for the checkpoint, but by the node.
#[test]
fn a_power_cut_takes_no_block_of_a_checkpoint() {
    let (dir, left, peer, disk) = (scratch(), scratch(), honest(), FaultDisk::healthy());
    peer.hold_at(100);
    let (options, interrupt) = (with_checkpoints(dir.path(), &[&peer]), AtomicBool::new(false));
    let checkpoint = dir.path().join("regtest/peregrine-work/manifest");
    let _ = run_beside(&disk, &options, &interrupt, |_| {
        wait_until("a checkpoint", || checkpoint.exists() && peer.asked().len() >= 100);
        thread::sleep(PAUSE);
        disk.lose_unsynced().unwrap();
        copy_dir(dir.path(), left.path()).unwrap();
        interrupt.store(true, Ordering::Relaxed);
    });
    fs::remove_dir_all(dir.path().join("regtest")).unwrap();
    copy_dir(left.path(), dir.path()).unwrap();
    peer.hold_at(usize::MAX);
    let report = run(&options).0;
    let resumed = report.rebuild.unwrap().resumed;
    assert!((16..=101).contains(&resumed), "{resumed}");
    assert!(report.download.blocks + resumed <= TIP + 1, "{resumed} resumed: {:?}", report.download);
    assert_sound(dir.path(), chain(), "after a power cut");
}

#[test]
fn a_checkpoint_of_another_chain_is_discarded() {
    let dir = scratch();
    let other = peer_with(&branch(1, 119));
    interrupted_at(dir.path(), &other, 100);
    let peer = honest();
    let (report, _) = run(&with_checkpoints(dir.path(), &[&peer]));
    assert_eq!(report.rebuild.unwrap().resumed, 0);
    acceptance::sync::assert_synced(dir.path(), chain(), "another chain");
}

/// A datadir that lacks every third block and whose headers bury the others, a peer, and options with these
/// hints, whose file is in the folder.
fn hinted(hints: &Hints, aggregate: AggregateKind) -> (Case, TempDir, ScriptedPeer, SyncOptions) {
    let (case, files, peer) = (with_holes(|height| height % 3 == 1), TempDir::new().unwrap(), honest());
    bury(&case.blocks("index"));
    let file = files.path().join("hints");
    TRUTH.write(&file, HintFormat::Peregrine, hints);
    let mut options = from(case.root(), &[&peer]);
    (options.hints, options.chain.stop_at_height) = (Some(hints_of(file, aggregate)), Some(Height(TIP)));
    options.chain.assume_valid = AssumeValid::Block(TRUTH.hash(TIP));
    options.chain.hooks.undo_blocks = 0;
    (case, files, peer, options)
}

#[test]
fn hints_are_used_while_blocks_are_downloaded() {
    for aggregate in AGGREGATES {
        let (case, _files, _peer, options) = hinted(&TRUTH.hints(TIP), aggregate);
        let rebuild = run(&options).0.rebuild.unwrap();
        assert_eq!(rebuild.hints.unwrap().height, Height(TIP), "{aggregate:?}");
        let found = stats(case.root(), Network::Regtest).unwrap();
        assert_eq!(found.hash_serialized_3, chain().model.stats().hash_serialized_3, "{aggregate:?}");
        assert_eq!(assert_index_is_true(case.root(), "with hints").len(), TIP as usize + 1);
        assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
    }
}

#[test]
fn hints_are_downloaded_once_for_a_download_that_is_interrupted() {
    let (case, _files, peer, mut options) = hinted(&TRUTH.hints(TIP), AGGREGATES[0]);
    let hints = options.hints.as_mut().unwrap();
    let bytes = fs::read(hints.file.name()).unwrap();
    let server = Server::new(Answer::Length(None, bytes.clone()));
    hints.file = FileSource::Remote(server.clone());
    let copies = case.net("peregrine-hints");
    peer.hold_at(10);
    interrupt_when(&options, || peer.asked().len() >= 10);
    assert!(copies.exists());
    peer.hold_at(usize::MAX);
    let used = run(&options).0.rebuild.unwrap().hints.unwrap();
    assert_eq!((used.height, used.sha256), (Height(TIP), digest::sha256::sha256(&bytes)));
    assert_eq!((server.opened(), leftovers(case.root())), (1, Vec::new()));
    // Without a rebuild, hints are not needed.
    options.blocks_only = true;
    try_run(&options).unwrap();
    assert_eq!(server.opened(), 1);
}

#[test]
fn hints_that_cannot_be_used_are_refused_before_a_block_is_downloaded() {
    let (_case, _files, peer, mut options) = hinted(&TRUTH.hints(TIP), AGGREGATES[0]);
    options.chain.assume_valid = AssumeValid::Off;
    assert_eq!(try_run(&options).unwrap_err().kind, ErrorKind::Usage);
    assert_eq!(peer.asked(), []);
}

#[test]
fn wrong_hints_end_the_download_and_leave_what_was_stored() {
    let mut hints = TRUTH.hints(TIP);
    let spent = hints.iter_mut().skip(1).find(|hints| !hints.contains(&0)).unwrap();
    spent.insert(0, 0);
    let (case, _files, _peer, options) = hinted(&hints, AGGREGATES[0]);
    assert_eq!(try_run(&options).unwrap_err().kind, ErrorKind::Hints);
    assert!(!case.net("chainstate").exists());
    assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
    // The sum is known when all blocks have come.
    assert_eq!(assert_index_is_true(case.root(), "with wrong hints").len(), TIP as usize + 1);
    let (report, _) = run(&SyncOptions { hints: None, ..options });
    assert_eq!(report.height, Height(TIP));
    assert_sound(case.root(), chain(), "without the hints");
}

/// The first wrong hint was looked for in a plan of the blocks that had come, whose error ended the download.
#[test]
fn a_download_goes_on_if_the_hints_are_left_out_before_all_blocks_have_come() {
    let (case, files, peer, mut options) = hinted(&TRUTH.hints(TIP), AGGREGATES[0]);
    // A hint beyond the outputs of its block shows at once.
    let (mut truth, mut hints) = (Truth::of(chain()), TRUTH.hints(TIP));
    let outputs = &mut truth.0[2].outputs;
    hints[2].push(outputs.len() as u32);
    outputs.push((outputs[0].0, true));
    let file = files.path().join("beyond");
    truth.write(&file, HintFormat::Peregrine, &hints);
    let hints = HintOptions { on_failure_join: true, ..hints_of(file, AGGREGATES[0]) };
    (options.hints, options.chain.threads) = (Some(hints), NonZeroUsize::MIN);
    peer.hold_at(10);
    let (report, _) = run_while(&options, |_| {
        wait_until("ten blocks", || peer.asked().len() >= 10);
        thread::sleep(PAUSE);
        peer.hold_at(usize::MAX);
    });
    assert_eq!(report.rebuild.unwrap().hints, None);
    assert_sound(case.root(), chain(), "without the hints");
}
