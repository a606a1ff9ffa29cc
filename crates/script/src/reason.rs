//! Why a script failed, in Core's words, where that can be told for certain.
//!
//! The kernel's API says only that a script failed; Core's reject string also says why. That is told here for
//! programs of a known shape, by the order in which Core's `VerifyScript` and `VerifyWitnessProgram` ask.
//! What needs hashing or running is asked of the kernel, by small scripts of our own in the place of the
//! coin's. Where the shape leaves a doubt there is no reason rather than a guessed one. No verdict depends on
//! it.

use wire::{
    ScriptFlags,
    script::{is_p2sh, witness_program},
};

const EVAL_FALSE: &str = "Script evaluated without error but finished with a false/empty top stack element";
const EQUALVERIFY: &str = "Script failed an OP_EQUALVERIFY operation";
const SCRIPT_SIZE: &str = "Script is too big";
const STACK_SIZE: &str = "Stack size limit exceeded";
const PUSH_SIZE: &str = "Push value size limit exceeded";
const SIG_DER: &str = "Non-canonical DER signature";
const SIG_NULLDUMMY: &str = "Dummy CHECKMULTISIG argument must be zero";
const NEGATIVE_LOCKTIME: &str = "Negative locktime";
const UNSATISFIED_LOCKTIME: &str = "Locktime requirement not satisfied";
const WITNESS_PROGRAM_WRONG_LENGTH: &str = "Witness program has incorrect length";
const WITNESS_PROGRAM_WITNESS_EMPTY: &str = "Witness program was passed an empty witness";
const WITNESS_PROGRAM_MISMATCH: &str = "Witness program hash mismatch";
const WITNESS_MALLEATED: &str = "Witness requires empty scriptSig";
const WITNESS_MALLEATED_P2SH: &str = "Witness requires only-redeemscript scriptSig";
const WITNESS_UNEXPECTED: &str = "Witness provided for non-witness script";
const SCHNORR_SIG_SIZE: &str = "Invalid Schnorr signature size";
const SCHNORR_SIG_HASHTYPE: &str = "Invalid Schnorr signature hash type";
const SCHNORR_SIG: &str = "Invalid Schnorr signature";
const TAPROOT_WRONG_CONTROL_SIZE: &str = "Invalid Taproot control block size";

/// Longest item that a script may push (Core `MAX_SCRIPT_ELEMENT_SIZE`).
const MAX_SCRIPT_ELEMENT_SIZE: usize = 520;
/// Longest script that is run (Core `MAX_SCRIPT_SIZE`).
const MAX_SCRIPT_SIZE: usize = 10_000;
/// Most items on the stack (Core `MAX_STACK_SIZE`).
const MAX_STACK_SIZE: usize = 1_000;
/// First byte of an annex (BIP-0341).
const ANNEX_TAG: u8 = 0x50;
/// Bytes of a control block before its path, of one step, and steps at most (BIP-0341).
const CONTROL: (usize, usize, usize) = (33, 32, 128);
/// What the opcodes 1 to 16 push.
const SMALL_NUMBERS: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const OP_PUSHDATA1: u8 = 0x4c;
const OP_PUSHDATA2: u8 = 0x4d;
const OP_PUSHDATA4: u8 = 0x4e;
const OP_1: u8 = 0x51;
const OP_16: u8 = 0x60;
const OP_DROP: u8 = 0x75;
const OP_EQUAL: u8 = 0x87;
const OP_SHA256: u8 = 0xa8;
const OP_HASH160: u8 = 0xa9;
const OP_CHECKSIG: u8 = 0xac;
const OP_CHECKMULTISIG: u8 = 0xae;
const OP_CHECKLOCKTIMEVERIFY: u8 = 0xb1;
const OP_CHECKSEQUENCEVERIFY: u8 = 0xb2;
/// An opcode that Core does not know.
const TORN_PUSH: u8 = 0xff;
/// Longest number that a lock takes, in bytes.
const MAX_LOCK_SIZE: usize = 5;

