//! The solution of a signed network's block (BIP-0325), as a spend whose script can be run.
//!
//! The challenge is the script of a virtual output, created by a virtual transaction that commits to the
//! block without its solution; the solution spends it. This module constructs both from the block's bytes;
//! the caller's verifier runs the script. The solution is in the coinbase's witness commitment output, as a
//! push that starts with [`SIGNET_HEADER`].

use crate::{ChainParams, SIGNET_SOLUTION, Violation, ViolationDetails, merkle::merkle_root};
use digest::sha256::sha256d;
use wire::{
    BlockArena, BlockView, Height, OutPoint, OutputView, Reader, Sats, ScriptFlags, ScriptVerifier, TxView,
    Txid,
    read::{WireError, write_compact_size},
    script::{COMMITMENT_HEADER, OP_0, OP_PUSHDATA1, OP_PUSHDATA2, OP_PUSHDATA4, OP_RETURN, next_op},
};

/// The first bytes of the push that contains the solution (Core `SIGNET_HEADER`).
pub const SIGNET_HEADER: [u8; 4] = [0xec, 0xc7, 0xda, 0xa2];
/// The script rules that apply to a solution at any height (Core `BLOCK_SCRIPT_VERIFY_FLAGS`).
pub const SIGNET_FLAGS: ScriptFlags =
    ScriptFlags::P2SH.union(ScriptFlags::WITNESS).union(ScriptFlags::DERSIG).union(ScriptFlags::NULLDUMMY);

/// Minimum length of a commitment output's script, in bytes (Core `MINIMUM_WITNESS_COMMITMENT`).
const MINIMUM_WITNESS_COMMITMENT: usize = 38;

/// Runs the script of a signed network's block solution, which no assumed-valid block is spared (Core
/// `CheckSignetBlockSolution`); succeeds on other networks. `txids` are those of the block, in order.
///
/// # Errors
/// [`SIGNET_SOLUTION`] if the solution is missing or invalid.
pub fn check_signet_solution(
    params: &ChainParams,
    verifier: &dyn ScriptVerifier,
    block: &BlockView<'_>,
    height: Height,
    txids: &[Txid],
) -> Result<(), Violation> {
    let Some(challenge) = params.signet_challenge.filter(|_| height.0 > 0) else { return Ok(()) };
    let violation = |detail: String| ViolationDetails::new(detail).of(&SIGNET_SOLUTION);
    let to_sign = signet_solution(block, txids, challenge)
        .ok_or_else(|| violation("the block has no well-formed solution".to_owned()))?;
    let mut arena = BlockArena::default();
    let to_sign = arena.parse_tx(&to_sign).map_err(|error| violation(error.to_string()))?;
    verifier
        .transaction(&to_sign, &[(Sats(0), challenge.to_vec())])
        .and_then(|tx| tx.verify(0..1, SIGNET_FLAGS))
        .map_err(|fault| violation(fault.to_string()))
}

/// Constructs the virtual transaction that must be valid under [`SIGNET_FLAGS`] (Core `SignetTxs::Create`):
/// its single input spends the challenge, an output with amount 0.
///
/// `txids` are those of the block, in order. `None` if the block is rejected as [`SIGNET_SOLUTION`] without
/// running a script, because it has no transaction, no witness commitment or a malformed solution. A block
/// without a solution has an empty one, which a trivial challenge may accept. The genesis block is never
/// checked.
pub fn signet_solution(block: &BlockView<'_>, txids: &[Txid], challenge: &[u8]) -> Option<Vec<u8>> {
    let coinbase = block.tx(0)?;
    let index = coinbase.outputs().enumerate().filter(is_commitment).last()?.0;
    let commitment = coinbase.outputs().nth(index)?.script_pubkey();
    let (cleared, solution) = remove_solution(commitment);
    let (script_sig, witness) = match &solution {
        Some(bytes) => parse_solution(bytes).ok()?,
        None => (&[][..], &[0][..]),
    };
    let mut leaves = vec![sha256d(&with_output_script(&coinbase, index, &cleared))];
    leaves.extend(txids.iter().skip(1).map(|txid| txid.0));

    let header = block.header();
    let mut spent_script = vec![OP_0, 72];
    spent_script.extend(header.version.to_le_bytes());
    spent_script.extend(header.prev.0);
    spent_script.extend(merkle_root(leaves).root);
    spent_script.extend(header.time.0.to_le_bytes());
    let to_spend = virtual_tx(&OutPoint::NULL, &spent_script, challenge, None);
    let prevout = OutPoint { txid: Txid(sha256d(&to_spend)), vout: 0 };
    // An empty stack is serialised as if there were no witness.
    let witness = (witness != [0]).then_some(witness);
    Some(virtual_tx(&prevout, script_sig, &[OP_RETURN], witness))
}

