//! The disk fails once at each operation of a whole rebuild in turn, or the machine crashes there: afterwards
//! the old chainstate opens, or the new one is complete, and another rebuild succeeds.

use acceptance::faults::{each_operation, tiny, tiny_case};
use acceptance::prelude::*;
use engine::{MakeUndoOptions, make_undo};

/// Best block and hash of the chainstate.
fn found(case: &Case) -> Result<(BlockHash, [u8; 32]), engine::Error> {
    stats(case.root(), Network::Regtest).map(|stats| (stats.best_block, stats.hash_serialized_3))
}

/// Lets operation after operation fail once until a rebuild completes without a fault. `stride`: distance
/// between the operations that fail; most reads are alike.
fn fault_loop(operations: Operations, stride: u64, scan: bool) {
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    let old = found(&tiny_case()).unwrap();
    let failures = AtomicU64::new(0);
    each_operation(stride, |at| {
        let what = format!("operation {at}, {operations:?}, scan: {scan}");
        let case = tiny_case();
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, operations, io::ErrorKind::Other);
        let options = ReindexOptions { scan, ..case.options() };
        let done = run_on(&disk, &options);
        if !disk.has_failed() {
            assert_eq!(done.unwrap().hash_serialized_3, new.1, "{what}");
            return true;
        }
        if let Err(error) = &done {
            failures.fetch_add(1, Ordering::Relaxed);
            assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
        }
        let found = found(&case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
        assert!(found == old || found == new, "{what}: a mix of old and new");
        assert!(done.is_err() || found == new, "{what}: it reported success");
        let again = run(&options).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert_eq!(again.hash_serialized_3, new.1, "{what}, again");
        assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{what}");
        false
    });
    let failures = failures.into_inner();
    assert!(failures >= 20, "only {failures} operations failed a run");
}

#[test]
fn a_single_fault_fails_the_run_and_nothing_else() {
    fault_loop(Operations::Changes, 1, false);
    fault_loop(Operations::All, 13, false);
}

#[test]
fn a_single_fault_fails_a_scan_and_nothing_else() {
    fault_loop(Operations::Changes, 1, true);
    fault_loop(Operations::All, 29, true);
}

/// The block index of a [`tiny_case`].
fn index_of(case: &Case) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let relative = |path: PathBuf| path.strip_prefix(case.root()).unwrap().to_owned();
    tree(&case.blocks("index")).into_iter().map(|(path, bytes)| (relative(path), bytes)).collect()
}

