//! Made undo data: the same bytes as those that an appender of blocks writes, places of records, links,
//! owners, foreign files and outputs elsewhere; and no byte in use lost by a crash.

use digest::obfuscation::Obfuscation;
use peregrine_disk::{
    DiskError, Obstacle,
    block_files::{BlockFiles, MAX_BLOCK_FILE_LEN},
    datadir::Datadir,
    index::{BlockIndex, FileInfo, write_block_index},
    made_undo::{MadeUndo, MadeUndoFile, UsedBefore, clear_made_undo, clear_stale_made_undo, has_made_undo},
    undo::{MAX_UNDO_LEN, write_record},
};
use std::{cell::Cell, fs, io, ops::Range, path::PathBuf, sync::LazyLock};
use tempfile::TempDir;
use testkit::{
    corrupt::reopen,
    fault::{FaultDisk, InjectedFault, Operations},
};
use vfs::{Disk, Ownership, RealDisk};
use wire::{BlockHash, ByteOffset, FileNo, Height, Network};

/// Most pairs of files that a block index can list.
const MAX_FILES: u32 = 1 << 20;
const KEY: [u8; 8] = [1, 2, 0, 4, 0xff, 6, 7, 0xf9];
/// Number of records after which [`Case::make`] syncs: the checkpoint of a job.
const HALF: usize = 100;

/// A datadir with three pairs of files, of whose `rev` files the first has 1,000 bytes in use and 200 more.
/// The second is empty; the third is missing.
struct Case {
    root: TempDir,
    datadir: Datadir,
    /// Number of made records that are on the medium.
    synced: Cell<usize>,
}

/// File, parent and undo data of a record.
type Record = (FileNo, BlockHash, Vec<u8>);

fn records() -> Vec<Record> {
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

/// What the appender adds to the `rev` files when it writes the same records.
static MADE: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    let case = Case::new();
    let mut infos = vec![FileInfo::default(); 3];
    infos[0].undo_size = 1_000;
    let files = BlockFiles::new(&RealDisk, &case.datadir, Obfuscation::from_key(KEY));
    let mut appender = files.append_after(infos, MAX_BLOCK_FILE_LEN);
    appender.preallocate = false;
    for (file, prev, undo) in records() {
        appender.append_undo(file, Height(1), &prev, &undo).unwrap();
    }
    appender.flush().unwrap();
    [0, 1, 2].map(|number| case.rev(number)[if number == 0 { 1_000 } else { 0 }..].to_vec())
});

