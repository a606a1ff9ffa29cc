//! Mutations of signed spends: something is changed after signing, or the signature is for something other
//! than what is spent. (For scripts without signatures, see `script_limits`.)

use super::{
    CheckLevel, Mutation,
    block_builder::{BlockBuilder, BuilderCoin, Draft, anyone, paying},
    failed,
};
use crate::scripts::{Kind, ScriptRef};
use CheckLevel::Script;
use bitcoin::{
    ScriptBuf, Sequence, Transaction, TxIn, Witness,
    script::{Builder, Instruction, PushBytesBuf},
};

const EVAL_FALSE: &str =
    failed!("Script evaluated without error but finished with a false/empty top stack element");
const MISMATCH: &str = failed!("Witness program hash mismatch");
const NULLDUMMY: &str = failed!("Dummy CHECKMULTISIG argument must be zero");
const SCHNORR_SIG: &str = failed!("Invalid Schnorr signature");
const SCHNORR_SIG_HASHTYPE: &str = failed!("Invalid Schnorr signature hash type");
const WITNESS_UNEXPECTED: &str = failed!("Witness provided for non-witness script");

/// The amount modulo 64 determines the hash type with which the pool signs.
const ALL: i64 = 0;
const ALL_ANYONECANPAY: i64 = 1;
const NONE: i64 = 2;

/// A coin of the newest block.
fn coin(builder: &mut BlockBuilder<'_>, script: ScriptBuf, low_bits: i64) -> BuilderCoin {
    let coin = builder.take();
    let amount = (coin.coin.amount & !63) - 64 + low_bits;
    let setup = builder.spend(&[&coin], vec![paying(amount, script)]);
    builder.add(vec![setup.clone()]);
    builder.tip_coin_of(&setup, 0)
}

/// A signed transaction that spends one coin of a kind to `TRUE`.
fn signed(builder: &mut BlockBuilder<'_>, kind: Kind, low_bits: i64) -> Transaction {
    let script = builder.pool_script(ScriptRef::new(kind, 1));
    let coin = coin(builder, script, low_bits);
    builder.spend(&[&coin], vec![anyone(coin.coin.amount)])
}

/// A block with a signed spend that is then changed.
fn changed(builder: &mut BlockBuilder<'_>, kind: Kind, change: impl FnOnce(&mut Transaction)) -> Draft {
    let mut tx = signed(builder, kind, ALL);
    change(&mut tx);
    builder.draft(vec![tx])
}

/// A block with a signed spend whose witness is then changed.
fn witness(builder: &mut BlockBuilder<'_>, kind: Kind, change: fn(&mut Vec<Vec<u8>>)) -> Draft {
    changed(builder, kind, |tx| {
        let mut items = tx.input[0].witness.to_vec();
        change(&mut items);
        tx.input[0].witness = Witness::from_slice(&items);
    })
}

/// A block with a signed spend in which the pushes of the signature script are then changed.
fn pushes(builder: &mut BlockBuilder<'_>, kind: Kind, change: fn(&mut Vec<Vec<u8>>)) -> Draft {
    changed(builder, kind, |tx| {
        let pushed = tx.input[0].script_sig.instructions().map(|instruction| match instruction {
            Ok(Instruction::PushBytes(bytes)) => bytes.as_bytes().to_vec(),
            other => unreachable!("the pool only pushes: {other:?}"),
        });
        let mut items: Vec<Vec<u8>> = pushed.collect();
        change(&mut items);
        let push = |builder: Builder, item| {
            builder.push_slice(PushBytesBuf::try_from(item).expect("items are short"))
        };
        tx.input[0].script_sig = items.into_iter().fold(Builder::new(), push).into_script();
    })
}

/// A block with a spend that is signed for another amount than the coin's.
fn for_another_amount(builder: &mut BlockBuilder<'_>, kind: Kind) -> Draft {
    let script = builder.pool_script(ScriptRef::new(kind, 1));
    let coin = coin(builder, script, ALL);
    let mut claimed = coin.clone();
    claimed.coin.amount += 64;
    let tx = builder.spend(&[&claimed], vec![anyone(coin.coin.amount)]);
    builder.draft(vec![tx])
}

