//! Undo data that is missing or damaged is made: the same bytes as the node's, on any machine; undo data that
//! is sound stays where it is.

use acceptance::prelude::*;
use acceptance::undo::{Expected, UndoDamage, assert_mends, with_undo};
use engine::Stage;

/// Rebuilds datadirs with this damage in all ways: with both policies, in place and elsewhere, with the index
/// and without.
fn mends(damage: UndoDamage) {
    let expected = Expected::of(chain());
    for undo in [UndoPolicy::Auto, UndoPolicy::Make] {
        for (number, (scan, elsewhere)) in
            [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
        {
            let case = Case::new();
            damage.apply(case.root(), Network::Regtest);
            let output = elsewhere.then(scratch);
            let output = output.as_ref().map(|dir| dir.path().to_owned());
            let options = with_undo(&ReindexOptions { scan, output, ..case.options() }, undo);
            let threads = acceptance::THREADS[number % 3];
            let what = format!("{damage:?}, {undo:?}, scan {scan}, elsewhere {elsewhere}, {threads} threads");
            let (report, _) = assert_mends(&with_threads(&options, threads), &expected, &what);
            assert_eq!(report.ages.counts(), chain().totals.ages.by_powers_of_two(), "{what}");
        }
    }
}

/// bitcoind writes no undo data for a block whose row has a position. Rows of blocks above the last one once
/// kept theirs, at which the new file has other records: the node could not disconnect these blocks.
#[test]
fn rows_of_other_blocks_lose_positions_in_lost_files() {
    let (case, stop) = (Case::new(), chain().tip().height - 10);
    UndoDamage::AllGone.apply(case.root(), Network::Regtest);
    let options = changed(case.options(), |it| {
        (it.stop_at_height, it.accept_lower_tip) = (Some(Height(stop)), true);
    });
    assert_eq!(run(&options).unwrap().undo.unwrap().blocks, stop);
    let made: Vec<_> = chain().main().skip(1).take(stop as usize).map(|block| block.hash).collect();
    for entry in case.index().entries {
        assert_eq!(entry.status.has_undo(), made.contains(&entry.hash), "{}", entry.height);
    }
    assert_mends(&case.options(), &Expected::of(chain()), "the rest");
}

macro_rules! mends {
    ($($name:ident: $damage:ident,)*) => {$(
        #[test]
        fn $name() {
            mends(UndoDamage::$damage);
        }
    )*};
}

mends! {
    sound_undo_data_is_not_made: None,
    lost_files_are_made: AllGone,
    some_lost_files_are_made: HalfGone,
    records_with_a_wrong_bit_are_made: Flipped,
    records_beyond_the_end_of_a_file_are_made: Truncated,
    records_that_have_changed_places_are_made_or_found: Swapped,
    undo_data_of_another_chain_is_not_used: OtherChain,
    records_that_were_not_flushed_are_made: NotFlushed,
    records_without_a_position_are_made: NoPositions,
    records_beyond_the_undo_size_are_made: SmallSizes,
    records_across_the_undo_size_are_made: SizesInRecords,
    no_record_is_used_if_the_undo_size_is_zero: NoSizes,
    false_claims_are_not_used: FalseClaim,
}

/// Number of threads and memory for the join do not change a byte.
#[test]
fn the_files_are_the_same_on_every_machine() {
    let expected = Expected::of(chain());
    for (damage, undo, scan) in [
        (UndoDamage::AllGone, UndoPolicy::Auto, false),
        (UndoDamage::HalfGone, UndoPolicy::Make, false),
        (UndoDamage::Truncated, UndoPolicy::Auto, true),
    ] {
        let mut first = None;
        for threads in acceptance::THREADS {
            for join_bytes in [Some(1), Some(100 << 10), None] {
                let case = Case::new();
                damage.apply(case.root(), Network::Regtest);
                let options = changed(with_threads(&case.options(), threads), |it| {
                    it.chain.hooks.join_bytes = join_bytes;
                    it.scan = scan;
                });
                let what = format!("{damage:?}, {undo:?}, {threads} threads, {join_bytes:?} bytes");
                let (report, files) = assert_mends(&with_undo(&options, undo), &expected, &what);
                assert!(join_bytes != Some(1) || report.spilled.runs > 20, "{what}: {:?}", report.spilled);
                let first = first.get_or_insert_with(|| files.clone());
                assert!(first.1 == files.1, "{what}: rev files differ");
                assert!(first.0 == files.0, "{what}: index rows differ");
            }
        }
    }
}

/// An output elsewhere gets a block index and `rev` files too. What is there already is not replaced, and the
/// run is refused before it has done any work.
#[test]
fn an_output_with_an_index_or_undo_files_is_refused_early() {
    for (name, damage) in [
        ("blocks/index/CURRENT", UndoDamage::AllGone),
        ("blocks/index/CURRENT", UndoDamage::Flipped),
        ("blocks/rev00009.dat", UndoDamage::AllGone),
        ("blocks/rev00009.dat", UndoDamage::Flipped),
    ] {
        for scan in [false, true] {
            let (case, output) = (Case::new(), scratch());
            damage.apply(case.root(), Network::Regtest);
            let path = output.path().join("regtest").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "of another node").unwrap();
            let target = output.path().to_owned();
            let options = ReindexOptions { output: Some(target.clone()), scan, ..case.options() };
            let stages = Mutex::new(Vec::new());
            let sink = |event| {
                if let Event::Started(stage) = event {
                    stages.lock().unwrap().push(stage);
                }
            };
            let done = engine::reindex(&FaultDisk::healthy(), &options, &sink, &AtomicBool::new(false));
            let what = format!("{name}, {damage:?}, scan {scan}");
            assert_eq!(std::fs::read(&path).unwrap(), b"of another node", "{what}: {done:?}");
            let error = done.map(|report| report.height).unwrap_err();
            let early = !stages.into_inner().unwrap().contains(&Stage::Check);
            // Damage is found when records are read, and the lack of records in the index before.
            assert!(early || damage == UndoDamage::Flipped || scan, "{what}: {error}");
            assert_eq!(
                error.file.as_deref().map(|file| path.starts_with(file)),
                Some(true),
                "{what}: {error}"
            );
            if early {
                acceptance::assert_offers(&error, &[Remedy::EmptyOutput]);
                assert_eq!(acceptance::leftovers(&target), [] as [&std::path::Path; 0], "{what}");
            }
        }
    }
}

