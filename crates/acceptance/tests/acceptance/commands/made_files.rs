//! What commands make of blocks without changing the datadir: hints in every format, which are the model's,
//! and snapshots. None of it depends on undo data, threads or memory, and what is interrupted is resumed.

use acceptance::{StoredCoin, prelude::*};
use engine::hints::{CoinSource, HintInfo};

/// How undo data is missing: there is no file, the index records none for some blocks, or some records are
/// damaged, which shows only when they are read.
const MISSING: [UndoDamage; 3] = [UndoDamage::AllGone, UndoDamage::NoPositions, UndoDamage::Flipped];

fn case_with(damage: UndoDamage) -> Case {
    changed(Case::new(), |case| damage.apply(case.root(), Network::Regtest))
}

/// The options with one thread, and with four and a join that is spilled after each block. Temporary files go
/// to `dir`: other tests of this process run at the same time.
fn variants(options: &ReindexOptions, dir: &Path) -> [ReindexOptions; 2] {
    let options = &changed(options.clone(), |it| it.chain.work_dir = Some(dir.to_owned()));
    [with_threads(options, 1), changed(with_threads(options, 4), |it| it.chain.hooks.join_bytes = Some(1))]
}

/// Returns the bytes of a file, and removes it.
fn taken(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    fs::remove_file(path).unwrap();
    bytes
}

fn make_snapshot(options: &ReindexOptions, path: &Path) -> Vec<u8> {
    engine::snapshot::make(&FaultDisk::healthy(), &options.chain, path, unwatched()).unwrap();
    taken(path)
}

fn make_hints(options: &ReindexOptions, path: &Path, format: HintFormat) -> Result<HintInfo, Error> {
    engine::hints::make(&FaultDisk::healthy(), &options.chain, path, format, unwatched())
}

/// The model's hints for a height.
fn hints_of(height: u32, path: &Path, format: HintFormat) -> Vec<u8> {
    TRUTH.write(path, format, &TRUTH.hints(height));
    taken(path)
}

fn wrong_blocks(options: &ReindexOptions, path: &Path, format: Option<HintFormat>) -> u64 {
    let disk = FaultDisk::healthy();
    engine::hints::check(&disk, &options.chain, path, format, unwatched()).unwrap().wrong_blocks
}

#[test]
fn verify_and_snapshots_need_no_undo_data() {
    let (dir, disk) = (scratch(), FaultDisk::healthy());
    let path = dir.path().join("utxo.dat");
    let expected = make_snapshot(&trusting(&Case::new().options()), &path);
    for missing in MISSING {
        let case = case_with(missing);
        let before = tree(case.root());
        for options in variants(&case.options(), dir.path()) {
            let what = format!("{missing:?} {}", options.chain.threads);
            for against in [false, true] {
                let report = engine::verify(&disk, &options.chain, against, unwatched());
                let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
                let height = TIP - if against { 3 } else { 0 };
                assert_eq!(report.height, Height(height), "{what}");
                assert_eq!(report.txouts, stats_by_height(chain())[height as usize].txouts, "{what}");
                assert!(report.against_chainstate.is_none_or(|found| found.differences == 0), "{what}");
            }
            assert!(make_snapshot(&options, &path) == expected, "{what}");
            let mut other = expected.clone();
            // The code of the last coin, or its amount.
            let at = other.len() - 22;
            other[at] ^= 1;
            for policy in [UndoPolicy::Auto, UndoPolicy::Make] {
                let options = changed(options.clone(), |it| it.chain.undo = policy);
                for (bytes, proven) in [(&expected, true), (&other, false)] {
                    fs::write(&path, bytes).unwrap();
                    let (chain, kind) = (Some(&options.chain), AggregateKind::SipHash128);
                    let found = engine::snapshot::verify(&disk, &path, chain, kind, unwatched());
                    assert_eq!(found.unwrap().proven, Some(proven), "{what}");
                }
            }
            fs::remove_file(&path).unwrap();
        }
        let [options, _] = variants(&trusting(&case.options()), dir.path());
        let error = engine::verify(&disk, &options.chain, false, unwatched());
        if missing != UndoDamage::NoPositions {
            assert_eq!(error.map(|report| report.height).unwrap_err().kind, ErrorKind::Damaged);
        }
        assert_same_tree(&before, case.root(), &format!("{missing:?}"));
    }
}

