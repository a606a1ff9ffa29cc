//! A rebuild whose coins exceed the memory budget: how many sorted runs it leaves, and what repairs while it
//! is interrupted do. That its result is the same is tested in `ways`.

use acceptance::lies::FALSIFICATIONS;
use acceptance::prelude::*;
use disk::checkpoint::Checkpoint;

/// The tests above would prove little if nothing were merged. Each block writes a run, and a second level of
/// merges is certain from 64 merges of 32 runs, while 64 runs wait.
#[test]
fn a_long_chain_has_several_levels_of_runs_and_few_runs() {
    let (dir, output) = (scratch(), scratch());
    let spec = ChainSpec { blocks: Some(2600), signed: false, ..ChainSpec::new(31, 1_500_000) };
    let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(31) };
    Chain::generate(&spec).write_datadir(dir.path(), &layout).unwrap();
    let options = elsewhere(bounded(&options(dir.path())), output.path());
    let operations = run_until(&options, u64::MAX).1;
    fs::remove_dir_all(output.path().join("regtest")).unwrap();
    assert_fails(run_until(&options, operations / 20 * 19).0, ErrorKind::Interrupted, &[]);
    let checkpoint = Checkpoint::read(&RealDisk, &output.path().join("regtest/peregrine-work")).unwrap();
    let levels: Vec<u8> = checkpoint.unwrap().runs.iter().map(|run| run.level).collect();
    assert!(levels.contains(&0) && levels.contains(&2), "{levels:?}");
    assert!(levels.len() < 5 * 32, "{levels:?}");
    assert!(run(&options).unwrap().resumed > 900);
}

/// A rev file is repaired while a rebuild is interrupted: false claims that were applied before have no
/// effect.
#[test]
fn a_false_claim_that_was_applied_before_the_repair_does_no_harm() {
    let mut falsified = chain().clone();
    let at = falsified.blocks.iter().position(|block| !block.stale && block.txs > 2).unwrap();
    // A change that the block itself does not show, and that does not move the records.
    let (_, earlier) = FALSIFICATIONS.iter().find(|(what, _)| *what == "height, earlier").unwrap();
    falsify_claim(&mut falsified.blocks[at], |_| (0, 0), *earlier);
    let dir = datadir_of(&falsified);
    let options = bounded(&trusting(&options(dir.path())));
    let height = falsified.blocks[at].height;
    loop {
        assert_fails(run_until(&options, 100).0, ErrorKind::Interrupted, &[]);
        let checkpoint = Checkpoint::read(&RealDisk, &dir.path().join("regtest/peregrine-work")).unwrap();
        if checkpoint.unwrap().state.completed[height as usize / 64] >> (height % 64) & 1 == 1 {
            break;
        }
    }
    std::fs::remove_dir_all(dir.path().join("regtest/blocks")).unwrap();
    chain().write_datadir(dir.path(), &layout()).unwrap();
    let (done, events) = run_seen(&options);
    let (report, notes) = (done.unwrap(), notes(&events).join("; "));
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert!(notes.contains("checked again without undo data"), "the false claim was applied: {notes}");
    assert_eq!(leftovers(dir.path()), [] as [&Path; 0]);
}

#[test]
fn verify_stays_within_the_budget_and_leaves_no_files() {
    let case = acceptance::Case::new();
    let work = scratch();
    let verify = |options: &ReindexOptions| {
        let options = changed(options.clone(), |it| it.chain.work_dir = Some(work.path().to_owned()));
        let disk = FaultDisk::healthy();
        let report = engine::verify(&disk, &options.chain, true, unwatched()).unwrap();
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
        let against = report.against_chainstate.unwrap();
        let spilled = disk.count() > 200;
        ((report.height, report.hash, report.counts, report.txouts, against.differences), spilled)
    };
    let (expected, _) = verify(&case.options());
    assert_eq!(expected.4, 0);
    for threads in [1, 2] {
        let (found, spilled) = verify(&with_threads(&bounded(&case.options()), threads));
        assert_eq!(found, expected);
        assert!(spilled);
    }
}
