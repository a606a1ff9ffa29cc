//! `doctor` says how each index stands to the chainstate, and which must be made anew.

use acceptance::indexes::{
    Rows, assert_sound, behind, database, edit_rows, make, of_case, rows, update, with_indexes,
};
use acceptance::prelude::*;
use acceptance::seen;
use acceptance::sync::run as download;
use disk::node_indexes::{height_key, removed_key};
use engine::doctor::{FoundIndex, IndexSetting, IndexStanding, NodeSettings};
use testkit::corrupt::add_table;

fn index(case: &Case, kind: IndexKind) -> (FoundIndex, Advice, bool) {
    let found = diagnosed(case.root(), false);
    let (advice, state) = (found.advice.clone(), found.found.unwrap());
    let is_sound = state.is_sound();
    let index = state.indexes.into_iter().find(|index| index.kind == kind).unwrap();
    (index, advice, is_sound)
}

/// Asserts that an index is damaged, and to be made anew.
fn assert_damaged((found, advice, is_sound): (FoundIndex, Advice, bool), name: &'static str) {
    assert!(matches!(found.standing, IndexStanding::Damaged(_)) && !is_sound, "{found:?}");
    assert_eq!(advice, Advice::MakeIndexes { names: vec![name] });
}

#[test]
fn sound_indexes_need_nothing() {
    let (case, _) = with_indexes(TxForm::ByTxid);
    for kind in IndexKind::ALL {
        let (found, advice, is_sound) = index(&case, kind);
        assert!(matches!(found.standing, IndexStanding::Synced), "{found:?}");
        assert!(is_sound && advice == Advice::StartBitcoind, "{advice:?}");
    }
    // Once, nothing was seen for minutes while their tables were read.
    let options = DoctorOptions { deep: true, ..DoctorOptions::new(case.root(), Network::Regtest) };
    let (_, events) = seen(|watch| diagnose(&FaultDisk::healthy(), &options, watch).unwrap());
    let is_of_tables =
        |event: &&Event| matches!(event, Event::Progress(it) if it.blocks_total == 0 && it.bytes_total > 0);
    assert!(events.iter().filter(is_of_tables).count() >= IndexKind::ALL.len(), "each has a table");
    let (case, _) = behind(Case::new(), TxForm::ByBlock);
    for kind in IndexKind::ALL {
        let (found, advice, is_sound) = index(&case, kind);
        assert!(matches!(found.standing, IndexStanding::Behind(3)), "{found:?}");
        assert!(is_sound && advice == Advice::StartBitcoind, "{advice:?}");
    }
    let indexes = case.net("indexes");
    fs::rename(indexes.join("coinstatsindex"), indexes.join("coinstats")).unwrap();
    let (found, _, is_sound) = index(&case, IndexKind::CoinStats);
    assert!(matches!(found.standing, IndexStanding::Superseded) && is_sound, "{found:?}");
}

/// It was to be made anew for ever, since what is made is the other one.
#[test]
fn broken_coin_statistics_of_an_old_release_beside_those_of_a_later_one_are_superseded() {
    let (case, _) = with_indexes(TxForm::ByTxid);
    let [new, old] = ["coinstatsindex", "coinstats"].map(|name| case.net("indexes").join(name));
    copy_dir(&new, &old).unwrap();
    fs::write(old.join("db/CURRENT"), b"MANIFEST-999999\n").unwrap();
    let (found, advice, is_sound) = index(&case, IndexKind::CoinStats);
    assert!(found.name == "coinstats" && matches!(found.standing, IndexStanding::Superseded), "{found:?}");
    assert!(is_sound && advice == Advice::StartBitcoind, "{advice:?}");
    // A bitcoind of the old release does not start with it.
    fs::remove_dir_all(new).unwrap();
    let (found, _, is_sound) = index(&case, IndexKind::CoinStats);
    assert!(matches!(found.standing, IndexStanding::Damaged(_)) && !is_sound, "{found:?}");
}

/// Changes the rows of one index, and returns how it stands then.
fn changed(kind: IndexKind, change: impl Fn(&mut Rows)) -> (FoundIndex, Advice, bool) {
    let (case, _) = with_indexes(TxForm::ByTxid);
    edit_rows(&database(&case, kind), change);
    index(&case, kind)
}

/// Lets an index end with a block that no block index contains.
fn end_elsewhere(rows: &mut Rows) {
    rows.insert(b"B".to_vec(), [&[0; 4][..], &[1], &[7; 32]].concat());
}

