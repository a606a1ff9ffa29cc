//! Mutations of spends through taproot's script path: each leaf is at a limit of BIP-0341 or BIP-0342.

use super::{
    CheckLevel, Mutation,
    block_builder::{BlockBuilder, Draft, anyone, paying},
    failed,
    script_limits::{coin, run_in_witness},
};
use crate::{
    keys::{Key, Signer, random_key},
    rng::Rng,
};
use CheckLevel::Script;
use bitcoin::{
    Opcode, ScriptBuf, Transaction, TxOut, Witness,
    hashes::Hash,
    key::TapTweak,
    opcodes::all::{
        OP_2DROP, OP_CHECKMULTISIG, OP_CHECKMULTISIGVERIFY, OP_CHECKSIG, OP_CHECKSIGADD, OP_CHECKSIGVERIFY,
        OP_CODESEPARATOR, OP_DROP, OP_DUP, OP_ELSE, OP_ENDIF, OP_IF, OP_NOP, OP_NOT, OP_NOTIF, OP_NUMEQUAL,
        OP_RESERVED, OP_RETURN,
    },
    script::{Builder, PushBytesBuf},
    secp256k1::Secp256k1,
    sighash::{Annex, Prevouts, SighashCache, TapSighashType},
    taproot::{LeafVersion, TapLeafHash, TapNodeHash},
};

const EVAL_FALSE: &str =
    failed!("Script evaluated without error but finished with a false/empty top stack element");
const MINIMALIF: &str = failed!("OP_IF/NOTIF argument must be minimal in tapscript");
const VALIDATION_WEIGHT: &str = failed!("Too much signature validation relative to witness weight");
const NO_CHECKMULTISIG: &str = failed!("OP_CHECKMULTISIG(VERIFY) is not available in tapscript");
const CONTROL_SIZE: &str = failed!("Invalid Taproot control block size");
const EMPTY_PUBKEY: &str = failed!("Empty public key in tapscript");
const BAD_OPCODE: &str = failed!("Opcode missing or not understood");
const INVALID_STACK: &str = failed!("Operation not valid with the current stack size");
const PUSH_SIZE: &str = failed!("Push value size limit exceeded");
const STACK_SIZE: &str = failed!("Stack size limit exceeded");
const SCRIPT_RETURN: &str = failed!("OP_RETURN was encountered");
const SCHNORR_SIG: &str = failed!("Invalid Schnorr signature");
const SCHNORR_SIG_SIZE: &str = failed!("Invalid Schnorr signature size");
const SCHNORR_SIG_HASHTYPE: &str = failed!("Invalid Schnorr signature hash type");

/// Version of leaves that are executed as tapscript.
const TAPSCRIPT: u8 = 0xc0;
/// Position of the code separator if none was executed.
const NO_SEPARATOR: u32 = u32::MAX;
/// Maximum number of steps in a merkle path.
const PATH: usize = 128;
/// Opcodes whose presence makes a tapscript valid (`OP_SUCCESSx`).
const SUCCESS: [std::ops::RangeInclusive<u8>; 8] =
    [80..=80, 98..=98, 126..=129, 131..=134, 137..=138, 141..=142, 149..=153, 187..=254];

/// Returns the key that signs in all leaves, which is also the internal key of all trees.
fn key() -> Key {
    random_key(&mut Rng::new(0, "tapscript"))
}

/// A leaf and its merkle path.
struct Leaf {
    hash: TapLeafHash,
    script: ScriptBuf,
    control: Vec<u8>,
    output: ScriptBuf,
}

impl Leaf {
    /// A leaf that is `steps` steps below the root.
    fn new(version: u8, script: Builder, steps: usize) -> Self {
        let (script, internal) = (script.into_script(), key().x_only);
        let leaf_version =
            LeafVersion::from_consensus(version).expect("the version is even and not the annex's tag");
        let hash = TapLeafHash::from_script(&script, leaf_version);
        let sibling = [7; 32];
        let root = (0..steps).fold(TapNodeHash::from(hash), |node, _| {
            TapNodeHash::from_node_hashes(node, TapNodeHash::assume_hidden(sibling))
        });
        let (output_key, parity) = internal.tap_tweak(&Secp256k1::new(), Some(root));
        let first = version | parity.to_u8();
        let control = [&[first][..], &internal.serialize(), &sibling.repeat(steps)].concat();
        Self { hash, script, control, output: ScriptBuf::new_p2tr_tweaked(output_key) }
    }

