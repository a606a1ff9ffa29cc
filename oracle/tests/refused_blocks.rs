//! A node's datadir holds more than its chain: blocks it refused lie in the block files too.

use oracle::{CoreNode, Rebuild, Verdict, Wipe, coins::Rows, datadir, scenario};
use std::error::Error;
use testkit::mutation::{CheckLevel, base_chain, mutations};
use wire::Network;

/// Core is given a chain and then each broken block of the table that can stand on its tip. It stores those
/// whose flaw it sees only when it connects them, and marks them in its index. A rebuild of Core's datadir,
/// by that index and by a scan which knows no marks, comes to Core's own coins all the same.
#[test]
fn a_rebuild_leaves_out_what_core_refused() -> Result<(), Box<dyn Error>> {
    let base = base_chain(51);
    let root = tempfile::tempdir()?;
    let net_dir = root.path().join("regtest");
    let node = scenario::feed(&base, &net_dir)?;
    let (mut refused, mut stored) = (0, 0);
    for mutation in mutations().filter(|mutation| mutation.core.is_some()) {
        let mutated = mutation.apply(&base);
        if mutated.setup.is_empty() {
            let verdict = node.submit(&mutated.block.bytes);
            assert!(matches!(verdict, Verdict::Rejected(_)), "{}: {verdict:?}", mutation.name);
            refused += 1;
            // Core stores a block before it looks for the coins.
            stored += u32::from(mutation.level == CheckLevel::Spend);
        }
    }
    assert!(refused >= 20 && stored >= 5, "{refused} refused, {stored} of them stored");
    let tip = node.tip();
    drop(node);
    let core = Rows::read(&net_dir.join("chainstate"))?;

    for scan in [false, true] {
        let copy = tempfile::tempdir()?;
        datadir::copy(root.path(), copy.path(), &|_| true)?;
        let report = Rebuild { scan, ..Rebuild::default() }.run(copy.path(), Network::Regtest)?;
        assert_eq!((report.height, report.hash), tip, "scan: {scan}");
        let net_dir = copy.path().join("regtest");
        let rebuilt = Rows::read(&net_dir.join("chainstate"))?;
        assert_eq!(core.differences(&rebuilt), Vec::<String>::new(), "scan: {scan}");
        // After a scan Core judges the refused blocks again, and comes to the same end.
        assert_eq!(CoreNode::open(&net_dir, Network::Regtest, Wipe::Nothing)?.tip(), tip, "scan: {scan}");
    }
    Ok(())
}
