//! Mutations of single transactions: their form and their lock times.

use super::*;
use CheckLevel::{Block, Spend};
use bitcoin::OutPoint;

const MISSING: &str = "bad-txns-inputs-missingorspent";
const NONFINAL: &str = "bad-txns-nonfinal";
const NEGATIVE: &str = "bad-txns-vout-negative";
const TOO_LARGE: &str = "bad-txns-vout-toolarge";
const TOTAL_TOO_LARGE: &str = "bad-txns-txouttotal-toolarge";
const BELOW_OUT: &str = "bad-txns-in-belowout";
/// The maximum amount, in satoshis.
const MAX_MONEY: i64 = 2_100_000_000_000_000;
/// The sequence bit that makes a relative lock count time instead of blocks.
const BY_TIME: u32 = 1 << 22;
/// The sequence bit that disables a relative lock.
const OFF: u32 = 1 << 31;
/// The sequence bits without a meaning.
const UNUSED: u32 = !(OFF | BY_TIME | 0xffff);

/// A block with a transaction that pays these amounts.
fn amounts(builder: &mut BlockBuilder<'_>, amounts: &[i64]) -> Draft {
    let coin = builder.take();
    builder.spending(&[&coin], amounts.iter().map(|amount| anyone(*amount)).collect())
}

/// A block with a lock time and two inputs, of which the first requires no lock.
fn locked<'c>(
    builder: &mut BlockBuilder<'c>,
    lock_time: impl Fn(&BlockBuilder<'c>) -> u32,
    sequence: u32,
) -> Draft {
    let coins = [builder.take(), builder.take()];
    let mut tx = builder.spend(&[&coins[0], &coins[1]], vec![anyone(coins[0].coin.amount)]);
    tx.lock_time = LockTime::from_consensus(lock_time(builder));
    tx.input[1].sequence = Sequence(sequence);
    builder.draft(vec![tx])
}

/// A block with an input that another one precedes.
fn with_second_input(builder: &mut BlockBuilder<'_>, previous_output: OutPoint) -> Draft {
    let mut tx = builder.simple();
    tx.input.push(TxIn { previous_output, ..TxIn::default() });
    builder.draft(vec![tx])
}

/// A block with a relative lock on a coin that it has created itself.
fn relative_to_itself(builder: &mut BlockBuilder<'_>, blocks: u32) -> Draft {
    let [parent, mut child] = builder.family();
    child.input[0].sequence = Sequence(blocks);
    builder.draft(vec![parent, child])
}

/// A block with a relative lock on a coin that was created three blocks ago. The input before it has none.
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
    let free = builder.take();
    let mut tx = builder.spend(&[&free, &coin], vec![anyone(coin.coin.amount)]);
    tx.version = Version(version);
    tx.input[1].sequence = Sequence(sequence(builder, made));
    builder.draft(vec![tx])
}

/// Returns how many units of 512 seconds have passed for a coin that was created at height `made`.
fn units(builder: &BlockBuilder<'_>, made: u32) -> u32 {
    (builder.median_time() - builder.median_time_past(made - 1)) >> 9
}

