//! Changes a database: adds tables with new rows and deletions to those that it has, as LevelDB would, and
//! puts all of them in place at once.
//!
//! A new MANIFEST lists the old tables and the new ones; `CURRENT` names it when everything else is on the
//! medium. Until then, a crash leaves the old database, and files that LevelDB removes when it opens it.
//! Rows of logs go into the new tables too, unless they are replaced, and the new MANIFEST has a log number
//! above all logs, so that LevelDB ignores and removes them. All new rows have one sequence number, above
//! that of all older rows.
//!
//! New tables do not overlap each other. They go to the deepest level such that neither it nor any level
//! above it has keys between the first and the last of them. In a database that was written in one pass,
//! whose tables are in level 6, this is level 5, whose limit of 100 GB is far away, so LevelDB starts no
//! compaction. The levels 4 to 1 follow; after that, tables are added to level 0, as LevelDB does, and it
//! compacts them when it opens the database. So that look-ups do not get slower with each change meanwhile,
//! the newest small tables of level 0 are merged into the new ones, like logs, when there are many of them.

use std::{ffi::OsString, mem, sync::Arc};

use super::LevelDbError;
use super::batch::MemTable;
use super::coding::{DELETION, MAX_SEQUENCE, VALUE};
use super::manifest::{LiveTable, Manifest};
use super::reader::Database;
use super::table::TableCursor;
use super::writer::{TARGET_TABLE_SIZE, TableWriter, UnsyncedTable, put_in_place, table_path};
use vfs::During as _;

/// Bytes of rows after which a table is finished: filter and index take some more.
const TABLE_ROWS_LEN: u64 = TARGET_TABLE_SIZE / 16 * 15;

/// Number of tables of level 0 from which on the newest are merged: LevelDB itself begins with 4.
const MERGED_TABLES: usize = 12;
/// Maximum number of bytes of the tables that are merged, which are read into memory.
const MERGED_BYTES: u64 = 16 << 20;

/// A change of a database that is being written. If it is dropped before [`DatabaseUpdate::commit`], the
/// database is as it was.
pub struct DatabaseUpdate<'a, 'd> {
    database: &'a mut Database<'d>,
    sequence: u64,
    /// Index of the next row of the logs.
    next_logged: usize,
    /// Number of the newest tables of level 0 that are merged.
    merged: usize,
    tables: NewTables,
}

/// The tables so far, and the number of the next file.
struct NewTables {
    first: u64,
    next: u64,
    open: Option<TableWriter>,
    complete: Vec<UnsyncedTable>,
}

impl<'d> Database<'d> {
    /// Reads the newest tables of level 0 into memory, if they are many and small. Returns their number.
    fn merge_newest(&mut self) -> Result<usize, LevelDbError> {
        let level0 = self.manifest.levels.first().map(Vec::as_slice).unwrap_or_default();
        let mut bytes = 0;
        let newest = level0.iter().take_while(|table| {
            bytes += table.size;
            bytes <= MERGED_BYTES
        });
        let newest: Vec<LiveTable> = newest.cloned().collect();
        if newest.len() < MERGED_TABLES {
            return Ok(0);
        }
        for live in &newest {
            let (mut cursor, mut has_row) = TableCursor::from(Arc::new(self.open_table(live, false)?), &[])?;
            while has_row {
                let (key, trailer, value) = cursor.row();
                // LevelDB ignores rows after the last sequence number.
                if trailer >> 8 <= self.manifest.last_sequence {
                    self.memory.add_row(key, trailer, value);
                }
                has_row = cursor.step()?;
            }
        }
        self.memory.finish();
        Ok(newest.len())
    }

    /// Begins a change. The caller holds the database's `LOCK`, and no other process has the database open.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if the directory cannot be listed or a table not be read;
    /// [`LevelDbError::Damaged`] if the sequence numbers are used up, or a table is damaged.
    pub fn update(&mut self) -> Result<DatabaseUpdate<'_, 'd>, LevelDbError> {
        let sequence = self.manifest.last_sequence + 1;
        if sequence > MAX_SEQUENCE {
            return Err(self.damaged("no sequence number is left".to_owned()));
        }
        let names = self.disk.list(&self.dir).during("list", &self.dir)?;
        // A crash can leave files with numbers that no MANIFEST knows.
        let used = names.iter().filter_map(file_number).max().unwrap_or(0);
        let first = self.manifest.next_file.max(used.saturating_add(1));
        let merged = self.merge_newest()?;
        let tables = NewTables { first, next: first, open: None, complete: Vec::new() };
        Ok(DatabaseUpdate { database: self, sequence, next_logged: 0, merged, tables })
    }
}

