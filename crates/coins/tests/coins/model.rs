//! Compares the join with the sequential model, over a universe so small that every kind of conflict occurs.
//!
//! There are sixteen transactions with up to four outputs; a chain is any list of blocks of them, including
//! repetitions. A transaction's inputs are fixed, as a txid fixes them, and refer only to transactions with
//! lower numbers, as hashes cannot form cycles: this is all that the join's proof assumes about txids. Undo
//! data is correct, or the most plausible wrong data. The verdict must equal the model's, whatever the order
//! of arrival, batching and threads.

use crate::chain::{self, Chain, Model, claims_of, txid};
use peregrine_coins::{
    CoinbaseTxids, Delta, Effects, Join, MemoryCoins, Merge, Mismatch, NoCoins, OwnedCoin, SHARDS, SipKey,
    SurvivorShard, Survivors, merge::ShardSource,
};
use proptest::prelude::*;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};
use wire::{BlockArena, BlockHash, Coin, Height, OutPoint, Txid};

/// Returns the coins that remain after a chain according to the sequential model, or `None` if it is invalid.
fn validate_sequentially(chain: &Chain) -> Option<Model> {
    let mut coins = Model::new();
    for (height, block) in chain.heights() {
        for (tx_index, &tx) in block.iter().enumerate() {
            for outpoint in chain.inputs(tx) {
                coins.remove(&outpoint)?;
            }
            for (outpoint, coin) in chain.outputs(tx, tx_index, height) {
                if coins.insert(outpoint, coin).is_some() {
                    return None;
                }
            }
        }
    }
    Some(coins)
}

type Rows = Vec<(OutPoint, OwnedCoin)>;

/// Returns the coins of the model in the order of the chainstate keys.
fn sorted(model: Model) -> Rows {
    let mut rows: Rows = model.into_iter().collect();
    rows.sort_by(|a, b| wire::coin::chainstate_key_order(&a.0, &b.0));
    rows
}

fn rows(survivors: Survivors) -> Rows {
    let size = survivors.size();
    let rows: Rows = survivors
        .into_shards()
        .into_iter()
        .flat_map(|shard| {
            let expected = shard.size().coins;
            let sorted = shard.sort();
            assert_eq!(sorted.len() as i64, expected);
            let row = |(index, entry): (usize, peregrine_coins::Entry<'_>)| {
                assert_eq!(entry, sorted.entry(index));
                assert!(!entry.is_spend);
                (entry.outpoint, entry.coin.into())
            };
            sorted.iter().enumerate().map(row).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(size.coins, rows.len() as i64);
    rows
}

/// Merges all parts and returns the remaining coins; every spend must match a coin.
fn merged(parts: Vec<Vec<SurvivorShard>>) -> Result<Rows, String> {
    let net: i64 = parts.iter().flatten().map(|shard| shard.size().coins).sum();
    let sources = parts.into_iter().map(ShardSource::new).collect();
    let mut merge = Merge::new(sources).expect("shards do not fail");
    let mut rows = Vec::new();
    while !merge.is_at_end() {
        let Some(entry) = merge.advance().map_err(|error| error.to_string())? else { continue };
        if entry.is_spend {
            return Err(format!("{} is missing", entry.outpoint));
        }
        rows.push((entry.outpoint, entry.coin.into()));
    }
    assert_eq!(net, rows.len() as i64);
    Ok(rows)
}

/// The order and distribution in which blocks arrive.
#[derive(Clone, Debug)]
struct Arrival {
    order: Vec<prop::sample::Index>,
    threads: usize,
    flush_every: usize,
    /// The share of open entries that is taken out at each flush.
    spill: Option<f64>,
    key: (u64, u64),
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let order = prop::collection::vec(any::<prop::sample::Index>(), 12);
    let spill = prop::option::of(prop::sample::select(vec![0.0, 0.3, 0.5, 1.0]));
    (order, 1usize..=4, 1usize..6, spill, any::<(u64, u64)>()).prop_map(
        |(order, threads, flush_every, spill, key)| Arrival { order, threads, flush_every, spill, key },
    )
}

/// The height of spends in tests that do not depend on it.
const SPENDER: Height = Height(100);

/// Returns the join's verdict for claims given block by block.
fn join(chain: &Chain, claims: &[Vec<OwnedCoin>], arrival: &Arrival) -> Result<Rows, String> {
    let mut order: Vec<usize> = (0..chain.blocks.len()).collect();
    for (at, swap) in arrival.order.iter().enumerate().take(order.len()) {
        let other = swap.index(order.len());
        order.swap(at, other);
    }
    let join = Join::new(SipKey(arrival.key.0, arrival.key.1));
    let next = AtomicUsize::new(0);
    let spilled = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arrival.threads {
            scope.spawn(|| {
                let mut effects = join.effects();
                let mut delta = Delta::default();
                let mut done = 0;
                while let Some(&block) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    add(chain, block, &claims[block], &mut delta, &mut effects);
                    done += 1;
                    if done % arrival.flush_every == 0 {
                        delta.flush(&mut effects);
                        effects.flush();
                        if let Some(share) = arrival.spill {
                            let taken = (0..SHARDS).map(|shard| join.take_oldest(shard, share)).collect();
                            spilled.lock().expect("no worker panics").push(taken);
                        }
                    }
                }
                delta.flush(&mut effects);
            });
        }
    });
    let described = |mismatches: Vec<_>| {
        assert!(!mismatches.is_empty());
        format!("{mismatches:?}")
    };
    if arrival.spill.is_some() {
        let mut parts = spilled.into_inner().expect("no worker panics");
        parts.push(join.finish_spilled().map_err(described)?.into_shards());
        merged(parts)
    } else {
        Ok(rows(join.finish().map_err(described)?))
    }
}

