//! What an interrupted run has left is gone on with if it is whole and of the same work; else it is refused
//! by name, and `--restart` is the way out.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{
    Case, bounded, chain, layout, leftovers, options, run, run_until, says, scratch, stats, stats_by_height,
    with_threads,
};
use disk::{
    checkpoint::{Checkpoint, sorted_run_path},
    fs::RealDisk,
};
use engine::{
    AggregateKind, AssumeValid, Error, ErrorKind, Event, Height, HintFormat, HintOptions, Network,
    ReindexOptions, Stage,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, atomic::AtomicBool},
};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    corrupt::{copy_dir, flip_bit, truncate},
    datadir::Layout,
    fault::FaultDisk,
};

/// Where an in-place run has its temporary files.
fn work(root: &Path) -> PathBuf {
    root.join("regtest/peregrine-work")
}

fn checkpoint(root: &Path) -> Checkpoint {
    Checkpoint::read(&RealDisk, &work(root)).unwrap().unwrap()
}

/// Runs until about three quarters are done; must leave a checkpoint.
fn interrupt(options: &ReindexOptions) {
    let error = run_until(options, 420).0.map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Interrupted, "{error}");
    says(&error, &["the same command goes on from there"]);
}

/// A case that was interrupted, and the options it was run with.
fn interrupted() -> (Case, ReindexOptions) {
    let case = Case::new();
    let options = bounded(&case.options());
    interrupt(&options);
    (case, options)
}

