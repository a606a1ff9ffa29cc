//! Computes what Core's `gettxoutsetinfo` returns, from a chainstate on disk.

use crate::{
    api::{error::Error, machine},
    job::session::lock_for_reading,
};
use disk::{chainstate::ChainstateReader, datadir::Datadir, index::find_height, utxo_stats::stats_of_coins};
use std::{num::NonZeroUsize, path::PathBuf};
use vfs::{Disk, During as _};
use wire::{BlockHash, Height, Network, Sats};

/// Options of [`utxo_stats`].
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// Core's data directory.
    pub datadir: PathBuf,
    /// The network.
    pub network: Network,
    /// Number of reading threads.
    pub threads: NonZeroUsize,
    /// Compute MuHash3072 too.
    pub muhash: bool,
}

/// The fields of `gettxoutsetinfo`.
#[derive(Clone, Debug)]
pub struct UtxoStatsReport {
    /// Height of the best block; `None` if the block index does not have it.
    pub height: Option<Height>,
    /// The chainstate's best block.
    pub best_block: BlockHash,
    /// Number of coins.
    pub txouts: u64,
    /// Number of transactions with coins.
    pub transactions: u64,
    /// Core's measure of the set's size, independent of the database.
    pub bogosize: u64,
    /// Sum of all amounts.
    pub total_amount: Sats,
    /// Hash of the set, in internal byte order.
    pub hash_serialized_3: [u8; 32],
    /// MuHash of the set, in internal byte order; `None` if it was not asked for.
    pub muhash: Option<[u8; 32]>,
}

/// Reads the chainstate of a datadir; writes nothing.
///
/// # Errors
/// [`crate::ErrorKind::Environment`] if another process uses it, [`crate::ErrorKind::Damaged`] if it is
/// missing or damaged.
pub fn utxo_stats(disk: &dyn Disk, options: &StatsOptions) -> Result<UtxoStatsReport, Error> {
    machine::sha256_kernel()?;
    let mut datadir = Datadir::at(&options.datadir, options.network);
    let chainstate = datadir.chainstate_dir();
    // A chainstate is enough: what --output has made has no blocks. Without one, report what is wrong with
    // the directory.
    if !disk.exists(&chainstate).during("look for", &chainstate)? {
        datadir = Datadir::open(disk, &options.datadir, options.network)?;
    }
    let _lock = lock_for_reading(disk, &datadir, &|_| {})?;
    let dir = datadir.chainstate_dir();
    let reader = ChainstateReader::open(disk, &dir)?;
    let best_block = reader.best_block();
    let stats = stats_of_coins(&reader, options.muhash, options.threads.get())?;
    // The coins are what was asked for: if the index is missing or damaged, only the height is unknown.
    let height = find_height(disk, &datadir.index_dir(), &best_block).ok().flatten();
    let total_amount = stats.total_amount.ok_or_else(|| {
        Error::damaged("the amounts exceed 64 bits; the chainstate is damaged").in_file(&dir, None)
    })?;
    Ok(UtxoStatsReport {
        height,
        best_block,
        txouts: stats.txouts,
        transactions: stats.transactions,
        bogosize: stats.bogosize,
        total_amount,
        hash_serialized_3: stats.hash_serialized_3.0,
        muhash: stats.muhash.map(|muhash| muhash.0),
    })
}
