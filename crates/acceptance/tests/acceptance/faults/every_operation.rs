//! The disk fails at each operation of a whole rebuild in turn, once or permanently: afterwards the old
//! chainstate opens, or the new one is complete, and a rebuild on the repaired disk succeeds.

use acceptance::{
    Case, Template, assert_same_tree, bounded, changed,
    faults::{each_operation, tiny, tiny_case},
    leftovers, run, run_on, stats, tree,
};
use engine::{BlockHash, ErrorKind, MakeUndoOptions, Network, ReindexOptions, Remedy, make_undo};
use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use testkit::{
    datadir::Layout,
    fault::{FaultDisk, InjectedFault, Operations},
    rng::Rng,
};

/// Best block and hash of the chainstate.
fn found(case: &Case) -> Result<(BlockHash, [u8; 32]), engine::Error> {
    stats(case.root(), Network::Regtest).map(|stats| (stats.best_block, stats.hash_serialized_3))
}

/// How an operation fails.
#[derive(Clone, Copy, Debug)]
struct Trial {
    fault: InjectedFault,
    /// Which operations are counted. A disk that fails permanently at a read leaves the same state as one
    /// that fails at the next change.
    operations: Operations,
    /// Distance between the operations that fail: most reads are alike.
    stride: u64,
    scan: bool,
    /// The file system cannot exchange names.
    in_steps: bool,
    /// Bytes that were not synced are lost with the fault.
    power_cut: bool,
}

const ONCE: Trial = Trial {
    fault: InjectedFault::Once,
    operations: Operations::Changes,
    stride: 1,
    scan: false,
    in_steps: false,
    power_cut: false,
};
const DEAD: Trial = Trial { fault: InjectedFault::Sticky, ..ONCE };

/// Fails operation after operation until a rebuild completes without a fault.
fn fault_loop(trial: Trial) {
    let Trial { fault, operations, stride, scan, in_steps, power_cut } = trial;
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    let old = found(&tiny_case()).unwrap();
    let failures = AtomicU64::new(0);
    each_operation(stride, |at| {
        let what = format!("operation {at}, {trial:?}");
        let case = tiny_case();
        let disk = FaultDisk::fail_at(at, fault, operations, io::ErrorKind::Other);
        let disk = if in_steps { disk.without_exchange() } else { disk };
        let options = ReindexOptions { scan, ..case.options() };
        let done = run_on(&disk, &options);
        if power_cut {
            disk.lose_unsynced().unwrap();
        }
        disk.heal();
        if !disk.has_failed() {
            assert_eq!(done.unwrap().hash_serialized_3, new.1, "{what}");
            return true;
        }
        if let Err(error) = &done {
            failures.fetch_add(1, Ordering::Relaxed);
            assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
        }
        // Three renames can be interrupted with no chainstate under its name; the next run repairs that.
        if !in_steps {
            let found =
                found(&case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
            assert!(found == old || found == new, "{what}: a mix of old and new");
            assert!(done.is_err() || found == new, "{what}: it reported success");
        }
        let again = run_on(&disk, &options).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert_eq!(again.hash_serialized_3, new.1, "{what}, again");
        let names: Vec<_> = tree(case.root()).into_keys().collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("peregrine")), "{what}: {names:?}");
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("exchange")), "{what}: {names:?}");
        false
    });
    let failures = failures.into_inner();
    assert!(failures >= 20, "only {failures} operations failed a run");
}

#[test]
fn a_single_fault_fails_the_run_and_nothing_else() {
    fault_loop(ONCE);
    fault_loop(Trial { operations: Operations::All, stride: 13, ..ONCE });
}

#[test]
fn a_single_fault_fails_a_scan_and_nothing_else() {
    fault_loop(Trial { scan: true, ..ONCE });
    fault_loop(Trial { operations: Operations::All, stride: 29, scan: true, ..ONCE });
}

