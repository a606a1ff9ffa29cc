//! Opens a database without changing it: reads `CURRENT`, the MANIFEST and the logs, and finds the live
//! tables. It does what LevelDB `DBImpl::Recover` does with Core's `paranoid_checks`, but in memory: no file
//! is created, locked, moved or changed. If another process writes the database at the same time, reads can
//! fail, but never return wrong rows: tables are never changed, all bytes have checksums, and a log that was
//! removed meanwhile is missed.

use hex_conservative::DisplayHex as _;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::batch::{MAX_LOG_BYTES, MemTable, TOO_LONG};
use super::cursor::Cursor;
use super::lookup::Lookup;
use super::manifest::{self, Manifest, TableMeta, numbered, parse_name};
use super::table::Table;
use super::{LevelDbError, log};
use vfs::{Disk, During as _};

/// Number of tables that [`Database::get`] keeps open, unless [`Database::keep_open`] says otherwise.
const OPEN_TABLES: usize = 16;

/// Approximate memory of an open table of 32 MiB: its index and filter, in bytes.
pub const OPEN_TABLE_BYTES: u64 = 3 << 19;

/// A database, open for reading by any number of threads.
pub struct Database<'d> {
    pub(super) disk: &'d dyn Disk,
    pub(super) dir: PathBuf,
    pub(super) manifest: Manifest,
    /// Numbers of the tables whose file name ends in `.sst`.
    sst_tables: BTreeSet<u64>,
    pub(super) memory: MemTable,
    /// Number of logs, whose rows are in memory.
    pub(super) log_count: usize,
    /// Whether nothing of the database is on disk yet.
    pub(super) is_new: bool,
    open: Mutex<OpenTables>,
    open_max: usize,
}

/// Tables that are kept open, by number, and their numbers in the order in which they were opened.
#[derive(Default)]
struct OpenTables {
    tables: HashMap<u64, Arc<Table>>,
    order: VecDeque<u64>,
}

impl<'d> Database<'d> {
    /// Begins a database without rows in `dir`, which must exist and not contain a database. Nothing is on
    /// disk until its first change is ([`Database::update`]).
    pub fn new(disk: &'d dyn Disk, dir: &Path) -> Self {
        Self {
            disk,
            dir: dir.into(),
            manifest: Manifest::default(),
            sst_tables: BTreeSet::new(),
            memory: MemTable::default(),
            log_count: 0,
            is_new: true,
            open: Mutex::default(),
            open_max: OPEN_TABLES,
        }
    }

    /// Opens the database in `dir`. Logs are read into memory (256 MiB at most), tables when they are needed.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if `dir` is not a database or cannot be read; [`LevelDbError::Damaged`] if
    /// LevelDB would refuse it too (a wrong checksum, a missing live table, another key order, compression;
    /// see `log` for the tail that a crash may leave), or if rows of a log are missing, which it does not
    /// notice; [`LevelDbError::Unsupported`] for larger logs.
    pub fn open(disk: &'d dyn Disk, dir: &Path) -> Result<Self, LevelDbError> {
        let mut manifest = manifest::read(disk, dir)?;
        let names = disk.list(dir).during("list", dir)?;
        let numbers = |wanted: &str| -> BTreeSet<u64> {
            let files = names.iter().filter_map(|name| parse_name(name));
            files.filter(|(suffix, _)| *suffix == wanted).map(|(_, number)| number).collect()
        };
        let (tables, mut sst_tables) = (numbers("ldb"), numbers("sst"));
        sst_tables.retain(|number| !tables.contains(number));
        let mut live = manifest.levels.iter().flatten().map(|table| table.number);
        if let Some(number) = live.find(|number| !tables.contains(number) && !sst_tables.contains(number)) {
            let flaw = "the MANIFEST lists this table, but it is missing";
            return Err(LevelDbError::damaged(&numbered(dir, number, "ldb"), 0, flaw));
        }
        let needed = |number: &u64| *number >= manifest.log_number || *number == manifest.previous_log;
        let mut logs = numbers("log");
        let newest = logs.iter().chain(&tables).chain(&sst_tables).max().copied().unwrap_or(0);
        logs.retain(needed);
        if manifest.names_log() && !logs.contains(&manifest.log_number) && newest > manifest.log_number {
            let flaw = format!(
                "the MANIFEST names this log, but it is missing, and there is a newer file, number {newest}: \
                 {ROWS_MISSING}"
            );
            return Err(LevelDbError::damaged(&numbered(dir, manifest.log_number, "log"), 0, flaw));
        }
        let memory = read_logs(disk, dir, &logs, manifest.last_sequence)?;
        manifest.last_sequence = manifest.last_sequence.max(memory.last_sequence);
        let log_count = logs.len();
        Ok(Self { manifest, sst_tables, memory, log_count, is_new: false, ..Self::new(disk, dir) })
    }

