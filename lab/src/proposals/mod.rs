//! `peregrine-bench proposals`: what each proposal of Bitcoin Core's documents on the speed of initial block
//! download gains on this machine, with and without it in turns on one chain. `docs/benchmarks.md` explains
//! the columns.

mod chain;
mod list;
mod page;
mod rows;

use crate::{
    circumstances::Circumstances,
    measure::{Measured, ProgramArgs, measure},
    place::{Scratch, environment},
    runs::{OutputArgs, Rows},
};
use bench::{
    Inputs,
    steps::{Lab, Outcome, Stopwatch, packed_len},
};
use chain::{Chain, Extent, failed};
pub use chain::{GenerateArgs, generate_chain};
use clap::Args as ClapArgs;
use cli::{
    output::{Done, interrupt, print_message},
    run_log::create_new,
    stop,
};
use engine::{Error, Network, Stage};
use list::{Measure, Proposal, Variant};
use page::{About, BENCH_BITCOIN, CoreBench, Report};
pub use page::{DocumentsArgs, run as print_documents};
use parse_size::parse_size;
use rows::{COLUMNS, row, summary};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    num::NonZeroU32,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

#[derive(ClapArgs, Debug)]
pub struct ProposalsArgs {
    /// Bitcoin Core's data directory, which is only read [default: a chain is generated]
    #[arg(long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,

    /// Its network, by Core's names
    #[arg(long, default_value_t = Network::Main, requires = "datadir")]
    pub chain: Network,

    /// Bytes of the blocks to generate, with suffix kB, MB or GB
    #[arg(long, value_name = "SIZE", default_value = "150MB", conflicts_with = "datadir")]
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
    #[arg(value_parser = list::all().iter().map(|proposal| proposal.name.as_str()).collect::<Vec<_>>())]
    pub only: Vec<String>,

    /// Number of coins of the last flush
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    pub coins: u64,

    /// Runs of each variant, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,

    #[command(flatten)]
    pub program: ProgramArgs,

    /// Show the results of Bitcoin Core's own benchmarks too, from the file of bench_bitcoin -output-json
    #[arg(long, value_name = "FILE")]
    pub bench_bitcoin: Option<PathBuf>,

    /// Record the run in this new folder: raw.csv, summary and, if given, bench_bitcoin.json
    #[arg(long, value_name = "DIR", conflicts_with = "csv")]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Measures all variants in turns, and returns the report.
pub fn run(args: &ProposalsArgs) -> Done {
    let interrupt = interrupt(args.output.json)?;
    stop::at_stage(Stage::Read);
    let core = args.bench_bitcoin.as_deref().map_or(Ok(Vec::new()), CoreBench::read)?;
    let circumstances = Circumstances::begin(&args.output)?;
    let record = args.record.as_deref().map(Record::create).transpose()?;
    let csv = args.record.as_ref().map_or_else(|| args.output.csv.clone(), |dir| Some(dir.join("raw.csv")));
    let mut rows = Rows::new(&OutputArgs { csv, ..args.output.clone() }, &COLUMNS)?;
    let program = args.program.find()?;
    let scratch = Scratch::new(&args.output.work_dir)?;
    let wanted = |proposal: &&Proposal| args.only.is_empty() || args.only.contains(&proposal.name);
    let proposals: Vec<&Proposal> = list::all().iter().filter(wanted).collect();
    let folder = scratch.0.join("chain");
    let chain = match &args.datadir {
        Some(datadir) => Chain::copy(datadir, args.chain, folder)?,
        None => Chain::generate(folder, args.size, args.seed)?,
    };
    let chain = chain.limited(args.stop_at_height, args.hints_height);
    let extent = chain.extent()?;
    let lab = Laboratory { args, program: &program, scratch: &scratch.0, interrupt: &interrupt };
    // Before the blocks are in memory: the kernel counts that of this process towards a run's peak.
    lab.measure_runs(&proposals, &chain, &extent, &mut rows)?;
    lab.measure_steps(&proposals, &chain, &mut rows)?;
    let about = About::new(args, &chain, &extent, circumstances);
    let report = Report::new(about, &proposals, core, rows.rows);
    if let Some(record) = record {
        record.finish(&report, args.bench_bitcoin.as_deref())?;
    }
    args.output.done(&report, Report::text)
}

/// The folder of a recorded run.
struct Record {
    dir: PathBuf,
    summary: File,
}

impl Record {
    fn create(dir: &Path) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(|error| environment("create", dir, error))?;
        Ok(Self { dir: dir.to_owned(), summary: create_new(&dir.join("summary"))? })
    }

