//! Writes the rows and the filter files of indexes, for a new database or into an old one.

use crate::{
    block_filter::{self, FilterPlace, row_value},
    coin_stats::muhash_row,
    collect::{Filter, InOrderSink, Stats},
    rows::{Row, RowSink},
};
use api::error::Error;
use chain::threads::for_all;
use digest::muhash::MuHash3072;
use disk::node_indexes::{IndexKind, filter_file, height_key};
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
pub const STOP_CHECK_INTERVAL: u64 = 1 << 16;

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
        let should_stop = || self.interrupt.load(Ordering::Relaxed);
        self.range.merge(should_stop)?.ok_or_else(Error::interrupted)
    }
}

/// Puts rows of about `bytes` into a database, all at once, on up to `threads` threads. `give` gives those of
/// each range of keys to a sink; `starts` are the first keys of all ranges but the first. Returns the number
/// of rows.
///
/// # Errors
/// Any I/O error; [`api::error::ErrorKind::Interrupted`]. The database is then as it was.
pub fn add_rows(
    database: &mut Database<'_>,
    bytes: u64,
    starts: &[Vec<u8>],
    threads: usize,
    interrupt: &AtomicBool,
    give: impl Fn(usize, &mut RowSink<'_>) -> Result<(), Error> + Sync,
) -> Result<u64, Error> {
    let update = database.large_update(bytes)?;
    let write = |range: usize| {
        let start = range.checked_sub(1).and_then(|before| starts.get(before));
        let end = starts.get(range).map(Vec::as_slice);
        let new = update.range(start.map(Vec::as_slice).unwrap_or_default(), end);
        let mut rows = NewRows::new(new, interrupt);
        give(range, &mut |key, value, _| rows.put(key, value))?;
        rows.finish()
    };
    let ranges = for_all(threads, 0..=starts.len(), write)?.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let rows = ranges.iter().map(ChangedRange::rows).sum();
    update.commit(ranges)?;
    // Look-ups should ask few tables, also after many updates.
    database.merge_if_many(|| interrupt.load(Ordering::Relaxed))?;
    Ok(rows)
}

/// Appends filters to the files of `blockfilterindex`.
pub struct FilterFiles<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
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
        self.dir.join(filter_file(self.place.file))
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

#[cfg(test)]
mod tests {
    use super::*;
    use api::error::ErrorKind;
    use leveldb::write_database;
    use vfs::RealDisk;

    const ROWS: u32 = 300_000;
    const ADDED: u32 = 1_000;

    fn row(number: u32) -> ([u8; 4], [u8; 4]) {
        (number.to_be_bytes(), number.to_le_bytes())
    }

    /// Adds odd rows to the even ones, in two ranges, of which the second gets none.
    fn add_odd(database: &mut Database<'_>, interrupt: &AtomicBool) -> Result<u64, Error> {
        let starts = [row(ROWS / 2).0.to_vec()];
        add_rows(database, 1 << 40, &starts, 2, interrupt, |range, sink| {
            let added = if range == 0 { ADDED } else { 0 };
            let mut odd = (0..added).map(|number| row(2 * number + 1));
            odd.try_for_each(|(key, value)| sink(&key, &value, None))
        })
    }

    /// Ctrl-C once did nothing for hours, while the new rows of an index were merged with the older ones.
    #[test]
    fn many_rows_are_written_with_the_older_ones_and_an_interrupt_ends_that() {
        let dir = tempfile::tempdir().unwrap();
        write_database(&RealDisk, dir.path(), (0..ROWS).step_by(2).map(row)).unwrap();
        // All levels have tables, as those that bitcoind leaves.
        let mut database = Database::open(&RealDisk, dir.path()).unwrap();
        for _ in 0..6 {
            let update = database.update().unwrap();
            let ranges = [(0, 2), (2, ROWS)].map(|(first, end)| {
                let mut range = update.range(&row(first).0, Some(&row(end).0));
                range.set(&row(end - 2).0, Some(&row(end - 2).1)).unwrap();
                range.finish().unwrap()
            });
            update.commit(ranges).unwrap();
        }
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let before = files();
        let error = add_odd(&mut database, &AtomicBool::new(true)).unwrap_err();
        assert_eq!((error.kind, files()), (ErrorKind::Interrupted, before));
        assert_eq!(database.get(&row(1).0).unwrap(), None);

        assert_eq!(add_odd(&mut database, &AtomicBool::new(false)).unwrap(), u64::from(ADDED));
        for number in (0..ROWS).step_by(7) {
            let is_there = number % 2 == 0 || number < 2 * ADDED;
            assert_eq!(database.get(&row(number).0).unwrap(), is_there.then(|| row(number).1.to_vec()));
        }
        assert_eq!(files(), 5, "two tables, CURRENT, LOCK and the MANIFEST");
    }
}
