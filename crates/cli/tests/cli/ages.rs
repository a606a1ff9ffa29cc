//! `utxo ages` as users meet it: what it counts is what a naive program counts that reads the blocks with
//! another library.

#![cfg(feature = "export")]

use crate::common;

use bitcoin::{Block, OutPoint, Script, consensus::deserialize};
use common::{json, run_on_regtest as run};
use std::{collections::BTreeMap, fs, path::Path};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, datadir::Layout};

/// Number and amount of coins by height, first day of the band, and type of script.
type Counts = BTreeMap<(u32, u32, &'static str), (i64, i64)>;

const BANDS: [u32; 4] = [0, 1, 3, 10];

fn type_of(script: &Script) -> &'static str {
    match script.as_bytes() {
        _ if script.is_p2pkh() => "p2pkh",
        _ if script.is_p2sh() => "p2sh",
        _ if script.is_p2wpkh() => "p2wpkh",
        _ if script.is_p2wsh() => "p2wsh",
        _ if script.is_p2tr() => "p2tr",
        [0x51, 2, 0x4e, 0x73] => "p2a",
        _ if script.is_p2pk() => "p2pk",
        _ if script.is_multisig() => "multisig",
        _ => "other",
    }
}

fn counted(chain: &Chain, heights: &[u32]) -> Counts {
    let blocks: Vec<Block> = chain.main().map(|block| deserialize(&block.bytes).unwrap()).collect();
    let (mut coins, mut medians, mut counts) = (BTreeMap::new(), Vec::new(), Counts::new());
    for (block, height) in blocks.iter().zip(0u32..) {
        let mut last: Vec<u32> = blocks[height.saturating_sub(10) as usize..]
            .iter()
            .take(11.min(height as usize + 1))
            .map(|it| it.header.time)
            .collect();
        last.sort_unstable();
        medians.push(last[last.len() / 2]);
        for tx in block.txdata.iter().filter(|_| height > 0) {
            for input in &tx.input {
                assert_eq!(coins.remove(&input.previous_output).is_none(), tx.is_coinbase());
            }
            let txid = tx.compute_txid();
            for (output, vout) in tx.output.iter().zip(0..) {
                let script = &output.script_pubkey;
                if !script.is_op_return() && script.len() <= 10_000 {
                    let coin = (height, type_of(script), output.value.to_sat() as i64);
                    coins.insert(OutPoint { txid, vout }, coin);
                }
            }
        }
        if heights.contains(&height) {
            for (created, script_type, value) in coins.values() {
                let age = medians[height as usize] - medians[*created as usize];
                let band = BANDS.into_iter().rfind(|days| days * 86_400 <= age).unwrap();
                let count = counts.entry((height, band, script_type)).or_default();
                *count = (count.0 + 1, count.1 + value);
            }
        }
    }
    counts
}

/// What a CSV file has, in its order: height, first day of the band and type, and what is counted.
type Rows = Vec<((u32, u32, String), (i64, i64))>;

fn written(path: &Path) -> Rows {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "height,from_days,to_days,block_time,mediantime,script_type,coins,value"
    );
    let number = |text: &str| text.parse::<i64>().unwrap();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let key = (number(fields[0]) as u32, number(fields[1]) as u32, fields[5].to_owned());
            (key, (number(fields[6]), number(fields[7])))
        })
        .collect()
}

#[test]
fn ages_are_those_of_a_naive_count() {
    let chain = Chain::generate(&ChainSpec { blocks: Some(2_300), ..ChainSpec::new(23, 600_000) });
    let dir = TempDir::new().unwrap();
    chain.write_datadir(dir.path(), &Layout::new(23)).unwrap();
    assert!(run(dir.path(), &["reindex"]).status.success());
    let tip = chain.tip().height;
    let expected = counted(&chain, &[0, 1, 150, 999, 1000, 1001, tip]);
    let bands = expected.keys().map(|key| key.1).collect::<std::collections::BTreeSet<_>>();
    assert!(bands.len() == BANDS.len() && expected.len() > 40, "{bands:?}");
    for (name, words) in [
        ("one", &["--threads", "1", "--memory", "128M"][..]),
        ("eight", &["--threads", "8"]),
        ("live", &["--live", "--scan"]),
    ] {
        let file = dir.path().join(format!("{name}.csv"));
        let is_live = name == "live";
        let at = if is_live { "0-1,150,999-1001".to_owned() } else { format!("0-1,150,999-1001,{tip}") };
        let all = ["utxo", "ages", "--bands", "1,3,10", "--at", &at, "--json", "-o", file.to_str().unwrap()];
        let output = run(dir.path(), &[&all[..], words].concat());
        assert!(output.status.success(), "{output:?}");
        let expected = expected.iter().filter(|(key, _)| !is_live || key.0 < tip);
        let rows = written(&file);
        assert!(rows.is_sorted_by_key(|(key, _)| (key.0, key.1)));
        let rows: BTreeMap<_, _> =
            rows.iter().map(|((a, b, c), held)| ((*a, *b, c.as_str()), held)).collect();
        assert!(rows.into_iter().eq(expected.map(|(key, held)| (*key, held))), "{name}");
        if !is_live {
            let last = json(&output)["heights"].as_array().unwrap().last().unwrap().clone();
            let model = &chain.model;
            assert_eq!(last["coins"], model.coins.len(), "{last}");
            assert_eq!(last["total_amount_sat"], model.coins.values().map(|coin| coin.amount).sum::<i64>());
        }
    }
}
