//! Rebuilds with hints give the same coins as the join, the model and Core: with and without undo data, for
//! all aggregates, any number of threads, hints of every format and any height, interrupted and resumed.

use acceptance::prelude::*;
use acceptance::{for_checking_hints, for_making, hinted};
use engine::{HintCheck, HintInfo, hex_reversed};
use hinted::{
    AGGREGATES, Truth, bury, file_in, run_until, with_frequent_checkpoints, with_hints, without_undo,
};
use hints::HintFormat;

/// A datadir of [`acceptance::chain`] whose blocks are all buried, and its true hints.
fn buried() -> (Case, &'static Truth) {
    static TRUTH: OnceLock<Truth> = OnceLock::new();
    let case = Case::new();
    bury(&case.blocks("index"));
    (case, TRUTH.get_or_init(|| Truth::of(acceptance::chain())))
}

/// Rebuilds into a separate output.
fn rebuild(options: &ReindexOptions) -> ReindexReport {
    let output = TempDir::new().unwrap();
    let options = ReindexOptions { output: Some(output.path().to_owned()), ..options.clone() };
    let report = run(&options).unwrap_or_else(|error| panic!("{error}"));
    let stats = acceptance::stats(output.path(), options.chain.params.network).unwrap();
    assert_eq!(stats.hash_serialized_3, report.hash_serialized_3, "the chainstate differs from the report");
    assert_eq!((stats.best_block, stats.txouts), (report.hash, report.txouts));
    report
}

fn make(options: &ReindexOptions, path: &Path, format: HintFormat) -> Result<HintInfo, Error> {
    let disk = FaultDisk::healthy();
    engine::make_hints(&disk, &for_making(options), path, format, &|_| {}, &AtomicBool::new(false))
}

fn check(options: &ReindexOptions, path: &Path) -> HintCheck {
    let disk = FaultDisk::healthy();
    engine::check_hints(&disk, &for_checking_hints(options), path, None, &|_| {}, &AtomicBool::new(false))
        .unwrap()
}

/// Core's datadirs: hints are made at a height, found correct, and lead to the hashes that Core's
/// `gettxoutsetinfo` printed.
fn core_datadir(name: &str, network: Network) {
    let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { return };
    let before = tree(dir.path());
    let files = TempDir::new().unwrap();
    let base = with_threads(&ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut), 2);
    let tip = known.iter().max_by_key(|line| line["height"].as_u64()).unwrap();
    for (number, line) in known.iter().enumerate() {
        let height = Height(line["height"].as_u64().unwrap() as u32);
        let path = file_in(&files, &format!("{height}"));
        let at = ReindexOptions { stop_at_height: Some(height), ..base.clone() };
        let format = HintFormat::ALL[number % HintFormat::ALL.len()];
        let info = make(&at, &path, format).unwrap();
        assert_eq!((info.height, info.hints), (height, line["txouts"].as_u64().unwrap()), "{name} {height}");
        let check = check(&base, &path);
        assert_eq!((check.wrong_blocks, check.first), (0, None), "{name} {height}");
        // All aggregates at the tip; below it one of them, and from there on the join.
        let ways: Vec<_> = if std::ptr::eq(line, tip) {
            (0..3).map(|way| (AGGREGATES[way], THREADS[2 - way], &at, line)).collect()
        } else {
            vec![(AGGREGATES[number % 3], 2, &at, line), (AGGREGATES[number % 2], 8, &base, tip)]
        };
        for (aggregate, threads, options, expected) in ways {
            let what = format!("{name}, hints of {height} in {format}, {aggregate}, {threads} threads");
            let report = rebuild(&with_threads(&with_hints(options, &path, aggregate), threads));
            assert_eq!(hex_reversed(&report.hash_serialized_3), expected["hash_serialized_3"], "{what}");
            assert_eq!(
                (report.hints.is_some(), &report.hash.to_string()[..]),
                (true, expected["hash"].as_str().unwrap()),
                "{what}"
            );
        }
    }
    let (hash, coins) = (tip["hash"].as_str().unwrap(), tip["hash_serialized_3"].as_str().unwrap());
    without_undo_in(dir.path(), &base, (hash, coins), &file_in(&files, &tip["height"].to_string()));
    if network != Network::Regtest {
        assert_same_tree(&before, dir.path(), name);
    }
}

