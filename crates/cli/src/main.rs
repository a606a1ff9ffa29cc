//! The program `peregrine`: reads the command line, calls the engine and prints its report.
//!
//! Reports go to stdout, everything else to stderr. [`peregrine::exit::Exit`] lists the exit codes.
#![forbid(unsafe_code)]

mod args;
mod doctor;
mod hints;
mod limits;
mod paths;
mod peers;
mod progress;
mod report;
mod snapshot;
mod sync;
mod undo;

use args::{Args, Command, ReindexArgs, StatsArgs, UtxoCommand, VerifyArgs};
use clap::Parser;
use engine::{Event, EventSink, RealDisk};
use peregrine::{
    exit::Exit,
    output::{self, Done, json},
    run_log::RunLog,
    stop::interrupt,
};
use progress::Progress;
use report::ReindexJson;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    limits::ignore_file_size_signal();
    let (json, done) = match args.command {
        Command::Doctor(args) => (args.datadir.json, doctor::run(&args)),
        Command::Reindex(args) => (args.check.datadir.json, reindex(&args)),
        Command::Sync(args) => (args.datadir.json, sync::run(&args)),
        Command::Peers(args) => (args.json, peers::run(&args)),
        Command::Verify(args) => (args.check.datadir.json, verify(&args)),
        Command::Hints { command } => hints::run(&command),
        Command::Snapshot { command } => snapshot::run(&command),
        Command::Undo { command } => undo::run(&command),
        Command::Utxo { command: UtxoCommand::Stats(args) } => (args.datadir.json, stats(&args)),
    };
    output::finish(json, done)
}

fn reindex(args: &ReindexArgs) -> Done {
    let options = args.options();
    paths::check_reindex(args)?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let log = args.log.as_deref().map(RunLog::create).transpose()?;
    let progress = Progress::new(args.check.run.progress);
    let sink = |event: Event| {
        if let Some(log) = &log {
            log.event(&event);
        }
        progress.event(event);
    };
    let report = engine::reindex(&RealDisk, &options, &sink, &interrupt);
    progress.close();
    if let Some(log) = &log {
        log.close(report.as_ref().ok());
    }
    let report = report?;
    let text = if args.check.datadir.json {
        json(&ReindexJson::new(&report))
    } else {
        report::reindex_text(&report)
    };
    Ok((text, Exit::Done))
}

fn verify(args: &VerifyArgs) -> Done {
    let options = args.options();
    paths::check_work_dir(&args.check.datadir, args.check.run.work_dir.as_deref())?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress);
    let report = engine::verify(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let report = report?;
    let differs = report.against_chainstate.as_ref().is_some_and(|comparison| comparison.differences > 0);
    let exit = if differs { Exit::Damaged } else { Exit::Done };
    Ok((
        if args.check.datadir.json { report::verify_json(&report) } else { report::verify_text(&report) },
        exit,
    ))
}

fn stats(args: &StatsArgs) -> Done {
    let stats = engine::utxo_stats(&RealDisk, &args.options())?;
    Ok((if args.datadir.json { report::stats_json(&stats) } else { report::stats_text(&stats) }, Exit::Done))
}
