//! Reads blocks once for all indexes that are wanted: rows of transactions are collected in any order, and
//! what depends on the blocks below is taken in the order of the blocks.

use crate::{
    block_filter::{FilterBuilder, FilterHashes},
    coin_stats::{Changes, Totals},
    in_order::InOrder,
    rows::RowSet,
    tx::{ByBlock, ByTxid, Spends, TxPlace},
};
use api::{error::Error, event::Watch, subject::Subject};
use chain::{blocks::files::Files, plan::planner::Plan};
use digest::muhash::MuHash3072;
use pipeline::stages::{
    block_parts::{BlockConsumer, BlockData, BlockParts, PartConsumer},
    stats_change::{Cancelled, StatsChange},
};
use rules::subsidy;
use std::{collections::HashSet, ops::RangeInclusive};
use wire::{BlockHash, Height, Txid};

/// Number of blocks of a part. Their MuHashes are divided by one another together, which takes as long as a
/// few thousand coins.
const PART_BLOCKS: u32 = 64;

/// Takes what depends on the blocks below, in the order of the blocks.
pub trait InOrderSink<T>: Send {
    /// Takes a block's.
    ///
    /// # Errors
    /// Any I/O error.
    fn take(&mut self, height: Height, hash: &BlockHash, of_block: T) -> Result<(), Error>;
}

/// The filter of a block.
pub struct Filter {
    /// It, encoded.
    pub encoded: Vec<u8>,
    /// Its hashes.
    pub hashes: FilterHashes,
}

/// The statistics of the UTXO set at a block.
pub struct Stats {
    /// The totals.
    pub totals: Totals,
    /// The MuHash of all coins, with denominator 1.
    pub muhash: MuHash3072,
}

/// Makes the filters of blocks in order.
pub struct Filters<'a> {
    /// The heights.
    pub heights: RangeInclusive<u32>,
    /// The header of the filter before.
    pub header: [u8; 32],
    /// Takes them.
    pub sink: Box<dyn InOrderSink<Filter> + 'a>,
}

/// Adds up the statistics of blocks in order.
pub struct StatsSums<'a> {
    /// The heights.
    pub heights: RangeInclusive<u32>,
    /// The totals before.
    pub totals: Totals,
    /// The MuHash before, with denominator 1.
    pub muhash: MuHash3072,
    /// Takes them.
    pub sink: Box<dyn InOrderSink<Stats> + 'a>,
}

/// Rows of transactions, each with the heights of the blocks of which they are collected.
#[derive(Default)]
pub struct CollectedRows<'a> {
    /// Rows of a txindex by txid.
    pub by_txid: Option<(RangeInclusive<u32>, RowSet<ByTxid<'a>, 40>)>,
    /// Rows of a txindex by block.
    pub by_block: Option<(RangeInclusive<u32>, RowSet<ByBlock, 13>)>,
    /// Rows of a txospenderindex.
    pub spends: Option<(RangeInclusive<u32>, RowSet<Spends<'a>, 16>)>,
}

/// What is wanted of the blocks.
pub struct Wanted<'a, 's> {
    /// Rows of transactions.
    pub rows: CollectedRows<'a>,
    /// Filters.
    pub filters: Option<Filters<'s>>,
    /// Statistics.
    pub stats: Option<StatsSums<'s>>,
}

impl<'a> Wanted<'a, '_> {
    /// The heights of which anything is wanted.
    fn heights(&self) -> Option<RangeInclusive<u32>> {
        let all = [
            self.rows.by_txid.as_ref().map(|(heights, _)| heights),
            self.rows.by_block.as_ref().map(|(heights, _)| heights),
            self.rows.spends.as_ref().map(|(heights, _)| heights),
            self.filters.as_ref().map(|filters| &filters.heights),
            self.stats.as_ref().map(|stats| &stats.heights),
        ];
        let all = || all.iter().flatten().filter(|heights| !heights.is_empty());
        Some(all().map(|heights| *heights.start()).min()?..=all().map(|heights| *heights.end()).max()?)
    }

    /// Reads the blocks. What comes in order has been taken then. Returns the rows, and the MuHash of all
    /// coins if statistics were wanted.
    ///
    /// # Errors
    /// Those of [`BlockParts::read`]; errors of the sinks.
    pub fn collect(
        self,
        files: &Files<'_>,
        plan: &Plan,
        threads: usize,
        watch: Watch<'_>,
    ) -> Result<(CollectedRows<'a>, Option<MuHash3072>), Error> {
        let heights = self.heights();
        let Self { rows, filters, stats } = self;
        let Some(heights) = heights else { return Ok((rows, stats.map(|stats| stats.muhash))) };
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
            rows: &rows,
            filters: filters.as_ref().map(|filters| filters.heights.clone()),
            stats: stats.as_ref().map(|stats| stats.heights.clone()),
            in_order: InOrder::new(parts.heights.start() / PART_BLOCKS, threads, Takers { filters, stats }),
        };
        parts.read(&collecting, watch)?;
        let muhash = collecting.in_order.into_taker().stats.map(|stats| stats.muhash);
        rows.by_txid.as_ref().map_or(Ok(()), |(_, rows)| rows.finish())?;
        rows.by_block.as_ref().map_or(Ok(()), |(_, rows)| rows.finish())?;
        rows.spends.as_ref().map_or(Ok(()), |(_, rows)| rows.finish())?;
        Ok((rows, muhash))
    }
}

