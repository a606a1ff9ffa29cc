//! Tests every row of the table that names mutations at its boundary here too, on bytes and in many ways (the
//! other rows are tested in `boundaries.rs`); and checks that each of Core's reject strings has a row, or a
//! reason not to have one.

use crate::common;

use common::{
    Block, HEIGHT, Input, MEDIAN_TIME, Output, TIME, Tx, Verdict, assert_accepts, assert_rejects,
    check_spends_of, check_tx_in_block, coin, header, input, output,
};
use peregrine_rules::{ChainParams, RuleInfo, SpentCoin, Tests, table::sections};
use std::collections::BTreeSet;
use wire::{BlockArena, BlockHash, BlockTime, Height, Network, Sats, coin::CompressedScript};

/// The tests of a row: verdicts that must accept, and verdicts that must report the row's rule.
struct Row {
    id: &'static str,
    accepts: Vec<Verdict>,
    rejects: Vec<Verdict>,
}

fn row(id: &'static str, accepts: impl Into<Vec<Verdict>>, rejects: impl Into<Vec<Verdict>>) -> Row {
    Row { id, accepts: accepts.into(), rejects: rejects.into() }
}

#[test]
fn each_row_accepts_and_rejects_at_its_boundary() {
    let rows: Vec<Row> = [header_rows(), structure_rows(), tx_rows(), body_rows(), spend_rows()]
        .into_iter()
        .flatten()
        .collect();
    for Row { id, accepts, rejects } in &rows {
        assert!(!accepts.is_empty() && !rejects.is_empty(), "{id} needs both tests");
        accepts.iter().for_each(assert_accepts);
        rejects.iter().for_each(|verdict| assert_rejects(id, verdict));
    }
    let tested: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
    let in_table: Vec<RuleInfo> = sections().iter().flat_map(|s| &s.rows).map(|(rule, _)| **rule).collect();
    let distinct: BTreeSet<_> = in_table.iter().map(|rule| rule.id).collect();
    assert_eq!(in_table.len(), distinct.len(), "two rows have one id");
    // Rules that name functions are tested by those; scripts are tested where they can be run.
    let is_here = |rule: &&RuleInfo| matches!(rule.tests, Tests::Mutations(..)) && rule.id != "script";
    let wanted: BTreeSet<_> = in_table.iter().filter(is_here).map(|rule| rule.id).collect();
    assert_eq!(wanted, tested);
}

fn header_rows() -> Vec<Row> {
    let regtest = ChainParams::of(Network::Regtest);
    let forks = |height| ChainParams {
        bip34_height: Height(height),
        bip66_height: Height(height + 1),
        bip65_height: Height(height + 2),
        ..regtest.clone()
    };
    let time = |time: u32| header(20, regtest, |header| header.time = BlockTime(time));
    let version = |version, forks| header(20, &forks, |header| header.version = version);
    vec![
        row(
            "difficulty",
            [header(20, regtest, |_| ())],
            [header(20, regtest, |header| header.bits = 0x207f_fffe)],
        ),
        row("time-after-median", [time(MEDIAN_TIME + 600 * 14 + 1)], [time(MEDIAN_TIME + 600 * 14)]),
        row("version-4", [version(4, forks(18)), version(3, forks(19))], [version(3, forks(18))]),
    ]
}

#[test]
fn a_bad_version_has_cores_reject_string() {
    let regtest = ChainParams::of(Network::Regtest);
    let violation = header(20, regtest, |header| header.version = -2).unwrap_err();
    assert_eq!(violation.core, "bad-version(0xfffffffe)");
    assert_eq!(
        violation.to_string(),
        "version-2: version is -2, expected at least 2 (BIP-0034, Core bad-version(0xfffffffe))"
    );
}

/// Returns a block of `size` bytes that has only a coinbase.
fn block_of_size(size: usize) -> Block {
    let mut block = Block::of(vec![Tx::coinbase()]);
    // From 0x10000 on, the script's length takes five bytes instead of one.
    let fill = size - block.bytes().len() - 4 + 1;
    block.txs[0].outputs[0].script = vec![0; fill];
    block.update_merkle_root();
    assert_eq!(block.bytes().len(), size);
    block
}