/// Without undo data all blocks must be assumed valid. None of the short chains on the public networks has
/// enough work for that, and the rebuild is refused; regtest's has, once it is buried.
fn without_undo_in(dir: &Path, base: &ReindexOptions, (hash, coins): (&str, &str), hints: &Path) {
    let valid = hash.parse().unwrap();
    let options = |aggregate| without_undo(&with_hints(base, hints, aggregate), valid);
    let error = acceptance::refused(&options(AGGREGATES[0]), ErrorKind::Usage);
    assert_mentions(&error, &["scripts cannot be checked without undo data"]);
    acceptance::assert_offers(&error, &[Remedy::LaterAssumedBlock, Remedy::UseUndoData]);
    if base.chain.params.network != Network::Regtest {
        return;
    }
    bury(&dir.join("regtest/blocks/index"));
    for aggregate in AGGREGATES {
        let report = rebuild(&options(aggregate));
        assert_eq!(hex_reversed(&report.hash_serialized_3), coins, "{aggregate}");
        assert!(!report.hints.unwrap().with_undo);
    }
}

#[test]
fn main_is_rebuilt_with_hints_to_cores_hashes() {
    core_datadir("main", Network::Main);
}

#[test]
fn testnet3_is_rebuilt_with_hints_to_cores_hashes() {
    core_datadir("testnet3", Network::Test);
}

#[test]
fn signet_is_rebuilt_with_hints_to_cores_hashes() {
    core_datadir("signet", Network::Signet);
}

#[test]
fn regtest_is_rebuilt_with_hints_to_cores_hashes() {
    core_datadir("regtest", Network::Regtest);
}

