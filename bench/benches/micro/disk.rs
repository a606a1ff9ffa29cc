//! Undo data, and chainstate tables written to and read from memory (`/dev/shm`, if it exists).

use crate::{Subject, temporary};
use bench::{Answers, work};
use criterion::{BatchSize, Criterion, Throughput};
use disk::undo::{UndoArena, UndoView};
use std::hint::black_box;

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let undo = subject.block.undo;
    let mut arena = UndoArena::default();
    let mut group = criterion.benchmark_group("undo");
    group.throughput(Throughput::Bytes(undo.len() as u64));
    group.bench_function("parse", |b| {
        b.iter(|| UndoView::parse(black_box(undo), &mut arena).map(|view| view.coin_count()));
    });
    group.finish();
    let view = UndoView::parse(undo, &mut arena).expect("generated undo data is well-formed");
    answers.add("undo", &view.coins().flat_map(|coin| coin.out).copied().collect::<Vec<_>>());

    let coins = work::spent_coins(subject.blocks);
    let dir = temporary();
    work::write_chainstate(dir.path(), &coins);
    let reader = work::open_chainstate(dir.path());
    answers.add("chainstate", work::utxo_hash(work::read_chainstate(&reader)).as_bytes());

    let mut group = criterion.benchmark_group("chainstate");
    group.throughput(Throughput::Elements(coins.len() as u64));
    group.bench_function("write", |b| {
        b.iter_batched(temporary, |dir| work::write_chainstate(dir.path(), &coins), BatchSize::PerIteration);
    });
    group.bench_function("read and serialise for the UTXO hash", |b| {
        b.iter(|| work::read_chainstate(&reader));
    });
}