fn structure_rows() -> Vec<Row> {
    let three = Block::segwit();
    let with_txs = |txs: Vec<Tx>| Block::of(txs).check();
    let spend = || Tx::spend(vec![input(1, 0)], 1);
    vec![
        row(
            "merkle-root",
            [three.check()],
            [three.clone().with(|block| block.header.merkle_root[31] ^= 1).check()],
        ),
        row(
            "block-length",
            [block_of_size(1_000_000).check()],
            [block_of_size(1_000_001).check(), with_txs(vec![])],
        ),
        row(
            "first-is-coinbase",
            [with_txs(vec![Tx::coinbase()])],
            [with_txs(vec![spend()]), with_txs(vec![spend(), Tx::coinbase()])],
        ),
        row(
            "one-coinbase",
            [with_txs(vec![Tx::coinbase(), spend()])],
            [with_txs(vec![Tx::coinbase(), Tx { version: 3, ..Tx::coinbase() }])],
        ),
    ]
}

fn tx_rows() -> Vec<Row> {
    let max = Sats::MAX_MONEY.0;
    let spend = |edit: fn(&mut Tx)| {
        let mut spend = Tx::spend(vec![input(1, 0)], 1);
        edit(&mut spend);
        check_tx_in_block(spend)
    };
    let pays = |values: &[i64]| {
        let outputs = values.iter().copied().map(output).collect();
        check_tx_in_block(Tx { outputs, ..Tx::spend(vec![input(1, 0)], 1) })
    };
    let coinbase = |script: &[u8]| {
        let mut coinbase = Tx::coinbase();
        coinbase.inputs[0].script = script.to_vec();
        Block { height: 5, ..Block::of(vec![coinbase]) }.check()
    };
    let long = |len: usize| [&[0x55][..], &vec![0; len - 1]].concat();
    vec![
        row("has-inputs", [spend(|_| ())], [spend(|tx| (tx.inputs, tx.outputs) = (vec![], vec![]))]),
        row("has-outputs", [spend(|_| ())], [spend(|tx| tx.outputs.clear())]),
        row("output-not-negative", [pays(&[0])], [pays(&[-1]), pays(&[max, 0, -1]), pays(&[i64::MIN])]),
        row(
            "coinbase-script-size",
            [coinbase(&long(2)), coinbase(&long(100))],
            [coinbase(&long(1)), coinbase(&long(101))],
        ),
    ]
}

fn body_rows() -> Vec<Row> {
    let sigops = |count: usize| {
        let mut tx = Tx::spend(vec![input(1, 0)], 1);
        tx.inputs[0].script = vec![0xad; 7];
        tx.outputs[0].script = vec![0xac; count - 7];
        Block::of(vec![Tx::coinbase(), tx]).check()
    };
    let locked = |lock_time, sequence, csv_height| {
        let mut tx = Tx::spend(vec![input(1, 0), input(2, 0)], 1);
        tx.lock_time = lock_time;
        tx.inputs[1].sequence = sequence;
        tx.inputs[0].sequence = u32::MAX;
        Block::of(vec![Tx::coinbase(), tx]).with(|block| block.params.csv_height = Height(csv_height)).check()
    };
    let pushes = |script: &[u8], bip34_height| {
        let mut coinbase = Tx::coinbase();
        coinbase.inputs[0].script = script.to_vec();
        Block::of(vec![coinbase]).with(|block| block.params.bip34_height = Height(bip34_height)).check()
    };
    let max = u32::MAX;
    vec![
        row("legacy-sigops", [sigops(20_000)], [sigops(20_001)]),
        row(
            "lock-time",
            [
                locked(HEIGHT - 1, 0, 1),
                locked(HEIGHT, max, 1),
                locked(MEDIAN_TIME - 1, 0, 1),
                locked(MEDIAN_TIME, 0, 999),
                locked(TIME - 1, 0, HEIGHT + 1),
            ],
            [
                locked(HEIGHT, 0, 1),
                locked(HEIGHT, max - 1, 1),
                locked(MEDIAN_TIME, 0, 1),
                locked(MEDIAN_TIME, 0, HEIGHT),
                locked(TIME, 0, 999),
                locked(499_999_999, 0, 1),
            ],
        ),
        row(
            "coinbase-height",
            [pushes(&[2, 200, 0], 1), pushes(&[2, 200, 0, 0xff], HEIGHT), pushes(&[0, 0], HEIGHT + 1)],
            [
                pushes(&[2, 201, 0], 1),
                pushes(&[2, 200], 1),
                // Not in the shortest form, or without its sign.
                pushes(&[3, 200, 0, 0], 1),
                pushes(&[1, 200, 0], 1),
            ],
        ),
    ]
    .into_iter()
    .chain(witness_rows())
    .collect()
}

