//! The records of `NNNNNN.log`: batches of puts and deletions that are not in tables yet, and the sorted
//! table in memory that the reader builds from them. Written by LevelDB `WriteBatch` and by small updates.
//!
//! ```text
//! batch                                      operation
//!    0  8  sequence number of the first         0  1  1 put, 0 delete
//!    8  4  number of operations                 1  .  key, string
//!   12  .  operations                           .  .  value, string; only in a put
//! ```
//! Numbers are little-endian, strings as in `coding`. The n-th operation has the first sequence number + n.

use std::ops::Range;

use super::coding::{DELETION, Input, MAX_SEQUENCE, VALUE, put_string};

/// Maximum number of bytes that a database's logs take in memory, with a [`Row`] for each operation. Core's
/// batches have about 32 MiB, and LevelDB begins a new log when the last one takes more memory than a write
/// buffer: 2 MiB for chainstates, and a quarter of its cache for a `txindex`, up to 256 MiB with a -dbcache
/// of 10 GiB. So one log of a node is shorter. A shutdown while a full one is written to a table leaves two,
/// which are refused if they are longer together: bitcoind merges them when it starts.
pub(super) const MAX_LOG_BYTES: u64 = if cfg!(test) { 16 << 20 } else { 256 << 20 };

/// Why logs are not read, although they may be intact.
pub(super) const TOO_LONG: &str = "logs that take more than 256 MiB of memory are not supported";

/// One operation, as ranges of the bytes of [`MemTable`], of which there are at most [`MAX_LOG_BYTES`].
struct Row {
    key: Range<u32>,
    value: Range<u32>,
    trailer: u64,
}

/// The newest operation of each key of the logs, in key order.
#[derive(Default)]
pub(super) struct MemTable {
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// The greatest sequence number of all operations.
    pub(super) last_sequence: u64,
}

impl MemTable {
    /// Makes room for a log of so many bytes: buffers that double take what small budgets leave.
    pub(super) fn reserve(&mut self, log_len: u64) {
        self.bytes.reserve_exact(log_len as usize);
    }

    /// Adds one batch, and returns the sequence number of its first operation, or what is wrong with it.
    pub(super) fn add_batch(&mut self, batch: &[u8]) -> Result<u64, &'static str> {
        let base = self.bytes.len();
        let mut rest = Input(batch);
        let (Some(first), Some(count)) = (rest.u64(), rest.u32()) else {
            return Err("a batch is shorter than 12 bytes");
        };
        if first.checked_add(u64::from(count)).is_none_or(|end| end > MAX_SEQUENCE) {
            return Err("sequence number above 2^56");
        }
        let range_of = |string: &[u8], rest: Input<'_>| {
            let end = base + batch.len() - rest.0.len();
            (end - string.len()) as u32..end as u32
        };
        let max_rows = (MAX_LOG_BYTES as usize).saturating_sub(base + batch.len()) / size_of::<Row>();
        let mut sequence = first;
        while !rest.is_empty() {
            let kind = rest.u8().ok_or("the batch is truncated")?;
            if kind > VALUE {
                return Err("an operation is neither a put nor a deletion");
            }
            let key = rest.string().map(|key| range_of(key, rest)).ok_or("a key extends beyond the batch")?;
            let value = match kind {
                DELETION => 0..0u32,
                _ => rest
                    .string()
                    .map(|value| range_of(value, rest))
                    .ok_or("a value extends beyond the batch")?,
            };
            if self.rows.len() >= max_rows {
                return Err(TOO_LONG);
            }
            self.rows.push(Row { key, value, trailer: sequence << 8 | u64::from(kind) });
            sequence += 1;
        }
        if sequence - first != u64::from(count) {
            return Err("the number of operations differs from the one in the batch header");
        }
        self.bytes.extend_from_slice(batch);
        self.last_sequence = self.last_sequence.max(sequence.saturating_sub(1));
        Ok(first)
    }

    /// Sorts the rows and drops all but the newest of each key. To be called after the last batch.
    pub(super) fn finish(&mut self) {
        let (bytes, rows) = (&self.bytes, &mut self.rows);
        let key = |row: &Row| slice(bytes, &row.key);
        rows.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(b.trailer.cmp(&a.trailer)));
        rows.dedup_by(|later, kept| key(later) == key(kept));
        rows.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn batch_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the index of the first row whose key is not below `start`.
    pub(super) fn seek(&self, start: &[u8]) -> usize {
        self.rows.partition_point(|row| slice(&self.bytes, &row.key) < start)
    }

    /// Returns key, trailer and value of the row at `index`.
    pub(super) fn row(&self, index: usize) -> Option<(&[u8], u64, &[u8])> {
        let row = self.rows.get(index)?;
        Some((slice(&self.bytes, &row.key), row.trailer, slice(&self.bytes, &row.value)))
    }
}

fn slice<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
}

pub(super) struct Batch {
    bytes: Vec<u8>,
    count: u32,
}

impl Batch {
    /// Begins a batch whose first operation has this sequence number.
    pub(super) fn new(first: u64) -> Self {
        Self { bytes: [&first.to_le_bytes()[..], &[0; 4]].concat(), count: 0 }
    }

    /// Adds a put, or a deletion if there is no value.
    pub(super) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.count += 1;
        self.bytes.push(if value.is_some() { VALUE } else { DELETION });
        put_string(&mut self.bytes, key);
        value.iter().for_each(|value| put_string(&mut self.bytes, value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if let Some(count) = self.bytes.get_mut(8..12) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a batch with this count of operations.
    fn batch(first: u64, count: u32, operations: &[(&[u8], Option<&[u8]>)]) -> Vec<u8> {
        let mut batch = Batch::new(first);
        operations.iter().for_each(|(key, value)| batch.add(key, *value));
        batch.count = count;
        batch.finish()
    }

    #[test]
    fn keeps_the_newest_operation_of_each_key_in_key_order() {
        let mut table = MemTable::default();
        table.add_batch(&batch(5, 3, &[(b"b", Some(b"1")), (b"a", Some(b"")), (b"c", None)])).unwrap();
        table.add_batch(&batch(8, 2, &[(b"b", None), (b"b", Some(b"2"))])).unwrap();
        table.finish();
        assert_eq!((table.len(), table.last_sequence), (3, 9));
        assert_eq!(table.row(0), Some((&b"a"[..], 6 << 8 | 1, &b""[..])));
        assert_eq!(table.row(1), Some((&b"b"[..], 9 << 8 | 1, &b"2"[..])));
        assert_eq!(table.row(2), Some((&b"c"[..], 7 << 8, &b""[..])));
        assert_eq!([table.seek(b""), table.seek(b"b"), table.seek(b"bb"), table.seek(b"d")], [0, 1, 2, 3]);
    }

    #[test]
    fn malformed_batches_are_refused() {
        let good = batch(1, 1, &[(b"key", Some(b"value"))]);
        for len in 0..good.len() {
            assert!(MemTable::default().add_batch(&good[..len]).is_err(), "cut at {len}");
        }
        let check = |bytes: &[u8], want| assert_eq!(MemTable::default().add_batch(bytes), Err(want));
        check(
            &batch(1, 2, &[(b"k", None)]),
            "the number of operations differs from the one in the batch header",
        );
        check(&batch(u64::MAX, 1, &[(b"k", None)]), "sequence number above 2^56");
        check(&batch(MAX_SEQUENCE, 1, &[(b"k", None)]), "sequence number above 2^56");
        let mut unknown = good;
        unknown[12] = 2;
        check(&unknown, "an operation is neither a put nor a deletion");
    }
}
