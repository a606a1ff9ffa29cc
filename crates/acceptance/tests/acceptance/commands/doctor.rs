//! What a diagnosis says of sound datadirs, of what is none, of users, locks and leftovers. What it says of
//! each kind of damage, and that its advice helps, is in `input/situations.txt`.

use crate::sync::unprune::interrupt_flush;
use acceptance::prelude::*;
use acceptance::{seen, update::write_in_order};
use engine::{
    doctor::{Absence, ChainstatePosition, DatabaseState, DatadirState, LockState},
    recover,
    recover::{Recovery, RecoveryReport},
};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use testkit::corrupt::add_table;

/// Every path below `dir` with its length, modification time, owner and bytes: more than a reader may change.
fn everything(dir: &Path) -> BTreeMap<PathBuf, (u64, i64, i64, u32, Vec<u8>)> {
    let (mut found, mut pending) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(path) = pending.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.mode(), bytes));
    }
    found
}

fn location(case: &Case) -> Location {
    Location::new(case.root(), Network::Regtest)
}

fn examine(root: &Path, network: Network, deep: bool) -> Result<Diagnosis, Error> {
    let options = DoctorOptions { deep, ..DoctorOptions::new(root, network) };
    diagnose(&RealDisk, &options, unwatched())
}

fn examine_on(disk: &FaultDisk, case: &Case) -> Diagnosis {
    diagnose(disk, &DoctorOptions::new(case.root(), Network::Regtest), unwatched()).unwrap()
}

/// Examines a datadir, and checks that nothing in it changes.
fn diagnosed(root: &Path, deep: bool) -> Diagnosis {
    let before = everything(root);
    let found = examine(root, Network::Regtest, deep).unwrap();
    assert!(everything(root) == before, "the datadir has changed");
    found
}

/// Examines a datadir in both ways, and checks that both give this advice.
fn advised(case: &Case, advice: &Advice) -> DatadirState {
    let deep = diagnosed(case.root(), true);
    assert_eq!(&deep.advice, advice, "{deep:?}");
    let found = diagnosed(case.root(), false);
    assert_eq!(&found.advice, advice, "{found:?}");
    *found.found.unwrap()
}

fn is_sound(case: &Case) -> bool {
    diagnosed(case.root(), true).is_sound()
}

/// bitcoind stores up to 1,024 blocks ahead of its best block, and connects them when it starts.
#[test]
fn a_chainstate_is_rebuilt_if_it_is_further_behind_than_a_node_stores_ahead() {
    let chain = Chain::generate(&ChainSpec { empty_tail: 1_030, ..ChainSpec::new(21, 40_000) });
    let dir = scratch();
    chain.write_datadir(dir.path(), &layout()).unwrap();
    for (behind, advice) in [(1_025, Advice::Reindex), (1_024, Advice::StartBitcoind)] {
        run(&up_to(options(dir.path()), chain.tip().height - behind)).unwrap();
        let found = diagnosed(dir.path(), false);
        assert_eq!(found.advice, advice, "{behind} blocks behind: {found:?}");
    }
}

#[test]
fn a_sound_datadir_needs_only_bitcoind() {
    let case = Case::at_tip();
    let state = advised(&case, &Advice::StartBitcoind);
    assert_eq!(state.dir, case.root().join("regtest"));
    assert!(matches!(state.lock, LockState::Free));
    assert!(state.start.last.version.is_none() && state.rebuild.refusal.is_none());
    assert_eq!((state.index.stored_height, state.index.header_height), (Height(TIP), Height(TIP)));
    assert_eq!(state.index.headers as usize, case.index().entries.len());
    assert!(state.index.blocks > TIP && !state.index.is_pruned);
    assert_eq!((state.blocks.lacking(), state.undo.lacking()), (0, 0));
    assert_eq!(state.blocks.files as usize, case.index().files.len());
    let blk = files_of(&case.blocks(""), "blk");
    assert_eq!(state.blocks.bytes, blk.values().map(|bytes| bytes.len() as u64).sum::<u64>());
    assert_eq!(state.chainstate.best_block, Some(chain().tip().hash));
    assert_eq!(state.chainstate.height, Some(Height(TIP)));
    assert_eq!(state.chainstate.position, Some(ChainstatePosition::AtTip));
    assert!(state.rebuild.free.is_some() && state.rebuild.need.chainstate > 0);
    assert!(state.rebuild.bytes_per_second.is_some() && state.rebuild.duration.is_some());
    assert!(!state.snapshot.exists && state.indexes.is_empty() && !state.leftovers.has_journal);
    let deep = diagnosed(case.root(), true);
    assert!(deep.is_sound());
    let deep = deep.found.unwrap().deep.unwrap();
    assert_eq!((deep.blocks, deep.damaged), (TIP + 1, 0));
    let (coins, hash) = deep.coins.unwrap().unwrap();
    let stats = acceptance::stats(case.root(), Network::Regtest).unwrap();
    assert_eq!((coins, hash), (stats.txouts, stats.hash_serialized_3));
}

