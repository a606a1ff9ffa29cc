//! Determines why a script failed, as one of Core's descriptions, if that is certain.
//!
//! The kernel's API reports only that a script failed; Core's reject string also contains the reason. This
//! module repeats the checks of Core's `VerifyScript` and `VerifyWitnessProgram` in their order; for the
//! scripts among them it finds the possible outcomes with the kernel ([`crate::trace`]). If the reason is not
//! certain, it returns none rather than a guess (`docs/testing.md` lists these cases). No verdict depends on
//! it.

use crate::{
    operations::{OP_1, OP_16, OP_RESERVED, operations, push, pushes},
    probe::Probe,
    taproot,
    trace::{CHECKMULTISIG, CHECKSIG, End, MAX_SCRIPT_ELEMENT_SIZE, Machine, PossibleOutcome},
    words::*,
};
use wire::{
    ScriptFlags,
    script::{is_p2sh, witness_program},
};

/// Maximum number of items on the stack (Core `MAX_STACK_SIZE`).
const MAX_STACK_SIZE: usize = 1_000;
/// First byte of an annex (BIP-0341).
const ANNEX_TAG: u8 = 0x50;
/// The operations that check signatures.
const CHECKS: std::ops::RangeInclusive<u8> = CHECKSIG..=CHECKMULTISIG + 1;
/// The flags that affect whole programs, not operations.
const PROGRAMS: ScriptFlags = ScriptFlags::P2SH.with(ScriptFlags::WITNESS).with(ScriptFlags::TAPROOT);

/// A spend that failed.
pub(crate) struct FailedSpend<'a> {
    pub(crate) script_sig: &'a [u8],
    pub(crate) script_pubkey: &'a [u8],
    pub(crate) witness: &'a [Vec<u8>],
    pub(crate) flags: ScriptFlags,
    /// The flag of narrowest effect without which it would pass.
    pub(crate) decisive: Option<ScriptFlags>,
    /// Whether the transaction has an output at the input's index.
    pub(crate) has_output: bool,
    /// Runs scripts with the same locks.
    pub(crate) probe: &'a Probe,
}

