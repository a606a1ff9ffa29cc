//! Chains that are invalid and undo data that lies, under hints that hide it: the sum shows it, rules show
//! what they can, and the join's verdict is Core's. No wrong chainstate comes of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod hinted;

use common::{
    THREADS, layout,
    lies::{Claim, lie},
    options, refused, run, says, with_threads,
};
use disk::hints::HintFormat;
use engine::{Error, ErrorKind, Height, ReindexOptions};
use hinted::{AGGREGATES, Hints, Truth, bury, by, file_in, or_join, without_undo};
use std::{path::PathBuf, sync::LazyLock};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    mutation::{BlockBuilder, Draft},
    rng::Rng,
};

/// How many of a kind are tried.
const SEEDS: u64 = 100;

/// A small chain with coins that anyone can spend.
static BASE: LazyLock<Chain> = LazyLock::new(|| {
    let spec = ChainSpec { blocks: Some(126), reserved: 24, stale: false, ..ChainSpec::new(31, 60_000) };
    Chain::generate(&spec)
});

/// A chain with a spoiled block, laid out as a datadir with an old chainstate.
struct Spoiled {
    dir: TempDir,
    files: TempDir,
    truth: Truth,
    block: GeneratedBlock,
    tip: u32,
}

impl Spoiled {
    /// Some valid blocks, the spoiled one, and some more, as the seed has it; the draft's blocks come
    /// between.
    fn new(rng: &mut Rng, spoil: impl FnOnce(&mut BlockBuilder<'_>, &mut Rng) -> Draft) -> Self {
        let mut chain = BASE.clone();
        let mut builder = BlockBuilder::new(&BASE, rng.next_u64());
        for _ in 0..rng.below(4) {
            let spends = (0..rng.below(3)).map(|_| builder.simple()).collect();
            builder.add(spends);
        }
        let draft = spoil(&mut builder, rng);
        let block = builder.seal(&draft);
        chain.blocks.extend(builder.into_added());
        chain.blocks.push(block.clone());
        // The chain's model stays at the base: blocks on top need their coinbases only.
        let mut on_top = BlockBuilder::new(&chain, rng.next_u64());
        (0..rng.below(3)).for_each(|_| on_top.add(Vec::new()));
        let added = on_top.into_added();
        chain.blocks.extend(added);
        let dir = TempDir::new().unwrap();
        chain.write_datadir(dir.path(), &layout()).unwrap();
        let below = Some(Height(BASE.tip().height - 2));
        run(&ReindexOptions { stop_at_height: below, ..options(dir.path()) }).unwrap();
        bury(&dir.path().join("regtest/blocks/index"));
        let (truth, tip) = (Truth::of(&chain), chain.tip().height);
        Self { dir, files: TempDir::new().unwrap(), truth, block, tip }
    }

    fn write(&self, hints: &Hints) -> PathBuf {
        let path = file_in(&self.files, "hints");
        self.truth.write(&path, HintFormat::Peregrine, hints);
        path
    }

    /// Without undo data, and with.
    fn both(&self, path: &std::path::Path, seed: u64) -> [ReindexOptions; 2] {
        let way = seed as usize;
        let options = with_threads(&options(self.dir.path()), THREADS[way / 3 % 3]);
        let with = by(&options, path, AGGREGATES[way % 3]);
        [without_undo(&with, self.truth.hash(self.tip)), with]
    }

    /// The verdict on the spoiled block.
    fn is_verdict(&self, error: &Error, core: &str, what: &str) {
        let place = (error.height.map(|height| height.0), error.block_hash);
        assert_eq!(place, (Some(self.block.height), Some(self.block.hash)), "{what}: {error}");
        assert_eq!(error.core.as_deref(), Some(core), "{what}: {error}");
    }
}

/// What is missing in the sum is made up for by calling unspent coins spent, so that counts are right.
fn hide(hints: &mut Hints, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let full: Vec<usize> = (1..hints.len()).filter(|&height| !hints[height].is_empty()).collect();
        let block = &mut hints[full[rng.below(full.len() as u64) as usize]];
        block.remove(rng.below(block.len() as u64) as usize);
    }
}

