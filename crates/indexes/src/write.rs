//! Writes the rows and the filter files of indexes, for a new database or into an old one.

use crate::{
    block_filter::{self, FilterPlace, height_key, row_value},
    coin_stats::muhash_row,
    collect::{Filter, InOrderSink, Stats},
    rows::{Row, RowSink},
};
use api::error::Error;
use digest::muhash::MuHash3072;
use disk::node_indexes::IndexKind;
use leveldb::{ChangedRange, Database, RangeUpdate};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _, WriteAt};
use wire::{BlockHash, Height};

/// Bytes of filters that are written together.
const BUFFER_BYTES: usize = 1 << 20;
/// Number of rows between two checks whether the caller asked to stop.
const STOP_CHECK_INTERVAL: u64 = 1 << 16;

/// Rows that are put into a database, in ascending order of their keys, until the caller asks to stop.
pub struct NewRows<'u> {
    range: RangeUpdate<'u>,
    interrupt: &'u AtomicBool,
}

impl<'u> NewRows<'u> {
    /// Begins to put rows into `range`.
    pub fn new(range: RangeUpdate<'u>, interrupt: &'u AtomicBool) -> Self {
        Self { range, interrupt }
    }

    /// Puts a row, over one with the same key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.range.set(key, Some(value))?;
        if self.range.rows().is_multiple_of(STOP_CHECK_INTERVAL) && self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        Ok(())
    }

    /// Completes the range, for the commit.
    pub fn finish(self) -> Result<ChangedRange, Error> {
        Ok(self.range.finish()?)
    }
}

/// Puts the rows that `give` gives to a sink into a database, all at once. Returns their number.
///
/// # Errors
/// Any I/O error; [`api::error::ErrorKind::Interrupted`]. The database is then as it was.
pub fn add_rows(
    database: &mut Database<'_>,
    interrupt: &AtomicBool,
    give: impl FnOnce(&mut RowSink<'_>) -> Result<(), Error>,
) -> Result<u64, Error> {
    let update = database.update()?;
    let mut range = NewRows::new(update.range(&[], None), interrupt);
    give(&mut |key, value, _| range.put(key, value))?;
    let range = range.finish()?;
    let rows = range.rows();
    update.commit([range])?;
    // Look-ups should ask few tables, also after many updates.
    database.merge_if_many()?;
    Ok(rows)
}

/// Appends filters to the files of `blockfilterindex`.
pub struct FilterFiles<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
    /// The place of the next filter.
    place: FilterPlace,
    file: Option<Box<dyn WriteAt>>,
    /// The bytes that are not written yet. They end at `place`.
    buffer: Vec<u8>,
}

impl<'a> FilterFiles<'a> {
    /// Begins to append at `place` in the files of `dir`.
    pub fn new(disk: &'a dyn Disk, dir: &Path, place: FilterPlace) -> Self {
        Self { disk, dir: dir.to_owned(), place, file: None, buffer: Vec::new() }
    }

    /// Appends a filter; returns its place.
    pub fn append(&mut self, block: &BlockHash, filter: &[u8]) -> Result<FilterPlace, Error> {
        let framed = block_filter::framed(block, filter);
        let place = self.place.of_next(framed.len() as u32);
        if place.file != self.place.file {
            self.close(true)?;
            self.place = place;
        }
        self.buffer.extend_from_slice(&framed);
        self.place.pos += framed.len() as u32;
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

    /// Writes and syncs the file. If it is full, and the next filter begins another one, cuts it after the
    /// last filter, as Core does. Otherwise nothing is cut off: what follows may be filters that bitcoind has
    /// left there, of blocks that it has disconnected.
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
    pub fn finish(mut self) -> Result<FilterPlace, Error> {
        self.close(false)?;
        self.disk.sync_dir(&self.dir).during("sync", &self.dir)?;
        Ok(self.place)
    }
}

/// Writes filters, their rows, and the rows of statistics, where they are wanted.
pub struct InOrderWriter<'a> {
    /// The files of filters, and what puts the rows of filters into their database.
    pub filters: Option<(FilterFiles<'a>, NewRows<'a>)>,
    /// What puts the rows of statistics into their database.
    pub stats: Option<NewRows<'a>>,
}

impl InOrderWriter<'_> {
    /// Writes and syncs what is left of the filters and of the rows. Returns the rows of each index, for the
    /// commit, and the row from which bitcoind continues. `muhash` is that of all coins.
    pub fn finish(self, muhash: &MuHash3072) -> Result<BTreeMap<IndexKind, (ChangedRange, Row)>, Error> {
        let mut all = BTreeMap::new();
        if let Some((files, rows)) = self.filters {
            all.insert(IndexKind::BlockFilter, (rows.finish()?, files.finish()?.to_row()));
        }
        if let Some(rows) = self.stats {
            all.insert(IndexKind::CoinStats, (rows.finish()?, muhash_row(muhash)));
        }
        Ok(all)
    }
}

impl InOrderSink for InOrderWriter<'_> {
    fn filter(&mut self, height: Height, hash: &BlockHash, filter: Filter) -> Result<(), Error> {
        let Some((files, rows)) = &mut self.filters else { return Ok(()) };
        let place = files.append(hash, &filter.encoded)?;
        rows.put(&height_key(height), &row_value(hash, &filter.hashes, place))
    }

    fn stats(&mut self, height: Height, hash: &BlockHash, stats: Stats) -> Result<(), Error> {
        let Some(rows) = &mut self.stats else { return Ok(()) };
        rows.put(&height_key(height), &stats.totals.row_value(hash, &stats.muhash.finalize()))
    }
}
