//! The caller's side of a simulation: the headers that are known, and the blocks that are stored.

use peregrine_net::headers::locator_heights;
use std::collections::{HashMap, HashSet};
use wire::BlockHash;

/// Does what `sync` does: it keeps the best chain of the headers that come.
pub struct Caller {
    /// Height and parent of the headers that are known.
    pub known: HashMap<BlockHash, (u32, BlockHash)>,
    /// The best chain, by height.
    pub chain: Vec<BlockHash>,
    pub invalid: HashSet<BlockHash>,
    /// Invalid or withheld.
    pub useless: HashSet<BlockHash>,
    pub stored: HashSet<BlockHash>,
    /// The next height that the download gets.
    pub next: u32,
}

impl Caller {
    /// A caller that knows this chain, and has stored its first block.
    pub fn new(chain: Vec<BlockHash>) -> Self {
        let parents = [BlockHash::default()].into_iter().chain(chain.iter().copied());
        let known = chain.iter().zip((0..).zip(parents)).map(|(hash, known)| (*hash, known)).collect();
        let (invalid, useless, stored) = Default::default();
        Self { known, chain, invalid, useless, stored, next: 1 }
    }

    pub fn locator(&self) -> Vec<BlockHash> {
        let heights = locator_heights(self.tip());
        heights.into_iter().map(|height| self.chain[height as usize]).collect()
    }

    pub fn tip(&self) -> u32 {
        self.chain.len() as u32 - 1
    }

    /// Makes the chain end with this block. Returns the first height that changes.
    pub fn switch_to(&mut self, tip: BlockHash) -> u32 {
        let (mut above, mut at) = (Vec::new(), tip);
        while self.chain.get(self.known[&at].0 as usize) != Some(&at) {
            above.push(at);
            at = self.known[&at].1;
        }
        let first = self.known[&at].0 + 1;
        self.chain.truncate(first as usize);
        self.chain.extend(above.into_iter().rev());
        first
    }

    /// Leaves the chain below a block, until its headers come again.
    pub fn cut(&mut self, height: u32) {
        self.chain.truncate(height as usize);
        let chain: HashSet<BlockHash> = self.chain.iter().copied().collect();
        self.known.retain(|hash, _| chain.contains(hash));
    }
}