/// Hints cannot hide a spend of no coin, whatever they say, and the join's verdict names it.
fn missing_coin(what: &str, spoil: fn(&mut BlockBuilder<'_>, &mut Rng) -> Draft) {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, what);
        let spoiled = Spoiled::new(&mut rng, spoil);
        let mut hints = spoiled.truth.hints(spoiled.tip);
        hide(&mut hints, &mut rng, seed % 2);
        let path = spoiled.write(&hints);
        for options in spoiled.both(&path, seed) {
            let error = refused(&options, ErrorKind::Hints);
            assert!(error.core.is_none() && error.rule.is_none(), "{what} {seed}: {error}");
            says(&error, &["the hints, or the block or undo files, are wrong"]);
            if seed % 5 == 0 {
                let error = refused(&or_join(&options), ErrorKind::Consensus);
                spoiled.is_verdict(&error, "bad-txns-inputs-missingorspent", what);
            }
        }
    }
}

fn take_any(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> testkit::mutation::BuilderCoin {
    (0..rng.below(5)).for_each(|_| drop(builder.take()));
    builder.take()
}

#[test]
fn a_double_spend_that_hints_hide_is_caught() {
    missing_coin("double spend", |builder, rng| {
        let coin = take_any(builder, rng);
        let output = |less: i64| vec![bitcoin_output(coin.coin.amount - less, &coin.coin.script)];
        let first = builder.spend(&[&coin], output(0));
        let second = builder.spend(&[&coin], output(1));
        // In one block, in neighbours, or further apart.
        let apart = rng.below(3);
        if apart == 0 {
            return builder.draft(vec![first, second]);
        }
        builder.add(vec![first]);
        (1..apart).for_each(|_| builder.add(Vec::new()));
        builder.draft(vec![second])
    });
}

#[test]
fn a_spend_of_a_coin_that_never_was_is_caught() {
    missing_coin("never made", |builder, rng| {
        let mut coin = take_any(builder, rng);
        match rng.below(2) {
            0 => coin.outpoint.txid.0[rng.below(32) as usize] ^= 1 << rng.below(8),
            _ => coin.outpoint.vout = 1 + rng.below(1000) as u32,
        }
        coin.coin.amount = 50_000;
        let tx = builder.spend(&[&coin], vec![bitcoin_output(50_000, &coin.coin.script)]);
        builder.draft(vec![tx])
    });
}

fn bitcoin_output(amount: i64, script: &[u8]) -> bitcoin::TxOut {
    bitcoin::TxOut {
        value: bitcoin::Amount::from_sat(amount as u64),
        script_pubkey: bitcoin::ScriptBuf::from_bytes(script.to_vec()),
    }
}

/// With undo data the rule itself sees it. Without, the supply does, and the judge names the block.
#[test]
fn an_inflated_coinbase_is_caught_at_its_block() {
    let claimed: i64 = BASE.model.coins.values().map(|coin| coin.amount).sum();
    let allowed: i64 = (1..=i64::from(BASE.tip().height)).map(|_| 50_0000_0000).sum();
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, "inflated");
        let spoiled = Spoiled::new(&mut rng, |builder, rng| {
            let txs = (0..rng.below(3)).map(|_| builder.simple()).collect();
            let mut draft = builder.draft(txs);
            let reward = &mut draft.coinbase.as_mut().unwrap().output[0];
            // More than all that was destroyed or not claimed before.
            let more = allowed - claimed + 1 + rng.below(1_000_000) as i64;
            reward.value = bitcoin::Amount::from_sat(reward.value.to_sat() + more as u64);
            draft
        });
        let path = spoiled.write(&spoiled.truth.hints(spoiled.tip));
        for options in spoiled.both(&path, seed) {
            let error = refused(&options, ErrorKind::Consensus);
            spoiled.is_verdict(&error, "bad-cb-amount", "inflated");
        }
    }
}

/// What rests on the assumed-valid block without undo data, and does not with it: the order of making and
/// spending.
#[test]
fn a_coin_spent_before_it_is_made_is_seen_with_undo_data_only() {
    for seed in 0..10 {
        let mut rng = Rng::new(seed, "before");
        let spoiled = Spoiled::new(&mut rng, |builder, rng| {
            let coin = take_any(builder, rng);
            let parent = builder.spend(&[&coin], vec![bitcoin_output(coin.coin.amount, &coin.coin.script)]);
            let made = builder.coin_of(&parent, 0);
            let child = builder.spend(&[&made], vec![bitcoin_output(made.coin.amount, &made.coin.script)]);
            builder.draft(vec![child, parent])
        });
        let path = spoiled.write(&spoiled.truth.hints(spoiled.tip));
        let [without, with] = spoiled.both(&path, seed);
        refused(&with, ErrorKind::Hints);
        let error = refused(&or_join(&with), ErrorKind::Consensus);
        spoiled.is_verdict(&error, "bad-txns-inputs-missingorspent", "before");
        let report = run(&without).unwrap();
        assert_eq!(report.hints.map(|hints| hints.with_undo), Some(false));
    }
}