#[test]
fn hints_made_from_blocks_equal_those_of_the_model() {
    let dir = scratch();
    let path = dir.path().join("hints");
    for (number, format) in HintFormat::ALL.into_iter().enumerate() {
        for (damage, height) in
            [(UndoDamage::None, 100 + 5 * number as u32), (UndoDamage::None, TIP), (MISSING[number % 3], TIP)]
        {
            let (case, what) = (case_with(damage), format!("{format} at {height}, {damage:?}"));
            let (before, expected) = (tree(case.root()), hints_of(height, &path, format));
            for options in variants(&up_to(case.options(), height), dir.path()) {
                let info = make_hints(&options, &path, format).unwrap();
                assert_eq!((info.height, info.format), (Height(height), format));
                let read = engine::hints::info(&FaultDisk::healthy(), &path, Some(format)).unwrap().hints;
                assert_eq!((read.hints, read.bytes), (info.hints, info.bytes), "{what}");
                assert_eq!(wrong_blocks(&options, &path, Some(format)), 0, "{what}");
                let again = make_hints(&options, &path, format).unwrap_err();
                assert_eq!(again.kind, ErrorKind::Usage, "{what}: an existing file is kept");
                assert!(taken(&path) == expected, "{what}");
            }
            assert_same_tree(&before, case.root(), &what);
            assert_eq!(leftovers(dir.path()), [] as [PathBuf; 0], "{what}");
        }
    }
}

/// The second of two runs with one output ended, after all its work, with an error that offered nothing; with
/// hints it replaced the file of the first.
#[test]
fn an_output_that_another_run_completes_meanwhile_is_refused_and_stays() {
    let (case, files) = (Case::new(), scratch());
    let path = files.path().join("made");
    let complete = |_: Event| fs::write(&path, "of another run").unwrap();
    let watch = Watch { sink: &complete, ..unwatched() };
    let (disk, chain) = (FaultDisk::healthy(), case.options().chain);
    let (format, coins) = (HintFormat::Peregrine, CoinSource::Chainstate);
    let runs: [&dyn Fn() -> Result<(), Error>; 3] = [
        &|| engine::snapshot::make(&disk, &chain, &path, watch).map(drop),
        &|| engine::hints::make(&disk, &chain, &path, format, watch).map(drop),
        &|| engine::hints::make_from_coins(&disk, &chain, &coins, &path, format, watch).map(drop),
    ];
    for make in runs {
        let error = assert_fails(make(), ErrorKind::Usage, &["it exists already"]);
        assert_offers(&error, &[Remedy::OtherName, Remedy::KeepResult]);
        assert_eq!(taken(&path), b"of another run");
    }
}

/// What a run that was killed at its end leaves cannot be told from what another one needs to go on.
#[test]
fn a_run_that_is_refused_because_its_output_exists_removes_nothing() {
    let (case, mut left) = (tiny_case(), 0);
    // Nothing is spilled: when sorted runs are merged, and so the number of changes, would depend on time.
    let mut options = with_threads(&case.options(), 1).chain;
    options.resume.checkpoint_interval = Duration::ZERO;
    let make = |disk: &FaultDisk, dir: &Path| {
        engine::snapshot::make(disk, &options, &dir.join("made"), unwatched()).map(drop)
    };
    let counting = FaultDisk::counting_changes();
    make(&counting, scratch().path()).unwrap();
    for at in counting.count() - 9..counting.count() {
        let dir = scratch();
        // If only the removal of temporary files fails, that is a warning.
        let _ = make(&FaultDisk::killed_at(at), dir.path());
        if dir.path().join("made").exists() {
            left += leftovers(dir.path()).len();
            let again = || make(&FaultDisk::healthy(), dir.path());
            refused_by(dir.path(), ErrorKind::Usage, &["it exists already"], again);
        }
    }
    assert!(left > 2, "{left}");
}

/// Like all commands that only read a datadir, conversions leave what an interrupted rebuild has left.
#[test]
fn every_format_converts_into_every_other() {
    let (case, files) = (Case::new(), scratch());
    let leftover = case.net("chainstate.peregrine");
    write_file(leftover.join("000007.ldb"), b"half a table");
    write_file(leftover.join("peregrine.mark"), b"PGRN-NEW");
    let path_of = |format: HintFormat| files.path().join(format.name());
    for format in HintFormat::ALL {
        TRUTH.write(&path_of(format), format, &TRUTH.hints(TIP));
        assert_eq!(wrong_blocks(&case.options(), &path_of(format), None), 0, "{format}");
    }
    let (disk, chain, path) = (FaultDisk::healthy(), case.options().chain, files.path().join("converted"));
    let convert =
        |from, to| engine::hints::convert(&disk, &path_of(from), None, &path, to, Some(&chain), unwatched());
    for from in HintFormat::ALL {
        for to in HintFormat::ALL {
            assert_eq!(convert(from, to).unwrap().format, to, "{from} to {to}");
            assert!(taken(&path) == fs::read(path_of(to)).unwrap(), "{from} to {to}");
        }
    }
    assert!(leftover.exists());
    // The numbers of outputs are those of the blocks, of no other bytes.
    case.flip_block(100, 100);
    let error = convert(HintFormat::SwiftSync2140, HintFormat::Peregrine).unwrap_err();
    assert_eq!((error.kind, path.exists()), (ErrorKind::Damaged, false), "{error}");
}

