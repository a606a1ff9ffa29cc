//! Runs by hints without undo data need none up to the hints' last block: not the flags in the index, not
//! the records, not the files. Above it they do.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;
mod hinted;

use common::{Case, chain, says, stats_by_height};
use disk::{hints::HintFormat, index::BlockStatus};
use engine::{AssumeValid, BlockHash, ErrorKind, Height, ReindexOptions};
use hinted::{AGGREGATES, Truth, bury, by, file_in, or_join, run_with_notes, without_undo};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A datadir without undo data up to a height, hints of that height, and options to go by them.
struct Lacking {
    case: Case,
    truth: Truth,
    files: TempDir,
}

/// What of the undo data is gone.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Gone {
    /// The index says that there is none, as a node that did without while it synced leaves it.
    Flags,
    /// The bytes of the records.
    Records,
    /// All files.
    Files,
}

impl Lacking {
    fn new(gone: Gone, height: u32) -> Self {
        let (case, truth) = (Case::new(), Truth::of(chain()));
        let lacking = Self { case, truth, files: TempDir::new().unwrap() };
        bury(&lacking.case.blocks("index"));
        match gone {
            Gone::Flags => lacking.case.edit_index(|index| {
                for entry in index.entries.iter_mut().filter(|entry| entry.height.0 <= height) {
                    entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
                    entry.undo_pos = None;
                }
            }),
            Gone::Records => {
                for entry in lacking.case.index().entries.iter().filter(|entry| entry.height.0 <= height) {
                    let Some((file, pos)) = entry.file.zip(entry.undo_pos) else { continue };
                    let path = lacking.case.blocks(&format!("rev{:05}.dat", file.0));
                    testkit::corrupt::overwrite(&path, pos.0 - 8, &[0x55; 12]).unwrap();
                }
            }
            Gone::Files => lacking.rev_files().iter().for_each(|path| std::fs::remove_file(path).unwrap()),
        }
        lacking
    }

    fn rev_files(&self) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.case.blocks("")).unwrap().map(|entry| entry.unwrap().path());
        let is_rev = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("rev");
        names.filter(is_rev).collect()
    }

    fn hints(&self, format: HintFormat, height: u32) -> PathBuf {
        let path = file_in(&self.files, &format!("{format}-{height}"));
        self.truth.write(&path, format, &self.truth.hints(height));
        path
    }

    fn options(&self, hints: &Path, valid: BlockHash) -> ReindexOptions {
        let output = Some(file_in(&self.files, &format!("output-{}", rand_name())));
        without_undo(&by(&ReindexOptions { output, ..self.case.options() }, hints, AGGREGATES[0]), valid)
    }
}

/// A name that was not given before.
fn rand_name() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

const WAYS: [Gone; 3] = [Gone::Flags, Gone::Records, Gone::Files];

#[test]
fn up_to_the_hints_end_no_undo_data_is_needed() {
    let tip = chain().tip().height;
    let expected = stats_by_height(chain()).pop().unwrap();
    for gone in WAYS {
        let lacking = Lacking::new(gone, tip);
        let hash = lacking.truth.hash(tip);
        for format in [HintFormat::Peregrine, HintFormat::TheStack] {
            let options = lacking.options(&lacking.hints(format, tip), hash);
            let (done, notes) = run_with_notes(&options);
            let report = done.unwrap_or_else(|error| panic!("{gone:?}: {error}"));
            assert_eq!((report.hash, report.matching), (hash, "swiftsync"), "{gone:?}");
            assert_eq!(report.hash_serialized_3, expected.hash_serialized_3, "{gone:?}");
            let told = notes.iter().any(|note| note.contains("-checklevel=1"));
            // Bytes that are no record any more are not looked at.
            assert_eq!(told, gone != Gone::Records, "{gone:?}: {notes:?}");
        }
        // With undo data, or without hints, the run is refused or ends below.
        let with = by(&lacking.case.options(), &lacking.hints(HintFormat::Peregrine, tip), AGGREGATES[0]);
        let output = Some(file_in(&lacking.files, "with-undo"));
        let error = common::run(&ReindexOptions { output, ..with }).map(|report| report.height).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Usage), "{gone:?}: {error}");
    }
}

