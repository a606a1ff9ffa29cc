//! Merges deltas: creations meet their spends.

use super::{
    deltas::{DeltaReport, NamedDelta, false_delta, missing, usage},
    new_delta::{self, NewDelta},
    range_plan::{RangePlan, no_such},
};
use api::{
    error::{Error, ErrorKind},
    event::{CoinMeter, Event, Watch},
    remedy::Remedy,
    stage::Stage,
};
use coins::{
    Entry, Merge, Spender,
    merge::{EntrySource, MergeError},
};
use disk::{
    delta::{CheckedRange, Delta, DeltaShard},
    sorted_run::{SortedRunReader, SortedRunWriter},
};
use pipeline::stages::{coin_sink::INTERRUPT_CHECK_INTERVAL, spill::MergeInput};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};
use vfs::{Disk, unfinished};
use wire::{Height, OutPoint};

/// Number of shards that are open at one time, unless one thread needs more.
const MAX_OPEN_SHARDS: usize = 3_000;

#[derive(Clone, Debug)]
pub struct MergeDeltasOptions {
    /// The shard to merge; `None` for all.
    pub shard: Option<u32>,
    /// Whether ranges of the plan may be missing. Spends of coins that they may create are then kept.
    pub partial: bool,
    /// Number of threads; each merges other shards.
    pub threads: NonZeroUsize,
}

/// Merges the deltas in the directories `inputs`, and writes the result to the directory `output`. If that
/// has the result already, nothing is done.
///
/// # Errors
/// [`ErrorKind::Usage`] for deltas of another plan, of ranges that another one has too or, unless that is
/// allowed, if ranges are missing; [`ErrorKind::Damaged`] if creations and spends do not match, or files are
/// damaged; any I/O error; [`ErrorKind::Interrupted`].
pub fn merge_deltas(
    disk: &dyn Disk,
    plan: &RangePlan,
    inputs: &[PathBuf],
    options: &MergeDeltasOptions,
    output: &Path,
    Watch { sink, interrupt }: Watch<'_>,
) -> Result<DeltaReport, Error> {
    sink.event(Event::Started(Stage::Plan));
    let mut deltas = plan.read_deltas(disk, inputs)?;
    for named in &mut deltas {
        let is_compared = compare_content(plan, named)?;
        named.delta.ranges.iter_mut().for_each(|range| range.is_compared = is_compared);
    }
    let ranges = ranges_of(&deltas)?;
    let numbers: Vec<u32> = ranges.iter().map(|range| range.number).collect();
    let missing = missing(&numbers, plan.ranges());
    if let Some(missing) = missing.as_ref().filter(|_| !options.partial) {
        return Err(usage(format!("deltas are missing: those of the ranges {missing}")));
    }
    let shards = shards_of(plan, &deltas, options.shard)?;
    let is_same = |found: &Delta| {
        let of_shards = found.shards.iter().map(|shard| shard.number);
        found.plan == plan.digest && found.ranges == ranges && of_shards.eq(shards.iter().copied())
    };
    if let Some(found) = new_delta::find(disk, output, is_same)? {
        return Ok(DeltaReport::of(&found, true));
    }
    let output = &unfinished::target(disk, output)?;
    let mut coinbases = coinbases_of(&deltas)?;
    if missing.is_none() {
        // They are compared: no merge follows that needs them.
        coinbases.clear();
    }
    let mut counts = [0; 6];
    for named in &deltas {
        counts.iter_mut().zip(named.delta.counts).for_each(|(sum, count)| *sum += count);
    }

    sink.event(Event::Started(Stage::Match));
    let entries = |named: &NamedDelta| {
        let merged = named.delta.shards.iter().filter(|shard| shards.contains(&shard.number));
        merged.map(|shard| shard.entries).sum::<u64>()
    };
    let merging = Merging {
        disk,
        plan,
        deltas: &deltas,
        keeps_spends: missing.is_some(),
        meter: CoinMeter::new(sink, deltas.iter().map(entries).sum()),
        interrupt,
    };
    let work = new_delta::work_dir(disk, output);
    let new = NewDelta::begin(&work).map_err(new_delta::beside_output)?;
    let merge = |shard, writer: &mut SortedRunWriter| merging.merge_shard(shard, writer);
    // Each thread has a shard of every delta open, with a buffer of 128 KiB.
    let threads = options.threads.get().min((MAX_OPEN_SHARDS / deltas.len().max(1)).max(1));
    let written = new.write_shards(plan.network(), &shards, threads, &merge);
    let delta = written.map(|shards| Delta { plan: plan.digest, ranges, shards, counts, coinbases });
    let delta = delta.inspect_err(|_| {
        // This error is the one to report.
        let _ = (new.clear(), work.remove());
    })?;
    new.finish(&delta, output)
}

