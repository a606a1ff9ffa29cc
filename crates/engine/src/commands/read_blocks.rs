//! Gives the blocks of a chain on disk to the caller, with the coins that they spend, in parts of the chain.
//!
//! Each block is checked as far as that is possible by itself, and its undo data by its checksum. That the
//! coins in it are the right ones is what [`crate::verify()`] proves.

mod block_stats;

pub use block_stats::BlockStats;

#[cfg(feature = "serde")]
use api::json::{JsonSchema, Serialize};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink, Progress, Watch},
    options::ChainOptions,
    remedy::Remedy,
    stage::Stage,
};
use chain::{
    blocks::{
        block_hashes::BlockHashes,
        damage::{Damage, UndoDefect},
    },
    plan::{existing_state::ExistingState, planner::Plan},
    session::Session,
    threads::{join_all, lock, spawn},
};
use disk::{
    block_files::RecordBuffer,
    datadir::FileKind,
    undo::{CHECKSUM_LEN, UndoArena},
};
use pipeline::{
    job,
    stages::{check::claims_of, read::BlockReader},
};
use rules::{ChainParams, SpentCoin};
use std::{
    ops::RangeInclusive,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};
use vfs::Disk;
use wire::{BlockArena, BlockHash, BlockTime, BlockView, Height, Network, TxView, Txid, Wtxid};

/// Number of blocks after which progress is reported.
const PROGRESS_BLOCKS: u32 = 32;

/// Which blocks [`read_blocks`] gives to the caller.
#[derive(Clone, Debug)]
pub struct ReadBlocksOptions {
    /// The blocks. Their number of threads is that of the parts that are read at the same time.
    pub chain: ChainOptions,
    /// Find blocks and undo data by scanning their files.
    pub scan: bool,
    /// The first block.
    pub from: Height,
    /// The last block; `None`: the last one of the chain.
    pub to: Option<Height>,
    /// Also give the coins that the blocks spend, for which undo data is needed.
    pub with_coins: bool,
    /// Number of blocks of a part. Parts begin at its multiples.
    pub part_blocks: u32,
}

/// The blocks that [`read_blocks`] gives to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, JsonSchema))]
pub struct BlockRange {
    /// Their network.
    #[cfg_attr(feature = "serde", serde(rename = "chain"))]
    pub network: Network,
    /// The first block.
    #[cfg_attr(feature = "serde", serde(rename = "from_height"))]
    pub from: Height,
    /// The last block.
    #[cfg_attr(feature = "serde", serde(rename = "to_height"))]
    pub to: Height,
    /// Hash of the last block.
    #[cfg_attr(feature = "serde", serde(rename = "block_hash"))]
    pub last: BlockHash,
}

/// A block, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct BlockData<'a> {
    /// The rules of its network.
    pub params: &'static ChainParams,
    /// Its height.
    pub height: Height,
    /// Its hash.
    pub hash: BlockHash,
    /// The median of its time and those of the ten blocks below (Core `GetMedianTimePast`).
    pub median_time: BlockTime,
    /// The block.
    pub block: &'a BlockView<'a>,
    /// The id of each transaction.
    pub txids: &'a [Txid],
    /// The wtxid of each transaction if any has a witness; otherwise empty. That of the coinbase is zero in
    /// the commitment, but not here.
    pub wtxids: &'a [Wtxid],
    /// The coins that its inputs spend, in the order of the inputs, without the coinbase's. Empty if they
    /// were not asked for.
    pub coins: &'a [SpentCoin<'a>],
}

impl<'a> BlockData<'a> {
    /// Returns each transaction with the coins that it spends, if coins were asked for. The coinbase spends
    /// none.
    pub fn txs(&self) -> impl Iterator<Item = (TxView<'a>, &'a [SpentCoin<'a>])> {
        let mut coins = self.coins;
        self.block.txs().zip(0..).map(move |(tx, index)| {
            let count = if index == 0 { 0 } else { tx.input_count() };
            let (own, others) = coins.split_at_checked(count).unwrap_or_default();
            coins = others;
            (tx, own)
        })
    }
}

/// What takes the parts of a range of blocks, on several threads.
pub trait BlockConsumer: Sync {
    /// Begins the part with the blocks at these heights. Returns `None` if it is not needed.
    ///
    /// # Errors
    /// What makes the whole result useless.
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error>;
}

/// What takes the blocks of a part, in order of height.
pub trait PartConsumer {
    /// Takes a block.
    ///
    /// # Errors
    /// What makes the whole result useless.
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error>;

