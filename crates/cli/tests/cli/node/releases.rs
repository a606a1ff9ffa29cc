//! Releases of Bitcoin Core: datadirs that they have written are rebuilt, updated, repaired and completed,
//! and opened by the same release again. The table in `docs/releases.md` is what this test has seen.
//!
//! PEREGRINE_BITCOINDS has the paths of bitcoinds, each with bitcoin-cli beside it, separated by spaces;
//! without it, one version is tried. `UPDATE_DOCS=1` writes the table.

use crate::common;

use bitcoin::Network;
use common::{
    bitcoind::{Node, program},
    run_on_regtest as run,
};
use disk::index::read_block_index;
use std::{
    cell::OnceCell,
    fmt::Write as _,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec, GeneratedBlock,
    corrupt::{copy_dir, flip_bit},
    peer::{Fault, ScriptedPeer, ServedChain},
    snapshot_chain::{self, SNAPSHOT_HEIGHT},
};

/// Blocks that are missing in the datadirs, or in their chainstates, that are completed.
const MISSING: usize = 40;
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/releases.md");

/// A release of Core.
struct Release {
    bitcoind: PathBuf,
    version: String,
}

/// How the release writes its datadir.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Obfuscated,
    Plain,
    Pruned,
    Indexes,
    Killed,
    Snapshot,
}

/// A datadir that a release has written.
struct Written {
    dir: TempDir,
    /// The same before the last blocks.
    earlier: TempDir,
}

impl Release {
    fn new(bitcoind: &str) -> Self {
        let output = Command::new(bitcoind).arg("-version").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let version = text.lines().next().unwrap().split(" version v").nth(1).unwrap();
        let version = version.split(['-', ' ']).next().unwrap().to_owned();
        Self { bitcoind: bitcoind.into(), version }
    }

