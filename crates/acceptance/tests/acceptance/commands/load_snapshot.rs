//! A snapshot that is loaded becomes a chainstate of its own, under Core's conditions, or nothing changes.
//! `oracle` shows the result to a bitcoind.

use acceptance::prelude::*;
use engine::snapshot::LoadedSnapshotReport;

/// Regtest with a pinned UTXO set after the last block of the chain.
static PARAMS: LazyLock<&ChainParams> =
    LazyLock::new(|| pinning(vec![pinned_set(TIP, chain().model.stats().hash_serialized_3)]));

static SNAPSHOT: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| snapshot_at(TIP));

fn snapshot() -> &'static Path {
    &SNAPSHOT.1
}

fn options(case: &Case) -> ChainOptions {
    ChainOptions { params: *PARAMS, ..case.options().chain }
}

fn load(disk: &dyn Disk, case: &Case, file: &Path) -> Result<LoadedSnapshotReport, Error> {
    engine::snapshot::load(disk, file, &options(case), unwatched())
}

/// A datadir that has the headers of all blocks, and only the genesis block.
fn headers_only() -> Case {
    let case = Case::new();
    case.forget_blocks(|entry| entry.height.0 > 0);
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    case
}

fn snapshot_dir(case: &Case) -> PathBuf {
    case.net("chainstate_snapshot")
}

