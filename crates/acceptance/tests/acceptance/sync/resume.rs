//! A download is interrupted, or the disk or the power fails: the block index is true afterwards, and the
//! next run goes on without downloading what is stored.

use acceptance::prelude::*;
use acceptance::sync::{placed, run_on, tiny, tiny_blocks as blocks, tiny_peer as peer};
use disk::scan::{ScannedBlock, scan_files};
use testkit::datadir::read_block;

/// The blocks above genesis that the block files contain, whole and where a scan finds them. A scan does not
/// read blocks, so it also finds one whose end a fault has kept from the file.
fn in_files(root: &Path) -> BTreeSet<BlockHash> {
    let datadir = Datadir::at(root, Network::Regtest);
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    let scan = scan_files(&RealDisk, &datadir, obfuscation, |_| true, &[]).unwrap();
    let is_whole = |found: &ScannedBlock| {
        let bytes = read_block(&datadir, found.file, found.data_pos);
        tiny().main().skip(1).any(|block| block.hash == found.hash && block.bytes == bytes)
    };
    scan.blocks.iter().filter(|found| is_whole(found)).map(|found| found.hash).collect()
}

/// Lets a later run finish.
fn finish(options: &SyncOptions, what: &str) -> SyncReport {
    let root = &options.chain.datadir;
    let report = try_run(options).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    // If nothing was left to do, nobody has looked for checkpoints.
    let _ = fs::remove_dir_all(root.join("regtest/peregrine-work"));
    assert_synced(root, tiny(), what);
    assert!(!root.join("regtest/blocks/peregrine-spent-coins").exists(), "{what}");
    report
}

type Kind = fn(&Path, &ScriptedPeer) -> SyncOptions;

const OF_BLOCKS: Kind = |root, peer| from(root, &[peer]);
const WITH_COINS: Kind = |root, peer| SyncOptions { spent_coins: true, ..OF_BLOCKS(root, peer) };
const WITH_CHECKPOINTS: Kind = |root, peer| {
    let mut options = WITH_COINS(root, peer);
    options.chain.resume.checkpoint_interval = Duration::ZERO;
    options
};

#[test]
fn an_interrupted_download_goes_on_where_it_was() {
    let mut rng = Rng::new(5, "interrupts");
    let mut operations: Vec<u64> = (0..20).map(|_| rng.below(400)).collect();
    operations.extend([0, 1]);
    let interrupted = AtomicU64::new(0);
    each_operation(1, |number| {
        let Some(&at) = operations.get(number as usize) else { return true };
        let what = format!("interrupted at operation {at}");
        let (dir, peer, disk) = (scratch(), peer(), FaultDisk::interrupting_at(at));
        let options = from(dir.path(), &[&peer]);
        let Err(error) = run_on(&disk, &options) else { return false };
        assert_eq!(error.kind, ErrorKind::Interrupted, "{what}: {error}");
        interrupted.fetch_add(1, Ordering::Relaxed);
        let placed = placed(dir.path(), &what);
        assert_eq!(placed, in_files(dir.path()).len(), "{what}: all that was stored is in the index");
        let report = finish(&options, &what);
        let downloaded = report.download.blocks as usize;
        assert_eq!((downloaded, report.download.found), (blocks() - placed, 0), "{what}");
        false
    });
    assert!(interrupted.into_inner() >= 10, "few runs were interrupted");
}

/// The work directory was looked for beside a link to the chainstate, not beside the chainstate.
#[test]
fn what_a_power_cut_has_left_beside_a_chainstate_on_another_disk_is_removed() {
    let (case, elsewhere, peer) = (Case::of(scratch()), scratch(), peer());
    let options = from(case.root(), &[&peer]);
    try_run(&options).unwrap();
    acceptance::link_away(&case.net("chainstate"), &elsewhere.path().join("ssd"));
    write_file(elsewhere.path().join("peregrine-work/peregrine.lock"), "");
    try_run(&options).unwrap();
    assert_eq!(leftovers(elsewhere.path()), [] as [&Path; 0]);
}

