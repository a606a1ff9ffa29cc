//! `peregrine doctor`: the last line that it prints is a command that repairs.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::{command, json};
use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, corrupt::snapshot, datadir::Layout};

/// A kind of damage, the advice for it, and what causes it.
type Damage = (&'static str, &'static str, fn(&Path));

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

/// Runs a line that was printed, in a shell that finds the program.
fn run_line(line: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_peregrine"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let done = Command::new("sh").args(["-c", line]).env("PATH", path).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

#[test]
fn the_command_that_is_printed_repairs() {
    let damage: [Damage; 5] = [
        ("chainstate", "reindex", |net| fs::write(net.join("chainstate/CURRENT"), "nothing").unwrap()),
        ("index", "reindex-by-scan", |net| fs::remove_dir_all(net.join("blocks/index")).unwrap()),
        ("undo file", "make-undo", |net| fs::remove_file(net.join("blocks/rev00001.dat")).unwrap()),
        ("all undo files", "make-undo", |net| {
            for file in snapshot(&net.join("blocks")).unwrap().into_iter().map(|(path, _)| path) {
                if file.file_name().unwrap().to_string_lossy().starts_with("rev") {
                    fs::remove_file(file).unwrap();
                }
            }
        }),
        ("key", "restore-key", |net| fs::remove_file(net.join("blocks/xor.dat")).unwrap()),
    ];
    let dir = datadir();
    let (code, next, _) = diagnosed(dir.path());
    assert_eq!((code, &*next), (0, &*format!("bitcoind '-datadir={}' -chain=regtest", dir.path().display())));
    for (what, advice, damage) in damage {
        damage(&dir.path().join("regtest"));
        let (code, next, object) = diagnosed(dir.path());
        assert_eq!((code, object["advice"]["code"].as_str()), (4, Some(advice)), "{what}: {object}");
        run_line(&next);
        let deep = doctor(dir.path(), &["--deep", "--json"]);
        assert_eq!(deep.status.code(), Some(0), "{what}: {deep:?}");
        assert_eq!(json(&deep)["datadir"]["deep"]["blocks_damaged"], 0);
    }
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
