//! `peregrine-bench`: measures whole rebuilds and downloads against another program, and proposals for faster
//! ones against their absence, and draws the logs of runs.
//!
//! It is a tool for people who measure; operators need only `peregrine`.
#![forbid(unsafe_code)]

mod circumstances;
mod compare;
mod measure;
mod place;
mod plot;
mod proposals;
mod runs;
mod statistics;
mod sync;
mod text;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures Peregrine and draws its runs.
#[derive(Parser, Debug)]
#[command(name = "peregrine-bench", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Measure rebuilds of a datadir's chainstate; the datadir is only read
    Reindex(compare::CompareArgs),
    /// Measure downloads from real nodes, each behind a relay that is as slow as a link; needs Linux
    Sync(sync::SyncArgs),
    /// Measure what each proposal of Bitcoin Core's documents on the speed of initial block download gains
    Proposals(proposals::ProposalsArgs),
    /// Print docs/documents.md: every number of these documents beside those of a recorded run
    Documents(proposals::DocumentsArgs),
    /// Generate the chain of the proposals
    #[command(hide = true)]
    Generate(proposals::GenerateArgs),
    /// Draw logs of rebuilds as one HTML page
    Plot(plot::PlotArgs),
}

fn main() -> ExitCode {
    let (json, done) = match Args::parse().command {
        Command::Reindex(args) => (args.bench.json, compare::run(&args)),
        Command::Sync(args) => (args.bench.json, sync::run(&args)),
        Command::Proposals(args) => (args.bench.json, proposals::run(&args)),
        Command::Documents(args) => (false, proposals::print_documents(&args)),
        Command::Generate(args) => (false, proposals::generate_chain(&args)),
        Command::Plot(args) => (false, plot::run(&args)),
    };
    cli::output::finish(json, done)
}
