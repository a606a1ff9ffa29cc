//! The second chainstate of a node that was started from a snapshot, and whether bitcoind starts with both.
//! No command rewrites it.
//!
//! What bitcoind requires of it when it starts, by Core's source (`ReadSnapshotBaseBlockhash`,
//! `BlockManager::LoadBlockIndex`, `Chainstate::LoadChainTip`, `NeedsRedownload`, `ReachedTarget`):
//!
//! - The file `base_blockhash`, without which it ignores the directory, has the hash of the snapshot's block.
//!   Core's source has the hash of the coins after that block, and the block index its header.
//! - The database opens, and its best block is in the block index.
//! - The block index says of each block up to that one that it came with its witnesses, which is forgotten
//!   with its place in a file. The last blocks above the chainstate have their undo data.
//! - The tip of `chainstate` is the snapshot's block, or one below it. If it is that block, bitcoind compares
//!   the coins when it starts, and continues with the second chainstate alone.
//! - If the snapshot's block is stored, all between that tip and it are (Core pull request 35307).

use crate::{blocks::files::Files, plan::tree::Tree};
use api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
    subject::Subject,
};
use disk::{
    DiskError,
    chainstate::{ChainstateReader, read_best_block},
    datadir::{Datadir, FileKind, SNAPSHOT_BASE},
};
use std::path::PathBuf;
use vfs::During as _;
use wire::{BlockHash, Height};

/// Number of blocks whose undo data bitcoind reads when it starts (Core `DEFAULT_CHECKBLOCKS`).
pub const CHECKED_AT_START: usize = 6;

/// The chainstate of a snapshot that bitcoind loads when it starts.
#[derive(Clone, Debug)]
pub struct SecondChainstate {
    pub dir: PathBuf,
    blocks: Result<Blocks, Obstacle>,
}

/// The blocks that a second chainstate needs in the block index.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// The snapshot's block.
    base: BlockHash,
    best: BlockHash,
    /// Whether the snapshot is loaded, so that the block index says that its blocks came with witnesses.
    is_loaded: bool,
}

/// Why bitcoind does not start with two chainstates: a clause about the second one, which is `it`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{clause}")]
pub struct Obstacle {
    clause: String,
    /// The height of the snapshot's block, if the chainstate ends above it.
    base_below: Option<Height>,
}

impl Obstacle {
    fn new(clause: impl Into<String>) -> Self {
        Self { clause: clause.into(), base_below: None }
    }
}

impl SecondChainstate {
    /// Finds the second chainstate of a datadir; `None` if there is none, or if bitcoind ignores it.
    pub fn find(files: &Files<'_>) -> Result<Option<Self>, Error> {
        let Files { disk, datadir, params, .. } = *files;
        let dir = datadir.snapshot_dir();
        let base = dir.join(SNAPSHOT_BASE);
        let Some(found) = disk.metadata(&base).during("look at", &base)? else { return Ok(None) };
        let mut hash = BlockHash::default();
        if found.len < hash.0.len() as u64 {
            let obstacle = Obstacle::new(format!("its file {SNAPSHOT_BASE} is too short"));
            return Ok(Some(Self { dir, blocks: Err(obstacle) }));
        }
        let file = disk.open(&base).during("open for reading", &base)?;
        file.read_exact_at(&mut hash.0, 0).during("read", &base)?;
        if params.pinned_utxo_set(&hash).is_none() {
            let clause = format!("Bitcoin Core's source has no hash of a snapshot of its block {hash}");
            return Ok(Some(Self { dir, blocks: Err(Obstacle::new(clause)) }));
        }
        let best = match ChainstateReader::open(disk, &dir) {
            // bitcoind completes it when it starts.
            Err(DiskError::InterruptedFlush { .. }) => read_best_block(disk, &dir),
            opened => opened.map(|reader| Some(reader.best_block())),
        };
        let blocks = match best.map_err(Error::from) {
            Ok(Some(best)) => Ok(Blocks { base: hash, best, is_loaded: true }),
            Ok(None) => Err(Obstacle::new("it does not open: it has no best block")),
            Err(error) if error.kind == ErrorKind::Damaged => {
                Err(Obstacle::new(format!("it does not open: {}", error.detail)))
            }
            Err(error) => return Err(error),
        };
        Ok(Some(Self { dir, blocks }))
    }

