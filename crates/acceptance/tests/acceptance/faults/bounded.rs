//! A rebuild whose coins exceed the memory budget gives the same result as one with unlimited memory, even if
//! it is interrupted repeatedly: the same coins, the same files, the same verdicts.

use acceptance::prelude::*;
use acceptance::{
    error_text, files, for_verifying,
    lies::{FALSIFICATIONS, falsify_claim},
};
use disk::checkpoint::Checkpoint;
use engine::MIN_MEMORY;
use testkit::mutation::{CheckLevel, base_chain, mutations};

/// A chain of `blocks` blocks in many files.
fn long(blocks: u32) -> (Chain, TempDir) {
    let spec = ChainSpec { blocks: Some(blocks), signed: false, ..ChainSpec::new(31, 1_500_000) };
    let (chain, dir) = (Chain::generate(&spec), acceptance::scratch());
    let layout = Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(31) };
    chain.write_datadir(dir.path(), &layout).unwrap();
    (chain, dir)
}

/// Levels of the sorted runs that the checkpoint below an output names.
fn levels(output: &Path) -> Vec<u8> {
    let work = output.join("regtest/peregrine-work");
    let checkpoint = Checkpoint::read(&RealDisk, &work).unwrap();
    checkpoint.map_or(Vec::new(), |checkpoint| checkpoint.runs.iter().map(|run| run.level).collect())
}

/// Rebuilds, interrupted up to `times`, each time after at most `operations` operations. Returns how often it
/// was.
fn interrupted(options: &ReindexOptions, times: u32, operations: u64, rng: &mut Rng) -> (ReindexReport, u32) {
    for stopped in 0..times {
        match run_until(options, 1 + rng.below(operations)).0 {
            Ok(report) => return (report, stopped),
            Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
        }
    }
    (run(options).unwrap_or_else(|error| panic!("{error}")), times)
}

#[test]
fn any_budget_and_any_interrupts_give_the_same_files() {
    let (chain, dir) = long(1100);
    let model = chain.model.stats();
    let base = changed(options(dir.path()), |it| {
        it.chain.hooks.obfuscation_key = Some([9; 8]);
        it.chain.hooks.range_bytes = 20_000;
    });
    let mut expected = None;
    let mut rng = Rng::new(1, "interruptions");
    for threads in [1, 2] {
        for (join_bytes, memory) in
            [(None, u64::MAX), (None, MIN_MEMORY), (Some(1), MIN_MEMORY), (Some(600_000), MIN_MEMORY)]
        {
            let mut operations = 0;
            for times in [0, 1, 20] {
                let what = format!("{threads} threads, {join_bytes:?}, {memory}, interrupted {times} times");
                let output = acceptance::scratch();
                let options = changed(
                    ReindexOptions {
                        output: Some(output.path().to_owned()),
                        ..bounded(&with_threads(&base, threads))
                    },
                    |it| {
                        it.chain.hooks.join_bytes = join_bytes;
                        it.chain.memory_bytes = memory;
                    },
                );
                let report = match times {
                    0 => {
                        let (done, count) = run_until(&options, u64::MAX);
                        operations = count;
                        done.unwrap()
                    }
                    1 => interrupted(&options, 1, operations / 4 * 3, &mut rng).0,
                    _ => {
                        let (report, stopped) = interrupted(&options, times, operations / 6, &mut rng);
                        assert!(stopped > 5 && report.resumed > 500, "{what}: {stopped}, {}", report.resumed);
                        report
                    }
                };
                assert_eq!(report.hash_serialized_3, model.hash_serialized_3, "{what}");
                let files = files(&output.path().join("regtest/chainstate"));
                let (counts, expected) = expected.get_or_insert_with(|| (report.counts, files.clone()));
                assert_eq!(report.counts, *counts, "{what}");
                assert!(*expected == files, "{what}: the chainstate's files differ");
                assert_eq!(leftovers(output.path()), [] as [&Path; 0], "{what}");
            }
        }
    }
}

/// The tests above would prove little if nothing were merged. Each block writes a run, and a second level of
/// merges is certain from 64 merges of 32 runs, while 64 runs wait.
#[test]
fn a_long_chain_has_several_levels_of_runs_and_few_runs() {
    let (_, dir) = long(2600);
    let output = acceptance::scratch();
    let options = ReindexOptions { output: Some(output.path().to_owned()), ..bounded(&options(dir.path())) };
    let operations = run_until(&options, u64::MAX).1;
    std::fs::remove_dir_all(output.path().join("regtest")).unwrap();
    let error = run_until(&options, operations / 20 * 19).0.map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Interrupted);
    let levels = levels(output.path());
    assert!(levels.contains(&0) && levels.contains(&2), "{levels:?}");
    assert!(levels.len() < 5 * 32, "{levels:?}");
    assert!(run(&options).unwrap().resumed > 900);
}

