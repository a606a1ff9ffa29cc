//! Helpers of this crate's tests: access to Core's vectors, Core's notation of scripts and flags, and single
//! spends as bytes.

use crate::prelude::*;
use bitcoin::{Amount, OutPoint, Sequence, TxIn, absolute::LockTime, hex::FromHex, transaction::Version};
use wire::script::{is_p2sh, witness_program};

/// Core's names of the opcodes from NOP (0x61) to NOP10 (0xb9), without `OP_`.
const OPCODES: &str = "NOP VER IF NOTIF VERIF VERNOTIF ELSE ENDIF VERIFY RETURN TOALTSTACK FROMALTSTACK \
    2DROP 2DUP 3DUP 2OVER 2ROT 2SWAP IFDUP DEPTH DROP DUP NIP OVER PICK ROLL ROT SWAP TUCK CAT SUBSTR LEFT \
    RIGHT SIZE INVERT AND OR XOR EQUAL EQUALVERIFY RESERVED1 RESERVED2 1ADD 1SUB 2MUL 2DIV NEGATE ABS NOT \
    0NOTEQUAL ADD SUB MUL DIV MOD LSHIFT RSHIFT BOOLAND BOOLOR NUMEQUAL NUMEQUALVERIFY NUMNOTEQUAL LESSTHAN \
    GREATERTHAN LESSTHANOREQUAL GREATERTHANOREQUAL MIN MAX WITHIN RIPEMD160 SHA1 SHA256 HASH160 HASH256 \
    CODESEPARATOR CHECKSIG CHECKSIGVERIFY CHECKMULTISIG CHECKMULTISIGVERIFY NOP1 CHECKLOCKTIMEVERIFY \
    CHECKSEQUENCEVERIFY NOP4 NOP5 NOP6 NOP7 NOP8 NOP9 NOP10";
const OP_NOP: u8 = 0x61;
const OP_RESERVED: u8 = 0x50;