/// What takes the parts in order.
struct Takers<'a> {
    filters: Option<Filters<'a>>,
    stats: Option<StatsSums<'a>>,
}

impl Takers<'_> {
    fn take(&mut self, part: Vec<BlockOutput>) -> Result<(), Error> {
        // The MuHash before the part.
        let before = self.stats.as_ref().map(|stats| stats.muhash.clone());
        for BlockOutput { height, hash, filter, stats } in part {
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

/// What a worker makes of a block for what comes in order.
struct BlockOutput {
    height: Height,
    hash: BlockHash,
    filter: Option<Vec<u8>>,
    /// What it adds, and the MuHash of what the part adds up to it.
    stats: Option<(Changes, MuHash3072)>,
}

struct Collecting<'a, 's> {
    rows: &'a CollectedRows<'a>,
    in_order: InOrder<Vec<BlockOutput>, Takers<'s>>,
    filters: Option<RangeInclusive<u32>>,
    stats: Option<RangeInclusive<u32>>,
}

impl BlockConsumer for Collecting<'_, '_> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        let number = heights.start() / PART_BLOCKS;
        self.in_order.wait(number);
        let outputs = Vec::with_capacity(PART_BLOCKS as usize);
        let muhash = MuHash3072::new();
        Ok(Some(Box::new(Part { collecting: self, number, outputs, muhash, is_complete: false })))
    }
}

/// A part that a worker makes.
struct Part<'a, 'b, 'c> {
    collecting: &'a Collecting<'b, 'c>,
    number: u32,
    outputs: Vec<BlockOutput>,
    /// The MuHash of what the blocks so far add.
    muhash: MuHash3072,
    is_complete: bool,
}

impl Drop for Part<'_, '_, '_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.collecting.in_order.fail();
        }
    }
}