impl FailedSpend<'_> {
    /// Returns Core's `ScriptErrorString`, or `None` if it is not certain.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self.decisive {
            // Each of these two rules has only one failure.
            Some(ScriptFlags::DERSIG) => return Some(SIG_DER),
            Some(ScriptFlags::NULLDUMMY) => return Some(SIG_NULLDUMMY),
            _ => {}
        }
        let in_script_sig = self.machine(&[], None).possible_outcomes(self.script_sig, End::Any)?;
        if let Err(reason) = only(&in_script_sig)? {
            return Some(reason);
        }
        // The stack depends on the results of signature checks in this script, and no signature is valid for
        // the probe.
        if operations(self.script_sig).any(|operation| CHECKS.contains(&operation.opcode)) {
            return None;
        }
        let program = self.program(self.script_pubkey);
        let is_p2sh = is_p2sh(self.script_pubkey) && self.flags.contains(ScriptFlags::P2SH);
        if program.is_none() && !is_p2sh {
            return self.last_script(self.script_sig, self.script_pubkey);
        }
        let in_coin = self.machine(self.script_sig, None).possible_outcomes(self.script_pubkey, End::True)?;
        if let Err(reason) = only(&in_coin)? {
            return Some(reason);
        }
        match program {
            Some(_) if !self.script_sig.is_empty() => Some(WITNESS_MALLEATED),
            Some(program) => self.program_reason(program, false),
            None => self.p2sh_reason(),
        }
    }

    /// Returns a machine that starts with the stack that a signature script leaves, for a script.
    fn machine<'a>(&'a self, script_sig: &'a [u8], script: Option<&[u8]>) -> Machine<'a> {
        let mut machine = Machine {
            probe: self.probe,
            script_sig,
            flags: self.flags.without(PROGRAMS),
            is_tapscript: false,
            may_be_malformed: false,
        };
        machine.may_be_malformed = self.flags.contains(ScriptFlags::DERSIG)
            && !script.is_some_and(|script| takes_well_encoded(&machine, script));
        machine
    }

    /// Returns the reason for the last script, after which only the check for an unexpected witness can fail.
    fn last_script(&self, script_sig: &[u8], script: &[u8]) -> Option<&'static str> {
        match self.decisive {
            Some(ScriptFlags::WITNESS) => Some(WITNESS_UNEXPECTED),
            _ => failing(&self.machine(script_sig, Some(script)).possible_outcomes(script, End::True)?),
        }
    }

    fn p2sh_reason(&self) -> Option<&'static str> {
        if operations(self.script_sig).any(|operation| operation.opcode > OP_16) {
            return Some(SIG_PUSHONLY);
        }
        let last = operations(self.script_sig).last()?;
        let (redeem, below) = (last.data?, self.script_sig.strip_suffix(last.bytes)?);
        let Some(program) = self.program(redeem) else { return self.last_script(below, redeem) };
        let in_redeem = self.machine(below, None).possible_outcomes(redeem, End::True)?;
        if let Err(reason) = only(&in_redeem)? {
            return Some(reason);
        }
        if below.is_empty() && self.script_sig == push(redeem) {
            self.program_reason(program, true)
        } else {
            Some(WITNESS_MALLEATED_P2SH)
        }
    }

    /// Returns the witness program of a script, if the flags include witness programs.
    fn program<'a>(&self, script: &'a [u8]) -> Option<(u8, &'a [u8])> {
        witness_program(script).filter(|_| self.flags.contains(ScriptFlags::WITNESS))
    }

    fn program_reason(&self, (version, program): (u8, &[u8]), in_p2sh: bool) -> Option<&'static str> {
        match (version, program.len(), self.witness) {
            (0, 20, [_, _]) => {
                // DUP HASH160 <program> EQUALVERIFY CHECKSIG
                let script = [&[0x76, 0xa9, 20], program, &[0x88, CHECKSIG]].concat();
                self.witness_script(&script, self.witness)
            }
            (0, 20, _) => Some(WITNESS_PROGRAM_MISMATCH),
            (0, 32, []) => Some(WITNESS_PROGRAM_WITNESS_EMPTY),
            (0, 32, [.., script]) if taproot::sha256(&[script]) != program => Some(WITNESS_PROGRAM_MISMATCH),
            (0, 32, [items @ .., script]) => self.witness_script(script, items),
            (0, ..) => Some(WITNESS_PROGRAM_WRONG_LENGTH),
            (1, 32, _) if !in_p2sh => self.taproot_reason(program),
            _ => None,
        }
    }

    fn witness_script(&self, script: &[u8], items: &[Vec<u8>]) -> Option<&'static str> {
        if items.iter().any(|item| item.len() > MAX_SCRIPT_ELEMENT_SIZE) {
            return Some(PUSH_SIZE);
        }
        let pushed: Vec<u8> = items.iter().flat_map(|item| push(item)).collect();
        failing(&self.machine(&pushed, Some(script)).possible_outcomes(script, End::OneTrue)?)
    }

    fn taproot_reason(&self, program: &[u8]) -> Option<&'static str> {
        let witness = match self.witness {
            [below @ .., annex] if !below.is_empty() && annex.first() == Some(&ANNEX_TAG) => below,
            all => all,
        };
        match witness {
            [] => Some(WITNESS_PROGRAM_WITNESS_EMPTY),
            [sig] => Some(self.signature_reason(sig)),
            [items @ .., script, control] => match taproot::leaf_version(program, script, control) {
                None => Some(TAPROOT_WRONG_CONTROL_SIZE),
                Some(Err(taproot::Mismatch)) => Some(WITNESS_PROGRAM_MISMATCH),
                Some(Ok(version)) if version == taproot::TAPSCRIPT => self.tapscript_reason(script, items),
                // Leaves of other versions are not run.
                Some(Ok(_)) => None,
            },
        }
    }

    fn tapscript_reason(&self, script: &[u8], items: &[Vec<u8>]) -> Option<&'static str> {
        if operations(script).any(|operation| operation.is_torn) {
            return Some(BAD_OPCODE);
        }
        if items.len() > MAX_STACK_SIZE {
            return Some(STACK_SIZE);
        }
        if items.iter().any(|item| item.len() > MAX_SCRIPT_ELEMENT_SIZE) {
            return Some(PUSH_SIZE);
        }
        // The usual script, `<key> CHECKSIG`, whose signature is always within the budget.
        if let ([32, key @ .., CHECKSIG], true) = (script, script.len() == 34) {
            debug_assert_eq!(key.len(), 32);
            return match items {
                [] => Some(INVALID_STACK),
                [sig] if sig.is_empty() => Some(EVAL_FALSE),
                [.., sig] if sig.is_empty() => Some(CLEANSTACK),
                [below @ .., sig] => Some(self.signature_reason(sig))
                    .filter(|reason| below.is_empty() || *reason != SCHNORR_SIG),
            };
        }
        let pushed: Vec<u8> = items.iter().flat_map(|item| push(item)).collect();
        let machine = Machine { is_tapscript: true, ..self.machine(&pushed, None) };
        failing(&machine.possible_outcomes(script, End::OneTrue)?)
    }

    /// Returns the reason for a BIP-0340 signature that is not empty, or must not be empty.
    fn signature_reason(&self, sig: &[u8]) -> &'static str {
        let is_known = |hash_type| match hash_type {
            0x01 | 0x02 | 0x81 | 0x82 => true,
            // SINGLE signs the output at the input's index.
            0x03 | 0x83 => self.has_output,
            _ => false,
        };
        match sig {
            [.., hash_type] if sig.len() == 65 && !is_known(*hash_type) => SCHNORR_SIG_HASHTYPE,
            _ if sig.len() == 64 || sig.len() == 65 => SCHNORR_SIG,
            _ => SCHNORR_SIG_SIZE,
        }
    }
}

/// Returns whether a script is `<m> <keys> <n> CHECKMULTISIG` and all signatures that it takes from the
/// machine's stack are empty or well encoded.
fn takes_well_encoded(machine: &Machine<'_>, script: &[u8]) -> bool {
    let [m @ OP_1..=OP_16, keys @ .., n @ OP_1..=OP_16, CHECKMULTISIG] = script else { return false };
    let is_of_keys = pushes(keys).is_some_and(|keys| keys.len() == usize::from(n - OP_RESERVED));
    let items = pushes(machine.script_sig).unwrap_or_default();
    let sigs = items.len().checked_sub(usize::from(m - OP_RESERVED)).and_then(|below| items.get(below..));
    is_of_keys && sigs.is_some_and(|sigs| sigs.iter().all(|sig| machine.is_well_encoded(sig)))
}

/// Returns the common outcome, if all possible outcomes are equal.
fn only(possible_outcomes: &[PossibleOutcome]) -> Option<PossibleOutcome> {
    let first = possible_outcomes.first()?;
    possible_outcomes.iter().all(|way| way == first).then_some(*first)
}

/// Returns the reason of a script that is known to fail, ignoring outcomes in which it passes.
fn failing(possible_outcomes: &[PossibleOutcome]) -> Option<&'static str> {
    let failures: Vec<PossibleOutcome> =
        possible_outcomes.iter().copied().filter(PossibleOutcome::is_err).collect();
    only(&failures)?.err()
}
