//! The join over the whole chain: creations and spends are staged and matched, and the survivors sorted; and
//! the same in parts, with sorted runs in memory (`/dev/shm`, if it exists) and a merge.

use crate::{Subject, temporary};
use bench::{Answers, work};
use criterion::{BatchSize, Criterion, Throughput};

/// Number of sorted runs that are merged.
const PARTS: usize = 8;

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    join(criterion, subject, answers);
    runs(criterion, subject, answers);
}

fn join(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let (survivors, operations) = work::join(subject.blocks);
    let mut hash = Vec::new();
    let coins = survivors.size().coins as u64;
    for shard in survivors.into_shards() {
        for entry in shard.sort().iter() {
            hash.extend_from_slice(&entry.outpoint.txid.0);
            entry.coin.write_chainstate_value(&mut hash);
        }
    }
    answers.add("join", &hash);

    let mut group = criterion.benchmark_group("join");
    group.throughput(Throughput::Elements(operations));
    group.bench_function("creations and spends", |b| b.iter(|| work::join(subject.blocks)));
    group.throughput(Throughput::Elements(coins));
    group.bench_function("sort and walk survivors", |b| {
        b.iter_batched(|| work::join(subject.blocks).0, work::sort_and_walk, BatchSize::PerIteration);
    });
}

fn runs(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let dir = temporary();
    let parts = || work::join_parts(subject.blocks, PARTS);
    let write = |shards| work::write_run(&dir.path().join("written"), shards);
    let mut entries = Vec::new();
    for (part, shards) in parts().into_iter().enumerate() {
        entries.push(work::write_run(&dir.path().join(part.to_string()), shards));
    }
    let runs: Vec<_> = (0..PARTS).map(|part| work::open_run(&dir.path().join(part.to_string()))).collect();
    let (coins, bytes) = work::merge_runs(&runs);
    let joined = work::join(subject.blocks).0.size().coins as u64;
    assert_eq!(coins, joined, "the merge has the same survivors as the join");
    answers.add("merge", &[coins, bytes as u64].map(u64::to_le_bytes).concat());

    let mut group = criterion.benchmark_group("run");
    // The last part is the longest: the chain begins with small blocks.
    group.throughput(Throughput::Elements(entries[PARTS - 1]));
    group.bench_function("sort and write", |b| {
        b.iter_batched(
            || {
                // The writer creates a new file.
                let _ = std::fs::remove_file(dir.path().join("written"));
                parts().swap_remove(PARTS - 1)
            },
            write,
            BatchSize::PerIteration,
        );
    });
    group.bench_function("read", |b| b.iter(|| work::read_run(&runs[PARTS - 1])));
    group.throughput(Throughput::Elements(entries.iter().sum()));
    group.bench_function("read and merge 8", |b| b.iter(|| work::merge_runs(&runs)));
}
