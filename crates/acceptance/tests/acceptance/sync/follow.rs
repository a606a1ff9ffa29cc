//! `sync` that stays at the tip: new blocks, reorganisations, invalid blocks, peers that vanish, interrupts
//! and crashes. After each block, the chainstate is compared with the model's.

use super::branches::wrong_height;
use acceptance::prelude::*;
use acceptance::sync::{assert_checked, run_beside};
use disk::{
    index::IndexRows,
    lock::{DatadirLock, LockMode},
};
use sync::{FollowEnd, FollowReport, sync};
use testkit::peer::peer_with as peer;

fn staying(root: &Path, peers: &[&ScriptedPeer]) -> SyncOptions {
    SyncOptions { follow: true, ..from(root, peers) }
}

fn run(options: &SyncOptions, meanwhile: impl FnOnce(&Seen)) -> (SyncReport, FollowReport) {
    let (report, _) = run_while(options, meanwhile);
    let follow = report.follow.clone().unwrap();
    (report, follow)
}

/// Lets a peer have these blocks, and waits until the last one is connected.
fn follow_to(blocks: &[GeneratedBlock], peer: &ScriptedPeer, seen: &Seen, what: &str) {
    peer.serve(&serving(blocks));
    wait_until(what, || seen.has_tip(blocks));
}

/// Asserts that the datadir is that of these blocks, with undo data.
fn assert_at(root: &Path, blocks: &[GeneratedBlock], what: &str) {
    let stored = assert_index_is_true(root, what);
    assert!(blocks.iter().all(|block| stored.contains(&block.hash)), "{what}: blocks are missing");
    assert_coins(root, blocks.last().unwrap().hash, &Model::of(blocks).stats(), what);
}

/// Asserts the same, and that the commands which check a datadir find nothing.
fn assert_sound(root: &Path, blocks: &[GeneratedBlock], what: &str) {
    assert_at(root, blocks, what);
    assert_checked(root, blocks.last().unwrap().hash, what);
}

#[test]
fn new_blocks_and_a_burst_are_connected_when_they_are_announced() {
    for fault in [Fault::None, Fault::AnnouncesByInv, Fault::Chatter] {
        let (dir, start) = (scratch(), tip() - 25);
        let peer = ScriptedPeer::start(&serving(&main_to(start)), fault);
        // Blocks begin further pairs of files.
        let mut options = staying(dir.path(), &[&peer]);
        options.chain.hooks.block_file_len = 32 << 10;
        let (report, follow) = run(&options, |seen| {
            seen.wait_for_tip();
            for height in start + 1..start + 5 {
                let blocks = main_to(height);
                follow_to(&blocks, &peer, seen, "one block");
                assert_at(dir.path(), &blocks, "one by one");
            }
            follow_to(&main_to(tip()), &peer, seen, "a burst");
        });
        assert_sound(dir.path(), &main_to(tip()), "a burst");
        assert_eq!((report.height, report.chainstate_height), (Height(TIP), Some(report.height)));
        assert_eq!((follow.connected, follow.disconnected, follow.end), (25, 0, FollowEnd::Interrupted));
        let blocks: Vec<u32> = follow.last.iter().map(|step| step.blocks).collect();
        assert!(blocks.starts_with(&[1; 4]) && blocks[4..].iter().sum::<u32>() == 21, "{blocks:?}");
        // Once for the download, once for staying.
        assert_eq!((peer.accepted(), peer.asked().len()), (2, tip()));
    }
}

