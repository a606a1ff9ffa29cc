//! A real bitcoind that has deleted its oldest blocks, before and after `sync --unprune`, also if that is
//! killed. `PEREGRINE_KILLS=50` kills that often.

use super::indexes::{copy, flags, reorganise};
use crate::prelude::*;

/// Small block files, and pruning by hand.
const PRUNED: [&str; 3] = ["-fastprune", "-prune=1", "-blockfilterindex"];

fn chain() -> Chain {
    Chain::generate(&ChainSpec { blocks: Some(420), stale: false, ..ChainSpec::new(29, 700_000) })
}

/// The datadir of a node that had all blocks, and has then deleted the files of the lowest; and its coins.
fn pruned_node(chain: &Chain) -> Option<(TempDir, Value)> {
    let (program, dir) = (program()?, TempDir::new().unwrap());
    let flags = PRUNED.map(str::to_owned);
    let writer = Writer { program: &program, flags: &flags, patience: PATIENCE };
    writer.write(dir.path(), &chain.main().cloned().collect::<Vec<_>>(), 1, Tail::Pruned).unwrap();
    let node = writer.node(&dir.path().join("datadir"), &[]).unwrap();
    let coins = node.coins().unwrap();
    let lowest = node.call("getblockchaininfo", json!([])).unwrap()["pruneheight"].clone();
    assert!(lowest.as_u64().is_some_and(|height| height > 50), "{lowest}");
    node.stop().unwrap();
    Some((copy(&dir.path().join("datadir")), coins))
}

fn unpruning(dir: &Path, peer: &ScriptedPeer) -> std::process::Command {
    let address = peer.address().to_string();
    command(&["sync", "--unprune", "--chain", "regtest", "--connect", &address, "--json"], dir)
}

#[test]
fn bitcoind_has_all_blocks_again_and_goes_on_without_pruning() {
    let chain = chain();
    let Some((dir, before)) = pruned_node(&chain) else { return };
    let peer = peer_with(chain.main());
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
    let tip = chain.tip().hash.to_string();
    let info = node.call("getblockchaininfo", json!([])).unwrap();
    assert_eq!((&info["pruned"], &info["bestblockhash"]), (&false.into(), &tip.as_str().into()), "{info}");
    assert!(node.finds_sound(4, 0));
    for block in chain.main() {
        let found = node.call("getblock", json!([block.hash.to_string()])).unwrap();
        assert_eq!(found["height"], block.height, "{found}");
    }
    assert_eq!(node.coins().unwrap(), *coins_before);
    reorganise(&node, chain, 26);
    assert_eq!(node.coins().unwrap(), *coins_before);
    node.stop().unwrap();
}

#[test]
fn killed_at_any_moment_bitcoind_starts_as_a_pruned_or_a_full_node() {
    let chain = chain();
    let Some((dir, before)) = pruned_node(&chain) else { return };
    let peer = peer_with(chain.main());
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
        done(run(dir.path(), &["recover"]));
        let node = Node::start(dir.path(), &PRUNED).unwrap();
        assert_eq!(node.height(), chain.tip().height, "round {round}");
        assert!(node.finds_sound(4, 30), "round {round}");
        assert_eq!(node.coins().unwrap(), before, "round {round}");
        let is_full = node.call("getblockchaininfo", json!([])).unwrap()["pruneheight"] == 0;
        node.stop().unwrap();
        if is_full {
            full += 1;
            dir = copy(original.path());
        }
    }
    println!("{kills} kills, {full} of them after the end");
    done(unpruning(dir.path(), &peer).output().unwrap());
    assert_full(dir.path(), &chain, &before);
}
