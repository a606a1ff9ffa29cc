//! The hash types of an input's signatures, by the form of the data: no script is run.

use bitcoin::{Script, script::Instruction};

/// How an annex begins (BIP-0341).
const ANNEX_TAG: u8 = 0x50;
/// Maximum length of an ECDSA signature with its hash type, in bytes (BIP-0066).
const MAX_ECDSA_LEN: usize = 73;
/// Length of a Schnorr signature, in bytes. One more byte is a hash type other than the default.
const SCHNORR_LEN: usize = 64;
/// The flag of a hash type by which a signature signs none of the other inputs.
const ANYONECANPAY: u8 = 0x80;

/// Returns the hash types of everything that has the form of a signature, in order and separated by spaces,
/// such as `ALL` or `ALL SINGLE|ANYONECANPAY`; `None` if nothing has it.
///
/// If the coin's script is taproot (BIP-0341), these are items of the witness, without annex, script and
/// control block: 64 bytes, whose hash type is `DEFAULT`, or 65 with a hash type that exists. Otherwise these
/// are pushes of the input's script and items of the witness, with the strict encoding of BIP-0066 (Core
/// `IsValidSignatureEncoding`) and a hash type, which is in hex, such as `0x00`, if it has no name.
pub fn sighash<'a>(
    coin_script: &Script,
    script_sig: &'a Script,
    witness: impl Iterator<Item = &'a [u8]>,
) -> Option<String> {
    let mut names = String::new();
    let mut add = |name: &str| {
        if !names.is_empty() {
            names.push(' ');
        }
        names.push_str(name);
    };
    if coin_script.is_p2tr() {
        let stack: Vec<&[u8]> = witness.collect();
        taproot_arguments(&stack).iter().filter_map(|item| schnorr_name(item)).for_each(add);
    } else {
        let pushes = script_sig.instructions().map_while(Result::ok).filter_map(|part| match part {
            Instruction::PushBytes(push) => Some(push.as_bytes()),
            Instruction::Op(_) => None,
        });
        for hash_type in pushes.chain(witness).filter_map(ecdsa_hash_type) {
            match name(hash_type) {
                Some(name) => add(name),
                None => add(&format!("{hash_type:#04x}")),
            }
        }
    }
    (!names.is_empty()).then_some(names)
}

/// The items of a witness that taproot takes as signatures, or gives to the script.
fn taproot_arguments<'s, 'a>(stack: &'s [&'a [u8]]) -> &'s [&'a [u8]] {
    let without_annex = match stack {
        [rest @ .., [ANNEX_TAG, ..]] if !rest.is_empty() => rest,
        all => all,
    };
    match without_annex {
        [arguments @ .., _script, _control_block] => arguments,
        key_path => key_path,
    }
}

/// The hash type of what has the form of a Schnorr signature.
fn schnorr_name(item: &[u8]) -> Option<&'static str> {
    match item.split_at_checked(SCHNORR_LEN)?.1 {
        [] => Some("DEFAULT"),
        &[hash_type] => name(hash_type),
        _ => None,
    }
}

/// The hash type of what has the form of an ECDSA signature.
fn ecdsa_hash_type(item: &[u8]) -> Option<u8> {
    let (&hash_type, der) = item.split_last()?;
    let [0x30, len, integers @ ..] = der else { return None };
    let has_form = item.len() <= MAX_ECDSA_LEN
        && usize::from(*len) == integers.len()
        && after_integer(integers).and_then(after_integer)?.is_empty();
    has_form.then_some(hash_type)
}

/// Bit of the first byte of a number that makes it negative.
const NEGATIVE: u8 = 0x80;

/// Returns what follows a positive integer in DER, without needless zeros.
fn after_integer(bytes: &[u8]) -> Option<&[u8]> {
    let [0x02, len, rest @ ..] = bytes else { return None };
    let (integer, rest) = rest.split_at_checked((*len).into())?;
    let has_form = match integer {
        [0, second, ..] => *second >= NEGATIVE,
        [first, ..] => *first < NEGATIVE,
        [] => false,
    };
    has_form.then_some(rest)
}