/// Core's own datadirs.
fn mends_core_datadir(name: &str, network: Network, cases: &[(UndoDamage, UndoPolicy, bool)]) {
    let Some(known) = known_answers(name) else { return };
    let known = known.iter().max_by_key(|line| line["height"].as_u64()).unwrap();
    let tip: BlockHash = known["hash"].as_str().unwrap().parse().unwrap();
    // It is printed like a block hash.
    let hash = known["hash_serialized_3"].as_str().unwrap().parse::<BlockHash>().unwrap().0;
    for &(damage, undo, scan) in cases {
        let Some(dir) = unpack_core_datadir(name) else { return };
        let expected = Expected::of_datadir(dir.path(), network, tip, hash);
        damage.apply(dir.path(), network);
        let options =
            ReindexOptions { scan, ..ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut) };
        let options = with_threads(&with_undo(&options, undo), 2);
        assert_mends(&options, &expected, &format!("{name}: {damage:?}, {undo:?}, scan {scan}"));
    }
}

#[test]
fn undo_data_of_cores_testnet3_datadir_is_mended() {
    let cases = [
        (UndoDamage::AllGone, UndoPolicy::Auto, false),
        (UndoDamage::Truncated, UndoPolicy::Auto, true),
        (UndoDamage::Flipped, UndoPolicy::Make, false),
        (UndoDamage::SizesInRecords, UndoPolicy::Auto, false),
    ];
    mends_core_datadir("testnet3", Network::Test, &cases);
}

#[test]
fn undo_data_of_cores_regtest_datadir_with_siblings_is_mended() {
    let cases = [(UndoDamage::SizesInRecords, UndoPolicy::Auto, false)];
    mends_core_datadir("regtest-siblings", Network::Regtest, &cases);
}
