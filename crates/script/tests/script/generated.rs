//! Generated chains: every signed input passes, in any split and on any thread; placeholder signatures fail.

use crate::{common, prelude::*};

use common::{Changes, SpentOutput, assert_inputs_pass, prepare};
use disk::undo::{UndoArena, UndoView};
use std::thread;
use testkit::{Chain, ChainSpec, model::ModelCoin};
use wire::Coin;

fn output_of(coin: Coin<'_>) -> SpentOutput {
    let ModelCoin { amount, script, .. } = ModelCoin::of(&coin);
    (Sats(amount), script)
}

/// Calls `each` for every transaction of a chain except the coinbases, with its flags and the coins of its
/// undo data.
fn for_each_tx(chain: &Chain, mut each: impl FnMut(ScriptFlags, TxView<'_>, Vec<SpentOutput>)) {
    let (mut arena, mut undo_arena) = (BlockArena::default(), UndoArena::default());
    for block in chain.main() {
        let Some(undo) = &block.undo else { continue };
        let flags = script_flags(ChainParams::of(Network::Regtest), Height(block.height), &block.hash);
        let view = arena.parse(&block.bytes).expect("a block");
        let undo = UndoView::parse(undo, &mut undo_arena).expect("undo data");
        for (tx, coins) in view.txs().skip(1).zip(undo.txs()) {
            each(flags, tx, coins.map(output_of).collect());
        }
    }
}

#[test]
fn every_signed_input_passes() {
    let mut inputs = 0;
    for seed in 1..=3 {
        let chain = Chain::generate(&ChainSpec::new(seed, 1_500_000));
        for_each_tx(&chain, |flags, tx, coins| {
            assert_eq!(flags, ScriptFlags::all());
            inputs += assert_inputs_pass(&tx, &coins, flags);
        });
    }
    assert!(inputs > 5_000, "{inputs}");
}

/// These chains spend taproot outputs and every other kind of script.
#[test]
fn every_change_of_signed_data_fails() {
    let chain = Chain::generate(&ChainSpec::new(6, 1_000_000));
    let mut changes = Changes::default();
    for_each_tx(&chain, |flags, tx, coins| changes.try_all(&tx, &coins, flags));
    // Anchors, and scripts without conditions, sign nothing.
    let survivors: Vec<_> = changes.survivors.iter().filter(|spend| !spend.starts_with("other ")).collect();
    println!("{changes:?}");
    assert_eq!(survivors, Vec::<&String>::new());
    assert!(changes.amount > 1_000 && changes.other_amount > 100);
}

#[test]
fn placeholders_fail() {
    let chain = Chain::generate(&ChainSpec { signed: false, ..ChainSpec::new(4, 400_000) });
    let (mut failed, mut passed) = (0, 0);
    let verify = |scripts: TxScripts, flags| scripts.verify(0..scripts.input_count(), flags);
    for_each_tx(&chain, |flags, tx, coins| match verify(prepare(tx.bytes(), &coins), flags) {
        Ok(()) => passed += 1,
        Err(ScriptError::Failed(failure)) => {
            assert!((failure.input as usize) < tx.input_count());
            failed += 1;
        }
        Err(other) => panic!("{other}"),
    });
    assert!(failed > 100 && failed > 10 * passed);
}

/// A transaction of many inputs is split over threads; only the part with a failing input reports a failure.
#[test]
fn only_the_part_with_a_failing_input_fails() {
    let chain = Chain::generate(&ChainSpec::new(5, 3_000_000));
    let mut largest = (Vec::new(), Vec::new());
    for_each_tx(&chain, |_, tx, coins| {
        if coins.len() > largest.1.len() {
            largest = (tx.bytes().to_vec(), coins);
        }
    });
    let (mut bytes, coins) = largest;
    let inputs = coins.len() as u32;
    assert!(inputs >= 100, "{inputs}");
    let split = |bytes: &[u8]| {
        let scripts = &prepare(bytes, &coins);
        thread::scope(|scope| {
            let part = |at| inputs * at / 4..inputs * (at + 1) / 4;
            let run = |at| scope.spawn(move || scripts.verify(part(at), ScriptFlags::all()));
            [0, 1, 2, 3].map(run).map(|thread| thread.join().expect("no panic"))
        })
    };
    assert_eq!(split(&bytes), [Ok(()), Ok(()), Ok(()), Ok(())]);
    // No input signs another input's witness. Find a witness in the third part and change its signature.
    let mut arena = BlockArena::default();
    let view = arena.parse_tx(&bytes).expect("a transaction");
    let third = (0..).zip(view.inputs()).skip(inputs as usize / 2).take(inputs as usize / 4);
    let signature = |(at, input): (u32, InputView<'_>)| {
        let item = input.witness().find(|item| item.len() >= 64)?;
        Some((at, item.as_ptr() as usize - bytes.as_ptr() as usize + 30))
    };
    let (changed, offset) = third.filter_map(signature).next().expect("an input with a witness");
    bytes[offset] ^= 1;
    let verdicts = split(&bytes);
    assert!(matches!(&verdicts[2], Err(ScriptError::Failed(failure)) if failure.input == changed));
    assert_eq!([&verdicts[0], &verdicts[1], &verdicts[3]], [&Ok(()); 3]);
}