/// Crashes leave both databases old or both new.
fn crashes_of_a_rebuild(scan: bool, crashes: Crashes) {
    let (old, old_index) = (found(&tiny_case()).unwrap(), index_of(&tiny_case()));
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    let options = |case: &Case| ReindexOptions { scan, ..case.options() };
    let ends = [AtomicU64::new(0), AtomicU64::new(0)];
    let states = Scenario {
        before: &tiny_case,
        run: &|disk, case| run_on(disk, &options(case)).map(drop),
        is_whole: &|case, is_done, what| {
            // Three renames can be interrupted with no chainstate under its name; the next run repairs that.
            if crashes.in_steps {
                return;
            }
            // Opening the chainstate repairs what a power cut has left.
            let found =
                found(case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
            assert!(found == old || found == new, "{what}: a mix of old and new");
            assert!(!is_done || found == new, "{what}: it reported success");
            let is_new_index = index_of(case) != old_index;
            assert_eq!(is_new_index, scan && found == new, "{what}: only one of two databases is new");
            ends[usize::from(found == new)].fetch_add(1, Ordering::Relaxed);
        },
        succeeds: &|case, what| {
            let again = run(&options(case)).unwrap_or_else(|error| panic!("{what}, at the end: {error}"));
            assert_eq!(again.hash_serialized_3, new.1, "{what}, at the end");
            assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{what}");
        },
    }
    .explore(crashes);
    let [ends_old, ends_new] = ends.map(AtomicU64::into_inner);
    eprintln!("{crashes:?}: {states} states; old {ends_old} times, new {ends_new} times");
    assert!(states > 30 && (crashes.in_steps || ends_old.min(ends_new) > 20), "{states}");
}

#[test]
fn a_crash_at_any_change_leaves_the_old_or_the_new_databases() {
    for scan in [false, true] {
        for in_steps in [false, true] {
            crashes_of_a_rebuild(scan, Crashes { cuts: 3, in_steps, ..Crashes::default() });
        }
    }
}

/// Crashes of a rebuild that spills and saves checkpoints, from which the next one resumes.
fn crashes_of_a_run_that_spills(crashes: Crashes) {
    let resumed = AtomicU64::new(0);
    let states = Scenario {
        before: &scattered_case,
        run: &|disk, case| run_on(disk, &spilling(case)).map(drop),
        is_whole: &|case, is_done, what| {
            let found = assert_old_or_new_opens(case, what);
            assert!(!is_done || found.0 == tiny().tip().hash, "{what}: it reported success");
        },
        succeeds: &|case, what| {
            resumed.fetch_add(u64::from(assert_succeeds(case, what) > 0), Ordering::Relaxed);
        },
    }
    .explore(crashes);
    let resumed = resumed.into_inner();
    eprintln!("{crashes:?}: {states} states; {resumed} runs resumed");
    assert!(states > 100 && resumed >= states / 4, "of {states} runs {resumed} resumed");
}

#[test]
fn a_crash_costs_a_run_that_spills_only_time() {
    crashes_of_a_run_that_spills(Crashes { stride: 7, ..Crashes::default() });
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

/// Asserts that either the old chainstate opens or the new one. Returns its best block and hash.
fn assert_old_or_new_opens(case: &Case, what: &str) -> (BlockHash, [u8; 32]) {
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    static OLD: OnceLock<(BlockHash, [u8; 32])> = OnceLock::new();
    let old = OLD.get_or_init(|| found(&scattered_case()).unwrap());
    let found = found(case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
    assert!(found == *old || found == new, "{what}: a mix of old and new");
    found
}

/// Asserts that after a failure either the old chainstate opens or the new one.
fn assert_old_or_new(case: &Case, done: &Result<engine::ReindexReport, engine::Error>, what: &str) {
    let found = assert_old_or_new_opens(case, what);
    match done {
        Ok(report) => {
            let new = tiny().model.stats().hash_serialized_3;
            assert!(report.hash_serialized_3 == new && found.1 == new, "{what}: it reported success")
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

/// An operation fails in a rebuild that spills and writes checkpoints, and then one in the resumed rebuild.
fn fault_loop_of_two(operations: Operations, stride: u64) {
    let (resumed, count) = (AtomicU64::new(0), AtomicU64::new(0));
    each_operation(stride, |at| {
        let what = format!("operation {at}, {operations:?}");
        let case = scattered_case();
        let failing = |at: u64| FaultDisk::fail_at(at, InjectedFault::Once, operations, io::ErrorKind::Other);
        let disk = failing(at);
        let done = run_on(&disk, &spilling(&case));
        assert_old_or_new(&case, &done, &what);
        if !disk.has_failed() {
            done.unwrap();
            return true;
        }
        let second = Rng::new(at, "second fault").below(disk.count() + 50);
        let what = format!("{what}, then {second}");
        let done = run_on(&failing(second), &spilling(&case));
        assert_old_or_new(&case, &done, &what);
        resumed.fetch_add(u64::from(assert_succeeds(&case, &what) > 0), Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
        false
    });
    let (resumed, count) = (resumed.into_inner(), count.into_inner());
    eprintln!("{operations:?}: {count} operations, {resumed} runs resumed");
    assert!(count >= 20 && resumed >= count / 4, "of {count} runs {resumed} resumed");
}

#[test]
fn two_faults_cost_a_run_that_spills_only_time() {
    fault_loop_of_two(Operations::Changes, 7);
    fault_loop_of_two(Operations::All, 97);
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

mod long {
    use super::{Crashes, Operations, crashes_of_a_rebuild, crashes_of_a_run_that_spills, fault_loop_of_two};

    #[test]
    fn two_faults_at_any_change_cost_a_run_that_spills_only_time() {
        fault_loop_of_two(Operations::Changes, 1);
        fault_loop_of_two(Operations::All, 37);
    }

    #[test]
    fn after_any_crash_a_run_resumes() {
        crashes_of_a_run_that_spills(Crashes { cuts: 2, ..Crashes::default() });
    }

    #[test]
    fn many_power_failures_never_replace_only_one_of_two_databases() {
        for in_steps in [false, true] {
            crashes_of_a_rebuild(true, Crashes { cuts: 30, in_steps, ..Crashes::default() });
        }
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
