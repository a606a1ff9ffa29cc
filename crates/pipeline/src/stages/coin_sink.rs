//! The coins after the last block, in the order of the chainstate's keys.
//!
//! [`Job::for_each_coin`](crate::job::Job::for_each_coin) gives them to a consumer, and again from the start
//! if parallel matching proves too little. The consumer walks them in one sequence, or writes them as a new
//! chainstate on several threads.

use crate::stages::unspent::{ForEachError, Range, Unspent};
use api::{
    error::{Error, ErrorKind},
    event::{CoinMeter, Watch},
};
use chain::threads::{join_all, lock, spawn};
use crossbeam::channel::{Receiver, Sender, bounded};
use disk::{
    chainstate::{ChainstateUpdate, ChangedRange, CoinRange, UnsyncedRange},
    sorted_run::SortedRunReader,
    utxo_stats::{CoinCounter, UtxoCounts},
};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use wire::{Coin, OutPoint};

/// Number of coins of a range between two checks for an interrupt.
pub const INTERRUPT_CHECK_INTERVAL: u64 = 1 << 12;

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

    /// Writes the coins as tables of `update`, which is the first change of a new chainstate, on `threads`
    /// threads; as many others sync the tables. A table has a range of at most `range_bytes` of rows, or one
    /// shard. The ranges depend only on the coins. Returns the tables in any order, and what they contain.
    ///
    /// # Errors
    /// [`ForEachError`], after all threads have ended.
    pub fn write(
        self,
        update: &ChainstateUpdate<'_, '_>,
        range_bytes: u64,
        threads: usize,
    ) -> Result<(Vec<ChangedRange>, UtxoCounts), ForEachError> {
        let (meter, interrupt) = (&CoinMeter::new(self.watch.sink, self.count()), self.watch.interrupt);
        let (ranges, runs) = self.unspent.into_ranges(range_bytes);
        let count = ranges.len() as u32;
        let ranges = Mutex::new(ranges.into_iter());
        let next = || lock(&ranges).next();
        let failed = AtomicBool::new(false);
        let fail = || failed.store(true, Ordering::Relaxed);
        let write = |to_sync: Sender<(UnsyncedRange, UtxoCounts)>| -> Result<(), ForEachError> {
            while !failed.load(Ordering::Relaxed)
                && let Some(range) = next()
            {
                let table = update.numbered_range(range.index, count);
                let unsynced = write_range(range, &runs, table, meter, interrupt).inspect_err(|_| fail())?;
                if to_sync.send(unsynced).is_err() {
                    break; // All sync threads have failed; their errors are returned.
                }
            }
            Ok(())
        };
        let sync = |unsynced: Receiver<(UnsyncedRange, UtxoCounts)>| -> Result<Vec<_>, Error> {
            let sync = |(range, counts): (UnsyncedRange, _)| Ok((range.sync()?, counts));
            unsynced.iter().map(|range| sync(range).inspect_err(|_| fail())).collect()
        };
        let (to_sync, unsynced) = bounded(threads);
        let (written, synced) = thread::scope(|scope| {
            let (write, sync) = (&write, &sync);
            let pair = |_| {
                let (to_sync, unsynced) = (to_sync.clone(), unsynced.clone());
                let writer = spawn(scope, "write", move || write(to_sync)).inspect_err(|_| fail());
                (writer, spawn(scope, "sync", move || sync(unsynced)).inspect_err(|_| fail()))
            };
            let (writing, syncing): (Vec<_>, Vec<_>) = (0..threads).map(pair).unzip();
            drop((to_sync, unsynced));
            (join_all(writing), join_all(syncing))
        });
        let (mut tables, mut counts, mut mismatch) = (Vec::new(), UtxoCounts::ZERO, false);
        for part in written {
            match part? {
                Err(ForEachError::Mismatch) => mismatch = true,
                other => other?,
            }
        }
        for part in synced {
            for (table, of_table) in part?? {
                tables.push(table);
                counts.merge(of_table);
            }
        }
        if mismatch { Err(ForEachError::Mismatch) } else { Ok((tables, counts)) }
    }
}

/// Writes and counts the coins of a range.
fn write_range(
    range: Range,
    runs: &[SortedRunReader],
    mut table: CoinRange<'_>,
    meter: &CoinMeter<'_>,
    interrupt: &AtomicBool,
) -> Result<(UnsyncedRange, UtxoCounts), ForEachError> {
    let (mut counter, mut count) = (CoinCounter::default(), 0u64);
    range.each(runs, |outpoint, coin| {
        table.set(outpoint, Some(coin))?;
        counter.add(outpoint, coin).map_err(|flaw| {
            Error::new(ErrorKind::Internal, format!("coin {outpoint}: {flaw}; please report this bug"))
        })?;
        count += 1;
        if count.is_multiple_of(INTERRUPT_CHECK_INTERVAL) {
            meter.add(INTERRUPT_CHECK_INTERVAL);
            Error::check_interrupt(interrupt)?;
        }
        Ok(())
    })?;
    meter.add(count % INTERRUPT_CHECK_INTERVAL);
    Ok((table.complete()?, counter.counts()))
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
    use digest::obfuscation::Obfuscation;
    use disk::chainstate::ChainstateReader;
    use testkit::{Chain, ChainSpec, datadir::Layout, fault::FaultDisk};
    use vfs::RealDisk;
    use wire::{BlockHash, Height, Network, Txid};

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
        let (dir, interrupt) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let coins = Coins::new(unspent, Watch { sink: &|_| {}, interrupt: &interrupt });
        let mut chainstate = ChainstateReader::create(&RealDisk, dir.path(), Obfuscation::from_key([7; 8]))?;
        let update = chainstate.update(BlockHash([1; 32]))?;
        let (tables, counts) = coins.write(&update, bytes, threads)?;
        update.commit(tables)?;
        let written = ChainstateReader::open(&RealDisk, dir.path())?;
        let (mut coins, mut rows) = (written.coins()?, Rows::new());
        while let Some((outpoint, coin)) = coins.advance()? {
            rows.push(row(&outpoint, &coin));
        }
        assert_eq!(counts.txouts, rows.len() as u64);
        Ok(rows)
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
