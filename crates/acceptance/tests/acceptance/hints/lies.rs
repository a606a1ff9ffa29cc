//! Lies that rebuilds with hints are told: wrong hints, hints of other blocks, and invalid chains that hints
//! hide. Each gets its verdict in every way that uses hints, also after interrupts; with the join as fallback
//! the verdict is Core's, or the first wrong hint is named. No wrong chainstate results.

use acceptance::{hinted::Block, prelude::*};
use testkit::mutation::{BlockBuilder, BuilderCoin, Draft};

/// What a rebuild comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Verdict {
    /// The coins of the chain.
    Coins,
    /// The sum over coins differs: the hints or the files are wrong. No rule is said to be violated.
    Sum,
    /// The invalid block, with Core's reject string.
    Invalid(&'static str),
}

/// What is false, and what rebuilds say of it.
struct Lie {
    what: &'static str,
    tell: fn(&mut Rng) -> Told,
    without_undo: Verdict,
    with_undo: Verdict,
    /// The verdict of the join that follows unless the coins were found.
    joined: Verdict,
}

const WRONG_HINTS: Lie = Lie {
    what: "",
    tell: |rng| wrong(rng, |hints, rng| flip_any(hints, rng, false)),
    without_undo: Verdict::Sum,
    with_undo: Verdict::Sum,
    joined: Verdict::Coins,
};

const MISSING: Verdict = Verdict::Invalid("bad-txns-inputs-missingorspent");
const INFLATED: Verdict = Verdict::Invalid("bad-cb-amount");

/// Whatever the hints say, they cannot hide a spend of a missing coin; the join names it.
const MISSING_COIN: Lie = Lie { tell: |rng| missing_coin(rng, double_spend), joined: MISSING, ..WRONG_HINTS };

const HINTS: [Lie; 7] = [
    Lie { what: "a spent output called unspent", ..WRONG_HINTS },
    Lie {
        what: "an unspent output called spent",
        tell: |rng| wrong(rng, |hints, rng| flip_any(hints, rng, true)),
        ..WRONG_HINTS
    },
    Lie { what: "two of each", tell: |rng| wrong(rng, two_of_each), ..WRONG_HINTS },
    Lie { what: "two opposite vout swaps", tell: |rng| wrong(rng, two_opposite_vout_swaps), ..WRONG_HINTS },
    Lie {
        what: "two opposite moves in a block",
        tell: |rng| wrong(rng, two_opposite_moves_in_a_block),
        ..WRONG_HINTS
    },
    Lie { what: "hints of another height", tell: of_another_height, ..WRONG_HINTS },
    Lie { what: "hints of another chain", tell: of_another_chain, ..WRONG_HINTS },
];

const CHAINS: [Lie; 6] = [
    Lie { what: "a double spend", ..MISSING_COIN },
    Lie { what: "a coin that never existed", tell: |rng| missing_coin(rng, never_made), ..MISSING_COIN },
    // With undo data the rule itself detects it. Without, the supply does, and sequential validation names
    // the block.
    Lie {
        what: "an inflated coinbase",
        tell: |rng| of_chain(rng, inflated, 0),
        without_undo: INFLATED,
        with_undo: INFLATED,
        joined: INFLATED,
    },
    // That coins are created before they are spent rests on the assumed-valid block without undo data. With
    // it, a run that was interrupted and one that was not say the same.
    Lie {
        what: "a coin spent before its creation",
        tell: |rng| of_chain(rng, spent_too_early, 0),
        without_undo: Verdict::Coins,
        with_undo: MISSING,
        ..MISSING_COIN
    },
    // The hints are right, and the join above them finds it.
    Lie { what: "a double spend above the hints", tell: above_hints, ..ABOVE },
    Lie { what: "a double spend among blocks without undo data", tell: above_without_files, ..ABOVE },
];

const ABOVE: Lie = Lie { without_undo: MISSING, with_undo: MISSING, ..MISSING_COIN };

