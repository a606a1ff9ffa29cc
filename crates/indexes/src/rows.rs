//! Rows of an index, of which there is one or more for each transaction: their keys begin with hashes, so
//! that they come in any order, and are sorted in [`Partitions`].

use crate::partitions::{Collector, Partitions};
use api::error::Error;
use wire::Height;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Takes rows in ascending order of their keys, with the heights of their blocks; rows that are not of a
/// block have none.
pub trait RowSink {
    /// Takes a row.
    ///
    /// # Errors
    /// Any I/O error.
    fn row(&mut self, key: &[u8], value: &[u8], height: Option<Height>) -> Result<(), Error>;
}

/// The form of the rows, and of the records of `N` bytes that stand for them. The bytes of a key after the
/// first one begin with those of the record.
pub trait RowForm<const N: usize>: Sync {
    /// First byte of all keys.
    const FIRST: u8;
    /// Number of leading bytes that are equal in records whose rows may be in another order.
    const GROUP: usize;

    /// Appends the key and the value of a record; returns the height of its block.
    fn write(&self, record: &[u8; N], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Height;
}

/// All rows of one form.
pub struct RowSet<F, const N: usize> {
    form: F,
    partitions: Partitions<N>,
    /// Rows among them that are not of blocks, in order.
    others: Vec<Row>,
}

impl<F: RowForm<N>, const N: usize> RowSet<F, N> {
    /// No rows yet but `others`, whose keys have the same first byte.
    pub fn new(form: F, partitions: Partitions<N>, mut others: Vec<Row>) -> Self {
        others.sort_unstable();
        Self { form, partitions, others }
    }

    /// The form of the rows.
    pub const fn form(&self) -> &F {
        &self.form
    }

    /// Calls `work` with a collector for this thread.
    pub fn with_collector<T>(&self, work: impl FnOnce(&mut Collector<N>) -> T) -> T {
        self.partitions.with_collector(work)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn add(&self, collector: &mut Collector<N>, record: &[u8; N]) -> Result<(), Error> {
        self.partitions.add(collector, record)
    }

    /// No row will be added any more.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn finish(&self) -> Result<(), Error> {
        self.partitions.finish()
    }

    /// Number of ranges of keys in which the rows can be had, on as many threads.
    pub const fn ranges(&self) -> usize {
        self.partitions.count()
    }

    /// Returns the first possible key of a range, and the first one above it.
    pub fn bounds(&self, range: usize) -> [Vec<u8>; 2] {
        [range, range + 1].map(|range| match range < self.ranges() {
            true => [&[F::FIRST][..], &self.partitions.leading(range)].concat(),
            false => vec![F::FIRST + 1],
        })
    }

    /// Gives the rows of a range to `sink`; they take at most about `memory` bytes.
    ///
    /// # Errors
    /// What is damaged or cannot be read; errors of the sink.
    pub fn give(&self, range: usize, memory: usize, sink: &mut dyn RowSink) -> Result<(), Error> {
        let is_here =
            |(key, _): &&Row| self.partitions.partition_of(key.get(1..).unwrap_or_default()) == range;
        let mut others = self.others.iter().filter(is_here).peekable();
        let mut group: Vec<(Vec<u8>, Vec<u8>, Height)> = Vec::new();
        let mut give_group = |group: &mut Vec<(Vec<u8>, Vec<u8>, Height)>| {
            group.sort_unstable();
            for (at, (key, value, height)) in group.iter().enumerate() {
                // Of rows with the same key, that of the highest block is the last that Core writes.
                if group.get(at + 1).is_some_and(|(next, ..)| next == key) {
                    continue;
                }
                while let Some((key, value)) = others.next_if(|(other, _)| other < key) {
                    sink.row(key, value, None)?;
                }
                sink.row(key, value, Some(*height))?;
            }
            group.clear();
            Ok::<(), Error>(())
        };
        let mut leading = Vec::new();
        self.partitions.sorted(range, memory, |records| {
            for record in records {
                let (own, _) = record.split_at(F::GROUP);
                if own != leading {
                    give_group(&mut group)?;
                    leading.clear();
                    leading.extend_from_slice(own);
                }
                let (mut key, mut value) = (vec![F::FIRST], Vec::new());
                let height = self.form.write(record, &mut key, &mut value);
                group.push((key, value, height));
            }
            Ok(())
        })?;
        give_group(&mut group)?;
        others.try_for_each(|(key, value)| sink.row(key, value, None))
    }
}
