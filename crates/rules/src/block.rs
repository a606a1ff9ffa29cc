//! The rules for a block's own bytes in the context of its header: `CheckBlock` and `ContextualCheckBlock` in
//! Core. [`crate::header`] checks the proof of work.

use crate::{
    merkle::{MerkleRoot, merkle_root},
    params::ChainParams,
    sigops::{self, MAX_BLOCK_SIGOPS_COST, SIGOP_COST},
    table::{BODY_RULES, STRUCTURE_RULES},
    tx::{self, TxContext, check_tx},
    violation::{Violation, ViolationDetails, first_violation, require},
};
use digest::sha256::sha256d;
use hex_conservative::DisplayHex as _;
use wire::{BlockTime, BlockView, Height, TxIndex, TxView, Txid, Weight, Wtxid, script::COMMITMENT_HEADER};

/// Lock times below this are heights, others are times (Core `LOCKTIME_THRESHOLD`).
pub const LOCKTIME_THRESHOLD: u32 = 500_000_000;
/// The sequence number of an input that does not require the lock time (Core `SEQUENCE_FINAL`).
pub const SEQUENCE_FINAL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub struct BlockContext<'a> {
    pub params: &'a ChainParams,
    pub height: Height,
    pub block: &'a BlockView<'a>,
    pub txids: &'a [Txid],
    /// The wtxid of each transaction, which equals its txid if it has no witness; the coinbase's is ignored.
    /// Empty if no transaction other than the coinbase has a witness.
    pub wtxids: &'a [Wtxid],
    /// Median time past of the previous block; ignored for the genesis block.
    pub median_time_past_prev: BlockTime,
}

/// Checks a block without its spent coins. Returns the number of legacy signature operations of all its
/// transactions.
///
/// # Errors
/// The first broken rule, in the order of Core: [`STRUCTURE_RULES`], [`crate::table::TX_RULES`] for each
/// transaction, [`BODY_RULES`].
///
/// # Panics
/// If the number of txids is not the number of transactions, or the number of wtxids is neither that nor 0.
pub fn check_block(context: &BlockContext<'_>) -> Result<u32, Violation> {
    if let Some(legacy_sigops) = passes_all(context) {
        return Ok(legacy_sigops);
    }
    check_block_with_table(context)
}

/// [`check_block`] with the table alone: slower, and its specification.
///
/// # Panics
/// Panics like [`check_block`].
pub fn check_block_with_table(context: &BlockContext<'_>) -> Result<u32, Violation> {
    let &BlockContext { params, height, block, txids, wtxids, .. } = context;
    assert_eq!(txids.len(), block.tx_count(), "one txid for each transaction");
    assert!(wtxids.is_empty() || wtxids.len() == txids.len(), "one wtxid for each transaction, or none");
    first_violation(STRUCTURE_RULES, params, height, |check| check(context))?;
    for (tx, index) in block.txs().zip(0..) {
        check_tx(&TxContext { params, height, tx: &tx, tx_index: TxIndex(index) })?;
    }
    first_violation(BODY_RULES, params, height, |check| check(context))?;
    Ok(legacy_sigops(block))
}

/// The fused pass. Returns what [`check_block`] does, or `None` if any rule is broken.
fn passes_all(c: &BlockContext<'_>) -> Option<u32> {
    let block = c.block;
    assert_eq!(c.txids.len(), block.tx_count(), "one txid for each transaction");
    assert!(
        c.wtxids.is_empty() || c.wtxids.len() == c.txids.len(),
        "one wtxid for each transaction, or none"
    );
    let cutoff = lock_time_cutoff(c);
    let (mut stripped, mut legacy, mut any_witness) = (block.bytes().len(), 0, false);
    let mut keys = Vec::new();
    for (index, tx) in block.txs().enumerate() {
        if !tx::passes_all(&tx, index == 0, &mut keys) || !is_final(&tx, c.height, cutoff) {
            return None;
        }
        stripped -= tx.total_size() - tx.stripped_size();
        legacy += sigops::count_legacy_of_tx(&tx);
        any_witness |= tx.has_witness();
    }
    let stripped = stripped as u64;
    let weight = stripped * (Weight::WITNESS_SCALE_FACTOR - 1) + block.bytes().len() as u64;
    // Every transaction weighs more than one unit, so the limit on their number is implied.
    let sizes_pass =
        stripped * Weight::WITNESS_SCALE_FACTOR <= Weight::MAX_BLOCK.0 && weight <= Weight::MAX_BLOCK.0;
    let height_passes = !bip34_active(c.params, c.height) || coinbase_height(c).is_ok();
    let commitment = commitment(c);
    let witness_passes = match commitment {
        Some(_) => witness_reserved_value(c).is_ok() && witness_commitment(c).is_ok(),
        None => !any_witness,
    };
    let passes_all = block.tx_count() > 0
        && sizes_pass
        && u64::from(legacy) * SIGOP_COST <= MAX_BLOCK_SIGOPS_COST
        && height_passes
        && witness_passes
        && tx_merkle_root(c) == MerkleRoot { root: block.header().merkle_root, mutated: false };
    passes_all.then_some(legacy)
}

