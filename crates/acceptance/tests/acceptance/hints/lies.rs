//! Invalid chains and falsified undo data, with hints that hide it: the aggregate or the rules detect it, and
//! the join's verdict is Core's. No wrong chainstate results.

use acceptance::prelude::*;
use acceptance::{
    hinted,
    lies::{Claim, falsify_claim},
    undo::UndoDamage,
};
use hinted::{AGGREGATES, Hints, Truth, bury, file_in, with_hints, with_join_fallback, without_undo};
use hints::HintFormat;
use testkit::mutation::{BlockBuilder, Draft};

/// Number of seeds per kind.
const SEEDS: u64 = 100;

/// A small chain with coins that anyone can spend.
static BASE: LazyLock<Chain> = LazyLock::new(|| {
    let spec = ChainSpec { blocks: Some(126), reserved: 24, stale: false, ..ChainSpec::new(31, 60_000) };
    Chain::generate(&spec)
});

/// A chain with an invalid block, as a datadir with an old chainstate.
struct InvalidChain {
    dir: TempDir,
    files: TempDir,
    truth: Truth,
    block: GeneratedBlock,
    tip: u32,
}

impl InvalidChain {
    /// A chain of some valid blocks, the draft's blocks, the invalid block, and some more, depending on the
    /// seed.
    fn new(rng: &mut Rng, make_invalid: impl FnOnce(&mut BlockBuilder<'_>, &mut Rng) -> Draft) -> Self {
        let mut chain = BASE.clone();
        let mut builder = BlockBuilder::new(&BASE, rng.next_u64());
        for _ in 0..rng.below(4) {
            let spends = (0..rng.below(3)).map(|_| builder.simple()).collect();
            builder.add(spends);
        }
        let draft = make_invalid(&mut builder, rng);
        let block = builder.seal(&draft);
        chain.blocks.extend(builder.into_added());
        chain.blocks.push(block.clone());
        // The chain's model stays at the base: blocks above need only their coinbases.
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

    /// Options without undo data, and with it.
    fn both(&self, path: &std::path::Path, seed: u64) -> [ReindexOptions; 2] {
        let way = seed as usize;
        let options = with_threads(&options(self.dir.path()), THREADS[way / 3 % 3]);
        let with = with_hints(&options, path, AGGREGATES[way % 3]);
        [without_undo(&with, self.truth.hash(self.tip)), with]
    }

    /// Asserts that the error is about the invalid block.
    fn assert_invalid_block(&self, error: &Error, core: &str, what: &str) {
        let place = (error.height.map(|height| height.0), error.block_hash);
        assert_eq!(place, (Some(self.block.height), Some(self.block.hash)), "{what}: {error}");
        assert_eq!(error.core.as_deref(), Some(core), "{what}: {error}");
    }
}

/// Hints some unspent coins as spent, so that the numbers of coins are right.
fn hide(hints: &mut Hints, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let full: Vec<usize> = (1..hints.len()).filter(|&height| !hints[height].is_empty()).collect();
        let block = &mut hints[full[rng.below(full.len() as u64) as usize]];
        block.remove(rng.below(block.len() as u64) as usize);
    }
}

/// Whatever the hints say, they cannot hide a spend of a missing coin; the join names it.
fn missing_coin(what: &str, make_invalid: fn(&mut BlockBuilder<'_>, &mut Rng) -> Draft) {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, what);
        let invalid = InvalidChain::new(&mut rng, make_invalid);
        let mut hints = invalid.truth.hints(invalid.tip);
        hide(&mut hints, &mut rng, seed % 2);
        let path = invalid.write(&hints);
        for options in invalid.both(&path, seed) {
            let error = refused(&options, ErrorKind::Hints);
            assert!(error.core.is_none() && error.rule.is_none(), "{what} {seed}: {error}");
            assert_mentions(&error, &["the hints, or the block or undo files, are wrong"]);
            if seed % 5 == 0 {
                let error = refused(&with_join_fallback(&options), ErrorKind::Consensus);
                invalid.assert_invalid_block(&error, "bad-txns-inputs-missingorspent", what);
            }
        }
    }
}

fn take_any(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> testkit::mutation::BuilderCoin {
    (0..rng.below(5)).for_each(|_| drop(builder.take()));
    builder.take()
}

#[test]
fn a_double_spend_hidden_by_hints_is_found() {
    missing_coin("double spend", |builder, rng| {
        let coin = take_any(builder, rng);
        let output = |less: i64| vec![bitcoin_output(coin.coin.amount - less, &coin.coin.script)];
        let first = builder.spend(&[&coin], output(0));
        let second = builder.spend(&[&coin], output(1));
        // In the same block, in adjacent blocks, or further apart.
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
fn a_spend_of_a_coin_that_never_existed_is_found() {
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

/// With undo data the rule itself detects it. Without, the supply does, and sequential validation names the
/// block.
#[test]
fn an_inflated_coinbase_is_found_at_its_block() {
    let claimed: i64 = BASE.model.coins.values().map(|coin| coin.amount).sum();
    let allowed: i64 = (1..=i64::from(BASE.tip().height)).map(|_| 50_0000_0000).sum();
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, "inflated");
        let invalid = InvalidChain::new(&mut rng, |builder, rng| {
            let txs = (0..rng.below(3)).map(|_| builder.simple()).collect();
            let mut draft = builder.draft(txs);
            let reward = &mut draft.coinbase.as_mut().unwrap().output[0];
            // More than all that was burned or not claimed before.
            let more = allowed - claimed + 1 + rng.below(1_000_000) as i64;
            reward.value = bitcoin::Amount::from_sat(reward.value.to_sat() + more as u64);
            draft
        });
        let path = invalid.write(&invalid.truth.hints(invalid.tip));
        for options in invalid.both(&path, seed) {
            let error = refused(&options, ErrorKind::Consensus);
            invalid.assert_invalid_block(&error, "bad-cb-amount", "inflated");
        }
    }
}

/// What rests on the assumed-valid block without undo data, and is checked with it: that coins are created
/// before they are spent.
#[test]
fn a_coin_spent_before_its_creation_is_found_only_with_undo_data() {
    for seed in 0..10 {
        let mut rng = Rng::new(seed, "before");
        let invalid = InvalidChain::new(&mut rng, |builder, rng| {
            let coin = take_any(builder, rng);
            let parent = builder.spend(&[&coin], vec![bitcoin_output(coin.coin.amount, &coin.coin.script)]);
            let made = builder.coin_of(&parent, 0);
            let child = builder.spend(&[&made], vec![bitcoin_output(made.coin.amount, &made.coin.script)]);
            builder.draft(vec![child, parent])
        });
        let path = invalid.write(&invalid.truth.hints(invalid.tip));
        let [without, with] = invalid.both(&path, seed);
        refused(&with, ErrorKind::Hints);
        let error = refused(&with_join_fallback(&with), ErrorKind::Consensus);
        invalid.assert_invalid_block(&error, "bad-txns-inputs-missingorspent", "before");
        let report = run(&without).unwrap();
        assert_eq!(report.hints.map(|hints| hints.with_undo), Some(false));
    }
}

/// Above the hints' last block the join finds a double spend; the hints are right, and the chain is invalid.
#[test]
fn a_double_spend_above_right_hints_gets_cores_verdict() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed, "above");
        let invalid = InvalidChain::new(&mut rng, |builder, rng| {
            let coin = take_any(builder, rng);
            let spend = |less| vec![bitcoin_output(coin.coin.amount - less, &coin.coin.script)];
            let (first, second) = (builder.spend(&[&coin], spend(0)), builder.spend(&[&coin], spend(1)));
            builder.add(vec![first]);
            builder.draft(vec![second])
        });
        for height in [100, invalid.block.height - 2] {
            let path = invalid.write(&invalid.truth.hints(height));
            for options in invalid.both(&path, seed) {
                for join_bytes in [None, Some(1)] {
                    let options = changed(options.clone(), |it| it.chain.hooks.join_bytes = join_bytes);
                    let error = refused(&options, ErrorKind::Consensus);
                    invalid.assert_invalid_block(&error, "bad-txns-inputs-missingorspent", "above");
                }
            }
            std::fs::remove_file(path).unwrap();
        }
        // No undo data is needed for that, and no hints of the last blocks.
        UndoDamage::AllGone.apply(invalid.dir.path(), Network::Regtest);
        for (height, undo_blocks) in
            [(100, 0), (100, 20), (invalid.block.height - 2, 20), (invalid.block.height, 20)]
        {
            let path = invalid.write(&invalid.truth.hints(height));
            let [options, _] = invalid.both(&path, seed);
            let options = changed(options, |it| it.chain.hooks.undo_blocks = undo_blocks);
            let error = refused(&options, ErrorKind::Consensus);
            invalid.assert_invalid_block(&error, "bad-txns-inputs-missingorspent", "without undo files");
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Changes code, amount and script of a claim.
type Falsify = fn(&mut Rng, &mut u32, &mut i64, &mut Vec<u8>);

const FALSIFICATIONS: [Falsify; 6] = [
    |rng, _, amount, _| *amount += 1 + rng.below(1000) as i64,
    |rng, _, amount, _| *amount -= 1 + rng.below(*amount as u64) as i64,
    |rng, code, _, _| *code -= 2 * (1 + rng.below(u64::from(*code / 2)) as u32),
    |rng, code, _, _| *code += 2 * (1 + rng.below(200) as u32),
    |rng, _, _, script| script.push(rng.below(0x60) as u8),
    |_, code, _, _| *code ^= 1,
];

/// The aggregate covers whole coins, so a false claim is found even if its record has the right checksum. The
/// join names its block. A rebuild that reads no undo data is not affected.
#[test]
fn falsified_undo_data_is_found() {
    let chain = acceptance::chain();
    let spends = |block: &GeneratedBlock| !block.stale && block.txs > 1;
    let spending: Vec<usize> = (0..chain.blocks.len()).filter(|&at| spends(&chain.blocks[at])).collect();
    let (truth, tip) = (Truth::of(chain), chain.tip().height);
    let files = TempDir::new().unwrap();
    let path = file_in(&files, "hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(tip));
    let mut by_sum = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, "undo lie");
        let mut falsified = chain.clone();
        let at = spending[rng.below(spending.len() as u64) as usize];
        let any = |txs: &[Vec<Claim>]| {
            let tx = rng.below(txs.len() as u64) as usize;
            (tx, rng.below(txs[tx].len() as u64) as usize)
        };
        let (falsify, about) =
            (FALSIFICATIONS[seed as usize % FALSIFICATIONS.len()], &mut Rng::new(seed, "what the lie is"));
        falsify_claim(&mut falsified.blocks[at], any, |code, amount, script| {
            falsify(about, code, amount, script)
        });
        let dir = TempDir::new().unwrap();
        falsified.write_datadir(dir.path(), &layout()).unwrap();
        bury(&dir.path().join("regtest/blocks/index"));
        let way = seed as usize;
        let plain = with_threads(&options(dir.path()), THREADS[way / 3 % 3]);
        let with = with_hints(&plain, &path, AGGREGATES[way % 3]);
        let error = run(&with).map(|report| report.height).unwrap_err();
        let at_block = |error: &Error| {
            assert_eq!((error.kind, error.core.as_deref()), (ErrorKind::Damaged, None), "{seed}: {error}");
            assert_eq!(error.height, Some(Height(falsified.blocks[at].height)), "{seed}: {error}");
            assert!(error.file.as_ref().unwrap().to_string_lossy().contains("rev000"), "{seed}: {error}");
        };
        match error.kind {
            ErrorKind::Hints => by_sum += 1,
            _ => at_block(&error),
        }
        at_block(&refused(&with_join_fallback(&with), ErrorKind::Damaged));
        assert!(!dir.path().join("regtest/chainstate").exists(), "{seed}");
        let report = run(&without_undo(&with, truth.hash(tip))).unwrap();
        assert_eq!(report.hash_serialized_3, chain.model.stats().hash_serialized_3, "{seed}");
    }
    // Claims on coins of the same block are compared at once; rules detect some false amounts of the
    // others.
    assert!(by_sum > 25, "only the aggregate found {by_sum}");
}
