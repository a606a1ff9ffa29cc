//! The disk fails, or the power, while undo data is made: the old datadir opens afterwards, or the new one,
//! whole; and another run succeeds.

use acceptance::{
    Case, Template, bounded, changed,
    faults::each_operation,
    leftovers, run, run_on, stats,
    undo::{Expected, UndoDamage, UndoFiles, assert_complete, tiny, with_undo},
};
use disk::index::BlockIndex;
use engine::{BlockHash, Error, ErrorKind, Network, ReindexOptions, ReindexReport, UndoPolicy};
use std::{
    io,
    ops::Range,
    path::Path,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};
use testkit::{
    fault::{FaultDisk, InjectedFault, Operations},
    rng::Rng,
};

/// Its datadir, with a chainstate three blocks behind: some `rev` files are gone, one is truncated.
fn lacking() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    let layout = testkit::datadir::Layout { file_size: 12 << 10, ..acceptance::layout() };
    let case = TEMPLATE.get_or_init(|| Template::laid_out(tiny(), &layout)).case();
    UndoDamage::Truncated.apply(case.root(), Network::Regtest);
    UndoDamage::HalfGone.apply(case.root(), Network::Regtest);
    case
}

/// What must not change before the new databases are in place.
#[derive(PartialEq)]
struct State {
    chainstate: (BlockHash, [u8; 32]),
    index: BlockIndex,
}

fn state(case: &Case) -> Result<State, Error> {
    let stats = stats(case.root(), Network::Regtest)?;
    Ok(State { chainstate: (stats.best_block, stats.hash_serialized_3), index: case.index() })
}

/// The old state, and its `rev` files.
fn old() -> &'static (State, UndoFiles) {
    static OLD: OnceLock<(State, UndoFiles)> = OnceLock::new();
    OLD.get_or_init(|| {
        let case = lacking();
        (state(&case).unwrap(), UndoFiles::read(case.root(), Network::Regtest))
    })
}

/// Asserts that the datadir is old or new, and that bytes in use are unchanged.
fn assert_old_or_new(case: &Case, done: &Result<ReindexReport, Error>, what: &str) {
    let (old, old_files) = old();
    // Opening the chainstate repairs an exchange that was interrupted.
    let found = state(case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
    let files = UndoFiles::read(case.root(), Network::Regtest);
    for (number, bytes) in &old_files.rev {
        let used = old_files.used(*number);
        assert!(files.rev[number].get(..used) == bytes.get(..used), "{what}: bytes in use of file {number}");
    }
    if found.chainstate.0 == old.chainstate.0 {
        assert!(found == *old, "{what}: the index is new, or the coins differ");
        assert!(done.is_err(), "{what}: it reported success");
    } else {
        let lacking = files.lacking(&Expected::of(tiny()), false);
        assert!(
            lacking.is_empty(),
            "{what}: the chainstate is new, but {} blocks lack undo data",
            lacking.len()
        );
        assert_eq!(found.chainstate.1, tiny().model.stats().hash_serialized_3, "{what}");
    }
    if let Err(error) = done {
        assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
    }
}

/// Asserts that a run on a healthy disk succeeds. Returns the number of blocks done before.
fn assert_succeeds(case: &Case, options: &ReindexOptions, what: &str) -> u32 {
    let report = run(options).unwrap_or_else(|error| panic!("{what}, at the end: {error}"));
    assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3, "{what}");
    assert_complete(case.root(), Network::Regtest, &Expected::of(tiny()), what);
    report.resumed
}

type Prepare = fn(&Case) -> ReindexOptions;

fn plain(case: &Case) -> ReindexOptions {
    case.options()
}

fn scanning(case: &Case) -> ReindexOptions {
    with_undo(&case.scan(), UndoPolicy::Make)
}

fn with_checkpoints(case: &Case) -> ReindexOptions {
    bounded(&case.options())
}

fn fault_loop(prepare: Prepare, fault: InjectedFault, operations: Operations, stride: u64) {
    let failures = AtomicU64::new(0);
    each_operation(stride, |at| {
        let what = format!("operation {at}, {fault:?}, {operations:?}");
        let case = lacking();
        let options = prepare(&case);
        let disk = FaultDisk::fail_at(at, fault, operations, io::ErrorKind::Other);
        let done = run_on(&disk, &options);
        assert_old_or_new(&case, &done, &what);
        if !disk.has_failed() {
            done.unwrap();
            return true;
        }
        failures.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
        assert_succeeds(&case, &options, &what);
        false
    });
    let failures = failures.into_inner();
    eprintln!("{failures} of the runs failed");
    assert!(failures >= 20, "only {failures} runs failed");
}

#[test]
fn a_single_fault_changes_nothing_in_use() {
    fault_loop(plain, InjectedFault::Once, Operations::Changes, 1);
    fault_loop(plain, InjectedFault::Once, Operations::All, 19);
    fault_loop(scanning, InjectedFault::Once, Operations::Changes, 3);
}

#[test]
fn a_dead_disk_leaves_the_old_or_the_new_datadir() {
    fault_loop(plain, InjectedFault::Sticky, Operations::Changes, 1);
    fault_loop(scanning, InjectedFault::Sticky, Operations::Changes, 2);
    fault_loop(with_checkpoints, InjectedFault::Sticky, Operations::Changes, 11);
}

