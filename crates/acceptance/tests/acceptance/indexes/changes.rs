//! A check finds each change of an index, and names its height.

use acceptance::indexes::{Rows, check, database, edit_rows, make, of_case, rows, with_indexes, write_rows};
use acceptance::prelude::*;
use indexes::IndexFlaw;

/// The height of the block at each place in the block files, and that of each block.
struct Heights {
    places: BTreeMap<(u64, u64), u32>,
    hashes: BTreeMap<BlockHash, u32>,
}

impl Heights {
    fn of(case: &Case) -> Self {
        let entries = case.index().entries;
        let place = |entry: &disk::index::IndexEntry| Some((entry.file?.0.into(), entry.data_pos?.0));
        Self {
            places: entries.iter().filter_map(|entry| Some((place(entry)?, entry.height.0))).collect(),
            hashes: entries.iter().map(|entry| (entry.hash, entry.height.0)).collect(),
        }
    }

    fn at(&self, place: &[u8]) -> Option<u32> {
        let mut reader = Reader::new(place);
        self.places.get(&(reader.var_int().ok()?, reader.var_int().ok()?)).copied()
    }

    fn of_row(&self, kind: IndexKind, key: &[u8], value: &[u8]) -> Option<u32> {
        match (kind, key[0]) {
            (IndexKind::Tx, b't') => self.at(value),
            (IndexKind::Tx, b'x') => Some(Reader::new(&key[6..]).var_int().ok()? as u32 + 1),
            (IndexKind::Tx, b'h') => self.hashes.get(&BlockHash(key[1..].try_into().ok()?)).copied(),
            (IndexKind::Tx, b's') => self.hashes.get(&BlockHash(value.try_into().ok()?)).copied(),
            (IndexKind::TxoSpender, b's') if key.len() != 12 => self.at(&key[9..]),
            (_, b't') => Some(u32::from_be_bytes(key[1..].try_into().ok()?)),
            _ => None,
        }
    }
}

/// The lowest flaw that a check finds.
fn flaw(options: &IndexOptions) -> Option<IndexFlaw> {
    check(options).result.indexes[0].first.clone()
}

/// Makes random changes, and expects that each is found.
fn changes(tx_form: TxForm, seed: u64, count: u32) {
    let ((case, all), mut rng) = (with_indexes(tx_form), Rng::new(seed, "changes"));
    let heights = Heights::of(&case);
    for number in 0..count {
        let kind = IndexKind::ALL[rng.below(4) as usize];
        let options = IndexOptions { kinds: vec![kind], ..all.clone() };
        let dir = database(&case, kind);
        let before = rows(&dir);
        let mut changed = before.clone();
        // A row of a block: the best block and what else there is of it decide where a check ends.
        let of_blocks: Vec<_> =
            before.iter().filter(|(key, value)| heights.of_row(kind, key, value).is_some()).collect();
        let (key, value) = of_blocks[rng.below(of_blocks.len() as u64) as usize];
        let height = heights.of_row(kind, key, value);
        let what = match rng.below(3) {
            0 => {
                changed.remove(key);
                "removed"
            }
            1 if !value.is_empty() => {
                let at = rng.below(value.len() as u64) as usize;
                changed.get_mut(key).unwrap()[at] ^= 1 << rng.below(8);
                "changed"
            }
            _ if matches!(kind, IndexKind::BlockFilter | IndexKind::CoinStats) => {
                // Each height has one row.
                changed.insert(key.clone(), value[..value.len() - 1].to_vec());
                "cut"
            }
            _ => {
                let mut other = key.clone();
                other[1 + rng.below(4.min(key.len() as u64 - 1)) as usize] ^= 1 << rng.below(8);
                if key[0] == b'h' || key[0] == b's' && kind == IndexKind::Tx {
                    changed.remove(key);
                }
                changed.insert(other, value.clone());
                "added"
            }
        };
        write_rows(&dir, &changed);
        let found = flaw(&options).unwrap_or_else(|| panic!("{number}: {kind:?}, {what}, not found"));
        // A changed place can be that of another block, or of none.
        let lowest = found.height.map(|height| height.0);
        assert!(lowest.is_some_and(|lowest| Some(lowest) <= height), "{number}: {kind:?}, {what}: {found:?}");
        write_rows(&dir, &before);
        assert_eq!(flaw(&options), None, "{number}");
    }
}

