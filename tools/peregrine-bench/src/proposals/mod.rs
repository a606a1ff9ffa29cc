//! `peregrine-bench proposals`: what each proposal of Bitcoin Core's documents on the speed of initial block
//! download gains on this machine, with and without it in turns on one chain. `docs/benchmarks.md` explains
//! the columns.

mod chain;
mod list;
mod page;
mod proposal;
mod report;
mod steps;

use crate::{
    circumstances::Circumstances,
    measure::{Measured, ProgramArgs, measure},
    page::{MARK, exists, write},
    place::{Scratch, environment},
    rows::{OutputArgs, Rows},
};
use bench::Inputs;
use chain::{Chain, failed};
use clap::Args as ClapArgs;
use cli::{
    output::{Done, interrupt},
    stop,
};
use engine::{Error, ErrorKind, Network, Stage};
use list::PROPOSALS;
use parse_size::parse_size;
use proposal::{Outcome, Proposal, Run, Stopwatch, Work};
use report::{Report, Row};
use serde_json::Value;
use std::{
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use steps::Lab;

/// A step of a rebuild.
type Step = fn(&Lab<'_>, &mut Stopwatch) -> Result<Outcome, Error>;

#[derive(ClapArgs, Debug)]
pub struct ProposalsArgs {
    /// Bitcoin Core's data directory, which is only read [default: a chain is generated]
    #[arg(long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,

    /// Its network, by Core's names
    #[arg(long, default_value_t = Network::Main, requires = "datadir")]
    pub chain: Network,

    /// Bytes of the blocks to generate, with suffix kB, MB or GB
    #[arg(long, value_name = "SIZE", default_value = "200MB", conflicts_with = "datadir")]
    #[arg(value_parser = |text: &str| parse_size(text))]
    pub size: u64,

    /// Seed of the generated chain
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "datadir")]
    pub seed: u64,

    /// Use the chain up to this height only; its blocks must fit into memory three times
    #[arg(long, value_name = "N", requires = "datadir")]
    pub stop_at_height: Option<u32>,

    /// Height at which hints end; up to there, all blocks must be assumed valid [default: the last block]
    #[arg(long, value_name = "N", requires = "datadir")]
    pub hints_height: Option<u32>,

    /// Measure only the proposals of these names [default: all]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    #[arg(value_parser = PROPOSALS.iter().map(|proposal| proposal.name).collect::<Vec<_>>())]
    pub only: Vec<String>,

    /// Runs of each variant, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,

    #[command(flatten)]
    pub program: ProgramArgs,

    /// Write the report as an HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Measures all variants in turns, and returns the report.
pub fn run(args: &ProposalsArgs) -> Done {
    let interrupt = interrupt(args.output.json)?;
    stop::at_stage(Stage::Read);
    if let Some(page) = &args.page {
        exists(page, MARK, false)?;
    }
    let mut rows = Rows::new(&args.output)?;
    let program = args.program.find()?;
    let scratch = Scratch::new(&args.output.work_dir)?;
    let wanted =
        |proposal: &&Proposal| args.only.is_empty() || args.only.iter().any(|it| it == proposal.name);
    let proposals: Vec<&Proposal> = PROPOSALS.iter().filter(wanted).collect();
    let chain = match &args.datadir {
        Some(datadir) => Chain::copy(datadir, args.chain, &scratch.0)?,
        None => Chain::generate(&scratch.0, args.size, args.seed)?,
    };
    let chain = chain.limited(args.stop_at_height, args.hints_height);
    let variants = || proposals.iter().flat_map(|proposal| proposal.variants);
    if variants().any(|variant| matches!(variant.work, Work::Run(Run { has_hints: true, .. }))) {
        chain.make_hints(&program, &args.program)?;
    }
    let (stored, places) = chain.load()?;
    let inputs = Inputs::new(stored);
    let mut arenas = inputs.arenas();
    let blocks = inputs.blocks(&mut arenas);
    let lab = Lab::new(&chain, &blocks, &places, &scratch.0)?;
    let bytes = blocks.iter().map(|block| block.view.bytes().len()).sum();
    let runner =
        Runner { args, program: &program, chain: &chain, scratch: &scratch.0, interrupt: &interrupt };
    chain.warm()?;
    let circumstances = Circumstances::begin();
    for run in 1..=args.runs.get() {
        for proposal in &proposals {
            for variant in proposal.variants {
                let (measured, outcome) = match variant.work {
                    Work::Step(step) => measured_step(step, &lab)?,
                    Work::Run(rebuild) => runner.rebuild(&rebuild, bytes)?,
                };
                if interrupt.load(Ordering::Relaxed) {
                    return Err(Error::interrupted());
                }
                rows.add(Row::new(proposal, variant, run, &measured, outcome), args.runs, &measured)?;
            }
        }
    }
    let tip = blocks.last().map(|block| (block.height, block.hash));
    let about = report::About::new(args, &chain, tip, bytes, circumstances);
    let report = Report::new(about, &proposals, rows.finish()?);
    if let Some(path) = &args.page {
        write(path, MARK, false, &page::page(&report))?;
    }
    args.output.done(&report, Report::text)
}

/// Measures a step.
fn measured_step(step: Step, lab: &Lab<'_>) -> Result<(Measured, Outcome), Error> {
    let mut watch = Stopwatch::default();
    let outcome = step(lab, &mut watch)?;
    let measured = Measured {
        wall: watch.wall,
        user: watch.processor,
        system: Duration::ZERO,
        peak_rss_bytes: 0,
        io: None,
        status: ExitStatus::default(),
        output: String::new(),
        messages: String::new(),
    };
    Ok((measured, outcome))
}

/// What rebuilds have in common.
struct Runner<'a> {
    args: &'a ProposalsArgs,
    program: &'a Path,
    chain: &'a Chain,
    scratch: &'a Path,
    interrupt: &'a AtomicBool,
}

impl Runner<'_> {
    /// Measures a rebuild of `bytes` bytes of blocks.
    fn rebuild(&self, run: &Run, bytes: usize) -> Result<(Measured, Outcome), Error> {
        let output = self.scratch.join("output");
        if output.exists() {
            fs::remove_dir_all(&output).map_err(|error| environment("empty", &output, error))?;
        }
        let mut command = Command::new(self.program);
        command.args(["reindex", "--progress", "none"]);
        let datadir = if run.is_plain { &self.chain.plain } else { &self.chain.obfuscated };
        self.chain.add_arguments(&mut command, datadir);
        command.arg("--output").arg(&output).args(run.args);
        if run.has_hints {
            command.arg("--hints").arg(&self.chain.hints);
        }
        if let Some(height) = self.chain.stop_at_height {
            command.args(["--stop-at-height", &height.to_string()]);
        }
        command.args(self.args.program.further());
        let measured = measure(&mut command, self.scratch, self.interrupt)
            .map_err(|error| Error::new(ErrorKind::Environment, format!("cannot run a program: {error}")))?;
        let answer: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let hash = answer["hash_serialized_3"].as_str().unwrap_or_default().to_owned();
        if measured.status.success() && hash.is_empty() {
            return Err(failed("a rebuild did not report its UTXO set"));
        }
        Ok((measured, Outcome { answer: hash, count: bytes }))
    }
}
