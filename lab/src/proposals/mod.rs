//! `peregrine-bench proposals`: what each proposal of Bitcoin Core's documents on the speed of initial block
//! download gains on this machine, with and without it in turns on one chain. `docs/benchmarks.md` explains
//! the columns.

mod chain;
mod list;
mod page;
mod rows;

use crate::{
    measure::{Bench, Measured},
    place::{environment, failed},
    runs::BenchArgs,
};
use bench::{
    Inputs,
    steps::{Lab, Outcome, Stopwatch, packed_len},
};
use chain::{Chain, Extent};
pub use chain::{GenerateArgs, generate_chain};
use clap::Args as ClapArgs;
use cli::{
    output::{Done, print_message},
    run_log::create_new,
};
use engine::{Error, Network};
use list::{Measure, Proposal, Variant};
use page::{About, BENCH_BITCOIN, CoreBench, Report};
pub use page::{DocumentsArgs, run as print_documents};
use parse_size::parse_size;
use rows::{COLUMNS, row, summary};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
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

    /// Show the results of Bitcoin Core's own benchmarks too, from the file of bench_bitcoin -output-json
    #[arg(long, value_name = "FILE")]
    pub bench_bitcoin: Option<PathBuf>,

    /// Record the run in this new folder: raw.csv, summary and, if given, bench_bitcoin.json
    #[arg(long, value_name = "DIR", conflicts_with = "csv")]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub bench: BenchArgs,
}

/// Measures all variants in turns, and returns the report.
pub fn run(args: &ProposalsArgs) -> Done {
    let core = args.bench_bitcoin.as_deref().map_or(Ok(Vec::new()), CoreBench::read)?;
    let record = args.record.as_deref();
    if let Some(dir) = record {
        fs::create_dir_all(dir).map_err(|error| environment("create", dir, error))?;
    }
    let csv = record.map_or_else(|| args.bench.csv.clone(), |dir| Some(dir.join("raw.csv")));
    let bench = Bench::begin(&args.bench, csv.as_deref(), COLUMNS)?;
    let summary = record.map(|dir| create_new(&dir.join("summary"))).transpose()?;
    let wanted = |proposal: &&Proposal| args.only.is_empty() || args.only.contains(&proposal.name);
    let proposals: Vec<&Proposal> = list::all().iter().filter(wanted).collect();
    let chain = Chain::new(args, bench.scratch.path().join("chain"))?;
    let extent = chain.extent()?;
    let mut lab = Laboratory { args, bench, proposals, chain };
    // Before the blocks are in memory: the kernel counts that of this process towards a run's peak.
    lab.measure_runs(&extent)?;
    lab.measure_steps()?;
    let about = About::new(args, &lab.chain, &extent, lab.bench.circumstances);
    let report = Report::new(about, &lab.proposals, core, lab.bench.rows.rows);
    if let Some((dir, mut summary)) = record.zip(summary) {
        let written = writeln!(summary, "{}", report.text());
        let copy = |from| fs::copy(from, dir.join(BENCH_BITCOIN)).map(drop);
        let done = written.and_then(|()| args.bench_bitcoin.as_ref().map_or(Ok(()), copy));
        done.map_err(|error| environment("write into", dir, error))?;
    }
    args.bench.done(&report, Report::text)
}

/// What is measured, and where.
struct Laboratory<'a> {
    args: &'a ProposalsArgs,
    proposals: Vec<&'static Proposal>,
    chain: Chain,
    bench: Bench,
}

