//! Snapshots made from blocks are byte for byte what Core's `dumptxoutset` wrote at the same heights, and the
//! proof of a snapshot against the blocks detects each wrong coin.

use super::{shared_snapshots::assert_chunks_join, update::repeated_coinbases};
use acceptance::{StoredCoin, prelude::*};
use digest::sha256::sha256;
use engine::snapshot::{SnapshotReport, SnapshotVerdict};
use testkit::mutation::MutatedChain;

/// SHA-256 of the files that Core's `dumptxoutset` wrote, by height; the last of each network are of v31.99
/// (b88bffe550a3).
const MAIN: &[(u32, &str)] = &[
    (100, "0bb890ca492889584245930a3b6af417745ec2ee8eb9240d9b3df29047dab101"),
    (170, "d817cec6ea19774571e55d03294d0cbb81be8357a097993edf25801e908310e2"),
    (1000, "84352726c5b7cf3bf035549c5ea5b634aac72f43bdd3f6b8ec77d38488ea9ac5"),
    (2016, "7986adb46b49826684a15e6168183962b6f57195948438aa3f106dab5fc02f10"),
    (5000, "ff404020fc52313014f503daa3f6657b2f31c5322aa8535ce4c5b5d721072abe"),
    (10000, "c0cec00fa49caff9dcedf2edd75155a04bc40a35aa0edfffc1f298ab25e4d9e9"),
    (14131, "b0d9741ca98b155a740148739a297cc1c4acc9ee7ec04e953705f66fa4548ede"),
];
const TESTNET3: &[(u32, &str)] = &[
    (100, "95aaf36603d8a606db01aacb1f9c7ad97a6fe163e752a3d5b8403df3f5a88cf4"),
    (500, "5458dcff64f134b3ba38dddbfeb9ee1e894671cd61c4c2a38fe1fabd7e5f6fe8"),
    (1000, "6f3eff94b3fd49d6aafe4f6645a50610c4f69ea0ce0f066a1d19472f50c85ed2"),
    (2000, "914bd9635a92db2238e7a45599bf5c308a251100e1a51b62d8901205a4f8e40b"),
    (3000, "08cecba1f666296dc6d03e2ca79a7e07462a36d50f4c8149a006623041cbbad7"),
    (4000, "b5b82564a8deebc81e663943b38910a359c4ef051bdb9f0bfb1590e981be2a15"),
];
const SIGNET: &[(u32, &str)] = &[
    (1, "c0025603464a9fc39dfc99ceecdf6aa0e9ee12f7460c927f11f332ad6e70c298"),
    (50, "612864c8446e4ba5fba3e7f69e5a82bed2cdd15136a68b02542540957d7a03c2"),
    (120, "1c513b39c6abd882b6fe79163091a3958f48d82337d3bc26a9c89ad9a5173fe8"),
];
const REGTEST: &[(u32, &str)] = &[
    (110, "e948d7faeadff1d11aca92c8e8dc7b69c4d304d6dcaff4aac699e9f139c7c001"),
    (250, "7c171b31ecdc3df890f1894f2168ff2386f74a16110e0faa73973e5ea6f5f957"),
    (260, "98a283e6bb24deb0ba2eb663332024266b759bc8d3578ca9bad64d1c03cd0f12"),
];

fn make(options: &ReindexOptions, path: &Path) -> Result<SnapshotReport, Error> {
    engine::snapshot::make(&FaultDisk::healthy(), &options.chain, path, unwatched())
}

fn verify(
    path: &Path,
    datadir: Option<&ReindexOptions>,
    kind: AggregateKind,
) -> Result<SnapshotVerdict, Error> {
    let chain = datadir.map(|options| &options.chain);
    engine::snapshot::verify(&FaultDisk::healthy(), path, chain, kind, unwatched())
}

/// Makes a snapshot, interrupted and resumed until it is complete.
fn make_in_pieces(options: &ReindexOptions, path: &Path) -> SnapshotReport {
    let options = changed(options.clone(), |it| it.chain.resume.checkpoint_interval = Duration::ZERO);
    for stops in 1..200 {
        let disk = FaultDisk::interrupting_at_file(2 + 5 * stops);
        match engine::snapshot::make(&disk, &options.chain, path, quiet(disk.interrupt())) {
            Ok(report) => return report,
            Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
        }
        assert!(!path.exists(), "an incomplete snapshot has its final name");
    }
    panic!("no end");
}

