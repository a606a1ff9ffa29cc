//! The coins after the last block, in the order of the chainstate's keys.
//!
//! [`Job::for_each_coin`](crate::job::Job::for_each_coin) gives them to a consumer, and again from the start
//! if parallel matching proves too little. The consumer walks them in one sequence, or by ranges on several
//! threads, each of which a [`RangeSink`] consumes.

use crate::stages::unspent::{ForEachError, Range, Unspent};
use api::{
    error::Error,
    event::{CoinMeter, Watch},
};
use chain::threads::{join_all, spawn};
use crossbeam::channel::{Receiver, Sender, bounded};
use disk::sorted_run::SortedRunReader;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use wire::{Coin, OutPoint};

/// Number of coins of a range between two checks for an interrupt.
pub const INTERRUPT_CHECK_INTERVAL: u64 = 1 << 12;

/// Consumes the coins of one range, on one thread.
pub trait RangeSink {
    /// A complete range that is not yet on the medium.
    type Unsynced: Send;
    /// What the sink makes of a range.
    type Done: Send;

    /// Consumes the next coin.
    fn coin(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), Error>;

    /// Completes the range.
    fn complete(self) -> Result<Self::Unsynced, Error>;

    /// Waits for the medium, on another thread, so that the next range can be consumed in the meantime.
    fn sync(unsynced: Self::Unsynced) -> Result<Self::Done, Error>;
}

/// The coins after the last block, to be walked once.
pub struct Coins<'a> {
    unspent: Unspent,
    watch: Watch<'a>,
}

impl<'a> Coins<'a> {
    /// The coins that matching has left; `watch` can end the walk, and receives its progress.
    pub fn new(unspent: Unspent, watch: Watch<'a>) -> Self {
        Self { unspent, watch }
    }

    /// Number of coins, if each spend has a coin.
    pub fn count(&self) -> u64 {
        self.unspent.coins()
    }

    /// Bytes of all rows that a chainstate has for these coins.
    pub fn row_bytes(&self) -> u64 {
        self.unspent.row_bytes()
    }

    /// Calls `each` with all coins in key order.
    ///
    /// # Errors
    /// [`ForEachError`]; an error of `each` ends the walk.
    pub fn in_sequence(
        self,
        mut each: impl FnMut(&OutPoint, &Coin<'_>) -> Result<(), Error>,
    ) -> Result<(), ForEachError> {
        let meter = CoinMeter::new(self.watch.sink, self.count());
        // One shard at a time is sorted, and then freed.
        let (ranges, runs) = self.unspent.into_ranges(0);
        for range in ranges {
            Error::check_interrupt(self.watch.interrupt)?;
            let mut count = 0;
            range.each(&runs, |outpoint, coin| {
                count += 1;
                each(outpoint, coin)
            })?;
            meter.add(count);
        }
        Ok(())
    }

    /// Divides the coins into ranges of at most `bytes` of rows, or one shard. The ranges depend only on the
    /// coins.
    pub fn into_ranges(self, bytes: u64) -> CoinRanges<'a> {
        let count = self.count();
        let (ranges, runs) = self.unspent.into_ranges(bytes);
        CoinRanges { ranges, runs, count, watch: self.watch }
    }
}

/// Coins by ranges, for several threads.
pub struct CoinRanges<'a> {
    ranges: Vec<Range>,
    runs: Vec<SortedRunReader>,
    /// Number of coins.
    count: u64,
    watch: Watch<'a>,
}

