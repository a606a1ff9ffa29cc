//! `--assumevalid checked`, and a real bitcoind before and after.

#![cfg(feature = "scripts")]

use crate::prelude::*;
use disk::index::{IndexEntry, read_block_index};

const CHECKED: [&str; 2] = ["--assumevalid", "checked"];

/// The validity of each block that the index has.
fn marks(dir: &Path) -> Vec<(BlockHash, u32, u32)> {
    let index = read_block_index(&RealDisk, &dir.join("regtest/blocks/index")).unwrap();
    let of = |entry: &IndexEntry| (entry.hash, entry.status.validity(), entry.tx_count);
    index.entries.iter().map(of).collect()
}

mod node {
    use super::*;

    #[test]
    fn peregrine_marks_what_bitcoind_marks_and_bitcoind_starts_on_what_rests_on_marks() {
        let (chain, dir) = (datadirs::small(), TempDir::new().unwrap());
        chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(17) }).unwrap();
        assert!(run(dir.path(), &["reindex", "--scan"]).status.success());
        let own = marks(dir.path());
        let (tip, height) = (chain.tip().hash.to_string(), chain.tip().height);
        let Some(node) = Node::start(dir.path(), &["-reindex"]) else { return };
        node.wait_for_height(height).unwrap();
        node.stop().unwrap();
        let of_core = marks(dir.path());
        for (row, core) in own.iter().zip(&of_core).filter(|(own, _)| own.0 != chain.blocks[0].hash) {
            let is_of_chain = chain.main().any(|block| block.hash == row.0);
            assert!(row == core || !is_of_chain, "{row:?} is {core:?} in the index of bitcoind");
        }
        for what in ["as bitcoind has left it", "as peregrine has left it"] {
            let report = report(dir.path(), &["reindex", CHECKED[0], CHECKED[1]]);
            let expected = (&"none".into(), &height.into(), &"block_index".into());
            let scripts = &report["scripts"];
            let found = (&scripts["checked"], &scripts["assumed_valid_to"], &scripts["trusted"]);
            assert_eq!(found, expected, "{what}: {report}");
            let node = Node::start(dir.path(), &[]).unwrap();
            let info = node.call("gettxoutsetinfo", json!([])).unwrap();
            assert_eq!(info["bestblock"], tip.as_str());
            assert_eq!(info["hash_serialized_3"], report["hash_serialized_3"]);
            assert!(node.finds_sound(4, 0), "{what}");
            node.stop().unwrap();
        }
    }
}
