//! Chains that break one rule, and undo data that lies: the verdict is Core's, at the right block, whatever
//! the threads; and a lie of the undo data is damage, never a verdict on the chain.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{
    Case, THREADS, assert_same_tree, chain, essence, layout,
    lies::{LIES, lie},
    options, run, says, tree, with_threads,
};
use engine::{ErrorKind, Event, Height, ReindexOptions, Stage};
use std::sync::{Mutex, atomic::AtomicBool};
use testkit::{
    Chain,
    fault::FaultDisk,
    mutation::{CheckLevel, base_chain, mutations},
};

/// Reject strings that mean a body is not the one its header commits to: damage (Core `BLOCK_MUTATED`).
const MUTATED: &[&str] = &[
    "bad-txnmrklroot",
    "bad-txns-duplicate",
    "bad-witness-nonce-size",
    "bad-witness-merkle-match",
    "unexpected-witness",
];

#[test]
fn each_mutation_gets_cores_verdict() {
    let base = base_chain(5);
    let mut wrong = String::new();
    let mut count = 0;
    for mutation in mutations() {
        if mutation.level == CheckLevel::Script && mutation.core.is_some() {
            // Nobody runs scripts here: the oracle has these.
            continue;
        }
        let mutated = mutation.apply(&base);
        let dir = common::scratch();
        mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
        let before = tree(dir.path());
        let mut first = None;
        for (threads, scan) in [(1, false), (8, false), (2, true)] {
            let options = ReindexOptions { scan, ..with_threads(&options(dir.path()), threads) };
            let output = common::scratch();
            let done = run(&ReindexOptions { output: Some(output.path().to_owned()), ..options });
            let verdict = match &done {
                Ok(report) if report.hash == mutated.block.hash => Ok(()),
                Ok(report) => Err(format!("accepted up to {} only", report.height)),
                Err(error) => {
                    if !scan {
                        let text = essence(error, dir.path());
                        let first = first.get_or_insert_with(|| text.clone());
                        assert_eq!(*first, text, "{}: the verdict depends on threads", mutation.name);
                    }
                    Err(match (error.kind, &error.core) {
                        (ErrorKind::Consensus, Some(core)) => core.to_string(),
                        // Core does not store a header without proof of work: on disk, it is damage.
                        (ErrorKind::Damaged, Some(core)) if core == "high-hash" => core.to_string(),
                        (ErrorKind::Damaged, _) => {
                            let known = MUTATED.iter().find(|core| error.detail.contains(**core));
                            known.map_or_else(|| error.to_string(), ToString::to_string)
                        }
                        _ => error.to_string(),
                    })
                }
            };
            // A block in the index was in time when it came in; Core does not ask its clock again either.
            let known = mutation.core == Some("time-too-new") && !scan && verdict.is_ok()
                // Nothing in the rev file can be of such a block, so it was never connected.
                || mutation.name == "no-transactions" && scan && done.is_ok();
            if !known && verdict.as_ref().err().map(String::as_str) != mutation.core {
                wrong +=
                    &format!("\n{} (scan {scan}): {verdict:?}, Core says {:?}", mutation.name, mutation.core);
            }
            if let (Ok(report), None) = (&done, mutation.core) {
                assert_eq!(report.hash_serialized_3, mutated.chain.model.stats().hash_serialized_3);
            }
            if let (Err(error), Some(_)) = (&done, mutation.core) {
                let place = (error.height.map(|height| height.0), error.block_hash);
                if place != (Some(mutated.block.height), Some(mutated.block.hash)) {
                    wrong += &format!("\n{} (scan {scan}): told at {place:?}", mutation.name);
                }
            }
        }
        assert_same_tree(&before, dir.path(), mutation.name);
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 60);
}