/// A spend that failed.
pub(crate) struct FailedSpend<'a> {
    pub(crate) script_sig: &'a [u8],
    pub(crate) script_pubkey: &'a [u8],
    pub(crate) witness: &'a [Vec<u8>],
    pub(crate) flags: ScriptFlags,
    /// The flag of narrowest effect without which it would pass.
    pub(crate) decisive: Option<ScriptFlags>,
    /// Whether the transaction has an output at the input's position.
    pub(crate) has_output: bool,
    /// Whether the input passes under these flags with another script in the place of the coin's.
    pub(crate) passes_with: &'a dyn Fn(&[u8], ScriptFlags) -> bool,
}

impl FailedSpend<'_> {
    /// Core's `ScriptErrorString`.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self.decisive {
            // These two rules fail in one way each.
            Some(ScriptFlags::DERSIG) => return Some(SIG_DER),
            Some(ScriptFlags::NULLDUMMY) => return Some(SIG_NULLDUMMY),
            Some(ScriptFlags::CHECKLOCKTIMEVERIFY) => return self.lock_reason(OP_CHECKLOCKTIMEVERIFY),
            Some(ScriptFlags::CHECKSEQUENCEVERIFY) => return self.lock_reason(OP_CHECKSEQUENCEVERIFY),
            _ => {}
        }
        let pushes = pushes(self.script_sig)?;
        // The signature script is run first, and may fail by itself.
        match pushes.len() {
            _ if self.script_sig.len() > MAX_SCRIPT_SIZE => return Some(SCRIPT_SIZE),
            count if count > MAX_STACK_SIZE => return Some(STACK_SIZE),
            // The coin's script may push an item or two more.
            count if count > MAX_STACK_SIZE - 2 => return None,
            _ => {}
        }
        if let Some(program) = self.program(self.script_pubkey) {
            if !self.runs_true(self.script_pubkey) {
                return Some(EVAL_FALSE);
            }
            return if pushes.is_empty() {
                self.program_reason(program, false)
            } else {
                Some(WITNESS_MALLEATED)
            };
        }
        match self.decisive {
            _ if is_p2sh(self.script_pubkey) && self.flags.contains(ScriptFlags::P2SH) => {
                self.p2sh_reason(&pushes)
            }
            Some(ScriptFlags::WITNESS) => Some(WITNESS_UNEXPECTED),
            _ => self.script_reason(self.script_pubkey, &pushes),
        }
    }

    /// Of the only lock of a spend, if a push of a number comes right before it.
    fn lock_reason(&self, lock: u8) -> Option<&'static str> {
        let pushes = pushes(self.script_sig)?;
        // The coin's script, a redeem script, and where witnesses have their script.
        let scripts = [Some(self.script_pubkey), pushes.last().copied()];
        let witness_scripts = self.witness.iter().rev().take(2).map(Vec::as_slice);
        let mut numbers = scripts.into_iter().flatten().chain(witness_scripts).flat_map(|script| {
            let mut before = None;
            operations(script).filter_map(move |(opcode, data)| {
                let number = before.replace(data)?;
                (opcode == lock).then_some(number)
            })
        });
        match (numbers.next()?, numbers.next()) {
            ([below @ .., top], None) if below.len() < MAX_LOCK_SIZE => {
                let is_negative = top & 0x80 != 0 && (top & 0x7f != 0 || below.iter().any(|byte| *byte != 0));
                Some(if is_negative { NEGATIVE_LOCKTIME } else { UNSATISFIED_LOCKTIME })
            }
            _ => None,
        }
    }

    fn p2sh_reason(&self, pushes: &[&[u8]]) -> Option<&'static str> {
        let (redeem, below) = pushes.split_last()?;
        if !self.runs_true(self.script_pubkey) {
            return Some(EVAL_FALSE);
        }
        match self.program(redeem) {
            // A program that is false on the stack goes no further.
            Some((_, program)) if program.iter().all(|byte| matches!(byte, 0 | 0x80)) => None,
            Some(program) if below.is_empty() && self.script_sig.len() == redeem.len() + 1 => {
                self.program_reason(program, true)
            }
            Some(_) => Some(WITNESS_MALLEATED_P2SH),
            None if self.decisive == Some(ScriptFlags::WITNESS) => Some(WITNESS_UNEXPECTED),
            None => self.script_reason(redeem, below),
        }
    }

    /// A witness program, where the flags know them.
    fn program<'a>(&self, script: &'a [u8]) -> Option<(u8, &'a [u8])> {
        witness_program(script).filter(|_| self.flags.contains(ScriptFlags::WITNESS))
    }

    fn program_reason(&self, (version, program): (u8, &[u8]), in_p2sh: bool) -> Option<&'static str> {
        let items: Vec<&[u8]> = self.witness.iter().map(Vec::as_slice).collect();
        match (version, program.len(), &items[..]) {
            (0, 20, [sig, key]) if is_oversized(sig) || is_oversized(key) => Some(PUSH_SIZE),
            (0, 20, [sig, key]) => Some(self.key_hash_reason(program, sig, key)),
            (0, 20, _) => Some(WITNESS_PROGRAM_MISMATCH),
            (0, 32, []) => Some(WITNESS_PROGRAM_WITNESS_EMPTY),
            // Too long to be hashed by a script.
            (0, 32, [.., script]) if is_oversized(script) => None,
            (0, 32, [.., script]) if !self.hashes_to(OP_SHA256, script, program) => {
                Some(WITNESS_PROGRAM_MISMATCH)
            }
            (0, 32, [items @ .., _]) if items.iter().any(|item| is_oversized(item)) => Some(PUSH_SIZE),
            (0, 32, [items @ .., script]) => self.script_reason(script, items),
            (0, ..) => Some(WITNESS_PROGRAM_WRONG_LENGTH),
            (1, 32, _) if !in_p2sh => self.taproot_reason(self.witness),
            _ => None,
        }
    }

    /// Of the usual scripts, with exactly the items that they take.
    fn script_reason(&self, script: &[u8], items: &[&[u8]]) -> Option<&'static str> {
        match (script, items) {
            ([0x76, OP_HASH160, 20, hash @ .., 0x88, OP_CHECKSIG], [sig, key]) if hash.len() == 20 => {
                Some(self.key_hash_reason(hash, sig, key))
            }
            ([len @ (33 | 65), key @ .., OP_CHECKSIG], [sig]) if key.len() == *len as usize => {
                Some(self.signature_reason(sig))
            }
            ([m @ OP_1..=OP_16, keys @ .., n @ OP_1..=OP_16, OP_CHECKMULTISIG], [dummy, sigs @ ..]) => {
                let [m, n] = [m, n].map(|opcode| usize::from(opcode - OP_1) + 1);
                let fits = m <= n && sigs.len() == m && pushes(keys)?.len() == n;
                // Which signatures are looked at depends on those before: all must be well formed.
                let is_certain = fits && sigs.iter().all(|sig| self.is_encoded(sig));
                let is_dummy_asked = self.flags.contains(ScriptFlags::NULLDUMMY);
                let reason = if is_dummy_asked && !dummy.is_empty() { SIG_NULLDUMMY } else { EVAL_FALSE };
                is_certain.then_some(reason)
            }
            _ => None,
        }
    }

    fn taproot_reason(&self, witness: &[Vec<u8>]) -> Option<&'static str> {
        let witness = match witness {
            [below @ .., annex] if !below.is_empty() && annex.first() == Some(&ANNEX_TAG) => below,
            all => all,
        };
        match witness {
            [] => Some(WITNESS_PROGRAM_WITNESS_EMPTY),
            [sig] => {
                let hash_type = if sig.len() == 65 { sig.last().copied() } else { None };
                let is_known = |hash_type| match hash_type {
                    0x01 | 0x02 | 0x81 | 0x82 => true,
                    // SINGLE signs the output at the input's position.
                    0x03 | 0x83 => self.has_output,
                    _ => false,
                };
                Some(match sig.len() {
                    64 | 65 if hash_type.is_none_or(is_known) => SCHNORR_SIG,
                    64 | 65 => SCHNORR_SIG_HASHTYPE,
                    _ => SCHNORR_SIG_SIZE,
                })
            }
            [.., control] => {
                let (base, step, most) = CONTROL;
                let path = control.len().checked_sub(base);
                let fits = path.is_some_and(|path| path.is_multiple_of(step) && path / step <= most);
                (!fits).then_some(TAPROOT_WRONG_CONTROL_SIZE)
            }
        }
    }

    /// Of `DUP HASH160 <hash> EQUALVERIFY CHECKSIG`.
    fn key_hash_reason(&self, hash: &[u8], sig: &[u8], key: &[u8]) -> &'static str {
        if self.hashes_to(OP_HASH160, key, hash) { self.signature_reason(sig) } else { EQUALVERIFY }
    }

    /// Of a last CHECKSIG: the signature is malformed, or does not verify.
    fn signature_reason(&self, sig: &[u8]) -> &'static str {
        if self.is_encoded(sig) { EVAL_FALSE } else { SIG_DER }
    }

    /// Whether a signature is as well formed as the flags ask.
    fn is_encoded(&self, sig: &[u8]) -> bool {
        // Nothing verifies with the empty key, but that CHECKSIG only answers no, and its answer is dropped.
        let probe = [push(sig), vec![0, OP_CHECKSIG, OP_DROP, OP_1]].concat();
        !self.flags.contains(ScriptFlags::DERSIG) || (self.passes_with)(&probe, ScriptFlags::DERSIG)
    }

    fn hashes_to(&self, opcode: u8, data: &[u8], hash: &[u8]) -> bool {
        self.runs_true(&[push(data), vec![opcode], push(hash), vec![OP_EQUAL]].concat())
    }

    /// Whether a script ends true after the input's own signature script.
    fn runs_true(&self, script: &[u8]) -> bool {
        (self.passes_with)(script, ScriptFlags::NONE)
    }
}

