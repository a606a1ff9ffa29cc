//! Coins on disk in the order of the chainstate's keys: those of a chainstate, or of a snapshot.

use crate::stages::coin_sink::INTERRUPT_CHECK_INTERVAL;
use api::{
    error::Error,
    event::{CoinMeter, Watch},
};
use disk::{
    DiskError,
    chainstate::CoinCursor,
    snapshot::{SnapshotMetadata, SnapshotReader},
};
use rules::ChainParams;
use wire::{Coin, OutPoint};

/// Reads one coin after another.
pub trait CoinReader {
    /// Returns the next coin; `None` after the last one.
    ///
    /// # Errors
    /// Damage; any I/O error.
    fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, DiskError>;
}

impl CoinReader for SnapshotReader {
    fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, DiskError> {
        self.advance()
    }
}

impl CoinReader for CoinCursor<'_> {
    fn advance(&mut self) -> Result<Option<(OutPoint, Coin<'_>)>, DiskError> {
        self.advance()
    }
}

/// Calls `each` with all coins, of which there are about `coins_total`; 0 if that is not known. Returns their
/// number.
///
/// # Errors
/// Damage; any I/O error; errors of `each`; [`api::error::ErrorKind::Interrupted`].
pub fn each_coin(
    reader: &mut dyn CoinReader,
    coins_total: u64,
    watch: Watch<'_>,
    mut each: impl FnMut(&OutPoint, &Coin<'_>) -> Result<(), Error>,
) -> Result<u64, Error> {
    let (meter, mut coins) = (CoinMeter::new(watch.sink, coins_total), 0u64);
    while let Some((outpoint, coin)) = reader.advance()? {
        each(&outpoint, &coin)?;
        coins += 1;
        if coins.is_multiple_of(INTERRUPT_CHECK_INTERVAL) {
            // Txids are uniformly distributed.
            let estimate = coins * 256 / (u64::from(outpoint.txid.0[0]) + 1);
            meter.show(coins, if coins_total > 0 { coins_total } else { estimate });
        }
        Error::check_interrupt(watch.interrupt)?;
    }
    Ok(coins)
}

/// The error for a snapshot that is for another network than the datadir.
pub fn other_network(snapshot: &SnapshotMetadata, params: &ChainParams) -> Error {
    let (snapshot, datadir) = (snapshot.network(), params.network);
    let detail = format!("the snapshot is for the network {snapshot}, the datadir for {datadir}");
    Error::usage(detail)
}
