//! The rules of a transaction's own bytes: `CheckTransaction` in Core.

use crate::{
    params::ChainParams,
    table::TX_RULES,
    violation::{Violation, ViolationDetails, first_violation},
};
use wire::{Height, OutPoint, Sats, TxIndex, TxView, Weight};

/// Shortest script of a coinbase's input, in bytes.
pub const MIN_COINBASE_SCRIPT_SIZE: usize = 2;
/// Longest script of a coinbase's input, in bytes.
pub const MAX_COINBASE_SCRIPT_SIZE: usize = 100;

/// A transaction and its place.
#[derive(Clone, Copy, Debug)]
pub struct TxContext<'a> {
    /// The network.
    pub params: &'a ChainParams,
    /// Height of its block.
    pub height: Height,
    /// The transaction.
    pub tx: &'a TxView<'a>,
    /// Its place in the block.
    pub tx_index: TxIndex,
}

/// Checks what a transaction must hold wherever it stands.
///
/// # Errors
/// The first broken rule of [`TX_RULES`].
pub fn check_tx(context: &TxContext<'_>) -> Result<(), Violation> {
    first_violation(TX_RULES, context.params, context.height, |check| {
        check(context).map_err(|details| details.at_tx(context.tx_index))
    })
}

pub(crate) fn has_inputs(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    if c.tx.input_count() > 0 { Ok(()) } else { Err(ViolationDetails::new("no inputs")) }
}

pub(crate) fn has_outputs(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    if c.tx.output_count() > 0 { Ok(()) } else { Err(ViolationDetails::new("no outputs")) }
}

pub(crate) fn size(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let size = c.tx.stripped_size() as u64;
    if size * Weight::WITNESS_SCALE_FACTOR <= Weight::MAX_BLOCK.0 {
        return Ok(());
    }
    Err(ViolationDetails::new(format!("{size} bytes without witness, expected at most 1000000")))
}

/// What is wrong with the first output that is wrong. Core looks at the three things output by output, so the
/// rules for them share this: one of them speaks up at most.
enum BadOutput {
    Negative { vout: usize, value: Sats },
    TooLarge { vout: usize, value: Sats },
    TotalTooLarge { vout: usize, total: Sats },
}

fn bad_output(tx: &TxView<'_>) -> Option<BadOutput> {
    let mut total = 0i64;
    for (vout, output) in tx.outputs().enumerate() {
        let value = output.value();
        if value.0 < 0 {
            return Some(BadOutput::Negative { vout, value });
        }
        if value > Sats::MAX_MONEY {
            return Some(BadOutput::TooLarge { vout, value });
        }
        total += value.0;
        if total > Sats::MAX_MONEY.0 {
            return Some(BadOutput::TotalTooLarge { vout, total: Sats(total) });
        }
    }
    None
}

pub(crate) fn output_not_negative(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    match bad_output(c.tx) {
        Some(BadOutput::Negative { vout, value }) => {
            Err(ViolationDetails::new(format!("output {vout} is {value} sat, expected at least 0")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn output_not_too_large(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    match bad_output(c.tx) {
        Some(BadOutput::TooLarge { vout, value }) => Err(ViolationDetails::new(format!(
            "output {vout} is {value} sat, expected at most {}",
            Sats::MAX_MONEY
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn output_total(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    match bad_output(c.tx) {
        Some(BadOutput::TotalTooLarge { vout, total }) => Err(ViolationDetails::new(format!(
            "outputs up to {vout} are {total} sat, expected at most {}",
            Sats::MAX_MONEY
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn no_duplicate_inputs(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let mut prevouts: Vec<(OutPoint, u32)> = c.tx.inputs().map(|input| input.prevout()).zip(0..).collect();
    prevouts.sort_unstable();
    let repeats = prevouts.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1]);
    match repeats.min_by_key(|repeat| repeat.1) {
        None => Ok(()),
        Some((prevout, input)) => {
            Err(ViolationDetails::new(format!("spends {prevout}, as an earlier input does")).at_input(input))
        }
    }
}

pub(crate) fn coinbase_script_size(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    let Some(input) = c.tx.inputs().next().filter(|_| c.tx.is_coinbase()) else { return Ok(()) };
    let size = input.script_sig().len();
    if (MIN_COINBASE_SCRIPT_SIZE..=MAX_COINBASE_SCRIPT_SIZE).contains(&size) {
        return Ok(());
    }
    Err(ViolationDetails::new(format!("coinbase script has {size} bytes, expected 2 to 100")))
}

pub(crate) fn no_null_prevout(c: &TxContext<'_>) -> Result<(), ViolationDetails> {
    if c.tx.is_coinbase() {
        return Ok(());
    }
    match c.tx.inputs().zip(0..).find(|(input, _)| input.prevout().is_null()) {
        None => Ok(()),
        Some((_, input)) => {
            Err(ViolationDetails::new("points nowhere, as only a coinbase may").at_input(input))
        }
    }
}

/// Whether all of [`TX_RULES`] hold, but for the size, which the block's own bounds. `keys` is scratch space.
#[inline]
pub(crate) fn passes_all(tx: &TxView<'_>, is_first: bool, keys: &mut Vec<u64>) -> bool {
    let outputs_hold = tx.output_count() > 0 && bad_output(tx).is_none();
    if is_first {
        let Some(input) = tx.inputs().next().filter(|_| tx.is_coinbase()) else { return false };
        let size = input.script_sig().len();
        return outputs_hold && (MIN_COINBASE_SCRIPT_SIZE..=MAX_COINBASE_SCRIPT_SIZE).contains(&size);
    }
    outputs_hold && tx.input_count() > 0 && inputs_are_distinct_and_not_null(tx, keys)
}

/// One input cannot repeat, two are compared, more are compared by sorted 64-bit keys. Equal keys say
/// "perhaps", and are left to the rule; whoever makes many of them gains no more than that sort.
#[inline]
fn inputs_are_distinct_and_not_null(tx: &TxView<'_>, keys: &mut Vec<u64>) -> bool {
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
        keys.push(key(&prevout));
    }
    keys.sort_unstable();
    keys.windows(2).all(|pair| pair[0] != pair[1])
}

/// Outputs of one transaction, often spent together, get distinct keys: the multiplier is odd.
#[inline]
fn key(prevout: &OutPoint) -> u64 {
    let txid = prevout.txid.0.first_chunk().copied().map_or(0, u64::from_le_bytes);
    txid.wrapping_add(u64::from(prevout.vout).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
