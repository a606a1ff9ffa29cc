//! Each way in which connecting or disconnecting fails, or is not clean, except for the rules of spends:
//! each row of testkit's table of mutations goes through `connect_block` in the ways without a join.

use super::*;
use coins::CacheError;
use std::{cell::Cell, fmt};
use testkit::verifiers::Deciding;
use wire::read::write_var_int;

/// Returns the coins after a block at height 1 whose coinbase has three outputs of 1 BTC, and these
/// outputs.
fn three_coins() -> (MemoryCoins, [OutPoint; 3]) {
    let first = coinbase_paying(1, &[(BTC, ANYONE); 3]);
    let mut coins = no_coins();
    add(&mut coins, &params(), 1, std::slice::from_ref(&first));
    (coins, [0, 1, 2].map(|vout| output(&first, vout)))
}

/// Inputs with this signature script fail.
const BAD_SIGNATURE: &[u8] = &[1, 0];

const VERIFIER: Deciding = Deciding(|tx, coins| {
    assert!(coins.iter().all(|(amount, script)| amount.0 > 0 && script == ANYONE));
    let inputs: Vec<_> = tx.inputs().map(|input| input.script_sig() != BAD_SIGNATURE).collect();
    assert_eq!(inputs.len(), coins.len());
    inputs
});

#[test]
fn scripts_are_checked_last_and_only_if_they_are_run() {
    let (coins, [a, b, c]) = three_coins();
    let scripts = Scripts {
        params: ChainParams::of(Network::Regtest),
        verifier: &VERIFIER,
        skipped_to: None,
        queue_bytes: 0,
    };
    let valid = tx(&[a], &[(BTC, ANYONE)]);
    let invalid = raw_tx(1, &[(b, &[], u32::MAX), (c, BAD_SIGNATURE, u32::MAX)], &[(BTC, ANYONE)]);
    let check = |reward: u64, scripts: Option<&Scripts<'_>>| {
        let mut coins = coins.clone();
        let txs = [coinbase_paying(2, &[(reward, ANYONE)]), valid.clone(), invalid.clone()];
        let block = Block::next(&coins, MATURE, &txs);
        let error = connect_with(&mut coins, &params(), &block, scripts).err();
        error.map(violation).map(|found| (found.core.to_string(), found.tx, found.input))
    };
    assert_eq!(check(BTC, None), None);
    let failed = ("block-script-verify-flag-failed".to_owned(), Some(TxIndex(2)), Some(1));
    assert_eq!(check(BTC, Some(&scripts)), Some(failed));
    let greedy = check(52 * BTC, Some(&scripts)).unwrap();
    assert_eq!((greedy.0.as_str(), greedy.1), ("bad-cb-amount", Some(TxIndex(0))));
}

#[test]
fn bip30_is_checked_before_spends() {
    let (mut coins, [a, ..]) = three_coins();
    let unknown = OutPoint { vout: 3, ..a };
    let repeated = coinbase_paying(1, &[(BTC, ANYONE); 3]);
    let block = Block::next(&coins, 2, &[repeated, tx(&[unknown], &[(1, ANYONE)])]);
    let violation = connect(&mut coins, &params(), &block).unwrap_err();
    assert_eq!((violation.core.as_ref(), violation.tx), ("bad-txns-BIP30", Some(TxIndex(0))));
}

#[test]
#[should_panic(expected = "a block is connected to its parent")]
fn connecting_to_another_block_than_the_parent_is_a_mistake_of_the_caller() {
    let (mut coins, _) = three_coins();
    let block = Block::next(&no_coins(), 2, &[coinbase(2)]);
    let _ = connect(&mut coins, &params(), &block);
}

/// A database that fails after a number of look-ups.
struct FailingSource {
    coins: MemoryCoins,
    left: Cell<u32>,
}

impl CoinSource for FailingSource {
    type Error = fmt::Error;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, fmt::Error> {
        self.left.set(self.left.get().checked_sub(1).ok_or(fmt::Error)?);
        Ok(self.coins.coin(outpoint).unwrap())
    }
}

#[test]
fn every_failure_of_the_database_is_reported() {
    let (coins, connected, block, undo, _) = spending_block();
    let above = |coins: &MemoryCoins, look_ups| {
        let source = FailingSource { coins: coins.clone(), left: Cell::new(look_ups) };
        CoinsCache::new(source, coins.best_block(), SipKey(1, 2))
    };
    // Three outputs looked up, two coins spent.
    for look_ups in 0..5 {
        let error = connect_with(&mut above(&coins, look_ups), &params(), &block, None).unwrap_err();
        let is_expected = matches!(error, ConnectError::Coins(CacheError::Source(fmt::Error)));
        assert!(is_expected, "{look_ups}: {error:?}");
    }
    assert_eq!(connect_with(&mut above(&coins, 5), &params(), &block, None).unwrap(), undo);
    // Three coins removed, two looked up and restored.
    for look_ups in 0..5 {
        let error = disconnect(&mut above(&connected, look_ups), &params(), &block, &undo).unwrap_err();
        let is_expected = matches!(error, DisconnectError::Coins(CacheError::Source(fmt::Error)));
        assert!(is_expected, "{look_ups}: {error:?}");
    }
    let whole = disconnect(&mut above(&connected, 5), &params(), &block, &undo).unwrap();
    assert_eq!(whole, DisconnectResult::Ok);
}