/// It was once reported while the datadir was locked, which a terminal that is stopped then kept locked.
#[test]
fn a_block_is_reported_after_the_datadir_is_unlocked() {
    let (dir, peer) = (scratch(), peer(&main_to(tip() - 1)));
    let (interrupt, is_unlocked) = (AtomicBool::new(false), AtomicBool::new(false));
    let sink = |event: Event| match event {
        Event::Note(Note::AtTip { .. }) => peer.serve(&serving(&main_to(tip()))),
        Event::Note(Note::ConnectedAtTip(_)) => {
            is_unlocked.store(stats(dir.path(), Network::Regtest).is_ok(), Ordering::Relaxed);
            interrupt.store(true, Ordering::Relaxed);
        }
        _ => {}
    };
    sync(&FaultDisk::healthy(), &staying(dir.path(), &[&peer]), &sink, &interrupt).unwrap();
    assert!(is_unlocked.into_inner());
}

/// As long as others read the datadir, peers were once not answered, and all closed their connections. Later,
/// the report did not have the block of a peer that did so. And nothing told why the block was not connected.
#[test]
fn peers_are_answered_and_a_block_is_kept_while_the_datadir_is_read() {
    let (dir, peer, blocks) = (scratch(), peer(&main_to(tip() - 1)), main_to(tip()));
    let (report, _) = run(&staying(dir.path(), &[&peer]), |seen| {
        seen.wait_for_tip();
        let datadir = Datadir::at(dir.path(), Network::Regtest);
        let reader = DatadirLock::take(&RealDisk, &datadir, LockMode::Read).unwrap();
        peer.serve(&serving(&blocks));
        wait_until("the block is asked for", || peer.asked().contains(&blocks[tip()].hash));
        wait_until("the note", || seen.waits_for_readers());
        let closed = seen.reasons(&peer).len();
        peer.set_offline(true);
        wait_until("the connection is closed", || seen.reasons(&peer).len() > closed);
        assert!(!seen.has_tip(&blocks));
        drop(reader);
        wait_until("the block is connected", || seen.has_tip(&blocks));
    });
    assert_sound(dir.path(), &blocks, "after a reader");
    assert_eq!(report.peers.iter().map(|peer| peer.blocks).collect::<Vec<_>>(), [TIP]);
}

/// When a branch came back, the undo data of its blocks was once appended a second time.
#[test]
fn reorganisations_are_followed_there_and_back_and_no_block_is_downloaded_twice() {
    let (dir, height) = (scratch(), tip() - 30);
    let (first, other) = (main_to(height), branch(height - 20, height + 1));
    let peer = peer(&first);
    let (report, follow) = run(&staying(dir.path(), &[&peer]), |seen| {
        seen.wait_for_tip();
        let sibling = branch(height - 1, height + 1);
        let back = main_to(height + 2);
        let chains = [&sibling, &back, &branch(height - 20, height + 3), &main_to(height + 4)];
        for (at, blocks) in chains.into_iter().enumerate() {
            follow_to(blocks, &peer, seen, "a reorganisation");
            assert_at(dir.path(), blocks, &format!("reorganisation {at}"));
        }
        // A branch with the same work changes nothing.
        peer.serve(&serving(&branch(height - 1, height + 4)));
        follow_to(&main_to(height + 5), &peer, seen, "one more");
    });
    assert_sound(dir.path(), &main_to(height + 5), "reorganisations");
    assert_eq!(report.header_height, Height(height as u32 + 5));
    let disconnected: Vec<u32> = follow.last.iter().map(|step| step.disconnected).collect();
    assert_eq!(disconnected, [1, 2, 22, 23, 0]);
    let asked: BTreeSet<BlockHash> = peer.asked().into_iter().collect();
    assert_eq!(asked.len(), peer.asked().len(), "blocks were downloaded twice");
    assert!(asked.contains(&other[height].hash));
    let undo = UndoFiles::read(dir.path(), Network::Regtest);
    let entries = undo.index.entries.iter().filter(|entry| entry.status.has_undo());
    // Each with its frame and its checksum.
    let placed: usize = entries.map(|entry| 8 + undo.record(entry).unwrap().0.len() + 32).sum();
    let used: usize = (0..undo.index.files.len() as u32).map(|file| undo.used(file)).sum();
    assert_eq!(placed, used, "undo data was stored twice");
}

