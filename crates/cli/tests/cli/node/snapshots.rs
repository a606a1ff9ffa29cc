//! Nodes that were started from a snapshot: a real bitcoind starts after each command, in each state of the
//! two chainstates, whether it or `snapshot load` has loaded the snapshot.

use crate::common;

use common::{
    bitcoind::{Node, program},
    run_on_regtest as run,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};
use tempfile::TempDir;
use testkit::{
    GeneratedBlock,
    corrupt::copy_dir,
    peer::{Fault, ScriptedPeer, ServedChain},
    snapshot_chain::{SNAPSHOT_HEIGHT, blocks, branch},
};

/// Height of the last block of the chain.
const TIP: u32 = SNAPSHOT_HEIGHT + 3;
/// Height of the branch with the most work that leaves the chain below the snapshot's block.
const HIGHER: u32 = SNAPSHOT_HEIGHT + 9;

/// The blocks that all nodes get, and a snapshot.
struct World {
    chain: Vec<GeneratedBlock>,
    /// From the block below the snapshot's on, with more work than the chain.
    higher: Vec<GeneratedBlock>,
    snapshot: PathBuf,
    dir: TempDir,
}

/// A datadir in some state of its chainstates.
struct State {
    what: &'static str,
    dir: TempDir,
    /// Height at which bitcoind starts.
    tip: u32,
    /// Number of blocks below that are stored.
    stored: u32,
    /// Whether bitcoind loads the second chainstate. Once it is gone, blocks above missing ones still count
    /// as connected, which only bitcoind's check of the block index minds, with or without Peregrine.
    has_second: bool,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts bitcoind. `checks_index`: it checks the block index after each change, as is usual on regtest.
fn start_with(datadir: &Path, checks_index: bool) -> Node {
    let check = format!("-checkblockindex={}", u8::from(checks_index));
    Node::start(datadir, &[&check]).unwrap()
}

fn start(datadir: &Path) -> Node {
    start_with(datadir, true)
}

fn submit<'b>(node: &Node, blocks: impl IntoIterator<Item = &'b GeneratedBlock>) {
    // What it answers of a block that it has already is no JSON value.
    blocks.into_iter().for_each(|block| drop(node.call(&["submitblock", &hex(&block.bytes)])));
}

fn height(node: &Node) -> u64 {
    node.call(&["getblockcount"]).unwrap().as_u64().unwrap()
}

impl World {
    fn new() -> Self {
        let (chain, dir) = (blocks(TIP), TempDir::new().unwrap());
        let fork = &chain[SNAPSHOT_HEIGHT as usize - 1];
        let higher = branch(fork, HIGHER - fork.height, 1);
        let (full, snapshot) = (dir.path().join("full"), dir.path().join("utxo.dat"));
        fs::create_dir(&full).unwrap();
        let node = start(&full);
        submit(&node, &chain[1..=SNAPSHOT_HEIGHT as usize]);
        assert!(node.call(&["dumptxoutset", snapshot.to_str().unwrap(), "latest"]).is_some());
        node.stop();
        Self { chain, higher, snapshot, dir }
    }

    fn up_to(&self, height: u32) -> &[GeneratedBlock] {
        &self.chain[1..=height as usize]
    }

    /// A node that has all headers, and blocks up to a height.
    fn begun(&self, height: u32) -> TempDir {
        let dir = TempDir::new().unwrap();
        let node = start(dir.path());
        for block in self.up_to(TIP) {
            node.call(&["submitheader", &hex(&block.bytes[..80])]);
        }
        submit(&node, self.up_to(height));
        node.stop();
        dir
    }

    /// The same after bitcoind, or Peregrine, has loaded the snapshot.
    fn loaded(&self, height: u32, by_bitcoind: bool) -> TempDir {
        let dir = self.begun(height);
        let file = self.snapshot.to_str().unwrap();
        if by_bitcoind {
            let node = start(dir.path());
            assert!(node.call(&["loadtxoutset", file]).is_some());
            node.stop();
        } else {
            assert_done(&run(dir.path(), &["snapshot", "load", file]), "snapshot load");
        }
        dir
    }

    /// Lets bitcoind work on a datadir.
    fn after(&self, dir: TempDir, work: impl Fn(&Node)) -> TempDir {
        let node = start(dir.path());
        work(&node);
        node.stop();
        dir
    }

