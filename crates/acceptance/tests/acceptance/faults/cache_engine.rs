//! The engine with the coins cache comes to the same result as the join: the same coins, the same undo data
//! at the same places, and the same verdicts, whatever the number of threads and however often it writes.

use acceptance::prelude::*;
use acceptance::{
    CORE_DATADIRS, error_text,
    faults::{tiny, tiny_case},
    lies::falsified,
    undo::{Expected, UndoDamage, assert_mends},
};
use engine::{BuriedDeployment, Engine, HintOptions, Matching, Stage, hex_reversed};
use testkit::{
    block::{HeaderPlan, assemble},
    make::MadeTx,
    mutation::{CheckLevel, base_chain, mutations},
};
use wire::Header;

/// Number of threads, and memory for the cache in bytes: a commit after each block, after a few, and one.
const WAYS: [(usize, Option<usize>); 3] = [(1, Some(1)), (2, Some(30_000)), (3, None)];

fn with_cache(options: &ReindexOptions, (threads, bytes): (usize, Option<usize>)) -> ReindexOptions {
    changed(with_threads(options, threads), |it| {
        it.engine = Engine::Cache;
        it.chain.hooks.join_bytes = bytes;
    })
}

#[test]
fn coins_and_undo_data_are_those_of_the_join() {
    for (seed, damage) in (0..).zip(UndoDamage::ALL) {
        let chain = Chain::generate(&ChainSpec { signed: false, ..ChainSpec::new(40 + seed, 250_000) });
        let expected = Expected::of(&chain);
        let shuffle = if seed % 2 == 0 { 16 } else { 1 };
        let template =
            Template::laid_out(&chain, &Layout { file_size: 32 << 10, shuffle, ..Layout::new(seed) });
        let policy = if seed % 4 == 3 { UndoPolicy::Make } else { UndoPolicy::Auto };
        let rebuild = |way: Option<(usize, Option<usize>)>| {
            let case = template.case();
            damage.apply(case.root(), Network::Regtest);
            let join = changed(case.options(), |it| it.chain.undo = policy);
            let options = way.map_or_else(|| join.clone(), |way| with_cache(&join, way));
            let what = format!("{damage:?}, {policy:?}, {way:?}");
            let (report, files) = assert_mends(&options, &expected, &what);
            let stats = stats(case.root(), Network::Regtest).unwrap();
            assert_eq!(stats.hash_serialized_3, report.hash_serialized_3, "{what}");
            (report, files, (stats.best_block, stats.muhash, stats.transactions))
        };
        let (joined, join_files, join_stats) = rebuild(None);
        for way in WAYS {
            let (report, files, stats) = rebuild(Some(way));
            let what = format!("{damage:?}, {way:?}");
            assert!(files == join_files, "{what}: the block index or the rev files differ");
            assert_eq!(stats, join_stats, "{what}");
            assert_eq!((report.matching, joined.matching), (Matching::Cache, Matching::Parallel), "{what}");
            assert_eq!(report.counts, joined.counts, "{what}");
            assert_eq!((report.txouts, report.total_amount), (joined.txouts, joined.total_amount), "{what}");
            assert_eq!(report.undo, joined.undo, "{what}");
        }
    }
}

#[test]
fn each_height_has_the_models_coins_with_and_without_a_scan() {
    let (mut rng, tip) = (Rng::new(3, "heights"), chain().tip().height);
    let case = Case::new();
    for height in [0, 1, 2, 100, tip].into_iter().chain((0..8).map(|_| rng.below(tip.into()) as u32)) {
        let way = WAYS[height as usize % 3];
        let output = acceptance::scratch();
        let options = changed(with_cache(&case.options(), way), |it| {
            it.stop_at_height = Some(Height(height));
            it.scan = height % 2 == 1;
            it.output = Some(output.path().to_owned());
        });
        let report = run(&options).unwrap_or_else(|error| panic!("{height}: {error}"));
        let expected = &stats_by_height(chain())[height as usize];
        assert_eq!((report.height, report.counts.blocks), (Height(height), u64::from(height) + 1));
        assert_eq!(report.hash_serialized_3, expected.hash_serialized_3, "height {height}");
        assert_eq!(report.txouts, expected.txouts, "height {height}");
    }
}

