//! Fuzz targets for `disk`: undo data, rows of the block index, LevelDB files, block files.

use super::{
    memory::MemoryDisk,
    reseal,
    samples::{Parts, chainstate_tables},
    wire::check_coin,
};
use crate::prelude::*;
use digest::obfuscation::Obfuscation;
use disk::{
    blk::{BlockScanner, RECORD_HEADER_LEN, block_len, parse_record_header},
    index::FileInfo,
    scan::scan_files,
    undo::write_undo,
};
use leveldb::Database;
use wire::{ByteOffset, Reader};

/// Undo data that is read and written again is the same, except for versions, which Core writes as 0.
pub fn undo(bytes: &[u8]) -> bool {
    let mut arena = UndoArena::default();
    let Ok(view) = UndoView::parse(bytes, &mut arena) else { return false };
    view.coins().for_each(|coin| check_coin(&coin));
    let by_tx: Vec<_> = view.txs().collect();
    assert_eq!(by_tx.len(), view.tx_count());
    assert!(by_tx.iter().cloned().flatten().eq(view.coins()));
    assert!(view.tx_coins(view.tx_count()).is_none());
    let again = write_undo(by_tx.into_iter());
    let mut arena = UndoArena::default();
    let read = UndoView::parse(&again, &mut arena).expect("what was written can be read");
    assert!(read.coins().eq(view.coins()));
    assert!(again.len() <= bytes.len());
    true
}

/// Entries and file infos that are read and written again are the same, except for an entry's version.
pub fn index_rows(bytes: &[u8]) -> bool {
    let mut again = Vec::new();
    let (entry, info) = (IndexEntry::decode(bytes), FileInfo::decode(bytes));
    if let Ok(entry) = &entry {
        assert_eq!(entry.hash, entry.header.hash());
        entry.encode(&mut again);
        assert_eq!(IndexEntry::decode(&again).as_ref(), Ok(entry));
        let behind_version = |row: &[u8]| {
            let mut reader = Reader::new(row);
            reader.var_int().expect("it has been decoded a moment ago");
            row[reader.position()..].to_vec()
        };
        assert_eq!(behind_version(&again), behind_version(bytes));
    }
    if let Ok(info) = &info {
        again.clear();
        info.encode(&mut again);
        assert_eq!(again, bytes);
    }
    entry.is_ok() || info.is_ok()
}

const DIR: &str = "database";

/// A log is read as it is, and with correct checksums.
pub fn leveldb_log(bytes: &[u8]) -> bool {
    let manifest =
        reseal::log_record(&[&b"\x01\x1aleveldb.BytewiseComparator"[..], &[2, 3, 3, 4, 4, 0]].concat());
    both(bytes, reseal::log, |log| walk(database(manifest.clone()).with(in_dir("000003.log"), log)))
}

/// A MANIFEST is read, beside the tables of a real database.
pub fn leveldb_manifest(bytes: &[u8]) -> bool {
    both(bytes, reseal::log, |manifest| {
        let with = |disk: MemoryDisk, (name, bytes): &(String, Vec<u8>)| disk.with(in_dir(name), &bytes[..]);
        walk(chainstate_tables().fold(database(manifest), with))
    })
}

/// A table is read, whose MANIFEST claims that it covers all keys.
pub fn leveldb_table(bytes: &[u8]) -> bool {
    let mut edit = b"\x01\x1aleveldb.BytewiseComparator\x02\x00\x03\x06\x04\xff\x01\x07\x02\x05".to_vec();
    let mut size = bytes.len();
    while size >= 0x80 {
        edit.push(size as u8 | 0x80);
        size >>= 7;
    }
    edit.push(size as u8);
    edit.extend([8].into_iter().chain([0xff; 8]).chain([48]).chain([0xff; 40]).chain([0; 8]));
    let manifest = reseal::log_record(&edit);
    both(bytes, reseal::table, |table| walk(database(manifest.clone()).with(in_dir("000005.ldb"), table)))
}

fn in_dir(name: &str) -> String {
    format!("{DIR}/{name}")
}

fn database(manifest: Vec<u8>) -> MemoryDisk {
    MemoryDisk::default()
        .with(in_dir("CURRENT"), *b"MANIFEST-000002\n")
        .with(in_dir("MANIFEST-000002"), manifest)
}

/// Calls `read` on the bytes as they are, and with correct checksums. Returns the last result.
pub(super) fn both(bytes: &[u8], reseal: impl FnOnce(&mut [u8]), read: impl Fn(Vec<u8>) -> bool) -> bool {
    let fine = read(bytes.to_vec());
    let mut sealed = bytes.to_vec();
    reseal(&mut sealed);
    if sealed == bytes { fine } else { read(sealed) }
}

