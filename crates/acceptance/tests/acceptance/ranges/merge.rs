//! Ranges of a chain, checked separately and merged in any order and grouping: the chainstate of a rebuild,
//! or an error that names what is wrong.

use crate::commands::update::repeated_coinbases;
use acceptance::prelude::*;
use acceptance::ranges::{Ranges, cut, delta_files};
use disk::delta::Delta;
use ranges::{
    CheckRangeOptions, FinishRangesOptions, MergeDeltasOptions, RangeFile, check_range, finish_ranges,
    merge_deltas,
};

#[test]
fn a_delta_depends_on_nothing_but_the_plan() {
    let (case, cut) = cut(3, Some(5));
    for range in 0..3 {
        let mut first = None;
        for (threads, join_bytes) in [(1, None), (2, Some(1)), (8, None), (3, Some(20_000))] {
            let mut options = cut.check_options(range);
            options.chain.threads = NonZeroUsize::new(threads).unwrap();
            options.chain.hooks.join_bytes = join_bytes;
            let name = format!("r{range}-{threads}");
            let report = cut.check_as(&options, &name).unwrap();
            let found = (report.content, delta_files(&cut.path(&name)));
            assert_eq!(found.1.len(), 5);
            let first = first.get_or_insert_with(|| found.clone());
            assert_eq!(*first, found, "{threads} threads, {join_bytes:?}");
            assert_eq!(leftovers(cut.dir.path()), [] as [PathBuf; 0]);
        }
    }
    drop(case);
}

/// The laws of a commutative monoid, on files: any order and any grouping have the same result.
#[test]
fn any_grouping_and_order_of_merges_has_the_same_result() {
    let (_case, cut) = cut(16, Some(3));
    let deltas = cut.check_all().unwrap();
    let expected = delta_files(&cut.merge_all(&deltas).unwrap());
    let mut rng = Rng::new(5, "merges");
    for round in 0..20 {
        let mut left = deltas.clone();
        let mut number = 0;
        while left.len() > 1 {
            let mut group = Vec::new();
            for _ in 0..(2 + rng.below(4)).min(left.len() as u64) {
                group.push(left.swap_remove(rng.below(left.len() as u64) as usize));
            }
            number += 1;
            left.push(cut.merge(&group, (None, !left.is_empty()), &format!("m{round}-{number}")).unwrap());
        }
        assert_eq!(delta_files(&left[0]), expected, "round {round}");
    }
    // Shard by shard, and these in any order.
    let shard = |shard| cut.merge(&deltas, (Some(shard), false), &format!("s{shard}")).unwrap();
    let shards = [2, 0, 1].map(shard);
    let output = scratch();
    let report = cut.finish(&shards, None, output.path()).unwrap();
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    // Only deltas that are merged further have the hashes of coinbases, which are 8 bytes for each block.
    let coinbases = |name: &str| Delta::read(&FaultDisk::healthy(), &cut.path(name)).unwrap().coinbases.len();
    assert_eq!((coinbases("s0"), coinbases("s1")), (0, 0));
    let blocks: usize = (0..16).map(|range| coinbases(&format!("r{range}"))).sum();
    assert_eq!(blocks as u32, TIP);
    // A tree of merges can leave one shard of one delta over.
    let odd = cut.merge(&deltas[..1], (Some(0), true), "odd").unwrap();
    let again = cut.merge(&[&[odd], &deltas[1..]].concat(), (Some(0), false), "again").unwrap();
    let bytes = |dir: &Path| fs::read(disk::delta::shard_path(dir, 0)).unwrap();
    assert!(bytes(&again) == bytes(&cut.path("s0")));
    // A merge that is there already is not made again, and something else is not replaced.
    cut.merge(&deltas, (Some(1), false), "s1").unwrap();
    assert_fails(cut.merge(&deltas, (Some(2), false), "s1"), ErrorKind::Usage, &[]);
}

