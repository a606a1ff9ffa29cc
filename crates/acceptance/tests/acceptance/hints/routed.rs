//! Rebuilds with hints and without undo data make the undo data above the hints' last block, and that of the
//! last 288 blocks in any case: no undo file and no row about undo data is needed.

use acceptance::prelude::*;
use acceptance::{
    hinted,
    undo::{Expected, UndoDamage, assert_complete, assert_complete_from, rev_bytes, with_undo},
};
use engine::Matching;
use hinted::{AGGREGATES, Truth, bury, file_in, with_hints, with_join_fallback, without_undo};
use hints::HintFormat;

/// Number of last blocks that have undo data in any case.
const LAST: u32 = 288;

/// A chain that is long enough for hints to be used, with spends up to its end.
static CHAIN: LazyLock<Chain> =
    LazyLock::new(|| Chain::generate(&ChainSpec { blocks: Some(640), ..ChainSpec::new(41, 900_000) }));
static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(&CHAIN));
static EXPECTED: LazyLock<Expected> = LazyLock::new(|| Expected::of(&CHAIN));

fn tip() -> u32 {
    CHAIN.tip().height
}

/// A datadir of the chain whose blocks are buried, and a folder for hints.
struct Case {
    datadir: acceptance::Case,
    files: TempDir,
}

/// What is missing of the undo data.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Missing {
    /// All files.
    Files,
    /// All files and all rows.
    All,
    /// Every second file.
    Half,
    /// Nothing is missing.
    Nothing,
}

impl Case {
    fn new(missing: Missing) -> Self {
        static TEMPLATE: LazyLock<Template> = LazyLock::new(|| {
            Template::laid_out(&CHAIN, &Layout { file_size: 128 << 10, ..acceptance::layout() })
        });
        let datadir = TEMPLATE.case();
        bury(&datadir.blocks("index"));
        let damage = match missing {
            Missing::Files | Missing::All => UndoDamage::AllGone,
            Missing::Half => UndoDamage::HalfGone,
            Missing::Nothing => UndoDamage::None,
        };
        damage.apply(datadir.root(), Network::Regtest);
        if missing == Missing::All {
            datadir.edit_index(|index| {
                for entry in &mut index.entries {
                    (entry.undo_pos, entry.status.0) = (None, entry.status.0 & !BlockStatus::HAVE_UNDO);
                }
                index.files.iter_mut().for_each(|info| info.undo_size = 0);
            });
        }
        Self { datadir, files: TempDir::new().unwrap() }
    }

    fn hints(&self, end: u32) -> PathBuf {
        let path = file_in(&self.files, &format!("hints-{end}"));
        TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(end));
        path
    }

    /// Options with hints up to `end`, as a user gives them.
    fn options(&self, end: u32) -> ReindexOptions {
        self.options_with(self.hints(end))
    }

    fn options_with(&self, hints: PathBuf) -> ReindexOptions {
        let options = with_hints(&self.datadir.options(), &hints, AGGREGATES[1]);
        changed(without_undo(&options, TRUTH.hash(tip())), |it| it.chain.hooks.undo_blocks = LAST)
    }

    /// Asserts that a run left the coins of the chain, and the undo data from `from` on.
    fn assert_done(&self, report: &ReindexReport, from: u32, what: &str) {
        assert_eq!(report.hash_serialized_3, EXPECTED.hash_serialized_3, "{what}");
        assert_eq!(report.counts.inputs, CHAIN.totals.inputs, "{what}");
        assert_complete_from(self.datadir.root(), Network::Regtest, &EXPECTED, Height(from), what);
    }
}

