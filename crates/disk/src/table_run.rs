//! Splits rows in key order into tables of the size that Core's LevelDB gives them.

use leveldb::{LevelDbError, TARGET_TABLE_SIZE, TableMeta, TableWriter, UnsyncedTable};
use std::path::PathBuf;
use vfs::Disk;

/// Bytes of rows after which a table is finished: with filter and index, about 4 % more, the table must stay
/// below the target.
const TABLE_ROWS_LEN: u64 = TARGET_TABLE_SIZE - TARGET_TABLE_SIZE / 16;

/// Writes the tables `first`, `first + step`, `first + 2 * step`, ... of a database.
pub struct TableRun<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
    next: u64,
    step: u64,
    open: Option<TableWriter>,
    done: Vec<UnsyncedTable>,
}

impl<'a> TableRun<'a> {
    /// Writes nothing yet; `dir` must exist before the first row.
    pub fn new(disk: &'a dyn Disk, dir: impl Into<PathBuf>, first: u64, step: u64) -> Self {
        Self { disk, dir: dir.into(), next: first, step, open: None, done: Vec::new() }
    }

    /// Appends a row; keys must ascend.
    ///
    /// # Errors
    /// [`LevelDbError::Order`] if they do not; [`LevelDbError::File`].
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), LevelDbError> {
        let table = match &mut self.open {
            Some(table) => table,
            none => {
                let number = self.next;
                self.next += self.step;
                none.insert(TableWriter::create(self.disk, &self.dir, number)?)
            }
        };
        table.add(key, value)?;
        if table.size() >= TABLE_ROWS_LEN {
            self.close_table()?;
        }
        Ok(())
    }

    /// Completes the last table and syncs all of them. Returns no tables if there was no row.
    pub fn finish(self) -> Result<Vec<TableMeta>, LevelDbError> {
        self.complete()?.into_iter().map(UnsyncedTable::sync).collect()
    }

    /// Completes the last table and returns all of them, for the caller to sync.
    pub(crate) fn complete(mut self) -> Result<Vec<UnsyncedTable>, LevelDbError> {
        self.close_table()?;
        Ok(self.done)
    }

    fn close_table(&mut self) -> Result<(), LevelDbError> {
        self.done.extend(self.open.take().map(TableWriter::complete).transpose()?);
        Ok(())
    }
}
