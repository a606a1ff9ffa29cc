//! The disk fails at each operation of a whole rebuild in turn, once or for good: afterwards the old
//! chainstate opens, or the new one is complete, and a run on the healed disk succeeds.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{Case, Template, assert_same_tree, run, stats, tree};
use engine::{BlockHash, ErrorKind, Network, ReindexOptions};
use std::{io, sync::OnceLock, sync::atomic::AtomicBool};
use testkit::{
    Chain, ChainSpec,
    fault::{Fault, FaultDisk, Operations},
};

/// A chain with some spends in it, and little else.
fn tiny() -> &'static Chain {
    static CHAIN: OnceLock<Chain> = OnceLock::new();
    CHAIN.get_or_init(|| Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(21, 40_000) }))
}

fn tiny_case() -> Case {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| Template::of(tiny())).case()
}

/// Best block and hash of the chainstate.
fn found(case: &Case) -> Result<(BlockHash, [u8; 32]), engine::Error> {
    stats(case.root(), Network::Regtest).map(|stats| (stats.best_block, stats.hash_serialized_3))
}

fn rebuild(disk: &FaultDisk, options: &ReindexOptions) -> Result<engine::ReindexReport, engine::Error> {
    engine::reindex(disk, options, &|_| {}, &AtomicBool::new(false))
}

/// How an operation fails.
#[derive(Clone, Copy, Debug)]
struct Trial {
    fault: Fault,
    /// A disk that is dead from a read on leaves what one leaves that is dead from the next change on.
    operations: Operations,
    /// From one operation that fails to the next: most reads are alike.
    stride: u64,
    scan: bool,
    /// The file system cannot swap names.
    in_steps: bool,
    /// Bytes not synced are lost with the fault.
    power_cut: bool,
}

const ONCE: Trial = Trial {
    fault: Fault::Once,
    operations: Operations::Changes,
    stride: 1,
    scan: false,
    in_steps: false,
    power_cut: false,
};
const DEAD: Trial = Trial { fault: Fault::Sticky, ..ONCE };

/// Fails operation after operation until a run gets through.
fn fault_loop(trial: Trial) {
    let Trial { fault, operations, stride, scan, in_steps, power_cut } = trial;
    let new = (tiny().tip().hash, tiny().model.stats().hash_serialized_3);
    let old = found(&tiny_case()).unwrap();
    let mut failures = 0;
    for at in (0..).map(|turn| turn * stride) {
        let what = format!("operation {at}, {trial:?}");
        let case = tiny_case();
        let disk = FaultDisk::fail_at(at, fault, operations, io::ErrorKind::Other);
        let disk = if in_steps { disk.without_exchange() } else { disk };
        let options = ReindexOptions { scan, ..case.options() };
        let done = rebuild(&disk, &options);
        if power_cut {
            disk.lose_unsynced().unwrap();
        }
        disk.heal();
        if !disk.has_failed() {
            assert_eq!(done.unwrap().hash_serialized_3, new.1, "{what}");
            break;
        }
        if let Err(error) = &done {
            failures += 1;
            assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{what}: {error}");
        }
        // Three renames can be cut short with no chainstate under its name; the next run puts that right.
        if !in_steps {
            let found =
                found(&case).unwrap_or_else(|error| panic!("{what}: neither old nor new opens: {error}"));
            assert!(found == old || found == new, "{what}: a mix of old and new");
            assert!(done.is_err() || found == new, "{what}: it said done");
        }
        let again = rebuild(&disk, &options).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert_eq!(again.hash_serialized_3, new.1, "{what}, again");
        let names: Vec<_> = tree(case.root()).into_keys().collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("peregrine")), "{what}: {names:?}");
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("exchange")), "{what}: {names:?}");
    }
    assert!(failures >= 20, "only {failures} operations failed a run");
}

#[test]
fn a_single_fault_costs_the_run_only() {
    fault_loop(ONCE);
    fault_loop(Trial { operations: Operations::All, stride: 13, ..ONCE });
}

#[test]
fn a_single_fault_costs_a_scan_only() {
    fault_loop(Trial { scan: true, ..ONCE });
    fault_loop(Trial { operations: Operations::All, stride: 29, scan: true, ..ONCE });
}

#[test]
fn a_dead_disk_or_a_killed_process_leaves_old_or_new() {
    fault_loop(DEAD);
    fault_loop(Trial { scan: true, ..DEAD });
}

#[test]
fn a_power_cut_leaves_old_or_new() {
    fault_loop(Trial { power_cut: true, ..DEAD });
    fault_loop(Trial { power_cut: true, scan: true, ..DEAD });
}

#[test]
fn where_names_cannot_be_swapped_the_next_run_puts_them_right() {
    fault_loop(Trial { in_steps: true, ..DEAD });
    fault_loop(Trial { in_steps: true, scan: true, ..DEAD });
}

/// A disk that refuses changes from operation `at` on: nothing may be left, nothing touched.
fn refusing(kind: io::ErrorKind, output: bool) -> Vec<engine::Error> {
    let mut errors = Vec::new();
    let case = tiny_case();
    let before = tree(case.root());
    for at in 0.. {
        let output = output.then(|| tempfile::tempdir().unwrap());
        // Once: the room that a failed run gives back is there for its own clean-up.
        let disk = FaultDisk::fail_at(at, Fault::Once, Operations::Changes, kind);
        let target = output.as_ref().map(|output| output.path().join("new"));
        let done = rebuild(&disk, &ReindexOptions { output: target.clone(), ..case.options() });
        if !disk.has_failed() {
            done.unwrap();
            break;
        }
        let Err(error) = done else { continue };
        assert_eq!(error.kind, ErrorKind::Environment, "change {at}: {error}");
        if found(&case).unwrap().0 == tiny().tip().hash {
            // The new chainstate is in place; what failed is only the removal of the old one.
            errors.push(error);
            run(&case.options()).unwrap();
            break;
        }
        assert_same_tree(&before, case.root(), &format!("change {at}: {error}"));
        if let Some(target) = target.filter(|target| target.exists()) {
            let left: Vec<_> = tree(&target).into_keys().filter(|path| path.is_file()).collect();
            // Once the new chainstate has its name, only the last sync can have failed.
            let whole =
                || stats(&target, Network::Regtest).is_ok_and(|all| all.best_block == tiny().tip().hash);
            assert!(left.is_empty() || whole(), "change {at}: left in the output: {left:?}");
        }
        errors.push(error);
    }
    errors
}

#[test]
fn a_full_disk_costs_the_run_only() {
    for output in [false, true] {
        let errors = refusing(io::ErrorKind::StorageFull, output);
        assert!(errors.len() >= 5, "{errors:?}");
        for error in errors {
            let text = error.to_string();
            assert!(error.file.is_some() && text.contains("make room and run again"), "{text}");
        }
    }
}

#[test]
fn a_read_only_target_is_refused_with_a_way_out() {
    let case = tiny_case();
    let before = tree(case.root());
    for kind in [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied] {
        let disk = FaultDisk::fail_at(0, Fault::Sticky, Operations::Changes, kind);
        let error = rebuild(&disk, &case.options()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Environment);
        common::says(&error, &["give the permission", "--output"]);
        assert_same_tree(&before, case.root(), "read-only");
        // With another place for the result, a datadir that cannot be written serves as well.
        let output = tempfile::tempdir().unwrap();
        let options = ReindexOptions { output: Some(output.path().to_owned()), ..case.options() };
        assert_eq!(run(&options).unwrap().hash, tiny().tip().hash);
        assert_same_tree(&before, case.root(), "output elsewhere");
    }
}
