//! Locates blocks relative to the chosen chain: for the comparison with an existing chainstate, and to find
//! what the chain leaves out.

use super::{BestTip, CONNECTED, ChainRequest, FAILED, INVALID, KNOWN, LINKED, NONE, Tree};
use crate::plan::best_block::{BestBlock, KnownBlock};
use api::lower_tip::Gap;
use rules::U256;
use std::collections::BTreeSet;
use wire::{BlockHash, FileNo, Height};

impl Tree<'_> {
    /// Returns number and height of each block whose header and ancestors' headers are valid.
    pub fn valid(&self) -> impl Iterator<Item = (u32, Height)> {
        let blocks = (0..).zip(&self.nodes).zip(self.heights());
        let valid = blocks.filter(|((_, node), _)| node.has(LINKED) && !node.has(INVALID));
        valid.map(|((number, _), height)| (number, Height(height)))
    }

    /// Returns the lowest failed block of a branch, and the height of the last block of the branch; `None` if
    /// that block is one of `invalid`, which are known to the caller.
    pub(super) fn marked_invalid_below(
        &self,
        tip: &BestTip,
        invalid: &[BlockHash],
    ) -> Option<(Height, BlockHash, Height)> {
        let failed = self.branch(tip.node).take_while(|&number| self.nodes[number as usize].has(FAILED));
        let (above, lowest) = (0..).zip(failed).last()?;
        let hash = *self.hashes.get(lowest);
        (!invalid.contains(&hash)).then_some((Height(tip.height.0 - above), hash, tip.height))
    }

    /// If blocks with more work than the chain of `best`, or `best` itself, are left out because the block
    /// index marks one as invalid: that block, and the height of the last one.
    pub fn marked_invalid(&mut self, best: &BlockHash) -> Option<(Height, BlockHash, Height)> {
        let failed = self.evaluate_all(&ChainRequest::default()).failed;
        let own = self.branch_to(best);
        let work = self.work_of(own.iter().copied());
        let marked = own.last().filter(|&&number| self.nodes[number as usize].has(FAILED));
        let marked = marked.map(|&node| BestTip { node, height: Height(own.len() as u32 - 1), work });
        let tip = marked.or(failed.filter(|failed| failed.work > work));
        tip.and_then(|tip| self.marked_invalid_below(&tip, &[]))
    }

    /// Returns the hints' last block if it is on disk but a block below it is not.
    pub(super) fn hints_end_above_gap(&self, request: &ChainRequest<'_>) -> Option<u32> {
        let end = self.find_linked(&request.end_without_undo()?.hash?)?;
        let node = &self.nodes[end as usize];
        let is_usable = node.data_pos.is_some() && node.state & (FAILED | INVALID) == 0;
        (is_usable && !node.has(CONNECTED)).then_some(end)
    }

    /// Returns the first block whose height differs from the one in `recorded`, which is in the order of the
    /// blocks, with the correct height and the one in `recorded`.
    pub fn wrong_height(&self, recorded: &[Height]) -> Option<(BlockHash, Height, Height)> {
        let blocks = (0..).zip(self.heights()).zip(recorded);
        let mut linked = blocks.filter(|((_, height), _)| *height != NONE);
        let ((number, height), recorded) = linked.find(|((_, height), recorded)| *height != recorded.0)?;
        Some((*self.hashes.get(number), Height(height), *recorded))
    }

    pub(super) fn work_of(&self, branch: impl Iterator<Item = u32>) -> U256 {
        branch.fold(U256::ZERO, |sum, number| sum.wrapping_add(rules::work(self.nodes[number as usize].bits)))
    }

    /// Validates all headers, and returns the last block up to which all data and undo data are on disk.
    pub fn connected(&mut self) -> Option<KnownBlock> {
        let connected = self.evaluate_all(&ChainRequest::default()).connected;
        connected.map(|BestTip { node, height, work }| KnownBlock { hash: self.hash(node), height, work })
    }

    /// Validates all headers, and returns the numbers of those of the chain with the most work, from genesis
    /// on, whether their blocks are on disk or not.
    pub fn best_headers(&mut self) -> Vec<u32> {
        let best = self.evaluate_all(&ChainRequest::default()).header;
        best.map(|tip| self.chain_to(tip.node)).unwrap_or_default()
    }

    /// The same, unless a stored block of another branch has more work than the last stored of that chain:
    /// then the chain that it ends. bitcoind stays there as long as nobody has the blocks of other headers.
    pub fn best_stored_chain(&mut self) -> Vec<u32> {
        let tips = self.evaluate_all(&ChainRequest::default());
        let chain = tips.header.map(|tip| self.chain_to(tip.node)).unwrap_or_default();
        let is_absent = |number: &&u32| self.nodes[**number as usize].data_pos.is_none();
        let stored = self.work_of(chain.iter().rev().skip_while(is_absent).copied());
        let other = tips.placed.filter(|tip| tip.work > stored);
        other.map_or(chain, |tip| self.chain_to(tip.node))
    }

    /// Locates a block that descends from genesis relative to the chain of the blocks with the numbers
    /// `branch`. Undo data is needed from `undo_from` on. All headers must have been validated.
    pub fn locate(&self, hash: &BlockHash, branch: &[u32], undo_from: Height) -> Option<BestBlock> {
        let number = self.find_linked(hash)?;
        let mut below = self.branch_with_heights(number);
        let (_, height) = below.clone().next()?;
        let known = KnownBlock { hash: *hash, height, work: self.work_of(self.branch(number)) };
        let is_chosen = |&(number, height): &(u32, Height)| branch.get(height.0 as usize) == Some(&number);
        let fork = below.clone().find(is_chosen).map_or(Height(0), |(_, height)| height);
        let can_be_left = below.all(|(number, height)| height <= fork || self.has_undo(number));
        let gap = self.gap_above(number, undo_from);
        Some(BestBlock { known, fork, can_be_left, gap })
    }

    /// Returns the numbers of a block and its ancestors, from genesis on; none if it does not descend from
    /// it.
    pub fn branch_to(&self, hash: &BlockHash) -> Vec<u32> {
        self.find_linked(hash).map(|number| self.chain_to(number)).unwrap_or_default()
    }

    /// Returns the numbers of the files in which blocks are placed.
    pub fn files(&self) -> BTreeSet<FileNo> {
        self.nodes.iter().filter(|node| node.data_pos.is_some()).map(|node| node.file).collect()
    }

    /// Marks a block that was connected, and its ancestors.
    pub(super) fn mark_known(&mut self, connected: Option<BlockHash>) {
        let Some(known) = connected.and_then(|hash| self.hashes.find(&hash)) else { return };
        for number in self.branch(known).collect::<Vec<_>>() {
            self.nodes[number as usize].state |= KNOWN;
        }
    }

    /// Returns the lowest reason why the block or an ancestor cannot be connected.
    pub(super) fn gap_above(&self, number: u32, undo_from: Height) -> Option<Gap> {
        let gaps = self.branch_with_heights(number).filter_map(|(number, height)| {
            let node = &self.nodes[number as usize];
            if node.state & (FAILED | INVALID) != 0 {
                return Some(Gap::Invalid(height));
            }
            match node.data_pos {
                None => Some(Gap::MissingBlock(height)),
                Some(_) => {
                    (height >= undo_from && !self.has_undo(number)).then_some(Gap::MissingUndo(height))
                }
            }
        });
        gaps.last()
    }

    /// Returns the blocks marked as invalid, sorted by hash.
    pub fn failed(&self) -> Vec<BlockHash> {
        let failed = (0..).zip(&self.nodes).filter(|(_, node)| node.has(FAILED));
        failed.map(|(number, _)| *self.hashes.get(number)).collect()
    }
}
