//! The result is always the same, and equals the naive model's: parallel or sequential, index or scan, any
//! number of threads, any division of the result into tables.

use acceptance::files;
use acceptance::prelude::*;
use engine::Matching;
use testkit::model::ModelStats;

/// Rebuilds into a separate output; returns the files of the chainstate, by name, with their bytes.
fn rebuild(options: &ReindexOptions) -> (ReindexReport, BTreeMap<PathBuf, Option<Vec<u8>>>) {
    let output = acceptance::scratch();
    let report = run(&ReindexOptions { output: Some(output.path().to_owned()), ..options.clone() })
        .unwrap_or_else(|error| panic!("{error}"));
    let stats = stats(output.path(), options.chain.params.network).unwrap();
    assert_eq!(stats.hash_serialized_3, report.hash_serialized_3, "the chainstate differs from the report");
    assert_eq!((stats.best_block, stats.txouts), (report.hash, report.txouts));
    (report, files(&output.path().join("regtest/chainstate")))
}

fn assert_is(report: &ReindexReport, model: &ModelStats, what: &str) {
    assert_eq!(report.hash_serialized_3, model.hash_serialized_3, "{what}");
    assert_eq!((report.txouts, report.total_amount.0 as u64), (model.txouts, model.total_amount), "{what}");
}

#[test]
fn every_variant_gives_the_models_coins() {
    for (seed, signed) in [(11, true), (12, false), (13, false)] {
        let chain = Chain::generate(&ChainSpec { signed, ..ChainSpec::new(seed, 700_000) });
        let model = chain.model.stats();
        for (xor, file_size, shuffle) in [(true, 128 << 10, 16), (false, 128 << 20, 1)] {
            let dir = acceptance::scratch();
            let plain = Layout::new(seed);
            let xor_key = plain.xor_key.filter(|_| xor);
            chain.write_datadir(dir.path(), &Layout { xor_key, file_size, shuffle, ..plain }).unwrap();
            let base = changed(options(dir.path()), |it| it.chain.hooks.obfuscation_key = Some([9; 8]));
            let mut tables = None;
            for threads in THREADS {
                for (matching, scan) in
                    [(Matching::Parallel, false), (Matching::Parallel, true), (Matching::Sequential, false)]
                {
                    let what =
                        format!("seed {seed}, xor {xor}, {threads} threads, {matching:?}, scan {scan}");
                    let options = changed(ReindexOptions { scan, ..with_threads(&base, threads) }, |it| {
                        it.chain.hooks.matching = matching
                    });
                    let (report, files) = rebuild(&options);
                    assert_is(&report, &model, &what);
                    assert_eq!(report.matching, matching, "{what}");
                    assert_eq!(report.hash, chain.totals.hash, "{what}");
                    let counts = report.counts;
                    assert_eq!(
                        (
                            counts.blocks,
                            counts.transactions,
                            counts.inputs,
                            counts.outputs,
                            counts.block_bytes
                        ),
                        (
                            chain.totals.blocks,
                            chain.totals.txs,
                            chain.totals.inputs,
                            chain.totals.outputs,
                            chain.totals.bytes
                        ),
                        "{what}"
                    );
                    if matching == Matching::Parallel {
                        assert_eq!(report.ages.counts(), chain.totals.ages.by_powers_of_two(), "{what}");
                    }
                    let expected = tables.get_or_insert_with(|| files.clone());
                    assert!(*expected == files, "{what}: the chainstate's files differ");
                }
            }
        }
    }
}

