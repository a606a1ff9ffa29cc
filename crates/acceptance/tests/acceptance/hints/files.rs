//! Hint files that are refused: of another network, chain or height, damaged, or used otherwise than the run
//! that is resumed. Harmless damage gives the correct coins; none gives wrong ones.

use acceptance::prelude::*;

#[test]
fn hints_that_cannot_be_those_of_the_chain_are_refused_with_the_reason() {
    let (case, files, hints) = (buried(), TempDir::new().unwrap(), TRUTH.hints(TIP));
    let path = files.path().join("hints");
    let refused = |kind, stop_at: Option<u32>, words: &[&str]| {
        let plain = changed(case.options(), |it| it.chain.stop_at_height = stop_at.map(Height));
        let with = with_hints(&plain, &path, AGGREGATES[0]);
        for options in [without_undo(&with, TRUTH.hash(TIP)), with] {
            let error = refused(&options, kind, words);
            assert_eq!(error.file.as_ref(), Some(&path), "{error}");
        }
        let _ = fs::remove_file(&path);
    };
    for network in [Network::Main, Network::Test, Network::Testnet4, Network::Signet] {
        let hash = Some(TRUTH.hash(TIP));
        TRUTH.write_as(&path, HintFormat::Peregrine, &hints, Some(network), hash);
        refused(ErrorKind::Usage, None, &["these hints are for another network than regtest"]);
    }
    for format in [HintFormat::Peregrine, HintFormat::SwiftSync2140] {
        for hash in [TRUTH.hash(TIP - 1), BlockHash([7; 32])] {
            TRUTH.write_as(&path, format, &hints, Some(Network::Regtest), Some(hash));
            let words = ["these hints belong to another chain", &format!("block {TIP} is")];
            refused(ErrorKind::Usage, None, &words);
        }
    }
    for format in HintFormat::ALL {
        TRUTH.write(&path, format, &hints);
        let words = [&format!("these hints reach to height {TIP}"), "the chain ends at"];
        refused(ErrorKind::Usage, Some(TIP - 1), &words);
    }
    refused(ErrorKind::Damaged, None, &["hints"]);
    for bytes in [&b""[..], b"UTXO", b"PGHINTS", b"\x1f\x8b\x08", b"no hints at all"] {
        fs::write(&path, bytes).unwrap();
        refused(ErrorKind::Damaged, None, &[]);
    }
}

type Damage = fn(&mut Vec<u8>, &mut Rng);

const DAMAGES: [(&str, Damage); 3] = [
    ("truncated", |bytes, rng| bytes.truncate(rng.below(bytes.len() as u64) as usize)),
    ("extended", |bytes, rng| {
        let (more, zeros) = (1 + rng.below(40), rng.chance(1, 3));
        bytes.extend((0..more).map(|_| if zeros { 0 } else { rng.next_u64() as u8 }));
    }),
    ("flipped", |bytes, rng| {
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
    }),
];

/// Damages a file of a format as often as `seeds` says. Either the rebuild fails and the old chainstate
/// remains, or the damage has no effect and the coins are correct.
fn damage(format: HintFormat, seeds: u64) {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let path = files.path().join("hints");
    TRUTH.write(&path, format, &TRUTH.hints(TIP));
    let (whole, before, mut caught) = (fs::read(&path).unwrap(), tree(case.root()), 0);
    for seed in 0..seeds {
        let (what, damage) = DAMAGES[(seed % 3) as usize];
        let (mut bytes, what) = (whole.clone(), format!("{format}, {what}, {seed}"));
        damage(&mut bytes, &mut Rng::new(seed, what.as_str()));
        assert_ne!(bytes, whole);
        fs::write(&path, &bytes).unwrap();
        let output = TempDir::new().unwrap();
        let plain = elsewhere(case.options(), output.path());
        let with = with_hints(&plain, &path, AGGREGATES[seed as usize / 2 % 2]);
        let options = if seed % 2 == 0 { with } else { without_undo(&with, TRUTH.hash(TIP)) };
        match run(&options) {
            Ok(report) => {
                assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3, "{what}");
                // Peregrine's format has checksums. The one of all bytes was once checked by `hints info`
                // only.
                assert_ne!(format, HintFormat::Peregrine, "{what}");
            }
            Err(error) => {
                let kinds = [ErrorKind::Damaged, ErrorKind::Usage, ErrorKind::Hints];
                assert!(kinds.contains(&error.kind), "{what}: {error}");
                assert_eq!(error.file.as_ref(), Some(&path), "{what}: {error}");
                assert!(!output.path().join("regtest/chainstate").exists(), "{what}");
                caught += 1;
            }
        }
    }
    // Bits of gzip's header, or of padding, may have no effect.
    assert!(caught * 5 > seeds * 4, "{format}: found {caught} of {seeds}");
    assert_same_tree(&before, case.root(), &format.to_string());
}

