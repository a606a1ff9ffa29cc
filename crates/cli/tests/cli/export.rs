//! `export utxo`: its rows are the coins of the chain, and those that Bitcoin Core's script makes.

#![cfg(feature = "export")]

use crate::prelude::*;
use rusqlite::Connection;
use testkit::data::{core_sources, known_tip, unpack_core_datadir};

/// A row of SQLite, in the order of its columns.
type SqliteRow = (String, u32, i64, u8, u32, String);

/// Exports with these options, and returns the report.
fn export(datadir: &Path, out: &Path, words: &[&str]) -> Value {
    let words = [&["export", "utxo", "--json", "-o", text(out)], words].concat();
    let output = command(&words, datadir).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json(&output)
}

fn read_sqlite(file: &Path) -> Vec<SqliteRow> {
    let database = Connection::open(file).unwrap();
    let mut query = database.prepare("SELECT * FROM utxos ORDER BY txid, vout").unwrap();
    let rows = query.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn rows_are_the_coins_of_the_chain() {
    let (dir, chain) = rebuilt();
    let at = |name: &str| dir.path().join(name);
    let coins = chain.model.coins.iter().map(|(outpoint, coin)| {
        let script = coin.script.to_lower_hex_string();
        let (height, coinbase) = (coin.code >> 1, (coin.code & 1) as u8);
        (outpoint.txid.to_string(), outpoint.vout, coin.amount, coinbase, height, script)
    });
    let mut coins: Vec<SqliteRow> = coins.collect();
    coins.sort();
    export(dir.path(), &at("utxo.sqlite"), &["--format", "sqlite"]);
    assert!(read_sqlite(&at("utxo.sqlite")) == coins);
    export(dir.path(), &at("utxo.csv"), &["--format", "csv"]);
    let words = ["export", "blocks", "--columns", "time,mediantime", "--format", "csv", "-o"];
    done(command(&[&words[..], &[text(&at("blocks"))]].concat(), dir.path()).output().unwrap());
    let times = fs::read_to_string(at("blocks/blocks-0000000.csv")).unwrap();
    let times: Vec<&str> = times.lines().skip(1).collect();
    let rows = fs::read_to_string(at("utxo.csv")).unwrap();
    let (header, rows) = rows.split_once('\n').unwrap();
    assert_eq!(header, "txid,vout,height,coinbase,value,script_type,script,block_time,mediantime");
    // Their types have tests of their own.
    let without_type = rows.lines().map(|row| {
        let fields: Vec<&str> = row.split(',').collect();
        [&fields[..5], &fields[6..]].concat().join(",")
    });
    let mut rows: Vec<String> = without_type.collect();
    let expected = coins.iter().map(|(txid, vout, value, coinbase, height, script)| {
        format!("{txid},{vout},{height},{coinbase},{value},{script},{}", times[*height as usize])
    });
    let mut expected: Vec<String> = expected.collect();
    rows.sort();
    expected.sort();
    assert_eq!(rows, expected);
}

#[test]
fn exports_of_real_chainstates_are_those_of_cores_script() {
    for (name, chain) in [("main", "main"), ("testnet3", "test"), ("regtest", "regtest")] {
        let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_tip(name)) else { return };
        let ours = dir.path().join("utxo.sqlite");
        let report = export(dir.path(), &ours, &["--chain", chain, "--format", "sqlite"]);
        for (field, of_core) in [
            ("height", "height"),
            ("hash_serialized_3", "hash_serialized_3"),
            ("muhash", "muhash"),
            ("coins", "txouts"),
        ] {
            assert_eq!(report[field], known[of_core], "{field} of {name}");
        }
        let Some(sources) = core_sources() else { return };
        let script = sources.join("contrib/utxo-tools/utxo_to_sqlite.py");
        let (snapshot, theirs) = (dir.path().join("snapshot"), dir.path().join("theirs.sqlite"));
        let datadir = text(dir.path());
        let words = ["snapshot", "make", "--chain", chain, "--datadir", datadir, "-o", text(&snapshot)];
        done(peregrine(&words));
        let made = Command::new("python3").args([&script, &snapshot, &theirs]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        assert!(read_sqlite(&theirs) == read_sqlite(&ours), "{name}");
    }
}
