//! Coins that are looked up in a chainstate, or found by their scripts, are those of the model; nothing on
//! disk changes.

use acceptance::prelude::*;
use engine::utxo::{StoredCoin, StoredCoins};

/// All coins of the chain in the order of their outpoints, as they should be found.
fn expected() -> Vec<StoredCoin> {
    let coins = chain().model.coins.iter().map(|(outpoint, coin)| StoredCoin {
        outpoint: *outpoint,
        amount: Sats(coin.amount),
        script: coin.script.clone(),
        height: engine::Height(coin.code >> 1),
        is_coinbase: coin.code & 1 == 1,
        confirmations: Some(TIP - (coin.code >> 1) + 1),
    });
    coins.collect()
}

/// A datadir with the chainstate of the whole chain.
fn rebuilt() -> (Case, ChainOptions) {
    let case = Case::at_tip();
    let options = ChainOptions::reading(case.root(), Network::Regtest);
    (case, options)
}

#[test]
fn outpoints_have_the_coins_of_the_model_or_none() {
    let (case, options) = rebuilt();
    let before = tree(case.root());
    let mut expected = expected();
    expected.reverse(); // the order of the request is kept
    let mut outpoints: Vec<OutPoint> = expected.iter().map(|coin| coin.outpoint).collect();
    let absent: Vec<OutPoint> =
        outpoints.iter().map(|outpoint| OutPoint { vout: outpoint.vout + 20_000, ..*outpoint }).collect();
    outpoints.extend(&absent);
    let found = engine::utxo::get(&FaultDisk::healthy(), &options, &outpoints).unwrap();
    assert!(found.coins == expected && expected.len() > 100);
    assert_eq!(found.not_unspent, absent);
    let tip = chain().tip();
    assert_eq!((found.best_block, found.height.map(|height| height.0)), (tip.hash, Some(tip.height)));
    assert_same_tree(&before, case.root(), "get");
}

#[test]
fn a_scan_finds_all_coins_of_its_scripts_with_any_number_of_threads() {
    let (case, options) = rebuilt();
    let before = tree(case.root());
    let all = expected();
    // Every second script, and one that no coin has.
    let mut scripts: Vec<Vec<u8>> = all.iter().step_by(2).map(|coin| coin.script.clone()).collect();
    scripts.push(vec![0x6a]);
    let expected: Vec<&StoredCoin> = all.iter().filter(|coin| scripts.contains(&coin.script)).collect();
    assert!(expected.len() > scripts.len() / 2 && expected.len() < all.len());
    for threads in THREADS {
        let options = ChainOptions { threads: NonZeroUsize::new(threads).unwrap(), ..options.clone() };
        let report = engine::utxo::scan(&FaultDisk::healthy(), &options, &scripts, unwatched()).unwrap();
        assert!(report.found.iter().map(|found| &found.coin).eq(expected.iter().copied()), "{threads}");
        assert_eq!(report.txouts, all.len() as u64);
        assert_eq!(report.found_amount.0, expected.iter().map(|coin| coin.amount.0).sum::<i64>());
        for found in &report.found {
            let first = scripts.iter().position(|script| *script == found.coin.script);
            assert_eq!(Some(found.script_index), first);
            let block = block_at(found.coin.height.0);
            assert_eq!(found.block_hash, Some(block.hash));
        }
    }
    let watch = Watch { interrupt: &AtomicBool::new(true), ..unwatched() };
    let scanned = engine::utxo::scan(&FaultDisk::healthy(), &options, &scripts, watch);
    let counted = engine::utxo::stats(&FaultDisk::healthy(), &options, false, watch);
    let kinds = [scanned.unwrap_err().kind, counted.unwrap_err().kind];
    assert_eq!(kinds, [ErrorKind::Interrupted; 2]);
    assert_same_tree(&before, case.root(), "scan");
}

#[test]
fn without_a_block_index_only_heights_and_blocks_are_unknown() {
    let (case, options) = rebuilt();
    fs::remove_dir_all(case.blocks("index")).unwrap();
    let all = expected();
    let script = &all[0].script;
    let report = engine::utxo::scan(&FaultDisk::healthy(), &options, &[script], unwatched()).unwrap();
    assert!(report.height.is_none() && !report.found.is_empty());
    assert!(report.found.iter().all(|found| {
        found.block_hash.is_none() && found.coin.confirmations.is_none() && found.coin.script == *script
    }));
    let found = engine::utxo::get(&FaultDisk::healthy(), &options, &[all[0].outpoint]).unwrap();
    assert_eq!(found.coins, [StoredCoin { confirmations: None, ..all[0].clone() }]);
}

/// An export ended well, without the times of the blocks.
#[test]
fn a_block_index_that_may_not_be_read_does_not_count_as_missing() {
    let (case, options) = rebuilt();
    let (memory, coins) = (options.memory_bytes, StoredCoins::Chainstate(options));
    let read =
        |disk: &FaultDisk| engine::utxo::read(disk, &coins, memory, true, &mut |_, _| Ok(()), unwatched());
    let denied = FaultDisk::healthy().with_denied(&case.blocks("index/CURRENT"));
    assert_fails(read(&denied), ErrorKind::Environment, &["permission denied"]);
    fs::remove_dir_all(case.blocks("index")).unwrap();
    read(&FaultDisk::healthy()).unwrap();
}

#[test]
fn each_coin_of_a_chainstate_of_bitcoin_core_is_found() {
    let Some(dir) = unpack_core_datadir("regtest") else { return };
    let disk = FaultDisk::healthy();
    let options = ChainOptions::reading(dir.path(), Network::Regtest);
    let reader = ChainstateReader::open(&disk, &dir.path().join("regtest/chainstate")).unwrap();
    let (mut cursor, mut outpoints, mut scripts) = (reader.coins().unwrap(), Vec::new(), Vec::new());
    while let Some((outpoint, coin)) = cursor.advance().unwrap() {
        outpoints.push(outpoint);
        scripts.push(ModelCoin::of(&coin).script);
    }
    let found = engine::utxo::get(&disk, &options, &outpoints).unwrap();
    assert!(found.not_unspent.is_empty() && found.coins.len() == outpoints.len());
    let scanned = engine::utxo::scan(&disk, &options, &scripts, unwatched()).unwrap();
    assert_eq!((scanned.found.len(), scanned.txouts), (outpoints.len(), outpoints.len() as u64));
    let mut coins = found.coins;
    coins.sort_unstable_by_key(|coin| coin.outpoint);
    assert!(scanned.found.iter().map(|found| &found.coin).eq(&coins));
}
