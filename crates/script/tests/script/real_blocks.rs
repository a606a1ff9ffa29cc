//! Real mainnet blocks with the coins that they spend: every input passes under the flags of its block, and
//! fails if any data that it signs or that locks it is changed. Prints the time of each kind of script.

use crate::common;

use bitcoinkernel::{PrecomputedTransactionData, ScriptPubkey, Transaction, TxOut};
use common::{Changes, Costs, SpentOutput, kind_of, prepare, text, unhex};
use rules::{ChainParams, script_flags};
use serde_json::Value;
use std::{
    fs,
    time::{Duration, Instant},
};
use testkit::data::shared_data;
use wire::{BlockArena, BlockView, Height, Network, Sats, ScriptFlags, TxView};

const HEIGHTS: [u32; 9] = [170, 57_043, 116_928, 150_013, 210_000, 255_018, 388_381, 481_824, 709_632];

/// Number of coins that these blocks spend.
const INPUTS: u32 = 15_024;

/// Returns the coins that a block spends, in input order.
fn coins_of(height: u32) -> Option<Vec<SpentOutput>> {
    let rows = fs::read_to_string(shared_data(&format!("prevouts/{height}.prevouts.jsonl"))?).unwrap();
    let coin = |row: &str| {
        let coin: Value = serde_json::from_str(row).unwrap();
        (Sats(coin["value"].as_i64().unwrap()), unhex(text(&coin["script"])))
    };
    Some(rows.lines().map(coin).collect())
}

/// Calls `each` for every transaction except the coinbase, with its coins.
fn for_each_tx(
    block: &BlockView<'_>,
    mut coins: &[SpentOutput],
    mut each: impl FnMut(TxView<'_>, &[SpentOutput]),
) {
    for tx in block.txs().skip(1) {
        let (own, rest) = coins.split_at(tx.input_count());
        each(tx, own);
        coins = rest;
    }
    assert!(coins.is_empty());
}

/// Calls `each` for every transaction of all real blocks, with height and flags; returns whether there are
/// any.
fn for_each_real_tx(mut each: impl FnMut(u32, ScriptFlags, TxView<'_>, &[SpentOutput])) -> bool {
    for height in HEIGHTS {
        let Some(coins) = coins_of(height) else { return false };
        let bytes = fs::read(shared_data(&format!("blocks/{height}.raw")).unwrap()).unwrap();
        let mut arena = BlockArena::default();
        let block = arena.parse(&bytes).unwrap();
        let params = ChainParams::of(Network::Main);
        let flags = script_flags(params, Height(height), &block.header().hash());
        for_each_tx(&block, &coins, |tx, coins| each(height, flags, tx, coins));
    }
    true
}

/// Adds the time of the steps of preparing a transaction in the kernel: coins, parsing, shared hashes.
fn time_steps(steps: &mut [Duration; 3], tx: &[u8], coins: &[SpentOutput]) {
    let start = Instant::now();
    let output = |coin: &SpentOutput| TxOut::new(&ScriptPubkey::new(&coin.1).unwrap(), coin.0.0);
    let coins: Vec<_> = coins.iter().map(output).collect();
    steps[0] += start.elapsed();
    let start = Instant::now();
    let tx = Transaction::new(tx).unwrap();
    steps[1] += start.elapsed();
    let start = Instant::now();
    let shared = PrecomputedTransactionData::new(&tx, &coins).unwrap();
    steps[2] += start.elapsed();
    drop((tx, coins, shared));
}

#[test]
fn all_inputs_pass() {
    let mut costs = Costs::default();
    let (mut txs, mut bytes, mut inputs) = (0u32, 0, 0);
    let mut steps = [Duration::ZERO; 3];
    let found = for_each_real_tx(|height, flags, tx, coins| {
        time_steps(&mut steps, tx.bytes(), coins);
        let scripts = prepare(tx.bytes(), coins);
        for (at, (input, coin)) in (0..).zip(tx.inputs().zip(coins)) {
            let kind = kind_of(&input, &coin.1);
            let result = costs.verify(kind, &scripts, at, flags);
            assert_eq!(result, Ok(()), "{height}: {}", input.prevout());
            inputs += 1;
        }
        txs += 1;
        bytes += tx.total_size();
    });
    if !found {
        return;
    }
    let each = |time: Duration, count: u32| time.as_secs_f64() * 1e6 / f64::from(count);
    println!("{txs} transactions, {bytes} bytes, {inputs} inputs of {} blocks pass", HEIGHTS.len());
    for (step, time) in
        ["hand over its coins", "parse it", "hash what its signatures share"].iter().zip(steps)
    {
        println!(
            "  {:6.2} us a transaction to {step}: {:.2} us an input",
            each(time, txs),
            each(time, inputs)
        );
    }
    costs.print();
    assert_eq!(inputs, INPUTS);
}

#[test]
fn every_change_of_signed_data_fails() {
    let mut changes = Changes::default();
    let found = for_each_real_tx(|_, flags, tx, coins| changes.try_all(&tx, coins, flags));
    println!("{changes:?}");
    assert_eq!(changes.survivors, Vec::<String>::new());
    assert!(!found || changes.lock_time == INPUTS && changes.amount > 3_000 && changes.script_sig > 9_000);
}
