//! Writes the rows and files of indexes: as a new database, or into one that is there.

use crate::{
    block_filter::{self, FilterPlace, height_key, row_value},
    collect::{Filter, InOrderSink, Stats},
    rows::{Row, RowSink},
};
use api::error::Error;
use disk::table_run::TableRun;
use leveldb::{ChangedRange, Database, RangeUpdate, TableMeta};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _, WriteAt};
use wire::{BlockHash, Height};

/// Bytes of filters that are written together.
const BUFFER_BYTES: usize = 1 << 20;
/// Number of rows between two looks at whether the caller asked to stop.
const STOP_CHECK_INTERVAL: u64 = 1 << 16;

/// Rows that become tables of a new database.
pub struct NewTables<'a> {
    run: TableRun<'a>,
    pub rows: u64,
    interrupt: &'a AtomicBool,
}

impl<'a> NewTables<'a> {
    /// Begins the table `first` in `dir`. The tables that follow have numbers that are `step` higher each.
    pub fn new(disk: &'a dyn Disk, dir: &Path, first: u64, step: u64, interrupt: &'a AtomicBool) -> Self {
        Self { run: TableRun::new(disk, dir, first, step), rows: 0, interrupt }
    }

    /// Completes the tables.
    pub fn finish(self) -> Result<(Vec<TableMeta>, u64), Error> {
        Ok((self.run.finish()?, self.rows))
    }
}

impl RowSink for NewTables<'_> {
    fn row(&mut self, key: &[u8], value: &[u8], _: Option<Height>) -> Result<(), Error> {
        self.run.add(key, value)?;
        self.rows += 1;
        if self.rows.is_multiple_of(STOP_CHECK_INTERVAL) && self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        Ok(())
    }
}

/// Rows that are put into a database that exists, over those with the same keys.
pub struct Changes<'u> {
    range: RangeUpdate<'u>,
    pub rows: u64,
}

impl<'u> Changes<'u> {
    /// Of a range of all keys.
    pub const fn new(range: RangeUpdate<'u>) -> Self {
        Self { range, rows: 0 }
    }

    /// Returns the changes, for the commit, and the number of rows.
    pub fn finish(self) -> Result<(ChangedRange, u64), Error> {
        Ok((self.range.finish()?, self.rows))
    }
}

impl RowSink for Changes<'_> {
    fn row(&mut self, key: &[u8], value: &[u8], _: Option<Height>) -> Result<(), Error> {
        self.rows += 1;
        Ok(self.range.set(key, Some(value))?)
    }
}

/// Puts rows into a database, all at once.
///
/// # Errors
/// Any I/O error; the database is then as it was.
pub fn change(
    database: &mut Database<'_>,
    give: impl FnOnce(&mut dyn RowSink) -> Result<(), Error>,
) -> Result<u64, Error> {
    let update = database.update()?;
    let mut changes = Changes::new(update.range(&[], None));
    give(&mut changes)?;
    let (range, rows) = changes.finish()?;
    update.commit([range])?;
    // So that look-ups ask few tables after many updates.
    database.merge_if_many()?;
    Ok(rows)
}

/// Gives rows that are few to a sink, in order.
pub fn give_sorted(mut rows: Vec<Row>, sink: &mut dyn RowSink) -> Result<(), Error> {
    rows.sort_unstable();
    rows.iter().try_for_each(|(key, value)| sink.row(key, value, None))
}

/// Appends filters to the files of `blockfilterindex`.
pub struct FilterFiles<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
    /// The place of the next filter.
    place: FilterPlace,
    file: Option<Box<dyn WriteAt>>,
    /// What is not written yet: it ends at `place`.
    buffer: Vec<u8>,
}

impl<'a> FilterFiles<'a> {
    /// Appends from `place` on to the files in `dir`.
    pub fn new(disk: &'a dyn Disk, dir: &Path, place: FilterPlace) -> Self {
        Self { disk, dir: dir.to_owned(), place, file: None, buffer: Vec::new() }
    }

    /// Appends a filter; returns its place.
    pub fn append(&mut self, block: &BlockHash, filter: &[u8]) -> Result<FilterPlace, Error> {
        let record = block_filter::record(block, filter);
        let place = self.place.of_next(record.len() as u32);
        if place.file != self.place.file {
            self.close(true)?;
            self.place = place;
        }
        self.buffer.extend_from_slice(&record);
        self.place.pos += record.len() as u32;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(place)
    }

    fn path(&self) -> PathBuf {
        self.dir.join(block_filter::file_name(self.place.file))
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let path = self.path();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.disk.open_for_writing(&path).during("open for writing", &path)?),
        };
        let start = u64::from(self.place.pos) - self.buffer.len() as u64;
        file.write_all_at(&self.buffer, start).during("write", &path)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes and syncs the file. If the next filter begins another one, cuts it at the last filter, as Core
    /// does. Nothing is cut off otherwise: bitcoind may have left filters there of blocks that it has
    /// removed.
    fn close(&mut self, is_full: bool) -> Result<(), Error> {
        self.flush()?;
        let path = self.path();
        if let Some(mut file) = self.file.take() {
            if is_full {
                file.truncate(self.place.pos.into()).during("cut", &path)?;
            }
            file.sync().during("sync", &path)?;
        }
        Ok(())
    }

    /// Writes and syncs what is left; returns the place of the next filter.
    pub fn finish(&mut self) -> Result<FilterPlace, Error> {
        self.close(false)?;
        self.disk.sync_dir(&self.dir).during("sync", &self.dir)?;
        Ok(self.place)
    }
}

/// Writes filters and their rows.
pub struct FilterRows<'a, 'd> {
    pub files: &'a mut FilterFiles<'d>,
    pub rows: &'a mut (dyn RowSink + Send),
}

impl InOrderSink<Filter> for FilterRows<'_, '_> {
    fn take(&mut self, height: Height, hash: &BlockHash, filter: Filter) -> Result<(), Error> {
        let place = self.files.append(hash, &filter.encoded)?;
        self.rows.row(&height_key(height), &row_value(hash, &filter.hashes, place), Some(height))
    }
}

/// Writes the rows of statistics.
pub struct StatsRows<'a>(pub &'a mut (dyn RowSink + Send));

impl InOrderSink<Stats> for StatsRows<'_> {
    fn take(&mut self, height: Height, hash: &BlockHash, stats: Stats) -> Result<(), Error> {
        let value = stats.totals.row_value(hash, &stats.muhash.finalize());
        self.0.row(&height_key(height), &value, Some(height))
    }
}