fn tx_merkle_root(c: &BlockContext<'_>) -> MerkleRoot {
    let mut leaves = Vec::with_capacity(c.txids.len() + 1);
    leaves.extend(c.txids.iter().map(|txid| txid.0));
    merkle_root(leaves)
}

pub(crate) fn tx_merkle_root_matches(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let (root, committed) = (tx_merkle_root(c).root, c.block.header().merkle_root);
    require(root == committed, || {
        format!("merkle root is {}, the header has {}", Txid(root), Txid(committed))
    })
}

pub(crate) fn no_duplicate_merkle_nodes(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    require(!tx_merkle_root(c).mutated, || "transactions are repeated in a way that keeps the merkle root")
}

pub(crate) fn length(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let (count, size) = (c.block.tx_count() as u64, c.block.stripped_size() as u64);
    require(count.max(size) * Weight::WITNESS_SCALE_FACTOR <= Weight::MAX_BLOCK.0 && count > 0, || {
        format!("{count} transactions and {size} bytes without witnesses, expected 1 to 1000000 of each")
    })
}

const fn at_coinbase(details: ViolationDetails) -> ViolationDetails {
    details.at_tx(TxIndex(0))
}

pub(crate) fn first_is_coinbase(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let is_coinbase = c.block.tx(0).is_some_and(|tx| tx.is_coinbase());
    require(is_coinbase, || "the first transaction is not a coinbase").map_err(at_coinbase)
}

pub(crate) fn others_are_not_coinbases(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let mut others = c.block.txs().zip(0..).skip(1);
    let Some((_, index)) = others.find(|(tx, _)| tx.is_coinbase()) else { return Ok(()) };
    Err(ViolationDetails::new("a second coinbase").at_tx(TxIndex(index)))
}

fn legacy_sigops(block: &BlockView<'_>) -> u32 {
    block.txs().map(|tx| sigops::count_legacy_of_tx(&tx)).sum()
}

pub(crate) fn legacy_sigops_within_limit(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let cost = u64::from(legacy_sigops(c.block)) * SIGOP_COST;
    require(cost <= MAX_BLOCK_SIGOPS_COST, || {
        format!("legacy signature operations cost {cost}, expected at most 80000")
    })
}

/// Returns the time below which lock times must be, if they are times (BIP-0113).
fn lock_time_cutoff(c: &BlockContext<'_>) -> BlockTime {
    if c.height >= c.params.csv_height { c.median_time_past_prev } else { c.block.header().time }
}

/// Returns whether a transaction's lock time allows it in the block (Core `IsFinalTx`).
#[inline]
fn is_final(tx: &TxView<'_>, height: Height, cutoff: BlockTime) -> bool {
    let lock_time = tx.lock_time();
    let bound = if lock_time < LOCKTIME_THRESHOLD { height.0 } else { cutoff.0 };
    lock_time == 0 || lock_time < bound || tx.inputs().all(|input| input.sequence() == SEQUENCE_FINAL)
}

pub(crate) fn lock_times(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let cutoff = lock_time_cutoff(c);
    let mut txs = c.block.txs().zip(0..);
    let Some((tx, index)) = txs.find(|(tx, _)| !is_final(tx, c.height, cutoff)) else { return Ok(()) };
    let (lock_time, height) = (tx.lock_time(), c.height);
    let detail = format!("locked until {lock_time}, which is not below height {height} or time {cutoff}");
    Err(ViolationDetails::new(detail).at_tx(TxIndex(index)))
}

pub(crate) fn bip34_active(params: &ChainParams, height: Height) -> bool {
    // Core makes no such checks of the genesis block.
    height >= params.bip34_height && height > Height(0)
}