    /// Returns a cursor over the rows from key `start`, and below key `end` if there is one. Threads can read
    /// ranges in parallel; each cursor needs about 0.5 MiB per level in use.
    ///
    /// # Errors
    /// The same errors as [`Cursor::advance`].
    pub fn range(&self, start: &[u8], end: Option<&[u8]>) -> Result<Cursor<'_>, LevelDbError> {
        Cursor::from_memory(self, start, end).with_tables(self.sorted_tables(start, end), start)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// The same errors as [`Cursor::advance`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LevelDbError> {
        let mut value = Vec::new();
        Ok(self.lookup(key, None).get(key, &mut value)?.then_some(value))
    }

    /// Returns what looks up many rows from key `start`, and below key `end` if there is one, at less cost
    /// for each than [`Database::get`].
    pub fn lookup(&self, start: &[u8], end: Option<&[u8]>) -> Lookup<'_> {
        Lookup::new(self, start, end)
    }

    /// Lets [`Database::get`] keep up to `tables` tables open, with [`OPEN_TABLE_BYTES`] each.
    pub fn keep_open(&mut self, tables: usize) {
        self.open_max = tables.max(OPEN_TABLES);
    }

    /// Closes the tables that [`Database::get`] keeps open and that are no longer live. Returns the numbers
    /// of those that are.
    pub(super) fn close_tables(&mut self) -> BTreeSet<u64> {
        let live: BTreeSet<u64> = self.manifest.levels.iter().flatten().map(|table| table.number).collect();
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        open.tables.retain(|number, _| live.contains(number));
        open.order.retain(|number| live.contains(number));
        live
    }

    /// Checks the length, the footer and the index of each live table, and reads its filter, where damage is
    /// no error, as in LevelDB: what is read when a table is opened, a 30th of its bytes. Reads and verifies
    /// all blocks of those with up to `read_up_to` bytes. Ends early if `should_stop` returns true, which is
    /// told before each table, and at the end, how many bytes of how many are done.
    ///
    /// # Errors
    /// [`LevelDbError::Damaged`] for the first table that is damaged; [`LevelDbError::File`].
    pub fn check_tables(
        &self,
        read_up_to: u64,
        should_stop: impl Fn(u64, u64) -> bool,
    ) -> Result<(), LevelDbError> {
        let (mut done, total) = (0u64, self.table_bytes());
        for live in self.manifest.levels.iter().flatten() {
            if should_stop(done, total) {
                return Ok(());
            }
            let table = self.open_table(live, false)?;
            if live.size <= read_up_to {
                table.check_blocks()?;
            }
            done = done.saturating_add(live.size);
        }
        should_stop(done, total);
        Ok(())
    }

    /// Reads and verifies all blocks of the table in a file with this name. Returns whether it is a live one.
    ///
    /// # Errors
    /// The same errors as [`Database::check_tables`].
    pub fn check_table(&self, name: &OsStr) -> Result<bool, LevelDbError> {
        let number =
            parse_name(name).filter(|(suffix, _)| ["ldb", "sst"].contains(suffix)).map(|file| file.1);
        let live = self.manifest.levels.iter().flatten().find(|live| Some(live.number) == number);
        live.map_or(Ok(false), |live| self.open_table(live, false)?.check_blocks().map(|()| true))
    }

    /// Total size of all live tables in bytes: what a cursor over all rows reads, except for logs.
    pub fn table_bytes(&self) -> u64 {
        self.manifest.levels.iter().flatten().fold(0, |sum, table| sum.saturating_add(table.size))
    }

    #[cfg(test)]
    pub(super) fn table_count_by_level(&self) -> [usize; manifest::LEVELS] {
        std::array::from_fn(|level| self.manifest.levels[level].len())
    }

    pub(super) fn last_sequence(&self) -> u64 {
        self.manifest.last_sequence
    }

    pub(super) fn unknown_kind(&self, key: &[u8], kind: u8) -> LevelDbError {
        self.damaged(format!("key {} is of unknown kind {kind}", key.as_hex()))
    }

    pub(super) fn damaged(&self, flaw: impl Into<String>) -> LevelDbError {
        LevelDbError::damaged(&self.dir, 0, flaw)
    }

    /// Returns groups of tables that have keys in the range: each table of level 0 alone, and the tables of
    /// each other level, which are in key order and do not overlap.
    pub(super) fn sorted_tables<'a>(
        &'a self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl Iterator<Item = &'a [TableMeta]> {
        let [level0, deeper @ ..] = &self.manifest.levels;
        let groups = level0.chunks(1).chain(deeper.iter().map(Vec::as_slice));
        groups.map(move |tables| within(tables, start, end)).filter(|tables| !tables.is_empty())
    }

    pub(super) fn open_table(&self, live: &TableMeta, keep_filter: bool) -> Result<Table, LevelDbError> {
        let suffix = if self.sst_tables.contains(&live.number) { "sst" } else { "ldb" };
        let path = numbered(&self.dir, live.number, suffix);
        let file = self.disk.open(&path).during("open for reading", &path)?;
        Table::open(file, path, live, keep_filter)
    }

    /// Returns a table that is open, or opens it and closes the one that was opened first.
    pub(super) fn cached_table(&self, live: &TableMeta) -> Result<Arc<Table>, LevelDbError> {
        let lock = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = lock().tables.get(&live.number) {
            return Ok(Arc::clone(table));
        }
        // Not under the lock: other threads read other tables.
        let table = Arc::new(self.open_table(live, true)?);
        let mut open = lock();
        if open.tables.insert(live.number, Arc::clone(&table)).is_none() {
            open.order.push_back(live.number);
        }
        if open.tables.len() > self.open_max
            && let Some(first) = open.order.pop_front()
        {
            open.tables.remove(&first);
        }
        Ok(table)
    }
}