/// A block with a transaction that spends a coin of each kind.
fn of_each_kind(builder: &mut BlockBuilder<'_>) -> Draft {
    let coin = builder.take();
    let share = coin.coin.amount / Kind::ALL.len() as i64;
    let scripts = Kind::ALL.iter().map(|kind| builder.pool_script(ScriptRef::new(*kind, 2)));
    let setup = builder.spend(&[&coin], scripts.map(|script| paying(share, script)).collect());
    builder.add(vec![setup.clone()]);
    let coins: Vec<_> =
        (0..setup.output.len() as u32).map(|vout| builder.tip_coin_of(&setup, vout)).collect();
    let tx = builder.spend(&coins.iter().collect::<Vec<_>>(), vec![anyone(share)]);
    builder.draft(vec![tx])
}

/// Changes the output's script after signing.
fn pay_another(tx: &mut Transaction) {
    tx.output[0].script_pubkey = ScriptBuf::from_bytes(vec![0x52]);
}

/// Changes the byte before the hash type, the last byte of s.
fn change_s(signature: &mut [u8]) {
    let at = signature.len() - 2;
    signature[at] ^= 1;
}

fn change_last_byte(bytes: &mut [u8]) {
    if let Some(last) = bytes.last_mut() {
        *last ^= 2;
    }
}

/// A block with a spend that is signed with the hash type of `low_bits`, to which an input is then added.
fn with_added_input(builder: &mut BlockBuilder<'_>, low_bits: i64) -> Draft {
    let mut tx = signed(builder, Kind::P2wpkh, low_bits);
    let free = builder.simple();
    tx.input.extend(free.input);
    builder.draft(vec![tx])
}

