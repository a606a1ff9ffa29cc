//! Ranges of a chain that several machines check: each writes what its range amounts to, a delta, and deltas
//! are merged until the coins after the last block are left.
//!
//! A machine that has all blocks makes the plan ([`plan_ranges`]). With it, each machine needs only the files
//! of its ranges ([`check_range`]). Deltas of all ranges, merged shard by shard ([`merge_deltas`]), have no
//! spends left, and become the chainstate ([`finish_ranges`]).
//!
//! # What is proven, and what is trusted
//! A merge proves what the join proves in a rebuild: each spend meets the one coin with its outpoint, and its
//! claim equals that coin. So no delta can have a coin too many or too few, or another one than a spend
//! claims, without being found out. What a block does by itself only the machine knows that has checked it:
//! its rules and scripts, and that its delta has all of its outputs, and those that no other range spends as
//! they are in the block. Deltas of the same plan are equal byte for byte, so checking a range again
//! elsewhere shows whether that machine was right.

mod check;
mod finish;
mod merge;
mod new_delta;
mod plan;

pub use check::{CheckRangeOptions, check_range};
pub use finish::{FinishRangesOptions, RangesReport, Recheck, RecheckedRange, finish_ranges};
pub use merge::{MergeDeltasOptions, merge_deltas};
pub use plan::{PlanRangesOptions, RangeFile, plan_ranges};

use crate::{
    api::{
        counts::Counts,
        error::{Error, ErrorKind},
        remedy::Remedy,
    },
    blocks::chain::{BlockPosition, Chain},
};
use disk::{delta::Delta, range_plan, range_plan::PlannedBlock};
use rules::CORE_VERSION;
use std::{
    num::NonZeroU32,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};
use vfs::Disk;
use wire::{BlockHash, Height, Network};

/// A chain that is cut into ranges, with all that the machines must agree on.
#[derive(Clone, Debug)]
pub struct RangePlan {
    plan: range_plan::RangePlan,
    digest: [u8; 32],
}

impl RangePlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`]; [`ErrorKind::Usage`] if it was made for other rules than this program has; any
    /// I/O error.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let (plan, digest) = range_plan::RangePlan::read(disk, path)?;
        if plan.rules != CORE_VERSION {
            let detail = format!(
                "the plan is for the rules of Bitcoin Core {}, and this program has those of {CORE_VERSION}; \
                 use one version for all ranges",
                plan.rules
            );
            return Err(Error::new(ErrorKind::Usage, detail).in_file(path, None));
        }
        Ok(Self { plan, digest })
    }

    /// Identifies the plan: the SHA-256 of its file.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Network of the chain.
    #[must_use]
    pub const fn network(&self) -> Network {
        self.plan.network
    }

    /// Height and hash of the last block.
    #[must_use]
    pub fn tip(&self) -> (Height, BlockHash) {
        let last = self.plan.blocks.last().map_or(BlockHash::default(), |block| block.hash);
        (Height((self.plan.blocks.len() as u32).saturating_sub(1)), last)
    }

    /// Whether scripts are run, and the height up to which they are not.
    #[must_use]
    pub const fn scripts(&self) -> (bool, Option<Height>) {
        (self.plan.scripts, self.plan.assumed_valid_to)
    }

    /// Number of ranges.
    #[must_use]
    pub const fn ranges(&self) -> u32 {
        self.plan.ends.len() as u32
    }

    /// Number of shards of a delta.
    #[must_use]
    pub const fn shards(&self) -> u32 {
        self.plan.shards
    }

    /// Heights of the blocks of a range.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is no such range.
    pub fn heights(&self, range: u32) -> Result<RangeInclusive<u32>, Error> {
        let heights = self.plan.heights(range).ok_or_else(|| no_such("range", range, self.ranges()))?;
        Ok(heights.start..=heights.end - 1)
    }

    /// The whole chain.
    fn chain(&self) -> Chain {
        let (mut hashes, mut positions, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for &PlannedBlock { hash, median_time, file, data_pos, undo_pos } in &self.plan.blocks {
            hashes.push(hash);
            times.push(median_time);
            positions.push(BlockPosition { file, data_pos, undo_pos: NonZeroU32::new(undo_pos) });
        }
        Chain::from_parts(hashes, positions, times)
    }

    /// Reads the lists of deltas, and checks that they are of this plan.
    fn read_deltas(&self, disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Vec<NamedDelta>, Error> {
        let read = |dir: &PathBuf| {
            let delta = Delta::read(disk, dir)?;
            if delta.plan != self.digest {
                let detail = "this delta is of another plan";
                return Err(Error::new(ErrorKind::Usage, detail).in_file(dir, None));
            }
            let is_known = delta.ranges.iter().all(|range| range.number < self.ranges())
                && delta.shards.iter().all(|shard| shard.number < self.shards());
            match is_known {
                true => Ok(NamedDelta { dir: dir.clone(), delta }),
                false => Err(Error::damaged("it has ranges or shards that the plan has not")
                    .in_file(dir, None)
                    .with_remedies([Remedy::CheckRangeAgain])),
            }
        };
        dirs.iter().map(read).collect()
    }
}

/// A delta, and the directory with its files.
struct NamedDelta {
    dir: PathBuf,
    delta: Delta,
}

/// What a delta has.
#[derive(Clone, Debug)]
pub struct DeltaReport {
    /// Number of its ranges.
    pub ranges: u32,
    /// Number of its shards.
    pub shards: u32,
    /// Blocks of its ranges, and what is in them.
    pub counts: Counts,
    /// Number of coins that its ranges create and do not spend.
    pub coins: u64,
    /// Number of spends of coins that its ranges do not create.
    pub spends: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Identifies what it amounts to: it is the same on each machine.
    pub content: [u8; 32],
    /// Whether it was there already.
    pub was_there: bool,
}

impl DeltaReport {
    fn of(delta: &Delta, was_there: bool) -> Self {
        let spends: u64 = delta.shards.iter().map(|shard| shard.spends).sum();
        Self {
            ranges: delta.ranges.len() as u32,
            shards: delta.shards.len() as u32,
            counts: counts_of(delta),
            coins: delta.shards.iter().map(|shard| shard.entries).sum::<u64>() - spends,
            spends,
            bytes: delta.shards.iter().map(|shard| shard.bytes).sum(),
            content: delta.content(),
            was_there,
        }
    }
}

fn counts_of(delta: &Delta) -> Counts {
    let [blocks, transactions, inputs, outputs, block_bytes, scripts] = delta.counts;
    Counts { blocks, transactions, inputs, outputs, block_bytes, scripts }
}

fn no_such(what: &str, number: u32, count: u32) -> Error {
    let last = count - 1;
    Error::new(ErrorKind::Usage, format!("there is no {what} {number}: the plan has numbers 0 to {last}"))
}

/// Returns the numbers below `count` that are not in `present`, as a list for people; `None` if all are.
fn missing(present: &[u32], count: u32) -> Option<String> {
    let mut gaps: Vec<(u32, u32)> = Vec::new();
    for number in (0..count).filter(|number| !present.contains(number)) {
        match gaps.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => gaps.push((number, number)),
        }
    }
    let name = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    (!gaps.is_empty()).then(|| gaps.iter().map(name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_named() {
        assert_eq!(missing(&[0, 1, 2], 3), None);
        assert_eq!(missing(&[1], 3).unwrap(), "0, 2");
        assert_eq!(missing(&[7, 3], 8).unwrap(), "0 to 2, 4 to 6");
    }
}
