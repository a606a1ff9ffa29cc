//! Commands that change nothing in the datadir work without undo data too, and come to the same results.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{
    Case, assert_same_tree, chain, changed, for_making, for_verifying, stats_by_height, tree, trusting,
    with_threads,
};
use disk::index::BlockStatus;
use peregrine_engine::{AggregateKind, ErrorKind, Height, ReindexOptions, UndoPolicy};
use std::{path::Path, sync::atomic::AtomicBool};
use testkit::{corrupt::overwrite, fault::FaultDisk};

/// How undo data is missing.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Missing {
    /// There is no undo file.
    Files,
    /// The index records none for some blocks.
    Rows,
    /// Some records are overwritten, which shows only when they are read.
    Records,
}

const ALL_MISSING: [Missing; 3] = [Missing::Files, Missing::Rows, Missing::Records];

fn case_without(missing: Missing) -> Case {
    let case = Case::new();
    match missing {
        Missing::Files => {
            for number in 0..case.index().files.len() {
                std::fs::remove_file(case.blocks(&format!("rev{number:05}.dat"))).unwrap();
            }
        }
        Missing::Rows => case.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.height.0 % 3 == 1) {
                entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
                entry.undo_pos = None;
            }
        }),
        Missing::Records => {
            for height in [60, 100, 139] {
                let entry = common::entry(&case, height);
                overwrite(&common::rev(&case, &entry), entry.undo_pos.unwrap().0 + 1, &[0x55; 9]).unwrap();
            }
        }
    }
    case
}

/// The options with one thread, and with four and a join that is spilled after each block.
fn variants(options: &ReindexOptions) -> [ReindexOptions; 2] {
    [with_threads(options, 1), changed(with_threads(options, 4), |it| it.chain.hooks.join_bytes = Some(1))]
}

fn make_snapshot(options: &ReindexOptions, path: &Path) -> Vec<u8> {
    let disk = FaultDisk::healthy();
    peregrine_engine::make_snapshot(&disk, &for_making(options), path, &|_| {}, &AtomicBool::new(false))
        .unwrap();
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    bytes
}

#[test]
fn verify_and_snapshots_need_no_undo_data() {
    let (dir, never, disk) = (common::scratch(), AtomicBool::new(false), FaultDisk::healthy());
    let path = dir.path().join("utxo.dat");
    let expected = make_snapshot(&trusting(&Case::new().options()), &path);
    for missing in ALL_MISSING {
        let case = case_without(missing);
        let before = tree(case.root());
        for options in variants(&case.options()) {
            let what = format!("{missing:?} {}", options.chain.threads);
            for against in [false, true] {
                let report =
                    peregrine_engine::verify(&disk, &for_verifying(&options, against), &|_| {}, &never);
                let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
                let height = chain().tip().height - if against { 3 } else { 0 };
                assert_eq!(report.height, Height(height), "{what}");
                assert_eq!(report.txouts, stats_by_height(chain())[height as usize].txouts, "{what}");
                assert!(report.against_chainstate.is_none_or(|found| found.differences == 0), "{what}");
            }
            assert!(make_snapshot(&options, &path) == expected, "{what}");
            std::fs::write(&path, &expected).unwrap();
            for policy in [UndoPolicy::Auto, UndoPolicy::Make] {
                let options = changed(options.clone(), |it| it.chain.undo = policy);
                let verify = |path: &Path| {
                    let kind = AggregateKind::SipHash128;
                    peregrine_engine::verify_snapshot(
                        &disk,
                        path,
                        Some(&options.chain),
                        kind,
                        &|_| {},
                        &never,
                    )
                    .unwrap()
                    .proven
                };
                assert_eq!(verify(&path), Some(true), "{what}");
                let mut other = expected.clone();
                // The code of the last coin, or its amount.
                let at = other.len() - 22;
                other[at] ^= 1;
                let wrong = dir.path().join("wrong");
                std::fs::write(&wrong, &other).unwrap();
                assert_eq!(verify(&wrong), Some(false), "{what}");
            }
            std::fs::remove_file(&path).unwrap();
        }
        let error = peregrine_engine::verify(
            &disk,
            &for_verifying(&trusting(&case.options()), false),
            &|_| {},
            &never,
        );
        if missing != Missing::Rows {
            assert_eq!(error.map(|report| report.height).unwrap_err().kind, ErrorKind::Damaged);
        }
        assert_same_tree(&before, case.root(), &format!("{missing:?}"));
    }
}
