//! Mutations of spends whose scripts are run: what Peregrine hands to Core's interpreter, which has tests of
//! its own (`crates/script/tests`). Each kind of script and each rule of scripts has a row that fails and one
//! that succeeds; amounts, the coins of other inputs and the annex are part of what is signed.

use super::*;
use crate::scripts::Kind;
use CheckLevel::Script;
use bitcoin::{
    Opcode,
    opcodes::all::{OP_CLTV, OP_CSV, OP_DROP},
    script::Instruction,
};

const EVAL_FALSE: &str =
    failed!("Script evaluated without error but finished with a false/empty top stack element");
const MISMATCH: &str = failed!("Witness program hash mismatch");
const UNSATISFIED: &str = failed!("Locktime requirement not satisfied");
const NULLDUMMY: &str = failed!("Dummy CHECKMULTISIG argument must be zero");
const SCHNORR_SIG: &str = failed!("Invalid Schnorr signature");
const WITNESS_UNEXPECTED: &str = failed!("Witness provided for non-witness script");

/// The amount modulo 64 determines the hash type with which the pool signs.
const ALL: i64 = 0;
const ALL_ANYONECANPAY: i64 = 1;

/// A coin of the newest block.
pub(super) fn coin(builder: &mut BlockBuilder<'_>, script: ScriptBuf, low_bits: i64) -> BuilderCoin {
    let coin = builder.take();
    let amount = (coin.coin.amount & !63) - 64 + low_bits;
    builder.divide(&coin, vec![paying(amount, script)]).remove(0)
}

/// A block that spends a coin of a script, created one block before; `change` is applied to the transaction.
fn unlocked(
    builder: &mut BlockBuilder<'_>,
    script: ScriptBuf,
    change: impl FnOnce(&mut Transaction),
) -> Draft {
    let coin = coin(builder, script, ALL);
    let mut tx = builder.send(&coin);
    change(&mut tx);
    builder.draft(vec![tx])
}

/// `<number> <lock> DROP 1`
fn lock_script(number: u32, lock: Opcode) -> ScriptBuf {
    let builder = Builder::new().push_int(number.into()).push_opcode(lock);
    builder.push_opcode(OP_DROP).push_int(1).into_script()
}

/// A block with a spend under CHECKLOCKTIMEVERIFY. The transaction's lock time is the latest possible, one
/// less than its block's height; the script requires a lock time that is greater by `more`.
fn cltv(builder: &mut BlockBuilder<'_>, more: u32) -> Draft {
    // The coin takes one block to create, so this is the height before the spend's.
    let lock_time = builder.height();
    unlocked(builder, lock_script(lock_time + more, OP_CLTV), |tx| {
        tx.lock_time = LockTime::from_consensus(lock_time);
        tx.input[0].sequence = Sequence(0);
    })
}

/// A block with a spend of a coin of age 1 under CHECKSEQUENCEVERIFY, which requires `blocks`.
fn csv(builder: &mut BlockBuilder<'_>, blocks: u32) -> Draft {
    unlocked(builder, lock_script(blocks, OP_CSV), |tx| tx.input[0].sequence = Sequence(1))
}

/// A block with a signed spend that is then changed.
fn changed(builder: &mut BlockBuilder<'_>, kind: Kind, change: impl FnOnce(&mut Transaction)) -> Draft {
    let script = builder.pool_script(ScriptRef::new(kind, 1));
    unlocked(builder, script, change)
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
    builder.spending(&[&claimed], vec![anyone(coin.coin.amount)])
}

/// A block with a transaction that spends a coin of each kind.
fn of_each_kind(builder: &mut BlockBuilder<'_>) -> Draft {
    let coin = builder.take();
    let share = coin.coin.amount / Kind::ALL.len() as i64;
    let scripts = Kind::ALL.iter().map(|kind| builder.pool_script(ScriptRef::new(*kind, 2)));
    let outputs = scripts.map(|script| paying(share, script)).collect();
    let coins = builder.divide(&coin, outputs);
    builder.spending(&coins.iter().collect::<Vec<_>>(), vec![anyone(share)])
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
    let script = builder.pool_script(ScriptRef::new(Kind::P2wpkh, 1));
    let coin = coin(builder, script, low_bits);
    let mut tx = builder.send(&coin);
    tx.input.extend(builder.simple().input);
    builder.draft(vec![tx])
}

fn with_script_sig(tx: &mut Transaction, bytes: &[u8]) {
    tx.input[0].script_sig = ScriptBuf::from_bytes(bytes.to_vec());
}

