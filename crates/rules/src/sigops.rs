//! Counts signature operations in the three ways of consensus.
//!
//! *Legacy*: every CHECKSIG counts 1 and every CHECKMULTISIG 20, whether it is executed or not. *Accurate*,
//! for P2SH and P2WSH scripts: a CHECKMULTISIG directly after OP_1..OP_16 counts that number instead.
//! *Witness*: 1 for P2WPKH. A script is counted up to its first malformed push (Core `GetSigOpCount`,
//! `CountWitnessSigOps`).

use crate::spend::SpentCoin;
use wire::{
    InputView, ScriptFlags, TxView,
    coin::CompressedScript,
    script::{OP_1, OP_16, OP_PUSHDATA1, next_op, witness_program},
};

/// Maximum cost of a block's signature operations (BIP-0141, Core `MAX_BLOCK_SIGOPS_COST`). Those outside of
/// witnesses cost 4 each.
pub const MAX_BLOCK_SIGOPS_COST: u64 = 80_000;
/// Cost of a signature operation outside of witnesses (Core `WITNESS_SCALE_FACTOR`).
pub const SIGOP_COST: u64 = 4;

const MAX_PUBKEYS_PER_MULTISIG: u32 = 20;

const OP_CHECKSIG: u8 = 0xac;
const OP_CHECKSIGVERIFY: u8 = 0xad;
const OP_CHECKMULTISIG: u8 = 0xae;
const OP_CHECKMULTISIGVERIFY: u8 = 0xaf;
const OP_INVALIDOPCODE: u8 = 0xff;

/// Returns the number of signature operations of a script, each CHECKMULTISIG counted as 20.
#[inline]
pub fn count_legacy(script: &[u8]) -> u32 {
    match script {
        // Shortcuts for the forms of nearly all outputs and of native segwit inputs.
        [] => 0,
        [0x76, 0xa9, 20, .., 0x88, OP_CHECKSIG] if script.len() == 25 => 1,
        [0xa9, 20, .., 0x87] if script.len() == 23 => 0,
        [0 | OP_1, len @ (20 | 32), program @ ..] if program.len() == *len as usize => 0,
        _ => count::<false>(script),
    }
}

/// Returns the number of legacy signature operations of a transaction (Core `GetLegacySigOpCount`).
pub fn count_legacy_of_tx(tx: &TxView<'_>) -> u32 {
    let inputs: u32 = tx.inputs().map(|input| count::<false>(input.script_sig())).sum();
    inputs + tx.outputs().map(|output| count_legacy(output.script_pubkey())).sum::<u32>()
}

/// Returns the cost of one spend in addition to its legacy count: P2SH and witness (Core `GetP2SHSigOpCount`,
/// `CountWitnessSigOps`), if the block's `flags` have them.
#[inline]
pub fn spend_cost(input: &InputView<'_>, coin: &SpentCoin<'_>, flags: ScriptFlags) -> u64 {
    let witness = flags.contains(ScriptFlags::WITNESS);
    match coin.script {
        CompressedScript::P2sh(_) if flags.contains(ScriptFlags::P2SH) => {
            let Some(redeem) = last_push(input.script_sig()) else { return 0 };
            let nested = witness_program(redeem).filter(|_| witness);
            SIGOP_COST * u64::from(count::<true>(redeem))
                + nested.map_or(0, |program| witness_cost(program, input))
        }
        CompressedScript::Raw(script) if witness => {
            witness_program(script).map_or(0, |program| witness_cost(program, input))
        }
        _ => 0,
    }
}

fn witness_cost((version, program): (u8, &[u8]), input: &InputView<'_>) -> u64 {
    match (version, program.len()) {
        (0, 20) => 1,
        (0, 32) => input.witness().last().map_or(0, |script| count::<true>(script).into()),
        _ => 0,
    }
}