#[test]
fn above_the_hints_end_undo_data_is_needed() {
    let tip = chain().tip().height;
    let model = stats_by_height(chain());
    let end = tip - 12;
    for gone in [Gone::Flags, Gone::Records] {
        let lacking = Lacking::new(gone, end);
        let hash = lacking.truth.hash(end);
        let hints = lacking.hints(HintFormat::Peregrine, end);
        let (done, notes) = run_with_notes(&lacking.options(&hints, hash));
        let report = done.unwrap_or_else(|error| panic!("{gone:?}: {error}"));
        assert_eq!(report.hash_serialized_3, model[tip as usize].hash_serialized_3, "{gone:?}");
        assert!(!notes.iter().any(|note| note.contains("-checklevel")), "{notes:?}");
        let stop_at_height = Some(Height(end + 5));
        let report =
            common::run(&ReindexOptions { stop_at_height, ..lacking.options(&hints, hash) }).unwrap();
        assert_eq!(report.hash_serialized_3, model[end as usize + 5].hash_serialized_3, "{gone:?}");
        // Hints of a lower block leave blocks without.
        let lower = lacking.hints(HintFormat::Peregrine, end - 1);
        let error = common::run(&lacking.options(&lower, hash)).map(|report| report.height).unwrap_err();
        assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(end))), "{error}");
        match gone {
            Gone::Flags => says(&error, &["undo data of the block is not on disk"]),
            _ => says(&error, &["no record starts here", "rev0"]),
        }
    }
}

/// A scan finds no undo data, and writes an index that says so.
#[test]
fn a_scan_does_without_undo_data_too() {
    let tip = chain().tip().height;
    let expected = stats_by_height(chain()).pop().unwrap();
    let whole = Lacking::new(Gone::Flags, 0);
    // A chain with enough work above the hints' end to have it assumed valid: blocks with a coinbase only.
    let spec = testkit::ChainSpec { empty_tail: hinted::BURIAL as u32, ..chain().spec.clone() };
    let long = testkit::Chain::generate(&spec);
    assert_eq!(long.main().nth(tip as usize).unwrap().hash, whole.truth.hash(tip), "the same chain, longer");
    let dir = common::scratch();
    long.write_datadir(dir.path(), &common::layout()).unwrap();
    let rev_of_tip = |index: &disk::index::BlockIndex| {
        index.entries.iter().filter(|entry| entry.undo_pos.is_some()).count()
    };
    let hints = whole.hints(HintFormat::Peregrine, tip);
    let options = ReindexOptions { scan: true, ..common::options(dir.path()) };
    let options = without_undo(&by(&options, &hints, AGGREGATES[0]), whole.truth.hash(tip));
    let paths = testkit::corrupt::regtest_paths(dir.path());
    // Records below the hints' end are gone, those above are there.
    let index = disk::index::read_block_index(&disk::fs::RealDisk, &paths.index_dir()).unwrap();
    for entry in index.entries.iter().filter(|entry| entry.height.0 <= tip) {
        let Some((file, pos)) = entry.file.zip(entry.undo_pos) else { continue };
        testkit::corrupt::overwrite(&paths.rev_path(file), pos.0 - 8, &[0x55; 12]).unwrap();
    }
    std::fs::remove_dir_all(paths.index_dir()).unwrap();
    let (done, notes) = run_with_notes(&options);
    let report = done.unwrap();
    assert_eq!(report.hash_serialized_3, long.model.stats().hash_serialized_3);
    assert!(!notes.iter().any(|note| note.contains("-checklevel")), "{notes:?}");
    let index = disk::index::read_block_index(&disk::fs::RealDisk, &paths.index_dir()).unwrap();
    assert_eq!(rev_of_tip(&index), hinted::BURIAL, "below the hints' end no block has undo data");
    let main: Vec<_> = long.main().map(|block| block.hash).collect();
    for entry in index.entries.iter().filter(|entry| main.contains(&entry.hash)) {
        assert_eq!(entry.status.validity(), BlockStatus::VALID_SCRIPTS, "{}", entry.height);
    }
    // The index that was written serves a run by the same hints, and its coins at the hints' end are right.
    let stop_at_height = Some(Height(tip));
    let output = Some(file_in(&whole.files, "below"));
    let report = common::run(&ReindexOptions { scan: false, stop_at_height, output, ..options }).unwrap();
    assert_eq!(report.hash_serialized_3, expected.hash_serialized_3);
}

/// Wrong hints, and no undo data to do without them: nothing is touched, and the error says what is missing.
#[test]
fn wrong_hints_cannot_be_replaced_by_a_join_without_undo_data() {
    let tip = chain().tip().height;
    let lacking = Lacking::new(Gone::Flags, tip);
    let mut hints = lacking.truth.hints(tip);
    let block = hints.iter_mut().rev().find(|block| !block.is_empty()).unwrap();
    block.pop();
    let path = file_in(&lacking.files, "wrong");
    lacking.truth.write(&path, HintFormat::Peregrine, &hints);
    let options = lacking.options(&path, lacking.truth.hash(tip));
    let error = common::run(&options).map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Hints, "{error}");
    let error = common::run(&or_join(&options)).map(|report| report.height).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Usage), "{error}");
    // With undo data the join does it, from a plan of its own.
    let whole = Lacking::new(Gone::Flags, 0);
    let options = or_join(&whole.options(&path, whole.truth.hash(tip)));
    let report = common::run(&options).unwrap();
    assert_eq!((report.matching, report.hash), ("parallel", whole.truth.hash(tip)));
    assert_eq!(options.assume_valid, AssumeValid::Block(whole.truth.hash(tip)));
}
