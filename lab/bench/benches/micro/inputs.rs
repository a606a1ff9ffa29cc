//! The check that inputs are distinct, for transactions of one, two and many inputs, which are compared in
//! different ways.
//!
//! The check is fused with others. So the benchmark checks whole blocks that differ only in the number of
//! inputs: they have the same number of transactions, hence of merkle nodes. It also measures the
//! alternatives on the worst transaction, of which Core uses the ordered set; on all transactions of a chain,
//! the proposals do (`duplicates`).

use crate::Subject;
use bench::{Answers, baseline::distinct};
use bitcoin::{
    Amount, OutPoint, ScriptBuf, Transaction, TxIn, TxOut, Txid as BitcoinTxid, absolute::LockTime,
    consensus::serialize, hashes::Hash as _, transaction::Version,
};
use criterion::{BenchmarkId, Criterion, Throughput};
use digest::sha256::sha256;
use rules::{BlockContext, ChainParams, TxContext, check_block, check_tx, inputs_are_distinct_and_not_null};
use std::hint::black_box;
use testkit::{
    block::{HeaderPlan, assemble, coinbase},
    make::MadeTx,
};
use wire::{BlockArena, BlockTime, Height, Network, TxIndex, TxView, Txid};

/// Number of transactions in a block, without the coinbase.
const TXS: u32 = 200;
const INPUTS: [u32; 5] = [1, 2, 3, 10, 100];
/// Number of inputs of 41 bytes in a transaction that fills a block, except the repeated one.
const MOST_INPUTS: u32 = 24_300;

pub fn benches(criterion: &mut Criterion, _: &Subject<'_>, answers: &mut Answers) {
    let mut group = criterion.benchmark_group("rules of 200 transactions");
    for inputs in INPUTS {
        let (bytes, txids) = block(inputs);
        let mut arena = BlockArena::default();
        let view = arena.parse(&bytes).expect("the block is well-formed");
        let context = BlockContext {
            params: ChainParams::of(Network::Regtest),
            height: Height(1),
            block: &view,
            txids: &txids,
            wtxids: &[],
            median_time_past_prev: BlockTime(0),
        };
        let legacy_sigops = check_block(&context).expect("it is valid");
        answers.add("inputs", &legacy_sigops.to_le_bytes());
        group.throughput(Throughput::Elements(u64::from(TXS * inputs)));
        group.bench_function(BenchmarkId::new("check_block", inputs), |b| {
            b.iter(|| check_block(black_box(&context)).is_ok());
        });
    }
    group.finish();
    repeated(criterion);
}

/// Measures the worst transaction: as many inputs as a block has room for, the last of which repeats the one
/// before it.
fn repeated(criterion: &mut Criterion) {
    let mut tx = transaction(0, MOST_INPUTS);
    if let Some(last) = tx.input.last().cloned() {
        tx.input.push(last);
    }
    let (bytes, mut arena) = (serialize(&tx), BlockArena::default());
    let view = arena.parse_tx(&bytes).expect("the transaction is well-formed");
    let (mut keys, params) = (Vec::new(), ChainParams::of(Network::Regtest));
    let context = TxContext { params, height: Height(1), tx: &view, tx_index: TxIndex(1) };
    let broken = check_tx(&context).expect_err("an input is repeated").rule.id;
    assert_eq!(broken, "distinct-inputs");

    let mut group = criterion.benchmark_group("a repeated input");
    group.throughput(Throughput::Elements(view.input_count() as u64));
    let mut bench = |name: &str, mut are_distinct: Box<dyn FnMut(&TxView<'_>) -> bool + '_>| {
        assert!(!are_distinct(&view), "{name}");
        group.bench_function(name, |b| b.iter(|| are_distinct(black_box(&view))));
    };
    bench("BTreeSet", Box::new(distinct::by_ordered_set));
    bench("HashSet", Box::new(distinct::by_hash_set));
    bench("sorted outpoints", Box::new(distinct::by_sorting::<true>));
    bench("sorted keys", Box::new(|tx| inputs_are_distinct_and_not_null(tx, &mut keys)));
    bench("all rules of a transaction, to the violation", Box::new(|_| check_tx(&context).is_ok()));
}

fn output() -> TxOut {
    TxOut { value: Amount::from_sat(1_000), script_pubkey: ScriptBuf::from_bytes(vec![0x51]) }
}

/// Returns a transaction with `inputs` inputs, which no transaction of another number has.
fn transaction(number: u32, inputs: u32) -> Transaction {
    let input = |number: u32| {
        let txid = BitcoinTxid::from_byte_array(sha256(&number.to_le_bytes()));
        TxIn { previous_output: OutPoint { txid, vout: number % 3 }, ..TxIn::default() }
    };
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: (number * inputs..(number + 1) * inputs).map(input).collect(),
        output: vec![output()],
    }
}

/// Returns a valid first block of regtest, whose transactions have `inputs` inputs each, and its txids.
fn block(inputs: u32) -> (Vec<u8>, Vec<Txid>) {
    let first = MadeTx::new(&coinbase(1, 0, vec![output()]), Vec::new());
    let txs: Vec<_> = (0..TXS).map(|number| MadeTx::new(&transaction(number, inputs), Vec::new())).collect();
    let plan = HeaderPlan { height: 1, prev: wire::BlockHash::default(), version: 4, time: 1 };
    let block = assemble(plan, &first, &txs, true);
    let txids = std::iter::once(&first).chain(&txs).map(|tx| Txid(tx.txid)).collect();
    (block.bytes, txids)
}
