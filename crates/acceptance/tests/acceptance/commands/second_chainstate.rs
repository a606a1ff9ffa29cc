//! Nodes that were started from a snapshot: what each command does in each state of the two chainstates. Runs
//! every cell of the table in `docs/safety.md`, and compares the table with the results. `UPDATE_DOCS=1`
//! rewrites it.
//!
//! That bitcoind starts on the results is tested beside one (`cli/tests/cli/node/snapshots.rs`).

use acceptance::{prelude::*, shell::Done};
use std::os::unix::fs::MetadataExt as _;
use testkit::datadir;

/// Height of the snapshot's block.
const BASE: u32 = 120;

fn hash(height: u32) -> BlockHash {
    block_at(height).hash
}

/// Regtest with the hashes of two snapshots: of the chain, and of the stale block.
static PARAMS: LazyLock<&ChainParams> = LazyLock::new(|| {
    let on_chain = pinned_set(BASE, stats_by_height(chain())[BASE as usize].hash_serialized_3);
    let block = stale_below(BASE);
    pinning(vec![
        on_chain,
        PinnedUtxoSet { height: Height(block.height), block_hash: block.hash, ..on_chain },
    ])
});

fn options(case: &Case) -> ReindexOptions {
    changed(case.options(), |it| it.chain.params = *PARAMS)
}

static SNAPSHOT: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| snapshot_at(BASE));

fn second_dir(case: &Case) -> PathBuf {
    case.net("chainstate_snapshot")
}

/// Writes a chainstate without coins.
fn write_chainstate(dir: &Path, best: BlockHash) {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir(dir).unwrap();
    datadir::write_chainstate(&FaultDisk::healthy(), dir, [5; 8], best, []).unwrap();
}

fn second(case: &Case, base: BlockHash, best: BlockHash) {
    write_chainstate(&second_dir(case), best);
    fs::write(second_dir(case).join("base_blockhash"), base.0).unwrap();
}

/// Regression: they read the chainstate below the snapshot, which lacks the coins of the blocks above it.
#[test]
fn commands_that_read_coins_read_the_chainstate_that_bitcoind_reads() {
    let case = Case::new();
    let stats = || engine::utxo::stats(&RealDisk, &options(&case).chain, false, unwatched());
    let block = || stats().unwrap().best_block;
    assert_eq!(block(), hash(TIP - 3));
    second(&case, hash(BASE), hash(TIP));
    assert_eq!(block(), hash(TIP));
}

/// Rebuilds the chainstate up to a height.
fn chainstate_at(case: &Case, height: u32) {
    run(&lowered(case.options(), height)).unwrap();
}

/// Leaves only the headers of blocks between two heights, with the marks of a loaded snapshot.
fn without_blocks(case: &Case, from: u32, to: u32) {
    case.edit_index(|index| {
        for entry in index.entries.iter_mut().filter(|entry| (from..=to).contains(&entry.height.0)) {
            *entry = IndexEntry::of_header(entry.hash, entry.header, entry.height);
            entry.status.0 |= BlockStatus::OPT_WITNESS;
        }
    });
}

