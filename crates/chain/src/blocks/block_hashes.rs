//! Computes all hashes of one block in one batch, so that all SIMD lanes are full.

use digest::sha256::{Message, sha256d_many};
use wire::{BlockHash, BlockView, Txid, Wtxid};

/// The hashes of the block last given to [`BlockHashes::of_block`], in vectors that are reused.
#[derive(Debug, Default)]
pub struct BlockHashes {
    digests: Vec<[u8; 32]>,
    /// Hash of the header.
    pub block: BlockHash,
    /// The expected checksum of the block's undo data; meaningless if no undo data was given.
    pub undo_checksum: [u8; 32],
    pub txids: Vec<Txid>,
    /// The wtxid of each transaction if any has a witness; otherwise empty.
    pub wtxids: Vec<Wtxid>,
}

impl BlockHashes {
    /// Hashes header, transactions, and the undo data prefixed with the previous block's hash (Core
    /// `BlockManager::WriteBlockUndo`).
    pub fn of_block(&mut self, block: &BlockView<'_>, undo_data: &[u8]) {
        self.hash(block, undo_data, block.txs().any(|tx| tx.has_witness()));
    }

    /// Like [`BlockHashes::of_block`], without the wtxids: a third to a half of the work.
    pub fn without_wtxids(&mut self, block: &BlockView<'_>, undo_data: &[u8]) {
        self.hash(block, undo_data, false);
    }

    fn hash(&mut self, block: &BlockView<'_>, undo_data: &[u8], any_witness: bool) {
        let header = block.header().to_bytes();
        let mut messages = Vec::with_capacity(2 + 2 * block.tx_count());
        messages.push(Message([&header, &[], &[]]));
        messages.push(Message([&block.header().prev.0, undo_data, &[]]));
        messages.extend(block.txs().map(|tx| tx.txid_message()));
        if any_witness {
            messages.extend(block.txs().filter(|tx| tx.has_witness()).map(|tx| tx.wtxid_message()));
        }
        self.digests.clear();
        sha256d_many(&messages, &mut self.digests);

        let mut digests = self.digests.drain(..);
        self.block = BlockHash(digests.next().unwrap_or_default());
        self.undo_checksum = digests.next().unwrap_or_default();
        self.txids.clear();
        self.txids.extend(digests.by_ref().take(block.tx_count()).map(Txid));
        self.wtxids.clear();
        if any_witness {
            let witnessed = block.txs().zip(&self.txids).map(|(tx, txid)| match tx.has_witness() {
                true => Wtxid(digests.next().unwrap_or_default()),
                false => Wtxid(txid.0),
            });
            self.wtxids.extend(witnessed);
        }
    }
}