#[test]
fn every_variant_gives_the_models_coins() {
    let (case, truth) = buried();
    let (files, model) = (TempDir::new().unwrap(), acceptance::chain().model.stats());
    let tip = acceptance::chain().tip().height;
    let path = file_in(&files, "hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(tip));
    for aggregate in AGGREGATES {
        let with = with_hints(&case.options(), &path, aggregate);
        for (options, with_undo) in [(without_undo(&with, truth.hash(tip)), false), (with, true)] {
            for (threads, join_bytes) in [(1, None), (2, None), (8, None), (2, Some(1))] {
                let what = format!("{aggregate}, undo {with_undo}, {threads} threads, join {join_bytes:?}");
                let report = rebuild(&changed(with_threads(&options, threads), |it| {
                    it.chain.hooks.join_bytes = join_bytes
                }));
                assert_eq!(report.hash_serialized_3, model.hash_serialized_3, "{what}");
                assert_eq!(report.txouts, model.txouts, "{what}");
                let hints = report.hints.unwrap();
                assert_eq!((hints.height, hints.with_undo), (Height(tip), with_undo), "{what}");
                assert_eq!(hints.aggregate, aggregate);
                assert_eq!(report.counts.inputs, acceptance::chain().totals.inputs, "{what}");
            }
        }
    }
}

/// Chains of other shapes, signed and not, compared with their models.
#[test]
fn other_chains_give_their_models_coins() {
    for (seed, signed) in [(21, true), (22, false), (23, false)] {
        let spec = testkit::ChainSpec { signed, ..testkit::ChainSpec::new(seed, 500_000) };
        let chain = testkit::Chain::generate(&spec);
        let (dir, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        chain.write_datadir(dir.path(), &acceptance::layout()).unwrap();
        bury(&dir.path().join("regtest/blocks/index"));
        let (truth, tip) = (Truth::of(&chain), chain.tip().height);
        let path = file_in(&files, "hints");
        truth.write(&path, HintFormat::Bip456, &truth.hints(tip));
        let with = with_hints(
            &with_threads(&acceptance::options(dir.path()), 2),
            &path,
            AGGREGATES[seed as usize % 3],
        );
        for options in [without_undo(&with, truth.hash(tip)), with] {
            let report = rebuild(&options);
            assert_eq!(report.hash_serialized_3, chain.model.stats().hash_serialized_3, "seed {seed}");
        }
    }
}

#[test]
fn hints_of_any_height_and_format_give_the_models_coins() {
    let (case, truth) = buried();
    let (files, model) = (TempDir::new().unwrap(), stats_by_height(acceptance::chain()));
    let tip = acceptance::chain().tip().height;
    for (number, height) in [1, 2, 60, 101, 113, 128, tip - 1, tip].into_iter().enumerate() {
        for (format, turn) in HintFormat::ALL.into_iter().zip(0..) {
            // All formats at the tip; some at lower heights.
            if height < tip && (number + turn) % 3 > 0 {
                continue;
            }
            let path = file_in(&files, &format!("{format}-{height}"));
            truth.write(&path, format, &truth.hints(height));
            let with =
                with_hints(&with_threads(&case.options(), THREADS[turn % 3]), &path, AGGREGATES[turn % 2]);
            let assumed = truth.hash(height.max(tip / 2));
            for options in [with.clone(), without_undo(&with, assumed)] {
                // Few indices are valid in both byte orders, so the format must be named.
                let mut options = options;
                options.hints.as_mut().unwrap().format = Some(format);
                let what = format!("{format} of height {height}");
                let report = rebuild(&options);
                assert_eq!(report.hash_serialized_3, model[tip as usize].hash_serialized_3, "{what}");
                let stop = Some(Height(height));
                let report = rebuild(&ReindexOptions { stop_at_height: stop, ..options });
                assert_eq!(report.hash_serialized_3, model[height as usize].hash_serialized_3, "{what}");
            }
        }
    }
}

#[test]
fn hints_made_from_blocks_equal_those_of_the_model() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let tip = acceptance::chain().tip().height;
    for (number, format) in HintFormat::ALL.into_iter().enumerate() {
        for height in [tip, 100 + 5 * number as u32] {
            let expected = file_in(&files, &format!("{format}-{height}-model"));
            truth.write(&expected, format, &truth.hints(height));
            let expected = std::fs::read(&expected).unwrap();
            for (join_bytes, threads) in [(None, 1), (Some(1), 2)] {
                let made = file_in(&files, &format!("{format}-{height}-{threads}"));
                let stop_at_height = Some(Height(height));
                let options = changed(ReindexOptions { stop_at_height, ..case.options() }, |it| {
                    it.chain.hooks.join_bytes = join_bytes
                });
                let info = make(&with_threads(&options, threads), &made, format).unwrap();
                assert!(std::fs::read(&made).unwrap() == expected, "{format} at {height}");
                assert_eq!((info.height, info.format), (Height(height), format));
                let read = engine::hints_info(&FaultDisk::healthy(), &made, Some(format)).unwrap();
                let read = read.hints;
                assert_eq!((read.hints, read.bytes), (info.hints, info.bytes), "{format} at {height}");
            }
            let again = make(&case.options(), &file_in(&files, &format!("{format}-{height}-1")), format);
            assert_eq!(again.unwrap_err().kind, ErrorKind::Usage, "an existing file is kept");
        }
    }
    assert!(!files.path().join("peregrine-work").exists(), "temporary files are removed");
}

#[test]
fn every_format_converts_into_every_other() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let hints = truth.hints(acceptance::chain().tip().height);
    let expected: Vec<Vec<u8>> = HintFormat::ALL
        .iter()
        .map(|&format| {
            let path = file_in(&files, format.name());
            truth.write(&path, format, &hints);
            assert_eq!(check(&case.options(), &path).wrong_blocks, 0, "{format}");
            std::fs::read(&path).unwrap()
        })
        .collect();
    for from in HintFormat::ALL {
        for (to, expected) in HintFormat::ALL.into_iter().zip(&expected) {
            let path = file_in(&files, "converted");
            let disk = FaultDisk::healthy();
            let info = engine::convert_hints(
                &disk,
                &file_in(&files, from.name()),
                None,
                &path,
                to,
                Some(&ChainOptions::new(case.root(), Network::Regtest, ScriptChecks::LeftOut)),
                Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) },
            );
            assert_eq!(info.unwrap().format, to, "{from} to {to}");
            assert!(std::fs::read(&path).unwrap() == *expected, "{from} to {to}");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

/// Like all commands that only read a datadir.
#[test]
fn converting_hints_leaves_what_an_interrupted_rebuild_has_left() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let [from, to] = ["hints", "converted"].map(|name| file_in(&files, name));
    truth.write(&from, HintFormat::Peregrine, &truth.hints(acceptance::chain().tip().height));
    let leftover = case.root().join("regtest/chainstate.peregrine");
    std::fs::create_dir(&leftover).unwrap();
    std::fs::write(leftover.join("000007.ldb"), b"half a table").unwrap();
    std::fs::write(leftover.join("peregrine.mark"), b"PGRN-NEW").unwrap();
    let (disk, options) =
        (FaultDisk::healthy(), ChainOptions::new(case.root(), Network::Regtest, ScriptChecks::LeftOut));
    let watch = Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) };
    engine::convert_hints(&disk, &from, None, &to, HintFormat::Bitmap, Some(&options), watch).unwrap();
    assert!(leftover.exists());
}