#[test]
fn a_chainstate_a_few_blocks_behind_is_bitcoinds_to_complete() {
    let case = Case::new();
    let state = advised(&case, &Advice::StartBitcoind);
    assert_eq!(state.chainstate.position, Some(ChainstatePosition::Behind(3)));
    assert!(state.is_sound());
}

#[test]
fn what_is_no_datadir_is_named() {
    let (case, empty) = (Case::new(), scratch());
    let absence = |root: &Path, network| {
        let found = examine(root, network, false).unwrap();
        (found.found.unwrap_err(), found.advice)
    };
    let missing = empty.path().join("no/such");
    assert_eq!(absence(&missing, Network::Main), (Absence::NoDirectory, Advice::NameDatadir));
    assert_eq!(absence(empty.path(), Network::Main), (Absence::NoBlocks, Advice::Sync));
    let file = empty.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert_eq!(absence(empty.path(), Network::Main), (Absence::NoBlocks, Advice::NameDatadir));
    fs::write(empty.path().join("bitcoin.conf"), "").unwrap();
    assert_eq!(absence(empty.path(), Network::Main), (Absence::NoBlocks, Advice::Sync));
    assert_eq!(absence(&file, Network::Main), (Absence::NoDirectory, Advice::NameDatadir));
    let other =
        (Absence::OtherNetworks(vec![Network::Regtest]), Advice::ChooseNetwork { network: Network::Regtest });
    assert_eq!(absence(case.root(), Network::Signet), other);
    let own = examine(&case.root().join("regtest"), Network::Regtest, false).unwrap();
    assert_eq!(own.found.unwrap().dir, case.root().join("regtest"));
    // The main network's directory with another network's blocks.
    let advice = |root: &Path| examine(root, Network::Main, false).unwrap().advice;
    let moved = scratch();
    assert_eq!(advice(&case.root().join("regtest")), Advice::ChooseNetwork { network: Network::Regtest });
    copy_dir(&case.root().join("regtest"), moved.path()).unwrap();
    // Regression: with regtest, the advice was to choose the main network.
    assert_eq!(advice(moved.path()), Advice::MoveAway { path: moved.path().join("blocks") });
}

/// Its user was told to name the datadir, for ever.
#[test]
fn a_node_that_has_lost_blocks_and_chainstate_is_known_by_its_peers_and_its_log() {
    let log = b"2026 Bitcoin Core version v30.0.0 (release build)\n".to_vec();
    let peers = |network: Network| [&network.magic()[..], &[4; 99]].concat();
    for (name, bytes, advice) in [
        ("peers.dat", peers(Network::Regtest), Advice::Sync),
        ("peers.dat", peers(Network::Main), Advice::NameDatadir),
        ("debug.log", log, Advice::Sync),
        ("debug.log", b"the log of something else\n".to_vec(), Advice::NameDatadir),
    ] {
        let dir = scratch();
        write_file(dir.path().join("regtest").join(name), bytes);
        let found = diagnosed(dir.path(), false);
        assert_eq!((found.found.unwrap_err(), found.advice), (Absence::NoBlocks, advice), "{name}");
    }
}

/// A repair needs a block index, and the scan that makes one needs the genesis block.
#[test]
fn without_the_genesis_block_and_an_index_nothing_is_to_be_repaired() {
    let case = Case::at_tip();
    let genesis = entry(&case, 0);
    let end = genesis.data_pos.unwrap().0 + chain().main().next().unwrap().bytes.len() as u64;
    for number in 1..case.index().files.len() {
        fs::remove_file(case.blocks(&format!("blk{number:05}.dat"))).unwrap();
    }
    truncate(&case.blocks("blk00000.dat"), end).unwrap();
    fs::remove_file(case.blocks("index/CURRENT")).unwrap();
    assert_eq!(diagnosed(case.root(), false).advice, Advice::Repair, "the genesis block is there");
    flip_bit(&case.blocks("blk00000.dat"), end - 250, 0).unwrap();
    advised(&case, &Advice::BitcoindReindex);
    let error = try_repair(&repairing(case.root(), &[])).unwrap_err();
    assert_mentions(&error, &["the genesis block"]);
}

