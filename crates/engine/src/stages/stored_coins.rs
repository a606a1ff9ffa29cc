//! The coins of a chainstate, as what lies below a cache.

use coins::{CoinSource, OwnedCoin};
use disk::{DiskError, chainstate::ChainstateReader};
use wire::{Coin, OutPoint};

/// The coins of a chainstate on disk.
pub struct StoredCoins<'d>(pub ChainstateReader<'d>);

impl CoinSource for StoredCoins<'_> {
    type Error = DiskError;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, DiskError> {
        let value = self.0.coin_value(outpoint)?;
        // The reader reports values that are not coins.
        Ok(value.and_then(|value| Coin::read_chainstate_value(&value).ok().map(OwnedCoin::from)))
    }
}