/// Above the hints' last block it is the join that sees a double spend; the hints are right, and the
/// verdict is the chain's.
#[test]
fn above_right_hints_the_verdict_is_cores() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed, "above");
        let spoiled = Spoiled::new(&mut rng, |builder, rng| {
            let coin = take_any(builder, rng);
            let spend = |less| vec![bitcoin_output(coin.coin.amount - less, &coin.coin.script)];
            let (first, second) = (builder.spend(&[&coin], spend(0)), builder.spend(&[&coin], spend(1)));
            builder.add(vec![first]);
            builder.draft(vec![second])
        });
        for height in [100, spoiled.block.height - 2] {
            let path = spoiled.write(&spoiled.truth.hints(height));
            for options in spoiled.both(&path, seed) {
                for join_bytes in [None, Some(1)] {
                    let options = ReindexOptions { join_bytes, ..options.clone() };
                    let error = refused(&options, ErrorKind::Consensus);
                    spoiled.is_verdict(&error, "bad-txns-inputs-missingorspent", "above");
                }
            }
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Code, amount and script of the claim.
type Lie = fn(&mut Rng, &mut u32, &mut i64, &mut Vec<u8>);

const LIES: [Lie; 6] = [
    |rng, _, amount, _| *amount += 1 + rng.below(1000) as i64,
    |rng, _, amount, _| *amount -= 1 + rng.below(*amount as u64) as i64,
    |rng, code, _, _| *code -= 2 * (1 + rng.below(u64::from(*code / 2)) as u32),
    |rng, code, _, _| *code += 2 * (1 + rng.below(200) as u32),
    |rng, _, _, script| script.push(rng.below(0x60) as u8),
    |_, code, _, _| *code ^= 1,
];

/// The sum is of whole coins, so a claim that is not true shows, though its record has the right checksum.
/// The join says of which block it is. Whoever does not read it is not misled.
#[test]
fn undo_data_that_lies_is_caught() {
    let chain = common::chain();
    let spends = |block: &GeneratedBlock| !block.stale && block.txs > 1;
    let spending: Vec<usize> = (0..chain.blocks.len()).filter(|&at| spends(&chain.blocks[at])).collect();
    let (truth, tip) = (Truth::of(chain), chain.tip().height);
    let files = TempDir::new().unwrap();
    let path = file_in(&files, "hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(tip));
    let mut by_sum = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, "undo lie");
        let mut lying = chain.clone();
        let at = spending[rng.below(spending.len() as u64) as usize];
        let any = |txs: &[Vec<Claim>]| {
            let tx = rng.below(txs.len() as u64) as usize;
            (tx, rng.below(txs[tx].len() as u64) as usize)
        };
        let (of_any, about) = (LIES[seed as usize % LIES.len()], &mut Rng::new(seed, "what the lie is"));
        lie(&mut lying.blocks[at], any, |code, amount, script| of_any(about, code, amount, script));
        let dir = TempDir::new().unwrap();
        lying.write_datadir(dir.path(), &layout()).unwrap();
        bury(&dir.path().join("regtest/blocks/index"));
        let way = seed as usize;
        let plain = with_threads(&options(dir.path()), THREADS[way / 3 % 3]);
        let with = by(&plain, &path, AGGREGATES[way % 3]);
        let error = run(&with).map(|report| report.height).unwrap_err();
        let at_block = |error: &Error| {
            assert_eq!((error.kind, error.core.as_deref()), (ErrorKind::Damaged, None), "{seed}: {error}");
            assert_eq!(error.height, Some(Height(lying.blocks[at].height)), "{seed}: {error}");
            assert!(error.file.as_ref().unwrap().to_string_lossy().contains("rev000"), "{seed}: {error}");
        };
        match error.kind {
            ErrorKind::Hints => by_sum += 1,
            _ => at_block(&error),
        }
        at_block(&refused(&or_join(&with), ErrorKind::Damaged));
        assert!(!dir.path().join("regtest/chainstate").exists(), "{seed}");
        let report = run(&without_undo(&with, truth.hash(tip))).unwrap();
        assert_eq!(report.hash_serialized_3, chain.model.stats().hash_serialized_3, "{seed}");
    }
    // Claims on coins of the same block are compared there and then; rules show some, of the others' amounts.
    assert!(by_sum > 25, "the sum alone has shown {by_sum}");
}
