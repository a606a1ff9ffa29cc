//! Assumed validity: scripts need not be run up to a block for which the user, or the release, vouches.
//!
//! Core's conditions (`ConnectBlock`, August 2026): the block is an ancestor of the assumed-valid block or
//! that block itself; it is in the best header chain too, which has at least the network's minimum work; and
//! the work above it would take two weeks to produce. The caller determines the chains of blocks; this module
//! computes the work.

use crate::{ChainParams, U256, work};

/// The time that the work above a block must exceed for its scripts to be skipped, in seconds.
const BURIED_SECONDS: u32 = 14 * 24 * 60 * 60;

/// Returns whether a block of total work `below` is buried deep enough under the best header, which has total
/// work `best` and compact target `best_bits` (Core `GetBlockProofEquivalentTime` relative to the best
/// header).
pub fn is_buried(params: &ChainParams, below: U256, best: U256, best_bits: u32) -> bool {
    if below > best {
        return false;
    }
    // Core divides: floor(work above * spacing / work of the best header) > two weeks.
    let above = best.wrapping_sub(below).wrapping_mul(params.pow_target_spacing.into());
    above >= work(best_bits).wrapping_mul((BURIED_SECONDS + 1).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Network;

    #[test]
    fn a_block_is_buried_under_more_than_2016_blocks() {
        let params = ChainParams::of(Network::Regtest);
        let bits = params.genesis.bits;
        let total = |blocks: u32| work(bits).wrapping_mul(blocks.into());
        assert!(!is_buried(params, total(100), total(100 + 2016), bits));
        assert!(is_buried(params, total(100), total(100 + 2017), bits));
        assert!(!is_buried(params, total(100), total(99), bits));
    }
}
