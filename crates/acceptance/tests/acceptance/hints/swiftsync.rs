//! Hints are made from blocks, converted, and continued after interrupts: those of the model in every format.
//! That rebuilds with hints come to the model's coins is tested in `ways/coins.rs`.

use acceptance::prelude::*;
use acceptance::{for_checking_hints, for_making, hinted};
use engine::{HintCheck, HintInfo};
use hinted::{AGGREGATES, Truth, bury, file_in, with_frequent_checkpoints, with_hints, without_undo};
use hints::HintFormat;

/// A datadir of [`acceptance::chain`] whose blocks are all buried, and its true hints.
fn buried() -> (Case, &'static Truth) {
    static TRUTH: OnceLock<Truth> = OnceLock::new();
    let case = Case::new();
    bury(&case.blocks("index"));
    (case, TRUTH.get_or_init(|| Truth::of(acceptance::chain())))
}

fn make(options: &ReindexOptions, path: &Path, format: HintFormat) -> Result<HintInfo, Error> {
    let disk = FaultDisk::healthy();
    engine::make_hints(&disk, &for_making(options), path, format, &|_| {}, &AtomicBool::new(false))
}

fn check(options: &ReindexOptions, path: &Path) -> HintCheck {
    let disk = FaultDisk::healthy();
    engine::check_hints(&disk, &for_checking_hints(options), path, None, &|_| {}, &AtomicBool::new(false))
        .unwrap()
}

#[test]
fn hints_made_from_blocks_equal_those_of_the_model() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let tip = acceptance::chain().tip().height;
    for (number, format) in HintFormat::ALL.into_iter().enumerate() {
        for height in [tip, 100 + 5 * number as u32] {
            let expected = file_in(&files, &format!("{format}-{height}-model"));
            truth.write(&expected, format, &truth.hints(height));
            let expected = std::fs::read(&expected).unwrap();
            for (join_bytes, threads) in [(None, 1), (Some(1), 2)] {
                let made = file_in(&files, &format!("{format}-{height}-{threads}"));
                let stop_at_height = Some(Height(height));
                let options = changed(ReindexOptions { stop_at_height, ..case.options() }, |it| {
                    it.chain.hooks.join_bytes = join_bytes
                });
                let info = make(&with_threads(&options, threads), &made, format).unwrap();
                assert!(std::fs::read(&made).unwrap() == expected, "{format} at {height}");
                assert_eq!((info.height, info.format), (Height(height), format));
                let read = engine::hints_info(&FaultDisk::healthy(), &made, Some(format)).unwrap();
                let read = read.hints;
                assert_eq!((read.hints, read.bytes), (info.hints, info.bytes), "{format} at {height}");
            }
            let again = make(&case.options(), &file_in(&files, &format!("{format}-{height}-1")), format);
            assert_eq!(again.unwrap_err().kind, ErrorKind::Usage, "an existing file is kept");
        }
    }
    assert!(!files.path().join("peregrine-work").exists(), "temporary files are removed");
}

#[test]
fn every_format_converts_into_every_other() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let hints = truth.hints(acceptance::chain().tip().height);
    let expected: Vec<Vec<u8>> = HintFormat::ALL
        .iter()
        .map(|&format| {
            let path = file_in(&files, format.name());
            truth.write(&path, format, &hints);
            assert_eq!(check(&case.options(), &path).wrong_blocks, 0, "{format}");
            std::fs::read(&path).unwrap()
        })
        .collect();
    for from in HintFormat::ALL {
        for (to, expected) in HintFormat::ALL.into_iter().zip(&expected) {
            let path = file_in(&files, "converted");
            let disk = FaultDisk::healthy();
            let info = engine::convert_hints(
                &disk,
                &file_in(&files, from.name()),
                None,
                &path,
                to,
                Some(&ChainOptions::new(case.root(), Network::Regtest, ScriptChecks::LeftOut)),
                Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) },
            );
            assert_eq!(info.unwrap().format, to, "{from} to {to}");
            assert!(std::fs::read(&path).unwrap() == *expected, "{from} to {to}");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

/// Like all commands that only read a datadir.
#[test]
fn converting_hints_leaves_what_an_interrupted_rebuild_has_left() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let [from, to] = ["hints", "converted"].map(|name| file_in(&files, name));
    truth.write(&from, HintFormat::Peregrine, &truth.hints(acceptance::chain().tip().height));
    let leftover = case.root().join("regtest/chainstate.peregrine");
    std::fs::create_dir(&leftover).unwrap();
    std::fs::write(leftover.join("000007.ldb"), b"half a table").unwrap();
    std::fs::write(leftover.join("peregrine.mark"), b"PGRN-NEW").unwrap();
    let (disk, options) =
        (FaultDisk::healthy(), ChainOptions::new(case.root(), Network::Regtest, ScriptChecks::LeftOut));
    let watch = Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) };
    engine::convert_hints(&disk, &from, None, &to, HintFormat::Bitmap, Some(&options), watch).unwrap();
    assert!(leftover.exists());
}

/// The chain may grow while hints are being made: completed blocks are not processed again.
#[test]
fn interrupted_making_of_hints_resumes() {
    let (case, truth) = (Case::new(), Truth::of(acceptance::chain()));
    let files = TempDir::new().unwrap();
    let tip = acceptance::chain().tip().height;
    for (format, first) in
        [(HintFormat::Peregrine, tip), (HintFormat::Bitmap, tip - 5), (HintFormat::TheStack, tip - 6)]
    {
        let expected = file_in(&files, "expected");
        truth.write(&expected, format, &truth.hints(tip));
        for join_bytes in [None, Some(1)] {
            let path = file_in(&files, "made");
            let options = with_frequent_checkpoints(&changed(case.options(), |it| {
                it.chain.hooks.join_bytes = join_bytes
            }));
            let mut stops = 0;
            loop {
                stops += 1;
                let (disk, interrupt) = hinted::interrupting_at_file(3 + 4 * stops);
                let height = if stops < 4 { first } else { tip };
                let options = ReindexOptions { stop_at_height: Some(Height(height)), ..options.clone() };
                match engine::make_hints(&disk, &for_making(&options), &path, format, &|_| {}, &interrupt) {
                    Ok(info) if info.height == Height(tip) => break,
                    Ok(_) => std::fs::remove_file(&path).unwrap(),
                    Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
                }
                assert!(stops < 200, "no end");
            }
            assert!(std::fs::read(&path).unwrap() == std::fs::read(&expected).unwrap(), "{format}");
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::remove_file(&expected).unwrap();
    }
    assert!(!files.path().join("peregrine-work").exists(), "temporary files are removed");
}

/// No block is assumed valid without the user's consent.
#[test]
fn without_undo_data_needs_an_assumed_valid_block_above_the_hints() {
    let (case, truth) = buried();
    let files = TempDir::new().unwrap();
    let path = file_in(&files, "hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(120));
    let with = with_hints(&case.options(), &path, AGGREGATES[0]);
    for assume_valid in
        [AssumeValid::Off, AssumeValid::Default, AssumeValid::Checked, AssumeValid::Block(truth.hash(119))]
    {
        let options =
            changed(without_undo(&with, truth.hash(120)), |it| it.chain.assume_valid = assume_valid);
        let error = acceptance::refused(&options, ErrorKind::Usage);
        assert_mentions(&error, &["up to height 120, where the hints end"]);
        acceptance::assert_offers(&error, &[Remedy::LaterAssumedBlock]);
    }
    run(&without_undo(&with, truth.hash(120))).unwrap();
}
