//! The disk fails once at each operation of a whole rebuild in turn, or the machine crashes there: afterwards
//! the old chainstate opens, or the new one is complete, and another rebuild succeeds.

use acceptance::prelude::*;

/// Best block and hash of the chainstate.
fn found(case: &Case) -> Result<(BlockHash, [u8; 32]), Error> {
    stats(case.root(), Network::Regtest).map(|stats| (stats.best_block, stats.hash_serialized_3))
}

/// What a datadir is when it is rebuilt: best block and hash of its coins, and the files of the block index.
#[derive(PartialEq)]
struct State((BlockHash, [u8; 32]), Tree);

impl State {
    fn of(case: &Case, what: &str) -> Self {
        // Opening the chainstate repairs what a power cut has left.
        let coins = found(case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
        Self(coins, files(&case.blocks("index")))
    }
}

/// A rebuild of [`tiny`].
#[derive(Clone, Copy)]
struct Rebuild {
    before: fn() -> Case,
    options: fn(&Case) -> ReindexOptions,
    /// Whether it replaces the block index too.
    has_index: bool,
}

const PLAIN: Rebuild = Rebuild { before: tiny_case, options: Case::options, has_index: false };
const SCAN: Rebuild = Rebuild { before: without_positions, options: Case::scan, has_index: true };
/// It spills often enough for merges, and saves checkpoints, from which the next one resumes.
const SPILLING: Rebuild =
    Rebuild { before: scattered_case, options: |case| bounded(&case.options()), ..PLAIN };
/// It makes undo data, and writes the coins cache after a few blocks.
const CACHE: Rebuild = Rebuild {
    before: without_positions,
    options: |case| {
        changed(with_threads(&case.options(), 2), |it| {
            (it.engine, it.chain.hooks.join_bytes) = (Engine::Cache, Some(3000));
        })
    },
    has_index: true,
};

/// A datadir whose block index lacks what a new one has.
fn without_positions() -> Case {
    changed(tiny_case(), |case| UndoDamage::NoPositions.apply(case.root(), Network::Regtest))
}

/// A datadir of the same chain in many small files: a checkpoint after each.
fn scattered_case() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    let layout = Layout { file_size: 4 << 10, ..layout() };
    TEMPLATE.get_or_init(|| Template::laid_out(tiny(), &layout)).case()
}

/// How often what was seen.
#[derive(Debug)]
struct Seen {
    /// Runs that failed, or states that a crash left.
    runs: u64,
    old: u64,
    new: u64,
    /// Runs that resumed.
    resumed: u64,
}