    /// A leaf that is the whole tree.
    fn only(script: Builder) -> Self {
        Self::new(TAPSCRIPT, script, 0)
    }
}

/// A spend without its witness.
struct Unsigned {
    tx: Transaction,
    prevout: TxOut,
    leaf: Option<TapLeafHash>,
}

impl Unsigned {
    /// Makes a signature of 64 bytes.
    fn signature(&self, annex: Option<&[u8]>, separator: u32) -> Vec<u8> {
        let annex = annex.map(|annex| Annex::new(annex).expect("it starts with its tag"));
        let prevouts = Prevouts::All(std::slice::from_ref(&self.prevout));
        let leaf = self.leaf.map(|leaf| (leaf, separator));
        let digest = SighashCache::new(&self.tx)
            .taproot_signature_hash(0, &prevouts, annex, leaf, TapSighashType::Default)
            .expect("there is one input");
        Signer::new(0).schnorr(&key(), &digest.to_byte_array())
    }
}

/// A block that spends a coin of this output script with the witness that `witness` returns.
fn spend(
    builder: &mut BlockBuilder<'_>,
    output: &ScriptBuf,
    leaf: Option<TapLeafHash>,
    witness: impl FnOnce(&Unsigned) -> Vec<Vec<u8>>,
) -> Draft {
    let coin = coin(builder, output.clone());
    let tx = builder.spend(&[&coin], vec![anyone(coin.coin.amount)]);
    let mut unsigned = Unsigned { tx, prevout: paying(coin.coin.amount, output.clone()), leaf };
    let witness = witness(&unsigned);
    unsigned.tx.input[0].witness = Witness::from_slice(&witness);
    builder.draft(vec![unsigned.tx])
}

/// A block with a spend through a leaf; `items` returns the witness items before script and control block.
fn by_leaf(
    builder: &mut BlockBuilder<'_>,
    leaf: &Leaf,
    items: impl FnOnce(&Unsigned) -> Vec<Vec<u8>>,
) -> Draft {
    spend(builder, &leaf.output, Some(leaf.hash), |unsigned| {
        [items(unsigned), vec![leaf.script.to_bytes(), leaf.control.clone()]].concat()
    })
}

/// A block with a spend that executes a script on these items.
fn run(builder: &mut BlockBuilder<'_>, script: Builder, items: &[&[u8]]) -> Draft {
    by_leaf(builder, &Leaf::only(script), |_| items.iter().map(|item| item.to_vec()).collect())
}

/// A block with a spend that executes a script on the items that `items` makes from a signature for it.
fn run_signed(builder: &mut BlockBuilder<'_>, script: Builder, items: fn(Vec<u8>) -> Vec<Vec<u8>>) -> Draft {
    by_leaf(builder, &Leaf::only(script), |unsigned| items(unsigned.signature(None, NO_SEPARATOR)))
}

fn opcodes(opcodes: &[Opcode]) -> Builder {
    opcodes.iter().fold(Builder::new(), |builder, opcode| builder.push_opcode(*opcode))
}

/// `IF 1 ELSE 1 ENDIF`, or with NOTIF: only the encoding of the condition matters.
fn either_way(opcode: Opcode) -> Builder {
    let builder = Builder::new().push_opcode(opcode).push_int(1).push_opcode(OP_ELSE).push_int(1);
    builder.push_opcode(OP_ENDIF)
}

/// `0 IF <opcode> ENDIF 1`
fn not_executed(opcode: Opcode) -> Builder {
    let builder = Builder::new().push_int(0).push_opcode(OP_IF).push_opcode(opcode);
    builder.push_opcode(OP_ENDIF).push_int(1)
}

