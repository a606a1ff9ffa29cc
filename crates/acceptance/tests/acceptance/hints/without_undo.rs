//! Rebuilds with hints and without undo data need none up to the hints' last block: not the rows of the
//! index, not the records, not the files. Above it, and for the last blocks in any case, undo data is made;
//! if none may be made, it must be there above the hints.

use ::indexes::IndexKind::{CoinStats, Tx, TxoSpender};
use acceptance::{hinted::BURIAL, indexes, prelude::*, undo::assert_complete_from};

/// Number of last blocks that have undo data in any case. A node keeps 288.
const LAST: u32 = 14;

static EXPECTED: LazyLock<Expected> = LazyLock::new(|| Expected::of(chain()));

/// What is missing of the undo data.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Missing {
    Nothing,
    /// Every second file.
    Half,
    Files,
    /// All files and all rows.
    All,
    /// The index records none up to a height, as a node that synced without undo data leaves it.
    Rows(u32),
    /// The records are overwritten up to a height.
    Records(u32),
}

/// A datadir whose blocks are buried, and hints up to a height, of which those of the last blocks are not
/// used. The hints are true if none are given.
fn lacking(missing: Missing, end: u32, hints: Option<&Hints>) -> (Case, TempDir, Source) {
    let (case, files) = (buried(), TempDir::new().unwrap());
    match missing {
        Missing::Nothing => {}
        Missing::Half => UndoDamage::HalfGone.apply(case.root(), Network::Regtest),
        Missing::Files | Missing::All => UndoDamage::AllGone.apply(case.root(), Network::Regtest),
        Missing::Rows(to) => case.forget_undo(|entry| entry.height.0 <= to),
        Missing::Records(to) => case.spoil_undo(|entry| entry.height.0 <= to),
    }
    if missing == Missing::All {
        case.forget_undo(|_| true);
        case.edit_index(|index| {
            index.files.iter_mut().for_each(|info| info.undo_size = 0);
            // As a download leaves them.
            index.entries.iter_mut().for_each(|entry| entry.status = entry.status.not_connected());
        });
    }
    let mut source = Source::new(case.options(), TIP);
    let path = files.path().join("hints");
    TRUTH.write(&path, HintFormat::Peregrine, hints.unwrap_or(&TRUTH.hints(end)));
    source.hint_by(path, HintFormat::Peregrine, Some(TRUTH.hash(TIP)));
    source.undo_blocks = LAST;
    (case, files, source)
}

/// The plainest options, with which undo data is made.
fn making(source: &Source) -> ReindexOptions {
    Way::hinted(false).next().unwrap().options(source)
}

/// Asserts that a run left the coins of the chain, and the undo data from `from` on.
fn assert_done(case: &Case, report: &ReindexReport, from: u32, what: &str) {
    assert_eq!(report.hash_serialized_3, EXPECTED.hash_serialized_3, "{what}");
    assert_eq!(report.counts.inputs, chain().totals.inputs, "{what}");
    assert_complete_from(case.root(), Network::Regtest, &EXPECTED, Height(from), what);
}