pub(crate) fn segwit_active(params: &ChainParams, height: Height) -> bool {
    height >= params.segwit_height
}

/// Returns the shortest push of a number in a script: opcode and little-endian bytes, whose top bit is the
/// sign.
fn height_push(height: Height) -> Vec<u8> {
    match height.0 {
        0 => vec![0],
        small @ 1..=16 => vec![0x50 + small as u8],
        number => {
            // One more bit than the number needs: the sign.
            let size = (32 - number.leading_zeros()) as usize / 8 + 1;
            [&[size as u8][..], &u64::from(number).to_le_bytes()[..size]].concat()
        }
    }
}

pub(crate) fn coinbase_height(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let expected = height_push(c.height);
    let script = c.block.tx(0).and_then(|tx| tx.inputs().next()).map_or(&[][..], |input| input.script_sig());
    let pushed = script.get(..expected.len()).unwrap_or(script).as_hex();
    require(script.starts_with(&expected), || {
        format!(
            "coinbase script starts with {pushed}, expected {} for height {}",
            expected.as_hex(),
            c.height
        )
    })
    .map_err(at_coinbase)
}

/// Returns the witness commitment: that of the last coinbase output with the form of one. `None` if there is
/// no such output, or segwit is not active.
fn commitment<'a>(c: &BlockContext<'a>) -> Option<&'a [u8; 32]> {
    if !segwit_active(c.params, c.height) {
        return None;
    }
    let outputs = c.block.tx(0)?.outputs();
    outputs.filter_map(|output| output.script_pubkey().strip_prefix(&COMMITMENT_HEADER)?.first_chunk()).last()
}

/// Returns the single 32-byte item that must be the coinbase's witness if there is a commitment.
fn reserved_value<'a>(c: &BlockContext<'a>) -> Option<&'a [u8]> {
    let mut witness = c.block.tx(0)?.inputs().next()?.witness();
    let value = witness.next()?;
    (witness.next().is_none() && value.len() == 32).then_some(value)
}

pub(crate) fn witness_reserved_value(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let has_value = commitment(c).is_none() || reserved_value(c).is_some();
    require(has_value, || "the coinbase's witness is not a single item of 32 bytes").map_err(at_coinbase)
}

pub(crate) fn witness_commitment(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let (Some(commitment), Some(reserved)) = (commitment(c), reserved_value(c)) else { return Ok(()) };
    let mut leaves = Vec::with_capacity(c.txids.len() + 1);
    // The coinbase cannot commit to itself.
    leaves.push([0; 32]);
    if c.wtxids.is_empty() {
        leaves.extend(c.txids.iter().skip(1).map(|txid| txid.0));
    } else {
        leaves.extend(c.wtxids.iter().skip(1).map(|wtxid| wtxid.0));
    }
    let mut committed = [0; 64];
    committed[..32].copy_from_slice(&merkle_root(leaves).root);
    committed[32..].copy_from_slice(reserved);
    let computed = sha256d(&committed);
    require(computed == *commitment, || {
        format!("witnesses hash to {}, the coinbase commits to {}", Wtxid(computed), Wtxid(*commitment))
    })
}

pub(crate) fn no_unexpected_witness(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    if commitment(c).is_some() {
        return Ok(());
    }
    let Some((_, index)) = c.block.txs().zip(0..).find(|(tx, _)| tx.has_witness()) else { return Ok(()) };
    Err(ViolationDetails::new("has a witness, but the block has no commitment").at_tx(TxIndex(index)))
}

pub(crate) fn weight(c: &BlockContext<'_>) -> Result<(), ViolationDetails> {
    let weight = c.block.weight();
    require(weight <= Weight::MAX_BLOCK, || {
        format!("weight is {weight}, expected at most {}", Weight::MAX_BLOCK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_pushed_as_script_numbers() {
        for (height, expected) in [
            (0, "00"),
            (1, "51"),
            (16, "60"),
            (17, "0111"),
            (127, "017f"),
            (128, "028000"),
            (255, "02ff00"),
            (256, "020001"),
            (32767, "02ff7f"),
            (32768, "03008000"),
            (227_931, "035b7a03"),
            (8_388_607, "03ffff7f"),
            (8_388_608, "0400008000"),
            (2_147_483_647, "04ffffff7f"),
            (2_147_483_648, "050000008000"),
        ] {
            assert_eq!(height_push(Height(height)).to_lower_hex_string(), expected, "{height}");
        }
    }
}
