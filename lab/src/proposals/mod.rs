//! `peregrine-bench proposals`: what each proposal of Bitcoin Core's documents on the speed of initial block
//! download gains on this machine, with and without it in turns on one chain. `docs/benchmarks.md` explains
//! the columns.

mod chain;
mod core_bench;
mod documents;
mod list;
mod node;
mod proposal;
mod report;
mod steps;

use crate::{
    circumstances::Circumstances,
    measure::{Measured, ProgramArgs, measure},
    place::{Scratch, environment},
    rows::{OutputArgs, Rows},
};
use bench::Inputs;
use chain::{Chain, Extent, failed};
pub use chain::{GenerateArgs, generate_chain};
use clap::Args as ClapArgs;
use cli::{
    output::{Done, interrupt, print_message},
    run_log::create_new,
    stop,
};
pub use documents::{DocumentsArgs, run as print_documents};
use engine::{Error, ErrorKind, Network, Stage};
use liblzma::read::XzEncoder;
use node::Node;
use parse_size::parse_size;
use proposal::{CoreCommand, Measure, Outcome, Proposal, Run, Step, Stopwatch, Variant, Work};
use report::{Report, Row};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::{AtomicBool, Ordering},
    thread::available_parallelism,
    time::Duration,
};
use steps::Lab;

