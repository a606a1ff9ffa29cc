//! The datadirs that Bitcoin Core wrote from real chains, as far as they are at hand.

use oracle::{CoreNode, Rebuild, Wipe, coins::Rows, datadir};
use std::error::Error;
use testkit::data::unpack_core_datadir;
use wire::Network;

/// Three ways to the coins of a real datadir agree row by row with what the `bitcoind` that wrote it left in
/// its chainstate: Core's code from the `blk` files alone (so the node is sound), a rebuild by the block
/// index, and a rebuild by a scan, both with all scripts run; and Core opens what the rebuilds wrote, at the
/// same tip.
fn all_ways_lead_to_the_same_coins(archive: &str, network: Network) -> Result<(), Box<dyn Error>> {
    let Some(original) = unpack_core_datadir(archive) else { return Ok(()) };
    let folder = network.folder().unwrap_or("");
    let wanted = Rows::read(&original.path().join(folder).join("chainstate"))?;
    assert!(wanted.coins() > 0);

    let copy = tempfile::tempdir()?;
    datadir::copy(&original.path().join(folder), copy.path(), &datadir::is_block_file)?;
    let node = CoreNode::open(copy.path(), network, Wipe::All)?;
    assert_eq!(Some(node.tip().1), wanted.best_block());
    drop(node);
    let core = Rows::read(&copy.path().join("chainstate"))?;
    assert_eq!(wanted.differences(&core), Vec::<String>::new());

    for scan in [false, true] {
        let copy = tempfile::tempdir()?;
        datadir::copy(original.path(), copy.path(), &|_| true)?;
        Rebuild { scan, ..Rebuild::default() }.run(copy.path(), network)?;
        let net_dir = copy.path().join(folder);
        let rebuilt = Rows::read(&net_dir.join("chainstate"))?;
        assert_eq!(wanted.differences(&rebuilt), Vec::<String>::new(), "scan: {scan}");
        let node = CoreNode::open(&net_dir, network, Wipe::Nothing)?;
        assert_eq!(Some(node.tip().1), wanted.best_block(), "scan: {scan}");
        assert_eq!(node.take_events(), [], "there is nothing left to connect");
    }
    Ok(())
}

#[test]
fn main() -> Result<(), Box<dyn Error>> {
    all_ways_lead_to_the_same_coins("main", Network::Main)
}

#[test]
fn testnet3() -> Result<(), Box<dyn Error>> {
    all_ways_lead_to_the_same_coins("testnet3", Network::Test)
}

#[test]
fn signet() -> Result<(), Box<dyn Error>> {
    all_ways_lead_to_the_same_coins("signet", Network::Signet)
}

#[test]
fn regtest() -> Result<(), Box<dyn Error>> {
    all_ways_lead_to_the_same_coins("regtest", Network::Regtest)
}