/// Checks that a delta of one range is what it says of itself: if the range is checked again, only that is
/// compared. Returns false for what an earlier merge has written, several ranges or some shards.
fn compare_content(plan: &RangePlan, NamedDelta { dir, delta }: &NamedDelta) -> Result<bool, Error> {
    let [range] = delta.ranges.as_slice() else { return Ok(false) };
    if delta.shards.len() < plan.shards() as usize {
        return Ok(false);
    }
    if range.content == delta.content() {
        return Ok(true);
    }
    let text = format!("it is not the delta of range {} that was made", range.number);
    Err(false_delta(text).in_file(dir, None))
}

/// Returns the ranges of all deltas, in order.
fn ranges_of(deltas: &[NamedDelta]) -> Result<Vec<CheckedRange>, Error> {
    let mut ranges: BTreeMap<u32, (&CheckedRange, &NamedDelta)> = BTreeMap::new();
    for named in deltas {
        for range in &named.delta.ranges {
            if let Some((_, other)) = ranges.insert(range.number, (range, named)) {
                let text = format!("it has range {}, and so has {}", range.number, other.dir.display());
                return Err(usage(text).in_file(&named.dir, None));
            }
        }
    }
    Ok(ranges.into_values().map(|(range, _)| range.clone()).collect())
}

/// Returns the numbers of the shards to merge, which all deltas must have.
fn shards_of(plan: &RangePlan, deltas: &[NamedDelta], wanted: Option<u32>) -> Result<Vec<u32>, Error> {
    if let Some(shard) = wanted.filter(|shard| *shard >= plan.shards()) {
        return Err(no_such("shard", shard, plan.shards()));
    }
    let first = deltas.iter().flat_map(|named| &named.delta.shards).map(|shard| shard.number);
    let mut shards: Vec<u32> = first.filter(|number| wanted.is_none_or(|wanted| wanted == *number)).collect();
    shards.sort_unstable();
    shards.dedup();
    for named in deltas {
        let has = |number: &u32| shard_of(named, *number).is_some();
        if let Some(number) = wanted.as_slice().iter().chain(&shards).find(|number| !has(number)) {
            return Err(usage(format!("it lacks shard {number}")).in_file(&named.dir, None));
        }
    }
    Ok(shards)
}

fn shard_of(named: &NamedDelta, number: u32) -> Option<&DeltaShard> {
    named.delta.shards.iter().find(|shard| shard.number == number)
}

/// Returns the hashes of all coinbase txids, in order.
fn coinbases_of(deltas: &[NamedDelta]) -> Result<Vec<u64>, Error> {
    let mut all: Vec<u64> = deltas.iter().flat_map(|named| named.delta.coinbases.iter().copied()).collect();
    all.sort_unstable();
    // A transaction with the txid of another one would replace its coins. The join of one range excludes it,
    // like that of a whole chain, for all but coinbases.
    if all.windows(2).any(|pair| pair[0] == pair[1]) {
        let detail = "two coinbases have the same txid: whether that is valid depends on the order of the \
                      blocks, which ranges do not keep";
        return Err(Error::damaged(detail).with_remedies([Remedy::RebuildChainstate]));
    }
    Ok(all)
}

/// What all threads share.
struct Merging<'a> {
    disk: &'a dyn Disk,
    plan: &'a RangePlan,
    deltas: &'a [NamedDelta],
    /// Whether spends are kept whose coins ranges may create that are missing.
    keeps_spends: bool,
    meter: CoinMeter<'a>,
    interrupt: &'a AtomicBool,
}

/// The entries of a shard, of which each spend claims a coin. The merge would believe one that claims none.
struct Claims<'a> {
    input: MergeInput<'a>,
    of: &'a NamedDelta,
}

impl EntrySource for Claims<'_> {
    type Error = Error;

    fn advance(&mut self) -> Result<Option<Entry<'_>>, Error> {
        let entry = self.input.advance()?;
        match &entry {
            Some(Entry { is_spend: true, outpoint, coin }) if Spender::of(coin).is_some() => {
                let text = format!("its spend of {outpoint} does not say of which coin");
                Err(Error::damaged(text).in_file(&self.of.dir, None))
            }
            _ => Ok(entry),
        }
    }
}

