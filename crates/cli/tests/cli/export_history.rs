//! `export history` as users meet it: its rows are those of inputs and outputs by script, and its files are
//! the same however they came about.

#![cfg(feature = "export")]

use crate::common;

use common::{json, rebuilt, run_on_regtest as run};
use digest::sha256::sha256;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};
use testkit::rng::Rng;

pub type Row = BTreeMap<String, String>;

/// Exports, and returns the report.
pub fn export(datadir: &Path, table: &str, out: &Path, words: &[&str]) -> Value {
    let all = ["export", table, "--json", "-o", out.to_str().unwrap()];
    let output = run(datadir, &[&all[..], words].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json(&output)
}

/// The files below a directory, by their names in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => pending.push(path),
                false => {
                    drop(found.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(path).unwrap()))
                }
            }
        }
    }
    found
}

/// The rows of the CSV files of a table, in the order of the files' names.
pub fn rows(dir: &Path, table: &str) -> Vec<Row> {
    let of_table = |name: &PathBuf| name.starts_with(table) || name.to_str().unwrap().starts_with(table);
    let mut rows = Vec::new();
    for (name, bytes) in files(dir).into_iter().filter(|(name, _)| of_table(name)) {
        let text = String::from_utf8(bytes).unwrap();
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
        let names: Vec<String> = lines.next().unwrap().collect();
        rows.extend(lines.map(|values| names.iter().cloned().zip(values).collect::<Row>()));
        assert!(!name.ends_with("peregrine-part"));
    }
    rows
}

/// The text of a script's hash, as CSV has it.
pub fn hash_text(script: &str) -> String {
    let script: Vec<u8> =
        (0..script.len()).step_by(2).map(|at| u8::from_str_radix(&script[at..at + 2], 16).unwrap()).collect();
    sha256(&script).iter().rev().map(|byte| format!("{byte:02x}")).collect()
}

/// The rows that inputs and outputs make: all columns but `balance`, by script, in order.
fn expected(datadir: &Path) -> BTreeMap<String, Vec<String>> {
    let (dir, mut found) = (tempfile::tempdir().unwrap(), BTreeMap::<String, Vec<_>>::new());
    for (table, index, sign) in [("inputs", "input_index", "-"), ("outputs", "vout", "")] {
        export(datadir, table, &dir.path().join(table), &["--format", "csv"]);
        for row in rows(&dir.path().join(table), table) {
            if row["height"] == "0" || row["script"].starts_with("6a") {
                continue;
            }
            let (number, is_input) = (|name: &str| row[name].parse::<u32>().unwrap(), table == "inputs");
            let key = (number("height"), number("tx_index"), !is_input, number(index));
            let amount = if row["value"] == "0" { "0".to_owned() } else { format!("{sign}{}", row["value"]) };
            let text = format!(
                "{},{},{},{},{},{},{amount}",
                row["height"],
                row["tx_index"],
                row["block_time"],
                row["txid"],
                u8::from(is_input),
                row[index]
            );
            found.entry(hash_text(&row["script"])).or_default().push((key, text));
        }
    }
    let sorted = |mut rows: Vec<_>| {
        rows.sort();
        rows.into_iter().map(|(_, text)| text).collect()
    };
    found.into_iter().map(|(hash, rows)| (hash, sorted(rows))).collect()
}