/// Block files of another node, beside the own index: `repair` stored the whole chain a second time.
#[test]
fn last_blocks_that_lie_elsewhere_in_the_files_need_only_a_scan() {
    let case = Case::at_tip();
    let [last, before] = [TIP, TIP - 1].map(|height| entry(&case, height));
    for (height, IndexEntry { file, data_pos, undo_pos, .. }) in [(TIP, before), (TIP - 1, last)] {
        case.edit_entry(height, |it| (it.file, it.data_pos, it.undo_pos) = (file, data_pos, undo_pos));
    }
    advised(&case, &Advice::ReindexByScan);
}

#[test]
fn a_pruned_datadir_has_nothing_to_rebuild_from() {
    let case = Case::at_tip();
    situation::cause("pruned", case.root(), case.root());
    let state = diagnosed(case.root(), true).found.unwrap();
    assert!(state.index.is_pruned && state.rebuild.duration.is_none() && state.rebuild.need.chainstate == 0);
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    let found = diagnosed(case.root(), false);
    assert!(!found.is_sound() && found.advice == Advice::SyncPruned, "{found:?}");
    // Then, that was advised for ever, and refused: there are no block files.
    let case = Case::at_tip();
    write_log(&case, "");
    situation::cause("pruned, and all block and undo files are missing", case.root(), case.root());
    assert_eq!(diagnosed(case.root(), false).advice, Advice::BitcoindReindex);
}

#[test]
fn lost_block_files_without_an_index_are_downloaded() {
    let case = Case::at_tip();
    situation::cause("blk: one missing, and the index", case.root(), case.root());
    // bitcoind -reindex would discard the chainstate.
    assert_eq!(diagnosed(case.root(), false).advice, Advice::Repair);
    situation::cause("blk: all missing", case.root(), case.root());
    assert_eq!(diagnosed(case.root(), false).advice, Advice::NameBlocksdir { directory: None });
    // That there are none elsewhere is in the log.
    write_log(&case, "");
    assert_eq!(diagnosed(case.root(), false).advice, Advice::Sync, "bitcoind -reindex would discard it, too");
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    assert_eq!(diagnosed(case.root(), false).advice, Advice::Sync);
}

/// Writes the log of a start of bitcoind.
fn write_log(case: &Case, arguments: &str) {
    let log = format!("2026 Bitcoin Core version v30.0.0 (release build)\n{arguments}\n");
    fs::write(case.net("debug.log"), log).unwrap();
}

/// The log of the copy names the files of the other node, to which both would write.
#[test]
fn a_copied_datadir_does_not_get_the_block_files_of_the_other_node() {
    let (case, other) = (Case::at_tip(), Case::at_tip());
    situation::cause("blk: all missing", case.root(), case.root());
    let keys = "2026 Using obfuscation key for blocksdir *.dat files";
    write_log(&case, &format!("{keys} ({}): '0000000000000000'", other.blocks("").display()));
    advised(&case, &Advice::TakeFromFiles { directory: other.root().to_owned() });
}

/// Nothing said what they are, and the blocks were downloaded again.
#[test]
fn block_files_that_were_copied_one_folder_too_deep_are_named_and_taken() {
    let case = Case::at_tip();
    fs::create_dir(case.blocks("blocks")).unwrap();
    fs::copy(case.blocks("blk00001.dat"), case.blocks("blocks/blk00001.dat")).unwrap();
    assert_eq!(advised(&case, &Advice::StartBitcoind).blocks.other_names, ["blocks/blk00001.dat"]);
    fs::remove_file(case.blocks("blk00001.dat")).unwrap();
    let directory = case.blocks("");
    advised(&case, &Advice::TakeFromFiles { directory: directory.clone() });
    let options = RepairOptions { sources: vec![directory], ..repairing(case.root(), &[]) };
    assert!(try_repair(&options).unwrap().taken > 0);
    advised(&case, &Advice::StartBitcoind);
}

/// bitcoind was to be started for ever, also after `--deep`: it ended when it merged the table.
#[test]
fn a_damaged_table_whose_rows_are_not_looked_up_is_seen() {
    for (name, key, advice) in
        [("blocks/index", b"Fz", Advice::ReindexByScan), ("chainstate", b"Bz", Advice::Reindex)]
    {
        let case = Case::at_tip();
        let table = add_table(&case.net(name), key, b"1");
        advised(&case, &Advice::StartBitcoind);
        flip_bit(&table, 5, 0).unwrap();
        advised(&case, &advice);
        run(&case.scan()).unwrap();
        advised(&case, &Advice::StartBitcoind);
    }
}

