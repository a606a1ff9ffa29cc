//! Reads blocks once for all indexes that are wanted: rows of transactions are collected in any order, and
//! what depends on the blocks below is taken in the order of the blocks.

use crate::{
    block_filter::FilterHashes,
    coin_stats::Totals,
    in_order::InOrder,
    output::{BlockOutput, ObservedBlocks},
    records::Records,
};
use api::{block_observer::ObservedBlock, error::Error, event::Watch};
use chain::{
    blocks::{chain::Chain, files::Files},
    plan::planner::Plan,
};
use digest::muhash::MuHash3072;
use pipeline::stages::block_parts::{BlockConsumer, BlockData, BlockParts, PartConsumer};
use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU32, Ordering},
};
use wire::{BlockHash, Height};

/// Number of blocks of a part. Their MuHashes are divided by one another together, which takes as long as a
/// few thousand coins.
const PART_BLOCKS: u32 = 64;

/// Takes what depends on the blocks below, in the order of the blocks.
pub trait InOrderSink<T>: Send {
    /// Takes a block's.
    fn take(&mut self, height: Height, hash: &BlockHash, of_block: T) -> Result<(), Error>;
}

/// The filter of a block.
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

/// Makes the filters of blocks in order.
pub struct Filters<'a> {
    pub heights: RangeInclusive<u32>,
    /// The header of the filter before.
    pub header: [u8; 32],
    /// Takes them.
    pub sink: Box<dyn InOrderSink<Filter> + 'a>,
}

/// Adds up the statistics of blocks in order.
pub struct StatsSums<'a> {
    pub heights: RangeInclusive<u32>,
    /// The totals before.
    pub totals: Totals,
    /// The MuHash before, with denominator 1.
    pub muhash: MuHash3072,
    /// Takes them.
    pub sink: Box<dyn InOrderSink<Stats> + 'a>,
}

/// What is wanted of the blocks.
pub struct Wanted<'s> {
    /// The heights of which anything is wanted; `None` if nothing is.
    pub heights: Option<RangeInclusive<u32>>,
    /// Takes the records of transactions.
    pub records: Records,
    pub filters: Option<Filters<'s>>,
    /// Statistics.
    pub stats: Option<StatsSums<'s>>,
    /// What an observer has made of blocks, which need not be read again.
    pub observed: Option<&'s ObservedBlocks>,
}

/// What was collected.
pub struct Collected {
    /// The records of transactions.
    pub records: Records,
    /// The MuHash of all coins, if statistics were wanted.
    pub muhash: Option<MuHash3072>,
    /// Number of blocks that were read.
    pub blocks_read: u32,
}

impl Wanted<'_> {
    /// Reads the blocks. What comes in order has been taken then.
    ///
    /// # Errors
    /// Those of [`BlockParts::read`]; errors of the sinks.
    pub fn collect(
        self,
        files: &Files<'_>,
        plan: &Plan,
        threads: usize,
        watch: Watch<'_>,
    ) -> Result<Collected, Error> {
        let Self { heights, records, filters, stats, observed } = self;
        let Some(heights) = heights else {
            return Ok(Collected { records, muhash: stats.map(|stats| stats.muhash), blocks_read: 0 });
        };
        let parts = BlockParts {
            plan,
            files,
            with_coins: filters.is_some() || stats.is_some(),
            // No index depends on them.
            with_witnesses: false,
            part_blocks: PART_BLOCKS,
            threads,
            heights,
        };
        let collecting = Collecting {
            chain: &plan.chain,
            records: &records,
            observed,
            blocks_read: AtomicU32::new(0),
            filters: filters.as_ref().map(|filters| filters.heights.clone()),
            stats: stats.as_ref().map(|stats| stats.heights.clone()),
            in_order: InOrder::new(parts.heights.start() / PART_BLOCKS, threads, Takers { filters, stats }),
        };
        parts.read(&collecting, watch)?;
        let Collecting { in_order, blocks_read, .. } = collecting;
        let muhash = in_order.into_taker().stats.map(|stats| stats.muhash);
        Ok(Collected { muhash, blocks_read: blocks_read.into_inner(), records })
    }
}

