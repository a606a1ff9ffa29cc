//! The cost of an aggregate per element: each kind, without and with the coin, on one thread. Every other
//! element is subtracted. SHA-256 is measured with each kernel.

use crate::Subject;
use bench::{Answers, work};
use coins::aggregate::{Aggregate, AggregateKey, AggregateKind};
use criterion::{BenchmarkId, Criterion, Throughput};
use digest::kernel::Kernel;
use std::hint::black_box;

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, _: &mut Answers) {
    let elements = work::spent_coins(subject.blocks);
    for full in [false, true] {
        let name = if full { "aggregate of coins" } else { "aggregate of outpoints" };
        let mut group = criterion.benchmark_group(name);
        let others = AggregateKind::ALL.into_iter().filter(|kind| *kind != AggregateKind::Sha256);
        let sha256 = Kernel::available().into_iter().map(|kernel| (AggregateKind::Sha256, kernel));
        for (kind, kernel) in sha256.chain(others.map(|kind| (kind, Kernel::active()))) {
            let few =
                if kind == AggregateKind::MuHash3072 { elements.len().min(1_000) } else { elements.len() };
            let aggregate = Aggregate::with_kernel(kind, AggregateKey::new([1; 32]), kernel);
            let mut sum = aggregate.sum();
            group.throughput(Throughput::Elements(few as u64));
            let id = match kind {
                AggregateKind::Sha256 => BenchmarkId::new(kind.name(), kernel.name()),
                _ => BenchmarkId::from_parameter(kind),
            };
            group.bench_function(id, |b| {
                b.iter(|| {
                    for (number, (outpoint, coin)) in elements[..few].iter().enumerate() {
                        let coin = full.then_some(*coin);
                        if number % 2 == 0 {
                            sum.add(black_box(outpoint), coin);
                        } else {
                            sum.subtract(black_box(outpoint), coin);
                        }
                    }
                });
            });
            black_box(sum.to_bytes());
        }
    }
}
