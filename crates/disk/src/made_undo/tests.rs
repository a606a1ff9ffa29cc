//! Places of records, links, owners, foreign files and outputs elsewhere. Crashes are tested in `testkit`,
//! which has a disk that fails.

use super::*;
use crate::error::Obstacle;
use std::fs;
use tempfile::TempDir;
use vfs::{Ownership, RealDisk};
use wire::Network;

const KEY: [u8; 8] = [1, 2, 0, 4, 0xff, 6, 7, 0xf9];

/// A datadir with three pairs of files, of whose `rev` files the first has 1,000 bytes in use and 200 more.
/// The second is empty; the third is missing.
struct Case {
    root: TempDir,
    datadir: Datadir,
}

/// File, parent and undo data of the records that are made.
fn records() -> Vec<(FileNo, BlockHash, Vec<u8>)> {
    let record = |number: u32| {
        let undo = vec![number as u8; 1 + number as usize * 37 % 3_000];
        (FileNo(number % 3), BlockHash([number as u8 + 1; 32]), undo)
    };
    (0..200).map(record).collect()
}

fn used() -> Vec<u32> {
    vec![1_000]
}

fn old_bytes() -> Vec<u8> {
    (0..1_200u32).map(|at| (at * 7) as u8).collect()
}

impl Case {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let datadir = Datadir::at(root.path(), Network::Regtest);
        fs::create_dir_all(datadir.blocks_dir()).unwrap();
        (0..3).for_each(|number| fs::write(datadir.blk_path(FileNo(number)), b"blocks").unwrap());
        fs::write(datadir.rev_path(FileNo(0)), old_bytes()).unwrap();
        fs::write(datadir.rev_path(FileNo(1)), b"").unwrap();
        Self { root, datadir }
    }

    fn begin(&self) -> Result<MadeUndo<'static>, DiskError> {
        self.begin_at(&self.datadir)
    }

    fn begin_at(&self, result: &Datadir) -> Result<MadeUndo<'static>, DiskError> {
        MadeUndo::begin(&RealDisk, &self.datadir, result, Obfuscation::from_key(KEY), used())
    }

    fn resume(&self) -> Result<MadeUndo<'static>, DiskError> {
        MadeUndo::resume(&RealDisk, &self.datadir, &self.datadir, Obfuscation::from_key(KEY))
    }

    fn waiting(&self) -> PathBuf {
        self.datadir.blocks_dir().join("peregrine-undo")
    }

    fn rev(&self, number: u32) -> Vec<u8> {
        fs::read(self.datadir.rev_path(FileNo(number))).unwrap()
    }

    /// Asserts that the records are in place, and that nothing else has changed.
    fn assert_in_place(&self) {
        let made = made_bytes();
        let (first, old) = (self.rev(0), old_bytes());
        assert!(first[..1_000] == old[..1_000] && first[1_000..] == made[0][..]);
        assert!(self.rev(1) == made[1] && self.rev(2) == made[2]);
    }
}

fn reserve_all(made: &MadeUndo<'_>) -> Vec<ByteOffset> {
    records().iter().map(|(file, _, undo)| made.reserve(*file, undo.len()).unwrap()).collect()
}

/// Reserves and writes all records, the last first.
fn make_all(made: &MadeUndo<'_>) {
    let positions = reserve_all(made);
    let mut buffer = Vec::new();
    for ((file, prev, undo), pos) in records().iter().zip(positions).rev() {
        made.write(*file, pos, prev, undo, &mut buffer).unwrap();
    }
}

/// Returns the bytes that the records add to each of the three files.
fn made_bytes() -> [Vec<u8>; 3] {
    std::array::from_fn(|number| {
        let mut bytes = Vec::new();
        for (_, prev, undo) in records().iter().filter(|(file, ..)| file.0 as usize == number) {
            undo::write_record(&mut bytes, Network::Regtest.magic(), prev, undo);
        }
        let first = if number == 0 { 1_000 } else { 0 };
        Obfuscation::from_key(KEY).apply(&mut bytes, first);
        bytes
    })
}