/// A block that spends one coin for each `OP_SUCCESSx`, whose script would otherwise fail in several ways.
fn of_all_success_opcodes(builder: &mut BlockBuilder<'_>) -> Draft {
    let leaves: Vec<Leaf> = SUCCESS
        .into_iter()
        .flatten()
        // RETURN, the opcode, a truncated push.
        .map(|opcode| Leaf::only(Builder::from(vec![OP_RETURN.to_u8(), opcode, 75, 1])))
        .collect();
    let coin = builder.take();
    let share = coin.coin.amount / leaves.len() as i64;
    let outputs = leaves.iter().map(|leaf| paying(share, leaf.output.clone())).collect();
    let setup = builder.spend(&[&coin], outputs);
    builder.add(vec![setup.clone()]);
    let coins: Vec<_> = (0..leaves.len() as u32).map(|vout| builder.tip_coin_of(&setup, vout)).collect();
    let mut tx = builder.spend(&coins.iter().collect::<Vec<_>>(), vec![anyone(share)]);
    for (input, leaf) in tx.input.iter_mut().zip(&leaves) {
        input.witness = Witness::from_slice(&[leaf.script.to_bytes(), leaf.control.clone()]);
    }
    builder.draft(vec![tx])
}

/// A block with a spend that checks a signature of one byte twice, for a key of unknown type, followed by
/// `padding` NOPs. The witness has 44 bytes more than the padding, and two more with an annex. The budget is
/// that size and 50; each check costs 50.
fn two_checks(builder: &mut BlockBuilder<'_>, padding: usize, has_annex: bool) -> Draft {
    let check = |builder: Builder| builder.push_opcode(OP_DUP).push_int(1).push_opcode(OP_CHECKSIGVERIFY);
    let script = [check(check(Builder::new())).into_bytes(), vec![OP_NOP.to_u8(); padding]].concat();
    let leaf = Leaf::only(Builder::from(script));
    spend(builder, &leaf.output, None, |_| {
        let annex = has_annex.then(|| vec![0x50]);
        [vec![vec![1], leaf.script.to_bytes(), leaf.control.clone()], annex.into_iter().collect()].concat()
    })
}

/// A block with a spend that checks a valid signature eleven times, which costs 550. The budget is 50, the
/// 488 bytes of the witness, and the padding.
fn eleven_checks(builder: &mut BlockBuilder<'_>, padding: usize) -> Draft {
    let check = |builder: Builder, _| {
        builder.push_opcode(OP_DUP).push_x_only_key(&key().x_only).push_opcode(OP_CHECKSIGVERIFY)
    };
    let script = [(0..11).fold(Builder::new(), check).into_bytes(), vec![OP_NOP.to_u8(); padding]].concat();
    run_signed(builder, Builder::from(script), |signature| vec![signature])
}

/// A block with a spend that checks an empty signature thirty times.
fn thirty_empty_checks(builder: &mut BlockBuilder<'_>) -> Draft {
    let check = |builder: Builder, _| {
        let builder = builder.push_int(0).push_x_only_key(&key().x_only);
        builder.push_opcode(OP_CHECKSIG).push_opcode(OP_DROP)
    };
    run(builder, (0..30).fold(Builder::new(), check).push_int(1), &[])
}

/// `<key> <check>`
fn key_check(key: &[u8], check: Opcode) -> Builder {
    let key = PushBytesBuf::try_from(key.to_vec()).expect("a key can be pushed");
    Builder::new().push_slice(key).push_opcode(check)
}

fn own_key_check(check: Opcode) -> Builder {
    key_check(&key().x_only.serialize(), check)
}

/// `<number> <key> CHECKSIGADD DROP 1` on an empty signature.
fn add_to(builder: &mut BlockBuilder<'_>, number: &[u8]) -> Draft {
    let number = PushBytesBuf::try_from(number.to_vec()).expect("a number can be pushed");
    let script = Builder::new().push_slice(number).push_x_only_key(&key().x_only);
    run(builder, script.push_opcode(OP_CHECKSIGADD).push_opcode(OP_DROP).push_int(1), &[&[]])
}