    fn flags(&self, kind: Kind) -> Vec<&'static str> {
        let all = match kind {
            Kind::Obfuscated | Kind::Killed | Kind::Snapshot => vec![],
            Kind::Plain => vec!["-blocksxor=0"],
            Kind::Pruned => vec!["-fastprune", "-prune=1"],
            Kind::Indexes => vec!["-txindex", "-blockfilterindex", "-coinstatsindex", "-txospenderindex"],
        };
        let help = Command::new(&self.bitcoind).args(["-help", "-help-debug"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let knows = |flag: &&str| help.contains(&format!("  {}", flag.split('=').next().unwrap()));
        all.into_iter().filter(knows).collect()
    }

    fn start(&self, kind: Kind, datadir: &Path, args: &[&str]) -> Node {
        // A chainstate that was set aside half validated trips the check of the block index on regtest, also
        // without Peregrine.
        let checks = format!("-checkblockindex={}", u8::from(kind != Kind::Snapshot));
        Node::start_program(&self.bitcoind, datadir, &[&self.flags(kind)[..], &[&checks], args].concat())
    }

    /// Lets the release store these blocks.
    fn import(&self, kind: Kind, datadir: &Path, blocks: &[GeneratedBlock]) -> Node {
        let file = datadir.join("import.dat");
        let record = |block: &GeneratedBlock| {
            let len = u32::try_from(block.bytes.len()).unwrap().to_le_bytes();
            [&Network::Regtest.magic().to_bytes()[..], &len, &block.bytes].concat()
        };
        fs::write(&file, blocks.iter().flat_map(record).collect::<Vec<u8>>()).unwrap();
        let node = self.start(kind, datadir, &[&format!("-loadblock={}", file.display())]);
        wait(|| height(&node) == blocks.last().unwrap().height, "bitcoind does not import the blocks");
        fs::remove_file(file).unwrap();
        node
    }

    fn write(&self, kind: Kind, world: &World) -> Written {
        let chain = world.chain(kind);
        let (dir, earlier) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (first, last) = chain.split_at(chain.len() - MISSING);
        let keep = |datadir: &Path| {
            copy_dir(&datadir.join("regtest"), &earlier.path().join("regtest")).unwrap();
        };
        if kind == Kind::Snapshot {
            let snapshot = self.snapshot(chain, world.dir.path());
            let node = self.start(kind, dir.path(), &[]);
            chain.iter().for_each(|block| drop(node.call(&["submitheader", &hex(&block.bytes[..80])])));
            assert!(node.call(&["loadtxoutset", snapshot.to_str().unwrap()]).is_some(), "no snapshot");
            node.stop();
            keep(dir.path());
            let node = self.start(kind, dir.path(), &[]);
            for block in &chain[1..] {
                drop(node.call(&["submitblock", &hex(&block.bytes)]));
                // The last of the blocks below the snapshot's are missing: both chainstates stay.
                if block.height == 100 {
                    break;
                }
            }
            let above = &chain[SNAPSHOT_HEIGHT as usize + 1..];
            above.iter().for_each(|block| drop(node.call(&["submitblock", &hex(&block.bytes)])));
            node.stop();
            return Written { dir, earlier };
        }
        self.import(kind, dir.path(), first).stop();
        keep(dir.path());
        let node = self.import(kind, dir.path(), last);
        match kind {
            Kind::Killed => drop(node),
            Kind::Pruned => {
                assert!(node.call(&["pruneblockchain", "200"]).is_some());
                node.stop();
            }
            Kind::Indexes => {
                let synced = || {
                    let found = node.call(&["getindexinfo"]).unwrap();
                    found.as_object().unwrap().values().all(|index| index["synced"] == true)
                };
                wait(synced, "the indexes do not get to the tip");
                node.stop();
            }
            _ => node.stop(),
        }
        // As releases before 28 leave it.
        if kind == Kind::Plain {
            for dir in [&dir, &earlier] {
                let key = dir.path().join("regtest/blocks/xor.dat");
                assert_eq!(fs::read(&key).unwrap(), [0; 8]);
                fs::remove_file(key).unwrap();
            }
        }
        Written { dir, earlier }
    }

    /// Runs a command on a copy of a datadir, lets the release open the result, and returns what happened.
    fn cell(&self, kind: Kind, job: &str, written: &Written, world: &World) -> String {
        let chain = world.chain(kind);
        let case = TempDir::new().unwrap();
        let from = if job == "sync" { &written.earlier } else { &written.dir };
        let net = case.path().join("regtest");
        copy_dir(&from.path().join("regtest"), &net).unwrap();
        match job {
            "update" if kind != Kind::Killed && kind != Kind::Snapshot => {
                fs::remove_dir_all(net.join("chainstate")).unwrap();
                copy_dir(&written.earlier.path().join("regtest/chainstate"), &net.join("chainstate"))
                    .unwrap();
            }
            "repair" if kind == Kind::Snapshot => damage(&net, &chain[50]),
            // bitcoind reads the last six blocks when it starts. A killed one may not have the last ones.
            "repair" => damage(&net, &chain[chain.len() - MISSING - 20]),
            _ => {}
        }
        let mut words = vec![job, "--progress", "none"];
        let address = world.peers[usize::from(kind == Kind::Snapshot)].address().to_string();
        if ["repair", "sync"].contains(&job) {
            words.extend(["--connect", &address]);
        }
        let mut output = run(case.path(), &words);
        let mut remark = "";
        if output.status.code() == Some(2) && kind == Kind::Indexes {
            remark = ", old `txindex` set aside";
            output = run(case.path(), &[&words[..], &["--set-aside-indexes"]].concat());
        }
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let what = format!("{}, {}, {job}: {error}", self.version, kind.name());
        let code = output.status.code().unwrap_or_else(|| panic!("{what}"));
        let node = self.start(kind, case.path(), &[]);
        if code != 0 {
            assert!(error.contains("help: "), "{what}");
            return format!("refused ({code}); opens as before");
        }
        // Up to release 28, a node that is killed may have stored blocks that its index does not have.
        let is_behind = kind == Kind::Killed && height(&node) as usize + MISSING + 1 == chain.len();
        if is_behind && job != "sync" {
            remark = " at the last block that its index had";
        } else {
            assert_eq!(height(&node), chain.last().unwrap().height, "{what}");
        }
        let stored = if kind == Kind::Snapshot { "3" } else { "100" };
        assert_eq!(node.call(&["verifychain", "4", stored]).unwrap(), true, "{what}");
        let coins = OnceCell::new();
        // Some releases refuse it as long as an index is behind.
        let answers = || node.call(&["gettxoutsetinfo"]).is_some_and(|found| coins.set(found).is_ok());
        wait(answers, "bitcoind does not count its coins");
        let coins = coins.into_inner().unwrap()["hash_serialized_3"].clone();
        node.stop();
        if kind != Kind::Snapshot && !is_behind {
            assert_eq!(coins, world.coins, "{what}");
        }
        format!("done, opens{remark}")
    }

    /// Lets Peregrine download all blocks from the release, and the release open the result.
    fn download(&self, world: &World) {
        let (source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        self.import(Kind::Obfuscated, source.path(), &world.main).stop();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let serves = ["-listen=1", "-maxtipage=2000000000", &format!("-bind={address}")];
        let node = self.start(Kind::Obfuscated, source.path(), &serves);
        let output = run(target.path(), &["sync", "--progress", "none", "--connect", &address]);
        node.stop();
        assert!(output.status.success(), "{}: {output:?}", self.version);
        let node = self.start(Kind::Obfuscated, target.path(), &[]);
        assert_eq!(height(&node), world.main.last().unwrap().height);
        assert_eq!(node.call(&["verifychain", "4", "100"]).unwrap(), true);
        assert_eq!(node.call(&["gettxoutsetinfo"]).unwrap()["hash_serialized_3"], world.coins);
        node.stop();
    }

    /// Writes the snapshot for which this release has the hash.
    fn snapshot(&self, chain: &[GeneratedBlock], dir: &Path) -> PathBuf {
        let (file, node_dir) = (dir.join(format!("utxo-{}.dat", self.version)), TempDir::new().unwrap());
        let below = &chain[..=SNAPSHOT_HEIGHT as usize];
        let node = self.import(Kind::Obfuscated, node_dir.path(), below);
        assert!(node.call(&["dumptxoutset", file.to_str().unwrap(), "latest"]).is_some());
        node.stop();
        file
    }

    /// The rows of the table.
    fn rows(&self, world: &World) -> String {
        // In 27.99 and 28.99, the hash at this height is that of a made-up set, which no chain has.
        let knows_snapshot = !["27.", "28."].iter().any(|known| self.version.starts_with(known));
        let mut rows = String::new();
        for kind in Kind::ALL {
            if kind == Kind::Snapshot && !knows_snapshot {
                continue;
            }
            let written = self.write(kind, world);
            write!(rows, "| {} | {} |", self.version, kind.name()).unwrap();
            for job in ["reindex", "update", "repair", "sync"] {
                let begun = Instant::now();
                let cell = self.cell(kind, job, &written, world);
                println!("{} {} {job}: {cell} ({:?})", self.version, kind.name(), begun.elapsed());
                write!(rows, " {cell} |").unwrap();
            }
            rows.push('\n');
        }
        self.download(world);
        rows
    }
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Obfuscated, Self::Plain, Self::Pruned, Self::Indexes, Self::Killed, Self::Snapshot];

    const fn name(self) -> &'static str {
        match self {
            Self::Obfuscated => "with `xor.dat`",
            Self::Plain => "without `xor.dat`",
            Self::Pruned => "pruned",
            Self::Indexes => "all indexes",
            Self::Killed => "killed before its last blocks were written to the chainstate",
            Self::Snapshot => "snapshot loaded, validated up to height 100",
        }
    }
}

