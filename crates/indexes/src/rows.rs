//! The rows of transactions, of `txindex` and `txospenderindex`. Their keys begin with hashes, so they are
//! made in any order, and sorted through a temporary file ([`Partitions`]).
//!
//! A row is kept there in a compact form, whose length is the same for all rows of a kind: the hash, and the
//! height and offset of the transaction.

use crate::partitions::Partitions;
use api::{block_observer::ObservedBlock, error::Error};
use chain::blocks::chain::Chain;
use disk::node_indexes::IndexKind;
use std::ops::RangeInclusive;
use wire::Height;

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Takes rows in ascending order of their keys: the key, the value, and the height of the block that the row
/// is made from. A row that is made from no block has no height.
pub type RowSink<'s> = dyn FnMut(&[u8], &[u8], Option<Height>) -> Result<(), Error> + 's;

/// The place of a transaction: its block, and its offset there. The offset includes the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxPlace {
    pub height: Height,
    /// Offset in bytes.
    pub offset: u32,
}

impl TxPlace {
    fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.height.0) << 32 | u64::from(self.offset)).to_be_bytes()
    }

    /// Divides a compact row into its hash and its place.
    pub fn divide(compact: &[u8]) -> (&[u8], Self) {
        let (hash, place) = compact.split_last_chunk().unwrap_or((&[], &[0; 8]));
        let number = u64::from_be_bytes(*place);
        (hash, Self { height: Height((number >> 32) as u32), offset: number as u32 })
    }
}

/// Joins a hash and a place to a compact row.
pub fn compact<const H: usize, const N: usize>(hash: [u8; H], place: TxPlace) -> [u8; N] {
    let mut compact = [0; N];
    let (start, end) = compact.split_at_mut(H);
    start.copy_from_slice(&hash);
    end.copy_from_slice(&place.to_bytes());
    compact
}

/// The rows of one form, made from transactions.
pub trait TxRows: Send + Sync {
    /// The index that has these rows.
    fn kind(&self) -> IndexKind;