fn is_oversized(item: &[u8]) -> bool {
    item.len() > MAX_SCRIPT_ELEMENT_SIZE
}

/// What a script of nothing but pushes pushes; none if there is another operation, or a push that is torn or
/// too long.
fn pushes(script: &[u8]) -> Option<Vec<&[u8]>> {
    let is_push = |opcode| opcode <= OP_PUSHDATA2 || (OP_1..=OP_16).contains(&opcode);
    let taken = |(opcode, data)| (is_push(opcode) && !is_oversized(data)).then_some(data);
    let pushes: Vec<_> = operations(script).map(taken).collect::<Option<_>>()?;
    Some(pushes)
}

/// The operations of a script with what they push: nothing, but for pushes and small numbers. A torn push is
/// an operation that is no push.
fn operations(mut script: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&opcode, rest) = script.split_first()?;
        let operation = operation(opcode, rest);
        let (opcode, data, rest) = operation.unwrap_or((TORN_PUSH, &[], &[]));
        script = rest;
        Some((opcode, data))
    })
}

fn operation(opcode: u8, rest: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (len, rest) = match opcode {
        len @ 0..OP_PUSHDATA1 => (len.into(), rest),
        OP_PUSHDATA1 => (rest.first().copied()?.into(), rest.get(1..)?),
        OP_PUSHDATA2 => (u16::from_le_bytes(*rest.first_chunk()?).into(), rest.get(2..)?),
        OP_PUSHDATA4 => (u32::from_le_bytes(*rest.first_chunk()?) as usize, rest.get(4..)?),
        OP_1..=OP_16 => {
            let number = usize::from(opcode - OP_1);
            return Some((opcode, SMALL_NUMBERS.get(number..=number)?, rest));
        }
        _ => (0, rest),
    };
    let (data, rest) = rest.split_at_checked(len)?;
    Some((opcode, data, rest))
}

/// A script that pushes at most [`MAX_SCRIPT_ELEMENT_SIZE`] bytes.
fn push(data: &[u8]) -> Vec<u8> {
    let len = data.len();
    let mut script = match len {
        0..0x4c => vec![len as u8],
        0x4c..0x100 => vec![OP_PUSHDATA1, len as u8],
        _ => [&[OP_PUSHDATA2][..], &(len as u16).to_le_bytes()].concat(),
    };
    script.extend(data);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_are_written_and_read() {
        for len in [0, 1, 0x4b, 0x4c, 0xff, 0x100, 520] {
            let data = vec![7; len];
            assert_eq!(pushes(&push(&data)), Some(vec![&data[..]]), "{len}");
        }
        assert_eq!(pushes(&push(&[7; 521])), None);
        assert_eq!(pushes(&[2, 7]), None);
        assert_eq!(pushes(&[OP_1, 0, OP_16]), Some(vec![&[1][..], &[], &[16]]));
        assert_eq!(pushes(&[OP_16 + 1]), None);
        assert_eq!(pushes(&[]), Some(vec![]));
    }
}