#[test]
fn duplicates_gaps_and_other_plans_are_refused_by_name() {
    let (_case, cut) = cut(6, Some(2));
    let deltas = cut.check_all().unwrap();
    let refused = |inputs: &[PathBuf], words: &[&str]| {
        assert_fails(cut.merge_all(inputs), ErrorKind::Usage, words);
        assert!(!cut.path("merged").exists());
    };
    refused(&deltas[..2], &["ranges 2 to 5"]);
    refused(&[&deltas[..1], &deltas[2..5]].concat(), &["ranges 1, 5"]);
    refused(&[&deltas[..], &deltas[3..4]].concat(), &["range 3", "r3"]);
    refused(&[], &["ranges 0 to 5"]);
    let some = cut.merge(&deltas[1..4], (None, true), "some").unwrap();
    refused(&[vec![some.clone()], deltas[2..].to_vec()].concat(), &["range 2", "some"]);
    let shard = cut.merge(&deltas, (Some(1), false), "s1").unwrap();
    let other = Ranges::plan(cut.chain.clone(), 6, Some(2)).unwrap();
    let foreign = other.check(0).unwrap();
    refused(&[vec![foreign], deltas[1..].to_vec()].concat(), &["another plan", "r0"]);

    let finish = |inputs: &[PathBuf], words: &[&str]| {
        let output = scratch();
        assert_fails(cut.finish(inputs, None, output.path()), ErrorKind::Usage, words);
        assert_eq!(tree(output.path()).len(), 0, "nothing is left");
    };
    finish(&[], &["no delta"]);
    finish(std::slice::from_ref(&shard), &["shards are missing: 0"]);
    finish(&[shard.clone(), shard], &["shard 1"]);
    finish(&deltas[..1], &["ranges: 1 to 5", "merge first"]);
    finish(&[some], &["ranges: 0, 4 to 5"]);
    for (range, done) in [(6, cut.check(6)), (u32::MAX, cut.check(u32::MAX))] {
        assert_fails(done, ErrorKind::Usage, &[&range.to_string(), "0 to 5"]);
    }
    assert_says(cut.merge(&deltas, (Some(2), false), "s2"), &["no shard 2", "0 to 1"]);
}

/// The plan did not say by which heights of soft forks its blocks are checked: each machine took its own.
#[test]
fn a_range_is_not_checked_with_other_activation_heights_than_the_plan_has() {
    let (_case, cut) = cut(2, None);
    let of =
        |height| ChainParams::of(Network::Regtest).with_heights(&[(BuriedDeployment::Csv, Height(height))]);
    let mut options = cut.check_options(1);
    options.chain.params = of(9);
    assert_fails(cut.check_as(&options, "r1"), ErrorKind::Usage, &["csv@1; choose", "csv@9"]);
    options.chain.params = of(1);
    cut.check_as(&options, "r1").unwrap();
}

#[test]
fn a_machine_needs_only_the_bytes_that_the_plan_names() {
    let (case, cut) = cut(5, None);
    for range in 0..5 {
        let part = scratch();
        fs::create_dir_all(part.path().join("regtest/blocks")).unwrap();
        fs::copy(case.blocks("xor.dat"), part.path().join("regtest/blocks/xor.dat")).unwrap();
        let files = cut.plan.files(range).unwrap();
        assert!(files.iter().any(|file| file.file.starts_with("rev")));
        for RangeFile { file: name, first_byte, end_byte } in files {
            let whole = fs::read(case.blocks(&name)).unwrap();
            let (from, to) = (first_byte as usize, end_byte.map_or(whole.len(), |to| to as usize));
            // Other bytes of the file are holes.
            let mut bytes = vec![0; to];
            bytes[from..].copy_from_slice(&whole[from..to]);
            fs::write(part.path().join("regtest/blocks").join(name), bytes).unwrap();
        }
        let mut options = cut.check_options(range);
        options.chain.datadir = part.path().to_owned();
        let report = cut.check_as(&options, &format!("part{range}")).unwrap();
        let whole = cut.check_as(&cut.check_options(range), &format!("r{range}")).unwrap();
        assert_eq!(report.content, whole.content, "range {range}");
    }
}