/// Hints that end anywhere, whatever is missing: the same files in every way, also after interrupts.
#[test]
fn undo_data_of_the_last_blocks_is_made_and_no_other_is_needed() {
    let (mut resumed, mut late) = (0, 0);
    for (number, end) in [TIP, TIP - 5, TIP - LAST, TIP - LAST - 1, TIP - 35, 1].into_iter().enumerate() {
        let last_hinted = end.min(TIP - LAST);
        for missing in [Missing::All, Missing::Files, Missing::Half, Missing::Nothing] {
            let mut first = None;
            for (turn, way) in Way::hinted(false).enumerate() {
                let (case, _files, source) = lacking(missing, end, None);
                let undo = [UndoPolicy::Auto, UndoPolicy::Make][(number + turn / 2) % 2];
                let what = format!("hints up to {end} of {TIP}, {missing:?} missing, {undo:?}, {way:?}");
                let options = with_undo(&way.options(&source), undo);
                let report = way.run(&options).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_done(&case, &report, last_hinted + 1, &what);
                assert_eq!(report.hints.map(|hints| hints.height), Some(Height(last_hinted)), "{what}");
                resumed += u32::from(report.resumed > 0);
                late += u32::from(report.resumed > TIP - LAST);
                let made = report.undo.unwrap().blocks;
                match missing {
                    Missing::Nothing => assert_eq!(made, 0, "{what}"),
                    Missing::Half => assert!(made > 0 || end == TIP, "{what}"),
                    _ => assert_eq!(made, TIP - last_hinted, "{what}"),
                }
                let index = case.index();
                for block in chain().main().filter(|_| missing != Missing::Half) {
                    let entry = index.entries.iter().find(|entry| entry.hash == block.hash).unwrap();
                    let has_undo =
                        block.height > last_hinted || missing == Missing::Nothing && block.height > 0;
                    assert_eq!(entry.status.has_undo(), has_undo, "{what}: {}", entry.height);
                    assert!(entry.status.was_connected() || block.height == 0, "{what}: {}", entry.height);
                }
                let result = (files_of(&case.blocks(""), "rev"), index);
                assert!(*first.get_or_insert_with(|| result.clone()) == result, "{what}: other files");
                // What was made serves a run that makes nothing.
                let again = run(&options).unwrap_or_else(|error| panic!("{what}, again: {error}"));
                assert_eq!(again.undo.as_ref().unwrap().blocks, 0, "{what}, again");
                assert_done(&case, &again, last_hinted + 1, &what);
            }
        }
    }
    assert!(resumed > 20 && late > 4, "{resumed} runs were resumed, {late} when undo data was made");
}

/// bitcoind did not start with them, since it continues them from undo data.
#[test]
fn indexes_that_need_undo_data_which_stays_missing_are_refused() {
    let (case, _files, source) = lacking(Missing::Nothing, TIP, None);
    run(&lowered(case.options(), 60)).unwrap();
    indexes::make(&FaultDisk::healthy(), &indexes::of_case(&case, TxForm::ByTxid)).unwrap();
    case.forget_undo(|entry| entry.height.0 <= 100);
    let options = making(&source);
    let words = ["blockfilter: it is made from undo data", "of block 60 ", "coinstatsindex: it is "];
    assert_offers(&refused(&options, ErrorKind::Usage, &words), &[Remedy::SetIndexesAside]);
    let set_aside = ReindexOptions { set_aside_indexes: SetAsideIndexes::Any, ..options.clone() };
    let wanting = |options: &ReindexOptions, kind| {
        changed(options.clone(), |it| it.hints.as_mut().unwrap().wanted_indexes = vec![kind])
    };
    let wanted = |block| ["coinstatsindex is turned on in bitcoind's settings", block];
    let error = refused(&wanting(&set_aside, CoinStats), ErrorKind::Usage, &wanted("of block 60 "));
    assert_offers(&error, &[Remedy::WithoutHints]);
    run(&set_aside).unwrap();
    let is_there = |kind: &IndexKind| kind.is_in(&RealDisk, &case.net("")).unwrap();
    assert_eq!(IndexKind::ALL.into_iter().filter(is_there).collect::<Vec<_>>(), [Tx, TxoSpender]);
    refused(&wanting(&options, CoinStats), ErrorKind::Usage, &wanted("of block 1 "));
    assert_eq!(run(&wanting(&options, Tx)).unwrap().height, Height(TIP));
}

