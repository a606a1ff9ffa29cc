//! The taproot suite `script_assets_test.json` and BIP-0341's wallet vectors.

use crate::common;

use bitcoin::{
    ScriptBuf, Transaction, TxOut, Witness,
    consensus::{deserialize, serialize},
};
use common::{SpentOutput, all_flags, parse_flags, passes, prepare, text, unhex};
use peregrine_script::{ScriptError, ScriptFailure, TxScripts};
use serde_json::Value;
use std::thread;
use wire::{Sats, ScriptFlags};

fn coins_of(prevouts: &Value) -> Vec<SpentOutput> {
    let outputs = prevouts.as_array().unwrap().iter();
    let outputs = outputs.map(|output| deserialize::<TxOut>(&unhex(text(output))).unwrap());
    outputs
        .map(|output| (Sats(output.value.to_sat().cast_signed()), output.script_pubkey.into_bytes()))
        .collect()
}

/// Returns the case's transaction with the input data of variant `way`; `None` if the case does not have it.
fn with_input(case: &Value, way: &str) -> Option<TxScripts> {
    let way = case.get(way)?;
    let mut tx: Transaction = deserialize(&unhex(text(&case["tx"]))).unwrap();
    let input = &mut tx.input[case["index"].as_u64().unwrap() as usize];
    input.script_sig = ScriptBuf::from_bytes(unhex(text(&way["scriptSig"])));
    let items: Vec<_> = way["witness"].as_array().unwrap().iter().map(|item| unhex(text(item))).collect();
    input.witness = Witness::from_slice(&items);
    Some(prepare(&serialize(&tx), &coins_of(&case["prevouts"])))
}

const EVAL_FALSE: &str = "Script evaluated without error but finished with a false/empty top stack element";
const BAD_OPCODE: &str = "Opcode missing or not understood";
const CLEANSTACK: &str = "Stack size must be exactly one after execution";
const MISMATCH: &str = "Witness program hash mismatch";
const OP_RETURN: &str = "OP_RETURN was encountered";
const PUSH_SIZE: &str = "Push value size limit exceeded";
const SCHNORR_SIG: &str = "Invalid Schnorr signature";
const SCHNORR_SIG_HASHTYPE: &str = "Invalid Schnorr signature hash type";
const SCHNORR_SIG_SIZE: &str = "Invalid Schnorr signature size";
const STACK_SIZE: &str = "Stack size limit exceeded";

/// The reasons of failures that Core's own taproot test expects and `script` can report, by the start of a
/// case's comment. If there are two, the case's hash type decides.
const REASONS: &[(&str, &[&str])] = &[
    ("legacy/", &[EVAL_FALSE]),
    ("compat/nocsa", &[BAD_OPCODE]),
    ("compact/nocsa", &[BAD_OPCODE]),
    ("sig/", &[SCHNORR_SIG]),
    ("output/invalid_x", &[MISMATCH]),
    ("sighash/hashtype0_byte", &[SCHNORR_SIG_HASHTYPE]),
    ("sighash/keypath_hashtype_mis", &[SCHNORR_SIG_HASHTYPE]),
    ("sighash/keypath_unk_hashtype", &[SCHNORR_SIG_HASHTYPE]),
    ("sighash/scriptpath_hashtype_mis", &[SCHNORR_SIG_HASHTYPE]),
    ("sighash/scriptpath_unk_hashtype", &[SCHNORR_SIG_HASHTYPE]),
    ("sighash/", &[SCHNORR_SIG]),
    ("applic/keypath", &[SCHNORR_SIG]),
    ("applic/scriptpath", &[OP_RETURN]),
    ("siglen/empty_keypath", &[SCHNORR_SIG_SIZE]),
    ("siglen/empty_cs_neg", &[SCHNORR_SIG_SIZE]),
    ("siglen/empty_csa_neg", &[SCHNORR_SIG_SIZE]),
    ("siglen/empty_cs", &[EVAL_FALSE]),
    ("siglen/padzero", &[SCHNORR_SIG_HASHTYPE, SCHNORR_SIG_SIZE]),
    ("siglen/popbyte", &[SCHNORR_SIG_SIZE, SCHNORR_SIG]),
    ("spendpath/emptywit", &["Witness program was passed an empty witness"]),
    ("spendpath/negflag", &[MISMATCH]),
    ("spendpath/bitflip", &[MISMATCH]),
    ("spendpath/", &["Invalid Taproot control block size"]),
    ("tapscript/inputmaxlimit", &[PUSH_SIZE]),
    ("tapscript/pushmaxlimit", &[PUSH_SIZE]),
    ("tapscript/disabled_", &["OP_CHECKMULTISIG(VERIFY) is not available in tapscript"]),
    ("tapscript/minimal", &["OP_IF/NOTIF argument must be minimal in tapscript"]),
    ("tapscript/1000", &[STACK_SIZE]),
    ("tapscript/bigmulti", &[STACK_SIZE]),
    ("tapscript/oldpk", &[SCHNORR_SIG]),
    ("tapscript/cleanstack", &[CLEANSTACK]),
    ("tutorial/pushredux", &[EVAL_FALSE]),
    ("tutorial/nonminpush", &[CLEANSTACK]),
    ("unkver/bare", &[CLEANSTACK]),
    ("unkver/return", &[OP_RETURN]),
    ("unkver/undecodable", &[BAD_OPCODE]),
    ("unkver/bigpush", &[PUSH_SIZE]),
    ("unkver/1001", &[STACK_SIZE]),
    ("opsuccess/bare", &[CLEANSTACK]),
    ("opsuccess/unexecif", &[CLEANSTACK]),
    ("opsuccess/exexecif", &[CLEANSTACK]),
    ("opsuccess/return", &[OP_RETURN]),
    ("opsuccess/undecodable", &[BAD_OPCODE]),
    ("opsuccess/bigpush", &[PUSH_SIZE]),
    ("opsuccess/1001", &[STACK_SIZE]),
];
/// For these, that test does not name a reason, since it depends on the opcode; they are not counted.
const OF_ITS_OPCODE: &str = "alwaysvalid/notsuccessx";

