//! A download is interrupted, or the disk or the power fails: the block index is true afterwards, and the
//! next run goes on without downloading what is stored.

use acceptance::faults::each_operation;
use acceptance::prelude::*;
use acceptance::sync::tiny_peer as peer;
use acceptance::sync::{assert_synced, from, placed, run, run_on, tiny, try_run};
use disk::{
    datadir::Datadir,
    scan::{ScannedBlock, scan_files},
    xor::read_block_obfuscation,
};
use std::collections::BTreeSet;
use sync::{SyncOptions, SyncReport};
use testkit::peer::ScriptedPeer;
use vfs::Disk as _;

fn blocks() -> usize {
    tiny().main().count() - 1
}

/// The blocks above genesis that the block files contain, whole and where a scan finds them. A scan does not
/// read blocks, so it also finds one whose end a fault has kept from the file.
fn in_files(root: &Path) -> BTreeSet<BlockHash> {
    let datadir = Datadir::at(root, Network::Regtest);
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    let scan = scan_files(&RealDisk, &datadir, obfuscation, |_| true, &[]).unwrap();
    let is_whole = |found: &ScannedBlock| {
        let mut bytes = vec![0; found.size as usize];
        let file = RealDisk.open(&datadir.blk_path(found.file)).unwrap();
        file.read_exact_at(&mut bytes, found.data_pos.0).unwrap();
        obfuscation.apply(&mut bytes, found.data_pos.0);
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

/// Options for a kind of download from a peer.
type Kind = fn(&Path, &ScriptedPeer) -> SyncOptions;

const OF_BLOCKS: Kind = |root, peer| from(root, &[peer]);
const WITH_COINS: Kind = |root, peer| SyncOptions { spent_coins: true, ..OF_BLOCKS(root, peer) };
const WITH_CHECKPOINTS: Kind = |root, peer| {
    let mut options = WITH_COINS(root, peer);
    options.resume.checkpoint_interval = Duration::ZERO;
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
        let (dir, peer, interrupt) = (scratch(), peer(), Arc::new(AtomicBool::new(false)));
        let options = from(dir.path(), &[&peer]);
        let disk = FaultDisk::signal_at(at, &interrupt);
        let (done, _) = run_on(&disk, &options, &interrupt);
        let Err(error) = done else { return false };
        assert_eq!(error.kind, ErrorKind::Interrupted, "{what}: {error}");
        interrupted.fetch_add(1, Ordering::Relaxed);
        let placed = placed(dir.path(), &what);
        assert_eq!(placed, in_files(dir.path()).len(), "{what}: all that was stored is in the index");
        let report = finish(&options, &what);
        assert_eq!(
            (report.download.blocks as usize, report.download.found),
            (blocks() - placed, 0),
            "{what}"
        );
        false
    });
    assert!(interrupted.into_inner() >= 10, "few runs were interrupted");
}

/// Lets each third operation of those fail once, and checks what the next run does.
fn fault_loop(kind: Kind, operations: Operations, count: u64) {
    let failures = AtomicU64::new(0);
    each_operation(1, |number| {
        let (at, what) = (number * 3, format!("operation {}, {operations:?}", number * 3));
        let (dir, peer) = (scratch(), peer());
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, operations, io::ErrorKind::Other);
        let options = kind(dir.path(), &peer);
        let blocks_only = SyncOptions { blocks_only: !options.spent_coins, ..options.clone() };
        let (done, _) = run_on(&disk, &blocks_only, &AtomicBool::new(false));
        disk.heal();
        let placed = placed(dir.path(), &what);
        let Err(error) = done else {
            assert_eq!(placed, blocks(), "{what}: it reported success");
            return number >= count;
        };
        failures.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
        let has_files = placed > 0 || dir.path().join("regtest/blocks/blk00000.dat").exists();
        let stored = if has_files { in_files(dir.path()).len() } else { 0 };
        let report = finish(&options, &what);
        if blocks_only.blocks_only {
            assert_eq!(report.download.found as usize, stored - placed, "{what}: {placed} are in the index");
            assert_eq!(report.download.blocks as usize, blocks() - stored, "{what}: blocks came twice");
        }
        number >= count
    });
    assert!(failures.into_inner() >= count / 2, "few operations failed a run");
}

#[test]
fn a_single_fault_fails_the_run_and_loses_nothing() {
    fault_loop(OF_BLOCKS, Operations::Changes, 40);
    fault_loop(WITH_COINS, Operations::Changes, 20);
}

#[test]
fn a_failed_read_fails_the_run_and_loses_nothing() {
    fault_loop(OF_BLOCKS, Operations::All, 50);
}

#[test]
fn wherever_a_run_is_killed_or_the_power_fails_the_next_one_completes_the_work() {
    for kind in [OF_BLOCKS, WITH_COINS, WITH_CHECKPOINTS] {
        let states = Scenario {
            before: &|| Case::of(scratch()),
            run: &|disk, case| run_on(disk, &kind(case.root(), &peer()), &AtomicBool::new(false)).0.map(drop),
            is_whole: &|case, is_done, what| {
                let placed = placed(case.root(), what);
                assert!(!is_done || placed == blocks(), "{what}: it reported success");
            },
            succeeds: &|case, what| {
                let placed = placed(case.root(), what);
                let report = finish(&kind(case.root(), &peer()), what);
                assert!(report.download.blocks as usize <= blocks() - placed, "{what}: blocks came twice");
            },
        }
        .explore(Crashes { stride: 20, twice: false, ..Crashes::default() });
        assert!(states > 30, "{states}");
    }
}

#[test]
fn a_disk_that_is_full_is_an_error_of_the_environment() {
    for bytes in [0, 100, 5_000, 20_000, 40_000] {
        let (dir, peer) = (scratch(), peer());
        let options = from(dir.path(), &[&peer]);
        let disk = FaultDisk::full_after(bytes);
        let (done, _) = run_on(&disk, &options, &AtomicBool::new(false));
        assert_eq!(done.unwrap_err().kind, ErrorKind::Environment, "{bytes} bytes");
        placed(dir.path(), &format!("{bytes} bytes"));
        run(&options);
        assert_synced(dir.path(), tiny(), &format!("{bytes} bytes, then more"));
    }
}
