//! The commands `peregrine range`: ranges of a chain that several machines check.

mod json;
mod plan_file;

pub use json::{DeltaJson, FilesJson};
pub use plan_file::PlanJson;

use crate::{
    args::common::one_per_core,
    core_args::{ASSUME_VALID, CoreArgs, assume_valid},
    prelude::*,
};
use engine::{AssumeValid, ScriptChecks};
use ranges::{CheckRangeOptions, FinishRangesOptions, MergeDeltasOptions, PlanRangesOptions};
use std::num::NonZeroUsize;

/// The name of this program in reports of who has checked what.
const PROGRAM: &str = concat!("peregrine ", env!("CARGO_PKG_VERSION"));

#[derive(Subcommand, Debug)]
pub enum RangeCommand {
    /// Cut the chain into ranges, and write what all machines must agree on
    Plan(PlanArgs),
    /// List the bytes of block and undo files that a range needs
    Files(FilesArgs),
    /// Check all blocks of a range, and write what they change about the UTXO set
    Check(CheckArgs),
    /// Merge what ranges change, and prove each spend
    Merge(MergeArgs),
    /// Make the chainstate of what all ranges change, and report who has checked what
    Finish(FinishArgs),
}

#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Number of ranges; each has about as many bytes of blocks
    #[arg(long, value_name = "N")]
    pub ranges: u32,

    /// Number of shards into which what a range changes is cut, and which are merged separately [default: as
    /// many as ranges, at most 64]
    #[arg(long, value_name = "N")]
    pub shards: Option<u32>,

    /// Last block of the chain [default: the last one with undo data]
    #[arg(long, value_name = "HEIGHT", alias = "stop-at-height")]
    pub to: Option<u32>,

    #[arg(long, value_name = "HASH|0|checked|default", value_parser = assume_valid, help = ASSUME_VALID)]
    pub assumevalid: Option<AssumeValid>,

    /// Ignore the block index and find blocks and undo data by reading their files
    #[arg(long)]
    pub scan: bool,

    /// File to write; a second one, with the suffix .blocks, belongs to it
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(Args, Debug)]
pub struct FilesArgs {
    /// The plan
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,

    /// Number of the range
    #[arg(long, value_name = "N")]
    pub range: u32,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// The plan
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,

    /// Number of the range
    #[arg(long, value_name = "N")]
    pub range: u32,

    /// Directory to write. If it has the result already, nothing is done
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,

    /// Name of this machine in the report of who has checked what [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub checker: Option<String>,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    #[command(flatten)]
    pub resume: ResumeArgs,
}

#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Directories that range check or range merge has written
    #[arg(value_name = "DIR", required = true)]
    pub inputs: Vec<PathBuf>,

    /// The plan
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,

    /// Merge only this shard
    #[arg(long, value_name = "N")]
    pub shard: Option<u32>,

    /// Merge although ranges are missing: the result can be merged with those
    #[arg(long)]
    pub partial: bool,

    /// Directory to write. If it has the result already, nothing is done
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = one_per_core(), hide_default_value = true)]
    pub threads: NonZeroUsize,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

#[derive(Args, Debug)]
pub struct FinishArgs {
    /// Directories that range merge has written
    #[arg(value_name = "DIR", required = true)]
    pub inputs: Vec<PathBuf>,

    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// The plan
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,

    /// Write the chainstate to this datadir
    #[arg(long, value_name = "DIR2")]
    pub output: PathBuf,

    /// Check this share of the ranges again, chosen at random, with the blocks of --datadir
    #[arg(long, value_name = "PERCENT", requires = "datadir", value_parser = percent)]
    pub recheck: Option<f64>,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
}

/// Parses a share above 0 and at most 100.
fn percent(text: &str) -> Result<f64, String> {
    let share = text.trim_end_matches('%').parse().ok().filter(|share| *share > 0.0 && *share <= 100.0);
    share.ok_or_else(|| "must be above 0 and at most 100".to_owned())
}

pub fn plan(args: &PlanArgs) -> Done {
    let located = args.datadir.core.locate()?;
    paths::check(&located, None, &[("--output", Some(&args.output))])?;
    let chain = args.datadir.checking_options(&located, None, args.assumevalid);
    let options = PlanRangesOptions {
        chain: ChainOptions { scan: args.scan, stop_at_height: args.to.map(Height), ..chain },
        ranges: args.ranges,
        shards: args.shards,
    };
    let (file, blocks) = plan_file::begin(&RealDisk, &args.output)?;
    let plan = args.datadir.run(Some(&options.chain), stages::PLAN, |watch| {
        ranges::plan_ranges(&RealDisk, &options, &blocks, watch)
    })?;
    let described = PlanJson::new(&plan)?;
    described.write(file)?;
    Ok(reply(&described, Exit::Done, |described| described.rows(&args.output, &plan)))
}

pub fn files(args: &FilesArgs) -> Done {
    let plan = plan_file::read(&args.plan)?;
    Ok(reply(&FilesJson::new(&plan, args.range)?, Exit::Done, FilesJson::rows))
}

pub fn check(args: &CheckArgs) -> Done {
    let plan = plan_file::read(&args.plan)?;
    let located = args.datadir.core.locate_on(plan.network())?;
    paths::check(&located, None, &[("--output", Some(&args.output))])?;
    let chain = args.datadir.checking_options(&located, args.memory, None);
    let host_name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let options = CheckRangeOptions {
        chain: ChainOptions { resume: args.resume.options(), ..chain },
        range: args.range,
        checker: args.checker.clone().unwrap_or_else(host_name),
        program: PROGRAM.to_owned(),
    };
    let delta = args.datadir.run(Some(&options.chain), stages::MAKE, |watch| {
        ranges::check_range(&RealDisk, &plan, &options, &args.output, watch)
    })?;
    Ok(reply(&DeltaJson::new(&args.output, delta), Exit::Done, DeltaJson::rows))
}

pub fn merge(args: &MergeArgs) -> Done {
    let plan = plan_file::read(&args.plan)?;
    let options = MergeDeltasOptions { shard: args.shard, partial: args.partial, threads: args.threads };
    let merged = run::run(None, args.progress, stages::MERGE, |watch| {
        ranges::merge_deltas(&RealDisk, &plan, &args.inputs, &options, &args.output, watch)
    })?;
    Ok(reply(&DeltaJson::new(&args.output, merged), Exit::Done, DeltaJson::rows))
}

pub fn finish(args: &FinishArgs) -> Done {
    let plan = plan_file::read(&args.plan)?;
    let core = &args.datadir.core;
    let chain = match args.recheck {
        Some(_) => {
            let located = core.locate_on(plan.network())?;
            paths::check(&located, None, &[("--output", Some(&args.output))])?;
            args.datadir.checking_options(&located, args.memory, None)
        }
        None if *core != CoreArgs::default() => {
            let detail = "--datadir and the options about it are for --recheck, and no block is read without \
                          it: leave them out, or pass --recheck";
            return Err(Error::usage(detail));
        }
        None => {
            let options = ChainOptions::new(&args.output, plan.network(), ScriptChecks::LeftOut);
            let threads = args.datadir.threads;
            ChainOptions { threads, memory_bytes: args.memory.unwrap_or(options.memory_bytes), ..options }
        }
    };
    let options = FinishRangesOptions { chain, recheck_percent: args.recheck };
    let report = args.datadir.run(Some(&options.chain), stages::REINDEX, |watch| {
        ranges::finish_ranges(&RealDisk, &plan, &args.inputs, &options, &args.output, watch)
    })?;
    Ok(reply(&report, Exit::Done, json::ranges_rows))
}
