//! What `doctor` advises ends at a node that starts: in each situation of `testkit`, the commands that it
//! prints are run, one after the other, until that is `bitcoind`, which is then started as it is printed.

use super::indexes::copy;
use crate::prelude::*;
use disk::datadir::Datadir;
use std::time::{SystemTime, UNIX_EPOCH};
use testkit::{
    node::{Res, Started},
    situation::{OLDER, TIP},
};

/// Maximum number of commands that one situation takes.
const MOST_COMMANDS: usize = 6;

/// Copies a sound datadir with its store, and brings it into a situation.
fn place(base: &Path, name: &str) -> (TempDir, Place) {
    let dir = TempDir::new().unwrap();
    copy_dir(base, dir.path()).unwrap();
    let at = Place::new(&dir.path().join("node"), dir.path());
    situation::cause(name, &at.root, &at.store);
    (dir, at)
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
    if let Some(rest) = line.strip_prefix("sed -n ").or_else(|| line.strip_prefix("cat ")) {
        let file = rest.split("  #").next().unwrap().rsplit(' ').next().unwrap();
        fs::write(file, if file.ends_with(".json") { "{}" } else { "" }).unwrap();
        return None;
    }
    let command = line.split("  #").next().unwrap();
    assert!(command.ends_with("--blocksdir DIR"), "{line}");
    Some(command.replace("DIR", &at.other_blocksdir().display().to_string()))
}

/// Follows the advice on a datadir. Returns the commands; the last one starts bitcoind.
fn follow(at: &Place, server: &Node, is_deep: bool) -> Result<Vec<String>, String> {
    let place = format!("--datadir {} --chain regtest", at.root.display());
    let mut doctor = format!("peregrine doctor {place}");
    let mut steps: Vec<String> = Vec::new();
    while steps.len() <= MOST_COMMANDS {
        let deep = if is_deep { " --deep" } else { "" };
        let output = shell(&format!("{doctor}{deep} --json --progress none")).output().unwrap();
        let next = json(&output)["next"].as_str().map(str::to_owned);
        let mut line = next.ok_or_else(|| format!("after {steps:?}: {output:?}"))?;
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
            let peer = if is_download { format!(" --connect {}", server.address()) } else { String::new() };
            let output = shell(&format!("{line}{peer}")).output().unwrap();
            steps.push(line);
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                break;
            }
            let named = printed.lines().find_map(|line| line.split_once(": peregrine ")).map(|(_, it)| it);
            let Some(named) = named.filter(|_| steps.len() <= MOST_COMMANDS) else {
                return Err(format!("{steps:?} ends with: {printed}"));
            };
            help = Some(format!("peregrine {named}"));
        }
    }
    Err(format!("too many commands: {steps:?}"))
}

/// Starts bitcoind as it is printed, and checks that it gets to the tip and that its data is sound.
fn check_start(line: &str, server: &Node) -> Res<()> {
    // What it cannot have on its disk, it may ask for.
    let connect = if line.contains(" -reindex") { &*server.address() } else { "0" };
    let mut command = Command::new(program().ok_or("there is no bitcoind")?);
    command.args(&words(line)[1..]).args(["-listen=0".to_owned(), format!("-connect={connect}")]);
    let mut node = Node::run(command, PATIENCE)?;
    if let Started::No(words) = node.wait() {
        return Err(format!("bitcoind does not start: {words}").into());
    }
    node.wait_for_height(TIP)?;
    // Level 1 needs no undo data.
    let level = if line.contains(" -checklevel=1") { 1 } else { 4 };
    let is_sound = node.finds_sound(level, if line.contains(" -prune=") { 6 } else { 0 });
    node.stop()?;
    if is_sound { Ok(()) } else { Err("bitcoind finds its blocks damaged".into()) }
}

/// A sound datadir of regtest with its store.
fn base() -> TempDir {
    let spec = ChainSpec { blocks: Some(TIP), stale: false, ..ChainSpec::new(17, 60_000) };
    let (chain, base) = (Chain::generate(&spec), TempDir::new().unwrap());
    let root = &base.path().join("node");
    let layout = Layout { file_size: 16 << 10, preallocate: false, ..Layout::new(17) };
    chain.write_datadir(root, &layout).unwrap();
    for (height, kept) in [(OLDER, Some(base.path().join("older"))), (TIP, None)] {
        let height = height.to_string();
        assert!(run(root, &["reindex", "--to", &height]).status.success());
        if let Some(kept) = kept {
            copy_dir(&Datadir::at(root, Network::Regtest).chainstate_dir(), &kept).unwrap();
        }
    }
    let foreign = TempDir::new().unwrap();
    let other = Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(21, 40_000) });
    other.write_datadir(foreign.path(), &layout).unwrap();
    assert!(run(foreign.path(), &["reindex"]).status.success());
    copy_dir(&foreign.path().join("regtest/chainstate"), &base.path().join("foreign")).unwrap();
    base
}

