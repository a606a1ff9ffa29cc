//! Bitcoin Core's vectors: `script_tests.json`, `tx_valid.json`, `tx_invalid.json`, `sighash.json`.
//!
//! They use policy flags too, which do not apply to blocks. A policy flag can only make more scripts fail. So
//! cases that pass must also pass without it; cases that fail are run without it if their error cannot come
//! from the flag, and otherwise counted as inapplicable.

use crate::{common, prelude::*};

use bitcoin::{
    hashes::Hash,
    key::Secp256k1,
    secp256k1::SecretKey,
    sighash::SighashCache,
    taproot::{LeafVersion, TaprootBuilder},
};
use common::{SpentOutput, all_flags, parse_flags, parse_script, passes, prepare, spend_of, text, unhex};
use std::collections::BTreeMap;
use wire::{OutPoint, Txid};

/// Returns whether an error can come from a policy flag in `policy`, in a case whose consensus flags are
/// `flags`.
fn is_of_policy(error: &str, flags: ScriptFlags, policy: &[&str]) -> bool {
    let has = |name: &str| policy.contains(&name);
    match error {
        "SIG_DER" => !flags.contains(ScriptFlags::DERSIG),
        "SIG_PUSHONLY" => has("SIGPUSHONLY"),
        "SCRIPTNUM" => has("MINIMALDATA"),
        "SIG_HASHTYPE" | "PUBKEYTYPE" => has("STRICTENC"),
        "SIG_HIGH_S" => has("LOW_S"),
        "CLEANSTACK" | "MINIMALDATA" | "MINIMALIF" | "NULLFAIL" | "WITNESS_PUBKEYTYPE" => has(error),
        _ => error.starts_with("DISCOURAGE") || matches!(error, "OP_CODESEPARATOR" | "SIG_FINDANDDELETE"),
    }
}

/// Returns the output key and the control block of a tree with one script; the internal key is the generator.
fn taproot_of(leaf: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let secp = Secp256k1::new();
    let mut one = [0; 32];
    one[31] = 1;
    let (key, _) = SecretKey::from_slice(&one).unwrap().x_only_public_key(&secp);
    let leaf = bitcoin::ScriptBuf::from_bytes(leaf.to_vec());
    let tree = TaprootBuilder::new().add_leaf(0, leaf.clone()).unwrap().finalize(&secp, key).unwrap();
    let control = tree.control_block(&(leaf, LeafVersion::TapScript)).unwrap();
    ([&[0x51, 0x20], &tree.output_key().serialize()[..]].concat(), control.serialize())
}

/// Decodes a row of `script_tests.json`: coin, signature script, witness, flags, expected error.
fn script_case(row: &[Value]) -> (SpentOutput, Vec<u8>, Vec<Vec<u8>>, &str, &str) {
    let (witness, row) = row[0].as_array().map_or((None, row), |witness| (Some(witness), &row[1..]));
    let mut items: Vec<Vec<u8>> = Vec::new();
    let mut output_script = None;
    let mut sats = 0;
    if let Some((amount, stack)) = witness.and_then(|witness| witness.split_last()) {
        sats = (amount.as_f64().unwrap() * 1e8).round() as i64;
        for item in stack.iter().map(text) {
            if let Some(leaf) = item.strip_prefix("#SCRIPT#") {
                items.push(parse_script(leaf));
            } else if item == "#CONTROLBLOCK#" {
                let (script, control) = taproot_of(items.last().unwrap());
                items.push(control);
                output_script = Some(script);
            } else {
                items.push(unhex(item));
            }
        }
    }
    let script = output_script.unwrap_or_else(|| parse_script(text(&row[1])));
    ((Sats(sats), script), parse_script(text(&row[0])), items, text(&row[2]), text(&row[3]))
}