/// Hints that end anywhere, whatever is missing.
#[test]
fn no_undo_data_is_needed_and_that_of_the_last_blocks_is_made() {
    let ends = [tip(), tip() - 10, tip() - LAST, tip() - LAST - 1, tip() - 500, 1];
    for (number, &end) in ends.iter().enumerate() {
        for (turn, missing) in
            [Missing::All, Missing::Files, Missing::Half, Missing::Nothing].into_iter().enumerate()
        {
            let what = format!("hints up to {end} of {}, {missing:?} missing", tip());
            let case = Case::new(missing);
            let options = changed(with_threads(&case.options(end), THREADS[(number + turn) % 3]), |it| {
                it.chain.hooks.join_bytes = (turn % 2 == number % 2).then_some(1);
            });
            let last_hinted = end.min(tip() - LAST);
            let report = run(&options).unwrap_or_else(|error| panic!("{what}: {error}"));
            case.assert_done(&report, last_hinted + 1, &what);
            assert_eq!(report.hints.map(|hints| hints.height), Some(Height(last_hinted)), "{what}");
            let lacking = match missing {
                Missing::Nothing => 0,
                Missing::Half => report.undo.as_ref().unwrap().blocks,
                _ => tip() - last_hinted,
            };
            assert_eq!(report.undo.unwrap().blocks, lacking, "{what}");
            let index = case.datadir.index();
            let main: Vec<_> = CHAIN.main().map(|block| block.hash).collect();
            for entry in index.entries.iter().filter(|entry| main.contains(&entry.hash)) {
                let was_made = entry.height.0 > last_hinted;
                let has_undo = was_made || missing == Missing::Nothing && entry.height.0 > 0;
                if missing != Missing::Half {
                    assert_eq!(entry.status.has_undo(), has_undo, "{what}: {}", entry.height);
                }
            }
            // What was made serves a run that makes nothing.
            let again = run(&options).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            assert_eq!(again.undo.unwrap().blocks, 0, "{what}, again");
            case.assert_done(&ReindexReport { undo: None, ..again }, last_hinted + 1, &what);
        }
    }
}

/// The same files with any number of threads, any memory, and with all undo data above the hints made again.
#[test]
fn the_result_does_not_depend_on_threads_and_memory() {
    let mut first = None;
    for (threads, join_bytes) in [(1, None), (2, Some(1)), (8, Some(1)), (8, None)] {
        for undo in [UndoPolicy::Auto, UndoPolicy::Make] {
            let what = format!("{threads} threads, join of {join_bytes:?}, {undo:?}");
            let case = Case::new(Missing::Files);
            let options = with_undo(&with_threads(&case.options(tip()), threads), undo);
            let report = run(&changed(options, |it| it.chain.hooks.join_bytes = join_bytes)).unwrap();
            case.assert_done(&report, tip() - LAST + 1, &what);
            let result = (rev_bytes(&case.datadir.blocks("")), case.datadir.index());
            assert!(*first.get_or_insert_with(|| result.clone()) == result, "{what}");
        }
    }
}

#[test]
fn an_interrupted_run_makes_the_same_files() {
    let setup = |undo| {
        let case = Case::new(Missing::Files);
        let options = with_undo(&bounded(&case.options(tip() - 10)), undo);
        (case, options)
    };
    for undo in [UndoPolicy::Auto, UndoPolicy::Make] {
        let (case, options) = setup(undo);
        let count = run_until(&options, u64::MAX).1;
        let whole = (rev_bytes(&case.datadir.blocks("")), case.datadir.index());
        let (mut resumed, mut late) = (0, 0);
        for at in (20..count).step_by(count as usize / 10) {
            let (case, options) = setup(undo);
            let what = format!("operation {at} of {count}, {undo:?}");
            let report = run_until(&options, at).0.or_else(|error| {
                assert_eq!(error.kind, ErrorKind::Interrupted, "{what}: {error}");
                run(&options)
            });
            let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
            resumed += u32::from(report.resumed > 0);
            late += u32::from(report.resumed > tip() - LAST);
            case.assert_done(&report, tip() - LAST + 1, &what);
            assert!(report.hints.is_some(), "{what}");
            let result = (rev_bytes(&case.datadir.blocks("")), case.datadir.index());
            assert!(result == whole, "{what}: other files");
        }
        assert!(resumed > 4 && late > 1, "{resumed} runs were resumed, {late} when undo data was made");
    }
}

