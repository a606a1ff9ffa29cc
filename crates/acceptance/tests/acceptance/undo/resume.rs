//! A rebuild that makes undo data is interrupted, and then resumed, repeated with other options, or given up:
//! the files are those of a run that was never interrupted, and nothing is left behind.

use acceptance::prelude::*;

/// A datadir whose undo data is damaged, and options that write checkpoints often.
fn lacking(damage: UndoDamage) -> (Case, ReindexOptions) {
    let case = Case::new();
    damage.apply(case.root(), Network::Regtest);
    let options = bounded(&case.options());
    (case, options)
}

fn expected() -> Expected {
    Expected::of(chain())
}

/// Interrupts a run when about two thirds are done, and some undo data is made: when that is depends on the
/// order in which threads work.
fn interrupt_late(case: &Case, options: &ReindexOptions) {
    let is_waiting = || case.blocks("peregrine-undo").exists();
    for at in [700, 200, 200] {
        if !is_waiting() {
            let error = run_until(options, at).0.expect_err("the run was complete before");
            assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
        }
    }
    assert!(is_waiting(), "no undo data is waiting");
    let work = options.chain.work_dir.clone().unwrap_or(case.root().join("regtest"));
    assert!(work.join("peregrine-work/manifest").exists(), "no checkpoint");
}

/// Asserts that a run with these options ends as if nothing had happened before.
fn assert_ends(case: &Case, options: &ReindexOptions, what: &str) -> u32 {
    let report = run(options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(report.hash_serialized_3, expected().hash_serialized_3, "{what}");
    assert_complete(case.root(), Network::Regtest, &expected(), what);
    report.resumed
}

/// With all undo data there, the other job would not end early.
#[test]
fn a_job_with_another_undo_policy_is_refused_and_the_first_one_can_be_resumed() {
    use UndoPolicy::{Auto, Make, Trust};
    for (damage, undo, other) in [
        (UndoDamage::HalfGone, Auto, Trust),
        (UndoDamage::Flipped, Auto, Trust),
        (UndoDamage::HalfGone, Auto, Make),
        (UndoDamage::NoPositions, Make, Trust),
    ] {
        let (case, options) = lacking(damage);
        let (options, what) = (with_undo(&options, undo), format!("{damage:?}, {other:?} in between"));
        interrupt_late(&case, &options);
        let error = run(&with_undo(&options, other)).expect_err(&what);
        assert!(matches!(error.kind, ErrorKind::Usage | ErrorKind::Damaged), "{what}: {error}");
        let done = assert_ends(&case, &options, &what);
        assert!(done > 50, "{what}: {done} blocks were kept");
    }
}

/// Regression: without the work directory, the run has no checkpoint, and removed the undo data.
#[test]
fn a_run_that_is_refused_leaves_the_undo_data_of_an_interrupted_one() {
    let ((case, options), elsewhere) = (lacking(UndoDamage::HalfGone), scratch());
    let interrupted = changed(options.clone(), |it| it.chain.work_dir = Some(elsewhere.path().to_owned()));
    interrupt_late(&case, &interrupted);
    assert_fails(run(&up_to(options, 99_999)), ErrorKind::Usage, &[]);
    assert!(assert_ends(&case, &interrupted, "not used up") > 50);
}

#[test]
fn restart_discards_undo_data_that_was_made() {
    for undo in UndoPolicy::ALL {
        let (case, options) = lacking(UndoDamage::HalfGone);
        interrupt_late(&case, &options);
        let again = changed(with_undo(&options, undo), |it| it.chain.resume.restart = true);
        if undo == UndoPolicy::Trust {
            assert_fails(run(&again), ErrorKind::Damaged, &[]);
            continue;
        }
        assert_eq!(assert_ends(&case, &again, &format!("restart, {undo:?}")), 0);
    }
}

/// With undo data that is complete, `Trust` can take the place of an interrupted job that makes it.
#[test]
fn restart_with_all_undo_data_leaves_nothing_behind() {
    let (case, options) = lacking(UndoDamage::NoPositions);
    interrupt_late(&case, &options);
    let scan = changed(trusting(&case.scan()), |it| it.chain.resume.restart = true);
    assert_eq!(run(&scan).unwrap().hash_serialized_3, expected().hash_serialized_3);
    assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
}

#[test]
fn undo_data_that_is_damaged_meanwhile_is_named_and_made_after_restart() {
    for is_lost in [false, true] {
        let (case, options) = lacking(UndoDamage::HalfGone);
        interrupt_late(&case, &options);
        let path = case.blocks("rev00001.dat");
        if is_lost {
            fs::remove_file(&path).unwrap();
        } else {
            let files = UndoFiles::read(case.root(), Network::Regtest);
            let first = files.index.entries.iter().filter(|entry| entry.file.is_some_and(|file| file.0 == 1));
            let pos = first.filter_map(|entry| entry.undo_pos).min().unwrap();
            flip_bit(&path, pos.0 + 2, 1).unwrap();
        }
        match run(&options) {
            Ok(_) => assert_complete(case.root(), Network::Regtest, &expected(), "made again"),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
                let flaw =
                    if is_lost { "bytes of the file are in use" } else { "has changed since an interrupted" };
                assert_mentions(&error, &["rev00001.dat", flaw]);
                assert_offers(&error, &[Remedy::StartOver]);
                let again = changed(options, |it| it.chain.resume.restart = true);
                assert_eq!(assert_ends(&case, &again, &format!("lost: {is_lost}")), 0);
            }
        }
    }
}

