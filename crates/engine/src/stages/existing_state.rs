//! What a run in place is about to replace, and the rule that nothing lower takes its place.
//!
//! The chainstate must not go back behind the best block of the one before, and a new block index must know
//! at least the chain that the old one knew to be connected, unless the caller accepts that by name. What
//! cannot be read is no obstacle: it is why the run is made.

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

/// A node downloads at most so many blocks ahead of its best block (Core `BLOCK_DOWNLOAD_WINDOW`). If more
/// than that have no undo data, it was lost.
const DOWNLOAD_WINDOW: u32 = 1024;

/// How far a database knew the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownBlock {
    /// The last block.
    pub hash: BlockHash,
    /// Its height.
    pub height: Height,
    /// The sum of work up to it.
    pub work: U256,
}

/// Where the best block of the old chainstate is in the tree that a plan was made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestBlock {
    /// The block.
    pub known: KnownBlock,
    /// The highest of its ancestors, itself included, that is in the chosen chain.
    pub fork: Height,
    /// Why the chosen chain does not follow it above the fork; `None` if it ends there as was asked for.
    pub gap: Option<Gap>,
}

/// Why a chain is not followed any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// The block at this height is not on disk.
    Block(Height),
    /// The undo data of the block at this height is not on disk.
    Undo(Height),
    /// The block at this height is marked invalid, or its header breaks a rule.
    Invalid(Height),
    /// The last block is on disk nowhere.
    Lost,
}

/// What is in the datadir before a run.
#[derive(Debug, Default)]
pub struct ExistingState {
    /// The chainstate's best block, if it can be read.
    pub best_block: Option<BlockHash>,
    /// With a scan: the last block that the old index knew to be connected, if it can be read.
    index: Option<KnownBlock>,
    /// With a scan: where the best block is in the old index.
    best_in_index: Option<KnownBlock>,
    /// With a scan: the blocks that the old index marks invalid, sorted.
    failed: Vec<BlockHash>,
}

impl ExistingState {
    /// Reads the databases that are there, as far as they can be read; with `scan` the block index too.
    #[must_use]
    pub fn read(files: &Files<'_>, scan: bool) -> Self {
        let best_block = read_best_block(files.disk, &files.datadir.chainstate_dir()).ok().flatten();
        let mut predecessor = Self { best_block, ..Self::default() };
        let tree = scan.then(|| tree_of_index(files, ChainParams::of(files.network)).ok()).flatten();
        if let Some((mut tree, _)) = tree {
            predecessor.index = tree.connected();
            predecessor.best_in_index = best_block.and_then(|best| tree.find(&best));
            predecessor.failed = tree.failed();
        }
        predecessor
    }

