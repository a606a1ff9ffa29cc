//! The databases that a rebuild in place will replace, and the check that none is replaced by a lower state.
//!
//! The new chainstate must not end below the best block of the old one, and a new block index must contain at
//! least the chain that was connected in the old one, unless the caller accepts the loss explicitly. A
//! damaged database is no obstacle: it is a reason for the rebuild. A database that this user may not read is
//! not damaged, and may have more blocks than the new one.

use crate::{
    blocks::files::Files,
    plan::{
        best_block::{BestBlock, KnownBlock, can_replay, lacks_undo},
        planner::{Plan, links_of_index},
        second_chainstate::CHECKED_AT_START,
    },
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink},
    lower_tip::{Gap, LowerPart, LowerTip},
    note::Warning,
    remedy::Remedy,
    subject::Subject,
};
use disk::{
    DiskError,
    chainstate::{read_best_block, read_heads},
    datadir::FileKind,
};
use std::{collections::BTreeMap, error::Error as _, io};
use vfs::{Disk, FileError};
use wire::{BlockHash, Height};

/// Maximum number of blocks that a node downloads ahead of its best block (Core `BLOCK_DOWNLOAD_WINDOW`). If
/// more than that have no undo data, it was lost.
pub const DOWNLOAD_WINDOW: u32 = 1024;

