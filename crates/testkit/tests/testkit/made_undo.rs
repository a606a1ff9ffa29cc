//! Made undo data: the same bytes as those that [`BlockAppender`] writes, and no byte in use lost by a crash.

use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    block_files::{AppendOptions, BlockFiles},
    datadir::Datadir,
    index::FileInfo,
    made_undo::{MadeUndo, clear_made_undo, has_made_undo},
};
use std::{cell::Cell, collections::BTreeMap, fs, io, path::Path, sync::LazyLock};
use tempfile::TempDir;
use testkit::{
    block::GeneratedBlock,
    chain::Chain,
    fault::{FaultDisk, InjectedFault, Operations},
    generate::ChainSpec,
};
use vfs::{Disk, RealDisk};
use wire::{ByteOffset, FileNo, Height, Network};

const KEY: [u8; 8] = [1, 2, 0, 4, 0xff, 6, 7, 0xf9];

/// Number of block files.
const FILES: u32 = 4;

static CHAIN: LazyLock<Chain> = LazyLock::new(|| Chain::generate(&ChainSpec::new(5, 200_000)));

/// The last blocks of the chain, which have transactions, each with the number of its file.
fn blocks() -> Vec<(FileNo, &'static GeneratedBlock)> {
    let all: Vec<_> = CHAIN.main().collect();
    let last = all.len() - 48;
    (0..).zip(&all[last..]).map(|(at, block)| (FileNo(at / 12), *block)).collect()
}

/// Where the undo data of the blocks of [`blocks`] that are named ends up.
struct Expected {
    /// Content of the `rev` files when all blocks have undo data.
    revs: BTreeMap<u32, Vec<u8>>,
    positions: Vec<ByteOffset>,
    infos: Vec<FileInfo>,
}

/// Appends the undo data of the blocks in `range`, in order, to a datadir.
fn append(datadir: &Datadir, infos: Vec<FileInfo>, range: std::ops::Range<usize>) -> Expected {
    let options = AppendOptions { preallocate: false, ..AppendOptions::default() };
    let files = BlockFiles::new(&RealDisk, datadir, Obfuscation::from_key(KEY));
    let mut appender = files.append_after(infos, options);
    let mut positions = Vec::new();
    for (file, block) in &blocks()[range] {
        let undo = block.undo.as_ref().unwrap();
        let pos = appender.append_undo(*file, Height(block.height), &block.header.prev, undo);
        positions.push(pos.unwrap());
    }
    appender.flush().unwrap();
    Expected { revs: revs(datadir), positions, infos: appender.infos().to_vec() }
}

fn revs(datadir: &Datadir) -> BTreeMap<u32, Vec<u8>> {
    (0..FILES).filter_map(|number| Some((number, fs::read(datadir.rev_path(FileNo(number))).ok()?))).collect()
}

/// A datadir of four pairs of files. Of the `rev` files, the first has all its records, the second a third of
/// them and bytes that are not in use; the last two are missing.
struct Case {
    root: TempDir,
    datadir: Datadir,
    before: BTreeMap<u32, Vec<u8>>,
    used: Vec<u32>,
    /// Number of made records that are on the medium: the checkpoint of a job.
    synced: Cell<usize>,
}

/// Number of blocks whose records exist.
const KEPT: usize = 16;

/// Bytes of the second `rev` file that are not in use.
const TORN: usize = 5_000;

fn datadir(root: &Path) -> Datadir {
    let datadir = Datadir::at(root, Network::Regtest);
    // Records that are in place stay only where a block index could refer to them.
    fs::create_dir_all(datadir.index_dir()).unwrap();
    (0..FILES).for_each(|number| fs::write(datadir.blk_path(FileNo(number)), b"blocks").unwrap());
    datadir
}

/// What the appender makes of the same records.
static EXPECTED: LazyLock<Expected> = LazyLock::new(|| {
    let root = tempfile::tempdir().unwrap();
    let datadir = datadir(root.path());
    append(&datadir, vec![FileInfo::default(); FILES as usize], 0..blocks().len())
});

impl Case {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let datadir = datadir(root.path());
        let kept = append(&datadir, vec![FileInfo::default(); FILES as usize], 0..KEPT);
        let torn = datadir.rev_path(FileNo(1));
        fs::write(&torn, [&kept.revs[&1][..], &[0xaa; TORN]].concat()).unwrap();
        let used = kept.infos.iter().map(|info| info.undo_size).collect();
        Self { before: revs(&datadir), root, datadir, used, synced: Cell::new(0) }
    }

    fn begin<'d>(&self, disk: &'d dyn Disk, result: &Datadir) -> Result<MadeUndo<'d>, DiskError> {
        MadeUndo::begin(disk, &self.datadir, result, Obfuscation::from_key(KEY), self.used.clone())
    }

    fn resume<'d>(&self, disk: &'d dyn Disk, result: &Datadir) -> Result<MadeUndo<'d>, DiskError> {
        MadeUndo::resume(disk, &self.datadir, result, Obfuscation::from_key(KEY))
    }

    /// Makes what is missing, with a sync between the halves, and puts it in place.
    fn make(&self, disk: &dyn Disk, result: &Datadir) -> Result<(), DiskError> {
        self.synced.set(0);
        let made = self.begin(disk, result)?;
        let positions = reserve(&made)?;
        let half = positions.len() / 2;
        write(&made, &positions, 0..half)?;
        made.sync()?;
        self.synced.set(half);
        write(&made, &positions, half..positions.len())?;
        made.put_in_place()
    }

    /// Continues what [`Case::make`] has left after its checkpoint; without one, starts over.
    fn make_rest(&self, disk: &dyn Disk, result: &Datadir) -> Result<(), DiskError> {
        if self.synced.get() == 0 {
            return self.make(disk, result);
        }
        let made = self.resume(disk, result)?;
        let positions = reserve(&made)?;
        write(&made, &positions, self.synced.get()..positions.len())?;
        made.put_in_place()
    }

    /// Asserts that bytes in use are as before.
    fn assert_kept(&self, context: &str) {
        let now = revs(&self.datadir);
        for (number, before) in &self.before {
            let used = self.used[*number as usize] as usize;
            assert!(now[number].get(..used) == before.get(..used), "{context}: bytes of file {number}");
        }
    }

    /// Asserts that all records are in place.
    fn assert_in_place(&self, result: &Datadir, context: &str) {
        let now = revs(result);
        for (number, expected) in &EXPECTED.revs {
            // An output elsewhere gets only files for which records are made.
            let Some(found) = now.get(number).or(self.before.get(number)) else {
                panic!("{context}: file {number} is missing")
            };
            assert!(found.starts_with(expected), "{context}: records of file {number}");
            assert!(found.len() < expected.len() + TORN, "{context}: length of file {number}");
        }
    }
}