impl PartConsumer for Part<'_, '_, '_> {
    fn block(&mut self, data: &BlockData<'_>) -> Result<(), Error> {
        let Collecting { rows, filters, stats, .. } = self.collecting;
        rows.add(data)?;
        let is_in = |heights: &Option<RangeInclusive<u32>>| {
            heights.as_ref().is_some_and(|heights| heights.contains(&data.height.0))
        };
        let filter = is_in(filters).then(|| encode_filter(data)).transpose()?;
        let stats = is_in(stats).then(|| {
            let cancelled = &cancelled(data);
            let BlockData { params, height, ref hash, block, txids, claims, .. } = *data;
            let change = StatsChange::of(params, height, hash, block, txids, claims, cancelled);
            self.muhash.combine(&change.muhash);
            (Changes::of(&change, subsidy(params, height)), self.muhash.clone())
        });
        if filter.is_some() || stats.is_some() {
            self.outputs.push(BlockOutput { height: data.height, hash: data.hash, filter, stats });
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        let mut outputs = std::mem::take(&mut self.outputs);
        let with_stats = outputs.iter_mut().filter_map(|output| output.stats.as_mut());
        let (changes, mut sets): (Vec<Changes>, Vec<MuHash3072>) =
            with_stats.map(|stats| stats.clone()).unzip();
        if !sets.is_empty() {
            MuHash3072::divide_all(&mut sets);
            let divided = changes.into_iter().zip(sets);
            let with_stats = outputs.iter_mut().filter_map(|output| output.stats.as_mut());
            with_stats.zip(divided).for_each(|(stats, divided)| *stats = divided);
        }
        self.collecting.in_order.hand_over(self.number, outputs, Takers::take)?;
        self.is_complete = true;
        Ok(())
    }
}

impl CollectedRows<'_> {
    /// Adds the rows of a block's transactions. The genesis block has none.
    fn add(&self, data: &BlockData<'_>) -> Result<(), Error> {
        let height = data.height;
        if height.0 == 0 {
            return Ok(());
        }
        let place = |offset: usize| TxPlace { height, offset: offset as u32 };
        let txs = || data.block.txs().zip(data.txids);
        if let Some((_, rows)) = self.by_txid.as_ref().filter(|(heights, _)| heights.contains(&height.0)) {
            rows.with_collector(|collector| {
                let mut records = txs().map(|(tx, txid)| ByTxid::record(txid, place(tx.offset())));
                records.try_for_each(|record| rows.add(collector, &record))
            })?;
        }
        if let Some((_, rows)) = self.by_block.as_ref().filter(|(heights, _)| heights.contains(&height.0))
            && rows.form().sequence(height).is_some()
        {
            rows.with_collector(|collector| {
                let mut records = txs().map(|(tx, txid)| rows.form().record(txid, place(tx.offset())));
                records.try_for_each(|record| rows.add(collector, &record))
            })?;
        }
        if let Some((_, rows)) = self.spends.as_ref().filter(|(heights, _)| heights.contains(&height.0)) {
            rows.with_collector(|collector| {
                for (tx, _) in txs().skip(1) {
                    for input in tx.inputs() {
                        rows.add(collector, &rows.form().record(&input.prevout(), place(tx.offset())))?;
                    }
                }
                Ok::<(), Error>(())
            })?;
        }
        Ok(())
    }
}

/// Returns the encoded filter of a block.
fn encode_filter(data: &BlockData<'_>) -> Result<Vec<u8>, Error> {
    let (mut spent, mut ends) = (Vec::new(), Vec::with_capacity(data.coins.len()));
    for coin in data.coins {
        coin.script.decompress(&mut spent).map_err(|error| {
            Error::damaged(format!("the undo data has a malformed coin: {error}"))
                .at_block(data.height, data.hash)
                .about(Subject::UndoData)
        })?;
        ends.push(spent.len());
    }
    let mut filter = FilterBuilder::default();
    for tx in data.block.txs() {
        tx.outputs().for_each(|output| filter.add_output(output.script_pubkey()));
    }
    let mut start = 0;
    for end in ends {
        filter.add_spent(spent.get(start..end).unwrap_or_default());
        start = end;
    }
    Ok(filter.encode(&data.hash))
}

/// The coins that a block both creates and spends.
fn cancelled(data: &BlockData<'_>) -> Cancelled {
    let created: HashSet<&Txid> = data.txids.iter().skip(1).collect();
    let prevouts = data.block.txs().skip(1).flat_map(|tx| tx.inputs()).map(|input| input.prevout());
    let own = prevouts.filter(|prevout| created.contains(&prevout.txid));
    own.map(|prevout| (prevout, data.height)).collect()
}