    fn finish(mut self, report: &Report, bench_bitcoin: Option<&Path>) -> Result<(), Error> {
        let written = writeln!(self.summary, "{}", report.text());
        let copy = |from| fs::copy(from, self.dir.join(BENCH_BITCOIN)).map(drop);
        let done = written.and_then(|()| bench_bitcoin.map_or(Ok(()), copy));
        done.map_err(|error| environment("write into", &self.dir, error))
    }
}

/// What all measurements have in common.
struct Laboratory<'a> {
    args: &'a ProposalsArgs,
    program: &'a Path,
    scratch: &'a Path,
    interrupt: &'a AtomicBool,
}

impl Laboratory<'_> {
    /// Measures the wanted variants of all proposals in turns, and once more those whose runs differ much.
    fn in_turns(
        &self,
        proposals: &[&'static Proposal],
        is_wanted: impl Fn(&Variant) -> bool,
        rows: &mut Rows,
        mut measure: impl FnMut(&Variant) -> Result<(Measured, Outcome), Error>,
    ) -> Result<(), Error> {
        let runs = self.args.runs.get();
        self.rounds(1..=runs, proposals, &is_wanted, rows, &mut measure)?;
        let is_unclear = |proposal: &&&'static Proposal| {
            proposal.variants.iter().any(&is_wanted)
                && summary(proposal, &rows.rows).is_some_and(|summary| summary.is_unclear())
        };
        let again: Vec<_> = proposals.iter().filter(is_unclear).copied().collect();
        if !again.is_empty() {
            let names: Vec<&str> = again.iter().map(|proposal| proposal.name.as_str()).collect();
            print_message(&format!(
                "the runs differ much, so these are measured again: {}",
                names.join(", ")
            ));
        }
        self.rounds(runs + 1..=2 * runs, &again, &is_wanted, rows, &mut measure)
    }

    /// Measures these runs of the wanted variants. Every second round goes backwards, so that no variant
    /// always has the same place.
    fn rounds(
        &self,
        runs: RangeInclusive<u32>,
        proposals: &[&'static Proposal],
        is_wanted: &impl Fn(&Variant) -> bool,
        rows: &mut Rows,
        measure: &mut impl FnMut(&Variant) -> Result<(Measured, Outcome), Error>,
    ) -> Result<(), Error> {
        for run in runs {
            for proposal in proposals.iter().filter(|proposal| proposal.measure != Measure::Size || run == 1)
            {
                let mut variants: Vec<_> =
                    proposal.variants.iter().filter(|variant| is_wanted(variant)).collect();
                if run % 2 == 0 {
                    variants.reverse();
                }
                for variant in variants {
                    let (measured, outcome) = measure(variant)?;
                    self.interrupted()?;
                    let row = row(proposal, variant, run, &measured, outcome);
                    rows.add(row, self.args.runs, &measured)?;
                }
            }
        }
        Ok(())
    }

    fn interrupted(&self) -> Result<(), Error> {
        if self.interrupt.load(Ordering::Relaxed) { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Measures all runs of the program.
    fn measure_runs(
        &self,
        proposals: &[&'static Proposal],
        chain: &Chain,
        extent: &Extent,
        rows: &mut Rows,
    ) -> Result<(), Error> {
        let words = proposals.iter().flat_map(|proposal| &proposal.variants).filter_map(Variant::words);
        if words.flatten().any(|word| word == "{hints}") {
            chain.make_hints(self.program, &self.args.program)?;
        }
        self.in_turns(
            proposals,
            |variant| variant.run.is_some(),
            rows,
            |variant| self.run(variant, chain, extent.bytes),
        )
    }

    /// Measures a run of the program on a chain with `bytes` bytes of blocks.
    fn run(&self, variant: &Variant, chain: &Chain, bytes: usize) -> Result<(Measured, Outcome), Error> {
        let output = empty_output(chain)?;
        let words = variant.words().unwrap_or_default();
        let mut command = chain.command(self.program, &words, &self.args.program);
        let measured = measure(&mut command, self.scratch, self.interrupt)
            .map_err(|error| failed(format!("cannot run a program: {error}")))?;
        let report: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let answer = match &report[&variant.answer] {
            Value::Null if measured.status.success() => {
                return Err(failed(format!("a run did not report {}", variant.answer)));
            }
            answer => in_words(answer),
        };
        let size = size(&output, variant.is_packed).map_err(|error| environment("read", &output, error))?;
        Ok((measured, Outcome { answer, count: bytes, size }))
    }

    /// Measures all steps in this process, each once before it counts: the first call pays for new memory.
    fn measure_steps(
        &self,
        proposals: &[&'static Proposal],
        chain: &Chain,
        rows: &mut Rows,
    ) -> Result<(), Error> {
        let steps =
            |proposal: &&'static Proposal| proposal.variants.iter().filter_map(|it| it.step.as_deref());
        if proposals.iter().all(|proposal| steps(proposal).next().is_none()) {
            return Ok(());
        }
        let (stored, places) = chain.load()?;
        let inputs = Inputs::new(stored);
        let mut arenas = inputs.arenas();
        let blocks = inputs.blocks(&mut arenas);
        let lab = Lab::new(chain.datadir(), &blocks, &places, self.scratch.to_owned(), self.args.coins)?;
        print_message("calling each step once");
        for step in proposals.iter().filter(|proposal| proposal.measure != Measure::Size).flat_map(steps) {
            lab.step(step, &mut Stopwatch::default()).map_err(step_failed)?;
            self.interrupted()?;
        }
        self.in_turns(
            proposals,
            |variant| variant.step.is_some(),
            rows,
            |variant| {
                let mut watch = Stopwatch::default();
                let outcome = lab.step(variant.step.as_deref().unwrap_or_default(), &mut watch);
                let outcome = outcome.map_err(step_failed)?;
                Ok((in_this_process(&watch), outcome))
            },
        )
    }
}

/// Returns the path of a run's output, where nothing is.
fn empty_output(chain: &Chain) -> Result<PathBuf, Error> {
    let output = chain.file("output");
    let removed = if output.is_dir() { fs::remove_dir_all(&output) } else { fs::remove_file(&output) };
    match removed {
        Err(error) if output.exists() => Err(environment("remove", &output, error)),
        _ => Ok(output),
    }
}

/// Returns a field of a report as text.
fn in_words(answer: &Value) -> String {
    answer.as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

/// Returns the bytes of a file, if it is one; with `is_packed` after `xz -9`.
fn size(path: &Path, is_packed: bool) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && is_packed => packed_len(File::open(path)?).map(Some),
        Ok(found) => Ok(found.is_file().then_some(found.len())),
        Err(_) => Ok(None),
    }
}

fn step_failed(error: io::Error) -> Error {
    failed(format!("a step failed: {error}"))
}

/// Returns the account of work that was done in this process.
fn in_this_process(watch: &Stopwatch) -> Measured {
    Measured {
        wall: watch.wall,
        user: watch.processor,
        system: Duration::ZERO,
        peak_rss_bytes: 0,
        io: None,
        status: ExitStatus::default(),
        output: String::new(),
        messages: String::new(),
    }
}
