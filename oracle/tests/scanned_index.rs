//! Bitcoin Core starts on a block index that Peregrine made from the block files alone, and continues from
//! there.

use oracle::{
    CoreNode, Rebuild, Wipe,
    scenario::{connect_one_and_take_back, feed},
};
use std::error::Error;
use testkit::{Chain, ChainSpec, datadir::Layout};
use wire::{Height, Network};

/// From a datadir without index, a rebuild makes index and chainstate. Core opens them, has the right tip,
/// and reads each block and each undo record at its position in the index. Then it connects a block and
/// disconnects several, and what it appends to the files overwrites no earlier data.
fn core_reads_everything_and_continues(seed: u64, layout: &Layout) -> Result<(), Box<dyn Error>> {
    let chain = Chain::generate(&ChainSpec::new(seed, 4 << 20));
    let control_dir = tempfile::tempdir()?;
    let control = feed(&chain, control_dir.path())?;

    let root = tempfile::tempdir()?;
    chain.write_datadir(root.path(), &Layout { index: false, ..layout.clone() })?;
    Rebuild { scan: true, many_tables: true, ..Rebuild::default() }.run(root.path(), Network::Regtest)?;
    let net_dir = root.path().join("regtest");
    let node = CoreNode::open(&net_dir, Network::Regtest, Wipe::Nothing)?;
    assert_eq!(node.take_events(), [], "no block is left to connect");
    assert_eq!(node.tip(), (Height(chain.tip().height), chain.tip().hash));
    for block in chain.main() {
        let height = Height(block.height);
        assert_eq!(node.read_block(height)?, block.bytes, "height {height}");
        if block.height > 0 {
            assert_eq!(node.read_spent(height)?, control.read_spent(height)?, "height {height}");
        }
    }
    drop((node, control));

    let core = connect_one_and_take_back(control_dir.path())?;
    assert_eq!(core.differences(&connect_one_and_take_back(&net_dir)?), Vec::<String>::new());
    let node = CoreNode::open(&net_dir, Network::Regtest, Wipe::Nothing)?;
    let control = CoreNode::open(control_dir.path(), Network::Regtest, Wipe::Nothing)?;
    assert_eq!(node.tip(), control.tip());
    for height in (1..=node.tip().0.0).map(Height) {
        assert_eq!(node.read_block(height)?, control.read_block(height)?, "height {height}");
        assert_eq!(node.read_spent(height)?, control.read_spent(height)?, "height {height}");
    }
    drop((node, control));

    // The same for a Core that uses only the block files, including the appended blocks.
    let node = CoreNode::open(&net_dir, Network::Regtest, Wipe::All)?;
    drop(node);
    let again = oracle::coins::Rows::read(&net_dir.join("chainstate"))?;
    assert_eq!(core.differences(&again), Vec::<String>::new());
    Ok(())
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
