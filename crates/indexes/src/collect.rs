//! Reads blocks once for all indexes that are wanted. The rows of transactions are collected in any order.
//! What depends on the blocks below, filters and statistics, is made in the order of the blocks.

use crate::{
    base::{Base, base_of, heights_of},
    block_filter::FilterHashes,
    coin_stats::Totals,
    job::IndexJob,
    output::{BlockOutput, ObservedBlocks},
    row_files::RowFiles,
    rows::TxRows,
};
use api::{block_observer::ObservedBlock, error::Error, event::Event, stage::Stage};
use chain::{blocks::chain::Chain, threads::lock};
use digest::muhash::MuHash3072;
use disk::node_indexes::IndexKind;
use pipeline::stages::{
    block_parts::{BlockConsumer, BlockData, BlockParts, PartConsumer},
    turns::{Turn, Turns},
};
use std::{
    ops::RangeInclusive,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};
use wire::{BlockHash, Height};

/// Number of blocks of a part. One division serves all MuHashes of a part; it takes as long as a few thousand
/// coins.
const PART_BLOCKS: u32 = 64;

pub struct Filter {
    pub encoded: Vec<u8>,
    pub hashes: FilterHashes,
}

/// The statistics of the UTXO set at a block.
pub struct Stats {
    pub totals: Totals,
    /// The MuHash of all coins, with denominator 1.
    pub muhash: MuHash3072,
}

/// Takes filters and statistics, in the order of the blocks.
pub trait InOrderSink: Send {
    fn filter(&mut self, height: Height, hash: &BlockHash, filter: Filter) -> Result<(), Error>;

    /// Takes the statistics at a block.
    fn stats(&mut self, height: Height, hash: &BlockHash, stats: Stats) -> Result<(), Error>;
}

/// For callers that want only rows of transactions, or the MuHash of all blocks.
impl InOrderSink for () {
    fn filter(&mut self, _: Height, _: &BlockHash, _: Filter) -> Result<(), Error> {
        Ok(())
    }

    fn stats(&mut self, _: Height, _: &BlockHash, _: Stats) -> Result<(), Error> {
        Ok(())
    }
}

pub struct Collected {
    pub rows: Vec<Box<dyn TxRows>>,
    /// The MuHash of all coins at the last block, if statistics were wanted.
    pub muhash: MuHash3072,
    /// Number of blocks that were read.
    pub blocks_read: u32,
}

impl IndexJob<'_> {
    /// Reads the blocks at the heights of `bases`. Collects the rows of transactions, and gives filters and
    /// statistics to `sink`.
    ///
    /// # Errors
    /// Blocks or undo data that are damaged or missing; errors of the sink; any I/O error.
    pub fn collect(&self, bases: &[Base], sink: &mut dyn InOrderSink) -> Result<Collected, Error> {
        self.work.take()?;
        let files = RowFiles {
            disk: self.files.disk,
            dir: self.work.path(),
            block_bytes: self.plan.bytes_of(1),
            memory: self.budget.index_rows(),
            threads: self.budget.threads,
        };
        self.collect_others(bases, files.create(bases)?, None, sink)
    }

    /// Like [`IndexJob::collect`], but does not read the blocks that were `observed`. Their rows of
    /// transactions are among `rows` already.
    pub fn collect_others(
        &self,
        bases: &[Base],
        rows: Vec<Box<dyn TxRows>>,
        observed: Option<&ObservedBlocks>,
        sink: &mut dyn InOrderSink,
    ) -> Result<Collected, Error> {
        self.watch.sink.event(Event::Started(Stage::Read));
        let [filters, stats] =
            [IndexKind::BlockFilter, IndexKind::CoinStats].map(|kind| base_of(bases, kind));
        let mut taker = Taker {
            header: filters.map(|base| base.header).unwrap_or_default(),
            totals: stats.map(|base| base.totals).unwrap_or_default(),
            muhash: stats.map_or_else(MuHash3072::new, |base| base.muhash.clone()),
            sink,
        };
        let mut blocks_read = 0;
        if let Some(heights) = heights_of(bases) {
            let collecting = Collecting {
                chain: &self.plan.chain,
                rows: &rows,
                observed,
                blocks_read: AtomicU32::new(0),
                filters: filters.map(|base| base.heights.clone()),
                stats: stats.map(|base| base.heights.clone()),
                turns: Turns::new(*heights.start()),
                taker: Mutex::new(taker),
            };
            let with_coins = [filters, stats].into_iter().flatten().filter(|base| !base.heights.is_empty());
            let parts = BlockParts {
                plan: self.plan,
                files: self.files,
                coins_from: with_coins.map(|base| Height(*base.heights.start())).min(),
                // No index depends on witnesses.
                with_witnesses: false,
                part_blocks: PART_BLOCKS,
                threads: self.budget.threads,
                heights,
            };
            parts.read(&collecting, self.watch)?;
            blocks_read = collecting.blocks_read.into_inner();
            taker = collecting.taker.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        rows.iter().try_for_each(|rows| rows.finish())?;
        Ok(Collected { rows, muhash: taker.muhash, blocks_read })
    }
}