impl CoinRanges<'_> {
    /// Number of ranges.
    pub fn count(&self) -> u32 {
        self.ranges.len() as u32
    }

    /// Gives each range to the sink that `begin` makes for its index, on `threads` threads; as many others
    /// sync the ranges. Returns what the sinks have made, in any order.
    ///
    /// # Errors
    /// [`ForEachError`], after all threads have ended.
    pub fn consume<R: RangeSink>(
        self,
        threads: usize,
        begin: impl Fn(u32) -> R + Sync,
    ) -> Result<Vec<R::Done>, ForEachError> {
        let Self { ranges, runs, count, watch } = self;
        let meter = &CoinMeter::new(watch.sink, count);
        let ranges = Mutex::new(ranges.into_iter());
        let next = || ranges.lock().unwrap_or_else(PoisonError::into_inner).next();
        let failed = AtomicBool::new(false);
        let fail = || failed.store(true, Ordering::Relaxed);
        let consume = |to_sync: Sender<R::Unsynced>| -> Result<(), ForEachError> {
            while !failed.load(Ordering::Relaxed)
                && let Some(range) = next()
            {
                let sink = begin(range.index);
                let unsynced =
                    consume_range(range, &runs, sink, meter, watch.interrupt).inspect_err(|_| fail())?;
                if to_sync.send(unsynced).is_err() {
                    break; // All sync threads have failed; their errors are returned.
                }
            }
            Ok(())
        };
        let sync = |unsynced: Receiver<R::Unsynced>| -> Result<Vec<R::Done>, Error> {
            unsynced.iter().map(|range| R::sync(range).inspect_err(|_| fail())).collect()
        };
        let (to_sync, unsynced) = bounded(threads);
        let (consumed, synced) = thread::scope(|scope| {
            let (consume, sync) = (&consume, &sync);
            let pair = |_| {
                let (to_sync, unsynced) = (to_sync.clone(), unsynced.clone());
                let consumer = spawn(scope, "write", move || consume(to_sync)).inspect_err(|_| fail());
                (consumer, spawn(scope, "sync", move || sync(unsynced)).inspect_err(|_| fail()))
            };
            let (consuming, syncing): (Vec<_>, Vec<_>) = (0..threads).map(pair).unzip();
            drop((to_sync, unsynced));
            (join_all(consuming), join_all(syncing))
        });
        let (mut done, mut mismatch) = (Vec::new(), false);
        for part in consumed {
            match part? {
                Err(ForEachError::Mismatch) => mismatch = true,
                other => other?,
            }
        }
        for part in synced {
            done.extend(part??);
        }
        if mismatch { Err(ForEachError::Mismatch) } else { Ok(done) }
    }
}