    fn states(&self) -> Vec<State> {
        let state = |what, dir, tip, stored| State { what, dir, tip, stored, has_second: true };
        let one = |what, dir, tip| State { what, dir, tip, stored: tip, has_second: false };
        let partly = |by_bitcoind| {
            let dir = self.loaded(60, by_bitcoind);
            self.after(dir, |node| {
                submit(node, self.up_to(100));
                submit(node, &self.chain[SNAPSHOT_HEIGHT as usize + 1..]);
            })
        };
        let validated = || self.after(partly(true), |node| submit(node, self.up_to(SNAPSHOT_HEIGHT)));
        let other_branch = self.after(validated(), |_| {});
        let aside = |dir: TempDir, name: &str| {
            let second = dir.path().join("regtest/chainstate_snapshot");
            fs::rename(&second, second.with_file_name(name)).unwrap();
            dir
        };
        let empty = self.after(self.begun(TIP), |_| {});
        fs::create_dir(empty.path().join("regtest/chainstate_snapshot")).unwrap();
        vec![
            state("just loaded by bitcoind", self.loaded(0, true), SNAPSHOT_HEIGHT, 0),
            state("just loaded by `snapshot load`", self.loaded(0, false), SNAPSHOT_HEIGHT, 0),
            state("just loaded at height 60 by `snapshot load`", self.loaded(60, false), SNAPSHOT_HEIGHT, 0),
            state("validated up to height 100", partly(true), TIP, 3),
            state("validated up to height 100, loaded by `snapshot load`", partly(false), TIP, 3),
            state("validated and not merged", validated(), TIP, TIP),
            state(
                "on another branch, validated",
                {
                    let dir = partly(true);
                    self.after(dir, |node| {
                        submit(node, self.up_to(SNAPSHOT_HEIGHT));
                        submit(node, &self.higher);
                    })
                },
                HIGHER,
                HIGHER,
            ),
            one("merged", other_branch, TIP),
            one("found invalid", aside(partly(true), "chainstate_snapshot_INVALID"), 100),
            one("set aside", aside(partly(true), "chainstate_snapshot.old"), 100),
            one("an empty directory", empty, TIP),
        ]
    }
}

#[track_caller]
fn assert_done(output: &Output, what: &str) {
    assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

fn copy(dir: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    copy_dir(&dir.join("regtest"), &copy.path().join("regtest")).unwrap();
    copy
}

/// Starts bitcoind, which must come to the height at which it was, and connect what it lacks.
fn assert_starts(world: &World, datadir: &Path, (tip, stored, checks_index): (u32, u32, bool), what: &str) {
    println!("{what}");
    let node = start_with(datadir, checks_index);
    let found = height(&node);
    assert!(found >= u64::from(tip), "{what}: height {found}");
    if stored > 0 {
        let blocks = stored.to_string();
        assert_eq!(node.call(&["verifychain", "4", &blocks]).unwrap(), true, "{what}");
    }
    submit(&node, world.up_to(TIP));
    assert!(height(&node) >= u64::from(TIP), "{what}: height {} in the end", height(&node));
    node.stop();
    // With all blocks, it merges the two.
    let node = start_with(datadir, checks_index);
    assert_eq!(node.call(&["getchainstates"]).unwrap()["chainstates"].as_array().unwrap().len(), 1, "{what}");
    assert_eq!(node.call(&["verifychain", "4", "0"]).unwrap(), true, "{what}");
    node.stop();
}

#[test]
fn bitcoind_starts_after_each_command_in_each_state_of_its_chainstates() {
    let Some(_) = program() else { return };
    let world = World::new();
    let peer = ScriptedPeer::start(&ServedChain::of(world.chain.iter()).into(), Fault::None);
    let address = peer.address().to_string();
    let snapshot = world.snapshot.display().to_string();
    let block = world.dir.path().join("block");
    fs::write(&block, &world.chain[50].bytes).unwrap();
    let given = format!("reindex --block {}", block.display());
    let load = format!("snapshot load {snapshot}");
    let [sync, repair] = ["sync", "repair"].map(|command| format!("{command} --connect {address}"));
    for state in world.states() {
        for command in [
            "reindex",
            "reindex --until-damage",
            "reindex --engine cache",
            "reindex --scan",
            "reindex --stop-at-height 200",
            "update",
            "undo make",
            &given,
            &repair,
            &sync,
            &load,
        ] {
            let what = format!("{}, {command}", state.what);
            let case = copy(state.dir.path());
            let words: Vec<&str> = command.split(' ').chain(["--progress", "none"]).collect();
            let output = run(case.path(), &words);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let code = output.status.code().unwrap();
            assert!([0, 2, 4].contains(&code), "{what}: {code} {error}");
            // It starts at the snapshot's block then, which is not stored.
            let is_loaded = command == load && code == 0;
            let (tip, stored) = if is_loaded { (SNAPSHOT_HEIGHT, 0) } else { (state.tip, state.stored) };
            let expected = (tip, stored, state.has_second);
            assert_starts(&world, case.path(), expected, &format!("{what}: {code} {error}"));
            let is_rebuild = command.starts_with("reindex") && !command.contains("--");
            if code == 2 && is_rebuild && state.has_second {
                assert!(error.contains("move the directory away"), "{what}: {error}");
                let case = copy(state.dir.path());
                let second = case.path().join("regtest/chainstate_snapshot");
                fs::rename(&second, second.with_file_name("chainstate_snapshot.old")).unwrap();
                assert_done(&run(case.path(), &words), &what);
                assert_starts(&world, case.path(), (0, 0, false), &what);
            }
        }
    }
}
