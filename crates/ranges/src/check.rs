//! Checks the blocks of a range, and writes what they amount to.

use super::{
    deltas::DeltaReport,
    new_delta::{self, NewDelta},
    range_plan::RangePlan,
};
use api::{
    disk_need::DiskNeed,
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::{AssumeValid, ChainOptions, ResumeOptions, ScriptChecks, UndoPolicy},
    remedy::Remedy,
    stage::Stage,
};
use chain::{
    plan::{
        planner::{Plan, SharedPlan},
        tree::Choice,
    },
    session::Session,
};
use disk::delta::{CheckedRange, Delta};
use pipeline::{
    job::{Job, checkpoint, clock::Clock},
    stages::{coin_sink::INTERRUPT_CHECK_INTERVAL, method::Method, unspent::ForEachError, work_dir::WorkDir},
};
use std::{
    path::Path,
    sync::{Mutex, PoisonError, atomic::Ordering},
};
use vfs::{Disk, unfinished};

/// Block bytes per byte of a delta, at least: it has spends too.
const BLOCK_BYTES_PER_DELTA_BYTE: u64 = 15;

/// How a range is checked. Which scripts are run is in the plan, and undo data is trusted until the merge.
#[derive(Clone, Debug)]
pub struct CheckRangeOptions {
    /// The blocks of the range: a datadir that need not have more than its block and undo files.
    pub chain: ChainOptions,
    pub range: u32,
    /// Name of this machine, for the report of who has checked what.
    pub checker: String,
    /// Name and version of the program, for the same report.
    pub program: String,
}

/// Checks all blocks of a range, and writes its delta to the directory `output`. If that has the range's
/// delta already, nothing is done.
///
/// # Errors
/// The first violation, if the coins in the undo data are the right ones; [`ErrorKind::Damaged`] if blocks
/// and undo data contradict each other, or are damaged; [`ErrorKind::Usage`] if plan and datadir do not
/// belong together, or something else is at `output`; any I/O error; [`ErrorKind::Interrupted`].
pub fn check_range(
    disk: &dyn Disk,
    plan: &RangePlan,
    options: &CheckRangeOptions,
    output: &Path,
    watch: Watch<'_>,
) -> Result<DeltaReport, Error> {
    plan.heights(options.range)?;
    let is_same = |delta: &Delta| {
        let is_range = matches!(delta.ranges.as_slice(), [only] if only.number == options.range);
        is_range && delta.plan == plan.digest && delta.shards.len() == plan.plan.shards as usize
    };
    if let Some(found) = new_delta::find(disk, output, is_same)? {
        return Ok(DeltaReport::of(&found, true));
    }
    let output = &unfinished::target(disk, output)?;
    let work = &new_delta::work_dir(disk, output);
    let done = delta_of_range(disk, plan, options, work, Some(&options.chain.resume), watch);
    let (new, delta) = done.map_err(new_delta::beside_output)?;
    new.finish(&delta, output)
}

/// Checks all blocks of a range in a work directory, and returns the delta, whose files are there. After an
/// error from which another run can continue, the work directory stays. Without `resume`, none can.
pub fn delta_of_range<'w, 'd>(
    disk: &dyn Disk,
    plan: &RangePlan,
    options: &CheckRangeOptions,
    work: &'w WorkDir<'d>,
    resume: Option<&ResumeOptions>,
    watch: Watch<'_>,
) -> Result<(NewDelta<'w, 'd>, Delta), Error> {
    let clock = &mut Clock::start();
    let chain_options = &chain_options(plan, &options.chain)?;
    watch.sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, chain_options)?;
    let files = &session.files()?;
    let heights = plan.plan.heights(options.range).unwrap_or_default();
    let mut chain = plan.chain();
    chain.cut_to(heights);
    let shared = SharedPlan { digest: plan.digest, coinbase_key: plan.plan.coinbase_key };
    let (assumed_valid_to, checked_to) = (plan.plan.assumed_valid_to, plan.plan.checked_to);
    let choice = Choice { assumed_valid_to, checked_to, ..Choice::default() };
    let job_plan = Plan::of_range(files, chain, shared, choice);
    let job_plan = &job_plan.map_err(without_index)?;
    clock.lap(Stage::Plan);
    let job = &Job { resume, ..Job::new(files, job_plan, chain_options, &Method::Join, work, watch) };
    let done = write_delta((job, work), plan, options, clock);
    done.map_err(|error| {
        let error = without_index(work.explain(error));
        let error = checkpoint::with_resume_hint(error, work, options.chain.resume.restart);
        if error.kind == ErrorKind::Consensus || !work.may_have_checkpoint() {
            // This error is the one to report.
            let _ = work.remove();
        }
        error
    })
}

