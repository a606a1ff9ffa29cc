//! Computes what Core's `gettxoutsetinfo` returns, from a chainstate on disk.

use api::{error::Error, options::ChainstateOptions, utxo_stats::UtxoStatsReport};
use disk::utxo_stats::stats_of_coins;
use pipeline::job::stored_chainstate::StoredChainstate;
use vfs::Disk;

/// Options of [`utxo_stats`].
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// The chainstate.
    pub chainstate: ChainstateOptions,
    /// Compute MuHash3072 too.
    pub muhash: bool,
}

/// Reads the chainstate of a datadir; writes nothing.
///
/// # Errors
/// [`api::error::ErrorKind::Environment`] if another process uses it, [`api::error::ErrorKind::Damaged`] if
/// it is missing or damaged.
pub fn utxo_stats(disk: &dyn Disk, options: &StatsOptions) -> Result<UtxoStatsReport, Error> {
    let chainstate = StoredChainstate::open(disk, &options.chainstate)?;
    let threads = options.chainstate.threads.get();
    let stats = stats_of_coins(&chainstate.reader, options.muhash, threads)?;
    let best_block = chainstate.reader.best_block();
    UtxoStatsReport::new(&stats, options.chainstate.network, chainstate.height, best_block)
        .ok_or_else(|| chainstate.too_large_amounts())
}
