//! Makes the chainstate of merged deltas, and reports who has checked what.

use super::{
    check::{CheckRangeOptions, delta_of_range},
    deltas::{NamedDelta, false_delta, missing, usage},
    merge,
    range_plan::RangePlan,
};
use api::{
    counts::Counts,
    disk_need::DiskNeed,
    error::Error,
    event::{Event, EventSink as _, Warnings, Watch},
    json::{HashText, PathText, Seconds, TrueOrNull},
    machine,
    note::{Notes, Warning},
    options::{ChainOptions, ReindexOptions, ScriptChecks},
    report::{ScriptsFields, ScriptsReport},
    stage::Stage,
};
use chain::{commit::Destination, session::Session};
use disk::{datadir::Datadir, delta::CheckedRange, utxo_stats::UtxoStats};
use pipeline::{
    job,
    stages::{
        coin_sink::Coins,
        finish::{self, Finish},
        unspent::Unspent,
        work_dir::{WorkDir, temp_dir},
    },
};
use rules::ChainParams;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use vfs::Disk;
use wire::{BlockHash, Height, Network, Sats};

#[derive(Clone, Debug)]
pub struct FinishRangesOptions {
    /// Threads and hooks for writing. Its datadir has the blocks of ranges that are checked again, and is not
    /// used otherwise.
    pub chain: ChainOptions,
    /// Share of the ranges to check again here, in percent, above 0 and at most 100; at least one range is
    /// checked, chosen at random. `None`: no range.
    pub recheck_percent: Option<f64>,
}

api::reported! {
/// The chainstate that deltas have become.
#[derive(Clone, Debug)]
pub struct RangesReport {
    /// Network of the chain.
    pub network as "chain": Network,
    /// Height of its last block.
    pub height: Height,
    /// Hash of that block.
    pub hash as "block_hash": BlockHash,
    /// Blocks, and what is in them.
    pub counts [flatten]: Counts,
    /// Number of coins.
    pub txouts as "coins": u64,
    /// Sum of their amounts.
    pub total_amount as "total_amount_sat": Sats,
    /// `hash_serialized_3` of the coins, in internal byte order.
    pub hash_serialized_3 with "HashText": [u8; 32],
    /// MuHash of the coins, in internal byte order.
    pub muhash with "HashText": [u8; 32],
    /// Whether Core's source pins this hash for the block.
    pub is_pinned as "matches_core_assumeutxo_hash" with "TrueOrNull": bool,
    /// Which scripts were run; `None` if none were.
    pub scripts with "ScriptsFields": Option<ScriptsReport>,
    /// Who has checked what, by range.
    pub ranges: Vec<RangeCheck>,
    /// The new chainstate.
    pub chainstate with "PathText": PathBuf,
    /// How long it took.
    pub elapsed as "seconds" with "Seconds": Duration,
    /// What the operator must know.
    pub notes with "Notes": Vec<Warning>,
}

/// The check of a range.
#[derive(Clone, Debug)]
pub struct RangeCheck {
    /// Number of the range.
    pub number: u32,
    /// Height of its first block.
    pub from: u32,
    /// Height of its last block.
    pub to: u32,
    /// Name of the machine that has checked it.
    pub checker: String,
    /// Program that has checked it, with its version.
    pub program: String,
    /// Seconds that it took.
    pub seconds: u32,
    /// Whether it was checked again here, with the same result.
    pub is_rechecked as "rechecked": bool,
}
}