/// The name of a hash type, without `SIGHASH_`.
const fn name(hash_type: u8) -> Option<&'static str> {
    const ALL: u8 = 1;
    const NONE: u8 = 2;
    const SINGLE: u8 = 3;
    const ALL_ANYONECANPAY: u8 = ALL | ANYONECANPAY;
    const NONE_ANYONECANPAY: u8 = NONE | ANYONECANPAY;
    const SINGLE_ANYONECANPAY: u8 = SINGLE | ANYONECANPAY;
    match hash_type {
        ALL => Some("ALL"),
        NONE => Some("NONE"),
        SINGLE => Some("SINGLE"),
        ALL_ANYONECANPAY => Some("ALL|ANYONECANPAY"),
        NONE_ANYONECANPAY => Some("NONE|ANYONECANPAY"),
        SINGLE_ANYONECANPAY => Some("SINGLE|ANYONECANPAY"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::{
        Block, EcdsaSighashType, PubkeyHash, ScriptBuf, TapSighashType, WPubkeyHash, WScriptHash, Witness,
        consensus::deserialize,
        ecdsa,
        hashes::Hash as _,
        key::{Keypair, PublicKey, Secp256k1, TweakedPublicKey},
        opcodes::{OP_0, OP_TRUE},
        script::{Builder, PushBytesBuf},
        secp256k1::Message,
        taproot,
    };
    use hex_conservative::decode_to_vec;
    use std::fs;
    use testkit::data::shared_data;

    fn keys() -> Keypair {
        Keypair::from_seckey_slice(&Secp256k1::new(), &[7; 32]).unwrap()
    }

    fn ecdsa(sighash_type: EcdsaSighashType) -> Vec<u8> {
        let signature = Secp256k1::new().sign_ecdsa(&Message::from_digest([3; 32]), &keys().secret_key());
        ecdsa::Signature { signature, sighash_type }.to_vec()
    }

    fn schnorr(sighash_type: TapSighashType) -> Vec<u8> {
        let message = Message::from_digest([3; 32]);
        let signature = Secp256k1::new().sign_schnorr_no_aux_rand(&message, &keys());
        taproot::Signature { signature, sighash_type }.to_vec()
    }

    fn pushes(items: &[&[u8]]) -> ScriptBuf {
        let push = |item: &&[u8]| PushBytesBuf::try_from(item.to_vec()).unwrap();
        items.iter().map(push).fold(Builder::new(), Builder::push_slice).into_script()
    }

    fn of(coin_script: &Script, script_sig: &Script, witness: &[&[u8]]) -> Option<String> {
        sighash(coin_script, script_sig, witness.iter().copied())
    }

    #[test]
    fn ecdsa_signatures_are_found_in_scripts_and_witnesses() {
        use EcdsaSighashType::{All, AllPlusAnyoneCanPay, None as Nothing, Single, SinglePlusAnyoneCanPay};
        let key = PublicKey::new(keys().public_key());
        let (bytes, empty) = (key.to_bytes(), Script::new());
        let p2pkh = ScriptBuf::new_p2pkh(&PubkeyHash::all_zeros());
        for (sighash_type, expected) in [
            (All, "ALL"),
            (Nothing, "NONE"),
            (SinglePlusAnyoneCanPay, "SINGLE|ANYONECANPAY"),
            (AllPlusAnyoneCanPay, "ALL|ANYONECANPAY"),
        ] {
            let signature = ecdsa(sighash_type);
            let found = of(&p2pkh, &pushes(&[&signature, &bytes]), &[]);
            assert_eq!(found.as_deref(), Some(expected));
            let p2wpkh = ScriptBuf::new_p2wpkh(&WPubkeyHash::all_zeros());
            assert_eq!(of(&p2wpkh, empty, &[&signature, &bytes]).as_deref(), Some(expected));
            // In P2SH, the script has only the program.
            let nested = ScriptBuf::new_p2sh(&p2wpkh.script_hash());
            let found = of(&nested, &pushes(&[p2wpkh.as_bytes()]), &[&signature, &bytes]);
            assert_eq!(found.as_deref(), Some(expected));
        }
        // Two of three keys, with the item that OP_CHECKMULTISIG takes too many.
        let (first, second) = (ecdsa(All), ecdsa(Single));
        let multisig = Builder::new().push_int(2).push_key(&key).push_key(&key).push_key(&key).push_int(3);
        let multisig = multisig.push_opcode(bitcoin::opcodes::all::OP_CHECKMULTISIG).into_script();
        let p2wsh = ScriptBuf::new_p2wsh(&WScriptHash::all_zeros());
        let found = of(&p2wsh, empty, &[&[], &first, &second, multisig.as_bytes()]);
        assert_eq!(found.as_deref(), Some("ALL SINGLE"));
        let p2sh = ScriptBuf::new_p2sh(&multisig.script_hash());
        let script_sig = pushes(&[&[], &second, &first, multisig.as_bytes()]);
        assert_eq!(script_sig.as_bytes()[0], OP_0.to_u8());
        assert_eq!(of(&p2sh, &script_sig, &[]).as_deref(), Some("SINGLE ALL"));
        // Hash types without a name were allowed before BIP-0341.
        let odd = [&first[..first.len() - 1], &[0]].concat();
        assert_eq!(of(&p2pkh, &pushes(&[&odd, &bytes]), &[]).as_deref(), Some("0x00"));
        assert_eq!(of(&p2wsh, empty, &[OP_TRUE.to_u8().to_le_bytes().as_slice()]), None);
        assert_eq!(of(&p2pkh, empty, &[]), None);
        // A script that ends within a push, behind a signature.
        let cut = [pushes(&[&first]).as_bytes(), &[0x4c]].concat();
        assert_eq!(of(&p2pkh, Script::from_bytes(&cut), &[]).as_deref(), Some("ALL"));
    }

    #[test]
    fn schnorr_signatures_are_found_in_both_paths_of_taproot() {
        use TapSighashType::{All, Default, NonePlusAnyoneCanPay};
        let output_key = TweakedPublicKey::dangerous_assume_tweaked(keys().x_only_public_key().0);
        let (p2tr, empty) = (ScriptBuf::new_p2tr_tweaked(output_key), Script::new());
        let [default, all, none] = [Default, All, NonePlusAnyoneCanPay].map(schnorr);
        let (control_block, annex) = ([0xc0; 33], [ANNEX_TAG, 1]);
        let script = pushes(&[&keys().x_only_public_key().0.serialize()]);
        let script = script.as_bytes();
        assert_eq!((default.len(), all.len()), (64, 65));
        for (witness, expected) in [
            (&[&*default][..], Some("DEFAULT")),
            (&[&*all], Some("ALL")),
            (&[&*none, &annex], Some("NONE|ANYONECANPAY")),
            (&[&*default, script, &control_block], Some("DEFAULT")),
            (&[&*all, &[], &*default, script, &control_block, &annex], Some("ALL DEFAULT")),
            (&[script, &control_block], None),
            (&[script, &[0xc0; 65]], None),
            // A script and a control block can be as long as signatures.
            (&[&[1; 5], &[0x51; 64], &[0xc0; 65]], None),
            (&[&[1; 63], &[1; 66], script, &control_block], None),
            // No signature may name the default, and no hash type is without a name.
            (&[&[&*default, &[0]].concat()], None),
            (&[&[&*default, &[4]].concat()], None),
            (&[&ecdsa(EcdsaSighashType::All)], None),
            (&[], None),
        ] {
            assert_eq!(of(&p2tr, empty, witness).as_deref(), expected, "{witness:?}");
        }
        // Taproot is not for programs within P2SH, nor are Schnorr signatures for others.
        assert_eq!(of(&ScriptBuf::new_p2sh(&p2tr.script_hash()), empty, &[&default]), None);
    }

    #[test]
    fn what_differs_from_the_strict_encoding_is_no_signature() {
        let plain = [0x30, 6, 2, 1, 1, 2, 1, 1, 1];
        assert_eq!(ecdsa_hash_type(&plain), Some(1));
        let zeros = [0x30, 8, 2, 2, 0, 0x80, 2, 2, 0, 0xff, 0x83];
        assert_eq!(ecdsa_hash_type(&zeros), Some(0x83), "zeros that are needed");
        assert_eq!(ecdsa_hash_type(&[0x30, 6, 2, 1, 0, 2, 1, 0, 1]), Some(1), "zero has the form");
        let integer = |len: u8| [&[2, len][..], &vec![1; len.into()]].concat();
        let with = |r: u8, s: u8| [&[0x30, r + s + 4][..], &integer(r), &integer(s), &[1]].concat();
        assert_eq!(ecdsa_hash_type(&with(33, 33)), Some(1));
        for item in [
            &plain[..8],
            &[],
            &[1],
            &[&plain[..], &[1]].concat(),
            &[0x31, 6, 2, 1, 1, 2, 1, 1, 1],
            &[0x30, 7, 2, 1, 1, 2, 1, 1, 1],
            &[0x30, 6, 3, 1, 1, 2, 1, 1, 1],
            &[0x30, 6, 2, 1, 1, 3, 1, 1, 1],
            &[0x30, 6, 2, 1, 0x80, 2, 1, 1, 1],
            &[0x30, 6, 2, 1, 1, 2, 1, 0x80, 1],
            &[0x30, 7, 2, 2, 0, 1, 2, 1, 1, 1],
            &[0x30, 5, 2, 0, 2, 1, 1, 1],
            &[0x30, 6, 2, 1, 1, 2, 2, 1, 1],
            &[0x30, 6, 2, 200, 1, 2, 1, 1, 1],
            &with(33, 34),
        ] {
            assert_eq!(ecdsa_hash_type(item), None, "{item:?}");
        }
    }

    /// Real blocks: the types that the crate `bitcoin` reads out of the same items, and one for each input
    /// that one key signs.
    #[test]
    fn inputs_of_real_blocks_have_the_types_that_another_library_reads() {
        let Some(blocks) = shared_data("blocks") else { return };
        for height in [388_381, 481_824, 709_632] {
            let bytes = fs::read(blocks.join(format!("{height}.raw"))).unwrap();
            let block: Block = deserialize(&bytes).unwrap();
            let coins = blocks.with_file_name("prevouts").join(format!("{height}.prevouts.jsonl"));
            let coins = fs::read_to_string(coins).unwrap();
            let inputs = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
            let mut found = 0;
            for (input, coin) in inputs.zip(coins.lines()) {
                let coin: serde_json::Value = serde_json::from_str(coin).unwrap();
                assert_eq!(input.previous_output.txid.to_string(), coin["txid"]);
                let coin_script = decode_to_vec(coin["script"].as_str().unwrap()).unwrap();
                let coin_script = ScriptBuf::from_bytes(coin_script);
                let types = sighash(&coin_script, &input.script_sig, input.witness.iter());
                let expected = read_by_another_library(&coin_script, &input.script_sig, &input.witness);
                assert_eq!(types.clone().unwrap_or_default(), expected, "{height}: {input:?}");
                if coin_script.is_p2pkh() || coin_script.is_p2wpkh() {
                    assert_eq!(types.as_deref().map(|types| types.split(' ').count()), Some(1), "{input:?}");
                }
                found += usize::from(types.is_some());
            }
            assert!(found > 1_000, "{height}: {found}");
        }
    }

    fn read_by_another_library(coin_script: &Script, script_sig: &Script, witness: &Witness) -> String {
        if coin_script.is_p2tr() {
            let last = witness.len() - usize::from(witness.taproot_annex().is_some());
            let last = if last > 1 { last - 2 } else { last };
            let items = witness.iter().take(last);
            let types = items.filter_map(|item| taproot::Signature::from_slice(item).ok());
            let types = types.map(|signature| signature.sighash_type);
            return types.map(|it| it.to_string().replace("SIGHASH_", "")).collect::<Vec<_>>().join(" ");
        }
        let pushes = script_sig.instructions().flatten();
        let pushes = pushes.filter_map(|part| match part {
            Instruction::PushBytes(push) => Some(push.as_bytes()),
            Instruction::Op(_) => None,
        });
        let items = pushes.chain(witness.iter());
        let types = items.filter_map(|item| Some(ecdsa::Signature::from_slice(item).ok()?.sighash_type));
        types.map(|it| it.to_string().replace("SIGHASH_", "")).collect::<Vec<_>>().join(" ")
    }
}
