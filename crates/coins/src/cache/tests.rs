//! The cache against coins in a map, also after a crash; its memory, and what it keeps after a flush.

use super::*;
use digest::siphash::SipKey;
use proptest::prelude::*;
use std::{collections::HashMap, convert::Infallible};
use wire::{Height, Sats, Txid, coin::compressed_output};

const KEY: SipKey = SipKey(1, 2);

/// Few outpoints, so that each meets all states.
fn outpoint(number: u8) -> OutPoint {
    OutPoint { txid: Txid([number % 7; 32]), vout: u32::from(number % 3) }
}

/// A coin that is in its cell, or in the long outputs.
fn coin(number: u8) -> (u32, Vec<u8>) {
    let len = if number.is_multiple_of(5) { 60 } else { 2 };
    (Coin::code_of(Height(u32::from(number)), false), vec![number; len])
}

/// The coins of a database; also the model of the cache.
#[derive(Clone, PartialEq, Default, Debug)]
struct Stored {
    coins: HashMap<OutPoint, OwnedCoin>,
    best: BlockHash,
}

impl CoinSource for Stored {
    type Error = Infallible;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, Self::Error> {
        Ok(self.coins.get(outpoint).cloned())
    }
}

/// Only coins of these outpoints are overwritten, as only coins of coinbases are.
fn may_be_overwritten(outpoint: &OutPoint) -> bool {
    outpoint.vout == 2
}

/// Writes changes in two parts, as two threads do. None may be the removal of a coin that was fresh.
fn write(database: &mut Stored, best: BlockHash, changes: &Changes<'_>) -> Result<(), Infallible> {
    let middle = changes.len() / 2;
    let changes: Vec<_> = changes.range(0..middle).chain(changes.range(middle..changes.len())).collect();
    assert!(changes.is_sorted_by(|(a, _), (b, _)| chainstate_key_order(a, b).is_lt()));
    for (outpoint, coin) in changes {
        match coin {
            Some(coin) => drop(database.coins.insert(outpoint, coin.into())),
            None => {
                let is_stored = database.coins.remove(&outpoint).is_some();
                assert!(is_stored || may_be_overwritten(&outpoint), "{outpoint} was fresh");
            }
        }
    }
    database.best = best;
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    /// Adds a coin, perhaps one that may exist.
    Add(u8, bool),
    Spend(u8),
    /// Looks coins up, does the steps that may come in between, and then keeps what was found.
    LookUp(Vec<u8>, Option<usize>),
    /// Spends and creates these, all at once.
    Apply(Vec<(bool, u8)>),
    /// The same, and a spend of a coin that does not exist. What was not written is lost.
    ApplyInvalid(Vec<(bool, u8)>, u8),
    Flush(usize),
    FailToFlush,
    /// Begins again with what the database has.
    Crash,
}

/// Bytes that stay: those of no coin, of some, or of all.
fn arb_stay() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 100usize..1500, Just(usize::MAX)]
}

fn arb_step() -> impl Strategy<Value = Step> {
    let moves = || prop::collection::vec((any::<bool>(), any::<u8>()), 0..90);
    let wanted = prop::collection::vec(any::<u8>(), 0..90);
    prop_oneof![
        4 => any::<u8>().prop_map(|number| Step::Add(number, false)),
        1 => any::<u8>().prop_map(|number| Step::Add(number, true)),
        4 => any::<u8>().prop_map(Step::Spend),
        2 => (wanted, prop::option::of(arb_stay())).prop_map(|(wanted, stay)| Step::LookUp(wanted, stay)),
        2 => moves().prop_map(Step::Apply),
        1 => (moves(), any::<u8>()).prop_map(|(moves, missing)| Step::ApplyInvalid(moves, missing)),
        1 => arb_stay().prop_map(Step::Flush),
        1 => Just(Step::FailToFlush),
        1 => Just(Step::Crash),
    ]
}

type Cache = CoinsCache<Stored>;

fn cache() -> Cache {
    CoinsCache::new(Stored::default(), BlockHash::default(), KEY)
}

fn spends(cache: &Cache, numbers: &[u8]) -> Moves {
    let mut moves = Moves::with_capacity(cache.hasher(), numbers.len(), 0);
    numbers.iter().for_each(|&number| moves.spend(outpoint(number)));
    moves
}

/// Returns the cache of a process that begins with the coins of another's database.
fn begun_again(cache: &Cache) -> Cache {
    CoinsCache::new(cache.source().clone(), cache.source().best, SipKey(3, 4))
}

fn look_up(cache: &Cache, moves: &Moves) -> FoundCoins {
    let mut found = FoundCoins::default();
    for wanted in cache.not_kept(moves) {
        assert!(cache.find(wanted).is_none());
        if let Some(coin) = cache.source().coins.get(&wanted.outpoint) {
            found.push(*wanted, coin.as_coin());
        }
    }
    found
}

