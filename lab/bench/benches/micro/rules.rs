//! The rules of one full block, without hashing its transactions.

use crate::Subject;
use bench::Answers;
use criterion::{Criterion, Throughput};
use rules::{BlockContext, BlockSpendContext, ChainParams, check_block, check_block_spends};
use std::hint::black_box;
use wire::Network;

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let (block, params) = (subject.block, ChainParams::of(Network::Regtest));
    let context = BlockContext {
        params,
        height: block.height,
        block: &block.view,
        txids: &block.txids,
        wtxids: &block.wtxids,
        median_time_past_prev: subject.inputs.median_times[block.height.0 as usize - 1],
    };
    let legacy_sigops = check_block(&context).expect("generated blocks are valid");
    let spends = BlockSpendContext {
        params,
        height: block.height,
        hash: &block.hash,
        block: &block.view,
        coins: &block.spent,
        mtp_by_height: &subject.inputs.median_times,
        legacy_sigops,
    };
    let totals = check_block_spends(&spends).expect("generated blocks are valid");
    answers.add(
        "rules",
        &[legacy_sigops.into(), totals.fees.0 as u64, totals.sigop_cost].map(u64::to_le_bytes).concat(),
    );

    let mut group = criterion.benchmark_group("rules");
    group.throughput(Throughput::Bytes(block.view.bytes().len() as u64));
    group.bench_function("check_block", |b| b.iter(|| check_block(black_box(&context)).is_ok()));
    group.throughput(Throughput::Elements(block.spent.len() as u64));
    group.bench_function("check_block_spends", |b| b.iter(|| check_block_spends(black_box(&spends)).is_ok()));
}