fn as_core(name: &str, network: Network, heights: &[(u32, &str)]) {
    let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { return };
    let (before, files) = (tree(dir.path()), TempDir::new().unwrap());
    let base = ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut);
    let mut made = BTreeMap::new();
    for (number, &(height, expected)) in heights.iter().enumerate() {
        let what = format!("{name} {height}");
        let path = files.path().join(height.to_string());
        let tip = number + 1 == heights.len();
        let options = changed(up_to(with_threads(&base, 1 + number % 2), height), |it| {
            it.chain.hooks.join_bytes = (number % 2 == 0).then_some(1)
        });
        let report = if tip { make_in_pieces(&options, &path) } else { make(&options, &path).unwrap() };
        let bytes = std::fs::read(&path).unwrap();
        let hash: String = sha256(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, expected, "{what}");
        assert_eq!((report.height, report.bytes), (Height(height), bytes.len() as u64), "{what}");
        if let Some(line) = known.iter().find(|line| line["height"] == height) {
            assert_eq!(hex_reversed(&report.hash_serialized_3), line["hash_serialized_3"], "{what}");
            assert_eq!(report.coins, line["txouts"].as_u64().unwrap(), "{what}");
        }
        for kind in if tip { &AGGREGATES[..] } else { &AGGREGATES[number % 3..][..1] } {
            let verdict = verify(&path, Some(&with_threads(&base, 2)), *kind).unwrap();
            assert_eq!(verdict.proven, Some(true), "{what} {kind}");
            // Core pins hashes of other blocks only.
            assert_eq!(verdict.pinned, None, "{what}");
            assert_eq!(verdict.hash_serialized_3, report.hash_serialized_3, "{what}");
        }
        assert_eq!(make(&options, &path).unwrap_err().kind, ErrorKind::Usage, "an existing file is kept");
        made.insert(height, (bytes, report.hash_serialized_3));
    }
    assert_chunks_join(&base, &made, name);
    let (path, stored) = (files.path().join("stored"), ChainOptions::reading(dir.path(), network));
    let make = || engine::snapshot::make_of_chainstate(&FaultDisk::healthy(), &stored, &path, unwatched());
    let (report, (height, _)) = (make().unwrap(), *heights.last().unwrap());
    let tip = files.path().join(height.to_string());
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(tip).unwrap(), "{name}");
    assert_eq!(report.height, Height(height));
    assert_eq!(make().unwrap_err().kind, ErrorKind::Usage, "an existing file is kept");
    assert_same_tree(&before, dir.path(), name);
    assert!(!files.path().join("peregrine-work").exists());
}

#[test]
fn snapshots_equal_cores() {
    as_core("main", Network::Main, MAIN);
    as_core("testnet3", Network::Test, TESTNET3);
    as_core("signet", Network::Signet, SIGNET);
    as_core("regtest", Network::Regtest, REGTEST);
}

/// Nothing was seen of it.
#[test]
fn a_snapshot_of_a_chainstate_is_shown_and_can_be_interrupted() {
    let (case, files) = (Case::new(), scratch());
    let (chain, path) = (case.options().chain, files.path().join("utxo.dat"));
    for stage in [Stage::Finish, Stage::Prove] {
        assert_shown_and_interrupted(stage, |watch| {
            engine::snapshot::make_of_chainstate(&FaultDisk::healthy(), &chain, &path, watch)
        });
    }
}