/// Returns the number of signature operations of a script. If `ACCURATE`, a CHECKMULTISIG counts as its
/// number of keys if that is a constant, otherwise as 20.
#[inline]
fn count<const ACCURATE: bool>(script: &[u8]) -> u32 {
    let mut total = 0;
    let mut last = OP_INVALIDOPCODE;
    let mut rest = script;
    loop {
        // Nearly all operations are short pushes.
        if let Some(&len @ 1..OP_PUSHDATA1) = rest.first() {
            let Some(after) = rest.get(1 + len as usize..) else { return total };
            (last, rest) = (len, after);
            continue;
        }
        let Some((opcode, _, after)) = next_op(rest) else { return total };
        match opcode {
            OP_CHECKSIG | OP_CHECKSIGVERIFY => total += 1,
            OP_CHECKMULTISIG | OP_CHECKMULTISIGVERIFY => {
                let is_constant = ACCURATE && (OP_1..=OP_16).contains(&last);
                total += if is_constant { u32::from(last - (OP_1 - 1)) } else { MAX_PUBKEYS_PER_MULTISIG };
            }
            _ => {}
        }
        (last, rest) = (opcode, after);
    }
}

/// Returns the last item that a push-only script pushes: the script that a P2SH spend reveals. OP_1NEGATE,
/// OP_RESERVED and OP_1..OP_16 count as pushes of an empty item, as in Core. `None` if the script has other
/// operations or is malformed.
fn last_push(script: &[u8]) -> Option<&[u8]> {
    let mut pushed: &[u8] = &[];
    let mut rest = script;
    while !rest.is_empty() {
        let (opcode, data, after) = next_op(rest)?;
        if opcode > OP_16 {
            return None;
        }
        (pushed, rest) = (data, after);
    }
    Some(pushed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::script::{OP_PUSHDATA2, OP_PUSHDATA4};

    #[test]
    fn legacy_counts_every_operation_outside_of_pushes() {
        for (script, expected) in [
            (&[][..], 0),
            (&[OP_CHECKSIG, OP_CHECKSIGVERIFY], 2),
            (&[0x53, OP_CHECKMULTISIG], 20),
            (&[OP_CHECKMULTISIGVERIFY], 20),
            (&[1, OP_CHECKSIG], 0),
            (&[1, OP_CHECKSIG, OP_CHECKSIG], 1),
            // Counted up to the truncated push.
            (&[OP_CHECKSIG, 2, OP_CHECKSIG], 1),
            (&[OP_CHECKSIG, OP_PUSHDATA1], 1),
            (&[OP_PUSHDATA1, 1, OP_CHECKSIG, OP_CHECKSIG], 1),
            (&[OP_PUSHDATA2, 1, 0, OP_CHECKSIG, OP_CHECKSIG], 1),
            (&[OP_PUSHDATA2, 1], 0),
            (&[OP_PUSHDATA4, 1, 0, 0, 0, OP_CHECKSIG, OP_CHECKSIG], 1),
            (&[OP_PUSHDATA4, 0xff, 0xff, 0xff, 0xff, OP_CHECKSIG], 0),
        ] {
            assert_eq!(count_legacy(script), expected, "{script:x?}");
        }
        let p2pkh = [&[0x76, 0xa9, 20][..], &[OP_CHECKSIG; 20], &[0x88, OP_CHECKSIG]].concat();
        let p2sh = [&[0xa9, 20][..], &[OP_CHECKSIG; 20], &[0x87]].concat();
        let p2wpkh = [&[0, 20][..], &[OP_CHECKSIG; 20]].concat();
        let p2tr = [&[OP_1, 32][..], &[OP_CHECKSIG; 32]].concat();
        for (script, expected) in [(p2pkh, 1), (p2sh, 0), (p2wpkh, 0), (p2tr, 0)] {
            assert_eq!((count_legacy(&script), count::<true>(&script)), (expected, expected));
            // With one more byte it is not one of the shortcuts' forms.
            let longer = [&script[..], &[OP_CHECKSIG]].concat();
            assert_eq!((count_legacy(&longer), count::<true>(&longer)), (expected + 1, expected + 1));
        }
    }

    #[test]
    fn accurate_counts_the_number_of_keys() {
        for (script, expected) in [
            (&[0x53, OP_CHECKMULTISIG][..], 3),
            (&[OP_16, OP_CHECKMULTISIGVERIFY], 16),
            (&[0x00, OP_CHECKMULTISIG], 20),
            (&[1, 3, OP_CHECKMULTISIG], 20),
            (&[0x51, OP_CHECKSIG, OP_CHECKMULTISIG], 21),
        ] {
            assert_eq!(count::<true>(script), expected, "{script:x?}");
        }
    }

    #[test]
    fn last_push_requires_a_push_only_script() {
        for (script, expected) in [
            (&[][..], Some(&[][..])),
            (&[1, 7, 2, 8, 9], Some(&[8, 9])),
            (&[1, 7, OP_16], Some(&[])),
            (&[1, 7, 0x50], Some(&[])),
            (&[1, 7, 0x61], None),
            (&[0x61, 1, 7], None),
            (&[1, 7, 2, 8], None),
        ] {
            assert_eq!(last_push(script), expected, "{script:x?}");
        }
    }

    /// Returns the cost of a spend with a witness of two items, the second of which is `script`.
    fn cost(coin: CompressedScript<'_>, script_sig: &[u8], script: &[u8], flags: ScriptFlags) -> u64 {
        let outpoint = [7; 36];
        let input = [&outpoint[..], &[script_sig.len() as u8], script_sig, &[0xff; 4]].concat();
        let items = [&[2, 3][..], &[OP_CHECKSIG; 3], &[script.len() as u8], script].concat();
        let bytes = [&[2, 0, 0, 0, 0, 1, 1][..], &input, &[0], &items, &[0; 4]].concat();
        let mut arena = wire::BlockArena::default();
        let tx = arena.parse_tx(&bytes).unwrap();
        let coin =
            SpentCoin { amount: wire::Sats(1), script: coin, height: wire::Height(1), is_coinbase: false };
        spend_cost(&tx.inputs().next().unwrap(), &coin, flags)
    }

    #[test]
    fn spends_cost_what_their_redeem_and_witness_scripts_count() {
        let p2wpkh = [&[0, 20][..], &[7; 20]].concat();
        let p2wsh = [&[0, 32][..], &[7; 32]].concat();
        let taproot = [&[OP_1, 32][..], &[7; 32]].concat();
        let multisig = [0x55, OP_CHECKMULTISIG];
        let push = |script: &[u8]| [&[script.len() as u8], script].concat();
        let (raw, p2sh) = (CompressedScript::Raw, CompressedScript::P2sh(&[7; 20]));
        for (coin, script_sig, script, expected) in [
            (raw(&p2wpkh), vec![], &[OP_CHECKSIG; 9][..], 1),
            (raw(&p2wsh), vec![], &multisig, 5),
            (raw(&p2wsh), vec![], &[OP_CHECKMULTISIG, OP_1, OP_CHECKMULTISIG, OP_CHECKSIG], 22),
            (raw(&taproot), vec![], &multisig, 0),
            (p2sh, push(&multisig), &[], 20),
            (p2sh, [push(&multisig), vec![0x61]].concat(), &multisig, 0),
            (p2sh, push(&p2wpkh), &[], 1),
            (p2sh, push(&p2wsh), &multisig, 5),
            (p2sh, [push(&multisig), push(&taproot)].concat(), &multisig, 0),
            // A CHECKMULTISIG in a script that is not P2SH counts only in the transaction that contains it.
            (raw(&multisig), vec![], &[], 0),
        ] {
            let found = cost(coin, &script_sig, script, ScriptFlags::all());
            assert_eq!(found, expected, "{coin:?} {script_sig:x?}");
        }
        // Without the rules of P2SH or of witnesses, there is nothing to count.
        assert_eq!(cost(p2sh, &push(&multisig), &multisig, ScriptFlags::WITNESS), 0);
        assert_eq!(cost(p2sh, &push(&p2wsh), &multisig, ScriptFlags::P2SH), 0);
        assert_eq!(cost(raw(&p2wsh), &[], &multisig, ScriptFlags::P2SH), 0);
    }
}
