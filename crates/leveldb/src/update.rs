//! Changes a database, all at once, as LevelDB would: adds a log with new rows and deletions, or tables.
//! The first change of a new database makes it one.
//!
//! A small change becomes a log of its own, which gets its name when it is on the medium: two syncs. LevelDB
//! writes a table of each log when it opens the database.
//!
//! A large change, and one that finds many logs, becomes tables. A new MANIFEST lists the old tables and the
//! new ones; `CURRENT` names it when everything else is on the medium. Until then, a crash leaves the old
//! database, and files that LevelDB removes when it opens it. Rows of logs go into the new tables too, unless
//! they are replaced, and the new MANIFEST has a log number above all logs, so that LevelDB ignores and
//! removes them. All rows of new tables have one sequence number, above that of all older rows.
//!
//! New tables do not overlap each other. They go to the deepest level such that neither it nor any level
//! above it has keys between the first and the last of them. In a database that was written in one pass,
//! whose tables are in level 6, this is level 5, with a limit of 100 GB. The levels 4 to 1 follow, whose
//! limits are each a tenth of the one below; after that, tables are added to level 0, as LevelDB does. When
//! it opens the database, it compacts level 0 and what is above the limits, for long if that is much
//! ([`Database::has_full_level`]). LevelDB writes nothing while level 0 has many tables: a change that would
//! add many is written in one pass with the rows of the levels above and of similar size
//! ([`Database::large_update`]).
//!
//! All tables of a new database are in level 6, which has no limit, and all its rows have sequence number 1.
//! There is no log; LevelDB begins one. A crash leaves a directory without `CURRENT`, which is not a
//! database, or the complete database.
//!
//! A database that gets many changes from here is to be merged now and then ([`Database::merge`],
//! [`Database::merge_if_many`]), so that a row is looked up in few tables, and LevelDB has little to compact.

use std::{
    collections::BTreeSet,
    iter, mem,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use hex_conservative::DisplayHex as _;

use super::batch::{Batch, MemTable};
use super::coding::{DELETION, MAX_SEQUENCE, VALUE};
use super::cursor::Cursor;
use super::manifest::{self, LEVELS, Manifest, TableMeta, manifest_name, numbered, parse_name};
use super::reader::Database;
use super::writer::{TableWriter, UnsyncedTable};
use super::{LevelDbError, log};
use vfs::{AtomicFile, Disk, During as _, write_synced};

/// Bytes of rows after which a table is finished. With filter and index, about 4 % more, it stays below
/// Core's `DBWRAPPER_MAX_FILE_SIZE`.
const TABLE_ROWS_LEN: u64 = (32 << 20) / 16 * 15;
/// Number of complete tables of a range that wait to be synced, each with its open file: the system limits
/// how many a process may have.
const MAX_OPEN_TABLES: usize = 64;

/// Maximum length of all logs in bytes: LevelDB begins a table after as much (of chainstates, 2 MiB).
const LOG_BYTES: usize = 2 << 20;
/// Number of logs from which on a change becomes a table: LevelDB makes one of each.
const MANY_LOGS: usize = 12;

/// A level is merged with those above it unless it has more than this many times their bytes: levels then
/// grow threefold, and each row is rewritten a few times in all.
const MERGED_SHARE: u64 = 2;
/// Number of tables of level 0 from which on levels are merged: LevelDB itself begins with 4.
const MANY_TABLES: usize = 12;
/// Bytes of level 1 that are rewritten for each table of level 0, at most.
const BYTES_PER_TABLE: u64 = 8 << 20;
/// LevelDB's limit of level 1 in bytes; that of each level below is ten times as large.
const LEVEL1_BYTES: u64 = 10 << 20;
/// Bytes above the limit of a level that LevelDB compacts within seconds: less is not worth a merge.
const SOON_COMPACTED: u64 = 256 << 20;
/// Number of rows that are merged between two checks for a stop.
const STOP_CHECK_INTERVAL: u32 = 1 << 16;

/// A change of a database that is being written, by any number of threads. If it is dropped before
/// [`DatabaseUpdate::commit`], the database is as it was.
pub struct DatabaseUpdate<'a, 'd> {
    database: &'a mut Database<'d>,
    sequence: u64,
    /// The numbers of the first new file, and of the next one.
    first: u64,
    next: AtomicU64,
    /// The deepest of the levels whose rows are written anew.
    merged: Option<usize>,
}

/// The changes of one range of keys.
pub struct RangeUpdate<'u> {
    database: &'u Database<'u>,
    sequence: u64,
    /// The numbers of its tables.
    numbers: Box<dyn Iterator<Item = u64> + Send + 'u>,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    merged: Option<usize>,
    /// Number of rows that were set.
    rows: u64,
    /// The rows, as long as they are few enough for a log.
    log: Option<Batch>,
    last_key: Vec<u8>,
    /// The older rows that come next: those of the logs, and of the levels that are written anew.
    older: Option<Box<Cursor<'u>>>,
    /// Whether `older` was opened.
    has_begun: bool,
    open: Option<TableWriter>,
    complete: Vec<UnsyncedTable>,
}

