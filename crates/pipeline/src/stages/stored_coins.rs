//! The coins of a chainstate, as the source below a cache.

use api::{error::Error, subject::Subject};
use chain::threads::for_all;
use coins::{Changes, CoinSource, CoinsCache, OwnedCoin};
use disk::{DiskError, chainstate::ChainstateReader};
use std::sync::atomic::{AtomicBool, Ordering};
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
/// range of keys. Of the unspent coins, the youngest stay in memory, in up to `stay_bytes` bytes. Begins with
/// a merge, if there are many tables, which `interrupt` ends.
///
/// # Errors
/// Any I/O error. The chainstate is then as it was, or, if only the last sync failed, as after the change.
pub fn flush(
    coins: &mut TipCoins<'_>,
    threads: usize,
    stay_bytes: usize,
    interrupt: &AtomicBool,
) -> Result<(), Error> {
    if coins.source().0.has_many_tables() && !interrupt.load(Ordering::Relaxed) {
        merge(coins, threads, interrupt)?;
    }
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

/// Merges tables, on up to `threads` threads. If `interrupt` is set, or the disk is full, nothing is merged.
///
/// # Errors
/// The same errors as [`flush`]; damage to the chainstate.
pub fn merge(coins: &mut TipCoins<'_>, threads: usize, interrupt: &AtomicBool) -> Result<(), Error> {
    match merge_or_fail(coins, threads, interrupt) {
        // The coins are the same, and what must be written may still have space.
        Err(error) if error.is_about(Subject::DiskSpace) => Ok(()),
        done => done,
    }
}

fn merge_or_fail(coins: &mut TipCoins<'_>, threads: usize, interrupt: &AtomicBool) -> Result<(), Error> {
    let Some(merge) = coins.source_mut().0.begin_merge()? else { return Ok(()) };
    // All other rows are in the first range.
    let first = |range: usize| match range {
        0 => Vec::new(),
        _ => vec![COIN_KEY_PREFIX, (256 * range / threads) as u8],
    };
    let merge_range = |range: usize| {
        let end = (range + 1 < threads).then(|| first(range + 1));
        merge.range(&first(range), end.as_deref()).merge(|| interrupt.load(Ordering::Relaxed))
    };
    let merged = for_all(threads, 0..threads, merge_range)?;
    match merged.into_iter().collect::<Result<Option<Vec<_>>, _>>()? {
        Some(ranges) => Ok(merge.commit(ranges)?),
        // Some ranges were stopped.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::{obfuscation::Obfuscation, siphash::SipKey};
    use testkit::fault::FaultDisk;
    use wire::BlockHash;

    /// An update once merged tables on one thread, whatever was interrupted. Later, one that was committed
    /// failed because the merge found the disk full.
    #[test]
    fn an_interrupt_or_a_full_disk_prevents_the_merge_and_not_the_change() {
        let (dir, disk) = (tempfile::tempdir().unwrap(), FaultDisk::healthy());
        let mut new = ChainstateReader::create(&disk, dir.path(), Obfuscation::from_key([7; 8])).unwrap();
        new.update(BlockHash::default()).unwrap().commit([]).unwrap();
        let open = || ChainstateReader::open(&disk, dir.path()).unwrap();
        let mut coins = CoinsCache::new(StoredCoins(open()), BlockHash::default(), SipKey(1, 2));
        let mut block = 0u32;
        let mut flush_next = |is_interrupted| {
            block += 1;
            let mut hash = BlockHash::default();
            hash.0[..4].copy_from_slice(&block.to_le_bytes());
            coins.set_best_block(hash);
            flush(&mut coins, 2, 0, &AtomicBool::new(is_interrupted)).unwrap();
            assert_eq!(open().best_block(), hash);
            (block, coins.source().0.has_many_tables())
        };
        // Each change becomes a log, and several logs a table.
        while let (block, false) = flush_next(false) {
            assert!(block < 1_000);
        }
        assert!(flush_next(true).1 && flush_next(true).1);
        let full = FaultDisk::full_after(0);
        let stored = StoredCoins(ChainstateReader::open(&full, dir.path()).unwrap());
        let mut on_full = CoinsCache::new(stored, BlockHash::default(), SipKey(1, 2));
        merge(&mut on_full, 2, &AtomicBool::new(false)).unwrap();
        assert!(open().has_many_tables() && !flush_next(false).1);
    }
}