#[test]
fn datadirs_of_bitcoin_core_get_cores_coins() {
    for (name, network) in CORE_DATADIRS {
        let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { continue };
        let tip = known.iter().max_by_key(|line| line["height"].as_u64()).unwrap();
        let options = changed(ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut), |it| {
            it.chain.undo = UndoPolicy::Make;
            it.stop_at_height = Some(Height(tip["height"].as_u64().unwrap() as u32));
        });
        let report = run(&with_cache(&options, (2, Some(300_000)))).unwrap_or_else(|error| {
            panic!("{name}: {error}");
        });
        assert_eq!(report.hash.to_string(), tip["hash"], "{name}");
        assert_eq!(hex_reversed(&report.hash_serialized_3), tip["hash_serialized_3"], "{name}");
        assert_eq!(report.undo.unwrap().blocks, 0, "{name}: Core's undo data is the same");
    }
}

#[test]
fn each_mutation_gets_the_joins_verdict() {
    let base = base_chain(8);
    let mut wrong = String::new();
    for (number, mutation) in mutations().enumerate() {
        if mutation.level == CheckLevel::Script && mutation.core.is_some() {
            continue;
        }
        let mutated = mutation.apply(&base);
        let dir = acceptance::scratch();
        mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
        let before = tree(dir.path());
        let verdict = |way: Option<(usize, Option<usize>)>| {
            let output = acceptance::scratch();
            let join = ReindexOptions { output: Some(output.path().to_owned()), ..options(dir.path()) };
            let done = run(&way.map_or_else(|| join.clone(), |way| with_cache(&join, way)));
            match done {
                Ok(report) => format!("{} {:?}", report.hash, report.hash_serialized_3),
                Err(error) => {
                    let place = (error.height, error.block_hash, error.txid, &error.core, error.rule);
                    format!("{} {place:?}", error_text(&error, dir.path()))
                }
            }
        };
        let joined = verdict(None);
        let found = verdict(Some(WAYS[number % 3]));
        if found != joined {
            wrong += &format!("\n{}: {found}, the join says {joined}", mutation.name);
        }
        assert_same_tree(&before, dir.path(), mutation.name);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The coins of a block can be written, and leave the memory, after the next block was looked up.
#[test]
fn a_coinbase_that_is_made_again_is_invalid_however_often_changes_are_written() {
    const TIP: u32 = 50;
    let params = ChainParams::custom_regtest(&[(BuriedDeployment::Bip34, Height(10_000))]);
    for original in [TIP, TIP - 1, 3] {
        let mut again = chain().clone();
        again.blocks.retain(|block| !block.stale && block.height <= TIP);
        let block = |height: u32| &again.blocks[height as usize];
        let made: bitcoin::Block = bitcoin::consensus::deserialize(&block(original).bytes).unwrap();
        let Header { version, time, .. } = block(TIP).header;
        let plan = HeaderPlan { height: TIP + 1, prev: block(TIP).hash, version, time: time.0 + 1 };
        again.blocks.push(assemble(plan, &MadeTx::new(&made.txdata[0], Vec::new()), &[], false));
        let dir = acceptance::scratch();
        again.write_datadir(dir.path(), &layout()).unwrap();
        let join = changed(options(dir.path()), |it| it.chain.params = params);
        for options in [join.clone()].into_iter().chain(WAYS.map(|way| with_cache(&join, way))) {
            let error = run(&options).map(|report| report.height).unwrap_err();
            assert_eq!(error.core.as_deref(), Some("bad-txns-BIP30"), "{original}: {error}");
            assert_eq!(error.height, Some(Height(TIP + 1)), "{original}: {error}");
        }
    }
}

#[test]
fn undo_data_that_is_trusted_is_compared() {
    for (number, (what, falsified, ..)) in falsified(chain()).enumerate() {
        let dir = acceptance::scratch();
        falsified.write_datadir(dir.path(), &layout()).unwrap();
        let join = trusting(&options(dir.path()));
        let texts = [join.clone(), with_cache(&join, WAYS[number % 3])].map(|options| {
            let error = run(&options).map(|report| report.height).expect_err(what);
            assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
            (error_text(&error, dir.path()), error.height, error.txid)
        });
        assert_eq!(texts[0], texts[1], "{what}");
    }
}

#[test]
fn a_fault_at_any_operation_leaves_the_old_datadir_or_the_new_one() {
    let found = |case: &Case| {
        stats(case.root(), Network::Regtest).map(|stats| (stats.best_block, stats.hash_serialized_3))
    };
    let (old, new) =
        (found(&tiny_case()).unwrap(), (tiny().tip().hash, tiny().model.stats().hash_serialized_3));
    let damaged = || {
        let case = tiny_case();
        UndoDamage::NoPositions.apply(case.root(), Network::Regtest);
        case
    };
    let options = |case: &Case| with_cache(&case.options(), (2, Some(3000)));
    let is_whole = |case: &Case, is_done: bool, what: &str| {
        let state = found(case).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(state == old || state == new, "{what}: a mix of old and new");
        assert!(!is_done || state == new, "{what}: it reported success");
    };
    let succeeds = |case: &Case, what: &str| {
        let again = run(&options(case)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert_eq!(again.hash_serialized_3, new.1, "{what}, again");
        assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0], "{what}");
    };
    let mut failures = 0;
    for at in (0..).step_by(7) {
        let (case, what) = (damaged(), format!("operation {at}"));
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, Operations::Changes, io::ErrorKind::Other);
        let done = run_on(&disk, &options(&case));
        if !disk.has_failed() {
            assert_eq!(done.unwrap().hash_serialized_3, new.1, "{what}");
            break;
        }
        if let Err(error) = &done {
            failures += 1;
            assert_eq!(error.kind, ErrorKind::Environment, "{what}: {error}");
        }
        is_whole(&case, done.is_ok(), &what);
        succeeds(&case, &what);
    }
    assert!(failures >= 20, "only {failures} operations failed a run");
    let run = |disk: &FaultDisk, case: &Case| run_on(disk, &options(case)).map(drop);
    let scenario = Scenario { before: &damaged, run: &run, is_whole: &is_whole, succeeds: &succeeds };
    let states = scenario.explore(Crashes { stride: 5, ..Crashes::default() });
    assert!(states > 20, "{states}");
}