fn witness_rows() -> Vec<Row> {
    let reserved = |items: &[usize]| {
        let mut block = Block::segwit();
        block.txs[0].inputs[0].witness = vec![vec![9; *items.first().unwrap_or(&32)]];
        block.recommit();
        block.txs[0].inputs[0].witness = items.iter().map(|&len| vec![9; len]).collect();
        block.check()
    };
    let committed = Block::segwit();
    let flipped = committed.clone().with(|block| block.txs[0].outputs[1].script[37] ^= 1).with_merkle_root();
    let changed = committed.clone().with(|block| block.txs[2].inputs[1].witness[0][0] ^= 1);
    // Only the last commitment is used, and bytes after its first 38 are ignored.
    let repeated = committed
        .clone()
        .with(|block| {
            let wrong = flipped.txs[0].outputs[1].clone();
            block.txs[0].outputs.insert(1, wrong);
            block.txs[0].outputs[2].script.push(1);
        })
        .with_merkle_root();
    let short = committed.clone().with(|block| _ = block.txs[0].outputs[1].script.pop()).with_merkle_root();
    let plain = Block::of(vec![Tx::coinbase(), Tx::spend(vec![input(1, 0)], 50)]);
    let empty_commitment = plain.clone().with(Block::commit);
    let before_segwit =
        |block: &Block| block.clone().with(|block| block.params.segwit_height = Height(HEIGHT + 1)).check();
    let weighs = |weight: u64| {
        let mut block = Block::segwit();
        block.txs[2].inputs[1].witness[0] = vec![0; 3_000_000];
        let bytes = block.bytes();
        let now = BlockArena::default().parse(&bytes).unwrap().weight().0;
        block.txs[2].inputs[1].witness[0] = vec![0; (3_000_000 + weight - now) as usize];
        block.recommit();
        block.check()
    };
    vec![
        row(
            "witness-reserved-value",
            [reserved(&[32])],
            [reserved(&[31]), reserved(&[32, 0]), reserved(&[])],
        ),
        row(
            "witness-commitment",
            [committed.check(), repeated.check(), empty_commitment.check(), before_segwit(&plain)],
            [flipped.check(), changed.check()],
        ),
        row("unexpected-witness", [plain.check()], [short.check(), before_segwit(&committed)]),
        row("block-weight", [weighs(4_000_000)], [weighs(4_000_001)]),
    ]
}

