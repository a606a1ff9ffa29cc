//! Prints the cost of each hash of this crate on this machine:
//! `cargo run --release -p peregrine-digest --example throughput`.
//!
//! It reports the best of many rounds, in ns or GB/s, with a checksum of the results, which exposes wrong
//! results and keeps the compiler from removing the work. Arguments are files of raw blocks, which are cut
//! into messages of the lengths below, so that real data is hashed.

use std::hint::black_box;
use std::time::Instant;

use peregrine_digest::kernel::Kernel;
use peregrine_digest::muhash::MuHash3072;
use peregrine_digest::obfuscation::Obfuscation;
use peregrine_digest::sha256::{Message, Sha256, sha256d_many_with, sha256d_pairs_with};
use peregrine_digest::siphash::{SipHash13Uj, siphash24};

/// Returns the shortest time of a call in ns.
fn best_ns(mut call: impl FnMut()) -> f64 {
    let mut best_ns = f64::MAX;
    let start = Instant::now();
    while start.elapsed().as_millis() < 400 {
        let start = Instant::now();
        call();
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64);
    }
    best_ns
}

/// Cuts `data` into messages of three parts, with the lengths of transactions in blocks since 2020 (most have
/// 190 to 700 bytes).
fn transactions(data: &[u8]) -> Vec<Message<'_>> {
    const LENGTHS: [usize; 16] =
        [191, 113, 222, 250, 223, 226, 370, 138, 191, 259, 520, 223, 374, 667, 1_100, 222];
    let (mut rest, mut number, mut messages) = (data, 0_usize, Vec::new());
    loop {
        let noise = number.wrapping_mul(0x9e37_79b9) >> 7;
        let length = match number % 200 {
            199 => 16_000 + noise % 60_000,
            99 => 2_000 + noise % 10_000,
            _ => LENGTHS[noise % 16],
        };
        if length > rest.len() {
            return messages;
        }
        let (message, tail) = rest.split_at(length);
        messages.push(Message([&message[..4], &message[4..length - 4], &message[length - 4..]]));
        (rest, number) = (tail, number + 1);
    }
}

fn measure_batch(kernel: Kernel, label: &str, messages: &[Message<'_>]) {
    let bytes: usize = messages.iter().map(Message::len).sum();
    let mut out = Vec::with_capacity(messages.len());
    let time = best_ns(|| {
        out.clear();
        sha256d_many_with(kernel, black_box(messages), &mut out);
    });
    let sum = out.iter().fold(0_u32, |sum, digest| sum.wrapping_mul(31).wrapping_add(u32::from(digest[0])));
    let (each, rate) = (time / messages.len() as f64, bytes as f64 / time);
    println!("{:8} {label:34} {each:9.1} ns each {rate:6.2} GB/s  [{sum:08x}]", kernel.name());
}

fn main() -> std::io::Result<()> {
    let mut data = Vec::new();
    for path in std::env::args().skip(1) {
        data.extend(std::fs::read(path)?);
    }
    if data.len() < 4_000_000 {
        data.extend((data.len()..4_000_000).map(|i| (i * i) as u8));
    }
    for kernel in Kernel::available() {
        let mut hasher = Sha256::with_kernel(kernel);
        let time = best_ns(|| hasher.update(black_box(&data[..1 << 20])));
        println!("{:8} stream of 1 MiB {:39.2} GB/s", kernel.name(), (1 << 20) as f64 / time);
        for length in [60, 119, 250, 500, 1_000, 16_000] {
            let messages: Vec<_> = data.chunks_exact(length).take(2_500).map(Message::from).collect();
            measure_batch(kernel, &format!("{} messages of {length} B", messages.len()), &messages);
        }
        let messages = transactions(&data);
        measure_batch(kernel, &format!("{} transactions", messages.len()), &messages);
        measure_batch(kernel, "2500 transactions", &messages[..2_500]);
        measure_batch(kernel, "100 transactions", &messages[..100]);
        let nodes: Vec<[u8; 32]> = data.as_chunks::<32>().0[..5_000].to_vec();
        let mut out = Vec::with_capacity(2_500);
        let time = best_ns(|| {
            out.clear();
            sha256d_pairs_with(kernel, black_box(&nodes), &mut out);
        });
        println!("{:8} 2500 pairs {:33.1} ns each", kernel.name(), time / 2_500.0);
    }

    let time = best_ns(|| Obfuscation::from_key(*b"8 bytes.").apply(black_box(&mut data[..1 << 18]), 3));
    println!("obfuscation of 256 KiB {:41.2} GB/s", (1 << 18) as f64 / time);
    let (nodes, uj) = (data.as_chunks::<32>().0, SipHash13Uj::new(1, 2));
    let mut sum = 0_u64;
    let time = best_ns(|| {
        sum = nodes[..1_000].iter().fold(sum, |sum, txid| sum.wrapping_add(uj.hash_outpoint(txid, 7)))
    });
    println!("siphash-1-3-uj of an outpoint {:16.1} ns  [{sum:016x}]", time / 1_000.0);
    let time = best_ns(|| {
        sum = nodes[..1_000].iter().fold(sum, |sum, txid| sum.wrapping_add(siphash24(1, 2, txid)))
    });
    println!("siphash-2-4 of 32 B {:26.1} ns  [{sum:016x}]", time / 1_000.0);
    let mut set = MuHash3072::new();
    let time = best_ns(|| nodes[..100].iter().for_each(|node| set.insert(node)));
    println!("muhash insert {:32.1} ns", time / 100.0);
    let time = best_ns(|| set.combine(black_box(&MuHash3072::new())));
    println!("muhash combine (two products) {:16.1} ns", time);
    set.remove(&nodes[0]);
    let start = Instant::now();
    let value = set.finalize()[0];
    println!("muhash finalize {:30} us  [{value:02x}]", start.elapsed().as_micros());
    Ok(())
}
