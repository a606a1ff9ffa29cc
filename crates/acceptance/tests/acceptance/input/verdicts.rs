//! Chains that break one rule, and falsified undo data: the verdict is Core's, at the right block, with any
//! number of threads; and falsified undo data is damage, never a violation.

use acceptance::prelude::*;
use acceptance::{
    error_text,
    lies::{falsified, falsify_claim},
};
use testkit::mutation::{CheckLevel, base_chain, mutations};

/// Reject strings of a body that its header does not commit to: damage (Core `BLOCK_MUTATED`).
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
            // No scripts are run here: the oracle tests these.
            continue;
        }
        let mutated = mutation.apply(&base);
        let dir = acceptance::scratch();
        mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
        let before = tree(dir.path());
        let mut first = None;
        for (threads, scan) in [(1, false), (8, false), (2, true)] {
            let options = ReindexOptions { scan, ..with_threads(&options(dir.path()), threads) };
            let output = acceptance::scratch();
            let done = run(&ReindexOptions { output: Some(output.path().to_owned()), ..options });
            let verdict = match &done {
                Ok(report) if report.hash == mutated.block.hash => Ok(()),
                Ok(report) => Err(format!("accepted up to {} only", report.height)),
                Err(error) => {
                    if !scan {
                        let text = error_text(error, dir.path());
                        let first = first.get_or_insert_with(|| text.clone());
                        assert_eq!(*first, text, "{}: the verdict depends on threads", mutation.name);
                    }
                    Err(match (error.kind, &error.core) {
                        (ErrorKind::Consensus, Some(core)) => core.to_string(),
                        // Core does not store a header without proof of work: on disk, it is damage.
                        (ErrorKind::Damaged, Some(core)) if core == "high-hash" => core.to_string(),
                        (ErrorKind::Damaged, Some(core)) if MUTATED.contains(&&**core) => core.to_string(),
                        _ => error.to_string(),
                    })
                }
            };
            // A block in the index was in time when it arrived; Core does not check its time again either.
            let known = mutation.core == Some("time-too-new") && !scan && verdict.is_ok()
                                // No undo data matches such a block, so the scan takes it for never
                                // connected.
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
                    wrong += &format!("\n{} (scan {scan}): reported at {place:?}", mutation.name);
                }
            }
        }
        assert_same_tree(&before, dir.path(), mutation.name);
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 60);
}

/// Below a broken tip is a valid chain, which --stop-at-height selects.
#[test]
fn the_chain_below_a_broken_block_can_be_rebuilt() {
    let base = base_chain(6);
    for name in ["reward-1-too-much", "double-spend-in-block"] {
        let Some(mutation) = mutations().find(|mutation| mutation.name == name) else { continue };
        let mutated = mutation.apply(&base);
        let dir = acceptance::scratch();
        mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
        assert_eq!(run(&options(dir.path())).unwrap_err().kind, ErrorKind::Consensus);
        let below = Height(mutated.block.height - 1);
        let report = run(&ReindexOptions { stop_at_height: Some(below), ..options(dir.path()) }).unwrap();
        assert_eq!(report.hash_serialized_3, mutated.chain.model.stats().hash_serialized_3, "{name}");
    }
}

#[test]
fn falsified_undo_data_is_reported_as_damage_of_the_rev_file() {
    for (what, falsified, at, tx) in falsified(chain()) {
        let dir = acceptance::scratch();
        falsified.write_datadir(dir.path(), &layout()).unwrap();
        let (height, hash) = (falsified.blocks[at].height, falsified.blocks[at].hash);
        let mut arena = wire::BlockArena::default();
        let block = arena.parse(&falsified.blocks[at].bytes).unwrap();
        let digest::sha256::Message(parts) = block.tx(tx + 1).unwrap().txid_message();
        let txid = wire::Txid(digest::sha256::sha256d(&parts.concat()));
        for threads in THREADS {
            let output = acceptance::scratch();
            let options = ReindexOptions {
                output: Some(output.path().to_owned()),
                ..with_threads(&trusting(&options(dir.path())), threads)
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
            assert_mentions(&error, &["restore the file", "make the undo data"]);
        }
    }
}

/// If parallel matching fails, all blocks are checked again without undo data, and an event reports it.
#[test]
fn a_check_without_undo_data_is_announced() {
    let mut falsified = chain().clone();
    let at = falsified.blocks.iter().rposition(|block| !block.stale && block.txs > 2).unwrap();
    falsify_claim(&mut falsified.blocks[at], |_| (0, 0), |_, amount, _| *amount += 1);
    let case = {
        let dir = acceptance::scratch();
        falsified.write_datadir(dir.path(), &layout()).unwrap();
        dir
    };
    let seen = Mutex::new(Vec::new());
    let sink = |event| seen.lock().unwrap().push(event);
    engine::reindex(&FaultDisk::healthy(), &trusting(&options(case.path())), &sink, &AtomicBool::new(false))
        .unwrap_err();
    let events = seen.into_inner().unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::Note(Note::CheckingWithoutUndo))));
}

/// Among several damaged blocks, the lowest one is reported.
#[test]
fn reports_the_lowest_of_several_damaged_blocks() {
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