/// All blocks are read once more, and nothing was seen of that.
#[test]
fn hints_show_their_progress_also_after_matching() {
    let (case, files) = (Case::new(), scratch());
    let (path, true_hints) = (files.path().join("made"), files.path().join("hints"));
    let (disk, chain, format) = (FaultDisk::healthy(), case.options().chain, HintFormat::Peregrine);
    TRUTH.write(&true_hints, format, &TRUTH.hints(TIP));
    let make = |watch: Watch<'_>| engine::hints::make(&disk, &chain, &path, format, watch);
    let check = |watch: Watch<'_>| engine::hints::check(&disk, &chain, &true_hints, None, watch);
    let of_coins = |watch: Watch<'_>| {
        engine::hints::make_from_coins(&disk, &chain, &CoinSource::Chainstate, &path, format, watch)
    };
    assert_shown_and_interrupted(Stage::Finish, make);
    assert_shown_and_interrupted(Stage::Finish, check);
    assert_shown_and_interrupted(Stage::Finish, of_coins);
    assert!(!path.exists());
}

/// The chain may grow while hints are being made: completed blocks are not processed again.
#[test]
fn interrupted_making_of_hints_resumes() {
    let (case, files) = (Case::new(), scratch());
    let path = files.path().join("made");
    for (format, first) in
        [(HintFormat::Peregrine, TIP), (HintFormat::Bitmap, TIP - 5), (HintFormat::TheStack, TIP - 6)]
    {
        let expected = hints_of(TIP, &path, format);
        for join_bytes in [None, Some(1)] {
            let options = changed(case.options(), |it| {
                it.chain.hooks.join_bytes = join_bytes;
                it.chain.resume.checkpoint_interval = Duration::ZERO;
            });
            let mut stops = 0;
            loop {
                stops += 1;
                let disk = FaultDisk::interrupting_at_file(2 + 4 * stops);
                let height = if stops < 4 { first } else { TIP };
                let options = up_to(options.clone(), height);
                match engine::hints::make(&disk, &options.chain, &path, format, quiet(disk.interrupt())) {
                    Ok(info) if info.height == Height(TIP) => break,
                    Ok(_) => fs::remove_file(&path).unwrap(),
                    Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
                }
                assert!(stops < 200, "no end");
            }
            assert!(taken(&path) == expected, "{format}");
        }
    }
    assert_eq!(leftovers(files.path()), [] as [&Path; 0], "temporary files are removed");
}

/// Regression: a command with the same work directory used up the checkpoint of another one, or removed it
/// when it was refused because of it.
#[test]
fn a_command_leaves_the_checkpoint_of_another_one() {
    let (case, files) = (Case::new(), scratch());
    let (path, disk) = (files.path().join("made"), FaultDisk::healthy());
    let work_dir = Some(files.path().to_owned());
    let options = changed(bounded(&case.options()), |it| it.chain.work_dir = work_dir.clone());
    run_until(&options, 200).0.unwrap_err();
    let of_rebuild = fs::read(files.path().join("peregrine-work/manifest")).unwrap();
    let make = |disk: &FaultDisk, chain: &ChainOptions| {
        engine::hints::make(disk, chain, &path, HintFormat::Peregrine, quiet(disk.interrupt()))
    };
    let error = make(&FaultDisk::interrupting_at_file(29), &options.chain).unwrap_err();
    assert!(error.remedies.iter().any(|remedy| matches!(remedy, Remedy::Resume { .. })), "{error}");
    let lower = up_to(options.clone(), 1);
    assert_eq!(make(&disk, &lower.chain).unwrap_err().kind, ErrorKind::Usage);
    assert!(files.path().join("made.peregrine-work/manifest").exists());
    make(&disk, &options.chain).unwrap();
    assert!(fs::read(files.path().join("peregrine-work/manifest")).unwrap() == of_rebuild);
    assert!(run(&options).unwrap().resumed > 0);
}

