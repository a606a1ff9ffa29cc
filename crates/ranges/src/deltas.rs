//! Deltas on disk, and what is said of them.

use super::range_plan::RangePlan;
use api::{counts::Counts, error::Error, json::DigestText, remedy::Remedy};
use disk::delta::Delta;
use std::{collections::BTreeSet, path::PathBuf};
use vfs::Disk;

/// A delta, and the directory with its files.
pub(super) struct NamedDelta {
    pub(super) dir: PathBuf,
    pub(super) delta: Delta,
}

api::reported! {
/// What a delta has.
#[derive(Clone, Debug)]
pub struct DeltaReport {
    /// Number of its ranges.
    pub ranges: u32,
    /// Number of its shards.
    pub shards: u32,
    /// Blocks of its ranges, and what is in them.
    pub counts [flatten]: Counts,
    /// Number of coins that its ranges create and do not spend.
    pub coins: u64,
    /// Number of spends of coins that its ranges do not create.
    pub spends: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Identifies what it amounts to: it is the same on each machine.
    pub content as "content_sha256" with "DigestText": [u8; 32],
    /// Whether it was there already.
    pub was_there: bool,
}
}

impl DeltaReport {
    pub(super) fn of(delta: &Delta, was_there: bool) -> Self {
        let spends: u64 = delta.shards.iter().map(|shard| shard.spends).sum();
        Self {
            ranges: delta.ranges.len() as u32,
            shards: delta.shards.len() as u32,
            counts: Counts::of_words(delta.counts),
            coins: delta.shards.iter().map(|shard| shard.entries).sum::<u64>() - spends,
            spends,
            bytes: delta.shards.iter().map(|shard| shard.bytes).sum(),
            content: delta.content(),
            was_there,
        }
    }
}

impl RangePlan {
    /// Reads the lists of deltas, and checks that they are of this plan.
    pub(super) fn read_deltas(&self, disk: &dyn Disk, dirs: &[PathBuf]) -> Result<Vec<NamedDelta>, Error> {
        let read = |dir: &PathBuf| {
            let delta = Delta::read(disk, dir)?;
            if delta.plan != self.digest {
                return Err(Error::usage("this delta is of another plan").in_file(dir, None));
            }
            let is_known = delta.ranges.iter().all(|range| range.number < self.ranges())
                && delta.shards.iter().all(|shard| shard.number < self.shards());
            match is_known {
                true => Ok(NamedDelta { dir: dir.clone(), delta }),
                false => Err(false_delta("it has ranges or shards that the plan has not").in_file(dir, None)),
            }
        };
        dirs.iter().map(read).collect()
    }
}

/// The error for deltas that are not all that are needed, or do not go together.
pub(super) fn usage(detail: impl Into<String>) -> Error {
    Error::usage(detail).with_remedies([Remedy::GiveAllDeltas])
}

/// The error for a delta that is not what the check of its range makes.
pub(super) fn false_delta(detail: impl Into<String>) -> Error {
    Error::damaged(detail).with_remedies([Remedy::CheckRangeAgain])
}

/// Returns the numbers below `count` that are not in `present`, as a list for people; `None` if all are.
pub(super) fn missing(present: &[u32], count: u32) -> Option<String> {
    let present: BTreeSet<u32> = present.iter().copied().collect();
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