/// With `--deep`, all was said to be well.
#[test]
fn an_error_of_a_database_that_nothing_explains_stays() {
    let case = Case::at_tip();
    write_log(&case, "2026 Fatal LevelDB error: Corruption: not an sstable (bad magic number)");
    assert_eq!(diagnosed(case.root(), false).advice, Advice::LookDeeper);
    let found = diagnosed(case.root(), true);
    assert!(!found.is_sound() && found.advice == Advice::StartBitcoind, "{found:?}");
    assert_offers(&found.found.unwrap().start.faults[0].error, &[Remedy::ReindexByScan]);
}

/// `bitcoind -reindex` without that option would begin a chain without blocks.
#[test]
fn block_files_in_another_directory_are_not_called_lost() {
    let (case, other) = (Case::at_tip(), scratch());
    fs::write(case.net("debug.log"), "").unwrap();
    situation::cause("blocks: in a directory that only the user knows", case.root(), other.path());
    let other = other.path().join("other");
    advised(&case, &Advice::NameBlocksdir { directory: None });
    write_log(&case, &format!("2026 Command-line arg: blocksdir=\"{}\"", other.display()));
    advised(&case, &Advice::NameBlocksdir { directory: Some(other.clone()) });
    let mut options = DoctorOptions::new(case.root(), Network::Regtest);
    options.chain.blocksdir = Some(other.clone());
    let found = examined(&options);
    assert!(found.is_sound() && found.advice == Advice::StartBitcoind, "{found:?}");
    // A caller that says that they are in the datadir is believed if they are not where they were.
    options.chain.blocksdir = Some(case.root().to_owned());
    let found = examined(&options);
    assert_eq!(found.advice, Advice::NameBlocksdir { directory: Some(other.clone()) });
    fs::remove_dir_all(other.join("regtest")).unwrap();
    let found = examined(&options);
    assert_eq!(found.advice, Advice::BitcoindReindex);
    // With their disk not mounted, bitcoind -reindex would discard sound databases.
    for folder in ["", "regtest/blocks"] {
        fs::create_dir_all(other.join(folder)).unwrap();
        options.chain.blocksdir = Some(other.clone());
        assert_eq!(examined(&options).advice, Advice::NameBlocksdir { directory: None }, "{folder}");
    }
}

/// Once, `undo make` was advised, which was refused for this reason, for ever.
#[test]
fn what_is_in_the_place_of_new_files_is_to_be_moved() {
    let places = ["blocks/peregrine-undo", "blocks/index.peregrine", "chainstate.peregrine.exchange"];
    for name in places.into_iter().chain(["chainstate.peregrine"]) {
        let case = Case::at_tip();
        let place = case.net(name);
        write_file(place.join("notes.txt"), "a user's");
        assert!(is_sound(&case), "it matters only if something must be written");
        fs::remove_file(case.blocks("rev00001.dat")).unwrap();
        advised(&case, &Advice::MoveAway { path: place.clone() });
        fs::rename(&place, case.root().join("away")).unwrap();
        advised(&case, &Advice::MakeUndo);
    }
    let case = Case::at_tip();
    let work = case.net("peregrine-work");
    fs::write(&work, "a file").unwrap();
    fs::remove_file(case.blocks("rev00001.dat")).unwrap();
    advised(&case, &Advice::MoveAway { path: work });
}

/// Once, `-checklevel=1` was advised until pruning had deleted the blocks that lack undo data.
#[test]
fn undo_data_that_a_pruned_node_lacks_matters_while_bitcoind_reads_it_when_it_starts() {
    for (below, advice) in [(6, Advice::StartBitcoind), (5, Advice::StartWithoutUndo)] {
        let case = Case::at_tip();
        situation::cause("pruned", case.root(), case.root());
        let lacking = entry(&case, TIP - below).hash;
        case.forget_undo(|entry| entry.hash == lacking);
        advised(&case, &advice);
        // As bitcoind leaves a file that it has begun anew.
        fs::write(rev(&case, &entry(&case, TIP)), [0; 9_000]).unwrap();
        advised(&case, &Advice::StartWithoutUndo);
    }
}

/// The blocks above were connected once, and have undo data.
fn restore_old_chainstate(case: &Case) {
    run(&lowered(case.options(), 60)).unwrap();
}

fn prune(case: &Case) {
    situation::cause("pruned", case.root(), case.root());
}

fn lose_coins(case: &Case) {
    let all = stored_coins(case);
    let (lost, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, code, _)| code >> 1 == TIP - 1);
    assert!(!lost.is_empty(), "a coin of the last block but one");
    rewrite_chainstate(case, kept);
}

