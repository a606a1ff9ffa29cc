//! Stored blocks outside the chain, beside a real bitcoind, which connects what its block index has.

use crate::prelude::*;

/// bitcoind checks the height in a coinbase only when a block arrives: it once followed such a block.
#[test]
fn bitcoind_does_not_follow_an_invalid_block_that_a_scan_has_found() {
    let (dir, mut chain) = (TempDir::new().unwrap(), datadirs::small().clone());
    let tip = chain.tip().clone();
    let mut above = sibling(&tip, 1, |block| {
        block.txdata.truncate(1);
        block.txdata[0].output[0].value = bitcoin::Amount::ZERO;
    });
    rebase(std::iter::once(&mut above), tip.hash);
    above.height += 1;
    let hash = above.hash.to_string();
    chain.blocks.push(above);
    datadirs::write_chain(&chain, dir.path());
    done(run(dir.path(), &["reindex", "--scan"]));
    let Some(node) = Node::start(dir.path(), &[]) else { return };
    assert_eq!(node.call("getbestblockhash", json!([])).unwrap(), tip.hash.to_string());
    let tips = node.call("getchaintips", json!([])).unwrap();
    let found = tips.as_array().unwrap().iter().find(|it| it["hash"] == hash).unwrap();
    assert_eq!(found["status"], "invalid", "{tips}");
    node.stop().unwrap();
}
