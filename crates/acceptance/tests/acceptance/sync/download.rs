//! A download from peers ends with the datadir that Core would have, whatever it began with and however many
//! peers there are.

use super::unprune::interrupt_flush;
use acceptance::prelude::*;
use acceptance::sync::{run, with_holes};
use rules::U256;

/// Once, all blocks were downloaded before the rebuild refused to replace it.
#[test]
fn a_chainstate_of_a_chain_with_less_work_is_refused_before_anything_is_written() {
    let (case, dir) = (Case::at_tip(), scratch());
    copy_dir(&case.net("chainstate"), &dir.path().join("chainstate")).unwrap();
    let mut options = SyncOptions::new(dir.path(), Network::Main, ScriptChecks::LeftOut);
    options.peers = from(dir.path(), &[]).peers;
    let best = chain().tip().hash.to_string();
    let words = ["the chainstate of another chain", &best, "main", "nothing was changed"];
    refused_by(dir.path(), ErrorKind::Usage, &words, || try_run(&options));
}

fn asked(peers: &[ScriptedPeer]) -> usize {
    peers.iter().map(|peer| peer.asked().len()).sum()
}

/// All that does not depend on the order in which blocks came: what the index says of each block.
fn rows(root: &Path) -> BTreeMap<BlockHash, IndexEntry> {
    let rows = index(root).entries.into_iter().map(|mut entry| {
        (entry.file, entry.data_pos, entry.undo_pos) = (None, None, None);
        (entry.hash, entry)
    });
    rows.collect()
}

/// How a download is made.
#[derive(Clone, Copy, Debug)]
struct Way {
    peers: usize,
    use_v2: bool,
    threads: usize,
    memory_bytes: u64,
    /// Bytes of blocks that wait in memory for the rebuild; others are read from their files.
    kept_bytes_max: u64,
}

#[test]
fn peers_transports_threads_and_memory_change_nothing() {
    let (memory_bytes, kept_bytes_max) = (u64::MAX, u64::MAX);
    let one = Way { peers: 1, use_v2: false, threads: 2, memory_bytes, kept_bytes_max };
    let twelve = Way { peers: 12, ..one };
    let two = Way { peers: 2, use_v2: true, ..one };
    let mut first = None;
    for way in [
        one,
        Way { use_v2: true, ..one },
        Way { use_v2: true, ..twelve },
        Way { threads: 8, ..twelve },
        Way { threads: 1, ..two },
        Way { memory_bytes: 128 << 20, ..two },
        Way { kept_bytes_max: 0, ..one },
        Way { kept_bytes_max: 20_000, ..one },
    ] {
        let what = format!("{way:?}");
        let (dir, peers) = (scratch(), (0..way.peers).map(|_| honest()).collect::<Vec<_>>());
        let mut options = from(dir.path(), &peers.iter().collect::<Vec<_>>());
        options.peers.use_v2 = way.use_v2;
        options.chain.threads = NonZeroUsize::new(way.threads).unwrap();
        options.chain.memory_bytes = way.memory_bytes;
        options.chain.hooks.kept_bytes_max = way.kept_bytes_max;
        let (report, seen) = run(&options);
        assert_sound(dir.path(), chain(), &what);
        assert_eq!((report.height, report.hash), (Height(TIP), chain().tip().hash), "{what}");
        assert_eq!((report.header_height, report.download.blocks as usize), (report.height, tip()));
        let rebuild = report.rebuild.unwrap();
        assert_eq!(rebuild.hash_serialized_3, chain().model.stats().hash_serialized_3, "{what}");
        let found = (rows(dir.path()), rebuild.counts);
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{what}");
        assert_eq!(report.notes.len(), 0, "{what}: {:?}", report.notes);
        // Late blocks are asked of a second peer.
        assert!(asked(&peers) <= tip() * 9 / 8, "{what}: {} blocks were asked for", asked(&peers));
        let bytes: u64 = chain().main().skip(1).map(|block| block.bytes.len() as u64).sum();
        assert_eq!((report.download.bytes, report.download.found), (bytes, 0), "{what}");
        let sent_blocks: u32 = report.peers.iter().map(|peer| peer.blocks).sum();
        let sent: u64 = report.peers.iter().map(|peer| peer.bytes).sum();
        assert!(sent_blocks as usize >= tip() && sent >= bytes, "{what}: {:?}", report.peers);
        for peer in &peers {
            let reasons = seen.reasons(peer);
            assert!(reasons.iter().all(|reason| reason == "no longer needed"), "{what}: {reasons:?}");
        }
    }
}