/// The result of a rebuild, interrupted once or not.
fn verdict(options: &ReindexOptions, root: &Path, interrupted_at: Option<u64>) -> Result<[u8; 32], String> {
    let output = acceptance::scratch();
    let options = ReindexOptions { output: Some(output.path().to_owned()), ..options.clone() };
    if let Some(at) = interrupted_at {
        match run_until(&options, at).0 {
            Err(error) if error.kind == ErrorKind::Interrupted => {}
            // It ended before the interrupt.
            Err(error) => return Err(error_text(&error, root)),
            Ok(report) => return Ok(report.hash_serialized_3),
        }
    }
    match run(&options) {
        Ok(report) => Ok(report.hash_serialized_3),
        Err(error) => {
            // A violation is final. Damage can be repaired, and the rebuild then resumes.
            let left = if error.kind == ErrorKind::Consensus { leftovers(output.path()) } else { Vec::new() };
            assert_eq!(left, [] as [&Path; 0], "{error}");
            Err(error_text(&error, root))
        }
    }
}

/// Asserts that spilling and interrupts do not change the verdict.
fn same_verdict(root: &Path, what: &str, undo: UndoPolicy, rng: &mut Rng) -> Result<[u8; 32], String> {
    let plain = changed(options(root), |it| it.chain.undo = undo);
    let expected = verdict(&plain, root, None);
    for threads in [1, 2] {
        let spilling = with_threads(&bounded(&plain), threads);
        assert_eq!(verdict(&spilling, root, None), expected, "{what}, {threads} threads");
        let at = 20 + rng.below(400);
        assert_eq!(verdict(&spilling, root, Some(at)), expected, "{what}, {threads} threads, {at}");
    }
    expected
}

#[test]
fn verdicts_do_not_depend_on_the_memory() {
    let base = base_chain(5);
    let mut rng = Rng::new(2, "verdicts");
    let (mut valid, mut invalid) = (0, 0);
    for (number, mutation) in mutations().enumerate() {
        // No scripts are run here. Of the violations that a block alone shows, some are enough.
        let shows = match mutation.level {
            CheckLevel::Script => false,
            CheckLevel::Spend => true,
            CheckLevel::Header | CheckLevel::Block => number % 5 == 0,
        };
        if !shows {
            continue;
        }
        let mutated = mutation.apply(&base);
        let dir = acceptance::scratch();
        mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
        match (same_verdict(dir.path(), mutation.name, UndoPolicy::Auto, &mut rng), mutation.core) {
            (Ok(hash), None) => {
                assert_eq!(hash, mutated.chain.model.stats().hash_serialized_3, "{}", mutation.name);
                valid += 1;
            }
            (Err(_), Some(_)) => invalid += 1,
            // A block in the index was in time when it arrived.
            (Ok(_), Some("time-too-new")) => {}
            (done, core) => panic!("{}: {done:?}, Core says {core:?}", mutation.name),
        }
    }
    assert!(valid >= 5 && invalid >= 15, "{valid} valid, {invalid} invalid");
}

#[test]
fn falsified_undo_data_is_found_in_runs_as_in_memory() {
    let mut rng = Rng::new(3, "lies");
    let blocks: Vec<usize> = (0..chain().blocks.len())
        .filter(|&at| !chain().blocks[at].stale && chain().blocks[at].txs > 2)
        .collect();
    for (what, falsify) in FALSIFICATIONS {
        let mut falsified = chain().clone();
        let at = blocks[rng.below(blocks.len() as u64) as usize];
        let tx = rng.below(u64::from(falsified.blocks[at].txs) - 1) as usize;
        falsify_claim(&mut falsified.blocks[at], |_| (tx, 0), *falsify);
        let dir = acceptance::scratch();
        falsified.write_datadir(dir.path(), &layout()).unwrap();
        let error = same_verdict(dir.path(), what, UndoPolicy::Trust, &mut rng).expect_err(what);
        assert!(error.starts_with("Damaged") && error.contains("rev000"), "{what}: {error}");
    }
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
    let dir = acceptance::scratch();
    falsified.write_datadir(dir.path(), &layout()).unwrap();
    let options = bounded(&trusting(&options(dir.path())));
    let height = falsified.blocks[at].height;
    loop {
        let error = run_until(&options, 100).0.map(|report| report.height).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
        let checkpoint = Checkpoint::read(&RealDisk, &dir.path().join("regtest/peregrine-work")).unwrap();
        if checkpoint.unwrap().state.completed[height as usize / 64] >> (height % 64) & 1 == 1 {
            break;
        }
    }
    std::fs::remove_dir_all(dir.path().join("regtest/blocks")).unwrap();
    chain().write_datadir(dir.path(), &layout()).unwrap();
    let report_notes = Mutex::new(String::new());
    let sink = |event| {
        if let Event::Note(note) = event {
            *report_notes.lock().unwrap() += &note.to_string();
        }
    };
    let (disk, interrupt) = (FaultDisk::healthy(), AtomicBool::new(false));
    let report = engine::reindex(&disk, &options, &sink, &interrupt).unwrap();
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    let notes = report_notes.into_inner().unwrap();
    assert!(notes.contains("checked again without undo data"), "the false claim was applied: {notes}");
    assert_eq!(leftovers(dir.path()), [] as [&Path; 0]);
}

#[test]
fn verify_stays_within_the_budget_and_leaves_no_files() {
    let case = acceptance::Case::new();
    let work = acceptance::scratch();
    let verify = |options: &ReindexOptions| {
        let options = changed(options.clone(), |it| it.chain.work_dir = Some(work.path().to_owned()));
        let disk = FaultDisk::healthy();
        let report =
            engine::verify(&disk, &for_verifying(&options, true), &|_| {}, &AtomicBool::new(false)).unwrap();
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
