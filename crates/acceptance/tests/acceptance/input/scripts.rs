//! Which scripts are run: each once, on any number of threads, except those that Core would skip under
//! `-assumevalid`. The verifier here runs no scripts: it records what it is asked, and fails on demand.

use acceptance::prelude::*;
use acceptance::update::AT_ONCE;
use disk::index::{BlockIndex, read_block_index, write_block_index};
use engine::{Engine, Matching, ScriptTrust, ScriptVerifier};
use std::ops::Range;
use wire::{BlockArena, Network, OutPoint, Sats, ScriptFault, ScriptFlags, TxVerifier, TxView};

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
        assert_eq!(flags, ScriptFlags::ALL, "all rules are active on regtest from the start");
        for input in inputs {
            let prevout = self.prevouts[input as usize];
            *self.state.seen.lock().unwrap().entry(prevout).or_default() += 1;
            let amount = self.amounts[input as usize];
            let wrong_amount = self
                .state
                .required_amount
                .is_some_and(|(coin, required_amount)| coin == prevout && required_amount != amount);
            if wrong_amount || self.state.failing.contains(&prevout) {
                let input = Some(input);
                return Err(ScriptFault { input, detail: "it fails".to_owned() });
            }
        }
        Ok(())
    }
}

/// A chain on disk, and the coins that each block spends.
struct Case {
    chain: Chain,
    root: TempDir,
    spends: Vec<Vec<OutPoint>>,
}

impl Case {
    fn new(spec: &ChainSpec) -> Self {
        let chain = Chain::generate(spec);
        let root = tempfile::tempdir().unwrap();
        chain.write_datadir(root.path(), &Layout::new(1)).unwrap();
        let mut arena = BlockArena::default();
        let spends = chain.main().map(|block| {
            let block = arena.parse(&block.bytes).unwrap();
            block.txs().skip(1).flat_map(|tx| tx.inputs()).map(|input| input.prevout()).collect()
        });
        let spends = spends.collect();
        Self { chain, root, spends }
    }

    fn run(
        &self,
        assume_valid: AssumeValid,
        change: impl Fn(ReindexOptions) -> ReindexOptions,
        failing: &[OutPoint],
    ) -> (Result<ReindexReport, Error>, BTreeMap<OutPoint, u32>) {
        self.run_state(State { failing: failing.to_vec(), ..State::default() }, assume_valid, change)
    }

    fn run_state(
        &self,
        state: State,
        assume_valid: AssumeValid,
        change: impl Fn(ReindexOptions) -> ReindexOptions,
    ) -> (Result<ReindexReport, Error>, BTreeMap<OutPoint, u32>) {
        let state = Arc::new(state);
        let verifier = Arc::new(RecordingVerifier(Arc::clone(&state)));
        let output = tempfile::tempdir().unwrap();
        let result = run(&change(changed(
            ReindexOptions { output: Some(output.path().to_owned()), ..options(self.root.path()) },
            |it| {
                it.chain.scripts = ScriptChecks::By(verifier);
                it.chain.assume_valid = assume_valid;
            },
        )));
        let seen = state.seen.lock().unwrap().clone();
        (result, seen)
    }

    fn index(&self) -> BlockIndex {
        read_block_index(&vfs::RealDisk, &self.root.path().join("regtest/blocks/index")).unwrap()
    }

