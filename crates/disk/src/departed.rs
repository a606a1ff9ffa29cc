//! Blocks of the client that left Bitcoin's chain in September 2026, at height 961,640 of mainnet and 150,308
//! of testnet4, and went on in the same datadirs: they are recognised so that nobody takes them for damage.
//!
//! Their headers have 164 bytes in block files and in the block index, the first 80 of them like Bitcoin's.
//! Bit 31 of the version says so, which Bitcoin Core refuses (`bad-version`); the hash is another one.
//! Bitcoin Core does not start with an index that has such a row (`LoadBlockIndexGuts`).
//!
//! Source: <https://github.com/bitcoinknots/bitcoin/pull/359>, <https://github.com/romanz/electrs/pull/1333>.

use wire::{BlockArena, Header};

/// Who wrote them, in messages.
pub const WRITTEN_BY: &str = "written by a client that left Bitcoin's chain at height 961,640";

/// Length of such a header in bytes.
pub const HEADER_LEN: usize = 164;

/// Whether bytes begin with a version that has the mark of such a header.
pub(crate) fn has_mark(bytes: &[u8]) -> bool {
    bytes.get(3).is_some_and(|top| top & 0x80 != 0)
}

/// Whether the value of a row of the block index has such a header. Those with Bitcoin's are shorter.
pub(crate) fn is_row(value: &[u8]) -> bool {
    value.last_chunk::<HEADER_LEN>().is_some_and(|header| has_mark(header))
}

/// Whether these bytes are exactly such a block.
pub(crate) fn is_block(bytes: &[u8]) -> bool {
    // From there on, the transactions are where the parser expects them.
    let from = bytes.get(HEADER_LEN - Header::LEN..);
    has_mark(bytes) && from.is_some_and(|rest| BlockArena::default().parse(rest).is_ok())
}
