//! Stages finish and prove: the coins left over become the new chainstate, hashed on the way, and are read
//! back.
//!
//! Shards are grouped to ranges of about a table's size. Threads take ranges in order: each sorts its shards
//! and writes its own tables, while this thread hashes the ranges' coins in order. Which tables there are
//! depends on the coins and the obfuscation key only.

use crate::{
    chain::Chain,
    error::{Error, ErrorKind},
};
use coins::{SurvivorShard, Survivors};
use crossbeam::channel::{Receiver, bounded};
use digest::obfuscation::Obfuscation;
use disk::{
    chainstate::{ChainstateReader, ChainstateWriter, RangeTables},
    fs::Disk,
    utxo_stats::{StatsPart, UtxoHasher, UtxoStats, stats_of_coins},
};
use rules::{ChainParams, subsidy};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use wire::{Height, Sats};

/// Rows of about so many bytes go into one range: Core's tables have at most 32 MiB, and index and filter
/// take some.
pub const RANGE_BYTES: u64 = 28 << 20;

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

/// A range on its way to a writing thread.
type Range = (u32, Vec<SurvivorShard>);

/// A written range on its way to the hasher.
type Written = (u32, Result<(RangeTables, StatsPart), Error>);

impl Finish<'_> {
    /// Writes the chainstate, all of it synced, and tells what it holds.
    ///
    /// # Errors
    /// What the file system says; [`ErrorKind::Interrupted`].
    pub fn write(&self, survivors: Survivors) -> Result<UtxoStats, Error> {
        let ranges = ranges(survivors, self.range_bytes);
        let count = ranges.len() as u32;
        let writer = ChainstateWriter::create(self.disk, self.dir, Obfuscation::from_key(self.key), count)?;
        let ranges = Mutex::new(ranges.into_iter());
        // One finished range per thread may wait for the hasher, which is faster than they are.
        let (send, written) = bounded::<Written>(self.threads);
        let (tables, stats) = thread::scope(|scope| {
            for _ in 0..self.threads {
                let (ranges, writer, send) = (&ranges, &writer, send.clone());
                scope.spawn(move || {
                    while let Some((index, shards)) = next(ranges) {
                        if self.interrupt.load(Ordering::Relaxed)
                            || send.send((index, write_range(writer, index, shards))).is_err()
                        {
                            return;
                        }
                    }
                });
            }
            drop(send);
            hash(&written)
        })?;
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(Error::interrupted());
        }
        writer.finish(self.chain.tip().hash, tables)?;
        Ok(stats)
    }

    /// Reads the chainstate back and compares.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if it is not what was written.
    pub fn prove(&self, written: &UtxoStats) -> Result<(), Error> {
        let reader = ChainstateReader::open(self.disk, self.dir)?;
        let read = stats_of_coins(&reader, false, self.threads)?;
        if read == *written && reader.best_block() == self.chain.tip().hash {
            return Ok(());
        }
        let detail =
            "the new chainstate reads back differently from what was written: check the disk and the memory";
        Err(Error::new(ErrorKind::Environment, detail).in_file(self.dir, None))
    }
}

fn next(ranges: &Mutex<std::vec::IntoIter<Range>>) -> Option<Range> {
    ranges.lock().ok()?.next()
}

/// Groups shards, in order, to ranges of at most `bytes` of rows; a larger shard is a range by itself.
fn ranges(survivors: Survivors, bytes: u64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut room = 0;
    for shard in survivors.into_shards() {
        let len = (shard.size().key_bytes + shard.size().value_bytes) as u64;
        match ranges.last_mut() {
            Some((_, shards)) if len <= room => shards.push(shard),
            _ => {
                room = bytes;
                ranges.push((ranges.len() as u32, vec![shard]));
            }
        }
        room = room.saturating_sub(len);
    }
    ranges
}

fn write_range(
    writer: &ChainstateWriter<'_>,
    index: u32,
    shards: Vec<SurvivorShard>,
) -> Result<(RangeTables, StatsPart), Error> {
    let mut range = writer.range(index);
    let mut part = StatsPart::new(false);
    for shard in shards {
        for coins::Entry { outpoint, coin, .. } in shard.sort().iter() {
            range.add(&outpoint, &coin)?;
            part.add(&outpoint, &coin).map_err(|flaw| {
                Error::new(ErrorKind::Internal, format!("coin {outpoint}: {flaw}; please report this"))
            })?;
        }
    }
    Ok((range.finish()?, part))
}

/// Hashes ranges in order as they come.
fn hash(written: &Receiver<Written>) -> Result<(Vec<RangeTables>, UtxoStats), Error> {
    let mut hasher = UtxoHasher::new(false);
    let mut tables = Vec::new();
    // Ranges that are ready before their turn.
    let mut early = BTreeMap::new();
    let mut turn = 0;
    for (index, result) in written {
        let (range, part) = result?;
        tables.push(range);
        early.insert(index, part);
        while let Some(part) = early.remove(&turn) {
            hasher.merge(part);
            turn += 1;
        }
    }
    Ok((tables, hasher.finish()))
}

/// No chain can have more coins than its blocks were allowed to make.
///
/// # Errors
/// [`ErrorKind::Internal`]: the rules have seen to it block by block.
pub fn check_supply(params: &ChainParams, chain: &Chain, stats: &UtxoStats) -> Result<Sats, Error> {
    let limit: i64 = (1..=chain.tip_height().0).map(|height| subsidy(params, Height(height)).0).sum();
    match stats.total_amount {
        Some(amount) if amount.0 <= limit => Ok(amount),
        _ => Err(Error::new(
            ErrorKind::Internal,
            "the coins amount to more than all subsidies; please report this",
        )),
    }
}
