//! The boundaries that no block of the table of mutations can reach: hashes that cannot be mined, rules that
//! regtest does not have, amounts that its coins do not add up to, claims that are wrong. The table of rules
//! names these tests in pairs of an accepting and a rejecting one, so each boundary has two functions.

use crate::{common, prelude::*};

use common::{Verdict, assert_accepts, assert_rejects, mutated, regtest, worth};
use peregrine_rules::pow::target;

const ALL_MONEY: i64 = Sats::MAX_MONEY.0;
/// The time of the genesis header; others follow ten minutes apart.
const TIME: u32 = 1_600_000_000;

/// Returns the verdict on an edited header of version 4 with this hash, ten minutes after its parent.
fn header(height: u32, params: &ChainParams, hash: BlockHash, edit: impl FnOnce(&mut Header)) -> Verdict {
    let of_height = |height: u32| Header {
        version: 4,
        time: BlockTime(TIME + 600 * height),
        bits: 0x207f_ffff,
        ..Header::default()
    };
    let ancestors: Vec<Header> = (0..height).map(of_height).collect();
    let mut header = of_height(height);
    let now = header.time;
    edit(&mut header);
    let (height, header, ancestors) = (Height(height), &header, &ancestors.as_slice());
    check_header(&HeaderContext { params, height, header, hash: &hash, ancestors, now })
}

/// Returns the verdict on a header whose hash is `difference` above its target.
fn above_target(height: u32, difference: u64) -> Verdict {
    let target = target(regtest(), 0x207f_ffff).unwrap();
    let hash = BlockHash(target.wrapping_add(U256::from(difference)).to_le_bytes());
    header(height, regtest(), hash, |_| ())
}

#[test]
fn accepts_hash_at_the_target() {
    assert_accepts(&above_target(20, 0));
    assert_accepts(&above_target(0, 0));
}

#[test]
fn rejects_hash_above_the_target() {
    assert_rejects("proof-of-work", &above_target(20, 1));
}

#[test]
fn rejects_a_target_above_the_limit_or_of_zero() {
    for (height, bits) in [(20, 0x2080_0000), (0, 0)] {
        let verdict = header(height, regtest(), BlockHash::default(), |header| header.bits = bits);
        assert_rejects("proof-of-work", &verdict);
    }
}

/// Returns the verdict on the first header of an interval that is `seconds` earlier than its parent.
fn interval_back(seconds: u32, enforce_bip94: bool) -> Verdict {
    let params = ChainParams { enforce_bip94, ..regtest().clone() };
    header(144, &params, BlockHash::default(), |header| header.time.0 -= 600 + seconds)
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
    header(20, regtest(), BlockHash::default(), |header| header.time.0 += seconds)
}

#[test]
fn accepts_time_2_hours_ahead() {
    assert_accepts(&time_ahead(7_200));
}

#[test]
fn rejects_time_2_hours_and_1_second_ahead() {
    assert_rejects("time-not-in-future", &time_ahead(7_201));
}

#[test]
fn a_bad_version_has_cores_reject_string() {
    let violation = header(20, regtest(), BlockHash::default(), |header| header.version = -2).unwrap_err();
    let expected = "version-2: version is -2, expected at least 2 (BIP-0034, Core bad-version(0xfffffffe))";
    assert_eq!(violation.to_string(), expected);
}

/// Returns the verdict on a transaction of `size` bytes by itself, since no valid block can contain the
/// larger one.
fn tx_of_size(size: usize) -> Verdict {
    // Version; one input without script; one output with a script whose length takes five bytes; lock time.
    let rest = 4 + 1 + 41 + 1 + 8 + 5 + 4;
    let script = (size - rest) as u32;
    let input = [&[1][..], &[7; 36], &[0], &[0xff; 4]].concat();
    let output = [&[1][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0xfe], &script.to_le_bytes()].concat();
    let bytes = [&[2, 0, 0, 0][..], &input, &output, &vec![0; script as usize], &[0; 4]].concat();
    assert_eq!(bytes.len(), size);
    let mut arena = BlockArena::default();
    let tx = &arena.parse_tx(&bytes).unwrap();
    check_tx(&TxContext { params: regtest(), height: Height(200), tx, tx_index: TxIndex(0) })
}

#[test]
fn accepts_tx_of_1000000_bytes() {
    assert_accepts(&tx_of_size(1_000_000));
}

