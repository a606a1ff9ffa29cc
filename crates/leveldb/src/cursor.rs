//! A cursor over the rows of a database: logs, level 0 and the other levels are merged in user key order, the
//! newest row of a key hides the older ones, and deletions hide what they delete.
//!
//! The merge compares all sources only when the current one passes the second smallest. Most rows of a
//! chainstate are in one level, so most steps compare one key.

use hex_conservative::DisplayHex as _;
use std::cmp::Ordering;
use std::sync::Arc;

use super::LevelDbError;
use super::coding::{DELETION, VALUE};
use super::manifest::TableMeta;
use super::reader::{Database, within};
use super::table::TableCursor;

/// A cursor over rows in ascending order of their keys. It starts before the first row.
///
/// ```no_run
/// # use peregrine_leveldb::{Database, LevelDbError};
/// # use vfs::RealDisk;
/// # fn main() -> Result<(), LevelDbError> {
/// let database = Database::open(&RealDisk, "chainstate".as_ref())?;
/// let mut rows = database.range(b"C", Some(b"D"))?;
/// while rows.advance()? {
///     println!("{} bytes under a key of {}", rows.value().len(), rows.key().len());
/// }
/// # Ok(()) }
/// ```
pub struct Cursor<'a> {
    database: &'a Database<'a>,
    sources: Vec<RowSource<'a>>,
    /// Indices in `sources` of the smallest and the second smallest key. Sources without rows are removed.
    current: Option<usize>,
    second: Option<usize>,
    /// A lower bound of all keys: the start of the range, and once `has_last`, the key that was last returned
    /// or deleted.
    last: Vec<u8>,
    has_last: bool,
    has_begun: bool,
    /// The first key after the range.
    end: Option<Vec<u8>>,
    /// Whether deletions are rows too.
    with_deletions: bool,
}

/// Rows in order, including those that others hide.
enum RowSource<'a> {
    Memory { database: &'a Database<'a>, index: usize },
    Tables { database: &'a Database<'a>, rest: &'a [TableMeta], table_cursor: Box<TableCursor> },
}

impl RowSource<'_> {
    fn row(&self) -> (&[u8], u64, &[u8]) {
        match self {
            Self::Memory { database, index } => database.memory.row(*index).unwrap_or_default(),
            Self::Tables { table_cursor, .. } => table_cursor.row(),
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        let ((key, trailer, _), (other_key, other_trailer, _)) = (self.row(), other.row());
        key.cmp(other_key).then(other_trailer.cmp(&trailer))
    }

    /// Moves to the next row. Returns false if there is none.
    fn step(&mut self) -> Result<bool, LevelDbError> {
        match self {
            Self::Memory { database, index } => {
                *index += 1;
                Ok(*index < database.memory.len())
            }
            Self::Tables { database, rest, table_cursor } => {
                while !table_cursor.step()? {
                    let Some((next, others)) = rest.split_first() else { return Ok(false) };
                    *rest = others;
                    let (next_cursor, found) =
                        TableCursor::from(Arc::new(database.open_table(next, false)?), &[])?;
                    **table_cursor = next_cursor;
                    if found {
                        return Ok(true);
                    }
                }
                Ok(true)
            }
        }
    }
}

impl<'a> Cursor<'a> {
    /// A cursor over the rows in memory and those of these groups of tables, which are sorted, and over the
    /// deletions that hide rows of other tables, or would hide such rows: those from `start` on, below `end`
    /// if there is one.
    pub(super) fn with_deletions(
        database: &'a Database<'a>,
        groups: impl Iterator<Item = &'a [TableMeta]>,
        (start, end): (&[u8], Option<&[u8]>),
    ) -> Result<Self, LevelDbError> {
        let mut cursor = Self::from_memory(database, start, end);
        cursor.with_deletions = true;
        cursor.with_tables(groups.map(|tables| within(tables, start, end)), start)
    }

    /// Adds the rows of these groups of tables from `start`.
    pub(super) fn with_tables(
        mut self,
        groups: impl Iterator<Item = &'a [TableMeta]>,
        start: &[u8],
    ) -> Result<Self, LevelDbError> {
        let database = self.database;
        for tables in groups {
            let Some((first, rest)) = tables.split_first() else { continue };
            let (table_cursor, found) =
                TableCursor::from(Arc::new(database.open_table(first, false)?), start)?;
            let mut source = RowSource::Tables { database, rest, table_cursor: Box::new(table_cursor) };
            if found || source.step()? {
                self.sources.push(source);
            }
        }
        self.find_smallest();
        Ok(self)
    }

