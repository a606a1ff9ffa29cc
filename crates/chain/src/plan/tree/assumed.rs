//! What the block index says of the scripts and witnesses of blocks, and up to which height of the chosen
//! chain scripts need not be run.

use super::{BestTip, CHECKED, Choice, Node, Tree, UNCONNECTED, WITNESSES};
use disk::index::{BlockStatus, IndexEntry};
use rules::U256;
use wire::{BlockHash, Height};

impl Choice {
    /// Height up to which scripts are not run.
    pub fn scripts_skipped_to(&self) -> Option<Height> {
        self.checked_to.max(self.assumed_valid_to)
    }
}

impl Node {
    /// The same block, with what its row of the block index says of its scripts and witnesses. A block that
    /// was once stored and connected has a mark, whether its scripts were run or assumed to be valid; what is
    /// only a header has none, and neither has the genesis block, which has no script to run.
    #[must_use]
    pub fn with_mark(mut self, entry: &IndexEntry) -> Self {
        let IndexEntry { status, tx_count, .. } = *entry;
        let is_valid = status.validity() == BlockStatus::VALID_SCRIPTS && !status.is_failed();
        self.state |= if is_valid && tx_count > 0 { CHECKED } else { 0 };
        self.state |= if status.was_connected() { 0 } else { UNCONNECTED };
        self.state |= if status.0 & BlockStatus::OPT_WITNESS != 0 { WITNESSES } else { 0 };
        self
    }
}

impl Tree<'_> {
    /// Returns the height of `chain` up to which scripts need not be run, given that the user vouches for
    /// `assumed`, under Core's conditions; see [`rules::assume`]. `best` is the most-work header.
    pub(super) fn assumed_valid_to(
        &self,
        chain: &[u32],
        assumed: BlockHash,
        best: &BestTip,
    ) -> Option<Height> {
        let assumed = self.find_linked(&assumed)?;
        if best.work < self.params.minimum_chain_work {
            return None;
        }
        let mut in_chain = vec![false; self.nodes.len()];
        chain.iter().for_each(|&number| in_chain[number as usize] = true);
        // Finds the highest block that a branch shares with the chain, as an index into the chain.
        let fork = |tip: u32| {
            let common = self.branch(tip).find(|&number| in_chain[number as usize])?;
            chain.iter().position(|&number| number == common)
        };
        let limit = fork(assumed)?.min(fork(best.node)?);
        let best_bits = self.nodes[best.node as usize].bits;
        let mut work = U256::ZERO;
        let buried = chain.get(..=limit)?.iter().take_while(|&&number| {
            work = work.wrapping_add(rules::work(self.nodes[number as usize].bits));
            rules::assume::is_buried(self.params, work, best.work, best_bits)
        });
        buried.count().checked_sub(1).map(|height| Height(height as u32))
    }

    /// Returns the height up to which the block index marks the scripts of all blocks of `chain` as checked.
    pub fn checked_to(&self, chain: &[u32]) -> Option<Height> {
        let is_checked = |&&number: &&u32| self.nodes.get(number as usize).is_some_and(|it| it.has(CHECKED));
        let count = chain.iter().skip(1).take_while(is_checked).count() as u32;
        (count > 0).then_some(Height(count))
    }

    /// Returns the height of the first of these blocks of which the block index does not say that it came
    /// with its witnesses, though it should.
    pub fn first_without_witnesses(&self, mut blocks: impl Iterator<Item = (u32, Height)>) -> Option<Height> {
        let lacks = |number: u32| !self.nodes.get(number as usize).is_some_and(|it| it.has(WITNESSES));
        let is_it = |&(number, height): &(u32, Height)| height >= self.params.segwit_height && lacks(number);
        blocks.find(is_it).map(|(_, height)| height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Header;

    #[test]
    fn only_what_was_once_connected_has_a_mark() {
        let header = Header::default();
        let has_mark = |status: u32, tx_count: u32| {
            let entry = IndexEntry::of_header(header.hash(), header, Height(7));
            let entry = IndexEntry { status: BlockStatus(status), tx_count, ..entry };
            Node::new(&header, None, None, false).unwrap().with_mark(&entry).has(CHECKED)
        };
        let stored = BlockStatus::VALID_SCRIPTS | BlockStatus::HAVE_DATA;
        assert!(has_mark(stored, 1));
        assert!(has_mark(BlockStatus::VALID_SCRIPTS, 1), "of a pruned node");
        assert!(!has_mark(BlockStatus::VALID_SCRIPTS, 0), "a header only");
        assert!(!has_mark(BlockStatus::VALID_CHAIN | BlockStatus::HAVE_DATA, 1));
        for failed in [BlockStatus::FAILED_VALID, BlockStatus::FAILED_CHILD] {
            assert!(!has_mark(stored | failed, 1));
        }
    }
}