/// An example of a lie.
struct Told {
    case: Case,
    files: TempDir,
    source: Source,
    /// The model's coins, if the chain is valid.
    coins: Option<[u8; 32]>,
    /// The text of the first wrong hint, and how many blocks have wrong ones, if that is known.
    wrong: Option<(String, u64)>,
    invalid: Option<(u32, BlockHash)>,
    has_undo: bool,
}

impl Told {
    /// A datadir of a chain whose blocks are buried.
    fn new(case: Case, truth: &Truth) -> Self {
        let source = Source::new(case.options(), truth.0.len() as u32 - 1);
        let files = TempDir::new().unwrap();
        Self { case, files, source, coins: None, wrong: None, invalid: None, has_undo: true }
    }

    /// Gives it hints, which `truth` writes; the last block that is assumed valid is its tip.
    fn hint(&mut self, truth: &Truth, format: HintFormat, hints: &Hints, tip: BlockHash) {
        let path = self.files.path().join("hints");
        truth.write(&path, format, hints);
        self.source.hint_by(path, format, Some(tip));
    }

    fn assert_is(&self, verdict: Verdict, done: Result<&ReindexReport, &Error>, what: &str) {
        match (verdict, done) {
            (Verdict::Coins, Ok(report)) => {
                assert!(self.coins.is_none_or(|coins| coins == report.hash_serialized_3), "{what}");
            }
            (Verdict::Sum, Err(error)) => {
                assert_eq!(error.kind, ErrorKind::Hints, "{what}: {error}");
                let words = ["the hints, or the block or undo files, are wrong", "find the first wrong hint"];
                assert_mentions(error, &words);
                assert_eq!(error.file, Some(self.files.path().join("hints")), "{what}: {error}");
                assert!(error.core.is_none() && error.rule.is_none(), "{what}: {error}");
            }
            (Verdict::Invalid(core), Err(error)) => {
                assert_eq!(error.kind, ErrorKind::Consensus, "{what}: {error}");
                let place = error.height.map(|height| height.0).zip(error.block_hash);
                assert_eq!((place, error.core.as_deref()), (self.invalid, Some(core)), "{what}: {error}");
            }
            (_, Ok(report)) => panic!("{what}: accepted by {:?}", report.matching),
            (_, Err(error)) => panic!("{what}: {error}"),
        }
    }

    /// Asserts what the join comes to that follows one of the ways.
    fn assert_joined(&self, verdict: Verdict, way: Way, what: &str) {
        let output = scratch();
        let options = elsewhere(with_join_fallback(&way.options(&self.source)), output.path());
        let (done, events) = run_seen(&options);
        self.assert_is(verdict, done.as_ref(), what);
        if let Ok(report) = done {
            assert_eq!((report.matching, report.hints), (Matching::Parallel, None), "{what}");
        }
        let Some((first, wrong_blocks)) = &self.wrong else { return };
        // Once, it did not say that the same command would begin again with the wrong hints.
        let then = "rebuilding without hints; after an interrupt, leave out the hints";
        let (note, notes) = (format!("the first wrong hint: {first}; {then}"), notes(&events));
        assert!(notes.contains(&note), "{what}: {note:?} is not in {notes:?}");
        let (disk, options) = (FaultDisk::healthy(), self.case.options().chain);
        let path = self.files.path().join("hints");
        let check = engine::hints::check(&disk, &options, &path, None, unwatched()).unwrap();
        assert_eq!((check.wrong_blocks, check.first.unwrap().to_string()), (*wrong_blocks, first.clone()));
    }
}

impl Lie {
    /// Tells an example, in one way with undo data and in one without.
    fn tell(&self, seed: u64) {
        let told = (self.tell)(&mut Rng::new(seed, self.what));
        for (with_undo, verdict) in [(false, self.without_undo), (true, self.with_undo)] {
            if with_undo && !told.has_undo {
                continue;
            }
            let ways: Vec<Way> = Way::hinted(with_undo).collect();
            let way = ways[seed as usize % ways.len()];
            let what = format!("{} {seed}: {way:?}", self.what);
            told.source.take([way].into_iter(), |_, done| {
                let report = done.as_ref().map(|found| found.report.as_ref().unwrap());
                told.assert_is(verdict, report, &what);
                assert!(report.is_ok_and(|report| report.hints.is_some()) || verdict != Verdict::Coins);
            });
            if verdict != Verdict::Coins && seed.is_multiple_of(2) == with_undo || !told.has_undo {
                told.assert_joined(self.joined, way, &format!("{what}, with the join"));
            }
        }
    }
}

