//! `export utxo` as users meet it: what it writes is what the chain has, and proves itself.

#![cfg(feature = "export")]

use crate::common;

use common::{command, json, rebuilt, run_on_regtest as run};
use digest::sha256::sha256d;
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::RowAccessor,
};
use rusqlite::Connection;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};
use testkit::{
    Chain,
    data::{core_sources, known_answers, unpack_core_datadir},
};

/// A coin: txid and vout, height, whether of a coinbase, value, script.
type Coin = ((String, u32), u32, bool, i64, Vec<u8>);

/// A row of SQLite, in the order of its columns.
type SqliteRow = (String, u32, i64, u8, u32, String);

/// Exports with these options, and returns the report.
fn export(datadir: &Path, out: &Path, words: &[&str]) -> Value {
    let words = [&["export", "utxo", "--json", "-o", out.to_str().unwrap()], words].concat();
    let output = command(&words, datadir).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json(&output)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn coins_of(chain: &Chain) -> Vec<Coin> {
    let coins = chain.model.coins.iter();
    let mut coins: Vec<Coin> = coins
        .map(|(outpoint, coin)| {
            let key = (outpoint.txid.to_string(), outpoint.vout);
            (key, coin.code >> 1, coin.code & 1 == 1, coin.amount, coin.script.clone())
        })
        .collect();
    coins.sort();
    coins
}

/// What the Parquet files of a directory contain.
#[derive(Default)]
struct Parquet {
    /// The metadata of the first.
    about: BTreeMap<String, String>,
    coins: Vec<Coin>,
    script_types: BTreeMap<String, u64>,
    addresses: Vec<Option<String>>,
    /// Number of rows with times.
    with_times: usize,
    /// `hash_serialized_3`, computed from the rows as they come.
    hash: String,
}

fn read_parquet(dir: &Path) -> Parquet {
    let mut found = Parquet::default();
    let mut elements = Vec::new();
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
        let about = reader.metadata().file_metadata();
        let pairs = about.key_value_metadata().unwrap().iter();
        found.about.extend(pairs.map(|pair| (pair.key.clone(), pair.value.clone().unwrap())));
        let columns = about.schema_descr().num_columns();
        let has_addresses = columns == 10;
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let mut txid = row.get_bytes(0).unwrap().data().to_vec();
            let (vout, height) = (row.get_int(1).unwrap() as u32, row.get_int(2).unwrap() as u32);
            let (is_coinbase, value) = (row.get_bool(3).unwrap(), row.get_long(4).unwrap());
            let script = row.get_bytes(6).unwrap().data().to_vec();
            elements.extend_from_slice(&txid);
            elements.extend_from_slice(&vout.to_le_bytes());
            elements.extend_from_slice(&(height << 1 | u32::from(is_coinbase)).to_le_bytes());
            elements.extend_from_slice(&value.to_le_bytes());
            match u8::try_from(script.len()) {
                Ok(len @ ..0xfd) => elements.push(len),
                _ => elements.extend([&[0xfd][..], &(script.len() as u16).to_le_bytes()].concat()),
            }
            elements.extend_from_slice(&script);
            *found.script_types.entry(row.get_string(5).unwrap().clone()).or_default() += 1;
            found.addresses.push(has_addresses.then(|| row.get_string(7).ok().cloned()).flatten());
            let times = [columns - 2, columns - 1].map(|column| row.get_timestamp_millis(column).is_ok());
            assert_eq!(times[0], times[1]);
            found.with_times += usize::from(times[0]);
            txid.reverse();
            found.coins.push(((hex(&txid), vout), height, is_coinbase, value, script));
        }
    }
    let mut hash = sha256d(&elements);
    hash.reverse();
    found.hash = hex(&hash);
    found.coins.sort();
    found
}

