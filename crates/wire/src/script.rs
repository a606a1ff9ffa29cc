//! The few script forms that consensus and storage recognise without running the script.

/// The longest script that can be run, in bytes. An output with a longer one is never a coin (Core
/// `MAX_SCRIPT_SIZE`).
pub const MAX_SCRIPT_SIZE: usize = 10_000;

pub const OP_0: u8 = 0x00;
pub const OP_PUSHDATA1: u8 = 0x4c;
pub const OP_PUSHDATA2: u8 = 0x4d;
pub const OP_PUSHDATA4: u8 = 0x4e;
pub const OP_1: u8 = 0x51;
pub const OP_16: u8 = 0x60;
pub const OP_RETURN: u8 = 0x6a;
const OP_HASH160: u8 = 0xa9;
const OP_EQUAL: u8 = 0x87;

/// How the script of an output that commits to witnesses begins: `RETURN`, a push of 36 bytes, and BIP-0141's
/// header.
pub const COMMITMENT_HEADER: [u8; 6] = [OP_RETURN, 0x24, 0xaa, 0x21, 0xa9, 0xed];

/// Returns whether an output with this script can never be spent, and so is never in the UTXO set (Core
/// `CScript::IsUnspendable`): the script starts with OP_RETURN or is longer than [`MAX_SCRIPT_SIZE`].
pub fn is_unspendable(script: &[u8]) -> bool {
    script.first() == Some(&OP_RETURN) || script.len() > MAX_SCRIPT_SIZE
}

/// Returns whether the script is BIP-0016's `HASH160 <20 bytes> EQUAL` (Core `CScript::IsPayToScriptHash`).
pub fn is_p2sh(script: &[u8]) -> bool {
    matches!(script, [OP_HASH160, 20, hash @ .., OP_EQUAL] if hash.len() == 20)
}

/// Returns the version and program of a witness program (BIP-0141, Core `CScript::IsWitnessProgram`), or
/// `None` for any other script.
pub fn witness_program(script: &[u8]) -> Option<(u8, &[u8])> {
    match script {
        [opcode @ (OP_0 | OP_1..=OP_16), len @ 2..=40, program @ ..] if program.len() == *len as usize => {
            Some((if *opcode == OP_0 { 0 } else { opcode - (OP_1 - 1) }, program))
        }
        _ => None,
    }
}

/// Splits off an operation: opcode, pushed data, rest (Core `GetScriptOp`). `None` at the end of the script
/// or if a push is truncated.
#[inline]
pub fn next_op(script: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&opcode, rest) = script.split_first()?;
    if opcode > OP_PUSHDATA4 {
        return Some((opcode, &[], rest));
    }
    let (len, rest) = match opcode {
        OP_PUSHDATA1 => rest.split_first().map(|(&len, rest)| (len as usize, rest))?,
        OP_PUSHDATA2 => {
            rest.split_first_chunk().map(|(len, rest)| (u16::from_le_bytes(*len) as usize, rest))?
        }
        OP_PUSHDATA4 => {
            rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest))?
        }
        len => (len as usize, rest),
    };
    let (data, rest) = rest.split_at_checked(len)?;
    Some((opcode, data, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_above_the_maximum_size_are_unspendable() {
        assert!(is_unspendable(&[OP_RETURN]));
        assert!(!is_unspendable(&[]));
        assert!(!is_unspendable(&[0; MAX_SCRIPT_SIZE]));
        assert!(is_unspendable(&[0; MAX_SCRIPT_SIZE + 1]));
    }

    #[test]
    fn recognises_witness_programs_by_length_and_version() {
        let script = |opcode, len: u8| [vec![opcode, len], vec![7; len as usize]].concat();
        for (opcode, version) in [(OP_0, 0), (OP_1, 1), (OP_16, 16)] {
            assert_eq!(witness_program(&script(opcode, 32)), Some((version, &[7; 32][..])));
        }
        assert!(witness_program(&script(OP_0, 2)).is_some());
        assert!(witness_program(&script(OP_0, 40)).is_some());
        for bad in [script(OP_0, 1), script(OP_0, 41), script(0x50, 20), script(0x61, 20), vec![OP_0], vec![]]
        {
            assert_eq!(witness_program(&bad), None);
        }
        let mut long = script(OP_0, 20);
        long.push(0);
        assert_eq!(witness_program(&long), None);
    }

    #[test]
    fn recognises_only_the_exact_p2sh_form() {
        let mut script = vec![OP_HASH160, 20];
        script.extend([1; 20]);
        assert!(!is_p2sh(&script));
        script.push(OP_EQUAL);
        assert!(is_p2sh(&script));
        script.push(OP_EQUAL);
        assert!(!is_p2sh(&script));
    }
}
