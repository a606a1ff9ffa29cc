//! A plan of ranges, as all commands about ranges read it.

use api::{error::Error, report::ScriptsReport};
use chain::blocks::chain::{BlockPosition, Chain};
use disk::range_plan::{self, PlannedBlock};
use rules::CORE_VERSION;
use std::{num::NonZeroU32, ops::RangeInclusive, path::Path};
use vfs::Disk;
use wire::{BlockHash, Height, Network};

/// A chain that is cut into ranges, with all that the machines must agree on.
#[derive(Clone, Debug)]
pub struct RangePlan {
    pub(super) plan: range_plan::RangePlan,
    pub(super) digest: [u8; 32],
}

impl RangePlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Errors of these [kinds](api::error::ErrorKind): `Damaged` if it is no whole plan; `Usage` if it was
    /// made for other rules than this program has. Any I/O error.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let (plan, digest) = range_plan::RangePlan::read(disk, path)?;
        if plan.rules != CORE_VERSION {
            let detail = format!(
                "the plan is for the rules of Bitcoin Core {}, and this program has those of {CORE_VERSION}; \
                 use one version for all ranges",
                plan.rules
            );
            return Err(Error::usage(detail).in_file(path, None));
        }
        Ok(Self { plan, digest })
    }

    /// Identifies the plan: the SHA-256 of its file.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    pub const fn network(&self) -> Network {
        self.plan.network
    }

    pub fn tip(&self) -> (Height, BlockHash) {
        let last = self.plan.blocks.last().map_or(BlockHash::default(), |block| block.hash);
        (Height((self.plan.blocks.len() as u32).saturating_sub(1)), last)
    }

    /// Which scripts are run, with the number of `inputs` whose scripts were; `None` if none are.
    pub fn scripts(&self, inputs: u64) -> Option<ScriptsReport> {
        let range_plan::RangePlan { assumed_valid_to, checked_to, .. } = self.plan;
        let report = ScriptsReport::new(assumed_valid_to, checked_to, self.tip().0, inputs);
        self.plan.scripts.then_some(report)
    }

    pub const fn ranges(&self) -> u32 {
        self.plan.ends.len() as u32
    }

    pub const fn shards(&self) -> u32 {
        self.plan.shards
    }

    /// Heights of the blocks of a range.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Usage`] if there is no such range.
    pub fn heights(&self, range: u32) -> Result<RangeInclusive<u32>, Error> {
        let heights = self.plan.heights(range).ok_or_else(|| no_such("range", range, self.ranges()))?;
        Ok(heights.start..=heights.end - 1)
    }

    pub(super) fn chain(&self) -> Chain {
        let (mut hashes, mut positions, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for &PlannedBlock { hash, median_time, file, data_pos, undo_pos } in &self.plan.blocks {
            hashes.push(hash);
            times.push(median_time);
            positions.push(BlockPosition { file, data_pos, undo_pos: NonZeroU32::new(undo_pos) });
        }
        Chain::from_parts(hashes, positions, times)
    }
}

/// The error for a number that nothing in the plan has.
pub(super) fn no_such(what: &str, number: u32, count: u32) -> Error {
    let last = count - 1;
    Error::usage(format!("there is no {what} {number}: the plan has numbers 0 to {last}"))
}
