//! Undo data by itself: what is missing or damaged is named, and made without touching anything else, also if
//! any operation fails.

use acceptance::{prelude::*, seen};
use engine::undo::{FlawedUndo, MadeUndoReport, UndoCheck};

/// Options with a folder of their own for temporary files, since other tests run at the same time.
fn chain_options(root: &Path, temporary: &TempDir) -> ChainOptions {
    let threads = NonZeroUsize::new(3).unwrap();
    ChainOptions { threads, work_dir: Some(temporary.path().to_owned()), ..options(root).chain }
}

fn check(options: &ChainOptions, scan: bool) -> UndoCheck {
    let options = ChainOptions { scan, ..options.clone() };
    engine::undo::check(&FaultDisk::healthy(), &options, unwatched()).unwrap()
}

fn make(disk: &dyn Disk, options: &ChainOptions, keep_old: bool) -> Result<MadeUndoReport, Error> {
    let options = ChainOptions { keep_old, ..options.clone() };
    engine::undo::make(disk, &options, unwatched())
}

/// A datadir with damaged records at these heights, and one that the index does not know.
fn damaged(heights: &[u32], missing: u32) -> Case {
    let case = Case::new();
    let hashes: Vec<_> = chain().main().map(|block| block.hash).collect();
    case.spoil_undo(|entry| heights.iter().any(|&height| hashes[height as usize] == entry.hash));
    case.forget_undo(|entry| hashes[missing as usize] == entry.hash);
    case
}

/// Asserts that each block of the chainstate has its undo data where the index places it.
fn assert_is_complete(case: &Case) {
    let mut expected = Expected::of(chain());
    expected.blocks.truncate(TIP as usize - 3);
    assert_complete(case.root(), Network::Regtest, &expected, "made");
}

/// All files but undo files and the block index.
fn others(case: &Case) -> Tree {
    let is_made = |path: &str| path.contains("/rev") || path.contains("/index");
    files(case.root()).into_iter().filter(|(path, _)| !is_made(&path.to_string_lossy())).collect()
}

#[test]
fn names_what_is_missing_or_damaged_and_makes_it() {
    let (case, temporary) = (damaged(&[50, 110], 70), TempDir::new().unwrap());
    let options = chain_options(case.root(), &temporary);
    assert!(check(&chain_options(Case::new().root(), &temporary), false).is_sound());
    let before = tree(case.root());
    let found = check(&options, false);
    assert_eq!(found.height.0, TIP - 3, "up to the chainstate's best block");
    assert_eq!([found.sound, found.missing, found.damaged], [found.height.0 - 3, 1, 2]);
    let mut named: Vec<FlawedUndo> = found.files.iter().flat_map(|file| file.first.clone()).collect();
    named.sort_by_key(|block| block.height);
    let named: Vec<_> = named.iter().map(|block| (block.height.0, block.is_missing)).collect();
    assert_eq!(named, [(50, false), (70, true), (110, false)]);
    assert!(!check(&options, true).is_sound());
    assert_same_tree(&before, case.root(), "a check");

    let rest = others(&case);
    let report = make(&FaultDisk::healthy(), &options, false).unwrap();
    assert_eq!((report.undo.blocks, report.undo.made.len()), (3, 0), "{:?}", report.undo);
    assert!(check(&options, false).is_sound());
    assert_is_complete(&case);
    assert!(rest == others(&case), "only undo files and the block index change");
    // It was said that they were never connected, though the block index places their undo data.
    let above = format!("3 stored blocks above height {} are not connected; bitcoind", TIP - 3);
    assert!(report.notes.iter().any(|note| note.to_string().starts_with(&above)), "{:?}", report.notes);
    let verifying = changed(trusting(&case.options()), |it| it.chain.work_dir = options.work_dir.clone());
    let report = engine::verify(&FaultDisk::healthy(), &verifying.chain, true, unwatched());
    assert_eq!(report.unwrap().against_chainstate.unwrap().differences, 0);
    // Nothing is left to do.
    let before = tree(case.root());
    assert_eq!(make(&FaultDisk::healthy(), &options, false).unwrap().undo.blocks, 0);
    assert_same_tree(&before, case.root(), "a second run");
}

