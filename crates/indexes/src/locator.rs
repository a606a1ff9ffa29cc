//! The row with the best block of an index.

use chain::blocks::chain::Chain;
use wire::{Height, header::locator_heights, read::write_compact_size};

/// The protocol version that Core writes into a locator. Nobody reads it there.
const VERSION: i32 = 70_016;

/// Returns the locator of a block: its hash, and those of blocks below it, down to genesis, at growing steps
/// (Core `LocatorEntries`).
pub fn locator(chain: &Chain, best: Height) -> Vec<u8> {
    let heights = locator_heights(best.0);
    let mut row = VERSION.to_le_bytes().to_vec();
    write_compact_size(&mut row, heights.len() as u64);
    heights.into_iter().for_each(|height| row.extend(chain.block(Height(height)).hash.0));
    row
}
