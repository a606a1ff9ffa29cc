//! Parsing blocks, and compressing and decompressing coins.

use crate::Subject;
use bench::Answers;
use criterion::{Criterion, Throughput};
use std::hint::black_box;
use wire::{BlockArena, OutPoint, coin::compress_output};

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let bytes = subject.block.view.bytes();
    let mut arena = BlockArena::default();
    let mut group = criterion.benchmark_group("block");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("parse", |b| b.iter(|| arena.parse(black_box(bytes)).map(|block| block.tx_count())));
    group.finish();
    let counts =
        arena.parse(bytes).map(|block| [block.tx_count(), block.input_count(), block.output_count()]);
    let counts = counts.expect("generated blocks are well-formed").map(|count| count as u64);
    answers.add("block parse", counts.map(u64::to_le_bytes).as_flattened());

    let outputs: Vec<_> = subject.block.view.txs().flat_map(|tx| tx.outputs()).collect();
    let mut compressed = Vec::new();
    let mut group = criterion.benchmark_group("coin");
    group.throughput(Throughput::Elements(outputs.len() as u64));
    group.bench_function("compress", |b| {
        b.iter(|| {
            compressed.clear();
            for output in &outputs {
                compress_output(&mut compressed, black_box(output.value()), output.script_pubkey());
            }
        });
    });
    answers.add("coin compress", &compressed);

    let (claims, outpoint) = (&subject.block.claims, OutPoint::default());
    let mut elements = Vec::new();
    group.throughput(Throughput::Elements(claims.len() as u64));
    group.bench_function("decompress for the UTXO hash", |b| {
        b.iter(|| {
            elements.clear();
            for coin in claims {
                coin.write_utxo_element(&outpoint, &mut elements).expect("generated coins are well-formed");
            }
        });
    });
    answers.add("coin decompress", &elements);
}