impl Case {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let datadir = Datadir::at(root.path(), Network::Regtest);
        // Records that are in place stay only where a block index could refer to them.
        fs::create_dir_all(datadir.index_dir()).unwrap();
        (0..3).for_each(|number| fs::write(datadir.blk_path(FileNo(number)), b"blocks").unwrap());
        fs::write(datadir.rev_path(FileNo(0)), old_bytes()).unwrap();
        fs::write(datadir.rev_path(FileNo(1)), b"").unwrap();
        Self { root, datadir, synced: Cell::new(0) }
    }

    fn elsewhere(&self) -> Datadir {
        Datadir::at(&self.root.path().join("output"), Network::Regtest)
    }

    fn begin(&self) -> Result<MadeUndo<'static>, DiskError> {
        self.begin_at(&RealDisk, &self.datadir)
    }

    fn begin_at<'d>(&self, disk: &'d dyn Disk, result: &Datadir) -> Result<MadeUndo<'d>, DiskError> {
        MadeUndo::begin(disk, &self.datadir, result, Obfuscation::from_key(KEY), used())
    }

    fn resume(&self) -> Result<MadeUndo<'static>, DiskError> {
        self.resume_at(&RealDisk, &self.datadir)
    }

    fn resume_at<'d>(&self, disk: &'d dyn Disk, result: &Datadir) -> Result<MadeUndo<'d>, DiskError> {
        MadeUndo::resume(disk, &self.datadir, result, Obfuscation::from_key(KEY))
    }

    /// Makes all records, with a sync between the halves, and puts them in place.
    fn make(&self, disk: &dyn Disk, result: &Datadir) -> Result<(), DiskError> {
        self.synced.set(0);
        let made = self.begin_at(disk, result)?;
        let positions = reserve(&made, &records())?;
        write(&made, &positions, 0..HALF)?;
        made.sync()?;
        self.synced.set(HALF);
        write(&made, &positions, HALF..positions.len())?;
        made.put_in_place()
    }

    /// Continues what [`Case::make`] has left after its checkpoint; without one, starts over.
    fn make_rest(&self, disk: &dyn Disk, result: &Datadir) -> Result<(), DiskError> {
        if self.synced.get() == 0 {
            return self.make(disk, result);
        }
        let made = self.resume_at(disk, result)?;
        let positions = reserve(&made, &records())?;
        for (pos, (file, prev, undo)) in positions.iter().zip(records()).take(self.synced.get()) {
            made.check(file, &[(*pos, prev, undo.len())])?;
        }
        write(&made, &positions, self.synced.get()..positions.len())?;
        made.put_in_place()
    }

    /// Writes a block index with these entries for files.
    fn write_index(&self, files: Vec<FileInfo>) {
        let (dir, index) = (self.datadir.index_dir(), BlockIndex { files, ..BlockIndex::default() });
        fs::remove_dir_all(&dir).unwrap();
        write_block_index(&FaultDisk::healthy(), &dir, &index).unwrap();
    }

    fn waiting(&self) -> PathBuf {
        self.datadir.blocks_dir().join("peregrine-undo")
    }

    fn rev(&self, number: u32) -> Vec<u8> {
        fs::read(self.datadir.rev_path(FileNo(number))).unwrap()
    }

    /// Asserts that the bytes in use are as before.
    #[track_caller]
    fn assert_kept(&self, what: &str) {
        assert!(self.rev(0).get(..1_000) == old_bytes().get(..1_000), "{what}");
    }

    /// Asserts that the datadir has none of the records.
    #[track_caller]
    fn assert_unchanged(&self, what: &str) {
        assert!((self.rev(0), self.rev(1)) == (old_bytes(), Vec::new()), "{what}");
        assert!(!self.datadir.rev_path(FileNo(2)).exists(), "{what}");
    }

    /// Asserts that the records are in place, and that nothing else has changed.
    #[track_caller]
    fn assert_in_place(&self, result: &Datadir, what: &str) {
        for (number, made) in (0..).zip(&*MADE) {
            let old = if number == 0 { old_bytes()[..1_000].to_vec() } else { Vec::new() };
            let found = fs::read(result.rev_path(FileNo(number))).unwrap();
            assert!(found == [&old[..], made].concat(), "{what}: file {number}");
        }
    }
}

fn reserve(made: &MadeUndo<'_>, all: &[Record]) -> Result<Vec<ByteOffset>, DiskError> {
    all.iter().map(|(file, _, undo)| made.reserve(*file, undo.len())).collect()
}

fn write(made: &MadeUndo<'_>, positions: &[ByteOffset], mut range: Range<usize>) -> Result<(), DiskError> {
    let (all, mut buffer) = (records(), Vec::new());
    range.try_for_each(|at| {
        let (file, prev, undo) = &all[at];
        made.write(*file, positions[at], prev, undo, &mut buffer)
    })
}

fn make_all(made: MadeUndo<'_>) -> MadeUndo<'_> {
    make_by_threads(&made, &records());
    made
}

/// Reserves records, and writes them by four threads, each in another order, in which the last ones come
/// early: 389 has no divisor in common with the numbers of records.
fn make_by_threads(made: &MadeUndo<'_>, all: &[Record]) {
    let positions = &reserve(made, all).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut buffer = Vec::new();
                let order = (0..all.len()).map(|at| at * 389 % all.len());
                for at in order.filter(|at| at % 4 == thread) {
                    let (file, prev, undo) = &all[at];
                    made.write(*file, positions[at], prev, undo, &mut buffer).unwrap();
                }
            });
        }
    });
}

#[test]
fn the_bytes_of_the_mark_and_of_the_file_of_ends_are_those_of_their_version() {
    let case = Case::new();
    case.write_index(vec![FileInfo { undo_size: 1_001, ..FileInfo::default() }]);
    let made = case.begin().unwrap();
    let mark = [&b"PGRN-UD2"[..], &1_001u32.to_le_bytes(), &1_000u32.to_le_bytes()].concat();
    let complete = [&b"PGRN-END"[..], &1_000u32.to_le_bytes()].concat();
    made.put_in_place().unwrap();
    for (name, content) in [("peregrine.mark", mark), ("peregrine.complete", complete)] {
        let checksum = crc32c::crc32c(&content).to_le_bytes();
        let found = fs::read(case.waiting().join(name)).unwrap();
        assert_eq!(found, [&content[..], &checksum].concat(), "{name}");
    }
}

