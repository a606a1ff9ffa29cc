//! Counts what a check finds, and compares rows with those that an index should have.

use crate::options::{CheckedIndex, IndexFlaw};
use api::error::Error;
use disk::node_indexes::IndexKind;
use leveldb::Cursor;
use wire::Height;

/// What was found in one index, or in a part of it.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    sound: u64,
    flaws: u64,
    first: Option<IndexFlaw>,
}

impl Findings {
    /// Counts a row that is as it should be.
    pub const fn add_sound(&mut self) {
        self.sound += 1;
    }

    /// Counts a flaw, and keeps its text if no lower flaw is known.
    pub fn add_flaw(&mut self, height: Option<Height>, detail: impl Into<String>) {
        self.flaws += 1;
        self.keep_lower(IndexFlaw { height, detail: detail.into() });
    }

    fn keep_lower(&mut self, flaw: IndexFlaw) {
        let is_lower = |first: &IndexFlaw| {
            flaw.height.is_some_and(|height| first.height.is_none_or(|first| height < first))
        };
        if self.first.as_ref().is_none_or(is_lower) {
            self.first = Some(flaw);
        }
    }

    /// Adds the findings in another part.
    pub fn merge(&mut self, other: Self) {
        self.sound += other.sound;
        self.flaws += other.flaws;
        other.first.into_iter().for_each(|flaw| self.keep_lower(flaw));
    }

    /// Adds the findings in another part. If the index is so damaged that it could not be read, that is a
    /// flaw.
    pub fn add(&mut self, other: Result<Self, Error>) -> Result<(), Error> {
        let done = other.map(|other| self.merge(other));
        self.note_damage(done)
    }

    /// Counts an error as a flaw if it says that the index is damaged.
    pub fn note_damage(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(error) if error.kind == api::error::ErrorKind::Damaged => {
                self.add_flaw(error.height, error.fact_text());
                Ok(())
            }
            done => done,
        }
    }

    /// Returns the report about an index that ends at `height`.
    pub fn of_index(self, name: IndexKind, height: Option<Height>) -> CheckedIndex {
        CheckedIndex { name, height, sound_rows: self.sound, flaws: self.flaws, first: self.first }
    }
}

/// Judges a row that is in the index although no block gives it, by its key and value. Returns what is wrong
/// with it, if anything is.
pub type Judge<'j> = dyn Fn(&[u8], &[u8]) -> Result<Option<IndexFlaw>, Error> + Sync + 'j;

/// Compares the rows that should be in a range of a database with those that are.
pub struct Compared<'a> {
    cursor: Cursor<'a>,
    is_at_row: bool,
    judge: &'a Judge<'a>,
    /// What was found.
    pub findings: Findings,
}

impl<'a> Compared<'a> {
    /// Begins at the first row of the cursor.
    pub fn begin(mut cursor: Cursor<'a>, judge: &'a Judge<'a>) -> Result<Self, Error> {
        let is_at_row = cursor.advance()?;
        Ok(Self { cursor, is_at_row, judge, findings: Findings::default() })
    }

    /// Judges the rows below `key`, or all that are left.
    fn skip_to(&mut self, key: Option<&[u8]>) -> Result<(), Error> {
        while self.is_at_row && key.is_none_or(|key| self.cursor.key() < key) {
            if let Some(flaw) = (self.judge)(self.cursor.key(), self.cursor.value())? {
                self.findings.add_flaw(flaw.height, flaw.detail);
            }
            self.is_at_row = self.cursor.advance()?;
        }
        Ok(())
    }

    /// Compares the next row that should be there.
    pub fn row(&mut self, key: &[u8], value: &[u8], height: Option<Height>) -> Result<(), Error> {
        self.skip_to(Some(key))?;
        if !self.is_at_row || self.cursor.key() != key {
            self.findings.add_flaw(height, "a row is missing");
            return Ok(());
        }
        match is_value(self.cursor.value(), value) {
            true => self.findings.add_sound(),
            false => self.findings.add_flaw(height, "a row has another value than its block gives"),
        }
        self.is_at_row = self.cursor.advance()?;
        Ok(())
    }

    /// Judges the rows that are left, and returns what was found.
    pub fn finish(mut self) -> Result<Findings, Error> {
        self.skip_to(None)?;
        Ok(self.findings)
    }
}

/// Whether a value is the one that should be there. The `txospenderindex` of release 31.0 has one zero byte
/// where Core writes nothing today.
pub fn is_value(found: &[u8], wanted: &[u8]) -> bool {
    found == wanted || wanted.is_empty() && found == [0]
}