/// Interrupted repeatedly, at each file that is created, and resumed: the same coins.
#[test]
fn an_interrupted_rebuild_resumes() {
    let (case, truth) = buried();
    let (files, chain) = (TempDir::new().unwrap(), acceptance::chain());
    let tip = chain.tip().height;
    let path = file_in(&files, "hints");
    let mut most = 0;
    for (number, aggregate) in AGGREGATES.into_iter().enumerate() {
        truth.write(&path, HintFormat::Peregrine, &truth.hints(tip - 10 * number as u32));
        let with = with_frequent_checkpoints(&with_hints(&case.options(), &path, aggregate));
        for (with, join_bytes) in [
            (without_undo(&with, truth.hash(tip)), None),
            (with.clone(), None),
            (without_undo(&with, truth.hash(tip)), Some(1)),
            (with, Some(1)),
        ] {
            let options =
                &changed(with_threads(&with, 1 + number), |it| it.chain.hooks.join_bytes = join_bytes);
            let mut times = 0;
            let report = loop {
                times += 1;
                match run_until(options, 5 + 3 * times) {
                    Ok(report) => break report,
                    Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
                }
                assert!(times < 200, "no end");
            };
            let what = format!("{aggregate}, join {join_bytes:?}, {times} times");
            assert_eq!(report.hash_serialized_3, chain.model.stats().hash_serialized_3, "{what}");
            assert_eq!((report.hints.is_some(), report.counts.blocks), (true, chain.totals.blocks), "{what}");
            assert_eq!(report.counts.inputs, chain.totals.inputs, "{what}: each block is counted once");
            most = most.max(report.resumed);
            assert!(!case.root().join("regtest/peregrine-work").exists());
        }
    }
    assert!(most > 50, "no run resumed from a checkpoint: {most}");
}

/// The chain may grow while hints are being made: completed blocks are not processed again.
#[test]
fn interrupted_making_of_hints_resumes() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let tip = acceptance::chain().tip().height;
    for (format, first) in
        [(HintFormat::Peregrine, tip), (HintFormat::Bitmap, tip - 5), (HintFormat::TheStack, tip - 6)]
    {
        let expected = file_in(&files, "expected");
        truth.write(&expected, format, &truth.hints(tip));
        for join_bytes in [None, Some(1)] {
            let path = file_in(&files, "made");
            let options = with_frequent_checkpoints(&changed(case.options(), |it| {
                it.chain.hooks.join_bytes = join_bytes
            }));
            let mut stops = 0;
            loop {
                stops += 1;
                let (disk, interrupt) = hinted::interrupting_at_file(3 + 4 * stops);
                let height = if stops < 4 { first } else { tip };
                let options = ReindexOptions { stop_at_height: Some(Height(height)), ..options.clone() };
                match engine::make_hints(&disk, &for_making(&options), &path, format, &|_| {}, &interrupt) {
                    Ok(info) if info.height == Height(tip) => break,
                    Ok(_) => std::fs::remove_file(&path).unwrap(),
                    Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
                }
                assert!(stops < 200, "no end");
            }
            assert!(std::fs::read(&path).unwrap() == std::fs::read(&expected).unwrap(), "{format}");
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::remove_file(&expected).unwrap();
    }
    assert!(!files.path().join("peregrine-work").exists(), "temporary files are removed");
}

/// No block is assumed valid without the user's consent.
#[test]
fn without_undo_data_needs_an_assumed_valid_block_above_the_hints() {
    let (case, truth) = buried();
    let files = TempDir::new().unwrap();
    let path = file_in(&files, "hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(120));
    let with = with_hints(&case.options(), &path, AGGREGATES[0]);
    for assume_valid in
        [AssumeValid::Off, AssumeValid::Default, AssumeValid::Checked, AssumeValid::Block(truth.hash(119))]
    {
        let options =
            changed(without_undo(&with, truth.hash(120)), |it| it.chain.assume_valid = assume_valid);
        let error = acceptance::refused(&options, ErrorKind::Usage);
        assert_mentions(&error, &["up to height 120, where the hints end"]);
        acceptance::assert_offers(&error, &[Remedy::LaterAssumedBlock]);
    }
    rebuild(&without_undo(&with, truth.hash(120)));
}