#[test]
fn records_are_appended_to_what_is_in_use() {
    let case = Case::new();
    let made = make_all(case.begin().unwrap());
    made.sync().unwrap();
    case.assert_unchanged("nothing is in place yet");
    made.put_in_place().unwrap();
    case.assert_in_place(&case.datadir, "");
    let waits = [0, 1, 2].map(|number| case.waiting().join(format!("rev0000{number}.dat")).exists());
    assert_eq!(waits, [true, false, false], "an empty file is replaced, not filled");
    let ends = [0, 1, 2].map(|number: usize| MADE[number].len() as u32);
    assert_eq!(made.undo_sizes(), [1_000 + ends[0], ends[1], ends[2]]);
    let file = |number, used, records| {
        let undo_size = used + ends[number as usize];
        MadeUndoFile { number: FileNo(number), used, undo_size, records }
    };
    assert_eq!(made.made(), [file(0, 1_000, 67), file(1, 0, 67), file(2, 0, 66)]);
    assert!(has_made_undo(&RealDisk, &case.datadir).unwrap());
    made.put_in_place().unwrap();
    case.assert_in_place(&case.datadir, "");
    made.clean_up().unwrap();
    case.assert_in_place(&case.datadir, "");
    assert!(!case.waiting().exists() && !has_made_undo(&RealDisk, &case.datadir).unwrap());
}

#[test]
fn a_longer_file_keeps_what_follows_the_records() {
    let case = Case::new();
    let tail = vec![9; MADE[0].len() + 5];
    fs::write(case.datadir.rev_path(FileNo(0)), [&old_bytes()[..1_000], &tail].concat()).unwrap();
    let made = make_all(case.begin().unwrap());
    made.put_in_place().unwrap();
    assert_eq!(case.rev(0), [&old_bytes()[..1_000], &MADE[0], &[9; 5]].concat());
}

