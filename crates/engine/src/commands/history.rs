//! Gives the history of each output script to the caller: what outputs pay to it and what inputs spend of it,
//! with the balance after each, sorted by script.
//!
//! It proves itself as far as blocks and undo data can: each input spends a coin that an earlier output paid
//! to the same script, and the coins that are left over are compared with the chainstate, if that ends at the
//! same block.

pub use pipeline::stages::history::{HistoryEntry, HistorySink, ScriptHistory};

use api::{
    disk_need::DiskNeed,
    error::Error,
    event::{CoinMeter, Event, Watch},
    hex_reversed, machine,
    note::Note,
    options::ChainOptions,
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::files::Files,
    plan::planner::Plan,
    session::Session,
    threads::{each_number, lock},
};
use digest::muhash::MuHash3072;
use disk::chainstate::ChainstateReader;
use pipeline::{
    job::{self, read_only_job::plan_for_reading},
    stages::{
        block_parts::{BlockParts, HashAt},
        coin_hash::CoinSums,
        finish::read_elements,
        history::{HistoryBuckets, HistoryTotals, MAX_PREFIX_DIGITS},
        work_dir::WorkDir,
    },
};
use std::{
    ops::RangeInclusive,
    sync::{Mutex, PoisonError},
};
use vfs::Disk;
use wire::{BlockHash, Height, Network, Sats};

/// Number of blocks that a thread reads before it takes others.
const PART_BLOCKS: u32 = 32;
/// Memory of a thread that reads blocks, in bytes: a block with its undo data and views, and movements that
/// are in no bucket yet.
const READER_BYTES: u64 = 16 << 20;
/// Memory that a bucket gets at least, in bytes.
const MIN_BUCKET_BYTES: u64 = 8 << 20;
/// Bytes of blocks for each bucket, which gets about as many bytes of movements.
const BUCKET_BLOCK_BYTES: u64 = 32 << 20;

/// What [`read()`] reads.
#[derive(Clone, Debug)]
pub struct ReadHistoryOptions {
    /// The blocks. If no last block is named, the last six are left out beside a running bitcoind. Temporary
    /// files go to the work directory.
    pub chain: ChainOptions,
    /// Number of hexadecimal digits of script hashes that divide them into buckets, at most 3; `None`: as
    /// the amount of data needs.
    pub prefix_digits: Option<u32>,
    /// The buckets that are wanted, which need `prefix_digits`; `None`: all.
    pub prefixes: Option<RangeInclusive<u32>>,
    /// Memory in bytes that the caller takes for each bucket that is given to it at the same time.
    pub sink_bytes: u64,
}

/// What takes the history of all scripts, by buckets, on several threads.
pub trait HistoryConsumer: Sync {
    /// Begins a bucket: the scripts whose hashes begin with its number, in the digits of
    /// [`HistoryRange::prefix_digits`].
    ///
    /// # Errors
    /// What makes the whole result useless.
    fn begin_bucket(&self, bucket: u32) -> Result<Box<dyn HistorySink + '_>, Error>;
}

api::reported! {
/// What [`read()`] gives to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryRange {
    /// The network.
    pub network as "chain": Network,
    /// The last block.
    pub to as "to_height": Height,
    /// Its hash.
    pub last as "block_hash": BlockHash,
    /// Number of hexadecimal digits of script hashes that divide them into buckets.
    pub prefix_digits: u32,
    /// The first bucket.
    pub first_prefix [skip]: u32,
    /// The last bucket.
    pub last_prefix [skip]: u32,
}

/// Result of [`read()`].
#[derive(Clone, Debug)]
pub struct HistoryReport {
    /// What was read.
    pub range [flatten]: HistoryRange,
    /// Number of entries: outputs that became coins, and inputs that spend one.
    pub rows: u64,
    /// Number of scripts.
    pub scripts: u64,
    /// Number of coins of these scripts after the last block.
    pub coins: u64,
    /// Sum of these coins.
    pub total_amount as "total_amount_sat": Sats,
    /// MuHash of these coins, in internal byte order.
    pub muhash with "api::json::HashText": [u8; 32],
    /// Whether the chainstate ends at the same block, and so has been read and has the same MuHash.
    pub is_chainstate: bool,
}
}

