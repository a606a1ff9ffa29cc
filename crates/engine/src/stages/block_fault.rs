//! What the fast path found wrong: one fault, of the lowest block that has one.

use crate::error::Error;
use coins::hinted::HintFlaw;
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};
use wire::Height;

/// Why the fast path could not accept a block.
#[derive(Debug)]
pub enum BlockFault {
    /// Bytes on disk are not what they were.
    Damaged(Error),
    /// Hints cannot be those of the block.
    Hints(HintFlaw),
    /// The block, or the undo data, or a block before it, breaks a rule: the judge will tell.
    Suspect,
}

/// The lowest block with a fault so far. Blocks above it need not be looked at, those below must be: so the
/// outcome does not depend on which worker was faster.
#[derive(Debug)]
pub struct BlockFaults {
    bound: AtomicU32,
    lowest: Mutex<Option<(Height, BlockFault)>>,
}

impl Default for BlockFaults {
    fn default() -> Self {
        Self { bound: AtomicU32::new(u32::MAX), lowest: Mutex::new(None) }
    }
}

impl BlockFaults {
    /// Records a fault, if no block below has one.
    pub fn record(&self, height: Height, fault: BlockFault) {
        let Ok(mut lowest) = self.lowest.lock() else { return };
        if lowest.as_ref().is_none_or(|(known, _)| height < *known) {
            *lowest = Some((height, fault));
            self.bound.store(height.0, Ordering::Relaxed);
        }
    }

    /// Whether the block at `height` still matters.
    #[must_use]
    pub fn matters(&self, height: Height) -> bool {
        height.0 < self.bound.load(Ordering::Relaxed)
    }

    /// The lowest fault.
    #[must_use]
    pub fn into_lowest(self) -> Option<(Height, BlockFault)> {
        self.lowest.into_inner().ok().flatten()
    }
}
