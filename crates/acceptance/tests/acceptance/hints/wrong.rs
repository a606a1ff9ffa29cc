//! Wrong hints: the error reports that they, or the files, are wrong, for every aggregate, number of threads
//! and variant, and the old chainstate remains. With the join as fallback it names the first wrong one.

use acceptance::prelude::*;
use acceptance::{for_checking_hints, hinted};
use engine::Matching;
use hinted::{
    AGGREGATES, Hints, Truth, bury, file_in, run_until, with_frequent_checkpoints, with_hints,
    with_join_fallback, without_undo,
};
use hints::HintFormat;

/// Number of seeds per kind.
const SEEDS: u64 = 100;

static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(acceptance::chain()));

fn tip() -> u32 {
    acceptance::chain().tip().height
}

/// Turns hints into wrong ones.
type Change = fn(&mut Hints, &mut Rng);

/// All spendable outputs, as height and index, that are hinted unspent or are not.
fn positions(hints: &Hints, unspent: bool) -> Vec<(usize, u32)> {
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
    let positions = positions(hints, unspent);
    flip(hints, positions[rng.below(positions.len() as u64) as usize]);
}

fn spent_called_unspent(hints: &mut Hints, rng: &mut Rng) {
    flip_any(hints, rng, false);
}

fn unspent_called_spent(hints: &mut Hints, rng: &mut Rng) {
    flip_any(hints, rng, true);
}

/// The number of hints stays the same.
fn two_of_each(hints: &mut Hints, rng: &mut Rng) {
    for positions in [true, false].map(|unspent| positions(hints, unspent)) {
        let first = rng.below(positions.len() as u64) as usize;
        let second = (first + 1 + rng.below(positions.len() as u64 - 1) as usize) % positions.len();
        flip(hints, positions[first]);
        flip(hints, positions[second]);
    }
}

/// Adjacent outputs, in the same transaction or not: `first` selects those of which the first is hinted
/// unspent and the second spent, or the reverse.
fn neighbours(hints: &Hints, same_tx: bool, first: bool) -> Vec<(usize, u32)> {
    let outputs = |height: usize| &TRUTH.0[height].outputs;
    let is = |height: usize, index: u32| hints[height].contains(&index);
    let is_wanted = |&(height, index): &(usize, u32)| {
        let next = outputs(height).get(index as usize + 1);
        next.is_some_and(|(outpoint, spendable)| {
            let same = outputs(height)[index as usize].0.txid == outpoint.txid;
            *spendable && is(height, index + 1) != first && (same || !same_tx)
        })
    };
    positions(hints, first).into_iter().filter(is_wanted).collect()
}

/// In one transaction a hint moves to the next output, in another to the previous one: txids and the sum of
/// all output numbers stay the same.
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

/// Two hints of one block move to adjacent outputs, one up and one down: number and sum of indices stay the
/// same.
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

const CHANGES: &[(&str, Change)] = &[
    ("spent called unspent", spent_called_unspent),
    ("unspent called spent", unspent_called_spent),
    ("two of each", two_of_each),
    ("two opposite vout swaps", two_opposite_vout_swaps),
    ("two opposite moves in a block", two_opposite_moves_in_a_block),
];

/// Wrong hints, and the true hints of the same height.
fn wrong_and_true_hints(what: &str, change: Change, seed: u64) -> (Hints, Hints) {
    let mut rng = Rng::new(seed, what);
    // For the last block, and for some lower ones.
    let height = tip() - if seed.is_multiple_of(4) { rng.below(12) as u32 } else { 0 };
    let truth = TRUTH.hints(height);
    let mut hints = truth.clone();
    change(&mut hints, &mut rng);
    assert_ne!(hints, truth, "{what} {seed}: the hints are unchanged");
    (hints, truth)
}

fn write(files: &TempDir, hints: &Hints) -> PathBuf {
    let path = file_in(files, "hints");
    let _ = std::fs::remove_file(&path);
    TRUTH.write(&path, HintFormat::Peregrine, hints);
    path
}

/// Both variants of a rebuild with hints; the seed chooses aggregate, threads and memory.
fn both(case: &Case, path: &std::path::Path, seed: u64) -> [ReindexOptions; 2] {
    let way = seed as usize;
    let join_bytes = seed.is_multiple_of(7).then_some(1);
    let options = changed(with_threads(&case.options(), THREADS[way / 3 % 3]), |it| {
        it.chain.hooks.join_bytes = join_bytes
    });
    let with = with_hints(&options, path, AGGREGATES[way % 3]);
    [without_undo(&with, TRUTH.hash(tip())), with]
}

fn buried() -> Case {
    let case = Case::new();
    bury(&case.blocks("index"));
    case
}

/// Asserts that all wrong hints of a kind are found, in both variants.
fn assert_all_found((what, change): (&str, Change)) {
    let (case, files) = (buried(), TempDir::new().unwrap());
    for seed in 0..SEEDS {
        let (hints, _) = wrong_and_true_hints(what, change, seed);
        let path = write(&files, &hints);
        for options in both(&case, &path, seed) {
            let error = refused(&options, ErrorKind::Hints);
            assert_mentions(
                &error,
                &["the hints, or the block or undo files, are wrong", "find the first wrong hint"],
            );
            assert_eq!(error.file.as_ref(), Some(&path), "{error}");
            assert!(error.core.is_none() && error.rule.is_none(), "no violation is reported: {error}");
        }
    }
}