pub(super) static ROWS: &[Mutation] = &[
    Script.accepts("spends-of-each-kind", of_each_kind),
    Script.rejects("p2pk-signature-byte", EVAL_FALSE, |builder| {
        pushes(builder, Kind::P2pk, |items| change_s(&mut items[0]))
    }),
    Script.rejects("p2pkh-another-key", failed!("Script failed an OP_EQUALVERIFY operation"), |builder| {
        pushes(builder, Kind::P2pkh, |items| items[1][0] ^= 1)
    }),
    Script.rejects("p2pkh-signature-not-der", failed!("Non-canonical DER signature"), |builder| {
        pushes(builder, Kind::P2pkh, |items| items[0][0] = 0x31)
    }),
    Script.rejects("p2pkh-with-witness", WITNESS_UNEXPECTED, |builder| {
        witness(builder, Kind::P2pkh, |items| items.push(vec![1]))
    }),
    Script.rejects("input-joined-under-all", EVAL_FALSE, |builder| with_added_input(builder, ALL)),
    Script.accepts("input-joined-under-anyonecanpay", |builder| with_added_input(builder, ALL_ANYONECANPAY)),
    Script.accepts("legacy-for-another-amount", |builder| for_another_amount(builder, Kind::P2pkh)),
    Script.rejects("segwit-for-another-amount", EVAL_FALSE, |it| for_another_amount(it, Kind::P2wpkh)),
    Script.rejects("taproot-for-another-amount", SCHNORR_SIG, |it| for_another_amount(it, Kind::P2trKey)),
    Script.rejects("multisig-dummy-not-null", NULLDUMMY, |builder| {
        pushes(builder, Kind::Multisig, |items| items[0] = vec![1])
    }),
    Script.rejects("p2sh-not-only-pushes", failed!("Only push operators allowed in signatures"), |builder| {
        changed(builder, Kind::P2shMultisig, |tx| {
            let script = [&[0x61][..], tx.input[0].script_sig.as_bytes()].concat();
            with_script_sig(tx, &script);
        })
    }),
    Script.rejects("p2sh-p2wpkh-no-witness", MISMATCH, |it| witness(it, Kind::P2shP2wpkh, Vec::clear)),
    Script.rejects("p2sh-p2wsh-script-byte", MISMATCH, |builder| {
        witness(builder, Kind::P2shP2wsh, |items| change_last_byte(&mut items[3]))
    }),
    Script.rejects("p2wpkh-signature-byte", EVAL_FALSE, |builder| {
        witness(builder, Kind::P2wpkh, |items| change_s(&mut items[0]))
    }),
    Script.rejects("p2wsh-script-byte", MISMATCH, |builder| {
        witness(builder, Kind::P2wsh, |items| change_last_byte(&mut items[3]))
    }),
    Script.rejects("p2tr-signature-byte", SCHNORR_SIG, |builder| {
        witness(builder, Kind::P2trKey, |items| change_last_byte(&mut items[0]))
    }),
    Script.rejects("p2tr-annex-added", SCHNORR_SIG, |builder| {
        witness(builder, Kind::P2trKey, |items| items.push(vec![0x50, 7]))
    }),
    Script.rejects("tapscript-signature-byte", SCHNORR_SIG, |builder| {
        witness(builder, Kind::P2trScript, |items| change_last_byte(&mut items[0]))
    }),
    Script.accepts("anchor-with-witness", |builder| {
        witness(builder, Kind::Anchor, |items| items.push(vec![7; 600]))
    }),
    Script.rejects("one-bad-input-of-many", SCHNORR_SIG, |builder| {
        let mut draft = of_each_kind(builder);
        // Inputs are in the order of the kinds.
        let bad: &mut TxIn = &mut draft.txs[0].input[Kind::P2trKey as usize];
        let mut items = bad.witness.to_vec();
        change_last_byte(&mut items[0]);
        bad.witness = Witness::from_slice(&items);
        draft
    }),
    Script.rejects("coin-of-the-same-block-is-false", EVAL_FALSE, |builder| {
        let coin = builder.take();
        let never = paying(coin.coin.amount, ScriptBuf::from_bytes(vec![0]));
        let parent = builder.spend(&[&coin], vec![never]);
        let child = builder.spend(&[&builder.coin_of(&parent, 0)], vec![anyone(coin.coin.amount)]);
        builder.draft(vec![parent, child])
    }),
    Script.accepts("cltv-just-met", |builder| cltv(builder, 0)),
    Script.rejects("cltv-1-more", UNSATISFIED, |builder| cltv(builder, 1)),
    Script.accepts("csv-just-met", |builder| csv(builder, 1)),
    Script.rejects("csv-1-more", UNSATISFIED, |builder| csv(builder, 2)),
    // These break only rules of Core's mempool.
    Script.accepts("two-left-on-the-stack", |builder| {
        unlocked(builder, ScriptBuf::from_bytes(vec![0x51, 0x51]), |_| {})
    }),
    Script.accepts("witness-program-of-version-2", |builder| {
        let program = [vec![0x52, 32], vec![7; 32]].concat();
        unlocked(builder, ScriptBuf::from_bytes(program), |_| {})
    }),
    Script.accepts("taproot-within-p2sh", |builder| {
        let redeem = ScriptBuf::from_bytes([vec![0x51, 32], vec![7; 32]].concat());
        let push = [vec![34], redeem.to_bytes()].concat();
        unlocked(builder, ScriptBuf::new_p2sh(&redeem.script_hash()), |tx| with_script_sig(tx, &push))
    }),
];