/// Takes the parts in order, and makes what depends on the blocks below.
struct Taker<'s> {
    /// The header of the last filter.
    header: [u8; 32],
    /// The totals at the last block.
    totals: Totals,
    /// The MuHash at the last block, with denominator 1.
    muhash: MuHash3072,
    sink: &'s mut dyn InOrderSink,
}

impl Taker<'_> {
    fn take(&mut self, part: Vec<Placed>) -> Result<(), Error> {
        let before = self.muhash.clone();
        for Placed { height, hash, output: BlockOutput { filter, stats } } in part {
            if let Some(encoded) = filter {
                let hashes = FilterHashes::of(&encoded, &self.header);
                self.header = hashes.header;
                self.sink.filter(height, &hash, Filter { encoded, hashes })?;
            }
            if let Some((numbers, mut muhash)) = stats {
                self.totals.add(&numbers);
                muhash.combine(&before);
                self.muhash = muhash.clone();
                self.sink.stats(height, &hash, Stats { totals: self.totals, muhash })?;
            }
        }
        Ok(())
    }
}

/// What was made of a block. In a complete part, the MuHash is that of all blocks of the part up to this one,
/// with denominator 1.
struct Placed {
    height: Height,
    hash: BlockHash,
    output: BlockOutput,
}

/// Completes a part: each block gets the MuHash of all blocks up to it, with denominator 1.
fn complete(part: &mut [Placed]) {
    let mut sum = MuHash3072::new();
    let mut muhashes: Vec<&mut MuHash3072> =
        part.iter_mut().filter_map(|block| Some(&mut block.output.stats.as_mut()?.1)).collect();
    let sums = muhashes.iter().map(|muhash| {
        sum.combine(muhash);
        sum.clone()
    });
    let mut sums: Vec<MuHash3072> = sums.collect();
    if !sums.is_empty() {
        MuHash3072::divide_all(&mut sums);
    }
    muhashes.iter_mut().zip(sums).for_each(|(muhash, divided)| **muhash = divided);
}

struct Collecting<'a, 's> {
    chain: &'a Chain,
    rows: &'a [Box<dyn TxRows>],
    observed: Option<&'a ObservedBlocks>,
    /// Number of blocks that were read.
    blocks_read: AtomicU32,
    turns: Turns,
    taker: Mutex<Taker<'s>>,
    /// Heights of the blocks whose filters are wanted.
    filters: Option<RangeInclusive<u32>>,
    /// Heights of the blocks whose statistics are wanted.
    stats: Option<RangeInclusive<u32>>,
}

impl BlockConsumer for Collecting<'_, '_> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let blocks = Vec::with_capacity(PART_BLOCKS as usize);
        let mut part = Part { collecting: self, turn: self.turns.of(heights.clone()), blocks };
        if let Some(observed) = self.observed.filter(|observed| observed.has_all(heights.clone())) {
            let outputs =
                observed.outputs.as_ref().map(|outputs| outputs.read(heights.clone())).transpose()?;
            let outputs = heights.map(Height).zip(outputs.into_iter().flatten().flatten());
            part.blocks.extend(outputs.map(|(height, output)| Placed {
                height,
                hash: self.chain.block(height).hash,
                output,
            }));
            part.hand_over()?;
            return Ok(None);
        }
        self.blocks_read.fetch_add(heights.count() as u32, Ordering::Relaxed);
        Ok(Some(Box::new(part)))
    }
}

/// A part that a worker is making.
struct Part<'a, 'b, 'c> {
    collecting: &'a Collecting<'b, 'c>,
    turn: Turn<'a>,
    blocks: Vec<Placed>,
}

impl Part<'_, '_, '_> {
    /// Gives the blocks to the taker when it is the turn of the part.
    fn hand_over(self) -> Result<(), Error> {
        let Self { collecting, turn, mut blocks } = self;
        complete(&mut blocks);
        turn.wait()?;
        lock(&collecting.taker).take(blocks)?;
        turn.end();
        Ok(())
    }
}

impl PartConsumer for Part<'_, '_, '_> {
    fn block(&mut self, data: &BlockData<'_>) -> Result<(), Error> {
        let Collecting { rows, filters, stats, .. } = self.collecting;
        let BlockData { params, height, hash, block, txids, claims, .. } = *data;
        let block = &ObservedBlock { params, height, hash, block, txids, claims };
        rows.iter().try_for_each(|rows| rows.add(block))?;
        let is_in =
            |heights: &Option<RangeInclusive<u32>>| heights.as_ref().is_some_and(|it| it.contains(&height.0));
        let output = BlockOutput::of(block, is_in(filters), is_in(stats))?;
        self.blocks.push(Placed { height, hash, output });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        self.hand_over()
    }
}
