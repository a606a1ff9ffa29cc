//! The databases that a rebuild in place will replace, and the check that none is replaced by a lower state.
//!
//! The new chainstate must not end below the best block of the old one, and a new block index must contain at
//! least the chain that was connected in the old one, unless the caller accepts the loss explicitly. A
//! database that cannot be read is no obstacle: it is a reason for the rebuild.

use crate::{
    chain::{FileKind, Files},
    error::Error,
    event::{Event, EventSink},
    stages::plan::{Plan, tree_of_index},
    tree::Tree,
};
use disk::{chainstate::read_best_block, index::FileInfo, scan::count_blocks};
use rules::{ChainParams, U256};
use wire::{BlockHash, ByteOffset, FileNo, Height};

/// Maximum number of blocks that a node downloads ahead of its best block (Core `BLOCK_DOWNLOAD_WINDOW`). If
/// more than that have no undo data, it was lost.
const DOWNLOAD_WINDOW: u32 = 1024;

/// The last block of the chain in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownBlock {
    /// Its hash.
    pub hash: BlockHash,
    /// Its height.
    pub height: Height,
    /// Sum of work up to it.
    pub work: U256,
}

/// The best block of the old chainstate, in the tree from which a plan was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestBlock {
    /// The block.
    pub known: KnownBlock,
    /// Height of its highest ancestor, itself included, that is in the chosen chain.
    pub fork: Height,
    /// Why the chosen chain does not contain the blocks above the fork; `None` if it ends there as requested.
    pub gap: Option<Gap>,
}

/// Why a chain ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// The block at this height is not on disk.
    Block(Height),
    /// The undo data of the block at this height is not on disk.
    Undo(Height),
    /// The block at this height is marked invalid, or its header breaks a rule.
    Invalid(Height),
    /// The last block is not in any block file.
    Lost,
}

/// What is in the datadir before a rebuild.
#[derive(Debug, Default)]
pub struct ExistingState {
    /// The chainstate's best block, if it can be read.
    pub best_block: Option<BlockHash>,
    /// With a scan: the last block that was connected in the old index, if it can be read.
    index: Option<KnownBlock>,
    /// With a scan: the best block as found in the old index.
    best_in_index: Option<KnownBlock>,
    /// With a scan: the blocks that the old index marks invalid, sorted.
    failed: Vec<BlockHash>,
}

impl ExistingState {
    /// Reads the existing databases, as far as possible; with `scan` the block index too.
    #[must_use]
    pub fn read(files: &Files<'_>, scan: bool) -> Self {
        let best_block = read_best_block(files.disk, &files.datadir.chainstate_dir()).ok().flatten();
        let mut existing = Self { best_block, ..Self::default() };
        let tree = scan.then(|| tree_of_index(files, ChainParams::of(files.network)).ok()).flatten();
        if let Some((mut tree, _)) = tree {
            existing.index = tree.connected();
            existing.best_in_index = best_block.and_then(|best| tree.find(&best));
            existing.failed = tree.failed();
        }
        existing
    }

    /// Returns an error if the plan would leave a lower state than the existing one, unless `accepted`.
    /// Returns the number of lost blocks. Sends warnings for the operator to `sink`.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if blocks would be lost, or if bitcoind would
    /// overwrite blocks.
    pub fn check(
        &self,
        plan: &Plan,
        files: &Files<'_>,
        accepted: bool,
        sink: &dyn EventSink,
    ) -> Result<u32, Error> {
        let is_scan = plan.new_index.is_some();
        if !is_scan {
            self.check_index(plan, files)?;
        }
        let loss = self.loss(plan, is_scan);
        if let Some(loss) = &loss {
            let text = loss.text(plan);
            if !accepted {
                return Err(loss.error(&text, files));
            }
            sink.event(Event::Warning(format!("{text}; accepted by --accept-lower-tip")));
        }
        self.warn(plan, files, loss.is_some(), sink)?;
        Ok(loss.map_or(0, |loss| loss.blocks))
    }

    /// Checks that the index contains the chainstate's best block and covers the blocks in the files:
    /// otherwise bitcoind would overwrite blocks.
    fn check_index(&self, plan: &Plan, files: &Files<'_>) -> Result<(), Error> {
        if let Some(best) = self.best_block.filter(|_| plan.best_block.is_none()) {
            let detail = format!(
                "the block index does not contain the chainstate's best block {best}: the index is older \
                 than the chainstate, or belongs to another chain, and bitcoind would overwrite the blocks \
                 that it does not contain; run again with --scan, which finds them in the block files"
            );
            return Err(Error::damaged(detail).in_file(files.datadir.index_dir(), None));
        }
        for (file, heights) in plan.chain.by_file() {
            let info = plan.index_files.get(file.0 as usize).copied().unwrap_or_default();
            for &height in heights {
                let block = plan.chain.block(height);
                let undo = block.undo_pos.map(|pos| (FileKind::Rev, "undo data", pos, info.undo_size));
                let all = [Some((FileKind::Blk, "block", block.data_pos, info.size)), undo];
                let beyond = all.into_iter().flatten().find(|(_, _, pos, used)| pos.0 >= u64::from(*used));
                if let Some((kind, what, pos, used)) = beyond {
                    let detail = format!(
                        "the block index records {used} bytes of the file as used, but places this {what} \
                         beyond them; bitcoind would overwrite it; run again with --scan, which makes a new \
                         index"
                    );
                    return Err(Error::damaged(detail)
                        .at_block(height, block.hash)
                        .in_file(files.path(kind, file), Some(pos.0)));
                }
            }
        }
        Ok(())
    }