/// The complete changes of one range of keys, which may not be on the medium yet: another thread can wait.
#[must_use = "a range must be synced before the change is put in place"]
pub struct UnsyncedRange {
    tables: Vec<UnsyncedTable>,
    log: Option<Batch>,
    rows: u64,
}

impl UnsyncedRange {
    /// Returns when all tables of the range are on the medium.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if the disk fails.
    pub fn sync(self) -> Result<ChangedRange, LevelDbError> {
        let Self { tables, log, rows } = self;
        let tables = tables.into_iter().map(UnsyncedTable::sync).collect::<Result<_, _>>()?;
        Ok(ChangedRange { tables, log, rows })
    }
}

/// The complete changes of one range of keys, for [`DatabaseUpdate::commit`].
#[must_use]
pub struct ChangedRange {
    /// They are on the medium.
    tables: Vec<TableMeta>,
    /// All rows of a small change, instead of tables: they are written when they are put in place.
    log: Option<Batch>,
    rows: u64,
}

impl ChangedRange {
    /// Number of rows that were set or deleted.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

/// Writes a new database of these rows, whose keys ascend, into `dir`, which must exist. The caller syncs the
/// directory's own name.
///
/// # Errors
/// [`LevelDbError::Order`] if the keys do not ascend; [`LevelDbError::File`] if the disk fails or `dir`
/// contains a database.
pub fn write_database<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    disk: &dyn Disk,
    dir: &Path,
    rows: impl IntoIterator<Item = (K, V)>,
) -> Result<(), LevelDbError> {
    let mut database = Database::new(disk, dir);
    let update = database.update()?;
    let mut range = update.range(&[], None);
    rows.into_iter().try_for_each(|(key, value)| range.set(key.as_ref(), Some(value.as_ref())))?;
    let range = range.finish()?;
    update.commit([range])
}

impl<'d> Database<'d> {
    /// Begins a change. The caller holds the database's `LOCK`, and no other process has the database open.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if the directory cannot be listed; [`LevelDbError::Damaged`] if the sequence
    /// numbers are used up.
    pub fn update(&mut self) -> Result<DatabaseUpdate<'_, 'd>, LevelDbError> {
        let sequence = self.manifest.last_sequence + 1;
        // A log takes one for each row.
        if sequence > MAX_SEQUENCE - LOG_BYTES as u64 {
            return Err(self.damaged("no sequence number is left"));
        }
        let names = self.disk.list(&self.dir).during("list", &self.dir)?;
        // A crash can leave files with numbers that no MANIFEST knows.
        let numbers = names.iter().filter_map(|name| parse_name(name)).map(|(_, number)| number);
        let first = self.manifest.next_file.max(numbers.max().unwrap_or(0).saturating_add(1));
        Ok(DatabaseUpdate { database: self, sequence, first, next: AtomicU64::new(first), merged: None })
    }

    /// Like [`Database::update`], for a change that adds about `bytes`. If these would be too much for the
    /// level that they would go to, levels of similar size are written anew with them, in the same ranges.
    ///
    /// # Errors
    /// Those of [`Database::update`].
    pub fn large_update(&mut self, bytes: u64) -> Result<DatabaseUpdate<'_, 'd>, LevelDbError> {
        let merged = self.level_merged_with(bytes);
        let mut update = self.update()?;
        update.merged = merged;
        Ok(update)
    }

    /// Number of bytes that [`Database::large_update`] writes anew.
    pub fn bytes_merged_with(&self, bytes: u64) -> u64 {
        self.level_merged_with(bytes).map_or(0, |level| self.bytes_down_to(level))
    }