/// Writes the coins of merged deltas, which are in the directories `inputs`, as the chainstate of the datadir
/// `output`, which must not have one.
///
/// # Errors
/// [`Usage`](api::error::ErrorKind::Usage) for deltas of another plan, or that are not merged, or if shards
/// are missing; [`Damaged`](api::error::ErrorKind::Damaged) if a delta is damaged, or false as far as it was
/// checked again; any I/O error; [`Interrupted`](api::error::ErrorKind::Interrupted).
pub fn finish_ranges(
    disk: &dyn Disk,
    plan: &RangePlan,
    inputs: &[PathBuf],
    options: &FinishRangesOptions,
    output: &Path,
    watch: Watch<'_>,
) -> Result<RangesReport, Error> {
    let started = Instant::now();
    let sink = &Warnings::new(watch.sink);
    let watch = Watch { sink, ..watch };
    sink.event(Event::Started(Stage::Plan));
    let params = ChainParams::of(plan.network());
    let threads = options.chain.threads.get();
    let deltas = plan.read_deltas(disk, inputs)?;
    let first = check_complete(plan, &deltas, options.recheck_percent.is_some())?;
    let counts = Counts::of_words(first.delta.counts);
    let bytes = deltas.iter().flat_map(|named| &named.delta.shards).map(|shard| shard.bytes).sum();
    let need = DiskNeed { chainstate: bytes, temporary: 0, undo: 0 };
    // Before ranges are checked again, which may take hours.
    let chainstate_dir = &Datadir::at(output, params.network).chainstate_dir();
    need.check(disk, chainstate_dir, output, output, 0)?;
    if vfs::exists(disk, chainstate_dir)? {
        drop(Session::open_for_output(disk, params, output, sink)?);
    }
    let rechecked = recheck(disk, plan, &first.delta.ranges, options, watch)?;

    let session = Session::open_for_output(disk, params, output, sink)?;
    let request = ReindexOptions {
        output: Some(output.to_owned()),
        ..ReindexOptions::new(output, plan.network(), ScriptChecks::LeftOut)
    };
    let target = Destination::prepare(disk, session.datadir().clone(), &request)?;
    let chain = plan.chain();
    let finish = Finish {
        disk,
        target: &target,
        chain: &chain,
        key: options.chain.hooks.obfuscation_key.map_or_else(machine::random, Ok)?,
        range_bytes: options.chain.hooks.range_bytes,
        threads,
        watch,
    };
    let built = build(plan, &deltas, &finish);
    let (total_amount, stats, is_pinned) = built.inspect_err(|_| target.discard())?;
    let (height, hash) = plan.tip();
    Ok(RangesReport {
        network: plan.network(),
        height,
        hash,
        counts,
        txouts: stats.counts.txouts,
        total_amount,
        hash_serialized_3: stats.hash_serialized_3,
        muhash: stats.muhash.unwrap_or_default(),
        is_pinned,
        scripts: plan.scripts(counts.scripts),
        ranges: first.delta.ranges.iter().map(|range| of_range(plan, range, &rechecked)).collect(),
        chainstate: target.chainstate_dir(),
        elapsed: started.elapsed(),
        notes: sink.take(),
    })
}

/// Writes the coins of the deltas, proves them, and puts the chainstate in place. Returns the sum of their
/// amounts, their statistics, and whether Core's source pins the hash.
fn build(
    plan: &RangePlan,
    deltas: &[NamedDelta],
    finish: &Finish<'_, '_>,
) -> Result<(Sats, UtxoStats, bool), Error> {
    let (params, sink) = (ChainParams::of(plan.network()), finish.watch.sink);
    sink.event(Event::Started(Stage::Finish));
    let mut runs = Vec::new();
    for NamedDelta { dir, delta } in deltas {
        for shard in &delta.shards {
            runs.push(merge::open_shard(finish.disk, plan, dir, shard)?);
        }
    }
    let coins = Coins::new(Unspent::of_runs(runs), finish.watch);
    let written = finish.write(coins).map_err(|error| error.without_fallback())?;
    let total_amount = finish::check_supply(params, finish.chain, &written, 0)
        .ok_or_else(|| false_delta("the coins amount to more than all subsidies: a delta is false"))?;
    sink.event(Event::Started(Stage::Prove));
    let stats = finish.prove(&written, true)?;
    let (height, hash) = plan.tip();
    let is_pinned = job::check_pinned_hash(params, height, &hash, &stats.hash_serialized_3)?;
    sink.event(Event::Started(Stage::Commit));
    finish.target.commit(sink, || ())?;
    Ok((total_amount, stats, is_pinned))
}

fn of_range(plan: &RangePlan, range: &CheckedRange, rechecked: &[u32]) -> RangeCheck {
    let heights = plan.plan.heights(range.number).unwrap_or_default();
    RangeCheck {
        number: range.number,
        from: heights.start,
        to: heights.end.saturating_sub(1),
        checker: range.checker.clone(),
        program: range.program.clone(),
        seconds: range.seconds,
        is_rechecked: rechecked.contains(&range.number),
    }
}

