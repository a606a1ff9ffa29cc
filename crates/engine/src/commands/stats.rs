//! Computes what Core's `gettxoutsetinfo` returns, from a chainstate on disk.

use crate::{
    api::{error::Error, options::ChainstateOptions, remedy::Remedy},
    hex_reversed,
    job::stored_chainstate::StoredChainstate,
};
use disk::utxo_stats::{UtxoStats, stats_of_coins};
use rules::ChainParams;
use vfs::Disk;
use wire::{BlockHash, Height, Network, Sats};

/// Options of [`utxo_stats`].
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// The chainstate.
    pub chainstate: ChainstateOptions,
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
    /// Whether Core's source pins the same hash for the best block; `None` if it pins none.
    pub pinned: Option<bool>,
    /// MuHash of the set, in internal byte order; `None` if it was not asked for.
    pub muhash: Option<[u8; 32]>,
}

impl UtxoStatsReport {
    /// The report about the coins after a block; `None` if the sum of the amounts does not fit into 64 bits.
    pub(crate) fn new(
        stats: &UtxoStats,
        network: Network,
        (height, best_block): (Option<Height>, BlockHash),
    ) -> Option<Self> {
        Some(Self {
            height,
            best_block,
            txouts: stats.txouts,
            transactions: stats.transactions,
            bogosize: stats.bogosize,
            total_amount: stats.total_amount?,
            hash_serialized_3: stats.hash_serialized_3.0,
            pinned: ChainParams::of(network).has_pinned_hash(&best_block, &stats.hash_serialized_3.0),
            muhash: stats.muhash.map(|muhash| muhash.0),
        })
    }

    /// Refuses coins that are not those of their block.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Damaged`] if Core's source pins another hash.
    pub fn check_pinned(&self) -> Result<(), Error> {
        if self.pinned != Some(false) {
            return Ok(());
        }
        let detail = format!(
            "hash_serialized_3 of the coins is {}, not the one that Bitcoin Core's source has for block {}",
            hex_reversed(&self.hash_serialized_3),
            self.best_block
        );
        Err(Error::damaged(detail).with_remedies([Remedy::RebuildChainstate]))
    }
}

/// Reads the chainstate of a datadir; writes nothing.
///
/// # Errors
/// [`crate::ErrorKind::Environment`] if another process uses it, [`crate::ErrorKind::Damaged`] if it is
/// missing or damaged.
pub fn utxo_stats(disk: &dyn Disk, options: &StatsOptions) -> Result<UtxoStatsReport, Error> {
    let chainstate = StoredChainstate::open(disk, &options.chainstate)?;
    let threads = options.chainstate.threads.get();
    let stats = stats_of_coins(&chainstate.reader, options.muhash, threads)?;
    let block = (chainstate.height, chainstate.reader.best_block());
    UtxoStatsReport::new(&stats, options.chainstate.network, block)
        .ok_or_else(|| chainstate.too_large_amounts())
}
