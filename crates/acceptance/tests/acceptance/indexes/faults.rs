//! Whatever happens while indexes are made or continued, those that are in place stay whole.

use acceptance::{
    bounded,
    faults::{each_operation, tiny, tiny_case},
    indexes::{assert_sound, check, database, make, of_case, rows, update},
    leftovers, run, run_until,
};
use engine::{ErrorKind, Height, Location, Network, recover};
use indexes::{IndexKind, IndexOptions, TxForm, make_indexes, update_indexes};
use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};
use testkit::fault::{FaultDisk, InjectedFault, Operations};

fn tip() -> u32 {
    tiny().tip().height
}

/// The options for a tiny chain, whose indexes are behind.
fn behind() -> (acceptance::Case, IndexOptions) {
    let case = tiny_case();
    let options = of_case(&case, TxForm::ByTxid);
    make(&FaultDisk::healthy(), &options).unwrap();
    run(&case.options()).unwrap();
    (case, options)
}

/// Asserts that all indexes are whole, old or new.
fn assert_whole(case: &acceptance::Case, options: &IndexOptions, what: &str) {
    recover(&FaultDisk::healthy(), &Location::new(case.root(), Network::Regtest)).unwrap();
    let checked = check(options);
    assert!(checked.is_sound(), "{what}: {checked:?}");
    for index in &checked.indexes {
        assert!([Some(Height(tip())), Some(Height(tip() - 3))].contains(&index.height), "{what}: {index:?}");
    }
}

#[test]
fn an_interrupt_leaves_whole_indexes() {
    for makes in [true, false] {
        each_operation(7, |at| {
            let (case, options) = behind();
            let interrupt = Arc::new(AtomicBool::new(false));
            let disk = FaultDisk::signal_at(at, &interrupt);
            let done = match makes {
                true => make_indexes(&disk, &options, &|_| {}, &interrupt),
                false => update_indexes(&disk, &options, &|_| {}, &interrupt),
            };
            if let Err(error) = &done {
                assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
            }
            assert_whole(&case, &options, &format!("operation {at}"));
            let left = leftovers(case.root());
            assert!(left.is_empty(), "operation {at}: {left:?}");
            done.is_ok() && disk.count() < at
        });
    }
}

/// Once, the temporary files of an index took the place of its checkpoint.
#[test]
fn an_interrupted_rebuild_resumes_after_indexes_are_made() {
    for makes in [true, false] {
        let (case, options) = behind();
        run_until(&bounded(&case.options()), 60).0.unwrap_err();
        let disk = FaultDisk::healthy();
        if makes { make(&disk, &options) } else { update(&disk, &options) }.unwrap();
        assert!(run(&bounded(&case.options())).unwrap().resumed > 0, "{makes}");
    }
}

#[test]
fn a_failing_disk_leaves_whole_indexes_and_the_next_run_succeeds() {
    for makes in [true, false] {
        each_operation(5, |at| {
            let (case, options) = behind();
            let kind = io::ErrorKind::StorageFull;
            let disk = FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, kind);
            let done = if makes { make(&disk, &options) } else { update(&disk, &options) };
            let has_failed = disk.has_failed();
            disk.heal();
            if let Err(error) = &done {
                assert_eq!(error.kind, ErrorKind::Environment, "operation {at}: {error}");
            }
            assert_whole(&case, &options, &format!("operation {at}"));
            let again = if makes { make(&disk, &options) } else { update(&disk, &options) };
            again.unwrap();
            assert_sound(&options, tip());
            !has_failed
        });
    }
}

/// What was written and not synced is lost, and a name may be the old or the new one.
#[test]
fn a_power_cut_leaves_whole_indexes() {
    for makes in [true, false] {
        each_operation(9, |at| {
            let (case, options) = behind();
            let before = IndexKind::ALL.map(|kind| rows(&database(&case, kind)).len());
            let disk =
                FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other);
            let done = if makes { make(&disk, &options) } else { update(&disk, &options) };
            let has_failed = disk.has_failed();
            // What fails after an index is in place is only a warning.
            assert!(has_failed || done.is_ok());
            if has_failed {
                disk.cut_power(at).unwrap();
            }
            assert_whole(&case, &options, &format!("operation {at}"));
            let after = IndexKind::ALL.map(|kind| rows(&database(&case, kind)).len());
            assert!(after.iter().zip(before).all(|(after, before)| *after >= before), "operation {at}");
            !has_failed
        });
    }
}
