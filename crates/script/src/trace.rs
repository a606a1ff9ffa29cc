//! Finds the operation at which a script fails by running prefixes of it: each is completed so that it passes
//! unless an operation in it fails. The failing operation, and the depth of the stack there, determine the
//! reason.
//!
//! This module does not interpret scripts; the kernel runs them. It cannot check signatures apart from their
//! transaction, so both results of each check are tried ([`Machine::possible_outcomes`]).

use crate::{
    operations::{OP_1, OP_16, Operation, operations, push},
    probe::Probe,
    words::*,
};
use wire::ScriptFlags;

/// Maximum length of an item that a script pushes, in bytes (Core `MAX_SCRIPT_ELEMENT_SIZE`).
pub(crate) const MAX_SCRIPT_ELEMENT_SIZE: usize = 520;
/// Maximum length of a script that is run, in bytes (Core `MAX_SCRIPT_SIZE`).
const MAX_SCRIPT_SIZE: usize = 10_000;
/// Maximum number of operations of a script, without pushes (Core `MAX_OPS_PER_SCRIPT`).
const MAX_OPS: usize = 201;
/// Maximum number of keys of a CHECKMULTISIG, each of which counts as an operation (Core
/// `MAX_PUBKEYS_PER_MULTISIG`).
const MAX_KEYS: usize = 20;
/// Maximum number of signature checks for which all combinations of results are tried.
const MAX_CHECKS: usize = 4;

const IF: u8 = 0x63;
const NOTIF: u8 = 0x64;
const VERIF: u8 = 0x65;
const VERNOTIF: u8 = 0x66;
const ELSE: u8 = 0x67;
const ENDIF: u8 = 0x68;
const OP_VERIFY: u8 = 0x69;
const RETURN: u8 = 0x6a;
const FROMALTSTACK: u8 = 0x6c;
const IFDUP: u8 = 0x73;
const DEPTH: u8 = 0x74;
const DROP: u8 = 0x75;
const DUP: u8 = 0x76;
const OVER: u8 = 0x78;
const PICK: u8 = 0x79;
const ROLL: u8 = 0x7a;
const TUCK: u8 = 0x7d;
const SIZE: u8 = 0x82;
const EQUAL: u8 = 0x87;
const OP_EQUALVERIFY: u8 = 0x88;
const ZERO_NOT_EQUAL: u8 = 0x92;
const BOOL_OR: u8 = 0x9b;
const NUM_EQUAL: u8 = 0x9c;
const NUM_EQUAL_VERIFY: u8 = 0x9d;
const LESS_THAN: u8 = 0x9f;
const GREATER_THAN_OR_EQUAL: u8 = 0xa2;
const WITHIN: u8 = 0xa5;
pub(crate) const CHECKSIG: u8 = 0xac;
const OP_CHECKSIGVERIFY: u8 = 0xad;
pub(crate) const CHECKMULTISIG: u8 = 0xae;
const OP_CHECKMULTISIGVERIFY: u8 = 0xaf;
pub(crate) const CHECKLOCKTIMEVERIFY: u8 = 0xb1;
pub(crate) const CHECKSEQUENCEVERIFY: u8 = 0xb2;
const CHECKSIGADD: u8 = 0xba;

/// A possible outcome of a script: it passes, or fails for a reason.
pub(crate) type PossibleOutcome = Result<(), &'static str>;

/// The condition on the stack at the end of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Any stack.
    Any,
    /// The top item is true.
    True,
    /// The stack is one item, which is true.
    OneTrue,
}

/// A part of a script, in the form in which it is run here.
struct Step<'a> {
    operation: Operation<'a>,
    /// The bytes that are run in its place.
    bytes: Vec<u8>,
    /// Number of operations in `bytes` that are not in the script.
    extra: usize,
    /// The reason why it fails, if that is known beforehand.
    reason: Option<&'static str>,
}

impl Step<'_> {
    fn counts(&self) -> bool {
        self.operation.opcode > OP_16
    }
}