#[test]
fn changed_rows_are_found() {
    changes(TxForm::ByTxid, 1, 120);
    changes(TxForm::ByBlock, 2, 120);
}

#[test]
fn changed_filters_are_found() {
    let (case, mut rng) = (Case::at_tip(), Rng::new(5, "filters"));
    let options = IndexOptions { kinds: vec![IndexKind::BlockFilter], ..of_case(&case, TxForm::ByTxid) };
    make(&FaultDisk::healthy(), &options).unwrap();
    let path = case.net("indexes/blockfilter/basic/fltr00000.dat");
    let before = fs::read(&path).unwrap();
    let found: Rows = rows(&database(&case, IndexKind::BlockFilter));
    let starts: Vec<(u64, u32)> = found
        .iter()
        .filter(|(key, _)| key[0] == b't')
        .map(|(key, value)| {
            let mut reader = Reader::new(&value[96..]);
            assert_eq!(reader.var_int().unwrap(), 0);
            (reader.var_int().unwrap(), u32::from_be_bytes(key[1..].try_into().unwrap()))
        })
        .collect();
    let sound = check(&options).result.indexes[0].sound_rows;
    for _ in 0..60 {
        let at = rng.below(before.len() as u64);
        let mut changed = before.clone();
        changed[at as usize] ^= 1 << rng.below(8);
        fs::write(&path, changed).unwrap();
        let (_, height) = starts.iter().rfind(|(start, _)| *start <= at).unwrap();
        let found = check(&options).result.indexes.remove(0);
        let lowest = found.first.as_ref().and_then(|flaw| flaw.height);
        assert_eq!(lowest, Some(Height(*height)), "byte {at}: {found:?}");
        // A filter with a flaw is not also a sound one.
        assert_eq!((found.flaws, found.sound_rows), (1, sound - 1), "byte {at}: {found:?}");
    }
    fs::write(&path, &before[..before.len() / 2]).unwrap();
    assert!(flaw(&options).is_some());
    fs::remove_file(&path).unwrap();
    assert_eq!(flaw(&options).unwrap().height, Some(Height(0)));
    fs::write(&path, before).unwrap();
    assert_eq!(flaw(&options), None);
}

/// It was a row with "another block, or other hashes", which a crash does not explain.
#[test]
fn a_row_of_a_block_that_a_crash_has_lost_is_called_that() {
    let (case, options) = with_indexes(TxForm::ByTxid);
    edit_rows(&database(&case, IndexKind::BlockFilter), |rows| {
        rows.iter_mut().rfind(|(key, _)| key[0] == b't').unwrap().1[..32].fill(7);
    });
    let found = flaw(&IndexOptions { kinds: vec![IndexKind::BlockFilter], ..options }).unwrap();
    let words = format!("that of block {}; a crash", BlockHash([7; 32]));
    assert!(found.detail.contains(&words), "{found:?}");
}

/// What bitcoind continues from.
#[test]
fn a_changed_state_is_found() {
    let (case, all) = with_indexes(TxForm::ByBlock);
    for (kind, key) in [
        (IndexKind::BlockFilter, &b"P"[..]),
        (IndexKind::CoinStats, b"M"),
        (IndexKind::TxoSpender, b"siphash_key\0"),
        (IndexKind::Tx, b"\x0etxid_hash_salt"),
        (IndexKind::Tx, b"\x0enext_block_seq"),
    ] {
        let options = IndexOptions { kinds: vec![kind], ..all.clone() };
        let dir = database(&case, kind);
        let before = rows(&dir);
        for is_removed in [true, false] {
            let mut changed = before.clone();
            if is_removed {
                changed.remove(key);
            } else {
                changed.insert(key.to_vec(), vec![0; before[key].len()]);
            }
            write_rows(&dir, &changed);
            assert!(flaw(&options).is_some(), "{kind:?}, removed {is_removed}");
        }
        write_rows(&dir, &before);
        assert_eq!(flaw(&options), None);
    }
}

mod long {
    use super::*;

    #[test]
    fn thousands_of_changed_rows_are_found() {
        changes(TxForm::ByTxid, 3, 1_000);
        changes(TxForm::ByBlock, 4, 1_000);
    }
}