#[test]
fn records_are_appended_to_what_is_in_use() {
    let case = Case::new();
    let made = case.begin().unwrap();
    make_all(&made);
    assert_eq!((case.rev(0), case.rev(1)), (old_bytes(), Vec::new()), "nothing is in place yet");
    made.put_in_place().unwrap();
    case.assert_in_place();
    let waits = [0, 1, 2].map(|number| case.waiting().join(format!("rev0000{number}.dat")).exists());
    assert_eq!(waits, [true, false, false], "an empty file is replaced, not filled");
    let ends = made_bytes().map(|bytes| bytes.len() as u32);
    assert_eq!(made.undo_sizes(), [1_000 + ends[0], ends[1], ends[2]]);
    let file = |number, used, records| {
        let undo_size = used + ends[number as usize];
        MadeUndoFile { number: FileNo(number), used, undo_size, records }
    };
    assert_eq!(made.made(), [file(0, 1_000, 67), file(1, 0, 67), file(2, 0, 66)]);
    assert!(made.is_complete() && has_made_undo(&RealDisk, &case.datadir).unwrap());
    made.put_in_place().unwrap();
    case.assert_in_place();
    made.clean_up().unwrap();
    case.assert_in_place();
    assert!(!case.waiting().exists() && !has_made_undo(&RealDisk, &case.datadir).unwrap());
}

#[test]
fn a_longer_file_keeps_what_follows_the_records() {
    let case = Case::new();
    let tail = vec![9; made_bytes()[0].len() + 5];
    fs::write(case.datadir.rev_path(FileNo(0)), [&old_bytes()[..1_000], &tail].concat()).unwrap();
    let made = case.begin().unwrap();
    make_all(&made);
    made.put_in_place().unwrap();
    assert_eq!(case.rev(0), [&old_bytes()[..1_000], &made_bytes()[0], &[9; 5]].concat());
}

#[test]
fn a_file_without_the_bytes_in_use_is_refused() {
    let case = Case::new();
    for cut in [true, false] {
        let path = case.datadir.rev_path(FileNo(0));
        fs::write(&path, old_bytes()).unwrap();
        let made = case.begin().unwrap();
        make_all(&made);
        if cut {
            fs::write(&path, &old_bytes()[..999]).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let error = made.put_in_place().unwrap_err();
        assert!(matches!(&error, DiskError::Damaged { offset, .. } if *offset == if cut { 999 } else { 0 }));
        assert!(case.rev(1).is_empty() && !case.datadir.rev_path(FileNo(2)).exists(), "nothing has changed");
        assert!(case.resume().err().unwrap().to_string().contains("1000 bytes of the file are in use"));
        assert!(matches!(case.begin().err().unwrap(), DiskError::Damaged { .. }));
    }
}

#[test]
fn a_resumed_run_completes_what_was_written() {
    let case = Case::new();
    assert!(matches!(case.resume().err().unwrap(), DiskError::DamagedWorkFile { .. }));
    let all = records();
    let write = |made: &MadeUndo<'_>, positions: &[ByteOffset], range: std::ops::Range<usize>| {
        let mut buffer = Vec::new();
        range.for_each(|at| {
            made.write(all[at].0, positions[at], &all[at].1, &all[at].2, &mut buffer).unwrap()
        });
    };
    let made = case.begin().unwrap();
    let positions = reserve_all(&made);
    write(&made, &positions, 0..120);
    made.sync().unwrap();
    write(&made, &positions, 120..140);
    drop(made);
    let resumed = case.resume().unwrap();
    assert_eq!(reserve_all(&resumed), positions);
    assert!(resumed.put_in_place().unwrap_err().to_string().contains("bytes of undo data were made"));
    write(&resumed, &positions, 120..200);
    resumed.put_in_place().unwrap();
    case.assert_in_place();

    // Files are in place, the block index is not: records are compared, not written.
    let again = case.resume().unwrap();
    assert!(again.is_complete());
    reserve_all(&again);
    write(&again, &positions, 0..200);
    again.put_in_place().unwrap();
    case.assert_in_place();
    let mut buffer = Vec::new();
    for at in [0, 1, 2] {
        let (file, _, undo) = &all[at];
        let error = again.write(*file, positions[at], &BlockHash([0; 32]), undo, &mut buffer).unwrap_err();
        assert!(matches!(error, DiskError::DamagedWorkFile { .. }), "{error}");
    }
    case.assert_in_place();
    again.reserve(FileNo(1), 1).unwrap();
    assert!(matches!(again.put_in_place().unwrap_err(), DiskError::DamagedWorkFile { .. }));
}