fn add(chain: &Chain, block: usize, claims: &[OwnedCoin], delta: &mut Delta, effects: &mut Effects<'_>) {
    let bytes = chain.block_bytes(block);
    let mut arena = BlockArena::default();
    let view = arena.parse(&bytes).expect("blocks of the universe are well formed");
    let txids: Vec<Txid> = chain.blocks[block].iter().map(|&tx| txid(tx)).collect();
    let claims: Vec<Coin<'_>> = claims.iter().map(OwnedCoin::as_coin).collect();
    delta.add(&view, &txids, Height(block as u32 + 1), Some(&claims), effects);
}

fn has_duplicate_coinbases(chain: &Chain) -> bool {
    let mut coinbases = CoinbaseTxids::new(SipKey(5, 6));
    for (_, block) in chain.heights() {
        coinbases.push(&txid(block[0]));
    }
    coinbases.has_duplicate()
}

fn check(chain: &Chain, arrival: &Arrival) {
    if has_duplicate_coinbases(chain) {
        // Outside the join's assumptions: the engine validates sequentially.
        return;
    }
    let joined = join(chain, &claims_of(chain), arrival);
    match (validate_sequentially(chain), joined) {
        (Some(model), Ok(left)) => assert_eq!(left, sorted(model)),
        (None, Err(_)) => {}
        (model, joined) => panic!("model {model:?}\njoin {joined:?}\n{chain:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_chain_gets_the_models_verdict(chain in chain::any_chain(), arrival in arrival()) {
        check(&chain, &arrival);
    }

    #[test]
    fn valid_chains_leave_the_models_coins(chain in chain::valid_chain(), arrival in arrival()) {
        prop_assert!(validate_sequentially(&chain).is_some());
        prop_assert!(!has_duplicate_coinbases(&chain));
        check(&chain, &arrival);
    }

    /// Covers valid chains with one transaction moved, repeated or left out.
    #[test]
    fn nearly_valid_chains_get_the_models_verdict(
        chain in chain::valid_chain(), arrival in arrival(), change in chain::change(),
    ) {
        check(&chain.changed(&change), &arrival);
    }

    #[test]
    fn every_wrong_claim_is_a_mismatch(
        chain in chain::valid_chain(), arrival in arrival(),
        at in any::<prop::sample::Index>(), byte in any::<prop::sample::Index>(),
        bit in 0u32..8, kind in 0u8..5,
    ) {
        let mut claims = claims_of(&chain);
        let spends: Vec<(usize, usize)> = (0..claims.len())
            .flat_map(|block| (0..claims[block].len()).map(move |claim| (block, claim)))
            .collect();
        prop_assume!(!spends.is_empty());
        let (block, claim) = spends[at.index(spends.len())];
        let wrong = &mut claims[block][claim];
        match kind {
            0 => {
                let byte = byte.index(wrong.out.len());
                wrong.out[byte] ^= 1 << bit;
            }
            1 => {
                wrong.code ^= 1 << bit;
                // Undo data with such a claim is refused when it is read.
                prop_assume!(wrong.as_coin().height() > Height(0));
            }
            2 => wrong.out = [&wrong.out[..], &[0]].concat().into(),
            3 => wrong.out = wrong.out[..wrong.out.len() - 1].into(),
            _ => { claims[block].remove(claim); }
        }
        prop_assert!(join(&chain, &claims, &arrival).is_err());
    }
}

#[test]
fn rejects_a_spend_at_or_below_its_coins_height() {
    for (height, valid) in [(4, false), (5, false), (6, true)] {
        let join = Join::new(SipKey(0, 0));
        let mut effects = join.effects();
        let outpoint = OutPoint { txid: txid(1), vout: 0 };
        let coin = Coin { code: Coin::code_of(Height(5), false), out: &[1; 60] };
        effects.push_spend(&outpoint, coin, Height(height));
        effects.push_creation(&outpoint, coin);
        drop(effects);
        assert_eq!(join.finish().is_ok(), valid, "{height}");
    }
}

/// Covers long outputs, spends of inline and long forms, and vouts whose keys do not sort like numbers.
#[test]
fn survivors_are_in_key_order_with_their_long_outputs() {
    let join = Join::new(SipKey(8, 9));
    let (mut model, mut memory) =
        (Model::new(), MemoryCoins::new(NoCoins, BlockHash::default(), SipKey(1, 2)));
    let mut effects = join.effects();
    let vouts = [0u32, 1, 127, 128, 16511, 16512, 16513, 2_113_663, 2_113_664, u32::MAX];
    for shard in [0u8, 1, 255] {
        for len in 0..100usize {
            let mut id = [shard; 32];
            id[9] = len as u8 / 4;
            for vout in vouts {
                let outpoint = OutPoint { txid: Txid(id), vout: vout ^ (len as u32 % 4) };
                let out = vec![len as u8; len + vout as usize % 30];
                let coin = Coin { code: 20, out: &out };
                if model.contains_key(&outpoint) {
                    continue;
                }
                model.insert(outpoint, coin.into());
                memory.add_coin(outpoint, coin, len % 2 == 0).unwrap();
                effects.push_creation(&outpoint, coin);
                if (len + vout as usize).is_multiple_of(3) {
                    effects.push_spend(&outpoint, coin, SPENDER);
                    assert_eq!(memory.spend_coin(&outpoint).unwrap(), model.remove(&outpoint));
                }
            }
        }
    }
    drop(effects);
    assert_eq!(join.open(), (model.len() as u64, 0));
    let expected = sorted(model);
    assert_eq!(rows(memory.into_survivors()), expected);
    assert_eq!(rows(join.finish().unwrap()), expected);
}

/// Covers shards that are large enough to grow, to reuse places and to fill batches, with four workers.
#[test]
fn matches_many_coins_in_few_shards_in_any_order() {
    const COINS: u32 = 30_000;
    let txid_of = |number: u32| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&u64::from(number / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        id[0] &= 1;
        Txid(id)
    };
    let outpoint = |number| OutPoint { txid: txid_of(number), vout: number % 2 };
    let out = |number: u32| vec![number as u8; 2 + number as usize % 53];
    let is_spent = |number: u32| !number.is_multiple_of(5);
    let mut model = Model::new();
    for number in (0..COINS).filter(|&number| !is_spent(number)) {
        model.insert(outpoint(number), OwnedCoin { code: 4, out: out(number).into() });
    }
    let join = Join::new(SipKey(1, 1));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let join = &join;
            scope.spawn(move || {
                let mut effects = join.effects();
                // 7 and 11 are coprime to the number of coins: each sequence visits each coin once, in
                // another order.
                for step in (worker..COINS).step_by(4) {
                    let (created, spent) = (step * 7 % COINS, step * 11 % COINS);
                    effects.push_creation(&outpoint(created), Coin { code: 4, out: &out(created) });
                    if is_spent(spent) {
                        effects.push_spend(&outpoint(spent), Coin { code: 4, out: &out(spent) }, SPENDER);
                    }
                }
            });
        }
    });
    assert!(!join.has_mismatches());
    assert_eq!(rows(join.finish().unwrap()), sorted(model));
}

