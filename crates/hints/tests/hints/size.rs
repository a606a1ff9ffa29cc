//! The size of hints in each format, and the speed of reading Peregrine's own.

use crate::common::{Chain, real, simulated, write};
use peregrine_hints::{HintFormat, HintReader};
use std::time::{Duration, Instant};
use vfs::RealDisk;

/// Prints the size in each format, of which docs/formats.md has some, and returns the sizes in bytes.
fn sizes(chain: &Chain) -> Vec<(HintFormat, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let outputs: usize = chain.blocks.iter().map(|block| block.spendable.len()).sum();
    let hints: usize = chain.blocks.iter().map(|block| block.unspent.len()).sum();
    println!("{}: {} blocks, {outputs} outputs, {hints} hints", chain.name, chain.blocks.len());
    let size = |format: HintFormat| {
        let info = write(&dir.path().join(format.name()), format, chain);
        let per = |count: usize| info.bytes as f64 * 8.0 / count as f64;
        println!(
            "  {:14} {:10} bytes {:7.3} bits per output {:7.3} per hint",
            format.name(),
            info.bytes,
            per(outputs),
            per(hints)
        );
        (format, info.bytes)
    };
    HintFormat::ALL.into_iter().map(size).collect()
}

/// Bytes of Peregrine's header and footer with network, hashes and counts, which the other formats do not
/// have, and of one entry of the index.
const OVERHEAD: u64 = 56 + 64 + 10;

#[test]
fn peregrines_own_format_is_the_smallest() {
    for chain in [simulated(2000, 1)].into_iter().chain(real()) {
        let sizes = sizes(&chain);
        let (first, bytes) = sizes[0];
        assert_eq!(first, HintFormat::Peregrine);
        for (format, other) in &sizes[1..] {
            let with_overhead = other + OVERHEAD;
            assert!(bytes < with_overhead, "{}: {format} has {other} bytes, {first} {bytes}", chain.name);
        }
    }
}

#[test]
fn peregrines_own_format_is_read_fast() {
    let chain = simulated(2000, 1);
    let (_dir, path) = testkit::fresh_path("hints");
    let info = write(&path, HintFormat::Peregrine, &chain);
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let (mut reader, mut unspent, mut hints) =
            (HintReader::open(&RealDisk, &path, None).unwrap(), Vec::new(), 0);
        let started = Instant::now();
        while reader.next_block(&mut unspent).unwrap().is_some() {
            hints += unspent.len() as u64;
        }
        best = best.min(started.elapsed());
        assert_eq!(hints, info.hints);
    }
    let outputs = info.outputs.unwrap();
    println!("{outputs} outputs, {} hints in {best:?}", info.hints);
    println!("{:.0} million outputs a second", outputs as f64 / best.as_secs_f64() / 1e6);
    // A tenth of the speed promised for a release build: the machine may be busy.
    assert!(best < Duration::from_secs(outputs / 2_000_000 + 1), "{best:?}");
}
