//! `revNNNNN.dat`: the coins that each block spent, so that Core can disconnect the block.
//!
//! Core writes the undo data in `BlockManager::WriteBlockUndo` when a block is connected for the first time,
//! into the file with the number of the block's own `blk` file: so mostly in chain order, unlike blocks. The
//! genesis block has none. [`crate::block_files`] writes the same.
//!
//! ```text
//! record      magic 4 | size 4 | undo data | SHA-256d(previous block hash | undo data) 32
//! undo data   CompactSize: transactions without the coinbase
//!             | per transaction: CompactSize: coins | undo entries
//! undo entry  see wire::coin
//! ```
//! Numbers are little-endian; `size` covers the undo data only. All bytes are obfuscated (`xor`). An index
//! entry points at the undo data, [`RECORD_HEADER_LEN`] bytes into the record. Files grow by 1 MiB of zeros
//! at a time. A crash can leave a torn record at the end, which no index entry points at, and a record can
//! occur twice.
//!
//! The coins in undo data are claims: the checksum guards against damage, not against forgery, and does not
//! identify the block among its siblings.

use crate::blk::RECORD_HEADER_LEN;
use digest::sha256::Sha256;
use wire::coin::CoinError;
use wire::read::write_compact_size;
use wire::{BlockHash, Coin, MAX_BLOCK_LEN, Reader, WireError};

/// Length of the checksum after the undo data, in bytes.
pub const CHECKSUM_LEN: usize = 32;

/// Maximum length of a block's undo data, in bytes: an input weighs at least 164 of a block's 4,000,000
/// (BIP-0141), and an undo entry has at most 10,000 bytes of script and 19 more (VARINTs of code, version,
/// amount and length).
pub const MAX_UNDO_LEN: usize = 256 << 20;

const _: () = assert!(MAX_UNDO_LEN > MAX_BLOCK_LEN / 164 * (10_000 + 19), "all coins a block can spend");

/// Why bytes are not the undo data of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// A count is malformed, or the length is wrong.
    #[error("undo data: {0}")]
    Wire(#[from] WireError),
    /// An entry is not a coin.
    #[error("undo entry of input {input} of transaction {tx}, at byte {at} of the undo data: {source}")]
    Entry {
        /// Index of the transaction in its block; the coinbase has 0.
        tx: u32,
        /// Index of the input in its transaction.
        input: u32,
        /// Offset of the entry in the undo data.
        at: u32,
        source: CoinError,
    },
    /// The undo data is longer than a block's can be.
    #[error("undo data of {len} bytes is above the limit of {MAX_UNDO_LEN}")]
    Oversized {
        /// Length in bytes.
        len: usize,
    },
}

/// Reusable buffers for the entries of one block.
#[derive(Clone, Debug, Default)]
pub struct UndoArena {
    entries: Vec<EntrySpan>,
    /// For each transaction, the end of its entries in `entries`.
    tx_ends: Vec<u32>,
}

/// A coin whose `out` is at `start..end` of the undo data.
#[derive(Clone, Copy, Debug)]
struct EntrySpan {
    code: u32,
    start: u32,
    end: u32,
}

/// The well-formed undo data of a block.
#[derive(Clone, Copy, Debug)]
pub struct UndoView<'a> {
    undo: &'a [u8],
    arena: &'a UndoArena,
}

impl<'a> UndoView<'a> {
    /// Parses the undo data of one block, without record header and checksum.
    ///
    /// # Errors
    /// [`UndoError`] if it ends early, has trailing bytes, or contains an entry that is not a coin.
    pub fn parse(undo: &'a [u8], arena: &'a mut UndoArena) -> Result<Self, UndoError> {
        arena.entries.clear();
        arena.tx_ends.clear();
        // Offsets are 32 bits wide from here on.
        if undo.len() > MAX_UNDO_LEN {
            return Err(UndoError::Oversized { len: undo.len() });
        }
        let mut reader = Reader::new(undo);
        // Counts come from the file: no memory is reserved by them, only for entries that were read.
        let txs = reader.compact_size()?;
        for tx in 0..txs {
            let coins = reader.compact_size()?;
            for input in 0..coins {
                let at = reader.position();
                let coin = Coin::read_undo(&mut reader, undo).map_err(|source| UndoError::Entry {
                    tx: tx as u32 + 1,
                    input: input as u32,
                    at: at as u32,
                    source,
                })?;
                let end = reader.position() as u32;
                arena.entries.push(EntrySpan { code: coin.code, start: end - coin.out.len() as u32, end });
            }
            arena.tx_ends.push(arena.entries.len() as u32);
        }
        reader.finish()?;
        Ok(Self { undo, arena })
    }

    /// Number of transactions in the undo data: all of the block's but the coinbase.
    pub fn tx_count(&self) -> usize {
        self.arena.tx_ends.len()
    }