/// Goes on to the end; says how many blocks were done.
fn goes_on(options: &ReindexOptions) -> u32 {
    let report = run(options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert_eq!(leftovers(&options.datadir), [] as [&Path; 0]);
    report.resumed
}

/// Must be refused, and leave all as it is; `--restart` is named as the way out.
fn refused(options: &ReindexOptions, kind: ErrorKind) -> Error {
    let before = common::tree(&options.datadir);
    let error = run(options).map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    says(&error, &["--restart"]);
    common::assert_same_tree(&before, &options.datadir, &error.to_string());
    error
}

#[test]
fn an_interrupted_run_is_gone_on_with_and_says_so() {
    let (case, options) = interrupted();
    let done = checkpoint(case.root()).counts[0];
    assert!(done > 50 && done < 140, "{done}");
    let notes = Mutex::new(Vec::new());
    let sink = |event| {
        if let Event::Note(text) = event {
            notes.lock().unwrap().push(text);
        }
    };
    let report = engine::reindex(&FaultDisk::healthy(), &options, &sink, &AtomicBool::new(false)).unwrap();
    assert_eq!(u64::from(report.resumed), done);
    assert_eq!(report.counts, {
        let case = Case::new();
        run(&case.options()).unwrap().counts
    });
    let expected = format!("going on where an interrupted run stopped: {done} of 141 blocks are done");
    let notes = notes.into_inner().unwrap();
    assert!(notes.contains(&expected), "{notes:?}");
    assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
}

/// What does not decide what is settled may be another: threads, memory, where blocks are found.
#[test]
fn the_same_work_may_be_gone_on_with_in_another_way() {
    for change in [
        |options: &mut ReindexOptions| *options = with_threads(options, 2),
        |options: &mut ReindexOptions| options.join_bytes = None,
        |options: &mut ReindexOptions| options.scan = true,
        |options: &mut ReindexOptions| options.range_bytes = 1000,
    ] {
        let (_case, mut options) = interrupted();
        change(&mut options);
        assert!(goes_on(&options) > 50);
    }
}

#[test]
fn restart_forgets_what_was_left_whatever_it_is() {
    let (case, options) = interrupted();
    std::fs::write(work(case.root()).join("manifest"), "anything").unwrap();
    refused(&options, ErrorKind::Damaged);
    let restart = ReindexOptions { restart: true, ..options };
    assert_eq!(goes_on(&restart), 0);
    // There may be nothing to forget.
    assert_eq!(goes_on(&restart), 0);
}

/// Hints look into the checkpoint for the key of their sum, before anything is gone on with.
#[test]
fn restart_forgets_it_with_hints_too() {
    let case = Case::new();
    let home = scratch();
    let (disk, never) = (FaultDisk::healthy(), AtomicBool::new(false));
    let file = home.path().join("hints");
    engine::make_hints(&disk, &case.options(), &file, HintFormat::Peregrine, &|_| {}, &never).unwrap();
    let aggregate = AggregateKind::Sha256;
    let hints = HintOptions { file, format: None, aggregate, without_undo: false, on_failure_join: false };
    let options = ReindexOptions { hints: Some(hints), ..bounded(&case.options()) };
    interrupt(&options);
    assert!(goes_on(&options) > 50);
    let case = Case::new();
    let options = ReindexOptions { datadir: case.root().to_owned(), ..options };
    interrupt(&options);
    says(&refused(&case.options(), ErrorKind::Usage), &["other options"]);
    flip_bit(&work(case.root()).join("manifest"), 40, 0).unwrap();
    refused(&options, ErrorKind::Damaged);
    assert_eq!(goes_on(&ReindexOptions { restart: true, ..options }), 0);
}

#[test]
fn a_checkpoint_of_another_chain_is_refused() {
    let shared = common::scratch();
    let work_dir = Some(shared.path().to_owned());
    let case = Case::new();
    interrupt(&ReindexOptions { work_dir: work_dir.clone(), ..bounded(&case.options()) });
    let other = Chain::generate(&ChainSpec { seed: 4, ..chain().spec.clone() });
    let dir = common::scratch();
    other.write_datadir(dir.path(), &layout()).unwrap();
    let theirs = ReindexOptions { work_dir: work_dir.clone(), ..options(dir.path()) };
    let error = refused(&theirs, ErrorKind::Usage);
    says(&error, &["another chain"]);
    assert_eq!(error.file, Some(shared.path().join("peregrine-work")));
    // That is said, and not that options are others, if they are too.
    let assume_valid = AssumeValid::Block(other.main().nth(100).unwrap().hash);
    says(&refused(&ReindexOptions { assume_valid, ..theirs.clone() }, ErrorKind::Usage), &["another chain"]);
    // Whose it is can go on.
    assert!(goes_on(&ReindexOptions { work_dir, ..case.options() }) > 50);
    assert_eq!(run(&theirs).unwrap().resumed, 0);
}

#[test]
fn a_checkpoint_of_other_options_is_refused() {
    let (_case, options) = interrupted();
    let assume_valid = AssumeValid::Block(chain().main().nth(100).unwrap().hash);
    let error = refused(&ReindexOptions { assume_valid, ..options.clone() }, ErrorKind::Usage);
    says(&error, &["other options", "which scripts"]);
    assert!(goes_on(&options) > 50);
}

#[test]
fn a_checkpoint_from_above_the_last_block_is_refused() {
    let (_case, options) = interrupted();
    let stop_at_height = Some(Height(20));
    let low = ReindexOptions { stop_at_height, accept_lower_tip: true, ..options.clone() };
    says(&refused(&low, ErrorKind::Usage), &["above the last one of this chain"]);
    assert_eq!(run(&ReindexOptions { restart: true, ..low }).unwrap().resumed, 0);
    assert_eq!(goes_on(&options), 0, "it was forgotten");
}

#[test]
fn a_checkpoint_whose_blocks_have_moved_is_refused() {
    let (case, options) = interrupted();
    std::fs::remove_dir_all(case.root().join("regtest/blocks")).unwrap();
    let elsewhere = Layout { seed: 8, ..layout() };
    chain().write_datadir(case.root(), &elsewhere).unwrap();
    let error = refused(&options, ErrorKind::Usage);
    says(&error, &["the blocks lie elsewhere in their files"]);
    // One block that has another place will do.
    std::fs::remove_dir_all(case.root().join("regtest/blocks")).unwrap();
    chain().write_datadir(case.root(), &layout()).unwrap();
    let settled = checkpoint(case.root()).completed;
    let height = (0..141).rev().find(|height| settled[height / 64] >> (height % 64) & 1 == 1).unwrap();
    let hash = chain().main().nth(height).unwrap().hash;
    case.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.hash == hash).unwrap();
        entry.data_pos.as_mut().unwrap().0 += 1;
    });
    refused(&options, ErrorKind::Usage);
}

/// What is settled is not read again: a file that went bad meanwhile was not noticed.
#[test]
fn a_block_file_that_changed_meanwhile_is_read_again() {
    let (case, options) = interrupted();
    let settled = checkpoint(case.root()).completed;
    let height = (1..141).find(|height| settled[height / 64] >> (height % 64) & 1 == 1).unwrap();
    let hash = chain().main().nth(height).unwrap().hash;
    let entry = *case.index().entries.iter().find(|entry| entry.hash == hash).unwrap();
    let file = entry.file.unwrap().0;
    let (blk, rev) = (case.blocks(&format!("blk{file:05}.dat")), case.blocks(&format!("rev{file:05}.dat")));
    for (path, pos) in [(&blk, entry.data_pos.unwrap().0), (&rev, entry.undo_pos.unwrap().0)] {
        // The block's header, its last bytes, and its undo data.
        for at in [pos + 40, pos + if *path == blk { 150 } else { 2 }] {
            flip_bit(path, at, 3).unwrap();
            let before = common::tree(&options.datadir);
            let error = run(&options).map(|report| report.height).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
            assert_eq!(error.file.as_ref(), Some(path));
            says(&error, &["has changed since an interrupted run has read it", "restore the file"]);
            common::assert_same_tree(&before, &options.datadir, &error.to_string());
            flip_bit(path, at, 3).unwrap();
        }
    }
    // The files have other times now, and are longer, as after bitcoind ran in between; the blocks are the
    // same.
    testkit::corrupt::pad(&blk, 100_000).unwrap();
    let notes = Mutex::new(Vec::new());
    let sink = |event| {
        if let Event::Note(text) = event {
            notes.lock().unwrap().push(text);
        }
    };
    let report = engine::reindex(&FaultDisk::healthy(), &options, &sink, &AtomicBool::new(false)).unwrap();
    assert!(report.resumed > 50);
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    let notes = notes.into_inner().unwrap();
    assert!(notes.iter().any(|note| note.contains("1 block files have changed")), "{notes:?}");
}

