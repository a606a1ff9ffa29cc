//! Rebuilds with hints and without undo data need no undo data up to the hints' last block: not the flags in
//! the index, not the records, not the files. Above it they do, if none may be made.

use acceptance::hinted;
use acceptance::prelude::*;
use hinted::{AGGREGATES, Truth, bury, file_in, with_hints, with_join_fallback, without_undo};
use hints::HintFormat;

/// A datadir without undo data up to a height, and hints of that height.
struct WithoutUndo {
    case: Case,
    truth: Truth,
    files: TempDir,
}

/// What part of the undo data is missing.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Missing {
    /// The index records none, as a node that synced without undo data leaves it.
    Flags,
    /// The records are overwritten.
    Records,
    /// All files are removed.
    Files,
}

impl WithoutUndo {
    fn new(missing: Missing, height: u32) -> Self {
        let (case, truth) = (Case::new(), Truth::of(chain()));
        let without = Self { case, truth, files: TempDir::new().unwrap() };
        bury(&without.case.blocks("index"));
        match missing {
            Missing::Flags => without.case.edit_index(|index| {
                for entry in index.entries.iter_mut().filter(|entry| entry.height.0 <= height) {
                    entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
                    entry.undo_pos = None;
                }
            }),
            Missing::Records => {
                for entry in without.case.index().entries.iter().filter(|entry| entry.height.0 <= height) {
                    let Some((file, pos)) = entry.file.zip(entry.undo_pos) else { continue };
                    let path = without.case.blocks(&format!("rev{:05}.dat", file.0));
                    testkit::corrupt::overwrite(&path, pos.0 - 8, &[0x55; 12]).unwrap();
                }
            }
            Missing::Files => without.rev_files().iter().for_each(|path| std::fs::remove_file(path).unwrap()),
        }
        without
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
        let output = Some(file_in(&self.files, &format!("output-{}", unique_number())));
        let options = with_hints(&ReindexOptions { output, ..self.case.options() }, hints, AGGREGATES[0]);
        trusting(&without_undo(&options, valid))
    }
}

/// Returns a number that was not returned before.
fn unique_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

const ALL_MISSING: [Missing; 3] = [Missing::Flags, Missing::Records, Missing::Files];

#[test]
fn no_undo_data_is_needed_up_to_the_last_block_of_the_hints() {
    let tip = chain().tip().height;
    let expected = stats_by_height(chain()).pop().unwrap();
    for missing in ALL_MISSING {
        let without = WithoutUndo::new(missing, tip);
        let hash = without.truth.hash(tip);
        for format in [HintFormat::Peregrine, HintFormat::TheStack] {
            let options = without.options(&without.hints(format, tip), hash);
            let (done, events) = run_seen(&options);
            let notes = notes(&events);
            let report = done.unwrap_or_else(|error| panic!("{missing:?}: {error}"));
            assert_eq!((report.hash, report.hints.is_some()), (hash, true), "{missing:?}");
            assert_eq!(report.hash_serialized_3, expected.hash_serialized_3, "{missing:?}");
            let is_noted = notes.iter().any(|note| note.contains("-checklevel=1"));
            // Records that are overwritten are not noticed.
            assert_eq!(is_noted, missing != Missing::Records, "{missing:?}: {notes:?}");
        }
        // With undo data, or without hints, the rebuild fails.
        let with =
            with_hints(&without.case.options(), &without.hints(HintFormat::Peregrine, tip), AGGREGATES[0]);
        let output = Some(file_in(&without.files, "with-undo"));
        let error =
            acceptance::run(&ReindexOptions { output, ..with }).map(|report| report.height).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Usage), "{missing:?}: {error}");
    }
}

#[test]
fn undo_data_is_needed_above_the_last_block_of_the_hints() {
    let tip = chain().tip().height;
    let model = stats_by_height(chain());
    let end = tip - 12;
    for missing in [Missing::Flags, Missing::Records] {
        let without = WithoutUndo::new(missing, end);
        let hash = without.truth.hash(end);
        let hints = without.hints(HintFormat::Peregrine, end);
        let (done, events) = run_seen(&without.options(&hints, hash));
        let notes = notes(&events);
        let report = done.unwrap_or_else(|error| panic!("{missing:?}: {error}"));
        assert_eq!(report.hash_serialized_3, model[tip as usize].hash_serialized_3, "{missing:?}");
        assert!(!notes.iter().any(|note| note.contains("-checklevel")), "{notes:?}");
        let stop_at_height = Some(Height(end + 5));
        let report =
            acceptance::run(&ReindexOptions { stop_at_height, ..without.options(&hints, hash) }).unwrap();
        assert_eq!(report.hash_serialized_3, model[end as usize + 5].hash_serialized_3, "{missing:?}");
        // Hints of a lower block leave some blocks without undo data.
        let lower = without.hints(HintFormat::Peregrine, end - 1);
        let error = acceptance::run(&without.options(&lower, hash)).map(|report| report.height).unwrap_err();
        assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(end))), "{error}");
        match missing {
            Missing::Flags => assert_mentions(&error, &["undo data of the block is not on disk"]),
            _ => assert_mentions(&error, &["no record starts here", "rev0"]),
        }
    }
}

