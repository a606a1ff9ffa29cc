//! An index that is continued has the rows of one that is made anew.

use crate::commands::update_branches::branch;
use acceptance::indexes::{
    assert_sound, behind, check, database, edit_rows, filters, make, of_datadir, rows, update, with_indexes,
    write_rows,
};
use acceptance::prelude::*;
use acceptance::update::{behind as behind_of, update as update_chainstate};

#[test]
fn an_update_gives_the_rows_of_a_new_index() {
    for tx_form in [TxForm::ByTxid, TxForm::ByBlock] {
        let (case, options) = behind(Case::new(), tx_form);
        assert_sound(&options, TIP - 3);
        let updated = update(&FaultDisk::healthy(), &options).unwrap();
        assert!(updated.result.indexes.iter().all(|index| index.from_height == TIP - 2), "{updated:?}");
        assert_sound(&options, TIP);
        let (fresh, _) = with_indexes(tx_form);
        for kind in IndexKind::ALL {
            let [found, wanted] = [&case, &fresh].map(|case| rows(&database(case, kind)));
            assert!(found == wanted, "{kind:?}, {tx_form:?}");
        }
        assert!(filters(case.root()) == filters(fresh.root()));
        let before = rows(&database(&case, IndexKind::Tx));
        update(&FaultDisk::healthy(), &options).unwrap();
        assert!(rows(&database(&case, IndexKind::Tx)) == before, "there was nothing to do");
    }
}

/// bitcoind reads undo data only for the indexes that need it, and only above their ends.
#[test]
fn undo_data_that_no_index_needs_may_be_missing() {
    let (case, options) = behind(Case::new(), TxForm::ByTxid);
    let of = |kinds: &[IndexKind]| IndexOptions { kinds: kinds.to_vec(), ..options.clone() };
    update(&FaultDisk::healthy(), &of(&[IndexKind::BlockFilter])).unwrap();
    UndoDamage::AllGone.apply(case.root(), Network::Regtest);
    let both = of(&[IndexKind::Tx, IndexKind::BlockFilter]);
    let updated = update(&FaultDisk::healthy(), &both).unwrap();
    assert_eq!(updated.result.indexes[0].from_height, TIP - 2, "{updated:?}");
    assert!(check(&of(&[IndexKind::Tx])).is_sound());
}

/// bitcoind of release 32 goes on with rows by block above an index by txid.
#[test]
fn an_index_with_both_forms_of_rows_is_sound_and_continued() {
    let (case, options) = behind(Case::new(), TxForm::ByTxid);
    let options = IndexOptions { kinds: vec![IndexKind::Tx], tx_form: None, ..options };
    let dir = database(&case, IndexKind::Tx);
    let mut both = rows(&dir);
    let (fresh, _) = with_indexes(TxForm::ByBlock);
    let by_block = rows(&database(&fresh, IndexKind::Tx));
    // The sequence numbers of blocks above the rows by txid.
    let first = TIP - 3;
    let above = by_block.iter().filter(|(key, _)| key[0] == b's' || key[0] < b'a');
    both.extend(above.map(|(key, value)| (key.clone(), value.clone())));
    for (key, value) in &by_block {
        let sequence = match key[0] {
            b'h' => u32::from_le_bytes(value[..].try_into().unwrap()).into(),
            b'x' => wire::Reader::new(&key[6..]).var_int().unwrap(),
            _ => continue,
        };
        if sequence >= first.into() {
            both.insert(key.clone(), value.clone());
        }
    }
    write_rows(&dir, &both);
    let checked = check(&options);
    assert!(checked.is_sound() && checked.result.indexes[0].height == Some(Height(TIP)), "{checked:?}");
    let removed = both.iter().find(|(key, _)| key[0] == b'x').map(|(key, _)| key.clone()).unwrap();
    both.remove(&removed);
    write_rows(&dir, &both);
    let flaw = check(&options).result.indexes[0].first.clone().unwrap();
    assert!(flaw.height.unwrap() > Height(first), "{flaw:?}");
}