    pub fn coin_count(&self) -> usize {
        self.arena.entries.len()
    }

    /// Iterates over all coins, in the order of transactions and inputs.
    pub fn coins(&self) -> impl ExactSizeIterator<Item = Coin<'a>> + Clone + use<'a> {
        coins(self.undo, &self.arena.entries)
    }

    /// Iterates over the coins of one transaction in input order; `None` if there is no such transaction.
    /// `index` does not count the coinbase.
    pub fn tx_coins(
        &self,
        index: usize,
    ) -> Option<impl ExactSizeIterator<Item = Coin<'a>> + Clone + use<'a>> {
        let end = *self.arena.tx_ends.get(index)?;
        let start =
            index.checked_sub(1).and_then(|before| self.arena.tx_ends.get(before)).copied().unwrap_or(0);
        Some(coins(self.undo, self.arena.entries.get(start as usize..end as usize)?))
    }

    /// Iterates over the transactions but the coinbase, and yields the coins of each.
    pub fn txs(
        &self,
    ) -> impl Iterator<Item = impl ExactSizeIterator<Item = Coin<'a>> + Clone + use<'a>> + Clone + use<'a>
    {
        let view = *self;
        (0..self.tx_count()).map_while(move |index| view.tx_coins(index))
    }
}

fn coins<'a>(
    undo: &'a [u8],
    entries: &'a [EntrySpan],
) -> impl ExactSizeIterator<Item = Coin<'a>> + Clone + use<'a> {
    // `parse` has checked that the spans are within the undo data, so the default is never used.
    entries.iter().map(move |entry| Coin {
        code: entry.code,
        out: undo.get(entry.start as usize..entry.end as usize).unwrap_or_default(),
    })
}

/// Returns the checksum of undo data; `prev` is the hash of the parent of its block.
pub fn checksum(prev: &BlockHash, undo: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = Sha256::new();
    hasher.update(&prev.0);
    hasher.update(undo);
    hasher.finalize_double()
}

/// Encodes the coins that each transaction but the coinbase spends, in block order.
pub fn write_undo<'a, C>(txs: impl ExactSizeIterator<Item = C>) -> Vec<u8>
where
    C: ExactSizeIterator<Item = Coin<'a>>,
{
    let mut undo = Vec::new();
    write_compact_size(&mut undo, txs.len() as u64);
    for coins in txs {
        write_compact_size(&mut undo, coins.len() as u64);
        coins.for_each(|coin| coin.write_undo(&mut undo));
    }
    undo
}

/// Appends a complete record without obfuscation. The undo data starts [`RECORD_HEADER_LEN`] bytes into it.
///
/// # Panics
/// If `undo` has 4 GiB or more.
pub fn write_record(record: &mut Vec<u8>, magic: [u8; 4], prev: &BlockHash, undo: &[u8]) {
    record.reserve(RECORD_HEADER_LEN + undo.len() + CHECKSUM_LEN);
    crate::blk::write_record(record, magic, undo);
    record.extend_from_slice(&checksum(prev, undo));
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Height, Sats, coin::compressed_output};

    #[test]
    fn reports_trailing_bytes_large_counts_and_malformed_entries() {
        let mut arena = UndoArena::default();
        assert!(UndoView::parse(&[0], &mut arena).is_ok());
        let trailing = UndoView::parse(&[0, 0], &mut arena).unwrap_err();
        assert_eq!(trailing, UndoError::Wire(WireError::Trailing { at: 1, extra: 1 }));
        let many = UndoView::parse(&[0xfe, 0, 0, 0, 2], &mut arena).unwrap_err();
        assert_eq!(many, UndoError::Wire(WireError::Truncated { at: 5, needed: 1 }));
        let no_coin = UndoView::parse(&[1, 1, 3], &mut arena).unwrap_err();
        let text = no_coin.to_string();
        assert!(text.starts_with("undo entry of input 0 of transaction 1, at byte 2"), "{text}");
    }

    #[test]
    fn a_record_is_header_undo_data_and_checksum() {
        let out = compressed_output(Sats(1), &[0x51]);
        let coin = Coin { code: Coin::code_of(Height(9), true), out: &out };
        let undo = write_undo([[coin].into_iter()].into_iter());
        let (mut record, prev) = (Vec::new(), BlockHash([7; 32]));
        write_record(&mut record, [1, 2, 3, 4], &prev, &undo);
        assert_eq!(record[..8], [1, 2, 3, 4, undo.len() as u8, 0, 0, 0]);
        assert_eq!(record[8..8 + undo.len()], undo);
        assert_eq!(record[8 + undo.len()..], digest::sha256::sha256d(&[&prev.0[..], &undo].concat()));
    }
}