#[test]
fn many_small_ranges_contain_the_same_coins_as_one() {
    let case = Case::new();
    let model = acceptance::chain().model.stats();
    let mut last = usize::MAX;
    for range_bytes in [1, 10_000, 28 << 20] {
        let options = changed(with_threads(&case.options(), 2), |it| {
            it.chain.hooks.range_bytes = range_bytes;
            it.chain.hooks.obfuscation_key = Some([3; 8]);
        });
        let (report, files) = rebuild(&options);
        assert_is(&report, &model, &format!("ranges of {range_bytes} bytes"));
        let tables =
            files.keys().filter(|name| name.extension().is_some_and(|ending| ending == "ldb")).count();
        assert!(
            tables < last,
            "{tables} tables with ranges of {range_bytes} bytes, {last} with smaller ones"
        );
        last = tables;
        let again = changed(with_threads(&options, 8), |it| it.chain.hooks.range_bytes = range_bytes);
        assert!(rebuild(&again).1 == files, "threads change files at ranges of {range_bytes} bytes");
    }
    assert_eq!(last, 2, "one table for the rows that are not coins, one for the coins");
}

#[test]
fn every_height_has_the_models_coins() {
    let (case, chain) = (Case::new(), acceptance::chain());
    let blocks: Vec<_> = chain.main().collect();
    for (height, model) in stats_by_height(chain).iter().enumerate() {
        // Early blocks contain only a coinbase.
        if height > 5 && height < 95 && height % 10 > 0 {
            continue;
        }
        let stop_at_height = Some(Height(height as u32));
        let scan = height % 3 == 0;
        let (report, _) = rebuild(&ReindexOptions { stop_at_height, scan, ..case.options() });
        assert_is(&report, model, &format!("height {height}"));
        assert_eq!((report.height, report.hash), (Height(height as u32), blocks[height].hash));
    }
}

#[test]
fn a_rebuild_in_place_replaces_the_old_chainstate() {
    for scan in [false, true] {
        let case = Case::new();
        let before = tree(case.root());
        let old = stats(case.root(), Network::Regtest).unwrap();
        let report = run(&ReindexOptions { scan, ..case.options() }).unwrap();
        let new = stats(case.root(), Network::Regtest).unwrap();
        assert_eq!((new.best_block, new.hash_serialized_3), (report.hash, report.hash_serialized_3));
        assert_ne!(new.best_block, old.best_block);
        // Everything else is unchanged, and nothing is left beside the databases.
        let is_database = |path: &Path| {
            path.starts_with(case.root().join("regtest/chainstate"))
                || scan && path.starts_with(case.blocks("index"))
        };
        let others = |tree: BTreeMap<PathBuf, Option<Vec<u8>>>| -> Vec<_> {
            tree.into_iter().filter(|(path, _)| !is_database(path)).collect()
        };
        assert!(others(before) == others(tree(case.root())), "scan {scan}");
        // The next rebuild can use the index that the scan wrote.
        let again = run(&case.options()).unwrap();
        assert_eq!(again.hash_serialized_3, report.hash_serialized_3);
    }
}

#[test]
fn a_scan_works_without_an_index() {
    let case = Case::new();
    std::fs::remove_dir_all(case.blocks("index")).unwrap();
    let report = run(&case.scan()).unwrap();
    assert_is(&report, &acceptance::chain().model.stats(), "scan");
    let index = case.index();
    assert_eq!(index.entries.len(), acceptance::chain().blocks.len(), "stale blocks are in the index too");
}

#[test]
fn events_name_the_stages_and_the_plan() {
    let case = Case::new();
    let seen = Mutex::new(Vec::new());
    let sink = |event| seen.lock().unwrap().push(event);
    engine::reindex(&FaultDisk::healthy(), &case.options(), &sink, &AtomicBool::new(false)).unwrap();
    let events = seen.into_inner().unwrap();
    let stages: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Started(stage) => Some(stage.name()),
            _ => None,
        })
        .collect();
    assert_eq!(stages, ["plan", "check", "finish", "prove", "commit"]);
    let planned = events.iter().find_map(|event| match event {
        Event::Planned { height, hash, unconnected, .. } => Some((height.0, *hash, *unconnected)),
        _ => None,
    });
    let tip = acceptance::chain().tip();
    assert_eq!(planned, Some((tip.height, tip.hash, 0)));
}