/// It was called damaged, and what was made of it was compared with what is there.
#[test]
fn undo_data_in_a_bad_sector_is_made_anew() {
    let (case, temporary) = (Case::new(), TempDir::new().unwrap());
    let hit = entry(&case, 50);
    let disk = FaultDisk::healthy().with_unreadable(&rev(&case, &hit), hit.undo_pos.unwrap().0);
    let report = make(&disk, &chain_options(case.root(), &temporary), false).unwrap();
    assert_eq!(report.undo.blocks, 1);
    assert_is_complete(&case);
}

/// With enough memory, only the spent coins are looked for; without, all spends are matched. The files are
/// the same.
#[test]
fn all_undo_data_is_made_within_any_memory() {
    let mut first = None;
    for (threads, join_bytes) in [(1, None), (4, None), (4, Some(1))] {
        let (case, temporary) = (Case::new(), TempDir::new().unwrap());
        UndoDamage::AllGone.apply(case.root(), Network::Regtest);
        let rest = others(&case);
        let mut options = chain_options(case.root(), &temporary);
        options.threads = NonZeroUsize::new(threads).unwrap();
        options.hooks.join_bytes = join_bytes;
        let report = make(&FaultDisk::healthy(), &options, true).unwrap();
        assert_eq!((report.undo.blocks, report.undo.mended.len()), (TIP - 3, 0));
        assert_eq!(report.kept, [case.blocks("index.old")]);
        assert!(rest == others(&case), "only undo files and the block index change");
        // That name is taken now. The next run finds it before it reads blocks.
        let again = ChainOptions { keep_old: true, ..options.clone() };
        let (done, events) = seen(|watch| engine::undo::make(&FaultDisk::healthy(), &again, watch));
        done.map(drop).unwrap_err();
        assert_eq!(stages(&events), ["plan"]);
        fs::remove_dir_all(case.blocks("index.old")).unwrap();
        assert_is_complete(&case);
        let made = files_of(&case.blocks(""), "rev");
        assert!(*first.get_or_insert_with(|| made.clone()) == made);
    }
}

#[test]
fn a_coin_that_does_not_exist_is_named_and_nothing_is_written() {
    let missing = "bad-txns-inputs-missingorspent";
    let mutation = mutations().find(|mutation| mutation.core == Some(missing)).unwrap();
    let mutated = mutation.apply(&base_chain(5));
    let (dir, temporary) = (datadir_of(&mutated.chain), TempDir::new().unwrap());
    UndoDamage::AllGone.apply(dir.path(), Network::Regtest);
    let options = chain_options(dir.path(), &temporary);
    let made = || make(&FaultDisk::healthy(), &options, false);
    let error = refused_by(dir.path(), ErrorKind::Consensus, &[], made);
    assert_eq!(error.core.as_deref(), Some(missing), "{error}");
    assert!(error.block_hash == Some(mutated.block.hash) && error.txid.is_some(), "{error}");
}

/// Whatever fails: block files and chainstate are unchanged, all undo data that was sound still is, and the
/// next run completes it.
#[test]
fn any_operation_can_fail_or_be_the_last() {
    let temporary = TempDir::new().unwrap();
    let before = || damaged(&[50], 70);
    let (rest, options) = (others(&before()), |case: &Case| chain_options(case.root(), &temporary));
    let make = |disk: &FaultDisk, case: &Case| make(disk, &options(case), false).map(drop);
    let scenario = Scenario {
        before: &before,
        run: &make,
        is_whole: &|case, is_done, what| {
            stats(case.root(), Network::Regtest).unwrap();
            let UndoCheck { missing, damaged, .. } = check(&options(case), false);
            let found = (missing, damaged);
            assert!(found == (0, 0) || !is_done && found == (1, 1), "{what}: {missing} {damaged}");
        },
        succeeds: &|case, what| {
            make(&FaultDisk::healthy(), case).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert!(check(&options(case), false).is_sound() && rest == others(case), "{what}");
            assert!(leftovers(case.root()).is_empty(), "{what}");
        },
    };
    let failures = scenario.suffer(Trouble::CHANGE, 3, false);
    assert!(failures >= 10, "only {failures} operations failed a run");
    let states = scenario.explore(Crashes { stride: 2, ..Crashes::default() });
    assert!(states > 20, "{states}");
}
