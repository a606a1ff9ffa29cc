//! Hints that lie: a run by them says that they, or the files, are wrong, whatever the sum, the threads and
//! the variant, and the old chainstate stays. With the join at hand it names the first wrong one.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod hinted;

use common::{Case, THREADS, assert_same_tree, refused, run, says, tree, with_threads};
use disk::hints::HintFormat;
use engine::{ErrorKind, ReindexOptions};
use hinted::{
    AGGREGATES, Hints, Truth, bury, by, file_in, often, or_join, run_until, run_with_notes, without_undo,
};
use std::{path::PathBuf, sync::LazyLock};
use tempfile::TempDir;
use testkit::rng::Rng;

/// How many lies of a kind are tried.
const SEEDS: u64 = 100;

static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(common::chain()));

fn tip() -> u32 {
    common::chain().tip().height
}

/// What turns hints into wrong ones.
type Lie = fn(&mut Hints, &mut Rng);

/// All outputs that can be spent, as height and index, that are hinted unspent or are not.
fn places(hints: &Hints, unspent: bool) -> Vec<(usize, u32)> {
    let of_block = |(height, block): (usize, &hinted::Block)| {
        let hinted = |index: &u32| hints[height].contains(index) == unspent;
        let spendable = (0..).zip(&block.outputs).filter(|(_, output)| output.1).map(|(index, _)| index);
        spendable.filter(hinted).map(|index| (height, index)).collect::<Vec<_>>()
    };
    TRUTH.0.iter().enumerate().take(hints.len()).skip(1).flat_map(of_block).collect()
}

fn flip(hints: &mut Hints, (height, index): (usize, u32)) {
    match hints[height].binary_search(&index) {
        Ok(at) => drop(hints[height].remove(at)),
        Err(at) => hints[height].insert(at, index),
    }
}

fn flip_any(hints: &mut Hints, rng: &mut Rng, unspent: bool) {
    let places = places(hints, unspent);
    flip(hints, places[rng.below(places.len() as u64) as usize]);
}

fn spent_called_unspent(hints: &mut Hints, rng: &mut Rng) {
    flip_any(hints, rng, false);
}

fn unspent_called_spent(hints: &mut Hints, rng: &mut Rng) {
    flip_any(hints, rng, true);
}

/// As many hints as before.
fn two_of_each(hints: &mut Hints, rng: &mut Rng) {
    for places in [true, false].map(|unspent| places(hints, unspent)) {
        let first = rng.below(places.len() as u64) as usize;
        let second = (first + 1 + rng.below(places.len() as u64 - 1) as usize) % places.len();
        flip(hints, places[first]);
        flip(hints, places[second]);
    }
}

/// Neighbours among outputs, of the same transaction or not, of which `first` tells whether the first is
/// hinted unspent and the second spent, or the reverse.
fn neighbours(hints: &Hints, same_tx: bool, first: bool) -> Vec<(usize, u32)> {
    let outputs = |height: usize| &TRUTH.0[height].outputs;
    let is = |height: usize, index: u32| hints[height].contains(&index);
    let fits = |&(height, index): &(usize, u32)| {
        let next = outputs(height).get(index as usize + 1);
        next.is_some_and(|(outpoint, spendable)| {
            let same = outputs(height)[index as usize].0.txid == outpoint.txid;
            *spendable && is(height, index + 1) != first && (same || !same_tx)
        })
    };
    places(hints, first).into_iter().filter(fits).collect()
}

/// In one transaction a hint moves to the next output, in another to the one before: txids and the sum of all
/// output numbers stay.
fn two_opposite_vout_swaps(hints: &mut Hints, rng: &mut Rng) {
    let (up, mut down) = (neighbours(hints, true, true), neighbours(hints, true, false));
    let (height, a) = up[rng.below(up.len() as u64) as usize];
    let txid = |(height, index): (usize, u32)| TRUTH.0[height].outputs[index as usize].0.txid;
    down.retain(|&place| txid(place) != txid((height, a)));
    let (other, b) = down[rng.below(down.len() as u64) as usize];
    for place in [(height, a), (height, a + 1), (other, b), (other, b + 1)] {
        flip(hints, place);
    }
}

