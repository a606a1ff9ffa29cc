//! The join over the whole chain: what blocks create and spend, staged, matched, and sorted at the end.

use crate::Subject;
use bench::Answers;
use coins::{BlockDelta, Join, Survivors};
use criterion::{BatchSize, Criterion, Throughput};
use std::hint::black_box;

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let mut operations = 0;
    let survivors = join(subject, &mut operations);
    let mut hash = Vec::new();
    let coins = survivors.size().coins;
    for shard in survivors.into_shards() {
        for (outpoint, coin) in shard.sort().iter() {
            hash.extend_from_slice(&outpoint.txid.0);
            coin.write_chainstate_value(&mut hash);
        }
    }
    answers.add("join", &hash);

    let mut group = criterion.benchmark_group("join");
    group.throughput(Throughput::Elements(operations));
    group.bench_function("creations and spends", |b| b.iter(|| join(subject, &mut 0)));
    group.throughput(Throughput::Elements(coins));
    group.bench_function("sort and walk survivors", |b| {
        b.iter_batched(
            || join(subject, &mut 0),
            |survivors| {
                let sorted = survivors.into_shards().into_iter().map(|shard| shard.sort());
                sorted
                    .map(|coins| black_box(coins.iter()).map(|entry| entry.coin.out.len()).sum::<usize>())
                    .sum::<usize>()
            },
            BatchSize::PerIteration,
        );
    });
}

/// Counts all creations and spends in `operations`, those inside one block included.
fn join(subject: &Subject<'_>, operations: &mut u64) -> Survivors {
    let join = Join::new((1, 2));
    let (mut effects, mut delta) = (join.effects(), BlockDelta::default());
    for block in subject.blocks {
        let tally = delta.apply(&block.view, &block.txids, block.height, &block.claims, &mut effects);
        *operations += u64::from(tally.created + tally.spent);
    }
    drop(effects);
    join.finish().expect("generated chains are valid")
}