impl DatabaseUpdate<'_, '_> {
    /// Sets the value of `key`, or deletes the row if there is no value. Keys must ascend.
    ///
    /// # Errors
    /// [`LevelDbError::Order`] if `key` is not above the one before; [`LevelDbError::File`] if the disk
    /// fails.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), LevelDbError> {
        self.add_logged(Some(key))?;
        let kind = if value.is_some() { VALUE } else { DELETION };
        let trailer = self.sequence << 8 | u64::from(kind);
        self.tables.add(self.database, key, trailer, value.unwrap_or_default())
    }

    /// Adds the rows of the logs below `end`, and passes over the one of `end`, which is replaced.
    fn add_logged(&mut self, end: Option<&[u8]>) -> Result<(), LevelDbError> {
        while let Some((key, trailer, value)) = self.database.memory.row(self.next_logged) {
            if end.is_some_and(|end| key > end) {
                break;
            }
            if end != Some(key) {
                self.tables.add(self.database, key, trailer, value)?;
            }
            self.next_logged += 1;
        }
        Ok(())
    }

    /// Puts the change in place. When it returns, it is on the medium, and the database has the new rows.
    ///
    /// # Errors
    /// [`LevelDbError::File`] if the disk fails. The database is then as it was, or, if only the last sync
    /// failed, as it is after the change.
    pub fn commit(mut self) -> Result<(), LevelDbError> {
        self.add_logged(None)?;
        self.tables.close()?;
        let complete = mem::take(&mut self.tables.complete);
        if complete.is_empty() {
            return Ok(());
        }
        let live = complete.into_iter().map(|table| Ok(table.sync()?.live()));
        let live = live.collect::<Result<Vec<_>, LevelDbError>>()?;
        let Database { disk, dir, manifest: old, .. } = &*self.database;
        let number = self.tables.next;
        let mut new = Manifest {
            log_number: number,
            previous_log: 0,
            next_file: number + 1,
            last_sequence: self.sequence,
            levels: old.levels.clone(),
        };
        new.levels.first_mut().into_iter().for_each(|level0| drop(level0.drain(..self.merged)));
        add_tables(&mut new, live);
        // If this fails, `CURRENT` may name the new MANIFEST: all files stay, and LevelDB removes what is not
        // live.
        self.tables.first = number;
        put_in_place(*disk, dir, &new, number)?;
        self.database.manifest = new;
        self.database.memory = MemTable::default();
        self.remove_obsolete(number);
        Ok(())
    }

    /// Removes what LevelDB would remove when it opens the database: older MANIFESTs and logs, and tables
    /// that are not listed. If this fails, LevelDB does it.
    fn remove_obsolete(&self, manifest: u64) {
        let Database { disk, dir, .. } = &*self.database;
        let Ok(names) = disk.list(dir) else { return };
        let live =
            |number| self.database.manifest.levels.iter().flatten().any(|table| table.number == number);
        for name in names {
            let Some(number) = file_number(&name).filter(|&number| number < manifest) else { continue };
            let is_table = name.to_str().is_some_and(|name| name.ends_with(".ldb") || name.ends_with(".sst"));
            if !(is_table && live(number)) {
                let _ = disk.remove_file(&dir.join(name));
            }
        }
    }
}

impl Drop for DatabaseUpdate<'_, '_> {
    fn drop(&mut self) {
        let Database { disk, dir, .. } = &*self.database;
        let numbers = self.tables.first..self.tables.next;
        self.tables.open = None;
        self.tables.complete.clear();
        // If the disk refuses, LevelDB removes them. The error that ended the change is the one to report.
        for number in numbers {
            let _ = disk.remove_file(&table_path(dir, number));
        }
    }
}

impl NewTables {
    fn add(
        &mut self,
        database: &Database<'_>,
        key: &[u8],
        trailer: u64,
        value: &[u8],
    ) -> Result<(), LevelDbError> {
        let table = match &mut self.open {
            Some(table) => table,
            none => {
                let number = self.next;
                self.next += 1;
                none.insert(TableWriter::create(database.disk, &database.dir, number)?)
            }
        };
        table.add_internal(key, trailer, value)?;
        if table.size() >= TABLE_ROWS_LEN {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), LevelDbError> {
        self.complete.extend(self.open.take().map(TableWriter::complete).transpose()?);
        Ok(())
    }
}

/// Adds tables that do not overlap each other and are newer than all others.
fn add_tables(manifest: &mut Manifest, new: Vec<LiveTable>) {
    let (Some(first), Some(last)) = (new.first(), new.last()) else { return };
    let overlaps = |table: &LiveTable| table.first() <= last.last() && table.last() >= first.first();
    let is_taken = |level: &Vec<LiveTable>| level.iter().any(overlaps);
    let taken = manifest.levels.iter().position(is_taken).unwrap_or(manifest.levels.len());
    let level = taken.saturating_sub(1);
    let Some(tables) = manifest.levels.get_mut(level) else { return };
    tables.splice(0..0, new.into_iter().rev());
    if level > 0 {
        tables.sort_by(|a, b| a.first().cmp(b.first()));
    }
}

/// Returns the number in the name of a file of a database.
fn file_number(name: &OsString) -> Option<u64> {
    let name = name.to_str()?;
    let digits = match name.split_once('.') {
        Some((digits, "ldb" | "sst" | "log" | "dbtmp")) => digits,
        _ => name.strip_prefix("MANIFEST-")?,
    };
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests;