fn spend_rows() -> Vec<Row> {
    let max = Sats::MAX_MONEY.0;
    let of_height = |height, is_coinbase| SpentCoin { height: Height(height), is_coinbase, ..coin() };
    let worth = |amount| SpentCoin { amount: Sats(amount), ..coin() };
    let plain = |coins: &[SpentCoin<'_>], pays| check_spends_of(coins, pays, |_| ());
    let reward = |height, pays| {
        check_spends_of(&[coin()], 90, |block| {
            block.height = height;
            block.txs[0].outputs[0].value = pays;
        })
    };
    let subsidy = 2_500_000_000;
    let missing = |block: &mut Block| block.txs[1].inputs.push(input(9, 0));
    vec![
        row(
            "missing-or-spent",
            [plain(&[of_height(HEIGHT, false)], 1)],
            [plain(&[coin(), of_height(HEIGHT + 1, false)], 1), check_spends_of(&[coin()], 1, missing)],
        ),
        row(
            "coinbase-maturity",
            [plain(&[of_height(100, true)], 1), plain(&[of_height(199, false)], 1)],
            [
                plain(&[of_height(101, true)], 1),
                // The first invalid coin is reported, as in Core.
                plain(&[of_height(101, true), worth(max + 1)], 1),
            ],
        ),
        row("inputs-pay-outputs", [plain(&[coin()], 100)], [plain(&[coin()], 101)]),
        row(
            "coinbase-amount",
            [reward(HEIGHT, subsidy + 10), reward(149, 2 * subsidy + 10)],
            [reward(HEIGHT, subsidy + 11), reward(150, subsidy + 11)],
        ),
    ]
    .into_iter()
    .chain([relative_lock_row(), sigop_cost_row()])
    .collect()
}

fn relative_lock_row() -> Row {
    let locked = |height, sequence, version, csv_height| {
        let of_height = SpentCoin { height: Height(height), ..coin() };
        check_spends_of(&[coin(), of_height], 1, |block| {
            block.params.csv_height = Height(csv_height);
            block.txs[1].version = version;
            block.txs[1].inputs[1].sequence = sequence;
            block.txs[1].inputs[0].sequence = u32::MAX;
        })
    };
    let time = 1 << 22;
    row(
        "relative-lock-time",
        [
            locked(190, 10, 2, 1),
            locked(190, 11, 1, 1),
            locked(190, 11, 2, HEIGHT + 1),
            locked(190, 11 | 1 << 31, 2, 1),
            locked(190, 10 | 1 << 16, 2, 1),
            locked(191, 9 | time, 2, 1),
            locked(0, 199 | time, 2, 1),
            locked(HEIGHT, 0, 2, 1),
        ],
        [
            locked(190, 11, 2, 1),
            locked(190, 11, 2, HEIGHT),
            locked(190, 11, u32::MAX, 1),
            locked(190, 0xffff, 2, 1),
            locked(191, 10 | time, 2, 1),
            locked(0, 200 | time, 2, 1),
            locked(HEIGHT, 1, 2, 1),
        ],
    )
}

fn sigop_cost_row() -> Row {
    /// 19,990 legacy operations in the coinbase cost 79,960, which leaves 40; each further one costs 4.
    fn costs(script: CompressedScript<'_>, script_sig: &[u8], witness: &[u8], spends: usize) -> Verdict {
        let mut tx = Tx::spend((0..spends).map(|vout| input(1, vout as u32)).collect(), 1);
        for input in &mut tx.inputs {
            input.script = script_sig.to_vec();
            input.witness = vec![vec![0xac; 3], witness.to_vec()];
        }
        let mut coinbase = Tx::coinbase();
        coinbase.outputs.push(Output { value: 0, script: vec![0xac; 19_990] });
        let mut block = Block::of(vec![coinbase, tx]);
        block.commit();
        block.check()?;
        block.check_spends(&vec![SpentCoin { script, ..coin() }; spends]).map(|_| ())
    }
    let p2wpkh = [&[0, 20][..], &[7; 20]].concat();
    let p2wsh = [&[0, 32][..], &[7; 32]].concat();
    let taproot = [&[0x51, 32][..], &[7; 32]].concat();
    let raw = CompressedScript::Raw;
    let p2sh = CompressedScript::P2sh(&[7; 20]);
    let push = |script: &[u8]| [&[script.len() as u8], script].concat();
    // 2-of-5: five operations each, since the number of keys is a constant.
    let multisig = [0x55, 0xae];
    row(
        "sigop-cost",
        [
            costs(raw(&p2wpkh), &[], &[0xac; 9], 40),
            costs(raw(&p2wsh), &[], &multisig, 8),
            costs(raw(&taproot), &[], &multisig, 99),
            costs(p2sh, &push(&multisig), &[], 2),
            costs(p2sh, &[push(&multisig), vec![0x61]].concat(), &multisig, 99),
            costs(p2sh, &push(&p2wpkh), &[], 40),
            costs(p2sh, &push(&p2wsh), &multisig, 8),
            costs(p2sh, &[push(&multisig), push(&taproot)].concat(), &multisig, 99),
            // A CHECKMULTISIG in a script that is not P2SH counts only in the transaction that contains it.
            costs(raw(&multisig), &[], &[], 99),
        ],
        [
            costs(raw(&p2wpkh), &[], &[], 41),
            costs(raw(&p2wsh), &[], &multisig, 9),
            costs(raw(&p2wsh), &[], &[0xae, 0x51, 0xae, 0xac], 2),
            costs(p2sh, &push(&multisig), &[], 3),
            costs(p2sh, &push(&p2wpkh), &[], 41),
            costs(p2sh, &push(&p2wsh), &multisig, 9),
        ],
    )
}

/// The signature operations of P2SH do not count in a block that is exempt from P2SH.
#[test]
fn p2sh_sigops_do_not_count_in_exempt_blocks() {
    let main = ChainParams::of(Network::Main);
    let exempt = main.script_flag_exceptions[0].hash;
    let tx = Tx::spend(vec![Input { script: vec![1, 0xac], ..input(1, 0) }], 1);
    let bytes = Block::of(vec![Tx::coinbase(), tx]).bytes();
    let mut arena = BlockArena::default();
    let block = arena.parse(&bytes).unwrap();
    let coins = [SpentCoin { script: CompressedScript::P2sh(&[7; 20]), ..coin() }];
    let mtp = [BlockTime(0); HEIGHT as usize];
    for (hash, cost) in [(exempt, 0), (main.script_flag_exceptions[1].hash, 4), (BlockHash::default(), 4)] {
        let totals = common::check_spends(main, Height(HEIGHT), &hash, &block, &coins, &mtp).unwrap();
        assert_eq!((totals.sigop_cost, totals.fees), (cost, Sats(99)));
    }
}

/// For each single flipped bit, the fused pass and the table give the same verdict.
#[test]
fn the_fused_pass_equals_the_table_for_every_flipped_bit() {
    let original = Block::segwit();
    let bytes = original.bytes();
    let (mut accepted, mut violated) = (0, BTreeSet::new());
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for sealed in [false, true] {
            let mut arena = BlockArena::default();
            if sealed {
                let Ok(block) = arena.parse(&bytes) else { continue };
                let root = common::root(&common::ids(&block).0.iter().map(|txid| txid.0).collect::<Vec<_>>());
                bytes[36..68].copy_from_slice(&root);
            }
            let Ok(block) = arena.parse(&bytes) else { continue };
            let median = BlockTime(MEDIAN_TIME);
            if let Err(violation) = common::check_bytes(&original.params, Height(HEIGHT), &block, median) {
                violated.insert(violation.rule.id);
                continue;
            }
            accepted += 1;
            let coins = vec![coin(); block.input_count() - 1];
            let mtp = vec![median; HEIGHT as usize];
            let (height, hash) = (Height(HEIGHT), BlockHash::default());
            if let Err(violation) =
                common::check_spends(&original.params, height, &hash, &block, &coins, &mtp)
            {
                violated.insert(violation.rule.id);
            }
        }
    }
    assert!(accepted > 100, "{accepted}");
    assert!(violated.len() > 10, "{violated:?}");
}

