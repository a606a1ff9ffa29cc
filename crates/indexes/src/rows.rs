//! Rows of an index, of which there is one or more for each transaction: their keys begin with hashes, so
//! that they come in any order, and are sorted in [`Partitions`].

use crate::partitions::Partitions;
use api::error::Error;
use wire::Height;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Takes rows in ascending order of their keys, with the heights of their blocks; rows that are not of a
/// block have none.
pub trait RowSink {
    /// Takes a row.
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
    /// The rows of all these records, and `others`, whose keys have the same first byte. No worker collects
    /// records any more.
    pub fn new(form: F, partitions: Partitions<N>, mut others: Vec<Row>) -> Result<Self, Error> {
        partitions.finish()?;
        others.sort_unstable();
        Ok(Self { form, partitions, others })
    }

    /// The form of the rows.
    pub const fn form(&self) -> &F {
        &self.form
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
        let mut give = |key: &[u8], value: &[u8], height: Height| {
            while let Some((key, value)) = others.next_if(|(other, _)| &other[..] < key) {
                sink.row(key, value, None)?;
            }
            sink.row(key, value, Some(height))
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.partitions.sorted(range, memory, |records| {
            for group in records.chunk_by(|a, b| a[..F::GROUP] == b[..F::GROUP]) {
                if let [record] = group {
                    key.clear();
                    value.clear();
                    key.push(F::FIRST);
                    let height = self.form.write(record, &mut key, &mut value);
                    give(&key, &value, height)?;
                    continue;
                }
                let rows = self.rows_of(group);
                for (at, (key, value, height)) in rows.iter().enumerate() {
                    // Of rows with the same key, that of the highest block is the last that Core writes.
                    if rows.get(at + 1).is_none_or(|(next, ..)| next != key) {
                        give(key, value, *height)?;
                    }
                }
            }
            Ok(())
        })?;
        others.try_for_each(|(key, value)| sink.row(key, value, None))
    }

    /// The rows of records that begin alike, in order.
    fn rows_of(&self, group: &[[u8; N]]) -> Vec<(Vec<u8>, Vec<u8>, Height)> {
        let mut rows: Vec<_> = group
            .iter()
            .map(|record| {
                let (mut key, mut value) = (vec![F::FIRST], Vec::new());
                let height = self.form.write(record, &mut key, &mut value);
                (key, value, height)
            })
            .collect();
        // By height if keys are equal: places in files need not ascend.
        rows.sort_unstable_by(|(a, _, lower), (b, _, upper)| (a, lower).cmp(&(b, upper)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::{ByTxid, TxPlace};
    use chain::blocks::chain::{Chain, ChainBlock};
    use vfs::RealDisk;
    use wire::{BlockHash, BlockTime, ByteOffset, FileNo, Reader, Txid};

    /// Keeps rows.
    #[derive(Default)]
    struct Kept(Vec<(Vec<u8>, Vec<u8>, Option<Height>)>);

    impl RowSink for Kept {
        fn row(&mut self, key: &[u8], value: &[u8], height: Option<Height>) -> Result<(), Error> {
            self.0.push((key.to_vec(), value.to_vec(), height));
            Ok(())
        }
    }

    /// A chain whose blocks are stored from the last to the first.
    fn backwards() -> Chain {
        let block = |height: u64| ChainBlock {
            hash: BlockHash([height as u8; 32]),
            file: FileNo(0),
            data_pos: ByteOffset(1_000_000 - height * 1_000),
            undo_pos: None,
        };
        Chain::new((0..100).map(block).collect(), vec![BlockTime(0); 100])
    }

    /// The coinbases of two blocks of mainnet were repeated (BIP-0030).
    #[test]
    fn of_two_transactions_with_one_txid_the_higher_one_has_the_row() {
        let (dir, chain) = (tempfile::tempdir().unwrap(), backwards());
        let partitions =
            Partitions::create(&RealDisk, &dir.path().join("rows"), 1 << 30, 1 << 20, 1).unwrap();
        let other = (b"tz".to_vec(), Vec::new());
        for height in [7, 90, 12] {
            let place = TxPlace { height: Height(height), offset: 81 };
            for first in [3, 200] {
                let record = ByTxid::record(&Txid([first; 32]), place);
                partitions.with_collector(|collector| partitions.add(collector, &record)).unwrap();
            }
        }
        let rows = RowSet::new(ByTxid(&chain), partitions, vec![other]).unwrap();
        assert!(rows.ranges() > 1);
        let mut kept = Kept::default();
        for range in 0..rows.ranges() {
            let [start, end] = rows.bounds(range);
            let before = kept.0.len();
            // With little memory, the records are read in parts.
            rows.give(range, 40, &mut kept).unwrap();
            assert!(kept.0[before..].iter().all(|(key, ..)| start <= *key && *key < end));
        }
        let keys: Vec<_> = kept.0.iter().map(|(key, _, height)| (key[1], *height)).collect();
        assert_eq!(keys, [(3, Some(Height(90))), (b'z', None), (200, Some(Height(90)))]);
        let mut reader = Reader::new(&kept.0[0].1);
        let place = [reader.var_int(), reader.var_int(), reader.var_int()].map(Result::unwrap);
        assert_eq!(place, [0, 910_000, 1]);
    }
}