/// bitcoind was to be started. It made a wrong UTXO set of a damaged block that it read again, or ended with
/// "Corrupt block found" or "Corrupted block database detected", there and then or at the next start; or it
/// asked for a `-reindex`, since the block index does not say that a block came with its witnesses.
#[test]
fn bitcoind_is_not_to_be_started_before_what_it_reads_is_sound() {
    type Row = (fn(&Case), fn(&Case), Option<Advice>);
    let rows: [Row; 10] = [
        // With `--deep`, the chainstate was to be rebuilt, which bitcoind completes.
        (|case| interrupt_flush(case, 50), |_| {}, Some(Advice::StartBitcoind)),
        (|case| interrupt_flush(case, 100), |case| case.flip_block(110, 90), Some(Advice::Repair)),
        (|case| interrupt_flush(case, 50), prune, None),
        (restore_old_chainstate, |case| case.flip_block(110, 90), Some(Advice::Repair)),
        (restore_old_chainstate, |case| case.flip_undo(110), Some(Advice::Update)),
        (
            restore_old_chainstate,
            |case| fs::remove_file(rev(case, &entry(case, TIP))).unwrap(),
            Some(Advice::Reindex),
        ),
        (restore_old_chainstate, |_| {}, Some(Advice::StartBitcoind)),
        (|_| {}, lose_coins, Some(Advice::Reindex)),
        (prune, lose_coins, None),
        (
            |_| {},
            |case| case.edit_entry(30, |entry| entry.status.0 &= !BlockStatus::OPT_WITNESS),
            Some(Advice::ReindexByScan),
        ),
    ];
    for (number, (prepare, damage, advice)) in rows.into_iter().enumerate() {
        let case = Case::at_tip();
        let path = case.net("chainstate");
        let advice = advice.unwrap_or(Advice::MoveAway { path });
        prepare(&case);
        damage(&case);
        let found = diagnosed(case.root(), false);
        assert_eq!(found.advice, advice, "{number}: {found:?}");
        let are_sound = [found.is_sound(), is_sound(&case)];
        assert_eq!(are_sound, [advice == Advice::StartBitcoind; 2], "{number}: {found:?}");
        match advice {
            Advice::Repair => drop(try_repair(&repairing(case.root(), &[&honest()])).unwrap()),
            Advice::Reindex => drop(run(&case.options()).unwrap()),
            Advice::ReindexByScan => drop(run(&case.scan()).unwrap()),
            Advice::Update => drop(update(&update_options(case.root(), AT_ONCE, None)).unwrap()),
            Advice::MoveAway { path } => {
                fs::rename(&path, path.with_extension("old")).unwrap();
                assert_eq!(diagnosed(case.root(), false).advice, Advice::SyncPruned, "{number}");
                continue;
            }
            _ => {}
        }
        assert!(is_sound(&case), "{number}");
    }
}

/// An update was advised, which was refused for ever: it appends to no such file.
#[test]
fn a_short_undo_file_above_the_chainstate_is_no_reason_for_an_update() {
    let dir = scratch();
    write_in_order(dir.path(), &chain().main().cloned().collect::<Vec<_>>());
    run(&up_to(options(dir.path()), TIP - 3)).unwrap();
    let path = Datadir::at(dir.path(), Network::Regtest).rev_path(FileNo(0));
    truncate(&path, fs::metadata(&path).unwrap().len() - 1).unwrap();
    for (is_pruned, advice) in [(false, Advice::Reindex), (true, Advice::StartWithoutUndo)] {
        edit_index(&dir.path().join("regtest/blocks/index"), |index| index.pruned = is_pruned).unwrap();
        assert_eq!(diagnosed(dir.path(), false).advice, advice);
    }
}

/// Nothing was seen of it for minutes.
#[test]
fn reading_the_blocks_of_an_interrupted_flush_is_a_stage() {
    let case = Case::at_tip();
    let options = DoctorOptions::new(case.root(), Network::Regtest);
    let events = || seen(|watch| diagnose(&RealDisk, &options, watch).unwrap()).1;
    assert!(events().is_empty(), "the last blocks take no time");
    interrupt_flush(&case, 50);
    assert_eq!(stages(&events()), ["check"]);
}