    /// A cursor over the rows in memory only.
    pub(super) fn from_memory(database: &'a Database<'a>, start: &[u8], end: Option<&[u8]>) -> Self {
        let index = database.memory.seek(start);
        let in_memory = (index < database.memory.len()).then_some(RowSource::Memory { database, index });
        Self {
            database,
            sources: in_memory.into_iter().collect(),
            current: None,
            second: None,
            last: start.to_vec(),
            has_last: false,
            has_begun: false,
            end: end.map(<[u8]>::to_vec),
            with_deletions: false,
        }
    }

    /// Moves to the next row. Returns false if there is none. The cursor must not be used after false or an
    /// error.
    ///
    /// # Errors
    /// [`LevelDbError::File`], [`LevelDbError::Damaged`] or [`LevelDbError::Unsupported`] for a table that is
    /// read.
    pub fn advance(&mut self) -> Result<bool, LevelDbError> {
        loop {
            if self.has_begun {
                self.step()?;
            }
            let Some(source) = self.current.and_then(|current| self.sources.get(current)) else {
                return Ok(false);
            };
            let (key, trailer, _) = source.row();
            match key.cmp(&self.last) {
                Ordering::Less => return Err(self.out_of_order()),
                Ordering::Equal if self.has_last => continue, // an older row of a key
                Ordering::Equal | Ordering::Greater => {}
            }
            if self.end.as_ref().is_some_and(|end| key >= end.as_slice()) {
                self.sources.clear();
                self.current = None;
                return Ok(false);
            }
            self.has_begun = true;
            if trailer >> 8 > self.database.last_sequence() {
                continue; // LevelDB ignores rows after the last sequence number
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            self.has_last = true;
            match trailer as u8 {
                VALUE => return Ok(true),
                DELETION if self.with_deletions => return Ok(true),
                DELETION => {}
                kind => return Err(self.database.unknown_kind(key, kind)),
            }
        }
    }

    /// Key of the current row; empty if there is none.
    pub fn key(&self) -> &[u8] {
        self.row().0
    }

    /// Sequence number and kind of the current row; 0 if there is none.
    pub(super) fn trailer(&self) -> u64 {
        self.row().1
    }

    /// Value of the current row; empty if there is none.
    pub fn value(&self) -> &[u8] {
        self.row().2
    }

    #[inline]
    fn row(&self) -> (&[u8], u64, &[u8]) {
        let source = self.current.filter(|_| self.has_begun).and_then(|current| self.sources.get(current));
        source.map(RowSource::row).unwrap_or_default()
    }

    /// Moves the current source to its next row, and finds the smallest row of all sources.
    fn step(&mut self) -> Result<(), LevelDbError> {
        let Some(current) = self.current else { return Ok(()) };
        let Some(source) = self.sources.get_mut(current) else { return Ok(()) };
        if !source.step()? {
            self.sources.swap_remove(current);
            self.find_smallest();
            return Ok(());
        }
        let second = self.second.and_then(|index| self.sources.get(index));
        if second.is_some_and(|other| self.sources.get(current).is_some_and(|one| one.order(other).is_gt())) {
            self.find_smallest();
        }
        Ok(())
    }

    /// Finds the sources with the smallest and the second smallest key.
    fn find_smallest(&mut self) {
        let (mut best, mut second): (Option<usize>, Option<usize>) = (None, None);
        let before = |one: &RowSource<'_>, other: Option<usize>| {
            other.and_then(|index| self.sources.get(index)).is_none_or(|other| one.order(other).is_lt())
        };
        for (index, source) in self.sources.iter().enumerate() {
            if before(source, best) {
                (best, second) = (Some(index), best);
            } else if before(source, second) {
                second = Some(index);
            }
        }
        (self.current, self.second) = (best, second);
    }

    #[cold]
    fn out_of_order(&self) -> LevelDbError {
        self.database.damaged(format!("a row after key {} has a smaller key", self.last.as_hex()))
    }
}
