//! Generated chains with all kinds of scripts and valid signatures: Core accepts each block, and ends with
//! the same coins as Peregrine.

use crate::prelude::*;
use tempfile::TempDir;

/// Core connects every block of a chain, its coins are those of the model, and a rebuild from a datadir of
/// the same chain, which Core did not write, results in the same rows. Returns that datadir.
pub fn core_and_rebuild_agree(
    chain: &Chain,
    layout: &Layout,
    rebuild: Rebuild,
    coins_min: usize,
) -> Result<TempDir, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    drop(scenario::feed(chain, dir.path())?);
    let core = Rows::read(&dir.path().join("chainstate"))?;
    assert!(core.coins() > coins_min);
    assert_eq!(core.differences(&Rows::of_model(chain)), Vec::<String>::new());

    let dir = tempfile::tempdir()?;
    chain.write_datadir(dir.path(), layout)?;
    let report = rebuild.run(dir.path(), Network::Regtest)?;
    assert_eq!((report.height, report.hash), (Height(chain.tip().height), chain.tip().hash));
    assert_eq!(report.hash_serialized_3, chain.model.stats().hash_serialized_3);
    let rebuilt = Rows::read(&dir.path().join("regtest/chainstate"))?;
    assert_eq!(core.differences(&rebuilt), Vec::<String>::new());
    Ok(dir)
}

#[test]
fn generated_chains_have_the_same_coins_in_any_layout() -> Result<(), Box<dyn Error>> {
    for (what, bytes, layout) in [
        ("Core's layout", 8 << 20, Layout::new(1)),
        ("small files", 5 << 20, Layout { file_size: 300_000, shuffle: 40, ..Layout::new(2) }),
        ("no key, no index", 5 << 20, Layout { xor_key: None, index: false, ..Layout::new(3) }),
    ] {
        println!("{what}");
        let chain = Chain::generate(&ChainSpec::new(layout.seed, bytes));
        let rebuild = Rebuild { scan: !layout.index, many_tables: true, ..Rebuild::default() };
        let dir = core_and_rebuild_agree(&chain, &layout, rebuild, 1000)?;
        let tables = rebuild::tables(&dir.path().join("regtest/chainstate"))?;
        assert!(tables >= 20, "{what}: {tables} tables");
    }
    Ok(())
}
