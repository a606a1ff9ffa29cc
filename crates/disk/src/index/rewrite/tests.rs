//! Copies of indexes with and without changes, obfuscated ones, and rows that Peregrine does not know.

use super::*;
use crate::index::{BlockIndex, BlockStatus, read_block_index, tests::stored_entry, write_block_index};
use digest::obfuscation::Obfuscation;
use std::path::PathBuf;
use tempfile::TempDir;
use testkit::corrupt::rows;
use vfs::RealDisk;
use wire::{BlockHash, ByteOffset};

fn entry(nonce: u32) -> IndexEntry {
    IndexEntry { file: Some(FileNo(nonce / 100)), ..stored_entry(nonce) }
}

/// An index of `count` blocks, with a row for each of `files` files.
fn index(count: u32, files: u32) -> BlockIndex {
    let mut entries: Vec<_> = (0..count).map(entry).collect();
    entries.sort_by_key(|entry| entry.hash);
    let info = |number: u32| FileInfo { blocks: 1, size: 1_000 + number, ..FileInfo::default() };
    let files: Vec<_> = (0..files).map(info).collect();
    let last_file = FileNo(files.len() as u32 - 1);
    BlockIndex { entries, files, last_file, pruned: true, reindexing: false, departed: 0 }
}

fn write_rows(dir: &Path, rows: &Rows) {
    RealDisk.create_dir_all(dir).unwrap();
    write_database(&RealDisk, dir, rows).unwrap();
}

/// A directory, with paths of an index and of its copy.
fn paths() -> (TempDir, [PathBuf; 2]) {
    let root = tempfile::tempdir().unwrap();
    let paths = ["old", "new"].map(|name| root.path().join(name));
    (root, paths)
}

#[test]
fn a_copy_without_changes_has_the_same_rows() {
    let (_root, [old, new]) = paths();
    let index = index(3_000, 300);
    write_block_index(&RealDisk, &old, &index).unwrap();
    let mut seen = Vec::new();
    let check_files = |files: &mut Vec<FileInfo>| assert_eq!(*files, index.files);
    rewrite_block_index(&RealDisk, &old, &new, [], PrunedFlag::Keep, |entry| seen.push(*entry), check_files)
        .unwrap();
    assert_eq!(seen, index.entries);
    assert_eq!(read_block_index(&RealDisk, &new).unwrap(), index);
    assert_eq!(rows(&new), rows(&old));
}

#[test]
fn changes_of_entries_and_files_arrive_and_nothing_else_changes() {
    let (_root, [old, new]) = paths();
    let mut index = index(500, 5);
    write_block_index(&RealDisk, &old, &index).unwrap();
    let change = |entry: &mut IndexEntry| {
        if entry.height.0.is_multiple_of(3) {
            entry.status.0 |= BlockStatus::HAVE_UNDO;
            entry.undo_pos = Some(ByteOffset(u64::from(entry.height.0) + 8));
        }
    };
    let change_files = |files: &mut Vec<FileInfo>| {
        files[3].undo_size = 77;
        files.extend([FileInfo::default(), FileInfo { undo_size: 5, ..FileInfo::default() }]);
    };
    rewrite_block_index(&RealDisk, &old, &new, [], PrunedFlag::Keep, change, change_files).unwrap();
    index.entries.iter_mut().for_each(change);
    change_files(&mut index.files);
    assert_eq!(read_block_index(&RealDisk, &new).unwrap(), index);
    let (old, mut new) = (rows(&old), rows(&new));
    new.retain(|key, value| old.get(key) != Some(value));
    assert_eq!(new.keys().filter(|key| key.starts_with(b"b")).count(), 500usize.div_ceil(3));
    let others: Vec<_> = new.keys().filter(|key| !key.starts_with(b"b")).map(Vec::as_slice).collect();
    assert_eq!(others, [b"f\x03\0\0\0", b"f\x06\0\0\0"], "a file of zeros needs no row");
}

