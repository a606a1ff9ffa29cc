//! What `gettxoutsetinfo` returns.

use crate::{error::Error, hex_reversed, subject::Subject};
use disk::utxo_stats::UtxoStats;
use rules::ChainParams;
use wire::{BlockHash, Height, Network, Sats};

reported! {
/// The fields of `gettxoutsetinfo`.
#[derive(Clone, Debug)]
pub struct UtxoStatsReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the best block; `None` if the block index does not have it.
    pub height: Option<Height>,
    /// The chainstate's best block.
    pub best_block as "block_hash": BlockHash,
    /// Number of coins.
    pub txouts as "coins": u64,
    /// Number of transactions with coins.
    pub transactions: u64,
    /// Core's measure of the set's size, independent of the database.
    pub bogosize: u64,
    /// Sum of all amounts.
    pub total_amount as "total_amount_sat": Sats,
    /// Hash of the set, in internal byte order.
    pub hash_serialized_3 with "crate::json::HashText": [u8; 32],
    /// Whether Core's source pins the same hash for the best block; `None` if it pins none.
    pub pinned as "matches_core_assumeutxo_hash": Option<bool>,
    /// MuHash of the set, in internal byte order; `None` if it was not asked for.
    pub muhash with "crate::json::OptionalHashText": Option<[u8; 32]>,
}
}

impl UtxoStatsReport {
    /// The report about the coins after a block; `None` if the sum of the amounts does not fit into 64 bits.
    pub fn new(
        stats: &UtxoStats,
        network: Network,
        height: Option<Height>,
        best_block: BlockHash,
    ) -> Option<Self> {
        Some(Self {
            network,
            height,
            best_block,
            txouts: stats.counts.txouts,
            transactions: stats.counts.transactions,
            bogosize: stats.counts.bogosize,
            total_amount: stats.counts.total_amount?,
            hash_serialized_3: stats.hash_serialized_3,
            pinned: ChainParams::of(network).has_pinned_hash(&best_block, &stats.hash_serialized_3),
            muhash: stats.muhash,
        })
    }

    /// Refuses coins that are not those of their block.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Damaged`] if Core's source pins another hash.
    pub fn check_pinned(&self) -> Result<(), Error> {
        if self.pinned != Some(false) {
            return Ok(());
        }
        let detail = format!(
            "hash_serialized_3 of the coins is {}, not the one that Bitcoin Core's source has for block {}",
            hex_reversed(&self.hash_serialized_3),
            self.best_block
        );
        Err(Error::damaged(detail).about(Subject::Chainstate))
    }
}
