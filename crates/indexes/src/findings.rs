//! What a check finds, and rows compared with those that have to be there.

use crate::{
    options::{CheckedIndex, IndexFlaw},
    rows::RowSink,
};
use api::error::Error;
use disk::node_indexes::IndexKind;
use leveldb::Cursor;
use wire::Height;

/// What was found of one index, or a part of it.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    sound: u64,
    flaws: u64,
    first: Option<IndexFlaw>,
}

impl Findings {
    /// A row is as it has to be.
    pub const fn add_sound(&mut self) {
        self.sound += 1;
    }

    /// Something is wrong.
    pub fn add_flaw(&mut self, height: Option<Height>, detail: impl Into<String>) {
        self.flaws += 1;
        if self.first.as_ref().is_none_or(|first| is_lower(height, first.height)) {
            self.first = Some(IndexFlaw { height, detail: detail.into() });
        }
    }

    /// Adds those of another part.
    pub fn merge(&mut self, other: Self) {
        self.sound += other.sound;
        self.flaws += other.flaws;
        if let Some(flaw) = other.first
            && self.first.as_ref().is_none_or(|first| is_lower(flaw.height, first.height))
        {
            self.first = Some(flaw);
        }
    }

    /// Adds those of another part. That it could not be read because the index is damaged is a flaw.
    pub fn add(&mut self, other: Result<Self, Error>) -> Result<(), Error> {
        let done = other.map(|other| self.merge(other));
        self.note_damage(done)
    }

    /// Turns damage of the index into a flaw.
    pub fn note_damage(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(error) if error.kind == api::error::ErrorKind::Damaged => {
                self.add_flaw(error.height, error.fact_text());
                Ok(())
            }
            done => done,
        }
    }

    /// The report of an index that ends at `height`.
    pub fn of_index(self, name: IndexKind, height: Option<Height>) -> CheckedIndex {
        CheckedIndex { name, height, sound_rows: self.sound, flaws: self.flaws, first: self.first }
    }
}

fn is_lower(height: Option<Height>, first: Option<Height>) -> bool {
    height.is_some_and(|height| first.is_none_or(|first| height < first))
}

/// What it means that a row is there which need not be: the height of its block, and what is wrong with it.
pub type Judge<'j> = dyn Fn(&[u8], &[u8]) -> Result<Option<IndexFlaw>, Error> + Sync + 'j;

/// Compares the rows that have to be in a range of a database with those that are.
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

    /// Goes over rows below `key`, or all that are left.
    fn skip_to(&mut self, key: Option<&[u8]>) -> Result<(), Error> {
        while self.is_at_row && key.is_none_or(|key| self.cursor.key() < key) {
            if let Some(flaw) = (self.judge)(self.cursor.key(), self.cursor.value())? {
                self.findings.add_flaw(flaw.height, flaw.detail);
            }
            self.is_at_row = self.cursor.advance()?;
        }
        Ok(())
    }

    /// No more rows have to be there.
    pub fn finish(mut self) -> Result<Findings, Error> {
        self.skip_to(None)?;
        Ok(self.findings)
    }
}

impl RowSink for Compared<'_> {
    fn row(&mut self, key: &[u8], value: &[u8], height: Option<Height>) -> Result<(), Error> {
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
}

/// Whether a value is the one that has to be there. Core has written one zero byte where it writes nothing
/// now (`txospenderindex` of release 31.0).
pub fn is_value(found: &[u8], wanted: &[u8]) -> bool {
    found == wanted || wanted.is_empty() && found == [0]
}
