//! Makes indexes anew, beside those that are there, and puts them in place.

use crate::{
    block_filter::{FilterPlace, file_name},
    coin_stats::muhash_row,
    collect::Collected,
    filter_reader::FilterReader,
    job::{self, Access, Done, InOrderSinks, IndexJob, rows_below},
    locator::locator,
    observer::Observed,
    options::{IndexOptions, MadeIndex, MadeIndexesReport, TxForm},
    records::CollectedRows,
    rows::{Row, RowForm, RowSet, RowSink},
    starts::{Start, Starts, sequences_of_new},
    stored::StoredIndex,
    write::{FilterFiles, FilterRows, NewTables, StatsRows, give_sorted},
};
use api::{
    error::Error,
    event::{Event, EventSink, Watch},
    machine,
    note::Warning,
    stage::Stage,
};
use chain::{plan::planner::Plan, threads::for_all};
use digest::sha256::sha256d;
use disk::{
    datadir::FILTER_DATABASE,
    node_indexes::IndexKind,
    replace::{CommitError, Replacement},
};
use leveldb::{Database, TableMeta, write_database};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};
use vfs::{Disk, During as _};

/// Makes indexes anew from the blocks up to the chainstate's best block, beside those that are there, and
/// then exchanges all of them at once. If this fails or is interrupted, the old ones stay.
///
/// # Errors
/// An [`ErrorKind`](api::error::ErrorKind): `Usage` if no index is named and none is there; `Damaged` for
/// blocks or undo data that are damaged or missing; `Environment` if the disk is full, the datadir in use, or
/// its owner another user; `Interrupted`.
pub fn make_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<MadeIndexesReport, Error> {
    make_with(disk, options, None, sink, interrupt)
}

/// Like [`make_indexes`], with what was made of blocks that were observed.
pub fn make_with(
    disk: &dyn Disk,
    options: &IndexOptions,
    observed: Option<Observed>,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<MadeIndexesReport, Error> {
    let done = job::run(disk, options, Access::Change, Watch { sink, interrupt }, |job, kinds| {
        // The chain may have grown since, or another one may have become the best.
        let observed = observed.filter(|observed| observed.is_of(&job.plan.chain));
        let end = observed.as_ref().map_or(job.plan.chain.tip_height(), |observed| observed.height);
        let job = &IndexJob { plan: &job.plan.up_to(end), ..*job };
        let is_read = |height| observed.as_ref().is_none_or(|it| !it.blocks.has_all(height..=height));
        job::require_stored(job.plan, is_read)?;
        if (0..=end.0).any(is_read) {
            job::require_undo(job.plan, kinds, 1)?;
        }
        let home = job.files.datadir.net_dir();
        if observed.is_none() {
            let Plan { chain, block_bytes, .. } = job.plan;
            let blocks = chain.block_count() as u64;
            job::check_space(job.files.disk, home, kinds, blocks, *block_bytes, false)?;
        }
        let names: Vec<PathBuf> = kinds.iter().map(|kind| kind.replaced_dir()).collect();
        let names: Vec<&Path> = names.iter().map(PathBuf::as_path).collect();
        let replacement =
            &Replacement::begin(disk, home, &names, machine::random()?, options.chain.keep_old)?;
        let made = Making { job, kinds, replacement }.make(observed);
        made.and_then(|made| Ok((made, commit(job, kinds, replacement)?)))
            .inspect_err(|_| replacement.discard())
    })?;
    let ((indexes, blocks_read), kept) = done.result;
    let Done { height, hash, threads, elapsed, notes, .. } = done;
    let network = options.chain.params.network;
    Ok(MadeIndexesReport { network, height, hash, indexes, blocks_read, kept, threads, elapsed, notes })
}

fn commit(
    job: &IndexJob<'_>,
    kinds: &[IndexKind],
    replacement: &Replacement<'_>,
) -> Result<Vec<PathBuf>, Error> {
    let Watch { sink, interrupt } = job.watch;
    sink.event(Event::Started(Stage::Commit));
    if interrupt.load(Ordering::Relaxed) {
        return Err(Error::interrupted());
    }
    match replacement.commit() {
        Ok(kept) => {
            for kind in kinds {
                if let Err(error) = kind.remove_replaced(job.files.disk, job.files.datadir.net_dir()) {
                    sink.event(Event::Warning(Warning::CleanUpPending { error: error.into() }));
                }
            }
            Ok(kept)
        }
        Err(CommitError::Failed(error)) => Err(error.into()),
        Err(CommitError::InPlace(error)) => {
            sink.event(Event::Warning(Warning::CleanUpPending { error: error.into() }));
            Ok(Vec::new())
        }
    }
}

/// The new databases.
struct Making<'a> {
    job: &'a IndexJob<'a>,
    kinds: &'a [IndexKind],
    replacement: &'a Replacement<'a>,
}

