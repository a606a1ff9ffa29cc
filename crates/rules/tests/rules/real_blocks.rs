//! Real mainnet blocks pass, and their coinbases claim exactly the subsidy and the fees.
//!
//! The blocks have no ancestors here, so values that depend on them are replaced by values that cannot fail:
//! the median time past is the block's own time (which is above it), and for time-based relative locks all
//! coins are old.

use crate::{common, prelude::*};

use peregrine_rules::{pow, subsidy};
use wire::{Coin, coin::compressed_output};

fn index() -> Option<Vec<(Height, String)>> {
    let path = testdata::shared_data("blocks/INDEX.tsv")?;
    let text = fs::read_to_string(path).unwrap();
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    Some(rows.map(|row| (Height(row[0].parse().unwrap()), row[1].to_owned())).collect())
}

#[test]
fn real_blocks_pass_their_rules() {
    let Some(index) = index() else { return };
    let params = ChainParams::of(Network::Main);
    assert_eq!(index.len(), 18);
    for (height, hash) in index {
        let bytes = fs::read(testdata::shared_data(&format!("blocks/{height}.raw")).unwrap()).unwrap();
        let mut arena = BlockArena::default();
        let block = arena.parse(&bytes).unwrap();
        let own_hash = block.header().hash();
        assert_eq!(own_hash.to_string(), hash);
        assert!(pow::has_proof_of_work(params, &own_hash, block.header().bits), "{height}");
        common::check_bytes(params, height, &block, block.header().time)
            .unwrap_or_else(|violation| panic!("{height}: {violation}"));
        check_spends(height, &block);
    }
}

/// Checks that the coinbase claims the subsidy and the fees to the last satoshi, which all of these do.
fn check_spends(height: Height, block: &BlockView<'_>) {
    let Some(prevouts) = testdata::shared_data("prevouts") else { return };
    let params = ChainParams::of(Network::Main);
    // Of these blocks, some have their coins there.
    let Ok(text) = fs::read_to_string(prevouts.join(format!("{height}.prevouts.jsonl"))) else { return };
    let rows: Vec<serde_json::Value> = text.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let mut compressed = Vec::new();
    for (row, prevout) in rows.iter().zip(block.prevouts()) {
        assert_eq!(row["txid"], prevout.txid.to_string(), "{height}");
        let script = common::unhex(row["script"].as_str().unwrap());
        let out = compressed_output(Sats(row["value"].as_i64().unwrap()), &script);
        let code =
            Coin::code_of(Height(row["height"].as_u64().unwrap() as u32), row["coinbase"].as_bool().unwrap());
        compressed.push((code, out));
    }
    assert_eq!(compressed.len(), block.input_count() - 1);
    let coins: Vec<_> = compressed
        .iter()
        .map(|(code, out)| SpentCoin::from_coin(&Coin { code: *code, out }).unwrap())
        .collect();
    let mut mtp = vec![BlockTime(0); height.0 as usize];
    *mtp.last_mut().unwrap() = block.header().time;
    let hash = block.header().hash();
    let totals = common::check_spends(params, height, &hash, block, &coins, &mtp)
        .unwrap_or_else(|violation| panic!("{height}: {violation}"));
    let pays: i64 = block.tx(0).unwrap().outputs().map(|output| output.value().0).sum();
    assert_eq!(pays, totals.fees.0 + subsidy(params, height).0, "{height}");
    let legacy_sigops = block.txs().map(|tx| peregrine_rules::sigops::count_legacy_of_tx(&tx)).sum::<u32>();
    assert!(totals.sigop_cost >= u64::from(legacy_sigops) * 4 && totals.sigop_cost <= 80_000);
}