/// The staging buffer is also bounded in bytes: a hostile chain can consist of scripts of 10,000 bytes.
#[test]
fn staging_of_long_outputs_is_bounded() {
    let join = Join::new(SipKey(1, 1));
    let mut effects = join.effects();
    for vout in 0..1000 {
        let coin = Coin { code: 2, out: &[5; 10_000] };
        effects.push_creation(&OutPoint { txid: txid(1), vout }, coin);
    }
    assert!(join.open().0 >= 890);
    assert!(join.memory_bytes() >= 8_900_000);
    drop(effects);
    assert_eq!(join.open(), (1000, 0));
}

/// One mismatch suffices for the verdict; a chain with very many must not fill the memory with them.
#[test]
fn mismatches_are_bounded_and_sorted() {
    let join = Join::new(SipKey(1, 1));
    let mut effects = join.effects();
    for input in (0..5000).rev() {
        let coin = Coin { code: 2, out: &[5; 10] };
        effects.push_spend(&OutPoint { txid: txid(1), vout: input }, coin, SPENDER);
    }
    drop(effects);
    assert_eq!(join.open(), (0, 5000));
    let mismatches = join.finish().unwrap_err();
    assert!((1..1000).contains(&mismatches.len()));
    assert!(mismatches.is_sorted());
    assert!(matches!(mismatches[0], Mismatch::MissingCoin(_)));
}