/// Returns those of the tables, which are in key order and do not overlap, that have keys from `start` on,
/// below `end` if there is one.
pub(super) fn within<'a>(tables: &'a [TableMeta], start: &[u8], end: Option<&[u8]>) -> &'a [TableMeta] {
    let from = tables.partition_point(|table| table.last() < start);
    let to = tables.partition_point(|table| end.is_none_or(|end| table.first() < end));
    tables.get(from..to).unwrap_or_default()
}

/// What a database lacks whose files are of different times.
const ROWS_MISSING: &str = "rows are missing, as in a copy that was made while a program used the database";

/// Reads the logs with these numbers, oldest first. The tables have rows up to the sequence number `last`.
fn read_logs(
    disk: &dyn Disk,
    dir: &Path,
    numbers: &BTreeSet<u64>,
    last: u64,
) -> Result<MemTable, LevelDbError> {
    let mut memory = MemTable::default();
    let mut total = 0u64;
    for &number in numbers {
        let before = last.max(memory.last_sequence);
        let mut is_first = true;
        let path = numbered(dir, number, "log");
        let found = disk.metadata(&path).during("measure", &path)?;
        if found.is_some_and(|found| found.is_dir) {
            let flaw = "LevelDB reads this log when it opens the database, but it is a directory";
            return Err(LevelDbError::damaged(&path, 0, flaw));
        }
        let len = found.map_or(0, |found| found.len);
        total = total.saturating_add(len);
        let too_long =
            |offset| LevelDbError::Unsupported { path: path.clone(), offset, feature: TOO_LONG.to_owned() };
        if total > MAX_LOG_BYTES {
            return Err(too_long(len));
        }
        let file = disk.open(&path).during("read", &path)?;
        memory.reserve(len);
        log::read_records(&*file, &path, |offset, batch| {
            let first = memory.add_batch(batch).map_err(|flaw| match flaw {
                TOO_LONG => too_long(offset),
                flaw => LevelDbError::damaged(&path, offset, flaw),
            })?;
            // LevelDB leaves out no number.
            if mem::take(&mut is_first) && first > before.saturating_add(1) {
                let flaw = format!(
                    "the first row has the number {first}, and the files before end at {before}: \
                     {ROWS_MISSING}"
                );
                return Err(LevelDbError::damaged(&path, offset, flaw));
            }
            Ok(())
        })?;
    }
    memory.finish();
    Ok(memory)
}