#[test]
fn rows_are_inputs_and_outputs_by_script_with_running_balances() {
    let (dir, chain) = rebuilt();
    let out = dir.path().join("out");
    let report = export(dir.path(), "history", &out, &["--format", "csv", "--file-blocks", "50"]);
    let (history, scripts) = (rows(&out, "history"), rows(&out, "scripts"));
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut balances: BTreeMap<String, i64> = BTreeMap::new();
    let mut by_height: Vec<&Row> = history.iter().collect();
    // Files of later blocks come after those of earlier ones, folder by folder.
    by_height.sort_by_key(|row| row["height"].parse::<u32>().unwrap() / 50);
    for row in by_height {
        let columns = ["height", "tx_index", "block_time", "txid", "input", "index", "amount"];
        let text = columns.map(|name| row[name].as_str()).join(",");
        found.entry(row["script_hash"].clone()).or_default().push(text);
        let balance = balances.entry(row["script_hash"].clone()).or_default();
        *balance += row["amount"].parse::<i64>().unwrap();
        assert_eq!(row["balance"], balance.to_string());
    }
    let expected = expected(dir.path());
    assert!(found == expected && expected.len() > 100, "{} of {}", found.len(), expected.len());
    assert_eq!(scripts.len(), expected.len());
    for row in &scripts {
        let (hash, rows) = (&row["script_hash"], &expected[&row["script_hash"]]);
        assert_eq!(*hash, hash_text(&row["script"]));
        assert_eq!((&row["rows"], &row["balance"]), (&rows.len().to_string(), &balances[hash].to_string()));
        assert_eq!(row["first_height"], rows[0].split(',').next().unwrap());
    }
    let stats = json(&run(dir.path(), &["utxo", "stats", "--muhash", "--json"]));
    for field in ["muhash", "coins", "total_amount_sat", "block_hash", "chain"] {
        assert_eq!(report[field], stats[field], "{field}");
    }
    assert_eq!((&report["command"], &report["is_chainstate"]), (&"export history".into(), &true.into()));
    assert_eq!(report["rows"], history.len());
    assert_eq!(report["to_height"], chain.tip().height);
    assert!(out.join("history/prefix=0/from_height=0000100/history.csv").exists());
}

#[test]
fn files_are_the_same_with_any_threads_and_memory_and_after_an_interruption() {
    let (dir, _) = rebuilt();
    let out = |name: &str| dir.path().join(name);
    let words = ["--file-blocks", "40", "--prefix-digits", "2"];
    let report = export(dir.path(), "history", &out("one"), &[&words[..], &["--threads", "1"]].concat());
    let one = files(&out("one"));
    assert_eq!(report["files"].as_u64().unwrap() as usize, one.len(), "and nothing else");
    let other = ["--threads", "8", "--memory", "128M", "--scan", "--work-dir", dir.path().to_str().unwrap()];
    let to = report["to_height"].to_string();
    // As a shell completes the name of a directory.
    export(dir.path(), "history", &out("other/"), &[&words[..], &other, &["--to", &to]].concat());
    assert!(one == files(&out("other")));
    // As a run leaves it that ends before the directory gets its name.
    let part = dir.path().join("one.peregrine-part");
    fs::rename(out("one"), &part).unwrap();
    fs::copy(out("one.dataset.json"), part.join("dataset.json")).unwrap();
    let mut rng = Rng::new(5, "files that are lost");
    let lost: Vec<&PathBuf> = one.keys().filter(|_| rng.below(3) == 0).collect();
    lost.iter().for_each(|name| fs::remove_file(part.join(name)).unwrap());
    let again = export(dir.path(), "history", &out("one"), &words);
    assert_eq!(again["files_kept"].as_u64().unwrap() as usize, one.len() - lost.len());
    assert!(one == files(&out("one")) && lost.len() > 10 && again["muhash"] == report["muhash"]);
    assert_eq!(again["bytes"], report["bytes"]);
    let dataset: Value = serde_json::from_slice(&fs::read(out("one.dataset.json")).unwrap()).unwrap();
    assert_eq!((&dataset["prefix_digits"], &dataset["heights"][3]["from_height"]), (&2.into(), &120.into()));
    assert_eq!(dataset["tables"][0]["columns"][0]["type"], "FixedSizeBinary(32)");
    // Of some prefixes, the files are the same.
    let mut parts = BTreeMap::new();
    for prefixes in ["00-3f", "40", "41-ff"] {
        let some = ["--file-blocks", "40", "--prefixes", prefixes];
        let report = export(dir.path(), "history", &out(prefixes), &some);
        let whole = if prefixes == "40" { "40-40" } else { prefixes };
        assert_eq!((&report["prefixes"], &report["is_chainstate"]), (&whole.into(), &true.into()));
        parts.extend(files(&out(prefixes)));
    }
    assert!(parts.keys().eq(one.keys()));
    assert!(one.iter().all(|(name, bytes)| parts[name] == *bytes));
    let dataset: Value = serde_json::from_slice(&fs::read(out("41-ff.dataset.json")).unwrap()).unwrap();
    assert_eq!((&dataset["prefix_digits"], &dataset["prefixes"]), (&2.into(), &"41-ff".into()));
    // A look-up finds its row group and its pages by their statistics.
    let name = one.keys().find(|name| name.starts_with("scripts")).unwrap();
    let reader = SerializedFileReader::new(File::open(out("one").join(name)).unwrap()).unwrap();
    let column = reader.metadata().row_group(0).column(0);
    assert!(column.statistics().is_some() && column.column_index_offset().is_some());
    assert!(reader.metadata().row_group(0).sorting_columns().unwrap()[0].column_idx == 0);
}

