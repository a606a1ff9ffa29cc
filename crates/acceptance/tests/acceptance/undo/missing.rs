//! Commands that change nothing in the datadir work without undo data too, and come to the same results.

use acceptance::prelude::*;
use acceptance::{for_making, for_verifying};
use disk::snapshot::{SnapshotReader, SnapshotWriter};
use engine::{AggregateKind, CoinSource, HintFormat};
use testkit::corrupt::overwrite;
use wire::{Coin, OutPoint};

/// How undo data is missing.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Missing {
    /// There is no undo file.
    Files,
    /// The index records none for some blocks.
    Rows,
    /// Some records are overwritten, which shows only when they are read.
    Records,
}

const ALL_MISSING: [Missing; 3] = [Missing::Files, Missing::Rows, Missing::Records];

fn case_without(missing: Missing) -> Case {
    let case = Case::new();
    match missing {
        Missing::Files => {
            for number in 0..case.index().files.len() {
                std::fs::remove_file(case.blocks(&format!("rev{number:05}.dat"))).unwrap();
            }
        }
        Missing::Rows => case.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.height.0 % 3 == 1) {
                entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
                entry.undo_pos = None;
            }
        }),
        Missing::Records => {
            for height in [60, 100, 139] {
                let entry = acceptance::entry(&case, height);
                overwrite(&acceptance::rev(&case, &entry), entry.undo_pos.unwrap().0 + 1, &[0x55; 9])
                    .unwrap();
            }
        }
    }
    case
}

/// The options with one thread, and with four and a join that is spilled after each block. Temporary files go
/// to `dir`: other tests of this process run at the same time.
fn variants(options: &ReindexOptions, dir: &Path) -> [ReindexOptions; 2] {
    let options = &changed(options.clone(), |it| it.chain.work_dir = Some(dir.to_owned()));
    [with_threads(options, 1), changed(with_threads(options, 4), |it| it.chain.hooks.join_bytes = Some(1))]
}

fn make_snapshot(options: &ReindexOptions, path: &Path) -> Vec<u8> {
    let disk = FaultDisk::healthy();
    engine::make_snapshot(&disk, &for_making(options), path, &|_| {}, &AtomicBool::new(false)).unwrap();
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    bytes
}

#[test]
fn verify_and_snapshots_need_no_undo_data() {
    let (dir, never, disk) = (acceptance::scratch(), AtomicBool::new(false), FaultDisk::healthy());
    let path = dir.path().join("utxo.dat");
    let expected = make_snapshot(&trusting(&Case::new().options()), &path);
    for missing in ALL_MISSING {
        let case = case_without(missing);
        let before = tree(case.root());
        for options in variants(&case.options(), dir.path()) {
            let what = format!("{missing:?} {}", options.chain.threads);
            for against in [false, true] {
                let report = engine::verify(&disk, &for_verifying(&options, against), &|_| {}, &never);
                let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
                let height = chain().tip().height - if against { 3 } else { 0 };
                assert_eq!(report.height, Height(height), "{what}");
                assert_eq!(report.txouts, stats_by_height(chain())[height as usize].txouts, "{what}");
                assert!(report.against_chainstate.is_none_or(|found| found.differences == 0), "{what}");
            }
            assert!(make_snapshot(&options, &path) == expected, "{what}");
            std::fs::write(&path, &expected).unwrap();
            for policy in [UndoPolicy::Auto, UndoPolicy::Make] {
                let options = changed(options.clone(), |it| it.chain.undo = policy);
                let verify = |path: &Path| {
                    let kind = AggregateKind::SipHash128;
                    engine::verify_snapshot(&disk, path, Some(&options.chain), kind, &|_| {}, &never)
                        .unwrap()
                        .proven
                };
                assert_eq!(verify(&path), Some(true), "{what}");
                let mut other = expected.clone();
                // The code of the last coin, or its amount.
                let at = other.len() - 22;
                other[at] ^= 1;
                let wrong = dir.path().join("wrong");
                std::fs::write(&wrong, &other).unwrap();
                assert_eq!(verify(&wrong), Some(false), "{what}");
            }
            std::fs::remove_file(&path).unwrap();
        }
        let [options, _] = variants(&trusting(&case.options()), dir.path());
        let error = engine::verify(&disk, &for_verifying(&options, false), &|_| {}, &never);
        if missing != Missing::Rows {
            assert_eq!(error.map(|report| report.height).unwrap_err().kind, ErrorKind::Damaged);
        }
        assert_same_tree(&before, case.root(), &format!("{missing:?}"));
    }
}

