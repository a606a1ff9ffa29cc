//! Which scripts are run: each once, on any number of threads, except those that Core would skip under
//! `-assumevalid`. The verifier here runs no scripts: it records what it is asked, and fails on demand.

use acceptance::prelude::*;
use engine::{ScriptVerifier, reindex::ScriptTrust};
use testkit::verifiers::Refusing;
use wire::{ScriptFault, ScriptFlags, TxVerifier, TxView};

#[derive(Debug, Default)]
struct State {
    /// How many times the script of each coin was run.
    seen: Mutex<BTreeMap<OutPoint, u32>>,
    /// Coins whose script fails.
    failing: Vec<OutPoint>,
    /// A coin whose script fails unless the coin has this amount.
    required_amount: Option<(OutPoint, Sats)>,
}

/// A verifier that records what it is asked.
#[derive(Debug)]
struct RecordingVerifier(Arc<State>);

struct RecordedTx {
    state: Arc<State>,
    prevouts: Vec<OutPoint>,
    amounts: Vec<Sats>,
}

impl ScriptVerifier for RecordingVerifier {
    fn transaction(
        &self,
        tx: &TxView<'_>,
        coins: &[(Sats, Vec<u8>)],
    ) -> Result<Arc<dyn TxVerifier>, ScriptFault> {
        assert_eq!(coins.len(), tx.input_count());
        let prevouts = tx.inputs().map(|input| input.prevout()).collect();
        let amounts = coins.iter().map(|(amount, _)| *amount).collect();
        Ok(Arc::new(RecordedTx { state: Arc::clone(&self.0), prevouts, amounts }))
    }
}

impl TxVerifier for RecordedTx {
    fn verify(&self, inputs: Range<u32>, flags: ScriptFlags) -> Result<(), ScriptFault> {
        assert_eq!(flags, ScriptFlags::all(), "all rules are active on regtest from the start");
        for input in inputs {
            let prevout = self.prevouts[input as usize];
            *self.state.seen.lock().unwrap().entry(prevout).or_default() += 1;
            let amount = self.amounts[input as usize];
            let is_other = |(coin, required): (OutPoint, Sats)| coin == prevout && required != amount;
            let wrong_amount = self.state.required_amount.is_some_and(is_other);
            if wrong_amount || self.state.failing.contains(&prevout) {
                let input = Some(input);
                return Err(ScriptFault { input, detail: "it fails".to_owned() });
            }
        }
        Ok(())
    }
}

/// A verifier that fails for these coins.
fn failing(coins: &[OutPoint]) -> State {
    State { failing: coins.to_vec(), ..State::default() }
}

/// Runs something with a verifier that is in this state. Returns what it has seen, too.
fn recorded<T>(state: State, run: impl FnOnce(ScriptChecks) -> T) -> (T, BTreeMap<OutPoint, u32>) {
    let state = Arc::new(state);
    let done = run(ScriptChecks::By(Arc::new(RecordingVerifier(Arc::clone(&state)))));
    let seen = state.seen.lock().unwrap().clone();
    (done, seen)
}

/// A chain on disk, and the coins that each block spends.
struct Case {
    chain: Chain,
    datadir: acceptance::Case,
    spends: Vec<Vec<OutPoint>>,
}

impl Case {
    fn new(spec: &ChainSpec) -> Self {
        Self::of(Chain::generate(spec))
    }

    fn of(chain: Chain) -> Self {
        let dir = tempfile::tempdir().unwrap();
        chain.write_datadir(dir.path(), &Layout::new(1)).unwrap();
        let mut arena = BlockArena::default();
        let spends = chain.main().map(|block| {
            let block = arena.parse(&block.bytes).unwrap();
            block.prevouts().collect()
        });
        let (spends, datadir) = (spends.collect(), acceptance::Case::of(dir));
        Self { chain, datadir, spends }
    }