#[test]
fn script_tests() {
    let rows = common::vectors("script_tests.json");
    let cases: Vec<_> =
        rows.as_array().unwrap().iter().filter_map(Value::as_array).filter(|row| row.len() >= 4).collect();
    assert_eq!(cases.len(), 1222);
    let (mut passed, mut failed, mut inapplicable) = (0, 0, 0);
    for row in cases {
        let (coin, script_sig, witness, names, error) = script_case(row);
        let (mut flags, policy) = parse_flags(names);
        if policy.contains(&"CLEANSTACK") {
            flags = flags.union(ScriptFlags::P2SH).union(ScriptFlags::WITNESS);
        }
        let wanted = error == "OK";
        if !wanted && is_of_policy(error, flags, &policy) {
            inapplicable += 1;
            continue;
        }
        let scripts = prepare(&spend_of(&coin, script_sig, &witness), std::slice::from_ref(&coin));
        *(if wanted { &mut passed } else { &mut failed }) += 1;
        // A case that passes also passes under fewer flags; a case that fails also fails under more.
        for other in all_flags() {
            let (fewer, more) = (flags.contains(other), other.contains(flags));
            if if wanted { fewer } else { more } {
                assert_eq!(passes(&scripts, 0..1, other), wanted, "{other}: {row:?}");
            }
        }
        assert_eq!(passes(&scripts, 0..1, flags), wanted, "{row:?}");
    }
    assert_eq!((passed, failed, inapplicable), (675, 1222 - 675 - 129, 129));
}

/// Decodes a row of `tx_valid.json` or `tx_invalid.json`, unless it is a comment: the transaction and its
/// flags.
fn tx_case(row: &Value) -> Option<(TxScripts, &str)> {
    let coins = row[0].as_array()?;
    let mut found = BTreeMap::new();
    for coin in coins {
        let txid: Txid = text(&coin[0]).parse().unwrap();
        let outpoint = OutPoint { txid, vout: coin[1].as_i64().unwrap() as u32 };
        found.insert(outpoint, (Sats(coin[3].as_i64().unwrap_or(0)), parse_script(text(&coin[2]))));
    }
    let bytes = unhex(text(&row[1]));
    let mut arena = BlockArena::default();
    let tx = arena.parse_tx(&bytes).unwrap();
    let coins: Option<Vec<_>> = tx.inputs().map(|input| found.get(&input.prevout()).cloned()).collect();
    let names = text(&row[2]);
    assert!(coins.is_some() || names == "BADTX");
    Some((prepare(&bytes, &coins.unwrap_or_else(|| vec![SpentOutput::default(); tx.input_count()])), names))
}

fn tx_passes(scripts: &TxScripts, flags: ScriptFlags) -> bool {
    passes(scripts, 0..scripts.input_count(), flags)
}

/// Returns the flags without one, and without those that need it (Core's test: `TrimFlags`).
fn trimmed(flags: ScriptFlags, flag: ScriptFlags) -> ScriptFlags {
    let fewer = flags.difference(flag);
    if fewer.contains(ScriptFlags::P2SH) { fewer } else { fewer.difference(ScriptFlags::WITNESS) }
}

/// In this file, the flags are those that must not be set.
#[test]
fn tx_valid() {
    let rows = common::vectors("tx_valid.json");
    let (mut cases, mut tight) = (0, 0);
    for row in rows.as_array().unwrap() {
        let Some((scripts, names)) = tx_case(row) else { continue };
        let (off, _) = parse_flags(names);
        let flags = ScriptFlags::all().difference(off);
        for fewer in all_flags().into_iter().filter(|fewer| flags.contains(*fewer)) {
            assert!(tx_passes(&scripts, fewer), "{fewer}: {row}");
        }
        assert!(tx_passes(&scripts, flags), "{row}");
        // With any of them it would fail.
        for flag in off {
            assert!(!tx_passes(&scripts, flags.union(flag)), "{flag}: {row}");
            tight += 1;
        }
        cases += 1;
    }
    assert_eq!((cases, tight), (121, 10));
}

