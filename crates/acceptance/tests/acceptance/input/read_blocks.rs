//! The blocks of a chain on disk, given to a consumer in parts: all of them, with their coins, or an error.

use acceptance::{assert_names, prelude::*};
use engine::blocks::{BlockConsumer, BlockData, BlockRange, BlockStats, PartConsumer, ReadBlocksOptions};
use std::{ops::RangeInclusive, sync::atomic::AtomicUsize};

/// What the consumer was given of a block.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    hash: [u8; 32],
    bytes: Vec<u8>,
    stats: BlockStats,
    coins: usize,
    txids: usize,
}

/// Keeps what it is given, by part.
#[derive(Default)]
struct Kept {
    parts: Mutex<BTreeMap<u32, Vec<(u32, Seen)>>>,
    /// A part that is not needed.
    without: Option<u32>,
    /// Set when a part begins.
    interrupt: Option<&'static AtomicBool>,
}

struct Part<'a> {
    kept: &'a Kept,
    heights: RangeInclusive<u32>,
    blocks: Vec<(u32, Seen)>,
}

impl BlockConsumer for Kept {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        self.interrupt.iter().for_each(|interrupt| interrupt.store(true, Ordering::Relaxed));
        let is_needed = self.without != Some(*heights.start());
        Ok(is_needed.then(|| Box::new(Part { kept: self, heights, blocks: Vec::new() }) as _))
    }
}

impl PartConsumer for Part<'_> {
    fn block(&mut self, data: &BlockData<'_>) -> Result<(), Error> {
        let bytes = data.block.bytes().to_vec();
        let (coins, txids) = (data.coins.len(), data.txids.len());
        let seen = Seen { hash: data.hash.0, bytes, stats: BlockStats::of(data), coins, txids };
        self.blocks.push((data.height.0, seen));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let first = *self.heights.start();
        assert!(self.blocks.iter().map(|(height, _)| *height).eq(self.heights));
        assert!(self.kept.parts.lock().unwrap().insert(first, self.blocks).is_none());
        Ok(())
    }
}

fn options(case: &Case) -> ReadBlocksOptions {
    ReadBlocksOptions {
        chain: case.options().chain,
        from: Height(0),
        with_coins: true,
        spends: None,
        part_blocks: 7,
    }
}

fn read(options: &ReadBlocksOptions, kept: Kept) -> Result<(BlockRange, Kept), Error> {
    let interrupt = kept.interrupt.unwrap_or(unwatched().interrupt);
    engine::blocks::read(&FaultDisk::healthy(), options, |_, _| Ok(kept), quiet(interrupt))
}

fn blocks(kept: Kept) -> Vec<(u32, Seen)> {
    kept.parts.into_inner().unwrap().into_values().flatten().collect()
}

#[test]
fn all_blocks_are_given_with_what_they_spend() {
    let case = Case::new();
    let before = tree(case.root());
    // The chainstate is three blocks behind; a scan does not end there by itself.
    let main: Vec<&GeneratedBlock> = chain().main().take(TIP as usize - 2).collect();
    let (mut first, last) = (None, main.last().unwrap());
    for (threads, part_blocks, scan) in
        [(1, 7, false), (3, 7, false), (3, 7, true), (4, 1_000, false), (1, 0, false)]
    {
        let mut options = options(&case);
        options.chain.threads = NonZeroUsize::new(threads).unwrap();
        (options.part_blocks, options.chain.scan) = (part_blocks, scan);
        options.chain.stop_at_height = scan.then_some(Height(last.height));
        let (range, kept) = read(&options, Kept::default()).unwrap();
        assert_eq!((range.from, range.to, range.last), (Height(0), Height(last.height), last.hash));
        let found = blocks(kept);
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{threads} threads, {part_blocks}");
    }
    assert_same_tree(&before, case.root(), "reading");
    let found = first.unwrap();
    assert!(found.iter().map(|(_, seen)| &seen.bytes).eq(main.iter().map(|block| &block.bytes)));
    let model = Model::of(main.iter().copied());
    // What the blocks say of the set amounts to the set.
    let sum = |of: fn(&BlockStats) -> i64| found.iter().map(|(_, seen)| of(&seen.stats)).sum::<i64>();
    assert_eq!(sum(|stats| stats.utxo_increase_actual), model.coins.len() as i64);
    let size = |script: &Vec<u8>| 8 + if script.len() < 0xfd { 1 } else { 3 } + script.len() as i64 + 40;
    let sizes: i64 = model.coins.values().map(|coin| size(&coin.script)).sum();
    assert_eq!(sum(|stats| stats.utxo_size_inc_actual), sizes);
    for (height, Seen { stats, coins, txids, .. }) in found {
        assert_eq!((coins as i64, txids as i64), (stats.ins, stats.txs), "{height}");
        assert!(stats.minfee <= stats.medianfee && stats.medianfee <= stats.maxfee, "{stats:?}");
        assert!(stats.totalfee >= stats.maxfee && stats.feerate_percentiles.is_sorted(), "{stats:?}");
    }
}

