//! Bitcoin Core starts on a block index that Peregrine made from the block files alone, and continues from
//! there.

use crate::prelude::*;

/// From a datadir without index, a rebuild makes index and chainstate.
#[test]
fn core_reads_everything_and_continues_in_any_layout() -> Result<(), Box<dyn Error>> {
    for (what, layout) in [
        ("one file with preallocated space", Layout::new(6)),
        ("many small files", Layout { file_size: 200_000, shuffle: 40, ..Layout::new(7) }),
        ("neither space nor key", Layout { preallocate: false, xor_key: None, ..Layout::new(8) }),
    ] {
        println!("{what}");
        let chain = Chain::generate(&ChainSpec::new(layout.seed, 4 << 20));
        let (control, root) = (tempfile::tempdir()?, tempfile::tempdir()?);
        drop(feed(&chain, control.path())?);
        chain.write_datadir(root.path(), &Layout { index: false, ..layout })?;
        Rebuild { scan: true, many_tables: true, ..Rebuild::default() }.run(root.path(), Network::Regtest)?;
        assert_core_continues(&chain, control.path(), &root.path().join("regtest"))?;
    }
    Ok(())
}