    /// Bytes of all levels down to this one.
    fn bytes_down_to(&self, level: usize) -> u64 {
        bytes_of(self.manifest.levels.iter().take(level + 1).flatten())
    }

    /// Returns the deepest of the levels that are written anew with new rows of about `bytes`.
    fn level_merged_with(&self, bytes: u64) -> Option<usize> {
        let used = self.manifest.levels.iter().position(|tables| !tables.is_empty()).unwrap_or(LEVELS);
        let limit = used.checked_sub(2).map_or(0, |below| LEVEL1_BYTES * 10u64.pow(below as u32));
        let is_large = bytes > limit.max(MANY_TABLES as u64 * TABLE_ROWS_LEN);
        is_large.then(|| self.level_to_merge(bytes).unwrap_or(0).max(1))
    }

    /// Merges levels of similar size into the deepest of them, as compactions of LevelDB do. The rows stay
    /// the same. Begins with what the logs have. If `should_stop` returns true, nothing is merged.
    ///
    /// # Errors
    /// The same errors as [`Database::begin_merge`], [`RangeUpdate::merge`] and [`DatabaseUpdate::commit`].
    pub fn merge(&mut self, should_stop: impl Fn() -> bool) -> Result<(), LevelDbError> {
        let Some(update) = self.begin_merge()? else { return Ok(()) };
        match update.range(&[], None).merge(should_stop)? {
            Some(tables) => update.commit([tables]),
            None => Ok(()),
        }
    }

    /// Begins a merge, if there is something to merge: the caller merges all rows, in any number of ranges
    /// ([`RangeUpdate::merge`]). Writes what the logs have.
    ///
    /// # Errors
    /// The same errors as [`Database::update`] and [`DatabaseUpdate::commit`].
    pub fn begin_merge(&mut self) -> Result<Option<DatabaseUpdate<'_, 'd>>, LevelDbError> {
        if self.memory.len() > 0 {
            let update = self.update()?;
            let logged = update.range_in_tables(&[], None).finish()?;
            update.commit([logged])?;
        }
        let Some(level) = self.level_to_merge(0) else { return Ok(None) };
        let mut update = self.update()?;
        update.merged = Some(level);
        Ok(Some(update))
    }

    /// Like [`Database::merge`], but only if level 0 has many tables, all of which a look-up must search, and
    /// if there is space: for small changes that are to be fast.
    ///
    /// # Errors
    /// Those of [`Database::merge`].
    pub fn merge_if_many(&mut self, should_stop: impl Fn() -> bool) -> Result<(), LevelDbError> {
        if self.has_many_tables() { self.merge(should_stop) } else { Ok(()) }
    }

    /// Whether [`Database::merge_if_many`] merges.
    pub fn has_many_tables(&self) -> bool {
        let is_many = self.manifest.levels.first().is_some_and(|level0| level0.len() >= MANY_TABLES);
        is_many && self.can_merge()
    }

    /// Whether LevelDB would compact a level for long when it opens the database, and a merge empties this
    /// level.
    pub fn has_full_level(&self) -> bool {
        let limit = |level: usize| LEVEL1_BYTES * 10u64.pow(level.saturating_sub(1) as u32);
        let levels = self.manifest.levels.iter().take(self.level_to_merge(0).unwrap_or(0)).enumerate();
        let mut excess = levels.map(|(level, tables)| bytes_of(tables).saturating_sub(limit(level)));
        excess.any(|bytes| bytes > SOON_COMPACTED) && self.can_merge()
    }

    /// Whether there is something to merge, and space for a copy of it.
    fn can_merge(&self) -> bool {
        let free = || self.disk.free_space(&self.dir).unwrap_or(u64::MAX);
        self.level_to_merge(0).is_some_and(|level| self.bytes_down_to(level) <= free())
    }

    /// Returns the deepest level that is not much larger than all levels above it together, and `above` bytes
    /// of new rows, or, if level 0 has many tables, level 1, unless it is large.
    fn level_to_merge(&self, mut above: u64) -> Option<usize> {
        let mut deepest = None;
        for (level, tables) in self.manifest.levels.iter().enumerate() {
            let bytes = bytes_of(tables);
            if bytes > 0 && above > 0 && bytes / MERGED_SHARE <= above {
                deepest = Some(level);
            }
            above = above.saturating_add(bytes);
        }
        let [level0, level1, ..] = &self.manifest.levels;
        let is_many =
            level0.len() >= MANY_TABLES && bytes_of(level1) <= level0.len() as u64 * BYTES_PER_TABLE;
        deepest.or(is_many.then_some(1))
    }
}