#[test]
fn what_an_interrupted_run_has_left_is_named() {
    let case = Case::new();
    let (done, _) = run_until(&bounded(&case.options()), 40);
    done.unwrap_err();
    let state = *diagnosed(case.root(), false).found.unwrap();
    let (done, total) = state.leftovers.checkpoint.unwrap();
    assert!(done <= total && total == TIP + 1, "{done} of {total}");
    assert!(!state.leftovers.has_journal && state.leftovers.checkpoint_version.is_none());
    // It was said to be resumed by the same command, which refuses it.
    let old = Case::new();
    let older = changed(bounded(&old.options()), |it| it.chain.hooks.version = "0.9.0");
    run_until(&older, 40).0.unwrap_err();
    let state = *diagnosed(old.root(), false).found.unwrap();
    assert!(state.leftovers.checkpoint_version.unwrap().starts_with("0.9.0"));
    // Cut in each step of a replacement.
    let (mut journals, mut refusals) = (0, 0);
    for at in (0..).step_by(3) {
        let case = Case::new();
        let disk = FaultDisk::killed_at(at);
        let done = engine::reindex(&disk, &case.options(), unwatched());
        if done.is_ok() && !disk.has_failed() {
            break;
        }
        let found = diagnosed(case.root(), false);
        if found.found.as_ref().unwrap().leftovers.has_journal {
            journals += 1;
            assert_eq!(found.advice, Advice::FinishReplacement);
            let chainstate = ChainOptions::reading(case.root(), Network::Regtest);
            let stats = || engine::utxo::stats(&FaultDisk::healthy(), &chainstate, false, unwatched());
            let before = tree(case.root());
            if let Err(error) = stats() {
                refusals += 1;
                assert_eq!((error.kind, &error.remedies[..]), (ErrorKind::Damaged, &[Remedy::Recover][..]));
                let file = error.file.as_ref().unwrap();
                assert!(file.ends_with("peregrine-commit"), "{error}");
            }
            assert!(tree(case.root()) == before, "{at}: a command that only reads has changed something");
            let work = case.net("peregrine-work");
            write_file(work.join("manifest"), "");
            write_file(work.join("run-00000001.run"), "PGRN-RUN");
            let report = recover(&FaultDisk::healthy(), &location(&case)).unwrap();
            assert_eq!((report.recovery, report.has_removed), (Some(Recovery::Finished), false), "{at}");
            assert!(!work.exists(), "{at}: that of the finished replacement");
            stats().unwrap();
            assert!(is_sound(&case), "{at}");
        }
    }
    assert!(journals > refusals && refusals > 0, "no run was cut in each phase: {journals}, {refusals}");
}

#[test]
fn recovery_removes_what_was_being_built_and_leaves_a_sound_datadir_alone() {
    let case = Case::at_tip();
    let before = tree(case.root());
    let nothing = RecoveryReport {
        network: Network::Regtest,
        dir: case.root().join("regtest"),
        recovery: None,
        has_removed: false,
    };
    let disk = FaultDisk::killed_at(0);
    assert_eq!(recover(&disk, &location(&case)).unwrap(), nothing);
    let building = case.net("chainstate.peregrine/peregrine.mark");
    write_file(&building, "PGRN-NEW");
    let other = FaultDisk::healthy().with_user(fs::metadata(case.root()).unwrap().uid() + 4711);
    assert_eq!(recover(&other, &location(&case)).unwrap_err().kind, ErrorKind::Environment);
    let removed = RecoveryReport { has_removed: true, ..nothing };
    assert_eq!(recover(&FaultDisk::healthy(), &location(&case)).unwrap(), removed);
    assert!(tree(case.root()) == before);
    // The output of a rebuild has no block files.
    fs::remove_dir_all(case.blocks("")).unwrap();
    write_file(&building, "PGRN-NEW");
    assert_eq!(recover(&FaultDisk::healthy(), &location(&case)).unwrap(), removed);
    let nowhere = Location::new(&case.root().join("none"), Network::Regtest);
    assert_eq!(recover(&FaultDisk::healthy(), &nowhere).unwrap_err().kind, ErrorKind::Damaged);
}

#[test]
fn blocks_beyond_use_are_counted_without_the_file_that_cannot_be_read() {
    let case = Case::at_tip();
    let last = case.index().files.len() - 1;
    let name = |after: usize| format!("blk{:05}.dat", last + after);
    for after in 1..=3 {
        fs::copy(case.blocks(&name(0)), case.blocks(&name(after))).unwrap();
    }
    let found = |disk: &FaultDisk| examine_on(disk, &case).found.unwrap().blocks;
    let all = found(&FaultDisk::healthy());
    assert_eq!((all.unknown_files, all.unread.len()), (3, 0));
    let others = found(&FaultDisk::healthy().with_denied(&case.blocks(&name(2))));
    assert_eq!((others.unknown_files, others.unknown_blocks), (2, all.unknown_blocks / 3 * 2));
    assert_eq!(others.unread, [name(2)]);
    assert!(others.to_string().contains(&format!("{} cannot be read", name(2))), "{others}");
}