#[test]
fn a_datadir_with_holes_gets_what_it_lacks() {
    for (what, is_missing) in [
        ("some", (|height| height % 7 == 3) as fn(u32) -> bool),
        ("the first half", |height| (1..70).contains(&height)),
        ("the second half", |height| height >= 70),
        ("the first and the last", |height| height == 1 || height == 140),
    ] {
        let (case, peer) = (with_holes(is_missing), honest());
        let before = assert_index_is_true(case.root(), what);
        let (report, _) = run(&from(case.root(), &[&peer]));
        let missing: Vec<BlockHash> =
            chain().main().map(|block| block.hash).filter(|hash| !before.contains(hash)).collect();
        let mut asked = peer.asked();
        asked.sort_unstable_by_key(|hash| served().find(hash));
        assert_eq!(asked, missing, "{what}");
        assert_eq!((report.download.blocks as usize, report.download.found), (missing.len(), 0), "{what}");
        assert_sound(case.root(), chain(), what);
    }
}

#[test]
fn a_finished_datadir_downloads_nothing_and_is_not_rebuilt() {
    let (case, peer) = (Case::new(), honest());
    let (report, _) = run(&from(case.root(), &[&peer]));
    assert!(report.rebuild.is_some(), "the chainstate was three blocks behind");
    let before = tree(case.root());
    for stop in [None, Some(Height(100))] {
        let (report, _) = run(&changed(from(case.root(), &[&peer]), |it| it.chain.stop_at_height = stop));
        assert!(report.rebuild.is_none(), "{stop:?}");
        assert_eq!(report.height, stop.unwrap_or(Height(TIP)));
        assert_eq!(report.chainstate_height, Some(Height(TIP)));
        assert_same_tree(&before, case.root(), "a finished datadir");
    }
    assert_eq!(peer.asked(), []);
    assert_sound(case.root(), chain(), "finished");
}

#[test]
fn a_datadir_whose_index_has_only_headers_is_filled() {
    let (dir, peer) = (scratch(), honest());
    let (report, _) = run(&from_to(dir.path(), &[&peer], 0));
    assert_eq!((report.height, report.header_height), (Height(0), Height(TIP)));
    assert_eq!(index(dir.path()).entries.len(), tip() + 1);
    let (report, _) = run(&from(dir.path(), &[&peer]));
    assert_eq!(report.download.blocks as usize, tip());
    assert_sound(dir.path(), chain(), "after headers");
}

#[test]
fn a_download_stops_at_a_height_and_goes_on_from_there() {
    let (dir, peer) = (scratch(), honest());
    for stop in [1, 70, 71] {
        let (report, _) = run(&from_to(dir.path(), &[&peer], stop));
        assert_eq!((report.height, peer.asked().len()), (Height(stop), stop as usize));
        let found = acceptance::stats(dir.path(), Network::Regtest).unwrap();
        let expected = stats_by_height(chain())[stop as usize].hash_serialized_3;
        assert_eq!(found.hash_serialized_3, expected, "height {stop}");
        assert_eq!(assert_index_is_true(dir.path(), "stopped").len(), stop as usize + 1);
    }
    run(&from(dir.path(), &[&peer]));
    assert_eq!(peer.asked().len(), tip());
    assert_sound(dir.path(), chain(), "after stops");
}

#[test]
fn a_few_blocks_above_the_chainstate_are_connected_without_a_rebuild() {
    let (dir, peer) = (scratch(), honest());
    run(&from_to(dir.path(), &[&peer], TIP - 1));
    let (report, _) = run(&from(dir.path(), &[&peer]));
    assert_eq!((report.height, report.chainstate_height), (Height(TIP), Some(Height(TIP))));
    let update = report.update.unwrap();
    assert_eq!((update.height_before, update.undo_written), (Height(TIP - 1), 1));
    assert!(report.rebuild.is_none());
    assert_sound(dir.path(), chain(), "one more block");
}

/// All blocks were downloaded before the run failed, and what it advised was a rebuild that the node does not
/// need; the next run failed too.
#[test]
fn an_interrupted_flush_near_the_tip_is_left_to_bitcoind_if_it_can_complete_it() {
    let stored_to = |height| Case::of(behind(chain().main().take(tip()), height, &layout()));
    let (near, far, peer) = (stored_to(TIP - 1), stored_to(TIP / 2), honest());
    for case in [&near, &Case::at_tip()] {
        interrupt_flush(case, 50);
        let words = ["bitcoind was stopped while it wrote"];
        let error = assert_fails(try_run(&from(case.root(), &[&peer])), ErrorKind::Damaged, &words);
        assert_eq!(error.remedies, [Remedy::LetBitcoindFinish]);
    }
    assert_eq!(peer.asked(), [], "refused before the download");
    truncate(&blk(&near, &entry(&near, 60)), 100).unwrap();
    interrupt_flush(&far, 50);
    for (what, case) in [("a lost block", near), ("far behind", far)] {
        assert!(try_run(&from(case.root(), &[&peer])).unwrap().rebuild.is_some(), "{what}");
        assert_synced(case.root(), chain(), what);
    }
}

