//! The row with the best block of an index.

use chain::blocks::chain::Chain;
use wire::{Height, read::write_compact_size};

/// The protocol version that Core writes into a locator. Nobody reads it there.
const VERSION: i32 = 70_016;
/// Number of blocks after which the steps double.
const SINGLE_STEPS: usize = 10;

/// Returns the locator of a block: its hash, and those of blocks below it, down to genesis, at growing steps
/// (Core `LocatorEntries`).
pub fn locator(chain: &Chain, best: Height) -> Vec<u8> {
    let (mut heights, mut height, mut step) = (vec![best], best.0, 1);
    while height > 0 {
        height = height.saturating_sub(step);
        if heights.len() > SINGLE_STEPS {
            step *= 2;
        }
        heights.push(Height(height));
    }
    let mut row = VERSION.to_le_bytes().to_vec();
    write_compact_size(&mut row, heights.len() as u64);
    heights.iter().for_each(|&height| row.extend(chain.block(height).hash.0));
    row
}
