//! The rules for a transaction's own bytes: `CheckTransaction` in Core.

use crate::{
    params::ChainParams,
    table::TX_RULES,
    violation::{Violation, ViolationDetails, first_violation, require},
};
use wire::{Height, OutPoint, Sats, TxIndex, TxView, Weight};

/// Minimum length of the script of a coinbase's input, in bytes.
pub const MIN_COINBASE_SCRIPT_SIZE: usize = 2;
/// Maximum length of the script of a coinbase's input, in bytes.
pub const MAX_COINBASE_SCRIPT_SIZE: usize = 100;

/// A transaction and its location in the chain.
#[derive(Clone, Copy, Debug)]
pub struct TxContext<'a> {
    pub params: &'a ChainParams,
    pub height: Height,
    pub tx: &'a TxView<'a>,
    pub tx_index: TxIndex,
}

/// Checks the rules that depend only on the transaction itself.
///
/// # Errors
/// The first broken rule of [`TX_RULES`].
pub fn check_tx(context: &TxContext<'_>) -> Result<(), Violation> {
    first_violation(TX_RULES, context.params, context.height, |check| {
        check(context).map_err(|details| details.at_tx(context.tx_index))
    })
}

pub(crate) fn has_inputs(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    require(c.tx.input_count() > 0, || "no inputs")
}

pub(crate) fn has_outputs(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    require(c.tx.output_count() > 0, || "no outputs")
}

pub(crate) fn size(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let size = c.tx.stripped_size() as u64;
    require(size * Weight::WITNESS_SCALE_FACTOR <= Weight::MAX_BLOCK.0, || {
        format!("{size} bytes without witness, expected at most 1000000")
    })
}

/// The first invalid output: its index, its value and the total up to it. Core checks the three conditions
/// output by output, so their rules share this result, and at most one of them fails.
fn first_bad_output(tx: &TxView<'_>) -> Option<(usize, Sats, Sats)> {
    let mut total = 0i64;
    for (vout, output) in tx.outputs().enumerate() {
        let value = output.value();
        total = total.saturating_add(value.0);
        if !value.in_money_range() || total > Sats::MAX_MONEY.0 {
            return Some((vout, value, Sats(total)));
        }
    }
    None
}

pub(crate) fn output_not_negative(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let (vout, value, _) = first_bad_output(c.tx).unwrap_or_default();
    require(value.0 >= 0, || format!("output {vout} is {value} sat, expected at least 0"))
}

pub(crate) fn output_not_too_large(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let (vout, value, _) = first_bad_output(c.tx).unwrap_or_default();
    require(value <= Sats::MAX_MONEY, || {
        format!("output {vout} is {value} sat, expected at most {}", Sats::MAX_MONEY)
    })
}

pub(crate) fn output_total(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let (vout, value, total) = first_bad_output(c.tx).unwrap_or_default();
    require(!value.in_money_range() || total <= Sats::MAX_MONEY, || {
        format!("outputs up to {vout} are {total} sat, expected at most {}", Sats::MAX_MONEY)
    })
}

pub(crate) fn no_duplicate_inputs(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let mut prevouts: Vec<(OutPoint, u32)> = c.tx.inputs().map(|input| input.prevout()).zip(0..).collect();
    prevouts.sort_unstable();
    let repeated = prevouts.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1]);
    let Some((prevout, input)) = repeated.min_by_key(|repeat| repeat.1) else { return Ok(()) };
    let detail = format!("spends {prevout}, which an earlier input spends too");
    Err(ViolationDetails::new(detail).at_input(input))
}

pub(crate) fn coinbase_script_size(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let Some(input) = c.tx.inputs().next().filter(|_| c.tx.is_coinbase()) else { return Ok(()) };
    let size = input.script_sig().len();
    require((MIN_COINBASE_SCRIPT_SIZE..=MAX_COINBASE_SCRIPT_SIZE).contains(&size), || {
        format!("coinbase script has {size} bytes, expected 2 to 100")
    })
}

pub(crate) fn no_null_prevout(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    if c.tx.is_coinbase() {
        return Ok(());
    }
    let mut inputs = c.tx.inputs().zip(0..);
    let Some((_, input)) = inputs.find(|(input, _)| input.prevout().is_null()) else { return Ok(()) };
    Err(ViolationDetails::new("the outpoint is null, which only a coinbase may have").at_input(input))
}

/// Returns whether all of [`TX_RULES`] pass, except the size, which the size of the block limits. `keys` is
/// scratch space.
#[inline]
pub(crate) fn passes_all(tx: &TxView<'_>, is_first: bool, keys: &mut Vec<u64>) -> bool {
    let outputs_pass = tx.output_count() > 0 && first_bad_output(tx).is_none();
    if is_first {
        let Some(input) = tx.inputs().next().filter(|_| tx.is_coinbase()) else { return false };
        let size = input.script_sig().len();
        return outputs_pass && (MIN_COINBASE_SCRIPT_SIZE..=MAX_COINBASE_SCRIPT_SIZE).contains(&size);
    }
    outputs_pass && tx.input_count() > 0 && inputs_are_distinct_and_not_null(tx, keys)
}

/// Returns whether the inputs certainly spend distinct coins and none has a null outpoint. Two inputs are
/// compared directly, more by sorted 64-bit keys, for which `keys` is scratch space. Equal keys only mean
/// that outpoints may be equal: the pass then fails and the rule decides. An attacker who constructs equal
/// keys causes no more work than that rule's sort.
#[inline]
pub fn inputs_are_distinct_and_not_null(tx: &TxView<'_>, keys: &mut Vec<u64>) -> bool {
    let mut inputs = tx.inputs();
    if let (1 | 2, Some(first)) = (inputs.len(), inputs.next()) {
        let first = first.prevout();
        return !first.is_null()
            && inputs.next().is_none_or(|second| {
                let second = second.prevout();
                !second.is_null() && first != second
            });
    }
    keys.clear();
    for input in tx.inputs() {
        let prevout = input.prevout();
        if prevout.is_null() {
            return false;
        }
        keys.push(sort_key(&prevout));
    }
    keys.sort_unstable();
    keys.windows(2).all(|pair| pair[0] != pair[1])
}

/// Returns a key of an outpoint. Outputs of one transaction, which are often spent together, have distinct
/// keys because the multiplier is odd.
#[inline]
fn sort_key(prevout: &OutPoint) -> u64 {
    let txid = prevout.txid.0.first_chunk().copied().map_or(0, u64::from_le_bytes);
    txid.wrapping_add(u64::from(prevout.vout).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
