//! A node's block files also contain blocks that it rejected.

use crate::prelude::*;
use engine::UndoPolicy;

/// Core gets a chain and then each invalid block of the table that can extend its tip. It stores those whose
/// violation it detects only when it connects them, and marks them in its index. A rebuild of Core's datadir,
/// with that index and by a scan without these marks, results in Core's own coins.
#[test]
fn rebuild_leaves_out_blocks_that_core_rejected() -> Result<(), Box<dyn Error>> {
    let base = base_chain(51);
    let root = tempfile::tempdir()?;
    let net_dir = root.path().join("regtest");
    let node = scenario::feed(&base, &net_dir)?;
    let (mut rejected, mut stored) = (0, 0);
    for mutation in mutations().filter(|mutation| mutation.core.is_some()) {
        let mutated = mutation.apply(&base);
        if mutated.setup.is_empty() {
            let verdict = node.submit(&mutated.block.bytes);
            assert!(matches!(verdict, Verdict::Rejected(_)), "{}: {verdict:?}", mutation.name);
            rejected += 1;
            // Core stores a block before it checks its spends.
            stored += u32::from(mutation.level == CheckLevel::Spend);
        }
    }
    assert!(rejected >= 20 && stored >= 5, "{rejected} rejected, {stored} of them stored");
    let tip = node.tip();
    drop(node);
    let core = Rows::read(&net_dir.join("chainstate"))?;

    for (scan, undo) in [
        (false, UndoPolicy::Auto),
        (true, UndoPolicy::Auto),
        (true, UndoPolicy::Trust),
        (false, UndoPolicy::Make),
        (true, UndoPolicy::Make),
    ] {
        let copy = tempfile::tempdir()?;
        copy_dir(root.path(), copy.path())?;
        if undo == UndoPolicy::Make {
            remove_undo_files(copy.path(), Network::Regtest)?;
        }
        let report = Rebuild { scan, undo, ..Rebuild::default() }.run(copy.path(), Network::Regtest)?;
        assert_eq!((report.height, report.hash), tip, "scan: {scan}");
        let net_dir = copy.path().join("regtest");
        let rebuilt = Rows::read(&net_dir.join("chainstate"))?;
        assert_eq!(core.differences(&rebuilt), Vec::<String>::new(), "scan: {scan}");
        // After a scan, Core validates the rejected blocks again, and ends at the same tip.
        assert_eq!(CoreNode::open(&net_dir, Network::Regtest, Wipe::Nothing)?.tip(), tip, "scan: {scan}");
    }
    Ok(())
}