impl Making<'_> {
    /// The directory that is built for an index.
    fn building(&self, kind: IndexKind) -> &Path {
        let number = self.kinds.iter().position(|other| *other == kind);
        self.replacement.building(number.unwrap_or_default())
    }

    /// The directory of the new database of an index.
    fn database(&self, kind: IndexKind) -> PathBuf {
        let dir = self.building(kind);
        if kind == IndexKind::BlockFilter { dir.join(FILTER_DATABASE) } else { dir.to_owned() }
    }

    /// The form of the rows of a new `txindex`: that of the old one, unless the caller chose it.
    fn tx_form(&self) -> TxForm {
        let files = self.job.files;
        self.job.options.tx_form.unwrap_or_else(|| {
            match StoredIndex::open(files.disk, files.datadir.net_dir(), IndexKind::Tx) {
                Ok(Some(index)) if index.is_by_block() => TxForm::ByBlock,
                _ => TxForm::ByTxid,
            }
        })
    }

    /// Where the rows of new indexes begin.
    fn starts(&self) -> Result<Starts, Error> {
        let (mut starts, tx_form) = (Starts::default(), self.tx_form());
        for &kind in self.kinds {
            starts.add(kind, Start::of_new(self.job.options, tx_form, self.job.plan.chain.tip_height())?);
        }
        Ok(starts)
    }

    /// Makes all of them; returns what was written, and the number of blocks that were read.
    fn make(&self, observed: Option<Observed>) -> Result<(Vec<MadeIndex>, u32), Error> {
        let IndexJob { files, plan, watch, .. } = *self.job;
        let (starts, observed) = match observed {
            Some(Observed { starts, records, blocks, .. }) => (starts, Some((records, blocks))),
            None => (self.starts()?, None),
        };
        for &kind in self.kinds {
            let database = self.database(kind);
            files.disk.create_dir_all(&database).during_creation(&database)?;
        }
        let tables = |kind| NewTables::new(files.disk, &self.database(kind), 1, 2, watch.interrupt);
        let mut filters = starts.of(IndexKind::BlockFilter).map(|start| {
            let files = FilterFiles::new(files.disk, self.building(IndexKind::BlockFilter), start.place);
            (files, tables(IndexKind::BlockFilter))
        });
        let mut stats = starts.of(IndexKind::CoinStats).map(|_| tables(IndexKind::CoinStats));
        let sinks = InOrderSinks {
            filters: filters.as_mut().map(|(files, rows)| Box::new(FilterRows { files, rows }) as _),
            stats: stats.as_mut().map(|rows| Box::new(StatsRows(rows)) as _),
        };
        let Collected { records, muhash, blocks_read } = match observed {
            Some((records, blocks)) => self.job.collect_with(&starts, records, Some(&blocks), sinks)?,
            None => self.job.collect(&starts, sequences_of_new(plan.chain.tip_height()), sinks)?,
        };
        let rows = records.into_rows(&plan.chain)?;

        watch.sink.event(Event::Started(Stage::Finish));
        let mut made = Vec::new();
        for &kind in self.kinds {
            let Some(start) = starts.of(kind) else { continue };
            let rows = match kind {
                IndexKind::BlockFilter => {
                    let Some((mut files, tables)) = filters.take() else { continue };
                    let place = files.finish()?.to_row();
                    self.write_in_order(kind, start, tables, place)?
                }
                IndexKind::CoinStats => {
                    let Some((tables, muhash)) = stats.take().zip(muhash.as_ref()) else { continue };
                    self.write_in_order(kind, start, tables, muhash_row(muhash))?
                }
                _ => self.write_rows(kind, start, &rows)?,
            };
            made.push(MadeIndex { name: kind, from_height: 0, rows, form: start.form_of(kind) });
        }
        Ok((made, blocks_read))
    }

    /// The rows below those of blocks.
    fn rows_below(&self, kind: IndexKind, start: &Start) -> Vec<Row> {
        let tip = self.job.plan.chain.tip_height();
        rows_below(kind, start, tip.0, locator(&self.job.plan.chain, tip))
    }

    /// Writes the database of an index whose rows come in any order. Returns the number of rows.
    fn write_rows(&self, kind: IndexKind, start: &Start, rows: &CollectedRows<'_>) -> Result<u64, Error> {
        let below = self.rows_below(kind, start);
        match (kind, rows) {
            (IndexKind::TxoSpender, CollectedRows { spends: Some(rows), .. }) => {
                self.write_set(kind, rows, |sink| give_sorted(below, sink))
            }
            (IndexKind::Tx, CollectedRows { by_txid: Some(rows), .. }) => {
                self.write_set(kind, rows, |sink| give_sorted(below, sink))
            }
            (IndexKind::Tx, CollectedRows { by_block: Some(rows), .. }) => {
                self.write_set(kind, rows, |sink| {
                    give_sorted(below, sink)?;
                    rows.form().give_blocks(&self.job.plan.chain, sink)
                })
            }
            _ => Ok(0),
        }
    }

    fn write_set<F: RowForm<N>, const N: usize>(
        &self,
        kind: IndexKind,
        rows: &RowSet<F, N>,
        give_below: impl FnOnce(&mut dyn RowSink) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let (dir, step) = (self.database(kind), rows.ranges() as u64 + 1);
        let IndexJob { files, watch, .. } = *self.job;
        let mut below = NewTables::new(files.disk, &dir, step, step, watch.interrupt);
        give_below(&mut below)?;
        let (mut tables, mut count) = below.finish()?;
        let done = AtomicU32::new(0);
        let write = |range: usize| {
            let mut tables = NewTables::new(files.disk, &dir, range as u64 + 1, step, watch.interrupt);
            rows.give(range, self.job.sort_bytes(), &mut tables)?;
            let share = f64::from(done.fetch_add(1, Ordering::Relaxed) + 1) / rows.ranges() as f64;
            let blocks = self.job.plan.chain.block_count() as f64 * share;
            pipeline::job::progress(watch.sink, self.job.plan, blocks as u32);
            tables.finish()
        };
        for written in for_all(self.job.budget.threads, 0..rows.ranges(), write)? {
            let (of_range, rows) = written?;
            tables.extend(of_range);
            count += rows;
        }
        self.complete(kind, &tables, count)
    }

    /// Writes the database of an index whose rows came in order, with `state`, the row from which it
    /// continues. Returns the number of rows.
    fn write_in_order(
        &self,
        kind: IndexKind,
        start: &Start,
        rows: NewTables<'_>,
        state: Row,
    ) -> Result<u64, Error> {
        let (mut tables, count) = rows.finish()?;
        let (disk, interrupt) = (self.job.files.disk, self.job.watch.interrupt);
        let mut below = NewTables::new(disk, &self.database(kind), 2, 2, interrupt);
        let rows = self.rows_below(kind, start).into_iter().chain([state]).collect();
        give_sorted(rows, &mut below)?;
        let (others, other_count) = below.finish()?;
        tables.extend(others);
        self.complete(kind, &tables, count + other_count)
    }

    /// Completes a database of these tables, and reads all of its `rows` rows and filters back.
    fn complete(&self, kind: IndexKind, tables: &[TableMeta], rows: u64) -> Result<u64, Error> {
        let (disk, dir, threads) = (self.job.files.disk, self.database(kind), self.job.budget.threads);
        write_database(disk, &dir, tables)?;
        let found = count_rows(disk, &dir, threads).map_err(|error| error.of_written("the new index"))?;
        if found != rows {
            let what = format!("the new index, with {found} rows instead of {rows},");
            return Err(Error::not_as_written(&what).in_file(dir, None));
        }
        if kind == IndexKind::BlockFilter {
            check_filter_files(disk, &dir, self.building(kind))?;
        }
        Ok(rows)
    }
}