/// Which lower state a caller accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// One that lacks at most this many last blocks, which bitcoind connects again.
    WithoutLast(u32),
    /// One that is lower only because blocks or undo data are damaged or missing.
    LossByDamage,
    AnyLoss,
}

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
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if a file of them cannot be read for another reason than a bad sector, or
    /// if a newer bitcoind wrote them: what only that can read is not to be replaced.
    pub fn read(files: &Files<'_>, scan: bool) -> Result<Self, Error> {
        let best_block = read_best_block(files.disk, &files.datadir.chainstate_dir());
        let best_block = unless_damaged(files.disk, best_block.map_err(Error::from))?.flatten();
        let mut existing = Self { best_block, ..Self::default() };
        let tree = scan.then(|| links_of_index(files.disk, &files.datadir.index_dir(), files.params));
        let tree = tree.map(|tree| unless_damaged(files.disk, tree)).transpose()?.flatten();
        if let Some((mut tree, ..)) = tree {
            existing.index = tree.connected();
            let best = best_block.and_then(|best| tree.locate(&best, &[], Height(0)));
            existing.best_in_index = best.map(|best| best.known);
            existing.failed = tree.failed();
        }
        Ok(existing)
    }

    /// Returns an error if the plan would leave a lower state than the existing one, unless that is
    /// `accepted`. Returns the number of lost blocks. Sends warnings for the operator to `sink`.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if blocks would be lost, or if bitcoind would overwrite blocks or could not
    /// write their undo data.
    pub fn check(
        &self,
        plan: &Plan,
        files: &Files<'_>,
        accepted: Accepted,
        sink: &dyn EventSink,
    ) -> Result<u32, Error> {
        let mut loss = self.check_loss(plan, files)?;
        if let Some(loss) = &mut loss {
            // A pruned node that has lost its index has nothing else: the genesis block and the last ones.
            let may_be_pruned = plan.chain.tip_height() == Height(0)
                && plan.choice.orphans.is_some_and(|orphans| orphans.were_connected);
            let is_missing = match loss.gap {
                Some(Gap::MissingBlock(_) | Gap::MissingUndo(_)) => true,
                Some(Gap::Lost) => !may_be_pruned,
                _ => false,
            };
            let for_damage = accepted == Accepted::LossByDamage;
            loss.is_by_damage = is_missing && !plan.stops_as_asked && for_damage;
            let is_left = matches!(accepted, Accepted::WithoutLast(blocks) if loss.blocks <= blocks);
            if !loss.is_by_damage && !is_left && accepted != Accepted::AnyLoss {
                let mut error = loss.error(files.datadir.net_dir());
                // That has just been tried.
                error.remedies.retain(|it| !for_damage || *it != Remedy::EndBelowDamage);
                return Err(error);
            }
            // bitcoind connects the lost blocks when it starts, and writes their undo data.
            if let Some(path) = files.datadir.directory_as_block_file(files.disk)? {
                let detail = "a directory is in the place of a file into which bitcoind would write when it \
                              connects the blocks above the new chainstate; it would not start";
                return Err(Error::damaged(detail).in_file(path, None).with_remedies([Remedy::MoveAway]));
            }
            if !is_left {
                sink.event(Event::Warning(Warning::LowerTip(*loss)));
            }
        }
        self.warn(plan, files, loss.is_some(), sink)?;
        Ok(loss.map_or(0, |loss| loss.blocks))
    }

    /// Checks the index, and returns what the plan would lose, which [`ExistingState::check`] does not accept
    /// without being told to.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if bitcoind would overwrite blocks.
    pub fn check_loss(&self, plan: &Plan, files: &Files<'_>) -> Result<Option<LowerTip>, Error> {
        let is_scan = plan.new_index.is_some();
        if !is_scan {
            self.check_index(plan, files)?;
        }
        Ok(self.loss(plan, is_scan))
    }

    /// Checks that the index contains the chainstate's best block and covers the blocks in the files:
    /// otherwise bitcoind would overwrite blocks.
    fn check_index(&self, plan: &Plan, files: &Files<'_>) -> Result<(), Error> {
        if let Some(best) = self.best_block.filter(|_| plan.best_block.is_none()) {
            let detail = format!(
                "the block index does not contain the chainstate's best block {best}: the index is older \
                 than the chainstate, or belongs to another chain, and bitcoind would overwrite the blocks \
                 that it does not contain"
            );
            return Err(Error::damaged(detail)
                .in_file(files.datadir.index_dir(), None)
                .about(Subject::BlockIndex));
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
                         beyond them; bitcoind would overwrite it"
                    );
                    return Err(Error::damaged(detail)
                        .at_block(height, block.hash)
                        .in_file(files.path(kind, file), Some(pos.0))
                        .about(Subject::BlockIndex));
                }
            }
        }
        Ok(())
    }

    fn loss(&self, plan: &Plan, is_scan: bool) -> Option<LowerTip> {
        let (tip, choice) = (plan.chain.tip_height(), &plan.choice);
        let chainstate = match (self.best_block, plan.best_block) {
            (Some(_), Some(BestBlock { known, fork, gap, .. })) if known.work > choice.work => {
                let blocks = known.height.0.saturating_sub(fork.0);
                Some(lower_tip(plan, LowerPart::Chainstate, Some(known), blocks, gap))
            }
            (Some(best), None) => {
                let known = self.best_in_index;
                let blocks = known.map_or(1, |known| known.height.0.saturating_sub(tip.0).max(1));
                let lower = lower_tip(plan, LowerPart::Chainstate, known, blocks, Some(Gap::Lost));
                Some(LowerTip { hash: Some(best), ..lower })
            }
            _ => None,
        };
        let index = if is_scan { self.index_loss(plan) } else { None };
        let unknown = self.best_block.is_none() && self.index.is_none() && is_scan;
        let undo = (unknown && choice.unconnected > DOWNLOAD_WINDOW)
            .then(|| lower_tip(plan, LowerPart::Blocks, None, choice.unconnected, choice.gap));
        let orphans = choice.orphans.filter(|orphans| orphans.were_connected && !plan.stops_as_asked);
        let orphans =
            orphans.map(|orphans| lower_tip(plan, LowerPart::Blocks, None, orphans.blocks, Some(Gap::Lost)));
        chainstate.or(index).or(undo).or(orphans)
    }

    /// What a plan by a scan would lose of the blocks that the old index had connected.
    pub fn index_loss(&self, plan: &Plan) -> Option<LowerTip> {
        let known = self.index.filter(|known| known.work > plan.choice.work)?;
        let blocks = known.height.0.saturating_sub(plan.chain.tip_height().0).max(1);
        let gap = if plan.stops_as_asked { None } else { plan.choice.gap.or(Some(Gap::Lost)) };
        Some(lower_tip(plan, LowerPart::BlockIndex, Some(known), blocks, gap))
    }

    fn warn(&self, plan: &Plan, files: &Files<'_>, lost: bool, sink: &dyn EventSink) -> Result<(), Error> {
        let tip = plan.chain.tip_height();
        if plan.choice.unconnected > 0 && !lost {
            let may_be_lost = self.index.or(self.best_in_index).is_none() && plan.new_index.is_some();
            let blocks = plan.choice.unconnected;
            sink.event(Event::Warning(Warning::Unconnected { blocks, tip, may_be_lost }));
        }
        let is_failed = |height: &Height| self.failed.binary_search(&plan.chain.block(*height).hash).is_ok();
        if let Some(height) = (0..=tip.0).map(Height).find(is_failed).filter(|_| !self.failed.is_empty()) {
            let hash = plan.chain.block(height).hash;
            sink.event(Event::Warning(Warning::MarkDropped { height, hash }));
        }
        if plan.new_index.is_none() {
            warn_of_records_beyond_index(files, plan, sink)?;
        }
        Ok(())
    }
}