/// There was no look at the space. Later, as much as the chainstate has was wanted, in the folder of a link
/// instead of the file's.
#[test]
fn a_snapshot_of_a_chainstate_needs_less_space_than_it_where_its_link_leads() {
    let (case, files, elsewhere) = (Case::new(), scratch(), scratch());
    let (chain, link) = (case.options().chain, files.path().join("utxo.dat"));
    let path = elsewhere.path().join("snapshot.dat");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let tables = std::fs::read_dir(case.net("chainstate")).unwrap().map(Result::unwrap);
    let tables = tables.filter(|file| file.path().extension().is_some_and(|suffix| suffix == "ldb"));
    let bytes: u64 = tables.map(|file| file.metadata().unwrap().len()).sum();
    let make = |full: &Path, free: u64| {
        let disk = FaultDisk::healthy().with_free_space(full, free);
        engine::snapshot::make_of_chainstate(&disk, &chain, &link, unwatched())
    };
    for free in [0, bytes / 5 * 3] {
        let error = assert_fails(make(elsewhere.path(), free), ErrorKind::Environment, &["disk space"]);
        assert_offers(&error, &[Remedy::OtherOutput]);
    }
    for (full, free) in [(files.path(), 0), (elsewhere.path(), bytes / 5 * 4)] {
        make(full, free).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

/// Changes a coin: removes it, changes outpoint, code, amount or script, or adds another one.
fn change(coins: &mut Vec<StoredCoin>, rng: &mut Rng, kind: u64) {
    let at = rng.below(coins.len() as u64) as usize;
    match kind {
        0 => drop(coins.remove(at)),
        1 => {
            let mut more = coins[at].clone();
            more.0.txid.0[31] ^= 1 + rng.below(255) as u8;
            coins.push(more);
        }
        2 => coins[at].1 ^= 1,
        3 => coins[at].1 += 2 * (1 + rng.below(100) as u32),
        4 => change_output(&mut coins[at].2, |amount, _| *amount += 1),
        5 => change_output(&mut coins[at].2, |_, script| script.push(0x51)),
        6 => coins[at].0.txid.0[rng.below(32) as usize] ^= 1 << rng.below(8),
        _ => {
            // Exchanges two coins; all outpoints stay.
            let other = (at + 1 + rng.below(coins.len() as u64 - 1) as usize) % coins.len();
            let (a, b) = (coins[at].clone(), coins[other].clone());
            (coins[at].1, coins[at].2) = (b.1, b.2);
            (coins[other].1, coins[other].2) = (a.1, a.2);
        }
    }
    coins.sort_by(|a, b| chainstate_key_order(&a.0, &b.0));
}

#[test]
fn a_removed_added_or_changed_coin_is_found() {
    let (case, files) = (Case::new(), TempDir::new().unwrap());
    let (path, falsified) = (files.path().join("true"), files.path().join("lying"));
    let report = make(&case.options(), &path).unwrap();
    let model = acceptance::chain().model.stats();
    assert_eq!((report.coins, report.hash_serialized_3), (model.txouts, model.hash_serialized_3));
    let coins = snapshot_coins(&path);
    assert_eq!(coins.len() as u64, model.txouts);
    let datadir = with_threads(&case.options(), 2);
    for kind in AGGREGATES {
        assert_eq!(verify(&path, Some(&datadir), kind).unwrap().proven, Some(true));
    }
    for seed in 0..100 {
        let (mut changed, mut rng) = (coins.clone(), Rng::new(seed, "snapshot"));
        change(&mut changed, &mut rng, seed % 8);
        if changed == coins {
            continue;
        }
        write_snapshot(&falsified, report.hash, &changed);
        let verdict = verify(&falsified, Some(&datadir), AGGREGATES[seed as usize % 3]).unwrap();
        assert_eq!(verdict.proven, Some(false), "{seed}");
        assert_ne!(verdict.hash_serialized_3, report.hash_serialized_3, "{seed}");
        std::fs::remove_file(&falsified).unwrap();
    }
}

/// Regression: the sum has no coin that a block spends too early or once more, and the join was not asked.
#[test]
fn no_coins_are_proven_of_a_chain_that_core_rejects() {
    let (base, files) = (base_chain(5), TempDir::new().unwrap());
    for name in ["made-later-in-the-block", "coin-of-the-block-spent-twice"] {
        let mutation = mutations().find(|mutation| mutation.name == name).unwrap();
        let MutatedChain { block, chain, .. } = mutation.apply(&base);
        let (dir, path) = (datadir_of(&chain), files.path().join(name));
        // The coins of a node without that rule.
        let mut model = chain.model;
        assert_eq!(model.apply_unchecked(&block.bytes, block.height), 1);
        let stored = model.coins.iter().map(|(outpoint, coin)| (*outpoint, coin.code, coin.compressed()));
        let mut coins: Vec<StoredCoin> = stored.collect();
        coins.sort_by(|a, b| chainstate_key_order(&a.0, &b.0));
        write_snapshot(&path, block.hash, &coins);
        for kind in AGGREGATES {
            let error = verify(&path, Some(&options(dir.path())), kind).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Consensus, "{name}: {error}");
            assert_eq!((error.core.as_deref(), error.block_hash), (mutation.core, Some(block.hash)));
        }
    }
}

/// It was said that the blocks form no valid chain.
#[test]
fn coins_of_a_chain_with_repeated_coinbases_are_proven() {
    let (blocks, params) = repeated_coinbases();
    let (dir, files) = (behind(blocks.iter(), 109, &layout()), TempDir::new().unwrap());
    let options = changed(options(dir.path()), |it| it.chain.params = params);
    // Blocks have undo data up to the chainstate's best one.
    update(&options.chain).unwrap();
    let (path, lacking) = (files.path().join("true"), files.path().join("lacking"));
    let report = make(&options, &path).unwrap();
    let mut coins = snapshot_coins(&path);
    coins.pop();
    write_snapshot(&lacking, report.hash, &coins);
    for undo in [UndoPolicy::Auto, UndoPolicy::Trust] {
        let options = changed(options.clone(), |it| it.chain.undo = undo);
        let is_proven = |path: &Path| verify(path, Some(&options), AGGREGATES[0]).unwrap().proven.unwrap();
        assert_eq!((is_proven(&path), is_proven(&lacking)), (true, false), "{undo:?}");
    }
}

/// Without blocks there is a hash and no proof; blocks of another chain are refused.
#[test]
fn nothing_is_reported_as_proven_without_the_right_blocks() {
    let (case, files) = (Case::new(), TempDir::new().unwrap());
    let path = files.path().join("utxo.dat");
    let report = make(&case.options(), &path).unwrap();
    let alone = verify(&path, None, AGGREGATES[0]).unwrap();
    assert_eq!((alone.proven, alone.pinned), (None, None));
    // Nothing was seen of it.
    assert_shown_and_interrupted(Stage::Prove, |watch| {
        engine::snapshot::verify(&FaultDisk::healthy(), &path, None, AGGREGATES[0], watch)
    });
    assert_eq!(alone.hash_serialized_3, report.hash_serialized_3);
    let other = Chain::generate(&ChainSpec { blocks: Some(20), ..ChainSpec::new(8, 9_000) });
    let dir = datadir_of(&other);
    let done = verify(&path, Some(&acceptance::options(dir.path())), AGGREGATES[0]);
    assert_fails(done, ErrorKind::Usage, &["base block", "is not in the datadir"]);
    let signet = changed(case.options(), |it| it.chain.params = ChainParams::of(Network::Signet));
    let done = verify(&path, Some(&signet), AGGREGATES[0]);
    assert_fails(done, ErrorKind::Usage, &["the snapshot is for the network regtest"]);
    // A snapshot of a stale block.
    if let Some(stale) = acceptance::chain().blocks.iter().find(|block| block.stale) {
        let path = files.path().join("stale");
        write_snapshot(&path, stale.hash, &[]);
        let done = verify(&path, Some(&case.options()), AGGREGATES[0]);
        assert_fails(done, ErrorKind::Usage, &["not in the most-work chain"]);
    }
}

/// Options for a chain of whose blocks at these heights Core's source had these hashes of the UTXO set.
fn pinned(case: &Case, hashes: &[(u32, [u8; 32])]) -> ReindexOptions {
    let sets = hashes.iter().map(|&(height, hash)| pinned_set(height, hash)).collect();
    changed(case.options(), |it| it.chain.params = pinning(sets))
}

#[test]
fn the_engine_in_order_compares_pinned_hashes_on_the_way() {
    let case = Case::new();
    let at = |height: u32| stats_by_height(chain())[height as usize].hash_serialized_3;
    let with_cache = |options: ReindexOptions| changed(options, |it| it.engine = Engine::Cache);
    let wrong = with_cache(pinned(&case, &[(40, at(40)), (90, [1; 32])]));
    let error = refused(&wrong, ErrorKind::Internal, &["Bitcoin Core's source has another one"]);
    assert_eq!(error.height, Some(Height(90)));
    for memory in [64 << 20, 1 << 30] {
        let mut right = with_cache(pinned(&case, &[(40, at(40)), (90, at(90)), (140, at(140))]));
        right.chain.memory_bytes = memory;
        let (done, events) = run_seen(&right);
        let compared = events.iter().filter_map(|event| match event {
            Event::Note(Note::PinnedHash { height }) => Some(height.0),
            _ => None,
        });
        let report = done.unwrap();
        assert!(report.is_pinned);
        assert_eq!(report.hash_serialized_3, at(140));
        assert!(compared.eq([40, 90]), "{events:?}");
    }
}

#[test]
fn a_result_with_another_hash_than_the_pinned_one_is_not_put_in_place() {
    let elsewhere = scratch();
    let file = elsewhere.path().join("utxo.dat");
    let (case, hash) = (Case::new(), chain().model.stats().hash_serialized_3);
    let wrong = pinned(&case, &[(TIP, [1; 32])]);
    let words = [&chain().model.stats().hash_hex(), "Bitcoin Core's source has another one"];
    let error = refused(&wrong, ErrorKind::Internal, &words);
    assert_eq!(error.block_hash, Some(chain().tip().hash));
    assert_eq!(make(&wrong, &file).unwrap_err().kind, ErrorKind::Internal);
    assert!(!file.exists(), "no snapshot is left");

    assert!(!run(&case.options()).unwrap().is_pinned && !make(&case.options(), &file).unwrap().is_pinned);
    std::fs::remove_file(&file).unwrap();
    let right = pinned(&case, &[(TIP, hash)]);
    assert!(run(&right).unwrap().is_pinned && make(&right, &file).unwrap().is_pinned);
}
