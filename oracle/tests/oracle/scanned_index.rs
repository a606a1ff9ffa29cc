//! Bitcoin Core starts on a block index that Peregrine made from the block files alone, and continues from
//! there.

use crate::prelude::*;

/// From a datadir without index, a rebuild makes index and chainstate.
fn core_reads_everything_and_continues(seed: u64, layout: &Layout) -> Result<(), Box<dyn Error>> {
    let chain = Chain::generate(&ChainSpec::new(seed, 4 << 20));
    let control_dir = tempfile::tempdir()?;
    let control = feed(&chain, control_dir.path())?;

    let root = tempfile::tempdir()?;
    chain.write_datadir(root.path(), &Layout { index: false, ..layout.clone() })?;
    Rebuild { scan: true, many_tables: true, ..Rebuild::default() }.run(root.path(), Network::Regtest)?;
    let net_dir = root.path().join("regtest");
    drop(control);
    assert_core_continues(&chain, control_dir.path(), &net_dir)
}

#[test]
fn one_file_with_preallocated_space() -> Result<(), Box<dyn Error>> {
    core_reads_everything_and_continues(6, &Layout::new(6))
}

#[test]
fn many_small_files_in_disorder() -> Result<(), Box<dyn Error>> {
    core_reads_everything_and_continues(7, &Layout { file_size: 200_000, shuffle: 40, ..Layout::new(7) })
}

#[test]
fn without_preallocated_space_nor_obfuscation() -> Result<(), Box<dyn Error>> {
    core_reads_everything_and_continues(8, &Layout { preallocate: false, xor_key: None, ..Layout::new(8) })
}