/// Reads all rows of a database, and so checks the checksums of all blocks of its tables; returns their
/// number.
fn count_rows(disk: &dyn Disk, dir: &Path, threads: usize) -> Result<u64, Error> {
    let database = &Database::open(disk, dir)?;
    // Most keys begin with one of a few letters, and go on with a hash.
    let starts =
        (b't'..=b'x').chain([b's']).flat_map(|first| (0..=15).map(move |high| vec![first, high << 4]));
    let mut starts: Vec<Vec<u8>> = starts.chain([Vec::new()]).collect();
    starts.sort_unstable();
    let ends = starts.iter().skip(1).map(Some).chain([None]);
    let count = |(start, end): (&Vec<u8>, Option<&Vec<u8>>)| {
        let mut cursor = database.range(start, end.map(Vec::as_slice))?;
        let mut rows = 0u64;
        while cursor.advance()? {
            rows += 1;
        }
        Ok::<u64, Error>(rows)
    };
    for_all(threads, starts.iter().zip(ends), count)?.into_iter().sum()
}

/// Reads the filter of each row, and compares it with its hash.
fn check_filter_files(disk: &dyn Disk, database: &Path, dir: &Path) -> Result<(), Error> {
    let (database, mut reader) = (Database::open(disk, database)?, FilterReader::new(disk, dir));
    let mut rows = database.range(b"t", Some(b"u"))?;
    while rows.advance()? {
        let Some((block, hashes, place)) = FilterPlace::of_row(rows.value()) else { continue };
        if reader.read(&block, place)?.is_none_or(|filter| sha256d(&filter) != hashes.hash) {
            let file = dir.join(file_name(place.file));
            return Err(Error::not_as_written("a new filter").in_file(file, None));
        }
    }
    Ok(())
}
