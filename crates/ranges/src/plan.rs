//! Makes the plan of ranges, and says which files a range needs.

use super::range_plan::RangePlan;
use api::{
    error::Error,
    event::Watch,
    machine,
    options::{ChainOptions, UndoPolicy},
    remedy::Remedy,
};
use chain::blocks::{chain::Chain, files::Files};
use disk::{
    blk::RECORD_HEADER_LEN,
    datadir::FileKind,
    range_plan::{self, MAX_RANGES, MAX_SHARDS, PlannedBlock},
};
use pipeline::{job::read_only_job::with_read_only_job, stages::parts::block_sizes};
use rules::CORE_VERSION;
use std::{collections::BTreeMap, path::Path};
use vfs::{Disk, During as _};
use wire::{FileNo, Height, MAX_BLOCK_LEN};

/// Number of shards, if the caller does not choose it: as many as ranges, but no more than this.
const DEFAULT_SHARDS_MAX: u32 = 64;

#[derive(Clone, Debug)]
pub struct PlanRangesOptions {
    pub chain: ChainOptions,
    pub ranges: u32,
    /// Number of shards of a delta; `None` for as many as ranges, but at most 64.
    pub shards: Option<u32>,
}

/// Cuts the chain of a datadir into ranges of about equal size, and writes the plan to `path`.
///
/// # Errors
/// The same errors as `reindex` before it reads blocks, and errors of these [kinds](api::error::ErrorKind):
/// `Usage` for numbers of ranges or shards that are impossible, or if there is a file at `path`; `Damaged` if
/// undo data is missing.
pub fn plan_ranges(
    disk: &dyn Disk,
    options: &PlanRangesOptions,
    path: &Path,
    watch: Watch<'_>,
) -> Result<RangePlan, Error> {
    let PlanRangesOptions { chain, ranges, shards } = options;
    let shards = shards.unwrap_or((*ranges).clamp(1, DEFAULT_SHARDS_MAX));
    if !(1..=MAX_RANGES).contains(ranges) || !(1..=MAX_SHARDS).contains(&shards) {
        let text = format!("there can be 1 to {MAX_RANGES} ranges, and 1 to {MAX_SHARDS} shards");
        return Err(Error::usage(text));
    }
    if disk.exists(path).during("look for", path)? {
        // Without the file that has its digest, it is of no use.
        let error = Error::usage("it exists already").in_file(path, None);
        return Err(error.with_remedies([Remedy::OtherName]));
    }
    let chain = &ChainOptions { undo: UndoPolicy::Trust, ..chain.clone() };
    with_read_only_job(disk, chain, None, watch, |job, _| {
        let (of_job, params) = (&job.plan.chain, job.files.params);
        let count = of_job.block_count();
        if *ranges as usize > count {
            return Err(Error::usage(format!("the chain has {count} blocks, fewer than {ranges} ranges")));
        }
        let plan = range_plan::RangePlan {
            network: params.network,
            magic: params.magic,
            rules: CORE_VERSION.to_owned(),
            activation_heights: params.activation_heights(),
            scripts: chain.scripts.are_run(),
            assumed_valid_to: job.plan.choice.assumed_valid_to,
            checked_to: job.plan.choice.checked_to,
            coinbase_key: machine::random_key()?,
            shards,
            ends: cut(&sizes(of_job, job.files)?, *ranges as usize),
            blocks: (0..count as u32).map(|height| planned(of_job, Height(height))).collect(),
        };
        let digest = plan.write(disk, path)?;
        Ok(RangePlan { plan, digest })
    })
}

fn planned(chain: &Chain, height: Height) -> PlannedBlock {
    let block = chain.block(height);
    PlannedBlock {
        hash: block.hash,
        median_time: chain.median_times()[height.0 as usize],
        file: block.file,
        data_pos: block.data_pos.0 as u32,
        undo_pos: block.undo_pos.map_or(0, |pos| pos.0 as u32),
    }
}

