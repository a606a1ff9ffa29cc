//! Releases of Bitcoin Core: datadirs that they have written are rebuilt, updated, repaired and completed,
//! and opened by the same release again. The table in `docs/releases.md` is what this test has seen.
//!
//! PEREGRINE_BITCOINDS has the paths of bitcoinds, each with bitcoin-cli beside it, separated by spaces;
//! without it, one version is tried. `UPDATE_DOCS=1` writes the table.

use crate::prelude::*;
use std::fmt::Write as _;
use testkit::{node::Res, snapshot_chain};

/// Blocks that are missing in the datadirs, or in their chainstates, that are completed.
const MISSING: usize = 40;
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/releases.md");

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

impl Release {
    fn new(bitcoind: &str) -> Self {
        let output = Command::new(bitcoind).arg("-version").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let version = text.lines().next().unwrap().split(" version v").nth(1).unwrap();
        let version = version.split(['-', ' ']).next().unwrap().to_owned();
        Self { bitcoind: bitcoind.into(), version }
    }

    fn flags(&self, kind: Kind) -> Vec<String> {
        let all = match kind {
            Kind::Obfuscated | Kind::Killed | Kind::Snapshot => vec![],
            Kind::Plain => vec!["-blocksxor=0"],
            Kind::Pruned => vec!["-fastprune", "-prune=1"],
            Kind::Indexes => vec!["-txindex", "-blockfilterindex", "-coinstatsindex", "-txospenderindex"],
        };
        let help = Command::new(&self.bitcoind).args(["-help", "-help-debug"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let knows = |flag: &&str| help.contains(&format!("  {}", flag.split('=').next().unwrap()));
        // A chainstate that was set aside half validated trips the check of the block index on regtest, also
        // without Peregrine.
        let checks = format!("-checkblockindex={}", u8::from(kind != Kind::Snapshot));
        all.into_iter().filter(knows).map(str::to_owned).chain([checks]).collect()
    }

    fn writer<'a>(&'a self, flags: &'a [String]) -> Writer<'a> {
        Writer { program: &self.bitcoind, flags, patience: PATIENCE }
    }

    fn start(&self, kind: Kind, datadir: &Path) -> Node {
        self.writer(&self.flags(kind)).node(datadir, &[]).unwrap()
    }

    /// Lets the release write `datadir`, and `backup`, the same before the last blocks.
    fn write(&self, kind: Kind, world: &World) -> Res<TempDir> {
        let (dir, flags) = (TempDir::new()?, self.flags(kind));
        let writer = self.writer(&flags);
        if kind == Kind::Snapshot {
            let (from, datadir) = (SnapshotDatadirs::new(writer, dir.path())?, dir.path().join("datadir"));
            from.begin(&datadir, 0)?;
            from.load(&datadir)?;
            copy_all(&datadir.join("regtest"), &dir.path().join("backup"))?;
            // The last of the blocks below the snapshot's are missing: both chainstates stay.
            from.work(&datadir, |node| node.submit(from.up_to(100)))?;
            from.work(&datadir, |node| node.submit(from.above()))?;
            return Ok(dir);
        }
        let tail = match kind {
            Kind::Killed => Tail::Killed,
            Kind::Pruned => Tail::Pruned,
            _ => Tail::Plain,
        };
        writer.write(dir.path(), &world.main, MISSING, tail)?;
        // As releases before 28 leave it.
        if kind == Kind::Plain {
            for net in ["datadir/regtest", "backup"] {
                let key = dir.path().join(net).join("blocks/xor.dat");
                assert_eq!(fs::read(&key)?, [0; 8]);
                fs::remove_file(key)?;
            }
        }
        Ok(dir)
    }

    /// Runs a command on a copy of a datadir, lets the release open the result, and returns what happened.
    fn cell(&self, kind: Kind, job: &str, written: &Path, world: &World) -> String {
        let chain = world.chain(kind);
        let case = TempDir::new().unwrap();
        let (net, backup) = (case.path().join("regtest"), written.join("backup"));
        let from = if job == "sync" { &backup } else { &written.join("datadir/regtest") };
        copy_dir(from, &net).unwrap();
        match job {
            "update" if kind != Kind::Killed && kind != Kind::Snapshot => {
                fs::remove_dir_all(net.join("chainstate")).unwrap();
                copy_dir(&backup.join("chainstate"), &net.join("chainstate")).unwrap();
            }
            "repair" => {
                // bitcoind reads the last six blocks when it starts. A killed one may not have the last ones.
                let height = if kind == Kind::Snapshot { 50 } else { chain.len() - MISSING - 20 };
                Place::new(case.path(), case.path()).flip_in_block(height as u32, 100).unwrap();
            }
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
        let node = self.start(kind, case.path());
        if code != 0 {
            assert!(error.contains("help: "), "{what}");
            return format!("refused ({code}); opens as before");
        }
        // Up to release 28, a node that is killed may have stored blocks that its index does not have.
        let is_behind = kind == Kind::Killed && node.height() as usize + MISSING + 1 == chain.len();
        if is_behind && job != "sync" {
            remark = " at the last block that its index had";
        } else {
            assert_eq!(node.height(), chain.last().unwrap().height, "{what}");
        }
        assert!(node.finds_sound(4, if kind == Kind::Snapshot { 3 } else { 100 }), "{what}");
        let coins = node.coins().unwrap();
        node.stop().unwrap();
        if kind != Kind::Snapshot && !is_behind {
            assert_eq!(coins, world.coins, "{what}");
        }
        format!("done, opens{remark}")
    }

    /// Lets Peregrine download all blocks from the release, and the release open the result.
    fn download(&self, world: &World) {
        let (source, target) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let node = Node::start_server(&self.bitcoind, source.path(), &[]);
        node.submit(&world.main[1..]).unwrap();
        let output = run(target.path(), &["sync", "--progress", "none", "--connect", &node.address()]);
        node.stop().unwrap();
        assert!(output.status.success(), "{}: {output:?}", self.version);
        let node = self.start(Kind::Obfuscated, target.path());
        assert_eq!(node.height(), world.main.last().unwrap().height);
        assert!(node.finds_sound(4, 100));
        assert_eq!(node.coins().unwrap(), world.coins);
        node.stop().unwrap();
    }

    fn rows(&self, world: &World) -> String {
        // In 27.99 and 28.99, the hash at this height is that of a made-up set, which no chain has.
        let knows_snapshot = !["27.", "28."].iter().any(|known| self.version.starts_with(known));
        let mut rows = String::new();
        for kind in Kind::ALL {
            if kind == Kind::Snapshot && !knows_snapshot {
                continue;
            }
            let written = self.write(kind, world).unwrap();
            write!(rows, "| {} | {} |", self.version, kind.name()).unwrap();
            for job in ["reindex", "update", "repair", "sync"] {
                let begun = Instant::now();
                let cell = self.cell(kind, job, written.path(), world);
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
}

impl World {
    fn new(release: &Release) -> Self {
        let chain = Chain::generate(&ChainSpec { blocks: Some(640), ..ChainSpec::new(17, 600_000) });
        let main: Vec<GeneratedBlock> = chain.main().cloned().collect();
        let dir = TempDir::new().unwrap();
        let node = release.start(Kind::Obfuscated, dir.path());
        node.submit(&main[1..]).unwrap();
        let coins = node.coins().unwrap();
        node.stop().unwrap();
        let snapshot_chain = snapshot_chain::blocks(SNAPSHOT_HEIGHT + 3);
        let peers = [peer_with(&main), peer_with(&snapshot_chain)];
        Self { main, coins, snapshot_chain, peers }
    }

    fn chain(&self, kind: Kind) -> &[GeneratedBlock] {
        if kind == Kind::Snapshot { &self.snapshot_chain } else { &self.main }
    }
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
