//! The history of all scripts: what a naive program finds in the same blocks, whatever the threads and the
//! memory, or an error.

use super::spending_inputs;
use acceptance::{lies::falsified, prelude::*};
use bitcoin::{Block, consensus::deserialize};
use digest::sha256::sha256;
use engine::{
    blocks::{HashAt, ReadBlocksOptions, SpendsOptions},
    history::{
        HistoryConsumer, HistoryEntry, HistoryRange, HistoryReport, HistorySink, ReadHistoryOptions,
        ScriptHistory,
    },
};

/// An entry: height, index of the transaction, 0 for an input, index, txid, time, amount, balance.
type Entry = (u32, u32, u8, u32, [u8; 32], u32, i64, i64);

/// A script and its entries, by the hash of the script.
type History = BTreeMap<[u8; 32], (Vec<u8>, Vec<Entry>)>;

/// Keeps what it is given.
#[derive(Default)]
struct Kept {
    history: Mutex<History>,
    /// Hexadecimal digits of a bucket.
    digits: u32,
    /// Set when a bucket begins.
    interrupt: Option<&'static AtomicBool>,
}

struct Bucket<'a> {
    kept: &'a Kept,
    number: u32,
    entries: Vec<Entry>,
    last: Option<[u8; 32]>,
}

impl HistoryConsumer for Kept {
    fn begin_bucket(&self, number: u32) -> Result<Box<dyn HistorySink + '_>, Error> {
        self.interrupt.iter().for_each(|interrupt| interrupt.store(true, Ordering::Relaxed));
        Ok(Box::new(Bucket { kept: self, number, entries: Vec::new(), last: None }))
    }
}

impl HistorySink for Bucket<'_> {
    fn entry(&mut self, entry: &HistoryEntry) -> Result<(), Error> {
        let first = u32::from_be_bytes(*entry.script_hash.first_chunk().unwrap());
        assert_eq!(first >> (32 - 4 * self.kept.digits), self.number);
        assert!(self.last.is_none_or(|last| last < entry.script_hash), "scripts are in order");
        self.entries.push((
            entry.height.0,
            entry.tx_index,
            u8::from(!entry.is_input),
            entry.index,
            entry.txid.0,
            entry.block_time.0,
            entry.amount.0,
            entry.balance.0,
        ));
        Ok(())
    }

    fn script(&mut self, script: &ScriptHistory) -> Result<(), Error> {
        let entries = std::mem::take(&mut self.entries);
        let (first, last) = (entries.first().unwrap(), entries.last().unwrap());
        assert_eq!((script.first_height.0, script.balance.0), (first.0, last.7));
        assert_eq!((script.rows, script.script_hash), (entries.len() as u64, sha256(&script.script)));
        self.last = Some(script.script_hash);
        let history = &mut self.kept.history.lock().unwrap();
        assert!(history.insert(script.script_hash, (script.script.clone(), entries)).is_none());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        assert!(self.entries.is_empty());
        Ok(())
    }
}

fn of(chain: ChainOptions) -> ReadHistoryOptions {
    ReadHistoryOptions { chain, prefix_digits: None, prefixes: None, sink_bytes: 0 }
}

fn read_watched(
    options: &ReadHistoryOptions,
    kept: Kept,
    watch: Watch<'_>,
) -> Result<(HistoryReport, Kept), Error> {
    let begin = |range: &HistoryRange, _: &HashAt<'_>| Ok(Kept { digits: range.prefix_digits, ..kept });
    engine::history::read(&FaultDisk::healthy(), options, begin, watch)
}

fn read(options: &ReadHistoryOptions, kept: Kept) -> Result<(HistoryReport, History), Error> {
    let interrupt = kept.interrupt.unwrap_or(unwatched().interrupt);
    let (report, kept) = read_watched(options, kept, quiet(interrupt))?;
    let found = kept.history.into_inner().unwrap();
    let rows: usize = found.values().map(|(_, entries)| entries.len()).sum();
    assert_eq!((report.rows, report.scripts), (rows as u64, found.len() as u64));
    Ok((report, found))
}

