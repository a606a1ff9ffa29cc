//! `peregrine doctor`: the last line that it prints is a command that repairs.

use crate::common;

use common::{command, json, run_line, run_on_regtest};
use disk::index::read_block_index;
use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::Output,
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::snapshot, datadir::Layout, situation};
use vfs::RealDisk;

/// A datadir with a chainstate, whose name needs quotes in a shell.
fn datadir() -> TempDir {
    let chain = Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(17, 60_000) });
    let dir = tempfile::Builder::new().prefix("my node").tempdir().unwrap();
    let layout = Layout { file_size: 16 << 10, preallocate: false, ..Layout::new(17) };
    chain.write_datadir(dir.path(), &layout).unwrap();
    let done = command(&["reindex", "--chain", "regtest", "--json"], dir.path()).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    dir
}

fn doctor(dir: &Path, more: &[&str]) -> Output {
    command(&[&["doctor", "--chain", "regtest", "--progress", "none"], more].concat(), dir).output().unwrap()
}

/// Runs `peregrine doctor` as text and as JSON, and checks that they agree and that nothing changes. Returns
/// the exit code and the command to run next.
fn diagnosed(dir: &Path) -> (i32, String, Value) {
    let before = snapshot(dir).unwrap();
    let (text, object) = (doctor(dir, &[]), doctor(dir, &["--json"]));
    assert!(snapshot(dir).unwrap() == before, "the datadir has changed");
    let code = text.status.code().unwrap();
    assert_eq!(object.status.code(), Some(code), "{object:?}");
    let printed = String::from_utf8(text.stdout).unwrap();
    let next = printed.lines().last().unwrap().strip_prefix("next").unwrap().trim().to_owned();
    let object = json(&object);
    assert_eq!(object["next"], next.as_str(), "{printed}");
    assert_eq!(object["is_sound"], code == 0, "{printed}");
    (code, next, object)
}

#[test]
fn the_command_that_is_printed_repairs() {
    let damage = [
        ("chainstate: CURRENT", "reindex"),
        ("index: absent", "reindex-by-scan"),
        ("rev: one missing", "make-undo"),
        ("rev: all missing", "make-undo"),
        ("xor.dat: missing", "restore-key"),
    ];
    let dir = datadir();
    let (code, next, _) = diagnosed(dir.path());
    assert_eq!((code, &*next), (0, &*format!("bitcoind '-datadir={}' -chain=regtest", dir.path().display())));
    for (what, advice) in damage {
        situation::cause(what, dir.path(), dir.path());
        let (code, next, object) = diagnosed(dir.path());
        assert_eq!((code, object["advice"]["code"].as_str()), (4, Some(advice)), "{what}: {object}");
        let done = run_line(&next);
        assert!(done.status.success(), "{next}: {done:?}");
        let deep = doctor(dir.path(), &["--deep", "--json"]);
        assert_eq!(deep.status.code(), Some(0), "{what}: {deep:?}");
        assert_eq!(json(&deep)["datadir"]["deep"]["blocks_damaged"], 0);
    }
    // What a killed `index make` leaves.
    let work = dir.path().join("regtest/peregrine-work-1-0");
    for command in ["recover", "reindex"] {
        fs::create_dir(&work).unwrap();
        fs::write(work.join("peregrine.lock"), "").unwrap();
        assert_eq!(diagnosed(dir.path()).2["datadir"]["leftovers"]["work_directories"], true);
        assert!(run_on_regtest(dir.path(), &[command]).status.success() && !work.exists(), "{command}");
    }
}

/// Once, the line had another path, and did not run.
#[test]
fn a_path_that_no_line_can_have_is_to_be_renamed() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join(OsStr::from_bytes(b"node\xff"));
    fs::rename(datadir().keep(), &dir).unwrap();
    let (code, next, _) = diagnosed(&dir);
    assert!(code == 0 && next.starts_with("# a path in the next command is not UTF-8"), "{next}");
}

#[test]
fn the_process_that_uses_the_datadir_is_named() {
    let dir = datadir();
    let lock = File::options().read(true).write(true).open(dir.path().join("regtest/.lock")).unwrap();
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let output = doctor(dir.path(), &["--json"]);
    let object = json(&output);
    assert_eq!((output.status.code(), &object["advice"]["code"]), (Some(0), &"wait".into()), "{object}");
    let held = &object["datadir"]["lock"];
    assert_eq!((&held["state"], &held["pid"]), (&"held".into(), &std::process::id().into()));
    fs::write(dir.path().join("regtest/chainstate/CURRENT"), "nothing").unwrap();
    let output = doctor(dir.path(), &["--json"]);
    let object = json(&output);
    assert_eq!(object["datadir"]["chainstate"]["state"], "unreadable", "it may be changing");
    assert_eq!((output.status.code(), &object["advice"]["code"]), (Some(0), &"wait".into()), "{object}");
    fs::remove_file(dir.path().join("regtest/blocks/blk00001.dat")).unwrap();
    assert_eq!(doctor(dir.path(), &[]).status.code(), Some(5));
}

