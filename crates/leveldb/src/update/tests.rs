//! Changes of databases that this crate or another LevelDB wrote, read by both, and a simple model.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rusty_leveldb::{DB, LdbIterator as _, Options};
use tempfile::TempDir;

use super::LOG_BYTES;
use crate::{
    Database, DatabaseUpdate, LevelDbError, RangeUpdate, manifest,
    tests::{collect, mix, options},
};
use vfs::{Disk as _, RealDisk};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A directory in memory where possible, because each change is synced.
fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn open(dir: &TempDir) -> Database<'static> {
    Database::open(&RealDisk, dir.path()).unwrap()
}

fn count_files(dir: &TempDir, suffix: &str) -> usize {
    let names = RealDisk.list(dir.path()).unwrap();
    names.iter().filter(|name| name.to_str().unwrap().ends_with(suffix)).count()
}

/// Calls `change` with another LevelDB that has the database open.
fn with_other<T>(dir: &Path, change: impl FnOnce(&mut DB) -> T) -> T {
    let mut db = DB::open(dir, Options { create_if_missing: false, ..options() }).unwrap();
    let done = change(&mut db);
    db.flush().unwrap();
    done
}

/// Asserts that the database has the rows of the model, by cursor and by look-up.
fn assert_equal(database: &Database<'_>, model: &Model, what: &str) {
    let rows: Model = collect(database.range(&[], None).unwrap()).unwrap().into_iter().collect();
    assert!(rows == *model, "{what}: {} rows, the model has {}", rows.len(), model.len());
    for number in 0..KEYS {
        assert_eq!(database.get(&key(number)).unwrap().as_ref(), model.get(&key(number)), "{what}: {number}");
    }
}

const KEYS: u64 = 400;

fn key(number: u64) -> Vec<u8> {
    // Short keys, of which some are prefixes of others.
    number.to_be_bytes()[6..].iter().copied().chain((0..number % 3).map(|_| 0)).collect()
}

/// Returns all rows as another LevelDB reads them.
fn rows_by_other(dir: &Path) -> Model {
    with_other(dir, |db| {
        let mut rows = db.new_iter().unwrap();
        std::iter::from_fn(|| rows.next()).collect()
    })
}

/// A pseudorandom number below `end`.
fn next(state: &mut u64, end: u64) -> u64 {
    *state += 1;
    mix(*state) % end
}

/// A database in one table of level 6, as this crate writes it, and its rows; it was opened after that.
fn new_database() -> (TempDir, Model, Database<'static>) {
    let (dir, mut model) = (scratch(), Model::new());
    let mut new = Database::new(&RealDisk, dir.path());
    let update = new.update().unwrap();
    let mut table = update.numbered_range(7, 1);
    for number in (0..KEYS).step_by(2) {
        model.insert(key(number), vec![1; number as usize]);
    }
    model.iter().for_each(|(key, value)| table.set(key, Some(value)).unwrap());
    let table = table.finish().unwrap();
    update.commit([table]).unwrap();
    let database = open(&dir);
    (dir, model, database)
}

/// Returns the ranges of an update, of which all but the first begin at `splits`.
fn ranges<'u>(update: &'u DatabaseUpdate<'_, '_>, splits: &[Vec<u8>]) -> Vec<RangeUpdate<'u>> {
    let starts = std::iter::once(&[][..]).chain(splits.iter().map(Vec::as_slice));
    let ends = splits.iter().map(|split| Some(split.as_slice())).chain([None]);
    starts.zip(ends).map(|(start, end)| update.range(start, end)).collect()
}

/// Merges as [`Database::merge`] does, in ranges.
fn merge_in_ranges(database: &mut Database<'_>, splits: &[Vec<u8>]) {
    if let Some(update) = database.begin_merge().unwrap() {
        let merged = ranges(&update, splits).into_iter().map(|range| range.merge(|| false).unwrap().unwrap());
        let merged: Vec<_> = merged.collect();
        update.commit(merged).unwrap();
    }
}

