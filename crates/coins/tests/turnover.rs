//! What a join takes in memory when its oldest coins are taken out again and again by changing threads, as
//! the engine does when a budget is full: by the system's word, so alone in its process.
//!
//! Once, each thread's part of the allocator's memory grew to what that thread had ever held, and the process
//! to a third more than the join said.

use coins::{Join, SHARDS};
use std::thread;
use wire::{Coin, OutPoint, Txid};

/// What the join may grow to before its older half is taken out, in bytes.
const JOIN_BYTES: usize = 64 << 20;
/// How often that happens.
const TURNS: u64 = 16;
/// Threads that make coins; they take turns at taking them out.
const THREADS: u64 = 2;
/// Coins that a thread makes between two looks at the join's size.
const STEP: u64 = 1000;

/// Resident bytes of this process now, where Linux tells.
fn resident() -> Option<u64> {
    memory("VmRSS:")
}

/// The most that it ever had.
fn peak() -> Option<u64> {
    memory("VmHWM:")
}

fn memory(what: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Makes coins with outputs of `len` bytes until the join has grown to its size.
fn fill(join: &Join, turn: u64, thread: u64, len: usize) {
    let mut effects = join.effects();
    for number in 0u64.. {
        if number % STEP == 0 && join.memory_bytes() >= JOIN_BYTES {
            break;
        }
        let random = (number * TURNS * THREADS + turn * THREADS + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut txid = [0; 32];
        txid[..8].copy_from_slice(&random.to_be_bytes());
        let coin = Coin { code: ((turn as u32) << 20 | number as u32) << 1, out: &[7; 120][..len] };
        effects.push_creation(&OutPoint { txid: Txid(txid), vout: 0 }, coin);
    }
}

/// The most that the process had resident while a join was filled and emptied in turns, above what it had.
fn most_resident(len: usize) -> Option<u64> {
    let before = resident()?;
    let join = Join::new((1, 2));
    for turn in 0..TURNS {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let join = &join;
                scope.spawn(move || {
                    fill(join, turn, thread, len);
                    if turn % THREADS == thread {
                        (0..SHARDS).for_each(|shard| drop(join.take_oldest(shard, 0.5).sort()));
                    }
                });
            }
        });
    }
    Some(peak()? - before)
}

#[test]
fn memory_that_was_taken_out_is_used_again_whoever_took_it() {
    // What workers stage comes on top.
    let allowed = JOIN_BYTES as u64 / 20 * 21 + THREADS * (10 << 20);
    // In cells; and outside them.
    for len in [23, 110] {
        let Some(most) = most_resident(len) else { return };
        println!("outputs of {len} bytes: {} MiB", most >> 20);
        assert!(
            most < allowed,
            "outputs of {len} bytes: {} MiB where {} would do",
            most >> 20,
            allowed >> 20
        );
    }
}
