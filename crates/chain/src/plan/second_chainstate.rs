//! The second chainstate of a node that was started from a snapshot, and whether bitcoind starts with both.
//! No command rewrites it.
//!
//! What bitcoind requires of it when it starts, by Core's source (`ReadSnapshotBaseBlockhash`,
//! `BlockManager::LoadBlockIndex`, `Chainstate::LoadChainTip`, `NeedsRedownload`, `ReachedTarget`):
//!
//! - The file `base_blockhash`, without which it ignores the directory, has the hash of the snapshot's block.
//!   Core's source has the hash of the coins after that block, and the block index its header.
//! - The database opens, and its best block is in the block index.
//! - No block up to that one has lost the mark that it came with witnesses, as it does with its place in a
//!   file. The last blocks above the chainstate have their undo data.
//! - The tip of `chainstate` is the snapshot's block, or one below it. If it is that block, bitcoind compares
//!   the coins when it starts, and goes on with the second chainstate alone.

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
    index::{BlockStatus, IndexRows},
};
use rules::ChainParams;
use std::{fmt, path::PathBuf};
use vfs::{Disk, During as _};
use wire::{BlockHash, FileNo, Height};

/// Number of blocks whose undo data bitcoind reads when it starts (Core `DEFAULT_CHECKBLOCKS`).
pub const CHECKED_AT_START: usize = 6;

/// The chainstate of a snapshot that bitcoind loads when it starts.
#[derive(Clone, Debug)]
pub struct SecondChainstate {
    /// Its directory.
    pub dir: PathBuf,
    blocks: Result<Blocks, Obstacle>,
}

/// The blocks that a second chainstate needs in the block index.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// The snapshot's block.
    base: BlockHash,
    best: BlockHash,
}

/// Why bitcoind does not start with two chainstates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// The file `base_blockhash` is too short.
    NoBase,
    /// Core's source has no hash of a snapshot of this block.
    NoSnapshot(BlockHash),
    /// The database does not open.
    NotOpen(String),
    /// The block index does not have this block.
    NotInIndex(BlockHash),
    /// The chainstate ends above the snapshot's block.
    Above {
        /// Height of its last block.
        tip: Height,
        /// Height of the snapshot's block.
        base: Height,
    },
    /// The chainstate ends on another branch than that of the snapshot's block.
    OtherBranch {
        /// Height of its last block.
        tip: Height,
        /// Hash of the snapshot's block.
        base: BlockHash,
        /// Height of the last block that both branches have.
        fork: Height,
    },
    /// A block of the second chainstate is damaged or missing.
    LostBlock(Height),
    /// The undo data of one of its last blocks is missing.
    NoUndo(Height),
    /// The block index is older than the snapshot's chainstate.
    OlderIndex(Height),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBase => write!(f, "its file {SNAPSHOT_BASE} is too short"),
            Self::NoSnapshot(base) => {
                write!(f, "Bitcoin Core's source has no hash of a snapshot of its block {base}")
            }
            Self::NotOpen(error) => write!(f, "it does not open: {error}"),
            Self::NotInIndex(hash) => write!(f, "the block index does not have its block {hash}"),
            Self::Above { tip, base } => {
                write!(f, "the chainstate ends at height {tip}, above the snapshot's block at height {base}")
            }
            Self::OtherBranch { tip, base, fork } => write!(
                f,
                "the chainstate ends at height {tip} of a branch that leaves that of the snapshot's block \
                 {base} above height {fork}"
            ),
            Self::LostBlock(height) => write!(f, "its block at height {height} is damaged or missing"),
            Self::NoUndo(height) => write!(f, "its block at height {height} has no undo data"),
            Self::OlderIndex(height) => write!(
                f,
                "the block index is older: the mark of witnesses is missing for the block at height \
                 {height}, and bitcoind would ask for a -reindex"
            ),
        }
    }
}

