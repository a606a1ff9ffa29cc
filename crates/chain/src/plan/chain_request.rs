//! What the choice of the chain depends on.

use crate::blocks::damage::KnownDamage;
use api::options::{ChainOptions, Reconsider};
use wire::{BlockHash, Height};

/// The last block that hints cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HintsEnd {
    pub height: Height,
    /// Its hash, if the hint file contains it.
    pub hash: Option<BlockHash>,
}

/// What a job requires of the chain that it rebuilds.
#[derive(Clone, Copy, Default)]
pub struct ChainRequest<'a> {
    /// Find blocks by scanning the block files.
    pub scan: bool,
    /// Height of the last block; `None` for the last block on disk.
    pub stop_at_height: Option<Height>,
    /// The block up to which scripts are assumed to be valid, under Core's conditions.
    pub assume_valid: Option<BlockHash>,
    /// Whether scripts that the block index marks as checked are believed to be valid.
    pub believes_checked: bool,
    /// The last block of the hints that the job uses. It decides between branches of equal work.
    pub hints: Option<HintsEnd>,
    /// Whether no undo data is used up to that block, or to one below.
    pub without_undo: bool,
    /// The best block of the chainstate that exists. It decides between branches of equal work, if no hints
    /// do.
    pub preferred: Option<BlockHash>,
    /// Which marks of invalid blocks are not believed.
    pub reconsider: Option<Reconsider>,
    /// Blocks that earlier attempts found invalid.
    pub invalid: &'a [BlockHash],
    /// A block that was connected, with its ancestors: they need not be stored.
    pub connected: Option<BlockHash>,
    /// What is damaged, if the chain is to end below that, and below whatever else is missing.
    pub damage: Option<&'a KnownDamage>,
    pub makes_undo: bool,
    /// `Some` if blocks that are not stored come while the job runs: those of them that the block index
    /// places all the same, though they are not in their files.
    pub awaits: Option<&'a [BlockHash]>,
    /// Whether files may be missing or truncated: blocks are only looked at.
    pub may_lack_files: bool,
    /// The last block, whichever branch it is on.
    pub end: Option<BlockHash>,
}

impl ChainRequest<'_> {
    pub fn of(options: &ChainOptions) -> Self {
        Self { scan: options.scan, stop_at_height: options.stop_at_height, ..Self::default() }
    }

    /// The block that decides between branches of equal work.
    pub fn tie_break(&self) -> Option<BlockHash> {
        self.hints.and_then(|end| end.hash).or(self.preferred)
    }

    /// The end of the blocks that need no undo data because there are hints for them.
    pub fn end_without_undo(&self) -> Option<HintsEnd> {
        self.hints.filter(|_| self.without_undo)
    }

    /// The lowest block whose undo data is needed.
    pub fn undo_from(&self) -> Height {
        match self.end_without_undo() {
            _ if self.makes_undo => Height(u32::MAX),
            Some(end) => Height(end.height.0.saturating_add(1)),
            None => Height(0),
        }
    }
}