/// bitcoind was to be started, and ended with "Disk space is too low!".
#[test]
fn a_full_disk_is_to_be_emptied_before_bitcoind_is_started() {
    let (case, elsewhere) = (Case::at_tip(), scratch());
    let advice = |bytes| {
        let found = examine_on(&FaultDisk::healthy().with_free_space(case.root(), bytes), &case);
        (found.is_sound(), found.advice)
    };
    assert_eq!(advice(100 << 20), (true, Advice::StartBitcoind));
    let directory = case.root().join("regtest");
    assert_eq!(advice((100 << 20) - 1), (false, Advice::FreeSpace { directory }));
    // The space for temporary files was measured beside a link to the chainstate, where none are written.
    acceptance::link_away(&case.net("chainstate"), &elsewhere.path().join("ssd"));
    let found = examine_on(&FaultDisk::healthy().with_free_space(case.root(), 0), &case).found.unwrap();
    assert!(found.rebuild.need.temporary > 0 && !found.rebuild.lacks_space, "{:?}", found.rebuild);
}

/// Only the directory of the network was asked, and bitcoind was to be started.
#[test]
fn a_database_on_a_file_system_that_is_read_only_is_not_one_with_which_bitcoind_starts() {
    let case = Case::at_tip();
    for name in ["", "blocks", "blocks/index", "chainstate"] {
        let dir = case.net(name);
        let found = examine_on(&FaultDisk::healthy().with_read_only(&dir), &case);
        assert!(!found.is_sound() && found.advice == Advice::CheckDisk, "{name}: {found:?}");
    }
}