/// Regression: `rev` files that were put in place of an output elsewhere stayed there after a failure, and
/// every later run refused the output because of them.
#[test]
fn after_a_failure_the_same_output_elsewhere_can_be_made() {
    for (fault, stride) in [(InjectedFault::Once, 2), (InjectedFault::Sticky, 3)] {
        each_operation(stride, |at| {
            let what = format!("operation {at}, {fault:?}, output elsewhere");
            let case = lacking();
            let out = case.root().join("out");
            let options = changed(case.options(), |it| it.output = Some(out.clone()));
            let disk = FaultDisk::fail_at(at, fault, Operations::Changes, io::ErrorKind::Other);
            let is_done = run_on(&disk, &options).is_ok();
            assert!(state(&case).unwrap() == old().0, "{what}");
            let files = UndoFiles::read(case.root(), Network::Regtest);
            assert!(files.rev == old().1.rev, "{what}: the datadir's own files");
            if !is_done {
                // If the commit had begun, this run completes it, and then refuses what exists.
                let again = run(&options);
                let is_complete = out.join("regtest/chainstate").exists();
                assert!(is_complete, "{what}, again: {}", again.unwrap_err());
                assert_eq!(leftovers(&out), [] as [&Path; 0], "{what}");
            }
            let found = stats(&out, Network::Regtest).unwrap();
            assert_eq!(found.hash_serialized_3, tiny().model.stats().hash_serialized_3, "{what}");
            !disk.has_failed()
        });
    }
}

/// Regression: new `rev` files stayed after a disk was full, because they were put in place before the new
/// block index was written.
#[test]
fn a_full_disk_leaves_no_new_rev_file() {
    let failures = AtomicU64::new(0);
    each_operation(1, |step| {
        let case = lacking();
        let disk = FaultDisk::full_after(step * 1_500);
        let Err(error) = run_on(&disk, &case.options()) else { return true };
        let files = UndoFiles::read(case.root(), Network::Regtest);
        let is_journal = error.file.as_ref().is_some_and(|file| file.ends_with("peregrine-commit.new"));
        assert!(is_journal || files.rev.keys().eq(old().1.rev.keys()), "{step}: {error}");
        failures.fetch_add(1, Ordering::Relaxed);
        assert_succeeds(&case, &case.options(), &step.to_string());
        false
    });
    assert!(failures.into_inner() >= 20);
}

/// The power fails at some operation, and perhaps again in the run that follows; what was not synced is lost,
/// kept or torn, including names.
fn power_failures(prepare: Prepare, seeds: Range<u64>) {
    let operations = {
        let case = lacking();
        let disk =
            FaultDisk::fail_at(u64::MAX, InjectedFault::Once, Operations::Changes, io::ErrorKind::Other);
        run_on(&disk, &prepare(&case)).unwrap();
        disk.count()
    };
    let (resumed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    each_operation(1, |number| {
        let seed = seeds.start + number;
        let case = lacking();
        let options = prepare(&case);
        let mut rng = Rng::new(seed, "power cuts while undo data is made");
        for number in 0..=rng.below(3) {
            // Many of them near the end, where files are put in place.
            let at = if rng.chance(1, 2) { rng.below(operations) } else { operations - 1 - rng.below(60) };
            let disk =
                FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other);
            let disk = disk.with_names_at_risk(case.root().parent().unwrap());
            let done = run_on(&disk, &options);
            disk.cut_power(rng.next_u64()).unwrap();
            let what = format!("seed {seed}, cut {number}, operation {at} of {operations}");
            assert_old_or_new(&case, &done, &what);
        }
        let what = format!("seed {seed}");
        match run(&options) {
            Ok(report) => {
                resumed.fetch_add(u64::from(report.resumed > 0), Ordering::Relaxed);
            }
            Err(error) => {
                eprintln!("{what}: {error}");
                refused.fetch_add(1, Ordering::Relaxed);
                let mut options = options.clone();
                options.resume.restart = true;
                assert_succeeds(&case, &options, &what);
            }
        }
        assert_complete(case.root(), Network::Regtest, &Expected::of(tiny()), &what);
        assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0], "{what}");
        seed + 1 >= seeds.end
    });
    let (resumed, refused) = (resumed.into_inner(), refused.into_inner());
    eprintln!("power failures of the seeds {seeds:?}: {resumed} runs resumed, {refused} were refused");
    assert_eq!(refused, 0, "a checkpoint is complete, so it is never refused");
}

#[test]
fn a_power_failure_leaves_the_old_or_the_new_datadir() {
    power_failures(plain, 0..20);
    power_failures(scanning, 0..10);
}

#[test]
fn after_a_power_failure_a_run_that_makes_undo_data_resumes() {
    power_failures(with_checkpoints, 0..15);
}

mod long {
    use super::{plain, power_failures, scanning, with_checkpoints};

    #[test]
    fn many_power_failures_leave_the_old_or_the_new_datadir() {
        power_failures(plain, 20..120);
        power_failures(scanning, 10..60);
    }

    #[test]
    fn after_many_power_failures_a_run_that_makes_undo_data_resumes() {
        power_failures(with_checkpoints, 15..80);
    }
}
