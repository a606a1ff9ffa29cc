//! The set of completed blocks.

use wire::Height;

/// Blocks whose effects are in the join or in sorted runs.
#[derive(Clone, Debug, Default)]
pub struct CompletedBlocks {
    bits: Vec<u64>,
    count: u32,
}

impl CompletedBlocks {
    /// No completed blocks, of a chain of `blocks`.
    pub fn none(blocks: usize) -> Self {
        Self::from_words(Vec::new(), blocks)
    }

    /// Restores the completed blocks, of a chain of `blocks`, from [`CompletedBlocks::words`].
    pub fn from_words(mut words: Vec<u64>, blocks: usize) -> Self {
        words.resize(blocks.div_ceil(64), 0);
        let count = words.iter().map(|word| word.count_ones()).sum();
        Self { bits: words, count }
    }

    /// Returns the bits: bit h % 64 (the lowest is 0) of word h / 64 is the block at height h.
    pub fn words(&self) -> &[u64] {
        &self.bits
    }

    pub fn has(&self, height: Height) -> bool {
        self.bits.get(height.0 as usize / 64).is_some_and(|word| word >> (height.0 % 64) & 1 == 1)
    }

    pub fn add(&mut self, height: Height) {
        if !self.has(height)
            && let Some(word) = self.bits.get_mut(height.0 as usize / 64)
        {
            *word |= 1 << (height.0 % 64);
            self.count += 1;
        }
    }

    /// Height of the lowest block that is not completed.
    pub fn first_missing(&self) -> Height {
        let full = self.bits.iter().take_while(|&&word| word == u64::MAX).count();
        let next = self.bits.get(full).map_or(0, |word| word.trailing_ones());
        Height(full as u32 * 64 + next)
    }

    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Adds the blocks of `other`; returns `None` if a block is in both.
    #[must_use]
    pub fn disjoint_union(mut self, other: &Self) -> Option<Self> {
        self.bits.resize(self.bits.len().max(other.bits.len()), 0);
        for (word, &other) in self.bits.iter_mut().zip(&other.bits) {
            if *word & other != 0 {
                return None;
            }
            *word |= other;
        }
        self.count += other.count;
        Some(self)
    }

    /// Returns the heights of the completed blocks, in order.
    pub fn heights(&self) -> impl DoubleEndedIterator<Item = Height> {
        (0..self.bits.len() as u32 * 64).map(Height).filter(|&height| self.has(height))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_block_that_is_missing_is_found_across_words() {
        let mut completed = CompletedBlocks::none(200);
        assert_eq!(completed.first_missing(), Height(0));
        (0..130).chain([150]).for_each(|height| completed.add(Height(height)));
        assert_eq!(completed.first_missing(), Height(130));
        (130..192).for_each(|height| completed.add(Height(height)));
        assert_eq!(completed.first_missing(), Height(192));
    }
}