/// Gives the history of all scripts up to a block of the chain up to the chainstate's best block, or, without
/// a chainstate, of the most-work chain on disk, to the consumer that `begin` returns, which is told the hash
/// of each block. The datadir is only read.
///
/// # Errors
/// The same errors as [`crate::blocks::read()`] with coins; [`api::error::ErrorKind::Damaged`] if an input
/// spends a coin that no earlier output paid to its script, or if the chainstate has other coins;
/// [`api::error::ErrorKind::Environment`] if there is no space for temporary files. Of several errors, that
/// of the lowest bucket is returned.
pub fn read<C: HistoryConsumer>(
    disk: &dyn Disk,
    options: &ReadHistoryOptions,
    begin: impl FnOnce(&HistoryRange, &HashAt<'_>) -> Result<C, Error>,
    watch: Watch<'_>,
) -> Result<(HistoryReport, C), Error> {
    watch.sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, &options.chain)?;
    let files = &session.files()?;
    let plan = &plan_for_reading(files, &options.chain, watch)?;
    let to = job::last_block(&options.chain, plan, Height(0), options.chain.stop_at_height)?;
    // The first blocks may be smaller.
    let block_bytes = plan.bytes_of(u64::from(to.0) + 1);
    let prefix_digits = prefix_digits(options, block_bytes)?;
    let (first_prefix, last_prefix) = prefixes(options, 1 << (4 * prefix_digits))?;
    let (network, last) = (options.chain.params.network, plan.chain.block(to).hash);
    let range = HistoryRange { network, to, last, prefix_digits, first_prefix, last_prefix };
    let consumer = begin(&range, &|height| plan.chain.block(height).hash)?;
    let work = &WorkDir::for_file(disk, &options.chain, None);
    let history = History { plan, files, work, memory: Memory::of(options), range, watch };
    let done = history.run(block_bytes, &consumer).map_err(|error| work.explain(error));
    let removed = work.remove();
    // If both failed, the first error is the one to report.
    let report = done.and_then(|report| removed.map(|()| report))?;
    Ok((report, consumer))
}

/// The number of digits that the caller wants, or so many that buckets have a moderate size.
fn prefix_digits(options: &ReadHistoryOptions, block_bytes: u64) -> Result<u32, Error> {
    let needed = (1..MAX_PREFIX_DIGITS).find(|digits| block_bytes >> (4 * digits) <= BUCKET_BLOCK_BYTES);
    let digits = options.prefix_digits.or(needed).unwrap_or(MAX_PREFIX_DIGITS);
    if (1..=MAX_PREFIX_DIGITS).contains(&digits) {
        return Ok(digits);
    }
    let detail = format!("scripts are divided by 1 to {MAX_PREFIX_DIGITS} digits, not by {digits}");
    Err(Error::usage(detail))
}

/// The first and the last bucket that the caller wants, of so many.
fn prefixes(options: &ReadHistoryOptions, count: u32) -> Result<(u32, u32), Error> {
    let Some(prefixes) = &options.prefixes else { return Ok((0, count - 1)) };
    let (first, last) = (*prefixes.start(), *prefixes.end());
    if first > last || last >= count {
        let detail =
            format!("there are no prefixes {first:x} to {last:x} of scripts, only 0 to {:x}", count - 1);
        return Err(Error::usage(detail));
    }
    Ok((first, last))
}

/// How memory is divided, in bytes.
struct Memory {
    /// Number of threads that read blocks.
    readers: usize,
    /// For all buckets while blocks are read, and later for those that are not taken yet.
    buckets: usize,
    /// Number of threads that take buckets.
    takers: usize,
    /// For each bucket that is taken.
    bucket: usize,
}

impl Memory {
    fn of(options: &ReadHistoryOptions) -> Self {
        let limit = options.chain.memory_bytes;
        // Of four shares, one is for freed memory, which the allocator does not return to the system at once.
        let share = limit.saturating_sub(machine::resident_bytes().unwrap_or(limit / 4)) / 4;
        let threads = options.chain.threads.get() as u64;
        let readers = (2 * share / READER_BYTES).clamp(1, threads);
        let takers = (2 * share / options.sink_bytes.saturating_add(MIN_BUCKET_BYTES)).clamp(1, threads);
        // Besides its bytes, a bucket takes their order, and the coins of a script.
        let bucket = (2 * share / takers).saturating_sub(options.sink_bytes) / 3 * 2;
        let spilled = options.chain.hooks.join_bytes;
        Self {
            readers: readers as usize,
            buckets: spilled.unwrap_or(share as usize),
            takers: takers as usize,
            bucket: spilled.unwrap_or(bucket.max(MIN_BUCKET_BYTES) as usize),
        }
    }
}

/// A run, when its plan is complete.
struct History<'a> {
    plan: &'a Plan,
    files: &'a Files<'a>,
    work: &'a WorkDir<'a>,
    memory: Memory,
    range: HistoryRange,
    watch: Watch<'a>,
}

