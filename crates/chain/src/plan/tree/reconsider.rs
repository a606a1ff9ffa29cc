//! Marks of invalid blocks that are not believed.

use super::{FAILED, INVALID, RECONSIDERED, Tree};
use api::{error::Error, options::Reconsider};
use wire::{BlockHash, Height};

impl Tree<'_> {
    /// Does not believe marks of invalid blocks. Returns the blocks that had one, sorted by hash.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Usage`] if the tree does not contain the block.
    pub fn reconsider(&mut self, which: Reconsider) -> Result<Vec<BlockHash>, Error> {
        let related = match which {
            Reconsider::All => vec![true; self.nodes.len()],
            Reconsider::Block(hash) => {
                let number = self.hashes.find(&hash).ok_or_else(|| {
                    let detail = format!("the block index does not contain block {hash}");
                    Error::usage(detail)
                })?;
                let mut related = self.descendants(&[number]);
                self.branch(number).for_each(|number| related[number as usize] = true);
                related
            }
        };
        let mut marked = Vec::new();
        for ((number, node), is_related) in (0..).zip(&mut self.nodes).zip(related) {
            if is_related && node.has(FAILED) {
                node.state ^= FAILED | RECONSIDERED;
                marked.push(*self.hashes.get(number));
            }
        }
        Ok(marked)
    }

    /// Returns the height of the lowest block of a branch whose mark is not believed, and, sorted by hash,
    /// the blocks that lose marks if the branch is valid.
    pub(super) fn passing(&self, branch: &[u32]) -> (Option<Height>, Vec<BlockHash>) {
        let is_reconsidered = |number: u32| {
            let node = &self.nodes[number as usize];
            node.has(RECONSIDERED) && node.state & (FAILED | INVALID) == 0
        };
        let lowest = branch.iter().position(|&number| is_reconsidered(number));
        let chain = branch.get(lowest.unwrap_or(branch.len())..).unwrap_or_default();
        let passing = (0..).zip(self.descendants(chain));
        let passing = passing.filter(|&(number, passes)| passes && is_reconsidered(number));
        let hashes = passing.map(|(number, _)| self.hash(number)).collect();
        (lowest.map(|height| Height(height as u32)), hashes)
    }

    /// For each block, whether it is one of these or descends from one.
    fn descendants(&self, of: &[u32]) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        if of.is_empty() {
            return found;
        }
        of.iter().for_each(|&number| found[number as usize] = true);
        // Parents come before their children.
        for number in self.by_height().0 {
            let parent = self.nodes[number as usize].parent;
            found[number as usize] |= found.get(parent as usize).is_some_and(|found| *found);
        }
        found
    }
}
