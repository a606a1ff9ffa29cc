//! Mutations of the block as a whole: merkle trees, size, coinbase, signature operations.

use super::{block_builder::Commitment, *};
use CheckLevel::{Block, Spend};
use bitcoin::opcodes::all::{OP_CHECKMULTISIG, OP_CHECKSIG, OP_ENDIF, OP_IF, OP_PUSHNUM_16};

const NONCE_SIZE: &str = "bad-witness-nonce-size";
const MERKLE_MATCH: &str = "bad-witness-merkle-match";
const UNEXPECTED: &str = "unexpected-witness";
/// Maximum weight of a block, in weight units.
const MAX_WEIGHT: u64 = 4_000_000;
/// Number of CHECKMULTISIGs in a script `0 IF .. ENDIF 1`, close to the limit of 201 operations.
const MULTISIGS: u64 = 190;

/// A block with a transaction that has a witness.
fn with_witness(builder: &mut BlockBuilder<'_>) -> Draft {
    let coin = unknown_witness_coin(builder);
    let mut tx = builder.send(&coin);
    tx.input[0].witness = Witness::from_slice(&[vec![1]]);
    builder.draft(vec![tx])
}

/// The same, with this reserved value.
fn with_reserved_value(builder: &mut BlockBuilder<'_>, value: Vec<Vec<u8>>) -> Draft {
    Draft { reserved_value: Some(value), ..with_witness(builder) }
}

/// The same, with this commitment.
fn with_commitment(builder: &mut BlockBuilder<'_>, commitment: Commitment) -> Draft {
    Draft { commitment, ..with_witness(builder) }
}

/// A coin with witness version 16: any witness of any size satisfies it.
fn unknown_witness_coin(builder: &mut BlockBuilder<'_>) -> BuilderCoin {
    let coin = builder.take();
    let script = Builder::new().push_opcode(OP_PUSHNUM_16).push_slice([7; 2]).into_script();
    builder.divide(&coin, vec![paying(coin.coin.amount, script)]).remove(0)
}

/// A block of exactly `size` bytes, without a witness.
fn of_stripped_size(builder: &mut BlockBuilder<'_>, size: usize) -> Draft {
    let coin = builder.take();
    let filler = |len| paying(0, ScriptBuf::from_bytes([vec![0x6a], vec![0; len]].concat()));
    let make = |len| builder.spending(&[&coin], vec![anyone(coin.coin.amount), filler(len)]);
    let guess = size - 1_000;
    let missing = size - builder.seal(&make(guess)).bytes.len();
    make(guess + missing)
}

fn of_weight(builder: &mut BlockBuilder<'_>, weight: u64) -> Draft {
    let coin = unknown_witness_coin(builder);
    let make = |len| {
        let mut tx = builder.send(&coin);
        tx.input[0].witness = Witness::from_slice(&[vec![0; len]]);
        builder.draft(vec![tx])
    };
    let guess = 3_900_000;
    let bytes = builder.seal(&make(guess)).bytes;
    let mut arena = wire::BlockArena::default();
    let got = arena.parse(&bytes).expect("the block is well-formed").weight().0;
    make(guess + (weight - got) as usize)
}

/// Scripts `0 IF CHECKMULTISIG.. CHECKSIG.. ENDIF 1`, which anyone can spend, that count `sigops` signature
/// operations in total: 20 per CHECKMULTISIG and 1 per CHECKSIG.
fn costly_scripts(mut sigops: u64) -> Vec<ScriptBuf> {
    let mut scripts = Vec::new();
    while sigops > 0 {
        let multisigs = (sigops / 20).min(MULTISIGS);
        sigops -= multisigs * 20;
        let sigs = if multisigs < MULTISIGS { sigops.min(5) } else { 0 };
        sigops -= sigs;
        let multisigs = vec![OP_CHECKMULTISIG.to_u8(); multisigs as usize];
        let sigs = vec![OP_CHECKSIG.to_u8(); sigs as usize];
        let parts = [vec![0, OP_IF.to_u8()], multisigs, sigs, vec![OP_ENDIF.to_u8(), 0x51]];
        scripts.push(ScriptBuf::from_bytes(parts.concat()));
    }
    scripts
}

/// A block that spends outputs whose hashed scripts count `sigops` signature operations in total.
fn of_spent_sigops(
    builder: &mut BlockBuilder<'_>,
    sigops: u64,
    lock: fn(&ScriptBuf) -> ScriptBuf,
    unlock: fn(&mut Transaction, usize, &ScriptBuf),
) -> Draft {
    let scripts = costly_scripts(sigops);
    let coin = builder.take();
    let share = coin.coin.amount / scripts.len() as i64;
    let coins = builder.divide(&coin, scripts.iter().map(|script| paying(share, lock(script))).collect());
    let mut tx = builder.spend(&coins.iter().collect::<Vec<_>>(), vec![anyone(1_000)]);
    for (input, script) in scripts.iter().enumerate() {
        unlock(&mut tx, input, script);
    }
    builder.draft(vec![tx])
}

