//! Estimates of block sizes before the blocks come.

use wire::Network;

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
/// The last blocks, whose sizes count.
const LAST: f64 = 50.0;
/// Smallest block: a header and a coinbase.
const MIN_BYTES: f64 = 140.0;
/// Largest block: 4,000,000 units of weight (BIP 141).
const MAX_BYTES: f64 = 4_000_000.0;

/// Estimates the size of a block from its height and the sizes of the last blocks.
#[derive(Clone, Copy, Debug)]
pub struct SizeEstimate {
    is_main: bool,
    /// Moving average of real size divided by the size in the table.
    ratio: f64,
    /// Number of blocks that have come, up to [`LAST`].
    learned: f64,
}

impl SizeEstimate {
    /// Creates the estimate for a network.
    #[must_use]
    pub fn new(network: Network) -> Self {
        Self { is_main: network == Network::Main, ratio: 1.0, learned: 0.0 }
    }

    /// Returns the estimated size of the block at that height, in bytes.
    #[must_use]
    pub fn bytes(&self, height: u32) -> u64 {
        (self.table(height) * self.ratio).clamp(MIN_BYTES, MAX_BYTES).round() as u64
    }

    /// Corrects the estimate by the size of a block that has come.
    pub fn learn(&mut self, height: u32, bytes: u64) {
        let ratio = bytes as f64 / self.table(height);
        self.learned = (self.learned + 1.0).min(LAST);
        self.ratio += (ratio - self.ratio) / self.learned;
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
    fn fifty_blocks_correct_the_table() {
        let mut sizes = SizeEstimate::new(Network::Main);
        assert_eq!(
            (sizes.bytes(0), sizes.bytes(850_000), sizes.bytes(u32::MAX)),
            (220, 1_650_000, 1_600_000)
        );
        (700_000..700_200).for_each(|height| sizes.learn(height, 1_300_000));
        (700_200..700_400).for_each(|height| sizes.learn(height, 600_000));
        assert!((595_000..620_000).contains(&sizes.bytes(700_400)), "{}", sizes.bytes(700_400));
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
}
