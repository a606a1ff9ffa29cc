//! The disk fails, or the power, at any operation of an update: the chainstate is that of a commit, its
//! coins, its block index and its undo data agree, and another update succeeds.

use acceptance::{prelude::*, undo::tiny};

const BEHIND: u32 = 116;

static EXPECTED: LazyLock<Vec<ModelStats>> = LazyLock::new(|| stats_by_height(tiny()));

/// A datadir with a chainstate six blocks behind, whose undo data was never written.
fn case() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    let layout = Layout { file_size: 12 << 10, ..layout() };
    let made = || Template::copy_of(behind(tiny().blocks.iter(), BEHIND, &layout).path());
    TEMPLATE.get_or_init(made).case()
}

/// Commits of one block each, or of all.
const WAYS: [How; 2] = [How { threads: 1, bytes: Some(1) }, How { threads: 2, bytes: None }];

/// Asserts that the datadir is that of some commit. Returns its height.
fn height_of_commit(root: &Path, what: &str) -> u32 {
    let found = stats(root, Network::Regtest).unwrap_or_else(|error| panic!("{what}: {error}"));
    let height = found.height.unwrap_or_else(|| panic!("{what}: the index lacks the best block")).0;
    assert!((BEHIND..=tiny().tip().height).contains(&height), "{what}: {height}");
    let model = &EXPECTED[height as usize];
    assert_eq!(found.hash_serialized_3, model.hash_serialized_3, "{what}: coins at {height}");
    // What the coins belong to can be disconnected: the index refers to undo data that is complete.
    let index = read_block_index(&RealDisk, &root.join("regtest/blocks/index")).unwrap();
    for block in tiny().main().take(height as usize + 1).skip(1) {
        let entry = index.entries.iter().find(|entry| entry.hash == block.hash).unwrap();
        assert!(entry.status.has_undo(), "{what}: no undo data at {}", block.height);
    }
    assert!(checked(root).is_sound(), "{what}: undo data at {height}");
    height
}

/// Lets something happen to updates. Returns the number of runs that failed, or of states, and the heights of
/// the commits that were left.
fn suffer(how: How, happen: impl FnOnce(&Scenario<'_>) -> u64) -> (u64, BTreeSet<u32>) {
    let heights = Mutex::new(BTreeSet::new());
    let runs = happen(&Scenario {
        before: &case,
        run: &|disk, case| {
            let options = update_options(case.root(), how, None);
            engine::update(disk, &options, quiet(disk.interrupt())).map(drop)
        },
        is_whole: &|case, is_done, what| {
            let height = height_of_commit(case.root(), what);
            assert!(!is_done || height == tiny().tip().height, "{what}: it reported success");
            heights.lock().unwrap().insert(height);
        },
        succeeds: &|case, what| {
            let root = case.root();
            update(&update_options(root, how, None)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert_complete(root, Network::Regtest, &Expected::of(tiny()), what);
            let found = stats(root, Network::Regtest).unwrap();
            assert_eq!(found.hash_serialized_3, tiny().model.stats().hash_serialized_3, "{what}");
        },
    });
    (runs, heights.into_inner().unwrap())
}

#[test]
fn a_fault_an_interrupt_or_a_crash_at_any_change_or_a_full_disk_leaves_a_commit() {
    for how in WAYS {
        let (runs, heights) = suffer(how, |scenario| scenario.suffer(Trouble::CHANGE, 1, false));
        assert!(runs > 20 && heights.first() == Some(&BEHIND), "{runs}, {heights:?}");
        assert!(how.bytes.is_none() || heights.len() >= 5, "each commit is seen: {heights:?}");
        let (runs, heights) = suffer(how, |scenario| scenario.suffer(Trouble::Interrupt, 3, false));
        assert!(runs > 5 && (how.bytes.is_none() || heights.len() >= 5), "{runs}, {heights:?}");
        // Space for undo data is reserved by the megabyte.
        let (runs, _) = suffer(how, |scenario| scenario.suffer(Trouble::Full, 60_000, false));
        assert!(runs > 5, "{runs}");
        let crashes = Crashes { cuts: 4, ..Crashes::default() };
        let (states, heights) = suffer(how, |scenario| scenario.explore(crashes));
        eprintln!("{how:?}: {states} states, {heights:?}");
        assert!(states > 30 && heights.len() == how.bytes.map_or(2, |_| 7), "{states}, {heights:?}");
    }
}