#[test]
fn blocks_only_leaves_blocks_that_a_later_run_checks() {
    let (dir, peer) = (scratch(), honest());
    let only = SyncOptions { blocks_only: true, ..from(dir.path(), &[&peer]) };
    for downloaded in [tip(), 0] {
        let (report, _) = run(&only);
        assert!(report.rebuild.is_none());
        assert_eq!(report.download.blocks as usize, downloaded);
        assert!(!dir.path().join("regtest/chainstate").exists());
        assert_eq!(assert_index_is_true(dir.path(), "blocks only").len(), tip() + 1);
    }
    let stored = BlockStatus::VALID_TRANSACTIONS | BlockStatus::HAVE_DATA | BlockStatus::OPT_WITNESS;
    assert!(index(dir.path()).entries.iter().all(|entry| entry.status.0 == stored), "as Core writes it");
    run(&from(dir.path(), &[&peer]));
    assert_eq!(peer.asked().len(), tip());
    assert_sound(dir.path(), chain(), "after blocks only");
}

/// A download of hours sees new blocks, which peers that are connected since the start have, too: what a peer
/// said of its height in the beginning was the limit of what it was asked for, and the download never ended.
#[test]
fn blocks_that_are_found_meanwhile_are_downloaded_from_connected_peers() {
    let (dir, peer) = (scratch(), peer_with(chain().main().take(130)));
    peer.hold_at(50);
    let (report, _) = run_while(&from(dir.path(), &[&peer]), |_| {
        wait_until("50 blocks", || peer.asked().len() > 50);
        peer.serve(&served());
        peer.hold_at(usize::MAX);
    });
    assert_eq!((report.height, peer.accepted()), (Height(TIP), 1));
    assert_sound(dir.path(), chain(), "new blocks");
}

/// The same options, where the minimum work is that of the tests' chain.
fn of_minimum_work(options: SyncOptions) -> SyncOptions {
    // A block of regtest has a work of two.
    let minimum_chain_work = U256::from(2 * u64::from(TIP));
    let params = ChainParams { minimum_chain_work, ..ChainParams::of(Network::Regtest).clone() };
    changed(options, |it| it.chain.params = Box::leak(Box::new(params)))
}

/// The only peer was itself downloading, and was never asked again.
#[test]
fn a_run_that_waits_goes_on_once_its_peer_has_the_minimum_work() {
    let (dir, peer) = (scratch(), peer_with(chain().main().take(70)));
    let mut options = of_minimum_work(impatient(from(dir.path(), &[&peer])));
    options.peers.wait = true;
    run_while(&options, |_| {
        wait_until("connected", || peer.accepted() > 0);
        thread::sleep(Duration::from_millis(500));
        assert_eq!(peer.asked(), []);
        peer.serve(&served());
    });
    assert_sound(dir.path(), chain(), "minimum work");
}

/// As Core, which otherwise would store whatever a peer has made at no cost.
#[test]
fn no_block_is_asked_for_below_the_minimum_work_of_the_network() {
    let (dir, peer) = (scratch(), peer_with(chain().main().take(70)));
    let options = of_minimum_work(from(dir.path(), &[&peer]));
    let connected = OnceLock::new();
    interrupt_when(&options, || {
        peer.accepted() > 0 && connected.get_or_init(Instant::now).elapsed() >= Duration::from_millis(700)
    });
    assert!(peer.asked().is_empty());
    assert_eq!(index(dir.path()).entries.len(), 1, "its headers are not stored either");
    peer.serve(&served());
    run(&options);
    assert_sound(dir.path(), chain(), "minimum work");
}

#[test]
fn all_peers_vanish_and_come_back() {
    let (dir, peers) = (scratch(), [honest(), honest()]);
    peers.iter().for_each(|peer| peer.hold_at(20));
    run_while(&from(dir.path(), &[&peers[0], &peers[1]]), |_| {
        wait_until("20 blocks", || peers.iter().all(|peer| peer.asked().len() > 20));
        peers.iter().for_each(|peer| peer.set_offline(true));
        peers.iter().for_each(|peer| peer.hold_at(usize::MAX));
        thread::sleep(Duration::from_millis(300));
        peers.iter().for_each(|peer| peer.set_offline(false));
    });
    assert_sound(dir.path(), chain(), "vanished");
    assert!(asked(&peers) <= tip() + 100, "{} blocks were asked for", asked(&peers));
}
