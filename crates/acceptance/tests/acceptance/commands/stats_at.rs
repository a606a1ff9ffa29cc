//! The statistics of the UTXO set at each height are those of the model's coins, hashed from scratch,
//! whatever the number of threads and however often the coins cache is written; nothing is left behind.

use acceptance::prelude::*;
use bitcoin::consensus::deserialize;
use digest::muhash::MuHash3072;
use engine::utxo::{BlockAmounts, EachSet, UnspendableAmounts, UtxoStatsAt};
use testkit::model::outpoint;
use wire::script::is_unspendable;

/// Number of threads, and memory for the cache in bytes: a commit after each block, after a few, and one.
const WAYS: [(usize, Option<usize>); 3] = [(1, Some(1)), (2, Some(30_000)), (8, None)];

/// What is expected at a height.
type Expected = (u32, u64, u64, i64, [u8; 32], i64, BlockAmounts);

fn fields(stats: &UtxoStatsAt) -> Expected {
    let &UtxoStatsAt { height, txouts, bogosize, total_amount, muhash, block_info, .. } = stats;
    (height.0, txouts, bogosize, total_amount.0, muhash, stats.total_unspendable_amount.0, block_info)
}

/// Computes the statistics at each height from `from` on from the model's coins. The coinbase of the block at
/// the height `overwritten` creates none.
fn expected(chain: &Chain, from: u32, overwritten: Option<u32>) -> Vec<Expected> {
    let (mut model, mut total_unspendable) = (Model::default(), 0);
    let at_block = |block: &testkit::GeneratedBlock| {
        let decoded: bitcoin::Block = deserialize(&block.bytes).unwrap();
        let (mut spent, mut created, mut by_coinbase, mut scripts) = (0, 0, 0, 0);
        let is_ignored = |index| index == 0 && [Some(0), overwritten].contains(&Some(block.height));
        let mut own: Model = model.clone();
        own.apply(&block.bytes, block.height);
        for (index, tx) in decoded.txdata.iter().enumerate().filter(|(index, _)| !is_ignored(*index)) {
            for output in &tx.output {
                let amount = output.value.to_sat() as i64;
                match (is_unspendable(output.script_pubkey.as_bytes()), index) {
                    (true, _) => scripts += amount,
                    (false, 0) => by_coinbase += amount,
                    (false, _) => created += amount,
                }
            }
            for input in tx.input.iter().filter(|_| index > 0) {
                let found = outpoint(&input.previous_output);
                let earlier = model.coins.get(&found).map(|coin| coin.amount);
                spent += earlier.unwrap_or_else(|| amount_in(&decoded, &input.previous_output));
            }
        }
        model = own;
        if is_ignored(0) && block.height > 0 {
            let txid = decoded.txdata[0].compute_txid();
            model.coins.retain(|outpoint, _| outpoint.txid.0 != *AsRef::<[u8; 32]>::as_ref(&txid));
        }
        let subsidy = 5_000_000_000 >> (block.height / 150);
        let (genesis_block, bip30) = match block.height {
            0 => (subsidy, 0),
            _ => (0, if is_ignored(0) { subsidy } else { 0 }),
        };
        let unclaimed = subsidy + spent - created - by_coinbase - scripts - genesis_block - bip30;
        total_unspendable += genesis_block + bip30 + scripts + unclaimed;
        let (mut muhash, mut bogosize, mut amount) = (MuHash3072::new(), 0, 0);
        for (outpoint, coin) in model.coins.iter().filter(|_| block.height >= from) {
            muhash.insert(&coin.element(outpoint));
            bogosize += 50 + coin.script.len() as u64;
            amount += coin.amount;
        }
        let unspendable = UnspendableAmounts {
            genesis_block: Sats(genesis_block),
            bip30: Sats(bip30),
            scripts: Sats(scripts),
            unclaimed_rewards: Sats(unclaimed),
        };
        let info = BlockAmounts {
            prevout_spent: Sats(spent),
            coinbase: Sats(by_coinbase),
            new_outputs_ex_coinbase: Sats(created),
            unspendable,
        };
        let txouts = model.coins.len() as u64;
        (block.height, txouts, bogosize, amount, muhash.finalize(), total_unspendable, info)
    };
    chain.main().map(at_block).skip(from as usize).collect()
}

/// The amount of an output of a block that spends it itself.
fn amount_in(block: &bitcoin::Block, spent: &bitcoin::OutPoint) -> i64 {
    let tx = block.txdata.iter().find(|tx| tx.compute_txid() == spent.txid).unwrap();
    tx.output[spent.vout as usize].value.to_sat() as i64
}

fn run_on(
    disk: &dyn Disk,
    options: &ReindexOptions,
    heights: impl IntoIterator<Item = u32>,
) -> Result<Vec<UtxoStatsAt>, Error> {
    let heights = heights.into_iter().map(Height).collect();
    engine::utxo::stats_at(disk, &options.chain, &heights, unwatched())
}

