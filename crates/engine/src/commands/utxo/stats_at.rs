//! Computes what Core's `gettxoutsetinfo` returns for any height with the index of statistics, from the
//! blocks. All of them are connected to a temporary chainstate, so the statistics are those of valid blocks.

use api::{
    disk_need::DiskNeed,
    error::{Error, ErrorKind},
    event::Watch,
    options::{ChainOptions, UndoPolicy},
};
use digest::muhash::MuHash3072;
use disk::utxo_stats::UtxoCounts;
use pipeline::{
    job::{coins_after::up_to, read_only_job::with_read_only_job},
    stages::{
        stats_change::{BlockAmounts, StatsChange},
        window::{BlockResult, ConnectedBlock},
    },
};
use std::collections::BTreeSet;
use vfs::Disk;
use wire::{BlockHash, Height, Sats};

api::reported! {
/// The fields of `gettxoutsetinfo` at a height with Core's index of statistics.
#[derive(Clone, Debug)]
pub struct UtxoStatsAt {
    /// The height.
    pub height: Height,
    /// The block at this height.
    pub hash as "block_hash": BlockHash,
    /// Number of coins after it.
    pub txouts as "coins": u64,
    /// Core's measure of the set's size, independent of the database.
    pub bogosize: u64,
    /// Sum of all amounts.
    pub total_amount as "total_amount_sat": Sats,
    /// MuHash of the set, in internal byte order.
    pub muhash with "api::json::HashText": [u8; 32],
    /// Sum of all amounts that can never be spent, up to this height.
    pub total_unspendable_amount as "total_unspendable_amount_sat": Sats,
    /// The amounts that the block moves.
    pub block_info: BlockAmounts,
}
}

/// Connects all blocks up to the highest of some heights, and returns the statistics of the UTXO set after
/// each, in ascending order. The datadir is only read; the chainstate of the run is removed at its end.
///
/// # Errors
/// The same errors as [`crate::reindex()`]; [`ErrorKind::Usage`] if there is no height.
pub fn stats_at(
    disk: &dyn Disk,
    options: &ChainOptions,
    heights: &BTreeSet<Height>,
    watch: Watch<'_>,
) -> Result<Vec<UtxoStatsAt>, Error> {
    let options = &ChainOptions { undo: UndoPolicy::Make, ..up_to(options, heights)? };
    with_read_only_job(disk, options, None, watch, |job, clock| {
        job.check_work_need(DiskNeed { undo: 0, ..job.disk_need() }.with_cache())?;
        job.work.take()?;
        let mut sums = Sums { muhash: MuHash3072::new(), coins: UtxoCounts::ZERO, unspendable: 0 };
        let mut found = Vec::with_capacity(heights.len());
        let each = &mut |block: &ConnectedBlock| {
            if let Some(stats) = &block.stats {
                sums.add(stats);
                if heights.contains(&block.height) {
                    found.push(sums.at(block, &stats.amounts)?);
                }
            }
            Ok(())
        };
        let wanted = &heights.iter().copied().collect::<Vec<_>>();
        // No one else reads this chainstate: it needs no key.
        let dir = &job.work.chainstate();
        job.connect_each(dir, [0; 8], clock, BlockResult::Stats(wanted), each, None)?;
        Ok(found)
    })
}

/// What the blocks so far have changed.
struct Sums {
    muhash: MuHash3072,
    coins: UtxoCounts,
    unspendable: i64,
}

impl Sums {
    fn add(&mut self, block: &StatsChange) {
        self.muhash.combine(&block.muhash);
        self.coins.merge(block.created);
        self.coins = self.coins.without(&block.spent);
        self.unspendable += block.amounts.unspendable.total().0;
    }

    /// Returns the statistics after the block that was added last.
    fn at(&self, block: &ConnectedBlock, amounts: &BlockAmounts) -> Result<UtxoStatsAt, Error> {
        let &ConnectedBlock { height, hash, .. } = block;
        let UtxoCounts { txouts, bogosize, total_amount, .. } = self.coins;
        let too_large =
            || Error::new(ErrorKind::Internal, "the amounts exceed 64 bits").at_block(height, hash);
        Ok(UtxoStatsAt {
            height,
            hash,
            txouts,
            bogosize,
            total_amount: total_amount.ok_or_else(too_large)?,
            muhash: self.muhash.clone().finalize(),
            total_unspendable_amount: Sats(self.unspendable),
            block_info: *amounts,
        })
    }
}