    /// What the loading of a snapshot of the block `base` makes.
    pub fn to_load(datadir: &Datadir, base: BlockHash) -> Self {
        Self { dir: datadir.snapshot_dir(), blocks: Ok(Blocks { base, best: base, is_loaded: false }) }
    }

    /// Hash of the snapshot's block, if bitcoind knows a snapshot of it.
    pub fn base(&self) -> Option<BlockHash> {
        self.blocks.as_ref().ok().map(|blocks| blocks.base)
    }

    /// Returns why bitcoind would not start with it beside a chainstate that ends with the last of the blocks
    /// with the numbers `branch`; without any, beside none. `is_lost` reports whether the block index will
    /// give up what it has of a block. All headers must have been validated.
    pub fn obstacle(
        &self,
        files: &Files<'_>,
        tree: &Tree<'_>,
        branch: &[u32],
        is_lost: impl Fn(u32) -> bool,
    ) -> Result<Option<Obstacle>, Error> {
        let Blocks { base: base_hash, best, is_loaded } = match &self.blocks {
            Ok(blocks) => *blocks,
            Err(obstacle) => return Ok(Some(obstacle.clone())),
        };
        let unknown = |hash| Obstacle::new(format!("the block index does not have its block {hash}"));
        let locate = |hash| tree.locate(&hash, branch, Height(0)).ok_or_else(|| unknown(hash));
        let (base, best) = match (locate(base_hash), locate(best)) {
            (Ok(base), Ok(best)) => (base, best),
            (Err(obstacle), _) | (_, Err(obstacle)) => return Ok(Some(obstacle)),
        };
        if let Some(tip) = branch.len().checked_sub(1).map(|tip| Height(tip as u32))
            && base.fork != tip
        {
            let fork = base.fork;
            if fork == base.known.height {
                let clause = format!(
                    "the chainstate ends at height {tip}, above the snapshot's block at height {fork}"
                );
                return Ok(Some(Obstacle { clause, base_below: Some(fork) }));
            }
            return Ok(Some(Obstacle::new(format!(
                "the chainstate ends at height {tip} of a branch that leaves that of the snapshot's block \
                 {base_hash} above height {fork}"
            ))));
        }
        let stored = |&number: &u32| tree.data_pos(number).is_some() && !is_lost(number);
        let below = tree.branch_to(&base_hash);
        if below.last().is_some_and(stored) && !below.iter().skip(branch.len()).all(stored) {
            let clause = "its own block is stored, but not all blocks between the chainstate and that one";
            return Ok(Some(Obstacle::new(clause)));
        }
        let numbers = tree.branch_to(&best.known.hash);
        let heights = || (best.fork.0 + 1..=best.known.height.0).rev().map(Height);
        let above = || heights().filter_map(|height| Some((*numbers.get(height.0 as usize)?, height)));
        if let Some((_, height)) = above().find(|&(number, _)| is_lost(number)) {
            let clause = format!("its block at height {height} is damaged or missing");
            return Ok(Some(Obstacle::new(clause)));
        }
        let assumed = above().filter(|&(number, _)| tree.data_pos(number).is_none());
        if is_loaded && let Some(height) = tree.first_without_witnesses(assumed) {
            return Ok(Some(Obstacle::new(format!(
                "the block index is older: it does not say that the block at height {height} came with its \
                 witnesses, and bitcoind would ask for a -reindex"
            ))));
        }
        for (number, height) in above().take(CHECKED_AT_START) {
            // bitcoind ends its check at the first block that is not stored.
            let Some((file, _)) = tree.data_pos(number) else { break };
            let undo_pos = tree.undo_pos(number).map_or(u64::MAX, |pos| pos.0);
            if files.len(FileKind::Rev, file)? <= undo_pos {
                let clause = format!("its block at height {height} has no undo data");
                return Ok(Some(Obstacle::new(clause)));
            }
        }
        Ok(None)
    }

    /// The error for a command whose result bitcoind would not start with.
    pub fn error(&self, obstacle: &Obstacle) -> Error {
        let detail =
            format!("this is the chainstate of a snapshot, and bitcoind could not start with it: {obstacle}");
        Error::usage(detail)
            .in_file(&self.dir, None)
            .about(Subject::SecondChainstate)
            .with_remedies(obstacle.base_below.map(Remedy::StopAtHeight))
    }
}
