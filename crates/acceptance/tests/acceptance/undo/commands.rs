//! Undo data by itself: what is missing or damaged is named, and made without touching anything else, also if
//! any operation fails.

use acceptance::for_verifying;
use acceptance::prelude::*;
use engine::{CheckUndoOptions, FlawedUndo, MadeUndoReport, MakeUndoOptions, UndoCheck};
use testkit::{
    corrupt::overwrite,
    mutation::{base_chain, mutations},
};
use vfs::Disk;

static CHAIN: LazyLock<Chain> =
    LazyLock::new(|| Chain::generate(&ChainSpec { blocks: Some(120), ..ChainSpec::new(5, 100_000) }));
static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::of(&CHAIN));

/// Options with a folder of their own for temporary files, since other tests run at the same time.
fn chain_options(root: &Path, temporary: &TempDir) -> ChainOptions {
    let threads = NonZeroUsize::new(3).unwrap();
    ChainOptions { threads, work_dir: Some(temporary.path().to_owned()), ..options(root).chain }
}

fn check(options: &ChainOptions) -> UndoCheck {
    let options = CheckUndoOptions { chain: options.clone(), scan: false };
    engine::check_undo(&FaultDisk::healthy(), &options, &|_| {}, &AtomicBool::new(false)).unwrap()
}

fn make(disk: &dyn Disk, options: &ChainOptions) -> Result<MadeUndoReport, Error> {
    let options = MakeUndoOptions { chain: options.clone(), keep_old: false };
    engine::make_undo(disk, &options, &|_| {}, &AtomicBool::new(false))
}

/// The index entry of a block of the main chain.
fn entry(case: &Case, height: u32) -> disk::index::IndexEntry {
    let hash = CHAIN.main().nth(height as usize).unwrap().hash;
    *case.index().entries.iter().find(|entry| entry.hash == hash).unwrap()
}

/// Damages the records at these heights, and drops the others from the index.
fn damage(case: &Case, damaged: &[u32], missing: &[u32]) {
    for &height in damaged {
        let entry = entry(case, height);
        overwrite(&acceptance::rev(case, &entry), entry.undo_pos.unwrap().0 + 1, &[0x55; 9]).unwrap();
    }
    let hashes: Vec<_> =
        missing.iter().map(|&height| CHAIN.main().nth(height as usize).unwrap().hash).collect();
    case.edit_index(|index| {
        for entry in index.entries.iter_mut().filter(|entry| hashes.contains(&entry.hash)) {
            entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
            entry.undo_pos = None;
        }
    });
}

fn remove_undo_files(case: &Case) {
    for number in 0..case.index().files.len() {
        std::fs::remove_file(case.blocks(&format!("rev{number:05}.dat"))).unwrap();
    }
}

/// Checks that each block has the undo data that the generator made for it, where the index places it.
fn assert_complete(case: &Case) {
    let key = std::fs::read(case.blocks("xor.dat")).unwrap();
    for block in CHAIN.main().skip(1).take(CHAIN.tip().height as usize - 3) {
        let (entry, undo) = (entry(case, block.height), block.undo.as_ref().unwrap());
        let pos = entry.undo_pos.unwrap().0 as usize;
        let mut found = std::fs::read(acceptance::rev(case, &entry)).unwrap()[pos..pos + undo.len()].to_vec();
        found.iter_mut().zip(pos..).for_each(|(byte, at)| *byte ^= key[at % 8]);
        assert!(found == *undo, "{}", block.height);
    }
}

/// All files but undo files and the block index.
fn others(case: &Case) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let is_other =
        |path: &Path| !path.to_string_lossy().contains("/rev") && !path.to_string_lossy().contains("/index");
    let relative = |path: PathBuf| path.strip_prefix(case.root()).unwrap().to_owned();
    let files = tree(case.root()).into_iter().filter(|(path, _)| is_other(path));
    files.map(|(path, bytes)| (relative(path), bytes)).collect()
}

#[test]
fn names_what_is_missing_or_damaged_and_makes_it() {
    let (case, temporary) = (TEMPLATE.case(), TempDir::new().unwrap());
    let options = chain_options(case.root(), &temporary);
    assert!(check(&options).is_sound());
    damage(&case, &[50, 110], &[70]);
    let before = tree(case.root());
    let found = check(&options);
    assert_eq!(found.height.0, CHAIN.tip().height - 3, "up to the chainstate's best block");
    assert_eq!([found.sound, found.missing, found.damaged], [found.height.0 - 3, 1, 2]);
    let mut named: Vec<FlawedUndo> = found.files.iter().flat_map(|file| file.first.clone()).collect();
    named.sort_by_key(|block| block.height);
    let named: Vec<_> = named.iter().map(|block| (block.height.0, block.is_missing)).collect();
    assert_eq!(named, [(50, false), (70, true), (110, false)]);
    let scan = CheckUndoOptions { chain: options.clone(), scan: true };
    let scanned = engine::check_undo(&FaultDisk::healthy(), &scan, &|_| {}, &AtomicBool::new(false)).unwrap();
    assert!(!scanned.is_sound());
    assert_same_tree(&before, case.root(), "a check");

    let rest = others(&case);
    let report = make(&FaultDisk::healthy(), &options).unwrap();
    assert_eq!((report.undo.blocks, report.undo.made.len()), (3, 0), "{:?}", report.undo);
    assert!(check(&options).is_sound());
    assert_complete(&case);
    assert!(rest == others(&case), "only undo files and the block index change");
    let report = engine::verify(
        &FaultDisk::healthy(),
        &for_verifying(
            &changed(trusting(&acceptance::options(case.root())), |it| {
                it.chain = ChainOptions { undo: it.chain.undo, ..options.clone() }
            }),
            true,
        ),
        &|_| {},
        &AtomicBool::new(false),
    );
    assert_eq!(report.unwrap().against_chainstate.unwrap().differences, 0);
    // Nothing is left to do.
    let before = tree(case.root());
    assert_eq!(make(&FaultDisk::healthy(), &options).unwrap().undo.blocks, 0);
    assert_same_tree(&before, case.root(), "a second run");
}