#[test]
fn tx_invalid() {
    let rows = common::vectors("tx_invalid.json");
    let (mut failed, mut of_policy, mut bad) = (0, 0, 0);
    for row in rows.as_array().unwrap() {
        let Some((scripts, names)) = tx_case(row) else { continue };
        let (flags, policy) = parse_flags(names);
        if names == "BADTX" {
            // Invalid whatever the result of its scripts: a rule rejects it.
            bad += 1;
            continue;
        }
        if !policy.is_empty() {
            // In Core's suite each flag is needed to make the case fail.
            assert!(tx_passes(&scripts, flags), "{row}");
            of_policy += 1;
            continue;
        }
        for more in all_flags().into_iter().filter(|more| more.contains(flags)) {
            assert!(!tx_passes(&scripts, more), "{more}: {row}");
        }
        assert!(!tx_passes(&scripts, flags), "{row}");
        for flag in flags {
            assert!(tx_passes(&scripts, trimmed(flags, flag)), "{flag}: {row}");
        }
        failed += 1;
    }
    assert_eq!((failed + of_policy + bad, bad), (93, 9));
}

/// The kernel does not return signature hashes, and these vectors have hash types of four bytes, of which a
/// signature contains one. So the test compares all hashes with those of the library that tests sign with,
/// and then signs each of these unusual transactions with it: the kernel must accept a signature of that
/// hash, and of no other.
#[test]
fn sighash() {
    let rows = common::vectors("sighash.json");
    let signer = testkit::keys::Signer::new(1);
    let key = testkit::keys::random_key(&mut testkit::rng::Rng::new(1, "sighash"));
    let lock = Builder::new().push_slice(key.public.serialize()).into_script().into_bytes();
    let lock = [lock, vec![0xac]].concat();
    let mut cases = 0;
    let has_five = |row: &&Value| row.as_array().is_some_and(|row| row.len() == 5);
    for row in rows.as_array().unwrap().iter().filter(has_five) {
        let mut tx: Transaction = deserialize(&unhex(text(&row[0]))).unwrap();
        let mut script = unhex(text(&row[1]));
        let index = row[2].as_u64().unwrap() as usize;
        let hash_type = row[3].as_i64().unwrap() as i32 as u32;
        // Core removes separators from the script, the library leaves that to its caller. These scripts push
        // nothing, so that every byte is an opcode.
        assert!(script.iter().all(|opcode| !(1..=0x4e).contains(opcode)));
        script.retain(|opcode| *opcode != 0xab);
        let hash = |tx: &Transaction, script: &[u8], hash_type| {
            let script = bitcoin::Script::from_bytes(script);
            let cache = SighashCache::new(tx);
            cache.legacy_signature_hash(index, script, hash_type).unwrap().to_byte_array()
        };
        assert_eq!(Txid(hash(&tx, &script, hash_type)).to_string(), text(&row[4]), "{row}");

        let byte = hash_type as u8;
        let digest = hash(&tx, &lock, byte.into());
        let signature = [signer.ecdsa(&key, &digest), vec![byte]].concat();
        let pushed = bitcoin::script::PushBytesBuf::try_from(signature.clone()).unwrap();
        tx.input[index].script_sig = Builder::new().push_slice(pushed).into_script();
        let coins = vec![(Sats(0), lock.clone()); tx.input.len()];
        let at = index as u32..index as u32 + 1;
        assert!(passes(&prepare(&serialize(&tx), &coins), at.clone(), ScriptFlags::all()), "{row}");
        // The version is signed whatever the hash type, unless there is no output to sign.
        tx.version.0 ^= 1;
        let signs_nothing = byte & 0x1f == 3 && index >= tx.output.len();
        let changed = passes(&prepare(&serialize(&tx), &coins), at, ScriptFlags::all());
        assert_eq!(changed, signs_nothing, "{row}");
        cases += 1;
    }
    assert_eq!(cases, 500);
}
