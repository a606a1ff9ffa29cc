//! The fuzz target for `rules`: the fused passes and the table agree on any block with any undo data.

use super::samples::{MEDIAN_TIMES, Parts};
use crate::{block::ids, prelude::*};
use digest::sha256::sha256d;
use rules::{
    BlockContext, BlockSpendContext, ChainParams, SpentCoin, block::check_block_with_table, check_block,
    check_block_spends, merkle::merkle_root, spend::check_block_spends_with_table,
};
use wire::BlockView;

/// Merkle root and witness commitment are corrected first; otherwise hardly any mutation would get past them.
pub fn block_and_undo(bytes: &[u8]) -> bool {
    let Some(Parts { head, first: block, second: undo }) = Parts::split(bytes) else { return false };
    let height = Height(1 + u32::from_le_bytes(head) % (MEDIAN_TIMES.len() as u32 - 1));
    let Some(bytes) = commit(block) else { return false };
    let mut arena = BlockArena::default();
    let block = arena.parse(&bytes).expect("commitments have fixed lengths");
    let (txids, wtxids) = ids(&block);
    let params = ChainParams::of(Network::Regtest);
    let context = BlockContext {
        params,
        height,
        block: &block,
        txids: &txids,
        wtxids: &wtxids,
        median_time_past_prev: MEDIAN_TIMES[height.0 as usize - 1],
    };
    let checked = check_block(&context);
    let by_table = check_block_with_table(&context);
    assert_eq!(checked.as_ref().ok(), by_table.as_ref().ok(), "table: {by_table:?}");
    let Ok(legacy_sigops) = checked else { return false };

    let mut undo_arena = UndoArena::default();
    let Ok(undo) = UndoView::parse(undo, &mut undo_arena) else { return false };
    let coins: Result<Vec<_>, _> = undo.coins().map(|coin| SpentCoin::from_coin(&coin)).collect();
    let Ok(coins) = coins else { return false };
    let context = BlockSpendContext {
        params,
        height,
        hash: &block.header().hash(),
        block: &block,
        coins: &coins,
        mtp_by_height: &MEDIAN_TIMES,
        legacy_sigops,
    };
    let (totals, by_table) = (check_block_spends(&context), check_block_spends_with_table(&context));
    assert_eq!(totals.as_ref().ok(), by_table.as_ref().ok(), "table: {by_table:?}");
    totals.is_ok()
}

/// Returns the block with correct commitments.
fn commit(block: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = block.to_vec();
    let mut arena = BlockArena::default();
    if let Some((at, commitment)) = witness_commitment(&arena.parse(block).ok()?) {
        bytes.get_mut(at..at + 32)?.copy_from_slice(&commitment);
    }
    let root = {
        let (txids, _) = ids(&arena.parse(&bytes).ok()?);
        merkle_root(txids.iter().map(|txid| txid.0).collect()).root
    };
    bytes.get_mut(36..68)?.copy_from_slice(&root);
    Some(bytes)
}

/// Returns the position of the witness commitment in the block, and its correct value (BIP-0141).
fn witness_commitment(block: &BlockView<'_>) -> Option<(usize, [u8; 32])> {
    let coinbase = block.tx(0)?;
    let reserved = coinbase.inputs().next()?.witness().next()?;
    let scripts = coinbase.outputs().map(|output| output.script_pubkey());
    let script =
        scripts.filter(|script| script.len() >= 38 && script.starts_with(&COMMITMENT_PREFIX)).last()?;
    let at = script.as_ptr() as usize - block.bytes().as_ptr() as usize + COMMITMENT_PREFIX.len();
    let (_, wtxids) = ids(block);
    let leaves = std::iter::once([0; 32]).chain(wtxids.iter().skip(1).map(|wtxid| wtxid.0)).collect();
    Some((at, sha256d(&[&merkle_root(leaves).root, reserved].concat())))
}