/// bitcoind was to be started as usual, and ended: "best block of coinstatsindex not found". Without the
/// setting, the index stayed broken for ever, and what an update of it offered was refused.
#[test]
fn an_index_that_a_pruned_node_can_neither_continue_nor_make_is_to_go_after_its_setting() {
    let case = Case::at_tip();
    let (kind, file, line) = (IndexKind::CoinStats, case.root().join("bitcoin.conf"), Some(1));
    let options = IndexOptions { kinds: vec![kind], ..of_case(&case, TxForm::ByTxid) };
    make(&FaultDisk::healthy(), &options).unwrap();
    edit_rows(&database(&case, kind), end_elsewhere);
    situation::cause("pruned", case.root(), case.root());
    let indexes = vec![IndexSetting { kind, file: file.clone(), line }];
    let settings = NodeSettings { indexes, ..NodeSettings::default() };
    let found = examined(&DoctorOptions { settings, ..DoctorOptions::new(case.root(), Network::Regtest) });
    assert_eq!(found.advice, Advice::CorrectSetting { file, line, is_removable: true });
    for work in [update, make] {
        assert_offers(&work(&FaultDisk::healthy(), &options).unwrap_err(), &[Remedy::Unprune]);
    }
    let path = case.net("indexes/coinstatsindex");
    assert_eq!(diagnosed(case.root(), false).advice, Advice::MoveAway { path: path.clone() });
    fs::rename(&path, path.with_extension("old")).unwrap();
    assert!(diagnosed(case.root(), false).is_sound());
}

/// Deletes the blocks of the main chain below a height, as pruning does.
fn prune(case: &Case, below: u32) {
    case.edit_index(|index| {
        index.pruned = true;
        for entry in index.entries.iter_mut().filter(|entry| entry.height.0 < below) {
            entry.status = entry.status.without_data();
            (entry.file, entry.data_pos, entry.undo_pos) = (None, None, None);
        }
    });
}

/// Lets an index end with a block that is not on the chain, at the height of one that is.
fn end_on_branch(case: &Case, kind: IndexKind, block: &GeneratedBlock) {
    edit_rows(&database(case, kind), |rows| {
        if kind == IndexKind::BlockFilter {
            let row = rows.get_mut(&height_key(Height(block.height))[..]).unwrap();
            row[..32].copy_from_slice(&block.hash.0);
        }
        if kind == IndexKind::CoinStats {
            // The MuHash is that of these totals.
            let totals = rows[&height_key(Height(TIP))[..]][32..].to_vec();
            rows.insert(removed_key(&block.hash), totals);
        }
        rows.insert(b"B".to_vec(), [&[0; 4][..], &[1], &block.hash.0].concat());
    });
}

/// bitcoind ended with both ("goes beyond pruned data (including undo data)"), which `doctor` called behind
/// and taken back; and undo data was to be made, which a pruned node cannot.
#[test]
fn a_pruned_node_continues_no_index_from_a_block_without_undo_data_or_from_a_deleted_one() {
    let case = Case::new();
    run(&lowered(case.options(), 100)).unwrap();
    let (case, options) = behind(case, TxForm::ByBlock);
    prune(&case, 100);
    // A deleted block that was downloaded again.
    case.forget_undo(|entry| entry.hash == block_at(101).hash);
    for kind in [IndexKind::Tx, IndexKind::BlockFilter, IndexKind::CoinStats] {
        let standing = index(&case, kind).0.standing;
        let is_below = matches!(standing, IndexStanding::BelowPruned { first: Height(102), .. });
        assert_eq!(is_below, kind.needs_undo(), "{kind:?}: {standing:?}");
        assert_eq!(matches!(standing, IndexStanding::Behind(40)), !is_below, "{kind:?}: {standing:?}");
    }
    let statistics = IndexOptions { kinds: vec![IndexKind::CoinStats], ..options };
    let error = assert_says(update(&FaultDisk::healthy(), &statistics), &["the undo data of 1 blocks"]);
    assert_eq!(error.remedies, [Remedy::Unprune]);

    // The filters end on another branch, which leaves the chain below the blocks that are stored.
    let ((case, _), stale) = (with_indexes(TxForm::ByBlock), stale_below(u32::MAX));
    end_on_branch(&case, IndexKind::BlockFilter, stale);
    for (below, is_refused) in [(stale.height - 1, false), (stale.height, true)] {
        prune(&case, below);
        let standing = index(&case, IndexKind::BlockFilter).0.standing;
        assert_eq!(matches!(standing, IndexStanding::BelowPruned { .. }), is_refused, "{standing:?}");
        assert_eq!(matches!(standing, IndexStanding::OffChain(_)), !is_refused, "{standing:?}");
    }
}

