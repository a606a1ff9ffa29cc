//! One view over all that a database holds: logs, level 0 and the levels below are merged into user key
//! order, the newest row of a key hides the older ones, and deletions hide what they delete.
//!
//! The merge looks at all sources only when the current one passes the runner-up. Most rows of a chainstate
//! lie in one level, so most steps compare one key.

use std::cmp::Ordering;
use std::sync::Arc;

use super::coding::{DELETION, VALUE};
use super::manifest::LiveTable;
use super::reader::Database;
use super::table::Scan;
use super::{LevelDbError, hex};

/// Walks rows in ascending order of their keys. It stands before the first row at first.
///
/// ```no_run
/// # use disk::{fs::RealDisk, leveldb::{Database, LevelDbError}};
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
    /// Index in `sources` of the smallest and of the second smallest key. Sources have a row as long as
    /// they are here.
    current: Option<usize>,
    runner_up: Option<usize>,
    /// No row may have a smaller key: the start of the range, and once `completed`, the key that was last
    /// delivered or deleted.
    last: Vec<u8>,
    completed: bool,
    begun: bool,
    /// First key that is not delivered.
    end: Option<Vec<u8>>,
}

/// Rows in order, no key hidden.
enum RowSource<'a> {
    Memory { database: &'a Database<'a>, index: usize },
    Tables { database: &'a Database<'a>, rest: &'a [LiveTable], scan: Box<Scan> },
}

impl RowSource<'_> {
    fn row(&self) -> (&[u8], u64, &[u8]) {
        match self {
            Self::Memory { database, index } => database.memory.row(*index).unwrap_or_default(),
            Self::Tables { scan, .. } => scan.row(),
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        let ((key, trailer, _), (other_key, other_trailer, _)) = (self.row(), other.row());
        key.cmp(other_key).then(other_trailer.cmp(&trailer))
    }

    /// Goes to the next row; false if there is none.
    fn step(&mut self) -> Result<bool, LevelDbError> {
        match self {
            Self::Memory { database, index } => {
                *index += 1;
                Ok(*index < database.memory.len())
            }
            Self::Tables { database, rest, scan } => {
                while !scan.step()? {
                    let Some((next, others)) = rest.split_first() else { return Ok(false) };
                    *rest = others;
                    let (table_scan, found) = Scan::from(Arc::new(database.open_table(next, false)?), &[])?;
                    **scan = table_scan;
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
    /// Rows from `start` on, below `end` if there is one.
    pub(super) fn over(
        database: &'a Database<'a>,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<Self, LevelDbError> {
        let mut cursor = Self::at(database, start, end);
        for tables in database.runs(start, end) {
            let Some((first, rest)) = tables.split_first() else { continue };
            let (scan, found) = Scan::from(Arc::new(database.open_table(first, false)?), start)?;
            let mut source = RowSource::Tables { database, rest, scan: Box::new(scan) };
            if found || source.step()? {
                cursor.sources.push(source);
            }
        }
        cursor.pick();
        Ok(cursor)
    }

    /// The rows of one key; tables are kept open and their filters spare reads.
    pub(super) fn of_key(database: &'a Database<'a>, key: &[u8]) -> Result<Self, LevelDbError> {
        let after = [key, &[0]].concat();
        let mut cursor = Self::at(database, key, Some(&after));
        for table in database.runs(key, Some(&after)).flatten() {
            if let Some(scan) = Scan::at_key(database.cached_table(table)?, key)? {
                cursor.sources.push(RowSource::Tables { database, rest: &[], scan: Box::new(scan) });
            }
        }
        cursor.pick();
        Ok(cursor)
    }

    /// A cursor over the rows in memory only.
    fn at(database: &'a Database<'a>, start: &[u8], end: Option<&[u8]>) -> Self {
        let index = database.memory.seek(start);
        let in_memory = (index < database.memory.len()).then_some(RowSource::Memory { database, index });
        Self {
            database,
            sources: in_memory.into_iter().collect(),
            current: None,
            runner_up: None,
            last: start.to_vec(),
            completed: false,
            begun: false,
            end: end.map(<[u8]>::to_vec),
        }
    }

    /// Goes to the next row; false if there is none. After false or an error the cursor is spent.
    ///
    /// # Errors
    /// [`LevelDbError::File`], [`LevelDbError::Damaged`] or [`LevelDbError::Unsupported`] of a table on the
    /// way.
    pub fn advance(&mut self) -> Result<bool, LevelDbError> {
        loop {
            if self.begun {
                self.step()?;
            }
            let Some(source) = self.current.and_then(|current| self.sources.get(current)) else {
                return Ok(false);
            };
            let (key, trailer, _) = source.row();
            match key.cmp(&self.last) {
                Ordering::Less => return Err(self.out_of_order()),
                Ordering::Equal if self.completed => continue, // an older row of a key
                Ordering::Equal | Ordering::Greater => {}
            }
            if self.end.as_ref().is_some_and(|end| key >= end.as_slice()) {
                self.sources.clear();
                self.current = None;
                return Ok(false);
            }
            self.begun = true;
            if trailer >> 8 > self.database.last_sequence() {
                continue; // LevelDB reads as of the last sequence number
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            self.completed = true;
            match trailer as u8 {
                VALUE => return Ok(true),
                DELETION => {}
                kind => {
                    return Err(self.database.damaged(format!("key {} is of unknown kind {kind}", hex(key))));
                }
            }
        }
    }

    /// Key of the current row; empty if there is none.
    pub fn key(&self) -> &[u8] {
        self.row().0
    }

    /// Value of the current row; empty if there is none.
    pub fn value(&self) -> &[u8] {
        self.row().1
    }

    #[inline]
    fn row(&self) -> (&[u8], &[u8]) {
        let source = self.current.filter(|_| self.begun).and_then(|current| self.sources.get(current));
        source.map(RowSource::row).map_or((&[], &[]), |(key, _, value)| (key, value))
    }

    /// Leaves the current row and finds the smallest one of all sources.
    fn step(&mut self) -> Result<(), LevelDbError> {
        let Some(current) = self.current else { return Ok(()) };
        let Some(source) = self.sources.get_mut(current) else { return Ok(()) };
        if !source.step()? {
            self.sources.swap_remove(current);
            self.pick();
            return Ok(());
        }
        let runner_up = self.runner_up.and_then(|index| self.sources.get(index));
        if runner_up
            .is_some_and(|other| self.sources.get(current).is_some_and(|one| one.order(other).is_gt()))
        {
            self.pick();
        }
        Ok(())
    }

    fn pick(&mut self) {
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
        (self.current, self.runner_up) = (best, second);
    }

    #[cold]
    fn out_of_order(&self) -> LevelDbError {
        self.database.damaged(format!("a row after key {} has a smaller key", hex(&self.last)))
    }
}