impl DatabaseUpdate<'_, '_> {
    /// Begins the changes of the keys from `start` on, below `end` if there is one. Ranges must not overlap,
    /// and together contain all keys. Only a range of all keys can become a log.
    pub fn range(&self, start: &[u8], end: Option<&[u8]>) -> RangeUpdate<'_> {
        let is_whole = start.is_empty() && end.is_none();
        let may_be_log =
            is_whole && self.merged.is_none() && !self.database.is_new && self.database.log_count < MANY_LOGS;
        let log = may_be_log.then(|| Batch::new(self.sequence));
        RangeUpdate { log, ..self.range_in_tables(start, end) }
    }

    /// Begins rows of a new database, whose tables have the numbers `first`, `first + step` and so on, so
    /// that threads cannot change them. The caller chooses numbers that differ from those of all other
    /// ranges.
    ///
    /// # Panics
    /// If the database is not new, or `step` is 0.
    pub fn numbered_range(&self, first: u64, step: usize) -> RangeUpdate<'_> {
        assert!(self.database.is_new, "other tables can have these numbers");
        let numbers = Box::new((first..).step_by(step));
        RangeUpdate { numbers, ..self.range_in_tables(&[], None) }
    }

    /// Whether this is the first change of a new database.
    pub fn is_of_new(&self) -> bool {
        self.database.is_new
    }

    /// Like [`DatabaseUpdate::range`], for changes that do not become a log.
    fn range_in_tables(&self, start: &[u8], end: Option<&[u8]>) -> RangeUpdate<'_> {
        RangeUpdate {
            database: self.database,
            sequence: self.sequence,
            numbers: Box::new(iter::repeat_with(|| self.next.fetch_add(1, Ordering::Relaxed))),
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
            merged: self.merged,
            rows: 0,
            log: None,
            last_key: Vec::new(),
            older: None,
            has_begun: false,
            open: None,
            complete: Vec::new(),
        }
    }

    /// Puts the change in place; `ranges` are all ranges, in any order. When it returns, the change is on the
    /// medium, and the database has the new rows.
    ///
    /// # Errors
    /// [`LevelDbError::Order`] if two ranges overlap; [`LevelDbError::File`] if the disk fails. The database
    /// is then as it was, or, if only the last sync failed, as it is after the change.
    pub fn commit(mut self, ranges: impl IntoIterator<Item = ChangedRange>) -> Result<(), LevelDbError> {
        let mut new = Vec::new();
        for ChangedRange { tables, log, .. } in ranges {
            new.extend(tables);
            if let Some(log) = log {
                return self.write_log(log);
            }
        }
        new.sort_by(|a, b| a.first().cmp(b.first()));
        let number = new.iter().map(|table| table.number + 1).max().unwrap_or(0).max(*self.next.get_mut());
        for (left, right) in new.iter().zip(new.iter().skip(1)) {
            if left.last() >= right.first() {
                let [before, after] = [left.last(), right.first()].map(|key| key.to_lower_hex_string());
                let path = self.database.dir.join(manifest_name(number));
                return Err(LevelDbError::Order { path, before, after });
            }
        }
        if self.merged.is_none() && new.is_empty() && !self.database.is_new {
            return Ok(());
        }
        let mut levels = self.database.manifest.levels.clone();
        levels.iter_mut().take(self.merged.map_or(0, |level| level + 1)).for_each(Vec::clear);
        add_tables(&mut levels, new);
        self.put_in_place(levels, number)
    }

    /// Puts the change in place as a log.
    fn write_log(self, batch: Batch) -> Result<(), LevelDbError> {
        if batch.is_empty() {
            return Ok(());
        }
        let Database { disk, dir, .. } = &*self.database;
        let [temporary, path] = ["dbtmp", "log"].map(|suffix| numbered(dir, self.first, suffix));
        let (batch, mut file) = (batch.finish(), Vec::new());
        log::append_record(&mut file, &batch);
        AtomicFile::write(*disk, temporary, &path, &file)?;
        let Database { memory, manifest, log_count, .. } = &mut *self.database;
        memory.add_batch(&batch).map_err(|flaw| LevelDbError::damaged(&path, 0, flaw))?;
        memory.finish();
        manifest.last_sequence = memory.last_sequence;
        *log_count += 1;
        Ok(())
    }

    /// Writes the MANIFEST with this number and these levels, and then lets `CURRENT` name it: after a crash,
    /// the database is the old one or the new one.
    fn put_in_place(mut self, levels: [Vec<TableMeta>; LEVELS], number: u64) -> Result<(), LevelDbError> {
        let Database { disk, dir, is_new, .. } = &*self.database;
        let new = Manifest {
            number,
            log_number: if *is_new { 0 } else { number },
            previous_log: 0,
            next_file: number + 1,
            last_sequence: self.sequence,
            levels,
        };
        if *is_new {
            write_synced(*disk, &dir.join("LOCK"), &[])?;
        }
        let name = manifest_name(number);
        write_synced(*disk, &dir.join(&name), &manifest::encode(&new))?;
        disk.sync_dir(dir).during("sync", dir)?;
        let (temporary, current) = (numbered(dir, number, "dbtmp"), dir.join("CURRENT"));
        // If this fails, `CURRENT` may name the new MANIFEST: all files stay, and LevelDB removes what is not
        // live.
        self.first = number;
        AtomicFile::write(*disk, temporary, &current, format!("{name}\n").as_bytes())?;

        self.database.manifest = new;
        (self.database.memory, self.database.log_count) = (MemTable::default(), 0);
        if !mem::take(&mut self.database.is_new) {
            let live = self.database.close_tables();
            self.remove_obsolete(number, &live);
        }
        Ok(())
    }

    /// Removes what LevelDB would remove when it opens the database: older MANIFESTs and logs, and tables
    /// that are not `live`. If this fails, LevelDB does it.
    fn remove_obsolete(&self, manifest: u64, live: &BTreeSet<u64>) {
        let Database { disk, dir, .. } = &*self.database;
        let Ok(names) = disk.list(dir) else { return };
        for name in names {
            let Some((suffix, number)) = parse_name(&name) else { continue };
            let is_needed = ["ldb", "sst"].contains(&suffix) && live.contains(&number);
            if number < manifest && !is_needed {
                let _ = disk.remove_file(&dir.join(name));
            }
        }
    }
}