/// A wrong hint below the blocks whose undo data is made is found; the run without hints needs no undo data
/// either, and makes all of it.
#[test]
fn wrong_hints_are_found_and_the_join_makes_all_undo_data() {
    for end in [TIP, TIP - 5, TIP - LAST - 1] {
        let hints = TRUTH.hints(end);
        let last_hinted = end.min(TIP - LAST) as usize;
        // What is spent above is in the join anyway.
        let exists = TRUTH.hints(last_hinted as u32);
        let called_spent = (1..=last_hinted).rev().find(|&height| !hints[height].is_empty()).unwrap();
        let spent_in = |height: usize| {
            let outputs = (0..).zip(&TRUTH.0[height].outputs);
            let mut spent = outputs.filter(|(index, output)| output.1 && !exists[height].contains(index));
            spent.next().map(|(index, _)| (height, index))
        };
        let (called_unspent, index) = (1..=last_hinted).rev().find_map(spent_in).unwrap();
        let changes: [&dyn Fn(&mut Hints); 2] = [
            &|hints| {
                hints[called_unspent].push(index);
                hints[called_unspent].sort_unstable();
            },
            &|hints| {
                hints[called_spent].pop();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let (mut wrong, what) = (hints.clone(), format!("hints up to {end}, lie {number}"));
            change(&mut wrong);
            let (case, _files, source) = lacking(Missing::Files, end, Some(&wrong));
            for way in Way::hinted(false).skip(number).step_by(2) {
                refused(&way.options(&source), ErrorKind::Hints, &[]);
                assert_eq!(leftovers(case.root()), [] as [PathBuf; 0], "{what}, {way:?}");
            }
            let report =
                run(&with_join_fallback(&making(&source))).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((report.hints, report.matching), (None, Matching::Parallel), "{what}");
            assert_eq!(report.undo.as_ref().unwrap().blocks, TIP, "{what}");
            assert_eq!(report.hash_serialized_3, EXPECTED.hash_serialized_3, "{what}");
            assert_complete(case.root(), Network::Regtest, &EXPECTED, &what);
        }
    }
}

/// Hints of the blocks whose undo data is made are not used, so that they may be wrong. A node's number of
/// last blocks is more than this chain has: it is rebuilt without hints, and without trusting anybody.
#[test]
fn hints_of_the_last_blocks_are_not_used() {
    let mut hints = TRUTH.hints(TIP);
    hints.iter_mut().skip((TIP - LAST) as usize + 1).for_each(Vec::clear);
    let (case, _files, source) = lacking(Missing::All, TIP, Some(&hints));
    let report = run(&making(&source)).unwrap();
    assert_done(&case, &report, TIP - LAST + 1, "no hints for the last blocks");
    for undo_blocks in [288, case.options().chain.hooks.undo_blocks] {
        let (case, _files, source) = lacking(Missing::Files, TIP, None);
        let report = run(&changed(making(&source), |it| {
            (it.chain.hooks.undo_blocks, it.chain.assume_valid) = (undo_blocks, AssumeValid::Off);
        }));
        let report = report.unwrap();
        assert_eq!(report.hints.as_ref().map(|hints| hints.height), Some(Height(0)));
        assert_done(&case, &report, 1, "a short chain");
    }
}

/// Where claims turn out false, all undo data is made, and the hints are not needed.
#[test]
fn false_undo_data_above_the_hints_is_replaced() {
    let (case, _files, source) = lacking(Missing::Nothing, TIP - 30, None);
    UndoDamage::FalseClaim.apply(case.root(), Network::Regtest);
    let report = run(&making(&source)).unwrap();
    assert_eq!(report.hints, None);
    assert_done(&case, &report, 1, "false claims");
}

/// The same options, but no undo data is made; to a directory of its own.
fn trusting_to(output: &TempDir, source: &Source) -> ReindexOptions {
    elsewhere(trusting(&making(source)), &output.path().join("new"))
}

/// Whether a note says that the node must not check undo data.
fn is_check_level_noted(events: &[Event]) -> bool {
    notes(events).iter().any(|note| note.contains("-checklevel"))
}

#[test]
fn no_undo_data_is_needed_up_to_the_last_block_of_the_hints() {
    for missing in [Missing::Rows(TIP), Missing::Records(TIP), Missing::Files] {
        for format in [HintFormat::Peregrine, HintFormat::TheStack] {
            let (_case, output, mut source) = lacking(missing, TIP, None);
            source.hint(&TRUTH, format, TIP, Some(TRUTH.hash(TIP)));
            let (done, events) = run_seen(&trusting_to(&output, &source));
            let report = done.unwrap_or_else(|error| panic!("{missing:?}: {error}"));
            assert_eq!((report.hash, report.hints.is_some()), (TRUTH.hash(TIP), true), "{missing:?}");
            assert_eq!(report.hash_serialized_3, EXPECTED.hash_serialized_3, "{missing:?}");
            // Records that are overwritten are not noticed.
            let is_noticed = missing != Missing::Records(TIP);
            assert_eq!(is_check_level_noted(&events), is_noticed, "{missing:?}: {events:?}");
            // With undo data, or without hints, the rebuild fails.
            let with = Way::hinted(true).next().unwrap().options(&source);
            let error = run(&with).map(|report| report.height).unwrap_err();
            assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Usage), "{missing:?}: {error}");
        }
    }
}