    fn run(
        &self,
        assume_valid: AssumeValid,
        change: impl Fn(ReindexOptions) -> ReindexOptions,
        state: State,
    ) -> (Result<ReindexReport, Error>, BTreeMap<OutPoint, u32>) {
        let output = tempfile::tempdir().unwrap();
        let mut plain = elsewhere(self.datadir.options(), output.path());
        plain.chain.assume_valid = assume_valid;
        recorded(state, |scripts| run(&change(changed(plain, |it| it.chain.scripts = scripts))))
    }

    /// Replaces the block index by a changed copy of this one.
    fn write_index(&self, index: &BlockIndex, change: impl FnMut(&mut IndexEntry)) {
        let mut new = index.clone();
        new.entries.iter_mut().for_each(change);
        self.datadir.edit_index(|index| *index = new);
    }

    /// Three spent coins, two of them in the lower of two blocks, and the height of that block.
    fn some_to_fail(&self, part: usize) -> ([OutPoint; 3], usize) {
        let busy: Vec<usize> = (0..self.spends.len()).filter(|&at| self.spends[at].len() > 3).collect();
        let (low, high) = (busy[busy.len() / part], busy[busy.len() - 2]);
        ([self.spends[high][0], self.spends[low][2], self.spends[low][3]], low)
    }

    /// The coins spent above a height, each once.
    fn spent_above(&self, height: Option<u32>) -> BTreeMap<OutPoint, u32> {
        let from = height.map_or(0, |height| height as usize + 1);
        self.spends[from..].iter().flatten().map(|&outpoint| (outpoint, 1)).collect()
    }
}

fn unsigned(seed: u64, bytes: u64) -> ChainSpec {
    ChainSpec { signed: false, ..ChainSpec::new(seed, bytes) }
}

/// Asserts that the lowest of the scripts that fail is reported.
fn assert_lowest(error: &Error, (failing, low): ([OutPoint; 3], usize), what: &str) {
    assert_eq!((error.kind, error.rule), (ErrorKind::Consensus, Some("script")), "{what}: {error}");
    assert_eq!(error.height, Some(Height(low as u32)), "{what}: {error}");
    assert_eq!(error.core.as_deref(), Some("block-script-verify-flag-failed"), "{what}");
    assert!(error.detail.contains(&failing[1].to_string()) && error.txid.is_some(), "{what}: {error}");
}

#[test]
fn every_way_runs_each_script_once_and_reports_the_lowest_that_fails() {
    let case = Case::new(&unsigned(21, 900_000));
    let (all, some) = (case.spent_above(None), case.some_to_fail(3));
    assert!(all.len() > 500, "too few spends");
    let is_taken = |means| matches!(means, Means::Join | Means::Sequential | Means::Cache);
    for way in WAYS.into_iter().filter(|way| is_taken(way.means) && !way.is_interrupted) {
        let (what, by_way) = (format!("{way:?}"), |options| way.options(&Source::new(options, 0)));
        let (report, seen) = case.run(AssumeValid::Off, by_way, State::default());
        let report = report.unwrap();
        assert_eq!(seen, all, "{what}");
        let scripts = report.scripts.unwrap();
        let found = (scripts.assumed_valid_to, scripts.inputs, report.counts.scripts);
        assert_eq!(found, (None, report.counts.inputs, all.len() as u64), "{what}");
        let done = case.run(AssumeValid::Off, by_way, failing(&some.0)).0;
        assert_lowest(&done.map(drop).unwrap_err(), some, &what);
    }
}

#[test]
fn a_rebuild_of_a_signed_network_needs_a_solution_in_each_block() {
    let case = Case::new(&unsigned(21, 100_000));
    let signed = ChainParams { signet_challenge: Some(&[]), ..ChainParams::of(Network::Regtest).clone() };
    let params: &'static ChainParams = Box::leak(Box::new(signed));
    for engine in [Engine::Join, Engine::Cache] {
        let scripts = ScriptChecks::By(Arc::new(Refusing));
        let options =
            ReindexOptions { engine, ..ReindexOptions::new(case.datadir.root(), Network::Regtest, scripts) };
        let error = run(&changed(options, |it| it.chain.params = params)).unwrap_err();
        let found = (error.kind, error.height, error.core.as_deref());
        assert_eq!(found, (ErrorKind::Consensus, Some(Height(1)), Some("bad-signet-blksig")), "{error}");
    }
}