#[test]
fn no_run_continues_after_another_program_has_used_the_block_index() {
    let case = Case::new();
    fs::create_dir(case.datadir.index_dir()).unwrap();
    fs::write(case.datadir.index_dir().join("CURRENT"), "MANIFEST-000002\n").unwrap();
    make_all(&case.begin().unwrap());
    assert!(case.resume().is_ok());
    fs::write(case.datadir.index_dir().join("CURRENT"), "MANIFEST-000004\n").unwrap();
    assert!(case.resume().err().unwrap().to_string().contains("the block index was used since"));
    assert!(clear_made_undo(&RealDisk, &case.datadir).unwrap());
    assert!(!clear_made_undo(&RealDisk, &case.datadir).unwrap());
}

#[test]
fn begin_removes_what_an_earlier_run_has_left_and_keeps_foreign_files() {
    let case = Case::new();
    make_all(&case.begin().unwrap());
    drop(case.begin().unwrap());
    assert_eq!(RealDisk.list(&case.waiting()).unwrap(), ["peregrine.mark"]);
    for torn in [&b""[..], b"PGRN-U"] {
        fs::write(case.waiting().join("peregrine.mark"), torn).unwrap();
        assert!(case.resume().is_err());
        case.begin().unwrap().discard();
        assert!(!case.waiting().exists());
        drop(case.begin());
    }
    make_all(&case.begin().unwrap());
    fs::create_dir(case.waiting().join("rev00007.dat")).unwrap();
    for name in ["notes.txt", "rev7.dat", "blk00000.dat"] {
        fs::write(case.waiting().join(name), "mine").unwrap();
    }
    for _ in 0..2 {
        let error = case.begin().err().unwrap();
        let obstacle = Obstacle::ForeignFiles;
        assert!(matches!(&error, DiskError::NotReplaceable { obstacle: found, .. } if *found == obstacle));
        assert!(error.to_string().contains("peregrine-undo: new files must be written here"), "{error}");
        let names = ["blk00000.dat", "notes.txt", "rev00007.dat", "rev7.dat"];
        assert_eq!(RealDisk.list(&case.waiting()).unwrap(), names);
        assert!(!clear_made_undo(&RealDisk, &case.datadir).unwrap());
    }
}

#[test]
fn foreign_things_with_the_name_of_the_directory_are_refused() {
    let case = Case::new();
    let elsewhere = case.root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("peregrine.mark"), "a copy").unwrap();
    std::os::unix::fs::symlink(&elsewhere, case.waiting()).unwrap();
    assert!(matches!(case.begin().err().unwrap(), DiskError::NotReplaceable { .. }));
    assert_eq!(fs::read(elsewhere.join("peregrine.mark")).unwrap(), b"a copy");
    fs::remove_file(case.waiting()).unwrap();
    fs::write(case.waiting(), "mine").unwrap();
    assert!(matches!(case.begin().err().unwrap(), DiskError::NotReplaceable { .. }));
    assert!(!clear_made_undo(&RealDisk, &case.datadir).unwrap());
    fs::remove_file(case.waiting()).unwrap();
    // A mark that is a link belongs to another program, which would lose the file that it leads to.
    fs::create_dir(case.waiting()).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("peregrine.mark"), case.waiting().join("peregrine.mark"))
        .unwrap();
    assert!(matches!(case.begin().err().unwrap(), DiskError::NotReplaceable { .. }));
    assert_eq!(fs::read(elsewhere.join("peregrine.mark")).unwrap(), b"a copy");
}

