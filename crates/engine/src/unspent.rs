//! The coins after the last block, wherever they are: in memory, in runs, or both, to be merged.

use crate::{error::Error, stages::spill::MergeInput};
use coins::{
    Entry, Merge, NetSize, SurvivorShard, Survivors,
    merge::{MergeError, ShardSource},
};
use disk::sorted_run::SortedRunReader;
use wire::{Coin, OutPoint};

/// What the join and the runs have left. Until it was gone through, spends may be among it whose coins are
/// not.
pub struct Unspent {
    /// Whether spends are compared with the coins they meet.
    exact: bool,
    shards: Vec<SurvivorShard>,
    runs: Vec<SortedRunReader>,
}

/// Why coins could not be gone through.
pub enum ForEachError {
    /// Creations and spends do not fit each other: the judge must tell.
    Mismatch,
    /// What the file system or the caller said.
    Error(Error),
}

impl<E: Into<Error>> From<E> for ForEachError {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Some shards in a row.
pub struct Range {
    /// Position among the ranges.
    pub index: u32,
    exact: bool,
    first: usize,
    shards: Vec<SurvivorShard>,
}

impl Unspent {
    /// Of what is in memory and what is in runs; `exact` as in [`Merge::new`].
    #[must_use]
    pub fn new(survivors: Survivors, runs: Vec<SortedRunReader>, exact: bool) -> Self {
        Self { exact, shards: survivors.into_shards(), runs }
    }

    /// How many coins there are, if creations and spends fit each other.
    #[must_use]
    pub fn coins(&self) -> u64 {
        (0..self.shards.len()).map(|shard| self.size(shard).coins.max(0) as u64).sum()
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        (0..self.shards.len()).map(|shard| row_bytes(self.size(shard))).sum()
    }

    fn size(&self, shard: usize) -> NetSize {
        let net = |run: &SortedRunReader| run.meta().net.get(shard).copied().unwrap_or_default();
        self.shards[shard].size() + self.runs.iter().map(net).sum()
    }

    /// Groups shards, in order, to ranges of at most `bytes` of rows; a larger shard is a range by itself.
    /// Which ranges there are depends on the coins only.
    #[must_use]
    pub fn into_ranges(self, bytes: u64) -> (Vec<Range>, Vec<SortedRunReader>) {
        let sizes: Vec<NetSize> = (0..self.shards.len()).map(|shard| self.size(shard)).collect();
        let mut ranges: Vec<Range> = Vec::new();
        let mut room = 0;
        for ((first, shard), size) in (0..).zip(self.shards).zip(sizes) {
            let len = row_bytes(size);
            match ranges.last_mut() {
                Some(range) if len <= room => range.shards.push(shard),
                _ => {
                    room = bytes;
                    ranges.push(Range {
                        index: ranges.len() as u32,
                        exact: self.exact,
                        first,
                        shards: vec![shard],
                    });
                }
            }
            room = room.saturating_sub(len);
        }
        (ranges, self.runs)
    }
}

fn row_bytes(size: NetSize) -> u64 {
    (size.key_bytes + size.value_bytes).max(0) as u64
}

impl Range {
    /// Calls `each` with the coins in the order of their keys.
    ///
    /// # Errors
    /// [`ForEachError`]; what `each` says ends it.
    pub fn each(
        self,
        runs: &[SortedRunReader],
        mut each: impl FnMut(&OutPoint, &Coin<'_>) -> Result<(), Error>,
    ) -> Result<(), ForEachError> {
        let mut one = |entry: Entry<'_>| match entry.spend {
            true => Err(ForEachError::Mismatch),
            false => Ok(each(&entry.outpoint, &entry.coin)?),
        };
        if runs.is_empty() {
            return self.shards.into_iter().try_for_each(|shard| shard.sort().iter().try_for_each(&mut one));
        }
        let range = self.first..self.first + self.shards.len();
        let mut parts = vec![MergeInput::Memory(ShardSource::new(self.shards))];
        parts.extend(runs.iter().map(|run| MergeInput::of_run(run, range.clone())));
        let mut merge = Merge::new(parts, self.exact)?;
        loop {
            match merge.advance() {
                Ok(Some(entry)) => one(entry)?,
                Ok(None) => return Ok(()),
                Err(MergeError::Mismatch(_)) => return Err(ForEachError::Mismatch),
                Err(MergeError::EntrySource(error)) => return Err(error.into()),
            }
        }
    }
}