    /// The part has no more blocks.
    ///
    /// # Errors
    /// What makes the whole result useless.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// Reads blocks of the chain up to the chainstate's best block, or, without a chainstate, of the most-work
/// chain on disk, and gives them to the consumer that `begin` returns. Nothing is written.
///
/// # Errors
/// The same errors as [`crate::check_undo()`], also if undo data is needed and missing or damaged;
/// [`ErrorKind::Usage`] if the chain does not have the blocks; errors of the consumer;
/// [`ErrorKind::Interrupted`]; [`ErrorKind::Internal`] if the consumer panics. Of several errors, that of the
/// lowest part is returned.
pub fn read_blocks<C: BlockConsumer>(
    disk: &dyn Disk,
    options: &ReadBlocksOptions,
    begin: impl FnOnce(&BlockRange) -> Result<C, Error>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<(BlockRange, C), Error> {
    sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, &options.chain)?;
    let files = &session.files()?;
    let best = ExistingState::read(files, false)?.best_block;
    let plan =
        &job::plan_to_best_block(files, &options.chain, options.scan, best, Watch { sink, interrupt })?;
    let range = range_of(options, plan)?;
    let consumer = begin(&range)?;
    sink.event(Event::Started(Stage::Export));
    let parts = Parts {
        options,
        plan,
        range,
        reader: &BlockReader::new(&plan.chain, files),
        params: files.params,
        next: AtomicU32::new(range.from.0 / options.part_blocks),
        done: AtomicU32::new(0),
        failed: Mutex::default(),
        has_failed: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let work = || parts.work(&consumer, sink, interrupt);
        let threads = options.chain.threads.get();
        let workers: Vec<_> = (0..threads).map(|_| spawn(scope, "worker", work)).collect();
        join_all(workers).into_iter().collect::<Result<(), _>>()
    })?;
    match parts.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok((range, consumer)),
    }
}

fn range_of(options: &ReadBlocksOptions, plan: &Plan) -> Result<BlockRange, Error> {
    let (from, tip) = (options.from, plan.chain.tip_height());
    let to = options.to.unwrap_or(tip);
    if from > to || to > tip {
        let detail =
            format!("there are no blocks from {from} to {to}: the chain on disk ends at height {tip}");
        return Err(Error::new(ErrorKind::Usage, detail));
    }
    Ok(BlockRange { network: options.chain.params.network, from, to, last: plan.chain.block(to).hash })
}

/// What all workers share.
struct Parts<'a> {
    options: &'a ReadBlocksOptions,
    plan: &'a Plan,
    range: BlockRange,
    reader: &'a BlockReader<'a>,
    params: &'static ChainParams,
    /// Number of the next part.
    next: AtomicU32,
    /// Number of blocks that are done.
    done: AtomicU32,
    /// The error of the lowest part that has one.
    failed: Mutex<Option<(u32, Error)>>,
    has_failed: AtomicBool,
}

/// The buffers of a worker.
#[derive(Default)]
struct Buffers {
    block: RecordBuffer,
    undo: RecordBuffer,
    arena: BlockArena,
    undo_arena: UndoArena,
    hashes: BlockHashes,
}

/// Tells the other workers to stop if the consumer panics.
struct StopIfPanicking<'a>(&'a AtomicBool);

impl Drop for StopIfPanicking<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