fn of_p2sh_sigops(builder: &mut BlockBuilder<'_>, sigops: u64) -> Draft {
    of_spent_sigops(
        builder,
        sigops,
        |script| ScriptBuf::new_p2sh(&script.script_hash()),
        |tx, input, script| {
            let push = PushBytesBuf::try_from(script.to_bytes()).expect("redeem scripts are short");
            tx.input[input].script_sig = Builder::new().push_slice(push).into_script();
        },
    )
}

fn of_witness_sigops(builder: &mut BlockBuilder<'_>, sigops: u64) -> Draft {
    of_spent_sigops(
        builder,
        sigops,
        |script| ScriptBuf::new_p2wsh(&script.wscript_hash()),
        |tx, input, script| tx.input[input].witness = Witness::from_slice(&[script.to_bytes()]),
    )
}

fn of_output_sigops(builder: &mut BlockBuilder<'_>, sigops: usize) -> Draft {
    let coin = builder.take();
    let script = ScriptBuf::from_bytes(vec![OP_CHECKSIG.to_u8(); sigops]);
    builder.spending(&[&coin], vec![anyone(coin.coin.amount), paying(0, script)])
}

/// A block with signature scripts that count `sigops` signature operations in total.
fn of_input_sigops(builder: &mut BlockBuilder<'_>, sigops: u64) -> Draft {
    let scripts = costly_scripts(sigops);
    let coins: Vec<_> = scripts.iter().map(|_| builder.take()).collect();
    let mut tx = builder.spend(&coins.iter().collect::<Vec<_>>(), vec![anyone(1_000)]);
    for (input, script) in tx.input.iter_mut().zip(scripts) {
        input.script_sig = script;
    }
    builder.draft(vec![tx])
}

/// A block whose coinbase script is the height, padded with zeros or truncated to `len` bytes.
fn of_coinbase_length(builder: &BlockBuilder<'_>, len: usize) -> Draft {
    let mut script = Builder::new().push_int(builder.height().into()).into_script().into_bytes();
    script.resize(len, 0);
    builder.with_coinbase(|coinbase| coinbase.input[0].script_sig = ScriptBuf::from_bytes(script))
}

/// A block whose coinbase script pushes these bytes, followed by a zero.
fn of_height_bytes(builder: &BlockBuilder<'_>, height: &[u8]) -> Draft {
    let script = [&[height.len() as u8][..], height, &[0]].concat();
    builder.with_coinbase(|coinbase| coinbase.input[0].script_sig = ScriptBuf::from_bytes(script))
}

fn of_reward(builder: &mut BlockBuilder<'_>, difference: i64) -> Draft {
    let coin = builder.take();
    let mut draft = builder.spending(&[&coin], vec![anyone(coin.coin.amount - 1_234)]);
    if let Some(coinbase) = &mut draft.coinbase {
        let reward = coinbase.output[0].value.to_sat() as i64 + difference;
        coinbase.output[0] = anyone(reward);
    }
    draft
}