/// It was then reported once for each connection.
#[test]
fn a_peer_that_vanishes_and_comes_back_is_asked_again() {
    let (dir, height) = (scratch(), tip() - 3);
    let peer = peer(&main_to(height));
    let (report, follow) = run(&staying(dir.path(), &[&peer]), |seen| {
        seen.wait_for_tip();
        follow_to(&main_to(height + 1), &peer, seen, "before it vanishes");
        peer.set_offline(true);
        peer.serve(&serving(&main_to(tip())));
        thread::sleep(std::time::Duration::from_millis(300));
        peer.set_offline(false);
        wait_until("the missed blocks", || seen.has_tip(&main_to(tip())));
    });
    assert_sound(dir.path(), &main_to(tip()), "after a vanished peer");
    assert_eq!((follow.connected, peer.accepted()), (3, 3));
    assert_eq!(report.peers.iter().map(|peer| peer.blocks).collect::<Vec<_>>(), [TIP]);
}

/// Only connecting shows that a block pays too much; the chainstate is not moved by a branch that contains
/// such a block.
#[test]
fn an_invalid_block_at_the_tip_is_left_out_and_the_best_valid_chain_goes_on() {
    let (dir, height) = (scratch(), tip() - 10);
    let good = main_to(height);
    let at_tip = greedy_branch(height, height + 1, height + 1, 7);
    let in_branch = greedy_branch(height - 5, height - 2, height + 2, 7);
    // A peer that has shown an invalid block, and repeats its header, is not dialled for a day.
    let [first, second, honest] = [(); 3].map(|()| peer(&good));
    let (report, _) = run(&staying(dir.path(), &[&first, &second, &honest]), |seen| {
        seen.wait_for_tip();
        for (liar, bad, invalid) in [(&first, &at_tip, height + 1), (&second, &in_branch, height - 2)] {
            liar.serve(&serving(bad));
            // Asked for is not connected: another branch would come first.
            wait_until("the invalid block", || seen.has_invalid(&bad[invalid]));
        }
        follow_to(&main_to(height + 1), &honest, seen, "the valid block");
        assert_at(dir.path(), &main_to(height + 1), "one valid block");
        follow_to(&main_to(height + 3), &honest, seen, "more valid blocks");
    });
    assert_at(dir.path(), &main_to(height + 3), "valid blocks");
    let mut invalid: Vec<_> = invalid_blocks(&report).into_iter().map(|(hash, _)| hash).collect();
    invalid.dedup();
    assert_eq!(invalid, [at_tip[height + 1].hash, in_branch[height - 2].hash]);
}

/// Its header was saved before it came, and stayed without a mark: the next run downloaded it again.
#[test]
fn a_block_whose_own_bytes_break_a_rule_is_marked() {
    let (dir, height) = (scratch(), tip() - 10);
    let evil = branch_of(main_to(height + 2), height + 1, |block| sibling(block, 1, wrong_height));
    let peer = peer(&main_to(height));
    let options = staying(dir.path(), &[&peer]);
    run(&options, |seen| {
        seen.wait_for_tip();
        peer.hold_at(height + 1);
        peer.serve(&serving(&evil));
        wait_until("a request", || peer.asked().len() > height + 1);
        wait_until("the lock", || stats(dir.path(), Network::Regtest).is_err());
        wait_until("its release", || stats(dir.path(), Network::Regtest).is_ok());
        peer.hold_at(usize::MAX);
        wait_until("the invalid block", || seen.has_invalid(&evil[height + 2]));
    });
    assert_eq!(marked(dir.path()), BTreeSet::from([evil[height + 2].hash]));
    let asked = peer.asked().len();
    run(&options, Seen::wait_for_tip);
    assert_at(dir.path(), &evil[..=height + 1], "below the invalid block");
    assert_eq!(peer.asked().len(), asked);
}