fn hints_from(
    options: &ReindexOptions,
    source: &CoinSource,
    path: &Path,
    format: HintFormat,
) -> Result<Vec<u8>, Error> {
    let disk = FaultDisk::healthy();
    engine::hints::make_from_coins(&disk, &options.chain, source, path, format, unwatched())?;
    Ok(taken(path))
}

/// No undo data is read, and no spend is matched.
#[test]
fn hints_are_made_from_coins_on_disk() {
    let dir = scratch();
    let (path, utxo) = (dir.path().join("hints"), dir.path().join("utxo.dat"));
    let case = case_with(UndoDamage::AllGone);
    let in_dir = changed(case.options(), |it| it.chain.work_dir = Some(dir.path().to_owned()));
    let bytes = make_snapshot(&case.options(), &path);
    fs::write(&utxo, &bytes).unwrap();
    let snapshot = CoinSource::Snapshot(utxo.clone());
    for format in [HintFormat::Peregrine, HintFormat::TheStack, HintFormat::SwiftSync2140] {
        let [at_tip, below] = [TIP, TIP - 3].map(|height| hints_of(height, &path, format));
        for options in variants(&case.options(), dir.path()) {
            assert!(hints_from(&options, &snapshot, &path, format).unwrap() == at_tip, "{format}");
            let lower = up_to(options.clone(), TIP - 3);
            for options in [&options, &lower] {
                let made = hints_from(options, &CoinSource::Chainstate, &path, format).unwrap();
                assert!(made == below, "{format}");
            }
            assert_fails(hints_from(&lower, &snapshot, &path, format), ErrorKind::Usage, &[]);
        }
    }
    let refused = |kind, words: &[&str]| {
        assert_fails(hints_from(&in_dir, &snapshot, &path, HintFormat::Peregrine), kind, words);
        assert!(!path.exists());
        fs::write(&utxo, &bytes).unwrap();
    };
    // A coin with another script, another height, another coinbase flag, and one above the last block.
    let edits: [fn(&mut Vec<StoredCoin>); 4] = [
        |coins| *coins[7].2.last_mut().unwrap() ^= 1,
        |coins| coins[7].1 += 2,
        |coins| coins[7].1 ^= 1,
        |coins| coins[7].1 = 1 << 20,
    ];
    for edit in edits {
        let mut coins = snapshot_coins(&utxo);
        edit(&mut coins);
        fs::remove_file(&utxo).unwrap();
        write_snapshot(&utxo, chain().tip().hash, &coins);
        refused(ErrorKind::Damaged, &["utxo.dat", "do not belong to these blocks"]);
    }
    // The base block is not in the chain.
    flip_bit(&utxo, 20, 0).unwrap();
    refused(ErrorKind::Usage, &[]);
    // A damaged block is reported as such.
    flip_bit(&case.blocks("blk00000.dat"), 5_000, 3).unwrap();
    refused(ErrorKind::Damaged, &["blk00000.dat"]);
}

/// Hints and snapshots of chains that Core has made are the same without undo files.
#[test]
fn results_from_cores_blocks_do_not_depend_on_undo_data() {
    let dir = scratch();
    let path = dir.path().join("made");
    for (name, network) in [("regtest", Network::Regtest), ("signet", Network::Signet)] {
        let Some(datadir) = unpack_core_datadir(name) else { return };
        let mut options = ReindexOptions::new(datadir.path(), network, ScriptChecks::LeftOut);
        options.chain.work_dir = Some(dir.path().to_owned());
        let make = |options: &ReindexOptions| {
            let hints = [HintFormat::Peregrine, HintFormat::SwiftSync2140].map(|format| {
                make_hints(options, &path, format).unwrap();
                taken(&path)
            });
            (make_snapshot(options, &path), hints)
        };
        let expected = make(&trusting(&options));
        UndoDamage::AllGone.apply(datadir.path(), network);
        let blocks = Datadir::at(datadir.path(), network).blocks_dir();
        assert!(files_of(&blocks, "rev").is_empty(), "{name}");
        for options in variants(&options, dir.path()) {
            assert!(make(&options) == expected, "{name}");
        }
        fs::write(&path, &expected.0).unwrap();
        let snapshot = CoinSource::Snapshot(path.clone());
        let from = hints_from(&options, &snapshot, &dir.path().join("hints"), HintFormat::Peregrine);
        assert!(from.unwrap() == expected.1[0], "{name}");
        fs::remove_file(&path).unwrap();
    }
}