/// The history of all scripts, found naively by another library, up to a height.
fn naive(chain: &Chain, to: u32) -> History {
    let mut history = History::new();
    let mut created: BTreeMap<bitcoin::OutPoint, (Vec<u8>, i64)> = BTreeMap::new();
    for (block, height) in chain.main().zip(0..=to) {
        let block: Block = deserialize(&block.bytes).unwrap();
        let time = block.header.time;
        for (tx, tx_index) in block.txdata.iter().zip(0..) {
            let txid = tx.compute_txid();
            let mut add = |script: &[u8], kind: u8, index: u32, amount: i64| {
                let (_, entries) =
                    history.entry(sha256(script)).or_insert_with(|| (script.to_vec(), Vec::new()));
                let balance = entries.last().map_or(0, |last: &Entry| last.7) + amount;
                entries.push((height, tx_index, kind, index, *txid.as_ref(), time, amount, balance));
            };
            for (input, index) in tx.input.iter().zip(0..).filter(|_| tx_index > 0) {
                let (script, amount) = created.remove(&input.previous_output).unwrap();
                add(&script, 0, index, -amount);
            }
            for (output, vout) in tx.output.iter().zip(0..).filter(|_| height > 0) {
                let (script, amount) = (output.script_pubkey.to_bytes(), output.value.to_sat() as i64);
                if script.first() != Some(&0x6a) && script.len() <= 10_000 {
                    add(&script, 1, vout, amount);
                    created.insert(bitcoin::OutPoint { txid, vout }, (script, amount));
                }
            }
        }
    }
    history
}

#[test]
fn it_is_what_a_naive_program_finds_with_any_number_of_threads_and_any_memory() {
    let case = Case::new();
    let before = tree(case.root());
    // The chainstate is three blocks behind.
    let work = scratch();
    let model = stats_by_height(chain());
    for (to, is_chainstate) in [(TIP - 3, true), (TIP - 40, false)] {
        let expected = naive(chain(), to);
        let most = expected.values().map(|(_, entries)| entries.len()).max().unwrap();
        assert!(expected.len() > 50 && most > 4, "{} scripts, {most} entries", expected.len());
        for threads in THREADS {
            // All in memory, in one run for each bucket, and in many.
            for (spilled, digits) in [(None, None), (Some(20_000), Some(3)), (Some(1), Some(1))] {
                let mut options = of(case.options().chain);
                options.chain.threads = NonZeroUsize::new(threads).unwrap();
                options.chain.work_dir = Some(work.path().to_owned());
                options.chain.hooks.join_bytes = spilled;
                options.chain.stop_at_height = (!is_chainstate).then_some(Height(to));
                options.prefix_digits = digits;
                let (report, found) = read(&options, Kept::default()).unwrap();
                assert!(found == expected, "{to}, {threads} threads, {spilled:?}");
                assert_eq!((report.range.to, report.is_chainstate), (Height(to), is_chainstate));
                let stats = &model[to as usize];
                assert_eq!((report.coins, report.total_amount.0), (stats.txouts, stats.total_amount as i64));
                assert!(leftovers(work.path()).is_empty());
            }
        }
    }
    assert_same_tree(&before, case.root(), "reading");
}

#[test]
fn the_scripts_of_some_prefixes_are_a_part_of_all() {
    let case = Case::new();
    let mut options = of(case.options().chain);
    let (all, whole) = read(&options, Kept::default()).unwrap();
    options.prefix_digits = Some(2);
    let (mut together, mut coins) = (History::new(), 0);
    for prefixes in [0..=0, 1..=0x7e, 0x7f..=0xff] {
        options.prefixes = Some(prefixes.clone());
        let (report, found) = read(&options, Kept::default()).unwrap();
        assert!(found.keys().all(|hash| prefixes.contains(&hash[0].into())), "{prefixes:?}");
        assert!(report.is_chainstate && report.muhash != all.muhash);
        coins += report.coins;
        together.extend(found);
    }
    assert!(together == whole && coins == all.coins);
    // Once, the sum overflowed.
    read(&ReadHistoryOptions { sink_bytes: u64::MAX, ..of(case.options().chain) }, Kept::default()).unwrap();
    for (first, last) in [(5, 256), (6, 5)] {
        options.prefixes = Some(first..=last);
        assert_eq!(read(&options, Kept::default()).unwrap_err().kind, ErrorKind::Usage);
    }
}

