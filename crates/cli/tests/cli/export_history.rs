//! What exports have written, and the history of scripts beside a real bitcoind.

#![cfg(feature = "export")]

use crate::prelude::*;

pub type Row = BTreeMap<String, String>;

/// Exports, and returns the report.
pub fn export(datadir: &Path, table: &str, out: &Path, words: &[&str]) -> Value {
    report(datadir, &[&["export", table, "-o", text(out)], words].concat())
}

/// The rows of the CSV files of a table, in the order of the files' names.
pub fn rows(dir: &Path, table: &str) -> Vec<Row> {
    let of_table = |name: &PathBuf| name.starts_with(table) || name.to_str().unwrap().starts_with(table);
    let mut rows = Vec::new();
    for (name, bytes) in snapshot(dir).unwrap().into_iter().filter(|(name, _)| of_table(name)) {
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
    let mut hash = sha256(&decode_to_vec(script).unwrap());
    hash.reverse();
    hash.to_lower_hex_string()
}

mod node {
    use super::*;

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