/// A block that `invalidateblock` has marked stays left out, and its peer is not to blame.
#[test]
fn blocks_above_a_mark_in_the_datadir_are_left_out_and_another_branch_is_followed() {
    let (dir, height) = (scratch(), tip() - 10);
    let peer = peer(&main_to(height));
    let options = staying(dir.path(), &[&peer]);
    run(&options, Seen::wait_for_tip);
    mark_next(dir.path(), &main_to(height + 1)[height + 1]);
    peer.serve(&serving(&main_to(height + 3)));
    let (_, follow) = run(&options, |seen| {
        seen.wait_for_tip();
        assert_at(dir.path(), &main_to(height), "below the mark");
        for (marked, other) in [(height + 3, height + 4), (height + 6, height + 7)] {
            peer.serve(&serving(&main_to(marked)));
            let other = branch(height, other);
            follow_to(&other, &peer, seen, "the other branch");
            assert_at(dir.path(), &other, "the other branch");
        }
    });
    assert_sound(dir.path(), &branch(height, height + 7), "the other branch");
    assert_eq!((follow.connected, follow.disconnected), (7, 0));
    assert!(peer.asked().iter().all(|hash| main_to(tip())[height + 1..].iter().all(|it| it.hash != *hash)));
}

/// A header was shown long before its block, and the chain that was built on the block was refused for ever.
#[test]
fn a_block_that_nobody_had_is_connected_when_the_chain_goes_on_above_it() {
    let (dir, height) = (scratch(), tip() - 3);
    let early = ScriptedPeer::start(&serving(&main_to(height)), Fault::LacksOne(height + 1));
    let honest = peer(&main_to(height));
    let options = impatient(staying(dir.path(), &[&early, &honest]));
    let (_, follow) = run(&options, |seen| {
        seen.wait_for_tip();
        early.serve(&serving(&main_to(height + 1)));
        wait_until("nobody has it", || seen.has_withheld());
        follow_to(&main_to(height + 2), &honest, seen, "both blocks");
    });
    assert_sound(dir.path(), &main_to(height + 2), "a block that nobody had");
    assert_eq!(follow.connected, 2);
}

/// A peer that holds a block back, and one that sends none: an interrupt is a normal end in each state.
#[test]
fn an_interrupt_is_a_normal_end_in_each_state() {
    let (dir, height) = (scratch(), tip() - 10);
    let peer = peer(&main_to(height));
    let options = staying(dir.path(), &[&peer]);
    let (_, follow) = run(&options, Seen::wait_for_tip);
    assert_eq!((follow.connected, follow.end), (0, FollowEnd::Interrupted));
    let (report, follow) = run(&options, |seen| {
        seen.wait_for_tip();
        peer.hold_at(height + 2);
        peer.serve(&serving(&main_to(height + 5)));
        wait_until("a request", || peer.asked().len() > height + 2);
        wait_until("the lock", || stats(dir.path(), Network::Regtest).is_err());
        // A block that does not come must not keep bitcoind from the datadir.
        wait_until("its release", || stats(dir.path(), Network::Regtest).is_ok());
        assert_at(dir.path(), &main_to(height), "while blocks came");
    });
    assert_eq!((follow.connected, report.chainstate_height), (0, Some(Height(height as u32))));
    assert_eq!(report.shortfall, None);
    peer.hold_at(usize::MAX);
    let (_, follow) = run(&options, Seen::wait_for_tip);
    assert_eq!(follow.end, FollowEnd::Interrupted);
    assert_sound(dir.path(), &main_to(height + 5), "the next run");
}