fn make_hints(options: &ReindexOptions, path: &Path, format: HintFormat) -> Vec<u8> {
    let (disk, never) = (FaultDisk::healthy(), AtomicBool::new(false));
    engine::make_hints(&disk, &for_making(options), path, format, &|_| {}, &never).unwrap();
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    bytes
}

fn hints_from(
    options: &ReindexOptions,
    source: &CoinSource,
    path: &Path,
    format: HintFormat,
) -> Result<Vec<u8>, Error> {
    let (disk, never) = (FaultDisk::healthy(), AtomicBool::new(false));
    let options = for_making(options);
    engine::make_hints_from_coins(&disk, &options, source, path, format, &|_| {}, &never)?;
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    Ok(bytes)
}

/// Outpoint, code and output.
type OwnedCoin = (OutPoint, u32, Vec<u8>);

fn coins_of(snapshot: &Path) -> Vec<OwnedCoin> {
    let mut reader = SnapshotReader::open(&vfs::RealDisk, snapshot).unwrap();
    let mut coins = Vec::new();
    while let Some((outpoint, coin)) = reader.advance().unwrap() {
        coins.push((outpoint, coin.code, coin.out.to_vec()));
    }
    coins
}

/// Replaces a snapshot of the last block.
fn write_coins(snapshot: &Path, coins: &[OwnedCoin]) {
    std::fs::remove_file(snapshot).unwrap();
    let (disk, hash) = (FaultDisk::healthy(), chain().tip().hash);
    let mut writer =
        SnapshotWriter::create(&disk, snapshot, Network::Regtest.magic(), hash, coins.len() as u64).unwrap();
    for (outpoint, code, out) in coins {
        writer.add(outpoint, &Coin { code: *code, out }).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn hints_need_no_undo_data() {
    let dir = acceptance::scratch();
    let path = dir.path().join("hints");
    let whole_case = Case::new();
    let whole = trusting(&whole_case.options());
    for (number, format) in HintFormat::ALL.into_iter().enumerate() {
        let expected = make_hints(&whole, &path, format);
        let case = case_without(ALL_MISSING[number % 3]);
        let before = tree(case.root());
        for options in variants(&case.options(), dir.path()) {
            assert!(make_hints(&options, &path, format) == expected, "{format}");
            std::fs::write(&path, &expected).unwrap();
            let check = engine::check_hints(
                &FaultDisk::healthy(),
                &acceptance::for_checking_hints(&options),
                &path,
                Some(format),
                &|_| {},
                &AtomicBool::new(false),
            );
            assert_eq!(check.unwrap().wrong_blocks, 0, "{format}");
            std::fs::remove_file(&path).unwrap();
        }
        assert_same_tree(&before, case.root(), &format.to_string());
        assert!(acceptance::leftovers(dir.path()).is_empty());
    }
}

/// No undo data is read, and no spend is matched.
#[test]
fn hints_are_made_from_coins_on_disk() {
    let dir = acceptance::scratch();
    let (path, utxo) = (dir.path().join("hints"), dir.path().join("utxo.dat"));
    let case = case_without(Missing::Files);
    let in_dir = changed(case.options(), |it| it.chain.work_dir = Some(dir.path().to_owned()));
    let below = Height(chain().tip().height - 3);
    std::fs::write(&utxo, make_snapshot(&case.options(), &path)).unwrap();
    let snapshot = CoinSource::Snapshot(utxo.clone());
    for format in [HintFormat::Peregrine, HintFormat::TheStack, HintFormat::SwiftSync2140] {
        for options in variants(&case.options(), dir.path()) {
            let expected = make_hints(&options, &path, format);
            assert!(hints_from(&options, &snapshot, &path, format).unwrap() == expected, "{format}");
            let lower = ReindexOptions { stop_at_height: Some(below), ..options.clone() };
            let expected = make_hints(&lower, &path, format);
            for options in [options, lower.clone()] {
                let made = hints_from(&options, &CoinSource::Chainstate, &path, format).unwrap();
                assert!(made == expected, "{format}");
            }
            let error = hints_from(&lower, &snapshot, &path, format).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{error}");
        }
    }
    // A coin with another script, another height, another coinbase flag, and one above the last block.
    let bytes = std::fs::read(&utxo).unwrap();
    let coins = coins_of(&utxo);
    let edits: [fn(&mut Vec<OwnedCoin>); 4] = [
        |coins| *coins[7].2.last_mut().unwrap() ^= 1,
        |coins| coins[7].1 += 2,
        |coins| coins[7].1 ^= 1,
        |coins| coins[7].1 = 1 << 20,
    ];
    for edit in edits {
        let mut other = coins.clone();
        edit(&mut other);
        write_coins(&utxo, &other);
        let error = hints_from(&in_dir, &snapshot, &path, HintFormat::Peregrine).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
        acceptance::assert_mentions(&error, &["utxo.dat", "do not belong to these blocks"]);
        assert!(!path.exists());
    }
    // The base block is not in the chain.
    let mut other = bytes.clone();
    other[20] ^= 1;
    std::fs::write(&utxo, &other).unwrap();
    let error = hints_from(&in_dir, &snapshot, &path, HintFormat::Peregrine).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage, "{error}");
    // A damaged block is reported as such.
    std::fs::write(&utxo, &bytes).unwrap();
    testkit::corrupt::flip_bit(&case.blocks("blk00000.dat"), 5_000, 3).unwrap();
    let error = hints_from(&in_dir, &snapshot, &path, HintFormat::Peregrine).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    acceptance::assert_mentions(&error, &["blk00000.dat"]);
}

/// Hints and snapshots of chains that Core has made are the same without undo files.
#[test]
fn results_from_cores_blocks_do_not_depend_on_undo_data() {
    let dir = acceptance::scratch();
    let path = dir.path().join("made");
    for (name, network) in [("regtest", Network::Regtest), ("signet", Network::Signet)] {
        let Some(datadir) = unpack_core_datadir(name) else { return };
        let options = changed(ReindexOptions::new(datadir.path(), network, ScriptChecks::LeftOut), |it| {
            it.chain.work_dir = Some(dir.path().to_owned());
        });
        let make = |options: &ReindexOptions| {
            let hints = [HintFormat::Peregrine, HintFormat::SwiftSync2140];
            (make_snapshot(options, &path), hints.map(|format| make_hints(options, &path, format)))
        };
        let expected = make(&trusting(&options));
        let blocks = disk::datadir::Datadir::at(datadir.path(), network).blocks_dir();
        for file in std::fs::read_dir(blocks).unwrap().map(|file| file.unwrap().path()) {
            if file.file_name().unwrap().to_string_lossy().starts_with("rev") {
                std::fs::remove_file(file).unwrap();
            }
        }
        for options in variants(&options, dir.path()) {
            assert!(make(&options) == expected, "{name}");
        }
        std::fs::write(&path, &expected.0).unwrap();
        let from = hints_from(
            &options,
            &CoinSource::Snapshot(path.clone()),
            &dir.path().join("hints"),
            HintFormat::Peregrine,
        );
        assert!(from.unwrap() == expected.1[0], "{name}");
        std::fs::remove_file(&path).unwrap();
    }
}
