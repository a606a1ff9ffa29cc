//! `--assumevalid checked`: what is said about it, and a real bitcoind before and after.

#![cfg(feature = "scripts")]

use crate::common;

use common::{json, run_on_regtest};
use disk::index::{BlockStatus, IndexEntry, read_block_index, write_block_index};
use engine::{BlockHash, Height};
use std::{fs, path::Path};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    datadir::Layout,
    mutation::{CheckLevel, base_chain, mutations},
};
use vfs::RealDisk;

const CHECKED: [&str; 2] = ["--assumevalid", "checked"];

fn written(chain: &Chain) -> TempDir {
    let dir = TempDir::new().unwrap();
    chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(17) }).unwrap();
    dir
}

/// Lowers the marks of all blocks above a height.
fn unmark_above(dir: &Path, height: u32) {
    let dir = dir.join("regtest/blocks/index");
    let mut index = read_block_index(&RealDisk, &dir).unwrap();
    let high = index.entries.iter_mut().filter(|entry| entry.height > Height(height));
    high.filter(|it| it.status.validity() == BlockStatus::VALID_SCRIPTS).for_each(|it| it.status.0 -= 1);
    fs::remove_dir_all(&dir).unwrap();
    write_block_index(&RealDisk, &dir, &index).unwrap();
}

#[test]
fn what_is_trusted_is_said_before_and_after() {
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    let dir = written(&chain);
    unmark_above(dir.path(), 120);
    let scripts = || json(&run_on_regtest(dir.path(), &["verify", "--json", CHECKED[0], CHECKED[1]]));
    let found = &scripts()["scripts"];
    assert_eq!((&found["assumed_valid_to"], &found["trusted"]), (&120.into(), &"block_index".into()));
    let before = "scripts up to height 120 are not run: bitcoind has checked them before, by the datadir's";
    let after =
        "up to height 120: checked by bitcoind before, by the datadir's block index; above: checked\n";
    let plan = dir.path().join("plan");
    let plan = ["range", "plan", "--ranges", "2", "-o", plan.to_str().unwrap()];
    for (words, is_said_after) in [(&["reindex"][..], true), (&plan, true), (&["undo", "make"], false)] {
        let output = run_on_regtest(dir.path(), &[words, &CHECKED].concat());
        let [told, report] = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success() && told.contains(before), "{words:?}: {told}");
        assert_eq!(report.contains(after), is_said_after, "{words:?}: {report}");
    }
    let scan = run_on_regtest(dir.path(), &["verify", "--scan", CHECKED[0], CHECKED[1]]);
    let text = String::from_utf8_lossy(&scan.stderr);
    assert!(scan.status.code() == Some(2) && text.contains("no block index is believed"), "{text}");
    unmark_above(dir.path(), 0);
    let none = run_on_regtest(dir.path(), &["reindex", CHECKED[0], CHECKED[1]]);
    let text = String::from_utf8_lossy(&none.stderr);
    assert!(none.status.success() && text.contains("scripts are run as by default"), "{text}");
}

/// Core's own code rejects the last block, which the index marks as valid.
#[test]
fn a_bad_signature_below_a_mark_is_found_by_default_and_not_with_checked() {
    let bad = mutations().find(|it| it.level == CheckLevel::Script && it.core.is_some()).unwrap();
    let chain = bad.apply(&base_chain(9)).chain;
    let dir = written(&chain);
    assert_eq!(run_on_regtest(dir.path(), &["verify"]).status.code(), Some(3), "{}", bad.name);
    let output = run_on_regtest(dir.path(), &["verify", "--json", CHECKED[0], CHECKED[1]]);
    assert_eq!(json(&output)["height"], chain.tip().height, "{output:?}");
    unmark_above(dir.path(), chain.tip().height - 1);
    assert_eq!(run_on_regtest(dir.path(), &["verify", CHECKED[0], CHECKED[1]]).status.code(), Some(3));
}

/// The validity of each block that the index has.
fn marks(dir: &Path) -> Vec<(BlockHash, u32, u32)> {
    let index = read_block_index(&RealDisk, &dir.join("regtest/blocks/index")).unwrap();
    let of = |entry: &IndexEntry| (entry.hash, entry.status.validity(), entry.tx_count);
    index.entries.iter().map(of).collect()
}

mod node {
    use super::*;
    use serde_json::json;
    use testkit::node::Node;

    #[test]
    fn peregrine_marks_what_bitcoind_marks_and_bitcoind_starts_on_what_rests_on_marks() {
        let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
        let dir = written(&chain);
        assert!(run_on_regtest(dir.path(), &["reindex", "--scan"]).status.success());
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
            let output = run_on_regtest(dir.path(), &["reindex", "--json", CHECKED[0], CHECKED[1]]);
            let report = json(&output);
            let expected = (&"none".into(), &height.into(), &"block_index".into());
            let scripts = &report["scripts"];
            let found = (&scripts["checked"], &scripts["assumed_valid_to"], &scripts["trusted"]);
            assert_eq!(found, expected, "{what}: {report}");
            let node = Node::start(dir.path(), &[]).unwrap();
            let info = node.call("gettxoutsetinfo", json!([])).unwrap();
            assert_eq!(
                (&info["bestblock"], &info["hash_serialized_3"]),
                (&tip.as_str().into(), &report["hash_serialized_3"])
            );
            assert!(node.finds_sound(4, 0), "{what}");
            node.stop().unwrap();
        }
    }
}