fn is_commitment((_, output): &(usize, OutputView<'_>)) -> bool {
    let script = output.script_pubkey();
    script.len() >= MINIMUM_WITNESS_COMMITMENT && script.starts_with(&COMMITMENT_HEADER)
}

/// Splits a solution into its signature script and its witness stack, the latter including its count. Core
/// reads both with its usual deserialisation and accepts no bytes after them.
fn parse_solution(solution: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let mut reader = Reader::new(solution);
    let script_sig = reader.byte_string()?;
    let witness = solution.get(reader.position()..).unwrap_or_default();
    for _ in 0..reader.compact_size()? {
        reader.byte_string()?;
    }
    reader.finish()?;
    Ok((script_sig, witness))
}

/// Removes the solution from the commitment's script: the first push that starts with [`SIGNET_HEADER`] and
/// is longer is reduced to the header (Core `FetchAndClearCommitmentSection`).
///
/// The rest is rewritten as Core writes it: pushes of data in their shortest form, an empty push as its
/// opcode alone, and nothing from the first malformed push on. A script without a solution is returned
/// unchanged.
fn remove_solution(script: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut cleared = Vec::with_capacity(script.len());
    let mut solution = None;
    let mut rest = script;
    while let Some((opcode, data, after)) = next_op(rest) {
        rest = after;
        let found = data.strip_prefix(&SIGNET_HEADER).filter(|rest| !rest.is_empty() && solution.is_none());
        if let Some(rest) = found {
            solution = Some(rest.to_vec());
            push_data(&mut cleared, &SIGNET_HEADER);
        } else if data.is_empty() {
            cleared.push(opcode);
        } else {
            push_data(&mut cleared, data);
        }
    }
    if solution.is_some() { (cleared, solution) } else { (script.to_vec(), None) }
}

/// Appends a push in the shortest form for its length (Core `CScript::operator<<`).
fn push_data(script: &mut Vec<u8>, data: &[u8]) {
    match data.len() {
        len @ 0..=0x4b => script.push(len as u8),
        len @ 0x4c..=0xff => script.extend([OP_PUSHDATA1, len as u8]),
        len @ 0x100..=0xffff => {
            script.push(OP_PUSHDATA2);
            script.extend((len as u16).to_le_bytes());
        }
        len => {
            script.push(OP_PUSHDATA4);
            script.extend((len as u32).to_le_bytes());
        }
    }
    script.extend(data);
}

/// Returns a serialised transaction of version 0 with one input and one output of amount 0.
fn virtual_tx(
    prevout: &OutPoint,
    script_sig: &[u8],
    script_pubkey: &[u8],
    witness: Option<&[u8]>,
) -> Vec<u8> {
    let mut tx = vec![0; 4];
    if witness.is_some() {
        // BIP-0144's marker and flag.
        tx.extend([0, 1]);
    }
    tx.push(1);
    write_input(&mut tx, prevout, script_sig, 0);
    tx.push(1);
    write_output(&mut tx, 0, script_pubkey);
    tx.extend(witness.unwrap_or_default());
    tx.extend([0; 4]);
    tx
}

/// Serialises a transaction without its witness and with the script of one output replaced.
fn with_output_script(tx: &TxView<'_>, index: usize, script: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tx.stripped_size());
    bytes.extend(tx.version().to_le_bytes());
    write_compact_size(&mut bytes, tx.input_count() as u64);
    for input in tx.inputs() {
        write_input(&mut bytes, &input.prevout(), input.script_sig(), input.sequence());
    }
    write_compact_size(&mut bytes, tx.output_count() as u64);
    for (at, output) in tx.outputs().enumerate() {
        let script = if at == index { script } else { output.script_pubkey() };
        write_output(&mut bytes, output.value().0, script);
    }
    bytes.extend(tx.lock_time().to_le_bytes());
    bytes
}

fn write_input(bytes: &mut Vec<u8>, prevout: &OutPoint, script_sig: &[u8], sequence: u32) {
    bytes.extend(prevout.txid.0);
    bytes.extend(prevout.vout.to_le_bytes());
    write_compact_size(bytes, script_sig.len() as u64);
    bytes.extend(script_sig);
    bytes.extend(sequence.to_le_bytes());
}

fn write_output(bytes: &mut Vec<u8>, value: i64, script_pubkey: &[u8]) {
    bytes.extend(value.to_le_bytes());
    write_compact_size(bytes, script_pubkey.len() as u64);
    bytes.extend(script_pubkey);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{BlockArena, Header};

    fn with_solution(script: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (cleared, solution) = remove_solution(script);
        Some((cleared, solution?))
    }

    #[test]
    fn removes_the_solution_from_the_first_push_that_has_one() {
        let header = SIGNET_HEADER;
        let pushed = |data: &[u8]| [&[data.len() as u8], data].concat();
        let held = pushed(&[&header[..], &[1, 2]].concat());
        let bare = pushed(&header);
        assert_eq!(with_solution(&held), Some((bare.clone(), vec![1, 2])));
        // A header alone is not a solution; a second solution is ordinary data.
        assert_eq!(with_solution(&bare), None);
        assert_eq!(remove_solution(&bare).0, bare);
        let twice = [&bare[..], &held, &held].concat();
        assert_eq!(with_solution(&twice), Some(([&bare[..], &bare, &held].concat(), vec![1, 2])));
        // Long forms become short, an empty long push loses its length, a truncated push ends the script.
        let long = [&[OP_PUSHDATA2, 6, 0][..], &held[1..], &[OP_PUSHDATA1, 0, 0x51, 9, 9]].concat();
        let cleared = [&bare[..], &[OP_PUSHDATA1, 0x51]].concat();
        assert_eq!(with_solution(&long), Some((cleared, vec![1, 2])));
    }

    #[test]
    fn pushes_have_the_shortest_form_for_their_length() {
        for (len, form) in [
            (0x4b, vec![0x4b]),
            (0x4c, vec![OP_PUSHDATA1, 0x4c]),
            (0xff, vec![OP_PUSHDATA1, 0xff]),
            (0x100, vec![OP_PUSHDATA2, 0, 1]),
            (0xffff, vec![OP_PUSHDATA2, 0xff, 0xff]),
            (0x1_0000, vec![OP_PUSHDATA4, 0, 0, 1, 0]),
        ] {
            let mut script = Vec::new();
            push_data(&mut script, &vec![7; len]);
            assert_eq!(script[..form.len()], form);
            assert_eq!(next_op(&script), Some((form[0], &vec![7; len][..], &[][..])));
        }
    }

    #[test]
    fn a_solution_is_exactly_a_script_and_a_stack() {
        assert_eq!(parse_solution(&[1, 0x51, 0]), Ok((&[0x51][..], &[0][..])));
        assert_eq!(parse_solution(&[0, 2, 0, 1, 9]), Ok((&[][..], &[2, 0, 1, 9][..])));
        assert_eq!(parse_solution(&[0, 0, 0]), Err(WireError::Trailing { at: 2, extra: 1 }));
        assert_eq!(parse_solution(&[0, 1]), Err(WireError::Truncated { at: 2, needed: 1 }));
        assert!(parse_solution(&[]).is_err());
    }

    /// Returns the solution of a block whose coinbase has these output scripts.
    fn solution_of(scripts: &[&[u8]]) -> Option<Vec<u8>> {
        let mut block = Header::default().to_bytes().to_vec();
        block.push(1);
        block.extend([1, 0, 0, 0, 1]);
        write_input(&mut block, &OutPoint::NULL, &[1, 1], 5);
        block.push(scripts.len() as u8);
        for script in scripts {
            write_output(&mut block, 3, script);
        }
        block.extend([0; 4]);
        let mut arena = BlockArena::default();
        signet_solution(&arena.parse(&block).unwrap(), &[Txid::default()], &[0x51])
    }

    #[test]
    fn requires_a_commitment_and_uses_the_last_one() {
        let commitment = [&COMMITMENT_HEADER[..], &[9; 32]].concat();
        assert_eq!(solution_of(&[]), None);
        assert_eq!(solution_of(&[&commitment[..37]]), None);
        let empty = solution_of(&[&commitment]).unwrap();
        let with = |solution: &[u8]| {
            let mut script = commitment.clone();
            push_data(&mut script, &[&SIGNET_HEADER[..], solution].concat());
            script
        };
        let signed = solution_of(&[&with(&[1, 0x51, 1, 1, 7])]).unwrap();
        assert_eq!(solution_of(&[&with(&[1, 0x51, 1, 1])]), None);
        assert_eq!(solution_of(&[&with(&[1, 0x51, 1, 1]), &commitment]).unwrap().len(), empty.len());
        let mut arena = BlockArena::default();
        let tx = arena.parse_tx(&signed).unwrap();
        let input = tx.inputs().next().unwrap();
        assert_eq!((input.script_sig(), input.sequence()), (&[0x51][..], 0));
        assert_eq!(input.witness().collect::<Vec<_>>(), [&[7]]);
        // The signed transaction does not depend on the solution.
        let other = solution_of(&[&with(&[0, 0])]).unwrap();
        let prevout = input.prevout();
        let tx = arena.parse_tx(&other).unwrap();
        assert_eq!(tx.inputs().next().unwrap().prevout(), prevout);
        assert!(!tx.has_witness());
    }
}
