//! Nodes that were started from a snapshot: a real bitcoind starts after each command, in each state of the
//! two chainstates, whether it or `snapshot load` has loaded the snapshot.

use super::indexes::copy;
use crate::prelude::*;

/// Height of the last block of the chain.
const TIP: u32 = SNAPSHOT_HEIGHT + 3;

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

/// Starts bitcoind. `checks_index`: it checks the block index after each change, as is usual on regtest.
fn start_with(datadir: &Path, checks_index: bool) -> Node {
    let check = format!("-checkblockindex={}", u8::from(checks_index));
    Node::start(datadir, &[&check]).unwrap()
}

/// A node that has all headers, and blocks up to a height.
fn begun(from: &SnapshotDatadirs<'_>, height: u32) -> TempDir {
    let dir = TempDir::new().unwrap();
    from.begin(dir.path(), height).unwrap();
    dir
}

/// The same after bitcoind, or Peregrine, has loaded the snapshot.
fn loaded(from: &SnapshotDatadirs<'_>, height: u32, by_bitcoind: bool) -> TempDir {
    let dir = begun(from, height);
    if by_bitcoind {
        from.load(dir.path()).unwrap();
    } else {
        let file = from.file.to_str().unwrap();
        assert_done(&run(dir.path(), &["snapshot", "load", file]), "snapshot load");
    }
    dir
}

fn states(from: &SnapshotDatadirs<'_>) -> Vec<State> {
    let state = |what, dir, tip, stored| State { what, dir, tip, stored, has_second: true };
    let one = |what, dir, tip| State { what, dir, tip, stored: tip, has_second: false };
    let after = |dir: TempDir, blocks: &[GeneratedBlock]| {
        from.work(dir.path(), |node| node.submit(blocks)).unwrap();
        dir
    };
    let partly = |by_bitcoind| after(after(loaded(from, 60, by_bitcoind), from.up_to(100)), from.above());
    let validated = || after(partly(true), from.up_to(SNAPSHOT_HEIGHT));
    let other_branch = {
        let dir = partly(true);
        let work = |node: &Node| {
            node.submit(from.up_to(SNAPSHOT_HEIGHT))?;
            node.submit(&from.branch)
        };
        from.work(dir.path(), work).unwrap();
        dir
    };
    let higher = from.branch.last().unwrap().height;
    let aside = |dir: TempDir, name: &str| {
        let second = dir.path().join("regtest/chainstate_snapshot");
        fs::rename(&second, second.with_file_name(name)).unwrap();
        dir
    };
    let empty = begun(from, TIP);
    fs::create_dir(empty.path().join("regtest/chainstate_snapshot")).unwrap();
    vec![
        state("just loaded by bitcoind", loaded(from, 0, true), SNAPSHOT_HEIGHT, 0),
        state("just loaded by `snapshot load`", loaded(from, 0, false), SNAPSHOT_HEIGHT, 0),
        state("just loaded at height 60 by `snapshot load`", loaded(from, 60, false), SNAPSHOT_HEIGHT, 0),
        state("validated up to height 100", partly(true), TIP, 3),
        state("validated up to height 100, loaded by `snapshot load`", partly(false), TIP, 3),
        state("validated and not merged", validated(), TIP, TIP),
        state("on another branch, validated", other_branch, higher, higher),
        one("merged", after(validated(), &[]), TIP),
        one("found invalid", aside(partly(true), "chainstate_snapshot_INVALID"), 100),
        one("set aside", aside(partly(true), "chainstate_snapshot.old"), 100),
        one("an empty directory", empty, TIP),
    ]
}

#[track_caller]
fn assert_done(output: &Output, what: &str) {
    assert_eq!(output.status.code(), Some(0), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Starts bitcoind, which must come to the height at which it was, and connect what it lacks.
fn assert_starts(from: &SnapshotDatadirs<'_>, datadir: &Path, state: (u32, u32, bool), what: &str) {
    println!("{what}");
    let (tip, stored, checks_index) = state;
    let node = start_with(datadir, checks_index);
    assert!(node.height() >= tip, "{what}: height {}", node.height());
    assert!(stored == 0 || node.finds_sound(4, stored), "{what}");
    node.submit(from.up_to(TIP)).unwrap();
    assert!(node.height() >= TIP, "{what}: height {} in the end", node.height());
    node.stop().unwrap();
    // With all blocks, it merges the two.
    let node = start_with(datadir, checks_index);
    let chainstates = node.call("getchainstates", json!([])).unwrap();
    assert_eq!(chainstates["chainstates"].as_array().unwrap().len(), 1, "{what}");
    assert!(node.finds_sound(4, 0), "{what}");
    node.stop().unwrap();
}

#[test]
fn bitcoind_starts_after_each_command_in_each_state_of_its_chainstates() {
    let Some(program) = program() else { return };
    let (dir, writer) =
        (TempDir::new().unwrap(), Writer { program: &program, flags: &[], patience: PATIENCE });
    let from = SnapshotDatadirs::new(writer, dir.path()).unwrap();
    let peer = peer_with(&from.blocks);
    let address = peer.address().to_string();
    let snapshot = from.file.display().to_string();
    let block = dir.path().join("block");
    fs::write(&block, &from.blocks[50].bytes).unwrap();
    let given = format!("reindex --block {}", block.display());
    let load = format!("snapshot load {snapshot}");
    let [sync, repair] = ["sync", "repair"].map(|command| format!("{command} --connect {address}"));
    for state in states(&from) {
        for command in [
            "reindex",
            "reindex --until-damage",
            "reindex --engine cache",
            "reindex --scan",
            "reindex --to 200",
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
            assert_starts(&from, case.path(), expected, &format!("{what}: {code} {error}"));
            let is_rebuild = command.starts_with("reindex") && !command.contains("--");
            if code == 2 && is_rebuild && state.has_second {
                assert!(error.contains("move the directory away"), "{what}: {error}");
                let case = copy(state.dir.path());
                let second = case.path().join("regtest/chainstate_snapshot");
                fs::rename(&second, second.with_file_name("chainstate_snapshot.old")).unwrap();
                assert_done(&run(case.path(), &words), &what);
                assert_starts(&from, case.path(), (0, 0, false), &what);
            }
        }
    }
}
