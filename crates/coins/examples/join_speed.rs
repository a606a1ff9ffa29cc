//! Measures the join on one core, with creations and spends whose ages are heavy-tailed, like those of a
//! chain.
//!
//! `cargo run --release -p peregrine-coins --example join_speed [millions of creations]`. It prints
//! nanoseconds per operation, the cost of generating the operations, memory, the time to sort the remaining
//! coins, and a hash of the result, which must not change when the code gets faster.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at what it does not expect")]

use peregrine_coins::Join;
use peregrine_coins::SipKey;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use wire::{Coin, Height, OutPoint, Txid};

/// The share of coins that are spent: 9 of 11.
const SPENT: (u64, u64) = (9, 11);
const COINS_PER_BLOCK: u32 = 5000;

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Returns the outpoint of a coin. Coins are numbered in the order of their creation, and their content is a
/// function of the number. Three share a txid.
fn outpoint(number: u32) -> OutPoint {
    let mut random = SplitMix(u64::from(number / 3));
    let mut txid = [0; 32];
    txid.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
    OutPoint { txid: Txid(txid), vout: number % 3 }
}

fn coin(number: u32, bytes: &mut [u8; 40]) -> Coin<'_> {
    bytes[..8].copy_from_slice(&SplitMix(number.into()).next().to_le_bytes());
    // P2PKH, P2WPKH, P2TR with amounts of five bytes.
    let len = [26, 28, 40][number as usize % 3];
    Coin { code: Coin::code_of(height(number), false), out: &bytes[..len] }
}

const fn height(number: u32) -> Height {
    Height(number / COINS_PER_BLOCK + 1)
}

/// Returns the chain: numbers of coins in the order in which they are created and spent; the top bit marks a
/// spend.
fn operations(creations: u32) -> Vec<u32> {
    let mut random = SplitMix(1);
    let mut spent = vec![false; creations as usize];
    let mut ops = Vec::with_capacity(creations as usize * 2);
    for number in 0..creations {
        ops.push(number);
        let first_of_block = number / COINS_PER_BLOCK * COINS_PER_BLOCK;
        if first_of_block == 0 || random.next() % SPENT.1 >= SPENT.0 {
            continue;
        }
        // Ages are log-uniform: half of the spent coins are not older than the square root of the oldest age.
        let bits = random.next() % (u64::from(first_of_block.ilog2()) + 1);
        let age = (random.next() % (1 << bits)) as u32;
        let mut at = first_of_block - 1 - age.min(first_of_block - 1);
        while spent[at as usize] && at > 0 {
            at -= 1;
        }
        if !std::mem::replace(&mut spent[at as usize], true) {
            ops.push(at | 1 << 31);
        }
    }
    ops
}

/// Measures the processor time of this thread on Linux, so that other load does not matter; elsewhere the
/// elapsed time.
struct Stopwatch(Option<Duration>, Instant);

impl Stopwatch {
    fn start() -> Self {
        Self(Self::processor(), Instant::now())
    }

    fn elapsed(&self) -> Duration {
        match (self.0, Self::processor()) {
            (Some(start), Some(now)) => now - start,
            _ => self.1.elapsed(),
        }
    }

    fn processor() -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }
}

fn main() {
    let millions: u32 = std::env::args().nth(1).map_or(11, |arg| arg.parse().unwrap());
    let ops = operations(millions * 1_000_000);
    let mut bytes = [7; 40];

    let start = Stopwatch::start();
    for &op in &ops {
        black_box(outpoint(op & !(1 << 31)));
        black_box(coin(op & !(1 << 31), &mut bytes));
    }
    let generating = start.elapsed();

    let join = Join::new(SipKey(3, 4));
    let start = Stopwatch::start();
    let mut effects = join.effects();
    let mut newest = Height(0);
    for &op in &ops {
        let number = op & !(1 << 31);
        let (outpoint, coin) = (outpoint(number), coin(number, &mut bytes));
        if op >> 31 == 0 {
            newest = coin.height();
            effects.push_creation(&outpoint, coin);
        } else {
            effects.push_spend(&outpoint, coin, newest);
        }
    }
    drop(effects);
    let joining = start.elapsed() - generating;
    let memory = join.memory_bytes();

    let start = Stopwatch::start();
    let survivors = join.finish().unwrap();
    let size = survivors.size();
    let mut hash = 0u64;
    for shard in survivors.into_shards() {
        for peregrine_coins::Entry { outpoint, coin, .. } in shard.sort().iter() {
            let word = outpoint.txid.0.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            hash = (hash ^ word ^ u64::from(coin.code)).wrapping_mul(0x100_0000_01b3);
        }
    }
    let sorting = start.elapsed();

    let each = |time: Duration, n: u64| time.as_nanos() as f64 / n as f64;
    println!(
        "{} operations: {:.2} s, {:.0} ns each",
        ops.len(),
        joining.as_secs_f64(),
        each(joining, ops.len() as u64)
    );
    println!("generating them: {:.0} ns each, subtracted", each(generating, ops.len() as u64));
    println!("{} coins remain: {:.1} bytes of memory each", size.coins, memory as f64 / size.coins as f64);
    println!(
        "sorting and reading: {:.2} s, {:.0} ns per coin",
        sorting.as_secs_f64(),
        each(sorting, size.coins as u64)
    );
    println!("hash {hash:016x}");
}
