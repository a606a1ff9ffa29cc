//! What is written is read back with the libraries of the formats; and a disk that fails leaves nothing.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int8Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array as _, ArrayAccessor as _, StringArray};
use arrow_ipc::reader::FileReader;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor;
use peregrine_export::{CoinRow, CoinTable, Columns, FileFormat, Format, Metadata, RowFile, Writer, Written};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use testkit::fault::{Crash, Crashes, FaultDisk, InjectedFault, Operations, explore};
use testkit::rng::Rng;
use vfs::{Disk, RealDisk, UnfinishedError};
use wire::Txid;

/// A row with its own memory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Coin {
    txid: Txid,
    vout: u32,
    height: u32,
    is_coinbase: bool,
    value: i64,
    script_type: &'static str,
    script: Vec<u8>,
    address: Option<String>,
    block_time: Option<u32>,
}

const TYPES: [&str; 3] = ["p2pkh", "p2tr", "other"];

/// Coins in order, with the extreme values of each column.
fn coins(count: usize) -> Vec<Coin> {
    let mut rng = Rng::new(5, "coins");
    let mut coins: Vec<Coin> = (0..count)
        .map(|number| Coin {
            txid: Txid(std::array::from_fn(|at| if at == 0 { (number * 256 / count) as u8 } else { 7 })),
            vout: number as u32,
            height: rng.below(1 << 31) as u32,
            is_coinbase: rng.chance(1, 2),
            value: rng.below(21_000_000 * 100_000_000) as i64,
            script_type: TYPES[rng.below(3) as usize],
            script: vec![number as u8; rng.below(60) as usize],
            address: rng.chance(1, 2).then(|| format!("address{number}")),
            block_time: rng.chance(1, 2).then(|| rng.below(1 << 32) as u32),
        })
        .collect();
    coins[0] = Coin { vout: 0, height: 0, value: 0, script: Vec::new(), ..coins[0].clone() };
    let last = coins.last_mut().unwrap();
    (last.vout, last.height, last.value) = (u32::MAX >> 1, u32::MAX >> 1, i64::MAX);
    last.script = vec![0x51; 10_000];
    coins
}

fn metadata() -> Metadata {
    vec![
        ("network", "regtest".to_owned()),
        ("block_hash", "aa".repeat(32)),
        ("hash_serialized_3", "bb".repeat(32)),
        ("muhash", "cc".repeat(32)),
        ("total_value", "9".to_owned()),
        ("program", "peregrine 1".to_owned()),
        ("height", "7".to_owned()),
    ]
}

fn write(
    disk: &dyn Disk,
    path: &Path,
    format: Format,
    addresses: bool,
    coins: &[Coin],
) -> Result<Written, UnfinishedError> {
    fill(Writer::create(disk, path, format, &Columns::all::<CoinTable>(addresses))?, coins)
}

fn fill(mut writer: Writer<'_>, coins: &[Coin]) -> Result<Written, UnfinishedError> {
    for coin in coins {
        writer.add(CoinRow {
            txid: coin.txid.0,
            vout: coin.vout,
            height: coin.height,
            coinbase: coin.is_coinbase,
            value: coin.value,
            script_type: coin.script_type,
            script: &coin.script,
            address: coin.address.as_deref(),
            block_time: coin.block_time,
            mediantime: coin.block_time.map(|time| time / 2),
        })?;
    }
    writer.finish(&metadata())
}

/// Names and values of a file's metadata, and its rows.
fn read_parquet(path: &Path) -> (BTreeMap<String, String>, Vec<Coin>) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let about = reader.metadata().file_metadata();
    let has_addresses = about.schema_descr().num_columns() == 10;
    let times_at = if has_addresses { 8 } else { 7 };
    let pairs = about.key_value_metadata().unwrap().iter();
    let pairs = pairs.map(|pair| (pair.key.clone(), pair.value.clone().unwrap())).collect();
    let rows = reader.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        let script_type = row.get_string(5).unwrap();
        Coin {
            txid: Txid(row.get_bytes(0).unwrap().data().try_into().unwrap()),
            vout: row.get_int(1).unwrap() as u32,
            height: row.get_int(2).unwrap() as u32,
            is_coinbase: row.get_bool(3).unwrap(),
            value: row.get_long(4).unwrap(),
            script_type: TYPES.into_iter().find(|name| name == script_type).unwrap(),
            script: row.get_bytes(6).unwrap().data().to_vec(),
            address: has_addresses.then(|| row.get_string(7).ok().cloned()).flatten(),
            block_time: block_time(
                row.get_timestamp_millis(times_at),
                row.get_timestamp_millis(times_at + 1),
            ),
        }
    });
    (pairs, rows.collect())
}

