//! Stages finish and prove: write the coins as the new chainstate, then read it back and hash it.
//!
//! Shards are grouped into ranges of about a table's size, or smaller, so that there are enough for all
//! threads. Each thread takes the next range, merges, sorts and writes it; other threads sync the files. The
//! tables depend only on the coins and the obfuscation key.

use crate::stages::{coin_sink::Coins, unspent::ForEachError};
use api::{
    error::Error,
    event::{CoinMeter, Watch},
};
use chain::{blocks::chain::Chain, commit::Destination};
use digest::obfuscation::Obfuscation;
use disk::{
    chainstate::ChainstateReader,
    utxo_stats::{ReadBackProgress, UtxoCounts, UtxoStats, stats_unless_stopped},
};
use rules::{ChainParams, subsidy};
use std::{path::Path, sync::atomic::Ordering};
use vfs::Disk;
use wire::{BlockHash, Height, Sats};

/// Minimum number of ranges: a small chainstate gets smaller ranges, so that all threads have equal shares.
const MIN_RANGES: u64 = 64;

/// Minimum bytes of rows in one range, despite [`MIN_RANGES`], because each range is a file to be synced.
const MIN_RANGE_BYTES: u64 = 4 << 20;

/// What is written, and how.
pub struct Finish<'a, 'd> {
    pub disk: &'a dyn Disk,
    /// Where the chainstate is built.
    pub target: &'a Destination<'d>,
    /// The chain to which the coins belong.
    pub chain: &'a Chain,
    /// The new chainstate's obfuscation key.
    pub key: [u8; 8],
    /// Approximate maximum of row bytes in one range.
    pub range_bytes: u64,
    /// Number of threads that sort and write.
    pub threads: usize,
    pub watch: Watch<'a>,
}

/// Writes coins as a new chainstate in the directory `dir`, obfuscated with `key` and with this best block,
/// syncs it, and returns what it contains.
pub fn write_chainstate(
    disk: &dyn Disk,
    dir: &Path,
    key: [u8; 8],
    best_block: BlockHash,
    coins: Coins<'_>,
    range_bytes: u64,
    threads: usize,
) -> Result<UtxoCounts, ForEachError> {
    let range_bytes = range_bytes.min((coins.row_bytes() / MIN_RANGES).max(MIN_RANGE_BYTES));
    let count = coins.count();
    let mut chainstate = ChainstateReader::create(disk, dir, Obfuscation::from_key(key))?;
    let update = chainstate.update(best_block)?;
    let (tables, counts) = coins.write(&update, range_bytes, threads)?;
    debug_assert_eq!(counts.txouts, count, "the net sizes of join and runs count the coins");
    update.commit(tables)?;
    Ok(counts)
}

impl Finish<'_, '_> {
    /// Writes the coins, and returns what was written. After a mismatch, nothing of it is left.
    ///
    /// # Errors
    /// [`ForEachError`]
    pub fn write(&self, coins: Coins<'_>) -> Result<UtxoCounts, ForEachError> {
        let (dir, tip) = (self.target.building(), self.chain.tip().hash);
        write_chainstate(self.disk, dir, self.key, tip, coins, self.range_bytes, self.threads)
            .map_err(|error| error.discarding(|| self.target.start_over()))
    }

    /// Reads the chainstate back, compares it with what was written, and returns its hash, with MuHash if
    /// `muhash`. If coins were written, but no transactions counted, the number of these is not compared.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Environment`] if it differs from what was written;
    /// [`api::error::ErrorKind::Interrupted`].
    pub fn prove(&self, written: &UtxoCounts, muhash: bool) -> Result<UtxoStats, Error> {
        const WHAT: &str = "the new chainstate";
        let dir = self.target.building();
        let open = ChainstateReader::open(self.disk, dir).map_err(Error::from);
        let reader = open.map_err(|error| error.of_written(WHAT))?;
        let total = Some(written.txouts);
        let read = read_elements(&reader, total, muhash, self.threads, &mut |_| Ok(()), self.watch)
            .map_err(|error| error.of_written(WHAT))?;
        let transactions =
            if written.transactions == 0 { read.counts.transactions } else { written.transactions };
        let written = UtxoCounts { transactions, ..*written };
        if read.counts == written && reader.best_block() == self.chain.tip().hash {
            return Ok(read);
        }
        Err(Error::not_as_written(WHAT).in_file(dir, None))
    }
}

/// Reads a chainstate and returns its statistics, on `threads` threads, each of which takes about as much
/// memory as a worker. Without the number of coins, the progress is estimated.
///
/// # Errors
/// What is damaged or cannot be read; [`api::error::ErrorKind::Interrupted`].
pub fn read_back(
    reader: &ChainstateReader<'_>,
    coins_total: Option<u64>,
    threads: usize,
    watch: Watch<'_>,
) -> Result<UtxoStats, Error> {
    read_elements(reader, coins_total, false, threads, &mut |_| Ok(()), watch)
}

/// Like [`read_back`], with MuHash if `muhash`; gives the elements of all coins to `each`, in the order of
/// the hash and many at once.
///
/// # Errors
/// The same errors as [`read_back`]; errors of `each`.
pub fn read_elements(
    reader: &ChainstateReader<'_>,
    coins_total: Option<u64>,
    muhash: bool,
    threads: usize,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    Watch { sink, interrupt }: Watch<'_>,
) -> Result<UtxoStats, Error> {
    let (meter, mut failure) = (CoinMeter::new(sink, coins_total.unwrap_or_default()), None);
    let mut stop = |ReadBackProgress { coins, ranges }, elements: &[u8]| {
        meter.show(coins, coins_total.unwrap_or_else(|| coins * 256 / u64::max(ranges, 1)));
        failure = each(elements).err();
        failure.is_some() || interrupt.load(Ordering::Relaxed)
    };
    let stats = stats_unless_stopped(reader, muhash, threads, &mut stop)?;
    stats.ok_or_else(|| failure.unwrap_or_else(Error::interrupted))
}

/// Returns the sum of all coins' amounts; `None` if that and what was `burned` (in satoshi) exceed all
/// subsidies.
pub fn check_supply(params: &ChainParams, chain: &Chain, counts: &UtxoCounts, burned: u64) -> Option<Sats> {
    let limit: i64 = (1..=chain.tip_height().0).map(|height| subsidy(params, Height(height)).0).sum();
    let burned = i64::try_from(burned).ok()?;
    counts.total_amount.filter(|amount| amount.0.checked_add(burned).is_some_and(|sum| sum <= limit))
}
