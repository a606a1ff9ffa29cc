//! Why a block was not accepted, and the lowest block that was not.
//!
//! Parallel matching ends with the fault of the lowest block that has one.

use api::error::Error;
use coins::hinted::HintFlaw;
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};
use wire::Height;

/// Why a block was not accepted.
#[derive(Debug)]
pub enum BlockFault {
    /// The block cannot be checked as long as this is wrong: these are not the bytes of the block, or of its
    /// undo data, the hints could not be read, or the observer of the blocks has failed.
    Error(Error),
    /// The hints cannot belong to the block.
    Hints(HintFlaw),
    /// The block, its undo data, or an earlier block breaks a rule; sequential validation finds out which.
    Suspect,
}

impl From<Error> for BlockFault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The lowest block with a fault so far. Blocks above it need not be checked, blocks below it must be, so
/// that the result does not depend on which worker was faster.
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
    /// Records a fault, unless a lower block has one.
    pub fn record(&self, height: Height, fault: BlockFault) {
        let Ok(mut lowest) = self.lowest.lock() else { return };
        if lowest.as_ref().is_none_or(|(known, _)| height < *known) {
            *lowest = Some((height, fault));
            self.bound.store(height.0, Ordering::Relaxed);
        }
    }

    /// Reports whether the block at `height` still needs to be checked.
    pub fn matters(&self, height: Height) -> bool {
        height.0 < self.bound.load(Ordering::Relaxed)
    }

    pub fn into_lowest(self) -> Option<(Height, BlockFault)> {
        self.lowest.into_inner().ok().flatten()
    }
}
