//! The memory per coin, as the join computes it and as the system measures it. The latter requires that this
//! test is alone in its process.

mod process_memory;

use peregrine_coins::{Join, SipKey};
use process_memory::resident;
use wire::{Coin, OutPoint, Txid};

const COINS: u64 = 1_000_000;

#[test]
fn a_coin_takes_about_100_bytes() {
    let join = Join::new(SipKey(1, 2));
    let mut effects = join.effects();
    let before = resident();
    for number in 0..COINS {
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut txid = [0; 32];
        txid[..8].copy_from_slice(&random.to_be_bytes());
        let out = [number as u8; 40];
        let coin = Coin { code: 2, out: &out[..21 + number as usize % 20] };
        effects.push_creation(&OutPoint { txid: Txid(txid), vout: 0 }, coin);
    }
    drop(effects);
    assert_eq!(join.open(), (COINS, 0));
    let computed = join.memory_bytes() as u64;
    println!("{} bytes per coin as computed", computed / COINS);
    assert!((95 * COINS..110 * COINS).contains(&computed), "{computed}");
    if let (Some(before), Some(after)) = (before, resident()) {
        let measured = after - before;
        println!("{} bytes per coin as measured", measured / COINS);
        // The worker's staging buffers (6 MB) have been freed, but the allocator may keep them.
        assert!(measured < computed + (12 << 20), "measured {measured}, computed {computed}");
    }
}