#[test]
fn a_dead_disk_or_a_killed_process_leaves_the_old_or_the_new_chainstate() {
    fault_loop(DEAD);
    fault_loop(Trial { scan: true, ..DEAD });
}

#[test]
fn a_power_failure_leaves_the_old_or_the_new_chainstate() {
    fault_loop(Trial { power_cut: true, ..DEAD });
    fault_loop(Trial { power_cut: true, scan: true, ..DEAD });
}

#[test]
fn if_names_cannot_be_exchanged_the_next_run_repairs_them() {
    fault_loop(Trial { in_steps: true, ..DEAD });
    fault_loop(Trial { in_steps: true, scan: true, ..DEAD });
}

/// A datadir of the same chain in many small files: a checkpoint after each.
fn scattered_case() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    let layout = Layout { file_size: 4 << 10, ..acceptance::layout() };
    TEMPLATE.get_or_init(|| Template::laid_out(tiny(), &layout)).case()
}

/// Options with which a rebuild of it spills often enough for merges, and writes checkpoints often.
fn spilling(case: &Case) -> ReindexOptions {
    bounded(&case.options())
}

/// Asserts that after a failure either the old chainstate opens or the new one.
fn assert_old_or_new(case: &Case, done: &Result<engine::ReindexReport, engine::Error>, what: &str) {
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    static OLD: OnceLock<(BlockHash, [u8; 32])> = OnceLock::new();
    let old = OLD.get_or_init(|| found(&scattered_case()).unwrap());
    let found = found(case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
    assert!(found == *old || found == new, "{what}: a mix of old and new");
    match done {
        Ok(report) => {
            assert!(report.hash_serialized_3 == new.1 && found == new, "{what}: it reported success")
        }
        Err(error) => {
            let kind = error.kind;
            assert!(matches!(kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
        }
    }
}

/// Runs on a healthy disk: must succeed and leave no other files. Returns the number of blocks done before.
fn assert_succeeds(case: &Case, what: &str) -> u32 {
    let report = run(&spilling(case)).unwrap_or_else(|error| panic!("{what}, at the end: {error}"));
    assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3, "{what}");
    assert_eq!(report.counts.blocks, 113, "{what}");
    assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{what}");
    report.resumed
}

/// How an operation fails in a rebuild that spills and writes checkpoints, and then one in the resumed
/// rebuild.
#[derive(Clone, Copy, Debug)]
struct TwoFaults {
    fault: InjectedFault,
    operations: Operations,
    kind: io::ErrorKind,
    stride: u64,
}

const TWICE: TwoFaults = TwoFaults {
    fault: InjectedFault::Once,
    operations: Operations::Changes,
    kind: io::ErrorKind::Other,
    stride: 1,
};

fn fault_loop_of_two(two: TwoFaults) {
    let TwoFaults { fault, operations, kind, stride } = two;
    let (resumed, count) = (AtomicU64::new(0), AtomicU64::new(0));
    each_operation(stride, |at| {
        let what = format!("operation {at}, {two:?}");
        let case = scattered_case();
        let disk = FaultDisk::fail_at(at, fault, operations, kind);
        let done = run_on(&disk, &spilling(&case));
        assert_old_or_new(&case, &done, &what);
        if !disk.has_failed() {
            done.unwrap();
            return true;
        }
        let second = Rng::new(at, "second fault").below(disk.count() + 50);
        let what = format!("{what}, then {second}");
        let disk = FaultDisk::fail_at(second, fault, operations, kind);
        let done = run_on(&disk, &spilling(&case));
        assert_old_or_new(&case, &done, &what);
        resumed.fetch_add(u64::from(assert_succeeds(&case, &what) > 0), Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
        false
    });
    let (resumed, count) = (resumed.into_inner(), count.into_inner());
    eprintln!("{two:?}: {count} operations, {resumed} runs resumed");
    assert!(count >= 50 && resumed >= count / 4, "of {count} runs {resumed} resumed");
}

#[test]
fn two_faults_cost_a_run_that_spills_only_time() {
    fault_loop_of_two(TWICE);
    fault_loop_of_two(TwoFaults { operations: Operations::All, stride: 37, ..TWICE });
}

#[test]
fn a_disk_that_fails_permanently_twice_costs_a_run_that_spills_only_time() {
    fault_loop_of_two(TwoFaults { fault: InjectedFault::Sticky, ..TWICE });
}

/// The disk is full at any point: completed work is kept, and more free space is all that is needed.
#[test]
fn a_full_disk_does_not_lose_completed_work() {
    let (failures, resumed) = (AtomicU64::new(0), AtomicU64::new(0));
    each_operation(20_000, |bytes| {
        let what = format!("{bytes} bytes of free space");
        let case = scattered_case();
        let disk = FaultDisk::full_after(bytes);
        let done = run_on(&disk, &spilling(&case));
        assert_old_or_new(&case, &done, &what);
        match done {
            Ok(_) => return true,
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Environment, "{what}: {error}");
                acceptance::assert_offers(&error, &[Remedy::FreeDiskSpace]);
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        resumed.fetch_add(u64::from(assert_succeeds(&case, &what) > 0), Ordering::Relaxed);
        false
    });
    let (failures, resumed) = (failures.into_inner(), resumed.into_inner());
    assert!(failures >= 50 && resumed >= failures / 2, "of {failures} runs {resumed} resumed");
}

/// Regression: sorted runs stayed on a full disk although no run could resume from them, and the advice did
/// not name another work directory.
#[test]
fn a_full_work_directory_without_a_checkpoint_is_removed() {
    let failures = AtomicU64::new(0);
    each_operation(30_000, |bytes| {
        let case = scattered_case();
        let work_dir = case.root().join("work");
        let options = acceptance::changed(spilling(&case), |it| {
            it.resume.checkpoint_interval = std::time::Duration::MAX;
            it.chain.work_dir = Some(work_dir.clone());
        });
        let Err(error) = run_on(&FaultDisk::full_after(bytes), &options) else { return true };
        assert_eq!(acceptance::leftovers(case.root()), [] as [&Path; 0], "{bytes}: {error}");
        if error.file.as_ref().is_some_and(|file| file.starts_with(&work_dir)) {
            acceptance::assert_offers(&error, &[Remedy::FreeDiskSpace, Remedy::OtherWorkDir]);
            failures.fetch_add(1, Ordering::Relaxed);
        }
        bytes > 600_000
    });
    assert!(failures.into_inner() >= 10);
}

/// One seed: the power fails at some operation, and perhaps in the resumed run as well; what was not synced
/// is lost, kept, or torn, including names. Returns how many blocks the last run resumed from, or its error.
fn power_cut(
    seed: u64,
    case: &Case,
    options: &ReindexOptions,
    operations: u64,
) -> Result<u32, engine::Error> {
    let mut rng = Rng::new(seed, "power cuts");
    for _ in 0..=rng.below(2) {
        let at = rng.below(operations);
        let disk = FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other);
        let disk = disk.with_names_at_risk(case.root().parent().unwrap());
        let done = run_on(&disk, options);
        disk.cut_power(rng.next_u64()).unwrap();
        // If it reported success, the result must survive.
        assert_old_or_new(case, &done, &format!("seed {seed}, operation {at}"));
    }
    run(options).map(|report| {
        assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3, "seed {seed}");
        report.resumed
    })
}

/// The power fails with each of these seeds.
fn power_failures_of_a_run_that_spills(seeds: Range<u64>) {
    let operations = {
        let case = scattered_case();
        let disk =
            FaultDisk::fail_at(u64::MAX, InjectedFault::Once, Operations::Changes, io::ErrorKind::Other);
        run_on(&disk, &spilling(&case)).unwrap();
        disk.count()
    };
    let (resumed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    each_operation(1, |number| {
        let seed = seeds.start + number;
        let case = scattered_case();
        let options = spilling(&case);
        match power_cut(seed, &case, &options, operations) {
            Ok(done) => resumed.fetch_add(u64::from(done > 0), Ordering::Relaxed),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Damaged, "seed {seed}: {error}");
                acceptance::assert_offers(&error, &[Remedy::StartOver]);
                run(&changed(options, |it| it.resume.restart = true)).unwrap();
                refused.fetch_add(1, Ordering::Relaxed)
            }
        };
        let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
        assert_eq!(found(&case).unwrap(), new, "seed {seed}");
        assert_eq!(leftovers(case.root()), [] as [&Path; 0], "seed {seed}");
        seed + 1 >= seeds.end
    });
    let (resumed, refused) = (resumed.into_inner(), refused.into_inner());
    eprintln!("power failures: {resumed} resumed, {refused} were refused");
    // Everything is synced before it is named, so no remaining file is damaged.
    let enough = (seeds.end - seeds.start) / 4;
    assert!(resumed >= enough && refused == 0, "{resumed} resumed, {refused} were refused");
}

