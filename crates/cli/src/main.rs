//! The program `peregrine`: parses the command line, runs the engine and prints its report. The only crate
//! that prints.
//!
//! Reports go to stdout, everything else to stderr. [`exit::Exit`] lists the exit codes.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod exit;
mod hints;
mod limits;
mod paths;
mod plot;
mod progress;
mod report;
mod run_log;
mod snapshot;
mod stop;

use args::{Args, Command, ReindexArgs, StatsArgs, UtxoCommand, VerifyArgs};
use clap::Parser;
use engine::{Error, Event, EventSink, RealDisk};
use exit::Exit;
use progress::Progress;
use run_log::RunLog;
use std::{
    io::{self, Write},
    process::ExitCode,
};
use stop::interrupt;

/// A command's report, and the exit code if the report can be written.
type Done = Result<(String, Exit), Error>;

fn main() -> ExitCode {
    let args = Args::parse();
    limits::ignore_file_size_signal();
    let (json, done) = match args.command {
        Command::Reindex(args) => (args.check.datadir.json, reindex(&args)),
        Command::Verify(args) => (args.check.datadir.json, verify(&args)),
        Command::Hints { command } => hints::run(&command),
        Command::Snapshot { command } => snapshot::run(&command),
        Command::Bench { command } => bench::run(&command),
        Command::Plot(args) => (false, plot::run(&args)),
        Command::Utxo { command: UtxoCommand::Stats(args) } => (args.datadir.json, stats(&args)),
    };
    let exit = match done {
        Ok((text, exit)) => print(&text, exit),
        Err(error) => {
            if json {
                print(&report::failure_json(&error), Exit::Done);
            }
            print_error(&format!("error: {error}"));
            if let Some(user) = error.run_as {
                print_error(&format!("help: {}", as_user(user, std::env::args())));
            }
            Exit::of(&error)
        }
    };
    exit.into()
}

fn reindex(args: &ReindexArgs) -> Done {
    let options = args.options();
    paths::check_reindex(args)?;
    limits::check(&options)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let log = args.log.as_deref().map(RunLog::create).transpose()?;
    let progress = Progress::new(args.check.progress);
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
    let text =
        if args.check.datadir.json { report::reindex_json(&report) } else { report::reindex_text(&report) };
    Ok((text, Exit::Done))
}

fn verify(args: &VerifyArgs) -> Done {
    let options = args.check.options();
    paths::check_work_dir(&args.check)?;
    limits::check(&options)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.progress);
    let report = engine::verify(&RealDisk, &options, args.against_chainstate, &progress, &interrupt);
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

/// Returns the command line that runs `args` as the user with that number.
fn as_user(user: u32, args: impl Iterator<Item = String>) -> String {
    let name = uzers::get_user_by_uid(user).map(|user| user.name().to_string_lossy().into_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    let quote = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let name = name.unwrap_or_else(|| format!("#{user}"));
    ["sudo", "-u", &name].into_iter().map(str::to_owned).chain(args).map(quote).collect::<Vec<_>>().join(" ")
}

/// Writes a report. A closed pipe is not an error.
fn print(text: &str, exit: Exit) -> Exit {
    match stop::writing(|| writeln!(io::stdout(), "{text}")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(&format!("error: cannot write the report to standard output: {error}"));
            Exit::Environment
        }
        _ => exit,
    }
}

/// Writes a line to stderr.
fn print_error(text: &str) {
    let _ = stop::writing(|| writeln!(io::stderr(), "{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_for_another_user_is_quoted_for_the_shell() {
        let words = ["peregrine", "reindex", "--datadir", "my node"].map(str::to_owned);
        let line = as_user(4_000_000_000, words.into_iter());
        assert_eq!(line, "sudo -u '#4000000000' peregrine reindex --datadir 'my node'");
        assert!(as_user(0, ["x".to_owned()].into_iter()).starts_with("sudo -u root x"));
    }
}