/// The error for a chainstate that bitcoind was writing when it was stopped, if it can complete that: it does
/// not lack blocks for that, or undo data to start then.
///
/// # Errors
/// A damaged database; any I/O error.
pub fn unfinished_flush(files: &Files<'_>) -> Result<Option<Error>, Error> {
    let dir = files.datadir.chainstate_dir();
    let [new, old] = read_heads(files.disk, &dir)?[..] else { return Ok(None) };
    if !can_replay(files, new, old)? || lacks_undo(files, new, CHECKED_AT_START)? {
        return Ok(None);
    }
    let detail = "bitcoind was stopped while it wrote the chainstate, and completes it from its blocks";
    let error = Error::damaged(detail).in_file(&dir, None).with_remedies([Remedy::LetBitcoindFinish]);
    Ok(Some(error.caused_by(DiskError::InterruptedFlush { dir })))
}

/// A plan that is lower than `what`, whose last block is `known`.
fn lower_tip(
    plan: &Plan,
    what: LowerPart,
    known: Option<KnownBlock>,
    blocks: u32,
    gap: Option<Gap>,
) -> LowerTip {
    let (height, hash) = known.map(|known| (known.height, known.hash)).unzip();
    LowerTip { tip: plan.chain.tip_height(), what, height, hash, blocks, gap, is_by_damage: false }
}

/// Returns what was read from a database; `None` if that failed because of damage.
fn unless_damaged<T>(disk: &dyn Disk, read: Result<T, Error>) -> Result<Option<T>, Error> {
    let error = match read {
        Ok(found) => return Ok(Some(found)),
        Err(error) => error,
    };
    if !error.needs_bitcoind() && (error.kind == ErrorKind::Damaged || error.is_of_medium()) {
        return Ok(None);
    }
    let cause = error.source().and_then(|cause| cause.downcast_ref::<FileError>());
    let denied = cause.filter(|cause| cause.source.kind() == io::ErrorKind::PermissionDenied);
    let run_as = denied.and_then(|denied| Remedy::run_as_owner(disk, &denied.path));
    Err(error.with_remedies(run_as))
}

/// Warns of blocks beyond the sizes in the index, which a bitcoind that crashed leaves and later overwrites.
/// Nobody needs copies of the chain's blocks.
fn warn_of_records_beyond_index(files: &Files<'_>, plan: &Plan, sink: &dyn EventSink) -> Result<(), Error> {
    let mut beyond = BTreeMap::new();
    for (file, used) in files.beyond_use(&plan.index_files)? {
        files.each_block(file, used, |record| {
            beyond.entry(record.hash).or_insert((file, used));
        })?;
    }
    if !beyond.is_empty() {
        for height in (0..=plan.chain.tip_height().0).map(Height) {
            beyond.remove(&plan.chain.block(height).hash);
        }
    }
    if let Some(&(file, used)) = beyond.values().min() {
        let (blocks, file) = (beyond.len() as u32, files.path(FileKind::Blk, file));
        sink.event(Event::Warning(Warning::BlocksBeyondIndex { blocks, file, used }));
    }
    Ok(())
}