/// Lists all reject strings for a block in Core of August 2026 (`validation.cpp`, `tx_check.cpp`,
/// `tx_verify.cpp`), and the reasons why some have no row.
#[test]
fn every_reject_string_of_core_has_a_row_or_a_reason() {
    let reasons = [
        ("mempool-script-verify-flag-failed", "not for blocks"),
        ("bad-txns-fee-outofrange", "cannot happen: inputs are in range and pay the outputs"),
        ("prev-blk-not-found", "a state of the node: the parent is unknown"),
        ("bad-prevblk", "a state of the node: the parent is invalid by another row"),
        ("duplicate-invalid", "a state of the node: the block is invalid by another row"),
        ("too-little-chainwork", "a policy against spam"),
    ];
    let core: BTreeSet<&str> =
        "high-hash bad-diffbits time-too-old time-timewarp-attack time-too-new bad-version \
        bad-signet-blksig bad-txnmrklroot bad-txns-duplicate bad-blk-length bad-cb-missing \
        bad-cb-multiple bad-txns-vin-empty bad-txns-vout-empty bad-txns-oversize \
        bad-txns-vout-negative bad-txns-vout-toolarge bad-txns-txouttotal-toolarge \
        bad-txns-inputs-duplicate bad-cb-length bad-txns-prevout-null bad-blk-sigops \
        bad-txns-nonfinal bad-cb-height bad-witness-nonce-size bad-witness-merkle-match \
        unexpected-witness bad-blk-weight bad-txns-BIP30 bad-txns-inputs-missingorspent \
        bad-txns-premature-spend-of-coinbase bad-txns-inputvalues-outofrange bad-txns-in-belowout \
        bad-txns-fee-outofrange bad-txns-accumulated-fee-outofrange bad-cb-amount \
        block-script-verify-flag-failed mempool-script-verify-flag-failed prev-blk-not-found \
        bad-prevblk duplicate-invalid too-little-chainwork"
            .split_whitespace()
            .collect();
    let rows: BTreeSet<&str> = sections().iter().flat_map(|s| &s.rows).map(|(rule, _)| rule.core).collect();
    let absent: BTreeSet<&str> = reasons.iter().map(|(string, _)| *string).collect();
    assert!(rows.is_disjoint(&absent));
    assert_eq!(&rows | &absent, core);
}