pub(super) static ROWS: &[Mutation] = &[
    Block.rejects("another-merkle-root", "bad-txnmrklroot", |it| it.edited(|draft| draft.wrong_root = true)),
    Block.accepts("three-transactions", |builder| {
        let draft = with_witness(builder);
        let txs = draft.txs.into_iter().chain([builder.simple()]).collect();
        builder.draft(txs)
    }),
    Block.rejects("repeated-last-transaction", "bad-txns-duplicate", |builder| {
        let txs = vec![builder.simple(), builder.simple()];
        Draft { repeated: 1, ..builder.draft(txs) }
    }),
    Block.rejects("repeated-last-two-transactions", "bad-txns-duplicate", |builder| {
        let txs = (0..5).map(|_| builder.simple()).collect();
        Draft { repeated: 2, ..builder.draft(txs) }
    }),
    Block.rejects("no-transactions", "bad-blk-length", |it| it.edited(|draft| draft.coinbase = None)),
    Block.rejects("stripped-size-1000001", "bad-blk-length", |builder| of_stripped_size(builder, 1_000_001)),
    Block.accepts("stripped-size-1000000", |builder| of_stripped_size(builder, 1_000_000)),
    Block.rejects("weight-4000001", "bad-blk-weight", |builder| of_weight(builder, MAX_WEIGHT + 1)),
    Block.accepts("weight-4000000", |builder| of_weight(builder, MAX_WEIGHT)),
    Block.rejects("no-coinbase", "bad-cb-missing", |builder| {
        let tx = builder.simple();
        Draft { coinbase: None, ..builder.draft(vec![tx]) }
    }),
    Block.rejects("coinbase-second", "bad-cb-missing", |builder| {
        let tx = builder.simple();
        let mut draft = builder.draft(vec![tx]);
        draft.txs.extend(draft.coinbase.take());
        draft
    }),
    Block.rejects("two-coinbases", "bad-cb-multiple", |builder| {
        let second = crate::block::coinbase(builder.height(), !builder.salt, vec![anyone(0)]);
        builder.edited(|draft| draft.txs.push(second))
    }),
    Block.rejects("coinbase-script-1-byte", "bad-cb-length", |builder| of_coinbase_length(builder, 1)),
    // The rule on sizes allows it, but the height takes three bytes.
    Block.rejects("coinbase-script-2-bytes", "bad-cb-height", |builder| of_coinbase_length(builder, 2)),
    Block.accepts("coinbase-script-height-only", |builder| of_coinbase_length(builder, 3)),
    Block.accepts("coinbase-script-100-bytes", |builder| of_coinbase_length(builder, 100)),
    Block.rejects("coinbase-script-101-bytes", "bad-cb-length", |builder| of_coinbase_length(builder, 101)),
    Block.rejects("height-of-the-block-before", "bad-cb-height", |builder| {
        let (height, salt) = (builder.height() - 1, builder.salt);
        builder.with_coinbase(|it| *it = crate::block::coinbase(height, salt, it.output.clone()))
    }),
    Block.rejects("height-not-minimal", "bad-cb-height", |builder| {
        of_height_bytes(builder, &[builder.height().to_le_bytes().as_slice(), &[0]].concat())
    }),
    Block.rejects("height-without-its-sign", "bad-cb-height", |builder| {
        // The top bit of the byte is set, so that the shortest push has another byte.
        of_height_bytes(builder, &[builder.height() as u8])
    }),
    Block.rejects("reserved-value-31-bytes", NONCE_SIZE, |builder| {
        with_reserved_value(builder, vec![vec![0; 31]])
    }),
    Block.rejects("reserved-value-twice", NONCE_SIZE, |builder| {
        with_reserved_value(builder, vec![vec![0; 32]; 2])
    }),
    Block.rejects("reserved-value-absent", NONCE_SIZE, |builder| Draft {
        reserved_value: Some(vec![]),
        commitment: Commitment::Present,
        ..builder.draft(vec![])
    }),
    Block.rejects("reserved-value-another", MERKLE_MATCH, |builder| {
        with_reserved_value(builder, vec![vec![1; 32]])
    }),
    Block.rejects("another-commitment", MERKLE_MATCH, |builder| with_commitment(builder, Commitment::Wrong)),
    Block.accepts("last-commitment-counts", |builder| with_commitment(builder, Commitment::WrongThenRight)),
    Block.accepts("commitment-of-39-bytes", |builder| with_commitment(builder, Commitment::Longer)),
    Block.rejects("commitment-of-37-bytes", UNEXPECTED, |it| with_commitment(it, Commitment::Shorter)),
    Block.rejects("witness-without-commitment", UNEXPECTED, |it| with_commitment(it, Commitment::Absent)),
    Block.accepts("commitment-without-witness", |builder| {
        builder.edited(|draft| draft.commitment = Commitment::Present)
    }),
    Block.accepts("neither-commitment-nor-witness", |builder| {
        let tx = builder.simple();
        Draft { commitment: Commitment::Absent, ..builder.draft(vec![tx]) }
    }),
    Block.rejects("output-sigops-20001", "bad-blk-sigops", |builder| of_output_sigops(builder, 20_001)),
    Block.accepts("output-sigops-20000", |builder| of_output_sigops(builder, 20_000)),
    Block.rejects("input-sigops-20001", "bad-blk-sigops", |builder| of_input_sigops(builder, 20_001)),
    Block.accepts("input-sigops-20000", |builder| of_input_sigops(builder, 20_000)),
    Block.rejects("coinbase-sigops-20001", "bad-blk-sigops", |builder| {
        let costly = paying(0, ScriptBuf::from_bytes(vec![OP_CHECKSIG.to_u8(); 20_001]));
        builder.with_coinbase(|coinbase| coinbase.output.push(costly))
    }),
    Spend.rejects("p2sh-sigops-20001", "bad-blk-sigops", |builder| of_p2sh_sigops(builder, 20_001)),
    Spend.accepts("p2sh-sigops-20000", |builder| of_p2sh_sigops(builder, 20_000)),
    Spend.rejects("witness-sigops-80001", "bad-blk-sigops", |builder| of_witness_sigops(builder, 80_001)),
    Spend.accepts("witness-sigops-80000", |builder| of_witness_sigops(builder, 80_000)),
    Spend.rejects("reward-1-too-much", "bad-cb-amount", |builder| of_reward(builder, 1)),
    Spend.accepts("reward-exact", |builder| of_reward(builder, 0)),
    Spend.accepts("reward-1-too-little", |builder| of_reward(builder, -1)),
    Spend.rejects("reward-in-second-output", "bad-cb-amount", |builder| {
        builder.with_coinbase(|coinbase| coinbase.output.push(anyone(1)))
    }),
];
