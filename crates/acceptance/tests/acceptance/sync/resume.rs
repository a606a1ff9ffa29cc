//! A download is interrupted, or the disk or the power fails: the block index is true afterwards, and the
//! next run goes on without downloading what is stored.

use acceptance::prelude::*;
use acceptance::sync::tiny_peer as peer;
use acceptance::sync::{assert_index_is_true, assert_synced, from, index, run, run_on, tiny};
use disk::{
    datadir::Datadir,
    scan::{ScannedBlock, scan_files},
    xor::read_block_obfuscation,
};
use std::collections::BTreeSet;
use sync::{SyncOptions, SyncReport};
use vfs::Disk as _;

fn blocks() -> usize {
    tiny().main().count() - 1
}

/// Calls `trial` with each number below `count`, on several threads.
fn each(count: u64, trial: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    trial(number);
                }
            });
        }
    });
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

/// Number of blocks above genesis that the index places; 0 if there is no datadir yet.
fn placed(root: &Path, what: &str) -> usize {
    let has_index = root.join("regtest/blocks/index/CURRENT").exists();
    if has_index && root.join("regtest/blocks/blk00000.dat").exists() {
        assert_index_is_true(root, what).len() - 1
    } else {
        0
    }
}

/// Lets a later run finish.
fn finish(options: &SyncOptions, what: &str) -> SyncReport {
    let root = &options.chain.datadir;
    let (done, _) = run_on(&FaultDisk::healthy(), options, &AtomicBool::new(false));
    let report = done.unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_synced(root, tiny(), what);
    report
}

/// Number of operations that change something in an undisturbed run.
fn operations() -> u64 {
    static COUNT: OnceLock<u64> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let (dir, peer) = (scratch(), peer());
        let disk = FaultDisk::healthy();
        run_on(&disk, &from(dir.path(), &[&peer]), &AtomicBool::new(false)).0.unwrap();
        disk.count()
    })
}

#[test]
fn an_interrupted_download_goes_on_where_it_was() {
    let mut rng = Rng::new(5, "interrupts");
    let mut operations: Vec<u64> = (0..20).map(|_| rng.below(400)).collect();
    operations.extend([0, 1]);
    let interrupted = AtomicU64::new(0);
    each(operations.len() as u64, |number| {
        let at = operations[number as usize];
        let what = format!("interrupted at operation {at}");
        let (dir, peer, interrupt) = (scratch(), peer(), Arc::new(AtomicBool::new(false)));
        let options = from(dir.path(), &[&peer]);
        let disk = FaultDisk::signal_at(at, &interrupt);
        let (done, _) = run_on(&disk, &options, &interrupt);
        let Err(error) = done else { return };
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
    });
    assert!(interrupted.into_inner() >= 10, "few runs were interrupted");
}

/// Fails at operation after operation, and checks what the next run does.
fn fault_loop(fault: InjectedFault, operations: Operations, kind: io::ErrorKind, stride: u64, count: u64) {
    let failures = AtomicU64::new(0);
    each(count, |number| {
        let at = number * stride;
        let what = format!("operation {at}, {fault:?}, {operations:?}, {kind:?}");
        let (dir, peer) = (scratch(), peer());
        let disk = FaultDisk::fail_at(at, fault, operations, kind);
        let options = SyncOptions { blocks_only: true, ..from(dir.path(), &[&peer]) };
        let (done, _) = run_on(&disk, &options, &AtomicBool::new(false));
        disk.heal();
        let Err(error) = done else {
            assert_eq!(placed(dir.path(), &what), blocks(), "{what}: it reported success");
            return;
        };
        failures.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
        let placed = placed(dir.path(), &what);
        let stored = if placed > 0 || dir.path().join("regtest/blocks/blk00000.dat").exists() {
            in_files(dir.path()).len()
        } else {
            0
        };
        let report = finish(&SyncOptions { blocks_only: false, ..options }, &what);
        assert_eq!(report.download.found as usize, stored - placed, "{what}: {placed} are in the index");
        assert_eq!(report.download.blocks as usize, blocks() - stored, "{what}: blocks came twice");
    });
    assert!(failures.into_inner() >= count / 2, "few operations failed a run");
}

#[test]
fn a_single_fault_fails_the_run_and_loses_nothing() {
    fault_loop(InjectedFault::Once, Operations::Changes, io::ErrorKind::Other, 3, 40);
}

#[test]
fn a_failed_read_fails_the_run_and_loses_nothing() {
    fault_loop(InjectedFault::Once, Operations::All, io::ErrorKind::Other, 5, 30);
}

#[test]
fn a_dead_disk_leaves_a_datadir_that_is_completed_later() {
    fault_loop(InjectedFault::Sticky, Operations::Changes, io::ErrorKind::StorageFull, 4, 30);
}

#[test]
fn a_power_cut_loses_only_what_was_not_synced() {
    let operations = operations();
    each(60, |seed| {
        let mut rng = Rng::new(seed, "cut");
        let at = rng.below(operations);
        let what = format!("power cut at operation {at} of {operations}, seed {seed}");
        let (dir, aside, peer) = (scratch(), scratch(), peer());
        let disk = FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other)
            .with_names_at_risk(aside.path());
        let options = from(dir.path(), &[&peer]);
        // The disk may die when all is done except removals of old files.
        let _ = run_on(&disk, &options, &AtomicBool::new(false));
        disk.cut_power(seed).unwrap();
        let placed = placed(dir.path(), &what);
        let report = finish(&options, &what);
        assert!(report.download.blocks as usize <= blocks() - placed, "{what}: blocks came twice");
        assert!(index(dir.path()).entries.len() > blocks(), "{what}");
    });
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
