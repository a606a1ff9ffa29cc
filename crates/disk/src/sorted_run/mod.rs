//! `run-NNNNNNNN.run`: a sorted run, with creations and spends of coins that did not fit into memory.
//!
//! Peregrine's own format. A run is written once, from first byte to last, when the join is over its budget.
//! A merge reads it from first to last on any number of threads, each over a range of shards (a coin's shard
//! is the first byte of its txid). Entries are in the chainstate's key order, and so is the result of a
//! merge.
//!
//! ```text
//! header  magic 8 "PGRN-RUN" | version 4 | network's message magic 4
//! block   checksum 4 | content length 4 | entries 4 | content: entries of one shard
//! footer  256 * (offset 8 | entries 8 | checksum 4 | net coins 8, key bytes 8, value bytes 8)
//!         | entries 8 | spends 8 | file length 8
//!         | checksum of the blocks 4 | checksum of the footer 4 | magic 8
//! entry   flags 1 | txid from the first byte that differs | VARINT(vout) | VARINT(code) | out    ([`entry`])
//! ```
//! Integers are little-endian, net sizes signed: creations minus spends. Checksums are CRC-32C. They form a
//! chain, which begins with the header's: the checksum of a block continues that of the block before it, over
//! all bytes but checksums. The footer contains the value of the chain at the beginning of each shard, so
//! that the footer's checksum covers every byte of the file, and a block of another run is detected even if
//! its own bytes are intact.
//!
//! Sizes: a block ends with the entry that takes it over 64 KiB, or with its shard; no entry is longer than
//! 10,054 bytes; the footer has 11.3 KB. A run of 1 GB has 18 million entries.
//!
//! A crash can leave a run without its footer. No checkpoint ([`crate::checkpoint`]) lists it, because a run
//! is synced before that.

mod cursor;
mod entry;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::{SortedRunCursor, SortedRunReader};
pub use writer::SortedRunWriter;

use crate::error::DiskError;
use crate::pack::{Pack as _, pack_fields};
use std::path::Path;
use wire::{NetSize, Reader};

/// Number of shards: one for each first byte of a txid.
const SHARDS: usize = 256;

pub(crate) const MAGIC: [u8; 8] = *b"PGRN-RUN";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 16;
const BLOCK_HEADER_LEN: usize = 12;
/// Bytes of content after which a block is closed.
const BLOCK_LEN: usize = 64 << 10;
const MAX_CONTENT_LEN: usize = BLOCK_LEN + entry::MAX_LEN;
const INDEX_ENTRY_LEN: usize = 8 + 8 + 4 + 3 * 8;
const FOOTER_LEN: usize = SHARDS * INDEX_ENTRY_LEN + 3 * 8 + 2 * 4 + MAGIC.len();

/// The totals of a run, known without reading its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SortedRunMeta {
    /// Number of entries: creations and spends.
    pub entries: u64,
    pub spends: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Checksum of the footer, which covers every byte of the file.
    pub checksum: u32,
    /// Net size of each of the 256 shards.
    pub net: Vec<NetSize>,
}

/// The beginning of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shard {
    /// Offset of its first block in the file; where that block would be if it has none.
    offset: u64,
    entries: u64,
    /// The chained checksum before its first block.
    checksum: u32,
}

pack_fields!(Shard { offset, entries, checksum });

fn damaged(path: &Path, offset: u64, flaw: impl AsRef<str>) -> DiskError {
    let flaw = format!("{}; the file is damaged", flaw.as_ref());
    DiskError::DamagedWorkFile { path: path.to_owned(), offset, flaw }
}

impl SortedRunMeta {
    /// Returns the footer of a run with these shards (the last one is the footer's own position), and the
    /// same data decoded.
    fn footer(index: &[Shard], net: Vec<NetSize>, spends: u64) -> (Vec<u8>, Self) {
        let mut footer = Vec::with_capacity(FOOTER_LEN);
        for (shard, net) in index.iter().zip(&net) {
            shard.put(&mut footer);
            net.put(&mut footer);
        }
        let (end, checksum) = index.last().map_or((0, 0), |end| (end.offset, end.checksum));
        let entries = index.iter().map(|shard| shard.entries).sum();
        let bytes = end + FOOTER_LEN as u64;
        [entries, spends, bytes].put(&mut footer);
        checksum.put(&mut footer);
        let checksum = crc32c::crc32c(&footer);
        checksum.put(&mut footer);
        footer.extend(MAGIC);
        (footer, Self { entries, spends, bytes, checksum, net })
    }

    /// Decodes a footer, given the header of the same file and the file's length.
    fn read_footer(footer: &[u8], header: &[u8], len: u64) -> Result<(Self, Vec<Shard>), &'static str> {
        const SHORT: &str = "its footer is too short";
        let (rest, magic) = footer.split_last_chunk().ok_or(SHORT)?;
        if *magic != MAGIC {
            return Err("it does not end like a run: it is truncated, or bytes were added");
        }
        let (content, checksum) = rest.split_last_chunk().ok_or(SHORT)?;
        let checksum = u32::from_le_bytes(*checksum);
        if crc32c::crc32c(content) != checksum {
            return Err("checksum mismatch in the footer");
        }
        let mut reader = Reader::new(content);
        let (mut index, mut net) = (Vec::with_capacity(SHARDS + 1), Vec::with_capacity(SHARDS));
        for _ in 0..SHARDS {
            index.push(Shard::take(&mut reader).map_err(|_| SHORT)?);
            net.push(NetSize::take(&mut reader).map_err(|_| SHORT)?);
        }
        let [entries, spends, bytes] = <[u64; 3]>::take(&mut reader).map_err(|_| SHORT)?;
        let end = reader.u32().map_err(|_| SHORT)?;
        if bytes != len {
            return Err("its length differs from the one in its footer");
        }
        index.push(Shard { offset: len - FOOTER_LEN as u64, entries: 0, checksum: end });
        let meta = Self { entries, spends, bytes, checksum, net };
        if meta.is_consistent(&index, crc32c::crc32c(header)) {
            Ok((meta, index))
        } else {
            Err("its footer is inconsistent")
        }
    }

    /// Whether shards are contiguous, large enough for their entries, and add up to the totals.
    fn is_consistent(&self, index: &[Shard], header_checksum: u32) -> bool {
        let first = Shard { offset: HEADER_LEN as u64, checksum: header_checksum, entries: 0 };
        let (mut entries, mut coins) = (0, 0);
        for ((shard, next), net) in index.iter().zip(index.iter().skip(1)).zip(&self.net) {
            let Some(len) = next.offset.checked_sub(shard.offset) else { return false };
            let is_empty = len == 0 && shard.entries == 0 && next.checksum == shard.checksum;
            let is_possible = shard.entries > 0 && shard.entries <= len / entry::MIN_LEN;
            if !(is_empty || is_possible) || net.coins.unsigned_abs() > shard.entries {
                return false;
            }
            entries += shard.entries;
            coins += net.coins;
        }
        index.first().is_some_and(|shard| Shard { entries: 0, ..*shard } == first)
            && self.entries == entries
            && self.spends <= entries
            && i128::from(coins) == i128::from(entries) - 2 * i128::from(self.spends)
    }
}