/// Checks that the deltas have each shard once, and that all of them are merged from the same deltas of all
/// ranges; if ranges are checked again, from these at once. Returns the first one.
fn check_complete<'d>(
    plan: &RangePlan,
    deltas: &'d [NamedDelta],
    is_rechecked: bool,
) -> Result<&'d NamedDelta, Error> {
    let first = deltas.first().ok_or_else(|| usage("there is no delta"))?;
    let mut shards: Vec<(u32, &NamedDelta)> = Vec::new();
    for named in deltas {
        let NamedDelta { dir, delta } = named;
        let numbers: Vec<u32> = delta.ranges.iter().map(|range| range.number).collect();
        if let Some(missing) = missing(&numbers, plan.ranges()) {
            return Err(usage(format!("it lacks ranges: {missing}; merge first")).in_file(dir, None));
        }
        let merged_before = delta.ranges.iter().find(|range| is_rechecked && !range.is_compared);
        if let Some(CheckedRange { number, .. }) = merged_before {
            let text = format!(
                "range {number} came into it with a delta that was merged before, so a second check of that \
                 range proves nothing; merge the deltas of single ranges"
            );
            return Err(usage(text).in_file(dir, None));
        }
        if delta.shards.iter().any(|shard| shard.spends > 0) {
            return Err(usage("it has spends without coins; merge first").in_file(dir, None));
        }
        let differing = delta.ranges.iter().zip(&first.delta.ranges).find(|(a, b)| a.content != b.content);
        if let Some((range, _)) = differing {
            let text = format!(
                "it was merged from another delta of range {} than {} was; one of the two deltas is false",
                range.number,
                first.dir.display()
            );
            return Err(false_delta(text).in_file(dir, None));
        }
        if delta.counts != first.delta.counts {
            let text = format!("it counts other blocks than {}", first.dir.display());
            return Err(false_delta(text).in_file(dir, None));
        }
        for shard in &delta.shards {
            if let Some((number, other)) = shards.iter().find(|(number, _)| *number == shard.number) {
                let text = format!("it has shard {number}, and so has {}", other.dir.display());
                return Err(usage(text).in_file(dir, None));
            }
            shards.push((shard.number, named));
        }
    }
    let numbers: Vec<u32> = shards.iter().map(|(number, _)| *number).collect();
    if let Some(missing) = missing(&numbers, plan.shards()) {
        return Err(usage(format!("shards are missing: {missing}")));
    }
    let (blocks, (height, _)) = (Counts::of_words(first.delta.counts).blocks, plan.tip());
    if blocks != u64::from(height.0) + 1 {
        let text = format!("the deltas count {blocks} blocks, but the plan has {}", height.0 + 1);
        return Err(false_delta(text));
    }
    Ok(first)
}

/// Checks some ranges again, and compares them with what other machines have made of them. Returns their
/// numbers.
fn recheck(
    disk: &dyn Disk,
    plan: &RangePlan,
    ranges: &[CheckedRange],
    options: &FinishRangesOptions,
    watch: Watch<'_>,
) -> Result<Vec<u32>, Error> {
    let Some(percent) = options.recheck_percent else { return Ok(Vec::new()) };
    let count = (ranges.len() as f64 * percent / 100.0).ceil().max(1.0) as usize;
    let mut left: Vec<&CheckedRange> = ranges.iter().collect();
    let mut chosen = Vec::new();
    let home = options.chain.work_dir.clone().unwrap_or_else(|| temp_dir(disk));
    let work = &WorkDir::exclusive(disk, &home);
    while chosen.len() < count && !left.is_empty() {
        let range = left.swap_remove((u64::from_le_bytes(machine::random()?) % left.len() as u64) as usize);
        let again = CheckRangeOptions {
            chain: options.chain.clone(),
            range: range.number,
            // Only what the range amounts to is compared.
            checker: String::new(),
            program: String::new(),
        };
        let checked = delta_of_range(disk, plan, &again, work, None, watch);
        let content = checked.and_then(|(new, delta)| new.clear().map(|()| delta.content()));
        let removed = work.remove();
        if content? != range.content {
            let text = format!(
                "range {}, which {} has checked, amounts to something else when it is checked here: its \
                 delta is false, or one of the two machines is defective",
                range.number, range.checker
            );
            return Err(false_delta(text));
        }
        removed?;
        chosen.push(range.number);
    }
    Ok(chosen)
}
