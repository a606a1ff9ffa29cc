//! Siblings: blocks with the same parent as another block, and with nearly the same transactions.
//!
//! A node stores the blocks that it receives and connects those with the most work, so its files also hold
//! blocks that were never connected, some of them invalid.

use crate::{
    block::{header_of, merkle_root},
    prelude::*,
};
use bitcoin::{Block, consensus};
use disk::undo::write_undo;

/// Makes the `number`-th sibling of a block, with a different coinbase. After `change` has changed the block,
/// recomputes merkle root, witness commitment and proof of work. The sibling is stale and has no undo data,
/// like a block that was never connected.
///
/// # Panics
/// If `of` is not a well-formed block.
pub fn sibling(of: &GeneratedBlock, number: u64, change: impl FnOnce(&mut Block)) -> GeneratedBlock {
    let mut block: Block = consensus::deserialize(&of.bytes).expect("the block is well-formed");
    let coinbase = &mut block.txdata[0];
    let mut script = coinbase.input[0].script_sig.to_bytes();
    script.push(8);
    script.extend(number.to_le_bytes());
    coinbase.input[0].script_sig = script.into();
    change(&mut block);
    let wtxids: Vec<[u8; 32]> = block.txdata.iter().skip(1).map(|tx| *tx.compute_wtxid().as_ref()).collect();
    let coinbase = &mut block.txdata[0];
    let outputs = coinbase.output.len();
    coinbase.output.retain(|output| !output.script_pubkey.as_bytes().starts_with(&COMMITMENT_PREFIX));
    if coinbase.output.len() < outputs {
        commit_to_witnesses(coinbase, wtxids.into_iter());
    }
    let txs = block.txdata.len() as u32;
    let mut bytes = consensus::serialize(&block);
    let mut header = header_of(&bytes);
    header.merkle_root = merkle_root(block.txdata.iter().map(|tx| *tx.compute_txid().as_ref()).collect());
    let hash = mine(&mut header, has_work);
    bytes[..80].copy_from_slice(&header.to_bytes());
    GeneratedBlock { bytes, hash, header, height: of.height, txs, undo: None, stale: true }
}

/// Makes a sibling whose coinbase pays 50 bitcoins too much.
pub fn greedy_sibling(of: &GeneratedBlock, number: u64) -> GeneratedBlock {
    sibling(of, number, |block| {
        let output = &mut block.txdata[0].output[0];
        output.value += bitcoin::Amount::from_int_btc(50);
    })
}

/// Makes a sibling in which two adjacent transactions with the same number of inputs are swapped, with its
/// undo data. `None` if `of` has no such transactions, or they spend from each other, or they spend equal
/// coins.
pub fn swapped_sibling(of: &GeneratedBlock, number: u64) -> Option<GeneratedBlock> {
    let block: Block = consensus::deserialize(&of.bytes).ok()?;
    let mut arena = UndoArena::default();
    let undo = UndoView::parse(of.undo.as_ref()?, &mut arena).ok()?;
    let mut coins: Vec<Vec<_>> = undo.txs().map(Iterator::collect).collect();
    let made: HashMap<_, _> = block.txdata.iter().map(bitcoin::Transaction::compute_txid).zip(0..).collect();
    let at = (1..block.txdata.len().checked_sub(1)?).find(|&at| {
        let (tx, next) = (&block.txdata[at], &block.txdata[at + 1]);
        let spends = |input: &bitcoin::TxIn| made.get(&input.previous_output.txid) == Some(&at);
        tx.input.len() == next.input.len() && !next.input.iter().any(spends) && coins[at - 1] != coins[at]
    })?;
    coins.swap(at - 1, at);
    let undo = write_undo(coins.into_iter().map(Vec::into_iter));
    let swapped = sibling(of, number, |block| block.txdata.swap(at, at + 1));
    Some(GeneratedBlock { undo: Some(undo), ..swapped })
}

/// Moves a branch of blocks to another parent.
pub fn rebase<'b>(blocks: impl Iterator<Item = &'b mut GeneratedBlock>, mut onto: BlockHash) {
    for block in blocks {
        block.header.prev = onto;
        block.hash = mine(&mut block.header, has_work);
        block.bytes[..80].copy_from_slice(&block.header.to_bytes());
        onto = block.hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_differ_in_hash_and_have_the_same_parent() {
        let chain = Chain::generate(&ChainSpec { blocks: Some(140), ..ChainSpec::new(3, 300_000) });
        let can_swap = |block: &&GeneratedBlock| swapped_sibling(block, 4).is_some();
        let of = chain.main().filter(can_swap).max_by_key(|block| block.txs).unwrap();
        let siblings = [sibling(of, 1, |_| {}), sibling(of, 2, |_| {}), greedy_sibling(of, 1)];
        for (number, sibling) in siblings.iter().chain(&swapped_sibling(of, 4)).enumerate() {
            assert_eq!((sibling.header.prev, sibling.txs), (of.header.prev, of.txs), "{number}");
            assert_eq!(header_of(&sibling.bytes).hash(), sibling.hash);
            assert!(sibling.hash != of.hash && has_work(&sibling.hash));
            let block: Block = consensus::deserialize(&sibling.bytes).unwrap();
            assert!(block.check_merkle_root() && block.check_witness_commitment(), "{number}");
        }
        assert!(siblings[0].hash != siblings[1].hash && siblings[0].hash != siblings[2].hash);
        assert_eq!(swapped_sibling(of, 4).unwrap().undo.unwrap().len(), of.undo.as_ref().unwrap().len());
    }
}