fn tell(lies: &[Lie], seeds: u64) {
    let count = lies.len() as u64;
    each_operation(1, |number| {
        if number < count * seeds {
            lies[(number % count) as usize].tell(number / count);
        }
        number >= count * seeds
    });
}

#[test]
fn wrong_hints_are_found_and_the_join_names_the_first() {
    tell(&HINTS, 16);
}

#[test]
fn an_invalid_chain_that_hints_hide_gets_cores_verdict() {
    tell(&CHAINS, 16);
}

mod long {
    #[test]
    fn many_lies_are_found() {
        super::tell(&super::HINTS, 100);
        super::tell(&super::CHAINS, 100);
    }
}

/// Hints of the sound chain, which are given instead of the true ones of a height.
fn given(truth: &Truth, format: HintFormat, hints: &Hints) -> Told {
    let mut told = Told::new(buried(), &TRUTH);
    told.coins = Some(chain().model.stats().hash_serialized_3);
    told.hint(truth, format, hints, chain().tip().hash);
    told
}

/// True hints for the last block, or for a lower one, that are changed.
fn wrong(rng: &mut Rng, change: fn(&mut Hints, &mut Rng)) -> Told {
    let below = if rng.chance(1, 4) { rng.below(12) as u32 } else { 0 };
    let truth = TRUTH.hints(TIP - below);
    let mut hints = truth.clone();
    change(&mut hints, rng);
    let wrong_blocks = hints.iter().zip(&truth).filter(|(hints, truth)| hints != truth).count();
    assert!(wrong_blocks > 0, "the hints are unchanged");
    let mut told = given(&TRUTH, HintFormat::Peregrine, &hints);
    told.wrong = Some((first_wrong(&hints, &truth), wrong_blocks as u64));
    told
}

/// The text of the first wrong hint; its index counts only spendable outputs.
fn first_wrong(hints: &Hints, truth: &Hints) -> String {
    let height = (0..truth.len()).find(|&height| hints[height] != truth[height]).unwrap();
    let Block { hash, outputs, .. } = &TRUTH.0[height];
    let index = (0..).find(|index| hints[height].contains(index) != truth[height].contains(index)).unwrap();
    let number = outputs[..index as usize].iter().filter(|output| output.1).count();
    let (hinted, is) =
        if hints[height].contains(&index) { ("unspent", "spent") } else { ("spent", "unspent") };
    format!("output {number} of the block at height {height} ({hash}) is hinted {hinted}, but is {is}")
}

/// True hints of one height, truncated or extended to the length of another.
fn of_another_height(rng: &mut Rng) -> Told {
    loop {
        let (from, to) = (110 + rng.below(30) as u32, 110 + rng.below(30) as u32);
        let mut hints = TRUTH.hints(from);
        hints.resize(to as usize + 1, Vec::new());
        if hints != TRUTH.hints(to) {
            return given(&TRUTH, HintFormat::ALL[rng.below(7) as usize], &hints);
        }
    }
}

/// Hints of another chain of the same length, in a format that does not name the chain.
fn of_another_chain(rng: &mut Rng) -> Told {
    let names_chain =
        |format: &HintFormat| matches!(format, HintFormat::Peregrine | HintFormat::SwiftSync2140);
    let formats: Vec<_> = HintFormat::ALL.into_iter().filter(|format| !names_chain(format)).collect();
    let seed = 1_000 + rng.below(1_000_000);
    let spec = ChainSpec { seed, signed: false, bytes: 60_000, ..chain().spec.clone() };
    let other = Truth::of(&Chain::generate(&spec));
    given(&other, formats[rng.below(5) as usize], &other.hints(TIP))
}

