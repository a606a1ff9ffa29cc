//! `peregrine range` as an operator meets it: what it prints, what it refuses, and a check that is killed.

use crate::common;

use common::Running;
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, datadir::Layout};

fn command(words: &str, dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(words.split(' ')).current_dir(dir);
    command
}

fn run(words: &str, dir: &Path) -> Output {
    command(words, dir).output().unwrap()
}

fn succeeds(words: &str, dir: &Path) -> String {
    let output = run(words, dir);
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that a command is refused with this exit code, and says these words.
fn refused(words: &str, dir: &Path, code: i32, said: &[&str]) {
    let output = run(words, dir);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words}: {stderr}");
    assert!(said.iter().all(|word| stderr.contains(word)), "{words}: no {said:?} in {stderr}");
}

/// A plan of four ranges of the datadir `node`.
fn planned() -> (TempDir, Chain) {
    let dir = TempDir::new().unwrap();
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    chain.write_datadir(&dir.path().join("node"), &Layout::new(17)).unwrap();
    let words = "range plan --datadir node --chain regtest --ranges 4 --assumevalid 0 -o plan.json";
    let text = succeeds(words, dir.path());
    assert!(text.contains("plan.json and plan.blocks") && text.contains("4, in 4 shards"), "{text}");
    (dir, chain)
}

#[test]
fn ranges_become_the_chainstate_and_the_report_says_who_has_checked_what() {
    let (dir, chain) = planned();
    for range in 0..4 {
        let machine = if range == 3 { "second" } else { "first" };
        let words =
            format!("--plan plan.json --range {range} --datadir node -o r{range} --checker {machine}");
        let text = succeeds(&format!("range check {words}"), dir.path());
        assert!(text.contains(&format!("delta              r{range} (")), "{text}");
    }
    succeeds("range merge --plan plan.json r0 r1 r2 r3 -o all", dir.path());
    let text = succeeds("range finish --plan plan.json all --output new", dir.path());
    assert!(text.contains(&chain.model.stats().hash_hex()), "{text}");
    assert!(text.contains("checked by         first: 3 ranges with "), "{text}");
    assert!(text.contains("checked by         second: 1 range with "), "{text}");
    let scripts =
        if cfg!(feature = "scripts") { "scripts            all " } else { "scripts            not checked" };
    assert!(text.contains(scripts), "{text}");
    let files = succeeds("range files --plan plan.json --range 0", dir.path());
    assert!(
        files.starts_with("range 0: blocks 0 to ") && files.contains("rev00000.dat  from byte 0 to"),
        "{files}"
    );
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (dir, _) = planned();
    let at = dir.path();
    refused(
        "range plan --datadir node --chain regtest --ranges 4 -o plan.json",
        at,
        2,
        &["it exists already"],
    );
    refused(
        "range plan --datadir node --chain regtest --ranges 4 -o p.blocks",
        at,
        2,
        &[".blocks is that of"],
    );
    refused("range plan --datadir node --chain regtest --ranges 999 -o p.json", at, 2, &["131 blocks"]);
    refused("range check --plan plan.json --range 4 --datadir node -o r4", at, 2, &["no range 4", "0 to 3"]);
    refused("range check --plan node --range 0 --datadir node -o r0", at, 4, &["cannot read the plan"]);
    refused("range check --plan no.json --range 0 --datadir node -o r0", at, 4, &["there is no such plan"]);
    refused("range merge --plan plan.json -o all", at, 2, &["required"]);
    refused("range merge --plan plan.json node -o all", at, 4, &["delta"]);
    refused("range finish --plan plan.json x --output new --recheck 0 --datadir node", at, 2, &["above 0"]);
    refused("range finish --plan plan.json x --output new --recheck 5", at, 2, &["--datadir"]);
    succeeds("range check --plan plan.json --range 0 --datadir node -o r0", at);
    refused("range merge --plan plan.json r0 -o all", at, 2, &["ranges 1 to 3", "each delta once"]);
    // Undo data can be made, but not from a range alone.
    let rev = at.join("node/regtest/blocks/rev00000.dat");
    fs::rename(&rev, at.join("rev")).unwrap();
    refused("range check --plan plan.json --range 1 --datadir node -o r1", at, 4, &["rev00000", "undo make"]);
    refused("range plan --datadir node --chain regtest --ranges 2 -o p.json", at, 4, &["undo make"]);
    fs::rename(at.join("rev"), &rev).unwrap();
    // The two files of a plan belong together.
    fs::copy(at.join("plan.blocks"), at.join("other.blocks")).unwrap();
    succeeds("range plan --datadir node --chain regtest --ranges 4 -o second.json", at);
    fs::copy(at.join("second.json"), at.join("other.json")).unwrap();
    refused("range files --plan other.json --range 0", at, 4, &["another plan", "copy both"]);
    fs::write(at.join("other.json"), "{}").unwrap();
    refused("range files --plan other.json --range 0", at, 4, &["not a plan", "blocks_sha256"]);
}

#[test]
fn a_killed_check_leaves_no_output_and_can_be_repeated() {
    let (dir, _) = planned();
    let words = "range check --plan plan.json --range 2 --datadir node -o r2 --progress lines";
    let mut running = Running::start(command(words, dir.path()));
    assert!(running.wait_for_line("check"));
    running.signal(Signal::KILL);
    let (output, _) = running.wait();
    assert!(output.status.code().is_none() || dir.path().join("r2").exists());
    let text = succeeds(words, dir.path());
    assert!(text.contains("delta              r2 ("), "{text}");
    assert!(!dir.path().join("r2.peregrine-part").exists());
}