/// Blocks that came in while the run was interrupted are just more work.
#[test]
fn more_blocks_are_more_work() {
    // Undo data in the order of blocks: what is there already stays where it is.
    let layout = Layout { shuffle: 1, ..layout() };
    let by_height = stats_by_height(chain());
    let mut short = chain().clone();
    let cut = short.blocks.iter().position(|block| block.height == 130).unwrap();
    short.blocks.truncate(cut);
    let below = short.tip().height;
    for threads in [1, 2] {
        let dir = common::scratch();
        short.write_datadir(dir.path(), &layout).unwrap();
        let options = with_threads(&bounded(&options(dir.path())), threads);
        interrupt(&options);
        let done = checkpoint(dir.path()).counts[0];
        std::fs::remove_dir_all(dir.path().join("regtest/blocks")).unwrap();
        chain().write_datadir(dir.path(), &layout).unwrap();
        // First as far as it went before, then with all.
        let stop_at_height = Some(Height(below));
        let report = run(&ReindexOptions { stop_at_height, output: None, ..options.clone() }).unwrap();
        assert_eq!(u64::from(report.resumed), done);
        assert_eq!(report.hash_serialized_3, by_height[below as usize].hash_serialized_3);
        let stopped = ReindexOptions { stop_at_height, ..options.clone() };
        interrupt(&stopped);
        assert!(goes_on(&options) > 50);
    }
}

/// A work directory that was left by an interrupted run, and options that go on with it, to be damaged again
/// and again.
struct Left {
    case: Case,
    kept: TempDir,
    options: ReindexOptions,
}

impl Left {
    fn new() -> Self {
        let (case, options) = interrupted();
        let kept = common::scratch();
        copy_dir(&work(case.root()), kept.path()).unwrap();
        Self { case, kept, options }
    }

    /// All as it was left, but for what `damage` does to the file at this path.
    fn with(&self, name: &Path, damage: impl FnOnce(&Path)) -> Result<u32, Error> {
        let work = work(self.case.root());
        if work.exists() {
            std::fs::remove_dir_all(&work).unwrap();
        }
        copy_dir(self.kept.path(), &work).unwrap();
        damage(&work.join(name));
        run(&self.options).map(|report| report.resumed)
    }

    /// Such damage must be found, and the file be named.
    fn is_refused(&self, name: &Path, damage: impl FnOnce(&Path), words: &[&str]) {
        let old = stats(self.case.root(), Network::Regtest).unwrap();
        let error = self.with(name, damage).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
        says(&error, &["--restart"]);
        says(&error, words);
        assert!(error.to_string().contains(&*name.to_string_lossy()), "{}: {error}", name.display());
        let found = stats(self.case.root(), Network::Regtest).unwrap();
        assert_eq!(found.hash_serialized_3, old.hash_serialized_3, "{error}");
    }
}

/// The manifest, a run of the lowest level, the one of the highest.
fn kinds(left: &Left) -> Vec<PathBuf> {
    let mut runs = checkpoint(left.case.root()).runs;
    runs.sort_by_key(|run| (run.level, std::cmp::Reverse(run.bytes)));
    let (low, high) = (runs.first().unwrap(), runs.last().unwrap());
    assert!(high.level > low.level);
    let of = |number| sorted_run_path(Path::new(""), number);
    vec!["manifest".into(), of(low.number), of(high.number)]
}

#[test]
fn flipped_bits_in_what_was_left_are_refused_by_name() {
    let left = Left::new();
    let mut count = 0;
    for (name, stride) in kinds(&left).iter().zip([97, 97 * 9, 97 * 41]) {
        let bits = std::fs::metadata(left.kept.path().join(name)).unwrap().len() * 8;
        for bit in (0..bits).step_by(stride) {
            left.is_refused(name, |path| flip_bit(path, bit / 8, (bit % 8) as u32).unwrap(), &[]);
            count += 1;
        }
    }
    eprintln!("{count} bits");
    assert!(count > 200, "{count}");
}