    fn loss(&self, plan: &Plan, is_scan: bool) -> Option<Loss> {
        let tip = plan.chain.tip_height();
        let chainstate = match (self.best_block, plan.best_block) {
            (Some(_), Some(best)) if best.known.work > plan.work => Some(Loss {
                what: "chainstate",
                height: Some(best.known.height),
                hash: Some(best.known.hash),
                blocks: best.known.height.0.saturating_sub(best.fork.0),
                gap: best.gap,
            }),
            (Some(best), None) => Some(Loss {
                what: "chainstate",
                height: self.best_in_index.map(|known| known.height),
                hash: Some(best),
                blocks: self.best_in_index.map_or(1, |known| known.height.0.saturating_sub(tip.0).max(1)),
                gap: Some(Gap::Lost),
            }),
            _ => None,
        };
        let index = self.index.filter(|known| is_scan && known.work > plan.work).map(|known| Loss {
            what: "block index",
            height: Some(known.height),
            hash: Some(known.hash),
            blocks: known.height.0.saturating_sub(tip.0).max(1),
            gap: if plan.stops_as_asked { None } else { plan.gap.or(Some(Gap::Lost)) },
        });
        let unknown = self.best_block.is_none() && self.index.is_none() && is_scan;
        let undo = (unknown && plan.unconnected > DOWNLOAD_WINDOW).then_some(Loss {
            what: "node",
            height: None,
            hash: None,
            blocks: plan.unconnected,
            gap: plan.gap,
        });
        chainstate.or(index).or(undo)
    }

    fn warn(&self, plan: &Plan, files: &Files<'_>, lost: bool, sink: &dyn EventSink) -> Result<(), Error> {
        let tip = plan.chain.tip_height();
        if plan.unconnected > 0 && !lost {
            let why = match self.index.or(self.best_in_index).is_some() || plan.new_index.is_none() {
                true => "were never connected",
                false => "have no undo data: they were never connected, or their undo data is lost",
            };
            let (count, next) = (plan.unconnected, "bitcoind connects them when it starts");
            sink.event(Event::Warning(format!("{count} stored blocks above height {tip} {why}; {next}")));
        }
        let is_failed = |height: &Height| self.failed.binary_search(&plan.chain.block(*height).hash).is_ok();
        if let Some(height) = (0..=tip.0).map(Height).find(is_failed).filter(|_| !self.failed.is_empty()) {
            sink.event(Event::Warning(format!(
                "the old block index marks block {} (height {height}) as invalid, because of \
                 invalidateblock or an earlier failure; this rebuild has found it valid and, like \
                 bitcoind -reindex, drops the mark; repeat invalidateblock if it was intended",
                plan.chain.block(height).hash
            )));
        }
        if plan.new_index.is_none() {
            warn_of_records_beyond_index(files, &plan.index_files, sink)?;
        }
        Ok(())
    }
}

/// A state that would be lower than it was.
struct Loss {
    what: &'static str,
    height: Option<Height>,
    hash: Option<BlockHash>,
    blocks: u32,
    gap: Option<Gap>,
}

impl Loss {
    fn text(&self, plan: &Plan) -> String {
        let tip = plan.chain.tip_height();
        let was = match (self.height, self.hash) {
            (Some(height), Some(hash)) => format!("the {} reaches height {height} (block {hash})", self.what),
            (None, Some(hash)) => format!("the {}'s best block is {hash}", self.what),
            _ => format!("{} blocks above height {tip} are stored without undo data", self.blocks),
        };
        let why = match self.gap {
            Some(Gap::Block(height)) => format!("the block at height {height} is not in the block files"),
            Some(Gap::Undo(height)) => {
                format!("the undo data of the block at height {height} is not in the undo files")
            }
            Some(Gap::Invalid(height)) => format!("the block at height {height} is marked invalid"),
            Some(Gap::Lost) => "that block is not in any block file".to_owned(),
            None => format!("--stop-at-height {tip} ends below it"),
        };
        format!("{was}, but the new one would end at height {tip}, because {why}")
    }

    fn error(&self, text: &str, files: &Files<'_>) -> Error {
        let detail = format!(
            "{text}; nothing was changed; restore the missing files, let bitcoind -reindex make them \
             again, write elsewhere with --output, or pass --accept-lower-tip if the lower state is wanted"
        );
        Error::damaged(detail).in_file(files.datadir.net_dir(), None)
    }
}

/// Warns of blocks beyond the sizes in the index, which a bitcoind that crashed leaves and later overwrites.
fn warn_of_records_beyond_index(
    files: &Files<'_>,
    infos: &[FileInfo],
    sink: &dyn EventSink,
) -> Result<(), Error> {
    let (mut count, mut first) = (0, None);
    for file in files.datadir.blk_files(files.disk)? {
        let size = infos.get(file.0 as usize).map_or(0, |info| u64::from(info.size));
        let beyond_size = count_blocks(files.disk, files.datadir, files.obfuscation, file, ByteOffset(size))?;
        count += beyond_size;
        first = first.or((beyond_size > 0).then_some((file, size)));
    }
    if let Some((FileNo(_), size)) = first {
        let path = first.map(|(file, _)| files.path(FileKind::Blk, file)).unwrap_or_default();
        sink.event(Event::Warning(format!(
            "{count} blocks lie beyond the bytes that the block index records as used, from byte {size} of \
             {} on, as a crashed bitcoind leaves them; bitcoind downloads them again and overwrites them \
             (--scan includes them)",
            path.display()
        )));
    }
    Ok(())
}

impl Tree<'_> {
    /// Finds a block that descends from genesis.
    fn find(&self, hash: &BlockHash) -> Option<KnownBlock> {
        self.locate(hash, &[], Height(0)).map(|best| best.known)
    }
}