impl Rebuild {
    /// Asserts that in all that happens, both databases are old, or both are new, and that another rebuild
    /// succeeds. With `in_steps`, three renames can be interrupted with no chainstate under its name; the
    /// next run repairs that.
    fn suffers(self, in_steps: bool, happen: impl FnOnce(&Scenario<'_>) -> u64) -> Seen {
        let (old, model) = (State::of(&(self.before)(), "before"), tiny().model.stats());
        let new = (tiny().tip().hash, model.hash_serialized_3);
        let [ends_old, ends_new, resumed] = [(); 3].map(|()| AtomicU64::new(0));
        let runs = happen(&Scenario {
            before: &self.before,
            run: &|disk, case| run_on(disk, &(self.options)(case)).map(drop),
            is_whole: &|case, is_done, what| {
                if in_steps {
                    return;
                }
                let found = State::of(case, what);
                assert!(found.0 == old.0 || found.0 == new, "{what}: a mix of old and new");
                assert!(!is_done || found.0 == new, "{what}: it reported success");
                let (is_new, is_index_new) = (found.0 == new, found.1 != old.1);
                assert_eq!(is_index_new, self.has_index && is_new, "{what}: only one database is new");
                (if is_new { &ends_new } else { &ends_old }).fetch_add(1, Ordering::Relaxed);
            },
            succeeds: &|case, what| {
                let again = run(&(self.options)(case));
                let again = again.unwrap_or_else(|error| panic!("{what}, at the end: {error}"));
                assert_eq!((again.hash_serialized_3, again.counts.blocks), (new.1, 113), "{what}");
                assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{what}");
                resumed.fetch_add(u64::from(again.resumed > 0), Ordering::Relaxed);
            },
        });
        let [old, new, resumed] = [ends_old, ends_new, resumed].map(AtomicU64::into_inner);
        let seen = Seen { runs, old, new, resumed };
        eprintln!("{seen:?}");
        seen
    }

    fn suffers_crashes(self, crashes: Crashes) -> Seen {
        self.suffers(crashes.in_steps, |scenario| scenario.explore(crashes))
    }
}

#[test]
fn a_single_fault_fails_the_run_and_nothing_else() {
    for (rebuild, trouble, stride) in [
        (PLAIN, Trouble::CHANGE, 1),
        (PLAIN, Trouble::ANY, 13),
        (SCAN, Trouble::CHANGE, 1),
        (SCAN, Trouble::ANY, 29),
        (CACHE, Trouble::CHANGE, 7),
    ] {
        let seen = rebuild.suffers(false, |scenario| scenario.suffer(trouble, stride, false));
        assert!(seen.runs >= 20, "{trouble:?}: {seen:?}");
    }
}

#[test]
fn a_crash_at_any_change_leaves_the_old_or_the_new_databases() {
    for rebuild in [PLAIN, SCAN] {
        for in_steps in [false, true] {
            let seen = rebuild.suffers_crashes(Crashes { cuts: 3, in_steps, ..Crashes::default() });
            assert!(seen.runs > 30 && (in_steps || seen.old.min(seen.new) > 20), "{seen:?}");
        }
    }
    let seen = CACHE.suffers_crashes(Crashes { stride: 5, ..Crashes::default() });
    assert!(seen.runs > 20, "{seen:?}");
}

fn suffers_and_resumes(crashes: Crashes) {
    let seen = SPILLING.suffers_crashes(crashes);
    assert!(seen.runs > 100 && seen.resumed >= seen.runs / 4, "{seen:?}");
}

#[test]
fn a_crash_costs_a_run_that_spills_only_time() {
    suffers_and_resumes(Crashes { stride: 7, ..Crashes::default() });
}

/// An operation fails, and then one in the run that resumes.
fn suffers_twice(strides: [u64; 2]) {
    for (trouble, stride) in [Trouble::CHANGE, Trouble::ANY].into_iter().zip(strides) {
        let seen = SPILLING.suffers(false, |scenario| scenario.suffer(trouble, stride, true));
        assert!(seen.runs >= 20 && seen.resumed >= seen.runs / 4, "{seen:?}");
    }
}

#[test]
fn two_faults_cost_a_run_that_spills_only_time() {
    suffers_twice([7, 97]);
}

/// The disk is full at any point: completed work is kept, and more free space is all that is needed.
#[test]
fn a_full_disk_does_not_lose_completed_work() {
    let seen = SPILLING.suffers(false, |scenario| scenario.suffer(Trouble::Full, 20_000, false));
    assert!(seen.runs >= 50 && seen.resumed >= seen.runs / 2, "{seen:?}");
}

/// Regression: sorted runs stayed on a full disk although no run could resume from them, and the advice did
/// not name another work directory.
#[test]
fn a_full_work_directory_without_a_checkpoint_is_removed() {
    let failures = AtomicU64::new(0);
    each_operation(30_000, |bytes| {
        let case = scattered_case();
        let work_dir = case.root().join("work");
        let options = changed((SPILLING.options)(&case), |it| {
            it.chain.resume.checkpoint_interval = Duration::MAX;
            it.chain.work_dir = Some(work_dir.clone());
        });
        let Err(error) = run_on(&FaultDisk::full_after(bytes), &options) else { return true };
        assert_eq!(leftovers(case.root()), [] as [&Path; 0], "{bytes}: {error}");
        if error.file.as_ref().is_some_and(|file| file.starts_with(&work_dir)) {
            assert_offers(&error, &[Remedy::FreeDiskSpace, Remedy::OtherWorkDir]);
            failures.fetch_add(1, Ordering::Relaxed);
        }
        bytes > 600_000
    });
    assert!(failures.into_inner() >= 10);
}

mod long {
    use super::*;

    #[test]
    fn two_faults_at_any_change_cost_a_run_that_spills_only_time() {
        suffers_twice([1, 37]);
    }

    #[test]
    fn after_any_crash_a_run_resumes() {
        suffers_and_resumes(Crashes { cuts: 2, ..Crashes::default() });
    }

