//! The rows of `txindex` and `txospenderindex`, which lead from a hash to a place in the blocks.
//!
//! ```text
//! txindex, by txid (releases up to 31)
//!   't' | txid 32                                   -> file, position, offset
//! txindex, by block (from 32 on)
//!   'x' | 5 bytes of a hash of the txid | sequence | offset 3   -> (empty)
//!   's' | sequence -> block hash 32         'h' | block hash 32 -> sequence 4
//!   0e "next_block_seq" -> sequence 4       0e "txid_hash_salt" -> salt 16
//! txospenderindex
//!   's' | hash 8 | file, position, offset           -> (empty)
//!   "siphash_key" 00                                -> key 16
//! ```
//! File, position, offset and sequence are VARINTs; the 3 bytes are big-endian, other numbers little-endian.
//! The position is that of the block's first byte in its file. The offset is that of the transaction, counted
//! from there in the rows by block, and from the end of the header in the others. Genesis has no rows.
//!
//! Source: Core `index/txindex.cpp`, `index/txindex_key.h`, `index/txospenderindex.cpp`, `index/disktxpos.h`.

use crate::rows::{RowForm, RowSink, TxPlace, compact};
use api::{block_observer::ObservedBlock, error::Error};
use chain::blocks::chain::Chain;
use digest::siphash::{SipHash13Uj, SipKey};
use disk::node_indexes::{IndexKind, spender_hash, write_disk_pos};
use std::sync::Arc;
use wire::{BlockHash, Height, TxView, Txid, read::write_var_int};

/// Number of bytes of the hash in a row by block.
const PREFIX_LEN: usize = 5;

/// Key of the row with the next sequence number.
pub const NEXT_SEQUENCE: &[u8] = b"\x0enext_block_seq";
/// Key of the row with the salt of the hashes in a `txindex`.
pub const TXID_SALT: &[u8] = b"\x0etxid_hash_salt";
/// The same for a `txospenderindex`, and how either is read.
pub use disk::node_indexes::{SPENDER_KEY, read_key};

/// Returns the value of the row with a key of SipHash.
pub fn key_value(SipKey(k0, k1): SipKey) -> Vec<u8> {
    [k0.to_le_bytes(), k1.to_le_bytes()].concat()
}

/// Appends Core's `CDiskTxPos` of a transaction.
fn write_place(chain: &Chain, place: TxPlace, out: &mut Vec<u8>) {
    let block = chain.block(place.height);
    write_disk_pos(block.file, block.data_pos, place.offset, out);
}

/// Returns the transactions of a block, with their ids and places.
fn placed_txs<'b>(
    block: &ObservedBlock<'b>,
) -> impl Iterator<Item = (TxView<'b>, &'b Txid, TxPlace)> + use<'b> {
    let height = block.height;
    block.block.txs().zip(block.txids).map(move |(tx, txid)| {
        let offset = tx.offset() as u32;
        (tx, txid, TxPlace { height, offset })
    })
}

pub struct ByTxid;

impl RowForm<40> for ByTxid {
    const KIND: IndexKind = IndexKind::Tx;
    const FIRST: u8 = b't';

    fn compact_rows(&self, block: &ObservedBlock<'_>) -> impl Iterator<Item = [u8; 40]> {
        placed_txs(block).map(|(_, txid, place)| compact(txid.0, place))
    }

    fn write(&self, chain: &Chain, place: TxPlace, _: &mut Vec<u8>, value: &mut Vec<u8>) {
        write_place(chain, place, value);
    }
}

pub struct ByBlock {
    hasher: SipHash13Uj,
    sequences: Sequences,
}

/// The sequence number of each block of a chain that has one, by height.
pub type Sequences = Arc<[Option<u32>]>;

impl ByBlock {
    /// Makes the rows of blocks that have these sequence numbers. The key is the salt of the index.
    pub fn new(SipKey(k0, k1): SipKey, sequences: Sequences) -> Self {
        Self { hasher: SipHash13Uj::new(k0, k1), sequences }
    }

    fn sequence(&self, height: Height) -> Option<u32> {
        self.sequences.get(height.0 as usize).copied().flatten()
    }
}

impl RowForm<13> for ByBlock {
    const KIND: IndexKind = IndexKind::Tx;
    const FIRST: u8 = b'x';

    fn compact_rows(&self, block: &ObservedBlock<'_>) -> impl Iterator<Item = [u8; 13]> {
        let has_rows = self.sequence(block.height).is_some();
        placed_txs(block).filter(move |_| has_rows).map(move |(_, txid, place)| {
            let [prefix @ .., _, _, _] = self.hasher.with_jumbo(&txid.0).finish().to_be_bytes();
            compact::<PREFIX_LEN, 13>(prefix, place)
        })
    }

    fn write(&self, _: &Chain, place: TxPlace, key: &mut Vec<u8>, _: &mut Vec<u8>) {
        write_var_int(key, self.sequence(place.height).unwrap_or_default().into());
        let [_, offset @ ..] = place.offset.to_be_bytes();
        key.extend_from_slice(&offset);
    }
}

/// Gives the rows of blocks that have these sequence numbers to `sink`, in the order of the keys. They
/// precede the rows of transactions.
pub fn give_block_rows(
    sequences: &[Option<u32>],
    chain: &Chain,
    sink: &mut RowSink<'_>,
) -> Result<(), Error> {
    let heights = (0..).map(Height).zip(sequences);
    let mut blocks: Vec<(Height, u32)> =
        heights.filter_map(|(height, sequence)| Some((height, (*sequence)?))).collect();
    blocks.sort_unstable_by_key(|(height, _)| chain.block(*height).hash.0);
    for &(height, sequence) in &blocks {
        let key = hash_key(&chain.block(height).hash);
        sink(&key, &sequence.to_le_bytes(), Some(height))?;
    }
    blocks.sort_unstable_by_key(|(_, sequence)| sequence_key(*sequence));
    for (height, sequence) in blocks {
        sink(&sequence_key(sequence), &chain.block(height).hash.0, Some(height))?;
    }
    Ok(())
}

/// Returns the key of the row with the sequence number of a block.
pub fn hash_key(hash: &BlockHash) -> Vec<u8> {
    [&b"h"[..], &hash.0].concat()
}

/// Returns the key of the row with the block that has a sequence number.
pub fn sequence_key(sequence: u32) -> Vec<u8> {
    let mut key = vec![b's'];
    write_var_int(&mut key, sequence.into());
    key
}

/// Rows of inputs, by the outputs that they spend. The key is that of the index.
pub struct Spends(pub SipKey);

impl RowForm<16> for Spends {
    const KIND: IndexKind = IndexKind::TxoSpender;
    const FIRST: u8 = b's';

    fn compact_rows(&self, block: &ObservedBlock<'_>) -> impl Iterator<Item = [u8; 16]> {
        let spends = placed_txs(block).skip(1);
        let spends = spends.flat_map(|(tx, _, place)| tx.inputs().map(move |input| (input.prevout(), place)));
        let key = self.0;
        spends.map(move |(prevout, place)| compact(spender_hash(key, &prevout), place))
    }

    fn write(&self, chain: &Chain, place: TxPlace, key: &mut Vec<u8>, _: &mut Vec<u8>) {
        write_place(chain, place, key);
    }
}
