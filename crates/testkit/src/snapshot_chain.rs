//! The chain of regtest for which Bitcoin Core's source has the hash of a snapshot, at height 200, and
//! branches of it: coinbases only, the same blocks each time (Core `CreateBlockChain`).

use crate::block::{BITS, GeneratedBlock, has_work, header_of, merkle_root, mine};
use bitcoin::{
    Amount, Block, BlockHash as CoreHash, CompactTarget, OutPoint, ScriptBuf, Sequence, Transaction, TxIn,
    TxMerkleNode, TxOut, Witness,
    absolute::LockTime,
    block::{Header as CoreHeader, Version as BlockVersion},
    hashes::Hash as _,
    opcodes::{OP_0, OP_TRUE},
    script::Builder,
    transaction::Version,
};
use wire::BlockHash;

/// Height of the snapshot's block.
pub const SNAPSHOT_HEIGHT: u32 = 200;
/// Blocks between two halvings of the subsidy.
const HALVING_INTERVAL: u32 = 150;

/// Returns the blocks from genesis up to `height`, of which that at [`SNAPSHOT_HEIGHT`] is the snapshot's.
#[must_use]
pub fn blocks(height: u32) -> Vec<GeneratedBlock> {
    let mut blocks = vec![GeneratedBlock::genesis()];
    for _ in 0..height {
        blocks.extend(blocks.last().map(|parent| child(parent, 0)));
    }
    blocks
}

/// Returns `count` blocks above `parent`; those with another `number` are other blocks.
#[must_use]
pub fn branch(parent: &GeneratedBlock, count: u32, number: u8) -> Vec<GeneratedBlock> {
    let mut blocks: Vec<GeneratedBlock> = Vec::new();
    for _ in 0..count {
        blocks.push(child(blocks.last().unwrap_or(parent), number));
    }
    blocks
}

fn child(parent: &GeneratedBlock, number: u8) -> GeneratedBlock {
    let height = parent.height + 1;
    let script_sig = Builder::new().push_int(height.into()).push_opcode(OP_0);
    let script_sig = if number > 0 { script_sig.push_slice([number]) } else { script_sig };
    let anyone = Builder::new().push_opcode(OP_TRUE).into_script();
    let coinbase = Transaction {
        version: Version::TWO,
        lock_time: LockTime::from_consensus(height - 1),
        input: vec![TxIn {
            previous_output: OutPoint::null(),
            script_sig: script_sig.into_script(),
            sequence: Sequence::ENABLE_LOCKTIME_NO_RBF,
            witness: Witness::new(),
        }],
        output: vec![TxOut {
            value: Amount::from_sat(5_000_000_000 >> (height / HALVING_INTERVAL)),
            script_pubkey: ScriptBuf::new_p2wsh(&anyone.wscript_hash()),
        }],
    };
    let root = merkle_root(vec![*coinbase.compute_txid().as_ref()]);
    let block = Block {
        header: CoreHeader {
            version: BlockVersion::from_consensus(4),
            prev_blockhash: CoreHash::from_byte_array(parent.hash.0),
            merkle_root: TxMerkleNode::from_byte_array(root),
            time: parent.header.time.0 + 1,
            bits: CompactTarget::from_consensus(BITS),
            nonce: 0,
        },
        txdata: vec![coinbase],
    };
    let mut bytes = bitcoin::consensus::serialize(&block);
    let mut header = header_of(&bytes);
    // The first nonce that Core accepts, which `has_work` may not.
    let hash = mine(&mut header, |hash: &BlockHash| has_work(hash) || hash.0[31] == 0x7f);
    bytes[..80].copy_from_slice(&header.to_bytes());
    GeneratedBlock { bytes, hash, header, height, txs: 1, undo: Some(vec![0]), stale: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::ChainParams;
    use wire::{Height, Network};

    #[test]
    fn the_block_at_height_200_is_that_of_cores_snapshot() {
        let blocks = blocks(SNAPSHOT_HEIGHT);
        let pinned = ChainParams::of(Network::Regtest).pinned_utxo_set(&blocks[200].hash).unwrap();
        assert_eq!(pinned.height, Height(SNAPSHOT_HEIGHT));
    }
}
