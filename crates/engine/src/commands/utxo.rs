//! The coins of a chainstate on disk, or those after the block at any height.

mod get;
mod read;
mod scan;
mod stats;
mod stats_at;

pub use api::utxo_stats::UtxoStatsReport;
pub use get::{GetReport, get};
pub use pipeline::{
    job::stored_chainstate::StoredCoin,
    stages::stats_change::{BlockAmounts, UnspendableAmounts},
};
pub use read::{CreationTimes, EachCoin, EachSet, GiveCoins, StoredCoins, read, read_after};
pub use scan::{FoundCoin, ScanReport, scan};
pub use stats::stats;
pub use stats_at::{UtxoStatsAt, stats_at};
