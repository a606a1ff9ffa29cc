//! Datadirs that a real `bitcoind` writes, in states in which users have them.

use super::{Node, Res, Start, owned};
use crate::{
    prelude::*,
    snapshot_chain::{self, SNAPSHOT_HEIGHT},
};
use serde_json::json;
use std::process::Command;

/// How the last blocks of a datadir are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// They are connected.
    Plain,
    /// There are stale branches that were once the active chain.
    Reorgs,
    /// The last blocks are invalidated.
    Invalidated,
    /// The node is killed before it has flushed its last blocks.
    Killed,
    /// The node crashes between two batches of a flush.
    HalfFlushed,
    /// Old block files are removed.
    Pruned,
    /// There are headers without blocks, and a block whose parent is missing.
    Gaps,
    Wallet,
}

/// Number of blocks of which a datadir with gaps has only the headers.
const GAP: usize = 4;

/// A bitcoind that writes datadirs of regtest.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// `bitcoind`.
    pub program: &'a Path,
    pub flags: &'a [String],
    /// See [`Start::patience`].
    pub patience: Duration,
}

impl Writer<'_> {
    /// Starts the node with more flags.
    ///
    /// # Errors
    /// If it does not start.
    pub fn node(&self, datadir: &Path, more: &[&str]) -> Res<Node> {
        fs::create_dir_all(datadir)?;
        let flags = [self.flags, &owned(more)].concat();
        Node::started(Start { patience: self.patience, ..Start::on_regtest(self.program, datadir, &flags) })
    }

    /// Writes `datadir` in a folder, and beside it `backup`, the network's folder before the `last` blocks
    /// were submitted. Of a pruned node, there is also `full`, the datadir before its oldest blocks were
    /// deleted.
    pub fn write(&self, dir: &Path, blocks: &[GeneratedBlock], last: usize, tail: Tail) -> Res<()> {
        let datadir = dir.join("datadir");
        let (first, last) = blocks.split_at(blocks.len() - last);
        let node = self.node(&datadir, &[])?;
        node.submit(&first[1..])?;
        node.stop()?;
        copy_all(&datadir.join("regtest"), &dir.join("backup"))?;
        let crash: &[&str] =
            if tail == Tail::HalfFlushed { &["-dbbatchsize=2000", "-dbcrashratio=3"] } else { &[] };
        let mut node = self.node(&datadir, crash)?;
        node.submit(&last[..last.len() - if tail == Tail::Gaps { GAP } else { 0 }])?;
        if tail == Tail::Pruned {
            node.stop()?;
            copy_all(&datadir, &dir.join("full"))?;
            node = self.node(&datadir, &[])?;
        }
        let tip = blocks.iter().map(|block| block.height).max().unwrap_or(0);
        finish(node, tip, blocks, tail)
    }
}

/// Datadirs of nodes that are started from a snapshot of [`snapshot_chain`].
pub struct SnapshotDatadirs<'a> {
    pub writer: Writer<'a>,
    /// The snapshot, which bitcoind has written.
    pub file: PathBuf,
    /// The chain, three blocks higher than the snapshot.
    pub blocks: Vec<GeneratedBlock>,
    /// Blocks from the parent of the snapshot's block on, with more work than the chain.
    pub branch: Vec<GeneratedBlock>,
}

impl<'a> SnapshotDatadirs<'a> {
    /// Lets the bitcoind write the snapshot in a folder.
    pub fn new(writer: Writer<'a>, dir: &Path) -> Res<Self> {
        let blocks = snapshot_chain::blocks(SNAPSHOT_HEIGHT + 3);
        let branch = snapshot_chain::branch(&blocks[SNAPSHOT_HEIGHT as usize - 1], 10, 1);
        let (full, file) = (dir.join("full"), dir.join("snapshot"));
        let node = writer.node(&full, &[])?;
        node.submit(&blocks[1..=SNAPSHOT_HEIGHT as usize])?;
        node.call("dumptxoutset", json!([file, "latest"]))?;
        node.stop()?;
        fs::remove_dir_all(full)?;
        Ok(Self { writer, file, blocks, branch })
    }

    pub fn up_to(&self, height: u32) -> &[GeneratedBlock] {
        &self.blocks[1..=height as usize]
    }

    /// The blocks above the snapshot's.
    pub fn above(&self) -> &[GeneratedBlock] {
        &self.blocks[SNAPSHOT_HEIGHT as usize + 1..]
    }

    /// Starts a node in a datadir, lets it work, and stops it.
    ///
    /// # Errors
    /// Those of the work, or of the node.
    pub fn work(&self, datadir: &Path, work: impl FnOnce(&Node) -> Res<()>) -> Res<()> {
        let node = self.writer.node(datadir, &[])?;
        work(&node)?;
        node.stop()
    }

    /// Writes a datadir with all headers, and with the blocks up to a height.
    pub fn begin(&self, datadir: &Path, height: u32) -> Res<()> {
        self.work(datadir, |node| {
            node.submit_headers(&self.blocks[1..])?;
            node.submit(self.up_to(height))
        })
    }

    pub fn load(&self, datadir: &Path) -> Res<()> {
        self.work(datadir, |node| node.call("loadtxoutset", json!([self.file])).map(drop))
    }
}

/// Copies with `cp -a`, which preserves modes, owners and links, and keeps holes.
pub fn copy_all(from: &Path, to: &Path) -> Res<()> {
    let done = Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("cp: {}", String::from_utf8_lossy(&done.stderr)).into())
}

fn finish(node: Node, tip: u32, blocks: &[GeneratedBlock], tail: Tail) -> Res<()> {
    match tail {
        Tail::Plain | Tail::HalfFlushed => {}
        Tail::Reorgs => reorganise(&node)?,
        Tail::Invalidated => {
            let hash = node.call("getblockhash", json!([tip - 7]))?;
            node.call("invalidateblock", json!([hash]))?;
        }
        // The node loses what it has not flushed.
        Tail::Killed => {
            thread::sleep(Duration::from_millis(200));
            rustix::process::kill_process(node.pid(), rustix::process::Signal::KILL)?;
            return node.wait_end();
        }
        Tail::Pruned => _ = node.call("pruneblockchain", json!([tip - 290]))?,
        Tail::Gaps => {
            node.submit_headers(&blocks[blocks.len() - GAP..])?;
            // The second last of the missing blocks, whose parent is missing.
            node.submit(&blocks[blocks.len() - 2..][..1])?;
        }
        Tail::Wallet => {
            node.call("createwallet", json!(["mine"]))?;
            let address = node.call("getnewaddress", json!([]))?;
            node.call("generatetoaddress", json!([3, address]))?;
        }
    }
    node.stop()
}

/// Makes stale branches, some of which were the active chain for a time.
fn reorganise(node: &Node) -> Res<()> {
    for (back, blocks) in [(2, 3), (5, 6), (1, 2), (3, 2)] {
        let hash = node.call("getblockhash", json!([node.height() - back + 1]))?;
        node.call("invalidateblock", json!([hash]))?;
        // A different script each time; otherwise the blocks would be the same.
        let script = format!("raw(51{:02x})", 0x51 + back);
        node.call("generatetodescriptor", json!([blocks, script]))?;
        node.call("reconsiderblock", json!([hash]))?;
    }
    Ok(())
}
