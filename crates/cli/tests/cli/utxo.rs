//! `utxo stats --at` beside a real bitcoind.

use crate::prelude::*;

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