#[test]
fn what_doctor_advises_ends_at_a_node_that_starts() {
    let base = base();
    let root = &base.path().join("node");
    // Some situations are what the log says.
    let Some(node) = Node::start(root, &["-debuglogfile=debug.log"]) else { return };
    assert_eq!(node.height(), TIP);
    node.stop().unwrap();
    let serving = copy(root);
    let server = Node::start_server(&program().unwrap(), serving.path(), &[]);
    let mut failed = Vec::new();
    // Without reading everything, it does not know whether blocks are missing below those that it finds.
    for (situation, is_deep) in situation::all().flat_map(|it| [(it, true), (it, false)]) {
        let is_shallow = situation.name.starts_with("index:") || situation.name.ends_with("is zeros");
        if !is_deep && !is_shallow {
            continue;
        }
        let (what, (_dir, at)) = (situation.name, place(base.path(), situation.name));
        let done = follow(&at, &server, is_deep).and_then(|steps| {
            println!("{what}: {steps:#?}");
            check_start(steps.last().unwrap(), &server).map_err(|error| error.to_string())
        });
        failed.extend(done.err().map(|error| format!("{what}, deep {is_deep}: {error}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A situation, the code of what `doctor` advises, and what bitcoind prints if it does not start; nothing if
/// it starts.
type Start = (&'static str, &'static str, &'static str);

const STARTS: [Start; 69] = [
    ("nothing", "start-bitcoind", ""),
    ("prune=300 in bitcoin.conf", "correct-setting", "Prune configured below the minimum of 550 MiB"),
    ("prune=-5 in bitcoin.conf", "correct-setting", "Prune cannot be configured with a negative value"),
    ("prune=550 and txindex=1", "correct-setting", "incompatible with -txindex"),
    ("prune=550 and txospenderindex=1", "correct-setting", "incompatible with -txospenderindex"),
    ("prune=550 and reindex-chainstate=1", "correct-setting", "incompatible with -reindex-chainstate"),
    ("blockfilterindex=foo", "correct-setting", "Unknown -blockfilterindex value foo"),
    ("peerblockfilters=1 alone", "correct-setting", "Cannot set -peerblockfilters without -blockfilterindex"),
    ("forcednsseed=1 and dnsseed=0", "correct-setting", "Cannot set -forcednsseed to true"),
    ("listenonion=1 and listen=0", "correct-setting", "Cannot set -listen=0 together with -listenonion=1"),
    (
        "listen: bind= and listen=0",
        "correct-setting",
        "Cannot set -bind or -whitebind together with -listen=0",
    ),
    ("maxmempool=1", "correct-setting", "-maxmempool must be at least 5 MB"),
    ("minimumchainwork=zz", "correct-setting", "Invalid minimum work specified"),
    ("onlynet=tor", "correct-setting", "Unknown network specified in -onlynet"),
    ("onlynet=Onion", "start-bitcoind", ""),
    ("listenonion=1 and a proxy", "correct-setting", "Cannot set -listen=0 together with -listenonion=1"),
    ("peertimeout=0", "correct-setting", "peertimeout must be a positive integer"),
    (
        "port=18555 for all chains",
        "correct-setting",
        "Config setting for -port only applied on regtest network",
    ),
    ("port=99999", "correct-setting", "Invalid port specified in -port"),
    ("blocksxor=0 though the block files have a key", "correct-setting", "XOR-key can not be disabled"),
    ("testnet=1 beside regtest=1", "correct-setting", "Invalid combination of -regtest"),
    ("a # behind rpcpassword", "correct-setting", "using # in rpcpassword can be ambiguous"),
    ("conf= in bitcoin.conf", "correct-setting", "conf cannot be set in the configuration file"),
    ("reindex=1 left in bitcoin.conf", "correct-setting", ""),
    ("reindex-chainstate=1 left in bitcoin.conf", "correct-setting", ""),
    ("an unknown section in bitcoin.conf", "start-bitcoind", ""),
    ("settings.json: empty", "move-away", "does not contain valid JSON"),
    ("settings.json: cut", "move-away", "does not contain valid JSON"),
    ("settings.json: a list", "move-away", "Found non-object value"),
    ("settings.json: another file, cut", "move-away", "does not contain valid JSON"),
    ("settings.json: a name twice", "move-away", "Found duplicate key a"),
    ("settings.json: a folder", "move-away", "Is a directory"),
    (".lock: a folder", "move-away", "Cannot write to directory"),
    ("debug.log: a folder", "move-away", "Could not open debug log file"),
    ("chainstate: its lock is a folder", "move-away", "Error opening coins database"),
    ("peers.dat: cut", "move-away", "Invalid or corrupt peers.dat"),
    ("log: a start that ended with an error", "start-bitcoind", ""),
    ("settings.json: reindex", "correct-setting", ""),
    ("blocks: in a directory that settings.json names", "start-bitcoind", ""),
    ("blocks: in a directory that a section names", "start-bitcoind", ""),
    ("pruned, with its size in bitcoin.conf", "start-bitcoind", ""),
    ("pruned, by settings.json", "start-bitcoind", ""),
    ("pruned, and blocks are gone", "sync", "Error initializing block database"),
    ("pruned, and then blockfilterindex=1", "correct-setting", "index goes beyond pruned data"),
    ("pruned, and then coinstatsindex=1", "correct-setting", "index goes beyond pruned data"),
    (
        "pruned, and then blockfilterindex=1 is damaged",
        "correct-setting",
        "CURRENT points to a non-existent file",
    ),
    ("pruned, and filters that no setting wants are damaged", "move-away", ""),
    ("chainstate: a file", "move-away", "Error loading databases"),
    ("chainstate: a link to nothing", "restore-link", "Error loading databases"),
    ("blocks: a file", "move-away", "cannot create directories"),
    ("blocks: a link to nothing", "restore-link", "cannot create directories"),
    ("index: a file", "move-away", "cannot create directories"),
    ("blk: one has another name", "take-from-files", "Error loading block database"),
    ("blk: one is a folder", "move-away", ""),
    ("blk: one is a link to nothing", "restore-link", "Error loading block database"),
    ("blk: the last is zeros", "repair", "Corrupted block database detected"),
    ("rev: the last is zeros", "make-undo", "Corrupted block database detected"),
    ("pruned, and the last block file is zeros", "bitcoind-reindex", "Corrupted block database detected"),
    ("pruned, and the last undo file is zeros", "start-without-undo", "Corrupted block database detected"),
    ("rev: one is a folder", "move-away", ""),
    ("xor.dat: a folder", "move-away", "Failed to initialize ChainstateManager"),
    ("network: a link to nothing", "restore-link", "cannot create directories"),
    ("datadir: a link to nothing", "restore-link", "does not exist"),
    ("blocks: in a directory that the log names", "name-blocksdir", "Error loading block database"),
    ("blocks: in a directory that a file elsewhere names", "name-blocksdir", "Error loading block database"),
    ("indexes: a txindex without its tables", "make-indexes", "CURRENT points to a non-existent file"),
    ("indexes: a file where filters must be", "move-away", ""),
    ("log: a broken table of the chainstate", "reindex", "Error loading databases"),
    ("log: an error of a database that it does not name", "look-deeper", ""),
];

/// The page has what was seen. If there is a bitcoind, that is compared with it.
#[test]
fn doctor_says_whether_bitcoind_starts() {
    let (base, mut failed) = (base(), Vec::new());
    let bitcoind = program();
    let mut table = "| what is there | `doctor` advises | exit code | next | `bitcoind` |\n".to_owned();
    table += "| --- | --- | --- | --- | --- |\n";
    for (name, advice, refusal) in STARTS {
        let (_dir, at) = place(base.path(), name);
        let object = json(&run(&at.root, &["doctor", "--json"]));
        let found = object["advice"]["code"].as_str().unwrap();
        assert_eq!(object["is_sound"], object["exit_code"] == 0);
        if found != advice {
            failed.push(format!("{name}: {object:#}"));
        }
        let does = if refusal.is_empty() { "starts".to_owned() } else { format!("\"{refusal}\"") };
        let next = object["next"].as_str().unwrap().replace(at.root.to_str().unwrap(), "DIR");
        let (next, code) = (next.replace(at.store.to_str().unwrap(), "STORE"), &object["exit_code"]);
        table += &format!("| {name} | `{found}` | {code} | `{next}` | {does} |\n");
        let Some(bitcoind) = &bitcoind else { continue };
        let words = ["-chain=regtest", "-connect=0", "-listen=0", "-listenonion=0"].map(str::to_owned);
        // Its own options would hide what the settings say of these.
        let count = if name.starts_with("listen") { 2 } else { words.len() };
        let datadir = format!("-datadir={}", at.root.display());
        let words = [&words[..count], &[datadir]].concat();
        let mut command = Command::new(bitcoind);
        command.args(words);
        let mut node = Node::run(command, PATIENCE).unwrap();
        let started = node.wait();
        let is_as_said = match &started {
            Started::Yes { .. } => refusal.is_empty(),
            Started::No(words) => !refusal.is_empty() && words.contains(refusal),
        };
        if !is_as_said {
            failed.push(format!("{name}: {started:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    testkit::pages::assert_named_table("docs/doctor.md", "table of starts", &table);
}

#[test]
fn a_clock_that_is_behind_is_what_doctor_names() {
    let base = base();
    let root = &base.path().join("node");
    let ahead = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 30 * 24 * 60 * 60;
    let Some(node) = Node::start(root, &[&format!("-mocktime={ahead}")]) else {
        return;
    };
    node.call("generatetodescriptor", json!([3, "raw(51)"])).unwrap();
    node.stop().unwrap();
    let object = json(&run(root, &["doctor", "--json"]));
    assert_eq!((&object["advice"]["code"], &object["exit_code"]), (&"correct-clock".into(), &5.into()));
    for words in [["verify", "--json"], ["reindex", "--json"]] {
        let report = json(&run(root, &words));
        assert_eq!(report["notes"][0]["code"], "from-future", "{report}");
    }
    let mut command = Command::new(program().unwrap());
    command.arg(format!("-datadir={}", root.display())).args(["-regtest", "-listen=0"]);
    assert!(!Node::run(command, PATIENCE).unwrap().wait().is_yes());
}