/// Returns one of Core's vectors, out of its sources.
pub(crate) fn vectors(file: &str) -> Value {
    let path = core_sources().expect("the kernel was compiled from them").join("src/test/data").join(file);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    Vec::from_hex(text).unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Parses Core's notation (`core_io.h` `ParseScript`): decimal numbers and quoted texts are pushed, `0x..` is
/// inserted as raw bytes, and anything else is an opcode with or without `OP_`.
pub(crate) fn parse_script(words: &str) -> Vec<u8> {
    let mut script = Vec::new();
    for word in words.split_ascii_whitespace() {
        if let Ok(number) = word.parse::<i64>() {
            script.extend(Builder::new().push_int(number).into_script().into_bytes());
        } else if let Some(raw) = word.strip_prefix("0x") {
            script.extend(unhex(raw));
        } else if let Some(quoted) = word.strip_prefix('\'') {
            let pushed = bitcoin::script::PushBytesBuf::try_from(
                quoted.strip_suffix('\'').unwrap().as_bytes().to_vec(),
            );
            script.extend(Builder::new().push_slice(pushed.unwrap()).into_script().into_bytes());
        } else {
            script.push(opcode(word.strip_prefix("OP_").unwrap_or(word)));
        }
    }
    script
}

fn opcode(name: &str) -> u8 {
    if name == "RESERVED" {
        return OP_RESERVED;
    }
    let at = OPCODES.split_ascii_whitespace().position(|known| known == name);
    OP_NOP + u8::try_from(at.unwrap_or_else(|| panic!("unknown opcode {name}"))).unwrap()
}

/// Parses flags by name. Returns the consensus flags, and the names of the policy flags.
pub(crate) fn parse_flags(names: &str) -> (ScriptFlags, Vec<&str>) {
    let mut flags = ScriptFlags::empty();
    let mut policy = Vec::new();
    for name in names.split(',').filter(|name| !matches!(*name, "" | "NONE")) {
        match ScriptFlags::from_name(name) {
            Some(flag) => flags = flags.union(flag),
            None => policy.push(name),
        }
    }
    (flags, policy)
}

/// Returns all sets of flags that Core accepts: WITNESS needs P2SH, TAPROOT needs WITNESS.
pub(crate) fn all_flags() -> Vec<ScriptFlags> {
    let sets = ScriptFlags::all().iter().fold(vec![ScriptFlags::empty()], |sets, flag| {
        let more = sets.iter().map(|set| set.union(flag)).collect();
        [sets, more].concat()
    });
    let needs = |flags: ScriptFlags, flag, other| !flags.contains(flag) || flags.contains(other);
    let is_run = |flags: &ScriptFlags| {
        needs(*flags, ScriptFlags::WITNESS, ScriptFlags::P2SH)
            && needs(*flags, ScriptFlags::TAPROOT, ScriptFlags::WITNESS)
    };
    sets.into_iter().filter(is_run).collect()
}

/// A coin in the form that `script` takes: amount and script.
pub(crate) type SpentOutput = (Sats, Vec<u8>);

/// Asserts that each input of a transaction passes by itself; returns their number.
pub(crate) fn assert_inputs_pass(tx: &TxView<'_>, coins: &[SpentOutput], flags: ScriptFlags) -> u32 {
    let scripts = prepare(tx.bytes(), coins);
    for (at, (input, coin)) in (0..).zip(tx.inputs().zip(coins)) {
        let result = scripts.verify(at..at + 1, flags);
        assert_eq!(result, Ok(()), "{}: {}", kind_of(&input, &coin.1), input.prevout());
    }
    scripts.input_count()
}

/// Prepares a serialised transaction for verification.
pub(crate) fn prepare(tx: &[u8], coins: &[SpentOutput]) -> TxScripts {
    let mut arena = BlockArena::default();
    let view = arena.parse_tx(tx).unwrap();
    TxScripts::new(&view, coins.iter().map(|(value, script)| (*value, script))).unwrap()
}

/// Returns whether all inputs of a range pass.
///
/// # Panics
/// On any error that is not the failure of a script.
pub(crate) fn passes(scripts: &TxScripts, inputs: std::ops::Range<u32>, flags: ScriptFlags) -> bool {
    match scripts.verify(inputs, flags) {
        Ok(()) => true,
        Err(ScriptError::Failed(failure)) => {
            assert_eq!(failure.flags, flags);
            false
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns the spend of Core's script tests: one transaction creates the coin, another spends it.
pub(crate) fn spend_of(coin: &SpentOutput, script_sig: Vec<u8>, witness: &[Vec<u8>]) -> Vec<u8> {
    let input = |previous_output, script_sig, witness| TxIn {
        previous_output,
        script_sig: ScriptBuf::from_bytes(script_sig),
        sequence: Sequence::MAX,
        witness,
    };
    let tx = |input, script: Vec<u8>| Transaction {
        version: Version::ONE,
        lock_time: LockTime::ZERO,
        input: vec![input],
        output: vec![TxOut {
            value: Amount::from_sat(coin.0.0.try_into().unwrap()),
            script_pubkey: ScriptBuf::from_bytes(script),
        }],
    };
    let credit = tx(input(OutPoint::null(), vec![0, 0], Witness::new()), coin.1.clone());
    let prevout = OutPoint::new(credit.compute_txid(), 0);
    serialize(&tx(input(prevout, script_sig, Witness::from_slice(witness)), vec![]))
}

fn kind_of(input: &InputView<'_>, script: &[u8]) -> &'static str {
    let witness = input.witness().next().is_some();
    match (witness_program(script), script) {
        (Some((0, program)), _) if program.len() == 20 => "P2WPKH",
        (Some((0, _)), _) => "P2WSH",
        (Some((1, program)), _) if program.len() == 32 && input.witness().count() == 1 => "P2TR key path",
        (Some((1, program)), _) if program.len() == 32 => "P2TR script path",
        _ if is_p2sh(script) && !witness => "P2SH",
        _ if is_p2sh(script) && input.script_sig().len() == 23 => "P2SH-P2WPKH",
        _ if is_p2sh(script) => "P2SH-P2WSH",
        (_, [0x76, 0xa9, 20, .., 0x88, 0xac]) => "P2PKH",
        (_, [33 | 65, .., 0xac]) => "P2PK",
        (_, [.., 0xae]) => "multisig",
        _ => "other",
    }
}

/// The number of spends with one change, by kind of change, and the spends that passed nevertheless.
#[derive(Default, Debug)]
pub(crate) struct Changes {
    pub(crate) lock_time: u32,
    pub(crate) script: u32,
    pub(crate) amount: u32,
    pub(crate) other_amount: u32,
    pub(crate) witness: u32,
    pub(crate) script_sig: u32,
    pub(crate) survivors: Vec<String>,
}

/// Returns the offset of `part` in `whole`, of which it is a slice.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}

impl Changes {
    /// Makes one change at a time in a transaction whose inputs pass, and verifies the inputs that must then
    /// fail.
    pub(crate) fn try_all(&mut self, tx: &TxView<'_>, coins: &[SpentOutput], flags: ScriptFlags) {
        let bytes = tx.bytes();
        // Every hash type signs the lock time.
        let relocked = prepare(&flipped(bytes, bytes.len() - 4), coins);
        for (at, (input, coin)) in tx.inputs().zip(coins).enumerate() {
            let kind = kind_of(&input, &coin.1);
            let survivors = &mut self.survivors;
            let mut check = |what: &str, count: &mut u32, scripts: &TxScripts| {
                *count += 1;
                if passes(scripts, at as u32..at as u32 + 1, flags) {
                    survivors.push(format!("{kind} {what}: {}", input.prevout()));
                }
            };
            check("lock time", &mut self.lock_time, &relocked);
            // Half of the inputs are enough for changes that need a separate transaction.
            if at % 2 == 1 && tx.input_count() > 20 {
                continue;
            }
            let with_coin = |at: usize, change: &dyn Fn(&mut SpentOutput)| {
                let mut coins = coins.to_vec();
                change(&mut coins[at]);
                prepare(bytes, &coins)
            };
            let middle = coin.1.len() / 2;
            check("script", &mut self.script, &with_coin(at, &|coin| coin.1[middle] ^= 1));
            for item in input.witness().filter(|item| !item.is_empty()) {
                let changed = flipped(bytes, offset_in(bytes, item) + item.len() / 2);
                check("witness", &mut self.witness, &prepare(&changed, coins));
            }
            if input.witness().next().is_some() {
                check("amount", &mut self.amount, &with_coin(at, &|coin| coin.0.0 += 1));
            }
            if kind.starts_with("P2TR") && coins.len() > 1 {
                // Taproot signs the amounts of all coins.
                let other = with_coin((at + 1) % coins.len(), &|coin| coin.0.0 += 1);
                check("other amount", &mut self.other_amount, &other);
            }
            if !input.script_sig().is_empty() {
                let third = input.script_sig().len() / 3;
                let changed = flipped(bytes, offset_in(bytes, input.script_sig()) + third);
                check("signature script", &mut self.script_sig, &prepare(&changed, coins));
            }
        }
    }
}
