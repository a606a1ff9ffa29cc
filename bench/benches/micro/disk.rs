//! Undo data, and chainstate tables written to and read from memory (`/dev/shm`, where there is one).

use crate::Subject;
use bench::Answers;
use criterion::{Criterion, Throughput};
use digest::obfuscation::Obfuscation;
use disk::{
    chainstate::{ChainstateReader, ChainstateWriter},
    fs::RealDisk,
    undo::{UndoArena, UndoView},
    utxo_stats::{StatsPart, UtxoHasher},
};
use std::{hint::black_box, path::Path};
use tempfile::TempDir;
use wire::{BlockHash, Coin, OutPoint, coin::chainstate_key_order};

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

    let coins = coins(subject);
    let dir = temporary();
    write(dir.path(), &coins);
    let reader = ChainstateReader::open(&RealDisk, dir.path()).expect("what was written can be read");
    let walk = || {
        let (mut rows, mut part) = (reader.coins().expect("it can be read"), StatsPart::new(false));
        while let Some((outpoint, coin)) = rows.advance().expect("it is whole") {
            part.add(&outpoint, &coin).expect("coins are well-formed");
        }
        part
    };
    let mut hasher = UtxoHasher::new(false);
    hasher.merge(walk());
    answers.add("chainstate", format!("{:?}", hasher.finish()).as_bytes());

    let mut group = criterion.benchmark_group("chainstate");
    group.throughput(Throughput::Elements(coins.len() as u64));
    group.bench_function("write", |b| {
        b.iter_batched(temporary, |dir| write(dir.path(), &coins), criterion::BatchSize::PerIteration);
    });
    group.bench_function("read and serialise for the UTXO hash", |b| b.iter(walk));
}

fn temporary() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    dir.expect("temporary folders can be made")
}

/// All coins that the chain spends, one each, in key order.
fn coins<'a>(subject: &Subject<'a>) -> Vec<(OutPoint, Coin<'a>)> {
    let mut coins = Vec::new();
    for block in subject.blocks {
        let prevouts = block.view.txs().skip(1).flat_map(|tx| tx.inputs()).map(|input| input.prevout());
        coins.extend(prevouts.zip(block.claims.iter().copied()));
    }
    coins.sort_unstable_by(|(a, _), (b, _)| chainstate_key_order(a, b));
    coins
}

fn write(dir: &Path, coins: &[(OutPoint, Coin<'_>)]) {
    let key = Obfuscation::from_key([1, 2, 3, 4, 5, 6, 7, 8]);
    let writer = ChainstateWriter::create(&RealDisk, dir, key, 1).expect("the folder can be made");
    let mut rows = writer.range(0);
    for (outpoint, coin) in coins {
        rows.add(outpoint, coin).expect("coins are in order");
    }
    let rows = rows.finish().expect("tables can be written");
    writer.finish(BlockHash::default(), [rows]).expect("the database can be written");
}
