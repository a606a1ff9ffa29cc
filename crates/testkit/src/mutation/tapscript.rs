//! Mutations of spends through taproot: the budget of signature checks, which the size of the witness limits,
//! the annex, and leaves of unknown versions.

use super::{script::coin, *};
use crate::keys::{Key, Signer, random_key};
use CheckLevel::Script;
use bitcoin::{
    hashes::Hash,
    key::TapTweak,
    opcodes::all::{OP_CHECKSIGVERIFY, OP_DUP, OP_NOP, OP_RETURN},
    sighash::{Annex, Prevouts, SighashCache, TapSighashType},
    taproot::{LeafVersion, TapLeafHash, TapNodeHash},
};

const VALIDATION_WEIGHT: &str = failed!("Too much signature validation relative to witness weight");
const SCRIPT_RETURN: &str = failed!("OP_RETURN was encountered");
const SCHNORR_SIG: &str = failed!("Invalid Schnorr signature");

/// Version of leaves that are executed as tapscript.
const TAPSCRIPT: u8 = 0xc0;
/// Position of the code separator if none was executed.
const NO_SEPARATOR: u32 = u32::MAX;

/// Returns the key that signs in all leaves, which is also the internal key of all trees.
fn key() -> Key {
    random_key(&mut Rng::new(0, "tapscript"))
}

/// A leaf that is the whole tree.
struct Leaf {
    hash: TapLeafHash,
    script: ScriptBuf,
    control: Vec<u8>,
    output: ScriptBuf,
}

impl Leaf {
    fn new(version: u8, script: Builder) -> Self {
        let (script, internal) = (script.into_script(), key().x_only);
        let leaf_version =
            LeafVersion::from_consensus(version).expect("the version is even and not the annex's tag");
        let hash = TapLeafHash::from_script(&script, leaf_version);
        let (output_key, parity) = internal.tap_tweak(&Secp256k1::new(), Some(TapNodeHash::from(hash)));
        let control = [&[version | parity.to_u8()][..], &internal.serialize()].concat();
        Self { hash, script, control, output: ScriptBuf::new_p2tr_tweaked(output_key) }
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
    fn signature(&self, annex: Option<&[u8]>) -> Vec<u8> {
        let annex = annex.map(|annex| Annex::new(annex).expect("it starts with its tag"));
        let prevouts = Prevouts::All(std::slice::from_ref(&self.prevout));
        let leaf = self.leaf.map(|leaf| (leaf, NO_SEPARATOR));
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
    let coin = coin(builder, output.clone(), 0);
    let tx = builder.send(&coin);
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

/// A block with a spend that checks a signature of one byte twice, for a key of unknown type, followed by
/// `padding` NOPs. The witness has 46 bytes more than the padding, two of them for the annex. The budget is
/// that size and 50; each check costs 50.
fn two_checks(builder: &mut BlockBuilder<'_>, padding: usize) -> Draft {
    let check = |builder: Builder| builder.push_opcode(OP_DUP).push_int(1).push_opcode(OP_CHECKSIGVERIFY);
    let script = [check(check(Builder::new())).into_bytes(), vec![OP_NOP.to_u8(); padding]].concat();
    let leaf = Leaf::new(TAPSCRIPT, Builder::from(script));
    spend(builder, &leaf.output, None, |_| {
        vec![vec![1], leaf.script.to_bytes(), leaf.control.clone(), vec![0x50]]
    })
}

/// A block with a spend that checks a valid signature eleven times, which costs 550. The budget is 50, the
/// 488 bytes of the witness, and the padding.
fn eleven_checks(builder: &mut BlockBuilder<'_>, padding: usize) -> Draft {
    let check = |builder: Builder, _| {
        builder.push_opcode(OP_DUP).push_x_only_key(&key().x_only).push_opcode(OP_CHECKSIGVERIFY)
    };
    let script = [(0..11).fold(Builder::new(), check).into_bytes(), vec![OP_NOP.to_u8(); padding]].concat();
    let leaf = Leaf::new(TAPSCRIPT, Builder::from(script));
    by_leaf(builder, &leaf, |unsigned| vec![unsigned.signature(None)])
}

/// A block that spends through the key path, for an untweaked key, with a signature for the annex `signed`,
/// and with `annex`.
fn with_annex(builder: &mut BlockBuilder<'_>, signed: Option<&[u8]>, annex: &[u8]) -> Draft {
    let output = [&[0x51, 32][..], &key().x_only.serialize()].concat();
    spend(builder, &ScriptBuf::from_bytes(output), None, |unsigned| {
        vec![unsigned.signature(signed), annex.to_vec()]
    })
}

/// A block that spends a leaf `RETURN` of this version, with an item of `len` bytes.
fn of_version(builder: &mut BlockBuilder<'_>, version: u8, len: usize) -> Draft {
    let leaf = Leaf::new(version, Builder::new().push_opcode(OP_RETURN));
    by_leaf(builder, &leaf, |_| vec![vec![7; len]])
}

pub(super) static ROWS: &[Mutation] = &[
    Script.accepts("signature-budget-just-kept", |builder| eleven_checks(builder, 12)),
    Script.rejects("signature-budget-1-short", VALIDATION_WEIGHT, |builder| eleven_checks(builder, 11)),
    Script.accepts("annex-within-the-budget", |builder| two_checks(builder, 4)),
    Script.rejects("annex-1-over-the-budget", VALIDATION_WEIGHT, |builder| two_checks(builder, 3)),
    Script.accepts("annex-signed", |builder| with_annex(builder, Some(&[0x50, 7]), &[0x50, 7])),
    Script.rejects("annex-not-signed", SCHNORR_SIG, |builder| with_annex(builder, None, &[0x50])),
    Script.accepts("leaf-version-unknown", |builder| of_version(builder, TAPSCRIPT + 2, 521)),
    Script.rejects("leaf-version-known", SCRIPT_RETURN, |builder| of_version(builder, TAPSCRIPT, 520)),
];
