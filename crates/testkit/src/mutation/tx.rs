//! Rows about single transactions: their form and their locks.

use super::{
    Mutation, Stage,
    workbench::{Draft, Workbench, anyone},
};
use Stage::{Block, Spend};
use bitcoin::{OutPoint, Sequence, TxIn, absolute::LockTime, transaction::Version};

/// The greatest amount, in satoshis.
const MAX_MONEY: i64 = 2_100_000_000_000_000;
/// The sequence bit that makes a relative lock one of time.
const BY_TIME: u32 = 1 << 22;
/// The sequence bit that turns a relative lock off.
const OFF: u32 = 1 << 31;

fn paying_amounts(bench: &mut Workbench<'_>, amounts: &[i64]) -> Draft {
    let coin = bench.take();
    let tx = bench.spend(&[&coin], amounts.iter().map(|amount| anyone(*amount)).collect());
    bench.draft(vec![tx])
}

fn locked(bench: &mut Workbench<'_>, lock_time: u32, sequence: u32) -> Draft {
    let mut tx = bench.simple();
    tx.lock_time = LockTime::from_consensus(lock_time);
    tx.input[0].sequence = Sequence(sequence);
    bench.draft(vec![tx])
}

/// A relative lock on a coin that was made three blocks ago.
fn relative(bench: &mut Workbench<'_>, version: i32, sequence: impl Fn(&Workbench<'_>, u32) -> u32) -> Draft {
    let setup = bench.simple();
    let made = bench.height();
    bench.add(vec![setup.clone()]);
    bench.add(vec![]);
    bench.add(vec![]);
    let mut coin = bench.coin_of(&setup, 0);
    coin.coin.code = made << 1;
    let mut tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
    tx.version = Version(version);
    tx.input[0].sequence = Sequence(sequence(bench, made));
    bench.draft(vec![tx])
}

/// Units of 512 seconds that have passed for a coin made at `made`.
fn units(bench: &Workbench<'_>, made: u32) -> u32 {
    (bench.median_time_past(bench.height() - 1) - bench.median_time_past(made - 1)) >> 9
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::rejects("no-inputs", "bad-txns-vin-empty", Block, |bench| {
        // Without outputs as well: with some, these bytes would be read as a segwit marker.
        Draft { raw: vec![vec![2, 0, 0, 0, 0, 0, 0, 0, 0, 0]], ..bench.draft(vec![]) }
    }),
    Mutation::rejects("no-outputs", "bad-txns-vout-empty", Block, |bench| paying_amounts(bench, &[])),
    Mutation::rejects("amount-minus-1", "bad-txns-vout-negative", Block, |bench| {
        paying_amounts(bench, &[-1])
    }),
    Mutation::accepts("amount-0", Block, |bench| paying_amounts(bench, &[0])),
    Mutation::rejects("amount-above-max", "bad-txns-vout-toolarge", Block, |bench| {
        paying_amounts(bench, &[MAX_MONEY + 1])
    }),
    Mutation::rejects("amounts-above-max", "bad-txns-txouttotal-toolarge", Block, |bench| {
        paying_amounts(bench, &[MAX_MONEY, 1])
    }),
    Mutation::rejects("same-input-twice", "bad-txns-inputs-duplicate", Block, |bench| {
        let coin = bench.take();
        let tx = bench.spend(&[&coin, &coin], vec![anyone(coin.coin.amount)]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("same-input-twice-of-many", "bad-txns-inputs-duplicate", Block, |bench| {
        let coins: Vec<_> = (0..5).map(|_| bench.take()).collect();
        let all: Vec<_> = coins.iter().chain([&coins[1]]).collect();
        let tx = bench.spend(&all, vec![anyone(1_000)]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("null-input", "bad-txns-prevout-null", Block, |bench| {
        let mut tx = bench.simple();
        tx.input.push(TxIn { previous_output: OutPoint::null(), sequence: Sequence::MAX, ..TxIn::default() });
        bench.draft(vec![tx])
    }),
    Mutation::rejects("lock-at-this-height", "bad-txns-nonfinal", Block, |bench| {
        let height = bench.height();
        locked(bench, height, 0)
    }),
    Mutation::accepts("lock-at-the-height-before", Block, |bench| {
        let height = bench.height();
        locked(bench, height - 1, 0)
    }),
    Mutation::accepts("lock-that-no-sequence-turns-on", Block, |bench| {
        let height = bench.height();
        locked(bench, height, u32::MAX)
    }),
    Mutation::rejects("lock-at-the-median-time", "bad-txns-nonfinal", Block, |bench| {
        let median = bench.median_time_past(bench.height() - 1);
        locked(bench, median, OFF)
    }),
    Mutation::accepts("lock-before-the-median-time", Block, |bench| {
        let median = bench.median_time_past(bench.height() - 1);
        locked(bench, median - 1, OFF)
    }),
    Mutation::rejects("coinbase-locked", "bad-txns-nonfinal", Block, |bench| {
        let mut draft = bench.draft(vec![]);
        if let Some(coinbase) = &mut draft.coinbase {
            coinbase.lock_time = LockTime::from_consensus(bench.height());
            coinbase.input[0].sequence = Sequence(0);
        }
        draft
    }),
    Mutation::rejects("relative-lock-of-4-blocks", "bad-txns-nonfinal", Spend, |bench| {
        relative(bench, 2, |_, _| 4)
    }),
    Mutation::accepts("relative-lock-of-3-blocks", Spend, |bench| relative(bench, 2, |_, _| 3)),
    Mutation::accepts("relative-lock-in-version-1", Spend, |bench| relative(bench, 1, |_, _| 4)),
    Mutation::rejects("relative-lock-in-version-minus-1", "bad-txns-nonfinal", Spend, |bench| {
        // Versions are unsigned here (Core since 28).
        relative(bench, -1, |_, _| 4)
    }),
    Mutation::accepts("relative-lock-turned-off", Spend, |bench| relative(bench, 2, |_, _| OFF | 4)),
    Mutation::rejects("relative-lock-of-time-1-unit-more", "bad-txns-nonfinal", Spend, |bench| {
        relative(bench, 2, |bench, made| BY_TIME | (units(bench, made) + 1))
    }),
    Mutation::accepts("relative-lock-of-time-passed", Spend, |bench| {
        relative(bench, 2, |bench, made| BY_TIME | units(bench, made))
    }),
];
