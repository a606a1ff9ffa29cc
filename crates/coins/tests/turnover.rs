//! The memory of a join whose oldest coins are taken out repeatedly by changing threads, as the engine does
//! when the memory budget is reached. It is the system's measurement, so this test is alone in its process.
//!
//! Before chunks were shared, each thread's arena of the allocator grew to the most that the thread had ever
//! held, and the process to a third more than the join reported.

mod process_memory;

use peregrine_coins::{Join, SHARDS, SipKey};
use process_memory::{peak, resident};
use std::thread;
use wire::{Coin, OutPoint, Txid};

/// Size of the join at which its older half is taken out, in bytes.
const JOIN_BYTES: usize = 64 << 20;
/// Number of times that this happens.
const TURNS: u64 = 16;
/// Number of threads that create coins; they take turns at taking them out.
const THREADS: u64 = 2;
/// Number of coins that a thread creates between two checks of the join's size.
const STEP: u64 = 1000;

/// Creates coins with outputs of `len` bytes until the join has reached its size.
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

/// Returns by how many bytes the resident memory grew at most while a join was filled and emptied in turns.
fn max_resident_growth(len: usize) -> Option<u64> {
    let before = resident()?;
    let join = Join::new(SipKey(1, 2));
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
fn memory_of_taken_entries_is_reused_by_all_threads() {
    // The workers' staged operations are not part of the join's size.
    let allowed = JOIN_BYTES as u64 / 20 * 21 + THREADS * (10 << 20);
    // Outputs in cells, and long outputs.
    for len in [23, 110] {
        let Some(growth) = max_resident_growth(len) else { return };
        println!("outputs of {len} bytes: {} MiB", growth >> 20);
        let [grown, most] = [growth, allowed].map(|bytes| bytes >> 20);
        assert!(growth < allowed, "outputs of {len} bytes: {grown} MiB, expected below {most} MiB");
    }
}