/// At each operation on the disk while a block and a reorganisation are stored and connected: an interrupt,
/// or the process ends there. Nothing is lost, and the next run is at the tip.
#[test]
fn interrupts_and_crashes_at_any_operation_leave_a_true_datadir() {
    let height = tip() - 3;
    let (first, other) = (main_to(height), branch(height - 2, height + 1));
    let synced = scratch();
    run(&staying(synced.path(), &[&peer(&first)]), Seen::wait_for_tip);
    for is_crash in [false, true] {
        let mut at = 0;
        loop {
            let (dir, peer) = (scratch(), peer(&first));
            copy_dir(synced.path(), dir.path()).unwrap();
            let options = staying(dir.path(), &[&peer]);
            let healthy = FaultDisk::counting_changes();
            let before = {
                let interrupt = AtomicBool::new(false);
                run_beside(&healthy, &options, &interrupt, Seen::wait_for_tip).0.unwrap();
                healthy.count()
            };
            let interrupt = Arc::new(AtomicBool::new(false));
            let disk = match is_crash {
                true => FaultDisk::killed_at(before + at),
                false => FaultDisk::signal_at(before + at, &interrupt),
            };
            let mut was_reached = false;
            let (done, _) = run_beside(&disk, &options, &interrupt, |seen| {
                wait_until("at the tip", || seen.is_at_tip() || disk.has_failed());
                peer.serve(&serving(&other));
                wait_until("the branch or a fault", || {
                    was_reached = seen.has_tip(&other);
                    was_reached || disk.has_failed() || interrupt.load(Ordering::Relaxed)
                });
            });
            let what = format!("crash {is_crash}, operation {at}: {:?}", done.as_ref().err());
            assert!(is_crash || done.is_ok(), "{what}");
            assert_index_is_true(dir.path(), &what);
            let best = stats(dir.path(), Network::Regtest).unwrap().best_block;
            let is_known = best == first[height].hash || best == other[height + 1].hash;
            assert!(is_known, "{what}: {best}");
            assert_at(dir.path(), if best == first[height].hash { &first } else { &other }, &what);
            run(&options, Seen::wait_for_tip);
            assert_at(dir.path(), &other, &what);
            if was_reached {
                assert!(at > 10, "{at}");
                break;
            }
            at += if is_crash { 1 } else { 3 };
        }
    }
}

#[test]
fn a_datadir_that_another_process_has_changed_is_left_to_it() {
    let (dir, height) = (scratch(), tip() - 3);
    let peer = peer(&main_to(height));
    let (report, follow) = run(&staying(dir.path(), &[&peer]), |seen| {
        seen.wait_for_tip();
        thread::sleep(std::time::Duration::from_millis(100));
        let index = Datadir::at(dir.path(), Network::Regtest).index_dir();
        let disk = FaultDisk::healthy();
        let mut rows = IndexRows::open(&disk, &index).unwrap();
        let info = rows.file(FileNo(0)).unwrap().unwrap();
        rows.update(&[], &[(FileNo(0), FileInfo { time_last: info.time_last + 1, ..info })]).unwrap();
        let before = tree(dir.path());
        peer.serve(&serving(&main_to(tip())));
        wait_until("a block", || peer.asked().len() > height);
        thread::sleep(std::time::Duration::from_millis(300));
        assert_same_tree(&before, dir.path(), "changed by another process");
    });
    assert_eq!((follow.connected, follow.end), (0, FollowEnd::DatadirChanged));
    assert_eq!(report.chainstate_height, Some(Height(height as u32)));
}

#[test]
fn what_keeps_the_chainstate_away_from_the_tip_is_refused_before_anything_is_created() {
    let dir = scratch();
    let root = dir.path().join("new");
    let options =
        SyncOptions { follow: true, ..SyncOptions::new(&root, Network::Regtest, ScriptChecks::LeftOut) };
    let refused = [
        SyncOptions { prune_bytes: Some(1 << 30), ..options.clone() },
        SyncOptions { blocks_only: true, ..options.clone() },
        changed(options, |it| it.chain.stop_at_height = Some(Height(7))),
    ];
    for options in refused {
        assert_fails(try_run(&options), ErrorKind::Usage, &["needs all blocks and a chainstate"]);
        assert!(!root.exists());
    }
}