#[test]
fn an_interrupted_run_leaves_the_datadir_as_it_was() {
    let mut interrupted = 0;
    for at in (1..).step_by(40) {
        let case = tiny_case();
        UndoDamage::AllGone.apply(case.root(), Network::Regtest);
        let before = tree(case.root());
        let options = with_cache(&case.options(), (1, Some(3000)));
        match run_until(&options, at).0 {
            Ok(report) => {
                assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3);
                break;
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
        }
        interrupted += 1;
        assert_same_tree(&before, case.root(), &format!("operation {at}"));
        assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0]);
    }
    assert!(interrupted > 5, "{interrupted}");
}

#[test]
fn the_checkpoint_of_another_engine_is_kept_unless_the_caller_gives_it_up() {
    let case = Case::new();
    let (_, operations) = run_until(&bounded(&Case::new().options()), u64::MAX);
    let error =
        run_until(&bounded(&case.options()), operations / 2).0.map(|report| report.height).unwrap_err();
    assert!(matches!(error.remedies[..], [Remedy::Resume { .. }]), "{error}");
    let cache = with_cache(&case.options(), WAYS[1]);
    let error = run(&cache).map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage, "{error}");
    assert!(error.remedies.contains(&Remedy::StartOver), "{error}");
    let report = run(&changed(cache, |it| it.resume.restart = true)).unwrap();
    assert_eq!((report.resumed, report.matching), (0, Matching::Cache));
    assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0]);
}

#[test]
fn hints_are_refused_before_anything_is_opened() {
    let hints = HintOptions {
        file: "no such file".into(),
        remote: None,
        format: None,
        aggregate: engine::AggregateKind::Sha256,
        without_undo: false,
        on_failure_join: false,
    };
    let options = with_cache(&options("no such datadir".as_ref()), WAYS[0]);
    let error =
        run(&ReindexOptions { hints: Some(hints), ..options }).map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage, "{error}");
    assert!(error.remedies.contains(&Remedy::WithoutHints), "{error}");
}

#[test]
fn events_name_the_stages_and_tables_are_merged() {
    let case = Case::new();
    let seen = Mutex::new(Vec::new());
    let sink = |event| seen.lock().unwrap().push(event);
    let options = with_cache(&case.options(), WAYS[0]);
    let disk = FaultDisk::healthy();
    let report = engine::reindex(&disk, &options, &sink, &AtomicBool::new(false)).unwrap();
    let stages = seen.into_inner().unwrap().into_iter().filter_map(|event| match event {
        Event::Started(stage) => Some(stage),
        _ => None,
    });
    assert_eq!(stages.collect::<Vec<_>>(), [Stage::Plan, Stage::Connect, Stage::Prove, Stage::Commit]);
    let tables = acceptance::files(&report.chainstate).into_keys();
    let tables = tables.filter(|name| name.extension().is_some_and(|ending| ending == "ldb")).count();
    assert!(tables < 8, "{tables} tables after a commit for each block");
}
