//! Hashes and obfuscation, SHA-256 with each kernel of this machine, compared with the crates `sha2`,
//! `bitcoin` and `siphasher`.

use crate::Subject;
use bench::{Answers, baseline::files::obfuscate_bytewise};
use criterion::{BenchmarkId, Criterion, Throughput};
use digest::{
    kernel::Kernel,
    muhash::MuHash3072,
    obfuscation::Obfuscation,
    sha256::{Message, sha256d_many_with, sha256d_pairs_with},
    siphash::{SipHash13Uj, siphash24},
};
use sha2::Digest as _;
use siphasher::sip::{SipHasher13, SipHasher24};
use std::{hash::Hasher, hint::black_box};

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    siphash(criterion, subject, answers);
    obfuscation(criterion, subject, answers);
    sha256(criterion, subject, answers);
    sha256_of_250_bytes(criterion, answers);
    muhash(criterion, subject, answers);
}

/// Replaces `digests` by the hashes of these messages.
fn hash_many(kernel: Kernel, messages: &[Message<'_>], digests: &mut Vec<[u8; 32]>) {
    digests.clear();
    sha256d_many_with(kernel, black_box(messages), digests);
}

/// Replaces `digests` by the hashes of these pairs of nodes.
fn hash_pairs(kernel: Kernel, nodes: &[[u8; 32]], digests: &mut Vec<[u8; 32]>) {
    digests.clear();
    sha256d_pairs_with(kernel, black_box(nodes), digests);
}

fn siphash(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let outpoints: Vec<_> =
        subject.block.view.txs().flat_map(|tx| tx.inputs()).map(|input| input.prevout()).collect();
    let keyed = SipHash13Uj::new(1, 2);
    let with_uj =
        || outpoints.iter().fold(0u64, |sum, it| sum.wrapping_add(keyed.hash_outpoint(&it.txid.0, it.vout)));
    let messages: Vec<[u8; 36]> = outpoints
        .iter()
        .map(|outpoint| {
            let mut message = [0; 36];
            message[..32].copy_from_slice(&outpoint.txid.0);
            message[32..].copy_from_slice(&outpoint.vout.to_le_bytes());
            message
        })
        .collect();
    let with_24 = || messages.iter().fold(0u64, |sum, message| sum.wrapping_add(siphash24(1, 2, message)));

    fn hash_of(mut hasher: impl Hasher, message: &[u8; 36]) -> u64 {
        hasher.write(message);
        hasher.finish()
    }
    let siphasher_24 = |message| hash_of(SipHasher24::new_with_keys(1, 2), message);
    let siphasher_13 = |message| hash_of(SipHasher13::new_with_keys(1, 2), message);
    assert!(messages.iter().all(|message| siphasher_24(message) == siphash24(1, 2, message)));
    let mut group = criterion.benchmark_group("siphash of an outpoint");
    group.throughput(Throughput::Elements(outpoints.len() as u64));
    group.bench_function("1-3-uj", |b| b.iter(|| black_box(with_uj())));
    group.bench_function("2-4", |b| b.iter(|| black_box(with_24())));
    group.bench_function("2-4, siphasher", |b| {
        b.iter(|| messages.iter().fold(0u64, |sum, message| sum.wrapping_add(siphasher_24(message))));
    });
    group.bench_function("1-3, siphasher", |b| {
        b.iter(|| messages.iter().fold(0u64, |sum, message| sum.wrapping_add(siphasher_13(message))));
    });
    group.finish();
    answers.add("siphash", [with_uj().to_le_bytes(), with_24().to_le_bytes()].as_flattened());
}

fn obfuscation(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let key = Obfuscation::from_key([1, 2, 3, 4, 5, 6, 7, 8]);
    let mut group = criterion.benchmark_group("obfuscation");
    let mut bytes = subject.block.view.bytes().to_vec();
    for (name, start) in [("aligned", 0), ("odd", 3)] {
        group.throughput(Throughput::Bytes((bytes.len() - start) as u64));
        group.bench_function(name, |b| b.iter(|| key.apply(black_box(&mut bytes[start..]), 5)));
        let mut once = subject.block.view.bytes().to_vec();
        key.apply(&mut once[start..], 5);
        answers.add("obfuscation", &once);
        let mut bytewise = subject.block.view.bytes().to_vec();
        obfuscate_bytewise(key.key(), &mut bytewise[start..], 5);
        assert_eq!(bytewise, once);
    }
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("byte by byte", |b| {
        b.iter(|| obfuscate_bytewise(key.key(), black_box(&mut bytes), 5));
    });
}

fn sha256(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let messages: Vec<Message<'_>> = subject.block.view.txs().map(|tx| tx.txid_message()).collect();
    let mut digests = Vec::new();
    let mut group = criterion.benchmark_group("sha256d of all transactions");
    group.throughput(Throughput::Bytes(messages.iter().map(|message| message.len() as u64).sum()));
    for kernel in Kernel::available() {
        group.bench_function(BenchmarkId::from_parameter(kernel.name()), |b| {
            b.iter(|| hash_many(kernel, &messages, &mut digests));
        });
    }
    group.finish();
    hash_many(Kernel::active(), &messages, &mut digests);
    answers.add("sha256d_many", digests.as_flattened());

    let leaves = digests.repeat(4096 / digests.len() + 1)[..4096].to_vec();
    let mut at_odd = vec![0];
    at_odd.extend_from_slice(leaves.as_flattened());
    let (odd, _) = at_odd[1..].as_chunks::<32>();
    let mut group = criterion.benchmark_group("sha256d of pairs");
    group.throughput(Throughput::Elements(leaves.len() as u64 / 2));
    for kernel in Kernel::available() {
        group.bench_function(BenchmarkId::from_parameter(kernel.name()), |b| {
            b.iter(|| hash_pairs(kernel, &leaves, &mut digests));
        });
        group.bench_function(BenchmarkId::new(kernel.name(), "odd address"), |b| {
            b.iter(|| hash_pairs(kernel, odd, &mut digests));
        });
    }
    hash_pairs(Kernel::active(), &leaves, &mut digests);
    answers.add("sha256d_pairs", digests.as_flattened());
}

/// Measures messages with the length of a usual transaction, at multiples of 64, or consecutively as in a
/// block and so at any address.
fn sha256_of_250_bytes(criterion: &mut Criterion, answers: &mut Answers) {
    const LENGTH: usize = 250;
    const COUNT: usize = 1_000;
    let mut bytes = vec![0; (COUNT + 1) * 257];
    let start = bytes.as_ptr().align_offset(64);
    bytes[start..].iter_mut().enumerate().for_each(|(number, byte)| *byte = ((number * 31) >> 3) as u8);
    let mut group = criterion.benchmark_group("sha256d of 250 bytes");
    group.throughput(Throughput::Elements(COUNT as u64));
    let mut expected = Vec::new();
    for (name, step) in [("aligned", 256), ("odd addresses", 257)] {
        let messages: Vec<Message<'_>> =
            (0..COUNT).map(|number| Message::from(&bytes[start + number * step..][..LENGTH])).collect();
        expected = messages.iter().map(|message| sha2_double(message.0[0])).collect();
        for kernel in Kernel::available() {
            let mut digests = Vec::new();
            group.bench_function(BenchmarkId::new(kernel.name(), name), |b| {
                b.iter(|| hash_many(kernel, &messages, &mut digests));
            });
            hash_many(kernel, &messages, &mut digests);
            assert_eq!(digests, expected);
        }
    }
    let message = &bytes[start..][..LENGTH];
    group.throughput(Throughput::Elements(1));
    group.bench_function("sha2", |b| b.iter(|| sha2_double(black_box(message))));
    group.bench_function("bitcoin", |b| {
        b.iter(|| <bitcoin::hashes::sha256d::Hash as bitcoin::hashes::Hash>::hash(black_box(message)));
    });
    answers.add("sha256d of 250 bytes", expected.as_flattened());
}

fn sha2_double(message: &[u8]) -> [u8; 32] {
    sha2::Sha256::digest(sha2::Sha256::digest(message)).into()
}

fn muhash(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    let elements: Vec<&[u8]> = subject.block.view.txs().take(100).map(|tx| tx.bytes()).collect();
    let insert_all = || {
        let mut hash = MuHash3072::new();
        elements.iter().for_each(|element| hash.insert(element));
        hash
    };
    let mut group = criterion.benchmark_group("muhash");
    group.throughput(Throughput::Elements(elements.len() as u64));
    group.bench_function("insert", |b| b.iter(|| black_box(insert_all())));
    let (mut product, factor) = (insert_all(), insert_all());
    // Two products, each a multiplication.
    group.throughput(Throughput::Elements(2));
    group.bench_function("multiply", |b| b.iter(|| product.combine(black_box(&factor))));
    answers.add("muhash", &insert_all().finalize());
}