/// The coins before and after a block that spends two coins, the block, its undo data and the coins spent.
fn spending_block() -> (MemoryCoins, MemoryCoins, Block, Vec<u8>, [OutPoint; 2]) {
    let (before, [a, b, _]) = three_coins();
    let mut coins = before.clone();
    let txs = [coinbase(2), tx(&[a, b], &[(BTC, ANYONE); 2])];
    let (block, undo) = add(&mut coins, &params(), MATURE, &txs);
    (before, coins, block, undo, [a, b])
}

#[test]
fn undo_data_of_another_block_fails() {
    let (_, coins, block, _, _) = spending_block();
    let coin = Coin { code: Coin::code_of(Height(1), true), out: &[50, 7, 0x51] };
    // Its amount does not fit into 64 bits when decompressed, so it is no coin, although it can be parsed.
    let mut overflowing = Vec::new();
    write_var_int(&mut overflowing, 9_000_000_000_000_000_009);
    overflowing.extend([7, 0x51]);
    let malformed = Coin { out: &overflowing, ..coin };
    for (txs, flaw) in [
        (vec![], "undo data of 0 transactions for 2 in the block"),
        (vec![vec![coin; 2]; 2], "undo data of 2 transactions for 2 in the block"),
        (vec![vec![coin]], "undo data of 1 inputs for 2 of transaction 1"),
        (vec![vec![coin; 3]], "undo data of 3 inputs for 2 of transaction 1"),
        (vec![vec![coin, malformed]], "undo data with a malformed coin"),
    ] {
        let undo = write_undo(txs.iter().map(|coins| coins.iter().copied()));
        let result = disconnect(&mut coins.clone(), &params(), &block, &undo);
        let Err(DisconnectError::Failed(found)) = result else { panic!("{flaw}: {result:?}") };
        assert!(found.starts_with(flaw), "{found}");
    }
}

#[test]
fn created_coins_that_are_missing_or_others_are_unclean() {
    let (before, coins, block, undo, _) = spending_block();
    let created = output(&coinbase(2), 0);
    let Ok(Some(coin)) = coins.coin(&created) else { panic!("the block creates it") };
    let code = |height, is_coinbase| OwnedCoin {
        code: Coin::code_of(Height(height), is_coinbase),
        out: coin.out.clone(),
    };
    let amount = OwnedCoin { code: coin.code, out: [51, 7, 0x51].into() };
    let script = OwnedCoin { code: coin.code, out: [9, 7, 0x52].into() };
    for other in [None, Some(code(2, true)), Some(code(MATURE, false)), Some(amount), Some(script)] {
        let mut coins = coins.clone();
        coins.spend_coin(&created).unwrap();
        if let Some(other) = &other {
            coins.add_coin(created, other.as_coin(), false).unwrap();
        }
        let result = disconnect(&mut coins, &params(), &block, &undo).unwrap();
        assert_eq!(result, DisconnectResult::Unclean, "{other:?}");
        assert_eq!(all(&coins), all(&before), "the effects of the block are removed all the same");
    }
}

#[test]
fn a_spent_coin_that_exists_is_unclean_and_replaced() {
    let (before, mut coins, block, undo, [a, _]) = spending_block();
    coins.add_coin(a, Coin { code: 8, out: &[50, 7, 0x51] }, false).unwrap();
    assert_eq!(disconnect(&mut coins, &params(), &block, &undo).unwrap(), DisconnectResult::Unclean);
    assert_eq!(all(&coins), all(&before));
}

/// Disconnecting twice, as after a crash, changes nothing more.
#[test]
fn disconnecting_again_is_unclean_and_changes_nothing() {
    let (before, mut coins, block, undo, _) = spending_block();
    assert_eq!(disconnect(&mut coins, &params(), &block, &undo).unwrap(), DisconnectResult::Ok);
    assert_eq!(disconnect(&mut coins, &params(), &block, &undo).unwrap(), DisconnectResult::Unclean);
    assert_eq!(all(&coins), all(&before));
}

#[test]
fn undo_data_cannot_restore_an_unspendable_output() {
    let (mut before, mut coins, block, _, [a, b]) = spending_block();
    let unspendable = Coin { code: 3, out: &[50, 7, 0x6a] };
    let Ok(Some(spent)) = before.coin(&b) else { panic!("the block spends it") };
    let undo = write_undo([[unspendable, spent.as_coin()].into_iter()].into_iter());
    assert_eq!(disconnect(&mut coins, &params(), &block, &undo).unwrap(), DisconnectResult::Ok);
    before.spend_coin(&a).unwrap();
    assert_eq!(all(&coins), all(&before));
}