#[test]
fn a_spent_output_hinted_unspent_is_found() {
    assert_all_found(CHANGES[0]);
}

#[test]
fn an_unspent_output_hinted_spent_is_found() {
    assert_all_found(CHANGES[1]);
}

#[test]
fn two_of_each_are_found() {
    assert_all_found(CHANGES[2]);
}

#[test]
fn two_opposite_vout_swaps_are_found() {
    assert_all_found(CHANGES[3]);
}

#[test]
fn two_opposite_moves_in_a_block_are_found() {
    assert_all_found(CHANGES[4]);
}

/// The text of the first wrong hint; its index counts only spendable outputs.
fn first_wrong(hints: &Hints, truth: &Hints) -> String {
    let height = (0..truth.len()).find(|&height| hints[height] != truth[height]).unwrap();
    let block = &TRUTH.0[height];
    let index = (0..).find(|index| hints[height].contains(index) != truth[height].contains(index)).unwrap();
    let number = block.outputs[..index as usize].iter().filter(|output| output.1).count();
    let (hinted, is) =
        if hints[height].contains(&index) { ("unspent", "spent") } else { ("spent", "unspent") };
    let hash = block.hash;
    format!("output {number} of the block at height {height} ({hash}) is hinted {hinted}, but is {is}")
}

/// With `--on-hint-failure join` the rebuild succeeds, and names the first wrong hint.
#[test]
fn the_join_names_the_first_wrong_hint_and_rebuilds() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let model = acceptance::chain().model.stats();
    for seed in 0..SEEDS {
        let (what, change) = CHANGES[seed as usize % CHANGES.len()];
        let (hints, truth) = wrong_and_true_hints(what, change, seed);
        let path = write(&files, &hints);
        let output = TempDir::new().unwrap();
        let options = with_join_fallback(&both(&case, &path, seed)[seed as usize / 5 % 2]);
        let options = ReindexOptions { output: Some(output.path().to_owned()), ..options };
        let (done, events) = run_seen(&options);
        let report = done.unwrap_or_else(|error| panic!("{what} {seed}: {error}"));
        assert_eq!(report.hash_serialized_3, model.hash_serialized_3, "{what} {seed}");
        assert_eq!((report.matching, report.hints), (Matching::Parallel, None), "{what} {seed}");
        let expected =
            format!("the first wrong hint: {}; rebuilding without hints", first_wrong(&hints, &truth));
        assert!(
            notes(&events).contains(&expected),
            "{what} {seed}: {expected:?} is not in {:?}",
            notes(&events)
        );
        let check = engine::check_hints(
            &testkit::fault::FaultDisk::healthy(),
            &for_checking_hints(&case.options()),
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

/// Wrong hints are found after an interrupt too, and no checkpoint remains.
#[test]
fn wrong_hints_are_found_after_interrupts() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let before = tree(case.root());
    let mut resumed = 0;
    for seed in 0..20 {
        let (what, change) = CHANGES[seed as usize % CHANGES.len()];
        let path = write(&files, &wrong_and_true_hints(what, change, seed).0);
        for options in both(&case, &path, seed) {
            let options = with_frequent_checkpoints(&options);
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
    assert!(resumed > 10, "{resumed} runs were resumed");
    // None of the leftovers affects a rebuild without hints.
    assert_eq!(run(&case.options()).unwrap().resumed, 0);
}

/// Runs until there is a checkpoint.
fn leave_checkpoint(options: &ReindexOptions) {
    let manifest = options.chain.datadir.join("regtest/peregrine-work/manifest");
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
    let (path, other_path) = (file_in(&files, "hints"), file_in(&files, "other-hints"));
    TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(tip()));
    TRUTH.write(&other_path, HintFormat::Peregrine, &TRUTH.hints(tip() - 1));
    let options = with_frequent_checkpoints(&with_hints(&case.options(), &path, AGGREGATES[0]));
    leave_checkpoint(&options);
    let others = [
        with_hints(&options, &other_path, AGGREGATES[0]),
        with_hints(&options, &path, AGGREGATES[1]),
        without_undo(&options, TRUTH.hash(tip())),
        ReindexOptions { hints: None, ..options.clone() },
    ];
    for other in &others {
        let error = refused(other, ErrorKind::Usage);
        assert_mentions(&error, &["other options", "hints"]);
        acceptance::assert_offers(&error, &[Remedy::RepeatOptions, Remedy::StartOver]);
    }
    let report = run(&options).unwrap();
    assert_eq!(report.hash_serialized_3, acceptance::chain().model.stats().hash_serialized_3);
    // With --restart other options are accepted, and the old checkpoint is not needed.
    for other in others {
        leave_checkpoint(&options);
        std::fs::write(case.root().join("regtest/peregrine-work/manifest"), "damaged").unwrap();
        let error = run(&other).map(|report| report.height).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
        let report = run(&changed(other, |it| it.resume.restart = true)).unwrap();
        assert_eq!(report.hash_serialized_3, acceptance::chain().model.stats().hash_serialized_3);
    }
}