/// Does what is valid of some moves in the cache at once, and in the model one after the other; also the
/// spend of this coin, if it does not exist. Returns whether the cache has done it.
fn apply(cache: &mut Cache, model: &mut Stored, wanted: &[(bool, u8)], missing: Option<OutPoint>) -> bool {
    let (mut moves, mut expected) = (Moves::with_capacity(cache.hasher(), 0, 0), CoinList::default());
    for &(is_spend, number) in wanted {
        let (at, (code, out)) = (outpoint(number), coin(number));
        let exists = model.coins.contains_key(&at);
        if is_spend && let Some(spent) = model.coins.remove(&at) {
            expected.push(spent.as_coin());
            moves.spend(at);
        } else if !exists {
            moves.create(at, Coin { code, out: &out }, false);
            model.coins.insert(at, OwnedCoin { code, out: out.into() });
        }
    }
    let missing = missing.filter(|at| !model.coins.contains_key(at));
    missing.iter().for_each(|&at| moves.spend(at));
    let (best, mut spent) = (BlockHash([wanted.len() as u8; 32]), CoinList::default());
    let is_done = cache.apply(&moves, best, &mut spent).unwrap();
    assert_eq!((is_done, spent), (missing.is_none(), expected));
    if is_done {
        model.best = best;
    }
    assert_eq!(cache.best_block(), model.best);
    is_done
}

proptest! {
    #[test]
    fn a_cache_behaves_like_the_coins_in_memory(steps in prop::collection::vec(arb_step(), 0..100)) {
        let (mut model, mut cache) = (Stored::default(), cache());
        for step in steps {
            match step {
                Step::Add(number, may_exist) => {
                    let (outpoint, (code, out)) = (outpoint(number), coin(number));
                    let coin = Coin { code, out: &out };
                    let is_valid = match may_exist {
                        true => may_be_overwritten(&outpoint),
                        false => !model.coins.contains_key(&outpoint),
                    };
                    if !is_valid {
                        continue;
                    }
                    model.coins.insert(outpoint, coin.into());
                    cache.add_coin(outpoint, coin, may_exist).unwrap();
                }
                Step::Spend(number) => {
                    let outpoint = outpoint(number);
                    let spent = model.coins.remove(&outpoint);
                    prop_assert_eq!(cache.spend_coin(&outpoint).unwrap(), spent);
                }
                Step::LookUp(numbers, flushed) => {
                    let found = look_up(&cache, &spends(&cache, &numbers));
                    if let Some(stay_bytes) = flushed {
                        cache.flush(stay_bytes, write).unwrap();
                    }
                    cache.keep(&found);
                }
                Step::Apply(moves) => prop_assert!(apply(&mut cache, &mut model, &moves, None)),
                Step::ApplyInvalid(moves, number) => {
                    if !apply(&mut cache, &mut model, &moves, Some(outpoint(number))) {
                        (cache, model) = (begun_again(&cache), cache.source().clone());
                    }
                }
                Step::Crash => (cache, model) = (begun_again(&cache), cache.source().clone()),
                Step::Flush(stay_bytes) => {
                    cache.flush(stay_bytes, write).unwrap();
                    prop_assert_eq!(cache.source(), &model);
                    let kept = cache.kept.iter().filter(|(_, kept)| !kept.cell.is_free());
                    prop_assert!(kept.count().saturating_mul(size_of::<Kept>()) <= stay_bytes);
                    prop_assert_eq!(Changes::new(&cache.kept, &cache.long_outputs).len(), 0);
                }
                Step::FailToFlush => {
                    let before = cache.bytes();
                    cache.flush(0, |_, _, _| Err("the disk is full")).unwrap_err();
                    prop_assert_eq!(cache.bytes(), before);
                }
            }
            for number in 0..21 {
                let outpoint = outpoint(number);
                prop_assert_eq!(cache.coin(&outpoint).unwrap(), model.coins.get(&outpoint).cloned());
            }
            prop_assert_eq!(cache.best_block(), model.best);
        }
        cache.flush(0, write).unwrap();
        prop_assert_eq!(cache.source(), &model);
    }
}

#[test]
fn creating_a_coin_that_exists_is_an_error() {
    let mut cache = cache();
    let (at, (code, out)) = (outpoint(1), coin(1));
    cache.add_coin(at, Coin { code, out: &out }, false).unwrap();
    let again = cache.add_coin(at, Coin { code, out: &out }, false).unwrap_err();
    assert!(matches!(again, CacheError::Exists(found) if found == at));
    assert!(again.to_string().ends_with("which exists"));
}

