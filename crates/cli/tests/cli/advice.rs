//! What `doctor` advises ends at a node that starts: after each kind of breakage, the commands that it prints
//! are run, one after the other, until that is `bitcoind`, which is then started as it is printed.
//!
//! With PEREGRINE_BITCOIND, the path of Bitcoin Core's bitcoind, which has bitcoin-cli beside it; without it,
//! nothing is run.

use crate::common;

use common::{
    bitcoind::{Node, Server},
    command, json,
};
use disk::{
    datadir::Datadir,
    index::{BlockIndex, BlockStatus, FileInfo, read_block_index, write_block_index},
};
use engine::{FileNo, Network};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    corrupt::{copy_dir, flip_bit, interrupt_replacement, overwrite, truncate},
    datadir::Layout,
};
use vfs::RealDisk;

/// Height of the chain's last block.
const TIP: u32 = 130;
/// Height of an older chainstate.
const OLDER: u32 = 60;
/// Maximum number of commands that one kind of breakage takes.
const MOST_COMMANDS: usize = 6;
/// Where breakages put what a user restores.
const AWAY: &str = "away";

/// A broken datadir.
struct Broken {
    dir: TempDir,
    /// The folder of the network.
    net: PathBuf,
}

/// Breaks a datadir.
type Breakage = (&'static str, fn(&Broken));

impl Broken {
    fn new(base: &Path) -> Self {
        let dir = TempDir::new().unwrap();
        copy_dir(base, dir.path()).unwrap();
        Self { net: dir.path().join("regtest"), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.net.join(name)
    }

    fn remove(&self, name: &str) {
        let path = self.path(name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    fn index(&self) -> BlockIndex {
        read_block_index(&RealDisk, &self.path("blocks/index")).unwrap()
    }

    fn edit_index(&self, edit: impl FnOnce(&mut BlockIndex)) {
        let mut index = self.index();
        edit(&mut index);
        self.remove("blocks/index");
        write_block_index(&RealDisk, &self.path("blocks/index"), &index).unwrap();
    }

    /// The number of the last block file.
    fn last(&self) -> u32 {
        self.index().files.len() as u32 - 1
    }

    /// Moves something away and puts a link to nothing in its place.
    fn unmount(&self, name: &str) {
        fs::rename(self.path(name), self.dir.path().join(AWAY)).unwrap();
        symlink("unmounted", self.path(name)).unwrap();
    }

    /// Puts a directory in the place of a file, or a file in that of a directory.
    fn exchange_kind(&self, name: &str) {
        let is_dir = self.path(name).is_dir();
        self.remove(name);
        if is_dir {
            fs::write(self.path(name), "a file").unwrap()
        } else {
            fs::create_dir(self.path(name)).unwrap()
        }
    }

    /// The largest file of a folder whose name ends so.
    fn largest(&self, dir: &str, end: &str) -> PathBuf {
        let all = fs::read_dir(self.path(dir)).unwrap().map(|entry| entry.unwrap().path());
        let all = all.filter(|path| path.to_str().unwrap().ends_with(end));
        all.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    }

    /// The place of the block at this height, which has the most work.
    fn place(&self, height: u32) -> (PathBuf, u64) {
        let index = self.index();
        let mut of_height = index.entries.iter().filter(|entry| entry.height.0 == height);
        let entry = of_height.find(|entry| entry.undo_pos.is_some()).unwrap();
        let name = format!("blocks/blk{:05}.dat", entry.file.unwrap().0);
        (self.path(&name), entry.data_pos.unwrap().0)
    }

    /// Marks the node as pruned, without its first pair of files.
    fn prune(&self) {
        self.edit_index(|index| {
            index.pruned = true;
            for entry in index.entries.iter_mut().filter(|entry| entry.file == Some(FileNo(0))) {
                entry.status = entry.status.without_data();
                (entry.file, entry.data_pos, entry.undo_pos) = (None, None, None);
            }
            index.files[0] = FileInfo::default();
        });
        self.remove("blocks/blk00000.dat");
        self.remove("blocks/rev00000.dat");
    }

    /// Moves block files to a directory for `-blocksdir`.
    fn move_block_files(&self) -> PathBuf {
        let other = self.dir.path().join("other");
        fs::create_dir_all(other.join("regtest/blocks")).unwrap();
        for entry in fs::read_dir(self.path("blocks")).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_file() {
                fs::rename(entry.path(), other.join("regtest/blocks").join(entry.file_name())).unwrap();
            }
        }
        other
    }

    fn remove_all(&self, begin: &str) {
        for entry in fs::read_dir(self.path("blocks")).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_name().to_str().unwrap().starts_with(begin) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

fn break_file(path: &Path) {
    flip_bit(path, fs::metadata(path).unwrap().len() / 2, 3).unwrap();
}

fn cut_file(path: &Path) {
    truncate(path, fs::metadata(path).unwrap().len() / 2).unwrap();
}

const CHAINSTATE: [Breakage; 12] = [
    ("nothing", |_| {}),
    ("chainstate: CURRENT", |at| fs::write(at.path("chainstate/CURRENT"), "nothing").unwrap()),
    ("chainstate: CURRENT missing", |at| at.remove("chainstate/CURRENT")),
    ("chainstate: absent", |at| at.remove("chainstate")),
    ("chainstate: empty folder", |at| {
        at.remove("chainstate");
        fs::create_dir(at.path("chainstate")).unwrap();
    }),
    ("chainstate: a table flipped", |at| break_file(&at.largest("chainstate", ".ldb"))),
    ("chainstate: a table cut", |at| cut_file(&at.largest("chainstate", ".ldb"))),
    ("chainstate: a table missing", |at| fs::remove_file(at.largest("chainstate", ".ldb")).unwrap()),
    ("chainstate: a file", |at| at.exchange_kind("chainstate")),
    ("chainstate: a link to nothing", |at| at.unmount("chainstate")),
    ("chainstate: of another chain", |at| {
        at.remove("chainstate");
        copy_dir(&at.dir.path().join("foreign"), &at.path("chainstate")).unwrap();
    }),
    ("chainstate: older", |at| {
        at.remove("chainstate");
        copy_dir(&at.dir.path().join("older"), &at.path("chainstate")).unwrap();
    }),
];

const INDEX: [Breakage; 13] = [
    ("index: CURRENT missing", |at| at.remove("blocks/index/CURRENT")),
    ("index: absent", |at| at.remove("blocks/index")),
    ("index: a table flipped", |at| break_file(&at.largest("blocks/index", ".ldb"))),
    ("index: a table missing", |at| fs::remove_file(at.largest("blocks/index", ".ldb")).unwrap()),
    ("index: a file", |at| at.exchange_kind("blocks/index")),
    ("index: older", |at| {
        at.edit_index(|index| index.entries.retain(|entry| entry.height.0 <= OLDER));
    }),
    ("index: a -reindex was interrupted", |at| at.edit_index(|index| index.reindexing = true)),
    ("index: too small sizes", |at| {
        at.edit_index(|index| index.files.iter_mut().for_each(|info| info.size /= 2));
    }),
    ("index: empty", |at| at.edit_index(|index| *index = BlockIndex::default())),
    ("index: without the undo data of a block", |at| {
        at.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.height.0 == 70) {
                entry.status = BlockStatus(entry.status.0 & !BlockStatus::HAVE_UNDO);
                entry.undo_pos = None;
            }
        });
    }),
    ("index and chainstate: CURRENT missing", |at| {
        at.remove("blocks/index/CURRENT");
        at.remove("chainstate/CURRENT");
    }),
    ("index: absent, and the last block file", |at| {
        at.remove(&format!("blocks/blk{:05}.dat", at.last()));
        at.remove("blocks/index");
    }),
    ("index: CURRENT missing, and the files of the last block", |at| {
        let first = at.place(TIP).0.file_name().unwrap().to_str().unwrap()[3..8].parse::<u32>().unwrap();
        for number in first..=at.last() {
            at.remove(&format!("blocks/blk{number:05}.dat"));
            at.remove(&format!("blocks/rev{number:05}.dat"));
        }
        at.remove("blocks/index/CURRENT");
    }),
];

const BLOCKS: [Breakage; 17] = [
    ("blk: one missing", |at| at.remove("blocks/blk00001.dat")),
    ("blk: one cut", |at| cut_file(&at.path("blocks/blk00001.dat"))),
    ("blk: one with zeros", |at| {
        overwrite(&at.path("blocks/blk00001.dat"), 3_000, &[0; 2_000]).unwrap();
    }),
    ("blk: one is a folder", |at| at.exchange_kind("blocks/blk00001.dat")),
    ("blk: one is a link to nothing", |at| at.unmount("blocks/blk00001.dat")),
    ("blk: the first missing", |at| at.remove("blocks/blk00000.dat")),
    ("blk: the last missing", |at| at.remove(&format!("blocks/blk{:05}.dat", at.last()))),
    ("blk: one missing, with its undo data", |at| {
        at.remove("blocks/blk00001.dat");
        at.remove("blocks/rev00001.dat");
    }),
    ("blk: a transaction flipped", |at| {
        let (path, pos) = at.place(90);
        flip_bit(&path, pos + 120, 1).unwrap();
    }),
    ("blk: a header flipped", |at| {
        let (path, pos) = at.place(90);
        flip_bit(&path, pos + 40, 1).unwrap();
    }),
    ("blk: all missing", |at| at.remove_all("blk")),
    ("blk: one missing, and the index", |at| {
        at.remove("blocks/blk00001.dat");
        at.remove("blocks/index");
    }),
    ("blocks: gone", |at| at.remove("blocks")),
    ("blocks: a file", |at| at.exchange_kind("blocks")),
    ("blocks: a link to nothing", |at| at.unmount("blocks")),
    ("blocks: in a directory that the log names", |at| {
        let other = at.move_block_files();
        let log = format!(
            "2026 Bitcoin Core version v31.99.0\n2026 Command-line arg: blocksdir=\"{}\"\n",
            other.display()
        );
        fs::write(at.path("debug.log"), log).unwrap();
    }),
    ("blocks: in a directory that only the user knows", |at| {
        at.move_block_files();
        at.remove("debug.log");
    }),
];

const OTHERS: [Breakage; 20] = [
    ("rev: one missing", |at| at.remove("blocks/rev00001.dat")),
    ("rev: all missing", |at| at.remove_all("rev")),
    ("rev: one cut", |at| cut_file(&at.path("blocks/rev00001.dat"))),
    ("rev: one flipped", |at| break_file(&at.path("blocks/rev00001.dat"))),
    ("rev: one is a folder", |at| at.exchange_kind("blocks/rev00001.dat")),
    ("rev: the last missing", |at| at.remove(&format!("blocks/rev{:05}.dat", at.last()))),
    ("xor.dat: missing", |at| at.remove("blocks/xor.dat")),
    ("xor.dat: wrong", |at| fs::write(at.path("blocks/xor.dat"), [7; 8]).unwrap()),
    ("xor.dat: a folder", |at| at.exchange_kind("blocks/xor.dat")),
    ("pruned", Broken::prune),
    ("pruned, with its size in bitcoin.conf", |at| {
        at.prune();
        fs::write(at.dir.path().join("bitcoin.conf"), "prune=600\n").unwrap();
    }),
    ("pruned, and the chainstate is broken", |at| {
        at.prune();
        at.remove("chainstate/CURRENT");
    }),
    ("pruned, and the last undo file is missing", |at| {
        at.prune();
        at.remove(&format!("blocks/rev{:05}.dat", at.last()));
    }),
    ("pruned, and the last block file is missing", |at| {
        at.prune();
        at.remove(&format!("blocks/blk{:05}.dat", at.last()));
    }),
    ("pruned, and the index is older", |at| {
        at.prune();
        at.edit_index(|index| index.entries.retain(|entry| entry.height.0 <= OLDER));
    }),
    ("a block of the chainstate is marked invalid", |at| {
        at.edit_index(|index| {
            for entry in index.entries.iter_mut().filter(|entry| entry.height.0 == 100) {
                entry.status = BlockStatus(entry.status.0 | BlockStatus::FAILED_VALID);
            }
        });
    }),
    ("all undo files and the chainstate missing", |at| {
        at.remove_all("rev");
        at.remove("chainstate");
    }),
    ("all but block files missing", |at| {
        at.remove_all("rev");
        at.remove("chainstate");
        at.remove("blocks/index");
    }),
    ("a replacement of both databases was interrupted", |at| interrupt_replacement(&at.net).unwrap()),
    ("a new folder", |at| {
        fs::remove_dir_all(&at.net).unwrap();
        for name in ["older", "foreign"] {
            fs::remove_dir_all(at.dir.path().join(name)).unwrap();
        }
        fs::write(at.dir.path().join("bitcoin.conf"), "regtest=1\n").unwrap();
    }),
];

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
fn as_user(line: &str, at: &Broken) -> Option<String> {
    if let Some(rest) = line.strip_prefix("ls -l ") {
        let link = PathBuf::from(rest.split("  #").next().unwrap());
        fs::remove_file(&link).unwrap();
        fs::rename(at.dir.path().join(AWAY), link).unwrap();
        return None;
    }
    let command = line.split("  #").next().unwrap();
    assert!(command.ends_with("--blocksdir DIR"), "{line}");
    Some(command.replace("DIR", &at.dir.path().join("other").display().to_string()))
}

/// Follows the advice on a datadir. Returns the commands; the last one starts bitcoind.
fn follow(at: &Broken, server: &Server, is_deep: bool) -> Result<Vec<String>, String> {
    let place = format!("--datadir {} --chain regtest", at.dir.path().display());
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
    let layout = Layout { file_size: 16 << 10, preallocate: false, ..Layout::new(17) };
    chain.write_datadir(base.path(), &layout).unwrap();
    let older = base.path().join("regtest/older");
    for (height, kept) in [(OLDER, Some(&older)), (TIP, None)] {
        let height = height.to_string();
        let words = ["reindex", "--chain", "regtest", "--stop-at-height", &height];
        assert!(command(&words, base.path()).output().unwrap().status.success());
        if let Some(kept) = kept {
            copy_dir(&Datadir::at(base.path(), Network::Regtest).chainstate_dir(), kept).unwrap();
        }
    }
    fs::rename(&older, base.path().join("older")).unwrap();
    let foreign = TempDir::new().unwrap();
    let other = Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(21, 40_000) });
    other.write_datadir(foreign.path(), &layout).unwrap();
    assert!(command(&["reindex", "--chain", "regtest"], foreign.path()).output().unwrap().status.success());
    copy_dir(&foreign.path().join("regtest/chainstate"), &base.path().join("foreign")).unwrap();
    let Some(node) = Node::start(base.path(), &[], "what doctor advises") else { return };
    assert!(node.has_height(TIP.into()));
    node.stop();
    let serving = TempDir::new().unwrap();
    copy_dir(base.path(), serving.path()).unwrap();
    let server = Server::start(serving.path(), "what doctor advises").unwrap();
    let mut failed = Vec::new();
    let all = CHAINSTATE.iter().chain(&INDEX).chain(&BLOCKS).chain(&OTHERS);
    // Without reading everything, it does not know whether blocks are missing below those that it finds.
    for ((what, damage), is_deep) in all.map(|it| (it, true)).chain(INDEX.iter().map(|it| (it, false))) {
        let at = Broken::new(base.path());
        damage(&at);
        let done = follow(&at, &server, is_deep).and_then(|steps| {
            println!("{what}: {steps:#?}");
            check_start(steps.last().unwrap(), &server)
        });
        failed.extend(done.err().map(|error| format!("{what}, deep {is_deep}: {error}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