    /// Replaces the block index by a changed copy of this one.
    fn write_index(&self, index: &BlockIndex, change: impl FnMut(&mut IndexEntry)) {
        let (dir, mut index) = (self.root.path().join("regtest/blocks/index"), index.clone());
        index.entries.iter_mut().for_each(change);
        std::fs::remove_dir_all(&dir).unwrap();
        write_block_index(&vfs::RealDisk, &dir, &index).unwrap();
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

#[test]
fn each_script_is_run_once_for_any_threads_and_matching() {
    let case = Case::new(&unsigned(21, 900_000));
    let all = case.spent_above(None);
    assert!(all.len() > 500, "too few spends");
    for threads in THREADS {
        let (report, seen) = case.run(AssumeValid::Off, |o| with_threads(&o, threads), &[]);
        let report = report.unwrap();
        assert_eq!(seen, all, "{threads} threads");
        let scripts = report.scripts.unwrap();
        assert_eq!((scripts.assumed_valid_to, scripts.inputs), (None, report.counts.inputs));
    }
    let ordered = |options| changed(options, |it| it.chain.hooks.matching = Matching::Sequential);
    let (report, seen) = case.run(AssumeValid::Default, ordered, &[]);
    assert_eq!((seen, report.unwrap().counts.scripts), (all.clone(), all.len() as u64));
}

/// Once, a caller who did not think of scripts got a rebuild without them.
#[test]
fn scripts_are_left_out_only_if_the_caller_says_so() {
    let case = Case::new(&unsigned(21, 100_000));
    let rebuild = |scripts: ScriptChecks| {
        let output = tempfile::tempdir().unwrap();
        let of_caller = ReindexOptions::new(case.root.path(), Network::Regtest, scripts);
        run(&ReindexOptions { output: Some(output.path().to_owned()), ..of_caller }).unwrap()
    };
    let state = Arc::new(State::default());
    let report = rebuild(ScriptChecks::By(Arc::new(RecordingVerifier(Arc::clone(&state)))));
    assert_eq!(*state.seen.lock().unwrap(), case.spent_above(None));
    assert_eq!(report.scripts.unwrap().inputs, report.counts.inputs);
    assert_eq!(rebuild(ScriptChecks::LeftOut).scripts, None);
}

#[test]
fn the_lowest_failing_script_is_reported() {
    let case = Case::new(&unsigned(22, 900_000));
    let busy: Vec<usize> = (0..case.spends.len()).filter(|&at| case.spends[at].len() > 3).collect();
    let (low, high) = (busy[busy.len() / 3], busy[busy.len() - 2]);
    let failing = [case.spends[high][0], case.spends[low][2], case.spends[low][3]];
    for threads in THREADS {
        let (result, _) = case.run(AssumeValid::Off, |o| with_threads(&o, threads), &failing);
        let error = result.map(|report| report.height).unwrap_err();
        assert_eq!((error.kind, error.rule), (ErrorKind::Consensus, Some("script")), "{error}");
        assert_eq!(error.height, Some(Height(low as u32)), "{error}");
        assert_eq!(error.core.as_deref(), Some("block-script-verify-flag-failed"));
        assert!(error.detail.contains(&case.spends[low][2].to_string()), "{error}");
        assert!(error.txid.is_some());
    }
}

/// An update runs the scripts of the blocks that it connects, and of no others.
#[test]
fn an_update_runs_each_script_once_and_reports_the_lowest_that_fails() {
    let case = Case::new(&unsigned(24, 600_000));
    let busy: Vec<usize> = (0..case.spends.len()).filter(|&at| case.spends[at].len() > 3).collect();
    let (low, high) = (busy[busy.len() / 2], busy[busy.len() - 2]);
    let from = low as u32 - 5;
    let root = case.root.path();
    run(&changed(options(root), |it| it.stop_at_height = Some(Height(from)))).unwrap();
    let update = |threads: usize, failing: Vec<OutPoint>| {
        let state = Arc::new(State { failing, ..State::default() });
        let mut options = acceptance::update::update_options(root, AT_ONCE, None);
        options.chain = with_threads(&changed(acceptance::options(root), |_| {}), threads).chain;
        options.chain.scripts = ScriptChecks::By(Arc::new(RecordingVerifier(Arc::clone(&state))));
        let done = acceptance::update::update(&options);
        let seen = state.seen.lock().unwrap().clone();
        (done, seen)
    };
    for threads in THREADS {
        let failing = vec![case.spends[high][0], case.spends[low][2], case.spends[low][3]];
        let error = update(threads, failing).0.map(|report| report.height).unwrap_err();
        assert_eq!((error.kind, error.height), (ErrorKind::Consensus, Some(Height(low as u32))), "{error}");
        assert_eq!(error.core.as_deref(), Some("block-script-verify-flag-failed"));
        assert!(error.detail.contains(&case.spends[low][2].to_string()), "{error}");
    }
    let (report, seen) = update(8, Vec::new());
    assert_eq!(seen, case.spent_above(Some(from)));
    assert_eq!(report.unwrap().scripts.unwrap().inputs, seen.len() as u64);
}

/// A typing error in --assumevalid once went unreported, and cost days.
#[test]
fn an_unknown_assumed_valid_block_is_reported() {
    let case = Case::new(&unsigned(22, 100_000));
    let verifier = Arc::new(RecordingVerifier(Arc::default()));
    let warnings_of = |assume_valid: AssumeValid| {
        let texts = Mutex::new(Vec::new());
        let sink = |event| {
            if let engine::Event::Warning(warning) = event {
                texts.lock().unwrap().push(warning.to_string());
            }
        };
        let output = tempfile::tempdir().unwrap();
        let output = Some(output.path().to_owned());
        let scripts = ScriptChecks::By(Arc::clone(&verifier) as _);
        let options = changed(ReindexOptions { output, ..options(case.root.path()) }, |it| {
            it.chain.scripts = scripts;
            it.chain.assume_valid = assume_valid;
        });
        let never = std::sync::atomic::AtomicBool::new(false);
        engine::reindex(&testkit::fault::FaultDisk::healthy(), &options, &sink, &never).unwrap();
        texts.into_inner().unwrap()
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
        let (report, seen) = case.run(assumed, |options| options, &[]);
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
    let stale = case.chain.blocks.iter().find(|block| block.stale);
    if let Some(stale) = stale {
        let below = case.chain.main().position(|block| block.hash == stale.header.prev);
        if let Some(fork) = below {
            check(
                AssumeValid::Block(stale.hash),
                Some(fork as u32),
                "a stale block vouches for its ancestors",
            );
        }
    }
}

fn mark(entry: &mut IndexEntry, validity: u32) {
    // No other validity has bits that this one has not.
    entry.status = BlockStatus(entry.status.0 & !7 | validity);
}

fn unmark(entry: &mut IndexEntry) {
    mark(entry, BlockStatus::VALID_CHAIN);
}

/// A row of the table below: what the block index is like; the change of each entry, given whether it is one
/// of the chain and the height at which a stale branch begins; how far above that height scripts are not run.
type Marks = (&'static str, fn(&mut IndexEntry, bool, u32), Option<i32>);

const MARKS: [Marks; 8] = [
    ("no marks", |entry, _, _| unmark(entry), None),
    (
        "only the lowest mark is missing",
        |it, _, _| {
            if it.height.0 == 1 {
                unmark(it)
            }
        },
        None,
    ),
    (
        "marks up to a height in the middle",
        |it, _, fork| {
            if it.height.0 > fork {
                unmark(it)
            }
        },
        Some(0),
    ),
    (
        "a mark is missing in the middle",
        |it, _, fork| {
            if it.height.0 == fork {
                unmark(it)
            }
        },
        Some(-1),
    ),
    (
        "an assumeutxo node that has validated only some of the blocks below the snapshot's base",
        |it, _, fork| {
            if (fork - 9..fork).contains(&it.height.0) {
                mark(it, BlockStatus::VALID_TRANSACTIONS);
            }
        },
        Some(-10),
    ),
    (
        "a stale branch has marks, and the chain beside it has none",
        |it, is_of_chain, fork| match is_of_chain {
            true if it.height.0 > fork => unmark(it),
            _ => mark(it, BlockStatus::VALID_SCRIPTS),
        },
        Some(0),
    ),
    (
        "a mark without transactions",
        |it, _, fork| {
            if it.height.0 == fork {
                it.tx_count = 0
            }
        },
        Some(-1),
    ),
    (
        "a block above is marked as invalid",
        |it, is_of_chain, fork| {
            if is_of_chain && it.height.0 > fork + 5 {
                it.status.0 |= BlockStatus::FAILED_VALID;
            }
        },
        Some(5),
    ),
];

#[test]
fn marks_of_checked_scripts_count_from_genesis_to_the_first_block_without_one() {
    let case = Case::new(&ChainSpec { empty_tail: 2017, ..unsigned(26, 600_000) });
    let tip = case.spends.len() as u32 - 1;
    let fork = case.chain.blocks.iter().find(|block| block.stale).unwrap().height - 1;
    let index = case.index();
    let check = |what: &str, to: Option<u32>, trusted: ScriptTrust, params: &'static ChainParams| {
        let with_params = |options| changed(options, |it| it.chain.params = params);
        let (report, seen) = case.run(AssumeValid::Checked, with_params, &[]);
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut run = case.spent_above(to);
        let above: Vec<_> = case.spends[report.height.0 as usize + 1..].iter().flatten().collect();
        run.retain(|outpoint, _| !above.contains(&outpoint));
        assert_eq!(seen, run, "{what}");
        let scripts = report.scripts.unwrap();
        assert_eq!(
            (scripts.assumed_valid_to, scripts.trusted),
            (to.map(Height), to.map(|_| trusted)),
            "{what}"
        );
    };
    let regtest = ChainParams::of(Network::Regtest);
    // As bitcoind writes it: it does not mark the genesis block.
    check("all marks", Some(tip), ScriptTrust::BlockIndex, regtest);
    for (what, change, above) in MARKS {
        let is_of_chain = |it: &IndexEntry| case.chain.main().any(|block| block.hash == it.hash);
        case.write_index(&index, |entry| change(entry, is_of_chain(entry), fork));
        check(what, above.and_then(|above| fork.checked_add_signed(above)), ScriptTrust::BlockIndex, regtest);
    }
    let busy = tip - 2017;
    let hash = case.chain.main().nth(busy as usize).unwrap().hash;
    let default = ChainParams { assume_valid: Some((Height(busy), hash)), ..regtest.clone() };
    case.write_index(&index, |it| {
        if it.height.0 > fork {
            unmark(it)
        }
    });
    check("the default is higher", Some(busy), ScriptTrust::AssumedValidBlock, Box::leak(Box::new(default)));
}

#[test]
fn a_bad_signature_below_a_mark_is_found_by_default_and_not_if_marks_are_believed() {
    let case = Case::new(&unsigned(27, 300_000));
    let spending = |at: &usize| !case.spends[*at].is_empty();
    let low = (0..case.spends.len()).find(spending).unwrap();
    let failing = [case.spends[low][0]];
    for engine in Engine::ALL {
        let with_engine = |options| changed(options, |it| it.engine = engine);
        let error = case.run(AssumeValid::Default, with_engine, &failing).0.map(|report| report.height);
        assert_eq!(error.unwrap_err().height, Some(Height(low as u32)));
        let (report, seen) = case.run(AssumeValid::Checked, with_engine, &failing);
        assert_eq!((report.unwrap().height, seen.len()), (Height(case.chain.tip().height), 0));
    }
    // The mark of that block alone is missing, and a scan believes none.
    case.write_index(&case.index(), |it| {
        if it.height.0 == low as u32 {
            unmark(it)
        }
    });
    let error = case.run(AssumeValid::Checked, |options| options, &failing).0.map(|report| report.height);
    assert_eq!(error.unwrap_err().height, Some(Height(low as u32)));
    let by_scan = |options| changed(options, |it| it.scan = true);
    let error = case.run(AssumeValid::Checked, by_scan, &[]).0.map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage);
    acceptance::assert_mentions(&error, &["no block index is believed"]);
}

#[test]
fn all_rules_but_scripts_are_checked_below_marks() {
    let mut chain = Chain::generate(&unsigned(28, 300_000));
    let victim = chain.blocks.iter().rposition(|block| !block.stale && block.txs > 3).unwrap();
    let honest = chain.blocks[victim].undo.clone().unwrap();
    chain.blocks[victim].undo = Some(with_another_amount(&honest));
    let root = tempfile::tempdir().unwrap();
    chain.write_datadir(root.path(), &Layout::new(1)).unwrap();
    let case = Case { chain, root, spends: Vec::new() };
    let trusting = |options| acceptance::trusting(&options);
    let error = case.run(AssumeValid::Checked, trusting, &[]).0.map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
}

/// Scripts run on claimed coins. If a script fails on a false claim, this is no violation: the undo data is
/// damaged. This verifier fails for any coin whose amount differs from the model's.
#[test]
fn a_script_that_fails_on_a_false_claim_is_not_a_violation() {
    let mut chain = Chain::generate(&unsigned(24, 300_000));
    let victim = chain.blocks.iter().rposition(|block| !block.stale && block.txs > 3).unwrap();
    let honest = chain.blocks[victim].undo.clone().unwrap();
    let spent = first_spend(&chain.blocks[victim].bytes);
    let amount = first_amount(&honest);
    chain.blocks[victim].undo = Some(with_another_amount(&honest));
    let root = tempfile::tempdir().unwrap();
    chain.write_datadir(root.path(), &Layout::new(1)).unwrap();
    let case = Case { chain, root, spends: Vec::new() };
    let (result, seen) = case.run_state(
        State { required_amount: Some((spent, amount)), ..State::default() },
        AssumeValid::Off,
        |options| acceptance::trusting(&options),
    );
    let error = result.map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    assert!(error.file.as_ref().unwrap().ends_with(Path::new("rev00000.dat")));
    assert!(seen.contains_key(&spent), "the script was run on the claim or on the coin");
}

/// The amount of the first coin in undo data.
fn first_amount(undo: &[u8]) -> Sats {
    let mut arena = disk::undo::UndoArena::default();
    let view = disk::undo::UndoView::parse(undo, &mut arena).unwrap();
    view.coins().next().unwrap().output().unwrap().0
}

fn first_spend(block: &[u8]) -> OutPoint {
    let mut arena = BlockArena::default();
    let block = arena.parse(block).unwrap();
    block.tx(1).unwrap().inputs().next().unwrap().prevout()
}

/// The same undo data, but the first coin is worth one satoshi more.
fn with_another_amount(undo: &[u8]) -> Vec<u8> {
    let mut arena = disk::undo::UndoArena::default();
    let view = disk::undo::UndoView::parse(undo, &mut arena).unwrap();
    let mut first = true;
    let mut txs: Vec<Vec<(u32, Vec<u8>)>> = Vec::new();
    for tx in 0..view.tx_count() {
        let coins = view.tx_coins(tx).unwrap().map(|coin| {
            let mut out = coin.out.to_vec();
            if std::mem::take(&mut first) {
                let (amount, script) = coin.output().unwrap();
                let mut bytes = Vec::new();
                script.decompress(&mut bytes).unwrap();
                out.clear();
                wire::coin::compress_output(&mut out, Sats(amount.0 + 1), &bytes);
            }
            (coin.code, out)
        });
        txs.push(coins.collect());
    }
    disk::undo::write_undo(txs.iter().map(|tx| tx.iter().map(|(code, out)| wire::Coin { code: *code, out })))
}

/// The engine with the coins cache runs the scripts that the join runs.
#[test]
fn the_coins_cache_runs_each_script_once_and_reports_the_lowest_that_fails() {
    let case = Case::new(&unsigned(25, 600_000));
    let busy: Vec<usize> = (0..case.spends.len()).filter(|&at| case.spends[at].len() > 3).collect();
    let (low, high) = (busy[busy.len() / 3], busy[busy.len() - 2]);
    let failing = [case.spends[high][0], case.spends[low][2], case.spends[low][3]];
    for (threads, bytes) in [(1, Some(1)), (2, Some(50_000)), (3, None)] {
        let with_cache = |options| {
            changed(with_threads(&options, threads), |it| {
                it.engine = Engine::Cache;
                it.chain.hooks.join_bytes = bytes;
            })
        };
        let (report, seen) = case.run(AssumeValid::Off, with_cache, &[]);
        let report = report.unwrap();
        assert_eq!(seen, case.spent_above(None), "{threads} threads");
        assert_eq!(report.scripts.unwrap().inputs, report.counts.inputs, "{threads} threads");
        let (result, _) = case.run(AssumeValid::Off, with_cache, &failing);
        let error = result.map(|report| report.height).unwrap_err();
        assert_eq!((error.rule, error.height), (Some("script"), Some(Height(low as u32))), "{error}");
        assert!(error.detail.contains(&case.spends[low][2].to_string()), "{error}");
    }
}