/// Once, a caller who did not think of scripts got a rebuild without them.
#[test]
fn scripts_are_left_out_only_if_the_caller_says_so() {
    let case = Case::new(&unsigned(21, 100_000));
    let rebuild = |scripts: ScriptChecks| {
        let output = tempfile::tempdir().unwrap();
        let of_caller = ReindexOptions::new(case.datadir.root(), Network::Regtest, scripts);
        run(&elsewhere(of_caller, output.path())).unwrap()
    };
    let (report, seen) = recorded(State::default(), rebuild);
    assert_eq!(seen, case.spent_above(None));
    assert_eq!(report.scripts.unwrap().inputs, report.counts.inputs);
    assert_eq!(rebuild(ScriptChecks::LeftOut).scripts, None);
}

/// An update runs the scripts of the blocks that it connects, and of no others.
#[test]
fn an_update_runs_each_script_once_and_reports_the_lowest_that_fails() {
    let case = Case::new(&unsigned(24, 600_000));
    let (some, root) = (case.some_to_fail(2), case.datadir.root());
    let from = some.1 as u32 - 5;
    run(&up_to(options(root), from)).unwrap();
    let update = |threads: usize, state: State| {
        let threads = NonZeroUsize::new(threads).unwrap();
        let options = ChainOptions { threads, ..update_options(root, AT_ONCE, None) };
        recorded(state, |scripts| update(&ChainOptions { scripts, ..options }))
    };
    for threads in THREADS {
        let error = update(threads, failing(&some.0)).0.map(drop).unwrap_err();
        assert_lowest(&error, some, &format!("an update, {threads} threads"));
    }
    let (report, seen) = update(8, State::default());
    assert_eq!(seen, case.spent_above(Some(from)));
    assert_eq!(report.unwrap().scripts.unwrap().inputs, seen.len() as u64);
}

/// A typing error in --assumevalid once went unreported, and cost days.
#[test]
fn an_unknown_assumed_valid_block_is_reported() {
    let case = Case::new(&unsigned(22, 100_000));
    let verifier = Arc::new(RecordingVerifier(Arc::default()));
    let warnings_of = |assume_valid: AssumeValid| {
        let output = scratch();
        let in_output = elsewhere(options(case.datadir.root()), output.path());
        let (done, events) = run_seen(&changed(in_output, |it| {
            it.chain.scripts = ScriptChecks::By(Arc::clone(&verifier) as _);
            it.chain.assume_valid = assume_valid;
        }));
        done.unwrap();
        let is_warning = |event: &Event| matches!(event, Event::Warning(_));
        notes(&events.into_iter().filter(is_warning).collect::<Vec<_>>())
    };
    let known = case.chain.main().nth(3).unwrap().hash;
    for fine in [AssumeValid::Default, AssumeValid::Off, AssumeValid::Block(known)] {
        assert_eq!(warnings_of(fine), [] as [String; 0]);
    }
    let texts = warnings_of(AssumeValid::Block(wire::BlockHash([9; 32])));
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("090909") && texts[0].contains("scripts of all blocks"), "{texts:?}");
}

/// Core requires two weeks of work above a block whose scripts it skips: on regtest 2,017 blocks.
#[test]
fn scripts_are_skipped_only_where_core_skips_them() {
    let case = Case::new(&ChainSpec { empty_tail: 2017, ..unsigned(23, 300_000) });
    let tip = case.spends.len() as u32 - 1;
    let hash = |height: u32| case.chain.main().nth(height as usize).unwrap().hash;
    let busy = tip - 2017;
    let check = |assumed: AssumeValid, to: Option<u32>, what: &str| {
        let (report, seen) = case.run(assumed, |options| options, State::default());
        let report = report.unwrap();
        assert_eq!(seen, case.spent_above(to), "{what}");
        assert_eq!(report.scripts.unwrap().assumed_valid_to, to.map(Height), "{what}");
    };
    check(AssumeValid::Default, None, "regtest has no default");
    check(AssumeValid::Off, None, "nothing");
    check(AssumeValid::Block(hash(busy)), Some(busy), "the last block with spends");
    check(AssumeValid::Block(hash(busy - 5)), Some(busy - 5), "one below it");
    check(AssumeValid::Block(hash(tip)), Some(busy), "not buried under two weeks of work");
    check(AssumeValid::Block(wire::BlockHash([9; 32])), None, "no such block");
    if let Some(stale) = case.chain.blocks.iter().find(|block| block.stale)
        && let Some(fork) = case.chain.main().position(|block| block.hash == stale.header.prev)
    {
        let (assumed, to) = (AssumeValid::Block(stale.hash), Some(fork as u32));
        check(assumed, to, "a stale block vouches for its ancestors");
    }
}