/// bitcoind that was killed after a reorganisation leaves this.
#[test]
fn filters_that_are_needed_are_not_overwritten() {
    let (case, options) = behind(Case::new(), TxForm::ByTxid);
    let options = IndexOptions { kinds: vec![IndexKind::BlockFilter], ..options };
    let dir = database(&case, IndexKind::BlockFilter);
    let mut changed = rows(&dir);
    changed.insert(b"P".to_vec(), vec![0, 5]);
    write_rows(&dir, &changed);
    let continued = || update(&FaultDisk::healthy(), &options);
    let error = refused_by(case.root(), ErrorKind::Damaged, &[], continued);
    assert_offers(&error, &[Remedy::MakeIndex(Some(IndexKind::BlockFilter))]);
    // Likewise if only the filter of a lower block is above the place, and nothing is to be added.
    let file = case.net("indexes/blockfilter/basic/fltr00000.dat");
    let place = |height: u8| {
        let row = &changed[&[b't', 0, 0, 0, height][..]];
        let mut reader = wire::Reader::new(&row[96..]);
        assert_eq!(reader.var_int().unwrap(), 0);
        reader.var_int().unwrap() as usize
    };
    let (mut content, from, to) = (fs::read(&file).unwrap(), place(100), place(101));
    let mut end = vec![0];
    write_var_int(&mut end, content.len() as u64);
    content.extend_from_within(from..to);
    fs::write(&file, &content).unwrap();
    changed.insert(b"P".to_vec(), end.clone());
    let row = changed.get_mut(&[b't', 0, 0, 0, 100][..]).unwrap();
    row.truncate(96);
    row.extend(end);
    write_rows(&dir, &changed);
    run(&lowered(case.options(), TIP - 3)).unwrap();
    assert_eq!(continued().unwrap_err().kind, ErrorKind::Damaged);
    assert!(fs::read(&file).unwrap() == content, "the filter was cut off");
    run(&case.options()).unwrap();
    // What may be made anew is.
    let brought = bring_indexes(&FaultDisk::healthy(), &options, None, unwatched());
    assert_eq!(brought.unwrap().result.indexes[0].from_height, 0);
    assert_sound(&options, TIP);
}

#[test]
fn what_cannot_be_continued_is_refused_and_not_changed() {
    let (case, options) = behind(Case::new(), TxForm::ByTxid);
    let dir = database(&case, IndexKind::CoinStats);
    edit_rows(&dir, |rows| drop(rows.remove(&b"B"[..])));
    let continued = || update(&FaultDisk::healthy(), &options);
    let error = refused_by(case.root(), ErrorKind::Usage, &[], continued);
    assert_offers(&error, &[Remedy::MakeIndex(Some(IndexKind::CoinStats))]);
    edit_rows(&dir, |rows| drop(rows.insert(b"B".to_vec(), [&[0; 4][..], &[1], &[7; 32]].concat())));
    assert_mentions(&continued().unwrap_err(), &["is not in the block index"]);
    let only = IndexOptions { kinds: vec![IndexKind::CoinStats], ..options.clone() };
    let flaw = check(&only).result.indexes[0].first.clone().unwrap();
    assert!(flaw.detail.contains("is not in the block index"));
    // A folder that was left where an index was set aside is no index.
    fs::remove_dir_all(&dir).unwrap();
    let unnamed = IndexOptions { kinds: Vec::new(), ..options };
    assert_eq!(update(&FaultDisk::healthy(), &unnamed).unwrap().result.indexes.len(), 3);
    assert_eq!(check(&unnamed).result.indexes.len(), 3);
}

/// bitcoind erases rows when it disconnects blocks, and writes the best block later: it was killed in
/// between.
#[test]
fn an_index_without_the_rows_of_its_last_blocks_is_not_vouched_for() {
    for (kind, tx_form) in [
        (IndexKind::TxoSpender, TxForm::ByTxid),
        (IndexKind::Tx, TxForm::ByTxid),
        (IndexKind::Tx, TxForm::ByBlock),
    ] {
        let (case, options) = behind(Case::new(), tx_form);
        let options = IndexOptions { kinds: vec![kind], ..options };
        let dir = database(&case, kind);
        let below = rows(&dir);
        update(&FaultDisk::healthy(), &options).unwrap();
        let mut erased = rows(&dir);
        let whole = erased.clone();
        erased.retain(|key, _| below.contains_key(key) || !matches!(key[0], b't' | b'x') && key.len() < 10);
        assert!(erased.len() < whole.len(), "{kind:?}");
        write_rows(&dir, &erased);
        let error = update(&FaultDisk::healthy(), &options).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{kind:?}");
        assert_offers(&error, &[Remedy::MakeIndex(Some(kind))]);
        let brought = bring_indexes(&FaultDisk::healthy(), &options, None, unwatched());
        assert_eq!(brought.unwrap().result.indexes[0].from_height, 0);
        assert!(rows(&dir) == whole, "{kind:?}");
    }
}

