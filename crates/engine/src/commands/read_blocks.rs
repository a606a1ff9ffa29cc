//! Gives the blocks of a chain on disk to the caller, with the coins that they spend, in parts of the chain.
//!
//! Each block is checked as far as that is possible by itself, and its undo data by its checksum. That the
//! coins in it are the right ones is what [`crate::verify()`] proves.

mod block_stats;

pub use block_stats::BlockStats;

use crate::{
    api::{
        error::{Error, ErrorKind},
        event::{Event, EventSink, Progress},
        options::ChainOptions,
        remedy::Remedy,
        stage::Stage,
    },
    blocks::{
        block_hashes::BlockHashes,
        damage::{Damage, UndoDefect},
    },
    commands::undo,
    job::session::Session,
    plan::{existing_state::ExistingState, planner::Plan},
    stages::{
        check::claims_of,
        read::BlockReader,
        threads::{lock, spawn},
    },
};
use disk::{
    block_files::RecordBuffer,
    undo::{CHECKSUM_LEN, UndoArena},
};
use rules::{BlockContext, ChainParams, SpentCoin, ViolationClass, check_block};
use std::{
    ops::RangeInclusive,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};
use vfs::Disk;
use wire::{BlockArena, BlockHash, BlockTime, BlockView, Height, Network, Txid, Wtxid};

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
pub struct BlockRange {
    /// Their network.
    pub network: Network,
    /// The first block.
    pub from: Height,
    /// The last block.
    pub to: Height,
    /// Hash of the last block.
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
/// [`ErrorKind::Interrupted`]. Of several errors, that of the lowest part is returned.
pub fn read_blocks<C: BlockConsumer>(
    disk: &dyn Disk,
    options: &ReadBlocksOptions,
    begin: impl FnOnce(&BlockRange) -> Result<C, Error>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<(BlockRange, C), Error> {
    sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, &options.chain, sink)?;
    let files = &session.files()?;
    let best = ExistingState::read(files, false)?.best_block;
    let plan = &undo::plan(files, &options.chain, options.scan, best, (sink, interrupt))?;
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
        workers.into_iter().try_for_each(|worker| worker?.join().map_err(|_| Error::panicked()))
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

impl Parts<'_> {
    fn work(&self, consumer: &impl BlockConsumer, sink: &dyn EventSink, interrupt: &AtomicBool) {
        let mut buffers = Buffers::default();
        while !self.has_failed.load(Ordering::Relaxed) {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            let first = part.saturating_mul(self.options.part_blocks).max(self.range.from.0);
            if first > self.range.to.0 {
                return;
            }
            let last = (part + 1).saturating_mul(self.options.part_blocks) - 1;
            let heights = first..=last.min(self.range.to.0);
            if let Err(error) = self.read_part(heights, consumer, &mut buffers, (sink, interrupt)) {
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
        (sink, interrupt): (&dyn EventSink, &AtomicBool),
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
        let (chain, params) = (&self.plan.chain, self.params);
        let position = chain.block(height);
        let at_block = |error: Error| error.at_block(height, position.hash);
        let located = self.reader.located(height);
        let damaged = |damage| located.damaged(&damage);
        // Undo data is made anew, and so can be lost.
        let bad_undo = |defect| damaged(Damage::Undo(defect)).with_remedies([Remedy::MakeUndo]);
        let with_coins = self.options.with_coins && height.0 > 0;
        self.reader.read_block(height, &mut buffers.block).map_err(at_block)?;
        buffers.undo.clear();
        if with_coins {
            if position.undo_pos.is_none() {
                let error = Error::damaged("the undo data of the block is not on disk");
                return Err(at_block(error).with_remedies([Remedy::MakeUndo]));
            }
            self.reader.read_undo(height, &mut buffers.undo).map_err(at_block)?;
        }
        let block = buffers.arena.parse_first(buffers.block.bytes());
        let block = &block.map_err(|error| damaged(Damage::Block(error)))?;
        let undo = buffers.undo.bytes();
        let (undo_data, checksum) = undo.split_at(undo.len().saturating_sub(CHECKSUM_LEN));
        buffers.hashes.of_block(block, undo_data);
        let hashes = &buffers.hashes;
        if hashes.block != position.hash {
            return Err(damaged(Damage::OtherBlock(hashes.block)));
        }
        let checked = check_block(&BlockContext {
            params,
            height,
            block,
            txids: &hashes.txids,
            wtxids: &hashes.wtxids,
            median_time_past_prev: chain.median_time_before(height),
        });
        checked.map_err(|violation| match violation.rule.class {
            ViolationClass::Mutated => damaged(Damage::Mutated(violation)),
            _ => at_block(Error::violation(&violation)),
        })?;
        let claims = match with_coins {
            true => claims_of(block, (undo_data, checksum, &mut buffers.undo_arena), &hashes.undo_checksum),
            false => Ok(Vec::new()),
        };
        let coins = claims.and_then(|claims| {
            let coins = claims.iter().map(SpentCoin::from_coin).collect::<Result<Vec<_>, _>>();
            coins.map_err(UndoDefect::Coin)
        });
        let coins = coins.map_err(bad_undo)?;
        each(&BlockData {
            params,
            height,
            hash: position.hash,
            median_time: chain.median_times().get(height.0 as usize).copied().unwrap_or_default(),
            block,
            txids: &hashes.txids,
            wtxids: &hashes.wtxids,
            coins: &coins,
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

/// Number of blocks after which progress is reported.
const PROGRESS_BLOCKS: u32 = 32;
