//! Measures the speed of single functions on one core, with generated blocks that are in the cache.
//!
//! `cargo bench -p bench` takes about five minutes; `cargo bench -p bench -- --test` runs everything once on
//! a small chain. Both end with a hash of all results, which is the same on every machine and before and
//! after an optimisation.

mod aggregate;
mod coins;
mod digest;
mod disk;
mod inputs;
mod real;
mod rules;
mod wire;

use bench::{Answers, Block, Inputs};
use criterion::Criterion;
use std::{path::Path, time::Duration};
use tempfile::TempDir;

/// Size of the chain in bytes: enough for a few full blocks, or for running everything once.
const CHAIN_BYTES: u64 = 24_000_000;
const CHAIN_BYTES_TEST: u64 = 1_000_000;

/// The inputs of every benchmark.
struct Subject<'a> {
    inputs: &'a Inputs,
    /// The whole chain.
    blocks: &'a [Block<'a>],
    /// Its largest block.
    block: &'a Block<'a>,
}

/// Creates a temporary directory, in memory if possible.
fn temporary() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    dir.expect("temporary folders can be made")
}

fn main() {
    let small = std::env::args().any(|argument| argument == "--test");
    let inputs = Inputs::generate(if small { CHAIN_BYTES_TEST } else { CHAIN_BYTES });
    let mut arenas = inputs.arenas();
    let blocks = inputs.blocks(&mut arenas);
    let block = blocks.iter().max_by_key(|block| block.view.bytes().len()).expect("the chain has blocks");
    let view = &block.view;
    println!(
        "block {}: {} bytes, {} transactions, {} inputs, {} outputs; chain: {} blocks",
        block.height,
        view.bytes().len(),
        view.tx_count(),
        view.input_count(),
        view.output_count(),
        blocks.len()
    );
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    let subject = Subject { inputs: &inputs, blocks: &blocks, block };
    let mut answers = Answers::default();
    for benches in [
        digest::benches,
        wire::benches,
        rules::benches,
        inputs::benches,
        disk::benches,
        coins::benches,
        aggregate::benches,
        real::benches,
    ] {
        benches(&mut criterion, &subject, &mut answers);
    }
    criterion.final_summary();
    println!("answers: {} ({} chain)", answers.hash(), if small { "small" } else { "large" });
}