/// Beneath a broken tip lies a valid chain: with --stop-at-height it is there for the taking.
#[test]
fn below_a_broken_block_the_chain_can_be_had() {
    let base = base_chain(6);
    for name in ["reward-1-too-much", "double-spend-in-block"] {
        let Some(mutation) = mutations().find(|mutation| mutation.name == name) else { continue };
        let mutated = mutation.apply(&base);
        let dir = common::scratch();
        mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
        assert_eq!(run(&options(dir.path())).unwrap_err().kind, ErrorKind::Consensus);
        let below = Height(mutated.block.height - 1);
        let report = run(&ReindexOptions { stop_at_height: Some(below), ..options(dir.path()) }).unwrap();
        assert_eq!(report.hash_serialized_3, mutated.chain.model.stats().hash_serialized_3, "{name}");
    }
}

#[test]
fn a_lie_in_undo_data_is_damage_of_the_rev_file() {
    let blocks: Vec<usize> = (0..chain().blocks.len())
        .filter(|&at| !chain().blocks[at].stale && chain().blocks[at].txs > 2)
        .collect();
    for (number, (what, lie_of)) in LIES.iter().enumerate() {
        let mut lying: Chain = chain().clone();
        let at = blocks[number * (blocks.len() - 1) / (LIES.len() - 1)];
        let tx = number % (lying.blocks[at].txs as usize - 1);
        lie(&mut lying.blocks[at], |_| (tx, 0), *lie_of);
        let dir = common::scratch();
        lying.write_datadir(dir.path(), &layout()).unwrap();
        let (height, hash) = (lying.blocks[at].height, lying.blocks[at].hash);
        let mut arena = wire::BlockArena::default();
        let block = arena.parse(&lying.blocks[at].bytes).unwrap();
        let digest::sha256::Message(parts) = block.tx(tx + 1).unwrap().txid_message();
        let txid = wire::Txid(digest::sha256::sha256d(&parts.concat()));
        for threads in THREADS {
            let output = common::scratch();
            let options = ReindexOptions {
                output: Some(output.path().to_owned()),
                ..with_threads(&options(dir.path()), threads)
            };
            let error = run(&options).map(|report| report.height).expect_err(what);
            assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
            assert_eq!(
                (error.height, error.block_hash),
                (Some(Height(height)), Some(hash)),
                "{what}: {error}"
            );
            assert_eq!(error.txid, Some(txid), "{what}: {error}");
            assert!(error.core.is_none(), "{what}: {error}");
            assert!(error.file.as_ref().unwrap().to_string_lossy().contains("rev000"), "{what}: {error}");
            says(&error, &["restore the file", "-reindex"]);
        }
    }
}

/// What the fast path suspects goes to the judge, and events say so.
#[test]
fn the_judge_is_announced() {
    let mut lying = chain().clone();
    let at = lying.blocks.iter().rposition(|block| !block.stale && block.txs > 2).unwrap();
    lie(&mut lying.blocks[at], |_| (0, 0), |_, amount, _| *amount += 1);
    let case = {
        let dir = common::scratch();
        lying.write_datadir(dir.path(), &layout()).unwrap();
        dir
    };
    let seen = Mutex::new(Vec::new());
    let sink = |event| seen.lock().unwrap().push(event);
    engine::reindex(&FaultDisk::healthy(), &options(case.path()), &sink, &AtomicBool::new(false))
        .unwrap_err();
    let events = seen.into_inner().unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::Started(Stage::Sequential))));
    assert!(events.iter().any(|event| matches!(event, Event::Note(text) if text.contains("in order"))));
}

/// With damage below a lie, or a lie below damage, the lower one is told.
#[test]
fn of_two_flaws_the_lower_block_is_told() {
    let case = Case::new();
    let index = case.index();
    let place = |height: u32| {
        let hash = chain().main().nth(height as usize).unwrap().hash;
        let entry = index.entries.iter().find(|entry| entry.hash == hash).unwrap();
        (case.blocks(&format!("blk{:05}.dat", entry.file.unwrap().0)), entry.data_pos.unwrap().0)
    };
    for height in [130, 120, 110] {
        let (path, pos) = place(height);
        testkit::corrupt::flip_bit(&path, pos + 90, 3).unwrap();
        for threads in THREADS {
            let error = run(&with_threads(&case.options(), threads)).unwrap_err();
            assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(height))), "{error}");
        }
    }
}
