//! Stages finish and prove: write the coins as the new chainstate, then read it back and hash it.
//!
//! Shards are grouped into ranges of about a table's size, or smaller, so that there are enough for all
//! threads. Each thread takes the next range, merges, sorts and writes it; other threads sync the files. The
//! tables depend only on the coins and the obfuscation key.

use crate::{
    chain::Chain,
    error::{Error, ErrorKind},
    threads::spawn,
    unspent::{ForEachError, Range, Unspent},
};
use crossbeam::channel::{Receiver, Sender, bounded};
use digest::obfuscation::Obfuscation;
use disk::{
    chainstate::{ChainstateReader, ChainstateWriter, RangeTables, UnsyncedRange},
    fs::Disk,
    sorted_run::SortedRunReader,
    utxo_stats::{CoinCounter, UtxoCounts, UtxoStats, stats_unless_stopped},
};
use rules::{ChainParams, subsidy};
use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ScopedJoinHandle},
};
use wire::{Height, Sats};

/// Approximate bytes of rows in one range: Core's tables have at most 32 MiB, and index and filter take some
/// of it.
pub const RANGE_BYTES: u64 = 28 << 20;

/// Minimum number of ranges: a small chainstate gets smaller ranges, so that all threads have equal shares.
const MIN_RANGES: u64 = 64;

/// Minimum bytes of rows in one range, despite [`MIN_RANGES`], because each range is a file to be synced.
const MIN_RANGE_BYTES: u64 = 4 << 20;

/// Number of coins between two checks for an interrupt.
const INTERRUPT_CHECK_INTERVAL: u64 = 1 << 12;

/// What is written, and how.
pub struct Finish<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The directory to build the chainstate in.
    pub dir: &'a Path,
    /// The chain to which the coins belong.
    pub chain: &'a Chain,
    /// The new chainstate's obfuscation key.
    pub key: [u8; 8],
    /// Approximate maximum of row bytes in one range.
    pub range_bytes: u64,
    /// Number of threads that sort and write.
    pub threads: usize,
    /// Set by the caller to stop the job.
    pub interrupt: &'a AtomicBool,
}

impl Finish<'_> {
    /// Writes the chainstate, syncs it, and returns what it contains; `None` if creations and spends do not
    /// match.
    ///
    /// # Errors
    /// Any I/O error; [`ErrorKind::Interrupted`].
    pub fn write(&self, unspent: Unspent) -> Result<Option<UtxoCounts>, Error> {
        let range_bytes = self.range_bytes.min((unspent.row_bytes() / MIN_RANGES).max(MIN_RANGE_BYTES));
        let coins = unspent.coins();
        let (ranges, runs) = unspent.into_ranges(range_bytes);
        let count = ranges.len() as u32;
        let writer = ChainstateWriter::create(self.disk, self.dir, Obfuscation::from_key(self.key), count)?;
        let ranges = Mutex::new(ranges.into_iter());
        let next = || ranges.lock().unwrap_or_else(PoisonError::into_inner).next();
        let failed = AtomicBool::new(false);
        let fail = || failed.store(true, Ordering::Relaxed);
        let write = |to_sync: Sender<UnsyncedRange>| -> Result<UtxoCounts, ForEachError> {
            let mut counts = UtxoCounts::ZERO;
            while !failed.load(Ordering::Relaxed)
                && let Some(range) = next()
            {
                let (tables, part) = self.write_range(&writer, range, &runs).inspect_err(|_| fail())?;
                counts.merge(part);
                if to_sync.send(tables).is_err() {
                    break; // All sync threads have failed; their errors are returned.
                }
            }
            Ok(counts)
        };
        let sync = |unsynced: Receiver<UnsyncedRange>| -> Result<Vec<RangeTables>, Error> {
            unsynced.iter().map(|tables| Ok(tables.sync().inspect_err(|_| fail())?)).collect()
        };
        let (to_sync, unsynced) = bounded(self.threads);
        let (written, synced) = thread::scope(|scope| {
            let (write, sync) = (&write, &sync);
            let pair = |_| {
                let (to_sync, unsynced) = (to_sync.clone(), unsynced.clone());
                let writer = spawn(scope, "write", move || write(to_sync)).inspect_err(|_| fail());
                (writer, spawn(scope, "sync", move || sync(unsynced)).inspect_err(|_| fail()))
            };
            let (writing, syncing): (Vec<_>, Vec<_>) = (0..self.threads).map(pair).unzip();
            drop((to_sync, unsynced));
            (join_all(writing), join_all(syncing))
        });
        let (mut counts, mut tables, mut mismatch) = (UtxoCounts::ZERO, Vec::new(), false);
        for part in written {
            match part {
                Ok(part) => counts.merge(part),
                Err(ForEachError::Mismatch) => mismatch = true,
                Err(ForEachError::Error(error)) => return Err(error),
            }
        }
        for part in synced {
            tables.extend(part?);
        }
        if mismatch {
            return Ok(None);
        }
        debug_assert_eq!(counts.txouts, coins, "the net sizes of join and runs count the coins");
        writer.finish(self.chain.tip().hash, tables)?;
        Ok(Some(counts))
    }

    fn write_range(
        &self,
        writer: &ChainstateWriter<'_>,
        range: Range,
        runs: &[SortedRunReader],
    ) -> Result<(UnsyncedRange, UtxoCounts), ForEachError> {
        let mut tables = writer.range(range.index);
        let mut counter = CoinCounter::default();
        range.each(runs, |outpoint, coin| {
            tables.add(outpoint, coin)?;
            counter.add(outpoint, coin).map_err(|flaw| {
                Error::new(ErrorKind::Internal, format!("coin {outpoint}: {flaw}; please report this bug"))
            })?;
            let is_check_due = counter.counts().txouts.is_multiple_of(INTERRUPT_CHECK_INTERVAL);
            if is_check_due && self.interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
            Ok(())
        })?;
        Ok((tables.complete()?, counter.counts()))
    }

    /// Reads the chainstate back, compares it with what was written, and returns its hash.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if it differs from what was written; [`ErrorKind::Interrupted`].
    pub fn prove(&self, written: &UtxoCounts) -> Result<UtxoStats, Error> {
        let reader = ChainstateReader::open(self.disk, self.dir)?;
        let read = stats_unless_stopped(&reader, false, self.threads, self.interrupt)?;
        let read = read.ok_or_else(Error::interrupted)?;
        if read.counts() == *written && reader.best_block() == self.chain.tip().hash {
            return Ok(read);
        }
        let detail =
            "the new chainstate reads back differently from what was written; check the disk and the memory";
        Err(Error::new(ErrorKind::Environment, detail).in_file(self.dir, None))
    }
}

/// A thread, or the error for one that could not be started.
type Started<'scope, T> = Result<ScopedJoinHandle<'scope, T>, Error>;

fn join_all<T, E: From<Error>>(threads: Vec<Started<'_, Result<T, E>>>) -> Vec<Result<T, E>> {
    threads.into_iter().map(|thread| thread?.join().map_err(|_| Error::panicked())?).collect()
}

/// Returns the sum of all coins' amounts; `None` if that and what was `burned` (in satoshi) exceed all
/// subsidies.
#[must_use]
pub fn check_supply(params: &ChainParams, chain: &Chain, counts: &UtxoCounts, burned: u64) -> Option<Sats> {
    let limit: i64 = (1..=chain.tip_height().0).map(|height| subsidy(params, Height(height)).0).sum();
    let burned = i64::try_from(burned).ok()?;
    counts.total_amount.filter(|amount| amount.0.checked_add(burned).is_some_and(|sum| sum <= limit))
}