impl SecondChainstate {
    /// Finds the second chainstate of a datadir; `None` if there is none, or if bitcoind ignores it.
    pub fn find(disk: &dyn Disk, datadir: &Datadir, params: &ChainParams) -> Result<Option<Self>, Error> {
        let dir = datadir.snapshot_dir();
        let base = dir.join(SNAPSHOT_BASE);
        let Some(found) = disk.metadata(&base).during("look at", &base)? else { return Ok(None) };
        let mut hash = BlockHash::default();
        if found.len < hash.0.len() as u64 {
            return Ok(Some(Self { dir, blocks: Err(Obstacle::NoBase) }));
        }
        let file = disk.open(&base).during("open for reading", &base)?;
        file.read_exact_at(&mut hash.0, 0).during("read", &base)?;
        if params.pinned_utxo_set(&hash).is_none() {
            return Ok(Some(Self { dir, blocks: Err(Obstacle::NoSnapshot(hash)) }));
        }
        let best = match ChainstateReader::open(disk, &dir) {
            // bitcoind completes it when it starts.
            Err(DiskError::InterruptedFlush { .. }) => read_best_block(disk, &dir),
            opened => opened.map(|reader| Some(reader.best_block())),
        };
        let blocks = match best.map_err(Error::from) {
            Ok(Some(best)) => Ok(Blocks { base: hash, best }),
            Ok(None) => Err(Obstacle::NotOpen("it has no best block".to_owned())),
            Err(error) if error.kind == ErrorKind::Damaged => Err(Obstacle::NotOpen(error.detail.clone())),
            Err(error) => return Err(error),
        };
        Ok(Some(Self { dir, blocks }))
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
        let Blocks { base: base_hash, best } = match &self.blocks {
            Ok(blocks) => *blocks,
            Err(obstacle) => return Ok(Some(obstacle.clone())),
        };
        let locate = |hash| tree.locate(&hash, branch, Height(0)).ok_or(Obstacle::NotInIndex(hash));
        let (base, best) = match (locate(base_hash), locate(best)) {
            (Ok(base), Ok(best)) => (base, best),
            (Err(obstacle), _) | (_, Err(obstacle)) => return Ok(Some(obstacle)),
        };
        if let Some(tip) = branch.len().checked_sub(1).map(|tip| Height(tip as u32))
            && base.fork != tip
        {
            return Ok(Some(match base.fork == base.known.height {
                true => Obstacle::Above { tip, base: base.fork },
                false => Obstacle::OtherBranch { tip, base: base_hash, fork: base.fork },
            }));
        }
        let mut numbers = tree.branch_to(&best.known.hash);
        let heights = (0..numbers.len() as u32).rev().map(Height);
        numbers.reverse();
        let above = || numbers.iter().copied().zip(heights.clone()).filter(|(_, height)| *height > best.fork);
        if let Some((_, height)) = above().find(|&(number, _)| is_lost(number)) {
            return Ok(Some(Obstacle::LostBlock(height)));
        }
        if let Some(height) = first_without_mark(files, tree, above())? {
            return Ok(Some(Obstacle::OlderIndex(height)));
        }
        for (number, height) in above().take(CHECKED_AT_START) {
            // bitcoind ends its check at the first block that is not stored.
            let Some((file, _)) = tree.data_pos(number) else { break };
            if !has_undo(files, file, tree.undo_pos(number).map_or(0, |pos| pos.0))? {
                return Ok(Some(Obstacle::NoUndo(height)));
            }
        }
        Ok(None)
    }

    /// The error for a command whose result bitcoind would not start with.
    pub fn error(&self, obstacle: &Obstacle) -> Error {
        let detail =
            format!("this is the chainstate of a snapshot, and bitcoind could not start with it: {obstacle}");
        let stop = match obstacle {
            Obstacle::Above { base, .. } => Some(Remedy::StopAtHeight(*base)),
            _ => None,
        };
        Error::new(ErrorKind::Usage, detail)
            .in_file(&self.dir, None)
            .about(Subject::SecondChainstate)
            .with_remedies(stop)
    }
}

/// Whether a `rev` file reaches this position, at which a record can be.
fn has_undo(files: &Files<'_>, file: FileNo, pos: u64) -> Result<bool, Error> {
    Ok(pos > 0 && files.len(FileKind::Rev, file)? > pos)
}

/// Returns a block that is not stored, and for which the block index does not have the mark that the loading
/// of the snapshot gave to all at once: the highest or the lowest.
fn first_without_mark(
    files: &Files<'_>,
    tree: &Tree<'_>,
    blocks: impl Iterator<Item = (u32, Height)>,
) -> Result<Option<Height>, Error> {
    let mut assumed = blocks
        .filter(|&(number, height)| tree.data_pos(number).is_none() && height >= files.params.segwit_height);
    let highest = assumed.next();
    let lowest = assumed.last();
    for (number, height) in [highest, lowest].into_iter().flatten() {
        let entry = IndexRows::open(files.disk, &files.datadir.index_dir())?.entry(&tree.hash(number))?;
        if entry.is_some_and(|entry| entry.status.0 & BlockStatus::OPT_WITNESS == 0) {
            return Ok(Some(height));
        }
    }
    Ok(None)
}
