//! Mutations of scripts without signatures: locks that are just satisfied or just not, sizes at their limits,
//! operations that must not be executed.

use super::{
    CheckLevel, Mutation,
    block_builder::{BlockBuilder, BuilderCoin, Draft, anyone, paying},
    failed,
};
use CheckLevel::Script;
use bitcoin::{
    Opcode, ScriptBuf, Sequence, Transaction, Witness,
    absolute::LockTime,
    opcodes::all::{
        OP_CAT, OP_CHECKMULTISIG, OP_CLTV, OP_CSV, OP_DROP, OP_ELSE, OP_ENDIF, OP_IF, OP_NOP, OP_PUSHNUM_1,
        OP_RETURN, OP_VERIF,
    },
    script::{Builder, PushBytesBuf},
    transaction::Version,
};

const EVAL_FALSE: &str =
    failed!("Script evaluated without error but finished with a false/empty top stack element");
const UNSATISFIED: &str = failed!("Locktime requirement not satisfied");
const PUSH_SIZE: &str = failed!("Push value size limit exceeded");
const OP_COUNT: &str = failed!("Operation limit exceeded");
const STACK_SIZE: &str = failed!("Stack size limit exceeded");
const UNBALANCED: &str = failed!("Invalid OP_IF construction");
const INVALID_STACK: &str = failed!("Operation not valid with the current stack size");
const BAD_OPCODE: &str = failed!("Opcode missing or not understood");

/// The sequence bit that disables a relative lock.
const OFF: u32 = 1 << 31;
/// The sequence bit that makes a relative lock count time instead of blocks.
const BY_TIME: u32 = 1 << 22;
/// Lock times from this value on are times, below it heights.
const LOCKTIME_THRESHOLD: i64 = 500_000_000;

/// Adds a block with a coin of this script, and returns the coin.
pub(super) fn coin(builder: &mut BlockBuilder<'_>, script: ScriptBuf) -> BuilderCoin {
    let coin = builder.take();
    let setup = builder.spend(&[&coin], vec![paying(coin.coin.amount, script)]);
    builder.add(vec![setup.clone()]);
    builder.tip_coin_of(&setup, 0)
}

/// A block that spends a coin of this script, created one block before; `change` is applied to the spending
/// transaction.
fn spend(builder: &mut BlockBuilder<'_>, script: ScriptBuf, change: impl FnOnce(&mut Transaction)) -> Draft {
    let coin = coin(builder, script);
    let mut tx = builder.spend(&[&coin], vec![anyone(coin.coin.amount)]);
    change(&mut tx);
    builder.draft(vec![tx])
}

/// A block that spends a coin of `script` with `script_sig`.
pub(super) fn run(builder: &mut BlockBuilder<'_>, script: impl Into<ScriptBuf>, script_sig: &[u8]) -> Draft {
    spend(builder, script.into(), |tx| tx.input[0].script_sig = ScriptBuf::from_bytes(script_sig.to_vec()))
}

/// A block that spends a P2WSH coin of `script` with the witness items `items`.
pub(super) fn run_in_witness(builder: &mut BlockBuilder<'_>, script: Builder, items: &[Vec<u8>]) -> Draft {
    let script = script.into_script();
    spend(builder, ScriptBuf::new_p2wsh(&script.wscript_hash()), |tx| {
        tx.input[0].witness = Witness::from_slice(&[items, &[script.into_bytes()]].concat());
    })
}

/// `<number> <lock> DROP 1`
fn lock_script(number: i64, lock: Opcode) -> ScriptBuf {
    Builder::new().push_int(number).push_opcode(lock).push_opcode(OP_DROP).push_int(1).into_script()
}

/// A block with a spend under CHECKLOCKTIMEVERIFY. The transaction's lock time is the latest possible, one
/// less than its block's height; the script requires a lock time that is greater by `more`.
fn cltv(builder: &mut BlockBuilder<'_>, more: i64, sequence: u32) -> Draft {
    // The coin takes one block to create, so this is the height before the spend's.
    let lock_time = builder.height();
    let script = lock_script(i64::from(lock_time) + more, OP_CLTV);
    spend(builder, script, |tx| {
        tx.lock_time = LockTime::from_consensus(lock_time);
        tx.input[0].sequence = Sequence(sequence);
    })
}

/// A block with a spend of a coin of age 1 under CHECKSEQUENCEVERIFY.
fn csv(builder: &mut BlockBuilder<'_>, number: i64, version: i32, sequence: u32) -> Draft {
    spend(builder, lock_script(number, OP_CSV), |tx| {
        tx.version = Version(version);
        tx.input[0].sequence = Sequence(sequence);
    })
}