fn reserve(made: &MadeUndo<'_>) -> Result<Vec<ByteOffset>, DiskError> {
    let missing = blocks().into_iter().skip(KEPT);
    missing.map(|(file, block)| made.reserve(file, block.undo.as_ref().unwrap().len())).collect()
}

fn write(
    made: &MadeUndo<'_>,
    positions: &[ByteOffset],
    mut range: std::ops::Range<usize>,
) -> Result<(), DiskError> {
    let blocks = blocks();
    let mut record = Vec::new();
    range.try_for_each(|at| {
        let (file, block) = &blocks[KEPT + at];
        made.write(*file, positions[at], &block.header.prev, block.undo.as_ref().unwrap(), &mut record)
    })
}

#[test]
fn made_records_are_those_that_the_appender_writes() {
    for is_elsewhere in [false, true] {
        let case = Case::new();
        let output = Datadir::at(&case.root.path().join("output"), Network::Regtest);
        let result = if is_elsewhere { &output } else { &case.datadir };
        let made = case.begin(&RealDisk, result).unwrap();
        let positions = reserve(&made).unwrap();
        assert_eq!(positions, EXPECTED.positions[KEPT..]);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (made, positions) = (&made, &positions);
                scope.spawn(move || {
                    for at in (0..positions.len()).rev().filter(|at| at % 4 == thread) {
                        write(made, positions, at..at + 1).unwrap();
                    }
                });
            }
        });
        made.sync().unwrap();
        assert_eq!(revs(&case.datadir), case.before);
        made.put_in_place().unwrap();
        case.assert_in_place(result, "no fault");
        let sizes: Vec<_> = EXPECTED.infos.iter().map(|info| info.undo_size).collect();
        assert_eq!(made.undo_sizes(), sizes);
        made.clean_up().unwrap();
        assert!(!is_elsewhere || revs(&case.datadir) == case.before);
    }
}

/// The power fails at each operation in turn, then again while the next run continues.
#[test]
fn a_power_cut_at_any_operation_loses_no_byte_in_use_and_the_next_run_completes() {
    for is_elsewhere in [false, true] {
        for at in 0.. {
            let case = Case::new();
            let output = Datadir::at(&case.root.path().join("output"), Network::Regtest);
            fs::create_dir_all(output.blocks_dir()).unwrap();
            let result = if is_elsewhere { &output } else { &case.datadir };
            let mut is_done = false;
            for (round, at) in [at, at % 17, u64::MAX].into_iter().enumerate() {
                let context = format!("elsewhere {is_elsewhere}, round {round}, operation {at}");
                let fault = InjectedFault::Sticky;
                let disk = FaultDisk::fail_at(at, fault, Operations::Changes, io::ErrorKind::Other)
                    .with_names_at_risk(case.root.path());
                let done = match round {
                    0 => case.make(&disk, result),
                    _ => case.make_rest(&disk, result),
                };
                is_done |= round == 0 && done.is_ok();
                disk.cut_power(at).unwrap();
                case.assert_kept(&context);
                assert!(!is_elsewhere || revs(&case.datadir) == case.before, "{context}");
                match done {
                    Ok(()) => case.assert_in_place(result, &context),
                    Err(error) => assert!(disk.has_failed(), "{context}: {error}"),
                }
            }
            case.assert_in_place(result, &format!("operation {at}"));
            assert!(clear_made_undo(&RealDisk, result).unwrap());
            if is_done {
                assert!(at > 50, "{at} operations");
                break;
            }
        }
    }
}

/// A run that begins anew after a crash, and one that removes what is left.
#[test]
fn a_power_cut_while_leftovers_are_removed_leaves_nothing_that_hinders() {
    for at in 0.. {
        let case = Case::new();
        case.make(&FaultDisk::healthy(), &case.datadir).unwrap();
        let in_place = revs(&case.datadir);
        let disk = FaultDisk::fail_at(at, InjectedFault::Sticky, Operations::Changes, io::ErrorKind::Other)
            .with_names_at_risk(case.root.path());
        let done = clear_made_undo(&disk, &case.datadir);
        disk.cut_power(at).unwrap();
        assert_eq!(revs(&case.datadir), in_place);
        if done.is_err() {
            let resumed = case.resume(&RealDisk, &case.datadir);
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
        let made = case.begin(&disk, &case.datadir).or_else(|_| case.begin(&disk, &case.datadir)).unwrap();
        let positions = reserve(&made).unwrap();
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
    let needed: usize = EXPECTED.revs.values().map(Vec::len).sum();
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