/// A file that calls all outputs unspent must not fill the disk: their space is asked for before the run.
#[test]
fn the_space_of_all_coins_that_hints_name_is_needed() {
    let case = buried();
    let needs = [false, true].map(|all| {
        let mut hints = TRUTH.hints(TIP);
        for (height, index) in positions(&hints, false) {
            if all {
                flip(&mut hints, (height, index));
            }
        }
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("hints");
        TRUTH.write(&file, HintFormat::Peregrine, &hints);
        let (done, events) = run_seen(&with_hints(&case.options(), &file, AGGREGATES[0]));
        assert_eq!(done.err().map(|error| error.kind), all.then_some(ErrorKind::Hints));
        let need = events.iter().find_map(|event| match event {
            Event::Note(Note::DiskNeed(need)) => Some(need.chainstate),
            _ => None,
        });
        (need.unwrap(), 60 * hints.iter().map(|block| block.len() as u64).sum::<u64>())
    });
    let [(truth, few), (lie, many)] = needs;
    assert!(few <= truth && truth < lie && lie == many, "{needs:?}");
}

/// Progress and disk space were those of the whole chain.
#[test]
fn the_search_for_the_first_wrong_hint_reads_the_blocks_up_to_the_hints_only() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let (file, mut hints) = (files.path().join("hints"), TRUTH.hints(TIP / 2));
    flip_any(&mut hints, &mut Rng::new(1, "search"), true);
    TRUTH.write(&file, HintFormat::Peregrine, &hints);
    let options = with_join_fallback(&with_hints(&case.options(), &file, AGGREGATES[0]));
    let (done, events) = run_seen(&options);
    let report = done.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.hints, report.matching), (None, Matching::Parallel));
    let bytes = |event: &Event| match event {
        Event::Planned { block_bytes, .. } => Some(*block_bytes),
        Event::Progress(progress) => Some(progress.bytes_total),
        _ => None,
    };
    let has_failed = |event: &&Event| matches!(event, Event::Note(Note::HintsFailed { .. }));
    let whole = events.iter().find_map(bytes).unwrap();
    let searched = events.iter().skip_while(|event| !has_failed(event)).find_map(bytes).unwrap();
    assert!(3 * searched < 2 * whole, "{searched} of {whole}");
}

/// Only `hints info` once compared the hints with their number, from which that space is calculated.
#[test]
fn hints_whose_number_is_false_are_refused() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let file = files.path().join("hints");
    TRUTH.write(&file, HintFormat::Peregrine, &TRUTH.hints(TIP));
    let mut bytes = fs::read(&file).unwrap();
    let number = bytes.len() - 52;
    bytes[number..number + 8].copy_from_slice(&1_u64.to_le_bytes());
    testkit::fuzz::reseal::hints(&mut bytes);
    fs::write(&file, bytes).unwrap();
    let options = with_hints(&case.options(), &file, AGGREGATES[0]);
    let error = refused(&options, ErrorKind::Damaged, &["do not match the footer"]);
    assert_eq!(error.file, Some(file));
}

/// All spendable outputs, as height and index, that are hinted unspent or are not.
fn positions(hints: &Hints, unspent: bool) -> Vec<(usize, u32)> {
    let of_block = |(height, block): (usize, &Block)| {
        let hinted = |index: &u32| hints[height].contains(index) == unspent;
        let spendable = (0..).zip(&block.outputs).filter(|(_, output)| output.1).map(|(index, _)| index);
        spendable.filter(hinted).map(|index| (height, index)).collect::<Vec<_>>()
    };
    TRUTH.0.iter().enumerate().take(hints.len()).skip(1).flat_map(of_block).collect()
}

fn any<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn flip(hints: &mut Hints, (height, index): (usize, u32)) {
    match hints[height].binary_search(&index) {
        Ok(at) => drop(hints[height].remove(at)),
        Err(at) => hints[height].insert(at, index),
    }
}

