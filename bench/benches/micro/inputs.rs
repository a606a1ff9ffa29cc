//! The check that inputs are distinct, for transactions of one, two and many inputs, which are compared in
//! different ways.
//!
//! The check is not a separate public function, since it is fused with others. So the benchmark checks whole
//! blocks that differ only in the number of inputs: they have the same number of transactions, hence of
//! merkle nodes. It also measures the alternatives with sets; Core uses the ordered one.

use crate::Subject;
use bench::Answers;
use bitcoin::{
    Amount, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid as BitcoinTxid, Witness,
    absolute::LockTime, hashes::Hash as _, transaction::Version,
};
use criterion::{BenchmarkId, Criterion, Throughput};
use digest::sha256::sha256;
use rules::{BlockContext, ChainParams, check_block};
use std::{
    collections::{BTreeSet, HashSet},
    hint::black_box,
};
use testkit::{
    block::{HeaderPlan, assemble, coinbase},
    make::MadeTx,
};
use wire::{BlockArena, BlockTime, Height, Network, Txid};

/// Number of transactions in a block, without the coinbase.
const TXS: u32 = 200;
const INPUTS: [u32; 5] = [1, 2, 3, 10, 100];

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
        let sums = check_block(&context).expect("it is valid");
        answers.add("inputs", &sums.legacy_sigops.to_le_bytes());
        group.throughput(Throughput::Elements(u64::from(TXS * inputs)));
        group.bench_function(BenchmarkId::new("check_block", inputs), |b| {
            b.iter(|| check_block(black_box(&context)).is_ok());
        });
        group.bench_function(BenchmarkId::new("inputs in a BTreeSet", inputs), |b| {
            b.iter(|| {
                black_box(&view).txs().all(|tx| {
                    let mut seen = BTreeSet::new();
                    tx.inputs().all(|input| seen.insert(input.prevout()))
                })
            });
        });
        group.bench_function(BenchmarkId::new("inputs in a HashSet", inputs), |b| {
            b.iter(|| {
                black_box(&view).txs().all(|tx| {
                    let mut seen = HashSet::new();
                    tx.inputs().all(|input| seen.insert(input.prevout()))
                })
            });
        });
    }
}

/// Returns a valid first block of regtest, whose transactions have `inputs` inputs each, and its txids.
fn block(inputs: u32) -> (Vec<u8>, Vec<Txid>) {
    let output = TxOut { value: Amount::from_sat(1_000), script_pubkey: ScriptBuf::from_bytes(vec![0x51]) };
    let input = |number: u32| TxIn {
        previous_output: OutPoint {
            txid: BitcoinTxid::from_byte_array(sha256(&number.to_le_bytes())),
            vout: number % 3,
        },
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let tx = |number: u32| Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: (number * inputs..(number + 1) * inputs).map(input).collect(),
        output: vec![output.clone()],
    };
    let first = MadeTx::new(&coinbase(1, 0, vec![output.clone()]), Vec::new());
    let txs: Vec<_> = (0..TXS).map(|number| MadeTx::new(&tx(number), Vec::new())).collect();
    let plan = HeaderPlan { height: 1, prev: wire::BlockHash::default(), version: 4, time: 1 };
    let block = assemble(plan, &first, &txs, true);
    let txids = std::iter::once(&first).chain(&txs).map(|tx| Txid(tx.txid)).collect();
    (block.bytes, txids)
}
