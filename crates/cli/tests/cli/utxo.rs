//! `utxo get`, `utxo scan` and `utxo stats --at` as users meet them: what they print, and their exit codes.

use crate::common;

use common::{json, rebuilt, run_on_regtest as run};
use serde_json::Value;
use tempfile::TempDir;
use testkit::model::ModelCoin;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginnings of the scripts of all types.
const TYPES: [(&str, &[u8]); 7] = [
    ("p2pk", &[33]),
    ("p2pkh", &[0x76]),
    ("p2sh", &[0xa9]),
    ("p2wpkh", &[0, 20]),
    ("p2wsh", &[0, 32]),
    ("p2tr", &[0x51, 32]),
    ("p2a", &[0x51, 2]),
];

#[test]
fn coins_are_looked_up_and_found_by_address_script_and_descriptor() {
    let (dir, chain) = rebuilt();
    for (name, prefix) in TYPES {
        let is_of_type = |coin: &ModelCoin| coin.script.starts_with(prefix);
        let (outpoint, coin) = chain.model.coins.iter().find(|(_, coin)| is_of_type(coin)).unwrap();
        let output = run(dir.path(), &["utxo", "get", &outpoint.to_string(), "--json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = json(&output);
        let found = &report["unspent"][0];
        assert_eq!((&found["type"], &found["script"]), (&name.into(), &hex(&coin.script).into()));
        assert_eq!(
            (&found["txid"], &found["vout"]),
            (&outpoint.txid.to_string().into(), &outpoint.vout.into())
        );
        assert_eq!((&found["height"], &found["amount_sat"]), (&(coin.code >> 1).into(), &coin.amount.into()));
        assert_eq!(report["block_hash"], chain.tip().hash.to_string());

        let address = found["address"].as_str();
        assert_eq!(address.is_none(), name == "p2pk", "{report}");
        let script = hex(&coin.script);
        let same: Vec<_> =
            chain.model.coins.iter().filter(|(_, other)| other.script == coin.script).collect();
        let descriptor = address.map_or(format!("raw({script})"), |address| format!("addr({address})"));
        for wanted in [Some(script.as_str()), address, Some(&descriptor)].into_iter().flatten() {
            let report = json(&run(dir.path(), &["utxo", "scan", wanted, "--json"]));
            let found = report["found"].as_array().unwrap();
            let outpoints =
                found.iter().map(|coin| (coin["txid"].as_str().unwrap(), coin["vout"].as_u64().unwrap()));
            let expected =
                same.iter().map(|(outpoint, _)| (outpoint.txid.to_string(), u64::from(outpoint.vout)));
            assert!(
                outpoints.eq(expected.collect::<Vec<_>>().iter().map(|(txid, vout)| (txid.as_str(), *vout)))
            );
            assert_eq!(report["coins"], chain.model.coins.len(), "{report}");
            let sum: i64 = same.iter().map(|(_, coin)| coin.amount).sum();
            assert_eq!(report["found_amount_sat"], sum);
            let block = chain.main().nth((same[0].1.code >> 1) as usize).unwrap();
            assert_eq!(found[0]["block_hash"], block.hash.to_string());
        }
    }
}

#[test]
fn an_outpoint_that_is_not_unspent_has_an_exit_code_of_its_own() {
    let (dir, chain) = rebuilt();
    let (outpoint, _) = chain.model.coins.first_key_value().unwrap();
    let absent = format!("{}:0", "ab".repeat(32));
    let words = ["utxo", "get", &outpoint.to_string(), &absent];
    let text = run(dir.path(), &words);
    assert_eq!(text.status.code(), Some(7), "{text:?}");
    let stdout = String::from_utf8(text.stdout).unwrap();
    assert!(stdout.contains(&outpoint.to_string()) && stdout.contains("NOT UNSPENT"), "{stdout}");
    let report = json(&run(dir.path(), &[&words[..], &["--json"]].concat()));
    assert_eq!((&report["exit_code"], &report["unspent"][0]["vout"]), (&7.into(), &outpoint.vout.into()));
    assert_eq!(report["not_unspent"], serde_json::json!([{ "txid": "ab".repeat(32), "vout": 0 }]));
    let malformed = run(dir.path(), &["utxo", "get", "ab:0"]);
    assert_eq!(malformed.status.code(), Some(2), "{malformed:?}");
}

#[test]
fn a_scan_says_what_it_does_not_understand() {
    let dir = TempDir::new().unwrap();
    for (wanted, flaw) in [
        ("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "another network"),
        ("nothing", "not an address, a script in hex or a descriptor"),
        ("raw(51)#qqqqqqqq", "checksum"),
        ("musig(02aa)", "musig() is not supported"),
    ] {
        let output = run(dir.path(), &["utxo", "scan", wanted, "--json"]);
        let error: &Value = &json(&output)["error"];
        assert_eq!((output.status.code(), &error["kind"]), (Some(2), &"usage".into()), "{error}");
        assert!(error["detail"].as_str().unwrap().contains(flaw), "{error}");
    }
}

/// Compares each field that Core prints with that of the report, in which amounts are in satoshis.
fn assert_same_fields(core: &Value, report: &Value, height: u32) {
    for (name, value) in core.as_object().unwrap() {
        let ours = match name.as_str() {
            "bestblock" => "block_hash".to_owned(),
            "txouts" => "coins".to_owned(),
            "height" | "muhash" | "bogosize" | "block_info" | "unspendables" => name.clone(),
            amount => format!("{amount}_sat"),
        };
        let found = report.get(&ours).unwrap_or_else(|| panic!("no {ours} in {report}"));
        match value {
            Value::Object(_) => assert_same_fields(value, found, height),
            Value::Number(amount) if ours.ends_with("_sat") => {
                let satoshis = (amount.as_f64().unwrap() * 1e8).round() as i64;
                assert_eq!(found.as_i64(), Some(satoshis), "{ours} at {height}");
            }
            value => assert_eq!(found, value, "{ours} at {height}"),
        }
    }
}

mod node {
    use super::*;
    use serde_json::json;
    use testkit::node::Node;

    #[test]
    fn statistics_at_heights_are_those_of_coinstatsindex() {
        let (dir, chain) = rebuilt();
        let tip = chain.tip().height;
        let report = json(&run(dir.path(), &["utxo", "stats", "--at", &format!("0-{tip}"), "--json"]));
        let heights = report["heights"].as_array().unwrap();
        assert_eq!(heights.len() as u32, tip + 1);
        assert_eq!(heights[tip as usize]["coins"], chain.model.stats().txouts);
        let Some(node) = Node::start(dir.path(), &["-coinstatsindex=1"]) else { return };
        node.wait_for_indexes().unwrap();
        for (report, height) in heights.iter().zip(0..) {
            let stats = node.call("gettxoutsetinfo", json!(["muhash", height])).unwrap();
            assert_same_fields(&stats, report, height);
        }
    }
}
