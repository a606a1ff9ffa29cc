//! Looks up many rows of a database, in ascending order of their keys if that can be: what the row before has
//! needed, a table, a position in its index, a block, is used again if it serves the next row too.

use std::sync::Arc;

use super::LevelDbError;
use super::coding::{DELETION, VALUE};
use super::filter::bloom_hash;
use super::manifest::TableMeta;
use super::reader::Database;
use super::table::{BlockBuffer, Search, Table};

/// Looks up rows of a range of keys, on one thread.
pub struct Lookup<'a> {
    database: &'a Database<'a>,
    /// In the order of age, the newest first.
    groups: Vec<Group<'a>>,
}

/// A table of level 0, or the tables of another level, which are in key order and do not overlap.
struct Group<'a> {
    tables: &'a [TableMeta],
    /// The table that was used last, and its index among the tables.
    open: Option<(usize, Arc<Table>)>,
    /// The number of the data block that was used last, and what was read last.
    block: usize,
    buffer: BlockBuffer,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(database: &'a Database<'a>, start: &[u8], end: Option<&[u8]>) -> Self {
        let groups = database.sorted_tables(start, end);
        let groups =
            groups.map(|tables| Group { tables, open: None, block: 0, buffer: BlockBuffer::default() });
        Self { database, groups: groups.collect() }
    }

    /// Whether the database has no rows in the range.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.database.memory.len() == 0
    }

    /// Looks up the value of `key`, which is in the range, and copies it to `value`. Returns whether there is
    /// one.
    ///
    /// # Errors
    /// The same errors as [`Cursor::advance`](super::Cursor::advance).
    pub fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, LevelDbError> {
        let database = self.database;
        let mut found = |trailer: u64, row: &[u8]| match trailer as u8 {
            VALUE => {
                value.clear();
                value.extend_from_slice(row);
                Ok(true)
            }
            DELETION => Ok(false),
            kind => Err(database.unknown_kind(key, kind)),
        };
        let memory = &database.memory;
        if let Some((_, trailer, row)) = memory.row(memory.seek(key)).filter(|row| row.0 == key) {
            return found(trailer, row);
        }
        let hash = bloom_hash(key);
        for group in &mut self.groups {
            if let Some((trailer, row)) = group.find(database, key, hash)? {
                return found(trailer, row);
            }
        }
        Ok(false)
    }
}

impl Group<'_> {
    /// Returns the newest row of `key` in the tables, with its trailer.
    fn find(
        &mut self,
        database: &Database<'_>,
        key: &[u8],
        hash: u32,
    ) -> Result<Option<(u64, &[u8])>, LevelDbError> {
        let covers = |table: &TableMeta| table.first() <= key && key <= table.last();
        let last = self.open.as_ref().map(|&(at, _)| at);
        let at = match last.filter(|&at| self.tables.get(at).is_some_and(covers)) {
            Some(at) => at,
            None => self.tables.partition_point(|table| table.last() < key),
        };
        let Some(live) = self.tables.get(at).filter(|table| covers(table)) else { return Ok(None) };
        let (_, table) = match &mut self.open {
            Some(open) if open.0 == at => open,
            open => {
                (self.block, self.buffer) = (0, BlockBuffer::default());
                open.insert((at, database.cached_table(live)?))
            }
        };
        // LevelDB ignores rows after the last sequence number.
        let is_row = |trailer: u64| trailer >> 8 <= database.last_sequence();
        self.block = table.find_block(key, self.block);
        while table.may_have(self.block, hash) {
            match table.search(self.block, key, is_row, &mut self.buffer)? {
                Search::Row => return Ok(Some(self.buffer.row())),
                Search::Absent => break,
                Search::Beyond => self.block += 1,
            }
        }
        Ok(None)
    }
}