#[test]
fn an_interrupted_check_is_resumed_and_a_finished_one_is_kept() {
    let (_case, cut) = cut(2, Some(3));
    let mut options = cut.check_options(1);
    options.chain.resume.checkpoint_interval = std::time::Duration::ZERO;
    options.chain.hooks.join_bytes = Some(1);
    let count = {
        let disk = FaultDisk::counting_changes();
        check_range(&disk, &cut.plan, &options, &cut.path("whole"), unwatched()).unwrap();
        disk.count()
    };
    let expected = delta_files(&cut.path("whole"));
    let mut resumed = 0;
    for at in (1..count).step_by((count / 12).max(1) as usize) {
        let disk = FaultDisk::interrupting_at(at);
        let name = format!("stopped{at}");
        let done = check_range(&disk, &cut.plan, &options, &cut.path(&name), quiet(disk.interrupt()));
        if let Err(error) = done {
            assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
            assert!(!cut.path(&name).exists());
            if error.remedies.iter().any(|it| matches!(it, Remedy::Resume { .. })) {
                resumed += 1;
                let other = CheckRangeOptions { range: 0, ..options.clone() };
                let error = cut.check_as(&other, &name).unwrap_err();
                assert!(error.remedies.contains(&Remedy::StartOver), "of another range: {error}");
            }
        }
        cut.check_as(&options, &name).unwrap();
        assert_eq!(delta_files(&cut.path(&name)), expected, "stopped at {at}");
    }
    assert!(resumed > 3, "{resumed}");
    assert_eq!(leftovers(cut.dir.path()), [] as [PathBuf; 0]);
    // What is left of one that was killed at its end.
    write_file(cut.path("whole.peregrine-part/peregrine.lock"), "");
    assert!(cut.check_as(&options, "whole").unwrap().was_there && !cut.path("whole.peregrine-part").exists());
    // The link to the result stays one.
    std::os::unix::fs::symlink("elsewhere", cut.path("link")).unwrap();
    cut.check_as(&options, "link").unwrap();
    assert!(cut.path("link").is_symlink() && delta_files(&cut.path("elsewhere")) == expected);
    let error = cut.check_as(&cut.check_options(0), "whole").unwrap_err();
    assert_eq!((error.kind, &*error.remedies), (ErrorKind::Usage, &[Remedy::OtherName][..]), "{error}");
}

/// The same command was said to resume, though what it had saved was removed.
#[test]
fn a_second_check_that_is_interrupted_saves_nothing() {
    let (_case, cut) = cut(1, Some(1));
    let merged = cut.merge_all(&cut.check_all().unwrap()).unwrap();
    let mut chain = ChainOptions { work_dir: Some(cut.dir.path().to_owned()), ..cut.chain.clone() };
    chain.hooks.join_bytes = Some(1);
    let options = FinishRangesOptions { chain, recheck_percent: Some(100.0) };
    let finish = |disk: &FaultDisk| {
        let (inputs, output) = (std::slice::from_ref(&merged), scratch());
        finish_ranges(disk, &cut.plan, inputs, &options, output.path(), quiet(disk.interrupt()))
    };
    let counting = FaultDisk::counting_changes();
    finish(&counting).unwrap();
    let (count, mut interrupted) = (counting.count(), 0);
    for at in (1..count).step_by((count / 30).max(1) as usize) {
        if let Err(error) = finish(&FaultDisk::interrupting_at(at)) {
            assert_eq!((error.kind, error.remedies.len()), (ErrorKind::Interrupted, 0), "{at}: {error}");
            interrupted += 1;
        }
        assert_eq!(leftovers(cut.dir.path()), [] as [PathBuf; 0]);
    }
    assert!(interrupted > 3, "{interrupted}");
}

/// It was reported as damage ("cannot look for"), with no advice.
#[test]
fn an_output_below_a_file_is_refused_like_any_other() {
    let (_case, cut) = cut(1, None);
    write_file(cut.path("file"), "");
    let checked = cut.check_as(&cut.check_options(0), "file/x").map(drop);
    let merged = cut.merge(&cut.check_all().unwrap(), (None, false), "file/x").map(drop);
    for done in [checked, merged] {
        let error = assert_fails(done, ErrorKind::Environment, &["cannot create: not a directory"]);
        assert_eq!(error.remedies, [Remedy::OtherName]);
    }
}

/// It was said that a block is invalid or the undo data false, with the advice to copy files of another node.
#[test]
fn a_coinbase_that_is_made_again_is_left_to_a_rebuild() {
    let (blocks, params) = repeated_coinbases();
    let dir = behind(blocks.iter(), 109, &layout());
    let chain = ChainOptions { params, ..update_options(dir.path(), AT_ONCE, None) };
    // Blocks have undo data up to the chainstate's best one.
    update(&chain).unwrap();
    // The last range has both coinbases, or only the later one, and the spend of the first.
    for ranges in [1, 2] {
        let done = Ranges::plan(chain.clone(), ranges, Some(1)).unwrap().check(ranges - 1);
        let error = assert_fails(done, ErrorKind::Damaged, &["or a coinbase occurs twice"]);
        assert_eq!(error.remedies, [Remedy::Verify, Remedy::RebuildChainstate], "{ranges}: {error}");
    }
}