#[test]
fn of_cores_datadirs_it_leaves_the_coins_of_the_chainstate() {
    for (name, network) in CORE_DATADIRS {
        let Some(dir) = unpack_core_datadir(name) else { return };
        let chain = ChainOptions::new(dir.path(), network, ScriptChecks::LeftOut);
        let (report, found) =
            read(&of(chain), Kept::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(report.is_chainstate && report.coins > 0, "{name}");
        let left: i64 = found.values().filter_map(|(_, entries)| Some(entries.last()?.7)).sum();
        assert_eq!(left, report.total_amount.0, "{name}");
    }
}

#[test]
fn false_undo_data_is_refused() {
    let spec = ChainSpec { blocks: Some(140), stale: false, ..ChainSpec::new(5, 200_000) };
    for (what, chain, at, _) in falsified(&Chain::generate(&spec)) {
        let dir = datadir_of(&chain);
        for threads in THREADS {
            let mut options = of(options(dir.path()).chain);
            options.chain.threads = NonZeroUsize::new(threads).unwrap();
            let error = read(&options, Kept::default()).map(drop).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
            assert_eq!(error.height, Some(Height(chain.blocks[at].height)), "{what}: {error}");
            let is_block = error.block_hash == Some(chain.blocks[at].hash);
            assert!(is_block && error.txid.is_some(), "{what}: {error}");
            // An amount that no coin can have is found when it is read.
            let is_early = what == "amount, beyond all money";
            assert_offers(&error, &[if is_early { Remedy::MakeUndo } else { Remedy::Verify }]);
        }
        assert!(leftovers(dir.path()).is_empty());
    }
}

#[test]
fn a_chainstate_with_other_coins_is_refused() {
    let case = Case::new();
    run(&trusting(&case.options())).unwrap();
    let mut coins = stored_coins(&case);
    coins.pop();
    rewrite_chainstate(&case, coins);
    let done = read(&of(case.options().chain), Kept::default());
    let error = assert_fails(done, ErrorKind::Damaged, &["the chainstate has other coins", "its muhash is"]);
    assert_offers(&error, &[Remedy::Verify, Remedy::RebuildChainstate]);
}

/// Once, the chainstate of a chain that ends between two equal coinbases was called damaged.
#[test]
fn a_coinbase_that_is_repeated_above_the_last_block_has_coins() {
    const FIRST: u32 = 3;
    const LAST: u32 = 50;
    let mut chain = chain().clone();
    chain.blocks.retain(|block| !block.stale && block.height <= LAST);
    let first = chain.blocks[FIRST as usize].clone();
    let made: Block = deserialize(&first.bytes).unwrap();
    let repeat = with_coinbase(&chain.blocks[LAST as usize], &made.txdata[0]);
    let plain = ChainParams::of(Network::Regtest).with_heights(&[(BuriedDeployment::Bip34, Height(10_000))]);
    let params: &'static ChainParams = Box::leak(Box::new(ChainParams {
        bip30_exceptions: Vec::leak(vec![(Height(LAST + 1), repeat.hash)]),
        overwritten_coinbases: Vec::leak(vec![(Height(FIRST), first.hash)]),
        ..*plain
    }));
    let mut coins = Vec::new();
    for above in [None, Some(repeat)] {
        chain.blocks.extend(above);
        let dir = datadir_of(&chain);
        let options = changed(options(dir.path()), |it| it.chain.params = params);
        run(&options).unwrap();
        assert!(read(&of(options.chain.clone()), Kept::default()).unwrap().0.is_chainstate);
        let part = of(up_to(options, LAST).chain);
        coins.push(read(&part, Kept::default()).unwrap().0.muhash);
        let spends = Some(SpendsOptions { to: Some(Height(LAST)), with_txids: false });
        let (from, with_coins, chain) = (Height(0), false, part.chain);
        let outputs = ReadBlocksOptions { chain, from, with_coins, spends, part_blocks: 7 };
        let (range, _) = spending_inputs::read(&outputs).unwrap();
        coins.push(range.spent_to.unwrap().unspent.unwrap().muhash);
    }
    assert!(coins.iter().all(|muhash| *muhash == coins[0]), "of the same blocks");
}

#[test]
fn an_interrupt_ends_it_and_leaves_nothing() {
    static INTERRUPT: AtomicBool = AtomicBool::new(false);
    let (case, work) = (Case::new(), scratch());
    let mut options = of(case.options().chain);
    options.chain.work_dir = Some(work.path().to_owned());
    options.chain.hooks.join_bytes = Some(1);
    let done = read(&options, Kept { interrupt: Some(&INTERRUPT), ..Kept::default() });
    assert_fails(done, ErrorKind::Interrupted, &[]);
    // Once, nothing was seen of this one.
    assert_shown_and_interrupted(Stage::Prove, |watch| read_watched(&options, Kept::default(), watch));
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    options.prefix_digits = Some(4);
    assert_eq!(read(&options, Kept::default()).map(drop).unwrap_err().kind, ErrorKind::Usage);
}
