//! `peregrine`: says what the engine does. The only room that prints.
//!
//! Reports go to stdout, everything else to stderr. [`exit::Exit`] lists the exit codes.
#![forbid(unsafe_code)]

mod args;
mod exit;
mod progress;
mod report;

use args::{Args, Command, ReindexArgs, StatsArgs, UtxoCommand};
use clap::Parser;
use engine::{Error, RealDisk};
use exit::Exit;
use progress::Progress;
use std::{
    io::{self, Write},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

fn main() -> ExitCode {
    let args = Args::parse();
    let (json, done) = match args.command {
        Command::Reindex(args) => (args.datadir.json, reindex(&args)),
        Command::Utxo { command: UtxoCommand::Stats(args) } => (args.datadir.json, stats(&args)),
    };
    let exit = match done {
        Ok(text) => print(&text),
        Err(error) => {
            if json {
                print(&report::failure_json(&error));
            }
            let _ = writeln!(io::stderr(), "error: {error}");
            Exit::of(&error)
        }
    };
    exit.into()
}

fn reindex(args: &ReindexArgs) -> Result<String, Error> {
    let interrupt = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupt);
    // A second Ctrl-C ends the process at once: the datadir is safe at any moment.
    let handler = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    });
    handler.map_err(|error| {
        Error::new(engine::ErrorKind::Environment, format!("cannot watch for Ctrl-C: {error}"))
    })?;
    let progress = Progress::new(args.progress);
    let report = engine::reindex(&RealDisk, &args.options(), &progress, &interrupt);
    progress.close();
    let report = report?;
    Ok(if args.datadir.json { report::reindex_json(&report) } else { report::reindex_text(&report) })
}

fn stats(args: &StatsArgs) -> Result<String, Error> {
    let stats = engine::utxo_stats(&RealDisk, &args.options())?;
    Ok(if args.datadir.json { report::stats_json(&stats) } else { report::stats_text(&stats) })
}

/// Writes a report; a reader that has gone away (a closed pipe) is not an error.
fn print(text: &str) -> Exit {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::Environment,
        _ => Exit::Done,
    }
}
