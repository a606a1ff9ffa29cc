//! A real bitcoind that has deleted its oldest blocks, before and after `sync --unprune`, also if that is
//! killed. `PEREGRINE_KILLS=50` kills that often.

use super::indexes::{copy, flags};
use crate::common;

use common::{bitcoind::Node, command, json};
use serde_json::Value;
use std::{path::Path, process::Stdio, sync::Arc, thread::sleep, time::Duration};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    peer::{Fault, ScriptedPeer, ServedChain},
    rng::Rng,
};

/// Small block files, and pruning by hand.
const PRUNED: &[&str] = &["-fastprune", "-prune=1", "-blockfilterindex"];

fn chain() -> Chain {
    Chain::generate(&ChainSpec { blocks: Some(420), stale: false, ..ChainSpec::new(29, 700_000) })
}

/// A node that has all blocks, and has then deleted the files of the lowest. Returns its coins too.
fn pruned_node(chain: &Chain) -> Option<(TempDir, Value)> {
    let dir = TempDir::new().unwrap();
    let node = Node::start(dir.path(), PRUNED)?;
    for block in chain.main().skip(1) {
        let hex: String = block.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        node.call(&["submitblock", &hex]);
    }
    assert!(node.has_height(chain.tip().height.into()));
    wait_for_filters(&node);
    let lowest = node.call(&["pruneblockchain", "130"]).unwrap();
    assert!(lowest.as_u64().is_some_and(|height| height > 50), "{lowest}");
    let coins = coins(&node);
    node.stop();
    Some((dir, coins))
}

fn wait_for_filters(node: &Node) {
    let is_synced =
        || node.call(&["getindexinfo"]).is_some_and(|it| it["basic block filter index"]["synced"] == true);
    while !is_synced() {
        sleep(Duration::from_millis(50));
    }
}

fn coins(node: &Node) -> Value {
    node.call(&["gettxoutsetinfo"]).unwrap()["hash_serialized_3"].clone()
}

fn unpruning(dir: &Path, peer: &ScriptedPeer) -> std::process::Command {
    let address = peer.address().to_string();
    command(&["sync", "--unprune", "--chain", "regtest", "--connect", &address, "--json"], dir)
}

#[test]
fn bitcoind_has_all_blocks_again_and_goes_on_without_pruning() {
    let chain = chain();
    let Some((dir, before)) = pruned_node(&chain) else { return };
    let peer = ScriptedPeer::start(&Arc::new(ServedChain::of(chain.main())), Fault::None);
    // One index is made in the same pass, the other goes on.
    let indexes = ["--index", "txindex", "--index", "blockfilterindex"];
    let output = unpruning(dir.path(), &peer).args(indexes).output().unwrap();
    let report = json(&output);
    assert!(output.status.success() && report["unpruned"] == true, "{report}");
    assert_eq!(report["indexes"]["indexes"].as_array().map(Vec::len), Some(2), "{report}");
    let stored = chain.tip().height - report["blocks_downloaded"].as_u64().unwrap() as u32;
    assert!(stored > 200, "only deleted blocks are downloaded: {report}");
    assert_full(dir.path(), &chain, &before);
}

/// Asserts that bitcoind starts without pruning, finds all blocks sound, and reorganises.
fn assert_full(dir: &Path, chain: &Chain, coins_before: &Value) {
    let node = Node::start(dir, flags()).unwrap();
    let (tip, height) = (chain.tip().hash.to_string(), chain.tip().height);
    let info = node.call(&["getblockchaininfo"]).unwrap();
    assert_eq!((&info["pruned"], &info["bestblockhash"]), (&false.into(), &tip.as_str().into()), "{info}");
    assert_eq!(node.call(&["verifychain", "4", "0"]), Some(true.into()));
    for block in chain.main() {
        let found = node.call(&["getblock", &block.hash.to_string(), "1"]).unwrap();
        assert_eq!(found["height"], block.height, "{found}");
    }
    assert_eq!(coins(&node), *coins_before);
    let back = chain.main().nth(height as usize - 25).unwrap().hash.to_string();
    node.call(&["invalidateblock", &back]);
    assert!(node.has_height(u64::from(height) - 26));
    node.call(&["reconsiderblock", &back]);
    assert!(node.has_height(height.into()));
    assert_eq!(coins(&node), *coins_before);
    let is_synced = |it: &Value| it.as_object().unwrap().values().all(|index| index["synced"] == true);
    while !node.call(&["getindexinfo"]).is_some_and(|found| is_synced(&found)) {
        sleep(Duration::from_millis(50));
    }
    node.stop();
}

#[test]
fn killed_at_any_moment_bitcoind_starts_as_a_pruned_or_a_full_node() {
    let chain = chain();
    let Some((dir, before)) = pruned_node(&chain) else { return };
    let peer = ScriptedPeer::start(&Arc::new(ServedChain::of(chain.main())), Fault::None);
    let kills = std::env::var("PEREGRINE_KILLS").map_or(6, |text| text.parse().unwrap());
    let mut rng = Rng::new(7, "unprune");
    let (mut dir, mut full) = (dir, 0);
    let original = copy(dir.path());
    for round in 0..kills {
        let mut child =
            unpruning(dir.path(), &peer).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(rng.below(2_000)));
        if round % 2 == 0 {
            child.kill().unwrap();
        } else {
            let _ = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        }
        child.wait().unwrap();
        // Any command finishes or undoes an interrupted exchange of databases.
        let recovered = command(&["recover", "--chain", "regtest"], dir.path()).output().unwrap();
        assert!(recovered.status.success(), "{recovered:?}");
        let node = Node::start(dir.path(), PRUNED).unwrap();
        assert_eq!(node.call(&["getblockcount"]), Some(chain.tip().height.into()), "round {round}");
        assert_eq!(node.call(&["verifychain", "4", "30"]), Some(true.into()), "round {round}");
        assert_eq!(coins(&node), before, "round {round}");
        let is_full = node.call(&["getblockchaininfo"]).unwrap()["pruneheight"] == 0;
        node.stop();
        if is_full {
            full += 1;
            dir = copy(original.path());
        }
    }
    println!("{kills} kills, {full} of them after the end");
    let output = unpruning(dir.path(), &peer).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_full(dir.path(), &chain, &before);
}
