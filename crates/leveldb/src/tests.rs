//! Tests with an independent LevelDB (`rusty-leveldb`, always on a copy), real databases of Bitcoin Core, and
//! damaged files. Damage with correct checksums is tried by the fuzz targets (`testkit::fuzz`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use hex_conservative::DisplayHex as _;
use proptest::prelude::*;
use rusty_leveldb::{DB, LdbIterator as _, Options};

use super::*;
use vfs::{Disk as _, RealDisk};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads all rows with this crate's reader.
fn dump(dir: &Path) -> Result<Rows, LevelDbError> {
    let database = Database::open(&RealDisk, dir)?;
    collect(database.range(&[], None)?)
}

pub(crate) fn collect(mut cursor: Cursor<'_>) -> Result<Rows, LevelDbError> {
    let mut rows = Vec::new();
    while cursor.advance()? {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    Ok(rows)
}

/// Core's options of LevelDB, but with small sizes, so that few rows fill several levels.
pub(crate) fn options() -> Options {
    Options {
        compressor: 0,
        paranoid_checks: true,
        write_buffer_size: 16 << 10,
        max_file_size: 16 << 10,
        ..Options::default()
    }
}

/// Reads all rows with `rusty-leveldb` from a copy of `dir`.
fn dump_by_other(dir: &Path) -> Rows {
    let copy = tempfile::tempdir().unwrap();
    for (name, bytes) in files(dir) {
        fs::write(copy.path().join(name), bytes).unwrap();
    }
    let mut db = DB::open(copy.path(), Options { create_if_missing: false, ..options() }).unwrap();
    let mut rows = db.new_iter().unwrap();
    std::iter::from_fn(|| rows.next()).collect()
}

/// Makes a database of 2,000 rows with `rusty-leveldb`: more than one log.
fn made_by_other(options: Options) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut db = DB::open(dir.path(), options).unwrap();
    for n in 0..2000u32 {
        db.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    db.close().unwrap();
    dir
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

/// Returns a pseudorandom number for each `n` (SplitMix64).
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns rows like a chainstate's in ascending order, with keys that are prefixes of others, and large
/// values.
fn sample_rows(count: u64) -> Rows {
    let mut rows = BTreeMap::new();
    for n in 0..count {
        let txid: Vec<u8> = (0..4).flat_map(|i| mix(4 * (n / 3) + i).to_le_bytes()).collect();
        let key = [&b"C"[..], &txid, &[n as u8 % 3]].concat();
        let len = if n % 500 == 7 { 5000 + n as usize } else { mix(n) as usize % 60 };
        rows.insert(key, vec![n as u8; len]);
    }
    for key in [&b"B"[..], b"C", b"\x0e\x00obfuscate_key", &[0xff; 9], &[0xff; 8], b"C\x00", b""] {
        rows.insert(key.to_vec(), key.to_vec());
    }
    rows.into_iter().collect()
}

/// Writes `rows` as a database whose tables have about `table_size` bytes, and numbers in reverse key order.
fn write(dir: &Path, rows: &Rows, table_size: u64) {
    let mut database = Database::new(&RealDisk, dir);
    let update = database.update().unwrap();
    let (mut tables, mut open, mut bytes) = (Vec::new(), None, 0);
    for (key, value) in rows {
        let number = 1000 - tables.len() as u64;
        let table: &mut RangeUpdate<'_> = open.get_or_insert_with(|| update.numbered_range(number, 1));
        table.set(key, Some(value)).unwrap();
        bytes += key.len() as u64 + value.len() as u64;
        if bytes >= table_size {
            tables.extend(open.take().map(|table| table.finish().unwrap()));
            bytes = 0;
        }
    }
    tables.extend(open.map(|table| table.finish().unwrap()));
    update.commit(tables).unwrap();
}

#[test]
fn written_databases_can_be_read_by_this_reader_and_by_another_leveldb() {
    for (count, table_size) in [(0, 1 << 20), (1, 1), (3000, 20_000), (3000, 1 << 30)] {
        let rows = sample_rows(count);
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &rows, table_size);
        assert!(dump(dir.path()).unwrap() == rows);
        assert!(dump_by_other(dir.path()) == rows);
        // The other library's point reads use the filters and restarts written here. A row is put first: at
        // the sequence number of the written rows, that library (not LevelDB) misses a row whose internal key
        // is its block's key in the index.
        let mut db = DB::open(dir.path(), options()).unwrap();
        db.put(b"new", b"row").unwrap();
        for (key, value) in &rows {
            assert_eq!(db.get(key).as_deref(), Some(&value[..]));
        }
        assert_eq!(db.get(b"new").as_deref(), Some(&b"row"[..]));
    }
}

#[test]
fn databases_of_another_leveldb_can_be_read_and_are_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = BTreeMap::new();
    // The database is reopened, so that logs become tables; rows are overwritten and deleted in all levels.
    for session in 0..6 {
        let mut db = DB::open(dir.path(), options()).unwrap();
        for n in 0..4000 {
            let id = mix(session * 10_000 + n);
            let key = format!("key{:05}", id % 6000).into_bytes();
            if id >> 32 & 3 == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = id.to_le_bytes().repeat(1 + id as usize % 5);
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        db.flush().unwrap();
        drop(db);
        let before = files(dir.path());
        let rows: Rows = model.clone().into_iter().collect();
        assert!(dump(dir.path()).unwrap() == rows, "session {session}");
        assert_eq!(files(dir.path()), before, "reading changes no file");
    }
    let database = Database::open(&RealDisk, dir.path()).unwrap();
    assert!(database.memory.len() > 0, "some rows are in the log only");
    let levels = database.table_count_by_level().iter().filter(|&&count| count > 0).count();
    assert!(levels >= 2, "several levels");
    for n in 0..6100 {
        let key = format!("key{n:05}").into_bytes();
        assert_eq!(database.get(&key).unwrap(), model.get(&key).cloned());
    }
    for (start, end) in
        [("", "key03"), ("key00999x", "key01"), ("key02", "key02"), ("key05", "l"), ("l", "m")]
    {
        let (start, end) = (start.as_bytes().to_vec(), end.as_bytes().to_vec());
        let found = collect(database.range(&start, Some(&end)).unwrap()).unwrap();
        let want: Rows = model.range(start..end).map(|(key, value)| (key.clone(), value.clone())).collect();
        assert!(found == want);
    }
}

#[test]
fn threads_can_read_adjacent_ranges_that_add_up_to_all_rows() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), sample_rows(5000));
    write(dir.path(), &rows, 30_000);
    let database = Database::open(&RealDisk, dir.path()).unwrap();
    let bounds: Vec<Vec<u8>> = (0..=16).map(|n| if n == 0 { vec![] } else { vec![b'C', n * 15] }).collect();
    let found: Rows = std::thread::scope(|scope| {
        let part = |i: usize| {
            let (start, end) = (&bounds[i], bounds.get(i + 1).map(Vec::as_slice));
            collect(database.range(start, end).unwrap()).unwrap()
        };
        let threads: Vec<_> = (0..bounds.len()).map(|i| scope.spawn(move || part(i))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(found == rows);
    assert!(database.get(b"absent").unwrap().is_none());
    let tables = files(dir.path()).into_iter().filter(|(name, _)| name.ends_with("ldb"));
    let bytes: u64 = tables.map(|(_, bytes)| bytes.len() as u64).sum();
    assert_eq!(database.table_bytes(), bytes);
}

#[test]
fn rows_and_tables_out_of_order_are_refused() {
    for (first, second) in [("b", "a"), ("b", "b"), ("ab", "a"), ("b", "")] {
        let dir = tempfile::tempdir().unwrap();
        let error = write_database(&RealDisk, dir.path(), [(first, ""), (second, "")]).unwrap_err();
        assert!(matches!(error, LevelDbError::Order { .. }), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut database = Database::new(&RealDisk, dir.path());
    let update = database.update().unwrap();
    let ranges = [(2, [b"c", b"d"]), (1, [b"a", b"c"])].map(|(number, keys)| {
        let mut range = update.numbered_range(number, 1);
        keys.iter().for_each(|key| range.set(*key, Some(b"")).unwrap());
        range.finish().unwrap()
    });
    let error = update.commit(ranges).unwrap_err();
    let path = dir.path().join("MANIFEST-000003");
    let want = format!("{}: key 63 does not come after 63; this is a bug, please report it", path.display());
    assert_eq!(error.to_string(), want);
    assert_eq!(RealDisk.list(dir.path()).unwrap(), ["000001.ldb", "000002.ldb"], "there is no database");
}

#[test]
fn names_what_is_missing_malformed_or_unsupported() {
    let dir = tempfile::tempdir().unwrap();
    let text = |dir: &Path| dump(dir).unwrap_err().to_string();
    assert!(text(dir.path()).contains("CURRENT: cannot read: No such file"), "{}", text(dir.path()));
    write(dir.path(), &sample_rows(10), 1 << 20);
    fs::remove_file(dir.path().join("001000.ldb")).unwrap();
    let flaw = "001000.ldb at byte 0: the MANIFEST lists this table, but it is missing";
    assert!(text(dir.path()).contains(flaw));
    let flaw = "CURRENT at byte 0: it does not contain the name of a MANIFEST";
    for current in ["", "MANIFEST-000001", "MANIFEST-\n", "../MANIFEST-000001\n", "MANIFEST-1/2\n"] {
        fs::write(dir.path().join("CURRENT"), current).unwrap();
        assert!(text(dir.path()).contains(flaw), "{current:?}");
    }

    let dir = made_by_other(Options { compressor: 1, ..options() });
    let error = dump(dir.path()).unwrap_err();
    assert!(matches!(error, LevelDbError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("compressed (type 1; 1 is snappy)"), "{error}");
}

/// A copy that was made while a program used the database can have files of different times. LevelDB opens
/// some of these without rows in between.
#[test]
fn files_of_different_times_have_all_rows_up_to_one_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut states = Vec::new();
    for opened in 0..4 {
        let mut db = DB::open(dir.path(), options()).unwrap();
        for n in opened * 400..(opened + 1) * 400u32 {
            db.put(&n.to_be_bytes(), &[7; 100]).unwrap();
            if n % 50 == 49 {
                db.flush().unwrap();
                states.push(files(dir.path()));
            }
        }
        db.close().unwrap();
        states.push(files(dir.path()));
    }
    let is_list = |name: &str| name == "CURRENT" || name.starts_with("MANIFEST");
    let is_log = |name: &str| name.ends_with(".log");
    let (mut read, mut refused) = (0, 0);
    for (a, b) in states.iter().flat_map(|a| states.iter().map(move |b| (a, b))) {
        for is_of_a in [&is_list as &dyn Fn(&str) -> bool, &is_log, &|name| !is_log(name)] {
            let mixed = tempfile::tempdir().unwrap();
            let of_a = a.iter().filter(|(name, _)| is_of_a(name));
            for (name, bytes) in of_a.chain(b.iter().filter(|(name, _)| !is_of_a(name))) {
                fs::write(mixed.path().join(name), bytes).unwrap();
            }
            match dump(mixed.path()) {
                Ok(rows) => {
                    read += 1;
                    assert!(rows.iter().zip(0u32..).all(|((key, _), n)| *key == n.to_be_bytes()));
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("missing"), "{error}");
                }
            }
        }
    }
    assert!(read > states.len() && refused > states.len(), "{read}, {refused}");
}

/// As LevelDB does: it opens all logs that the MANIFEST does not call obsolete, oldest first.
#[test]
fn a_directory_in_place_of_a_log_is_damage_if_leveldb_reads_that_log() {
    let dir = made_by_other(options());
    fs::create_dir(dir.path().join("000001.log")).unwrap();
    assert_eq!(dump(dir.path()).unwrap().len(), 2000, "the first log is obsolete");
    for name in ["000900.log", "000800.log"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        let error = dump(dir.path()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("it is a directory"), "{error}");
    }
    assert!(DB::open(dir.path(), options()).is_err());
}

/// A deletion of an empty key has 2 bytes, and 24 more in memory: once, a log took 12 times its bytes.
#[test]
fn a_log_that_takes_much_memory_is_not_read() {
    let dir = made_by_other(options());
    let mut deletions = batch::Batch::new(1);
    (0..1 << 20).for_each(|_| deletions.add(b"", None));
    let mut file = Vec::new();
    log::append_record(&mut file, &deletions.finish());
    fs::write(dir.path().join("000900.log"), file).unwrap();
    let error = dump(dir.path()).unwrap_err();
    assert!(matches!(error, LevelDbError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("000900.log at byte 0: logs that take more"), "{error}");
}

/// Once, a table of 630 kB took 3 GB of memory: each key of its index had all bytes of the key before.
#[test]
fn an_index_whose_keys_are_longer_than_the_table_is_refused() {
    let mut bytes = Vec::new();
    for n in 0..100 {
        let mut handle = Vec::new();
        table::Handle { offset: 5 * n, size: 0 }.put(&mut handle);
        let (shared, unshared) = if n == 0 { (0, 1000) } else { (1000, 0) };
        for length in [shared, unshared, handle.len()] {
            coding::put_varint(&mut bytes, length as u64);
        }
        bytes.resize(bytes.len() + unshared, 0);
        bytes.extend(handle);
    }
    // The only restart, the number of restarts, and the compression byte.
    bytes.extend([0, 0, 0, 0, 1, 0, 0, 0, table::UNCOMPRESSED]);
    let index = table::Handle { offset: 0, size: bytes.len() as u64 - 1 };
    bytes.extend(coding::masked_crc(&bytes).to_le_bytes());
    bytes.extend(table::encode_footer(index, index));
    let size = bytes.len() as u64;
    let live = manifest::TableMeta { number: 1, size, smallest: Vec::new(), largest: Vec::new() };
    let error = table::Table::open(Box::new(bytes), PathBuf::new(), &live, false).err().unwrap();
    assert!(error.to_string().contains("the index is malformed"), "{error}");
}

/// The table of the rows ("a", "1"), ("ab", ""), ("b", "23"), as this code wrote it when the format was
/// completed. Each of these has a line: three rows, restarts, trailer; filter, trailer; meta index, trailer;
/// index, trailer; the footer has two.
const GOLDEN: &str = "\
    00090161010100000000000031\
    010900620101000000000000\
    0009026201010000000000003233\
    0000000001000000\
    00cdfcaba7\
    583160d0800107000600000000090000000b\
    0071372bb1\
    00220266696c7465722e6c6576656c64622e4275696c74696e426c6f6f6d46696c7465723234120000000001000000\
    00245cedfe\
    000902620101000000000000002f0000000001000000\
    005e4b6f84\
    4b2f7f16000000000000000000000000000000000000000000000000000000000000000000000000\
    57fb808b247547db";

#[test]
fn a_small_table_has_its_golden_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Rows = [("a", "1"), ("ab", ""), ("b", "23")].map(|(k, v)| (k.into(), v.into())).into();
    write(dir.path(), &rows, 1 << 20);
    assert_eq!(files(dir.path())["001000.ldb"].to_lower_hex_string(), GOLDEN);
    assert_eq!(files(dir.path())["CURRENT"], b"MANIFEST-001001\n");
    assert_eq!(dump_by_other(dir.path()), rows);
}

#[test]
fn every_damaged_byte_of_a_table_is_detected_or_without_effect() {
    let (dir, mut rows) = (tempfile::tempdir().unwrap(), sample_rows(70));
    rows.retain(|(_, value)| value.len() < 60); // two data blocks remain
    write(dir.path(), &rows, 1 << 20);
    let path = dir.path().join("001000.ldb");
    let good = fs::read(&path).unwrap();
    let (file, mut harmless) = (fs::File::options().write(true).open(&path).unwrap(), 0);
    for (at, &byte) in good.iter().enumerate() {
        file.write_all_at(&[byte ^ 1 << (at % 8)], at as u64).unwrap();
        match dump(dir.path()) {
            // In the filter, or in zeros of the footer.
            Ok(found) => {
                let database = Database::open(&RealDisk, dir.path()).unwrap();
                let is_found =
                    |(key, value): &(Vec<u8>, _)| database.get(key).unwrap().as_ref() == Some(value);
                assert!(found == rows && rows.iter().all(is_found), "byte {at}");
                harmless += 1;
            }
            Err(error) => assert!(matches!(error, LevelDbError::Damaged { .. }), "byte {at}: {error}"),
        }
        file.write_all_at(&[byte], at as u64).unwrap();
    }
    assert!((50..300).contains(&harmless), "{harmless} of {}", good.len());
    for len in (0..good.len()).step_by(97) {
        fs::write(&path, &good[..len]).unwrap();
        assert!(matches!(dump(dir.path()), Err(LevelDbError::Damaged { .. })), "cut at {len}");
    }
}

#[test]
fn every_damaged_byte_of_a_manifest_is_detected() {
    let (dir, rows) = (tempfile::tempdir().unwrap(), sample_rows(300));
    write(dir.path(), &rows, 4000);
    let path = dir.path().join(fs::read_to_string(dir.path().join("CURRENT")).unwrap().trim());
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, bad).unwrap();
        assert!(dump(dir.path()).is_err(), "byte {at}");
    }
}

/// Found by fuzzing: the first row of the range was hidden because it was too new, and the row after it, with
/// a smaller key, was not compared with the start of the range.
#[test]
fn detects_a_row_before_its_range_after_a_hidden_row() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("c", "1"), ("d", "2")].map(|(k, v)| (k.into(), v.into())).into(), 1 << 20);
    let path = dir.path().join("001000.ldb");
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!((bytes[3], bytes[16]), (b'c', b'd'), "an entry has 3 lengths, key, trailer 8 and value");
    // After the two entries, a restart, the number of restarts, and the compression byte.
    let sum_at = 2 * 13 + 4 + 4 + 1;
    let sum = |bytes: &[u8]| coding::masked_crc(&bytes[..sum_at]).to_le_bytes();
    assert_eq!(bytes[sum_at..sum_at + 4], sum(&bytes), "the checksum of the only data block");
    bytes[11] = 1; // the sequence number of "c"
    bytes[16] = b'a';
    let corrected = sum(&bytes);
    bytes[sum_at..sum_at + 4].copy_from_slice(&corrected);
    fs::write(&path, bytes).unwrap();
    let database = Database::open(&RealDisk, dir.path()).unwrap();
    let error = collect(database.range(b"b", None).unwrap()).unwrap_err();
    assert!(matches!(error, LevelDbError::Damaged { .. }), "{error}");
    assert_eq!(collect(database.range(b"", None).unwrap()).unwrap(), [(b"a".to_vec(), b"2".to_vec())]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any set of rows round-trips, whatever the table size.
    #[test]
    fn any_rows_round_trip(rows: BTreeMap<Vec<u8>, Vec<u8>>, table_size in 200u64..5000) {
        let (dir, rows) = (tempfile::tempdir().unwrap(), rows.into_iter().collect());
        write(dir.path(), &rows, table_size);
        prop_assert!(dump(dir.path()).unwrap() == rows);
    }
}

