//! What `doctor` advises ends at a node that starts: in each situation of `testkit`, the commands that it prints
//! are run, one after the other, until that is `bitcoind`, which is then started as it is printed.
//!
//! With PEREGRINE_BITCOIND, the path of Bitcoin Core's bitcoind, which has bitcoin-cli beside it; without it,
//! nothing is run.

use crate::common;

use common::{
    bitcoind::{Node, Server},
    command, json,
};
use disk::datadir::Datadir;
use engine::Network;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    corrupt::copy_dir,
    datadir::Layout,
    situation::{self, OLDER, Place, Situation, TIP},
};

/// Maximum number of commands that one situation takes.
const MOST_COMMANDS: usize = 6;

/// Copies a sound datadir with its store, and brings it into a situation.
fn place(base: &Path, situation: &Situation) -> (TempDir, Place) {
    let dir = TempDir::new().unwrap();
    copy_dir(base, dir.path()).unwrap();
    let at = Place::new(&dir.path().join("node"), dir.path());
    (situation.cause)(&at).unwrap_or_else(|error| panic!("{}: {error}", situation.name));
    (dir, at)
}

/// Runs a line in a shell that finds the program.
fn run_line(line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_peregrine"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    Command::new("sh").args(["-c", line]).env("PATH", path).output().unwrap()
}

/// Returns the words of a line, as a shell divides it.
fn words(line: &str) -> Vec<String> {
    let done = Command::new("sh").args(["-c", &format!("printf '%s\\n' {line}")]).output().unwrap();
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What a user does about a line with a remark: restores what a link leads to, or names a directory. Returns
/// the command to run instead, if there is one.
fn as_user(line: &str, at: &Place) -> Option<String> {
    if let Some(rest) = line.strip_prefix("ls -l ") {
        let link = PathBuf::from(rest.split("  #").next().unwrap());
        fs::remove_file(&link).unwrap();
        fs::rename(at.away(), link).unwrap();
        return None;
    }
    let command = line.split("  #").next().unwrap();
    assert!(command.ends_with("--blocksdir DIR"), "{line}");
    Some(command.replace("DIR", &at.other_blocksdir().display().to_string()))
}

/// Follows the advice on a datadir. Returns the commands; the last one starts bitcoind.
fn follow(at: &Place, server: &Server, is_deep: bool) -> Result<Vec<String>, String> {
    let place = format!("--datadir {} --chain regtest", at.root.display());
    let mut doctor = format!("peregrine doctor {place}");
    let mut steps: Vec<String> = Vec::new();
    while steps.len() <= MOST_COMMANDS {
        let deep = if is_deep { " --deep" } else { "" };
        let output = run_line(&format!("{doctor}{deep} --json --progress none"));
        let mut line = json(&output)["next"].as_str().unwrap().to_owned();
        if line.starts_with("bitcoind ") {
            steps.push(line);
            return Ok(steps);
        }
        if line.contains("  #") {
            let done = as_user(&line, at);
            steps.push(line);
            let Some(instead) = done else { continue };
            line = instead;
        }
        if line.starts_with("peregrine doctor ") {
            doctor.clone_from(&line);
            steps.push(line);
            continue;
        }
        let mut help = Some(line);
        // The way on that a refused command names.
        while let Some(line) = help.take() {
            let is_download = ["peregrine repair", "peregrine sync"].iter().any(|it| line.starts_with(it));
            let peer = if is_download { format!(" --connect {}", server.address) } else { String::new() };
            let output = run_line(&format!("{line}{peer}"));
            steps.push(line);
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                break;
            }
            let named = printed.lines().find_map(|line| line.split_once(": peregrine ")).map(|(_, it)| it);
            let Some(named) = named.filter(|_| steps.len() <= MOST_COMMANDS) else {
                return Err(format!("{steps:?} ends with: {printed}"));
            };
            help = Some(format!("peregrine {named} {place}"));
        }
    }
    Err(format!("too many commands: {steps:?}"))
}

/// Starts bitcoind as it is printed, and checks that it gets to the tip and that its data is sound.
fn check_start(line: &str, server: &Server) -> Result<(), String> {
    let mut all = words(line);
    all.remove(0);
    // What it cannot have on its disk, it may ask for.
    let connect = if line.contains(" -reindex") { &*server.address } else { "0" };
    all.extend(["-listen=0".to_owned(), format!("-connect={connect}")]);
    let node = Node::run(&server.program, &all).ok_or("bitcoind does not start")?;
    if !node.has_height(TIP.into()) {
        return Err(format!("the node ends at height {:?}", node.call(&["getblockcount"])));
    }
    // Level 1 needs no undo data.
    let level = if line.contains(" -checklevel=1") { "1" } else { "4" };
    let is_pruned = line.contains(" -prune=");
    let is_sound = node.call(&["verifychain", level, if is_pruned { "6" } else { "0" }]);
    node.stop();
    if is_sound != Some(true.into()) { Err(format!("verifychain: {is_sound:?}")) } else { Ok(()) }
}

#[test]
fn what_doctor_advises_ends_at_a_node_that_starts() {
    let spec = ChainSpec { blocks: Some(TIP), stale: false, ..ChainSpec::new(17, 60_000) };
    let (chain, base) = (Chain::generate(&spec), TempDir::new().unwrap());
    let root = &base.path().join("node");
    let layout = Layout { file_size: 16 << 10, preallocate: false, ..Layout::new(17) };
    chain.write_datadir(root, &layout).unwrap();
    for (height, kept) in [(OLDER, Some(base.path().join("older"))), (TIP, None)] {
        let height = height.to_string();
        let words = ["reindex", "--chain", "regtest", "--stop-at-height", &height];
        assert!(command(&words, root).output().unwrap().status.success());
        if let Some(kept) = kept {
            copy_dir(&Datadir::at(root, Network::Regtest).chainstate_dir(), &kept).unwrap();
        }
    }
    let foreign = TempDir::new().unwrap();
    let other = Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(21, 40_000) });
    other.write_datadir(foreign.path(), &layout).unwrap();
    assert!(command(&["reindex", "--chain", "regtest"], foreign.path()).output().unwrap().status.success());
    copy_dir(&foreign.path().join("regtest/chainstate"), &base.path().join("foreign")).unwrap();
    let Some(node) = Node::start(root, &[], "what doctor advises") else { return };
    assert!(node.has_height(TIP.into()));
    node.stop();
    let serving = TempDir::new().unwrap();
    copy_dir(root, serving.path()).unwrap();
    let server = Server::start(serving.path(), "what doctor advises").unwrap();
    let mut failed = Vec::new();
    // Without reading everything, it does not know whether blocks are missing below those that it finds.
    let index_only = situation::all().filter(|situation| situation.name.starts_with("index:"));
    for (situation, is_deep) in situation::all().map(|it| (it, true)).chain(index_only.map(|it| (it, false)))
    {
        let (what, (_dir, at)) = (situation.name, place(base.path(), situation));
        let done = follow(&at, &server, is_deep).and_then(|steps| {
            println!("{what}: {steps:#?}");
            check_start(steps.last().unwrap(), &server)
        });
        failed.extend(done.err().map(|error| format!("{what}, deep {is_deep}: {error}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