/// A scan finds no undo data, and the index that it writes has none.
#[test]
fn a_scan_works_without_undo_data_too() {
    let tip = chain().tip().height;
    let expected = stats_by_height(chain()).pop().unwrap();
    let whole = WithoutUndo::new(Missing::Flags, 0);
    // A chain with enough work above the hints' last block for it to be assumed valid: blocks with only a
    // coinbase.
    let spec = testkit::ChainSpec { empty_tail: hinted::BURIAL as u32, ..chain().spec.clone() };
    let long = testkit::Chain::generate(&spec);
    assert_eq!(long.main().nth(tip as usize).unwrap().hash, whole.truth.hash(tip), "the same chain, longer");
    let dir = acceptance::scratch();
    long.write_datadir(dir.path(), &acceptance::layout()).unwrap();
    let rev_of_tip = |index: &disk::index::BlockIndex| {
        index.entries.iter().filter(|entry| entry.undo_pos.is_some()).count()
    };
    let hints = whole.hints(HintFormat::Peregrine, tip);
    let options = ReindexOptions { scan: true, ..acceptance::options(dir.path()) };
    let options = without_undo(&with_hints(&options, &hints, AGGREGATES[0]), whole.truth.hash(tip));
    let paths = disk::datadir::Datadir::at(dir.path(), Network::Regtest);
    // Records up to the hints' last block are overwritten, those above are intact.
    let index = disk::index::read_block_index(&vfs::RealDisk, &paths.index_dir()).unwrap();
    for entry in index.entries.iter().filter(|entry| entry.height.0 <= tip) {
        let Some((file, pos)) = entry.file.zip(entry.undo_pos) else { continue };
        testkit::corrupt::overwrite(&paths.rev_path(file), pos.0 - 8, &[0x55; 12]).unwrap();
    }
    std::fs::remove_dir_all(paths.index_dir()).unwrap();
    let (done, events) = run_seen(&options);
    let notes = notes(&events);
    let report = done.unwrap();
    assert_eq!(report.hash_serialized_3, long.model.stats().hash_serialized_3);
    assert!(!notes.iter().any(|note| note.contains("-checklevel")), "{notes:?}");
    let index = disk::index::read_block_index(&vfs::RealDisk, &paths.index_dir()).unwrap();
    assert_eq!(rev_of_tip(&index), hinted::BURIAL, "up to the hints' last block no block has undo data");
    let main: Vec<_> = long.main().map(|block| block.hash).collect();
    for entry in index.entries.iter().filter(|entry| main.contains(&entry.hash)) {
        assert_eq!(entry.status.validity(), BlockStatus::VALID_SCRIPTS, "{}", entry.height);
    }
    // The new index serves a rebuild with the same hints, and its coins at the hints' last block are correct.
    let stop_at_height = Some(Height(tip));
    let output = Some(file_in(&whole.files, "below"));
    let report = acceptance::run(&ReindexOptions { scan: false, stop_at_height, output, ..options }).unwrap();
    assert_eq!(report.hash_serialized_3, expected.hash_serialized_3);
}

/// Wrong hints, and no undo data for a rebuild without them: nothing is changed, and the error names what is
/// missing.
#[test]
fn wrong_hints_cannot_be_replaced_by_a_join_without_undo_data() {
    let tip = chain().tip().height;
    let without = WithoutUndo::new(Missing::Flags, tip);
    let mut hints = without.truth.hints(tip);
    let block = hints.iter_mut().rev().find(|block| !block.is_empty()).unwrap();
    block.pop();
    let path = file_in(&without.files, "wrong");
    without.truth.write(&path, HintFormat::Peregrine, &hints);
    let options = without.options(&path, without.truth.hash(tip));
    let error = acceptance::run(&options).map(|report| report.height).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Hints, "{error}");
    let error = acceptance::run(&with_join_fallback(&options)).map(|report| report.height).unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Usage), "{error}");
    // With undo data the join succeeds, with a plan of its own.
    let whole = WithoutUndo::new(Missing::Flags, 0);
    let options = with_join_fallback(&whole.options(&path, whole.truth.hash(tip)));
    let report = acceptance::run(&options).unwrap();
    assert_eq!((report.hints, report.hash), (None, whole.truth.hash(tip)));
    assert_eq!(options.chain.assume_valid, AssumeValid::Block(whole.truth.hash(tip)));
}
