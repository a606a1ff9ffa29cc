//! What is read of indexes, row by row in the forms that Core's releases write, and how one is set aside.

use super::*;
use leveldb::write_database;
use std::{fs, os::unix::fs::PermissionsExt as _};
use tempfile::TempDir;
use testkit::fault::FaultDisk;
use vfs::RealDisk;

const BEST: [u8; 32] = [7; 32];

/// A locator with this block and its parent.
fn locator_to(best: BlockHash) -> Vec<u8> {
    [&70016_i32.to_le_bytes()[..], &[2], &best.0, &[8; 32]].concat()
}

/// Makes the database of an index, and returns what is read of it.
fn read(name: &str, database: &str, rows: &[(&[u8], &[u8])]) -> IndexContents {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(INDEXES_DIR).join(name).join(database);
    fs::create_dir_all(&path).unwrap();
    write_database(&RealDisk, &path, rows.iter().copied()).unwrap();
    let found = NodeIndex::find(&RealDisk, dir.path()).unwrap();
    assert_eq!(found.len(), 1);
    found[0].read(&RealDisk).unwrap()
}

#[test]
fn rows_with_positions_are_told_from_others() {
    let (best, other) = (Some(BlockHash(BEST)), BlockHash([9; 32]));
    let (old_row, new_row) = ([&b"t"[..], &[1; 32]].concat(), [&b"x"[..], &[1; 9]].concat());
    let hash_row = [&b"h"[..], &[1; 32]].concat();
    let spender = [&b"s"[..], &[1; 11]].concat();
    let locator = &locator_to(BlockHash(BEST))[..];
    let contents =
        |best_block, has_positions| IndexContents { best_block, positions_to: best_block, has_positions };
    let (positions, safe) = (|best| contents(best, true), |best| contents(best, false));
    let old = [(&b"B"[..], locator), (&old_row, &[1, 2, 3])];
    assert_eq!(read("txindex", "", &old), positions(best));
    assert_eq!(read("txindex", "", &old[1..]), positions(None));
    let new = [(BEST_BLOCK_V2, locator), (&b"\x0etxid_hash_salt"[..], &[0; 16]), (&hash_row, &[0; 4])];
    let found = read("txindex", "", &[&new[..], &[(&new_row, &[])]].concat());
    assert_eq!(found, IndexContents { positions_to: None, ..safe(best) });
    // Release 32 adds its rows to those of release 31, and knows by itself where it ends.
    let ends: [(&[u8], &[u8]); 2] = [(BEST_BLOCK_V2, &locator_to(other)), new[1]];
    let mixed = [&ends[..], &old[..1], &[(&hash_row, &[0; 4])], &old[1..], &[(&new_row, &[])]].concat();
    assert_eq!(read("txindex", "", &mixed), IndexContents { best_block: Some(other), ..positions(best) });
    // Rows that no release writes so far.
    assert_eq!(read("txindex", "", &[(b"B", locator), (b"z1", &[])]), positions(best));
    let key: (&[u8], &[u8]) = (SPENDER_KEY, &[0; 16]);
    assert_eq!(read("txospenderindex", "db", &[(b"B", locator), (&spender, &[]), key]), positions(best));
    assert_eq!(read("txospenderindex", "db", &[key]), safe(None));
    let height_row: (&[u8], &[u8]) = (b"t\0\0\0\x01", &[0; 100]);
    assert_eq!(read("blockfilter", "basic/db", &[(b"B", locator), height_row]), safe(best));
    assert_eq!(read("coinstatsindex", "db", &[(b"B", locator), height_row]), safe(best));
    assert_eq!(read("addressindex", "", &[(b"B", locator)]), positions(best));
}

#[test]
fn damaged_databases_are_errors_and_empty_folders_have_no_rows() {
    let dir = TempDir::new().unwrap();
    let indexes = dir.path().join(INDEXES_DIR);
    assert!(NodeIndex::find(&RealDisk, dir.path()).unwrap().is_empty());
    // What a run that was killed had begun to make counted as an index of an unknown kind.
    for name in ["txindex", "unknown", "txindex.old", "txindex.old-2", "txindex.peregrine"] {
        fs::create_dir_all(indexes.join(name)).unwrap();
    }
    let found = NodeIndex::find(&RealDisk, dir.path()).unwrap();
    assert_eq!(found.iter().map(|index| &index.name[..]).collect::<Vec<_>>(), ["txindex", "unknown"]);
    for index in &found {
        assert_eq!(index.read(&RealDisk).unwrap(), IndexContents::default(), "{}", index.name);
    }
    fs::write(indexes.join("txindex/CURRENT"), "MANIFEST-000001\n").unwrap();
    assert!(matches!(found[0].read(&RealDisk), Err(DiskError::File(_) | DiskError::LevelDb(_))));
}

#[test]
fn an_index_that_is_set_aside_leaves_an_empty_folder_behind_its_link() {
    let dir = TempDir::new().unwrap();
    let (indexes, elsewhere) = (dir.path().join(INDEXES_DIR), dir.path().join("elsewhere/tx"));
    for path in [&indexes, &elsewhere] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(elsewhere.join("000005.ldb"), "rows").unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, indexes.join("txindex")).unwrap();
    let index = &NodeIndex::find(&RealDisk, dir.path()).unwrap()[0];
    let first = index.set_aside(&RealDisk, false).unwrap();
    assert_eq!(first, dir.path().join("elsewhere/tx.old"));
    assert_eq!(fs::read(first.join("000005.ldb")).unwrap(), b"rows");
    assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(fs::symlink_metadata(indexes.join("txindex")).unwrap().is_symlink());
    assert_eq!(index.set_aside(&RealDisk, false).unwrap(), dir.path().join("elsewhere/tx.old-2"));
}

/// Each try left an empty folder with the name of the index that is kept.
#[test]
fn an_index_that_cannot_be_set_aside_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let indexes = dir.path().join(INDEXES_DIR);
    fs::create_dir_all(indexes.join("txindex")).unwrap();
    let index = &NodeIndex::find(&RealDisk, dir.path()).unwrap()[0];
    // The second change gives the folder its owner, the third is the exchange.
    let failing = [1, 2].map(FaultDisk::failing_at);
    for disk in failing.into_iter().chain([FaultDisk::healthy().with_mount(&index.path)]) {
        assert!(index.set_aside(&disk, false).is_err());
        assert_eq!(RealDisk.list(&indexes).unwrap(), ["txindex"]);
    }
}