#[test]
fn what_belongs_to_other_users_is_named() {
    let case = Case::at_tip();
    let uid = fs::metadata(case.root()).unwrap().uid();
    let owner = examine_on(&FaultDisk::healthy().with_user(uid + 4711), &case).found.unwrap().owner;
    assert_eq!((owner.uid, owner.user, owner.foreign.len()), (uid, uid + 4711, 0));
    if std::os::unix::fs::chown(case.net("chainstate"), Some(4711), None).is_err() {
        return testkit::data::skip("only root can give files to another user");
    }
    let foreign = vec![case.net("chainstate")];
    assert_eq!(diagnosed(case.root(), false).advice, Advice::ChangeOwner { directories: foreign });
    // Blocks that root has copied there do not make the node root's.
    let give_all = |path: &Path| {
        assert!(Command::new("chown").args(["-R", "4711"]).arg(path).status().unwrap().success());
    };
    std::os::unix::fs::chown(case.root().join("regtest"), Some(4711), None).unwrap();
    give_all(&case.net("chainstate"));
    let foreign = ["blocks", "blocks/index", ".lock"].map(|name| case.net(name)).to_vec();
    assert_eq!(diagnosed(case.root(), false).advice, Advice::ChangeOwner { directories: foreign });
    // What `sudo bitcoind` has left, or a copy made by root. Once, only the first three were looked at.
    fs::write(case.blocks("xor.dat"), [0; 8]).unwrap();
    give_all(case.root());
    for (name, foreign) in [
        ("debug.log", "debug.log"),
        ("blocks/blk00009.dat", "blocks/blk00009.dat"),
        ("blocks/.lock", "blocks/.lock"),
        ("blocks/xor.dat", "blocks"),
        ("blocks/rev00001.dat", "blocks"),
        ("blocks/index/LOCK", "blocks/index"),
        ("chainstate/000002.ldb", "chainstate"),
    ] {
        let [path, foreign] = [name, foreign].map(|name| case.net(name));
        let _ = fs::File::create_new(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        let directories = vec![foreign];
        assert_eq!(diagnosed(case.root(), false).advice, Advice::ChangeOwner { directories }, "{name}");
        std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
    }
    // What bitcoind does not open, such as `lost+found` of a disk, can be root's.
    let lost = case.net("chainstate/lost+found");
    fs::create_dir(&lost).unwrap();
    fs::set_permissions(&lost, fs::Permissions::from_mode(0o700)).unwrap();
    let owner = diagnosed(case.root(), false).found.unwrap().owner;
    assert_eq!((owner.uid, owner.foreign), (4711, Vec::new()));
}

#[test]
fn what_may_not_be_read_is_not_called_damaged() {
    let case = Case::at_tip();
    let uid = fs::metadata(case.root()).unwrap().uid();
    fs::write(case.blocks("xor.dat"), [0; 8]).unwrap();
    for (name, directory) in [
        ("blocks/xor.dat", "blocks"),
        ("blocks/blk00001.dat", "blocks"),
        ("blocks/index/CURRENT", "blocks/index"),
        ("chainstate/CURRENT", "chainstate"),
    ] {
        let [path, directory] = [name, directory].map(|name| case.net(name));
        let as_user = |user| examine_on(&FaultDisk::healthy().with_user(user).with_denied(&path), &case);
        assert_eq!(as_user(uid + 4711).advice, Advice::RunAs { user: uid }, "{name}");
        let found = as_user(uid);
        assert_eq!(found.advice, Advice::ChangeOwner { directories: vec![directory] }, "{name}");
        let state = found.found.unwrap();
        let errors =
            [&state.chainstate.state, &state.index.state].into_iter().filter_map(|state| match state {
                DatabaseState::Unreadable(error) => Some(error),
                _ => None,
            });
        let error = errors.chain(&state.key).next().unwrap();
        assert!(error.remedies.contains(&Remedy::GrantPermission), "{name}: {error}");
    }
}

/// It was taken for an error of the disk.
#[test]
fn undo_data_that_may_not_be_read_is_given_to_the_owner() {
    let case = Case::at_tip();
    let disk = FaultDisk::healthy().with_denied(&rev(&case, &entry(&case, 50)));
    let options = DoctorOptions { deep: true, ..DoctorOptions::new(case.root(), Network::Regtest) };
    let found = diagnose(&disk, &options, unwatched()).unwrap();
    assert_eq!(found.advice, Advice::ChangeOwner { directories: vec![case.blocks("")] });
}

#[test]
fn other_contents_are_reported() {
    let case = Case::at_tip();
    let net = case.root().join("regtest");
    fs::create_dir_all(net.join("indexes/txindex")).unwrap();
    fs::create_dir_all(net.join("chainstate_snapshot")).unwrap();
    fs::write(net.join("debug.log"), "2026 Bitcoin Core version v30.0.0\n2026 ...\n").unwrap();
    let state = *diagnosed(case.root(), false).found.unwrap();
    assert_eq!((state.indexes.len(), state.indexes[0].name.as_str()), (1, "txindex"));
    // Without `base_blockhash`, bitcoind ignores the directory.
    assert!(!state.snapshot.exists && state.snapshot.error.is_none());
    assert_eq!(state.start.last.version.as_deref(), Some("Bitcoin Core version v30.0.0"));
    fs::write(net.join("chainstate_snapshot/base_blockhash"), [7; 32]).unwrap();
    let found = diagnosed(case.root(), false);
    assert!(!found.is_sound() && found.advice == Advice::MoveSnapshotAway, "{found:?}");
    assert!(found.found.unwrap().snapshot.exists);
}

/// A datadir that contains only the genesis block, or not even that.
#[test]
fn a_new_datadir_is_sound() {
    let (dir, peer) = (scratch(), honest());
    try_run(&SyncOptions { blocks_only: true, ..from_to(dir.path(), &[&peer], 0) }).unwrap();
    let found = diagnosed(dir.path(), false);
    assert!(found.is_sound() && found.advice == Advice::StartBitcoind, "{found:?}");
    assert!(diagnosed(dir.path(), true).is_sound(), "coins that bitcoind has yet to write were missed");
    // Once, a rebuild was advised if bitcoind had been killed before it wrote its databases. That is right
    // where more than the genesis block is stored: bitcoind would overwrite those blocks.
    for (height, advice) in [(0, Advice::StartBitcoind), (1, Advice::ReindexByScan)] {
        let stored = SyncOptions { blocks_only: true, ..from_to(dir.path(), &[&peer], height) };
        try_run(&stored).unwrap();
        let index = dir.path().join("regtest/blocks/index");
        edit_index(&index, |index| *index = Default::default()).unwrap();
        let found = diagnosed(dir.path(), true);
        assert_eq!((found.is_sound(), &found.advice), (height == 0, &advice), "nothing is damaged");
        fs::remove_dir_all(&index).unwrap();
        assert_eq!(diagnosed(dir.path(), false).advice, advice);
    }
}

#[test]
fn datadirs_of_bitcoin_core_are_sound() {
    for (name, network) in CORE_DATADIRS {
        let (Some(dir), Some(tip)) = (unpack_core_datadir(name), known_tip(name)) else { continue };
        let before = everything(dir.path());
        let found = examine(dir.path(), network, true).unwrap();
        assert!(everything(dir.path()) == before, "{name} has changed");
        assert!(found.is_sound(), "{name}: {found:?}");
        assert_eq!(found.advice, Advice::StartBitcoind);
        let state = found.found.unwrap();
        assert_eq!(state.chainstate.height.map(|height| u64::from(height.0)), tip["height"].as_u64());
        let (coins, hash) = state.deep.unwrap().coins.unwrap().unwrap();
        assert_eq!(Some(coins), tip["txouts"].as_u64(), "{name}");
        assert_eq!(hex_reversed(&hash), tip["hash_serialized_3"], "{name}");
    }
}
