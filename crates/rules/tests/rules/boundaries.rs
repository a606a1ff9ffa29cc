//! The boundaries that no block of the table of mutations can reach: hashes that cannot be mined, forks that
//! regtest has from its start, amounts that its coins do not add up to. The table of rules names these tests
//! in pairs of an accepting and a rejecting one, so each boundary has two functions.

use crate::common;

use common::{
    Block, HEIGHT, MEDIAN_TIME, Tx, Verdict, assert_accepts, assert_rejects, check_spends_of,
    check_tx_in_block, coin, header, header_with_hash, input, output,
};
use peregrine_rules::{ChainParams, SpentCoin, TxContext, U256, check_tx};
use wire::{BlockArena, BlockHash, BlockTime, Height, Network, OutPoint, Sats, TxIndex};

const ALL_MONEY: i64 = Sats::MAX_MONEY.0;

fn regtest() -> &'static ChainParams {
    ChainParams::of(Network::Regtest)
}

/// Returns the verdict on a header whose hash is `difference` above its target.
fn above_target(difference: u64) -> Verdict {
    let target = peregrine_rules::pow::target(regtest(), 0x207f_ffff).unwrap();
    let hash = BlockHash(target.wrapping_add(U256::from_u64(difference)).to_le_bytes());
    header_with_hash(20, regtest(), hash, |_| ())
}

#[test]
fn accepts_hash_at_the_target() {
    assert_accepts(&above_target(0));
    assert_accepts(&header(0, regtest(), |_| ()));
}

#[test]
fn rejects_hash_above_the_target() {
    assert_rejects("proof-of-work", &above_target(1));
}

#[test]
fn rejects_a_target_above_the_limit_or_of_zero() {
    assert_rejects("proof-of-work", &header(20, regtest(), |header| header.bits = 0x2080_0000));
    assert_rejects("proof-of-work", &header(0, regtest(), |header| header.bits = 0));
}

/// Returns the verdict on the first header of an interval that is `seconds` earlier than its parent.
fn interval_back(seconds: u32, enforce_bip94: bool) -> Verdict {
    let params = ChainParams { enforce_bip94, ..regtest().clone() };
    header(144, &params, |header| header.time = BlockTime(MEDIAN_TIME + 600 * 143 - seconds))
}

#[test]
fn accepts_interval_600_seconds_back() {
    assert_accepts(&interval_back(600, true));
}

#[test]
fn rejects_interval_601_seconds_back() {
    assert_rejects("timewarp", &interval_back(601, true));
    assert_accepts(&interval_back(601, false));
}

/// Returns the verdict on a header `seconds` in the future.
fn time_ahead(seconds: u32) -> Verdict {
    header(20, regtest(), |header| header.time = BlockTime(MEDIAN_TIME + 600 * 20 + seconds))
}

#[test]
fn accepts_time_2_hours_ahead() {
    assert_accepts(&time_ahead(7_200));
}

#[test]
fn rejects_time_2_hours_and_1_second_ahead() {
    assert_rejects("time-not-in-future", &time_ahead(7_201));
}

/// Returns the verdict on a header of a version at height 20, if forks begin at these heights.
fn version_with_forks(version: i32, bip34: u32, bip66: u32) -> Verdict {
    let params = ChainParams {
        bip34_height: Height(bip34),
        bip66_height: Height(bip66),
        bip65_height: Height(99),
        ..regtest().clone()
    };
    header(20, &params, |header| header.version = version)
}

#[test]
fn accepts_version_2_from_bip34_on() {
    assert_accepts(&version_with_forks(2, 20, 21));
    assert_accepts(&version_with_forks(1, 21, 22));
}

#[test]
fn rejects_version_1_from_bip34_on() {
    assert_rejects("version-2", &version_with_forks(1, 20, 21));
}

#[test]
fn accepts_version_3_from_bip66_on() {
    assert_accepts(&version_with_forks(3, 19, 20));
    assert_accepts(&version_with_forks(2, 20, 21));
}

#[test]
fn rejects_version_2_from_bip66_on() {
    assert_rejects("version-3", &version_with_forks(2, 19, 20));
    assert_rejects("version-3", &version_with_forks(-1, 99, 20));
}

/// Returns a block of three transactions, and one with the last repeated, which has the same merkle root.
fn three_and_twin() -> (Block, Block) {
    let three = Block::segwit();
    let twin = three.clone().with(|block| block.txs.push(block.txs[2].clone()));
    assert_eq!(three.header.merkle_root, twin.clone().with_merkle_root().header.merkle_root);
    (three, twin)
}

#[test]
fn accepts_odd_last_transaction() {
    assert_accepts(&three_and_twin().0.check());
}

#[test]
fn rejects_odd_last_transaction_repeated() {
    assert_rejects("merkle-twin", &three_and_twin().1.check());
}

