//! The program `peregrine`: reads the command line, calls the engine and prints its report.
//!
//! Reports go to stdout, everything else to stderr. [`peregrine::exit::Exit`] lists the exit codes.
#![forbid(unsafe_code)]

mod args;
mod bitcoin_conf;
mod core_args;
mod descriptor;
mod doctor;
#[cfg(feature = "export")]
mod export;
mod fault;
mod hint_location;
mod hints;
mod json;
mod limits;
mod notes;
mod packaging;
mod paths;
mod peer_args;
mod peers;
mod progress;
mod range;
mod repair;
mod report;
mod shared_report;
mod snapshot;
mod stats_at;
mod storage;
mod sync;
mod undo;
mod units;
mod update;
mod utxo;

use args::{Args, Command, ReindexArgs, VerifyArgs};
use clap::Parser;
use engine::{Event, EventSink, RealDisk};
use json::Report;
use peregrine::{
    exit::Exit,
    output::{self, Done},
    run_log::{Run, RunLog},
    stop::interrupt,
};
use progress::{Progress, stages};
use report::json::{ReindexJson, verify_json};
use shared_report::{Outcome, Recorder};
use std::process::ExitCode;
use storage::StorageJson;

fn main() -> ExitCode {
    let args = Args::parse_from(core_args::accept_core_spelling(std::env::args_os()));
    limits::ignore_file_size_signal();
    output::set_command(args.command.name());
    let (json, done) = match args.command {
        Command::Doctor(args) => (args.datadir.json, doctor::run(&args)),
        Command::Reindex(args) => (args.check.datadir.json, reindex(&args)),
        Command::Update(args) => (args.datadir.json, update::run(&args)),
        Command::Sync(args) => (args.datadir.json, sync::run(&args)),
        Command::Repair(args) => (args.datadir.json, repair::run(&args)),
        Command::Peers(args) => (args.json, peers::run(&args)),
        Command::Verify(args) => (args.check.datadir.json, verify(&args)),
        Command::Hints { command } => hints::run(&command),
        Command::Snapshot { command } => snapshot::run(&command),
        Command::Undo { command } => undo::run(&command),
        Command::Range(command) => range::run(&command),
        #[cfg(feature = "export")]
        Command::Export { command } => export::run(&command),
        Command::Completions(args) => (false, packaging::completions(&args)),
        Command::Man(args) => (false, packaging::man(&args)),
        Command::Utxo { command } => utxo::run(&command),
    };
    output::finish(json, done)
}

fn reindex(args: &ReindexArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check_reindex(args, &located)?;
    args.hints.as_ref().map_or(Ok(()), |hints| hints.check(args.proxy))?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let recorder = Recorder::of_rebuild(args, &located, &options.chain)?;
    let mut run = Run::of(&options.chain);
    run.machine.filesystem = StorageJson::of(&located.datadir().blocks_dir()).file_system();
    let log = args.log.as_deref().map(|log| RunLog::create(log, run)).transpose()?;
    let progress = Progress::new(args.check.run.progress, stages::REINDEX);
    let sink = |event: Event| {
        if let Some(log) = &log {
            log.event(&event);
        }
        if let Some(recorder) = &recorder {
            recorder.event(&event);
        }
        progress.event(event);
    };
    let report = engine::reindex(&RealDisk, &options, &sink, &interrupt);
    progress.close();
    if let Some(log) = &log {
        log.close(report.as_ref());
    }
    let outcome = report.as_ref().map_or_else(Outcome::Failed, Outcome::Rebuilt);
    let written = recorder.map(|recorder| recorder.finish(&outcome)).transpose();
    let report = report?;
    let shared = written?.unwrap_or_default();
    Ok(match args.check.datadir.json {
        true => json::report(Report::Reindex(Box::new(ReindexJson::new(&report))), Exit::Done),
        false => (report::reindex_text(&report) + &shared, Exit::Done),
    })
}

fn verify(args: &VerifyArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check_verify(args, &located)?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let recorder = Recorder::of_verification(args, &located, &options.chain)?;
    let progress = Progress::new(args.check.run.progress, stages::VERIFY);
    let sink = |event: Event| {
        if let Some(recorder) = &recorder {
            recorder.event(&event);
        }
        progress.event(event);
    };
    let report = engine::verify(&RealDisk, &options, &sink, &interrupt);
    progress.close();
    let verified = |report| Outcome::Verified(report, located.network());
    let outcome = report.as_ref().map_or_else(Outcome::Failed, verified);
    let written = recorder.map(|recorder| recorder.finish(&outcome)).transpose();
    let report = report?;
    let shared = written?.unwrap_or_default();
    let exit = if report.differs() { Exit::Damaged } else { Exit::Done };
    Ok(match args.check.datadir.json {
        true => json::report(Report::Verify(verify_json(&report, located.network())), exit),
        false => (report::verify_text(&report) + &shared, exit),
    })
}
