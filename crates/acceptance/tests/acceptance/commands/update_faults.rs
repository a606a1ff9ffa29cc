//! The disk fails, or the power, at any operation of an update: the chainstate is that of a commit, its
//! coins, its block index and its undo data agree, and another update succeeds.

use acceptance::prelude::*;
use acceptance::{
    undo::{Expected, assert_complete, tiny},
    update::{How, behind, update, update_options},
};
use disk::index::read_block_index;
use engine::UpdateReport;
use std::collections::BTreeSet;
use testkit::{corrupt::copy_dir, model::ModelStats};

const BEHIND: u32 = 116;

fn expected() -> &'static [ModelStats] {
    static STATS: OnceLock<Vec<ModelStats>> = OnceLock::new();
    STATS.get_or_init(|| stats_by_height(tiny()))
}

/// A datadir with a chainstate six blocks behind, whose undo data was never written.
fn case() -> TempDir {
    static TEMPLATE: OnceLock<TempDir> = OnceLock::new();
    let layout = testkit::datadir::Layout { file_size: 12 << 10, ..acceptance::layout() };
    let template = TEMPLATE.get_or_init(|| behind(tiny().blocks.iter(), BEHIND, &layout));
    let dir = acceptance::scratch();
    copy_dir(template.path(), &dir.path().join("datadir")).unwrap();
    dir
}

/// Commits of one block each, or of all.
const WAYS: [How; 2] = [How { threads: 1, bytes: Some(1) }, How { threads: 2, bytes: None }];

fn run_update(disk: &FaultDisk, root: &Path, how: How) -> Result<UpdateReport, Error> {
    engine::update(disk, &update_options(root, how, None), &|_| {}, &AtomicBool::new(false))
}

/// Asserts that the datadir is that of some commit. Returns its height.
fn assert_consistent(root: &Path, done: &Result<UpdateReport, Error>, what: &str) -> u32 {
    let height = height_of_commit(root, what);
    match done {
        Ok(report) => assert_eq!(Height(height), report.height, "{what}"),
        Err(error) => assert_eq!(error.kind, ErrorKind::Environment, "{what}: {error}"),
    }
    height
}

/// The same without the result of a run.
fn height_of_commit(root: &Path, what: &str) -> u32 {
    let found = stats(root, Network::Regtest).unwrap_or_else(|error| panic!("{what}: {error}"));
    let height = found.height.unwrap_or_else(|| panic!("{what}: the index lacks the best block")).0;
    assert!((BEHIND..=tiny().tip().height).contains(&height), "{what}: {height}");
    let model = &expected()[height as usize];
    assert_eq!(found.hash_serialized_3, model.hash_serialized_3, "{what}: coins at {height}");
    // What the coins belong to can be disconnected: the index refers to undo data that is complete.
    let index = read_block_index(&RealDisk, &root.join("regtest/blocks/index")).unwrap();
    for block in tiny().main().take(height as usize + 1).skip(1) {
        let entry = index.entries.iter().find(|entry| entry.hash == block.hash).unwrap();
        assert!(entry.status.has_undo(), "{what}: no undo data at {}", block.height);
    }
    let options = engine::CheckUndoOptions::new(root, Network::Regtest);
    let check = engine::check_undo(&FaultDisk::healthy(), &options, &|_| {}, &AtomicBool::new(false));
    assert!(check.unwrap().is_sound(), "{what}: undo data at {height}");
    height
}

fn assert_succeeds(root: &Path, how: How, what: &str) {
    update(&update_options(root, how, None)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_complete(root, Network::Regtest, &Expected::of(tiny()), what);
    let found = stats(root, Network::Regtest).unwrap();
    assert_eq!(found.hash_serialized_3, tiny().model.stats().hash_serialized_3, "{what}");
}

#[test]
fn a_fault_at_each_operation_leaves_a_commit() {
    for how in WAYS {
        let mut heights = Vec::new();
        for at in 0.. {
            let what = format!("operation {at}, {how:?}");
            let dir = case();
            let root = dir.path().join("datadir");
            let (fault, kind) = (InjectedFault::Once, io::ErrorKind::Other);
            let disk = FaultDisk::fail_at(at, fault, Operations::Changes, kind);
            let done = run_update(&disk, &root, how);
            heights.push(assert_consistent(&root, &done, &what));
            if !disk.has_failed() {
                done.unwrap();
                break;
            }
            assert_succeeds(&root, how, &what);
        }
        assert!(heights.len() > 20 && heights.first() == Some(&BEHIND), "{heights:?}");
        heights.dedup();
        assert!(how.bytes.is_none() || heights.len() >= 5, "each commit is seen: {heights:?}");
    }
}

#[test]
fn a_crash_at_any_change_leaves_a_commit() {
    for how in WAYS {
        let heights = Mutex::new(BTreeSet::new());
        let states = Scenario {
            before: &|| Case::of(case()),
            run: &|disk, case| run_update(disk, &case.root().join("datadir"), how).map(drop),
            is_whole: &|case, is_done, what| {
                let height = height_of_commit(&case.root().join("datadir"), what);
                assert!(!is_done || height == tiny().tip().height, "{what}: it reported success");
                heights.lock().unwrap().insert(height);
            },
            succeeds: &|case, what| assert_succeeds(&case.root().join("datadir"), how, what),
        }
        .explore(Crashes { cuts: 4, ..Crashes::default() });
        let heights = heights.into_inner().unwrap();
        eprintln!("{how:?}: {states} states, {heights:?}");
        assert!(states > 30 && heights.len() == how.bytes.map_or(2, |_| 7), "{states}, {heights:?}");
    }
}

#[test]
fn a_full_disk_leaves_a_commit() {
    for how in WAYS {
        for step in 0.. {
            let dir = case();
            let root = dir.path().join("datadir");
            // Space for undo data is reserved by the megabyte.
            let space = 400 * (step + 1) * (step + 1) * (step + 1);
            let disk = FaultDisk::full_after(space);
            let done = run_update(&disk, &root, how);
            let what = format!("{space} bytes, {how:?}");
            assert_consistent(&root, &done, &what);
            assert_succeeds(&root, how, &what);
            if done.is_ok() {
                assert!(step > 5, "{step}");
                break;
            }
        }
    }
}

/// A rebuild in place works on what updates have left, and removes it.
#[test]
fn a_rebuild_replaces_an_updated_chainstate() {
    let dir = case();
    let root = dir.path().join("datadir");
    run_update(&FaultDisk::healthy(), &root, WAYS[0]).unwrap();
    let report = run(&acceptance::options(&root)).unwrap();
    assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3);
}