/// Time and median time of each block by height, as text with a comma.
fn times(datadir: &Path) -> Vec<String> {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("blocks");
    let words = ["export", "blocks", "--columns", "time,mediantime", "--format", "csv", "-o"];
    let output = run(datadir, &[&words[..], &[out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(out.join("blocks-0000000.csv")).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

fn read_sqlite(file: &Path) -> Vec<SqliteRow> {
    let database = Connection::open(file).unwrap();
    let mut query = database.prepare("SELECT * FROM utxos ORDER BY txid, vout").unwrap();
    let rows = query.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

fn of_sqlite(coin: &Coin) -> SqliteRow {
    let ((txid, vout), height, is_coinbase, value, script) = coin;
    (txid.clone(), *vout, *value, u8::from(*is_coinbase), *height, hex(script))
}

#[test]
fn every_format_has_all_coins_and_parquet_proves_itself() {
    let (dir, chain) = rebuilt();
    let coins = coins_of(&chain);
    let at = |name: &str| dir.path().join(name);
    let stats = json(&run(dir.path(), &["utxo", "stats", "--muhash", "--json"]));

    let report = export(dir.path(), &at("utxo"), &["--chain", "regtest", "--addresses", "--threads", "3"]);
    let parquet = read_parquet(&at("utxo"));
    assert!(parquet.coins == coins, "{} rows of {}", parquet.coins.len(), coins.len());
    for field in ["height", "block_hash", "coins", "total_amount_sat", "hash_serialized_3", "muhash", "chain"]
    {
        assert_eq!(report[field], stats[field], "{field}");
    }
    assert_eq!(report["format"], "parquet");
    assert_eq!(parquet.hash, stats["hash_serialized_3"]);
    assert_eq!(parquet.with_times, coins.len());
    for (key, field) in [
        ("network", "chain"),
        ("height", "height"),
        ("block_hash", "block_hash"),
        ("coins", "coins"),
        ("total_value", "total_amount_sat"),
        ("hash_serialized_3", "hash_serialized_3"),
        ("muhash", "muhash"),
    ] {
        let wanted = stats[field].as_str().map_or_else(|| stats[field].to_string(), str::to_owned);
        assert_eq!(parquet.about[key], wanted, "{key}");
    }
    let scanned: Vec<_> = parquet.addresses.iter().flatten().take(3).cloned().collect();
    for address in scanned {
        let found = json(&run(dir.path(), &["utxo", "scan", &address, "--json"]));
        let same = parquet.addresses.iter().filter(|other| other.as_deref() == Some(&address)).count();
        assert_eq!(found["found"].as_array().unwrap().len(), same, "{address}");
    }
    assert!(["p2pk", "p2pkh", "p2tr"].iter().all(|name| parquet.script_types.contains_key(*name)));

    export(dir.path(), &at("utxo.sqlite"), &["--chain", "regtest", "--format", "sqlite"]);
    assert!(read_sqlite(&at("utxo.sqlite")).into_iter().eq(coins.iter().map(of_sqlite)));

    export(dir.path(), &at("utxo.csv"), &["--chain", "regtest", "--format", "csv"]);
    let text = fs::read_to_string(at("utxo.csv")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.remove(0), "txid,vout,height,coinbase,value,script_type,script,block_time,mediantime");
    let times = times(dir.path());
    lines.sort_unstable();
    let mut expected: Vec<String> = Vec::new();
    for ((txid, vout), height, is_coinbase, value, script) in &coins {
        let found = lines.iter().find(|line| line.starts_with(&format!("{txid},{vout},"))).unwrap();
        let script_type = found.split(',').nth(5).unwrap();
        let coinbase = u8::from(*is_coinbase);
        let (script, times) = (hex(script), &times[*height as usize]);
        expected.push(format!("{txid},{vout},{height},{coinbase},{value},{script_type},{script},{times}"));
    }
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

/// All threads and formats give the same files, and a snapshot the same rows as the chainstate.
#[test]
fn a_snapshot_and_any_number_of_threads_give_the_same_files() {
    let (dir, chain) = rebuilt();
    let at = |name: &str| dir.path().join(name);
    let snapshot = at("snapshot").display().to_string();
    assert!(run(dir.path(), &["snapshot", "make", "-o", &snapshot]).status.success());
    export(dir.path(), &at("one"), &["--chain", "regtest", "--threads", "1", "--memory", "128M"]);
    export(dir.path(), &at("four"), &["--chain", "regtest", "--threads", "4"]);
    export(dir.path(), &at("both"), &["--snapshot", &snapshot]);
    let part = |name: &str| fs::read(at(name).join("part-0000.parquet")).unwrap();
    assert!(part("one") == part("four") && part("one") == part("both"));
    assert_eq!(read_parquet(&at("both")).with_times, chain.model.coins.len());
    // Without a datadir, the height of the block is unknown, and so are times.
    let alone = Command::new(env!("CARGO_BIN_EXE_peregrine"))
        .args(["export", "utxo", "--json", "--snapshot", &snapshot, "-o"])
        .arg(at("alone"))
        .output()
        .unwrap();
    let report = json(&alone);
    assert_eq!((&report["height"], &report["coins"]), (&Value::Null, &chain.model.coins.len().into()));
    let parquet = read_parquet(&at("alone"));
    assert!(parquet.coins == coins_of(&chain) && !parquet.about.contains_key("height"));
    assert_eq!(parquet.with_times, 0);
    // A snapshot that ends early leaves nothing.
    let bytes = fs::read(&snapshot).unwrap();
    fs::write(&snapshot, &bytes[..bytes.len() - 1]).unwrap();
    let cut =
        run(dir.path(), &["export", "utxo", "--snapshot", &snapshot, "-o", at("cut").to_str().unwrap()]);
    assert_eq!(cut.status.code(), Some(4), "{cut:?}");
    assert!(!at("cut").exists() && !at("cut.peregrine-part").exists());
}

/// The coins after any block are those of a snapshot at that height, and of the chainstate at the tip; no
/// chainstate and no undo data is needed, and no temporary file is left.
#[test]
fn coins_after_any_block_are_those_of_a_snapshot() {
    let (dir, chain) = rebuilt();
    let at = |name: String| dir.path().join(name);
    fs::create_dir(at("out".to_owned())).unwrap();
    export(dir.path(), &at("out/chainstate".to_owned()), &["--chain", "regtest"]);
    let tip = chain.tip().height;
    for (height, words) in
        [(tip, &["--threads", "3"][..]), (1, &[]), (60, &["--undo", "make", "--memory", "128M"])]
    {
        let snapshot = at(format!("snapshot-{height}")).display().to_string();
        let number = height.to_string();
        let made =
            json(&run(dir.path(), &["snapshot", "make", "--json", "--height", &number, "-o", &snapshot]));
        // Only the blocks are needed.
        let _ = fs::remove_dir_all(dir.path().join("regtest/chainstate"));
        let words = [&["--chain", "regtest", "--height", &number], words].concat();
        let out = at(format!("out/{height}"));
        let report = export(dir.path(), &out, &words);
        let parquet = read_parquet(&out);
        for field in ["height", "block_hash", "hash_serialized_3", "coins"] {
            assert_eq!(report[field], made[field], "{field} of {height}");
        }
        assert_eq!(parquet.hash, made["hash_serialized_3"], "{height}");
        assert_eq!(parquet.about["height"], number);
    }
    let part = |name: &str| fs::read(at(format!("out/{name}/part-0000.parquet"))).unwrap();
    assert!(part("chainstate") == part(&tip.to_string()));
    // Also with a scan, times are those of the block index. Without one, they are unknown.
    let words = ["--chain", "regtest", "--height", "60", "--scan"];
    export(dir.path(), &at("out/scan".to_owned()), &words);
    assert!(part("scan") == part("60"));
    fs::remove_dir_all(dir.path().join("regtest/blocks/index")).unwrap();
    export(dir.path(), &at("out/no-index".to_owned()), &words);
    let found = ["60", "no-index"].map(|name| read_parquet(&at(format!("out/{name}"))));
    assert!(found[0].coins == found[1].coins);
    assert_eq!((found[0].with_times, found[1].with_times), (found[0].coins.len(), 0));
    assert_eq!(fs::read_dir(at("out".to_owned())).unwrap().count(), 6, "temporary files are removed");
}

/// A chainstate alone, as a rebuild into another directory leaves it.
#[test]
fn coins_of_a_chainstate_without_a_block_index_have_no_times() {
    let (dir, chain) = rebuilt();
    fs::write(dir.path().join("regtest/blocks/index/CURRENT"), "").unwrap();
    let damaged = run(dir.path(), &["export", "utxo", "-o", dir.path().join("damaged").to_str().unwrap()]);
    let stderr = String::from_utf8(damaged.stderr).unwrap();
    assert!(damaged.status.success() && stderr.contains("times of blocks are missing in the"), "{stderr}");
    fs::remove_dir_all(dir.path().join("regtest/blocks")).unwrap();
    // The chain is that of the only folder, and there is nothing else for bitcoind.
    let stats = json(&command(&["utxo", "stats", "--json"], dir.path()).output().unwrap());
    assert_eq!((&stats["chain"], &stats["coins"]), (&"regtest".into(), &chain.model.coins.len().into()));
    let report = export(dir.path(), &dir.path().join("utxo"), &["--chain", "regtest"]);
    assert_eq!(report["height"], Value::Null);
    let found = read_parquet(&dir.path().join("utxo"));
    assert!(found.coins == coins_of(&chain));
    assert_eq!(found.with_times, 0);
}

/// Several heights, in one pass over the blocks, give the same files as one by one.
#[test]
fn coins_after_several_blocks_are_those_after_each() {
    let (dir, chain) = rebuilt();
    let at = |name: &str| dir.path().join(name);
    let tip = chain.tip().height.to_string();
    let heights = format!("101,{tip},1,60,101");
    for (several, words) in [("all", &["--threads", "3"][..]), ("small", &["--memory", "128M"])] {
        let words = [&["--chain", "regtest", "--height", &heights], words].concat();
        let report = export(dir.path(), &at(several), &words);
        let sets = report["sets"].as_array().unwrap();
        let found: Vec<u64> = sets.iter().map(|set| set["height"].as_u64().unwrap()).collect();
        assert_eq!(found, [1, 60, 101, u64::from(chain.tip().height)]);
        assert_eq!(fs::read_dir(at(several)).unwrap().count(), 4, "temporary files are removed");
    }
    for height in ["1", "60", "101", &tip] {
        export(dir.path(), &at(height), &["--chain", "regtest", "--height", height]);
        let part = |dir: &str| fs::read(at(dir).join(height).join("part-0000.parquet")).unwrap();
        let alone = fs::read(at(height).join("part-0000.parquet")).unwrap();
        assert!(part("all") == alone && part("small") == alone, "{height}");
    }
    export(dir.path(), &at("csv"), &["--chain", "regtest", "--height", "3,5", "--format", "csv"]);
    let mut names: Vec<_> =
        fs::read_dir(at("csv")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["3.csv", "5.csv"]);
}

#[test]
fn what_cannot_be_exported_is_refused_and_nothing_is_left() {
    let (dir, _) = rebuilt();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("mine"), "mine").unwrap();
    fs::create_dir_all(at("empty/regtest/blocks")).unwrap();
    for (datadir, words, exit, text) in [
        (".", vec!["-o", &at("mine")], 2, "it exists already"),
        (".", vec!["-o", &at("mine"), "--format", "csv"], 2, "it exists already"),
        (".", vec!["-o", &at("out"), "--format", "xml"], 2, "must be parquet, arrow, csv or sqlite"),
        (
            ".",
            vec!["-o", &at("out"), "--format", "sqlite", "--addresses"],
            2,
            "leave out --addresses and --columns",
        ),
        (".", vec!["-o", &at("out"), "--height", "131"], 2, "the highest one for --height is 130"),
        (".", vec!["-o", &at("out"), "--height", "5,131"], 2, "the highest one for --height is 130"),
        (".", vec!["-o", &at("out"), "--height", "5,6", "--undo", "make"], 2, "for one --height"),
        (".", vec!["-o", &at("mine"), "--height", "5,6"], 2, "it exists already"),
        // Before any block is read: this height does not exist.
        (".", vec!["-o", &at("mine"), "--height", "500"], 2, "it exists already"),
        (".", vec!["-o", &at("out"), "--assumevalid", "0"], 2, "are for --height"),
        (".", vec!["-o", &at("out"), "--undo", "make"], 2, "--height"),
        (".", vec!["-o", &at("regtest/blocks/out")], 2, "holds other data"),
        (".", vec!["-o", &at("out"), "--snapshot", &at("mine")], 4, "UTXO snapshot"),
        (".", vec!["-o", &at("no/such/out"), "--format", "csv"], 5, "no/such/out"),
        ("empty", vec!["-o", &at("out")], 4, ""),
        ("empty", vec!["-o", &at("out"), "--format", "sqlite"], 4, ""),
    ] {
        let words: Vec<&str> =
            ["export", "utxo"].into_iter().chain(words.iter().map(|word| &**word)).collect();
        let output = run(&dir.path().join(datadir), &words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {stderr}");
        assert!(stderr.contains(text), "{words:?}: {stderr}");
    }
    let names: Vec<OsString> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with("out")), "{names:?}");
    assert_eq!(fs::read_to_string(at("mine")).unwrap(), "mine");
}

/// Real chainstates, written by Bitcoin Core. The rows are those that Core's script makes.
#[test]
fn exports_of_real_chainstates_have_the_hashes_that_core_computed() {
    for (name, chain) in [("main", "main"), ("testnet3", "test"), ("regtest", "regtest")] {
        let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { return };
        let known = known.iter().max_by_key(|known| known["height"].as_u64()).unwrap();
        let report = export(dir.path(), &dir.path().join("utxo"), &["--chain", chain]);
        let parquet = read_parquet(&dir.path().join("utxo"));
        assert_eq!(report["height"], known["height"]);
        for hash in [&report["hash_serialized_3"], &parquet.hash.clone().into()] {
            assert_eq!(hash, &known["hash_serialized_3"], "{name}");
        }
        assert_eq!((&report["muhash"], &report["coins"]), (&known["muhash"], &known["txouts"]));
        assert_eq!(parquet.coins.len() as u64, known["txouts"].as_u64().unwrap());
        let sqlite = dir.path().join("utxo.sqlite");
        export(dir.path(), &sqlite, &["--chain", chain, "--format", "sqlite"]);
        let rows = read_sqlite(&sqlite);
        assert!(rows.iter().eq(parquet.coins.iter().map(of_sqlite).collect::<Vec<_>>().iter()));
        let Some(sources) = core_sources() else { return };
        let script = sources.join("contrib/utxo-tools/utxo_to_sqlite.py");
        let (snapshot, theirs) = (dir.path().join("snapshot"), dir.path().join("theirs.sqlite"));
        let words = ["snapshot", "make", "--chain", chain, "-o", snapshot.to_str().unwrap()];
        assert!(command(&words, dir.path()).output().unwrap().status.success());
        let made = Command::new("python3").args([&script, &snapshot, &theirs]).output();
        assert!(made.as_ref().unwrap().status.success(), "{made:?}");
        assert!(read_sqlite(&theirs) == rows, "{name}");
    }
}