#[test]
fn rejects_tx_of_1000001_bytes() {
    assert_rejects("tx-size", &tx_of_size(1_000_001));
}

/// Returns the verdict on the block that a row makes, if it spends these coins.
fn claims(row: &str, coins: &[SpentCoin<'_>]) -> Verdict {
    let chain = mutated(row);
    let mut arena = BlockArena::default();
    let block = arena.parse(&chain.tip().bytes).unwrap();
    let (height, medians) = (Height(chain.tip().height), common::medians_below_tip(&chain));
    common::check_spends(regtest(), height, &chain.tip().hash, &block, coins, &medians).map(|_| ())
}

/// A block with one spend, which has two inputs.
const TWO_INPUTS: &str = "pays-all-it-spends";
/// A block with two spends, each of which has one input.
const TWO_SPENDS: &str = "three-transactions";

#[test]
fn accepts_inputs_of_all_money() {
    assert_accepts(&claims(TWO_INPUTS, &[worth(ALL_MONEY - 1), worth(1)]));
}

#[test]
fn rejects_inputs_above_all_money() {
    for coins in [
        [worth(1), worth(ALL_MONEY)],
        [worth(ALL_MONEY + 1), worth(0)],
        [worth(i64::MAX), worth(i64::MAX)],
        [worth(-1), worth(ALL_MONEY)],
        // The first invalid coin is reported, as in Core.
        [worth(ALL_MONEY + 1), young(1)],
    ] {
        assert_rejects("input-values", &claims(TWO_INPUTS, &coins));
    }
    assert_rejects("coinbase-maturity", &claims(TWO_INPUTS, &[young(1), worth(ALL_MONEY + 1)]));
}

/// Returns a coin of a coinbase that cannot be spent yet.
const fn young(amount: i64) -> SpentCoin<'static> {
    SpentCoin { height: Height(150), is_coinbase: true, ..worth(amount) }
}

/// Returns the verdict on a block whose fees are all money, plus `more`.
fn fees_above_all_money_by(more: i64) -> Verdict {
    let chain = mutated(TWO_SPENDS);
    let mut arena = BlockArena::default();
    let block = arena.parse(&chain.tip().bytes).unwrap();
    let pays: i64 = block.txs().skip(1).flat_map(|tx| tx.outputs()).map(|output| output.value().0).sum();
    claims(TWO_SPENDS, &[worth(ALL_MONEY), worth(pays + more)])
}

#[test]
fn accepts_fees_of_all_money() {
    assert_accepts(&fees_above_all_money_by(0));
}

#[test]
fn rejects_fees_above_all_money() {
    assert_rejects("fees", &fees_above_all_money_by(1));
}

#[test]
fn a_claim_of_a_higher_block_or_of_too_few_coins_is_a_missing_coin() {
    let of_height = |height| SpentCoin { height: Height(height), ..worth(ALL_MONEY / 2) };
    let height = mutated(TWO_INPUTS).tip().height;
    assert_accepts(&claims(TWO_INPUTS, &[of_height(1), of_height(height)]));
    for coins in [&[of_height(1), of_height(height + 1)][..], &[of_height(1)], &[]] {
        assert_rejects("missing-or-spent", &claims(TWO_INPUTS, coins));
    }
}

/// The time of a lock counts from the block before the coin's, which the genesis block does not have.
#[test]
fn a_relative_lock_of_time_on_a_claim_of_the_genesis_block_is_compared() {
    let genesis = SpentCoin { height: Height(0), ..worth(ALL_MONEY) };
    assert_accepts(&claims("relative-lock-of-time-passed", &[worth(0), genesis]));
}

/// The signature operations of P2SH do not count in a block that is exempt from P2SH.
#[test]
fn p2sh_sigops_do_not_count_in_exempt_blocks() {
    let exceptions = ChainParams::of(Network::Main).script_flag_exceptions;
    let params = ChainParams { script_flag_exceptions: exceptions, ..regtest().clone() };
    let mut chain = mutated("p2sh-sigops-20001");
    let exempt = chain.blocks.len() - 1;
    for (hash, refused_by) in [
        (exceptions[0].0, None),
        (exceptions[1].0, Some("sigop-cost")),
        (BlockHash::default(), Some("sigop-cost")),
    ] {
        chain.blocks[exempt].hash = hash;
        let refused = common::check_tip(&params, &chain).err().map(|(_, violation)| violation.rule.id);
        assert_eq!(refused, refused_by, "{hash}");
    }
}
