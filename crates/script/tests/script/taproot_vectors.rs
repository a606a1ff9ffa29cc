//! The taproot suite `script_assets_test.json` and BIP-0341's wallet vectors.

use crate::{common, prelude::*};

use common::{SpentOutput, all_flags, parse_flags, passes, prepare, text, unhex};
use rayon::prelude::*;
use std::fs::File;

fn coins_of(prevouts: &Value) -> Vec<SpentOutput> {
    let outputs = prevouts.as_array().unwrap().iter();
    let outputs = outputs.map(|output| deserialize::<TxOut>(&unhex(text(output))).unwrap());
    outputs
        .map(|output| (Sats(output.value.to_sat().cast_signed()), output.script_pubkey.into_bytes()))
        .collect()
}

/// Returns the case's transaction with the input data of variant `way`; `None` if the case does not have
/// it.
fn with_input(case: &Value, way: &str) -> Option<TxScripts> {
    let way = case.get(way)?;
    let mut tx: Transaction = deserialize(&unhex(text(&case["tx"]))).unwrap();
    let input = &mut tx.input[case["index"].as_u64().unwrap() as usize];
    input.script_sig = ScriptBuf::from_bytes(unhex(text(&way["scriptSig"])));
    let items: Vec<_> = way["witness"].as_array().unwrap().iter().map(|item| unhex(text(item))).collect();
    input.witness = Witness::from_slice(&items);
    Some(prepare(&serialize(&tx), &coins_of(&case["prevouts"])))
}

/// Runs one case under all flags for which its verdict is known; returns the numbers of successes and
/// failures.
fn run(case: &Value) -> [u32; 2] {
    let index = case["index"].as_u64().unwrap() as u32;
    let (flags, policy) = parse_flags(text(&case["flags"]));
    assert!(policy.is_empty());
    let is_final = case["final"].as_bool() == Some(true);
    let mut counts = [0; 2];
    if let Some(scripts) = with_input(case, "success") {
        counts[0] += 1;
        // Cases marked final pass under any flags, all others under fewer than their own.
        for fewer in all_flags().into_iter().filter(|fewer| is_final || flags.contains(*fewer)) {
            assert!(passes(&scripts, index..index + 1, fewer), "{fewer}: {}", case["comment"]);
        }
    }
    if let Some(scripts) = with_input(case, "failure") {
        counts[1] += 1;
        for more in all_flags().into_iter().filter(|more| more.contains(flags)) {
            assert!(!passes(&scripts, index..index + 1, more), "{more}: {}", case["comment"]);
        }
    }
    counts
}

#[test]
fn script_assets() {
    // Core's sources do not have these.
    let Some(path) = shared_data("consensus/script_assets_test.json.xz") else { return };
    let file = liblzma::read::XzDecoder::new(File::open(path).unwrap());
    let cases: Vec<Value> = serde_json::from_reader(file).unwrap();
    let counts: Vec<_> = cases.par_iter().map(run).collect();
    let [successes, failures] = counts.iter().fold([0; 2], |sum, count| [0, 1].map(|at| sum[at] + count[at]));
    assert_eq!((counts.len(), successes, failures), (2244, 2244, 1493));
}

/// The transaction of the wallet vectors spends by key path with all hash types.
#[test]
fn wallet_vectors() {
    let vectors = common::vectors("bip341_wallet_vectors.json");
    let mut inputs = 0;
    for case in vectors["keyPathSpending"].as_array().unwrap() {
        let bytes = unhex(text(&case["auxiliary"]["fullySignedTx"]));
        let spent = case["given"]["utxosSpent"].as_array().unwrap().iter();
        let coin = |it: &Value| (Sats(it["amountSats"].as_i64().unwrap()), unhex(text(&it["scriptPubKey"])));
        let coins: Vec<SpentOutput> = spent.map(coin).collect();
        let scripts = prepare(&bytes, &coins);
        assert!(passes(&scripts, 0..scripts.input_count(), ScriptFlags::all()));
        // Each coin's amount is signed by the inputs that do not leave the others out.
        for changed in 0..coins.len() {
            let mut coins = coins.clone();
            coins[changed].0.0 += 1;
            let scripts = prepare(&bytes, &coins);
            assert!(!passes(&scripts, 0..scripts.input_count(), ScriptFlags::all()), "{changed}");
        }
        inputs += scripts.input_count();
    }
    assert_eq!(inputs, 9);
}