#[test]
fn a_range_is_given_in_parts_and_needs_no_undo_data_without_coins() {
    let case = Case::new();
    let mut options = ReadBlocksOptions { from: Height(10), ..options(&case) };
    options.chain.stop_at_height = Some(Height(30));
    let (_, kept) = read(&options, Kept { without: Some(14), ..Kept::default() }).unwrap();
    let parts = kept.parts.into_inner().unwrap();
    let of = |first: u32| parts.get(&first).map(Vec::len);
    // Parts begin at multiples of seven; that of 14 to 20 was not needed.
    assert_eq!([10, 14, 21, 28].map(of), [Some(4), None, Some(7), Some(3)]);
    let hash = block_at(20).hash;
    case.forget_undo(|entry| entry.hash == hash);
    let error = read(&options, Kept::default()).map(drop).unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(20))), "{error}");
    assert_offers(&error, &[Remedy::MakeUndo]);
    assert_eq!(error.file, Some(rev(&case, &entry(&case, 20))));
    options.with_coins = false;
    assert_eq!(blocks(read(&options, Kept::default()).unwrap().1).len(), 21);
    options.from = Height(31);
    assert_eq!(read(&options, Kept::default()).map(drop).unwrap_err().kind, ErrorKind::Usage);
    options.chain.stop_at_height = Some(Height(TIP));
    assert_says(read(&options, Kept::default()), &["no blocks from 31", "ends at height"]);
}

#[test]
fn damage_is_named_and_no_part_with_it_is_finished() {
    for threads in [1, 3] {
        let case = Case::new();
        let mut options = options(&case);
        options.chain.threads = NonZeroUsize::new(threads).unwrap();
        case.flip_undo(40);
        let error = assert_fails(read(&options, Kept::default()), ErrorKind::Damaged, &[]);
        assert_names(&error, &rev(&case, &entry(&case, 40)), 40);
        assert_offers(&error, &[Remedy::MakeUndo]);
        // So does a record whose frame is damaged.
        let lower = entry(&case, 39);
        overwrite(&rev(&case, &lower), lower.undo_pos.unwrap().0 - 8, &[0x55; 4]).unwrap();
        let error = read(&options, Kept::default()).map(drop).unwrap_err();
        assert_names(&error, &rev(&case, &lower), 39);
        assert_offers(&error, &[Remedy::MakeUndo]);
        // A lower block counts first.
        case.flip_block(37, 90);
        let error = read(&options, Kept::default()).map(drop).unwrap_err();
        assert_names(&error, &blk(&case, &entry(&case, 37)), 37);
    }
}

/// Once, such amounts were given out, and sums of them wrapped around.
#[test]
fn undo_data_that_claims_more_than_all_money_is_refused() {
    for claimed in [2_100_000_100_000_000, 9_000_000_000_000_000_000] {
        let mut lying = chain().clone();
        let block = lying.blocks.iter_mut().find(|block| !block.stale && block.txs > 1).unwrap();
        falsify_claim(block, |_| (0, 0), |_, amount, _| *amount = claimed);
        let place = (Some(Height(block.height)), Some(block.hash));
        let case = Case::of(datadir_of(&lying));
        let done = read(&options(&case), Kept::default());
        let error = assert_fails(done, ErrorKind::Damaged, &["claimed as spent by transaction 1"]);
        assert_eq!((error.height, error.block_hash), place, "{error}");
        assert!(error.txid.is_some(), "{error}");
        assert_offers(&error, &[Remedy::MakeUndo]);
    }
}

/// Programs once had to find Core's reject string in the text of the error.
#[test]
fn a_block_that_does_not_match_its_header_has_cores_reject_string() {
    let case = Case::new();
    case.flip_block(37, block_at(37).bytes.len() as u64 - 1);
    let error = read(&options(&case), Kept::default()).map(drop).unwrap_err();
    assert_eq!((error.kind, error.rule), (ErrorKind::Damaged, None), "{error}");
    assert_eq!(error.core.as_deref(), Some("bad-txnmrklroot"), "{error}");
    assert_eq!(error.to_string().matches("bad-txnmrklroot").count(), 1, "{error}");
}

/// A consumer that panicked once ended the process: the scope panicked, instead of an error being returned.
/// The parts that others have then are their last ones.
#[test]
fn a_consumer_that_panics_leads_to_an_error() {
    struct Panics<'a>(&'a AtomicUsize);
    impl BlockConsumer for Panics<'_> {
        fn begin_part(&self, at: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(*at.start() > 0, "the consumer panics, as this test expects");
            // The first part has panicked before this one ends.
            thread::sleep(Duration::from_millis(300));
            Ok(None)
        }
    }
    let begun = &AtomicUsize::new(0);
    for threads in [1, 2, 4] {
        let case = Case::new();
        let mut options = options(&case);
        options.chain.threads = NonZeroUsize::new(threads).unwrap();
        let error =
            engine::blocks::read(&FaultDisk::healthy(), &options, |_, _| Ok(Panics(begun)), unwatched());
        let error = error.map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal, "{threads} threads: {error}");
        assert_mentions(&error, &["panicked"]);
        assert!(begun.swap(0, Ordering::Relaxed) <= threads);
    }
}

#[test]
fn an_interrupt_ends_it() {
    static INTERRUPT: AtomicBool = AtomicBool::new(false);
    let case = Case::new();
    let error = read(&options(&case), Kept { interrupt: Some(&INTERRUPT), ..Kept::default() });
    assert_eq!(error.map(drop).unwrap_err().kind, ErrorKind::Interrupted);
}
