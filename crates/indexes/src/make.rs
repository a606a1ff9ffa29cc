//! Makes indexes anew, beside the old ones, and then puts them in place.

use crate::{
    base::{Base, base_of},
    block_filter::FilterPlace,
    collect::Collected,
    filter_reader::FilterReader,
    job::{self, IndexJob},
    observer::Observed,
    options::{IndexOptions, MadeIndex, MadeIndexes, MadeIndexesReport},
    rows::{Row, TxRows},
    write::{FilterFiles, InOrderWriter, NewRows, STOP_CHECK_INTERVAL},
};
use api::{
    error::Error,
    event::{Event, Progress, Watch},
    machine,
    note::Warning,
    stage::Stage,
};
use chain::{plan::planner::Plan, threads::for_all};
use digest::sha256::sha256d;
use disk::{
    datadir::FILTER_DATABASE,
    lock::LockMode,
    node_indexes::{IndexKind, filter_file},
    replace::{CommitError, Replacement},
};
use leveldb::{ChangedRange, Database, DatabaseUpdate};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};
use vfs::{Disk, During as _};

/// Makes indexes anew from the blocks up to the chainstate's best block, beside those that are there, and
/// then exchanges all of them at once. If this fails or is interrupted, the old ones stay.
///
/// # Errors
/// Errors of these [kinds](api::error::ErrorKind): `Usage` if no index is named and none is there; `Damaged`
/// for blocks or undo data that are damaged or missing; `Environment` if the disk is full, the datadir in
/// use, or its owner another user; `Interrupted`.
pub fn make_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    watch: Watch<'_>,
) -> Result<MadeIndexesReport, Error> {
    make_with(disk, options, None, watch)
}

/// Like [`make_indexes`], with what an observer has made of blocks.
pub fn make_with(
    disk: &dyn Disk,
    options: &IndexOptions,
    observed: Option<Observed>,
    watch: Watch<'_>,
) -> Result<MadeIndexesReport, Error> {
    job::run(disk, options, LockMode::Change, watch, |job, kinds| {
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
            let (tx_form, blocks) = (job.tx_form(kinds)?, chain.block_count() as u64);
            let space = |&kind| (kind, job::space_of(kind, tx_form, blocks, *block_bytes, false));
            let spaces: Vec<_> = kinds.iter().map(space).collect();
            job.check_space(&spaces)?;
        }
        let names: Vec<PathBuf> = kinds.iter().map(|kind| kind.replaced_dir()).collect();
        let names: Vec<&Path> = names.iter().map(PathBuf::as_path).collect();
        let replacement =
            &Replacement::begin(disk, home, &names, machine::random()?, options.chain.keep_old)?;
        let made = Making { job, kinds, replacement }.make(observed);
        made.and_then(|made| Ok(MadeIndexes { kept: commit(job, kinds, replacement)?, ..made }))
            .inspect_err(|_| replacement.discard())
    })
}

