//! Changes of databases that this crate or another LevelDB wrote, read by both, and a simple model.

use std::{collections::BTreeMap, path::Path};

use rusty_leveldb::{DB, LdbIterator as _, Options};
use tempfile::TempDir;

use crate::{Database, LevelDbError, TableWriter, manifest, table_path, write_database};
use vfs::{Disk as _, RealDisk};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A directory in memory where possible, because each change is synced.
fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn options() -> Options {
    Options { compressor: 0, paranoid_checks: true, write_buffer_size: 16 << 10, ..Options::default() }
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
    let mut rows = Model::new();
    let mut cursor = database.cursor().unwrap();
    while cursor.advance().unwrap() {
        rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
    }
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

/// A pseudorandom number below `end`.
fn next(state: &mut u64, end: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % end
}

/// A database in one table of level 6, as this crate writes it.
fn new_database(dir: &Path, model: &mut Model) {
    let mut table = TableWriter::create(&RealDisk, dir, 7).unwrap();
    for number in (0..KEYS).step_by(2) {
        model.insert(key(number), vec![1; number as usize]);
    }
    model.iter().for_each(|(key, value)| table.add(key, value).unwrap());
    write_database(&RealDisk, dir, &[table.finish().unwrap()]).unwrap();
}

/// Makes a random change in both.
fn change(database: &mut Database<'_>, model: &mut Model, state: &mut u64) {
    let mut rows = BTreeMap::new();
    for _ in 0..=next(state, 60) {
        let value = (next(state, 3) > 0).then(|| vec![next(state, 256) as u8; next(state, 300) as usize]);
        rows.insert(key(next(state, KEYS)), value);
    }
    let mut update = database.update().unwrap();
    for (key, value) in rows {
        update.set(&key, value.as_deref()).unwrap();
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
    update.commit().unwrap();
}

#[test]
fn changes_by_this_crate_and_by_another_leveldb_alternate() {
    for seed in 1..=12u64 {
        let (dir, mut model, mut state) = (scratch(), Model::new(), seed * 0x9e37_79b9);
        new_database(dir.path(), &mut model);
        for step in 0..12 {
            let what = format!("seed {seed}, step {step}");
            if next(&mut state, 3) == 0 {
                // It leaves logs, tables and deletions of its own.
                with_other(dir.path(), |db| {
                    for _ in 0..next(&mut state, 200) {
                        let (key, value) =
                            (key(next(&mut state, KEYS)), vec![9; next(&mut state, 90) as usize]);
                        if next(&mut state, 4) == 0 {
                            db.delete(&key).unwrap();
                            model.remove(&key);
                        } else {
                            db.put(&key, &value).unwrap();
                            model.insert(key, value);
                        }
                    }
                });
            }
            let mut database = Database::open(&RealDisk, dir.path()).unwrap();
            for _ in 0..=next(&mut state, 3) {
                change(&mut database, &mut model, &mut state);
                assert_equal(&database, &model, &what);
            }
            assert_equal(&Database::open(&RealDisk, dir.path()).unwrap(), &model, &what);
        }
        let rows: Model = with_other(dir.path(), |db| {
            let mut rows = db.new_iter().unwrap();
            std::iter::from_fn(|| rows.next()).collect()
        });
        assert!(rows == model, "seed {seed}: the other LevelDB has {} rows", rows.len());
    }
}

#[test]
fn new_tables_go_to_the_deepest_level_above_all_that_they_overlap() {
    let (dir, mut model, mut state) = (scratch(), Model::new(), 5);
    new_database(dir.path(), &mut model);
    let mut database = Database::open(&RealDisk, dir.path()).unwrap();
    let mut used = Vec::new();
    for _ in 0..7 {
        let mut update = database.update().unwrap();
        update.set(&key(1), Some(b"first")).unwrap();
        update.set(&key(KEYS - 1), Some(b"last")).unwrap();
        update.commit().unwrap();
        used.push(database.table_count_by_level());
    }
    assert_eq!(used[0], [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(used[4], [0, 1, 1, 1, 1, 1, 1]);
    assert_eq!(used[6], [2, 1, 1, 1, 1, 1, 1], "after that, level 0");
    model.insert(key(1), b"first".to_vec());
    model.insert(key(KEYS - 1), b"last".to_vec());
    change(&mut database, &mut model, &mut state);
    assert_equal(&database, &model, "a table of level 0 hides the older ones");
}

#[test]
fn a_large_change_has_several_tables_of_one_level() {
    let (dir, mut model) = (scratch(), Model::new());
    new_database(dir.path(), &mut model);
    let mut database = Database::open(&RealDisk, dir.path()).unwrap();
    let mut update = database.update().unwrap();
    for number in 0..70u32 {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 1 << 20]);
        update.set(&key, Some(&value)).unwrap();
        model.insert(key, value);
    }
    update.commit().unwrap();
    assert_eq!(database.table_count_by_level(), [0, 0, 0, 0, 0, 3, 1]);
    assert_equal(&database, &model, "in memory");
    assert_equal(&Database::open(&RealDisk, dir.path()).unwrap(), &model, "opened again");
}

#[test]
fn a_change_that_is_dropped_leaves_no_files_and_keys_must_ascend() {
    let (dir, mut model) = (scratch(), Model::new());
    new_database(dir.path(), &mut model);
    let before = RealDisk.list(dir.path()).unwrap();
    let mut database = Database::open(&RealDisk, dir.path()).unwrap();
    let mut update = database.update().unwrap();
    update.set(b"b", None).unwrap();
    let error = update.set(b"a", None).unwrap_err();
    assert!(matches!(error, LevelDbError::Order { .. }), "{error}");
    drop(update);
    assert_eq!(RealDisk.list(dir.path()).unwrap(), before);
    database.update().unwrap().commit().unwrap();
    assert_eq!(RealDisk.list(dir.path()).unwrap(), before, "a change without rows");
    assert_equal(&database, &model, "unchanged");
}

/// Files that a crash has left do not hinder a change, even if they have the numbers that come next.
#[test]
fn leftovers_of_a_crash_are_passed_over_and_removed() {
    let (dir, mut model, mut state) = (scratch(), Model::new(), 3);
    new_database(dir.path(), &mut model);
    let leftovers = [table_path(dir.path(), 9), dir.path().join(manifest::manifest_name(10))];
    let temporary = dir.path().join("000012.dbtmp");
    leftovers.iter().chain([&temporary]).for_each(|path| std::fs::write(path, "half").unwrap());
    let mut database = Database::open(&RealDisk, dir.path()).unwrap();
    change(&mut database, &mut model, &mut state);
    assert_equal(&database, &model, "after the change");
    let names = RealDisk.list(dir.path()).unwrap();
    assert_eq!(names, ["000007.ldb", "000013.ldb", "CURRENT", "LOCK", "MANIFEST-000014"]);
}

/// A change a block, for days: look-ups must not get slower with each one.
#[test]
fn many_small_changes_leave_few_tables_and_the_rows_of_the_model() {
    let (dir, mut model, mut state) = (scratch(), Model::new(), 77);
    new_database(dir.path(), &mut model);
    let mut database = Database::open(&RealDisk, dir.path()).unwrap();
    for at in 0..100 {
        change(&mut database, &mut model, &mut state);
        let tables = database.table_count_by_level();
        assert!(tables.iter().sum::<usize>() <= super::MERGED_TABLES + 7, "{tables:?}");
        if at % 9 == 0 {
            assert_equal(&database, &model, "after a change");
            assert_equal(&Database::open(&RealDisk, dir.path()).unwrap(), &model, "opened again");
        }
    }
    let files = RealDisk.list(dir.path()).unwrap().len();
    assert!(files < 30, "{files} files: those that were merged are removed");
    with_other(dir.path(), |db| {
        for number in 0..KEYS {
            assert_eq!(db.get(&key(number)).as_deref(), model.get(&key(number)).map(Vec::as_slice));
        }
    });
}