/// Two outpoints with the same tag in the index are distinguished by their cells. Among 200,000 outputs of
/// one transaction some share the 32 bits of the hash that a slot stores.
#[test]
fn outpoints_with_equal_tags_are_distinguished() {
    let hasher = digest::siphash::SipHash13Uj::new(1, 2);
    let mut tags: Vec<(u64, u32)> =
        (0..200_000).map(|vout| (hasher.hash_outpoint(&txid(1).0, vout) >> 32, vout)).collect();
    tags.sort_unstable();
    let pair =
        tags.windows(2).find(|pair| pair[0].0 == pair[1].0).expect("four collisions are to be expected");
    let [kept, spent] = [pair[0].1, pair[1].1].map(|vout| OutPoint { txid: txid(1), vout });
    let coin = Coin { code: 2, out: &[3; 22] };
    let check = |spends: &[OutPoint]| {
        let join = Join::new(SipKey(1, 2));
        let mut effects = join.effects();
        effects.push_creation(&kept, coin);
        spends.iter().for_each(|outpoint| effects.push_spend(outpoint, coin, SPENDER));
        effects.push_creation(&spent, coin);
        drop(effects);
        join.finish().map(rows)
    };
    assert_eq!(check(&[spent]), Ok(vec![(kept, coin.into())]));
    assert_eq!(check(&[kept]), Ok(vec![(spent, coin.into())]));
    assert_eq!(check(&[kept, spent]), Ok(vec![]));
    assert!(check(&[spent, spent]).is_err());
}
