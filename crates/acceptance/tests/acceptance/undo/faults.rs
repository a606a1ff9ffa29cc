//! The disk fails, or the power, while undo data is made: the old datadir opens afterwards, or the new one,
//! whole; and another run succeeds.

use acceptance::{prelude::*, undo::tiny};

/// Its datadir, with a chainstate three blocks behind: some `rev` files are gone, one is truncated.
fn lacking() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    let layout = Layout { file_size: 12 << 10, ..acceptance::layout() };
    let case = TEMPLATE.get_or_init(|| Template::laid_out(tiny(), &layout)).case();
    UndoDamage::Truncated.apply(case.root(), Network::Regtest);
    UndoDamage::HalfGone.apply(case.root(), Network::Regtest);
    case
}

/// The same, with a checkpoint of an interrupted run that has made some of the undo data.
fn interrupted() -> Case {
    let case = lacking();
    let has_checkpoint = || case.net("peregrine-work/manifest").exists();
    for at in (10..).step_by(10) {
        if has_checkpoint() && case.blocks("peregrine-undo").exists() {
            break;
        }
        run_until(&with_checkpoints(&case), at).0.expect_err("the run was complete before");
    }
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
static OLD: LazyLock<(State, UndoFiles)> = LazyLock::new(|| {
    let case = lacking();
    (state(&case).unwrap(), UndoFiles::read(case.root(), Network::Regtest))
});

/// Asserts that the datadir is old or new, and that bytes in use are unchanged.
fn assert_whole(case: &Case, is_done: bool, what: &str) {
    let (old, old_files) = &*OLD;
    // Opening the chainstate repairs an exchange that was interrupted.
    let found = state(case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
    let files = UndoFiles::read(case.root(), Network::Regtest);
    for (number, bytes) in &old_files.rev {
        let used = old_files.used(*number);
        assert!(files.rev[number].get(..used) == bytes.get(..used), "{what}: bytes in use of file {number}");
    }
    if found.chainstate.0 == old.chainstate.0 {
        assert!(found == *old, "{what}: the index is new, or the coins differ");
        assert!(!is_done, "{what}: it reported success");
    } else {
        let lacking = files.lacking(&Expected::of(tiny()), false).len();
        assert_eq!(lacking, 0, "{what}: the chainstate is new, but {lacking} blocks lack undo data");
        assert_eq!(found.chainstate.1, tiny().model.stats().hash_serialized_3, "{what}");
    }
}

/// Asserts that a run on a healthy disk succeeds.
fn assert_succeeds(case: &Case, options: &ReindexOptions, what: &str) {
    let report = run(options).unwrap_or_else(|error| panic!("{what}, at the end: {error}"));
    assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3, "{what}");
    assert_complete(case.root(), Network::Regtest, &Expected::of(tiny()), what);
}

type Prepare = fn(&Case) -> ReindexOptions;

const PLAIN: Prepare = Case::options;

fn scanning(case: &Case) -> ReindexOptions {
    with_undo(&case.scan(), UndoPolicy::Make)
}

fn with_checkpoints(case: &Case) -> ReindexOptions {
    bounded(&case.options())
}

/// The blocks above the checkpoint that is there are only in this run.
fn without_new_checkpoints(case: &Case) -> ReindexOptions {
    changed(with_checkpoints(case), |it| it.chain.resume.checkpoint_interval = Duration::MAX)
}

fn explore(before: fn() -> Case, prepare: Prepare, explore: impl Fn(&Scenario<'_>) -> u64) -> u64 {
    explore(&Scenario {
        before: &before,
        run: &|disk, case| run_on(disk, &prepare(case)).map(drop),
        is_whole: &assert_whole,
        succeeds: &|case, what| assert_succeeds(case, &prepare(case), what),
    })
}

#[test]
fn a_single_fault_changes_nothing_in_use() {
    for (prepare, trouble, stride) in
        [(PLAIN, Trouble::CHANGE, 2), (PLAIN, Trouble::ANY, 19), (scanning, Trouble::CHANGE, 5)]
    {
        let failures = explore(lacking, prepare, |scenario| scenario.suffer(trouble, stride, false));
        assert!(failures >= 20, "only {failures} runs failed");
    }
}

#[test]
fn a_crash_at_any_change_leaves_the_old_or_the_new_datadir() {
    for (prepare, stride) in [(PLAIN, 2), (scanning, 3), (with_checkpoints, 7)] {
        let crashes = Crashes { stride, ..Crashes::default() };
        let states = explore(lacking, prepare, |scenario| scenario.explore(crashes));
        assert!(states > 50, "{states}");
    }
}

/// Regression: a run that was killed after it had put undo data in place, and whose checkpoint lacks blocks,
/// took that undo data for old one when it was continued, and found that other files were put in place.
#[test]
fn a_continued_run_does_not_take_its_undo_data_for_old_one() {
    let states = explore(interrupted, without_new_checkpoints, |scenario| {
        scenario.explore(Crashes { stride: 2, ..Crashes::default() })
    });
    assert!(states > 20, "{states}");
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
            let options = elsewhere(case.options(), &out);
            let disk = FaultDisk::fail_at(at, fault, Operations::Changes, io::ErrorKind::Other);
            let is_done = run_on(&disk, &options).is_ok();
            assert!(state(&case).unwrap() == OLD.0, "{what}");
            let files = UndoFiles::read(case.root(), Network::Regtest);
            assert!(files.rev == OLD.1.rev, "{what}: the datadir's own files");
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
        assert!(is_journal || files.rev.keys().eq(OLD.1.rev.keys()), "{step}: {error}");
        failures.fetch_add(1, Ordering::Relaxed);
        assert_succeeds(&case, &case.options(), &step.to_string());
        false
    });
    assert!(failures.into_inner() >= 20);
}

mod long {
    use super::{Crashes, PLAIN, explore, lacking, scanning, with_checkpoints};

    #[test]
    fn many_crashes_leave_the_old_or_the_new_datadir() {
        for prepare in [PLAIN, scanning, with_checkpoints] {
            explore(lacking, prepare, |scenario| scenario.explore(Crashes { cuts: 3, ..Crashes::default() }));
        }
    }
}