fn in_way(options: &ReindexOptions, (threads, bytes): (usize, Option<usize>)) -> ReindexOptions {
    changed(with_threads(options, threads), |it| it.chain.hooks.join_bytes = bytes)
}

#[test]
fn each_height_has_the_statistics_of_the_models_coins() {
    let expected = expected(chain(), 0, None);
    for (way, damage) in
        WAYS.into_iter().zip([UndoDamage::AllGone, UndoDamage::NoPositions, UndoDamage::AllGone])
    {
        let case = Case::new();
        damage.apply(case.root(), Network::Regtest);
        let before = tree(case.root());
        let options = changed(in_way(&case.options(), way), |it| it.chain.scan = way.0 == 2);
        let stats = run_on(&FaultDisk::healthy(), &options, 0..=TIP).unwrap();
        assert!(stats.iter().map(fields).eq(expected.iter().copied()), "{way:?}");
        assert!(stats.iter().map(|stats| stats.hash).eq(chain().main().map(|block| block.hash)), "{way:?}");
        let some = run_on(&FaultDisk::healthy(), &options, [3, TIP - 2, 3, 0]).unwrap();
        let wanted = [0, 3, TIP as usize - 2].map(|height| expected[height]);
        assert_eq!(some.iter().map(fields).collect::<Vec<_>>(), wanted);
        assert_same_tree(&before, case.root(), "the datadir is only read");
    }
}

#[test]
fn valid_chains_of_all_forms_have_the_models_statistics() {
    let base = base_chain(8);
    let valid = mutations().filter(|mutation| mutation.core.is_none());
    for (number, mutation) in valid.enumerate() {
        let mutated = mutation.apply(&base);
        let dir = datadir_of(&mutated.chain);
        let heights = mutated.block.height - 1..=mutated.block.height;
        let expected = expected(&mutated.chain, *heights.start(), None);
        let options = in_way(&options(dir.path()), WAYS[number % 3]);
        let stats = run_on(&FaultDisk::healthy(), &options, heights).unwrap();
        assert!(stats.iter().map(fields).eq(expected), "{}", mutation.name);
    }
}

/// Core's index never counts a coin that a repeated coinbase overwrites.
#[test]
fn repeated_coinbases_unspendable_outputs_and_unclaimed_rewards_are_reported() {
    const ORIGINAL: u32 = 3;
    const TIP: u32 = 50;
    let mut chain = chain().clone();
    chain.blocks.retain(|block| !block.stale && block.height <= TIP);
    let block = |height: u32| &chain.blocks[height as usize];
    let made: bitcoin::Block = deserialize(&block(ORIGINAL).bytes).unwrap();
    let repeat = with_coinbase(block(TIP), &made.txdata[0]);
    let plain = ChainParams::of(Network::Regtest).with_heights(&[(BuriedDeployment::Bip34, Height(10_000))]);
    let exceptions = [(Height(TIP + 1), repeat.hash)];
    let overwritten = [(Height(ORIGINAL), block(ORIGINAL).hash)];
    let params = Box::leak(Box::new(ChainParams {
        bip30_exceptions: Box::leak(Box::new(exceptions)),
        overwritten_coinbases: Box::leak(Box::new(overwritten)),
        ..*plain
    }));
    let (mut burning, after) = (made.txdata[0].clone(), repeat.hash);
    burning.output[0].value = bitcoin::Amount::from_sat(3_000);
    burning.output.push(paying(1_000, bitcoin::ScriptBuf::new_op_return([1; 4])));
    let burning = with_coinbase(&repeat, &burning);
    chain.blocks.extend([repeat, burning]);
    let dir = datadir_of(&chain);
    let expected = expected(&chain, 0, Some(ORIGINAL));
    let [.., (.., last)] = expected[..] else { unreachable!() };
    assert!(last.unspendable.scripts.0 == 1_000 && last.unspendable.unclaimed_rewards.0 > 0, "{last:?}");
    assert_eq!(expected[ORIGINAL as usize].6.unspendable.bip30.0, 5_000_000_000);
    for way in WAYS {
        let options = changed(in_way(&options(dir.path()), way), |it| it.chain.params = params);
        let stats = run_on(&FaultDisk::healthy(), &options, 0..=TIP + 2).unwrap();
        assert_eq!(stats.iter().map(fields).collect::<Vec<_>>(), expected, "{way:?}");
    }
    // With an exception above the last block, only a check in order shows which coins block 3 leaves.
    let with = |exceptions: Vec<(Height, BlockHash)>| -> &'static ChainParams {
        Box::leak(Box::new(ChainParams { bip30_exceptions: Vec::leak(exceptions), ..*params }))
    };
    let hash = |chain: &Chain, params: &'static ChainParams| {
        let dir = datadir_of(chain);
        UndoDamage::AllGone.apply(dir.path(), Network::Regtest);
        let options = changed(acceptance::options(dir.path()), |it| it.chain.params = params);
        acceptance::run(&options).unwrap().hash_serialized_3
    };
    assert_eq!(hash(&chain, params), hash(&chain, with(vec![(Height(TIP + 9), after), exceptions[0]])));
    // On a branch that has another block in its place, block 3 leaves its coins.
    chain.blocks.truncate(TIP as usize + 1);
    assert_eq!(hash(&chain, plain), hash(&chain, with(vec![(Height(TIP), after)])));
}