#[test]
fn undo_data_is_needed_above_the_last_block_of_the_hints_if_none_is_made() {
    let (model, end) = (stats_by_height(chain()), TIP - 12);
    for (missing, words) in [
        (Missing::Rows(end), &["undo data of the block is not on disk"][..]),
        (Missing::Records(end), &["no record starts here", "rev0"]),
    ] {
        for height in [TIP, end + 5] {
            let (_case, output, mut source) = lacking(missing, end, None);
            source.stop_at(height);
            let (done, events) = run_seen(&trusting_to(&output, &source));
            let report = done.unwrap_or_else(|error| panic!("{missing:?}: {error}"));
            assert_eq!(report.hash_serialized_3, model[height as usize].hash_serialized_3, "{missing:?}");
            assert!(height < TIP || !is_check_level_noted(&events), "{events:?}");
        }
        // Hints of a lower block leave some blocks without undo data.
        let (_case, output, source) = lacking(missing, end - 1, None);
        let error = run(&trusting_to(&output, &source)).map(|report| report.height).unwrap_err();
        assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(end))), "{error}");
        assert_mentions(&error, words);
    }
}

/// A scan finds no undo data, and the index that it writes has none.
#[test]
fn a_scan_works_without_undo_data_too() {
    // A chain with enough work above the hints' last block for it to be assumed valid: blocks with only a
    // coinbase.
    let long = Chain::generate(&ChainSpec { empty_tail: BURIAL as u32, ..chain().spec.clone() });
    assert_eq!(long.main().nth(TIP as usize).unwrap().hash, TRUTH.hash(TIP), "the same chain, longer");
    let (case, files) = (Case::of(datadir_of(&long)), TempDir::new().unwrap());
    // Records up to the hints' last block are overwritten, those above are intact.
    case.spoil_undo(|entry| entry.height.0 <= TIP);
    fs::remove_dir_all(case.blocks("index")).unwrap();
    let hints = files.path().join("hints");
    TRUTH.write(&hints, HintFormat::Peregrine, &TRUTH.hints(TIP));
    let options = without_undo(&with_hints(&case.scan(), &hints, AGGREGATES[0]), TRUTH.hash(TIP));
    let (done, events) = run_seen(&options);
    assert_eq!(done.unwrap().hash_serialized_3, long.model.stats().hash_serialized_3);
    assert!(!is_check_level_noted(&events), "{events:?}");
    let index = case.index();
    let with_undo = index.entries.iter().filter(|entry| entry.undo_pos.is_some()).count();
    assert_eq!(with_undo, BURIAL, "up to the hints' last block no block has undo data");
    let main: Vec<_> = long.main().map(|block| block.hash).collect();
    for entry in index.entries.iter().filter(|entry| main.contains(&entry.hash)) {
        // Core connects the genesis block without marking it.
        let is_genesis = entry.height == Height(0);
        let validity = if is_genesis { BlockStatus::VALID_TRANSACTIONS } else { BlockStatus::VALID_SCRIPTS };
        assert_eq!(entry.status.validity(), validity, "{}", entry.height);
    }
    // The new index serves a rebuild with the same hints, and its coins at the hints' last block are correct.
    let below = elsewhere(up_to(options, TIP), &files.path().join("below"));
    let report = run(&changed(below, |it| it.chain.scan = false)).unwrap();
    assert_eq!(report.hash_serialized_3, EXPECTED.hash_serialized_3);
}

/// Wrong hints, and no undo data for a rebuild without them: nothing is changed, and the error names what is
/// missing. With undo data the join succeeds, with a plan of its own.
#[test]
fn wrong_hints_cannot_be_replaced_by_a_join_without_undo_data() {
    let mut hints = TRUTH.hints(TIP);
    hints.iter_mut().rev().find(|block| !block.is_empty()).unwrap().pop();
    for missing in [Missing::Rows(TIP), Missing::Nothing] {
        let (_case, output, source) = lacking(missing, TIP, Some(&hints));
        let options = changed(trusting_to(&output, &source), |it| it.chain.hooks.undo_blocks = 0);
        assert_fails(run(&options), ErrorKind::Hints, &[]);
        match run(&with_join_fallback(&options)) {
            Ok(report) => {
                assert_eq!((report.hints, report.hash), (None, TRUTH.hash(TIP)));
                assert_eq!(missing, Missing::Nothing);
            }
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Usage), "{error}");
                assert_ne!(missing, Missing::Nothing, "{error}");
            }
        }
    }
}