impl History<'_> {
    fn run(&self, block_bytes: u64, consumer: &impl HistoryConsumer) -> Result<HistoryReport, Error> {
        self.check_space(block_bytes)?;
        let (blocks, memory) = (self.plan.chain.block_count(), &self.memory);
        let key = machine::random_key()?;
        let HistoryRange { prefix_digits: digits, first_prefix, last_prefix, .. } = self.range;
        let wanted = first_prefix..=last_prefix;
        let buckets = &HistoryBuckets::new(self.work, digits, wanted, blocks, memory.buckets, key);
        self.watch.sink.event(Event::Started(Stage::Read));
        let parts = BlockParts {
            plan: self.plan,
            files: self.files,
            heights: 0..=self.range.to.0,
            coins_from: Some(Height(0)),
            with_witnesses: false,
            part_blocks: PART_BLOCKS,
            threads: memory.readers,
        };
        parts.read(buckets, self.watch)?;
        self.watch.sink.event(Event::Started(Stage::Export));
        let totals = self.take(buckets, consumer)?;
        buckets.parts.remove_file()?;
        let HistoryTotals { rows, scripts, unspent } = totals;
        let CoinSums { coins, amount: total_amount, muhash } = unspent;
        let muhash = muhash.finalize();
        let is_chainstate = self.plan.best_block.is_some_and(|best| best.known.hash == self.range.last);
        if is_chainstate {
            self.compare(buckets, &muhash)?;
        }
        Ok(HistoryReport { range: self.range, rows, scripts, coins, total_amount, muhash, is_chainstate })
    }

    /// Checks that temporary files have space. The movements of all scripts have about as many bytes as the
    /// blocks on mainnet; elsewhere, blocks may have outputs of 31 bytes only, which are movements of 116.
    /// Each bucket has about an equal share, and is written again, sorted, if it does not fit into memory.
    fn check_space(&self, block_bytes: u64) -> Result<(), Error> {
        let HistoryRange { prefix_digits: digits, first_prefix, last_prefix, .. } = self.range;
        let wanted = u64::from(last_prefix - first_prefix) + 1;
        let of_all = match self.files.params.network {
            Network::Main => block_bytes + block_bytes / 4,
            _ => 4 * block_bytes,
        };
        let of_bucket = of_all >> (4 * digits);
        let times = if 2 * of_bucket > self.memory.bucket as u64 { 2 } else { 1 };
        let temporary = times * of_bucket * wanted;
        if temporary > self.memory.buckets as u64 {
            let (need, dir) = (DiskNeed { chainstate: 0, temporary, undo: 0 }, self.work.path());
            need.check(self.work.disk(), dir, dir, dir, 0)?;
            self.watch.sink.event(Event::Note(Note::DiskNeed(need)));
        }
        Ok(())
    }

    /// Gives all buckets to the consumer.
    fn take(
        &self,
        buckets: &HistoryBuckets<'_>,
        consumer: &impl HistoryConsumer,
    ) -> Result<HistoryTotals, Error> {
        let meter = CoinMeter::new(self.watch.sink, buckets.outputs());
        let (wanted, totals) = (&buckets.wanted, Mutex::new(HistoryTotals::default()));
        let look = |outputs| {
            meter.add(outputs);
            Error::check_interrupt(self.watch.interrupt)
        };
        let take = |(): &mut (), number: u32| {
            let bucket = wanted.start() + number;
            let mut sink = consumer.begin_bucket(bucket)?;
            let done = buckets.take(bucket as usize, self.memory.bucket, &mut *sink, &look)?;
            sink.finish()?;
            lock(&totals).add(&done);
            Ok(())
        };
        let count = wanted.end() - wanted.start() + 1;
        each_number(self.memory.takers, count, || (), take).map_err(|error| match error.height {
            Some(height) if error.block_hash.is_none() => {
                error.at_block(height, self.plan.chain.block(height).hash)
            }
            _ => error,
        })?;
        Ok(totals.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Compares the coins that are left with the chainstate.
    fn compare(&self, buckets: &HistoryBuckets<'_>, muhash: &[u8; 32]) -> Result<(), Error> {
        self.watch.sink.event(Event::Started(Stage::Prove));
        let reader = ChainstateReader::open(self.files.disk, &self.files.datadir.chainstate_dir())?;
        let (is_all, mut of_wanted) = (buckets.are_all_wanted(), MuHash3072::default());
        let mut each = |elements: &[u8]| {
            if !is_all {
                buckets.add_wanted(elements, &mut of_wanted);
            }
            Ok(())
        };
        let stats = read_elements(&reader, None, is_all, self.memory.takers, &mut each, self.watch)?;
        let found = stats.muhash.unwrap_or_else(|| of_wanted.finalize());
        if found == *muhash {
            return Ok(());
        }
        let detail = format!(
            "the chainstate has other coins than the blocks leave: its muhash is {}, and theirs is {}",
            hex_reversed(&found),
            hex_reversed(muhash)
        );
        Err(Error::damaged(detail)
            .in_file(reader.dir(), None)
            .with_remedies([Remedy::Verify])
            .about(Subject::Chainstate))
    }
}
