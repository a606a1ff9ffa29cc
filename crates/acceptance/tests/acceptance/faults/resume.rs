//! An interrupted job resumes if its checkpoint is intact and belongs to the same job; otherwise the error
//! names the file, and `--restart` discards the checkpoint.

use acceptance::prelude::*;
use disk::checkpoint::{Checkpoint, sorted_run_path};
use testkit::corrupt::pad;

/// The work directory of a rebuild in place.
fn work(root: &Path) -> PathBuf {
    root.join("regtest/peregrine-work")
}

fn checkpoint(root: &Path) -> Checkpoint {
    Checkpoint::read(&RealDisk, &work(root)).unwrap().unwrap()
}

/// Runs until about three quarters are done; must leave a checkpoint.
fn interrupt(options: &ReindexOptions) {
    assert_fails(run_until(options, 420).0, ErrorKind::Interrupted, &["run the same job again to resume"]);
}

/// A datadir with an interrupted rebuild, and the options of that rebuild.
fn interrupted() -> (Case, ReindexOptions) {
    let case = Case::new();
    let options = bounded(&case.options());
    interrupt(&options);
    (case, options)
}

/// Resumes to the end; returns the number of blocks that were done before.
fn resumes(options: &ReindexOptions) -> u32 {
    let report = run(options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert_eq!(leftovers(&options.chain.datadir), [] as [&Path; 0]);
    report.resumed
}

/// Asserts that the rebuild fails, changes nothing, and that the error offers to start over.
fn refused(options: &ReindexOptions, kind: ErrorKind, words: &[&str]) -> Error {
    let error = acceptance::refused(options, kind, words);
    assert_offers(&error, &[Remedy::StartOver]);
    error
}

#[test]
fn an_interrupted_run_is_resumed_with_a_note() {
    let (case, options) = interrupted();
    let done_before = checkpoint(case.root()).state.counts[0];
    assert!(done_before > 50 && done_before < 140, "{done_before}");
    let (done, events) = run_seen(&options);
    let (report, notes) = (done.unwrap(), notes(&events));
    assert_eq!(u64::from(report.resumed), done_before);
    assert_eq!(report.counts, run(&Case::new().options()).unwrap().counts);
    let expected = format!("resuming an interrupted run: {done_before} of 141 blocks are done");
    assert!(notes.iter().any(|note| note.starts_with(&expected)), "{notes:?}");
    assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
}

/// Options that do not decide how effects are matched may differ: threads, memory, where blocks are found.
#[test]
fn a_job_can_be_resumed_with_other_threads_memory_and_scan() {
    for change in [
        |options: &mut ReindexOptions| *options = with_threads(options, 2),
        |options: &mut ReindexOptions| options.chain.hooks.join_bytes = None,
        |options: &mut ReindexOptions| options.chain.scan = true,
        |options: &mut ReindexOptions| options.chain.hooks.range_bytes = 1000,
    ] {
        let (_case, mut options) = interrupted();
        change(&mut options);
        assert!(resumes(&options) > 50);
    }
}

#[test]
fn restart_discards_a_checkpoint_in_any_state() {
    let (case, options) = interrupted();
    fs::write(work(case.root()).join("manifest"), "anything").unwrap();
    refused(&options, ErrorKind::Damaged, &[]);
    let restart = changed(options, |it| it.chain.resume.restart = true);
    assert_eq!(resumes(&restart), 0);
    // Without a checkpoint it has no effect.
    assert_eq!(resumes(&restart), 0);
    // Regression: a link to another disk, which stays, was an error.
    let (elsewhere, link) = (scratch(), work(case.root()));
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    assert_eq!(run(&restart).unwrap().resumed, 0);
    assert!(link.is_symlink() && fs::read_dir(elsewhere.path()).unwrap().next().is_none());
}

/// With hints, the key of the aggregate is read from the checkpoint before anything is resumed.
#[test]
fn restart_discards_a_checkpoint_with_hints_too() {
    let case = Case::new();
    let dir = scratch();
    let disk = FaultDisk::healthy();
    let file = dir.path().join("hints");
    engine::hints::make(&disk, &case.options().chain, &file, HintFormat::Peregrine, unwatched()).unwrap();
    let options = with_hints(&bounded(&case.options()), &file, AggregateKind::Sha256);
    interrupt(&options);
    assert!(resumes(&options) > 50);
    let case = Case::new();
    let options = changed(options, |it| it.chain.datadir = case.root().to_owned());
    interrupt(&options);
    refused(&case.options(), ErrorKind::Usage, &["other options"]);
    flip_bit(&work(case.root()).join("manifest"), 40, 0).unwrap();
    refused(&options, ErrorKind::Damaged, &[]);
    assert_eq!(resumes(&changed(options, |it| it.chain.resume.restart = true)), 0);
}

#[test]
fn a_checkpoint_of_another_chain_is_refused() {
    let shared = scratch();
    let work_dir = Some(shared.path().to_owned());
    let case = Case::new();
    interrupt(&changed(bounded(&case.options()), |it| it.chain.work_dir = work_dir.clone()));
    let other = Chain::generate(&ChainSpec { seed: 4, ..chain().spec.clone() });
    let dir = datadir_of(&other);
    let theirs = changed(options(dir.path()), |it| it.chain.work_dir = work_dir.clone());
    let error = refused(&theirs, ErrorKind::Usage, &["another chain"]);
    assert_eq!(error.file, Some(shared.path().join("peregrine-work")));
    // This error comes first, even if options differ too.
    let assume_valid = AssumeValid::Block(other.main().nth(100).unwrap().hash);
    let both = changed(theirs.clone(), |it| it.chain.assume_valid = assume_valid);
    refused(&both, ErrorKind::Usage, &["another chain"]);
    // The job of the first chain can still be resumed.
    assert!(resumes(&changed(case.options(), |it| it.chain.work_dir = work_dir)) > 50);
    assert_eq!(run(&theirs).unwrap().resumed, 0);
}

/// What a completed block was checked for depends on all of these.
#[test]
fn a_checkpoint_of_other_options_is_refused() {
    let (_case, options) = interrupted();
    let assume_valid = AssumeValid::Block(block_at(100).hash);
    let params = ChainParams::of(Network::Regtest).with_heights(&[(BuriedDeployment::Csv, Height(2))]);
    let low = lowered(options.clone(), 20);
    for (other, words) in [
        (changed(options.clone(), |it| it.chain.assume_valid = assume_valid), "script checks"),
        (changed(options.clone(), |it| it.chain.params = params), "other options"),
        (low.clone(), "above the last one of this chain"),
    ] {
        refused(&other, ErrorKind::Usage, &[words]);
    }
    assert_eq!(run(&changed(low, |it| it.chain.resume.restart = true)).unwrap().resumed, 0);
    assert_eq!(resumes(&options), 0, "the checkpoint was discarded");
}

/// Regression: some blocks were checked by the rules of one version, and the others by those of the next.
#[test]
fn a_checkpoint_of_another_version_is_refused() {
    let (_case, options) = interrupted();
    let other = changed(options.clone(), |it| it.chain.hooks.version = "0.9.0");
    let words = ["another version of peregrine made it", options.chain.hooks.version];
    let error = refused(&other, ErrorKind::Usage, &words);
    // To repeat the command, as it once advised, is refused again.
    assert_eq!(error.remedies, [Remedy::FinishWithItsVersion, Remedy::StartOver]);
    assert!(resumes(&options) > 50);
}

/// What `sync` had done before an upgrade was thrown away without a word.
#[test]
fn a_checkpoint_is_discarded_with_a_note() {
    let (_case, options) = interrupted();
    let other = changed(options, |it| {
        it.chain.hooks.version = "0.9.0";
        it.chain.resume.discard_other = true;
    });
    let (done, events) = run_seen(&other);
    assert_eq!(done.unwrap().resumed, 0);
    let is_told =
        |note: &String| note.starts_with("starting over: ") && note.contains("another version of peregrine");
    assert!(notes(&events).iter().any(is_told), "{:?}", notes(&events));
}

/// What a completed block was checked for depends on the marks of the block index, too.
#[test]
fn a_checkpoint_with_more_trust_in_the_block_index_is_refused() {
    let (_case, by_default) = interrupted();
    let believing =
        |options: ReindexOptions| changed(options, |it| it.chain.assume_valid = AssumeValid::Checked);
    // With less trust, the interrupted run has checked more than is asked for now.
    assert!(resumes(&believing(by_default.clone())) > 50);
    let case = Case::new();
    let checked = believing(bounded(&case.options()));
    interrupt(&checked);
    let default = changed(checked.clone(), |it| it.chain.assume_valid = AssumeValid::Default);
    refused(&default, ErrorKind::Usage, &["other options"]);
    let unmark = |index: &mut BlockIndex| {
        let high = index.entries.iter_mut().filter(|entry| entry.height > Height(20));
        high.for_each(|entry| entry.status.0 -= 1);
    };
    let index = case.index();
    case.edit_index(unmark);
    refused(&checked, ErrorKind::Usage, &["other options"]);
    case.edit_index(|edited| *edited = index);
    // It was refused after bitcoind had connected a block.
    case.edit_entry(TIP - 2, |entry| entry.status = entry.status.validated());
    assert!(resumes(&checked) > 50);
    // And after it had connected blocks that the interrupted run had checked, also with the key of hints.
    let dir = scratch();
    let file = dir.path().join("hints");
    TRUTH.write(&file, HintFormat::Peregrine, &TRUTH.hints(TIP));
    for options in [with_hints(&checked, &file, AggregateKind::Sha256), checked] {
        let index = case.index();
        case.edit_index(unmark);
        interrupt(&options);
        case.edit_index(|edited| *edited = index);
        assert!(resumes(&options) > 50);
    }
    assert_eq!(resumes(&changed(by_default, |it| it.chain.resume.restart = true)), 0, "it starts over");
}

/// Scripts of its blocks were not run, and the report said that all were.
#[test]
fn a_checkpoint_is_refused_if_its_blocks_are_no_longer_assumed_valid() {
    let case = acceptance::hinted::buried();
    let options = changed(bounded(&case.options()), |it| {
        it.chain.assume_valid = AssumeValid::Block(block_at(100).hash);
    });
    interrupt(&options);
    // The headers that bury the block are not in block files.
    let scan = changed(options.clone(), |it| it.chain.scan = true);
    refused(&scan, ErrorKind::Usage, &["other options"]);
    assert!(resumes(&options) > 50);
}

/// A wrong clock, with which a scan refuses the last block, cost all that the interrupted run had done.
#[test]
fn a_checkpoint_stays_if_the_plan_finds_a_block_from_the_future() {
    let of_future = mutations().find(|mutation| mutation.name == "time-in-2106").unwrap();
    let dir = datadir_of(&of_future.apply(&base_chain(3)).chain);
    let options = bounded(&options(dir.path()));
    interrupt(&options);
    let scan = changed(options.clone(), |it| it.chain.scan = true);
    let error = acceptance::refused(&scan, ErrorKind::Consensus, &[]);
    assert_offers(&error, &[Remedy::CorrectClock]);
    assert!(run(&options).unwrap().resumed > 50);
}

#[test]
fn a_checkpoint_whose_blocks_have_moved_is_refused() {
    let (case, options) = interrupted();
    fs::remove_dir_all(case.net("blocks")).unwrap();
    let elsewhere = Layout { seed: 8, ..layout() };
    chain().write_datadir(case.root(), &elsewhere).unwrap();
    refused(&options, ErrorKind::Usage, &["the blocks have moved within their files"]);
    // One block at another position is enough.
    fs::remove_dir_all(case.net("blocks")).unwrap();
    chain().write_datadir(case.root(), &layout()).unwrap();
    let completed = checkpoint(case.root()).state.completed;
    let height = (0..141).rev().find(|height| completed[height / 64] >> (height % 64) & 1 == 1).unwrap();
    case.edit_entry(height as u32, |entry| entry.data_pos.as_mut().unwrap().0 += 1);
    refused(&options, ErrorKind::Usage, &[]);
}

/// Completed blocks are not read again: a file that was damaged meanwhile once went unnoticed.
#[test]
fn completed_blocks_are_read_again_if_their_file_has_changed() {
    let (case, options) = interrupted();
    let completed = checkpoint(case.root()).state.completed;
    let height = (1..141).find(|height| completed[height / 64] >> (height % 64) & 1 == 1).unwrap();
    let entry = entry(&case, height as u32);
    let (blk, rev) = (blk(&case, &entry), rev(&case, &entry));
    for (path, pos) in [(&blk, entry.data_pos.unwrap().0), (&rev, entry.undo_pos.unwrap().0)] {
        // The block's header, its last bytes, and its undo data.
        for at in [pos + 40, pos + if *path == blk { 150 } else { 2 }] {
            flip_bit(path, at, 3).unwrap();
            let words = ["has changed since an interrupted run read it", "restore the file"];
            let error = acceptance::refused(&options, ErrorKind::Damaged, &words);
            assert_eq!(error.file.as_ref(), Some(path));
            flip_bit(path, at, 3).unwrap();
        }
    }
    // The files have other times now, and are longer, as after bitcoind ran in between; the blocks are
    // unchanged.
    pad(&blk, 100_000).unwrap();
    let (done, events) = run_seen(&options);
    let (report, notes) = (done.unwrap(), notes(&events));
    assert!(report.resumed > 50);
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert!(notes.iter().any(|note| note.contains("1 block files have changed")), "{notes:?}");
}

/// Blocks that arrive while a job is interrupted are processed when it resumes.
#[test]
fn a_job_resumes_with_more_blocks() {
    // Undo data in block order, so that existing records stay in place.
    let layout = Layout { shuffle: 1, ..layout() };
    let by_height = stats_by_height(chain());
    let mut short = chain().clone();
    let cut = short.blocks.iter().position(|block| block.height == 130).unwrap();
    short.blocks.truncate(cut);
    let below = short.tip().height;
    for threads in [1, 2] {
        let dir = scratch();
        short.write_datadir(dir.path(), &layout).unwrap();
        let options = with_threads(&bounded(&options(dir.path())), threads);
        interrupt(&options);
        let done = checkpoint(dir.path()).state.counts[0];
        fs::remove_dir_all(dir.path().join("regtest/blocks")).unwrap();
        chain().write_datadir(dir.path(), &layout).unwrap();
        // First up to the same height as before, then with all blocks.
        let stopped = up_to(options.clone(), below);
        let report = run(&stopped).unwrap();
        assert_eq!(u64::from(report.resumed), done);
        assert_eq!(report.hash_serialized_3, by_height[below as usize].hash_serialized_3);
        interrupt(&stopped);
        assert!(resumes(&options) > 50);
    }
}

/// The work directory of an interrupted job, and options that resume it, to be damaged repeatedly.
struct InterruptedJob {
    case: Case,
    original: TempDir,
    options: ReindexOptions,
}

impl InterruptedJob {
    fn new() -> Self {
        let (case, options) = interrupted();
        let original = scratch();
        copy_dir(&work(case.root()), original.path()).unwrap();
        Self { case, original, options }
    }

    /// Resumes from the original work directory, in which `damage` has changed the file at this path.
    fn with(&self, name: &Path, damage: impl FnOnce(&Path)) -> Result<u32, Error> {
        let work = work(self.case.root());
        if work.exists() {
            fs::remove_dir_all(&work).unwrap();
        }
        copy_dir(self.original.path(), &work).unwrap();
        damage(&work.join(name));
        run(&self.options).map(|report| report.resumed)
    }

    /// Asserts that the damage is found, and that the error names the file.
    fn assert_found(&self, name: &Path, damage: impl FnOnce(&Path), words: &[&str]) {
        let old = stats(self.case.root(), Network::Regtest).unwrap();
        let error = assert_fails(self.with(name, damage), ErrorKind::Damaged, words);
        assert_offers(&error, &[Remedy::StartOver]);
        assert!(error.to_string().contains(&*name.to_string_lossy()), "{}: {error}", name.display());
        let found = stats(self.case.root(), Network::Regtest).unwrap();
        assert_eq!(found.hash_serialized_3, old.hash_serialized_3, "{error}");
    }
}

/// The manifest, a sorted run of the lowest level, and one of the highest.
fn kinds(job: &InterruptedJob) -> Vec<PathBuf> {
    let mut runs = checkpoint(job.case.root()).runs;
    runs.sort_by_key(|run| (run.level, std::cmp::Reverse(run.bytes)));
    let (low, high) = (runs.first().unwrap(), runs.last().unwrap());
    assert!(high.level > low.level);
    let of = |number| sorted_run_path(Path::new(""), number);
    vec!["manifest".into(), of(low.number), of(high.number)]
}

#[test]
fn flipped_bits_in_the_work_directory_are_found_and_named() {
    let job = InterruptedJob::new();
    let mut count = 0;
    for (name, stride) in kinds(&job).iter().zip([97, 97 * 9, 97 * 41]) {
        let bits = fs::metadata(job.original.path().join(name)).unwrap().len() * 8;
        for bit in (0..bits).step_by(stride) {
            job.assert_found(name, |path| flip_bit(path, bit / 8, (bit % 8) as u32).unwrap(), &[]);
            count += 1;
        }
    }
    eprintln!("{count} bits");
    assert!(count > 200, "{count}");
}

#[test]
fn truncated_missing_and_foreign_files_are_found_and_named() {
    let job = InterruptedJob::new();
    for name in kinds(&job) {
        let len = fs::metadata(job.original.path().join(&name)).unwrap().len();
        for part in [0, 1, 5, 9, 15] {
            job.assert_found(&name, |path| truncate(path, len * part / 16).unwrap(), &[]);
        }
        job.assert_found(&name, |path| truncate(path, len - 1).unwrap(), &[]);
        job.assert_found(&name, |path| pad(path, 1).unwrap(), &[]);
        let version = |path: &Path| overwrite(path, 8, &[9]).unwrap();
        job.assert_found(&name, version, &["another version of peregrine"]);
        if name != Path::new("manifest") {
            job.assert_found(&name, |path| fs::remove_file(path).unwrap(), &["is missing"]);
            let other = kinds(&job).into_iter().rev().find(|other| *other != name).unwrap();
            let mixed = |path: &Path| {
                fs::copy(job.original.path().join(&other), path).unwrap();
            };
            job.assert_found(&name, mixed, &[]);
        }
    }
    // Without a manifest there is no checkpoint; the files that it named do not matter.
    let removed = job.with(Path::new("manifest"), |path| fs::remove_file(path).unwrap());
    assert_eq!(removed.unwrap(), 0);
    assert_eq!(leftovers(job.case.root()), [] as [&Path; 0]);
    // Other leftovers of a killed process do not matter either.
    let stray = sorted_run_path(Path::new(""), 7_000_000);
    let left_besides = |path: &Path| {
        fs::write(path, "PGRN-RUN, half of one").unwrap();
        fs::write(path.with_file_name("manifest.new"), "PGRN-CKP, half of one").unwrap();
    };
    assert!(job.with(&stray, left_besides).unwrap() > 50);
    assert_eq!(leftovers(job.case.root()), [] as [&Path; 0]);
}