#[test]
fn truncated_missing_and_foreign_files_are_refused_by_name() {
    let left = Left::new();
    for name in kinds(&left) {
        let len = std::fs::metadata(left.kept.path().join(&name)).unwrap().len();
        for part in [0, 1, 5, 9, 15] {
            left.is_refused(&name, |path| truncate(path, len * part / 16).unwrap(), &[]);
        }
        left.is_refused(&name, |path| truncate(path, len - 1).unwrap(), &[]);
        left.is_refused(&name, |path| testkit::corrupt::pad(path, 1).unwrap(), &[]);
        let version = |path: &Path| testkit::corrupt::overwrite(path, 8, &[9]).unwrap();
        left.is_refused(&name, version, &["another version of peregrine"]);
        if name != Path::new("manifest") {
            left.is_refused(&name, |path| std::fs::remove_file(path).unwrap(), &["not there"]);
            let other = kinds(&left).into_iter().rev().find(|other| *other != name).unwrap();
            let mixed = |path: &Path| {
                std::fs::copy(left.kept.path().join(&other), path).unwrap();
            };
            left.is_refused(&name, mixed, &[]);
        }
    }
    // Without a manifest there is nothing to go on from; what it named is not in the way.
    assert_eq!(left.with(Path::new("manifest"), |path| std::fs::remove_file(path).unwrap()).unwrap(), 0);
    assert_eq!(leftovers(left.case.root()), [] as [&Path; 0]);
    // What a kill leaves besides is not in the way either.
    let stray = sorted_run_path(Path::new(""), 7_000_000);
    let left_besides = |path: &Path| {
        std::fs::write(path, "PGRN-RUN, half of one").unwrap();
        std::fs::write(path.with_file_name("manifest.new"), "PGRN-CKP, half of one").unwrap();
    };
    assert!(left.with(&stray, left_besides).unwrap() > 50);
    assert_eq!(leftovers(left.case.root()), [] as [&Path; 0]);
}

const ROOT: &str = "PEREGRINE_TEST_RESUME_ROOT";
const OUTPUT: &str = "PEREGRINE_TEST_RESUME_OUTPUT";
const WORK: &str = "PEREGRINE_TEST_RESUME_WORK";

/// Record locks bind processes, so the other run is this test once more.
fn another_process(root: &Path, output: Option<&Path>, work: Option<&Path>) -> String {
    let name = "a_second_run_is_kept_off_while_one_goes_on";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(ROOT, root);
    for (name, path) in [(OUTPUT, output), (WORK, work)] {
        path.map(|path| command.env(name, path));
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_second_run_is_kept_off_while_one_goes_on() {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    if let Some(root) = var(ROOT) {
        let options = ReindexOptions { output: var(OUTPUT), work_dir: var(WORK), ..options(&root) };
        match run(&bounded(&options)) {
            Ok(report) => println!("done: {}", report.resumed),
            Err(error) => println!("{:?}: {error}", error.kind),
        }
        return;
    }
    let case = Case::new();
    let [one, two, work, elsewhere] = [(); 4].map(|()| common::scratch());
    // While the first run, which has an output elsewhere, makes that: one with the same folder for temporary
    // files, one with another; and one in place, as the first one only reads the datadir.
    let said = Mutex::new(Vec::new());
    let sink = |event| {
        if let Event::Started(Stage::Finish) = event {
            let with = |work: &TempDir| another_process(case.root(), Some(two.path()), Some(work.path()));
            *said.lock().unwrap() =
                vec![with(&work), with(&elsewhere), another_process(case.root(), None, None)];
        }
    };
    let options = ReindexOptions {
        output: Some(one.path().to_owned()),
        work_dir: Some(work.path().to_owned()),
        ..bounded(&case.options())
    };
    engine::reindex(&FaultDisk::healthy(), &options, &sink, &AtomicBool::new(false)).unwrap();
    let said = said.into_inner().unwrap();
    assert!(
        said[0].contains("Environment: ") && said[0].contains("another peregrine works there"),
        "{said:?}"
    );
    assert!(said[0].contains("name another --work-dir"), "{said:?}");
    assert!(said[1].contains("done: 0"), "{said:?}");
    assert!(said[2].contains("Environment: ") && said[2].contains("is in use"), "{said:?}");
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    // It was kept off, and can have its turn.
    std::fs::remove_dir_all(two.path().join("regtest")).unwrap();
    assert!(another_process(case.root(), Some(two.path()), Some(work.path())).contains("done: 0"));
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
}