/// Without the option, bitcoind wants to download all blocks again.
#[test]
fn the_command_for_a_pruned_node_has_its_option() {
    let dir = datadir();
    let net = dir.path().join("regtest");
    situation::cause("pruned", dir.path(), dir.path());
    let place = format!("'-datadir={}' -chain=regtest", dir.path().display());
    assert_eq!(diagnosed(dir.path()).1, format!("bitcoind {place} -prune=550"));
    let text = |dir: &Path| String::from_utf8(doctor(dir, &[]).stdout).unwrap();
    let printed = text(dir.path());
    assert!(printed.contains("bitcoin.conf has no prune=") && printed.contains("not possible"), "{printed}");
    fs::write(dir.path().join("bitcoin.conf"), "prune=700\n").unwrap();
    assert_eq!(diagnosed(dir.path()).1, format!("bitcoind {place} -prune=700"));
    assert!(!text(dir.path()).contains("has no prune="));
    fs::rename(net.join("blocks"), dir.path().join("shared")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("shared"), net.join("blocks")).unwrap();
    let link = format!("blocks is a link   {}/shared: no other node may", dir.path().display());
    assert!(text(dir.path()).contains(&link), "{}", text(dir.path()));
    fs::remove_file(net.join("chainstate/CURRENT")).unwrap();
    for (conf, target) in [("700", "700"), ("1", "550")] {
        fs::write(dir.path().join("bitcoin.conf"), format!("prune={conf}\n")).unwrap();
        let path = dir.path().display();
        let command = format!("peregrine sync --prune={target}M --datadir '{path}' --chain regtest");
        assert_eq!(diagnosed(dir.path()).1, command);
    }
}

/// The rebuild that is advised runs them.
#[cfg(feature = "scripts")]
#[test]
fn the_estimate_counts_the_scripts_that_a_rebuild_runs() {
    let dir = datadir();
    let line = || {
        let printed = String::from_utf8(doctor(dir.path(), &[]).stdout).unwrap();
        printed.lines().find(|line| line.starts_with("rebuild ")).unwrap().to_owned()
    };
    let all = line();
    assert!(all.contains("for the scripts of all 113 blocks"), "{all}");
    let object = json(&doctor(dir.path(), &["--json"]));
    let checked = &object["datadir"]["rebuild_with_checked"];
    assert!(object["datadir"]["rebuild_scripts_above"].is_null(), "{object}");
    assert_eq!(
        (&checked["rebuild_scripts_above"], &checked["rebuild_scripts_seconds_most"]),
        (&112.into(), &0.0.into())
    );
    fs::rename(dir.path().join("regtest/chainstate"), dir.path().join("moved")).unwrap();
    let printed = String::from_utf8(doctor(dir.path(), &[]).stdout).unwrap();
    assert!(printed.contains("with --assumevalid checked: by the block index, your bitcoind"), "{printed}");
    let lines: Vec<&str> = printed.lines().rev().collect();
    let words = |line: &str| line.split(" --datadir").next().unwrap()[19..].to_owned();
    assert_eq!(
        [lines[0], lines[1]].map(words),
        ["peregrine reindex", "peregrine reindex --assumevalid checked"]
    );
    fs::rename(dir.path().join("moved"), dir.path().join("regtest/chainstate")).unwrap();
    let [least, most] =
        ["least", "most"].map(|end| object["datadir"][format!("rebuild_seconds_{end}")].as_f64().unwrap());
    assert!(0.0 < least && least < most, "{object}");
    let index = read_block_index(&RealDisk, &dir.path().join("regtest/blocks/index")).unwrap();
    let assumed = |height: u32| {
        let hash = index.entries.iter().find(|entry| entry.height.0 == height).unwrap().hash;
        fs::write(dir.path().join("bitcoin.conf"), format!("[regtest]\nassumevalid={hash}\n")).unwrap();
    };
    assumed(100);
    assert!(line().contains("for the scripts of the 12 blocks above height 100"), "{}", line());
    assumed(112);
    assert!(line().contains("all scripts are assumed to be valid"), "{}", line());
    fs::remove_file(dir.path().join("bitcoin.conf")).unwrap();
    for words in [&["verify"][..], &["reindex"]] {
        let output = command(&[words, &["--chain", "regtest"]].concat(), dir.path()).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        let note = "the scripts of all 113 blocks are checked: by default, none of regtest is assumed";
        assert!(printed.contains(note) && printed.contains("--assumevalid HASH"), "{printed}");
    }
}

#[test]
fn what_is_no_datadir_has_its_advice() {
    let (dir, empty) = (datadir(), TempDir::new().unwrap());
    let at = |path: &Path, network: &str| {
        let output = command(&["doctor", "--json", "--chain", network], path).output().unwrap();
        (output.status.code(), json(&output)["next"].as_str().unwrap().to_owned())
    };
    let quoted = dir.path().display();
    let other = format!("peregrine doctor --datadir '{quoted}' --chain regtest");
    assert_eq!(at(dir.path(), "signet"), (Some(4), other));
    let sync = format!("peregrine sync --datadir {}", empty.path().display());
    assert_eq!(at(empty.path(), "main"), (Some(4), sync));
    let (code, next) = at(&empty.path().join("no"), "main");
    assert!(code == Some(4) && next.starts_with("peregrine doctor --datadir DIR"), "{next}");
    let (code, next) = at(&dir.path().join("regtest"), "regtest");
    assert_eq!((code, next), (Some(0), format!("bitcoind '-datadir={quoted}' -chain=regtest")));
}