/// bitcoind looks under the hash of a block if another one is at its height.
#[test]
fn a_row_under_the_hash_of_its_block_is_sound() {
    let (case, options) = behind(Case::new(), TxForm::ByTxid);
    let options = IndexOptions { kinds: vec![IndexKind::BlockFilter, IndexKind::CoinStats], ..options };
    for (height, flaws) in [(99, [0, 0]), (TIP as u8 - 3, [1, 0])] {
        for &kind in &options.kinds {
            edit_rows(&database(&case, kind), |rows| {
                let row = rows.get_mut(&[b't', 0, 0, 0, height][..]).unwrap();
                let (hash, rest) = row.split_at_mut(32);
                let (key, value) = ([b"s", &*hash].concat(), rest.to_vec());
                hash.fill(7);
                rows.insert(key, value);
            });
        }
        // But not that of the best block of filters, with which bitcoind does not start.
        assert_eq!(check(&options).result.indexes.iter().map(|index| index.flaws).collect::<Vec<_>>(), flaws);
    }
    let options = IndexOptions { kinds: vec![IndexKind::CoinStats], ..options };
    update(&FaultDisk::healthy(), &options).unwrap();
    assert_sound(&options, TIP);
}

/// A chainstate that is lower, or on another branch, than an index which bitcoind takes back.
#[test]
fn an_index_on_another_branch_is_sound_and_taken_back() {
    for (tx_form, fork) in [(TxForm::ByTxid, TIP - 12), (TxForm::ByBlock, TIP - 2)] {
        let dir = behind_of(chain().main().filter(|block| block.height < TIP), TIP - 1, &layout());
        let options = of_datadir(dir.path(), Network::Regtest, tx_form);
        make(&FaultDisk::healthy(), &options).unwrap();
        store(dir.path(), branch(fork).iter());
        let updated = update_chainstate(&update_options(dir.path(), AT_ONCE, None)).unwrap();
        assert_eq!((updated.height, updated.disconnected), (Height(TIP), TIP - 1 - fork));
        assert_sound(&options, fork);
        update(&FaultDisk::healthy(), &options).unwrap();
        assert_sound(&options, TIP);
        let of = |kind: IndexKind| rows(&dir.path().join("regtest").join(kind.database_dir()));
        let [spends, stats] = [of(IndexKind::TxoSpender), of(IndexKind::CoinStats)];
        make(&FaultDisk::healthy(), &options).unwrap();
        assert!(spends == of(IndexKind::TxoSpender), "rows of the other branch are left");
        assert_eq!(stats[&b"M"[..]], of(IndexKind::CoinStats)[&b"M"[..]]);
    }
    let (case, options) = with_indexes(TxForm::ByTxid);
    run(&lowered(case.options(), TIP - 9)).unwrap();
    assert_sound(&options, TIP - 9);
    let before = tree(case.root());
    assert!(update(&FaultDisk::healthy(), &options).unwrap().result.indexes.is_empty());
    assert!(tree(case.root()) == before, "bitcoind takes it back");
}

/// Both once filled the disk.
#[test]
fn a_check_and_an_update_need_space_before_they_write() {
    let (case, mut options) = behind(Case::new(), TxForm::ByTxid);
    let before = tree(case.root());
    let full = || FaultDisk::healthy().with_free_space(case.root(), 0);
    let updated = update(&full(), &options).map(|updated| updated.height);
    options.chain.work_dir = Some(case.root().to_owned());
    let checked = check_indexes(&full(), &options, unwatched()).map(|checked| checked.height);
    for (done, needs) in [(updated, "the indexes take about"), (checked, "space: temporary files take about")]
    {
        let error = assert_fails(done, ErrorKind::Environment, &[needs]);
        assert_offers(&error, &[Remedy::OtherWorkDir]);
    }
    assert!(tree(case.root()) == before);
    // The rows of statistics are compared without temporary files.
    options.kinds = vec![IndexKind::CoinStats];
    assert!(check_indexes(&full(), &options, unwatched()).unwrap().is_sound());
}