impl Laboratory<'_> {
    /// Measures variants of one kind in turns, and once more those of proposals whose runs differ much. Every
    /// second round goes backwards, so that no variant always has the same place.
    fn in_turns(
        &mut self,
        is_own: impl Fn(&&Variant) -> bool,
        mut measure: impl FnMut(&Self, &Variant) -> Result<(Measured, Outcome), Error>,
    ) -> Result<(), Error> {
        let runs = self.args.bench.runs;
        let mut proposals = self.proposals.clone();
        for run in 1..=2 * runs.get() {
            if run == runs.get() + 1 {
                proposals.retain(|proposal| {
                    proposal.variants.iter().any(|variant| is_own(&variant))
                        && summary(proposal, &self.bench.rows.rows).is_some_and(|it| it.is_unclear())
                });
                let names: Vec<&str> = proposals.iter().map(|proposal| proposal.name.as_str()).collect();
                if !names.is_empty() {
                    let names = names.join(", ");
                    print_message(&format!("the runs differ much, so these are measured again: {names}"));
                }
            }
            for proposal in proposals.iter().filter(|proposal| proposal.measure != Measure::Size || run == 1)
            {
                let mut variants: Vec<_> = proposal.variants.iter().filter(&is_own).collect();
                if run % 2 == 0 {
                    variants.reverse();
                }
                for variant in variants {
                    let (measured, outcome) = measure(self, variant)?;
                    Error::check_interrupt(self.bench.interrupt)?;
                    let row = row(proposal, variant, run, &measured, outcome);
                    self.bench.rows.add(row, runs, &measured)?;
                }
            }
        }
        Ok(())
    }

    /// Measures all runs of the program.
    fn measure_runs(&mut self, extent: &Extent) -> Result<(), Error> {
        let variants = self.proposals.iter().flat_map(|proposal| &proposal.variants);
        if variants.filter_map(Variant::words).flatten().any(|word| word == "{hints}") {
            self.chain.make_hints(&self.bench.peregrine, &self.args.bench)?;
        }
        self.in_turns(|variant| variant.run.is_some(), |lab, variant| lab.run(variant, extent.bytes))
    }

    /// Measures a run of the program on a chain with `bytes` bytes of blocks.
    fn run(&self, variant: &Variant, bytes: usize) -> Result<(Measured, Outcome), Error> {
        let output = self.chain.file("output");
        let removed = if output.is_dir() { fs::remove_dir_all(&output) } else { fs::remove_file(&output) };
        if let Err(error) = removed
            && output.exists()
        {
            return Err(environment("remove", &output, error));
        }
        let words = variant.words().unwrap_or_default();
        let measured =
            self.bench.measure(&mut self.chain.command(&self.bench.peregrine, &words, &self.args.bench))?;
        let report: Value = serde_json::from_str(&measured.output).unwrap_or(Value::Null);
        let answer = match &report[&variant.answer] {
            Value::Null if measured.status.success() => {
                return Err(failed(format!("a run did not report {}", variant.answer)));
            }
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        let size = size(&output, variant.is_packed).map_err(|error| environment("read", &output, error))?;
        Ok((measured, Outcome { answer, count: bytes, size }))
    }

    /// Measures all steps in this process, each once before it counts: the first call pays for new memory.
    fn measure_steps(&mut self) -> Result<(), Error> {
        let has_time = |proposal: &&&Proposal| proposal.measure != Measure::Size;
        let steps =
            |proposal: &&'static Proposal| proposal.variants.iter().filter_map(|it| it.step.as_deref());
        if self.proposals.iter().flat_map(steps).next().is_none() {
            return Ok(());
        }
        let (stored, places) = self.chain.load()?;
        let inputs = Inputs::new(stored);
        let mut arenas = inputs.arenas();
        let blocks = inputs.blocks(&mut arenas);
        let scratch = self.bench.scratch.path().to_owned();
        let lab = Lab::new(self.chain.datadir(), &blocks, &places, scratch, self.args.coins)?;
        let step = |step: &str, watch: &mut Stopwatch| {
            lab.step(step, watch).map_err(|error| failed(format!("a step failed: {error}")))
        };
        print_message("calling each step once");
        for words in self.proposals.iter().filter(has_time).flat_map(steps) {
            step(words, &mut Stopwatch::default())?;
            Error::check_interrupt(self.bench.interrupt)?;
        }
        self.in_turns(
            |variant| variant.step.is_some(),
            |_, variant| {
                let mut watch = Stopwatch::default();
                let outcome = step(variant.step.as_deref().unwrap_or_default(), &mut watch)?;
                let measured = Measured { wall: watch.wall, user: watch.processor, ..Measured::default() };
                Ok((measured, outcome))
            },
        )
    }
}

/// Returns the bytes of a file, if it is one; with `is_packed` after `xz -9`.
fn size(path: &Path, is_packed: bool) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() && is_packed => packed_len(File::open(path)?).map(Some),
        Ok(found) if found.is_file() => Ok(Some(found.len())),
        _ => Ok(None),
    }
}