/// Returns whether a failure reports a reason, which then must be the right one.
fn reason_is_right(case: &Value, result: Result<(), ScriptError>) -> bool {
    let comment = text(&case["comment"]);
    let Err(ScriptError::Failed(ScriptFailure { reason: Some(reason), .. })) = result else { return false };
    if comment.starts_with(OF_ITS_OPCODE) {
        return false;
    }
    let expected = REASONS.iter().find(|(start, _)| comment.starts_with(start));
    assert!(expected.is_some_and(|(_, reasons)| reasons.contains(&reason)), "{comment}: {reason}");
    true
}

/// Runs one case under all flags for which its verdict is known; returns the numbers of successes, failures,
/// runs and reported reasons.
fn run(case: &Value) -> [u32; 4] {
    let index = case["index"].as_u64().unwrap() as u32;
    let (flags, policy) = parse_flags(text(&case["flags"]));
    assert!(policy.is_empty());
    let is_final = case["final"].as_bool() == Some(true);
    let mut counts = [0; 4];
    if let Some(scripts) = with_input(case, "success") {
        counts[0] += 1;
        // Cases marked final pass under any flags, all others under fewer than their own.
        for fewer in all_flags().into_iter().filter(|fewer| is_final || flags.contains(*fewer)) {
            assert!(passes(&scripts, index..index + 1, fewer), "{fewer}: {}", case["comment"]);
            counts[2] += 1;
        }
    }
    if let Some(scripts) = with_input(case, "failure") {
        counts[1] += 1;
        counts[3] += u32::from(reason_is_right(case, scripts.verify(index..index + 1, flags)));
        for more in all_flags().into_iter().filter(|more| more.contains(flags)) {
            assert!(!passes(&scripts, index..index + 1, more), "{more}: {}", case["comment"]);
            counts[2] += 1;
        }
    }
    counts
}

#[test]
fn script_assets() {
    let Some(cases) = common::vectors("script_assets_test.json.xz") else { return };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let counts = thread::scope(|scope| {
        let parts = cases.chunks(cases.len().div_ceil(threads));
        let parts: Vec<_> =
            parts.map(|part| scope.spawn(|| part.iter().map(run).collect::<Vec<_>>())).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    let [successes, failures, runs, reasons] =
        counts.iter().fold([0; 4], |sum, count| [0, 1, 2, 3].map(|at| sum[at] + count[at]));
    println!(
        "script_assets_test.json: {} cases: {successes} spends pass, {failures} fail ({runs} runs)",
        counts.len()
    );
    assert_eq!((counts.len(), successes, failures), (2244, 2244, 1493));
    println!("  {reasons} of the failures report Core's reason");
    assert_eq!(reasons, 779);
}

/// The transaction of the wallet vectors spends by key path with all hash types.
#[test]
fn wallet_vectors() {
    let Some(files) = common::vectors("bip341_wallet_vectors.json") else { return };
    let mut inputs = 0;
    for case in files[0]["keyPathSpending"].as_array().unwrap() {
        let bytes = unhex(text(&case["auxiliary"]["fullySignedTx"]));
        let coins: Vec<SpentOutput> = case["given"]["utxosSpent"]
            .as_array()
            .unwrap()
            .iter()
            .map(|coin| (Sats(coin["amountSats"].as_i64().unwrap()), unhex(text(&coin["scriptPubKey"]))))
            .collect();
        let scripts = prepare(&bytes, &coins);
        assert!(passes(&scripts, 0..scripts.input_count(), ScriptFlags::ALL));
        // Each coin's amount is signed by the inputs that do not leave the others out.
        for changed in 0..coins.len() {
            let mut coins = coins.clone();
            coins[changed].0.0 += 1;
            let scripts = prepare(&bytes, &coins);
            assert!(!passes(&scripts, 0..scripts.input_count(), ScriptFlags::ALL), "{changed}");
        }
        inputs += scripts.input_count();
    }
    println!("bip341_wallet_vectors.json: {inputs} inputs pass, and fail with one amount changed");
    assert_eq!(inputs, 9);
}
