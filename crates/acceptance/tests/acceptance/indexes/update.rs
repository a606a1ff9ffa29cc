//! An index that is continued has the rows of one that is made anew.

use super::make::at_tip;
use acceptance::{
    Case, assert_offers,
    indexes::{assert_sound, check, database, filters, make, of_case, rows, update, write_rows},
    run, tree,
};
use engine::{ErrorKind, Height, Remedy};
use indexes::{IndexKind, IndexOptions, TxForm, bring_indexes};
use std::sync::atomic::AtomicBool;
use testkit::fault::FaultDisk;

const TIP: u32 = 140;

/// A datadir whose indexes are behind its chainstate.
pub fn behind(tx_form: TxForm) -> (Case, IndexOptions) {
    let case = Case::new();
    let options = of_case(&case, tx_form);
    make(&FaultDisk::healthy(), &options).unwrap();
    run(&case.options()).unwrap();
    (case, options)
}

#[test]
fn an_update_gives_the_rows_of_a_new_index() {
    for tx_form in [TxForm::ByTxid, TxForm::ByBlock] {
        let (case, options) = behind(tx_form);
        assert_sound(&options, TIP - 3);
        let updated = update(&FaultDisk::healthy(), &options).unwrap();
        assert!(updated.indexes.iter().all(|index| index.from_height == TIP - 2), "{updated:?}");
        assert_sound(&options, TIP);
        let fresh = at_tip();
        make(&FaultDisk::healthy(), &of_case(&fresh, tx_form)).unwrap();
        for kind in IndexKind::ALL {
            let [found, wanted] = [&case, &fresh].map(|case| rows(&database(case, kind)));
            assert!(found == wanted, "{kind:?}, {tx_form:?}");
        }
        assert!(filters(&case) == filters(&fresh));
        let before = rows(&database(&case, IndexKind::Tx));
        update(&FaultDisk::healthy(), &options).unwrap();
        assert!(rows(&database(&case, IndexKind::Tx)) == before, "there was nothing to do");
    }
}

/// bitcoind of release 32 goes on with rows by block above an index by txid.
#[test]
fn an_index_with_both_forms_of_rows_is_sound_and_continued() {
    let (case, options) = behind(TxForm::ByTxid);
    let options = IndexOptions { kinds: vec![IndexKind::Tx], tx_form: None, ..options };
    let dir = database(&case, IndexKind::Tx);
    let mut both = rows(&dir);
    let fresh = at_tip();
    make(&FaultDisk::healthy(), &of_case(&fresh, TxForm::ByBlock)).unwrap();
    let by_block = rows(&database(&fresh, IndexKind::Tx));
    // The sequence numbers of blocks above the rows by txid.
    let first = TIP - 3;
    let is_above = |key: &[u8]| match key.first() {
        Some(b's') => true,
        _ => key[0] < b'a',
    };
    both.extend(
        by_block.iter().filter(|(key, _)| is_above(key)).map(|(key, value)| (key.clone(), value.clone())),
    );
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
    assert!(checked.is_sound() && checked.indexes[0].height == Some(Height(TIP)), "{checked:?}");
    let removed = both.iter().find(|(key, _)| key[0] == b'x').map(|(key, _)| key.clone()).unwrap();
    both.remove(&removed);
    write_rows(&dir, &both);
    let flaw = check(&options).indexes[0].first.clone().unwrap();
    assert!(flaw.height.unwrap() > Height(first), "{flaw:?}");
}

/// bitcoind that was killed after a reorganisation leaves this.
#[test]
fn filters_that_are_needed_are_not_overwritten() {
    let (case, options) = behind(TxForm::ByTxid);
    let options = IndexOptions { kinds: vec![IndexKind::BlockFilter], ..options };
    let dir = database(&case, IndexKind::BlockFilter);
    let mut changed = rows(&dir);
    changed.insert(b"P".to_vec(), vec![0, 5]);
    write_rows(&dir, &changed);
    let before = tree(case.root());
    let error = update(&FaultDisk::healthy(), &options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged);
    assert_offers(&error, &[Remedy::MakeIndex]);
    assert!(tree(case.root()) == before);
    // What may be made anew is.
    let sink = |_: engine::Event| {};
    let brought = bring_indexes(&FaultDisk::healthy(), &options, None, &sink, &AtomicBool::new(false));
    assert_eq!(brought.unwrap().indexes[0].from_height, 0);
    assert_sound(&options, TIP);
}

#[test]
fn what_cannot_be_continued_is_refused_and_not_changed() {
    let (case, options) = behind(TxForm::ByTxid);
    let dir = database(&case, IndexKind::CoinStats);
    let mut without_best = rows(&dir);
    without_best.remove(&b"B"[..]);
    write_rows(&dir, &without_best);
    let before = tree(case.root());
    let error = update(&FaultDisk::healthy(), &options).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Usage);
    assert_offers(&error, &[Remedy::MakeIndex]);
    assert!(tree(case.root()) == before);
    without_best.insert(b"B".to_vec(), [&[0; 4][..], &[1], &[7; 32]].concat());
    write_rows(&dir, &without_best);
    let error = update(&FaultDisk::healthy(), &options).unwrap_err();
    assert!(error.to_string().contains("is not on the chain"), "{error}");
    let only = IndexOptions { kinds: vec![IndexKind::CoinStats], ..options };
    assert!(check(&only).indexes[0].first.as_ref().unwrap().detail.contains("is not on the chain"));
}
