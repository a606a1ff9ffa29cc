//! Hint files of another chain or height, or damaged: refused with the reason where the file shows it, found
//! by the aggregate where it does not. Harmless damage gives the correct coins; none gives wrong ones.

use acceptance::hinted;
use acceptance::prelude::*;
use hinted::{AGGREGATES, Truth, bury, file_in, with_hints, without_undo};
use hints::HintFormat;

/// Number of seeds per kind of damage.
const SEEDS: u64 = 100;

static TRUTH: LazyLock<Truth> = LazyLock::new(|| Truth::of(acceptance::chain()));

fn tip() -> u32 {
    acceptance::chain().tip().height
}

fn buried() -> Case {
    let case = Case::new();
    bury(&case.blocks("index"));
    case
}

/// Formats that contain a network or a block are compared with the chain first.
#[test]
fn network_and_block_of_a_hint_file_must_match_the_chain() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let path = file_in(&files, "hints");
    let hints = TRUTH.hints(tip());
    let tip_hash = Some(TRUTH.hash(tip()));
    let refused = |words: &[&str]| {
        for options in [with_hints(&case.options(), &path, AGGREGATES[0])] {
            for options in [without_undo(&options, TRUTH.hash(tip())), options] {
                let error = refused(&options, ErrorKind::Usage);
                assert_mentions(&error, words);
                assert_eq!(error.file.as_ref(), Some(&path), "{error}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    };
    for network in [Network::Main, Network::Test, Network::Testnet4, Network::Signet] {
        TRUTH.write_as(&path, HintFormat::Peregrine, &hints, Some(network), tip_hash);
        refused(&["these hints are for another network than regtest"]);
    }
    for format in [HintFormat::Peregrine, HintFormat::SwiftSync2140] {
        for hash in [TRUTH.hash(tip() - 1), BlockHash([7; 32])] {
            TRUTH.write_as(&path, format, &hints, Some(Network::Regtest), Some(hash));
            refused(&["these hints belong to another chain", &format!("block {} is", tip())]);
        }
    }
    let below = ReindexOptions { stop_at_height: Some(engine::Height(tip() - 1)), ..case.options() };
    for format in HintFormat::ALL {
        TRUTH.write(&path, format, &hints);
        let error = acceptance::refused(&with_hints(&below, &path, AGGREGATES[0]), ErrorKind::Usage);
        assert_mentions(&error, &[&format!("these hints reach to height {}", tip()), "the chain ends at"]);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Files made for another height than they claim.
#[test]
fn hints_of_another_height_are_found() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let path = file_in(&files, "hints");
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed, "height");
        let format = HintFormat::ALL[seed as usize % 7];
        // True hints of one height, truncated or extended to the length of another.
        let (from, to) = (110 + rng.below(30) as u32, 110 + rng.below(30) as u32);
        let mut hints = TRUTH.hints(from);
        hints.resize(to as usize + 1, Vec::new());
        if hints == TRUTH.hints(to) {
            continue;
        }
        TRUTH.write(&path, format, &hints);
        let options = with_hints(&with_threads(&case.options(), 2), &path, AGGREGATES[seed as usize % 3]);
        refused(&without_undo(&options, TRUTH.hash(tip())), ErrorKind::Hints);
        refused(&options, ErrorKind::Hints);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Hints of other chains of the same length, in the formats that do not name the chain.
#[test]
fn hints_of_another_chain_are_found() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let path = file_in(&files, "hints");
    let anonymous_formats: Vec<_> = HintFormat::ALL
        .into_iter()
        .filter(|format| !matches!(format, HintFormat::Peregrine | HintFormat::SwiftSync2140))
        .collect();
    for seed in 0..SEEDS {
        let spec = ChainSpec { seed: 1_000 + seed, signed: false, ..acceptance::chain().spec.clone() };
        let spec = ChainSpec { bytes: 60_000, ..spec };
        let other = Truth::of(&Chain::generate(&spec));
        other.write(&path, anonymous_formats[seed as usize % anonymous_formats.len()], &other.hints(tip()));
        let options = with_hints(&case.options(), &path, AGGREGATES[seed as usize % 3]);
        refused(&without_undo(&options, TRUTH.hash(tip())), ErrorKind::Hints);
        refused(&options, ErrorKind::Hints);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Damages a file.
type Damage = fn(&mut Vec<u8>, &mut Rng);

/// Damages a file of each format in many ways. Either the rebuild fails and the old chainstate remains, or
/// the damage has no effect and the coins are correct.
fn damage(what: &str, damage: Damage) {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let path = file_in(&files, "hints");
    let expected = stats_by_height(acceptance::chain())[tip() as usize].hash_serialized_3;
    let hints = TRUTH.hints(tip());
    for format in HintFormat::ALL {
        TRUTH.write(&path, format, &hints);
        let whole = std::fs::read(&path).unwrap();
        let before = tree(&case.root().join("regtest/chainstate"));
        let mut caught = 0;
        for seed in 0..SEEDS {
            let mut bytes = whole.clone();
            damage(&mut bytes, &mut Rng::new(seed, what));
            assert_ne!(bytes, whole);
            std::fs::write(&path, &bytes).unwrap();
            let output = TempDir::new().unwrap();
            let plain = ReindexOptions { output: Some(output.path().to_owned()), ..case.options() };
            let with = with_hints(&plain, &path, AGGREGATES[seed as usize % 2]);
            let options = if seed % 2 == 0 { with } else { without_undo(&with, TRUTH.hash(tip())) };
            match run(&options) {
                Ok(report) => {
                    assert_eq!(report.hash_serialized_3, expected, "{format} {what} {seed}");
                    // Peregrine's format has checksums of each part, and one of all, which only `hints info`
                    // checks.
                    let parts = whole.len() - 32;
                    assert!(format != HintFormat::Peregrine || bytes[..parts] == whole[..parts], "{seed}");
                }
                Err(error) => {
                    let kinds = [ErrorKind::Damaged, ErrorKind::Usage, ErrorKind::Hints];
                    assert!(kinds.contains(&error.kind), "{format} {what} {seed}: {error}");
                    assert_eq!(error.file.as_ref(), Some(&path), "{format} {what} {seed}: {error}");
                    assert!(!output.path().join("regtest/chainstate").exists());
                    caught += 1;
                }
            }
        }
        // Bits of gzip's header, or of padding, may have no effect.
        assert!(caught > 80, "{format} {what}: found {caught} of {SEEDS}");
        assert_same_tree(&before, &case.root().join("regtest/chainstate"), what);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn truncated_files_are_found() {
    damage("truncated", |bytes, rng| {
        let len = rng.below(bytes.len() as u64) as usize;
        bytes.truncate(len);
    });
}

#[test]
fn extended_files_are_found() {
    damage("extended", |bytes, rng| {
        let more = 1 + rng.below(40) as usize;
        let zeros = rng.chance(1, 3);
        bytes.extend((0..more).map(|_| if zeros { 0 } else { rng.next_u64() as u8 }));
    });
}

#[test]
fn flipped_bits_are_found() {
    damage("flipped", |bytes, rng| {
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
    });
}

#[test]
fn files_without_hints_are_refused() {
    let (case, files) = (Case::new(), TempDir::new().unwrap());
    let path = file_in(&files, "hints");
    let options = with_hints(&case.options(), &path, AGGREGATES[0]);
    assert_mentions(&refused(&options, ErrorKind::Damaged), &["hints"]);
    for bytes in [&b""[..], b"UTXO", b"PGHINTS", b"\x1f\x8b\x08", b"no hints at all"] {
        std::fs::write(&path, bytes).unwrap();
        let error = refused(&options, ErrorKind::Damaged);
        assert_eq!(error.file.as_ref(), Some(&path), "{error}");
    }
}