fn repeated(opcode: Opcode, count: usize) -> Vec<u8> {
    vec![opcode.to_u8(); count]
}

/// `0 IF <opcode> ENDIF 1`
fn not_executed(opcode: Opcode) -> ScriptBuf {
    let builder = Builder::new().push_int(0).push_opcode(OP_IF).push_opcode(opcode);
    builder.push_opcode(OP_ENDIF).push_int(1).into_script()
}

/// `<len bytes> DROP 1`
fn of_push(len: usize) -> ScriptBuf {
    let bytes = PushBytesBuf::try_from(vec![7; len]).expect("the bytes can be pushed");
    Builder::new().push_slice(bytes).push_opcode(OP_DROP).push_int(1).into_script()
}

/// `NOP.. 1`
fn of_operations(count: usize) -> ScriptBuf {
    ScriptBuf::from_bytes([repeated(OP_NOP, count), vec![OP_PUSHNUM_1.to_u8()]].concat())
}

/// `0 0 <keys> <count> CHECKMULTISIG`: requires no signature.
fn of_keys(count: i64) -> ScriptBuf {
    let keys = (0..count).fold(Builder::new().push_int(0).push_int(0), |builder, _| builder.push_int(1));
    keys.push_int(count).push_opcode(OP_CHECKMULTISIG).into_script()
}