fn mark(entry: &mut IndexEntry, validity: u32) {
    // No other validity has bits that this one has not.
    entry.status = BlockStatus(entry.status.0 & !7 | validity);
}

fn unmark(entry: &mut IndexEntry, is_chosen: bool) {
    if is_chosen {
        mark(entry, BlockStatus::VALID_CHAIN);
    }
}

/// A row of the table below: what the block index is like; which entries are chosen, given the height,
/// whether it is one of the chain and the height at which a stale branch begins; the change of each entry,
/// given whether it is chosen; how far above that height scripts are not run.
type Marks = (&'static str, fn(u32, bool, u32) -> bool, fn(&mut IndexEntry, bool), Option<i32>);

const MARKS: [Marks; 8] = [
    ("no marks", |_, _, _| true, unmark, None),
    ("only the lowest mark is missing", |height, _, _| height == 1, unmark, None),
    ("marks up to a height in the middle", |height, _, fork| height > fork, unmark, Some(0)),
    ("a mark is missing in the middle", |height, _, fork| height == fork, unmark, Some(-1)),
    (
        "an assumeutxo node that has validated only some of the blocks below the snapshot's base",
        |height, _, fork| (fork - 9..fork).contains(&height),
        |it, is_chosen| mark(it, if is_chosen { BlockStatus::VALID_TRANSACTIONS } else { it.status.0 & 7 }),
        Some(-10),
    ),
    (
        "a stale branch has marks, and the chain beside it has none",
        |height, is_of_chain, fork| is_of_chain && height > fork,
        |it, is_chosen| {
            mark(it, if is_chosen { BlockStatus::VALID_CHAIN } else { BlockStatus::VALID_SCRIPTS });
        },
        Some(0),
    ),
    (
        "a mark without transactions",
        |height, _, fork| height == fork,
        |it, is_chosen| it.tx_count *= u32::from(!is_chosen),
        Some(-1),
    ),
    (
        "a block above is marked as invalid",
        |height, is_of_chain, fork| is_of_chain && height > fork + 5,
        |it, is_chosen| it.status.0 |= BlockStatus::FAILED_VALID * u32::from(is_chosen),
        Some(5),
    ),
];

#[test]
fn marks_of_checked_scripts_count_from_genesis_to_the_first_block_without_one() {
    let case = Case::new(&ChainSpec { empty_tail: 2017, ..unsigned(26, 600_000) });
    let tip = case.spends.len() as u32 - 1;
    let fork = case.chain.blocks.iter().find(|block| block.stale).unwrap().height - 1;
    let index = case.datadir.index();
    let check = |what: &str, to: Option<u32>, trusted: ScriptTrust, params: &'static ChainParams| {
        let with_params = |options: ReindexOptions| changed(options, |it| it.chain.params = params);
        let (report, seen) = case.run(AssumeValid::Checked, with_params, State::default());
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut run = case.spent_above(to);
        let above: Vec<_> = case.spends[report.height.0 as usize + 1..].iter().flatten().collect();
        run.retain(|outpoint, _| !above.contains(&outpoint));
        assert_eq!(seen, run, "{what}");
        let scripts = report.scripts.unwrap();
        let expected = (to.map(Height), to.map(|_| trusted));
        assert_eq!((scripts.assumed_valid_to, scripts.trusted), expected, "{what}");
    };
    let regtest = ChainParams::of(Network::Regtest);
    // As bitcoind writes it: it does not mark the genesis block.
    check("all marks", Some(tip), ScriptTrust::BlockIndex, regtest);
    for (what, is_chosen, change, above) in MARKS {
        let is_of_chain = |it: &IndexEntry| case.chain.main().any(|block| block.hash == it.hash);
        case.write_index(&index, |it| change(it, is_chosen(it.height.0, is_of_chain(it), fork)));
        check(what, above.and_then(|above| fork.checked_add_signed(above)), ScriptTrust::BlockIndex, regtest);
    }
    let busy = tip - 2017;
    let hash = case.chain.main().nth(busy as usize).unwrap().hash;
    let default = ChainParams { assume_valid: Some((Height(busy), hash)), ..regtest.clone() };
    case.write_index(&index, |it| unmark(it, it.height.0 > fork));
    check("the default is higher", Some(busy), ScriptTrust::AssumedValidBlock, Box::leak(Box::new(default)));
}