type Row = (&'static str, fn(&Case));

const ROWS: [Row; 12] = [
    ("just loaded", |case| {
        chainstate_at(case, 40);
        without_blocks(case, 61, TIP);
        second(case, hash(BASE), hash(BASE));
    }),
    ("blocks below its block are being validated, not all are stored", |case| {
        chainstate_at(case, 60);
        without_blocks(case, 61, BASE);
        second(case, hash(BASE), hash(TIP));
    }),
    ("the same, all are stored", |case| {
        chainstate_at(case, 60);
        case.edit_index(|_| {});
        run(&case.options()).unwrap();
        chainstate_at(case, 60);
        second(case, hash(BASE), hash(TIP));
    }),
    ("validated, not merged", |case| {
        run(&case.options()).unwrap();
        chainstate_at(case, BASE);
        second(case, hash(BASE), hash(TIP));
    }),
    ("merged (`base_blockhash` in `chainstate`)", |case| {
        fs::write(case.net("chainstate/base_blockhash"), hash(BASE).0).unwrap();
    }),
    ("found invalid (`chainstate_snapshot_INVALID`)", |case| {
        chainstate_at(case, BASE);
        second(case, hash(BASE), hash(TIP));
        fs::rename(second_dir(case), case.net("chainstate_snapshot_INVALID")).unwrap();
    }),
    ("its block is not on the chain with the most work", |case| {
        run(&case.options()).unwrap();
        chainstate_at(case, stale_below(BASE).height - 1);
        second(case, stale_below(BASE).hash, hash(TIP));
    }),
    ("the chainstate is above its block", |case| {
        run(&case.options()).unwrap();
        second(case, hash(BASE), hash(TIP));
    }),
    ("no `base_blockhash`", |case| fs::create_dir(second_dir(case)).unwrap()),
    ("`base_blockhash` is too short", |case| {
        second(case, hash(BASE), hash(TIP));
        fs::write(second_dir(case).join("base_blockhash"), [7; 31]).unwrap();
    }),
    ("Core's source has no hash of its coins", |case| {
        chainstate_at(case, 60);
        second(case, hash(90), hash(90));
    }),
    ("it does not open", |case| {
        chainstate_at(case, 60);
        second(case, hash(BASE), hash(BASE));
        fs::write(second_dir(case).join("CURRENT"), "MANIFEST-999999\n").unwrap();
    }),
];

const COMMANDS: [&str; 12] = [
    "doctor",
    "reindex",
    "reindex --until-damage",
    "reindex --engine cache",
    "reindex --scan",
    "reindex --to 120",
    "reindex --block",
    "update",
    "undo make",
    "repair",
    "sync",
    "snapshot load",
];

/// Runs a command that knows both snapshots.
fn execute(command: &str, case: &Case) -> Result<Done, Error> {
    let mut shell = Shell::of(case);
    shell.chain.params = *PARAMS;
    shell.snapshot = SNAPSHOT.1.clone();
    shell.given = vec![30];
    shell.run(command)
}

fn doctor(case: &Case) -> Diagnosis {
    execute("doctor", case).unwrap().diagnosis.unwrap()
}

fn cell((what, prepare): &Row, command: &str) -> String {
    let (case, what) = (Case::new(), format!("{what}, {command}"));
    prepare(&case);
    let before = tree(case.root());
    let second = second_dir(&case).exists().then(|| tree(&second_dir(&case)));
    if command == "doctor" {
        let found = doctor(&case);
        assert_same_tree(&before, case.root(), &what);
        return match found.advice {
            Advice::StartBitcoind => "start `bitcoind`".to_owned(),
            Advice::Reindex => "`reindex`".to_owned(),
            Advice::MoveSnapshotAway => "set it aside".to_owned(),
            other => panic!("{what}: {other:?}"),
        };
    }
    // A scan can write the same bytes again, in another directory.
    let inode = |part: &str| fs::metadata(case.net(part)).ok().map(|it| it.ino());
    let index_before = inode("blocks/index");
    let done = execute(command, &case);
    if let Some(second) = &second {
        assert_same_tree(second, &second_dir(&case), &what);
    }
    let after = tree(case.root());
    match done {
        Ok(_) => {
            let state = doctor(&case).found.unwrap();
            assert!(state.snapshot.error.is_none(), "{what}: {:?}", state.snapshot.error);
            let has_changed = |part: &str| {
                let part = case.net(part);
                below(&before, &part) != below(&after, &part)
            };
            let has_new_index = has_changed("blocks/index") || inode("blocks/index") != index_before;
            let cell = match [has_changed("chainstate"), has_new_index] {
                [false, false] => "reads",
                [false, true] => "new index",
                _ if command == "update" => "connects",
                [true, false] => "rebuilds",
                [true, true] => "rebuilds both",
            };
            cell.to_owned()
        }
        Err(error) => {
            assert_same_tree(&before, case.root(), &format!("{what}: {error}"));
            refuses(&error, &what)
        }
    }
}

#[test]
fn each_command_does_to_two_chainstates_what_the_table_says() {
    let (page, rows) = ("docs/safety.md", ROWS.map(|row| row.0));
    assert_table(page, "table of snapshots", "the second chainstate", &rows, &COMMANDS, |row, column| {
        cell(&ROWS[row], COMMANDS[column])
    });
}

/// The chain with the most work does not contain the snapshot's block: bitcoind ended at its next start after
/// such a rebuild.
#[test]
fn a_rebuild_that_leaves_the_branch_of_the_snapshot_is_refused_and_names_the_ways_on() {
    let case = Case::new();
    let height = stale_below(BASE).height;
    chainstate_at(&case, height - 1);
    second(&case, stale_below(BASE).hash, hash(TIP));
    for options in [
        options(&case),
        ReindexOptions { until_damage: true, ..options(&case) },
        ReindexOptions { engine: Engine::Cache, ..options(&case) },
        changed(options(&case), |it| it.chain.scan = true),
        up_to(options(&case), height),
    ] {
        let words = [&format!("above height {}", height - 1), "-reindex-chainstate"];
        let error = refused(&options, ErrorKind::Usage, &words);
        assert_offers(&error, &[Remedy::MoveSnapshotAway, Remedy::OtherOutput]);
    }
    run(&up_to(options(&case), height - 1)).unwrap();
    fs::rename(second_dir(&case), case.net("chainstate_snapshot.old")).unwrap();
    assert_eq!(run(&options(&case)).unwrap().height, Height(TIP));
}

/// bitcoind that checks its block index ended at each start.
#[test]
fn after_the_snapshot_is_moved_away_no_block_above_missing_ones_counts_as_connected() {
    let case = Case::new();
    (ROWS[1].1)(&case);
    fs::rename(second_dir(&case), case.net("chainstate_snapshot.old")).unwrap();
    assert_eq!(run(&options(&case)).unwrap_err().height, Some(Height(61)));
    let report = run(&ReindexOptions { until_damage: true, ..options(&case) }).unwrap();
    assert_eq!(report.height, Height(60));
    let is_connected = |entry: &IndexEntry| entry.status.was_connected();
    let highest = case.index().entries.into_iter().filter(is_connected).map(|entry| entry.height).max();
    assert_eq!(highest, Some(Height(60)));
}

#[test]
fn above_the_snapshots_block_the_height_is_offered_and_the_note_is_true() {
    let case = Case::at_tip();
    chainstate_at(&case, 60);
    second(&case, hash(BASE), hash(TIP));
    let error = refused(&options(&case), ErrorKind::Usage, &[]);
    assert_offers(&error, &[Remedy::StopAtHeight(Height(BASE))]);
    let report = run(&up_to(options(&case), BASE)).unwrap();
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    assert!(notes.iter().any(|note| note.contains("continues with both chainstates")), "{notes:?}");
}

/// Blocks of the second chainstate keep their places: otherwise bitcoind would ask for a download of all.
#[test]
fn damage_above_the_rebuilt_chainstate_is_refused_if_the_second_one_needs_the_block() {
    let case = Case::at_tip();
    chainstate_at(&case, 60);
    second(&case, hash(BASE), hash(TIP));
    case.flip_block(125, 100);
    let until = up_to(ReindexOptions { until_damage: true, ..options(&case) }, BASE);
    refused(&until, ErrorKind::Usage, &["its block at height 125 is damaged or missing"]);
    let error = assert_says(execute("repair", &case), &["has two chainstates"]);
    assert_offers(&error, &[Remedy::MoveSnapshotAway]);
    assert_eq!(doctor(&case).advice, Advice::StartBitcoind);
}

/// The loading of a snapshot marks the headers of all blocks below it, without which bitcoind asks for a
/// `-reindex`. Only the highest and the lowest were looked at.
#[test]
fn a_block_index_from_before_the_snapshot_was_loaded_is_refused() {
    let case = Case::new();
    chainstate_at(&case, 60);
    case.forget_blocks(|entry| entry.height.0 > 60);
    second(&case, hash(BASE), hash(BASE));
    let error = refused(&options(&case), ErrorKind::Usage, &["the block index is older", "height 120"]);
    assert_offers(&error, &[Remedy::MoveSnapshotAway]);
    let case = Case::new();
    (ROWS[0].1)(&case);
    case.edit_entry(90, |entry| entry.status.0 &= !BlockStatus::OPT_WITNESS);
    refused(&options(&case), ErrorKind::Usage, &["the block index is older", "height 90"]);
}

/// No advice is a command that then refuses.
#[test]
fn a_chainstate_without_its_blocks_is_not_to_be_repaired_beside_a_second_one() {
    let case = Case::at_tip();
    write_chainstate(&case.net("chainstate"), BlockHash([9; 32]));
    assert_eq!(doctor(&case).advice, Advice::Repair);
    second(&case, hash(BASE), hash(TIP));
    assert_offers(&execute("repair", &case).map(drop).unwrap_err(), &[Remedy::MoveSnapshotAway]);
    assert_eq!(doctor(&case).advice, Advice::MoveSnapshotAway);
}

/// An update was advised, which was refused for ever.
#[test]
fn a_mark_in_the_chainstate_is_not_to_be_reconsidered_beside_a_second_one() {
    let case = Case::new();
    (ROWS[2].1)(&case);
    case.edit_entry(50, |entry| entry.status.0 |= BlockStatus::FAILED_VALID);
    assert_offers(&execute("update --reconsider", &case).map(drop).unwrap_err(), &[Remedy::MoveSnapshotAway]);
    assert_eq!(doctor(&case).advice, Advice::MoveSnapshotAway);
    fs::rename(second_dir(&case), case.net("chainstate_snapshot.old")).unwrap();
    assert_eq!(doctor(&case).advice, Advice::Reconsider { block: Some(hash(50)), rebuilds: false });
}

/// bitcoind was to be started, and ended; and a sound node was to be repaired, which was refused.
#[test]
fn what_bitcoind_reads_beside_a_second_chainstate_is_sound_before_it_is_to_be_started() {
    type Row = (u32, fn(&Case), &'static str);
    let rows: [Row; 5] = [
        (BASE, |_| {}, "StartBitcoind"),
        (BASE, |case| fs::write(case.net("chainstate/CURRENT"), "").unwrap(), "MoveAway"),
        (BASE, |case| case.flip_block(59, 100), "MoveSnapshotAway"),
        (BASE, |case| case.flip_undo(TIP), "MoveSnapshotAway"),
        // Core's pull request 35307.
        (BASE - 1, |_| {}, "MoveSnapshotAway"),
    ];
    for (last_missing, damage, advice) in rows {
        let case = Case::new();
        chainstate_at(&case, 60);
        without_blocks(&case, 61, last_missing);
        second(&case, hash(BASE), hash(TIP));
        damage(&case);
        for command in ["doctor", "doctor --deep"] {
            let found = execute(command, &case).unwrap().diagnosis.unwrap();
            let text = format!("{:?}", found.advice);
            assert_eq!(text.split(' ').next(), Some(advice), "{last_missing}, {command}: {found:?}");
            assert_eq!(found.is_sound(), advice == "StartBitcoind", "{last_missing}, {command}: {found:?}");
        }
    }
}

/// A repair was named too, which is refused, and the end of damage, and files to restore, without any damage.
#[test]
fn only_bitcoind_gets_the_blocks_below_a_snapshot_that_are_not_stored_yet() {
    let case = Case::new();
    (ROWS[1].1)(&case);
    let error = execute("reindex", &case).map(drop).unwrap_err();
    assert_eq!(error.remedies, [Remedy::LetBitcoindFinish], "{error}");
}

/// The snapshot was to be moved away, and all to be rebuilt. bitcoind makes the other chainstate anew, or, if
/// that one has come to the snapshot's block, goes on without it before it checks blocks.
#[test]
fn a_validated_snapshot_stays_whatever_is_wrong_beside_it() {
    let damages: [fn(&Case); 3] = [
        |case| fs::remove_dir_all(case.net("chainstate")).unwrap(),
        |case| case.flip_block(BASE - 1, 100),
        |case| case.flip_undo(BASE - 1),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let case = Case::at_tip();
        chainstate_at(&case, BASE);
        second(&case, hash(BASE), hash(TIP));
        damage(&case);
        assert_eq!(doctor(&case).advice, Advice::StartBitcoind, "{number}");
    }
}

/// bitcoind was to be started: it validated all blocks again, and then could not rename its chainstate.
#[test]
fn a_chainstate_that_bitcoind_was_about_to_delete_is_to_be_moved_away() {
    let case = Case::at_tip();
    chainstate_at(&case, BASE);
    second(&case, hash(BASE), hash(TIP));
    let left = case.net("chainstate_todelete");
    fs::rename(case.net("chainstate"), &left).unwrap();
    assert_eq!(doctor(&case).advice, Advice::MoveAway { path: left.clone() });
    fs::rename(&left, case.net("chainstate_todelete.old")).unwrap();
    assert_eq!(doctor(&case).advice, Advice::StartBitcoind);
}

/// bitcoind requires the chainstate to be below the snapshot's block, not only to have less work.
#[test]
fn a_snapshot_is_not_loaded_beside_a_chainstate_on_another_branch() {
    let case = Case::new();
    write_chainstate(&case.net("chainstate"), stale_below(BASE).hash);
    let load = || execute("snapshot load", &case);
    refused_by(case.root(), ErrorKind::Usage, &["is not below the snapshot's block"], load);
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    execute("snapshot load", &case).unwrap();
    assert!(doctor(&case).found.unwrap().snapshot.error.is_none());
}

#[test]
fn an_output_that_has_a_second_chainstate_is_refused() {
    let (case, output) = (Case::new(), scratch());
    fs::create_dir_all(output.path().join("regtest/chainstate_snapshot")).unwrap();
    let options = elsewhere(options(&case), output.path());
    assert_offers(&run(&options).unwrap_err(), &[Remedy::EmptyOutput]);
}