/// An index as older versions of Core leave it: with a transaction index and another version number in
/// entries; obfuscated, which no version does.
#[test]
fn other_rows_and_bytes_of_other_versions_are_copied_without_obfuscation() {
    let (root, [plain, copy]) = paths();
    write_block_index(&RealDisk, &plain, &index(50, 3)).unwrap();
    let mut expected = rows(&plain);
    for (key, value) in [
        (&b"T"[..], &b"best block of an index"[..]),
        (b"R", b"1"),
        (b"f", b"a short key"),
        (b"f\x01\0", b"between two files"),
        (b"f\x01\0\0\0\0", b"a long key"),
        (b"l\0", b"after the last file"),
        (&[b"t", &[7; 32][..]].concat(), b"position of a transaction"),
    ] {
        expected.insert(key.to_vec(), value.to_vec());
    }
    // 220000 instead of 259900, both 3 bytes as VARINT.
    expected.iter_mut().filter(|(key, _)| key.starts_with(b"b")).for_each(|(_, value)| value[1] ^= 1);
    let key = Obfuscation::from_key([1, 2, 3, 4, 5, 6, 7, 8]);
    let mut obfuscated = expected.clone();
    obfuscated.values_mut().for_each(|value| key.apply(value, 0));
    obfuscated.insert(OBFUSCATION_ROW.to_vec(), crate::xor::obfuscation_row_value(key).to_vec());
    let old = root.path().join("obfuscated");
    write_rows(&old, &obfuscated);
    rewrite_block_index(&RealDisk, &old, &copy, [], PrunedFlag::Keep, |_| (), |_| ()).unwrap();
    assert_eq!(rows(&copy), expected);
    assert!(read_block_index(&RealDisk, &copy).unwrap().reindexing);
}

#[test]
fn a_changed_header_and_a_removed_file_are_refused() {
    let (root, [old, new]) = paths();
    write_block_index(&RealDisk, &old, &index(9, 2)).unwrap();
    let set_hash = |entry: &mut IndexEntry| entry.hash = BlockHash([1; 32]);
    let error =
        rewrite_block_index(&RealDisk, &old, &new, [], PrunedFlag::Keep, set_hash, |_| ()).unwrap_err();
    assert!(matches!(error, DiskError::CallerError { .. }), "{error}");
    let new = root.path().join("another");
    let error = rewrite_block_index(&RealDisk, &old, &new, [], PrunedFlag::Keep, |_| (), Vec::clear)
        .unwrap_err()
        .to_string();
    assert!(error.contains("0 of 2 files are left"), "{error}");
    assert!(!new.join("CURRENT").exists());
}

#[test]
fn rows_that_the_reader_refuses_are_refused() {
    let mut sound = Vec::new();
    entry(1).encode(&mut sound);
    for (key, value, want) in [
        (&b"b\x01"[..], &b""[..], "a key of 2 bytes instead of 33"),
        (&[b"b", &[9; 32][..]].concat(), b"", "version"),
        (&[b"b", &[9; 32][..]].concat(), &sound, "the header hashes to"),
        (b"f\xff\xff\xff\xff", &[0; 7], "block files"),
        (b"l", b"1", "not a file number"),
    ] {
        let (_root, [old, new]) = paths();
        write_rows(&old, &Rows::from([(key.to_vec(), value.to_vec())]));
        let read = read_block_index(&RealDisk, &old).unwrap_err().to_string();
        let error = rewrite_block_index(&RealDisk, &old, &new, [], PrunedFlag::Keep, |_| (), |_| ())
            .unwrap_err()
            .to_string();
        assert!(error == read && error.contains(want), "{error}");
        assert!(error.ends_with("; the block index is damaged"), "{error}");
    }
}

/// Entries of blocks that the index has are changed, others are added, and an appended file is the last one.
#[test]
fn added_entries_and_files_are_in_the_copy() {
    let (_root, [old, new]) = paths();
    let before = index(50, 2);
    write_block_index(&RealDisk, &old, &before).unwrap();
    let mut added: Vec<_> = (40..90).map(entry).collect();
    added.sort_by_key(|entry| entry.hash);
    let count = |entry: &mut IndexEntry| entry.tx_count = 9;
    let grow = |files: &mut Vec<FileInfo>| files.push(FileInfo { blocks: 5, ..FileInfo::default() });
    rewrite_block_index(&RealDisk, &old, &new, added, PrunedFlag::Keep, count, grow).unwrap();
    let after = read_block_index(&RealDisk, &new).unwrap();
    let mut expected: Vec<_> = (0..90).map(entry).collect();
    expected.iter_mut().take(50).for_each(count);
    expected.sort_by_key(|entry| entry.hash);
    assert_eq!(after.entries, expected);
    assert_eq!((after.files.len(), after.last_file), (3, FileNo(2)));
    assert_eq!((after.files[2].blocks, &after.files[..2]), (5, &before.files[..]));
}