/// They were on the medium, so this is no ordinary crash.
#[test]
fn undo_data_that_waits_and_is_damaged_or_lost_is_an_error() {
    let damages: [fn(&Path); 4] = [
        |waiting| fs::remove_file(waiting).unwrap(),
        |waiting| truncate(waiting, 20).unwrap(),
        |waiting| flip_bit(waiting, 30, 1).unwrap(),
        |waiting| fs::write(waiting, vec![0; 100_000]).unwrap(),
    ];
    for damage in damages {
        let (case, options) = lacking(UndoDamage::HalfGone);
        interrupt_late(&case, &options);
        let dir = case.blocks("peregrine-undo");
        damage(&dir.join(files_of(&dir, "rev").into_keys().next().unwrap()));
        let before = files_of(&case.blocks(""), "rev");
        let words = ["the undo data that an interrupted run has made is damaged or lost"];
        let error = assert_fails(run(&options), ErrorKind::Damaged, &words);
        assert_offers(&error, &[Remedy::StartOver]);
        assert!(files_of(&case.blocks(""), "rev") == before);
        assert_ends(&case, &changed(options, |it| it.chain.resume.restart = true), "restart");
    }
}

#[test]
fn a_job_whose_undo_data_was_given_up_starts_over() {
    let (case, options) = lacking(UndoDamage::HalfGone);
    interrupt_late(&case, &options);
    fs::remove_dir_all(case.blocks("peregrine-undo")).unwrap();
    assert_eq!(assert_ends(&case, &options, "given up"), 0);
}

/// A node has used the index meanwhile, and has stored another block.
#[test]
fn a_job_whose_index_was_used_meanwhile_does_not_end_wrongly() {
    let (case, options) = lacking(UndoDamage::HalfGone);
    let low = up_to(options.clone(), 138);
    interrupt_late(&case, &low);
    // Written anew, with other file numbers.
    case.edit_index(|index| index.entries.reverse());
    match run(&options) {
        Ok(_) => assert_complete(case.root(), Network::Regtest, &expected(), "resumed"),
        Err(error) => {
            assert_offers(&error, &[Remedy::StartOver]);
            assert_ends(&case, &changed(options, |it| it.chain.resume.restart = true), "restart");
        }
    }
}

/// A run that ends at an invalid block leaves no undo data behind: the next run begins anew in any case.
#[test]
fn undo_data_of_an_invalid_chain_is_removed() {
    let mut invalid = chain().clone();
    let tip = invalid.blocks.iter().rposition(|block| !block.stale).unwrap();
    let greedy = greedy_sibling(&invalid.blocks[tip], 1);
    invalid.blocks[tip] = GeneratedBlock { stale: false, undo: Some(vec![0]), ..greedy };
    for undo in [UndoPolicy::Auto, UndoPolicy::Make] {
        for options in [bounded as fn(&ReindexOptions) -> ReindexOptions, ReindexOptions::clone] {
            let dir = datadir_of(&invalid);
            UndoDamage::HalfGone.apply(dir.path(), Network::Regtest);
            let options = with_undo(&options(&acceptance::options(dir.path())), undo);
            refused(&options, ErrorKind::Consensus, &[]);
            assert_eq!(leftovers(dir.path()), [] as [&Path; 0], "{undo:?}");
        }
    }
}