/// What all releases get.
struct World {
    main: Vec<GeneratedBlock>,
    /// `hash_serialized_3` at its tip.
    coins: serde_json::Value,
    snapshot_chain: Vec<GeneratedBlock>,
    /// One with each chain.
    peers: [ScriptedPeer; 2],
    dir: TempDir,
}

impl World {
    fn new(release: &Release) -> Self {
        let chain = Chain::generate(&ChainSpec { blocks: Some(640), ..ChainSpec::new(17, 600_000) });
        let main: Vec<GeneratedBlock> = chain.main().cloned().collect();
        let dir = TempDir::new().unwrap();
        let node = release.import(Kind::Obfuscated, dir.path(), &main);
        let coins = node.call(&["gettxoutsetinfo"]).unwrap()["hash_serialized_3"].clone();
        node.stop();
        let snapshot_chain = snapshot_chain::blocks(SNAPSHOT_HEIGHT + 3);
        let peers = [serve(&main), serve(&snapshot_chain)];
        Self { main, coins, snapshot_chain, peers, dir }
    }

    fn chain(&self, kind: Kind) -> &[GeneratedBlock] {
        if kind == Kind::Snapshot { &self.snapshot_chain } else { &self.main }
    }
}

fn serve(chain: &[GeneratedBlock]) -> ScriptedPeer {
    ScriptedPeer::start(&ServedChain::of(chain.iter()).into(), Fault::None)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn height(node: &Node) -> u32 {
    u32::try_from(node.call(&["getblockcount"]).unwrap().as_u64().unwrap()).unwrap()
}

#[track_caller]
fn wait(is_done: impl Fn() -> bool, otherwise: &str) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_secs(600), "{otherwise}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Flips a bit of a block where it is stored.
fn damage(net_dir: &Path, block: &GeneratedBlock) {
    let index = read_block_index(&vfs::RealDisk, &net_dir.join("blocks/index")).unwrap();
    let entry = index.entries.iter().find(|entry| entry.hash == block.hash).unwrap();
    let file = net_dir.join(format!("blocks/blk{:05}.dat", entry.file.unwrap().0));
    flip_bit(&file, entry.data_pos.unwrap().0 + 100, 3).unwrap();
}

#[test]
fn what_releases_of_core_have_written_is_read_and_what_is_written_they_open() {
    let one = || Some(program()?.display().to_string());
    let Some(bitcoinds) = std::env::var("PEREGRINE_BITCOINDS").ok().or_else(one) else { return };
    let releases: Vec<Release> = bitcoinds.split_whitespace().map(Release::new).collect();
    let world = World::new(&releases[0]);
    let page = fs::read_to_string(PAGE).unwrap();
    let (head, table) = page.split_once("| --- |").unwrap();
    let (rule, old) = table.split_once('\n').unwrap();
    let mut rows: Vec<String> = old.lines().map(str::to_owned).collect();
    let mut differences = Vec::new();
    for release in &releases {
        let found = release.rows(&world);
        print!("{found}");
        if !old.contains(&found) {
            differences.push(release.version.clone());
        }
        rows.retain(|row| !row.starts_with(&format!("| {} |", release.version)));
        rows.extend(found.lines().map(str::to_owned));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        rows.sort_by_key(|row| row.split('.').next().unwrap().to_owned());
        fs::write(PAGE, format!("{head}| --- |{rule}\n{}\n", rows.join("\n"))).unwrap();
    } else {
        assert!(
            differences.is_empty(),
            "docs/releases.md differs for {differences:?}: run with UPDATE_DOCS=1"
        );
    }
}
