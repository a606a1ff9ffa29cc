//! Shared by the tests of indexes: making, checking and reading them.

use crate::prelude::*;
use digest::siphash::SipKey;
use indexes::{CheckedIndexesReport, make_indexes, update_indexes};
pub use testkit::corrupt::{Rows, edit_rows, rows, write_rows};

/// Options for all indexes, whose hashes have the same key in all tests.
pub fn all_indexes(chain: ChainOptions, tx_form: TxForm) -> IndexOptions {
    IndexOptions {
        kinds: IndexKind::ALL.to_vec(),
        tx_form: Some(tx_form),
        key: Some(SipKey(11, 12)),
        ..IndexOptions::new(chain)
    }
}

/// Options for all indexes of a generated chain.
pub fn of_case(case: &Case, tx_form: TxForm) -> IndexOptions {
    all_indexes(case.options().chain, tx_form)
}

/// Options for the datadir of a network.
pub fn of_datadir(root: &Path, network: Network, tx_form: TxForm) -> IndexOptions {
    all_indexes(ChainOptions::new(root, network, ScriptChecks::LeftOut), tx_form)
}

/// A datadir at its tip with all indexes, and their options.
pub fn with_indexes(tx_form: TxForm) -> (Case, IndexOptions) {
    let case = Case::at_tip();
    let options = of_case(&case, tx_form);
    make(&FaultDisk::healthy(), &options).unwrap();
    (case, options)
}

/// This datadir, brought to its tip after indexes were made, which are behind; and their options.
pub fn behind(case: Case, tx_form: TxForm) -> (Case, IndexOptions) {
    let options = of_case(&case, tx_form);
    make(&FaultDisk::healthy(), &options).unwrap();
    run(&case.options()).unwrap();
    (case, options)
}

/// Makes indexes on this disk, which may interrupt it.
pub fn make(disk: &FaultDisk, options: &IndexOptions) -> Result<MadeIndexesReport, Error> {
    make_indexes(disk, options, quiet(disk.interrupt()))
}

/// Continues indexes, likewise.
pub fn update(disk: &FaultDisk, options: &IndexOptions) -> Result<MadeIndexesReport, Error> {
    update_indexes(disk, options, quiet(disk.interrupt()))
}

pub fn check(options: &IndexOptions) -> CheckedIndexesReport {
    check_indexes(&FaultDisk::healthy(), options, unwatched()).unwrap()
}

/// Asserts that a check of these indexes finds nothing, up to this height.
pub fn assert_sound(options: &IndexOptions, height: u32) {
    let checked = check(options);
    for index in &checked.result.indexes {
        assert_eq!((index.height, &index.first), (Some(Height(height)), &None), "{index:?}");
        assert!(index.sound_rows > 0, "{index:?}");
    }
    assert_eq!(checked.result.indexes.len(), options.kinds.len());
}

/// The directory of the database of an index of a generated chain.
pub fn database(case: &Case, kind: IndexKind) -> PathBuf {
    case.net(kind.database_dir())
}

/// The rows of these indexes of a generated chain, and its filters.
pub fn contents(root: &Path, kinds: &[IndexKind]) -> (Vec<Rows>, Vec<u8>) {
    let home = root.join("regtest");
    let all = kinds.iter().map(|kind| rows(&home.join(kind.database_dir()))).collect();
    (all, filters(root))
}

/// The filters of a generated chain, one file after the other.
pub fn filters(root: &Path) -> Vec<u8> {
    let dir = root.join("regtest").join(IndexKind::BlockFilter.replaced_dir());
    assert!(dir.join("fltr00000.dat").exists());
    (0..)
        .map(|number| dir.join(format!("fltr{number:05}.dat")))
        .map_while(|path| fs::read(path).ok())
        .flatten()
        .collect()
}