/// `IF RETURN ENDIF 1`
fn return_if() -> ScriptBuf {
    let builder = Builder::new().push_opcode(OP_IF).push_opcode(OP_RETURN).push_opcode(OP_ENDIF);
    builder.push_int(1).into_script()
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::accepts("cltv-just-met", Script, |builder| cltv(builder, 0, 0)),
    Mutation::rejects("cltv-1-more", UNSATISFIED, Script, |builder| cltv(builder, 1, 0)),
    Mutation::rejects("cltv-final-sequence", UNSATISFIED, Script, |builder| cltv(builder, 0, u32::MAX)),
    Mutation::accepts("cltv-sequence-just-not-final", Script, |builder| cltv(builder, 0, u32::MAX - 1)),
    Mutation::rejects("cltv-time-for-a-height", UNSATISFIED, Script, |builder| {
        cltv(builder, LOCKTIME_THRESHOLD, 0)
    }),
    Mutation::rejects("cltv-negative", failed!("Negative locktime"), Script, |builder| {
        let script = lock_script(-1, OP_CLTV);
        spend(builder, script, |tx| tx.input[0].sequence = Sequence(0))
    }),
    Mutation::rejects("cltv-without-number", INVALID_STACK, Script, |builder| {
        let script = Builder::new().push_opcode(OP_CLTV).push_int(1).into_script();
        run(builder, script, &[])
    }),
    Mutation::accepts("csv-just-met", Script, |builder| csv(builder, 1, 2, 1)),
    Mutation::rejects("csv-1-more", UNSATISFIED, Script, |builder| csv(builder, 2, 2, 1)),
    Mutation::rejects("csv-in-version-1", UNSATISFIED, Script, |builder| csv(builder, 1, 1, 1)),
    Mutation::rejects("csv-sequence-turned-off", UNSATISFIED, Script, |builder| csv(builder, 1, 2, OFF | 1)),
    Mutation::accepts("csv-number-turned-off", Script, |builder| csv(builder, i64::from(OFF) | 9, 2, OFF)),
    Mutation::rejects("csv-time-for-blocks", UNSATISFIED, Script, |builder| {
        csv(builder, i64::from(BY_TIME), 2, 1)
    }),
    Mutation::rejects("csv-negative", failed!("Negative locktime"), Script, |builder| csv(builder, -1, 2, 1)),
    Mutation::accepts("push-of-520-bytes", Script, |builder| run(builder, of_push(520), &[])),
    Mutation::rejects("push-of-521-bytes", PUSH_SIZE, Script, |builder| run(builder, of_push(521), &[])),
    Mutation::accepts("201-operations", Script, |builder| run(builder, of_operations(201), &[])),
    Mutation::rejects("202-operations", OP_COUNT, Script, |builder| run(builder, of_operations(202), &[])),
    Mutation::accepts("stack-of-1000", Script, |builder| {
        run(builder, ScriptBuf::from_bytes(repeated(OP_PUSHNUM_1, 1000)), &[])
    }),
    Mutation::rejects("stack-of-1001", STACK_SIZE, Script, |builder| {
        run(builder, ScriptBuf::from_bytes(repeated(OP_PUSHNUM_1, 1001)), &[])
    }),
    Mutation::accepts("multisig-of-20-keys", Script, |builder| run(builder, of_keys(20), &[])),
    Mutation::rejects(
        "multisig-of-21-keys",
        failed!("Pubkey count negative or limit exceeded"),
        Script,
        |builder| run(builder, of_keys(21), &[]),
    ),
    Mutation::rejects("return-run", failed!("OP_RETURN was encountered"), Script, |builder| {
        run(builder, return_if(), &[0x51])
    }),
    Mutation::accepts("return-not-run", Script, |builder| run(builder, return_if(), &[0])),
    Mutation::rejects("disabled-not-run", failed!("Attempted to use a disabled opcode"), Script, |builder| {
        run(builder, not_executed(OP_CAT), &[])
    }),
    Mutation::rejects("verif-not-run", BAD_OPCODE, Script, |builder| {
        run(builder, not_executed(OP_VERIF), &[])
    }),
    Mutation::accepts("unknown-not-run", Script, |builder| {
        run(builder, not_executed(Opcode::from(0xfe)), &[])
    }),
    Mutation::rejects("unknown-run", BAD_OPCODE, Script, |builder| {
        run(builder, ScriptBuf::from_bytes(vec![0xfe]), &[])
    }),
    Mutation::rejects("if-without-end", UNBALANCED, Script, |builder| {
        run(builder, ScriptBuf::from_bytes(vec![0x51, 0x51, OP_IF.to_u8()]), &[])
    }),
    Mutation::rejects("if-across-scripts", UNBALANCED, Script, |builder| {
        let script = ScriptBuf::from_bytes(vec![OP_ELSE.to_u8(), OP_ENDIF.to_u8()]);
        run(builder, script, &[0x51, 0x51, OP_IF.to_u8()])
    }),
    Mutation::accepts("two-left-on-the-stack", Script, |builder| {
        run(builder, ScriptBuf::from_bytes(vec![0x51, 0x51]), &[])
    }),
    Mutation::rejects("negative-zero-left", EVAL_FALSE, Script, |builder| {
        run(builder, ScriptBuf::from_bytes(vec![1, 0x80]), &[])
    }),
    Mutation::rejects("nothing-left", EVAL_FALSE, Script, |builder| run(builder, ScriptBuf::new(), &[])),
    Mutation::rejects("torn-push", BAD_OPCODE, Script, |builder| {
        run(builder, ScriptBuf::from_bytes(vec![0x51]), &[0x51, 2, 7])
    }),
    Mutation::accepts("signature-script-of-more-than-pushes", Script, |builder| {
        run(builder, ScriptBuf::from_bytes(vec![0x51]), &repeated(OP_NOP, 201))
    }),
    Mutation::accepts("witness-leaves-one", Script, |builder| {
        run_in_witness(builder, Builder::new().push_opcode(OP_DROP).push_int(1), &[vec![7; 520]])
    }),
    Mutation::rejects("witness-item-of-521-bytes", PUSH_SIZE, Script, |builder| {
        run_in_witness(builder, Builder::new().push_opcode(OP_DROP).push_int(1), &[vec![7; 521]])
    }),
    Mutation::rejects(
        "witness-leaves-two",
        failed!("Stack size must be exactly one after execution"),
        Script,
        |builder| run_in_witness(builder, Builder::new().push_int(1).push_int(1), &[]),
    ),
    Mutation::rejects("witness-leaves-false", EVAL_FALSE, Script, |builder| {
        run_in_witness(builder, Builder::new().push_int(0), &[])
    }),
    Mutation::accepts("p2sh-leaves-two", Script, |builder| {
        let redeem = ScriptBuf::from_bytes(vec![0x51, 0x51]);
        run(builder, ScriptBuf::new_p2sh(&redeem.script_hash()), &[2, 0x51, 0x51])
    }),
    Mutation::rejects(
        "witness-program-of-31-bytes",
        failed!("Witness program has incorrect length"),
        Script,
        |builder| {
            let program = [vec![0, 31], vec![7; 31]].concat();
            spend(builder, ScriptBuf::from_bytes(program), |tx| tx.input[0].witness.push([1]))
        },
    ),
    Mutation::accepts("witness-program-of-version-2", Script, |builder| {
        let program = [vec![0x52, 32], vec![7; 32]].concat();
        spend(builder, ScriptBuf::from_bytes(program), |_| {})
    }),
];
