//! Measures the cost of an aggregate per element: each kind, without and with the coin, on one thread.
//!
//! `cargo bench -p bench --bench aggregate`. Elements are outpoints in no particular order, some added, some
//! subtracted; coins have the most frequent forms of outputs on mainnet. SHA-256 is measured with each
//! kernel.

use coins::aggregate::{Aggregate, AggregateKey, AggregateKind};
use criterion::{BenchmarkId, Criterion, Throughput};
use digest::{kernel::Kernel, sha256::sha256};
use std::{hint::black_box, time::Duration};
use wire::{Coin, Height, OutPoint, Sats, Txid, coin::compress_output};

const ELEMENTS: u32 = 20_000;

/// Returns outpoints with the compressed outputs of their coins.
fn elements() -> Vec<(OutPoint, Vec<u8>)> {
    let hash = |bytes: u8| [bytes; 32];
    let p2pkh = [&[0x76, 0xa9, 20][..], &hash(1)[..20], &[0x88, 0xac]].concat();
    let p2sh = [&[0xa9, 20][..], &hash(2)[..20], &[0x87]].concat();
    let p2wpkh = [&[0, 20][..], &hash(3)[..20]].concat();
    let p2wsh = [&[0, 32][..], &hash(4)].concat();
    let p2tr = [&[0x51, 32][..], &hash(5)].concat();
    let scripts = [&p2wpkh, &p2pkh, &p2tr, &p2wpkh, &p2sh, &p2wpkh, &p2pkh, &p2wsh];
    let element = |number: u32| {
        let mut out = Vec::new();
        let script = scripts[number as usize % scripts.len()];
        compress_output(&mut out, Sats(i64::from(number) * 7_919 + 546), script);
        (OutPoint { txid: Txid(sha256(&number.to_le_bytes())), vout: number % 3 }, out)
    };
    (0..ELEMENTS).map(element).collect()
}

fn main() {
    let elements = elements();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    for full in [false, true] {
        let name = if full { "aggregate of coins" } else { "aggregate of outpoints" };
        let mut group = criterion.benchmark_group(name);
        let others = AggregateKind::ALL.into_iter().filter(|kind| *kind != AggregateKind::Sha256);
        let sha256 = Kernel::available().into_iter().map(|kernel| (AggregateKind::Sha256, kernel));
        for (kind, kernel) in sha256.chain(others.map(|kind| (kind, Kernel::active()))) {
            let few = if kind == AggregateKind::MuHash3072 { 1_000 } else { elements.len() };
            let aggregate = Aggregate::with_kernel(kind, AggregateKey::new([1; 32]), kernel);
            let mut sum = aggregate.sum();
            group.throughput(Throughput::Elements(few as u64));
            let id = match kind {
                AggregateKind::Sha256 => BenchmarkId::new(kind.name(), kernel.name()),
                _ => BenchmarkId::from_parameter(kind),
            };
            group.bench_function(id, |b| {
                b.iter(|| {
                    for (number, (outpoint, out)) in (0u32..).zip(&elements[..few]) {
                        let code = Coin::code_of(Height(number), false);
                        let coin = full.then_some(Coin { code, out });
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
        group.finish();
    }
    criterion.final_summary();
}
