//! Estimates of block sizes before the blocks come.

use std::collections::BTreeMap;
use wire::{MAX_BLOCK_LEN, Network};

/// Average block size on the main network in bytes, by ranges of 40,000 heights: rough, since the sizes of
/// blocks that have come correct it.
const MAIN: [u32; 24] = [
    220, 600, 4_500, 20_000, 40_000, 140_000, 170_000, 250_000, 360_000, 500_000, 780_000, 900_000, 950_000,
    900_000, 1_050_000, 1_180_000, 1_240_000, 1_280_000, 1_220_000, 1_500_000, 1_700_000, 1_650_000,
    1_600_000, 1_600_000,
];
/// Heights of a range.
const RANGE: u32 = 40_000;
/// Size that is assumed on other networks before the first block, in bytes: large, so that few are asked for.
const OTHER: u32 = 1_000_000;
/// Heights of neighbours, whose sizes count for each other.
const NEAR: u32 = 32;
/// Number of neighbours from which on their average counts. Fewer only make an estimate larger: a peer that
/// is asked for too little loses a round trip, one that is asked for too much holds blocks that others could
/// send.
const ENOUGH: u32 = 8;
/// Number of groups of neighbours that are kept: those of a window.
const MAX_GROUPS: usize = 1_024;
/// Smallest block: a header and a coinbase.
const MIN_BYTES: f64 = 140.0;
const MAX_BYTES: f64 = MAX_BLOCK_LEN as f64;

/// Estimates the size of a block from its height and the sizes of its neighbours.
#[derive(Clone, Debug, Default)]
pub struct SizeEstimate {
    is_main: bool,
    /// By height divided by [`NEAR`], of blocks that have come.
    groups: BTreeMap<u32, Group>,
}

/// The sizes of some neighbours.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Number of blocks that have come.
    blocks: u32,
    /// Average of their sizes divided by those in the table.
    ratio: f64,
}

impl SizeEstimate {
    /// Creates the estimate for a network.
    pub fn new(network: Network) -> Self {
        Self { is_main: network == Network::Main, groups: BTreeMap::new() }
    }

    /// Returns the estimated size of the block at that height, in bytes.
    pub fn bytes(&self, height: u32) -> u64 {
        (self.table(height) * self.ratio(height / NEAR)).clamp(MIN_BYTES, MAX_BYTES).round() as u64
    }

    /// Corrects the estimate by the size of a block that has come.
    pub fn learn(&mut self, height: u32, bytes: u64) {
        let ratio = bytes as f64 / self.table(height);
        let group = self.groups.entry(height / NEAR).or_default();
        group.blocks = (group.blocks + 1).min(NEAR);
        group.ratio += (ratio - group.ratio) / f64::from(group.blocks);
        if self.groups.len() > MAX_GROUPS {
            self.groups.pop_first();
        }
    }

    /// Returns what the size in the table is to be multiplied by in a group.
    fn ratio(&self, number: u32) -> f64 {
        let own = self.groups.get(&number);
        if let Some(group) = own.filter(|group| group.blocks >= ENOUGH) {
            return group.ratio;
        }
        let (below, above) =
            (self.groups.range(..number).next_back(), self.groups.range(number + 1..).next());
        let ratios = [own, below.map(|(_, group)| group), above.map(|(_, group)| group)];
        ratios.into_iter().flatten().map(|group| group.ratio).reduce(f64::max).unwrap_or(1.0)
    }

    fn table(&self, height: u32) -> f64 {
        let range = (height / RANGE) as usize;
        let known = if self.is_main { MAIN.get(range).or(MAIN.last()) } else { None };
        f64::from(known.copied().unwrap_or(OTHER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_correct_the_table() {
        let mut sizes = SizeEstimate::new(Network::Main);
        let far = [sizes.bytes(0), sizes.bytes(850_000), sizes.bytes(u32::MAX)];
        assert_eq!(far, [220, 1_650_000, 1_600_000]);
        (704_000..704_032).for_each(|height| sizes.learn(height, 600_000));
        assert_eq!([704_000, 704_031, 704_032].map(|height| sizes.bytes(height)), [600_000; 3]);
        assert_eq!(sizes.bytes(850_000), 773_438, "as far below the table");
        sizes.learn(0, u64::MAX);
        assert_eq!(sizes.bytes(0), 4_000_000);
    }

    #[test]
    fn other_networks_learn_from_the_first_blocks() {
        let mut sizes = SizeEstimate::new(Network::Regtest);
        assert_eq!(sizes.bytes(5), 1_000_000);
        sizes.learn(0, 250);
        assert_eq!(sizes.bytes(5), 250);
    }

    #[test]
    fn blocks_between_large_and_tiny_ones_count_as_large() {
        let mut sizes = SizeEstimate::new(Network::Regtest);
        (0..64).for_each(|height| sizes.learn(height, 900_000));
        (640..704).for_each(|height| sizes.learn(height, 250));
        assert_eq!([40, 64, 400, 639].map(|height| sizes.bytes(height)), [900_000; 4]);
        assert_eq!([640, 703, 800].map(|height| sizes.bytes(height)), [250; 3]);
        (96..100).for_each(|height| sizes.learn(height, 250));
        assert_eq!(sizes.bytes(100), 900_000, "four tiny blocks say nothing of the next one");
        (100..104).for_each(|height| sizes.learn(height, 250));
        assert_eq!([104, 128].map(|height| sizes.bytes(height)), [250; 2]);
    }

    #[test]
    fn only_as_much_is_kept_as_a_window_needs() {
        let mut sizes = SizeEstimate::new(Network::Regtest);
        (0..NEAR * 2_000).for_each(|height| sizes.learn(height, 300));
        assert_eq!(sizes.groups.len(), MAX_GROUPS);
        assert_eq!(sizes.bytes(NEAR * 2_000), 300);
    }
}