#[test]
fn databases_of_bitcoin_core_can_be_read_and_rewritten() {
    let Some(data) = testdata::shared_data("core-datadirs") else { return };
    for archive in ["main", "testnet3", "signet", "regtest"] {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::open(data.join(format!("{archive}.tar.xz"))).unwrap();
        tar::Archive::new(liblzma::read::XzDecoder::new(file)).unpack(dir.path()).unwrap();
        for name in ["chainstate", "blocks/index"] {
            let database = find(dir.path(), name).unwrap_or_else(|| panic!("{archive}: no {name}"));
            let before = files(&database);
            let rows = dump(&database).unwrap();
            assert_eq!(files(&database), before, "{archive} {name}: reading changes no file");
            assert!(!rows.is_empty() && rows == dump_by_other(&database), "{archive} {name}");
            println!("{archive} {name}: {} rows", rows.len());

            let opened = Database::open(&RealDisk, &database).unwrap();
            for (key, value) in rows.iter().step_by(37) {
                assert_eq!(opened.get(key).unwrap().as_deref(), Some(&value[..]));
            }
            // This crate's writer writes the same rows.
            let copy = tempfile::tempdir().unwrap();
            write(copy.path(), &rows, 200_000);
            assert!(dump(copy.path()).unwrap() == rows && dump_by_other(copy.path()) == rows);
        }
    }
}

/// Finds the directory below `root` whose path ends in `name` and that has a `CURRENT`.
fn find(root: &Path, name: &str) -> Option<PathBuf> {
    let here = root.join(name);
    if here.join("CURRENT").is_file() {
        return Some(here);
    }
    let mut folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    folders.find_map(|folder| folder.is_dir().then(|| find(&folder, name))?)
}