/// Lets something happen to downloads: the index is true, and the next run asks for no block twice. The index
/// was once there before the first block file, and bitcoind did not start.
fn suffer(kind: Kind, blocks_only: bool, happen: impl FnOnce(&Scenario<'_>) -> u64) -> u64 {
    let options = |case: &Case, peer: &ScriptedPeer| kind(case.root(), peer);
    happen(&Scenario {
        before: &|| Case::of(scratch()),
        run: &|disk, case| {
            let peer = peer();
            let options = SyncOptions { blocks_only, ..options(case, &peer) };
            run_on(disk, &options).map(drop)
        },
        is_whole: &|case, is_done, what| {
            let [index, first] = ["index", "blk00000.dat"].map(|name| case.blocks(name).exists());
            assert!(first || !index, "{what}: the index places a block in a file that is missing");
            let placed = placed(case.root(), what);
            assert!(!is_done || placed == blocks(), "{what}: it reported success");
        },
        succeeds: &|case, what| {
            let placed = placed(case.root(), what);
            let has_files = placed > 0 || case.blocks("blk00000.dat").exists();
            let stored = if has_files { in_files(case.root()).len() } else { 0 };
            let report = finish(&options(case, &peer()), what).download;
            assert!(report.blocks as usize <= blocks() - placed, "{what}: blocks came twice");
            if blocks_only {
                assert_eq!(report.found as usize, stored - placed, "{what}: {placed} are in the index");
                assert_eq!(report.blocks as usize, blocks() - stored, "{what}: blocks came twice");
            }
        },
    })
}

#[test]
fn a_single_fault_or_a_full_disk_fails_the_run_and_loses_nothing() {
    for (kind, blocks_only, trouble, stride, least) in [
        (OF_BLOCKS, true, Trouble::CHANGE, 11, 10),
        (OF_BLOCKS, true, Trouble::ANY, 41, 10),
        (WITH_COINS, false, Trouble::CHANGE, 29, 5),
        (OF_BLOCKS, false, Trouble::Full, 10_000, 4),
    ] {
        let failures = suffer(kind, blocks_only, |scenario| scenario.suffer(trouble, stride, false));
        assert!(failures >= least, "{trouble:?}: {failures} operations failed a run");
    }
}

#[test]
fn wherever_a_run_is_killed_or_the_power_fails_the_next_one_completes_the_work() {
    for kind in [OF_BLOCKS, WITH_COINS, WITH_CHECKPOINTS] {
        let crashes = Crashes { stride: 20, twice: false, ..Crashes::default() };
        let states = suffer(kind, false, |scenario| scenario.explore(crashes));
        assert!(states > 30, "{states}");
    }
}

/// Such a run failed until it was started over: its undo data ends at another block.
#[test]
fn a_run_that_was_killed_while_undo_data_was_put_in_place_continues_with_a_longer_chain() {
    let options = |root: &Path, peer: &ScriptedPeer| {
        let mut options = from(root, &[peer]);
        options.chain.hooks.block_file_len = 4_000;
        options.chain.resume.checkpoint_interval = Duration::ZERO;
        options
    };
    let shorter = || peer_with(tiny().main().take(blocks()));
    let (whole, counting) = (scratch(), FaultDisk::counting_changes());
    run_on(&counting, &options(whole.path(), &shorter())).unwrap();
    let (last, killed) = (counting.count(), AtomicU64::new(0));
    each_operation(1, |step| {
        let Some(at) = last.checked_sub(4 * step).filter(|_| step < 40) else { return true };
        let (dir, disk) = (scratch(), FaultDisk::killed_at(at));
        let _ = run_on(&disk, &options(dir.path(), &shorter()));
        let exists = |name| dir.path().join("regtest").join(name).exists();
        if exists("blocks/peregrine-undo/peregrine.complete")
            && !(exists("peregrine-commit") || exists("chainstate"))
        {
            killed.fetch_add(1, Ordering::Relaxed);
            let what = format!("killed at {at}");
            let report = finish(&options(dir.path(), &peer()), &what);
            assert!(report.rebuild.is_some_and(|rebuild| rebuild.resumed > 0), "{what}");
        }
        false
    });
    assert!(killed.into_inner() >= 2, "few runs were killed there");
}
