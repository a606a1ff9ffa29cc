//! Stages finish and prove: the coins left over become the new chainstate, which is then read back and
//! hashed.
//!
//! Shards are grouped to ranges of about a table's size, or less, so that there are enough for all threads.
//! Threads take ranges in order, and each merges, sorts and writes its own; others wait for the medium. Which
//! tables there are depends on the coins and the obfuscation key only.

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

/// Rows of about so many bytes go into one range: Core's tables have at most 32 MiB, and index and filter
/// take some.
pub const RANGE_BYTES: u64 = 28 << 20;

/// A chainstate too small for so many such ranges gets smaller ones, for threads to have equal shares.
const RANGES: u64 = 64;

/// But no range has fewer bytes of rows than this, if there are as many: each is a file to be synced.
const LEAST_RANGE_BYTES: u64 = 4 << 20;

/// Coins between two looks whether to stop.
const LOOK_EVERY: u64 = 1 << 12;

/// What is written, and how.
pub struct Finish<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The directory to build the chainstate in.
    pub dir: &'a Path,
    /// The chain whose coins these are.
    pub chain: &'a Chain,
    /// The new chainstate's obfuscation key.
    pub key: [u8; 8],
    /// Rows of at most about so many bytes go into one range of tables.
    pub range_bytes: u64,
    /// Threads that sort and write.
    pub threads: usize,
    /// The caller's wish to stop.
    pub interrupt: &'a AtomicBool,
}

impl Finish<'_> {
    /// Writes the chainstate, all of it synced, and tells what it holds; nothing if creations and spends do
    /// not fit each other.
    ///
    /// # Errors
    /// What the file system says; [`ErrorKind::Interrupted`].
    pub fn write(&self, unspent: Unspent) -> Result<Option<UtxoCounts>, Error> {
        let range_bytes = self.range_bytes.min((unspent.row_bytes() / RANGES).max(LEAST_RANGE_BYTES));
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
                    break; // All who sync have failed, and will tell.
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
                Error::new(ErrorKind::Internal, format!("coin {outpoint}: {flaw}; please report this"))
            })?;
            let look = counter.counts().txouts.is_multiple_of(LOOK_EVERY);
            if look && self.interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
            Ok(())
        })?;
        Ok((tables.complete()?, counter.counts()))
    }

    /// Reads the chainstate back, compares it with what was written, and tells its hash.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if it is not what was written; [`ErrorKind::Interrupted`].
    pub fn prove(&self, written: &UtxoCounts) -> Result<UtxoStats, Error> {
        let reader = ChainstateReader::open(self.disk, self.dir)?;
        let read = stats_unless_stopped(&reader, false, self.threads, self.interrupt)?;
        let read = read.ok_or_else(Error::interrupted)?;
        if read.counts() == *written && reader.best_block() == self.chain.tip().hash {
            return Ok(read);
        }
        let detail =
            "the new chainstate reads back differently from what was written: check the disk and the memory";
        Err(Error::new(ErrorKind::Environment, detail).in_file(self.dir, None))
    }
}

/// What the threads return.
/// What threads bring, those that could not be started included.
type Started<'scope, T> = Result<ScopedJoinHandle<'scope, T>, Error>;

fn join_all<T, E: From<Error>>(threads: Vec<Started<'_, Result<T, E>>>) -> Vec<Result<T, E>> {
    threads.into_iter().map(|thread| thread?.join().map_err(|_| Error::panicked())?).collect()
}

/// The sum of all coins' amounts; nothing if that, with what was `burned` (in satoshi), is more than the
/// blocks were allowed to make.
#[must_use]
pub fn check_supply(params: &ChainParams, chain: &Chain, counts: &UtxoCounts, burned: u64) -> Option<Sats> {
    let limit: i64 = (1..=chain.tip_height().0).map(|height| subsidy(params, Height(height)).0).sum();
    let burned = i64::try_from(burned).ok()?;
    counts.total_amount.filter(|amount| amount.0.checked_add(burned).is_some_and(|sum| sum <= limit))
}