/// `blocks`, one `rev` file and the place of a missing one are links to another directory.
#[test]
fn links_are_followed_and_stay() {
    let case = Case::new();
    let other = case.root.path().join("disk");
    fs::rename(case.datadir.blocks_dir(), &other).unwrap();
    std::os::unix::fs::symlink(&other, case.datadir.blocks_dir()).unwrap();
    let further = case.root.path().join("further");
    fs::create_dir(&further).unwrap();
    fs::rename(other.join("rev00000.dat"), further.join("old.dat")).unwrap();
    std::os::unix::fs::symlink(further.join("old.dat"), other.join("rev00000.dat")).unwrap();
    std::os::unix::fs::symlink(further.join("new.dat"), other.join("rev00002.dat")).unwrap();
    let made = case.begin().unwrap();
    make_all(&made);
    assert!(other.join("peregrine-undo/rev00000.dat").is_file());
    for _ in 0..2 {
        made.put_in_place().unwrap();
        case.assert_in_place();
    }
    made.clean_up().unwrap();
    for link in ["rev00000.dat", "rev00002.dat"] {
        assert!(fs::symlink_metadata(other.join(link)).unwrap().is_symlink());
    }
    assert!(fs::symlink_metadata(case.datadir.blocks_dir()).unwrap().is_symlink());
    assert_eq!(fs::read(further.join("new.dat")).unwrap(), made_bytes()[2]);
    assert!(!other.join("peregrine-undo").exists());
}

#[test]
fn an_output_elsewhere_gets_whole_files_and_the_datadir_none() {
    let case = Case::new();
    let result = Datadir::at(&case.root.path().join("output"), Network::Regtest);
    let made = case.begin_at(&result).unwrap();
    make_all(&made);
    fs::write(result.rev_path(FileNo(2)), "mine").unwrap();
    let error = made.put_in_place().unwrap_err();
    assert!(matches!(error, DiskError::Refused { .. }), "{error}");
    assert_eq!(RealDisk.list(&result.blocks_dir()).unwrap(), ["peregrine-undo", "rev00002.dat"]);
    fs::remove_file(result.rev_path(FileNo(2))).unwrap();
    for _ in 0..2 {
        made.put_in_place().unwrap();
        let expected = made_bytes();
        let whole = [&old_bytes()[..1_000], &expected[0]].concat();
        for (number, bytes) in (0..).zip([&whole, &expected[1], &expected[2]]) {
            assert!(fs::read(result.rev_path(FileNo(number))).unwrap() == *bytes, "{number}");
        }
    }
    made.clean_up().unwrap();
    assert_eq!((case.rev(0), case.rev(1)), (old_bytes(), Vec::new()));
    assert_eq!(RealDisk.list(&case.datadir.blocks_dir()).unwrap().len(), 5);
    assert_eq!(RealDisk.list(&result.blocks_dir()).unwrap().len(), 3);
}

#[test]
fn new_files_have_the_owner_and_mode_of_their_block_file() {
    let case = Case::new();
    let is_root = RealDisk.user() == 0;
    let own = RealDisk.ownership(&case.datadir.blocks_dir()).unwrap();
    let (uid, gid) = if is_root { (4711, 4712) } else { (own.uid, own.gid) };
    let [of_dir, of_file] = [0o750, 0o640].map(|mode| Ownership { uid, gid, mode });
    RealDisk.set_ownership(&case.datadir.blocks_dir(), of_dir).unwrap();
    RealDisk.set_ownership(&case.datadir.blk_path(FileNo(2)), of_file).unwrap();
    let before = RealDisk.ownership(&case.datadir.rev_path(FileNo(0))).unwrap();
    let made = case.begin().unwrap();
    make_all(&made);
    assert_eq!(RealDisk.ownership(&case.waiting()).unwrap(), of_dir);
    made.put_in_place().unwrap();
    assert_eq!(RealDisk.ownership(&case.datadir.rev_path(FileNo(2))).unwrap(), of_file);
    assert_eq!(RealDisk.ownership(&case.datadir.rev_path(FileNo(0))).unwrap(), before);
    if !is_root {
        testkit::data::skip("only root can give files to another user");
    }
}