fn consume_range<R: RangeSink>(
    range: Range,
    runs: &[SortedRunReader],
    mut sink: R,
    meter: &CoinMeter<'_>,
    interrupt: &AtomicBool,
) -> Result<R::Unsynced, ForEachError> {
    let mut count: u64 = 0;
    range.each(runs, |outpoint, coin| {
        sink.coin(outpoint, coin)?;
        count += 1;
        if count.is_multiple_of(INTERRUPT_CHECK_INTERVAL) {
            meter.add(INTERRUPT_CHECK_INTERVAL);
            Error::check_interrupt(interrupt)?;
        }
        Ok(())
    })?;
    meter.add(count % INTERRUPT_CHECK_INTERVAL);
    Ok(sink.complete()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{MatchStats, read_only_job::with_read_only_job};
    use api::{
        event::{Event, Watch},
        note::Note,
        options::{ChainOptions, Matching, UndoPolicy},
    };
    use coins::{Join, SipKey};
    use testkit::{Chain, ChainSpec, datadir::Layout, fault::FaultDisk};
    use wire::{Height, Network, Txid};

    /// Coins as (outpoint, code, output).
    type Rows = Vec<(OutPoint, u32, Vec<u8>)>;

    fn row(outpoint: &OutPoint, coin: &Coin<'_>) -> (OutPoint, u32, Vec<u8>) {
        (*outpoint, coin.code, coin.out.to_vec())
    }

    /// Four coins in each shard; with `spend`, also a spend of a coin that does not exist.
    fn unspent(spend: bool) -> Unspent {
        let join = Join::new(SipKey(1, 2));
        let mut effects = join.effects();
        let outpoint = |shard: u8, number: u8| {
            let mut txid = [number; 32];
            txid[0] = shard;
            OutPoint { txid: Txid(txid), vout: number.into() }
        };
        let coin = Coin { code: 2, out: &[0, 6] };
        for (shard, number) in (0..=255).flat_map(|shard| (0..4).map(move |number| (shard, number))) {
            effects.push_creation(&outpoint(shard, number), coin);
        }
        if spend {
            effects.push_spend(&outpoint(200, 9), coin, Height(7));
        }
        drop(effects);
        Unspent::new(join.finish_spilled().unwrap(), Vec::new())
    }

    /// Collects the coins of a range.
    struct RangeRows(u32, Rows);

    impl RangeSink for RangeRows {
        type Unsynced = Self;
        type Done = Self;

        fn coin(&mut self, outpoint: &OutPoint, coin: &Coin<'_>) -> Result<(), Error> {
            self.1.push(row(outpoint, coin));
            Ok(())
        }

        fn complete(self) -> Result<Self, Error> {
            Ok(self)
        }

        fn sync(unsynced: Self) -> Result<Self, Error> {
            Ok(unsynced)
        }
    }

    fn in_sequence(unspent: Unspent) -> Result<Rows, ForEachError> {
        let mut rows = Vec::new();
        Coins::new(unspent, Watch { sink: &|_| {}, interrupt: &AtomicBool::new(false) }).in_sequence(
            |outpoint, coin| {
                rows.push(row(outpoint, coin));
                Ok(())
            },
        )?;
        Ok(rows)
    }

    fn by_ranges(unspent: Unspent, bytes: u64, threads: usize) -> Result<Rows, ForEachError> {
        let interrupt = AtomicBool::new(false);
        let ranges = Coins::new(unspent, Watch { sink: &|_| {}, interrupt: &interrupt }).into_ranges(bytes);
        let mut done = ranges.consume(threads, |index| RangeRows(index, Vec::new()))?;
        done.sort_by_key(|range| range.0);
        Ok(done.into_iter().flat_map(|range| range.1).collect())
    }

    #[test]
    fn one_sequence_and_ranges_on_threads_give_the_same_coins() {
        let Ok(expected) = in_sequence(unspent(false)) else { panic!("the coins can be walked") };
        assert_eq!(expected.len(), 4 * 256);
        for (bytes, threads) in [(0, 1), (0, 8), (1_000, 3), (u64::MAX, 2)] {
            assert!(by_ranges(unspent(false), bytes, threads).is_ok_and(|rows| rows == expected));
        }
    }

    #[test]
    fn a_spend_without_a_coin_is_a_mismatch() {
        assert!(matches!(in_sequence(unspent(true)), Err(ForEachError::Mismatch)));
        for (bytes, threads) in [(0, 1), (0, 8), (u64::MAX, 2)] {
            assert!(matches!(by_ranges(unspent(true), bytes, threads), Err(ForEachError::Mismatch)));
        }
    }

    /// Matches the spends of a generated chain and gives the coins to `consume`. Returns too whether the
    /// chain was checked again without undo data.
    fn match_and_consume(
        mut consume: impl FnMut(Coins<'_>) -> Result<Rows, ForEachError>,
    ) -> (Result<(Rows, MatchStats), Error>, bool) {
        let (dir, checked_again) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let chain = Chain::generate(&ChainSpec { blocks: Some(120), ..ChainSpec::new(3, 50_000) });
        chain.write_datadir(dir.path(), &Layout::new(7)).unwrap();
        let watch = |event: Event| {
            let is_announced = matches!(event, Event::Note(Note::CheckingWithoutUndo));
            checked_again.fetch_or(is_announced, Ordering::Relaxed);
        };
        let reading = ChainOptions::reading(dir.path(), Network::Regtest);
        let options = ChainOptions { undo: UndoPolicy::Trust, ..reading };
        let (disk, interrupt) = (FaultDisk::healthy(), AtomicBool::new(false));
        let watch = Watch { sink: &watch, interrupt: &interrupt };
        let result = with_read_only_job(&disk, &options, None, watch, |job, clock| {
            let matched = job.match_spends(clock)?;
            job.for_each_coin(matched, clock, &mut consume)
        });
        (result, checked_again.into_inner())
    }

    #[test]
    fn after_a_mismatch_the_coins_come_from_a_check_without_undo_data() {
        let (mut mismatched, mut calls) = (Rows::new(), 0);
        let (result, is_checked_again) = match_and_consume(|coins| {
            let rows = in_sequence(coins.unspent)?;
            calls += 1;
            if calls > 1 {
                return Ok(rows);
            }
            mismatched = rows;
            Err(ForEachError::Mismatch)
        });
        let (rows, stats) = result.unwrap();
        assert!(is_checked_again && calls == 2);
        assert_eq!(stats.matching, Matching::Parallel);
        assert!(!rows.is_empty() && rows == mismatched, "the chain is valid");
    }
}
