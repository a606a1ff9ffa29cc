//! The chain of regtest for which Bitcoin Core's source has the hash of a snapshot, at height 200, and
//! branches of it: coinbases only, the same blocks each time (Core `CreateBlockChain`).

use crate::{
    block::{BITS, serialise},
    prelude::*,
};
use bitcoin::opcodes::OP_0;

/// Height of the snapshot's block.
pub const SNAPSHOT_HEIGHT: u32 = 200;

/// Returns the blocks from genesis up to `height`, of which that at [`SNAPSHOT_HEIGHT`] is the snapshot's.
pub fn blocks(height: u32) -> Vec<GeneratedBlock> {
    let genesis = GeneratedBlock::genesis();
    let above = branch(&genesis, height, 0);
    [vec![genesis], above].concat()
}

/// Returns `count` blocks above `parent`; those with another `number` are other blocks.
pub fn branch(parent: &GeneratedBlock, count: u32, number: u8) -> Vec<GeneratedBlock> {
    let next = |parent: &GeneratedBlock| Some(child(parent, number));
    std::iter::successors(next(parent), next).take(count as usize).collect()
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
            script_sig: script_sig.into_script(),
            sequence: Sequence::ENABLE_LOCKTIME_NO_RBF,
            ..TxIn::default()
        }],
        output: vec![TxOut {
            value: Amount::from_sat(subsidy(height)),
            script_pubkey: ScriptBuf::new_p2wsh(&anyone.wscript_hash()),
        }],
    };
    let coinbase = MadeTx::new(&coinbase, Vec::new());
    let mut header = Header {
        version: 4,
        prev: parent.hash,
        merkle_root: coinbase.txid,
        time: BlockTime(parent.header.time.0 + 1),
        bits: BITS,
        nonce: 0,
    };
    // The first nonce that Core accepts, which `has_work` may not.
    let hash = mine(&mut header, |hash: &BlockHash| has_work(hash) || hash.0[31] == 0x7f);
    let bytes = serialise(&header, [coinbase].iter());
    GeneratedBlock { bytes, hash, header, height, txs: 1, undo: Some(vec![0]), stale: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::ChainParams;

    #[test]
    fn the_block_at_height_200_is_that_of_cores_snapshot() {
        let blocks = blocks(SNAPSHOT_HEIGHT);
        let pinned = ChainParams::of(Network::Regtest).pinned_utxo_set(&blocks[200].hash).unwrap();
        assert_eq!(pinned.height, Height(SNAPSHOT_HEIGHT));
    }
}