/// Rows are in ascending order, whatever the files contain; looking them up does not panic.
fn walk(disk: MemoryDisk) -> bool {
    let Ok(database) = Database::open(&disk, Path::new(DIR)) else { return false };
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    if let Ok(mut rows) = database.range(&[], None) {
        while let Ok(true) = rows.advance() {
            assert!(last.as_deref().is_none_or(|last| last < rows.key()), "rows are out of order");
            last = Some(rows.key().to_vec());
            if keys.len() < 32 {
                keys.extend(last.clone());
            }
        }
    }
    for key in keys.iter().map(Vec::as_slice).chain([&b""[..], b"B", b"\xff"]) {
        let _ = database.get(key);
        if let Ok(mut rows) = database.range(key, None)
            && let Ok(true) = rows.advance()
        {
            assert!(rows.key() >= key);
        }
    }
    last.is_some()
}

/// A scan finds the same blocks as a plain loop over all bytes, and gives undo data to no wrong block.
pub fn scan(bytes: &[u8]) -> bool {
    let Some(Parts { head: key, first: blk, second: rev }) = Parts::split(bytes) else { return false };
    let obfuscation = Obfuscation::from_key(key);
    let datadir = Datadir::at(Path::new(""), Network::Regtest);
    let file = FileNo(0);
    let disk = MemoryDisk::default().with(datadir.blk_path(file), blk).with(datadir.rev_path(file), rev);
    let [mut blk, mut rev] = [blk.to_vec(), rev.to_vec()];
    obfuscation.apply(&mut blk, 0);
    obfuscation.apply(&mut rev, 0);

    let path = datadir.blk_path(file);
    let open = disk.open(&path).expect("the file is there");
    let mut scanner = BlockScanner::new(open.as_ref(), &path, Network::Regtest.magic(), obfuscation)
        .expect("memory can be read");
    let mut found = Vec::new();
    while let Some(record) = scanner.next_record().expect("memory can be read") {
        found.push((record.data_pos, record.size));
    }
    assert_eq!(found, naive_scan(&blk));

    let scan = scan_files(&disk, &datadir, obfuscation, |_| true, &[]).expect("memory can be read");
    assert_eq!(scan.blocks.iter().map(|block| (block.data_pos, block.size)).collect::<Vec<_>>(), found);
    for block in &scan.blocks {
        let Some(ByteOffset(at)) = block.undo_pos else { continue };
        let header = rev[at as usize - RECORD_HEADER_LEN..].first_chunk().expect("a record has a header");
        let size = parse_record_header(*header, Network::Regtest.magic()).expect("a record has the magic");
        let (data, rest) = rev[at as usize..].split_at(size as usize);
        assert_eq!(rest[..32], disk::undo::checksum(&block.header.prev, data));
    }
    !found.is_empty()
}

/// Scans as [`disk::blk`] describes it, with all bytes at hand and no limit of time.
fn naive_scan(file: &[u8]) -> Vec<(ByteOffset, u32)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&frame) = file.get(at..).and_then(<[u8]>::first_chunk) {
        let start = at + RECORD_HEADER_LEN;
        at += 1;
        let Some(size) = parse_record_header(frame, Network::Regtest.magic()) else { continue };
        let mut reader = Reader::new(&file[start..]);
        let (Ok(header), Ok(_)) = (Header::read(&mut reader), reader.compact_size()) else { continue };
        let fits = (Header::LEN + 1..=wire::MAX_BLOCK_LEN).contains(&(size as usize));
        let block = file.get(start..start + size as usize).filter(|_| fits);
        let is_followed = block.is_some_and(|block| file[start + block.len()..].starts_with(&frame[..4]));
        let has_work = header.meets_own_target(&header.hash());
        if has_work && is_followed {
            at = start + size as usize;
            found.push((ByteOffset(start as u64), size));
            continue;
        }
        let parsed = block.and_then(|block| block_len(block, &header));
        let longest = &file[start..file.len().min(start + wire::MAX_BLOCK_LEN)];
        let parsed_beyond = if has_work { block_len(longest, &header) } else { None };
        let sound = [parsed, parsed_beyond].into_iter().flatten().find(|(_, is_sound)| *is_sound);
        if let Some((len, _)) = sound {
            at = start + len as usize;
            found.push((ByteOffset(start as u64), len));
        } else if block.is_some() && (has_work || is_followed || parsed.is_some_and(|(len, _)| len == size)) {
            found.push((ByteOffset(start as u64), size));
        }
    }
    found
}
