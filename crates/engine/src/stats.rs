//! What Core's `gettxoutsetinfo` says, from a chainstate on disk.

use crate::{error::Error, machine, stages::commit};
use disk::{
    chainstate::ChainstateReader,
    datadir::Datadir,
    fs::{Disk, During as _},
    index::stream_block_index,
    lock::{DatadirLock, LockMode},
    utxo_stats::stats_of_coins,
};
use std::{num::NonZeroUsize, path::PathBuf};
use wire::{BlockHash, Height, Network, Sats};

/// Which chainstate to look at, and how.
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// Core's data directory.
    pub datadir: PathBuf,
    /// The network.
    pub network: Network,
    /// Threads that read.
    pub threads: NonZeroUsize,
    /// Compute MuHash3072 too.
    pub muhash: bool,
}

/// The answers of `gettxoutsetinfo`.
#[derive(Clone, Debug)]
pub struct UtxoStatsReport {
    /// Height of the best block, if the block index knows it.
    pub height: Option<Height>,
    /// The coins are those after this block.
    pub best_block: BlockHash,
    /// Coins.
    pub txouts: u64,
    /// Transactions with coins.
    pub transactions: u64,
    /// Core's measure of size that depends on no database.
    pub bogosize: u64,
    /// Sum of all amounts.
    pub total_amount: Sats,
    /// Hash of the set, in internal byte order.
    pub hash_serialized_3: [u8; 32],
    /// MuHash of the set, if asked for, likewise.
    pub muhash: Option<[u8; 32]>,
}

/// Reads the chainstate of a datadir; nothing is written.
///
/// # Errors
/// [`crate::ErrorKind::Environment`] if another process uses it, [`crate::ErrorKind::Damaged`] if it is
/// missing or damaged.
pub fn utxo_stats(disk: &dyn Disk, options: &StatsOptions) -> Result<UtxoStatsReport, Error> {
    machine::sha256_kernel()?;
    let mut datadir = Datadir::at(&options.datadir, options.network);
    let chainstate = datadir.chainstate_dir();
    // A chainstate is enough: what --output has made has no blocks. Without one, say what is wrong with the
    // folder.
    if !disk.exists(&chainstate).during("look for", &chainstate)? {
        datadir = Datadir::open(disk, &options.datadir, options.network)?;
    }
    commit::recover_before_reading(disk, &datadir, &|_| {})?;
    let _locks = DatadirLock::take(disk, &datadir, LockMode::Read)?;
    let dir = datadir.chainstate_dir();
    let reader = ChainstateReader::open(disk, &dir)?;
    let best_block = reader.best_block();
    let stats = stats_of_coins(&reader, options.muhash, options.threads.get())?;
    // The coins are what was asked for: a missing or damaged index only costs the height.
    let mut height = None;
    let index = stream_block_index(disk, &datadir.index_dir(), |entry| {
        height = height.or((entry.hash == best_block).then_some(entry.height));
    });
    let total_amount = stats.total_amount.ok_or_else(|| {
        Error::damaged("the amounts do not fit 64 bits; the chainstate is damaged").in_file(&dir, None)
    })?;
    Ok(UtxoStatsReport {
        height: height.filter(|_| index.is_ok()),
        best_block,
        txouts: stats.txouts,
        transactions: stats.transactions,
        bogosize: stats.bogosize,
        total_amount,
        hash_serialized_3: stats.hash_serialized_3.0,
        muhash: stats.muhash.map(|muhash| muhash.0),
    })
}