pub(super) static ROWS: &[Mutation] = &[
    Block.rejects("no-inputs", "bad-txns-vin-empty", |builder| {
        // It has no outputs either; with outputs, these bytes would be read as a segwit marker.
        Draft { raw: vec![vec![2, 0, 0, 0, 0, 0, 0, 0, 0, 0]], ..builder.draft(vec![]) }
    }),
    Block.rejects("no-outputs", "bad-txns-vout-empty", |builder| amounts(builder, &[])),
    Block.rejects("amount-minus-1", NEGATIVE, |builder| amounts(builder, &[-1])),
    Block.rejects("amount-of-the-least-number", NEGATIVE, |builder| amounts(builder, &[i64::MIN])),
    Block.rejects("amount-minus-1-after-the-max", NEGATIVE, |builder| amounts(builder, &[MAX_MONEY, 0, -1])),
    Block.accepts("amount-0", |builder| amounts(builder, &[0])),
    Block.rejects("amount-above-max", TOO_LARGE, |builder| amounts(builder, &[MAX_MONEY + 1])),
    Block.rejects("amount-above-max-after-another", TOO_LARGE, |it| amounts(it, &[1, MAX_MONEY + 1])),
    Block.rejects("amount-of-the-greatest-number", TOO_LARGE, |builder| amounts(builder, &[i64::MAX])),
    // The rules on amounts allow all money; only regtest's coins do not add up to it.
    Spend.rejects("amount-of-all-money", BELOW_OUT, |builder| amounts(builder, &[MAX_MONEY])),
    Spend.rejects("amounts-of-all-money", BELOW_OUT, |builder| amounts(builder, &[MAX_MONEY - 1, 1, 0])),
    Block.rejects("amounts-above-max", TOTAL_TOO_LARGE, |builder| amounts(builder, &[MAX_MONEY, 1])),
    // The first invalid output is reported: the one after it is negative.
    Block.rejects("amounts-above-max-first", TOTAL_TOO_LARGE, |it| amounts(it, &[MAX_MONEY, 1, -1])),
    Block.accepts("outputs-of-one-transaction-spent", |builder| {
        let (first, other) = (builder.take(), builder.take());
        let share = first.coin.amount / 9;
        let coins = builder.divide(&first, vec![anyone(share); 9]);
        let txs = [&coins[..2], &[coins[2..].to_vec(), vec![other]].concat()]
            .map(|coins| builder.spend(&coins.iter().collect::<Vec<_>>(), vec![anyone(share)]));
        builder.draft(txs.into())
    }),
    Block.rejects("same-input-twice", "bad-txns-inputs-duplicate", |builder| {
        let coin = builder.take();
        builder.spending(&[&coin, &coin], vec![anyone(coin.coin.amount)])
    }),
    Block.rejects("same-input-twice-of-many", "bad-txns-inputs-duplicate", |builder| {
        let coins: Vec<_> = (0..5).map(|_| builder.take()).collect();
        let all: Vec<_> = coins.iter().chain([&coins[1]]).collect();
        builder.spending(&all, vec![anyone(1_000)])
    }),
    Block.rejects("null-input", "bad-txns-prevout-null", |it| with_second_input(it, OutPoint::null())),
    Block.rejects("null-input-first-of-three", "bad-txns-prevout-null", |builder| {
        let coins = [builder.take(), builder.take(), builder.take()];
        let mut tx = builder.spend(&coins.each_ref(), vec![anyone(1_000)]);
        tx.input[0].previous_output = OutPoint::null();
        builder.draft(vec![tx])
    }),
    // Half of a null outpoint is only a coin that does not exist.
    Spend.rejects("input-of-a-null-txid", MISSING, |builder| {
        with_second_input(builder, OutPoint { vout: 0, ..OutPoint::null() })
    }),
    Spend.rejects("input-of-the-last-output-number", MISSING, |builder| {
        let txid = builder.simple().compute_txid();
        with_second_input(builder, OutPoint { txid, ..OutPoint::null() })
    }),
    Block.rejects("lock-at-this-height", NONFINAL, |builder| locked(builder, BlockBuilder::height, 0)),
    Block.accepts("lock-at-the-height-before", |builder| locked(builder, |builder| builder.height() - 1, 0)),
    Block.accepts("lock-that-no-sequence-turns-on", |it| locked(it, BlockBuilder::height, u32::MAX)),
    Block.rejects("lock-that-a-sequence-just-turns-on", NONFINAL, |builder| {
        locked(builder, BlockBuilder::height, u32::MAX - 1)
    }),
    Block.rejects("lock-at-the-greatest-height", NONFINAL, |builder| locked(builder, |_| 499_999_999, 0)),
    Block.accepts("lock-at-the-least-time", |builder| locked(builder, |_| 500_000_000, OFF)),
    Block.rejects("lock-at-the-time-of-the-block", NONFINAL, |builder| {
        locked(builder, |builder| builder.draft(vec![]).time, OFF)
    }),
    Block.rejects("lock-at-the-median-time", NONFINAL, |it| locked(it, BlockBuilder::median_time, OFF)),
    Block.accepts("lock-before-the-median-time", |it| locked(it, |it| it.median_time() - 1, OFF)),
    Block.rejects("coinbase-locked", NONFINAL, |builder| {
        builder.with_coinbase(|coinbase| {
            coinbase.lock_time = LockTime::from_consensus(builder.height());
            coinbase.input[0].sequence = Sequence(0);
        })
    }),
    Spend.rejects("relative-lock-of-4-blocks", NONFINAL, |builder| relative(builder, 2, |_, _| 4)),
    Spend.accepts("relative-lock-of-3-blocks", |builder| relative(builder, 2, |_, _| 3)),
    Spend.accepts("relative-lock-in-version-1", |builder| relative(builder, 1, |_, _| 4)),
    Spend.rejects("relative-lock-in-version-minus-1", NONFINAL, |builder| {
        // Versions are compared as unsigned numbers (in Core since 28).
        relative(builder, -1, |_, _| 4)
    }),
    Spend.accepts("relative-lock-turned-off", |builder| relative(builder, 2, |_, _| OFF | 4)),
    Spend.accepts("relative-lock-of-3-blocks-and-unused-bits", |it| relative(it, 2, |_, _| UNUSED | 3)),
    Spend.rejects("relative-lock-of-4-blocks-and-unused-bits", NONFINAL, |builder| {
        relative(builder, 2, |_, _| UNUSED | 4)
    }),
    Spend.rejects("relative-lock-of-65535-blocks", NONFINAL, |builder| relative(builder, 2, |_, _| 0xffff)),
    Spend.accepts("relative-lock-of-0-blocks-in-the-block", |builder| relative_to_itself(builder, 0)),
    Spend.rejects("relative-lock-of-1-block-in-the-block", NONFINAL, |it| relative_to_itself(it, 1)),
    Spend.rejects("relative-lock-of-time-1-unit-more", NONFINAL, |builder| {
        relative(builder, 2, |builder, made| BY_TIME | (units(builder, made) + 1))
    }),
    Spend.accepts("relative-lock-of-time-passed", |it| relative(it, 2, |it, made| BY_TIME | units(it, made))),
];
