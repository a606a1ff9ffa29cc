//! Errors about blocks that no chain can be rebuilt from.

use super::{BREAKS_RULE, BestTip, CONNECTED, FAILED, Node, Orphan, Orphans, Tree};
use api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
    subject::Subject,
};
use disk::datadir::FileKind;
use rules::Violation;
use wire::{BlockHash, Height};

pub(super) fn no_genesis() -> Error {
    let detail = "the genesis block was not found: the blocks directory is empty, the block index is \
                  damaged, or the node was pruned, so that a rebuild is not possible";
    // A scan needs that block too.
    Error::damaged(detail).with_remedies([Remedy::Repair]).about(Subject::BlockIndex)
}

/// The error for a height to stop at that is above the last connected block.
pub(super) fn above_last(stop: Height, last: Height) -> Error {
    let detail = format!("height {stop} is above the last connected block on disk");
    Error::usage(detail).with_remedies([Remedy::StopAtHeight(last)])
}

impl Tree<'_> {
    /// Returns the error for a block that has its own data but is not connected, because of a block below it.
    pub(super) fn gap_error(&self, block: u32, undo_from: Height) -> Error {
        let gap = self.branch_with_heights(block).filter(|&(number, height)| {
            let node = &self.nodes[number as usize];
            let has_all = self.has_undo(number) || height < undo_from && node.data_pos.is_some();
            node.has(BREAKS_RULE) || !has_all
        });
        let Some((number, height)) = gap.last() else {
            return Error::new(ErrorKind::Internal, "no gap below an unconnected block");
        };
        let error = match self.check_header(number, height) {
            Err(violation) if self.nodes[number as usize].has(BREAKS_RULE) => {
                self.bad_header(number, &violation)
            }
            _ => {
                let (what, subject) = match self.nodes[number as usize].data_pos {
                    None => ("the block", Subject::MissingBlocks),
                    Some(_) => ("the undo data of the block", Subject::UndoData),
                };
                // If the chain is to end at this block, it can be missing too.
                let has_above = self.nodes[block as usize].data_pos.is_some();
                let above = if has_above { ", but blocks above it are" } else { "" };
                Error::damaged(format!(
                    "{what} is not on disk{above}: the node was pruned, or files are missing; a chainstate \
                     can only be rebuilt from all blocks and undo data"
                ))
                .about(subject)
                .with_remedies([Remedy::RestoreFiles])
            }
        };
        error.at_block(height, *self.hashes.get(number))
    }

    /// Returns the error for blocks that were connected to a block that is in no file, above a height.
    pub(super) fn orphans_error(&self, tip: Height, orphans: &Orphans) -> Error {
        let Orphans { blocks, lowest, .. } = *orphans;
        let mut detail = format!(
            "the chain on disk ends at height {tip}, but {blocks} blocks above it are on disk, and were once \
             connected"
        );
        if let Some((Orphan { node, prev }, (file, pos))) =
            lowest.zip(lowest.and_then(|it| self.data_pos(it.node)))
        {
            detail += &format!(
                ": the lowest of them is {} in {} at byte {pos}, and the block before it, {prev}, is not on \
                 disk",
                self.hashes.get(node),
                FileKind::Blk.file_name(file)
            );
        }
        Error::damaged(detail + "; files are missing or damaged").about(Subject::MissingBlocks)
    }

    /// Returns the block at which a caller wants the chain to end.
    pub(super) fn end_of_branch(&self, end: &BlockHash, undo_from: Height) -> Result<BestTip, Error> {
        let branch = self.branch_to(end);
        let (Some(&node), Some(height)) = (branch.last(), branch.len().checked_sub(1)) else {
            let detail = format!(
                "the chainstate's best block {end} was not found: the block index is older, or files are \
                 missing"
            );
            return Err(Error::damaged(detail).about(Subject::BlockIndex));
        };
        let has = |number: &&u32, state: u16| self.nodes[**number as usize].has(state);
        if let Some(failed) = branch.iter().position(|number| has(&number, FAILED)) {
            let detail = "the chainstate contains this block, which the block index marks as invalid";
            return Err(Error::damaged(detail)
                .at_block(Height(failed as u32), self.hash(branch[failed]))
                .with_remedies([Remedy::Reconsider, Remedy::AcceptLowerTip]));
        }
        if !has(&&node, CONNECTED) {
            return Err(self.gap_error(node, undo_from));
        }
        let work = self.work_of(branch.iter().copied());
        Ok(BestTip { node, height: Height(height as u32), work })
    }

    /// Returns the error for a header that breaks a rule. A header without proof of work was altered on disk,
    /// since no node stores such a block.
    fn bad_header(&self, number: u32, violation: &Violation) -> Error {
        let mut error = Error::violation(violation);
        let Some(Node { file, data_pos: Some(pos), .. }) = self.nodes.get(number as usize) else {
            return error;
        };
        if violation.core == "time-too-new" {
            return error.with_remedies([Remedy::CorrectClock]);
        }
        if violation.rule.id != rules::PROOF_OF_WORK {
            return error;
        }
        error.kind = ErrorKind::Damaged;
        error.detail = format!(
            "{}; no node stores a block without proof of work, so the header at byte {pos} of blk{:05}.dat \
             was altered",
            error.detail, file.0
        );
        error.about_file(FileKind::Blk)
    }
}