/// Returns the approximate size of each block in bytes: what follows it in its file.
fn sizes(chain: &Chain, files: &Files<'_>) -> Result<Vec<u64>, Error> {
    let mut sizes: Vec<u64> = block_sizes(chain).into_iter().map(u64::from).collect();
    for (file, heights) in chain.by_file() {
        let Some((&last, others)) = heights.split_last() else { continue };
        // bitcoind may have allocated space behind it.
        let largest = others.iter().map(|height| sizes[height.0 as usize]).max();
        let max = largest.unwrap_or(MAX_BLOCK_LEN as u64);
        let rest = files.len(FileKind::Blk, file)?.saturating_sub(chain.block(last).data_pos.0);
        sizes[last.0 as usize] = rest.min(max);
    }
    Ok(sizes)
}

/// Cuts blocks of these sizes into `count` ranges of about equal sizes, each of at least one block. Returns
/// the height after the last block of each.
fn cut(sizes: &[u64], count: usize) -> Vec<u32> {
    let total: u64 = sizes.iter().sum::<u64>().max(1);
    let (mut ends, mut sum) = (Vec::with_capacity(count), 0);
    for (height, size) in sizes.iter().enumerate() {
        sum += size;
        let (done, left) = (ends.len() + 1, sizes.len() - height - 1);
        let is_full = u128::from(sum) * count as u128 >= u128::from(total) * done as u128;
        if done < count && is_full && left > count - done || done <= count && left == count - done {
            ends.push(height as u32 + 1);
        }
    }
    ends
}

/// The bytes of a file that a range needs.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct RangeFile {
    /// Its name in the directory `blocks`.
    pub file: String,
    /// Position of the first byte.
    pub first_byte: u64,
    /// Position after the last byte; the end of the file if there is none.
    pub end_byte: Option<u64>,
}

impl RangePlan {
    /// Returns the bytes of block and undo files that a range needs. They may have some of other blocks
    /// between them.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Usage`] if there is no such range.
    pub fn files(&self, range: u32) -> Result<Vec<RangeFile>, Error> {
        let heights = self.heights(range)?;
        let mut records: BTreeMap<(u32, bool), Vec<(u32, bool)>> = BTreeMap::new();
        for (height, block) in (0..).zip(&self.plan.blocks) {
            let is_needed = heights.contains(&height);
            records.entry((block.file.0, false)).or_default().push((block.data_pos, is_needed));
            if block.undo_pos > 0 {
                records.entry((block.file.0, true)).or_default().push((block.undo_pos, is_needed));
            }
        }
        let spans = records.into_iter().filter_map(|((file, is_undo), mut records)| {
            records.sort_unstable();
            let first = records.iter().position(|(_, is_needed)| *is_needed)?;
            let last = records.iter().rposition(|(_, is_needed)| *is_needed)?;
            let frame = |&(pos, _): &(u32, bool)| u64::from(pos).saturating_sub(RECORD_HEADER_LEN as u64);
            let kind = if is_undo { FileKind::Rev } else { FileKind::Blk };
            Some(RangeFile {
                file: kind.file_name(FileNo(file)),
                first_byte: records.get(first).map_or(0, frame),
                end_byte: records.get(last + 1).map(frame),
            })
        });
        Ok(spans.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_have_about_as_many_bytes() {
        assert_eq!(cut(&[10; 8], 4), [2, 4, 6, 8]);
        assert_eq!(cut(&[1, 1, 1, 1, 1, 95], 2), [5, 6]);
        assert_eq!(cut(&[100, 0, 0], 3), [1, 2, 3]);
        assert_eq!(cut(&[0, 0, 100], 2), [2, 3]);
        assert_eq!(cut(&[100, 0, 0], 1), [3]);
        assert_eq!(cut(&[0, 0, 0, 0], 2), [3, 4]);
    }

    proptest! {
        #[test]
        fn each_range_has_a_block_and_the_last_one_ends_the_chain(
            sizes in prop::collection::vec(prop_oneof![Just(0), 0u64..1000], 1..60),
            count in 1usize..60,
        ) {
            let count = count.min(sizes.len());
            let ends = cut(&sizes, count);
            prop_assert_eq!(ends.len(), count);
            prop_assert!(ends.is_sorted_by(|a, b| a < b) && ends[0] > 0);
            prop_assert_eq!(ends[count - 1] as usize, sizes.len());
        }
    }
}