/// The generated chain whose scripts are run has this share of the bytes: a run takes longer there.
const SIGNED_SHARE: u64 = 8;

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
    #[arg(value_parser = list::all().map(|proposal| proposal.name).collect::<Vec<_>>())]
    pub only: Vec<String>,

    /// Number of coins of the last flush
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    pub coins: u64,

    /// Runs of each variant, in turns
    #[arg(long, value_name = "N", default_value = "5")]
    pub runs: NonZeroU32,

    #[command(flatten)]
    pub program: ProgramArgs,

    /// The program with which all scripts are run, which starts more slowly [default: the measured one]
    #[arg(long, value_name = "FILE")]
    pub script_program: Option<PathBuf>,

    /// Show the results of Bitcoin Core's own benchmarks too, from the file of bench_bitcoin -output-json
    #[arg(long, value_name = "FILE")]
    pub bench_bitcoin: Option<PathBuf>,

    /// Measure commands of this bitcoind too; bitcoin-cli must be beside it
    #[arg(long, value_name = "FILE")]
    pub bitcoind: Option<PathBuf>,

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
    let core = args.bench_bitcoin.as_deref().map_or(Ok(Vec::new()), core_bench::read)?;
    let circumstances = Circumstances::begin(&args.output)?;
    let record = args.record.as_deref().map(Record::create).transpose()?;
    let csv = args.record.as_ref().map_or_else(|| args.output.csv.clone(), |dir| Some(dir.join("raw.csv")));
    let mut rows = Rows::new(&OutputArgs { csv, ..args.output.clone() })?;
    let program = args.program.find()?;
    let scratch = Scratch::new(&args.output.work_dir)?;
    let wanted =
        |proposal: &&Proposal| args.only.is_empty() || args.only.iter().any(|it| it == proposal.name);
    let proposals: Vec<&Proposal> = list::all().filter(wanted).collect();
    let folder = scratch.0.join("chain");
    let chain = match &args.datadir {
        Some(datadir) => Chain::copy(datadir, args.chain, folder)?,
        None => Chain::generate(folder, args.size, args.seed, false)?,
    };
    let chain = chain.limited(args.stop_at_height, args.hints_height);
    let extent = chain.extent()?;
    let lab = Laboratory { args, program: &program, scratch: &scratch.0, interrupt: &interrupt };
    // Before the blocks are in memory: the kernel counts that of this process towards a run's peak.
    let skipped = lab.measure_runs(&proposals, &chain, &extent, &mut rows)?;
    lab.measure_steps(&proposals, &chain, &mut rows)?;
    let about = report::About { skipped, ..report::About::new(args, &chain, &extent, circumstances) };
    let report = Report::new(about, &proposals, core, rows.finish()?);
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
        let copy = |from| fs::copy(from, self.dir.join(documents::BENCH_BITCOIN)).map(drop);
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
    /// Measures the wanted variants of all proposals in turns. Every second round goes backwards, so that no
    /// variant always has the same place.
    fn in_turns(
        &self,
        proposals: &[&'static Proposal],
        is_wanted: impl Fn(&Variant) -> bool,
        rows: &mut Rows<Row>,
        mut measure: impl FnMut(&Work) -> Result<(Measured, Outcome), Error>,
    ) -> Result<(), Error> {
        for run in 1..=self.args.runs.get() {
            for proposal in proposals.iter().filter(|proposal| proposal.measure != Measure::Size || run == 1)
            {
                let mut variants: Vec<_> =
                    proposal.variants.iter().filter(|variant| is_wanted(variant)).collect();
                if run % 2 == 0 {
                    variants.reverse();
                }
                for variant in variants {
                    let (measured, outcome) = measure(&variant.work)?;
                    if self.interrupt.load(Ordering::Relaxed) {
                        return Err(Error::interrupted());
                    }
                    let row = Row::new(proposal, variant, run, &measured, outcome);
                    rows.add(row, self.args.runs, &measured)?;
                }
            }
        }
        Ok(())
    }

    /// Measures all runs of the program. Returns which of them are left out, and why.
    fn measure_runs(
        &self,
        proposals: &[&'static Proposal],
        chain: &Chain,
        extent: &Extent,
        rows: &mut Rows<Row>,
    ) -> Result<Vec<String>, Error> {
        let runs = proposals
            .iter()
            .flat_map(|proposal| proposal.variants)
            .filter_map(|variant| if let Work::Run(run) = &variant.work { Some(*run) } else { None });
        let runs: Vec<Run> = runs.collect();
        let mut skipped = Vec::new();
        let cores = available_parallelism().map_or(1, usize::from);
        if runs.iter().any(|run| run.threads() > Some(cores)) {
            skipped.push(format!("runs with more than {cores} threads: this machine has as many cores"));
        }
        let has_scripts = runs.iter().any(|run| run.runs_scripts);
        let can_run_scripts = has_scripts && self.can_run_scripts()?;
        if has_scripts && !can_run_scripts {
            skipped.push("runs of all scripts: this program contains no code for them".to_owned());
        }
        // The generated chain has no signatures.
        let is_unsigned = can_run_scripts && self.args.datadir.is_none();
        let signed = is_unsigned.then(|| self.signed_chain()).transpose()?;
        let needs = |what: &str| {
            let mut runs = runs.iter().filter(|run| signed.is_none() || !run.runs_scripts);
            let file = format!("{{{what}}}");
            runs.any(|run| run.words().any(|word| word == file || word == format!("--{what}")))
        };
        // `utxo stats` reads the chainstate without saying so.
        if needs("chainstate") || runs.iter().any(|run| run.command.starts_with(&["utxo"])) {
            chain.make("chainstate", self.program, &self.args.program)?;
        }
        for what in ["hints", "snapshot"].into_iter().filter(|what| needs(what)) {
            chain.make(what, self.program, &self.args.program)?;
        }
        let is_core = |variant: &&Variant| matches!(variant.work, Work::Core(_));
        if self.args.bitcoind.is_none() && proposals.iter().any(|it| it.variants.iter().any(|v| is_core(&v)))
        {
            skipped.push("commands of bitcoind: --bitcoind names none".to_owned());
        }
        let is_wanted = |variant: &Variant| match &variant.work {
            Work::Step(_) => false,
            Work::Core(_) => self.args.bitcoind.is_some(),
            Work::Run(run) => {
                run.threads().is_none_or(|threads| threads <= cores) && (!run.runs_scripts || can_run_scripts)
            }
        };
        self.in_turns(proposals, is_wanted, rows, |work| match (work, &signed) {
            (Work::Run(run), Some((chain, extent))) if run.runs_scripts => self.run(run, chain, extent.bytes),
            (Work::Run(run), _) => self.run(run, chain, extent.bytes),
            (Work::Core(command), _) => self.ask_core(command, chain, extent.bytes),
            (Work::Step(_), _) => Err(failed("a step is no run")),
        })?;
        Ok(skipped)
    }

    fn script_program(&self) -> &Path {
        self.args.script_program.as_deref().unwrap_or(self.program)
    }

    /// Returns whether the program contains Bitcoin Core's code for scripts.
    fn can_run_scripts(&self) -> Result<bool, Error> {
        let program = self.script_program();
        let version = Command::new(program).arg("--version").output();
        let version = version.map_err(|error| environment("run", program, error))?;
        Ok(String::from_utf8_lossy(&version.stdout).contains("libbitcoinkernel"))
    }

    /// Generates a chain with signatures, and makes hints for it.
    fn signed_chain(&self) -> Result<(Chain, Extent), Error> {
        let (folder, bytes) = (self.scratch.join("signed"), self.args.size / SIGNED_SHARE);
        let chain = Chain::generate(folder, bytes, self.args.seed, true)?;
        chain.make("hints", self.program, &self.args.program)?;
        let extent = chain.extent()?;
        Ok((chain, extent))
    }

    /// Measures a run of the program on a chain with `bytes` bytes of blocks.
    fn run(&self, run: &Run, chain: &Chain, bytes: usize) -> Result<(Measured, Outcome), Error> {
        let output = empty_output(chain)?;
        let words: Vec<_> = run.words().collect();
        let program = if run.runs_scripts { self.script_program() } else { self.program };
        let mut command = chain.command(program, &words, &self.args.program);
        let measured = measure(&mut command, self.scratch, self.interrupt)
            .map_err(|error| Error::new(ErrorKind::Environment, format!("cannot run a program: {error}")))?;
        let answer = answer(&measured, run.answer)?;
        let size = size(&output, run.is_packed).map_err(|error| environment("read", &output, error))?;
        Ok((measured, Outcome { answer, count: bytes, size }))
    }

    /// Measures a command to a `bitcoind` that has started on the chain.
    fn ask_core(
        &self,
        command: &CoreCommand,
        chain: &Chain,
        bytes: usize,
    ) -> Result<(Measured, Outcome), Error> {
        let output = empty_output(chain)?;
        let bitcoind = self.args.bitcoind.as_deref().unwrap_or(Path::new("bitcoind"));
        let node = Node::start(bitcoind, chain)?;
        let mut asked = node.command();
        for word in command.words {
            asked.arg(if *word == "{output}" { output.as_os_str() } else { word.as_ref() });
        }
        let measured = measure(&mut asked, self.scratch, self.interrupt).map_err(|error| {
            Error::new(ErrorKind::Environment, format!("cannot run bitcoin-cli: {error}"))
        })?;
        node.stop()?;
        let answer = answer(&measured, command.answer)?;
        let size = size(&output, false).map_err(|error| environment("read", &output, error))?;
        Ok((measured, Outcome { answer, count: bytes, size }))
    }

    /// Measures all steps in this process, each once before it counts: the first call pays for new memory.
    fn measure_steps(
        &self,
        proposals: &[&'static Proposal],
        chain: &Chain,
        rows: &mut Rows<Row>,
    ) -> Result<(), Error> {
        let variants = proposals.iter().flat_map(|proposal| proposal.variants);
        let steps: Vec<Step> = variants.filter_map(|variant| variant.work.step()).collect();
        if steps.is_empty() {
            return Ok(());
        }
        let (stored, places) = chain.load()?;
        let inputs = Inputs::new(stored);
        let mut arenas = inputs.arenas();
        let blocks = inputs.blocks(&mut arenas);
        let lab = Lab::new(chain, &blocks, &places, self.scratch, self.args.coins)?;
        let timed = proposals.iter().filter(|proposal| proposal.measure != Measure::Size);
        let timed = timed.flat_map(|proposal| proposal.variants).filter_map(|variant| variant.work.step());
        print_message("calling each step once");
        for step in timed {
            step(&lab, &mut Stopwatch::default())?;
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(Error::interrupted());
            }
        }
        self.in_turns(
            proposals,
            |variant| variant.work.is_step(),
            rows,
            |work| {
                work.step().map_or_else(|| Err(failed("a run is no step")), |step| measured_step(step, &lab))
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

/// Returns a field of what a process has printed.
fn answer(measured: &Measured, field: &str) -> Result<String, Error> {
    let report: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
    match &report[field] {
        Value::String(text) => Ok(text.clone()),
        Value::Null if measured.status.success() => Err(failed(format!("a run did not report {field}"))),
        other => Ok(other.to_string()),
    }
}

/// Returns the bytes of a file, if it is one; with `is_packed` after `xz -9`.
fn size(path: &Path, is_packed: bool) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && is_packed => packed_len(File::open(path)?).map(Some),
        Ok(found) => Ok(found.is_file().then_some(found.len())),
        Err(_) => Ok(None),
    }
}

/// Returns the number of bytes after `xz -9`.
fn packed_len(bytes: impl io::Read) -> io::Result<u64> {
    io::copy(&mut XzEncoder::new(bytes, 9), &mut io::sink())
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