#[test]
fn a_bad_signature_below_a_mark_is_found_by_default_and_not_if_marks_are_believed() {
    let case = Case::new(&unsigned(27, 300_000));
    let spending = |at: &usize| !case.spends[*at].is_empty();
    let low = (0..case.spends.len()).find(spending).unwrap();
    let failing = || failing(&[case.spends[low][0]]);
    for engine in Engine::ALL {
        let with_engine = |options: ReindexOptions| changed(options, |it| it.engine = engine);
        let error = case.run(AssumeValid::Default, with_engine, failing()).0.map(drop).unwrap_err();
        assert_eq!(error.height, Some(Height(low as u32)));
        let (report, seen) = case.run(AssumeValid::Checked, with_engine, failing());
        assert_eq!((report.unwrap().height, seen.len()), (Height(case.chain.tip().height), 0));
    }
    // The mark of that block alone is missing, and a scan believes none.
    case.write_index(&case.datadir.index(), |it| unmark(it, it.height.0 == low as u32));
    let error = case.run(AssumeValid::Checked, |options| options, failing()).0.map(drop).unwrap_err();
    assert_eq!(error.height, Some(Height(low as u32)));
    let by_scan = |options: ReindexOptions| changed(options, |it| it.chain.scan = true);
    let done = case.run(AssumeValid::Checked, by_scan, State::default()).0;
    assert_fails(done, ErrorKind::Usage, &["no block index is believed"]);
}

/// A chain whose undo data claims that a coin is worth one satoshi more; that coin, and what it is worth.
fn with_a_false_claim(seed: u64) -> (Case, OutPoint, Sats) {
    let mut chain = Chain::generate(&unsigned(seed, 300_000));
    let victim = chain.blocks.iter().rposition(|block| !block.stale && block.txs > 3).unwrap();
    let (block, mut worth) = (&mut chain.blocks[victim], Sats(0));
    let height = block.height as usize;
    falsify_claim(
        block,
        |_| (0, 0),
        |_, amount, _| {
            worth = Sats(*amount);
            *amount += 1;
        },
    );
    let case = Case::of(chain);
    let spent = case.spends[height][0];
    (case, spent, worth)
}

#[test]
fn all_rules_but_scripts_are_checked_below_marks() {
    let (case, ..) = with_a_false_claim(28);
    let trusting = |options| trusting(&options);
    assert_fails(case.run(AssumeValid::Checked, trusting, State::default()).0, ErrorKind::Damaged, &[]);
}

/// Scripts run on claimed coins. If a script fails on a false claim, this is no violation: the undo data is
/// damaged. This verifier fails for any coin whose amount differs from the model's.
#[test]
fn a_script_that_fails_on_a_false_claim_is_not_a_violation() {
    let (case, spent, worth) = with_a_false_claim(24);
    let state = State { required_amount: Some((spent, worth)), ..State::default() };
    let (result, seen) = case.run(AssumeValid::Off, |options| trusting(&options), state);
    let error = assert_fails(result, ErrorKind::Damaged, &[]);
    assert!(error.file.as_ref().unwrap().ends_with(Path::new("rev00000.dat")));
    assert!(seen.contains_key(&spent), "the script was run on the claim or on the coin");
}