#[test]
fn a_file_without_the_bytes_in_use_is_refused() {
    let case = Case::new();
    for cut in [true, false] {
        let path = case.datadir.rev_path(FileNo(0));
        fs::write(&path, old_bytes()).unwrap();
        let made = make_all(case.begin().unwrap());
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

/// If the first record was made after pruning had deleted a file, a download ended with "restore it".
#[test]
fn records_are_made_after_a_pair_of_files_was_deleted() {
    let case = Case::new();
    drop(case.begin().unwrap());
    fs::remove_file(case.datadir.blk_path(FileNo(0))).unwrap();
    fs::remove_file(case.datadir.rev_path(FileNo(0))).unwrap();
    assert_eq!(case.resume().unwrap().undo_sizes()[0], 0);
    assert_eq!(case.begin().unwrap().undo_sizes()[0], 0);
}

#[test]
fn a_resumed_run_completes_what_was_written() {
    let case = Case::new();
    assert!(matches!(case.resume().err().unwrap(), DiskError::DamagedWorkFile { .. }));
    let made = case.begin().unwrap();
    let positions = reserve(&made, &records()).unwrap();
    write(&made, &positions, 0..120).unwrap();
    made.sync().unwrap();
    write(&made, &positions, 120..140).unwrap();
    drop(made);
    let resumed = case.resume().unwrap();
    assert_eq!(reserve(&resumed, &records()).unwrap(), positions);
    assert!(resumed.put_in_place().unwrap_err().to_string().contains("bytes of undo data were made"));
    write(&resumed, &positions, 120..200).unwrap();
    resumed.put_in_place().unwrap();
    case.assert_in_place(&case.datadir, "");
}

/// The chain had a further block then, and the run failed until it was started over.
#[test]
fn records_can_be_added_after_a_stop_between_their_place_and_the_block_index() {
    for (is_elsewhere, file) in [(false, 0), (false, 1), (false, 3), (true, 0), (true, 2)] {
        let (case, what) = (Case::new(), format!("elsewhere: {is_elsewhere}, file {file}"));
        let result = if is_elsewhere { case.elsewhere() } else { case.datadir.clone() };
        case.make(&RealDisk, &result).unwrap();
        let longer = [records(), vec![(FileNo(file), BlockHash([7; 32]), vec![7; 77])]].concat();
        let resumed = case.resume_at(&RealDisk, &result).unwrap();
        let positions = reserve(&resumed, &longer).unwrap();
        let (file, prev, undo) = longer.last().unwrap();
        let (pos, mut record) = (*positions.last().unwrap(), Vec::new());
        resumed.write(*file, pos, prev, undo, &mut record).unwrap();
        resumed.put_in_place().unwrap();
        let found = fs::read(result.rev_path(*file)).unwrap();
        assert!(found.ends_with(&record) && found.len() as u64 == pos.0 - 8 + record.len() as u64, "{what}");
        for (number, made) in (0..).zip(&*MADE) {
            let used = if number == 0 { 1_000 } else { 0 };
            let found = fs::read(result.rev_path(FileNo(number))).unwrap();
            assert!(found[used..].starts_with(made), "{what}: file {number}");
        }
        case.assert_kept(&what);
    }
}

/// The node's own file was renamed, as if it had been made anew, and removed with what waited; later, only
/// where the block index was deleted.
#[test]
fn a_file_with_bytes_in_use_stays_if_the_records_that_waited_for_it_are_gone() {
    for has_index in [true, false] {
        let case = Case::new();
        if !has_index {
            fs::remove_dir(case.datadir.index_dir()).unwrap();
        }
        case.make(&RealDisk, &case.datadir).unwrap();
        fs::remove_file(case.waiting().join("rev00000.dat")).unwrap();
        let resumed = case.resume().unwrap();
        reserve(&resumed, &records()).unwrap();
        assert!(matches!(resumed.put_in_place().unwrap_err(), DiskError::DamagedWorkFile { .. }));
        assert!(clear_made_undo(&RealDisk, &case.datadir).unwrap());
        case.assert_kept("rev00000.dat");
    }
}

/// Each start of bitcoind counted as another block index, and the run started over.
#[test]
fn a_run_continues_as_long_as_the_block_index_records_the_same_undo_data() {
    let info = |undo_size| FileInfo { size: 9, undo_size, ..FileInfo::default() };
    for (after, continues) in [
        (vec![info(1_000), info(0)], true),
        (vec![info(1_000), info(0), info(0)], true),
        (vec![FileInfo::default(), info(0)], true),
        (vec![info(1_001), info(0)], false),
        (vec![info(1_000), info(0), info(7)], false),
        (Vec::new(), false),
    ] {
        // Records stay beside an index without files, which may be damaged. No run continues with them.
        let stays = continues || after.is_empty();
        let (case, what) = (Case::new(), format!("{after:?}"));
        case.write_index(vec![info(1_000), info(0)]);
        drop(make_all(case.begin().unwrap()));
        if after.first() == Some(&FileInfo::default()) {
            fs::remove_file(case.datadir.rev_path(FileNo(0))).unwrap();
        }
        case.write_index(after);
        reopen(&case.datadir.index_dir()).unwrap();
        clear_stale_made_undo(&RealDisk, &case.datadir).unwrap();
        assert_eq!(case.waiting().exists(), stays, "{what}");
        assert_eq!(case.resume().is_ok(), continues, "{what}");
    }
}

/// A run that was killed after its commit, and whose `rev` files are as long as those that were lost before.
#[test]
fn no_run_continues_with_records_to_which_the_block_index_refers() {
    let (case, lengths) = (Case::new(), MADE.each_ref().map(|made| made.len() as u32));
    let info = |undo_size| FileInfo { size: 9, undo_size, ..FileInfo::default() };
    case.write_index(vec![info(1_000 + lengths[0]), info(lengths[1]), info(lengths[2])]);
    let made = make_all(case.begin().unwrap());
    assert!(case.resume().is_ok());
    made.put_in_place().unwrap();
    assert!(case.resume().is_err());
    clear_stale_made_undo(&RealDisk, &case.datadir).unwrap();
    case.assert_in_place(&case.datadir, "they stay");
    assert!(!case.waiting().exists());
}

/// The records of an earlier run kept every command from replacing an index that could not be read. Later,
/// they were removed after one failed read.
#[test]
fn records_stay_if_the_block_index_cannot_be_read() {
    let case = Case::new();
    case.write_index(vec![FileInfo { size: 9, undo_size: 1_000, ..FileInfo::default() }]);
    drop(make_all(case.begin().unwrap()));
    let names = RealDisk.list(&case.datadir.index_dir()).unwrap();
    let table =
        names.into_iter().map(PathBuf::from).find(|name| name.extension().is_some_and(|end| end == "ldb"));
    let table = case.datadir.index_dir().join(table.unwrap());
    let unreadable = FaultDisk::healthy().with_unreadable(&table, 3);
    for disk in [&FaultDisk::healthy().with_denied(&table), &unreadable] {
        clear_stale_made_undo(disk, &case.datadir).unwrap();
        assert!(case.resume().is_ok(), "the index may be readable again");
    }
    UsedBefore::read(&unreadable, &case.datadir).unwrap();
    fs::remove_file(&table).unwrap();
    fs::create_dir(&table).unwrap();
    UsedBefore::read(&RealDisk, &case.datadir).unwrap();
}

#[test]
fn begin_removes_what_an_earlier_run_has_left_and_keeps_foreign_files() {
    let case = Case::new();
    drop(make_all(case.begin().unwrap()));
    drop(case.begin().unwrap());
    assert_eq!(RealDisk.list(&case.waiting()).unwrap(), ["peregrine.mark"]);
    for torn in [&b""[..], b"PGRN-U", b"PGRN-UND of an earlier version"] {
        fs::write(case.waiting().join("peregrine.mark"), torn).unwrap();
        assert!(case.resume().is_err());
        case.begin().unwrap().clean_up().unwrap();
        assert!(!case.waiting().exists());
        drop(case.begin());
    }
    drop(make_all(case.begin().unwrap()));
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
    let made = make_all(case.begin().unwrap());
    assert!(other.join("peregrine-undo/rev00000.dat").is_file());
    for _ in 0..2 {
        made.put_in_place().unwrap();
        case.assert_in_place(&case.datadir, "");
    }
    made.clean_up().unwrap();
    for link in ["rev00000.dat", "rev00002.dat"] {
        assert!(fs::symlink_metadata(other.join(link)).unwrap().is_symlink());
    }
    assert!(fs::symlink_metadata(case.datadir.blocks_dir()).unwrap().is_symlink());
    assert_eq!(fs::read(further.join("new.dat")).unwrap(), MADE[2]);
    assert!(!other.join("peregrine-undo").exists());
}

#[test]
fn an_output_elsewhere_gets_whole_files_and_the_datadir_none() {
    let case = Case::new();
    let result = case.elsewhere();
    let made = make_all(case.begin_at(&RealDisk, &result).unwrap());
    fs::write(result.rev_path(FileNo(2)), "mine").unwrap();
    let error = made.put_in_place().unwrap_err();
    assert!(matches!(error, DiskError::Refused { .. }), "{error}");
    assert_eq!(RealDisk.list(&result.blocks_dir()).unwrap(), ["peregrine-undo", "rev00002.dat"]);
    fs::remove_file(result.rev_path(FileNo(2))).unwrap();
    for _ in 0..2 {
        made.put_in_place().unwrap();
        case.assert_in_place(&result, "");
    }
    made.clean_up().unwrap();
    case.assert_unchanged("the output is elsewhere");
    assert_eq!(RealDisk.list(&case.datadir.blocks_dir()).unwrap().len(), 6);
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
    let made = make_all(case.begin().unwrap());
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
    let made = make_all(case.begin().unwrap());
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
    let record = |number: u32| (FileNo(number % 40), BlockHash([number as u8; 32]), vec![number as u8; 50]);
    let records: Vec<Record> = (0..600).map(record).collect();
    make_by_threads(&made, &records);
    for number in 0..40 {
        fs::write(case.datadir.blk_path(FileNo(number)), b"blocks").unwrap();
    }
    made.put_in_place().unwrap();
    for number in 0..40 {
        let mut expected = Vec::new();
        for (_, prev, undo) in records.iter().filter(|(file, ..)| file.0 == number) {
            write_record(&mut expected, Network::Regtest.magic(), prev, undo);
        }
        let used = if number == 0 { 1_000 } else { 0 };
        Obfuscation::from_key(KEY).apply(&mut expected, used);
        assert!(case.rev(number)[used as usize..] == expected, "{number}");
    }
}

/// The power fails at each operation in turn, then again while the next run continues.
#[test]
fn a_power_cut_at_any_operation_loses_no_byte_in_use_and_the_next_run_completes() {
    let mut damaged = 0;
    for is_elsewhere in [false, true] {
        for first in 0.. {
            let case = Case::new();
            let output = case.elsewhere();
            fs::create_dir_all(output.blocks_dir()).unwrap();
            let result = if is_elsewhere { &output } else { &case.datadir };
            let mut is_done = false;
            for (round, at) in [first, first % 17, u64::MAX].into_iter().enumerate() {
                let context =
                    format!("elsewhere {is_elsewhere}, first {first}, round {round}, operation {at}");
                let disk = FaultDisk::killed_at(at).with_names_at_risk(case.root.path());
                let done = match round {
                    0 => case.make(&disk, result),
                    _ => case.make_rest(&disk, result),
                };
                is_done |= round == 0 && done.is_ok();
                disk.cut_power(at).unwrap();
                case.assert_kept(&context);
                if is_elsewhere {
                    case.assert_unchanged(&context);
                }
                match done {
                    Ok(()) => case.assert_in_place(result, &context),
                    // For this disk, a copy of the bytes in use puts all that follows in the file at risk.
                    Err(DiskError::DamagedWorkFile { .. }) if is_elsewhere && round > 0 => {
                        damaged += 1;
                        case.synced.set(0);
                    }
                    Err(error) => assert!(disk.has_failed(), "{context}: {error}"),
                }
            }
            case.assert_in_place(result, &format!("operation {first}"));
            assert!(clear_made_undo(&RealDisk, result).unwrap());
            if is_done {
                assert!(first > 50, "{first} operations");
                break;
            }
        }
    }
    assert!(damaged < 3, "{damaged} runs could not be continued");
}

/// A run that begins anew after a crash, and one that removes what is left.
#[test]
fn a_power_cut_while_leftovers_are_removed_leaves_nothing_that_hinders() {
    for at in 0.. {
        let case = Case::new();
        case.make(&FaultDisk::healthy(), &case.datadir).unwrap();
        let disk = FaultDisk::killed_at(at).with_names_at_risk(case.root.path());
        let done = clear_made_undo(&disk, &case.datadir);
        disk.cut_power(at).unwrap();
        case.assert_in_place(&case.datadir, &format!("operation {at}"));
        if done.is_err() {
            let resumed = case.resume();
            // Before its first step, everything can be continued; after it, nothing.
            assert!(resumed.is_err() || at <= 2, "operation {at}");
            case.make(&RealDisk, &case.datadir).unwrap();
            case.assert_in_place(&case.datadir, &format!("operation {at}"));
            clear_made_undo(&RealDisk, &case.datadir).unwrap();
        }
        assert!(!has_made_undo(&RealDisk, &case.datadir).unwrap(), "operation {at}");
        if done.is_ok() {
            assert!(at > 5, "{at} operations");
            break;
        }
    }
}

#[test]
fn any_step_can_be_repeated_after_an_error() {
    for at in 0.. {
        let case = Case::new();
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, Operations::All, io::ErrorKind::Other);
        let repeat = |run: &dyn Fn() -> Result<(), DiskError>| run().or_else(|_| run());
        let made =
            case.begin_at(&disk, &case.datadir).or_else(|_| case.begin_at(&disk, &case.datadir)).unwrap();
        let positions = reserve(&made, &records()).unwrap();
        for at in 0..positions.len() {
            repeat(&|| write(&made, &positions, at..at + 1)).unwrap();
        }
        repeat(&|| made.sync()).unwrap();
        repeat(&|| made.put_in_place()).unwrap();
        case.assert_in_place(&case.datadir, &format!("operation {at}"));
        case.assert_kept(&format!("operation {at}"));
        let _ = made.clean_up();
        clear_made_undo(&RealDisk, &case.datadir).unwrap();
        assert!(!has_made_undo(&RealDisk, &case.datadir).unwrap());
        if !disk.has_failed() {
            assert!(at > 60, "{at} operations");
            break;
        }
    }
}

#[test]
fn a_full_disk_leaves_bytes_in_use_as_they_are() {
    let needed: usize = MADE.iter().map(Vec::len).sum();
    for bytes in [0, 1_000, needed as u64 / 2, needed as u64] {
        let case = Case::new();
        let disk = FaultDisk::full_after(bytes);
        if let Err(error) = case.make(&disk, &case.datadir) {
            assert!(error.to_string().contains("the test disk is full"), "{error}");
        }
        case.assert_kept(&format!("{bytes} bytes"));
        disk.heal();
        case.make_rest(&disk, &case.datadir).unwrap();
        case.assert_in_place(&case.datadir, &format!("{bytes} bytes"));
    }
}
