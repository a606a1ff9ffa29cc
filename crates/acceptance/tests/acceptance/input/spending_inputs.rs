//! The inputs that spend outputs: those that another library finds in the blocks, or an error.

use acceptance::prelude::*;
use bitcoin::consensus::deserialize;
use engine::blocks::{
    BlockConsumer, BlockData, BlockRange, PartConsumer, ReadBlocksOptions, SpendingInput, SpendsOptions,
    UnspentOutputs,
};
use std::ops::RangeInclusive;

/// Height of the last block of a case: its chainstate is three blocks behind.
const LAST: u32 = TIP - 3;

/// By which input each output is spent.
type Spends = BTreeMap<(u32, u32, u32), Option<SpendingInput>>;

/// Keeps what it is given.
#[derive(Default)]
struct Kept {
    spends: Mutex<Spends>,
    /// A part that is not needed.
    without: Option<u32>,
    /// Set at the first block.
    interrupt: Option<&'static AtomicBool>,
}

struct Part<'a>(&'a Kept, Spends);

impl BlockConsumer for Kept {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let is_needed = self.without != Some(*heights.start());
        Ok(is_needed.then(|| Box::new(Part(self, Spends::new())) as _))
    }
}

impl PartConsumer for Part<'_> {
    fn block(&mut self, data: &BlockData<'_>) -> Result<(), Error> {
        self.0.interrupt.iter().for_each(|interrupt| interrupt.store(true, Ordering::Relaxed));
        let txs = data.block.txs().zip(0..);
        let outputs = txs.flat_map(|(tx, index)| tx.outputs().zip(0..).map(move |(_, vout)| (index, vout)));
        assert_eq!(data.spent_by.len(), data.block.output_count());
        let height = data.height.0;
        self.1.extend(outputs.zip(data.spent_by).map(|((tx, vout), input)| ((height, tx, vout), *input)));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.0.spends.lock().unwrap().extend(self.1);
        Ok(())
    }
}

/// What the blocks of a chain say, read by another library: the outputs of blocks up to `to`, and the inputs
/// of those up to `spent_to`.
fn naive(chain: &Chain, from: u32, to: u32, spent_to: u32) -> Spends {
    let blocks: Vec<bitcoin::Block> = chain.main().map(|block| deserialize(&block.bytes).unwrap()).collect();
    let mut spent = HashMap::new();
    for (block, height) in blocks.iter().zip(0..=spent_to) {
        for (tx, tx_index) in block.txdata.iter().zip(0..).skip(1) {
            let txid = Some(Txid(*AsRef::<[u8; 32]>::as_ref(&tx.compute_txid())));
            for (input, input_index) in tx.input.iter().zip(0..) {
                let by = SpendingInput { height: Height(height), tx_index, input_index, txid };
                assert!(spent.insert(input.previous_output, by).is_none());
            }
        }
    }
    let mut spends = Spends::new();
    for (block, height) in blocks.iter().zip(0..=to).filter(|(_, height)| *height >= from) {
        for (tx, tx_index) in block.txdata.iter().zip(0..) {
            let txid = tx.compute_txid();
            for vout in 0..tx.output.len() as u32 {
                let by = spent.get(&bitcoin::OutPoint { txid, vout }).copied();
                spends.insert((height, tx_index, vout), by);
            }
        }
    }
    spends
}

fn options(case: &Case) -> ReadBlocksOptions {
    ReadBlocksOptions {
        chain: case.options().chain,
        from: Height(0),
        with_coins: false,
        spends: Some(SpendsOptions { to: None, with_txids: true }),
        part_blocks: 7,
    }
}

fn read_on(disk: &FaultDisk, options: &ReadBlocksOptions, kept: Kept) -> Result<(BlockRange, Spends), Error> {
    let interrupt = kept.interrupt.unwrap_or(unwatched().interrupt);
    let (range, kept) = engine::blocks::read(disk, options, |_, _| Ok(kept), quiet(interrupt))?;
    Ok((range, kept.spends.into_inner().unwrap()))
}

/// Reads all blocks and what spends their outputs.
pub fn read(options: &ReadBlocksOptions) -> Result<(BlockRange, Spends), Error> {
    read_on(&FaultDisk::healthy(), options, Kept::default())
}

fn unspent(range: &BlockRange) -> Option<UnspentOutputs> {
    range.spent_to.unwrap().unspent
}

#[test]
fn each_output_has_the_input_that_spends_it() {
    let case = Case::new();
    let expected = naive(chain(), 0, LAST, LAST);
    assert!(expected.values().flatten().count() > 500 && expected.values().any(Option::is_none));
    let stats = acceptance::stats(case.root(), engine::Network::Regtest).unwrap();
    for threads in THREADS {
        // In memory, and with a file from the first records on.
        for join_bytes in [None, Some(2_000), Some(0)] {
            for part_blocks in [7, 1_000] {
                let work = scratch();
                let mut options = ReadBlocksOptions { part_blocks, ..options(&case) };
                options.chain.threads = NonZeroUsize::new(threads).unwrap();
                options.chain.hooks.join_bytes = join_bytes;
                options.chain.work_dir = Some(work.path().to_owned());
                let disk = FaultDisk::interrupting_at_file(0);
                let (range, found) = read_on(&disk, &options, Kept::default()).unwrap();
                assert!(found == expected, "{threads} threads, {join_bytes:?}, {part_blocks}");
                assert_eq!(disk.has_failed(), join_bytes.is_some(), "temporary files");
                assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
                let set = unspent(&range).unwrap();
                assert_eq!((set.coins, set.total_amount), (stats.txouts, stats.total_amount));
                assert_eq!(Some(set.muhash), stats.muhash, "the UTXO set");
            }
        }
    }
}