impl Merging<'_> {
    /// Writes the entries of a shard that do not cancel each other.
    fn merge_shard(&self, shard: u32, writer: &mut SortedRunWriter) -> Result<(), Error> {
        let runs = self.open(shard)?;
        let runs = self.deltas.iter().zip(&runs);
        let inputs = runs.map(|(of, run)| Claims { input: self.input(run, shard), of }).collect();
        let mut merge = Merge::new(inputs)?;
        let mut count = 0;
        while !merge.is_at_end() {
            match merge.advance() {
                Ok(Some(entry)) if entry.is_spend && !self.keeps_spends => {
                    let outpoint = entry.outpoint;
                    return Err(self.explain(shard, &outpoint));
                }
                Ok(Some(entry)) => writer.add(&entry)?,
                Ok(None) => Error::check_interrupt(self.interrupt)?,
                Err(MergeError::Mismatch(outpoint)) => return Err(self.explain(shard, &outpoint)),
                Err(MergeError::EntrySource(error)) => return Err(damaged(error)),
            }
            count += 1;
            if count % INTERRUPT_CHECK_INTERVAL == 0 {
                self.meter.add(INTERRUPT_CHECK_INTERVAL);
                Error::check_interrupt(self.interrupt)?;
            }
        }
        self.meter.add(count % INTERRUPT_CHECK_INTERVAL);
        Ok(())
    }

    /// Opens a shard of all deltas.
    fn open(&self, shard: u32) -> Result<Vec<SortedRunReader>, Error> {
        let of = |named: &NamedDelta| {
            // `shards_of` has found it in each.
            let listed = shard_of(named, shard).ok_or_else(Error::panicked)?;
            open_shard(self.disk, self.plan, &named.dir, listed)
        };
        self.deltas.iter().map(of).collect()
    }

    fn input<'r>(&self, run: &'r SortedRunReader, shard: u32) -> MergeInput<'r> {
        MergeInput::of_run(run, self.plan.plan.first_bytes(shard))
    }

    /// The directory of the delta that has the block at a height; `None` if no delta has it.
    fn dir_of(&self, height: Height) -> Option<String> {
        let has = |named: &&NamedDelta| {
            let heights = named.delta.ranges.iter().filter_map(|range| self.plan.plan.heights(range.number));
            heights.into_iter().any(|heights| heights.contains(&height.0))
        };
        self.deltas.iter().find(has).map(|named| named.dir.display().to_string())
    }

    /// The error for a coin whose creations and spends do not match: which ranges say what of it.
    fn explain(&self, shard: u32, outpoint: &OutPoint) -> Error {
        let (mut create, mut spend, mut claimed) = (Vec::new(), Vec::new(), Height(0));
        let mut look = || -> Result<(), Error> {
            for (named, run) in self.deltas.iter().zip(self.open(shard)?) {
                let mut entries = self.input(&run, shard);
                while let Some(entry) = entries.advance()? {
                    if entry.outpoint == *outpoint {
                        let sayers = if entry.is_spend { &mut spend } else { &mut create };
                        sayers.push(named.dir.display().to_string());
                        claimed = if entry.is_spend { entry.coin.height() } else { claimed };
                    }
                }
            }
            Ok(())
        };
        if let Err(error) = look() {
            return error;
        }
        let detail = match (create.as_slice(), spend.as_slice()) {
            ([], spend) => {
                let creator = self.dir_of(claimed).map(|dir| format!("but {dir} does not create it"));
                format!(
                    "coin {outpoint}: {} spends it as one of block {claimed}, {}",
                    spend.join(" and "),
                    creator.unwrap_or("which no range has".to_owned())
                )
            }
            ([create], [spend]) => format!(
                "coin {outpoint}: {create} creates it, and {spend} spends it with another amount, script or \
                 height"
            ),
            ([create], spend) => format!(
                "coin {outpoint}: {create} creates it, and it is spent more than once: {}",
                spend.join(" and ")
            ),
            (create, _) => {
                format!("coin {outpoint}: more than one range creates it: {}", create.join(" and "))
            }
        };
        let detail = detail + "; a delta or undo data is false, or a block is invalid";
        Error::damaged(detail).with_remedies([Remedy::CheckRangeAgain, Remedy::Verify])
    }
}

/// Opens a shard of a delta.
///
/// # Errors
/// [`ErrorKind::Damaged`] if it is not the file that the list names; any I/O error.
pub fn open_shard(
    disk: &dyn Disk,
    plan: &RangePlan,
    dir: &Path,
    listed: &DeltaShard,
) -> Result<SortedRunReader, Error> {
    Delta::open_shard(disk, dir, plan.network(), listed).map_err(|error| damaged(error.into()))
}

/// An error about a file of a delta, with what helps.
fn damaged(error: Error) -> Error {
    match error.kind {
        ErrorKind::Damaged => error.without_remedies().with_remedies([Remedy::CheckRangeAgain]),
        _ => error,
    }
}
