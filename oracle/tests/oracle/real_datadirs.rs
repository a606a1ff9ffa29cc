//! Datadirs that Bitcoin Core wrote from real chains, if they are available.

use crate::prelude::*;
use testkit::data::unpack_core_datadir;

/// Compares the coins of a real datadir, row by row, with the chainstate that its `bitcoind` wrote: those of
/// Core's code from the `blk` files alone (which checks the test's Core), of a rebuild with the block index,
/// and of a rebuild by scan, both with all scripts run. Core must open what the rebuilds wrote, with the same
/// tip.
fn rebuilds_and_core_have_the_same_coins(archive: &str, network: Network) -> Result<(), Box<dyn Error>> {
    let Some(original) = unpack_core_datadir(archive) else { return Ok(()) };
    let folder = network.subdirectory().unwrap_or("");
    let wanted = Rows::read(&original.path().join(folder).join("chainstate"))?;
    assert!(wanted.coins() > 0, "{archive}");

    let copy = tempfile::tempdir()?;
    copy_dir(original.path(), copy.path())?;
    remove_undo_files(copy.path(), network)?;
    let net_dir = copy.path().join(folder);
    let node = CoreNode::open(&net_dir, network, Wipe::All)?;
    assert_eq!(Some(node.tip().1), wanted.best_block(), "{archive}");
    drop(node);
    let core = Rows::read(&net_dir.join("chainstate"))?;
    assert_eq!(wanted.differences(&core), Vec::<String>::new(), "{archive}");

    for scan in [false, true] {
        let copy = tempfile::tempdir()?;
        copy_dir(original.path(), copy.path())?;
        Rebuild { scan, ..Rebuild::default() }.run(copy.path(), network)?;
        let net_dir = copy.path().join(folder);
        let rebuilt = Rows::read(&net_dir.join("chainstate"))?;
        assert_eq!(wanted.differences(&rebuilt), Vec::<String>::new(), "{archive}, scan: {scan}");
        let node = CoreNode::open(&net_dir, network, Wipe::Nothing)?;
        assert_eq!(Some(node.tip().1), wanted.best_block(), "{archive}, scan: {scan}");
        assert_eq!(node.take_events(), [], "{archive}: no block is left to connect");
    }
    Ok(())
}

#[test]
fn of_each_network() {
    for (archive, network) in [
        ("main", Network::Main),
        ("testnet3", Network::Test),
        ("signet", Network::Signet),
        ("regtest", Network::Regtest),
    ] {
        let done = rebuilds_and_core_have_the_same_coins(archive, network);
        done.unwrap_or_else(|error| panic!("{archive}: {error}"));
    }
}