/// The youngest coins stay, whatever the order in which they came.
#[test]
fn the_oldest_coins_leave_when_changes_are_written() {
    let mut cache = cache();
    for height in (0..1000u32).map(|number| number * 7 % 1000) {
        let at = OutPoint { txid: Txid([1; 32]), vout: height };
        cache.add_coin(at, Coin { code: Coin::code_of(Height(height), false), out: &[9] }, false).unwrap();
    }
    let full = cache.bytes();
    cache.flush(full / 4, write).unwrap();
    let stays =
        |height| cache.find(&cache.hasher().hash(OutPoint { txid: Txid([1; 32]), vout: height })).is_some();
    let first = (0..1000).find(|&height| stays(height)).unwrap();
    assert!((700..800).contains(&first), "{first}");
    assert!((0..1000).all(|height| stays(height) == (height >= first)));
    assert!(cache.bytes() < full / 2, "{} of {full}", cache.bytes());
    assert!((0..1000).all(|vout| cache.coin(&OutPoint { txid: Txid([1; 32]), vout }).unwrap().is_some()));
}

/// The memory that is counted is that of the table, the cells in use and the long outputs; a flush keeps
/// the table, and what was freed is used again.
#[test]
fn memory_is_counted_and_used_again() {
    let (mut cache, mut most) = (cache(), [0; 2]);
    for round in 0..6u32 {
        for number in 0..20_000u32 {
            let at = OutPoint { txid: Txid([round as u8; 32]), vout: number };
            let out = &[7; 70][..if number.is_multiple_of(50) { 70 } else { 30 }];
            cache.add_coin(at, Coin { code: round * 2, out }, false).unwrap();
        }
        let used = 20_000 * (size_of::<Kept>() + 8) + 400 * 70;
        let staying = if round == 0 { 0 } else { 300_000 };
        assert!((used..(used + staying) * 3 / 2).contains(&cache.bytes()), "{}", cache.bytes());
        most = most.map(|most: usize| most.max(cache.kept.memory_bytes()));
        if round == 1 {
            most[0] = most[1];
        }
        let table = cache.index.memory_bytes();
        cache.flush(300_000, write).unwrap();
        assert_eq!(cache.index.memory_bytes(), table, "the table stays as large");
        assert!(cache.bytes() < 300_000 + table + 200_000, "{}", cache.bytes());
    }
    assert_eq!(most[0], most[1], "places that were freed are used before there are new ones");
}

#[test]
fn all_common_scripts_are_in_the_cell() {
    let (key, hash) = ([&[2][..], &[0x79; 32]].concat(), [7; 20]);
    // The generator, uncompressed: Core compresses public keys only if they are points on the curve.
    let x = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    let y = "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8";
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let compressed = [&[2][..], &bytes(x)].concat();
    let uncompressed = [&[4][..], &bytes(x), &bytes(y)].concat();
    let multisig = |needed: u8, keys: &[&[u8]]| {
        let pushed = keys.iter().flat_map(|key| [&[key.len() as u8], *key].concat());
        [vec![0x50 + needed], pushed.collect(), vec![0x50 + keys.len() as u8, 0xae]].concat()
    };
    for (name, script, is_inline) in [
        ("P2PKH", [&[0x76, 0xa9, 20][..], &hash, &[0x88, 0xac]].concat(), true),
        ("P2SH", [&[0xa9, 20][..], &hash, &[0x87]].concat(), true),
        ("P2WPKH", [&[0, 20][..], &hash].concat(), true),
        ("P2WSH", [&[0, 32][..], &[7; 32]].concat(), true),
        ("P2TR", [&[0x51, 32][..], &[7; 32]].concat(), true),
        ("P2PK, 33 bytes", [&[33][..], &compressed, &[0xac]].concat(), true),
        ("P2PK, 65 bytes", [&[65][..], &uncompressed, &[0xac]].concat(), true),
        ("any of 36 bytes", vec![0x51; 36], true),
        ("multisig, 1 of 1", multisig(1, &[&key]), true),
        ("multisig, 1 of 2", multisig(1, &[&key, &key]), false),
        ("multisig, 2 of 3", multisig(2, &[&key, &key, &key]), false),
    ] {
        for amount in [0, 546, 123_456_789, Sats::MAX_MONEY.0] {
            let (mut cache, out) = (cache(), compressed_output(Sats(amount), &script));
            cache.add_coin(outpoint(1), Coin { code: 2, out: &out }, false).unwrap();
            assert_eq!(cache.long_outputs.long_bytes() == 0, is_inline, "{name}, {amount}: {}", out.len());
            assert_eq!(cache.coin(&outpoint(1)).unwrap().unwrap().out[..], out);
        }
    }
}