/// Two hints of one block move to their neighbours, one up and one down: number and sum of indices stay.
fn two_opposite_moves_in_a_block(hints: &mut Hints, rng: &mut Rng) {
    let (up, down) = (neighbours(hints, false, true), neighbours(hints, false, false));
    let apart = |a: u32, b: u32| a.abs_diff(b) > 1;
    let pairs: Vec<_> = up
        .iter()
        .flat_map(|&a| down.iter().filter(move |b| b.0 == a.0 && apart(a.1, b.1)).map(move |&b| (a, b)))
        .collect();
    let ((height, a), (_, b)) = pairs[rng.below(pairs.len() as u64) as usize];
    for index in [a, a + 1, b, b + 1] {
        flip(hints, (height, index));
    }
}

const LIES: &[(&str, Lie)] = &[
    ("spent called unspent", spent_called_unspent),
    ("unspent called spent", unspent_called_spent),
    ("two of each", two_of_each),
    ("two opposite vout swaps", two_opposite_vout_swaps),
    ("two opposite moves in a block", two_opposite_moves_in_a_block),
];

/// Hints with a lie, and the same that are true.
fn lying(what: &str, lie: Lie, seed: u64) -> (Hints, Hints) {
    let mut rng = Rng::new(seed, what);
    // Of the last block, and of some lower ones.
    let height = tip() - if seed.is_multiple_of(4) { rng.below(12) as u32 } else { 0 };
    let truth = TRUTH.hints(height);
    let mut hints = truth.clone();
    lie(&mut hints, &mut rng);
    assert_ne!(hints, truth, "{what} {seed}: a lie that is true");
    (hints, truth)
}

fn write(files: &TempDir, hints: &Hints) -> PathBuf {
    let path = file_in(files, "hints");
    let _ = std::fs::remove_file(&path);
    TRUTH.write(&path, HintFormat::Peregrine, hints);
    path
}

/// Both variants of a run by hints; the seed chooses sum, threads and memory.
fn both(case: &Case, path: &std::path::Path, seed: u64) -> [ReindexOptions; 2] {
    let way = seed as usize;
    let join_bytes = seed.is_multiple_of(7).then_some(1);
    let options = ReindexOptions { join_bytes, ..with_threads(&case.options(), THREADS[way / 3 % 3]) };
    let with = by(&options, path, AGGREGATES[way % 3]);
    [without_undo(&with, TRUTH.hash(tip())), with]
}

fn buried() -> Case {
    let case = Case::new();
    bury(&case.blocks("index"));
    case
}

/// The lies of a kind are all caught, in both variants.
fn all_caught((what, lie): (&str, Lie)) {
    let (case, files) = (buried(), TempDir::new().unwrap());
    for seed in 0..SEEDS {
        let (hints, _) = lying(what, lie, seed);
        let path = write(&files, &hints);
        for options in both(&case, &path, seed) {
            let error = refused(&options, ErrorKind::Hints);
            says(&error, &["the hints, or the block or undo files, are wrong", "--on-hint-failure join"]);
            assert_eq!(error.file.as_ref(), Some(&path), "{error}");
            assert!(error.core.is_none() && error.rule.is_none(), "no verdict on the chain: {error}");
        }
    }
}

#[test]
fn a_spent_output_called_unspent_is_caught() {
    all_caught(LIES[0]);
}

#[test]
fn an_unspent_output_called_spent_is_caught() {
    all_caught(LIES[1]);
}

#[test]
fn two_of_each_are_caught() {
    all_caught(LIES[2]);
}

#[test]
fn two_opposite_vout_swaps_are_caught() {
    all_caught(LIES[3]);
}

#[test]
fn two_opposite_moves_in_a_block_are_caught() {
    all_caught(LIES[4]);
}

/// The first hint that differs, as it is named: among the outputs that can be spent.
fn first_wrong(hints: &Hints, truth: &Hints) -> String {
    let height = (0..truth.len()).find(|&height| hints[height] != truth[height]).unwrap();
    let block = &TRUTH.0[height];
    let index = (0..).find(|index| hints[height].contains(index) != truth[height].contains(index)).unwrap();
    let number = block.outputs[..index as usize].iter().filter(|output| output.1).count();
    let (said, is) = if hints[height].contains(&index) { ("unspent", "spent") } else { ("spent", "unspent") };
    let hash = block.hash;
    format!("output {number} of the block at height {height} ({hash}) is hinted {said}, but is {is}")
}

