//! Measures how fast sorted runs are written and read, and how long an entry is.
//!
//! `cargo run --release -p bench --example run_speed -- DIRECTORY [ENTRIES] [SHARDS]`: the entries
//! go to the first SHARDS of the 256 shards, so that a small run has the density of a far larger one. Times
//! are the best of five, including the sync: a directory in memory shows the cost of the format, any other
//! one that of the medium.

use disk::DiskError;
use disk::sorted_run::{SortedRunReader, SortedRunWriter};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use vfs::RealDisk;
use wire::coin::compress_output;
use wire::{Coin, Entry, Network, OutPoint, Sats, Txid};

const BUFFER: usize = 1 << 20;

/// Returns a pseudorandom number (SplitMix64).
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns sorted outpoints; two in three transactions have one, the others two.
fn outpoints(count: u64, shards: u64) -> Vec<OutPoint> {
    let mut heads: Vec<u64> = (0..count * 3 / 4).map(mix).collect();
    heads.iter_mut().for_each(|head| *head = *head >> 8 | ((*head & 0xff) % shards) << 56);
    heads.sort_unstable();
    let mut found = Vec::with_capacity(count as usize);
    for (number, head) in heads.iter().enumerate() {
        let mut txid = Txid([0x5a; 32]);
        txid.0[..8].copy_from_slice(&head.to_be_bytes());
        found.extend((0..1 + u32::from(number % 3 == 0)).map(|vout| OutPoint { txid, vout }));
    }
    found
}

/// Returns outputs of the most frequent script types, with amounts that are not round.
fn outs() -> Vec<Vec<u8>> {
    let output = |number: u64| {
        let [hash, key] = [vec![7; 20], vec![7; 32]];
        let script = match number % 4 {
            0 => [&[0x76, 0xa9, 20][..], &hash, &[0x88, 0xac]].concat(),
            1 | 2 => [&[0, 20][..], &hash].concat(),
            _ => [&[0x51, 32][..], &key].concat(),
        };
        let mut out = Vec::new();
        compress_output(&mut out, Sats((mix(number) % 100_000_000) as i64), &script);
        out
    };
    (0..1024).map(output).collect()
}

fn write(path: &Path, outpoints: &[OutPoint], outs: &[Vec<u8>]) -> Result<u64, DiskError> {
    let mut run = SortedRunWriter::create(&RealDisk, path, Network::Main, BUFFER)?;
    for (number, outpoint) in outpoints.iter().enumerate() {
        let code = mix(outpoint.txid.0[7].into()) as u32 % 1_900_000;
        let coin = Coin { code, out: &outs[number % outs.len()] };
        run.add(&Entry { is_spend: number % 2 == 0, outpoint: *outpoint, coin })?;
    }
    run.finish().map(|meta| meta.bytes)
}

fn read(path: &Path) -> Result<u64, DiskError> {
    let run = SortedRunReader::open(&RealDisk, path, Network::Main)?;
    let mut cursor = run.cursor(0..256, BUFFER);
    let mut entries = 0;
    while let Some(entry) = cursor.advance()? {
        black_box(entry);
        entries += 1;
    }
    Ok(entries)
}

fn main() -> Result<(), DiskError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("a directory is given");
    let mut number = |default| args.next().map_or(default, |text| text.parse().expect("a number"));
    let (count, shards) = (number(2_000_000), number(256));
    let path = Path::new(&dir).join("speed.run");
    let (outpoints, outs) = (outpoints(count, shards), outs());
    let mut best = [Duration::MAX; 2];
    let mut bytes = 0;
    for _ in 0..5 {
        let start = Instant::now();
        bytes = write(&path, &outpoints, &outs)?;
        best[0] = best[0].min(start.elapsed());
        let start = Instant::now();
        assert_eq!(read(&path)?, outpoints.len() as u64);
        best[1] = best[1].min(start.elapsed());
        std::fs::remove_file(&path).expect("the file can be removed");
    }
    let entries = outpoints.len() as f64;
    println!("{entries} entries, {:.2} bytes each", bytes as f64 / entries);
    for (what, time) in ["written", "read"].iter().zip(best.map(|time| time.as_secs_f64())) {
        println!(
            "{what}: {:.0} MB/s, {:.1} million a second",
            bytes as f64 / time / 1e6,
            entries / time / 1e6
        );
    }
    Ok(())
}