impl Parts<'_> {
    fn work(&self, consumer: &impl BlockConsumer, sink: &dyn EventSink, interrupt: &AtomicBool) {
        let mut buffers = Buffers::default();
        let _stop_others = StopIfPanicking(&self.has_failed);
        while !self.has_failed.load(Ordering::Relaxed) {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            let first = part.saturating_mul(self.options.part_blocks).max(self.range.from.0);
            if first > self.range.to.0 {
                return;
            }
            let last = (part + 1).saturating_mul(self.options.part_blocks) - 1;
            let heights = first..=last.min(self.range.to.0);
            if let Err(error) = self.read_part(heights, consumer, &mut buffers, Watch { sink, interrupt }) {
                let failed = &mut *lock(&self.failed);
                if failed.as_ref().is_none_or(|(lowest, _)| part < *lowest) {
                    *failed = Some((part, error));
                }
                self.has_failed.store(true, Ordering::Relaxed);
            }
        }
    }

    fn read_part(
        &self,
        heights: RangeInclusive<u32>,
        consumer: &impl BlockConsumer,
        buffers: &mut Buffers,
        Watch { sink, interrupt }: Watch<'_>,
    ) -> Result<(), Error> {
        let Some(mut part) = consumer.begin_part(heights.clone())? else {
            self.done.fetch_add(heights.count() as u32, Ordering::Relaxed);
            return Ok(());
        };
        for height in heights {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
            self.read(Height(height), buffers, |block| part.block(block))?;
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(PROGRESS_BLOCKS) {
                self.progress(done, sink);
            }
        }
        part.finish()
    }

    /// Reads and checks a block.
    fn read(
        &self,
        height: Height,
        buffers: &mut Buffers,
        each: impl FnOnce(&BlockData<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (chain, located) = (&self.plan.chain, self.reader.located(height));
        let position = chain.block(height);
        let Buffers { block, undo, arena, undo_arena, hashes } = buffers;
        self.reader.read_block(height, block).map_err(|error| error.at_block(height, position.hash))?;
        undo.clear();
        let with_coins = self.options.with_coins && height.0 > 0;
        if with_coins {
            self.read_undo(height, undo)?;
        }
        let block = &located.parse(block.bytes(), arena)?;
        let undo = undo.bytes();
        let (undo_data, checksum) = undo.split_at(undo.len().saturating_sub(CHECKSUM_LEN));
        let checked = located.check_view(block, undo_data, hashes)?;
        checked.map_err(|violation| located.verdict(&violation, &hashes.txids))?;
        let claims = match with_coins {
            true => claims_of(block, undo_data, checksum, undo_arena, &hashes.undo_checksum),
            false => Ok(Vec::new()),
        };
        let coins = claims.and_then(|claims| {
            let coins = claims.iter().map(SpentCoin::from_coin).collect::<Result<Vec<_>, _>>();
            coins.map_err(UndoDefect::Coin)
        });
        let bad_undo = |defect| located.damaged(&Damage::Undo(defect)).with_remedies([Remedy::MakeUndo]);
        let coins = coins.map_err(bad_undo)?;
        each(&BlockData {
            params: self.params,
            height,
            hash: position.hash,
            median_time: chain.median_times().get(height.0 as usize).copied().unwrap_or_default(),
            block,
            txids: &hashes.txids,
            wtxids: &hashes.wtxids,
            coins: &coins,
        })
    }

    fn read_undo(&self, height: Height, into: &mut RecordBuffer) -> Result<(), Error> {
        let position = self.plan.chain.block(height);
        let missing = || {
            let (file, _) = self.reader.located(height).position(FileKind::Rev);
            Error::damaged("the undo data of the block is not on disk").in_file(file, None)
        };
        let read = position.undo_pos.ok_or_else(missing).and_then(|_| self.reader.read_undo(height, into));
        read.map_err(|error| {
            let can_be_made = (error.kind == ErrorKind::Damaged).then_some(Remedy::MakeUndo);
            error.at_block(height, position.hash).with_remedies(can_be_made)
        })
    }

    fn progress(&self, blocks: u32, sink: &dyn EventSink) {
        let BlockRange { from, to, .. } = self.range;
        let (of_chain, blocks_total) = (self.plan.chain.block_count() as u64, to.0 - from.0 + 1);
        let bytes = |blocks: u32| self.plan.block_bytes / of_chain * u64::from(blocks);
        let (bytes, bytes_total) = (bytes(blocks), bytes(blocks_total));
        sink.event(Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }));
    }
}