fn flip_any(hints: &mut Hints, rng: &mut Rng, unspent: bool) {
    let place = any(&positions(hints, unspent), rng);
    flip(hints, place);
}

/// The number of hints stays the same.
fn two_of_each(hints: &mut Hints, rng: &mut Rng) {
    for mut positions in [true, false].map(|unspent| positions(hints, unspent)) {
        for _ in 0..2 {
            flip(hints, positions.swap_remove(rng.below(positions.len() as u64) as usize));
        }
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
    let (height, a) = any(&neighbours(hints, true, true), rng);
    let txid = |(height, index): (usize, u32)| TRUTH.0[height].outputs[index as usize].0.txid;
    let mut down = neighbours(hints, true, false);
    down.retain(|&place| txid(place) != txid((height, a)));
    let (other, b) = any(&down, rng);
    [(height, a), (height, a + 1), (other, b), (other, b + 1)]
        .into_iter()
        .for_each(|place| flip(hints, place));
}

/// Two hints of one block move to adjacent outputs, one up and one down: number and sum of indices stay the
/// same.
fn two_opposite_moves_in_a_block(hints: &mut Hints, rng: &mut Rng) {
    let (up, down) = (neighbours(hints, false, true), neighbours(hints, false, false));
    let fits = |a: (usize, u32), b: (usize, u32)| a.0 == b.0 && a.1.abs_diff(b.1) > 1;
    let pairs = up.iter().flat_map(|&a| down.iter().map(move |&b| (a, b)));
    let ((height, a), (_, b)) = any(&pairs.filter(|&(a, b)| fits(a, b)).collect::<Vec<_>>(), rng);
    [a, a + 1, b, b + 1].into_iter().for_each(|index| flip(hints, (height, index)));
}

/// A small chain with coins that anyone can spend.
static BASE: LazyLock<Chain> = LazyLock::new(|| {
    let spec = ChainSpec { blocks: Some(126), reserved: 24, stale: false, ..ChainSpec::new(31, 60_000) };
    Chain::generate(&spec)
});

/// A chain of some valid blocks, the draft's blocks, the invalid block, and some more, without hints.
fn invalid(rng: &mut Rng, draft: fn(&mut BlockBuilder<'_>, &mut Rng) -> Draft) -> (Told, Truth) {
    let mut chain = BASE.clone();
    let mut builder = BlockBuilder::new(&BASE, rng.next_u64());
    for _ in 0..rng.below(4) {
        let spends = (0..rng.below(3)).map(|_| builder.simple()).collect();
        builder.add(spends);
    }
    let draft = draft(&mut builder, rng);
    let block = builder.seal(&draft);
    let invalid = Some((block.height, block.hash));
    chain.blocks.extend(builder.into_added());
    chain.blocks.push(block);
    // The chain's model stays at the base: blocks above need only their coinbases.
    let mut on_top = BlockBuilder::new(&chain, rng.next_u64());
    (0..rng.below(3)).for_each(|_| on_top.add(Vec::new()));
    let added = on_top.into_added();
    chain.blocks.extend(added);
    let (dir, truth) = (datadir_of(&chain), Truth::of(&chain));
    bury(&dir.path().join("regtest/blocks/index"));
    (Told { invalid, ..Told::new(Case::of(dir), &truth) }, truth)
}

/// An invalid chain with its hints, all but `hidden` of them.
fn of_chain(rng: &mut Rng, draft: fn(&mut BlockBuilder<'_>, &mut Rng) -> Draft, hidden: u64) -> Told {
    let (mut told, truth) = invalid(rng, draft);
    let tip = told.source.height;
    let mut hints = truth.hints(tip);
    for _ in 0..hidden {
        let full: Vec<usize> = (1..hints.len()).filter(|&height| !hints[height].is_empty()).collect();
        let block = &mut hints[any(&full, rng)];
        block.remove(rng.below(block.len() as u64) as usize);
    }
    told.hint(&truth, HintFormat::Peregrine, &hints, truth.hash(tip));
    told
}

/// The same with right hints, or with one coin called spent, so that the numbers of coins are right.
fn missing_coin(rng: &mut Rng, draft: fn(&mut BlockBuilder<'_>, &mut Rng) -> Draft) -> Told {
    let hidden = rng.below(2);
    of_chain(rng, draft, hidden)
}

/// Right hints that end below the invalid block.
fn above_hints(rng: &mut Rng) -> Told {
    let (mut told, truth) = invalid(rng, spent_in_adjacent_blocks);
    let end = [100, told.invalid.unwrap().0 - 2][rng.below(2) as usize];
    told.hint(&truth, HintFormat::Peregrine, &truth.hints(end), truth.hash(told.source.height));
    told
}

/// The same, but no undo data is there, and that of the last blocks is made.
fn above_without_files(rng: &mut Rng) -> Told {
    let (mut told, truth) = invalid(rng, spent_in_adjacent_blocks);
    let height = told.invalid.unwrap().0;
    let (end, undo_blocks) = any(&[(100, 0), (100, 20), (height - 2, 20), (height, 20)], rng);
    told.hint(&truth, HintFormat::Peregrine, &truth.hints(end), truth.hash(told.source.height));
    (told.source.undo_blocks, told.has_undo) = (undo_blocks, false);
    UndoDamage::AllGone.apply(told.case.root(), Network::Regtest);
    told
}

fn take_any(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> BuilderCoin {
    (0..rng.below(5)).for_each(|_| drop(builder.take()));
    builder.take()
}

fn output(amount: i64, coin: &BuilderCoin) -> Vec<bitcoin::TxOut> {
    vec![paying(amount, bitcoin::ScriptBuf::from_bytes(coin.coin.script.clone()))]
}

/// In the same block, in adjacent blocks, or further apart.
fn double_spend(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> Draft {
    let apart = rng.below(3);
    spent_apart(builder, rng, apart)
}

fn spent_in_adjacent_blocks(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> Draft {
    spent_apart(builder, rng, 1)
}

/// Spends a coin twice, in blocks that are so far apart.
fn spent_apart(builder: &mut BlockBuilder<'_>, rng: &mut Rng, apart: u64) -> Draft {
    let coin = take_any(builder, rng);
    let [first, second] = [0, 1].map(|less| builder.spend(&[&coin], output(coin.coin.amount - less, &coin)));
    if apart == 0 {
        return builder.draft(vec![first, second]);
    }
    builder.add(vec![first]);
    (1..apart).for_each(|_| builder.add(Vec::new()));
    builder.draft(vec![second])
}

fn never_made(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> Draft {
    let mut coin = take_any(builder, rng);
    match rng.below(2) {
        0 => coin.outpoint.txid.0[rng.below(32) as usize] ^= 1 << rng.below(8),
        _ => coin.outpoint.vout = 1 + rng.below(1000) as u32,
    }
    coin.coin.amount = 50_000;
    builder.spending(&[&coin], output(50_000, &coin))
}

/// More than all that was burned or not claimed before.
fn inflated(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> Draft {
    let claimed: i64 = BASE.model.coins.values().map(|coin| coin.amount).sum();
    let allowed: i64 = (1..=i64::from(BASE.tip().height)).map(|_| 50_0000_0000).sum();
    let txs = (0..rng.below(3)).map(|_| builder.simple()).collect();
    let mut draft = builder.draft(txs);
    let reward = &mut draft.coinbase.as_mut().unwrap().output[0];
    let more = allowed - claimed + 1 + rng.below(1_000_000) as i64;
    reward.value = bitcoin::Amount::from_sat(reward.value.to_sat() + more as u64);
    draft
}

fn spent_too_early(builder: &mut BlockBuilder<'_>, rng: &mut Rng) -> Draft {
    let coin = take_any(builder, rng);
    let parent = builder.spend(&[&coin], output(coin.coin.amount, &coin));
    let made = builder.coin_of(&parent, 0);
    let child = builder.spend(&[&made], output(made.coin.amount, &made));
    builder.draft(vec![child, parent])
}
