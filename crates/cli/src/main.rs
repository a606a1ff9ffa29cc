//! The program `peregrine`: reads the command line, calls the engine and prints its report.
//!
//! Reports go to stdout, everything else to stderr. [`peregrine::exit::Exit`] lists the exit codes.
#![forbid(unsafe_code)]

#[cfg(feature = "export")]
mod ages;
mod args;
mod bitcoin_conf;
mod chain_settings;
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
mod prelude;
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
use progress::Style;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut root = args::definition();
    let mut words = core_args::accept_core_spelling(std::env::args_os());
    // clap's own command `help` has no option `--help`.
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    let matches = root.clone().try_get_matches_from(&words).unwrap_or_else(|error| {
        let has = |word: &str| words.iter().any(|own| own == word);
        let in_progress = error.use_stderr()
            && (has("--progress=json") || words.windows(2).any(|pair| pair == ["--progress", "json"]));
        if error.use_stderr() {
            output::print_refusal(&error.to_string(), has("--json"), in_progress);
        }
        if in_progress {
            // Each line of stderr is an object.
            std::process::exit(error.exit_code());
        }
        error.exit()
    });
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut root).exit());
    limits::ignore_file_size_signal();
    limits::raise_open_files();
    let (name, json, progress) = chosen(&matches);
    let options = options_of(&root, &name).unwrap_or_default();
    running::begin(name, options, json, progress == Some(Style::Json));
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
        Command::Hints(hints::HintsCommand::Make(args)) => hints::make(&args),
        Command::Hints(hints::HintsCommand::Info(args)) => hints::info(&args),
        Command::Hints(hints::HintsCommand::Convert(args)) => hints::convert(&args),
        Command::Hints(hints::HintsCommand::Check(args)) => hints::check(&args),
        Command::Snapshot(snapshot::SnapshotCommand::Make(args)) => snapshot::make(&args),
        Command::Snapshot(snapshot::SnapshotCommand::Info(args)) => snapshot::info(&args),
        Command::Snapshot(snapshot::SnapshotCommand::Verify(args)) => snapshot::verify(&args),
        Command::Snapshot(snapshot::SnapshotCommand::Load(args)) => snapshot::load(&args),
        Command::Snapshot(snapshot::SnapshotCommand::Share(args)) => shared_snapshot::share(&args),
        Command::Snapshot(snapshot::SnapshotCommand::Fetch(args)) => shared_snapshot::fetch(&args),
        Command::Undo(undo::UndoCommand::Check(args)) => undo::check(&args),
        Command::Undo(undo::UndoCommand::Make(args)) => undo::make(&args),
        Command::Undo(undo::UndoCommand::Export(args)) => undo::export(&args),
        Command::Index(index::IndexCommand::Make(args)) => index::make(&args),
        Command::Index(index::IndexCommand::Check(args)) => index::check(&args),
        Command::Index(index::IndexCommand::Update(args)) => index::update(&args),
        Command::Range(range::RangeCommand::Plan(args)) => range::plan(&args),
        Command::Range(range::RangeCommand::Files(args)) => range::files(&args),
        Command::Range(range::RangeCommand::Check(args)) => range::check(&args),
        Command::Range(range::RangeCommand::Merge(args)) => range::merge(&args),
        Command::Range(range::RangeCommand::Finish(args)) => range::finish(&args),
        #[cfg(feature = "export")]
        Command::Export(command) => export::run(&command),
        Command::Utxo(utxo::UtxoCommand::Stats(args)) => utxo::stats(&args),
        Command::Utxo(utxo::UtxoCommand::Get(args)) => utxo::get(&args),
        Command::Utxo(utxo::UtxoCommand::Scan(args)) => utxo::scan(&args),
        #[cfg(feature = "export")]
        Command::Utxo(utxo::UtxoCommand::Ages(args)) => ages::run(&args),
        Command::Completions(args) => packaging::completions(&args, root),
        Command::Man(args) => packaging::man(&args, root),
    }
}