/// The later one ended with "cannot rename to its final name", and left a whole delta under another name.
#[test]
fn of_two_runs_with_one_output_the_later_one_keeps_the_result_of_the_first() {
    let (_case, cut) = cut(2, Some(2));
    // Another run begins and ends before this one locks its directory.
    let sink = |event: Event| {
        if matches!(event, Event::Started(Stage::Finish)) {
            cut.check(0).unwrap();
        }
    };
    let (disk, options, r0) = (FaultDisk::healthy(), cut.check_options(0), cut.path("r0"));
    let watch = Watch { sink: &sink, ..unwatched() };
    assert!(check_range(&disk, &cut.plan, &options, &r0, watch).unwrap().was_there);
    assert_eq!(leftovers(cut.dir.path()), [] as [PathBuf; 0]);
    // While that of another one is locked, there is no other work directory to choose.
    let lock = cut.path("r1.peregrine-part/peregrine.lock");
    write_file(&lock, "");
    let held = RealDisk.lock(&lock).unwrap();
    let error = assert_fails(cut.check(1), ErrorKind::Environment, &["another peregrine process"]);
    assert_eq!((held.is_some(), &*error.remedies), (true, &[Remedy::Wait, Remedy::OtherOutput][..]));
}

#[test]
fn faults_of_the_disk_leave_nothing_half_written() {
    let (_case, cut) = cut(2, Some(2));
    let deltas = cut.check_all().unwrap();
    let merge = |disk: &FaultDisk, name: &str| {
        let options =
            MergeDeltasOptions { shard: None, partial: false, threads: NonZeroUsize::new(1).unwrap() };
        merge_deltas(disk, &cut.plan, &deltas, &options, &cut.path(name), unwatched())
    };
    let expected = delta_files(&cut.merge_all(&deltas).unwrap());
    let mut failed = 0;
    for at in 0..40 {
        let fault = InjectedFault::Sticky;
        let disk = FaultDisk::fail_at(at, fault, Operations::All, io::ErrorKind::Other);
        let name = format!("m{at}");
        if let Err(error) = merge(&disk, &name) {
            assert!(matches!(error.kind, ErrorKind::Environment | ErrorKind::Damaged), "{error}");
            failed += 1;
        }
        merge(&FaultDisk::healthy(), &name).unwrap();
        assert_eq!(delta_files(&cut.path(&name)), expected, "fault at {at}");
    }
    assert!(failed > 8, "{failed}");
    let (options, path, interrupted) = (cut.check_options(0), cut.path("never"), AtomicBool::new(true));
    let done = check_range(&FaultDisk::healthy(), &cut.plan, &options, &path, quiet(&interrupted));
    assert_fails(done, ErrorKind::Interrupted, &[]);
    assert!(interrupted.load(Ordering::Relaxed) && !path.exists());
}

#[test]
fn impossible_requests_are_refused() {
    let case = Case::new();
    let plan =
        |ranges, shards| Ranges::plan(case.options().chain, ranges, shards).map(|cut| cut.plan.ranges());
    for (ranges, shards) in [(0, None), (1, Some(0)), (1, Some(257)), (142, None), (1 << 20, None)] {
        assert_fails(plan(ranges, shards), ErrorKind::Usage, &[]);
    }
    assert_eq!(plan(141, Some(256)).unwrap(), 141);
    let (_case, cut) = cut(2, None);
    let mut options = cut.check_options(0);
    options.chain.params = ChainParams::of(Network::Signet);
    let error = assert_fails(cut.check_as(&options, "signet"), ErrorKind::Usage, &[]);
    assert_offers(&error, &[Remedy::ChooseNetwork(Network::Regtest)]);
    // The output must not have a chainstate.
    let merged = cut.merge_all(&cut.check_all().unwrap()).unwrap();
    let output = scratch();
    cut.finish(std::slice::from_ref(&merged), None, output.path()).unwrap();
    refused_by(output.path(), ErrorKind::Usage, &[], || cut.finish(&[merged], None, output.path()));
}
