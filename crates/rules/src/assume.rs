//! Assumed validity: below a block that the user, or the release, vouches for, scripts need not be run.
//!
//! Core's conditions (`ConnectBlock`, August 2026): the block is at or below the assumed one, in its chain;
//! it is in the best header chain too, which has at least the network's minimum work; and it is buried under
//! so much work that making it up would take two weeks. Which blocks are in which chain is the caller's to
//! know; the arithmetic is here.

use crate::{ChainParams, U256, work};

/// How long the work above a block must take to make, in seconds, for its scripts to be skipped.
const BURIED_SECONDS: u32 = 14 * 24 * 60 * 60;

/// Whether a block of total work `below` is buried deep enough under the best header, of total work `best`
/// and compact target `best_bits` (Core `GetBlockProofEquivalentTime` with the best header as the yardstick).
#[must_use]
pub fn is_buried(params: &ChainParams, below: U256, best: U256, best_bits: u32) -> bool {
    if below > best {
        return false;
    }
    // Core divides: floor(work above * spacing / work of the best header) > two weeks.
    let above = best.wrapping_sub(below).wrapping_mul_u32(params.pow_target_spacing);
    above >= work(best_bits).wrapping_mul_u32(BURIED_SECONDS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Network;

    #[test]
    fn two_weeks_are_2016_blocks_and_not_one_less() {
        let params = ChainParams::of(Network::Regtest);
        let bits = params.genesis.bits;
        let total = |blocks: u32| work(bits).wrapping_mul_u32(blocks);
        assert!(!is_buried(params, total(100), total(100 + 2016), bits));
        assert!(is_buried(params, total(100), total(100 + 2017), bits));
        assert!(!is_buried(params, total(100), total(99), bits));
    }
}
