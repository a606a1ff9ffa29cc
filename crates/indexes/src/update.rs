//! Continues indexes from their best blocks to the chainstate's, in place. One that is on another branch is
//! taken back before, as bitcoind does it; one that is ahead of the chainstate stays as it is.
//!
//! The rows of a `txindex` and a `txospenderindex` and their best block are put into the database at once. Of
//! the others, rows and filters come first, which nothing refers to yet, and then the best block.

use crate::{
    coin_stats::muhash_row,
    collect::Collected,
    job::{self, Access, Done, InOrderSinks, IndexJob, rows_below},
    last_rows::has_last_rows,
    locator::locator,
    options::{IndexOptions, MadeIndex, MadeIndexesReport, TxForm},
    records::CollectedRows,
    rewind::open_on_chain,
    rows::{Row, RowForm, RowSet, RowSink},
    starts::{Start, Starts},
    stored::StoredIndex,
    write::{Changes, FilterFiles, FilterRows, StatsRows, change, give_sorted},
};
use api::{
    error::Error,
    event::{Event, EventSink, Watch},
    stage::Stage,
};
use disk::node_indexes::IndexKind;
use leveldb::{ChangedRange, DatabaseUpdate};
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::Disk;

/// Continues indexes to the chainstate's best block. If this is interrupted, each ends where it ended before,
/// or at the new block.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if no index is named and none is there, or if one that is named has no
/// best block on the chain; otherwise the same errors as [`make_indexes`](crate::make_indexes).
pub fn update_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<MadeIndexesReport, Error> {
    let done = job::run(disk, options, Access::Change, Watch { sink, interrupt }, |job, kinds| {
        Updating::begin(job, kinds).and_then(Updating::update)
    })?;
    let Done { result: (indexes, blocks_read), height, hash, threads, elapsed, notes } = done;
    let (network, kept) = (options.chain.params.network, Vec::new());
    Ok(MadeIndexesReport { network, height, hash, indexes, blocks_read, kept, threads, elapsed, notes })
}

/// The indexes that are continued.
struct Updating<'a> {
    job: &'a IndexJob<'a>,
    indexes: Vec<StoredIndex<'a>>,
    starts: Starts,
    /// The sequence numbers of the blocks of which a `txindex` gets rows by block, and the next one.
    sequences: (Vec<Option<u32>>, u32),
}

impl<'a> Updating<'a> {
    /// Finds out where each index ends.
    fn begin(job: &'a IndexJob<'a>, kinds: &[IndexKind]) -> Result<Self, Error> {
        let IndexJob { files, plan, options, .. } = *job;
        let tip = plan.chain.tip_height();
        let (mut indexes, mut starts, mut sequences) = (Vec::new(), Starts::default(), (Vec::new(), 0));
        for &kind in kinds {
            let Some((index, best)) = open_on_chain(job, kind)? else { continue };
            let start = Start::above(&index, options, files, &plan.chain, best)?;
            if !has_last_rows(job, &index, &start, best)? {
                return Err(index.damaged("the rows of the last blocks are missing or wrong"));
            }
            job::require_stored(plan, |height| height > best.0)?;
            job::require_undo(plan, &[kind], best.0 + 1)?;
            if kind == IndexKind::Tx && start.tx_form == TxForm::ByBlock {
                sequences = new_sequences(&index.sequences(&plan.chain, tip)?, &start);
            }
            starts.add(kind, start);
            indexes.push(index);
        }
        Ok(Self { job, indexes, starts, sequences })
    }

