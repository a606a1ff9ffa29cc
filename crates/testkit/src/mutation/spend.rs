//! Mutations of the coins that a block spends.

use super::*;
use CheckLevel::Spend;

const MISSING: &str = "bad-txns-inputs-missingorspent";
const PREMATURE: &str = "bad-txns-premature-spend-of-coinbase";

/// A block that spends the coinbase of `age` blocks ago.
fn of_coinbase_age(builder: &BlockBuilder<'_>, age: u32) -> Draft {
    let coin = builder.coinbase_of(builder.height() - age);
    builder.draft(vec![builder.send(&coin)])
}

/// A block whose outputs exceed its inputs by `surplus`.
fn of_surplus(builder: &mut BlockBuilder<'_>, surplus: i64) -> Draft {
    let coins = [builder.take(), builder.take()];
    let total = coins[0].coin.amount + coins[1].coin.amount;
    builder.spending(&coins.each_ref(), vec![anyone(total - 500), anyone(500 + surplus)])
}

pub(super) static ROWS: &[Mutation] = &[
    Spend.rejects("coin-never-made", MISSING, |builder| {
        let mut coin = builder.take();
        coin.outpoint.txid.0[5] ^= 1;
        coin.coin.amount = 50_000;
        builder.spending(&[&coin], vec![anyone(50_000)])
    }),
    Spend.rejects("output-beyond-the-last", MISSING, |builder| {
        let mut coin = builder.take();
        coin.outpoint.vout = 1;
        builder.spending(&[&coin], vec![anyone(50_000)])
    }),
    Spend.rejects("spent-twice-in-the-block", MISSING, |builder| {
        let coin = builder.take();
        let first = builder.send(&coin);
        let second = builder.spend(&[&coin], vec![anyone(coin.coin.amount - 1)]);
        builder.draft(vec![first, second])
    }),
    Spend.rejects("spent-in-the-block-before", MISSING, |builder| {
        let coin = builder.take();
        let first = builder.send(&coin);
        builder.add(vec![first]);
        builder.spending(&[&coin], vec![anyone(coin.coin.amount - 1)])
    }),
    Spend.rejects("made-later-in-the-block", MISSING, |builder| {
        let [parent, child] = builder.family();
        builder.draft(vec![child, parent])
    }),
    Spend.accepts("made-earlier-in-the-block", |builder| {
        let family = builder.family();
        builder.draft(family.into())
    }),
    Spend.rejects("coin-of-the-block-spent-twice", MISSING, |builder| {
        let [parent, child] = builder.family();
        let coin = builder.coin_of(&parent, 0);
        let rival = builder.spend(&[&coin], vec![anyone(coin.coin.amount - 1)]);
        builder.draft(vec![parent, child, rival])
    }),
    Spend.rejects("data-output-spent", MISSING, |builder| {
        let coin = builder.take();
        let data = ScriptBuf::from_bytes(vec![0x6a]);
        let coins = builder.divide(&coin, vec![anyone(1_000), paying(5_000, data)]);
        builder.spending(&[&coins[1]], vec![anyone(5_000)])
    }),
    Spend.rejects("genesis-coinbase-spent", MISSING, |builder| {
        let genesis: bitcoin::Block =
            bitcoin::consensus::deserialize(&builder.chain.blocks[0].bytes).expect("it is a block");
        let mut coin = builder.coin_of(&genesis.txdata[0], 0);
        coin.coin.code = 1;
        builder.spending(&[&coin], vec![anyone(1_000)])
    }),
    Spend.rejects("transaction-made-again", "bad-txns-BIP30", |builder| {
        // Its inputs are spent too, but Core first checks for coins that it would overwrite.
        let tx = builder.simple();
        builder.add(vec![tx.clone()]);
        builder.draft(vec![tx])
    }),
    Spend.rejects("transaction-made-again-once-spent", MISSING, |builder| {
        let tx = builder.simple();
        builder.add(vec![tx.clone()]);
        let coin = builder.tip_coin_of(&tx, 0);
        let spend = builder.send(&coin);
        builder.add(vec![spend]);
        builder.draft(vec![tx])
    }),
    Spend.rejects("coinbase-aged-99", PREMATURE, |builder| of_coinbase_age(builder, 99)),
    Spend.accepts("coinbase-aged-100", |builder| of_coinbase_age(builder, 100)),
    Spend.rejects("own-coinbase-spent", PREMATURE, |builder| {
        let draft = builder.draft(vec![]);
        let coinbase = draft.coinbase.clone().expect("a draft has one");
        let mut coin = builder.coin_of(&coinbase, 0);
        coin.coin.code |= 1;
        let tx = builder.send(&coin);
        Draft { txs: vec![tx], ..draft }
    }),
    Spend.rejects("pays-1-more-than-it-spends", "bad-txns-in-belowout", |builder| of_surplus(builder, 1)),
    Spend.accepts("pays-all-it-spends", |builder| of_surplus(builder, 0)),
];