/// With enough memory, only the spent coins are looked for; without, all spends are matched. The files are
/// the same.
#[test]
fn all_undo_data_is_made_within_any_memory() {
    let mut made = Vec::new();
    for (threads, join_bytes) in [(1, None), (4, None), (4, Some(1))] {
        let (case, temporary) = (TEMPLATE.case(), TempDir::new().unwrap());
        remove_undo_files(&case);
        let rest = others(&case);
        let mut options = chain_options(case.root(), &temporary);
        options.threads = NonZeroUsize::new(threads).unwrap();
        options.hooks.join_bytes = join_bytes;
        let keeping = MakeUndoOptions { chain: options.clone(), keep_old: true };
        let report = engine::make_undo(&FaultDisk::healthy(), &keeping, &|_| {}, &AtomicBool::new(false));
        let report = report.unwrap();
        assert_eq!((report.undo.blocks, report.undo.mended.len()), (CHAIN.tip().height - 3, 0));
        assert_eq!(report.kept, [case.blocks("index.old")]);
        assert!(rest == others(&case), "only undo files and the block index change");
        assert_complete(&case);
        let files = tree(case.root()).into_iter().filter(|(path, _)| path.to_string_lossy().contains("/rev"));
        made.push(files.map(|(_, bytes)| bytes).collect::<Vec<_>>());
    }
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_coin_that_does_not_exist_is_named_and_nothing_is_written() {
    let base = base_chain(5);
    let missing = "bad-txns-inputs-missingorspent";
    let mutation = mutations().find(|mutation| mutation.core == Some(missing)).unwrap();
    let mutated = mutation.apply(&base);
    let (dir, temporary) = (acceptance::scratch(), TempDir::new().unwrap());
    mutated.chain.write_datadir(dir.path(), &layout()).unwrap();
    for file in std::fs::read_dir(dir.path().join("regtest/blocks")).unwrap().map(|file| file.unwrap().path())
    {
        if file.file_name().unwrap().to_string_lossy().starts_with("rev") {
            std::fs::remove_file(file).unwrap();
        }
    }
    let before = tree(dir.path());
    let error = make(&FaultDisk::healthy(), &chain_options(dir.path(), &temporary)).map(|_| ()).unwrap_err();
    assert_eq!((error.kind, error.core.as_deref()), (ErrorKind::Consensus, Some(missing)), "{error}");
    assert!(error.block_hash == Some(mutated.block.hash) && error.txid.is_some(), "{error}");
    assert_same_tree(&before, dir.path(), "refused");
}

/// Whatever fails: block files and chainstate are unchanged, all undo data that was sound still is, and the
/// next run completes it.
#[test]
fn any_operation_can_fail_or_be_the_last() {
    let temporary = TempDir::new().unwrap();
    let damaged = || {
        let case = TEMPLATE.case();
        damage(&case, &[50], &[70]);
        case
    };
    let (before, rest) = (&damaged, others(&damaged()));
    let options = |case: &Case| chain_options(case.root(), &temporary);
    let is_whole = |case: &Case, is_done: bool, what: &str| {
        acceptance::stats(case.root(), Network::Regtest).unwrap();
        let UndoCheck { missing, damaged, .. } = check(&options(case));
        let found = (missing, damaged);
        assert!(found == (0, 0) || !is_done && found == (1, 1), "{what}: {missing} {damaged}");
    };
    let succeeds = |case: &Case, what: &str| {
        make(&FaultDisk::healthy(), &options(case)).unwrap_or_else(|error| panic!("{what}, again: {error}"));
        assert!(check(&options(case)).is_sound() && rest == others(case), "{what}");
        assert!(acceptance::leftovers(case.root()).is_empty(), "{what}");
    };
    let mut failures = 0;
    for at in (0..).step_by(3) {
        let case = damaged();
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, Operations::Changes, io::ErrorKind::Other);
        let done = make(&disk, &options(&case));
        if !disk.has_failed() {
            assert_eq!(done.unwrap().undo.blocks, 2);
            break;
        }
        failures += u64::from(done.is_err());
        is_whole(&case, done.is_ok(), &format!("operation {at}"));
        succeeds(&case, &format!("operation {at}"));
    }
    assert!(failures >= 10, "only {failures} operations failed a run");
    let run = |disk: &FaultDisk, case: &Case| make(disk, &options(case)).map(drop);
    let scenario = Scenario { before, run: &run, is_whole: &is_whole, succeeds: &succeeds };
    let states = scenario.explore(Crashes { stride: 2, ..Crashes::default() });
    assert!(states > 20, "{states}");
}
