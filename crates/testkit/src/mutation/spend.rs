//! Rows about the coins a block spends.

use super::{
    Mutation, Stage,
    workbench::{Draft, Workbench, anyone, paying},
};
use Stage::Spend;
use bitcoin::ScriptBuf;

const MISSING: &str = "bad-txns-inputs-missingorspent";

/// Spends the coinbase of so many blocks ago.
fn of_coinbase_age(bench: &Workbench<'_>, age: u32) -> Draft {
    let coin = bench.coinbase_of(bench.height() - age);
    let tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
    bench.draft(vec![tx])
}

/// Pays out so much more than comes in.
fn of_surplus(bench: &mut Workbench<'_>, surplus: i64) -> Draft {
    let coins = [bench.take(), bench.take()];
    let total = coins[0].coin.amount + coins[1].coin.amount;
    let tx = bench.spend(&[&coins[0], &coins[1]], vec![anyone(total - 500), anyone(500 + surplus)]);
    bench.draft(vec![tx])
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::rejects("coin-never-made", MISSING, Spend, |bench| {
        let mut coin = bench.take();
        coin.outpoint.txid.0[5] ^= 1;
        coin.coin.amount = 50_000;
        let tx = bench.spend(&[&coin], vec![anyone(50_000)]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("output-beyond-the-last", MISSING, Spend, |bench| {
        let mut coin = bench.take();
        coin.outpoint.vout = 1;
        let tx = bench.spend(&[&coin], vec![anyone(50_000)]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("spent-twice-in-the-block", MISSING, Spend, |bench| {
        let coin = bench.take();
        let first = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        let second = bench.spend(&[&coin], vec![anyone(coin.coin.amount - 1)]);
        bench.draft(vec![first, second])
    }),
    Mutation::rejects("spent-in-the-block-before", MISSING, Spend, |bench| {
        let coin = bench.take();
        let first = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        bench.add(vec![first]);
        let second = bench.spend(&[&coin], vec![anyone(coin.coin.amount - 1)]);
        bench.draft(vec![second])
    }),
    Mutation::rejects("made-later-in-the-block", MISSING, Spend, |bench| {
        let parent = bench.simple();
        let coin = bench.coin_of(&parent, 0);
        let child = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        bench.draft(vec![child, parent])
    }),
    Mutation::accepts("made-earlier-in-the-block", Spend, |bench| {
        let parent = bench.simple();
        let coin = bench.coin_of(&parent, 0);
        let child = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        bench.draft(vec![parent, child])
    }),
    Mutation::rejects("coin-of-the-block-spent-twice", MISSING, Spend, |bench| {
        let parent = bench.simple();
        let coin = bench.coin_of(&parent, 0);
        let child = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        let rival = bench.spend(&[&coin], vec![anyone(coin.coin.amount - 1)]);
        bench.draft(vec![parent, child, rival])
    }),
    Mutation::rejects("data-output-spent", MISSING, Spend, |bench| {
        let coin = bench.take();
        let data = ScriptBuf::from_bytes(vec![0x6a]);
        let setup = bench.spend(&[&coin], vec![anyone(1_000), paying(5_000, data)]);
        bench.add(vec![setup.clone()]);
        let coin = bench.tip_coin_of(&setup, 1);
        let tx = bench.spend(&[&coin], vec![anyone(5_000)]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("genesis-coinbase-spent", MISSING, Spend, |bench| {
        let genesis: bitcoin::Block =
            bitcoin::consensus::deserialize(&bench.chain().blocks[0].bytes).expect("it is a block");
        let mut coin = bench.coin_of(&genesis.txdata[0], 0);
        coin.coin.code = 1;
        let tx = bench.spend(&[&coin], vec![anyone(1_000)]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("transaction-made-again", "bad-txns-BIP30", Spend, |bench| {
        // Its inputs are spent as well, but Core looks for what it would overwrite first.
        let tx = bench.simple();
        bench.add(vec![tx.clone()]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("transaction-made-again-once-spent", MISSING, Spend, |bench| {
        let tx = bench.simple();
        bench.add(vec![tx.clone()]);
        let coin = bench.tip_coin_of(&tx, 0);
        let spend = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        bench.add(vec![spend]);
        bench.draft(vec![tx])
    }),
    Mutation::rejects("coinbase-aged-99", "bad-txns-premature-spend-of-coinbase", Spend, |bench| {
        of_coinbase_age(bench, 99)
    }),
    Mutation::accepts("coinbase-aged-100", Spend, |bench| of_coinbase_age(bench, 100)),
    Mutation::rejects("own-coinbase-spent", "bad-txns-premature-spend-of-coinbase", Spend, |bench| {
        let draft = bench.draft(vec![]);
        let coinbase = draft.coinbase.clone().expect("a draft has one");
        let mut coin = bench.coin_of(&coinbase, 0);
        coin.coin.code |= 1;
        let tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        Draft { txs: vec![tx], ..draft }
    }),
    Mutation::rejects("pays-1-more-than-it-spends", "bad-txns-in-belowout", Spend, |bench| {
        of_surplus(bench, 1)
    }),
    Mutation::accepts("pays-all-it-spends", Spend, |bench| of_surplus(bench, 0)),
];