    /// Refuses a plan that would leave a lower state than there is, unless `accepted`. Returns how many
    /// blocks are lost. What the operator must know besides goes to `sink`.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged).
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
                return Err(loss.refuse(&text, files));
            }
            sink.event(Event::Warning(format!("{text}; accepted by --accept-lower-tip")));
        }
        self.warn(plan, files, loss.is_some(), sink)?;
        Ok(loss.map_or(0, |loss| loss.blocks))
    }

    /// An index that lacks what the chainstate knows, or what lies in the files, would let bitcoind write
    /// over blocks.
    fn check_index(&self, plan: &Plan, files: &Files<'_>) -> Result<(), Error> {
        if let Some(best) = self.best_block.filter(|_| plan.best_block.is_none()) {
            let detail = format!(
                "the chainstate is of block {best}, which the block index does not know: the index is older \
                 than the chainstate, or of another chain, and bitcoind would write over the blocks that it \
                 does not know; rerun with --scan, which finds them in their files"
            );
            return Err(Error::damaged(detail).in_file(files.datadir.index_dir(), None));
        }
        for (file, heights) in plan.chain.by_file() {
            let size = plan.index_files.get(file.0 as usize).map_or(0, |info| u64::from(info.size));
            let beyond = |height: &&Height| plan.chain.block(**height).data_pos.0 >= size;
            if let Some(&height) = heights.iter().find(beyond) {
                let block = plan.chain.block(height);
                let detail = format!(
                    "the block index says that {size} bytes of the file are in use, but places this block \
                     behind them; bitcoind would write over it; rerun with --scan, which makes a new index"
                );
                return Err(Error::damaged(detail)
                    .at_block(height, block.hash)
                    .in_file(files.path(FileKind::Blk, file), Some(block.data_pos.0)));
            }
        }
        Ok(())
    }

    fn loss(&self, plan: &Plan, is_scan: bool) -> Option<Loss> {
        let tip = plan.chain.tip_height();
        let chainstate = match (self.best_block, plan.best_block) {
            (Some(_), Some(standing)) if standing.known.work > plan.work => Some(Loss {
                what: "chainstate",
                height: Some(standing.known.height),
                hash: Some(standing.known.hash),
                blocks: standing.known.height.0.saturating_sub(standing.fork.0),
                gap: standing.gap,
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
            gap: plan.gap.or(Some(Gap::Lost)),
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
                false => "have no undo data: they were never connected, or it is lost",
            };
            let (count, next) = (plan.unconnected, "bitcoind connects them when it starts");
            sink.event(Event::Warning(format!("{count} stored blocks above height {tip} {why}; {next}")));
        }
        let is_failed = |height: &Height| self.failed.binary_search(&plan.chain.block(*height).hash).is_ok();
        if let Some(height) = (0..=tip.0).map(Height).find(is_failed).filter(|_| !self.failed.is_empty()) {
            sink.event(Event::Warning(format!(
                "the old block index marks block {} (height {height}) as invalid, by invalidateblock or \
                 since it once failed; this run has found it valid, and like bitcoind -reindex does not \
                 carry the mark over: repeat invalidateblock if it was meant",
                plan.chain.block(height).hash
            )));
        }
        if plan.new_index.is_none() {
            warn_of_records_behind(files, &plan.index_files, sink)?;
        }
        Ok(())
    }
}

/// What would be lower than it was.
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
            (None, Some(hash)) => format!("the {} is of block {hash}", self.what),
            _ => format!("{} blocks above height {tip} are stored without undo data", self.blocks),
        };
        let why = match self.gap {
            Some(Gap::Block(height)) => format!("the block at height {height} is not in the block files"),
            Some(Gap::Undo(height)) => {
                format!("no undo data for the block at height {height} is in the undo files")
            }
            Some(Gap::Invalid(height)) => format!("the block at height {height} is marked invalid"),
            Some(Gap::Lost) => "that block is in none of the block files".to_owned(),
            None => format!("--stop-at-height {tip} ends below it"),
        };
        format!("{was}, but the new one would end at height {tip}, since {why}")
    }

    fn refuse(&self, text: &str, files: &Files<'_>) -> Error {
        let detail = format!(
            "{text}; nothing was changed: restore the missing files, let bitcoind -reindex make them anew, \
             write elsewhere with --output, or give --accept-lower-tip if the lower state is wanted"
        );
        Error::damaged(detail).in_file(files.datadir.net_dir(), None)
    }
}

/// A bitcoind that crashed leaves blocks behind the sizes in its index, and writes over them later.
fn warn_of_records_behind(files: &Files<'_>, infos: &[FileInfo], sink: &dyn EventSink) -> Result<(), Error> {
    let (mut count, mut first) = (0, None);
    for file in files.datadir.blk_files(files.disk)? {
        let size = infos.get(file.0 as usize).map_or(0, |info| u64::from(info.size));
        let behind = count_blocks(files.disk, files.datadir, files.obfuscation, file, ByteOffset(size))?;
        count += behind;
        first = first.or((behind > 0).then_some((file, size)));
    }
    if let Some((FileNo(_), size)) = first {
        let path = first.map(|(file, _)| files.path(FileKind::Blk, file)).unwrap_or_default();
        sink.event(Event::Warning(format!(
            "{count} blocks lie behind the bytes that the block index says are in use, from byte {size} of \
             {} on, as a bitcoind that crashed leaves them; bitcoind downloads them again and writes over \
             them (--scan takes them in)",
            path.display()
        )));
    }
    Ok(())
}

impl Tree<'_> {
    /// Where a block is, if it descends from genesis.
    fn find(&self, hash: &BlockHash) -> Option<KnownBlock> {
        self.standing(hash, &[], Height(0)).map(|standing| standing.known)
    }
}