/// Sets or deletes rows in both, in ranges of which all but the first begin at `splits`.
fn set(database: &mut Database<'_>, model: &mut Model, rows: Changes, splits: &[Vec<u8>]) {
    set_with(database.update().unwrap(), model, rows, splits);
}

/// Does so with an update that has begun.
fn set_with(update: DatabaseUpdate<'_, '_>, model: &mut Model, rows: Changes, splits: &[Vec<u8>]) {
    let mut ranges = ranges(&update, splits);
    for (key, value) in &rows {
        let range = splits.iter().filter(|split| *split <= key).count();
        ranges[range].set(key, value.as_deref()).unwrap();
    }
    let tables: Vec<_> = ranges.into_iter().map(|range| range.finish().unwrap()).collect();
    update.commit(tables).unwrap();
    for (key, value) in rows {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

/// Splits the keys into those that there are and others: what has two ranges becomes tables.
fn in_tables() -> Vec<Vec<u8>> {
    vec![vec![0xff; 9]]
}

/// Makes a random change in both.
fn change(database: &mut Database<'_>, model: &mut Model, state: &mut u64, splits: &[Vec<u8>]) {
    let mut rows = BTreeMap::new();
    for _ in 0..=next(state, 60) {
        let value = (next(state, 3) > 0).then(|| vec![next(state, 256) as u8; next(state, 300) as usize]);
        rows.insert(key(next(state, KEYS)), value);
    }
    set(database, model, rows, splits);
}

/// Makes random changes in both by another LevelDB, which leaves logs, tables and deletions of its own.
fn change_by_other(dir: &Path, model: &mut Model, state: &mut u64) {
    with_other(dir, |db| {
        for _ in 0..next(state, 200) {
            let (key, value) = (key(next(state, KEYS)), vec![9; next(state, 90) as usize]);
            if next(state, 4) == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    });
}

/// What follows a change in a walk.
#[derive(Clone, Copy, Debug)]
enum Merging {
    None,
    /// All levels are merged, in two ranges.
    All,
    /// They are if there are many tables, as after each block of a node's chain.
    IfMany,
}

/// Makes changes by this crate and, about every `others`th time, by another LevelDB. Each time, the rows
/// are those of the model.
fn walk(seed: u64, steps: u64, others: u64, merging: Merging) {
    let ((dir, mut model, mut database), mut state) = (new_database(), seed << 32);
    for step in 0..steps {
        let what = format!("{merging:?}, seed {seed}, step {step}");
        if next(&mut state, others) == 0 {
            drop(database);
            change_by_other(dir.path(), &mut model, &mut state);
            database = open(&dir);
        }
        for _ in 0..=next(&mut state, 3) {
            let splits = (0..next(&mut state, 4)).map(|_| key(next(&mut state, KEYS)));
            let splits: Vec<_> = splits.collect::<BTreeSet<_>>().into_iter().collect();
            change(&mut database, &mut model, &mut state, &splits);
            match merging {
                Merging::None => {}
                Merging::All => merge_in_ranges(&mut database, &[key(next(&mut state, KEYS))]),
                Merging::IfMany => database.merge_if_many(|| false).unwrap(),
            }
            assert_equal(&database, &model, &what);
        }
        assert_equal(&open(&dir), &model, &what);
        let tables = database.table_count_by_level();
        match merging {
            Merging::None => continue,
            Merging::All => {
                let asked = tables[0] + tables[1..].iter().filter(|tables| **tables > 0).count();
                assert!(asked <= 6, "{what}: look-ups ask {asked} tables");
            }
            Merging::IfMany => assert!(tables[0] <= super::MANY_TABLES, "{what}: {tables:?}"),
        }
        let files = count_files(&dir, ".ldb");
        assert_eq!(files, tables.iter().sum::<usize>(), "{what}: merged tables are removed");
    }
    assert!(rows_by_other(dir.path()) == model, "{merging:?}, seed {seed}: another LevelDB has other rows");
}

#[test]
fn changes_by_this_crate_and_by_another_leveldb_alternate() {
    (1..=12).for_each(|seed| walk(seed, 12, 3, Merging::None));
}

#[test]
fn merging_after_each_change_keeps_the_rows_in_few_levels() {
    (1..=6).for_each(|seed| walk(seed, 30, 8, Merging::All));
}

/// A change a block, for days: look-ups must not get slower with each one.
#[test]
fn merging_after_many_changes_leaves_few_tables() {
    walk(77, 50, u64::MAX, Merging::IfMany);
}

/// With a large level below, level 0 once got a table with each change.
#[test]
fn many_small_changes_above_a_large_level_leave_few_tables() {
    let ((dir, mut model, mut database), mut state) = (new_database(), 9);
    let row = |at: u64| ([&[7; 9][..], &at.to_be_bytes()].concat(), Some(vec![1; 999]));
    set(&mut database, &mut model, (0..2_000).map(row).collect(), &[]);
    database.merge(|| false).unwrap();
    for step in 0..80 {
        change(&mut database, &mut model, &mut state, &in_tables());
        database.merge_if_many(|| false).unwrap();
        let tables = database.table_count_by_level();
        assert!(tables[0] <= super::MANY_TABLES, "step {step}: {tables:?}");
    }
    assert_equal(&database, &model, "above a large level");
    drop(database);
    assert!(rows_by_other(dir.path()) == model, "another LevelDB has other rows");
}

/// Deletions hide the rows of levels that are not merged with them.
#[test]
fn rows_that_are_all_deleted_are_gone_after_a_merge() {
    let ((dir, mut model, mut database), mut state) = (new_database(), 5);
    (0..9).for_each(|_| change(&mut database, &mut model, &mut state, &in_tables()));
    set(&mut database, &mut model, (0..KEYS).map(|number| (key(number), None)).collect(), &[]);
    database.merge(|| false).unwrap();
    assert_equal(&database, &Model::new(), "all rows are deleted");
    assert_eq!(rows_by_other(dir.path()), Model::new());
}

#[test]
fn new_tables_go_to_the_deepest_level_above_all_that_they_overlap() {
    let (_dir, mut model, mut database) = new_database();
    let mut used = Vec::new();
    for _ in 0..7 {
        let ends = [(key(1), Some(b"first".to_vec())), (key(KEYS - 1), Some(b"last".to_vec()))];
        set(&mut database, &mut model, ends.into(), &in_tables());
        used.push(database.table_count_by_level());
    }
    assert_eq!(used[0], [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(used[4], [0, 1, 1, 1, 1, 1, 1]);
    assert_eq!(used[6], [2, 1, 1, 1, 1, 1, 1], "after that, level 0");
    set(&mut database, &mut model, [(key(1), Some(b"newest".to_vec()))].into(), &in_tables());
    assert_equal(&database, &model, "a table of level 0 hides the older ones");
}

/// A long update once left levels 1 to 4 with gigabytes above LevelDB's limits.
#[test]
fn a_level_with_much_more_than_its_limit_is_full_unless_it_cannot_be_merged() {
    let (_dir, mut model, mut database) = new_database();
    for value in 0..6 {
        let ends = [(key(1), Some(vec![value])), (key(KEYS - 1), None)];
        set(&mut database, &mut model, ends.into(), &in_tables());
    }
    assert_eq!(database.table_count_by_level(), [1; 7]);
    // Where space cannot be measured, it is not missing.
    database.dir.push("missing");
    let mut is_full = |level: usize, size: u64, are_lower_large: bool| {
        for (at, tables) in database.manifest.levels.iter_mut().enumerate() {
            tables[0].size = if at > level && are_lower_large { 1 << (39 + 3 * at) } else { 1 };
        }
        database.manifest.levels[level][0].size = size;
        database.has_full_level()
    };
    let limits = [10, 10, 100, 1_000, 10_000, 100_000].map(|limit| (limit + 256) << 20);
    for (level, limit) in limits.into_iter().enumerate() {
        let found = [(limit, false), (limit + 1, false), (limit + 1, true)];
        let found = found.map(|(size, are_lower_large)| is_full(level, size, are_lower_large));
        assert_eq!(found, [false, true, false], "level {level}");
    }
    database.manifest.levels[5][0].size = 1 << 60;
    assert!(database.has_full_level());
    database.dir.pop();
    assert!(!database.has_full_level(), "no disk has space for a copy");
}

#[test]
fn a_large_change_has_several_tables_of_one_level() {
    let (dir, mut model, mut database) = new_database();
    let row = |number: u32| (number.to_be_bytes().to_vec(), Some(vec![number as u8; 1 << 20]));
    set(&mut database, &mut model, (0..70).map(row).collect(), &[]);
    assert_eq!(database.table_count_by_level(), [0, 0, 0, 0, 0, 3, 1]);
    assert_equal(&database, &model, "in memory");
    assert_equal(&open(&dir), &model, "opened again");
}

/// An index that bitcoind had left half-made once got a thousand tables in level 0: until they are merged,
/// LevelDB writes nothing, for hours.
#[test]
fn a_large_change_adds_no_tables_above_many_levels_but_is_written_with_their_rows() {
    let (dir, mut model, mut database) = new_database();
    for value in 0..7 {
        let ends = [(key(1), Some(vec![value])), (key(2), None), (key(KEYS - 1), Some(vec![value]))];
        set(&mut database, &mut model, ends.into(), &in_tables());
    }
    set(&mut database, &mut model, [(key(5), Some(vec![7])), (key(8), None)].into(), &[]);
    assert_eq!((database.table_count_by_level(), database.log_count), ([2, 1, 1, 1, 1, 1, 1], 1));
    assert_eq!(database.bytes_merged_with(1 << 20), 0, "a small change adds tables");
    assert_eq!(database.bytes_merged_with(1 << 40), database.table_bytes());

    let value = |number: u64| number.is_multiple_of(2).then(|| vec![8; 40]);
    let rows = (0..KEYS).step_by(3).map(|number| (key(number), value(number))).collect();
    let update = database.large_update(1 << 40).unwrap();
    set_with(update, &mut model, rows, &[key(100), key(200)]);
    assert_eq!((database.table_count_by_level(), database.log_count), ([0, 0, 0, 0, 0, 0, 3], 0));
    assert_equal(&database, &model, "in memory");
    assert_equal(&open(&dir), &model, "opened again");
    assert_eq!(database.bytes_merged_with(1 << 30), 0, "level 5 has space for it");
    drop(database);
    assert!(rows_by_other(dir.path()) == model, "another LevelDB has other rows");
}

#[test]
fn a_change_that_is_dropped_leaves_no_files_and_keys_must_ascend() {
    let (dir, mut model, mut database) = new_database();
    let before = RealDisk.list(dir.path()).unwrap();
    let update = database.update().unwrap();
    let mut range = update.range(&[], None);
    range.set(b"b", None).unwrap();
    let error = range.set(b"a", None).unwrap_err();
    assert!(matches!(error, LevelDbError::Order { .. }), "{error}");
    drop(range);
    drop(update);
    assert_eq!(RealDisk.list(dir.path()).unwrap(), before);
    set(&mut database, &mut model, Changes::new(), &[]);
    assert_eq!(RealDisk.list(dir.path()).unwrap(), before, "a change without rows");
    assert_equal(&database, &model, "unchanged");
}

/// Files that a crash has left do not hinder a change, even if they have the numbers that come next.
#[test]
fn leftovers_of_a_crash_are_passed_over_and_removed() {
    let (dir, mut model, _) = new_database();
    let leftovers = [manifest::numbered(dir.path(), 9, "ldb"), dir.path().join(manifest::manifest_name(10))];
    let temporary = dir.path().join("000012.dbtmp");
    leftovers.iter().chain([&temporary]).for_each(|path| std::fs::write(path, "half").unwrap());
    let mut database = open(&dir);
    set(&mut database, &mut model, [(key(1), Some(b"in a log".to_vec()))].into(), &[]);
    assert!(dir.path().join("000013.log").is_file());
    assert_equal(&open(&dir), &model, "after the change");
    set(&mut database, &mut model, [(key(2), None)].into(), &in_tables());
    assert_equal(&database, &model, "without the log");
    let names = RealDisk.list(dir.path()).unwrap();
    assert_eq!(names, ["000007.ldb", "000014.ldb", "CURRENT", "LOCK", "MANIFEST-000015"]);
}

#[test]
fn a_merge_that_is_stopped_changes_nothing() {
    let (dir, mut model, mut database) = new_database();
    // More rows than are merged between two checks, half of them twice.
    for values in 0..2u32 {
        let is_kept = |number: u32| number >= 35_000 * values;
        let value = |number| is_kept(number).then(|| vec![values as u8; 3]);
        let rows = (0..70_000u32).map(|number| (number.to_be_bytes().to_vec(), value(number)));
        set(&mut database, &mut model, rows.collect(), &in_tables());
    }
    let before = database.table_count_by_level();
    database.merge(|| true).unwrap();
    assert_eq!(database.table_count_by_level(), before);
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, before.iter().sum::<usize>() + 3, "CURRENT, LOCK and the MANIFEST");
    database.merge(|| false).unwrap();
    assert_eq!(database.table_count_by_level(), [0, 0, 0, 0, 0, 0, 1]);
    for number in (0..70_000u32).step_by(7) {
        let expected = (number >= 35_000).then(|| vec![1; 3]);
        assert_eq!(database.get(&number.to_be_bytes()).unwrap(), expected, "{number}");
    }
}

#[test]
fn small_changes_become_logs_until_there_are_many_and_large_ones_do_not() {
    let (dir, mut model, mut database) = new_database();
    let logs = || count_files(&dir, ".log");
    let set_one = |database: &mut Database<'_>, model: &mut Model, number: u64, len: usize| {
        set(database, model, [(key(number), Some(vec![3; len]))].into(), &[]);
    };
    let (mut counts, mut half) = (Vec::new(), 0);
    for number in 0..15 {
        set_one(&mut database, &mut model, number, 5);
        counts.push(logs());
        if number == 6 {
            half = open(&dir).log_count;
        }
    }
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2]);
    assert_eq!(half, 7, "a database that is opened counts its logs");
    assert_equal(&database, &model, "in memory");

    set_one(&mut database, &mut model, 1, LOG_BYTES - 200);
    assert_eq!(logs(), 3);
    set_one(&mut database, &mut model, 2, 200);
    assert_eq!(logs(), 0, "all logs together have a limit");
    set_one(&mut database, &mut model, 3, LOG_BYTES);
    assert_eq!(logs(), 0);
    assert_equal(&open(&dir), &model, "opened again");
}

#[test]
fn a_torn_log_has_no_name_yet_and_another_leveldb_reads_whole_ones() {
    let (dir, mut model, _) = new_database();
    std::fs::write(dir.path().join("000009.dbtmp"), "torn").unwrap();
    assert_equal(&open(&dir), &model, "before");
    let mut database = open(&dir);
    for log in 0..3 {
        // Of more than one block of 32 KiB.
        let rows = (1..KEYS).step_by(2).map(|at| (key(at), Some(vec![log; 300])));
        set(&mut database, &mut model, rows.collect(), &[]);
    }
    assert_eq!(database.log_count, 3);
    with_other(dir.path(), |db| {
        for number in 0..KEYS {
            assert_eq!(db.get(&key(number)).as_deref(), model.get(&key(number)).map(Vec::as_slice));
        }
    });
}
