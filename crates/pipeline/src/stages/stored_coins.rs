//! The coins of a chainstate, as the source below a cache.

use api::error::Error;
use chain::threads::for_all;
use coins::{Changes, CoinSource, CoinsCache, OwnedCoin};
use disk::{DiskError, chainstate::ChainstateReader};
use wire::{OutPoint, coin::COIN_KEY_PREFIX};

/// The coins of a chainstate, with changes that are not written yet.
pub type TipCoins<'d> = CoinsCache<StoredCoins<'d>>;

/// Number of changes that are worth a table, and a thread, of their own.
const RANGE_CHANGES: usize = 50_000;

/// The coins of a chainstate on disk.
pub struct StoredCoins<'d>(pub ChainstateReader<'d>);

impl CoinSource for StoredCoins<'_> {
    type Error = DiskError;

    fn coin(&self, outpoint: &OutPoint) -> Result<Option<OwnedCoin>, DiskError> {
        Ok(self.0.lookup().coin(outpoint)?.map(OwnedCoin::from))
    }
}

/// Writes all changes of the coins to the chainstate, on up to `threads` threads, each of which writes a
/// range of keys. Of the unspent coins, the youngest stay in memory, in up to `stay_bytes` bytes.
///
/// # Errors
/// Any I/O error. The chainstate is then as it was, or, if only the last sync failed, as after the change.
pub fn flush(coins: &mut TipCoins<'_>, threads: usize, stay_bytes: usize) -> Result<(), Error> {
    coins.flush(stay_bytes, |StoredCoins(chainstate), best, changes: &Changes<'_>| {
        let update = chainstate.update(best)?;
        let count = threads.min(changes.len() / RANGE_CHANGES).max(1);
        let border = |range: usize| changes.len() * range / count;
        let first = |range: usize| changes.outpoint(border(range)).filter(|_| (1..count).contains(&range));
        let ranges = for_all(threads, 0..count, |range| {
            let (start, end) = (first(range), first(range + 1));
            let mut rows = update.range(start.as_ref(), end.as_ref())?;
            for (outpoint, coin) in changes.range(border(range)..border(range + 1)) {
                rows.set(&outpoint, coin.as_ref())?;
            }
            rows.finish()
        })?;
        Ok(update.commit(ranges.into_iter().collect::<Result<Vec<_>, DiskError>>()?)?)
    })
}

/// Merges tables, on up to `threads` threads. If `should_stop` returns true, nothing is merged.
///
/// # Errors
/// The same errors as [`flush`]; damage to the chainstate.
pub fn merge(
    StoredCoins(chainstate): &mut StoredCoins<'_>,
    threads: usize,
    should_stop: impl Fn() -> bool + Sync,
) -> Result<(), Error> {
    let Some(merge) = chainstate.begin_merge()? else { return Ok(()) };
    // All other rows are in the first range.
    let first = |range: usize| match range {
        0 => Vec::new(),
        _ => vec![COIN_KEY_PREFIX, (256 * range / threads) as u8],
    };
    let merge_range = |range: usize| {
        let end = (range + 1 < threads).then(|| first(range + 1));
        merge.range(&first(range), end.as_deref()).merge(&should_stop)
    };
    let merged = for_all(threads, 0..threads, merge_range)?;
    match merged.into_iter().collect::<Result<Option<Vec<_>>, _>>()? {
        Some(ranges) => Ok(merge.commit(ranges)?),
        // Some ranges were stopped.
        None => Ok(()),
    }
}