/// bitcoind stopped at each start ("Failed to rewind"), and `doctor` said that it takes the index back.
#[test]
fn an_index_on_a_branch_whose_blocks_or_undo_data_are_gone_is_to_be_made_anew() {
    let ((case, options), stale) = (with_indexes(TxForm::ByTxid), stale_below(u32::MAX));
    end_on_branch(&case, IndexKind::TxoSpender, stale);
    let (found, advice, is_sound) = index(&case, IndexKind::TxoSpender);
    assert!(matches!(found.standing, IndexStanding::OffChain(_)) && is_sound, "{found:?}");
    assert_eq!(advice, Advice::StartBitcoind);
    end_on_branch(&case, IndexKind::CoinStats, stale);
    let found = index(&case, IndexKind::CoinStats).0;
    assert!(matches!(found.standing, IndexStanding::LacksBlocks), "its undo data is missing: {found:?}");
    case.forget_blocks(|entry| entry.hash == stale.hash);
    for kind in [IndexKind::TxoSpender, IndexKind::CoinStats] {
        let (found, advice, is_sound) = index(&case, kind);
        assert!(matches!(found.standing, IndexStanding::LacksBlocks) && !is_sound, "{found:?}");
        assert_eq!(advice, Advice::MakeIndexes { names: vec!["coinstatsindex", "txospenderindex"] });
    }
    make(&FaultDisk::healthy(), &options).unwrap();
    assert!(index(&case, IndexKind::CoinStats).2);
}

#[test]
fn an_index_with_which_bitcoind_cannot_go_on_is_to_be_made_anew() {
    let (found, advice, is_sound) = changed(IndexKind::CoinStats, end_elsewhere);
    assert!(matches!(found.standing, IndexStanding::UnknownBestBlock) && !is_sound, "{found:?}");
    assert_eq!(advice, Advice::MakeIndexes { names: vec!["coinstatsindex"] });

    // bitcoind ended: "index may be corrupted".
    let other_muhash = |rows: &mut Rows| rows.get_mut(&b"M"[..]).unwrap()[0] ^= 1;
    assert_damaged(changed(IndexKind::CoinStats, other_muhash), "coinstatsindex");

    let elsewhere = |rows: &mut Rows| {
        for (_, value) in rows.iter_mut().filter(|(key, _)| key[0] == b't') {
            value.clear();
            [90, 8, 1].into_iter().for_each(|number| write_var_int(value, number));
        }
    };
    let (found, advice, is_sound) = changed(IndexKind::Tx, elsewhere);
    assert!(matches!(found.standing, IndexStanding::Misplaced) && !is_sound, "{found:?}");
    assert_eq!(advice, Advice::MakeIndexes { names: vec!["txindex"] });

    let without_best = |rows: &mut Rows| drop(rows.remove(&b"B"[..]));
    let (found, advice, is_sound) = changed(IndexKind::TxoSpender, without_best);
    assert!(matches!(found.standing, IndexStanding::Empty) && is_sound, "{found:?}");
    assert_eq!(advice, Advice::StartBitcoind);

    let (case, _) = with_indexes(TxForm::ByTxid);
    fs::write(database(&case, IndexKind::BlockFilter).join("CURRENT"), b"MANIFEST-999999\n").unwrap();
    assert_damaged(index(&case, IndexKind::BlockFilter), "blockfilterindex");
}

/// `doctor` called them sound, and bitcoind ended ("Cannot read last block filter header"), or did not find
/// filters.
#[test]
fn filters_without_the_row_of_their_best_block_or_without_a_file_are_to_be_made_anew() {
    let of_another = |rows: &mut Rows| {
        let (_, last) = rows.iter_mut().rfind(|(key, _)| key[0] == b't').unwrap();
        let by_hash = (last[..32].to_vec(), last[32..].to_vec());
        last[..32].fill(7);
        // After a reorganisation, bitcoind does not read this one at the start.
        rows.insert([&b"s"[..], &by_hash.0].concat(), by_hash.1);
    };
    let (case, _) = with_indexes(TxForm::ByTxid);
    let name = "fltr00000.dat";
    fs::remove_file(database(&case, IndexKind::BlockFilter).with_file_name(name)).unwrap();
    for (words, (found, advice, is_sound)) in [
        ("the row of its best block", changed(IndexKind::BlockFilter, of_another)),
        (name, index(&case, IndexKind::BlockFilter)),
    ] {
        let IndexStanding::Damaged(error) = &found.standing else { panic!("{found:?}") };
        assert!(error.detail.contains(words) && !is_sound, "{error}");
        assert_eq!(advice, Advice::MakeIndexes { names: vec!["blockfilterindex"] });
    }
}