    fn take_index(&mut self, kind: IndexKind) -> Option<StoredIndex<'a>> {
        let number = self.indexes.iter().position(|index| index.kind == kind)?;
        Some(self.indexes.swap_remove(number))
    }

    /// Writes what each index lacks; returns what was written, and the number of blocks that were read.
    fn update(mut self) -> Result<(Vec<MadeIndex>, u32), Error> {
        let IndexJob { files, watch, .. } = *self.job;
        let mut filters = self.take_index(IndexKind::BlockFilter);
        let mut stats = self.take_index(IndexKind::CoinStats);
        let place = self.starts.of(IndexKind::BlockFilter).map(|start| start.place).unwrap_or_default();
        let mut filter_files = filters.as_ref().map(|index| FilterFiles::new(files.disk, &index.dir, place));
        let filter_update = filters.as_mut().map(|index| index.database.update()).transpose()?;
        let stats_update = stats.as_mut().map(|index| index.database.update()).transpose()?;
        let mut filter_rows = filter_update.as_ref().map(|update| Changes::new(update.range(&[], None)));
        let mut stats_rows = stats_update.as_ref().map(|update| Changes::new(update.range(&[], None)));
        let filter_sinks = filter_files.as_mut().zip(filter_rows.as_mut());
        let sinks = InOrderSinks {
            filters: filter_sinks.map(|(files, rows)| Box::new(FilterRows { files, rows }) as _),
            stats: stats_rows.as_mut().map(|rows| Box::new(StatsRows(rows)) as _),
        };
        let sequences = std::mem::take(&mut self.sequences.0);
        let Collected { records, muhash, blocks_read } = self.job.collect(&self.starts, sequences, sinks)?;
        let rows = records.into_rows(&self.job.plan.chain)?;

        watch.sink.event(Event::Started(Stage::Finish));
        if watch.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        let filter_changes = filter_rows.map(Changes::finish).transpose()?;
        let stats_changes = stats_rows.map(Changes::finish).transpose()?;
        let mut made = Vec::new();
        for mut index in std::mem::take(&mut self.indexes) {
            made.extend(self.put_rows(&mut index, &rows)?);
        }
        let place = filter_files.as_mut().map(FilterFiles::finish).transpose()?.unwrap_or_default();
        let filter_count = commit(filter_update, filter_changes)?;
        made.extend(self.put_best(filters, place.to_row(), filter_count)?);
        let stats_count = commit(stats_update, stats_changes)?;
        if let Some(muhash) = &muhash {
            made.extend(self.put_best(stats, muhash_row(muhash), stats_count)?);
        }
        Ok((made, blocks_read))
    }

    /// The rows below those of blocks.
    fn rows_below(&self, kind: IndexKind, start: &Start) -> Vec<Row> {
        let chain = &self.job.plan.chain;
        rows_below(kind, start, self.sequences.1, locator(chain, chain.tip_height()))
    }

    /// Puts the best block into an index whose rows came in order, with the row from which it continues.
    fn put_best(
        &self,
        index: Option<StoredIndex<'_>>,
        state: Row,
        count: u64,
    ) -> Result<Option<MadeIndex>, Error> {
        let Some(mut index) = index else { return Ok(None) };
        let Some(start) = self.starts.of(index.kind) else { return Ok(None) };
        let rows = self.rows_below(index.kind, start).into_iter().chain([state]).collect();
        let others = change(&mut index.database, |sink| give_sorted(rows, sink))?;
        Ok(Some(made(index.kind, start, count + others)))
    }

    /// Puts the rows into an index whose rows come in any order.
    fn put_rows(
        &self,
        index: &mut StoredIndex<'_>,
        rows: &CollectedRows<'_>,
    ) -> Result<Option<MadeIndex>, Error> {
        let Some(start) = self.starts.of(index.kind) else { return Ok(None) };
        let below = self.rows_below(index.kind, start);
        let count = change(&mut index.database, |sink| {
            give_sorted(below, sink)?;
            match (index.kind, rows) {
                (IndexKind::TxoSpender, CollectedRows { spends: Some(rows), .. }) => self.give(rows, sink),
                (_, CollectedRows { by_txid: Some(rows), .. }) => self.give(rows, sink),
                (_, CollectedRows { by_block: Some(rows), .. }) => {
                    rows.form().give_blocks(&self.job.plan.chain, sink)?;
                    self.give(rows, sink)
                }
                _ => Ok(()),
            }
        })?;
        Ok(Some(made(index.kind, start, count)))
    }

    /// Gives all rows of a set to a sink.
    fn give<F: RowForm<N>, const N: usize>(
        &self,
        rows: &RowSet<F, N>,
        sink: &mut dyn RowSink,
    ) -> Result<(), Error> {
        (0..rows.ranges()).try_for_each(|range| rows.give(range, self.job.sort_bytes(), sink))
    }
}

/// Puts changes into a database; returns the number of rows.
fn commit(
    update: Option<DatabaseUpdate<'_, '_>>,
    changes: Option<(ChangedRange, u64)>,
) -> Result<u64, Error> {
    let Some((update, (changes, count))) = update.zip(changes) else { return Ok(0) };
    update.commit([changes])?;
    Ok(count)
}

fn made(kind: IndexKind, start: &Start, rows: u64) -> MadeIndex {
    MadeIndex { name: kind, from_height: *start.heights.start(), rows, form: start.form_of(kind) }
}

/// Returns a sequence number for each block that has none yet, by height, and the next number.
fn new_sequences(old: &[Option<u32>], start: &Start) -> (Vec<Option<u32>>, u32) {
    let mut next = start.next_sequence;
    let mut new = vec![None; old.len()];
    for (height, (old, new)) in old.iter().zip(&mut new).enumerate() {
        if old.is_none() && start.heights.contains(&(height as u32)) {
            *new = Some(next);
            next += 1;
        }
    }
    (new, next)
}