/// Runs scripts on the stack that a signature script leaves.
pub(crate) struct Machine<'a> {
    pub(crate) probe: &'a Probe,
    /// The script that is run before each script.
    pub(crate) script_sig: &'a [u8],
    /// The flags that affect operations; not those of programs, which are run as plain scripts here.
    pub(crate) flags: ScriptFlags,
    pub(crate) is_tapscript: bool,
    /// Whether a CHECKMULTISIG may read a signature that is not well encoded.
    pub(crate) may_be_malformed: bool,
}

impl Machine<'_> {
    /// Returns the outcomes of a script for all possible results of its signature checks; `None` if one of
    /// them cannot be determined.
    pub(crate) fn possible_outcomes(&self, script: &[u8], end: End) -> Option<Vec<PossibleOutcome>> {
        if script.len() > MAX_SCRIPT_SIZE {
            return (!self.is_tapscript).then(|| vec![Err(SCRIPT_SIZE)]);
        }
        let operations: Vec<_> = operations(script).collect();
        let checks = operations.iter().filter(|operation| is_check(operation.opcode)).count();
        let answers = if self.is_tapscript { 1 } else { 3usize.pow(checks.min(MAX_CHECKS) as u32) };
        let mut possible_outcomes = Vec::new();
        for answers in 0..answers {
            let Some((steps, is_whole)) = self.steps(&operations, answers) else { continue };
            possible_outcomes.push(self.way(&steps, is_whole, end)?);
        }
        Some(possible_outcomes)
    }

    /// Returns the steps of a script whose checks have these results (base 3: false, true, malformed
    /// signature), and whether they are the whole script; `None` if a check cannot have such a result.
    fn steps<'a>(&self, operations: &[Operation<'a>], mut answers: usize) -> Option<(Vec<Step<'a>>, bool)> {
        let mut steps = Vec::new();
        let mut checks = 0;
        for operation in operations {
            let opcode = operation.opcode;
            let (mut bytes, mut extra, mut reason) = (operation.bytes.to_vec(), 0, None);
            match opcode {
                // The bytes that follow must not complete it. Like a truncated push, VERIF fails even if it
                // is not executed.
                _ if operation.is_torn => bytes = vec![VERIF],
                CHECKSIG | OP_CHECKSIGVERIFY | CHECKSIGADD if self.is_tapscript => {
                    return Some((steps, false));
                }
                _ if is_check(opcode) && !self.is_tapscript => {
                    if checks == MAX_CHECKS {
                        return Some((steps, false));
                    }
                    let answer = answers % 3;
                    if answer == 2 && !(is_multi(opcode) && self.may_be_malformed) {
                        return None;
                    }
                    check(&mut steps, *operation, answer);
                    (checks, answers) = (checks + 1, answers / 3);
                    continue;
                }
                IF | NOTIF if self.is_tapscript => {
                    let is_minimal = [DUP, 0, EQUAL, OVER, OP_1, EQUAL, BOOL_OR, OP_VERIFY];
                    (bytes, extra) = ([&is_minimal[..], &bytes].concat(), 6);
                }
                CHECKMULTISIG | OP_CHECKMULTISIGVERIFY => {
                    (bytes, reason) = (vec![0, OP_VERIFY], Some(TAPSCRIPT_CHECKMULTISIG));
                }
                _ => {}
            }
            steps.push(Step { operation: *operation, bytes, extra, reason });
        }
        Some((steps, true))
    }

    fn way(&self, steps: &[Step<'_>], is_whole: bool, end: End) -> Option<PossibleOutcome> {
        // If even an empty script does not pass, the failure is in the signature script.
        if !self.runs(&[])? {
            return None;
        }
        if self.runs(steps) == Some(true) {
            return if is_whole { self.end(steps, end) } else { None };
        }
        // An undetermined result for a longer prefix may be determined for a shorter one.
        let (mut good, mut bad) = (0, steps.len());
        while bad - good > 1 {
            let middle = usize::midpoint(good, bad);
            let runs = self.runs(steps.get(..middle)?) == Some(true);
            *(if runs { &mut good } else { &mut bad }) = middle;
        }
        if self.runs(steps.get(..bad)?)? {
            return None;
        }
        self.reason(steps.get(..good)?, steps.get(good)?).map(Err)
    }

    /// Returns whether these steps run without a failure; `None` if that cannot be determined.
    fn runs(&self, steps: &[Step<'_>]) -> Option<bool> {
        if self.passes_then(steps, &[]) {
            return Some(true);
        }
        let size = steps.iter().map(|step| step.bytes.len()).sum::<usize>() + nesting(steps) + 2;
        (size <= MAX_SCRIPT_SIZE && !self.is_crowded(steps)).then_some(false)
    }

    /// Returns whether the added operations could exceed the limit although the script's own do not.
    fn is_crowded(&self, steps: &[Step<'_>]) -> bool {
        let own = steps.iter().filter(|step| step.counts()).count();
        let keys = steps.iter().filter(|step| is_multi(step.operation.opcode)).count() * MAX_KEYS;
        let extra = steps.iter().map(|step| step.extra).sum::<usize>() + nesting(steps);
        (own <= MAX_OPS || self.is_tapscript) && own + keys + extra > MAX_OPS
    }

    /// Returns whether the steps, followed by a check of the stack, run without a failure.
    fn passes_then(&self, steps: &[Step<'_>], question: &[u8]) -> bool {
        let mut script: Vec<u8> = steps.iter().flat_map(|step| &step.bytes).copied().collect();
        script.extend(question);
        script.extend(std::iter::repeat_n(ENDIF, nesting(steps)));
        // The second form is for a full stack, which has no space for another item.
        [&[OP_1][..], &[DROP, OP_1]].iter().any(|close| self.passes(&[&script, *close].concat()))
    }

    /// Returns whether a signature is empty or encoded as the flags require.
    pub(crate) fn is_well_encoded(&self, sig: &[u8]) -> bool {
        // With the empty key, CHECKSIG returns false for all well-encoded signatures and fails for others.
        self.probe.passes(&push(sig), &[0, CHECKSIG, DROP, OP_1], self.flags)
    }

    fn passes(&self, script: &[u8]) -> bool {
        self.probe.passes(self.script_sig, script, self.flags)
    }

    fn end(&self, steps: &[Step<'_>], end: End) -> Option<PossibleOutcome> {
        if nesting(steps) > 0 {
            return Some(Err(UNBALANCED));
        }
        if end == End::OneTrue && !self.passes_then(steps, &[DEPTH, OP_1, NUM_EQUAL_VERIFY]) {
            let is_another = [DEPTH, OP_1, NUM_EQUAL, 0, NUM_EQUAL_VERIFY];
            return self.passes_then(steps, &is_another).then_some(Err(CLEANSTACK));
        }
        let script: Vec<u8> = steps.iter().flat_map(|step| &step.bytes).copied().collect();
        Some(if end == End::Any || self.passes(&script) { Ok(()) } else { Err(EVAL_FALSE) })
    }

    /// Returns the reason why a step fails after others that do not.
    fn reason(&self, before: &[Step<'_>], step: &Step<'_>) -> Option<&'static str> {
        if let Some(reason) = step.reason {
            return Some(reason);
        }
        let Operation { opcode, data, is_torn, .. } = step.operation;
        let counted = before.iter().chain([step]).filter(|step| step.counts()).count();
        match opcode {
            _ if is_torn => return Some(BAD_OPCODE),
            _ if data.is_some_and(|data| data.len() > MAX_SCRIPT_ELEMENT_SIZE) => return Some(PUSH_SIZE),
            _ if step.counts() && counted > MAX_OPS && !self.is_tapscript => return Some(OP_COUNT),
            _ if is_disabled(opcode) => return Some(DISABLED_OPCODE),
            VERIF | VERNOTIF => return Some(BAD_OPCODE),
            ELSE | ENDIF => return Some(UNBALANCED),
            RETURN => return Some(OP_RETURN),
            FROMALTSTACK => return Some(INVALID_ALTSTACK),
            _ if data.is_some() => return Some(STACK_SIZE),
            _ => {}
        }
        let Some(items) = items_of(opcode) else { return Some(BAD_OPCODE) };
        if self.has_too_few(before, items)? {
            return Some(INVALID_STACK);
        }
        let replaced = |question: &[u8]| self.passes_then(before, question);
        Some(match opcode {
            // The check for minimal form needs free space on the stack.
            IF | NOTIF if self.is_tapscript && replaced(&[OP_1; 4]) => TAPSCRIPT_MINIMALIF,
            OP_VERIFY => VERIFY,
            OP_EQUALVERIFY => EQUALVERIFY,
            NUM_EQUAL_VERIFY if replaced(&[NUM_EQUAL]) => NUMEQUALVERIFY,
            NUM_EQUAL_VERIFY => SCRIPTNUM,
            PICK | ROLL if replaced(&[ZERO_NOT_EQUAL]) => INVALID_STACK,
            PICK | ROLL => SCRIPTNUM,
            0x6e..=0x70 | IFDUP | DEPTH | DUP | OVER | TUCK | SIZE => STACK_SIZE,
            0x8b..=0xa5 => SCRIPTNUM,
            CHECKSIG | OP_CHECKSIGVERIFY => SIG_DER,
            CHECKMULTISIG | OP_CHECKMULTISIGVERIFY => return self.multisig_reason(before, step),
            CHECKLOCKTIMEVERIFY | CHECKSEQUENCEVERIFY => return self.lock_reason(before),
            _ => return None,
        })
    }

    /// Returns whether the stack has fewer items than `items`; `None` if that cannot be determined.
    fn has_too_few(&self, steps: &[Step<'_>], items: u8) -> Option<bool> {
        let ask = |comparison| {
            let number = if items == 0 { 0 } else { OP_1 - 1 + items };
            self.passes_then(steps, &[DEPTH, number, comparison, OP_VERIFY])
        };
        match (ask(LESS_THAN), ask(GREATER_THAN_OR_EQUAL)) {
            (false, false) => None,
            (is_less, _) => Some(is_less),
        }
    }

    /// Returns the reason for a lock whose number is on the stack.
    fn lock_reason(&self, before: &[Step<'_>]) -> Option<&'static str> {
        let last = before.last().map(|step| step.operation).or_else(|| operations(self.script_sig).last());
        let number = last.and_then(|operation| operation.data);
        if self.passes_then(before, &[0, LESS_THAN, OP_VERIFY]) {
            Some(NEGATIVE_LOCKTIME)
        } else if self.passes_then(before, &[0, GREATER_THAN_OR_EQUAL, OP_VERIFY]) {
            Some(UNSATISFIED_LOCKTIME)
        } else if self.passes_then(before, &[SIZE, OP_1 + 5, GREATER_THAN_OR_EQUAL, OP_VERIFY]) {
            Some(SCRIPTNUM)
        } else if let Some([.., top]) = number.filter(|number| number.len() == 5) {
            // Too long for arithmetic: the push shows its sign.
            Some(if top & 0x80 == 0 { UNSATISFIED_LOCKTIME } else { NEGATIVE_LOCKTIME })
        } else {
            None
        }
    }

    /// Returns the reason for a CHECKMULTISIG on a stack that is not empty.
    fn multisig_reason(&self, before: &[Step<'_>], step: &Step<'_>) -> Option<&'static str> {
        let without = |flag| {
            let machine = Machine { flags: self.flags.without(flag), ..*self };
            machine.passes_then(before, &step.bytes)
        };
        // No signature is valid for the probe, so only the first one is read here.
        if without(ScriptFlags::DERSIG) || without(ScriptFlags::DERSIG.with(ScriptFlags::NULLDUMMY)) {
            let is_dummy = without(ScriptFlags::NULLDUMMY);
            return match (is_dummy, self.may_be_malformed) {
                (false, _) => Some(SIG_DER),
                (true, false) => Some(SIG_NULLDUMMY),
                (true, true) => None,
            };
        }
        let ask = |question: &[u8]| self.passes_then(before, question);
        let is_number = [ZERO_NOT_EQUAL, DROP];
        if !ask(&[0, 1, MAX_KEYS as u8 + 1, WITHIN, OP_VERIFY]) {
            return Some(if ask(&is_number) { PUBKEY_COUNT } else { SCRIPTNUM });
        }
        let number = |number: usize| push(&[number as u8]);
        let is = |keys: &usize| ask(&[&number(*keys)[..], &[NUM_EQUAL_VERIFY]].concat());
        let keys = (0..=MAX_KEYS).find(is)?;
        let below = |question: &[u8]| {
            let pick = [&[DROP][..], &number(keys), &[PICK], question].concat();
            ask(&pick)
        };
        if !below(&[]) {
            // There are fewer items than keys, or no item for the number of signatures.
            return Some(INVALID_STACK);
        }
        if below(&[&[0][..], &number(keys + 1), &[WITHIN, OP_VERIFY]].concat()) {
            return Some(INVALID_STACK);
        }
        Some(if below(&is_number) { SIG_COUNT } else { SCRIPTNUM })
    }
}

/// Appends the steps of a signature check whose result is replaced by `answer`.
fn check<'a>(steps: &mut Vec<Step<'a>>, operation: Operation<'a>, answer: usize) {
    let opcode = operation.opcode;
    let failed = match opcode {
        _ if answer == 2 => Some(SIG_DER),
        OP_CHECKSIGVERIFY if answer == 0 => Some(CHECKSIGVERIFY),
        OP_CHECKMULTISIGVERIFY if answer == 0 => Some(CHECKMULTISIGVERIFY),
        _ => None,
    };
    let (check, is_verify) = match opcode {
        OP_CHECKSIGVERIFY => (CHECKSIG, true),
        OP_CHECKMULTISIGVERIFY => (CHECKMULTISIG, true),
        _ => (opcode, false),
    };
    let mut bytes = vec![check, DROP];
    if !is_verify {
        bytes.push(if answer == 1 { OP_1 } else { 0 });
    }
    steps.push(Step { operation, bytes, extra: 1, reason: None });
    if failed.is_some() {
        let nothing = Operation { opcode: 0, data: None, bytes: &[], is_torn: false };
        steps.push(Step { operation: nothing, bytes: vec![0, OP_VERIFY], extra: 1, reason: failed });
    }
}

/// Returns the number of IFs that are open after these steps, executed or not.
fn nesting(steps: &[Step<'_>]) -> usize {
    steps.iter().fold(0, |open: usize, step| match step.operation.opcode {
        IF | NOTIF => open + 1,
        ENDIF => open.saturating_sub(1),
        _ => open,
    })
}

const fn is_multi(opcode: u8) -> bool {
    matches!(opcode, CHECKMULTISIG | OP_CHECKMULTISIGVERIFY)
}

/// Returns whether an operation checks signatures.
const fn is_check(opcode: u8) -> bool {
    matches!(opcode, CHECKSIG | OP_CHECKSIGVERIFY) || is_multi(opcode)
}

/// Returns whether an operation is disabled: CAT to RIGHT, INVERT to XOR, 2MUL, 2DIV, MUL to RSHIFT.
const fn is_disabled(opcode: u8) -> bool {
    matches!(opcode, 0x7e..=0x81 | 0x83..=0x86 | 0x8d | 0x8e | 0x95..=0x99)
}

/// Returns the number of stack items that an operation requires before its other checks; `None` if there is
/// no such operation.
const fn items_of(opcode: u8) -> Option<u8> {
    Some(match opcode {
        // NOPs, DEPTH, CODESEPARATOR.
        0x61 | DEPTH | 0xab | 0xb0 | 0xb3..=0xb9 => 0,
        // TOALTSTACK; arithmetic with one operand; hashes.
        IF | NOTIF | OP_VERIFY | 0x6b | IFDUP | DROP | DUP | SIZE => 1,
        0x8b | 0x8c | 0x8f..=ZERO_NOT_EQUAL | 0xa6..=0xaa | CHECKLOCKTIMEVERIFY | CHECKSEQUENCEVERIFY => 1,
        CHECKMULTISIG | OP_CHECKMULTISIGVERIFY => 1,
        // 2DROP, 2DUP, NIP to ROLL, SWAP, TUCK; arithmetic with two operands.
        0x6d | 0x6e | 0x77..=ROLL | 0x7c | TUCK | EQUAL | OP_EQUALVERIFY => 2,
        0x93 | 0x94 | 0x9a..=0xa4 | CHECKSIG | OP_CHECKSIGVERIFY => 2,
        // 3DUP, ROT.
        0x6f | 0x7b | WITHIN => 3,
        // 2OVER, 2SWAP.
        0x70 | 0x72 => 4,
        // 2ROT.
        0x71 => 6,
        _ => return None,
    })
}
