//! The program `peregrine`: reads the command line, calls the engine and prints its report.
//!
//! Reports go to stdout, everything else to stderr. [`peregrine::exit::Exit`] lists the exit codes.
#![forbid(unsafe_code)]

#[cfg(feature = "export")]
mod ages;
mod args;
mod bitcoin_conf;
mod command_options;
mod core_args;
mod descriptor;
mod doctor;
#[cfg(feature = "export")]
mod export;
mod hint_location;
mod hints;
mod index;
mod limits;
mod named_dirs;
mod node_settings;
mod packaging;
mod paths;
mod peer_args;
mod peers;
mod progress;
mod range;
mod recover;
mod reindex;
mod repair;
mod report;
mod rows;
mod run;
mod run_note;
mod shared_report;
mod shared_snapshot;
mod snapshot;
mod stats_at;
mod storage;
mod sync;
#[cfg(test)]
mod tests;
mod undo;
mod units;
mod update;
mod utxo;
mod verify;

use args::{Args, Command};
use clap::FromArgMatches;
use command_options::{chosen, options_of};
use peregrine::{output, running};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut root = args::definition();
    let mut words = core_args::accept_core_spelling(std::env::args_os());
    // clap's own command `help` has no option `--help`.
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    let matches = root.clone().get_matches_from(&words);
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut root).exit());
    limits::ignore_file_size_signal();
    let (name, json) = chosen(&matches);
    let options = options_of(&root, &name).unwrap_or_default();
    running::begin(name, options, json);
    let done = named_dirs::refuse_tildes(&words).and_then(|()| run_command(args.command, root));
    output::finish(json, done)
}

fn run_command(command: Command, root: clap::Command) -> output::Done {
    match command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Reindex(args) => reindex::reindex(&args),
        Command::Update(args) => update::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Hints { command } => hints::run(&command),
        Command::Snapshot { command } => snapshot::run(&command),
        Command::Undo { command } => undo::run(&command),
        Command::Index { command } => index::run(&command),
        Command::Range(command) => range::run(&command),
        #[cfg(feature = "export")]
        Command::Export { command } => export::run(&command),
        Command::Completions(args) => packaging::completions(&args, root),
        Command::Man(args) => packaging::man(&args, root),
        Command::Utxo { command } => utxo::run(&command),
    }
}
