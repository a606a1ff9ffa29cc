//! Peers whose best chain has a block that only connecting it shows to be invalid: the download ends on the
//! best valid chain that any peer offers, without checking the same blocks again and again.

use acceptance::{prelude::*, sync::run};
use std::sync::atomic::AtomicU32;
use sync::{MarkedBranch, sync};
use testkit::peer::peer_with as peer;

/// Number of blocks by which the invalid branches are longer than the honest chain.
const LONGER: usize = 5;

/// Height of the honest peer's last block.
fn honest_tip() -> usize {
    tip() - LONGER
}

/// A branch that is longer than the honest chain.
fn greedy(fork: usize, invalid: usize, number: u64) -> Vec<GeneratedBlock> {
    greedy_branch(fork, invalid, tip(), number)
}

/// Blocks of a branch, and the height of the one whose coinbase pays too much.
type Greedy = (Vec<GeneratedBlock>, usize);

/// Asserts that each of the blocks that were found invalid is the first invalid one of a branch, which may
/// spend a coin of the honest chain below the greedy block, and that just it and those above it are marked.
fn assert_marked(root: &Path, branches: &[Greedy], found: &[(BlockHash, String)], what: &str) {
    let mut expected = BTreeSet::new();
    for (hash, rule) in found {
        let at = |(blocks, _): &&Greedy| blocks.iter().any(|block| block.hash == *hash);
        let (blocks, greedy) = branches.iter().find(at).unwrap_or_else(|| panic!("{what}: {hash} {rule}"));
        let at = blocks.iter().position(|block| block.hash == *hash).unwrap();
        let core = if at == *greedy { "coinbase-amount" } else { "missing-or-spent" };
        assert!(at <= *greedy && rule.contains(core), "{what}: {at} {rule}");
        expected.extend(blocks[at..].iter().map(|block| block.hash));
    }
    assert_eq!(marked(root), expected, "{what}");
}

/// Asserts that a download has ended with the honest chain, and that its report says so.
fn assert_honest(options: &SyncOptions, report: &SyncReport, what: &str) {
    let end = Height(honest_tip() as u32);
    assert_eq!((report.height, report.header_height), (end, end), "{what}");
    assert_eq!((report.chainstate_height, report.left_out), (Some(end), None), "{what}");
    assert_eq!(report.hash, main_to(honest_tip())[honest_tip()].hash, "{what}");
    assert_synced_to(end.0, &options.chain.datadir, chain(), what);
}

/// Downloads from an honest peer and those with these branches, and asserts that the result is the honest
/// chain, that each invalid block is named once and marked with all above it, and that the work is bounded.
fn check(branches: &[Greedy], what: &str) {
    let (dir, honest) = (scratch(), peer(&main_to(honest_tip())));
    let evil: Vec<ScriptedPeer> = branches.iter().map(|(blocks, _)| peer(blocks)).collect();
    let peers: Vec<&ScriptedPeer> = evil.iter().chain([&honest]).collect();
    let options = from(dir.path(), &peers);
    let (report, seen) = run(&options);
    assert_honest(&options, &report, what);
    assert_eq!(seen.reasons(&honest), [] as [&str; 0], "{what}");
    let found = invalid_blocks(&report);
    assert_marked(dir.path(), branches, &found, what);
    let checked = options.chain.hooks.blocks_checked.load(Ordering::Relaxed);
    let valid = honest_tip() as u64 + 1;
    // A branch that breaks two rules can cost a third pass.
    let passes = 1 + 2 * found.len() as u64 + u64::from(found.len() > 1);
    assert!(checked <= valid * passes, "{what}: {checked} blocks of {valid}");
}

#[test]
fn the_best_valid_chain_is_taken_wherever_an_invalid_one_forks() {
    for (fork, invalid) in [
        (0, 1),
        (1, 2),
        (1, honest_tip() - 10),
        (60, 61),
        (honest_tip() - 16, honest_tip() - 15),
        (honest_tip() - 1, honest_tip()),
    ] {
        let what = format!("fork at {fork}, invalid at {invalid}");
        check(&[(greedy(fork, invalid, 1), invalid)], &what);
    }
}

#[test]
fn several_invalid_branches_are_left_one_after_another() {
    let at = [(honest_tip() - 15, honest_tip() - 14), (50, honest_tip() - 3), (1, 90)];
    let branches = at.iter().zip(1..).map(|(&(fork, at), number)| (greedy(fork, at, number), at));
    check(&branches.collect::<Vec<_>>(), "three branches");
}

#[test]
fn a_peer_that_offers_only_an_invalid_chain_is_left_with_the_blocks_below() {
    let (dir, invalid) = (scratch(), honest_tip() - 14);
    let evil = peer(&greedy(invalid - 1, invalid, 1));
    let options = from(dir.path(), &[&evil]);
    let (report, seen) = run(&options);
    assert_eq!(seen.reasons(&evil), ["headers: the headers break a consensus rule"]);
    assert_eq!(report.height, Height(invalid as u32 - 1));
    assert_eq!((report.header_height, report.chainstate_height), (report.height, Some(report.height)));
    assert_synced_to(invalid as u32 - 1, dir.path(), chain(), "below the invalid block");
    // Another run has nothing to check.
    options.chain.hooks.blocks_checked.store(0, Ordering::Relaxed);
    let honest = peer(&main_to(honest_tip()));
    let options = SyncOptions { chain: options.chain.clone(), ..from(dir.path(), &[&evil, &honest]) };
    let (report, _) = run(&options);
    assert_honest(&options, &report, "the next run");
}

