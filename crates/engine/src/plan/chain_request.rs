//! What the choice of the chain depends on.

use crate::blocks::damage::KnownDamage;
use wire::{BlockHash, Height};

/// The last block that hints cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HintsEnd {
    /// Its height.
    pub height: Height,
    /// Its hash, if the hint file contains it.
    pub hash: Option<BlockHash>,
}

/// What a job requires of the chain that it rebuilds.
#[derive(Clone, Copy, Default, Debug)]
pub struct ChainRequest<'a> {
    /// Height of the last block; `None` for the last block on disk.
    pub stop_at: Option<Height>,
    /// The block up to which scripts are assumed to be valid, under Core's conditions.
    pub assume_valid: Option<BlockHash>,
    /// The block that decides between branches of equal work.
    pub preferred: Option<BlockHash>,
    /// Blocks up to this one need no undo data.
    pub without_undo: Option<HintsEnd>,
    /// No block needs undo data: it is made.
    pub makes_undo: bool,
    /// Blocks that are not stored come while the job runs.
    pub awaits_blocks: bool,
    /// A block that was connected, with its ancestors, so that none of them is needed: they may have been
    /// deleted.
    pub connected: Option<BlockHash>,
    /// Blocks that were found invalid.
    pub invalid: &'a [BlockHash],
    /// What is damaged, if the chain is to end below that, and below whatever else is missing.
    pub damage: Option<&'a KnownDamage>,
}