/// A wrong hint below the blocks whose undo data is made is found; the run without hints needs no undo data
/// either, and makes all of it.
#[test]
fn wrong_hints_are_found_and_the_join_makes_all_undo_data() {
    for (number, end) in [tip(), tip() - 10, tip() - 400].into_iter().enumerate() {
        let hints = TRUTH.hints(end);
        let last_hinted = end.min(tip() - LAST) as usize;
        // What is spent above is in the join anyway.
        let exists = TRUTH.hints(last_hinted as u32);
        let called_spent = (1..=last_hinted).rev().find(|&height| !hints[height].is_empty()).unwrap();
        let called_unspent = (1..=last_hinted)
            .rev()
            .find(|&height| TRUTH.0[height].outputs[0].1 && !exists[height].contains(&0))
            .unwrap();
        for is_spent in [true, false] {
            let what = format!("hints up to {end}, a spent output called unspent: {is_spent}");
            let case = Case::new(Missing::Files);
            let mut wrong = hints.clone();
            if is_spent {
                wrong[called_unspent].insert(0, 0);
            } else {
                wrong[called_spent].pop();
            }
            let path = file_in(&case.files, "wrong");
            TRUTH.write(&path, HintFormat::Peregrine, &wrong);
            let options = changed(with_threads(&case.options_with(path), THREADS[number]), |it| {
                it.chain.hooks.join_bytes = is_spent.then_some(1);
            });
            acceptance::refused(&options, ErrorKind::Hints);
            assert_eq!(leftovers(case.datadir.root()), [] as [PathBuf; 0], "{what}");
            let report = run(&with_join_fallback(&options)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((report.hints, report.matching), (None, Matching::Parallel), "{what}");
            assert_eq!(report.undo.as_ref().unwrap().blocks, tip(), "{what}");
            assert_eq!(report.hash_serialized_3, EXPECTED.hash_serialized_3, "{what}");
            assert_complete(case.datadir.root(), Network::Regtest, &EXPECTED, &what);
        }
    }
}

/// Hints of the blocks whose undo data is made are not used, so that they may be wrong.
#[test]
fn hints_of_the_last_blocks_are_not_used() {
    let mut hints = TRUTH.hints(tip());
    hints.iter_mut().skip((tip() - LAST) as usize + 1).for_each(Vec::clear);
    let case = Case::new(Missing::All);
    let path = file_in(&case.files, "hints");
    TRUTH.write(&path, HintFormat::Peregrine, &hints);
    let report = run(&case.options_with(path)).unwrap();
    case.assert_done(&report, tip() - LAST + 1, "no hints for the last blocks");
}

/// A chain of at most 288 blocks is rebuilt without hints, and without trusting anybody.
#[test]
fn a_short_chain_needs_neither_hints_nor_an_assumed_valid_block() {
    let (chain, case, files) = (acceptance::chain(), acceptance::Case::new(), TempDir::new().unwrap());
    let truth = Truth::of(chain);
    let path = file_in(&files, "hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(chain.tip().height));
    UndoDamage::AllGone.apply(case.root(), Network::Regtest);
    let options = without_undo(&with_hints(&case.options(), &path, AGGREGATES[0]), truth.hash(1));
    let report = run(&changed(options, |it| {
        it.chain.hooks.undo_blocks = LAST;
        it.chain.assume_valid = AssumeValid::Off;
    }))
    .unwrap();
    assert_eq!(report.hints.map(|hints| hints.height), Some(Height(0)));
    assert_eq!(report.hash_serialized_3, Expected::of(chain).hash_serialized_3);
    assert_complete(case.root(), Network::Regtest, &Expected::of(chain), "a short chain");
}

/// Where claims turn out false, all undo data is made, and the hints are not needed.
#[test]
fn false_undo_data_above_the_hints_is_replaced() {
    let case = Case::new(Missing::Nothing);
    UndoDamage::FalseClaim.apply(case.datadir.root(), Network::Regtest);
    let report = run(&case.options(tip() - 400)).unwrap();
    assert_eq!(report.hints, None);
    case.assert_done(&report, 1, "false claims");
    assert_complete(case.datadir.root(), Network::Regtest, &EXPECTED, "false claims");
}