#[test]
fn after_a_power_failure_a_run_resumes() {
    power_failures_of_a_run_that_spills(0..30);
}

/// The block index of a [`tiny_case`] before a rebuild.
fn index_of(case: &Case) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let relative = |path: PathBuf| path.strip_prefix(case.root()).unwrap().to_owned();
    tree(&case.blocks("index")).into_iter().map(|(path, bytes)| (relative(path), bytes)).collect()
}

/// Both databases and the journal: the power fails at some operation of a scan, and of the run that follows;
/// what was not synced is lost, kept, or torn, including names. Afterwards both databases are old or both are
/// new.
fn power_failures_of_a_scan(seeds: Range<u64>) {
    let (old, old_index) = (found(&tiny_case()).unwrap(), index_of(&tiny_case()));
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    let operations = {
        let case = tiny_case();
        let disk =
            FaultDisk::fail_at(u64::MAX, InjectedFault::Once, Operations::Changes, io::ErrorKind::Other);
        run_on(&disk, &case.scan()).unwrap();
        disk.count()
    };
    let (ends_old, ends_new) = (AtomicU64::new(0), AtomicU64::new(0));
    each_operation(1, |number| {
        let seed = seeds.start + number;
        let case = tiny_case();
        let mut rng = Rng::new(seed, "power cuts of a scan");
        for run in 0..=rng.below(2) {
            // Most of them near the end, where names are exchanged.
            let at = if rng.chance(1, 4) { rng.below(operations) } else { operations - 1 - rng.below(40) };
            let disk =
                FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other);
            let disk = disk.with_names_at_risk(case.root().parent().unwrap());
            let done = run_on(&disk, &ReindexOptions { keep_old: false, ..case.scan() });
            disk.cut_power(rng.next_u64()).unwrap();
            let what = format!("seed {seed}, run {run}, operation {at} of {operations}");
            // Opening the chainstate repairs what the power failure has left.
            let chainstate = found(&case).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(chainstate == old || chainstate == new, "{what}");
            assert!(done.is_err() || chainstate == new, "{what}: it reported success");
            if index_of(&case) == old_index {
                assert_eq!(chainstate.0, old.0, "{what}: only the chainstate is new");
                ends_old.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(chainstate.0, new.0, "{what}: only the index is new");
                ends_new.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        run(&case.scan()).unwrap_or_else(|error| panic!("seed {seed}, at the end: {error}"));
        assert_eq!(found(&case).unwrap(), new, "seed {seed}");
        assert_eq!(leftovers(case.root()), [] as [&Path; 0], "seed {seed}");
        seed + 1 >= seeds.end
    });
    let (ends_old, ends_new) = (ends_old.into_inner(), ends_new.into_inner());
    eprintln!("power failures of a scan: {ends_old} times both are old, {ends_new} times both are new");
    let enough = (seeds.end - seeds.start) / 9;
    assert!(ends_old > enough && ends_new > enough, "{ends_old} old, {ends_new} new");
}

#[test]
fn a_power_failure_never_replaces_only_one_of_two_databases() {
    power_failures_of_a_scan(0..100);
}

mod long {
    use super::{power_failures_of_a_run_that_spills, power_failures_of_a_scan};

    #[test]
    fn after_many_power_failures_a_run_resumes() {
        power_failures_of_a_run_that_spills(30..201);
    }

    #[test]
    fn many_power_failures_never_replace_only_one_of_two_databases() {
        power_failures_of_a_scan(100..1_001);
    }
}

/// A disk that refuses a change at operation `at`: no file may be left or changed. Returns the errors.
fn refusing(kind: io::ErrorKind, output: bool) -> Vec<engine::Error> {
    let mut errors = Vec::new();
    let case = tiny_case();
    let before = tree(case.root());
    for at in 0.. {
        let output = output.then(acceptance::scratch);
        // Once: the clean-up of a failed run frees the space that it needs.
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, Operations::Changes, kind);
        let target = output.as_ref().map(|output| output.path().join("new"));
        let done = run_on(&disk, &ReindexOptions { output: target.clone(), ..case.options() });
        if !disk.has_failed() {
            done.unwrap();
            break;
        }
        let Err(error) = done else { continue };
        assert_eq!(error.kind, ErrorKind::Environment, "change {at}: {error}");
        if found(&case).unwrap().0 == tiny().tip().hash {
            // The new chainstate is in place; only the removal of the old one failed.
            errors.push(error);
            run(&case.options()).unwrap();
            break;
        }
        assert_same_tree(&before, case.root(), &format!("change {at}: {error}"));
        if let Some(target) = target.filter(|target| target.exists()) {
            let left: Vec<_> = tree(&target).into_keys().filter(|path| path.is_file()).collect();
            // Once the new chainstate has its name, only the last sync can have failed.
            let whole =
                || stats(&target, Network::Regtest).is_ok_and(|all| all.best_block == tiny().tip().hash);
            assert!(left.is_empty() || whole(), "change {at}: left in the output: {left:?}");
        }
        errors.push(error);
    }
    errors
}