/// Returns the verdict on a transaction of `size` bytes by itself, since no valid block can contain the
/// larger one.
fn tx_of_size(size: usize) -> Verdict {
    let mut tx = Tx::spend(vec![input(1, 0)], 1);
    // From 0x10000 on, the script's length takes five bytes instead of one.
    let fill = size - tx.bytes().len() - 4 + 1;
    tx.outputs[0].script = vec![0; fill];
    let bytes = tx.bytes();
    assert_eq!(bytes.len(), size);
    let mut arena = BlockArena::default();
    let view = arena.parse_tx(&bytes).unwrap();
    check_tx(&TxContext { params: regtest(), height: Height(HEIGHT), tx: &view, tx_index: TxIndex(0) })
}

#[test]
fn accepts_tx_of_1000000_bytes() {
    assert_accepts(&tx_of_size(1_000_000));
}

#[test]
fn rejects_tx_of_1000001_bytes() {
    assert_rejects("tx-size", &tx_of_size(1_000_001));
}

/// Returns the verdict on a transaction with these outputs.
fn pays(values: &[i64]) -> Verdict {
    let outputs = values.iter().copied().map(output).collect();
    check_tx_in_block(Tx { outputs, ..Tx::spend(vec![input(1, 0)], 1) })
}

#[test]
fn accepts_output_of_all_money() {
    assert_accepts(&pays(&[ALL_MONEY]));
}

#[test]
fn rejects_output_above_all_money() {
    for values in [&[ALL_MONEY + 1][..], &[1, ALL_MONEY + 1], &[i64::MAX]] {
        assert_rejects("output-not-too-large", &pays(values));
    }
}

#[test]
fn accepts_outputs_of_all_money() {
    assert_accepts(&pays(&[ALL_MONEY - 1, 1, 0]));
}

#[test]
fn rejects_outputs_above_all_money() {
    // The first invalid output is reported, as in Core: the one after it is negative.
    for values in [&[ALL_MONEY, 1][..], &[ALL_MONEY, 1, -1]] {
        assert_rejects("output-total", &pays(values));
    }
}

/// Returns the verdict on a transaction that spends these coins, by number and output.
fn takes(coins: &[(u8, u32)]) -> Verdict {
    let inputs = coins.iter().map(|&(number, vout)| input(number, vout)).collect();
    check_tx_in_block(Tx::spend(inputs, 1))
}

/// Returns 200 coins of seven transactions.
fn many_coins() -> Vec<(u8, u32)> {
    (1..=200).map(|i| (i % 7 + 1, u32::from(i))).collect()
}

#[test]
fn accepts_inputs_of_one_transaction() {
    assert_accepts(&takes(&[(1, 0), (1, 1)]));
    assert_accepts(&takes(&[(1, 0), (2, 0), (1, 1)]));
    assert_accepts(&takes(&many_coins()));
}

#[test]
fn rejects_inputs_of_one_coin() {
    let many = [many_coins(), vec![(4, 3)]].concat();
    for coins in [&[(1, 0), (1, 0)][..], &[(1, 0), (2, 0), (1, 0)], &many] {
        assert_rejects("distinct-inputs", &takes(coins));
    }
}

#[test]
fn accepts_prevout_half_null() {
    assert_accepts(&takes(&[(0, 0)]));
    assert_accepts(&takes(&[(1, u32::MAX), (1, 0)]));
}

#[test]
fn rejects_prevout_null() {
    assert_eq!(input(0, u32::MAX).prevout, OutPoint::NULL);
    for coins in [&[(1, 0), (0, u32::MAX)][..], &[(0, u32::MAX), (1, 0), (2, 0)]] {
        assert_rejects("no-null-prevout", &takes(coins));
    }
}

const fn worth(amount: i64) -> SpentCoin<'static> {
    SpentCoin { amount: Sats(amount), ..coin() }
}

#[test]
fn accepts_inputs_of_all_money() {
    assert_accepts(&check_spends_of(&[worth(ALL_MONEY - 1), worth(1)], ALL_MONEY, |_| ()));
}

#[test]
fn rejects_inputs_above_all_money() {
    let young = SpentCoin { height: Height(101), is_coinbase: true, ..coin() };
    for (coins, pays) in [
        (&[worth(1), worth(ALL_MONEY)][..], ALL_MONEY),
        (&[worth(ALL_MONEY + 1)], ALL_MONEY),
        (&[worth(i64::MAX), worth(i64::MAX)], 1),
        (&[worth(-1), worth(2)], 1),
        // The first invalid coin is reported, as in Core.
        (&[worth(ALL_MONEY + 1), young], 1),
    ] {
        assert_rejects("input-values", &check_spends_of(coins, pays, |_| ()));
    }
}

/// Returns the verdict on a block whose fees are all money, paid by one transaction, plus `more`.
fn fees_above_all_money_by(more: i64) -> Verdict {
    let txs = vec![Tx::coinbase(), Tx::spend(vec![input(1, 0)], 0), Tx::spend(vec![input(2, 0)], 0)];
    Block::of(txs).check_spends(&[worth(ALL_MONEY), worth(more)]).map(|_| ())
}

#[test]
fn accepts_fees_of_all_money() {
    assert_accepts(&fees_above_all_money_by(0));
}

#[test]
fn rejects_fees_above_all_money() {
    assert_rejects("fees", &fees_above_all_money_by(1));
}