    /// Adds the rows of a block, if its height is one of those that are wanted.
    fn add(&self, block: &ObservedBlock<'_>) -> Result<(), Error>;

    /// Writes what workers still have in memory, after the last row was added.
    fn finish(&self) -> Result<(), Error>;

    /// Number of ranges of keys. Threads can take different ranges.
    fn ranges(&self) -> usize;

    /// Returns the first possible key of a range, and the first one above it.
    fn bounds(&self, range: usize) -> [Vec<u8>; 2];

    /// Gives the rows of a range to `sink`. They take about `memory` bytes at most. `chain` has the places of
    /// the blocks.
    ///
    /// # Errors
    /// What is damaged or cannot be read; errors of the sink.
    fn give(&self, chain: &Chain, range: usize, memory: usize, sink: &mut RowSink<'_>) -> Result<(), Error>;
}

/// How rows of one form are written, and their compact forms of `N` bytes: a hash, which follows the first
/// byte of the key, and the place of the transaction.
pub trait RowForm<const N: usize>: Send + Sync {
    /// The index that has these rows.
    const KIND: IndexKind;
    /// First byte of all keys.
    const FIRST: u8;

    /// Returns the compact rows of a block's transactions.
    fn compact_rows(&self, block: &ObservedBlock<'_>) -> impl Iterator<Item = [u8; N]>;

    /// Appends what follows the hash in the key of a transaction's row, and its value.
    fn write(&self, chain: &Chain, place: TxPlace, key: &mut Vec<u8>, value: &mut Vec<u8>);
}

/// Rows of one form, which are sorted when all have been added.
pub struct SortedRows<F, const N: usize> {
    pub form: F,
    /// Heights of the blocks whose rows are wanted.
    pub heights: RangeInclusive<u32>,
    pub partitions: Partitions<N>,
    /// One more row, which is made from no block. Its key has the same first byte.
    pub other: Option<Row>,
}

impl<F: RowForm<N>, const N: usize> TxRows for SortedRows<F, N> {
    fn kind(&self) -> IndexKind {
        F::KIND
    }

    fn add(&self, block: &ObservedBlock<'_>) -> Result<(), Error> {
        // The genesis block has no rows.
        if block.height.0 == 0 || !self.heights.contains(&block.height.0) {
            return Ok(());
        }
        self.partitions.with_collector(|collector| {
            let mut rows = self.form.compact_rows(block);
            rows.try_for_each(|compact| self.partitions.add(collector, &compact))
        })
    }

    fn finish(&self) -> Result<(), Error> {
        self.partitions.finish()
    }

    fn ranges(&self) -> usize {
        self.partitions.count()
    }

    fn bounds(&self, range: usize) -> [Vec<u8>; 2] {
        [range, range + 1].map(|range| match range < self.ranges() {
            true => [&[F::FIRST][..], &self.partitions.leading(range)].concat(),
            false => vec![F::FIRST + 1],
        })
    }

    fn give(&self, chain: &Chain, range: usize, memory: usize, sink: &mut RowSink<'_>) -> Result<(), Error> {
        let is_here =
            |(key, _): &&Row| self.partitions.partition_of(key.get(1..).unwrap_or_default()) == range;
        let mut other = self.other.as_ref().filter(is_here);
        let mut give = |key: &[u8], value: &[u8], height: Height| {
            if let Some((key, value)) = other.take_if(|(other, _)| &other[..] < key) {
                sink(key, value, None)?;
            }
            sink(key, value, Some(height))
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.partitions.sorted(range, memory, |rows| {
            for group in rows.chunk_by(|a, b| TxPlace::divide(a).0 == TxPlace::divide(b).0) {
                if let [compact] = group {
                    let height = self.write(chain, compact, &mut key, &mut value);
                    give(&key, &value, height)?;
                    continue;
                }
                let rows = self.in_key_order(chain, group);
                for (at, (key, value, height)) in rows.iter().enumerate() {
                    // Core writes the row of the highest block last, and so over the others with its key.
                    if rows.get(at + 1).is_none_or(|(next, ..)| next != key) {
                        give(key, value, *height)?;
                    }
                }
            }
            Ok(())
        })?;
        other.map_or(Ok(()), |(key, value)| sink(key, value, None))
    }
}

impl<F: RowForm<N>, const N: usize> SortedRows<F, N> {
    /// Writes the row of a compact row; returns the height of its block.
    fn write(&self, chain: &Chain, compact: &[u8; N], key: &mut Vec<u8>, value: &mut Vec<u8>) -> Height {
        let (hash, place) = TxPlace::divide(compact);
        key.clear();
        value.clear();
        key.push(F::FIRST);
        key.extend_from_slice(hash);
        self.form.write(chain, place, key, value);
        place.height
    }

    /// Returns the rows of compact rows with the same hash, in the order of their keys. The compact rows need
    /// not be in that order.
    fn in_key_order(&self, chain: &Chain, group: &[[u8; N]]) -> Vec<(Vec<u8>, Vec<u8>, Height)> {
        let row = |compact: &[u8; N]| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let height = self.write(chain, compact, &mut key, &mut value);
            (key, value, height)
        };
        let mut rows: Vec<_> = group.iter().map(row).collect();
        // Rows with the same key are ordered by height.
        rows.sort_unstable_by(|(a, _, lower), (b, _, upper)| (a, lower).cmp(&(b, upper)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::ByTxid;
    use chain::blocks::chain::BlockPosition;
    use vfs::RealDisk;
    use wire::{BlockHash, BlockTime, FileNo, Reader};

    /// A chain whose blocks are stored from the last to the first.
    fn backwards() -> Chain {
        let hashes = (0..100).map(|height| BlockHash([height; 32])).collect();
        let data_pos = |height: u32| 1_000_000 - height * 1_000;
        let position = |height| BlockPosition { file: FileNo(0), data_pos: data_pos(height), undo_pos: None };
        Chain::from_parts(hashes, (0..100).map(position).collect(), vec![BlockTime(0); 100])
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
                let compact: [u8; 40] = compact([first; 32], place);
                partitions.with_collector(|collector| partitions.add(collector, &compact)).unwrap();
            }
        }
        let rows = SortedRows { form: ByTxid, heights: 0..=99, partitions, other: Some(other) };
        rows.finish().unwrap();
        assert!(rows.ranges() > 1);
        let mut kept = Vec::new();
        for range in 0..rows.ranges() {
            let [start, end] = rows.bounds(range);
            let mut keep = |key: &[u8], value: &[u8], height| {
                assert!(&start[..] <= key && key < &end[..]);
                kept.push((key.to_vec(), value.to_vec(), height));
                Ok(())
            };
            // With little memory, the compact rows are read in parts.
            rows.give(&chain, range, 40, &mut keep).unwrap();
        }
        let keys: Vec<_> = kept.iter().map(|(key, _, height)| (key[1], *height)).collect();
        assert_eq!(keys, [(3, Some(Height(90))), (b'z', None), (200, Some(Height(90)))]);
        let mut reader = Reader::new(&kept[0].1);
        let place = [reader.var_int(), reader.var_int(), reader.var_int()].map(Result::unwrap);
        assert_eq!(place, [0, 910_000, 1]);
    }
}