#[test]
fn a_full_disk_fails_the_run_and_changes_nothing() {
    for output in [false, true] {
        let errors = refusing(io::ErrorKind::StorageFull, output);
        assert!(errors.len() >= 5, "{errors:?}");
        for error in errors {
            let text = error.to_string();
            assert!(error.file.is_some() && text.contains("free some space and run again"), "{text}");
        }
    }
}

#[test]
fn a_read_only_target_is_an_error_with_a_remedy() {
    let case = tiny_case();
    let before = tree(case.root());
    for (kind, remedy) in [
        (io::ErrorKind::ReadOnlyFilesystem, Remedy::MountWritable),
        (io::ErrorKind::PermissionDenied, Remedy::GrantPermission),
    ] {
        let disk = FaultDisk::fail_at(0, InjectedFault::Sticky, Operations::Changes, kind);
        let options = MakeUndoOptions { chain: case.options().chain, keep_old: false };
        let error = make_undo(&disk, &options, &|_| {}, &AtomicBool::new(false)).unwrap_err();
        assert_eq!(error.remedies, [remedy], "undo data is made in place only");
        let error = run_on(&disk, &case.options()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Environment);
        acceptance::assert_offers(&error, &[remedy, Remedy::OtherOutput]);
        assert_same_tree(&before, case.root(), "read-only");
        // With an output elsewhere, a datadir that cannot be written is sufficient.
        let output = acceptance::scratch();
        let options = ReindexOptions { output: Some(output.path().to_owned()), ..case.options() };
        assert_eq!(run(&options).unwrap().hash, tiny().tip().hash);
        assert_same_tree(&before, case.root(), "output elsewhere");
    }
}
