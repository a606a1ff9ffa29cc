//! Where blocks are, seen from the chain that was chosen: what a run in place is compared with.

use super::{ChainRequest, FAILED, INVALID, LINKED, NONE, Tree};
use crate::stages::existing_state::{BestBlock, Gap, KnownBlock};
use rules::U256;
use wire::{BlockHash, Height};

impl Tree<'_> {
    /// The first block that is at another height than `said`, which is in the order of the blocks, with both
    /// heights.
    #[must_use]
    pub fn wrong_height(&self, said: &[Height]) -> Option<(BlockHash, Height, Height)> {
        let blocks = (0..).zip(self.heights()).zip(said);
        let mut linked = blocks.filter(|((_, height), _)| *height != NONE);
        let ((number, height), said) = linked.find(|((_, height), said)| *height != said.0)?;
        Some((*self.hashes.get(number), Height(height), *said))
    }

    pub(super) fn work_of(&self, branch: impl Iterator<Item = u32>) -> U256 {
        branch.fold(U256::ZERO, |sum, number| sum.wrapping_add(rules::work(self.nodes[number as usize].bits)))
    }

    /// Judges all headers, and finds the last block up to which all data and undo data are on disk.
    #[must_use]
    pub fn connected(&mut self) -> Option<KnownBlock> {
        let (order, ends) = self.by_height(self.heights());
        let tops = self.evaluate_all(&order, &ends, &ChainRequest::default());
        tops.connected.map(|top| KnownBlock {
            hash: *self.hashes.get(top.node),
            height: top.height,
            work: top.work,
        })
    }

    /// Where a block that descends from genesis is, seen from the chain of the blocks with the numbers
    /// `branch`. Undo data is wanted of those from `undo_from` on. All headers must have been judged.
    #[must_use]
    pub fn standing(&self, hash: &BlockHash, branch: &[u32], undo_from: Height) -> Option<BestBlock> {
        let number = self.hashes.find(hash).filter(|&number| self.nodes[number as usize].has(LINKED))?;
        let height = self.branch(number).count().checked_sub(1)? as u32;
        let known =
            KnownBlock { hash: *hash, height: Height(height), work: self.work_of(self.branch(number)) };
        let is_chosen = |&(number, height): &(u32, u32)| branch.get(height as usize) == Some(&number);
        let fork =
            self.branch(number).zip((0..=height).rev()).find(is_chosen).map_or(0, |(_, height)| height);
        Some(BestBlock { known, fork: Height(fork), gap: self.gap_above(number, undo_from) })
    }

    /// The lowest block, of `number` and its ancestors, that keeps it from being connected.
    pub(super) fn gap_above(&self, number: u32, undo_from: Height) -> Option<Gap> {
        let heights = (0..self.branch(number).count() as u32).rev().map(Height);
        let gaps = self.branch(number).zip(heights).filter_map(|(number, height)| {
            let node = &self.nodes[number as usize];
            if node.state & (FAILED | INVALID) != 0 {
                return Some(Gap::Invalid(height));
            }
            match node.data_pos {
                None => Some(Gap::Block(height)),
                Some(_) => (height >= undo_from && !self.has_undo(number)).then_some(Gap::Undo(height)),
            }
        });
        gaps.last()
    }

    /// The blocks that are marked invalid, sorted by their hashes.
    #[must_use]
    pub fn failed(&self) -> Vec<BlockHash> {
        let failed = (0..).zip(&self.nodes).filter(|(_, node)| node.has(FAILED));
        failed.map(|(number, _)| *self.hashes.get(number)).collect()
    }
}