    #[test]
    fn many_power_failures_never_replace_only_one_of_two_databases() {
        for in_steps in [false, true] {
            SCAN.suffers_crashes(Crashes { cuts: 30, in_steps, ..Crashes::default() });
        }
    }
}

/// The clean-up of a failed run frees the space that it needs: no file is left or changed.
#[test]
fn a_full_disk_fails_the_run_and_changes_nothing() {
    for output in [None, Some("new")] {
        let (case, mut failures) = (tiny_case(), 0);
        let before = tree(case.root());
        for at in 0.. {
            let (dir, kind) = (scratch(), io::ErrorKind::StorageFull);
            let target = output.map(|name| dir.path().join(name));
            let disk = FaultDisk::fail_at(at, InjectedFault::Once, Operations::Changes, kind);
            let done = run_on(&disk, &ReindexOptions { output: target.clone(), ..case.options() });
            if !disk.has_failed() {
                done.unwrap();
                break;
            }
            let Err(error) = done else { continue };
            failures += 1;
            assert_eq!(error.kind, ErrorKind::Environment, "change {at}: {error}");
            assert_mentions(&error, &["free some space and run again"]);
            assert!(error.file.is_some(), "change {at}: {error}");
            if found(&case).unwrap().0 == tiny().tip().hash {
                // The new chainstate is in place; only the removal of the old one failed.
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
        }
        assert!(failures >= 5, "{failures}");
    }
}

/// Another directory was advised, as if the new chainstate were in the way.
#[test]
fn a_run_that_finishes_the_interrupted_commit_of_an_output_says_that_it_is_complete() {
    let (case, mut finished) = (tiny_case(), 0);
    for at in 0.. {
        let (output, disk) = (scratch(), FaultDisk::killed_at(at));
        let options = elsewhere(case.options(), output.path());
        let done = run_on(&disk, &options);
        if !disk.has_failed() {
            done.unwrap();
            break;
        }
        if output.path().join("regtest/peregrine-commit").exists() {
            let words = ["already exists", "is finished now", "complete"];
            let error = assert_fails(run(&options), ErrorKind::Usage, &words);
            assert!(error.remedies.is_empty(), "change {at}: {error}");
            let found = stats(output.path(), Network::Regtest).unwrap();
            assert_eq!(found.best_block, tiny().tip().hash, "change {at}");
            finished += 1;
        }
    }
    assert!(finished > 3, "{finished}");
}

/// Another place for the result was offered for a lock file of the datadir, also where there is no result.
#[test]
fn a_reader_that_may_not_take_a_lock_is_not_sent_to_another_output() {
    let case = tiny_case();
    fs::write(case.net(".lock"), "").unwrap();
    let options = ChainOptions::reading(case.root(), Network::Regtest);
    let denied = (0..99).find_map(|at| {
        let (all, kind) = (Operations::All, io::ErrorKind::PermissionDenied);
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, all, kind);
        let error = engine::utxo::stats(&disk, &options, false, unwatched()).err()?;
        error.detail.contains("cannot lock").then_some(error)
    });
    assert_eq!(denied.unwrap().remedies, [Remedy::GrantPermission]);
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
        let options = case.options().chain;
        let error = engine::undo::make(&disk, &options, unwatched()).unwrap_err();
        assert_eq!(error.remedies, [remedy], "undo data is made in place only");
        let error = assert_fails(run_on(&disk, &case.options()), ErrorKind::Environment, &[]);
        assert_offers(&error, &[remedy, Remedy::OtherOutput]);
        assert_same_tree(&before, case.root(), "read-only");
        // With an output elsewhere, a datadir that cannot be written is sufficient.
        let output = scratch();
        let options = elsewhere(case.options(), output.path());
        assert_eq!(run(&options).unwrap().hash, tiny().tip().hash);
        assert_same_tree(&before, case.root(), "output elsewhere");
    }
}

/// A killed bitcoind has just written all files of blocks and undo data.
#[test]
fn a_scan_syncs_the_files_in_which_its_index_places_blocks() {
    let (case, disk) = (Case::new(), FaultDisk::healthy());
    for name in disk.list(&case.blocks("")).unwrap().iter().filter_map(|name| name.to_str()) {
        if name.starts_with("blk") || name.starts_with("rev") {
            let (path, bytes) = (case.blocks(name), fs::read(case.blocks(name)).unwrap());
            fs::remove_file(&path).unwrap();
            disk.create(&path).unwrap().write_all(&bytes).unwrap();
        }
    }
    run_on(&disk, &case.scan()).unwrap();
    let before = tree(case.root());
    disk.lose_unsynced().unwrap();
    assert_same_tree(&before, case.root(), "after a power cut");
}

/// Once, blocks were placed that only memory had: the sync that failed was bitcoind's, and the next succeeds.
#[test]
fn a_scan_places_no_block_that_is_not_on_the_medium() {
    let in_memory = || {
        let case = Case::at_tip();
        let last = case.index().entries.into_iter().max_by_key(|entry| (entry.file, entry.data_pos)).unwrap();
        let path = blk(&case, &last);
        for dir in [case.net("chainstate"), case.blocks("index")] {
            fs::write(dir.join("CURRENT"), "").unwrap();
        }
        let disk = FaultDisk::healthy().with_end_in_memory(&path, last.data_pos.unwrap().0 + 85);
        (case, disk, path, last.height)
    };
    let (case, disk, _, Height(lost)) = in_memory();
    let options = ReindexOptions { until_damage: true, ..case.scan() };
    assert_eq!(run_on(&disk, &options).unwrap().height, Height(lost - 1));
    let ((case, disk, path, _), peer) = (in_memory(), honest());
    acceptance::sync::repair_on(&disk, &repairing(case.root(), &[&peer])).unwrap();
    // The machine starts again.
    disk.forget_cached(&path);
    assert_sound(case.root(), chain(), "after a start of the machine");
}
