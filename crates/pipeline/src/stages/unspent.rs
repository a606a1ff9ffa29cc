//! The coins after the last block: in memory, in sorted runs, or both, to be merged.

use crate::stages::spill::MergeInput;
use api::error::Error;
use coins::{
    Entry, Merge, NetSize, SHARDS, SurvivorShard, Survivors,
    merge::{MergeError, ShardSource},
};
use disk::sorted_run::SortedRunReader;
use wire::{Coin, OutPoint};

/// What the join and the sorted runs have left. A spend without a coin may be among them, which only a walk
/// shows.
pub struct Unspent {
    shards: Vec<SurvivorShard>,
    runs: Vec<SortedRunReader>,
}

/// Why the coins could not be walked.
pub enum ForEachError {
    /// Creations and spends do not match; sequential validation must find the cause.
    Mismatch,
    /// An I/O error, or an error of the callback.
    Error(Error),
}

impl ForEachError {
    /// After a mismatch, calls `discard` to remove what was made of the coins: they may come anew, and space
    /// is needed until then.
    pub fn discarding<E: Into<Error>>(self, discard: impl FnOnce() -> Result<(), E>) -> Self {
        match self {
            Self::Mismatch => discard().err().map_or(Self::Mismatch, Self::from),
            error @ Self::Error(_) => error,
        }
    }

    /// Converts to an error, for callers that cannot use the coins of sequential validation.
    pub fn without_fallback(self) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Mismatch => Error::inconsistent_data(),
        }
    }
}

impl<E: Into<Error>> From<E> for ForEachError {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Consecutive shards.
pub struct Range {
    /// Index among the ranges.
    pub index: u32,
    first: usize,
    shards: Vec<SurvivorShard>,
}

impl Unspent {
    pub fn new(survivors: Survivors, runs: Vec<SortedRunReader>) -> Self {
        Self { shards: survivors.into_shards(), runs }
    }

    /// Coins that are all in sorted runs.
    pub fn of_runs(runs: Vec<SortedRunReader>) -> Self {
        Self { shards: (0..SHARDS).map(|_| SurvivorShard::empty()).collect(), runs }
    }

    /// Number of coins, if creations and spends match.
    pub fn coins(&self) -> u64 {
        (0..self.shards.len()).map(|shard| self.size(shard).coins.max(0) as u64).sum()
    }

    pub fn row_bytes(&self) -> u64 {
        (0..self.shards.len()).map(|shard| row_bytes(self.size(shard))).sum()
    }

    fn size(&self, shard: usize) -> NetSize {
        let net = |run: &SortedRunReader| run.meta().net.get(shard).copied().unwrap_or_default();
        self.shards[shard].size() + self.runs.iter().map(net).sum()
    }

    /// Groups the 256 shards into `count` ranges, one for each shard of a delta: number n begins at shard
    /// n · 256 / `count`.
    pub fn into_delta_shards(self, count: usize) -> (Vec<Range>, Vec<SortedRunReader>) {
        let mut shards = self.shards.into_iter();
        let mut range = |index: usize| {
            let (first, end) = (index * SHARDS / count, (index + 1) * SHARDS / count);
            Range { index: index as u32, first, shards: shards.by_ref().take(end - first).collect() }
        };
        ((0..count).map(&mut range).collect(), self.runs)
    }

    /// Groups consecutive shards into ranges of at most `bytes` of rows; a larger shard is a range by itself.
    /// The ranges depend only on the coins.
    pub fn into_ranges(self, bytes: u64) -> (Vec<Range>, Vec<SortedRunReader>) {
        let sizes: Vec<NetSize> = (0..self.shards.len()).map(|shard| self.size(shard)).collect();
        let mut ranges: Vec<Range> = Vec::new();
        let mut free_bytes = 0;
        for ((first, shard), size) in (0..).zip(self.shards).zip(sizes) {
            let len = row_bytes(size);
            match ranges.last_mut() {
                Some(range) if len <= free_bytes => range.shards.push(shard),
                _ => {
                    free_bytes = bytes;
                    ranges.push(Range { index: ranges.len() as u32, first, shards: vec![shard] });
                }
            }
            free_bytes = free_bytes.saturating_sub(len);
        }
        let shards: usize = ranges.iter().map(|range| range.shards.len()).sum();
        assert_eq!(shards, SHARDS, "each shard is in one range");
        (ranges, self.runs)
    }
}

fn row_bytes(size: NetSize) -> u64 {
    (size.key_bytes + size.value_bytes).max(0) as u64
}

impl Range {
    /// Calls `each` with the coins in key order.
    ///
    /// # Errors
    /// [`ForEachError`]; an error of `each` ends the walk.
    pub fn each(
        self,
        runs: &[SortedRunReader],
        mut each: impl FnMut(&OutPoint, &Coin<'_>) -> Result<(), Error>,
    ) -> Result<(), ForEachError> {
        self.each_entry(runs, |entry| match entry.is_spend {
            true => Err(ForEachError::Mismatch),
            false => Ok(each(&entry.outpoint, &entry.coin)?),
        })
    }

    /// Calls `visit` with the coins, and with the spends that have no coin, in key order.
    ///
    /// # Errors
    /// [`ForEachError`]; an error of `visit` ends the walk.
    pub fn each_entry(
        self,
        runs: &[SortedRunReader],
        mut visit: impl FnMut(Entry<'_>) -> Result<(), ForEachError>,
    ) -> Result<(), ForEachError> {
        if runs.is_empty() {
            return self
                .shards
                .into_iter()
                .try_for_each(|shard| shard.sort().iter().try_for_each(&mut visit));
        }
        let range = self.first..self.first + self.shards.len();
        let mut inputs = vec![MergeInput::Memory(ShardSource::new(self.shards))];
        inputs.extend(runs.iter().map(|run| MergeInput::of_run(run, range.clone())));
        let mut merge = Merge::new(inputs)?;
        while !merge.is_at_end() {
            match merge.advance() {
                Ok(Some(entry)) => visit(entry)?,
                Ok(None) => {}
                Err(MergeError::Mismatch(_)) => return Err(ForEachError::Mismatch),
                Err(MergeError::EntrySource(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
