//! The coins after the blocks at some heights, in a temporary chainstate.

use crate::{
    job::{Job, cache::Stops, read_only_job::with_read_only_job},
    stages::{
        finish::write_chainstate,
        window::{BlockResult, ConnectedBlock},
    },
};
use api::{
    disk_need::DiskNeed,
    error::Error,
    event::{Event, Watch},
    options::{ChainOptions, UndoPolicy},
    stage::Stage,
};
use disk::replace::remove_database;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use vfs::Disk;
use wire::{BlockHash, Height};

/// The block after which the coins are.
#[derive(Clone, Copy, Debug)]
pub struct AfterBlock {
    pub height: Height,
    pub hash: BlockHash,
    /// Number of transactions of all blocks up to it.
    pub transactions: u64,
}

/// Called with the job, the directory of a chainstate with the coins after a block, and that block.
pub type EachChainstate<'a> = dyn FnMut(&Job<'_>, &Path, AfterBlock) -> Result<(), Error> + 'a;

/// Returns the options for the blocks up to the highest of some heights.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if there is no height.
pub fn up_to(options: &ChainOptions, heights: &BTreeSet<Height>) -> Result<ChainOptions, Error> {
    let none = || Error::usage("there is no height to report on");
    let stop_at_height = Some(*heights.last().ok_or_else(none)?);
    Ok(ChainOptions { stop_at_height, ..options.clone() })
}

/// Gives a chainstate with the coins after each of some heights to `each`, in ascending order, in one pass
/// over the blocks. All blocks up to the highest one are checked. The chainstate is temporary, in the work
/// directory: for one height it is made as by a rebuild, for several by connecting the blocks in order,
/// without undo data.
///
/// # Errors
/// The same errors as a rebuild; those of `each`; [`api::error::ErrorKind::Usage`] if there is no height;
/// [`api::error::ErrorKind::Environment`] if a block above a set that was given is invalid, and the best
/// chain without it branches off below.
pub fn with_coins_after(
    disk: &dyn Disk,
    options: &ChainOptions,
    heights: &BTreeSet<Height>,
    each: &mut EachChainstate<'_>,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let stops = &*heights.iter().copied().collect::<Vec<_>>();
    let is_one = stops.len() == 1;
    let undo = if is_one { options.undo } else { UndoPolicy::Make };
    let options = &ChainOptions { undo, ..up_to(options, heights)? };
    let mut given = BTreeMap::new();
    with_read_only_job(disk, options, None, watch, |job, clock| {
        let dir = &*job.work.chainstate();
        let mut give = |height: Height, transactions| {
            let hash = job.plan.chain.block(height).hash;
            match given.insert(height, hash) {
                None => each(job, dir, AfterBlock { height, hash, transactions }),
                Some(before) if before == hash => Ok(()),
                Some(_) => {
                    let detail = "a block above it is invalid, and the best chain without that block has \
                                  another block here, whose coins were already given out; start over";
                    Err(Error::environment(detail).at_block(height, hash))
                }
            }
        };
        if is_one {
            // Undo data is only checked, and not kept.
            job.check_work_need(DiskNeed { undo: 0, ..job.disk_need() })?;
            let matched = job.match_spends(clock)?;
            let transactions = matched.stats.counts.transactions;
            job.watch.sink.event(Event::Started(Stage::Finish));
            job.for_each_coin(matched, clock, |coins| {
                job.work.take()?;
                let (tip, range_bytes) = (job.plan.chain.tip().hash, job.options.hooks.range_bytes);
                // No one else reads it: it needs no key.
                write_chainstate(disk, dir, [0; 8], tip, coins, range_bytes, job.threads())
                    .map_err(|error| error.discarding(|| remove_database(disk, dir)))
            })?;
            return give(job.plan.chain.tip_height(), transactions);
        }
        job.check_work_need(DiskNeed { undo: 0, ..job.disk_need() }.with_cache())?;
        job.work.take()?;
        let each = &mut |_: &ConnectedBlock| Ok(());
        let stops = Stops { heights: stops, at: &mut give };
        job.connect_each(dir, [0; 8], clock, BlockResult::Nothing, each, Some(stops))?;
        Ok(())
    })
}