/// The error for files that do not have what the plan places in them: no block index is used. They may be
/// those of another node, which has its blocks at other places, so nothing need be damaged. Blocks that do
/// not match ([`Error::unproven_range`]) are those of the plan.
fn without_index(error: Error) -> Error {
    match error.kind {
        ErrorKind::Damaged if !error.remedies.contains(&Remedy::Verify) => {
            error.without_remedies().with_remedies([Remedy::RestorePlannedFiles])
        }
        _ => error,
    }
}

/// What the plan fixes, and what this machine has.
fn chain_options(plan: &RangePlan, options: &ChainOptions) -> Result<ChainOptions, Error> {
    if options.params.magic != plan.plan.magic {
        let (of_plan, chosen) = (plan.network(), options.params.network);
        let text = format!("the plan is for chain {of_plan}, not for the {chosen} that was chosen");
        return Err(Error::usage(text).with_remedies([Remedy::ChooseNetwork(of_plan)]));
    }
    let (of_plan, chosen) = (&plan.plan.activation_heights, options.params.activation_heights());
    if *of_plan != chosen {
        return Err(Error::usage(format!(
            "the plan is for the activation heights {of_plan}; choose these (testactivationheight, test), \
             not {chosen}"
        )));
    }
    if plan.plan.scripts && !options.scripts.are_run() {
        let text = "the plan asks for scripts to be run, and this program was built without that";
        return Err(Error::usage(text));
    }
    let scripts = if plan.plan.scripts { options.scripts.clone() } else { ScriptChecks::LeftOut };
    Ok(ChainOptions { scripts, assume_valid: AssumeValid::Off, undo: UndoPolicy::Trust, ..options.clone() })
}

/// Matches what can be matched within the range, and writes the rest.
fn write_delta<'w, 'd>(
    (job, work): (&Job<'_>, &'w WorkDir<'d>),
    plan: &RangePlan,
    options: &CheckRangeOptions,
    clock: &mut Clock,
) -> Result<(NewDelta<'w, 'd>, Delta), Error> {
    let delta = job.plan.block_bytes / BLOCK_BYTES_PER_DELTA_BYTE;
    job.check_work_need(DiskNeed { chainstate: delta, ..job.disk_need() })?;
    let (mut partial, unspent) = job.match_range(clock)?;
    job.watch.sink.event(Event::Started(Stage::Finish));
    let shards: Vec<u32> = (0..plan.shards()).collect();
    let (ranges, runs) = unspent.into_delta_shards(shards.len());
    let ranges: Vec<_> = ranges.into_iter().map(|range| Mutex::new(Some(range))).collect();
    let new = NewDelta::begin(work)?;
    let written = new.write_shards(job.files.params.network, &shards, job.threads(), &|shard, writer| {
        let range = ranges[shard as usize].lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut count = 0u64;
        range.ok_or_else(Error::panicked)?.each_entry(&runs, |entry| {
            count += 1;
            if count.is_multiple_of(INTERRUPT_CHECK_INTERVAL) && job.watch.interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted().into());
            }
            Ok(writer.add(&entry)?)
        })
    });
    let shards = written.map_err(|error| {
        // This error is the one to report.
        let _ = new.clear();
        match error {
            ForEachError::Mismatch => Error::unproven_range(None),
            ForEachError::Error(error) => error,
        }
    })?;
    clock.lap(Stage::Finish);
    let mut coinbases = partial.coinbases.take_hashes();
    coinbases.sort_unstable();
    let range = CheckedRange {
        number: options.range,
        content: [0; 32],
        is_compared: true,
        seconds: clock.started.elapsed().as_secs() as u32,
        checker: options.checker.clone(),
        program: options.program.clone(),
    };
    let counts = partial.counts.to_words();
    let mut delta = Delta { plan: plan.digest, ranges: vec![range], shards, counts, coinbases };
    let content = delta.content();
    delta.ranges.iter_mut().for_each(|range| range.content = content);
    Ok((new, delta))
}