#[test]
fn what_cannot_be_exported_is_refused_and_nothing_is_left() {
    let (dir, chain) = rebuilt();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir(at("mine")).unwrap();
    fs::create_dir(at("other.peregrine-part")).unwrap();
    fs::write(at("other.peregrine-part/dataset.json"), "{}").unwrap();
    for (words, exit, text) in [
        (vec!["-o", &at("mine")], 2, "it exists already"),
        (vec!["-o", &at("other")], 2, "with other options has left this directory"),
        (vec!["-o", &at("out"), "--to", "131"], 2, "the chain on disk ends at height 130"),
        (vec!["-o", &at("out"), "--columns", "value"], 2, "history has no column value; it has script_hash,"),
        (vec!["-o", &at("out"), "--prefix-digits", "4"], 2, "4 is not in 1..=3"),
        (
            vec!["-o", &at("out"), "--file-blocks", "2"],
            2,
            "66 files, more than 64: --file-blocks must be at least 3",
        ),
        (vec!["-o", &at("out"), "--prefixes", "3f-00"], 2, "must be one to three hexadecimal digits"),
        (vec!["-o", &at("out"), "--prefixes", "0-0f"], 2, "must be one to three hexadecimal digits"),
        (vec!["-o", &at("out"), "--prefixes", "+a"], 2, "must be one to three hexadecimal digits"),
        (vec!["-o", &at("regtest/blocks/out")], 2, "holds other data"),
    ] {
        let output = run(dir.path(), &[&["export", "history"], &words[..]].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {stderr}");
        assert!(stderr.contains(text), "{words:?}: {stderr}");
    }
    assert!(!dir.path().join("out").exists() && !dir.path().join("out.peregrine-part").exists());
    // To the chainstate's best block, with the columns that are named.
    let height = (chain.tip().height - 1).to_string();
    assert!(
        run(dir.path(), &["reindex", "--stop-at-height", &height, "--accept-lower-tip"]).status.success()
    );
    let out = dir.path().join("out");
    let report = export(dir.path(), "history", &out, &["--format", "csv", "--columns", "amount,script_hash"]);
    assert_eq!((report["to_height"].to_string(), &report["is_chainstate"]), (height, &true.into()));
    assert_eq!(rows(&out, "history")[0].len(), 2);
}

mod node {
    use super::*;
    use serde_json::json;
    use testkit::node::Node;

    #[test]
    fn scantxoutset_finds_the_same_amounts() {
        let (dir, _) = rebuilt();
        let out = dir.path().join("out");
        export(dir.path(), "history", &out, &["--format", "csv"]);
        let scripts = rows(&out, "scripts");
        let Some(node) = Node::start(dir.path(), &[]) else { return };
        let some = &scripts[..scripts.len().min(500)];
        let wanted: Vec<String> = some.iter().map(|row| format!("raw({})", row["script"])).collect();
        let found = node.call("scantxoutset", json!(["start", wanted])).unwrap();
        let mut amounts: BTreeMap<&str, i64> = BTreeMap::new();
        for coin in found["unspents"].as_array().unwrap() {
            let sats = (coin["amount"].as_f64().unwrap() * 1e8).round() as i64;
            *amounts.entry(coin["scriptPubKey"].as_str().unwrap()).or_default() += sats;
        }
        for row in some {
            let amount = amounts.get(row["script"].as_str()).copied().unwrap_or_default();
            assert_eq!(row["balance"], amount.to_string(), "{}", row["script"]);
        }
        assert!(amounts.len() > 50);
    }
}
