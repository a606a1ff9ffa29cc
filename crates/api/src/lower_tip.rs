//! A result that would be lower than what it replaces.

use crate::{
    error::Error,
    json::{JsonSchema, Serialize},
    remedy::Remedy,
    subject::Subject,
};
use std::{fmt, path::Path};
use wire::{BlockHash, Height};

reported! {
/// Why a chain ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap as GapCode {
    /// The block at this height is not on disk, or damaged.
    MissingBlock(Height),
    /// The undo data of the block at this height is not on disk, or damaged.
    MissingUndo(Height),
    /// The block at this height is marked invalid, or its header breaks a rule.
    Invalid(Height),
    /// The last block is not in any block file.
    Lost,
}
}

reported! {
/// A result that is lower than what it replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LowerTip {
    /// Height of the last block of the result.
    pub tip as "tip_height": Height,
    /// What is higher.
    pub what as "part": LowerPart,
    /// Height that it reaches, if known.
    pub height: Option<Height>,
    /// Hash of its last block, if known.
    pub hash as "block_hash": Option<BlockHash>,
    /// Number of blocks that would be lost.
    pub blocks as "lost_blocks": u32,
    /// Why the result ends below it; `None` if the caller asked for that.
    pub gap with "GapFacts" [flatten]: Option<Gap>,
    /// Whether it ends there only because blocks or undo data are damaged or missing, which the caller has
    /// accepted ([`crate::options::ReindexOptions::until_damage`]).
    pub is_by_damage as "by_damage": bool,
}
}

/// Which part of a datadir would become lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LowerPart {
    /// The chainstate.
    Chainstate,
    /// The block index.
    BlockIndex,
    /// The stored blocks without undo data, if there is neither of these; or those above a block in no file.
    Blocks,
}

impl LowerTip {
    /// The error for a result that would be lower, in the network's directory.
    pub fn error(&self, net_dir: &Path) -> Error {
        let error = Error::damaged(format!("{self}; nothing was changed")).in_file(net_dir, None);
        let error = match self.gap {
            Some(Gap::MissingUndo(_)) => error.about(Subject::UndoData).with_remedies([Remedy::RestoreFiles]),
            Some(Gap::MissingBlock(_) | Gap::Lost) => error.about(Subject::MissingBlocks),
            Some(Gap::Invalid(_)) => error.with_remedies([Remedy::Reconsider]),
            None => error,
        };
        let accept = self.gap.map_or(Remedy::AcceptLowerTipAt(self.tip), |_| Remedy::AcceptLowerTip);
        error.with_remedies([Remedy::OtherOutput, accept])
    }
}

impl fmt::Display for LowerTip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tip, what, .. } = self;
        let are_orphans = *what == LowerPart::Blocks && self.gap == Some(Gap::Lost);
        let what = match what {
            LowerPart::Chainstate => "chainstate",
            LowerPart::BlockIndex => "block index",
            LowerPart::Blocks => "node",
        };
        match (self.height, self.hash) {
            (Some(height), Some(hash)) => write!(f, "the {what} reaches height {height} (block {hash})")?,
            (None, Some(hash)) => write!(f, "the {what}'s best block is {hash}")?,
            _ if are_orphans => {
                write!(f, "{} blocks above height {tip} are in the block files", self.blocks)?
            }
            _ => write!(f, "{} blocks above height {tip} are stored without undo data", self.blocks)?,
        }
        write!(f, ", but the new one would end at height {tip}, because ")?;
        let (block_state, undo_state) = match self.is_by_damage {
            true => ("is damaged or missing", "is damaged or missing"),
            false => ("is not in the block files", "is not in the undo files"),
        };
        match self.gap {
            Some(Gap::MissingBlock(height)) => write!(f, "the block at height {height} {block_state}"),
            Some(Gap::MissingUndo(height)) => {
                write!(f, "the undo data of the block at height {height} {undo_state}")
            }
            Some(Gap::Invalid(height)) => write!(f, "the block at height {height} is marked invalid"),
            Some(Gap::Lost) if are_orphans => f.write_str("a block below them is not in any block file"),
            Some(Gap::Lost) => f.write_str("that block is not in any block file"),
            None => f.write_str("it was asked to stop there"),
        }
    }
}

crate::json::fields! {
    /// Why a chain ends, and at which height.
    GapFacts(gap: Option<Gap>) {
        /// Why the result ends below what it replaces; `null` if that was asked for.
        gap: Option<GapCode> = gap.as_ref().map(Gap::code),
        /// Height of the block that is missing, damaged or invalid.
        gap_height: Option<Height> = match gap {
            None | Some(Gap::Lost) => None,
            Some(Gap::MissingBlock(height) | Gap::MissingUndo(height) | Gap::Invalid(height)) => {
                Some(*height)
            }
        },
    }
}