#[test]
fn outputs_of_some_blocks_are_spent_by_later_ones_too() {
    let case = Case::new();
    for (from, to, spent_to) in [(0, 60, 60), (0, 60, 90), (30, 60, LAST), (LAST, LAST, LAST)] {
        let mut options = ReadBlocksOptions { from: Height(from), ..options(&case) };
        options.chain.stop_at_height = Some(Height(to));
        options.spends = Some(SpendsOptions { to: Some(Height(spent_to)), with_txids: true });
        let (range, found) = read(&options).unwrap();
        assert!(found == naive(chain(), from, to, spent_to), "{from}, {to}, {spent_to}");
        let last = range.spent_to.unwrap();
        assert_eq!(last.hash, block_at(spent_to).hash);
        assert_eq!((last.height, last.unspent.is_some()), (Height(spent_to), from == 0 && to == spent_to));
    }
    let mut options = options(&case);
    options.spends = Some(SpendsOptions { to: None, with_txids: false });
    let (_, found) = read(&options).unwrap();
    let without = |mut spends: Spends| {
        spends.values_mut().flatten().for_each(|input| input.txid = None);
        spends
    };
    assert!(found == without(naive(chain(), 0, LAST, LAST)));
    let kept = Kept { without: Some(14), ..Kept::default() };
    let (range, found) = read_on(&FaultDisk::healthy(), &options, kept).unwrap();
    assert!(unspent(&range).is_none() && found.keys().all(|(height, ..)| !(14..21).contains(height)));
    for (to, spent_to) in [(60, 59), (60, LAST + 1)] {
        options.chain.stop_at_height = Some(Height(to));
        options.spends = Some(SpendsOptions { to: Some(Height(spent_to)), with_txids: false });
        let done = read(&options);
        assert_fails(done, ErrorKind::Usage, &["whose inputs are looked at", &format!("not {spent_to}")]);
    }
}

#[test]
fn false_undo_data_is_found() {
    for (what, falsified, at, tx) in acceptance::lies::falsified(chain()) {
        let dir = datadir_of(&falsified);
        for (threads, part_blocks) in [(1, 7), (8, 1_000)] {
            let mut chain: ChainOptions = acceptance::options(dir.path()).chain;
            chain.threads = NonZeroUsize::new(threads).unwrap();
            let spends = Some(SpendsOptions { to: None, with_txids: true });
            let (from, with_coins) = (Height(0), false);
            let options = ReadBlocksOptions { chain, from, with_coins, spends, part_blocks };
            let error = read(&options).map(|(range, _)| range).expect_err(what);
            let block = &falsified.blocks[at];
            assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
            let place = (Some(Height(block.height)), Some(block.hash));
            assert_eq!((error.height, error.block_hash), place, "{what}");
            let parsed: bitcoin::Block = deserialize(&block.bytes).unwrap();
            let txid = parsed.txdata[tx + 1].compute_txid();
            assert_eq!(error.txid.map(|txid| txid.to_string()), Some(txid.to_string()), "{what}: {error}");
            assert!(error.file.as_ref().unwrap().to_string_lossy().contains("rev000"), "{what}: {error}");
            assert!(error.remedies.contains(&Remedy::MakeUndo), "{what}: {error}");
        }
    }
}

#[test]
fn an_interrupt_or_a_full_disk_leaves_no_temporary_files() {
    static INTERRUPT: AtomicBool = AtomicBool::new(false);
    let case = Case::new();
    let work = scratch();
    let mut options = options(&case);
    options.chain.hooks.join_bytes = Some(0);
    options.chain.work_dir = Some(work.path().to_owned());
    let kept = Kept { interrupt: Some(&INTERRUPT), ..Kept::default() };
    assert_fails(read_on(&FaultDisk::healthy(), &options, kept), ErrorKind::Interrupted, &[]);
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    // In the first pass, when the temporary file is created.
    let disk = FaultDisk::interrupting_at_file(0);
    let done = engine::blocks::read(&disk, &options, |_, _| Ok(Kept::default()), quiet(disk.interrupt()));
    assert_eq!(done.map(drop).unwrap_err().kind, ErrorKind::Interrupted);
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    let done = read_on(&FaultDisk::full_after(10_000), &options, Kept::default());
    assert_offers(&assert_fails(done, ErrorKind::Environment, &[]), &[Remedy::OtherWorkDir]);
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
}

#[test]
fn the_space_of_temporary_files_is_announced() {
    let case = Case::new();
    for (join_bytes, is_announced) in [(None, false), (Some(1_000), true)] {
        let mut options = options(&case);
        options.chain.hooks.join_bytes = join_bytes;
        let notes = Mutex::new(Vec::new());
        let sink = |event: Event| {
            if let Event::Note(Note::DiskNeed(need)) = event {
                notes.lock().unwrap().push(need);
            }
        };
        let watch = Watch { sink: &sink, ..unwatched() };
        engine::blocks::read(&FaultDisk::healthy(), &options, |_, _| Ok(Kept::default()), watch).unwrap();
        let notes = notes.into_inner().unwrap();
        assert_eq!(notes.len(), usize::from(is_announced));
        assert!(notes.iter().all(|need| need.temporary > 1_000 && need.chainstate == 0));
    }
}
