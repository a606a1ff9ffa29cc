//! Rows about the block as a whole: its trees, its size, its coinbase, its signature operations.

use super::{
    Mutation, Stage,
    workbench::{Commitment, Draft, Workbench, anyone, paying, true_script},
};
use Stage::{Block, Spend};
use bitcoin::{
    ScriptBuf, Transaction, Witness,
    opcodes::all::{OP_CHECKMULTISIG, OP_CHECKSIG, OP_ENDIF, OP_IF, OP_PUSHNUM_16},
    script::{Builder, PushBytesBuf},
};

/// The weight limit, in units and in bytes without witness.
const MAX_WEIGHT: u64 = 4_000_000;
/// A script of `0 IF .. ENDIF 1` may hold so many more operations (201 in all).
const MULTISIGS: u64 = 190;

/// A block with a coin spent by a transaction that has a witness.
fn with_witness(bench: &mut Workbench<'_>) -> Draft {
    let coin = unknown_witness_coin(bench);
    let mut tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
    tx.input[0].witness = Witness::from_slice(&[vec![1]]);
    bench.draft(vec![tx])
}

/// A coin of witness version 16: any witness satisfies it, of any size.
fn unknown_witness_coin(bench: &mut Workbench<'_>) -> super::WorkbenchCoin {
    let coin = bench.take();
    let script = Builder::new().push_opcode(OP_PUSHNUM_16).push_slice([7; 2]).into_script();
    let setup = bench.spend(&[&coin], vec![paying(coin.coin.amount, script)]);
    bench.add(vec![setup.clone()]);
    bench.tip_coin_of(&setup, 0)
}

/// A block of exactly `size` bytes without witness, and no witness.
fn of_stripped_size(bench: &mut Workbench<'_>, size: usize) -> Draft {
    let coin = bench.take();
    let filler = |len| paying(0, ScriptBuf::from_bytes([vec![0x6a], vec![0; len]].concat()));
    let make = |len| bench.draft(vec![bench.spend(&[&coin], vec![anyone(coin.coin.amount), filler(len)])]);
    let guess = size - 1_000;
    let missing = size - bench.seal(&make(guess)).bytes.len();
    make(guess + missing)
}

fn of_weight(bench: &mut Workbench<'_>, weight: u64) -> Draft {
    let coin = unknown_witness_coin(bench);
    let make = |len| {
        let mut tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount)]);
        tx.input[0].witness = Witness::from_slice(&[vec![0; len]]);
        bench.draft(vec![tx])
    };
    let guess = 3_900_000;
    let bytes = bench.seal(&make(guess)).bytes;
    let mut arena = wire::BlockArena::default();
    let got = arena.parse(&bytes).expect("we made it").weight().0;
    make(guess + (weight - got) as usize)
}

/// `0 IF CHECKMULTISIG.. CHECKSIG.. ENDIF 1`: counts 20 for each of the former, 1 for each of the latter;
/// anyone can spend it.
fn costly_script(multisigs: u64, sigs: u64) -> ScriptBuf {
    let mut builder = Builder::new().push_int(0).push_opcode(OP_IF);
    for _ in 0..multisigs {
        builder = builder.push_opcode(OP_CHECKMULTISIG);
    }
    for _ in 0..sigs {
        builder = builder.push_opcode(OP_CHECKSIG);
    }
    builder.push_opcode(OP_ENDIF).push_int(1).into_script()
}

/// Scripts that count `sigops` in all.
fn costly_scripts(mut sigops: u64) -> Vec<ScriptBuf> {
    let mut scripts = Vec::new();
    while sigops > 0 {
        let multisigs = (sigops / 20).min(MULTISIGS);
        sigops -= multisigs * 20;
        let sigs = if multisigs < MULTISIGS { sigops.min(5) } else { 0 };
        sigops -= sigs;
        scripts.push(costly_script(multisigs, sigs));
    }
    scripts
}

/// A block that spends outputs with hashed scripts which count `sigops`.
fn of_spent_sigops(
    bench: &mut Workbench<'_>,
    sigops: u64,
    lock: fn(&ScriptBuf) -> ScriptBuf,
    unlock: fn(&mut Transaction, usize, &ScriptBuf),
) -> Draft {
    let scripts = costly_scripts(sigops);
    let coin = bench.take();
    let share = coin.coin.amount / scripts.len() as i64;
    let setup = bench.spend(&[&coin], scripts.iter().map(|script| paying(share, lock(script))).collect());
    bench.add(vec![setup.clone()]);
    let coins: Vec<_> = (0..scripts.len() as u32).map(|vout| bench.tip_coin_of(&setup, vout)).collect();
    let mut tx = bench.spend(&coins.iter().collect::<Vec<_>>(), vec![anyone(1_000)]);
    for (input, script) in scripts.iter().enumerate() {
        unlock(&mut tx, input, script);
    }
    bench.draft(vec![tx])
}