/// With `--on-hint-failure join` the run ends well, and names what was wrong.
#[test]
fn the_join_names_the_first_wrong_hint_and_rebuilds() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let model = common::chain().model.stats();
    for seed in 0..SEEDS {
        let (what, lie) = LIES[seed as usize % LIES.len()];
        let (hints, truth) = lying(what, lie, seed);
        let path = write(&files, &hints);
        let output = TempDir::new().unwrap();
        let options = or_join(&both(&case, &path, seed)[seed as usize / 5 % 2]);
        let options = ReindexOptions { output: Some(output.path().to_owned()), ..options };
        let (done, notes) = run_with_notes(&options);
        let report = done.unwrap_or_else(|error| panic!("{what} {seed}: {error}"));
        assert_eq!(report.hash_serialized_3, model.hash_serialized_3, "{what} {seed}");
        assert_eq!((report.matching, report.hints), ("parallel", None), "{what} {seed}");
        let expected =
            format!("the first wrong hint: {}; rebuilding without hints", first_wrong(&hints, &truth));
        assert!(notes.contains(&expected), "{what} {seed}: {expected:?} is not in {notes:?}");
        let check = engine::check_hints(
            &testkit::fault::FaultDisk::healthy(),
            &case.options(),
            &path,
            None,
            &|_| {},
            &std::sync::atomic::AtomicBool::new(false),
        );
        let check = check.unwrap();
        let wrong = hints.iter().zip(&truth).filter(|(hints, truth)| hints != truth).count();
        assert_eq!(check.wrong_blocks, wrong as u64, "{what} {seed}");
        assert_eq!(check.first.unwrap().to_string(), first_wrong(&hints, &truth), "{what} {seed}");
    }
}

/// A lie is not forgotten when the run is cut short, and what such a run has left is of no further use.
#[test]
fn lies_outlive_interruptions() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let before = tree(case.root());
    let mut resumed = 0;
    for seed in 0..20 {
        let (what, lie) = LIES[seed as usize % LIES.len()];
        let path = write(&files, &lying(what, lie, seed).0);
        for options in both(&case, &path, seed) {
            let options = often(&options);
            let mut stops = 0;
            let error = loop {
                stops += 1;
                let error = run_until(&options, 5 + 3 * stops).map(|report| report.height).unwrap_err();
                if error.kind != ErrorKind::Interrupted {
                    break error;
                }
                assert!(stops < 200, "no end");
            };
            assert_eq!(error.kind, ErrorKind::Hints, "{what} {seed}: {error}");
            assert_same_tree(&before, case.root(), what);
            assert!(!case.root().join("regtest/peregrine-work").exists(), "{what} {seed}");
            resumed += u32::from(stops > 1);
        }
    }
    assert!(resumed > 10, "{resumed} runs were gone on with");
    // Nothing of them is in the way of a plain run.
    assert_eq!(run(&case.options()).unwrap().resumed, 0);
}

/// Runs until there is a checkpoint.
fn leave_checkpoint(options: &ReindexOptions) {
    let manifest = options.datadir.join("regtest/peregrine-work/manifest");
    for at in 4.. {
        let done = run_until(options, at).map(|report| report.height);
        assert_eq!(done.unwrap_err().kind, ErrorKind::Interrupted);
        if manifest.exists() {
            return;
        }
        assert!(at < 100, "no checkpoint");
    }
}

#[test]
fn a_checkpoint_made_with_other_hints_is_refused() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let (ours, theirs) = (file_in(&files, "ours"), file_in(&files, "theirs"));
    TRUTH.write(&ours, HintFormat::Peregrine, &TRUTH.hints(tip()));
    TRUTH.write(&theirs, HintFormat::Peregrine, &TRUTH.hints(tip() - 1));
    let options = often(&by(&case.options(), &ours, AGGREGATES[0]));
    leave_checkpoint(&options);
    let others = [
        by(&options, &theirs, AGGREGATES[0]),
        by(&options, &ours, AGGREGATES[1]),
        without_undo(&options, TRUTH.hash(tip())),
        ReindexOptions { hints: None, ..options.clone() },
    ];
    for other in &others {
        says(&refused(other, ErrorKind::Usage), &["other options", "which hints", "--restart"]);
    }
    let report = run(&options).unwrap();
    assert_eq!(report.hash_serialized_3, common::chain().model.stats().hash_serialized_3);
    // Whoever gives --restart may go another way, and needs nothing of what is there.
    for other in others {
        leave_checkpoint(&options);
        std::fs::write(case.root().join("regtest/peregrine-work/manifest"), "damaged").unwrap();
        let error = run(&other).map(|report| report.height).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
        let report = run(&ReindexOptions { restart: true, ..other }).unwrap();
        assert_eq!(report.hash_serialized_3, common::chain().model.stats().hash_serialized_3);
    }
}
