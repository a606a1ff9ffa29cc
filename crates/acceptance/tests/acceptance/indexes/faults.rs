//! Whatever happens while indexes are made or continued, those that are in place stay whole.

use ::indexes::make_indexes;
use acceptance::indexes::{assert_sound, behind, check, make, of_case, update};
use acceptance::prelude::*;
use engine::recover;
use std::sync::atomic::AtomicU32;

fn tip() -> u32 {
    tiny().tip().height
}

/// Asserts that all indexes are whole, old or new.
fn assert_whole(case: &Case, options: &IndexOptions, what: &str) {
    recover(&FaultDisk::healthy(), &Location::new(case.root(), Network::Regtest)).unwrap();
    let checked = check(options);
    assert!(checked.is_sound(), "{what}: {checked:?}");
    for index in &checked.result.indexes {
        assert!([Some(Height(tip())), Some(Height(tip() - 3))].contains(&index.height), "{what}: {index:?}");
    }
}

#[test]
fn an_interrupt_leaves_whole_indexes() {
    for command in [make, update] {
        each_operation(7, |at| {
            let (case, options) = behind(tiny_case(), TxForm::ByTxid);
            let disk = FaultDisk::interrupting_at(at);
            let done = command(&disk, &options);
            if let Err(error) = &done {
                assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
            }
            assert_whole(&case, &options, &format!("operation {at}"));
            assert_eq!(leftovers(case.root()), [] as [&Path; 0], "operation {at}");
            done.is_ok() && disk.count() < at
        });
    }
}

/// Nothing was seen of it for minutes, and it did not end before all was read.
#[test]
fn reading_new_indexes_back_is_shown_and_can_be_interrupted() {
    let case = tiny_case();
    let options = of_case(&case, TxForm::ByTxid);
    for kind in IndexKind::ALL {
        let options = &IndexOptions { kinds: vec![kind], ..options.clone() };
        let make = |watch: Watch<'_>| make_indexes(&FaultDisk::healthy(), options, watch);
        assert_shown_and_interrupted(Stage::Prove, make);
    }
    // The filters are read after the rows, of which no block is counted.
    let options = IndexOptions { kinds: vec![IndexKind::BlockFilter], ..options };
    let ([is_there, interrupt], shown) = ([false; 2].map(AtomicBool::new), AtomicU32::new(0));
    let sink = |event: Event| match event {
        Event::Started(begun) => is_there.store(begun == Stage::Prove, Ordering::Relaxed),
        Event::Progress(progress) if progress.blocks > 0 && is_there.load(Ordering::Relaxed) => {
            shown.fetch_add(1, Ordering::Relaxed);
            interrupt.store(true, Ordering::Relaxed);
        }
        _ => {}
    };
    let watch = Watch { sink: &sink, interrupt: &interrupt };
    assert_fails(make_indexes(&FaultDisk::healthy(), &options, watch), ErrorKind::Interrupted, &[]);
    assert_eq!(shown.into_inner(), 1, "it went on");
    assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
}

/// Once, the temporary files of an index took the place of its checkpoint.
#[test]
fn an_interrupted_rebuild_resumes_after_indexes_are_made() {
    for (what, command) in ["made", "continued"].into_iter().zip([make, update]) {
        let (case, options) = behind(tiny_case(), TxForm::ByTxid);
        run_until(&bounded(&case.options()), 60).0.unwrap_err();
        command(&FaultDisk::healthy(), &options).unwrap();
        assert!(run(&bounded(&case.options())).unwrap().resumed > 0, "{what}");
    }
}

/// Once, it was taken for that of the replacement.
#[test]
fn the_checkpoint_of_a_rebuild_stays_when_a_replacement_of_indexes_is_finished() {
    for at in (0..).step_by(3) {
        let (case, options) = behind(tiny_case(), TxForm::ByTxid);
        run_until(&bounded(&case.options()), 60).0.unwrap_err();
        make(&FaultDisk::killed_at(at), &options).map(drop).unwrap_err();
        if case.net("peregrine-commit").exists() {
            let report = recover(&FaultDisk::healthy(), &Location::new(case.root(), Network::Regtest));
            assert_eq!(report.unwrap().recovery, Some(engine::recover::Recovery::Finished));
            assert!(run(&bounded(&case.options())).unwrap().resumed > 0);
            return;
        }
    }
}

#[test]
fn a_crash_or_a_full_disk_at_any_change_leaves_whole_indexes_and_the_next_run_succeeds() {
    for command in [make, update] {
        let of_case = |case: &Case| of_case(case, TxForm::ByTxid);
        let scenario = Scenario {
            before: &|| behind(tiny_case(), TxForm::ByTxid).0,
            run: &|disk, case| command(disk, &of_case(case)).map(drop),
            is_whole: &|case, is_done, what| {
                assert_whole(case, &of_case(case), what);
                if is_done {
                    assert_sound(&of_case(case), tip());
                }
            },
            succeeds: &|case, what| {
                let done = command(&FaultDisk::healthy(), &of_case(case));
                done.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_sound(&of_case(case), tip());
            },
        };
        let states = scenario.explore(Crashes { stride: 5, ..Crashes::default() });
        let failures = scenario.suffer(Trouble::NO_SPACE, 11, false);
        eprintln!("{states} states, {failures} failures");
        assert!(states > 20 && failures > 5, "{states}, {failures}");
    }
}