/// bitcoind was to be started for ever, also after `--deep`: it ended when it merged the table.
#[test]
fn a_damaged_table_of_an_index_whose_rows_are_not_looked_up_is_seen() {
    for kind in [IndexKind::BlockFilter, IndexKind::CoinStats] {
        let (case, _) = with_indexes(TxForm::ByTxid);
        let (dir, key) = (database(&case, kind), [b't', 0, 0, 0, 9]);
        let table = add_table(&dir, &key, &rows(&dir)[&key[..]]);
        flip_bit(&table, 5, 0).unwrap();
        assert!(diagnosed(case.root(), false).is_sound(), "only the ends of tables are read");
        let advice = Advice::MakeIndexes { names: vec![kind.option()] };
        assert_eq!(diagnosed(case.root(), true).advice, advice);
        fs::write(&table, vec![0; fs::read(&table).unwrap().len()]).unwrap();
        assert_damaged(index(&case, kind), kind.option());
    }
}

/// bitcoind erases rows when it disconnects blocks, and writes the best block later: it was killed in
/// between, and `doctor` called the index sound.
#[test]
fn an_index_without_the_rows_of_its_last_blocks_is_damaged() {
    let (case, options) = behind(Case::new(), TxForm::ByTxid);
    let dir = database(&case, IndexKind::TxoSpender);
    let below = rows(&dir);
    update(&FaultDisk::healthy(), &options).unwrap();
    assert!(index(&case, IndexKind::TxoSpender).2);
    edit_rows(&dir, |rows| rows.retain(|key, _| below.contains_key(key) || key.len() < 10));
    assert_damaged(index(&case, IndexKind::TxoSpender), "txospenderindex");
}

/// `doctor` called it sound, and bitcoind did not start: "best block of txindex not found".
#[test]
fn indexes_of_blocks_that_a_datadir_without_chainstate_lacks_need_a_download() {
    let ((case, _), dir, peer) = (with_indexes(TxForm::ByTxid), scratch(), honest());
    download(&SyncOptions { blocks_only: true, ..from_to(dir.path(), &[&peer], 0) });
    let of_genesis = |entry: &IndexEntry| entry.height == Height(0);
    edit_index(&dir.path().join("regtest/blocks/index"), |it| it.entries.retain(of_genesis)).unwrap();
    copy_dir(&case.net("indexes"), &dir.path().join("regtest/indexes")).unwrap();
    let found = diagnosed(dir.path(), false);
    assert!(!found.is_sound() && found.advice == Advice::Sync, "{found:?}");
    let indexes = found.found.unwrap().indexes;
    assert_eq!(indexes.len(), IndexKind::ALL.len());
    for index in indexes {
        assert!(matches!(index.standing, IndexStanding::UnknownBestBlock), "{index:?}");
    }
}

/// `doctor` advised to start bitcoind, which stopped ("Failed to rewind coinstatsindex to a previous chain
/// tip"), or to rebuild the chainstate, which is refused.
#[test]
fn indexes_that_bitcoind_cannot_take_back_in_a_datadir_without_chainstate_need_a_download() {
    let ((case, _), peer) = (with_indexes(TxForm::ByTxid), honest());
    for height in [0, 60] {
        let dir = scratch();
        download(&SyncOptions { blocks_only: true, ..from_to(dir.path(), &[&peer], height) });
        copy_dir(&case.net("indexes"), &dir.path().join("regtest/indexes")).unwrap();
        let found = diagnosed(dir.path(), false);
        assert!(!found.is_sound() && found.advice == Advice::Sync, "{height}: {found:?}");
        for index in found.found.unwrap().indexes {
            let is_taken_back = matches!(index.kind, IndexKind::CoinStats | IndexKind::TxoSpender);
            let is_broken = matches!(index.standing, IndexStanding::LacksBlocks);
            assert_eq!(is_broken, is_taken_back, "{height}: {index:?}");
        }
    }
}

/// A rebuild up to the damage said that the `txindex` stays right, then `doctor` and `index check` that it is
/// wrong.
#[test]
fn rows_of_lost_blocks_that_bitcoind_writes_anew_are_not_wrong() {
    let (case, options) = with_indexes(TxForm::ByTxid);
    fs::remove_file(blk(&case, &entry(&case, BUSY))).unwrap();
    let set_aside_indexes = SetAsideIndexes::Any;
    let until = ReindexOptions { until_damage: true, set_aside_indexes, ..case.options() };
    let Height(rebuilt) = run(&until).unwrap().height;
    let (found, advice, is_sound) = index(&case, IndexKind::Tx);
    assert!(matches!(found.standing, IndexStanding::OffChain(Height(140))) && is_sound, "{found:?}");
    assert_eq!(advice, Advice::StartBitcoind);
    assert_sound(&IndexOptions { kinds: vec![IndexKind::Tx], ..options }, rebuilt);
}