#[test]
fn a_height_that_no_block_has_is_an_error() {
    let case = Case::new();
    let done = run_on(&FaultDisk::healthy(), &case.options(), [TIP + 1]);
    assert_fails(done, ErrorKind::Usage, &[&(TIP + 1).to_string()]);
    let none = run_on(&FaultDisk::healthy(), &case.options(), []);
    assert_eq!(none.unwrap_err().kind, ErrorKind::Usage);
}

#[test]
fn faults_and_interrupts_leave_nothing() {
    let (case, work) = (tiny_case(), scratch());
    let options = changed(in_way(&case.options(), (2, Some(3000))), |it| {
        it.chain.work_dir = Some(work.path().to_owned());
    });
    let heights = [110, 111];
    let before = tree(case.root());
    let expected: Vec<_> =
        run_on(&FaultDisk::healthy(), &options, heights).unwrap().iter().map(fields).collect();
    let is_empty = || std::fs::read_dir(work.path()).unwrap().next().is_none();
    assert!(is_empty());
    let (mut failures, mut left_behind, mut interrupts) = (0, 0, 0);
    for at in (0..).step_by(5) {
        let disk = FaultDisk::failing_at(at);
        let done = run_on(&disk, &options, heights);
        if !disk.has_failed() {
            assert!(done.unwrap().iter().map(fields).eq(expected), "operation {at}");
            break;
        }
        if let Err(error) = done {
            failures += 1;
            assert_eq!(error.kind, ErrorKind::Environment, "operation {at}: {error}");
        }
        // Only the removal itself can have failed then.
        for left in std::fs::read_dir(work.path()).unwrap() {
            std::fs::remove_dir_all(left.unwrap().path()).unwrap();
            left_behind += 1;
        }
    }
    for at in (1..).step_by(20) {
        let (disk, heights) = (FaultDisk::interrupting_at(at), heights.map(Height).into());
        match engine::utxo::stats_at(&disk, &options.chain, &heights, quiet(disk.interrupt())) {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "operation {at}: {error}"),
        }
        interrupts += 1;
        assert!(is_empty(), "operation {at}");
    }
    assert!(left_behind * 5 < failures, "{left_behind} of {failures} failed runs left files");
    assert!(failures > 10 && interrupts > 5, "{failures} operations failed a run, {interrupts} interrupts");
    assert_same_tree(&before, case.root(), "the datadir is only read");
    assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0]);
}

/// The coins after each of some blocks, hashed on the way, in one pass; nothing is left behind.
#[test]
fn coins_after_some_blocks_have_the_hashes_of_the_models_coins() {
    let model = stats_by_height(chain());
    let wanted = [0, 1, 57, 100, TIP - 1, TIP];
    for way in WAYS {
        let (case, work) = (Case::new(), scratch());
        let before = tree(case.root());
        let options = changed(in_way(&case.options(), way), |it| {
            it.chain.work_dir = Some(work.path().to_owned());
        });
        let heights = wanted.map(Height).into();
        let mut found = Vec::new();
        let mut read = |fails_at: Option<Height>| {
            found.clear();
            let each_set: &mut EachSet<'_> = &mut |height, read| {
                let mut coins = 0;
                let report = read(&mut |_, times| {
                    assert_eq!(times, None);
                    coins += 1;
                    Ok(())
                })?;
                assert_eq!((report.height, report.txouts), (Some(height), coins));
                found.push((height.0, report.hash_serialized_3));
                match fails_at == Some(height) {
                    true => Err(Error::new(ErrorKind::Environment, "full")),
                    false => Ok(()),
                }
            };
            let disk = FaultDisk::healthy();
            engine::utxo::read_after(&disk, &options.chain, &heights, false, each_set, unwatched())
        };
        assert_eq!(read(Some(Height(57))).unwrap_err().detail, "full");
        read(None).unwrap();
        let expected = wanted.map(|height| (height, model[height as usize].hash_serialized_3));
        assert_eq!(found, expected, "{way:?}");
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0, "{way:?}");
        assert_same_tree(&before, case.root(), "the datadir is only read");
    }
}
