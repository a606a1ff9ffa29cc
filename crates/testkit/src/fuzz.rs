//! Fuzz targets for all code that reads bytes from untrusted sources.
//!
//! A [`FuzzTarget`] is a plain function over bytes that panics if something is wrong: the code under test
//! panics, a round trip changes a byte, or a verdict differs from another implementation's. [`TARGETS`] lists
//! them all. `fuzz/run` runs each under libFuzzer, which is guided by coverage; [`hunt`] runs the same
//! functions on mutated seeds inside `cargo test`, so that no target rots. Each failure that is found becomes
//! a named test beside the code.

mod disk;
mod hints;
mod memory;
mod net;
pub mod reseal;
mod rules;
mod runs;
mod samples;
mod snapshot;
mod wire;

pub use memory::MemoryDisk;

use crate::rng::Rng;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// Maximum length of inputs in bytes, for [`hunt`] and libFuzzer: small inputs are fast and show the same
/// defects.
pub const MAX_INPUT: usize = 64 << 10;

/// A property that must hold for all bytes.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Its name, also of its corpus folder and as the argument of `fuzz/run`.
    pub name: &'static str,
    /// Panics if something is wrong. Returns whether the bytes were accepted as valid.
    pub body: fn(&[u8]) -> bool,
    /// Initial inputs: valid ones, so that mutations get past the first check.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "block", body: wire::block, seeds: samples::blocks },
    FuzzTarget { name: "transaction", body: wire::transaction, seeds: samples::transactions },
    FuzzTarget { name: "numbers", body: wire::numbers, seeds: samples::numbers },
    FuzzTarget { name: "chainstate_row", body: wire::chainstate_row, seeds: samples::chainstate_rows },
    FuzzTarget { name: "rules", body: rules::block_and_undo, seeds: samples::blocks_and_undo },
    FuzzTarget { name: "undo", body: disk::undo, seeds: samples::undo },
    FuzzTarget { name: "index_rows", body: disk::index_rows, seeds: samples::index_rows },
    FuzzTarget { name: "leveldb_log", body: disk::leveldb_log, seeds: samples::leveldb_logs },
    FuzzTarget { name: "leveldb_manifest", body: disk::leveldb_manifest, seeds: samples::leveldb_manifests },
    FuzzTarget { name: "leveldb_table", body: disk::leveldb_table, seeds: samples::leveldb_tables },
    FuzzTarget { name: "run", body: runs::run, seeds: samples::runs },
    FuzzTarget { name: "checkpoint", body: runs::checkpoint, seeds: samples::checkpoints },
    FuzzTarget { name: "range_plan", body: runs::range_plan, seeds: samples::range_plans },
    FuzzTarget { name: "delta", body: runs::delta, seeds: samples::deltas },
    FuzzTarget { name: "snapshot", body: snapshot::snapshot, seeds: snapshot::seeds },
    FuzzTarget { name: "utxo_tree", body: snapshot::utxo_tree, seeds: snapshot::utxo_trees },
    FuzzTarget { name: "hints_file", body: hints::file, seeds: hints::files },
    FuzzTarget { name: "hints_packed", body: hints::packed, seeds: hints::packed_files },
    FuzzTarget { name: "hints_peregrine", body: hints::peregrine, seeds: hints::peregrine_files },
    FuzzTarget { name: "net_frames", body: net::frames, seeds: net::streams },
    FuzzTarget { name: "net_message", body: net::message, seeds: net::messages },
    FuzzTarget { name: "net_v2_stream", body: net::v2_stream, seeds: net::payloads },
    FuzzTarget { name: "net_proxy", body: net::proxy, seeds: net::proxy_answers },
    FuzzTarget { name: "net_i2p_router", body: net::i2p_router, seeds: net::i2p_router_answers },
    FuzzTarget { name: "scan", body: disk::scan, seeds: samples::block_files },
];

/// A target that asserts something false (no VARINT is above 999), to test that failures are noticed. Not in
/// [`TARGETS`].
pub const CANARY: FuzzTarget = FuzzTarget { name: "canary", body: wire::canary, seeds: samples::numbers };

/// Returns the target of that name, which may be the canary.
pub fn target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().chain([&CANARY]).find(|target| target.name == name)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hunt {
    /// Number of inputs tried.
    pub inputs: u64,
    /// Number of inputs that were accepted as valid.
    pub accepted: u64,
    /// The input for which the target panicked, which ended the hunt.
    pub failure: Option<Vec<u8>>,
}

/// Runs a target on its seeds, then on mutations of them until `time` has passed. The inputs and their order
/// depend only on `seed`; their number depends on the machine.
#[must_use]
pub fn hunt(target: &FuzzTarget, seed: u64, time: Duration) -> Hunt {
    let started = Instant::now();
    let mut seeds = (target.seeds)();
    seeds.iter_mut().for_each(|bytes| bytes.truncate(MAX_INPUT));
    let mut rng = Rng::new(seed, target.name);
    let (mut inputs, mut accepted) = (0, 0);
    while inputs < seeds.len() as u64 || started.elapsed() < time {
        let input = match seeds.get(inputs as usize) {
            Some(seed) => seed.clone(),
            None => mutate(&seeds, &mut rng),
        };
        inputs += 1;
        match catch_unwind(AssertUnwindSafe(|| (target.body)(&input))) {
            Ok(fine) => accepted += u64::from(fine),
            Err(_) => return Hunt { inputs, accepted, failure: Some(input) },
        }
    }
    Hunt { inputs, accepted, failure: None }
}

/// Returns a seed, or sometimes only noise, with one to eight changes.
fn mutate(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| seeds[rng.below(seeds.len() as u64) as usize].clone();
    let mut bytes = if rng.chance(1, 16) { noise(rng, 256) } else { pick(rng) };
    for _ in 0..rng.heavy(50, 8) {
        let len = bytes.len();
        let at = rng.below(len as u64 + 1) as usize;
        let end = (at + rng.heavy(60, 64) as usize).min(len);
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, noise(rng, 16))),
            3 => {
                let copied = bytes[at..end].to_vec();
                let to = rng.below(len as u64 + 1) as usize;
                bytes.splice(to..to, copied);
            }
            4 => {
                let other = pick(rng);
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            5 => {
                // Numbers at which the encodings of sizes and counts change.
                let edges =
                    [0u64, 1, 0x7f, 0x80, 0xfc, 0xfd, 0xff, 0xffff, 0x1_0000, 0x0200_0000, 0xffff_ffff];
                let number = edges[rng.below(edges.len() as u64) as usize].wrapping_sub(rng.below(2));
                let width = 1 << rng.below(4);
                let end = (at + width).min(len);
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            6 if at < len => bytes[at] ^= 1 << rng.below(8),
            _ if at < len => bytes[at] = rng.next_u64() as u8,
            _ => {}
        }
    }
    bytes.truncate(MAX_INPUT);
    bytes
}

fn noise(rng: &mut Rng, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(most) as usize];
    rng.fill(&mut bytes);
    bytes
}