/// A block with a spend that requires two of three signatures with the same key.
fn two_of_three(builder: &mut BlockBuilder<'_>, items: fn(Vec<u8>) -> Vec<Vec<u8>>) -> Draft {
    let key = key().x_only;
    let add = |builder: Builder| builder.push_x_only_key(&key).push_opcode(OP_CHECKSIGADD);
    let first = Builder::new().push_x_only_key(&key).push_opcode(OP_CHECKSIG);
    run_signed(builder, add(add(first)).push_int(2).push_opcode(OP_NUMEQUAL), items)
}

/// `CODESEPARATOR <key> CHECKSIG`, signed for a code separator at position `separator`.
fn separated(builder: &mut BlockBuilder<'_>, separator: u32) -> Draft {
    let script = Builder::new().push_opcode(OP_CODESEPARATOR).push_x_only_key(&key().x_only);
    by_leaf(builder, &Leaf::only(script.push_opcode(OP_CHECKSIG)), |unsigned| {
        vec![unsigned.signature(None, separator)]
    })
}

/// A block that spends a leaf `1` with a changed control block.
fn control(builder: &mut BlockBuilder<'_>, steps: usize, change: fn(&mut Vec<u8>)) -> Draft {
    let mut leaf = Leaf::new(TAPSCRIPT, Builder::new().push_int(1), steps);
    change(&mut leaf.control);
    by_leaf(builder, &leaf, |_| vec![])
}

/// A block that spends through the key path, for an untweaked key, with a signature for the annex `signed`,
/// and with `annex`.
fn with_annex(builder: &mut BlockBuilder<'_>, signed: Option<&[u8]>, annex: &[u8]) -> Draft {
    let output = [&[0x51, 32][..], &key().x_only.serialize()].concat();
    spend(builder, &ScriptBuf::from_bytes(output), None, |unsigned| {
        vec![unsigned.signature(signed, NO_SEPARATOR), annex.to_vec()]
    })
}

/// A block that spends with `count` items, of which the script drops all but one.
fn of_items(builder: &mut BlockBuilder<'_>, count: usize) -> Draft {
    let mut script = vec![OP_2DROP.to_u8(); (count - 1) / 2];
    script.extend((count.is_multiple_of(2)).then_some(OP_DROP.to_u8()));
    run(builder, Builder::from(script), &vec![&[1][..]; count])
}

/// `DROP 1` on an item of `len` bytes.
fn of_item(builder: &mut BlockBuilder<'_>, len: usize) -> Draft {
    run(builder, Builder::new().push_opcode(OP_DROP).push_int(1), &[&vec![7; len]])
}