/// Checks that the snapshot is loaded and nothing else has changed.
fn assert_loaded(case: &Case, before: &disk::index::BlockIndex) {
    let disk = FaultDisk::healthy();
    let tip = chain().tip();
    let reader = ChainstateReader::open(&disk, &snapshot_dir(case)).unwrap();
    assert_eq!(reader.best_block(), tip.hash);
    let stats =
        disk::utxo_stats::stats_unless_stopped(&reader, false, 2, &mut |_, _| false).unwrap().unwrap();
    assert_eq!(stats.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert_eq!(fs::read(snapshot_dir(case).join("base_blockhash")).unwrap(), tip.hash.0);
    let is_main = |entry: &IndexEntry| chain().main().any(|block| block.hash == entry.hash);
    let mut expected = before.clone();
    for entry in expected.entries.iter_mut().filter(|entry| entry.height.0 > 0 && is_main(entry)) {
        entry.status.0 |= BlockStatus::OPT_WITNESS;
    }
    assert!(case.index() == expected, "the index has other marks");
    assert!(leftovers(case.root()).is_empty(), "{:?}", leftovers(case.root()));
}

#[test]
fn a_datadir_with_headers_only_gets_the_chainstate_and_the_marks_of_a_snapshot() {
    let case = headers_only();
    let before = case.index();
    let report = load(&FaultDisk::healthy(), &case, snapshot()).unwrap();
    assert_loaded(&case, &before);
    let tip = chain().tip();
    assert_eq!((report.height.0, report.hash), (tip.height, tip.hash));
    assert_eq!(report.coins, chain().model.stats().txouts);
    assert_eq!(report.chainstate, snapshot_dir(&case));
    let twice = load(&FaultDisk::healthy(), &case, snapshot());
    assert_says(twice, &["has a chainstate of a snapshot already"]);
    fs::write(snapshot_dir(&case).join("base_blockhash"), [9; 32]).unwrap();
    let other = load(&FaultDisk::healthy(), &case, snapshot());
    let other = assert_says(other, &["has a chainstate of a snapshot already"]);
    assert_offers(&other, &[Remedy::MoveSnapshotAway]);
}

/// The snapshot is sound: its user must not look for another one.
#[test]
fn coins_that_read_back_differently_are_not_put_in_place() {
    let case = Case::new();
    let disk = FaultDisk::healthy().with_lie("000002.ldb", |bytes| bytes[100] ^= 1);
    let words = ["the new chainstate", "reads back differently", "check the disk"];
    refused_by(case.root(), ErrorKind::Environment, &words, || load(&disk, &case, snapshot()));
}

#[test]
fn the_chainstate_below_the_snapshot_stays_as_it_is() {
    let case = Case::new();
    let (before, chainstate) = (case.index(), case.net("chainstate"));
    let old = tree(&chainstate);
    load(&FaultDisk::healthy(), &case, snapshot()).unwrap();
    assert_loaded(&case, &before);
    assert_same_tree(&old, &chainstate, "chainstate");
}

/// bitcoind ended at each start with what was loaded: it disconnects the last blocks that are stored, and
/// connects those below the snapshot's block.
#[test]
fn beside_stored_blocks_that_bitcoind_cannot_use_no_snapshot_is_loaded() {
    type Row = (u32, fn(&mut IndexEntry), &'static str);
    let rows: [Row; 2] = [
        (
            TIP,
            |entry| (entry.status, entry.undo_pos) = (BlockStatus::stored(true), None),
            "its block at height 140 has no undo data",
        ),
        (TIP - 1, IndexEntry::forget_block, "its own block is stored, but not all blocks between"),
    ];
    for (height, edit, why) in rows {
        let case = Case::new();
        case.edit_entry(height, edit);
        let load = || load(&FaultDisk::healthy(), &case, snapshot());
        refused_by(case.root(), ErrorKind::Usage, &[why], load);
    }
}

#[test]
fn what_core_would_not_load_is_refused_and_changes_nothing() {
    let scratch = scratch();
    let lacking = scratch.path().join("lacking.dat");
    let tip = chain().tip();
    write_snapshot(&lacking, tip.hash, &snapshot_coins(snapshot())[1..]);
    let at_tip = |entry: &&mut IndexEntry| entry.hash == tip.hash;
    let edited = |edit: &dyn Fn(&mut Vec<IndexEntry>)| {
        let case = headers_only();
        case.edit_index(|index| edit(&mut index.entries));
        case
    };
    let cases: [(Case, &Path, ErrorKind, &str); 6] = [
        (headers_only(), &lacking, ErrorKind::Damaged, "but Bitcoin Core's source has"),
        (Case::at_tip(), snapshot(), ErrorKind::Usage, "is at height 140 already"),
        (
            edited(&|entries| entries.retain(|entry| entry.hash != tip.hash)),
            snapshot(),
            ErrorKind::Usage,
            "has no header of the snapshot's block",
        ),
        (
            edited(&|entries| {
                entries.iter_mut().find(at_tip).unwrap().status.0 |= BlockStatus::FAILED_VALID;
            }),
            snapshot(),
            ErrorKind::Usage,
            "as invalid",
        ),
        (
            // Two more headers on the block before.
            edited(&|entries| {
                let tip = *entries.iter_mut().find(at_tip).unwrap();
                let mut last = tip;
                for height in 0..2 {
                    let mut header = last.header;
                    header.nonce += 7;
                    if height > 0 {
                        header.prev = last.hash;
                    }
                    let hash = mine(&mut header, has_work);
                    last = IndexEntry::of_header(hash, header, Height(tip.height.0 + height));
                    entries.push(last);
                }
            }),
            snapshot(),
            ErrorKind::Usage,
            "another chain of headers",
        ),
        (headers_only(), Path::new("nowhere.dat"), ErrorKind::Damaged, "nowhere.dat"),
    ];
    for (case, file, kind, why) in cases {
        refused_by(case.root(), kind, &[why], || load(&FaultDisk::healthy(), &case, file));
    }
    // A rebuild by the block index was advised, which is refused then.
    let case = Case::at_tip();
    damage::cause("chainstate: of another chain", &case, scratch.path());
    let words = ["is not in the block index"];
    let load = || load(&FaultDisk::healthy(), &case, snapshot());
    let error = refused_by(case.root(), ErrorKind::Damaged, &words, load);
    assert_eq!(error.remedies, [Remedy::ReindexByScan]);
    // Without a pinned hash of this block.
    let case = headers_only();
    let plain = case.options().chain;
    let error = engine::snapshot::load(&FaultDisk::healthy(), snapshot(), &plain, unwatched());
    assert_mentions(&error.unwrap_err(), &["for the heights 110, 200, 299"]);
}

/// Regression: the hash of the set is that of whole scripts, so the chainstate got other bytes than Core's.
#[test]
fn a_snapshot_with_a_script_that_core_would_compress_is_refused() {
    let (case, dir) = (headers_only(), scratch());
    for (name, len) in [("P2SH", 23), ("P2PKH", 25)] {
        let (file, mut coins) = (dir.path().join(name), snapshot_coins(snapshot()));
        let is_whole = coins.iter_mut().any(|(_, _, out)| {
            let (_, compressed) = Coin { code: 0, out: out.as_slice() }.output().unwrap();
            let mut script = vec![len + 6];
            compressed.decompress(&mut script).unwrap();
            let is_fit = script.len() == 1 + usize::from(len);
            if is_fit {
                out.splice(out.len() - 21.., script);
            }
            is_fit
        });
        assert!(is_whole, "{name}: no such coin");
        write_snapshot(&file, chain().tip().hash, &coins);
        let load = || load(&FaultDisk::healthy(), &case, &file);
        refused_by(case.root(), ErrorKind::Damaged, &[name, "stored whole"], load);
    }
}

/// The command that is repeated after a crash at its end finds what was loaded, which was to be moved away.
#[test]
fn after_a_fault_nothing_or_all_is_loaded_and_the_next_command_repairs_what_is_left() {
    let before = headers_only().index();
    let load = |disk: &FaultDisk, case: &Case| load(disk, case, snapshot()).map(drop);
    for trouble in [Trouble::CHANGE, Trouble::NO_CHANGES] {
        let failures = Scenario {
            before: &headers_only,
            run: &load,
            is_whole: &|case, is_done, what| {
                if is_done {
                    assert!(snapshot_dir(case).exists(), "{what}: it reported success");
                }
            },
            succeeds: &|case, what| {
                // The first command, or the repair of what it has left, may have put the result in place.
                if let Err(error) = load(&FaultDisk::healthy(), case) {
                    assert!(error.to_string().contains("already"), "{what}: {error}");
                    assert!(error.to_string().contains("start bitcoind"), "{what}: {error}");
                    assert!(error.remedies.is_empty(), "{what}: {error}");
                }
                assert_loaded(case, &before);
            },
        }
        .suffer(trouble, 1, false);
        assert!(failures > 20, "{failures} operations failed a run");
    }
}