/// Returns what a run does that is interrupted after this number of events.
fn run_until(options: &SyncOptions, events: u32) -> Result<SyncReport, Error> {
    let (interrupt, seen) = (AtomicBool::new(false), AtomicU32::new(0));
    let sink = |_| interrupt.store(seen.fetch_add(1, Ordering::Relaxed) >= events, Ordering::Relaxed);
    sync(&FaultDisk::healthy(), options, &sink, &interrupt)
}

#[test]
fn an_interrupted_run_goes_on_to_the_best_valid_chain() {
    let (honest, at) = (peer(&main_to(honest_tip())), honest_tip() - 14);
    let evil = peer(&greedy(at - 1, at, 1));
    for events in (0..60).step_by(3) {
        let (dir, what) = (scratch(), format!("interrupted after {events} events"));
        let options = from(dir.path(), &[&evil, &honest]);
        let first = run_until(&options, events);
        if let Err(error) = first {
            assert_eq!(error.kind, ErrorKind::Interrupted, "{what}: {error}");
        }
        let (report, _) = run(&options);
        assert_honest(&options, &report, &what);
    }
}

#[test]
fn the_best_valid_chain_is_taken_where_block_files_are_deleted() {
    for (fork, at) in [
        (honest_tip() - 15, honest_tip() - 14),
        (40, honest_tip() - 5),
        (honest_tip() - 4, honest_tip() - 1),
        (1, honest_tip() - 20),
    ] {
        let (dir, what) = (scratch(), format!("fork at {fork}, invalid at {at}"));
        let (honest, evil) = (peer(&main_to(honest_tip())), peer(&greedy(fork, at, 1)));
        let mut options = from(dir.path(), &[&evil, &honest]);
        options.prune_bytes = Some(120_000);
        options.chain.memory_bytes = 256 << 20;
        (options.chain.hooks.block_file_len, options.chain.hooks.undo_blocks) = (10_000, 100);
        let (report, _) = run(&options);
        let end = Height(honest_tip() as u32);
        assert_eq!((report.height, report.header_height), (end, end), "{what}");
        assert!(report.chainstate_height.is_some_and(|height| height.0 + 1 >= end.0), "{what}: {report:?}");
        let found = stats(dir.path(), Network::Regtest).unwrap();
        let height = report.chainstate_height.unwrap().0 as usize;
        assert_eq!(found.hash_serialized_3, stats_by_height(chain())[height].hash_serialized_3, "{what}");
        assert!(marked(dir.path()).len() >= LONGER, "{what}");
    }
}

#[test]
fn the_best_valid_chain_is_followed() {
    let (dir, at) = (scratch(), honest_tip() - 14);
    let (honest, evil) = (peer(&main_to(honest_tip())), peer(&greedy(at - 1, at, 1)));
    let options = SyncOptions { follow: true, ..from(dir.path(), &[&evil, &honest]) };
    let (report, _) = run_while(&options, Seen::wait_for_tip);
    assert_honest(&options, &report, "followed");
}

#[test]
fn a_mark_in_the_datadir_ends_the_run_and_is_named() {
    let (dir, all) = (scratch(), main_to(honest_tip()));
    let (ahead, below) = (peer(&all), peer(&main_to(honest_tip() - 1)));
    run(&from(dir.path(), &[&below]));
    mark_next(dir.path(), &all[honest_tip()]);
    let before = index(dir.path());
    let (report, seen) = run(&from(dir.path(), &[&ahead]));
    let (height, hash) = (Height(honest_tip() as u32), all[honest_tip()].hash);
    assert_eq!(report.left_out, Some(MarkedBranch { height, hash, tip: height }));
    assert_eq!((report.height, report.header_height), (Height(height.0 - 1), Height(height.0 - 1)));
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    assert!(notes.len() == 1 && notes[0].contains(&format!("reconsiderblock {hash}")), "{notes:?}");
    assert_eq!(seen.reasons(&ahead), [] as [&str; 0], "the peer has done nothing wrong");
    assert_eq!(index(dir.path()).entries, before.entries);
    // If another peer ends where the datadir does, that is the best chain.
    let (report, _) = run(&from(dir.path(), &[&ahead, &below]));
    assert_eq!((report.left_out, report.notes.len()), (None, 1));
    assert_synced_to(height.0 - 1, dir.path(), chain(), "below the mark");
}

/// The honest peer connects only when the other one has been closed for some time.
#[test]
fn an_honest_peer_that_is_slow_to_connect_is_waited_for() {
    let (dir, at) = (scratch(), honest_tip() - 14);
    let (evil, honest) = (peer(&greedy(at - 1, at, 1)), peer(&main_to(honest_tip())));
    honest.set_offline(true);
    let options = impatient(from(dir.path(), &[&evil, &honest]));
    let (report, _) = run_while(&options, |seen| {
        wait_until("closed", || !seen.reasons(&evil).is_empty());
        // Ten seconds of the client.
        thread::sleep(Duration::from_millis(500));
        honest.set_offline(false);
    });
    assert_honest(&options, &report, "a slow peer");
}

/// The headers of a chain are known, and its blocks are gone with the peer that had them.
#[test]
fn a_chain_of_which_only_headers_are_known_is_left() {
    let (dir, at) = (scratch(), honest_tip() - 14);
    let gone = peer(&greedy(at - 1, at, 1));
    gone.hold_at(0);
    interrupt_when(&from(dir.path(), &[&gone]), || !gone.asked().is_empty());
    let honest = peer(&main_to(honest_tip()));
    let options = impatient(from(dir.path(), &[&honest]));
    let (report, seen) = run(&options);
    assert_eq!(seen.reasons(&honest), [] as [&str; 0]);
    assert_honest(&options, &report, "headers alone");
}