fn damage_all_formats(seeds: u64) {
    each_operation(1, |number| {
        HintFormat::ALL.get(number as usize).map(|&format| damage(format, seeds)).is_none()
    });
}

#[test]
fn damage_to_a_file_is_found_or_has_no_effect() {
    damage_all_formats(72);
}

mod long {
    #[test]
    fn much_damage_to_a_file_is_found_or_has_no_effect() {
        super::damage_all_formats(300);
    }
}

/// It was found only after all blocks had been matched.
#[test]
fn a_check_of_hints_finds_damage_to_their_file_before_it_reads_a_block() {
    let (case, files) = (Case::new(), TempDir::new().unwrap());
    let path = files.path().join("hints");
    TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(TIP));
    // In the first group.
    flip_bit(&path, 60, 0).unwrap();
    let options = case.options().chain;
    let check = |watch: Watch<'_>| engine::hints::check(&RealDisk, &options, &path, None, watch);
    let (done, events) = acceptance::seen(check);
    assert_eq!(assert_fails(done, ErrorKind::Damaged, &[]).file, Some(path.clone()));
    assert_eq!(stages(&events), [] as [&str; 0]);
}

/// No block is assumed valid without the user's consent.
#[test]
fn without_undo_data_needs_an_assumed_valid_block_above_the_hints() {
    let (case, files, truth) = (buried(), TempDir::new().unwrap(), &*TRUTH);
    let path = files.path().join("hints");
    truth.write(&path, HintFormat::Peregrine, &truth.hints(120));
    let with = with_hints(&case.options(), &path, AGGREGATES[0]);
    for assume_valid in
        [AssumeValid::Off, AssumeValid::Default, AssumeValid::Checked, AssumeValid::Block(truth.hash(119))]
    {
        let options =
            changed(without_undo(&with, truth.hash(120)), |it| it.chain.assume_valid = assume_valid);
        let error = refused(&options, ErrorKind::Usage, &["up to height 120, where the hints are used"]);
        assert_offers(&error, &[Remedy::LaterAssumedBlock]);
    }
    run(&without_undo(&with, truth.hash(120))).unwrap();
}

/// Runs until there is a checkpoint.
fn leave_checkpoint(options: &ReindexOptions) {
    let manifest = options.chain.datadir.join("regtest/peregrine-work/manifest");
    for at in 3.. {
        let done = run_on(&FaultDisk::interrupting_at_file(at), options).map(|report| report.height);
        assert_eq!(done.unwrap_err().kind, ErrorKind::Interrupted);
        if manifest.exists() {
            return;
        }
        assert!(at < 100, "no checkpoint");
    }
}

#[test]
fn a_checkpoint_made_with_other_hints_is_refused() {
    let (case, files) = (buried(), TempDir::new().unwrap());
    let (path, other_path) = (files.path().join("hints"), files.path().join("other-hints"));
    TRUTH.write(&path, HintFormat::Peregrine, &TRUTH.hints(TIP));
    TRUTH.write(&other_path, HintFormat::Peregrine, &TRUTH.hints(TIP - 1));
    let mut options = with_hints(&case.options(), &path, AGGREGATES[0]);
    options.chain.resume.checkpoint_interval = Duration::ZERO;
    leave_checkpoint(&options);
    let others = [
        with_hints(&options, &other_path, AGGREGATES[0]),
        with_hints(&options, &path, AGGREGATES[1]),
        without_undo(&options, TRUTH.hash(TIP)),
        ReindexOptions { hints: None, ..options.clone() },
    ];
    for other in &others {
        let error = refused(other, ErrorKind::Usage, &["other options", "hints"]);
        assert_offers(&error, &[Remedy::RepeatOptions, Remedy::StartOver]);
    }
    let report = run(&options).unwrap();
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    // With --restart other options are accepted, and the old checkpoint is not needed.
    for other in others {
        leave_checkpoint(&options);
        std::fs::write(case.net("peregrine-work/manifest"), "damaged").unwrap();
        assert_fails(run(&other), ErrorKind::Damaged, &[]);
        let report = run(&changed(other, |it| it.chain.resume.restart = true)).unwrap();
        assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    }
}