#[test]
fn an_empty_file_keeps_its_mode() {
    let case = Case::new();
    let rev = case.datadir.rev_path(FileNo(2));
    RealDisk.create(&rev).unwrap();
    let ownership = Ownership { mode: 0o604, ..RealDisk.ownership(&rev).unwrap() };
    RealDisk.set_ownership(&rev, ownership).unwrap();
    let made = case.begin().unwrap();
    make_all(&made);
    made.put_in_place().unwrap();
    assert!(RealDisk.ownership(&rev).unwrap() == ownership && fs::metadata(&rev).unwrap().len() > 0);
}

#[test]
fn impossible_records_are_the_callers_error() {
    let case = Case::new();
    let made = case.begin().unwrap();
    let is_caller_error = |error: DiskError| matches!(error, DiskError::CallerError { .. });
    assert!(is_caller_error(made.reserve(FileNo(0), MAX_UNDO_LEN + 1).unwrap_err()));
    assert!(is_caller_error(made.reserve(FileNo(MAX_FILES), 1).unwrap_err()));
    let pos = made.reserve(FileNo(5), 10).unwrap();
    assert_eq!(pos, ByteOffset(8));
    let mut buffer = Vec::new();
    for (file, pos, len) in [(5, 8, 11), (5, 9, 10), (5, 7, 10), (5, u64::MAX, 10), (0, 900, 10), (9, 8, 1)] {
        let undo = vec![0; len];
        let error = made.write(FileNo(file), ByteOffset(pos), &BlockHash([0; 32]), &undo, &mut buffer);
        assert!(is_caller_error(error.unwrap_err()), "{file} {pos} {len}");
    }
    while made.reserve(FileNo(0), MAX_UNDO_LEN).is_ok() {}
    let error = made.reserve(FileNo(0), MAX_UNDO_LEN).unwrap_err().to_string();
    assert!(error.contains("file 0: more than 4 GiB"), "{error}");
    assert_eq!(made.undo_sizes()[1..], [0, 0, 0, 0, 50]);
    let used = vec![0; MAX_FILES as usize + 1];
    let begin = MadeUndo::begin(&RealDisk, &case.datadir, &case.datadir, Obfuscation::default(), used);
    assert!(is_caller_error(begin.err().unwrap()));
}

/// More files than stay open at a time.
#[test]
fn records_of_many_files_by_many_threads_are_the_same_bytes() {
    let case = Case::new();
    let made = case.begin().unwrap();
    let records: Vec<_> = (0..600u32).map(|number| (FileNo(number % 40), vec![number as u8; 50])).collect();
    let positions: Vec<_> =
        records.iter().map(|(file, undo)| made.reserve(*file, undo.len()).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (made, records, positions) = (&made, &records, &positions);
            scope.spawn(move || {
                let mut buffer = Vec::new();
                // Each thread has another order; 389 and 600 have no common divisor.
                for at in (0..600).map(|at| at * 389 % 600).filter(|at| at % 4 == thread) {
                    let (file, undo) = &records[at];
                    let prev = BlockHash([at as u8; 32]);
                    made.write(*file, positions[at], &prev, undo, &mut buffer).unwrap();
                }
            });
        }
    });
    for number in 0..40 {
        fs::write(case.datadir.blk_path(FileNo(number)), b"blocks").unwrap();
    }
    made.put_in_place().unwrap();
    for number in 0..40 {
        let mut expected = Vec::new();
        for (at, (_, undo)) in records.iter().enumerate().filter(|(_, (file, _))| file.0 == number) {
            undo::write_record(&mut expected, Network::Regtest.magic(), &BlockHash([at as u8; 32]), undo);
        }
        let used = if number == 0 { 1_000 } else { 0 };
        Obfuscation::from_key(KEY).apply(&mut expected, used);
        assert!(case.rev(number)[used as usize..] == expected, "{number}");
    }
}