fn with_script_sig(tx: &mut Transaction, bytes: &[u8]) {
    tx.input[0].script_sig = ScriptBuf::from_bytes(bytes.to_vec());
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::accepts("spends-of-each-kind", Script, of_each_kind),
    Mutation::rejects("p2pk-signature-byte", EVAL_FALSE, Script, |builder| {
        pushes(builder, Kind::P2pk, |items| change_s(&mut items[0]))
    }),
    Mutation::rejects("p2pk-signed-for-another-key", EVAL_FALSE, Script, |builder| {
        let [own, other] = [1, 2].map(|key| builder.pool_script(ScriptRef::new(Kind::P2pk, key)));
        let coin = coin(builder, own, ALL);
        let mut claimed = coin.clone();
        claimed.coin.script = other.into_bytes();
        let tx = builder.spend(&[&claimed], vec![anyone(coin.coin.amount)]);
        builder.draft(vec![tx])
    }),
    Mutation::rejects("p2pkh-hash-type-byte", EVAL_FALSE, Script, |builder| {
        pushes(builder, Kind::P2pkh, |items| change_last_byte(&mut items[0]))
    }),
    Mutation::rejects(
        "p2pkh-another-key",
        failed!("Script failed an OP_EQUALVERIFY operation"),
        Script,
        |builder| pushes(builder, Kind::P2pkh, |items| items[1][0] ^= 1),
    ),
    Mutation::rejects("p2pkh-signature-empty", EVAL_FALSE, Script, |builder| {
        pushes(builder, Kind::P2pkh, |items| items[0].clear())
    }),
    Mutation::rejects("p2pkh-signature-not-der", failed!("Non-canonical DER signature"), Script, |builder| {
        pushes(builder, Kind::P2pkh, |items| items[0][0] = 0x31)
    }),
    Mutation::rejects("p2pkh-with-witness", WITNESS_UNEXPECTED, Script, |builder| {
        witness(builder, Kind::P2pkh, |items| items.push(vec![1]))
    }),
    Mutation::accepts("p2pkh-more-pushes-below", Script, |builder| {
        pushes(builder, Kind::P2pkh, |items| items.insert(0, vec![7; 520]))
    }),
    Mutation::rejects(
        "p2pkh-one-push-missing",
        failed!("Operation not valid with the current stack size"),
        Script,
        |builder| pushes(builder, Kind::P2pkh, |items| drop(items.remove(0))),
    ),
    Mutation::rejects("legacy-output-changed", EVAL_FALSE, Script, |builder| {
        changed(builder, Kind::P2pkhUncompressed, pay_another)
    }),
    Mutation::rejects("legacy-sequence-changed", EVAL_FALSE, Script, |builder| {
        changed(builder, Kind::P2pkh, |tx| tx.input[0].sequence = Sequence(u32::MAX - 1))
    }),
    Mutation::accepts("output-changed-under-none", Script, |builder| {
        let mut tx = signed(builder, Kind::P2pkh, NONE);
        pay_another(&mut tx);
        builder.draft(vec![tx])
    }),
    Mutation::rejects("input-joined-under-all", EVAL_FALSE, Script, |builder| with_added_input(builder, ALL)),
    Mutation::accepts("input-joined-under-anyonecanpay", Script, |builder| {
        with_added_input(builder, ALL_ANYONECANPAY)
    }),
    Mutation::accepts("legacy-for-another-amount", Script, |builder| {
        for_another_amount(builder, Kind::P2pkh)
    }),
    Mutation::rejects("segwit-for-another-amount", EVAL_FALSE, Script, |builder| {
        for_another_amount(builder, Kind::P2wpkh)
    }),
    Mutation::rejects("taproot-for-another-amount", SCHNORR_SIG, Script, |builder| {
        for_another_amount(builder, Kind::P2trKey)
    }),
    Mutation::rejects("multisig-dummy-not-null", NULLDUMMY, Script, |builder| {
        pushes(builder, Kind::Multisig, |items| items[0] = vec![1])
    }),
    Mutation::rejects("multisig-signatures-swapped", EVAL_FALSE, Script, |builder| {
        pushes(builder, Kind::Multisig, |items| items.swap(1, 2))
    }),
    Mutation::rejects("p2sh-redeem-script-byte", EVAL_FALSE, Script, |builder| {
        pushes(builder, Kind::P2shMultisig, |items| change_last_byte(&mut items[3]))
    }),
    Mutation::rejects(
        "p2sh-not-only-pushes",
        failed!("Only push operators allowed in signatures"),
        Script,
        |builder| {
            changed(builder, Kind::P2shMultisig, |tx| {
                let script = [&[0x61][..], tx.input[0].script_sig.as_bytes()].concat();
                with_script_sig(tx, &script);
            })
        },
    ),
    Mutation::rejects(
        "p2sh-p2wpkh-two-pushes",
        failed!("Witness requires only-redeemscript scriptSig"),
        Script,
        |builder| pushes(builder, Kind::P2shP2wpkh, |items| items.insert(0, vec![])),
    ),
    Mutation::rejects("p2sh-p2wpkh-no-witness", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2shP2wpkh, Vec::clear)
    }),
    Mutation::rejects("p2sh-p2wsh-script-byte", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2shP2wsh, |items| change_last_byte(&mut items[3]))
    }),
    Mutation::rejects("p2wpkh-signature-byte", EVAL_FALSE, Script, |builder| {
        witness(builder, Kind::P2wpkh, |items| change_s(&mut items[0]))
    }),
    Mutation::rejects("p2wpkh-hash-type-byte", EVAL_FALSE, Script, |builder| {
        witness(builder, Kind::P2wpkh, |items| change_last_byte(&mut items[0]))
    }),
    Mutation::rejects("p2wpkh-item-removed", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2wpkh, |items| drop(items.remove(0)))
    }),
    Mutation::rejects("p2wpkh-item-added", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2wpkh, |items| items.insert(0, vec![]))
    }),
    Mutation::rejects(
        "p2wpkh-signature-script",
        failed!("Witness requires empty scriptSig"),
        Script,
        |builder| changed(builder, Kind::P2wpkh, |tx| with_script_sig(tx, &[0])),
    ),
    Mutation::rejects("segwit-output-changed", EVAL_FALSE, Script, |builder| {
        changed(builder, Kind::P2wpkh, pay_another)
    }),
    Mutation::rejects(
        "p2wsh-no-witness",
        failed!("Witness program was passed an empty witness"),
        Script,
        |builder| witness(builder, Kind::P2wsh, Vec::clear),
    ),
    Mutation::rejects("p2wsh-script-byte", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2wsh, |items| change_last_byte(&mut items[3]))
    }),
    Mutation::rejects("p2wsh-dummy-not-null", NULLDUMMY, Script, |builder| {
        witness(builder, Kind::P2wsh, |items| items[0] = vec![1])
    }),
    Mutation::rejects(
        "p2wsh-item-below",
        failed!("Stack size must be exactly one after execution"),
        Script,
        |builder| witness(builder, Kind::P2wsh, |items| items.insert(0, vec![1])),
    ),
    Mutation::rejects("p2tr-signature-byte", SCHNORR_SIG, Script, |builder| {
        witness(builder, Kind::P2trKey, |items| change_last_byte(&mut items[0]))
    }),
    Mutation::rejects(
        "p2tr-signature-63-bytes",
        failed!("Invalid Schnorr signature size"),
        Script,
        |builder| witness(builder, Kind::P2trKey, |items| items[0].truncate(63)),
    ),
    Mutation::rejects("p2tr-hash-type-0-written", SCHNORR_SIG_HASHTYPE, Script, |builder| {
        witness(builder, Kind::P2trKey, |items| items[0].push(0))
    }),
    Mutation::rejects("p2tr-hash-type-4", SCHNORR_SIG_HASHTYPE, Script, |builder| {
        witness(builder, Kind::P2trKey, |items| items[0].push(4))
    }),
    Mutation::rejects("p2tr-another-hash-type", SCHNORR_SIG, Script, |builder| {
        witness(builder, Kind::P2trKey, |items| items[0].push(1))
    }),
    Mutation::rejects("p2tr-annex-added", SCHNORR_SIG, Script, |builder| {
        witness(builder, Kind::P2trKey, |items| items.push(vec![0x50, 7]))
    }),
    Mutation::rejects(
        "p2tr-no-witness",
        failed!("Witness program was passed an empty witness"),
        Script,
        |builder| witness(builder, Kind::P2trKey, Vec::clear),
    ),
    Mutation::rejects("tapscript-signature-byte", SCHNORR_SIG, Script, |builder| {
        witness(builder, Kind::P2trScript, |items| change_last_byte(&mut items[0]))
    }),
    Mutation::rejects("tapscript-signature-empty", EVAL_FALSE, Script, |builder| {
        witness(builder, Kind::P2trScript, |items| items[0].clear())
    }),
    Mutation::rejects("tapscript-byte", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2trScript, |items| items[1][5] ^= 1)
    }),
    Mutation::rejects("control-block-path-byte", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2trScript, |items| change_last_byte(&mut items[2]))
    }),
    Mutation::rejects("control-block-parity", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2trScript, |items| items[2][0] ^= 1)
    }),
    Mutation::rejects("control-block-leaf-version", MISMATCH, Script, |builder| {
        witness(builder, Kind::P2trScript, |items| items[2][0] ^= 2)
    }),
    Mutation::rejects(
        "control-block-byte-missing",
        failed!("Invalid Taproot control block size"),
        Script,
        |builder| witness(builder, Kind::P2trScript, |items| items[2].truncate(64)),
    ),
    Mutation::rejects(
        "tapscript-item-below",
        failed!("Stack size must be exactly one after execution"),
        Script,
        |builder| witness(builder, Kind::P2trScript, |items| items.insert(0, vec![1])),
    ),
    Mutation::accepts("anchor-with-witness", Script, |builder| {
        witness(builder, Kind::Anchor, |items| items.push(vec![7; 600]))
    }),
    Mutation::rejects("one-bad-input-of-many", SCHNORR_SIG, Script, |builder| {
        let mut draft = of_each_kind(builder);
        // Inputs are in the order of the kinds.
        let bad: &mut TxIn = &mut draft.txs[0].input[Kind::P2trKey as usize];
        let mut items = bad.witness.to_vec();
        change_last_byte(&mut items[0]);
        bad.witness = Witness::from_slice(&items);
        draft
    }),
    Mutation::rejects("coin-of-the-same-block-is-false", EVAL_FALSE, Script, |builder| {
        let coin = builder.take();
        let never = paying(coin.coin.amount, ScriptBuf::from_bytes(vec![0]));
        let parent = builder.spend(&[&coin], vec![never]);
        let child = builder.spend(&[&builder.coin_of(&parent, 0)], vec![anyone(coin.coin.amount)]);
        builder.draft(vec![parent, child])
    }),
];
