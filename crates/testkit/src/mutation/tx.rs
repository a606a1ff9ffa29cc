//! Mutations of single transactions: their form and their lock times.

use super::{
    CheckLevel, Mutation,
    block_builder::{BlockBuilder, Draft, anyone},
};
use CheckLevel::{Block, Spend};
use bitcoin::{OutPoint, Sequence, TxIn, absolute::LockTime, transaction::Version};

/// The maximum amount, in satoshis.
const MAX_MONEY: i64 = 2_100_000_000_000_000;
/// The sequence bit that makes a relative lock count time instead of blocks.
const BY_TIME: u32 = 1 << 22;
/// The sequence bit that disables a relative lock.
const OFF: u32 = 1 << 31;

fn paying_amounts(builder: &mut BlockBuilder<'_>, amounts: &[i64]) -> Draft {
    let coin = builder.take();
    let tx = builder.spend(&[&coin], amounts.iter().map(|amount| anyone(*amount)).collect());
    builder.draft(vec![tx])
}

fn locked(builder: &mut BlockBuilder<'_>, lock_time: u32, sequence: u32) -> Draft {
    let mut tx = builder.simple();
    tx.lock_time = LockTime::from_consensus(lock_time);
    tx.input[0].sequence = Sequence(sequence);
    builder.draft(vec![tx])
}

/// A block with a relative lock on a coin that was created three blocks ago.
fn relative(
    builder: &mut BlockBuilder<'_>,
    version: i32,
    sequence: impl Fn(&BlockBuilder<'_>, u32) -> u32,
) -> Draft {
    let setup = builder.simple();
    let made = builder.height();
    builder.add(vec![setup.clone()]);
    builder.add(vec![]);
    builder.add(vec![]);
    let mut coin = builder.coin_of(&setup, 0);
    coin.coin.code = made << 1;
    let mut tx = builder.spend(&[&coin], vec![anyone(coin.coin.amount)]);
    tx.version = Version(version);
    tx.input[0].sequence = Sequence(sequence(builder, made));
    builder.draft(vec![tx])
}

/// Returns how many units of 512 seconds have passed for a coin that was created at height `made`.
fn units(builder: &BlockBuilder<'_>, made: u32) -> u32 {
    (builder.median_time_past(builder.height() - 1) - builder.median_time_past(made - 1)) >> 9
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::rejects("no-inputs", "bad-txns-vin-empty", Block, |builder| {
        // It has no outputs either; with outputs, these bytes would be read as a segwit marker.
        Draft { raw: vec![vec![2, 0, 0, 0, 0, 0, 0, 0, 0, 0]], ..builder.draft(vec![]) }
    }),
    Mutation::rejects("no-outputs", "bad-txns-vout-empty", Block, |builder| paying_amounts(builder, &[])),
    Mutation::rejects("amount-minus-1", "bad-txns-vout-negative", Block, |builder| {
        paying_amounts(builder, &[-1])
    }),
    Mutation::accepts("amount-0", Block, |builder| paying_amounts(builder, &[0])),
    Mutation::rejects("amount-above-max", "bad-txns-vout-toolarge", Block, |builder| {
        paying_amounts(builder, &[MAX_MONEY + 1])
    }),
    Mutation::rejects("amounts-above-max", "bad-txns-txouttotal-toolarge", Block, |builder| {
        paying_amounts(builder, &[MAX_MONEY, 1])
    }),
    Mutation::rejects("same-input-twice", "bad-txns-inputs-duplicate", Block, |builder| {
        let coin = builder.take();
        let tx = builder.spend(&[&coin, &coin], vec![anyone(coin.coin.amount)]);
        builder.draft(vec![tx])
    }),
    Mutation::rejects("same-input-twice-of-many", "bad-txns-inputs-duplicate", Block, |builder| {
        let coins: Vec<_> = (0..5).map(|_| builder.take()).collect();
        let all: Vec<_> = coins.iter().chain([&coins[1]]).collect();
        let tx = builder.spend(&all, vec![anyone(1_000)]);
        builder.draft(vec![tx])
    }),
    Mutation::rejects("null-input", "bad-txns-prevout-null", Block, |builder| {
        let mut tx = builder.simple();
        tx.input.push(TxIn { previous_output: OutPoint::null(), sequence: Sequence::MAX, ..TxIn::default() });
        builder.draft(vec![tx])
    }),
    Mutation::rejects("lock-at-this-height", "bad-txns-nonfinal", Block, |builder| {
        let height = builder.height();
        locked(builder, height, 0)
    }),
    Mutation::accepts("lock-at-the-height-before", Block, |builder| {
        let height = builder.height();
        locked(builder, height - 1, 0)
    }),
    Mutation::accepts("lock-that-no-sequence-turns-on", Block, |builder| {
        let height = builder.height();
        locked(builder, height, u32::MAX)
    }),
    Mutation::rejects("lock-at-the-median-time", "bad-txns-nonfinal", Block, |builder| {
        let median = builder.median_time_past(builder.height() - 1);
        locked(builder, median, OFF)
    }),
    Mutation::accepts("lock-before-the-median-time", Block, |builder| {
        let median = builder.median_time_past(builder.height() - 1);
        locked(builder, median - 1, OFF)
    }),
    Mutation::rejects("coinbase-locked", "bad-txns-nonfinal", Block, |builder| {
        let mut draft = builder.draft(vec![]);
        if let Some(coinbase) = &mut draft.coinbase {
            coinbase.lock_time = LockTime::from_consensus(builder.height());
            coinbase.input[0].sequence = Sequence(0);
        }
        draft
    }),
    Mutation::rejects("relative-lock-of-4-blocks", "bad-txns-nonfinal", Spend, |builder| {
        relative(builder, 2, |_, _| 4)
    }),
    Mutation::accepts("relative-lock-of-3-blocks", Spend, |builder| relative(builder, 2, |_, _| 3)),
    Mutation::accepts("relative-lock-in-version-1", Spend, |builder| relative(builder, 1, |_, _| 4)),
    Mutation::rejects("relative-lock-in-version-minus-1", "bad-txns-nonfinal", Spend, |builder| {
        // Versions are compared as unsigned numbers (in Core since 28).
        relative(builder, -1, |_, _| 4)
    }),
    Mutation::accepts("relative-lock-turned-off", Spend, |builder| relative(builder, 2, |_, _| OFF | 4)),
    Mutation::rejects("relative-lock-of-time-1-unit-more", "bad-txns-nonfinal", Spend, |builder| {
        relative(builder, 2, |builder, made| BY_TIME | (units(builder, made) + 1))
    }),
    Mutation::accepts("relative-lock-of-time-passed", Spend, |builder| {
        relative(builder, 2, |builder, made| BY_TIME | units(builder, made))
    }),
];