/// Puts the new indexes in place; returns the paths of the old ones that are kept.
fn commit(
    job: &IndexJob<'_>,
    kinds: &[IndexKind],
    replacement: &Replacement<'_>,
) -> Result<Vec<PathBuf>, Error> {
    let Watch { sink, interrupt } = job.watch;
    sink.event(Event::Started(Stage::Commit));
    Error::check_interrupt(interrupt)?;
    match replacement.commit(|| ()) {
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

/// Makes new indexes in the directories of a replacement.
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

    /// Begins rows whose tables have the numbers `first`, `first + step` and so on.
    fn rows<'u>(&self, update: &'u DatabaseUpdate<'_, '_>, first: usize, step: usize) -> NewRows<'u>
    where
        Self: 'u,
    {
        NewRows::new(update.numbered_range(first as u64, step), self.job.watch.interrupt)
    }

    /// Makes all indexes; returns what was written.
    fn make(&self, observed: Option<Observed>) -> Result<MadeIndexes, Error> {
        let IndexJob { files, plan, options, watch, .. } = *self.job;
        let (bases, observed) = match observed {
            Some(Observed { bases, rows, blocks, .. }) => (bases, Some((rows, blocks))),
            None => {
                let (tx_form, tip) = (self.job.tx_form(self.kinds)?, plan.chain.tip_height());
                let bases = self.kinds.iter().map(|kind| Base::of_new(*kind, options, tx_form, tip));
                (bases.collect::<Result<_, _>>()?, None)
            }
        };
        for &kind in self.kinds {
            let database = self.database(kind);
            files.disk.create_dir_all(&database).during_creation(&database)?;
        }
        let wanted: Vec<&Base> = self.kinds.iter().filter_map(|kind| base_of(&bases, *kind)).collect();
        let new = |base: &&Base| Database::new(files.disk, &self.database(base.kind));
        let mut databases: Vec<Database<'_>> = wanted.iter().map(new).collect();
        let updates = databases.iter_mut().map(Database::update).collect::<Result<Vec<_>, _>>()?;
        let rows = |kind| {
            let (_, update) = wanted.iter().zip(&updates).find(|(base, _)| base.kind == kind)?;
            Some(self.rows(update, 1, 2))
        };
        let filter_dir = self.building(IndexKind::BlockFilter);
        let filter_files = || FilterFiles::new(files.disk, filter_dir, FilterPlace::default());
        let mut writer = InOrderWriter {
            filters: rows(IndexKind::BlockFilter).map(|rows| (filter_files(), rows)),
            stats: rows(IndexKind::CoinStats),
        };
        let Collected { rows, muhash, blocks_read } = match observed {
            Some((rows, blocks)) => self.job.collect_others(&bases, rows, Some(&blocks), &mut writer)?,
            None => self.job.collect(&bases, &mut writer)?,
        };

        watch.sink.event(Event::Started(Stage::Finish));
        let (mut in_order, mut indexes) = (writer.finish(&muhash)?, Vec::new());
        for (base, update) in wanted.into_iter().zip(updates) {
            let (in_order, state) = in_order.remove(&base.kind).unzip();
            let mut ranges = Vec::from_iter(in_order);
            let rows = rows.iter().find(|rows| rows.kind() == base.kind).map(|rows| &**rows);
            self.write(base, rows, state, &update, &mut ranges)?;
            let rows = ranges.iter().map(ChangedRange::rows).sum();
            update.commit(ranges)?;
            indexes.push(MadeIndex { name: base.kind, from_height: 0, rows, form: base.form() });
        }
        watch.sink.event(Event::Started(Stage::Prove));
        for index in &indexes {
            self.read_back(index.name, index.rows)?;
        }
        Ok(MadeIndexes { indexes, blocks_read, kept: Vec::new() })
    }

    /// Writes the first rows of an index, which include `state`, and `rows`, those of transactions.
    fn write(
        &self,
        base: &Base,
        rows: Option<&dyn TxRows>,
        state: Option<Row>,
        update: &DatabaseUpdate<'_, '_>,
        written: &mut Vec<ChangedRange>,
    ) -> Result<(), Error> {
        let IndexJob { plan, watch, .. } = *self.job;
        let ranges = rows.map_or(0, TxRows::ranges);
        // The rows of filters and of statistics, which have no ranges, are in the tables 1, 3, ...
        let step = ranges.max(1) + 1;
        let mut first = self.rows(update, step, step);
        base.give_first_rows(&plan.chain, state, &mut |key, value, _| first.put(key, value))?;
        written.push(first.finish()?);
        let Some(rows) = rows else { return Ok(()) };
        let meter = plan.meter(plan.chain.block_count(), watch.sink);
        // A range counts as its share of the blocks.
        let blocks_below = |range: usize| plan.chain.block_count() as u64 * range as u64 / ranges as u64;
        let write = |range: usize| {
            let mut new = self.rows(update, range + 1, step);
            let sink = &mut |key: &[u8], value: &[u8], _| new.put(key, value);
            rows.give(&plan.chain, range, self.job.sort_bytes(), sink)?;
            meter.add((blocks_below(range + 1) - blocks_below(range)) as u32, 0);
            new.finish()
        };
        for range in for_all(self.job.budget.threads, 0..ranges, write)? {
            written.push(range?);
        }
        Ok(())
    }

    /// Reads all rows of an index and its filters back: it has this number of rows.
    fn read_back(&self, kind: IndexKind, rows: u64) -> Result<(), Error> {
        let dir = self.database(kind);
        let found = count_rows(self.job, &dir, rows).map_err(|error| error.of_written("the new index"))?;
        if found != rows {
            let what = format!("the new index, with {found} rows instead of {rows},");
            return Err(Error::not_as_written(&what).in_file(dir, None));
        }
        if kind == IndexKind::BlockFilter {
            check_filter_files(self.job, &dir, self.building(kind))?;
        }
        Ok(())
    }
}

/// Reads all rows of a database, which should have so many, and so checks the checksums of all its tables.
/// Returns the number of rows.
fn count_rows(job: &IndexJob<'_>, dir: &Path, rows: u64) -> Result<u64, Error> {
    let (database, done) = (&Database::open(job.files.disk, dir)?, AtomicU64::new(0));
    let row_bytes = database.table_bytes() / rows.max(1);
    let look = |more: u64| {
        let bytes = (done.fetch_add(more, Ordering::Relaxed) + more) * row_bytes;
        let bytes_total = bytes.max(rows * row_bytes);
        job.watch.sink.event(Event::Progress(Progress { blocks: 0, blocks_total: 0, bytes, bytes_total }));
        Error::check_interrupt(job.watch.interrupt)
    };
    // Most keys are one of a few letters and a hash.
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
            if rows.is_multiple_of(STOP_CHECK_INTERVAL) {
                look(STOP_CHECK_INTERVAL)?;
            }
        }
        look(rows % STOP_CHECK_INTERVAL)?;
        Ok::<u64, Error>(rows)
    };
    for_all(job.budget.threads, starts.iter().zip(ends), count)?.into_iter().sum()
}

/// Reads the filter of each row, and compares it with its hash.
fn check_filter_files(job: &IndexJob<'_>, database: &Path, dir: &Path) -> Result<(), Error> {
    let (disk, meter) = (job.files.disk, job.plan.meter(job.plan.chain.block_count(), job.watch.sink));
    let (database, mut reader) = (Database::open(disk, database)?, FilterReader::new(disk, dir));
    let mut rows = database.range(b"t", Some(b"u"))?;
    while rows.advance()? {
        Error::check_interrupt(job.watch.interrupt)?;
        let Some((block, hashes, place)) = FilterPlace::of_row(rows.value()) else { continue };
        if reader.read(&block, place)?.is_none_or(|filter| sha256d(&filter) != hashes.hash) {
            let file = dir.join(filter_file(place.file));
            return Err(Error::not_as_written("a new filter").in_file(file, None));
        }
        meter.add(1, 0);
    }
    Ok(())
}