fn of_p2sh_sigops(bench: &mut Workbench<'_>, sigops: u64) -> Draft {
    of_spent_sigops(
        bench,
        sigops,
        |script| ScriptBuf::new_p2sh(&script.script_hash()),
        |tx, input, script| {
            let push = PushBytesBuf::try_from(script.to_bytes()).expect("redeem scripts are short");
            tx.input[input].script_sig = Builder::new().push_slice(push).into_script();
        },
    )
}

fn of_witness_sigops(bench: &mut Workbench<'_>, sigops: u64) -> Draft {
    of_spent_sigops(
        bench,
        sigops,
        |script| ScriptBuf::new_p2wsh(&script.wscript_hash()),
        |tx, input, script| tx.input[input].witness = Witness::from_slice(&[script.to_bytes()]),
    )
}

fn of_output_sigops(bench: &mut Workbench<'_>, sigops: usize) -> Draft {
    let coin = bench.take();
    let script = ScriptBuf::from_bytes(vec![OP_CHECKSIG.to_u8(); sigops]);
    let tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount), paying(0, script)]);
    bench.draft(vec![tx])
}

/// A block whose coinbase script is the height and then zeros up to `len` bytes; shorter than the height, it
/// is cut.
fn of_coinbase_length(bench: &Workbench<'_>, len: usize) -> Draft {
    let mut draft = bench.draft(vec![]);
    let mut script = Builder::new().push_int(bench.height().into()).into_script().into_bytes();
    script.resize(len, 0);
    if let Some(coinbase) = &mut draft.coinbase {
        coinbase.input[0].script_sig = ScriptBuf::from_bytes(script);
    }
    draft
}

fn of_reward(bench: &mut Workbench<'_>, difference: i64) -> Draft {
    let coin = bench.take();
    let tx = bench.spend(&[&coin], vec![anyone(coin.coin.amount - 1_234)]);
    let mut draft = bench.draft(vec![tx]);
    if let Some(coinbase) = &mut draft.coinbase {
        let reward = coinbase.output[0].value.to_sat() as i64 + difference;
        coinbase.output[0] = anyone(reward);
    }
    draft
}

