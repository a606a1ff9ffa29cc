//! Datadirs written by Bitcoin Core: every way gives the hashes that Core's `gettxoutsetinfo` printed, at
//! each recorded height, with hints that are made there too.

use acceptance::prelude::*;

/// Makes hints for the last block, which have one hint for each coin, and are found correct.
fn make_hints(source: &Source, path: &Path, format: HintFormat, coins: u64) {
    let (disk, options) = (FaultDisk::healthy(), &source.options.chain);
    let info = engine::hints::make(&disk, options, path, format, unwatched()).unwrap();
    assert_eq!((info.height, info.hints), (Height(source.height), coins), "{}", path.display());
    let check = engine::hints::check(&disk, options, path, None, unwatched()).unwrap();
    assert_eq!((check.wrong_blocks, check.first), (0, None), "{}", path.display());
}

fn take_every_way(name: &str, network: Network) {
    let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { return };
    let files = scratch();
    let tip = known.iter().max_by_key(|line| line["height"].as_u64()).unwrap();
    let height_of = |line: &serde_json::Value| line["height"].as_u64().unwrap() as u32;
    let hash_of = |line: &serde_json::Value| line["hash"].as_str().unwrap().parse::<BlockHash>().unwrap();
    let options = ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut);
    let mut source = Source::new(options, height_of(tip));
    let mut is_buried = false;
    for (number, line) in known.iter().enumerate() {
        let (height, is_tip) = (height_of(line), std::ptr::eq(line, tip));
        let format = HintFormat::ALL[number % HintFormat::ALL.len()];
        let path = files.path().join(height.to_string());
        source.stop_at(height);
        make_hints(&source, &path, format, line["txouts"].as_u64().unwrap());
        if is_tip {
            // Without undo data all blocks must be assumed valid: no such short chain has enough work.
            let options = without_undo(&with_hints(&source.options, &path, AGGREGATES[0]), hash_of(tip));
            let error = refused(&options, ErrorKind::Usage, &["scripts cannot be checked without undo data"]);
            assert_offers(&error, &[Remedy::LaterAssumedBlock, Remedy::UseUndoData]);
            // Regtest has little work, so that headers can bury its blocks.
            if network == Network::Regtest {
                bury(&dir.path().join("regtest/blocks/index"));
                is_buried = true;
            }
            // Core's undo data is the same as what is made.
            source.options.chain.undo = UndoPolicy::Make;
        }
        source.hint_by(path, format, is_buried.then(|| hash_of(line)));
        let stride = if is_tip { 2 } else { 9 };
        let ways = source.ways().skip(number % stride).step_by(stride);
        let expect = |source: &Source, line: &serde_json::Value, ways: &mut dyn Iterator<Item = _>| {
            source.take(ways, |way, done| {
                let what = format!("{name} at {}, hints of {height} in {format}, {way:?}", source.height);
                let found = done.unwrap_or_else(|error| panic!("{what}: {error}"));
                let stats = &found.stats;
                assert_eq!(stats.best_block, hash_of(line), "{what}");
                assert_eq!(hex_reversed(&stats.hash_serialized_3), line["hash_serialized_3"], "{what}");
                assert_eq!(stats.muhash.as_ref().map(hex_reversed).unwrap(), line["muhash"], "{what}");
                assert_eq!(stats.bogosize, line["bogosize"].as_u64().unwrap(), "{what}");
                assert_eq!(stats.txouts, line["txouts"].as_u64().unwrap(), "{what}");
                // A scan writes an index too, from which the height is known.
                assert_eq!(stats.height, way.scan.then_some(Height(source.height)), "{what}");
                let Some(report) = found.report else { return };
                assert_eq!(report.matching, way.matching(), "{what}");
                assert!(report.undo.is_none_or(|undo| undo.blocks == 0), "{what}: other undo data");
            });
        };
        expect(&source, line, &mut { ways });
        // Above the hints, the join goes on.
        source.stop_at(height_of(tip));
        let hinted = source.ways().filter(|way| matches!(way.means, Means::Hints { .. }));
        expect(&source, tip, &mut hinted.skip(number % 4).take(1));
    }
    // Reading Core's own chainstate gives the same values.
    let stats = stats(dir.path(), network).unwrap();
    assert_eq!(hex_reversed(&stats.hash_serialized_3), tip["hash_serialized_3"], "{name}");
    assert_eq!(stats.height, Some(Height(height_of(tip))));
}

/// In `regtest-siblings`, Core's `feature_taproot.py` leaves siblings at many heights that are invalid and
/// were never connected, and that spend the same coins as the blocks of the chain.
#[test]
fn every_way_gives_cores_hashes() {
    each_operation(1, |number| {
        let Some(&(name, network)) = CORE_DATADIRS.get(number as usize) else { return true };
        take_every_way(name, network);
        false
    });
}