impl Drop for DatabaseUpdate<'_, '_> {
    fn drop(&mut self) {
        let Database { disk, dir, .. } = &*self.database;
        // If the disk refuses, LevelDB removes them. The error that ended the change is the one to report.
        for number in self.first..*self.next.get_mut() {
            let _ = disk.remove_file(&numbered(dir, number, "ldb"));
        }
    }
}

impl RangeUpdate<'_> {
    /// Sets the value of `key`, or deletes the row if there is no value. Keys must ascend, and be in the
    /// range.
    ///
    /// # Errors
    /// [`LevelDbError::Order`] if `key` is not above the one before; [`LevelDbError::File`] if the disk
    /// fails.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LevelDbError> {
        self.rows += 1;
        let Some(log) = &mut self.log else { return self.set_in_table(key, value) };
        if !log.is_empty() && self.last_key.as_slice() >= key {
            let [before, after] = [&self.last_key, key].map(|key| key.to_lower_hex_string());
            return Err(LevelDbError::Order { path: self.database.dir.clone(), before, after });
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        log.add(key, value);
        if log.len() + self.database.memory.batch_bytes() > LOG_BYTES {
            self.leave_log()?;
        }
        Ok(())
    }

    /// Moves the rows of the log to tables.
    fn leave_log(&mut self) -> Result<(), LevelDbError> {
        let Some(log) = self.log.take() else { return Ok(()) };
        let mut rows = MemTable::default();
        rows.add_batch(&log.finish()).map_err(|flaw| self.database.damaged(flaw))?;
        (0..rows.len()).filter_map(|index| rows.row(index)).try_for_each(|(key, trailer, value)| {
            self.set_in_table(key, (trailer as u8 == VALUE).then_some(value))
        })
    }

    fn set_in_table(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LevelDbError> {
        self.add_older(Some(key), &|| false)?;
        let kind = if value.is_some() { VALUE } else { DELETION };
        let trailer = self.sequence << 8 | u64::from(kind);
        self.add(key, trailer, value.unwrap_or_default())
    }

    /// Completes the range as [`RangeUpdate::finish`] does, with the rows of the levels that are merged, and
    /// the deletions that hide rows below. Returns `None` if it was stopped.
    ///
    /// # Errors
    /// The same errors as [`Cursor::advance`]; [`LevelDbError::File`] if the disk fails.
    pub fn merge(mut self, should_stop: impl Fn() -> bool) -> Result<Option<ChangedRange>, LevelDbError> {
        match self.log.is_some() || self.add_older(None, &should_stop)? {
            true => self.finish().map(Some),
            false => Ok(None),
        }
    }

    /// Number of rows that were set or deleted.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Completes the range, which may be empty. When it returns, its tables are on the medium.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if the disk fails.
    pub fn finish(self) -> Result<ChangedRange, LevelDbError> {
        self.complete()?.sync()
    }

    /// Completes the range without syncing its tables, so that the caller can sync them on another thread.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if the disk fails.
    pub fn complete(mut self) -> Result<UnsyncedRange, LevelDbError> {
        if self.log.is_none() {
            self.add_older(None, &|| false)?;
            self.close()?;
        }
        Ok(UnsyncedRange { tables: self.complete, log: self.log, rows: self.rows })
    }

    /// Adds the older rows below `end`, and passes over that of `end`, which is replaced. Returns false if it
    /// was stopped.
    fn add_older(
        &mut self,
        end: Option<&[u8]>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<bool, LevelDbError> {
        let database = self.database;
        let (merged, below) = database.manifest.levels.split_at(self.merged.map_or(0, |level| level + 1));
        if !mem::replace(&mut self.has_begun, true) {
            let level0 = merged.iter().take(1).flat_map(|tables| tables.chunks(1));
            let groups = level0.chain(merged.iter().skip(1).map(Vec::as_slice));
            let range = (self.start.as_slice(), self.end.as_deref());
            let mut rows = Cursor::with_deletions(database, groups, range)?;
            self.older = rows.advance()?.then(|| Box::new(rows));
        }
        let Some(mut rows) = self.older.take() else { return Ok(true) };
        let drops_deletions = !merged.is_empty() && below.iter().all(Vec::is_empty);
        let mut count = 0u32;
        while end.is_none_or(|end| rows.key() <= end) {
            let is_dropped = drops_deletions && rows.trailer() as u8 == DELETION;
            if end != Some(rows.key()) && !is_dropped {
                self.add(rows.key(), rows.trailer(), rows.value())?;
            }
            if !rows.advance()? {
                return Ok(true);
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(STOP_CHECK_INTERVAL) && should_stop() {
                return Ok(false);
            }
        }
        self.older = Some(rows);
        Ok(true)
    }

    fn add(&mut self, key: &[u8], trailer: u64, value: &[u8]) -> Result<(), LevelDbError> {
        let table = match &mut self.open {
            Some(table) => table,
            none => {
                // The numbers do not end.
                let number = self.numbers.next().unwrap_or(u64::MAX);
                none.insert(TableWriter::create(self.database.disk, &self.database.dir, number)?)
            }
        };
        table.add(key, trailer, value)?;
        if table.size() >= TABLE_ROWS_LEN {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), LevelDbError> {
        self.complete.extend(self.open.take().map(TableWriter::complete).transpose()?);
        let oldest = self.complete.len().checked_sub(MAX_OPEN_TABLES);
        oldest.and_then(|at| self.complete.get_mut(at)).map_or(Ok(()), UnsyncedTable::close)
    }
}

fn bytes_of<'t>(tables: impl IntoIterator<Item = &'t TableMeta>) -> u64 {
    tables.into_iter().fold(0, |sum, table| sum.saturating_add(table.size))
}

/// Adds tables in the order of their keys, which do not overlap each other and are newer than all others.
fn add_tables(levels: &mut [Vec<TableMeta>; LEVELS], new: Vec<TableMeta>) {
    let (Some(first), Some(last)) = (new.first(), new.last()) else { return };
    let overlaps = |table: &TableMeta| table.first() <= last.last() && table.last() >= first.first();
    let is_taken = |level: &Vec<TableMeta>| level.iter().any(overlaps);
    let taken = levels.iter().position(is_taken).unwrap_or(LEVELS);
    let level = taken.saturating_sub(1);
    let Some(tables) = levels.get_mut(level) else { return };
    tables.splice(0..0, new.into_iter().rev());
    if level > 0 {
        tables.sort_by(|a, b| a.first().cmp(b.first()));
    }
}

#[cfg(test)]
mod tests;