pub(super) static ROWS: &[Mutation] = &[
    Mutation::rejects("another-merkle-root", "bad-txnmrklroot", Block, |bench| {
        let mut draft = bench.draft(vec![]);
        draft.wrong_root = true;
        draft
    }),
    Mutation::rejects("repeated-last-transaction", "bad-txns-duplicate", Block, |bench| {
        let txs = vec![bench.simple(), bench.simple()];
        Draft { repeated: 1, ..bench.draft(txs) }
    }),
    Mutation::rejects("repeated-last-two-transactions", "bad-txns-duplicate", Block, |bench| {
        let txs = (0..5).map(|_| bench.simple()).collect();
        Draft { repeated: 2, ..bench.draft(txs) }
    }),
    Mutation::rejects("no-transactions", "bad-blk-length", Block, |bench| Draft {
        coinbase: None,
        ..bench.draft(vec![])
    }),
    Mutation::rejects("stripped-size-1000001", "bad-blk-length", Block, |bench| {
        of_stripped_size(bench, 1_000_001)
    }),
    Mutation::accepts("stripped-size-1000000", Block, |bench| of_stripped_size(bench, 1_000_000)),
    Mutation::rejects("weight-4000001", "bad-blk-weight", Block, |bench| of_weight(bench, MAX_WEIGHT + 1)),
    Mutation::accepts("weight-4000000", Block, |bench| of_weight(bench, MAX_WEIGHT)),
    Mutation::rejects("no-coinbase", "bad-cb-missing", Block, |bench| {
        let tx = bench.simple();
        Draft { coinbase: None, ..bench.draft(vec![tx]) }
    }),
    Mutation::rejects("coinbase-second", "bad-cb-missing", Block, |bench| {
        let tx = bench.simple();
        let mut draft = bench.draft(vec![tx]);
        draft.txs.extend(draft.coinbase.take());
        draft
    }),
    Mutation::rejects("two-coinbases", "bad-cb-multiple", Block, |bench| {
        let mut draft = bench.draft(vec![]);
        let second = crate::block::coinbase(bench.height(), !bench.salt(), vec![anyone(0)]);
        draft.txs.push(second);
        draft
    }),
    Mutation::rejects("coinbase-script-1-byte", "bad-cb-length", Block, |bench| of_coinbase_length(bench, 1)),
    Mutation::accepts("coinbase-script-height-only", Block, |bench| of_coinbase_length(bench, 3)),
    Mutation::accepts("coinbase-script-100-bytes", Block, |bench| of_coinbase_length(bench, 100)),
    Mutation::rejects("coinbase-script-101-bytes", "bad-cb-length", Block, |bench| {
        of_coinbase_length(bench, 101)
    }),
    Mutation::rejects("height-of-the-block-before", "bad-cb-height", Block, |bench| {
        let mut draft = bench.draft(vec![]);
        let reward = draft.coinbase.map(|coinbase| coinbase.output).unwrap_or_default();
        draft.coinbase = Some(crate::block::coinbase(bench.height() - 1, bench.salt(), reward));
        draft
    }),
    Mutation::rejects("height-not-minimal", "bad-cb-height", Block, |bench| {
        let mut draft = bench.draft(vec![]);
        let height = [bench.height().to_le_bytes().as_slice(), &[0]].concat();
        if let Some(coinbase) = &mut draft.coinbase {
            coinbase.input[0].script_sig = ScriptBuf::from_bytes([vec![5], height].concat());
        }
        draft
    }),
    Mutation::rejects("reserved-value-31-bytes", "bad-witness-nonce-size", Block, |bench| Draft {
        reserved_value: Some(vec![vec![0; 31]]),
        ..with_witness(bench)
    }),
    Mutation::rejects("reserved-value-twice", "bad-witness-nonce-size", Block, |bench| Draft {
        reserved_value: Some(vec![vec![0; 32]; 2]),
        ..with_witness(bench)
    }),
    Mutation::rejects("reserved-value-absent", "bad-witness-nonce-size", Block, |bench| Draft {
        reserved_value: Some(vec![]),
        commitment: Commitment::Present,
        ..bench.draft(vec![])
    }),
    Mutation::rejects("reserved-value-another", "bad-witness-merkle-match", Block, |bench| Draft {
        reserved_value: Some(vec![vec![1; 32]]),
        ..with_witness(bench)
    }),
    Mutation::rejects("another-commitment", "bad-witness-merkle-match", Block, |bench| Draft {
        commitment: Commitment::Wrong,
        ..with_witness(bench)
    }),
    Mutation::accepts("last-commitment-counts", Block, |bench| Draft {
        commitment: Commitment::WrongThenRight,
        ..with_witness(bench)
    }),
    Mutation::rejects("witness-without-commitment", "unexpected-witness", Block, |bench| Draft {
        commitment: Commitment::Absent,
        ..with_witness(bench)
    }),
    Mutation::accepts("commitment-without-witness", Block, |bench| Draft {
        commitment: Commitment::Present,
        ..bench.draft(vec![])
    }),
    Mutation::accepts("neither-commitment-nor-witness", Block, |bench| {
        let tx = bench.simple();
        Draft { commitment: Commitment::Absent, ..bench.draft(vec![tx]) }
    }),
    Mutation::rejects("output-sigops-20001", "bad-blk-sigops", Block, |bench| {
        of_output_sigops(bench, 20_001)
    }),
    Mutation::accepts("output-sigops-20000", Block, |bench| of_output_sigops(bench, 20_000)),
    Mutation::rejects("p2sh-sigops-20001", "bad-blk-sigops", Spend, |bench| of_p2sh_sigops(bench, 20_001)),
    Mutation::accepts("p2sh-sigops-20000", Spend, |bench| of_p2sh_sigops(bench, 20_000)),
    Mutation::rejects("witness-sigops-80001", "bad-blk-sigops", Spend, |bench| {
        of_witness_sigops(bench, 80_001)
    }),
    Mutation::accepts("witness-sigops-80000", Spend, |bench| of_witness_sigops(bench, 80_000)),
    Mutation::rejects("reward-1-too-much", "bad-cb-amount", Spend, |bench| of_reward(bench, 1)),
    Mutation::accepts("reward-exact", Spend, |bench| of_reward(bench, 0)),
    Mutation::accepts("reward-1-too-little", Spend, |bench| of_reward(bench, -1)),
    Mutation::rejects("reward-in-second-output", "bad-cb-amount", Spend, |bench| {
        let mut draft = bench.draft(vec![]);
        if let Some(coinbase) = &mut draft.coinbase {
            coinbase.output.push(paying(1, true_script()));
        }
        draft
    }),
];