/// Pushes that are dropped, then `1`, `len` bytes in total, which must be at most 44 more than a multiple of
/// 524.
fn of_bytes(len: usize) -> Builder {
    let push = |builder: Builder, len| {
        let bytes = PushBytesBuf::try_from(vec![7; len]).expect("the bytes can be pushed");
        builder.push_slice(bytes).push_opcode(OP_DROP)
    };
    let full = (0..len / 524).fold(Builder::new(), |builder, _| push(builder, 520));
    push(full, len % 524 - 3).push_int(1)
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::accepts("tapscript-if-of-1", Script, |builder| run(builder, either_way(OP_IF), &[&[1]])),
    Mutation::accepts("tapscript-if-of-nothing", Script, |builder| run(builder, either_way(OP_IF), &[&[]])),
    Mutation::rejects("tapscript-if-of-2", MINIMALIF, Script, |builder| {
        run(builder, either_way(OP_IF), &[&[2]])
    }),
    Mutation::rejects("tapscript-if-of-0-in-one-byte", MINIMALIF, Script, |builder| {
        run(builder, either_way(OP_IF), &[&[0]])
    }),
    Mutation::rejects("tapscript-if-of-1-in-two-bytes", MINIMALIF, Script, |builder| {
        run(builder, either_way(OP_IF), &[&[1, 0]])
    }),
    Mutation::accepts("tapscript-notif-of-1", Script, |builder| run(builder, either_way(OP_NOTIF), &[&[1]])),
    Mutation::rejects("tapscript-notif-of-2", MINIMALIF, Script, |builder| {
        run(builder, either_way(OP_NOTIF), &[&[2]])
    }),
    Mutation::accepts("witness-if-of-1-in-two-bytes", Script, |builder| {
        run_in_witness(builder, either_way(OP_IF), &[vec![1, 0]])
    }),
    Mutation::accepts("success-opcodes", Script, of_all_success_opcodes),
    Mutation::accepts("success-opcode-not-run", Script, |builder| {
        run(builder, not_executed(OP_RESERVED), &[])
    }),
    Mutation::accepts("success-opcode-with-an-item-of-521-bytes", Script, |builder| {
        run(builder, opcodes(&[OP_RESERVED]), &[&[7; 521]])
    }),
    Mutation::accepts("success-opcode-with-1001-items", Script, |builder| {
        run(builder, opcodes(&[OP_RESERVED]), &[&[][..]; 1001])
    }),
    Mutation::rejects("success-opcode-within-a-push", SCRIPT_RETURN, Script, |builder| {
        run(builder, Builder::new().push_slice([OP_RESERVED.to_u8()]).push_opcode(OP_RETURN), &[])
    }),
    Mutation::rejects("success-opcode-within-a-torn-push", BAD_OPCODE, Script, |builder| {
        run(builder, Builder::from(vec![0x51, 2, OP_RESERVED.to_u8()]), &[])
    }),
    Mutation::rejects("opcode-below-the-success-opcodes", INVALID_STACK, Script, |builder| {
        run(builder, opcodes(&[OP_CHECKSIGADD]), &[])
    }),
    Mutation::rejects("opcode-above-the-success-opcodes", BAD_OPCODE, Script, |builder| {
        run(builder, opcodes(&[Opcode::from(255)]), &[])
    }),
    Mutation::rejects("success-opcode-in-version-0", BAD_OPCODE, Script, |builder| {
        run_in_witness(builder, Builder::new().push_opcode(OP_RESERVED), &[])
    }),
    Mutation::accepts("signature-budget-just-kept", Script, |builder| eleven_checks(builder, 12)),
    Mutation::rejects("signature-budget-1-short", VALIDATION_WEIGHT, Script, |builder| {
        eleven_checks(builder, 11)
    }),
    Mutation::accepts("unknown-keys-within-the-budget", Script, |builder| two_checks(builder, 6, false)),
    Mutation::rejects("unknown-keys-1-over-the-budget", VALIDATION_WEIGHT, Script, |builder| {
        two_checks(builder, 5, false)
    }),
    Mutation::accepts("annex-within-the-budget", Script, |builder| two_checks(builder, 4, true)),
    Mutation::rejects("annex-1-over-the-budget", VALIDATION_WEIGHT, Script, |builder| {
        two_checks(builder, 3, true)
    }),
    Mutation::accepts("empty-signatures-take-no-budget", Script, thirty_empty_checks),
    Mutation::rejects("tapscript-checkmultisig", NO_CHECKMULTISIG, Script, |builder| {
        run(builder, Builder::new().push_int(0).push_int(0).push_int(0).push_opcode(OP_CHECKMULTISIG), &[])
    }),
    Mutation::rejects("tapscript-checkmultisigverify", NO_CHECKMULTISIG, Script, |builder| {
        run(builder, opcodes(&[OP_CHECKMULTISIGVERIFY]), &[])
    }),
    Mutation::accepts("tapscript-checkmultisig-not-run", Script, |builder| {
        run(builder, not_executed(OP_CHECKMULTISIG), &[])
    }),
    Mutation::accepts("witness-checkmultisig-of-none", Script, |builder| {
        let script = Builder::new().push_int(0).push_int(0).push_int(0).push_opcode(OP_CHECKMULTISIG);
        run_in_witness(builder, script, &[])
    }),
    Mutation::accepts("control-block-of-no-step", Script, |builder| control(builder, 0, |_| {})),
    Mutation::accepts("control-block-of-128-steps", Script, |builder| control(builder, PATH, |_| {})),
    Mutation::rejects("control-block-of-129-steps", CONTROL_SIZE, Script, |builder| {
        control(builder, PATH + 1, |_| {})
    }),
    Mutation::rejects("control-block-of-1-byte-more", CONTROL_SIZE, Script, |builder| {
        control(builder, PATH, |control| control.push(7))
    }),
    Mutation::rejects("control-block-of-32-bytes", CONTROL_SIZE, Script, |builder| {
        control(builder, 0, |control| control.truncate(32))
    }),
    Mutation::rejects("control-block-of-no-byte", CONTROL_SIZE, Script, |builder| {
        control(builder, 0, Vec::clear)
    }),
    Mutation::rejects(
        "control-block-of-another-path",
        failed!("Witness program hash mismatch"),
        Script,
        |builder| control(builder, PATH, |control| control.truncate(33 + 32 * (PATH - 1))),
    ),
    Mutation::accepts("leaf-version-unknown", Script, |builder| {
        by_leaf(builder, &Leaf::new(TAPSCRIPT + 2, opcodes(&[OP_RETURN]), 1), |_| vec![vec![7; 521]])
    }),
    Mutation::rejects("leaf-version-known", SCRIPT_RETURN, Script, |builder| {
        by_leaf(builder, &Leaf::new(TAPSCRIPT, opcodes(&[OP_RETURN]), 1), |_| vec![vec![7; 520]])
    }),
    Mutation::accepts("annex-signed", Script, |builder| with_annex(builder, Some(&[0x50, 7]), &[0x50, 7])),
    Mutation::accepts("annex-of-1-byte-signed", Script, |builder| {
        with_annex(builder, Some(&[0x50]), &[0x50])
    }),
    Mutation::rejects("annex-not-signed", SCHNORR_SIG, Script, |builder| with_annex(builder, None, &[0x50])),
    Mutation::rejects("annex-of-another-tag", CONTROL_SIZE, Script, |builder| {
        with_annex(builder, None, &[0x51])
    }),
    Mutation::rejects("annex-empty", CONTROL_SIZE, Script, |builder| with_annex(builder, None, &[])),
    Mutation::rejects("annex-alone-is-a-signature", SCHNORR_SIG_SIZE, Script, |builder| {
        let leaf = Leaf::only(Builder::new().push_int(1));
        spend(builder, &leaf.output, None, |_| vec![vec![0x50; 66]])
    }),
    Mutation::accepts("checksigadd-2-of-3", Script, |builder| {
        two_of_three(builder, |signature| vec![signature.clone(), vec![], signature])
    }),
    Mutation::rejects("checksigadd-1-of-3", EVAL_FALSE, Script, |builder| {
        two_of_three(builder, |signature| vec![signature, vec![], vec![]])
    }),
    Mutation::rejects("checksigadd-3-of-3", EVAL_FALSE, Script, |builder| {
        two_of_three(builder, |signature| vec![signature; 3])
    }),
    Mutation::rejects("checksigadd-signature-byte", SCHNORR_SIG, Script, |builder| {
        two_of_three(builder, |mut signature| {
            signature[63] ^= 1;
            vec![signature.clone(), vec![], signature]
        })
    }),
    Mutation::rejects("checksigadd-signature-63-bytes", SCHNORR_SIG_SIZE, Script, |builder| {
        two_of_three(builder, |signature| vec![signature[..63].to_vec(), vec![], signature])
    }),
    Mutation::accepts("checksigadd-empty-adds-nothing", Script, |builder| {
        run(builder, own_checksigadd_to_0().push_opcode(OP_NOT), &[&[]])
    }),
    Mutation::accepts("checksigadd-to-4-bytes", Script, |builder| add_to(builder, &[0xff; 4])),
    Mutation::rejects(
        "checksigadd-to-5-bytes",
        failed!("Script number overflowed or is non-minimally encoded"),
        Script,
        |builder| add_to(builder, &[0xff; 5]),
    ),
    Mutation::rejects("checksigadd-in-version-0", BAD_OPCODE, Script, |builder| {
        run_in_witness(builder, own_checksigadd_to_0(), &[vec![]])
    }),
    Mutation::accepts("tapscript-key-of-31-bytes", Script, |builder| {
        run(builder, key_check(&[7; 31], OP_CHECKSIG), &[&[7]])
    }),
    Mutation::accepts("tapscript-key-of-33-bytes", Script, |builder| {
        run(builder, key_check(&[7; 33], OP_CHECKSIG), &[&[7]])
    }),
    Mutation::rejects("tapscript-key-of-32-bytes-is-no-point", SCHNORR_SIG, Script, |builder| {
        run(builder, key_check(&[0xff; 32], OP_CHECKSIG), &[&[7; 64]])
    }),
    Mutation::rejects("tapscript-key-unknown-signature-empty", EVAL_FALSE, Script, |builder| {
        run(builder, key_check(&[7; 33], OP_CHECKSIG), &[&[]])
    }),
    Mutation::accepts("tapscript-key-of-1-byte", Script, |builder| {
        run(builder, key_check(&[7], OP_CHECKSIG), &[&[7]])
    }),
    Mutation::rejects("tapscript-key-empty", EMPTY_PUBKEY, Script, |builder| {
        run(builder, key_check(&[], OP_CHECKSIG), &[&[7]])
    }),
    Mutation::rejects("tapscript-key-and-signature-empty", EMPTY_PUBKEY, Script, |builder| {
        run(builder, key_check(&[], OP_CHECKSIG).push_opcode(OP_NOT), &[&[]])
    }),
    Mutation::accepts("tapscript-signed", Script, |builder| {
        run_signed(builder, own_key_check(OP_CHECKSIG), |signature| vec![signature])
    }),
    Mutation::rejects("tapscript-signature-65-bytes-of-type-0", SCHNORR_SIG_HASHTYPE, Script, |builder| {
        run_signed(builder, own_key_check(OP_CHECKSIG), |signature| vec![[&signature[..], &[0]].concat()])
    }),
    Mutation::rejects("tapscript-signature-66-bytes", SCHNORR_SIG_SIZE, Script, |builder| {
        run_signed(builder, own_key_check(OP_CHECKSIG), |signature| vec![[&signature[..], &[1; 2]].concat()])
    }),
    Mutation::rejects(
        "tapscript-checksigverify-of-nothing",
        failed!("Script failed an OP_CHECKSIGVERIFY operation"),
        Script,
        |builder| run(builder, own_key_check(OP_CHECKSIGVERIFY).push_int(1), &[&[]]),
    ),
    Mutation::accepts("code-separator-signed", Script, |builder| separated(builder, 0)),
    Mutation::rejects("code-separator-not-signed", SCHNORR_SIG, Script, |builder| {
        separated(builder, NO_SEPARATOR)
    }),
    Mutation::accepts("tapscript-of-10001-bytes", Script, |builder| run(builder, of_bytes(10_001), &[])),
    Mutation::accepts("witness-script-of-10000-bytes", Script, |builder| {
        run_in_witness(builder, of_bytes(10_000), &[])
    }),
    Mutation::rejects("witness-script-of-10001-bytes", failed!("Script is too big"), Script, |builder| {
        run_in_witness(builder, of_bytes(10_001), &[])
    }),
    Mutation::accepts("tapscript-of-202-operations", Script, |builder| {
        let script = [vec![OP_NOP.to_u8(); 202], vec![0x51]].concat();
        run(builder, Builder::from(script), &[])
    }),
    Mutation::accepts("tapscript-1000-items", Script, |builder| of_items(builder, 1000)),
    Mutation::rejects("tapscript-1001-items", STACK_SIZE, Script, |builder| of_items(builder, 1001)),
    Mutation::accepts("tapscript-item-of-520-bytes", Script, |builder| of_item(builder, 520)),
    Mutation::rejects("tapscript-item-of-521-bytes", PUSH_SIZE, Script, |builder| of_item(builder, 521)),
    Mutation::accepts("taproot-within-p2sh", Script, |builder| {
        let redeem = ScriptBuf::from_bytes([vec![0x51, 32], vec![7; 32]].concat());
        let push = [vec![34], redeem.to_bytes()].concat();
        super::script_limits::run(builder, ScriptBuf::new_p2sh(&redeem.script_hash()), &push)
    }),
];

/// `0 <key> CHECKSIGADD`
fn own_checksigadd_to_0() -> Builder {
    Builder::new().push_int(0).push_x_only_key(&key().x_only).push_opcode(OP_CHECKSIGADD)
}