/// What takes the parts in order.
struct Takers<'a> {
    filters: Option<Filters<'a>>,
    stats: Option<StatsSums<'a>>,
}

impl Takers<'_> {
    fn take(&mut self, part: Vec<Placed>) -> Result<(), Error> {
        // The MuHash before the part.
        let before = self.stats.as_ref().map(|stats| stats.muhash.clone());
        for Placed { height, hash, output: BlockOutput { filter, stats } } in part {
            if let Some((filters, encoded)) = self.filters.as_mut().zip(filter) {
                let hashes = FilterHashes::of(&encoded, &filters.header);
                filters.header = hashes.header;
                filters.sink.take(height, &hash, Filter { encoded, hashes })?;
            }
            if let Some(((sums, (changes, mut muhash)), before)) =
                self.stats.as_mut().zip(stats).zip(before.as_ref())
            {
                sums.totals.add(&changes);
                muhash.combine(before);
                sums.muhash = muhash.clone();
                sums.sink.take(height, &hash, Stats { totals: sums.totals, muhash })?;
            }
        }
        Ok(())
    }
}

/// What was made of a block. In a part that is complete, its MuHash is that of all blocks of the part up to
/// it, with denominator 1.
struct Placed {
    height: Height,
    hash: BlockHash,
    output: BlockOutput,
}

/// Makes the MuHash of each block that of all blocks up to it, with denominator 1.
fn complete(part: &mut [Placed]) {
    let mut sum = MuHash3072::new();
    let mut muhashes: Vec<&mut MuHash3072> = part
        .iter_mut()
        .filter_map(|block| block.output.stats.as_mut())
        .map(|(_, muhash)| {
            sum.combine(muhash);
            muhash.clone_from(&sum);
            muhash
        })
        .collect();
    let mut sets: Vec<MuHash3072> = muhashes.iter().map(|muhash| (**muhash).clone()).collect();
    if !sets.is_empty() {
        MuHash3072::divide_all(&mut sets);
    }
    muhashes.iter_mut().zip(sets).for_each(|(muhash, divided)| **muhash = divided);
}

struct Collecting<'a, 's> {
    chain: &'a Chain,
    records: &'a Records,
    observed: Option<&'a ObservedBlocks>,
    /// Number of blocks that were read.
    blocks_read: AtomicU32,
    in_order: InOrder<Vec<Placed>, Takers<'s>>,
    filters: Option<RangeInclusive<u32>>,
    stats: Option<RangeInclusive<u32>>,
}

impl BlockConsumer for Collecting<'_, '_> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let number = heights.start() / PART_BLOCKS;
        self.in_order.wait(number);
        let blocks = Vec::with_capacity(PART_BLOCKS as usize);
        let mut part = Part { collecting: self, number, blocks, is_complete: false };
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

/// A part that a worker makes.
struct Part<'a, 'b, 'c> {
    collecting: &'a Collecting<'b, 'c>,
    number: u32,
    blocks: Vec<Placed>,
    is_complete: bool,
}

impl Drop for Part<'_, '_, '_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.collecting.in_order.fail();
        }
    }
}

impl Part<'_, '_, '_> {
    fn hand_over(mut self) -> Result<(), Error> {
        let mut blocks = std::mem::take(&mut self.blocks);
        complete(&mut blocks);
        self.collecting.in_order.hand_over(self.number, blocks, Takers::take)?;
        self.is_complete = true;
        Ok(())
    }
}

impl PartConsumer for Part<'_, '_, '_> {
    fn block(&mut self, data: &BlockData<'_>) -> Result<(), Error> {
        let Collecting { records, filters, stats, .. } = self.collecting;
        let BlockData { params, height, hash, block, txids, claims, .. } = *data;
        let block = &ObservedBlock { params, height, hash, block, txids, claims };
        records.add(block)?;
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
