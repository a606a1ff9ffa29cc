//! Errors about blocks that no chain can be rebuilt from.

use super::{BREAKS_RULE, Node, Tree};
use crate::api::{
    error::{Error, ErrorKind},
    remedy::Remedy,
};
use disk::datadir::FileKind;
use rules::Violation;
use wire::Height;

impl Tree<'_> {
    /// Returns the error for a block that has its own data but is not connected, because of a block below it.
    pub(super) fn gap_error(&self, block: u32, undo_from: Height) -> Error {
        let heights = (0..self.branch(block).count() as u32).rev().map(Height);
        let gap = self.branch(block).zip(heights).filter(|&(number, height)| {
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
                const FOR_MISSING_UNDO: [Remedy; 2] =
                    [Remedy::RestoreFiles, Remedy::BitcoindReindex(Some(FileKind::Rev))];
                let (what, remedies) = match self.nodes[number as usize].data_pos {
                    None => ("the block", &Remedy::FOR_MISSING_FILES[..]),
                    Some(_) => ("the undo data of the block", &FOR_MISSING_UNDO[..]),
                };
                Error::damaged(format!(
                    "{what} is not on disk, but blocks above it are: the node was pruned, or files are \
                     missing; a chainstate can only be rebuilt from all blocks and undo data"
                ))
                .with_remedies(remedies.iter().copied())
            }
        };
        error.at_block(height, *self.hashes.get(number))
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
        error.with_remedies(Remedy::of_file(FileKind::Blk).iter().copied())
    }
}
