//! Real mainnet blocks with the coins that they spend: every input passes under the flags of its block, and
//! fails if any data that it signs or that locks it is changed.

use crate::{common, prelude::*};

use common::{Changes, SpentOutput, assert_inputs_pass, text, unhex};

const HEIGHTS: [u32; 9] = [170, 57_043, 116_928, 150_013, 210_000, 255_018, 388_381, 481_824, 709_632];

/// Number of coins that these blocks spend.
const INPUTS: u32 = 15_024;

/// Returns the coins that a block spends, in input order.
fn coins_of(height: u32) -> Option<Vec<SpentOutput>> {
    let rows = fs::read_to_string(shared_data(&format!("prevouts/{height}.prevouts.jsonl"))?).unwrap();
    let coin = |row: &str| {
        let coin: Value = serde_json::from_str(row).unwrap();
        (Sats(coin["value"].as_i64().unwrap()), unhex(text(&coin["script"])))
    };
    Some(rows.lines().map(coin).collect())
}

/// Calls `each` for every transaction of all real blocks except coinbases, with its flags and its coins;
/// returns whether there are any.
fn for_each_real_tx(mut each: impl FnMut(ScriptFlags, TxView<'_>, &[SpentOutput])) -> bool {
    for height in HEIGHTS {
        let Some(coins) = coins_of(height) else { return false };
        let bytes = fs::read(shared_data(&format!("blocks/{height}.raw")).unwrap()).unwrap();
        let mut arena = BlockArena::default();
        let block = arena.parse(&bytes).unwrap();
        let params = ChainParams::of(Network::Main);
        let flags = script_flags(params, Height(height), &block.header().hash());
        let mut coins = &coins[..];
        for tx in block.txs().skip(1) {
            let (own, rest) = coins.split_at(tx.input_count());
            each(flags, tx, own);
            coins = rest;
        }
        assert!(coins.is_empty());
    }
    true
}

#[test]
fn all_inputs_pass() {
    let mut inputs = 0;
    let found = for_each_real_tx(|flags, tx, coins| inputs += assert_inputs_pass(&tx, coins, flags));
    assert!(!found || inputs == INPUTS, "{inputs}");
}

#[test]
fn every_change_of_signed_data_fails() {
    let mut changes = Changes::default();
    let found = for_each_real_tx(|flags, tx, coins| changes.try_all(&tx, coins, flags));
    println!("{changes:?}");
    assert_eq!(changes.survivors, Vec::<String>::new());
    assert!(!found || changes.lock_time == INPUTS && changes.amount > 3_000 && changes.script_sig > 9_000);
}