/// The time of a row that was read; there is a median time too, or neither.
fn block_time<E>(time: Result<i64, E>, median: Result<i64, E>) -> Option<u32> {
    let [time, median] = [time, median].map(|time| Some((time.ok()? / 1_000) as u32));
    assert_eq!(median, time.map(|time| time / 2));
    time
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn parquet_has_all_rows_and_says_what_they_are() {
    let dir = TempDir::new().unwrap();
    // More than a row group.
    let coins = coins(140_000);
    for addresses in [false, true] {
        let out = dir.path().join(format!("utxo-{addresses}"));
        let written = write(&RealDisk, &out, Format::Parquet, addresses, &coins).unwrap();
        assert_eq!(names(&out), ["part-0000.parquet"]);
        let file = out.join("part-0000.parquet");
        let bytes = fs::metadata(&file).unwrap().len();
        assert_eq!(written, Written { files: 1, rows: coins.len() as u64, bytes });
        let (pairs, rows) = read_parquet(&file);
        let address = |coin: &Coin| coin.address.clone().filter(|_| addresses);
        let expected = coins.iter().map(|coin| Coin { address: address(coin), ..coin.clone() });
        assert!(rows.into_iter().eq(expected));
        assert_eq!(pairs.iter().filter(|(key, _)| *key != "ARROW:schema").count(), 10);
        let expected = [
            ("network", "regtest"),
            ("height", "7"),
            ("block_hash", &"aa".repeat(32)),
            ("hash_serialized_3", &"bb".repeat(32)),
            ("muhash", &"cc".repeat(32)),
            ("coins", "140000"),
            ("total_value", "9"),
            ("part", "0"),
            ("parts", "1"),
            ("program", "peregrine 1"),
        ];
        expected.iter().for_each(|(key, value)| assert_eq!(pairs.get(*key).unwrap(), value));
    }
}

#[test]
fn arrow_has_all_rows_and_says_what_they_are() {
    let dir = TempDir::new().unwrap();
    // More than one record batch, which share their dictionary.
    let (coins, out) = (coins(140_000), dir.path().join("utxo.arrow"));
    write(&RealDisk, &out, Format::Arrow, true, &coins).unwrap();
    let reader = FileReader::try_new(File::open(&out).unwrap(), None).unwrap();
    assert_eq!(reader.num_batches(), 2);
    assert_eq!(reader.custom_metadata().get("hash_serialized_3"), Some(&"bb".repeat(32)));
    let mut expected = coins.iter();
    for batch in reader {
        let batch = batch.unwrap();
        let column = |name| batch.column_by_name(name).unwrap();
        let (types, addresses) =
            (column("script_type").as_dictionary::<Int8Type>(), column("address").as_string::<i32>());
        let time = |name, row| {
            let times = column(name).as_primitive::<TimestampMillisecondType>();
            times.is_valid(row).then(|| times.value(row)).ok_or(())
        };
        let types = types.downcast_dict::<StringArray>().unwrap();
        for row in 0..batch.num_rows() {
            let found = Coin {
                txid: Txid(column("txid").as_fixed_size_binary().value(row).try_into().unwrap()),
                vout: column("vout").as_primitive::<Int32Type>().value(row) as u32,
                height: column("height").as_primitive::<Int32Type>().value(row) as u32,
                is_coinbase: column("coinbase").as_boolean().value(row),
                value: column("value").as_primitive::<Int64Type>().value(row),
                script_type: TYPES.into_iter().find(|name| *name == types.value(row)).unwrap(),
                script: column("script").as_binary::<i32>().value(row).to_vec(),
                address: (!addresses.is_null(row)).then(|| addresses.value(row).to_owned()),
                block_time: block_time(time("block_time", row), time("mediantime", row)),
            };
            assert_eq!(Some(&found), expected.next());
        }
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn csv_has_a_header_and_a_line_for_each_coin() {
    let dir = TempDir::new().unwrap();
    let coins = coins(50_000).into_iter().map(|coin| Coin { block_time: None, ..coin });
    let coins = &coins.collect::<Vec<_>>()[..];
    for addresses in [false, true] {
        let out = dir.path().join(format!("{addresses}.csv"));
        let written = write(&RealDisk, &out, Format::Csv, addresses, coins).unwrap();
        let text = fs::read_to_string(&out).unwrap();
        assert_eq!(written, Written { files: 1, rows: 50_000, bytes: text.len() as u64 });
        let (header, lines) = text.split_once('\n').unwrap();
        assert!(header.starts_with("txid,vout,height,coinbase,value,script_type,script"), "{header}");
        let others = if addresses { "address,block_time" } else { "script,block_time" };
        assert!(header.ends_with(&format!(",{others},mediantime")), "{header}");
        let line = |coin: &Coin| {
            let script: String = coin.script.iter().map(|byte| format!("{byte:02x}")).collect();
            let address = coin.address.as_deref().unwrap_or_default();
            let address = if addresses { format!(",{address}") } else { String::new() };
            let Coin { txid, vout, height, value, script_type, .. } = coin;
            let coinbase = u8::from(coin.is_coinbase);
            format!("{txid},{vout},{height},{coinbase},{value},{script_type},{script}{address},,")
        };
        assert!(lines.lines().eq(coins.iter().map(line).collect::<Vec<_>>().iter()));
    }
}

#[test]
fn sqlite_has_the_table_of_bitcoin_core() {
    let dir = TempDir::new().unwrap();
    let (coins, out) = (coins(20_000), dir.path().join("utxo.sqlite"));
    let written = write(&RealDisk, &out, Format::Sqlite, false, &coins).unwrap();
    let bytes = fs::metadata(&out).unwrap().len();
    assert_eq!(written, Written { files: 1, rows: 20_000, bytes });
    let database = Connection::open(&out).unwrap();
    let mut schema = database.prepare("SELECT sql FROM sqlite_schema").unwrap();
    let sql = schema.query_map([], |row| row.get(0)).unwrap();
    let sql: Vec<String> = sql.collect::<Result<_, _>>().unwrap();
    // Core's utxo_to_sqlite.py, without options.
    let of_core =
        "CREATE TABLE utxos(txid TEXT, vout INT, value INT, coinbase INT, height INT, scriptpubkey TEXT)";
    assert_eq!(sql, [of_core]);
    let mut rows = database.prepare("SELECT * FROM utxos ORDER BY rowid").unwrap();
    let rows = rows.query_map([], |row| <(String, u32, i64, u8, u32, String)>::try_from(row));
    let expected = coins.iter().map(|coin| {
        let script = coin.script.iter().map(|byte| format!("{byte:02x}")).collect();
        (coin.txid.to_string(), coin.vout, coin.value, coin.is_coinbase.into(), coin.height, script)
    });
    assert!(rows.unwrap().map(Result::unwrap).eq(expected));
}

/// Once, reading the schema ended the lock, and so did closing the database before the file had its name. The
/// lock of the system excludes only processes, so this test starts itself again as the other one.
#[test]
fn a_database_stays_locked_until_it_has_its_name() {
    const OTHER: &str = "PEREGRINE_TEST_SQLITE";
    let columns = Columns::all::<CoinTable>(false);
    let begin = |out: &Path| Writer::create(&RealDisk, out, Format::Sqlite, &columns);
    let ready = |out: &Path| out.with_extension("ready");
    if let Some(out) = std::env::var_os(OTHER) {
        let out = Path::new(&out);
        fs::write(ready(out), "").unwrap();
        loop {
            match begin(out).err() {
                Some(UnfinishedError::Refused { .. }) => {}
                Some(UnfinishedError::Exists(_)) => std::process::exit(10),
                _ => std::process::exit(11),
            }
        }
    }
    let (_dir, out) = testkit::fresh_path("out");
    let writer = begin(&out).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "formats::a_database_stays_locked_until_it_has_its_name"]).env(OTHER, &out);
    let mut other = command.stdout(Stdio::null()).spawn().unwrap();
    while !ready(&out).exists() && other.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    fill(writer, &coins(20_000)).unwrap();
    assert_eq!(other.wait().unwrap().code(), Some(10));
}

#[test]
fn an_output_that_exists_is_refused_and_stays_as_it_is() {
    let (dir, out) = testkit::fresh_path("out");
    fs::write(&out, "mine").unwrap();
    for format in Format::ALL {
        let error = Writer::create(&RealDisk, &out, format, &Columns::all::<CoinTable>(false)).err().unwrap();
        assert!(matches!(&error, UnfinishedError::Exists(path) if *path == out), "{error}");
    }
    // Also if it was made after `Writer` had looked.
    let columns = Columns::all::<CoinTable>(false);
    let error = RowFile::<CoinTable>::create(&RealDisk, &out, FileFormat::Csv, &columns).err().unwrap();
    assert!(matches!(error, UnfinishedError::Exists(_)), "{error}");
    assert_eq!((fs::read_to_string(&out).unwrap().as_str(), names(dir.path()).len()), ("mine", 1));
}

/// Once, a file that got the name of the output during the export was replaced.
#[test]
fn an_output_that_is_made_meanwhile_stays_as_it_is() {
    for disk in [&RealDisk as &dyn Disk, &FaultDisk::healthy()] {
        for format in Format::ALL {
            let (dir, out) = testkit::fresh_path("out");
            let writer = Writer::create(disk, &out, format, &Columns::all::<CoinTable>(false)).unwrap();
            fs::write(&out, "mine").unwrap();
            fill(writer, &coins(10)).unwrap_err();
            assert_eq!(fs::read(&out).unwrap(), b"mine", "{format}");
            assert_eq!(names(dir.path()), ["out"], "{format}");
        }
    }
}

/// A fault at each operation in turn.
#[test]
fn a_fault_of_the_disk_leaves_nothing_and_the_next_attempt_succeeds() {
    let coins = coins(3_000);
    for format in Format::ALL {
        for at in 0.. {
            let (dir, out) = testkit::fresh_path("out");
            let disk =
                FaultDisk::fail_at(at, InjectedFault::Once, Operations::All, io::ErrorKind::StorageFull);
            let result = write(&disk, &out, format, true, &coins);
            if !disk.has_failed() {
                result.unwrap();
                assert!(at > 5, "{format}: {at}");
                break;
            }
            let Err(UnfinishedError::File(error)) = result else { panic!("{format}: {at} failed unseen") };
            assert_eq!(error.source.kind(), io::ErrorKind::StorageFull, "{format}, operation {at}: {error}");
            // Only the last sync fails after the output has its name.
            let is_there = out.exists();
            assert_eq!(names(dir.path()).len(), usize::from(is_there), "{format}, operation {at}");
            if !is_there {
                write(&RealDisk, &out, format, true, &coins).unwrap();
                assert_eq!(names(dir.path()), ["out"], "{format}, operation {at}");
            }
        }
    }
}

#[test]
fn after_a_crash_the_output_is_complete_or_the_next_attempt_makes_it() {
    let coins = coins(3_000);
    for format in Format::ALL {
        let (dir, complete) = (TempDir::new().unwrap(), AtomicU32::new(0));
        let run = |disk: &FaultDisk| {
            write(disk, &dir.path().join("out"), format, true, &coins).unwrap();
        };
        let crashes = Crashes { cuts: 4, ..Crashes::default() };
        let states = explore(dir.path(), crashes, run, |Crash { dir, what, is_done, .. }| {
            let out = dir.path().join("out");
            match out.exists() {
                true => complete.fetch_add(1, Ordering::Relaxed),
                false if is_done => panic!("{format}, {what}: the output is gone"),
                false => write(&RealDisk, &out, format, true, &coins).unwrap().files,
            };
            let rows = match format {
                Format::Parquet => read_parquet(&out.join("part-0000.parquet")).1.len(),
                Format::Csv => fs::read_to_string(&out).unwrap().lines().count() - 1,
                Format::Arrow => {
                    let batches = FileReader::try_new(File::open(&out).unwrap(), None).unwrap();
                    batches.map(|batch| batch.unwrap().num_rows()).sum()
                }
                // SQLite writes by itself, and is not at risk here.
                Format::Sqlite => coins.len(),
            };
            assert_eq!(rows, coins.len(), "{format}, {what}");
            assert_eq!(names(dir.path()), ["out"], "{format}, {what}");
        });
        let complete = complete.into_inner();
        assert!(complete > 0 && states > u64::from(complete), "{format}: {complete} of {states}");
    }
}

#[test]
fn two_writers_of_one_output_do_not_meet_and_leftovers_are_removed() {
    let (dir, out) = testkit::fresh_path("out");
    fs::create_dir(dir.path().join("out.peregrine-part")).unwrap();
    fs::write(dir.path().join("out.peregrine-part/part-0000.parquet"), "left by a crash").unwrap();
    fs::write(dir.path().join("out.peregrine-part/part-0001.parquet.peregrine-part"), "").unwrap();
    write(&RealDisk, &out, Format::Parquet, false, &coins(10)).unwrap();
    assert_eq!((names(dir.path()).len(), names(&out).len()), (1, 1));
    // A file of another program is not removed.
    let other = dir.path().join("other");
    fs::create_dir(dir.path().join("other.peregrine-part")).unwrap();
    fs::write(dir.path().join("other.peregrine-part/mine"), "").unwrap();
    let error =
        Writer::create(&RealDisk, &other, Format::Parquet, &Columns::all::<CoinTable>(false)).err().unwrap();
    assert!(error.to_string().contains("mine: this is not of the directory that is written here"), "{error}");
    assert_eq!(names(&dir.path().join("other.peregrine-part")), ["mine"]);
}

/// The list of formats alone left open why coins can be written to SQLite, and blocks cannot.
#[test]
fn a_table_of_blocks_in_sqlite_is_refused_with_the_reason() {
    let refused = "sqlite".parse::<peregrine_export::FileFormat>().unwrap_err();
    assert!(refused.contains("one of coins"), "{refused}");
    assert_eq!("dbf".parse::<peregrine_export::FileFormat>().unwrap_err(), "must be parquet, arrow or csv");
}
